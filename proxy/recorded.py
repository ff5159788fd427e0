"""A recorded request, read back from wherever it lies: for people, and to be sent or asked about again.

People see what the rule lets them see. Another send needs all of it, or is not made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.core.intent import Call
from proxy.core.redaction import MARK
from proxy.spool import Spool
from proxy.store.base import BlobLost, BlobRef, Store
from proxy.store.codec import Codec, DamagedRecord, StoredRequest
from proxy.stream import content_length

# A body up to this size is read back into memory, a larger one into a file.
IN_MEMORY = 1024 * 1024


class Unrepeatable(Exception):
    """The recorded request cannot be sent again, or asked about; the message says why."""


def lies_apart(call: Call, stored: StoredRequest) -> bool:
    """Whether the body that people see is not in the row."""
    return bool(call.request_blob) and not stored.redacted


def size_apart(stored: StoredRequest) -> int:
    """What goes upstream is always framed by its length."""
    return content_length(stored.headers) or 0


def body_apart(store: Store, call: Call, stored: StoredRequest) -> AsyncIterator[bytes]:
    """Raises BlobLost."""
    return store.read_blob(BlobRef(call.request_blob, size_apart(stored)))


async def shown_body(store: Store, call: Call, stored: StoredRequest) -> bytes:
    """Raises BlobLost."""
    if not lies_apart(call, stored):
        return stored.body
    return b"".join([chunk async for chunk in body_apart(store, call, stored)])


async def sent_request(store: Store, codec: Codec, call: Call) -> tuple[StoredRequest, Spool | None]:
    """As it was sent, but for credentials: those in its target are hidden still."""
    try:
        stored = codec.open_request(call.request)
        if stored.redacted and stored.whole is None:
            raise Unrepeatable("it was recorded without what its rule redacts")
        whole = stored.whole or stored
        if not call.request_blob:
            return whole, Spool.of(whole.body) if whole.body else None
        spool = Spool(IN_MEMORY)
        async for chunk in body_apart(store, call, whole):
            spool.append(chunk)
    except (DamagedRecord, BlobLost) as error:
        raise Unrepeatable(f"its recorded request cannot be read ({error})") from error
    return whole, spool


def real_target(recorded: bytes, hidden_now: bytes, now: bytes) -> bytes:
    """Of a request whose target may hold a secret, the target to be sent: that of whoever asks now.
    `hidden_now`: as it would be recorded."""
    if MARK.encode() not in recorded:
        return recorded
    if recorded != hidden_now:
        raise Unrepeatable("its address held a secret that is not recorded, and has another one now")
    return now
