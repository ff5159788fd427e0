"""The presets looked at without a network: which rule a request meets, what names it, what it costs.

And that there is nothing in a verified preset that no scenario looks at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.core.cost import cost_of
from proxy.core.doubt import Absent, Found, finding
from proxy.core.identity import Identity
from proxy.core.policy import Mode, Rule
from proxy.front.address import UpstreamAddress, parse_target
from proxy.front.naming import Named, ToName, name_in_full
from proxy.policy_file import load_policies, presets_directory
from proxy.policy_file.load import policy_files
from proxy.spool import Spool
from tests.cli.command import semel
from tests.presets.cases import Asked, Case, scenarios

PRESETS = load_policies(["presets"]).upstreams
SCENARIOS = scenarios()
VERIFIED = [name for name, upstream in PRESETS.items() if upstream.verified]
# What the issue of a release names: a preset that vanished must not make these tests pass.
NEEDED = {"stripe", "paypal", "square", "resend", "sendgrid", "twilio", "slack", "discord"} | {
    *("github", "ses", "sqs", "tavily", "firecrawl", "openai", "anthropic")
}
SECRET = b"secret" * 6

each_case = pytest.mark.parametrize(
    ("preset", "case"),
    [pytest.param(name, case, id=f"{name}: {case}") for name, cases in SCENARIOS.items() for case in cases],
)


def named(preset: str, asked: Asked, *, run: str = "task") -> Named:
    address = parse_target(f"/{preset}{asked.path}")
    assert isinstance(address, UpstreamAddress)
    headers = tuple((name.encode(), value.encode()) for name, value in asked.all_headers.items())
    body = Spool.of(asked.body) if asked.body else None
    request = ToName(PRESETS[preset], address, asked.method, headers, body, 1, "", origin=run)
    return name_in_full(request, SECRET, 2**25)


def identity(preset: str, asked: Asked, *, run: str = "task") -> Identity:
    found = named(preset, asked, run=run).identity
    assert found is not None
    return found


def rule_of(preset: str, case: Case) -> Rule:
    return named(preset, case.request).match.rule


def argument(arguments: bytes, name: str) -> Any:
    """As a policy names it: `body.amount`. Names of forms may have dots and brackets in them."""
    value = json.loads(arguments)[1]
    if "include" in value:
        return value["include"][name]
    source, _, rest = name.partition(".")
    node = value[source]
    if rest in node:
        return node[rest]
    for step in rest.split("."):
        node = node[step]
    return node


@each_case
def test_which_rule_it_meets(preset: str, case: Case) -> None:
    """And whether repeating it does harm."""
    found = named(preset, case.request)
    assert found.match.rule.name == (case.rule or "default")
    assert found.safe == case.safe
    assert (found.identity is not None) == case.is_named


@each_case
def test_what_names_it(preset: str, case: Case) -> None:
    """The arguments that its documentation names are among those that semel sees."""
    if not case.is_named:
        assert not case.arguments
        return
    seen = identity(preset, case.request).arguments
    for name, value in case.arguments.items():
        assert argument(seen, name) == value


@each_case
def test_what_changes_after_a_crash_does_not_make_it_another_call(preset: str, case: Case) -> None:
    """Newly minted keys, times, what SDKs say of themselves: in a run the name stays."""
    ways = [identity(preset, one).key for one in (case.request, *case.alike) if case.is_named]
    assert len(set(ways)) <= 1


@each_case
def test_another_call_has_another_name(preset: str, case: Case) -> None:
    """Another amount, another recipient, another account."""
    asked = (case.request, *case.different)
    names = [identity(preset, one).key for one in asked if case.is_named]
    assert len(set(names)) == len(names)


@each_case
def test_how_long_its_answer_is_given_again(preset: str, case: Case) -> None:
    """Outside runs, where the same request some time later is meant anew."""
    if case.kept is not None:
        assert rule_of(preset, case).ttl == case.kept


@each_case
def test_what_it_costs(preset: str, case: Case) -> None:
    answer = case.answer
    headers = tuple((name.encode(), value.encode()) for name, value in answer.all_headers.items())
    assert cost_of(rule_of(preset, case), answer.status, headers, answer.body) == case.cost


@each_case
def test_what_its_probe_says(preset: str, case: Case) -> None:
    """A probe finds what is there, and does not find what is not."""
    probe = rule_of(preset, case).probe
    assert (probe is not None) == (case.probe is not None)
    if probe is None:
        return
    assert case.found is not None
    assert case.absent is not None

    def said(told: Any) -> Any:
        return finding(probe, told.status, told.json, is_repeat=False, counts_from=0, now=1)

    assert isinstance(said(case.found), Found)
    assert isinstance(said(case.absent), Absent)


@each_case
def test_what_settles_doubt_about_it(preset: str, case: Case) -> None:
    """As the scenario says, not as the rule does."""
    if case.way_out is not None:
        assert rule_of(preset, case).in_doubt is case.way_out


@each_case
def test_where_its_native_key_goes(preset: str, case: Case) -> None:
    """The scenario says where the API takes a key, so the rule has to."""
    key = rule_of(preset, case).upstream_key
    place = None if key is None else f"header {key.header}" if key.header else f"body {key.body}"
    assert place == (None if case.key is None else _lower_header(case.key))
    assert dict(() if key is None else key.beside) == case.beside


def _lower_header(place: str) -> str:
    return place.lower() if place.startswith("header ") else place


# ---- nothing is left out ----


def test_the_presets_that_are_promised_are_there_and_verified() -> None:
    assert set(VERIFIED) >= NEEDED
    assert set(SCENARIOS) <= set(PRESETS)


KINDS = ("refused", "doubtful", "mismatch", "final", "alike", "different", "probe", "key", "denied")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_occurs(kind: str) -> None:
    """A list that is empty everywhere would be a test that never runs."""
    assert any(getattr(case, kind) for cases in SCENARIOS.values() for case in cases)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_rule_has_its_scenario(preset: str) -> None:
    """Of a verified preset every rule is met by a case; an unverified one has cases at all."""
    met = {case.rule for case in SCENARIOS[preset]}
    if PRESETS[preset].verified:
        assert {rule.name for rule in PRESETS[preset].rules} <= met
    assert met


@pytest.mark.parametrize("preset", VERIFIED)
def test_what_has_effects_is_tried_in_every_way(preset: str) -> None:
    """Among the cases of a preset with effects there are ones that are alike, and ones that differ."""
    effects = [case for case in SCENARIOS[preset] if case.is_named and not case.safe]
    if any(rule.mode is Mode.ONCE and not rule.is_safe("POST") for rule in PRESETS[preset].rules):
        assert any(case.alike for case in effects)
        assert any(case.different for case in effects)
        assert any(case.refused or case.final or case.doubtful for case in effects)


def test_semel_check_finds_no_mistake_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    """As a person would run it, on the folder and on each file by itself."""
    files = policy_files(presets_directory())
    assert len(files) == len(PRESETS)
    ran = semel(capsys, "check", str(presets_directory()))
    rules = sum(len(upstream.rules) for upstream in PRESETS.values())
    assert (ran.status, ran.out) == (0, f"no mistakes (upstreams: {len(files)}, rules: {rules})\n")
    assert [semel(capsys, "check", str(file)).status for file in files] == [0] * len(files)


def test_presets_do_not_take_hosts_from_each_other() -> None:
    places = list(_places())
    assert len(places) == len(set(places))


def _places() -> Iterator[tuple[str, int]]:
    for upstream in PRESETS.values():
        yield from upstream.places
