"""An answer can be tried before it is given, and what was said to a question can be read: for a page in which people
decide."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from hai_flow_client import Client, Invalid

from tests.api.test_rest import Checked, code, http, start, wait_for_pendings
from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess

__all__ = ["http"]

GATED = """
hai: flow/v1
name: NAME
version: 1
tools:
  files: {python: hai_flow.examples, effect: write}
steps:
  - id: delete
    call: files.delete_files
    with: {folder: tmp, count: 3}
    approval:
      from: [user:ann, user:ben, user:cy]
      title: "Delete ${{ args.count }} files?"
      quorum: 2
      edit: [count]
      deadline: 1h
"""
FORM = """
hai: flow/v1
name: NAME
version: 1
steps:
  - id: asked
    ask:
      title: How many?
      from: anyone
      form:
        type: object
        required: [count]
        properties: {count: {type: integer, minimum: 1}}
"""


def ask(http: Checked, source: str) -> str:
    """The id of the question of a new run of the workflow, started by user:req."""
    name = unique("checked").replace("-", "_")
    published = http.post("/v1/workflows", content=source.replace("NAME", name), headers=YAML)
    assert published.status_code == 201, published.text
    run = http.post("/v1/runs", json={"workflow": name}, headers={"HAI-Act-As": "user:req"}).json()
    (pending,) = wait_for_pendings(http, run["id"])
    return pending["id"]


def post(http: Checked, id: str, verb: str, who: str, **body: Any) -> httpx2.Response:
    return http.post(f"/v1/pendings/{id}/{verb}", json=body, headers={"HAI-Act-As": who})


def seq_of(http: Checked, id: str) -> int:
    run_id = http.get(f"/v1/pendings/{id}").json()["run_id"]
    return http.get(f"/v1/runs/{run_id}").json()["seq"]


def history(http: Checked, id: str, who: str = "user:ann", **params: Any) -> dict[str, Any]:
    return http.get(f"/v1/pendings/{id}/history", params=params, headers={"HAI-Act-As": who}).json()


def test_a_check_says_what_the_vote_would_do_and_does_nothing(http: Checked) -> None:
    id = ask(http, GATED)
    before = seq_of(http, id)
    found = post(http, id, "check", "user:ann", decision="approve").json()
    assert (found["decides"], found["status"], found["lapsing"]) == (False, "open", [])
    assert found["needed"]["missing"]["people"] == 1
    assert seq_of(http, id) == before
    assert post(http, id, "decide", "user:ann", decision="approve").status_code == 200
    found = post(http, id, "check", "user:ben", decision="approve").json()
    assert (found["decides"], found["status"]) == (True, "approve")
    found = post(http, id, "check", "user:ben", decision="reject").json()
    assert (found["decides"], found["status"]) == (True, "reject")
    assert http.get(f"/v1/pendings/{id}").json()["status"] == "open"


def test_a_check_of_an_edit_names_the_votes_that_it_would_void(http: Checked) -> None:
    id = ask(http, GATED)
    assert post(http, id, "decide", "user:ann", decision="approve").status_code == 200
    old = http.get(f"/v1/pendings/{id}").json()
    found = post(http, id, "check", "user:ben", decision="approve", edits={"count": 1}).json()
    assert [vote["by"] for vote in found["lapsing"]] == ["user:ann"]
    assert found["args"] == {"folder": "tmp", "count": 1}
    assert found["digest"] != old["digest"]
    assert (old["title"], found["title"]) == ("Delete 3 files?", "Delete 1 files?")
    assert found["needed"]["missing"]["people"] == 1
    decided = post(http, id, "decide", "user:ben", decision="approve", edits={"count": 1}).json()
    assert [decided[name] for name in ("title", "args", "digest")] == [
        found[name] for name in ("title", "args", "digest")
    ]


@pytest.mark.parametrize(
    ("who", "body", "refusal"),
    [
        ("user:dan", {"decision": "approve"}, (403, "pending_forbidden")),
        ("user:ann", {"decision": "maybe"}, (422, "answer.invalid")),
        ("user:ann", {"decision": "approve", "edits": {"folder": "/"}}, (422, "answer.invalid")),
        ("user:ann", {"decision": "approve", "digest": "0" * 64}, (422, "answer.digest")),
        ("user:ann", {"decision": "approve", "on_behalf_of": "user:ben"}, (403, "delegation_missing")),
    ],
)
def test_a_check_is_refused_as_the_answer_is(
    http: Checked, who: str, body: dict[str, Any], refusal: tuple[int, str]
) -> None:
    id = ask(http, GATED)
    checked, decided = (post(http, id, verb, who, **body) for verb in ("check", "decide"))
    assert code(checked) == code(decided) == refusal
    assert checked.json().get("findings") == decided.json().get("findings")


def test_a_form_learns_its_findings_from_a_check(http: Checked, client: Client) -> None:
    id = ask(http, FORM)
    with pytest.raises(Invalid) as refused:
        client.pendings.check(id, values={"count": 0})
    assert [each["path"] for each in refused.value.findings] == ["/count"]
    assert client.pendings.check(id, values={"count": 2}).decides
    assert client.pendings.get(id).status == "open"


def test_a_decided_question_refuses_a_check_with_the_winner(http: Checked) -> None:
    id = ask(http, FORM)
    assert post(http, id, "decide", "user:ann", values={"count": 2}).status_code == 200
    again = post(http, id, "check", "user:ann", values={"count": 2}).json()
    assert (again["already"], again["decides"]) == (True, False)
    refused = post(http, id, "check", "user:ben", values={"count": 3})
    assert code(refused) == (409, "pending_decided")
    assert refused.json()["winner"]["by"] == "user:ann"


def test_the_history_has_what_was_said_in_its_order(http: Checked, client: Client) -> None:
    id = ask(http, GATED)
    post(http, id, "decide", "user:ann", decision="approve")
    post(http, id, "decide", "user:ben", decision="approve", edits={"count": 2})
    post(http, id, "decide", "user:cy", decision="approve", reason="as you say")
    found = history(http, id)
    assert [each["type"] for each in found["items"]] == [
        "pending_opened",
        "vote_cast",
        "pending_edited",
        "vote_cast",
        "vote_cast",
        "pending_decided",
    ]
    assert found["items"][0]["args"] == {"folder": "tmp", "count": 3}
    assert found["items"][2]["args"] == {"folder": "tmp", "count": 2}
    assert [each["by"] for each in found["items"] if each["type"] == "vote_cast"] == ["user:ann", "user:ben", "user:cy"]
    paged: list[Any] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not paged or page["next_cursor"] is not None:
        cursor = {"cursor": page["next_cursor"]} if paged else {}
        page = history(http, id, limit=1, **cursor)
        paged += page["items"]
    assert paged == found["items"]
    assert [event.type for event in client.pendings.history(id)] == [each["type"] for each in found["items"]]


def test_other_questions_of_the_run_are_not_in_a_history(http: Checked) -> None:
    run = start(http, "release")
    first, second = wait_for_pendings(http, run["id"], 2)[:2]
    assert {each["id"] for each in history(http, first["id"])["items"]} == {first["id"]}
    assert {each["id"] for each in history(http, second["id"])["items"]} == {second["id"]}


def test_an_approved_call_shows_its_arguments_as_the_function_has_them(http: Checked) -> None:
    found = http.get(f"/v1/pendings/{ask(http, GATED)}/arguments", headers={"HAI-Act-As": "user:ann"}).json()
    assert found["tool"] == "files.delete_files"
    assert found["parameters"]["properties"]["count"]["type"] == "integer"
    assert set(found["parameters"]["properties"]) == {"folder", "count"}


def test_a_question_without_a_call_has_no_arguments(http: Checked) -> None:
    found = http.get(f"/v1/pendings/{ask(http, FORM)}/arguments").json()
    assert found == {"tool": None, "description": None, "parameters": None}


def test_the_arguments_of_a_question_that_is_not_there_are_not_told(http: Checked) -> None:
    assert code(http.get("/v1/pendings/p-nobody/arguments")) == (404, "pending_unknown")


def test_a_client_reads_the_arguments_of_a_question(http: Checked, server: ServerProcess) -> None:
    with Client(server.url) as client:
        found = client.pendings.arguments(ask(http, GATED))
    assert found.parameters is not None
    assert found.parameters["type"] == "object"
