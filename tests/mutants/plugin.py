"""What a pytest that tries a mutant does beside its tests: it reports which one failed, and is the same each time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

import hai_flow

settings.register_profile(
    "mutants", derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants")


def pytest_sessionstart(session: pytest.Session) -> None:
    """The mutants are in the copy: tests of any other `hai_flow` would prove nothing."""
    found = Path(hai_flow.__file__)
    if not found.is_relative_to(Path.cwd()):
        raise pytest.UsageError(f"expected to test the copy in {Path.cwd()}, found {found}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get("HAI_FLOW_MUTANT_REPORT")
    if report.failed and path is not None and not Path(path).exists():
        late = "Timeout (>" in str(report.longrepr)
        Path(path).write_text(json.dumps({"test": report.nodeid, "when": report.when, "late": late}))
