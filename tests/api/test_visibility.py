"""Who may see how much of a run: its requester, those who are asked, operators, and whom its workflow names."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest

from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import unique, user
from tests.support.identities import People
from tests.support.server import YAML, ServerProcess, expect
from tests.support.sights import WAYS, Case

SAID, EVIDENCE, GIVEN = "conversation-5512", "amount-7319", "given-8841"
SOURCE = """
hai: flow/v1
name: NAME
version: 1
VISIBILITY
input: {type: object, properties: {word: {type: string}}}
state: {known: {type: string, default: "conversation-5512"}}
steps:
  - say: "It is conversation-5512."
  - id: gate
    approve: {title: Go?, from: [role:boss], evidence: {amount: amount-7319}}
output: "conversation-5512"
"""


PEOPLE: dict[str, tuple[str, list[str], list[str]]] = {
    "requester": ("user:ann", [], []),
    "stranger": ("user:bob", [], []),
    "decider": ("user:eve", ["decider", "boss"], []),
    "viewer": ("user:vic", ["viewer"], []),
    "operator": ("user:oli", ["operator"], []),
    "support": ("user:sue", ["support", "requester"], []),
    "grouped": ("user:gus", [], ["finance"]),
}


def published(url: str, publisher: dict[str, str], name: str, visibility: str = "") -> None:
    source = SOURCE.replace("NAME", name).replace("VISIBILITY", visibility and f"visibility: {visibility}")
    expect(httpx2.post(f"{url}/v1/workflows", content=source, headers={**YAML, **publisher}), 201)


def waiting(url: str, headers: dict[str, dict[str, str]], workflow: str) -> Case:
    """A run of the workflow that the requester has started over AG-UI, and that waits."""
    ann = AguiClient(url, workflow=workflow, headers=headers["requester"])
    ann.post(user(f"It is {SAID}."), forwardedProps={"input": {"word": GIVEN}})
    (run,) = httpx2.get(f"{url}/v1/runs?thread_id={ann.thread_id}", headers=headers["requester"]).json()["items"]
    case = Case(url, headers, ann.thread_id, run["id"], "")
    (pending,) = case.get("requester", f"/v1/runs/{run['id']}/snapshot").json()["pendings"]
    case.pending_id = pending["id"]
    return case


@pytest.fixture(scope="module")
def headers(strict: ServerProcess, dsn: str) -> dict[str, dict[str, str]]:
    people = People(dsn)
    found = {name: people.person(id, roles=roles, groups=groups) for name, (id, roles, groups) in PEOPLE.items()}
    found["publisher"] = people.person("user:pat", roles=["publisher"])
    return found


@pytest.fixture(scope="module")
def case(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> Case:
    published(strict.url, headers["publisher"], "private")
    return waiting(strict.url, headers, "private")


@pytest.mark.parametrize("way", WAYS)
def test_a_decider_sees_their_question_and_evidence_and_no_more_of_the_run(case: Case, way: str) -> None:
    shown = case.over("decider", way)
    assert (SAID in shown, GIVEN in shown) == (False, False), shown
    if way != "run":
        assert "Go?" in shown
    if way not in ("run", "history", "beginning", "stream"):  # whose questions have no evidence in any case
        assert EVIDENCE in shown


@pytest.mark.parametrize("way", WAYS)
def test_a_requester_sees_the_run_but_not_the_evidence_of_others_questions(case: Case, way: str) -> None:
    shown = case.over("requester", way)
    assert SAID in shown or GIVEN in shown, shown
    assert EVIDENCE not in shown


@pytest.mark.parametrize("who", ["viewer", "operator"])
@pytest.mark.parametrize("way", WAYS)
def test_viewers_and_operators_see_the_runs_of_their_tenant(case: Case, who: str, way: str) -> None:
    shown = case.over(who, way)
    assert SAID in shown or GIVEN in shown, shown


def test_the_history_of_a_question_has_its_evidence_for_those_who_see_it(case: Case) -> None:
    path = f"/v1/pendings/{case.pending_id}/history"
    seen = {who: case.get(who, path) for who in ("decider", "requester", "viewer", "stranger")}
    assert {who: EVIDENCE in answer.text for who, answer in seen.items()} == {
        "decider": True, "requester": False, "viewer": True, "stranger": False
    }  # fmt: skip
    assert seen["requester"].json()["items"][0]["digest"] == ""
    assert seen["stranger"].status_code == 404


def same(of: httpx2.Response, absent: httpx2.Response, *ids: tuple[str, str]) -> None:
    """Both answers are alike, but for the ids that were asked for."""
    text = of.text
    for id, other in ids:
        text = text.replace(id, other)
    assert (of.status_code, text) == (absent.status_code, absent.text)


def test_to_a_stranger_the_run_is_as_if_it_were_not_there(case: Case) -> None:
    run_id, pending_id, thread_id = str(_absent(case.run_id)), case.pending_id[:-4] + "aaaa", unique("nobody")
    swaps = ((case.run_id, run_id), (case.pending_id, pending_id), (case.thread_id, thread_id))
    paths = [
        "/v1/runs/{run}", "/v1/runs/{run}/snapshot", "/v1/runs/{run}/events", "/v1/runs/{run}/events?dialect=hai",
        "/v1/pendings/{pending}", "/v1/pendings/{pending}/history",
        "/v1/threads/{thread}", "/v1/threads/{thread}/messages",
        "/v1/threads/{thread}/feedback", "/v1/threads/{thread}/feedback/pendings/{pending}",
        "/api/v1/agent/runs/{thread}/history",
    ]  # fmt: skip
    for path in paths:
        theirs = case.get("stranger", path.format(run=case.run_id, pending=case.pending_id, thread=case.thread_id))
        none = case.get("stranger", path.format(run=run_id, pending=pending_id, thread=thread_id))
        assert theirs.status_code == (200 if path.startswith("/api/v1/agent") else 404), path
        same(theirs, none, *swaps)
    for path, body in (
        ("/v1/pendings/{pending}/decide", {"decision": "approve"}),
        ("/cpk/agent/default/stop/{thread}", {}),
        ("/v1/runs/{run}/stop", {}),
    ):
        theirs = case.post(
            "stranger", path.format(run=case.run_id, pending=case.pending_id, thread=case.thread_id), body
        )
        none = case.post("stranger", path.format(run=run_id, pending=pending_id, thread=thread_id), body)
        assert theirs.status_code in (404, 403, 200), path
        same(theirs, none, *swaps)
    assert case.get("requester", f"/v1/runs/{case.run_id}").json()["status"] == "waiting"


def _absent(id: str) -> str:
    return id[:-4] + ("0000" if id[-4:] != "0000" else "1111")


@pytest.mark.parametrize("how", ["awp", "ag-ui", "process", "aui", "rest"])
def test_nobody_else_speaks_in_a_thread(case: Case, how: str) -> None:
    before = case.get("requester", f"/v1/threads/{case.thread_id}").json()
    for who, expected in (("stranger", 404), ("decider", 403), ("operator", 403), ("viewer", 403)):
        found = speak(case, who, how)
        assert found.status_code == expected, (who, found.text)
        assert found.json()["code"] == ("thread_unknown" if expected == 404 else "thread_foreign") or (
            found.json()["code"] == "right_missing"
        ), (who, found.text)
    assert case.get("requester", f"/v1/threads/{case.thread_id}").json() == before


def speak(case: Case, who: str, how: str) -> httpx2.Response:
    said = {"id": unique("m"), "role": "user", "content": "let me in"}
    body = {"threadId": case.thread_id, "runId": unique("r"), "messages": [said], "tools": []}
    match how:
        case "awp":
            return case.post(who, "/workflows/private/awp", body)
        case "ag-ui":
            return case.post(who, "/workflows/private/ag-ui", {**body, "protocolVersion": "1.0"})
        case "process":
            said = {"role": "user", "type": "message", "content": [{"type": "text", "text": "let me in"}]}
            asked = {"input": [said], "session_id": case.thread_id, "id": unique("r")}
            return case.post(who, "/workflows/private/process", asked)
        case "aui":
            given = {"session_id": case.thread_id, "payload": {"message": "let me in"}}
            return case.post(who, "/api/aui/input", given)
        case _:
            return case.post(who, "/v1/runs", {"workflow": "private", "thread_id": case.thread_id})


def test_a_decider_answers_over_a_protocol_and_only_that(
    strict: ServerProcess, headers: dict[str, dict[str, str]]
) -> None:
    case = waiting(strict.url, headers, "private")
    (interrupt,) = case.agui("decider").post().interrupts()
    answered = resolved(interrupt, {"approved": True})
    refused = case.agui("decider").post(user("and a word"), resume=[answered])
    assert (refused.status, refused.problem["code"]) == (403, "thread_foreign")
    assert case.agui("decider").post(resume=[answered]).one("RUN_FINISHED")
    assert _ended(case)["output"] == SAID
    shown = case.get("decider", f"/v1/pendings/{case.pending_id}").json()  # they have voted on it
    assert (shown["status"], shown["evidence"]) == ("approve", {"amount": EVIDENCE})
    assert case.get("decider", f"/v1/runs/{case.run_id}").json()["output"] is None


def _ended(case: Case) -> dict[str, Any]:
    end = time.monotonic() + 20
    while (run := case.get("requester", f"/v1/runs/{case.run_id}").json())["status"] != "finished":
        assert time.monotonic() < end, run
        time.sleep(0.02)
    return run


def test_lists_show_what_the_caller_may_see(case: Case) -> None:
    def listed(who: str, of: str) -> set[str]:
        return {each["id"] for each in case.get(who, f"/v1/{of}?limit=200").json()["items"]}

    mine = {"runs": case.run_id, "threads": case.thread_id, "pendings": case.pending_id}
    for who, sees in (("requester", "all"), ("operator", "all"), ("viewer", "all"), ("stranger", ""), ("decider", "p")):
        for of, id in mine.items():
            found = listed(who, of)
            assert (id in found) is (sees == "all" or (sees == "p" and of == "pendings")), (who, of)
            if who == "stranger":
                assert found == set(), of


def test_open_pendings_are_those_of_a_run_or_of_a_workflow(case: Case) -> None:
    def listed(who: str, **params: str) -> list[str]:
        found = expect(httpx2.get(f"{case.url}/v1/pendings", params=params, headers=case.headers[who], timeout=20), 200)
        return [each["id"] for each in found.json()["items"]]

    for who, sees in (("requester", True), ("decider", True), ("viewer", True), ("stranger", False)):
        assert listed(who, run_id=case.run_id, workflow="private") == ([case.pending_id] if sees else []), who
        assert (case.pending_id in listed(who, workflow="private", limit="200")) is sees, who
        assert listed(who, run_id=case.run_id, workflow="other") == listed(who, run_id="nonsense") == []


def test_a_workflow_names_who_else_may_read_its_runs(strict: ServerProcess, headers: dict[str, dict[str, str]]) -> None:
    expected = {
        "tenant": {"stranger", "support", "grouped"},
        "[role:support]": {"support"},
        "[group:finance, user:bob]": {"grouped", "stranger"},
    }
    for number, (visibility, readers) in enumerate(expected.items()):
        published(strict.url, headers["publisher"], f"open{number}", visibility)
        case = waiting(strict.url, headers, f"open{number}")
        for who in ("stranger", "support", "grouped"):
            sees = who in readers
            assert case.get(who, f"/v1/runs/{case.run_id}").status_code == (200 if sees else 404), (visibility, who)
            listed = [each["id"] for each in case.get(who, "/v1/runs").json()["items"]]
            assert (case.run_id in listed) is sees
            assert (case.thread_id in [t["id"] for t in case.get(who, "/v1/threads").json()["items"]]) is sees
            if sees:
                assert SAID in case.over(who, "ag-ui")
                assert not any(EVIDENCE in case.over(who, way) for way in ("ag-ui", "log", "snapshot"))
                assert EVIDENCE not in case.get(who, f"/v1/pendings/{case.pending_id}").text
                assert SAID in case.get(who, f"/v1/threads/{case.thread_id}/messages").text
                assert speak(case, who, "awp").json()["code"] == "thread_foreign"


@pytest.mark.parametrize(
    ("people", "keys"), [(("user:one", "user:two"), ("k", "k")), (("user:one:b", "user:one"), ("k", "b:k"))]
)
def test_one_idempotency_key_or_run_id_of_two_people_is_two(
    strict: ServerProcess, dsn: str, headers: dict[str, dict[str, str]], people: tuple[str, str], keys: tuple[str, str]
) -> None:
    source = SOURCE.replace("NAME", "two_eyes").replace("VISIBILITY", "").replace("boss],", "boss], quorum: 2,")
    taken = httpx2.post(f"{strict.url}/v1/workflows", content=source, headers={**YAML, **headers["publisher"]})
    assert taken.is_success
    bosses = [People(dsn).person(id, roles=["decider", "boss"]) for id in people]
    case = waiting(strict.url, headers, "two_eyes")
    path = f"{strict.url}/v1/pendings/{case.pending_id}/decide"
    for boss, key, status in zip(bosses, keys, ("open", "approve"), strict=True):
        answer = httpx2.post(path, headers={**boss, "Idempotency-Key": key}, json={"decision": "approve"})
        assert (answer.status_code, answer.json()["status"]) == (200, status), answer.text
    case = waiting(strict.url, headers, "two_eyes")
    body = AguiClient(strict.url, case.thread_id).body(
        resume=[resolved({"id": case.pending_id}, {"approved": True})], run_id="r1"
    )
    for boss in bosses:
        assert AguiClient(strict.url, case.thread_id, headers=boss).send(body).status == 200
    assert len(_ended(case)["output"]) > 0
