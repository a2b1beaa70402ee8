"""The skill for agents that write workflows: whole, valid, tested, and written by the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hai_flow.authoring.grammar import grammar
from hai_flow.authoring.scaffold import TEMPLATES
from hai_flow.authoring.skill import explain_finding, search_patterns, skill_files
from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.yaml.language import VERBS
from hai_flow.testing.loading import DocumentLoader
from tests.support.commands import run


def test_the_skill_has_a_manual_the_grammar_and_ten_patterns_with_tests() -> None:
    files = skill_files()
    assert files["grammar.md"] == grammar()
    assert len([path for path in files if path.endswith(".flow.yaml")]) >= 10
    assert len([path for path in files if path.endswith(".test.yaml")]) >= 10
    linked = set(re.findall(r"\]\(([^)]+)\)", files["SKILL.md"]))
    assert linked <= files.keys()
    assert {path for path in files if path.endswith(".flow.yaml")} <= linked


def test_the_manual_begins_as_agents_read_it() -> None:
    head, name, description, end = skill_files()["SKILL.md"].splitlines()[:4]
    assert (head, end) == ("---", "---")
    assert re.fullmatch(r"name: [a-z0-9-]{1,64}", name)
    assert len(description) <= 1024
    assert ": " not in description.removeprefix("description: ").replace("(NAME.flow.yaml): ", "")


def test_a_written_skills_patterns_have_no_findings_and_pass_their_tests(tmp_path: Path) -> None:
    ended = run("skill", "-o", str(tmp_path / "skill"))
    assert ended.returncode == 0, ended.stderr
    assert {str(path.relative_to(tmp_path / "skill")) for path in (tmp_path / "skill").rglob("*.*")} == set(
        skill_files()
    )
    for flow in (tmp_path / "skill" / "patterns").glob("*.flow.yaml"):
        assert check_workflow(flow.read_bytes()) == [], flow.name
        suite = DocumentLoader().load(flow.with_name(flow.name.replace(".flow.", ".test.")))
        assert suite.cases
        for case in suite.cases:
            assert not suite.run(case).failures, (flow.name, case.name)


def test_a_skill_is_written_anew_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "skill"
    assert run("skill", "-o", str(folder)).returncode == 0
    (folder / "patterns" / "gone.flow.yaml").write_text("of another release")
    (folder / "SKILL.md").write_text("older")
    assert run("skill", "-o", str(folder)).returncode == 0
    assert not (folder / "patterns" / "gone.flow.yaml").exists()
    assert (folder / "SKILL.md").read_text() == skill_files()["SKILL.md"]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("mine")
    refused = run("skill", "-o", str(tmp_path / "work"))
    assert (refused.returncode, [path.name for path in (tmp_path / "work").iterdir()]) == (2, ["notes.txt"])


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("approval with a deadline", "approval"), ("wait for an event", "event"), ("undo what was done", "undo"),
        ("a schedule by the clock", "schedule"), ("a model with tools", "agent"), ("two gates at once", "parallel"),
    ],
)  # fmt: skip
def test_words_find_the_pattern_that_they_mean(query: str, best: str) -> None:
    assert search_patterns(query)[0] == best


def test_words_of_nothing_find_nothing() -> None:
    assert search_patterns("") == search_patterns("zzzzz 123 \x00") == []


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("break", "continue")])
def test_a_finding_of_each_verb_is_explained_by_its_line(verb: str) -> None:
    explained = explain_finding(f"{verb}.unknown")
    assert explained is not None
    assert any(verb in line for line in explained["grammar"])
    assert set(explained["patterns"]) <= TEMPLATES.keys()


@pytest.mark.parametrize("code", ["", "zzz.unknown", "a b", "(.*)", "x" * 10_000, "set.unknown\n"])
def test_codes_of_nothing_are_not_explained(code: str) -> None:
    assert explain_finding(code) is None
