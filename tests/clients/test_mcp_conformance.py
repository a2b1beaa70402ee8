"""The official conformance kit of MCP, over HAI Flow with a folder of workflows whose names the kit looks for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.clients import rig
from tests.support.postgres import Server
from tests.support.server import YAML, serving

HERE = Path(__file__).resolve().parent
KIT = HERE / "mcp_conformance"
EXPECTED_MAX = 12  # of both revisions together
REVISIONS = ("2025-11-25", "2026-07-28")


@pytest.fixture(scope="module")
def url(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn, serving(dsn) as server:
        with httpx2.Client(base_url=server.url) as http:
            for flow in sorted((HERE / "mcp_flows").glob("*.flow.yaml")):
                published = http.post("/v1/workflows", content=flow.read_bytes(), headers=YAML)
                assert published.status_code in (200, 201), published.text
        yield f"{server.url}/mcp"


def expected(revision: str) -> Path:
    return KIT / f"expected-{revision}.yaml"


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_kit_finds_what_is_expected_and_nothing_else(url: str, revision: str, tmp_path: Path) -> None:
    program = rig.npm_packages(KIT) / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [rig.node(), str(program), "server", "--url", url, "--requirements", revision, "--timeout", "120000"]
    ended = subprocess.run(
        [*command, "--expected-failures", str(expected(revision)), "--output-dir", str(tmp_path)],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    _, _, summary = ended.stdout.partition("=== SUMMARY ===")
    assert ended.returncode == 0, (summary or ended.stdout[-4000:]) + ended.stderr[-4000:]
    passed = re.findall(r"^✓ (\S+): (\d+) passed, 0 failed", summary, re.MULTILINE)
    assert len(passed) > 15, summary
    if revision == REVISIONS[-1]:  # the kit does not count extensions itself
        assert not re.findall(r"^✗ (tasks-\S+): ", summary, re.MULTILINE), summary
        assert sum(int(count) for name, count in passed if name.startswith("tasks-")) == 44, summary


def test_few_failures_are_expected_and_each_stands_below_its_reason() -> None:
    names: set[str] = set()
    for revision in REVISIONS:
        lines = expected(revision).read_text().splitlines()
        entries = [index for index, line in enumerate(lines) if line.startswith("  - ")]
        names |= {lines[index].removeprefix("  - ").partition(" #")[0] for index in entries}
        assert lines[entries[0] - 1].startswith("  # ")
    assert 0 < len(names) <= EXPECTED_MAX
