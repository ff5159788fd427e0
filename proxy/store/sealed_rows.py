"""The sealed fields of a row, encrypted on their way down and opened on their way up.

Each is bound to tenant, call and field. One that does not open is told of once and marked, so that whoever
needs it reads damage; it is written back as it was found: with the right key it may be readable again.

The key of a body that lies in a blob stands before the row's own value (a request's, or an answer's head).
Above, it stands behind the blob's name: a row can be copied to another call without touching the blob.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from proxy.core.intent import Answer, Call, Doubt, evolve
from proxy.store.codec import UNREADABLE
from proxy.store.keyring import Keys
from proxy.store.sealing import SEALED, Unsealable, bound_to, key_of, seal, unseal

Note: TypeAlias = Callable[..., None]  # an event and its fields

BODY_KEY = 32
_TEXT = "sealed:"  # before what stands in a column of text
# Before such a text that could not be opened, above: an upstream may say words that look like one.
UNOPENED = "\0"
_MARK = bytes([UNREADABLE])
# So many damaged values are told of by name; who damages more is known by then.
MOST_TOLD = 1000


class SealedRows:
    """`strict`: what is not encrypted was put there by somebody else."""

    def __init__(self, keys: Keys, *, strict: bool, note: Note) -> None:
        self._keys = keys
        self.strict = strict
        self._note = note
        self._told: set[tuple[bytes, str]] = set()

    def is_current(self, call: Call) -> bool:
        """Whether a row, as the store below has it, is all sealed with the key that seals now."""
        return keys_of(call) <= {self._keys.current().name}

    # ---- up ----

    def opened(self, call: Call) -> Call:
        request, request_blob = self._open_with_body(call, "request", call.request, call.request_blob)
        answer, doubt = call.answer, call.doubt
        return evolve(
            call,
            request=request,
            request_blob=request_blob,
            answer=None if answer is None else self._open_answer(call, answer),
            doubt=doubt if doubt is None or not doubt.excerpt else self._open_doubt(call, doubt),
        )

    def _open_answer(self, call: Call, answer: Answer) -> Answer:
        head, blob = self._open_with_body(call, "head", answer.head, answer.blob)
        return replace(answer, head=head, blob=blob, body=self._open(call, "body", answer.body))

    def _open_doubt(self, call: Call, doubt: Doubt) -> Doubt:
        value = _from_text(doubt.excerpt)
        if value is None:
            if not self.strict:
                return doubt
            value = doubt.excerpt.encode()
        opened = self._open(call, "excerpt", value)
        if opened[:1] != _MARK:
            return replace(doubt, excerpt=opened.decode())
        # Nobody reads what was planted.
        return replace(doubt, excerpt=UNOPENED + doubt.excerpt if value[0] == SEALED else "")

    def _open_with_body(self, call: Call, field: str, value: bytes, blob: str) -> tuple[bytes, str]:
        blob = blob.partition(".")[0]  # a key that lies beside it was put there by somebody else
        opened = self._open(call, field, value)
        if opened is value or opened[:1] == _MARK:  # empty, from before, or not to be opened
            return opened, blob
        size = opened[0]
        key, plain = opened[1 : 1 + size], opened[1 + size :]
        return plain, f"{blob}.{key.hex()}" if key else blob

    def _open(self, call: Call, field: str, value: bytes) -> bytes:
        if not value or (value[0] != SEALED and not self.strict):
            return value
        try:
            return unseal(self._keys, value, _purpose(call, field))
        except Unsealable as error:
            self._tell(call, field, str(error))
            return _MARK + value

    def _tell(self, call: Call, field: str, why: str) -> None:
        if len(self._told) < MOST_TOLD and (call.key, field) not in self._told:
            self._told.add((call.key, field))
            self._note("damaged-record", call=call.id, field=field, error=why)

    # ---- down ----

    def sealed(self, call: Call) -> Call:
        request, request_blob = self._seal_with_body(call, "request", call.request, call.request_blob)
        answer, doubt = call.answer, call.doubt
        return evolve(
            call,
            request=request,
            request_blob=request_blob,
            answer=None if answer is None else self._seal_answer(call, answer),
            doubt=doubt if doubt is None or not doubt.excerpt else self._seal_doubt(call, doubt),
        )

    def _seal_answer(self, call: Call, answer: Answer) -> Answer:
        head, blob = self._seal_with_body(call, "head", answer.head, answer.blob)
        return replace(answer, head=head, blob=blob, body=self._seal(call, "body", answer.body))

    def _seal_doubt(self, call: Call, doubt: Doubt) -> Doubt:
        if doubt.excerpt.startswith(UNOPENED):
            return replace(doubt, excerpt=doubt.excerpt.removeprefix(UNOPENED))
        sealed = self._seal(call, "excerpt", doubt.excerpt.encode())
        return replace(doubt, excerpt=_TEXT + base64.b64encode(sealed).decode())

    def _seal_with_body(self, call: Call, field: str, value: bytes, blob: str) -> tuple[bytes, str]:
        digest, _, key = blob.partition(".")
        if not value or value[:1] == _MARK:
            return value[1:], digest
        secret = bytes.fromhex(key)
        return self._seal(call, field, bytes([len(secret)]) + secret + value), digest

    def _seal(self, call: Call, field: str, value: bytes) -> bytes:
        if not value or value[:1] == _MARK:
            return value[1:]
        return seal(self._keys.current(), value, _purpose(call, field))


def is_unreadable(opened: Call) -> bool:
    """Whether something of a row that was opened could not be."""
    answer, doubt = opened.answer, opened.doubt
    values = (opened.request,) if answer is None else (opened.request, answer.head, answer.body)
    if doubt is not None and doubt.excerpt.startswith(UNOPENED):
        return True
    return any(value[:1] == _MARK for value in values)


def is_bare(blob: str) -> bool:
    """Whether a body, named as it is above, is not encrypted."""
    return bool(blob) and "." not in blob


def keys_of(call: Call) -> set[str]:
    """The names of the keys that a row, as the store below has it, is sealed with; "": some is in clear."""
    values, answer, doubt = [call.request], call.answer, call.doubt
    if answer is not None:
        values += [answer.head, answer.body]
    if doubt is not None and doubt.excerpt:
        values.append(_from_text(doubt.excerpt) or doubt.excerpt.encode())
    return {key_of(value).hex() if value[0] == SEALED else "" for value in values if value}


def _purpose(call: Call, field: str) -> bytes:
    return bound_to(field.encode(), call.tenant.encode(), call.key)


def _from_text(text: str) -> bytes | None:
    """None: it is not encrypted."""
    if not text.startswith(_TEXT):
        return None
    try:
        value = base64.b64decode(text[len(_TEXT) :], validate=True)
    except (binascii.Error, ValueError):
        return None
    return value if value[:1] == bytes([SEALED]) else None
