"""A server of OpenAI's protocols on a real socket that answers by a script, in the dialects of real servers.

`FakeModels.answers` are taken one after the other, the last one stays. An answer is a list of acts: `Said` is an event
of a stream, `Raw` bytes of it as they are, `Status` an answer that is none, and `END`, `CUT` or `STALL` how it ends: in
order, with a connection that breaks, or not at all, until the client hangs up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = Any


@dataclass(frozen=True)
class Said:
    event: Json


@dataclass(frozen=True)
class Raw:
    data: bytes


@dataclass(frozen=True)
class Status:
    status: int
    body: Json = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hold:
    """The answer goes on when the test says so."""

    until: asyncio.Event


@dataclass(frozen=True)
class Later:
    """The answer goes on after so many seconds."""

    seconds: float


END, CUT, STALL = "end", "cut", "stall"
Act: TypeAlias = Said | Raw | Status | Hold | Later | str


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: Json


class FakeModels:
    """Use as `async with`."""

    def __init__(self, *answers: Sequence[Act]) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.opened = 0  # connections, so far

    async def __aenter__(self) -> FakeModels:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[Any] = set()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for writer in list(self.connections):
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        self.opened += 1
        self._tasks.add(asyncio.current_task())
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connections.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(Asked(head[0].split(" ")[1], headers, json.loads(body or b"null")))
        acts = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        first = acts[0]
        if isinstance(first, Status):
            content = json.dumps(first.body).encode()
            given = {"content-type": "application/json", "content-length": str(len(content)), **first.headers}
            lines = [f"HTTP/1.1 {first.status} x", *(f"{name}: {value}" for name, value in given.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            await writer.drain()
            return True
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for act in acts:
            if isinstance(act, Said):
                self._chunk(writer, b"data: " + json.dumps(act.event).encode() + b"\n\n")
            elif isinstance(act, Raw):
                self._chunk(writer, act.data)
            elif isinstance(act, Hold):
                await writer.drain()
                await act.until.wait()
            elif isinstance(act, Later):
                await writer.drain()
                await asyncio.sleep(act.seconds)
            elif act == STALL:
                await writer.drain()
                await reader.read(1)
                return False
            elif act == CUT:
                await writer.drain()
                writer.transport.abort()
                return False
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    @staticmethod
    def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


# --- answers ----------------------------------------------------------------------------------------------------------

DONE = Raw(b"data: [DONE]\n\n")
USAGE = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}


@dataclass(frozen=True)
class Answer:
    """An answer of a model, in any dialect. `calls` are (name, arguments as JSON text)."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    reason: str = "stop"


def chunk(delta: Json = None, *, reason: str | None = None, usage: Json = None, **more: Json) -> Said:
    """One chunk of a chat completion."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    event = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return Said(event | ({} if usage is None else {"usage": usage}) | more)


def pieces(text: str, size: int = 4) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def spoken(answer: Answer) -> list[Act]:
    """The answer as OpenAI's servers stream it."""
    acts: list[Act] = [chunk({"role": "assistant", "content": ""})]
    acts += [chunk({"content": piece}) for piece in pieces(answer.text)]
    for index, (name, args) in enumerate(answer.calls):
        opened = {"name": name, "arguments": ""}
        acts.append(
            chunk({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": opened}]})
        )
        acts += [chunk({"tool_calls": [{"index": index, "function": {"arguments": each}}]}) for each in pieces(args)]
    reason = "tool_calls" if answer.calls and answer.reason == "stop" else answer.reason
    return [*acts, chunk({}, reason=reason), chunk(usage=USAGE), DONE, END]


def _thinking(field: str) -> Callable[[Answer], list[Act]]:
    def dialect(answer: Answer) -> list[Act]:
        said = spoken(answer)
        return [said[0], *(chunk({field: each, "content": None}) for each in pieces(answer.thinking)), *said[1:]]

    return dialect


def _usage_in_every_chunk(answer: Answer) -> list[Act]:
    acts: list[Act] = []
    said = [act for act in _thinking("reasoning_content")(answer) if isinstance(act, Said) and act.event["choices"]]
    for number, act in enumerate(said):
        so_far = {**USAGE, "completion_tokens": 7 * (number + 1) // len(said)}
        acts.append(Said({**act.event, "usage": so_far}))
    return [*acts, DONE, END]


def _stop_behind_calls(answer: Answer) -> list[Act]:
    def stopped(act: Act) -> Act:
        if isinstance(act, Said) and act.event["choices"] and act.event["choices"][0]["finish_reason"] == "tool_calls":
            return chunk({}, reason="stop")
        return act

    return [stopped(act) for act in _thinking("reasoning_content")(answer)]


def _one_index(answer: Answer) -> list[Act]:
    """All calls have the index 0; each comes with an id of its own."""
    acts = _thinking("reasoning_content")(Answer(answer.text, answer.thinking))[:-4]
    for number, (name, args) in enumerate(answer.calls):
        call = {"index": 0, "id": f"id_{number}", "type": "function", "function": {"name": name, "arguments": args}}
        acts.append(chunk({"tool_calls": [call]}))
    return [*acts, chunk({}, reason="tool_calls"), chunk(usage=USAGE), DONE, END]


def _one_id(answer: Answer) -> list[Act]:
    """All calls have the same id; their pieces come by turns."""
    acts = _thinking("reasoning_content")(Answer(answer.text, answer.thinking))[:-4]
    for number, (name, _) in enumerate(answer.calls):
        opened = {"name": name, "arguments": ""}
        acts.append(chunk({"tool_calls": [{"index": number, "id": "call", "type": "function", "function": opened}]}))
    rest = [pieces(args) for _, args in answer.calls]
    for turn in range(max(map(len, rest), default=0)):
        acts += [
            chunk({"tool_calls": [{"index": number, "id": "call", "function": {"arguments": each[turn]}}]})
            for number, each in enumerate(rest)
            if turn < len(each)
        ]
    return [*acts, chunk({}, reason="tool_calls"), chunk(usage=USAGE), DONE, END]


def _one_id_and_index(answer: Answer) -> list[Act]:
    """All calls have the same id and the index 0; every piece repeats the id and the name."""
    acts = _thinking("reasoning_content")(Answer(answer.text, answer.thinking))[:-4]
    for name, args in answer.calls:
        for each in [*pieces(args, 5), ""]:
            acts.append(
                chunk({"tool_calls": [{"index": 0, "id": "call", "function": {"name": name, "arguments": each}}]})
            )
    return [*acts, chunk({}, reason="tool_calls"), chunk(usage=USAGE), DONE, END]


def _whole_calls(answer: Answer) -> list[Act]:
    """Calls without ids, whole, their arguments objects; the end stands in the last piece, with the tokens, and no
    `[DONE]` follows. Comments keep the line awake."""
    acts: list[Act] = [Raw(b": keep-alive\n\n")]
    acts += [chunk({"role": "assistant", "reasoning": each}) for each in pieces(answer.thinking)]
    acts += [chunk({"content": each}) for each in pieces(answer.text)]
    calls = [{"function": {"name": name, "arguments": json.loads(args)}} for name, args in answer.calls]
    return [*acts, chunk({"tool_calls": calls}, reason="stop", usage=USAGE), END]


def _think_tags(answer: Answer) -> list[Act]:
    """Thinking within the text, cut anywhere."""
    said = spoken(answer)
    inside = f"<think>{answer.thinking}</think>\n\n{answer.text}"
    rest = said[1 + len(pieces(answer.text)) :]
    return [said[0], *(chunk({"content": each}) for each in pieces(inside, 3)), *rest]


def _strange_shape(answer: Answer) -> list[Act]:
    """Empty and null everywhere, content in parts, unknown fields, and a second choice that was not requested."""
    acts: list[Act] = [
        chunk(usage=None, provider="x"),
        chunk({"role": "assistant", "content": None, "tool_calls": None}),
    ]
    for act in _thinking("reasoning_content")(answer)[1:-3]:
        assert isinstance(act, Said)
        delta = act.event["choices"][0]["delta"]
        if isinstance(delta.get("content"), str):
            delta = {**delta, "content": [{"type": "text", "text": delta["content"]}], "refusal": None}
        acts.append(chunk(delta))
        acts.append(Said({**act.event, "choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": None}]}))
    return [*acts, chunk({"content": ""}, reason="tool_calls"), chunk(usage=USAGE), DONE, END]


DIALECTS: dict[str, Callable[[Answer], list[Act]]] = {
    "reasoning_content": _thinking("reasoning_content"),
    "reasoning": _thinking("reasoning"),
    "usage_in_every_chunk": _usage_in_every_chunk,
    "stop_behind_calls": _stop_behind_calls,
    "one_index": _one_index,
    "one_id": _one_id,
    "one_id_and_index": _one_id_and_index,
    "whole_calls": _whole_calls,
    "think_tags": _think_tags,
    "strange_shape": _strange_shape,
}


def responded(answer: Answer, id: str | None = None) -> list[Act]:
    """The answer by the Responses protocol. `id`: that of each of its calls."""
    acts: list[Act] = [Said({"type": "response.created", "response": {"id": "r1", "status": "in_progress"}})]
    acts += [Said({"type": "response.reasoning_summary_text.delta", "delta": each}) for each in pieces(answer.thinking)]
    acts += [Said({"type": "response.output_text.delta", "delta": each}) for each in pieces(answer.text)]
    for number, (name, args) in enumerate(answer.calls):
        item = {
            "id": f"fc_{number}",
            "type": "function_call",
            "call_id": f"call_{number}" if id is None else id,
            "name": name,
            "arguments": "",
        }
        acts.append(Said({"type": "response.output_item.added", "output_index": number, "item": item}))
        delta = {"type": "response.function_call_arguments.delta", "item_id": f"fc_{number}"}
        acts += [Said({**delta, "delta": each}) for each in pieces(args)]
    output = [{"type": "reasoning", "id": "rs_1", "encrypted_content": "xyz"}] if answer.thinking else []
    usage = {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19}
    done = {"id": "r1", "status": "completed", "output": output, "usage": usage}
    return [*acts, Said({"type": "response.completed", "response": done}), END]
