"""Results of a server of the Model Context Protocol, as values of a run: plain, bounded, checked. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import mcp_types as types
from pydantic import TypeAdapter

from hai_flow import foreign, values
from hai_flow.definition.schemas.foreign_schemas import compile_schema
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.errors import StepError
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.steps.files import kind_of
from hai_flow.steps.mcp.messages import list_notes
from hai_flow.values import Json, storable

Resource: TypeAlias = types.TextResourceContents | types.BlobResourceContents

SAID_CHARS_MAX: Final = 2000
PARTS_MAX: Final = 100  # of a result
LINKS_MAX: Final = 20  # of a result that are followed
DESCRIPTION_CHARS_MAX: Final = 8000
_PART: Final[TypeAdapter[types.ContentBlock]] = TypeAdapter(types.ContentBlock)
_SIGNS: Final = (
    (b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"),
    (b"ID3", "audio/mpeg"), (b"OggS", "audio/ogg"),
)  # fmt: skip
_BASE64_EXTRA: Final = re.compile(r"\A\s*data:[^,]{0,200};base64,|\s+")
_BASE64_URL: Final = str.maketrans("-_", "+/")
_CHANGES: Final = "hai-flow/unread"  # a result is made anew here, so no server can write it
_OF_RESULTS: Final = frozenset({"content", "structuredContent", "isError", "_meta", "resultType", "inputRequests"})
_TASK_STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
_OF_THE_WEB: Final = frozenset({"http", "https", "ws", "wss", "ftp", "data"})


def schema_of(raw: Mapping[str, Any], what: str) -> JsonSchema:
    """A schema that a server has written. Raises StepError `tool.unavailable`."""
    try:
        return compile_schema(raw)
    except Exception as error:  # the library raises several unrelated types here
        lines = str(error).splitlines() or [""]
        message = f"{what} has a schema that can't be read: {lines[0][:300]}"
        raise StepError(message, code="tool.unavailable", retriable=False) from None


def result_of(raw: Mapping[str, Any]) -> types.CallToolResult:
    """A result as the server gave it, read part by part: a part that can't be read is its JSON as text."""
    content = raw.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    read = [_read_part(each) for each in parts]
    structured = raw.get("structuredContent")
    if content is None and structured is None:
        rest = {key: each for key, each in raw.items() if key not in _OF_RESULTS}
        structured = rest.get("toolResult", rest or None)  # the name of it in protocol 2024-10-07
    meta = raw.get("_meta")
    notes = list(list_notes(meta)) if isinstance(meta, dict) else []
    notes += [
        f"part {number} of the result is not one that the protocol has: it is its JSON as text"
        for number, (one, other) in enumerate(zip(parts, read, strict=True), 1)
        if isinstance(other, types.TextContent) and not _is_text(one)
    ]
    return types.CallToolResult(
        content=read,
        structured_content=structured,
        is_error=says_error(raw),
        _meta={_CHANGES: notes[: foreign.NOTES_MAX]} if notes else None,
    )


def find_task(raw: Mapping[str, Any]) -> str | None:
    """The id of the task that a server gives in place of a result, by either revision of the protocol. A result may
    have a member `task` of its own, so without `resultType` it is one of the protocol alone."""
    is_task = raw.get("resultType") == "task"
    task = raw if is_task else raw.get("task")
    if not isinstance(task, Mapping) or "content" in raw or "structuredContent" in raw:
        return None
    id = task.get("taskId")
    if is_task or (isinstance(id, str) and task.get("status") in _TASK_STATUSES):
        return id[:100] if isinstance(id, str) else "without an id"
    return None


def says_error(raw: Mapping[str, Any]) -> bool:
    """Whether a result says that the call has failed, also as text or as a number."""
    return raw.get("isError") in (True, "true", "True")


def changes_in(result: types.CallToolResult) -> Sequence[str]:
    """A note for each part of a result that could not be read, or of which something was replaced (`result_of`)."""
    return (result.meta or {}).get(_CHANGES, ())


def _is_text(raw: Any) -> bool:
    text = raw.get("text") if isinstance(raw, Mapping) and raw.get("type") == "text" else raw
    return isinstance(text, str)


def _read_part(raw: Any) -> types.ContentBlock:
    if isinstance(raw, str):
        return types.TextContent(type="text", text=raw)
    if isinstance(raw, Mapping) and (read := _with_plain_base64(raw)) is not None:
        raw = read
        plain = {key: each for key, each in raw.items() if key not in ("annotations", "_meta", "icons")}
        kinds = {"mimeType": _kind_of_bytes(raw)} if not isinstance(raw.get("mimeType"), str) else {}
        for tried in (raw, plain, plain | kinds):
            try:
                return _PART.validate_python(tried, by_name=False)
            except ValueError:
                continue
    return types.TextContent(type="text", text=json.dumps(raw, ensure_ascii=False))


def _with_plain_base64(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A part whose bytes are written in Base64 as the protocol has it: without line breaks, without the beginning of a
    `data:` address, by the usual alphabet, and padded. None: what stands there is no Base64."""
    if isinstance(raw.get("resource"), Mapping) and "blob" in raw["resource"]:
        blob = _plain_base64(raw["resource"]["blob"])
        return None if blob is None else {**raw, "resource": {**raw["resource"], "blob": blob}}
    if raw.get("type") in ("image", "audio"):
        data = _plain_base64(raw.get("data"))
        return None if data is None else {**raw, "data": data}
    return raw


def _plain_base64(text: Any) -> str | None:
    if not isinstance(text, str):
        return None
    plain = _BASE64_EXTRA.sub("", text).translate(_BASE64_URL).rstrip("=")
    plain += "=" * (-len(plain) % 4)
    try:
        base64.b64decode(plain, validate=True)
    except ValueError:
        return None
    return plain


def _kind_of_bytes(part: Mapping[str, Any]) -> str:
    """The type of a picture or a sound that does not say it, by its first bytes."""
    data = part.get("data")
    try:
        first = base64.b64decode(data[:32]) if isinstance(data, str) else b""
    except ValueError:
        first = b""
    return next((kind for sign, kind in _SIGNS if first.startswith(sign)), "application/octet-stream")


def content_of(
    result: types.CallToolResult, who: str, fetched: Mapping[int, Sequence[Json]], schema: JsonSchema | None = None
) -> Json:
    """The value of a result: its structured content (also where it stands in a text, and fits the declared `schema`),
    else its text, else its parts, of which `fetched` replaces some by their numbers. `who` names the tool in errors.
    Raises StepError `tool.failed` where the result says so, and `tool.invalid_result` for too many parts."""
    if result.is_error:
        structured = "" if result.structured_content is None else json.dumps(result.structured_content, default=str)
        explanation = storable(text_of(result.content) or structured)[:SAID_CHARS_MAX] or "it says nothing more"
        raise StepError(f"{who} failed: {explanation}")
    structured = result.structured_content
    if structured is not None and not (structured in ({}, []) and schema is not None and schema.fit(structured)[1]):
        return _unwrap(structured, schema)
    if schema is not None and (value := _read_structured(result, schema)) is not None:
        return value
    if all(isinstance(part, types.TextContent) for part in result.content):
        return text_of(result.content)
    parts = [each for n, part in enumerate(result.content) for each in fetched.get(n) or (_part(part),)]
    if len(parts) > PARTS_MAX:
        raise _invalid(f"the result of {who} has {len(parts)} parts, and {PARTS_MAX} are taken")
    return parts


def _unwrap(value: Json, schema: JsonSchema | None) -> Json:
    """The structured content of a server that gives its JSON as text, where only the value in it fits `schema`."""
    if schema is None or not isinstance(value, str) or not schema.fit(value)[1]:
        return value
    try:
        inner = foreign.read(value).value
    except values.NotJson:
        return value
    return value if schema.fit(inner)[1] else inner


def _read_structured(result: types.CallToolResult, schema: JsonSchema) -> Json:
    """The structured content that a server has written into a text; None where there is none."""
    for part in result.content:
        text = part.resource if isinstance(part, types.EmbeddedResource) else part
        if isinstance(text, types.TextContent | types.TextResourceContents):
            try:
                value = foreign.read(text.text).value
            except values.NotJson:
                continue
            if not isinstance(value, str) and not schema.fit(value)[1]:
                return value
    return None


def find_links(result: types.CallToolResult) -> list[tuple[int, types.ResourceLink]]:
    """The links to resources that only the server itself can read, with the numbers of their parts. A link to the web
    stays a link: the page behind it is not the server's own content."""
    if result.is_error or result.structured_content is not None:
        return []
    links = ((n, part) for n, part in enumerate(result.content) if isinstance(part, types.ResourceLink))
    return [(n, link) for n, link in links if link.uri.partition(":")[0].lower() not in _OF_THE_WEB]


def read_resource_parts(link: types.ResourceLink, contents: Sequence[Resource]) -> tuple[list[dict[str, Json]], int]:
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


def check_storable(output: Json, who: str, big_integers: foreign.BigIntegers) -> foreign.Foreign:
    """`output` as a run can hold it, and what was changed. Raises StepError `tool.invalid_result`, with what came in
    its `data`."""
    try:
        return foreign.take(output, big_integers)
    except values.NotJson as error:
        raise _invalid(f"the result of {who} can't be kept: {error}", output) from None


def check_output(
    output: Json, schema: JsonSchema | None, who: str, bytes_max: int, *, is_structured: bool = True
) -> Json:
    """`output`, if it has at most `bytes_max` bytes and fits the function's declared `schema`. `who` names the function
    in errors; `is_structured`: it is the structured content that such a function has to give.

    Raises StepError `tool.invalid_result`, with what came in its `data`: the call was performed."""
    size = len(values.dumps(output))
    if size > bytes_max:
        message = f"the result of {who} has {size} bytes, and {bytes_max} are taken (HAI_FLOW_HTTP_BYTES_MAX)"
        raise _invalid(message, output)
    for fault in schema.fit(output)[1][:1] if schema is not None else ():
        if not is_structured:
            message = f"{who} declares an output schema, and its result has no `structuredContent` that fits it"
            raise _invalid(message, output)
        message = f"the result of {who} is not what it declares: {fault['path'] or '/'}: {fault['message']}"
        raise _invalid(message, output)
    return output


async def check_output_by_size(
    output: Json, schema: JsonSchema | None, who: str, bytes_max: int, *, is_structured: bool = True
) -> Json:
    """As `check_output`; a large result is checked beside the loop."""
    return await run_if_large(output, check_output, output, schema, who, bytes_max, is_structured=is_structured)


def text_of(content: Sequence[types.ContentBlock]) -> str:
    """The texts among the parts of a result, a line each."""
    return storable("\n".join(part.text for part in content if isinstance(part, types.TextContent)))


def _part(part: types.ContentBlock) -> dict[str, Json]:
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
            return _embed_resource(resource)


def _embed_resource(resource: types.TextResourceContents | types.BlobResourceContents) -> dict[str, Json]:
    if isinstance(resource, types.TextResourceContents):
        return {"type": "text", "text": storable(resource.text)}
    kind = resource.mime_type or "application/octet-stream"
    source = {"type": "data", "value": resource.blob, "mimeType": kind, "filename": str(resource.uri)}
    return {"type": "document", "source": source}


def _invalid(message: str, output: Json = None) -> StepError:
    text = "" if output is None else storable(json.dumps(output, ensure_ascii=False, default=str))
    data = {"text": text if len(text) <= SAID_CHARS_MAX else f"{text[:SAID_CHARS_MAX]}…"} if text else None
    return StepError(message, code="tool.invalid_result", retriable=False, data=data)
