"""CopilotKit's runtime surface, asked as its frontends ask it (docs/design/protocols.md#copilotkit)."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.support.agui_client import AguiClient, AguiStream, resolved
from tests.support.hai_client import answer, parse, unique, user
from tests.support.server import ServerProcess
from tests.support.wire_lint import lint_agui

JSON = {"Content-Type": "application/json"}

SINGLE = pytest.mark.parametrize("single", [False, True])


class Page:
    """One browser page: CopilotKit's frontend with @ag-ui/client 0.0.59."""

    def __init__(self, url: str, agent: str, thread_id: str | None = None, *, single: bool = False) -> None:
        self.base = f"{url}/cpk"
        self.agent = agent
        self.single = single
        self.client = AguiClient(url, thread_id, version="0")
        self.thread_id = self.client.thread_id

    def run(self, *messages: dict[str, Any], **more: Any) -> AguiStream:
        return self._stream("run", self.client.body(*messages, **more))

    def connect(self) -> AguiStream:
        return self._stream("connect", self.client.body())

    def stop(self, run_id: str | None = None) -> httpx2.Response:
        body = {} if run_id is None else {"body": {"runId": run_id}}
        params = {"agentId": self.agent, "threadId": self.thread_id}
        if self.single:
            return httpx2.post(self.base, json={"method": "agent/stop", "params": params, **body})
        url = f"{self.base}/agent/{self.agent}/stop/{self.thread_id}"
        return httpx2.post(url, content=json.dumps(body["body"]) if body else b"", headers=JSON)

    def _stream(self, method: str, body: dict[str, Any]) -> AguiStream:
        headers = {"Accept": "text/event-stream"}
        if self.single:
            envelope = {"method": f"agent/{method}", "params": {"agentId": self.agent}, "body": body}
            response = httpx2.post(self.base, json=envelope, headers=headers, timeout=30)
        else:
            url = f"{self.base}/agent/{self.agent}/{method}"
            response = httpx2.post(url, json=body, headers=headers, timeout=30)
        if response.status_code != 200:
            return AguiStream(response.status_code, response.content)
        assert lint_agui(response.content, "0") == []
        return AguiStream(200, response.content, [event.data for event in parse(response.content)])


@SINGLE
def test_info_names_the_workflows_as_agents(server: ServerProcess, single: bool) -> None:
    base = f"{server.url}/cpk"
    response = httpx2.post(base, json={"method": "info"}) if single else httpx2.get(f"{base}/info")
    info = response.json()
    assert (info["mode"], info["audioFileTranscriptionEnabled"]) == ("sse", False)
    assert {"chat", "cleanup", "default"} <= info["agents"].keys()
    agent = info["agents"]["cleanup"]
    assert (agent["name"], agent["description"]) == ("cleanup", "Clean up temporary files")
    assert agent["capabilities"]["humanInTheLoop"]["interrupts"] is True


@SINGLE
def test_the_default_agent_chats(server: ServerProcess, single: bool) -> None:
    assert Page(server.url, "default", single=single).run(user("hi")).text().endswith("as long as you like.")


@SINGLE
def test_a_second_page_connects_and_approves_what_the_first_one_started(server: ServerProcess, single: bool) -> None:
    first = Page(server.url, "cleanup", single=single)
    call = first.run(user(), tools=("confirmAction",)).call_id("confirmAction")
    second = Page(server.url, "cleanup", first.thread_id, single=single)
    shown = second.connect()
    held = [each["id"] for m in shown.one("MESSAGES_SNAPSHOT")["messages"] for each in m.get("toolCalls", ())]
    assert held == [call]
    assert shown.types[-1] == "RUN_FINISHED"
    assert second.run(answer(call, "true"), tools=("confirmAction",)).text() == "已删除 15 个临时文件。"


def test_connect_shows_open_interrupts_and_decides_nothing(server: ServerProcess, http: httpx2.Client) -> None:
    first = Page(server.url, "release")
    both = first.run(user()).interrupts()
    second = Page(server.url, "release", first.thread_id)
    body = second.client.body(user("new"), resume=[resolved(both[0], True)])
    assert second._stream("connect", body).interrupts() == both
    assert second.run(resume=[resolved(each, True) for each in both]).types[-1] == "RUN_FINISHED"
    assert second.connect().interrupts() == []


@SINGLE
@pytest.mark.parametrize("status", ["cancelled", "resolved"])
def test_an_answer_after_another_tabs_decision_is_refused_with_that_one(
    server: ServerProcess, http: httpx2.Client, single: bool, status: str
) -> None:
    """CopilotKit answers under the runId of the run that asked, and shows its own answer until a snapshot lacks it."""
    first = Page(server.url, "release", single=single)
    body = first.client.body(user())
    both = first._stream("run", body).interrupts()
    elsewhere = AguiClient(server.url, first.thread_id, workflow="release")
    assert elsewhere.post(resume=[resolved(each, {"approved": True}) for each in both]).status == 200
    entry = {"interruptId": both[0]["id"], "status": status, "payload": {"approved": False}}
    entry = {name: entry[name] for name in entry if name != "payload" or status == "resolved"}
    late = first._stream("run", first.client.body(resume=[entry]) | {"runId": body["runId"]})
    assert late.status == 200
    assert late.types[-2:] == ["MESSAGES_SNAPSHOT", "RUN_ERROR"]
    assert "cancelled" not in json.dumps(late.one("MESSAGES_SNAPSHOT"))
    error = late.one("RUN_ERROR")
    assert error["code"] == "pending_decided"
    assert "Decided: approve, by user:local." in error["message"]


@pytest.mark.parametrize("status", ["cancelled", "resolved"])
def test_a_late_answer_under_the_run_id_that_asked_is_told_the_winner(
    server: ServerProcess, http: httpx2.Client, status: str
) -> None:
    client = AguiClient(server.url, workflow="release")
    body = client.body(user())
    assert httpx2.post(f"{server.url}/workflows/release/ag-ui", json=body, timeout=30).status_code == 200
    both = client.post().interrupts()
    elsewhere = AguiClient(server.url, client.thread_id, workflow="release")
    assert elsewhere.post(resume=[resolved(each, {"approved": True}) for each in both]).status == 200
    entry = resolved(both[0], {"approved": False}) | {"status": status}
    late = httpx2.post(f"{server.url}/ag-ui", json=client.body(resume=[entry]) | {"runId": body["runId"]}, timeout=30)
    assert (late.status_code, late.json()["code"]) == (409, "pending_decided")
    assert late.json()["winner"]["outcome"] == "approve"


@SINGLE
def test_stop_stops_the_run_of_the_thread(server: ServerProcess, http: httpx2.Client, single: bool) -> None:
    page = Page(server.url, "release", single=single)
    page.run(user(), run_id="mine")
    stopped = page.stop("mine").json()
    assert stopped == {
        "stopped": True,
        "interrupt": {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"},
    }
    assert page.connect().events[-1]["code"] == "abort"
    assert page.stop().json()["stopped"] is False


def test_stop_leaves_alone_what_is_not_meant(server: ServerProcess, http: httpx2.Client) -> None:
    page = Page(server.url, "release")
    both = page.run(user(), run_id="one").interrupts()
    page.run(resume=[resolved(both[0], True)], run_id="two")
    assert page.stop("one").json()["stopped"] is False
    assert Page(server.url, "chat", page.thread_id).stop().json()["stopped"] is False
    assert Page(server.url, "release", unique("nobody")).stop().json()["stopped"] is False
    assert len(page.connect().interrupts()) == 1


@SINGLE
@pytest.mark.parametrize("method", ["run", "connect"])
def test_an_agent_that_is_none_is_not_found(server: ServerProcess, single: bool, method: str) -> None:
    page = Page(server.url, "nobody", single=single)
    assert page._stream(method, page.client.body(user())).status == 404
    assert page.stop().status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"method":"transcribe"}',
        b'{"method":"agent/run"}',
        b'{"method":"agent/run","params":{"agentId":1}}',
        b'{"method":"agent/run","params":{"agentId":"chat"}}',
        b'{"method":"agent/stop","params":{"agentId":"chat","threadId":"t"},"body":[]}',
    ],
)
def test_what_is_no_call_is_refused(server: ServerProcess, body: bytes) -> None:
    response = httpx2.post(f"{server.url}/cpk", content=body, headers=JSON)
    assert response.status_code in (400, 422)
    assert response.json()["code"].startswith("body.")


def test_capabilities_are_told(server: ServerProcess) -> None:
    own = httpx2.get(f"{server.url}/workflows/cleanup/ag-ui/capabilities").json()
    assert own["identity"]["name"] == "cleanup"
    assert httpx2.get(f"{server.url}/ag-ui/capabilities").json()["humanInTheLoop"] == own["humanInTheLoop"]
    assert httpx2.get(f"{server.url}/workflows/nobody/ag-ui/capabilities").status_code == 404


def test_a_legacy_command_answers_the_question_that_it_hands_back(server: ServerProcess) -> None:
    """As useInterrupt resumes a CUSTOM event: under the runId that asked, with the event's value."""
    page = Page(server.url, "release")
    asked = page.run(user(), run_id="one")
    told = [event["value"] for event in asked.all("CUSTOM") if event["name"] == "hai.pending"]
    command = {"resume": {"approved": True}, "interruptEvent": told[0]}
    shown = page.run(run_id="one", forwardedProps={"command": command})
    assert (shown.one("RUN_STARTED")["runId"], len(shown.interrupts())) == ("one", 1)
    assert shown.interrupts()[0]["id"] == told[1]["id"]
    unnamed = page.run(run_id="two", forwardedProps={"command": {"resume": {"approved": True}}})
    assert [each["id"] for each in unnamed.interrupts()] == [told[1]["id"]]
