"""`/v1/overview`: how the deployment stands, in a browser as in a terminal."""

from __future__ import annotations

import httpx2

from tests.support.server import YAML, ServerProcess

FAILS = b"""hai: flow/v1
name: fails
version: 1
steps: [{fail: {code: shop.closed, message: It is closed.}}]
"""
ASKS = b"""hai: flow/v1
name: asks
version: 1
steps: [{approve: {from: anyone, title: "Go?"}}]
"""


def run(http: httpx2.Client, workflow: str, status: str) -> None:
    id = http.post("/v1/runs", json={"workflow": workflow}).raise_for_status().json()["id"]
    while http.get(f"/v1/runs/{id}").json()["status"] != status:
        pass


def test_overview_shows_servers_workers_waits_and_the_ends_of_each_hour(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        for flow in (FAILS, ASKS):
            http.post("/v1/workflows", content=flow, headers=YAML).raise_for_status()
        before = http.get("/v1/overview").raise_for_status().json()["cells"][0]
        run(http, "fails", "failed")
        run(http, "asks", "waiting")
        (cell,) = http.get("/v1/overview").raise_for_status().json()["cells"]
    assert len(cell["hours"]) == 24
    assert [each["since"] for each in cell["hours"]] == sorted(each["since"] for each in cell["hours"])
    failed = [sum(each["failed"] for each in found["hours"]) for found in (before, cell)]
    assert failed[1] == failed[0] + 1
    assert cell["waiting"]["pendings"] == before["waiting"]["pendings"] + 1
    assert cell["runs"]["waiting"] == before["runs"]["waiting"] + 1
    assert cell["waiting"]["pendings_age"] >= 0
    assert cell["workers"], "a server of development performs runs, too"
    assert [each["lease"] > 0 for each in cell["workers"]] == [True] * len(cell["workers"])


def test_it_says_what_the_doctor_finds_with_what_to_do(server: ServerProcess) -> None:
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        (cell,) = http.get("/v1/overview").raise_for_status().json()["cells"]
        (again,) = http.get("/v1/overview").raise_for_status().json()["cells"]
    found = {each["name"]: each for each in cell["checks"]}
    assert found["schema"]["verdict"] == "good"
    assert found["database.version"]["found"].startswith("PostgreSQL ")
    assert {"database.role", "clock"} <= set(found)
    assert all(each["remedy"] for each in cell["checks"] if each["verdict"] == "bad")
    assert cell["checks"] == again["checks"], "they are looked at once in a minute"
