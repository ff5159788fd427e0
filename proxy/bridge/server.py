"""The server's process: an upstream whose network is a pipe.

What was written to it may have been done, whatever becomes of the process. It has a session of its own, so
that signals meant for the client's group do not end it in the middle of a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.bridge.pipes import Out
from proxy.core.jsonrpc import Id, answers_to, is_request, is_response
from proxy.upstream.base import Answered, Lost, NotSent, Outgoing, Result, Sink

# After its stdin was closed, and after it was asked to end: seconds until it is asked, or killed. Clients
# give a server two seconds, send a signal, and kill it after two more: with the signal there is hurry.
ENDS_WITHIN, HURRIED, GIVES_IN_WITHIN = 3.0, 0.3, 1.2
# Whoever is asked these gives an answer that counts for the call in the course of which they are asked.
# Of this process's environment: what is said to semel alone.
SECRETS = frozenset({"SEMEL_TOKEN", "SEMEL_ENCRYPTION_KEY", "SEMEL_STORE"})
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


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Says when the process itself has ended: its own children may hold its pipes for much longer."""

    def __init__(self) -> None:
        super().__init__(limit=2**16, loop=asyncio.get_running_loop())
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        self.ended.set()
        super().process_exited()


class ServerProcess:
    """`start`, then `stop` and `forget` in any case."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        assert protocol.stdin is not None
        assert protocol.stdout is not None
        self._transport = transport
        self._ended = protocol.ended
        self._in = Out(protocol.stdin)
        self.out = protocol.stdout
        self._waiting: dict[tuple[type, Id], _Waiting] = {}
        self._over = ""

    @classmethod
    async def start(cls, command: Sequence[str], umask: int = -1) -> ServerProcess:
        """`umask`: its own, not this process's."""
        pipe = asyncio.subprocess.PIPE
        try:
            return cls(
                *await asyncio.get_running_loop().subprocess_exec(
                    _Protocol,
                    *command,
                    stdin=pipe,
                    stdout=pipe,
                    stderr=None,
                    start_new_session=True,
                    umask=umask,
                    env={name: value for name, value in os.environ.items() if name not in SECRETS},
                )
            )
        except FileNotFoundError:
            raise NotStarted(f"There is no command {command[0]!r}.", 127) from None
        except (OSError, ValueError) as error:
            raise NotStarted(f"{command[0]!r} cannot be started: {error}.", 126) from None

    async def say(self, line: bytes) -> None:
        await self._in.write(line)

    # ---- calls ----

    async def send(self, out: Outgoing, sink: Sink, may_send: Callable[[], bool]) -> Result:
        assert out.rpc is not None
        assert out.body is not None
        key = (type(out.rpc), out.rpc)
        if self._over:
            return NotSent(self._over)
        if key in self._waiting:
            return NotSent(f"the client has another call under way with the id {out.rpc!r}")
        waiting = self._waiting[key] = _Waiting()
        try:
            match await self._in.write(out.body.whole(), may_send):
                case None if self._in.gone:
                    return NotSent("the server reads nothing any more")
                case None:
                    return NotSent("this process was taken for dead before it was sent")
                case False:
                    return Lost("the server stopped reading")
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

    def heard(self, message: Any, line: bytes, others: Callable[[object], bool]) -> bool:  # noqa: ANN401 (JSON)
        """Whether this answers a call. `others`: whether an id is that of another request."""
        if is_request(message) and str(message["method"]) in ASKING:
            for each in self._waiting.values():  # nothing says for which of them
                each.asked = True
        if not is_response(message) or message.get("id") is None:
            return False
        waiting = self._asked_with(message, others)
        if waiting is None:
            return False
        if not waiting.answer.done():
            waiting.answer.set_result(line)
        return True

    def _asked_with(self, response: dict[str, Any], others: Callable[[object], bool]) -> _Waiting | None:
        """By its id as it is, or as another spelling of it where that belongs to nobody else."""
        id_ = response["id"]
        exact = self._waiting.get((type(id_), id_)) if isinstance(id_, int | str) else None
        if exact is not None or others(id_):
            return exact
        return next((each for (_, known), each in self._waiting.items() if answers_to(response, known)), None)

    def over(self, why: str) -> None:
        """It says nothing more."""
        self._over = self._over or why
        for each in self._waiting.values():
            if not each.answer.done():
                each.answer.set_exception(Gone(self._over))

    # ---- its end ----

    async def ended(self) -> int:
        """Its exit status, as a shell has it."""
        await self._ended.wait()
        status = self._transport.get_returncode()
        assert status is not None
        return 128 - status if status < 0 else status

    async def stop(self, hurry: asyncio.Event) -> int:
        """Its stdin is closed, which tells it to end; if it does not, it is told more plainly, and its own
        children with it."""
        self._in.close()
        if not await self._ends(ENDS_WITHIN, hurry) and not await self._ends(HURRIED):
            self._signal(signal.SIGTERM)
            if not await self._ends(GIVES_IN_WITHIN):
                self._signal(signal.SIGKILL)
        return await self.ended()

    def forget(self) -> None:
        self._transport.close()

    async def _ends(self, patience: float, hurry: asyncio.Event | None = None) -> bool:
        """Within so many seconds, or until there is hurry."""
        waits = [asyncio.create_task(each.wait()) for each in (self._ended, hurry) if each is not None]
        try:
            await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return self._ended.is_set()

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended.is_set():  # else its number may be another's by now
            with contextlib.suppress(OSError):
                os.killpg(self._transport.get_pid(), number)
