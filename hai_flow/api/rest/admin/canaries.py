"""`/v1/canaries`: seeded questions that have to be refused (docs/oversight.md)."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from pydantic import Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, PrincipalId, Visible
from hai_flow.api.http.bodies import Body, hash_content
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import cross_cell, schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.rest.admin.oversight import READ, Since, read_age
from hai_flow.api.routes import Routes
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.definition.paths import plan_path
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.canaries import ASKER, CANARY, CONTENT, NotImitable, write_input, write_workflow
from hai_flow.engine.events import PendingOpened
from hai_flow.errors import DefinitionError, Rejected, Unreadable
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.catalog import built_in
from hai_flow.store.people import canaries, pendings
from hai_flow.store.people.canaries import CanaryRow

router = Routes(prefix="/v1/canaries", tags=["oversight"])

SEEDED: Final = "canary.seeded"
_SECRETS: Final = secrets.SystemRandom()


class CanaryBody(Body):
    """The question that `workflow` asks at the step `path`, as it was asked last, with these `arguments` (of an
    `approve`: `evidence`) and texts in place of its own."""

    workflow: Annotated[str, Field(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS), Visible]
    path: Annotated[str, Field(min_length=1, max_length=300, pattern=NO_CONTROL_CHARACTERS), Visible]
    arguments: dict[str, Any] | None = Field(default=None, description="the arguments of the call, all of them")
    evidence: Any = None
    form: dict[str, Any] | None = Field(default=None, description="of a question whose form is filled in from its run")
    title: str | None = Field(default=None, min_length=1, max_length=300)
    message: str | None = Field(default=None, max_length=10_000)
    summary: str | None = Field(
        default=None, min_length=1, max_length=200, description="of a workflow whose summary is filled in from the run"
    )
    requester: PrincipalId | None = Field(default=None, description="who seems to ask; else who asked last")
    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=NO_CONTROL_CHARACTERS), Visible] = Field(
        description="why it has to be refused, which is told when it is over"
    )
    within: str | None = Field(default=None, max_length=40, description="ask at some moment within it: `8h`; else now")


@router.post("", Right.MANAGE_KEYS, status_code=201, refusals=(404,))
async def seed_canary(body: CanaryBody, access: CurrentAccess) -> schemas.Canary:
    """Ask people a question that they have to refuse. It looks like the one that this step has asked last; nothing
    stands behind it, so an approval lets nothing begin. Until it is decided, admins and auditors alone see that it is
    a canary."""
    content = {name: getattr(body, name) for name in CONTENT if getattr(body, name) is not None}
    content |= _draw_wait(body.within)
    access, model = await _imitate(access, body.workflow, body.path, content, body.form)
    plan, opened, content = model.plan, model.opened, model.content
    imitation = await _publish(access, model)
    requester = body.requester or model.requester
    start_id = access.runtime.starts.new_id()
    start = c.Start(
        run_id=start_id,
        thread_id=str(start_id),
        requester=ASKER,
        instigators=(requester,),  # who seems to ask does not decide, as at the real one
        input=write_input(plan, body.path, requester, content),
    )
    access = await access.beginning_anew(imitation, start, None)
    who, looks = access.principal.id, (body.workflow, body.path, opened.tool, requester)
    async with access.act() as connection:
        await canaries.add_canary(connection, access.tenant, start_id, looks, body.reason, who)
        details = {"workflow": body.workflow, "path": body.path, "reason": body.reason}
        await access.record(connection, SEEDED, subject=f"run:{start_id}", **details)
    try:
        await access.runtime.starts.start(
            access.tenant,
            imitation,
            start,
            command_id=f"start:{start_id}",
            body_sha=await hash_content(start.input),
            asked=access.asked,
        )
    except Rejected:
        async with access.act() as connection:
            await canaries.drop_canary(connection, start_id)
        raise
    access.hint_lists()
    row = await canaries.find_canary(access.pool, access.tenant, start_id)
    assert row is not None, "it was just written"
    return render(schemas.Canary, row)


@router.get("", Right.MANAGE_KEYS, Right.READ_AUDIT)
async def list_canaries(access: CurrentAccess, since: Since = "30d") -> schemas.Canaries:
    """The canaries that were seeded within the time, at most 500 of each cell, with their results and without the
    people that decided them. A look by an auditor is recorded in the audit."""
    if access.principal.may(Right.READ_AUDIT):
        await access.note(READ, canaries=since)

    async def ask(cell: Access) -> list[CanaryRow]:
        return await canaries.list_canaries(cell.reads, cell.tenant, read_age(since))

    gathered = await cross_cell.ask_all_cells(access, ask)
    rows = sorted((row for _, rows in gathered.by_cell for row in rows), key=lambda row: row.at, reverse=True)
    return {"items": [render(schemas.Canary, row) for row in rows], "missing": gathered.missing}


class _ImitatedQuestion(msgspec.Struct, frozen=True):
    """A question that was asked in a run of the plan, and the document of the canary that looks like it, with the
    `content` that is its input."""

    plan: Plan
    opened: PendingOpened
    requester: str
    content: dict[str, Any]
    source: bytes


async def _imitate(
    access: Access, workflow: str, path: str, content: dict[str, Any], form: dict[str, Any] | None
) -> tuple[Access, _ImitatedQuestion]:
    """The newest of the step's last questions that a canary can look like, and its cell. One whose run can't be read,
    or which none can look like, is passed over. Raises Rejected 404 or 422, which says why not the newest."""
    models = [] if workflow == CANARY else [
        (at, id, run_id, cell)
        for cell in access.everywhere
        for at, run_id, id in await canaries.list_models(cell.reads, access.tenant, workflow, plan_path(path))
    ]  # fmt: skip
    obstacle: NotImitable | Unreadable | None = None
    for _, id, run_id, cell in sorted(models, key=lambda model: model[:2], reverse=True):
        try:
            state = await cell.state(run_id)
            if id not in state.pendings:
                continue
            if state.parent is not None:
                raise NotImitable("it was asked in a child run, whose parent shows it, too, and a canary has no parent")
            opened = state.pendings[id].opened
            plan = await cell.catalog.plan(access.tenant, bytes.fromhex(state.sha256))
            typed = {"evidence": None, **content} if opened.kind == "approve" else content
            source = write_workflow(plan, opened, path, typed, form, await _find_opening(cell, run_id, id))
            return cell, _ImitatedQuestion(plan, opened, state.requester, typed, source)
        except (NotImitable, Unreadable) as error:
            obstacle = obstacle or error
    if isinstance(obstacle, Unreadable):
        raise obstacle
    if obstacle is not None:
        raise Rejected(422, "canary_invalid", f"{path[:100]}: {obstacle}.")
    detail = (
        f"{workflow[:100]} has asked nothing at {path[:100]!r} lately; a canary looks like a question that was asked."
    )
    raise Rejected(404, "canary_model_unknown", detail)


async def _find_opening(cell: Access, run_id: UUID, id: str) -> int:
    """The seq of the event that opened the pending. Raises NotImitable."""
    for row in await pendings.history_of(cell.reads, cell.tenant, run_id, id, 0, 1):
        events = await run_by_size(len(row.events), e.decode_events, row.events)
        for seq, event in enumerate(events, row.first_seq):
            if isinstance(event, PendingOpened) and event.id == id:
                return seq
    raise NotImitable("the event that asked it is no longer in the log of its run")


async def _publish(access: Access, model: _ImitatedQuestion) -> Plan:
    """The workflow of the canary. Raises Rejected 422 where there can be none."""
    try:
        at_seat = access.at_seat.runtime.catalog
        _, imitation = await at_seat.publish(
            access.tenant,
            model.source,
            f"{CANARY}.flow.yaml",
            asked=built_in.PUBLISHER,
            unrehearsed="a canary has no effect",
        )
    except DefinitionError as error:
        raise Rejected(422, "canary_invalid", f"{model.opened.path}: no canary can look like it: {error}") from None
    await access.repeat()
    return imitation


def _draw_wait(within: str | None) -> dict[str, str]:
    """How long the run waits before it asks. Raises Rejected 422."""
    if within is None:
        return {}
    try:
        longest = milliseconds(within)
    except NotADuration as error:
        raise Rejected(422, "canary_invalid", f"within: {error}.") from None
    return {"wait": f"{_SECRETS.randint(1_000, longest)}ms"}
