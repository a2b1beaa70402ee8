"""Events from outside: `/v1/signals` for every run of the tenant that waits for their type, `/v1/runs/{id}/signals` for
one, and `/v1/events`, which also tells which workflows they start."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from fastapi import Response
from msgspec.structs import replace
from pydantic import Field

from hai_flow import values
from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.views import render, render_event
from hai_flow.api.routes import Routes, answers_of
from hai_flow.engine.state.bounds import EVENT_BYTES_MAX
from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.engine.steps.wait_for_event import CALLBACK
from hai_flow.errors import Rejected
from hai_flow.store.commit.entries import AuditRow
from hai_flow.store.messaging import signals

router = Routes(prefix="/v1", tags=["signals"])
events = Routes(prefix="/v1/events", tags=["events"])

_ANSWERS: Final = answers_of("it has been sent before", "it is stored")
_ANSWERS_TO_EVENT: Final = answers_of("it has been sent before", "it is stored; `runs` says what it started")


class SignalBody(Body):
    """`data` is any JSON value. `id`: the same one again changes nothing; if it is missing, the server makes one up."""

    type: str = Field(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)
    data: Any = None
    id: str | None = Field(default=None, min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)


@router.post("/signals", Right.CONTROL_RUNS, status_code=201, responses=_ANSWERS, refusals=(404, 409))
async def send_signal(body: SignalBody, access: CurrentAccess, key: CommandKey, response: Response) -> schemas.Signal:
    """Send an event to every run that has started before it and waits, or will wait, for its type. It also starts the
    workflows with a trigger for it; `POST /v1/events` does the same and lists their runs."""
    return await _send(access, body, key, response)


@router.post("/runs/{run_id}/signals", Right.CONTROL_RUNS, status_code=201, responses=_ANSWERS, refusals=(404, 409))
async def signal_run(
    run_id: str, body: SignalBody, access: CurrentAccess, key: CommandKey, response: Response
) -> schemas.Signal:
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
) -> schemas.Signal:
    id = _read_event_id(access, body, key, "signal")
    with access.admission.command():
        await _demand_files(access, body, run_id)
        record = _record_of(access, "signal.sent", id, body)
        delivery = access.runtime.delivery
        if run_id is None and access.living.is_large:
            async with _spread(access, id, body, record) as is_repeated:
                sent, already = await delivery.send(access.tenant, id, body.type, body.data, sender=access.sender)
                already |= is_repeated
        else:
            sent, already = await delivery.send(
                access.tenant, id, body.type, body.data, run_id, sent=record, sender=access.sender
            )
    if already:
        response.status_code = 200
    return render(schemas.Signal, sent, already=already)


@events.post("", Right.START_RUNS, status_code=201, responses=_ANSWERS_TO_EVENT, refusals=(404, 409))
async def receive_event(
    body: SignalBody, access: CurrentAccess, key: CommandKey, response: Response
) -> schemas.ReceivedEvent:
    """Send an event, and learn which runs it starts. It is a signal for all: runs that wait for its type get it too.

    The same event again starts no workflow twice and gets the same answer; starts that were refused are tried again."""
    id = _read_event_id(access, body, key, "event")
    with access.admission.command():
        await _demand_files(access, body)
        record, triggers = _record_of(access, "event.sent", id, body), access.runtime.triggers
        sender = access.sender
        if access.living.is_large:
            async with _spread(access, id, body, record) as is_repeated:
                received = await triggers.receive_event(access.tenant, id, body.type, body.data, sender=sender)
            received = replace(received, already=received.already or is_repeated)
        else:
            received = await triggers.receive_event(access.tenant, id, body.type, body.data, sent=record, sender=sender)
    if received.already:
        response.status_code = 200
    return render_event(received)


def _read_event_id(access: Access, body: SignalBody, key: str | None, kind: str) -> str:
    """The id of the event; made up if it has none. Raises Rejected 413 if its data are too large."""
    if body.type.startswith(CALLBACK):
        message = f"type: what begins with {CALLBACK!r} comes from the service that was asked, and from nobody else."
        raise Rejected(403, f"{kind}.reserved", message)
    size = len(values.dumps(body.data))
    if size > EVENT_BYTES_MAX:
        raise Rejected(413, f"{kind}.too_large", f"data: expected at most {EVENT_BYTES_MAX} bytes, found {size}.")
    return body.id or key or f"{kind[:3]}_{access.runtime.starts.new_id()}"


def _record_of(access: Access, act: str, id: str, body: SignalBody) -> AuditRow:
    """The audit record of the event that the caller sends. It has the digest of the data, not the data."""
    digest = sha256(values.dumps(body.data)).digest()
    return access.asked.row(act, subject=f"signal:{id}", digest=digest, type=body.type)


async def _demand_files(access: Access, body: SignalBody, run_id: UUID | None = None) -> None:
    """Raises Rejected 404 where the data name a file that the caller may not read."""
    data, runtime = values.dumps(body.data), access.runtime
    if run_id is None:
        await runtime.files.demand(access.tenant, access.uploader, data, access.viewer)
    else:
        await runtime.files.use(access.tenant, access.uploader, run_id, data, access.viewer)


@contextlib.asynccontextmanager
async def _spread(access: Access, id: str, body: SignalBody, record: AuditRow) -> AsyncGenerator[bool]:
    """Send an event to all runs of a tenant in several cells. On entering, the seat gets it; the value is whether it
    had it before. On leaving, the other cells get it; a cell that is away gets it later. Raises Rejected 409 where
    another event has its id."""
    spreading, seat = access.cells.spreading, access.runtime
    already, relay = await spreading.take(access.tenant, access.living, id, body.type, body.data, record, access.sender)
    try:
        yield already
    except Rejected:
        if relay is not None:
            await spreading.record_refusal(seat, relay)
        raise
    if relay is not None:
        await spreading.bring(seat, relay, seat_has_it=True)
