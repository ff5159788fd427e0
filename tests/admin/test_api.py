"""The HTTP API under /_semel/: what is asked, decided, refused, and who may not even ask."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.admin.schemas import document
from proxy.settings import Role, Token
from proxy.tokens import digest
from tests.admin.scene import CHARGED, FINE, LOST, Scene, damage, detail_of, problem, scene
from tests.inside import call
from tests.origin import READ_ALL, answer

UNKNOWN = "0" * 32


async def test_calls_are_listed_newest_first_in_pages_and_filtered(tmp_path: Path) -> None:
    """By state, tool and upstream; page after page; every page fits its schema."""
    async with scene(tmp_path, FINE, FINE, LOST) as world:
        first, second = await world.charged(1), await world.charged(2, "/other")
        doubtful = await world.charged(3)
        page = await world.document("calls")
        jsonschema.validate(page, document("CallPage"))
        assert [one["id"] for one in page["calls"]] == [doubtful, second, first]
        assert (page["next"], page["unreadable"]) == (None, [])
        for query, found in (
            ("state=in_doubt", [doubtful]),
            ("state=done&upstream=pay", [second, first]),
            ("tool=charge_card", [doubtful, first]),
            ("upstream=nobody", []),
            ("run=nothing", []),
        ):
            listed = await world.document(f"calls?{query}")
            assert [one["id"] for one in listed["calls"]] == found, query
        newest = await world.document("calls?limit=2")
        rest = await world.document(f"calls?limit=2&after={newest['next']}")
        assert [one["id"] for one in newest["calls"] + rest["calls"]] == [doubtful, second, first]
        assert rest["next"] is None


async def test_a_call_is_shown_with_its_history_request_and_answer(tmp_path: Path) -> None:
    """The contract's members, in words; replays counted; every event with who and why."""
    async with scene(tmp_path) as world:
        call_id = await world.charged(5)
        await world.charge(5)
        shown = await world.document(f"calls/{call_id}")
        jsonschema.validate(shown, document("CallDetail"))
        call = shown["call"]
        assert (call["id"], call["tool"], call["rule"], call["upstream"]) == (
            call_id, "charge_card", "charge", "pay",
        )  # fmt: skip
        assert (call["state"], call["status_code"], call["size"], call["sends"], call["replays"]) == (
            "done", 201, len(CHARGED), 1, 1,
        )  # fmt: skip
        assert call["args"] == {"body": {"usd": 5}}
        assert [event["event"] for event in shown["events"]] == ["claim", "answered"]
        assert shown["request"]["method"] == "POST"
        assert shown["request"]["target"] == "/charge"
        assert shown["answer"]["place"] == "inline"
        assert shown["answer"]["unavailable"] is None
        assert (shown["doubt"], shown["damage"]) == (None, [])


async def test_a_doubt_is_shown_with_what_is_known(tmp_path: Path) -> None:
    """Since when, why, what the upstream said."""
    said = (*READ_ALL, answer(503, b"overloaded, maybe"))
    async with scene(tmp_path, said) as world:
        shown = await world.document(f"calls/{await world.charged()}")
        jsonschema.validate(shown, document("CallDetail"))
        assert shown["doubt"]["upstream_status"] == 503
        assert "overloaded, maybe" in shown["doubt"]["excerpt"]
        assert shown["answer"] is None


@pytest.mark.parametrize("how", ["query", "escaped name", "path"])
async def test_a_secret_in_an_address_is_not_shown(tmp_path: Path, how: str) -> None:
    """Neither in the target nor among the arguments, in no answer of the desk."""
    target = {
        "query": "/charge?access_token=hunter2&q=shown",
        "escaped name": "/charge?%61pi%5Fkey=hunter2&q=shown",
        "path": "/by/hunter2/shown",
    }[how]
    async with scene(tmp_path) as world:
        call_id = await world.charged(1, target)
        for path in (f"calls/{call_id}", "calls"):
            got = await world.ask("GET", path)
            assert b"hunter2" not in got.body
            assert b"shown" in got.body
            assert b"[redacted]" in got.body


async def test_a_body_is_downloaded_and_never_run(tmp_path: Path) -> None:
    """Byte for byte, as an attachment; a type that a browser would run becomes bytes."""
    page = (*READ_ALL, answer(200, b"<script>", (b"Content-Type", b"text/html"), (b"Set-Cookie", b"a=1")))
    async with scene(tmp_path, FINE, page) as world:
        plain, html = await world.charged(1), await world.charged(2)
        got = await world.ask("GET", f"calls/{plain}/body")
        assert (got.status, got.body, got.get("Content-Type")) == (200, CHARGED, "application/json")
        got = await world.ask("GET", f"calls/{html}/body")
        assert (got.body, got.get("Content-Type")) == (b"<script>", "application/octet-stream")
        assert (got.get("Content-Disposition") or "").startswith("attachment; filename=")
        assert got.get("X-Content-Type-Options") == "nosniff"
        assert "sandbox" in (got.get("Content-Security-Policy") or "")
        assert got.get("Cache-Control") == "no-store"
        assert got.get("Set-Cookie") is None
        shown = await world.document(f"calls/{html}")
        assert "Set-Cookie" not in dict(shown["answer"]["headers"])


async def test_a_large_body_is_streamed_and_an_encoded_one_says_so(tmp_path: Path) -> None:
    """A blob beyond what is held in memory; gzip as it was recorded."""
    large, packed = b"x" * (9 * 1024 * 1024), gzip.compress(b"words")
    blob = (*READ_ALL, answer(200, large))
    encoded = (*READ_ALL, answer(200, packed, (b"Content-Encoding", b"gzip")))
    async with scene(tmp_path, blob, encoded) as world:
        first, second = await world.charged(1), await world.charged(2)
        got = await world.ask("GET", f"calls/{first}/body")
        assert (got.complete, got.body == large) == (True, True)
        head = await world.ask("HEAD", f"calls/{first}/body")
        assert (head.status, head.get("Content-Length")) == (200, str(len(large)))
        got = await world.ask("GET", f"calls/{second}/body")
        assert (got.body, got.get("Content-Encoding")) == (packed, "gzip")


async def test_what_has_no_body_says_why(tmp_path: Path) -> None:
    """In doubt: none yet. Settled without one: 410, with the person's reason."""
    async with scene(tmp_path, LOST) as world:
        call_id = await world.charged()
        assert problem(await world.ask("GET", f"calls/{call_id}/body")) == (404, "not-found")
        said = {"as": "executed", "reason": "seen in the ledger"}
        assert (await world.ask("POST", f"calls/{call_id}/resolve", said)).status == 200
        got = await world.ask("GET", f"calls/{call_id}/body")
        assert problem(got) == (410, "answer-unavailable")
        assert "seen in the ledger" in detail_of(got)


@pytest.mark.parametrize(
    ("said", "status", "content_type", "body"),
    [
        ({"body": '{"id": 7}'}, 200, "application/json", b'{"id": 7}'),
        ({"body": "paid", "status": 202}, 202, "text/plain; charset=utf-8", b"paid"),
        ({"body": "", "status": 404}, 404, None, b""),
        ({"body": "[x", "content_type": "text/x-odd"}, 200, "text/x-odd", b"[x"),
        (
            {"body_base64": base64.b64encode(b"\xff\x00").decode()},
            200,
            "application/octet-stream",
            b"\xff\x00",
        ),
        ({"status": 204}, 204, None, b""),
    ],
)
async def test_executed_with_an_answer_is_replayed_by_the_proxy(
    tmp_path: Path, said: dict[str, object], status: int, content_type: str | None, body: bytes
) -> None:
    """What the person gave, under the type they named or that it shows; nothing is sent."""
    async with scene(tmp_path, LOST, FINE) as world:
        call_id = await world.charged()
        decision = {"as": "executed", "reason": "charge exists", "version": 2, **said}
        got = await world.ask("POST", f"calls/{call_id}/resolve", decision)
        assert got.status == 200, got.body
        shown = json.loads(got.body)
        jsonschema.validate(shown, document("CallDetail"))
        assert (shown["call"]["state"], shown["call"]["version"]) == ("done", 3)
        last = shown["events"][-1]
        assert (last["actor"], last["why"]) == ("operator:api", "executed: charge exists")
        again = await world.charge()
        assert (again.status, again.semel, again.body) == (status, "replayed", body)
        assert again.get("Content-Type") == content_type
        assert world.origin.started == 1


async def test_a_decision_lives_as_long_as_the_rule_says(tmp_path: Path) -> None:
    """The rule's three hours; the default's day where no rule matched; and where the rule is not there any
    more, until it is forgotten: less could be less than the rule has promised."""
    async with scene(tmp_path, LOST, LOST, LOST) as world:
        for number, (path, rule, hours) in enumerate(
            (("/charge", "charge", 3), ("/other", "", 24), ("/charge", "gone", None))
        ):
            call_id = await world.charged(number, path)
            if rule == "gone":
                damage(tmp_path / "state", call_id, "rule = 'gone'")
            await world.ask("POST", f"calls/{call_id}/resolve", {"as": "executed", "reason": "r"})
            row = await world.app.store.get(bytes.fromhex(call_id))
            assert row is not None
            assert row.settled_at is not None
            kept = None if row.expires_at is None else row.expires_at - row.settled_at
            assert kept == (None if hours is None else hours * 3600)


async def test_not_executed_lets_the_next_identical_call_be_sent(tmp_path: Path) -> None:
    """Once; the one after it is a replay of that."""
    async with scene(tmp_path, LOST, FINE) as world:
        call_id = await world.charged()
        said = {"as": "not_executed", "reason": "no such charge", "version": 2}
        got = await world.ask("POST", f"calls/{call_id}/resolve", said)
        assert json.loads(got.body)["call"]["state"] == "released"
        assert [(await world.charge()).semel for _ in range(2)] == ["executed", "replayed"]
        assert world.origin.started == 2


async def test_a_forgotten_call_is_sent_again(tmp_path: Path) -> None:
    """With its history."""
    async with scene(tmp_path, FINE, FINE) as world:
        call_id = await world.charged()
        got = await world.ask("POST", f"calls/{call_id}/forget", {"reason": "on purpose"})
        assert got.status == 200
        assert [event["event"] for event in json.loads(got.body)["events"]][-1] == "forgotten"
        assert (await world.charge()).semel == "executed"
        assert world.origin.started == 2


async def test_a_stale_version_is_refused_with_the_present_state(tmp_path: Path) -> None:
    """409; nothing changes."""
    async with scene(tmp_path, LOST, FINE) as world:
        call_id, done = await world.charged(1), await world.charged(2)
        for path, said in (
            (f"calls/{call_id}/resolve", {"as": "not_executed", "reason": "r", "version": 1}),
            (f"calls/{done}/forget", {"reason": "r", "version": 1}),
        ):
            got = await world.ask("POST", path, said)
            assert problem(got) == (409, "stale-version")
            members = json.loads(got.body)
            assert members["version"] == 2
            assert members["state"] == ("in_doubt" if "resolve" in path else "done")
            assert got.get("Semel-Call") == members["call"]
        assert (await world.document(f"calls/{call_id}"))["call"]["version"] == 2


async def test_only_what_can_be_decided_is_decided(tmp_path: Path) -> None:
    """A settled call is not in doubt, an open one is not settled, an unknown one is not there."""
    async with scene(tmp_path, FINE, LOST) as world:
        done, doubtful = await world.charged(1), await world.charged(2)
        resolving = {"as": "not_executed", "reason": "r"}
        got = await world.ask("POST", f"calls/{done}/resolve", resolving)
        assert problem(got) == (409, "not-in-doubt")
        got = await world.ask("POST", f"calls/{doubtful}/forget", {"reason": "r"})
        assert problem(got) == (409, "not-settled")
        for call_id in (UNKNOWN, UNKNOWN.upper().replace("0", "A"), "0123", "x" * 32):
            assert problem(await world.ask("GET", f"calls/{call_id}")) == (404, "not-found")
            assert problem(await world.ask("GET", f"calls/{call_id}/body")) == (404, "not-found")
            got = await world.ask("POST", f"calls/{call_id}/resolve", resolving)
            assert problem(got) == (404, "not-found")


async def test_a_row_that_cannot_be_read_is_listed_and_told_of(tmp_path: Path) -> None:
    """It stands before nobody; asked for, it says what is wrong, and that is not a store in trouble."""
    async with scene(tmp_path, FINE, FINE) as world:
        broken, whole = await world.charged(1), await world.charged(2)
        damage(tmp_path / "state", broken)
        page = await world.document("calls")
        jsonschema.validate(page, document("CallPage"))
        assert [one["id"] for one in page["calls"]] == [whole]
        assert [one["id"] for one in page["unreadable"]] == [broken]
        got = await world.ask("GET", f"calls/{broken}")
        assert problem(got) == (409, "unreadable")
        assert "cannot be read" in detail_of(got)
        got = await world.ask("POST", f"calls/{broken}/forget", {"reason": "r"})
        assert problem(got) == (409, "unreadable")


async def test_a_damaged_request_is_said_and_hides_nothing_else(tmp_path: Path) -> None:
    """State and history are shown; the call can be decided."""
    async with scene(tmp_path, LOST) as world:
        call_id = await world.charged()
        damage(tmp_path / "state", call_id, "request = x'0102'")
        shown = await world.document(f"calls/{call_id}")
        jsonschema.validate(shown, document("CallDetail"))
        assert (shown["call"]["args"], shown["request"]) == (None, None)
        assert shown["damage"]
        assert shown["doubt"]


BAD_QUERIES: dict[str, str] = {
    "state=weird": "'state' must be one of",
    "statee=done": "'statee' is not known here: did you mean 'state'?",
    "limit=0": "'limit' must be at least 1",
    "limit=1001": "'limit' must be at most 1000",
    "limit=ten": "'limit' must be a whole number",
    "limit=1&limit=2": "'limit' twice",
    "after=-1": "'after' must be at least 0",
    "after=99999999999999999999": "'after' must be a whole number",
    "run=a/b": "'run' does not fit",
    "run=a%0A": "'run' does not fit",
    "tool=": "'tool' must not be empty",
    "tool=%ff": "not UTF-8",
}


async def test_a_wrong_query_is_refused_with_its_name(tmp_path: Path) -> None:
    """Every mistake at once; nothing unknown is ignored, on any address."""
    async with scene(tmp_path) as world:
        for query, told in BAD_QUERIES.items():
            got = await world.ask("GET", f"calls?{query}")
            assert problem(got) == (400, "bad-request"), query
            assert told in detail_of(got), query
            assert not detail_of(got).endswith("?."), query
        got = await world.ask("GET", "calls?limit=0&colour=red")
        assert "'limit'" in detail_of(got)
        assert "'colour'" in detail_of(got)
        assert problem(await world.ask("GET", "stats?x=1")) == (400, "bad-request")


BAD_BODIES: dict[str, tuple[object, str]] = {
    "no reason": ({"as": "not_executed"}, "'reason' is missing"),
    "a blank reason": ({"as": "not_executed", "reason": " \t"}, "'reason' does not fit"),
    "no verdict": ({"reason": "r"}, "'as' is missing"),
    "a wrong verdict": ({"as": "maybe", "reason": "r"}, "'as' must be"),
    "an unknown member": ({"as": "not_executed", "reason": "r", "colour": 1}, "'colour' is not known here"),
    "an answer to nothing": ({"as": "not_executed", "reason": "r", "status": 200}, "'status' is not known"),
    "two bodies": ({"as": "executed", "reason": "r", "body": "", "body_base64": ""}, "is not known here"),
    "bad base64": ({"as": "executed", "reason": "r", "body_base64": "a"}, "'body_base64' is not base64"),
    "base64 of another alphabet": ({"as": "executed", "reason": "r", "body_base64": "ab-_"}, "is not base64"),
    "base64 that is none": ({"as": "executed", "reason": "r", "body_base64": "é"}, "is not base64"),
    "base64 that ends twice": ({"as": "executed", "reason": "r", "body_base64": "YQ==YQ"}, "is not base64"),
    "a reason that drives terminals": ({"as": "not_executed", "reason": "a\x1b[2J"}, "'reason' does not fit"),
    "a 204 with a body": ({"as": "executed", "reason": "r", "status": 204, "body": "x"}, "may not be 204"),
    "a status out of range": ({"as": "executed", "reason": "r", "status": 199}, "at least 200"),
    "a version as text": ({"as": "not_executed", "reason": "r", "version": "2"}, "must be a whole number"),
    "a type that splits": (
        {"as": "executed", "reason": "r", "body": "x", "content_type": "a/b\r\nX: y"}, "'content_type'",
    ),
    "a list": ([], "must be an object"),
    "not JSON": (b"{", "not JSON"),
    "nothing": (b"", "not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_a_wrong_decision_is_refused_and_decides_nothing(tmp_path: Path, name: str) -> None:
    """400 with what is wrong."""
    said, told = BAD_BODIES[name]
    async with scene(tmp_path, LOST) as world:
        call_id = await world.charged()
        got = await world.ask("POST", f"calls/{call_id}/resolve", said)
        assert problem(got) == (400, "bad-request")
        assert told in detail_of(got)
        assert (await world.document(f"calls/{call_id}"))["call"]["version"] == 2


async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    """The limit of every request's body."""
    async with scene(tmp_path, LOST, settings={"limits.request_body": "4KiB"}) as world:
        call_id = await world.charged()
        said = {"as": "executed", "reason": "r", "body": "x" * 5000}
        assert problem(await world.ask("POST", f"calls/{call_id}/resolve", said)) == (413, "too-large")


async def decides_nothing(world: Scene, call_id: str, **asked: Any) -> tuple[int, str]:
    said = {"as": "not_executed", "reason": "r"}
    got = await world.ask("POST", f"calls/{call_id}/resolve", said, **asked)
    assert (await world.document(f"calls/{call_id}"))["call"]["state"] == "in_doubt"
    return problem(got)


async def test_a_page_of_another_site_decides_nothing(tmp_path: Path) -> None:
    """By Origin, by Sec-Fetch-Site, by a form's content type, by a rebound name; reading is refused too."""
    async with scene(tmp_path, LOST) as world:
        call_id, own = await world.charged(), f"127.0.0.1:{world.port}"
        for origin in ("http://evil.example", "null", f"http://{own}.evil.example", "http://127.0.0.1:1", ""):
            headers = {"Origin": origin}
            assert await decides_nothing(world, call_id, headers=headers) == (403, "cross-site"), origin
            assert problem(await world.ask("GET", "calls", headers=headers)) == (403, "cross-site")
        for site in ("cross-site", "same-site", "anything"):
            headers = {"Sec-Fetch-Site": site}
            assert await decides_nothing(world, call_id, headers=headers) == (403, "cross-site")
            assert problem(await world.ask("GET", f"calls/{call_id}/body", headers=headers))[0] == 403
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                     "text/plain; application/json", ""):  # fmt: skip
            headers = {"Content-Type": kind}
            told = await decides_nothing(world, call_id, headers=headers)
            assert told == (415, "unsupported-media-type"), kind
        for host in ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"):
            assert await decides_nothing(world, call_id, host=host) == (421, "misdirected"), host
            assert problem(await world.ask("GET", "calls", host=host)) == (421, "misdirected")


async def test_our_own_page_and_programs_may_decide(tmp_path: Path) -> None:
    """The same origin, a typed address, any spelling of this machine; a charset beside the type."""
    allowed: list[dict[str, Any]] = [
        {"headers": {"Sec-Fetch-Site": "same-origin"}},
        {"headers": {"Sec-Fetch-Site": "none"}},
        {"headers": {"Content-Type": "application/json; charset=utf-8"}},
        {"headers": {"Origin": "http://localhost:8080"}, "host": "localhost:8080"},
        {"headers": {"Origin": "https://[::1]"}, "host": "[::1]"},
        {"host": "LOCALHOST"},
    ]
    async with scene(tmp_path, *[LOST] * len(allowed)) as world:
        for number, asked in enumerate(allowed):
            said = {"as": "not_executed", "reason": "r"}
            path = f"calls/{await world.charged(number)}/resolve"
            assert (await world.ask("POST", path, said, **asked)).status == 200, asked


async def test_nobody_else_s_page_is_ever_allowed_to_read(tmp_path: Path) -> None:
    """No CORS: a preflight gets no leave, and every answer, refusals too, stays out of caches."""
    async with scene(tmp_path) as world:
        call_id = await world.charged()
        paths = ("calls", "nothing", f"calls/{call_id}/body", "stats", "openapi.json")
        preflight = await world.ask("OPTIONS", f"calls/{call_id}/resolve")
        for got in (preflight, *[await world.ask("GET", path) for path in paths]):
            assert not [name for name, _ in got.headers if name.lower().startswith(b"access-control")]
            assert got.get("Cache-Control") == "no-store"


async def test_methods_and_addresses_that_there_are_not(tmp_path: Path) -> None:
    """405 with what is allowed; 404 for everything else."""
    async with scene(tmp_path) as world:
        call_id = await world.charged()
        for method, path, allowed in (
            ("POST", "calls", "GET, HEAD"),
            ("DELETE", f"calls/{call_id}", "GET, HEAD"),
            ("GET", f"calls/{call_id}/resolve", "POST"),
            ("PUT", "stats", "GET, HEAD"),
        ):
            got = await world.ask(method, path)
            assert problem(got) == (405, "method-not-allowed")
            assert got.get("Allow") == allowed
        for path in ("run", "calls/", f"calls/{call_id}/", f"calls/{call_id}/praise", "Calls"):
            assert problem(await world.ask("GET", path)) == (404, "not-found"), path
        assert (await call(world.port, "GET", "/_semelx/calls")).status == 404
        assert (await world.ask("HEAD", "calls")).status == 200


async def test_stats_say_how_many_calls_are_where(tmp_path: Path) -> None:
    """By state; the oldest doubt; the size."""
    async with scene(tmp_path, FINE, LOST) as world:
        assert (await world.document("stats"))["oldest_in_doubt_at"] is None
        await world.charged(1), await world.charged(2)
        found = await world.document("stats")
        jsonschema.validate(found, document("Stats"))
        assert (found["calls"]["done"], found["calls"]["in_doubt"], found["calls"]["pending"]) == (1, 1, 0)
        assert found["oldest_in_doubt_seconds"] >= 0
        assert found["store_bytes"] > 0
        assert found["cache_evictions"] == 0


async def test_a_store_in_trouble_is_said_and_so_is_a_decision_that_may_have_landed(tmp_path: Path) -> None:
    """503; whoever decided is told to look again."""
    async with scene(tmp_path, LOST) as world:
        call_id = await world.charged()
        await world.app.store.close()
        assert problem(await world.ask("GET", "calls")) == (503, "store-unavailable")
        got = await world.ask("POST", f"calls/{call_id}/forget", {"reason": "r"})
        assert problem(got) == (503, "store-unavailable")


async def test_with_tokens_only_operators_may_and_the_history_names_them(tmp_path: Path) -> None:
    """401 without, 403 as an agent; the tenant of the operator's token is the actor."""
    tokens = [Token(sha256=digest(role), tenant="acme", role=role) for role in (Role.OPERATOR, Role.AGENT)]
    async with scene(tmp_path, LOST, tokens=tokens) as world:
        lost = await world.charge(headers={"Content-Type": "application/json", "Semel-Token": "agent"})
        path = f"calls/{lost.get('Semel-Call')}/resolve"
        said = {"as": "not_executed", "reason": "r"}
        assert problem(await world.ask("POST", path, said)) == (401, "unauthorized")
        got = await world.ask("POST", path, said, {"Semel-Token": "agent"})
        assert problem(got) == (403, "forbidden")
        got = await world.ask("POST", path, said, {"Semel-Token": "operator"})
        assert got.status == 200
        assert json.loads(got.body)["events"][-1]["actor"] == "operator:api:acme"
