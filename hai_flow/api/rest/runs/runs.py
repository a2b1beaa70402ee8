"""`/v1/runs`: start, list and get runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias, get_args
from uuid import UUID

import msgspec
from fastapi import Query, Response
from pydantic import Field

from hai_flow.api.base.id_patterns import ERROR_CODE, NO_CONTROL_CHARACTERS, QUEUE, Instant
from hai_flow.api.http.bodies import Body, hash_content
from hai_flow.api.permissions.rights import Right
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.cross_cell import ask_all_cells, cut_page, page, redact_rows, sum_counts
from hai_flow.api.requests.dependencies import KEY_REUSED, CommandKey, CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, demand_id_cursor
from hai_flow.api.requests.views import build_run_view, render, render_snapshot
from hai_flow.api.rest.runs.moments import MOMENT_CHARS_MAX, MOMENTS, resolve_moment
from hai_flow.api.routes import Routes, answers_of
from hai_flow.cells import place_id
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.events import UserMessage
from hai_flow.errors import Rejected, Unreadable
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.primitives.uuids import derive_uuid
from hai_flow.runtime.commit.submission import SUPERSEDED, Outcome
from hai_flow.store.catalog import workflows
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.runs import logs, run_lists, threads, workers
from hai_flow.store.runs.run_lists import RunRow

_PAUSED: Final = b'"type":"run_paused"'  # in the JSON of a log

router = Routes(prefix="/v1/runs", tags=["runs"])


class StartBody(Body):
    workflow: str = Field(min_length=1, max_length=200, description="`name`, `name@version` or `name@version+sha8`")
    input: dict[str, Any] = Field(default={})
    thread_id: str | None = Field(default=None, min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)


PartOfName: TypeAlias = Annotated[
    str | None,
    Query(max_length=200, pattern=NO_CONTROL_CHARACTERS, description="a part of the workflow's name or title"),
]


async def in_workflows_like(cell: Access, selection: run_lists.Filter, part: str | None) -> run_lists.Filter:
    """The filter, for runs of those workflows alone whose name or title has this part, in whatever case."""
    if not part:
        return selection
    return msgspec.structs.replace(selection, workflows=await workflows.names_with(cell.reads, cell.tenant, part))


# --- starting and reading -----------------------------------------------------------------------------------------


@router.post(
    "", Right.START_RUNS, Right.SPEAK, status_code=201, refusals=(404, 409),
    responses=answers_of("this key has started it before", "it is started"),
)  # fmt: skip
async def start_run(body: StartBody, access: CurrentAccess, key: CommandKey, response: Response) -> schemas.Run:
    """Start a run. The same Idempotency-Key again gives the same run; with another body it is 409."""
    return await begin_run(body, access, key, response)


async def begin_run(
    body: StartBody, access: Access, key: str | None, response: Response, message: UserMessage | None = None
) -> schemas.Run:
    """Start a run as `start_run` does, in a protocol whose clients may say something with it."""
    access, outcome = await begin(body, access, key, response, message)
    return await build_run_view(await access.changed_run(outcome))


async def begin(
    body: StartBody, access: Access, key: str | None, response: Response, message: UserMessage | None = None,
    stored: WorkflowSummary | None = None, fill: Callable[[Plan], dict[str, Any]] | None = None,
) -> tuple[Access, Outcome]:  # fmt: skip
    """As `begin_run`; what became of it, and the access to the run's cell. `stored`: the workflow that the body names,
    where it was read already. `fill`: makes the input for a plan, in place of the body's; where the run has begun
    already, for the plan of that."""
    access = await access.find_at_thread(body.thread_id) if body.thread_id is not None else access.somewhere
    parts = None if key is None else ("rest", str(access.tenant), access.principal.id, key)

    def fit(plan: Plan) -> StartBody:
        return body if fill is None else body.model_copy(update={"input": fill(plan)})

    async def start(stored: WorkflowSummary, plan: Plan, *, recalls: bool = False) -> Outcome:
        return await _begin(fit(plan), access, key, response, parts, message, stored, plan, recalls=recalls)

    is_large = access.living.is_large
    recalled = None if stored is not None or is_large else access.recall_startable(body.workflow)
    if recalled is not None:
        try:
            return access, await start(*recalled, recalls=True)
        except Rejected as rejected:
            if rejected.code != SUPERSEDED and not (fill and rejected.code == "command_id_reused"):
                raise
    stored, plan = await _startable(access, body.workflow, parts, None if is_large else stored)
    if is_large:
        access = await _find_access_to_begin(access, plan, fit(plan), parts)
        stored, plan = await _startable(access, body.workflow, parts)
    try:
        return access, await start(stored, plan)
    except Rejected as rejected:
        if fill is None or parts is None or rejected.code != "command_id_reused":
            raise
        run = await run_lists.get_run(access.pool, access.tenant, access.runtime.starts.id_of(*parts))
        if run is None or run.workflow == plan.sha256:
            raise
        return access, await start(stored, await access.catalog.plan(access.tenant, run.workflow))


async def _begin(
    body: StartBody, access: Access, key: str | None, response: Response, parts: tuple[str, ...] | None,
    message: UserMessage | None, stored: WorkflowSummary, plan: Plan, *, recalls: bool = False,
) -> Outcome:  # fmt: skip
    """The outcome of the start of the stored workflow. `recalls`: as this process remembers it. Raises Rejected as
    `Access.start`."""
    run_id = access.runtime.starts.new_id() if parts is None else access.runtime.starts.id_of(*parts)
    thread_id = body.thread_id or str(run_id)
    last = None
    if body.thread_id is not None and not access.principal.is_anybody:
        last = await threads.last_run(access.reads, access.tenant, thread_id)
        await access.demand_speaks(thread_id, last)
    start = c.Start(
        run_id=run_id,
        thread_id=thread_id,
        requester=access.principal.id,
        input=body.input,
        message=message.content if message is not None and isinstance(message.content, str) else "",
        messages=() if message is None else (message,),
        dev=stored.dev,
    )
    words = [] if message is None else [message.content]
    try:
        outcome = await access.start(
            plan,
            start,
            command_id=key or f"start:{run_id}",
            body_sha=await hash_content([body.workflow, body.input, body.thread_id, *words]),
            is_new=body.thread_id is not None and last is None,
            recalled=body.workflow if recalls else "",
        )
    except Rejected as rejected:
        raise await _with_winner(access, thread_id, rejected) from None
    if outcome.already:
        response.status_code = 200
    response.headers["Location"] = f"/v1/runs/{run_id}"
    return outcome


async def _startable(
    access: Access, reference: str, parts: tuple[str, ...] | None, stored: WorkflowSummary | None = None
) -> tuple[WorkflowSummary, Plan]:
    """The workflow of the start. A start that has begun before keeps its version, whether or not it could begin now."""
    try:
        return await access.startable(reference, stored)
    except Rejected as rejected:
        if parts is None or rejected.code not in ("workflow_retired", "version_forbidden"):
            raise
        id = access.runtime.starts.id_of(*parts)
        if await run_lists.get_run(access.reads, access.tenant, id) is None:
            raise
        return await access.catalog.resolve(access.tenant, reference)


async def _find_access_to_begin(access: Access, plan: Plan, body: StartBody, parts: tuple[str, ...] | None) -> Access:
    """The access to the cell in which the run begins. Raises Rejected 409 where the key of its start was used for a run
    in another one."""
    id = None if parts is None else derive_uuid(*parts)
    name = id or access.runtime.starts.new_id()
    tried = c.Start(run_id=name, thread_id=body.thread_id or str(name), requester=access.principal.id, input=body.input)
    if body.thread_id is None:
        return await access.beginning_anew(plan, tried, id)
    cell = await access.beginning(plan, tried)
    if id is None:
        return cell
    for other in access.within_reach:
        run_id = place_id(id, other.cell)
        if other.cell != cell.cell and await run_lists.get_run(other.reads, access.tenant, run_id) is not None:
            raise Rejected(409, "command_id_reused", KEY_REUSED)
    return cell


async def _view(access: Access, run: RunRow) -> schemas.Run:
    return await build_run_view(*await access.redact_rows([run]))


async def _with_winner(access: Access, thread_id: str, rejected: Rejected) -> Rejected:
    """The refusal, with the thread's active run named in it if that is the reason."""
    if rejected.code != "thread_busy":
        return rejected
    last = await threads.last_run(access.reads, access.tenant, thread_id)
    winner = None if last is None else {"run_id": str(last.id), "status": last.status}
    return Rejected(rejected.status, rejected.code, rejected.detail, winner=winner)


@router.get("", Right.SEE_OWN)
async def list_runs(
    access: CurrentAccess,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    status: Annotated[list[schemas.RunStatus] | None, Query()] = None,
    workflow: Annotated[str | None, Query(pattern=NO_CONTROL_CHARACTERS)] = None,
    workflow_like: PartOfName = None,
    version: Annotated[int | None, Query(ge=1, le=999_999_999)] = None,
    thread_id: Annotated[str | None, Query(pattern=NO_CONTROL_CHARACTERS)] = None,
    queue: Annotated[str | None, Query(pattern=QUEUE, description="in which they wait for a worker")] = None,
    started_by: Annotated[str | None, Query(max_length=300, pattern=NO_CONTROL_CHARACTERS)] = None,
    created_after: Annotated[Instant | None, Query(description="at that time or later")] = None,
    created_before: Annotated[Instant | None, Query()] = None,
    error: Annotated[str | None, Query(pattern=ERROR_CODE, description="the code with which it failed")] = None,
) -> schemas.RunPage:
    """The runs, newest first."""
    before = demand_id_cursor(cursor)
    filters = run_lists.Filter(
        statuses=status,
        workflow=workflow,
        version=version,
        thread_id=thread_id,
        queue=queue,
        started_by=started_by,
        since=created_after,
        until=created_before,
        error=error,
    )

    async def ask(cell: Access) -> tuple[Sequence[RunRow], Any]:
        async def find(pool: Pool) -> list[RunRow]:
            selection = await in_workflows_like(cell, filters, workflow_like)
            return await run_lists.find_runs(
                pool, cell.tenant, selection, limit=limit + 1, before=before, viewer=cell.viewer
            )

        over = status and run_lists.ENDED.issuperset(status)
        return cut_page(await (cell.past(find) if over else find(cell.reads)), limit, _place)

    listed = await page(access, ask, _place, limit)
    return listed.show([await build_run_view(run) for run in await redact_rows(listed.rows)])


def _place(run: RunRow) -> tuple[datetime, UUID]:
    return run.created_at, run.id


COUNTED_MAX: Final = 1000
_STATUSES: Final[tuple[str, ...]] = get_args(schemas.RunStatus)


@router.get("/counts", Right.SEE_OWN)
async def count_runs(
    access: CurrentAccess,
    workflow: Annotated[str | None, Query(pattern=NO_CONTROL_CHARACTERS)] = None,
    workflow_like: PartOfName = None,
    version: Annotated[int | None, Query(ge=1, le=999_999_999)] = None,
    thread_id: Annotated[str | None, Query(pattern=NO_CONTROL_CHARACTERS)] = None,
    started_by: Annotated[str | None, Query(max_length=300, pattern=NO_CONTROL_CHARACTERS)] = None,
    created_after: Annotated[Instant | None, Query(description="at that time or later")] = None,
    created_before: Annotated[Instant | None, Query()] = None,
) -> schemas.RunCounts:
    """How many of the runs that you see have each status, counted up to 1,000 of each."""
    filters = run_lists.Filter(
        statuses=_STATUSES,
        workflow=workflow,
        version=version,
        thread_id=thread_id,
        started_by=started_by,
        since=created_after,
        until=created_before,
    )

    async def ask(cell: Access) -> dict[str, int]:
        selection = await in_workflows_like(cell, filters, workflow_like)
        return await run_lists.count_runs(cell.reads, cell.tenant, selection, limit=COUNTED_MAX, viewer=cell.viewer)

    answer = await ask_all_cells(access, ask)
    counts = sum_counts([counts for _, counts in answer.by_cell], COUNTED_MAX)
    return {"counts": counts, "max": COUNTED_MAX, "missing": answer.missing}


@router.get("/{run_id}", Right.SEE_OWN, refusals=(404,))
async def get_run(run_id: str, access: CurrentAccess) -> schemas.Run:
    """One run, with its input and, when it has ended, its output or error; of a queued one the slot that it waits for,
    of a paused one who paused it. Without all of these, if you may see only questions of it."""
    row = await access.run(run_id, Sight.QUESTIONS)
    if not access.can_see_conversation(row.id):
        return await _view(access, dataclasses.replace(row, input=None, result=None))
    view = await _view(access, row)
    if row.ended_at is None and access.principal.may(Right.SEE_RUNS):
        holder = await workers.holder(access.runtime.database.api, access.tenant, row.id)
        view["held_by"] = None if holder is None else render(schemas.Holder, holder)
    with suppress(Unreadable):  # another release's events: the run is shown as far as its row has it
        if row.status == "queued":
            view["queued_for"] = await _render_slot_awaited(access, row)
        elif row.status == "paused":
            view["paused"] = await _pause_of(access, row)
    return view


async def _render_slot_awaited(access: Access, row: RunRow) -> schemas.QueuedFor | None:
    """The slot that the run waits for; None: it has begun meanwhile."""
    state = await access.state_of(row)
    concurrency = (await access.catalog.plan(access.tenant, row.workflow)).concurrency
    key = (await access.seen(state)).slot
    if state.slot is None or key is None or concurrency is None:
        return None
    holders = await access.runtime.slots.holders(access.tenant, state.slot, concurrency.limit)
    active = [render(schemas.SlotHolder, each) for each in holders]
    return {"key": key.removeprefix(f"{row.workflow_name}:"), "limit": concurrency.limit, "holders": active}


async def _pause_of(access: Access, row: RunRow) -> schemas.Pause | None:
    """Who paused the run last. Nothing but answers and results comes behind a pause, so the log is read backwards."""
    before = row.seq + 1
    while (commit := await logs.find_last_with(access.reads, row.id, _PAUSED, before)) is not None:
        for event in reversed(e.decode_events(commit.events)):
            if isinstance(event, e.RunPaused):
                return render(schemas.Pause, event)
        before = commit.first_seq
    return None


@router.get("/{run_id}/snapshot", Right.SEE_OWN, refusals=(404,))
async def get_snapshot(
    run_id: str,
    access: CurrentAccess,
    at: Annotated[str | None, Query(max_length=MOMENT_CHARS_MAX, description=MOMENTS)] = None,
) -> schemas.Snapshot:
    """The run as it was at a moment (default: now), as far as you may see it."""
    row = await access.run(run_id, Sight.QUESTIONS)
    state = await access.state_of(row, row.seq if at is None else await resolve_moment(access, row, at))
    visible = await access.seen(state)

    return await run_if_large(visible, render_snapshot, visible, lambda pending: access.sees_evidence(state, pending))
