"""`inject`: semel holds the credential. It goes to the upstream that it is for, and nowhere else."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.app import App
from proxy.core.policy import Upstream
from proxy.core.recipe import pinned, recipe_of
from proxy.front.naming import ToName
from proxy.policy_file import PolicyMistakes, load_policies, recipe_changes
from proxy.policy_file.injected import read_value
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.http.numbered import problem
from tests.http.test_hot_reload import told
from tests.inside import Answer, raw_call, read_answer, request_bytes, semel
from tests.origin import OK, READ_ALL, Close, Origin, Script, Seen, answer
from tests.process import SemelProcess

SECRET = "Bearer wohl-verwahrt-4711"
INJECT = "inject: {header: Authorization, value_env: MAIL_KEY}\n"
NUMBERED = [(*READ_ALL, answer(200, b"answer %d" % number)) for number in range(1, 30)]


async def call(
    port: int, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> Answer:
    """By the name that a client on this machine uses."""
    return await raw_call(port, request_bytes(method, target, headers, body, host=f"127.0.0.1:{port}"))


@dataclass(slots=True)
class There:
    app: App
    origin: Origin
    log: io.StringIO

    @property
    def port(self) -> int:
        return self.app.address.port

    async def post(self, body: bytes = b"{}", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await call(self.port, "POST", "/up/v1/send", named, body)

    async def look(self, page: str) -> Answer:
        return await call(self.port, "GET", page)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_KEY", SECRET)


@asynccontextmanager
async def place(tmp_path: Path, *scripts: Script, more: str = INJECT, base: str = "") -> AsyncIterator[There]:
    log = io.StringIO()
    tmp_path.mkdir(exist_ok=True)
    async with Origin(*(scripts or NUMBERED)) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}{base}\n{more}"
        async with semel(tmp_path, policy, log=log) as app:
            yield There(app, origin, log)


def sent(seen: Seen, name: str = "authorization") -> list[str]:
    return [value.decode() for key, value in seen.headers if key.decode().lower() == name]


# ---- on the wire ----


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_the_credential_goes_upstream_whatever_the_agent_sends(tmp_path: Path, method: str) -> None:
    """None, one, two of them, in another spelling, named by Connection: upstream there is ours alone."""
    variants = [
        [],
        ["Authorization: Bearer dummy"],
        ["AUTHORIZATION: one", "authorization: two"],
        ["Authorization: x", "Connection: keep-alive, authorization"],
    ]
    async with place(tmp_path) as there:
        for number, lines in enumerate(variants):
            head = [f"{method} /up/v1/{number} HTTP/1.1", "Host: localhost", "Content-Length: 2", *lines]
            got = await raw_call(there.port, "\r\n".join(head).encode() + b"\r\n\r\n{}")
            assert got.status == 200, lines
        assert [sent(seen) for seen in there.origin.requests] == [[SECRET]] * 4


async def test_header_names_are_sent_as_the_policy_writes_them(tmp_path: Path) -> None:
    """Some servers take them by the letter."""
    async with place(tmp_path, more="inject: {header: X-API-Key, value_env: MAIL_KEY}\n") as there:
        await there.post(x_api_key="dummy", Authorization="Bearer own")
        (seen,) = there.origin.requests
        assert (b"X-API-Key", SECRET.encode()) in seen.headers
        assert sent(seen, "x-api-key") == [SECRET]
        assert sent(seen) == ["Bearer own"]


async def test_a_passed_call_has_it_too(tmp_path: Path) -> None:
    """`mode: pass`, and a GET outside runs, which no rule names."""
    rules = "rules: [{name: up, match: {path: /v1/up}, mode: pass}]\n"
    async with place(tmp_path, more=INJECT + rules) as there:
        for method, path in (("POST", "/up/v1/up"), ("GET", "/up/v1/other")):
            got = await call(there.port, method, path, {"Authorization": "dummy"})
            assert got.semel == "passed"
        assert [sent(seen) for seen in there.origin.requests] == [[SECRET]] * 2


async def test_a_kept_connection_and_a_remembered_head_carry_it_again(tmp_path: Path) -> None:
    """Many calls over one pooled connection; each of them has the credential once."""
    async with place(tmp_path) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        for number in range(5):
            body = b'{"n": %d}' % number
            writer.write(
                request_bytes("POST", "/up/v1/send", {"Authorization": "dummy"}, body, host="[::1]:1")
            )
            assert (await read_answer(reader)).semel == "executed"
        writer.close()
        assert there.origin.connections == 1
        assert [sent(seen) for seen in there.origin.requests] == [[SECRET]] * 5


async def test_two_upstreams_at_one_place_do_not_share_it(tmp_path: Path) -> None:
    """The head of the one is not remembered for the other, and who has no `inject` gets none."""
    directory = tmp_path / "policies"
    directory.mkdir()
    async with Origin(*NUMBERED) as origin:
        base = f"base_url: http://127.0.0.1:{origin.port}\n"
        (directory / "plain.yaml").write_text(f"upstream: plain\n{base}")
        async with semel(tmp_path, f"upstream: up\n{base}{INJECT}") as app:
            for name in ("up", "plain", "up", "plain"):
                await call(app.address.port, "GET", f"/{name}/v1/x", {"Accept": "text/plain"})
    assert [sent(seen) for seen in origin.requests] == [[SECRET], [], [SECRET], []]


async def test_a_redirect_is_handed_on_and_not_followed(tmp_path: Path) -> None:
    """What an upstream names in Location never gets the credential."""
    async with Origin() as elsewhere:
        location = b"http://127.0.0.1:%d/steal" % elsewhere.port
        async with place(tmp_path, (*READ_ALL, answer(302, b"", (b"Location", location)))) as there:
            got = await there.post()
            assert (got.status, got.get("Location")) == (302, location.decode())
        assert elsewhere.connections == 0


async def test_trace_would_show_it_to_the_agent(tmp_path: Path) -> None:
    """So it is denied, and nothing is sent."""
    async with place(tmp_path) as there:
        got = await call(there.port, "TRACE", "/up/v1/send")
        assert (got.status, problem(got)) == (403, "denied")
        assert there.origin.started == 0


PAGES = {
    "another site's form": {"Origin": "https://evil.example", "Content-Type": "text/plain"},
    "another site's picture": {"Sec-Fetch-Site": "cross-site"},
    "another port of this machine": {"Origin": "http://127.0.0.1:1"},
    "a file": {"Origin": "null"},
    "a rebound name": {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"},
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
async def test_a_page_of_another_site_does_not_use_it(tmp_path: Path, page: str, method: str) -> None:
    """A browser on this machine reaches semel for every page that it shows. Nothing is sent for them."""
    headers = dict(PAGES[page])
    async with place(tmp_path) as there:
        host = headers.pop("Host", f"127.0.0.1:{there.port}")
        got = await raw_call(there.port, request_bytes(method, "/up/v1/send", headers, host=host))
        assert (got.status, problem(got)) in ((403, "cross-site"), (421, "misdirected"))
        assert there.origin.started == 0
    async with place(tmp_path / "plain", more="") as there:  # nothing is added there: nothing is lent
        got = await raw_call(there.port, request_bytes(method, "/up/v1/send", headers, host=host))
        assert got.status == 200


async def test_with_tokens_a_page_that_has_one_may(tmp_path: Path) -> None:
    """A token is what pages of other sites do not have; who has it is let in, from wherever."""
    agent = Token(sha256=digest("semel_agent"), tenant="acme", role=Role.AGENT)
    headers = {"Origin": "https://app.example", "Semel-Token": "semel_agent"}
    async with Origin(*NUMBERED) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{INJECT}"
        async with semel(tmp_path, policy, tokens=[agent]) as app:
            assert (await call(app.address.port, "POST", "/up/v1/send", headers, b"{}")).status == 200
            del headers["Semel-Token"]
            assert (await call(app.address.port, "POST", "/up/v1/send", headers, b"[]")).status == 401
        assert origin.started == 1


# ---- who asks ----


async def test_placeholders_do_not_make_two_callers(tmp_path: Path) -> None:
    """Two agents with different dummy keys make the same call; without `inject` they make two."""
    async with place(tmp_path) as there:
        told_each = [(await there.post(Authorization=key)).semel for key in ("one", "two")]
        told_each.append((await there.post()).semel)
        assert told_each == ["executed", "replayed", "replayed"]
    async with place(tmp_path / "other", more="") as there:
        assert [(await there.post(Authorization=key)).semel for key in ("one", "two")] == ["executed"] * 2


async def test_other_credentials_of_the_agent_still_tell_callers_apart(tmp_path: Path) -> None:
    """Only the replaced header is out of the name: a cookie that is sent is still somebody's."""
    async with place(tmp_path) as there:
        told_each = [(await there.post(Cookie=f"user={name}")).semel for name in ("ann", "bob", "ann")]
        assert told_each == ["executed", "executed", "replayed"]


async def test_a_new_key_renames_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key was rotated between two starts: what was done under the old one is not done again."""
    async with SemelTwice(tmp_path) as twice:
        assert (await twice.post()).semel == "executed"
        monkeypatch.setenv("MAIL_KEY", "Bearer the-new-one")
        await twice.again()
        assert (await twice.post()).semel == "replayed"
        assert (await twice.post(b'{"other": 1}')).semel == "executed"
        assert [sent(seen) for seen in twice.origin.requests] == [[SECRET], ["Bearer the-new-one"]]


class SemelTwice:
    """One origin and one state directory; a process that is started again with another environment."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.origin = Origin(*NUMBERED)
        self.process: SemelProcess | None = None

    async def __aenter__(self) -> SemelTwice:
        await self.origin.__aenter__()
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{self.origin.port}\n{INJECT}"
        (self.tmp_path / "up.yaml").write_text(policy)
        await self.again()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process is not None:
            await self.process.kill()
        await self.origin.__aexit__(None, None, None)

    async def again(self) -> None:
        if self.process is not None:
            await self.process.kill()
        self.process = await SemelProcess(self.tmp_path / "state", self.tmp_path / "up.yaml").__aenter__()

    async def post(self, body: bytes = b"{}") -> Answer:
        assert self.process is not None
        return await call(self.process.port, "POST", "/up/v1/send", {}, body)


def upstream_of(tmp_path: Path, more: str, rules: str = "[]") -> Upstream:
    file = tmp_path / "up.yaml"
    file.write_text(f"upstream: up\nbase_url: http://up.example\n{more}rules: {rules}\n")
    return load_policies([file], environ={"MAIL_KEY": SECRET}).upstreams["up"]


def test_a_run_keeps_its_names_when_inject_comes_or_goes(tmp_path: Path) -> None:
    """The recipe says whether the header counted; what is sent follows the policy as it is now."""
    before, after = upstream_of(tmp_path, ""), upstream_of(tmp_path, INJECT)
    for then, now, replaced in ((before, after, ""), (after, before, "authorization")):
        as_then, _ = pinned(now, recipe_of(then))
        assert (as_then.replaced, as_then.inject) == (replaced, now.inject)
        assert "authorization" in as_then.secrets
    headers = ((b"Authorization", b"x"), (b"Accept", b"*/*"))
    asked = ToName(pinned(before, recipe_of(after))[0], None, "GET", headers, None, 1, "")  # type: ignore[arg-type]
    assert asked.counted == headers[1:]
    assert SECRET not in recipe_of(after)


def test_a_reload_that_brings_inject_says_that_it_renames(tmp_path: Path) -> None:
    """Outside runs the caller was part of the name."""
    rules = "[{name: send, match: {path: /send}}]"
    before, after = (upstream_of(tmp_path, more, rules) for more in ("", INJECT))
    sets = [type(load_policies([]))({"up": one}) for one in (before, after)]
    assert recipe_changes(*sets) == [("up", "send")]
    assert recipe_changes(sets[1], sets[1]) == []


# ---- where it never is ----


@pytest.mark.parametrize("header", ["Authorization", "X-Plain-Name"])
async def test_nothing_that_semel_keeps_or_says_has_it(tmp_path: Path, header: str) -> None:
    """Answers, doubt, refusals, metrics, the API, the log, and every file of the state directory."""
    inject = f"inject: {{header: {header}, value_env: MAIL_KEY}}\n"
    scripts: list[Script] = [OK, (*READ_ALL, Close()), (*READ_ALL, answer(500, b"no")), OK]
    said = b""
    async with place(tmp_path, *scripts, more=inject) as there:
        for body in (b"{}", b"[1]", b"[2]"):
            got = await there.post(body, **{header.replace("-", "_"): "placeholder-of-the-agent"})
            said += repr(got).encode()
        run = await call(there.port, "POST", "/@run+1/up/v1/send", {header: "placeholder-of-the-agent"}, b"7")
        assert run.semel == "executed"
        listed = await there.look("/_semel/calls")
        said += repr(run).encode() + listed.body
        calls = json.loads(listed.body)["calls"]
        assert sorted(one["state"] for one in calls) == ["done", "done", "in_doubt", "in_doubt"]
        for one in calls:
            shown = await there.look(f"/_semel/calls/{one['id']}")
            assert shown.status == 200
            said += repr(shown).encode()
        for page in ("/metrics", "/_semel/stats", "/_semel/runs", "/_semel/runs/run/export"):
            shown = await there.look(page)
            assert shown.status == 200, page
            said += repr(shown).encode()
        assert all(sent(seen, header.lower()) == [SECRET] for seen in there.origin.requests)
        said += there.log.getvalue().encode() + repr(there.app.watch.current).encode()
    files = [file for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert files
    said += b"".join(file.read_bytes() for file in files)
    for word in (SECRET, "wohl-verwahrt", "placeholder-of-the-agent"):
        assert word.encode() not in said, word


def test_policies_that_were_read_to_be_shown_send_nothing(tmp_path: Path) -> None:
    """Without the environment there is no value, and a call without it is never made."""
    file = tmp_path / "up.yaml"
    file.write_text(f"upstream: up\nbase_url: http://up.example\n{INJECT}")
    inject = load_policies([file]).upstreams["up"].inject
    assert inject is not None
    with pytest.raises(RuntimeError, match="MAIL_KEY was not read"):
        _ = inject.pair


# ---- mistakes ----


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "the variable MAIL_KEY is not set"),
        ("", "the variable MAIL_KEY is empty"),
        (" \t", "the variable MAIL_KEY is empty"),
        ("geheim\n", "has a line break"),
        ("geheim\r\nX-Evil: 1", "has a line break"),
        ("ge\0heim", "has a control character"),
        ("ge\x7fheim", "has a control character"),
        ("geheim\u20ac", "not in Latin-1"),
        ("geheim\udc80", "not in Latin-1"),
        (" geheim", "begins or ends with white space"),
        ("geheim" * 4000, "too long for a header"),
    ],
)
def test_a_value_that_cannot_be_sent_is_a_mistake_in_its_place(
    tmp_path: Path, value: str | None, words: str
) -> None:
    """At the variable's name, with what to do, and without any of the value."""
    file = tmp_path / "up.yaml"
    file.write_text(f"upstream: up\nbase_url: http://up.example\n{INJECT}")
    environ = {} if value is None else {"MAIL_KEY": value}
    with pytest.raises(PolicyMistakes) as caught:
        load_policies([file], environ=environ)
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.col) == (3, 44)
    assert words in mistake.message
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("value", ["Bearer x", "a\tb", "caf\xe9", "\xff!"])
def test_what_a_header_can_hold_is_taken_as_it_is(value: str) -> None:
    """Byte by byte in Latin-1."""
    assert read_value("KEY", {"KEY": value}) == value.encode("latin-1")


def test_a_preset_that_injects_is_told_of_where_it_is_extended(tmp_path: Path) -> None:
    """The file that extends it is the one that a person can change."""
    presets, own = tmp_path / "presets", tmp_path / "own.yaml"
    presets.mkdir()
    (presets / "base.yaml").write_text(f"upstream: base\nbase_url: http://up.example\n{INJECT}")
    own.write_text("upstream: own\nextends: base\n")
    with pytest.raises(PolicyMistakes) as caught:
        load_policies([own], presets=presets, environ={})
    assert str(caught.value).startswith(f"{own}:2:10: the variable MAIL_KEY is not set")


async def test_semel_does_not_start_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration error, before anything is served."""
    monkeypatch.delenv("MAIL_KEY")
    with pytest.raises(PolicyMistakes, match=r"test\.yaml:3:44: the variable MAIL_KEY is not set"):
        async with place(tmp_path):
            raise AssertionError("it started")


async def test_a_reload_without_the_variable_keeps_the_old_policies(tmp_path: Path) -> None:
    """The environment of a process does not change: a new variable needs a new start, and it is said."""
    file = tmp_path / "up.yaml"
    async with Origin(*NUMBERED) as origin:
        good = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n{INJECT}"
        file.write_text(good)
        async with SemelProcess(tmp_path / "state", file, env={"SEMEL_RELOAD": "false"}) as process:
            file.write_text(good.replace("MAIL_KEY", "NO_SUCH_KEY"))
            process.send(signal.SIGHUP)
            kept = await told(process, "policies-kept")
            assert "the variable NO_SUCH_KEY is not set" in str(kept["detail"])
            assert (await call(process.port, "POST", "/up/v1/send", {}, b"{}")).semel == "executed"
            assert SECRET not in process.log
        assert sent(origin.requests[0]) == [SECRET]
