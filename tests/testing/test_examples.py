"""Every workflow that comes along has tests beside it, and they pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hai_flow.definition.readiness import find_runner_kind
from hai_flow.settings import Settings
from hai_flow.steps.python.runner import PythonRunner
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.testing.loading import DocumentLoader, LoadedDocument
from hai_flow.testing.report import describe
from hai_flow.testing.suite import Case, Operate

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "workflows").rglob("*.test.yaml"))
LOADER = DocumentLoader()
DOCUMENTS = [LOADER.load(path, str(path.relative_to(ROOT))) for path in FILES]
CASES = [(document, case) for document in DOCUMENTS for case in document.cases]


@pytest.mark.parametrize("path", sorted((ROOT / "workflows").rglob("*.flow.yaml")), ids=lambda path: path.name)
def test_a_workflow_has_tests_beside_it(path: Path) -> None:
    assert path.with_name(path.name.replace(".flow.yaml", ".test.yaml")) in FILES


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.file)
def test_they_have_no_findings(document: LoadedDocument) -> None:
    assert document.findings == ()
    assert document.cases


@pytest.mark.parametrize(("document", "case"), CASES, ids=[f"{each.file}: {case.name}" for each, case in CASES])
def test_they_pass(document: LoadedDocument, case: Case) -> None:
    result = document.run(case)
    assert result.passed, "\n".join(line.text for line in describe(result))


@pytest.mark.parametrize(("document", "case"), CASES, ids=[f"{each.file}: {case.name}" for each, case in CASES])
def test_a_restart_behind_every_entry_changes_nothing(document: LoadedDocument, case: Case) -> None:
    script = [again for entry in case.script for again in (entry, Operate(entry.at, "restart"))]
    result = document.run(replace(case, script=(Operate(case.at, "restart"), *script)))
    assert result.passed, "\n".join(line.text for line in describe(result))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.file)
def test_the_python_tools_that_they_call_are_there(document: LoadedDocument) -> None:
    runner = PythonRunner(Toolbox(Settings().tools))
    assert document.plan is not None
    calls = [step for step in document.plan.steps.values() if find_runner_kind(step) == "python"]
    assert [runner.fault(step) for step in calls] == [None] * len(calls)
