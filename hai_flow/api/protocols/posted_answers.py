"""The answers in a POST of a UI protocol: which question of a run each of them answers, and in which words."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.engine.pendings.answers import answer_refusal
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.wire.dialects.dialect import Posted, ResumeEntry, ToolMessage

log = structlog.get_logger(__name__)


def open_answers(posted: Posted, state: RunState, *, stale: bool = False) -> tuple[c.PendingAnswer, ...]:
    """The answers to the questions that are open in `state`; `stale` as in `_read_answers_of_resume`.

    A client keeps a ToolMessage that was refused in its history, so one that would be refused doesn't count beside an
    answer of `resume` to the same question."""
    resumed = _read_answers_of_resume(posted, state, stale=stale) or []
    resumed_ids = {each.id for each in resumed}
    open_questions = {each.opened.id: each for each in state.open_questions}
    answers = list(resumed)
    for message in call_answers(posted):
        question, superseded = open_questions.get(message.tool_call_id), message.tool_call_id in resumed_ids
        if question is None or (superseded and _list_misplaced(message, question)):
            continue
        answers.append(to_pending_answer(message, question, superseded=superseded))
    return tuple(answers)


def find_newest_answer(posted: Posted) -> ToolMessage | None:
    """The answer that the posted history ends with, if it ends with one and its id could be that of our pending."""
    if not posted.history or posted.history[-1][1] != "tool":
        return None
    newest = posted.tool_messages[-1]
    return newest if run_of_pending(newest.tool_call_id) is not None else None


def call_answers(posted: Posted) -> list[ToolMessage]:
    """The posted answers with ids that could be those of our pendings."""
    return [each for each in posted.tool_messages if run_of_pending(each.tool_call_id) is not None]


def _read_answers_of_resume(posted: Posted, state: RunState, *, stale: bool) -> list[c.PendingAnswer] | None:
    """The answers of `resume` to open questions; if there are none and `stale`, those to decided ones.

    An entry that names no question of this run is ignored, with a line in the server's log. None: there is no
    `resume`."""
    entries = posted.resume
    if not entries:
        return None
    questions = state.questions
    matching = {e.interrupt_id: questions[e.interrupt_id] for e in entries if e.interrupt_id in questions}
    if len(matching) < len(entries):
        unknown = [entry.interrupt_id for entry in entries if entry.interrupt_id not in matching]
        log.warning("resume_ignored", thread_id=posted.thread_id, run_id=state.run_id, unknown=unknown[:20])
    chosen = [e for e in entries if e.interrupt_id in matching and matching[e.interrupt_id].status == "open"]
    if not chosen and stale:
        chosen = [e for e in entries if e.interrupt_id in matching and not _is_void(e, matching[e.interrupt_id])]
    return [_answer_of(entry, matching[entry.interrupt_id]) for entry in chosen]


def asker(answer: c.PendingAnswer) -> UUID:
    """The run that asks the question which `answer` answers."""
    run_id = run_of_pending(answer.id)
    assert run_id is not None, "only a pending of ours is answered"
    return run_id


def to_pending_answer(message: ToolMessage, pending: PendingState, *, superseded: bool = False) -> c.PendingAnswer:
    """A ToolMessage as the answer to its question; `superseded` as in `PendingAnswer`. Raises Rejected 422 if parts of
    an answer stand beside its content, where nobody would read them."""
    _demand_inside(message, pending)
    return c.PendingAnswer(
        id=message.tool_call_id,
        content=message.content,
        error=message.error,
        digest=message.digest,
        superseded=superseded,
    )


def _list_misplaced(answer: ToolMessage | ResumeEntry, pending: PendingState) -> tuple[str, ...]:
    decides = pending.opened.kind not in ("tool", "ask")
    return (*answer.misplaced, *answer.beside_decision) if decides else answer.misplaced


def _demand_inside(answer: ToolMessage | ResumeEntry, pending: PendingState) -> None:
    if names := _list_misplaced(answer, pending):
        raise answer_refusal(
            pending.opened,
            f"expected {', '.join(names)} inside of the answer, found beside it, where it would be ignored.",
        )


def _is_void(entry: ResumeEntry, pending: PendingState) -> bool:
    """Whether the entry cancels a question that needs no answer any more: a client can do nothing else about an
    interrupt that expired."""
    return entry.cancelled and pending.status in ("expired", "voided")


def _answer_of(entry: ResumeEntry, pending: PendingState) -> c.PendingAnswer:
    """A `resume` entry as an answer, in the form of any other frontend (docs/language.md#people)."""
    _demand_inside(entry, pending)
    payload: Any = None if entry.payload is msgspec.UNSET else entry.payload
    if entry.cancelled:
        beside = payload if isinstance(payload, dict) else {} if payload is None else {"payload": payload}
        payload = {"status": "cancelled", **beside}
    if isinstance(payload, str) and pending.opened.kind == "ask":  # a form's values, as LangGraph's clients write them
        return c.PendingAnswer(id=entry.interrupt_id, content=payload)
    return c.PendingAnswer(id=entry.interrupt_id, content=values.dumps(payload).decode())
