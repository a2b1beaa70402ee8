"""What a model is offered: the functions of declared tools, with the schemas of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from hai_flow.definition.plan import Tool
from hai_flow.values import Json


@dataclass(frozen=True, slots=True)
class Offered:
    """A function of a tool as a model is shown it, and as arguments are checked by.

    `name` is as in `call:` and `agent.tools`: `shop.refund`, or `pick` for a tool that is one function. `parameters` is
    the JSON Schema of an object. `effect` is what the declaration says, else what a trusted source says, else `write`.
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    result: Mapping[str, Json] | None = None
    effect: Literal["read", "write"] = "write"


@runtime_checkable
class Offers(Protocol):
    """A runner that can say what a tool of its kind offers."""

    async def offered(self, name: str, tool: Tool, *, from_disk: bool = False) -> Sequence[Offered]:
        """The functions of the declared tool `name`. Raises StepError (`tool.unavailable`)."""
        ...
