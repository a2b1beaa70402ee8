"""What `hai-flow new` begins with, and the page for language models."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from hai_flow.authoring.grammar import grammar
from hai_flow.authoring.scaffold import RECIPES, TEMPLATES, TemplateName, recipe, template
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.fields import KNOWN_CODES
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.language import SHAPES, VERBS
from hai_flow.testing.loading import DocumentLoader


def test_every_template_has_tests_and_none_is_forgotten() -> None:
    names = {path.name for path in resources.files("hai_flow.templates").iterdir() if path.name.endswith(".yaml")}
    assert names == {f"{name}.{kind}.yaml" for name in TEMPLATES for kind in ("flow", "test")}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_without_findings_under_any_name(name: TemplateName) -> None:
    made = template(name, "my_own")
    assert check_workflow(made.workflow.encode()) == []
    assert compile_workflow(made.workflow.encode()).name == "my_own"
    assert parse(made.tests.encode()).value["workflow"] == "my_own.flow.yaml"


def test_every_recipe_has_tests_and_a_line_on_the_page() -> None:
    folder = resources.files("hai_flow.templates") / "recipes"
    names = {path.name for path in folder.iterdir() if path.name.endswith(".yaml")}
    assert names == {f"{name}.{kind}.yaml" for name in RECIPES for kind in ("flow", "test")}
    assert list(RECIPES) == sorted(RECIPES)
    page = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text()
    rows = re.findall(
        r"^\| \[`(.+?)`\]\(\.\./hai_flow/templates/recipes/(.+?)\.flow\.yaml\) \| (.+) \|$", page, re.MULTILINE
    )
    assert rows == [(name, name, does) for name, does in RECIPES.items()]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_called_as_wanted_and_tests_silence_or_failure(name: str) -> None:
    made = recipe(name, "my_own")
    assert compile_workflow(made.workflow.encode()).name == "my_own"
    tests = parse(made.tests.encode()).value
    assert tests["workflow"] == "my_own.flow.yaml"
    assert len(tests["cases"]) >= 3
    assert "advance:" in made.tests or "error:" in made.tests or "reject" in made.tests


def test_the_page_for_models_is_short_and_tells_every_verb_and_key() -> None:
    page = grammar()
    assert page.count("\n") <= 311
    for verb in VERBS:
        assert f"| `{verb}: " in page
    for name in ("document", "step"):
        for key in SHAPES[name].keys:
            assert re.search(rf"^- `{key.name}!?: ", page, re.MULTILINE), key.name
    for key in SHAPES["approve"].keys:
        assert re.search(rf"\*\*approve\*\*.*\b{key.name}!?: ", page), key.name


def test_the_workflows_on_the_page_are_without_findings() -> None:
    *documents, _ = re.findall(r"```yaml\n(.*?)```", grammar(), re.DOTALL)
    assert len(documents) == 2
    for document in documents:
        assert check_workflow(document.encode()) == []


def test_the_examples_on_the_page_do_what_its_tests_say(tmp_path: Path) -> None:
    """Each workflow of the page is a template, whose tests play it; the tests of the page are played here."""
    *documents, tests = re.findall(r"```yaml\n(.*?)```", grammar(), re.DOTALL)
    assert documents == [template("revise").workflow, template("loop").workflow]
    (tmp_path / "revise.flow.yaml").write_text(documents[0])
    (tmp_path / "revise.test.yaml").write_text(tests)
    suite = DocumentLoader().load(tmp_path / "revise.test.yaml")
    results = [suite.run(case) for case in suite.cases]
    assert [(len(results), failure) for result in results for failure in result.failures] == []
    assert results


def test_the_codes_on_the_page_are_those_of_the_engine() -> None:
    listed = re.search(r"\*\*Error codes\*\*.*?: `(.*?)`", grammar(), re.DOTALL)
    assert listed is not None
    assert set(listed[1].split()) <= KNOWN_CODES | {"limit.*"}
