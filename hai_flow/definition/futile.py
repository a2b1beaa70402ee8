"""Literals that can't do what they stand for: bounds that exclude each other, waits beyond a limit, cases that are
never taken, keys that are the same for every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hai_flow.definition.context import Context
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.names.wording import shorten, suggestion
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.yaml.document import Path
from hai_flow.values import Json

_BOUNDS: Final = (
    ("minimum", "maximum"), ("exclusiveMinimum", "maximum"), ("minimum", "exclusiveMaximum"),
    ("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"),
)  # fmt: skip
_UNCHANGING: Final = frozenset(("input", "run", "thread"))
_DEPTH_MAX: Final = 50


def check_schema(context: Context, schema: Json, at: Path, depth: int = 0) -> None:
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
    for key, each in schema.items():
        if key not in ("default", "const", "enum", "examples"):
            check_schema(context, each, (*at, key), depth + 1)


def check_step(context: Context, step: StepDraft) -> None:
    """Report what can't happen, or can't differ, in one step."""
    for verb in ("ask", "approve"):
        fields = step.fields.get(verb)
        if isinstance(fields, Mapping):
            check_schema(context, fields.get("form"), (*step.at, verb, "form"))
    if step.verb == "switch":
        _same_cases(context, step)
    if step.verb == "for_each":
        _same_items(context, step)
    if step.verb == "repeat":
        _never_changes(context, step)
    _winners(context, step)
    _too_long(context, step)
    _same_key(context, step)
    _body_of_get(context, step)


def _same_cases(context: Context, step: StepDraft) -> None:
    first_cases: dict[str, int] = {}
    for number, raw in enumerate(step.fields.get("switch", ())):
        when = raw.get("when") if isinstance(raw, Mapping) else None
        text = " ".join(when.split()) if isinstance(when, str) else None
        if text is None:
            continue
        if text in first_cases:
            message = (
                f"this case is never taken: case {first_cases[text] + 1} has the same condition; change one of them"
            )
            context.reader.warning((*step.at, "switch", number, "when"), "switch.same_case", message)
        first_cases.setdefault(text, number)


def _same_items(context: Context, step: StepDraft) -> None:
    items = step.params.get("items")
    key = step.params.get("key")
    name = step.params.get("as", "item")
    if not isinstance(items, list) or (key is not None and str(key).replace(" ", "") != f"${{{{{name}}}}}"):
        return
    items_before: set[str] = set()
    for index, item in enumerate(items):
        if isinstance(item, str) and "${{" not in item and item in items_before:
            message = f"`{shorten(item)}` stands twice, and each item needs its own key; remove one, or give a `key`"
            context.reader.refuse((*step.at, "for_each", "items", index), "for_each.duplicate_key", message)
        if isinstance(item, str):
            items_before.add(item)


def _never_changes(context: Context, step: StepDraft) -> None:
    for word in ("until", "while"):
        value = step.params.get(word)
        at = (*step.at, "repeat", word)
        condition = step.conditions.get(word)
        if not isinstance(value, str) or condition is None:
            continue
        if condition.roots and condition.roots <= _UNCHANGING and not condition.steps:
            named = ", ".join(f"`{root}`" for root in sorted(condition.roots))
            message = (
                f"`{word}` is the same in every round: it reads {named} alone, which does not change; "
                "read `state`, `index` or a step inside"
            )
            context.reader.warning(at, "repeat.unchanging", message)


def _winners(context: Context, step: StepDraft) -> None:
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
            if isinstance(branches, Mapping) and str(each[3]).startswith(("'", '"')) and name not in branches:
                hint = suggestion(name, branches) or f"; its branches are {', '.join(branches)}"
                message = f"`{each[2]}` is never {each[3]}{hint}"
                context.reader.warning(at, "parallel.no_branch", message)
                return


def _too_long(context: Context, step: StepDraft) -> None:
    """A wait or a timeout that is longer than the run, or the block around it, may last."""
    own = [("timeout", step.fields.get("timeout"), (*step.at, "timeout"))]
    wait = step.fields.get("wait")
    if isinstance(wait, Mapping):
        own.append(("wait", wait.get("for"), (*step.at, "wait", "for")))
    limit = context.declared.limits.duration
    for word, value, at in own:
        length = _length(value)
        if length is None:
            continue
        if isinstance(limit, int) and length > limit:
            run_limit = context.reader.document.value["limits"]["duration"]
            message = (
                f"this is longer than the run may last: `limits.duration` is {run_limit}; make one of them another"
            )
            context.reader.warning(at, "limits.shorter", message)
        if word == "timeout":
            for outer, text in _timeouts_around(step):
                if (around := _length(text)) is not None and length > around:
                    message = f"this is longer than the `timeout` of `{outer.id}` around it, which is {text}"
                    context.reader.warning(at, "timeout.shorter", message)
                    break


def _timeouts_around(step: StepDraft) -> Iterator[tuple[StepDraft, Json]]:
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


def _same_key(context: Context, step: StepDraft) -> None:
    key = step.fields.get("idempotency_key")
    loop = next((frame.owner for frame in reversed(step.chain) if frame.is_loop and frame.owner is not None), None)
    if loop is None or not isinstance(key, str):
        return
    if "${{" not in key:
        message = (
            f"this key is the same in every round of `{loop.id}`, and of every run: all but the first call are taken "
            "for a repetition; put the item and `${{ run.id }}` into the key, or leave it out"
        )
        context.reader.warning((*step.at, "idempotency_key"), "idempotency_key.constant", message)


def _body_of_get(context: Context, step: StepDraft) -> None:
    fields = step.fields.get("http")
    if not isinstance(fields, Mapping):
        return
    method = next((each for each in ("get", "head") if each in fields), None)
    for key in ("body", "form", "text", "multipart"):
        if method is not None and key in fields:
            message = f"a {method.upper()} has no `{key}` that servers read; put it into `query`, or use `post`"
            context.reader.warning((*step.at, "http", key), "http.body", message, key=True)
