"""`semel mcp` on the command line: what it refuses, what it says and where, and what `semel run` tells it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from proxy.core.policy import TOOLS_NAME
from tests.cli.command import semel
from tests.mcp.bridging import OPEN, Scene, call_of, text_of
from tests.process import ROOT

HTTP = "upstream: shop\nbase_url: http://127.0.0.1:9\n"


async def ran(scene: Scene, *words: str) -> tuple[int, str, str]:
    """`semel mcp` with a stdin that is at its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", "mcp", "--state-dir", str(scene.state), *words,
        cwd=ROOT, env=scene.environment(), stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        said, complained = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode(), complained.decode()


NO_COMMAND = "semel mcp -- npx"


@pytest.mark.parametrize(
    ("words", "command", "told"),
    [
        ((), False, NO_COMMAND),
        (("--",), False, NO_COMMAND),
        (("python", "server.py"), False, NO_COMMAND),
        (("--run", "a/b"), True, "--run"),
        (("--run", ""), True, "--run"),
        (("--run", "r+"), True, "--run"),
        (("--upstream", "No_Name"), True, "--upstream"),
        (("--upstream", TOOLS_NAME), True, "--upstream"),
        (("--upstream", "shop", "--policies", "{at}/http.yaml"), True, "protocol: http"),
        (("--policies", "{at}/none.yaml"), True, "none.yaml"),
        (("--nonsense",), True, "nonsense"),
    ],
)
def test_bad_usage(
    scene: Scene, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], command: bool, told: str
) -> None:
    """Status 2, a word on stderr that says what to change, nothing on stdout, and no server is started."""
    (scene.at / "http.yaml").write_text(HTTP)
    given = [word.format(at=scene.at) for word in words]
    done = semel(capsys, "mcp", *given, *(("--", *scene.direct()) if command else ()))
    assert (done.status, done.out) == (2, "")
    assert told in done.err
    assert not scene.state.exists()


def test_a_bad_run_in_the_environment(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_RUN", "a b")
    done = semel(capsys, "mcp", "--", *scene.direct())
    assert (done.status, done.out) == (2, "")
    assert "run" in done.err


async def test_what_cannot_be_started(scene: Scene) -> None:
    """As a shell has it: 127 for no such command, 126 for what is none."""
    plain = scene.at / "plain"
    plain.write_text("no program")
    for command, status, told in (("no-such-command-here", 127, "no-such-command"), (plain, 126, "started")):
        ended, out, complained = await ran(scene, "--", str(command))
        assert (ended, out) == (status, "")
        assert told in complained
        assert "Traceback" not in complained


async def test_stdin_that_has_no_end_to_wait_for(scene: Scene) -> None:
    """/dev/null: at its end at once. The server is started, and ended."""
    assert await ran(scene, "--", *scene.direct()) == (0, "", "")


@pytest.mark.parametrize("quiet", [False, True], ids=["plain", "quiet"])
async def test_nothing_but_messages_on_stdout(scene: Scene, quiet: bool) -> None:
    """A line of JSON on stderr for every call, or none with --quiet. What the server says on its stderr is
    there too."""
    complains = (
        f"import sys; print('starting', file=sys.stderr); sys.argv[1:] = [{str(scene.ledger.path)!r}]; "
    )
    server = [sys.executable, "-c", complains + "import tests.mcp.odd as odd; odd.main()"]
    scene = replace(scene, options=("--quiet",) if quiet else ())
    async with scene.by_hand(server=server) as bridge:
        await bridge.ask("initialize", OPEN, 0)
        for n in range(3):
            await bridge.call("pay", {"order": "1"}, f"c{n}")
        bridge.leave()
        assert await bridge.ended() == 0
        assert all(message["jsonrpc"] == "2.0" for message in bridge.messages)
        lines = bridge.log.splitlines()
    assert lines[0] == "starting"
    told = [json.loads(line) for line in lines[1:]]
    assert [each["status"] for each in told] == ([] if quiet else ["executed", "replayed", "replayed"])


async def test_the_server_has_its_own_umask(scene: Scene) -> None:
    """semel's files are for this user alone; what the server writes is as it would be without semel."""
    before = await asyncio.create_subprocess_exec("sh", "-c", "umask", stdout=PIPE)
    out, _ = await before.communicate()
    async with scene.by_hand() as bridge:
        assert int(text_of(await bridge.call("umask")), 8) == int(out, 8)
    assert all(path.stat().st_mode & 0o077 == 0 for path in [scene.state, *scene.state.rglob("*")])


AGENT = """
import json, os, subprocess, sys
words = [sys.executable, "-m", "proxy.cli", "mcp", "--state-dir", sys.argv[1], "--", *sys.argv[3:]]
bridge = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for order in "123":
    call = {"name": "pay", "arguments": {"order": order}}
    message = {"jsonrpc": "2.0", "id": order, "method": "tools/call", "params": call}
    bridge.stdin.write(json.dumps(message).encode() + b"\\n")
    bridge.stdin.flush()
    print(json.loads(bridge.stdout.readline())["result"]["content"][0]["text"], flush=True)
    if order == sys.argv[2]:
        os.kill(os.getpid(), 9)
bridge.stdin.close()
bridge.wait()
"""


async def test_in_a_run_of_semel_run(scene: Scene) -> None:
    """The agent starts `semel mcp -- server` and says nothing of a run: its environment does. Killed and run
    again: three calls, and the second start is another attempt."""
    file: Path = scene.at / "agent.py"
    file.write_text(AGENT)
    outs = []
    for dies_after in ("2", "never"):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "proxy.cli", "run", "--state-dir", str(scene.state), "--id", "night", "--",
            sys.executable, str(file), str(scene.state), dies_after, *scene.direct(),
            cwd=ROOT, env=scene.environment(), stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, complained = await process.communicate()
        outs.append((process.returncode, out.decode().split("\n")[:-1]))
    assert outs == [(-9, ["pay 1", "pay 2"]), (0, ["pay 1", "pay 2", "pay 3"])], complained.decode()
    assert scene.ledger.lines == ["pay 1", "pay 2", "pay 3"]


async def test_every_start_is_an_attempt_where_none_is_named(scene: Scene) -> None:
    """--run RUN: what a start does twice is done twice, and the next start is given both."""
    for _ in range(2):
        async with scene.by_hand("night") as bridge:
            await bridge.say(call_of("pay", {"order": "1"}, 1))
            assert text_of(await bridge.answer(1)) == "pay 1"
            assert text_of(await bridge.call("pay", {"order": "1"}, 2)) == "pay 2"
    assert scene.ledger.count() == 2
