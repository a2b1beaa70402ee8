"""For a nursery of servers: work that each would do at its first request is done once, before they are forked."""

from __future__ import annotations

from pathlib import Path

from hai_flow.api.app import build_common_routes
from hai_flow.definition.compiler import compile_workflow

WORKFLOWS = Path(__file__).resolve().parents[2] / "workflows"

for route in build_common_routes():
    route.matches({"type": "http", "method": "GET", "path": "/", "headers": []})
for path in sorted(WORKFLOWS.glob("*.flow.yaml")):
    compile_workflow(path.read_bytes(), path.name)
