"""What happens when nobody has answered in time: `on_deadline`, its stages and its end (docs/language.md#people)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.names.durations import NotADuration, milliseconds, spell
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.wording import as_yaml, kind_of, suggestion
from hai_flow.definition.people.deciders import (
    EXCLUDE,
    QUORUM,
    compile_exclusion,
    compile_quorum,
    is_selector_like,
    selectors_of,
)
from hai_flow.definition.people.notify import REMIND, compile_reminders, notify
from hai_flow.definition.people.quorum_check import check_deciders, check_inherited_quorum
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import NOTHING, NOTIFY
from hai_flow.definition.yaml.keys import ANY, BOOLEAN, DURATION, SELECTORS, TEXT, Key, Shape, enum, shape_of, stages
from hai_flow.values import Json

ON_DEADLINE_KEY: Final = Key(
    "on_deadline",
    stages(enum("reject", "fail", "approve"), "on_deadline"),
    "a word, a one-key map, or a list: any number of `escalate`, then one of `reject fail approve`",
    default="reject", example="[{escalate: {from: role:cfo, deadline: 1d}}, {reject: {reason: nobody answered}}]",
    read=ANY,
)  # fmt: skip

ON_DEADLINE: Final = Shape("on_deadline", "`on_deadline`", (
    Key("escalate", shape_of("escalate"), "ask others, with a new clock", example="{from: role:cfo, deadline: 1d}"),
    Key("reject", shape_of("reject"), "counts as a rejection", example="{reason: nobody answered}"),
    Key("fail", shape_of("nothing"), "raises `approval.expired`", example="{}"),
    Key("approve", shape_of("consent"), "silence counts as approval: a warning, unless it is `intended`",
        example="{intended: true}"),
), exactly_one=(("escalate", "reject", "fail", "approve"),))  # fmt: skip
ON_DEADLINE_OF_ASK: Final = Shape("on_deadline_of_ask", "`on_deadline` of `ask` and `wait_for`", (
    Key("escalate", shape_of("escalate"), "ask others, with a new clock",
        example="{from: role:support, deadline: 1d}"),
    Key("default", ANY, "answer if nobody answers", example="{size: M}"),
    Key("fail", shape_of("nothing"), "raises `ask.expired` or `wait_for.expired`", example="{}"),
), exactly_one=(("escalate", "default", "fail"),))  # fmt: skip
REJECT: Final = Shape("reject", "`reject`", (
    Key("reason", TEXT, "reason in the envelope", example="nobody answered in 3 days"),
))  # fmt: skip
CONSENT: Final = Shape("consent", "`approve` of a deadline", (
    Key("intended", BOOLEAN, "silence is meant to be consent: no warning", default="false", example="true"),
    Key("reason", TEXT, "reason in the envelope", example="no objection in 14 days"),
))  # fmt: skip
ESCALATE: Final = Shape("escalate", "`escalate`: what is given replaces, the rest stays", (
    Key("deadline", DURATION, "deadline of this stage", required=True, example="1d"),
    Key("from", SELECTORS, "people who may decide in this stage", example="role:cfo"),
    EXCLUDE, QUORUM, NOTIFY, REMIND,
))  # fmt: skip


_OF_PEOPLE: Final = ("from", "exclude", "quorum")


def on_deadline(
    context: StepContext, fields: Mapping[str, Json], at: Path, names: Names, words: Sequence[str], *, escalates: bool
) -> tuple[tuple[plan.Escalate, ...], plan.Expiry]:
    """The value of `on_deadline`: the stages, then the end, which is one of `words` (the first where it is silent)."""
    value = fields.get("on_deadline", words[0])
    at = (*at, "on_deadline")
    items = value if isinstance(value, list) else [value]
    escalations: list[plan.Escalate] = []
    standing = {name: fields[name] for name in _OF_PEOPLE if name in fields}
    expiry, word, place = None, "", at
    waited = _length_of(fields.get("deadline"), context.declared.default_deadline)
    if not items:
        context.reader.error(at, "deadline.outcome", f"expected {_list_words(words)}, found an empty list")
    for index, item in enumerate(items):
        place = (*at, index) if isinstance(value, list) else at
        if expiry is not None:
            message = "nothing happens behind this: the entry before ends it; put `escalate` first"
            context.reader.error(place, "deadline.order", message)
            break
        word, body, inner = _read_deadline_item(context, item, place, words, escalates)
        if word == "escalate":
            stage = _escalate(context, body, inner, names, waited)
            escalations += [stage] if stage else []
            waited = None if waited is None or stage is None else _add(waited, stage.deadline)
            changes = body if isinstance(body, Mapping) else {}
            changed = [name for name in _OF_PEOPLE if name in changes]
            if changed and ("from" not in changes or (standing.keys() - changes.keys()) & {"exclude", "quorum"}):
                check_inherited_quorum(context, {**standing, **changes}, (*inner, changed[0]))
            standing = {**standing, **changes}
        elif word:
            expiry = _expiry(context, word, body, inner, names)
    if escalations and expiry is None and word == "escalate":
        message = (
            f"nothing is said of what comes when this stage's deadline has passed, too: it is `{words[0]}`; write "
            f"it as the last entry"
        )
        context.reader.warning(place, "deadline.end", message)
    return tuple(escalations), expiry or plan.Expiry(words[0])  # type: ignore[arg-type]


def find_outcome(policy: Mapping[str, Json]) -> str:
    """The effect of the last deadline of an `approve` or `approval`, as its word; "" after a mistake."""
    value = policy.get("on_deadline", "reject")
    items = value if isinstance(value, list) else [value]
    last = items[-1] if items else ""
    word = next(iter(last), "") if isinstance(last, Mapping) else last
    return "reject" if word == "escalate" else word if isinstance(word, str) else ""


def _read_deadline_item(
    context: StepContext, item: Json, at: Path, words: Sequence[str], escalates: bool
) -> tuple[str, Json, Path]:
    """The word of one entry, the value under it, and its path; "" after a finding."""
    allowed = (*(("escalate",) if escalates else ()), *words)
    word, body, inner = item, None, at
    if isinstance(item, Mapping) and len(item) == 1:
        ((word, body),) = item.items()
        inner = (*at, word)
    if not isinstance(word, str) or word not in allowed:
        actual = f"`{word}`" if isinstance(word, str) else kind_of(item)
        first_word, _, rest = word.partition(":") if isinstance(item, str) else ("", "", "")
        hint = suggestion(word, allowed) if isinstance(word, str) else ""
        if first_word.strip() in allowed and rest.strip():
            hint = f"; it is a mapping, without quotes: {_format_entry(first_word.strip(), rest.strip())}"
        several = isinstance(item, Mapping) and len(item) > 1
        hint = "; make it a list, one entry for each" if several else hint
        if several and isinstance(item, Mapping) and item.get("escalate", "") is None:
            keys = [f"`{key}`" for key in item if key in ESCALATE.words]
            hint = f"; indent {' and '.join(keys)} further, to stand inside of `escalate`" if keys else hint
        message = f"expected {_list_words(allowed)}, found {actual}{hint}"
        context.reader.error(inner, "deadline.outcome", message, key=isinstance(item, Mapping) and inner != at)
        return "", None, at
    if word in ("escalate", "default") and not isinstance(item, Mapping):
        example = "escalate: {from: role:manager, deadline: 1d}" if word == "escalate" else "default: {...}"
        context.reader.error(at, "deadline.outcome", f"`{word}` says more: write `{example}`")
        return "", None, at
    if (body is not None or word == "escalate") and word != "default" and not isinstance(body, Mapping):
        message = f"expected a mapping for `{word}`, found {kind_of(body)}; write {_format_entry(word, body)}"
        context.reader.error(inner, "shape.type", message)
        return "", None, at
    return word, body, inner


def _format_entry(word: str, body: Json) -> str:
    """An entry of `on_deadline` as it is written, for one whose value is no mapping."""
    if word == "escalate":
        people = body if isinstance(body, list) else [body]
        named = [each for each in people if isinstance(each, str) and is_selector_like(each)] or ["role:manager"]
        listed = named[0] if len(named) == 1 else f"[{', '.join(named)}]"
        return f"`escalate: {{from: {listed}, deadline: 1d}}`"
    if word == "default":
        return "`default: {...}`"
    if word == "reject" and isinstance(body, str):
        return f"`reject: {{reason: {as_yaml(body)}}}`"
    return f"`{word}` alone"


def _expiry(context: StepContext, word: str, body: Json, at: Path, names: Names) -> plan.Expiry:
    intended = isinstance(body, Mapping) and body.get("intended") is True
    if word == "approve" and not intended:
        message = (
            "nobody's answer counts as approval here: when the deadline passes, the effect happens; prefer "
            "`reject` or `escalate`; where silence is consent write `approve: {intended: true}`"
        )
        context.reader.warning(at, "approval.by_deadline", message, key=at[-1] == "approve")
    if word == "default":
        return plan.Expiry("default", value=context.template(body, at, names))
    reason = None
    if body is not None:
        shape = {"reject": REJECT, "approve": CONSENT}.get(word, NOTHING)
        fields = context.reader.fields(shape, body, at, f"`{word}`")
        reason = context.text(fields, "reason", at, names)
    return plan.Expiry(word, reason)  # type: ignore[arg-type]


def check_times(
    context: StepContext, fields: Mapping[str, Json], at: Path, deadline: plan.Duration | None, waited: int | None = 0
) -> None:
    """Report reminders that come behind the `deadline` of their question, and a deadline behind the run's own limit.
    `waited`: the milliseconds that stages before this one take; None: nobody knows."""
    if not isinstance(deadline, int):
        return
    earlier: set[int] = set()
    for index, text in enumerate(fields.get("remind", ())):
        with suppress(NotADuration):
            after = milliseconds(text)
            message = None
            if after >= deadline:
                message = f"this reminder never comes: the deadline, {spell(deadline)}, is not behind it; take it out"
            elif after in earlier:
                message = f"this reminder stands twice: {spell(after)}; take one out"
            earlier.add(after)
            if message is not None:
                context.reader.warning((*at, "remind", index), "remind.never", message)
    if waited is None or ("deadline" not in fields and "on_deadline" not in fields):
        return
    limit = context.declared.limits.duration
    if limit is not None and waited + deadline > limit:
        is_written = "deadline" in fields
        which = "this deadline" if is_written else f"this happens, {spell(deadline)} after the question"
        message = (
            f"the run is over before {which}: its `limits.duration` is {spell(limit)}, and waiting counts; "
            "shorten the deadline, or raise the limit"
        )
        context.reader.warning((*at, "deadline" if is_written else "on_deadline"), "deadline.limit", message)


def _length_of(text: Json, default: plan.Duration) -> int | None:
    if text is None:
        return default if isinstance(default, int) else None
    with suppress(NotADuration):
        return milliseconds(text) if isinstance(text, str) else None
    return None


def _add(waited: int, length: plan.Duration) -> int | None:
    return waited + length if isinstance(length, int) else None


def _escalate(context: StepContext, body: Json, at: Path, names: Names, waited: int | None) -> plan.Escalate | None:
    fields = context.reader.fields(ESCALATE, body, at, "`escalate`")
    from_ = selectors_of(context, fields["from"], (*at, "from"), names) if "from" in fields else None
    exclude = compile_exclusion(context, fields, at, names)
    quorum = compile_quorum(context, fields, at, names)
    if "from" in fields:
        check_deciders(context, fields, at, quorum)
    deadline = context.duration(fields, "deadline", at, names, working=True)
    if deadline is None:
        return None
    check_times(context, fields, at, deadline, waited)
    return plan.Escalate(
        deadline,
        from_,
        exclude,
        quorum,
        notify(context, fields, at, names) if "notify" in fields else None,
        compile_reminders(context, fields, at, names) if "remind" in fields else None,
    )


def _list_words(words: Sequence[str]) -> str:
    quoted = [f"`{word}`" for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]
