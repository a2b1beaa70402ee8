"""Signals over REST, and by the command line."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from uuid import uuid4

import pytest

from tests.api.test_rest import Checked, http
from tests.support import commands
from tests.support.server import ServerProcess, expect

__all__ = ["http"]

WAITING = """
hai: flow/v1
name: waiting
version: 1
steps:
  - id: paid
    wait_for: {event: payment, deadline: 1d}
output: ${{ steps.paid.output.data }}
"""
ASKING = """
hai: flow/v1
name: asking
version: 1
steps:
  - id: sure
    ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}
"""


def start(http: Checked, document: str) -> str:
    published = expect(http.post("/v1/workflows", content=document, headers={"content-type": "application/yaml"}), 201)
    return http.post("/v1/runs", json={"workflow": published.json()["name"]}).json()["id"]


def ended(http: Checked, run_id: str) -> dict[str, Any]:
    """The run, when it has ended."""
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"}) as events:
        for _ in events.iter_lines():
            pass
    return http.get(f"/v1/runs/{run_id}").json()


def test_a_signal_to_a_run_gives_its_data_to_the_step_that_waits(http: Checked) -> None:
    run_id = start(http, WAITING)
    sent = expect(http.post(f"/v1/runs/{run_id}/signals", json={"type": "payment", "data": {"sum": 5}}), 201)
    assert (sent.json()["run_id"], sent.json()["type"], sent.json()["already"]) == (run_id, "payment", False)
    run = ended(http, run_id)
    assert (run["status"], run["output"]) == ("finished", {"sum": 5})


def test_a_signal_to_the_tenant_reaches_whoever_waits_for_its_type(http: Checked) -> None:
    run_ids = [start(http, WAITING) for _ in range(2)]
    sent = http.post("/v1/signals", json={"type": "payment", "data": 7})
    assert (sent.status_code, sent.json()["run_id"]) == (201, None)
    assert [ended(http, run_id)["output"] for run_id in run_ids] == [7, 7]


@pytest.mark.parametrize("by", ["id", "key"])
def test_the_same_signal_again_is_recognised_by_its_id_or_its_key(http: Checked, by: str) -> None:
    run_id, name = start(http, ASKING), str(uuid4())
    body, headers = {"type": "ping", "data": 1}, {}
    if by == "id":
        body["id"] = name
    else:
        headers["Idempotency-Key"] = name
    for url in (f"/v1/runs/{run_id}/signals", "/v1/signals"):
        answers = [http.post(url, json=body, headers=headers) for _ in range(2)]
        if url == "/v1/signals":  # the id is taken by the signal to the run
            assert [answer.status_code for answer in answers] == [409, 409]
            assert answers[0].json()["code"] == "signal_exists"
        else:
            assert [answer.status_code for answer in answers] == [201, 200]
            assert [answer.json()["already"] for answer in answers] == [False, True]
            assert answers[0].json()["id"] == answers[1].json()["id"]
    other = http.post(f"/v1/runs/{run_id}/signals", json={**body, "data": 2}, headers=headers)
    assert (other.status_code, other.json()["winner"]["type"]) == (409, "ping")


def test_what_can_not_be_sent_is_refused(http: Checked) -> None:
    run_id = start(http, ASKING)
    url = f"/v1/runs/{run_id}/signals"
    assert http.post(f"/v1/runs/{uuid4()}/signals", json={"type": "ping"}).status_code == 404
    for body in ({}, {"type": ""}, {"type": 5}, {"type": "ping\u0000"}, {"type": "ping", "id": ""}, {"typ": "ping"}):
        assert http.post(url, json=body).status_code == 422, body
    too_large = http.post(url, json={"type": "ping", "data": "x" * 300_000})
    assert (too_large.status_code, too_large.json()["code"]) == (413, "signal.too_large")
    assert http.post(url, json={"type": "ping", "id": "before the end of " + run_id}).status_code == 201
    http.post(f"/v1/runs/{run_id}/terminate")
    refused = http.post(url, json={"type": "ping"})
    assert (refused.status_code, refused.json()["code"]) == (409, "run_ended")
    again = http.post(url, json={"type": "ping", "id": "before the end of " + run_id})
    assert (again.status_code, again.json()["already"]) == (200, True)


def hai_flow(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run("signal", *arguments, "--server", server.url)


def test_the_command_line_sends_a_signal(http: Checked, server: ServerProcess) -> None:
    run_id, name = start(http, ASKING), str(uuid4())
    sent = hai_flow(server, run_id, "ping", "--data", '{"n": 1}', "--id", name)
    assert sent.returncode == 0
    assert sent.stdout.splitlines() == [f"Sent ping to {run_id} as {name}.", f"Next: python3 cli.py show {run_id}"]
    again = hai_flow(server, run_id, "ping", "--data", '{"n": 1}', "--id", name, "--json")
    assert json.loads(again.stdout)["already"] is True
    wrong = hai_flow(server, run_id, "ping", "--data", "n: 1")
    assert wrong.returncode == 2
    assert "--data: expected JSON" in wrong.stderr
