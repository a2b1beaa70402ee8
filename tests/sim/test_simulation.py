"""The simulation within the suite's time. More: `python -m tests.sim --seed N --runs M`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.mutants import FOUND_BY, MUTANTS, Mutant
from tests.sim.world import FAULTS, simulate

pytestmark = pytest.mark.costly

RUNS = 200
BUDGET = 600  # seeds that a mutant may survive, after the one that found it before

# What the suite's own seeds must have come across, so that a world that grew tame is noticed.
REACHED = {
    "answer_again", "attempt_closed", "crash", "early_timer", "late_result", "late_timer", "lost_commit",
    "operator_pause", "operator_stop", "operator_terminate", "retry", "run_ended", "stale", "unknown_outcome",
    "wrong_answer", "end.finished", "end.failed", "end.stopped", "go_back", "limit.log",
    "fork_anywhere", "operator_skip",
}  # fmt: skip


def test_every_run_in_a_random_world_keeps_what_is_promised_and_ends() -> None:
    reached: Counter[str] = Counter()
    for seed in range(RUNS):
        reached += simulate(seed)
    assert reached.keys() >= REACHED, f"never reached: {sorted(REACHED - reached.keys())}"


def test_agents_in_a_random_world_keep_what_is_promised_and_end() -> None:
    reached: Counter[str] = Counter()
    for seed in range(RUNS):
        reached += simulate(seed, agents=True)
    assert reached.keys() >= {"answer", "answer.calls", "summary", "crash", "end.finished", "end.stopped"}


def test_a_simulation_can_be_played_again_from_its_seed() -> None:
    assert simulate(41) == simulate(41)


def test_the_list_of_faults_has_no_doubles() -> None:
    assert len(set(FAULTS)) == len(FAULTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_finds_the_bug_that(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check says so, of a world that is without fault when the bug is not there. That something breaks is no proof:
    so would a mutant that does not fit the engine any more."""
    mutant(monkeypatch)
    for seed in (FOUND_BY.get(mutant, 0), *range(BUDGET)):
        try:
            simulate(seed)
        except AssertionError:
            monkeypatch.undo()
            simulate(seed)
            return
    pytest.fail(f"{mutant.__name__} survived {BUDGET} seeds")
