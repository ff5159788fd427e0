"""What a scenario of a preset is made of: a request as its documentation shows it, and what comes of it.

One file below scenarios/ for each preset, with a list `CASES`. The tests beside this file run all of them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from proxy.core.clauses import OnDoubt

SCENARIOS = Path(__file__).with_name("scenarios")
JSON_TYPE = "application/json"
FORM_TYPE = "application/x-www-form-urlencoded"

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An answer of the API. `json` is its body; `text` where that is no JSON (XML, empty)."""

    status: int = 200
    json: Json = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return self.text.encode() if self.json is None else json.dumps(self.json).encode()

    @property
    def all_headers(self) -> dict[str, str]:
        return ({} if self.json is None else {"Content-Type": JSON_TYPE}) | dict(self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to the API: `path` with its query. The body is `json`, `form` or `text`, or there is none.
    `form`: pairs, so that names may repeat. The Content-Type is implied unless `headers` says another."""

    method: str = "POST"
    path: str
    json: Json = None
    form: tuple[tuple[str, str], ...] = ()
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        if self.json is not None:
            return json.dumps(self.json).encode()
        return urlencode(self.form).encode() if self.form else self.text.encode()

    @property
    def all_headers(self) -> dict[str, str]:
        implied = {}
        if self.json is not None:
            implied = {"Content-Type": JSON_TYPE}
        elif self.form:
            implied = {"Content-Type": FORM_TYPE}
        return implied | dict(self.headers)

    def but(self, **changed: Any) -> Asked:
        """The same request with other fields: `json` and `headers` are merged at their top level, a value of
        None there takes a field away; `form` pairs take the place of those of the same name."""
        if isinstance(self.json, dict) and isinstance(changed.get("json"), dict):
            merged = {**self.json, **changed["json"]}
            changed["json"] = {name: value for name, value in merged.items() if value is not None}
        if "form" in changed:
            names = {name for name, _ in changed["form"]}
            changed["form"] = (*(pair for pair in self.form if pair[0] not in names), *changed["form"])
        if "headers" in changed:
            merged = {**self.headers, **changed["headers"]}
            changed["headers"] = {name: value for name, value in merged.items() if value is not None}
        return replace(self, **changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of call, and everything that its documentation says about it.

    Who runs what: `rule`, `safe`, `arguments`, `alike`, `different`, `cost` are looked at without a network.
    Then the call is made through semel, in a run, to an API that counts, once for every answer named here:
    again by a second attempt; after each of `refused`; after each of `doubtful`; after each of `final`; and
    with semel killed before the answer came.
    """

    rule: str | None  # its name; None: no rule of the preset is for it, the defaults apply
    request: Asked
    answer: Told  # of success
    safe: bool = False
    # What names it, as `semel explain` shows it: {"body.amount": 2000, "path.id": "x", "query.q": ["a"]}
    arguments: Mapping[str, Json] = field(default_factory=dict)
    # The same call as a crashed agent would make it again: newly minted keys, other times, other SDK headers.
    alike: tuple[Asked, ...] = ()
    # Other calls, however similar: another amount, another account, another recipient.
    different: tuple[Asked, ...] = ()
    # Answers by which nothing happened: handed on, and the same call made again is sent again.
    # A 429 is always tried; name it here only to give its documented shape (it then takes its place).
    refused: tuple[Told, ...] = ()
    # Answers that leave open what happened. A 500 is always tried for calls with effects. With a native key
    # semel sends again under the same key; without one it says `in-doubt` and sends nothing.
    doubtful: tuple[Told, ...] = ()
    # Answers that say: this key was used for something else. Doubt, and not sent again.
    mismatch: tuple[Told, ...] = ()
    # Failures that are the API's last word (validation, failure inside a 200): kept, and given again to the
    # next attempt without asking the API.
    final: tuple[Told, ...] = ()
    # Where the rule has `upstream_key`: where the API must find it, "header NAME" or "body FIELD".
    key: str | None = None
    # What goes into the body beside the key.
    beside: Mapping[str, Json] = field(default_factory=dict)
    # With a key that the API takes and does not answer by: a call in doubt is held all the same.
    held: bool = False
    # Where the rule has `probe`: the path with query that it must ask (`{key}`, `{sent_at}`: anything), the
    # answer that says yes and the one that says no.
    probe: str | None = None
    found: Told | None = None
    absent: Told | None = None
    # Outside runs: for how many seconds the answer is given again. None: not looked at.
    kept: float | None = None
    # What `answer` costs in US dollars by the rule's `cost`; None: the rule has none, or it is not known.
    cost: float | None = None
    # Nobody may make it: it is refused by semel, and never reaches the API.
    denied: bool = False
    # False: the call is passed on without a record (rules with `mode: pass`, token requests).
    recorded: bool = True

    @property
    def is_named(self) -> bool:
        return self.recorded and not self.denied

    @property
    def way_out(self) -> OnDoubt | None:
        """What becomes of doubt about it. None: it is never in doubt."""
        if self.safe or not self.is_named:
            return None
        if self.probe is not None:
            return OnDoubt.PROBE
        return OnDoubt.RESEND if self.key is not None and not self.held else OnDoubt.HOLD

    def __str__(self) -> str:
        return f"{self.rule or 'no-rule'} {self.request.method} {self.request.path}"


def scenarios() -> dict[str, list[Case]]:
    """By the preset's name."""
    found = {}
    for path in sorted(SCENARIOS.glob("[a-z]*.py")):
        module = importlib.import_module(f"tests.presets.scenarios.{path.stem}")
        found[path.stem.replace("_", "-")] = list(module.CASES)
    return found
