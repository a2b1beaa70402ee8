"""`hai-flow keys` and `tenants`: the first admin's key comes from the database, the others' from the server too."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hai_flow_client import Client
from hai_flow_client.link import Link

from tests.support import commands
from tests.support.identities import People, carried
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess


def run(*arguments: str, code: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command that ends with `code`."""
    ended = commands.run(*arguments, **settings)
    assert ended.returncode == code, ended.stderr
    return ended


def test_the_first_key_opens_the_server_and_makes_further_ones(dsn: str, strict: ServerProcess) -> None:
    here, there = {"HAI_FLOW_DATABASE_URL": dsn}, {"HAI_FLOW_URL": strict.url}
    key = run("keys", "create", "user:root", "--role", "admin", "--name", "first", **here).stdout.strip()
    assert key.startswith("hai_")
    refused = run("runs", **there, code=1)
    assert "expected a credential" in refused.stderr
    lacking = run("runs", **there, HAI_FLOW_KEY=key, code=1)
    assert "viewer, operator" in lacking.stderr  # an admin reads no runs by that alone
    made = run(
        *("keys", "create", "user:ann", "--role", "viewer", "--group", "money", "--expires-in", "1h", "--json"),
        *("--server", strict.url),
        HAI_FLOW_KEY=key,
    )
    ann = json.loads(made.stdout)
    assert (ann["principal"], ann["roles"], ann["groups"]) == ("user:ann", ["viewer"], ["money"])
    assert ann["created_by"] == "user:root"
    assert ann["expires_at"] is not None
    assert run("runs", **there, HAI_FLOW_KEY=ann["key"]).returncode == 0
    listed = run("keys", "list", "--json", "--server", strict.url, HAI_FLOW_KEY=key).stdout
    assert ann["key"] not in listed
    assert {each["id"] for each in json.loads(listed)["items"]} >= {ann["id"]}
    assert ann["id"] in run("keys", **here).stdout
    run("keys", "revoke", ann["id"], "--server", strict.url, HAI_FLOW_KEY=key)
    assert "credential" in run("runs", **there, HAI_FLOW_KEY=ann["key"], code=1).stderr
    assert "revoked" in run("keys", **here).stdout
    assert "there is no key" in run("keys", "revoke", "nothing", **here, code=1).stderr


def test_a_rotated_state_key_opens_for_a_week_or_at_once_no_more(dsn: str) -> None:
    def rotate(*options: str) -> dict[str, Any]:
        return dict(json.loads(run("keys", "rotate-states", "--json", *options, HAI_FLOW_DATABASE_URL=dsn).stdout))

    first, second = rotate(), rotate("--at-once")
    now, (older, oldest) = datetime.now(UTC), (datetime.fromisoformat(each["until"]) for each in second["older"])
    assert [each["id"] for each in second["older"]] == [first["id"], first["older"][0]["id"]]
    assert (older, oldest) < (now, now), "what is retired at once retires all before it"
    assert timedelta(days=6) < datetime.fromisoformat(first["older"][0]["until"]) - now < timedelta(days=8)


def test_the_key_of_an_owner_opens_what_a_first_administrator_needs(dsn: str, strict: ServerProcess) -> None:
    made = json.loads(run("keys", "create", "user:own", "--role", "owner", "--json", HAI_FLOW_DATABASE_URL=dsn).stdout)
    assert made["roles"] == ["admin", "operator", "decider", "publisher"]
    here = {"HAI_FLOW_URL": strict.url, "HAI_FLOW_KEY": made["key"]}
    for command in (("runs",), ("inbox",), ("keys", "list", "--server", strict.url)):
        assert run(*command, **here).returncode == 0, command


def test_a_link_signs_in_who_was_named_with_the_roles_that_were_named(dsn: str, strict: ServerProcess) -> None:
    here = {"HAI_FLOW_DATABASE_URL": dsn, "HAI_FLOW_URL": strict.url, "HAI_FLOW_IDENTITY": "keys"}
    printed = run("sign-in", "user:zoe", "--role", "viewer", "--group", "money", **here).stdout.strip()
    assert printed.startswith(f"{strict.url}/sign-in/link/")
    begun = httpx2.post(printed)
    assert begun.status_code == 303
    cookie = {"Cookie": begun.headers["set-cookie"].partition(";")[0]}
    found = httpx2.get(f"{strict.url}/v1/session", headers=cookie).json()
    assert (found["principal"], found["roles"], found["groups"]) == ("user:zoe", ["viewer"], ["money"])
    assert httpx2.post(printed).status_code == 401
    assert "expected a person" in run("sign-in", "zoe", **here, code=2).stderr


def test_a_tenants_keys_are_its_own(dsn: str, strict: ServerProcess) -> None:
    here = {"HAI_FLOW_DATABASE_URL": dsn}
    assert "there is no tenant 'acme'" in run("keys", "create", "user:bob", "--tenant", "acme", **here, code=1).stderr
    run("tenants", "create", "acme", **here)
    assert "already" in run("tenants", "create", "acme", **here, code=1).stderr
    run("tenants", "create", "Not A Name", **here, code=2)
    assert [each["name"] for each in json.loads(run("tenants", "list", "--json", **here).stdout)["items"]] == [
        "acme",
        "default",
    ]
    bob = json.loads(run("keys", "create", "user:bob", "--tenant", "acme", "--role", "admin", "--json", **here).stdout)
    people = People(dsn)
    ours, _ = people.key("user:ann")
    listed = httpx2.get(f"{strict.url}/v1/keys", headers=carried(bob["key"])).json()["items"]
    assert [each["id"] for each in listed] == [bob["id"]]
    revoked = httpx2.post(f"{strict.url}/v1/keys/{ours.id}/revoke", headers=carried(bob["key"]))
    absent = httpx2.post(f"{strict.url}/v1/keys/{'0' * 12}/revoke", headers=carried(bob["key"]))
    assert (revoked.status_code, revoked.json()["code"]) == (absent.status_code, absent.json()["code"])
    assert absent.json()["code"] == "key_unknown"


def test_keys_are_listed_in_pages(dsn: str, strict: ServerProcess) -> None:
    people = People(dsn)
    admin = people.person("user:root", roles=["admin"], tenant="paged")
    made = {people.key(f"user:{number}", tenant="paged")[0].id for number in range(5)}
    with httpx2.Client(base_url=strict.url, headers=admin) as client:
        found, cursor = [], None
        while True:
            page = client.get("/v1/keys", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
            found += [each["id"] for each in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
    assert len(found) == len(set(found)) == 6
    assert made < set(found)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"principal": "ann"},
        {"principal": "role:boss"},
        {"principal": "user:a b"},
        {"principal": "user:a\n"},
        {"principal": "user:a\u0000"},
        {"principal": "user:" + "a" * 201},
        {"principal": "user:a", "roles": ["a b"]},
        {"principal": "user:a", "roles": [""]},
        {"principal": "user:a", "roles": "admin"},
        {"principal": "user:a", "groups": ["\u0000"]},
        {"principal": "user:a", "expires_in": 0},
        {"principal": "user:a", "expires_in": 1e300},
        {"principal": "user:a", "tenant": "other"},
    ],
    ids=str,
)
def test_a_key_that_makes_no_sense_is_refused(dsn: str, strict: ServerProcess, body: object) -> None:
    admin = People(dsn).person("user:root", roles=["admin"])
    assert httpx2.post(f"{strict.url}/v1/keys", json=body, headers=admin).status_code == 422


def test_a_role_near_a_built_in_one_is_doubted_unless_a_workflow_has_it(dsn: str) -> None:
    here = {"HAI_FLOW_DATABASE_URL": dsn}
    made = run(
        "keys",
        "create",
        "user:dan",
        "--role",
        "operater",
        "--role",
        "Admin",
        "--role",
        "controller",
        "--role",
        "ownr",
        **here,
    )
    said = [line for line in made.stderr.splitlines() if "did you mean" in line]
    assert [line.rpartition(" ")[2] for line in said] == ["operator?", "admin?", "owner?"]


def test_the_command_refuses_the_same(dsn: str) -> None:
    here = {"HAI_FLOW_DATABASE_URL": dsn}
    for wrong in (("ann",), ("user:a b",), ("user:a", "--role", "a b"), ("user:a", "--expires-in", "soon")):
        run("keys", "create", *wrong, **here, code=2)


def test_the_python_client_sends_its_key(dsn: str, strict: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = People(dsn).key("user:ann", roles=["viewer"])
    with Client(strict.url, key=text) as flow:
        assert list(flow.runs.list()) is not None
    monkeypatch.setenv("HAI_FLOW_KEY", text)
    with Client(strict.url) as flow:
        assert list(flow.runs.list()) is not None
        assert text not in repr(flow.link)
    own = Link.to(strict.url, act_as=None, headers={"authorization": "Bearer own"}, patience=None)
    assert own.headers == {"authorization": "Bearer own"}
    with pytest.raises(ValueError, match="key: expected"):
        Client(strict.url, key="two words\r\n")


OVER_THE_DATABASE = (
    ("keys",), ("keys", "create", "user:ann"), ("tenants",), ("forget", "user:ann", "--yes"),
    ("audit", "verify"), ("audit", "anchor"), ("audit", "export"),
)  # fmt: skip


@pytest.mark.parametrize("command", [*OVER_THE_DATABASE, ("doctor",)], ids=" ".join)
def test_what_looks_into_a_database_makes_none(command: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "nothing"
    refused = run(*command, code=1, HAI_FLOW_DATA_DIR=str(place))
    assert f"There is no PostgreSQL in {place}" in refused.stderr
    assert not place.exists()


@pytest.mark.parametrize("command", OVER_THE_DATABASE, ids=" ".join)
def test_a_database_without_our_schema_is_a_sentence(command: tuple[str, ...], postgres_server: Server) -> None:
    with postgres_server.database(migrated=False) as dsn:
        refused = run(*command, code=1, HAI_FLOW_DATABASE_URL=dsn)
    assert "does not have the schema of this release: run" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_who_calls_with_a_key_is_not_told_to_act_as_somebody(dsn: str, strict: ServerProcess) -> None:
    people = People(dsn)
    ann = people.key("user:ann", roles=["operator", "publisher"])[1]
    there = {"HAI_FLOW_URL": strict.url, "HAI_FLOW_KEY": ann}
    document = b"hai: flow/v1\nname: asks_boss\nversion: 1\nsteps: [{approve: {title: Pay?, from: ['role:boss']}}]\n"
    with httpx2.Client(base_url=strict.url, headers=carried(ann)) as http:
        http.post("/v1/workflows", content=document, headers=YAML).raise_for_status()
        http.post("/v1/runs", json={"workflow": "asks_boss", "input": {}}).raise_for_status()
    told = run("pendings", **there).stdout
    assert " decide call_" in told
    assert "--as" not in told
