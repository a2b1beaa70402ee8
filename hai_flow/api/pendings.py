"""`/v1/pendings`: what waits for people, and their decisions."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field

from hai_flow import values
from hai_flow.api.deps import CurrentPrincipal, CurrentRuntime, Principal
from hai_flow.api.runs import (
    PAGE_MAX,
    Body,
    IdempotencyKey,
    checked_json,
    command_key,
    decode_page_cursor,
    encode_page_cursor,
    get_row,
)
from hai_flow.api.views import pending_row_view, pending_view
from hai_flow.engine import commands as c
from hai_flow.engine.ids import run_of_pending
from hai_flow.engine.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.runtime import Runtime
from hai_flow.store import pendings

router = APIRouter(prefix="/v1/pendings", tags=["pendings"])


class DecideBody(Body):
    """approve: `decision` with `reason` and `values`; ask: `values`; a frontend tool: `result` or `error`."""

    decision: str | None = Field(default=None, max_length=100)
    reason: str | None = Field(default=None, max_length=10_000)
    values: Any = None
    result: Any = None
    error: str | None = Field(default=None, max_length=10_000)


def _run_of(id: str) -> UUID:
    run_id = run_of_pending(id)
    if run_id is None:
        raise _unknown(id)
    return run_id


def _unknown(id: str) -> Rejected:
    return Rejected(404, "pending_unknown", f"there is no pending {id[:100]!r}.")


async def _find(runtime: Runtime, principal: Principal, id: str) -> PendingState:
    state = await runtime.fanout.state_at(principal.tenant, _run_of(id), 2**53)
    found = None if state is None else state.pendings.get(id)
    if found is None:
        raise _unknown(id)
    return found


@router.get("")
async def list_pendings(
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: str | None = None,
) -> dict[str, Any]:
    """The open pendings, newest first."""
    before = decode_page_cursor(cursor)
    if before is not None:
        _run_of(before[1])
    found = await pendings.open_pendings(runtime.database.api, principal.tenant, limit=limit + 1, before=before)
    last = found[limit - 1] if len(found) > limit else None
    return {
        "items": [pending_row_view(pending) for pending in found[:limit]],
        "next_cursor": None if last is None else encode_page_cursor(last.opened_at.isoformat(), last.id),
    }


@router.get("/{pending_id}")
async def get_pending(pending_id: str, runtime: CurrentRuntime, principal: CurrentPrincipal) -> dict[str, Any]:
    """One pending: what is asked, and what became of it."""
    return pending_view(str(_run_of(pending_id)), await _find(runtime, principal, pending_id))


@router.post("/{pending_id}/decide")
async def decide_pending(
    pending_id: str,
    body: DecideBody,
    request: Request,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Answer. The first valid answer stands: the same one again is 200, a different one 409 with the winner."""
    given = body.model_dump(exclude_unset=True)
    checked_json(given, "")
    run_id = _run_of(pending_id)
    try:
        await get_row(runtime, principal, run_id)
    except Rejected:
        raise _unknown(pending_id) from None
    answer = c.PendingAnswer(
        id=pending_id,
        decision=body.decision,
        reason=body.reason,
        error=body.error,
        values=given.get("values", msgspec.UNSET),
        result=given.get("result", msgspec.UNSET),
    )
    outcome = await runtime.committer.submit(
        run_id,
        principal.tenant,
        c.Answer(answers=(answer,), by=principal.id, via="rest"),
        command_id=command_key(key),
        body_sha=sha256(values.dumps([pending_id, given])).digest(),
    )
    shown = pending_view(str(run_id), await _find(runtime, principal, pending_id))
    return {**shown, "already": outcome.already}
