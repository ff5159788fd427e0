"""When the agent of act two is killed: by a seed, within its steps, and late enough to hurt."""

from __future__ import annotations

import pytest

from proxy.demo.kills import KILLS, LARGEST_SEED, STEPS, Moment, draw_kills, moment_of, new_seed, read_log

SEEDS = range(300)


def test_a_seed_draws_the_same_kills_and_another_seed_others() -> None:
    """Whoever saw something odd can see it again."""
    assert [draw_kills(seed) for seed in SEEDS] == [draw_kills(seed) for seed in SEEDS]
    assert len({draw_kills(seed) for seed in SEEDS}) > 50


def test_the_last_kill_comes_when_everything_has_taken_effect() -> None:
    """So that without semel every effect is doubled, whatever the seed; no kill is at the very end."""
    for seed in SEEDS:
        kills = draw_kills(seed)
        assert len(kills) == KILLS
        lines = [kill.line for kill in kills]
        assert lines == sorted(lines)
        assert lines[-1] in (Moment(6, "done").line, Moment(7, "asked").line)


def test_all_steps_are_hit_by_some_seed() -> None:
    """Both in the middle of a call and behind it."""
    hit = {kill.line for seed in SEEDS for kill in draw_kills(seed)}
    assert hit == set(range(1, 2 * len(STEPS)))


def test_moments_and_lines_are_each_others_inverse() -> None:
    """The first line is that of the first step asked."""
    assert [moment_of(line).line for line in range(1, 15)] == list(range(1, 15))
    assert str(moment_of(1)) == "during step 1 (model)"
    assert str(moment_of(8)) == "after step 4 (charge)"


def test_a_new_seed_can_be_typed() -> None:
    """It is shown to people."""
    assert all(1 <= new_seed() <= LARGEST_SEED for _ in range(100))


@pytest.mark.parametrize(
    "line", ["", "Booked.", "[12] model: asking", "semel: [12] model: asked", "[] model: done"]
)
def test_other_lines_are_not_the_agents_log(line: str) -> None:
    """Nobody is killed for what semel or the model says."""
    assert read_log(line) is None


def test_a_line_of_the_log_names_its_process() -> None:
    """It is the one that is killed."""
    entry = read_log("[12] charge: asked")
    assert entry is not None
    assert (entry.pid, entry.name, entry.phase) == (12, "charge", "asked")
