"""The files of a run, as its steps see them. Values hold ids of files; a step that needs the bytes asks for them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from hai_flow.errors import StepError
from hai_flow.models.vocabulary import Message
from hai_flow.primitives import file_ids
from hai_flow.values import Json

Kind: TypeAlias = Literal["image", "audio", "video", "document"]

PROMPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most bytes of files in one request to a model."""

_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")
_MEDIA: Final[tuple[Kind, ...]] = ("image", "audio", "video")


class Content(msgspec.Struct, frozen=True):
    body: bytes
    media_type: str
    name: str


class RunFiles(Protocol):
    """The files that the steps of one run may read, and where those go that they make."""

    async def read(self, id: str, bytes_max: int) -> Content:
        """The file of this id. Raises StepError `step.file_unknown`, `step.file_too_large` or
        `step.file_unavailable`."""
        ...

    async def put(self, body: bytes, media_type: str = "application/octet-stream", name: str = "") -> dict[str, Json]:
        """Store a file of the run's. Returns the content part that refers to it: `{type, source: {type: file, value:
        its id, mimeType}, metadata?}`, which an output may hold. Raises StepError `step.file_too_large` or
        `step.file_unavailable`."""
        ...


class NoFiles:
    """The files of an attempt without access to any: every method raises."""

    async def read(self, id: str, bytes_max: int) -> Content:
        raise _none()

    async def put(self, body: bytes, media_type: str = "application/octet-stream", name: str = "") -> dict[str, Json]:
        raise _none()


NO_FILES: Final = NoFiles()


def has_no_files(files: RunFiles) -> bool:
    """Whether nothing can be stored: the attempt was given no files."""
    return isinstance(files, NoFiles)


def _none() -> StepError:
    return StepError("this attempt has no files", code="step.file_unavailable", retriable=False)


def kind_of(media_type: str) -> Kind:
    """The type of the content part that holds a file of this media type."""
    return next((kind for kind in _MEDIA if media_type.startswith(f"{kind}/")), "document")


async def with_files(messages: Sequence[Message], files: RunFiles) -> tuple[Message, ...]:
    """The messages as they are sent to a model: parts that refer to a file hold its bytes, or its text if it is one.

    Raises StepError as `RunFiles.read`; `step.file_too_large` for more than `PROMPT_BYTES_MAX` in all."""
    bytes_left = PROMPT_BYTES_MAX
    result: list[Message] = []
    for message in messages:
        if isinstance(message.content, str) or not any(_id_in(part) for part in message.content):
            result.append(message)
            continue
        parts: list[Json] = []
        for part in message.content:
            id = _id_in(part)
            if id is None:
                parts.append(part)
                continue
            content = await files.read(id, bytes_left)
            bytes_left -= len(content.body)
            parts.append(_fill_part(part, content))
        result.append(replace(message, content=parts))
    return tuple(result)


def extract_files(output: Json, bytes_max: int) -> tuple[Json, dict[int, Content]]:
    """An output whose parts name files in the place of the bytes that they held, and these bytes by the number of the
    part. Raises StepError `tool.invalid_result` for more than `bytes_max`."""
    if not isinstance(output, list):
        return output, {}
    parts, contents, bytes_left = list(output), dict[int, Content](), bytes_max
    for number, part in enumerate(output):
        content = _decode_part(part)
        if content is None:
            continue
        bytes_left -= len(content.body)
        if bytes_left < 0:
            message = f"the parts of the result hold more than {bytes_max} bytes (HAI_FLOW_HTTP_BYTES_MAX)"
            raise StepError(message, code="tool.invalid_result", retriable=False)
        id = file_ids.file_id(sha256(content.body).digest())
        source = {"type": "file", "value": id, "mimeType": content.media_type}
        parts[number], contents[number] = {**part, "source": source}, content
    return parts, contents


async def put_in(output: Json, contents: Mapping[int, Content], files: RunFiles) -> Json:
    """The output with the bytes that were taken out of it, as files of the run. The largest is stored first: if it is
    refused, nothing is stored. Raises StepError as `RunFiles.put`."""
    parts = list(output) if contents else output
    for number, content in sorted(contents.items(), key=lambda each: -len(each[1].body)):
        parts[number] = await files.put(content.body, content.media_type, content.name)
    return parts


def _decode_part(part: Json) -> Content | None:
    """The bytes that a part of an output holds itself; None for one that only looks like it: what has been performed
    is kept as it came."""
    source = part.get("source") if isinstance(part, dict) else None
    if not isinstance(source, dict) or source.get("type") != "data":
        return None
    value, kind, name = source.get("value"), source.get("mimeType", ""), source.get("filename", "")
    try:
        if not (isinstance(value, str) and isinstance(kind, str) and isinstance(name, str)):
            raise ValueError
        return Content(base64.b64decode(value, validate=True), kind, name)
    except ValueError:
        return None


def _id_in(part: Json) -> str | None:
    source = part.get("source")
    return source.get("value") if isinstance(source, dict) and source.get("type") == "file" else None


def _fill_part(part: Json, content: Content) -> dict[str, Json]:
    mime = part["source"].get("mimeType") or content.media_type
    kind = part["type"] if part["type"] in (*_MEDIA, "document") else kind_of(mime)
    if kind == "document" and mime.startswith(_TEXTS):
        name = f"{content.name}:\n\n" if content.name else ""
        return {"type": "text", "text": name + content.body.decode(errors="replace")}
    source = {"type": "data", "value": base64.b64encode(content.body).decode(), "mimeType": mime}
    if content.name:
        source["filename"] = content.name
    return {"type": kind, "source": source}
