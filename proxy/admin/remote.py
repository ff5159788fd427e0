"""The desk of a running proxy, asked over its HTTP API: the same documents, the same errors.

Nothing is followed and nothing is guessed: no redirects, no proxy from the environment, a bound on the time
and on the size of every document. Problems become the errors that they were made from.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from urllib.parse import SplitResult, urlencode, urlsplit

from proxy.admin.decision import Decision, Resolution
from proxy.admin.desk import Body, key_of
from proxy.admin.fits import fits
from proxy.admin.remote_runs import RemoteRunDesk
from proxy.admin.routes import PREFIX
from proxy.admin.run_desk import RunDesk
from proxy.admin.schemas import COMPONENTS, PROBLEM
from proxy.admin.views import Json
from proxy.errors import ConfigurationError, Refusal, StoreUnavailable, Unauthorized
from proxy.problem import CONTENT_TYPE, PROBLEMS
from proxy.store.base import Query

# For every wait on the socket. A page of the record may take its time.
PATIENCE = 30.0
LARGEST_DOCUMENT = 64 * 1024 * 1024
CHUNK = 256 * 1024
_KINDS = {problem.name: kind for kind, problem in PROBLEMS.items()}
# What a refusal knows beside its detail.
_MEMBERS = tuple(name for name in PROBLEM["properties"] if name not in PROBLEM["required"])
_UNCERTAIN = " Whether the decision arrived is not known: look at the call again before you decide."


class RemoteDesk:
    """`url` is the proxy's own address, as http://127.0.0.1:8080."""

    def __init__(self, url: str, token: str = "", patience: float = PATIENCE) -> None:
        self._url = address(url)
        self._token = token
        self._patience = patience
        if not token.isascii() or not token.isprintable():
            raise ConfigurationError("The token holds a character that a header cannot carry: check --token.")

    async def calls(self, query: Query) -> Json:
        given = {
            "state": query.state, "run": query.run, "tool": query.tool, "upstream": query.upstream,
            "limit": query.limit, "after": query.after,
        }  # fmt: skip
        said = urlencode({name: value for name, value in given.items() if value not in (None, "")})
        return await self._ask("CallPage", "GET", f"calls?{said}")

    async def call(self, call_id: str) -> Json:
        key_of(call_id)
        return await self._ask("CallDetail", "GET", f"calls/{call_id}")

    async def body(self, call_id: str) -> Body:
        key_of(call_id)
        response, connection = await asyncio.to_thread(self._send, "GET", f"calls/{call_id}/body", None)
        if response.status != 200 or not response.headers.get("Content-Disposition"):
            await asyncio.to_thread(self._document, response, connection, deciding=False)
            raise self._stranger(response, deciding=False)
        return Body(
            content_type=response.headers.get("Content-Type", ""),
            content_encoding=response.headers.get("Content-Encoding", ""),
            size=response.length or 0,
            content=self._parts(response, connection),
        )

    async def resolve(self, call_id: str, resolution: Resolution) -> Json:
        key_of(call_id)
        body = resolution.body
        said = {
            "as": resolution.verdict.value,
            "status": resolution.status,
            "body_base64": None if body is None else base64.b64encode(body).decode(),
            "content_type": resolution.content_type,
            "reason": resolution.reason,
            "version": resolution.version,
        }
        return await self._ask("CallDetail", "POST", f"calls/{call_id}/resolve", said)

    async def forget(self, call_id: str, decision: Decision) -> Json:
        return await self._decide("forget", call_id, decision)

    async def approve(self, call_id: str, decision: Decision) -> Json:
        return await self._decide("approve", call_id, decision)

    async def deny(self, call_id: str, decision: Decision) -> Json:
        return await self._decide("deny", call_id, decision)

    async def probe(self, call_id: str, decision: Decision) -> Json:
        return await self._decide("probe", call_id, decision)

    async def _decide(self, how: str, call_id: str, decision: Decision) -> Json:
        key_of(call_id)
        said = {"reason": decision.reason, "version": decision.version}
        return await self._ask("CallDetail", "POST", f"calls/{call_id}/{how}", said)

    async def stats(self) -> Json:
        return await self._ask("Stats", "GET", "stats")

    @property
    def runs(self) -> RunDesk:
        return RemoteRunDesk(self._ask, self._lines)

    # ---- over the wire ----

    async def _ask(
        self, wanted: str, method: str, path: str, said: Mapping[str, object] | None = None
    ) -> Json:
        """`wanted` is the component of the API's schema that the document fits."""
        response, connection = await asyncio.to_thread(self._send, method, path, said)
        deciding = said is not None
        document = await asyncio.to_thread(self._document, response, connection, deciding=deciding)
        if not fits(COMPONENTS[wanted], document):
            raise self._stranger(response, deciding=deciding)
        return document

    async def _lines(self, path: str) -> AsyncIterator[bytes]:
        """JSON Lines, in pieces as they come."""
        response, connection = await asyncio.to_thread(self._send, "GET", path, None)
        if response.status != 200 or response.headers.get_content_type() != "application/x-ndjson":
            await asyncio.to_thread(self._document, response, connection, deciding=False)
            raise self._stranger(response, deciding=False)
        return self._parts(response, connection)

    def _send(
        self, method: str, path: str, said: Mapping[str, object] | None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        headers = {"Accept": "application/json", "Connection": "close"}
        body = None
        if said is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps({name: value for name, value in said.items() if value is not None}).encode()
        if self._token:
            headers["Semel-Token"] = self._token
        connection = self._connection()
        try:
            connection.request(method, f"{self._url.path.rstrip('/')}{PREFIX}{path}", body, headers)
            return connection.getresponse(), connection
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error, deciding=said is not None) from None

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._patience, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._patience)

    def _document(
        self,
        response: http.client.HTTPResponse,
        connection: http.client.HTTPConnection,
        *,
        deciding: bool,
    ) -> Json:
        try:
            document = json.loads(response.read(LARGEST_DOCUMENT + 1))
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error, deciding=deciding) from None
        except (ValueError, RecursionError):
            raise self._stranger(response, deciding=deciding) from None
        finally:
            connection.close()
        kind = response.headers.get_content_type()
        if kind == CONTENT_TYPE.decode() and fits(PROBLEM, document):
            if refusal := self._refusal(document):
                raise refusal
        elif response.status == 200 and kind == "application/json" and isinstance(document, dict):
            return document
        raise self._stranger(response, deciding=deciding)

    async def _parts(
        self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection
    ) -> AsyncIterator[bytes]:
        try:
            while part := await asyncio.to_thread(response.read, CHUNK):
                yield part
            if response.length:  # bytes that were promised and did not come
                raise StoreUnavailable("The proxy broke off: the answer is damaged, or the proxy ended.")
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error, deciding=False) from None
        finally:
            connection.close()

    # ---- what went wrong ----

    def _refusal(self, problem: Json) -> Refusal | None:
        """With the members that are known here; others are a stranger's, or of another version."""
        kind = _KINDS.get(problem["type"].removeprefix("urn:semel:"))
        if kind is None:
            return None
        detail = problem["detail"]
        if kind is Unauthorized:
            detail += " On the command line: --token T, or SEMEL_TOKEN."
        return kind(detail, **{name: problem[name] for name in _MEMBERS if name in problem})

    def _stranger(self, response: http.client.HTTPResponse, *, deciding: bool) -> StoreUnavailable:
        kind = response.headers.get_content_type()
        told = (
            f"What answers at {self._shown} is not a semel, or another version of it (HTTP "
            f"{response.status}, {kind}): check --proxy and SEMEL_URL."
        )
        return StoreUnavailable(told + _UNCERTAIN if deciding else told)

    def _unreachable(self, error: Exception, *, deciding: bool) -> StoreUnavailable:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        told = (
            f"No semel answers at {self._shown}: {why}. Is `semel serve` running there (--proxy, SEMEL_URL)?"
        )
        if deciding and not isinstance(error, ConnectionRefusedError):
            told += _UNCERTAIN
        return StoreUnavailable(told)

    @property
    def _shown(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc}"


def address(url: str) -> SplitResult:
    """Of a proxy. What a request line or a name server cannot take is told here, not by a traceback."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")
        sayable = parts.path.isascii() and url.isprintable() and " " not in url
        usable = parts.scheme in ("http", "https") and host and parts.port != 0 and sayable
    except ValueError:  # UnicodeError is one
        usable = False
    if not usable:
        raise ConfigurationError(f"{url!r} is not the address of a proxy: write it as http://HOST:PORT.")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("Give the token with --token or SEMEL_TOKEN, not in the address.")
    if parts.query or parts.fragment:
        raise ConfigurationError("The address of a proxy ends before ? and #.")
    return parts
