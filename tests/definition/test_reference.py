"""The table of keys: the compiler and the editor's schema take and refuse the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
import yaml

from hai_flow.authoring.json_schema import workflow_schema
from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.key_table import COMMON_KEYS
from hai_flow.definition.yaml.keys import Key, Shape, Type
from hai_flow.definition.yaml.language import SHAPES, VERBS


def test_types_are_well_formed() -> None:
    def visit(type_: Type) -> None:
        assert (type_.kind == "shape") == bool(type_.shape)
        assert (type_.kind == "enum") == bool(type_.values)
        assert (type_.kind in ("list", "map", "either")) == bool(type_.parts)
        for part in type_.parts:
            visit(part)

    for shape in SHAPES.values():
        for key in shape.keys:
            visit(key.type)


# --- examples in their place --------------------------------------------------------------------------------------


def value(text: str) -> Any:
    return parse(text.encode()).value


def minimal(shape: Shape, key: Key | None = None) -> dict[str, Any]:
    """The smallest mapping of a shape, with `key` if one is given."""
    needed = {each.name for each in shape.keys if each.required}
    for group in shape.exactly_one:
        wanted = [each for each in group if key is None or each == key.name or each in key.beside]
        needed.add(key.name if key is not None and key.name in group else (wanted or group)[0])
    if key is not None:
        needed.add(key.name)
    needed |= {each.name for each in shape.keys if each.needed_by in needed}
    return {each.name: value(each.example) for each in shape.keys if each.name in needed}


def holders(type_: Type) -> Iterator[tuple[str, Any]]:
    """The shapes that a value of this type may hold, each with a function from the mapping to the value."""
    match type_.kind:
        case "shape":
            yield type_.shape, lambda mapping: mapping
        case "list":
            for name, wrap in holders(type_.parts[0]):
                yield name, lambda mapping, wrap=wrap: [wrap(mapping)]
        case "map":
            for name, wrap in holders(type_.parts[0]):
                more = {"b": [{"say": "Another."}]} if type_.minimum == 2 else {}
                yield name, lambda mapping, wrap=wrap, more=more: {"a": wrap(mapping), **more}
        case "either":
            for part in type_.parts:
                yield from holders(part)
        case _:
            pass


def places() -> dict[str, Any]:
    """How a mapping of each shape is put into a whole document: the shortest way there."""
    found: dict[str, Any] = {"document": lambda mapping: mapping}

    def in_step(verb: VerbRules, key: str, wrap: Any) -> Any:
        step = {verb.name: value(verb.example)}
        return lambda mapping: {**minimal(SHAPES["document"]), "steps": [{**step, key: wrap(mapping)}]}

    for key in SHAPES["document"].keys:
        for name, wrap in holders(key.type):
            found[name] = lambda mapping, key=key, wrap=wrap: {**minimal(SHAPES["document"]), key.name: wrap(mapping)}
    by_name = {key.name: key for key in SHAPES["step"].keys}
    for verb in VERBS.values():
        for key, type_ in [(verb.name, verb.type), *((name, by_name[name].type) for name in verb.keys)]:
            for name, wrap in holders(type_):
                found.setdefault(name, in_step(verb, key, wrap))
    waiting = list(found)
    while waiting:
        outer = waiting.pop(0)
        for key in SHAPES[outer].keys:
            for name, wrap in holders(key.type):
                if name not in found:
                    found[name] = lambda mapping, outer=outer, key=key, wrap=wrap: found[outer](
                        {**minimal(SHAPES[outer], key), key.name: wrap(mapping)}
                    )
                    waiting.append(name)
    return found


PLACES = places()
KEYS = [(shape, key) for shape in SHAPES.values() if shape.name != "step" for key in shape.keys]
EVERY_KEY = [pytest.param(shape, key, id=f"{shape.name}.{key.name}") for shape, key in KEYS]


def misshapen(document: dict[str, Any]) -> list[str]:
    findings = check_workflow(yaml.dump(document, sort_keys=False, allow_unicode=True).encode())
    return [str(finding) for finding in findings if finding.code.startswith(("shape.", "yaml.", "duration."))]


@cache
def editor() -> Any:
    """The schema that editors read, ready to judge."""
    return jsonschema_rs.validator_for(workflow_schema())


@pytest.mark.parametrize(("shape", "key"), EVERY_KEY)
def test_the_compiler_takes_the_example_of_a_key_in_its_place(shape: Shape, key: Key) -> None:
    document = PLACES[shape.name](minimal(shape, key))
    assert misshapen(document) == []
    assert editor().is_valid(document)


@pytest.mark.parametrize("name", [name for name in SHAPES if not SHAPES[name].open and name not in ("step", "api")])
def test_the_compiler_refuses_another_key_there(name: str) -> None:
    document = PLACES[name]({**minimal(SHAPES[name]), "zebra": 1})
    findings = check_workflow(yaml.dump(document, sort_keys=False, allow_unicode=True).encode())
    assert any("zebra" in finding.message or "one entry for each" in finding.message for finding in findings), findings
    assert not editor().is_valid(document)


REQUIRED = [
    pytest.param(shape, key, id=f"{shape.name}.{key.name}") for shape, key in KEYS if key.required and not shape.open
]


@pytest.mark.parametrize(("shape", "key"), REQUIRED)
def test_a_key_that_must_be_there_is_missed_by_the_compiler_and_the_editor(shape: Shape, key: Key) -> None:
    document = PLACES[shape.name]({name: each for name, each in minimal(shape).items() if name != key.name})
    assert any(f"`{key.name}` is missing" in finding for finding in misshapen(document)), misshapen(document)
    assert not editor().is_valid(document)


def beyond(type_: Type) -> Iterator[Any]:
    """Values that are just outside of what the table allows."""
    match type_.kind:
        case "enum":
            yield "zebra"
        case "integer" | "number":
            if type_.minimum is not None:
                yield type_.minimum - (0 if type_.above else 1)
            if type_.maximum is not None:
                yield type_.maximum + 1
        case "text" | "literal":
            if type_.minimum:
                yield ""
            if type_.maximum:
                yield "x" * int(type_.maximum + 1)
        case "list":
            if type_.minimum:
                yield []
            if type_.maximum:
                yield ["x"] * int(type_.maximum + 1)
        case "map" if type_.minimum:
            yield {}


BEYOND = [
    pytest.param(shape, key, wrong, id=f"{shape.name}.{key.name}-{number}")
    for shape, key in KEYS
    for number, wrong in enumerate(beyond(key.type))
]


@pytest.mark.parametrize(("shape", "key", "wrong"), BEYOND)
def test_a_key_outside_the_table_is_refused_by_compiler_and_editor(shape: Shape, key: Key, wrong: Any) -> None:
    document = PLACES[shape.name]({**minimal(shape, key), key.name: wrong})
    assert misshapen(document)
    assert not editor().is_valid(document)


STEP_KEYS = [
    pytest.param(verb, key, id=f"{verb.name}+{key}") for verb in VERBS.values() for key in (*COMMON_KEYS, *verb.keys)
]


@pytest.mark.parametrize(("verb", "key"), STEP_KEYS)
def test_the_compiler_takes_the_example_of_a_step_key_with_its_verb(verb: VerbRules, key: str) -> None:
    example = next(each.example for each in SHAPES["step"].keys if each.name == key)
    step = {verb.name: value(verb.example), key: value(example)}
    assert misshapen({**minimal(SHAPES["document"]), "steps": [step]}) == []
