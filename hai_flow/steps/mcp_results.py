"""What a server of the Model Context Protocol says, as values of a run: plain, bounded, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import mcp_types as types

from hai_flow import values
from hai_flow.definition.schemas import JsonSchema
from hai_flow.errors import StepError
from hai_flow.values import Json, storable

SAID_CHARS_MAX: Final = 2000
DESCRIPTION_CHARS_MAX: Final = 8000


def schema_of(raw: Mapping[str, Any], what: str) -> JsonSchema:
    """A schema that a server has written. Raises StepError `tool.unavailable`."""
    try:
        return JsonSchema(values.check(dict(raw)))
    except Exception as error:  # the library raises several unrelated types here
        lines = str(error).splitlines() or [""]
        message = f"{what} has a schema that can't be read: {lines[0][:300]}"
        raise StepError(message, code="tool.unavailable", retriable=False) from None


def content_of(result: types.CallToolResult, who: str) -> Json:
    """What a call gave: its structured content, else its text, else its parts. Raises StepError `tool.failed` where the
    result says so."""
    if result.is_error:
        said = text_of(result.content)[:SAID_CHARS_MAX] or "it says nothing more"
        raise StepError(f"{who} failed: {said}")
    return _content(result)


def judged(output: Json, tool: types.Tool, who: str, bytes_max: int) -> Json:
    """The output of a call, which is small enough and what the tool declares. Raises StepError
    `tool.invalid_result`."""
    try:
        size = len(values.dumps(values.check(output)))
    except values.NotJson as error:
        raise _invalid(f"the result of {who} is not plain JSON: {error}") from None
    if size > bytes_max:
        raise _invalid(f"the result of {who} has {size} bytes, and {bytes_max} are taken (HAI_FLOW_HTTP_BYTES_MAX)")
    if tool.output_schema is not None:
        for fault in schema_of(tool.output_schema, who).findings(output)[:1]:
            raise _invalid(f"the result of {who} is not what it declares: {fault['path'] or '/'}: {fault['message']}")
    return output


def text_of(content: Sequence[types.ContentBlock]) -> str:
    """The texts among the parts of a result, a line each."""
    return storable("\n".join(part.text for part in content if isinstance(part, types.TextContent)))


def _content(result: types.CallToolResult) -> Json:
    if result.structured_content is not None:
        return result.structured_content
    if all(isinstance(part, types.TextContent) for part in result.content):
        return text_of(result.content)
    return [_part(part) for part in result.content]


def _part(part: types.ContentBlock) -> dict[str, Json]:
    """A part as messages have them."""
    match part:
        case types.TextContent(text=text):
            return {"type": "text", "text": storable(text)}
        case types.ImageContent(data=data, mime_type=mime):
            return {"type": "image", "source": {"type": "data", "value": data, "mimeType": mime}}
        case types.AudioContent(data=data, mime_type=mime):
            return {"type": "audio", "source": {"type": "data", "value": data, "mimeType": mime}}
        case types.ResourceLink(uri=uri, name=name, mime_type=mime):
            source = {"type": "url", "value": str(uri), "filename": storable(name)}
            return {"type": "document", "source": source | ({"mimeType": mime} if mime else {})}
        case types.EmbeddedResource(resource=resource):
            return _embedded(resource)


def _embedded(resource: types.TextResourceContents | types.BlobResourceContents) -> dict[str, Json]:
    if isinstance(resource, types.TextResourceContents):
        return {"type": "text", "text": storable(resource.text)}
    kind = resource.mime_type or "application/octet-stream"
    source = {"type": "data", "value": resource.blob, "mimeType": kind, "filename": str(resource.uri)}
    return {"type": "document", "source": source}


def _invalid(message: str) -> StepError:
    return StepError(message, code="tool.invalid_result", retriable=False)
