"""The steps of a run with their times, over REST."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from hai_flow_client import Client, Invalid

from hai_flow.api.app import create_app
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.runs import logs
from hai_flow.store.runs.logs import LogRow
from tests.api.test_rest import Checked, http
from tests.support.hai_client import unique
from tests.support.server import YAML, expect
from tests.support.waiting import until

__all__ = ["http"]

SOURCE = """
hai: flow/v1
name: NAME
version: 1
tools:
  files: {python: hai_flow.examples, effect: write}
steps:
  - id: each
    for_each:
      items: "${{ [1, 2] }}"
      steps:
        - {id: note, set: {n: "${{ item }}"}}
  - id: never
    if: false
    say: Nothing.
  - id: delete
    title: Delete it
    call: files.delete_files
    with: {folder: tmp, count: 3}
    approval: {from: anyone, deadline: 1h}
  - id: broken
    fail: {code: mine.broken, message: it broke}
state:
  n: {type: integer, default: 0}
"""


def test_steps_have_their_attempts_and_the_times_that_they_waited(http: Checked, client: Client) -> None:
    name = unique("steps").replace("-", "_")
    expect(http.post("/v1/workflows", content=SOURCE.replace("NAME", name), headers=YAML), 201)
    run = client.runs.wait(client.runs.start(name))
    (pending,) = [each for each in client.pendings.list() if each.run_id == run.id]
    steps = {step.path: step for step in client.runs.steps(run)}
    assert {path: (step.verb, step.status) for path, step in steps.items()} == {
        "each": ("for_each", "finished"),
        "each[1]": ("iteration", "finished"),
        "each[1]/note": ("set", "finished"),
        "each[2]": ("iteration", "finished"),
        "each[2]/note": ("set", "finished"),
        "never": ("", "skipped"),
        "delete": ("call", "running"),
    }
    assert steps["each[2]/note"].plan_path == "each[]/note"
    (wait,) = steps["delete"].waits
    assert (wait.for_, wait.pending_id, wait.until) == ("people", pending.id, None)
    assert wait.due == pending.deadline
    waiting = client.runs.get(run).seq
    client.pendings.decide(pending, "approve")
    ended = client.runs.wait(run, after=waiting)
    steps = {step.path: step for step in client.runs.steps(run)}
    delete = steps["delete"]
    assert (delete.title, delete.status, delete.args) == ("Delete it", "finished", {"folder": "tmp", "count": 3})
    assert (delete.waits[0].until or wait.since) >= wait.since
    assert [(each.n, each.error) for each in delete.attempts] == [(1, None)]
    assert delete.attempts[0].started_at >= (delete.waits[0].until or wait.since)
    assert steps["broken"].error is not None
    assert (ended.status, steps["broken"].error.code) == ("failed", "mine.broken")
    assert [step.path for step in client.runs.steps(run, at=waiting)][-1] == "delete"
    with pytest.raises(Invalid, match=f"the run has {ended.seq} events so far"):
        list(client.runs.steps(run, at=ended.seq + 1))
    paged, after = [], 0
    while after is not None:
        page = http.get(f"/v1/runs/{run.id}/steps", params={"limit": 2, "after": after}).json()
        paged += [step["path"] for step in page["items"]]
        after = page["next_cursor"]
    assert paged == list(steps)
    newest = http.get(f"/v1/runs/{run.id}/steps", params={"newest": True}).json()["items"]
    assert {each["path"]: each["passages"] for each in newest} == {
        "each": {"finished": 1},
        "each[2]": {"finished": 2},
        "each[2]/note": {"finished": 2},
        "never": {"skipped": 1},
        "delete": {"finished": 1},
        "broken": {"failed": 1},
    }
    assert [each["first_seq"] for each in newest] == sorted(each["first_seq"] for each in newest)
    page = http.get(f"/v1/runs/{run.id}/steps", params={"newest": True, "limit": 4}).json()
    rest = http.get(f"/v1/runs/{run.id}/steps", params={"newest": True, "after": page["next_cursor"]}).json()
    assert page["items"] + rest["items"] == newest
    assert all("passages" not in each for each in http.get(f"/v1/runs/{run.id}/steps").json()["items"])


async def test_all_pages_of_steps_read_the_log_once(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(database_url, Settings(), performs=True)
    rows: list[LogRow] = []

    async def read_log(*wanted: Any) -> list[LogRow]:
        rows.extend(page := await read(*wanted))
        return page

    async with runtime.lifespan():
        await runtime.catalog.publish(LOCAL_TENANT, SOURCE.replace("NAME", "paged").encode())
        transport = httpx2.ASGITransport(app=create_app(Settings(), runtime))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            started = (await client.post("/v1/runs", json={"workflow": "paged"})).json()
            path = f"/v1/runs/{started['id']}"

            async def is_waiting() -> bool:
                return bool((await client.get(path)).json()["status"] == "waiting")

            await until(is_waiting)
            run = (await client.get(path)).json()
            read = logs.read_log
            monkeypatch.setattr(logs, "read_log", read_log)
            paged, after = [], "0"
            while after is not None:
                asked = {"at": run["seq"], "limit": 1, "after": after}
                page = (await client.get(f"{path}/steps", params=asked)).json()
                paged += page["items"]
                after = page["next_cursor"]
            assert len(paged) == 7
            assert len(rows) == len({row.last_seq for row in rows})
            assert rows[-1].last_seq == run["seq"]
            earlier = (await client.get(f"{path}/steps", params={"at": paged[-1]["first_seq"] - 1})).json()["items"]
            whole = (await client.get(f"{path}/steps")).json()["items"]
    assert whole == paged
    assert [step["path"] for step in earlier] == [step["path"] for step in paged[:-1]]


IGNORING = """
hai: flow/v1
name: NAME
version: 1
steps:
  - id: pay
    http: {get: "http://127.0.0.1:9/x"}
    continue_on_error: true
  - say: ${{ steps.pay.status }}
"""


def test_what_takes_a_failure_that_is_data_is_no_step_of_anybody(http: Checked, client: Client) -> None:
    name = unique("steps").replace("-", "_")
    expect(http.post("/v1/workflows", content=IGNORING.replace("NAME", name), headers=YAML), 201)
    run = client.runs.wait(client.runs.start(name))
    assert run.status == "finished"
    assert [step["path"] for step in http.get(f"/v1/workflows/{name}").json()["steps"]] == ["pay", "say#1"]
    assert list(http.get(f"/v1/runs/{run.id}/snapshot").json()["steps"]) == ["pay", "say#1"]
    assert [step.path for step in client.runs.steps(run)] == ["pay", "say#1"]
    assert "let#1" not in http.get(f"/v1/workflows/{name}/graph?format=json").text
