"""The log of a real process: one JSON line per call, and never a secret."""

from __future__ import annotations

import json
from pathlib import Path

from tests.inside import call, raw_call, until
from tests.origin import READ_ALL, Origin, Reset, answer
from tests.process import SemelProcess

SECRET = "s3cr3t"
HEADERS = {
    "Authorization": f"Bearer {SECRET}-authorization",
    "Cookie": f"session={SECRET}-cookie",
    "X-Api-Key": f"{SECRET}-api-key",
    "Proxy-Authorization": f"Basic {SECRET}-proxy",
    "X-Own-Token": f"{SECRET}-own",
    "Idempotency-Key": f"{SECRET}-key",
    "Content-Type": "application/json",
}
ANSWER = answer(200, f"{SECRET}-answer".encode(), (b"Set-Cookie", f"id={SECRET}-set-cookie".encode()))
DOUBT = answer(500, f"{SECRET}-excerpt".encode(), (b"X-Debug", f"{SECRET}-debug".encode()))


def lines_of(process: SemelProcess) -> list[dict[str, object]]:
    """Every line is JSON with a time and a name; anything else on stderr fails here."""
    lines = [json.loads(line) for line in process.log.splitlines()]
    assert all({"at", "event"} <= set(line) for line in lines)
    return lines


async def calls_logged(process: SemelProcess, number: int) -> list[dict[str, object]]:

    def calls() -> list[dict[str, object]]:
        return [line for line in lines_of(process) if line["event"] == "call"]

    await until(lambda: len(calls()) >= number)
    return calls()


async def test_one_json_line_per_call_and_no_secret_in_any(tmp_path: Path) -> None:
    """Secrets in every place where they travel: headers, query, body, answers, doubts, malformed requests."""
    async with Origin(
        (*READ_ALL, ANSWER), (*READ_ALL, DOUBT), (*READ_ALL, ANSWER), (*READ_ALL, Reset())
    ) as origin:
        policy = tmp_path / "pay.yaml"
        policy.write_text(
            f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\ncredentials: [X-Own-Token]\n"
            "rules: [{name: charge, match: {path: /charge}, tool: charge_card}]\n"
        )
        async with SemelProcess(tmp_path / "state", policy) as process:
            body = json.dumps({"card": f"{SECRET}-body"}).encode()
            target = f"/pay/charge?token={SECRET}-query"
            again = {**HEADERS, "Idempotency-Key": f"{SECRET}-second"}
            executed = await call(process.port, "POST", target, HEADERS, body)
            replayed = await call(process.port, "POST", target, HEADERS, body)
            doubt = await call(process.port, "POST", target, again, body)
            conflict = await call(process.port, "POST", target, HEADERS, b'{"card": "s3cr3t-other"}')
            passed = await call(process.port, "GET", target, HEADERS)
            broken = await call(process.port, "POST", f"/pay/other?{SECRET}-query", {}, body)
            unknown = await call(process.port, "POST", f"/nobody?{SECRET}", HEADERS, body)
            raw = f"POST /pay/x HTTP/1.1\r\nHost: s\r\nAuthorization : {SECRET}\r\n\r\n".encode()
            malformed = await raw_call(process.port, raw)
            answers = [executed, replayed, doubt, conflict, passed, broken, unknown, malformed]
            calls = await calls_logged(process, len(answers))
            status = await process.stop()
        assert status == 0
        assert [line["status"] for line in calls] == [
            "executed",
            "replayed",
            *["refused"] * 2,
            "passed",
            *["refused"] * 3,
        ]
        assert [line["code"] for line in calls] == [one.status for one in answers]
        first = calls[0]
        assert (first["upstream"], first["rule"], first["tool"]) == ("pay", "charge", "charge_card")
        assert (first["method"], first["call"]) == ("POST", executed.get("Semel-Call"))
        assert first["bytes"] == len(executed.body)
        assert [line.get("problem") for line in calls[2:4]] == ["in-doubt", "key-conflict"]
        assert SECRET not in process.log
        lines_of(process)


async def test_no_secret_in_the_store_beside_what_a_resend_needs(tmp_path: Path) -> None:
    """Credentials are never written down, in no file of the state directory."""
    async with Origin((*READ_ALL, answer(200, b"ok"))) as origin:
        policy = tmp_path / "pay.yaml"
        policy.write_text(
            f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\ncredentials: [X-Own-Token]\n"
            "rules: [{name: shared, match: {path: /shared}, mode: cache}]\n"
        )
        credentials = {
            name: HEADERS[name] for name in ("Authorization", "Cookie", "X-Api-Key", "X-Own-Token")
        }
        async with SemelProcess(tmp_path / "state", policy) as process:
            for path in ("charge", "shared"):
                got = await call(process.port, "POST", f"/pay/{path}", credentials, b"marker-of-the-body")
                assert got.status == 200
            written = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
            await process.stop()
        written += [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
        assert any(b"marker-of-the-body" in content for content in written)
        assert not any(SECRET.encode() in content for content in written)


async def test_a_defect_is_logged_and_the_caller_is_told(tmp_path: Path) -> None:
    """An armed failure between claim and send: a problem, a line that says where, and the process goes on."""
    async with Origin() as origin:
        policy = tmp_path / "pay.yaml"
        policy.write_text(f"upstream: pay\nbase_url: http://127.0.0.1:{origin.port}\n")
        faults = {"answer_head": {"action": "fail", "times": 1}}
        async with SemelProcess(tmp_path / "state", policy, faults=faults) as process:
            doubt = await call(process.port, "POST", "/pay/x", {}, b"{}")
            assert (doubt.status, json.loads(doubt.body)["type"]) == (409, "urn:semel:in-doubt")
            assert (await call(process.port, "POST", "/pay/y", {}, b"{}")).status == 200
            await calls_logged(process, 2)
            (defect,) = [line for line in lines_of(process) if line["event"] == "defect"]
            assert "a fault point was armed to fail" in str(defect["error"])
