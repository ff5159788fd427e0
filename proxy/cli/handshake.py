"""Can this machine reach an upstream? A connection, with https a handshake, and no request: nothing is sent.

Each upstream has a thread of its own, because a name server that does not answer cannot be interrupted; who
has not come back in time is left behind and reported.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable

from proxy.cli.examine import PATIENCE, Finding, failure, ok, warning
from proxy.core.policy import Upstream
from proxy.core.reachable import may_be
from proxy.quantities import show_duration
from proxy.upstream.reaching import Found

# A certificate that lapses within this time is worth a word today.
SOON = 14 * 86400.0
_DIRECTLY = "semel connects directly, whatever HTTPS_PROXY says"


def reach_all(
    upstreams: Iterable[Upstream], patience: float = PATIENCE, *, private: bool = False
) -> list[Finding]:
    """All at once, so that the slowest decides how long it takes. `private`: as `forward.private` has it."""
    wanted = list(upstreams)
    found: dict[str, Finding] = {}

    def look(upstream: Upstream) -> None:
        found[upstream.name] = reach(upstream, patience, private=private)

    threads = [threading.Thread(target=look, args=(upstream,), daemon=True) for upstream in wanted]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 2 * patience
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [found.get(upstream.name) or _too_late(upstream, 2 * patience) for upstream in wanted]


def reach(upstream: Upstream, patience: float = PATIENCE, *, private: bool = False) -> Finding:
    about = f"upstream {upstream.name}"
    place = f"{upstream.host}:{upstream.port}"
    try:
        addresses = _addresses(upstream, private=private)
        if not addresses:
            return _refused(about, upstream)
        with _connected(addresses, patience) as connection:
            if upstream.scheme == "http":
                return ok(about, f"connected to {place}; nothing was sent")
            return _shake_hands(about, upstream, connection)
    except (socket.gaierror, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        do = "Correct base_url, or mend the name service of this machine."
        return failure(about, f"the name {upstream.host} cannot be resolved: {why}", do)
    except TimeoutError:
        return _too_late(upstream, patience)
    except ssl.SSLCertVerificationError as error:
        do = "Correct base_url; if the upstream has a private CA, let SSL_CERT_FILE name a bundle with it."
        return failure(about, f"the certificate of {place} is not accepted: {error.verify_message}", do)
    except ssl.SSLError as error:
        do = "Correct base_url: is it http:// there, or another port?"
        return failure(about, f"the TLS handshake with {place} failed: {error.reason or error}", do)
    except OSError as error:
        do = f"Correct base_url, start the upstream, or open the way to it ({_DIRECTLY})."
        return failure(about, f"no connection to {place}: {error.strerror or error}", do)


def _addresses(upstream: Upstream, *, private: bool) -> list[Found]:
    """Those that semel itself would connect to."""
    host, said = upstream.host, upstream.said_of(upstream.host, upstream.port)
    found = socket.getaddrinfo(host, upstream.port, type=socket.SOCK_STREAM)
    return [
        Found(family, address)  # type: ignore[arg-type]
        for family, _, _, _, address in found
        if may_be(host, str(address[0]), said, private=private)
    ]


def _connected(addresses: list[Found], patience: float) -> socket.socket:
    failed: OSError | None = None
    for family, address in addresses:
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(patience)
        try:
            connection.connect(address)
        except OSError as error:
            connection.close()
            failed = failed or error
        else:
            return connection
    assert failed is not None  # there is an address, and none answered
    raise failed


def _refused(about: str, upstream: Upstream) -> Finding:
    do = (
        "Write the address itself into base_url."
        if upstream.private
        else f"If that is meant, add the line `private: true` to the policy of {upstream.name}."
    )
    return failure(about, f"the name {upstream.host} leads to an address that is not public: refused", do)


def _shake_hands(about: str, upstream: Upstream, connection: socket.socket) -> Finding:
    """With what semel offers when it calls."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    with context.wrap_socket(connection, server_hostname=upstream.host) as tls:
        until = ssl.cert_time_to_seconds(str((tls.getpeercert() or {})["notAfter"]))
        found = f"connected to {upstream.host}:{upstream.port} with {tls.version()}; nothing was sent"
    left = until - time.time()
    if left < SOON:
        lapses = f"its certificate lapses in {show_duration(left // 3600 * 3600)}"
        return warning(about, f"{found}; {lapses}", "Tell whoever runs it.")
    return ok(about, found)


def _too_late(upstream: Upstream, patience: float) -> Finding:
    return failure(
        f"upstream {upstream.name}",
        f"{upstream.host}:{upstream.port} did not answer within {patience:g} s",
        f"Correct base_url, or open the way to it ({_DIRECTLY}).",
    )
