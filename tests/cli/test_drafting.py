"""`new fmt graph schema grammar`: what they print, what they write, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from hai_flow.authoring.scaffold import RECIPES, TEMPLATES
from hai_flow.cli import app

GOOD = "hai: flow/v1\nname: sample\nversion: 1\nsteps:\n  - say: Hello\n"
UNTIDY = "name: sample\nhai: flow/v1\nversion: 1\nsteps:\n  - say: Hello   \n    id: a\n"
TIDY = "hai: flow/v1\nname: sample\nversion: 1\nsteps:\n  - id: a\n    say: Hello\n"
UNREADABLE = "hai: flow/v1\nsteps:\n  - say: a: b\n"


def run(*arguments: str | Path, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], input=input)


# --- new ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES)
def test_new_writes_a_workflow_and_its_tests_under_the_name(tmp_path: Path, template: str) -> None:
    result = run("new", "my_own", "--template", template, "-o", tmp_path / "flows")
    assert result.exit_code == 0, result.output
    assert "\nname: my_own\n" in (tmp_path / "flows" / "my_own.flow.yaml").read_text()
    assert "\nworkflow: my_own.flow.yaml\n" in (tmp_path / "flows" / "my_own.test.yaml").read_text()


def test_new_says_what_it_wrote_and_where_modules_are_found(tmp_path: Path) -> None:
    said = run("new", "mine", "-o", tmp_path).output
    assert f"{tmp_path / 'mine.flow.yaml'}: the workflow\n{tmp_path / 'mine.test.yaml'}: its tests\n" in said
    assert "`python: shop.refunds` is shop/refunds.py" in said
    assert "python:" not in run("new", "plain", "--template", "minimal", "-o", tmp_path).output


def test_new_overwrites_nothing(tmp_path: Path) -> None:
    there = tmp_path / "mine.test.yaml"
    there.write_text("precious")
    result = run("new", "mine", "-o", tmp_path)
    assert result.exit_code == 2
    assert "is there already" in result.stderr
    assert there.read_text() == "precious"
    assert not (tmp_path / "mine.flow.yaml").exists()


def test_new_says_what_a_name_may_be(tmp_path: Path) -> None:
    for name in ("My-Flow", "2nd", "../x"):
        result = run("new", name, "-o", tmp_path)
        assert result.exit_code == 2
        assert f"`{name}`" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_new_writes_a_recipe_without_findings_whose_tests_pass(tmp_path: Path, recipe: str) -> None:
    made = run("new", "--recipe", recipe, "-o", tmp_path)
    assert made.exit_code == 0, made.output
    checked = run("validate", tmp_path)
    assert (checked.exit_code, checked.output) == (0, "1 file: no findings.\n")
    tested = run("test", tmp_path)
    assert tested.exit_code == 0, tested.output
    assert run("fmt", "--check", tmp_path).exit_code == 0


def test_new_calls_a_recipe_as_wanted_and_says_what_to_fill_in(tmp_path: Path) -> None:
    told = run("new", "mine", "--recipe", "invoice", "-o", tmp_path).output
    assert f"{tmp_path / 'mine.flow.yaml'}: the workflow\n{tmp_path / 'mine.test.yaml'}: its tests\n" in told
    assert "It asks role:accounts: put your own people there." in told
    assert "HAI_FLOW_SECRET_INVOICES." in told
    assert run("test", tmp_path).exit_code == 0
    assert "It asks" not in run("new", "plain", "-o", tmp_path).output  # its comment names people


@pytest.mark.parametrize("words", [("--recipe",), ("mine", "--recipe"), ("--recipe", "-o", "flows"), ("--recipe=",)])
def test_new_lists_the_recipes_where_none_is_named(words: tuple[str, ...]) -> None:
    result = run("new", *words)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(RECIPES)
    assert all(does in line for does, line in zip(RECIPES.values(), lines, strict=False))
    assert "new --recipe NAME" in lines[-1]


def test_new_offers_the_recipe_that_was_perhaps_meant(tmp_path: Path) -> None:
    near = run("new", "--recipe", "expnse", "-o", tmp_path)
    assert (near.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "did you mean `expense`?" in near.stderr
    assert all(name in run("new", "--recipe", "zzz").stderr for name in RECIPES)
    assert "not both" in run("new", "x", "--template", "form", "--recipe", "expense").stderr
    assert "expected a NAME" in run("new").stderr


# --- fmt ----------------------------------------------------------------------------------------------------------


def test_fmt_writes_what_is_untidy_and_leaves_the_rest(tmp_path: Path) -> None:
    untidy, tidy = tmp_path / "untidy.flow.yaml", tmp_path / "tidy.flow.yaml"
    untidy.write_text(UNTIDY)
    tidy.write_text(TIDY)
    result = run("fmt", tmp_path)
    assert result.exit_code == 0
    assert result.output == f"{untidy}: changed\n1 of 2 files changed.\n"
    assert untidy.read_text() == tidy.read_text() == TIDY
    assert run("fmt", tmp_path).output == "2 files: nothing to change.\n"


def test_fmt_check_changes_nothing_and_tells(tmp_path: Path) -> None:
    path = tmp_path / "untidy.flow.yaml"
    path.write_text(UNTIDY)
    result = run("fmt", "--check", path)
    assert result.exit_code == 1
    assert result.output.startswith(f"{path}: would be changed\n")
    assert path.read_text() == UNTIDY
    path.write_text(TIDY)
    assert run("fmt", "--check", path).exit_code == 0


def test_fmt_of_standard_input_goes_to_standard_output() -> None:
    assert run("fmt", "-", input=UNTIDY).output == TIDY
    assert run("fmt", "-", "--check", input=UNTIDY).exit_code == 1


def test_fmt_shows_what_it_cannot_read_and_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "broken.flow.yaml"
    path.write_text(UNREADABLE)
    result = run("fmt", path)
    assert result.exit_code == 1
    assert f"{path}:3:" in result.stderr
    assert path.read_text() == UNREADABLE


# --- graph --------------------------------------------------------------------------------------------------------


def test_graph_prints_mermaid(tmp_path: Path) -> None:
    path = tmp_path / "good.flow.yaml"
    path.write_text(GOOD)
    result = run("graph", path)
    assert result.exit_code == 0
    assert "flowchart TD" in result.output
    assert run("graph", "-", input=GOOD).output == result.output


def test_graph_writes_what_the_file_name_asks_for(tmp_path: Path) -> None:
    assert run("graph", "-", "-o", tmp_path / "a.svg", input=GOOD).exit_code == 0
    assert ElementTree.fromstring((tmp_path / "a.svg").read_text()).tag.endswith("svg")
    run("graph", "-", "-o", tmp_path / "a.md", input=GOOD)
    assert (tmp_path / "a.md").read_text().startswith("```mermaid\n---\n")
    run("graph", "-", "--format", "svg", "-o", tmp_path / "a.xml", input=GOOD)
    assert (tmp_path / "a.xml").read_text() == (tmp_path / "a.svg").read_text()


def test_graph_of_a_wrong_workflow_is_its_findings(tmp_path: Path) -> None:
    result = run("graph", "-", input=GOOD + "    wiht: {}\n")
    assert result.exit_code == 1
    assert "<stdin>:6:5: " in result.stderr
    assert "flowchart" not in result.output


def test_graph_of_a_name_asks_the_server() -> None:
    result = run("graph", "refund@2", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 4
    assert "No server answers" in result.stderr


# --- the language -------------------------------------------------------------------------------------------------


def test_schema_is_json_in_the_terminal_and_in_a_file(tmp_path: Path) -> None:
    printed = json.loads(run("schema").output)
    assert printed["properties"]["hai"]["enum"] == ["flow/v1"]
    run("schema", "-o", tmp_path / "schema.json")
    assert json.loads((tmp_path / "schema.json").read_text()) == printed
    assert json.loads(run("schema", "--tests").output)["properties"]["hai"]["enum"] == ["test/v1"]


def test_grammar_is_a_page(tmp_path: Path) -> None:
    assert run("grammar").output.startswith("# hai: flow/v1\n")
