"""What a run below asks is the thread's: shown and answered in every protocol, also after the server was killed."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.api.test_cross_dialect import DECISION, FRONTENDS, SAID, TOOL, Party, Place
from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import HaiClient, answer, unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving

ASKING = {
    TOOL: """\
tools:
  confirmAction:
    frontend:
      description: Confirm
      parameters: {type: object, properties: {action: {type: string}}}
steps:
  - say: below
  - {id: ask, call: confirmAction, with: {action: go}}
  - say: "told ${{ steps.ask.output }}"
output: "${{ steps.ask.output }}"
""",
    DECISION: """\
steps:
  - say: below
  - {id: ask, approve: {title: Go?, from: anyone}}
  - say: "told ${{ steps.ask.output.decision }}"
output: "${{ steps.ask.output.decision }}"
""",
}
PASSING = """\
steps:
  - {id: sub, run: NAME}
output: "${{ steps.sub.output }}"
"""


def publish(url: str, what: str) -> str:
    """A workflow whose child's child asks; its name."""
    name = f"below_{what.lower()}"
    bodies = {f"{name}_2": ASKING[what], f"{name}_1": PASSING, name: PASSING}
    below = {f"{name}_1": f"{name}_2", name: f"{name}_1"}
    for each, body in bodies.items():
        source = f"hai: flow/v1\nname: {each}\nversion: 1\n{body.replace('NAME', below.get(each, ''))}"
        headers = {"Content-Type": "application/yaml"}
        expect(httpx2.post(f"{url}/v1/workflows", content=source, headers=headers), 200, 201)
    return name


def root_of(url: str, thread_id: str) -> dict[str, Any]:
    runs = httpx2.get(f"{url}/v1/runs", params={"thread_id": thread_id}).json()["items"]
    (root,) = [each for each in runs if each["workflow"] in ("below_confirmaction", "below_decision")]
    return root


def ended(url: str, run_id: str) -> dict[str, Any]:
    """The run when it has ended."""
    path = f"{url}/v1/runs/{run_id}/events"
    with httpx2.stream("GET", path, headers={"Accept": "text/event-stream"}, timeout=30) as response:
        response.read()
    return httpx2.get(f"{url}/v1/runs/{run_id}/snapshot").json()


@pytest.mark.parametrize("what", [TOOL, DECISION])
def test_a_grandchilds_question_is_answered_in_every_protocol_after_a_kill(postgres_server: Server, what: str) -> None:
    with postgres_server.database() as dsn:
        waiting: dict[str, str] = {}
        with serving(dsn) as process:
            name = publish(process.url, what)
            for dialect, party in FRONTENDS.items():
                place = Place(process.url, name, unique(f"below-{dialect}"))
                starter: Party = party(place)
                starter.start()
                waiting[dialect] = place.thread_id
            process.kill()
        with serving(dsn) as process:
            for dialect, thread_id in waiting.items():
                answerer: Party = FRONTENDS[dialect](Place(process.url, name, thread_id))
                id = answerer.pending(what)
                asked = httpx2.get(f"{process.url}/v1/pendings").json()["items"]
                assert [each["id"] for each in asked].count(id) == 1
                answerer.answer(what, id)
                root = ended(process.url, root_of(process.url, thread_id)["id"])
                assert (root["status"], root["output"]) == ("finished", SAID[what].removeprefix("told ")), dialect
                said = [each["content"] for each in root["messages"]]
                assert said[-2:] == ["below", SAID[what]], dialect


def test_an_answer_to_a_grandchild_streams_its_effects_and_a_repeat_too(server: ServerProcess) -> None:
    name = publish(server.url, DECISION)
    client = HaiClient(server.url, workflow=name)
    asked = client.post(user("go"), tools=("confirmAction",))
    assert asked.text() == "below"
    body = client.body(answer(asked.call_id("confirmAction"), "confirmed"), run_id="answering")
    first, again = client.send(body), client.send(body)
    assert first.text() == "told approve"
    assert (first.one("RUN_STARTED")["runId"], first.one("RUN_FINISHED")["runId"]) == ("answering", "answering")
    assert again.body == first.body


def test_an_answer_that_a_grandchild_refuses_leaves_its_question_open(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow=publish(server.url, DECISION))
    (interrupt,) = client.post(user("go")).interrupts()
    refused = client.post(resume=[resolved(interrupt, {"approved": "perhaps"})])
    assert (refused.status, refused.problem["code"]) == (422, "answer.invalid")
    assert client.post(user("more")).problem["code"] == "thread_waiting"
    assert [each["id"] for each in client.post().interrupts()] == [interrupt["id"]]
    assert client.post(resume=[resolved(interrupt, {"approved": True})]).text() == "told approve"


SHARING = {
    "shares_2": """\
state:
  flights: {type: array, items: {type: string}, default: [KL1], show: thread}
  choice: {type: string, default: "", client: true}
  secret: {type: string, default: ours}
steps:
  - {id: ask, approve: {title: Go?, from: anyone}}
  - {set: {flights: []}}
  - say: "chosen ${{ state.choice }}"
""",
    "shares_1": PASSING.replace("NAME", "shares_2").partition("output")[0],
    "shares": "state: {mine: {type: integer, default: 0, client: true}}\n"
    + PASSING.replace("NAME", "shares_1").partition("output")[0],
}


def test_a_grandchilds_state_shows_in_its_thread_and_is_written_by_posts(server: ServerProcess) -> None:
    for name, body in SHARING.items():
        source = f"hai: flow/v1\nname: {name}\nversion: 1\n{body}"
        expect(httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML), 200, 201)
    client = AguiClient(server.url, workflow="shares")
    (interrupt,) = client.post(user("go")).interrupts()
    seen = client.post().one("STATE_SNAPSHOT")["snapshot"]
    assert seen == {"mine": 0, "flights": ["KL1"], "choice": ""}
    go = [resolved(interrupt, {"approved": True})]
    for wrong in ({"choice": 5}, {"mine": "x"}):
        refused = client.post(resume=go, state={**seen, **wrong})
        assert (refused.status, refused.problem["code"]) == (422, "state.invalid")
    answered = client.post(resume=go, state={**seen, "choice": "KL1", "mine": 1, "secret": "theirs"})
    assert answered.text() == "chosen KL1"
    after = client.post().one("STATE_SNAPSHOT")["snapshot"]
    assert after == {"mine": 1, "flights": [], "choice": "KL1"}
