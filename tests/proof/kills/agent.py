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
import http.client
import json
import os
import random
import sys
import threading
import time
from typing import Any

from tests.proof.kills.script import OnDoubt, Step, batches_of, steps_of

HELD, BROKEN, ASTRAY, DIVERGED = 3, 4, 5, 6
PATIENCE = 60.0  # for one step
INSISTS = 12
AGAIN = {"in-progress", "store-unavailable", "upstream-unreachable", "upstream-timeout"}
HEADERS = ("Content-Type", "X-Serial")


def digest_of(status: int, headers: tuple[str, ...], body: bytes) -> str:
    """Of what the upstream said: status, headers, body."""
    return hashlib.sha256(repr((status, headers)).encode() + body).hexdigest()[:32]


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
            except (OSError, http.client.HTTPException):
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
        headers = {"Content-Type": "application/json"}
        if self._in_run and self._keyed:
            headers["Idempotency-Key"] = key
        connection = http.client.HTTPConnection("127.0.0.1", self._coin.choice(self._ports), timeout=8)
        try:
            target = f"{self._prefix}/up/{step.path(in_run=self._in_run)}"
            connection.request("POST", target, step.body(), headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        semel, call = answer.getheader("Semel-Status", ""), answer.getheader("Semel-Call", "")
        problem, digest = "", ""
        if semel == "refused":
            members = json.loads(said)
            problem, call = members["type"].removeprefix("urn:semel:"), members.get("call", call)
        else:
            kept = tuple(answer.getheader(name, "") for name in HEADERS)
            digest = digest_of(answer.status, kept, said)
        self._write(step, asked_at, answer.status, problem, semel=semel, call=call, digest=digest)
        return problem if answer.status == 200 or problem else f"status {answer.status}", semel == "passed"

    def _write(self, step: Step, asked_at: float, status: int, problem: str, **more: str) -> None:
        line = {
            "step": step.name, "asked_at": asked_at, "at": time.time(), "status": status, "problem": problem,
            "where": self._prefix, **more,
        }  # fmt: skip
        os.write(self._log, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    Agent(json.loads(sys.argv[1])).run()
