"""What releases wrote folds as it did; what this release decides and sends changes only where somebody means it to."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hai_flow.definition.plan import Plan, Step
from hai_flow.engine import draft
from hai_flow.engine.events import ABI, decode_events
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.snapshot import decode_state, encode_state
from hai_flow.engine.state.state import RunState
from tests.corpus import kept
from tests.corpus.answers import answers_of, decided_again

ON_PURPOSE = "if this change is meant: python -m tests.corpus.recorder, and say in the commit what changed and why"


@pytest.mark.costly
@pytest.mark.parametrize("path", kept.files(), ids=lambda path: path.name.split(".")[0])
def test_the_runs_of_every_release_fold_to_what_they_were(path: Path) -> None:
    for run in kept.read(path, kept.Kept):
        state = RunState(run.run_id)
        for number, (batch, was) in enumerate(run.batches):
            state = fold(state, decode_events(msgspec.json.encode(batch)))
            place = kept.differs(was, kept.seen(state))
            assert place is None, f"{run.name} folds otherwise from commit {number} on: {place}"
            assert decode_state(encode_state(state)) == state


def test_there_is_a_file_for_the_log_of_this_release() -> None:
    """A new ABI: record its runs, keep the others."""
    assert f"abi{ABI}.jsonl.gz" in [path.name for path in kept.files()]


@pytest.mark.costly
def test_equal_commands_decide_equal_events_and_send_followers_equal_bytes() -> None:
    known = {each.name: each for each in kept.read(kept.TODAY, kept.Decided)}
    for run in kept.read(kept.files()[-1], kept.Kept):
        was, now = known[run.name], answers_of(run, known[run.name])
        commands = [name for name, *_ in was.commands]
        differ = [(n, commands[n]) for n, each in enumerate(now.decisions) if each != was.decisions[n]]
        assert not differ, f"{run.name} is decided otherwise from commit {differ[0]} on; {ON_PURPOSE}"
        for follower, frames in now.frames.items():
            changed = [number for number, frame in enumerate(frames) if frame != was.frames[follower][number]]
            assert not changed, f"{run.name}: {follower} is sent other frames at events {changed[:5]}; {ON_PURPOSE}"


@pytest.mark.costly
def test_bare_calls_are_decided_as_steps_that_have_something_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is passed over for a bare call as a group is nothing that one step of the corpus would have needed."""
    known = {each.name: each for each in kept.read(kept.TODAY, kept.Decided)}
    runs = list(kept.read(kept.files()[-1], kept.Kept))
    briefly = [list(decided_again(run, known[run.name])) for run in runs]
    bare = set()

    def resolve(plan: Plan, path: str) -> Step:
        step = resolve_step(plan, path)
        if step.is_bare:
            bare.add(path)
            msgspec.structs.force_setattr(step, "is_bare", False)
        return step

    monkeypatch.setattr(draft, "resolve_step", resolve)
    for run, decisions in zip(runs, briefly, strict=True):
        assert list(decided_again(run, known[run.name])) == decisions, run.name
    assert len(bare) > 20
