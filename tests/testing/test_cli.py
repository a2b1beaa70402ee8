"""`hai-flow test`: which files, what it prints, how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hai_flow.cli import app
from hai_flow.errors import HaiFlowError
from tests.testing.support import EXPENSE, HEAD

GOOD = """\
cases:
  - {name: asks for an account, input: {amount: 1}, expect: {status: waiting, pending: [account]}}
  - {name: asks why it is so much, input: {amount: 2000}, expect: {pending: [details]}}
"""
FAILING = """\
cases:
  - {name: ends at once, input: {amount: 1}, expect: {status: finished}}
  - {name: asks for an account, input: {amount: 1}, expect: {status: waiting}}
"""
WRONG = "cases:\n  - {name: is wrong, input: {amount: 1}, expect: {staus: finished}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "expense.flow.yaml").write_text(EXPENSE)
    (tmp_path / "good.test.yaml").write_text(HEAD + GOOD)
    return tmp_path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["test", *map(str, arguments)])


def without_time(text: str) -> str:
    return re.sub(r"in [0-9.]+s", "in TIME", text)


def test_a_dot_for_each_case_that_passes_and_a_closing_line(folder: Path) -> None:
    result = call(folder)
    assert result.exit_code == 0, result.output
    assert without_time(result.output) == f"{folder}/good.test.yaml ..\n2 passed in TIME\n"


def test_verbose_has_a_line_for_each_case(folder: Path) -> None:
    result = call(folder / "good.test.yaml", "-v")
    assert without_time(result.output).splitlines() == [
        f"{folder}/good.test.yaml::asks for an account PASSED",
        f"{folder}/good.test.yaml::asks why it is so much PASSED",
        "2 passed in TIME",
    ]


def test_a_failure_is_shown_with_its_place_and_ends_with_1(folder: Path) -> None:
    path = folder / "failing.test.yaml"
    path.write_text(HEAD + FAILING)
    result = call(path)
    assert result.exit_code == 1
    assert without_time(result.output).splitlines() == [
        f"{path} F.",
        "=================================== FAILURES ===================================",
        "_________________________________ ends at once _________________________________",
        f"{path}:7:55: not as expected",
        "    7 |   - {name: ends at once, input: {amount: 1}, expect: {status: finished}}",
        "      status",
        '        expected  "finished"',
        '        found     "waiting"',
        "      the run is waiting at account (2026-01-01T00:00:00.000Z)",
        "============================== short test summary ==============================",
        f'FAILED {path}:7 ends at once - status: expected "finished", found "waiting"',
        "1 passed, 1 failed in TIME",
    ]


def test_a_note_on_a_case_that_passed_is_printed_and_changes_no_exit_code(folder: Path) -> None:
    path = folder / "hollow.test.yaml"
    path.write_text(HEAD + "cases:\n  - {name: a, mock: {erp.book: [{output: 1}]}, input: {amount: 1}}\n")
    result = call(path)
    assert result.exit_code == 0
    assert without_time(result.output).splitlines() == [
        f"{path} .",
        f"{path}:7:22: a: note: the mock `erp.book` answers 1 call, and 0 came; "
        "remove the rest of its list, or let the case go on",
        "1 passed in TIME",
    ]


def test_findings_have_a_caret_and_end_with_2_and_other_files_are_played(folder: Path) -> None:
    path = folder / "wrong.test.yaml"
    path.write_text(HEAD + WRONG)
    result = call(folder)
    assert result.exit_code == 2
    lines = without_time(result.output).splitlines()
    assert lines[:2] == [f"{folder}/good.test.yaml ..", f"{path} can't be run"]
    assert lines[3] == (f"{path}:7:51: unknown key `staus` in `expect`; did you mean `status`? [test.unknown_key]")
    assert lines[5].index("^") == lines[4].index("staus")
    assert lines[-1] == "2 passed, 1 finding in TIME"


def test_json_is_one_document_of_cases_and_findings(folder: Path) -> None:
    path = folder / "failing.test.yaml"
    path.write_text(HEAD + FAILING)
    result = call(folder, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["passed"], told["failed"], told["findings"]) == (3, 1, [])
    (failed,) = [case for case in told["cases"] if case["outcome"] == "failed"]
    assert {key: failed[key] for key in ("file", "line", "name")} == {
        "file": str(path),
        "line": 7,
        "name": "ends at once",
    }
    assert failed["failures"] == [
        {"file": str(path), "line": 7, "column": 55, "message": "status", "expected": "finished", "found": "waiting"}
    ]


def test_a_keyword_chooses_cases_by_their_file_and_name(folder: Path) -> None:
    result = call(folder, "-k", "So Much", "-v")
    assert without_time(result.output).splitlines() == [
        f"{folder}/good.test.yaml::asks why it is so much PASSED",
        "1 passed, 1 deselected in TIME",
    ]


def test_hidden_folders_and_workflows_are_passed_over(folder: Path) -> None:
    hidden = folder / ".venv" / "lib"
    hidden.mkdir(parents=True)
    (hidden / "wrong.test.yaml").write_text(HEAD + WRONG)
    assert call(folder).exit_code == 0


def test_links_lead_nowhere_so_a_folder_in_itself_is_seen_once(folder: Path) -> None:
    (folder / "again").symlink_to(folder)
    assert without_time(call(folder).output).endswith("2 passed in TIME\n")


def test_a_keyword_that_no_case_has_is_a_mistake(folder: Path) -> None:
    result = call(folder, "-k", "nothing of the kind")
    assert result.exit_code == 2
    assert "-k nothing of the kind: expected a part of a file's or a case's name" in result.output


def test_where_there_are_no_tests_the_command_says_so(tmp_path: Path) -> None:
    result = call(tmp_path)
    assert result.exit_code == 2
    assert "expected test files (*.test.yaml), found none" in result.output
    assert call(tmp_path / "none.test.yaml").exit_code == 2


def test_tests_are_no_workflows_for_validate(folder: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(folder)])
    assert result.output.splitlines() == [
        "1 file: no findings.",
        "1 tool was not looked at: acme.erp (validate where it lies, or is installed)",
        f"{folder / 'expense.flow.yaml'}:10:3: nothing sets or reads `log`: it keeps its default; take it out of "
        "`state`, or use it",
    ]


def test_a_published_workflow_comes_from_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hai_flow.cli.author import test as command

    async def ask(self: object, reference: str) -> bytes:
        if reference != "expense@1":
            raise HaiFlowError(f"there is no workflow {reference!r}; publish it first.")
        return EXPENSE.encode()

    monkeypatch.setattr(command._Published, "_ask_server", ask)
    path = folder / "published.test.yaml"
    path.write_text(HEAD.replace("expense.flow.yaml", "expense@1") + GOOD)
    assert call(path).exit_code == 2
    assert call(path, "--server", "http://127.0.0.1:1").exit_code == 0
    path.write_text(HEAD.replace("expense.flow.yaml", "expense@2") + GOOD)
    refused = call(path, "--server", "http://127.0.0.1:1")
    assert refused.exit_code == 2
    assert "t.yaml:2:11: there is no workflow 'expense@2'; publish it first." in refused.output


def test_a_server_and_a_database_are_one_too_many(folder: Path) -> None:
    result = call(folder, "--server", "http://127.0.0.1:1", "--database", "postgresql:///x")
    assert result.exit_code == 2
    assert "expected one of them, found both" in result.output
