"""`/v1/events`: events of other systems, for the runs that wait for them and the workflows that they start."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Response
from msgspec.structs import replace

from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.views import render_event
from hai_flow.api.rest.inbound.signals import SignalBody, demand_files, read_event_id, record_of, spread
from hai_flow.api.routes import Routes, answers_of

router = Routes(prefix="/v1/events", tags=["events"])

_ANSWERS: Final = answers_of(
    schemas.ReceivedEvent, "it has been sent before", "it is stored; `runs` says what it started"
)


@router.post("", Right.START_RUNS, status_code=201, responses=_ANSWERS, refusals=(404, 409))
async def receive_event(body: SignalBody, access: CurrentAccess, key: CommandKey, response: Response) -> dict[str, Any]:
    """Send an event, and learn which runs it starts. It is a signal for all: runs that wait for its type get it too.

    The same event again starts no workflow twice and gets the same answer; starts that were refused are tried again."""
    id = read_event_id(access, body, key, "event")
    with access.admission.command():
        await demand_files(access, body)
        record, triggers = record_of(access, "event.sent", id, body), access.runtime.triggers
        sender = access.sender
        if access.living.is_large:
            async with spread(access, id, body, record) as is_repeated:
                received = await triggers.receive_event(access.tenant, id, body.type, body.data, sender=sender)
            received = replace(received, already=received.already or is_repeated)
        else:
            received = await triggers.receive_event(access.tenant, id, body.type, body.data, sent=record, sender=sender)
    if received.already:
        response.status_code = 200
    return render_event(received)
