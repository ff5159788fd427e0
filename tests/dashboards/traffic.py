"""A fixed script: everything that a metric counts happens, a known number of times."""

from __future__ import annotations

import asyncio
import json
import signal

from tests import ambient
from tests.dashboards.playing import LOST, Done, Player
from tests.dashboards.world import (
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
    await _given_again(player)
    await _joined(player, there)
    await _refused(player)
    await _held(player, there)
    await _in_runs(player)
    await _looked_on(player)
    await _drifted(player)
    await _recovered(there, semel, player)
    await _collected(there, semel, player)
    await _reloaded(there, semel, player)
    return player.done


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
    player.stand(done=9, released=1)


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
        player.stand(done=1)
        answers = await asyncio.gather(*others)
        for one in answers:
            assert one.semel in ("joined", "replayed")
            player.count(CHARGE, one, status=str(one.semel))
        if any(one.semel == "joined" for one in answers):
            return
    raise AssertionError("no caller joined another's call")


async def _refused(player: Player) -> None:
    for _ in range(2):
        await player.ask(NEVER, status="refused", problem="denied")
    await player.ask(LIMITED, 1)
    await player.ask(LIMITED, 2, status="refused", problem="budget-exceeded")
    await player.ask(KNOCK, status="refused", problem="upstream-unreachable")
    await player.ask(CHARGE, 60, key="one")
    await player.ask(CHARGE, 61, status="refused", problem="key-conflict", key="one")
    await player.refused_at_the_door("unknown-upstream", "/nobody/x")
    await player.refused_at_the_door("unauthorized", "/bank/charge", token="wrong")
    await player.refused_at_the_door("forbidden", "/bank/charge", token=OPERATOR)
    await player.refused_at_the_door("bad-request", "/@no%20run/bank/charge")
    player.stand(done=2, released=1)


async def _held(player: Player, there: World) -> None:
    """Two in doubt; of four that need approval, one is approved and sent, one denied. The first notification
    fails."""
    await player.ask(CHARGE, 70, status="refused", problem="in-doubt", upstream_says=LOST)
    await until(lambda: there.receiver.started)
    await player.ask(CHARGE, 71, status="refused", problem="in-doubt", upstream_says=500)
    asked = [await player.ask(WIRE, n, status="refused", problem="awaiting-approval") for n in range(4)]
    # What is decided before it was told is told no more.
    await until(lambda: len([one for one in there.receiver.requests if one.complete]) == 1 + 2 + 4)
    await player.decide(str(asked[0].get("Semel-Call")), "approve")
    await player.decide(str(asked[1].get("Semel-Call")), "deny")
    await player.ask(WIRE, 0)
    player.stand(in_doubt=2, awaiting_approval=2, denied=1, done=1)
    told = player.done.add
    told("semel_notifications_total", type="in_doubt", result="failed")
    told("semel_notifications_total", 2, type="in_doubt", result="delivered")
    told("semel_notifications_total", 4, type="awaiting_approval", result="delivered")


async def _in_runs(player: Player) -> None:
    """A second attempt that does something else; an agent that asks the same six times in one attempt."""
    await player.ask(CHARGE, 80, run="r1+a1")
    await player.ask(CHARGE, 80, run="r1+a2", status="replayed")
    await player.ask(CHARGE, 81, run="r1+a2")
    await player.ask(CHARGE, 82, run="r1+a3", status="refused", problem="diverged")
    player.done.add("semel_divergences_total")
    player.done.add("semel_notifications_total", type="diverged", result="delivered")
    # On one connection, so that one worker sees all of it.
    reader, writer = await asyncio.open_connection("127.0.0.1", player.port)
    for n in range(6):
        writer.write(player.request(REFUND, 1, run="r2+a1"))
        player.count(REFUND, await read_answer(reader), status="replayed" if n else "executed")
    writer.close()
    player.done.add("semel_suspected_polls_total", upstream=REFUND.upstream, rule=REFUND.name)
    player.stand(done=3)


async def _looked_on(player: Player) -> None:
    """In shadow mode each goes out; the second of two would have been given again, the
    last held."""
    for n in (0, 0, 1):
        await player.ask(SEND, n, status="passed")
    await player.ask(SEND, 2, status="passed", upstream_says=500)
    place = {"upstream": SEND.upstream, "rule": SEND.name}
    for would, times in (("executed", 2), ("replayed", 1), ("held", 1)):
        player.done.add("semel_shadow_calls_total", times, **place, would=would)
    player.done.add("semel_shadow_duplicates_prevented_total", **place)
    player.done.add("semel_shadow_saved_usd_total", SEND.usd, **place)
    player.done.add("semel_shadow_problems_total", type="in-doubt")


async def _drifted(player: Player) -> None:
    await player.ask(HEADLINE)
    await asyncio.sleep(0.01)  # ten times its age: nothing else makes an answer old
    await player.ask(HEADLINE)
    await player.ask(
        READ, 2, status="passed", upstream_says=500
    )  # again, seconds later: the first is not seen
    player.stand(done=1)
    player.done.add("semel_drifts_total", upstream=HEADLINE.upstream, rule=HEADLINE.name)


async def _recovered(there: World, semel: SemelProcess, player: Player) -> None:
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
    for state in ("in_doubt", "released"):
        player.done.add("semel_recovered_total", state=state)
    player.stand(in_doubt=1, released=1)
    player.done.add("semel_notifications_total", type="in_doubt", result="delivered")


async def _collected(there: World, semel: SemelProcess, player: Player) -> None:
    """Calls from long ago, written beside the proxy: those of today stay for a minute beyond their time."""
    store = await ambient.opened(there.state)
    try:
        for _ in range(EXPIRED):
            pending, entry = claim(store.owner)
            await store.swap(pending, entry, expected=0)
            settled, entry = settle(pending)
            assert settled.answer is not None
            size = len(settled.request + settled.answer.head + settled.answer.body)
            assert (await store.swap(settled, entry, expected=pending.version)).won
    finally:
        await store.close()
    await until(lambda: sum(_collected_in(semel.log)) == EXPIRED, within=30)
    player.done.add("semel_collected_total", EXPIRED, what="calls")
    player.done.add("semel_collected_bytes_total", EXPIRED * size)


async def _reloaded(there: World, semel: SemelProcess, player: Player) -> None:
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
        player.done.add("semel_policy_reloads_total", WORKERS, result=result)
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
    player.stand(done=3)
    return player.done
