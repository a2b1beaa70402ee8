"""docs/authoring-trial.md: what an agent wrote from the skill alone is checked and played by the tools of MCP."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from tests.support.examples import sample
from tests.support.mcp_caller import Caller
from tests.support.server import ROOT

PAGE = (ROOT / "docs" / "authoring-trial.md").read_text()
THIRD = PAGE[PAGE.index("## A third trial") : PAGE.index("## A fourth trial")]
TEXTS = sorted((ROOT / "tests" / "authoring" / "agent_trial").glob("*.flow.yaml"))
ROW = re.compile(r"^\| [^|]+ \| `([a-z-]+)` \| \d \| (\d) of \2 \|$", re.MULTILINE)
CASES = {name: int(cases) for name, cases in ROW.findall(THIRD)}


def test_the_third_table_has_every_text() -> None:
    assert sorted(CASES) == [path.name.removesuffix(".flow.yaml") for path in TEXTS]
    assert len(TEXTS) == 12


@pytest.mark.parametrize("path", sample(TEXTS, 3), ids=lambda path: path.stem)
def test_a_text_is_valid_and_its_tests_are_green_over_mcp(http: httpx2.Client, path: Path) -> None:
    source, tests = path.read_text(), path.with_name(path.name.replace(".flow.", ".test.")).read_text()
    caller = Caller(http)
    checked = caller.call("validate_workflow", {"source": source})["structuredContent"]
    assert checked == {"valid": True, "findings": []}
    played = caller.call("test_workflow", {"source": source, "tests": tests})["structuredContent"]
    assert (played["passed"], played["failed"]) == (CASES[path.name.removesuffix(".flow.yaml")], 0)
