"""What shadow mode says would have happened is what happens: the same requests in earnest, and looked on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy import carrying
from proxy.core import divergence
from proxy.shadow.counting import HELD
from tests.counts import count
from tests.http.shadowing import TOKENS, drawn, figures, play, policy, upstream
from tests.inside import semel

Found = dict[str, Counter[tuple[str, ...]]]

pytestmark = pytest.mark.usefixtures("any_store")


def in_earnest(found: Found) -> Mapping[str, object]:
    calls: Counter[tuple[str, str]] = Counter()
    for (_, rule, status, _), n in found["semel_calls_total"].items():
        calls[rule or "never", status] += n  # a call that is denied is told without its rule
    return {
        "calls": calls,
        "problems": found.get("semel_problems_total", Counter()),
        "prevented": found.get("semel_duplicates_prevented_total", Counter()),
        "saved": found.get("semel_saved_usd_total", Counter()),
    }


def looked_on(found: Found) -> Mapping[str, object]:
    calls: Counter[tuple[str, str]] = Counter()
    for (rule, _, would), n in found["semel_shadow_calls_total"].items():
        calls[rule, "refused" if would == "held" else would] += n
    return {
        "calls": calls,
        "problems": found.get("semel_shadow_problems_total", Counter()),
        "prevented": found.get("semel_shadow_duplicates_prevented_total", Counter()),
        "saved": found.get("semel_shadow_saved_usd_total", Counter()),
    }


# Of each there is one, or it was not compared; a few rounds may draw none of a kind, so more are played.
KINDS = {"executed", "replayed", "joined", "passed", "held", "refused"}
MORE = 12


@pytest.mark.timeout(count(test=240, soak=3600))
async def test_the_figures_are_those_of_semel_in_earnest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries, duplicates, overlaps, numbers, client keys, attempts, failures, shared answers, denials."""
    monkeypatch.setattr(carrying, "RESEND_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(divergence, "GRACE", 0.02)
    seed = random.randrange(2**32)
    seen: Counter[str] = Counter()
    rounds = count(test=3, soak=150)
    for n in range(rounds + MORE):
        if n >= rounds and seen.keys() >= KINDS:
            break
        print(f"seed {seed + n}")
        steps = drawn(seed + n, count(test=50, soak=120))
        found: dict[bool, Found] = {}
        for shadow in (False, True):
            async with upstream() as origin:
                where = tmp_path / f"{n}-{shadow}"
                where.mkdir()
                rules = policy(origin.port, shadow=shadow)
                store = {} if n == 0 else {"store": "memory"}
                async with semel(where, rules, tokens=TOKENS, settings=store) as app:
                    await play(app, origin, steps, shadow=shadow)
                    found[shadow] = await figures(app)
                    if shadow:
                        assert origin.started == sum(map(len, steps)), "each goes out as it came"
        assert looked_on(found[True]) == in_earnest(found[False])
        held = sum(
            n for (_, _, would), n in found[True]["semel_shadow_calls_total"].items() if would == "held"
        )
        problems = found[True].get("semel_shadow_problems_total", Counter())
        assert held == sum(n for (problem,), n in problems.items() if problem in HELD)
        for _, _, would in found[True]["semel_shadow_calls_total"]:
            seen[would] += 1
        for (problem,) in problems:
            seen[problem] += 1
    assert seen.keys() >= KINDS, seen
    assert "unjudged" not in seen
