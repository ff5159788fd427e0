"""`semel doctor`: finds what is not right, says what to do, changes nothing and sends nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from proxy import ca
from proxy.cli import examine, handshake
from proxy.cli.doctor import SCHEMA
from proxy.cli.examine import Finding, Verdict
from proxy.cli.first_token import first_tokens
from proxy.cli.sdks import SDKS, advice, version_of
from proxy.core.policy import Upstream
from proxy.settings import load_settings
from proxy.store.database import FILE_NAME
from proxy.store.embedded import EmbeddedStore
from tests.cli.command import Ran, semel
from tests.inside import semel as running
from tests.origin import CERTIFICATE


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, no proxies, no settings but a test's; semel listens where nobody does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.startswith("SEMEL_") or name.lower().endswith("_proxy") or name.endswith("_BASE_URL"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SEMEL_LISTEN", "127.0.0.1:0")


@contextmanager
def listening(*, tls: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """A server for one visitor; the list gets what was sent to it, once the visitor is gone."""
    said: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    def serve() -> None:
        try:
            connection, _ = server.accept()
            connection.settimeout(20)
            with connection if not tls else context.wrap_socket(connection, server_side=True) as visitor:
                said.append(visitor.recv(1000))
        except OSError:
            pass  # a visitor who breaks off has said nothing

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], said
        thread.join(20)


@contextmanager
def answering(pages: dict[str, tuple[int, bytes]]) -> Iterator[int]:
    """An HTTP server that has these pages."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = pages.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not into the test's output."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)


def upstream(port: int, *, scheme: str = "http", host: str = "127.0.0.1") -> Upstream:
    return Upstream(name="mail", scheme=scheme, host=host, port=port)


def doctor(capsys: pytest.CaptureFixture[str], *flags: object) -> tuple[int, dict[str, Finding], Any]:
    """Exit status, findings by what they are about (of several the last), the whole document."""
    ran = semel(capsys, "doctor", "--json", *flags)
    document = ran.document(SCHEMA)
    assert ran.err == ""
    found = {
        one["about"]: Finding(
            about=one["about"], verdict=Verdict(one["verdict"]), found=one["found"], do=one["do"]
        )
        for one in document["findings"]
    }
    counted = [one["verdict"] for one in document["findings"]]
    assert (document["failures"], document["warnings"]) == (counted.count("fail"), counted.count("warn"))
    return ran.status, found, document


def lines(ran: Ran) -> list[list[str]]:
    return [line.split() for line in ran.out.splitlines()]


# ---- all is well ----


def test_a_healthy_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0, everything ok, in JSON and as a table; nothing is made, nothing is sent."""
    for form in ("--json", None):
        with listening() as (port, said):
            Path("mail.yaml").write_text(f"upstream: mail\nbase_url: http://127.0.0.1:{port}\n")
            flags = ["--policies", "mail.yaml", *([form] if form else [])]
            ran = semel(capsys, "doctor", *flags)
        assert said == [b""]
        assert (ran.status, ran.err) == (0, "")
        if form:
            findings = ran.document(SCHEMA)["findings"]
            assert {one["verdict"] for one in findings} == {"ok"}
            assert [one["about"] for one in findings] == [
                "settings", "policies", "state directory", "disk space", "listen", "open files", "clock",
                "upstream mail",
            ]  # fmt: skip
        else:
            assert ["ok", "policies", "upstreams:", "1,", "rules:", "0"] in lines(ran)
            assert "nothing was sent" in ran.out
            assert ran.out.endswith("0 failures, 0 warnings\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mail.yaml"]


def test_what_fails_is_followed_by_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """In the table too; exit status 1."""
    ran = semel(capsys, "doctor", "--policies", "gone.yaml")
    assert (ran.status, ran.err) == (1, "")
    at = next(number for number, line in enumerate(lines(ran)) if line[:2] == ["fail", "policies"])
    assert lines(ran)[at + 1][:3] == ["->", "Correct", "it;"]
    assert ran.out.endswith("1 failure, 0 warnings\n")


def test_what_is_not_ok_must_say_what_to_do() -> None:
    """A finding that leaves its reader alone cannot be made."""
    for verdict, do in ((Verdict.FAIL, ""), (Verdict.WARN, ""), (Verdict.OK, "Nothing.")):
        with pytest.raises(ValueError, match="says what to do"):
            Finding(about="x", verdict=verdict, found="y", do=do)


# ---- settings and policies ----


def test_broken_settings_do_not_end_the_examination(capsys: pytest.CaptureFixture[str]) -> None:
    Path("semel.yaml").write_text("listn: 127.0.0.1:1\nlimits: {spol: 1MiB}\n")
    status, _, document = doctor(capsys)
    assert status == 1
    told = [one["found"] for one in document["findings"] if one["verdict"] == "fail"]
    assert [text.split(": ")[0] for text in told] == ["semel.yaml:1:1", "semel.yaml:2:10"]
    assert len(document["sdks"]) == len(SDKS)


def test_the_tokens_of_a_first_start_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them semel may listen to everybody; without them that is told as a failure."""
    monkeypatch.setenv("SEMEL_LISTEN", "0.0.0.0:0")
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["settings"].verdict) == (1, Verdict.FAIL)
    assert "SEMEL_LISTEN: '0.0.0.0:0' can be reached from other machines" in found["settings"].found
    first_tokens(Path("state"))
    status, found, document = doctor(capsys, "--state-dir", "state")
    assert (status, found["settings"].found) == (0, "2 tokens; clients send theirs in Semel-Token")
    assert document["sdks"][1]["set"].startswith("ANTHROPIC_BASE_URL=http://127.0.0.1:0/")
    (Path("state") / "tokens.json").write_text("{")
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["settings"].verdict) == (1, Verdict.FAIL)
    assert "is not what semel wrote there" in found["settings"].found


def test_broken_policies_are_told_with_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mail.yaml").write_text("upstream: mail\nbase_url: no\n")
    status, found, _ = doctor(capsys, "--policies", "mail.yaml")
    assert status == 1
    assert found["policies"].found.startswith("mail.yaml:2:11: ")
    assert "semel check" in found["policies"].do
    assert found["listen"].verdict is Verdict.OK


def test_without_upstreams_there_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a failure: semel starts, and a reload may bring some."""
    monkeypatch.setattr("proxy.policy_file.presets_directory", lambda: tmp_path / "none")
    (tmp_path / "none").mkdir()
    status, found, _ = doctor(capsys)
    assert (status, found["policies"].verdict) == (0, Verdict.WARN)
    assert "--policies PATH" in found["policies"].do


# ---- the state directory ----


@pytest.mark.parametrize("kind", ["a file", "below a file", "not to be written"])
def test_a_state_directory_that_cannot_be_used(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    state = {"a file": "file", "below a file": "file/state", "not to be written": "/proc/semel"}[kind]
    if kind == "not to be written" and os.geteuid() == 0:
        pytest.skip("root may write everywhere, or is told so")
    status, found, _ = doctor(capsys, "--state-dir", state)
    assert (status, found["state directory"].verdict) == (1, Verdict.FAIL)
    assert "--state-dir" in found["state directory"].do


def test_one_that_others_may_enter_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    Path("state").mkdir(mode=0o755)
    Path("state").chmod(0o755)
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["state directory"].verdict) == (0, Verdict.WARN)
    assert "mode 0755" in found["state directory"].found
    assert "chmod 700 state" in found["state directory"].do


async def test_living_processes_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """While one is there, and after it is gone."""
    store = await EmbeddedStore.open(Path("state"))
    try:
        _, found, _ = doctor(capsys, "--state-dir", "state")
        assert found["state directory"].found == "state, private, 1 living process"
        assert found["clock"].verdict is Verdict.OK
    finally:
        await store.close()
    _, found, _ = doctor(capsys, "--state-dir", "state")
    assert found["state directory"].found == "state, private, 0 living processes"
    assert "record" not in found


def test_a_record_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    Path("state").mkdir(mode=0o700)
    (Path("state") / FILE_NAME).write_text("something else entirely")
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["record"].verdict) == (1, Verdict.FAIL)
    (Path("state") / FILE_NAME).unlink()
    (Path("state") / FILE_NAME).mkdir()
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["state directory"].verdict) == (1, Verdict.FAIL)
    assert "cannot be read: Is a directory" in found["state directory"].found


def test_the_certificate_authority_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    ca.load_or_make(Path("state"))
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["certificate authority"].verdict) == (0, Verdict.OK)
    Path("state/ca/ca.key").chmod(0o644)
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["certificate authority"].verdict) == (1, Verdict.FAIL)
    assert "chmod go=" in found["certificate authority"].do


@pytest.mark.parametrize(
    ("free", "verdict"), [(1 << 40, Verdict.OK), (500 << 20, Verdict.WARN), (1 << 20, Verdict.FAIL)]
)
def test_space_on_the_disk(
    free: int, verdict: Verdict, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, free))
    status, found, _ = doctor(capsys)
    assert found["disk space"].verdict is verdict
    assert status == (1 if verdict is Verdict.FAIL else 0)
    assert found["disk space"].found.startswith(f"{free >> 20} MiB left")


def test_the_memory_store_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_STORE", "memory")
    status, found, _ = doctor(capsys)
    assert (status, found["store"].verdict) == (0, Verdict.WARN)
    assert "state directory" not in found


# ---- the machine ----


def test_too_few_open_files(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As `semel serve` says it."""
    said = "semel may open 64 files, and 2000 can need 4256. Raise the limit (ulimit -n 4256)."
    monkeypatch.setattr(examine, "allow_open_files", lambda _: said)
    status, found, _ = doctor(capsys)
    assert (status, found["open files"].verdict) == (0, Verdict.WARN)
    assert found["open files"].do.startswith("Raise the limit")


def test_a_clock_behind_its_own_record(capsys: pytest.CaptureFixture[str]) -> None:
    Path("state").mkdir(mode=0o700)
    ahead = time.time() + 7200
    os.utime("state", (ahead, ahead))
    status, found, _ = doctor(capsys, "--state-dir", "state")
    assert (status, found["clock"].verdict) == (1, Verdict.FAIL)
    assert "in the future" in found["clock"].found


@pytest.mark.parametrize(
    ("variables", "verdict"),
    [
        ({"HTTPS_PROXY": "http://run:token@127.0.0.1:8080"}, Verdict.WARN),
        ({"HTTPS_PROXY": "http://run:token@127.0.0.1:8080", "SSL_CERT_FILE": "bundle.pem"}, Verdict.OK),
        ({"HTTPS_PROXY": "http://run:token@127.0.0.1:8080", "SSL_CERT_FILE": "others.pem"}, Verdict.WARN),
        ({"http_proxy": "127.0.0.1:8080"}, Verdict.OK),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, Verdict.WARN),
        ({"HTTP_PROXY": "http://proxy.example:3128", "NO_PROXY": "127.0.0.1"}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, None),
        ({}, None),
    ],
)
def test_proxy_variables(
    variables: dict[str, str], verdict: Verdict | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At semel they need trust for HTTPS; at another proxy they keep clients from finding semel."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Path("ca.pem").write_text("semel's\n")
    Path("bundle.pem").write_text("others\nsemel's\n")
    Path("others.pem").write_text("others\n")
    found = list(examine.proxy_variables("http://127.0.0.1:8080", Path("ca.pem")))
    assert [one.verdict for one in found] == ([verdict] if verdict else [])
    assert "token" not in str(found)


# ---- the listener ----


def test_an_address_that_something_else_uses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering({}) as port:
        monkeypatch.setenv("SEMEL_LISTEN", f"127.0.0.1:{port}")
        status, found, _ = doctor(capsys)
    assert (status, found["proxy"].verdict) == (1, Verdict.FAIL)
    assert "is not semel" in found["proxy"].found
    assert "--listen" in found["proxy"].do


def test_an_address_that_this_machine_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings({}, {"SEMEL_LISTEN": "127.0.0.1:1"})
    monkeypatch.setattr(socket, "create_server", _refuse(OSError(99, "Cannot assign requested address")))
    (found,) = examine.listener(settings, None)
    assert found.verdict is Verdict.FAIL
    assert found.found == "127.0.0.1:1: Cannot assign requested address"


def _refuse(error: OSError) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


async def test_a_semel_that_runs_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the configured address, and by --proxy."""
    async with running(tmp_path, "upstream: mail\nbase_url: http://127.0.0.1:1\n") as app:
        url = f"http://127.0.0.1:{app.address.port}"
        _, found, document = await asyncio.to_thread(doctor, capsys, "--proxy", f"{url}/")
        assert found["proxy"].found == f"semel on {url} lives and is ready"
        assert document["sdks"][0]["set"] == f"OPENAI_BASE_URL={url}/openai/v1"
        assert document["findings"][0]["about"] == "files"
        assert found["files"].found.startswith(f"these are the files here: {url} is only asked")
        monkeypatch.setenv("SEMEL_LISTEN", f"127.0.0.1:{app.address.port}")
        _, found, _ = await asyncio.to_thread(doctor, capsys)
        assert found["proxy"].verdict is Verdict.OK
        assert "files" not in found


def test_a_semel_that_is_not_ready(capsys: pytest.CaptureFixture[str]) -> None:
    with answering({"/healthz": (200, b"ok\n"), "/readyz": (503, b"{}")}) as port:
        status, found, _ = doctor(capsys, "--proxy", f"http://127.0.0.1:{port}")
    assert (status, found["proxy"].verdict) == (1, Verdict.FAIL)
    assert "is not ready (/readyz says 503)" in found["proxy"].found


def test_a_proxy_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    status, found, _ = doctor(capsys, "--proxy", f"http://127.0.0.1:{port}")
    assert (status, found["proxy"].verdict) == (1, Verdict.FAIL)
    assert "does not answer: Connection refused" in found["proxy"].found
    assert "`semel serve`" in found["proxy"].do


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "http://x:port", "http://[::1"])
def test_what_is_no_proxys_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = semel(capsys, "doctor", "--proxy", url)
    assert (ran.status, ran.out) == (2, "")
    assert "write it as http://HOST:PORT" in ran.err


# ---- the upstreams ----


def test_a_handshake_is_made_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with listening(tls=True) as (port, said):
        found = handshake.reach(upstream(port, scheme="https", host="localhost"), 20)
    assert said == [b""]
    assert found.verdict is Verdict.OK
    assert found.found.startswith(f"connected to localhost:{port} with TLSv1.")


def test_a_certificate_that_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with listening(tls=True) as (port, said):
        found = handshake.reach(upstream(port, scheme="https", host="localhost"), 20)
    assert (found.verdict, said) == (Verdict.FAIL, [])
    assert "is not accepted: self-signed certificate" in found.found
    assert "SSL_CERT_FILE" in found.do


def test_a_certificate_that_lapses_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setattr(handshake, "SOON", 100 * 365 * 86400.0)
    with listening(tls=True) as (port, _):
        found = handshake.reach(upstream(port, scheme="https", host="localhost"), 20)
    assert found.verdict is Verdict.WARN
    assert "its certificate lapses in" in found.found


def test_a_server_that_does_not_speak_tls() -> None:
    with answering({}) as port:
        found = handshake.reach(upstream(port, scheme="https"), 20)
    assert found.verdict is Verdict.FAIL
    assert f"the TLS handshake with 127.0.0.1:{port} failed" in found.found
    assert "is it http:// there" in found.do


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = handshake.reach(upstream(port), 20)
    assert found.verdict is Verdict.FAIL
    assert found.found == f"no connection to 127.0.0.1:{port}: Connection refused"
    assert "HTTPS_PROXY" in found.do


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = _refuse(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    found = handshake.reach(upstream(443, host="nowhere.invalid"), 20)
    assert found.verdict is Verdict.FAIL
    assert found.found == "the name nowhere.invalid cannot be resolved: Name or service not known"


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    """It accepts, and the handshake never comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = handshake.reach(upstream(silent.getsockname()[1], scheme="https"), 0.05)
    assert found.verdict is Verdict.FAIL
    assert "did not answer within 0.05 s" in found.found


def test_a_name_server_that_says_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are reported all the same."""
    answered, resolve = threading.Event(), socket.getaddrinfo

    def slow(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "slow.invalid":
            answered.wait(20)
        return resolve("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        with listening() as (port, _):
            slow_one = Upstream(name="slow", scheme="http", host="slow.invalid", port=port)
            found = handshake.reach_all([slow_one, upstream(port)], 0.5)
    finally:
        answered.set()
    assert [(one.about, one.verdict) for one in found] == [
        ("upstream slow", Verdict.FAIL),
        ("upstream mail", Verdict.OK),
    ]


# ---- the SDKs ----


def test_every_sdk_gets_its_line_with_the_url_filled_in() -> None:
    """By the upstream whose address is the SDK's, whatever that upstream is called."""
    openai = Upstream(name="gpt", scheme="https", host="api.openai.com", port=443)
    stripe = Upstream(name="pay", scheme="https", host="api.stripe.com", port=443)
    told = {one.sdk: one for one in advice("http://p:1", [openai, stripe], {}, lambda _: "1.0")}
    assert set(told) == {
        "openai", "anthropic", "stripe", "boto3", "resend", "twilio", "sendgrid", "httpx", "requests",
        "aiohttp", "node",
    }  # fmt: skip
    assert (told["openai"].upstream, told["openai"].set) == ("gpt", "OPENAI_BASE_URL=http://p:1/gpt/v1")
    assert told["openai"].note == ""
    assert told["stripe"].set == 'StripeClient(key, base_addresses={"api": "http://p:1/pay"})'
    assert told["anthropic"].upstream is None
    assert told["anthropic"].note == "no upstream is configured for https://api.anthropic.com yet"
    assert "HTTPS_PROXY is the way" in told["boto3"].note
    assert all("http://p:1/" in one.set for one in told.values())


def test_sdks_of_apis_that_are_not_configured_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Not clients for any API; one line says how many; --all and --json have them."""
    with listening() as (port, _):
        Path("pay.yaml").write_text(f"upstream: pay\nbase_url: http://127.0.0.1:{port}\n")
        ran = semel(capsys, "doctor", "--policies", "pay.yaml")
    shown = {line[0] for line in lines(ran) if line}
    of_an_api = {sdk.name for sdk in SDKS if sdk.host}
    assert shown & of_an_api == set()
    assert {sdk.name for sdk in SDKS} - of_an_api <= shown
    assert (
        f"Left out, since no upstream is configured for their APIs: {len(of_an_api)} (--all shows" in ran.out
    )
    everything = semel(capsys, "doctor", "--all").out
    assert of_an_api <= {line.split()[0] for line in everything.splitlines() if line}
    assert "Left out" not in everything
    openai, *_ = advice("http://p:1", [Upstream(name="gpt", scheme="https", host="api.openai.com", port=443)])
    assert (openai.host, openai.is_of_use) == ("api.openai.com", True)


def test_one_token_is_one_token(capsys: pytest.CaptureFixture[str]) -> None:
    Path("semel.yaml").write_text(
        f"auth: {{tokens: [{{sha256: '{'0' * 64}', tenant: acme, role: agent}}]}}\n"
    )
    _, found, _ = doctor(capsys)
    assert found["settings"].found == "1 token; clients send theirs in Semel-Token"


def test_a_path_in_the_base_url_is_not_said_twice() -> None:
    versioned = Upstream(name="gpt", scheme="https", host="api.openai.com", port=443, base_path="/v1")
    openai, *_ = advice("http://p:1", [versioned], {}, lambda _: None)
    assert openai.set == "OPENAI_BASE_URL=http://p:1/gpt"
    assert openai.installed is None


def test_a_variable_that_points_elsewhere_is_told_but_not_shown() -> None:
    """It may hold a password. One that is right is not mentioned."""
    gpt = Upstream(name="gpt", scheme="https", host="api.openai.com", port=443)
    openai, *_ = advice("http://p:1", [gpt], {"OPENAI_BASE_URL": "http://me:secret@x"}, lambda _: None)
    assert openai.note == "OPENAI_BASE_URL is set to something else now"
    openai, *_ = advice("http://p:1", [gpt], {"OPENAI_BASE_URL": "http://p:1/gpt/v1/"}, lambda _: None)
    assert openai.note == ""


def test_what_is_installed_is_seen() -> None:
    assert version_of("pytest") == pytest.__version__
    assert version_of("no-such-distribution") is None
    assert version_of("node") == shutil.which("node")


def test_the_test_certificate_is_not_about_to_lapse() -> None:
    """Or the tests above would say warn for another reason."""
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    (certificate,) = context.get_ca_certs()
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
    assert until - datetime.now(UTC) > timedelta(days=30)
