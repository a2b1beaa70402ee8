"""`make conformance-a2a`: the official compatibility kit of A2A (a2a-tck, branch 1.0-dev) over one workflow for it.

The kit is in no registry: `TCK` names a checkout of it, and `TCK_PYTHON` a Python that has what it needs. What it wants
at its must level and this server does not do is listed in EXPECTED, each with its reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import httpx2

from tests.support.postgres import serve
from tests.support.server import YAML, serving

FLOW: Final = Path(__file__).resolve().parent / "a2a" / "tck.flow.yaml"
REACHED: Final = {"HAI_FLOW_HTTP_HOSTS": "127.0.0.1,localhost"}
"""The kit's own receiver of push notifications is on this machine."""
EXPECTED: Final[dict[str, str]] = {
    "test_agent_card_validates_against_schema": "the card has fields of 0.3, too, for clients of 0.3",
    "test_returns_message_with_text_part": "every message starts a task, which is a run",
    "test_must_requirement[CORE-SEND-003": "the kit wants the error, and counts it as a failure of the operation",
}


def unexpected(report: Path) -> list[str]:
    """The failures that the report of pytest has and nobody expects."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    failed = [each.get("name", "") for each in cases if each.find("failure") is not None]
    return [name for name in failed if not name.startswith(tuple(EXPECTED))]


def main() -> int:
    kit = os.environ.get("TCK")
    if not kit:
        print("TCK: expected the path of a checkout of a2aproject/a2a-tck, branch 1.0-dev.", file=sys.stderr)
        return 2
    with serve("tck", "tck") as postgres, postgres.database() as dsn, serving(dsn, environment=REACHED) as server:
        answer = httpx2.post(f"{server.url}/v1/workflows", content=FLOW.read_bytes(), headers=YAML)
        answer.raise_for_status()
        agent = f"{server.url}/workflows/tck"
        command = [os.environ.get("TCK_PYTHON", sys.executable), "run_tck.py", "--sut-host", agent,
                   "--transport", "jsonrpc,http_json", "--level", "must"]  # fmt: skip
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory) / "report.xml"
            subprocess.run([*command, "--", f"--junitxml={report}", *sys.argv[1:]], cwd=kit, check=False)
            failures = unexpected(report)
    print("\n".join(["", *failures, f"{len(failures)} failures that are not expected."]))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
