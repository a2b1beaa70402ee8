"""An open canary beside a real question, as a decider meets them in mails, chats, and streams and clients of every
protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest

from hai_flow.wire import DIALECTS
from tests.api import test_every_receipt
from tests.api.test_every_receipt import Desk
from tests.support.hai_client import unique
from tests.support.mcp_caller import WITH_TASKS, Caller
from tests.support.server import YAML
from tests.support.waiting import wait_for

desk = test_every_receipt.desk

ASKS: Final = """
hai: flow/v1
name: {name}
version: 3
title: Asks
queue: slow
summary: "Of ${{{{ input.mark }}}}"
input: {{type: object, properties: {{mark: {{type: string, default: x}}}}}}
tools: {{fx: {{python: tests.support.effects, effect: write{tool}}}}}
{workflow}steps:
  - {{say: "for ${{{{ input.mark }}}}"}}
  - id: pay
    call: fx.note
    with: {{n: 7}}
    approval: {{title: "Pay ${{{{ input.mark }}}}?", from: [role:boss], notify: [email, chat], deadline: 1d}}
"""
OWN: Final = {
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(Z|\+00:00)?": "TIME",
    r'\\?"(timestamp|deadline|created_at|completed_at)\\?":\d+': "TIME",
    r"/links/[\w.~-]+": "LINK",
    r"\b[0-9a-f]{64}\b": "DIGEST",
    r'"id":"[0-9a-f]{8}-[0-9a-f-]{27}","type":"aui_': "FRAME",
    r'"(hai-flow/signature)": "[\w.-]+"': "SIGNATURE",
    r'"pollIntervalMs": \d+': "TIME",
}
"""What differs between any two questions."""


class Side:
    """A question, and what a decider gets of it on each surface."""

    def __init__(self, desk: Desk, run: str, mark: str, workflow: str) -> None:
        self.desk, self.run, self.mark, self.workflow = desk, run, mark, workflow
        inbox = "/v1/inbox?limit=200"
        (self.item,) = wait_for(lambda: [each for each in self._get(inbox).json()["items"] if each["run_id"] == run])

    def _get(self, path: str, **more: Any) -> httpx2.Response:
        return self.desk.api.get(path, headers=self.desk.ann, **more)

    def _follow(self, method: str, path: str, *, last: str | None = None, **more: Any) -> str:
        """A stream until it ends or, where it goes on while the question is open, until the frame with `last`."""
        headers = {"Accept": "text/event-stream", "A2A-Version": "1.0", **self.desk.ann}
        text = ""
        with httpx2.stream(method, f"{self.desk.url}{path}", headers=headers, timeout=30.0, **more) as response:
            for piece in response.iter_text():
                text += piece
                if last is not None and last in text and text.endswith("\n\n"):
                    break
        return text

    def surfaces(self) -> Iterator[tuple[str, str]]:
        run, flow, desk = self.run, f"/workflows/{self.workflow}", self.desk
        yield "an entry of the inbox", json.dumps(self.item)
        yield "the log as it grows", self._follow("GET", f"/v1/runs/{run}/events", last="turn_ended")
        for dialect in DIALECTS:
            if dialect != "log":
                yield f"a stream of {dialect}", self._follow("GET", f"/v1/runs/{run}/events?dialect={dialect}")
        yield "a social stream", self._follow("GET", f"/api/v1/agent/runs/{run}/events", last="RUN_FINISHED")
        turn = {"threadId": run, "runId": "r-1", "state": None, "messages": [], "tools": [], "context": []}
        said = {**turn, "messages": [{"id": unique("m"), "role": "user", "content": "Well?"}]}
        for path in ("/awp", "/ag-ui", f"{flow}/awp", f"{flow}/ag-ui", f"/cpk/agent/{self.workflow}/connect"):
            for body in (turn, said):
                yield path, self._follow("POST", path, json={**body, "forwardedProps": {}})
        yield "a stop by CopilotKit", self._follow("POST", f"/cpk/agent/{self.workflow}/stop/{run}", json={})
        for path in (f"{flow}/a2a", "/a2a"):
            for method in ("GetTask", "SubscribeToTask"):
                call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": run}}
                text = self._follow("POST", path, json=call, last=self.item["digest"])  # the task, with the question
                yield f"{method} at {path}", text
        caller = Caller(desk.api, WITH_TASKS, **desk.ann)
        yield "a task of MCP", json.dumps(caller.result("tasks/get", {"taskId": run}))
        yield "a run over MCP", json.dumps(caller.call("get_run", {"run_id": run})["structuredContent"])
        params = {"run_id": run}
        notices = "/v1/notifications"
        wait_for(
            lambda: (
                {each["status"] for each in desk.api.get(notices, params=params, headers=desk.operator).json()["items"]}
                in ({"sent"}, {"dropped"}, {"sent", "dropped"})
            )
        )
        sent = desk.api.get(notices, params=params, headers=desk.operator).json()["items"]
        yield "notifications", str(sorted((each["channel"], each["status"], each["error"]) for each in sent))
        for mail in desk.box.mails:
            if mail["Message-ID"] in [f"<{each['id']}@hai-flow>" for each in sent]:
                text = str(mail.get_payload())
                yield "a mail", f"{mail['From']} {mail['To']} {mail['Subject']} {text}"
                for link in re.findall(r"/links/\S+", text):
                    yield "the page of a mail", desk.api.get(link).text
        for card in desk.platform.of(self.mark):
            yield "a card in a chat", f"{card.place} {card.text} {sorted(card.buttons)}"

    def plain(self, text: str) -> str:
        for name, own in (("RUN", self.run), ("PENDING", self.item["id"]), ("MARK", self.mark)):
            text = text.replace(own, name)
        for pattern, name in OWN.items():
            text = re.sub(pattern, name, text)
        return text


@pytest.mark.parametrize("workflow", ["", "chat: false\n"], ids=["", "not in chats"])
@pytest.mark.parametrize("tool", ["", ", chat: false"], ids=["", "tool not in chats"])
def test_a_decider_tells_a_canary_on_no_surface(desk: Desk, workflow: str, tool: str) -> None:
    name = unique("asks")
    source = ASKS.format(name=name, tool=tool, workflow=workflow)
    assert desk.api.post("/v1/workflows", content=source, headers={**YAML, **desk.publisher}).status_code == 201
    marks = [unique("MK"), unique("MK")]
    real = desk.act("/v1/runs", desk.req, workflow=name, input={"mark": marks[0]})["id"]
    desk.find_question(real)
    texts = {"title": f"Pay {marks[1]}?", "summary": f"Of {marks[1]}", "arguments": {"n": 7}}
    canary = desk.act("/v1/canaries", desk.admin, workflow=name, path="pay", reason="too much", **texts)["run_id"]
    sides = [Side(desk, run, mark, name) for run, mark in zip((canary, real), marks[::-1], strict=True)]
    shown = [[(name, side.plain(text)) for name, text in side.surfaces()] for side in sides]
    assert [name for name, _ in shown[0]] == [name for name, _ in shown[1]]
    for (surface, text), (_, other) in zip(*shown, strict=True):
        assert text == other, surface
        assert "canary" not in text, surface
    surfaces = {name for name, _ in shown[0]}
    assert ("a card in a chat" in surfaces) == (not workflow and not tool)
    assert {"a mail", "the page of a mail"} <= surfaces
