"""The tool with which an agent has a workflow published: a person who may publish decides over the exact document.

The question is an approval as any other (docs/approvals.md), which the server consumes itself. So a repeated call asks
once, publishes once, and what is published is what was shown."""

from __future__ import annotations

import difflib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response

from hai_flow import values
from hai_flow.api.mcp.tool import Call, ServedTool, make_text_result
from hai_flow.api.permissions.rights import ROLES, Right
from hai_flow.api.requests.access import Access
from hai_flow.api.rest.people import approvals
from hai_flow.api.rest.people.pendings import list_pendings
from hai_flow.api.rest.workflows import check_beside_loop
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.diff import diff
from hai_flow.definition.paths import plan_path
from hai_flow.definition.plan import Plan
from hai_flow.engine.commands import Principal
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.store.messaging import hints

NAME: Final = "draft_publish"
ACTION: Final = "publish_workflow"
DIFF_CHARS_MAX: Final = 7000
COMPARED_LINES_MAX: Final = 500
STRANDED_MAX: Final = 50
PUBLISHERS: Final = tuple(f"role:{name}" for name, rights in ROLES.items() if Right.PUBLISH in rights)


async def _draft(access: Access, params: Mapping[str, Any], call: Call) -> dict[str, Any]:
    access.require_publishing()
    source = params["source"].encode()
    plan = await check_beside_loop(access, compile_workflow, source, "<workflow>")
    await access.catalog.demand_rehearsal(access.tenant, plan)  # before somebody is asked in vain
    arguments = {"workflow": f"{plan.name}@{plan.version}", "sha256": plan.sha256.hex(), "source": params["source"]}
    key = await _key_of(access, [arguments["sha256"], params.get("attempt", 1)])
    id = access.runtime.starts.id_of("rest", str(access.tenant), access.principal.id, key)
    try:
        cell = await access.find_at_run(id)
        approval = await approvals.show(cell, await approvals.find(cell, str(id)))
    except Rejected:
        approval = await approvals.request_approval(
            await _build_question(access, plan, arguments), access, key, Response()
        )
    access = await access.find_at_run(approval["id"])
    state = await approvals.settle(access, approval["id"], params.get("seconds", 0))
    status: str = (await approvals.show(access, state))["status"]
    if status in ("approved", "consumed"):
        consumed = approvals.ConsumeBody(action=ACTION, arguments=arguments)
        await approvals.consume_approval(approval["id"], consumed, access, key)
        approver = approvals.find_approver(state)
        publisher = AuditActor(who=Principal(approver, roles=()), way="approval", credential=approval["id"], via="mcp")
        await access.catalog.publish(access.tenant, source, dev=False, asked=publisher)
        await access.repeat()
        access.hint_lists()
        status = "published"
    view = await approvals.show(access, state)
    page = view["page"]
    says = {
        "published": f"{arguments['workflow']} is published.",
        "pending": f"Nobody has decided yet: that is done at {page}. Call {NAME} with the same source later.",
    }
    reason = view["reason"] or (view["error"] or {}).get("message", "")
    text = says.get(status, f"It is not published: {status}. {reason}".strip())
    content = {"status": status, "workflow": arguments["workflow"], "approval": view["id"], "page": page}
    return make_text_result(text, content)


async def _key_of(access: Access, about: list[Any]) -> str:
    """The key of the question. Nobody else can make it, and begin a run in its place that asks others."""
    seal = await hints.seal_of(access.cells.home.database.api)
    text = values.dumps([NAME, str(access.tenant), access.principal.id, *about])
    return f"{NAME}:{hmac.digest(seal.key, text, 'sha256').hex()}"


async def _build_question(access: Access, plan: Plan, arguments: dict[str, Any]) -> approvals.ApprovalBody:
    policy: dict[str, Any] = {"from": list(PUBLISHERS)}
    if access.principal.is_anybody:  # one person, who is everybody
        policy = {"from": [access.principal.id], "exclude": []}
    return approvals.ApprovalBody(
        action=ACTION, arguments=arguments, policy=policy, expires_in="7d",
        title=f"Publish {arguments['workflow']}?"[:300], message=await _describe(access, plan, arguments["source"]),
    )  # fmt: skip


async def _describe(access: Access, plan: Plan, text: str) -> str:
    """What is new against the latest version, and the open questions whose step is gone, as Markdown."""
    try:
        _, old = await access.catalog.resolve(access.tenant, plan.name)
    except Rejected:
        return f"There is no workflow `{plan.name}` yet; the whole document stands in the arguments."
    before = old.source.decode(errors="replace").splitlines()
    names = f"{old.name}@{old.version}", f"{plan.name}@{plan.version}"
    view = await check_beside_loop(access, list_changed_lines, before, text.splitlines(), names)
    fence = "`" * (max([2, *(len(each) for each in re.findall("`+", view))]) + 1)  # nothing in it ends it
    return f"{fence}diff\n{view}\n{fence}\n\n{await _tell_stranded(access, old, plan)}"


def _count_alike(before: list[str], after: list[str]) -> int:
    """How many lines are the same in both from the beginning on."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (was, now) in pairs if was != now), min(len(before), len(after)))


def list_changed_lines(before: list[str], after: list[str], names: tuple[str, str]) -> str:
    """The lines that differ, as `diff -u` shows them: the first characters. In long documents that have thousands of
    lines between the first change and the last, all of these are shown as changed: to find which are the same takes a
    time that grows with the product of their numbers."""
    alike = _count_alike(before, after)
    tail = _count_alike(before[alike:][::-1], after[alike:][::-1])
    changed = [lines[alike : len(lines) - tail] for lines in (before, after)]
    if len(changed[0]) * len(changed[1]) <= COMPARED_LINES_MAX**2:
        view = "\n".join(difflib.unified_diff(before, after, *names, lineterm=""))
    else:
        head = [f"--- {names[0]}", f"+++ {names[1]}"]
        head.append(f"@@ -{alike + 1},{len(changed[0])} +{alike + 1},{len(changed[1])} @@")
        lines = [*(f"-{line}" for line in changed[0]), *(f"+{line}" for line in changed[1])]
        view = "\n".join([*head, *lines])
    if len(view) > DIFF_CHARS_MAX:
        view = f"{view[:DIFF_CHARS_MAX]}\n… the rest stands in the arguments"
    return view


async def _tell_stranded(access: Access, old: Plan, new: Plan) -> str:
    """Runs go on in their version; those that are migrated to the new one would not find the step that they wait at."""
    same = (await check_beside_loop(access, diff, old, new)).same
    page = await list_pendings(access, STRANDED_MAX, None, new.name, None)
    paths = {each["run_id"]: plan_path(each["path"]) for each in page["items"]}
    gone = {run: path for run, path in paths.items() if path in old.steps and path not in same}
    if not gone:
        return "No run that its author sees waits at a step that is gone."
    listed = "\n".join(f"- `{run}` at `{path}`" for run, path in gone.items())
    return f"These runs wait at steps that are gone. They go on in their version, and can't be migrated:\n\n{listed}"


TOOLS: Final = (
    ServedTool(
        NAME, "Have a workflow published",
        "Asks a person who may publish, with the document, what is new against the latest version, and the runs that "
        "wait at steps that are gone. Call it again with the same source: it publishes once somebody has approved.",
        {
            "source": {"type": "string", "minLength": 1, "description": "the workflow's YAML, without findings"},
            "attempt": {
                "type": "integer", "minimum": 1, "maximum": 100, "default": 1,
                "description": "a higher number asks anew, where the same document was rejected or has expired",
            },
            "seconds": {"type": "integer", "minimum": 0, "maximum": 50, "default": 0, "description": "to wait"},
        },
        _draft, (Right.CHECK_WORKFLOWS,), ("source",),
        output={
            "type": "object", "required": ["status", "workflow"],
            "properties": {
                "status": {"enum": ["pending", "published", "rejected", "expired", "cancelled", "failed"]},
                "workflow": {"type": "string"}, "approval": {"type": "string"}, "page": {"type": "string"},
            },
        },
    ),
)  # fmt: skip
