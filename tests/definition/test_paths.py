"""How steps are called: what is composed is found again, and nothing but `paths` takes a path apart."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hai_flow.definition import paths

ENGINE = Path(paths.__file__).parents[1] / "engine"
# JSON Pointers, and people in whose name others signal, have a ~ of their own; expressions have brackets.
OTHERS = {"patch.py", "answers.py", "canaries.py", "instigators.py"}
keys = st.text(max_size=6).map(paths.escape)
names = st.sampled_from(("a", "b", "each", "~finally/c", "1/d"))
in_run = st.lists(st.tuples(names, keys), min_size=1, max_size=4)


@example("%")
@given(st.text(max_size=8))
def test_an_escaped_key_is_read_back_and_holds_no_part_of_a_path(key: str) -> None:
    written = paths.escape(key)
    assert paths.unescape(written) == key
    assert written
    assert not set(written) & set("/[]")


@given(in_run)
def test_the_plan_path_of_an_instance_and_its_keys_make_the_instance(parts: list[tuple[str, str]]) -> None:
    path = "/".join(paths.iteration(name, key) for name, key in parts)
    there = paths.plan_path(path)
    assert there == "/".join(f"{name}[]" for name, _ in parts)
    assert paths.keys_of(path) == tuple(key for _, key in parts)
    assert paths.with_keys(there, paths.keys_of(path)) == path


@given(in_run)
def test_an_iteration_is_taken_apart_into_what_it_was_made_of(parts: list[tuple[str, str]]) -> None:
    *around, (name, key) = parts
    loop = "/".join([*(paths.iteration(*each) for each in around), name])
    path = paths.iteration(loop, key)
    assert (paths.loop_of(path), paths.key_of(path)) == (loop, key)
    assert next(paths.iter_iterations_around(paths.inside(path, "x"))) == path
    assert paths.find_iteration_around(paths.inside(path, "x")) == path
    assert paths.collect_keys([path, paths.inside(path, "x"), loop], loop) == {key}
    assert paths.is_inside(path, loop)
    assert paths.depth(path) == paths.depth(loop) + 1


def test_a_path_is_inside_of_what_it_begins_with_as_a_whole() -> None:
    for path in ("a/b", "a[0]", "a[0]/b"):
        assert paths.is_inside(path, "a")
        assert paths.is_inside(path, "")
    for path in ("a", "ab", "ab/c", "b/a"):
        assert not paths.is_inside(path, "a")
    assert not paths.is_inside("", "")
    assert (paths.inside("", "b"), paths.inside("a", "b")) == ("b", "a/b")
    assert (paths.list_of("a/b/c"), paths.list_of("a")) == ("a/b", "")


def test_only_what_stands_below_a_handler_is_in_one() -> None:
    assert paths.is_in_handler("a/~catch/0/b")
    assert not paths.is_in_handler("a/b")


def test_the_iteration_around_another_is_that_of_the_loop_around_its_loop() -> None:
    assert paths.find_iteration_around("a[1]/b[2]") == "a[1]"
    assert [paths.find_iteration_around(path) for path in ("a", "a/b", "a[1]")] == [None, None, None]
    assert paths.collect_keys(["loop[2]", "loop[3]/x", "other[1]", "looped[4]"], "loop") == {"2"}


@given(names, st.integers(1, 999))
def test_the_key_of_a_call_names_its_function(name: str, number: int) -> None:
    assert paths.function_of_key(paths.call_key(name, number)) == name


def test_an_undo_and_what_it_undoes_name_each_other() -> None:
    undo = paths.undo_of("checks/legal/ask")
    assert paths.is_undo(undo)
    assert paths.undone_by(undo) == "checks/legal/ask"
    assert paths.is_in_cleanup(undo)
    assert not paths.is_in_cleanup("a/~finally/b", "a/~finally/b")
    assert paths.is_in_cleanup("a/~finally/b", "a")
    assert not paths.is_in_cleanup("a/~finally/b/c", "a/~finally/b")


def test_a_models_call_names_the_answer_that_wrote_it_and_no_other_does() -> None:
    assert paths.answer_of_call("research[0]/call[mail.send-1]/mail.send") == "research[0]"
    assert paths.answer_of_call("x[a]/research[12]/call[add-2]/add") == "x[a]/research[12]"
    for other in ("", "call", "call[a]/add", "x[a]/say", "research[0]/model", "research[0]/call[a-1]"):
        assert paths.answer_of_call(other) == ""


def test_a_reader_means_its_own_iterations_and_the_latest_of_others() -> None:
    latest = {"each": "z", "each[h]/again": "9", "other": "y"}.__getitem__
    assert paths.find_instance("each[]/again[]/x", "each[h]/again[2]/y", latest) == "each[h]/again[2]/x"
    assert paths.find_instance("each[]/again[]/x", "each[h]/y", latest) == "each[h]/again[9]/x"
    assert paths.find_instance("other[]/x", "each[h]/y", latest) == "other[y]/x"
    assert paths.find_instance("x", "each[h]/y", latest) == "x"


def test_only_an_answer_of_an_agent_has_calls_around_the_agents_in_it() -> None:
    assert paths.calls_around("research[0]/call[x]/sub[1]/call") == "research[0]/call"
    assert paths.calls_around("research[0]/call") == ""
    assert paths.calls_around("each/call[x]/sub[1]/call") == "", "`call` is a loop of the author's"


def test_a_renaming_takes_what_is_inside_with_it_and_keeps_the_keys() -> None:
    moved = {"each[]": "all[]", "each[]/a": "all[]/b"}
    assert paths.rename_path("each[k]/a/~undo", moved) == "all[k]/b/~undo"
    assert paths.rename_path("each[k]/c", moved) == "all[k]/c"
    assert paths.rename_path("other[k]/a", moved) == "other[k]/a"


@pytest.mark.slow
def test_no_module_of_the_engine_writes_a_part_of_a_path_itself() -> None:
    found: list[str] = []
    for module in sorted(ENGINE.rglob("*.py")):
        if module.name in OTHERS:
            continue
        tree = ast.parse(module.read_text())
        documented = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in documented:
                continue
            if node.value.startswith(("~", "/~", "[", "]")) and node.value not in ("[", "]"):
                found.append(f"{module.name}:{node.lineno} {node.value!r}")
    assert found == []
