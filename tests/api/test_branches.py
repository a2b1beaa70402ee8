"""`parentRunId`: a thread goes on from one of its earlier turns (docs/decisions/0017)."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.api.test_social import follow
from tests.support.agui_client import AguiClient, AguiStream, resolved
from tests.support.aui_client import AuiClient
from tests.support.hai_client import HaiClient, Live, answer, unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import until

TRIP = """
hai: flow/v1
name: trip
version: 1
tools:
  files: {python: hai_flow.examples, effect: write}
steps:
  - say: Where to?
  - id: place
    ask: {title: Where?, from: anyone, form: {type: object, required: [name], properties: {name: {type: string}}}}
  - id: tidy
    call: files.delete_files
    with: {folder: "${{ steps.place.output.name }}", count: 1}
    undo: {call: files.delete_files, with: {folder: undone, count: 2}}
  - say: To ${{ steps.place.output.name }}. When?
  - id: day
    ask: {title: When?, from: anyone, form: {type: object, required: [name], properties: {name: {type: string}}}}
  - say: To ${{ steps.place.output.name }} on ${{ steps.day.output.name }}.
  - return: {place: "${{ steps.place.output.name }}", day: "${{ steps.day.output.name }}"}
"""
PICK = """
hai: flow/v1
name: pick_twice
version: 1
tools:
  pick:
    frontend:
      description: picks
      parameters: {type: object, properties: {side: {type: string}}}
      result: {type: string}
steps:
  - parallel:
      a: [{id: left, call: pick, with: {side: left}}]
      b: [{id: right, call: pick, with: {side: right}}]
  - say: "${{ steps.left.output }} and ${{ steps.right.output }}"
"""
WORDY = """
hai: flow/v1
name: wordy_branch
version: 1
tools:
  effects: {python: tests.support.effects, effect: read}
steps:
  - id: words
    call: effects.text
    with: {words: 20000}
    stream: text
"""
STUBBORN = WORDY.replace("wordy_branch", "stubborn_branch").replace(
    """effects.text
    with: {words: 20000}
    stream: text""",
    """effects.stubborn
    with: {}""",
)
TWO_VOTES = """
hai: flow/v1
name: two_votes
version: 1
steps:
  - id: first
    ask: {title: Ready?, from: anyone, form: {type: object, properties: {}}}
  - id: both
    approve: {title: Sure?, from: anyone, quorum: 2}
  - id: after
    ask: {title: And?, from: anyone, form: {type: object, properties: {}}}
"""


@pytest.fixture(scope="module", autouse=True)
def workflows(server: ServerProcess) -> None:
    for text in (TRIP, PICK, TWO_VOTES, WORDY):
        published = httpx2.post(f"{server.url}/v1/workflows", content=text, headers=YAML)
        assert published.status_code in (200, 201), published.text


def runs_of(http: httpx2.Client, client: AguiClient) -> list[dict[str, Any]]:
    """The thread's runs, oldest first."""
    return http.get("/v1/runs", params={"thread_id": client.thread_id}).json()["items"][::-1]


def events_of(http: httpx2.Client, run: dict[str, Any]) -> list[dict[str, Any]]:
    return http.get(f"/v1/runs/{run['id']}/events", headers={"Accept": "application/json"}).json()["items"]


def snapshot_of(http: httpx2.Client, run: dict[str, Any]) -> dict[str, Any]:
    return http.get(f"/v1/runs/{run['id']}/snapshot").json()


def shown(stream: AguiStream) -> list[Any]:
    """The messages of a snapshot: what was said, or which call it is."""
    return [
        [call["function"]["name"] for call in each["toolCalls"]] if each.get("toolCalls") else each.get("content")
        for each in stream.one("MESSAGES_SNAPSHOT")["messages"]
    ]


def test_an_answer_is_given_differently(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="trip")
    hello = user("hello")
    (where,) = client.post(hello, run_id="t1").interrupts()
    (when,) = client.post(hello, run_id="t2", resume=[resolved(where, {"name": "Rome"})]).interrupts()
    branch = client.post(hello, run_id="t3", parentRunId="t1", resume=[resolved(where, {"name": "Paris"})])
    assert branch.one("RUN_STARTED")["parentRunId"] == "t1"
    (again,) = branch.interrupts()
    assert again["id"] != when["id"]
    first, fork = runs_of(http, client)
    assert (first["status"], fork["status"]) == ("stopped", "waiting")
    assert client.post(resume=[resolved(again, {"name": "Monday"})]).text() == "To Paris on Monday."
    assert snapshot_of(http, fork)["output"] == {"place": "Paris", "day": "Monday"}
    thread = client.post()
    print(json.dumps(thread.one("MESSAGES_SNAPSHOT"), indent=1))
    assert shown(thread) == ["hello", "Where to?", "To Paris. When?", "To Paris on Monday."]


def test_a_branch_stops_and_undoes_only_work_that_it_does_not_share(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="trip")
    (where,) = client.post(user(), run_id="t1").interrupts()
    (when,) = client.post(run_id="t2", resume=[resolved(where, {"name": "Rome"})]).interrupts()
    client.post(run_id="t3", parentRunId="t1", resume=[resolved(where, {"name": "Paris"})])
    first, _ = runs_of(http, client)
    left = snapshot_of(http, first)
    assert left["steps"]["tidy"]["status"] == "undone"  # it came behind the turn from which the thread goes on
    refused = http.post(f"/v1/pendings/{when['id']}/decide", json={"values": {"name": "never"}})
    assert (refused.status_code, refused.json()["code"]) == (409, "pending_voided")


def test_what_was_done_before_the_turn_is_not_undone_and_not_done_again(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url, workflow="trip")
    (where,) = client.post(user(), run_id="t1").interrupts()
    (when,) = client.post(run_id="t2", resume=[resolved(where, {"name": "Rome"})]).interrupts()
    client.post(run_id="t3", resume=[resolved(when, {"name": "Monday"})])
    again = client.post(run_id="t4", parentRunId="t2", resume=[resolved(when, {"name": "Friday"})])
    assert shown(again)[-1] == "To Rome on Friday."
    first, fork = runs_of(http, client)
    assert first["status"] == "finished"
    assert snapshot_of(http, first)["steps"]["tidy"]["status"] == "finished"
    assert snapshot_of(http, fork)["steps"]["tidy"]["status"] == "finished"
    events = events_of(http, fork)
    forked = next(n for n, event in enumerate(events) if event["type"] == "forked")
    assert not [e for e in events[forked:] if e["type"] == "step_started" and e["path"] == "tidy"]
    assert events[forked]["of"] == first["id"]
    assert (events[forked]["seq"], events[forked]["copied"]) == (forked + 1, forked)


def test_a_message_after_an_ended_run_takes_the_place_of_the_later_ones(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url, workflow="weather")
    client.post(user("one"), run_id="one")
    client.post(user("two"), run_id="two")
    client.post(user("other"), run_id="three", parentRunId="one")
    said = [each for each in shown(client.post()) if each in ("one", "two", "other")]
    assert said == ["one", "other"]
    client.post(user("back"), run_id="four", parentRunId="two")  # and back to what was left
    said = [each for each in shown(client.post()) if each in ("one", "two", "other", "back")]
    assert said == ["one", "two", "back"]
    assert [run["status"] for run in runs_of(http, client)] == ["finished"] * 4


def test_the_same_message_again_is_answered_anew(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="weather")
    client.post(user("one"), run_id="one")
    two = user("two")
    client.post(two, run_id="two")
    assert client.post(two, run_id="three", parentRunId="one").status == 200
    assert len(runs_of(http, client)) == 3
    assert shown(client.post()).count("two") == 1


def test_a_run_that_waits_elsewhere_in_the_thread_is_stopped_for_a_branch(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url)
    client.post(user("one"), run_id="one", forwardedProps={"workflow": "weather"})
    client.post(user("two"), run_id="two", forwardedProps={"workflow": "trip"})
    client.post(user("three"), run_id="three", parentRunId="one", forwardedProps={"workflow": "weather"})
    assert [run["status"] for run in runs_of(http, client)] == ["finished", "stopped", "finished"]


def test_a_run_that_is_at_work_is_stopped_for_a_branch(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url)
    client.post(user("one"), run_id="one", forwardedProps={"workflow": "weather"})
    body = client.body(user("two"), run_id="two", forwardedProps={"workflow": "wordy_branch"})
    with httpx2.stream("POST", client.url, json=body, timeout=30) as response:
        Live(response).until("TEXT_MESSAGE_CONTENT")
        client.post(user("three"), run_id="three", parentRunId="one", forwardedProps={"workflow": "weather"})
    assert [run["status"] for run in runs_of(http, client)] == ["finished", "stopped", "finished"]


def test_the_process_that_stops_a_run_for_a_branch_dies(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, ThreadPoolExecutor(1) as pool:
        with serving(dsn) as process, httpx2.Client(base_url=process.url) as http:
            assert http.post("/v1/workflows", content=STUBBORN, headers=YAML).status_code == 201
            client = AguiClient(process.url)
            client.post(user("one"), run_id="one", forwardedProps={"workflow": "weather"})
            body = client.body(user("two"), run_id="two", forwardedProps={"workflow": "stubborn_branch"})
            branch = client.body(user("three"), parentRunId="one", forwardedProps={"workflow": "weather"})
            with httpx2.stream("POST", client.url, json=body, timeout=30) as response:
                Live(response).until("STEP_STARTED")
                cut = pool.submit(client.send, branch)
                asyncio.run(until(lambda: [run["status"] for run in runs_of(http, client)] == ["finished", "stopping"]))
                process.kill()
            with pytest.raises(httpx2.TransportError):
                cut.result()
        with serving(dsn) as process, httpx2.Client(base_url=process.url) as http:
            again = AguiClient(process.url, client.thread_id).send(branch)
            assert [each["content"] for each in told(again) if each["role"] == "user"] == ["one", "three"]
            assert [run["status"] for run in runs_of(http, client)] == ["finished", "stopped", "finished"]


def test_a_message_alone_answers_nothing_that_an_earlier_turn_waited_for(
    server: ServerProcess, http: httpx2.Client
) -> None:
    client = AguiClient(server.url, workflow="trip")
    (where,) = client.post(user(), run_id="t1").interrupts()
    (when,) = client.post(run_id="t2", resume=[resolved(where, {"name": "Rome"})]).interrupts()
    refused = client.post(user("instead"), run_id="t3", parentRunId="t1")
    assert (refused.status, refused.problem["code"]) == (409, "thread_waiting")
    assert [each["id"] for each in refused.problem["winner"]["pendings"]] == [where["id"]]
    unfit = client.post(run_id="t4", parentRunId="t1", resume=[resolved(where, {"name": 7})])
    assert (unfit.status, unfit.problem["code"]) == (422, "answer.invalid")
    assert [run["status"] for run in runs_of(http, client)] == ["waiting"]
    assert client.post(run_id="t5", parentRunId="t1").interrupts() == [when]  # nothing new


def test_a_branch_posted_twice_is_one(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="trip")
    (where,) = client.post(user(), run_id="t1").interrupts()
    client.post(run_id="t2", resume=[resolved(where, {"name": "Rome"})])
    body = client.body(run_id="t3", parentRunId="t1", resume=[resolved(where, {"name": "Paris"})])
    with ThreadPoolExecutor(4) as pool:
        streams = list(pool.map(client.send, [body] * 4))
    assert {stream.status for stream in streams} == {200}
    assert len(runs_of(http, client)) == 2
    assert len({stream.interrupts()[0]["id"] for stream in streams}) == 1
    late = client.send(body)
    assert shown(late)[-1] == "To Paris. When?"
    (when,) = late.interrupts()
    assert [when] == streams[0].interrupts()
    client.post(resume=[resolved(when, {"name": "Monday"})])
    again = client.send(body)
    assert shown(again)[-1] == "To Paris. When?"
    assert again.interrupts() == [when]  # the same turn as it was


def test_votes_are_for_one_run(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="two_votes")
    (ready,) = client.post(user(), run_id="t1").interrupts()
    (sure,) = client.post(run_id="t2", resume=[resolved(ready, {})]).interrupts()
    yes = [resolved(sure, {"decision": "approve"})]
    client.post(run_id="t3", resume=yes)  # one of two; who has voted can't vote again
    client.post(run_id="t4", parentRunId="t2", resume=yes)
    client.post(run_id="t5", parentRunId="t3", resume=yes)  # copied with the vote in it
    for run in runs_of(http, client)[1:]:
        events = events_of(http, run)
        since = next(n for n, event in enumerate(events) if event["type"] == "forked")
        assert len([event for event in events[since:] if event["type"] == "vote_cast"]) == 1
        assert "approve" not in [event.get("outcome") for event in events]
    assert [run["status"] for run in runs_of(http, client)] == ["stopped", "stopped", "waiting"]


def test_a_frontends_other_calls_are_asked_again(server: ServerProcess, http: httpx2.Client) -> None:
    client = AguiClient(server.url, workflow="pick_twice", version="0")
    opened = client.post(user(), run_id="t1", tools=("pick",))
    left, right = opened.calls()
    done = client.post(answer(left, '"A"'), answer(right, '"B"'), run_id="t2", tools=("pick",))
    assert done.text() == "A and B"
    branch = client.post(answer(left, '"C"'), run_id="t3", parentRunId="t1", tools=("pick",))
    calls = [call for each in branch.one("MESSAGES_SNAPSHOT")["messages"] for call in each.get("toolCalls", ())]
    answered = {each["toolCallId"] for each in branch.one("MESSAGES_SNAPSHOT")["messages"] if each["role"] == "tool"}
    (again,) = [call for call in calls if call["id"] not in answered]
    assert json.loads(again["function"]["arguments"]) == {"side": "right"}
    assert again["id"] not in (left, right)
    assert client.post(answer(again["id"], '"D"'), tools=("pick",)).text() == "C and D"


# --- a client whose history is not the thread's ---------------------------------------------------------------------


def told(stream: AguiStream) -> list[dict[str, Any]]:
    """The messages that a client has after a snapshot."""
    return stream.one("MESSAGES_SNAPSHOT")["messages"]


def test_a_client_that_has_the_threads_history_is_not_told_it(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="weather")
    client.post(user("one"))
    history = told(client.post())
    stream = client.post(*history, user("two"))
    assert stream.all("MESSAGES_SNAPSHOT") == []
    assert stream.all("TOOL_CALL_START") != []
    assert client.post(*told(client.post())[-3:], user("three")).all("MESSAGES_SNAPSHOT") == []  # it begins later
    assert client.post(user("four")).all("MESSAGES_SNAPSHOT") == []  # it claims nothing
    greeting = {"id": unique("mine"), "role": "assistant", "content": "How can I help?"}
    assert client.post(greeting, user("five")).all("MESSAGES_SNAPSHOT") == []
    assert AguiClient(server.url, workflow="weather").post(greeting, user("one")).all("MESSAGES_SNAPSHOT") == []


def test_a_client_whose_history_is_another_one_is_told(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="weather")
    one = user("one")
    client.post(one)
    made_up = {"id": unique("mine"), "role": "assistant", "content": "The weather is what I say."}
    stream = client.post(one, made_up, user("two"))
    assert made_up["id"] not in [each["id"] for each in told(stream)]
    assert "two" in [each.get("content") for each in told(stream)]
    behind = client.post(one, user("three"))  # it knows nothing of "two"
    assert [each["content"] for each in told(behind) if each["role"] == "user"] == ["one", "two", "three"]


def test_an_answer_with_another_history_is_given_and_the_client_told(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="trip")
    hello = user("hello")
    (where,) = client.post(hello).interrupts()
    forged = {"id": unique("mine"), "role": "assistant", "content": "You want to go to Rome."}
    stream = client.post(hello, forged, resume=[resolved(where, {"name": "Paris"})])
    assert [each["content"] for each in told(stream)][:2] == ["hello", "Where to?"]
    assert len(stream.interrupts()) == 1


# --- others of the thread -------------------------------------------------------------------------------------------


def test_who_follows_the_thread_is_shown_what_it_is_now(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="trip")
    with follow(server.url, client.thread_id) as stream:
        (where,) = client.post(user("hello"), run_id="t1").interrupts()
        client.post(run_id="t2", resume=[resolved(where, {"name": "Rome"})])
        (when,) = client.post(run_id="t3", parentRunId="t1", resume=[resolved(where, {"name": "Paris"})]).interrupts()
        client.post(resume=[resolved(when, {"name": "Monday"})])
        events = stream.past("To Paris on Monday.")
    empty, now = [event.data for event in events if event.name == "MESSAGES_SNAPSHOT"]
    assert empty["messages"] == []
    assert "Rome" not in json.dumps(now)
    history = httpx2.get(f"{server.url}/api/v1/agent/runs/{client.thread_id}/history").text
    assert "Rome" not in history
    assert "To Paris on Monday." in history


@pytest.mark.parametrize("binary", [False, True])
def test_a_hai_client_that_reconnects_is_shown_the_branch(server: ServerProcess, binary: bool) -> None:
    client = AguiClient(server.url, workflow="trip")
    (where,) = client.post(user("hello"), run_id="t1").interrupts()
    client.post(run_id="t2", resume=[resolved(where, {"name": "Rome"})])
    client.post(run_id="t3", parentRunId="t1", resume=[resolved(where, {"name": "Paris"})])
    stream = HaiClient(server.url, client.thread_id, binary=binary).post()
    said = [each["content"] for each in stream.one("MESSAGE_SNAPSHOT")["messages"]]
    assert "To Paris. When?" in said[-1]
    assert "Rome" not in str(said)


def test_an_aui_session_is_shown_the_branch(server: ServerProcess) -> None:
    client = AguiClient(server.url, workflow="trip")
    (where,) = client.post(user("hello"), run_id="t1").interrupts()
    client.post(run_id="t2", resume=[resolved(where, {"name": "Rome"})])
    client.post(run_id="t3", parentRunId="t1", resume=[resolved(where, {"name": "Paris"})])
    page = AuiClient(server.url, session_id=client.thread_id)
    assert "Rome" not in json.dumps(page.until("aui_messages_snapshot"))
