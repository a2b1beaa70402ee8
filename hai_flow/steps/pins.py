"""What a workflow was published with: the functions of servers, as they described themselves then.

A server may change what it says of a function at any time: after people have read it, and a model trusts it. So a
workflow remembers a digest of each, and a function that differs is not called by it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from hai_flow.definition.plan import Plan, Tool
from hai_flow.steps.offers import Offered

LISTED: Final = "listed"
"""In the place of a digest, under the name of a tool: its server was asked at publication, and had these functions."""


class Pins(Protocol):
    """The digests of one workflow, by `tool.function`."""

    async def known(self) -> Mapping[str, str]: ...

    async def add(self, found: Mapping[str, str]) -> Mapping[str, str]:
        """Add what is not there yet; all that stand."""
        ...


class NoPins:
    """Nothing is remembered: whatever is found stands."""

    async def known(self) -> Mapping[str, str]:
        return {}

    async def add(self, found: Mapping[str, str]) -> Mapping[str, str]:
        return found


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of the servers that a plan uses. `doubts`: steps by their paths, and why each could not be
    performed now."""

    pins: Mapping[str, str]
    doubts: Sequence[tuple[str, str]]


@runtime_checkable
class Looks(Protocol):
    """A runner whose tools may change by themselves."""

    async def look(self, plan: Plan, tenant: str) -> Looked:
        """Ask the servers of the plan, which is the tenant's of this name, for a short while."""
        ...

    async def offered_to(
        self, name: str, tool: Tool, pins: Pins, *, workflow: str, tenant: str, from_disk: bool
    ) -> Sequence[Offered]:
        """As `Offers.offered`, without what the workflow does not know. Raises StepError, also `mcp.tool_changed`."""
        ...
