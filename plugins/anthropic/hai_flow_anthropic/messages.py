"""Anthropic's Messages: a request as its body, and a stream of its events as pieces. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from hai_flow import values
from hai_flow.models.answer import Answer
from hai_flow.models.chat import content_text, count_of, unknown_part
from hai_flow.models.conversation import arrange
from hai_flow.models.ends import Stand
from hai_flow.models.faults import fault_of_body
from hai_flow.models.places import CALL_PLACE, TEXT_PLACE, opaque_of, ordered_parts
from hai_flow.models.structured import schema_prompt
from hai_flow.models.vocabulary import Call, Message, Piece, Request, Text, Usage
from hai_flow.values import Json

MAX_TOKENS: Final = 4096


# --- the request ------------------------------------------------------------------------------------------------------


def body_of(request: Request) -> dict[str, Json]:
    """The body of the request, with `stream`. Raises StepError `llm.invalid_request` for content that the protocol
    can't carry."""
    system = [_text(message) for message in request.messages if message.role == "system"]
    if request.output is not None:
        system.append(schema_prompt(request.output))
    body: dict[str, Json] = {"model": request.endpoint.model, "stream": True, "max_tokens": MAX_TOKENS}
    if system:
        body["system"] = "\n\n".join(system)
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
            for tool in request.tools
        ]
    messages = arrange(request.messages, alternate=False)
    body["messages"] = _turns([message for message in messages if message.role != "system"])
    given = dict(request.endpoint.params)
    extra = given.pop("extra", {})
    return {**body, **given, **extra}


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.get("text", "") for part in message.content)


def _turns(messages: Sequence[Message]) -> list[Json]:
    """The messages by turns: the results of all calls of an answer are one message of the user's."""
    turns: list[dict[str, Json]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> Iterator[dict[str, Json]]:
    content = message.content
    if message.role == "tool":
        told = content if isinstance(content, str) else [_part(part) for part in content]
        yield {"type": "tool_result", "tool_use_id": message.call_id, "content": told}
        return
    for each in ordered_parts(message):  # thinking with its signature stands in front of what came of it
        if isinstance(each, Call):
            yield {"type": "tool_use", "id": each.id, "name": each.name, "input": _input(each.args)}
        elif isinstance(each, dict):
            yield each
        else:
            parts = [{"type": "text", "text": each}] if isinstance(each, str) else each
            yield from (_part(part) for part in parts if part.get("type") != "text" or part.get("text"))


def _input(args: str) -> Json:
    """The arguments of a call as an object, whatever the model once wrote."""
    try:
        found = values.loads(args)
    except values.NotJson:
        found = None
    return found if isinstance(found, dict) else {}


def _part(part: Json) -> dict[str, Json]:
    kind, source = part.get("type"), part.get("source", {})
    mime = source.get("mimeType", "")
    if kind == "text":
        return {"type": "text", "text": part.get("text", "")}
    if kind == "image" or (kind == "document" and mime in ("application/pdf", "")):
        if source.get("type") == "data":
            return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": source["value"]}}
        return {"type": kind, "source": {"type": "url", "url": source.get("value", "")}}
    raise unknown_part(kind, mime)


# --- the answer -------------------------------------------------------------------------------------------------------


class MessagesReader:
    """Reads the events of one answer. `names` are those of the functions that were offered."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self.answer = Answer(names)
        self._blocks: dict[Json, dict[str, Json]] = {}  # by index: those that go back, and the places of all others
        self._others: set[Json] = set()  # indexes of blocks that are not ours, as of tools that the provider calls
        self._usage = Usage()
        self._text_index: Json = None  # of the block whose text has grown last

    def is_answer(self, event: Mapping[str, Json]) -> bool:
        """Whether an event is one of an answer."""
        return isinstance(event.get("type"), str)

    def read(self, event: Mapping[str, Json]) -> Iterator[Piece]:
        """The pieces of one event. Raises StepError for the event of an error."""
        if event.get("type") == "content_block_stop":  # nothing says what the block is as a whole but its pieces
            yield from self._count_text(self.answer.drop_repetition(pieces_min=2))
        elif event.get("type") != "ping":
            yield from self._count_text(self.answer.release())
        match event.get("type"):
            case "message_start":
                yield from self._counted((event.get("message") or {}).get("usage"))
            case "content_block_start":
                yield from self._begun(event.get("index", 0), event.get("content_block") or {})
            case "content_block_delta":
                yield from self._grown(event.get("index", 0), event.get("delta") or {})
            case "message_delta":
                yield from self._counted(event.get("usage"))
                self.answer.reason((event.get("delta") or {}).get("stop_reason"))
            case "message_stop":
                self.answer.mark()
            case "message":  # the whole of it, in place of a stream or behind it
                content = event.get("content")
                content = () if content is None else content
                for index, block in enumerate(content if isinstance(content, list) else [content]):
                    block = block if isinstance(block, dict) else {"type": "text", "text": block}
                    yield from self._repeat(index, block) if index in self._blocks else self._begun(index, block)
                yield from self._counted(event.get("usage"))
                self.answer.reason(event.get("stop_reason"))
                self.answer.mark()
            case "error":
                raise fault_of_body(event)

    def end(self) -> Iterator[Piece]:
        """The last pieces, behind the stream. An answer that was not ended broke off: it gets no `Finish`."""
        if self.answer.stand is Stand.ENDED:
            return  # a reason, and not the event that always follows it
        yield from self.answer.end(opaque_of([self._blocks[index] for index in sorted(self._blocks)]))

    def _begun(self, index: Json, block: Mapping[str, Json]) -> Iterator[Piece]:
        match block.get("type"):
            case "tool_use":
                self._blocks[index] = {"type": CALL_PLACE}
                args = "" if block.get("input") is None else values.dumps(block["input"]).decode()
                yield from self.answer.call(index, id=block.get("id") or "", name=block.get("name") or "", args=args)
            case "text":
                yield from self._told(index, content_text(block.get("text")))
            case "thinking":
                known = {"type": "thinking", "thinking": block.get("thinking") or "", "signature": ""}
                self._blocks[index] = {**known, "signature": block.get("signature") or ""}
                yield from self.answer.think(known["thinking"])
            case "redacted_thinking":
                self._blocks[index] = dict(block)
            case _:
                self._others.add(index)

    def _repeat(self, index: Json, block: Mapping[str, Json]) -> Iterator[Piece]:
        """A block as a whole, whose pieces have come."""
        match block.get("type"):
            case "tool_use":
                args = "" if block.get("input") is None else values.dumps(block["input"]).decode()
                yield from self.answer.whole_call(
                    index, id=block.get("id") or "", name=block.get("name") or "", args=args
                )
            case "text":
                self._text_index = index
                yield from self._count_text(self.answer.whole_text(content_text(block.get("text")), index))

    def _grown(self, index: Json, delta: Mapping[str, Json]) -> Iterator[Piece]:
        match delta.get("type"):
            case "text_delta":
                yield from self._told(index, content_text(delta["text"]))
            case "thinking_delta":
                self._thought(index)["thinking"] += delta["thinking"]
                yield from self.answer.think(delta["thinking"])
            case "signature_delta":
                self._thought(index)["signature"] += delta["signature"]
            case "input_json_delta" if delta.get("partial_json") and index not in self._others:
                yield from self.answer.call(index, args=delta["partial_json"])

    def _told(self, index: Json, text: str) -> Iterator[Piece]:
        self._blocks.setdefault(index, {"type": TEXT_PLACE, "chars": 0})
        self._text_index = index
        yield from self._count_text(self.answer.text(text, index))

    def _count_text(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces, of which the texts belong to the block that has grown last."""
        for piece in pieces:
            if isinstance(piece, Text):
                self._blocks[self._text_index]["chars"] += len(piece.text)
            yield piece

    def _thought(self, index: Json) -> dict[str, Json]:
        return self._blocks.setdefault(index, {"type": "thinking", "thinking": "", "signature": ""})

    def _counted(self, given: Json) -> Iterator[Piece]:
        """Tokens so far. Anthropic counts cached tokens apart from `input_tokens`, so they are added."""
        if not isinstance(given, dict):
            return
        known = self._usage
        if given.get("input_tokens") is not None:
            cached = count_of(given.get("cache_read_input_tokens"))
            fresh = count_of(given["input_tokens"]) + count_of(given.get("cache_creation_input_tokens"))
            known = Usage(fresh + cached, known.output, cached)
        self._usage = Usage(known.input, count_of(given.get("output_tokens")) or known.output, known.cached)
        yield from self.answer.usage(self._usage)
