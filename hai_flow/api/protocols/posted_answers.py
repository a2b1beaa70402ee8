"""The answers in a POST of a UI protocol: which question of a run each of them answers, and in which words."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.engine import commands as c
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected
from hai_flow.wire.dialects.dialect import Posted, ResumeEntry, ToolMessage

log = structlog.get_logger(__name__)


def open_answers(posted: Posted, state: RunState, *, stale: bool = False) -> tuple[c.PendingAnswer, ...]:
    """The answers to the questions that are open in `state`; `stale` as in `_read_answers_of_resume`."""
    resumed = _read_answers_of_resume(posted, state, stale=stale) or []
    open_ids = {each.opened.id for each in state.open_questions}
    return (*resumed, *(to_pending_answer(each) for each in call_answers(posted) if each.tool_call_id in open_ids))


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
    `resume`.
    """
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


def to_pending_answer(message: ToolMessage) -> c.PendingAnswer:
    """A ToolMessage as the answer to its question. Raises Rejected 422 if parts of an answer stand beside its content,
    where nobody would read them."""
    _demand_inside(message.tool_call_id, message.misplaced)
    return c.PendingAnswer(id=message.tool_call_id, content=message.content, error=message.error, digest=message.digest)


def _demand_inside(id: str, misplaced: tuple[str, ...]) -> None:
    if misplaced:
        names = ", ".join(misplaced)
        raise Rejected(
            422,
            "answer.invalid",
            f"{id}: expected {names} inside of the answer, found beside it, where it would be ignored. The question is "
            "still open.",
        )


def _is_void(entry: ResumeEntry, pending: PendingState) -> bool:
    """Whether the entry cancels a question that needs no answer any more: a client can do nothing else about an
    interrupt that expired."""
    return entry.cancelled and pending.status in ("expired", "voided")


def _answer_of(entry: ResumeEntry, pending: PendingState) -> c.PendingAnswer:
    """A `resume` entry as an answer, in the form of any other frontend (docs/language.md#people)."""
    _demand_inside(entry.interrupt_id, entry.misplaced)
    payload: Any = None if entry.payload is msgspec.UNSET else entry.payload
    if entry.cancelled:
        beside = payload if isinstance(payload, dict) else {} if payload is None else {"payload": payload}
        payload = {"status": "cancelled", **beside}
    if isinstance(payload, str) and pending.opened.kind == "ask":  # a form's values, as LangGraph's clients write them
        return c.PendingAnswer(id=entry.interrupt_id, content=payload)
    return c.PendingAnswer(id=entry.interrupt_id, content=values.dumps(payload).decode())
