"""Versions from before a question was added: nobody begins a run with one who may not name it, and nobody with one that
was retired, through any door."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from hai_flow.store.catalog import workflows
from tests.support.hai_client import unique, user
from tests.support.identities import KEYS, People
from tests.support.mcp_caller import Caller
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from hai_flow.store.postgres.connections import Connection

FLOW: Final = """
hai: flow/v1
name: {name}
version: {version}
steps:
{gate}  - {{id: pay, say: Paid.}}
"""
GATE: Final = "  - {id: ok, approve: {title: Pay?, from: [role:boss], deadline: 1d}}\n"
OUTER: Final = "hai: flow/v1\nname: {name}\nversion: 1\nsteps:\n  - {{id: sub, run: {child}}}\n"


@dataclass
class Place:
    """A server, its people, and the workflow `tightened`: 1 pays, 2 and 3 ask a boss first."""

    api: httpx2.Client
    url: str
    people: People

    def __post_init__(self) -> None:
        person = self.people.person
        self.requester = person("user:req")
        self.operator = person("user:op", roles=["operator"])
        self.publisher = person("user:pat", roles=["publisher"])
        self.decider = person("user:dec", roles=["decider", "boss"])
        self.auditor = person("user:aud", roles=["auditor"])
        self.publish("tightened", 1, "")
        self.publish("tightened", 2, GATE)
        self.publish("tightened", 3, GATE)

    def publish(self, name: str, version: int, gate: str) -> None:
        self.publish_text(FLOW.format(name=name, version=version, gate=gate))

    def publish_text(self, text: str) -> None:
        expect(self.api.post("/v1/workflows", content=text.encode(), headers={**YAML, **self.publisher}), 200, 201)

    def retire(self, reference: str, act: str = "retire") -> None:
        expect(self.api.post(f"/v1/workflows/{reference}/{act}", headers=self.publisher), 200)

    def elsewhere(self, name: str, version: int, *, retires: bool = False, flow: str = FLOW) -> None:
        """Another process publishes the version, or retires it."""
        source = flow.format(name=name, version=version, gate=GATE).encode()

        async def act(connection: Connection) -> Any:
            tenant = await connection.fetchval("SELECT tenant FROM workflows WHERE name = $1 LIMIT 1", name)
            if retires:
                return await workflows.set_retired(connection, tenant, name, version, retired=True)
            return await workflows.publish_workflow(connection, tenant, name=name, version=version, source=source)

        assert self.people.do(act)

    def runs(self) -> list[tuple[str, int]]:
        query = "SELECT workflow_name, workflow_version FROM runs ORDER BY created_at, id"
        return [tuple(row) for row in self.people.do(lambda connection: connection.fetch(query))]

    def question(self, run_id: str) -> dict[str, Any]:
        items = self.api.get("/v1/pendings", params={"limit": 200}, headers=self.operator).json()["items"]
        return dict(next(each for each in items if each["run_id"] == run_id))

    def run(self, id: str) -> dict[str, Any]:
        return dict(self.api.get(f"/v1/runs/{id}", headers=self.operator).json())


@pytest.fixture(scope="module")
def place(postgres_server: Server) -> Iterator[Place]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=KEYS) as server,
        httpx2.Client(base_url=server.url, timeout=20) as api,
    ):
        yield Place(api, server.url, People(dsn))


# --- the doors ----------------------------------------------------------------------------------------------------


def _turn(**more: Any) -> dict[str, Any]:
    thread = unique("t")
    return {"threadId": thread, "runId": unique("r"), "messages": [user("Pay.")], "tools": [], **more}


def _process(**more: Any) -> dict[str, Any]:
    said = [{"id": unique("m"), "type": "message", "role": "user", "content": [{"type": "text", "text": "Pay."}]}]
    return {"session_id": unique("t"), "input": said, "stream": False, **more}


def _told(answer: httpx2.Response) -> tuple[int, str]:
    if answer.status_code >= 400:
        return answer.status_code, str(answer.json()["code"])
    return answer.status_code, ""


Door = Callable[[Place, dict[str, str], str], tuple[int, str]]


def posting(path: str, body: Callable[..., dict[str, Any]], **more: Callable[[str], Any]) -> Door:
    def begin(place: Place, who: dict[str, str], reference: str) -> tuple[int, str]:
        given = body(**{name: make(reference) for name, make in more.items()})
        return _told(place.api.post(path.replace("REF", reference), json=given, headers=who))

    return begin


def socket(place: Place, who: dict[str, str], reference: str) -> tuple[int, str]:
    address = f"{place.url.replace('http', 'ws', 1)}/api/aui/ws/{reference}"
    with connect(address, additional_headers=who, proxy=None, open_timeout=10) as opened:
        with contextlib.suppress(ConnectionClosed):  # it may be refused before it was asked anything
            opened.send(json.dumps({"type": "params", "data": {"session_id": unique("t"), "message": "Pay."}}))
        while True:
            event = json.loads(opened.recv(timeout=20))
            if event["type"] in ("aui_error", "aui_action_ack"):
                code = event.get("error_code") or ""
                code = {"INVALID_STREAM_TYPE": "workflow_unknown"}.get(code, code)
                return {"": 200, "version_forbidden": 403, "workflow_unknown": 404}.get(code, 409), code


def sending(path: str, method: str = "SendMessage", **metadata: Callable[[str], Any]) -> Door:
    """A message to an agent of A2A, which is the path's or named in the metadata."""

    def begin(place: Place, who: dict[str, str], reference: str) -> tuple[int, str]:
        of_older = "/" in method
        message: dict[str, Any] = {
            "messageId": unique("m"),
            "role": "user" if of_older else "ROLE_USER",
            "parts": [{"kind": "text", "text": "Pay."} if of_older else {"text": "Pay."}],
            **{name: make(reference) for name, make in metadata.items()},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
        headers = who if of_older else {**who, "A2A-Version": "1.0"}
        error = (
            place.api.post(
                path.replace("REF", reference).replace("NAME", reference.partition("@")[0]), json=body, headers=headers
            )
            .json()
            .get("error")
        )
        if error is None:
            return 200, ""
        code = next(each["metadata"].get("code") or each["reason"] for each in error["data"] if "metadata" in each)
        return {"version_forbidden": 403, "workflow_unknown": 404}.get(code, 409), code

    return begin


def call_of_mcp(place: Place, who: dict[str, str], reference: str) -> tuple[int, str]:
    answer = Caller(place.api, {}, **who).send("tools/call", {"name": reference, "arguments": {}})
    assert "Unknown tool" in answer["error"]["message"], "a tool has the name of a workflow, and no version"
    return 404, "workflow_unknown"


def named_in_metadata(reference: str) -> dict[str, str]:
    return {"hai-flow/workflow": reference}


def named(reference: str) -> dict[str, str]:
    return {"workflow": reference}


def plain(reference: str) -> str:
    return reference


DOORS: Final[dict[str, Door]] = {
    "REST": posting("/v1/runs", lambda **more: more, workflow=plain),
    "REST, in a thread": posting("/v1/runs", lambda **more: {"thread_id": unique("t"), **more}, workflow=plain),
    "HAI": posting("/awp", _turn, forwardedProps=named),
    "HAI's route": posting("/workflows/REF/awp", _turn),
    "AG-UI": posting("/ag-ui", lambda **more: _turn(state={}, context=[], **more), forwardedProps=named),
    "AG-UI's route": posting("/workflows/REF/ag-ui", lambda: _turn(state={}, context=[], forwardedProps={})),
    "CopilotKit": posting("/cpk/agent/REF/run", lambda: _turn(state={}, context=[], forwardedProps={})),
    "Agent API": posting("/process", _process, workflow=plain),
    "Agent API's route": posting("/workflows/REF/process", _process),
    "AUI's socket": socket,
    "A2A": sending("/a2a", metadata=named_in_metadata),
    "A2A's route": sending("/workflows/REF/a2a"),
    "A2A 0.3": sending("/a2a", "message/send", metadata=named_in_metadata),
    "A2A's route, by its metadata": sending("/workflows/NAME/a2a", metadata=named_in_metadata),
    "MCP": call_of_mcp,
}

LOOKING: Final = (DOORS["CopilotKit"], socket)  # they look for the workflow before anybody speaks
UNKNOWN: Final = (404, "workflow_unknown")

doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())


@doors
@pytest.mark.parametrize("who", ["requester"])
@pytest.mark.parametrize("version", ["1", "2", "7", "01", "1+00000000"])
def test_a_requester_begins_no_run_with_another_version_than_the_latest(
    place: Place, door: Door, who: str, version: str
) -> None:
    before = place.runs()
    looks = door is call_of_mcp or (door in LOOKING and version not in ("1", "2", "01"))
    unknown = [UNKNOWN] if looks else []
    assert door(place, getattr(place, who), f"tightened@{version}") in [(403, "version_forbidden"), *unknown]
    assert place.runs() == before


@pytest.mark.parametrize("door", [each for each in DOORS.values() if each is not call_of_mcp])
def test_a_requester_may_name_the_latest_version(place: Place, door: Door) -> None:
    before = place.runs()
    assert door(place, place.requester, "tightened@3")[1] == ""
    wait_for(lambda: len(place.runs()) > len(before))
    assert place.runs()[-1] == ("tightened", 3)


def test_an_operator_may_name_any_version(place: Place) -> None:
    assert DOORS["REST"](place, place.operator, "tightened@2") == (201, "")
    assert DOORS["HAI"](place, place.operator, "tightened@2") == (200, "")


def test_the_refusal_says_who_could_name_a_version(place: Place) -> None:
    answer = place.api.post("/v1/runs", json={"workflow": "tightened@1"}, headers=place.requester)
    assert "operators" in answer.json()["detail"]
    assert "latest" in answer.json()["detail"]


# --- retired versions ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def retired(place: Place) -> str:
    """A workflow whose only version is retired."""
    place.publish("gone", 1, "")
    place.retire("gone@1")
    return "gone"


@doors
@pytest.mark.parametrize("who", ["requester", "operator"])
@pytest.mark.parametrize("reference", ["gone", "gone@1"])
def test_nobody_begins_a_run_with_a_retired_version(
    place: Place, retired: str, door: Door, who: str, reference: str
) -> None:
    before = place.runs()
    refusal = UNKNOWN if door is call_of_mcp else (409, "workflow_retired")
    assert door(place, getattr(place, who), reference) == refusal
    assert place.runs() == before


@pytest.mark.parametrize("who", ["requester", "operator", "decider", "auditor"])
@pytest.mark.parametrize("act", ["retire", "unretire"])
def test_who_may_not_publish_retires_nothing(place: Place, who: str, act: str) -> None:
    answer = place.api.post(f"/v1/workflows/tightened@1/{act}", headers=getattr(place, who))
    assert _told(answer) == (403, "right_missing")


def test_a_name_means_the_highest_version_in_use_also_after_unretiring(place: Place) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 1, GATE)
    place.publish(name, 2, GATE)
    place.retire(f"{name}@2")
    place.retire(f"{name}@2")  # again: nothing happens
    assert DOORS["REST"](place, place.requester, name) == (201, "")
    assert place.runs()[-1] == (name, 1)
    shown = place.api.get(f"/v1/workflows/{name}", headers=place.publisher).json()
    assert [(each["version"], each["retired_at"] is not None) for each in shown["versions"]] == [(1, False), (2, True)]
    place.retire(f"{name}@2", "unretire")
    assert DOORS["REST"](place, place.requester, name) == (201, "")
    assert place.runs()[-1] == (name, 2)
    acts = place.api.get("/v1/audit", params={"limit": 200}, headers=place.auditor).json()["items"]
    of_it = [each["act"] for each in acts if each["subject"] == f"workflow:{name}@2" and "retired" in each["act"]]
    assert sorted(of_it) == ["workflow.retired", "workflow.unretired"]


ELSEWHERE: Final[dict[str, tuple[list[str], str, tuple[int, Any]]]] = {
    "a name, behind a publication": (["+6"], "{}", (201, 6)),
    "a name, behind two": (["+6", "+7"], "{}", (201, 7)),
    "a name, behind an older version": (["+4"], "{}", (201, 5)),
    "a name, behind a version that was retired": (["+6", "-6"], "{}", (201, 5)),
    "a name whose version was retired": (["+4", "-5"], "{}", (201, 4)),
    "a name whose only version was retired": (["-5"], "{}", (409, "workflow_retired")),
    "a number, behind a publication": (["+6"], "{}@5", (201, 5)),
    "a number that was retired": (["+6", "-5"], "{}@5", (409, "workflow_retired")),
    "a version and its digest, retired": (["+6", "-5"], "{}@5+{}", (409, "workflow_retired")),
}


@pytest.mark.parametrize(("acts", "reference", "expected"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_remembered_version_is_held_against_other_processes(
    place: Place, acts: list[str], reference: str, expected: tuple[int, Any]
) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 5, GATE)
    digest = hashlib.sha256(FLOW.format(name=name, version=5, gate=GATE).encode()).hexdigest()
    body = {"workflow": reference.format(name, digest[:8])}
    key = {**place.operator, "Idempotency-Key": unique("k")}
    first = place.api.post("/v1/runs", json=body, headers=key)
    assert first.json()["version"]["version"] == 5
    for act in acts:
        place.elsewhere(name, int(act[1:]), retires=act[0] == "-")
    for _ in range(2):  # as remembered, and as read anew
        answer = place.api.post("/v1/runs", json=body, headers=place.operator)
        detail = answer.json()
        assert (answer.status_code, detail.get("code") or detail["version"]["version"]) == expected
    again = place.api.post("/v1/runs", json=body, headers=key)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


def call_of_a_tool(place: Place, who: dict[str, str], reference: str) -> tuple[int, str]:
    answer = Caller(place.api, {}, **who).send("tools/call", {"name": reference, "arguments": {}})
    return (409, "workflow_retired") if "error" in answer else (200, "")


NAMED: Final[dict[str, tuple[list[str], list[int]]]] = {
    "behind a publication": (["+6"], [6, 6]),
    "behind one whose version was retired": (["+6", "-6"], [5, 5]),
    "whose version was retired": (["+4", "-5"], [4, 4]),
    "whose only version was retired": (["-5"], []),
}
"""What another process does to a workflow whose version 5 was started by its name, and the versions that begin when it
is started twice more."""


@pytest.mark.parametrize("door", [each for each in DOORS.values() if each is not call_of_mcp] + [call_of_a_tool])
@pytest.mark.parametrize("who", ["requester", "operator"])
@pytest.mark.parametrize(("acts", "versions"), NAMED.values(), ids=NAMED)
def test_a_remembered_name_is_held_against_other_processes_at_every_door(
    place: Place, door: Door, who: str, acts: list[str], versions: list[int]
) -> None:
    name, caller = unique("flow").replace("-", "_"), getattr(place, who)
    place.publish(name, 5, GATE)

    def begin_twice(code: str, all_begun: list[int]) -> None:
        assert [door(place, caller, name)[1] for _ in range(2)] == [code] * 2
        wait_for(lambda: [number for of, number in place.runs() if of == name] == all_begun)

    begin_twice("", [5, 5])  # as read, and as remembered
    for act in acts:
        place.elsewhere(name, int(act[1:]), retires=act[0] == "-")
    begin_twice("" if versions else "workflow_retired", [5, 5, *versions])


TAKING: Final = """
hai: flow/v1
name: {name}
version: {version}
input: {{type: object, properties: {{%s: {{type: string, x-a2a: text}}}}, required: [%s]}}
steps:
{gate}  - {{id: pay, say: Paid.}}
"""


@pytest.mark.parametrize("thread", [False, True])
def test_an_input_is_refused_by_the_version_that_is_meant_now_alone(place: Place, thread: bool) -> None:
    name = unique("flow").replace("-", "_")
    place.publish_text((TAKING % ("before", "before")).format(name=name, version=5, gate=GATE))

    def start(**input: str) -> tuple[int, Any]:
        more = {"thread_id": unique("t")} if thread else {}
        answer = place.api.post("/v1/runs", json={"workflow": name, "input": input, **more}, headers=place.requester)
        said = answer.json()
        return answer.status_code, said.get("code") or said["version"]["version"]

    assert start(before="x") == (201, 5)
    assert start(after="x") == (422, "input.invalid")
    place.elsewhere(name, 6, flow=TAKING % ("after", "after"))
    assert start(after="x") == (201, 6)
    assert start(before="x") == (422, "input.invalid")


@pytest.mark.parametrize("door", ["A2A", "A2A's route", "A2A 0.3"])
def test_the_input_of_a_message_is_filled_for_the_version_that_begins(place: Place, door: str) -> None:
    name = unique("flow").replace("-", "_")
    place.publish_text((TAKING % ("before", "before")).format(name=name, version=5, gate=GATE))
    assert DOORS[door](place, place.requester, name) == (200, "")
    place.elsewhere(name, 6, flow=TAKING % ("after", "after"))
    assert DOORS[door](place, place.requester, name) == (200, "")
    runs = place.api.get("/v1/runs", params={"workflow": name}, headers=place.operator).json()["items"]
    assert [(each["version"]["version"], each["input"]) for each in runs] == [
        (6, {"after": "Pay."}),
        (5, {"before": "Pay."}),
    ]


@pytest.mark.parametrize(("before", "behind"), [([], ["+6"]), (["+6"], ["-6"])], ids=["newer", "retired"])
def test_a_message_sent_again_is_the_same_task_behind_a_publication(
    place: Place, before: list[str], behind: list[str]
) -> None:
    name, id = unique("flow").replace("-", "_"), unique("m")
    other = sending("/a2a", metadata=named_in_metadata)
    first = sending("/a2a", metadata=named_in_metadata, messageId=lambda _: id)
    place.publish_text((TAKING % ("before", "before")).format(name=name, version=5, gate=GATE))

    def begin(door: Door, acts: list[str]) -> list[str]:
        for act in acts:
            place.elsewhere(name, int(act[1:]), retires=act[0] == "-", flow=TAKING % ("after", "after"))
        assert door(place, place.requester, name) == (200, "")
        return [each["id"] for each in place.api.get("/v1/runs", headers=place.operator).json()["items"]]

    begun = begin(first, before)
    both = begin(other, behind)
    assert len({*both} - {*begun}) == 1
    assert begin(first, []) == both


@pytest.mark.parametrize("door", ["REST", "REST, in a thread", "A2A", "A2A 0.3"])
def test_a_number_that_was_remembered_stays_forbidden_to_others(place: Place, door: str) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 1, "")
    assert DOORS[door](place, place.operator, f"{name}@1")[1] == ""
    place.elsewhere(name, 2)
    assert DOORS[door](place, place.requester, f"{name}@1") == (403, "version_forbidden")


def test_a_start_sent_before_its_version_retired_is_the_same_start_again(place: Place) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 1, GATE)
    key = {**place.operator, "Idempotency-Key": unique("k")}
    first = place.api.post("/v1/runs", json={"workflow": f"{name}@1"}, headers=key)
    place.retire(f"{name}@1")
    again = place.api.post("/v1/runs", json={"workflow": f"{name}@1"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    other = place.api.post("/v1/runs", json={"workflow": f"{name}@1"}, headers=place.operator)
    assert _told(other) == (409, "workflow_retired")


def test_a_run_of_a_retired_version_goes_on_and_is_not_forked(place: Place) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 1, GATE)
    run = place.api.post("/v1/runs", json={"workflow": name}, headers=place.requester).json()
    wait_for(lambda: place.run(run["id"])["status"] == "waiting")
    place.retire(f"{name}@1")
    fork = place.api.post(f"/v1/runs/{run['id']}/fork", json={"step": "ok"}, headers=place.operator)
    assert _told(fork) == (409, "workflow_retired")
    assert place.run(run["id"])["status"] == "waiting"  # nothing was stopped for it
    pending = place.question(run["id"])
    voted = place.api.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}, headers=place.decider)
    assert voted.status_code == 200, voted.text
    wait_for(lambda: place.run(run["id"])["status"] == "finished")


def test_a_run_neither_forks_nor_migrates_to_a_retired_version(place: Place) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 1, GATE)
    place.publish(name, 2, GATE)
    place.retire(f"{name}@1")
    run = place.api.post("/v1/runs", json={"workflow": name}, headers=place.requester).json()
    wait_for(lambda: place.run(run["id"])["status"] == "waiting")
    down = {"step": "ok", "version": "1"}
    fork = place.api.post(f"/v1/runs/{run['id']}/fork", json=down, headers=place.operator)
    assert _told(fork) == (409, "workflow_retired")
    moving = {"from": "2", "to": "1"}
    moved = place.api.post(f"/v1/workflows/{name}/migrate", json=moving, headers=place.operator)
    assert _told(moved) == (409, "workflow_retired")
    assert place.run(run["id"])["status"] == "waiting"


@pytest.mark.parametrize("reference", ["{child}", "{child}@1"])
def test_a_workflow_begins_no_retired_child(place: Place, reference: str) -> None:
    child, outer = unique("child").replace("-", "_"), unique("outer").replace("-", "_")
    place.publish(child, 1, "")
    place.publish_text(OUTER.format(name=outer, child=reference.format(child=child)))
    place.retire(f"{child}@1")
    answer = place.api.post("/v1/runs", json={"workflow": outer}, headers=place.operator)
    assert _told(answer) == (409, "workflow_retired")
    assert outer in answer.json()["detail"]


def test_a_child_whose_version_retires_while_its_parent_waits_is_refused(place: Place) -> None:
    child, outer = unique("child").replace("-", "_"), unique("outer").replace("-", "_")
    place.publish(child, 1, "")
    text = OUTER.format(name=outer, child=f"{child}@1")
    place.publish_text(text.replace("steps:\n", f"steps:\n{GATE}"))
    run = place.api.post("/v1/runs", json={"workflow": outer}, headers=place.requester).json()
    wait_for(lambda: place.run(run["id"])["status"] == "waiting")
    place.retire(f"{child}@1")
    pending = place.question(run["id"])
    place.api.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}, headers=place.decider)
    wait_for(lambda: place.run(run["id"])["status"] == "failed")
    assert (child, 1) not in place.runs()
    assert "was retired" in place.run(run["id"])["error"]["message"]


def test_an_event_begins_no_run_of_a_retired_version(place: Place) -> None:
    name, type = unique("flow").replace("-", "_"), unique("type").replace("-", "_")
    text = FLOW.format(name=name, version=1, gate="") + f"triggers:\n  - event: {{type: {type}}}\n"
    place.publish_text(text)
    place.retire(f"{name}@1")
    expect(place.api.post("/v1/events", json={"type": type, "data": {}}, headers=place.operator), 200, 201, 202)
    assert name not in [each for each, _ in place.runs()]


def test_a_publication_that_runs_a_retired_version_is_refused(place: Place, retired: str) -> None:
    text = OUTER.format(name=unique("outer").replace("-", "_"), child="gone@1")
    answer = expect(place.api.post("/v1/workflows", content=text.encode(), headers={**YAML, **place.publisher}), 422)
    assert [each["code"] for each in answer.json()["findings"]] == ["run.retired"]


TRIGGERS: Final = {
    "an event": "event: {{type: {type}}}",
    "a schedule": "schedule: {{cron: '0 0 1 1 *', timezone: UTC}}",
    "a webhook": "webhook: {{path: {type}, secret: '${{{{ secrets.LOGGED }}}}'}}",
    "the end of a run": "run: {{workflow: tightened}}",
}
TRIGGERED: Final = """
SELECT (SELECT count(*) FROM event_triggers WHERE workflow_name = $1)
  + (SELECT count(*) FROM schedules WHERE workflow_name = $1)
"""


@pytest.mark.parametrize("what", TRIGGERS)
def test_nothing_is_waited_for_that_would_begin_a_run_of_a_retired_version(place: Place, what: str) -> None:
    name, type = unique("flow").replace("-", "_"), unique("type")
    trigger = TRIGGERS[what].format(type=type)
    place.publish_text(FLOW.format(name=name, version=1, gate="") + f"triggers:\n  - {trigger}\n")
    triggered = partial(place.people.do, lambda connection: connection.fetchval(TRIGGERED, name))
    assert triggered() == 1
    place.retire(f"{name}@1")
    assert triggered() == 0
    place.retire(f"{name}@1", "unretire")
    assert triggered() == 1


@pytest.mark.parametrize("who", ["operator", "requester", "publisher"])
def test_nobody_lets_the_schedule_of_a_retired_version_run(place: Place, who: str) -> None:
    name = unique("flow").replace("-", "_")
    place.publish_text(
        FLOW.format(name=name, version=1, gate="") + "triggers:\n  - schedule: {cron: '0 0 1 1 *', timezone: UTC}\n"
    )
    schedules = place.api.get("/v1/schedules", headers=place.operator).json()["items"]
    (schedule,) = [each["id"] for each in schedules if each["workflow"] == name]
    place.retire(f"{name}@1")
    expect(place.api.post(f"/v1/schedules/{schedule}/run", headers=getattr(place, who)), 403, 404)
    assert name not in [each for each, _ in place.runs()]


@pytest.mark.parametrize("body", [{"step": "ok"}, {"step": "ok", "dry_run": True}, {"at": 2}])
def test_a_run_that_has_ended_is_not_repeated_with_a_retired_version(place: Place, body: dict[str, Any]) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 1, GATE)
    run = place.api.post("/v1/runs", json={"workflow": name}, headers=place.requester).json()
    pending = wait_for(lambda: place.question(run["id"]))
    place.api.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "reject"}, headers=place.decider)
    wait_for(lambda: place.run(run["id"])["status"] == "failed")
    place.retire(f"{name}@1")
    before = place.runs()
    expect(place.api.post(f"/v1/runs/{run['id']}/fork", json=body, headers=place.operator), 403, 409)
    assert place.runs() == before


def test_a_fork_sent_before_its_version_retired_is_the_same_fork_again(place: Place) -> None:
    name = unique("flow").replace("-", "_")
    place.publish(name, 1, GATE)
    run = place.api.post("/v1/runs", json={"workflow": name}, headers=place.operator).json()
    wait_for(lambda: place.run(run["id"])["status"] == "waiting")
    key = {**place.operator, "Idempotency-Key": unique("k")}
    first = expect(place.api.post(f"/v1/runs/{run['id']}/fork", json={"step": "ok"}, headers=key), 201)
    place.retire(f"{name}@1")
    again = expect(place.api.post(f"/v1/runs/{run['id']}/fork", json={"step": "ok"}, headers=key), 200, 201)
    assert again.json()["id"] == first.json()["id"]
