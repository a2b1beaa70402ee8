"""Runs, threads, questions and files of other people and other tenants, tried by every id and over every way in.

Each attacker has a run of their own, so that something of theirs can stand beside what is not theirs. No try leaves an
event in the victim's run, shows a word of it, or is answered otherwise than if the victim were not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import httpx2
import pytest
from hai_flow_client import Client
from hai_flow_client.errors import NotFound
from websockets.exceptions import ConnectionClosed

from tests.api.test_visibility import Case
from tests.support import commands
from tests.support.agui_client import AguiClient
from tests.support.aui_client import AuiClient
from tests.support.hai_client import unique, user
from tests.support.identities import People
from tests.support.server import YAML, ServerProcess

SECRET: Final = "secret-99173"
SOURCE: Final = """
hai: flow/v1
name: private
version: 1
input: {type: object, properties: {word: {type: string}}}
steps:
  - say: "It is ${{ input.word }}."
  - id: gate
    approve: {title: Go?, from: [role:boss], evidence: {word: "${{ input.word }}"}}
"""


def published(url: str, people: People, tenant: str) -> None:
    publisher = people.person("user:pat", roles=["publisher"], tenant=tenant)
    answer = httpx2.post(f"{url}/v1/workflows", content=SOURCE, headers={**YAML, **publisher})
    assert answer.status_code == 201, answer.text


def waiting(url: str, headers: dict[str, dict[str, str]], word: str) -> Case:
    """A run of the requester's that waits for its boss, and in which the word is."""
    client = AguiClient(url, unique("thread"), workflow="private", headers=headers["requester"])
    client.post(user(f"It is {word}."), forwardedProps={"input": {"word": word}})
    (run,) = httpx2.get(f"{url}/v1/runs?thread_id={client.thread_id}", headers=headers["requester"]).json()["items"]
    case = Case(url, headers, client.thread_id, run["id"], "")
    (pending,) = case.get("requester", f"/v1/runs/{run['id']}/snapshot").json()["pendings"]
    case.pending_id = pending["id"]
    return case


@dataclass(frozen=True)
class Attacker:
    """Somebody with a key, and a run of their own that waits."""

    url: str
    headers: dict[str, str]
    own: Case

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return httpx2.request(method, self.url + path, json=body, headers={**self.headers, **headers}, timeout=20)


@pytest.fixture(scope="module")
def victim(strict: ServerProcess, dsn: str) -> Case:
    people = People(dsn)
    headers = {"requester": people.person("user:ann"), "decider": people.person("user:eve", roles=["decider", "boss"])}
    published(strict.url, people, "default")
    return waiting(strict.url, headers, SECRET)


ATTACKERS: Final = {
    "a stranger": ("default", []),
    "a decider of other questions": ("default", ["decider", "chief"]),
    "an operator of another tenant": ("globex", ["operator", "decider", "boss", "requester"]),
}


@pytest.fixture(scope="module", params=ATTACKERS)
def attacker(request: pytest.FixtureRequest, strict: ServerProcess, dsn: str, victim: Case) -> Attacker:
    tenant, roles = ATTACKERS[request.param]
    people = People(dsn)
    headers = people.person("user:mallory", roles=roles or ["requester"], tenant=tenant)
    speaker = people.person("user:mallory", roles=["requester"], tenant=tenant)
    if tenant != "default":
        published(strict.url, people, tenant)
    return Attacker(strict.url, headers, waiting(strict.url, {"requester": speaker}, "mine"))


Try: TypeAlias = Callable[[Attacker, Case], httpx2.Response]


def _posted(thread_id: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"threadId": thread_id, "runId": unique("r"), "messages": list(messages), "tools": [], **more}


def _told(pending_id: str) -> dict[str, Any]:
    return {"id": unique("told"), "role": "tool", "toolCallId": pending_id, "content": "yes"}


def _resume(pending_id: str) -> dict[str, Any]:
    return {"resume": [{"interruptId": pending_id, "status": "resolved", "payload": {"approved": True}}]}


def _cursor(run_id: str, dialect: str) -> str:
    return f"{run_id}.{dialect}.3.0"


APPROVE: Final = {"decision": "approve"}
TRIES: Final[dict[str, Try]] = {
    # a thread's id
    "speak over HAI": lambda m, v: m.ask("POST", "/workflows/private/awp", _posted(v.thread_id, user("let me in"))),
    "speak over AG-UI": lambda m, v: m.ask("POST", "/ag-ui", _posted(v.thread_id, user("in"), protocolVersion="1.0")),
    "speak over CopilotKit": lambda m, v: m.ask("POST", "/cpk/agent/private/run", _posted(v.thread_id, user("in"))),
    "speak over AUI": lambda m, v: m.ask(
        "POST", "/api/aui/input", {"session_id": v.thread_id, "payload": {"message": "let me in"}}
    ),
    "speak over the Agent API": lambda m, v: m.ask(
        "POST",
        "/workflows/private/process",
        {
            "session_id": v.thread_id,
            "input": [{"role": "user", "type": "message", "content": [{"type": "text", "text": "in"}]}],
        },
    ),
    "start a run in it": lambda m, v: m.ask("POST", "/v1/runs", {"workflow": "private", "thread_id": v.thread_id}),
    "stop it": lambda m, v: m.ask("POST", f"/cpk/agent/private/stop/{v.thread_id}", {}),
    "go on from an earlier turn": lambda m, v: m.ask(
        "POST", "/ag-ui", _posted(v.thread_id, user("again"), parentRunId=f"{v.run_id}.1", protocolVersion="1.0")
    ),
    "read it": lambda m, v: m.ask("GET", f"/v1/threads/{v.thread_id}"),
    "read its messages": lambda m, v: m.ask("GET", f"/v1/threads/{v.thread_id}/messages"),
    "read its history": lambda m, v: m.ask("GET", f"/api/v1/agent/runs/{v.thread_id}/history"),
    "attach over HAI": lambda m, v: m.ask("POST", "/awp", _posted(v.thread_id)),
    "attach over AG-UI": lambda m, v: m.ask("POST", "/ag-ui", _posted(v.thread_id)),
    "attach over CopilotKit": lambda m, v: m.ask("POST", "/cpk/agent/private/connect", _posted(v.thread_id)),
    "attach over the Agent API": lambda m, v: m.ask("POST", "/process", {"session_id": v.thread_id, "input": []}),
    "read what people think": lambda m, v: m.ask("GET", f"/v1/threads/{v.thread_id}/feedback"),
    "judge its question": lambda m, v: m.ask(
        "PUT", f"/v1/threads/{v.thread_id}/feedback/pendings/{v.pending_id}", {"rating": "up"}
    ),
    # a run's id
    "read the run": lambda m, v: m.ask("GET", f"/v1/runs/{v.run_id}"),
    "read its snapshot": lambda m, v: m.ask("GET", f"/v1/runs/{v.run_id}/snapshot"),
    "read its log": lambda m, v: m.ask("GET", f"/v1/runs/{v.run_id}/events?limit=1000"),
    "follow its log": lambda m, v: m.ask("GET", f"/v1/runs/{v.run_id}/events", Accept="text/event-stream"),
    "follow it over HAI": lambda m, v: m.ask("GET", f"/v1/runs/{v.run_id}/events?dialect=hai"),
    "signal it": lambda m, v: m.ask("POST", f"/v1/runs/{v.run_id}/signals", {"type": "paid"}),
    **{
        f"{what} it": lambda m, v, what=what: m.ask("POST", f"/v1/runs/{v.run_id}/{what}")
        for what in ("pause", "resume", "stop", "terminate", "retry")
    },
    # a question's id
    "read the question": lambda m, v: m.ask("GET", f"/v1/pendings/{v.pending_id}"),
    "decide it": lambda m, v: m.ask("POST", f"/v1/pendings/{v.pending_id}/decide", APPROVE),
    "find it in the inbox": lambda m, v: m.ask("GET", f"/v1/inbox/{v.pending_id}"),
    "claim it": lambda m, v: m.ask("POST", f"/v1/inbox/{v.pending_id}/claim", {}),
    "decide it among others": lambda m, v: m.ask(
        "POST", "/v1/inbox/decide", {"items": [{"id": m.own.pending_id, **APPROVE}, {"id": v.pending_id, **APPROVE}]}
    ),
    "answer it in its thread, over HAI": lambda m, v: m.ask("POST", "/awp", _posted(v.thread_id, _told(v.pending_id))),
    "answer it in its thread, over AG-UI": lambda m, v: m.ask(
        "POST", "/ag-ui", _posted(v.thread_id, protocolVersion="1.0", **_resume(v.pending_id))
    ),
    "answer it in a thread of one's own, over HAI": lambda m, v: m.ask(
        "POST", "/awp", _posted(m.own.thread_id, _told(v.pending_id))
    ),
    "answer it in a thread of one's own, over AG-UI": lambda m, v: m.ask(
        "POST", "/ag-ui", _posted(m.own.thread_id, protocolVersion="1.0", **_resume(v.pending_id))
    ),
    "answer it in a session of one's own, over AUI": lambda m, v: m.ask(
        "POST", "/api/aui/input", {"session_id": m.own.thread_id, "interrupt_id": v.pending_id, "action": "approve"}
    ),
    "answer it in its session, over AUI": lambda m, v: m.ask(
        "POST", "/api/aui/input", {"session_id": v.thread_id, "interrupt_id": v.pending_id, "action": "approve"}
    ),
    # a cursor
    "follow one's own run from its place": lambda m, v: m.ask(
        "GET", f"/v1/runs/{m.own.run_id}/events?dialect=hai", **{"Last-Event-ID": _cursor(v.run_id, "hai-1")}
    ),
    "follow one's own thread from its place": lambda m, v: m.ask(
        "GET", f"/api/v1/agent/runs/{m.own.thread_id}/events", **{"Last-Event-ID": _cursor(v.run_id, "social-1")}
    ),
    "follow its thread from its place": lambda m, v: m.ask(
        "GET", f"/api/v1/agent/runs/{v.thread_id}/events?after={_cursor(v.run_id, 'social-1')}"
    ),
    # a path and a body that disagree
    "a path of one's own, a body of theirs": lambda m, v: m.ask(
        "POST", f"/v1/pendings/{m.own.pending_id}/decide", {**APPROVE, "id": v.pending_id, "run_id": v.run_id}
    ),
    "an agent of one's own, a thread of theirs": lambda m, v: m.ask(
        "POST",
        "/cpk",
        {"method": "agent/stop", "params": {"agentId": "private", "threadId": v.thread_id}, "body": {"runId": "x"}},
    ),
    "move their run among one's own": lambda m, v: m.ask(
        "POST", "/v1/workflows/private/migrate", {"from": "1", "to": "1", "runs": [v.run_id]}
    ),
}


@pytest.mark.parametrize("name", TRIES)
def test_what_is_somebody_elses_stays_as_it_was_and_unseen(attacker: Attacker, victim: Case, name: str) -> None:
    before = victim.get("requester", f"/v1/runs/{victim.run_id}").json()
    answer = TRIES[name](attacker, victim)
    assert SECRET not in answer.text
    assert answer.status_code >= 400 or victim.run_id not in answer.text  # a refusal may repeat what was asked for
    assert answer.status_code in (200, 201, 400, 403, 404, 409, 422), (answer.status_code, answer.text)
    assert victim.get("requester", f"/v1/runs/{victim.run_id}").json() == before
    absent = Case(victim.url, {}, unique("gone"), victim.run_id[:-4] + "0000", victim.pending_id[:-4] + "aaaa")
    has_one_too = attacker.ask("GET", f"/v1/threads/{victim.thread_id}").status_code == 200  # in another tenant
    if answer.status_code < 400 and not has_one_too:
        assert TRIES[name](attacker, absent).status_code in (200, 201)


def test_a_socket_shows_nothing_of_somebody_elses_session(attacker: Attacker, victim: Case) -> None:
    client = AuiClient(attacker.url, headers=attacker.headers, session_id=victim.thread_id)
    client.until("aui_stream_start")
    client.send(type="input", interrupt_id=victim.pending_id, action="approve", payload={})
    assert client.until("aui_action_ack")["status"] == "refused"
    client.send(type="close")
    assert client.ended() in (1000, None)
    assert not any(word in json.dumps(client.events) for word in (SECRET, victim.run_id))
    with pytest.raises(ConnectionClosed):
        client.next()


def test_a_client_of_ours_is_told_that_there_is_nothing(attacker: Attacker, victim: Case) -> None:
    key = attacker.headers["Authorization"].removeprefix("Bearer ")
    with Client(attacker.url, key=key) as client:
        for ask in (
            lambda: client.runs.get(victim.run_id),
            lambda: client.runs.snapshot(victim.run_id),
            lambda: client.pendings.get(victim.pending_id),
        ):
            with pytest.raises(NotFound):
                ask()
        assert victim.run_id not in [str(run.id) for run in client.runs.list()]


def test_the_command_line_is_told_that_there_is_nothing(attacker: Attacker, victim: Case) -> None:
    there = {"HAI_FLOW_URL": attacker.url, "HAI_FLOW_KEY": attacker.headers["Authorization"].removeprefix("Bearer ")}
    for arguments in (("show", victim.run_id), ("events", victim.run_id), ("decide", victim.pending_id, "approve")):
        ended = commands.run(*arguments, **there)
        assert ended.returncode != 0, ended.stdout
        assert SECRET not in ended.stdout + ended.stderr
    assert victim.run_id not in commands.run("runs", **there).stdout


# --- what others have suffered ----------------------------------------------------------------------------------------

SUFFERED: Final = {
    "CVE-2026-41084": (
        "a path of one's own, a body of theirs",
        "move their run among one's own",
        "decide it among others",
    ),
    "CVE-2025-14986": ("an agent of one's own, a thread of theirs", "start a run in it"),
    "CVE-2025-14987": ("signal it", "terminate it", "answer it in a thread of one's own, over HAI"),
    "CVE-2026-42227": ("read the run", "read its snapshot", "read its log"),
    "copilotkit-7198": ("attach over CopilotKit", "speak over CopilotKit"),
    "copilotkit-6697": ("stop it", "read its messages"),
}
"""Faults of other systems in which a caller reached what belongs to others, and the tries above that are the same: an
id in the body that nobody compared with the path, an inner request that nobody judged, an id that was enough."""


def test_what_others_have_suffered_is_tried() -> None:
    assert {name for names in SUFFERED.values() for name in names} <= set(TRIES)
