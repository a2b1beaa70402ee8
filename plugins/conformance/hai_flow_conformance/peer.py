"""The kit's own client: it sends one POST after the other, keeps every answer, and believes none."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import httpx2

from hai_flow.values import Json
from hai_flow_conformance.rules import SNAPSHOTS, Dialect, calls_of
from hai_flow_conformance.streams import BINARY_FORMS, EVENT_STREAM, Event, Fault, read_sse

BODY_BYTES_MAX: Final = 10_000_000
_OPENED: Final = ("BUSINESS_DATA_START", "TEXT_MESSAGE_START")
_CONTENT: Final = ("BUSINESS_DATA_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK")


class Unreachable(Exception):
    """Nothing answers at the address, or the text is no address."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of the kit. `tools`: frontend tools to advertise, with the answers to them. `resume`: the payload
    that resumes an interrupt, alone in a tuple (empty: no interrupt is resumed). `dialect` None: find out."""

    url: str
    dialect: Dialect | None = None
    message: str = "hello"
    workflow: str | None = None
    tools: Mapping[str, Json] = field(default_factory=dict)
    resume: tuple[Json, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 30.0


@dataclass(slots=True)
class Exchange:
    """One POST and its answer. `ended`: the body was read to its end; `failure`: why not. `redirected`: to where
    the endpoint sent the client on."""

    what: str
    dialect: Dialect
    sent: bytes
    status: int = 0
    content_type: str = ""
    body: bytes = b""
    ended: bool = False
    failure: str = ""
    redirected: str = ""
    timed_out: bool = False
    events: list[Event] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def streamed(self) -> bool:
        return self.status == 200 and self.content_type.partition(";")[0].strip().lower() == EVENT_STREAM

    @property
    def binary(self) -> str:
        """The binary form that it is in, or ""."""
        kind = self.content_type.partition(";")[0].strip().lower()
        return kind if self.status == 200 and kind in BINARY_FORMS else ""

    @property
    def refused(self) -> bool:
        return 400 <= self.status < 500

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def all(self, *types: str) -> list[Event]:
        return [event for event in self.events if event.type in types]

    def ids(self, field: str, *types: str) -> list[str]:
        return [str(event.value[field]) for event in self.all(*types) if field in event.value]

    def interrupts(self) -> list[dict[str, Json]]:
        """The run's open interrupts."""
        finished = self.all("RUN_FINISHED")
        outcome = finished[-1].value.get("outcome") if finished else None
        listed = outcome.get("interrupts") if isinstance(outcome, dict) else None
        found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        return [each for each in found if isinstance(each.get("id"), str)]

    def done(self) -> set[tuple[str, str]]:
        """The new things in the stream: messages, calls, results. Snapshots restate; they are left out."""
        said = {("message", id) for id in self.ids("messageId", *_OPENED)}
        called = {("call", id) for id in self.ids("toolCallId", "TOOL_CALL_START")}
        return said | called | {("result", id) for id in self.ids("toolCallId", "TOOL_CALL_RESULT")}

    def snapshot(self) -> list[dict[str, Json]] | None:
        """The messages of the last snapshot."""
        found = self.all(*SNAPSHOTS)
        messages = found[-1].value.get("messages") if found else None
        return sane(messages) if isinstance(messages, list) else None

    def told(self) -> str:
        """The endpoint's answer in a few words."""
        if self.failure:
            return f"{self.what}: {self.failure}"
        if self.streamed or self.events:
            return f"{self.what}: {', '.join(_runs_of(self.types)) or 'no event'}"
        where = f" (from {self.redirected})" if self.redirected else ""
        return f"{self.what}: {self.status} {self.content_type}".rstrip() + where

    @property
    def shown(self) -> bytes:
        return self.body[:2000]


def _whole_events(body: bytes) -> bytes:
    """The events before the one in which reading ended."""
    ends = [body.rfind(blank) + len(blank) for blank in (b"\n\n", b"\r\n\r\n") if blank in body]
    return body[: max(ends, default=0)]


def _runs_of(types: Sequence[str]) -> Iterator[str]:
    for type, group in itertools.groupby(types):
        count = len(list(group))
        yield type if count == 1 else f"{count} {type}"


class Peer:
    """Posts to one endpoint. Used inside `with`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.exchanges: list[Exchange] = []
        self._client = httpx2.Client(headers=dict(plan.headers), timeout=plan.timeout, follow_redirects=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

    def post(
        self, what: str, dialect: Dialect, body: Json, *, accept: str = EVENT_STREAM, leave: bool = False
    ) -> Exchange:
        """POST and read to the end; `leave`: go away as soon as something has come. Raises Unreachable if nothing
        answers the first of all; an endpoint that is gone later is one that broke off."""
        content = (
            body
            if isinstance(body, bytes)
            else json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
        )
        exchange = Exchange(what, dialect, content)
        headers = {"Content-Type": "application/json", "Accept": accept}
        try:
            with self._client.stream("POST", self.plan.url, content=content, headers=headers) as response:
                exchange.status = response.status_code
                exchange.content_type = response.headers.get("content-type", "")
                exchange.redirected = str(response.url) if response.history else ""
                self._read(exchange, response, leave)
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
            raise Unreachable(f"{self.plan.url} is no http:// or https:// address") from None
        except httpx2.TimeoutException as error:
            if isinstance(error, httpx2.ConnectTimeout) and not self.exchanges:
                raise Unreachable(f"nothing answers at {self.plan.url}: no connection in time") from error
            exchange.timed_out = True
            exchange.failure = f"nothing came for {self.plan.timeout:g} s"
        except httpx2.ConnectError as error:
            if not self.exchanges:
                raise Unreachable(f"nothing answers at {self.plan.url}: {error}") from error
            exchange.failure = f"it is not there any more: {error}"
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            exchange.failure = f"the exchange broke off: {str(error).rstrip('.') or type(error).__name__}"
        if exchange.streamed:
            whole = exchange.body if exchange.ended else _whole_events(exchange.body)
            exchange.events, exchange.faults = read_sse(whole)
        elif exchange.binary:
            exchange.events, wrong = BINARY_FORMS[exchange.binary](exchange.body)
            exchange.faults = [Fault("accept.binary-frames", wrong)] if wrong else []
        self.exchanges.append(exchange)
        return exchange

    def _read(self, exchange: Exchange, response: httpx2.Response, leave: bool) -> None:
        deadline = time.monotonic() + self.plan.timeout
        for piece in response.iter_bytes():
            exchange.body += piece
            if leave:
                return
            if time.monotonic() > deadline:
                exchange.timed_out = True
                exchange.failure = f"no end within {self.plan.timeout:g} s"
                return
            if len(exchange.body) > BODY_BYTES_MAX:
                exchange.failure = f"more than {BODY_BYTES_MAX} bytes"
                return
        exchange.ended = True

    def preflight(self) -> tuple[int, Mapping[str, str]]:
        """A browser's question before it posts from another origin: the status and the headers of the answer."""
        asked = {
            "Origin": "https://conformance.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type, authorization",
        }
        try:
            response = self._client.request("OPTIONS", self.plan.url, headers=asked)
        except httpx2.HTTPError:
            return 0, {}
        return response.status_code, response.headers


def fresh(prefix: str) -> str:
    """A new id."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


class Thread:
    """A conversation as a client keeps it: its messages, as the events that came say."""

    def __init__(self, peer: Peer, dialect: Dialect) -> None:
        self.id = fresh("conformance")
        self.dialect = dialect
        self.messages: list[dict[str, Json]] = []
        self._peer = peer

    def body(self, messages: Sequence[dict[str, Json]] | None = None, **more: Json) -> dict[str, Json]:
        """A RunAgentInput under a new runId."""
        plan = self._peer.plan
        body: dict[str, Json] = {
            "threadId": self.id,
            "runId": fresh("run"),
            "messages": list(self.messages if messages is None else messages),
            "tools": [
                {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}}
                for name in plan.tools
            ],
            "context": [],
            "state": {},
            "forwardedProps": {} if plan.workflow is None else {"workflow": plan.workflow},
        }
        if self.dialect is Dialect.AGUI:
            body["protocolVersion"] = "1.0"
        return body | more

    def post(self, what: str, body: Json, *, accept: str = EVENT_STREAM, leave: bool = False) -> Exchange:
        return self._peer.post(what, self.dialect, body, accept=accept, leave=leave)

    def say(self, what: str, text: str | None = None) -> tuple[dict[str, Json], Exchange]:
        """Post a user message, and take the answer into the history."""
        self.messages.append(user(self._peer.plan.message if text is None else text))
        body = self.body()
        exchange = self.post(what, body)
        self.take(exchange)
        return body, exchange

    def take(self, exchange: Exchange) -> None:
        """The messages that a client makes of the events."""
        for event in exchange.events:
            self._take(event)

    def _take(self, event: Event) -> None:
        value = event.value
        if event.type in SNAPSHOTS and isinstance(value.get("messages"), list):
            self.messages = sane(value["messages"])
        elif event.type in _OPENED:
            self._message(str(value.get("messageId", "")))
        elif event.type in _CONTENT and isinstance(value.get("delta"), str):
            message = self._message(str(value.get("messageId", "")))
            message["content"] = str(message.get("content") or "") + value["delta"]
        elif event.type == "TOOL_CALL_START":
            id = str(value.get("toolCallId", ""))
            message = self._message(str(value.get("parentMessageId") or id))
            message.setdefault("toolCalls", []).append(_call(id, str(value.get("toolCallName", "")), ""))
        elif event.type == "TOOL_CALL_ARGS" and isinstance(value.get("delta"), str):
            for message in self.messages:
                for call in message.get("toolCalls", ()):
                    if call["id"] == value.get("toolCallId"):
                        call["function"]["arguments"] += value["delta"]
        elif event.type == "TOOL_CALL_RESULT":
            result = {"role": "tool", "toolCallId": value.get("toolCallId"), "content": value.get("content")}
            self.messages.append({"id": str(value.get("messageId", "")), **result})

    def _message(self, id: str) -> dict[str, Json]:
        for message in self.messages:
            if message.get("id") == id:
                return message
        self.messages.append({"id": id, "role": "assistant"})
        return self.messages[-1]

    def open_calls(self) -> list[tuple[str, str, str]]:
        """The calls without a result: id, name, arguments."""
        answered = {message.get("toolCallId") for message in self.messages}
        calls = [call for message in self.messages for call in calls_of(message)]
        return [(id, name, arguments) for id, name, arguments in calls if id not in answered]


def sane(messages: Sequence[Json]) -> list[dict[str, Json]]:
    """Copies of the messages that have the form of one; calls of another form than the protocol's are left out."""
    found: list[dict[str, Json]] = []
    for message in messages:
        if isinstance(message, dict) and isinstance(message.get("id"), str):
            found.append({name: value for name, value in message.items() if name != "toolCalls"})
            if calls := [(id, name, text) for id, name, text in calls_of(message) if isinstance(text, str)]:
                found[-1]["toolCalls"] = [_call(id, name, text) for id, name, text in calls]
    return found


def _call(id: str, name: str, arguments: str) -> dict[str, Json]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: str) -> dict[str, Json]:
    return {"id": fresh("msg"), "role": "user", "content": text}


def tool_message(call_id: str, answer: Json) -> dict[str, Json]:
    """The answer to a call. Other values than text go as their JSON."""
    content = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return {"id": fresh("msg"), "role": "tool", "toolCallId": call_id, "content": content}
