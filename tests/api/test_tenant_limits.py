"""What one tenant may have: beyond it is 429 before anything is stored, and other tenants don't notice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest

from tests.support.commands import run
from tests.support.hai_client import unique, user
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import wait_for

WAITS = "hai: flow/v1\nname: waits\nversion: 1\nsteps:\n  - ask: {title: Well?, form: {type: object, properties: {}}}\n"
LIMITS = {
    "HAI_FLOW_TENANT_RUNS_PER_MINUTE": "4",
    "HAI_FLOW_TENANT_OPEN_RUNS_MAX": "50",
    "HAI_FLOW_TENANT_FOLLOWERS_MAX": "3",
}


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={**KEYS, **LIMITS}) as process:
        yield process


def caller(url: str, dsn: str) -> httpx2.Client:
    """A requester of a tenant of their own, which has a workflow."""
    people, tenant = People(dsn), unique("tenant")
    publisher = people.person("user:pat", roles=["publisher"], tenant=tenant)
    assert httpx2.post(f"{url}/v1/workflows", content=WAITS, headers={**YAML, **publisher}).status_code == 201
    return httpx2.Client(base_url=url, headers=people.person("user:ann", tenant=tenant), timeout=30)


def start(client: httpx2.Client, key: str | None = None) -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/v1/runs", json={"workflow": "waits"}, headers=headers)


def runs(client: httpx2.Client) -> list[str]:
    return [each["id"] for each in client.get("/v1/runs").json()["items"]]


def refused(answer: httpx2.Response) -> tuple[int, str]:
    assert int(answer.headers["Retry-After"]) >= 1
    return answer.status_code, answer.json()["code"]


def test_a_tenant_past_its_starts_a_minute_waits_and_another_does_not(strict: ServerProcess, dsn: str) -> None:
    with caller(strict.url, dsn) as busy, caller(strict.url, dsn) as other:
        assert [start(busy, f"k{n}").status_code for n in range(4)] == [201] * 4
        before = runs(busy)
        assert refused(start(busy, "k4")) == (429, "tenant_runs")
        said = {"threadId": unique("t"), "runId": unique("r"), "messages": [user("go")], "tools": []}
        for path in ("awp", "ag-ui"):
            assert refused(busy.post(f"/workflows/waits/{path}", json=said)) == (429, "tenant_runs")
        message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"data": {}}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        for path, sent in (("a2a/message:send", {"message": message}), ("a2a", body)):
            answer = busy.post(f"/workflows/waits/{path}", json=sent, headers={"A2A-Version": "1.0"})
            assert (answer.status_code, int(answer.headers["Retry-After"]) >= 1) == (429, True)
        assert 1 <= int(start(busy).headers["Retry-After"]) <= 60
        assert runs(busy) == before
        assert busy.get(f"/v1/threads/{said['threadId']}").status_code == 404
        again = start(busy, "k1")  # it has begun
        assert (again.status_code, again.json()["id"] in before) == (200, True)
        assert [start(other).status_code for _ in range(4)] == [201] * 4


def test_the_runs_of_a_run_are_not_refused(strict: ServerProcess, dsn: str) -> None:
    people, tenant = People(dsn), unique("tenant")
    publisher = people.person("user:pat", roles=["publisher"], tenant=tenant)
    child = "hai: flow/v1\nname: child\nversion: 1\nsteps:\n  - say: hello\n"
    many = "".join(f"\n  - {{id: c{n}, run: child}}" for n in range(6))
    for source in (child, f"hai: flow/v1\nname: parent\nversion: 1\nsteps:{many}\n"):
        taken = httpx2.post(f"{strict.url}/v1/workflows", content=source, headers={**YAML, **publisher})
        assert taken.status_code == 201, taken.text
    ann = people.person("user:ann", tenant=tenant)
    said = {"threadId": unique("t"), "runId": unique("r"), "messages": [user("go")], "tools": []}
    shown = httpx2.post(f"{strict.url}/workflows/parent/awp", json=said, headers=ann, timeout=30)
    assert (shown.status_code, "RUN_FINISHED" in shown.text) == (200, True), shown.text


def test_followers_of_one_tenant_are_bounded_and_give_their_places_back(strict: ServerProcess, dsn: str) -> None:
    with caller(strict.url, dsn) as busy, caller(strict.url, dsn) as other:
        path = f"/api/v1/agent/runs/{unique('t')}/events"
        with ExitStack() as open_streams:
            streams = [open_streams.enter_context(busy.stream("GET", path)) for _ in range(3)]
            assert [each.status_code for each in streams] == [200] * 3
            assert refused(busy.get(path)) == (429, "tenant_followers")
            with other.stream("GET", path) as response:
                assert response.status_code == 200
            assert start(busy).status_code == 201
        wait_for(lambda: _status(busy, path) == 200)  # the server has noticed that they are gone


def _status(client: httpx2.Client, path: str) -> int:
    with client.stream("GET", path) as response:
        return response.status_code


def test_runs_that_have_not_ended_are_bounded(postgres_server: Server) -> None:
    limit = {"HAI_FLOW_TENANT_OPEN_RUNS_MAX": "2"}
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={**KEYS, **limit}) as process,
        caller(process.url, dsn) as busy,
        caller(process.url, dsn) as other,
    ):
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda _: start(busy).status_code, range(2))) == [201, 201]
        before = runs(busy)
        assert refused(start(busy)) == (429, "tenant_open_runs")
        assert runs(busy) == before
        assert start(other).status_code == 201
        ended = busy.get("/v1/pendings").json()["items"][0]
        assert busy.post(f"/v1/pendings/{ended['id']}/decide", json={"values": {}}).status_code == 200
        while busy.get(f"/v1/runs/{ended['run_id']}").json()["status"] != "finished":
            time.sleep(0.02)
        assert start(busy).status_code == 201


# --- limits of one tenant ---------------------------------------------------------------------------------------------


def limited(url: str, headers: dict[str, str], tenant: str, **limits: int | None) -> httpx2.Response:
    return httpx2.patch(f"{url}/v1/tenants/{tenant}", json=limits, headers=headers)


def test_a_tenant_has_limits_of_its_own_beside_those_of_all(strict: ServerProcess, dsn: str) -> None:
    people = People(dsn)
    root = people.person("user:root", roles=["admin"])
    with caller(strict.url, dsn) as busy, caller(strict.url, dsn) as other:
        name = people.tenant_of(busy.headers["Authorization"])
        assert limited(strict.url, root, name, runs_per_minute=2, followers=1).status_code == 200
        assert [start(busy, f"own{n}").status_code for n in range(2)] == [201] * 2
        assert refused(start(busy)) == (429, "tenant_runs")
        assert len(runs(busy)) == 2
        with ExitStack() as streams:
            for path, status in ((f"/v1/runs/{runs(busy)[0]}/events", 200), (f"/v1/runs/{runs(busy)[1]}/events", 429)):
                stream = busy.stream("GET", path, headers={"Accept": "text/event-stream"})
                assert streams.enter_context(stream).status_code == status
        assert [start(other).status_code for _ in range(4)] == [201] * 4
        assert refused(start(other)) == (429, "tenant_runs")
        # More than the settings give to all, then no limit, then that of the settings again.
        assert limited(strict.url, root, name, runs_per_minute=6).json()["limits"]["followers"] == 1
        assert [start(busy).status_code for _ in range(5)] == [201] * 4 + [429]
        assert limited(strict.url, root, name, runs_per_minute=0).json()["in_force"]["runs_per_minute"] == 0
        assert start(busy).status_code == 201
        shown = limited(strict.url, root, name, runs_per_minute=None).json()
        assert (shown["limits"]["runs_per_minute"], shown["in_force"]["runs_per_minute"]) == (None, 4)
        assert refused(start(busy)) == (429, "tenant_runs")
        auditor = people.person("user:aud", roles=["auditor"], tenant=name)
        records = httpx2.get(f"{strict.url}/v1/audit?act=tenant.limited", headers=auditor).json()["items"]
        assert [each["details"]["limits"] for each in records] == [
            {"runs_per_minute": None}, {"runs_per_minute": 0}, {"runs_per_minute": 6},
            {"runs_per_minute": 2, "followers": 1},
        ]  # fmt: skip
        assert {(each["subject"], each["by"]) for each in records} == {(f"tenant:{name}", "user:root")}


def test_limits_are_said_by_the_admins_of_the_deployment(strict: ServerProcess, dsn: str) -> None:
    people = People(dsn)
    root, theirs = (people.person("user:root", roles=["admin"], tenant=of) for of in ("default", "bounded"))
    people.tenant("beside")
    for tenant, status, code in (
        ("bounded", 403, "tenant_forbidden"), ("beside", 404, "tenant_unknown"), ("nowhere", 404, "tenant_unknown"),
    ):  # fmt: skip
        answer = limited(strict.url, theirs, tenant, open_runs=10_000)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    listed = httpx2.get(f"{strict.url}/v1/tenants", headers=theirs).json()["items"]
    assert [each["name"] for each in listed] == ["bounded"]
    assert listed[0]["in_force"] == {"runs_per_minute": 4, "open_runs": 50, "followers": 3, "log_bytes": 0}
    assert {"default", "bounded", "beside"} <= {
        each["name"] for each in httpx2.get(f"{strict.url}/v1/tenants", headers=root).json()["items"]
    }
    assert limited(strict.url, root, "bounded", open_runs=-1).status_code == 422
    assert limited(strict.url, root, "bounded", open_runs=2**40).status_code == 422
    assert httpx2.get(f"{strict.url}/v1/tenants/bounded", headers=root).json()["limits"]["open_runs"] is None


def test_limits_are_set_at_the_database_or_by_a_server(strict: ServerProcess, dsn: str) -> None:
    people, here = People(dsn), {"HAI_FLOW_DATABASE_URL": dsn}
    people.tenant("ruled")
    _, root = people.key("user:root", roles=["admin"])
    there = {"HAI_FLOW_KEY": root}
    assert run("tenants", "set", "ruled", "--open-runs", "7", "--log-bytes", "0", **here).returncode == 0
    assert run("tenants", "set", "ruled", "--open-runs", "default", "--server", strict.url, **there).returncode == 0
    found = json.loads(run("tenants", "list", "--json", **here).stdout)["items"]
    (ruled,) = [each["limits"] for each in found if each["name"] == "ruled"]
    assert ruled == {"runs_per_minute": None, "open_runs": None, "followers": None, "log_bytes": 0}
    assert "log_bytes unlimited" in run("tenants", **here).stdout
    for wrong in (["--open-runs", "-1"], ["--open-runs", "many"], ["--open-runs", str(10**9)], []):
        assert run("tenants", "set", "ruled", *wrong, **here).returncode == 2
    assert "there is no tenant" in run("tenants", "set", "nowhere", "--followers", "1", **here).stderr
    auditor = people.person("user:aud", roles=["auditor"], tenant="ruled")
    records = httpx2.get(f"{strict.url}/v1/audit?act=tenant.limited", headers=auditor).json()["items"]
    assert [each["by"] for each in records] == ["user:root", "service:cli"]


def test_the_logs_of_a_tenant_are_bounded(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn, environment=KEYS) as process:
            busy = caller(process.url, dsn)
            assert start(busy).status_code == 201
            key = busy.headers["Authorization"]
            busy.close()
        with serving(dsn, environment={**KEYS, "HAI_FLOW_TENANT_LOG_BYTES_MAX": "100"}) as process:
            again = httpx2.Client(base_url=process.url, headers={"Authorization": key}, timeout=30)
            with again as busy, caller(process.url, dsn) as other:
                before = runs(busy)
                assert refused(start(busy)) == (429, "tenant_log_bytes")
                assert runs(busy) == before
                assert start(other).status_code == 201
