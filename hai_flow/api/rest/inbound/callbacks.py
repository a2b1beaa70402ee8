"""`/callbacks/{token}`: a service calls back here after a step has asked it to. The address is the proof.

Nothing of a body is parsed before the address is known to be one that was given out."""

from __future__ import annotations

from typing import Any

import structlog
from fastapi import Request

from hai_flow.api.http.bodies import limits_of, read_body
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.permissions.principals import open_to_everybody
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import OpenAccess
from hai_flow.api.routes import Routes
from hai_flow.cells import cell_of_address
from hai_flow.engine.state.bounds import EVENT_BYTES_MAX
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.wire import webhook_body

log = structlog.get_logger(__name__)

router = Routes(prefix="/callbacks", tags=["signals"])


@router.post(
    "/{token}",
    status_code=202,
    openapi_extra=webhook_body.OPENAPI_BODY,
    answer=schemas.ReceivedCallback,
    dependencies=[open_to_everybody()],
    refusals=(404, 409, 410, *WITH_BODY),
)
async def receive_callback(token: str, request: Request, access: OpenAccess) -> dict[str, Any]:
    """Take the callback that a step waits for (`await_callback`); its run goes on. The same one again changes nothing,
    another one is refused."""
    callbacks = access.cells.at(cell_of_address(token)).callbacks
    row = await callbacks.find(token)
    limits = limits_of(request.app.state.settings)
    body = await read_body(request, min(limits.body_bytes_max, EVENT_BYTES_MAX))
    call = webhook_body.Call(webhook_body.read_first_headers(request.headers.items()), body)
    content, notes = await run_by_size(len(body), webhook_body.content_of, call, limits)
    if notes:
        log.info("callback_changed", run_id=str(row.run_id), notes=notes)
    with access.admission.command():
        already = await callbacks.receive(row, content)
    return {"already": already}
