"""Calls with an effect, each made once with full durability: against a proxy that records nothing, and
against libraries that keep a durable record too (peers_rates.py)."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import SMALL, much
from benchmarks.judging import Found, Rates, Unmeasured
from benchmarks.peers_rates import RATED, CannotMeasure, Peer, serving
from benchmarks.running import Plan, Stage, load, say
from proxy.store.keyring import new_key

CONNECTIONS = 64
CALLS = much(3000)
ONCE = "semel once"
ENCRYPTED = "semel once, encrypted"
FORWARD = "bare aiohttp reverse proxy"
TIMES = 3.0  # a peer's rate


def measure(plan: Plan, found: Found) -> None:
    with ExitStack() as stack:
        stage = Stage(stack, plan.work / "once")
        keys, config = plan.work / "once" / "keys", plan.work / "once" / "encrypted.yaml"
        keys.write_text(new_key())
        config.write_text(f"encryption: {{key_file: {keys}}}\n")
        asked = {
            FORWARD: (stage.bare("forward"), "/pay"),
            ONCE: (stage.semel("semel").port, "/bench/pay"),
            ENCRYPTED: (stage.semel("encrypted", "--config", str(config)).port, "/bench/pay"),
        }
        peers = {}
        for peer in RATED:
            try:
                peers[peer] = stack.enter_context(serving(peer, stage.origin, CONNECTIONS, plan.work))
                found.versions.append(peers[peer].version)
            except CannotMeasure as error:
                _left_out(found, peer, error)
        for name in asked:
            found.rates[name] = Rates(CONNECTIONS, CALLS, [])
        for peer in peers:
            found.rates[peer.label] = Rates(CONNECTIONS, peer.calls, [])
        for turn in range(plan.rounds):
            seed = f"r{turn}"
            for name, (port, path) in asked.items():
                say(f"round {turn + 1} of {plan.rounds}: {name}")
                found.rates[name].values.append(load(port, path, "unique", CALLS, CONNECTIONS, seed))
            for peer, running in list(peers.items()):
                say(f"round {turn + 1} of {plan.rounds}: {peer.label}")
                try:
                    found.rates[peer.label].values.append(running.rate(seed, peer.calls))
                except CannotMeasure as error:
                    del peers[peer], found.rates[peer.label]
                    _left_out(found, peer, error)
    found.judge("once against a bare aiohttp reverse proxy", found.ratio(ONCE, FORWARD), "at least", 0.8)
    for peer in peers:
        found.judge(f"once against {peer.label}", found.ratio(ONCE, peer.label), "at least", TIMES)
    found.shown["once encrypted against once in the clear"] = found.ratio(ENCRYPTED, ONCE)


def _left_out(found: Found, peer: Peer, error: CannotMeasure) -> None:
    """A project that does not work here says nothing about semel; a small run is there to see it."""
    if SMALL and error.installed:
        raise error
    say(f"{peer.label} is not measured: {error}")
    found.unmeasured.append(Unmeasured(f"once against {peer.label}", "at least", TIMES, str(error)))
