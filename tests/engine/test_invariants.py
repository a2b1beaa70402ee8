"""The rules of a run's events hold of every run that a release has ever written into the corpus."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.invariants import RULES, Watch
from hai_flow.engine.state.state import RunState
from tests.corpus import kept
from tests.corpus.answers import events_of


@pytest.mark.parametrize("path", kept.files(), ids=lambda path: path.name.split(".")[0])
def test_no_run_of_any_release_breaks_a_rule_and_each_rule_applies_to_some(path: Path) -> None:
    reached: Counter[str] = Counter()
    for run in kept.read(path, kept.Kept):
        events, state = events_of(run), RunState(run.run_id)
        watch = Watch(max((each.copied for each in events if isinstance(each, e.Forked)), default=0))
        for event in events:
            faults = list(watch.event(state, event))
            assert not faults, f"{run.name}, event {state.seq + 1}: {faults}"
            state = evolve(state, event)
        faults = list(watch.rest(state))
        assert not faults, f"{run.name}: {faults}"
        reached += watch.reached
    assert reached.keys() == RULES
