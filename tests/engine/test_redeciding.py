"""What a log says was decided is decided again from the log alone, for most commands; a consequence that was changed by
hand is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Plan
from hai_flow.engine import events as e
from hai_flow.engine.decide import Bounds
from hai_flow.engine.evolve import fold
from hai_flow.engine.redeciding import decided_again
from hai_flow.engine.state import RunState
from tests.corpus import kept

PEOPLES = {"Answer", "Pause", "Resume", "Retry", "Skip", "Stop", "Terminate", "Jump"}
ALWAYS = PEOPLES | {"Start", "Admit", "Continue", "StepAsks", "StepLost", "StepSucceeded", "TimerFired"}


def commits() -> Iterator[tuple[str, Plan, RunState, list[e.AnyEvent], Bounds]]:
    """Each commit of this release's corpus, with the command that led to it."""
    known = {each.name: each for each in kept.read(kept.TODAY, kept.Decided)}
    for run in kept.read(kept.files()[-1], kept.Kept):
        plan, state = compile_workflow(run.document.encode(), run.name), RunState(run.run_id)
        for (batch, _), (name, fields, _, limits) in zip(run.batches, known[run.name].commands, strict=True):
            events = e.decode_events(msgspec.json.encode(batch))
            yield name, plan, state, events, msgspec.convert(limits, Bounds)
            state = fold(state, events)
            if name == "Migrate":
                plan = compile_workflow(fields["to"].encode(), run.name)


def test_nearly_every_decision_is_made_again_and_no_other_is_taken_for_a_fault() -> None:
    same, other = Counter[str](), Counter[str]()
    for name, plan, state, events, limits in commits():
        again = decided_again(plan, state, events, limits=limits)
        (same if again.left is None else other)[name] += 1
        assert not again.surely, f"{name} gave {again.left} at event {state.seq}"
    assert not other.keys() & ALWAYS, {name: other[name] for name in other.keys() & ALWAYS}
    assert same.keys() >= ALWAYS
    assert same.total() > 9 * other.total()


def test_a_consequence_that_was_changed_is_not_decided_again() -> None:
    found = Counter[str]()
    for _, plan, state, events, limits in commits():
        for number, event in enumerate(events):
            if not isinstance(event, e.TurnEnded | e.RunFinished | e.TimerSet):
                continue
            for wrong in (
                [*events[:number], *events[number + 1 :]],
                [*events[: number + 1], event, *events[number + 1 :]],
            ):
                if wrong:
                    found[str(decided_again(plan, state, wrong, limits=limits).left is None)] += 1
    assert found["False"] > 500
    assert found["True"] == 0
