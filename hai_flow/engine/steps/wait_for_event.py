"""`wait_for`, and requests that wait for a callback. The engine never looks for signals: a waiting step says
"subscribe" in the outbox, and delivery offers stored and later signals as the command Signal, which may come twice, too
late, or not fit (docs/design/store.md#signals). Which signals a run has taken is known by places, not by ids for ever:
up to the place in `Heard` it has taken each that is not left, for a later step. While a run is paused, signals are
taken and their consequences wait."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from hai_flow import values
from hai_flow.definition.plan import Call, Callback, Http, Step, Subscription, WaitFor
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.events import event_value
from hai_flow.engine.pendings.withdrawing import ASKED, find_event, withdraw
from hai_flow.engine.state.run_size import demand_wait
from hai_flow.engine.state.state import PendingState, RunState, StepState, is_heard
from hai_flow.engine.steps.tool_calls import resolve_call
from hai_flow.values import Json

SUBSCRIBE: Final = "subscribe"
CALLBACK: Final = "callback:"
"""How the types of signals begin that callbacks become."""
MATCH_FAILED: Final = "match_failed"
_NO_ROOTS: Final[Mapping[str, Json]] = MappingProxyType({})
LEFT_MAX: Final = 256
"""How many signals of a type a run remembers as offered and not yet taken."""


def begin_wait_for(draft: Draft, step: Step, verb: WaitFor) -> None:
    """The step waits from here on, until its deadline. Raises `Raised` if that can't be rendered."""
    demand_wait(draft, step)
    due = draft.now + draft.milliseconds(verb.deadline, step)
    draft.record_start(step)
    types = tuple(dict.fromkeys(subscription.event for subscription in verb.subscriptions))
    draft.emit(e.SignalsAwaited, path=step.path, types=types)
    kind = "halting_deadline" if verb.pause_clock == "stop" else "deadline"
    draft.emit(e.TimerSet, path=step.path, kind=kind, due=due)
    _subscribe(draft, step.path, types)


def await_withdrawal(draft: Draft, step: Step, event: Subscription) -> None:
    """The question of the step has been opened: from here on the event takes it back."""
    draft.emit(e.SignalsAwaited, path=step.path, types=(event.event,))
    _subscribe(draft, step.path, (event.event,))


def await_other_withdrawals(draft: Draft) -> None:
    """The questions of a run that has moved to another version are taken back by the events that it names."""
    for path, id in sorted(draft.state.open_pendings.items()):
        if draft.state.pendings[id].opened.kind not in ASKED:
            continue
        event, awaited = find_event(draft.step(path)), draft.state.subscriptions.get(path, ())
        types = () if event is None else (event.event,)
        if types != awaited:
            draft.emit(e.SignalsAwaited, path=path, types=types)
            if types:
                _subscribe(draft, path, types)


def derive_callback_type(path: str, known: StepState) -> str:
    """The type of the signal that the callback of the step at `path` becomes. No other request can send signals of it.

    It is the same for all attempts with the same arguments and the same key: a service that heard an earlier one, whose
    answer was lost, calls back for all of them. Behind an undo, and behind a gate that asked anew, the type is another
    one, and late callbacks of the earlier requests answer nothing."""
    again = f"#{known.rounds}.{known.past}" if known.rounds or known.past else ""
    return f"{CALLBACK}{path}{again}"


def await_callback(draft: Draft, step: Step, callback: Callback, output: Json) -> None:
    """The request of the step was answered with `output`, and its attempt is over: it waits for the callback from here
    on, until its deadline."""
    try:
        demand_wait(draft, step)
        due = draft.now + draft.milliseconds(callback.deadline, step)
    except Raised as raised:
        _fail(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))
        return
    types = (derive_callback_type(step.path, draft.state.steps[step.path]),)
    draft.emit(e.SignalsAwaited, path=step.path, types=types, output=output)
    draft.emit(e.TimerSet, path=step.path, kind="deadline", due=due)
    _subscribe(draft, step.path, types)


def is_awaiting_callback(state: RunState, path: str, type: str) -> bool:
    """Whether a callback of this type would come in time: the step at `path` waits for it, or may yet. It may while a
    request is under way, and also while a lost one is about to be sent again, or a person decides whether it
    happened."""
    step_state = state.steps.get(path)
    if step_state is None or not step_state.is_open or not step_state.attempt:
        return False
    return derive_callback_type(path, step_state) == type and not step_state.received


def subscribe_again(draft: Draft) -> None:
    """A fork waits for the same signals as the other run; signals that came since the fork's moment are still in time
    for it."""
    for path, types in sorted(draft.state.subscriptions.items()):
        _subscribe(draft, path, types)


def _subscribe(draft: Draft, path: str, types: tuple[str, ...]) -> None:
    body: Json = {"path": path, "types": list(types), "since": draft.state.started_at}
    heard = {type: draft.state.heard[type] for type in types if type in draft.state.heard}
    if heard:
        body["heard"] = msgspec.to_builtins(heard)
    draft.send(SUBSCRIBE, draft.state.run_id, body)


def receive_signal(draft: Draft, command: c.Signal) -> Json:
    """Offer a signal to the steps that wait, first the one that has waited longest.

    Returns `{"id", "taken", "awaits"}`: whether the run has it now, and the types that it waits for still."""
    before, is_accepted = len(draft.events), is_taken(draft.state, command)
    if not is_accepted and (command.own or command.sent_at >= draft.state.started_at):  # its own can't be older than it
        is_accepted = any(_offer(draft, draft.step(path), command) for path in _waiting(draft, command.name))
    draft.already = len(draft.events) == before
    awaits = sorted({type for types in draft.state.subscriptions.values() for type in types})
    return {"id": command.id, "taken": is_accepted, "awaits": awaits}


def is_taken(state: RunState, signal: c.Signal) -> bool:
    """Whether the run has taken the signal before, as far as it knows."""
    if signal.id in state.signals:
        return True
    heard = state.heard.get(signal.name)
    return heard is not None and is_heard(heard, signal) and signal.id not in heard.left


def _find_progress(state: RunState, signal: c.Signal) -> e.Heard | None:
    """How far the run has heard the signal's type, if that is further than it knew."""
    offered = signal.offered
    if offered is None:
        return None
    before = state.heard.get(signal.name, e.Heard())
    if offered.to_all <= before.to_all and offered.own <= before.own:
        return None
    missed = tuple(
        passed.id
        for passed in offered.passed
        if not is_heard(before, passed) and passed.id not in state.signals and passed.id != signal.id
    )
    if len(before.left) + len(missed) > LEFT_MAX:
        return None
    return e.Heard(max(offered.to_all, before.to_all), max(offered.own, before.own), missed)


def deadline_passed(draft: Draft, step: Step) -> None:
    """Nothing came in time: the step fails, or finishes with its default."""
    verb = step.verb
    if isinstance(verb, Http | Call):
        message = f"The deadline of {step.path} has passed, and no callback has come."
        _fail(draft, step, draft.error("http.callback_expired", message, step.path))
        return
    assert isinstance(verb, WaitFor)
    if verb.expiry.outcome == "default":
        assert verb.expiry.value is not None
        try:
            loop.finish(draft, step, draft.render(verb.expiry.value, step))
        except Raised as raised:
            loop.fail(draft, step, draft.error(raised.code, raised.message, step.path))
        return
    awaited = ", ".join(draft.state.subscriptions.get(step.path, ()))
    message = f"The deadline of {step.path} has passed, and no {awaited} has come that it waited for."
    loop.fail(draft, step, draft.error("wait_for.expired", message, step.path))


def _fail(draft: Draft, step: Step, error: e.Error) -> None:
    resolve_call(draft, step, None, error)
    loop.fail(draft, step, error)


def _waiting(draft: Draft, type: str) -> list[str]:
    state = draft.state
    waiting = [path for path, types in state.subscriptions.items() if type in types]
    return sorted(waiting, key=lambda path: (state.steps[path].started_at, path))


def _offer(draft: Draft, step: Step, command: c.Signal) -> bool:
    pending = draft.state.open_pendings.get(step.path)
    if pending is not None:
        return _offer_to_withdraw(draft, step, draft.state.pendings[pending], command)
    verb = step.verb
    assert isinstance(verb, WaitFor | Http | Call)
    met = {signal.subscription for signal in draft.state.steps[step.path].received}
    for number, subscription in enumerate(_list_subscriptions(draft, step)):
        if number not in met and _matches(draft, step, subscription, command):
            _take(draft, step, verb, number, met | {number}, command)
            return True
    return False


def _offer_to_withdraw(draft: Draft, step: Step, pending: PendingState, command: c.Signal) -> bool:
    event = find_event(step)
    args = pending.opened.args
    roots = {} if args is None else {"args": values.loads(args)}
    if event is None or not _matches(draft, step, event, command, roots):
        return False
    _receive(draft, step, 0, (), command)
    withdraw(draft, step, pending, f"{step.path} was taken back: {command.name} came.")
    return True


def _matches(
    draft: Draft, step: Step, subscription: Subscription, command: c.Signal, roots: Mapping[str, Json] = _NO_ROOTS
) -> bool:
    if subscription.event != command.name:
        return False
    if subscription.match is None:
        return True
    event = event_value(command.id, command.name, command.data, command.sent_at)
    try:
        return draft.truth(subscription.match, step, event=event, **roots)
    except Raised as raised:
        message = f"match can't be evaluated for signal {command.id}, so it does not match: {raised}"
        draft.emit(e.WarningRaised, code=MATCH_FAILED, message=message, path=step.path)
        return False


def _list_subscriptions(draft: Draft, step: Step) -> tuple[Subscription, ...]:
    if isinstance(step.verb, WaitFor):
        return step.verb.subscriptions
    return tuple(Subscription(type) for type in draft.state.subscriptions[step.path])


def _take(draft: Draft, step: Step, verb: WaitFor | Http | Call, number: int, met: set[int], command: c.Signal) -> None:
    """The step takes the signal for its subscription `number`; `met` are the subscriptions that have a signal now."""
    open_events = [each.event for other, each in enumerate(_list_subscriptions(draft, step)) if other not in met]
    awaits = tuple(dict.fromkeys(open_events)) if isinstance(verb, WaitFor) and verb.mode == "all" else ()
    _receive(draft, step, number, awaits, command)
    if not awaits:
        output = _output(draft, step, verb)
        if not isinstance(verb, WaitFor):
            resolve_call(draft, step, output, None)
        loop.finish(draft, step, output)


def _receive(draft: Draft, step: Step, number: int, awaits: tuple[str, ...], command: c.Signal) -> None:
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    draft.emit(
        e.SignalReceived,
        id=command.id,
        name=command.name,
        data=command.data,
        path=step.path,
        sent_at=command.sent_at,
        subscription=number,
        awaits=awaits,
        place=command.place,
        own=command.own,
        heard=_find_progress(draft.state, command),
        by=command.by,
    )


def _output(draft: Draft, step: Step, verb: WaitFor | Http | Call) -> Json:
    step_state = draft.state.steps[step.path]
    received = step_state.received
    if isinstance(verb, Http):
        return {**step_state.output, "callback": received[-1].data}
    if isinstance(verb, Call):
        return {"answer": step_state.output, "callback": received[-1].data}
    by_subscription = {each.subscription: event_value(each.id, each.name, each.data, each.sent_at) for each in received}
    if verb.mode == "all":
        return [by_subscription[number] for number in sorted(by_subscription)]
    return by_subscription[received[-1].subscription]
