"""A tool of the server's own: its description, the right that it takes, and its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from hai_flow.api.mcp.runs import Progress, reject_arguments
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.access import Access
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.primitives.beside_loop import run_if_large


class Call(NamedTuple):
    """What comes with a call beside its arguments. `key`: the client's idempotency key."""

    key: str | None
    progress: Progress | None


Function: TypeAlias = Callable[[Access, Mapping[str, Any], Call], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class ServedTool:
    """A tool that needs one of `rights`. `properties`: the schemas of its arguments, of which some are `required`.
    `reads`: it changes nothing. `destroys`: it may end what others rely on."""

    name: str
    title: str
    description: str
    properties: dict[str, Any]
    function: Function
    rights: tuple[Right, ...]
    required: tuple[str, ...] = ()
    output: dict[str, Any] | None = None
    reads: bool = False
    destroys: bool = False
    meta: dict[str, Any] = field(default_factory=dict)

    def is_for(self, access: Access) -> bool:
        """Whether the caller has one of the rights."""
        return any(access.principal.may(right) for right in self.rights)

    @cached_property
    def input(self) -> dict[str, Any]:
        required = list(self.required)
        return {"type": "object", "properties": self.properties, "required": required, "additionalProperties": False}

    @cached_property
    def described(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        description: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "annotations": {
                "readOnlyHint": self.reads,
                "destructiveHint": self.destroys,
                "idempotentHint": True,
                "openWorldHint": False,
            },
        }
        if self.output is not None:
            description["outputSchema"] = self.output
        if self.meta:
            description["_meta"] = self.meta
        return description

    @cached_property
    def _schema(self) -> JsonSchema:
        return JsonSchema(self.input)

    async def call(
        self, access: Access, given: Mapping[str, Any], key: str | None, progress: Progress | None
    ) -> dict[str, Any]:
        """Check the arguments and call the function. Raises Rejected 422 with every finding, and as it does."""
        findings = await run_if_large(given, self._schema.findings, dict(given))
        if findings:
            raise reject_arguments(findings)
        return await self.function(access, given, Call(key, progress))


def make_text_result(text: str, content: Any) -> dict[str, Any]:
    """The result of a call: a text for the model, and the content for programs."""
    return {"content": [{"type": "text", "text": text}], "structuredContent": content, "isError": False}
