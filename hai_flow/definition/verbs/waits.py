"""`wait` and `wait_for`: time, and events from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hai_flow.definition import plan
from hai_flow.definition.expressions.expressions import list_values
from hai_flow.definition.fields import find_other_kind, is_literal, strip_hole
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import NULL_INSTEAD, record
from hai_flow.definition.names.wording import kind_of
from hai_flow.definition.people.awaited_events import SUBSCRIPTION, subscription
from hai_flow.definition.people.deadlines import check_times, on_deadline
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import DEADLINE, ENDED_KEYS, EXPIRY, PAUSE_CLOCK
from hai_flow.definition.yaml.keys import ANY, CEL, DURATION, TEXT, Key, Shape, list_of, literal, shape_of
from hai_flow.primitives.instants import read_rfc3339
from hai_flow.values import Json

WAIT: Final = Shape("wait", "`wait`", (
    Key("for", DURATION, "time to wait", example="10m"),
    Key("until", TEXT, "end of the wait (RFC 3339, with an offset); a past time ends it at once",
        example='"${{ input.at }}"'),
), exactly_one=(("for", "until"),))  # fmt: skip
WAIT_FOR: Final = Shape("wait_for", "`wait_for`", (
    Key("event", literal(1), "the type of the event", example="payment.received"),
    Key("match", CEL, "only events for which this is true", example="event.data.order == input.order"),
    Key("any", list_of(shape_of("subscription"), 1), "the first of several",
        example="[{event: paid}, {event: cancelled}]"),
    Key("all", list_of(shape_of("subscription"), 1), "all of several, in any order",
        example="[{event: paid}, {event: packed}]"),
    DEADLINE,
    Key("on_deadline", EXPIRY,
        "`fail` or `default: value`", default="fail", example="{default: null}", read=ANY),
    PAUSE_CLOCK,
), exactly_one=(("event", "any", "all"),))  # fmt: skip
_KEYS: Final = ("id", "type", "data", "at")
_EVENT: Final = record(id={}, type={"type": "string"}, data={}, at={})


def _wait(context: StepContext, draft: StepDraft, names: Names) -> plan.Wait | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(WAIT, value, at, "`wait`")
    keys = [key for key in ("for", "until") if key in value]
    if len(keys) != 1:
        if keys or all(key in WAIT.words for key in value):
            actual = " and ".join(f"`{key}`" for key in keys) or "none"
            message = f"expected one of `for`, `until` in `wait`, found {actual}"
            context.reader.error(at, "wait.kind", message)
        return None
    if "until" in fields:
        place, text = (*at, "until"), str(strip_hole(fields["until"]))
        until = context.template(text, place, names, text=True)
        kind = find_other_kind(text, until, names)
        _check_instant(context, text, place, kind)
        if (doubt := names.doubt_value(text)) is not None:
            context.reader.warning(place, "wait.nullable", doubt)
        for instant in list_values(text, names) if kind is None else ():
            if (fault := _find_instant_fault(instant)) is not None:
                context.reader.refuse(place, "wait.until", fault)
        return plan.Wait(until=until)
    duration = context.duration(fields, "for", at, names)
    return plan.Wait(for_=duration) if duration is not None else None


def _check_instant(context: StepContext, text: str, at: Path, kind: str | None) -> None:
    """`kind`: the type of its hole where that never gives text."""
    fault = _EXPECTED.format(kind) if kind is not None else _find_instant_fault(text) if "${{" not in text else None
    if fault is not None:
        context.reader.error(at, "wait.until", fault)


_EXPECTED: Final = "expected an instant with its offset such as 2026-03-02T09:00:00Z, or a hole, found {}"


def _find_instant_fault(value: Json) -> str | None:
    """Why a value is no instant; None: it is one."""
    try:
        read_rfc3339(value if isinstance(value, str) else "")
    except ValueError:
        return _EXPECTED.format(repr(value) if isinstance(value, str) else kind_of(value))
    return None


def _wait_for(context: StepContext, draft: StepDraft, names: Names) -> plan.WaitFor | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(WAIT_FOR, value, at, "`wait_for`")
    kinds = [key for key in ("event", "any", "all") if key in value]
    deadline = context.duration(fields, "deadline", at, names) or context.declared.default_wait
    _, expiry = on_deadline(context, fields, at, names, ("fail", "default"), escalates=False)
    check_times(context, fields, at, deadline)
    _check_default(context, fields, at, several="all" in kinds)
    if len(kinds) != 1:
        if kinds or all(key in WAIT_FOR.words for key in value):
            actual = " and ".join(f"`{kind}`" for kind in kinds) or "none"
            message = f"expected one of `event`, `any`, `all` in `wait_for`, found {actual}"
            context.reader.error((*at, kinds[1]) if kinds else at, "wait_for.kind", message, key=True)
        return None
    kind: Any = kinds[0]
    if kind not in fields:
        return None
    here = names.with_roots("event")
    if kind == "event":
        event_fields = {key: fields[key] for key in ("event", "match") if key in fields}
        subscriptions = [subscription(context, event_fields, at, here)]
    else:
        if "match" in value:
            message = f"`match` belongs to each entry of `{kind}`: move it there"
            context.reader.error((*at, "match"), "wait_for.match", message, key=True)
        entries = enumerate(fields[kind])
        subscriptions = [subscription(context, raw, (*at, kind, index), here) for index, raw in entries]
    mode: Any = "one" if kind == "event" else kind
    sound = tuple(each for each in subscriptions if each is not None)
    pause_clock = fields.get("pause_clock", "run")
    return plan.WaitFor(mode, sound, deadline, expiry, pause_clock) if sound else None


def _check_default(context: StepContext, fields: Mapping[str, Json], at: Path, *, several: bool) -> None:
    """Doubt a `default` that has not the form of an event: it replaces all of the output, not its `data`."""
    outcome = fields.get("on_deadline")
    value = outcome.get("default") if isinstance(outcome, Mapping) else None
    if (
        several
        or not isinstance(value, Mapping)
        or not value
        or not is_literal(value)
        or not value.keys().isdisjoint(_KEYS)
    ):
        return
    message = (
        "`default` replaces the whole output, `{id, type, data, at}`, and this has none of its keys: steps that read "
        f"`output.data` fail; write `default: {{data: {{{', '.join(map(str, value))}: ...}}}}`"
    )
    context.reader.warning((*at, "on_deadline", "default"), "wait_for.default", message)


def _gives(context: StepContext, draft: StepDraft) -> Json:
    value = draft.value if isinstance(draft.fields.get("wait_for"), Mapping) else {"on_deadline": {}}
    outcome = value.get("on_deadline")
    if isinstance(outcome, Mapping):
        return {} if "all" in value else _build_default_type(outcome.get("default"))
    several = value.get("all")
    return {"type": "array", "items": _EVENT, "minItems": len(several)} if isinstance(several, list) else _EVENT


def _build_default_type(default: Json) -> Json:
    """The type of an event, or of what stands for it when none comes: of the event's keys only those are always there
    that `default` has."""
    if not is_literal(default) or not isinstance(default, Mapping | str | int | float | None):
        return {}
    if default is None:
        of_event: dict[str, Json] = {key: {} for key in _KEYS}
        return {"properties": of_event, "required": list(_KEYS), "additionalProperties": True, NULL_INSTEAD: True}
    keys = default if isinstance(default, Mapping) else {}
    properties: dict[str, Json] = {key: {} for key in (*_KEYS, *keys)}
    required = [key for key in _KEYS if keys.get(key) is not None]
    return {"properties": properties, "required": required, "additionalProperties": True}


VERBS: Final = (
    VerbRules(
        "wait",
        type=shape_of("wait"),
        does="a durable timer",
        keys=ENDED_KEYS,
        output="null",
        example="{for: 10m}",
        compile=_wait,
        gives={"type": "null"},
        kind="time",
        shapes=(WAIT,),
        cleans=False,
        aka=("sleep", "delay", "timer", "pause"),
    ),
    VerbRules(
        "wait_for",
        type=shape_of("wait_for"),
        does="an event from outside; early ones are kept",
        keys=ENDED_KEYS,
        output="`{id, type, data, at}`; with `all` a list",
        fails="`wait_for.expired`",
        example='{event: payment.received, match: "event.data.order == input.order"}',
        compile=_wait_for,
        kind="time",
        shapes=(WAIT_FOR, SUBSCRIPTION),
        gives=_gives,
        cleans=False,
        aka=("event", "signal"),
    ),
)
