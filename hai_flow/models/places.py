"""The order of an answer's parts: thinking that a provider wants back stands between texts and calls. Pure.

`Finish.opaque` is a list of items that only the provider understands. Between them stand places for the texts and the
calls of the message: these are kept once, in the message itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from hai_flow.models.vocabulary import Call, Message
from hai_flow.values import Json

TEXT_PLACE: Final = "hai.text"
CALL_PLACE: Final = "hai.call"


def opaque_of(items: Sequence[Json]) -> list[Json] | None:
    """The items of an answer that go back: its thinking, and the places in front of any; None if it has none."""
    returned = list(items)
    while returned and returned[-1].get("type") in (TEXT_PLACE, CALL_PLACE):
        returned.pop()
    return returned or None


def ordered_parts(message: Message) -> Iterator[dict[str, Any] | list[Json] | str | Call]:
    """The parts of a message in the order in which they came: items of the provider, its texts (or, where it is a list
    of parts, that list), its calls. Texts and calls without a place come last, texts first."""
    content: list[Json] | str = message.content
    items = message.opaque if message.role == "assistant" and isinstance(message.opaque, list) else []
    texts = [item["chars"] for item in items if item.get("type") == TEXT_PLACE]
    fits = isinstance(content, str) and sum(texts) <= len(content)
    calls = list(message.calls)
    for item in items:
        match item.get("type"):
            case kind if kind == TEXT_PLACE:
                text = content[: item["chars"]] if fits and isinstance(content, str) else content
                content = content[item["chars"] :] if fits else ""
                if text:
                    yield text
            case kind if kind == CALL_PLACE:
                if calls:
                    yield calls.pop(0)
            case _:
                yield item
    if content:
        yield content
    yield from calls
