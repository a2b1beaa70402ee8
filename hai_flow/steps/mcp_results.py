"""Results of a server of the Model Context Protocol, as values of a run: plain, bounded, checked. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import mcp_types as types

from hai_flow import values
from hai_flow.definition.schemas import JsonSchema, compiled
from hai_flow.errors import StepError
from hai_flow.steps.files import kind_of
from hai_flow.values import Json, storable

Resource: TypeAlias = types.TextResourceContents | types.BlobResourceContents

SAID_CHARS_MAX: Final = 2000
PARTS_MAX: Final = 100  # of a result
LINKS_MAX: Final = 20  # of a result that are followed
DESCRIPTION_CHARS_MAX: Final = 8000
_OF_THE_WEB: Final = frozenset({"http", "https", "ws", "wss", "ftp", "data"})


def schema_of(raw: Mapping[str, Any], what: str) -> JsonSchema:
    """A schema that a server has written. Raises StepError `tool.unavailable`."""
    try:
        return compiled(values.dumps(values.check(dict(raw))))
    except Exception as error:  # the library raises several unrelated types here
        lines = str(error).splitlines() or [""]
        message = f"{what} has a schema that can't be read: {lines[0][:300]}"
        raise StepError(message, code="tool.unavailable", retriable=False) from None


def content_of(result: types.CallToolResult, who: str, fetched: Mapping[int, Sequence[Json]]) -> Json:
    """The value of a result: its structured content, else its text, else its parts, of which `fetched` replaces some by
    their numbers. `who` names the tool in errors. Raises StepError `tool.failed` where the result says so, and
    `tool.invalid_result` for too many parts."""
    if result.is_error:
        said = text_of(result.content)[:SAID_CHARS_MAX] or "it says nothing more"
        raise StepError(f"{who} failed: {said}")
    if result.structured_content is not None:
        return result.structured_content
    if all(isinstance(part, types.TextContent) for part in result.content):
        return text_of(result.content)
    parts = [each for n, part in enumerate(result.content) for each in fetched.get(n) or (_part(part),)]
    if len(parts) > PARTS_MAX:
        raise _invalid(f"the result of {who} has {len(parts)} parts, and {PARTS_MAX} are taken")
    return parts


def links_in(result: types.CallToolResult) -> list[tuple[int, types.ResourceLink]]:
    """The links to resources that only the server itself can read, with the numbers of their parts. A link to the web
    stays a link: the page behind it is not the server's own content."""
    if result.is_error or result.structured_content is not None:
        return []
    links = ((n, part) for n, part in enumerate(result.content) if isinstance(part, types.ResourceLink))
    return [(n, link) for n, link in links if link.uri.partition(":")[0].lower() not in _OF_THE_WEB]


def linked(link: types.ResourceLink, contents: Sequence[Resource]) -> tuple[list[dict[str, Json]], int]:
    """The parts that hold the resource behind a link, and their size in bytes; no parts if one of them claims to be
    Base64 and is not."""
    parts: list[dict[str, Json]] = []
    size = 0
    for each in contents:
        if isinstance(each, types.TextResourceContents):
            body, usual = storable(each.text).encode(), "text/plain"
        else:
            try:
                body, usual = base64.b64decode(each.blob, validate=True), "application/octet-stream"
            except ValueError:
                return [], 0
        size += len(body)
        value = base64.b64encode(body).decode()
        kind = each.mime_type or link.mime_type or usual
        source = {"type": "data", "value": value, "mimeType": kind, "filename": storable(link.name)}
        parts.append({"type": kind_of(kind), "source": source})
    return parts, size


def judged(output: Json, tool: types.Tool, who: str, bytes_max: int) -> Json:
    """`output`, if it has at most `bytes_max` bytes and fits the tool's declared schema. `who` names the tool in
    errors. Raises StepError `tool.invalid_result`."""
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
