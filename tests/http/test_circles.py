"""What a call leaves behind is freed at once. In circles it would wait for the collector, which then takes a
tenth of the time of every call, and the memory in between."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.http.recalled import place

RULES = "[{name: pays, match: {path: /x}}, {name: reads, match: {path: /y}, mode: pass}]"


@contextmanager
def kept(word: bytes = b"") -> Iterator[list[str]]:
    """Of semel's own, the kinds of things that only the collector would find; and of whatever kind those that
    hold bytes with this word."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = {type(one) for one in gc.garbage}
        found += [kind.__qualname__ for kind in kinds if kind.__module__.startswith("proxy.")]
        held = [one for one in gc.get_referents(*gc.garbage) if word and type(one) is bytes and word in one]
        found += map(repr, held)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("run", [{}, {"Semel-Run": "r", "Semel-Attempt": "a"}], ids=["alone", "in a run"])
async def test_a_call_leaves_nothing_in_a_circle(tmp_path: Path, run: dict[str, str]) -> None:
    async with place(tmp_path, rules=RULES) as there:
        await there.post(run, b'{"a": 0}')  # what is made once
        with kept() as found:
            told = [(await there.post(run, body)).semel for body in (b'{"a": 1}', b'{"a": 2}', b"{}")]
            again = (await there.post({} if not run else {**run, "Semel-Attempt": "b"}, b'{"a": 1}')).semel
        assert (told, again) == (["executed"] * 3, "replayed")
        assert found == []
