"""`/ag-ui` and `/send-message`: AG-UI, in the profile of the version that the client says it speaks."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header
from fastapi.responses import Response

from hai_flow.api.bodies import limits_of
from hai_flow.api.conversation import RUN_AGENT_INPUT, respond, streamed
from hai_flow.api.deps import Access, CurrentAccess, RawBody
from hai_flow.wire.agui import AGUI, PROTOCOL, decode

router = APIRouter(tags=["dialects"])

_RESPONSES: Final = streamed(AGUI)

Accept = Annotated[str, Header()]


async def answer(body: bytes, access: Access, accept: str, workflow: str | None = None) -> Response:
    """The stream that the POST leads to. Only peers that speak 1.0 can read all of its binary form: for the others
    there is none, whatever they accept (PROTOCOLS section 1.4)."""
    posted = decode(body, limits_of(access.settings))
    dialect = AGUI.accepted(accept) if posted.profile.version == PROTOCOL else AGUI
    return await respond(posted, access, dialect, workflow)


@router.post("/ag-ui", name="post_agui", response_model=None, openapi_extra=RUN_AGENT_INPUT, responses=_RESPONSES)
@router.post(
    "/send-message", name="post_message", response_model=None, openapi_extra=RUN_AGENT_INPUT, responses=_RESPONSES
)
async def post_agui(body: RawBody, access: CurrentAccess, accept: Accept = "") -> Response:
    """AG-UI: start a run, answer what it waits for, or attach to it. The response streams one turn."""
    return await answer(body, access, accept)


@router.post(
    "/workflows/{name}/ag-ui",
    name="post_workflow_agui",
    response_model=None,
    openapi_extra=RUN_AGENT_INPUT,
    responses=_RESPONSES,
)
@router.post(
    "/workflows/{name}/send-message",
    name="post_workflow_message",
    response_model=None,
    openapi_extra=RUN_AGENT_INPUT,
    responses=_RESPONSES,
)
async def post_workflow_agui(name: str, body: RawBody, access: CurrentAccess, accept: Accept = "") -> Response:
    """AG-UI, for one workflow."""
    return await answer(body, access, accept, name)
