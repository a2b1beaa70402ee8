"""How a run begins, before its first step: its input, and the concurrency key that it needs.

The key is rendered before the run exists, because a slot must be found for it before it is stored."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.shared_state import build_first_state
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected

KEY_CHARS_MAX: Final = 500


def begin_run(draft: Draft, command: c.Start) -> None:
    """The run is there. Raises `Rejected` 422 if the input, or the state that a client has written, does not fit."""
    plan = draft.plan
    input = plan.input.with_defaults(command.input)
    findings = plan.input.fit(input)[1]
    if findings:
        message = f"the input does not fit workflow {plan.name}@{plan.version}."
        raise Rejected(422, "input.invalid", message, findings=findings)
    draft.emit(
        e.RunStarted,
        workflow=plan.name,
        version=plan.version,
        sha256=plan.sha256.hex(),
        thread_id=command.thread_id,
        requester=command.requester,
        instigators=command.instigators,
        input=input,
        state=build_first_state(plan, command.kept, command.state),
        message=command.message,
        trigger=command.trigger,
        scheduled_at=command.scheduled_at,
        dev=command.dev,
        ready=(plan.first,),
        pins=command.pins,
        parent=command.parent,
        origin=command.origin,
        timeout=command.timeout,
        key=command.key,
        allowance=command.allowance,
        trace=command.trace,
    )


def compute_key_of_fork(plan: Plan, command: c.Fork, now: int) -> str | None:
    """As `key_of`, for a fork: by the input and the version that it begins with."""
    first, edits = command.events[0], command.edits or c.Edits()
    assert isinstance(first, e.RunStarted), "a log begins with run_started"
    input = first.input
    for event in command.events:
        if isinstance(event, e.Forked | e.Migrated) and event.input is not None:
            input = event.input
    start = c.Start(
        run_id=command.run_id,
        thread_id=first.thread_id,
        requester=command.answer.by.id,
        input=input if edits.input is msgspec.UNSET else edits.input,
        message=first.message,
        trigger=first.trigger,
        scheduled_at=first.scheduled_at,
        dev=first.dev,
    )
    return key_of(plan, start, now)


def compute_key_of_move(plan: Plan, state: RunState, now: int) -> str | None:
    """As `key_of`, for a run that is to go on with `plan`."""
    start = c.Start(
        run_id=UUID(state.run_id),
        thread_id=state.thread_id,
        requester=state.requester,
        input=state.input,
        message=state.message,
        trigger=state.trigger,
        scheduled_at=state.scheduled_at,
        dev=state.dev,
    )
    return key_of(plan, start, now)


def key_of(plan: Plan, command: c.Start, now: int) -> str | None:
    """The concurrency key that the run would hold, `<workflow>:<key>`; None if its workflow says nothing of it, or the
    key is empty.

    Raises `Rejected` 422 if the input does not fit, or if no key can be made of it."""
    if plan.concurrency is None:
        return None
    draft = Draft(plan, RunState(str(command.run_id)), now, DEFAULT_BOUNDS)
    begin_run(draft, command)
    try:
        key = draft.text(plan.concurrency.key, None)
    except Raised as raised:
        message = f"the concurrency key of {plan.name}@{plan.version} can't be made: {raised.message}"
        raise Rejected(422, raised.code, message) from None
    if len(key) > KEY_CHARS_MAX or "\x00" in key:
        message = f"expected a concurrency key of at most {KEY_CHARS_MAX} characters without NUL, found {len(key)}."
        raise Rejected(422, "concurrency.key", message)
    return f"{plan.name}:{key}" if key else None
