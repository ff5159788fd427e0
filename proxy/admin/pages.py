"""The operator's page: files as they lie in page/, and the headers that keep a browser to them.

There is nothing in them that anybody may not read: what they show is asked of the API, by whoever may ask.
Nothing is loaded from elsewhere, nothing inline runs, no other page frames it, and even a mistake in its
scripts cannot make markup of a text (trusted types).
"""

from __future__ import annotations

from pathlib import Path

from proxy.admin.route import PREFIX
from proxy.core.headers import Headers
from proxy.errors import MethodNotAllowed

DIRECTORY = Path(__file__).parent / "page"
FIRST = "index.html"
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Headers = (
    (b"Content-Security-Policy", POLICY),
    (b"X-Frame-Options", b"DENY"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Cache-Control", b"no-store"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
)


# People leave the slash out.
WITHOUT_SLASH = PREFIX.removesuffix("/")
MOVED: tuple[int, Headers, bytes] = (308, ((b"Location", PREFIX.encode()), (b"Content-Length", b"0")), b"")


def _address(file: Path) -> str:
    return PREFIX if file.name == FIRST else f"{PREFIX}page/{file.name}"


# Read once, at the start: what is served is what was installed, whatever happens to the disk.
PAGES: dict[str, tuple[bytes, bytes]] = {
    _address(file): (_TYPES[file.suffix], file.read_bytes())
    for file in sorted(DIRECTORY.iterdir())
    if file.suffix in _TYPES
}


def serve(method: str, path: str) -> tuple[int, Headers, bytes]:
    """`path` is one of PAGES."""
    if method not in ("GET", "HEAD"):
        raise MethodNotAllowed(f"{path} is read with GET.", allowed="GET, HEAD")
    kind, content = PAGES[path]
    headers: Headers = ((b"Content-Type", kind), (b"Content-Length", b"%d" % len(content)), *HEADERS)
    return 200, headers, b"" if method == "HEAD" else content
