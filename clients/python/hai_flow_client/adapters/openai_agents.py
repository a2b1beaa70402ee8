"""OpenAI Agents SDK: tools whose calls people decide, and runs that wait for them (docs/approvals.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hai_flow_client.adapters import Call, Verdict, ask, request, wait_for
from hai_flow_client.blocking import Client
from hai_flow_client.values import Json


@dataclass(frozen=True)
class _Guard:
    """Invokes a tool when people have approved the call, with the arguments as they approved them."""

    tool: Any
    flow: Client
    policy: Mapping[str, Json] | None
    workflow: str | None
    expires_in: str | None

    async def __call__(self, context: Any, arguments: str) -> Any:
        call = self.call_of(context.tool_call_id, arguments)
        verdict = await asyncio.to_thread(
            ask,
            self.flow,
            call.action,
            call.arguments,
            self.policy,
            workflow=self.workflow,
            expires_in=self.expires_in,
            key=call.key,
        )
        if not verdict.approved:
            return f"The tool was not used. {verdict.reason or 'Nobody approved it.'}"
        return await self.tool.on_invoke_tool(context, json.dumps(verdict.arguments))

    def wait(self, call: Call) -> Verdict | None:
        """None as soon as people have approved the call; otherwise the refusal. Consumes nothing."""
        asked = request(self.flow, call, self.policy, workflow=self.workflow, expires_in=self.expires_in)
        decided = wait_for(self.flow, asked)
        return decided if isinstance(decided, Verdict) else None

    def call_of(self, id: str, arguments: str | None) -> Call:
        return Call(self.tool.name, json.loads(arguments or "{}"), f"openai-agents:{id}")


def guard(
    tool: Any,
    flow: Client,
    policy: Mapping[str, Json] | None = None,
    *,
    workflow: str | None = None,
    expires_in: str | None = None,
) -> Any:
    """The `FunctionTool`, each of whose calls needs an approval by people. It consumes their yes right before it acts,
    and acts with the arguments as they edited them."""
    return replace(
        tool, needs_approval=True, on_invoke_tool=_Guard(tool, flow, policy, workflow=workflow, expires_in=expires_in)
    )


async def decide(state: Any) -> None:
    """Wait until people have decided about each interruption of the `RunState`, and enter it there. Then run the agent
    with the state. A process that was killed while it waited does so again with the state that it saved before.

    Raises ValueError for an interruption by a tool that was not made by `guard`.
    """
    items = state.get_interruptions()
    guards = [_guard_of(item) for item in items]
    calls = [guard.call_of(item.call_id, item.arguments) for guard, item in zip(guards, items, strict=True)]
    waits = [asyncio.to_thread(guard.wait, call) for guard, call in zip(guards, calls, strict=True)]
    for item, refusal in zip(items, await asyncio.gather(*waits), strict=True):
        if refusal is None:
            state.approve(item)
        else:
            state.reject(item, rejection_message=refusal.reason or "Nobody approved it.")


def _guard_of(item: Any) -> _Guard:
    for tool in item.agent.tools:
        invoke = getattr(tool, "on_invoke_tool", None)
        if tool.name == item.name and isinstance(invoke, _Guard):
            return invoke
    raise ValueError(f"people are not asked about {item.name}: give its agent guard({item.name}, flow, policy)")
