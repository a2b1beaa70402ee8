"""REST: workflows, runs and pendings, over real sockets. Every answer has the shape that OpenAPI says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from fastapi.openapi.models import OpenAPI

from hai_flow.store.postgres import migrations
from tests.support.answers import Checked
from tests.support.hai_client import parse, unique
from tests.support.postgres import execute, run_apart
from tests.support.server import YAML, ServerProcess, expect, serving


@pytest.fixture
def http(server: ServerProcess) -> Iterator[Checked]:
    with Checked(server.url) as client:
        yield client


def start(http: httpx2.Client, workflow: str = "cleanup", **body: Any) -> dict[str, Any]:
    return expect(http.post("/v1/runs", json={"workflow": workflow, **body}), 201).json()


def wait_for_end(http: httpx2.Client, run_id: str) -> dict[str, Any]:
    """Follow the run until it has ended."""
    http.get(f"/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"})
    return http.get(f"/v1/runs/{run_id}").json()


def wait_for_pendings(http: httpx2.Client, run_id: str, count: int = 1) -> list[dict[str, Any]]:
    """Follow the run until so many questions are open."""
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"}) as response:
        data = b""
        pieces = response.iter_bytes()
        while data.count(b"event: pending_opened\n") < count or not data.endswith(b"\n\n"):
            data += next(pieces)
    return [event.data for event in parse(data) if event.name == "pending_opened"]


def code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def listed(http: httpx2.Client, path: str, limit: int = 200) -> list[Any]:
    """The items of all pages of a list."""
    page = http.get(path, params={"limit": limit}).json()
    found: list[Any] = page["items"]
    while page["next_cursor"] is not None:
        page = http.get(path, params={"limit": limit, "cursor": page["next_cursor"]}).json()
        assert 1 <= len(page["items"]) <= limit
        found += page["items"]
    return found


# --- workflows ----------------------------------------------------------------------------------------------------

FAILING = """
hai: flow/v1
name: {name}
version: 1
steps:
  - id: broken
    fail: {{code: mine.broken, message: it broke}}
"""


def test_a_workflow_is_published_once_and_never_changes(http: Checked) -> None:
    source = FAILING.format(name="published").encode()
    first = expect(http.post("/v1/workflows", content=source, headers=YAML), 201)
    assert http.post("/v1/workflows", content=source, headers=YAML).json() == first.json()
    changed = http.post("/v1/workflows", content=source + b"# changed\n", headers=YAML)
    assert code(changed) == (409, "workflow_exists")
    assert changed.json()["winner"] == {"name": "published", "version": 1}
    shown = http.get("/v1/workflows/published@1").json()
    assert shown["source"].encode() == http.get("/v1/workflows/published/source").content == source
    assert "published" in [each["name"] for each in listed(http, "/v1/workflows")]
    copy = http.post("/v1/workflows", content=source + b"# a copy\n", params={"dev": "true"}, headers=YAML)
    assert copy.json()["dev"] is True
    assert http.get(f"/v1/workflows/published@1+{copy.json()['sha256'][:8]}").json()["dev"] is True


def test_workflows_are_listed_in_pages_by_name(http: Checked) -> None:
    for name in ("page_b", "page_a", "page_c"):
        assert http.post("/v1/workflows", content=FAILING.format(name=name).encode(), headers=YAML).is_success
    names = [each["name"] for each in listed(http, "/v1/workflows", limit=2)]
    assert names == sorted(set(names))
    assert {"page_a", "page_b", "page_c"} <= set(names)
    assert http.get("/v1/workflows", params={"limit": 2}).json()["items"][1]["name"] == names[1]
    assert code(http.get("/v1/workflows", params={"cursor": "nonsense"})) == (400, "cursor.invalid")


@pytest.mark.parametrize(
    "source", [b"", b"\xff\xfe", b"hai: flow/v1\n", b"a: 1\na: 2", b"\x00", b"- " * 5000, b"a: &a [*a]"]
)
def test_a_wrong_workflow_is_refused_with_findings(http: Checked, source: bytes) -> None:
    refused = http.post("/v1/workflows", content=source, headers=YAML)
    assert code(refused) == (422, "definition.invalid")
    assert refused.json()["findings"]
    checked = http.post("/v1/workflows/validate", content=source, headers=YAML).json()
    assert checked["valid"] is False
    assert checked["findings"] == refused.json()["findings"]


def test_a_right_workflow_is_valid_and_validating_stores_nothing(http: Checked) -> None:
    source = FAILING.format(name="unseen")
    assert http.post("/v1/workflows/validate", content=source, headers=YAML).json()["valid"] is True
    assert code(http.get("/v1/workflows/unseen")) == (404, "workflow_unknown")


# --- starting -----------------------------------------------------------------------------------------------------


def test_a_run_starts_and_is_found_where_location_says(http: Checked) -> None:
    response = http.post("/v1/runs", json={"workflow": "weather", "input": {"city": "Berlin"}})
    run = wait_for_end(http, response.json()["id"])
    assert response.headers["location"] == f"/v1/runs/{run['id']}"
    assert (run["status"], run["thread_id"], run["input"]) == ("finished", run["id"], {"city": "Berlin"})
    assert run["output"] == {"weather": "rain, 12°C"}


@pytest.mark.parametrize(
    "rest",
    [
        "title: Ours\nsteps: [{wait_for: {event: go}}]",
        "queue: default\nsummary: '${{ input.n }}'\nsteps: [{wait_for: {event: go}}]",
        "steps: [{id: when, ask: {title: When?, from: anyone, form: {type: object, properties: {n: {type: string}}}}}]",
        "concurrency: {key: one, limit: 1}\nsteps: [{wait_for: {event: go}}]",
        "steps: [{return: 1}]",
    ],
)
def test_a_start_is_answered_as_the_run_reads(http: Checked, rest: str) -> None:
    """Whether the answer is made of what was committed, or of the run's row."""
    name, declared = unique("begun"), "input: {type: object, properties: {n: {type: integer, default: 7}}}"
    source = f"hai: flow/v1\nname: {name}\nversion: 1\n{declared}\n{rest}\n"
    assert http.post("/v1/workflows", content=source.encode(), headers=YAML).is_success
    for thread in ({}, {"thread_id": unique("thread")}):
        started = start(http, name, **thread)
        run = http.get(f"/v1/runs/{started['id']}").json()
        assert {key: run[key] for key in started} == started


def test_an_answer_has_every_key_of_a_value(http: Checked) -> None:
    name, value = unique("echo"), {"_sales": 1, "n": {"_sa": [None]}}  # FastAPI leaves out what begins with `_sa`
    source = f"hai: flow/v1\nname: {name}\nversion: 1\nsteps: [{{return: {json.dumps(value)}}}]\n"
    assert http.post("/v1/workflows", content=source.encode(), headers=YAML).is_success
    assert wait_for_end(http, start(http, name)["id"])["output"] == value


def test_an_idempotency_key_starts_one_run(http: Checked) -> None:
    headers = {"Idempotency-Key": unique("key")}
    body = {"workflow": "cleanup", "input": {"count": 3}}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: http.post("/v1/runs", json=body, headers=headers), range(4)))
    assert sorted(each.status_code for each in answers) == [200, 200, 200, 201]
    assert len({each.json()["id"] for each in answers}) == 1
    other = http.post("/v1/runs", json={**body, "input": {"count": 4}}, headers=headers)
    assert code(other) == (409, "command_id_reused")


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "é"])
def test_a_strange_idempotency_key_is_refused(http: Checked, key: str) -> None:
    refused = http.post("/v1/runs", json={"workflow": "chat"}, headers={b"Idempotency-Key": key.encode("latin-1")})
    assert code(refused) == (422, "idempotency_key.invalid")


def test_a_busy_thread_refuses_another_run_and_names_the_one(http: Checked) -> None:
    thread = unique("thread")
    run = start(http, thread_id=thread)
    refused = http.post("/v1/runs", json={"workflow": "cleanup", "thread_id": thread})
    assert code(refused) == (409, "thread_busy")
    assert refused.json()["winner"]["run_id"] == run["id"]


def test_a_wrong_input_starts_nothing_and_lists_what_is_wrong(http: Checked) -> None:
    thread = unique("thread")
    body = {"workflow": "cleanup", "input": {"count": 0, "folder": 1}, "thread_id": thread}
    refused = http.post("/v1/runs", json=body)
    assert code(refused) == (422, "input.invalid")
    assert len(refused.json()["findings"]) == 2
    assert http.get("/v1/runs", params={"thread_id": thread}).json()["items"] == []


# --- lists --------------------------------------------------------------------------------------------------------


def test_a_lists_items_are_what_get_shows(http: Checked) -> None:
    run = wait_for_end(http, start(http, "weather", thread_id=unique("thread"))["id"])
    items = http.get("/v1/runs", params={"thread_id": run["thread_id"]}).json()["items"]
    assert items == [run]


def test_pages_have_no_gap_and_nothing_twice_while_runs_are_started(http: Checked) -> None:
    before = [start(http, "search_files")["id"] for _ in range(5)]
    query = {"limit": "2", "workflow": "search_files", "status": ["running", "waiting"]}
    seen: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not seen or page["next_cursor"]:
        cursor = {} if not seen else {"cursor": page["next_cursor"]}
        page = http.get("/v1/runs", params={**query, **cursor}).json()
        seen += [run["id"] for run in page["items"]]
        start(http, "search_files")
    assert len(set(seen)) == len(seen)
    assert set(before) <= set(seen)
    assert seen == sorted(seen, reverse=True)
    assert http.get("/v1/runs", params={"workflow": "nope"}).json() == {"items": [], "next_cursor": None, "missing": []}


@pytest.mark.costly
def test_open_pendings_are_listed_in_pages(http: Checked) -> None:
    run = start(http, "release")
    opened = {each["id"] for each in wait_for_pendings(http, run["id"], 2)}
    first = http.get("/v1/pendings", params={"limit": 1}).json()
    seen = {first["items"][0]["id"]}
    page = first
    while page["next_cursor"]:
        page = http.get("/v1/pendings", params={"limit": 1, "cursor": page["next_cursor"]}).json()
        assert page["items"][0]["id"] not in seen
        seen.add(page["items"][0]["id"])
    assert opened <= seen


# --- control ------------------------------------------------------------------------------------------------------


def test_a_run_is_paused_resumed_stopped_and_then_refuses_the_rest(http: Checked) -> None:
    run = start(http)
    wait_for_pendings(http, run["id"])

    def ask(verb: str, **body: Any) -> httpx2.Response:
        return (
            http.post(f"/v1/runs/{run['id']}/{verb}", json=body) if body else http.post(f"/v1/runs/{run['id']}/{verb}")
        )

    assert [ask("pause", reason="lunch").json()["status"] for _ in range(2)] == ["paused", "paused"]
    assert [ask("resume").json()["status"] for _ in range(2)] == ["waiting", "waiting"]
    assert ask("retry").json()["status"] == "waiting"
    stopped = ask("stop", reason="enough").json()
    assert (stopped["status"], stopped["in_flight"]) == ("stopped", 0)
    assert ask("stop").json()["status"] == ask("terminate").json()["status"] == "stopped"
    for verb in ("pause", "resume", "retry"):
        refused = ask(verb)
        assert code(refused) == (409, "run_ended")
        assert refused.json()["winner"]["status"] == "stopped"


def test_a_paused_run_says_who_paused_it_when_and_why(http: Checked) -> None:
    run = start(http)
    (asked,) = wait_for_pendings(http, run["id"])
    http.post(f"/v1/runs/{run['id']}/pause", json={"reason": "an old reason"})
    http.post(f"/v1/runs/{run['id']}/resume")
    http.post(f"/v1/runs/{run['id']}/pause", json={"reason": "the bank is closed"})
    # An answer that looks like the event, in a commit behind it.
    answer = {"result": {"type": "run_paused"}}
    assert http.post(f"/v1/pendings/{asked['id']}/decide", json=answer).status_code == 200
    paused = http.get(f"/v1/runs/{run['id']}").json()["paused"]
    assert (paused["by"], paused["reason"]) == ("user:local", "the bank is closed")
    events = http.get(f"/v1/runs/{run['id']}/events").json()["items"]
    assert paused["at"] == [each["at"] for each in events if each["type"] == "run_paused"][-1]
    http.post(f"/v1/runs/{run['id']}/resume")
    assert "paused" not in http.get(f"/v1/runs/{run['id']}").json()


SEATED = """
hai: flow/v1
name: seated
version: 1
input: {type: object, properties: {desk: {type: string}}}
concurrency: {key: "desk-${{ input.desk }}"}
steps: [{id: ok, approve: {title: Done?, from: anyone}}]
"""


def test_a_queued_run_says_what_it_waits_for_and_who_has_it(http: Checked) -> None:
    assert http.post("/v1/workflows", content=SEATED, headers=YAML).status_code == 201
    first, second = (start(http, "seated", input={"desk": "7"})["id"] for _ in range(2))
    wait_for_pendings(http, first)
    queued = http.get(f"/v1/runs/{second}").json()
    assert queued["status"] == "queued"
    assert queued["queued_for"] == {"key": "desk-7", "limit": 1, "holders": [{"run_id": first, "status": "waiting"}]}
    assert "queued_for" not in http.get(f"/v1/runs/{first}").json()
    http.post(f"/v1/runs/{first}/terminate")
    wait_for_pendings(http, second)
    assert "queued_for" not in http.get(f"/v1/runs/{second}").json()


def test_a_finished_run_refuses_all_control(http: Checked) -> None:
    run = wait_for_end(http, start(http, "weather")["id"])
    for verb in ("pause", "resume", "stop", "terminate", "retry"):
        refused = http.post(f"/v1/runs/{run['id']}/{verb}")
        assert code(refused) == (409, "run_ended")
        assert refused.json()["winner"] == {"status": "finished", "seq": run["seq"]}


def test_a_run_is_terminated_at_once(http: Checked) -> None:
    run = start(http, "chat")
    assert http.post(f"/v1/runs/{run['id']}/terminate").json()["status"] == "stopped"


def test_a_failed_run_is_tried_again(http: Checked) -> None:
    assert http.post("/v1/workflows", content=FAILING.format(name="failing"), headers=YAML).status_code == 201
    run = wait_for_end(http, start(http, "failing")["id"])
    assert (run["status"], run["error"]["code"], run["error"]["message"]) == ("failed", "mine.broken", "it broke")
    assert re.fullmatch(r"\d{4}-.*Z", run["error"]["at"])
    assert http.post(f"/v1/runs/{run['id']}/retry").status_code == 200
    again = http.get(f"/v1/runs/{run['id']}").json()
    assert again["seq"] > run["seq"]


def test_a_control_key_repeats_its_outcome_and_refuses_another_body(http: Checked) -> None:
    run = start(http)
    headers = {"Idempotency-Key": "k1"}
    url = f"/v1/runs/{run['id']}/pause"
    assert http.post(url, json={"reason": "a"}, headers=headers).status_code == 200
    assert http.post(f"/v1/runs/{run['id']}/resume").status_code == 200
    assert http.post(url, json={"reason": "a"}, headers=headers).json()["status"] != "paused"
    assert code(http.post(url, json={"reason": "b"}, headers=headers)) == (409, "command_id_reused")


# --- decisions ----------------------------------------------------------------------------------------------------

FORM = """
hai: flow/v1
name: form
version: 1
steps:
  - id: asked
    ask:
      title: How many?
      from: anyone
      form:
        type: object
        required: [count]
        properties: {count: {type: integer}}
  - id: decided
    approve: {title: Sure?, from: anyone, deadline: 1s}
"""


def test_all_kinds_of_questions_are_decided_once(http: Checked) -> None:
    expect(http.post("/v1/workflows", content=FORM, headers=YAML), 201)
    run = start(http, "form")
    asked = f"/v1/pendings/{wait_for_pendings(http, run['id'])[0]['id']}"
    assert code(http.post(f"{asked}/decide", json={"values": {"count": "x"}})) == (422, "answer.invalid")
    assert http.get(asked).json()["status"] == "open"
    given = {"values": {"count": 3}}
    assert [http.post(f"{asked}/decide", json=given).json()["already"] for _ in range(2)] == [False, True]
    conflict = http.post(f"{asked}/decide", json={"values": {"count": 4}})
    assert code(conflict) == (409, "pending_decided")
    assert conflict.json()["winner"]["id"] == asked.rpartition("/")[2]
    assert http.get(asked).json()["value"] == {"count": 3}
    late = f"/v1/pendings/{wait_for_pendings(http, run['id'], 2)[1]['id']}"
    wait_for_end(http, run["id"])
    expired = http.post(f"{late}/decide", json={"decision": "approve"})
    assert code(expired) == (410, "pending_expired")


def test_a_frontend_tools_result_or_error_comes_by_rest(http: Checked) -> None:
    for body, found in (({"result": ["a", "b"]}, ["a", "b"]), ({"error": "no disk"}, [])):
        run = start(http, "search_files")
        id = wait_for_pendings(http, run["id"])[0]["id"]
        assert code(http.post(f"/v1/pendings/{id}/decide", json={"decision": "approve"})) == (422, "answer.invalid")
        assert http.post(f"/v1/pendings/{id}/decide", json=body).status_code == 200
        assert wait_for_end(http, run["id"])["output"] == {"found": found}


def test_many_deciders_at_once_have_one_winner(http: Checked) -> None:
    run = start(http)
    id = wait_for_pendings(http, run["id"])[0]["id"]
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda n: http.post(f"/v1/pendings/{id}/decide", json={"result": f"answer {n}"}), range(4))
        )
    assert sorted(each.status_code for each in answers) == [200, 409, 409, 409]
    winner = next(each.json()["value"] for each in answers if each.status_code == 200)
    assert http.get(f"/v1/pendings/{id}").json()["value"] == winner


def test_unknown_things_are_404(http: Checked) -> None:
    nobody = "01900000-0000-7000-8000-000000000000"
    pending = "call_" + "a" * 26 + "_0123456789ab"
    for path in (nobody, "x", nobody.upper(), nobody + "0"):
        assert code(http.get(f"/v1/runs/{path}")) == (404, "run_unknown")
        assert code(http.get(f"/v1/runs/{path}/events")) == (404, "run_unknown")
        assert code(http.get(f"/v1/runs/{path}/snapshot")) == (404, "run_unknown")
        assert code(http.post(f"/v1/runs/{path}/stop")) == (404, "run_unknown")
    for id in (pending, "call_1", "x", "%00", "call_" + "a" * 26 + "_%00", "call_" + "é" * 26 + "_0"):
        assert code(http.get(f"/v1/pendings/{id}")) == (404, "pending_unknown")
        assert code(http.post(f"/v1/pendings/{id}/decide", json={"result": 1})) == (404, "pending_unknown")


# --- operations ---------------------------------------------------------------------------------------------------


def test_health_and_readiness_tell_the_truth(server: ServerProcess, http: Checked) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    ready = http.get("/readyz").json()
    assert (ready["status"], ready["worker"]) == ("ready", True)
    assert ready["workers"] >= 1
    assert ready["waiting"] is not None


def test_a_server_with_an_older_schema_is_not_ready(empty_database_url: str) -> None:
    run_apart(migrations.upgrade(empty_database_url))
    with serving(empty_database_url) as process, httpx2.Client(base_url=process.url) as client:
        run_apart(execute(empty_database_url, "DELETE FROM alembic_version"))
        assert code(client.get("/readyz")) == (503, "schema_behind")
        assert client.get("/healthz").status_code == 200


def test_the_openapi_document_is_whole(http: Checked) -> None:
    document = http.get("/openapi.json").json()
    OpenAPI.model_validate(document)
    assert document["openapi"].startswith("3.1")
    text = json.dumps(document)
    for reference in set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', text)):
        assert reference in document["components"]["schemas"]
    assert "HTTPValidationError" not in text
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    for path, methods in document["paths"].items():
        for each in methods.values():
            named = {parameter["name"] for parameter in each.get("parameters", ()) if parameter["in"] == "path"}
            assert named == set(re.findall(r"\{([^}]*)\}", path))
            assert each["description"]
            assert {"400", "403", "421", "422", "429", "500", "503"} <= each["responses"].keys()
            assert all("description" in response for response in each["responses"].values())
