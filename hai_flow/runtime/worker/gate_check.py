"""Looks at the gate in front of an effect, in the attempt that is to begin it: is what people approved so yet?

Whatever keeps it from being told (a tool that fails, does not answer, or asks itself; an expression that fails) is a
finding like any other: people are asked, and nothing is performed."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from hai_flow import values
from hai_flow.definition.plan import FrontendTool, McpTool, Plan, find_reading_step
from hai_flow.engine import commands as c
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.engine.steps.still import find_why, judge
from hai_flow.errors import AsksPerson, StepError
from hai_flow.primitives.beside_loop import run_by_work
from hai_flow.steps.pins import ToolIdentity
from hai_flow.steps.runner import Attempt, Registry, Unheard
from hai_flow.values import Json

log = structlog.get_logger(__name__)
IDENTIFY_SECONDS: Final = 10.0
READ_SECONDS: Final = 20.0  # for the tool of `still`, where its declaration has no `timeout`


class GateClosed(Exception):
    """The effect behind the gate may not begin any more; `check` says why."""

    def __init__(self, check: c.GateChecked) -> None:
        super().__init__()
        self.check = check


async def check_gate(
    registry: Registry, plan: Plan, state: RunState, attempt: Attempt, now: int, gate: PendingState | None
) -> c.GateChecked:
    """Find out what people are to be shown (`gate` None), or whether the effect behind the approved gate may begin. At
    most half of the time that is left for the attempt goes by with it."""
    step = attempt.step
    most = _seconds_left(state, attempt.path, now) / 2
    verb = step.verb
    identity = ToolIdentity(None)
    if gate is None or gate.opened.source is not None:
        try:
            async with asyncio.timeout(min(IDENTIFY_SECONDS, most)):
                identity = await registry.identify(attempt)
        except (StepError, TimeoutError) as error:  # the call itself says so, if it is still so then
            log.info("tool_not_identified", run_id=attempt.run_id, path=attempt.path, error=str(error))
    draft = Draft(plan, state, max(now, state.at), DEFAULT_BOUNDS)
    response, fault = await _read(registry, draft, attempt, most)
    verdict = await run_by_work(judge, draft, step, attempt.args, {} if fault else {"response": response})
    if fault:
        verdict = msgspec.structs.replace(verdict, holds=False, fault=fault)
    description = identity.description if isinstance(getattr(verb, "tool", None), McpTool) else None
    return c.GateChecked(
        path=attempt.path,
        attempt=attempt.number,
        values=registry.hidden(verdict.values),
        source=identity.source,
        description=None if description is None else registry.hidden(description),
        title=None if identity.title is None else registry.hidden(identity.title),
        fault=registry.hidden(values.storable(verdict.fault)),
        why=None if gate is None else find_why(gate, step, identity.source, verdict),
    )


def _seconds_left(state: RunState, path: str, now: int) -> float:
    until = state.timeouts.get(path)
    return 2 * 3600.0 if until is None else max(0.0, (until - state.compute_working_time(now)) / 1000)


async def _read(registry: Registry, draft: Draft, attempt: Attempt, most: float) -> tuple[Json, str]:
    """The result of the tool that the condition reads, or why there is none."""
    step, gate = find_reading_step(attempt.step), attempt.step.approval
    if step is None or gate is None or gate.still is None or gate.still.call is None:
        return None, ""
    tool = gate.still.call.tool
    name = tool.name
    seconds = min(
        READ_SECONDS if isinstance(tool, FrontendTool) or not isinstance(tool.timeout, int) else tool.timeout / 1000,
        most,
    )
    try:
        arguments = draft.render(gate.still.call.arguments, attempt.step, args=values.loads(attempt.args))
        reading = msgspec.structs.replace(
            attempt,
            step=step,
            args=values.dumps(arguments).decode(),
            key=f"{attempt.idempotency_key}#still",
            transaction=None,
            answer=None,
        )
        async with asyncio.timeout(seconds):
            return registry.hidden(await registry.runner_of(step).perform(reading, Unheard())), ""
    except TimeoutError:
        return None, f"the tool `{name}` gave no answer within {seconds:g} s"
    except Raised as raised:
        return None, f"the arguments of `{name}`: {raised.message}"
    except AsksPerson:
        return None, f"the tool `{name}` asks a person itself"
    except StepError as error:
        return None, f"the tool `{name}` failed: {error.message}"
    except Exception as error:
        log.warning("still_tool_raised", run_id=attempt.run_id, path=attempt.path, error=type(error).__name__)
        return None, f"the tool `{name}` failed: {type(error).__name__}: {error}"
