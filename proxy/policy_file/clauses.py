"""The levels below a rule and beside the rules: match, key, outcome, timeout and the like.

Each is a table of fields and the frozen value that is made of it.
"""

from __future__ import annotations

from typing import Any

from proxy.core.clauses import Allowance, Approval, KeyEncoding, Probe, Rate, UpstreamKey
from proxy.core.policy import ClientKey, Credential, Normalize, OutcomeRule
from proxy.policy_file import checks, names, not_yet
from proxy.policy_file.fields import Check, Field, Level, Parser, nested
from proxy.policy_file.mistakes import Log, Wrong
from proxy.policy_file.nodes import Node, Scalar
from proxy.policy_file.values import (
    choice,
    duration,
    expression,
    header_name,
    list_of,
    mapping_of,
    one_or_more,
    plain,
    text,
    whole,
    written,
)
from proxy.quantities import parse_allowance, parse_money, parse_rate


def level(name: str, doc: str, *fields: Field, checked_by: tuple[Check, ...] = ()) -> Level:
    refused = not_yet.keys_of(not_yet.POLICIES, name)
    return Level(name=name, doc=doc, fields=fields, checks=checked_by, not_yet=refused)


def _statuses() -> Parser:
    return list_of(whole(100, 599, "a status"))


MATCH = level(
    "match",
    "Which requests the rule is for. Left out, it is for all.",
    Field("method", "A method, or a list of them. Default: any.", parse=one_or_more(text(names.method))),
    Field(
        "path",
        "Literals, {name}, * (one segment), ** (the rest). Default: any.",
        parse=text(names.path_pattern),
    ),
    Field(
        "headers",
        "Headers and the value or values that each must have, * for anything. They name the call too.",
        default="{}",
        parse=mapping_of(text(names.keyed_header), one_or_more(text(names.header_value))),
    ),
    Field(
        "when",
        "JMESPath on the arguments: true picks the rule; to deny or to ask a person, all but a sure false.",
        parse=text(expression),
    ),
    Field(
        "tool", "With protocol: tools or mcp. The tool's name, with * as a wildcard.", parse=text(names.tool)
    ),
)

KEY = level(
    "key",
    "Which parts of a request name the call.",
    Field(
        "include",
        "Only these arguments; none: all of them.",
        default="[]",
        parse=list_of(text(names.argument)),
    ),
    Field("exclude", "All arguments but these.", default="[]", parse=list_of(text(names.argument))),
    Field(
        "headers",
        "Further headers that tell calls apart.",
        default="[]",
        parse=list_of(text(names.keyed_header)),
    ),
    Field(
        "credential",
        "Whether the caller's credentials count: auto, include, exclude.",
        default="auto",
        parse=choice(Credential),
    ),
    Field(
        "client_key",
        "What the client's Idempotency-Key is worth: auto, ignore, require.",
        default="auto",
        parse=choice(ClientKey),
    ),
    Field(
        "normalize",
        "What is taken out of values before they are compared: timestamps, uuids.",
        default="[]",
        parse=list_of(choice(Normalize)),
    ),
    checked_by=(checks.include_and_exclude_differ,),
)

TIMEOUT = level(
    "timeout",
    "How long the upstream may take.",
    Field("connect", "To connect, TLS included.", default="5s", parse=duration()),
    Field("idle", "Between two pieces of an answer.", default="120s", parse=duration()),
    Field(
        "total",
        "From the first byte sent to the last received; streams have only the idle timeout.",
        default="10m",
        parse=duration(),
    ),
    checked_by=(checks.timeouts_fit,),
)


def build_outcome(**given: Any) -> OutcomeRule:  # noqa: ANN401
    lists: dict[str, Any] = {
        key: frozenset(given.pop(key, ())) for key in ("final", "not_executed", "in_doubt")
    }
    return OutcomeRule(**lists, **given)


OUTCOME = level(
    "outcome",
    "What the answers of this endpoint mean, where the general table is wrong for it.",
    Field("final", "Statuses that are an answer to keep.", default="[]", parse=_statuses()),
    Field("not_executed", "Statuses that prove that nothing happened.", default="[]", parse=_statuses()),
    Field("in_doubt", "Statuses that leave open what happened.", default="[]", parse=_statuses()),
    Field(
        "not_executed_if",
        "JMESPath on the answer's body; true means that nothing happened.",
        parse=text(expression),
    ),
    Field(
        "in_doubt_if",
        "JMESPath on the answer's body; true leaves open what happened, whatever else is said.",
        parse=text(expression),
    ),
    checked_by=(checks.one_list_per_status,),
)


def build_upstream_key(*, mismatch: tuple[int, ...] = (), **given: Any) -> UpstreamKey:  # noqa: ANN401
    beside = given.pop("with", ())
    return UpstreamKey(mismatch=frozenset(mismatch), beside=beside, **given)


UPSTREAM_KEY = level(
    "upstream_key",
    "Where the upstream takes an idempotency key.",
    Field("header", "The header it goes into (or body).", parse=text(header_name)),
    Field("body", "The field of the JSON body it goes into (or header).", parse=text(names.body_field)),
    Field("retention", "How long the upstream remembers a key.", default="24h", parse=duration()),
    Field("max_length", "The longest key the upstream takes.", default="64", parse=whole(16, 255)),
    Field(
        "encoding",
        "How the upstream wants keys written: text (letters and digits), hex, uuid.",
        default="text",
        parse=choice(KeyEncoding),
    ),
    Field(
        "mismatch",
        "Statuses that say: this key was used for something else.",
        default="[]",
        parse=_statuses(),
    ),
    Field(
        "mismatch_if",
        "The same, as JMESPath on the answer's body: where the status alone does not say it.",
        parse=text(expression),
    ),
    Field(
        "with",
        "Further fields of the JSON body that the upstream wants beside the key, as {enforce_nonce: true}.",
        default="{}",
        parse=mapping_of(text(names.body_field), plain),
    ),
    checked_by=(checks.exactly_one("header", "body"), checks.key_fits, checks.fields_stand_in_a_body),
)

REQUEST = level(
    "request",
    "The probe's request.",
    Field(
        "method",
        "GET: a probe changes nothing, and what it finds stands in the body.",
        default="GET",
        parse=text(names.probe_method),
    ),
    Field(
        "path",
        "Path and query; {body.ref}, {upstream_key}, {sent_at} are filled in.",
        required=True,
        parse=text(names.probe_target),
    ),
)


def build_probe(*, request: dict[str, str], **given: Any) -> Probe:  # noqa: ANN401
    return Probe(method=request.get("method", "GET"), target=request["path"], **given)


PROBE = level(
    "probe",
    "A safe question whose answer tells whether a call took effect.",
    Field("request", "What is asked.", required=True, parse=nested(REQUEST, dict)),
    Field(
        "found",
        "JMESPath on the probe's answer: true if the call took effect.",
        required=True,
        parse=text(expression),
    ),
    Field(
        "result",
        "JMESPath: the call's answer. Default: the probe's whole answer.",
        parse=text(expression),
    ),
    Field(
        "settle",
        "How long the upstream may take to show an effect.",
        default="5s",
        parse=duration(zero=True),
    ),
)

APPROVAL = level(
    "approval",
    "Held for a person before it is sent.",
    Field("when", "JMESPath on the arguments. Default: always.", parse=text(expression)),
    Field(
        "wait",
        "How long the caller is kept waiting for the decision.",
        default="20s",
        parse=duration(zero=True),
    ),
    Field("expires", "When the question lapses.", default="24h", parse=duration()),
)


def parse_approval(node: Node, log: Log) -> Approval:
    if isinstance(node, Scalar):
        if node.value != "always":
            raise Wrong(f"'always' or a mapping with 'when' is wanted, this is {node.text[:40]!r}")
        return Approval()
    approval: Approval = nested(APPROVAL, Approval)(node, log)
    return approval


BUDGET = level(
    "budget",
    "What a run (outside runs: a tenant) may use up. A call over it is refused, and nothing is sent.",
    Field(
        "calls",
        "Calls in any stretch of time of that length, as 100/1h.",
        parse=written(lambda given: Rate(*parse_rate(given))),
    ),
    Field(
        "usd",
        "Money, as 5.00 (a run's for life, outside runs in any 24h) or 5.00/1h. Needs cost.",
        parse=written(lambda given: Allowance(*parse_allowance(given))),
    ),
    checked_by=(checks.at_least_one("calls", "usd"),),
)

COST = level(
    "cost",
    "What one call costs.",
    Field("usd", "A fixed price, as 0.10.", parse=written(parse_money)),
    Field("usd_from", "JMESPath on the answer.", parse=text(expression)),
    checked_by=(checks.exactly_one("usd", "usd_from"),),
)

REDACT = level(
    "redact",
    "What is stored only as a keyed hash.",
    Field("args", "Arguments, by name.", default="[]", parse=list_of(text(names.argument))),
    Field("headers", "Headers, by name.", default="[]", parse=list_of(text(header_name))),
)

INJECT = level(
    "inject",
    "A credential that semel holds, so that the agent does not.",
    Field("header", "The header it goes into.", required=True, parse=text(names.credential_header)),
    Field(
        "value_env",
        "The environment variable that holds it.",
        required=True,
        parse=text(names.variable),
    ),
)

LEVELS = (MATCH, KEY, TIMEOUT, OUTCOME, UPSTREAM_KEY, PROBE, REQUEST, APPROVAL, BUDGET, COST, REDACT, INJECT)
