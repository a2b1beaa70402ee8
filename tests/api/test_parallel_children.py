"""Several runs below one thread at once: what each asks is the thread's, whatever becomes of the others or the root."""

from __future__ import annotations

from typing import Any, Final

import httpx2
import pytest

from hai_flow.engine.state.ids import run_of_pending
from tests.api.test_cross_dialect import DECISION, FRONTENDS, Agent, Party, Place
from tests.api.test_rest import Checked, code, http, wait_for_end
from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import parse, unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving

__all__ = ["http"]

FLOWS: Final = {
    "asks_of": """\
input: {type: object, properties: {n: {type: string}}}
steps:
  - {id: ask, approve: {title: "Go ${{ input.n }}?", from: anyone}}
  - say: "told ${{ input.n }}"
output: "${{ input.n }}"
""",
    "asks_and_fails": """\
steps:
  - parallel:
      one: [{id: ask, approve: {title: "Go on?", from: anyone}}]
      two: [{id: sure, approve: {title: "Fail?", from: anyone}}, {fail: {message: It broke., code: broken}}]
""",
    "both": """\
steps:
  - id: both
    parallel:
      a: [{id: a, run: asks_of, with: {n: a}}]
      b: [{id: b, run: asks_of, with: {n: b}}]
output: "${{ steps.a.output + steps.b.output }}"
""",
    "either": """\
steps:
  - id: both
    parallel:
      a: [{id: a, run: asks_of, with: {n: a}, catch: [{errors: [run.stopped], steps: [{say: "a is gone"}]}]}]
      b: [{id: b, run: asks_of, with: {n: b}}]
""",
    "catches": """\
steps:
  - {id: sub, run: asks_and_fails, catch: [{steps: [{say: "caught"}]}]}
""",
    "fifty": """\
input: {type: object, properties: {items: {type: array, items: {type: string}}}}
steps:
  - id: each
    for_each:
      items: ${{ input.items }}
      key: ${{ item }}
      max_parallel: 50
      steps: [{id: sub, run: asks_of, with: {n: "${{ item }}"}}]
output: ${{ size(steps.each.output.filter(r, r.status == 'finished')) }}
""",
}


def publish_all(url: str) -> None:
    for name, body in FLOWS.items():
        source = f"hai: flow/v1\nname: {name}\nversion: 1\n{body}"
        expect(httpx2.post(f"{url}/v1/workflows", content=source, headers=YAML), 200, 201)


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    publish_all(server.url)


def start(http: httpx2.Client, workflow: str, **given: Any) -> dict[str, Any]:
    body = {"workflow": workflow, "thread_id": unique(workflow), "input": given}
    return expect(http.post("/v1/runs", json=body), 201).json()


def asked(http: httpx2.Client, run_id: str, count: int) -> list[dict[str, Any]]:
    """Follow the root until runs below it have asked so many questions."""
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"}) as response:
        data, pieces = b"", response.iter_bytes()
        while data.count(b"event: child_asked\n") < count or not data.endswith(b"\n\n"):
            data += next(pieces)
    return [event.data["opened"] for event in parse(data) if event.name == "child_asked"]


def asked_still(http: httpx2.Client, run_id: str, *ids: str) -> None:
    """Follow the root until it waits for nothing but these."""
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"}) as response:
        data, pieces = b"", response.iter_bytes()
        while True:
            events = [event.data for event in parse(data) if data.endswith(b"\n\n")]
            told = {each["opened"]["id"]: each for each in events if each["type"] == "child_asked"}
            if events and {id for id, each in told.items() if each.get("status", "open") == "open"} == set(ids):
                return
            data += next(pieces)


def of(questions: list[dict[str, Any]], path: str) -> str:
    """The id of the question that is asked at the path."""
    (found,) = [each["id"] for each in questions if each["path"] == path]
    return found


def decide(http: httpx2.Client, id: str) -> httpx2.Response:
    return http.post(f"/v1/pendings/{id}/decide", json={"decision": "approve"})


def asker(id: str) -> str:
    """The run that asks the question."""
    return str(run_of_pending(id))


@pytest.mark.parametrize("dialect", FRONTENDS)
def test_two_children_that_ask_at_once_are_shown_and_answered_in_turn(
    server: ServerProcess, http: Checked, dialect: str
) -> None:
    place = Place(server.url, "both", unique(f"both-{dialect}"))
    party: Party = FRONTENDS[dialect](place)
    party.start()
    (root,) = [
        each
        for each in http.get("/v1/runs", params={"thread_id": place.thread_id}).json()["items"]
        if each["workflow"] == "both"
    ]
    questions = asked(http, root["id"], 2)
    shown = httpx2.get(
        f"{server.url}/v1/runs/{root['id']}/events",
        params={"dialect": dialect},
        headers={"Accept": "text/event-stream"},
        timeout=30,
    ).text
    assert all(each["id"] in shown for each in questions)
    first, left = (each["id"] for each in questions)
    party.answer(DECISION, first)
    asked_still(http, root["id"], left)
    if isinstance(party, Agent):  # whose response ends with what was said
        assert left in str(party.client.post().last["output"])
    else:
        assert party.pending(DECISION) == left
    party.answer(DECISION, left)
    assert wait_for_end(http, root["id"])["output"] == "ab"


def test_a_stopped_childs_question_needs_no_answer_and_the_other_goes_on(http: Checked) -> None:
    root = start(http, "either")
    questions = asked(http, root["id"], 2)
    a, b = of(questions, "both/a/a/ask"), of(questions, "both/b/b/ask")
    assert http.post(f"/v1/runs/{asker(a)}/stop").status_code == 200
    assert code(decide(http, a))[0] in (409, 410)
    assert decide(http, b).status_code == 200
    ended = wait_for_end(http, root["id"])
    assert ended["status"] == "finished"
    said = http.get(f"/v1/runs/{root['id']}/snapshot").json()
    assert {"a is gone", "told b"} <= {each["content"] for each in said["messages"]}


def test_a_child_that_fails_takes_its_open_question_along(http: Checked) -> None:
    root = start(http, "catches")
    questions = asked(http, root["id"], 2)
    (fails,) = [each["id"] for each in questions if each["title"] == "Fail?"]
    (left,) = [each["id"] for each in questions if each["title"] == "Go on?"]
    assert decide(http, fails).status_code == 200
    assert wait_for_end(http, root["id"])["status"] == "finished"
    assert code(decide(http, left))[0] in (409, 410)
    snapshot = http.get(f"/v1/runs/{root['id']}/snapshot").json()
    assert "caught" in [each["content"] for each in snapshot["messages"]]
    assert left not in [each["id"] for each in http.get("/v1/pendings").json()["items"]]


@pytest.mark.costly
def test_fifty_children_of_a_loop_ask_and_are_answered_in_any_order(http: Checked) -> None:
    root = start(http, "fifty", items=[f"i{n}" for n in range(50)])
    questions = asked(http, root["id"], 50)
    assert len({each["id"] for each in questions}) == 50
    for each in reversed(questions):
        assert decide(http, each["id"]).status_code == 200
    assert wait_for_end(http, root["id"])["output"] == 50


@pytest.mark.parametrize("how", ["stop", "terminate"])
def test_what_is_asked_below_a_root_that_was_ended_needs_no_answer(http: Checked, how: str) -> None:
    root = start(http, "both")
    questions = asked(http, root["id"], 2)
    assert http.post(f"/v1/runs/{root['id']}/{how}").status_code == 200
    assert wait_for_end(http, root["id"])["status"] == "stopped"
    for each in questions:
        wait_for_end(http, asker(each["id"]))
        assert code(decide(http, each["id"]))[0] in (409, 410)
    client = AguiClient(str(http.base_url).rstrip("/"), root["thread_id"])
    assert client.post().interrupts() == []


def test_a_question_below_a_paused_root_is_answered_and_resumes_with_it(http: Checked) -> None:
    root = start(http, "both")
    questions = asked(http, root["id"], 2)
    assert http.post(f"/v1/runs/{root['id']}/pause").status_code == 200
    for each in questions:
        assert decide(http, each["id"]).status_code == 200
    assert http.get(f"/v1/runs/{root['id']}").json()["status"] == "paused"
    assert http.post(f"/v1/runs/{root['id']}/resume").status_code == 200
    assert wait_for_end(http, root["id"])["output"] == "ab"


def test_a_fork_of_a_root_asks_anew_and_the_first_ones_questions_are_void(server: ServerProcess, http: Checked) -> None:
    client = AguiClient(server.url, workflow="both")
    before = client.post(user("go"))
    base = http.get("/v1/runs", params={"thread_id": client.thread_id}).json()["items"][-1]
    questions = asked(http, base["id"], 2)
    first = next(each for each in client.post().interrupts() if each["id"] == questions[0]["id"])
    client.post(resume=[resolved(first, {"approved": True})])
    assert before.one("RUN_STARTED")
    left = [each["id"] for each in client.post().interrupts()]
    assert left == [questions[1]["id"]]


@pytest.mark.parametrize("when", ["asking", "answered"])
def test_who_takes_over_from_a_killed_server_goes_on_with_all_children(postgres_server: Server, when: str) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn) as process, httpx2.Client(base_url=process.url, timeout=30) as client:
            publish_all(process.url)
            root = start(client, "fifty", items=[f"i{n}" for n in range(8)])
            questions = asked(client, root["id"], 8)
            if when == "answered":
                for each in questions[:4]:
                    assert decide(client, each["id"]).status_code == 200
            process.kill()
        with serving(dsn) as process, httpx2.Client(base_url=process.url, timeout=30) as client:
            for each in questions[0 if when == "asking" else 4 :]:
                assert decide(client, each["id"]).status_code == 200
            assert wait_for_end(client, root["id"])["output"] == 8
