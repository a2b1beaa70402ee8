"""`/v1/workflows`: publish, validate, list and get."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from hai_flow.api.deps import CurrentPrincipal, CurrentRuntime, CurrentSettings, read_body
from hai_flow.api.views import workflow_view
from hai_flow.definition.compiler import check_workflow
from hai_flow.store import workflows

router = APIRouter(prefix="/v1/workflows", tags=["workflows"])

YAML_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/yaml": {"schema": {"type": "string"}}}}
}


@router.post("", status_code=201, openapi_extra=YAML_BODY)
async def publish_workflow(
    request: Request,
    runtime: CurrentRuntime,
    principal: CurrentPrincipal,
    settings: CurrentSettings,
    dev: Annotated[bool, Query(description="a copy under `version+sha8` that may be replaced")] = False,
) -> dict[str, Any]:
    """Publish the YAML document in the body. Published is immutable: other bytes under its name and version are 409."""
    source = await read_body(request, settings.request_bytes_max)
    stored, plan = await runtime.catalog.publish(principal.tenant, source, dev=dev)
    return {**workflow_view(stored), "warnings": [finding.as_dict() for finding in plan.warnings]}


@router.post("/validate", openapi_extra=YAML_BODY)
async def validate_workflow(request: Request, principal: CurrentPrincipal, settings: CurrentSettings) -> dict[str, Any]:
    """Check the YAML document in the body without storing it: every finding at once."""
    source = await read_body(request, settings.request_bytes_max)
    findings = [finding.as_dict() for finding in check_workflow(source, "<workflow>")]
    return {"valid": all(finding["severity"] != "error" for finding in findings), "findings": findings}


@router.get("")
async def list_workflows(runtime: CurrentRuntime, principal: CurrentPrincipal) -> dict[str, Any]:
    """The latest version of each workflow, by name."""
    found = await workflows.list_workflows(runtime.database.api, principal.tenant)
    return {"items": [workflow_view(each) for each in found], "next_cursor": None}


@router.get("/{reference}")
async def get_workflow(reference: str, runtime: CurrentRuntime, principal: CurrentPrincipal) -> dict[str, Any]:
    """One workflow (`name`, `name@version` or `name@version+sha8`): its source, its schemas, and its other versions."""
    stored, plan = await runtime.catalog.resolve(principal.tenant, reference)
    others = await workflows.versions_of_workflow(runtime.database.api, principal.tenant, stored.name)
    return {
        **workflow_view(stored),
        "description": plan.description,
        "input": plan.input.raw,
        "steps": [{"path": step.path, "verb": step.verb_name} for step in plan.steps.values()],
        "source": stored.source.decode(),
        "versions": [workflow_view(each) for each in others],
    }


@router.get("/{reference}/source", response_class=Response)
async def get_source(reference: str, runtime: CurrentRuntime, principal: CurrentPrincipal) -> Response:
    """The document's bytes, as they were published."""
    stored, _ = await runtime.catalog.resolve(principal.tenant, reference)
    return Response(stored.source, media_type="application/yaml")
