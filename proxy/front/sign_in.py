"""Who sits at the desk: by a token in the header, as programs do, or by the cookie of a browser.

A cookie comes by itself, with whatever the browser sends to this host. So it counts only under /_semel/, only
for a request that the page itself can have made (browsers.py), and only for a decision that says that it
comes from here: a browser names the Origin of every POST, so one without is not from the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from proxy.admin import browsers
from proxy.admin.api import EVERY_ANSWER, Reply
from proxy.admin.route import PREFIX
from proxy.admin.sessions import Session, Sessions
from proxy.admin.views import Json, moment
from proxy.core.headers import Headers
from proxy.errors import BadRequest, CrossSite, MethodNotAllowed, Refusal, Unauthorized, UnsupportedMediaType
from proxy.front.door import Door, Visitor
from proxy.problem import render
from proxy.settings import Address, Role, Token
from proxy.tokens import digest

ADDRESS = f"{PREFIX}session"
# A token and a few words around it.
LARGEST_BODY = 4096
_READING = frozenset({"GET", "HEAD"})


class Letter(NamedTuple):
    """What arrives for the desk, or for the session itself."""

    method: str
    path: str
    headers: Headers
    token: str  # of the header Semel-Token
    body: bytes = b""
    over_tls: bool = False


class SignIn:
    """`tokens` None: there are none, and everybody is let in without signing in."""

    def __init__(
        self, *, door: Door, tokens: Sequence[Token] | None, sessions: Sessions, listen: Address
    ) -> None:
        self._door = door
        self._tokens = tokens
        self._sessions = sessions
        self._listen = listen

    # ---- who asks ----

    def visitor(self, letter: Letter) -> Visitor:
        """Raises Unauthorized, Forbidden, CrossSite. A token that is sent on purpose goes before a cookie."""
        by_cookie = (
            self._tokens is not None
            and not letter.token
            and letter.path.startswith(PREFIX)
            and self._sessions.carried(letter.headers)
        )
        if not by_cookie:
            return self._door.for_own_page(letter.path, letter.token)
        return self._by_cookie(letter)[1]

    def _by_cookie(self, letter: Letter) -> tuple[Session, Visitor]:
        browsers.check(letter.headers, self._listen)
        if letter.method not in _READING and not _names_its_origin(letter.headers):
            raise CrossSite(
                "A decision by cookie must say that it comes from semel's own page, in Origin. A program "
                "sends its token in the header Semel-Token."
            )
        session = self._sessions.find(letter.headers)
        token = None if session is None else self._token_of(session)
        if session is None or token is None:
            raise Unauthorized("The session is over: sign in again with an operator's token.")
        return session, Visitor(token.tenant, token.role)

    def _token_of(self, session: Session) -> Token | None:
        """All of them are compared. One that is no operator's (any more) does not count."""
        found = [token for token in self._tokens or () if self._sessions.is_of(session, token.sha256)]
        return next((token for token in found if token.role is Role.OPERATOR), None)

    # ---- the session itself ----

    def __call__(self, letter: Letter) -> Reply:
        try:
            status, headers, body = self._answer(letter)
        except Refusal as refusal:
            status, headers, body = render(refusal)
            if isinstance(refusal, MethodNotAllowed):
                headers += ((b"Allow", str(refusal.members["allowed"]).encode()),)
        return status, headers + EVERY_ANSWER, b"" if letter.method == "HEAD" else body

    def _answer(self, letter: Letter) -> tuple[int, Headers, bytes]:
        browsers.check(letter.headers, self._listen)
        if letter.method in _READING:
            return _json(self._present(letter))
        if letter.method == "POST":
            return self._begin(letter)
        if letter.method == "DELETE":
            return self._end(letter)
        raise MethodNotAllowed(f"{ADDRESS} takes GET, POST and DELETE.", allowed="GET, HEAD, POST, DELETE")

    def _present(self, letter: Letter) -> Json:
        if self._tokens is None:
            return _document(auth=False)
        session = self._sessions.find(letter.headers)
        token = None if session is None else self._token_of(session)
        return _document(session, token)

    def _begin(self, letter: Letter) -> tuple[int, Headers, bytes]:
        """With a token: a new session. Without: the present one, somebody is still there."""
        if self._tokens is None:
            raise BadRequest("No tokens are configured here (auth): nobody needs to sign in.")
        given = _token_in(letter)
        if given is None:
            session, _ = self._by_cookie(letter)
            value, session = self._sessions.renew(session)
        else:
            self._door.for_page(given)
            value, session = self._sessions.begin(digest(given))
        cookie = f"{self._sessions.cookie}={value}{_attributes(letter)}"
        return _json(_document(session, self._token_of(session)), ((b"Set-Cookie", cookie.encode()),))

    def _end(self, letter: Letter) -> tuple[int, Headers, bytes]:
        if self._sessions.carried(letter.headers) and not _names_its_origin(letter.headers):
            raise CrossSite("Signing out by cookie must say that it comes from semel's own page, in Origin.")
        session = self._sessions.find(letter.headers)
        if session is not None:
            self._sessions.end(session)
        cookie = f"{self._sessions.cookie}={_attributes(letter)}; Max-Age=0"
        document = _document(auth=self._tokens is not None)
        return _json(document, ((b"Set-Cookie", cookie.encode()),))


def _names_its_origin(headers: Headers) -> bool:
    """Whose it is, browsers.check has said."""
    return any(name.lower() == b"origin" for name, _ in headers)


def _attributes(letter: Letter) -> str:
    """A page that came over TLS says so in its Origin, also where a proxy before semel speaks it."""
    origins = (value for name, value in letter.headers if name.lower() == b"origin")
    secure = letter.over_tls or any(origin.lower().startswith(b"https://") for origin in origins)
    return f"; Path={PREFIX}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def _token_in(letter: Letter) -> str | None:
    kinds = [value for name, value in letter.headers if name.lower() == b"content-type"]
    if [kind.partition(b";")[0].strip().lower() for kind in kinds] != [b"application/json"]:
        raise UnsupportedMediaType("Send JSON, with Content-Type: application/json.")
    try:
        said = orjson.loads(letter.body)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict) or said.keys() - {"token"} or not isinstance(said.get("token", ""), str):
        raise BadRequest('Send {"token": "…"} to sign in, or {} to go on.')
    return said.get("token")


def _document(session: Session | None = None, token: Token | None = None, *, auth: bool = True) -> Json:
    known = session is not None and token is not None
    return {
        "auth": auth,
        "signed_in": known,
        "tenant": token.tenant if token is not None else None,
        "until": moment(session.until) if known and session is not None else None,
    }


def _json(document: Json, more: Headers = ()) -> tuple[int, Headers, bytes]:
    body = orjson.dumps(document)
    return 200, ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body)), *more), body
