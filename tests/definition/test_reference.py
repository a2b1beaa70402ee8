"""The table of keys and the compiler's own shapes say the same: no key in one that the other does not know."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import jsonschema_rs
import pytest
import yaml
from pydantic import BaseModel

from hai_flow.authoring.json_schema import workflow_schema
from hai_flow.definition import model
from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.document import parse
from hai_flow.definition.reference import COMMON_KEYS, SHAPES, VERBS, Key, Shape, Type, Verb

SAME: dict[str, tuple[type[BaseModel], ...]] = {
    "document": (model.DocumentShape,),
    "model": (model.ModelShape,),
    "tool": (model.PythonToolShape, model.McpToolShape, model.HttpToolShape, model.FrontendToolShape),
    "frontend": (model.FrontendShape,),
    "event_trigger": (model.EventTriggerShape,),
    "run_trigger": (model.RunTriggerShape,),
    "webhook_trigger": (model.WebhookTriggerShape,),
    "schedule_trigger": (model.ScheduleTriggerShape,),
    "defaults": (model.DefaultsShape,),
    "limits": (model.LimitsShape,),
    "concurrency": (model.ConcurrencyShape,),
    "retry": (model.RetryShape,),
    "catch": (model.CatchShape,),
    "undo": (model.UndoShape,),
    "stream": (model.StreamShape,),
    "http": (model.HttpParametersShape,),
    "llm": (model.LlmParametersShape,),
    "agent": (model.AgentParametersShape,),
    "ask": (model.AskParametersShape,),
    "approve": (model.ApproveParametersShape,),
    "approval": (model.ApprovalShape,),
    "reject": (model.RejectShape,),
    "nothing": (model.EmptyShape,),
    "escalate": (model.EscalateShape,),
    "say": (model.MessageShape,),
    "fold": (model.FoldShape,),
    "emit": (model.EmitParametersShape,),
    "custom": (model.CustomShape,),
    "raw": (model.RawShape,),
    "collaboration": (model.CollaborationShape,),
    "task": (model.TaskShape,),
    "operation": (model.OperationShape,),
    "wait": (model.WaitParametersShape,),
    "wait_for": (model.WaitForParametersShape,),
    "subscription": (model.SubscriptionShape,),
    "case": (model.CaseShape, model.DefaultCaseShape),
    "for_each": (model.ForEachParametersShape,),
    "repeat": (model.RepeatParametersShape,),
    "fail": (model.FailParametersShape,),
}
# What the compiler reads key by key, without a shape of its own; and what only groups of keys stand for.
APART = {"state_variable", "trigger", "api", "step", "on_deadline", "on_deadline_of_ask", "thinking", "output"}


def fields(shapes: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    return {field.alias or name: field for shape in shapes for name, field in shape.model_fields.items()}


def test_every_shape_is_compared_or_known_to_be_apart() -> None:
    assert set(SAME) | APART == set(SHAPES)
    assert set(SAME) & APART == set()


@pytest.mark.parametrize("name", SAME)
def test_a_shape_has_the_keys_that_the_compiler_reads(name: str) -> None:
    assert {key.name for key in SHAPES[name].keys} == set(fields(SAME[name]))


@pytest.mark.parametrize("name", [name for name, shapes in SAME.items() if len(shapes) == 1])
def test_a_key_must_be_there_in_both_or_in_neither(name: str) -> None:
    required = {key for key, field in fields(SAME[name]).items() if field.is_required()}
    assert {key.name for key in SHAPES[name].keys if key.required} == required


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_goes_with_the_keys_that_the_compiler_reads(verb: str) -> None:
    assert {*COMMON_KEYS, verb, *VERBS[verb].keys} == set(fields((model.STEP_SHAPES[verb],)))


def test_the_verbs_are_those_of_the_compiler() -> None:
    assert set(VERBS) == set(model.STEP_SHAPES)


@pytest.mark.parametrize("name", SAME)
def test_words_to_choose_from_and_bounds_are_the_same(name: str) -> None:
    given = fields(SAME[name])
    for key in SHAPES[name].keys:
        field = given[key.name]
        words = literals(field.annotation)
        if words:
            assert set(key.type.values) == words, key.name
        bounds = {type(each).__name__: each for each in field.metadata}
        if key.type.kind == "integer" and "Ge" in bounds:
            assert key.type.minimum == bounds["Ge"].ge, key.name
            assert key.type.maximum == (bounds["Le"].le if "Le" in bounds else None), key.name
        if key.type.kind == "list" and "MinLen" in bounds:
            assert key.type.minimum == bounds["MinLen"].min_length, key.name


def literals(annotation: Any) -> set[Any]:
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return set().union(*map(literals, get_args(annotation)))
    return set()


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
                yield name, lambda mapping, wrap=wrap: {"a": wrap(mapping)}
        case "either":
            for part in type_.parts:
                yield from holders(part)
        case _:
            pass


def places() -> dict[str, Any]:
    """How a mapping of each shape is put into a whole document: the shortest way there."""
    found: dict[str, Any] = {"document": lambda mapping: mapping}

    def in_step(verb: Verb, key: str, wrap: Any) -> Any:
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
EVERY_KEY = [
    pytest.param(shape, key, id=f"{shape.name}.{key.name}")
    for shape in SHAPES.values() if shape.name != "step"
    for key in shape.keys
]  # fmt: skip


def misshapen(document: dict[str, Any]) -> list[str]:
    findings = check_workflow(yaml.dump(document, sort_keys=False, allow_unicode=True).encode())
    return [str(finding) for finding in findings if finding.code.startswith(("shape.", "yaml.", "duration."))]


@pytest.mark.parametrize(("shape", "key"), EVERY_KEY)
def test_the_compiler_takes_the_example_of_a_key_in_its_place(shape: Shape, key: Key) -> None:
    document = PLACES[shape.name](minimal(shape, key))
    assert misshapen(document) == []
    assert jsonschema_rs.validator_for(workflow_schema()).is_valid(document)


@pytest.mark.parametrize("name", [name for name in SHAPES if not SHAPES[name].open and name not in ("step", "api")])
def test_the_compiler_refuses_another_key_there(name: str) -> None:
    document = PLACES[name]({**minimal(SHAPES[name]), "zebra": 1})
    findings = check_workflow(yaml.dump(document, sort_keys=False, allow_unicode=True).encode())
    assert any("zebra" in finding.message or "one entry for each" in finding.message for finding in findings), findings
    assert not jsonschema_rs.validator_for(workflow_schema()).is_valid(document)


STEP_KEYS = [
    pytest.param(verb, key, id=f"{verb.name}+{key}") for verb in VERBS.values() for key in (*COMMON_KEYS, *verb.keys)
]


@pytest.mark.parametrize(("verb", "key"), STEP_KEYS)
def test_the_compiler_takes_the_example_of_a_step_key_with_its_verb(verb: Verb, key: str) -> None:
    example = next(each.example for each in SHAPES["step"].keys if each.name == key)
    step = {verb.name: value(verb.example), key: value(example)}
    assert misshapen({**minimal(SHAPES["document"]), "steps": [step]}) == []
