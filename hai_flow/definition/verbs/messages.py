"""`say` and `emit`: messages and events for the frontend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from hai_flow.definition import plan
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import ENDED_KEYS
from hai_flow.definition.yaml.keys import ANY, MAPPING, TEXT, Key, Shape, either, shape_of
from hai_flow.values import Json

SAY: Final = Shape("say", "`say` as a mapping", (
    Key("text", TEXT, "a message", example='"Hello ${{ input.name }}"'),
    Key("thinking", either(TEXT, shape_of("thinking")), "a thought, apart from the answer", example="Looking it up"),
    Key("fold", shape_of("fold"), "a part that can be folded",
        example="{title: Details, fold: true, position: start}"),
    Key("output", shape_of("output"), "any output of the HAI protocol", example="{type: table, data: {rows: []}}"),
    Key("block_id", TEXT, "block of the page", example="summary"),
    Key("layout", MAPPING, "position: `{x, y}`", example="{x: 0, y: 1}"),
    Key("style", ANY, "style, as defined by the frontend", example="{color: green}"),
), exactly_one=(("text", "thinking", "fold", "output"),))  # fmt: skip
THINKING: Final = Shape("thinking", "`thinking` as a mapping", (
    Key("content", TEXT, "the thought", required=True, example="Looking it up"),
    Key("elapsed", ANY, "duration, in seconds", example="1.5"),
    Key("thinking", ANY, "the thought is still going on", example="false"),
    Key("collapse", ANY, "show it folded", example="true"),
), open=True)  # fmt: skip
FOLD: Final = Shape("fold", "`fold`", (
    Key("title", TEXT, "title of the part", required=True, example="Details"),
    Key("fold", ANY, "show it folded", example="true"),
    Key("position", TEXT, "`start` or `end`", example="start"),
))  # fmt: skip
OUTPUT: Final = Shape("output", "`output` of `say`", (
    Key("type", TEXT, "type of the output", required=True, example="table"),
    Key("data", ANY, "its content", example="{rows: []}"),
), open=True)  # fmt: skip
EMIT: Final = Shape("emit", "`emit`", (
    Key("custom", shape_of("custom"), "a CUSTOM event", example="{name: progress, value: 3}"),
    Key("raw", shape_of("raw"), "an event of another system, as it is",
        example='{event: "${{ steps.x.output }}", source: erp}'),
    Key("collaboration", shape_of("collaboration"), "a handover between agents",
        example="{from: planner, to: writer, task: {id: t1, name: Draft}}"),
), exactly_one=(("custom", "raw", "collaboration"),))  # fmt: skip
CUSTOM: Final = Shape("custom", "`custom`", (
    Key("name", replace(TEXT, minimum=1), "name of the event", required=True, example="progress"),
    Key("value", ANY, "any value", example="3"),
))  # fmt: skip
RAW: Final = Shape("raw", "`raw`", (
    Key("event", ANY, "any value", required=True, example="{kind: ping}"),
    Key("source", TEXT, "the system it comes from", example="erp"),
))  # fmt: skip
COLLABORATION: Final = Shape("collaboration", "`collaboration`", (
    Key("from", TEXT, "the agent that hands over", required=True, example="planner"),
    Key("to", TEXT, "the agent that takes over", required=True, example="writer"),
    Key("task", shape_of("task"), "the task", required=True, example="{id: t1, name: Draft}"),
))  # fmt: skip
TASK: Final = Shape("task", "`task`", (
    Key("id", TEXT, "its id", required=True, example="t1"),
    Key("name", TEXT, "its name", required=True, example="Draft"),
))  # fmt: skip
_EMITTED: Final = {"custom": CUSTOM, "raw": RAW, "collaboration": COLLABORATION}


def _say(context: StepContext, draft: StepDraft, names: Names) -> plan.Say | None:
    value, at = draft.value, draft.value_at
    if isinstance(value, str):
        return plan.Say("text", context.template(value, at, names, text=True))
    fields = context.reader.fields(SAY, value, at, "`say`")
    kinds = [kind for kind in ("text", "thinking", "fold", "output") if kind in fields]
    if len(kinds) != 1:
        if kinds or not (isinstance(value, Mapping) and value.keys() - set(SAY.words)):
            actual = " and ".join(f"`{kind}`" for kind in kinds) or "none"
            context.reader.error(
                at, "say.kind", f"expected one of `text`, `thinking`, `fold`, `output` in `say`, found {actual}"
            )
        return None
    kind: Any = kinds[0]
    _check_message(context, kind, fields[kind], (*at, kind))
    parts = {
        key: context.template(fields[key], (*at, key), names)
        for key in ("block_id", "layout", "style")
        if key in fields
    }
    content = context.template(fields[kind], (*at, kind), names, text=isinstance(fields[kind], str))
    return plan.Say(kind, content, **parts)


def _check_message(context: StepContext, kind: str, content: Json, at: Path) -> None:
    if kind == "fold":
        context.reader.fields(FOLD, content, at, "`fold`")
        position = content.get("position")
        if isinstance(position, str) and position not in ("", "start", "end") and "${{" not in position:
            context.reader.error((*at, "position"), "say.position", f"expected `start` or `end`, found `{position}`")
    elif kind == "output" and "type" not in content:
        context.reader.error(at, "shape.missing_key", "`type` is missing in `output`", key=True)
    elif kind == "thinking" and isinstance(content, Mapping) and "content" not in content:
        context.reader.error(at, "shape.missing_key", "`content` is missing in `thinking`", key=True)


def _emit(context: StepContext, draft: StepDraft, names: Names) -> plan.Emit | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(EMIT, value, at, "`emit`")
    kinds = [kind for kind in _EMITTED if kind in value]
    if len(kinds) != 1:
        if kinds or all(key in _EMITTED for key in value):
            actual = " and ".join(f"`{kind}`" for kind in kinds) or "none"
            message = f"expected one of `custom`, `raw`, `collaboration` in `emit`, found {actual}"
            context.reader.error((*at, kinds[1]) if kinds else at, "emit.kind", message, key=True)
        return None
    kind: Any = kinds[0]
    if kind not in fields:
        return None
    inner = (*at, kind)
    content = context.reader.fields(_EMITTED[kind], fields[kind], inner, f"`{kind}`")
    if kind == "collaboration" and "task" in content:
        context.reader.fields(TASK, content["task"], (*inner, "task"), "`task`")
    return plan.Emit(cast("Any", kind), context.template(fields[kind], inner, names))


VERBS: Final = (
    VerbRules(
        "say",
        type=either(TEXT, shape_of("say")),
        does="a message to the frontend",
        keys=ENDED_KEYS,
        output="null",
        example='"Hello ${{ input.name }}"',
        compile=_say,
        gives={"type": "null"},
        kind="message",
        shapes=(SAY, THINKING, FOLD, OUTPUT),
        aka=("print", "message", "log", "echo", "text", "output"),
    ),
    VerbRules(
        "emit",
        type=shape_of("emit"),
        does="an event for the frontend",
        keys=ENDED_KEYS,
        output="null",
        example="{custom: {name: progress, value: 3}}",
        compile=_emit,
        gives={"type": "null"},
        kind="message",
        shapes=(EMIT, CUSTOM, RAW, COLLABORATION, TASK),
    ),
)
