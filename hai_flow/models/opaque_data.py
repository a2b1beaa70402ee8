"""Data of its own that a server of Chat Completions gives with an answer, and wants back with it: signatures of
thoughts, and thinking that is encrypted. Without it some models refuse the next request. Pure.

`Finish.opaque` is then `{message, calls}`: members of the message, and of each of its calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hai_flow.models.calls.ids import ID_CHARS_MAX
from hai_flow.models.vocabulary import Message
from hai_flow.values import Json

_LISTS: Final = ("reasoning_details", "thinking_blocks")  # of a message: OpenRouter, LiteLLM
_OF_CALLS: Final = ("extra_content", "provider_specific_fields", "thought_signature")  # Google, LiteLLM
_SEALS: Final = ("signature", "data", "encrypted_content")
_TEXTS: Final = ("text", "thinking", "summary")


class Seals:
    """The lists of one answer, put together from their pieces."""

    def __init__(self) -> None:
        self._lists: dict[str, list[dict[str, Any]]] = {}

    def take(self, message: Mapping[str, Json], *, is_whole: bool = False) -> None:
        """A message, or a piece of one. `is_whole`: what has come in pieces is not taken again."""
        for name in _LISTS:
            items = message.get(name)
            if isinstance(items, list) and not (is_whole and name in self._lists):
                parts = self._lists.setdefault(name, [])
                for item in items:
                    if isinstance(item, dict):
                        _add(parts, item)

    def opaque(self, calls: Sequence[Mapping[str, Json]]) -> dict[str, Json] | None:
        """What goes back. A list without any seal does not: some servers refuse a mere text."""
        lists = {name: parts for name, parts in self._lists.items() if any(map(_is_sealed, parts))}
        return {"message": lists, "calls": [dict(each) for each in calls]} if lists or any(calls) else None


def _add(parts: list[dict[str, Any]], item: Mapping[str, Json]) -> None:
    last = parts[-1] if parts else None
    if last is None or _is_sealed(last) or any(last.get(name) != item.get(name) for name in ("type", "index")):
        parts.append(dict(item))
        return
    for name, value in item.items():
        text = last.get(name) or ""
        if name in _TEXTS and isinstance(value, str) and isinstance(text, str):
            last[name] = text + value
        elif value is not None:
            last[name] = value


def _is_sealed(part: Mapping[str, Json]) -> bool:
    return any(part.get(name) for name in _SEALS)


def seal_of(call: Mapping[str, Json]) -> dict[str, Json]:
    """The server's own data in a call, or in a piece of one; also an id that is too long for one of a run: LiteLLM
    writes the signature of a thought into it."""
    id = call.get("id")
    ids = {"id": id} if isinstance(id, str) and len(id) > ID_CHARS_MAX else {}
    return {**ids, **{name: call[name] for name in _OF_CALLS if call.get(name)}}


def with_seals(record: dict[str, Json], message: Message) -> dict[str, Json]:
    """An assistant's message as the protocol has it, with what its server gave with it."""
    opaque = message.opaque if isinstance(message.opaque, dict) else {}
    calls = zip(record.get("tool_calls", ()), opaque.get("calls", ()), strict=False)
    sealed = {"tool_calls": [{**call, **seal} for call, seal in calls]} if message.calls and opaque else {}
    return {**record, **opaque.get("message", {}), **sealed}


def list_sealed_ids(messages: Sequence[Message]) -> dict[str, str]:
    """The ids of calls that their server wants back, by those that the calls have here."""
    opaque = ((each, each.opaque.get("calls", ())) for each in messages if isinstance(each.opaque, dict))
    pairs = (pair for message, seals in opaque for pair in zip(message.calls, seals, strict=False))
    return {call.id: seal["id"] for call, seal in pairs if "id" in seal}


def without_ids(opaque: Json) -> Json:
    """A server's own data without the ids of its calls, where it takes none that are so long."""
    if not isinstance(opaque, dict) or "calls" not in opaque:
        return opaque
    return {**opaque, "calls": [{name: seal[name] for name in seal if name != "id"} for seal in opaque["calls"]]}
