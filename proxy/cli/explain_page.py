"""The page that `semel explain` prints: its document, for people. Others' text never drives the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proxy.cli.output import print_table, printable

LONGEST_CANONICAL = 2000
_ABSENT = "(not there)"
_SAFE = {True: "safe: repeating it does no harm", False: "with effects"}


def print_page(document: dict[str, Any]) -> None:
    request, rule, now = document["request"], document["rule"], document["now"]
    _line("request", f"{request['method']} {request['target']} at upstream {request['upstream']}")
    if rule["name"] is None:
        _line("rule", "none matches: what holds without a rule")
    else:
        _line("rule", rule["name"] + (f" ({rule['at']})" if rule["at"] else ""))
    _line("mode", f"{rule['mode']}, {_SAFE[rule['safe']]}")
    _line("tenant", request["tenant"])
    if document["run"] is not None:
        _print_run(document["run"])
    if document["canonical"] is not None:
        _print_name(document)
    _line("now", f"{now['what']}: {now['detail']}")
    if document["run"] is not None:
        unasked = document["run"]["unasked"]
        rows = [(f"step {one['seq']}", one["tool"], one["state"], one["call"]) for one in unasked]
        _rows("not asked for by this attempt", rows)
    if document["like"] is not None:
        print()
        _print_like(document["like"], rule["name"], in_run=document["run"] is not None)


def _print_run(run: dict[str, Any]) -> None:
    begins = ", which would begin with this call" if run["new"] else ""
    fork = f", a fork of {run['parent']}" if run["parent"] else ""
    _line("run", run["name"] + fork + begins)
    _line("attempt", run["attempt"] or "none given: safe calls go live, and divergence is not seen")
    if run["pinned_otherwise"]:
        _line("named by", "the rules as they were when the run began; the policies have changed since")


def _print_name(document: dict[str, Any]) -> None:
    canonical = document["canonical"]
    shown = canonical if len(canonical) <= LONGEST_CANONICAL else canonical[:LONGEST_CANONICAL] + "…"
    _rows("arguments", [(one["field"], _cut(one["value"])) for one in document["arguments"]])
    _rows("headers that count", [(one["name"], one["value"]) for one in document["headers"]])
    _rows("counts too", [(text,) for text in document["counts_too"]])
    _rows("left out", [(one["what"], one["why"]) for one in document["left_out"]])
    run = document["run"]
    if run is None:
        _line("occurrence", str(document["request"]["occurrence"]))
    elif run["occurrence"] is not None:
        _line("occurrence", f"{run['occurrence']} ({run['why']})")
    _line("canonical", shown)
    if run is not None:
        recorded = run["recorded"] or "none"
        _line("family", f"{run['family']}, of which the run has {recorded} on record")
        if run["occurrence"] is None:
            return
    unknown = "known only with the record: the credentials count, as a hash keyed with the record's secret"
    _line("call", document["call"] or unknown)


def _print_like(like: dict[str, Any], rule: str | None, *, in_run: bool) -> None:
    print(f"compared with call {like['call']}")
    if like["note"]:
        print(f"  {printable(like['note'])}")
    for assumed in like["assumed"]:
        print(f"  {printable(assumed)}")
    if like["same"]:
        print("  They are the same call.")
    elif like["same_now"]:
        print("  Both would have the same name now. The record has that call under its older name, which is")
        print("  not found any more: this request would be sent.")
    elif like["differences"]:
        rows = [(one["field"], _shown(one["here"]), _shown(one["there"])) for one in like["differences"]]
        print_table(("  differs in", "here", "there"), [(f"  {row[0]}", *row[1:]) for row in rows])
        _print_suggestions(like, rule, in_run=in_run)


def _print_suggestions(like: dict[str, Any], rule: str | None, *, in_run: bool) -> None:
    print()
    suggestions = like["suggestions"]
    if not suggestions:
        print("No line of a rule can make them match:")
        for one in like["remaining"]:
            print(f"  {printable(one['field'])}: {printable(one['fixed'] or 'it still differs')}")
        return
    for number, suggestion in enumerate(suggestions):
        at = f" ({printable(suggestion['at'])})" if suggestion["at"] else ""
        if suggestion["whole_rule"]:
            where = f"this rule at the end of rules:{at}"
        else:
            where = f"{'in place of key: in' if suggestion['replaces'] else 'a new line of'} rule {rule}{at}"
        print(f"{'Or' if number else 'To make them match'}, {where}")
        print()
        for line in suggestion["yaml"].split("\n"):
            print(f"    {printable(line)}")
        print()
        for careful in suggestion["careful"]:
            print(f"Careful: {printable(careful)}.")
    if in_run:
        print("Tried: with it both get the same name.")
        return
    print("Tried: with it both get the same name. What is on record keeps its old one, so such a call, made")
    print("again after the policy has changed, is sent once more.")


def _line(title: str, text: str) -> None:
    print(f"{title:<12}{printable(text)}")


def _rows(title: str, rows: Iterable[Sequence[str]]) -> None:
    told = [tuple(map(printable, row)) for row in rows]
    if not told:
        return
    print(title)
    width = max(len(row[0]) for row in told) if len(told[0]) > 1 else 0
    for row in told:
        print("  " + "  ".join((row[0].ljust(width), *row[1:])).rstrip())


def _shown(text: str | None) -> str:
    return _ABSENT if text is None else _cut(text, 60)


def _cut(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
