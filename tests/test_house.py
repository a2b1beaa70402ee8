"""The measures of the house: folders read at a glance, packages without circles, names that say what they are.

The bounds are what was reached: a change may lower them, and never raises them (`make house` prints the numbers)."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from hai_flow.primitives.json_pointers import escape, unescape
from hai_flow.primitives.protobuf import varints
from tests.support import house
from tests.support.house import PACKAGE

MODULES_IN_A_FOLDER = 16
TEST_NAME_CHARACTERS = 70
DOCSTRING = re.compile(r'(#.*\s+)*r?"""\s*[^"\s]')  # parsing every module would take seconds


def test_folders_have_few_modules() -> None:
    counts = house.modules_by_folder()
    assert {folder: count for folder, count in counts.items() if count > MODULES_IN_A_FOLDER} == {}


@pytest.mark.parametrize("name", ["api", "cli", "runtime", "store"])
@pytest.mark.slow
def test_packages_import_each_other_in_one_direction(name: str) -> None:
    graph = house.imports_of_packages(f"hai_flow.{name}")
    assert len(graph) > 5
    TopologicalSorter(graph).prepare()


def test_circle_of_packages_is_found() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter(house.imports_of_packages("hai_flow.engine")).prepare()


def test_every_package_says_what_it_is_for() -> None:
    silent = [str(path.parent) for path in PACKAGE.rglob("__init__.py") if not house.docstring(path)]
    assert silent == []


def test_every_module_says_what_it_is_for() -> None:
    texts = {str(path): path.read_text().strip() for path in PACKAGE.rglob("*.py")}
    silent = [name for name, text in texts.items() if text and not DOCSTRING.match(text)]
    assert silent == []


@pytest.mark.slow
def test_names_are_no_vaguer_than_they_were() -> None:
    measures = house.measure(PACKAGE)
    assert house.worse(measures) == {}


def test_the_way_to_a_plan_changes_files_no_more_than_it_did() -> None:
    assert 100 < house.measure_walk()[1] <= house.CHANGES_OF_FILE_MAX


def test_a_change_of_file_is_counted() -> None:
    def call_functions_of_two_files() -> None:
        numbers = varints(b"\x01\x02")
        for _ in numbers:
            escape("a")
            unescape("a")

    assert house.count_changes_of_file(call_functions_of_two_files) == 3


def test_no_field_of_the_log_is_named_as_its_message() -> None:
    """`structlog` names that `event`, so that the call of the log would raise TypeError."""
    calls = [
        (path.name, each.lineno, each.keywords)
        for path in PACKAGE.rglob("*.py")
        if "log." in (text := path.read_text())
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
        if isinstance(each.func.value, ast.Name) and each.func.value.id == "log"
    ]
    assert len(calls) > 100
    assert [(name, line) for name, line, fields in calls if any(each.arg == "event" for each in fields)] == []


def test_names_of_tests_fit_a_line() -> None:
    names = house.test_names(PACKAGE.parent / "tests")
    assert len(names) > 4000
    assert [name for name in names if len(name) > TEST_NAME_CHARACTERS] == []


def test_a_vague_name_is_counted(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "def told():\n    found = 1\n    return found\ndef send(): ...\ndef what_is(): ...\n"
    )
    measures = house.measure(tmp_path)
    assert (measures.verbs, measures.participles, measures.function_words, measures.vague) == (1, 1, 1, 1)
