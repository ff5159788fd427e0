"""A request under /_semel/, from its bytes to an answer: found in the table, checked against it, asked of
the desk. Knows nothing of sockets; front/own.py hands requests in and answers out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import orjson

from proxy.admin import browsers, openapi
from proxy.admin.checked import check
from proxy.admin.desk import Body, LocalDesk, key_of
from proxy.admin.routes import Asked, Lines, Route, find
from proxy.admin.schemas import Schema, ref
from proxy.admin.views import Json
from proxy.core.canonical import NotCanonical, parse_pairs
from proxy.core.headers import Headers
from proxy.errors import BadRequest, Forbidden, MethodNotAllowed, Refusal, UnsupportedMediaType
from proxy.front.run_ref import check_run
from proxy.problem import render
from proxy.settings import Address

Reply: TypeAlias = tuple[int, Headers, bytes | AsyncIterator[bytes]]

# The record changes, and holds what others have said: no cache, and no browser, makes anything of it.
EVERY_ANSWER: Headers = ((b"Cache-Control", b"no-store"), (b"X-Content-Type-Options", b"nosniff"))
_DOWNLOAD: Headers = ((b"Content-Security-Policy", b"default-src 'none'; sandbox"),)
# Nothing of these runs in a browser; everything else is handed out as bytes.
_HARMLESS = re.compile(
    r"(?:application/(?:json|octet-stream|x-ndjson|problem\+json)|text/(?:plain|event-stream|csv)"
    r"|image/(?:png|jpeg|gif|webp)|audio/[a-z0-9.+-]+|video/[a-z0-9.+-]+)"
    r"(?:; ?charset=\"?(?:utf-8|us-ascii|iso-8859-1)\"?)?",
    re.IGNORECASE,
)
_CODINGS = re.compile(r"gzip|br|deflate|zstd", re.IGNORECASE)
# What is larger is read in a thread: calls do not wait for it.
LARGEST_AT_ONCE = 1024 * 1024
LARGEST_OUTSIDE_TEXTS = 16 * 1024
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


class Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    by: str  # who asks, for the history
    tenant: str = ""  # whose calls may be seen; empty: everybody's
    is_operator: bool = False  # by a token


class Api:
    def __init__(self, desk: LocalDesk, listen: Address) -> None:
        self._desk = desk
        self._listen = listen

    async def __call__(self, request: Request) -> Reply:
        try:
            status, headers, body = await self._answer(request)
        except Refusal as refusal:
            status, headers, body = render(refusal)
            if isinstance(refusal, MethodNotAllowed):
                headers += ((b"Allow", str(refusal.members["allowed"]).encode()),)
        if request.method == "HEAD":
            body = b""  # what its Content-Length speaks of is left out
        return status, headers + EVERY_ANSWER, body

    async def _answer(self, request: Request) -> Reply:
        routes, names = find(request.path)
        browsers.check(request.headers, self._listen)
        route = _by_method(routes, request)
        call_id, run = names.get("id", ""), names.get("run", "")
        if "id" in names:
            key_of(call_id)
        if "run" in names:
            check_run(run)
        if route.needs_operator and not request.is_operator:
            raise Forbidden(
                "Only an operator's token may do this: an agent on this machine could permit itself "
                "otherwise. `semel token new --tenant T --role operator` makes one."
            )
        query = _query(route.query or {}, request.query)
        body = await _body_of(route, request)
        if route.handle is None:
            return _json(openapi.document())
        desk = self._desk.of(request.tenant)
        asked = Asked(call_id=call_id, run=run, query=query, body=body, by=request.by)
        answer = await route.handle(desk, asked)
        if isinstance(answer, Body):
            return _download(call_id, answer)
        return _lines(answer) if isinstance(answer, Lines) else _json(answer)


def _by_method(routes: Mapping[str, Route], request: Request) -> Route:
    route = routes.get("GET" if request.method == "HEAD" else request.method)
    if route is None:
        allowed = [*routes, *(["HEAD"] if "GET" in routes else [])]
        raise MethodNotAllowed(
            f"{request.path[:100]} is asked with {' or '.join(routes)}.", allowed=", ".join(allowed)
        )
    return route


def _query(known: Mapping[str, Schema], text: str) -> dict[str, Any]:
    try:
        given = parse_pairs(text.encode())
    except NotCanonical:
        raise BadRequest("The query is not UTF-8.") from None
    for name, texts in given.items():
        if len(texts) > 1:
            raise BadRequest(f"The query has {name[:64]!r} twice.")
    values = {name: _value(known.get(name, {}), text) for name, (text,) in given.items()}
    schema = {"type": "object", "properties": known, "required": [], "additionalProperties": False}
    check(schema, values, "The query")
    return values


def _value(schema: Schema, text: str) -> str | int:
    """Everything in a query is text; what should be a number and reads as one is meant as one."""
    return int(text) if schema.get("type") == "integer" and _WHOLE.fullmatch(text) else text


async def _body_of(route: Route, request: Request) -> Json:
    if not route.body:
        return {}
    if len(request.body) <= LARGEST_AT_ONCE:
        return _json_body(route, request)
    return await asyncio.to_thread(_json_body, route, request)


def _json_body(route: Route, request: Request) -> Json:
    """A form of another site cannot send this type without asking first, and nobody answers that."""
    sent = [value for name, value in request.headers if name.lower() == b"content-type"]
    if [value.partition(b";")[0].strip().lower() for value in sent] != [b"application/json"]:
        raise UnsupportedMediaType("Send JSON, with Content-Type: application/json.")
    _check_flat(request.body)
    try:
        said: Json = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    check(ref(route.body), said, "The body")
    return said


def _check_flat(body: bytes) -> None:
    """A decision is a few members, of which one text may be long. Anything else that is long would stop all
    calls while it is parsed, a thread or not; so what stands outside of texts is measured first."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote left begins or ends a text
    quotes = plain.count(b'"')
    if quotes > LARGEST_OUTSIDE_TEXTS or quotes + _outside(plain) > LARGEST_OUTSIDE_TEXTS:
        raise BadRequest("The body is too large for a decision: only the text of an answer may be long.")


def _outside(plain: bytes) -> int:
    return sum(map(len, plain.split(b'"')[::2]))


def _json(document: Json) -> Reply:
    # Not orjson: arguments may hold integers of any size.
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    return 200, ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))), body


def _lines(lines: Lines) -> Reply:
    """However long; its end says whether all of it is there."""
    headers: Headers = (
        (b"Content-Type", b"application/x-ndjson"),
        (b"Content-Disposition", b'attachment; filename="%b.jsonl"' % lines.name.encode()),
        *_DOWNLOAD,
    )
    return 200, headers, lines.parts


def _download(call_id: str, body: Body) -> Reply:
    size = len(body.content) if isinstance(body.content, bytes) else body.size
    kind = body.content_type if _HARMLESS.fullmatch(body.content_type) else "application/octet-stream"
    headers: Headers = (
        (b"Content-Type", kind.encode("latin-1")),
        (b"Content-Length", b"%d" % size),
        (b"Content-Disposition", b'attachment; filename="call-%b.body"' % call_id.encode()),
        *_DOWNLOAD,
    )
    if _CODINGS.fullmatch(body.content_encoding):
        headers += ((b"Content-Encoding", body.content_encoding.encode()),)
    return 200, headers, body.content
