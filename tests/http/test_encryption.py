"""A record that is encrypted: nothing of a call lies in the clear, and what was tampered with is never given.

Over the wire, on every store. Rotation beside callers is in test_rotation.py.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from proxy import answers
from proxy.app import App
from proxy.clock import SystemClock
from proxy.core.intent import Answer as Recorded
from proxy.core.intent import Call, Entry, Place, evolve
from proxy.errors import ConfigurationError
from proxy.rotating import Rotation
from proxy.store.base import Query
from proxy.store.codec import Codec
from proxy.store.keyring import new_key
from proxy.store.sealed import SealedStore
from tests import ambient
from tests.http.numbered import JSON
from tests.inside import Answer, call, raw_call, request_bytes, semel
from tests.origin import READ_ALL, Origin, answer

pytestmark = pytest.mark.usefixtures("any_store")

ASKED, TOLD, WORDS = b"asked-1234567", b"told-7654321", b"excuse-2468"
LARGE = 70_000  # more than is kept in a row
POLICY = """\
upstream: up
base_url: http://127.0.0.1:{port}
rules:
  - {{name: cached, match: {{path: /cached}}, mode: cache}}
  - name: resent
    match: {{path: /resent}}
    upstream_key: {{header: Idempotency-Key, retention: 1h}}
    redact: {{args: [card]}}
"""


def key_file(tmp_path: Path, *keys: str) -> dict[str, object]:
    path = tmp_path / "keys"
    path.write_text("\n".join(keys or (new_key(),)))
    return {"encryption.key_file": str(path)}


def sealed(app: App) -> SealedStore:
    return cast("SealedStore", app.store)


def files_in(state: Path) -> bytes:
    """Read by another process: who closes a database's file loses the locks that his process has on it. What
    is in use meanwhile may come and go."""
    if not state.exists():
        return b""
    files = subprocess.run(["find", state, "-type", "f", "-exec", "cat", "{}", "+"], capture_output=True)
    assert ambient.store() != ambient.EMBEDDED or b"SQLite format 3" in files.stdout, files.stderr
    return files.stdout


async def raw_everything(app: App, tmp_path: Path) -> bytes:
    """All that the store keeps, as it keeps it: files, or rows, bodies and what is cached."""
    files = files_in(tmp_path / "state")
    inner = sealed(app).inner
    calls = (await inner.find(Query(limit=1000))).calls
    histories = [await inner.history(one.key) for one in calls]
    return files + repr((calls, histories, inner.secret)).encode()


async def post(app: App, path: str, body: bytes = b"{}", **headers: str) -> Answer:
    return await call(app.address.port, "POST", f"/up/{path}", headers={**JSON, **headers}, body=body)


async def look(app: App, path: str) -> bytes:
    port = app.address.port
    got = await raw_call(port, request_bytes("GET", f"/_semel/{path}", {}, host=f"127.0.0.1:{port}"))
    assert got.status == 200, got
    return got.body


def asked(n: int = 0, size: int = 0) -> bytes:
    return json.dumps({"n": n, "text": ASKED.decode(), "filler": "x" * size}).encode()


async def test_nothing_of_a_call_is_kept_in_the_clear(tmp_path: Path) -> None:
    """Asked and answered, in the row and beside it, cached, in a run, and what was said in doubt."""
    log = io.StringIO()
    small, large = answer(200, TOLD), answer(200, TOLD + b"y" * LARGE)
    refused = answer(500, WORDS)
    scripts = [(*READ_ALL, one) for one in (small, large, small, small, refused)]
    async with Origin(*scripts) as origin:
        policy = POLICY.format(port=origin.port)
        async with semel(tmp_path, policy, settings=key_file(tmp_path), log=log) as app:
            assert (await post(app, "small", asked(1))).body == TOLD
            assert (await post(app, "large", asked(2, LARGE))).body[: len(TOLD)] == TOLD
            assert (await post(app, "cached", asked(3))).body == TOLD
            in_run = {"Semel-Run": "r", "Semel-Attempt": "1"}
            assert (await post(app, "small", asked(4), **in_run)).body == TOLD
            assert (await post(app, "small", asked(5))).status == 409
            kept = await raw_everything(app, tmp_path)
            for path, n, size in (("small", 1, 0), ("large", 2, LARGE), ("cached", 3, 0)):
                again = await post(app, path, asked(n, size))
                assert (again.semel, again.body[: len(TOLD)]) == ("replayed", TOLD)
            (doubtful,) = json.loads(await look(app, "calls?state=in_doubt"))["calls"]
            assert WORDS in await look(app, f"calls/{doubtful['id']}"), "who may look is shown it"
        for secret in (ASKED, TOLD, WORDS):
            assert secret not in kept
            assert secret not in log.getvalue().encode()
        assert len(origin.requests) == 5
        # Another process, later: the same answers.
        async with semel(tmp_path, policy, settings=key_settings(tmp_path)) as app:
            if ambient.store() != "memory":
                assert (await post(app, "large", asked(2, LARGE))).semel == "replayed"


def key_settings(tmp_path: Path) -> dict[str, object]:
    return {"encryption.key_file": str(tmp_path / "keys")}


async def test_the_wrong_key_opens_nothing(tmp_path: Path) -> None:
    """Nor does none: semel does not start, says what to do, and has changed nothing."""
    if ambient.store() == "memory":
        pytest.skip("a memory store is never opened twice")
    async with Origin((*READ_ALL, answer(200, TOLD))) as origin:
        policy = POLICY.format(port=origin.port)
        right = new_key()
        async with semel(tmp_path, policy, settings=key_file(tmp_path, right)) as app:
            await post(app, "small", asked())
        for wrong, words in ((key_file(tmp_path), "cannot be opened"), ({}, "is encrypted, and there is no")):
            with pytest.raises(ConfigurationError, match=words):
                async with semel(tmp_path, policy, settings=wrong):
                    pass
        async with semel(tmp_path, policy, settings=key_file(tmp_path, new_key(), right)) as app:
            assert (await post(app, "small", asked())).semel == "replayed"
        assert len(origin.requests) == 1


async def test_a_record_that_lost_its_keystone_is_not_begun_again(tmp_path: Path) -> None:
    """Else what is planted in the clear would be believed again."""
    async with Origin((*READ_ALL, answer(200, TOLD))) as origin:
        policy = POLICY.format(port=origin.port)
        async with semel(tmp_path, policy, settings=key_file(tmp_path)) as app:
            await post(app, "small", asked())
            inner = sealed(app).inner
            assert await inner.swap_secret(inner.secret, bytes(32)) == bytes(32)
        with pytest.raises(ConfigurationError, match="that was not semel"):
            async with semel(tmp_path, policy, settings=key_settings(tmp_path)):
                pass


# ---- tampering ----


def _flip(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


def _answer(call: Call) -> Recorded:
    assert call.answer is not None
    return call.answer


TAMPERED: dict[str, Callable[[Call, Call], Call]] = {
    "a bit of the body": lambda one, _: evolve(
        one, answer=replace(_answer(one), body=_flip(_answer(one).body))
    ),
    "a bit of the head": lambda one, _: evolve(
        one, answer=replace(_answer(one), head=_flip(_answer(one).head))
    ),
    "another call's answer": lambda one, other: evolve(one, answer=_answer(other)),
    "another call's body": lambda one, other: evolve(
        one, answer=replace(_answer(one), body=_answer(other).body)
    ),
    "head for body": lambda one, _: evolve(one, answer=replace(_answer(one), body=_answer(one).head)),
    "a body in the clear": lambda one, _: evolve(
        one, answer=replace(_answer(one), body=Codec().seal_body(b"planted"))
    ),
    "nothing": lambda one, _: evolve(one, answer=replace(_answer(one), body=b"")),
}


async def tamper(app: App, path: str, how: Callable[[Call, Call], Call]) -> None:
    """In the store, past the layer that seals."""
    inner = sealed(app).inner
    rows = {row.tool: row for row in (await inner.find(Query(limit=10))).calls}
    one, other = rows[f"POST {path}"], rows["POST other"]
    changed = evolve(how(one, other), version=one.version + 1)
    entry = Entry(1.0, "somebody", "tampered", one.state, one.state, "", one.fence)
    assert (await inner.swap(changed, entry, expected=one.version)).won


@pytest.mark.parametrize("what", TAMPERED)
async def test_what_was_tampered_with_is_not_given(tmp_path: Path, what: str) -> None:
    """Told of, answered 410, and the call is not made again."""
    log = io.StringIO()
    async with Origin(*[(*READ_ALL, answer(200, TOLD))] * 2) as origin:
        async with semel(
            tmp_path, POLICY.format(port=origin.port), settings=key_file(tmp_path), log=log
        ) as app:
            for tool in ("one", "other"):
                await post(app, tool, asked(), **{"Semel-Tool": f"POST {tool}"})
            await tamper(app, "one", TAMPERED[what])
            for _ in range(2):
                got = await post(app, "one", asked())
                assert got.status == 410
                assert json.loads(got.body)["type"] == "urn:semel:answer-unavailable"
                assert TOLD not in got.body
            assert (await post(app, "other", asked())).semel == "replayed"
        assert len(origin.requests) == 2
    told = [line for line in log.getvalue().splitlines() if "answer-lost" in line or "damaged-record" in line]
    assert told, "nobody was told"


async def test_a_large_body_that_was_exchanged_is_not_given(tmp_path: Path) -> None:
    """The row names the other call's blob, which is whole and authentic by itself."""
    async with Origin(*[(*READ_ALL, answer(200, TOLD + b"y" * LARGE))] * 2) as origin:
        async with semel(tmp_path, POLICY.format(port=origin.port), settings=key_file(tmp_path)) as app:
            for tool in ("one", "other"):
                await post(app, tool, asked(), **{"Semel-Tool": f"POST {tool}"})
            await tamper(
                app,
                "one",
                lambda one, other: evolve(one, answer=replace(_answer(one), blob=_answer(other).blob)),
            )
            got = await post(app, "one", asked())
            assert got.status == 410, got
            assert TOLD not in got.body
        assert len(origin.requests) == 2


async def test_what_is_redacted_is_kept_whole_to_be_sent_again(tmp_path: Path) -> None:
    """With a key semel may keep what people are not shown: a resend sends the same bytes."""
    card = b'{"card": "4242-asked", "n": 1}'
    cut, fine = (*READ_ALL, answer(500, b"no")), (*READ_ALL, answer(200, b"paid"))
    async with Origin(cut, cut, cut, fine) as origin:
        policy = POLICY.format(port=origin.port)
        async with semel(tmp_path, policy, settings=key_file(tmp_path)) as app:
            got = await post(app, "resent", card)
            while got.status == 409 and len(origin.requests) < 4:
                got = await post(app, "resent", card)
            assert got.body == b"paid", got
            kept = await raw_everything(app, tmp_path)
            shown = await look(app, "calls")
            assert b"redacted:" in shown
        assert b"4242-asked" not in kept + shown
        bodies = {bytes(one.body) for one in origin.requests}
        assert bodies == {card}


async def test_a_damaged_body_is_told_of_without_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found while it is handed on: the caller is cut off, the next is told, and no log has what opens it."""
    if ambient.store() != ambient.EMBEDDED:
        pytest.skip("bodies are files of the embedded store")
    monkeypatch.setattr(answers, "STREAMED_FROM", 1000)
    log = io.StringIO()
    async with Origin((*READ_ALL, answer(200, b"y" * 4 * LARGE))) as origin:
        async with semel(
            tmp_path, POLICY.format(port=origin.port), settings=key_file(tmp_path), log=log
        ) as app:
            await post(app, "one", asked())
            (row,) = (await app.store.find(Query())).calls
            digest, _, secret = _answer(row).blob.partition(".")
            path = tmp_path / "state" / "blobs" / digest[:2] / digest
            data = bytearray(path.read_bytes())
            data[2 * LARGE] ^= 1
            path.write_bytes(data)
            assert not (await post(app, "one", asked())).complete
            assert (await post(app, "one", asked())).status == 410
        assert len(origin.requests) == 1
    assert digest in log.getvalue()
    assert secret
    assert secret not in log.getvalue()


async def test_a_body_under_a_key_that_somebody_put_beside_its_name_is_not_given(tmp_path: Path) -> None:
    """Whoever can write into the store can make a key and encrypt a body with it: a row's own is the one that
    is sealed in it."""
    async with Origin(*[(*READ_ALL, answer(200, TOLD))] * 2) as origin:
        async with semel(tmp_path, POLICY.format(port=origin.port), settings=key_file(tmp_path)) as app:
            for tool in ("one", "other"):
                await post(app, tool, asked(), **{"Semel-Tool": f"POST {tool}"})
            planted = await app.store.put_blob([b"planted" * 10_000])
            await tamper(
                app,
                "one",
                lambda one, _: evolve(
                    one,
                    answer=replace(
                        _answer(one), place=Place.BLOB, blob=planted.digest, size=planted.size, body=b""
                    ),
                ),
            )
            got = await post(app, "one", asked())
            assert (got.status, b"planted" in got.body) == (410, False)
        assert len(origin.requests) == 2


async def test_an_empty_record_is_not_encrypted_under_who_has_no_key(tmp_path: Path) -> None:
    """It would get another secret, and the two would name one call differently: it would be sent twice."""
    if ambient.store() == "memory":
        pytest.skip("a memory store is never opened twice")
    async with Origin(*[(*READ_ALL, answer(200, TOLD))] * 2) as origin:
        policy = f"upstream: up\nbase_url: http://127.0.0.1:{origin.port}\n"
        async with semel(tmp_path, policy) as plain:
            with pytest.raises(ConfigurationError, match="is in use by a semel that has no key"):
                async with semel(tmp_path, policy, settings=key_file(tmp_path)) as app:
                    await post(plain, "one", asked(), Authorization="Bearer x")
                    await post(app, "one", asked(), Authorization="Bearer x")
                    assert len(origin.requests) == 1, "sent twice"
            assert (await post(plain, "one", asked(), Authorization="Bearer x")).semel == "executed"
        async with semel(tmp_path, policy, settings=key_settings(tmp_path)) as app:
            again = await post(app, "one", asked(), Authorization="Bearer x")
            assert (again.semel, len(origin.requests)) == ("replayed", 1)


async def test_a_rotation_says_which_call_s_words_it_cannot_read(tmp_path: Path) -> None:
    """Rather than write that call anew in every pass, and blame a semel with other keys for it."""
    async with (
        Origin((*READ_ALL, answer(500, WORDS)), (*READ_ALL, answer(200, TOLD))) as origin,
        semel(tmp_path, POLICY.format(port=origin.port), settings=key_file(tmp_path)) as app,
    ):
        for tool in ("one", "other"):
            await post(app, tool, asked(), **{"Semel-Tool": f"POST {tool}"})

        def changed(one: Call, _: Call) -> Call:
            assert one.doubt is not None
            return evolve(one, doubt=replace(one.doubt, excerpt=one.doubt.excerpt[:-8] + "AAAAAAA="))

        await tamper(app, "one", changed)
        path = tmp_path / "keys"
        path.write_text(f"{new_key()}\n{path.read_text()}")
        (damaged,) = json.loads(await look(app, "calls?state=in_doubt"))["calls"]
        sealed(app).keys.find(b"")  # it looks at the file again
        rotated = await Rotation(sealed(app), SystemClock()).rotate()
        assert (list(rotated.unreadable), rotated.left, rotated.resealed) == ([damaged["id"]], 0, 1)
