"""`/v1/workflows`: publish, validate, format, draw, list and get. `/v1/language`: the language of their documents."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from fastapi import Query, Response

from hai_flow import values
from hai_flow.api.base.id_patterns import WORDS
from hai_flow.api.http.problems import WITH_BODY
from hai_flow.api.permissions.principals import reject_missing_right
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess, WorkflowBody
from hai_flow.api.requests.pagination import PageCursor, PageLimit, cut, decode_place, encode_place
from hai_flow.api.requests.views import render_finding, render_workflow
from hai_flow.api.routes import Routes
from hai_flow.authoring.formatting import format_source
from hai_flow.authoring.json_schema import workflow_schema
from hai_flow.definition.compiler import check_workflow
from hai_flow.errors import DefinitionError
from hai_flow.graph import Format, draw
from hai_flow.store.catalog import workflows

router = Routes(prefix="/v1/workflows", tags=["workflows"])
language = Routes(prefix="/v1/language", tags=["workflows"])

T = TypeVar("T")

YAML_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/yaml": {"schema": {"type": "string"}}}}
}


@router.post("", Right.PUBLISH, status_code=201, openapi_extra=YAML_BODY, refusals=(403, 409, *WITH_BODY))
async def publish_workflow(
    source: WorkflowBody,
    access: CurrentAccess,
    dev: Annotated[bool, Query(description="a copy under `version+sha8` that may be replaced")] = False,
    unrehearsed: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=500,
            pattern=WORDS,
            description="why it is published without a rehearsal that the deployment demands; takes the right "
            "`manage_keys`, too, and is recorded",
        ),
    ] = None,
) -> schemas.PublishedWorkflow:
    """Publish the YAML document in the body. Published is immutable: other bytes under its name and version are 409.

    403 where this server takes no workflows over the network. 409 `rehearsal_required` where the deployment demands a
    rehearsal of this text on the workflow's runs (`POST /v1/workflows/{name}/backtest?keep=true`)."""
    access.require_publishing()
    if unrehearsed is not None and not access.principal.may(Right.MANAGE_KEYS):
        raise reject_missing_right((Right.MANAGE_KEYS,))
    stored, plan = await access.catalog.publish(
        access.tenant, source, dev=dev, asked=access.asked, unrehearsed=unrehearsed or ""
    )
    await access.repeat()
    access.hint_lists()
    return {**render_workflow(stored), "warnings": [render_finding(each) for each in plan.warnings]}


@router.post("/validate", Right.CHECK_WORKFLOWS, openapi_extra=YAML_BODY, refusals=(*WITH_BODY,))
async def validate_workflow(source: WorkflowBody, access: CurrentAccess) -> schemas.Validation:
    """Check the YAML document in the body without storing it: every finding at once. 429 where too many are being
    checked."""
    checked = await check_beside_loop(access, check_workflow, source, "<workflow>")
    findings = [render_finding(each) for each in checked]
    return {"valid": all(finding["severity"] != "error" for finding in findings), "findings": findings}


@router.post("/format", Right.CHECK_WORKFLOWS, openapi_extra=YAML_BODY, refusals=(*WITH_BODY,))
async def format_workflow(source: WorkflowBody, access: CurrentAccess) -> schemas.Formatted:
    """The YAML document in the body in its one form (`hai-flow fmt`), with its meaning and its comments. 422 where YAML
    can't read it."""
    text = await check_beside_loop(access, format_source, source)
    return {"source": text, "changed": text.encode() != source}


@router.get("", Right.READ_WORKFLOWS)
async def list_workflows(
    access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None
) -> schemas.WorkflowPage:
    """The latest version of each workflow, by name."""
    place = decode_place(cursor)
    after = "" if place is None else place[1]
    listed = await workflows.list_workflows(access.reads, access.tenant, limit=limit + 1, after=after)
    rows, following = cut(listed, limit, lambda row: encode_place(0, row.name))
    return {"items": [render_workflow(each) for each in rows], "next_cursor": following}


@router.post("/{reference}/retire", Right.PUBLISH, refusals=(404, 409, 422))
async def retire_workflow(reference: str, access: CurrentAccess) -> schemas.WorkflowSummary:
    """Retire `name@version`: no run, child or fork begins with it any more, by whatever way; those that have begun go
    on. `name` means the highest version that is in use. To retire it again changes nothing."""
    return await _retire(access, reference, retired=True)


@router.post("/{reference}/unretire", Right.PUBLISH, refusals=(404, 409, 422))
async def unretire_workflow(reference: str, access: CurrentAccess) -> schemas.WorkflowSummary:
    """Take `name@version` back into use."""
    return await _retire(access, reference, retired=False)


async def _retire(access: Access, reference: str, *, retired: bool) -> schemas.WorkflowSummary:
    stored = await access.catalog.retire(access.tenant, reference, retired=retired, asked=access.asked)
    await access.repeat()
    access.hint_lists()
    return render_workflow(stored)


@router.get("/{reference}", Right.READ_WORKFLOWS, refusals=(404,))
async def get_workflow(reference: str, access: CurrentAccess) -> schemas.Workflow:
    """One workflow (`name`, `name@version` or `name@version+sha8`): its source, its schemas, and its other versions."""
    stored, plan = await access.catalog.resolve(access.tenant, reference)
    others = await workflows.list_versions_of_workflow(access.reads, access.tenant, stored.name)
    return {
        **render_workflow(stored),
        "description": plan.description,
        "input": plan.input.raw,
        "steps": [{"path": step.path, "verb": step.verb_name} for step in plan.steps.values() if not step.is_filler],
        "source": plan.source.decode(),
        "versions": [render_workflow(each) for each in others],
    }


@router.get(
    "/{reference}/source",
    Right.READ_WORKFLOWS,
    response_class=Response,
    refusals=(404,),
    answer={"content": {"application/yaml": {"schema": {"type": "string"}}}},
)
async def get_source(reference: str, access: CurrentAccess) -> Response:
    """The document's bytes, as they were published."""
    _, plan = await access.catalog.resolve(access.tenant, reference)
    return Response(plan.source, media_type="application/yaml")


_MEDIA_TYPES: Final[dict[Format, str]] = {
    "mermaid": "text/vnd.mermaid",
    "svg": "image/svg+xml",
    "json": "application/json",
}
# A picture opened as a page of its own may style itself, and nothing else.
_PICTURE_HEADERS: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


_DRAWN: Final[dict[str, Any]] = {
    "model": schemas.Graph,
    "content": {each: {"schema": {"type": "string"}} for each in _MEDIA_TYPES.values() if "json" not in each},
}
_Form: TypeAlias = Annotated[Format, Query(alias="format", description="text for Mermaid, a picture, or what is in it")]


async def check_beside_loop(access: Access, function: Callable[..., T], *args: Any) -> T:
    """What the function makes of a document, beside the loop. Raises Rejected 429."""
    who = f"{access.tenant} {access.principal.id}"
    return await access.catalog.checks.make(who, function, *args)


async def _picture(access: Access, source: bytes, form: Format) -> Response:
    picture = await check_beside_loop(access, draw, source, form)
    return Response(picture, media_type=_MEDIA_TYPES[form], headers=_PICTURE_HEADERS)


@router.post(
    "/graph",
    Right.CHECK_WORKFLOWS,
    response_class=Response,
    openapi_extra=YAML_BODY,
    refusals=(*WITH_BODY,),
    answer=_DRAWN,
)
async def draw_text(source: WorkflowBody, access: CurrentAccess, form: _Form = "mermaid") -> Response:
    """The picture of the YAML document in the body, which is not stored. 422 with every finding where it is no valid
    workflow."""
    findings = await check_beside_loop(access, check_workflow, source, "<workflow>")
    if any(finding.severity == "error" for finding in findings):
        raise DefinitionError(findings)
    return await _picture(access, source, form)


@router.get("/{reference}/graph", Right.READ_WORKFLOWS, response_class=Response, refusals=(404,), answer=_DRAWN)
async def get_graph(reference: str, access: CurrentAccess, form: _Form = "mermaid") -> Response:
    """The workflow as a picture: its steps, branches, loops, handlers, and the deciders of each question. As `json`:
    each step with its verb and its place in the source, and each shape with the step that it belongs to."""
    _, plan = await access.catalog.resolve(access.tenant, reference)
    return await _picture(access, plan.source, form)


@cache
def _schema() -> bytes:
    return values.dumps(workflow_schema())


@language.get(
    "/schema",
    Right.READ_WORKFLOWS,
    response_class=Response,
    answer={"content": {"application/json": {"schema": {"type": "object"}}}},
)
async def get_language_schema() -> Response:
    """The JSON Schema (2020-12) of workflow documents, for editors: the keys of each place, and their meaning."""
    return Response(_schema(), media_type="application/json")
