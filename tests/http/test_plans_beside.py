"""What else must be as on the long way: where a body is named, what is told of one that is no call, and that
none stays behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from proxy.core import canonical
from proxy.core.canonical import Body
from proxy.front.naming import NAMED_INLINE
from proxy.front.plans import Plan
from tests.http.planned import compared, ended_alike, pair, planning, post
from tests.http.test_plans_wire import refuses_bodies_with


@pytest.mark.parametrize("size", [1000, NAMED_INLINE + 1000])
async def test_a_large_body_is_named_where_the_long_way_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_plan: list[bytes], size: int
) -> None:
    """Beside the loop, where it takes long: nobody else waits for it. So much may come at once where
    `limits.headers` is raised."""
    where: list[bool] = []
    real = canonical.read_body

    def watched(body: Body) -> tuple[str, object] | None:
        where.append(threading.current_thread().name.startswith("semel-aside"))
        return real(body)

    monkeypatch.setattr(canonical, "read_body", watched)
    async with pair(tmp_path, settings={"limits.headers": "1MiB"}) as both:
        bodies = [b'{"a":"%d%b"}' % (n, b"x" * size) for n in range(3)]
        await compared(both, *map(post, bodies[:2]))
        where.clear()
        by_plan.clear()
        await compared(both, post(bodies[2]))
        assert set(where) == {size > NAMED_INLINE}
        assert size > NAMED_INLINE or by_plan == bodies[2:]


async def test_what_is_told_of_a_body_that_is_no_call_is_what_the_long_way_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same labels, in the log and in the metrics."""
    refuses_bodies_with(b"no", monkeypatch)
    async with pair(tmp_path) as both:
        await compared(both, *(post(b'{"a":"%b"}' % word) for word in (b"ok", b"OK", b"no")))
        await ended_alike(both)
    assert both.planned.lines() == both.long.lines()


async def test_of_the_bodies_none_stays_behind(tmp_path: Path, by_plan: list[bytes]) -> None:
    """A plan lasts as long as its head is remembered; what was said behind it is for the record only."""
    async with planning(tmp_path) as there:
        bodies = [b'{"said":"%b"}' % (word * 1000) for word in (b"a", b"b", b"c")]
        for body in bodies:
            await there.told(post(body))
        assert by_plan == bodies[1:]
        by_plan.clear()
        plan = there.plan_of(post(bodies[0]))
        assert isinstance(plan, Plan)
        kept = [held for held in _held_by(plan) if isinstance(held, bytes)]
        assert b"application/json" in kept
        assert [held for held in kept if any(word * 1000 in held for word in (b"a", b"b", b"c"))] == []


def _held_by(first: object) -> Iterator[object]:
    """All that stays for as long as it does, but for what is there anyway."""
    seen, left = {id(first)}, [first]
    while left:
        held = left.pop()
        yield held
        inner = [held.__closure__] if isinstance(held, FunctionType) else gc.get_referents(held)
        for each in inner:
            if id(each) not in seen and not isinstance(each, type | ModuleType):
                seen.add(id(each))
                left.append(each)
