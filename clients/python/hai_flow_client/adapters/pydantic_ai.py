"""pydantic-ai: the deferred calls of an agent, as people decide them (docs/approvals.md)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from hai_flow_client.adapters import Call, ask_all
from hai_flow_client.blocking import Client
from hai_flow_client.values import Json


def decide(
    flow: Client,
    requests: Any,
    policy: Mapping[str, Json] | None = None,
    *,
    workflow: str | None = None,
    expires_in: str | None = None,
) -> Any:
    """The `DeferredToolResults` for the `DeferredToolRequests` that a run of an agent has given: each call that needs
    an approval is asked about, under the id of the call, and denied unless people approve it."""
    library = import_module("pydantic_ai")
    results = library.DeferredToolResults()
    calls = [
        Call(each.tool_name, each.args_as_dict(), f"pydantic-ai:{each.tool_call_id}") for each in requests.approvals
    ]
    verdicts = ask_all(flow, calls, policy, workflow=workflow, expires_in=expires_in)
    for each, verdict in zip(requests.approvals, verdicts, strict=True):
        results.approvals[each.tool_call_id] = (
            library.ToolApproved(override_args=verdict.arguments)
            if verdict.approved
            else library.ToolDenied(verdict.reason or "not approved")
        )
    return results
