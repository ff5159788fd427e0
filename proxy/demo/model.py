"""A model API that says what a script tells it, for tests and demonstrations; the real SDKs work with it.

    POST /v1/chat/completions, /v1/responses, /v1/embeddings       as OpenAI's
    POST /v1/messages, /v1/messages/count_tokens                   as Anthropic's
    GET  /requests                                                 what has been asked so far, by path

A script is a function from the messages to the next step; `play` makes one of a list of steps. Every request
is counted, every answer bears its number, and the next ones can be made to fail: refused with a status, cut
in the middle, stalled. A request can ask for its own refusal, with the header that the tools have (tools.py).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from aiohttp import web

from proxy.demo.dialects import DIALECTS, Dialect
from proxy.demo.tools import MISHAP
from proxy.demo.turn import Document, Message, Step, ToolCall, Turn, tokens

Script: TypeAlias = Callable[[list[Message]], Step]
DIMENSIONS = 8
LARGEST_BODY = 32 * 1024 * 1024


def echo(messages: list[Message]) -> Step:
    asked = [message.text for message in messages if message.role in ("user", "tool")]
    return Step(f"You said: {asked[-1] if asked else ''}")


def play(*steps: Step) -> Script:
    """One step per turn. The conversation itself says which turn it is, so that an agent that starts again,
    or two at once, are each told what comes next for them; the last step is repeated for ever."""

    def script(messages: list[Message]) -> Step:
        turns = sum(message.role == "assistant" for message in messages)
        return steps[min(turns, len(steps) - 1)]

    return script


class Fault(NamedTuple):
    """What happens to one request instead of a good answer: a status, or an end after so many parts."""

    status: int = 200
    after: int = 0
    stalls: bool = False
    headers: tuple[tuple[str, str], ...] = ()


def refuse(status: int, **headers: str) -> Fault:
    """`retry_after="0"` becomes a header."""
    return Fault(status, headers=tuple((name.replace("_", "-"), value) for name, value in headers.items()))


def cut(after: int = 1) -> Fault:
    """The connection ends after so many events of a stream, or in the middle of a plain answer."""
    return Fault(after=after)


def stall(after: int = 1) -> Fault:
    """The same, but the connection stays open and nothing more comes."""
    return Fault(after=after, stalls=True)


class Asked(NamedTuple):
    number: int
    path: str
    headers: dict[str, str]  # names in lower case
    body: Document


class ModelApi:
    """`async with ModelApi(script) as api`, then `api.url`."""

    def __init__(
        self, script: Script = echo, *, host: str = "127.0.0.1", port: int = 0, work: float = 0.0,
        keeps: int | None = None,
    ) -> None:  # fmt: skip
        """`work`: seconds of thought before each answer. `keeps`: so many requests are remembered, the last
        ones; None: all of them."""
        self._script = script
        self._host, self._port = host, port
        self._work = work
        self._keeps = keeps
        self._counted: Counter[str] = Counter()
        self._faults: deque[Fault] = deque()
        self._past: dict[str, list[Message]] = {}  # what a response was about, for previous_response_id
        self._closing = asyncio.Event()
        self.requests: list[Asked] = []
        self.url = ""

    # ---- for whoever holds it ----

    def fail(self, *faults: Fault) -> None:
        """The next requests get these, one each."""
        self._faults.extend(faults)

    def count(self, path: str | None = None) -> int:
        return self._counted.total() if path is None else self._counted[path]

    # ---- the server ----

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_get("/requests", self._told)
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        for path in DIALECTS:
            app.router.add_post(path, self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self.url = f"http://{self._host}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        await self._runner.cleanup()

    async def _told(self, _request: web.Request) -> web.Response:
        return web.json_response({"requests": self.count(), "by_path": self._counted})

    async def _asked(self, request: web.Request) -> Asked:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = json.loads(await request.read())
        self._counted[request.path] += 1
        asked = Asked(self.count(), request.path, headers, body)
        self.requests.append(asked)
        if self._keeps is not None and len(self.requests) > self._keeps:
            forgotten = self.requests.pop(0)
            self._past.pop(f"resp_{forgotten.number}", None)
        return asked

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await self._asked(request)
        dialect = DIALECTS[asked.path]
        fault = self._faults.popleft() if self._faults else _fault_in(asked)
        if fault is not None and fault.status != 200:
            return _refused(dialect, fault, asked.number)
        turn = self._turn(asked, dialect)
        if self._work:
            await asyncio.sleep(self._work)
        if not asked.body.get("stream"):
            return await self._send_whole(request, dialect.whole(turn), fault)
        head = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        return await self._send(request, head, dialect.events(turn, asked.body), fault)

    def _turn(self, asked: Asked, dialect: Dialect) -> Turn:
        messages = [
            *self._past.get(asked.body.get("previous_response_id", ""), ()),
            *dialect.read(asked.body),
        ]
        step = self._script(messages)
        self._past[f"resp_{asked.number}"] = [*messages, Message("assistant", step.text)]
        prompt = sum(tokens(message.text) for message in messages)
        return Turn(asked.number, asked.body.get("model", "scripted"), step, prompt)

    async def _send_whole(
        self, request: web.Request, document: Document, fault: Fault | None
    ) -> web.StreamResponse:
        whole = json.dumps(document).encode()
        head = {"Content-Type": "application/json", "Content-Length": str(len(whole))}
        half = len(whole) // 2
        return await self._send(
            request, head, (whole[:half], whole[half:]), fault and fault._replace(after=1)
        )

    async def _send(
        self, request: web.Request, head: dict[str, str], parts: Iterable[bytes], fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=head)
        await response.prepare(request)
        for number, part in enumerate(parts):
            if fault is not None and number == fault.after:
                if fault.stalls:
                    await self._closing.wait()
                if request.transport is not None:
                    request.transport.close()  # after what was written, without an end
                return response
            await response.write(part)
        await response.write_eof()
        return response

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        asked = await self._asked(request)
        fault = self._faults.popleft() if self._faults else None
        if fault is not None and fault.status != 200:
            return _refused(DIALECTS["/v1/responses"], fault, asked.number)
        return await self._send_whole(request, _embedding(asked), fault)

    async def _count_tokens(self, request: web.Request) -> web.Response:
        asked = await self._asked(request)
        messages = DIALECTS["/v1/messages"].read(asked.body)
        return web.json_response({"input_tokens": sum(tokens(message.text) for message in messages)})


def _fault_in(asked: Asked) -> Fault | None:
    """`X-Toy: 429`, as the tools have it."""
    mishap = asked.headers.get(MISHAP.lower(), "")
    return refuse(int(mishap), retry_after="1") if mishap.isdigit() else None


def _refused(dialect: Dialect, fault: Fault, number: int) -> web.Response:
    problem = dialect.problem(fault.status, f"refused [answer {number}]")
    return web.json_response(problem, status=fault.status, headers=dict(fault.headers))


def _embedding(asked: Asked) -> Document:
    """The first number of every vector is the answer's, the second the text's."""
    given = asked.body.get("input", "")
    texts = given if isinstance(given, list) else [given]
    vectors = [[asked.number, index, *[0] * (DIMENSIONS - 2)] for index in range(len(texts))]
    shown: list[object] = [[float(number) for number in vector] for vector in vectors]
    if asked.body.get("encoding_format") == "base64":
        shown = [base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *vector)).decode() for vector in vectors]
    used = sum(tokens(str(text)) for text in texts)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(shown)
        ],
        "model": asked.body.get("model", "scripted"),
        "usage": {"prompt_tokens": used, "total_tokens": used},
    }


def read_steps(document: list[Document]) -> list[Step]:
    """From JSON: `[{"tools": [{"name": "pay", "arguments": {}}]}, {"text": "Done."}]`."""
    return [
        Step(
            one.get("text", ""),
            tuple(ToolCall(call["name"], call.get("arguments", {})) for call in one.get("tools", ())),
        )
        for one in document
    ]


async def _serve(script: Script, port: int, work: float) -> None:
    async with ModelApi(script, port=port, work=work) as api:
        print(f"the scripted model is ready on {api.url}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--steps", type=Path, metavar="FILE", help="JSON: what the model does, turn by turn")
    parser.add_argument("--work", type=float, default=0.0, metavar="SECONDS", help="before each answer")
    given = parser.parse_args()
    script = play(*read_steps(json.loads(given.steps.read_text()))) if given.steps else echo
    asyncio.run(_serve(script, given.port, given.work))


if __name__ == "__main__":
    main()
