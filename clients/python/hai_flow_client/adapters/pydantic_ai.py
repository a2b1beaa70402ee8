"""pydantic-ai: the deferred calls of an agent, as people decide them (docs/approvals.md)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from hai_flow_client.adapters import ask
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
    for call in requests.approvals:
        verdict = ask(
            flow,
            call.tool_name,
            call.args_as_dict(),
            policy,
            workflow=workflow,
            expires_in=expires_in,
            key=f"pydantic-ai:{call.tool_call_id}",
        )
        results.approvals[call.tool_call_id] = (
            library.ToolApproved(override_args=verdict.arguments)
            if verdict.approved
            else library.ToolDenied(verdict.reason or "not approved")
        )
    return results
