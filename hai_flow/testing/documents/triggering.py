"""A case that begins with what starts its run: a webhook, an event, a schedule, the end of another run.

The trigger's `match`, `dedupe` and `input` are those of the workflow, evaluated as a server does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

import msgspec

from hai_flow import values
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.plan import EventTrigger, Plan, RunTrigger, ScheduleTrigger, Trigger, WebhookTrigger
from hai_flow.engine.events import event_value
from hai_flow.engine.state.instigators import SYSTEM
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.testing.suite import CaseTrigger
from hai_flow.values import Json

KINDS: Final[dict[str, type]] = {
    "webhook": WebhookTrigger,
    "event": EventTrigger,
    "schedule": ScheduleTrigger,
    "run": RunTrigger,
}
EVENT_ID: Final = "event-1"
REQUESTER: Final = SYSTEM


class Triggered(msgspec.Struct, frozen=True):
    """The run that a trigger starts. `started` is false where `match` is; `dedupe` is the key that makes the same run
    of two events, None where the workflow says nothing."""

    started: bool
    input: Json = None
    dedupe: str | None = None
    scheduled_at: int | None = None


def triggers_meant(plan: Plan, start: CaseTrigger) -> list[Trigger]:
    """The triggers of the workflow that `start` may mean: by kind, and by what it names."""
    fields = start.fields
    meant: list[Trigger] = []
    for trigger in plan.triggers:
        match trigger:
            case WebhookTrigger(path=path) if start.kind == "webhook" and fields.get("path", path) == path:
                meant.append(trigger)
            case EventTrigger(type=type) if start.kind == "event" and fields.get("type", type) == type:
                meant.append(trigger)
            case ScheduleTrigger(cron=cron) if start.kind == "schedule" and fields.get("cron", cron) == cron:
                meant.append(trigger)
            case RunTrigger(workflow=name) if start.kind == "run" and fields.get("workflow", name) == name:
                meant.append(trigger)
            case _:
                pass
    return meant


def trigger_run(plan: Plan, start: CaseTrigger, now: int) -> Triggered:
    """What the workflow's trigger makes of it. Raises `Rejected` 422 where an expression fails, as a server does."""
    trigger = triggers_meant(plan, start)[0]
    fields = start.fields
    try:
        match trigger:
            case ScheduleTrigger():
                at = start.at_ms if start.at_ms is not None else now
                scope: dict[str, Json] = {"event": {"at": instants.rfc3339(at)}, "now": now}
                input = (
                    trigger.input
                    if trigger.template is None
                    else trigger.template.render(_used(trigger.template.roots, scope))
                )
                return Triggered(True, {} if input is None else input, scheduled_at=at)
            case RunTrigger():
                event = event_value(EVENT_ID, f"run.{fields.get('status', 'finished')}", _end(fields), now)
                if fields.get("status", "finished") not in trigger.on:
                    return Triggered(False)
                data: Json = None
            case EventTrigger():
                data = fields.get("data")
                event = event_value(fields.get("id", EVENT_ID), trigger.type, data, now)
            case WebhookTrigger():
                data = fields.get("data")
                id = fields.get("id") or sha256(values.dumps(data)).hexdigest()
                headers = {str(name).lower(): value for name, value in fields.get("headers", {}).items()}
                event = {**event_value(id, "webhook", data, now), "headers": headers}
            case _:  # pragma: no cover - the binding has seen to it
                raise AssertionError(trigger)
        scope = {"event": event, "now": now}
        if trigger.match is not None and trigger.match.evaluate(_used(trigger.match.roots, scope)) is not True:
            return Triggered(False)
        input = data if trigger.input is None else trigger.input.render(_used(trigger.input.roots, scope))
        dedupe = (
            None
            if isinstance(trigger, RunTrigger) or trigger.dedupe is None
            else trigger.dedupe.render(_used(trigger.dedupe.roots, scope))
        )
    except ExpressionError as error:
        raise Rejected(422, error.code, f"the {start.kind} trigger of {plan.name}: {error.message}") from None
    key = dedupe if dedupe is None or isinstance(dedupe, str) else values.dumps(dedupe).decode()
    return Triggered(True, {} if input is None else input, key or None)


def _used(roots: Iterable[str], scope: Mapping[str, Json]) -> dict[str, Json]:
    return {name: scope[name] for name in roots}


def _end(fields: Mapping[str, Json]) -> dict[str, Json]:
    """`event.data` of the end of another run."""
    return {
        "run_id": "01900000-0000-7000-8000-000000000002",
        "workflow": fields.get("workflow", ""),
        "version": fields.get("version", 1),
        "thread_id": "test",
        "requester": fields.get("requester", REQUESTER),
        "status": fields.get("status", "finished"),
        "input": fields.get("input", {}),
        "output": fields.get("output"),
        "error": fields.get("error"),
    }
