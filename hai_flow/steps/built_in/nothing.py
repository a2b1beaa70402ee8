"""The tool of canaries (`engine/canaries`): it stands for any function, and does nothing."""

from __future__ import annotations

from typing import Any

from hai_flow.steps.tools import tool


@tool("built_in.perform_nothing")
async def perform(**_: Any) -> None:
    """Perform nothing."""
