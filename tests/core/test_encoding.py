"""Content codings: decoded within a bound or refused, never an exception of another kind."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import sys
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.encoding import MAX_CODINGS, Decoder, Undecodable, accepts, codings, decode
from tests.counts import count

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


@settings(max_examples=count(100, 2_000), deadline=None)
@given(st.binary(max_size=2_000), st.lists(st.sampled_from(sorted(ENCODERS)), max_size=3))
def test_what_was_encoded_is_decoded_and_not_a_byte_over_the_bound(data: bytes, names: list[str]) -> None:
    """Codings are undone from the last to the first; the bound is exact."""
    encoded = data
    for name in names:
        encoded = ENCODERS[name](encoded)
    assert decode(encoded, tuple(names), 10_000) == data
    if len(names) == 1 and data:
        assert decode(encoded, tuple(names), len(data)) == data
        with pytest.raises(Undecodable):
            decode(encoded, tuple(names), len(data) - 1)


@settings(max_examples=count(100, 2_000), deadline=None)
@given(
    st.binary(max_size=2_000),
    st.lists(st.sampled_from([*ENCODERS, "raw"]), max_size=3),
    st.lists(st.integers(0, 2_500), max_size=6),
)
def test_in_parts_it_decodes_to_the_same(data: bytes, names: list[str], points: list[int]) -> None:
    """However the encoded bytes are cut; and it is not finished before the last of them."""
    encoded = data
    for name in names:
        encoded = {**ENCODERS, "raw": _raw_deflate}[name](encoded)
    decoder = Decoder(tuple("deflate" if name == "raw" else name for name in names))
    at = sorted({point % (len(encoded) + 1) for point in points} | {0, len(encoded)})
    plain = b""
    for start, end in itertools.pairwise(at):
        if names:
            with pytest.raises(Undecodable):
                decoder.finish()
        plain += decoder.feed(encoded[start:end], 10_000)
    decoder.finish()
    assert plain == data


def test_more_codings_than_anybody_means_are_refused() -> None:
    """Each would have a window of its own, and a header has room for thousands."""
    encoded = b"x"
    for _ in range(MAX_CODINGS):
        encoded = gzip.compress(encoded)
    assert decode(encoded, ("gzip",) * MAX_CODINGS, 1000) == b"x"
    with pytest.raises(Undecodable):
        decode(gzip.compress(encoded), ("gzip",) * (MAX_CODINGS + 1), 1000)


def test_deflate_without_a_wrapper_is_read_too() -> None:
    """Some servers send the raw stream."""
    assert decode(_raw_deflate(b"hello" * 50), ("deflate",), 1000) == b"hello" * 50


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_damage_is_refused(name: str) -> None:
    """Cut off, followed by something, or no such format at all."""
    encoded = ENCODERS[name](b"hello world " * 100)
    for damaged in (encoded[:-1], encoded[: len(encoded) // 2], encoded + b"x", b"no such format", b""):
        with pytest.raises(Undecodable):
            decode(damaged, (name,), 10_000)


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_a_bomb_is_refused_without_being_unpacked(name: str) -> None:
    """64 MiB of zeros in a few kilobytes, with a bound of 1 MiB."""
    bomb = ENCODERS[name](bytes(64 * 1024 * 1024))
    with pytest.raises(Undecodable):
        decode(bomb, (name,), 1024 * 1024)
    twice = ENCODERS[name](bomb)
    with pytest.raises(Undecodable):
        decode(twice, (name, name), 1024 * 1024)


def test_an_unknown_coding_is_refused() -> None:
    """Nothing is guessed."""
    with pytest.raises(Undecodable):
        decode(b"x", ("snappy",), 100)


@settings(max_examples=count(300, 10_000), deadline=None)
@given(st.binary(max_size=100), st.sampled_from(sorted(ENCODERS)))
def test_arbitrary_bytes_are_refused_or_decoded(data: bytes, name: str) -> None:
    """Never another exception: the caller has an answer for this one only."""
    with contextlib.suppress(Undecodable):
        assert len(decode(data, (name,), 1000)) <= 1000


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ()),
        ([b"gzip"], ("gzip",)),
        ([b"GZIP, br"], ("gzip", "br")),
        ([b"gzip", b"br"], ("gzip", "br")),
        ([b"identity"], ()),
        ([b" gzip , identity ,,zstd"], ("gzip", "zstd")),
    ],
)
def test_codings_are_listed_in_the_order_they_were_applied(
    values: list[bytes], expected: tuple[str, ...]
) -> None:
    """One header or several; identity is none."""
    headers = [(b"Content-Encoding", value) for value in values] + [(b"Accept-Encoding", b"br")]
    assert codings(headers) == expected


@pytest.mark.parametrize(
    ("offered", "applied", "expected"),
    [
        (None, (), True),
        (b"", (), True),
        (None, ("gzip",), False),
        (b"", ("gzip",), False),
        (b"gzip", ("gzip",), True),
        (b"GZip, deflate", ("gzip",), True),
        (b"br;q=1.0, gzip;q=0.5", ("gzip",), True),
        (b"gzip;q=0", ("gzip",), False),
        (b"gzip; q=0.000", ("gzip",), False),
        (b"gzip;q=0.001", ("gzip",), True),
        (b"*", ("br",), True),
        (b"*;q=0", ("br",), False),
        (b"*, br;q=0", ("br",), False),
        (b"br, *;q=0", ("br",), True),
        (b"identity", ("br",), False),
        (b"gzip", ("gzip", "br"), False),
        (b"gzip, br", ("gzip", "br"), True),
        (b"gzip;q=x", ("gzip",), True),
        (b"\xff", ("gzip",), False),
    ],
)
def test_what_a_caller_accepts(offered: bytes | None, applied: tuple[str, ...], expected: bool) -> None:
    """Silence accepts only the plain form."""
    assert accepts(offered, applied) is expected
