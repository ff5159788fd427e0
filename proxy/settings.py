"""semel.yaml, the environment and the flags become one frozen Settings.

A flag wins over a SEMEL_ variable, that over the file, that over the default. All three are laid over each
other as one tree and read once, so that each value is checked by the same table and every mistake names
where it stands: file:line:col, the variable, or the flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from proxy.notifying.schema import NOTIFY, SECRET_VARIABLE
from proxy.policy_file.fields import Section, read_section
from proxy.policy_file.mistakes import Enough, Log, Place, SettingsMistakes, Wrong, suggestion
from proxy.policy_file.nodes import Items, Node, Pairs, Scalar, compose, scalar
from proxy.policy_file.read import read_bytes
from proxy.settings_schema import FORWARD, GC, LIMITS, OWNERS, RUNS, SETTINGS, TLS
from proxy.settings_values import Address, Auth, Encryption, Limits, Role, Settings, Token, Unknown
from proxy.store.keyring import VARIABLE as KEY_VARIABLE

__all__ = ["Address", "Auth", "Encryption", "Limits", "Role", "Settings", "Token", "Unknown", "load_settings"]

DEFAULT_FILE = Path("semel.yaml")
PREFIX = "SEMEL_"

# What a variable or a flag can set. Tokens cannot: a list of mappings does not fit into one.
_NESTED = {
    "tls": TLS,
    "notify": NOTIFY,
    "limits": LIMITS,
    "forward": FORWARD,
    "runs": RUNS,
    "owners": OWNERS,
    "gc": GC,
}
_PATHS: tuple[tuple[str, ...], ...] = (
    *((spec.key,) for spec in SETTINGS.fields if spec.key not in (*_NESTED, "auth", "encryption")),
    *((name, key) for name, level in _NESTED.items() for key in level.known()),
    ("encryption", "key_file"),
)
VARIABLES = {PREFIX + "_".join(path).upper(): path for path in _PATHS}

# Known to other parts of semel: the client side of `semel run`, the path of the file itself, and
# whether the command line shows where a defect is; the secret that notifications are signed with; and the key
# itself, which is no setting to be written into a file.
OTHER_VARIABLES = frozenset(
    {
        "SEMEL_RUN",
        "SEMEL_ATTEMPT",
        "SEMEL_URL",
        "SEMEL_TOKEN",
        "SEMEL_OFF",
        "SEMEL_CONFIG",
        "SEMEL_DEBUG",
        SECRET_VARIABLE,
        KEY_VARIABLE,
    }
)
# Of the tests of semel: accepted, and never what somebody meant to write.
OF_TESTS = frozenset({"SEMEL_SOAK", "SEMEL_REPORT"})

# Flags are named like the setting, with one exception.
_FLAGS = {"state": "--state-dir"}


def load_settings(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    config: Path | None = None,
    *,
    tokens: Sequence[Token] = (),
) -> Settings:
    """Raises SettingsMistakes, with everything that is wrong. A flag that is None was not given. `tokens` are
    for when none are configured."""
    log = Log()
    tree = _file(_config_path(environ, config, log), log)
    try:
        for path, node in (*_variables(environ, log), *_flags(flags)):
            tree = _overlaid(tree, path, node)
    except Enough:
        raise SettingsMistakes(log.noted) from None
    if tokens and not any(key.text == "auth" and not _is_null(value) for key, value in tree.entries):
        tree = _overlaid(tree, ("auth", "tokens"), _token_nodes(tokens))
    settings = _settings(tree, environ, log)
    if len(log) or settings is None:
        raise SettingsMistakes(log.noted)
    return settings


def _config_path(environ: Mapping[str, str], config: Path | None, log: Log) -> Path | None:
    if config is not None:
        return config
    if named := environ.get("SEMEL_CONFIG"):
        return Path(named)
    try:
        return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    except OSError as error:  # a working directory that may not be entered
        log.add(
            Place(str(DEFAULT_FILE)),
            f"cannot be looked for: {error.strerror}. Change to a directory that this user may enter, or "
            "name a file with --config FILE",
        )
        return None


def _file(path: Path | None, log: Log) -> Pairs:
    nothing = Pairs(Place(str(path or DEFAULT_FILE), 1, 1), ())
    data = read_bytes(path, log) if path is not None else None
    node = compose(data, str(path), log) if data is not None else None
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return nothing  # an empty file says: everything as it is by default
    if isinstance(node, Pairs):
        return node
    log.add(node.at, "semel.yaml is a mapping: start with a key such as 'listen: 127.0.0.1:8080'")
    return nothing


def _variables(environ: Mapping[str, str], log: Log) -> Iterator[tuple[tuple[str, ...], Node]]:
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES | OF_TESTS or not value:
            continue  # an empty variable is how shells and compose files say "not set"
        at = Place(name)
        if name not in VARIABLES:
            log.add(at, f"unknown variable{suggestion(name, [*VARIABLES, *OTHER_VARIABLES])}")
        elif VARIABLES[name] == ("policies",):
            # Like PATH: the parts of a list of paths are separated by colons.
            yield VARIABLES[name], Items(at, tuple(scalar(at, part) for part in value.split(":")))
        else:
            yield VARIABLES[name], scalar(at, value)


def _flags(flags: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], Node]]:
    for name, value in flags.items():
        if value is None:
            continue
        path = tuple(name.split("."))
        if path not in _PATHS:
            raise KeyError(name)  # a slip in the command line's code, not its user's
        at = Place(_FLAGS.get(name, "--" + name.replace("_", "-")))
        if isinstance(value, (list, tuple)):
            yield path, Items(at, tuple(scalar(at, _written(one)) for one in value))
        else:
            yield path, scalar(at, _written(value))


def _token_nodes(tokens: Sequence[Token]) -> Items:
    at = Place("--first-token")

    def entry(name: str, value: str) -> tuple[Scalar, Node]:
        return Scalar(at, name, name), Scalar(at, value, value)

    return Items(
        at,
        tuple(
            Pairs(at, (entry("sha256", one.sha256), entry("tenant", one.tenant), entry("role", one.role)))
            for one in tokens
        ),
    )


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _overlaid(tree: Node | None, path: Iterable[str], node: Node) -> Pairs:
    """`tree` with `node` at `path`, in place of whatever was there."""
    first, *rest = path
    entries = tree.entries if isinstance(tree, Pairs) else ()
    before = next((value for key, value in entries if key.text == first), None)
    value = _overlaid(before, rest, node) if rest else node
    others = tuple(entry for entry in entries if entry[0].text != first)
    at = tree.at if isinstance(tree, Pairs) else node.at
    return Pairs(at, (*others, (Scalar(node.at, first, first), value)))


def _settings(tree: Pairs, environ: Mapping[str, str], log: Log) -> Settings | None:
    try:
        section: Section = read_section(tree, SETTINGS, log)
    except Wrong:  # pragma: no cover (a mapping was made sure of above)
        return None
    if len(log):
        return None
    values = {key: value for key, value in section.values.items() if value is not None}
    values["state"] = Path(_at_home(section.get("state"), environ))
    encryption, key = section.get("encryption"), environ.get(KEY_VARIABLE)
    if encryption is not None and key:
        log.add(Place(KEY_VARIABLE), "there is a key file too, encryption.key_file: leave out one of them")
    if encryption is not None:
        values["encryption"] = replace(encryption, key_file=_at_home(encryption.key_file, environ))
    elif key:
        values["encryption"] = Encryption(key=key)
    values["policies"] = tuple(_at_home(source, environ) for source in section.get("policies"))
    return Settings(**values)


def _at_home(path: str, environ: Mapping[str, str]) -> str:
    """`~/x` in the home of the environment given, which need not be this process's own."""
    home = environ.get("HOME")
    if home and (path == "~" or path.startswith("~/")):
        return home + path[1:]
    try:
        return str(Path(path).expanduser())
    except RuntimeError:  # no such user, no home: taken literally, as a shell does
        return path
