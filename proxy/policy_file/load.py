"""From sources to a PolicySet: the whole set, or all mistakes of all files.

A source is the word `presets`, a file or a directory. Later sources win: an upstream named again replaces
the earlier one whole, and a host named again belongs to the later upstream. Within one source the same name
or host twice is a mistake: nobody could say which wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proxy.core.clauses import Inject, OnDoubt, Redact, Wire
from proxy.core.policy import PolicySet, Rule, Timeouts, Upstream
from proxy.policy_file.fields import Section, read_section
from proxy.policy_file.injected import read_value
from proxy.policy_file.mistakes import Enough, Log, Place, PolicyMistakes, Wrong, suggestion
from proxy.policy_file.nodes import Items, Scalar, compose, locate
from proxy.policy_file.read import read_bytes
from proxy.policy_file.schema import UPSTREAM
from proxy.policy_file.values import at_hand
from proxy.policy_file.wire import check_wire, place_in_rule, tools_upstream

PRESETS = "presets"
# What an upstream takes over as the file has it.
_AS_GIVEN = (
    "about",
    "verified",
    "credentials",
    "hosts",
    "private",
    "protocol",
    "stateful",
    "trust_annotations",
)
SUFFIXES = (".yaml", ".yml")


def presets_directory() -> Path:
    """Where the policies lie that ship with semel: in the package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    packaged = package / "presets"
    return packaged if packaged.is_dir() else package.parent / "policies"


def policy_files(directory: Path) -> list[Path]:
    """The policy files of a directory, in order. Hidden ones are editors' and mounts' business."""
    return sorted(
        path for path in directory.iterdir() if path.suffix in SUFFIXES and not path.name.startswith(".")
    )


def load_policies(
    sources: Sequence[str | Path],
    *,
    presets: Path | None = None,
    environ: Mapping[str, str] | None = None,
    unset: Log | None = None,
    operators: bool = True,
    encrypted: bool = True,
) -> PolicySet:
    """Raises PolicyMistakes, with every mistake of every file, and nothing else. With `environ` the
    credentials that semel holds are read too; a variable that is not set is noted in `unset`, or is a
    mistake like the others. Without, these policies can be shown and explained, but not served.
    `operators`: somebody has an operator's token, `encrypted`: the record is, or that is not known
    here."""
    loader = _Loader(
        presets if presets is not None else presets_directory(),
        environ,
        unset,
        operators=operators,
        encrypted=encrypted,
    )
    upstreams: dict[str, Upstream] = {}
    try:
        for source in sources:
            for name, upstream in loader.source(source).items():
                upstreams.pop(name, None)  # its place in the order too: later ones win the hosts they name
                upstreams[name] = upstream
    except Enough:  # never half a set
        raise PolicyMistakes(loader.log.noted | (unset.noted if unset is not None else set())) from None
    if len(loader.log):
        raise PolicyMistakes(loader.log.noted)
    return PolicySet(upstreams)


@dataclass(slots=True)
class _Draft:
    """What one file says, its preset's word already added where the file is silent."""

    values: dict[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    # An address was given and is wrong, here or in a preset: that is noted there, it is not missing.
    incomplete: bool = False


class _Loader:
    def __init__(
        self,
        presets: Path,
        environ: Mapping[str, str] | None,
        unset: Log | None,
        *,
        operators: bool,
        encrypted: bool,
    ) -> None:
        self.log = Log()
        self._operators = operators
        self._encrypted = encrypted
        self._presets = presets
        self._environ = environ
        self._unset = self.log if unset is None else unset
        self._drafts: dict[Path, tuple[_Draft, Section | None]] = {}
        self._extending: list[Path] = []

    # ---- sources ----

    def source(self, source: str | Path) -> dict[str, Upstream]:
        found: dict[str, Upstream] = {}
        places: dict[str, Place] = {}
        claims: dict[tuple[str, int], Place] = {}
        for path in self._files(source):
            draft, section = self._draft(path)
            if section is None:
                continue
            upstream = self._build(draft, section)
            name = section.values.get("upstream")
            at = section.nodes["upstream"].at if name else section.at
            if name in places:
                self.log.add(
                    at,
                    f"the upstream '{name}' is described in {places[name].file} already: "
                    "rename one, or put the one that is to win into a later source",
                )
            elif name:
                places[name] = at
                if upstream:
                    found[name] = upstream
                    self._check_permits(upstream, section)
                    self._check_redacted(upstream, section)
                    if upstream.hosts:
                        self._claim(upstream, section, claims)
        return found

    def _claim(self, upstream: Upstream, section: Section, claims: dict[tuple[str, int], Place]) -> None:
        """One host, one upstream: the forward proxy has nothing else to tell them by."""
        for place, at in zip(upstream.places, _host_nodes(section, len(upstream.places)), strict=True):
            first = claims.setdefault(place, at)
            if first is not at:
                self.log.add(
                    at,
                    f"the host {place[0]}:{place[1]} belongs to the upstream in {first} already: one host, "
                    "one upstream. Put the rules into one file, give them different 'hosts', or put the one "
                    "that is to win into a later source",
                )

    def _check_permits(self, upstream: Upstream, section: Section) -> None:
        """What nobody can permit would wait for ever; what everybody can, an agent would permit itself."""
        for rule in upstream.rules if not self._operators else ():
            if rule.approval is not None:
                self.log.add(
                    place_in_rule(section, rule.name, "approval"),
                    f"'approval' of the rule '{rule.name}' needs somebody who may give it, and 'auth.tokens' "
                    "in semel.yaml names no operator: an agent on this machine could permit itself. Make a "
                    "token with: semel token new --tenant T --role operator",
                )

    def _check_redacted(self, upstream: Upstream, section: Section) -> None:
        """What is recorded as a hash cannot be sent again. The whole is kept encrypted only."""
        for rule in upstream.rules if not self._encrypted else ():
            if rule.redact != Redact() and rule.in_doubt is not OnDoubt.HOLD:
                self.log.add(
                    place_in_rule(section, rule.name, "redact"),
                    f"'redact' with 'in_doubt: {rule.in_doubt}' of the rule '{rule.name}' needs 'encryption' "
                    "in semel.yaml: such a call is settled from its recorded request, and without encryption "
                    "only a hash of what is redacted is kept. Add it, or write 'in_doubt: hold'",
                )

    def _files(self, source: str | Path) -> list[Path]:
        is_presets = source == PRESETS
        path = self._presets if is_presets else Path(source)
        try:
            if not path.is_dir():
                return [path]
            files = policy_files(path)
        except (OSError, ValueError) as error:
            self.log.add(Place(str(path), 1, 1), f"the directory cannot be read: {error}")
            return []
        if not files and not is_presets:
            self.log.add(
                Place(str(path), 1, 1), "the directory has no *.yaml or *.yml file: add one, or name another"
            )
        return files

    # ---- one file ----

    def _draft(self, path: Path) -> tuple[_Draft, Section | None]:
        """Read once, however often a preset is extended."""
        if path not in self._drafts:
            self._drafts[path] = self._read(path)
        return self._drafts[path]

    def _read(self, path: Path) -> tuple[_Draft, Section | None]:
        broken = (_Draft(incomplete=True), None)
        data = read_bytes(path, self.log)
        if data is None:
            return broken
        node = compose(data, str(path), self.log)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            if not any(noted.file == str(path) for noted in self.log.noted):
                self.log.add(
                    Place(str(path), 1, 1), "the file is empty: it needs at least 'upstream' and 'base_url'"
                )
            return broken
        try:
            section = read_section(node, UPSTREAM, self.log)
        except Wrong as wrong:
            if wrong.message is not None:
                self.log.add(node.at, "a policy file is a mapping: start with 'upstream: NAME'")
            return broken
        values = dict(section.values)
        own = _Draft(values, values.pop("rules", ()), incomplete=not section.sound("base_url"))
        if values.get("extends") is None:
            return own, section
        return _merged(own, self._preset(path, section)), section

    def _preset(self, path: Path, section: Section) -> _Draft:
        name, at = section.values["extends"], section.nodes["extends"].at
        known = self._preset_names()
        if name not in known:
            every = f" (there are: {', '.join(sorted(known))})" if known else ""
            self.log.add(at, f"there is no preset '{name}'{suggestion(name, sorted(known)) or every}")
            return _Draft(incomplete=True)
        preset = known[name]
        self._extending.append(path)
        try:
            if any(_same_file(preset, earlier) for earlier in self._extending):
                self.log.add(
                    at,
                    f"'extends: {name}' leads back to where it started: presets may not extend in a circle",
                )
                return _Draft(incomplete=True)
            return self._draft(preset)[0]
        finally:
            self._extending.pop()

    def _preset_names(self) -> dict[str, Path]:
        try:
            return {path.stem: path for path in policy_files(self._presets)}
        except OSError:
            return {}

    def _build(self, draft: _Draft, section: Section) -> Upstream | None:
        values = draft.values
        wire = values.get("protocol", Wire.HTTP)
        if "upstream" in section.values:
            check_wire(wire, draft.rules, section, self.log)
            if wire is Wire.TOOLS:
                return tools_upstream(draft.rules, section)
        base = values.get("base_url")
        if base is None and wire is Wire.MCP and not draft.incomplete:
            base = at_hand(section.values.get("upstream", ""))
        if base is None:
            if not draft.incomplete:
                self.log.add(section.keys.get("base_url", section.at), "'base_url' is missing")
            return None
        if "upstream" not in section.values:
            return None  # wrong or missing, and noted as such
        # What any rule is chosen by tells all calls of the upstream apart, those without a rule too.
        # Not where some rule takes the client's own key: it is minted anew.
        keys = {rule.key.implied.client_header for rule in draft.rules}
        looked_at = [name for rule in draft.rules for name in rule.key.implied.headers if name not in keys]
        accounts = tuple(dict.fromkeys((*values.get("accounts", ()), *looked_at)))
        for name in accounts:
            if name in values.get("credentials", ()):
                self.log.add(
                    section.keys.get("credentials", section.at),
                    f"'{name}' is among 'credentials', which change when a token is refreshed, and among "
                    "'accounts' or what a rule looks at, which name the call: take it out of one",
                )
        return Upstream(
            name=section.values["upstream"],
            scheme=base.scheme,
            host=base.host,
            port=base.port,
            base_path=base.path,
            timeouts=Timeouts(**values.get("timeout", {})),
            rules=tuple(_named_by(rule, accounts) for rule in draft.rules),
            inject=self._filled(values.get("inject"), section),
            accounts=accounts,
            **{key: values[key] for key in _AS_GIVEN if values.get(key) is not None},
        )

    def _filled(self, inject: Inject | None, section: Section) -> Inject | None:
        if inject is None or self._environ is None:
            return inject
        own = section.values.get("inject") is not None
        at = locate(section.nodes["inject"], "value_env") if own else section.nodes["extends"].at
        try:
            return replace(inject, value=read_value(inject.value_env, self._environ))
        except KeyError as unset:
            self._unset.add(at, unset.args[0])
        except ValueError as wrong:
            self.log.add(at, str(wrong))
        return inject


def _merged(own: _Draft, preset: _Draft) -> _Draft:
    """The file's word wins. Timeouts are taken one by one. Headers add up: leaving one of the preset's out
    would let a secret be taken for an ordinary header, or one account's call for another's. Nobody but the
    file itself says that it was checked."""
    values = {**preset.values, **{key: value for key, value in own.values.items() if value is not None}}
    values["timeout"] = {**preset.values.get("timeout", {}), **own.values.get("timeout", {})}
    for key in ("credentials", "accounts"):
        values[key] = tuple(dict.fromkeys((*preset.values.get(key, ()), *own.values.get(key, ()))))
    values["verified"] = own.values.get("verified")
    if own.values.get("base_url") is not None and own.values.get("hosts") is None:
        values["hosts"] = None  # the preset's are another server's
    replaced = {rule.name for rule in own.rules}
    rules = own.rules + tuple(rule for rule in preset.rules if rule.name not in replaced)
    return _Draft(values, rules, incomplete=own.incomplete or preset.incomplete)


def _named_by(rule: Rule, accounts: tuple[str, ...]) -> Rule:
    implied = rule.key.implied
    headers = tuple(dict.fromkeys((*implied.headers, *accounts)))
    return replace(rule, key=replace(rule.key, implied=replace(implied, headers=headers)))


def _host_nodes(section: Section, count: int) -> list[Place]:
    """Where each host is named: its own line, or the line that takes them from a preset."""
    own = section.nodes.get("hosts")
    if isinstance(own, Items) and len(own.items) == count:
        return [item.at for item in own.items]
    return [section.nodes["extends"].at if "extends" in section.nodes else section.at] * count


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other
