"""`semel calls`: the record seen and decided, over the store beside a running proxy, and through it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shlex
import socket
import sys
from pathlib import Path

import jsonschema
import pytest

from proxy.admin.schemas import document
from proxy.cli import calls_text, main
from proxy.cli.calls import SCHEMA
from proxy.cli.output import print_json
from proxy.cli.reach import login
from proxy.errors import StoreUnavailable
from proxy.settings import Role, Token
from proxy.store.embedded import EmbeddedStore
from proxy.tokens import digest
from tests.admin.scene import CHARGED, FINE, LOST, Scene, damage, scene
from tests.cli.command import Ran, semel
from tests.origin import READ_ALL, answer

UNKNOWN = "0" * 32
WAYS = ("store", "proxy")


@pytest.fixture(autouse=True)
def _away_from_any_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


class Desk:
    """`semel calls …` on a scene, one way or the other, while its proxy runs."""

    def __init__(self, world: Scene, capsys: pytest.CaptureFixture[str], state: Path, way: str) -> None:
        self._capsys = capsys
        self.world = world
        self.place = ["--state-dir", str(state)] if way == "store" else ["--proxy", world.url]

    async def __call__(self, *arguments: object) -> Ran:
        """In a thread: the proxy lives in this one's loop."""
        return await asyncio.to_thread(semel, self._capsys, "calls", *arguments, *self.place)


def desk_of(world: Scene, capsys: pytest.CaptureFixture[str], tmp_path: Path, way: str) -> Desk:
    return Desk(world, capsys, tmp_path / "state", way)


@pytest.mark.parametrize("way", WAYS)
async def test_a_doubt_is_listed_shown_resolved_with_a_body_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """The operator's whole way, with the very command that `show` prints."""
    async with scene(tmp_path, LOST, FINE) as world:
        desk = desk_of(world, capsys, tmp_path, way)
        call_id = await world.charged(7)
        listed = await desk("list", "--in", "in_doubt")
        assert listed.status == 0
        assert re.search(rf"{call_id}  in_doubt  pay .*charge_card.*usd.*7", listed.out)
        shown = await desk("show", call_id)
        assert "In doubt since" in shown.out
        assert "Identical calls are held; nothing is sent again" in shown.out
        executed, not_executed = re.findall(r"(?m)^ +semel (calls resolve .*)$", shown.out)
        assert "--as not-executed" in not_executed
        (tmp_path / "answer.json").write_text('{"charge": "found"}')
        words = shlex.split(executed.replace("FILE", "answer.json").replace("…", "charge exists"))
        settled = await asyncio.to_thread(semel, capsys, *words)
        assert settled.status == 0
        assert re.search(r"(?m)^state: +done$", settled.out)
        again = await world.charge(7)
        assert (again.semel, again.status, again.body) == ("replayed", 200, b'{"charge": "found"}')
        assert again.get("Content-Type") == "application/json"
        assert world.origin.started == 1
        actor = "api" if way == "proxy" else login()
        assert f"operator:{actor}" in (await desk("show", call_id)).out


@pytest.mark.parametrize("way", WAYS)
async def test_not_executed_lets_the_next_identical_call_be_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """By the proxy that runs meanwhile."""
    async with scene(tmp_path, LOST, FINE) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged()
        ran = await desk("resolve", call_id, "--as", "not-executed", "--reason", "not there", "--json")
        assert ran.status == 0
        assert ran.document(SCHEMA)["call"]["state"] == "released"
        assert (await world.charge()).semel == "executed"
        assert world.origin.started == 2


@pytest.mark.parametrize("way", WAYS)
async def test_a_forgotten_call_is_sent_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """And `show` and `list` say so, until it was made anew; replays are counted over both."""
    async with scene(tmp_path, FINE, FINE) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged()
        assert (await world.charge()).semel == "replayed"
        assert re.search(rf"{call_id}  done  +pay", (await desk("list")).out)
        ran = await desk("forget", call_id, "--reason", "on purpose")
        assert ran.status == 0
        assert re.search(r"(?m)^state: +done, forgotten: the next identical call is sent$", ran.out)
        assert "kept until" not in ran.out
        assert "on purpose" in ran.out
        assert f"{call_id}  done (past)  pay" in (await desk("list")).out
        document = (await desk("show", call_id, "--json")).document(SCHEMA)
        assert (document["call"]["state"], document["events"][-1]["event"]) == ("done", "forgotten")
        assert document["call"]["expires_at"] <= document["call"]["settled_at"]
        assert [(await world.charge()).semel for _ in range(2)] == ["executed", "replayed"]
        # Through the proxy, which counts replays and writes them down in its own time.
        anew = (await desk_of(world, capsys, tmp_path, "proxy")("show", call_id)).out
        assert re.search(r"(?m)^state: +done$", anew)
        assert re.search(r"(?m)^sent: .*, once$", anew)
        assert re.search(r"(?m)^replayed: +2 times in all$", anew)


def test_a_call_whose_time_is_over_was_not_forgotten_by_anybody() -> None:
    """The words differ, the consequence is the same."""
    ended = {"state": "done", "expires_at": "2020-01-01T00:00:00.000+00:00"}
    told = calls_text._state({"call": ended, "events": [{"event": "answered"}]})
    assert told == "done, its time is over: the next identical call is sent"


@pytest.mark.parametrize("way", WAYS)
async def test_a_list_keeps_the_order_of_the_first_sight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """A call that was forgotten and made anew stays where it was; the help says that order."""
    async with scene(tmp_path) as world:
        desk = desk_of(world, capsys, tmp_path, way)
        first, second = await world.charged(1), await world.charged(2)
        assert (await desk("forget", first, "--reason", "r")).status == 0
        assert (await world.charge(1)).semel == "executed"
        listed = (await desk("list", "--json")).document(SCHEMA)["calls"]
        assert [call["id"] for call in listed] == [second, first]
        told = " ".join((await desk("list", "--help")).out.split())
        assert "in the order in which calls were first seen, newest first" in told
        assert "only this run" in told


@pytest.mark.parametrize("way", WAYS)
async def test_a_stale_version_is_refused_with_the_present_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """Exit status 1; nothing is decided."""
    async with scene(tmp_path, LOST) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged()
        decision = ("resolve", call_id, "--as", "executed", "--reason", "r", "--version")
        ran = await desk(*decision, 1)
        assert ran.status == 1
        assert "it is in_doubt now, version 2" in ran.err
        assert (await desk(*decision, 2)).status == 0
        again = await desk(*decision, 2)
        assert again.status == 1
        assert "it is done now, version 3" in again.err


@pytest.mark.parametrize("way", WAYS)
async def test_what_cannot_be_done_is_said_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """No such call, not an id, not in doubt, not settled, no answer."""
    async with scene(tmp_path, FINE, LOST) as world:
        desk = desk_of(world, capsys, tmp_path, way)
        done, doubtful = await world.charged(1), await world.charged(2)
        why = ("--reason", "r")
        where = f"the record in {tmp_path / 'state'}" if way == "store" else f"the record of {world.url}"
        missing = (
            f"There is no call {UNKNOWN} in {where}. Name another record with --state-dir DIR, "
            "--store URL or --proxy URL."
        )
        for arguments, told in (
            (("show", UNKNOWN), missing),
            (("show", UNKNOWN, "--body"), missing),
            (("resolve", UNKNOWN, "--as", "executed", *why), missing),
            (("forget", UNKNOWN, *why), missing),
            (
                ("resolve", done, "--as", "executed", *why),
                "The call is done: only one in doubt can be resolved.",
            ),
            (("forget", doubtful, *why), "The call is in_doubt: only a settled one can be forgotten."),
            (("show", doubtful, "--body"), "The call is in_doubt: it has no answer."),
        ):
            ran = await desk(*arguments)
            assert (ran.status, ran.out, ran.err.strip()) == (1, "", told)


@pytest.mark.parametrize("way", WAYS)
async def test_a_row_that_cannot_be_read_is_shown_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """Beside the others in the list; asked for by itself, status 1."""
    async with scene(tmp_path, FINE, FINE) as world:
        desk = desk_of(world, capsys, tmp_path, way)
        broken, whole = await world.charged(1), await world.charged(2)
        damage(tmp_path / "state", broken)
        listed = await desk("list")
        assert listed.status == 0
        assert f"{broken}  cannot be read: " in listed.out
        assert f"{whole}  done" in listed.out
        ran = await desk("show", broken)
        assert (ran.status, "cannot be read" in ran.err) == (1, True)


@pytest.mark.parametrize("way", WAYS)
async def test_lists_are_filtered_and_paged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """--json is the API's page; --all is all of them; a cut list says that there is more."""
    async with scene(tmp_path) as world:
        desk = desk_of(world, capsys, tmp_path, way)
        empty = await desk("list")
        assert (empty.status, empty.out) == (0, "no calls\n")
        ids = [await world.charged(number) for number in range(4)] + [await world.charged(9, "/other")]
        newest_first = ids[::-1]

        async def listed(*arguments: object) -> list[str]:
            ran = await desk("list", "--json", *arguments)
            return [call["id"] for call in ran.document(document("CallPage"))["calls"]]

        assert await listed() == newest_first
        assert await listed("--limit", 2) == newest_first[:2]
        assert await listed("--limit", 2, "--all") == newest_first
        assert await listed("--tool", "charge_card") == newest_first[1:]
        assert await listed("--upstream", "nobody") == await listed("--run", "none") == []
        assert await listed("--in", "pending") == []
        cut = await desk("list", "--limit", 2)
        assert len(cut.out.splitlines()) == 3
        assert cut.err == "There are more: --all, or a larger --limit.\n"


@pytest.mark.parametrize("way", WAYS)
async def test_show_prints_the_document_of_the_api(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """--json is the API's CallDetail, word for word; the text names request, answer and history."""
    async with scene(tmp_path) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged(7)
        ran = await desk("show", call_id, "--json")
        shown = await world.document(f"calls/{call_id}")
        # What the rule does about doubt stands in the policies, which only the proxy has.
        assert ran.document(SCHEMA) == shown | ({} if way == "proxy" else {"settled_by": None})
        text = (await desk("show", call_id)).out
        for told in ("POST /charge", '{"body": {"usd": 7}}', "201, 18 bytes (inline)", "claim", "answered"):
            assert told in text
        assert "resolve" not in text


@pytest.mark.parametrize("way", WAYS)
async def test_a_body_is_printed_byte_for_byte_and_decoded(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], way: str
) -> None:
    """To a pipe: what the upstream said, out of its coding."""
    import gzip

    packed = (*READ_ALL, answer(200, gzip.compress(b"\x1b[31mred"), (b"Content-Encoding", b"gzip")))
    async with scene(tmp_path, FINE, packed) as world:
        plain, coded = await world.charged(1), await world.charged(2)
        place = ["--state-dir", str(tmp_path / "state")] if way == "store" else ["--proxy", world.url]
        for call_id, body in ((plain, CHARGED), (coded, b"\x1b[31mred")):
            status = await asyncio.to_thread(main, ["calls", "show", call_id, "--body", *place])
            assert (status, capsysbinary.readouterr().out) == (0, body)


async def test_nothing_of_others_drives_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body, a reason, an upstream's words: control characters are escaped."""
    evil = b"one\r\n\x1b]0;pwned\x07\ttwo\xff"
    doubt = (*READ_ALL, answer(500, b"\x1b[2Jgone"))
    async with scene(tmp_path, (*READ_ALL, answer(200, evil, (b"X-Odd", b"\x9b2J"))), doubt) as world:
        desk = desk_of(world, capsys, tmp_path, "store")
        done, doubtful = await world.charged(1), await world.charged(2)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        body = await desk("show", done, "--body")
        assert body.out == "one\n\\x1b]0;pwned\\x07\ttwo\\xff\n"
        reason = ("--as", "not-executed", "--reason", "\x1b[31mred")
        for words in (
            ("show", done),
            ("show", done, "--json"),
            ("show", doubtful),
            ("list",),
            ("resolve", doubtful, *reason),
        ):
            ran = await desk(*words)
            assert "\x1b" not in ran.out + ran.err
            assert "\x9b" not in ran.out + ran.err


def test_json_is_ascii_on_a_terminal_and_utf8_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same document: C1 controls and characters that turn text around reach programs only."""
    said = {"a": "é\x9b2J\u202e"}
    print_json(said)
    plain = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_json(said)
    shown = capsys.readouterr().out
    assert json.loads(plain) == json.loads(shown) == said
    assert "é\x9b2J\u202e" in plain
    assert shown.isascii()


def evil(value: object) -> object:
    """The same shape, and every text and number drives a terminal."""
    if isinstance(value, dict):
        return {name: one if name == "state" else evil(one) for name, one in value.items()}
    if isinstance(value, list):
        return [evil(one) for one in value]
    return "\x1b[2J\u202e; reboot"


@pytest.mark.parametrize("state", ["in_doubt", "awaiting_approval"])
def test_no_value_of_a_hostile_proxy_drives_a_terminal_or_a_shell(
    state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it puts where: ids, versions, moments, statuses. The command to paste stays one command."""
    event = dict.fromkeys(("at", "actor", "event", "from", "to", "why"), "")
    call = dict.fromkeys(
        ("id", "version", "tool", "upstream", "rule", "run", "attempt", "seq", "occurrence", "args",
         "created_at", "sent_at", "sends", "settled_at", "expires_at", "replays", "status_code"), "",
    ) | {"state": state}  # fmt: skip
    answer = dict.fromkeys(("status_code", "size", "place", "unavailable"), "") | {"headers": [["", ""]]}
    detail = {
        "call": call,
        "events": [event],
        "request": {"method": "", "target": "", "headers": [["", ""]], "body": ""},
        "settled_by": "",
        "doubt": dict.fromkeys(("since", "reason", "upstream_status", "excerpt"), ""),
        "answer": answer,
        "damage": [""],
    }
    hostile = evil(detail)
    assert isinstance(hostile, dict)
    calls_text.print_call(hostile, "")
    hostile["answer"]["unavailable"] = None
    calls_text.print_call(hostile, "")
    calls_text.print_list({"calls": [hostile["call"]], "unreadable": evil([{"id": "", "why": ""}])})
    out = capsys.readouterr().out
    assert "reboot" in out
    assert not set(out) & {"\x1b", "\u202e"}
    (command, *_) = re.findall(r"(?m)^ +(semel calls (?:resolve|approve) .*)$", out)
    assert shlex.split(command)[3].endswith("; reboot")


async def test_a_call_with_an_impossible_moment_is_listed_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged number in the database is told as what it is."""
    async with scene(tmp_path, FINE, FINE) as world:
        early, late = await world.charged(1), await world.charged(2)
        damage(tmp_path / "state", early, "created_at = -1e300")
        damage(tmp_path / "state", late, "expires_at = 1e300")
        for way in WAYS:
            desk = desk_of(world, capsys, tmp_path, way)
            listed = await desk("list")
            assert listed.status == 0
            assert early in listed.out
            assert late in listed.out
            page = (await desk("list", "--json")).document(SCHEMA)
            assert [one["created_at"] is None for one in page["calls"]] == [False, True]
            assert re.search("(?m)^created: +at no known time$", (await desk("show", early)).out)
            assert (await desk("show", late)).status == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--content-type", "text/html\r\nX-Injected: 1"),
        ("--content-type", "text/" + "x" * 200),
        ("--content-type", ""),
        ("--reason", "a\nb"),
        ("--reason", "x" * 2001),
    ],
)
async def test_what_is_written_into_the_record_is_checked_whichever_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str, flag: str, text: str
) -> None:
    """Line breaks that would make another header, texts without end: refused, and nothing is decided."""
    (tmp_path / "answer").write_bytes(b"x")
    async with scene(tmp_path, LOST, FINE) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, way), await world.charged(1)
        said = {"--reason": "r", "--content-type": "text/plain", flag: text}
        flags = [word for pair in said.items() for word in pair]
        ran = await desk("resolve", call_id, "--as", "executed", "--body-file", "answer", *flags)
        assert ran.status == 1
        assert ("reason" if flag == "--reason" else "content") in ran.err
        assert (await world.document(f"calls/{call_id}"))["call"]["state"] == "in_doubt"
        if flag == "--reason":
            ran = await desk("forget", await world.charged(2), flag, text)
            assert (ran.status, "reason" in ran.err) == (1, True)


async def test_a_decision_is_kept_as_long_as_the_settings_rules_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule's ttl where the policies load and name it; a day where there was no rule; else until it is
    forgotten, which is never less than the rule would say, and that is told."""
    unknown = (
        "The policies read here do not have the rule 'charge' of upstream 'pay', so this is kept until it is "
        "forgotten; --policies PATH reads the proxy's.\n"
    )
    unread = "The policies cannot be read, so this is kept until it is forgotten:\n"
    bad = tmp_path / "bad.yaml"
    bad.write_text("upstream: 7\n")
    async with scene(tmp_path, *[LOST] * 6) as world:
        desk, rules = desk_of(world, capsys, tmp_path, "store"), world.policies
        for number, (policies, flags, path, hours, told) in enumerate(
            (
                (rules, (), "/charge", 3, ""),
                ("presets", ("--policies", rules), "/charge", 3, ""),
                (bad, ("--policies", "presets", "--policies", rules), "/charge", 3, ""),
                ("presets", (), "/charge", None, unknown),
                (bad, (), "/charge", None, unread),
                (bad, (), "/other", 24, ""),
            )
        ):
            monkeypatch.setenv("SEMEL_POLICIES", str(policies))
            call_id = await world.charged(number, path)
            ran = await desk("resolve", call_id, "--as", "executed", "--reason", "r", *flags)
            assert (ran.status, ran.err[: len(told)], bool(ran.err)) == (0, told, bool(told))
            assert ("it is forgotten" in ran.out) == (hours is None)
            row = await world.app.store.get(bytes.fromhex(call_id))
            assert row is not None
            assert row.settled_at is not None
            kept = None if row.expires_at is None else row.expires_at - row.settled_at
            assert kept == (None if hours is None else hours * 3600)


async def test_policies_that_a_person_names_must_load_before_anything_is_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, the call is in doubt as before; a proxy has policies of its own."""
    async with scene(tmp_path, LOST) as world:
        call_id = await world.charged()
        decision = ("resolve", call_id, "--as", "executed", "--reason", "r", "--policies", "gone.yaml")
        for way, told in (
            ("store", "gone.yaml:1:1: there is no such file"),
            ("proxy", "by its own policies"),
        ):
            ran = await desk_of(world, capsys, tmp_path, way)(*decision)
            assert (ran.status, ran.out, told in ran.err) == (2, "", True)
        assert (await world.document(f"calls/{call_id}"))["call"]["state"] == "in_doubt"


async def test_an_answer_can_come_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its status and type."""
    async with scene(tmp_path, LOST) as world:
        desk, call_id = desk_of(world, capsys, tmp_path, "proxy"), await world.charged()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x00\xff")))
        ran = await desk("resolve", call_id, "--as", "executed", "--body-file", "-", "--status", 202,
                         "--content-type", "application/x-own", "--reason", "r")  # fmt: skip
        assert ran.status == 0
        again = await world.charge()
        assert (again.status, again.body, again.get("Content-Type")) == (
            202,
            b"\x00\xff",
            "application/x-own",
        )


USAGE = {
    "no reason": (["forget", UNKNOWN], "--reason"),
    "a blank reason": (["forget", UNKNOWN, "--reason", "  "], "say why"),
    "no verdict": (["resolve", UNKNOWN, "--reason", "r"], "--as"),
    "a wrong verdict": (["resolve", UNKNOWN, "--as", "maybe", "--reason", "r"], "there is no 'maybe'"),
    "a wrong state": (["list", "--in", "doubt"], "there is no 'doubt'"),
    "a wrong limit": (["list", "--limit", "0"], "'0' is not a number from 1 to 1000"),
    "a wrong status": (["resolve", UNKNOWN, "--as", "executed", "--status", "99", "--reason", "r"], "'99'"),
    "a wrong version": (["forget", UNKNOWN, "--version", "x", "--reason", "r"], "'x' is not a number"),
    "no command": ([], "COMMAND"),
    "no id": (["show"], "ID"),
    "body and json": (["show", UNKNOWN, "--body", "--json"], "not allowed with"),
    "an answer to nothing": (
        ["resolve", UNKNOWN, "--as", "not-executed", "--status", "200", "--reason", "r"], "has no answer",
    ),
    "a type of nothing": (
        ["resolve", UNKNOWN, "--as", "executed", "--content-type", "a/b", "--reason", "r"], "--body-file",
    ),
    "no such file": (
        ["resolve", UNKNOWN, "--as", "executed", "--body-file", "gone", "--reason", "r"], "gone: the file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", USAGE)
async def test_wrong_usage_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """With what is wrong; nothing on standard output."""
    arguments, told = USAGE[name]
    async with scene(tmp_path) as world:
        ran = await desk_of(world, capsys, tmp_path, "store")(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert told in ran.err


def test_a_record_that_cannot_be_reached_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No record here, a store that lives elsewhere, two places, a token for nobody: 2. Nobody there: 1."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        for arguments, status, told in (
            (["--state-dir", tmp_path], 2, f"There is no record in {tmp_path}."),
            (["--store", "memory"], 2, "--proxy http://HOST:PORT"),
            (["--proxy", dead, "--state-dir", tmp_path], 2, "not both"),
            (["--state-dir", tmp_path, "--token", "t"], 2, "A token is for a proxy"),
            (["--proxy", "nonsense"], 2, "write it as http://HOST:PORT"),
            (["--proxy", dead], 1, "Is `semel serve` running there"),
            (["--config", tmp_path / "none.yaml"], 2, "none.yaml"),
        ):
            ran = semel(capsys, "calls", "list", *arguments)
            assert (ran.status, ran.out) == (status, "")
            assert told in ran.err
        assert list(tmp_path.iterdir()) == []


async def test_the_environment_names_the_proxy_and_the_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEMEL_URL and SEMEL_TOKEN; a flag is nearer; the token is never printed."""
    tokens = [Token(sha256=digest("semel_ops"), tenant="acme", role=Role.OPERATOR)]
    async with scene(tmp_path, tokens=tokens) as world:
        monkeypatch.setenv("SEMEL_URL", world.url)
        refused = await asyncio.to_thread(semel, capsys, "calls", "list")
        assert refused.status == 1
        assert "--token T, or SEMEL_TOKEN" in refused.err
        monkeypatch.setenv("SEMEL_TOKEN", "semel_ops")
        assert (await asyncio.to_thread(semel, capsys, "calls", "list")).out == "no calls\n"
        wrong = await asyncio.to_thread(semel, capsys, "calls", "list", "--token", "semel_other")
        assert wrong.status == 1
        assert "semel_other" not in wrong.err + wrong.out
        here = await asyncio.to_thread(semel, capsys, "calls", "list", "--state-dir", tmp_path / "gone")
        assert (here.status, "no record" in here.err) == (2, True)


def test_the_schema_is_a_schema() -> None:
    """And a page is no call."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads('{"calls": [1], "next": null, "unreadable": []}'), SCHEMA)


@pytest.mark.parametrize(
    ("size", "harm", "words"),
    [
        (100_000, "gone", "The answer is lost or damaged"),
        (100_000, "changed", "The answer is lost or damaged"),
        (9_000_000, "changed", "The answer is damaged"),
    ],
)
async def test_a_body_that_is_lost_or_damaged_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, harm: str, words: str
) -> None:
    """Never a wrong one: exit status 1, and nothing of it is printed where it can be seen beforehand."""
    async with scene(tmp_path, (*READ_ALL, answer(200, b"x" * size))) as world:
        call_id = await world.charged(1)
        (blob,) = [path for path in (tmp_path / "state" / "blobs").glob("??/*") if path.is_file()]
        if harm == "gone":
            blob.unlink()
        else:
            blob.write_bytes(b"x" * (size - 1) + b"y")
        ran = await desk_of(world, capsys, tmp_path, "store")("show", call_id, "--body")
        assert (ran.status, ran.out) == (1, "")
        assert words in ran.err


async def test_a_decision_that_may_have_been_written_is_said_to_be_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails while it writes: exit status 1, and look again before deciding again."""
    async with scene(tmp_path, FINE) as world:
        call_id = await world.charged(1)

        async def fail(*_: object, **__: object) -> None:
            raise StoreUnavailable("the store is not available: the disk is full")

        monkeypatch.setattr(EmbeddedStore, "swap", fail)
        ran = await desk_of(world, capsys, tmp_path, "store")("forget", call_id, "--reason", "r")
        assert ran.status == 1
        assert "the disk is full. Whether the decision was written is not known" in ran.err
