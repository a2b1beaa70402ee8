"""The parts of a question that people opened before they decided it: those that the server gave them, and links."""

from __future__ import annotations

import asyncio
from typing import Final, Literal
from uuid import UUID

import msgspec
import structlog
from fastapi import Response

from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.rest.people.decide_pendings import find_pending
from hai_flow.api.routes import Routes
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.primitives.file_ids import files_in
from hai_flow.store.people import openings
from hai_flow.store.people.openings import Part
from hai_flow.store.postgres.error_classes import FAILURES

log = structlog.get_logger(__name__)

NOTE_SECONDS: Final = 2.0  # for which a question waits for its opening to be kept

router = Routes(prefix="/v1/pendings", tags=["pendings"])


class OpenedBody(Body):
    """`link`: the person has followed an address of the question. The other parts the server has given them itself."""

    part: Literal["link"]


@router.post("/{pending_id}/opened", Right.DECIDE, status_code=204, refusals=(404,))
async def report_opening(pending_id: str, body: OpenedBody, access: CurrentAccess) -> Response:
    """Say that you have followed an address in the question, for the figures of oversight."""
    opening = _build_opening(access, *await find_pending(access, pending_id))
    if opening is not None:
        await openings.note_opening(access.pool, *opening, body.part)
    return Response(status_code=204)


@router.get("/{pending_id}/openings", Right.READ_AUDIT, Right.DECIDE, refusals=(404,))
async def list_openings(pending_id: str, access: CurrentAccess) -> schemas.Openings:
    """The people that had the question, a file or an address of it before it was decided, each with the first time.
    Auditors see all of them, which the audit records; others see themselves."""
    audits, run_id = access.principal.may(Right.READ_AUDIT), run_of_pending(pending_id)
    if not audits or run_id is None:
        state, _ = await find_pending(access, pending_id)
        run_id = UUID(state.run_id)
    if audits:
        await access.note("oversight.read", pending=pending_id)
    person = None if audits else access.principal.id
    rows = await openings.list_openings(access.reads, access.tenant, run_id, pending_id, person)
    return {"items": [render(schemas.Opening, row) for row in rows]}


async def note_opening(access: Access, run: RunState, pending: PendingState, part: Part) -> None:
    """Keep that the caller is given this part of the question, if they may decide and see what it is about. The
    question can be read all the same where that can't be kept (in time): then the figures have one too few."""
    opening = _build_opening(access, run, pending)
    if opening is None:
        return
    try:
        async with asyncio.timeout(NOTE_SECONDS):
            await openings.note_opening(access.pool, *opening, part)
    except (TimeoutError, *FAILURES) as error:
        log.warning("opening_not_kept", pending=pending.opened.id, part=part, error=str(error) or type(error).__name__)


def _build_opening(access: Access, run: RunState, pending: PendingState) -> tuple[UUID, UUID, str, str] | None:
    """Tenant, run, question and person of an opening; None: it is none that counts."""
    if pending.status != "open" or pending.opened.kind not in ("approve", "gate") or access.principal.is_anybody:
        return None
    run_id = run_of_pending(pending.opened.id)
    if run_id is None or not access.principal.may(Right.DECIDE) or not access.sees_evidence(run, pending):
        return None
    return access.tenant, run_id, pending.opened.id, access.principal.id


async def note_attachment(access: Access, run: RunState, digest: bytes) -> None:
    """The same for a file, in each question of the run that refers to it."""
    for pending in run.questions.values():
        if digest in files_in(msgspec.json.encode(pending.opened)):
            await note_opening(access, run, pending, "attachment")
