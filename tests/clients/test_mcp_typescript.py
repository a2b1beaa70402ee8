"""The official TypeScript client of MCP in each shape: each ends with the output that the Python client gets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.clients import rig
from tests.support.postgres import Server
from tests.support.server import YAML, serving

HERE = Path(__file__).resolve().parent
PROJECT = HERE / "mcp_node"


@pytest.fixture(scope="module")
def url(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn, serving(dsn) as server:
        source = (HERE / "mcp_flows" / "confirm_delete.flow.yaml").read_bytes()
        assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML).status_code == 201
        yield f"{server.url}/mcp"
        assert not server.faults


@pytest.mark.parametrize(
    ("shape", "first", "version"),
    [
        ("nothing", "waiting", "2026-07-28"),
        ("elicitation", "finished", "2026-07-28"),
        ("tasks", "task", "2026-07-28"),
        ("legacy", "waiting", "2025-11-25"),
        ("legacy-elicitation", "finished", "2025-11-25"),
    ],
)
def test_a_run_ends_with_the_same_output_whatever_the_client_can_take(
    url: str, shape: str, first: str, version: str, tmp_path: Path
) -> None:
    directory = rig.project_beside(rig.npm_packages(PROJECT), PROJECT, tmp_path)
    ended = subprocess.run(
        [rig.node(), "shapes.mjs", url, shape], cwd=directory, capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"first": first, "version": version, "output": "confirmed: true"}
