"""Whether a server can perform every step of a plan. Dry validation never asks; publishing does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hai_flow.definition.plan import Agent, Call, Http, HttpTool, Llm, McpTool, Plan, PythonTool, Step, Tool
from hai_flow.errors import DefinitionError, Finding

_NEEDS: dict[type, str] = {Http: "http", Llm: "llm", Agent: "agent"}
_TOOLS: dict[type, str] = {PythonTool: "python", McpTool: "mcp", HttpTool: "http_tool"}
_WORDS = {kind: kind.removesuffix("_tool") for kind in _TOOLS.values()}


class RunnersMissing(DefinitionError):
    """A document without a mistake that needs runners which this server does not have: for these steps."""

    def __init__(self, findings: Sequence[Finding], what: Sequence[str]) -> None:
        super().__init__(findings)
        self.what = tuple(what)


def lacking(plan: Plan, known: frozenset[str]) -> list[str]:
    """The effects of the plan whose runners are not `known`, each once, in document order."""
    needed = (each for step in plan.steps.values() for each in _needed(plan, step))
    return list(dict.fromkeys(what for kind, what in needed if kind not in known))


def missing_runners(plan: Plan, known: frozenset[str], file: str = "<workflow>") -> list[Finding]:
    """A finding for each step that needs a runner the server does not have, in document order.

    `known` has the kinds of effects that it performs: `python`, `mcp` and `http_tool` (calls of such tools), `http`,
    `llm`, `agent` (the verbs). Frontend tools and child runs need no runner.
    """
    findings: list[Finding] = []
    for step in plan.steps.values():
        for kind, what in _needed(plan, step):
            if kind not in known:
                message = (
                    f"step {step.path}: this server has no runner for {what}; publish it on one that has, or write the "
                    f"step in another way (validating it works everywhere)"
                )
                findings.append(Finding(file, step.line, 1, "error", "step.no_runner", message))
                break
    return findings


def runner_kind(step: Step) -> str | None:
    """The kind of runner that performs the step's effect: python, mcp, http, http_tool, llm or agent. None: it needs
    none."""
    verb = step.verb
    if isinstance(verb, Call):
        return tool_kind(verb.tool)
    return _NEEDS.get(type(verb))


def tool_kind(tool: Tool) -> str | None:
    """The kind of runner that performs calls of `tool`; None: a frontend does."""
    return _TOOLS.get(type(tool))


def _needed(plan: Plan, step: Step) -> Iterator[tuple[str, str]]:
    """Each kind of runner that the step needs, and the part of it that does."""
    kind, verb = runner_kind(step), step.verb
    if kind is not None:
        yield kind, f"the {_WORDS[kind]} tool `{verb.tool.name}`" if isinstance(verb, Call) else f"`{step.verb_name}`"
    if isinstance(verb, Agent):
        for name in verb.tools:
            tool = plan.tools.get(name.partition(".")[0])
            if type(tool) in _TOOLS:
                yield _TOOLS[type(tool)], f"the {_WORDS[_TOOLS[type(tool)]]} tool `{name}`"
