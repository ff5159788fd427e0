"""Every key of a policy file: what it means, how it is read, what it is by default.

One table per level. NOT_YET names what is read and checked but not done yet; bringing one to life is
deleting its line.
"""

from __future__ import annotations

from typing import Any

from proxy.core.clauses import (
    Approval,
    Budget,
    Cost,
    Inject,
    OnDoubt,
    OnStale,
    Probe,
    Rate,
    Redact,
    UpstreamKey,
    Wire,
)
from proxy.core.policy import (
    ClientKey,
    Credential,
    KeyRecipe,
    Mode,
    Normalize,
    OnDisconnect,
    OutcomeRule,
    PathPattern,
    Repeat,
    Scope,
)
from proxy.policy_file import checks, names
from proxy.policy_file.fields import Field, Level, Parser, nested
from proxy.policy_file.mistakes import Log, Wrong
from proxy.policy_file.nodes import Node, Scalar
from proxy.policy_file.rules import MatchClause, rules_of
from proxy.policy_file.values import (
    base_url,
    boolean,
    choice,
    duration,
    expression,
    header_name,
    label,
    list_of,
    one_or_more,
    text,
    whole,
    written,
)
from proxy.quantities import parse_money, parse_rate

# Understood, checked, refused: (level, key). Given with their default they do no harm and pass.
NOT_YET = frozenset(
    {
        ("upstream", "hosts"),
        ("upstream", "protocol"),
        ("upstream", "inject"),
        ("match", "tool"),
        ("rule", "in_doubt"),
        ("rule", "upstream_key"),
        ("rule", "probe"),
        ("rule", "approval"),
        ("rule", "budget"),
        ("rule", "cost"),
        ("rule", "max_age"),
        ("rule", "stale"),
        ("rule", "shadow"),
        ("rule", "redact"),
    }
)


def _level(name: str, doc: str, *fields: Field, checked_by: tuple[Any, ...] = ()) -> Level:
    not_yet = frozenset(key for level, key in NOT_YET if level == name)
    return Level(name=name, doc=doc, fields=fields, checks=checked_by, not_yet=not_yet)


def _statuses() -> Parser:
    return list_of(whole(100, 599, "a status"))


MATCH = _level(
    "match",
    "Which requests the rule is for. Left out, it is for all.",
    Field(
        key="method", doc="A method, or a list of them. Default: any.", parse=one_or_more(text(names.method))
    ),
    Field(
        key="path",
        doc="Literals, {name}, * (one segment), ** (the rest). Default: any.",
        parse=text(PathPattern.parse),
    ),
    Field(key="tool", doc="MCP only: the tool's name, with * as a wildcard.", parse=text(label)),
)

KEY = _level(
    "key",
    "Which parts of a request name the call.",
    Field(
        key="include",
        doc="Only these arguments; none: all of them.",
        default="[]",
        parse=list_of(text(names.argument)),
    ),
    Field(key="exclude", doc="All arguments but these.", default="[]", parse=list_of(text(names.argument))),
    Field(
        key="headers",
        doc="Further headers that tell calls apart.",
        default="[]",
        parse=list_of(text(names.keyed_header)),
    ),
    Field(
        key="credential",
        doc="Whether the caller's credentials count: auto, include, exclude.",
        default="auto",
        parse=choice(Credential),
    ),
    Field(
        key="client_key",
        doc="What the client's Idempotency-Key is worth: auto, ignore, require.",
        default="auto",
        parse=choice(ClientKey),
    ),
    Field(
        key="normalize",
        doc="What is taken out of values before they are compared: timestamps, uuids.",
        default="[]",
        parse=list_of(choice(Normalize)),
    ),
    checked_by=(checks.include_and_exclude_differ,),
)

TIMEOUT = _level(
    "timeout",
    "How long the upstream may take.",
    Field(key="connect", doc="To connect, TLS included.", default="5s", parse=duration()),
    Field(key="idle", doc="Between two pieces of an answer.", default="120s", parse=duration()),
    Field(
        key="total",
        doc="From the first byte sent to the last received; streams have only the idle timeout.",
        default="10m",
        parse=duration(),
    ),
    checked_by=(checks.timeouts_fit,),
)


def _outcome(**given: Any) -> OutcomeRule:  # noqa: ANN401
    lists = {key: frozenset(given.pop(key, ())) for key in ("final", "not_executed", "in_doubt")}
    return OutcomeRule(**lists, **given)


OUTCOME = _level(
    "outcome",
    "What the answers of this endpoint mean, where the general table is wrong for it.",
    Field(key="final", doc="Statuses that are an answer to keep.", default="[]", parse=_statuses()),
    Field(
        key="not_executed", doc="Statuses that prove that nothing happened.", default="[]", parse=_statuses()
    ),
    Field(key="in_doubt", doc="Statuses that leave open what happened.", default="[]", parse=_statuses()),
    Field(
        key="not_executed_if",
        doc="JMESPath on the answer's body; true means that nothing happened.",
        parse=text(expression),
    ),
    checked_by=(checks.one_list_per_status,),
)


def _upstream_key(*, mismatch: tuple[int, ...] = (), **given: Any) -> UpstreamKey:  # noqa: ANN401
    return UpstreamKey(mismatch=frozenset(mismatch), **given)


UPSTREAM_KEY = _level(
    "upstream_key",
    "Where the upstream takes an idempotency key.",
    Field(key="header", doc="The header it goes into (or body).", parse=text(header_name)),
    Field(
        key="body", doc="The field of the JSON body it goes into (or header).", parse=text(names.body_field)
    ),
    Field(key="retention", doc="How long the upstream remembers a key.", default="24h", parse=duration()),
    Field(key="max_length", doc="The longest key the upstream takes.", default="64", parse=whole(16, 255)),
    Field(
        key="mismatch",
        doc="Statuses that say: this key was used for something else.",
        default="[]",
        parse=_statuses(),
    ),
    checked_by=(checks.exactly_one("header", "body"),),
)

REQUEST = _level(
    "request",
    "The probe's request.",
    Field(
        key="method",
        doc="GET or HEAD: a probe changes nothing.",
        default="GET",
        parse=text(names.probe_method),
    ),
    Field(
        key="path",
        doc="Path and query; {body.ref}, {upstream_key}, {sent_at} are filled in.",
        required=True,
        parse=text(names.probe_target),
    ),
)


def _probe(*, request: dict[str, str], **given: Any) -> Probe:  # noqa: ANN401
    return Probe(method=request.get("method", "GET"), target=request["path"], **given)


PROBE = _level(
    "probe",
    "A safe question whose answer tells whether a call took effect.",
    Field(key="request", doc="What is asked.", required=True, parse=nested(REQUEST, dict)),
    Field(
        key="found",
        doc="JMESPath on the probe's answer: true if the call took effect.",
        required=True,
        parse=text(expression),
    ),
    Field(
        key="result",
        doc="JMESPath: the call's answer. Default: the probe's whole answer.",
        parse=text(expression),
    ),
    Field(
        key="settle",
        doc="How long the upstream may take to show an effect.",
        default="5s",
        parse=duration(zero=True),
    ),
)

APPROVAL = _level(
    "approval",
    "Held for a person before it is sent.",
    Field(key="when", doc="JMESPath on the arguments. Default: always.", parse=text(expression)),
    Field(
        key="wait",
        doc="How long the caller is kept waiting for the decision.",
        default="20s",
        parse=duration(zero=True),
    ),
    Field(key="expires", doc="When the question lapses.", default="24h", parse=duration()),
)


def _approval(node: Node, log: Log) -> Approval:
    if isinstance(node, Scalar):
        if node.value != "always":
            raise Wrong(f"'always' or a mapping with 'when' is wanted, this is {node.text[:40]!r}")
        return Approval()
    approval: Approval = nested(APPROVAL, Approval)(node, log)
    return approval


BUDGET = _level(
    "budget",
    "What a run (outside runs: a tenant) may use up.",
    Field(
        key="calls", doc="Calls per time, as 100/1h.", parse=written(lambda given: Rate(*parse_rate(given)))
    ),
    Field(key="usd", doc="Money, as 5.00.", parse=written(parse_money)),
    checked_by=(checks.at_least_one("calls", "usd"),),
)

COST = _level(
    "cost",
    "What one call costs.",
    Field(key="usd", doc="A fixed price, as 0.10.", parse=written(parse_money)),
    Field(key="usd_from", doc="JMESPath on the answer.", parse=text(expression)),
    checked_by=(checks.exactly_one("usd", "usd_from"),),
)

REDACT = _level(
    "redact",
    "What is stored only as a keyed hash.",
    Field(key="args", doc="Arguments.", default="[]", parse=list_of(text(names.argument))),
    Field(key="headers", doc="Headers.", default="[]", parse=list_of(text(header_name))),
)

INJECT = _level(
    "inject",
    "A credential that semel holds, so that the agent does not.",
    Field(key="header", doc="The header it goes into.", required=True, parse=text(header_name)),
    Field(
        key="value_env",
        doc="The environment variable that holds it.",
        required=True,
        parse=text(names.variable),
    ),
)

RULE = _level(
    "rule",
    "What happens to a kind of call. The first rule that matches wins.",
    Field(key="name", doc="Its name in metrics; unique in the file.", required=True, parse=text(names.rule)),
    Field(
        key="match",
        doc="Which requests it is for. Default: all.",
        default="{}",
        parse=nested(MATCH, MatchClause),
    ),
    Field(key="tool", doc='A label for people. Default: "METHOD pattern".', parse=text(label)),
    Field(
        key="mode",
        doc="once, cache, pass (forwarded, not recorded) or deny.",
        default="once",
        parse=choice(Mode),
    ),
    Field(
        key="safe",
        doc="Repeating it does no harm. Default: true for GET, HEAD, OPTIONS and cache.",
        parse=boolean,
    ),
    Field(
        key="scope", doc="run or tenant; outside a run, run means tenant.", default="run", parse=choice(Scope)
    ),
    Field(
        key="repeat",
        doc="ordinal: the n-th identical call is the n-th recorded one; same: all are one.",
        default="ordinal",
        parse=choice(Repeat),
    ),
    Field(key="key", doc="What names the call.", default="{}", parse=nested(KEY, KeyRecipe)),
    Field(
        key="ttl",
        doc="Outside runs: how long a once answer is kept, a cache answer is fresh.",
        default="24h",
        parse=duration(),
    ),
    Field(key="max_age", doc="Safe calls outside runs: older answers are stale.", parse=duration()),
    Field(
        key="stale",
        doc="What happens then: serve, revalidate, refuse.",
        default="serve",
        parse=choice(OnStale),
    ),
    Field(
        key="wait", doc="How long a duplicate waits for the first.", default="60s", parse=duration(zero=True)
    ),
    Field(
        key="on_disconnect",
        doc="finish, or cancel (safe calls only).",
        default="finish",
        parse=choice(OnDisconnect),
    ),
    Field(
        key="in_doubt",
        doc="hold, resend (default with upstream_key), probe (default with probe).",
        default="hold",
        parse=choice(OnDoubt),
    ),
    Field(
        key="upstream_key",
        doc="The upstream's own idempotency key.",
        parse=nested(UPSTREAM_KEY, _upstream_key),
    ),
    Field(key="probe", doc="How to ask whether a call took effect.", parse=nested(PROBE, _probe)),
    Field(key="outcome", doc="What the answers mean.", default="{}", parse=nested(OUTCOME, _outcome)),
    Field(key="approval", doc="always, or when a person has to agree.", parse=_approval),
    Field(key="budget", doc="What may be used up.", parse=nested(BUDGET, Budget)),
    Field(key="cost", doc="What a call costs.", parse=nested(COST, Cost)),
    Field(
        key="shadow",
        doc="Forward everything, report what would have been done.",
        default="false",
        parse=boolean,
    ),
    Field(key="redact", doc="What is stored only as a hash.", default="{}", parse=nested(REDACT, Redact)),
    checked_by=checks.RULE_CHECKS,
)

UPSTREAM = _level(
    "upstream",
    "One file: where an upstream is, and the rules for calling it.",
    Field(
        key="upstream",
        doc="Its name, the first part of the path at the proxy.",
        required=True,
        parse=text(names.upstream),
    ),
    Field(
        key="extends",
        doc="A preset's name: own rules come first, then the preset's.",
        parse=text(names.upstream),
    ),
    Field(key="base_url", doc="Where calls go; may have a path.", parse=text(base_url)),
    Field(
        key="hosts",
        doc="For the forward proxy: host[:port], *.host. Default: that of base_url.",
        default="[]",
        parse=list_of(text(names.host)),
    ),
    Field(key="protocol", doc="http or mcp.", default="http", parse=choice(Wire)),
    Field(key="inject", doc="A credential that semel adds.", parse=nested(INJECT, Inject)),
    Field(
        key="credentials",
        doc="Further headers that carry credentials.",
        default="[]",
        parse=list_of(text(header_name)),
    ),
    # Kept as what was given, so that a file that extends a preset can change one timeout alone.
    Field(key="timeout", doc="How long calls may take.", default="{}", parse=nested(TIMEOUT, dict)),
    Field(
        key="rules",
        doc="The rules. Default: none, so that the table for calls without a rule applies.",
        default="[]",
        parse=rules_of(lambda: RULE),
    ),
)

LEVELS = (
    UPSTREAM,
    TIMEOUT,
    INJECT,
    RULE,
    MATCH,
    KEY,
    OUTCOME,
    UPSTREAM_KEY,
    PROBE,
    REQUEST,
    APPROVAL,
    BUDGET,
    COST,
    REDACT,
)
