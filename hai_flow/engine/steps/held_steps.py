"""Freezes: the steps of a run that an operator lets nobody begin (docs/decisions/0099).

A freeze holds what is about to *begin*: a step that is ready stays ready. An attempt that has begun is finished, and
questions are answered as ever; only their consequences wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from hai_flow.definition.paths import FINALLY, list_of, loop_of, plan_path, undo_of, unescape
from hai_flow.definition.plan import (
    Agent,
    AgentCalls,
    AgentTool,
    AgentTurn,
    Call,
    FrontendTool,
    Http,
    HttpTool,
    Llm,
    Plan,
    Run,
    Step,
    find_reading_step,
)
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import RunState
from hai_flow.primitives.invisible_characters import compose

Mode: TypeAlias = Literal["frozen", "read_only", "no_agents"]
Scope: TypeAlias = Literal["all", "tenant", "workflow", "tool", "model", "principal"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class Freeze(msgspec.Struct, frozen=True, gc=False):
    """`mode`: nothing begins (`frozen`), nothing that writes (`read_only`), or nothing that an agent does
    (`no_agents`). `scope` and `name` say where; `step` is for who decides a log again. `reason` is the operator's
    sentence."""

    id: str
    mode: Mode
    scope: Scope | Literal["step"]
    name: str
    reason: str


def holds_nothing(mode: str, scope: str) -> bool:
    """Whether no step is ever held by such a freeze."""
    return mode == "read_only" and scope == "model"


NO_WRITES: Final = "an answer of a model writes nothing, so a read-only freeze of a model holds nothing"


def hold_ready(plan: Plan, state: RunState, freezes: Sequence[Freeze]) -> dict[str, str]:
    """The ready steps that may not begin, each with the id of the first freeze that holds it."""
    if not freezes:
        return {}
    of_run = [freeze for freeze in freezes if _is_of_run(freeze, state)]
    held: dict[str, str] = {}
    for path in state.ready:
        freeze = None if not path else find_freeze(plan, path, of_run)
        if freeze is not None:
            held[path] = freeze.id
    return held


def freeze_of(plan: Plan, state: RunState, path: str, freezes: Sequence[Freeze]) -> Freeze | None:
    """The first freeze that holds the step of this run."""
    return find_freeze(plan, path, [freeze for freeze in freezes if _is_of_run(freeze, state)])


def find_freeze(plan: Plan, path: str, of_run: Sequence[Freeze]) -> Freeze | None:
    """The first of the freezes of a run that holds its step at `path`."""
    if not of_run:
        return None
    step = resolve_step(plan, path)
    return next((freeze for freeze in of_run if _render_holds(freeze, plan, step)), None)


def find_freeze_of_stop(
    plan: Plan, state: RunState, freezes: Sequence[Freeze], inherited: Collection[str]
) -> Freeze | None:
    """The first freeze that would hold the end of a stopped run: an `undo` of a finished step that is not `inherited`
    by another run, a `finally` of what has begun, or the end of an open child run, whatever that has done."""
    of_run = [freeze for freeze in freezes if _is_of_run(freeze, state)]
    verbs = [resolve_step(plan, path).verb for path in state.children]
    names = {verb.workflow for verb in verbs if isinstance(verb, Run)}
    for freeze in freezes if verbs else ():
        is_wide = freeze in of_run and freeze.scope in ("all", "tenant", "principal")
        if freeze.mode != "no_agents" and (is_wide or (freeze.scope == "workflow" and freeze.name in names)):
            return freeze
    entered = {"", *map(plan_path, state.steps)}
    finished = {path for path, step in state.steps.items() if step.status == "finished" and path not in inherited}
    cleanups = [path for path in plan.steps if FINALLY in path and path.partition(FINALLY)[0].rstrip("/") in entered]
    ending = (*filter(plan.steps.__contains__, (undo_of(plan_path(path)) for path in finished)), *cleanups)
    return next((freeze for freeze in (find_freeze(plan, path, of_run) for path in ending) if freeze), None)


def _is_of_run(freeze: Freeze, state: RunState) -> bool:
    match freeze.scope:
        case "workflow":
            return freeze.name == state.workflow
        case "principal":
            return compose(freeze.name) in map(compose, (state.requester, *state.all_instigators))
        case _:
            return True  # a process asks with the freezes of the run's tenant


def _render_holds(freeze: Freeze, plan: Plan, step: Step) -> bool:
    if freeze.scope == "step" and freeze.name != step.path:
        return False
    if freeze.scope == "tool" and freeze.name not in _tool_names(step, reads=freeze.mode != "read_only"):
        return False
    if freeze.scope == "model" and freeze.name not in _model_names(step):
        return False
    match freeze.mode:
        case "read_only":
            # in a workflow of another name nothing else would hold what this run makes it do
            return _writes(step) or (freeze.scope == "workflow" and isinstance(step.verb, Run))
        case "no_agents":
            return _is_of_agent(plan, step)
        case "frozen":
            return True


def _tool_names(step: Step, *, reads: bool) -> Iterator[str]:
    """`tool` and `tool.function`; of a step `http` its own name. `reads`: also of the tool that says whether an
    approval still counts."""
    verb = step.verb
    reading = find_reading_step(step) if reads else None
    for call in (verb, None if reading is None else reading.verb):
        if isinstance(call, Call):
            yield call.tool.name
            if call.function:
                yield f"{call.tool.name}.{call.function}"
            if call.into is not None:
                yield call.into.tool.name
    if isinstance(verb, Http):
        yield "http"
    elif isinstance(verb, Agent) and step.of_agent:  # an agent that another one calls by its name
        yield unescape(step.path.rpartition("/")[2])


def _model_names(step: Step) -> Iterator[str]:
    """As the document names them, and as the provider or the deployment does."""
    verb = step.verb
    if isinstance(verb, (AgentTurn, Llm)):
        yield verb.model
        for model in verb.models:
            yield from filter(None, (model.name, model.model, model.use))


def _writes(step: Step) -> bool:
    """Whether the step may change something outside of its run. In doubt it does."""
    verb = step.verb
    if isinstance(verb, Http):
        literal = verb.arguments.written
        method = literal.get("method") if isinstance(literal, Mapping) else None
        return method not in ("GET", "HEAD")
    if not isinstance(verb, Call) or isinstance(verb.tool, AgentTool):
        return False
    if isinstance(verb.tool, FrontendTool):
        return verb.tool.writes
    effect = verb.tool.effect
    if effect is None and isinstance(verb.tool, HttpTool) and verb.tool.service is not None:
        try:
            effect = verb.tool.service.find(verb.function).effect
        except (KeyError, ValueError):
            return True
    return effect != "read"


def _is_of_agent(plan: Plan, step: Step) -> bool:
    """Whether the step is an answer of an agent's model, or a call for which one has asked."""
    if isinstance(step.verb, AgentTurn):
        return True
    body = list_of(step.path)
    return bool(body) and body.endswith("]") and isinstance(resolve_step(plan, loop_of(body)).verb, AgentCalls)
