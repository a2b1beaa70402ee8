"""The interface of a workflow that another one runs: its input, and the keys of its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from hai_flow.definition import plan
from hai_flow.values import Json


class Child(msgspec.Struct, frozen=True):
    """A workflow as its parents see it. `output` is a JSON Schema; `{}` where nothing is known."""

    input: plan.Schema
    output: Json = msgspec.field(default_factory=dict)


Children: TypeAlias = Callable[[str, int | None], Child | None]
"""Finds a child by its name and version (None: the latest); None where it is not known."""


def find_no_child(name: str, version: int | None) -> Child | None:
    return None


def child_of(compiled: plan.Plan) -> Child:
    """The interface that parents see."""
    results = list(_iter_results(compiled))
    keys: dict[str, Json] = {}
    for result in results:
        if not isinstance(result, Mapping):
            return Child(compiled.input)
        keys |= {key: {} for key in result}
    output = {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}
    return Child(compiled.input, output if results else {})


def _iter_results(compiled: plan.Plan) -> Iterator[Json]:
    """The value of each end of the workflow, as written."""
    if compiled.output is not None:
        yield compiled.output.written
    for step in compiled.steps.values():
        if isinstance(step.verb, plan.Return):
            yield step.verb.value.written
