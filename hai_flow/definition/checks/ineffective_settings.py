"""Literals that can't do what they stand for: bounds that exclude each other, waits beyond a limit, cases that are
never taken, keys that are the same for every round."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hai_flow.definition.checks.unraised_errors import check_codes
from hai_flow.definition.checks.unused_declarations import list_written_names
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.names.wording import kind_of, shorten, suggestion
from hai_flow.definition.raw_steps import LEAVING, StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.values import Json

_BOUNDS: Final = (
    ("minimum", "maximum"), ("exclusiveMinimum", "maximum"), ("minimum", "exclusiveMaximum"),
    ("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"),
)  # fmt: skip
_ASKING: Final = frozenset(("ask", "approve", "approval"))
_UNCHANGING: Final = frozenset(("input", "run", "thread"))
_DEPTH_MAX: Final = 50

_STATE: Final = re.compile(r"\bstate\.([A-Za-z_]\w*)")


def check_schema(context: StepContext, schema: Json, at: Path, depth: int = 0) -> None:
    """Report bounds of a JSON Schema that no value keeps."""
    if isinstance(schema, list):
        for index, each in enumerate(schema):
            check_schema(context, each, (*at, index), depth + 1)
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
        return
    for least, most in _BOUNDS:
        low, high = schema.get(least), schema.get(most)
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            continue
        if low > high or (low == high and "exclusive" in least + most):
            message = f"no value keeps both: `{least}: {low}` is above `{most}: {high}`; change one of them"
            context.reader.warning((*at, least), "schema.bounds", message, key=True)
    _check_keywords(context, schema, at)
    for key, each in schema.items():
        if key not in ("default", "const", "enum", "examples"):
            check_schema(context, each, (*at, key), depth + 1)


_OF_TYPE: Final = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "minProperties", "maxProperties"), ("object",)),
    **dict.fromkeys(("items", "minItems", "maxItems", "uniqueItems"), ("array",)),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), ("string",)),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), ("integer", "number")
    ),
}
_NUMBERS: Final = (("format", "integer"), ("format", "number"))
_FORMATS: Final = frozenset((
    "date", "date-time", "duration", "email", "file", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri",
    "iri-reference", "json-pointer", "regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template",
    "uuid",
))  # fmt: skip
_HINTS_OF_PAGES: Final = frozenset((
    "binary", "byte", "color", "data-url", "double", "float", "html", "int32", "int64", "markdown", "multiline",
    "password", "phone", "tel", "text", "textarea",
))  # fmt: skip


def _check_keywords(context: StepContext, schema: Mapping[str, Json], at: Path) -> None:
    """Report keywords that mean nothing for the schema's type, words that stand twice, formats that are none."""
    kind = schema.get("type")
    if isinstance(kind, str):
        for word in schema:
            kinds = _OF_TYPE.get(word)
            is_told = schema[word] is True and word == "required"
            if kinds is not None and kind not in kinds and not is_told and (word, kind) not in _NUMBERS:
                message = (
                    f"`{word}` means nothing for `type: {kind}`, but for `type: {kinds[0]}`; move it, or change one"
                )
                context.reader.warning((*at, word), "schema.other_type", message, key=True)
    enum = schema.get("enum")
    words = enum if isinstance(enum, list) else []
    for index, word in enumerate(words):
        if word in words[:index] and type(word) is not bool:
            message = f"`{shorten(str(word))}` stands twice in the `enum`; remove one"
            context.reader.warning((*at, "enum", index), "schema.enum_twice", message)
    for index, word in enumerate(words):
        _check_type_of_value(context, word, kind, (*at, "enum", index))
    if "const" in schema:
        _check_type_of_value(context, schema["const"], kind, (*at, "const"))
    name = schema.get("format")
    if isinstance(name, str) and name not in _FORMATS | _HINTS_OF_PAGES and (hint := suggestion(name, _FORMATS)):
        message = f"there is no format `{name}`, so nothing is checked{hint}"
        context.reader.warning((*at, "format"), "schema.format", message)


_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,), "boolean": (bool,), "integer": (int, float), "number": (int, float), "array": (list,),
    "object": (dict,), "null": (type(None),),
}  # fmt: skip


def _check_type_of_value(context: StepContext, value: Json, kind: Json, at: Path) -> None:
    """Report a value of an `enum` or a `const` that is never accepted, because the type beside it is another."""
    kinds = [each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)]
    is_hole = isinstance(value, str) and "${{" in value
    if is_hole or not kinds or any(type(value) in _CLASSES.get(each, (type(value),)) for each in kinds):
        return
    if value is None:
        remedy = f"write `type: [{kinds[0]}, 'null']`, or quote the word"
    else:
        remedy = "quote it" if "string" in kinds else "write one of that type"
    message = f"this is never accepted: it is {kind_of(value)}, and the type is {' or '.join(kinds)}; {remedy}"
    context.reader.warning(at, "schema.other_type", message)


def check_steps(context: StepContext) -> None:
    """Report what can't happen, or can't differ, in each step."""
    for step in context.outline.every:
        _check_step(context, step)


def _check_step(context: StepContext, step: StepDraft) -> None:
    for verb in _ASKING & step.fields.keys():
        fields = step.fields[verb]
        if isinstance(fields, dict) and verb != "approval":
            check_schema(context, fields.get("form"), (*step.at, verb, "form"))
    if step.verb == "switch":
        _report_same_cases(context, step)
    if step.verb == "repeat":
        _report_unchanging(context, step)
    if step.condition is not None or step.cases:
        _winners(context, step)
    for word, check in _CHECKS_BY_KEY:
        if word in step.fields:
            check(context, step)
    if not _ASKING.isdisjoint(step.fields):
        _report_same_people(context, step)
        _report_unwritten(context, step)
    if step.catch or "retry" in step.fields:
        check_codes(context, step)


def _report_unwritten(context: StepContext, step: StepDraft) -> None:
    """Report a question that is taken back by `state` which nothing writes."""
    for verb in _ASKING & step.fields.keys():
        fields = step.fields[verb]
        condition = fields.get("withdraw_when") if isinstance(fields, Mapping) else None
        names = _STATE.findall(condition) if isinstance(condition, str) else []
        declared = [context.declared.state.get(name) for name in names]
        if not names or any(each is None or each.client for each in declared):
            continue
        document = context.reader.document.value
        if set(names).isdisjoint(list_written_names({key: document[key] for key in document if key != "state"})):
            message = (
                f"this can't change while people are asked: nothing sets `{names[0]}`; let another branch `set` it, "
                "give it `client: true`, or write `withdraw_when: {event: ...}`"
            )
            context.reader.warning((*step.at, verb, "withdraw_when"), "withdraw.never", message)


def _report_same_cases(context: StepContext, step: StepDraft) -> None:
    first_cases: dict[str, int] = {}
    for number, raw in enumerate(step.fields.get("switch", ())):
        when = raw.get("when") if isinstance(raw, Mapping) else None
        when = "true" if when is True else when
        text = " ".join(when.split()) if isinstance(when, str) else None
        if text is None:
            continue
        if "true" in first_cases:
            message = (
                f"this case is never taken: case {first_cases['true'] + 1} is always true; write that one last, as "
                "`default: true`"
            )
            context.reader.warning((*step.at, "switch", number, "when"), "switch.same_case", message)
        elif text in first_cases:
            message = (
                f"this case is never taken: case {first_cases[text] + 1} has the same condition; change one of them"
            )
            context.reader.warning((*step.at, "switch", number, "when"), "switch.same_case", message)
        first_cases.setdefault(text, number)


def _report_unchanging(context: StepContext, step: StepDraft) -> None:
    for word in ("until", "while"):
        value = step.params.get(word)
        at = (*step.at, "repeat", word)
        condition = step.conditions.get(word)
        if word == "while" and str(value).strip().lower() == "false":
            message = "the loop never runs: `while` is never true; read `state` or `index`, or take the loop out"
            context.reader.warning(at, "repeat.unchanging", message)
        if not isinstance(value, str) or condition is None:
            continue
        if condition.roots and condition.roots <= _UNCHANGING and not condition.steps:
            named = ", ".join(f"`{root}`" for root in sorted(condition.roots))
            message = (
                f"`{word}` is the same in every round: it reads {named} alone, which does not change; "
                "read `state`, `index` or a step inside"
            )
            context.reader.warning(at, "repeat.unchanging", message)


def _winners(context: StepContext, step: StepDraft) -> None:
    """A winner of a race that is none of its branches."""
    places = [((*step.at, "if"), step.condition)]
    places += [((*step.at, "switch", int(body), "when"), case) for body, case in step.cases.items()]
    for at, condition in places:
        facts = (condition.proof or frozenset()) | (condition.disproof or frozenset()) if condition else frozenset()
        for each in facts:
            if len(each) != 5 or each[1] != "equal" or not str(each[2]).endswith(".output.winner"):
                continue
            block = context.outline.ids.get(str(each[2]).split(".")[1])
            branches = block.fields.get("parallel") if block is not None else None
            name = str(each[3]).strip("'\"")
            if isinstance(branches, Mapping) and block is not None and block.fields.get("join", "all") != "any":
                message = f"`{each[2]}` is null without `join: any`; write that, or ask for the `results` of branches"
                context.reader.warning(at, "parallel.no_branch", message)
                return
            if isinstance(branches, Mapping) and str(each[3]).startswith(("'", '"')) and name not in branches:
                hint = suggestion(name, branches) or f"; its branches are {', '.join(branches)}"
                message = f"`{each[2]}` is never {each[3]}{hint}"
                context.reader.warning(at, "parallel.no_branch", message)
                return


def _too_long(context: StepContext, step: StepDraft) -> None:
    """A timeout that is longer than the run, or the block around it, may last."""
    length, at = _length(step.fields["timeout"]), (*step.at, "timeout")
    if length is None:
        return
    _report_longer_than_run(context, length, at)
    for outer, text in _iter_timeouts_around(step):
        if (around := _length(text)) is not None and length > around:
            message = f"this is longer than the `timeout` of `{outer.id}` around it, which is {text}"
            context.reader.warning(at, "timeout.shorter", message)
            break


def _report_undo_of_reading(context: StepContext, step: StepDraft) -> None:
    name = str(step.fields.get("call", "")).partition(".")[0]
    tool = context.declared.tools.get(name)
    if getattr(tool, "effect", "") == "read":
        message = f"nothing is to be taken back: `{name}` only reads (`effect: read`); take it out"
        context.reader.warning((*step.at, "undo"), "undo.nothing", message, key=True)


def _wait_too_long(context: StepContext, step: StepDraft) -> None:
    wait = step.fields["wait"]
    length = _length(wait.get("for")) if isinstance(wait, Mapping) else None
    if length is not None:
        _report_longer_than_run(context, length, (*step.at, "wait", "for"))


def _callback_too_late(context: StepContext, step: StepDraft) -> None:
    for at in ((*step.at, "await_callback"), (*step.at, "http", "await_callback")):
        _report_late(context, step.fields, at[len(step.at) :], at)


def check_declared_deadlines(context: StepContext, fields: Mapping[str, Json]) -> None:
    """Report deadlines of `defaults` and of frontend tools that lie behind the end of every run."""
    tools = fields.get("tools")
    _report_late(context, fields, ("defaults",), ("defaults",))
    for name in tools if isinstance(tools, Mapping) else ():
        _report_late(context, fields, ("tools", name, "frontend"), ("tools", name, "frontend"))


def check_limits(context: StepContext, steps: Sequence[StepDraft]) -> None:
    """Report a limit on steps or calls that every run reaches before its end."""
    limits = context.declared.limits
    if limits.steps is None and limits.tool_calls is None:
        return
    certain = list(_iter_certain_steps(steps))
    calls = sum(step.verb == "call" for step in certain)
    for word, limit, count, noun in (
        ("steps", limits.steps, len(certain), "steps"), ("tool_calls", limits.tool_calls, calls, "calls"),
    ):  # fmt: skip
        if limit is not None and count > limit:
            message = f"every run that comes to its end begins {count} {noun}, and fails at {limit}; raise the limit"
            context.reader.warning(("limits", word), "limits.shorter", message)


def _iter_certain_steps(steps: Sequence[StepDraft]) -> Iterator[StepDraft]:
    """The steps that every run begins, as far as that is easily known; of blocks those inside."""
    for step in steps:
        if any(each.verb in ("return", *LEAVING) for each in (step, *step.inside())):
            return
        if "if" in step.fields or step.verb in ("switch", "repeat", "for_each"):
            continue
        is_join = step.verb == "parallel" and step.fields.get("join", "all") == "all"
        if step.verb == "try" or is_join:
            for body in step.blocks.values():
                yield from _iter_certain_steps(body)
        elif step.verb != "parallel":
            yield step


def _report_late(context: StepContext, fields: Mapping[str, Json], inside: Path, at: Path) -> None:
    value: Any = fields
    for key in (*inside, "deadline"):
        value = value.get(key) if isinstance(value, Mapping) else None
    if (length := _length(value)) is not None:
        _report_longer_than_run(context, length, (*at, "deadline"))


def _report_longer_than_run(context: StepContext, length: int, at: Path) -> None:
    limit = context.declared.limits.duration
    if isinstance(limit, int) and length > limit:
        run_limit = context.reader.document.value["limits"]["duration"]
        message = f"this is longer than the run may last: `limits.duration` is {run_limit}; make one of them another"
        context.reader.warning(at, "limits.shorter", message)


def _iter_timeouts_around(step: StepDraft) -> Iterator[tuple[StepDraft, Json]]:
    for frame in reversed(step.chain):
        if frame.owner is not None and not frame.is_handler and "timeout" in frame.owner.fields:
            yield frame.owner, frame.owner.fields["timeout"]


def _length(value: Json) -> int | None:
    if not isinstance(value, str) or "${{" in value:
        return None
    try:
        return milliseconds(value)
    except NotADuration:
        return None


def _report_same_key(context: StepContext, step: StepDraft) -> None:
    key = step.fields.get("idempotency_key")
    loop = next((frame.owner for frame in reversed(step.chain) if frame.is_loop and frame.owner is not None), None)
    if loop is None or not isinstance(key, str):
        return
    if step.key is not None and step.key.roots <= _UNCHANGING and not step.key.steps:
        runs = ", and of every run" if "run" not in step.key.roots else ""
        message = (
            f"this key is the same in every round of `{loop.id}`{runs}: all but the first call are taken "
            "for a repetition; put the item and `${{ run.id }}` into the key, or leave it out"
        )
        context.reader.warning((*step.at, "idempotency_key"), "idempotency_key.constant", message)


def _report_body_of_get(context: StepContext, step: StepDraft) -> None:
    fields = step.fields.get("http")
    if not isinstance(fields, Mapping):
        return
    method = next((each for each in ("get", "head") if each in fields), None)
    for key in ("body", "form", "text", "multipart"):
        if method is not None and key in fields:
            message = f"a {method.upper()} has no `{key}` that servers read; put it into `query`, or use `post`"
            context.reader.warning((*step.at, "http", key), "http.body", message, key=True)


def _report_no_items(context: StepContext, step: StepDraft) -> None:
    if step.verb == "for_each" and step.params.get("items") == []:
        message = "the list is empty, so its steps never run; give it items, or take the loop out"
        context.reader.warning((*step.at, "for_each", "items"), "for_each.empty", message)


def _set_to_itself(context: StepContext, step: StepDraft) -> None:
    assignments = step.fields.get("set")
    for name, value in assignments.items() if isinstance(assignments, Mapping) else ():
        variable = context.declared.state.get(str(name))
        if variable is None or variable.reduce is not None or not isinstance(value, str):
            continue
        if "".join(value.split()) == f"${{{{state.{name}}}}}":
            message = f"this sets `{name}` to itself, so nothing changes; give it another value, or take it out"
            context.reader.warning((*step.at, "set", name), "set.itself", message)


def _retry_too_late(context: StepContext, step: StepDraft) -> None:
    """A second attempt that would begin behind the timeout of a block around."""
    retry = step.fields.get("retry")
    every = _length(retry.get("every")) if isinstance(retry, Mapping) else None
    for outer, text in _iter_timeouts_around(step) if every is not None else ():
        if (around := _length(text)) is not None and every is not None and every >= around:
            message = (
                f"the second attempt would begin behind the `timeout` of `{outer.id}` around it, which is {text}; "
                "lower `every`"
            )
            context.reader.warning((*step.at, "retry", "every"), "timeout.shorter", message)
            return
    if every is not None:
        _report_longer_than_run(context, every, (*step.at, "retry", "every"))


def _report_empty_prompt(context: StepContext, step: StepDraft) -> None:
    fields = step.fields.get(step.verb) if step.verb in ("llm", "agent") else None
    if isinstance(fields, Mapping) and isinstance(fields.get("prompt"), str) and not fields["prompt"].strip():
        message = "the prompt is empty: write what the model shall do"
        context.reader.warning((*step.at, step.verb, "prompt"), "llm.no_prompt", message)


_WHO: Final = ("from", "exclude", "quorum", "notify")


def _report_same_people(context: StepContext, step: StepDraft) -> None:
    """An escalation that asks nobody else, and otherwise is the stage before, too."""
    for word in ("ask", "approve", "approval"):
        fields = step.fields.get(word)
        stages = fields.get("on_deadline") if isinstance(fields, dict) else None
        if isinstance(fields, dict):
            before = {key: _sorted(fields.get(key)) for key in _WHO}
            several = isinstance(stages, list)
            for index, stage in enumerate(stages if several else [stages]):  # type: ignore[arg-type]
                body = stage.get("escalate") if isinstance(stage, Mapping) else None
                if not isinstance(body, Mapping):
                    continue
                after = {key: _sorted(body[key]) if key in body else value for key, value in before.items()}
                if after == before:
                    at = (*step.at, word, "on_deadline", *((index,) if several else ()), "escalate")
                    message = (
                        "this asks the same people again: name others in `from`; to give them more time raise "
                        "`deadline`, to remind them write `remind`"
                    )
                    context.reader.warning((*at, "from") if "from" in body else at, "escalate.same", message)
                before = after


_CHECKS_BY_KEY: Final = (
    ("timeout", _too_long),
    ("wait", _wait_too_long),
    ("await_callback", _callback_too_late),
    ("idempotency_key", _report_same_key),
    ("http", _report_body_of_get),
    ("http", _callback_too_late),
    ("for_each", _report_no_items),
    ("set", _set_to_itself),
    ("retry", _retry_too_late),
    ("undo", _report_undo_of_reading),
    ("llm", _report_empty_prompt),
    ("agent", _report_empty_prompt),
)
"""The checks of steps that have a key, by that key."""


def _sorted(value: Json) -> Json:
    return sorted(map(str, value)) if isinstance(value, list) else [str(value)] if value is not None else None
