"""Act one in three scenes, and what each of them promises.

Nothing is taken for granted: how often the card was charged is asked of the toy API, what semel did is what
the agent was told, and a scene that comes out otherwise says what is wrong.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from proxy.admin.desk import INLINE_BODY
from proxy.answers import Answers
from proxy.clock import SystemClock
from proxy.core.intent import Call, State
from proxy.demo.scene import CHARGED, INVOICE, LOST, Asked, Commands, Scene, wrapped
from proxy.demo.stage import Stage, Tell
from proxy.keeping import open_store
from proxy.observe import Deaf
from proxy.operator import Verdict, resolve
from proxy.settings import Settings
from proxy.store.base import Query
from proxy.store.codec import Codec


@dataclass(frozen=True, slots=True)
class Promise:
    """How often the card is charged, and what comes of each run's charge."""

    title: str
    charges: int
    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    promise: Promise
    charges: int
    asked: tuple[Asked, ...]
    seconds: float

    @property
    def outcomes(self) -> tuple[str, ...]:
        return tuple(run.outcome for run in self.asked)

    @property
    def wrong(self) -> list[str]:
        """In which way it is not what was promised."""
        promise = self.promise
        found = []
        if self.charges != promise.charges:
            found.append(f"{promise.title}: charges: {self.charges}, promised: {promise.charges}")
        if self.outcomes != promise.outcomes:
            came, said = ", ".join(self.outcomes), ", ".join(promise.outcomes)
            found.append(f"{promise.title}: the charge was {came}; promised: {said}")
        if self.asked[-1].status != 0:
            found.append(f"{promise.title}: the last run of the agent failed")
        return found


async def play_act_one(stage: Stage, tell: Tell, commands: Commands) -> list[Performance]:
    tell("\nAn agent pays an invoice, and is killed between paying and noting it.")
    tell("The agent, its command and the API stay the same; only the base URL differs.")
    played = []
    for number, (promise, perform) in enumerate(SCENES, 1):
        tell(f"\nAct 1, scene {number}: {promise.title}")
        scene = Scene(stage, f"act-1-scene-{number}", tell, commands)
        began = time.monotonic()
        asked = await perform(scene)
        charges = len(await scene.charges())
        tell(f"  Charges in the API's books for this one invoice: {charges}")
        seconds = time.monotonic() - began
        played.append(Performance(promise=promise, charges=charges, asked=asked, seconds=seconds))
    return played


async def _without(scene: Scene) -> tuple[Asked, ...]:
    await scene.open_api()
    return await _killed_and_run_again(scene)


async def _with(scene: Scene) -> tuple[Asked, ...]:
    await scene.open_api()
    await scene.open_semel()
    return await _killed_and_run_again(scene)


async def _killed_and_run_again(scene: Scene) -> tuple[Asked, ...]:
    first = await scene.agent(dies=True)
    if first.status == -signal.SIGKILL:
        scene.tell("  The agent was killed after the answer came and before it noted it. Again:")
    return first, await scene.agent()


async def _killed_too(scene: Scene) -> tuple[Asked, ...]:
    await scene.open_api(hang=1)
    await scene.open_semel()
    first = await _proxy_killed_under_way(scene)
    scene.tell("  semel is started again, with the record that it left on disk, and the agent:")
    await scene.open_semel()
    second = await scene.agent()
    await _settle(scene)
    scene.tell("  And the agent again:")
    return first, second, await scene.agent()


async def _proxy_killed_under_way(scene: Scene) -> Asked:
    running = asyncio.create_task(scene.agent())
    try:
        if await scene.charged(meanwhile=running):
            scene.tell("  The API has charged the card and does not answer. semel is killed now.")
        await scene.kill_semel()
        return await running
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _settle(scene: Scene) -> None:
    """As `semel calls resolve` does it: the store opened as one more process, the same compare and swap."""
    store = await open_store(Settings(state=scene.state))
    try:
        held = (await store.find(Query(state=State.IN_DOUBT))).calls
        if not held:
            scene.tell("  semel's record has no call in doubt: there is nothing to settle.")
            return
        call = held[0]  # the agent asks for one charge
        _show(scene.tell, call)
        found = [charge for charge in await scene.charges() if charge["invoice"] == INVOICE]
        body = json.dumps(found[0]).encode() if found else None
        reason = f"{found[0]['id']} is in the API's books" if found else "not in the API's books"
        _show_decision(scene, call, found, reason)
        await resolve(
            store,
            Answers(store=store, codec=Codec(), observer=Deaf(), inline_body=INLINE_BODY),
            SystemClock(),
            call.id,
            verdict=Verdict.EXECUTED if found else Verdict.NOT_EXECUTED,
            reason=reason,
            actor="demo",
            version=call.version,
            status=201 if found else None,
            headers=((b"Content-Type", b"application/json"),),
            body=body,
        )
    finally:
        await store.close()


def _show(tell: Tell, call: Call) -> None:
    assert call.doubt is not None  # Call refuses to be in doubt without one
    tell("  What semel knows, from its record on disk:")
    tell(f"    call   {call.id} ({call.tool})")
    tell(f"    state  {call.state}; sends: {call.sends}; held, not sent again")
    tell(wrapped(f"    why    {call.doubt.reason}"))


def _show_decision(scene: Scene, call: Call, found: list[dict[str, Any]], reason: str) -> None:
    flags = "--as not-executed"
    if found:
        (scene.directory / "charge.json").write_text(json.dumps(found[0]))
        flags = "--as executed --status 201 --body-file charge.json"
    scene.tell(f"  A person looks into the API's books and decides (in {scene.directory.name}/):")
    scene.tell(f"  $ semel calls resolve {call.id} \\")
    scene.tell(f"      {flags} \\")
    scene.tell(f'      --reason "{reason}" --state-dir {scene.state.name}')


SCENES: tuple[tuple[Promise, Callable[[Scene], Awaitable[tuple[Asked, ...]]]], ...] = (
    (Promise("without semel", 2, (CHARGED, CHARGED)), _without),
    (Promise("with semel", 1, ("executed", "replayed")), _with),
    (Promise("the proxy killed too", 1, (LOST, "in-doubt", "replayed")), _killed_too),
)
