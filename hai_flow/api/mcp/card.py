"""The card that a host may show for a question (MCP Apps): it shows the exact arguments, and opens the page on which
people decide. It holds no vote, and loads nothing."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

URI: Final = "ui://hai-flow/decide"
MEDIA_TYPE: Final = "text/html;profile=mcp-app"
RESOURCE: Final[dict[str, Any]] = {
    "uri": URI,
    "name": "decide",
    "title": "A question that waits for people",
    "mimeType": MEDIA_TYPE,
}
TOOL_META: Final[dict[str, Any]] = {"ui": {"resourceUri": URI}}
"""Of a tool whose results the card can show."""


def content() -> dict[str, Any]:
    text = (resources.files("hai_flow.api.mcp") / "decide.html").read_text(encoding="utf-8")
    meta = {"ui": {"csp": {"connectDomains": [], "resourceDomains": []}, "prefersBorder": True}}
    return {"uri": URI, "mimeType": MEDIA_TYPE, "text": text, "_meta": meta}
