"""`/ag-ui` and `/send-message`: AG-UI, in the profile of the protocol version that the client names."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header
from fastapi.responses import JSONResponse, Response

import hai_flow
from hai_flow.api.http.bodies import limits_of
from hai_flow.api.permissions.rights import Right
from hai_flow.api.protocols.conversation import respond
from hai_flow.api.protocols.openapi_streams import ANY_OBJECT, REFUSALS, RUN_AGENT_INPUT, describe_stream
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess, JsonBody
from hai_flow.api.routes import RouteOptions, Routes
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.wire.dialects.agui import AGUI, PROTOCOL, decode
from hai_flow.wire.dialects.agui_capabilities import capabilities

router = Routes(tags=["dialects"])

Accept = Annotated[str, Header()]


async def answer(
    body: bytes, access: Access, accept: str, workflow: str | None = None, *, corrects: bool = False
) -> Response:
    """The stream that the POST leads to. Only peers that speak 1.0 can read all of AG-UI's binary form; older ones get
    text, even if they accept the binary form (docs/design/protocols.md#http-exchange). `corrects` as in `respond`."""
    posted = await run_by_size(len(body), decode, body, limits_of(access.settings))
    dialect = AGUI.choose_framing(accept) if posted.profile.version == PROTOCOL else AGUI
    return await respond(posted, access, dialect, workflow, corrects=corrects)


_POSTED: Final[RouteOptions] = {"openapi_extra": RUN_AGENT_INPUT, "answer": describe_stream(AGUI), "refusals": REFUSALS}


@router.post("/ag-ui", Right.SEE_OWN, name="post_agui", **_POSTED)
@router.post("/send-message", Right.SEE_OWN, name="post_message", **_POSTED)
async def post_agui(body: JsonBody, access: CurrentAccess, accept: Accept = "") -> Response:
    """AG-UI: start a run, answer its open questions, or attach to it. The response streams one turn."""
    return await answer(body, access, accept)


@router.post("/workflows/{name}/ag-ui", Right.SEE_OWN, name="post_workflow_agui", **_POSTED)
@router.post("/workflows/{name}/send-message", Right.SEE_OWN, name="post_workflow_message", **_POSTED)
async def post_workflow_agui(name: str, body: JsonBody, access: CurrentAccess, accept: Accept = "") -> Response:
    """AG-UI, for one workflow."""
    return await answer(body, access, accept, name)


_CAPABILITIES: Final = {"content": ANY_OBJECT}


@router.get("/ag-ui/capabilities", Right.SEE_OWN, answer=_CAPABILITIES, refusals=(404,))
async def get_agui_capabilities(access: CurrentAccess) -> JSONResponse:
    """AG-UI: the capabilities of the agents here (AgentCapabilities)."""
    return JSONResponse(capabilities("hai-flow", hai_flow.__version__))


@router.get("/workflows/{name}/ag-ui/capabilities", Right.SEE_OWN, answer=_CAPABILITIES, refusals=(404,))
async def get_workflow_agui_capabilities(name: str, access: CurrentAccess) -> JSONResponse:
    """AG-UI: the capabilities of one workflow."""
    stored, plan = await access.catalog.resolve(access.tenant, name)
    return JSONResponse(capabilities(stored.name, hai_flow.__version__, plan.description or stored.title))
