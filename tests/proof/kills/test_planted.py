"""Defects planted into a real semel: a campaign finds each of them, by the check that is there for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.proof.kills.campaign import Campaign
from tests.proof.kills.planted import DEFECTS
from tests.proof.kills.test_kill_cycles import seeded

CYCLES = 60
# By defect: the check that must find it.
FOUND_BY = {
    "orphans are released": "second_effects|effects_without_account",
    "handed on before the commit": "answers_lost|answers_that_changed",
    "another answer is replayed": "answers_that_changed",
    "answers are rewritten": "answers_nobody_gave",
    "doubt is hidden": "not_listed",
    "young doubt is hidden": "hidden_doubts",
}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("defect", DEFECTS)
async def test_a_planted_defect_is_found(defect: str, tmp_path: Path) -> None:
    """In one round; its story names the call, what became of it, and what fell near it."""
    seed = seeded()
    print(f"seed {seed} (set TEST_SEED to use it again)")
    campaign = Campaign(tmp_path, seed, planted=defect)
    with pytest.raises(AssertionError, match=FOUND_BY[defect]) as failed:
        await campaign.run(CYCLES)
    assert any(re.fullmatch(FOUND_BY[defect], check) for check in campaign.figures.breaches)
    said = str(failed.value)
    print(said)
    assert f"seed {seed}" in said
    assert re.search(r"^ +[+-]\d+\.\d+ record ", said, re.MULTILINE), "a story has what the record says"
