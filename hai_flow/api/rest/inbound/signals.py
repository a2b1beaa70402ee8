"""`/v1/signals` and `/v1/runs/{id}/signals`: events from outside, to every run of the tenant that waits for their type,
or to one."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from fastapi import Response

from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.rest.inbound.inbound_events import SignalBody, demand_files, read_event_id, record_of, spread
from hai_flow.api.routes import Routes
from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.store.messaging import signals

router = Routes(prefix="/v1", tags=["signals"])


_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": schemas.Signal, "description": "it has been sent before"},
    201: {"model": schemas.Signal, "description": "it is stored"},
}


@router.post("/signals", Right.CONTROL_RUNS, status_code=201, responses=_ANSWERS, refusals=(404, 409))
async def send_signal(body: SignalBody, access: CurrentAccess, key: CommandKey, response: Response) -> dict[str, Any]:
    """Send an event to every run that has started before it and waits, or will wait, for its type. It also starts the
    workflows with a trigger for it; `POST /v1/events` does the same and lists their runs."""
    return await _send(access, body, key, response)


@router.post("/runs/{run_id}/signals", Right.CONTROL_RUNS, status_code=201, responses=_ANSWERS, refusals=(404, 409))
async def signal_run(
    run_id: str, body: SignalBody, access: CurrentAccess, key: CommandKey, response: Response
) -> dict[str, Any]:
    """Send an event to one run. It is kept until the run waits for its type."""
    run = await access.run(run_id)
    id = body.id or key
    sent_before = id is not None and await signals.get_signal(access.reads, access.tenant, id) is not None
    if run.status in TERMINAL_STATUSES and not sent_before:
        winner = {"status": run.status, "seq": run.seq}
        raise Rejected(409, "run_ended", f"can't signal a run that is {run.status}.", winner=winner)
    return await _send(access, body, key, response, run.id)


async def _send(
    access: Access, body: SignalBody, key: str | None, response: Response, run_id: UUID | None = None
) -> dict[str, Any]:
    id = read_event_id(access, body, key, "signal")
    with access.admission.command():
        await demand_files(access, body, run_id)
        record = record_of(access, "signal.sent", id, body)
        delivery = access.runtime.delivery
        if run_id is None and access.living.is_large:
            async with spread(access, id, body, record) as is_repeated:
                sent, already = await delivery.send(access.tenant, id, body.type, body.data, sender=record.principal)
                already |= is_repeated
        else:
            sent, already = await delivery.send(
                access.tenant, id, body.type, body.data, run_id, sent=record, sender=record.principal
            )
    if already:
        response.status_code = 200
    return {
        "id": sent.id,
        "type": sent.type,
        "run_id": None if sent.run_id is None else str(sent.run_id),
        "sent_at": instants.rfc3339(instants.milliseconds(sent.sent_at)),
        "already": already,
    }
