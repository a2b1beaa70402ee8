"""pytest finds test documents, and tells of them in their own words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.support import EXPENSE, HEAD
from tests.testing.test_cli import FAILING, GOOD, WRONG

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (tmp_path / "expense.flow.yaml").write_text(EXPENSE)
    return tmp_path


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "hai_flow.testing.plugin", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_plugin_costs_nothing_where_there_are_no_test_documents() -> None:
    code = "import sys, hai_flow.testing.plugin; print([name for name in sys.modules if 'engine' in name])"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert told.stdout == "[]\n", told.stderr


def test_each_case_is_a_test_that_can_be_chosen_by_its_name(folder: Path) -> None:
    (folder / "good.test.yaml").write_text(HEAD + GOOD)
    played = pytest_in(folder, "-v", "-k", "much")
    assert "good.test.yaml::asks why it is so much PASSED" in played.stdout
    assert "1 passed, 1 deselected" in played.stdout
    assert played.returncode == 0


def test_a_failure_is_described_without_a_traceback(folder: Path) -> None:
    (folder / "failing.test.yaml").write_text(HEAD + FAILING)
    played = pytest_in(folder)
    assert played.returncode == 1
    assert "failing.test.yaml:7:55: not as expected" in played.stdout
    assert "Traceback" not in played.stdout
    assert "1 failed, 1 passed" in played.stdout


def test_a_document_with_findings_is_an_error_of_collection(folder: Path) -> None:
    (folder / "wrong.test.yaml").write_text(HEAD + WRONG)
    played = pytest_in(folder)
    assert played.returncode == 2
    assert "wrong.test.yaml:7:51: unknown key `staus` in `expect`; did you mean `status`?" in played.stdout
    assert "Traceback" not in played.stdout
