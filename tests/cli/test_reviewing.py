"""`diff --against`: what a branch changes in workflows, in Markdown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hai_flow.cli import app, reviewing
from hai_flow.errors import HaiFlowError

OLD = """hai: flow/v1
name: spend
version: 1
roles: {board: ["user:ann"]}
steps:
  - id: ok
    approve: {title: Spend, from: role:board, deadline: 2d}
  - id: size
    ask: {title: Size, form: {type: object, properties: {size: {type: string}}}}
  - id: thanks
    say: Thanks
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a workflow, below its top."""
    folder = tmp_path / "app"
    (folder / "workflows").mkdir(parents=True)
    (folder / "workflows" / "spend.flow.yaml").write_text(OLD)
    monkeypatch.chdir(folder)
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *words], check=True)
    return folder / "workflows"


def review(*words: str) -> str:
    answer = CliRunner().invoke(app, ["diff", "--against", *words])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_nothing_changed_is_said(project: Path) -> None:
    assert "No workflow does anything else" in review("main")


def test_durations_are_told_as_an_author_writes_them(project: Path) -> None:
    stages = "remind: [4h, 1d], on_deadline: [{escalate: {from: role:chief, deadline: 36h}}, reject]"
    new = OLD.replace("from: role:board, deadline: 2d", f"from: role:board, deadline: 2d, {stages}")
    (project / "spend.flow.yaml").write_text(new.replace("version: 1", "version: 2"))
    text = review("main")
    assert '"deadline":"1d12h"' in text
    assert '["4h","1d"]' in text
    assert "000" not in text


def test_what_changes_for_people_comes_first(project: Path) -> None:
    new = OLD.replace("from: role:board, deadline: 2d", "from: 'role:board|x', deadline: 1d").replace(
        "size: {type", "x: {type"
    )
    new = new.replace('"user:ann"', '"user:eve"').replace("say: Thanks", "say: Bye").replace("version: 1", "version: 2")
    (project / "spend.flow.yaml").write_text(new)
    text = review("main")
    people, others = text.split("**Other changes**")
    assert "### `spend` 1 to 2 (workflows/spend.flow.yaml)" in people
    assert "| `ok` | `deadline` | <code>2d</code> | <code>1d</code> |" in people
    assert "role:board&#124;x" in people
    assert "| the workflow | `roles.board` |" in people
    assert "`form`" in people
    assert "`thanks`" in others
    assert "`thanks`" not in people


def test_changed_new_removed_and_broken_files_are_each_reported(project: Path) -> None:
    (project / "spend.flow.yaml").write_text(OLD.replace("2d", "3d"))
    assert "Its version is the same" in review("HEAD")
    (project / "new.flow.yaml").write_text(OLD.replace("spend", "fresh"))
    assert "It is new." in review("HEAD", "workflows/new.flow.yaml")
    (project / "spend.flow.yaml").write_text("steps: [")
    assert "It has errors now." in review("HEAD")
    (project / "spend.flow.yaml").unlink()
    assert "It is removed." in review("HEAD")


def test_a_workflow_in_another_file_is_one_that_moved(project: Path) -> None:
    old, new = project / "spend.flow.yaml", project / "team" / "buy.flow.yaml"
    new.parent.mkdir()
    old.rename(new)
    heading = "(workflows/team/buy.flow.yaml, was workflows/spend.flow.yaml)"
    text = review("main")
    assert text.count("###") == 1
    assert f"### `spend` 1 {heading}\n\nIt has moved, and does the same." in text
    new.write_text(OLD.replace("deadline: 2d", "deadline: 1d").replace("version: 1", "version: 2"))
    text = review("main")
    assert f"### `spend` 1 to 2 {heading}" in text
    assert "| `ok` | `deadline` | <code>2d</code> | <code>1d</code> |" in text


def test_a_place_that_is_neither_here_nor_there_is_wrong_usage(project: Path) -> None:
    answer = CliRunner().invoke(app, ["diff", "--against", "main", "nowhere"])
    assert "found no 'nowhere' here, and none in main" in f"{answer.output}{answer.exception}"
    (project / "spend.flow.yaml").unlink()
    assert "is removed" in review("main", "workflows/spend.flow.yaml")


@pytest.mark.parametrize("ref", ["--output=x", "nosuch", "main:x"])
def test_a_ref_that_is_none_is_wrong_usage(project: Path, ref: str) -> None:
    answer = CliRunner().invoke(app, ["diff", f"--against={ref}"])
    assert answer.exit_code == 2
    assert "--against" in answer.output


def test_runs_that_wait_at_a_step_that_is_gone_are_named(project: Path) -> None:
    new = OLD.replace("version: 1", "version: 2").replace("id: size", "id: height").replace("size:", "cm:")
    (project / "spend.flow.yaml").write_text(new)
    (found,) = reviewing.reviews([Path("workflows")], "main")
    pendings = [{"run_id": "r1", "path": "ok"}, {"run_id": "r2", "path": "size"}]
    stranded = reviewing.find_stranded(found, pendings)
    assert [each["run_id"] for each in stranded] == ["r2"]
    assert "- run `r2` at `size`" in reviewing.as_markdown([found], "main", {"spend": stranded})


def test_git_that_is_not_there_is_told(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HaiFlowError, match="needs Git"):
        reviewing.reviews([Path("workflows")], "main")
