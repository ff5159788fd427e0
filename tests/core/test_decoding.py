"""Bodies decoded to the byte: a limit is a limit under every coding, whole or in parts."""

from __future__ import annotations

import gzip
import random
import sys
import zlib
from collections.abc import Callable

import brotli
import pytest

from proxy.core import encoding
from proxy.core.encoding import Decoder, TooMuch, Undecodable, accepts, codings, decode
from proxy.core.sse import CodedEventStream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate, raw": ("deflate", raw_deflate),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstd.compress),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("data", [b"x" * 1000, bytes(range(256)) * 4, b"y"], ids=["even", "uneven", "one"])
def test_so_much_and_not_one_byte_more(name: str, data: bytes) -> None:
    """To the limit all of it, beyond it nothing."""
    coding, pack = PACKED[name]
    packed = pack(data)
    assert decode(packed, (coding,), len(data)) == data
    for less in (len(data) - 1, 0):
        with pytest.raises(TooMuch):
            decode(packed, (coding,), less)
    for damaged in (packed[:-1], packed + b"more"):
        with pytest.raises(Undecodable):
            decode(damaged, (coding,), len(data))


@pytest.mark.parametrize("name", PACKED)
def test_byte_by_byte_it_is_the_same(name: str) -> None:
    """However it is cut; it is at its end when it is."""
    coding, pack = PACKED[name]
    data = bytes(range(256)) * 8
    decoder = Decoder((coding,))
    packed = pack(data)
    plain = b"".join(decoder.feed(packed[at : at + 1], len(data)) for at in range(len(packed) - 1))
    with pytest.raises(Undecodable):
        decoder.finish()
    plain += decoder.feed(packed[-1:], len(data))
    decoder.finish()
    assert plain == data


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    "data", [bytes(4 * 1024 * 1024), random.Random(1).randbytes(1024 * 1024)], ids=["even", "uneven"]
)
def test_much_is_decoded_a_little_at_a_time_and_whole(name: str, data: bytes) -> None:
    """A few kilobytes may become gigabytes: they are never in memory at once. Brotli takes its bound for a
    hint, and gives up to twice as much."""
    coding, pack = PACKED[name]
    packed = pack(data)
    pieces = list(Decoder((coding,)).pieces(packed, len(data)))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 2 * encoding.PIECE
    assert decode(packed, (coding,), len(data)) == data


def test_raw_deflate_is_known_by_its_first_byte_whatever_its_padding_says() -> None:
    """A stored block has five bits that mean nothing."""
    assert decode(b"\x01\x05\x00\xfa\xffhello", ("deflate",), 5) == b"hello"
    assert decode(b"\x09\x05\x00\xfa\xffhello", ("deflate",), 5) == b"hello"


def test_a_window_of_more_than_eight_mebibytes_is_refused() -> None:
    """As RFC 9659 has it: a frame of fourteen bytes may ask for hundreds of them before its first byte."""
    frame = "28b52ffd00{:02x}29000068656c6c6f"
    for window_log, fits in ((10, True), (23, True), (24, False), (27, False)):
        packed = bytes.fromhex(frame.format((window_log - 10) << 3))
        if fits:
            assert decode(packed, ("zstd",), 5) == b"hello"
        else:
            with pytest.raises(Undecodable):
                decode(packed, ("zstd",), 5)


def test_codings_are_undone_from_the_last() -> None:
    """Up to four of them; an unknown one, and a fifth, are refused."""
    packed = brotli.compress(gzip.compress(b"x"))
    assert decode(packed, ("gzip", "br"), 100) == b"x"
    with pytest.raises(Undecodable):
        decode(packed, ("br", "gzip"), 100)
    four = gzip.compress(gzip.compress(gzip.compress(gzip.compress(b"x"))))
    assert decode(four, ("gzip",) * 4, 200) == b"x"
    for unknown in (("gzip",) * 5, ("compress",)):
        with pytest.raises(Undecodable):
            Decoder(unknown)
    assert encoding.MAX_CODINGS == 4


def test_a_coded_stream_says_when_it_has_ended() -> None:
    """With the event that ends it, not before."""
    stream = CodedEventStream(("gzip",))
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    first = packer.compress(b"data: 1\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    stream.feed(first)
    before = stream.ended
    stream.feed(packer.compress(b"data: [DONE]\n\n") + packer.flush())
    assert (before, stream.ended) == (False, True)
    assert stream.visible == len(first)


def test_codings_are_listed_in_order_without_those_that_do_nothing() -> None:
    """Over several lines, in any spelling."""
    headers = ((b"Content-Encoding", b"GZIP, identity,"), (b"content-encoding", b" br "), (b"X", b"zstd"))
    assert codings(headers) == ("gzip", "br")
    assert codings(()) == codings(((b"Content-Encoding", b"identity"),)) == ()
    assert codings(((b"X-Correlation-Id", b"gzip"), (b"Content-Language", b"br"))) == ()


@pytest.mark.parametrize(
    ("offer", "taken"),
    [
        (b"gzip", True),
        (b"br, GZIP", True),
        (b"gzip;q=0.5", True),
        (b"gzip; q=0", False),
        (b"gzip;q=0.000", False),
        (b"*", True),
        (b"*;q=0", False),
        (b"gzip;q=0, *", False),
        (b"br", False),
        (b"", False),
        (None, False),
    ],
)
def test_a_caller_takes_what_it_offers_to(offer: bytes | None, taken: bool) -> None:
    """Silence takes only what is plain."""
    assert accepts(offer, ("gzip",)) is taken
    assert accepts(offer, ())
    assert accepts(b"gzip", ("gzip", "br")) is False
