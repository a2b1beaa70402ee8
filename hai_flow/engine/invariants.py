"""The invariants of every event of a run, and of its state behind the last one (docs/design/promises.md).

Pure, and another opinion than that of `decide`: these rules look at the log alone and know no plan. Each has a name,
under which `hai-flow verify` reports faults. A rule says nothing where it does not apply; `Watch.reached` counts how
often each one did, so that a campaign can say that its rules were exercised at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from hai_flow.definition.paths import is_in_cleanup
from hai_flow.engine import events as e
from hai_flow.engine.evolve.pendings import as_edited
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.answers import digest
from hai_flow.engine.state.ids import pending_of, run_of_pending
from hai_flow.engine.state.state import PendingState, RunState


class BrokenInvariant(NamedTuple):
    """A rule that does not hold: its name, and a clause that describes the fault."""

    rule: str
    message: str


class Watch:
    """Looks at the events of one run in their order. `copied`: of a fork, so many of its events are another run's."""

    def __init__(self, copied: int = 0) -> None:
        self.copied = copied
        self.reached: Counter[str] = Counter()
        self.begun: set[tuple[str, int]] = set()  # attempts, by path and number

    def event(self, state: RunState, event: e.Event) -> Iterator[BrokenInvariant]:
        """The faults of `event`, which is the next one of a run in `state`."""
        for name, rule in (*EVERY_EVENT, *_BY_TYPE.get(type(event), ())):
            self.reached[name] += 1
            for message in rule(self, state, event):
                yield BrokenInvariant(name, message)

    def rest(self, state: RunState) -> Iterator[BrokenInvariant]:
        """The faults of the state behind the last commit."""
        for name, rule in AT_REST:
            self.reached[name] += 1
            for message in rule(state):
                yield BrokenInvariant(name, message)


_Rule: TypeAlias = Callable[[Watch, RunState, Any], Iterator[str]]


# --- the end, turns ---------------------------------------------------------------------------------------------------


def _end_is_last(watch: Watch, state: RunState, event: e.Event) -> Iterator[str]:
    if state.ended and not isinstance(event, e.RunRetried | e.WorkTakenBack):
        yield f"{event.type} stands behind the end of the run, which is {state.status}"


def _check_turn_begins(watch: Watch, state: RunState, event: e.TurnStarted) -> Iterator[str]:
    last = state.turn.n if state.turn else 0
    if state.turn_open:
        yield f"turn {event.turn} begins within turn {last}"
    if event.turn != last + 1:
        yield f"turn {event.turn} follows turn {last}"


def _check_turn_ends(watch: Watch, state: RunState, event: e.TurnEnded) -> Iterator[str]:
    if not state.turn_open:
        yield "a turn ends, and none is open"
    elif state.open_messages:
        yield f"turn {event.turn} ends, and the message {next(iter(state.open_messages))} is open yet"


# --- steps ------------------------------------------------------------------------------------------------------------


def _check_begins_while_running(
    watch: Watch, state: RunState, event: e.StepStarted | e.AttemptStarted
) -> Iterator[str]:
    """No step begins while the run is paused, and behind a stop only steps that clean up."""
    if state.status != "running" and not (state.status == "stopping" and is_in_cleanup(event.path)):
        yield f"the step {event.path} begins in a run that is {state.status}"
    elif event.path not in state.ready:
        yield f"the step {event.path} begins, and it was not its turn"


def _check_attempt_once(watch: Watch, state: RunState, event: e.StepStarted | e.AttemptStarted) -> Iterator[str]:
    attempt = (event.path, event.attempt)
    if not event.attempt:
        return
    if attempt in watch.begun:
        yield f"attempt {event.attempt} of the step {event.path} begins twice"
    if event.attempt > 1 and (event.path, event.attempt - 1) not in watch.begun:
        yield f"attempt {event.attempt} of the step {event.path} begins, and no attempt {event.attempt - 1} has"
    watch.begun.add(attempt)


def _check_outcome_once(watch: Watch, state: RunState, event: e.StepFinished) -> Iterator[str]:
    step_state = state.steps.get(event.path)
    if step_state is not None and step_state.outcome == "finished" and step_state.phase == "over":
        yield f"the step {event.path} finishes twice"


# --- people -----------------------------------------------------------------------------------------------------------


def _check_approved_arguments(watch: Watch, state: RunState, event: e.StepStarted | e.AttemptStarted) -> Iterator[str]:
    """An effect behind a gate is performed with the arguments that were approved, and only then."""
    step_state = state.steps.get(event.path)
    if step_state is None or not event.attempt or not step_state.asked:
        return
    gate = _find_last_gate(state, event.path, step_state.asked)
    if gate is None:
        return
    args = step_state.args if isinstance(event, e.AttemptStarted) else event.args
    decision = gate.value.get("decision") if isinstance(gate.value, dict) else None
    if decision != votes.APPROVE:
        yield f"the step {event.path} is performed, and its gate {gate.opened.id} is {gate.status}"
    elif gate.opened.args != args:
        yield f"the step {event.path} is performed with other arguments than {gate.opened.id} has approved"


def _find_last_gate(state: RunState, path: str, asked: int) -> PendingState | None:
    for n in range(asked - 1, -1, -1):
        pending = pending_of(state, path, n)
        if pending is not None and pending.opened.kind == "gate":
            return pending
    return None


def _check_digest_binds(
    watch: Watch, state: RunState, event: e.PendingOpened | e.PendingEdited | e.PendingRestamped
) -> Iterator[str]:
    """The digest that people answer binds workflow, run and content."""
    opened: e.PendingOpened | None
    if isinstance(event, e.PendingOpened):
        opened = event
    else:
        pending = state.pendings.get(event.id)
        opened = None if pending is None else pending.opened
        if opened is not None and isinstance(event, e.PendingEdited):
            opened = as_edited(opened, event)
    of_another = state.seq < watch.copied or run_of_pending(event.id) != UUID(state.run_id)
    if of_another or opened is None:
        return
    if event.digest != digest(state.sha256, state.run_id, opened):
        yield f"the digest of the question {event.id} is not that of what it shows"


def _check_vote_is_free(watch: Watch, state: RunState, event: e.VoteCast) -> Iterator[str]:
    pending = state.pendings.get(event.id)
    if pending is None or pending.status != "open":
        yield f"{event.by} votes on {event.id}, which is {'unknown' if pending is None else pending.status}"
    elif votes.voters([event]) & votes.voters(pending.votes):
        yield f"{votes.voter(event)} votes on {event.id} a second time"


def _check_votes_decide(watch: Watch, state: RunState, event: e.PendingDecided) -> Iterator[str]:
    """The first answer wins; an approval has the votes that its rules ask for, from people that may vote."""
    pending = state.pendings.get(event.id)
    if pending is None or pending.status != "open":
        yield f"{event.id} is decided, which is {'unknown' if pending is None else pending.status}"
        return
    if pending.opened.kind not in ("approve", "gate") or event.by is None:
        return
    verdict = votes.verdict(votes.derive_rules(pending), pending)
    if event.outcome == votes.APPROVE and verdict != votes.APPROVE:
        yield f"{event.id} is approved, and its votes do not approve it"
    elif event.outcome == votes.REJECT and verdict != votes.REJECT:
        yield f"{event.id} is rejected, and its votes do not reject it"
    elif event.outcome not in (votes.APPROVE, votes.REJECT) and event.outcome not in _find_last_vote(pending):
        yield f"{event.id} is decided as {event.outcome}, for which the last vote was not"


def _find_last_vote(pending: PendingState) -> tuple[str, ...]:
    return (pending.votes[-1].decision,) if pending.votes else ()


# --- time -------------------------------------------------------------------------------------------------------------


def _check_timer_in_time(watch: Watch, state: RunState, event: e.TimerFired) -> Iterator[str]:
    due = [timer.due for timer in state.timers if (timer.path, timer.kind) == (event.path, event.kind)]
    if not due:
        yield f"the timer {event.kind} of {event.path or 'the run'} fires, and none was set, or it has fired before"
    elif min(due) > max(event.at, state.at):
        yield f"the timer {event.kind} of {event.path or 'the run'} fires {min(due) - event.at} ms before its time"


# --- what people see --------------------------------------------------------------------------------------------------


def _check_chunks_in_order(watch: Watch, state: RunState, event: e.MessageChunk) -> Iterator[str]:
    message = state.messages.get(event.message_id)
    if message is None or not message.open:
        yield f"the message {event.message_id} grows, and it is not open"
    elif event.n != message.chunks:
        yield f"piece {event.n} of the message {event.message_id} follows {message.chunks} pieces"


def _call_grows_while_open(
    watch: Watch, state: RunState, event: e.ToolCallArgsChunk | e.ToolCallEnded
) -> Iterator[str]:
    call = state.tool_calls.get(event.tool_call_id)
    if call is None or not call.open:
        yield f"{event.type} of {event.tool_call_id}, and this call is not open"


def _call_resolved_after_its_end(watch: Watch, state: RunState, event: e.ToolCallResolved) -> Iterator[str]:
    call = state.tool_calls.get(event.tool_call_id)
    if call is not None and call.open:
        yield f"the call {event.tool_call_id} has a result before its arguments are whole"


# --- behind the last commit -------------------------------------------------------------------------------------------


def _check_waits_for_something(state: RunState) -> Iterator[str]:
    if state.status == "waiting" and not _has_open_parts(state):
        yield "it waits, and nothing will ever move it: no question, timer, signal or run below"


def _check_end_is_complete(state: RunState) -> Iterator[str]:
    if state.ended:
        open_parts = {
            "timer": state.timers,
            "question": state.open_pendings,
            "attempt": state.attempts,
            "step": state.ready,
        }
        for what, each in open_parts.items():
            if each:
                yield f"it is {state.status}, and a {what} of it is open: {sorted(map(str, each))[0]}"


def _check_indexes_agree(state: RunState) -> Iterator[str]:
    open_ids = {id for id, pending in state.pendings.items() if pending.status == "open"}
    if open_ids != set(state.open_pendings.values()):
        yield "the questions that are open are not those that its steps wait for"
    for path, attempt in state.attempts.items():
        if path not in state.steps or state.steps[path].attempt != attempt:
            yield f"attempt {attempt} of {path} is open, and its step knows another"


def _has_open_parts(state: RunState) -> bool:
    return bool(
        state.attempts or state.open_pendings or state.subscriptions or state.children or state.timers or state.ready
    )


EVERY_EVENT: Final[tuple[tuple[str, _Rule], ...]] = (("end_is_last", _end_is_last),)
_BEGINS: Final = (
    ("begins_while_running", _check_begins_while_running),
    ("attempt_once", _check_attempt_once),
    ("approved_is_performed", _check_approved_arguments),
)
_BY_TYPE: Final[Mapping[type[e.Event], tuple[tuple[str, _Rule], ...]]] = {
    e.TurnStarted: (("turns_in_order", _check_turn_begins),),
    e.TurnEnded: (("turns_in_order", _check_turn_ends),),
    e.StepStarted: _BEGINS,
    e.AttemptStarted: _BEGINS,
    e.StepFinished: (("outcome_once", _check_outcome_once),),
    **dict.fromkeys((e.PendingOpened, e.PendingEdited, e.PendingRestamped), (("digest_binds", _check_digest_binds),)),
    e.VoteCast: (("vote_is_free", _check_vote_is_free),),
    e.PendingDecided: (("votes_decide", _check_votes_decide),),
    e.TimerFired: (("timer_in_time", _check_timer_in_time),),
    e.MessageChunk: (("chunks_in_order", _check_chunks_in_order),),
    e.ToolCallArgsChunk: (("calls_in_order", _call_grows_while_open),),
    e.ToolCallEnded: (("calls_in_order", _call_grows_while_open),),
    e.ToolCallResolved: (("calls_in_order", _call_resolved_after_its_end),),
}
AT_REST: Final[tuple[tuple[str, Callable[[RunState], Iterator[str]]], ...]] = (
    ("waits_for_something", _check_waits_for_something),
    ("nothing_outlives", _check_end_is_complete),
    ("indexes_agree", _check_indexes_agree),
)
RULES: Final = frozenset(name for rules in (EVERY_EVENT, *_BY_TYPE.values(), AT_REST) for name, _ in rules)
