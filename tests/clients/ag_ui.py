"""The real `@ag-ui/client`, one agent per object: what it was sent, what it made of it, and what it threw.

Every stream that it sees is linted, and the client itself must have had nothing to complain of.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.clients.rig import Driver
from tests.support import agui_lint, wire_lint
from tests.support.hai_client import unique

Json: TypeAlias = Any

VERSIONS = ("1.0.0", "0.0.59", "0.0.48", "0.0.42")
WITH_INTERRUPTS = ("1.0.0", "0.0.59")


@dataclass(frozen=True)
class Seen:
    """One `runAgent`, as the client saw it."""

    events: list[dict[str, Json]]
    messages: list[dict[str, Json]]
    new_messages: list[dict[str, Json]]
    state: Json
    interrupts: list[dict[str, Json]]
    thrown: dict[str, Json] | None
    exchanges: list[dict[str, Json]]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def request(self) -> dict[str, Json]:
        """The body that the client posted."""
        return json.loads(self.exchanges[-1]["request"])

    @property
    def status(self) -> int:
        return self.exchanges[-1]["status"]

    @property
    def problem(self) -> dict[str, Json]:
        """What the server refused the POST with, as the client threw it."""
        assert self.thrown is not None, f"nothing was refused: {self.types}"
        assert self.thrown["message"].startswith(f"HTTP {self.status}"), self.thrown
        found = self.thrown["payload"] or self.body.decode()
        return found if isinstance(found, dict) else json.loads(found)

    @property
    def body(self) -> bytes:
        """What the server answered, byte for byte."""
        return base64.b64decode(self.exchanges[-1]["body"])

    def all(self, type: str) -> list[dict[str, Json]]:
        return [event for event in self.events if event["type"] == type]

    def one(self, type: str) -> dict[str, Json]:
        found = self.all(type)
        assert len(found) == 1, f"expected one {type}, found {self.types}"
        return found[0]

    @property
    def said(self) -> list[str]:
        """The text of the assistant's messages, as the client has put them together, oldest first."""
        return [m["content"] for m in self.messages if m["role"] == "assistant" and m.get("content")]

    @property
    def calls(self) -> list[dict[str, Json]]:
        """All tool calls of the client's messages, each with its parsed arguments."""
        return [
            {"id": call["id"], "name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
            for message in self.messages
            for call in message.get("toolCalls") or ()
        ]

    @property
    def open_calls(self) -> list[dict[str, Json]]:
        """The calls that a frontend would now perform or show: those without a tool message."""
        answered = {message["toolCallId"] for message in self.messages if message["role"] == "tool"}
        return [call for call in self.calls if call["id"] not in answered]

    def call(self, name: str) -> dict[str, Json]:
        """The one open call of a tool."""
        found = [call for call in self.open_calls if call["name"] == name]
        assert len(found) == 1, f"expected one open call of {name}, found {self.calls} after {self.types}"
        return found[0]

    def check_end(self) -> Seen:
        """The client has finished its run and threw nothing."""
        assert self.thrown is None, self.thrown
        assert (self.types[0], self.types[-1]) == ("RUN_STARTED", "RUN_FINISHED")
        assert [self.events[0][name] == self.request[name] for name in ("threadId", "runId")] == [True, True]
        return self


class Agent:
    """An HttpAgent on one thread. A second one on the same thread is the same person after a reload."""

    def __init__(
        self,
        driver: Driver,
        version: str,
        url: str,
        thread_id: str | None = None,
        *,
        tools: tuple[str, ...] = (),
        **config: Json,
    ) -> None:
        self.version = version
        self.url = url
        self.thread_id = thread_id or unique("thread")
        self.tools = tools
        self._driver = driver
        self._config = config
        self._name = unique("agent")
        driver.ask("agent", agent=self._name, version=version, url=url, threadId=self.thread_id, **config)

    def reloaded(self, *, version: str | None = None, tools: tuple[str, ...] | None = None) -> Agent:
        """The same thread in a page that has just been opened: no messages, no interrupts, nothing remembered."""
        tools = self.tools if tools is None else tools
        return Agent(self._driver, version or self.version, self.url, self.thread_id, tools=tools, **self._config)

    def run(
        self,
        *add: dict[str, Json],
        abort_at: str | None = None,
        history: list[dict[str, Json]] | None = None,
        parent: str | None = None,
        sets: Json = None,
        **parameters: Json,
    ) -> Seen:
        """Add messages (to another `history`, if one is given), `runAgent`, and wait for its end; `abortRun()` if an
        event of type `abort_at` comes. `parent`: the runId behind which it goes on. `sets`: `setState` before it."""
        parameters.setdefault("tools", [described(name) for name in self.tools])
        reply = self._driver.ask(
            "run",
            agent=self._name,
            add=list(add),
            parameters=parameters,
            abortAt=abort_at,
            history=history,
            parentRunId=parent,
            **({} if sets is None else {"state": sets}),
        )
        seen = Seen(
            events=reply["events"],
            messages=reply["messages"],
            new_messages=reply["newMessages"],
            state=reply["state"],
            interrupts=reply["pendingInterrupts"],
            thrown=reply["thrown"],
            exchanges=reply["exchanges"],
        )
        assert reply["warnings"] == [], f"the client complained: {reply['warnings']} about {_text(seen)}"
        for exchange in reply["exchanges"]:
            _check(exchange)
        return seen

    def finish(self, *add: dict[str, Json], **how: Json) -> Seen:
        """`run`, which the client has finished without throwing anything."""
        return self.run(*add, **how).check_end()

    def bridged(self, *add: dict[str, Json]) -> list[dict[str, Json]]:
        """The states that the client's own bridge tells CopilotKit's older frontends during a run, oldest first."""
        parameters = {"tools": [described(name) for name in self.tools]}
        config = {"url": self.url, "threadId": self.thread_id, **self._config}
        reply = self._driver.ask("bridge", version=self.version, config=config, add=list(add), parameters=parameters)
        return [json.loads(event["state"]) for event in reply["events"] if event["type"] == "AgentStateMessage"]


def _check(exchange: dict[str, Json]) -> None:
    """What crosses the wire obeys the protocol's own models, and ours of what real clients can bear."""
    if exchange["status"] != 200 or exchange.get("cut"):
        return
    body = base64.b64decode(exchange["body"])
    if exchange["contentType"].startswith("text/event-stream"):
        version = json.loads(exchange["request"]).get("protocolVersion")
        faults = [*wire_lint.lint(body), *agui_lint.lint(body, version)]
        assert faults == [], "\n".join([*faults, body.decode()])


def _text(seen: Seen) -> str:
    return seen.body.decode(errors="replace") if seen.exchanges else "nothing"


def described(name: str) -> dict[str, Json]:
    """A frontend tool as a frontend advertises it."""
    return {"name": name, "description": f"the tool {name}", "parameters": {"type": "object", "properties": {}}}


def user(content: Json = "hello", id: str | None = None) -> dict[str, Json]:
    return {"id": id or unique("msg"), "role": "user", "content": content}


def tool(call_id: str, content: Json, id: str | None = None, **more: Json) -> dict[str, Json]:
    """A ToolMessage, its content as JSON text unless it is text."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {"id": id or unique("msg"), "role": "tool", "toolCallId": call_id, "content": text, **more}


def resolved(interrupt_id: str, payload: Json = None) -> dict[str, Json]:
    """An entry of `resume` that answers."""
    return {"interruptId": interrupt_id, "status": "resolved", **({} if payload is None else {"payload": payload})}


def cancelled(interrupt_id: str) -> dict[str, Json]:
    """An entry of `resume` that does not."""
    return {"interruptId": interrupt_id, "status": "cancelled"}
