"""The table of keys and the compiler's own shapes say the same: no key in one that the other does not know."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from hai_flow.definition import model
from hai_flow.definition.reference import COMMON_KEYS, SHAPES, VERBS, Type

SAME: dict[str, tuple[type[BaseModel], ...]] = {
    "document": (model.DocumentShape,),
    "model": (model.ModelShape,),
    "tool": (model.PythonToolShape, model.McpToolShape, model.HttpToolShape, model.FrontendToolShape),
    "frontend": (model.FrontendShape,),
    "event_trigger": (model.EventTriggerShape,),
    "schedule_trigger": (model.ScheduleTriggerShape,),
    "defaults": (model.DefaultsShape,),
    "limits": (model.LimitsShape,),
    "concurrency": (model.ConcurrencyShape,),
    "retry": (model.RetryShape,),
    "catch": (model.CatchShape,),
    "undo": (model.UndoShape,),
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
