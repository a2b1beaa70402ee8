"""What expressions know of the place where they stand: absent steps and guards, loop variables, element types."""

from __future__ import annotations

from typing import Any, Final

import pytest

from hai_flow.definition.expressions.expression_error import Faults
from hai_flow.definition.expressions.expressions import compile_expression, compile_template
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.definition.names.known_types import ENVELOPE

from .support import INPUT, SCOPE, STATE, Steps, names

SERVICE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["name", "parts"],
    "properties": {
        "name": {"type": "string"},
        "load": {"type": "number"},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
    },
    "additionalProperties": False,
    "$defs": {
        "part": {
            "type": "object",
            "required": ["risk"],
            "properties": {"risk": {"type": "string", "enum": ["high", "low"]}},
            "additionalProperties": False,
        }
    },
}
LOOP: Final = names(b="it has an `if`").with_roots("index", schemas={"svc": SERVICE, "i": {}})


def doubts(source: str, place: Names = LOOP) -> list[str]:
    return [doubt.code for doubt in compile_expression(source, place).doubts]


@pytest.mark.parametrize(
    "source",
    [
        "steps.b.output.x == 1",
        "steps.b.output.x == 1 && has(steps.b.output)",
        "has(steps.b.output) || steps.b.output.x == 1",
        "steps.b.status == 'failed' && steps.b.output.x == 1",
        "steps.b.status == 'finished' ? 1 : steps.b.output.x",
        "has(steps.b.output.x)",
        "steps.b.error.code == 'x'",
        "steps.b.approval.reason == 'x'",
        "(input.note + 'x') != ''",
    ],
)
def test_what_may_be_absent_and_is_read_unguarded_is_doubtful(source: str) -> None:
    assert doubts(source) == ["expression.unguarded"]


@pytest.mark.parametrize(
    "source",
    [
        "has(steps.b.output) && steps.b.output.x == 1",
        "!has(steps.b.output) || steps.b.output.x == 1",
        "has(steps.b.output) ? steps.b.output.x : 0",
        "steps.b.status == 'finished' && steps.b.output.x == 1",
        "'finished' == steps.b.status && steps.b.approval.reason == 'x'",
        "steps.b.status != 'finished' || steps.b.output.x == 1",
        "steps.b.status != 'finished' ? 0 : steps.b.output.x",
        "!(steps.b.status != 'finished') && input.count > 1 && steps.b.output.x == 1",
        "steps.b.status == 'failed' && steps.b.error.code == 'x'",
        "steps.b.?output.x.orValue(1)",
        "steps.b.?output.?x.orValue(1)",
        "steps.b.status",
        "has(input.note) ? input.note : ''",
    ],
)
def test_a_guard_before_the_use_settles_the_doubt(source: str) -> None:
    assert doubts(source) == []


def test_the_doubt_says_why_the_step_may_be_absent_and_what_to_do() -> None:
    (doubt,) = compile_expression("1 + steps.b.output.x", LOOP).doubts
    assert doubt.offset == 4
    assert "it has an `if`" in doubt.message
    assert "has(steps.b.output)" in doubt.message
    assert "steps.b.?output.orValue(...)" in doubt.message
    assert 'steps.b.status == "finished"' in doubt.message


@pytest.mark.parametrize("guard", ["has(steps.b.output)", "steps.b.status == 'finished'", "has(steps.b.output.x)"])
def test_a_condition_around_guards_what_is_below_it(guard: str) -> None:
    below = LOOP.with_guards(compile_expression(guard, LOOP))
    assert doubts("steps.b.output.y == 1", below) == []
    either = LOOP.with_guards(compile_expression(f"{guard} || input.count > 1", LOOP))
    assert doubts("steps.b.output.y == 1", either) == ["expression.unguarded"]


@pytest.mark.parametrize(
    ("hole", "expected"),
    [
        ("${{ steps.b.output }}", ["expression.unguarded"]),
        ("x ${{ steps.b.output.x }}", ["expression.unguarded"]),
        ("${{ steps.b.status }}", []),
        ("${{ steps.a.output }}", []),
        ("${{ input.note }}", []),
        ("${{ svc.load }}", []),
    ],
)
def test_an_optional_property_alone_in_a_hole_is_null_but_a_step_is_not(hole: str, expected: list[str]) -> None:
    found: list[str] = []
    compile_template(hole, LOOP, lambda path, fault: found.append(fault.code))
    assert found == expected


@pytest.mark.parametrize(
    ("source", "offset", "fragment"),
    [
        ("svc.nme", 4, "did you mean `name`?"),
        ("svc.parts[0].rsk", 13, "did you mean `risk`?"),
        ("svc.parts.filter(p, p.rsk == 'high')", 22, "did you mean `risk`?"),
        ("svc.parts.filter(p, p.risk == 'high').map(q, q.rsk)", 47, "did you mean `risk`?"),
        ("svc.parts.exists(p, has(p.rsk))", 26, "did you mean `risk`?"),
        ("[1].map(svc, svc)", 7, "would hide"),
        ("item.name", 0, "only inside a `for_each`"),
        ("i + foo", 4, "no name `foo`"),
        ("index + 'x'", 6, "(int, string)"),
    ],
)
def test_loop_variables_and_items_have_types(source: str, offset: int, fragment: str) -> None:
    with pytest.raises(Faults) as caught:
        compile_expression(source, LOOP)
    assert [(fault.offset, fragment in fault.message) for fault in caught.value.faults] == [(offset, True)]


@pytest.mark.parametrize(("source", "value"), [("i + 1", 3), ("i.size() == 2", None), ("svc.name + '!'", "api!")])
def test_a_loop_variable_may_have_any_name(source: str, value: Any) -> None:
    scope = {**SCOPE, "i": 2 if value else "ab", "svc": {"name": "api", "parts": []}}
    expression = compile_expression(source, LOOP)
    assert expression.evaluate(scope) == (True if value is None else value)
    assert expression.roots == {source.split(" ")[0].split(".")[0]}


def test_the_items_of_a_list_give_the_type_of_the_variable() -> None:
    part = LOOP.find_element_schema("${{ svc.parts }}")
    assert doubts("p.risk == 'hihg'", LOOP.with_roots(schemas={"p": part})) == ["expression.enum"]
    for unknown in ("${{ svc.name }}", "${{ [1] }}", "x ${{ svc.parts }}", [1], "${{"):
        assert LOOP.find_element_schema(unknown) == {}


def test_the_approval_of_a_step_is_typed_apart_from_its_output() -> None:
    values = {"type": "object", "properties": {"code": {"type": "string"}}, "additionalProperties": False}
    envelope = {**ENVELOPE, "properties": {**ENVELOPE["properties"], "values": values}}
    place = Names(Types(INPUT, STATE, {"a": values}, {"a": envelope}), steps=Steps())
    for source in ("steps.a.output.cod", "steps.a.approval.values.cod", "steps.b.approval.reson"):
        with pytest.raises(Faults, match="did you mean"):
            compile_expression(source, place)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.extra.map(k, k)", []),
        ("input.extra.all(k, k != 'a')", []),
        ("input.currency == 'GBP'", ["expression.enum"]),
        ("input.currency in ['EUR', 'GBP']", ["expression.enum"]),
        ("input.currency in ['EUR']", []),
    ],
)
def test_other_doubts(source: str, expected: list[str]) -> None:
    assert doubts(source) == expected
