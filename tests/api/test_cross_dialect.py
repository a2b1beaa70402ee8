"""A run started in one protocol is followed and answered in every other: seven by seven, a tool and a decision."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import Any, Protocol

import httpx2
import pytest

from tests.support.agent_client import AgentClient, approval, output, say
from tests.support.agui_client import AguiClient, resolved
from tests.support.aui_client import AuiClient
from tests.support.examples import sample
from tests.support.hai_client import HaiClient, Live, answer, unique, user
from tests.support.mcp_caller import Caller
from tests.support.server import YAML, ServerProcess
from tests.support.waiting import until

TOOL, DECISION = "confirmAction", "decision"
"""What the run asks: the result of a frontend's tool, or an approval."""

WORKFLOWS = {
    TOOL: """\
hai: flow/v1
name: cross_tool
version: 1
tools:
  confirmAction:
    frontend:
      description: Confirm
      parameters: {type: object, properties: {action: {type: string}}}
steps:
  - {id: ask, call: confirmAction, with: {action: go}}
  - say: "told ${{ steps.ask.output }}"
""",
    DECISION: """\
hai: flow/v1
name: cross_decision
version: 1
steps:
  - {id: ask, approve: {title: Go?, from: anyone}}
  - say: "told ${{ steps.ask.output.decision }}"
""",
}
NAMES = {TOOL: "cross_tool", DECISION: "cross_decision"}
SAID = {TOOL: "told confirmed", DECISION: "told approve"}


class Party(Protocol):
    """Somebody at a thread, in one protocol."""

    def start(self) -> None:
        """Say the first message; return when the run waits."""
        ...

    def pending(self, what: str) -> str:
        """The id of what the run waits for, as the protocol shows it to one who comes now."""
        ...

    def answer(self, what: str, id: str) -> None:
        """Answer it; return when that is accepted."""
        ...


@dataclass
class Place:
    """Where a party meets others."""

    url: str
    workflow: str
    thread_id: str


def calls_in(snapshot: dict[str, Any]) -> list[Any]:
    """The calls in a snapshot of messages, the newest last."""
    return [call for message in snapshot["messages"] for call in message.get("toolCalls", ())]


class Hai:
    def __init__(self, place: Place) -> None:
        self.client = HaiClient(place.url, place.thread_id, workflow=place.workflow)

    def start(self) -> None:
        assert self.client.post(user("go"), tools=(TOOL,)).types[-1] == "RUN_FINISHED"

    def pending(self, what: str) -> str:
        stream = self.client.post()
        if what == DECISION:
            (shown,) = [each for each in stream.all("CUSTOM") if each["name"] == "hai.pending"]
            return shown["value"]["id"]
        return calls_in(stream.one("MESSAGE_SNAPSHOT"))[-1]["id"]

    def answer(self, what: str, id: str) -> None:
        assert self.client.post(answer(id, "confirmed" if what == TOOL else "true")).status == 200


class Agui:
    def __init__(self, place: Place) -> None:
        self.client = AguiClient(place.url, place.thread_id, workflow=place.workflow)

    def start(self) -> None:
        assert self.client.post(user("go"), tools=(TOOL,)).types[-1] == "RUN_FINISHED"

    def pending(self, what: str) -> str:
        stream = self.client.post()
        if what == DECISION:
            return stream.interrupts()[0]["id"]
        return calls_in(stream.one("MESSAGES_SNAPSHOT"))[-1]["id"]

    def answer(self, what: str, id: str) -> None:
        if what == TOOL:
            assert self.client.post(answer(id, "confirmed")).status == 200
        else:
            assert self.client.post(resume=[resolved({"id": id}, {"approved": True})]).status == 200


class Social:
    """The document has no way up: REST is."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def start(self) -> None:
        body = {"workflow": self.place.workflow, "thread_id": self.place.thread_id}
        assert httpx2.post(f"{self.place.url}/v1/runs", json=body, timeout=30).status_code == 201
        self._until_waiting()

    def _until_waiting(self) -> list[dict[str, Any]]:
        path = f"{self.place.url}/api/v1/agent/runs/{self.place.thread_id}/events"
        with httpx2.stream("GET", path, timeout=30) as response:
            live = Live(response)
            return live.until("RUN_FINISHED")

    def pending(self, what: str) -> str:
        finished = self._until_waiting()[-1]
        assert finished["status"] == "waiting"
        return finished["pendings"][0]["id"]

    def answer(self, what: str, id: str) -> None:
        body = {"result": "confirmed"} if what == TOOL else {"decision": "approve"}
        assert httpx2.post(f"{self.place.url}/v1/pendings/{id}/decide", json=body, timeout=30).status_code == 200


class Aui:
    def __init__(self, place: Place) -> None:
        self.place = place

    def start(self) -> None:
        with contextlib.closing(self._joined(message="go")) as client:
            client.until("aui_run_finished")

    def _joined(self, **params: Any) -> AuiClient:
        return AuiClient(self.place.url, self.place.workflow, session_id=self.place.thread_id, **params)

    def pending(self, what: str) -> str:
        with contextlib.closing(self._joined()) as client:
            return client.until("aui_interrupt")["interrupt_id"]

    def answer(self, what: str, id: str) -> None:
        with contextlib.closing(self._joined()) as client:
            payload = {"result": "confirmed"} if what == TOOL else {}
            client.send(type="input", interrupt_id=id, action="approve", payload=payload)
            assert client.until("aui_action_ack")["status"] == "accepted"


class Agent:
    def __init__(self, place: Place) -> None:
        self.client = AgentClient(place.url, workflow=place.workflow)
        self.client.session_id = place.thread_id

    def start(self) -> None:
        assert self.client.post(say("go")).last["status"] == "incomplete"

    def pending(self, what: str) -> str:
        data = self.client.post().last["output"][-1]["content"][0]["data"]
        return data["call_id"] if what == TOOL else data["id"]

    def answer(self, what: str, id: str) -> None:
        given = output(id, "confirmed") if what == TOOL else approval(id, approve=True)
        assert self.client.post(given).status == 200


class Mcp:
    """A client that can show nothing: it looks and answers with tools. Its call has a thread of its own."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        with httpx2.Client(base_url=self.place.url, timeout=60) as http:
            return Caller(http).call(tool, arguments)["structuredContent"]

    def start(self) -> None:
        run = self._call(self.place.workflow, {})
        assert run["status"] == "waiting"
        self.place.thread_id = run["run_id"]

    def pending(self, what: str) -> str:
        questions = self._call("list_pending", {"workflow": self.place.workflow, "limit": 50})["questions"]
        runs = httpx2.get(f"{self.place.url}/v1/runs", params={"thread_id": self.place.thread_id}).json()["items"]
        (id,) = [each["id"] for each in questions if each["run_id"] == runs[0]["id"]]
        return str(id)

    def answer(self, what: str, id: str) -> None:
        answered = self._call("answer", {"question_id": id, **ANSWERS[what]})
        assert not answered["already"]


class A2a:
    def __init__(self, place: Place) -> None:
        self.place = place

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        url = f"{self.place.url}/workflows/{self.place.workflow}/a2a"
        answered = httpx2.post(url, json=body, headers={"A2A-Version": "1.0"}, timeout=60).json()
        assert "result" in answered, answered
        result: dict[str, Any] = answered["result"]
        return result

    def _send(self, part: dict[str, Any], **fields: Any) -> dict[str, Any]:
        message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [part], **fields}
        task: dict[str, Any] = self._ask("SendMessage", message=message)["task"]
        return task

    def start(self) -> None:
        task = self._send({"text": "go"}, contextId=self.place.thread_id)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    def _task(self) -> dict[str, Any]:
        task: dict[str, Any] = self._ask("ListTasks", contextId=self.place.thread_id)["tasks"][0]
        return task

    def pending(self, what: str) -> str:
        (data,) = [part["data"] for part in self._task()["status"]["message"]["parts"] if "data" in part]
        return str(data["hai.pending"][0]["id"])

    def answer(self, what: str, id: str) -> None:
        self._send({"data": {"hai.pending": {"id": id, **ANSWERS[what]}}}, taskId=self._task()["id"])


ANSWERS: dict[str, dict[str, Any]] = {TOOL: {"result": "confirmed"}, DECISION: {"decision": "approve"}}
FRONTENDS: dict[str, type[Any]] = {"hai": Hai, "agui": Agui, "social": Social, "aui": Aui, "agent-api": Agent}
"""The parties that show people what a run says and asks, below it too."""
PARTIES: dict[str, type[Any]] = {**FRONTENDS, "mcp": Mcp, "a2a": A2a}


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    for source in WORKFLOWS.values():
        assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML).status_code in (200, 201)


@pytest.mark.parametrize(
    ("started", "answered", "what"), sample(itertools.product(PARTIES, PARTIES, [TOOL, DECISION]), 20)
)
def test_a_run_of_one_protocol_is_followed_and_answered_in_another(
    server: ServerProcess, http: httpx2.Client, started: str, answered: str, what: str
) -> None:
    place = Place(server.url, NAMES[what], unique("cross"))
    starter: Party = PARTIES[started](place)
    starter.start()
    answerer: Party = PARTIES[answered](place)
    id = answerer.pending(what)
    answerer.answer(what, id)
    (run,) = http.get("/v1/runs", params={"thread_id": place.thread_id}).json()["items"]
    with httpx2.stream(
        "GET", f"{server.url}/v1/runs/{run['id']}/events", headers={"Accept": "text/event-stream"}, timeout=30
    ) as response:
        response.read()  # to its end
    snapshot = http.get(f"/v1/runs/{run['id']}/snapshot").json()
    assert snapshot["status"] == "finished"
    assert SAID[what] in str(snapshot["messages"])


OWN = "openPage"
GUARDED = WORKFLOWS[TOOL].replace("confirmAction:\n", "openPage:\n    effect: external\n").replace(TOOL, OWN)


def offered(kind: str, place: Place) -> list[str]:
    """The ids of what a client of the protocol sees that the run waits for."""
    if kind == "aui":
        client = AuiClient(place.url, place.workflow, session_id=place.thread_id)
        with contextlib.closing(client):
            client.until("aui_run_finished")
            return [each["interrupt_id"] for each in client.events if each["type"] == "aui_interrupt"]
    if kind == "agui":
        stream = AguiClient(place.url, place.thread_id, workflow=place.workflow).post(tools=(OWN,))
        questions = [each["id"] for each in stream.interrupts()]
        calls = [call["id"] for each in stream.all("MESSAGES_SNAPSHOT") for call in calls_in(each)]
        return [*questions, *calls, *stream.calls()]
    try:
        return [PARTIES[kind](place).pending(TOOL)]
    except LookupError:
        return []


@pytest.mark.parametrize("holder", ["gate", "freeze"])
@pytest.mark.parametrize("kind", FRONTENDS)
async def test_a_client_sees_a_call_once_no_gate_and_no_freeze_holds_it(
    server: ServerProcess, http: httpx2.Client, kind: str, holder: str
) -> None:
    name = unique("held").replace("-", "_")
    source = GUARDED.replace("cross_tool", name)
    if holder == "gate":
        source = source.replace(f"call: {OWN}", f"call: {OWN}, approval: {{from: anyone}}")
    http.post("/v1/workflows", content=source, headers=YAML).raise_for_status()
    freezes = list[str]()
    if holder == "freeze":
        freeze = {"scope": "workflow", "name": name, "reason": "a drill"}
        freezes.append(http.post("/v1/freezes", json=freeze).raise_for_status().json()["id"])
    place = Place(server.url, name, unique("cross"))
    run = http.post("/v1/runs", json={"workflow": name, "thread_id": place.thread_id}).json()["id"]

    def asked(kind: str) -> list[str]:
        questions = http.get(f"/v1/runs/{run}/snapshot").json()["pendings"]
        return [each["id"] for each in questions if each["kind"] == kind]

    await until(lambda: asked("gate") or (freezes and http.get(f"/v1/runs/{run}").json()["frozen"]))
    assert set(offered(kind, place)) <= set(asked("gate"))
    for id in asked("gate"):
        http.post(f"/v1/pendings/{id}/decide", json={"decision": "approve"}).raise_for_status()
    for id in freezes:
        http.post(f"/v1/freezes/{id}/thaw").raise_for_status()
    await until(lambda: asked("tool"))
    assert offered(kind, place) == asked("tool")
    PARTIES[kind](place).answer(TOOL, asked("tool")[0])
    await until(lambda: http.get(f"/v1/runs/{run}").json()["status"] == "finished")


INTERRUPTED = """\
hai: flow/v1
name: cross_interrupted
version: 1
on_message: interrupt
steps:
  - {id: ask, approve: {title: Go?, from: anyone}}
"""


@pytest.mark.parametrize(
    ("first", "second"), sample(itertools.product(PARTIES, ["hai", "agui", "aui", "agent-api"]), 7)
)
async def test_a_message_of_any_protocol_interrupts_a_run_whose_workflow_says_so(
    server: ServerProcess, http: httpx2.Client, first: str, second: str
) -> None:
    assert http.post("/v1/workflows", content=INTERRUPTED, headers=YAML).status_code in (200, 201)
    place = Place(server.url, "cross_interrupted", unique("cross"))
    PARTIES[first](place).start()

    def standing() -> list[str]:
        return [run["status"] for run in http.get("/v1/runs", params={"thread_id": place.thread_id}).json()["items"]]

    if second == "aui":  # whose stream begins with the end of the turn before
        with contextlib.closing(AuiClient(place.url, place.workflow, session_id=place.thread_id, message="go")):
            await until(lambda: standing() == ["waiting", "stopped"])
    else:
        PARTIES[second](place).start()
    assert standing() == ["waiting", "stopped"]
    _, older = http.get("/v1/runs", params={"thread_id": place.thread_id}).json()["items"]
    stopping = http.get(f"/v1/runs/{older['id']}/events", headers={"Accept": "application/json"}).json()["items"]
    assert [each["reason"] for each in stopping if each["type"] == "run_stopping"] == ["a further message came"]


def test_by_default_a_message_is_refused_while_a_run_is_active(server: ServerProcess, http: httpx2.Client) -> None:
    place = Place(server.url, "cross_decision", unique("cross"))
    Hai(place).start()
    assert HaiClient(server.url, place.thread_id, workflow="cross_decision").post(user("go")).status == 409
    (run,) = http.get("/v1/runs", params={"thread_id": place.thread_id}).json()["items"]
    assert run["status"] == "waiting"
