"""What good files become."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from proxy.core.clauses import (
    Allowance,
    Approval,
    Budget,
    Cost,
    OnDoubt,
    OnStale,
    Probe,
    Rate,
    Redact,
    UpstreamKey,
)
from proxy.core.matching import find_rule
from proxy.core.patterns import PathPattern
from proxy.core.policy import (
    ClientKey,
    Credential,
    KeyRecipe,
    Mode,
    Normalize,
    OnDisconnect,
    OutcomeRule,
    PolicySet,
    Repeat,
    Rule,
    Scope,
    Timeouts,
    Upstream,
)
from proxy.policy_file import load_policies, presets_directory, recipe_changes
from proxy.policy_file.fields import Field, default_value
from proxy.policy_file.mistakes import Log
from proxy.policy_file.nodes import compose
from proxy.policy_file.not_yet import POLICIES
from proxy.policy_file.rules import rules_of
from proxy.policy_file.schema import LEVELS, RULE

EVERYTHING = """
upstream: mail
extends: null
base_url: https://API.mail.example:8443/v1/
hosts: []
protocol: http
inject: null
credentials: [X-Mail-Token]
timeout: {connect: 2s, idle: 500ms, total: 15m}
rules:
  - name: send
    match: {method: [POST, PUT], path: "/messages/{id}"}
    tool: send_email
    mode: once
    safe: false
    scope: run
    repeat: same
    key:
      include: ["items[].id", path.id, query.page, body.user.id]
      exclude: [body.user.time]
      headers: [X-Region]
      credential: exclude
      client_key: require
      normalize: [timestamps, uuids]
    ttl: 30d
    max_age: null
    stale: serve
    wait: 0s
    on_disconnect: finish
    in_doubt: hold
    upstream_key: null
    probe: null
    outcome: {final: [500], not_executed: [409, 422], in_doubt: [200], not_executed_if: "ok == `false`"}
    approval: null
    budget: null
    cost: null
    shadow: false
    redact: {args: [], headers: []}
  - name: search
    match: {method: GET, path: /search}
    mode: cache
    scope: tenant
    on_disconnect: cancel
  - name: rest
"""


EXAMPLE = Path(__file__).parents[2] / "docs" / "example.yaml"


def load(tmp_path: Path, **files: str) -> PolicySet:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return load_policies([tmp_path])


def test_every_supported_key_becomes_its_frozen_value(tmp_path: Path) -> None:
    """All keys of the contract, those of later versions with their defaults."""
    assert load(tmp_path, mail=EVERYTHING).upstreams == {
        "mail": Upstream(
            name="mail",
            scheme="https",
            host="api.mail.example",
            port=8443,
            base_path="/v1",
            credentials=("x-mail-token",),
            timeouts=Timeouts(connect=2.0, idle=0.5, total=900.0),
            rules=(
                Rule(
                    name="send",
                    methods=frozenset({"POST", "PUT"}),
                    path=PathPattern.parse("/messages/{id}"),
                    tool="send_email",
                    mode=Mode.ONCE,
                    safe=False,
                    scope=Scope.RUN,
                    repeat=Repeat.SAME,
                    key=KeyRecipe(
                        include=("items[].id", "path.id", "query.page", "body.user.id"),
                        exclude=("body.user.time",),
                        headers=("x-region",),
                        credential=Credential.EXCLUDE,
                        client_key=ClientKey.REQUIRE,
                        normalize=(Normalize.TIMESTAMPS, Normalize.UUIDS),
                    ),
                    ttl=30 * 86400.0,
                    wait=0.0,
                    outcome=OutcomeRule(
                        final=frozenset({500}),
                        not_executed=frozenset({409, 422}),
                        in_doubt=frozenset({200}),
                        not_executed_if="ok == `false`",
                    ),
                ),
                Rule(
                    name="search",
                    methods=frozenset({"GET"}),
                    path=PathPattern.parse("/search"),
                    mode=Mode.CACHE,
                    scope=Scope.TENANT,
                    on_disconnect=OnDisconnect.CANCEL,
                ),
                Rule(name="rest"),
            ),
        )
    }


def test_a_file_needs_only_a_name_and_an_address(tmp_path: Path) -> None:
    found = load(tmp_path, one="upstream: one\nbase_url: http://[::1]\n").upstreams["one"]
    assert found == Upstream(name="one", scheme="http", host="::1", port=80)
    assert found.authority == b"[::1]"


def test_words_that_older_yaml_takes_for_booleans_stay_words(tmp_path: Path) -> None:
    """`no` is a country and `on` a tool; only true and false are booleans."""
    text = "upstream: no\nbase_url: http://no.example\nrules:\n  - {name: on, tool: yes}\n"
    (rule,) = load(tmp_path, one=text).upstreams["no"].rules
    assert (rule.name, rule.tool) == ("on", "yes")


def test_everything_that_ships_with_semel_loads() -> None:
    policies = load_policies(["presets"])
    assert set(policies.upstreams) == {path.stem for path in presets_directory().glob("*.yaml")}


def test_the_example_picks_the_rules_that_it_talks_about() -> None:
    example = load_policies([EXAMPLE]).upstreams["example"]
    for method, path, name in (
        ("POST", "/v1/messages", "send"),
        ("POST", "/v1/customers/c%2F1/charges", "charge"),
        ("POST", "/v1/search", "search"),
        ("PUT", "/v1/uploads/a/b", "uploads"),
        ("DELETE", "/v1/account", "delete-account"),
    ):
        found = find_rule(example, method, path)
        assert found is not None
        assert found.rule.name == name


def test_later_sources_win_whole(tmp_path: Path) -> None:
    for name, host in (("a", "first.example"), ("b", "second.example")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.yml").write_text(f"upstream: x\nbase_url: http://{host}\n")
    (tmp_path / "a" / "y.yaml").write_text("upstream: y\nbase_url: http://y.example\n")
    found = load_policies([tmp_path / "a", str(tmp_path / "b")]).upstreams
    assert {name: one.host for name, one in found.items()} == {"x": "second.example", "y": "y.example"}
    found = load_policies([tmp_path / "b", tmp_path / "a"]).upstreams
    assert found["x"].host == "first.example"


def test_the_printed_defaults_are_the_real_ones() -> None:
    """What the docs show as default is what a rule without the key gets."""
    plain = Rule(name="plain")
    for spec in RULE.fields:
        if spec.key in ("name", "match"):
            continue
        real = getattr(plain, spec.key)
        assert default_value(spec) == (None if spec.key == "tool" else real), spec.key
    timeout = next(level for level in LEVELS if level.name == "timeout")
    assert Timeouts(**{spec.key: default_value(spec) for spec in timeout.fields}) == Timeouts()
    key = next(level for level in LEVELS if level.name == "key")
    assert KeyRecipe(**{spec.key: default_value(spec) for spec in key.fields}) == KeyRecipe()


@pytest.mark.parametrize(
    "spec", [spec for level in LEVELS for spec in level.fields], ids=lambda spec: str(spec.key)
)
def test_every_field_says_what_it_means_and_has_a_readable_default(spec: Field) -> None:
    assert spec.doc.endswith(".")
    assert 10 < len(spec.doc) < 100
    default_value(spec)


def test_what_is_not_supported_yet_names_real_keys() -> None:
    known = {(level.name, spec.key) for level in LEVELS for spec in level.fields}
    assert known >= POLICIES


def test_recipe_changes_are_those_of_naming_and_matching_only(tmp_path: Path) -> None:
    old = load(tmp_path, mail=EVERYTHING)
    harmless = (
        EVERYTHING.replace("ttl: 30d", "ttl: 1d").replace("send_email", "x").replace("wait: 0s", "wait: 9s")
    )
    assert recipe_changes(old, load(tmp_path, mail=harmless)) == []
    for before, after in (
        ("/messages/{id}", "/messages/{id}/x"),
        ("[POST, PUT]", "[POST]"),
        ("repeat: same", "repeat: ordinal"),
        ("exclude: [body.user.time]", "exclude: []"),
        ("safe: false", "safe: true"),
    ):
        new = load(tmp_path, mail=EVERYTHING.replace(before, after))
        assert recipe_changes(old, new) == [("mail", "send")], after
    whose = load(tmp_path, mail=EVERYTHING.replace("rules:\n", "accounts: [X-Account]\nrules:\n", 1))
    assert set(recipe_changes(old, whose)) == {
        ("mail", "send"), ("mail", "search"), ("mail", "rest"), ("mail", "default"),
    }  # fmt: skip
    gone = load(tmp_path, mail=EVERYTHING.replace("  - name: rest\n", ""))
    assert recipe_changes(old, gone) == [("mail", "rest")]
    assert recipe_changes(old, PolicySet()) == [("mail", "send"), ("mail", "search"), ("mail", "rest")]


LATER = """
- name: keyed
  match: {method: POST, path: /keyed}
  upstream_key: {header: Idempotency-Key, retention: 48h, mismatch: [409]}
  budget: {calls: 100/1h, usd: 5.00}
  cost: {usd: 0.10}
- name: probed
  match: {method: POST, path: /probed}
  probe: {request: {path: "/probed?ref={body.ref}"}, found: "items[0]", settle: 0s}
  approval: {when: "amount > `5`"}
- name: aged
  match: {method: GET, path: /aged}
  max_age: 1h
  stale: refuse
  shadow: true
  redact: {args: [card], headers: [X-Card]}
"""


def test_what_is_not_supported_yet_is_read_completely() -> None:
    """Without the refusal the values reach the rule: bringing one to life is deleting its line."""
    log = Log()
    node = compose(LATER.encode(), "later.yaml", log)
    assert node is not None
    keyed, probed, aged = rules_of(replace(RULE, not_yet=frozenset()))(node, log)
    assert not log.noted
    assert (keyed.in_doubt, probed.in_doubt, aged.in_doubt) == (OnDoubt.RESEND, OnDoubt.PROBE, OnDoubt.HOLD)
    assert keyed.upstream_key == UpstreamKey(
        header="idempotency-key", retention=172800.0, mismatch=frozenset({409})
    )
    assert keyed.budget == Budget(calls=Rate(100, 3600.0), usd=Allowance(Decimal("5.00")))
    assert keyed.cost == Cost(usd=Decimal("0.10"))
    assert probed.probe == Probe(method="GET", target="/probed?ref={body.ref}", found="items[0]", settle=0.0)
    assert probed.approval == Approval(when="amount > `5`")
    assert (aged.max_age, aged.stale, aged.shadow) == (3600.0, OnStale.REFUSE, True)
    assert aged.redact == Redact(args=("card",), headers=("x-card",))
