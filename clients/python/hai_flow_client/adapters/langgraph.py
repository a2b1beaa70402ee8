"""LangChain and LangGraph: the interrupts of a graph, as people decide them (docs/approvals.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hai_flow_client.adapters import Call, Verdict, ask_all
from hai_flow_client.blocking import Client
from hai_flow_client.values import Json


def decide(
    flow: Client,
    interrupts: Sequence[Any],
    policy: Mapping[str, Json] | None = None,
    *,
    workflow: str | None = None,
    expires_in: str | None = None,
) -> dict[str, Any]:
    """What `Command(resume=...)` takes, for the interrupts that a graph has given: those of LangChain's
    `HumanInTheLoopMiddleware`, and those of your own nodes, `interrupt({"action": ..., "arguments": ...})`, which get
    `{"approved": ..., "arguments": ..., "reason": ..., "edited": ...}`. Each call is asked about under the id of its
    interrupt, and refused unless people approve it. Raises ValueError for any other interrupt."""
    calls = [_calls_of(each) for each in interrupts]
    verdicts = iter(
        ask_all(flow, [call for some in calls for call in some], policy, workflow=workflow, expires_in=expires_in)
    )
    return {
        interrupt.id: _answer(interrupt.value, [(call, next(verdicts)) for call in some])
        for interrupt, some in zip(interrupts, calls, strict=True)
    }


def _calls_of(interrupt: Any) -> list[Call]:
    """The calls that an interrupt is about."""
    value, key = interrupt.value, f"langgraph:{interrupt.id}"
    if isinstance(value, Mapping):
        if "action_requests" in value:
            requests = enumerate(value["action_requests"])
            return [Call(each["name"], each["args"], f"{key}:{number}") for number, each in requests]
        if value.get("type") == "tool_approval":
            return [Call(value["name"], value["args"], key)]
        if "action" in value and "arguments" in value:
            return [Call(value["action"], value["arguments"], key)]
    raise ValueError(
        'expected an interrupt of HumanInTheLoopMiddleware or interrupt({"action": ..., "arguments": ...}), found one '
        f"with {value!r:.200}"
    )


def _answer(value: Mapping[str, Any], decided: Sequence[tuple[Call, Verdict]]) -> dict[str, Any]:
    """The answer to an interrupt, in the form that the one who made it reads."""
    if "action_requests" in value:
        return {"decisions": [_decision(call, verdict) for call, verdict in decided]}
    [(call, verdict)] = decided
    return _decision(call, verdict) if value.get("type") == "tool_approval" else verdict._asdict()


def _decision(call: Call, verdict: Verdict) -> dict[str, Any]:
    """A decision of the middleware."""
    if not verdict.approved:
        return {"type": "reject", "message": verdict.reason or "not approved"}
    if verdict.edited:
        return {"type": "edit", "edited_action": {"name": call.action, "args": verdict.arguments}}
    return {"type": "approve"}
