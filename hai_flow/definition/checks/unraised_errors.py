"""Error codes that a `catch` or a `retry` names and that nothing there raises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.fields import KNOWN_CODES
from hai_flow.definition.raw_steps import Clause, StepDraft
from hai_flow.definition.step_context import StepContext

_ASKS: Final = "nothing here asks people"
_ONLY: Final = {
    "approval": _ASKS,
    "ask": "nothing here has an `ask`",
    "wait_for": "nothing here has a `wait_for`",
    "for_each": "nothing here is a `for_each`",
    "repeat": "nothing here is a `repeat`",
    "agent": "nothing here is an `agent`",
    "llm": "nothing here asks a model",
    "http": "nothing here sends a request",
    "tool": "nothing here calls a tool",
    "mcp": "nothing here calls a server of MCP",
    "run": "nothing here runs another workflow",
}
"""The kinds of codes that only some steps raise, and what is said where there is none of these."""
_AGENT: Final = frozenset(("agent", "llm", "tool", "mcp", "http", "approval"))
_BY_VERB: Final = {
    "ask": frozenset(("ask",)),
    "approve": frozenset(("approval",)),
    "wait_for": frozenset(("wait_for",)),
    "for_each": frozenset(("for_each",)),
    "repeat": frozenset(("repeat",)),
    "agent": _AGENT,
    "llm": frozenset(("llm",)),
    "http": frozenset(("http",)),
    "run": frozenset(("run",)),
}
_OF_TOOLS: Final[dict[type, frozenset[str]]] = {
    plan.McpTool: frozenset(("tool", "mcp")),
    plan.HttpTool: frozenset(("tool", "http")),
    plan.A2ATool: frozenset(("tool", "http")),
    plan.FrontendTool: frozenset(("tool",)),
}
_EVERYTHING: Final = frozenset(_ONLY)
_OWN: Final = frozenset(("tool", "http", "llm", "mcp", "run"))  # a function may raise any code; these it may hand on


def check_codes(context: StepContext, step: StepDraft) -> None:
    """Report codes of the step's own `catch` and `retry` that neither it nor anything inside raises."""
    if step.catch:
        inside = [step, *(each for steps in step.blocks.values() for one in steps for each in (one, *one.inside()))]
        for clause in step.catch:
            _check_clause(context, clause, inside)
    retry = step.fields.get("retry")
    errors = retry.get("errors") if isinstance(retry, dict) else None
    if isinstance(errors, list):
        raised = collect_raised_codes(context, [step]) - {"approval"}
        for index, pattern in enumerate(errors):
            _check_pattern(context, pattern, raised, (*step.at, "retry", "errors", index))


def check_document_catch(context: StepContext, clauses: Sequence[Clause], steps: Iterable[StepDraft]) -> None:
    """The same of the document's own `catch`."""
    everything = [] if not clauses else [each for one in steps for each in (one, *one.inside())]
    for clause in clauses:
        _check_clause(context, clause, everything)


def _check_clause(context: StepContext, clause: Clause, inside: Sequence[StepDraft]) -> None:
    errors = clause.fields.get("errors")
    if not isinstance(errors, list):
        return
    raised = collect_raised_codes(context, inside)
    for index, pattern in enumerate(errors):
        _check_pattern(context, pattern, raised, (*clause.at, "errors", index))


def _check_pattern(context: StepContext, pattern: object, raised: frozenset[str], at: tuple[str | int, ...]) -> None:
    if not isinstance(pattern, str) or pattern in context.outline.fail_codes:
        return
    if pattern not in KNOWN_CODES and not pattern.endswith(".*"):
        return  # it is told that there is no such code
    kind = pattern.partition(".")[0]
    if (
        kind in _ONLY
        and kind not in raised
        and not any(own.startswith(f"{kind}.") for own in context.outline.fail_codes)
    ):
        message = f"nothing raises `{pattern}` here: {_ONLY[kind]}; take it out, or put it where that happens"
        own = f"ask.{pattern.partition('.')[2]}"
        if kind == "approval" and "ask" in raised and own in KNOWN_CODES:
            message = f"nothing raises `{pattern}` here: an `ask` raises `{own}`; write that"
        context.reader.warning(at, "errors.never", message)


def collect_raised_codes(context: StepContext, steps: Iterable[StepDraft]) -> frozenset[str]:
    return frozenset(kind for step in steps for kind in _kinds(context, step))


def _kinds(context: StepContext, step: StepDraft) -> Iterator[str]:
    if not step.verb:
        yield from _EVERYTHING
        return
    yield from _BY_VERB.get(step.verb, ())
    if "approval" in step.fields:
        yield "approval"
    if step.verb == "call":
        called = step.fields.get("call")
        tool = context.declared.tools.get(called.partition(".")[0]) if isinstance(called, str) else None
        yield from _OF_TOOLS.get(type(tool), _OWN)
