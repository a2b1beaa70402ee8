"""What a caller finds on the MCP server: workflows as tools, runs and threads as resources, templates as prompts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

import mcp_types as types
from mcp.shared.exceptions import MCPError

from hai_flow import values
from hai_flow.api.mcp import card
from hai_flow.api.mcp import runs as mcp_runs
from hai_flow.api.mcp.context import Context, build_access
from hai_flow.api.mcp.tools import TOOLS
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.access import Access
from hai_flow.api.rest.runs.runs import list_runs
from hai_flow.api.rest.runs.threads import get_thread
from hai_flow.authoring.scaffold import TEMPLATES, TemplateName, template
from hai_flow.definition.plan import Plan
from hai_flow.errors import Rejected, Unreadable
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.wire.mcp import TEXT_BYTES_MAX, asking_for, build_prompt, form_of, needs_tasks, tool_of

RUNS_LISTED: Final = 50
NOT_FOUND: Final = -32602
_URI: Final = re.compile(r"hai://(runs|threads|workflows)/([^/?#]{1,200})(/output)?")
_NEW: Final = "new-"  # in front of the names of templates
_OWN_NAMES: Final = frozenset(each.name for each in TOOLS)
_PREFIX: Final = "workflow_"  # in front of the names of workflows that are those of tools of the server's own
_TAKEN: Final = re.compile(f"({_PREFIX})*({'|'.join(_OWN_NAMES)})")


class WorkflowTool(NamedTuple):
    """A workflow that the caller may start."""

    stored: WorkflowSummary
    described: dict[str, Any]
    prompt: dict[str, Any]
    needs_tasks: bool


class McpCatalogue:
    """The lists of the server. Descriptions are kept by the bytes of the workflows."""

    def __init__(self) -> None:
        self._described: dict[bytes, tuple[dict[str, Any], dict[str, Any], bool]] = {}

    async def tools(self, access: Access) -> list[WorkflowTool]:
        """The workflows that the caller may start, by name, each by its latest version."""
        return [self._describe(stored, plan) for stored, plan in await access.list_startable()]

    async def tool(self, access: Access, name: str) -> WorkflowTool | None:
        """The tool of this name; None: there is none for the caller."""
        if name in _OWN_NAMES:
            return None
        workflow = name.removeprefix(_PREFIX) if _TAKEN.fullmatch(name) else name
        startable = await access.find_startable(workflow)
        return None if startable is None else self._describe(*startable)

    def _describe(self, stored: WorkflowSummary, plan: Plan) -> WorkflowTool:
        if plan.sha256 not in self._described:
            if len(self._described) >= 10_000:
                self._described.clear()
            name = _PREFIX + plan.name if _TAKEN.fullmatch(plan.name) else plan.name
            self._described[plan.sha256] = tool_of(plan, name), build_prompt(plan, name), needs_tasks(plan)
        return WorkflowTool(stored, *self._described[plan.sha256])

    # --- resources

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The newest runs that the caller sees, and the card."""
        page = await list_runs(build_access(ctx), RUNS_LISTED)  # of all cells
        runs = [
            {
                "uri": f"hai://runs/{run['id']}",
                "name": f"run-{run['id']}",
                "title": f"{run['workflow']}: {run['status']}",
                "mimeType": "application/json",
            }
            for run in page["items"]
        ]
        return types.ListResourcesResult.model_validate({"resources": [card.RESOURCE, *runs]})

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """The forms of addresses of resources."""
        templates = [
            {"uriTemplate": f"hai://{path}", "name": name, "mimeType": "application/json"}
            for path, name in (
                ("runs/{run_id}", "a run"),
                ("runs/{run_id}/output", "the output of a run"),
                ("threads/{thread_id}", "a thread"),
                ("workflows/{name}", "a workflow that may be started"),
            )
        ]
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": templates})

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """A run, its output, a thread, a workflow or the card. What the caller does not see is not found."""
        uri, access = str(params.uri), build_access(ctx)
        if uri == card.URI:
            return types.ReadResourceResult.model_validate({"contents": [card.content()]})
        match = _URI.fullmatch(uri)
        if match is None or (match[3] and match[1] != "runs"):
            raise _raise_missing_resource(uri)
        if match[1] == "workflows":
            tool = await self.tool(access, match[2])
            if tool is None:
                raise _raise_missing_resource(uri)
            text = form_of(tool.described)
        else:
            try:
                text = values.dumps(await _read(access, *match.groups())).decode()
            except (Rejected, Unreadable):
                raise _raise_missing_resource(uri) from None
        content = {"uri": uri, "mimeType": "application/json", "text": text}
        return types.ReadResourceResult.model_validate({"contents": [content]})

    # --- prompts

    async def list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        """The workflows that the caller may start, and the templates of `hai-flow new` as beginnings of one."""
        arguments = [{"name": "name", "description": "the name of the new workflow", "required": False}]
        prompts = [
            {"name": _NEW + name, "title": f"New workflow: {name}", "description": text, "arguments": arguments}
            for name, text in TEMPLATES.items()
        ]
        startable = [each.prompt for each in await self.tools(build_access(ctx))]
        return types.ListPromptsResult.model_validate({"prompts": [*startable, *prompts]})

    async def get_prompt(
        self, access: Access, requested: str, tool: WorkflowTool | None, arguments: Mapping[str, str]
    ) -> types.GetPromptResult:
        """To start a workflow (`tool`); or a template with its tests, and the loop in which it becomes one's own."""
        if tool is not None:
            names = {each["name"] for each in tool.prompt["arguments"]}
            fields = {name: text for name, text in arguments.items() if name in names}
            messages = asking_for(tool.described, fields)
            prompt = {"description": tool.prompt["description"], "messages": messages}
            return types.GetPromptResult.model_validate(prompt)
        name = requested.removeprefix(_NEW)
        if name not in get_args(TemplateName) or name == requested:
            raise MCPError(NOT_FOUND, f"Unknown prompt: {requested[:100]}")
        workflow_name = arguments.get("name")
        if workflow_name is not None and not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", workflow_name):
            raise MCPError(NOT_FOUND, "name: expected a workflow's name like `refund_order`.")
        drafted = template(name, workflow_name)  # type: ignore[arg-type]
        may_check = access.principal.may(Right.CHECK_WORKFLOWS)
        checks = "validate_workflow and test_workflow" if may_check else "`hai-flow validate` and `hai-flow test`"
        text = (
            f"Write a HAI Flow workflow that begins like this one ({TEMPLATES[name]}). Change it to what is needed, "  # type: ignore[index]
            f"check it with {checks} until neither finds anything, then publish it with `hai-flow publish` or "
            f"`POST /v1/workflows`, or give it to somebody who may.\n\n"
            f"```yaml\n{drafted.workflow}```\n\nIts tests:\n\n```yaml\n{drafted.tests}```\n"
        )
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return types.GetPromptResult.model_validate({"description": TEMPLATES[name], "messages": [message]})  # type: ignore[index]

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """What an argument of a prompt, or the place in an address of a resource, may be: the values of a field with a
        list of them, the names of workflows, or the newest runs that the caller sees."""
        access, argument = build_access(ctx), params.argument
        if isinstance(params.ref, types.PromptReference):
            tool = await self.tool(access, params.ref.name)
            choices = _choices(tool.described["inputSchema"], argument.name) if tool is not None else []
        elif argument.name == "run_id":
            choices = [each.uri.rpartition("/")[2] for each in (await self.list_resources(ctx, None)).resources[1:]]
        elif argument.name == "name":
            choices = [each.described["name"] for each in await self.tools(access)]
        else:
            choices = []
        choices = [each for each in choices if each.startswith(argument.value)]
        completion = {"values": choices[:100], "total": len(choices), "hasMore": len(choices) > 100}
        return types.CompleteResult.model_validate({"completion": completion})


def _choices(schema: dict[str, Any], name: str) -> list[str]:
    properties = schema.get("properties")
    field = properties.get(name) if isinstance(properties, dict) else None
    choices = field.get("enum") if isinstance(field, dict) else None
    return [each for each in choices if isinstance(each, str)] if isinstance(choices, list) else []


async def _read(access: Access, kind: str, id: str, output: str | None) -> Any:
    if kind == "threads":
        return await get_thread(id, await access.find_at_thread(id))
    _, run = await mcp_runs.look(access, id)
    if output:
        return run.state.output
    state = run.state
    return {
        "run_id": state.run_id,
        "workflow": f"{state.workflow}@{state.version}",
        "status": state.status,
        "started_by": state.requester,
        "thread_id": state.thread_id,
        "output": state.output if len(values.dumps(state.output)) <= TEXT_BYTES_MAX else None,
        "questions": [each.pending.opened.id for each in run.questions],
        "url": run.url,
    }


def _raise_missing_resource(uri: str) -> MCPError:
    return MCPError(NOT_FOUND, "Resource not found", {"uri": uri[:500]})
