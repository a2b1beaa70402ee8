"""`break`, `continue`, `return`, `fail`: the ends of a list of steps."""

from __future__ import annotations

from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.fields import CODE, RESERVED_PREFIXES
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.wording import shorten
from hai_flow.definition.raw_steps import StepDraft, find_loop_around
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.keys import ANY, LITERAL, TEXT, Key, Shape, either, enum, shape_of

FAIL: Final = Shape("fail", "`fail` as a mapping", (
    Key("message", TEXT, "message for people", required=True, example='"No stock of ${{ input.order }}"'),
    Key("code", LITERAL, "code for `catch`, without a reserved prefix", default="fail", example="out_of_stock"),
    Key("data", ANY, "any value", example='{order: "${{ input.order }}"}'),
))  # fmt: skip


def _fail(context: StepContext, draft: StepDraft, names: Names) -> plan.Fail | None:
    value, at = draft.value, draft.value_at
    if isinstance(value, str):
        return plan.Fail(context.template(value, at, names, text=True))
    fields = context.reader.fields(FAIL, value, at, "`fail`")
    message = context.text(fields, "message", at, names)
    code = fields.get("code", "fail")
    _check_own_code(context, code, (*at, "code"))
    data = context.template(fields["data"], (*at, "data"), names) if "data" in fields else None
    return plan.Fail(message, code, data) if message is not None else None


def _check_own_code(context: StepContext, code: str, at: Path) -> None:
    if not CODE.fullmatch(code):
        context.reader.error(at, "fail.code", f"expected a code such as `stock.empty`, found `{shorten(code)}`")
    elif code.partition(".")[0] in RESERVED_PREFIXES:
        prefix = code.partition(".")[0]
        context.reader.error(
            at, "fail.reserved_code", f"codes that begin with `{prefix}` are the engine's own; choose another"
        )


def _leave(context: StepContext, draft: StepDraft, names: Names) -> plan.Break | plan.Continue | None:
    frame = find_loop_around(draft.chain)
    if frame is None:  # the lint says so
        return None
    return plan.Break(frame.parent) if draft.verb == "break" else plan.Continue(frame.parent)


def _compile_return(context: StepContext, draft: StepDraft, names: Names) -> plan.Return:
    return plan.Return(context.template(draft.value, draft.value_at, names))


VERBS: Final = (
    VerbRules(
        "break",
        type=enum(True),
        does="ends the enclosing loop as finished; its other open steps are stopped without undo",
        example="true",
        compile=_leave,
        kind="end",
        aka=("leave",),
    ),
    VerbRules(
        "continue",
        type=enum(True),
        does="skips the rest of the round of the enclosing loop",
        example="true",
        compile=_leave,
        kind="end",
        aka=("next",),
    ),
    VerbRules(
        "return",
        type=ANY,
        does="ends the run as finished, with this value, from any depth",
        example="{status: rejected}",
        compile=_compile_return,
        kind="end",
        cleans=False,
        aka=("exit", "end", "stop", "finish"),
    ),
    VerbRules(
        "fail",
        type=either(TEXT, shape_of("fail")),
        does="raises an error",
        fails="its `code`",
        example="{message: No stock, code: out_of_stock}",
        compile=_fail,
        kind="end",
        shapes=(FAIL,),
        aka=("raise", "throw", "error"),
    ),
)
