"""Pins: digests of the descriptions that functions of servers had when a workflow was published.

A server may change the description of a function at any time, also after people have reviewed it, and models trust
descriptions. So a workflow remembers a digest of each, and does not call a function whose description differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from hai_flow.definition.plan import Plan, Tool
from hai_flow.steps.offers import OfferedFunction

LISTED: Final = "listed"
"""In the place of a digest, under the name of a tool: its server was asked at publication, and had these functions."""


class Pins(Protocol):
    """The digests of one workflow, by `tool.function`."""

    async def known(self) -> Mapping[str, str]: ...

    async def add(self, found: Mapping[str, str]) -> Mapping[str, str]:
        """Add the digests of functions that have none yet. Returns all digests that are stored now."""
        ...


class NoPins:
    """Pins that remember nothing: every description is accepted."""

    async def known(self) -> Mapping[str, str]:
        return {}

    async def add(self, found: Mapping[str, str]) -> Mapping[str, str]:
        return found


@dataclass(frozen=True, slots=True)
class Looked:
    """The present state of the servers that a plan uses. `doubts`: steps by their paths, and why each could not be
    performed now."""

    pins: Mapping[str, str]
    doubts: Sequence[tuple[str, str]]


@runtime_checkable
class Looks(Protocol):
    """A runner whose tools may change by themselves."""

    async def look(self, plan: Plan, tenant: str) -> Looked:
        """Ask the servers of the plan for their functions, each for a short time at most. `tenant` is the name of the
        plan's tenant."""
        ...

    async def offered_to(
        self, name: str, tool: Tool, pins: Pins, *, workflow: str, tenant: str, from_disk: bool
    ) -> Sequence[OfferedFunction]:
        """As `Offers.offered`, without functions that have no pin. Raises StepError, also `mcp.tool_changed`."""
        ...
