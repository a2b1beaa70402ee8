"""`/v1/workflows`: publish, validate, list and get."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from hai_flow.api import shapes
from hai_flow.api.deps import CurrentAccess, WorkflowBody
from hai_flow.api.pages import PageCursor, PageLimit, cut, decode_place, encode_place
from hai_flow.api.principals import requires
from hai_flow.api.problems import WITH_BODY, documented
from hai_flow.api.rights import Right
from hai_flow.api.views import workflow_view
from hai_flow.definition.compiler import check_workflow
from hai_flow.graph import Format, draw
from hai_flow.store import workflows

router = APIRouter(prefix="/v1/workflows", tags=["workflows"])

YAML_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/yaml": {"schema": {"type": "string"}}}}
}


@router.post(
    "",
    dependencies=[requires(Right.PUBLISH)],
    status_code=201,
    response_model=None,
    openapi_extra=YAML_BODY,
    responses={**documented(403, 409, *WITH_BODY), 201: {"model": shapes.PublishedWorkflow}},
)
async def publish_workflow(
    source: WorkflowBody,
    access: CurrentAccess,
    dev: Annotated[bool, Query(description="a copy under `version+sha8` that may be replaced")] = False,
) -> dict[str, Any]:
    """Publish the YAML document in the body. Published is immutable: other bytes under its name and version are 409.

    403 where this server takes no workflows over the network.
    """
    access.require_publishing()
    stored, plan = await access.catalog.publish(access.tenant, source, dev=dev, asked=access.asked)
    return {**workflow_view(stored), "warnings": [finding.as_dict() for finding in plan.warnings]}


@router.post(
    "/validate",
    dependencies=[requires(Right.CHECK_WORKFLOWS)],
    response_model=None,
    openapi_extra=YAML_BODY,
    responses={**documented(*WITH_BODY), 200: {"model": shapes.Validation}},
)
async def validate_workflow(source: WorkflowBody) -> dict[str, Any]:
    """Check the YAML document in the body without storing it: every finding at once."""
    findings = [finding.as_dict() for finding in check_workflow(source, "<workflow>")]
    return {"valid": all(finding["severity"] != "error" for finding in findings), "findings": findings}


@router.get(
    "",
    dependencies=[requires(Right.READ_WORKFLOWS)],
    response_model=None,
    responses={**documented(), 200: {"model": shapes.WorkflowPage}},
)
async def list_workflows(access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None) -> dict[str, Any]:
    """The latest version of each workflow, by name."""
    place = decode_place(cursor)
    after = "" if place is None else place[1]
    found = await workflows.list_workflows(access.reads, access.tenant, limit=limit + 1, after=after)
    rows, following = cut(found, limit, lambda row: encode_place(0, row.name))
    return {
        "items": [workflow_view(each) for each in rows],
        "next_cursor": following,
    }


@router.get(
    "/{reference}",
    dependencies=[requires(Right.READ_WORKFLOWS)],
    response_model=None,
    responses={**documented(404), 200: {"model": shapes.Workflow}},
)
async def get_workflow(reference: str, access: CurrentAccess) -> dict[str, Any]:
    """One workflow (`name`, `name@version` or `name@version+sha8`): its source, its schemas, and its other versions."""
    stored, plan = await access.catalog.resolve(access.tenant, reference)
    others = await workflows.versions_of_workflow(access.reads, access.tenant, stored.name)
    return {
        **workflow_view(stored),
        "description": plan.description,
        "input": plan.input.raw,
        "steps": [{"path": step.path, "verb": step.verb_name} for step in plan.steps.values()],
        "source": stored.source.decode(),
        "versions": [workflow_view(each) for each in others],
    }


@router.get(
    "/{reference}/source",
    dependencies=[requires(Right.READ_WORKFLOWS)],
    response_class=Response,
    responses={**documented(404), 200: {"content": {"application/yaml": {"schema": {"type": "string"}}}}},
)
async def get_source(reference: str, access: CurrentAccess) -> Response:
    """The document's bytes, as they were published."""
    stored, _ = await access.catalog.resolve(access.tenant, reference)
    return Response(stored.source, media_type="application/yaml")


_MEDIA_TYPES: Final[dict[Format, str]] = {"mermaid": "text/vnd.mermaid", "svg": "image/svg+xml"}
# A picture opened as a page of its own may style itself, and nothing else.
_PICTURE_HEADERS: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@router.get(
    "/{reference}/graph",
    dependencies=[requires(Right.READ_WORKFLOWS)],
    response_class=Response,
    responses={
        **documented(404),
        200: {"content": {media_type: {"schema": {"type": "string"}} for media_type in _MEDIA_TYPES.values()}},
    },
)
async def get_graph(
    reference: str,
    access: CurrentAccess,
    form: Annotated[Format, Query(alias="format", description="text for Mermaid, or a picture")] = "mermaid",
) -> Response:
    """The workflow as a picture: its steps, branches, loops, handlers, and the deciders of each question."""
    stored, _ = await access.catalog.resolve(access.tenant, reference)
    picture = await asyncio.to_thread(draw, stored.source, form)
    return Response(picture, media_type=_MEDIA_TYPES[form], headers=_PICTURE_HEADERS)
