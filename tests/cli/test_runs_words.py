"""How runs are put into words: the summary for whoever goes on, differences, and nothing that could harm."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admin import run_views
from proxy.admin.desk import LocalDesk
from proxy.admin.run_views import Seen
from proxy.cli import runs_text
from proxy.cli.runs_arguments import ONE_BY_ONE, arguments_of
from proxy.cli.runs_diff import first_difference
from proxy.cli.runs_markdown import LARGEST, code, summary
from proxy.core.intent import State
from proxy.core.run_record import Attempt, How, InRun, Receipt, Run, RunState, Step, Tally
from proxy.store.codec import Codec
from tests.exchange.virtual_time import in_virtual_time
from tests.runs.stage import Agent, RunProcess

LONGEST_TOOL = "a_tool_with_a_very_long_name_" * 40
HOSTILE = (
    "`code` **bold** | [x](http://evil) <script>\x1b]0;owned\x07\x1b[2J\n# Heading\n- done, 200\r"
    "\u202e\u2066``` "
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "(absent)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


def step(seq: int, *, safe: bool = False, state: State | None = State.DONE, **changes: Any) -> Step:
    made = Step(
        key=seq.to_bytes(16),
        run="r",
        attempt="a1",
        seq=seq,
        occurrence=1,
        upstream="mail",
        rule="send",
        tool="read_page" if safe else f"send_{seq}",
        safe=safe,
        state=state,
        version=1,
        fence=1,
        owner="o",
        created_at=1000.0,
        settled_at=1002.0 if state is State.DONE else None,
        status=200 if state is State.DONE else None,
        size=2,
        cost_usd=None,
        in_run=InRun(family=b"f", group=("rule", "mail", "send")),
        sent_at=1000.5,
    )
    return made._replace(**changes)


def detail_of(steps: list[Step], *, tallies: tuple[Tally, ...] = (), **changes: Any) -> Any:
    attempts = tuple(Attempt(name=f"a{n}", first_at=float(n)) for n in (1, 2))
    run = Run(
        tenant="default", name="r", created_at=1.0, active_at=2.0, attempts=attempts, last_seq=len(steps),
        **changes,
    )  # fmt: skip
    seen = Seen(run=run, state=RunState.OPEN, steps=steps, tallies=tallies, history=(), now=1010.0)
    return run_views.detail(seen)


# ---- the summary ----


def forty(tool: str = "", arguments: object = None) -> tuple[Any, dict[str, object], list[Step]]:
    """Reads and effects in turn, a doubt among them."""
    steps = [step(n, safe=n % 4 != 0 and n < 20) for n in range(1, 41)]
    steps[29] = step(30, state=State.IN_DOUBT)
    steps[31] = step(32, state=State.RELEASED)
    steps[33] = step(34, state=None)
    if tool:
        steps = [one._replace(tool=f"{tool}{one.seq}" if not one.safe else tool) for one in steps]
    given = {one.id: arguments for one in steps if not one.safe} if arguments is not None else {}
    return detail_of(steps), given, [one for one in steps if not one.safe]


def test_forty_steps_fit_and_every_effect_is_named_with_its_outcome() -> None:
    """Under 8 KiB, in order; what is in doubt stands first, with the id that settles it."""
    detail, arguments, effects = forty(arguments={"body": {"to": "ann@example.org", "text": "x" * 3000}})
    text = summary(detail, arguments)
    assert len(text.encode()) < LARGEST == 8192
    for one in effects:
        named = f"- step {one.seq}: `send_{one.seq}` of `mail`: "
        (line,) = [line for line in text.splitlines() if line.startswith(named)]
        outcome = {30: "IN DOUBT", 32: "did not take effect", 34: "forgotten"}.get(one.seq, "done, 200")
        assert outcome in line
    doubts = text[text.index("## In doubt") : text.index("## Steps")]
    assert f"step 30: `send_30` of `mail`, call `{effects[-11].id}`" in doubts
    assert "- steps 1-3: 3 reads: `read_page` 3 times" in text


@pytest.mark.parametrize("tool", ["x", LONGEST_TOOL, HOSTILE * 20, "🦑" * 300, "\x00" * 300])
def test_it_stays_short_whatever_the_names_and_arguments_are(tool: str) -> None:
    """Names are cut rather than effects left out."""
    detail, arguments, effects = forty(tool, {"body": HOSTILE * 50})
    text = summary(detail, arguments)
    assert len(text.encode()) < LARGEST
    pattern = re.compile(r"^- step (\d+): .*(?:: done|: IN|: did|: forg)", re.MULTILINE)
    numbers = [int(found) for found in pattern.findall(text)]
    assert numbers == [one.seq for one in effects]


def test_hostile_names_stay_in_their_code_spans() -> None:
    """No escape reaches a terminal; outside of code spans there are only semel's own words."""
    detail, arguments, _ = forty(HOSTILE, {"body": HOSTILE})
    plain = summary(*forty()[:2])
    text = summary(detail, arguments)
    assert all(char.isprintable() or char == "\n" for char in text)
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert "`" not in outside
    for word in ("<script>", "**", "[x]", "|", "owned"):
        assert word not in outside
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [line for line in plain.splitlines() if line.startswith("#")]


@given(st.text(max_size=200), st.integers(1, 80))
def test_nothing_leaves_a_code_span(text: str, longest: int) -> None:
    """One span, on one line, of bounded length, and never empty."""
    span = code(text, longest)
    assert re.fullmatch(r"`[^`]+`", span)
    assert span.isprintable()
    assert len(span) <= max(longest, 1) + 2


def test_an_empty_run_has_a_summary_too() -> None:
    """Nothing recorded is said."""
    text = summary(detail_of([]), {})
    assert "None is recorded." in text
    assert "In doubt:" not in text


def test_tables_do_not_drive_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Run, attempts, steps and history, each with hostile words."""
    detail = detail_of([step(1, tool=HOSTILE, rule=HOSTILE, attempt=HOSTILE)], passed=frozenset({HOSTILE}))
    detail["events"] = [{"at": None, "actor": HOSTILE, "event": HOSTILE, "why": HOSTILE}]
    detail["attempts"][0]["name"] = HOSTILE
    runs_text.print_run(detail, "")
    out = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in out)
    assert not any(line.startswith("# Heading") for line in out.splitlines())


# ---- figures ----


def test_what_is_not_known_is_null_and_not_nothing() -> None:
    """Replays of calls without a price or a duration; with them the sums are exact."""
    bare = step(1, sent_at=None)
    known = step(2, cost_usd=0.5)
    replayed = tuple(Tally("a2", one.key, How.REPLAYED, 3, 9.0) for one in (bare, known))
    unknown = detail_of([bare], tallies=replayed[:1])
    assert (unknown["spent_usd"], unknown["saved_usd"], unknown["saved_seconds"]) == (None, None, None)
    summed = detail_of([bare, known], tallies=replayed)
    assert (summed["spent_usd"], summed["saved_usd"], summed["saved_seconds"]) == (0.5, 1.5, 4.5)


def test_hosts_without_a_policy_are_told_by_name() -> None:
    """They are recorded under one label; the group of their calls knows the host."""
    group = ("call", "POST", "api.example.org", "/v1")
    one = step(1, upstream="unlisted", in_run=InRun(family=b"f", group=group))
    assert detail_of([one, step(2)])["unlisted"] == ["api.example.org"]


def test_receipts_are_told_by_step() -> None:
    """What an attempt was given instead of an answer."""
    receipt = Receipt(attempt="a1", problem="upstream-timeout", position=3)
    one = step(1, state=State.RELEASED, in_run=InRun(family=b"f", group=("x",), receipts=(receipt,)))
    (told,) = detail_of([one])["steps"]
    assert told["received"] == [{"attempt": "a1", "problem": "upstream-timeout"}]


# ---- differences ----


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ({"body": {"to": "a", "n": 1}}, {"body": {"to": "b", "n": 2}}, "body.to"),
        ({"body": {"to": "a"}}, {"body": {"to": "a", "cc": "b"}}, "body.cc"),
        ({"items": [1, 2]}, {"items": [1, 2, 3]}, "items[2]"),
        ({"n": 1}, {"n": True}, "n"),
        ({"n": [1]}, {"n": {"0": 1}}, "n"),
        (None, {"n": 1}, "arguments"),
    ],
)
def test_the_first_difference_is_named(one: object, other: object, field: str) -> None:
    """By its path, from both sides."""
    for left, right in ((one, other), (other, one)):
        found = first_difference(left, right)
        assert found is not None
        assert found["field"] == field


@given(JSON, JSON)
def test_two_documents_differ_if_and_only_if_something_is_named(one: object, other: object) -> None:
    """Whatever they hold, also the words for what is absent; JSON tells true from 1."""
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (first_difference(one, other) is None) == same


@in_virtual_time
async def test_arguments_are_found_page_by_page_or_one_by_one() -> None:
    """Few or many: the same."""
    semel = RunProcess()
    for number in range(ONE_BY_ONE + 4):
        await Agent(semel).write(f"send?{number}")
    desk = LocalDesk(
        store=semel.store, codec=Codec(), clock=semel.clock, lifetimes=lambda upstream, rule: None
    )
    detail = await desk.runs.show("r")
    calls = [one["call"] for one in detail["steps"]]
    many = await arguments_of(desk, detail, calls)
    few = await arguments_of(desk, detail, calls[:2])
    assert set(many) == set(calls)
    assert few == {call: many[call] for call in calls[:2]}
