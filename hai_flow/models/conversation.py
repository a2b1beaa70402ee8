"""Turns an author's question (`{system?, prompt? | messages?}`) into a conversation in the vocabulary of models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, Literal, TypeAlias, cast

from msgspec.structs import replace

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.models.opaque_data import without_ids
from hai_flow.models.vocabulary import Message
from hai_flow.values import Json

EMPTY_RESULT: Final = "(The result is empty.)"
EMPTY_MESSAGE: Final = "(The message has no text.)"

_SHORT_ID: Final = re.compile("[a-zA-Z0-9]{9}")

Role: TypeAlias = Literal["system", "user", "assistant"]

_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PARTS: Final = ("text", "image", "audio", "video", "document")


def conversation(asked: Mapping[str, Json]) -> tuple[Message, ...]:
    """The messages. Raises StepError `llm.invalid_request` for one that is not a message."""
    system = asked.get("system")
    first = (Message("system", values.to_text(system)),) if system else ()
    if "messages" not in asked:
        return (*first, Message("user", values.to_text(asked.get("prompt"))))
    messages = asked["messages"]
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "expected a list of messages, with one at least", messages)
    return (*first, *(_message(each, f"messages/{number}") for number, each in enumerate(messages)))


def arrange(messages: Iterable[Message], *, alternate: bool) -> list[Message]:
    """The messages as servers take them: none without content (some refuse a request for it), and with `alternate` no
    two neighbours of one role."""
    result: list[Message] = []
    for message in messages:
        if _is_empty(message):
            if message.role == "system" or (message.role == "assistant" and not message.calls and not message.opaque):
                continue
            if message.role in ("user", "tool"):
                message = replace(message, content=EMPTY_RESULT if message.role == "tool" else EMPTY_MESSAGE)
        if alternate and result and _can_join(result[-1], message):
            before = result.pop()
            message = replace(before, content=_join_contents(before.content, message.content))
        result.append(message)
    return result


def with_short_ids(message: Message) -> Message:
    """The message with ids of calls that have nine letters or digits, as Mistral's servers want them; the same id is
    always the same one."""
    calls = tuple(replace(call, id=_short_id(call.id)) for call in message.calls)
    call_id = None if message.call_id is None else _short_id(message.call_id)
    return replace(message, calls=calls, call_id=call_id, opaque=without_ids(message.opaque))


def _short_id(id: str) -> str:
    return id if _SHORT_ID.fullmatch(id) else sha256(id.encode()).hexdigest()[:9]


def _is_empty(message: Message) -> bool:
    content = message.content
    if isinstance(content, str):
        return not content.strip()
    return all(part.get("type") == "text" and not part.get("text", "").strip() for part in content)


def _can_join(one: Message, other: Message) -> bool:
    """Whether two messages can be one: those with calls, results or data of the provider stand for themselves."""
    plain = (not each.calls and each.opaque is None and not each.thinking for each in (one, other))
    return one.role == other.role != "tool" and all(plain)


def _join_contents(one: str | list[Json], other: str | list[Json]) -> str | list[Json]:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    parts = ([{"type": "text", "text": each}] if isinstance(each, str) else each for each in (one, other))
    return [part for each in parts for part in each]


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


def _part(part: Json, where: str) -> Json:
    """A part as the thread's messages have it (`thread.content`), or as OpenAI's."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in ("input_text", "output_text"):
        kind, part = "text", {**part, "type": "text"}
    if kind == "image_url":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        kind, part = "image", {"type": "image", "source": _source(url if isinstance(url, str) else "")}
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "file" and isinstance(part.get("file"), str):
        return {"type": "file", "source": {"type": "file", "value": part["file"]}}
    source = part.get("source") if kind in _PARTS else None
    if isinstance(source, Mapping) and isinstance(source.get("value"), str) and source["value"]:
        return part
    raise _wrong(
        where,
        "expected a part `{type: text, text}`, `{type: file, file: its id}` or "
        "`{type: image, source: {type, value, mimeType}}`",
        part,
    )


def _source(url: str) -> dict[str, Json]:
    """Where a picture is, by an address that may hold it."""
    if url.startswith("data:") and ";base64," in url:
        mime, _, value = url.removeprefix("data:").partition(";base64,")
        return {"type": "data", "value": value, "mimeType": mime}
    return {"type": "url", "value": url}


def _wrong(where: str, expected: str, found: Json) -> StepError:
    text = values.dumps(found).decode()
    text = text if len(text) <= 200 else f"{text[:200]}…"
    return StepError(f"{where}: {expected}, found {text}", code="llm.invalid_request", retriable=False)
