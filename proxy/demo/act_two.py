"""Act two: an agent with a model and three tools, killed at random steps until it finishes; twice.

Once by itself, once behind `semel run`. Agent, environment and kills are the same. How often the model was
asked and what took effect is what the two APIs say themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.demo.kills import STEPS, Moment, draw_kills, moment_of, read_log
from proxy.demo.scene import LOOKING, Commands, wrapped
from proxy.demo.stage import Ended, Mishap, Stage, Tell

AGENT = Path(__file__).with_name("trip.py")
RUN = "task-42"
# Seconds that the model and each tool take; a replay does not.
WORK = 0.1
# Of an agent that failed, which it should not.
LINES_TOLD = 4
SCRIPT = [
    {"tools": [{"name": "search", "arguments": {"query": "train to Ulm, Friday"}}]},
    {"tools": [{"name": "charge", "arguments": {"card": "card-7", "amount": 4900}}]},
    {"tools": [{"name": "email", "arguments": {"to": "ann@example.com", "text": "Your ticket: ICE 596"}}]},
    {"text": "The train is booked and the ticket is on its way."},
]
POLICIES = {
    "model.yaml": "upstream: model\nextends: openai\nbase_url: {model}\n",
    "tools.yaml": (
        "upstream: tools\nbase_url: {tools}\nrules:\n"
        "  - {{name: search, match: {{method: GET, path: /search}}, tool: search, cost: {{usd: 0.01}}}}\n"
        "  - {{name: charge, match: {{method: POST, path: /charges}}, tool: charge}}\n"
        "  - {{name: email, match: {{method: POST, path: /emails}}, tool: email}}\n"
    ),
}
COUNTED = tuple(dict.fromkeys(STEPS))
# Of a run that goes well, whatever happens to the agent.
ONCE = {name: STEPS.count(name) for name in COUNTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the agent. `killed` None: it ended by itself. Without semel nothing is replayed, and
    `replayed` is None where semel did not tell."""

    killed: Moment | None
    status: int
    done: int  # steps that the agent has an answer of
    replayed: int | None
    executed: int | None
    seconds: float

    def __str__(self) -> str:
        ended = f"killed {self.killed}" if self.killed else "finished" if self.status == 0 else "failed"
        if self.replayed is None:
            return f"{ended:<32} {self.done} of {len(STEPS)} steps done"
        return f"{ended:<32} {self.replayed} replayed, {self.executed} executed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    title: str
    starts: tuple[Start, ...]
    counts: dict[str, int]

    @property
    def finished(self) -> bool:
        return self.starts[-1].status == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    seed: int
    kills: tuple[Moment, ...]
    without: Side
    behind: Side  # semel
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """In which way it is not what was promised."""
        found = [
            f"{self.behind.title}: {name}: {self.behind.counts[name]}, promised: {once}"
            for name, once in ONCE.items()
            if self.behind.counts[name] != once
        ]
        found += [f"{side.title}: the agent did not finish" for side in self.sides if not side.finished]
        if not found and not all(self.without.counts[name] > ONCE[name] for name in ONCE):
            # Every seed kills it once after all effects: somebody has repaired what the demo is about.
            found.append(f"{self.without.title}: nothing happened twice: {self.without.counts}")
        return found

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.without, self.behind


async def play_act_two(stage: Stage, tell: Tell, commands: Commands, seed: int) -> Journey:
    kills = draw_kills(seed)
    tell("\nAct 2: an agent books a trip")
    tell("  A model decides, three tools act: a paid search, a charge, an email.")
    tell(f"  It is killed (SIGKILL) at random ones of its {len(STEPS)} steps until it finishes.")
    tell(f"  Seed {seed}; once more with the same kills: semel demo --act 2 --seed {seed}")
    began = time.monotonic()
    without = await _Scenery(stage, "without semel", tell, commands).play(kills)
    behind = await _Scenery(stage, "with semel", tell, commands).play(kills, behind_semel=True)
    seconds = time.monotonic() - began
    return Journey(seed=seed, kills=kills, without=without, behind=behind, seconds=seconds)


class _Scenery:
    """One side: its APIs, its directory, its agent."""

    def __init__(self, stage: Stage, title: str, tell: Tell, commands: Commands) -> None:
        self._stage, self._title, self._tell, self._commands = stage, title, tell, commands
        self._directory = stage.directory / f"act-2-{title.replace(' ', '-')}"
        self._model = self._tools = ""

    async def play(self, kills: tuple[Moment, ...], *, behind_semel: bool = False) -> Side:
        self._directory.mkdir()
        shutil.copy(AGENT, self._directory / "agent.py")
        await self._open_apis()
        agent: tuple[str, ...] = (sys.executable, "agent.py")
        shown, command = "python agent.py", agent
        if behind_semel:
            self._write_policies()
            flags = ("--id", RUN, "--state-dir", "state", "--policies", "policies", "--json", "--")
            command = (*self._commands.run, *flags, *agent)
            shown = f"semel run {' '.join(flags)} \\\n      {shown}"
        self._tell(f"\n  {self._title[0].upper()}{self._title[1:]}:\n  $ {shown}")
        starts: list[Start] = []
        for kill in (*kills, None):
            starts.append(await self._start(command, kill, behind_semel=behind_semel))
            self._tell(f"    start {len(starts)}: {starts[-1]}")
            if starts[-1].killed is None:  # it was faster than the kill, or nobody kills it any more
                break
        return Side(title=self._title, starts=tuple(starts), counts=await asyncio.to_thread(self._counts))

    async def _open_apis(self) -> None:
        script = self._directory / "script.json"
        script.write_text(json.dumps(SCRIPT))
        model = (*self._commands.model, "--steps", str(script), "--work", str(WORK))
        self._model = (await self._stage.start("model", model, self._directory)).url
        tools = (*self._commands.tools, "--work", str(WORK))
        self._tools = (await self._stage.start("tools", tools, self._directory)).url

    def _write_policies(self) -> None:
        policies = self._directory / "policies"
        policies.mkdir()
        for name, text in POLICIES.items():
            (policies / name).write_text(text.format(model=self._model, tools=self._tools))

    async def _start(self, command: tuple[str, ...], kill: Moment | None, *, behind_semel: bool) -> Start:
        env = {"MODEL_URL": f"{self._model}/v1", "TOOLS_URL": self._tools}
        if behind_semel:  # to which the way leads by HTTP_PROXY
            env |= {"NO_PROXY": "", "no_proxy": ""}
        logged = 0
        due: list[asyncio.TimerHandle] = []

        def look(line: str) -> None:
            nonlocal logged
            if (entry := read_log(line)) is None:
                return
            logged += 1
            if kill is not None and logged == kill.line:
                wait = WORK / 2 if kill.phase == "asked" else 0.0  # the request is out, the answer not yet in
                due.append(asyncio.get_running_loop().call_later(wait, _kill, entry.pid))

        began = time.monotonic()
        ended = await self._stage.run("the agent", command, self._directory, env, look, gently=behind_semel)
        for handle in due:  # it has ended: its pid may be another's by now
            handle.cancel()
        if ended.status not in (0, -signal.SIGKILL):
            for line in ended.lines[-LINES_TOLD:]:
                self._tell(wrapped(f"    agent: {line}"))
        return _started(ended, time.monotonic() - began, behind_semel=behind_semel)

    def _counts(self) -> dict[str, int]:
        """Of the APIs' own books."""
        told = {"model": _look(f"{self._model}/requests")["requests"], **_look(f"{self._tools}/books")}
        return {name: told[name] for name in COUNTED}


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _started(ended: Ended, seconds: float, *, behind_semel: bool) -> Start:
    """Where it was killed is what its log says, not what was meant: a replay may be faster than a kill."""
    log = [entry for line in ended.lines if (entry := read_log(line))]
    figures = _figures(ended) if behind_semel else {}
    return Start(
        killed=moment_of(len(log)) if ended.status == -signal.SIGKILL else None,
        status=ended.status,
        done=sum(entry.phase == "done" for entry in log),
        replayed=figures.get("replayed"),
        executed=figures.get("executed"),
        seconds=seconds,
    )


def _figures(ended: Ended) -> dict[str, Any]:
    """`semel run --json` ends with one line."""
    for line in reversed(ended.lines):
        if line.startswith("{"):
            return json.loads(line).get("figures") or {}
    return {}


def _look(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=LOOKING) as answer:
            document: dict[str, Any] = json.load(answer)
    except (OSError, ValueError) as error:
        raise Mishap(f"Its books cannot be read ({url}): {error}") from None
    return document
