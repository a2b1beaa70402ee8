"""`/v1/runs/{id}/pause`, `resume`, `stop`, `terminate`, `retry`, `skip` and `jump`: acts on a run that has started."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS
from hai_flow.api.http.bodies import Body, hash_content, read_duration
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.views import build_run_view
from hai_flow.api.routes import Routes
from hai_flow.engine import commands as c
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.store.runs.run_lists import RunRow

router = Routes(prefix="/v1/runs", tags=["runs"])


class JumpBody(Body):
    for_: str = Field(alias="for", max_length=100, description="how much time passes: `2d`, `1h30m`, `PT5M`")


class SkipBody(Body):
    step: str = Field(min_length=1, max_length=500, pattern=NO_CONTROL_CHARACTERS)
    output: Any = None
    reason: str = Field(default="", max_length=2000)


class ReasonBody(Body):
    reason: str = Field(default="", max_length=2000)


async def _view(access: Access, outcome: Outcome, before: RunRow) -> schemas.Run:
    return await build_run_view(await access.changed_run(outcome, before))


async def _control(access: Access, run_id: str, command: c.Command, key: str | None) -> schemas.ControlledRun:
    row = await access.run(run_id)
    content = [type(command).__name__, getattr(command, "reason", "")]
    outcome = await access.submit(row.id, command, command_id=key, body_sha=await hash_content(content))
    extra: Any = {"in_flight": outcome.value["in_flight"]} if "in_flight" in (outcome.value or {}) else {}
    return {**await _view(access, outcome, row), **extra}


@router.post("/{run_id}/pause", Right.CONTROL_RUNS, refusals=(404, 409))
async def pause_run(
    run_id: str, access: CurrentAccess, key: CommandKey, body: ReasonBody | None = None
) -> schemas.ControlledRun:
    """Let no new step start. Attempts in flight finish, answers are stored, deadlines keep running."""
    return await _control(access, run_id, c.Pause(by=access.principal.id, reason=_reason(body)), key)


@router.post("/{run_id}/resume", Right.CONTROL_RUNS, refusals=(404, 409, *WITH_BODY))
async def resume_run(run_id: str, access: CurrentAccess, key: CommandKey) -> schemas.ControlledRun:
    """Go on after a pause."""
    return await _control(access, run_id, c.Resume(by=access.principal.id), key)


@router.post("/{run_id}/stop", Right.CONTROL_RUNS, refusals=(404, 409))
async def stop_run(
    run_id: str, access: CurrentAccess, key: CommandKey, body: ReasonBody | None = None
) -> schemas.ControlledRun:
    """Stop cooperatively: attempts in flight are asked to cancel, and have a grace period. `in_flight` counts them."""
    return await _control(access, run_id, c.Stop(by=access.principal.id, reason=_reason(body)), key)


@router.post("/{run_id}/terminate", Right.CONTROL_RUNS, refusals=(404, 409))
async def terminate_run(
    run_id: str, access: CurrentAccess, key: CommandKey, body: ReasonBody | None = None
) -> schemas.ControlledRun:
    """End the run at once. Nothing of it runs any more, late results are not recorded."""
    return await _control(access, run_id, c.Terminate(by=access.principal.id, reason=_reason(body)), key)


@router.post("/{run_id}/retry", Right.CONTROL_RUNS, refusals=(404, 409, *WITH_BODY))
async def retry_run(run_id: str, access: CurrentAccess, key: CommandKey) -> schemas.ControlledRun:
    """Go on from the failed step of a failed run, or with a run that needs attention. What was answered with no is
    asked anew by those alone who may decide it: 403 `retry.forbidden`. Once a fork has acted on an approval that both
    have, the run goes on no more: 409 `retry_approved`."""
    return await _control(access, run_id, c.Retry(by=access.principal.id, who=access.principal.who), key)


@router.post("/{run_id}/skip", Right.CONTROL_RUNS, refusals=(403, 404, 409))
async def skip_step(run_id: str, body: SkipBody, access: CurrentAccess, key: CommandKey) -> schemas.ControlledRun:
    """Go on behind a step at which the run stands: one that waits, is about to begin, or has failed the run. The step
    does nothing more, `output` replaces its own, and its open questions end without an answer.

    What people decide is skipped by those alone whose approval would decide it, and never after a no: 403
    `skip.forbidden`, 409 `skip.rejected`."""
    row = await access.run(run_id)
    state = await access.state(row.id)
    plan = await access.catalog.plan(access.tenant, bytes.fromhex(state.sha256))
    command = c.Skip(
        by=access.principal.id,
        who=access.principal.who,
        path=body.step,
        output=body.output,
        reason=body.reason,
        asks_below=await access.catalog.asks_below(access.tenant, state, body.step),
        below=await access.catalog.find_asking_by_input(access.tenant, plan, state),
    )
    content = ["Skip", body.step, body.output, body.reason]
    outcome = await access.submit(row.id, command, command_id=key, body_sha=await hash_content(content))
    return {**await _view(access, outcome, row), "in_flight": 0}


@router.post("/{run_id}/jump", Right.CONTROL_RUNS, refusals=(403, 404, 409))
async def jump_run(run_id: str, body: JumpBody, access: CurrentAccess, key: CommandKey) -> schemas.JumpedRun:
    """Development only: let time pass at once for the run's timers, deadlines, reminders and escalations.

    Time stops passing when the run begins to work or asks others for something, because that takes real time. `left_ms`
    is the rest: ask for it again.
    """
    access.require_development("jump", "jump.forbidden")
    ms = read_duration("for", body.for_, shortest=1)
    row = await access.run(run_id)
    command = c.Jump(by=access.principal.id, ms=ms)
    outcome = await access.submit(row.id, command, command_id=key, body_sha=await hash_content(["Jump", ms]))
    state = await access.state(row.id)
    return {
        **await _view(access, outcome, row),
        "passed_ms": outcome.value["passed"],
        "left_ms": outcome.value["left"],
        "children": sorted(state.children.values()),
    }


def _reason(body: ReasonBody | None) -> str:
    return "" if body is None else body.reason
