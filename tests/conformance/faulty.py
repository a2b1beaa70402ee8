"""A small AG-UI agent over HTTP that is right in everything but the one fault it is given.

It says something, calls `confirmAction`, and says what became of it when it is answered."""

from __future__ import annotations

import json
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hai_flow.wire.dialects.agui_protobuf import encode_event

BINARY = "application/vnd.ag-ui.event+proto"
BINARY_FAULTS = (
    "binary as well",
    "a charset on binary",
    "a cut binary frame",
    "a frame of another type in binary",
    "a message left open in binary",
    "binary says something else",
    "nothing twice in binary",
)
TEXT = ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END")


@dataclass
class Thread:
    messages: list[dict[str, Any]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    runs: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # runId -> body, stream
    call: str | None = None
    answered: str | None = None


class Refused(Exception):
    pass


class Agent:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.threads: dict[str, Thread] = {}
        self.lock = threading.Lock()
        self.looks = 0

    def post(self, raw: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        try:
            body = json.loads(raw)
            thread_id, run_id, messages = body["threadId"], body["runId"], body["messages"]
            if not all(isinstance(each, str) for each in (thread_id, run_id)):
                raise Refused
            users = [each for each in messages if each["role"] == "user"]
        except (ValueError, KeyError, TypeError, Refused):
            if self.fault == "500 for what is malformed":
                return 500, b"Traceback"
            if self.fault == "malformed is taken for empty":
                return 200, b'{"events":[]}'
            return 422, b'{"detail":"malformed"}'
        thread = self.threads.setdefault(thread_id, Thread())
        if run_id in thread.runs and self.fault == "nothing twice in binary":
            return 409, b"{}"
        if run_id in thread.runs:
            return (200, thread.runs[run_id][1]) if thread.runs[run_id][0] == raw else (409, b"{}")
        answers = {each["toolCallId"]: each["content"] for each in messages if each["role"] == "tool"}
        new = [each for each in users if each["id"] not in thread.seen]
        if thread.call in answers:
            events = self._answered(thread, run_id, answers[thread.call])
        elif self._believes(thread, messages, answers):
            events = self._text(thread, run_id, "You say so.")
        elif new and thread.call:
            return 409, b'{"code":"thread_waiting"}'
        elif new:
            events = self._asked(thread, run_id, new)
        else:
            events = self._attached(thread, messages)
        if self.fault == "another runId":
            run_id = "run-of-mine"
        started = {"type": "RUN_STARTED", "threadId": thread_id, "runId": run_id, "protocolVersion": "1.0"}
        finished = {"type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id}
        stream = self._bytes([started, *events, finished])
        thread.runs[body["runId"]] = (raw, stream)
        return 200, stream

    def gone(self, raw: bytes) -> None:
        """The client went away in the middle."""
        self.threads[json.loads(raw)["threadId"]].messages.clear()

    def _believes(self, thread: Thread, messages: list[dict[str, Any]], answers: dict[str, str]) -> bool:
        made_up = set(answers) - {thread.call, thread.answered}
        if made_up and self.fault == "made-up history is kept":
            thread.messages += [each for each in messages if each.get("toolCalls")][-1:]
        if made_up and self.fault == "a made-up call closes the real one":
            thread.call = None
        calls = any(each.get("toolCalls") for each in messages)
        if self.fault == "changed arguments are kept" and thread.call and calls and not made_up:
            thread.messages[:] = messages
        again = thread.answered in answers
        return (
            (bool(made_up) and self.fault == "made-up calls are believed")
            or (again and answers[thread.answered or ""] == "true" and self.fault == "a duplicate answer counts")
            or (again and answers[thread.answered or ""] != "true" and self.fault == "another answer counts")
        )

    def _asked(self, thread: Thread, run_id: str, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        thread.messages += new
        thread.seen |= {each["id"] for each in new}
        thread.call = f"call-{run_id}"
        said = self._text(thread, run_id, "Sure?")
        arguments = '{"action":"delete"}'
        function = {"name": "confirmAction", "arguments": arguments}
        thread.messages[-1]["toolCalls"] = [{"id": thread.call, "type": "function", "function": function}]
        return [*said, *call(thread.call, arguments, said[0]["messageId"])]

    def _answered(self, thread: Thread, run_id: str, content: str) -> list[dict[str, Any]]:
        thread.answered, thread.call = thread.call, None
        events: list[dict[str, Any]] = []
        answered = thread.answered or ""
        if self.fault == "the answered call again":
            events = call(answered, "{}", "m-other")
        if self.fault == "a result of the client's tool":
            events = [{"type": "TOOL_CALL_RESULT", "messageId": "m-r", "toolCallId": answered, "content": content}]
        used = next(each["id"] for each in thread.messages if each["role"] == "assistant")
        if self.fault == "the old message again":
            return [{**each, "messageId": used} for each in self._text(thread, run_id, "Done.")]
        return [*events, *self._text(thread, run_id, "Done.")]

    def _text(self, thread: Thread, run_id: str, text: str) -> list[dict[str, Any]]:
        id = f"m-{run_id}"
        thread.messages.append({"id": id, "role": "assistant", "content": text})
        start, content, end = ({"type": type, "messageId": id} for type in TEXT)
        return [start, content | {"delta": text}, end]

    def _attached(self, thread: Thread, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.fault == "the open call again" and thread.call:
            return call(thread.call, "{}", "m-other")
        if self.fault == "nothing twice in binary":
            self.looks += 1
            return [{"type": "STATE_SNAPSHOT", "snapshot": self.looks}]
        return [{"type": "MESSAGES_SNAPSHOT", "messages": thread.messages}]

    def _bytes(self, events: list[dict[str, Any]]) -> bytes:
        """The events as a stream, with the fault if it is one of streams."""
        events = _changed(events, self.fault)
        stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        match self.fault:
            case "CRLF":
                return stream.replace(b"\n", b"\r\n")
            case "no space":
                return stream.replace(b"data: ", b"data:")
            case "no blank line":
                return stream[:-1]
            case "[DONE]":
                return stream + b"data: [DONE]\n\n"
        return stream


def call(id: str, arguments: str, message_id: str) -> list[dict[str, Any]]:
    return [
        {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": "confirmAction", "parentMessageId": message_id},
        {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments},
        {"type": "TOOL_CALL_END", "toolCallId": id},
    ]


def _changed(events: list[dict[str, Any]], fault: str) -> list[dict[str, Any]]:
    first, *middle, last = events
    half = {"type": "CUSTOM", "name": "x", "value": "\ud800", "\ud800": None}
    step = {"type": "STEP_STARTED", "stepName": "s"}
    match fault:
        case "null":
            return [first | {"parentRunId": None}, *middle, last]
        case "half a character":
            return [first, half, *middle, last]
        case "a fraction of a millisecond":
            return [first | {"timestamp": 1.5}, *middle, last]
        case "something before the start":
            return [{"type": "CUSTOM", "name": "x", "value": 1}, *events]
        case "no end":
            return events[:-1]
        case "something after the end":
            return [*events, {"type": "CUSTOM", "name": "x", "value": 1}]
        case "a message left open":
            return [event for event in events if event["type"] != "TEXT_MESSAGE_END"]
        case "a step of one name twice":
            return [first, step, step, {"type": "STEP_FINISHED", "stepName": "s"}, *middle, last]
        case "arguments twice":
            return [each for event in events for each in [event] * (1 + (event["type"] == "TOOL_CALL_ARGS"))]
        case "an empty delta":
            return [each for e in events for each in ([e, e | {"delta": ""}] if e["type"] == TEXT[1] else [e])]
        case "an event of its own":
            return [first, {"type": "THOUGHTS", "text": "hm"}, *middle, last]
        case "a word as outcome":
            return [first, *middle, last | {"outcome": "interrupt"}]
        case "pendingToolCallIds":
            return [first, *middle, last | {"outcome": {"type": "success", "pendingToolCallIds": []}}]
        case "a step without a name":
            return [first, {"type": "CUSTOM", "value": 1}, *middle, last]
        case "an object as delta":
            return [event | ({"delta": {}} if event["type"] == TEXT[1] else {}) for event in events]
    return events


def _in_binary(fault: str, modern: bool, kind: str, stream: bytes) -> tuple[str, bytes]:
    """The Content-Type and the body for one who accepts the binary form."""
    if fault == "binary for old peers" or (modern and fault in BINARY_FAULTS):
        events = [json.loads(block.removeprefix(b"data: ")) for block in stream.split(b"\n\n") if block]
        if fault == "binary says something else" and any(event["type"] == TEXT[0] for event in events):
            events = [event for event in events if event["type"] not in TEXT and "TOOL" not in event["type"]]
        if fault == "a message left open in binary":
            events = [event for event in events if event["type"] != TEXT[2]]
        frames = [encode_event(event) for event in events]
        if fault == "a frame of another type in binary":
            frames[0] = frames[0].replace(b"\x08\x0b", b"\x08\x0c", 1)
        binary = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
        if fault == "a cut binary frame":
            binary = binary[:-1]
        return BINARY + ("; charset=utf-8" if fault == "a charset on binary" else ""), binary
    return kind, stream


@contextmanager
def endpoint(fault: str) -> Iterator[str]:
    """The URL of the agent with that fault."""
    agent = Agent(fault)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the second of two writes would wait for the reader to acknowledge the first

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            with agent.lock:
                status, body = agent.post(raw)
            if status == 422 and fault == "what is malformed kills it":
                server.socket.close()
                self.connection.close()
                self.close_connection = True
                return
            kind = "application/json" if status != 200 or body.startswith(b"{") else "text/event-stream"
            if kind != "application/json" and BINARY in self.headers["accept"]:
                kind, body = _in_binary(fault, b"protocolVersion" in raw, kind, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:40])
            self.wfile.flush()
            if fault == "a disconnect forgets" and status == 200 and select.select([self.connection], [], [], 0.1)[0]:
                with agent.lock:
                    agent.gone(raw)
                self.close_connection = True
                return
            self.wfile.write(body[40:])

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/agent"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
