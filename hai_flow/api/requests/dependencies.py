"""The dependencies of routes: what FastAPI makes of each request before a route is called."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Final, TypeAlias

from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from hai_flow.api.auth.tickets import PARAMETER
from hai_flow.api.base import peers
from hai_flow.api.http.bodies import JSON, YAML, demand_media_type, read_body
from hai_flow.api.mcp_resource import base_of
from hai_flow.api.permissions.principals import NOBODY, Principal, get_principal, look_at_connection, read_once
from hai_flow.api.requests.access import Access
from hai_flow.cells import HOME, TenantCells
from hai_flow.definition.names.wording import suggestion
from hai_flow.errors import Rejected, describe_findings
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.cells import Cells

_KEY: Final = "Idempotency-Key"


@look_at_connection
async def get_access(request: HTTPConnection) -> Access:
    principal = await get_principal(request)
    cells: Cells = request.app.state.cells
    access = _access(request, principal, await cells.living(principal.tenant))
    return await _find_access_of_path(access, request) if cells.several else access


async def _find_access_of_path(access: Access, request: HTTPConnection) -> Access:
    """The access to the cell of the run, question or thread that the path names; without one, to the tenant's first
    cell."""
    named = request.path_params
    if (thread_id := named.get("thread_id")) is not None:
        return await access.find_at_thread(thread_id)
    if (run_id := named.get("run_id")) is not None:
        return await access.find_at_run(run_id)
    return await access.find_at_pending(named.get("pending_id", ""))


@look_at_connection
async def get_open_access(request: HTTPConnection) -> Access:
    return _access(request, NOBODY, TenantCells.in_one(HOME))


def _access(request: HTTPConnection, principal: Principal, living: TenantCells) -> Access:
    state = request.app.state
    peer = peers.find_peer(request.scope)
    place = state.admission.place(peer, principal.tenant)
    return Access(
        principal,
        state.cells,
        living.seat,
        living,
        state.settings,
        state.admission,
        place,
        actor_of(request, principal),
        peer,
        state.decisions,
        state.terms,
        partial(base_of, state.settings.public_url, request),
        state.lists,
        state.publishing,
        state.development,
    )


def actor_of(request: HTTPConnection, principal: Principal) -> AuditActor:
    return AuditActor(
        who=principal.who,
        way=principal.way,
        credential=principal.credential,
        address=None if request.client is None else request.client.host,
        via=getattr(request.scope.get("route"), "path", None),
    )


@read_once
async def get_json_body(request: Request) -> bytes:
    """The body's bytes, declared as JSON, for routes that read it themselves. Raises Rejected 415."""
    body = await read_body(request, request.app.state.settings.request_bytes_max)
    demand_media_type(request, body, (JSON,))
    return body


async def get_workflow_body(request: Request) -> bytes:
    """A workflow document's bytes: YAML, or JSON, which is YAML too. Raises Rejected 415."""
    body = await read_body(request, request.app.state.settings.request_bytes_max)
    demand_media_type(request, body, YAML)
    return body


@look_at_connection
async def refuse_unknown_parameters(request: HTTPConnection) -> None:
    """Refuse query parameters that an operation under `/v1/` does not have: if a misspelt one were ignored, the client
    would get an answer to another question. Raises Rejected 422.

    Routes of protocols are not as strict: their clients may send more than they need."""
    if not request.scope["query_string"] or not request.url.path.startswith("/v1/"):
        return
    names = sorted(_list_query_names(request.scope["route"]))
    findings = [
        {
            "path": f"/query/{name}",
            "message": f"there is no such parameter{suggestion(name, names)}",
            "code": "request.unknown_parameter",
            "params": [name],
        }
        for name in request.query_params
        if name not in (*names, PARAMETER)
    ]
    if findings:
        has = f" This operation has {', '.join(names)}." if names else " This operation has none."
        detail = "; ".join(describe_findings(findings))
        raise Rejected(422, "request.invalid", f"{detail}.{has}", findings=findings)


def _list_query_names(route: APIRoute) -> frozenset[str]:
    names: set[str] = set()
    waiting = [route.dependant]
    while waiting:
        dependant = waiting.pop()
        names.update(parameter.alias for parameter in dependant.query_params)
        waiting.extend(dependant.dependencies)
    return frozenset(names)


@look_at_connection
async def get_command_key(
    connection: HTTPConnection,
    key: Annotated[
        str | None, Header(alias=_KEY, description="the same key again: the first outcome again, nothing happens")
    ] = None,
) -> str | None:
    """A client's Idempotency-Key as a command id. Keys are separate for each caller: two callers may use the same one.
    Raises Rejected 422."""
    key = connection.headers.get(_KEY)  # also where the route calls this; the parameter is for OpenAPI
    if key is None:
        return None
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
        raise Rejected(422, "idempotency_key.invalid", "Idempotency-Key: expected 1 to 200 visible ASCII characters.")
    principal = await get_principal(connection)
    if principal.way == "local":
        return f"http:{key}"
    kind, _, name = principal.id.partition(":")
    return f"http:{kind}:{name.replace('%', '%25').replace(':', '%3A')}:{key}"  # a key may have colons, too


CurrentAccess: TypeAlias = Annotated[Access, Depends(get_access)]
OpenAccess: TypeAlias = Annotated[Access, Depends(get_open_access)]  # of a route that asks for no credential
JsonBody: TypeAlias = Annotated[bytes, Depends(get_json_body)]
WorkflowBody: TypeAlias = Annotated[bytes, Depends(get_workflow_body)]
CommandKey: TypeAlias = Annotated[str | None, Depends(get_command_key)]
KEY_REUSED: Final = "this Idempotency-Key was used before with another body."
