"""Versions over REST: published once, compared, and runs that go on with another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.test_rest import Checked, code, start, wait_for_end, wait_for_pendings
from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess, expect

FLOW = """
hai: flow/v1
name: {name}
version: {version}
steps:
  - {{id: sure, ask: {{title: {title}, form: {{properties: {{ok: {{type: boolean}}}}}}}}}}
output: from version {version}
"""


@pytest.fixture
def http(server: ServerProcess) -> Iterator[Checked]:
    with Checked(server.url) as client:
        yield client


def publish(http: Checked, name: str, version: int, title: str = "Sure?", **query: Any) -> dict[str, Any]:
    source = FLOW.format(name=name, version=version, title=title).encode()
    return expect(http.post("/v1/workflows", content=source, params=query, headers=YAML), 201).json()


def migrate(http: Checked, name: str, old: str, new: str, **body: Any) -> list[tuple[str, bool, bool]]:
    response = expect(http.post(f"/v1/workflows/{name}/migrate", json={"from": old, "to": new, **body}), 200)
    return [(run["id"], run["movable"], run["moved"]) for run in response.json()["runs"]]


def test_any_unused_number_may_be_published_and_the_highest_is_the_latest(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 5)
    publish(http, name, 3)
    assert start(http, name)["version"]["version"] == 5
    assert start(http, f"{name}@3")["version"]["version"] == 3
    other = FLOW.format(name=name, version=3, title="Other?").encode()
    assert code(http.post("/v1/workflows", content=other, headers=YAML)) == (409, "workflow_exists")


def test_a_run_keeps_the_version_that_was_the_latest_when_it_started(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    run = start(http, name)
    publish(http, name, 2)
    (pending,) = wait_for_pendings(http, run["id"])
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"values": {"ok": True}})
    assert wait_for_end(http, run["id"])["output"] == "from version 1"


def test_what_a_version_changes(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    publish(http, name, 2, "Really?")
    found = http.get(f"/v1/workflows/{name}/diff", params={"from": "1", "to": "2"}).json()
    assert found["document"] == [{"key": "output", "from": "from version 1", "to": "from version 2"}]
    assert found["steps"] == [
        {
            "kind": "changed",
            "path": "sure",
            "verb": "ask",
            "parts": [{"key": "title", "from": "Sure?", "to": "Really?"}],
        }
    ]
    assert code(http.get(f"/v1/workflows/{name}/diff", params={"from": "1", "to": "3"})) == (404, "workflow_unknown")
    assert code(http.get(f"/v1/workflows/{name}/diff", params={"from": "x", "to": "2"})) == (422, "request.invalid")


def test_runs_move_to_another_version_after_a_dry_run_that_moves_nothing(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    publish(http, name, 2)
    first, second = start(http, name + "@1"), start(http, name + "@1")
    start(http, name + "@2")
    pendings = [wait_for_pendings(http, run["id"])[0] for run in (first, second)]
    ids = [second["id"], first["id"]]
    assert migrate(http, name, "1", "2", dry_run=True) == [(id, True, False) for id in ids]
    assert http.get(f"/v1/runs/{first['id']}").json()["version"]["version"] == 1
    assert migrate(http, name, "1", "2", runs=[first["id"]]) == [(first["id"], True, True)]
    assert migrate(http, name, "1", "2", runs=[first["id"]]) == [(first["id"], True, True)], "already so"
    assert migrate(http, name, "1", "2") == [(second["id"], True, True)]
    for run, pending in zip((first, second), pendings, strict=True):
        assert http.get(f"/v1/runs/{run['id']}").json()["version"]["version"] == 2
        http.post(f"/v1/pendings/{pending['id']}/decide", json={"values": {"ok": True}})
        assert wait_for_end(http, run["id"])["output"] == "from version 2"


def test_a_run_that_can_not_move_is_listed_with_every_reason(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    publish(http, name, 2, "Really?")
    run = start(http, name + "@1")
    wait_for_pendings(http, run["id"])
    for dry_run in (True, False):
        body = {"from": "1", "to": "2", "dry_run": dry_run}
        (listed,) = http.post(f"/v1/workflows/{name}/migrate", json=body).json()["runs"]
        assert not listed["moved"]
        assert [(each["code"], each["path"]) for each in listed["obstacles"]] == [("pending.content", "sure")]
    assert http.get(f"/v1/runs/{run['id']}").json()["version"]["version"] == 1


def test_a_dev_copy_may_be_moved_to_and_is_named_with_its_digest(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    copy = publish(http, name, 2, dev="true")
    run = start(http, name + "@1")
    wait_for_pendings(http, run["id"])
    assert migrate(http, name, "1", f"2+{copy['sha256'][:8]}") == [(run["id"], True, True)]
    assert http.get(f"/v1/runs/{run['id']}").json()["version"]["dev"] is True


def test_a_run_of_another_version_or_an_unknown_one_is_refused(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    publish(http, name, 2)
    publish(http, name, 3)
    run = start(http, name + "@3")
    path, body = f"/v1/workflows/{name}/migrate", {"from": "1", "to": "2"}
    assert code(http.post(path, json={**body, "runs": [run["id"]]})) == (422, "run.version")
    assert code(http.post(path, json={**body, "runs": ["nope"]})) == (404, "run_unknown")
    assert code(http.post(path, json={**body, "to": "9"})) == (404, "workflow_unknown")


def test_what_the_server_cannot_perform_is_told_in_order_each_at_its_step(http: Checked) -> None:
    source = """
hai: flow/v1
name: impossible
version: 1
tools: {files: {python: hai_flow.examples}}
steps:
  - id: a
    call: files.deploy
    with: {realease: v1}
  - {id: b, run: nobody_knows}
  - try:
      - call: files.no_such_function
"""
    refused = http.post("/v1/workflows", content=source, headers=YAML)
    assert code(refused) == (422, "definition.invalid")
    found = [(each["line"], each["column"], each["message"]) for each in refused.json()["findings"]]
    assert found == [
        (
            7,
            5,
            "step a: the call does not fit the function: missing argument release, unknown argument realease; it takes "
            "release",
        ),
        (10, 5, "step b: there is no workflow 'nobody_knows'"),
        (
            12,
            9,
            "step try#1/call#1: expected a function 'no_such_function' registered with @tool in hai_flow.examples; it "
            "registers answer, book_expense, delete_files, deploy, deploy_canary, find_experiences, find_flights, "
            "find_hotels, get_weather, health, improve_recipe, pay, promote, refund, report_weather, rollback, "
            "send, to_eur, write_story",
        ),
    ]


def test_recorded_runs_are_decided_again_under_a_text_that_is_not_stored(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    answered, waiting = start(http, name), start(http, name)
    (pending,) = wait_for_pendings(http, answered["id"])
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"values": {"ok": True}})
    wait_for_end(http, answered["id"])
    wait_for_pendings(http, waiting["id"])

    def backtest(title: str, **query: Any) -> dict[str, Any]:
        source = FLOW.format(name=name, version=2, title=title).encode().replace(b"version 2", b"version 1")
        answer = expect(http.post(f"/v1/workflows/{name}/backtest", content=source, params=query, headers=YAML), 200)
        return answer.json()

    same = backtest("Sure?")
    assert (same["runs"], same["verdicts"]["same"], same["waiting"], same["stuck"]) == (2, 2, 1, {})
    assert (same["complete"], same["examples"]) == (True, [])
    other = backtest("Really?", since="1h", examples=1)
    assert (other["verdicts"]["same"], other["stuck"], len(other["examples"])) == (0, {"pending.content": 1}, 1)
    assert {each["version"] for each in http.get(f"/v1/workflows/{name}").json()["versions"]} == {1}


def test_a_migrated_run_and_its_fork_are_decided_again_from_there(http: Checked) -> None:
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    run = start(http, name)
    wait_for_pendings(http, run["id"])
    publish(http, name, 2)
    assert migrate(http, name, "1", "2") == [(run["id"], True, True)]
    fork = http.post(f"/v1/runs/{run['id']}/fork", json={"step": "sure"}).json()
    wait_for_pendings(http, fork["id"])
    for title, kind in (("Sure?", "same"), ("Really?", None)):
        source = FLOW.format(name=name, version=2, title=title).encode()
        result = http.post(f"/v1/workflows/{name}/backtest", content=source, headers=YAML).json()
        assert (result["runs"], result["verdicts"]["same"]) == (2, 2 if kind else 0), result
        assert bool(result["unreadable"]) == (kind is None), "its question was shown otherwise when it was moved"


def test_a_backtest_of_nothing_or_of_no_workflow_is_refused(http: Checked) -> None:
    source = FLOW.format(name="a", version=1, title="Sure?").encode()
    assert code(http.post("/v1/workflows/nobody_knows/backtest", content=source, headers=YAML)) == (
        404,
        "workflow_unknown",
    )
    name = unique("flow").replace("-", "_")
    publish(http, name, 1)
    path = f"/v1/workflows/{name}/backtest"
    assert http.post(path, content=b"steps: []", headers=YAML).status_code == 422
    assert http.post(path, content=source, params={"since": "soon"}, headers=YAML).status_code == 422
