"""The rules of a policy as semel understands them: for `semel policies show`, as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.cli.output import print_table

if TYPE_CHECKING:
    from proxy.core.policy import Rule, Upstream

_PROPERTIES = {
    "name": {"type": "string"},
    "methods": {"type": "array", "items": {"type": "string"}},
    "path": {"type": ["string", "null"]},
    "headers": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    "when": {"type": ["string", "null"]},
    "tool": {"type": ["string", "null"]},  # null: the method and the path
    "mode": {"enum": ["once", "cache", "pass", "deny"]},
    "safe": {"type": ["boolean", "null"]},  # null: by method
    "in_doubt": {"enum": ["hold", "resend", "probe", None]},  # null: never in doubt
    "upstream_key": {"type": ["string", "null"]},  # where it goes
    "ttl_seconds": {"type": "number", "minimum": 0},
}
RULE = {
    "type": "object",
    "required": list(_PROPERTIES),
    "additionalProperties": False,
    "properties": _PROPERTIES,
}


def told(rule: Rule) -> dict[str, object]:
    from proxy.core.doubt import place_of
    from proxy.core.policy import Looks

    looks = rule.looks or Looks()
    return {
        "name": rule.name,
        "methods": sorted(rule.methods),
        "path": rule.path.text if rule.path else None,
        "headers": {name: list(values) for name, values in looks.headers},
        "when": looks.when,
        "tool": rule.tool or None,
        "mode": rule.mode.value,
        "safe": _safe(rule),
        "in_doubt": rule.in_doubt.value if _may_be_doubted(rule) else None,
        "upstream_key": None if rule.upstream_key is None else place_of(rule.upstream_key),
        "ttl_seconds": rule.ttl,
    }


def _safe(rule: Rule) -> bool | None:
    """None: some of the methods that it matches are safe, and some are not."""
    from proxy.core.policy import SAFE_METHODS

    answers = {rule.is_safe(method) for method in rule.methods or (*SAFE_METHODS, "POST")}
    return answers.pop() if len(answers) == 1 else None


def _may_be_doubted(rule: Rule) -> bool:
    from proxy.core.policy import Mode

    return rule.mode is Mode.ONCE and _safe(rule) is not True


def _doubt(rule: Rule) -> str:
    """In a few words: what becomes of a call whose outcome is not known."""
    from proxy.core.clauses import OnDoubt
    from proxy.core.doubt import place_of
    from proxy.quantities import show_duration

    if not _may_be_doubted(rule):
        return ""
    if rule.in_doubt is not OnDoubt.RESEND or rule.upstream_key is None:
        return rule.in_doubt.value
    return f"resend by {place_of(rule.upstream_key)}, {show_duration(rule.upstream_key.retention)}"


def _looks(rule: Rule) -> str:
    """A mark: what else it looks at is in the file."""
    return "" if rule.looks is None else " (and more)"


def print_rules(upstream: Upstream) -> None:
    from proxy.core.policy import Mode
    from proxy.quantities import show_duration

    words = {True: "yes", False: "no", None: "by method"}
    rows = [
        (
            rule.name,
            ",".join(sorted(rule.methods)) or "any",
            (rule.path.text if rule.path else "any") + _looks(rule),
            rule.mode.value,
            words[_safe(rule)],
            _doubt(rule),
            show_duration(rule.ttl) if rule.mode in (Mode.ONCE, Mode.CACHE) else "",
        )
        for rule in upstream.rules
    ]
    print_table(("RULE", "METHOD", "PATH", "MODE", "SAFE", "IN DOUBT", "KEPT"), rows)
    if any(rule.looks for rule in upstream.rules):
        print("\n(and more): it looks at headers or arguments too; --json, and the file, say at which.")
    print("\nThe first match wins. Without one: GET, HEAD and OPTIONS pass, and are recorded in a run;")
    print("everything else happens once.")
