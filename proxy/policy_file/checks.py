"""What may not stand together, level by level.

Each check looks at one section, notes what is impossible at the key to change, and says what to do.
A check keeps silent where a value it needs is itself wrong: one mistake, one message.
"""

from __future__ import annotations

from proxy.core.clauses import KeyEncoding, OnDoubt, OnStale
from proxy.core.policy import SAFE_METHODS, Mode, OnDisconnect, Repeat, Scope
from proxy.policy_file.fields import Check, Section
from proxy.policy_file.mistakes import Log
from proxy.policy_file.names import placeholders_of
from proxy.policy_file.nodes import locate

ONCE, CACHE, PASS, DENY = Mode.ONCE, Mode.CACHE, Mode.PASS, Mode.DENY

# In which modes a key means something. What is not listed (name, match, tool, mode) always does.
MEANINGFUL = {
    "safe": {ONCE, CACHE, PASS},
    "scope": {ONCE, CACHE},
    "repeat": {ONCE, CACHE},
    "key": {ONCE, CACHE},
    "ttl": {ONCE, CACHE},
    "max_age": {ONCE, CACHE},
    "stale": {ONCE, CACHE},
    "wait": {ONCE, CACHE},
    "on_disconnect": {ONCE, CACHE},
    "in_doubt": {ONCE},
    "upstream_key": {ONCE},
    "probe": {ONCE},
    "outcome": {ONCE, CACHE},
    "approval": {ONCE},
    "budget": {ONCE, CACHE},
    "cost": {ONCE, CACHE},
    "shadow": {ONCE, CACHE, DENY},
    "redact": {ONCE, CACHE},
}
WHY_MEANINGLESS = {
    PASS: "a call that is passed is not recorded",
    DENY: "a call that is denied never goes out",
    CACHE: "a cached answer is a read, repeated at will",
}


def exactly_one(*keys: str) -> Check:
    def check(section: Section, log: Log) -> None:
        given = [key for key in keys if section.values.get(key) is not None]
        if section.sound(*keys) and len(given) != 1:
            at = section.keys[given[-1]] if given else section.at
            log.add(at, f"exactly one of {' and '.join(repr(key) for key in keys)} is wanted")

    return check


def at_least_one(*keys: str) -> Check:
    def check(section: Section, log: Log) -> None:
        if section.sound(*keys) and all(section.values.get(key) is None for key in keys):
            log.add(section.at, f"at least one of {' and '.join(repr(key) for key in keys)} is wanted")

    return check


UUID_LENGTH = 36


def key_fits(section: Section, log: Log) -> None:
    if not section.sound("encoding", "max_length"):
        return
    length = section.get("max_length")
    if section.get("encoding") is KeyEncoding.UUID and length < UUID_LENGTH:
        log.add(section.keys["max_length"], f"a UUID has {UUID_LENGTH} characters: leave 'encoding' out")


def fields_stand_in_a_body(section: Section, log: Log) -> None:
    if not section.sound("with", "header", "body"):
        return
    if section.get("with") and section.get("body") is None:
        log.add(
            section.keys["with"], "'with' names fields of the body: it goes with 'body', not with 'header'"
        )
    body, others = section.get("body"), [name for name, _ in section.get("with")]
    for number, name in enumerate(others):
        if body is not None and _overlap(name, body):
            log.add(section.keys["with"], f"'{name}' is where the key goes: take it out of 'with'")
        for other in others[:number]:
            if _overlap(name, other):
                log.add(section.keys["with"], f"'{name}' and '{other}' are one place: take one out")


def _overlap(one: str, other: str) -> bool:
    """One of two fields is the other, or lies in it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def include_and_exclude_differ(section: Section, log: Log) -> None:
    included = section.values.get("include") or ()
    for index, name in enumerate(section.values.get("exclude") or ()):
        if name in included:
            at = locate(section.nodes["exclude"], index)
            log.add(at, f"'{name}' is included and excluded: take it out of one of the lists")


def timeouts_fit(section: Section, log: Log) -> None:
    total = section.values.get("total")
    for key in ("connect", "idle"):
        given = section.values.get(key)
        if total is not None and given is not None and given > total:
            log.add(section.keys[key], f"'{key}' is longer than 'total', which ends the call first")


def one_list_per_status(section: Section, log: Log) -> None:
    seen: dict[int, str] = {}
    for key in ("final", "not_executed", "in_doubt"):
        for index, status in enumerate(section.values.get(key) or ()):
            if seen.setdefault(status, key) != key:
                at = locate(section.nodes[key], index)
                log.add(at, f"{status} is in '{seen[status]}' already: a status has one meaning")


def _surely_safe(section: Section) -> bool:
    """Whatever this rule matches does no harm when repeated."""
    safe, methods = section.get("safe"), section.get("match").methods
    if safe is None:
        return section.get("mode") is CACHE or (bool(methods) and methods <= SAFE_METHODS)
    return bool(safe)


def keys_fit_the_mode(section: Section, log: Log) -> None:
    if not section.sound("mode"):
        return
    mode = section.get("mode")
    for key, modes in MEANINGFUL.items():
        if section.given(key) and mode not in modes:
            log.add(section.keys[key], f"'{key}' means nothing with 'mode: {mode}': {WHY_MEANINGLESS[mode]}")


def cache_is_safe(section: Section, log: Log) -> None:
    if section.sound("mode", "safe") and section.get("mode") is CACHE and section.get("safe") is False:
        log.add(
            section.keys["safe"],
            "a cache rule is safe by nature: remove 'safe: false', or write 'mode: once'",
        )


def only_safe_calls_are_cancelled(section: Section, log: Log) -> None:
    if not section.sound("on_disconnect", "safe", "mode", "match"):
        return
    if section.get("on_disconnect") is OnDisconnect.CANCEL and not _surely_safe(section):
        log.add(
            section.keys["on_disconnect"],
            "only safe calls may be cancelled: a call with effects goes on when its caller leaves. "
            "Remove it, match only GET, HEAD or OPTIONS, or write 'safe: true' if repeating does no harm",
        )


def shared_calls_are_the_same(section: Section, log: Log) -> None:
    if (
        section.sound("mode", "scope", "repeat")
        and section.given("repeat")
        and (section.get("mode"), section.get("scope")) == (ONCE, Scope.TENANT)
        and section.get("repeat") is Repeat.ORDINAL
    ):
        log.add(
            section.keys["repeat"],
            "with 'scope: tenant' identical calls of all runs are one: write 'repeat: same', or 'scope: run'",
        )


def path_arguments_exist(section: Section, log: Log) -> None:
    """`path.id` needs an {id} in the pattern; else it would select nothing, and silently mean everything."""
    if not section.sound("match"):
        return
    path = section.get("match").path
    named = {segment.text for segment in path.segments if segment.kind == "name"} if path else set()
    for key, lists in (("key", ("include", "exclude")), ("redact", ("args",))):
        for part in lists if section.values.get(key) is not None else ():
            for index, name in enumerate(getattr(section.values[key], part)):
                first, _, rest = name.partition(".")
                if first == "path" and rest not in named:
                    known = ", ".join(f"{{{one}}}" for one in sorted(named)) or "none"
                    at = locate(section.nodes[key], part, index)
                    log.add(at, f"'{name}' needs {{{rest}}} in 'match.path' (named there: {known})")


def doubt_has_its_means(section: Section, log: Log) -> None:
    if not section.sound("in_doubt", "upstream_key", "probe"):
        return
    says, key, probe = section.get("in_doubt"), section.get("upstream_key"), section.get("probe")
    if not section.given("in_doubt"):
        if key and probe:
            log.add(
                section.keys["probe"],
                "'upstream_key' and 'probe' both settle doubt: add 'in_doubt: resend' or 'in_doubt: probe'",
            )
    elif says is OnDoubt.RESEND and not key:
        log.add(
            section.keys["in_doubt"],
            "'in_doubt: resend' needs 'upstream_key': without one a second send may act twice",
        )
    elif says is OnDoubt.PROBE and not probe:
        log.add(section.keys["in_doubt"], "'in_doubt: probe' needs 'probe': it says what to ask")
    if probe and not key and "upstream_key" in placeholders_of(probe.target):
        log.add(section.keys["probe"], "the probe uses {upstream_key}, but the rule has no 'upstream_key'")


WHY_NOT_SAFE = dict.fromkeys(("in_doubt", "upstream_key", "probe"), "are simply made again") | {
    "approval": "need nobody's leave; write 'safe: false' if these do"
}


def doubt_is_for_effects(section: Section, log: Log) -> None:
    """Safe calls are never in doubt: they are made again."""
    if (
        not section.sound("safe", "mode", "match")
        or section.get("mode") is not ONCE
        or not _surely_safe(section)
    ):
        return
    for key in ("in_doubt", "upstream_key", "probe", "approval"):
        if section.values.get(key) not in (None, OnDoubt.HOLD):
            log.add(
                section.keys[key],
                f"'{key}' is for calls with effects: these are safe, and {WHY_NOT_SAFE[key]}",
            )


def stale_needs_an_age(section: Section, log: Log) -> None:
    if not section.sound("stale", "max_age", "safe", "mode", "match"):
        return
    if section.get("stale") is not OnStale.SERVE and section.get("max_age") is None:
        log.add(section.keys["stale"], "'stale' needs 'max_age': without it nothing ever becomes stale")
    if section.get("max_age") is not None and section.get("mode") is ONCE and not _surely_safe(section):
        log.add(
            section.keys["max_age"],
            "'max_age' is for safe calls: an effect is not fetched anew because it is old",
        )


def money_has_its_price(section: Section, log: Log) -> None:
    if not section.sound("budget", "cost") or section.get("budget") is None:
        return
    if section.get("budget").usd is not None and section.get("cost") is None:
        log.add(
            section.keys["budget"],
            "a budget in dollars needs 'cost': it says what a call takes out of it, as {usd: 0.10}, or "
            "{usd_from: …} on the answer",
        )


def mismatch_is_not_an_answer(section: Section, log: Log) -> None:
    if not section.sound("outcome", "upstream_key") or not section.get("upstream_key"):
        return
    outcome = section.get("outcome")
    for status in sorted(section.get("upstream_key").mismatch & (outcome.final | outcome.not_executed)):
        log.add(
            section.keys["outcome"],
            f"{status} is a key mismatch by 'upstream_key': that is doubt, not an outcome",
        )


RULE_CHECKS: tuple[Check, ...] = (
    keys_fit_the_mode,
    cache_is_safe,
    only_safe_calls_are_cancelled,
    shared_calls_are_the_same,
    path_arguments_exist,
    doubt_has_its_means,
    doubt_is_for_effects,
    stale_needs_an_age,
    money_has_its_price,
    mismatch_is_not_an_answer,
)
