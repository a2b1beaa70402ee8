"""REST of schedules and events, and their commands: every answer has the shape that OpenAPI says."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.api.test_rest import Checked, http, listed
from tests.support import commands
from tests.support.hai_client import HaiClient, unique, user
from tests.support.server import YAML, ServerProcess, expect

__all__ = ["http"]

ASKING = "steps:\n  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}\n"
STEPS = "steps:\n  - {id: done, return: done}\n"
CLOCK = "triggers:\n  - schedule: {cron: 0 6 * * 1-5, timezone: Europe/Berlin, overlap: queue}\n"
EVENT = (
    "input: {type: object, required: [repo], properties: {repo: {type: string}}}\n"
    'triggers:\n  - event: {type: %s, dedupe: "${{ event.data.repo }}"}\n'
)


def publish(http: Checked, body: str) -> str:
    """Publish a workflow of its own name; the name."""
    name = unique("flow").replace("-", "_")
    response = http.post(
        "/v1/workflows", content=f"hai: flow/v1\nname: {name}\nversion: 1\n{body}".encode(), headers=YAML
    )
    assert response.status_code == 201, response.text
    return name


def schedule_of(http: Checked, name: str) -> dict[str, Any]:
    (schedule,) = [each for each in listed(http, "/v1/schedules") if each["workflow"] == name]
    return schedule


def test_schedules_are_listed_in_pages_also_in_the_midst_of_a_workflow(http: Checked) -> None:
    name = publish(http, CLOCK + 2 * "  - schedule: {cron: 0 7 * * *, timezone: UTC}\n" + STEPS)
    by_ones = [each["id"] for each in listed(http, "/v1/schedules", limit=1) if each["workflow"] == name]
    at_once = [each["id"] for each in listed(http, "/v1/schedules") if each["workflow"] == name]
    assert by_ones == at_once
    assert len(set(by_ones)) == 3


def test_a_schedule_is_listed_paused_resumed_and_run(http: Checked) -> None:
    name = publish(http, CLOCK + STEPS)
    schedule = schedule_of(http, name)
    assert (schedule["version"]["version"], schedule["overlap"], schedule["paused"]) == (1, "queue", False)
    assert schedule["explanation"].endswith("(Europe/Berlin)")
    assert schedule["next"] is not None
    path = f"/v1/schedules/{schedule['id']}"
    paused = http.post(f"{path}/pause").json()
    assert (paused["paused"], paused["next"]) == (True, None)
    run = http.post(f"{path}/run")
    assert (run.status_code, run.headers["location"]) == (201, f"/v1/runs/{run.json()['id']}")
    assert (run.json()["workflow"], run.json()["started_by"]) == (name, "system")
    resumed = http.post(f"{path}/resume").json()
    assert (resumed["paused"], resumed["last_run_id"]) == (False, run.json()["id"])
    assert http.get(path).json() == resumed


def test_a_schedule_is_run_once_for_each_key_and_not_beside_its_active_run(http: Checked) -> None:
    path = f"/v1/schedules/{schedule_of(http, publish(http, CLOCK + ASKING))['id']}/run"
    first, again = [http.post(path, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert (first.status_code, again.status_code, first.json()["id"]) == (201, 200, again.json()["id"])
    refused = http.post(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "schedule_busy")
    assert refused.json()["winner"] == {"run_id": first.json()["id"], "status": "waiting"}
    http.post(f"/v1/runs/{first.json()['id']}/stop")
    assert http.post(path).status_code == 201


@pytest.mark.parametrize("id", ["nothing", "00000000-0000-4000-8000-000000000000", "%00", "a" * 300])
def test_a_schedule_that_is_not_there_is_404(http: Checked, id: str) -> None:
    for verb in ("pause", "resume", "run"):
        refused = http.post(f"/v1/schedules/{id}/{verb}")
        assert (refused.status_code, refused.json()["code"]) == (404, "schedule_unknown")
    assert http.get(f"/v1/schedules/{id}").status_code == 404


def test_a_workflow_that_only_a_clock_starts_is_not_started_by_request(http: Checked) -> None:
    name = publish(http, CLOCK + STEPS)
    refused = http.post("/v1/runs", json={"workflow": name})
    assert (refused.status_code, refused.json()["code"]) == (409, "trigger_missing")
    assert "- api: {}" in refused.json()["detail"]
    by_chat = HaiClient(str(http.base_url).rstrip("/"), workflow=name).post(user())
    assert (by_chat.status, by_chat.problem["code"]) == (409, "trigger_missing")


def test_an_event_says_what_it_started_and_what_was_refused(http: Checked) -> None:
    kind = unique("push")
    name = publish(http, EVENT % kind + STEPS)
    event = {"type": kind, "data": {"repo": unique("repo")}, "id": unique("event")}
    (done,) = expect(http.post("/v1/events", json=event), 201).json()["runs"]
    assert (done["workflow"], done["status"], done["problem"]) == (name, "started", None)
    assert http.get(f"/v1/runs/{done['run_id']}").json()["input"] == event["data"]
    repeated = http.post("/v1/events", json=event)
    assert (repeated.status_code, repeated.json()["already"]) == (200, True)
    assert repeated.json()["runs"] == [{**done, "status": "already"}]
    (other,) = http.post("/v1/events", json={"type": kind, "data": event["data"]}).json()["runs"]
    assert (other["status"], other["run_id"]) == ("already", done["run_id"]), "another event with the same dedupe key"
    (refused,) = http.post("/v1/events", json={"type": kind, "data": {"repo": 7}}).json()["runs"]
    assert (refused["status"], refused["run_id"], refused["problem"]["code"]) == ("refused", None, "input.invalid")


@pytest.mark.parametrize("by", ["id", "key"])
def test_another_event_under_a_known_id_is_a_conflict(http: Checked, by: str) -> None:
    id = unique("event")
    fields, headers = ({"id": id}, {}) if by == "id" else ({}, {"Idempotency-Key": id})
    assert http.post("/v1/events", json={"type": "a", **fields}, headers=headers).json()["runs"] == []
    refused = http.post("/v1/events", json={"type": "b", **fields}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "signal_exists")


def test_what_is_no_event_is_refused(http: Checked) -> None:
    for body in ({}, [], {"type": ""}, {"type": 5}, {"type": "a\u0000"}, {"type": "a", "id": ""}, {"typ": "a"}):
        assert http.post("/v1/events", json=body).status_code == 422, body
    too_large = http.post("/v1/events", json={"type": "a", "data": "x" * 300_000})
    assert (too_large.status_code, too_large.json()["code"]) == (413, "event.too_large")
    for text in (b"{", b'{"type": "a", "data": NaN}', b'{"type": "a", "data": "\\ud800"}', b"[" * 100_000):
        answer = http.post("/v1/events", content=text, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 413, 422), (text[:40], answer.text[:200])


def test_whatever_an_event_says_its_trigger_starts_or_refuses(http: Checked) -> None:
    kind = unique("push")
    publish(http, EVENT % kind + STEPS)
    deep: Any = 1
    for _ in range(50):
        deep = [deep]
    for data in (None, 5, [], "text", {"repo": None}, {"repo": ""}, {"repo": "x", "n": 1e308}, {"repo": deep}):
        answer = http.post("/v1/events", json={"type": kind, "data": data})
        assert answer.status_code == 201, (data, answer.text)
        (done,) = answer.json()["runs"]
        assert (done["run_id"] is None) == (done["status"] == "refused"), data


# --- commands -------------------------------------------------------------------------------------------------------


def hai_flow(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run(*arguments, "--server", server.url)


@pytest.mark.costly
def test_the_command_line_controls_schedules(http: Checked, server: ServerProcess) -> None:
    name = publish(http, CLOCK + ASKING)
    id = schedule_of(http, name)["id"]
    listed = json.loads(hai_flow(server, "schedules", "list", "--json").stdout)["items"]
    assert id in [each["id"] for each in listed]
    assert name in hai_flow(server, "schedules", "list").stdout
    paused = hai_flow(server, "schedules", "pause", name)
    assert (paused.returncode, "until you resume it" in paused.stdout) == (0, True)
    assert json.loads(hai_flow(server, "schedules", "resume", id, "--json").stdout)["paused"] is False
    run = hai_flow(server, "schedules", "run", name)
    assert run.stdout == f"{schedule_of(http, name)['last_run_id']} is waiting.\n"
    busy = hai_flow(server, "schedules", "run", name)
    assert (busy.returncode, "is waiting; wait for its end" in busy.stderr) == (1, True)
    unknown = hai_flow(server, "schedules", "pause", "nothing")
    assert (unknown.returncode, "found 'nothing'" in unknown.stderr) == (2, True)


@pytest.mark.costly
def test_the_command_line_sends_events(http: Checked, server: ServerProcess) -> None:
    kind, id = unique("push"), unique("event")
    name = publish(http, EVENT % kind + STEPS)
    sent = hai_flow(server, "send", kind, "--data", '{"repo": "r"}', "--id", id)
    first, second = sent.stdout.splitlines()
    assert (sent.returncode, first, second.startswith(f"{name}: ")) == (0, f"Sent {kind} as {id}.", True)
    again = hai_flow(server, "send", kind, "--data", '{"repo": "r"}', "--id", id)
    assert again.stdout.splitlines() == [f"{id} has been sent before.", f"{second} (was there)"]
    wrong = hai_flow(server, "send", kind, "--data", '{"repo": 7}')
    assert f"{name} refused it: the input does not fit" in wrong.stdout


def test_a_schedule_shows_its_next_time_and_its_last_firings(http: Checked) -> None:
    schedule = schedule_of(http, publish(http, CLOCK + STEPS))
    path = f"/v1/schedules/{schedule['id']}"
    fires = http.get(f"{path}/fires", params={"limit": 3}).json()
    assert fires["past"] == []
    assert fires["next"][0] == schedule["next"]
    assert len(fires["next"]) == 3
    assert fires["next"] == sorted(set(fires["next"]))
    http.post(f"{path}/pause")
    assert http.get(f"{path}/fires").json() == {"next": [], "past": []}


def test_the_times_of_a_schedule_that_is_not_there_are_refused(http: Checked) -> None:
    assert http.get(f"/v1/schedules/{unique('no')}/fires").status_code == 404
    schedule = schedule_of(http, publish(http, CLOCK + STEPS))
    assert http.get(f"/v1/schedules/{schedule['id']}/fires", params={"limit": 1000}).status_code == 422
