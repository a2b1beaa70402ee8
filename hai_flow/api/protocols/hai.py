"""`/awp`: HAI, over Server-Sent Events or binary, by `Accept`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Final

from fastapi import Header
from fastapi.responses import Response

from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.protocols.conversation import converse
from hai_flow.api.protocols.openapi_streams import REFUSALS, RUN_AGENT_INPUT, describe_stream
from hai_flow.api.requests.dependencies import CurrentAccess, JsonBody
from hai_flow.api.routes import Routes
from hai_flow.wire.dialects.hai import HAI

router = Routes(tags=["dialects"])

_STREAM: Final = describe_stream(HAI)


@router.post("/awp", Right.SEE_OWN, openapi_extra=RUN_AGENT_INPUT, answer=_STREAM, refusals=REFUSALS)
async def post_awp(body: JsonBody, access: CurrentAccess, accept: Annotated[str, Header()] = "") -> Response:
    """HAI: start a run, answer its open questions, or attach to it. The response streams one turn."""
    return await converse(body, access, HAI.choose_framing(accept))


@router.post("/workflows/{name}/awp", Right.SEE_OWN, openapi_extra=RUN_AGENT_INPUT, answer=_STREAM, refusals=REFUSALS)
async def post_workflow_awp(
    name: str, body: JsonBody, access: CurrentAccess, accept: Annotated[str, Header()] = ""
) -> Response:
    """HAI, for one workflow."""
    return await converse(body, access, HAI.choose_framing(accept), name)


def build_alias_routes(aliases: Iterable[str]) -> Routes:
    """`/awp` under further paths: the samples of the HAI document post to `/chat` and others. `/task=plan`: for one
    workflow."""
    routes = Routes()
    for number, alias in enumerate(aliases, 1):
        path, _, workflow = alias.partition("=")
        routes.add_api_route(
            path,
            _alias_of(workflow or None),
            dependencies=[requires(Right.SEE_OWN, like=("POST", "/awp"))],
            methods=["POST"],
            response_model=None,
            include_in_schema=False,
            name=f"post_alias_{number}",
        )
    return routes


def _alias_of(workflow: str | None) -> Callable[..., Awaitable[Response]]:
    async def post_alias(body: JsonBody, access: CurrentAccess, accept: Annotated[str, Header()] = "") -> Response:
        return await converse(body, access, HAI.choose_framing(accept), workflow)

    return post_alias
