"""`validate` and `version`: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app

ROOT = Path(__file__).resolve().parents[2]
GOOD = "hai: flow/v1\nname: sample\nversion: 1\nsteps:\n  - say: Hello\n"
BROKEN = "hai: flow/v1\nname: sample\nversion: 1\nsteps:\n  - say: Hello\n    wiht: {}\n"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.flow.yaml"
    path.write_text(BROKEN)
    return path


def test_the_examples_have_no_findings() -> None:
    result = CliRunner().invoke(app, ["validate", str(ROOT / "workflows")])
    assert result.exit_code == 0, result.output
    count = len(list((ROOT / "workflows").rglob("*.flow.yaml")))
    assert result.output == f"{count} files: no findings.\n"


def test_a_finding_is_shown_with_its_place_its_line_and_a_caret(broken: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(broken)])
    assert result.exit_code == 1
    first, line, caret, summary = result.output.splitlines()
    assert first.startswith(f"{broken}:6:5: ")
    assert line == "    6 |     wiht: {}"
    assert caret.index("^") == line.index("wiht")
    assert summary == "1 error in 1 of 1 file."


def test_a_caret_stands_under_its_place_also_behind_wide_characters(tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    path.write_text('hai: flow/v1\nname: sample\nversion: 1\nsteps:\n  - say: "请求 ${{ input.none }}"\n')
    result = CliRunner().invoke(app, ["validate", str(path), "--json"])
    finding = json.loads(result.output)["findings"][0]
    shown = CliRunner().invoke(app, ["validate", str(path)]).output.splitlines()
    before = shown[1][: len("    5 | ") + finding["column"] - 1]
    assert shown[2].index("^") == sum(2 if ord(character) > 0x2E80 else 1 for character in before)


def test_json_is_one_document_of_all_findings(broken: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(broken), str(ROOT / "workflows"), "--json"])
    assert result.exit_code == 1
    (finding,) = json.loads(result.output)["findings"]
    assert (finding["file"], finding["line"], finding["severity"]) == (str(broken), 6, "error")


def test_a_folder_means_its_workflows_and_those_below(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name, text in {"a.flow.yaml": GOOD, "below/b.flow.yml": GOOD, "a.test.yaml": "x", "compose.yaml": "x"}.items():
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(app, ["validate", str(tmp_path)])
    assert result.output == "2 files: no findings.\n"


def test_a_warning_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "doubtful.flow.yaml"
    path.write_text(GOOD + '  - say: "{{ input.name }}"\n')
    result = CliRunner().invoke(app, ["validate", str(path), "--json"])
    assert result.exit_code == 0
    (finding,) = json.loads(result.output)["findings"]
    keys = {"file", "line", "column", "severity", "code", "message", "end_line", "end_column", "fix", "params"}
    assert set(finding) == keys
    assert (finding["severity"], finding["line"]) == ("warning", 6)


def test_a_workflow_may_come_from_standard_input() -> None:
    assert CliRunner().invoke(app, ["validate", "-"], input=GOOD).exit_code == 0
    refused = CliRunner().invoke(app, ["validate", "-"], input=BROKEN)
    assert refused.exit_code == 1
    assert refused.output.startswith("<stdin>:6:5: ")


def test_what_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    missing = CliRunner().invoke(app, ["validate", str(tmp_path / "none.yaml")])
    assert missing.exit_code == 2
    assert "No such file" in missing.stderr
    empty = CliRunner().invoke(app, ["validate", str(tmp_path)])
    assert empty.exit_code == 2
    assert "found none" in empty.stderr


def test_control_characters_of_a_document_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text(BROKEN.replace("wiht: {}", '"wi\\eht": "\x9b31m"'))
    output = CliRunner().invoke(app, ["validate", str(path)]).output
    assert "\x1b" not in output
    assert "\x9b" not in output


def test_a_misspelt_setting_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_FLOW_PORT", "many")
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert "HAI_FLOW_PORT: expected a whole number" in result.stderr


def test_version_says_which_it_is() -> None:
    import hai_flow

    result = CliRunner().invoke(app, ["version", "--json"])
    assert json.loads(result.output)["version"] == hai_flow.__version__
    told = CliRunner().invoke(app, ["version"]).output
    assert told.startswith(f"hai-flow {hai_flow.__version__} ")
    assert CliRunner().invoke(app, ["--version"]).output == told


def test_every_command_tells_the_exit_codes() -> None:
    for command in ([], ["run"], ["decide"]):
        assert "3 the run waits" in " ".join(CliRunner().invoke(app, [*command, "--help"]).output.split())


@pytest.mark.parametrize(("folder", "named"), [(".", "sample"), ("workflows", "sample")])
def test_a_workflow_s_name_in_place_of_its_file_is_answered_with_the_file(
    folder: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(folder) / "sample.flow.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(GOOD)
    result = CliRunner().invoke(app, ["validate", named])
    assert result.exit_code != 0
    assert f"Did you mean {file}?" in " ".join(result.output.split())
    assert "Did you mean" not in CliRunner().invoke(app, ["validate", "sample.yaml"]).output
