"""What goes with which protocol.

The agent's own functions (`protocol: tools`) have no address, so nothing that is said of one means anything.
Tools of an MCP server (`protocol: mcp`) have one, unless `semel mcp` runs the server. Of neither can doubt be
settled by sending or asking: there is no key in the protocol, and nothing to ask.
"""

from __future__ import annotations

from proxy.core.clauses import Wire
from proxy.core.policy import TOOLS_NAME, Rule, Upstream, local_tools
from proxy.policy_file.fields import Section
from proxy.policy_file.mistakes import Log, Place
from proxy.policy_file.nodes import Items, Pairs, Scalar

OF_AN_ADDRESS = ("base_url", "hosts", "private", "inject", "credentials", "accounts", "timeout", "extends")


OF_MCP = ("stateful", "trust_annotations")


def check_wire(wire: Wire, rules: tuple[Rule, ...], section: Section, log: Log) -> None:
    if (section.values.get("upstream") == TOOLS_NAME) != (wire is Wire.TOOLS):
        log.add(
            section.nodes["upstream"].at,
            f"the name '{TOOLS_NAME}' is for the agent's own functions, and they have no other: it goes with "
            "'protocol: tools'",
        )
    for key in OF_MCP if wire is not Wire.MCP else ():
        if section.given(key):
            log.add(section.keys[key], f"'{key}' goes with 'protocol: mcp'")
    if wire is not Wire.HTTP:
        _check_rules(wire, rules, section, log)
        return
    for rule in rules:
        if _is_for_tools(rule):
            place = place_in_rule(section, rule.name, "match")
            log.add(
                place, f"'tool' of the rule '{rule.name}' goes with 'protocol: tools' and 'protocol: mcp'"
            )


def tools_upstream(rules: tuple[Rule, ...], section: Section) -> Upstream:
    return local_tools(rules=rules, about=section.values.get("about", ""))


def _check_rules(wire: Wire, rules: tuple[Rule, ...], section: Section, log: Log) -> None:
    for key in OF_AN_ADDRESS if wire is Wire.TOOLS else ():
        if section.given(key):
            log.add(
                section.keys[key], f"'{key}' means nothing with 'protocol: tools': functions have no address"
            )
    for rule in rules:
        for key, wrong, why in (
            ("match", bool(rule.methods) or not (rule.path is None or _is_for_tools(rule)), _BY_NAME),
            ("match", rule.looks is not None and bool(rule.looks.headers), _BY_NAME),
            ("upstream_key", rule.upstream_key is not None, _NOBODY_KNOWS[wire]),
            ("probe", rule.probe is not None, _NOBODY_KNOWS[wire]),
            ("shadow", rule.shadow, "semel cannot look on at a tool"),
        ):
            if wrong:
                log.add(
                    place_in_rule(section, rule.name, key),
                    f"'{key}' of the rule '{rule.name}' does not go with 'protocol: {wire}': {why}",
                )


_BY_NAME = "tools are matched by 'tool', their name, and by 'when', their arguments"
_NOBODY_KNOWS = {
    Wire.TOOLS: "only whoever runs a function knows what came of it",
    Wire.MCP: "the protocol has no key, and no way to ask what became of a call",
}


def _is_for_tools(rule: Rule) -> bool:
    return rule.path is not None and rule.path.segments[0].kind == "tool"


def place_in_rule(section: Section, name: str, key: str) -> Place:
    """Where the file says this of the rule; where it begins, if a preset does."""
    rules = section.nodes.get("rules")
    for item in rules.items if isinstance(rules, Items) else ():
        said = {one.text: (one.at, value) for one, value in item.entries} if isinstance(item, Pairs) else {}
        if key in said and isinstance(named := said["name"][1], Scalar) and named.text == name:
            return said[key][0]
    return section.nodes["extends"].at if "extends" in section.nodes else section.at
