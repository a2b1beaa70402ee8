"""`/mcp`: workflows as tools of the Model Context Protocol, for agents (docs/protocols/mcp.md). The route identifies
the caller and reads the body; the SDK reads the message and calls the handlers of `server`. No session is kept, so any
process answers any request; the handshake of older revisions is in the id of their session (`sessions`). SDK and
handlers are loaded with the first request."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from hai_flow.api.http.bodies import limits_of, load_json
from hai_flow.api.http.problems import WITH_BODY, list_refusal_responses
from hai_flow.api.mcp_resource import METADATA_PATH, PATH, base_of
from hai_flow.api.permissions.principals import open_to_everybody, requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess, JsonBody
from hai_flow.api.routes import refer_to_shape
from hai_flow.errors import Rejected

ACCESS: Final = "hai_flow.mcp.access"  # the scope's key of the caller's access

router = APIRouter(tags=["mcp"])

_ANY: Final = (
    Right.SEE_OWN, Right.SEE_RUNS, Right.SPEAK, Right.START_RUNS, Right.ANSWER, Right.DECIDE, Right.SEE_INBOX,
    Right.READ_WORKFLOWS, Right.CHECK_WORKFLOWS,
)  # fmt: skip


class _Exchange(Response):
    """One message, answered by the SDK."""

    def __init__(self, access: Access, body: bytes, message: Any) -> None:
        super().__init__()
        self._access = access
        self._body = body
        self._message = message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if getattr(scope["app"].state, "mcp", None) is None:  # the SDK takes 0.7 s, in which others are served
            await asyncio.to_thread(import_module, f"{__name__}.server")
        from hai_flow.api.mcp.server import server_of

        server = await server_of(scope["app"], self._access)
        unread: list[Message] = [{"type": "http.request", "body": self._body, "more_body": False}]

        async def receive_again() -> Message:
            return unread.pop() if unread else await receive()

        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]  # as RFC 9110 reads them
        scope = {**scope, "headers": headers, ACCESS: self._access}
        await server.answer(scope, receive_again, send, self._message)


@router.post(
    PATH,
    dependencies=[requires(*_ANY)],
    response_model=None,
    responses={
        **list_refusal_responses(*WITH_BODY),
        200: {"description": "an answer in JSON-RPC, as JSON or as a stream"},
    },
)
async def post_message(request: Request, access: CurrentAccess, body: JsonBody) -> Response:
    """A message of an MCP client (streamable HTTP, revisions 2025-03-26 to 2026-07-28)."""
    try:
        # Whatever two readers could understand differently is refused.
        message = await load_json(body, limits_of(access.settings))
    except Rejected as rejected:
        error = {"code": -32700, "message": rejected.detail, "data": {"code": rejected.code}}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
    return _Exchange(access, body, message)


@router.get(
    METADATA_PATH,
    dependencies=[open_to_everybody()],
    response_model=None,
    responses={**list_refusal_responses(404), 200: refer_to_shape({"model": schemas.ProtectedResource})},
)
async def get_metadata(request: Request) -> schemas.ProtectedResource:
    """The issuers whose tokens open `/mcp` (RFC 9728). 404 where no issuer is configured."""
    settings, issuers = request.app.state.settings, request.app.state.identity.issuer_names
    if not issuers:
        raise Rejected(404, "not_found", "this server takes API keys alone; no issuer gives tokens for it.")
    return {
        "resource": base_of(settings.public_url, request) + PATH,
        "authorization_servers": list(issuers),
        "bearer_methods_supported": ["header"],
        "resource_name": "HAI Flow",
    }
