"""Values and bodies under AES-256-GCM: what was changed, moved, cut or doubled is never opened."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ConfigurationError
from proxy.store.keyring import LOOK_AGAIN, FileKeys, GivenKeys, Key, new_key, parse
from proxy.store.sealing import (
    SEGMENT,
    TAG,
    Unsealable,
    bound_to,
    key_of,
    seal,
    sealed_body,
    sealed_size,
    unseal,
    unsealed_body,
)

KEYS = GivenKeys(new_key())
PURPOSE = bound_to(b"request", b"acme", b"k" * 16)
SECRET = b"s" * 32


@given(st.binary(max_size=300))
def test_what_is_sealed_is_opened_and_says_nothing(plain: bytes) -> None:
    """Sealed twice it is another value; of eight bytes and more nothing is to be seen."""
    one, other = (seal(KEYS.current(), plain, PURPOSE) for _ in range(2))
    assert one != other
    assert unseal(KEYS, one, PURPOSE) == unseal(KEYS, other, PURPOSE) == plain
    assert len(plain) < 8 or plain not in one
    assert key_of(one) == KEYS.current().id


def test_every_flipped_bit_is_seen() -> None:
    """Of the format, the key's id, the nonce, the text and the tag: each single bit."""
    sealed = seal(KEYS.current(), b"an answer", PURPOSE)
    for place in range(8 * len(sealed)):
        broken = bytearray(sealed)
        broken[place // 8] ^= 1 << place % 8
        with pytest.raises(Unsealable):
            unseal(KEYS, bytes(broken), PURPOSE)
    for length in range(len(sealed)):
        with pytest.raises(Unsealable):
            unseal(KEYS, sealed[:length], PURPOSE)


@pytest.mark.parametrize(
    "elsewhere",
    [
        bound_to(b"head", b"acme", b"k" * 16),
        bound_to(b"request", b"acm", b"e" + b"k" * 15),
        bound_to(b"request", b"other", b"k" * 16),
        bound_to(b"request", b"acme", b"j" * 16),
        bound_to(b"requesta", b"cme", b"k" * 16),
        b"",
    ],
)
def test_a_value_that_was_moved_is_not_opened(elsewhere: bytes) -> None:
    """To another field, tenant or call, also where the parts run together to the same bytes."""
    with pytest.raises(Unsealable, match="another call"):
        unseal(KEYS, seal(KEYS.current(), b"x", PURPOSE), elsewhere)


def test_another_key_does_not_open_it() -> None:
    """And says which key is missing, not what it is."""
    other = GivenKeys(new_key())
    sealed = seal(KEYS.current(), b"x", PURPOSE)
    with pytest.raises(Unsealable, match=KEYS.current().name):
        unseal(other, sealed, PURPOSE)
    named = Key(other.current().secret, KEYS.current().id)  # one that only claims to be it
    with pytest.raises(Unsealable, match="changed"):
        unseal(_Just(named), sealed, PURPOSE)


class _Just(GivenKeys):
    def __init__(self, key: Key) -> None:
        self.ring, self.shown = (key,), "a test"


# ---- bodies ----

SIZES = (0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT, 3 * SEGMENT + 7)


async def _given(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def _whole(sealed: Iterable[bytes]) -> bytes:
    return b"".join([chunk async for chunk in unsealed_body(SECRET, _given(sealed))])


def _pieces(data: bytes, random: random.Random) -> list[bytes]:
    pieces = []
    while data:
        size = random.randint(1, 2 * SEGMENT)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("size", SIZES)
async def test_a_body_of_any_size_in_pieces_of_any_size(size: int) -> None:
    """However it was cut when it was sealed, and however the store gives it back."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    body = dice.randbytes(size)
    sealed = b"".join(sealed_body(SECRET, _pieces(body, dice)))
    assert len(sealed) == sealed_size(size)
    assert await _whole(_pieces(sealed, dice)) == body


async def test_no_segment_can_be_left_out_doubled_moved_or_cut_off() -> None:
    """Each of them is authentic by itself."""
    body = random.Random(1).randbytes(4 * SEGMENT)
    sealed = b"".join(sealed_body(SECRET, [body]))
    whole = SEGMENT + TAG
    parts = [sealed[start : start + whole] for start in range(0, len(sealed), whole)]
    wrong: tuple[list[bytes], ...] = (
        parts[:-1],
        parts[1:],
        [parts[0], parts[2], parts[1], parts[3]],
        [*parts, parts[-1]],
        [parts[0], parts[0], *parts[2:]],
        [*parts[:-1], parts[-1][:-1]],
        [],
    )
    assert await _whole(parts) == body
    for others in wrong:
        with pytest.raises(Unsealable):
            await _whole(others)


async def test_a_broken_body_is_never_given_to_its_end() -> None:
    """Whatever byte is changed, the reader gets an error before the last segment."""
    body = bytes(2 * SEGMENT + 100)
    sealed = b"".join(sealed_body(SECRET, [body]))
    for place in (0, SEGMENT, SEGMENT + TAG, 2 * (SEGMENT + TAG), len(sealed) - 1):
        broken = bytearray(sealed)
        broken[place] ^= 1
        got = b""
        with pytest.raises(Unsealable):
            async for chunk in unsealed_body(SECRET, _given([bytes(broken)])):
                got += chunk
        assert len(got) < len(body)


# ---- keys ----


def test_keys_are_read_from_lines_commas_and_comments() -> None:
    """The first seals, a key that is there twice counts once, and no key is ever shown."""
    one, two = new_key(), new_key()
    ring = parse(f"# ours\n{one}  # since May\n\n{two},{one}\n", "keys")
    assert [key.name for key in ring] == [GivenKeys(one).current().name, GivenKeys(two).current().name]
    assert one not in repr(ring)
    assert ring[0].secret.hex() not in repr(ring)


@pytest.mark.parametrize("text", ["", "# none\n", "short", "A" * 43, "A" * 43 + "=\nsecretly", "é" * 44])
def test_what_is_no_key_is_refused_without_being_repeated(text: str) -> None:
    """Half a key in a log would be half a key less to guess."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "/etc/semel/keys")
    assert "/etc/semel/keys" in str(caught.value)
    assert "semel keys new" in str(caught.value)
    for word in text.split():
        assert word == "#" or word == "none" or word not in str(caught.value)


def test_a_key_file_is_looked_at_again(tmp_path: Path) -> None:
    """A key that was put first is used when the last look is old, one that is missing at once."""
    now = 0.0
    path = tmp_path / "keys"
    one, two, three = new_key(), new_key(), new_key()
    path.write_text(one)
    keys = FileKeys(path, lambda: now)
    path.write_text(f"{two}\n{one}\n")
    assert keys.current().name == GivenKeys(one).current().name
    now += LOOK_AGAIN + 0.01
    assert keys.current().name == GivenKeys(two).current().name
    path.write_text(f"{three}\n{two}\n{one}\n")
    wanted = GivenKeys(three).current()
    assert keys.find(wanted.id) == wanted
    assert keys.find(b"12345678") is None
    path.write_text("nonsense")
    now += LOOK_AGAIN + 0.01
    assert keys.current() == wanted, "a file that makes no sense changes nothing"
    path.unlink()
    now += LOOK_AGAIN + 0.01
    assert keys.current() == wanted
