"""A run begins: started, forked, or admitted from the queue of its key."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import go_on
from hai_flow.engine.draft import Draft
from hai_flow.engine.handlers.answering import take
from hai_flow.engine.handlers.replies import refuse_now, run_outcome
from hai_flow.engine.pendings import validate_answers
from hai_flow.engine.runs import fork
from hai_flow.engine.runs.start_run import begin_run
from hai_flow.engine.state import shared_state
from hai_flow.engine.steps import concurrency_slots
from hai_flow.values import Json


def _start(draft: Draft, command: c.Start) -> Json:
    if draft.state.status != "new":
        draft.already = True
        return run_outcome(draft)
    begin_run(draft, command)
    if draft.plan.limits.duration is not None:
        draft.emit(e.TimerSet, path="", kind="limit", due=draft.now + draft.plan.limits.duration)
    draft.open_turn(command.turn)
    if command.messages:
        draft.emit(e.MessagesChanged, messages=command.messages)
    if command.queued:
        concurrency_slots.queue(draft, cancels=command.cancels)
    go_on(draft)
    return run_outcome(draft)


def _fork(draft: Draft, command: c.Fork) -> Json:
    if draft.state.status != "new":
        draft.already = True
        return run_outcome(draft)
    fork.take_over(draft, command)
    answer = fork.answer_of(command)
    readings = validate_answers.readings(draft, answer)
    fork.make_own(draft)
    shared_state.write(draft, answer.state)  # the person that forks a run is the fork's requester
    draft.open_turn(answer.turn)
    take(draft, answer, readings)
    return run_outcome(draft)


def _admit(draft: Draft, command: c.Admit) -> Json:
    if draft.state.slot is None and not draft.state.ended:
        draft.already = True
        return run_outcome(draft)
    if draft.state.status != "queued":
        raise refuse_now(draft, "admit")
    draft.open_turn(c.Turn())
    go_on(draft)
    return run_outcome(draft)


RULES: Final = {c.Start: _start, c.Fork: _fork, c.Admit: _admit}
