"""semel's own addresses: /metrics, /healthz (the process lives), /readyz (the store answers), and behind
/_semel/ the operator's desk and its page (proxy/admin)."""

from __future__ import annotations

from dataclasses import replace

from proxy.admin import pages
from proxy.admin.api import Api, Reply, Request
from proxy.core.headers import Headers
from proxy.errors import BadRequest, UnknownUpstream
from proxy.front.connection import Connection
from proxy.front.door import Visitor
from proxy.front.figures import FiguresPage
from proxy.front.incoming import RequestLimits, read_body
from proxy.front.sign_in import ADDRESS as SESSION
from proxy.front.sign_in import LARGEST_BODY, Letter, SignIn
from proxy.front.turns import HttpRequest
from proxy.metrics import CONTENT_TYPE
from proxy.settings import Role
from proxy.store.base import Store

METRICS = "/metrics"


class OwnPages:
    def __init__(
        self,
        *,
        store: Store,
        figures: FiguresPage,
        api: Api,
        limits: RequestLimits,
        sign_in: SignIn,
    ) -> None:
        self._store = store
        self._figures = figures
        self._api = api
        self._limits = limits
        self._sign_in = sign_in

    async def __call__(self, request: HttpRequest, path: str, token: str) -> Reply:
        """`token`: of the header, empty without one."""
        if path in pages.PAGES:
            return pages.serve(request.method, path)
        if path == pages.WITHOUT_SLASH:
            return pages.MOVED
        if path == METRICS:
            token = _agreed(token, _bearer(request.raw_headers))
        letter = Letter(request.method, path, request.raw_headers, token)
        if path == SESSION:
            return await self._session(request, letter)
        visitor = self._sign_in.visitor(letter)
        if path.startswith("/_semel"):
            return await self._desk(request, path, visitor)
        if request.method not in ("GET", "HEAD"):
            raise BadRequest(f"{path} is read with GET.")
        if path == METRICS:
            return _plain(200, await self._figures(), CONTENT_TYPE)
        if path == "/healthz":
            return _plain(200, b"ok\n")
        if path == "/readyz":
            return await self._ready()
        raise UnknownUpstream(f"There is nothing at {path[:100]}.")

    async def _session(self, request: HttpRequest, letter: Letter) -> Reply:
        connection = request.protocol
        assert isinstance(connection, Connection)
        body = await read_body(request, connection, replace(self._limits, body=LARGEST_BODY))
        transport = connection.transport
        over_tls = transport is not None and transport.get_extra_info("ssl_object") is not None
        return self._sign_in(letter._replace(body=b"" if body is None else body.whole(), over_tls=over_tls))

    async def _desk(self, request: HttpRequest, path: str, visitor: Visitor) -> Reply:
        connection, body = request.protocol, None
        assert isinstance(connection, Connection)
        if request.method == "POST":
            body = await read_body(request, connection, self._limits)
        return await self._api(
            Request(
                method=request.method,
                path=path,
                query=request.raw_path.partition("?")[2],
                headers=request.raw_headers,
                body=b"" if body is None else body.whole(),
                # A token has no name; its tenant is what is known of who decides.
                by=_name(visitor),
                tenant="" if visitor.role is None else visitor.tenant,
                is_operator=visitor.role is Role.OPERATOR,
            )
        )

    async def _ready(self) -> Reply:
        await self._store.ping()  # raises StoreUnavailable: the problem says so
        return _plain(200, b"ready\n")


def _name(visitor: Visitor) -> str:
    if visitor.role is None:
        return "api"
    return f"{'agent' if visitor.role is Role.AGENT else 'api'}:{visitor.tenant}"


def _agreed(token: str, bearer: str) -> str:
    if token and bearer and token != bearer:
        raise BadRequest("Semel-Token and Authorization have different tokens.")
    return token or bearer


def _bearer(headers: Headers) -> str:
    """What Prometheus sends with `authorization`: it knows no other header in most of its versions. Here
    only: everywhere else Authorization is the caller's credential at the upstream."""
    given = [value for name, value in headers if name.lower() == b"authorization"]
    scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def _plain(status: int, body: bytes, content_type: bytes = b"text/plain; charset=utf-8") -> Reply:
    return status, ((b"Content-Type", content_type), (b"Content-Length", b"%d" % len(body))), body
