"""A small agent as people write them: it thinks, reads, polls, writes, falls back, works in parallel.

`python -m tests.runs.busy_agent BASE ROUNDS` prints what it did as JSON lines and ends with 0; with 3 where a
call is held. It knows nothing of runs: BASE says where to send. What it does next depends on what it was
answered, so a wrong answer leads it astray.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit

HELD = 3
# How often it asks again when nobody is there, and how long it waits: the proxy is being restarted.
TRIES, PAUSE = 200, 0.05


class Held(Exception):
    pass


class Agent:
    def __init__(self, base: str, rounds: int) -> None:
        parts = urlsplit(base)
        assert parts.hostname is not None
        self._where = (parts.hostname, parts.port or 80)
        self._prefix, self._rounds = parts.path.rstrip("/"), rounds
        self._local = threading.local()
        self._messages: list[dict[str, str]] = []

    def run(self) -> None:
        for number in range(self._rounds):
            self._round(number)

    def _round(self, number: int) -> None:
        plan = self._think(f"plan round {number}")
        summary = self._think(f"summary of {plan}", stream=True)
        found = self.get(f"/search?q={number}")["result"]
        self._job(number)
        paid = self.post("/charge", {"round": number, "for": found, "note": summary})
        price = self._with_fallback(number)
        samples = self._at_once(
            lambda: self.get(f"/sample/{number}"),
            lambda: self.get(f"/sample/{number}"),
            lambda: self.get(f"/other/{number}"),
        )
        reminders = [self.post("/remind", {"round": number, "text": "still waiting"}) for _ in range(2)]
        guarded = [self.post("/guarded", {"round": number, "text": "only once"}) for _ in range(2)]
        mails = self._at_once(
            lambda: self.post("/mail", {"to": "a", "round": number}),
            lambda: self.post("/mail", {"to": "b", "round": number}),
        )
        thing = self._ensure_thing(number)
        say(
            round=number, plan=plan, summary=summary, found=found, paid=paid, price=price,
            samples=sorted(json.dumps(one) for one in samples), reminders=reminders, guarded=guarded,
            mails=mails, thing=thing,
        )  # fmt: skip

    def _think(self, words: str, *, stream: bool = False) -> str:
        self._messages.append({"role": "user", "content": words})
        asked = {"model": "m", "messages": self._messages, "stream": stream}
        said = str(self.post("/model", asked, stream=stream)["text"])
        self._messages.append({"role": "assistant", "content": said})
        return said

    def _job(self, number: int) -> None:
        """Polls until it is done; how often depends on the upstream."""
        while self.get(f"/job/{number}")["state"] != "done":
            pass

    def _with_fallback(self, number: int) -> object:
        """The first provider fails; the second one is used because of that."""
        status, body = self.ask("POST", "/provider-a", {"round": number})
        if status == 200:
            return body
        return self.post("/provider-b", {"round": number, "because": status})

    def _ensure_thing(self, number: int) -> object:
        status, body = self.ask("GET", f"/thing/{number}")
        if status == 404:
            self.post("/thing", {"name": str(number)})
            status, body = self.ask("GET", f"/thing/{number}")
        assert status == 200, (status, body)
        return body

    def _at_once(self, *works: object) -> list[object]:
        results: list[object] = [None] * len(works)
        errors: list[BaseException] = []

        def work(n: int) -> None:
            try:
                results[n] = works[n]()  # type: ignore[operator]
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results

    # ---- HTTP ----

    def get(self, path: str) -> dict[str, object]:
        return self._good(*self.ask("GET", path))

    def post(self, path: str, body: dict[str, object], *, stream: bool = False) -> dict[str, object]:
        return self._good(*self.ask("POST", path, body, stream=stream))

    def _good(self, status: int, body: dict[str, object]) -> dict[str, object]:
        assert status == 200, (status, body)
        return body

    def ask(
        self, method: str, path: str, body: dict[str, object] | None = None, *, stream: bool = False
    ) -> tuple[int, dict[str, object]]:
        data = None if body is None else json.dumps(body).encode()
        for _ in range(TRIES):
            try:
                status, text = self._once(method, path, data)
            except (ConnectionRefusedError, ConnectionResetError, http.client.HTTPException, BrokenPipeError):
                # Nobody there, or the connection broke: as many clients do, it asks again.
                self._local.__dict__.clear()
                time.sleep(PAUSE)
                continue
            if status == 409 and b"urn:semel:in-doubt" in text:
                raise Held
            if status == 503 or (status == 409 and b"urn:semel:in-progress" in text):
                time.sleep(PAUSE)
                continue
            print("step", file=sys.stderr, flush=True)  # whoever wants to kill it chooses the moment by these
            return status, _last_event(text) if stream and status == 200 else json.loads(text)
        raise RuntimeError("nobody answers")

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(*self._where, timeout=60)
        headers = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method, self._prefix + path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _last_event(text: bytes) -> dict[str, object]:
    events = [line[6:] for line in text.splitlines() if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]", text
    return {"text": "".join(json.loads(event)["delta"] for event in events[:-1])}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    try:
        Agent(sys.argv[1], int(sys.argv[2])).run()
    except Held:
        sys.exit(HELD)
