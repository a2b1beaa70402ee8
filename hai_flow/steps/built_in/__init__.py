"""Tools of the built-in workflows: these every process has, whatever modules its deployment takes tools from."""

from __future__ import annotations

from typing import Any

from hai_flow.steps.tools import tool


@tool("built_in.grant")
async def grant(action: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The call as people have approved it. Nothing is performed: that is done by whoever asked."""
    return {"action": action, "arguments": arguments}


@tool("built_in.establish")
async def establish(rule: dict[str, Any]) -> dict[str, Any]:
    """The standing rule as people have approved it. It is in force by their votes; nothing is performed."""
    return {"rule": rule}
