"""`/v1/pendings`: questions that wait for people, and their decisions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, is_run_id
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import cross_cell, schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.pagination import (
    PageCursor,
    PageLimit,
    decode_cursor,
    decode_place,
    encode_place,
    reject_cursor,
)
from hai_flow.api.requests.run_visibility import RunFacts
from hai_flow.api.requests.views import render_pending_in_list
from hai_flow.api.rest.people.decide_pendings import DecideBody, check, decide, find_pending, render_for
from hai_flow.api.rest.people.openings import note_opening
from hai_flow.api.routes import Routes
from hai_flow.definition.plan import Call, FrontendTool, HttpTool, Plan, PythonTool
from hai_flow.definition.schemas.schemas import strip_marks
from hai_flow.engine import events as e
from hai_flow.engine.canaries import find_disguise
from hai_flow.engine.events import decode_pending
from hai_flow.engine.pendings.selectors import principal_selectors
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected, StepError, Unreadable
from hai_flow.store.people import pendings
from hai_flow.values import Json
from hai_flow.wire.dialects.log import event_json
from hai_flow.wire.reader_redaction import strip_evidence, strip_evidence_of, strip_source

router = Routes(prefix="/v1/pendings", tags=["pendings"])

_OF_PENDINGS: Final = frozenset((
    e.PendingOpened, e.PendingEdited, e.VoteCast, e.PendingReminded, e.PendingEscalated, e.PendingRestamped,
    e.PeoplePicked, e.PendingDecided, e.PendingVoided,
))  # fmt: skip


def _run_of(row: pendings.PendingSummary) -> RunFacts:
    return RunFacts(row.run_id, row.started_by, row.sha256, row.workflow, row.thread_id)


async def _view(
    access: Access, row: pendings.PendingSummary, with_forms: Container[UUID]
) -> schemas.OpenedPending | None:
    """The open pending of a list. None: it is open no more, for its deadline has passed and no timer has fired yet; or
    it is not for the caller, or of a release that this one can't read."""
    try:
        opened = decode_pending(row.body)
    except Unreadable:
        return None
    run = _run_of(row)
    if access.viewer is None and (row.deadline is None or row.deadline > access.runtime.committer.now()):
        view = render_pending_in_list(row, await access.redact_question(run, opened, with_forms))
        return view if row.nobody is None else {**view, "nobody_decides": row.nobody}
    try:
        state, pending = await find_pending(access, row.id)
    except Rejected:
        return None
    except Unreadable:  # nobody here can judge what of it is for the caller
        return render_pending_in_list(row, await access.redact_question(run, strip_evidence_of(opened), with_forms))
    if pending.status != "open":
        return None
    opened = pending.opened if access.sees_evidence(state, pending) else strip_evidence_of(pending.opened)
    return render_pending_in_list(row, await access.redact_question(run, opened, with_forms))


@router.get("", Right.SEE_OWN, Right.SEE_INBOX)
async def list_pendings(
    access: CurrentAccess,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    workflow: Annotated[str | None, Query(max_length=200, pattern=NO_CONTROL_CHARACTERS)] = None,
    run_id: Annotated[str | None, Query(max_length=100)] = None,
) -> schemas.PendingPage:
    """The open pendings that you may see, newest first. A page may be short, though others follow."""
    place = decode_cursor(cursor)
    if place is not None and run_of_pending(place[1]) is None:
        raise reject_cursor()
    if run_id is not None and not is_run_id(run_id):
        return {"items": [], "next_cursor": None, "missing": []}

    async def ask(cell: Access) -> tuple[Sequence[pendings.PendingSummary], Any]:
        page = await pendings.open_pendings(
            cell.reads,
            cell.tenant,
            limit=limit,
            before=place,
            viewer=cell.viewer,
            selectors=principal_selectors(cell.principal.who),
            workflow=workflow,
            run_id=None if run_id is None else UUID(run_id),
        )
        return page.rows, page.following

    listed = await cross_cell.page(access, ask, lambda row: (row.opened_at, row.id), limit)
    with_forms = await cross_cell.find_with_forms((cell, _run_of(row)) for cell, row in listed.rows)
    views = [await _view(cell, row, with_forms) for cell, row in listed.rows]
    return listed.show([each for each in views if each is not None])


@router.get("/{pending_id}", Right.SEE_OWN, Right.SEE_INBOX, refusals=(404,))
async def get_pending(pending_id: str, access: CurrentAccess) -> schemas.Pending:
    """One pending: the question and its outcome."""
    state, pending = await find_pending(access, pending_id)
    view = await render_for(access, state, pending)
    await note_opening(access, state, pending, "question")
    if access.viewer is not None or pending.status != "open":
        return view
    fault = await pendings.find_why_nobody(access.reads, UUID(state.run_id), pending_id)
    return view if fault is None else {**view, "nobody_decides": fault}


@router.post("/{pending_id}/decide", Right.ANSWER, Right.DECIDE, refusals=(404, 409, 410))
async def decide_pending(
    pending_id: str, body: DecideBody, access: CurrentAccess, key: CommandKey
) -> schemas.DecidedPending:
    """Answer. The first valid answer stands: the same one again is 200, a different one 409 with the winner."""
    return await decide(access, pending_id, body, key)


@router.post("/{pending_id}/check", Right.ANSWER, Right.DECIDE, refusals=(404, 409, 410))
async def check_answer(pending_id: str, body: DecideBody, access: CurrentAccess) -> schemas.CheckedAnswer:
    """The effect that an answer would have now: nothing is stored. It is refused as the answer itself would be. So a
    form learns its faults, and an approver learns which votes their edit would void."""
    return await check(access, pending_id, body)


@router.get("/{pending_id}/arguments", Right.SEE_OWN, Right.SEE_INBOX, refusals=(404,))
async def get_arguments(pending_id: str, access: CurrentAccess) -> schemas.PendingArguments:
    """The arguments that the call in question may have: for a form in which an approver changes them."""
    return await describe_arguments(access, *await find_pending(access, pending_id))


@router.get("/{pending_id}/history", Right.SEE_OWN, Right.SEE_INBOX, refusals=(404,))
async def get_history(
    pending_id: str, access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None
) -> schemas.PendingHistory:
    """The history of the question, oldest first: its opening, votes, edits, reminders, escalations, its end."""
    run, pending = await find_pending(access, pending_id)
    sees, mask = access.sees_evidence(run, pending), access.mask(UUID(run.run_id))
    place = decode_place(cursor)
    after = 0 if place is None else place[0]
    rows = await pendings.history_of(access.reads, access.tenant, UUID(run.run_id), pending_id, after, limit)
    shows_all = access.can_see_conversation(UUID(run.run_id))
    history = [
        event_json(seq, visible if sees else strip_evidence(visible))
        for row in rows
        for seq, event in enumerate(e.decode_events(row.events), row.first_seq)
        if seq > after and type(event) in _OF_PENDINGS and getattr(event, "id", None) == pending_id
        for open_event in [event if shows_all else strip_source(event)]
        for visible in [open_event if mask is None else mask.event(open_event, run)]
    ]
    following = None if len(rows) < limit else encode_place(rows[-1].last_seq, "seq")
    return {"items": history, "next_cursor": following}


async def describe_arguments(access: Access, run: RunState, pending: PendingState) -> schemas.PendingArguments:
    """The arguments of the call that the question is about (`shapes.PendingArguments`)."""
    disguise = find_disguise(run) if pending.status == "open" else None
    sha256 = run.sha256 if disguise is None else disguise.sha256
    plan = await access.catalog.plan(access.tenant, bytes.fromhex(sha256))
    description, parameters = await _describe(access, plan, pending)
    return {"tool": pending.opened.tool, "description": description, "parameters": parameters}


async def _describe(access: Access, plan: Plan, pending: PendingState) -> tuple[str | None, Json]:
    """The function's own description and the schema of its parameters; None for each that it lacks. Servers of MCP are
    not asked: no page must wait for them."""
    verb = resolve_step(plan, pending.opened.path).verb
    if not isinstance(verb, Call):
        return None, None
    tool = verb.tool
    if isinstance(tool, FrontendTool):
        return tool.description or None, None if tool.parameters is None else strip_marks(tool.parameters.raw)
    if not isinstance(tool, PythonTool | HttpTool):
        return None, None
    try:
        offered = await access.runtime.registry.offered(tool.name, tool, from_disk=plan.from_disk, workflow=plan.name)
    except StepError:  # its module or its service is not known here
        return None, None
    offer = next((each for each in offered if each.name == pending.opened.tool), None)
    return (None, None) if offer is None else (offer.description or None, dict(offer.parameters))
