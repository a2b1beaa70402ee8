"""RFC 6902: one meaning for the log, the fold and every client."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hai_flow.engine.state.patch import OPERATIONS_MAX, PatchError, apply_patch, difference, is_same_json

DOCUMENT: dict[str, Any] = {"a": {"b": [1, 2, {"c": None}]}, "x/y": {"m~n": 1}, "n": 1}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b/-", "value": 3}, {"op": "add", "path": "/a/b/0", "value": {"z": 1}},
        {"op": "add", "path": "/new", "value": None}, {"op": "replace", "path": "/n", "value": [1]},
        {"op": "replace", "path": "", "value": 7}, {"op": "remove", "path": "/a/b/2/c"}, {"op": "remove", "path": "/n"},
        {"op": "move", "from": "/a/b/0", "path": "/n"}, {"op": "copy", "from": "/a", "path": "/a/b/2/c"},
        {"op": "test", "path": "/x~1y/m~0n", "value": 1}, {"op": "test", "path": "/n", "value": 1.0},
        {"op": "move", "from": "/n", "path": "/n"}, {"op": "move", "from": "/a/b", "path": "/a/bc"},
        {"op": "add", "path": "/a/b/3", "value": 4}, {"op": "add", "path": "/a/b/2/c", "value": 4},
        {"op": "add", "path": "/a/b/2/d", "value": 4}, {"op": "replace", "path": "/a/b/1", "value": 9},
        {"op": "replace", "path": "/a/b/2/c", "value": 9}, {"op": "remove", "path": "/a/b/0"},
        {"op": "remove", "path": "/a/b/1"}, {"op": "remove", "path": "/a/b/2"}, {"op": "remove", "path": "/a/b"},
        {"op": "move", "from": "/a/b/2/c", "path": "/a/b/0"}, {"op": "copy", "from": "/a/b", "path": "/a/b/-"},
        {"op": "test", "path": "/a/b", "value": [1.0, 2, {"c": None}]},
    ],
)  # fmt: skip
def test_a_patch_applies_as_in_the_reference_and_keeps_the_original(operation: dict[str, Any]) -> None:
    before = copy.deepcopy(DOCUMENT)
    assert apply_patch(DOCUMENT, [operation]) == jsonpatch.apply_patch(before, [operation])
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b/9", "value": 3}, {"op": "add", "path": "/q/r", "value": 3},
        {"op": "add", "path": "/n/r", "value": 3}, {"op": "add", "path": "/x"},
        {"op": "replace", "path": "/q", "value": 1},
        {"op": "replace", "path": "/a/b/-", "value": 1}, {"op": "remove", "path": "/a/b/3"},
        {"op": "remove", "path": ""},
        {"op": "move", "from": "/a", "path": "/a/b/0"}, {"op": "test", "path": "/n", "value": True},
        {"op": "add", "path": "n", "value": 1}, {"op": "add", "path": "/a/b/01", "value": 1},
        {"op": "merge", "path": "/n"},
        {"op": "copy", "path": "/n"}, {"op": "add", "value": 1},
        {"op": "move", "from": "/a", "path": "/a/new/x"}, {"op": "merge", "from": "/n", "path": "/n", "value": 1},
        {"op": "remove", "path": "/q"}, {"op": "remove", "path": "/a/q"}, {"op": "remove", "path": "/n/q"},
        {"op": "remove", "path": "/a/q/r"}, {"op": "remove", "path": "/n/q/r"}, {"op": "remove", "path": "/a/b/01"},
        {"op": "test", "path": "/n/q", "value": 1}, {"op": "copy", "from": "/n/q", "path": "/x"},
        {"op": "replace", "path": "/a/b/3", "value": 1}, {"op": "replace", "path": "/a/b/²", "value": 1},
        {"op": "add", "path": "/a/b/٣", "value": 1}, {"op": "add", "path": "/a/b/4", "value": 1},
        {"op": "add", "path": "/a/b/3/c", "value": 1}, {"op": "add", "path": "/q/r/s", "value": 1},
    ],
)  # fmt: skip
def test_what_does_not_apply_is_a_patch_error_that_names_the_operation(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchError, match="operation 1: "):
        apply_patch(DOCUMENT, [{"op": "test", "path": "/n", "value": 1}, operation])


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"op": "test", "path": "", "value": 1}, "test failed at the root"),
        ({"op": "test", "path": "/n", "value": 2}, "test failed at /n"),
        ({"op": "remove", "path": "/a/b/q"}, "expected a list index, found 'q'"),
        ({"op": "replace", "path": "/a/b/3", "value": 1}, "index 3 is beyond the list's 3 items"),
        ({"op": "replace", "path": "/a/b/-", "value": 1}, "expected a list index, found '-'"),
        ({"op": "move", "from": "/a", "path": "/a/b/0"}, "a value can't be moved into itself"),
        ({"op": "add", "path": "/q/r", "value": 1}, "there is no 'q': a parent must exist"),
        ({"op": "remove", "path": "/q"}, "there is no 'q'"),
        ({"op": "remove", "path": "/n/q"}, "'q' lies inside a value that is neither an object nor a list"),
        ({"op": "test", "path": "/n/q", "value": 1}, "'q' lies inside a value that is neither an object nor a list"),
        ({"op": "merge", "path": "/n"}, "expected op add, remove, replace, move, copy or test, found 'merge'"),
    ],
)
def test_a_patch_that_does_not_apply_says_why(operation: dict[str, Any], words: str) -> None:
    with pytest.raises(PatchError) as refused:
        apply_patch(DOCUMENT, [operation])
    assert str(refused.value) == f"operation 0: {words}"


def test_a_patch_has_at_most_256_operations() -> None:
    operation = {"op": "replace", "path": "/n", "value": 2}
    assert apply_patch(DOCUMENT, [operation] * 256)["n"] == 2
    with pytest.raises(PatchError, match="at most 256"):
        apply_patch(DOCUMENT, [operation] * 257)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (True, 1, False),
        (1, 1.0, True),
        ([1], [1.0], True),
        ({"a": 1}, {"a": True}, False),
        ("1", 1, False),
        (0, False, False),
        (1, True, False),
        (True, True, True),
        (False, 0.0, False),
        ([1, 2], [1], False),
        ([1, 2], [1, 3], False),
        ([1, 2], [3, 2], False),
        ([True], [1], False),
        ([], [], True),
        ([], {}, False),
        ({}, [], False),
        ([], None, False),
        (None, [], False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"a": 1}, None, False),
        (None, {"a": 1}, False),
        (None, None, True),
        ("a", "a", True),
        ("a", "b", False),
        (1, 2, False),
        (1.5, 1, False),
    ],
)
def test_true_is_not_one_but_one_is_one_point_zero(left: Any, right: Any, same: bool) -> None:
    assert is_same_json(left, right) is same


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/0/x"},
        {"op": "remove", "path": "/1"},
        {"op": "remove", "path": "/10"},
        {"op": "replace", "path": "/10", "value": "ten"},
        {"op": "add", "path": "/11", "value": "eleven"},
        {"op": "add", "path": "/0/x", "value": 9},
    ],
    ids=str,
)
def test_what_stands_behind_in_a_list_stays(operation: dict[str, Any]) -> None:
    document = [{"x": 1}, {"y": 2}, *range(9)]
    assert apply_patch(document, [operation]) == jsonpatch.apply_patch(copy.deepcopy(document), [operation])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab/~"), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, JSON)
@example([False], [0])  # equal to Python, and not in JSON
def test_the_difference_of_two_documents_makes_one_of_the_other(before: Any, after: Any) -> None:
    found = difference(before, after)
    assert is_same_json(apply_patch(before, found), after)
    assert jsonpatch.apply_patch(copy.deepcopy(before), found) == after
    assert (found == []) == is_same_json(before, after)


@pytest.mark.parametrize(("before", "after"), [(1, 1.0), (1.0, 1), (True, 1), (0, False)])
def test_a_value_of_another_type_is_another_value(before: Any, after: Any) -> None:
    (operation,) = difference({"a": before}, {"a": after})
    assert (operation["op"], operation["path"], type(operation["value"])) == ("replace", "/a", type(after))
    assert difference({"a": after}, {"a": after}) == []


def test_a_difference_of_too_many_operations_replaces_all() -> None:
    before, after = {"l": [0] * (OPERATIONS_MAX + 1)}, {"l": [1] * (OPERATIONS_MAX + 1)}
    assert difference(before, after) == [{"op": "replace", "path": "", "value": after}]
    as_many = difference([0] * OPERATIONS_MAX, [1] * OPERATIONS_MAX)
    assert [each["path"] for each in as_many] == [f"/{index}" for index in range(OPERATIONS_MAX)]
