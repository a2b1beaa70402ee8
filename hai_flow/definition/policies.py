"""People: `approve`, the gate `approval` and `ask`, compiled to a policy (docs/language.md#people)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from hai_flow.definition import plan
from hai_flow.definition.context import Context
from hai_flow.definition.document import Path
from hai_flow.definition.keys import (
    ANY,
    BOOLEAN,
    CEL,
    DURATION,
    HOLE,
    ID,
    LITERAL,
    SCHEMA,
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
    stages,
)
from hai_flow.definition.known_names import Names
from hai_flow.definition.names import name_fault
from hai_flow.definition.parts import is_hole, texts
from hai_flow.definition.reference import DEADLINE, NOTHING, NOTIFY, PAUSE_CLOCK
from hai_flow.definition.templates import CompiledTemplate
from hai_flow.definition.wording import as_yaml, kind_of, shorten, suggestion
from hai_flow.values import Json

Kind: TypeAlias = Literal["approve", "approval", "ask"]

REMIND: Final = Key(
    "remind",
    list_of(DURATION),
    "remind so long after (each) opening, over the channels of `notify`",
    example="[4h, 1d]",
)
FROM: Final = Key(
    "from", SELECTORS, "who may decide: `user:id role:name group:name requester anyone`, one or a list",
    required=True, example="[user:ann, role:controller]",
)  # fmt: skip
POLICY: Final = (
    Key("exclude", SELECTORS, "who may not, also `editor`; without it the requester, unless `from` has `requester` or "
        "`anyone`; `[]` = nobody", example="[requester, editor]"),
    Key("quorum", either(integer(1), enum("all"), map_of(integer(1), "any"), HOLE),
        "how many distinct people: a number, `all` of `from`, seats by selector (`any`: people in all), or a hole that "
        "gives a number or `all` when it is asked",
        default="1", example="{role:sre: 1, any: 2}", read=ANY),
    Key("reject_when", either(enum("any", "unreachable"), integer(1)),
        "when rejections decide: the first, when the quorum can't be reached any more, or n of them",
        default="any", example="unreachable", read=ANY),
    Key("options", list_of(ID), "the answers; must hold `approve` and `reject`; others need a handler in `on_decision`",
        default="[approve, reject]", example="[approve, revise, reject]"),
)  # fmt: skip
FORM: Final = Key(
    "form", SCHEMA, "a form that goes with the answer (only an approval must fill in what is `required`); holes are "
    "allowed in `default enum const title description "
    "minimum maximum`",
    example="{type: object, required: [cost_center], properties: {cost_center: {type: string}}}",
)  # fmt: skip
COMBINE: Final = Key(
    "combine", map_of(enum("same", "min", "max", "first", "last", "list", "any", "all"), "any"),
    "how the answers of several people become one, by property of the form; `same` refuses a differing answer",
    default="same", example="{amount: min}",
)  # fmt: skip
REASONS: Final = Key(
    "reasons", map_of(enum("required", "optional"), "any"),
    "by option: whether the answer must say why", default="optional", example="{reject: required}",
)  # fmt: skip
ON_DEADLINE_KEY: Final = Key(
    "on_deadline",
    stages(enum("reject", "fail", "approve"), "on_deadline"),
    "a word, a one-key map, or a list: any number of `escalate`, then one of `reject fail approve`",
    default="reject", example="[{escalate: {from: role:cfo, deadline: 1d}}, {reject: {reason: nobody answered}}]",
    read=ANY,
)  # fmt: skip
TITLE_OF_PENDING: Final = Key(
    "title", TEXT, "the question in one line", required=True, example='"Refund ${{ input.amount }}?"'
)
MESSAGE: Final = Key("message", TEXT, "Markdown below the title", example='"**Reason:** ${{ input.reason }}"')
APPROVAL: Final = Shape("approval", "`approval`", (
    Key("when", CEL, "ask only if true; sees the arguments as `args`", default="true",
        example="args.amount >= 50.0"),
    Key("title", TEXT, "the question in one line", default="made from the call",
        example='"Refund ${{ args.amount }}?"'),
    Key("message", TEXT, "Markdown below the title", default="made from the call", example="Please look twice."),
    FROM, *POLICY, REASONS,
    Key("edit", either(BOOLEAN, list_of(LITERAL)), "arguments that a decider may replace (`true` = all)",
        default="false",
        example="[subject, body]"),
    FORM, COMBINE, NOTIFY, REMIND, DEADLINE, ON_DEADLINE_KEY, PAUSE_CLOCK,
))  # fmt: skip
ON_DEADLINE: Final = Shape("on_deadline", "`on_deadline`", (
    Key("escalate", shape_of("escalate"), "ask others, with a new clock", example="{from: role:cfo, deadline: 1d}"),
    Key("reject", shape_of("reject"), "counts as a rejection", example="{reason: nobody answered}"),
    Key("fail", shape_of("nothing"), "raises `approval.expired`", example="{}"),
    Key("approve", shape_of("nothing"), "silence counts as approval (a warning)", example="{}"),
), exactly_one=(("escalate", "reject", "fail", "approve"),))  # fmt: skip
ON_DEADLINE_OF_ASK: Final = Shape("on_deadline_of_ask", "`on_deadline` of `ask` and `wait_for`", (
    Key("escalate", shape_of("escalate"), "ask others, with a new clock",
        example="{from: role:support, deadline: 1d}"),
    Key("default", ANY, "the answer that silence gives", example="{size: M}"),
    Key("fail", shape_of("nothing"), "raises `ask.expired` or `wait_for.expired`", example="{}"),
), exactly_one=(("escalate", "default", "fail"),))  # fmt: skip
REJECT: Final = Shape("reject", "`reject`", (
    Key("reason", TEXT, "why, in the envelope", example="nobody answered in 3 days"),
))  # fmt: skip
ESCALATE: Final = Shape("escalate", "`escalate`: what is given replaces, the rest stays", (
    Key("deadline", DURATION, "of this stage", required=True, example="1d"),
    Key("from", SELECTORS, "who may decide now", example="role:cfo"),
    POLICY[0], POLICY[1], NOTIFY, REMIND,
))  # fmt: skip


OPTIONS: Final = ("approve", "reject")
_HANDLERS: Final = ("catch", "finally", "undo")  # an option's handler stands at `~option`, as these do
_SELECTOR: Final = re.compile(r"(user|role|group):.+|requester|anyone")
_SPACED: Final = re.compile(r"(user|role|group)\s*:\s+(\S.*)")  # which names nobody
_CHANNEL: Final = re.compile(r"[a-z][a-z0-9_+-]*(:\S.*)?")
_HOLED: Final = ("default", "enum", "const", "title", "description", "minimum", "maximum")
_OUTCOMES: Final[dict[Kind, tuple[str, ...]]] = {
    "approve": ("reject", "fail", "approve"),
    "approval": ("reject", "fail", "approve"),
    "ask": ("fail", "default"),
}
_JOINS: Final[tuple[str, ...]] = COMBINE.type.parts[0].values
_NEEDS: Final[tuple[str, ...]] = REASONS.type.parts[0].values
_REQUESTER: Final = "requester"


@dataclass(frozen=True, slots=True)
class _Panel:
    """The deciders, as far as they are literal. `people` None: they can't be listed."""

    selectors: tuple[str, ...]
    people: frozenset[str] | None
    excluded: frozenset[str]

    @property
    def deciders(self) -> frozenset[str]:
        return (self.people or frozenset()) - self.excluded


def approval(
    context: Context, value: Json, at: Path, names: Names, arguments: Sequence[str] | None
) -> plan.Approval | None:
    """A gate. `arguments`: the names that `edit` may have; None where they are not known."""
    names = names.with_roots("args")
    fields = context.reader.fields(APPROVAL, value, at, "`approval`")
    when = context.condition(fields["when"], (*at, "when"), names) if "when" in fields else None
    title = context.text(fields, "title", at, names)
    message = context.text(fields, "message", at, names)
    _check_edit(context, fields, at, arguments)
    rule = policy(context, "approval", fields, at, names)
    return plan.Approval(rule, when, title, message) if rule is not None else None


def _check_edit(context: Context, fields: Mapping[str, Json], at: Path, arguments: Sequence[str] | None) -> None:
    edit = fields.get("edit", False)
    for index, name in enumerate(edit if isinstance(edit, list) else ()):
        top = name.split("/")[1] if name.startswith("/") else name
        if arguments is not None and top.replace("~1", "/").replace("~0", "~") not in arguments:
            hint = suggestion(top, arguments) or f"; it has {', '.join(arguments) or 'none'}"
            message = f"expected an argument of this step in `edit`, found `{name}`{hint}"
            context.reader.error((*at, "edit", index), "approval.edit", message)


# -- the policy ------------------------------------------------------------------------------------------------


def policy(context: Context, kind: Kind, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Policy | None:
    """The policy of one of the three; None after a finding."""
    form, schema = _form(context, fields, at, names)
    escalations, expiry = _on_deadline(context, kind, fields, at, names)
    deadline = context.duration(fields, "deadline", at, names) or context.declared.default_deadline
    told = notify(context, fields, at, names)
    remind = _remind(context, fields, at, names)
    if "from" not in fields and kind != "ask":
        return None
    from_ = _selectors(context, fields.get("from", [_REQUESTER]), (*at, "from"), names)
    exclude = None
    if "exclude" in fields:
        exclude = _selectors(context, fields["exclude"], (*at, "exclude"), names, extra=("editor",), empty=True)
    quorum = _quorum(context, fields, at, names)
    options = _options(context, fields, at)
    reasons = _reasons(context, fields, at, options)
    _check_combine(context, fields, at, schema)
    _check_reject_when(context, fields, at)
    _check_deciders(context, kind, fields, at, quorum)
    edit = fields.get("edit", False)
    return plan.Policy(
        from_,
        deadline,
        expiry,
        exclude=exclude,
        quorum=quorum if quorum is not None else 1,
        reject_when=fields.get("reject_when", "any"),
        options=options,
        edit=tuple(edit) if isinstance(edit, list) else edit,
        form=form,
        combine=fields.get("combine", {}),
        reasons=reasons,
        notify=told,
        remind=remind,
        escalations=escalations,
        pause_clock=fields.get("pause_clock", "run"),
    )


def notify(context: Context, fields: Mapping[str, Json], at: Path, names: Names) -> tuple[plan.Template, ...]:
    """The texts of `notify`. Which channels there are, the deployment says."""
    texts = fields.get("notify", ())
    for index, text in enumerate(texts):
        if "${{" in text or _CHANNEL.fullmatch(text):
            continue
        found = shorten(text)
        message = f"expected a channel, or channel:whom, such as `email` or `slack:#finance`, found `{found}`"
        context.reader.warning((*at, "notify", index), "notify.channel", message)
    return tuple(context.template(text, (*at, "notify", index), names, text=True) for index, text in enumerate(texts))


def _remind(context: Context, fields: Mapping[str, Json], at: Path, names: Names) -> tuple[plan.Duration, ...]:
    found = (
        context.duration_of(text, (*at, "remind", index), names) for index, text in enumerate(fields.get("remind", ()))
    )
    return tuple(duration for duration in found if duration is not None)


def _options(context: Context, fields: Mapping[str, Json], at: Path) -> tuple[str, ...]:
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
        elif fault := name_fault(option):
            context.reader.error((*at, index), "name.invalid", f"an option: {fault}")
    return tuple(options)


def _reasons(context: Context, fields: Mapping[str, Json], at: Path, options: Sequence[str]) -> frozenset[str]:
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


# -- form ------------------------------------------------------------------------------------------------------


def _form(
    context: Context, fields: Mapping[str, Json], at: Path, names: Names
) -> tuple[CompiledTemplate | None, dict[str, Json] | None]:
    """The template of the form, and its literal part; None and None without one, or after a finding."""
    if "form" not in fields:
        return None, None
    form, place = fields["form"], (*at, "form")
    if form.get("type", "object") != "object":
        message = f"expected a form with `type: object`, found `{form['type']}`; put it under `properties`"
        context.reader.error((*place, "type"), "form.type", message)
        return None, None
    clean = True
    literal = literal_form(form)
    for path, text in texts(literal, ()):
        if "${{" in text.replace("$${{", ""):
            clean = False
            message = f"a form's holes can stand in {', '.join(_HOLED)} only; write this out"
            context.reader.error((*place, *path), "schema.hole", message)
    if not clean or context.compiled_schema(literal, place) is None:
        return None, None
    return context.template({"type": "object", **form}, place, names), literal


def _check_combine(context: Context, fields: Mapping[str, Json], at: Path, form: Mapping[str, Json] | None) -> None:
    combine = fields.get("combine", {})
    if combine and "form" not in fields:
        context.reader.error(
            (*at, "combine"), "combine.form", "`combine` needs a `form`: it joins its values", key=True
        )
        return
    properties = (form or {}).get("properties", {})
    for name, word in combine.items():
        place = (*at, "combine", name)
        if form is not None and name not in properties:
            hint = suggestion(name, properties) or f"; it has {', '.join(properties) or 'none'}"
            message = f"the form has no property `{name}`{hint}"
            context.reader.error(place, "combine.unknown", message, key=True)
        elif word not in _JOINS:
            hint = suggestion(word, _JOINS) if isinstance(word, str) else ""
            message = f"expected one of {', '.join(_JOINS)}, found {kind_of(word)}{hint}"
            context.reader.error(place, "combine.word", message)
        else:
            _check_combine_type(context, word, properties.get(name), place)


def _check_combine_type(context: Context, word: str, schema: Json, at: Path) -> None:
    wanted = {"min": ("number", "integer"), "max": ("number", "integer"), "any": ("boolean",), "all": ("boolean",)}
    given = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(given, str) and word in wanted and given not in wanted[word]:
        message = f"`{word}` combines values of `type: {wanted[word][0]}`, found `{given}`; use `same` or `list`"
        context.reader.error(at, "combine.type", message)


# -- people -------------------------------------------------------------------------------------------------------


def _selectors(
    context: Context, value: Json, at: Path, names: Names, extra: Sequence[str] = (), empty: bool = False
) -> CompiledTemplate:
    """A selector or a list of them, as a template of a list (a whole hole may give the list itself)."""
    whole = isinstance(value, str) and is_hole(value)
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not value and not empty:
        message = "expected at least one selector such as `role:manager`, found an empty list"
        context.reader.error(at, "selector.none", message)
    for index, item in enumerate(items):
        _check_selector(context, item, (*at, index) if isinstance(value, list) else at, extra)
    if whole or isinstance(value, list):
        return context.template(value, at, names)
    return context.template([value], at, names, wrapped=True)


def _check_selector(context: Context, item: Json, at: Path, extra: Sequence[str] = (), *, key: bool = False) -> None:
    if isinstance(item, str) and (("${{" in item and not key) or _is_selector(item) or item in extra):
        if item.startswith("role:") and context.declared.roles and item[5:] not in context.declared.roles:
            _doubt_role(context, item[5:], at, key=key)
        return
    words = (_REQUESTER, "anyone", *extra)
    hint = suggestion(item, words) if isinstance(item, str) and len(item) > 4 else ""  # `ann` is no `anyone`
    if not hint:
        hint = _selector_hint(item)
    message = f"expected user:ID, role:NAME, group:NAME, {', '.join(words)}, found {kind_of(item)}{hint}"
    report = context.reader.refuse if isinstance(item, str) and _SELECTOR.fullmatch(item) else context.reader.error
    report(at, "selector.invalid", message, key=key)


def _doubt_role(context: Context, name: str, at: Path, *, key: bool) -> None:
    """Roles that `roles` does not have come from the deployment: only a near match is worth a word."""
    hint = suggestion(name, context.declared.roles)
    if hint:
        context.reader.warning(at, "role.unknown", f"`roles` has no `{name}`{hint}", key=key)


def _check_reject_when(context: Context, fields: Mapping[str, Json], at: Path) -> None:
    value = fields.get("reject_when", "any")
    if value in ("any", "unreachable") if isinstance(value, str) else (type(value) is int and value >= 1):
        return
    message = f"expected `any`, `unreachable` or a number from 1, found {kind_of(value)}"
    context.reader.error((*at, "reject_when"), "reject_when.invalid", message)


def _quorum(context: Context, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Quorum | plan.Template | None:
    """The quorum; None where there is none, or after a finding."""
    quorum = fields.get("quorum")
    if "quorum" not in fields:
        return None
    at = (*at, "quorum")
    if isinstance(quorum, str) and is_hole(quorum):
        return _quorum_hole(context, quorum, at, names)
    if type(quorum) is int and quorum >= 1:
        return quorum
    if quorum == "all":
        return "all"
    if isinstance(quorum, Mapping) and quorum and all(type(n) is int and n >= 1 for n in quorum.values()):
        for selector in quorum:
            if selector != "any":
                _check_selector(context, selector, (*at, selector), key=True)
        return quorum
    place, found = at, quorum
    if isinstance(quorum, Mapping) and quorum:
        key = next(key for key, n in quorum.items() if type(n) is not int or n < 1)
        place, found = (*at, key), quorum[key]
    message = f"expected a number from 1, `all` or a mapping of such numbers by selector, found {kind_of(found)}"
    context.reader.error(place, "quorum.invalid", message)
    return None


def _quorum_hole(context: Context, quorum: str, at: Path, names: Names) -> plan.Template | None:
    known = names.type_of(quorum)
    if known not in (None, "integer", "number", "string"):
        message = f"expected a hole that gives a number or `all`, found something of type {known}"
        context.reader.error(at, "quorum.invalid", message)
        return None
    return context.template(quorum, at, names)


# -- whether anybody can ---------------------------------------------------------------------------------------


def _panel(context: Context, fields: Mapping[str, Json]) -> _Panel | None:
    """The deciders; None where holes or mistakes hide them."""
    value = fields.get("from", [_REQUESTER])
    selectors = value if isinstance(value, list) else [value]
    exclude = fields.get("exclude")
    if exclude is None:
        exclude = [] if {_REQUESTER, "anyone"} & {s for s in selectors if isinstance(s, str)} else [_REQUESTER]
    excluded = exclude if isinstance(exclude, list) else [exclude]
    if not all(isinstance(s, str) and "${{" not in s for s in (*selectors, *excluded)) or not selectors:
        return None
    people: set[str] = set()
    for selector in selectors:
        members = _members(context, selector)
        if members is None:
            return _Panel(tuple(selectors), None, frozenset())
        people |= members
    out = {person for selector in excluded for person in _members(context, selector) or ()}
    return _Panel(tuple(selectors), frozenset(people), frozenset(out))


def _members(context: Context, selector: str) -> frozenset[str] | None:
    """The people a selector stands for, as `user:` selectors (or `requester`); None where they can't be listed."""
    if selector == _REQUESTER or selector.startswith("user:"):
        return frozenset((selector,))
    members = context.declared.roles.get(selector[5:]) if selector.startswith("role:") else None
    if members is None or not all(member.startswith("user:") for member in members):
        return None
    return frozenset(members)


def _check_deciders(context: Context, kind: Kind, fields: Mapping[str, Json], at: Path, given: Any) -> None:
    place = (*at, "from") if "from" in fields else at
    quorum: Any = given if isinstance(given, int | str | Mapping) else None  # a hole says nothing yet
    panel = _panel(context, fields)
    if panel is None:
        return
    if panel.people is None:
        _check_open_panel(context, fields, at, panel, quorum)
    elif not panel.deciders:
        message = "nobody can decide this: everyone in `from` is excluded; name others, or set `exclude: []`"
        context.reader.warning(place, "approval.nobody", message)
    elif panel.selectors == (_REQUESTER,) and context.declared.starts_alone is not None:
        message = (
            f"runs of the {context.declared.starts_alone} trigger are started by `system`, so nobody can decide this; "
            f"name people or roles in `from`"
        )
        context.reader.warning(place, "approval.nobody", message, key="from" not in fields)
    elif quorum is not None and quorum != "all":
        _check_quorum_possible(context, quorum, panel, (*at, "quorum"))


def _check_open_panel(
    context: Context, fields: Mapping[str, Json], at: Path, panel: _Panel, quorum: plan.Quorum | None
) -> None:
    if quorum == "all" and "anyone" in panel.selectors:
        message = "`quorum: all` needs people who can be listed, found `anyone` in `from`; write a number"
        context.reader.error((*at, "quorum"), "quorum.impossible", message)
    if fields.get("reject_when") == "unreachable":
        message = (
            "nobody can list the people of `from`, so the quorum never becomes unreachable and only the deadline "
            "ends this; declare the roles under `roles`, or use `any` or a number"
        )
        context.reader.warning((*at, "reject_when"), "approval.never_unreachable", message)


def _check_quorum_possible(context: Context, quorum: plan.Quorum, panel: _Panel, at: Path) -> None:
    deciders = panel.deciders
    if isinstance(quorum, int):
        if quorum > len(deciders):
            message = f"this quorum can't be met: it needs {quorum} people, `from` has {_people(len(deciders))}"
            context.reader.error(at, "quorum.impossible", f"{message}; lower it, or name more")
        return
    assert isinstance(quorum, Mapping), "`all` is always possible"
    seats: list[frozenset[str]] = []
    for selector, count in quorum.items():
        members = deciders if selector == "any" else _members(context, selector)
        if selector == "any":
            if count > len(deciders):
                message = f"this quorum can't be met: it needs {count} people, `from` has {_people(len(deciders))}"
                context.reader.error((*at, "any"), "quorum.impossible", f"{message}; lower it, or name more")
                return
            continue
        # Any of them may have a role that only the deployment knows.
        seats += [deciders if members is None else members & deciders] * min(count, len(deciders) + 1)
    if not _can_seat(seats):
        message = "this quorum can't be met: not enough people in `from` match its selectors; name more of them"
        context.reader.error(at, "quorum.impossible", message)


# -- the deadline ----------------------------------------------------------------------------------------------


def _on_deadline(
    context: Context, kind: Kind, fields: Mapping[str, Json], at: Path, names: Names
) -> tuple[tuple[plan.Escalate, ...], plan.Expiry]:
    words = _OUTCOMES[kind]
    return on_deadline(context, fields, at, names, words, escalates=True)


def on_deadline(
    context: Context, fields: Mapping[str, Json], at: Path, names: Names, words: Sequence[str], *, escalates: bool
) -> tuple[tuple[plan.Escalate, ...], plan.Expiry]:
    """The value of `on_deadline`: the stages, then the end, which is one of `words` (the first where it is silent)."""
    value = fields.get("on_deadline", words[0])
    at = (*at, "on_deadline")
    items = value if isinstance(value, list) else [value]
    escalations: list[plan.Escalate] = []
    expiry, word, place = None, "", at
    if not items:
        context.reader.error(at, "deadline.outcome", f"expected {_listed(words)}, found an empty list")
    for index, item in enumerate(items):
        place = (*at, index) if isinstance(value, list) else at
        if expiry is not None:
            message = "nothing happens behind this: the entry before ends it; put `escalate` first"
            context.reader.error(place, "deadline.order", message)
            break
        word, body, inner = _deadline_item(context, item, place, words, escalates)
        if word == "escalate":
            stage = _escalate(context, body, inner, names)
            escalations += [stage] if stage else []
        elif word:
            expiry = _expiry(context, word, body, inner, names)
    if escalations and expiry is None and word == "escalate":
        message = (
            f"nothing is said of what comes when this stage's deadline has passed, too: it is `{words[0]}`; write "
            f"it as the last entry"
        )
        context.reader.warning(place, "deadline.end", message)
    return tuple(escalations), expiry or plan.Expiry(words[0])  # type: ignore[arg-type]


def _deadline_item(
    context: Context, item: Json, at: Path, words: Sequence[str], escalates: bool
) -> tuple[str, Json, Path]:
    """The word of one entry, the value under it, and its path; "" after a finding."""
    known = (*(("escalate",) if escalates else ()), *words)
    word, body, inner = item, None, at
    if isinstance(item, Mapping) and len(item) == 1:
        ((word, body),) = item.items()
        inner = (*at, word)
    if not isinstance(word, str) or word not in known:
        found = f"`{word}`" if isinstance(word, str) else kind_of(item)
        begun, _, rest = word.partition(":") if isinstance(item, str) else ("", "", "")
        hint = suggestion(word, known) if isinstance(word, str) else ""
        if begun.strip() in known and rest.strip():
            hint = f"; it is a mapping, without quotes: {_written(begun.strip(), rest.strip())}"
        several = isinstance(item, Mapping) and len(item) > 1
        hint = "; make it a list, one entry for each" if several else hint
        if several and isinstance(item, Mapping) and item.get("escalate", "") is None:
            keys = [f"`{key}`" for key in item if key in ESCALATE.words]
            hint = f"; indent {' and '.join(keys)} further, to stand inside of `escalate`" if keys else hint
        message = f"expected {_listed(known)}, found {found}{hint}"
        context.reader.error(inner, "deadline.outcome", message, key=isinstance(item, Mapping) and inner != at)
        return "", None, at
    if word in ("escalate", "default") and not isinstance(item, Mapping):
        example = "escalate: {from: role:manager, deadline: 1d}" if word == "escalate" else "default: {...}"
        context.reader.error(at, "deadline.outcome", f"`{word}` says more: write `{example}`")
        return "", None, at
    if (body is not None or word == "escalate") and word != "default" and not isinstance(body, Mapping):
        message = f"expected a mapping for `{word}`, found {kind_of(body)}; write {_written(word, body)}"
        context.reader.error(inner, "shape.type", message)
        return "", None, at
    return word, body, inner


def _written(word: str, body: Json) -> str:
    """An entry of `on_deadline` as it is written, for one whose value is no mapping."""
    if word == "escalate":
        people = body if isinstance(body, list) else [body]
        named = [each for each in people if isinstance(each, str) and _SELECTOR.fullmatch(each)] or ["role:manager"]
        listed = named[0] if len(named) == 1 else f"[{', '.join(named)}]"
        return f"`escalate: {{from: {listed}, deadline: 1d}}`"
    if word == "default":
        return "`default: {...}`"
    if word == "reject" and isinstance(body, str):
        return f"`reject: {{reason: {as_yaml(body)}}}`"
    return f"`{word}` alone"


def _expiry(context: Context, word: str, body: Json, at: Path, names: Names) -> plan.Expiry:
    if word == "approve":
        message = (
            "nobody's answer counts as approval here: when the deadline passes, the effect happens; prefer "
            "`reject` or `escalate`"
        )
        context.reader.warning(at, "approval.by_deadline", message, key=at[-1] == "approve")
    if word == "default":
        return plan.Expiry("default", value=context.template(body, at, names))
    reason = None
    if body is not None:
        shape = REJECT if word == "reject" else NOTHING
        fields = context.reader.fields(shape, body, at, f"`{word}`")
        reason = context.text(fields, "reason", at, names)
    return plan.Expiry(word, reason)  # type: ignore[arg-type]


def _escalate(context: Context, body: Json, at: Path, names: Names) -> plan.Escalate | None:
    fields = context.reader.fields(ESCALATE, body, at, "`escalate`")
    from_ = _selectors(context, fields["from"], (*at, "from"), names) if "from" in fields else None
    exclude = None
    if "exclude" in fields:
        exclude = _selectors(context, fields["exclude"], (*at, "exclude"), names, extra=("editor",), empty=True)
    quorum = _quorum(context, fields, at, names)
    if "from" in fields:
        _check_deciders(context, "approve", fields, at, quorum)
    deadline = context.duration(fields, "deadline", at, names)
    if deadline is None:
        return None
    return plan.Escalate(
        deadline,
        from_,
        exclude,
        quorum,
        notify(context, fields, at, names) if "notify" in fields else None,
        _remind(context, fields, at, names) if "remind" in fields else None,
    )


def literal_form(form: Mapping[str, Json]) -> dict[str, Json]:
    """The form without the values that have holes, which are filled in when it is opened."""
    literal = _without_holes({"type": "object", **form})
    return literal if isinstance(literal, dict) else {}


def _without_holes(value: Json, *, names: bool = False) -> Json:
    """`names`: the keys are not keywords but names of properties or definitions."""
    if isinstance(value, Mapping):
        return {
            key: _without_holes(item, names=not names and key in ("properties", "patternProperties", "$defs"))
            for key, item in value.items()
            if names or key not in _HOLED or not any("${{" in text for _, text in texts(item, ()))
        }
    if isinstance(value, list):
        return [_without_holes(item) for item in value]
    return value


def _can_seat(seats: Sequence[frozenset[str]]) -> bool:
    """Whether every seat can have a person of its own (augmenting paths)."""
    taken: dict[str, int] = {}

    def place(seat: int, tried: set[str]) -> bool:
        for person in sorted(seats[seat] - tried):
            tried.add(person)
            if person not in taken or place(taken[person], tried):
                taken[person] = seat
                return True
        return False

    return all(place(seat, set()) for seat in range(len(seats)))


def _is_selector(item: str) -> bool:
    return _SELECTOR.fullmatch(item) is not None and _SPACED.fullmatch(item) is None


def _selector_hint(item: Json) -> str:
    if isinstance(item, Mapping) and len(item) == 1:  # YAML takes `role: lead` for a mapping
        ((kind, name),) = item.items()
        return f"; write `{kind}:{name}`, without a space" if _is_selector(f"{kind}:{name}") else ""
    if not isinstance(item, str):
        return ""
    kind, colon, name = (part.strip() for part in item.partition(":"))
    near = difflib.get_close_matches(kind, ("user", "role", "group"), n=1, cutoff=0.6) if colon and name else []
    if near:
        return f"; did you mean `{near[0]}:{name}`?"
    return f"; did you mean `user:{item}` or `role:{item}`?" if re.fullmatch(r"[\w.@-]+", item) else ""


def _people(count: int) -> str:
    return f"{count} {'person' if count == 1 else 'people'} who may"


def _listed(words: Sequence[str]) -> str:
    shown = [f"`{word}`" for word in words]
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
