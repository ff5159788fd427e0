"""semel.yaml, SEMEL_ variables, flags: who wins, and where mistakes are told."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import ConfigurationError
from proxy.policy_file import SettingsMistakes
from proxy.policy_file.fields import default_value
from proxy.policy_file.not_yet import SETTINGS as NOT_YET
from proxy.settings import (
    OF_TESTS,
    OTHER_VARIABLES,
    VARIABLES,
    Address,
    Auth,
    Encryption,
    Limits,
    Role,
    Settings,
    Token,
    load_settings,
)
from proxy.settings_schema import LEVELS, LIMITS, SETTINGS

HOME = {"HOME": "/home/agent"}


@pytest.fixture(autouse=True)
def _away_from_any_semel_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mistakes(
    text: str = "", env: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> list[str]:
    Path("semel.yaml").write_text(text)
    with pytest.raises(SettingsMistakes) as caught:
        load_settings(flags or {}, HOME | (env or {}))
    return [str(mistake) for mistake in caught.value.mistakes]


def test_without_anything_the_defaults_of_the_contract_hold() -> None:
    found = load_settings({}, HOME)
    assert found == Settings(state=Path("/home/agent/.local/state/semel"))
    assert found.listen == Address("127.0.0.1", 8080)
    assert found.limits == Limits(
        request_body=32 << 20,
        response_body=256 << 20,
        connections=2000,
        header_timeout=15.0,
        headers=64 << 10,
        inline_body=64 << 10,
        spool=1 << 20,
    )
    assert (found.store, found.workers, found.policies, found.reload) == ("embedded", 1, ("presets",), True)


def test_the_whole_file_of_the_contract_is_the_default() -> None:
    Path("semel.yaml").write_text(
        """
listen: 127.0.0.1:8080
tls: null
state: ~/.local/state/semel
store: embedded
workers: 1
policies: [presets]
limits: {request_body: 32MiB, response_body: 256MiB, connections: 2000, header_timeout: 15s, headers: 64KiB,
         inline_body: 64KiB, spool: 1MiB}
auth: null
encryption: null
forward: {unknown: deny}
runs: {retention: 30d, on_divergence: hold}
owners: {heartbeat: 5s, dead_after: 15s}
gc: {every: 1h}
reload: true
"""
    )
    assert load_settings({}, HOME) == Settings(state=Path("/home/agent/.local/state/semel"))


def test_flag_wins_over_variable_over_file_over_default() -> None:
    Path("semel.yaml").write_text(
        "listen: 127.0.0.1:1\nstore: memory\nlimits: {spool: 2MiB, headers: 8KiB}\n"
    )
    env = HOME | {"SEMEL_LISTEN": "127.0.0.1:2", "SEMEL_LIMITS_HEADERS": "16KiB"}
    found = load_settings({"listen": "127.0.0.1:3", "store": None}, env)
    assert found.listen.port == 3
    assert load_settings({}, env).listen.port == 2
    assert load_settings({}, HOME).listen.port == 1
    assert found.store == "memory", "a flag that was not given says nothing"
    assert (found.limits.headers, found.limits.spool) == (16 << 10, 2 << 20), "one limit leaves the others"
    assert found.limits.connections == 2000


def test_what_is_overridden_is_not_a_mistake() -> None:
    Path("semel.yaml").write_text("listen: nonsense\n")
    assert load_settings({"listen": "[::1]:0"}, HOME).listen == Address("::1", 0)


def test_an_empty_variable_is_not_set_and_an_empty_file_says_nothing() -> None:
    Path("semel.yaml").write_text("# nothing\n")
    assert load_settings({}, HOME | {"SEMEL_LISTEN": ""}).listen.port == 8080


def test_values_of_every_kind_come_from_variables_and_flags() -> None:
    env = {
        "SEMEL_RELOAD": "false",
        "SEMEL_POLICIES": "presets:/etc/semel:~/mine",
        "SEMEL_LIMITS_CONNECTIONS": "7",
    }
    found = load_settings({"state": Path("/var/semel"), "workers": 1}, HOME | env)
    assert found.reload is False
    assert found.policies == ("presets", "/etc/semel", "/home/agent/mine")
    assert (found.limits.connections, found.state) == (7, Path("/var/semel"))
    assert load_settings({"policies": ["a", "b"], "reload": True}, HOME | env).policies == ("a", "b")


def test_the_file_is_named_by_argument_variable_or_place(tmp_path: Path) -> None:
    for name, port in (("semel.yaml", 1), ("env.yaml", 2), ("flag.yaml", 3)):
        (tmp_path / name).write_text(f"listen: 127.0.0.1:{port}\n")
    env = HOME | {"SEMEL_CONFIG": str(tmp_path / "env.yaml")}
    assert load_settings({}, HOME).listen.port == 1
    assert load_settings({}, env).listen.port == 2
    assert load_settings({}, env, tmp_path / "flag.yaml").listen.port == 3


def test_a_named_file_that_is_missing_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml:1:1: there is no such file"):
        load_settings({}, HOME, tmp_path / "none.yaml")


def test_relative_paths_count_from_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    config = tmp_path / "etc" / "semel.yaml"
    config.write_text("state: data\npolicies: [presets, policies, ~/own]\n")
    found = load_settings({}, HOME, config)
    assert found.state == tmp_path / "etc" / "data"
    assert found.policies == ("presets", str(tmp_path / "etc" / "policies"), "/home/agent/own")
    assert load_settings({"state": "data"}, HOME, config).state == Path("data")


def test_a_key_is_given_by_a_file_or_by_itself(tmp_path: Path) -> None:
    """Never both: nobody would know which one the record was written with. It is not shown."""
    by_file = load_settings({}, {**HOME, "SEMEL_ENCRYPTION_KEY_FILE": "~/keys"})
    assert by_file.encryption == Encryption(key_file="/home/agent/keys")
    by_itself = load_settings({}, {"SEMEL_ENCRYPTION_KEY": "c2VjcmV0"})
    assert by_itself.encryption == Encryption(key="c2VjcmV0")
    assert "c2VjcmV0" not in repr(by_itself)
    assert by_file.is_encrypted
    assert by_itself.is_encrypted
    both = mistakes("encryption: {key_file: /etc/keys}\n", env={"SEMEL_ENCRYPTION_KEY": "c2VjcmV0"})
    assert both == [
        "SEMEL_ENCRYPTION_KEY: there is a key file too, encryption.key_file: leave out one of them"
    ]


def test_all_mistakes_are_told_at_once_each_where_it_stands() -> None:
    found = mistakes(
        "lisen: 127.0.0.1:1\nlimits: {spool: 1MB, conections: 4}\npolicies: presets\nreload: maybe\n",
        env={"SEMEL_LISTEN": "8080", "SEMEL_LIMIT_SPOOL": "1MiB"},
        flags={"state": "", "store": "embeded"},
    )
    assert [line.split(": ", 1) for line in found] == [
        ["--state-dir", "a text is wanted, this is nothing"],
        ["--store", "'embeded' is not a store: did you mean 'embedded'?"],
        ["SEMEL_LIMIT_SPOOL", "unknown variable: did you mean 'SEMEL_LIMITS_SPOOL'?"],
        ["SEMEL_LISTEN", "'8080' has no host: did you mean 127.0.0.1:8080?"],
        ["semel.yaml:1:1", "unknown key 'lisen': did you mean 'listen'?"],
        ["semel.yaml:2:17", "'1MB' is not a size: did you mean 1MiB?"],
        ["semel.yaml:2:22", "unknown key 'conections': did you mean 'connections'?"],
        ["semel.yaml:3:11", "a list is wanted, this is the text 'presets': write [presets]"],
        ["semel.yaml:4:9", "true or false is wanted, this is the text 'maybe'"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "tls: {cert: a, key: b}",
    ],
)
def test_what_a_later_version_does_is_refused_not_ignored(text: str) -> None:
    (found,) = mistakes(text)
    assert "not supported yet" in found
    assert found.startswith("semel.yaml:1:")
    assert "secret" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auth: {tokens: [{sha256: abc, tenant: acme, role: boss}]}", "'boss' is not one of agent, operator"),
        ("auth: {tokens: [{sha256: abc, tenant: acme, role: boss}]}", "'abc' is not 64 hex digits"),
        ("owners: {heartbeat: 10s}", "'dead_after' is at least twice 'heartbeat'"),
        ("tls: {cert: a}", "'key' is missing"),
        ("limits: {headers: 1B}", "out of range"),
        ("limits: {connections: 0}", "out of range"),
        ("policies: []", "this list is empty"),
        ("store: mongodb://user:secret@host", "'mongodb' is not a store"),
        ("store: postgers://user:secret@host/db", "'postgers' is not a store: did you mean 'postgres'?"),
        ("store: postgres", "'postgres' alone is not a store: write postgres://USER:PASSWORD@HOST/DATABASE"),
        ("[a]", "semel.yaml is a mapping"),
        ("a: b: c", "this is not YAML"),
    ],
)
def test_mistakes_in_values(text: str, message: str) -> None:
    found = mistakes(text)
    assert any(message in one for one in found), found
    assert not any("secret" in one for one in found)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "[::]", "example.com", "128.0.0.1"])
def test_listening_beyond_loopback_is_refused_and_says_what_to_do(host: str) -> None:
    (found,) = mistakes(flags={"listen": f"{host}:8080"})
    assert found.startswith("--listen: ")
    assert "semel token new --tenant T --role agent" in found
    assert "--first-token" in found
    assert "or listen on 127.0.0.1" in found
    auth = f"auth: {{tokens: [{{sha256: {'a' * 64}, tenant: acme, role: agent}}]}}"
    Path("semel.yaml").write_text(auth)
    assert load_settings({"listen": f"{host}:8080"}, HOME).auth is not None


TOKEN = Token(sha256="b" * 64, tenant="default", role=Role.AGENT)


@pytest.mark.parametrize("text", ["", "auth: null"])
def test_tokens_at_hand_are_used_where_none_are_configured(text: str, tmp_path: Path) -> None:
    """`--first-token` makes some; then other machines may be listened to."""
    file = tmp_path / "semel.yaml"
    file.write_text(text)
    settings = load_settings({"listen": "0.0.0.0:1"}, HOME, file, tokens=[TOKEN])
    assert settings.auth == Auth(tokens=(TOKEN,))


def test_configured_tokens_win(tmp_path: Path) -> None:
    """Whoever lists tokens means these and no others."""
    file = tmp_path / "semel.yaml"
    file.write_text(f"auth: {{tokens: [{{sha256: {'a' * 64}, tenant: acme, role: operator}}]}}")
    settings = load_settings({}, HOME, file, tokens=[TOKEN])
    assert settings.auth == Auth(tokens=(Token(sha256="a" * 64, tenant="acme", role=Role.OPERATOR),))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_loopback_has_several_names(host: str) -> None:
    assert str(load_settings({"listen": f"{host}:0"}, HOME).listen) == f"{host}:0"


def test_variables_of_other_parts_are_left_alone() -> None:
    """Those of the tests too: a semel that they start with their own surroundings must start."""
    known = OTHER_VARIABLES | OF_TESTS
    assert {"SEMEL_OFF", "SEMEL_SOAK", "SEMEL_REPORT"} <= known
    env = dict.fromkeys(known - {"SEMEL_CONFIG"}, "x") | {"SEMEL": "x", "OTHER": "y"}
    assert load_settings({}, HOME | env).workers == 1
    assert not known & VARIABLES.keys()
    assert "SEMEL_SOAK" not in mistakes("", env={"SEMEL_SAOK": "1"})[0]  # nobody means to write that


def test_a_flag_nobody_knows_is_a_bug_of_the_command_line() -> None:
    with pytest.raises(KeyError, match="colour"):
        load_settings({"colour": "red"}, HOME)


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        load_settings({}, HOME).store = "memory"  # type: ignore[misc]


def test_the_printed_defaults_are_the_real_ones() -> None:
    for spec in SETTINGS.fields:
        shown = default_value(spec)
        real = getattr(Settings(), spec.key)
        assert (str(Path(shown).expanduser()) if spec.key == "state" else shown) == (
            str(real) if spec.key == "state" else real
        ), spec.key
    assert Limits(**{spec.key: default_value(spec) for spec in LIMITS.fields}) == Limits()
    known = {(level.name, spec.key) for level in LEVELS for spec in level.fields}
    assert known >= NOT_YET


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=80),
    env=st.dictionaries(st.sampled_from(sorted(VARIABLES)), st.text(max_size=20), max_size=4),
)
def test_nothing_but_settings_mistakes_is_ever_raised(tmp_path: Path, text: str, env: dict[str, str]) -> None:
    config = tmp_path / "any.yaml"
    config.write_bytes(text.encode("utf-8", "replace"))
    try:
        found = load_settings({}, HOME | env, config)
    except SettingsMistakes:
        return
    assert found.listen.is_loopback


def test_a_token_has_one_tenant_and_one_role(tmp_path: Path) -> None:
    """Listed twice, which of the two it is would depend on the order of the lines."""
    line = '{{sha256: "{}", tenant: {}, role: {}}}'
    one, other = "a" * 64, "b" * 64
    lines = [line.format(one, "acme", "agent"), line.format(other, "acme", "agent")]
    file = tmp_path / "semel.yaml"
    file.write_text("auth:\n  tokens:\n" + "".join(f"    - {each}\n" for each in lines))
    assert load_settings({}, {}, file).auth is not None
    lines.append(line.format(one, "acme", "operator"))
    file.write_text("auth:\n  tokens:\n" + "".join(f"    - {each}\n" for each in lines))
    with pytest.raises(SettingsMistakes, match=r"semel\.yaml:5:16: this token is listed already"):
        load_settings({}, {}, file)
