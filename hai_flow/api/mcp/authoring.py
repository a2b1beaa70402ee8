"""Tools with which agents write workflows: what they check and find is what every author's commands find."""

from __future__ import annotations

from typing import Final

from hai_flow.api.mcp.tool import Tool

AUTHORING: Final[tuple[Tool, ...]] = ()
