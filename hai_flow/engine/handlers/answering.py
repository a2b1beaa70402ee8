"""People answer."""

from __future__ import annotations

from typing import Final

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine import standing_rules
from hai_flow.engine.advance import go_on
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings import answers, decide, validate_answers
from hai_flow.engine.pendings.eligibility import world_of
from hai_flow.engine.pendings.selectors import is_surely_barred
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state import shared_state
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.values import Json


def _answer(draft: Draft, command: c.Answer) -> Json:
    readings = validate_answers.readings(draft, command)
    if all(repeated for _, _, repeated in readings):
        draft.already = True
        results = [
            validate_answers.answer_outcome(pending, reading, "already", pending.by) for pending, reading, _ in readings
        ]
        return {"answers": results, "turn": draft.state.turn.n if draft.state.turn else None}
    draft.posted = command.turn
    if shared_state.can_write(draft.state, command.by):
        draft.posted_state = command.state
        shared_state.write(draft, command.state)
    if not draft.state.turn_open:
        draft.open_turn(command.turn if draft.state.parent is None else c.Turn())
    results = take(draft, command, readings)
    return {"answers": results, "turn": draft.state.turn.n if draft.state.turn else None}


def take(
    draft: Draft, command: c.Answer, readings: list[tuple[PendingState, answers.Reading, bool]]
) -> list[dict[str, Json]]:
    """Decide the answers, in the turn that is open. Returns the outcome of each answer."""
    if command.messages:
        draft.emit(e.MessagesChanged, messages=command.messages)
        draft.emit(
            e.WarningRaised,
            code="message_with_answer",
            message="A message that comes with an answer is kept in the thread, but starts no run.",
        )
    results = []
    for pending, reading, repeated in readings:
        if repeated:
            results.append(validate_answers.answer_outcome(pending, reading, "already", pending.by))
        elif draft.state.pendings[pending.opened.id].status == "open":
            decide.decide_pending(draft, pending, reading, command.by, command.via)
            results.append(validate_answers.answer_outcome(pending, reading, "accepted", command.by.id))
        else:  # an answer before it in this very command decided a race, or failed a sibling
            results.append(validate_answers.answer_outcome(pending, reading, "voided", None))
    go_on(draft)
    return results


def _apply_rule(draft: Draft, command: c.ApplyRule) -> Json:
    """A standing rule votes. Raises Rejected 409 where it does not apply; then people are asked, as they are."""
    pending = draft.state.pendings.get(command.id)
    fault = standing_rules.find_obstacle(draft.plan, draft.state, pending, command, draft.context.freezes)
    if fault is not None or pending is None:
        raise Rejected(409, "rule_idle", f"rule {command.rule.id} does not apply: {fault}.")
    voters = standing_rules.list_voters(pending, command, world_of(draft.plan, draft.state))
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    decide.vote_by_rule(draft, command, voters)
    go_on(draft)
    return {"id": command.id, "outcome": draft.state.pendings[command.id].status}


def _pick_people(draft: Draft, command: c.PickPeople) -> Json:
    """Raises Rejected 409: the question is decided, or another one than that for which they were chosen."""
    pending = draft.state.pendings.get(command.id)
    rules = None if pending is None else derive_rules(pending)
    if pending is None or rules is None or pending.status != "open" or rules.pick is None:
        raise Rejected(409, "pick_idle", f"{command.id} is no open question for which people are picked.")
    if (len(rules.escalations), rules.picked) != (command.stages_left, command.before):
        raise Rejected(409, "pick_idle", f"{command.id} is another question since they were chosen.")
    world = world_of(draft.plan, draft.state)
    barred = [each for each in command.people if is_surely_barred(rules.exclude, each, world)]
    if barred:
        raise Rejected(409, "pick_idle", f"{barred[0]} may not decide {command.id}, so they are not picked.")
    path, before = pending.opened.path, rules.picked
    draft.emit(e.PeoplePicked, id=command.id, path=path, people=command.people, note=command.note, before=before)
    return {"id": command.id, "picked": list(command.people)}


RULES: Final = {c.Answer: _answer, c.ApplyRule: _apply_rule, c.PickPeople: _pick_people}
