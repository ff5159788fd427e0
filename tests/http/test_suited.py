"""Decoding a record for a caller: part by part, beside the loop, given up as early as can be."""

from __future__ import annotations

import gzip
import threading
from collections.abc import AsyncIterator, Iterator
from typing import cast

import pytest

from proxy.answers import Produced
from proxy.core.encoding import Decoder
from proxy.core.headers import Headers
from proxy.errors import AnswerUnavailable
from proxy.front import suited as module
from proxy.front.aside import Aside
from proxy.front.suited import suited
from proxy.front.turns import HttpRequest

PART = 256 * 1024


class Asking:
    """A request that accepts only the plain form."""

    raw_headers: Headers = ()


class Record:
    """A recorded body, read in parts; counts how many were."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.parts = 0

    async def read(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._body), PART):
            self.parts += 1
            yield self._body[at : at + PART]


async def plain(body: bytes | AsyncIterator[bytes], coding: bytes = b"gzip") -> Produced:
    aside = Aside()
    try:
        answer = Produced(200, ((b"Content-Encoding", coding), (b"Content-Length", b"1")), body)
        return await suited(answer, cast("HttpRequest", Asking()), aside)
    finally:
        aside.close()


async def test_a_record_in_parts_is_decoded() -> None:
    """As a whole, with its length."""
    text = bytes(range(256)) * 8192
    record = Record(gzip.compress(text, 0))
    assert await plain(record.read()) == Produced(200, ((b"Content-Length", b"%d" % len(text)),), text)
    assert record.parts > 8


async def test_a_record_that_is_not_what_it_says_is_given_up_at_its_first_part() -> None:
    """60 MiB were read and joined before."""
    record = Record(b"\x1f\x8b" + b"q" * (40 * PART))
    with pytest.raises(AnswerUnavailable):
        await plain(record.read())
    assert record.parts == 1


async def test_a_record_that_becomes_too_large_is_given_up_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound is for what it becomes in all its parts, and it is exact."""
    text = bytes(8 * PART)
    monkeypatch.setattr(module, "DECODABLE", len(text))
    assert (await plain(Record(gzip.compress(text, 0)).read())).body == text
    record = Record(gzip.compress(text + b"x" * 40 * PART, 0))
    with pytest.raises(AnswerUnavailable):
        await plain(record.read())
    assert record.parts <= 9


@pytest.mark.parametrize("coding", [b"gzip", b"x-odd"])
async def test_nothing_stays_nothing(coding: bytes) -> None:
    """HEAD, 204, 304: the headers speak of a body that is not there."""
    headers = ((b"Content-Encoding", coding), (b"Content-Length", b"1"))
    assert await plain(b"", coding) == Produced(200, headers, b"")
    assert await plain(Record(b"").read(), coding) == Produced(200, headers, b"")


async def test_decoding_never_happens_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes may become megabytes."""
    where: list[str] = []
    pieces = Decoder.pieces

    def watched(decoder: Decoder, data: bytes, limit: int) -> Iterator[bytes]:
        where.append(threading.current_thread().name)
        yield from pieces(decoder, data, limit)

    monkeypatch.setattr(Decoder, "pieces", watched)
    assert (await plain(gzip.compress(b"x"))).body == b"x"
    assert [name.rsplit("_", 1)[0] for name in where] == ["semel-aside"]
