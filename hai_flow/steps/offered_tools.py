"""The functions of declared tools, with the schemas of their arguments, as a model is offered them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from hai_flow.definition.plan import Tool
from hai_flow.definition.tools.effect_classes import Effect
from hai_flow.values import Json


class OfferedFunction(msgspec.Struct, frozen=True):
    """A function of a tool as a model is shown it, and as arguments are checked by.

    `name` is as in `call:` and `agent.tools`: `shop.refund`, or `pick` for a tool that is one function. `parameters` is
    the JSON Schema of an object. `effect` is taken from the declaration, else from a trusted source, else it is
    `write`. `binds_formats` as of `JsonSchema`."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    result: Mapping[str, Json] | None = None
    effect: Effect = "write"
    binds_formats: bool = True


@runtime_checkable
class Offers(Protocol):
    """A runner that can list the functions of a tool of its kind."""

    async def offered(self, name: str, tool: Tool, *, from_disk: bool = False) -> Sequence[OfferedFunction]:
        """The functions of the declared tool `name`. Raises StepError (`tool.unavailable`)."""
        ...
