"""People: `approve`, the gate `approval` and `ask`, compiled to a policy (docs/language.md#people)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from hai_flow.definition import plan
from hai_flow.definition.checks.type_mismatches import misfits
from hai_flow.definition.expressions.evaluation import CompiledTemplate
from hai_flow.definition.fields import is_literal
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.name_forms import check_name
from hai_flow.definition.names.wording import kind_of, suggestion
from hai_flow.definition.people.awaited_events import subscription
from hai_flow.definition.people.deadlines import ON_DEADLINE_KEY, check_times, on_deadline
from hai_flow.definition.people.deciders import (
    EXCLUDE,
    FROM,
    PICK,
    QUORUM,
    REQUESTER,
    compile_exclusion,
    compile_quorum,
    names_requester,
    selectors_of,
)
from hai_flow.definition.people.forms import COMBINE, FORM, check_combine, form_of
from hai_flow.definition.people.notify import REMIND, compile_reminders, notify
from hai_flow.definition.people.quorum_check import check_deciders, check_pick
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import DEADLINE, NOTIFY, PAUSE_CLOCK
from hai_flow.definition.yaml.keys import (
    ANY,
    BOOLEAN,
    CEL,
    ID,
    LITERAL,
    SELECTORS,
    TEXT,
    Key,
    Shape,
    either,
    enum,
    integer,
    list_of,
    map_of,
    shape_of,
)
from hai_flow.primitives.json_pointers import unescape
from hai_flow.values import Json

Kind: TypeAlias = Literal["approve", "approval", "ask"]

POLICY: Final = (
    EXCLUDE,
    QUORUM,
    PICK,
    Key("reject_when", either(enum("any", "unreachable"), integer(1)),
        "rejections that decide: the first, those that make the quorum unreachable, or n of them", default="any",
        example="unreachable", read=ANY),
    Key("veto", SELECTORS, "members of `from` whose rejection alone decides, whatever `reject_when` says",
        example="role:cfo"),
    Key("options", list_of(ID), "the answers; must include `approve` and `reject`; others need a handler in "
        "`on_decision`", default="[approve, reject]", example="[approve, revise, reject]"),
)  # fmt: skip
REASONS: Final = Key("reasons", map_of(enum("required", "optional"), "any"), "by option: whether a reason is required",
    default="optional", example="{reject: required}")  # fmt: skip
CONFIRM: Final = Key("confirm", BOOLEAN, "pages ask for confirmation before they send an answer", default="false",
    example="true")  # fmt: skip
RULES: Final = Key("rules", BOOLEAN, "standing rules may approve",
    default="true; false if the effect is irreversible", example="false")  # fmt: skip
WITHDRAW_WHEN: Final = Key("withdraw_when", either(CEL, shape_of("subscription")),
    "event, or expression over `state`, that withdraws the question; `approval.withdrawn` (of an `ask`: "
    "`ask.withdrawn`) is then raised", example="{event: order.cancelled, match: event.data.order == input.order}",
    read=ANY)  # fmt: skip
STILL: Final = Shape("still", "`still`", (
    Key("call", LITERAL, "a tool whose `effect` is `read`, called when the effect begins, and before people are asked",
        required=True, example="shop.order"),
    Key("with", map_of(ANY, "any"), "its arguments; `args` are those of the gated call",
        example='{order: "${{ args.order }}"}'),
    Key("expect", CEL, "condition under which the approval still counts; sees the tool's result as `response`, and "
        "`args`", required=True, example='response.status == "open"'),
))  # fmt: skip
TITLE_OF_PENDING: Final = Key(
    "title", TEXT, "the question in one line", required=True, example='"Refund ${{ input.amount }}?"'
)
MESSAGE: Final = Key("message", TEXT, "Markdown below the title", example='"**Reason:** ${{ input.reason }}"')
APPROVAL: Final = Shape("approval", "`approval`", (
    Key("when", CEL, "ask only if true; sees the arguments as `args`", default="true",
        example="args.amount >= 50.0"),
    Key("title", TEXT, "the question in one line", default="the tool's name and title, and its first arguments",
        example='"Refund ${{ args.amount }}?"'),
    Key("message", TEXT, "Markdown below the title", example="Please look twice."),
    FROM, *POLICY, REASONS,
    Key("edit", either(BOOLEAN, list_of(LITERAL)), "arguments that a decider may replace (`true` = all)",
        default="false",
        example="[subject, body]"),
    FORM, COMBINE, NOTIFY, REMIND, DEADLINE, ON_DEADLINE_KEY, WITHDRAW_WHEN, PAUSE_CLOCK, CONFIRM,
    Key("still", either(CEL, shape_of("still")), "condition, checked when the effect begins: if it is false or "
        "unknown, nothing is done and people are asked again; an expression over `state`, or the result of a tool "
        "that reads", example="state.stock >= args.count", read=ANY),
    RULES,
))  # fmt: skip


OPTIONS: Final = ("approve", "reject")
_HANDLERS: Final = ("catch", "finally", "undo")  # an option's handler stands at `~option`, as these do
_OUTCOMES: Final[dict[Kind, tuple[str, ...]]] = {
    "approve": ("reject", "fail", "approve"),
    "approval": ("reject", "fail", "approve"),
    "ask": ("fail", "default"),
}
_NEEDS: Final[tuple[str, ...]] = REASONS.type.parts[0].values


def approval(
    context: StepContext, value: Json, at: Path, names: Names, arguments: Sequence[str] | None
) -> plan.Approval | None:
    """A gate. `arguments`: the names that `edit` may have; None where they are not known."""
    names = names.with_roots(schemas={"args": describe_arguments(arguments)})
    fields = context.reader.fields(APPROVAL, value, at, "`approval`")
    when = context.condition(fields["when"], (*at, "when"), names) if "when" in fields else None
    title = context.text(fields, "title", at, names) if "title" in fields else None
    message = context.text(fields, "message", at, names) if "message" in fields else None
    _check_edit(context, fields, at, arguments)
    rule = policy(context, "approval", fields, at, names)
    return plan.Approval(rule, when, title, message) if rule is not None else None


def describe_arguments(arguments: Sequence[str] | None) -> Json:
    """The schema of `args`: their names. An edit may replace values, so their types are open."""
    if arguments is None:
        return {}
    closed = {"type": "object", "additionalProperties": False}
    return {**closed, "properties": {name: {} for name in arguments}, "required": list(arguments)}


def _check_edit(context: StepContext, fields: Mapping[str, Json], at: Path, arguments: Sequence[str] | None) -> None:
    edit = fields.get("edit", False)
    for index, name in enumerate(edit if isinstance(edit, list) else ()):
        top = name.split("/")[1] if name.startswith("/") else name
        if arguments is not None and unescape(top) not in arguments:
            hint = suggestion(top, arguments) or f"; it has {', '.join(arguments) or 'none'}"
            message = f"expected an argument of this step in `edit`, found `{name}`{hint}"
            context.reader.error((*at, "edit", index), "approval.edit", message)


# -- the policy ------------------------------------------------------------------------------------------------


def policy(context: StepContext, kind: Kind, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Policy | None:
    """The policy of one of the three; None after a finding."""
    form, schema = form_of(context, fields, at, names)
    escalations, expiry = on_deadline(context, fields, at, names, _OUTCOMES[kind], escalates=True)
    deadline = context.duration(fields, "deadline", at, names, working=True) or context.declared.default_deadline
    notices = notify(context, fields, at, names)
    reminders = compile_reminders(context, fields, at, names)
    if "from" not in fields and kind != "ask":
        return None
    from_ = selectors_of(context, fields.get("from", [REQUESTER]), (*at, "from"), names)
    exclude = compile_exclusion(context, fields, at, names)
    quorum = compile_quorum(context, fields, at, names)
    options = _options(context, fields, at)
    reasons = _reasons(context, fields, at, options)
    check_combine(context, fields, at, schema)
    _check_reject_when(context, fields, at)
    check_deciders(context, fields, at, quorum)
    check_pick(context, fields, at, quorum)
    check_times(context, fields, at, deadline)
    if kind == "ask" and schema is not None:
        _check_default(context, fields, at, schema, expiry, names)
    edit = fields.get("edit", False)
    return plan.Policy(
        from_,
        deadline,
        expiry,
        exclude=exclude,
        names_requester=names_requester(context.outline, fields.get("from", [REQUESTER]), names),
        quorum=quorum if quorum is not None else 1,
        reject_when=fields.get("reject_when", "any"),
        options=options,
        edit=tuple(edit) if isinstance(edit, list) else edit,
        form=form,
        combine=fields.get("combine", {}),
        reasons=reasons,
        notify=notices,
        remind=reminders,
        escalations=escalations,
        pause_clock=fields.get("pause_clock", "run"),
        veto=_compile_veto(context, fields, at, names),
        confirm=fields.get("confirm", False),
        rules=fields.get("rules"),
        pick=fields.get("pick"),
        withdraw_when=_compile_withdrawal(context, fields, at, names),
    )


def _compile_withdrawal(
    context: StepContext, fields: Mapping[str, Json], at: Path, names: Names
) -> plan.Expression | plan.Subscription | None:
    """What takes the question back: an event, or a condition that can become true while people are asked."""
    value = fields.get("withdraw_when")
    at = (*at, "withdraw_when")
    if value is None:
        return None
    if isinstance(value, Mapping):
        return subscription(context, value, at, names.with_roots("event"))
    if not isinstance(value, str):
        context.reader.error(at, "withdraw.kind", f"{_WITHDRAW_EXPECTED}, found {kind_of(value)}")
        return None
    condition = context.condition(value, at, names)
    if condition is not None and "state" not in condition.roots:
        message = (
            "this can't become true while people are asked: it reads no `state`, which alone changes meanwhile; for an "
            "event write `withdraw_when: {event: ...}`, for a time `deadline`"
        )
        context.reader.error(at, "withdraw.never", message)
    return condition


_WITHDRAW_EXPECTED: Final = "expected a condition over `state`, or `{event: ...}`"


def _compile_veto(context: StepContext, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Template | None:
    """Those who may block; a literal one must be among those who are asked."""
    if "veto" not in fields:
        return None
    deciders, veto = fields.get("from", []), fields["veto"]
    deciders = deciders if isinstance(deciders, list) else [deciders]
    literal = all(isinstance(each, str) and "${{" not in each for each in deciders)
    for index, each in enumerate(veto if isinstance(veto, list) else [veto]):
        if (
            literal
            and isinstance(each, str)
            and "${{" not in each
            and each not in deciders
            and "anyone" not in deciders
        ):
            place = (*at, "veto", index) if isinstance(veto, list) else (*at, "veto")
            message = f"`{each}` has a veto, but is not asked: `from` does not name it; add it to `from`"
            context.reader.error(place, "veto.not_asked", message)
    return selectors_of(context, veto, (*at, "veto"), names)


def _check_default(
    context: StepContext,
    fields: Mapping[str, Json],
    at: Path,
    form: Mapping[str, Json],
    expiry: plan.Expiry,
    names: Names,
) -> None:
    """Report an answer of silence, `default`, that the form would refuse from a person; and defaults of the form."""
    raw_form = fields.get("form")
    properties = raw_form.get("properties") if isinstance(raw_form, Mapping) else None
    literal = form.get("properties", {})
    for name, raw in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(raw, Mapping) and isinstance(raw.get("default"), str) and "${{" in raw["default"]:
            for _, fault in misfits(raw["default"], None, literal.get(name, {}), form, names):
                message = f"the default never fits the field: {fault}"
                context.reader.refuse((*at, "form", "properties", name, "default"), "form.default", message)
    value = fields.get("on_deadline")
    items = value if isinstance(value, list) else [value]
    for index, item in enumerate(items):
        if not isinstance(item, Mapping) or "default" not in item:
            continue
        if not is_literal(item["default"]):
            template = expiry.value if isinstance(expiry.value, CompiledTemplate) else None
            for path, fault in misfits(item["default"], template, form, form, names):
                place = (*at, "on_deadline", *((index,) if isinstance(value, list) else ()), "default", *path)
                message = f"the answer that silence gives never fits the form: {fault}"
                context.reader.refuse(place, "ask.default", message)
            continue
        schema = JsonSchema(form)
        for fault in schema.findings(schema.with_defaults(item["default"]))[:1]:
            place = (*at, "on_deadline", *((index,) if isinstance(value, list) else ()), "default")
            message = f"the answer that silence gives does not fit the form: {fault['message']}"
            context.reader.error(place, "ask.default", message)


def _options(context: StepContext, fields: Mapping[str, Json], at: Path) -> tuple[str, ...]:
    options = fields.get("options", list(OPTIONS))
    at = (*at, "options")
    missing = [option for option in OPTIONS if option not in options]
    if missing:
        message = (
            f"expected `approve` and `reject` among the options (both must be possible), `{missing[0]}` is missing"
        )
        context.reader.error(at, "approve.options", message)
    for index, option in enumerate(options):
        if option in options[:index]:
            context.reader.error((*at, index), "approve.options", f"the option `{option}` is there twice; remove one")
        elif option in _HANDLERS:
            message = f"`{option}` is a key of steps and can't be an option; choose another word"
            context.reader.error((*at, index), "approve.options", message)
        elif fault := check_name(option):
            context.reader.error((*at, index), "name.invalid", f"an option: {fault}")
    return tuple(options)


def _reasons(context: StepContext, fields: Mapping[str, Json], at: Path, options: Sequence[str]) -> frozenset[str]:
    """The options whose answer must say why."""
    reasons = fields.get("reasons", {})
    for option, word in reasons.items():
        place = (*at, "reasons", option)
        if option not in options:
            hint = suggestion(option, options) or f"; it has {', '.join(options)}"
            context.reader.error(place, "reasons.unknown", f"there is no option `{option}`{hint}", key=True)
        elif word not in _NEEDS:
            message = f"expected `required` or `optional`, found {kind_of(word)}"
            context.reader.error(place, "reasons.word", message)
    return frozenset(option for option, word in reasons.items() if word == "required")


def _check_reject_when(context: StepContext, fields: Mapping[str, Json], at: Path) -> None:
    value = fields.get("reject_when", "any")
    if value in ("any", "unreachable") if isinstance(value, str) else (type(value) is int and value >= 1):
        return
    message = f"expected `any`, `unreachable` or a number from 1, found {kind_of(value)}"
    context.reader.error((*at, "reject_when"), "reject_when.invalid", message)
