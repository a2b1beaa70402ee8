"""Time travel over REST: marks, forks, reruns, skips, snapshots and differences of moments, replays."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import pytest

from tests.api.test_rest import Checked, http, start, wait_for_end
from tests.support.hai_client import unique
from tests.support.server import YAML, expect
from tests.support.waiting import until

__all__ = ["http"]

TRIP = """
hai: flow/v1
name: {name}
version: {version}
input: {{type: object, properties: {{n: {{type: integer, default: 1}}}}}}
state: {{seen: {{type: array, default: []}}}}
tools: {{e: {{python: tests.support.effects, effect: write}}}}
steps:
  - id: a
    call: e.echo
    with: {{value: "${{{{ input.n }}}}"}}
    undo: {{call: e.echo, with: {{value: undone}}}}
  - set: {{seen: ["${{{{ steps.a.output }}}}"]}}
  - id: b
    call: e.echo
    with: {{value: "${{{{ input.n * {factor} }}}}"}}
    undo: {{call: e.echo, with: {{value: undone}}}}
  - id: sure
    ask: {{title: Sure?, from: anyone, form: {{type: object, properties: {{}}}}}}
  - id: last
    call: e.echo
    with: {{value: "${{{{ steps.b.output }}}}"}}
output: "${{{{ steps.last.output }}}}"
"""
BREAKS = """
hai: flow/v1
name: {name}
version: 1
tools: {{e: {{python: tests.support.effects, effect: write}}}}
steps:
  - {{id: broken, call: e.breaks, with: {{}}}}
  - {{id: last, call: e.echo, with: {{value: "${{{{ steps.broken.output }}}}"}}}}
output: "${{{{ steps.last.output }}}}"
"""


NAMES_A_FILE = """
hai: flow/v1
name: {name}
version: 1
input: {{type: object, properties: {{file: {{type: string}}}}}}
steps:
  - {{id: one, say: "${{{{ input.file }}}}"}}
  - {{id: sure, ask: {{title: Sure?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
"""


def published(http: httpx2.Client, text: str = TRIP, **more: Any) -> str:
    name = more.pop("name", None) or unique("trip").replace("-", "_")
    source = text.format(name=name, **{"version": 1, "factor": 10, **more})
    assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201
    return name


async def waiting(http: httpx2.Client, run_id: str) -> dict[str, Any]:
    await until(lambda: http.get(f"/v1/runs/{run_id}").json()["status"] == "waiting")
    found: dict[str, Any] = http.get(f"/v1/runs/{run_id}").json()
    return found


def marks(http: httpx2.Client, run_id: str) -> dict[str | None, dict[str, Any]]:
    return {mark["step"]: mark for mark in http.get(f"/v1/runs/{run_id}/marks").json()["items"]}


def snapshot(http: httpx2.Client, run_id: str, **given: Any) -> dict[str, Any]:
    return http.get(f"/v1/runs/{run_id}/snapshot", params=given).json()


def uploaded(http: httpx2.Client) -> str:
    """The id of a file of its own."""
    response = http.post("/v1/files", content=unique("file").encode(), headers={"Content-Type": "text/plain"})
    assert response.status_code == 201, response.text
    id: str = response.json()["id"]
    return id


def answer(http: httpx2.Client, run_id: str) -> dict[str, Any]:
    (pending,) = [p for p in snapshot(http, run_id)["pendings"] if p["status"] == "open"]
    assert http.post(f"/v1/pendings/{pending['id']}/decide", json={"values": {}}).status_code == 200
    return wait_for_end(http, run_id)


async def test_a_run_is_forked_in_front_of_a_step_with_another_input(http: Checked) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    found = marks(http, run["id"])
    assert [step for step, mark in found.items() if mark["forkable"]] == ["a", "set#1", "b", "sure", None]
    body = {"step": "b", "input": {"n": 4}, "reason": "a better number"}
    told = expect(http.post(f"/v1/runs/{run['id']}/fork", json={**body, "dry_run": True}), 200).json()
    assert (told["at"], told["begins"]) == (found["b"]["seq"], ["b"])
    assert (told["stops"]["run_id"], told["stops"]["undoes"]) == (run["id"], ["b"])
    assert http.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting", "a rehearsal has stopped it"
    forked = expect(http.post(f"/v1/runs/{run['id']}/fork", json=body, headers={"Idempotency-Key": "once"}), 201)
    fork = await waiting(http, forked.json()["id"])
    assert (fork["thread_id"], fork["branch_of"], fork["input"]) == (run["thread_id"], run["id"], {"n": 4})
    assert http.get(f"/v1/runs/{run['id']}").json()["status"] == "stopped"
    again = http.post(f"/v1/runs/{run['id']}/fork", json=body, headers={"Idempotency-Key": "once"})
    assert (again.status_code, again.json()["id"]) == (201, fork["id"])
    assert again.json()["status"] == "waiting", "the same request again has stopped its own fork"
    steps, state = snapshot(http, fork["id"])["steps"], snapshot(http, fork["id"])["state"]
    assert (steps["a"]["output"], steps["b"]["output"], state) == (1, 40, {"seen": [1]})
    assert answer(http, fork["id"])["output"] == 40
    old = snapshot(http, run["id"])["steps"]
    assert (old["a"]["status"], old["b"]["status"]) == ("finished", "undone")


async def test_a_fork_has_other_variables_or_another_version(http: Checked) -> None:
    name = published(http)
    published(http, name=name, version=2, factor=7)
    run = await waiting(http, start(http, name)["id"])
    body = {"step": "b", "state": {"seen": [9]}, "version": "2"}
    fork = http.post(f"/v1/runs/{run['id']}/fork", json=body).json()
    fork = await waiting(http, fork["id"])
    shown = snapshot(http, fork["id"])
    assert (fork["version"]["version"], shown["state"], shown["steps"]["b"]["output"]) == (2, {"seen": [9]}, 7)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "request.invalid"),
        ({"at": 3, "step": "b"}, 422, "request.invalid"),
        ({"at": 100_000}, 422, "request.invalid"),
        ({"at": 1}, 409, "fork_unsettled"),
        ({"step": "nothing"}, 422, "step.not_begun"),
        ({"step": "last"}, 422, "step.not_begun"),
        ({"step": "b", "input": {"n": "x"}}, 422, "input.invalid"),
        ({"step": "b", "state": {"n": 1}}, 422, "state.invalid"),
        ({"step": "b", "version": "77"}, 404, "workflow_unknown"),
        ({"step": "b", "map": {"a": "b"}}, 422, "request.invalid"),
    ],
)
async def test_what_cannot_be_forked_is_refused_before_anything_is_stopped(
    http: Checked, body: dict[str, Any], status: int, code: str
) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    refused = http.post(f"/v1/runs/{run['id']}/fork", json=body)
    assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
    if code == "fork_unsettled":
        assert refused.json()["winner"]["nearest"] == [marks(http, run["id"])["a"]["seq"]]
    if code == "step.not_begun":
        assert "a" in [finding["message"] for finding in refused.json()["findings"]]
    assert http.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting"


async def test_a_run_that_has_ended_is_forked_and_nothing_is_stopped(http: Checked) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    answer(http, run["id"])
    told = http.post(f"/v1/runs/{run['id']}/fork", json={"step": "last", "dry_run": True}).json()
    assert told["stops"] is None
    fork = http.post(f"/v1/runs/{run['id']}/fork", json={"step": "last"}).json()
    assert wait_for_end(http, fork["id"])["output"] == 10
    assert http.get(f"/v1/runs/{run['id']}").json()["status"] == "finished"


async def test_a_failed_step_is_skipped_with_an_output(http: Checked) -> None:
    run = wait_for_end(http, start(http, published(http, BREAKS))["id"])
    assert run["status"] == "failed"
    wrong = http.post(f"/v1/runs/{run['id']}/skip", json={"step": "last"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "skip.not_there")
    body = {"step": "broken", "output": {"by": "hand"}, "reason": "it is down"}
    assert http.post(f"/v1/runs/{run['id']}/skip", json=body).status_code == 200
    assert wait_for_end(http, run["id"])["output"] == {"by": "hand"}
    assert snapshot(http, run["id"])["steps"]["broken"] == {
        "status": "skipped", "attempt": 1, "output": {"by": "hand"}
    }  # fmt: skip


async def test_a_snapshot_is_taken_at_a_time_and_at_the_end_of_a_step(http: Checked) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    by_step = snapshot(http, run["id"], at="step:a")
    assert (by_step["steps"]["a"]["status"], "b" in by_step["steps"]) == ("finished", False)
    assert snapshot(http, run["id"], at=by_step["seq"]) == by_step
    listed = http.get(f"/v1/runs/{run['id']}/events", params={"limit": 1000}).json()["items"]
    for event in listed:
        expected = max(other["seq"] for other in listed if other["at"] <= event["at"])
        assert snapshot(http, run["id"], at=event["at"])["seq"] == expected


@pytest.mark.parametrize(
    "at", ["-1", "9999", "1" * 30, "yesterday", "2026-01-01T00:00:00", "1999-01-01T00:00:00Z", "2999-01-01T00:00:00Z"]
)
async def test_a_moment_that_is_none_is_refused_with_what_there_is(http: Checked, at: str) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    for path in (f"snapshot?at={at}", f"diff?from={at}", f"replay?from={at}"):
        refused = http.get(f"/v1/runs/{run['id']}/{path}")
        assert (refused.status_code, refused.json()["code"]) == (422, "request.invalid"), path
    refused = http.get(f"/v1/runs/{run['id']}/snapshot", params={"at": "step:last"})
    assert (refused.status_code, refused.json()["code"]) == (422, "step.not_begun")
    assert "a, b, set#1, sure" in refused.json()["detail"]


async def test_the_difference_of_two_moments(http: Checked) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    found = http.get(f"/v1/runs/{run['id']}/diff", params={"from": "step:a"}).json()
    assert found["state"] == [{"op": "add", "path": "/seen/-", "value": 1}]
    assert found["steps"]["b"] == {"from": None, "to": {"status": "finished", "attempt": 1, "output": 10}}
    assert "a" not in found["steps"]
    (question,) = found["pendings"].values()
    assert (question["from"], question["to"]["status"]) == (None, "open")
    nothing = http.get(f"/v1/runs/{run['id']}/diff", params={"from": run["seq"], "to": run["seq"]}).json()
    assert (nothing["state"], nothing["steps"], nothing["pendings"]) == ([], {}, {})


@pytest.mark.parametrize("dialect", [None, "hai", "agui"])
async def test_a_replay_tells_what_has_happened_and_performs_nothing(http: Checked, dialect: str | None) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    given = {"speed": 1000, "gap": 0.01, **({} if dialect is None else {"dialect": dialect})}
    began = time.monotonic()
    with httpx2.stream("GET", f"{http.base_url}/v1/runs/{run['id']}/replay", params=given, timeout=30) as response:
        assert response.status_code == 200
        told = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    assert time.monotonic() - began < 30
    types = [event["type"] for event in told]
    if dialect is None:
        listed = http.get(f"/v1/runs/{run['id']}/events", params={"limit": 1000}).json()["items"]
        assert told == listed
    else:
        assert types[0] == "RUN_STARTED"
        assert types[-1] == "RUN_FINISHED"
    assert http.get(f"/v1/runs/{run['id']}").json()["seq"] == run["seq"]


async def test_two_readers_of_a_range_get_the_same_bytes(http: Checked) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    half = run["seq"] // 2
    for first, last in ((0, run["seq"]), (half, run["seq"]), (1, half)):
        given = {"speed": 100_000, "gap": 0, "from": first, "to": last}
        bodies = {httpx2.get(f"{http.base_url}/v1/runs/{run['id']}/replay", params=given).content for _ in range(3)}
        assert len(bodies) == 1
        ids = [int(line[4:]) for line in bodies.pop().decode().splitlines() if line.startswith("id: ")]
        assert ids == list(range(first + 1, last + 1))


async def test_a_fork_of_a_run_that_waits_asks_the_same_question_as_its_own(http: Checked) -> None:
    run = await waiting(http, start(http, published(http))["id"])
    waited = marks(http, run["id"])[None]
    (asked,) = snapshot(http, run["id"])["pendings"]
    fork = http.post(f"/v1/runs/{run['id']}/fork", json={"at": waited["seq"], "input": {"n": 3}}).json()
    fork = await waiting(http, fork["id"])
    (again,) = snapshot(http, fork["id"])["pendings"]
    assert (again["title"], again["id"] != asked["id"]) == (asked["title"], True)
    left = http.post(f"/v1/pendings/{asked['id']}/decide", json={"values": {}})
    assert left.status_code == 409, "the question of the run that was left is void"
    assert answer(http, fork["id"])["output"] == 10, "what was done before is not done again with another input"


async def test_forks_and_skips_are_in_the_audit(http: Checked) -> None:
    run = wait_for_end(http, start(http, published(http, BREAKS))["id"])
    body = {"step": "broken", "output": 1, "reason": "it is down"}
    http.post(f"/v1/runs/{run['id']}/skip", json=body)
    wait_for_end(http, run["id"])
    fork = http.post(f"/v1/runs/{run['id']}/fork", json={"step": "last", "reason": "again"}).json()
    wait_for_end(http, fork["id"])
    records = http.get("/v1/audit", params={"limit": 200}).json()["items"]
    (skipped,) = [each for each in records if each["act"] == "run.step_skipped" and each["run_id"] == run["id"]]
    assert {name: skipped["details"][name] for name in body} == body
    (forked,) = [each for each in records if each["act"] == "run.forked" and each["run_id"] == fork["id"]]
    assert forked["details"]["of"] == run["id"]


async def test_a_file_named_by_a_forks_edit_is_checked_and_becomes_the_forks(http: Checked) -> None:
    name = published(http, NAMES_A_FILE)
    first, second = uploaded(http), uploaded(http)
    run = await waiting(http, start(http, name, input={"file": first})["id"])
    unknown = http.post(f"/v1/runs/{run['id']}/fork", json={"step": "one", "input": {"file": "file_" + "0" * 64}})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "file_unknown")
    assert http.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting"
    fork = http.post(f"/v1/runs/{run['id']}/fork", json={"step": "one", "input": {"file": second}}).json()
    await waiting(http, fork["id"])
    bob = {"HAI-Act-As": "user:bob"}
    assert httpx2.get(f"{http.base_url}/v1/files/{second}", headers=bob, timeout=20).status_code == 200


async def test_a_file_that_the_output_of_a_skip_names_is_asked_for(http: Checked) -> None:
    run = start(http, published(http, BREAKS))
    assert wait_for_end(http, run["id"])["status"] == "failed"
    skip = {"step": "broken", "output": {"file": "file_" + "0" * 64}}
    refused = http.post(f"/v1/runs/{run['id']}/skip", json=skip)
    assert (refused.status_code, refused.json()["code"]) == (404, "file_unknown")
    assert http.get(f"/v1/runs/{run['id']}").json()["status"] == "failed"
    file = uploaded(http)
    assert http.post(f"/v1/runs/{run['id']}/skip", json={**skip, "output": {"file": file}}).status_code == 200
