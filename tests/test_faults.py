"""Fault points: free when not armed, exact when armed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.faults import Point, arm, disarm_all, reach


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    disarm_all()


def test_a_point_that_nobody_armed_does_nothing() -> None:
    """Also while another one is armed."""
    for point in Point:
        reach(point)
    reached: list[str] = []
    arm(Point.CLAIMED, lambda: reached.append("claimed"))
    reach(Point.SETTLED)
    assert reached == []
    reach(Point.CLAIMED)
    assert reached == ["claimed"]


def test_an_action_comes_after_so_many_passages_and_so_many_times() -> None:
    """`after` passages go free, then `times` are acted on."""
    reached: list[int] = []
    arm(Point.COMMITTED, lambda: reached.append(passage), after=2, times=2)
    for passage in range(6):  # noqa: B007 (the action looks at it)
        reach(Point.COMMITTED)
    assert reached == [2, 3]


def test_what_an_action_raises_comes_out_at_the_point() -> None:
    """So that a test can make any step fail."""

    def fail() -> None:
        raise OSError("as armed")

    arm(Point.BLOB_WRITTEN, fail)
    with pytest.raises(OSError, match="as armed"):
        reach(Point.BLOB_WRITTEN)
    disarm_all()
    reach(Point.BLOB_WRITTEN)
