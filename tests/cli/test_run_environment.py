"""What the agent's environment holds: the way through semel, the certificates, and what a person had set."""

from __future__ import annotations

import json
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from proxy.ca import load_or_make
from proxy.cli.run import _for_a_developer
from proxy.cli.run_environment import EXCEPTIONS, LOOPBACK, PROXIES, environment
from proxy.cli.run_names import Addresses, new_attempt, new_run
from proxy.cli.run_trust import ADDING, REPLACING, REPLACING_IF_SET, system_roots, trust_files
from proxy.core.policy import Upstream
from proxy.front.address import UpstreamAddress, parse_target
from proxy.front.run_ref import Speaker, check_attempt, check_run, parse_user
from tests.cli.test_run_process import run_to_end

P = "http://127.0.0.1:4711"
AT = Addresses(proxy=P, run="task-42", attempt="a1")
OPENAI = Upstream(name="openai", scheme="https", host="api.openai.com", port=443)
CLAUDE = Upstream(name="claude", scheme="https", host="api.anthropic.com", port=443)
LOCAL = Upstream(name="local", scheme="http", host="127.0.0.1", port=9000)
ONE, OTHER, OURS = (
    f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n".encode()
    for name in ("1", "2", "ours")
)


def made(
    given: dict[str, str] | None = None, *upstreams: Upstream, at: Addresses = AT
) -> tuple[dict[str, str], list[str]]:
    return environment(given or {}, at, {}, upstreams)


# ---- names ----


def test_attempts_differ_sort_by_time_and_are_names() -> None:
    """Within one millisecond too, where only chance tells them apart."""
    now = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    names = {new_attempt(now) for _ in range(100)}
    assert len(names) == 100
    for name in names:
        assert check_attempt(name).startswith("20260102T030405.678-")
    later = new_attempt(now.replace(microsecond=679000))
    assert all(name < later for name in names)
    assert check_run(new_run(now)).startswith("run-20260102-030405-")


@pytest.mark.parametrize("token", ["", "plain", "a b/c:d@e?f#g%h+é"])
def test_addresses_are_read_by_semel_as_they_were_meant(token: str) -> None:
    """Whatever the token is made of; without one the password is not empty, since some clients then send
    no user at all."""
    at = Addresses(proxy=P, run="task-42", attempt="a1", token=token)
    base = parse_target(urlsplit(f"{at.base}/openai/v1").path)
    assert isinstance(base, UpstreamAddress)
    assert (base.upstream, base.raw_path) == ("openai", "/v1")
    assert base.speaker == Speaker("task-42", "a1", token)
    forward = urlsplit(at.forward)
    assert (forward.hostname, forward.port) == ("127.0.0.1", 4711)
    assert forward.password
    user = f"{unquote(forward.username or '')}:{unquote(forward.password)}"
    assert parse_user(user)[:2] == ("task-42", "a1")
    if token:
        assert unquote(forward.password) == token


# ---- variables ----


def test_every_way_leads_through_semel() -> None:
    """Proxy variables, base URLs, and semel's own; everything else stays."""
    given, notes = made({"PATH": "/bin", "HOME": "/root"}, OPENAI, CLAUDE)
    assert notes == []
    assert given["PATH"] == "/bin"
    assert {given[name] for name in PROXIES} == {"http://task-42+a1:-@127.0.0.1:4711"}
    assert given["NODE_USE_ENV_PROXY"] == "1"
    assert given["OPENAI_BASE_URL"] == f"{P}/@task-42+a1/openai/v1"
    assert given["ANTHROPIC_BASE_URL"] == f"{P}/@task-42+a1/claude"
    assert (given["SEMEL_RUN"], given["SEMEL_ATTEMPT"]) == ("task-42", "a1")
    assert given["SEMEL_URL"] == f"{P}/@task-42+a1"
    assert "AWS_ENDPOINT_URL" not in given  # AWS signs host and path: the forward proxy is its way
    assert "SEMEL_TOKEN" not in given


def test_the_key_of_the_record_is_not_for_the_agent() -> None:
    """Whatever else it inherits."""
    variables, _ = made({"SEMEL_ENCRYPTION_KEY": "c2VjcmV0", "OTHER": "c2VjcmV0"})
    assert "SEMEL_ENCRYPTION_KEY" not in variables
    assert variables["OTHER"] == "c2VjcmV0"


def test_base_urls_are_only_for_apis_that_the_policies_know() -> None:
    """Others would lead nowhere; those calls go through the forward proxy."""
    assert "OPENAI_BASE_URL" not in made()[0]
    assert "OPENAI_BASE_URL" not in made({}, CLAUDE)[0]


def test_a_base_url_that_a_person_has_set_stays_and_is_told() -> None:
    """Without its value, which may hold a password."""
    given, (note,) = made({"OPENAI_BASE_URL": "https://user:secret@gateway.example/v1"}, OPENAI)
    assert given["OPENAI_BASE_URL"] == "https://user:secret@gateway.example/v1"
    assert "OPENAI_BASE_URL is set already and stays" in note
    assert "secret" not in note


def test_inside_another_run_the_inner_one_records() -> None:
    """What the outer one has set is not a person's."""
    outer, _ = made({}, OPENAI)
    inner, notes = made(outer, OPENAI, at=Addresses(proxy="http://127.0.0.1:5", run="inner", attempt="b"))
    assert notes == []
    assert inner["OPENAI_BASE_URL"] == "http://127.0.0.1:5/@inner+b/openai/v1"
    assert inner["SEMEL_RUN"] == "inner"


def test_loopback_is_left_alone_unless_a_policy_names_it() -> None:
    """Ports of the agent's own servers change at every start. semel itself is always reached directly."""
    for name in EXCEPTIONS:
        assert made()[0][name] == ",".join(["127.0.0.1:4711", *LOOPBACK])
        assert made({}, LOCAL)[0][name] == "127.0.0.1:4711"


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_a_persons_exceptions_are_kept_and_what_they_cost_is_told(name: str) -> None:
    """In either spelling, for both."""
    given, notes = made({name: "intern.example, api.openai.com"}, OPENAI, CLAUDE)
    assert {given[each] for each in EXCEPTIONS} == {
        "intern.example,api.openai.com,127.0.0.1:4711,localhost,127.0.0.1,::1"
    }
    assert notes == ["NO_PROXY keeps api.openai.com away from HTTP_PROXY: these calls are not recorded."]


def test_another_proxy_is_replaced_and_that_is_told() -> None:
    """Without its value, which may hold a password."""
    given, (note,) = made({"HTTPS_PROXY": "http://user:secret@proxy.example:3128"})
    assert urlsplit(given["HTTPS_PROXY"]).port == 4711
    assert "HTTPS_PROXY named another proxy" in note
    assert "secret" not in note


def test_a_token_is_in_the_addresses_and_in_its_variable() -> None:
    """Two sources that differ would be refused."""
    at = Addresses(proxy=P, run="r", attempt="a", token="t/k")
    given, _ = made({"SEMEL_TOKEN": "another"}, at=at)
    assert given["SEMEL_TOKEN"] == "t/k"
    assert given["SEMEL_URL"] == f"{P}/@r+a:t%2Fk"
    assert given["HTTP_PROXY"] == "http://r+a:t%2Fk@127.0.0.1:4711"


# ---- certificates ----


def file(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_files_hold_the_systems_roots_and_ours(tmp_path: Path) -> None:
    """Those that add to a client's roots hold ours alone."""
    roots = Path(file(tmp_path / "roots.pem", ONE))
    files, notes = trust_files(OURS, tmp_path / "state", {}, roots)
    assert notes == []
    assert set(files) == {*REPLACING, *ADDING}
    for name in REPLACING:
        assert Path(files[name]).read_bytes() == ONE.rstrip() + b"\n" + OURS
    for name in ADDING:
        assert Path(files[name]).read_bytes() == OURS
    assert stat.S_IMODE((tmp_path / "state" / "trust").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", [*REPLACING, *REPLACING_IF_SET, *ADDING])
def test_a_file_that_a_person_has_set_is_kept_in_ours(name: str, tmp_path: Path) -> None:
    """In the place of the system's, as it was."""
    given = {name: file(tmp_path / "mine.pem", OTHER)}
    files, notes = trust_files(OURS, tmp_path / "state", given, Path(file(tmp_path / "roots.pem", ONE)))
    assert notes == []
    assert Path(files[name]).read_bytes() == OTHER.rstrip() + b"\n" + OURS
    assert (tmp_path / "mine.pem").read_bytes() == OTHER


def test_a_client_that_looks_in_another_variable_finds_the_same_there(tmp_path: Path) -> None:
    """requests takes CURL_CA_BUNDLE when its own is not set: setting its own must not take that away."""
    given = {"CURL_CA_BUNDLE": file(tmp_path / "mine.pem", OTHER)}
    files, _ = trust_files(OURS, tmp_path / "state", given, Path(file(tmp_path / "roots.pem", ONE)))
    assert OTHER.rstrip() in Path(files["REQUESTS_CA_BUNDLE"]).read_bytes()
    assert OTHER.rstrip() not in Path(files["SSL_CERT_FILE"]).read_bytes()


def test_a_directory_of_certificates_becomes_one_file(tmp_path: Path) -> None:
    """Each certificate once, and nothing that is none."""
    folder = tmp_path / "certs"
    folder.mkdir()
    for name, content in (("1.pem", ONE), ("2.pem", OTHER), ("link.0", ONE), ("notes", b"none")):
        file(folder / name, content)
    files, _ = trust_files(OURS, tmp_path / "state", {"REQUESTS_CA_BUNDLE": str(folder)}, None)
    content = Path(files["REQUESTS_CA_BUNDLE"]).read_bytes()
    assert [content.count(one) for one in (ONE.strip(), OTHER.strip(), OURS.strip())] == [1, 1, 1]


def test_inside_another_run_ours_is_there_once(tmp_path: Path) -> None:
    """And the files are the same."""
    roots = Path(file(tmp_path / "roots.pem", ONE))
    outer, _ = trust_files(OURS, tmp_path / "state", {}, roots)
    inner, _ = trust_files(OURS, tmp_path / "state", outer, roots)
    assert inner == outer


def test_what_cannot_be_read_is_told_and_left_out(tmp_path: Path) -> None:
    """The system's roots take its place."""
    given = {"SSL_CERT_FILE": "/no/such/file", "AWS_CA_BUNDLE": file(tmp_path / "empty", b"")}
    files, notes = trust_files(OURS, tmp_path / "state", given, Path(file(tmp_path / "roots.pem", ONE)))
    assert ONE.rstrip() in Path(files["SSL_CERT_FILE"]).read_bytes()
    assert sorted(note.partition(":")[0] for note in notes) == ["AWS_CA_BUNDLE", "SSL_CERT_FILE"]


def test_the_systems_roots_are_not_what_a_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or Node's additions and a person's file would be taken for the system's."""
    before = system_roots()
    monkeypatch.setenv("SSL_CERT_FILE", file(tmp_path / "mine.pem", OTHER))
    assert system_roots() == before


# ---- hosts that no policy names ----


UNKNOWN, PRIVATE = {"SEMEL_FORWARD_UNKNOWN": "record"}, {"SEMEL_FORWARD_PRIVATE": "allow"}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (None, UNKNOWN | PRIVATE),
        ("reload: true\n", UNKNOWN | PRIVATE),
        ("forward: {}\n", UNKNOWN | PRIVATE),
        ("forward: {unknown: deny}\n", PRIVATE),
        ("forward: {private: deny}\n", UNKNOWN),
        ("forward: {unknown: deny, private: deny}\n", {}),
    ],
)
def test_unknown_hosts_are_recorded_unless_somebody_has_decided(
    settings: str | None, wanted: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's `deny` stands; so it does for private addresses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEMEL_FORWARD_UNKNOWN", raising=False)
    monkeypatch.delenv("SEMEL_FORWARD_PRIVATE", raising=False)
    if settings is not None:
        (tmp_path / "semel.yaml").write_text(settings)
    assert _for_a_developer(None) == wanted
    monkeypatch.setenv("SEMEL_FORWARD_UNKNOWN", "tunnel")
    monkeypatch.setenv("SEMEL_FORWARD_PRIVATE", "deny")
    assert _for_a_developer(None) == {}


# ---- a real command ----


def test_a_command_sees_all_of_it(tmp_path: Path) -> None:
    """With the authority of this state directory."""
    policy = tmp_path / "openai.yaml"
    policy.write_text("upstream: openai\nbase_url: https://api.openai.com/v1\n")
    state = tmp_path / "state"
    options = ["--policies", str(policy), "--id", "task"]
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = [json.loads(run_to_end(state, "python3", "-c", code, options=options).out) for _ in range(2)]
    ours = load_or_make(state).pem
    for given in seen:
        reference = re.escape(f"task+{given['SEMEL_ATTEMPT']}")
        assert re.fullmatch(rf"http://{reference}:-@127\.0\.0\.1:\d+", given["HTTPS_PROXY"])
        assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/@{reference}/openai", given["OPENAI_BASE_URL"])
        assert ours in Path(given["SSL_CERT_FILE"]).read_text()
        assert Path(given["NODE_EXTRA_CA_CERTS"]).read_text() == ours
        assert os.path.dirname(given["SSL_CERT_FILE"]) == str(state / "trust")  # noqa: PTH120
    assert seen[0]["SEMEL_ATTEMPT"] < seen[1]["SEMEL_ATTEMPT"]
    assert seen[0]["SSL_CERT_FILE"] == seen[1]["SSL_CERT_FILE"]
