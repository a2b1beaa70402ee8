"""`/v1/runs/bulk`: one control for many runs, which a filter finds or the request names one by one.

Nothing is stored of a bulk. The id of each run's command is made of the bulk's key, so the same request again does
nothing twice. A client that lost its connection names the same runs once more (`dry_run` has listed them)."""

from __future__ import annotations

import asyncio
from typing import Final, Literal
from uuid import UUID

from pydantic import Field

from hai_flow.api.base.id_patterns import ERROR_CODE, NO_CONTROL_CHARACTERS, QUEUE, Instant
from hai_flow.api.http.bodies import Body, hash_content
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.rest.runs.runs import in_workflows_like
from hai_flow.api.routes import Routes
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected, Unreadable
from hai_flow.store.runs import run_lists

router = Routes(prefix="/v1/runs", tags=["runs"])

RUNS_MAX: Final = 1000  # of one request
AT_ONCE: Final = 8
_PAGE: Final = 200


class Where(Body):
    """A filter: it finds the runs that meet all of its conditions."""

    status: list[schemas.RunStatus] | None = Field(default=None, min_length=1)
    workflow: str | None = Field(default=None, max_length=200, pattern=NO_CONTROL_CHARACTERS)
    workflow_like: str | None = Field(
        default=None, max_length=200, pattern=NO_CONTROL_CHARACTERS, description="a part of its name or title"
    )
    version: int | None = Field(default=None, ge=1, le=999_999_999)
    thread_id: str | None = Field(default=None, max_length=200, pattern=NO_CONTROL_CHARACTERS)
    queue: str | None = Field(default=None, pattern=QUEUE)
    started_by: str | None = Field(default=None, max_length=300, pattern=NO_CONTROL_CHARACTERS)
    created_after: Instant | None = None
    created_before: Instant | None = None
    error: str | None = Field(default=None, pattern=ERROR_CODE)

    def filter(self) -> run_lists.Filter:
        return run_lists.Filter(
            statuses=self.status,
            workflow=self.workflow,
            version=self.version,
            thread_id=self.thread_id,
            queue=self.queue,
            started_by=self.started_by,
            since=self.created_after,
            until=self.created_before,
            error=self.error,
        )


class ControlRunsBody(Body):
    """`where` or `runs`: the runs that are meant. `expect`: how many they are; if the number differs, nothing is done.
    Without `dry_run` a filter needs it."""

    action: Literal["pause", "resume", "stop", "retry"]
    where: Where | None = None
    runs: list[str] | None = Field(default=None, min_length=1, max_length=RUNS_MAX)
    expect: int | None = Field(default=None, ge=0, le=RUNS_MAX)
    reason: str = Field(default="", max_length=2000)
    dry_run: bool = False


@router.post("/bulk", Right.CONTROL_RUNS, refusals=(404, 409))
async def control_runs(body: ControlRunsBody, access: CurrentAccess, key: CommandKey) -> schemas.BulkReport:
    """Pause, resume, stop or retry the runs that a filter finds, or those that are named: at most 1,000 a request. The
    answer has the outcome of each run. With `dry_run` it lists the runs, and nothing is done.

    If the filter finds another number than `expect`, the request is refused before anything is done. After a lost
    response, the same Idempotency-Key with the same `runs` goes on where that request ended."""
    if (body.where is None) == (body.runs is None):
        raise Rejected(422, "request.invalid", "expected one of `where` and `runs`: which runs are meant.")
    if body.where is not None and body.expect is None and not body.dry_run:
        raise Rejected(422, "request.invalid", "expect: how many runs does the filter find? `dry_run` tells.")
    chosen = (
        await _find_named(access, body.runs)
        if body.runs is not None
        else await _find_matching(access, body.where or Where())
    )
    if body.expect is not None and len(chosen) != body.expect:
        raise Rejected(
            409,
            "bulk.unexpected",
            f"expected {body.expect} runs, found {len(chosen)}; nothing was done.",
            winner={"found": len(chosen)},
        )
    if body.dry_run:
        items = [_item(id, status, "would", None) for id, status in chosen]
    else:
        items = await _perform(access, body, chosen, key)
    counts = {word: sum(item["outcome"] == word for item in items) for word in ("done", "already", "refused")}
    return render(schemas.BulkReport, body, found=len(chosen), **counts, items=items)


async def _find_named(access: Access, ids: list[str]) -> list[tuple[UUID, str]]:
    """The runs, each once. Raises Rejected 404, before anything is done."""
    rows = [await (await access.find_at_run(id)).run(id) for id in dict.fromkeys(ids)]
    return [(row.id, row.status) for row in rows]


async def _find_matching(access: Access, where: Where) -> list[tuple[UUID, str]]:
    """The runs that the filter finds in all cells. Raises Rejected 422 for more than there may be, 503 where a cell is
    away: a bulk must not leave out some of the runs unnoticed."""
    rows = list[run_lists.RunRow]()
    for cell in access.everywhere:
        rows += await _find_in_cell(cell, await in_workflows_like(cell, where.filter(), where.workflow_like))
        if len(rows) > RUNS_MAX:
            raise Rejected(
                422, "bulk.too_many", f"expected a filter that finds at most {RUNS_MAX} runs; narrow it by time."
            )
    rows.sort(key=lambda row: (row.created_at, row.id), reverse=True)
    return [(row.id, row.status) for row in rows]


async def _find_in_cell(access: Access, wanted: run_lists.Filter) -> list[run_lists.RunRow]:
    rows, before = list[run_lists.RunRow](), None
    while True:
        page = await run_lists.find_runs(
            access.reads, access.tenant, wanted, limit=_PAGE, before=before, viewer=access.viewer
        )
        rows += page
        if len(rows) > RUNS_MAX or len(page) < _PAGE:
            return rows
        before = (page[-1].created_at, page[-1].id)


async def _perform(
    access: Access, body: ControlRunsBody, chosen: list[tuple[UUID, str]], key: str | None
) -> list[schemas.BulkRun]:
    sha = await hash_content([body.action, body.reason])
    some = asyncio.Semaphore(AT_ONCE)

    async def one(id: UUID, status: str) -> schemas.BulkRun:
        command_id = None if key is None else f"bulk:{key}"
        async with some:
            try:
                cell = await access.find_at_run(id)
                outcome = await cell.submit(id, _command(access, body), command_id=command_id, body_sha=sha)
            except Rejected as rejected:
                return _item(id, status, "refused", render(schemas.MarkObstacle, rejected))
            except Unreadable as unreadable:
                return _item(id, status, "refused", {"code": "run_unreadable", "detail": f"{unreadable}"})
        return _item(id, outcome.status, "already" if outcome.already else "done", None)

    return await asyncio.gather(*(one(id, status) for id, status in chosen))


def _command(access: Access, body: ControlRunsBody) -> c.Command:
    by, who = access.principal.id, access.principal.who
    match body.action:
        case "pause":
            return c.Pause(by=by, reason=body.reason)
        case "resume":
            return c.Resume(by=by)
        case "stop":
            return c.Stop(by=by, reason=body.reason)
        case "retry":
            return c.Retry(by=by, who=who)


def _item(id: UUID, status: str, outcome: schemas.RunOutcome, problem: schemas.MarkObstacle | None) -> schemas.BulkRun:
    return {"id": str(id), "status": status, "outcome": outcome, "problem": problem}
