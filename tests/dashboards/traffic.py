"""A fixed script: everything that a metric counts happens, a known number of times."""

from __future__ import annotations

import asyncio
import json
import signal

from tests import ambient
from tests.dashboards.playing import LOST, Done, Player
from tests.dashboards.world import (
    AGENT,
    CHARGE,
    HEADLINE,
    ITEMS,
    KNOCK,
    LIMITED,
    NEVER,
    OPERATOR,
    OTHER,
    READ,
    REFUND,
    SEND,
    WIRE,
    WORKERS,
    World,
)
from tests.inside import raw_call, read_answer, until
from tests.process import SemelProcess, kill_at
from tests.stores.calls import claim, settle

# So many calls that are past their time.
EXPIRED = 3


async def play(there: World, semel: SemelProcess) -> Done:
    """All that happens at the proxy with several workers."""
    player = Player(semel.port)
    done = player.done
    await _given_again(player)
    await _joined(player, there)
    await _refused(player)
    await _held(player, there)
    await _in_runs(player)
    await _looked_on(player)
    await _drifted(player)
    await _recovered(there, semel, done)
    await _collected(there, semel, done)
    await _reloaded(there, semel, done)
    return done


async def _given_again(player: Player) -> None:
    for n in range(5):
        await player.ask(CHARGE, n)
    for n in (0, 0, 1, 2):
        await player.ask(CHARGE, n, status="replayed")
    await player.ask(OTHER, 1)
    await player.ask(OTHER, 1, status="replayed")
    for n in range(2):
        await player.ask(ITEMS, n)
    for n in (0, 0, 1):
        await player.ask(ITEMS, n, status="replayed")
    for n in range(3):
        await player.ask(READ, n, status="passed")
    await player.ask(READ, 1, status="passed", upstream_says=500)
    await player.ask(CHARGE, 50, upstream_says=429)
    await player.ask(CHARGE, 51, upstream_says=404)
    player.done.states.update({"done": 9, "released": 1})


async def _joined(player: Player, there: World) -> None:
    """Nobody tells that a caller waits for somebody else's answer; so it is tried until one has."""
    for n in range(100, 120):
        there.upstream.gate.clear()
        before = there.upstream.started
        first = asyncio.create_task(raw_call(player.port, player.request(CHARGE, n, slow=True)))
        await until(lambda: there.upstream.started > before)  # noqa: B023 (awaited at once)
        others = [
            asyncio.create_task(raw_call(player.port, player.request(CHARGE, n, slow=True))) for _ in range(3)
        ]
        await asyncio.sleep(0.2)
        there.upstream.gate.set()
        player.count(CHARGE, await first, status="executed")
        player.done.states["done"] += 1
        answers = await asyncio.gather(*others)
        for one in answers:
            assert one.semel in ("joined", "replayed")
            player.count(CHARGE, one, status=str(one.semel))
        if any(one.semel == "joined" for one in answers):
            return
    raise AssertionError("no caller joined another's call")


async def _refused(player: Player) -> None:
    for _ in range(2):  # refused while the request is read, and so counted without labels
        await player.refused_at_the_door("denied", f"/{NEVER.upstream}{NEVER.target}", Semel_Token=AGENT)
    await player.ask(LIMITED, 1)
    await player.ask(LIMITED, 2, status="refused", problem="budget-exceeded")
    await player.ask(KNOCK, status="refused", problem="upstream-unreachable")
    await player.ask(CHARGE, 60, Idempotency_Key="one")
    await player.ask(CHARGE, 61, status="refused", problem="key-conflict", Idempotency_Key="one")
    await player.refused_at_the_door("unknown-upstream", "/nobody/x", Semel_Token=AGENT)
    await player.refused_at_the_door("unauthorized", "/bank/charge", Semel_Token="wrong")
    await player.refused_at_the_door("forbidden", "/bank/charge", Semel_Token=OPERATOR)
    await player.refused_at_the_door("bad-request", "/@no%20run/bank/charge", Semel_Token=AGENT)
    player.done.states.update({"done": 2, "released": 1})


async def _held(player: Player, there: World) -> None:
    """Two in doubt; of three that need approval, one is approved and sent. The first notification fails."""
    await player.ask(CHARGE, 70, status="refused", problem="in-doubt", upstream_says=LOST)
    await until(lambda: there.receiver.started)
    await player.ask(CHARGE, 71, status="refused", problem="in-doubt", upstream_says=500)
    asked = [await player.ask(WIRE, n, status="refused", problem="awaiting-approval") for n in range(3)]
    await player.decide(str(asked[0].get("Semel-Call")), "approve")
    await player.ask(WIRE, 0)
    player.done.states.update({"in_doubt": 2, "awaiting_approval": 2, "done": 1})
    player.done.notifications.update(
        {("in_doubt", "failed"): 1, ("in_doubt", "delivered"): 2, ("awaiting_approval", "delivered"): 3}
    )


async def _in_runs(player: Player) -> None:
    """A second attempt that does something else; an agent that asks the same six times in one attempt."""
    await player.ask(CHARGE, 80, run="r1+a1")
    await player.ask(CHARGE, 80, run="r1+a2", status="replayed")
    await player.ask(CHARGE, 81, run="r1+a2")
    await player.ask(CHARGE, 82, run="r1+a3", status="refused", problem="diverged")
    player.done.divergences[()] += 1
    player.done.notifications["diverged", "delivered"] += 1
    # On one connection, so that one worker sees all of it.
    reader, writer = await asyncio.open_connection("127.0.0.1", player.port)
    for n in range(6):
        writer.write(player.request(REFUND, 1, run="r2+a1"))
        player.count(REFUND, await read_answer(reader), status="replayed" if n else "executed")
    writer.close()
    player.done.polls[REFUND.upstream, REFUND.name] += 1
    player.done.states["done"] += 3


async def _looked_on(player: Player) -> None:
    """In shadow mode each goes out; the second of two would have been given again."""
    for n in (0, 0, 1):
        await player.ask(SEND, n, status="passed")
    place = (SEND.upstream, SEND.name)
    player.done.shadow_calls.update({(*place, "executed"): 2, (*place, "replayed"): 1})
    player.done.shadow_prevented[place] += 1
    player.done.shadow_saved[place] += SEND.usd  # type: ignore[assignment]


async def _drifted(player: Player) -> None:
    await player.ask(HEADLINE)
    await asyncio.sleep(0.01)  # ten times its age: nothing else makes an answer old
    await player.ask(HEADLINE)
    player.done.states["done"] += 1
    player.done.drifts[HEADLINE.upstream, HEADLINE.name] += 1


async def _recovered(there: World, semel: SemelProcess, done: Done) -> None:
    """A second proxy dies with two calls under way: one with effects, one without."""
    there.upstream.gate.clear()
    async with there.proxy(faults=kill_at("request_sent", after=1)) as victim:
        lost = Player(victim.port)
        before = there.upstream.started
        reading = asyncio.create_task(raw_call(victim.port, lost.request(READ, 90, run="r3+a1", slow=True)))
        await until(lambda: there.upstream.started > before)
        assert not (await raw_call(victim.port, lost.request(CHARGE, 90))).complete
        assert not (await reading).complete
        assert await victim.died() == -signal.SIGKILL
    there.upstream.gate.set()
    await until(lambda: semel.log.count('"event":"recovered"') == 2, within=30)
    done.recovered.update({("in_doubt",): 1, ("released",): 1})
    done.states.update({"in_doubt": 1, "released": 1})
    done.notifications["in_doubt", "delivered"] += 1


async def _collected(there: World, semel: SemelProcess, done: Done) -> None:
    """Calls from long ago, written beside the proxy: those of today stay for a minute beyond their time."""
    store = await ambient.opened(there.state)
    try:
        for _ in range(EXPIRED):
            pending, entry = claim(store.owner)
            assert await store.swap(pending, entry, expected=0)
            settled, entry = settle(pending)
            size = len(settled.request + settled.answer.head + settled.answer.body)
            assert await store.swap(settled, entry, expected=pending.version)
    finally:
        await store.close()
    await until(lambda: sum(_collected_in(semel.log)) == EXPIRED, within=30)
    done.collected["calls",] += EXPIRED
    done.collected_bytes[()] += EXPIRED * size


async def _reloaded(there: World, semel: SemelProcess, done: Done) -> None:
    """Every worker reads them anew; the second time they are wrong, and the old ones stay."""
    file = there.policies / "gone.yaml"
    good = file.read_text()
    for text, event, result in (
        (good + "# the same\n", "policies-reloaded", "good"),
        ("rules: [", "policies-kept", "bad"),
    ):
        file.write_text(text)
        semel.send(signal.SIGHUP)
        await until(lambda: semel.log.count(f'"event":"{event}"') == WORKERS)  # noqa: B023 (awaited at once)
        done.reloads[result,] += WORKERS
    file.write_text(good)


def _collected_in(log: str) -> list[int]:
    told = [json.loads(line) for line in log.splitlines() if '"event":"collected"' in line]
    return [int(line["calls"]) for line in told]


async def play_beside(semel: SemelProcess) -> Done:
    """At a second proxy on the same record: what the first has sent is given again here too."""
    player = Player(semel.port)
    for n in range(200, 203):
        await player.ask(CHARGE, n)
    for n in (0, 1, 200, 200):
        await player.ask(CHARGE, n, status="replayed")
    player.done.states["done"] += 3
    return player.done
