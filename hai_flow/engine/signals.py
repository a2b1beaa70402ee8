"""`wait_for`: a step that waits for events from outside.

The engine never looks for signals. A step that begins to wait says so in the outbox ("subscribe"); whoever delivers
that offers the run what was stored before, and later signals are offered as they come (STORE H6). An offer is the
command Signal: it may come twice, too late, or not fit, and then nothing happens. A run takes one signal once.

Signals that come while the run is paused are taken at once, as people's votes are: they are in time, whatever happens
to the deadline meanwhile. What follows from them waits for Resume.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from hai_flow import values
from hai_flow.definition.plan import Step, Subscription, WaitFor
from hai_flow.engine import commands as c
from hai_flow.engine import endings
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised

Json: TypeAlias = Any

SUBSCRIBE: Final = "subscribe"
MATCH_FAILED: Final = "match_failed"


def begin_wait_for(draft: Draft, step: Step, verb: WaitFor) -> None:
    """The step waits from here on, until its deadline. Raises `Raised` if that can't be rendered."""
    due = draft.now + draft.milliseconds(verb.deadline, step)
    draft.started(step)
    types = tuple(dict.fromkeys(subscription.event for subscription in verb.subscriptions))
    draft.emit(e.SignalsAwaited, path=step.path, types=types)
    kind = "halting_deadline" if verb.pause_clock == "stop" else "deadline"
    draft.emit(e.TimerSet, path=step.path, kind=kind, due=due)
    _subscribe(draft, step.path, types)


def subscribe_again(draft: Draft) -> None:
    """Of a fork: it waits for what the other run waited for, and what has come since is in time."""
    for path, types in sorted(draft.state.subscriptions.items()):
        _subscribe(draft, path, types)


def _subscribe(draft: Draft, path: str, types: tuple[str, ...]) -> None:
    body = {"path": path, "types": list(types), "since": draft.state.started_at}
    draft.send(SUBSCRIBE, draft.state.run_id, body)


def arrived(draft: Draft, command: c.Signal) -> Json:
    """Offer a signal to the steps that wait, first the one that has waited longest.

    Returns `{"id", "taken", "awaits"}`: whether the run has it now, and the types that it waits for still.
    """
    before, taken = len(draft.events), command.id in draft.state.signals
    if not taken and command.sent_at >= draft.state.started_at:
        taken = any(_offer(draft, draft.step(path), command) for path in _waiting(draft, command.name))
    draft.already = len(draft.events) == before
    awaits = sorted({type for types in draft.state.subscriptions.values() for type in types})
    return {"id": command.id, "taken": taken, "awaits": awaits}


def deadline_passed(draft: Draft, step: Step) -> None:
    """Nothing came in time: the step fails, or finishes with its default."""
    verb = step.verb
    assert isinstance(verb, WaitFor)
    if verb.expiry.outcome == "default":
        assert verb.expiry.value is not None
        try:
            endings.finish(draft, step, draft.render(verb.expiry.value, step))
        except Raised as raised:
            endings.fail(draft, step, draft.error(raised.code, raised.message, step.path))
        return
    awaited = ", ".join(draft.state.subscriptions.get(step.path, ()))
    message = f"The deadline of {step.path} has passed, and no {awaited} has come that it waited for."
    endings.fail(draft, step, draft.error("wait_for.expired", message, step.path))


def _waiting(draft: Draft, type: str) -> list[str]:
    state = draft.state
    waiting = [path for path, types in state.subscriptions.items() if type in types]
    return sorted(waiting, key=lambda path: (state.steps[path].started_at, path))


def _offer(draft: Draft, step: Step, command: c.Signal) -> bool:
    verb = step.verb
    assert isinstance(verb, WaitFor)
    met = {signal.subscription for signal in draft.state.steps[step.path].received}
    for number, subscription in enumerate(verb.subscriptions):
        if number not in met and _matches(draft, step, subscription, command):
            _take(draft, step, verb, number, met | {number}, command)
            return True
    return False


def _matches(draft: Draft, step: Step, subscription: Subscription, command: c.Signal) -> bool:
    if subscription.event != command.name:
        return False
    if subscription.match is None:
        return True
    event = event_value(command.id, command.name, command.data, command.sent_at)
    try:
        return draft.truth(subscription.match, step, event=event)
    except Raised as raised:
        message = f"match can't be evaluated for signal {command.id}, so it does not match: {raised}"
        draft.emit(e.WarningRaised, code=MATCH_FAILED, message=message, path=step.path)
        return False


def _take(draft: Draft, step: Step, verb: WaitFor, number: int, met: set[int], command: c.Signal) -> None:
    """The step takes the signal for its subscription `number`; `met` are those that have one now."""
    left = [each.event for other, each in enumerate(verb.subscriptions) if other not in met]
    awaits = tuple(dict.fromkeys(left)) if verb.mode == "all" else ()
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
    )
    if not awaits:
        endings.finish(draft, step, _output(draft, step, verb))


def _output(draft: Draft, step: Step, verb: WaitFor) -> Json:
    received = draft.state.steps[step.path].received
    found = {each.subscription: event_value(each.id, each.name, each.data, each.sent_at) for each in received}
    if verb.mode == "all":
        return [found[number] for number in sorted(found)]
    return found[received[-1].subscription]


def event_value(id: str, type: str, data: Json, sent_at: int) -> dict[str, Json]:
    """A signal as expressions see it (LANGUAGE section 6)."""
    return {"id": id, "type": type, "data": data, "at": values.rfc3339(sent_at)}
