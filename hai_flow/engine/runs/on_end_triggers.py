"""Runs that start at the end of a run: `run` triggers of other workflows. The committer adds this message to the commit
if a trigger waits for it, so each end is delivered at least once, under an id from which the started run's id is made.
`Origin.depth` counts the ends in a row before a run; nothing is started behind `CHAIN_MAX`, so a circle comes to rest.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hai_flow.engine.decision import Decision, Message
from hai_flow.engine.events import Event, Origin, RunFailed, RunFinished, RunStopped, event_value
from hai_flow.engine.state.state import RunState
from hai_flow.primitives import instants
from hai_flow.values import Json

ENDED: Final = "run_ended"
CHAIN_MAX: Final = 16


class RunEnd(msgspec.Struct, frozen=True):
    """The end of a run, as it is delivered. `depth` is that of its `origin`; `instigators` are the people behind it
    beside its requester."""

    run_id: str
    thread_id: str
    workflow: str
    version: int
    status: str
    input: Json
    output: Json
    error: Json
    requester: str
    at: int
    depth: int = 0
    instigators: tuple[str, ...] = ()

    @property
    def origin(self) -> Origin:
        return Origin(self.run_id, depth=self.depth + 1)

    @property
    def event(self) -> dict[str, Json]:
        """The end as the expressions of a trigger see it, as `event`."""
        fields = msgspec.to_builtins(self)
        at, _, _ = fields.pop("at"), fields.pop("depth"), fields.pop("instigators")
        return event_value(self.run_id, f"run.{self.status}", fields, at)


def has_ended(decision: Decision) -> bool:
    """Whether the run ends by this decision: also one that had ended, and was retried in vain."""
    return decision.state.ended and any(map(is_end, decision.events))


def is_end(event: Event) -> bool:
    """Whether a run ends by the event."""
    return isinstance(event, RunFinished | RunFailed | RunStopped)


def end_message(state: RunState) -> Message:
    end = RunEnd(
        run_id=state.run_id,
        thread_id=state.thread_id,
        workflow=state.workflow,
        version=state.version,
        status=state.status,
        input=state.input,
        output=state.output,
        error=_error(state),
        requester=state.requester,
        at=state.at if state.ended_at is None else state.ended_at,
        depth=0 if state.origin is None else state.origin.depth,
        instigators=state.all_instigators,
    )
    return Message(ENDED, state.run_id, msgspec.to_builtins(end))


def _error(state: RunState) -> Json:
    if state.error is None:
        return None
    error: Json = msgspec.to_builtins(state.error)
    return {**error, "at": instants.rfc3339(state.error.at)}
