"""The server's process: an upstream whose network is a pipe.

What was written to it may have been done, whatever becomes of the process. It has a session of its own, so
that signals meant for the client's group do not end it in the middle of a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.bridge.pipes import Out
from proxy.core.jsonrpc import Id, answers_to
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink

# After its stdin was closed, and after it was asked to end: seconds until it is asked, or killed.
ENDS_WITHIN, GIVES_IN_WITHIN = 3.0, 3.0
# Whoever is asked these gives an answer that counts for the call in the course of which they are asked.
ASKING = frozenset({"elicitation/create", "sampling/createMessage"})


class NotStarted(Exception):
    """`status`: as a shell would have it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class _Waiting:
    asked: bool = False
    answer: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Gone(Exception):
    """The server has ended."""


class ServerProcess:
    """`start`, then `stop` in any case."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in = Out(process.stdin)
        self.out = process.stdout
        self._waiting: dict[tuple[type, Id], _Waiting] = {}
        self._over = ""

    @classmethod
    async def start(cls, command: Sequence[str]) -> ServerProcess:
        pipe = asyncio.subprocess.PIPE
        try:
            return cls(
                await asyncio.create_subprocess_exec(
                    *command, stdin=pipe, stdout=pipe, start_new_session=True
                )
            )
        except FileNotFoundError:
            raise NotStarted(f"There is no command {command[0]!r}.", 127) from None
        except (OSError, ValueError) as error:
            raise NotStarted(f"{command[0]!r} cannot be started: {error}.", 126) from None

    async def say(self, line: bytes) -> bool:
        return await self._in.write(line)

    # ---- calls ----

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        assert out.rpc is not None
        assert out.body is not None
        key = (type(out.rpc), out.rpc)
        if self._over:
            return NotSent(self._over, for_good=True)
        if key in self._waiting:
            return NotSent(f"the client has another request under way with the id {out.rpc!r}", for_good=True)
        if not may_send():
            return NotSent("this process was taken for dead before it was sent", for_good=True)
        waiting = self._waiting[key] = _Waiting()
        try:
            await self.say(out.body.whole())
            answer = await waiting.answer
        except Gone as gone:
            return Lost(str(gone))
        finally:
            del self._waiting[key]
        sink.head(200, ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(answer))))
        await sink.data(answer)
        return Answered(200, out.rpc, waiting.asked)

    async def close(self) -> None:
        """It is ended by `stop`."""

    def heard(self, message: Any, line: bytes) -> bool:  # noqa: ANN401 (JSON)
        """Whether this answers a call."""
        if not isinstance(message, dict):
            return False
        if message.get("method") in ASKING and "id" in message:
            for each in self._waiting.values():  # nothing says for which of them
                each.asked = True
        id_ = message.get("id")
        if not isinstance(id_, int | str):
            return False
        waiting = self._waiting.get((type(id_), id_))
        if waiting is None or not answers_to(message, id_):
            return False
        if not waiting.answer.done():
            waiting.answer.set_result(line)
        return True

    def over(self, why: str) -> None:
        """It says nothing more."""
        self._over = self._over or why
        for each in self._waiting.values():
            if not each.answer.done():
                each.answer.set_exception(Gone(self._over))

    # ---- its end ----

    async def ended(self) -> int:
        """Its exit status, as a shell has it."""
        status = await self._process.wait()
        return 128 - status if status < 0 else status

    async def stop(self) -> int:
        """Its stdin is closed, which tells it to end; if it does not, it is told more plainly."""
        self._in.close()
        for patience, then in ((ENDS_WITHIN, signal.SIGTERM), (GIVES_IN_WITHIN, signal.SIGKILL)):
            try:
                return await asyncio.wait_for(self.ended(), patience)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(then)
        return await self.ended()
