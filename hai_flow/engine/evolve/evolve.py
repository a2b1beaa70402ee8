"""`evolve`: the state after an event, the only thing that changes one.

It looks nothing up, refuses nothing and computes nothing that the event does not say; whatever the plan had to be asked
for is in the event. So any process of any release can fold a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from hai_flow.engine import events as e
from hai_flow.engine.evolve import children, loops, migration, pendings, retry, run, steps, thread
from hai_flow.engine.state.state import RunState


def evolve(state: RunState, event: e.Event) -> RunState:
    """`state` after `event`. Total over every event that `decide` can produce.

    The process that decides has not always seen the chunks that another process wrote meanwhile, whose clock may be
    ahead. So an event with an earlier time than the state's gets the state's time: within a run time never goes back.
    """
    if event.at < state.at:
        event = replace(event, at=state.at)
    return _FOLDS[type(event)](state, event)


def fold(state: RunState, events: Iterable[e.Event]) -> RunState:
    """`evolve` over several events."""
    for event in events:
        state = evolve(state, event)
    return state


_FOLDS: Final[dict[type[e.Event], Callable[[RunState, Any], RunState]]] = {
    e.RunStarted: run.run_started,
    e.RunQueued: run.run_queued,
    e.RunPaused: run.run_paused,
    e.RunResumed: run.run_resumed,
    e.RunStopping: run.run_stopping,
    e.RunStopped: run.run_stopped,
    e.RunFinished: run.run_finished,
    e.RunFailed: run.run_failed,
    e.RunNeedsAttention: run.run_needs_attention,
    e.RunRetried: retry.run_retried,
    e.StepsHeld: run.steps_held,
    e.WorkTakenBack: run.work_taken_back,
    e.Migrated: migration.apply_migration,
    e.Forked: migration.apply_fork,
    e.TurnStarted: thread.turn_started,
    e.TurnEnded: thread.turn_ended,
    e.MessagesChanged: thread.messages_changed,
    e.StepStarted: steps.step_started,
    e.AttemptStarted: steps.attempt_started,
    e.StepFinished: steps.step_finished,
    e.StepSkipped: steps.step_skipped,
    e.StepFailed: steps.step_failed,
    e.StepRetried: steps.step_retried,
    e.StepStopped: steps.step_stopped,
    e.StepEnding: steps.step_ending,
    e.StepReopened: retry.step_reopened,
    e.StepUndone: steps.step_undone,
    e.HandlerStarted: steps.handler_started,
    e.BranchEnded: steps.branch_ended,
    e.IterationStarted: loops.iteration_started,
    e.IterationEnded: loops.iteration_ended,
    e.MessageStarted: thread.message_started,
    e.MessageChunk: thread.message_chunk,
    e.MessageEnded: thread.message_ended,
    e.ToolCallStarted: thread.tool_call_started,
    e.ToolCallArgsChunk: thread.tool_call_args_chunk,
    e.ToolCallEnded: thread.tool_call_ended,
    e.ToolCallResolved: thread.tool_call_resolved,
    e.PendingOpened: pendings.pending_opened,
    e.VoteCast: pendings.vote_cast,
    e.PendingEdited: pendings.pending_edited,
    e.PendingEscalated: pendings.pending_escalated,
    e.PendingReminded: pendings.pending_reminded,
    e.PeoplePicked: pendings.people_picked,
    e.PendingRestamped: pendings.pending_restamped,
    e.PendingDecided: pendings.pending_decided,
    e.PendingVoided: pendings.pending_voided,
    e.StateChanged: run.state_changed,
    e.TimerSet: pendings.timer_set,
    e.TimerFired: pendings.timer_fired,
    e.TimeJumped: pendings.time_jumped,
    e.SignalsAwaited: pendings.signals_awaited,
    e.SignalReceived: pendings.signal_received,
    e.ChildMoved: children.child_moved,
    e.CustomEmitted: run.custom_emitted,
    e.RawEmitted: run.raw_emitted,
    e.CollaborationStarted: children.collaboration_started,
    e.CollaborationEnded: children.collaboration_ended,
    e.ChildAsked: children.child_asked,
    e.ChildSaid: children.child_said,
    e.ChildStepped: children.child_stepped,
    e.ChildShared: children.child_shared,
    e.WarningRaised: run.warning_raised,
    e.ModelUsed: run.model_used,
    e.PartsMade: run.parts_made,
}
