"""`/v1/runs/{id}/steps`: the steps of a run with their times, as of any moment of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import Query

from hai_flow import values
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.profiles import log_profile, make_view_of_events
from hai_flow.api.requests.views import render
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.runtime.runs.step_times import StepTimes
from hai_flow.store.runs.run_lists import RunRow
from hai_flow.values import Json
from hai_flow.wire.timeline import Span

router = Routes(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/steps", Right.SEE_OWN, refusals=(404,))
async def list_steps(
    run_id: str,
    access: CurrentAccess,
    at: Annotated[int | None, Query(ge=0, le=2**53, description="as of the event of this seq; default: now")] = None,
    after: Annotated[int, Query(ge=0, le=2**53, description="`next_cursor` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
    open: Annotated[bool, Query(description="only those that have not ended")] = False,
    newest: Annotated[bool, Query(description="of each step of the plan only the newest passage")] = False,
) -> schemas.StepPage:
    """The steps in the order in which they began, each with its attempts and the times that it waited. A step that a
    Retry began anew is there twice. With `newest` each step of the plan is there once, by its newest passage (one that
    goes on before those that have ended), with `passages`: how many there were, by their status."""
    row = await access.run(run_id)
    if at is not None and at > row.seq:
        raise Rejected(422, "request.invalid", f"at: the run has {row.seq} events so far, found {at}.")
    end = row.seq if at is None else at
    steps = await _read_steps(access, row, end)  # others may read on in it as soon as this awaits anything
    passages = _count_passages(steps.all) if newest else {}
    candidates = _pick_newest(steps.all) if newest else steps.all
    selected = [span for span in candidates if span.first_seq > after and not (open and span.status != "running")]
    rest = selected[: limit + 1]
    following = str(rest[limit - 1].first_seq) if len(rest) > limit else None
    items = [_view(span, **({"passages": passages[span.plan_path]} if newest else {})) for span in rest[:limit]]
    return {"items": items, "next_cursor": following}


async def _read_steps(access: Access, row: RunRow, end: int) -> StepTimes:
    """The steps as of the event `end` as the caller sees them. It is kept for their next page."""
    cache = access.runtime.step_times
    key = row.tenant, row.id, row.created_at, log_profile(access, row)
    steps = cache.take(key, end) or StepTimes(await make_view_of_events(access, row, 0))
    await steps.read_on(access.history(row, end), str(row.id), end)
    cache.keep(key, steps)
    return steps


def _count_passages(spans: Iterable[Span]) -> dict[str, dict[str, int]]:
    """How many passages each step of the plan has had, by their status."""
    counts: dict[str, dict[str, int]] = {}
    for span in spans:
        of_step = counts.setdefault(span.plan_path, {})
        of_step[span.status] = of_step.get(span.status, 0) + 1
    return counts


def _pick_newest(spans: Iterable[Span]) -> list[Span]:
    """Of each step of the plan the newest passage, or the newest that goes on; in the order in which they began."""
    newest: dict[str, Span] = {}
    for span in spans:
        before = newest.get(span.plan_path)
        if before is None or span.status == "running" or before.status != "running":
            newest[span.plan_path] = span
    return sorted(newest.values(), key=lambda span: span.first_seq)


def _view(span: Span, **more: Json) -> schemas.RunStep:
    args = None if span.args is None else values.loads(span.args)
    usage = {"input": span.input_tokens, "output": span.output_tokens, "cost": span.cost}
    return render(schemas.RunStep, span, args=args, usage=usage, **more)
