"""The agent: `python -S -m tests.proof.kills.agent SPEC` goes through the steps of its work, each start anew.

What it was given it appends to a file of its own, in one write, before it goes on: complete answers only,
and what it was told instead of one. It ends with 0 when it is through; with HELD where a step is in doubt;
with BROKEN where a connection broke and it has nothing to say that its next request is the same one (then
its next start asks); with DIVERGED where semel holds its call as that; with ASTRAY where it was told
something that it never should be.

SPEC is JSON: ports, prefix, work, seed, steps, log, keyed (whether it sends an Idempotency-Key, minted anew
at each start, as SDKs do), think, skips (whether it goes on without whatever is in doubt).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
import sys
import threading
import time
from typing import Any, BinaryIO

from tests.proof.kills.script import OnDoubt, Step, batches_of, steps_of

HELD, BROKEN, ASTRAY, DIVERGED = 3, 4, 5, 6
PATIENCE = 90.0  # for one step
INSISTS = 12
AGAIN = {"in-progress", "store-unavailable", "upstream-unreachable", "upstream-timeout"}
HEADERS = ("content-type", "x-serial")


def digest_of(status: int, headers: tuple[str, ...], body: bytes) -> str:
    """Of what the upstream said: status, headers, body."""
    return hashlib.sha256(repr((status, headers)).encode() + body).hexdigest()[:32]


def meaning_of(body: bytes) -> str:
    """Of the body as JSON, however it is written; empty where it is none."""
    try:
        read = json.loads(body)
    except ValueError:
        return ""
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:32]


def post(port: int, target: str, body: bytes, key: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by lower-case name, body. Whatever is not complete is an OSError: a client that takes
    half a head for a whole one would see what nobody said."""
    lines = [f"POST {target} HTTP/1.1", "Host: semel", "Content-Type: application/json", "Connection: close"]
    lines += [f"Content-Length: {len(body)}", *([f"Idempotency-Key: {key}"] if key else [])]
    with socket.create_connection(("127.0.0.1", port), timeout=8) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        with connection.makefile("rb") as answer:
            status = int(_line(answer).split(b" ")[1])
            headers: dict[str, str] = {}
            while line := _line(answer):
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            return status, headers, _body(answer, headers)


def _body(answer: BinaryIO, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return _exactly(answer, int(headers["content-length"]))
    body = b""
    while size := int(_line(answer), 16):
        body += _exactly(answer, size)
        _line(answer)
    _line(answer)
    return body


def _line(answer: BinaryIO) -> bytes:
    line = answer.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("cut off in a line")
    return line[:-2]


def _exactly(answer: BinaryIO, size: int) -> bytes:
    data = answer.read(size)
    if len(data) < size:
        raise ConnectionError("cut off in a body")
    return data


class Agent:
    def __init__(self, spec: dict[str, Any]) -> None:
        self._ports: list[int] = spec["ports"]
        self._prefix: str = spec["prefix"]
        steps = steps_of(spec["seed"], spec["work"], spec["steps"])
        self._batches = batches_of(spec["seed"], spec["work"], steps)
        self._log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._keyed: bool = spec["keyed"]
        self._in_run = self._prefix.startswith("/@")
        self._coin = random.Random()
        self._think: float = spec["think"]
        self._skips: bool = spec["skips"]

    def run(self) -> None:
        for batch in self._batches:
            others = [threading.Thread(target=self._step, args=(step,)) for step in batch[1:]]
            for thread in others:
                thread.start()
            self._step(batch[0])
            for thread in others:
                thread.join()
            time.sleep(self._coin.uniform(0, self._think))

    def _step(self, step: Step) -> None:
        try:
            self._until_told(step)
        except BaseException as error:
            self._write(step, time.time(), 0, f"failed: {error!r}")
            os._exit(ASTRAY)

    def _until_told(self, step: Step) -> None:
        key, insisted = f"{os.getpid()}-{time.time_ns()}-{step.name}", 0
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            asked_at = time.time()
            try:
                told, passed = self._ask(step, key, asked_at)
            except ConnectionRefusedError:
                time.sleep(0.08)  # nobody is there: nothing was asked
                continue
            except OSError:
                if self._in_run and not self._keyed:
                    os._exit(BROKEN)
                time.sleep(0.03)
                continue
            if told == "" and not passed:
                return
            if told == "in-doubt":
                insisted += 1
                if self._skips or step.on_doubt is OnDoubt.SKIP:
                    return
                if step.on_doubt is OnDoubt.STOP or insisted > INSISTS:
                    os._exit(HELD)
                time.sleep(0.3)
            elif told in AGAIN or passed:
                time.sleep(0.03)
            elif told == "diverged":
                os._exit(DIVERGED)
            else:
                os._exit(ASTRAY)
        self._write(step, time.time(), 0, "never told")
        os._exit(ASTRAY)

    def _ask(self, step: Step, key: str, asked_at: float) -> tuple[str, bool]:
        """The name of semel's problem, empty where it was an answer; whether it passed without a record."""
        key = key if self._in_run and self._keyed else ""
        target = f"{self._prefix}/up/{step.path(in_run=self._in_run)}"
        port = self._coin.choice(self._ports)
        status, headers, said = post(port, target, step.body(), key)
        semel, call = headers.get("semel-status", ""), headers.get("semel-call", "")
        problem, digest, meaning = "", "", ""
        if semel == "refused":
            members = json.loads(said)
            problem, call = members["type"].removeprefix("urn:semel:"), members.get("call", call)
        else:
            kept = tuple(headers.get(name, "") for name in HEADERS)
            digest, meaning = digest_of(status, kept, said), meaning_of(said)
        told: dict[str, str | int] = {
            "semel": semel,
            "call": call,
            "digest": digest,
            "meaning": meaning,
            "port": port,
        }
        self._write(step, asked_at, status, problem, **told)
        return problem if status == 200 or problem else f"status {status}", semel == "passed"

    def _write(self, step: Step, asked_at: float, status: int, problem: str, **more: str | int) -> None:
        line = {
            "step": step.name, "asked_at": asked_at, "at": time.time(), "status": status, "problem": problem,
            "where": self._prefix, **more,
        }  # fmt: skip
        os.write(self._log, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    Agent(json.loads(sys.argv[1])).run()
