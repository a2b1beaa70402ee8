"""The starts of runs and their bounds: `triggers`, `limits`, `concurrency` (docs/language.md#triggers)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.checks.type_mismatches import misfits
from hai_flow.definition.expressions.expression_error import Faults
from hai_flow.definition.fields import Parts, is_literal, texts
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.names.holes import split_holes
from hai_flow.definition.names.known_names import Names, NoSteps
from hai_flow.definition.names.known_types import INSTANT, REQUEST
from hai_flow.definition.names.name_forms import WEBHOOK_PATH
from hai_flow.definition.names.wording import kind_of, shorten, suggestion
from hai_flow.definition.names.zones import NO_PLACES, check_sign, check_zone
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import DOCUMENT_SHAPES
from hai_flow.schedule import (
    CRON_CHARS_MAX,
    UnevenStep,
    crons_of_every,
    fault_of_cron,
    find_uneven_steps,
    remedy_of_cron,
)
from hai_flow.values import Json

_RATE: Final = re.compile(r"rate\((?P<count>[0-9]{1,4}) (?P<unit>minute|hour|day)s?\)")
_MINUTES: Final = {"minute": 1, "hour": 60, "day": 1440}
_KINDS: Final = tuple(plan.TRIGGER_KINDS.values())
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_SECRET: Final = re.compile(r"\s*\$\{\{\s*secrets\.(?P<name>[A-Za-z_][A-Za-z0-9_]{0,62})\s*\}\}\s*")


_OF_KINDS: Final = {"schedule": "instant", "event": "event", "run": "end of a run"}


class TriggerStarts(msgspec.Struct, frozen=True):
    """The triggers. `alone`: the kind of the first one whose runs the system starts."""

    triggers: tuple[plan.Trigger, ...] = (plan.ApiTrigger(),)
    alone: str | None = None


def read_triggers(parts: Parts, value: Json, names: Names, input: JsonSchema, own_name: Json) -> TriggerStarts:
    """The triggers; `api` alone where the document names none. `own_name`: of the workflow."""
    triggers: list[plan.Trigger] = []
    kinds: list[str] = []
    paths: set[str | None] = set()
    for index, raw in enumerate(value):
        kind = _kind(parts, raw, ("triggers", index))
        if kind is None:
            continue
        kinds.append(kind)
        body, at = raw[kind], ("triggers", index, kind)
        if kind in ("schedule", "event", "run") and isinstance(body, Mapping) and raw in value[:index]:
            message = f"this trigger stands here twice, so each such {_OF_KINDS[kind]} starts two runs; remove one"
            parts.reader.warning(("triggers", index), "trigger.double", message)
        match kind:
            case "api":
                fields = parts.reader.fields(DOCUMENT_SHAPES["api"], {} if body is None else body, at, "`api`")
                trigger: plan.Trigger | None = plan.ApiTrigger(fields.get("tasks") == "required")
            case "event":
                trigger = _event(parts, body, at, names)
            case "run":
                trigger = _end(parts, body, at, names, own_name)
            case "webhook":
                trigger = _compile_webhook(parts, body, at, names, paths)
            case _:
                trigger = _schedule(parts, body, at, names, input)
        if isinstance(body, Mapping) and kind != "api" and (kind != "schedule" or _has_holes(body)):
            _check_mapping(parts, body, at, input, names)
        triggers += [trigger] if trigger is not None else []
    return TriggerStarts(tuple(triggers) or (plan.ApiTrigger(),), next((kind for kind in kinds if kind != "api"), None))


def _kind(parts: Parts, raw: Json, at: Path) -> str | None:
    """Which trigger this is; None after a finding."""
    keys = list(raw) if isinstance(raw, Mapping) else []
    if len(keys) == 1 and keys[0] in _KINDS:
        return keys[0]
    actual = " and ".join(f"`{key}`" for key in keys) if keys else kind_of(raw)
    kinds = [key for key in keys if key in _KINDS]
    stranger = next((key for key in keys if key not in _KINDS), raw if isinstance(raw, str) else "")
    hint = suggestion(stranger, _KINDS) if stranger else ""
    if isinstance(raw, str) and raw in _KINDS:
        hint = f"; write `{raw}: {{}}`"
    elif kinds and stranger:
        hint = f"; indent its keys under `{kinds[0]}`"
    elif stranger in ("cron", "timezone"):
        hint = "; put it under `schedule`"
    message = f"expected one of {', '.join(f'`{kind}`' for kind in _KINDS)}, found {actual}{hint}"
    place = (*at, stranger) if stranger in keys else at
    parts.reader.error(place, "trigger.kind", message, key=place != at)
    return None


def _end(parts: Parts, body: Json, at: Path, names: Names, own_name: Json) -> plan.Trigger | None:
    """The end of a run of another workflow, which its expressions see as `event`."""
    names = _build_event_names(names)
    fields = parts.reader.fields(DOCUMENT_SHAPES["run_trigger"], body, at, "`run`")
    match = parts.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
    input = parts.template(fields["input"], (*at, "input"), names) if "input" in fields else None
    if "workflow" not in fields:
        return None
    if fields["workflow"] == own_name:
        message = (
            "a workflow that its own end starts never comes to rest; use a `schedule`, or end with a step "
            f"`run: {own_name}` with `detach: true` behind an `if`"
        )
        parts.reader.error((*at, "workflow"), "trigger.circle", message)
    return plan.RunTrigger(fields["workflow"], tuple(fields.get("on", ("finished",))), match, input)


def _compile_webhook(parts: Parts, body: Json, at: Path, names: Names, paths: set[str | None]) -> plan.Trigger | None:
    """A request that proves to know a secret, which its expressions see as `event`."""
    names = _build_event_names(names).with_roots(schemas={"event": REQUEST})
    fields = parts.reader.fields(DOCUMENT_SHAPES["webhook_trigger"], body, at, "`webhook`")
    match = parts.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
    dedupe = parts.text(fields, "dedupe", at, names)
    input = parts.template(fields["input"], (*at, "input"), names) if "input" in fields else None
    secret = _secret(parts, fields["secret"], (*at, "secret")) if "secret" in fields else None
    path, scheme, header = fields.get("path"), fields.get("scheme", "github"), fields.get("header", "")
    if path is not None and not WEBHOOK_PATH.fullmatch(path):
        example = "such as `shop/orders` (letters, digits, `.`, `_`, `-`)"
        message = f"expected a path {example}, found `{shorten(path)}`"
        parts.reader.error((*at, "path"), "webhook.path", message)
    if path in paths:
        parts.reader.error((*at, "path"), "webhook.path", f"there is a webhook `{path}` already; name it otherwise")
    paths.add(path)
    if header and (scheme == "standard" or not _HEADER.fullmatch(header)):
        message = f"expected the name of a header, found `{shorten(header)}`"
        if scheme == "standard":
            message = "the headers of `scheme: standard` have fixed names; leave `header` out"
        parts.reader.error((*at, "header"), "webhook.header", message, key=scheme == "standard")
    if scheme in ("github", "stripe") and "event.headers" in fields.get("dedupe", ""):
        message = (
            "no header is signed: who has recorded a request may send it again with another one, and starts another "
            "run; take `dedupe` from `event.data`, or leave it out: the same request is the same event by itself"
        )
        parts.reader.warning((*at, "dedupe"), "webhook.dedupe", message)
    if path is None or secret is None:
        return None
    return plan.WebhookTrigger(path, secret, scheme, header, match, dedupe, input)


def _secret(parts: Parts, text: str, at: Path) -> str | None:
    named = _SECRET.fullmatch(text)
    if named is None:  # it may be a secret: it is not repeated
        message = "a secret is named, never written: `secret: ${{ secrets.NAME }}`, kept as HAI_FLOW_SECRET_NAME"
        parts.reader.error(at, "webhook.secret", message)
        return None
    return named["name"]


def _has_holes(fields: Mapping[str, Json]) -> bool:
    return any("${{" in text.replace("$${{", "") for _, text in texts(fields.get("input"), ()))


def _check_mapping(parts: Parts, fields: Mapping[str, Json], at: Path, input: JsonSchema, names: Names) -> None:
    """Report keys of a trigger's `input` that the workflow's input does not have, those that it lacks, and values that
    never fit."""
    mapping = fields.get("input")
    properties = input.raw.get("properties", {}) if isinstance(input.raw, Mapping) else {}
    if not isinstance(mapping, Mapping) or not isinstance(properties, Mapping):
        return
    closed = input.raw.get("additionalProperties") is False or "additionalProperties" not in input.raw
    for name in mapping:
        if name not in properties and closed and "${{" not in str(name):
            hint = suggestion(str(name), properties) or f"; it has {', '.join(properties) or 'none'}"
            message = f"the workflow's `input` has no `{name}`{hint}"
            parts.reader.warning((*at, "input", name), "trigger.input", message, key=True)
    here = _build_event_names(names)
    for name, value in mapping.items():
        schema = properties.get(name)
        if not isinstance(schema, Mapping) or "$ref" in str(schema):
            continue
        faults = [fault["message"] for fault in JsonSchema(schema).findings(value)] if is_literal(value) else []
        for fault in [*faults, *(fault for _, fault in misfits(value, None, schema, input.raw, here))][:1]:
            message = f"this never fits the workflow's `input`, so no run would begin: {fault}"
            parts.reader.warning((*at, "input", name), "trigger.input", message)
    for name in input.raw.get("required", ()):
        property_ = properties.get(name)
        if name not in mapping and not (isinstance(property_, Mapping) and "default" in property_):
            message = f"the workflow's `input` needs `{name}`, which this does not give: no run would begin"
            parts.reader.warning((*at, "input"), "trigger.input", message, key=True)


def _event(parts: Parts, body: Json, at: Path, names: Names) -> plan.Trigger | None:
    names = _build_event_names(names)
    fields = parts.reader.fields(DOCUMENT_SHAPES["event_trigger"], body, at, "`event`")
    match = parts.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
    dedupe = parts.text(fields, "dedupe", at, names)
    input = parts.template(fields["input"], (*at, "input"), names) if "input" in fields else None
    if "type" in fields:
        parts.check_event_type(fields["type"], (*at, "type"))
    return plan.EventTrigger(fields["type"], match, dedupe, input) if "type" in fields else None


def _schedule(parts: Parts, body: Json, at: Path, names: Names, input: JsonSchema) -> plan.Trigger | None:
    if isinstance(body, Mapping) and "every" in body:
        parts.reader.error((*at, "every"), "schedule.cron", _suggest_instead_of_every(body["every"]), key=True)
        return None
    fields = parts.reader.fields(DOCUMENT_SHAPES["schedule_trigger"], body, at, "`schedule`")
    sound = True
    if "cron" in fields and (fault := _check_cron(fields["cron"])):
        sound = False
        parts.reader.error((*at, "cron"), "schedule.cron", fault)
    elif "cron" in fields:
        for uneven in find_uneven_steps(fields["cron"]):
            report = parts.reader.refuse if uneven.in_vain else parts.reader.warning
            report((*at, "cron"), "schedule.cron", _explain_uneven(uneven))
    if "timezone" in fields:
        sound = _check_zone(parts, fields["timezone"], (*at, "timezone")) and sound
    template = _check_input(parts, fields, at, names, input)
    if not sound or "cron" not in fields or "timezone" not in fields:
        return None
    missed, overlap = fields.get("missed", "skip"), fields.get("overlap", "skip")
    return plan.ScheduleTrigger(fields["cron"], fields["timezone"], missed, overlap, fields.get("input"), template)


def _check_zone(parts: Parts, name: str, at: Path) -> bool:
    """Whether the schedule can be computed in this zone."""
    fault = check_zone(name)
    if fault is not None and name in NO_PLACES:  # releases before took it
        parts.reader.refuse(at, "schedule.timezone", fault)
        return True
    if fault is not None:
        parts.reader.error(at, "schedule.timezone", fault)
        return False
    turned = check_sign(name)
    if turned is not None:
        parts.reader.warning(at, "schedule.timezone", turned)
    return True


def _suggest_instead_of_every(value: Json) -> str:
    try:
        minutes, rest = divmod(milliseconds(str(value)), 60_000)
    except NotADuration:
        minutes, rest = 0, 1
    crons = () if rest else crons_of_every(minutes)
    if len(crons) == 1:
        return f'a schedule says when, not how often; write `cron: "{crons[0]}"`'
    if crons:
        return f"a schedule says when, not how often; write a schedule for each of {_list_crons(crons)}"
    return 'a schedule says when, not how often; write `cron`, such as "0 * * * *" for every hour'


def _explain_uneven(uneven: UnevenStep) -> str:
    """The sentence about a step of a cron expression that does not divide its range."""
    field = f"`{uneven.item}` in the field {uneven.field}"
    if uneven.in_vain:
        crons = crons_of_every(uneven.step) if uneven.field == "minute" else ()
        remedy = f"; for every {uneven.step} minutes write {_list_crons(crons)}" if crons else ""
        alone = f"a step of {uneven.step} leaves its range of {uneven.size} at once"
        return f"{field} fires at {uneven.times} alone: {alone}{remedy}"
    return f"{field} fires at {uneven.times}, and begins anew then: the last gap is shorter than the others"


def _list_crons(crons: Sequence[str]) -> str:
    return " and ".join(f"`{cron}`" for cron in crons)


def _check_input(
    parts: Parts, fields: Mapping[str, Json], at: Path, names: Names, input: JsonSchema
) -> plan.Template | None:
    """Check a schedule's input: literal against the schema, or, where it has holes, as a template over `event.at`,
    which is returned."""
    value = fields.get("input")
    place = (*at, "input") if "input" in fields else at
    if _has_holes(fields):
        if not isinstance(value, Mapping):
            message = f"expected a mapping for a schedule's `input`, found {kind_of(value)}; write its keys"
            parts.reader.error(place, "schedule.input", message)
            return None
        return parts.template(value, place, _build_event_names(names).with_roots(schemas={"event": INSTANT}))
    written_input = {} if value is None else value
    faults = input.findings(input.with_defaults(written_input))
    if faults:
        pointer = faults[0]["path"]
        where = f" at {pointer}" if pointer else ""
        message = f"the schedule's input does not fit the workflow's `input`{where}: {faults[0]['message']}"
        parts.reader.error(place, "schedule.input", message, key=True)
    return None


# -- bounds ----------------------------------------------------------------------------------------------------


def read_limits(parts: Parts, value: Json) -> plan.Limits:
    at = ("limits",)
    fields = parts.reader.fields(DOCUMENT_SHAPES["limits"], value, at, "`limits`")
    duration = parts.duration(fields, "duration", at, None)
    return plan.Limits(
        tokens=fields.get("tokens"),
        cost_usd=fields.get("cost_usd"),
        tool_calls=fields.get("tool_calls"),
        duration=duration if isinstance(duration, int) else None,
        steps=fields.get("steps"),
    )


def read_concurrency(parts: Parts, value: Json, names: Names) -> plan.Concurrency | None:
    """How many runs of one key there may be; None where the document does not say, or after a finding."""
    at = ("concurrency",)
    fields = parts.reader.fields(DOCUMENT_SHAPES["concurrency"], value, at, "`concurrency`")
    here = Names(names.types, frozenset(("input", "run", "thread")), NoSteps(names.steps.explain))
    key = parts.text(fields, "key", at, here)
    if key is None:
        return None
    if fields.get("key") == "":
        message = 'expected a key, found an empty text; write what runs that count together share, such as "deploy"'
        parts.reader.refuse((*at, "key"), "concurrency.key", message)
    elif (doubt := _doubt_key(fields["key"], key, here)) is not None:
        parts.reader.warning((*at, "key"), "concurrency.key", doubt)
    return plan.Concurrency(key, fields.get("limit", 1), fields.get("on_conflict", "queue"))


def _doubt_key(text: str, key: plan.Template, names: Names) -> str | None:
    """Why runs may not count together as the key seems to say: each has a key of its own, or those that lack a value
    share one."""
    reads_id = any(path[:2] == ("run", "id") for hole in key.holes for path in hole.paths)
    if reads_id and "?" not in text:  # some runs may well have a key of their own: `x ? "all" : run.id`
        return "with `run.id` each run has a key of its own, so nothing is limited; name what runs share"
    try:
        pieces = split_holes(text)
    except Faults:
        return None
    for hole in pieces if len(pieces) > 1 else ():
        path = None if isinstance(hole, str) else names.find_null_path(f"${{{{{hole.source}}}}}")
        if path is not None:
            return (
                f"`{path}` may be absent or null: all runs without it then share one key; require it, or give them an "
                f'empty key, which counts as none: ${{{{ has({path}) ? "..." + {path} : "" }}}}'
            )
    return None


def _build_event_names(names: Names) -> Names:
    """The names of a trigger's expressions: there is no run yet."""
    return Names(names.types, frozenset(("event", "now")), NoSteps(names.steps.explain))


def _check_cron(text: str) -> str | None:
    if len(text) > CRON_CHARS_MAX:
        return f"expected a cron expression of at most {CRON_CHARS_MAX} characters, found {len(text)}"
    fields = text.split()
    if len(fields) != 5:
        hint = ""
        if (remedy := remedy_of_cron(text)) is not None:
            hint = f"; {remedy}"
        elif (rate := _RATE.fullmatch(text)) is not None:
            crons = crons_of_every(int(rate["count"]) * _MINUTES[rate["unit"]])
            hint = f"; write {_list_crons(crons)}" if crons else ""
        return f"expected a cron expression of 5 fields such as `0 6 * * 1-5`, found {text!r}{hint}"
    fault = fault_of_cron(text)
    if fault is not None and (remedy := remedy_of_cron(text)) is not None:
        return f"expected a cron expression such as `0 6 * * 1-5`, found {text!r}; {remedy}"
    message = f"expected a cron expression such as `0 6 * * 1-5`, found {text!r} ({fault}); correct that field"
    return None if fault is None else message
