"""Keys as credentials: who has none, a wrong, an expired or a revoked one is refused; others are who their key says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from tests.api.test_rest import code as refused
from tests.support.hai_client import unique
from tests.support.identities import People, carried
from tests.support.server import YAML, ServerProcess
from tests.support.waiting import until

ASKS = """
hai: flow/v1
name: asks
version: 1
steps:
  - id: gate
    approve: {title: Go?, from: [role:boss]}
"""


@pytest.fixture(scope="module")
def people(dsn: str, strict: ServerProcess) -> People:
    return People(dsn)


def test_without_a_key_nothing_is_told_but_that_the_server_lives(strict: ServerProcess) -> None:
    for path in ("/v1/runs", "/v1/pendings", "/v1/workflows", "/v1/schedules", "/v1/threads"):
        answer = httpx2.get(strict.url + path)
        assert refused(answer) == (401, "auth.missing"), path
        assert answer.headers["www-authenticate"] == 'Bearer realm="hai-flow"'
    assert httpx2.post(f"{strict.url}/awp", json={}).status_code == 401
    assert httpx2.get(f"{strict.url}/healthz").status_code == httpx2.get(f"{strict.url}/readyz").status_code == 200


async def test_a_caller_is_who_their_key_says(strict: ServerProcess, people: People) -> None:
    publisher = people.person("user:pat", roles=["publisher"])
    assert httpx2.post(f"{strict.url}/v1/workflows", content=ASKS, headers={**YAML, **publisher}).status_code == 201
    ann, eve = people.person("user:ann", roles=["operator"]), people.person("user:eve", roles=["decider", "boss"])
    run = httpx2.post(f"{strict.url}/v1/runs", json={"workflow": "asks"}, headers=ann).json()
    assert run["started_by"] == "user:ann"

    def pendings() -> list[dict[str, str]]:
        return httpx2.get(f"{strict.url}/v1/pendings", headers=eve).json()["items"]

    (asked,) = await until(pendings)
    decision = httpx2.post(
        f"{strict.url}/v1/pendings/{asked['id']}/decide", json={"decision": "approve"}, headers=eve
    ).json()
    assert decision["status"] == "approve"


@pytest.mark.parametrize(
    "credential",
    [
        "hai_000000000000_" + "A" * 43,
        "hai_000000000000",
        "hai_",
        "x",
        "x" * 10_000,
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.",
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_key_of_this_server_is_refused_alike(strict: ServerProcess, credential: str) -> None:
    answer = httpx2.get(f"{strict.url}/v1/runs", headers=carried(credential))
    assert refused(answer) == (401, "auth.invalid")
    assert answer.headers["www-authenticate"] == 'Bearer realm="hai-flow", error="invalid_token"'


def test_a_key_with_another_secret_is_refused_as_one_that_never_was(strict: ServerProcess, people: People) -> None:
    key, text = people.key("user:ann")
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    never = f"hai_{'0' * 12}_{'A' * 43}"
    answers = [httpx2.get(f"{strict.url}/v1/runs", headers=carried(each)).json() for each in (wrong, never)]
    assert answers[0] == answers[1]
    assert key.sha256.hex() not in str(answers)


def test_an_expired_key_says_so_to_who_has_its_secret_only(strict: ServerProcess, people: People) -> None:
    _, text = people.key("user:ann", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert refused(httpx2.get(f"{strict.url}/v1/runs", headers=carried(text))) == (401, "auth.expired")
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert refused(httpx2.get(f"{strict.url}/v1/runs", headers=carried(wrong))) == (401, "auth.invalid")


async def test_a_key_that_another_process_revoked_is_refused_a_moment_later(
    strict: ServerProcess, people: People
) -> None:
    key, text = people.key("user:ann", roles=["viewer"])
    assert httpx2.get(f"{strict.url}/v1/runs", headers=carried(text)).status_code == 200
    people.revoke(key)
    await until(lambda: httpx2.get(f"{strict.url}/v1/runs", headers=carried(text)).status_code == 401)


def test_the_database_has_no_secret(people: People) -> None:
    key, text = people.key("user:ann")
    row = people.do(lambda connection: connection.fetchrow("SELECT k::text FROM keys k WHERE id = $1", key.id))
    assert text.rpartition("_")[2] not in str(row)
    assert text not in repr(key)


def test_two_credentials_are_none(strict: ServerProcess, people: People) -> None:
    _, text = people.key("user:ann", roles=["viewer"])
    twice = [("Authorization", f"Bearer {text}"), ("Authorization", f"Bearer {text}")]
    assert refused(httpx2.get(f"{strict.url}/v1/runs", headers=twice)) == (400, "header_twice")
    basic = {"Authorization": f"Basic {text}"}
    assert refused(httpx2.get(f"{strict.url}/v1/runs", headers=basic)) == (401, "auth.invalid")


def test_nobody_says_who_they_are_where_keys_do(strict: ServerProcess, people: People) -> None:
    for headers in ({}, people.person("user:ann", roles=["operator"])):
        answer = httpx2.get(f"{strict.url}/v1/runs", headers={**headers, "HAI-Act-As": "user:eve"})
        assert refused(answer) == (403, "act_as.forbidden")


def test_when_a_key_was_used_is_known(strict: ServerProcess, people: People) -> None:
    key, text = people.key("user:ann", roles=["viewer"])
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")

    def used() -> object:
        return people.do(lambda connection: connection.fetchval("SELECT used_at FROM keys WHERE id = $1", key.id))

    httpx2.get(f"{strict.url}/v1/runs", headers=carried(wrong))
    assert used() is None
    httpx2.get(f"{strict.url}/v1/runs", headers=carried(text))
    assert used() is not None


def test_a_development_server_acts_for_people_of_another_tenant(server: ServerProcess, http: httpx2.Client) -> None:
    name = unique("acme")
    unknown = http.get("/v1/runs", headers={"HAI-Act-As": f"user:ann,tenant={name}"})
    assert refused(unknown) == (422, "act_as.invalid")
    twice = http.get("/v1/runs", headers={"HAI-Act-As": "user:ann,tenant=default,tenant=default"})
    assert refused(twice) == (422, "act_as.invalid")
    here = http.get("/v1/runs", headers={"HAI-Act-As": "user:ann,tenant=default"})
    assert here.status_code == 200


def test_a_repeated_request_for_a_key_names_the_key_that_it_has_made(strict: ServerProcess, people: People) -> None:
    command = unique("lost")

    def create(admin: str, command: str) -> httpx2.Response:
        headers = people.person(admin, roles=["admin"]) | {"Idempotency-Key": command}
        return httpx2.post(f"{strict.url}/v1/keys", json={"principal": "user:new"}, headers=headers)

    with people.hold_up("keys", 2), ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda _: create("user:adm", command), range(2)))
    answers.append(create("user:adm", command))
    made, *repeated = sorted(answers, key=lambda answer: answer.status_code)
    assert made.status_code == 201
    for answer in repeated:
        assert refused(answer) == (409, "key_exists")
        assert made.json()["id"] in answer.json()["detail"]
        assert made.json()["key"] not in answer.text
    others = create("user:other", command), create("user:adm:x", "y"), create("user:adm", "x:y")
    assert [each.status_code for each in others] == [201, 201, 201], "each caller has keys of their own"
    assert len({each.json()["id"] for each in (made, *others)}) == 4
