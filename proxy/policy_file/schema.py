"""A policy file from the top: the upstream and its rules, key by key.

What a key means, how it is read, what it is by default. The smaller levels are in clauses.py; what is
read but not done yet is in not_yet.py.
"""

from __future__ import annotations

from proxy.core.clauses import Budget, Cost, Inject, OnDoubt, OnStale, Redact, Wire
from proxy.core.policy import KeyRecipe, Mode, OnDisconnect, Repeat, Scope
from proxy.policy_file import checks, clauses, names
from proxy.policy_file.clauses import level
from proxy.policy_file.fields import Field, nested
from proxy.policy_file.rules import MatchClause, rules_of
from proxy.policy_file.values import (
    base_url,
    boolean,
    choice,
    duration,
    header_name,
    label,
    list_of,
    text,
    written,
)

RULE = level(
    "rule",
    "What happens to a kind of call. The first rule that matches wins.",
    Field("name", "Its name in metrics; unique in the file.", required=True, parse=text(names.rule)),
    Field(
        "match",
        "Which requests it is for. Default: all.",
        default="{}",
        parse=nested(clauses.MATCH, MatchClause),
    ),
    Field("tool", 'A label for people. Default: "METHOD pattern".', parse=text(label)),
    Field(
        "mode",
        "once, cache, pass (forwarded, not recorded) or deny.",
        default="once",
        parse=choice(Mode),
    ),
    Field(
        "safe",
        "Repeating it does no harm. Default: true for GET, HEAD, OPTIONS and cache.",
        parse=boolean,
    ),
    Field("scope", "run or tenant; outside a run, run means tenant.", default="run", parse=choice(Scope)),
    Field(
        "repeat",
        "ordinal: the n-th identical call is the n-th recorded one; same: all are one.",
        default="ordinal",
        parse=choice(Repeat),
    ),
    Field("key", "What names the call.", default="{}", parse=nested(clauses.KEY, KeyRecipe)),
    Field(
        "ttl",
        "Outside runs: how long a once answer is kept, a cache answer is fresh.",
        default="24h",
        parse=duration(),
    ),
    Field("max_age", "Safe calls outside runs: older answers are stale.", parse=duration()),
    Field(
        "stale",
        "What happens then: serve, revalidate, refuse.",
        default="serve",
        parse=choice(OnStale),
    ),
    Field("wait", "How long a duplicate waits for the first.", default="60s", parse=duration(zero=True)),
    Field(
        "on_disconnect",
        "finish, or cancel (safe calls only).",
        default="finish",
        parse=choice(OnDisconnect),
    ),
    Field(
        "in_doubt",
        "hold, resend (default with upstream_key), probe (default with probe).",
        default="hold",
        parse=choice(OnDoubt),
    ),
    Field(
        "upstream_key",
        "The upstream's own idempotency key.",
        parse=nested(clauses.UPSTREAM_KEY, clauses.build_upstream_key),
    ),
    Field(
        "probe", "How to ask whether a call took effect.", parse=nested(clauses.PROBE, clauses.build_probe)
    ),
    Field(
        "outcome",
        "What the answers mean.",
        default="{}",
        parse=nested(clauses.OUTCOME, clauses.build_outcome),
    ),
    Field("approval", "always, or when a person has to agree.", parse=clauses.parse_approval),
    Field("budget", "What may be used up, and is then refused.", parse=nested(clauses.BUDGET, Budget)),
    Field("cost", "What a call costs.", parse=nested(clauses.COST, Cost)),
    Field(
        "shadow",
        "Forward everything, report what would have been done.",
        default="false",
        parse=boolean,
    ),
    Field("redact", "What is stored only as a hash.", default="{}", parse=nested(clauses.REDACT, Redact)),
    checked_by=checks.RULE_CHECKS,
)

UPSTREAM = level(
    "upstream",
    "One file: where an upstream is, and the rules for calling it.",
    Field(
        "upstream",
        "Its name, the first part of the path at the proxy.",
        required=True,
        parse=text(names.upstream),
    ),
    Field(
        "extends",
        "A preset's name: own rules come first, then the preset's.",
        parse=text(names.upstream),
    ),
    Field("about", "For people: what it is, in a few words.", parse=text(label)),
    Field(
        "verified",
        "When its facts were last checked with the vendor, as 2026-11-17. Default: never.",
        parse=written(names.day),
    ),
    Field(
        "base_url",
        "Where calls go; may have a path. Left out with protocol: mcp: `semel mcp` runs the server.",
        parse=text(base_url),
    ),
    Field(
        "hosts",
        "For the forward proxy: host[:port], *.host, name.*.host. Default: that of base_url.",
        default="[]",
        parse=list_of(text(names.host)),
    ),
    Field(
        "private",
        "The names of its hosts, but not of *.host, may lead to private addresses.",
        default="false",
        parse=boolean,
    ),
    Field("protocol", "http, tools (the agent's own functions) or mcp.", default="http", parse=choice(Wire)),
    Field(
        "stateful",
        "With protocol: mcp. Sessions remember: in a new one, after replays, nothing goes live.",
        default="false",
        parse=boolean,
    ),
    Field(
        "trust_annotations",
        "With protocol: mcp. What the server calls read-only or idempotent is safe.",
        default="false",
        parse=boolean,
    ),
    Field("inject", "A credential that semel adds.", parse=nested(clauses.INJECT, Inject)),
    Field(
        "credentials",
        "Further headers that carry credentials.",
        default="[]",
        parse=list_of(text(header_name)),
    ),
    Field(
        "accounts",
        "Headers that choose whose account it is, or which form of the API: they name every call.",
        default="[]",
        parse=list_of(text(names.keyed_header)),
    ),
    # Kept as what was given, so that a file that extends a preset can change one timeout alone.
    Field("timeout", "How long calls may take.", default="{}", parse=nested(clauses.TIMEOUT, dict)),
    Field(
        "rules",
        "The rules. Default: none, so that the table for calls without a rule applies.",
        default="[]",
        parse=rules_of(RULE),
    ),
)

# From the outside in; the reference in the docs is printed from these.
LEVELS = (UPSTREAM, RULE, *clauses.LEVELS)
