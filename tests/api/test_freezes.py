"""`/v1/freezes`: who may freeze what, who is told of it, and who ends it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.postgres import Server
from tests.support.server import YAML, serving
from tests.support.waiting import wait_for

FLOW = b"""hai: flow/v1
name: pays
version: 1
tools: {fx: {python: tests.support.effects, effect: write}}
steps:
  - {id: pay, call: fx.echo, with: {value: 7}}
"""


@pytest.fixture(scope="module")
def place(postgres_server: Server) -> Iterator[tuple[httpx2.Client, People]]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=KEYS) as process,
        httpx2.Client(base_url=process.url, timeout=60) as http,
    ):
        yield http, People(dsn)


def freeze(http: httpx2.Client, who: dict[str, str], **body: Any) -> httpx2.Response:
    return http.post("/v1/freezes", json={"reason": "a drill", **body}, headers=who)


def test_a_frozen_workflow_starts_nothing_is_listed_so_and_goes_on_thawed(place: tuple[httpx2.Client, People]) -> None:
    http, people = place
    boss = people.person("user:boss", roles=["operator", "publisher"], tenant="bank")
    http.post("/v1/workflows", content=FLOW, headers={**YAML, **boss}).raise_for_status()
    made = freeze(http, boss, scope="workflow", name="pays")
    assert made.status_code == 201, made.text
    run = http.post("/v1/runs", json={"workflow": "pays"}, headers=boss).json()["id"]
    shown = http.get(f"/v1/runs/{run}", headers=boss).json()
    assert (shown["status"], shown["frozen"]) == ("waiting", True)
    assert [each["id"] for each in http.get("/v1/freezes", headers=boss).json()["items"]] == [made.json()["id"]]
    ended = http.post(f"/v1/freezes/{made.json()['id']}/thaw", headers=boss)
    assert (ended.status_code, ended.json()["thawed_by"]) == (200, "user:boss")
    wait_for(lambda: http.get(f"/v1/runs/{run}", headers=boss).json()["status"] == "finished")
    assert http.get(f"/v1/runs/{run}", headers=boss).json()["frozen"] is False
    assert http.get("/v1/freezes", headers=boss).json()["items"] == []
    assert len(http.get("/v1/freezes", params={"over": True}, headers=boss).json()["items"]) == 1
    again = http.post(f"/v1/freezes/{made.json()['id']}/thaw", headers=boss)
    assert (again.status_code, again.json()["code"]) == (409, "freeze_over")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"scope": "workflow", "name": "pay"}, 404, "freeze_subject_unknown"),
        ({"scope": "tool", "name": "nobody"}, 404, "freeze_subject_unknown"),
        ({"scope": "model", "name": "nobody"}, 404, "freeze_subject_unknown"),
        ({"scope": "principal", "name": "user:nobody"}, 404, "freeze_subject_unknown"),
        ({"scope": "tenant", "name": "nobody"}, 404, "tenant_unknown"),
        ({"scope": "tool"}, 422, "freeze.invalid"),
        ({"scope": "model", "name": "smart", "mode": "read_only"}, 422, "freeze.invalid"),
        ({"scope": "all", "name": "pays"}, 422, "freeze.invalid"),
        ({"scope": "all", "reason": "   "}, 422, "freeze.invalid"),
        ({"scope": "all", "reason": ""}, 422, "invalid"),
        ({"scope": "all", "mode": "thawed"}, 422, "invalid"),
        ({"scope": "planet"}, 422, "invalid"),
    ],
)
def test_a_freeze_of_what_does_not_exist_or_without_a_reason_is_refused(
    place: tuple[httpx2.Client, People], body: dict[str, Any], status: int, code: str
) -> None:
    http, people = place
    answer = freeze(http, people.person("user:op", roles=["operator"]), **body)
    assert (answer.status_code, answer.json()["code"].rpartition(".")[2]) == (status, code.rpartition(".")[2])
    assert http.get("/v1/freezes", headers=people.person("user:op", roles=["operator"])).json()["items"] == []


def test_the_same_idempotency_key_is_the_same_freeze(place: tuple[httpx2.Client, People]) -> None:
    http, people = place
    who = {**people.person("user:op", roles=["operator"]), "Idempotency-Key": unique("k")}
    with people.hold_up("freezes", 2), ThreadPoolExecutor() as threads:
        first, again = threads.map(lambda _: freeze(http, who, scope="tenant"), range(2))
    assert (first.status_code, again.json()["id"]) == (201, first.json()["id"])
    acts = http.get("/v1/audit", headers=people.person("user:aud", roles=["auditor"])).json()["items"]
    assert [each["act"] for each in acts if each["subject"] == f"freeze:{first.json()['id']}"] == ["freeze.created"]
    other = freeze(http, who, scope="tenant", mode="no_agents")
    assert (other.status_code, other.json()["code"]) == (409, "command_id_reused")
    assert [each["id"] for each in http.get("/v1/freezes", headers=who).json()["items"]] == [first.json()["id"]]
    assert http.post(f"/v1/freezes/{first.json()['id']}/thaw", headers=who).status_code == 200


@pytest.mark.parametrize(
    ("first", "second", "keys"),
    [("user:op", "user:zoe", ("drill", "drill")), ("user:op:b", "user:op", ("drill", "b:drill"))],
)
def test_the_same_idempotency_key_of_two_operators_is_two_freezes(
    place: tuple[httpx2.Client, People], first: str, second: str, keys: tuple[str, str]
) -> None:
    http, people = place
    made = []
    for person, key in zip((first, second), keys, strict=True):
        who = people.person(person, roles=["operator"])
        made.append(freeze(http, {**who, "Idempotency-Key": key}, scope="tenant"))
    assert [(each.status_code, each.json()["created_by"]) for each in made] == [(201, first), (201, second)]
    op = people.person("user:op", roles=["operator"])
    for each in made:
        assert http.post(f"/v1/freezes/{each.json()['id']}/thaw", headers=op).status_code == 200


def test_operators_of_a_tenant_freeze_their_own_and_thaw_nobody_elses(place: tuple[httpx2.Client, People]) -> None:
    http, people = place
    op = people.person("user:op", roles=["operator"])
    other = people.person("user:eve", roles=["operator"], tenant="globex")
    viewer = people.person("user:ann", roles=["requester"], tenant="globex")
    stranger = people.person("user:zed", roles=["operator"], tenant="initech")
    assert freeze(http, other, scope="all").json()["code"] == "tenant_forbidden"
    assert freeze(http, other, scope="tenant", name="initech").status_code == 404
    assert freeze(http, viewer, scope="tenant").status_code == 403
    own = freeze(http, other, scope="tenant").json()
    imposed = freeze(http, op, scope="tenant", name="globex", mode="read_only").json()
    assert own["tenant"] == imposed["tenant"] == "globex"
    for who, seen in ((other, 2), (viewer, 2), (stranger, 0), (op, 2)):
        assert len(http.get("/v1/freezes", headers=who).json()["items"]) == seen
    assert http.post(f"/v1/freezes/{own['id']}/thaw", headers=stranger).json()["code"] == "freeze_unknown"
    assert http.post(f"/v1/freezes/{imposed['id']}/thaw", headers=other).json()["code"] == "tenant_forbidden"
    assert http.post(f"/v1/freezes/{own['id']}/thaw", headers=other).status_code == 200
    assert http.post(f"/v1/freezes/{imposed['id']}/thaw", headers=op).status_code == 200
    acts = http.get("/v1/audit", headers=people.person("user:aud", roles=["auditor"], tenant="globex")).json()["items"]
    assert {"freeze.created", "freeze.thawed"} <= {each["act"] for each in acts}


@pytest.mark.parametrize("speaks_for", [None, ["user:suspect"]])
def test_a_freeze_of_a_principal_is_thawed_by_others(
    place: tuple[httpx2.Client, People], speaks_for: list[str] | None
) -> None:
    http, people = place
    op, suspect = (people.person(f"user:{name}", roles=["operator"]) for name in ("op", "suspect"))
    who = (
        suspect if speaks_for is None else carried(people.key("agent:a", roles=["operator"], speaks_for=speaks_for)[1])
    )
    imposed = freeze(http, op, scope="principal", name="user:suspect").json()["id"]
    assert http.post(f"/v1/freezes/{imposed}/thaw", headers=who).json()["code"] == "freeze_own"
    assert http.post(f"/v1/freezes/{imposed}/thaw", headers=op).status_code == 200


def test_who_froze_their_own_runs_thaws_them(place: tuple[httpx2.Client, People]) -> None:
    http, people = place
    op = people.person("user:op", roles=["operator"])
    own = freeze(http, op, scope="principal", name="user:op").json()["id"]
    assert http.post(f"/v1/freezes/{own}/thaw", headers=op).status_code == 200


def test_a_freeze_of_a_namesake_elsewhere_is_thawed(
    place: tuple[httpx2.Client, People],
) -> None:
    http, people = place
    people.person("user:op", tenant="globex")
    other = people.person("user:other", roles=["operator"], tenant="globex")
    op = people.person("user:op", roles=["operator"])
    imposed = freeze(http, other, scope="principal", name="user:op").json()["id"]
    assert http.post(f"/v1/freezes/{imposed}/thaw", headers=op).status_code == 200
