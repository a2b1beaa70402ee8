"""The tools that every caller has beside the workflows: for clients that can't wait themselves, and for authors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hai_flow import values
from hai_flow.api.http.problems import build_problem
from hai_flow.api.mcp import approvals, card, publishing
from hai_flow.api.mcp import runs as mcp_runs
from hai_flow.api.mcp.authoring import AUTHORING
from hai_flow.api.mcp.tool import Call, ServedTool, make_text_result
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.access import Access
from hai_flow.api.rest.people.pendings import list_pendings
from hai_flow.errors import Rejected, describe_findings
from hai_flow.wire.mcp import RESULT_SCHEMA

WAIT_SECONDS_MAX: Final = 50
_RUN_ID: Final[dict[str, Any]] = {"type": "string", "description": "the run_id of a result"}


def make_refusal_result(rejected: Rejected) -> dict[str, Any]:
    """A refusal as the result of a call, which its model reads: what was wrong, where, and when to come back."""
    problem = build_problem(rejected)
    lines = [f"{rejected.code}: {rejected.detail}", *(f"- {each}" for each in describe_findings(rejected.findings))]
    if rejected.advice:
        lines.append(rejected.advice.strip())
        problem["retry_after"] = rejected.retry_after
    text = {"type": "text", "text": "\n".join(lines)}
    return {"content": [text], "isError": True, "_meta": {"hai-flow/problem": problem}}


async def _get_run(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    _, run = await mcp_runs.look(access, given["run_id"])
    return await mcp_runs.read_result(run)


async def _wait_run(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    seconds = given.get("seconds", 20)
    _, run = await mcp_runs.settle(access, given["run_id"], seconds, call.progress)
    return await mcp_runs.read_result(run)


async def _answer(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    fields = {name: value for name, value in given.items() if name != "question_id"}
    result = await mcp_runs.answer(access, given["question_id"], fields, call.key)
    text = f"{'Answered already' if result['already'] else 'Answered'}: {result['status']}."
    return make_text_result(text, {key: result[key] for key in ("id", "run_id", "status", "already")})


async def _cancel_run(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    await mcp_runs.stop(access, given["run_id"], given.get("reason", ""))
    _, run = await mcp_runs.settle(access, given["run_id"], 5)
    return await mcp_runs.read_result(run)


async def _list_pending(access: Access, given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    access.require(Right.SEE_OWN, Right.SEE_INBOX)
    page = await list_pendings(
        access, given.get("limit", 20), given.get("cursor"), given.get("workflow"), given.get("run_id")
    )
    fields = ("id", "run_id", "workflow", "kind", "title", "message", "options", "schema", "deadline", "digest")
    questions = [
        {
            **{name: each[name] for name in fields if each.get(name)},
            "url": access.base + mcp_runs.addresses.pending(each["id"]),
        }
        for each in page["items"]
    ]
    content = {"questions": questions, "next_cursor": page["next_cursor"]}
    return make_text_result(values.dumps(content).decode(), content)


_SEES: Final = (Right.SEE_OWN, Right.SEE_RUNS, Right.SEE_INBOX)

TOOLS: Final[tuple[ServedTool, ...]] = (
    ServedTool(
        "get_run", "Look at a run",
        "A run as it is now: its output, or whom it waits for and the page where that is decided.",
        {"run_id": _RUN_ID}, _get_run, _SEES, ("run_id",), RESULT_SCHEMA, reads=True, meta=card.TOOL_META,
    ),
    ServedTool(
        "wait_run", "Wait for a run",
        "A run as soon as it has ended or asks somebody, at the latest after `seconds`.",
        {"run_id": _RUN_ID, "seconds": {"type": "integer", "minimum": 0, "maximum": WAIT_SECONDS_MAX, "default": 20}},
        _wait_run, _SEES, ("run_id",), RESULT_SCHEMA, reads=True, meta=card.TOOL_META,
    ),
    ServedTool(
        "answer", "Answer a question",
        "Answers a question that asks the caller. Questions that ask other people are refused: they answer on the "
        "question's page. The first answer stands.",
        {
            "question_id": {"type": "string"},
            "values": {"type": "object", "description": "of the form, where the question has one"},
            "decision": {"type": "string", "maxLength": 100, "description": "one of its options"},
            "edits": {
                "type": "object", "description": "new values of arguments by name, where the question allows edits",
            },
            "reason": {"type": "string", "maxLength": 10_000},
            "digest": {"type": "string", "maxLength": 64, "description": "of the question as it was read"},
            "result": {"description": "of a call that asks its caller for its result"},
            "error": {"type": "string", "maxLength": 10_000},
        },
        _answer, (Right.ANSWER, Right.DECIDE), ("question_id",),
    ),
    ServedTool(
        "cancel_run", "Stop a run", "Asks a run to stop. Calls that have begun finish or are cut, none begins.",
        {"run_id": _RUN_ID, "reason": {"type": "string", "maxLength": 2000}},
        _cancel_run, (Right.SPEAK, Right.CONTROL_RUNS), ("run_id",), RESULT_SCHEMA, destroys=True,
    ),
    ServedTool(
        "list_pending", "List open questions", "The open questions that the caller may see, newest first.",
        {
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 20},
            "cursor": {"type": "string", "maxLength": 500},
            "workflow": {"type": "string", "maxLength": 200},
            "run_id": _RUN_ID,
        },
        _list_pending, (Right.SEE_OWN, Right.SEE_INBOX), reads=True, meta=card.TOOL_META,
    ),
    *approvals.TOOLS,
    *AUTHORING,
    *publishing.TOOLS,
)  # fmt: skip
