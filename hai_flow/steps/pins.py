"""Pins: digests of the descriptions that functions of servers had when a workflow was published.

A server may change the description of a function at any time, also after people have reviewed it, and models trust
descriptions. So a workflow remembers a digest of each, and does not call a function whose description differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

from hai_flow.definition.plan import Plan, Schema, Step, Tool
from hai_flow.steps.offered_tools import OfferedFunction

if TYPE_CHECKING:
    from hai_flow.steps.runner import Attempt

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


UNKNOWN: Final = ""
"""The source of a tool that this process does not know, though who performs its calls does."""


class ToolIdentity(msgspec.Struct, frozen=True):
    """What a call would perform now: the digest of the tool's code, or of its `description` by its server, which may
    give a `title`, too; None where there is none."""

    source: str | None
    description: str | None = None
    title: str | None = None


class PinsOfApproval(msgspec.Struct, frozen=True):
    """The digests of a workflow, but for the function `name`, which people have approved as it is now."""

    pins: Pins
    name: str
    source: str

    async def known(self) -> Mapping[str, str]:
        return {**await self.pins.known(), self.name: self.source}

    async def add(self, found: Mapping[str, str]) -> Mapping[str, str]:
        return {**await self.pins.add(found), self.name: self.source}


@runtime_checkable
class Identifies(Protocol):
    """A runner of tools whose code, or description, people approve with a call."""

    def source_of(self, step: Step, *, from_disk: bool = False) -> str | None:
        """The digest as this process knows it without asking anybody; `UNKNOWN`; None: there is none."""
        ...

    def find_schema(self, step: Step, source: str | None, *, from_disk: bool = False) -> Schema | None:
        """That of the arguments, of the tool with this digest, as this process knows it without asking anybody."""
        ...

    async def identify(self, attempt: Attempt) -> ToolIdentity:
        """What the attempt would perform now. Raises StepError."""
        ...


class Looked(msgspec.Struct, frozen=True):
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
