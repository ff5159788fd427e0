"""What goes out in the end: with the key that the upstream will know the call by; or, from the record, again.

A resend is the request as it was written down, to the byte, with the credentials of whoever asks now: they
are not in the record, and may have been renewed.
"""

from __future__ import annotations

from proxy.core.clauses import UpstreamKey
from proxy.core.headers import Headers
from proxy.core.intent import Call
from proxy.core.upstream_key import with_fields, with_header
from proxy.intended import Intent
from proxy.recorded import Unrepeatable, real_target, sent_request
from proxy.spool import Spool
from proxy.store.base import Store
from proxy.store.codec import Codec, StoredRequest
from proxy.upstream.base import Outgoing
from proxy.upstream.client import request_head


def with_key(out: Outgoing, key: UpstreamKey, value: str) -> Outgoing:
    headers, body = with_header(out.headers, key, value), out.body
    if key.body is not None and body is not None:
        keyed = with_fields(body.whole(), key, value)
        assert keyed is not None  # a key is minted only for what can carry it
        body = Spool.of(keyed)
        headers = _framed(headers, len(keyed))
    return out._replace(headers=headers, body=body, head=request_head(out.method, out.target, headers))


def _framed(headers: Headers, size: int) -> Headers:
    return (
        *(pair for pair in headers if pair[0].lower() != b"content-length"),
        (b"Content-Length", b"%d" % size),
    )


async def again(call: Call, intent: Intent, out: Outgoing, store: Store, codec: Codec) -> Outgoing:
    """The recorded request of `call`, ready to be sent. `intent`, `out`: the same call as it is asked now."""
    stored, body = await sent_request(store, codec, call)
    check_address(stored, out)
    target = real_target(stored.target, intent.target, out.target)
    kept = set(intent.headers)
    credentials = tuple(pair for pair in out.headers if pair not in kept)
    headers = (*stored.headers, *credentials)
    return out._replace(
        method=stored.method,
        target=target,
        headers=headers,
        body=body,
        head=request_head(stored.method, target, headers),
    )


def check_address(stored: StoredRequest, out: Outgoing) -> None:
    """Elsewhere nobody knows the call or its key: a resend would be a new call, and a probe find nothing."""
    if _host(stored.headers) != _host(out.headers):
        raise Unrepeatable("it was sent to another address than its upstream has by now")


def _host(headers: Headers) -> bytes:
    return next((value for name, value in headers if name.lower() == b"host"), b"")
