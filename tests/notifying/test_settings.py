"""`notify` in semel.yaml: mistakes in their place, and nothing of the address but its host is ever shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.notifying.schema import Kind
from proxy.policy_file import SettingsMistakes
from proxy.settings import load_settings
from tests.cli.command import semel as run_semel
from tests.notifying.scene import SECRET

ADDRESS = "https://user:geheim@hooks.example:8443/geheim?key=geheim"


def notify_of(tmp_path: Path, text: str, **environ: str) -> Any:
    file = tmp_path / "semel.yaml"
    file.write_text(text)
    return load_settings({}, {"HOME": str(tmp_path), **environ}, file).notify


def test_it_is_read_whole_and_shown_in_part(tmp_path: Path) -> None:
    """User, path and query go over the wire, and into no text."""
    found = notify_of(tmp_path, f"notify: {{url: '{ADDRESS}', events: [in_doubt], timeout: 3s}}\n")
    url = found.url
    assert (url.scheme, url.host, url.port) == ("https", "hooks.example", 8443)
    assert (url.target, url.user) == ("/geheim?key=geheim", "user:geheim")
    assert (found.events, found.timeout, found.give_up_after) == ((Kind.IN_DOUBT,), 3.0, 86400.0)
    assert str(url) == "https://hooks.example:8443"
    assert "geheim" not in f"{found} {found!r} {url}"


def test_by_default_nobody_is_told_and_then_of_everything(tmp_path: Path) -> None:
    """null, and a mapping with only an address."""
    assert notify_of(tmp_path, "notify: null\n") is None
    found = notify_of(tmp_path, "notify: {url: http://h.example, public_url: null}\n")
    assert found.events == tuple(Kind)
    assert (found.url.target, found.url.port, found.secret_env) == ("/", 80, "SEMEL_NOTIFY_SECRET")


def test_variables_set_it_too(tmp_path: Path) -> None:
    """As any other setting; the secret's own variable is no setting."""
    environ = {"SEMEL_NOTIFY_URL": "http://[::1]:9/x", "SEMEL_NOTIFY_SECRET": SECRET}
    assert str(notify_of(tmp_path, "", **environ).url) == "http://[::1]:9"


@pytest.mark.parametrize(
    ("line", "place", "words"),
    [
        ("{}", "1:9", "'url' is missing"),
        ("{url: 'ftp://geheim.example'}", "1:15", "does not start with http:// or https://"),
        ("{url: 'https://h.example/#geheim'}", "1:15", "has a #"),
        ("{url: 'https://u:geheim@/x'}", "1:15", "has no host"),
        ("{url: 'https://h.example/gehe im'}", "1:15", "no blanks"),
        ("{url: https://h.example, event: []}", "1:34", "unknown key 'event': did you mean 'events'?"),
        ("{url: https://h.example, events: [in_dout]}", "1:43", "did you mean 'in_doubt'?"),
        ("{url: https://h.example, timeout: 10}", "1:43", "10 has no unit"),
        ("{url: https://h.example, secret_env: a-b}", "1:46", "the name of an environment variable"),
        ("{url: https://h.example, public_url: h.example}", "1:46", "does not start with http"),
        ("https://h.example", "1:9", "'notify' is a mapping"),
    ],
)
def test_a_mistake_is_told_in_its_place(tmp_path: Path, line: str, place: str, words: str) -> None:
    """File, line and column; what to do; and no secret."""
    with pytest.raises(SettingsMistakes) as caught:
        notify_of(tmp_path, f"notify: {line}\n")
    (mistake,) = str(caught.value).splitlines()
    assert mistake.startswith(f"{tmp_path}/semel.yaml:{place}: ")
    assert words in mistake
    assert "geheim" not in mistake


def test_check_warns_where_there_is_no_secret_and_refuses_a_wrong_one(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are checked where no secrets are."""
    file = tmp_path / "semel.yaml"
    file.write_text("notify: {url: https://h.example}\n")
    assert run_semel(capsys, "check", "--config", file).err == ""
    monkeypatch.delenv("SEMEL_NOTIFY_SECRET")
    ran = run_semel(capsys, "check", "--config", file)
    assert ran.status == 0
    assert "warning: SEMEL_NOTIFY_SECRET: notify: the variable SEMEL_NOTIFY_SECRET is not set" in ran.err
    monkeypatch.setenv("SEMEL_NOTIFY_SECRET", "geheim")
    ran = run_semel(capsys, "check", "--config", file)
    assert (ran.status, "too short to sign with" in ran.err, "geheim" in ran.err) == (2, True, False)
