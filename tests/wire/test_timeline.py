"""The spans of steps agree with the state that the same log folds to, for every run that a release has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from hai_flow.engine.events import Event, decode_events
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.state import RunState
from hai_flow.wire.timeline import Span, Spans
from tests.corpus import kept


def disagreements(run_id: str, events: Sequence[Event]) -> list[tuple[int, str, str, str | None]]:
    """Where, at any seq, the newest span of a step says otherwise than the state: (seq, path, state's, span's)."""
    state, spans, found = RunState(run_id), Spans(), []
    newest: dict[str, Span] = {}
    for seq, event in enumerate(events, 1):
        state = evolve(state, event)
        spans.take(seq, event)
        newest = {span.path: span for span in spans.all}
        for path, step in state.steps.items():
            if path and step.phase not in ("new", "pending"):
                span = newest.get(path)
                status = "running" if step.status in ("waiting", "pending") else step.status
                if span is None or span.status != status:
                    found.append((seq, path, f"{event.type}: {step.phase} {step.outcome}", span and span.status))
    return found


@pytest.mark.parametrize("path", kept.files(), ids=lambda path: path.name.split(".")[0])
def test_at_every_seq_of_every_recorded_run_spans_and_state_say_the_same(path: Path) -> None:
    for run in kept.read(path, kept.Kept):
        events = [event for batch, _ in run.batches for event in decode_events(msgspec.json.encode(batch))]
        assert not disagreements(run.run_id, events), run.name
