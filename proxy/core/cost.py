"""What a call cost, in US dollars: the rule's fixed price, or what its expression finds in the answer.

None where that is not known: the rule says nothing, the answer is no success, too long, damaged or not of the
expected form, the model has no plain price. Whatever an upstream answers, the result is never negative, never
more than DEAREST, and nothing is raised: a price must not cost a call.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

import jmespath
import orjson
from jmespath import functions

from proxy.core.encoding import codings, decode
from proxy.core.headers import Headers, is_event_stream
from proxy.core.policy import Rule
from proxy.core.prices import tokens_usd

# An expression reads at most this much of an answer, decoded.
READABLE = 8 * 1024 * 1024
# No single call costs more; a larger number is a mistake.
DEAREST = Decimal(1_000_000)
# Some APIs write money as text.
_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?")
# Where an event may hold the answer it is about: Chat Completions, Responses, Messages.
_HOLDERS = ("response", "message")
# What of it is carried over, the last word counting.
_CARRIED = ("model", "service_tier", "output")


def cost_of(rule: Rule, status: int, headers: Headers, body: bytes) -> float | None:
    """For a final answer, complete and as it came from the upstream (`body` still encoded)."""
    cost = rule.cost
    if cost is None or not 200 <= status < 300:
        return None
    if cost.usd is not None:
        return float(cost.usd)
    assert cost.usd_from is not None
    found = _found(cost.usd_from, headers, body)
    return None if found is None else float(found)


def _found(expression: str, headers: Headers, body: bytes) -> Decimal | None:
    if len(body) > READABLE:
        return None
    try:
        answer = read_answer(headers, body)
        return _amount(_compiled(expression).search(answer, _OPTIONS))
    except Exception:  # whatever an expression makes of an answer: the answer counts, not its price
        return None


def read_answer(headers: Headers, body: bytes) -> Any:  # noqa: ANN401 (JSON)
    """The JSON that an expression sees. Of an event stream: `events`, each one's data, and beside them the
    answer that they add up to (`model`, `service_tier`, `output`, and `usage` with its last numbers), so that
    one expression fits both."""
    plain = decode(body, codings(headers), READABLE)
    if not is_event_stream(headers):
        return orjson.loads(plain)
    answer: dict[str, Any] = {"events": []}
    usage: dict[str, Any] = {}
    for event in _events(plain):
        answer["events"].append(event)
        for part in (event, *(event.get(name) for name in _HOLDERS)):
            if not isinstance(part, dict):
                continue
            answer.update({name: part[name] for name in _CARRIED if part.get(name) is not None})
            if isinstance(part.get("usage"), dict):
                usage.update({name: count for name, count in part["usage"].items() if count is not None})
    if usage:
        answer["usage"] = usage
    return answer


def _events(stream: bytes) -> list[dict[str, Any]]:
    """The JSON objects among the events' data; others (`[DONE]`, pings) tell nothing."""
    found: list[dict[str, Any]] = []
    for event in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
        try:
            data = orjson.loads(b"\n".join(lines))
        except ValueError:
            continue
        if isinstance(data, dict):
            found.append(data)
    return found


def _amount(value: object) -> Decimal | None:
    if isinstance(value, str):
        amount = Decimal(value) if _AMOUNT.fullmatch(value) else None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        amount = Decimal(repr(value))
    else:
        amount = None
    return amount if amount is not None and amount.is_finite() and 0 <= amount <= DEAREST else None


class _Functions(functions.Functions):  # type: ignore[misc] # jmespath has no types
    """What JMESPath lacks for prices."""

    @functions.signature({"types": ["object"]})  # type: ignore[untyped-decorator]
    def _func_tokens_usd(self, answer: dict[str, Any]) -> float | None:
        found = tokens_usd(answer)
        return None if found is None else float(found)

    @functions.signature({"types": ["number"]}, {"types": ["number"]})  # type: ignore[untyped-decorator]
    def _func_times(self, one: float, other: float) -> float:
        return float(Decimal(repr(one)) * Decimal(repr(other)))


_OPTIONS = jmespath.Options(custom_functions=_Functions())


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Any:  # noqa: ANN401 (jmespath has no types)
    return jmespath.compile(expression)
