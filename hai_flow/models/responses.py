"""OpenAI's Responses: a request as its body, and a stream of its events as pieces.

Nothing is kept at the provider (`store: false`): the model's thinking comes encrypted, and goes back as it came."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from hai_flow.models.answer import Answer
from hai_flow.models.chat import (
    args_of,
    content_text,
    plain_text,
    tags_of,
    unknown_part,
    usage_of,
    with_params,
    with_schema,
)
from hai_flow.models.conversation import arrange
from hai_flow.models.ends import Stand
from hai_flow.models.faults import contradiction, fault_of_body
from hai_flow.models.places import CALL_PLACE, TEXT_PLACE, opaque_of, ordered_parts
from hai_flow.models.structured import is_strict
from hai_flow.models.vocabulary import Call, Media, Message, Piece, Request
from hai_flow.values import Json

_THINKING: Final = "response.reasoning"
"""How the types of all events of thinking begin: `reasoning_text`, `reasoning_summary_text`, `reasoning_summary_part`,
`reasoning`, `reasoning_summary`."""

_ENDS: Final = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""The events that end an answer, and the status that each stands for."""


# --- the request ------------------------------------------------------------------------------------------------------


def body_of(request: Request) -> dict[str, Json]:
    """The body of the request, with `stream`. Raises StepError `llm.invalid_request` as Chat Completions do."""
    endpoint, messages = request.endpoint, list(request.messages)
    body: dict[str, Json] = {
        "model": endpoint.model, "stream": True, "store": False, "include": ["reasoning.encrypted_content"],
    }  # fmt: skip
    if request.output is not None:
        if endpoint.quirks.output == "json_schema":
            strict = is_strict(request.output)
            form = {"type": "json_schema", "name": "answer", "schema": dict(request.output), "strict": strict}
            body["text"] = {"format": form}
        else:
            messages = with_schema(messages, request.output)
        if endpoint.quirks.output == "json_object":
            body["text"] = {"format": {"type": "json_object"}}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.schema),
                "strict": endpoint.quirks.strict_tools and is_strict(tool.schema),
            }
            for tool in request.tools
        ]
    messages = arrange(messages, alternate=endpoint.quirks.alternate)
    body["input"] = [item for message in messages for item in _items(message)]
    params = dict(endpoint.params)
    extra = params.pop("extra", {})
    if "max_tokens" in params:
        params["max_output_tokens"] = params.pop("max_tokens")
    return with_params(body, {**params, **extra})


def _items(message: Message) -> Iterator[dict[str, Json]]:
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.call_id, "output": message.content}
        return
    for each in ordered_parts(message):
        if isinstance(each, Call):
            yield {"type": "function_call", "call_id": each.id, "name": each.name, "arguments": each.args}
        elif isinstance(each, str):
            yield {"role": message.role, "content": [{"type": _text_type(message), "text": each}]}
        elif isinstance(each, list):
            yield {"role": message.role, "content": [_part(part, _text_type(message)) for part in each]}
        else:
            yield each


def _text_type(message: Message) -> str:
    return "output_text" if message.role == "assistant" else "input_text"


def _part(part: Json, text: str) -> dict[str, Json]:
    kind, source = part.get("type"), part.get("source", {})
    value, mime = source.get("value", ""), source.get("mimeType", "")
    is_data = source.get("type") == "data"
    if kind == "text":
        return {"type": text, "text": part.get("text", "")}
    if kind == "image":
        return {"type": "input_image", "image_url": f"data:{mime};base64,{value}" if is_data else value}
    if kind == "document" and is_data:
        name = source.get("filename", "document")
        return {"type": "input_file", "filename": name, "file_data": f"data:{mime};base64,{value}"}
    if kind == "document":
        return {"type": "input_file", "file_url": value}
    raise unknown_part(kind, mime)


# --- the answer -------------------------------------------------------------------------------------------------------


class ResponsesReader:
    """Reads the events of one answer. `names` are those of the functions that were offered, `reasoning` as in `Quirks`.

    Every part is said up to four times: piece by piece, as `...done`, as an item that is done, and in the response that
    is completed. What came first counts, and what is said again has to agree with it."""

    def __init__(self, names: Collection[str] = (), reasoning: str = "") -> None:
        self.answer = Answer(names, tags_of(reasoning))
        self._slots: dict[str, str] = {}  # each name of a call's item -> its slot
        self._items: dict[str, str] = {}  # each name of another item -> its first name
        self._numbers = _Numbers()
        self._pictures: set[str] = set()
        self._refused: set[str] = set()  # items whose words of refusal have come
        self._order: list[Json] = []
        self._thoughts: set[str] = set()

    def is_answer(self, event: Mapping[str, Json]) -> bool:
        return isinstance(event.get("type"), str) or isinstance(event.get("output"), list)

    def read(self, event: Mapping[str, Json]) -> Iterator[Piece]:
        """The pieces of one event. Raises StepError for an event that reports a failure."""
        if self._numbers.is_known(event):
            return
        match event.get("type"):
            case "response.output_text.delta":
                yield from self.answer.text(content_text(event["delta"]), self._part_of(event))
            case "response.output_text.done":
                yield from self.answer.whole_text(content_text(event["text"]), self._part_of(event))
            case "response.content_part.done":
                yield from self._part(event["part"], self._part_of(event))
            case str() as kind if kind.startswith(_THINKING):
                yield from self._read_thinking(event, kind)
            case "response.refusal.delta":
                self._refused.add(self._item_of(event))
                self.answer.refuse(event["delta"])
            case "response.refusal.done":
                self._refuse(self._item_of(event), event.get("refusal"))
            case "response.function_call_arguments.delta":
                yield from self.answer.call(self._slot(event), args=args_of(event["delta"]))
            case "response.function_call_arguments.done":
                args = args_of(event.get("arguments"))
                yield from self.answer.whole_call(self._slot(event), name=event.get("name") or "", args=args)
            case "response.output_item.added":
                item = event["item"]
                if item.get("type") == "function_call":
                    yield from self._call(item, event.get("output_index"), is_whole=False)
            case "response.output_item.done":
                if event["item"].get("type") == "image_generation_call":
                    self._pictures.discard(self._name_of_item(event["item"].get("id"), event.get("output_index")))
                yield from self._item(event["item"], event.get("output_index"))
            case str() as kind if kind in _ENDS:
                yield from self._read_end(event.get("response") or {}, _ENDS[kind])
            case None if "output" in event:  # the response as a document, in place of a stream
                yield from self._read_end(event, "completed")

    def end(self) -> Iterator[Piece]:
        """The last pieces, when the stream is over. An answer that is not whole gets no `Finish`."""
        yield from self.answer.end(opaque_of(self._order))

    def _slot(self, event: Mapping[str, Json]) -> str:
        """The slot of the call that an event is about: some servers name the call in place of its item."""
        names = [_name_in(event), event.get("call_id") or "", f"#{event.get('output_index')}"]
        if not any(names[:2]) and self._slots:  # it names nothing: the call that began last
            return next(reversed(self._slots.values()))
        slot = next((self._slots[name] for name in names if name in self._slots), names[0] or names[-1])
        return self._slots.setdefault(slot, slot)

    def _call(self, item: Mapping[str, Json], index: Json, *, is_whole: bool) -> Iterator[Piece]:
        """A call's item: it begins the call, or says it as a whole."""
        id, name, args = item.get("call_id") or "", item.get("name") or "", args_of(item.get("arguments"))
        names = [item.get("id") or "", f"#{index}" if index is not None else "", id]
        names = [each for each in names if each]
        slot = next((self._slots[each] for each in names[:2] if each in self._slots), None)
        if slot is None and is_whole:
            slot = self._slots.get(id)
        if slot is None:
            slot = names[0] if names else f"call {len(self._slots)}"
            for each in names:
                self._slots.setdefault(each, slot)
        if is_whole:
            yield from self.answer.whole_call(slot, id=id, name=name, args=args)
        else:
            yield from self.answer.call(slot, id=id, name=name, args=args)

    def _item(self, item: Mapping[str, Json], index: Json) -> Iterator[Piece]:
        match item.get("type"):
            case "function_call":
                if item.get("status") != "incomplete":
                    yield from self._call(item, index, is_whole=True)
                return
            case "message":
                content = item.get("content") or []
                name = self._name_of_item(item.get("id"), index)
                for number, part in enumerate(content if isinstance(content, list) else [content]):
                    yield from self._part(part, (name, number))
                return
        name = self._name_of_item(item.get("id"), index)
        match item.get("type"):
            case "image_generation_call":
                if item.get("result") and name not in self._pictures:
                    self._pictures.add(name)
                    data = base64.b64decode(item["result"], validate=True)
                    yield from self.answer.media(Media(f"image/{item.get('output_format') or 'png'}", data))
            case "reasoning" if name not in self._thoughts:
                self._thoughts.add(name)
                yield from self.answer.think(plain_text(item.get("summary")) or _thinking_of(item.get("content")))

    def _part(self, part: Json, place: tuple[str, int]) -> Iterator[Piece]:
        if isinstance(part, dict) and part.get("type") == "refusal":
            self._refuse(place[0], part.get("refusal"))
        else:
            yield from self.answer.whole_text(content_text(part), place)

    def _read_thinking(self, event: Mapping[str, Json], kind: str) -> Iterator[Piece]:
        """An event of thinking: a piece, or a part as a whole, which counts where no piece of its item has come."""
        item = self._item_of(event)
        if kind.endswith(".delta"):
            self._thoughts.add(item)
            yield from self.answer.think(plain_text(event.get("delta")))
        elif kind.endswith(".done") and item not in self._thoughts:
            text = event.get("text") or event.get("part") or event.get("delta")
            if words := _thinking_of(text):
                self._thoughts.add(item)
                yield from self.answer.think(words)

    def _item_of(self, event: Mapping[str, Json]) -> str:
        return self._name_of_item(event.get("item_id"), event.get("output_index"))

    def _part_of(self, event: Mapping[str, Json]) -> tuple[str, int]:
        return self._item_of(event), event.get("content_index") or 0

    def _name_of_item(self, id: Json, index: Json) -> str:
        """The one name of an item: some servers give it another id in each event, others another index."""
        names = [name for name in (id, "" if index is None else f"#{index}") if name]
        name = next((self._items[each] for each in names if each in self._items), names[0] if names else "")
        for each in names:
            self._items.setdefault(each, name)
        return name

    def _refuse(self, item: str, text: Json) -> None:
        if isinstance(text, str) and item not in self._refused:
            self._refused.add(item)
            self.answer.refuse(text)

    def _pair(self, output: Sequence[Mapping[str, Json]]) -> None:
        """Let items behind the answer whose names are all new be those that have come, in their order: some servers
        make ids for them once more."""
        for kind, names, streamed in (
            ("function_call", self._slots, self._slots.values()),
            ("message", self._items, [item for item, _ in self.answer.texts]),
        ):
            items = [
                [each for each in (item.get("id"), f"#{index}", item.get("call_id")) if each]
                for index, item in enumerate(output)
                if item.get("type") == kind
            ]
            paired = [next((names[each] for each in item if each in names), None) for item in items]
            free = [each for each in dict.fromkeys(streamed) if each not in paired]
            for item in (item for item, name in zip(items, paired, strict=True) if name is None):
                if free:
                    names |= dict.fromkeys(item, free.pop(0))

    def _read_end(self, response: Mapping[str, Json], status_of_event: str) -> Iterator[Piece]:
        if isinstance(usage := response.get("usage"), dict):
            yield from self.answer.usage(usage_of(usage))
        status = response.get("status") or status_of_event
        if "failed" in (status, status_of_event):
            raise fault_of_body(response.get("error") or {})
        output = [item for item in response.get("output") or () if isinstance(item, dict)]
        if not output and response.get("output_text") and self.answer.stand is Stand.SILENT:
            output = [{"type": "message", "content": response["output_text"]}]  # the texts of all messages, as one
        if status == status_of_event == "completed":
            self._pair(output)
            texts = [content_text(item.get("content")) for item in output if item.get("type") == "message"]
            is_repeated = any(texts) and "".join(texts) == "".join(self.answer.texts.values())  # in whatever items
            if is_repeated:
                yield from self.answer.drop_repetition()
            for index, item in enumerate(output):
                if is_repeated and item.get("type") == "message" and not _refuses(item):
                    continue
                if item.get("type") == "function_call" and item.get("status") == "incomplete":
                    raise contradiction(f"it is whole, and its call of {item.get('name')!r} is not")
                yield from self._item(item, index)
            self._order = [place for item in output for place in place_of(item)]
        details = response.get("incomplete_details") or {}
        for each in dict.fromkeys((status, status_of_event)):
            self.answer.reason(details.get("reason") or "length" if each == "incomplete" else each)


def place_of(item: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """An item of an answer, as it is kept to go back in its order: thinking as it is, of all else only its place."""
    match item.get("type"):
        case "reasoning":
            yield dict(item)
        case "message":
            yield {"type": TEXT_PLACE, "chars": len(content_text(item.get("content")))}
        case "function_call":
            yield {"type": CALL_PLACE}


def _refuses(message: Mapping[str, Json]) -> bool:
    parts = message.get("content")
    return isinstance(parts, list) and any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


def _name_in(event: Mapping[str, Json]) -> str:
    index = event.get("output_index")
    return event.get("item_id") or ("" if index is None else f"#{index}")


def _thinking_of(content: Json) -> str:
    """The words of thinking, however they are wrapped."""
    parts = content if isinstance(content, list) else [content]
    return "".join(plain_text(part.get("text") if isinstance(part, dict) else part) for part in parts)


class _Numbers:
    """The numbers of the events (`sequence_number`). An event that comes again with the number that it had is the same
    event: a gateway that lost its connection has asked for the stream again. This holds while the numbers rise."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}  # each number -> the hash of its event
        self._rises = True

    def is_known(self, event: Mapping[str, Json]) -> bool:
        """Whether the event has come before."""
        number = event.get("sequence_number")
        if not self._rises or not isinstance(number, int):
            return False
        mark = hash(json.dumps(event, sort_keys=True))
        if number in self._known and len(self._known) > 1:
            self._rises = self._known[number] == mark
            return self._rises
        self._rises = not self._known or number > next(reversed(self._known))
        self._known[number] = mark
        return False
