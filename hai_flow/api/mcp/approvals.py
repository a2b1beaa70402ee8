"""Tools with which an agent that lives elsewhere asks people before it acts (docs/approvals.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response

from hai_flow.api.mcp.runs import read_body
from hai_flow.api.mcp.tool import Call, ServedTool, make_text_result
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.rest.people import approvals

_SECONDS: Final = {
    "type": "integer",
    "minimum": 0,
    "maximum": 50,
    "default": 20,
    "description": "wait so long for a decision",
}
_TEXT: Final = {"type": "string", "minLength": 1}


async def _request(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    body = read_body(approvals.ApprovalBody, {name: each for name, each in given.items() if name != "seconds"})
    key = None if call.key is None else f"mcp:{access.principal.id}:{call.key}"
    approval = await approvals.request_approval(body, access, key, Response())
    access = await access.find_at_run(approval["id"])
    state = await approvals.settle(access, approval["id"], given.get("seconds", 20))
    return _result(await approvals.show(access, state))


async def _consume(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    id = given["approval_id"]
    fields = {name: each for name, each in given.items() if name not in ("approval_id", "seconds")}
    body = read_body(approvals.ConsumeBody, fields)
    access = await access.find_at_run(id)
    await approvals.settle(access, id, given.get("seconds", 20))
    key = None if call.key is None else f"mcp:{access.principal.id}:{call.key}"
    return _result(await approvals.consume_approval(id, body, access, key))


def _result(approval: schemas.Approval) -> dict[str, Any]:
    """The approval as the result of a call, in words that a model acts on."""
    says = {
        "pending": f"Nobody has decided yet. People decide at {approval['page']}; call consume_approval later.",
        "approved": "Approved. Call consume_approval with exactly these arguments, then act, once.",
        "consumed": "Consumed. Act now, once, with exactly these arguments.",
    }
    status = approval["status"]
    text = says.get(status, f"Do not act: this is {status}. {approval['reason'] or ''}".strip())
    fields = ("id", "status", "action", "arguments", "edited", "digest", "page", "expires_at", "reason", "error")
    return make_text_result(text, {name: approval[name] for name in fields})


TOOLS: Final = (
    ServedTool(
        "request_approval", "Ask people for an approval",
        "Asks people whether an action may be taken with exactly these arguments. Act only after consume_approval has "
        "said yes.",
        {
            "action": {**_TEXT, "maxLength": 200},
            "arguments": {"type": "object"},
            "policy": {"type": "object", "description": 'who decides: {"from": ["role:finance"], "quorum": 2}'},
            "workflow": {**_TEXT, "maxLength": 200, "description": "one that asks in its own way"},
            "expires_in": {**_TEXT, "maxLength": 40, "description": "30m, 1d"},
            "title": {**_TEXT, "maxLength": 300},
            "message": {"type": "string", "maxLength": 10_000},
            "seconds": _SECONDS,
        },
        _request, (Right.SPEAK, Right.START_RUNS), ("action", "arguments"),
    ),
    ServedTool(
        "consume_approval", "Consume an approval",
        "Says yes once, for exactly the arguments that were approved, and refuses ever after. Take the action right "
        "behind it.",
        {
            "approval_id": {**_TEXT, "maxLength": 100},
            "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "action": {**_TEXT, "maxLength": 200},
            "arguments": {"type": "object"},
            "seconds": _SECONDS,
        },
        _consume, (Right.ANSWER,), ("approval_id",),
    ),
)  # fmt: skip
