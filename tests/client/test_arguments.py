"""Arguments and results are JSON: spelled in any way they are one call, and what is no JSON is refused."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from functools import partial
from typing import Any

import pytest

import semel
from semel import Client
from tests.client.fake import Fake


def arguments(fake: Fake) -> list[Any]:
    return [one.document for one in fake.heard if one.word == "begin"]


def test_every_spelling_of_a_call_has_the_same_arguments(fake: Fake, client: Client) -> None:
    """Positional, by keyword in any order, with the default or what it is."""

    @client.tool
    def refund(order: int, usd: float = 5.0, *, note: str | None = None) -> float:
        return usd

    refund(7)
    refund(7, 5.0)
    refund(usd=5.0, order=7, note=None)
    assert arguments(fake) == [{"order": 7, "usd": 5.0, "note": None}] * 3
    assert len({one.body for one in fake.heard if one.word == "begin"}) == 1
    assert refund.__name__ == "refund"


def test_further_arguments_stand_under_their_parameters_name(fake: Fake, client: Client) -> None:
    """So that nothing can be taken for something else."""

    @client.tool
    def refund(order: int, /, *parts: int, **more: str) -> list[object]:
        return [order, parts, more]

    assert refund(1, 2, 3, order="x") == [1, [2, 3], {"order": "x"}]
    assert arguments(fake) == [{"order": 1, "parts": [2, 3], "more": {"order": "x"}}]


def test_a_methods_object_is_no_argument(fake: Fake, client: Client) -> None:
    """Nor a class method's class."""

    class Shop:
        @client.tool
        def refund(self, order: int) -> int:
            return order

        @classmethod
        @client.tool
        def close(cls, why: str) -> str:
            return f"{cls.__name__}: {why}"

        @staticmethod
        @client.tool
        def greet(name: str) -> str:
            return name

    assert Shop().refund(7) == 7
    assert Shop.close("late") == "Shop: late"
    assert Shop.greet("Ann") == "Ann"
    assert arguments(fake) == [{"order": 7}, {"why": "late"}, {"name": "Ann"}]


def test_what_is_excluded_is_no_argument(fake: Fake, client: Client) -> None:
    """The function gets it all the same; a name that is no parameter is a mistake."""
    session = object()

    @client.tool(exclude=["session"], name="shop.refund")
    def refund(order: int, session: object) -> bool:
        return session is not None

    assert refund(7, session) is True
    assert arguments(fake) == [{"order": 7}]
    assert fake.heard[0].target == "/_semel/tools/shop.refund"
    with pytest.raises(ValueError, match="no parameter: sesion"):
        client.tool(exclude=["sesion"], name="x")(lambda session: 0)


class Colour(StrEnum):
    RED = "red"


CYCLE: list[object] = []
CYCLE.append(CYCLE)
BAD: dict[str, tuple[object, str]] = {
    "a date": (date(2026, 1, 1), "it is of type datetime.date"),
    "bytes": (b"x", "it is of type bytes"),
    "a set": ({1}, "it is of type set"),
    "an object": (object(), "it is of type object"),
    "NaN": (float("nan"), "it is nan"),
    "infinity": (float("-inf"), "it is -inf"),
    "a key that is a number": ({1: 2}, "its key 1 is of type int, not a str"),
    "half of a pair": ("\ud800", "half of a surrogate pair"),
    "a key with half of a pair": ({"\ud800": 1}, "half of a surrogate pair"),
    "itself": (CYCLE, "nested too deeply, or contains itself"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_argument_that_is_no_json_is_named_and_nothing_is_sent(
    fake: Fake, client: Client, name: str
) -> None:
    """With the way to it; never made into text."""
    value, why = BAD[name]

    @client.tool
    def refund(order: int, when: object) -> None:
        raise AssertionError("it ran")

    for given in (value, [{"deep": value}]):
        with pytest.raises(TypeError, match="argument 'when' of the tool 'refund'") as raised:
            refund(7, given)
        assert why in str(raised.value)
    if name == "a date":
        assert "argument 'when' of the tool 'refund'[0]['deep'] is not JSON" in str(raised.value)
    assert fake.heard == []


@pytest.mark.parametrize("name", BAD)
def test_a_result_that_is_no_json_is_recorded_as_a_failure(fake: Fake, client: Client, name: str) -> None:
    """The function has run, so the call is settled, and the caller is told that it has."""
    value, why = BAD[name]
    with pytest.raises(
        semel.UnrecordableResult, match=r"'refund' HAS run, and is not run again: .*the result"
    ) as raised:
        client.call("refund", {}, lambda: value)
    assert why in str(raised.value)
    told = fake.only("complete").document
    assert told == {"error": {"type": "UnrecordableResult", "message": str(raised.value)}}
    assert fake.words() == ["begin", "complete"]


def test_the_first_result_is_what_a_replay_gives(fake: Fake, client: Client) -> None:
    """Its round trip: tuples are lists, what is only almost a str is a str."""
    value = {"pair": (1, Colour.RED), "big": 2**80, "text": "é\u2028", "float": 1.0}
    given = client.call("refund", {}, lambda: value)
    assert given == fake.only("complete").document["result"]
    assert given == {"pair": [1, "red"], "big": 2**80, "text": "é\u2028", "float": 1.0}
    assert type(given["pair"]) is list
    assert type(given["pair"][1]) is str
    assert type(given["float"]) is float


def test_a_call_that_the_function_would_not_take_is_refused_as_ever(fake: Fake, client: Client) -> None:
    """By a TypeError, before anything is sent."""

    @client.tool
    def refund(order: int) -> int:
        return order

    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        refund()  # type: ignore[call-arg]
    assert fake.heard == []


def test_only_functions_with_one_result_are_tools(client: Client) -> None:
    """Generators, objects, and decorators in the wrong order are told apart when they are decorated."""

    def numbers() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    for each in (numbers, later):
        with pytest.raises(TypeError, match="yields: a tool returns one result"):
            client.tool(each)
    others: list[Any] = [classmethod(numbers), staticmethod(numbers), partial(numbers), 7]  # type: ignore[arg-type]
    for other in others:
        with pytest.raises(TypeError, match="A tool is a function"):
            client.tool(other)
    with pytest.raises(TypeError, match="KeyboardInterrupt is none"):
        client.tool(not_executed=(KeyboardInterrupt,))  # type: ignore[arg-type]
