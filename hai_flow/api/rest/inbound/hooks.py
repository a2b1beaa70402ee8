"""What other systems call without a credential of ours: `/v1/hooks`, which starts the workflow that has the path, and
`/callbacks/{token}`, by which a service answers the step that has asked it to. There the address is the proof.

The proof of a request is checked before its body is parsed, and a refusal does not reveal the proof that was expected.
"""

from __future__ import annotations

import structlog
from fastapi import Request

from hai_flow.api.http.bodies import limits_of, read_body
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.permissions.principals import open_to_everybody
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import OpenAccess
from hai_flow.api.routes import Routes
from hai_flow.cells import HOME, cell_of_address
from hai_flow.engine.state.bounds import EVENT_BYTES_MAX
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.messaging.inbound_webhooks import tenant_of
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import tenants
from hai_flow.wire import webhook_body

log = structlog.get_logger(__name__)

router = Routes(prefix="/v1/hooks", tags=["events"])
callbacks = Routes(prefix="/callbacks", tags=["signals"])


@router.post(
    "/{path:path}",
    status_code=202,
    openapi_extra=webhook_body.OPENAPI_BODY,
    dependencies=[open_to_everybody()],
    refusals=(401, 404, 409, *WITH_BODY),
)
async def receive_webhook(path: str, request: Request, access: OpenAccess) -> schemas.ReceivedWebhook:
    """Receive a request of another system, and start the run that its trigger describes. `path` is that of a webhook of
    the tenant `default`, or `@TENANT/PATH` of one of another tenant. 401 unless the request proves that its sender
    knows the secret of the webhook's trigger. The same request again, or another one with its dedupe key, starts no run
    and gets the same answer."""
    webhooks = (await _find_runtime(path, access)).webhooks
    hook = await webhooks.find(path)
    limits = limits_of(request.app.state.settings)
    call = await _read_call(request, limits.body_bytes_max)
    webhooks.demand_genuine(hook, call)
    content, notes = await run_by_size(len(call.body), webhook_body.content_of, call, limits)
    if notes:
        log.info("webhook_changed", path=path, notes=notes)
    with access.admission.command():
        outcome = await webhooks.receive(hook, call, content)
    return {
        "run_id": None if outcome is None else str(outcome.run_id),
        "already": outcome is not None and outcome.already,
    }


@callbacks.post(
    "/{token}",
    status_code=202,
    openapi_extra=webhook_body.OPENAPI_BODY,
    dependencies=[open_to_everybody()],
    refusals=(404, 409, 410, *WITH_BODY),
)
async def receive_callback(token: str, request: Request, access: OpenAccess) -> schemas.ReceivedCallback:
    """Take the callback that a step waits for (`await_callback`); its run goes on. The same one again changes nothing,
    another one is refused."""
    service = access.cells.at(cell_of_address(token)).callbacks
    row = await service.find(token)
    limits = limits_of(request.app.state.settings)
    call = await _read_call(request, min(limits.body_bytes_max, EVENT_BYTES_MAX))
    content, notes = await run_by_size(len(call.body), webhook_body.content_of, call, limits)
    if notes:
        log.info("callback_changed", run_id=str(row.run_id), notes=notes)
    with access.admission.command():
        already = await service.receive(row, content)
    return {"already": already}


async def _read_call(request: Request, bytes_max: int) -> webhook_body.Call:
    body = await read_body(request, bytes_max)
    return webhook_body.Call(webhook_body.read_first_headers(request.headers.items()), body)


async def _find_runtime(path: str, access: Access) -> Runtime:
    """The runtime over the cell where the runs of the webhook's tenant are started by triggers: its first."""
    if not access.cells.several:
        return access.runtime
    name, tenant = tenant_of(path), None
    if tenants.NAME.fullmatch(name):
        tenant = await tenants.find_tenant(access.pool, name)
    return access.cells.at(HOME if tenant is None else tenant.cells[0])
