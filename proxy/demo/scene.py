"""What a scene of act one is played with: a toy API, an agent, a semel, in a directory of their own.

The agent's command is the same in every scene; only its base URL differs. What came of its charge is read
from what it printed, and how often the card was charged is asked of the toy API.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import textwrap
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.demo.stage import Ended, Mishap, Server, Stage, Tell

INVOICE = "inv-1001"
API = (sys.executable, "-m", "proxy.demo.api")
MODEL = (sys.executable, "-m", "proxy.demo.model")
TOOLS = (sys.executable, "-m", "proxy.demo.tools")
SERVE = (sys.executable, "-m", "proxy.cli", "serve")
RUN = (sys.executable, "-m", "proxy.cli", "run")
AGENT = (sys.executable, "-m", "proxy.demo.agent", INVOICE)
UPSTREAM = "payments"
POLICY = """\
upstream: payments
base_url: {url}
rules:
  - name: charge
    match: {{method: POST, path: /v1/charges}}
    tool: charge_card
    mode: once
"""
WIDTH = 78
# Seconds between two looks at the toy's books, and for one look.
LOOK_AGAIN, LOOKING = 0.01, 10.0

# Answers without Semel-Status come from the API itself.
CHARGED, LOST, NOT_ASKED = "charged", "lost", "not asked"
_ANSWER = re.compile(r"^POST /v1/charges: \d+(?:, Semel-Status: (?P<status>[\w-]+))?, (?P<ms>[\d.]+) ms$")
_NO_ANSWER = re.compile(r"^POST /v1/charges: no answer")
_PROBLEM = re.compile(r"urn:semel:([\w-]+)")


@dataclass(frozen=True, slots=True)
class Asked:
    """One run of the agent: what came of its charge, how long that took, how the agent ended."""

    outcome: str
    milliseconds: float | None
    status: int


@dataclass(frozen=True, slots=True)
class Commands:
    """What is started. Tests put broken ones in their place."""

    serve: Sequence[str] = SERVE
    api: Sequence[str] = API
    run: Sequence[str] = RUN
    model: Sequence[str] = MODEL
    tools: Sequence[str] = TOOLS


class Scene:
    """`tell` is given what people read."""

    def __init__(self, stage: Stage, name: str, tell: Tell, commands: Commands) -> None:
        self.directory = stage.directory / name
        self.directory.mkdir()
        self.state = self.directory / "state"
        self.tell = tell
        self._stage = stage
        self._commands = commands
        self._api = ""
        self._semel: Server | None = None

    async def open_api(self, *, hang: int = 0) -> None:
        """With `hang`, so many charges take effect and are never answered."""
        command = (*self._commands.api, "--hang", str(hang))
        self._api = (await self._stage.start("toy-api", command, self.directory)).url
        self.tell(f"  The toy payments API is ready on {self._api}")

    async def open_semel(self) -> None:
        policy = self.directory / f"{UPSTREAM}.yaml"
        policy.write_text(POLICY.format(url=self._api))
        flags = ("--listen", "127.0.0.1:0", "--state-dir", str(self.state), "--policies", str(policy))
        self._semel = await self._stage.start("semel", (*self._commands.serve, *flags), self.directory)
        self.tell(f"  semel is ready on {self._semel.url} ({policy.name}: charge once)")

    async def kill_semel(self) -> None:
        assert self._semel is not None
        await self._stage.kill(self._semel.process)
        self._semel = None

    async def agent(self, *, dies: bool = False) -> Asked:
        url = f"{self._semel.url}/{UPSTREAM}" if self._semel else self._api
        env = {"API_URL": url, **({"AGENT_DIES": "1"} if dies else {})}
        self.tell(f"  $ API_URL={url} python -m proxy.demo.agent {INVOICE}")

        def tell_line(line: str) -> None:
            self.tell(wrapped(f"    agent: {line}"))

        return _asked(await self._stage.run("the agent", AGENT, self.directory, env, tell_line))

    async def charges(self) -> list[dict[str, Any]]:
        """The toy's books: every charge that took effect."""
        return await asyncio.to_thread(_charges, f"{self._api}/v1/charges")

    async def charged(self, meanwhile: asyncio.Task[Asked]) -> bool:
        """Waits until the first charge took effect. False: whoever was to ask for it has ended before."""
        while not meanwhile.done():
            if await self.charges():
                return True
            await asyncio.wait({meanwhile}, timeout=LOOK_AGAIN)
        return False


def wrapped(line: str) -> str:
    """For narrow terminals. What follows the first line stands under what was said."""
    return textwrap.fill(
        line, WIDTH, subsequent_indent=" " * 11, break_long_words=False, break_on_hyphens=False
    )


def _asked(ended: Ended) -> Asked:
    for line in ended.lines:
        if answer := _ANSWER.match(line):
            outcome = answer["status"] or CHARGED
            if outcome == "refused" and (problem := _PROBLEM.search("\n".join(ended.lines))):
                outcome = problem[1]
            return Asked(outcome, float(answer["ms"]), ended.status)
        if _NO_ANSWER.match(line):
            return Asked(LOST, None, ended.status)
    return Asked(NOT_ASKED, None, ended.status)


def _charges(url: str) -> list[dict[str, Any]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=LOOKING) as answer:
            charges: list[dict[str, Any]] = json.load(answer)["charges"]
    except (OSError, ValueError, LookupError) as error:
        raise Mishap(f"The toy API does not tell its charges ({url}): {error}") from None
    return charges
