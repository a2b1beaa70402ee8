"""Removes from a run's state and events the parts that a reader may not see.

`Profile.redaction` names these parts. `EVIDENCE`: the evidence and the digest of questions that do not ask the reader;
only readers of the log as it is have this one, because dialects always leave these out. `CONVERSATION`: everything
except the questions that ask the reader or that they have voted on, with their evidence, and the beginnings and ends of
turns."""

from __future__ import annotations

from typing import Final

import msgspec

from hai_flow.engine import events as e
from hai_flow.engine.commands import Principal
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.pendings.votes import asks, voters
from hai_flow.engine.state.state import Map, PendingState, RelayedState, RunState

EVIDENCE: Final = "evidence"
CONVERSATION: Final = "conversation"

_OF_QUESTIONS: Final = (
    e.PendingDecided,
    e.PendingEdited,
    e.PendingEscalated,
    e.PendingReminded,
    e.PendingRestamped,
    e.PeoplePicked,
    e.PendingVoided,
    e.VoteCast,
)


def concerns(pending: PendingState, reader: Principal) -> bool:
    """Whether the question is the reader's: it asks them, or they have voted on it."""
    if not voters(pending.votes).isdisjoint(ids_of(reader)):
        return True
    return pending.opened.policy is not None and asks(pending.opened.policy, reader)


def is_asking_reader(state: RunState, reader: Principal) -> bool:
    """Whether any question of the run, or of the runs below it, is the reader's."""
    return any(concerns(each, reader) for each in state.questions.values())


def strip_conversation(state: RunState, reader: Principal) -> RunState:
    """The run for a reader that may see only questions of their own."""
    pendings = Map({id: each for id, each in state.pendings.items() if concerns(each, reader)})
    relayed = Map({id: each for id, each in state.relayed.items() if concerns(each.pending, reader)})
    return RunState(
        run_id=state.run_id,
        status=state.status,
        seq=state.seq,
        at=state.at,
        workflow=state.workflow,
        version=state.version,
        sha256=state.sha256,
        dev=state.dev,
        thread_id=state.thread_id,
        requester=state.requester,
        started_at=state.started_at,
        ended_at=state.ended_at,
        state={},
        error=None if state.error is None else strip_words(state.error),
        turn=state.turn,
        pendings=pendings,
        open_pendings=Map({path: id for path, id in state.open_pendings.items() if id in pendings}),
        children=Map({path: id for path, id in state.children.items() if _is_asking_from(relayed, path)}),
        relayed=relayed,
    )


def _is_asking_from(relayed: Map[str, RelayedState], path: str) -> bool:
    return any(each.path == path for each in relayed.values())


def strip_words(error: e.Error) -> e.Error:
    """The error without its message and details: only the fact that something failed."""
    return e.Error(code=error.code.partition(".")[0] if "." in error.code else "failed", message="The run failed.")


def strip_conversation_from_event(event: e.Event, shown: RunState, reader: Principal) -> e.Event | None:
    """The event for a reader that may see only questions of their own; None: it is kept from them. `shown` is the run
    after the event, as they see it."""
    match event:
        case e.TurnStarted():
            return msgspec.structs.replace(event, profile=None, client_tools=(), body_sha=None)
        case e.TurnEnded():
            return event
        case e.RunFinished():
            return msgspec.structs.replace(event, output=None)
        case e.RunFailed():
            return msgspec.structs.replace(event, error=strip_words(event.error))
        case e.RunStopped():
            return msgspec.structs.replace(event, reason="")
        case e.PendingOpened():
            return strip_source(event) if event.id in shown.pendings else None
        case e.ChildAsked():
            return event if event.opened.id in shown.relayed else None
        case _ if isinstance(event, _OF_QUESTIONS):
            return event if event.id in shown.pendings else None
        case _:
            return None


def strip_source(event: e.Event) -> e.Event:
    """The event without the digest of the tool's code, which would tell a canary from a real question."""
    return msgspec.structs.replace(event, source=None) if isinstance(event, e.PendingOpened) else event


def strip_evidence_of(opened: e.PendingOpened) -> e.PendingOpened:
    """The question without its evidence, and without the digest that binds an answer to it: only the people that it
    asks may see these."""
    return msgspec.structs.replace(opened, evidence=None, digest="")


def strip_evidence_from_event(event: e.Event, state: RunState, reader: Principal | None) -> e.Event:
    """The event for a reader of the whole run, without the evidence of questions that ask others. `reader` None: the
    run's requester."""
    match event:
        case e.PendingOpened() if not _sees(event, reader):
            return strip_evidence(event)
        case e.ChildAsked() if not _sees(event.opened, reader):
            return msgspec.structs.replace(event, opened=strip_evidence_of(event.opened))
        case e.PendingEdited() | e.PendingRestamped() | e.VoteCast():
            pending = state.pendings.get(event.id)
            return event if pending is None or _sees(pending.opened, reader) else strip_evidence(event)
        case _:
            return event


def strip_evidence(event: e.Event) -> e.Event:
    """The event of a question, without the question's evidence and digest."""
    match event:
        case e.PendingOpened():
            return strip_evidence_of(event)
        case e.PendingEdited() | e.PendingRestamped():
            return msgspec.structs.replace(event, digest="")
        case e.VoteCast():
            return msgspec.structs.replace(event, digest=None)
        case _:
            return event


def _sees(opened: e.PendingOpened, reader: Principal | None) -> bool:
    """Whether the evidence of the question is for the reader."""
    if opened.policy is None:
        return True
    return opened.policy.get("asks_requester", True) if reader is None else asks(opened.policy, reader)
