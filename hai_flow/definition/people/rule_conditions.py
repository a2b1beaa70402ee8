"""Conditions of a standing rule over the arguments of a call: a CEL expression, a table of bounds, or both.

The table is written as CEL and evaluated like every expression, within the same bounds: there is one meaning of a
comparison, and what is absent or of another type can't be evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from hai_flow import values
from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.expressions.expression_error import Faults
from hai_flow.definition.expressions.expressions import compile_expression
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.values import Json

ARGUMENTS: Final = "args"
EXPRESSION_CHARS_MAX: Final = 2000
BOUNDS_MAX: Final = 20
CHOICES_MAX: Final = 100
_NAMES: Final = Names(Types({}, {}), roots=frozenset({ARGUMENTS}))


class ConditionError(ValueError):
    """A condition that can't be compiled. The message has the expected and the found."""


def compile_conditions(when: str | None, bounds: Mapping[str, Mapping[str, Json]]) -> CompiledExpression | None:
    """The condition that both make together; None: every call meets it. `bounds` gives arguments, by name, their
    `equals`, `in`, `min`, `max`. Raises ConditionError."""
    if len(bounds) > BOUNDS_MAX:
        raise ConditionError(f"expected bounds of at most {BOUNDS_MAX} arguments, found {len(bounds)}")
    parts = [part for name, bound in sorted(bounds.items()) for part in _write_bounds(name, bound)]
    if when is not None:
        if len(when) > EXPRESSION_CHARS_MAX:
            raise ConditionError(
                f"expected an expression of at most {EXPRESSION_CHARS_MAX} characters, found {len(when)}"
            )
        _compile(when)  # by itself first: what it says must not reach into the text around it
        parts.append(f"({when}\n)")
    return _compile(" && ".join(parts)) if parts else None


@lru_cache(maxsize=1024)
def _compile(source: str) -> CompiledExpression:
    try:
        return compile_expression(source, _NAMES, condition=True)
    except Faults as faults:
        raise ConditionError("; ".join(fault.message for fault in faults.faults)) from None


def _write_bounds(name: str, bound: Mapping[str, Json]) -> list[str]:
    argument = f"{ARGUMENTS}[{_write_literal(name)}]"
    if not bound:
        raise ConditionError(f"{name}: expected equals, in, min or max, found none")
    parts = []
    for word, value in sorted(bound.items()):
        match word:
            case "equals":
                parts.append(f"{argument} == {_write_literal(value)}")
            case "in" if isinstance(value, list) and 0 < len(value) <= CHOICES_MAX:
                parts.append(f"{argument} in [{', '.join(map(_write_literal, value))}]")
            case "min" | "max" if type(value) in (int, float) and math.isfinite(value):
                parts.append(f"{argument} {'>=' if word == 'min' else '<='} {_write_literal(value)}")
            case _:
                raise ConditionError(
                    f"{name}: expected equals, in (a list of 1 to {CHOICES_MAX}), or min and max (numbers), found "
                    f"{word}: {values.dumps(value).decode()[:60]}"
                )
    return parts


def _write_literal(value: Json) -> str:
    if value is not None and not isinstance(value, str | bool | int | float):
        raise ConditionError(f"expected text, a number, true, false or null, found {type(value).__name__}")
    return values.dumps(value).decode()
