"""By which names tests speak of the steps of a workflow: paths, ids, and the calls that effects make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from hai_flow.definition.paths import list_of, loop_of, plan_path
from hai_flow.definition.plan import (
    EFFECTS,
    Agent,
    AgentTurn,
    Approve,
    Ask,
    Call,
    FrontendTool,
    Plan,
    Policy,
    Step,
    Subscription,
    WaitFor,
    find_reading_step,
)
from hai_flow.engine.state.instances import resolve_step
from hai_flow.testing.instances import names_with_keys

Verbs = tuple[type[Any], ...]
_REQUEST: Final = re.compile(r"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|\*) \S+")
PEOPLE: Final[Verbs] = (Ask, Approve)


def call_name(call: Call) -> str:
    """A call as it is written in the workflow: `erp.book`, or `weather` for a tool that is one function."""
    return f"{call.tool.name}.{call.function}" if call.function else call.tool.name


def names_of(plan: Plan, path: str) -> tuple[str, ...]:
    """Every name by which a test may mean the effect at `path` of a run, the most exact one first.

    The path itself (`rollout[api]/health`), the path in the workflow, which means it in every iteration
    (`rollout[]/health`), the id that its author wrote, the call, and the tool."""
    step = resolve_step(plan, path)
    if isinstance(step.verb, AgentTurn):
        path = agent_of(path)
        step = resolve_step(plan, path)
    names = [path, plan_path(path)]
    if step.id in plan.ids:
        names += names_with_keys(step.id, path)
    if isinstance(step.verb, Call):
        names += [call_name(step.verb), step.verb.tool.name]
    elif step.of_agent:  # an agent that another one calls
        names.append(path.rpartition("/")[2])
    return tuple(dict.fromkeys(names))


def is_request(name: str) -> bool:
    """Whether a name means requests: a method, or `*`, and an address with `*` for anything."""
    return _REQUEST.fullmatch(name) is not None


def means_request(name: str, request: str) -> bool:
    """Whether the name means a request, as `GET https://...`."""
    parts = name.split("*")
    return re.fullmatch(".*".join(map(re.escape, parts)), request) is not None


def agent_of(path: str) -> str:
    """The agent whose answer stands at `path`."""
    return loop_of(list_of(path))


def effects_of(plan: Plan) -> Iterator[Step]:
    """The steps that the engine has performed for it, and that a test therefore mocks; of an agent the agent itself,
    for its answers."""
    for step in plan.steps.values():
        if isinstance(step.verb, AgentTurn):
            yield plan.steps[agent_of(step.path)]
        elif isinstance(step.verb, EFFECTS) and not is_frontend_call(step) and not step.of_agent:
            yield step


def is_frontend_call(step: Step) -> bool:
    """Whether the step is a call that a client is shown, and answers unless it is only shown."""
    return isinstance(step.verb, Call) and isinstance(step.verb.tool, FrontendTool)


def is_answered(tool: object) -> bool:
    """Whether `tool` is one whose calls a client answers."""
    return isinstance(tool, FrontendTool) and tool.answered


def asks_people(step: Step) -> bool:
    """Whether the step may open a pending: a question, an approval, a gate, a frontend's call, an outcome in doubt."""
    if isinstance(step.verb, PEOPLE) or step.approval is not None:
        return True
    if isinstance(step.verb, Call) and is_answered(step.verb.tool):
        return True
    return step.delivery != "at_least_once"


def find_policy(step: Step) -> Policy | None:
    """The policy by which people decide over the step; None: they don't."""
    if isinstance(step.verb, Approve):
        return step.verb.policy
    return None if step.approval is None else step.approval.policy


def calls_of(plan: Plan) -> set[str]:
    """The calls of tools in the workflow, by name: those of its steps but a client's, and those its agents may make."""
    names: set[str] = set()
    for step in plan.steps.values():
        if (reading := find_reading_step(step)) is not None and isinstance(reading.verb, Call):
            names |= {call_name(reading.verb), reading.verb.tool.name}
        if isinstance(step.verb, Call) and not is_frontend_call(step) and not step.of_agent:
            names |= {call_name(step.verb), step.verb.tool.name}
        elif isinstance(step.verb, Agent):
            names |= {name for tool in step.verb.tools for name in (tool.removesuffix(".*"), tool.partition(".")[0])}
    return names


def events_of(plan: Plan) -> list[str]:
    """The types of events that steps of the workflow wait for, or that withdraw its questions."""
    types: dict[str, None] = {}
    for step in plan.steps.values():
        if isinstance(step.verb, WaitFor):
            types |= dict.fromkeys(each.event for each in step.verb.subscriptions)
        policy = step.verb.policy if isinstance(step.verb, Ask) else find_policy(step)
        if policy is not None and isinstance(policy.withdraw_when, Subscription):
            types[policy.withdraw_when.event] = None
    return list(types)


def may_call(agent: Agent, name: str) -> bool:
    """Whether the agent's `tools` allow the call `name`: as `tool.fn`, as `tool`, or by `tool.*`."""
    tool = name.partition(".")[0]
    return name in agent.tools or tool in agent.tools or f"{tool}.*" in agent.tools
