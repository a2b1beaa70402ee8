"""Turns an author's question (`{system?, prompt? | messages?}`) into a conversation in the vocabulary of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.models.vocabulary import Message
from hai_flow.values import Json

Role: TypeAlias = Literal["system", "user", "assistant"]

_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PARTS: Final = ("text", "image", "audio", "video", "document")


def conversation(asked: Mapping[str, Json]) -> tuple[Message, ...]:
    """The messages. Raises StepError `llm.invalid_request` for one that is not a message."""
    system = asked.get("system")
    first = (Message("system", _text(system)),) if system else ()
    if "messages" not in asked:
        return (*first, Message("user", _text(asked.get("prompt"))))
    given = asked["messages"]
    if not isinstance(given, list) or not given:
        raise _wrong("messages", "expected a list of messages, with one at least", given)
    return (*first, *(_message(each, f"messages/{number}") for number, each in enumerate(given)))


def _message(given: Json, where: str) -> Message:
    role = _ROLES.get(str(given.get("role"))) if isinstance(given, Mapping) else None
    if role is None:
        raise _wrong(where, "expected `{role, content}` with a role of system, user or assistant", given)
    content = given.get("content")
    if isinstance(content, str):
        return Message(cast(Role, role), content)
    if isinstance(content, list):
        return Message(cast(Role, role), [_part(part, f"{where}/content/{n}") for n, part in enumerate(content)])
    raise _wrong(f"{where}/content", "expected text or a list of parts", content)


def _part(given: Json, where: str) -> Json:
    """A part as the thread's messages have it (`thread.content`), or as OpenAI's."""
    if isinstance(given, str):
        return {"type": "text", "text": given}
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind in ("input_text", "output_text"):
        kind, given = "text", {**given, "type": "text"}
    if kind == "image_url":
        image = given.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        kind, given = "image", {"type": "image", "source": _source(url if isinstance(url, str) else "")}
    if kind == "text" and isinstance(given.get("text"), str):
        return {"type": "text", "text": given["text"]}
    if kind == "file" and isinstance(given.get("file"), str):
        return {"type": "file", "source": {"type": "file", "value": given["file"]}}
    source = given.get("source") if kind in _PARTS else None
    if isinstance(source, Mapping) and isinstance(source.get("value"), str) and source["value"]:
        return given
    raise _wrong(
        where,
        "expected a part `{type: text, text}`, `{type: file, file: its id}` or "
        "`{type: image, source: {type, value, mimeType}}`",
        given,
    )


def _source(url: str) -> dict[str, Json]:
    """Where a picture is, by an address that may hold it."""
    if url.startswith("data:") and ";base64," in url:
        mime, _, value = url.removeprefix("data:").partition(";base64,")
        return {"type": "data", "value": value, "mimeType": mime}
    return {"type": "url", "value": url}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else values.dumps(value).decode()


def _wrong(where: str, expected: str, found: Json) -> StepError:
    shown = values.dumps(found).decode()
    shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
    return StepError(f"{where}: {expected}, found {shown}", code="llm.invalid_request", retriable=False)
