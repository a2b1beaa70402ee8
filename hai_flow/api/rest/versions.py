"""`/v1/workflows/{name}/diff` and `/migrate`: the differences between two versions, and moving runs to
another version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final, cast
from uuid import UUID

from fastapi import Query
from pydantic import BeforeValidator, Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, SPAN, VERSION
from hai_flow.api.http.bodies import Body, demand_few, hash_content
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.permissions.principals import reject_missing_right
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess, WorkflowBody
from hai_flow.api.requests.views import render
from hai_flow.api.rest.workflows import YAML_BODY, check_beside_loop
from hai_flow.api.routes import Routes
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.diff import diff
from hai_flow.definition.names.durations import milliseconds
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.events import Pin
from hai_flow.engine.runs import migrate
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_by_work
from hai_flow.runtime.ops.backtest import Backtest, Backtesting, backtest_some, build_kept_rehearsal, render_backtest
from hai_flow.runtime.settings import bounds_of
from hai_flow.store.catalog.rehearsals import keep_rehearsal
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.runs import run_lists
from hai_flow.store.runs.run_lists import RunSummary

router = Routes(prefix="/v1/workflows", tags=["workflows"])

RUNS_MAX: Final = 1000  # that one request looks at
BACKTEST_SECONDS_MAX: Final = 30.0  # in each cell
_PAGE: Final = 100
_KEEPERS: Final = (Right.PUBLISH, Right.CONTROL_RUNS)
_ACTIVE: Final = ("queued", "running", "waiting", "paused", "stopping", "needs_attention")

Version = Annotated[str, Query(pattern=VERSION, description="`2`, or `2+3f2a9c11` for a dev copy")]


class MigrateBody(Body):
    """`runs`: the ids of runs; null: all that are active in the version. `map`: steps that have another name in the new
    version, old -> new."""

    from_: str = Field(alias="from", pattern=VERSION, description="`1`, or `1+3f2a9c11` for a dev copy")
    to: str = Field(pattern=VERSION)
    runs: list[str] | None = Field(default=None, max_length=RUNS_MAX)
    map: Annotated[
        dict[str, Annotated[str, Field(max_length=500, pattern=NO_CONTROL_CHARACTERS)]], BeforeValidator(demand_few)
    ] = Field(default={})
    dry_run: bool = False


@router.get("/{name}/diff", Right.READ_WORKFLOWS, refusals=(404,))
async def diff_versions(
    name: str, access: CurrentAccess, to: Version, from_: Annotated[str, Query(alias="from", pattern=VERSION)]
) -> schemas.Diff:
    """The changes from the version `from` to the version `to`: steps that were added, removed, moved or changed."""
    (old, before), (new, after) = await _versions(access, name, from_, to)
    changes = await check_beside_loop(access, _list_changes, before, after)
    return {"from": render(schemas.Version, old), "to": render(schemas.Version, new), **changes}


def _list_changes(before: Plan, after: Plan) -> Any:
    return diff(before, after).as_dict()


@router.post("/{name}/backtest", Right.SEE_RUNS, openapi_extra=YAML_BODY, refusals=(403, 404, *WITH_BODY))
async def backtest_workflow(
    name: str,
    source: WorkflowBody,
    access: CurrentAccess,
    since: Annotated[str, Query(pattern=SPAN, description="of the runs that began within it: `12h`, `30d`")] = "30d",
    examples: Annotated[int, Query(ge=0, le=100, description="the most runs to name of each kind")] = 20,
    keep: Annotated[
        bool,
        Query(
            description="keep the counts, for a publication that demands them; takes the right `publish` or "
            "`control_runs`, too"
        ),
    ] = False,
) -> schemas.BacktestReport:
    """Decide the recorded runs of the workflow again under the YAML document in the body, which is not stored: which
    would go otherwise, and why. Inputs, answers and results are those that were recorded; nothing is performed and no
    row is written, but the counts if they are to be kept.

    At most 1,000 runs, the oldest first, and half a minute: `complete` is false where there are more; then ask for a
    shorter time, or use `hai-flow backtest`. Of errors their codes are told, and not their words. Runs with personal
    values that are kept from you are not decided: `unreadable` counts them."""
    if keep and not any(access.principal.may(right) for right in _KEEPERS):
        raise reject_missing_right(_KEEPERS)
    plan = await check_beside_loop(access, compile_workflow, source, "<workflow>")
    if keep and plan.name != name:
        raise Rejected(
            422, "request.invalid", f"keep: expected a text of the workflow {name}, found one of {plan.name}."
        )
    latest, _ = await access.catalog.resolve(access.tenant, name)
    age = timedelta(milliseconds=milliseconds(since))
    result, complete = Backtest(), True
    for cell in access.everywhere:
        request = Backtesting(cell.tenant, name, plan, age, bounds_of(cell.runtime.settings), examples)
        room = RUNS_MAX - result.runs
        part, all_of_it = await backtest_some(
            cell.reads,
            request,
            partial(check_beside_loop, access),
            partial(_has_personal_values, cell),
            runs_max=room,
            seconds_max=BACKTEST_SECONDS_MAX,
        )
        result.join(part)
        complete = complete and all_of_it
    if keep:
        rehearsal = build_kept_rehearsal(result, plan, latest.sha256, age, access.principal.id, complete=complete)
        async with access.act() as connection:
            await keep_rehearsal(connection, access.tenant, rehearsal)
    report: Any = render_backtest(result)
    for example in report["examples"]:
        if example["kind"] == "fails":
            example["reason"] = example["reason"].partition(":")[0]
    return {"workflow": name, "since": since, "complete": complete, **report}


async def _has_personal_values(access: Access, run_id: UUID) -> bool:
    """Whether the run has values that are kept from the caller."""
    for run in await run_lists.get_runs(access.reads, access.tenant, {run_id}):
        personal = await access.personal(run)
        return personal is not None and personal.anything
    return False


@router.post("/{name}/migrate", Right.CONTROL_RUNS, refusals=(404, 409))
async def migrate_runs(name: str, body: MigrateBody, access: CurrentAccess, key: CommandKey) -> schemas.Migration:
    """Let runs of one version go on with another one, from where they stand. Each moves, or stays with every reason.

    With `dry_run` no run moves; the answer shows which would. At most 1,000 runs a request: `more` is true if there are
    others; name them in `runs`."""
    (old, before), (new, after) = await _versions(access, name, body.from_, body.to)
    if (retired := await access.catalog.retirement(access.tenant, after)) is not None:
        raise retired
    results: list[schemas.MigratedRun] = []
    more = False
    async for cell, run in _select_runs(access, name, body.runs):
        if run.workflow != old.sha256:
            if body.runs is not None and run.workflow != new.sha256:
                raise Rejected(422, "run.version", f"run {run.id} is not of {name}@{body.from_}; name another version.")
            if body.runs is None:
                continue
        if len(results) == RUNS_MAX:
            more = True
            break
        if body.dry_run:
            results.append(await _examine(cell, run, before, after, body.map))
        else:
            results.append(await _migrate(cell, run, new, after, body.map, key))
    first, other = render(schemas.Version, old), render(schemas.Version, new)
    return {"from": first, "to": other, "dry_run": body.dry_run, "runs": results, "more": more}


async def _versions(access: Access, name: str, old: str, new: str) -> list[tuple[WorkflowSummary, Plan]]:
    """Both versions and their plans. Raises Rejected 404."""
    return [await access.catalog.resolve(access.tenant, f"{name}@{version}") for version in (old, new)]


async def _select_runs(access: Access, name: str, ids: list[str] | None) -> AsyncIterator[tuple[Access, RunSummary]]:
    """The runs that were named, or every active one of the workflow, cell by cell, newest first."""
    if ids is not None:
        for id in dict.fromkeys(ids):
            cell = await access.find_at_run(id)
            yield cell, await cell.run(id)
        return
    for cell in access.everywhere:
        before = None
        while True:
            page = await run_lists.list_runs(
                cell.reads, cell.tenant, limit=_PAGE, statuses=_ACTIVE, workflow=name, before=before, viewer=cell.viewer
            )
            for run in page:
                yield cell, run
            if len(page) < _PAGE:
                break
            before = (page[-1].created_at, page[-1].id)


async def _examine(
    access: Access, run: RunSummary, old: Plan, new: Plan, mapping: dict[str, str]
) -> schemas.MigratedRun:
    state = await access.state(run.id)
    if state.sha256 == new.sha256.hex():
        return _view(run.id, state.status, [], moved=True)
    now_ms, who = access.runtime.committer.now_ms(), access.principal.who
    move = await run_by_work(migrate.examine, old, new, state, mapping, now_ms, who)
    obstacles = [render(schemas.Obstacle, each) for each in move.obstacles]
    pins = await access.catalog.pins(access.tenant, new)
    obstacles += await _list_unhidden(access, run, state, new, pins, mapping)
    return _view(run.id, state.status, obstacles, moved=False)


async def _list_unhidden(
    access: Access, run: RunSummary, state: RunState, plan: Plan, pins: dict[str, Pin], mapping: dict[str, str]
) -> list[schemas.Obstacle]:
    """Why the caller can't move the run: its personal values, which are kept from them, would be shown to them."""
    parts = await access.list_unhidden(run, state, plan, pins, mapping)
    other = f"{plan.name}@{plan.version} does not mark as personal what is kept from you"
    return [
        {"code": "personal.shown", "path": "", "message": f"{other} ({each}); the run's requester may move it."}
        for each in parts
    ]


async def _migrate(
    access: Access, run: RunSummary, stored: WorkflowSummary, plan: Plan, mapping: dict[str, str], key: str | None
) -> schemas.MigratedRun:
    pins, state = await access.catalog.pins(access.tenant, plan), await access.state(run.id)
    unhidden = await _list_unhidden(access, run, state, plan, pins, mapping)
    if unhidden:
        return _view(run.id, run.status, unhidden, moved=False)
    command = c.Migrate(
        to=plan, by=access.principal.id, who=access.principal.who, paths=mapping, dev=stored.dev, pins=pins
    )
    body = await hash_content([stored.sha256.hex(), mapping])
    try:
        async with access.runtime.slots.moving(access.tenant, plan, state) as seat:
            outcome = await access.submit(run.id, command, command_id=key, body_sha=body, seat=seat)
    except Rejected as rejected:
        if rejected.code == "concurrency_busy":
            busy: schemas.Obstacle = {"code": rejected.code, "path": "", "message": rejected.detail}
            return _view(run.id, run.status, [busy], moved=False)
        if rejected.code != "migration_refused":
            raise
        return _view(run.id, run.status, cast(list[schemas.Obstacle], rejected.findings), moved=False)
    return _view(run.id, outcome.status, [], moved=True)


def _view(run_id: UUID, status: Any, obstacles: list[schemas.Obstacle], *, moved: bool) -> schemas.MigratedRun:
    return {"id": str(run_id), "status": status, "movable": not obstacles, "moved": moved, "obstacles": obstacles}
