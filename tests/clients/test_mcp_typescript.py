"""The official TypeScript client of MCP in each shape: each ends with the output that the Python client gets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.clients import rig
from tests.support.postgres import Server
from tests.support.server import YAML, serving

HERE = Path(__file__).resolve().parent
PROJECT = HERE / "mcp_node"


def publish(server: str) -> None:
    source = (HERE / "mcp_flows" / "confirm_delete.flow.yaml").read_bytes()
    assert httpx2.post(f"{server}/v1/workflows", content=source, headers=YAML).status_code == 201


@pytest.fixture(scope="module")
def url(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn, serving(dsn) as server:
        publish(server.url)
        yield f"{server.url}/mcp"


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


def test_a_run_outlives_its_server_for_each_shape_of_client(postgres_server: Server, tmp_path: Path) -> None:
    directory = rig.project_beside(rig.npm_packages(PROJECT), PROJECT, tmp_path)
    shapes = {"nothing": "waiting", "elicitation": "finished", "tasks": "task", "legacy": "waiting"}
    shapes["legacy-elicitation"] = "cut"
    with postgres_server.database() as dsn, ExitStack() as stack:
        with serving(dsn) as first:
            publish(first.url)
            clients = {
                shape: stack.enter_context(
                    subprocess.Popen(
                        [rig.node(), "shapes.mjs", f"{first.url}/mcp", shape, "pause"],
                        cwd=directory,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                for shape in shapes
            }
            for client in clients.values():
                stack.callback(client.kill)
            for shape, client in clients.items():
                assert client.stdout is not None
                assert client.stdout.readline() == "waiting\n", shape
            first.kill()
        with serving(dsn) as second:
            ends = {
                shape: json.loads(client.communicate(f"{second.url}/mcp\n", 60)[0]) for shape, client in clients.items()
            }
            assert {shape: (end["first"], end["output"]) for shape, end in ends.items()} == {
                shape: (begun, "confirmed: true") for shape, begun in shapes.items()
            }
            assert len(httpx2.get(f"{second.url}/v1/runs").json()["items"]) == len(shapes)
