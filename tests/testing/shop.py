"""A tool that a workflow names and a test mocks."""

from __future__ import annotations

from hai_flow.steps.tools import tool


@tool
async def count() -> int:
    """How many are there."""
    raise AssertionError("a tool that is mocked is not called")
