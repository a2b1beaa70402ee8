"""What a backend gives its page: tokens with no more than its key holds, and tickets that open one stream."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hai_flow.store.identity import keys
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

MINE = """
hai: flow/v1
name: mine
version: 1
steps:
  - say: Hello.
"""
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment={**KEYS, "HAI_FLOW_REFUSALS_PEER_MAX": "10000"}) as process:
        publisher = People(dsn).person("user:pat", roles=["publisher"])
        for name in ("mine", "other"):
            source = MINE.replace("mine", name)
            expect(httpx2.post(f"{process.url}/v1/workflows", content=source, headers={**YAML, **publisher}), 201)
        yield process


@pytest.fixture(scope="module")
def backend(dsn: str, strict: ServerProcess) -> str:
    """The key of a backend that gives its pages tokens."""
    return People(dsn).key("service:shop", roles=["issuer", "decider", "boss"], groups=["money"])[1]


def issued(server: ServerProcess, credential: str, **body: Any) -> httpx2.Response:
    return httpx2.post(f"{server.url}/v1/tokens", json={"principal": "user:ann", **body}, headers=carried(credential))


def token(server: ServerProcess, credential: str, **body: Any) -> str:
    return expect(issued(server, credential, **body), 201).json()["token"]


def said(response: httpx2.Response) -> tuple[int, str]:
    return (response.status_code, response.json()["code"] if response.status_code >= 400 else "")


def runs(server: ServerProcess, credential: str) -> httpx2.Response:
    return httpx2.get(f"{server.url}/v1/runs", headers=carried(credential))


def start(server: ServerProcess, credential: str, workflow: str = "mine", thread: str | None = None) -> httpx2.Response:
    body = {"workflow": workflow, **({"thread_id": thread} if thread else {})}
    return httpx2.post(f"{server.url}/v1/runs", json=body, headers=carried(credential))


def test_a_page_calls_as_the_person_whom_its_backend_names(strict: ServerProcess, backend: str) -> None:
    page = token(strict, backend)
    assert start(strict, page).json()["started_by"] == "user:ann"
    other = token(strict, backend, principal="user:bob")
    assert {run["started_by"] for run in runs(strict, page).json()["items"]} == {"user:ann"}
    assert runs(strict, other).json()["items"] == []
    said_so = {"threadId": unique("t"), "runId": unique("r"), "messages": [{"id": "m", "role": "user", "content": "x"}]}
    for path in ("awp", "ag-ui"):
        expect(httpx2.post(f"{strict.url}/workflows/mine/{path}", json=said_so, headers=carried(page), timeout=30), 200)
        said_so = {**said_so, "threadId": unique("t"), "runId": unique("r")}


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"roles": ["operator"]}, "role operator"),
        ({"roles": ["viewer"]}, "right read_workflows"),
        ({"roles": ["controller"]}, "role controller"),
        ({"groups": ["audit"]}, "group audit"),
        ({"roles": ["admin"]}, "right manage_keys"),
        ({"roles": ["issuer"]}, "issue_tokens"),
    ],
    ids=str,
)
def test_a_token_never_holds_more_than_the_key_that_makes_it(
    strict: ServerProcess, backend: str, more: dict[str, Any], what: str
) -> None:
    refused = issued(strict, backend, **more)
    assert said(refused) == (403, "token.exceeds")
    assert what in refused.json()["detail"]


def test_no_backend_makes_a_page_the_person_that_stands_for_everybody(
    strict: ServerProcess, dsn: str, backend: str
) -> None:
    assert said(runs(strict, token(strict, backend, principal="user:local"))) == (401, "auth.invalid")
    own = People(dsn).key("user:local", roles=["issuer"])[1]
    assert said(runs(strict, token(strict, own, principal="user:local"))) == (200, "")


def test_what_the_key_holds_it_may_give(strict: ServerProcess, backend: str) -> None:
    page = token(strict, backend, roles=["decider", "boss", "requester"], groups=["money"])
    assert said(httpx2.get(f"{strict.url}/v1/inbox", headers=carried(page))) == (200, "")
    plain = token(strict, backend)
    assert said(httpx2.get(f"{strict.url}/v1/inbox", headers=carried(plain)))[0] == 403


def test_only_a_key_with_the_right_makes_tokens(strict: ServerProcess, dsn: str, backend: str) -> None:
    assert said(issued(strict, People(dsn).key("user:ann", roles=["operator"])[1])) == (403, "right_missing")
    assert said(issued(strict, token(strict, backend))) == (403, "right_missing")  # nor does a token make another


def test_a_token_for_some_threads_and_workflows_reaches_no_other(strict: ServerProcess, backend: str) -> None:
    thread, elsewhere = unique("t"), unique("t")
    whole = token(strict, backend)
    theirs = start(strict, whole, thread=elsewhere).json()["id"]
    page = token(strict, backend, threads=[thread], workflows=["mine"])
    ours = expect(start(strict, page, thread=thread), 201)
    for refused in (start(strict, page), start(strict, page, thread=elsewhere), start(strict, page, "other", thread)):
        assert said(refused) == (403, "credential_limited")
    assert [run["id"] for run in runs(strict, page).json()["items"]] == [ours.json()["id"]]
    absent = httpx2.get(f"{strict.url}/v1/runs/{theirs[:-1]}0", headers=carried(page))
    assert said(httpx2.get(f"{strict.url}/v1/runs/{theirs}", headers=carried(page))) == said(absent)
    for path in (f"/v1/threads/{elsewhere}", f"/v1/threads/{elsewhere}/messages"):
        assert httpx2.get(strict.url + path, headers=carried(page)).status_code == 404
    spoken = {"threadId": elsewhere, "runId": unique("r"), "messages": [{"id": "m", "role": "user", "content": "x"}]}
    expect(httpx2.post(f"{strict.url}/workflows/mine/awp", json=spoken, headers=carried(page), timeout=30), 403, 404)


def test_a_limited_token_has_no_right_that_reaches_beyond(strict: ServerProcess, dsn: str) -> None:
    roles = ["issuer", "operator"]
    operator = People(dsn).key("service:ops", roles=roles)[1]
    limited = token(strict, operator, roles=["operator"], workflows=["mine"])
    for path, body in (("/v1/events", {"type": "x"}), ("/v1/signals", {"type": "x"})):
        answer = httpx2.post(strict.url + path, json=body, headers=carried(limited))
        assert said(answer) == (403, "right_missing"), path
    assert said(httpx2.get(f"{strict.url}/v1/schedules", headers=carried(limited))) == (403, "right_missing")


async def test_a_token_ends_with_its_time_and_with_its_key(strict: ServerProcess, dsn: str) -> None:
    people = People(dsn)
    key, text = people.key("service:brief", roles=["issuer"])
    brief, lasting = token(strict, text, expires_in=1), token(strict, text)
    await until(lambda: said(runs(strict, brief)) == (401, "auth.expired"))
    assert said(runs(strict, lasting)) == (200, "")
    people.revoke(key)
    await until(lambda: said(runs(strict, lasting)) == (401, "auth.invalid"))
    _, ending = people.key("service:ending", roles=["issuer"], expires_at=datetime.now(UTC) + timedelta(seconds=60))
    until_then = datetime.fromisoformat(issued(strict, ending, expires_in=3600).json()["expires_at"])
    assert until_then < datetime.now(UTC) + timedelta(seconds=61)


@pytest.mark.parametrize(
    "body",
    [
        {"principal": "ann"},
        {"principal": "user:a\u0000"},
        {"roles": ["a b"]},
        {"threads": [""]},
        {"threads": ["x"] * 51},
        {"workflows": "mine"},
        {"expires_in": 0},
        {"expires_in": 86_401},
        {"tenant": "acme"},
        {"threads": ["t" * 200] * 40},
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_token_that_makes_no_sense_is_refused(strict: ServerProcess, backend: str, body: dict[str, Any]) -> None:
    assert issued(strict, backend, **body).status_code == 422


def changed(page: str, **claims: Any) -> str:
    """The token with other claims under its signature."""
    payload, _, signature = page.removeprefix("hait_").rpartition(".")
    says = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    text = base64.urlsafe_b64encode(json.dumps({**says, **claims}).encode()).rstrip(b"=").decode()
    return f"hait_{text}.{signature}"


def test_a_token_that_was_changed_is_none(strict: ServerProcess, dsn: str, backend: str) -> None:
    page = token(strict, backend)
    other_key, other = People(dsn).key("service:other", roles=["issuer"])
    parts = keys.split_key(other)
    assert parts is not None
    payload = changed(page).removeprefix("hait_").rpartition(".")[0]
    foreign = base64.urlsafe_b64encode(keys.sign(parts, payload.encode())).rstrip(b"=").decode()
    forged = [
        changed(page, id="user:eve"),
        changed(page, roles=["admin"]),
        changed(page, exp=2**53),
        changed(page, exp="never"),
        changed(page, exp=10**40),
        changed(page, key=other_key.id),
        changed(page, key="\u0000"),
        changed(page, more=1),
        f"hait_{payload}.{foreign}",  # signed by another key
        page[:-1],
        page + "A",
        page.replace(".", ".A", 1)[:-1],
        page.replace("hait_", "hai_", 1),
        "hait_",
        "hait_.",
        "hait_" + "A" * 40 + "." + "A" * 86,
        page.rpartition(".")[0] + "." + "A" * 86,
    ]
    for each in forged:
        assert said(runs(strict, each)) == (401, "auth.invalid"), each[:60]


def test_the_database_can_not_sign(dsn: str, backend: str) -> None:
    key = keys.split_key(backend)
    assert key is not None
    row = People(dsn).do(lambda connection: keys.find_key(connection, key.id))
    assert row is not None
    assert row.verifies is not None
    stolen = keys.KeyParts(key.id, row.verifies.hex()[:43])
    assert not row.verify(b"x", keys.sign(stolen, b"x"))
    assert row.verify(b"x", keys.sign(key, b"x"))


# --- tickets ------------------------------------------------------------------------------------------------------


def ticket(server: ServerProcess, credential: str) -> str:
    return expect(httpx2.post(f"{server.url}/v1/tickets", headers=carried(credential)), 201).json()["ticket"]


def opened(server: ServerProcess, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """The status and the code with which a stream begins."""
    with httpx2.stream("GET", server.url + path, headers=STREAM if headers is None else headers) as response:
        if response.status_code == 200:
            return 200, ""
        response.read()
        return said(response)


def test_a_ticket_opens_one_stream_as_who_asked_for_it(strict: ServerProcess, backend: str) -> None:
    page = token(strict, backend)
    run = start(strict, page).json()
    path = f"/v1/runs/{run['id']}/events?ticket={ticket(strict, page)}"
    assert opened(strict, path) == (200, "")
    assert opened(strict, path) == (401, "auth.invalid")
    stranger = token(strict, backend, principal="user:bob")
    assert opened(strict, f"/v1/runs/{run['id']}/events?ticket={ticket(strict, stranger)}") == (404, "run_unknown")


def test_a_ticket_is_used_once_however_many_come_at_once(strict: ServerProcess, backend: str) -> None:
    page = token(strict, backend)
    path = f"/v1/runs/{start(strict, page).json()['id']}/events?ticket={ticket(strict, page)}"
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: opened(strict, path), range(8)))
    assert sorted(answers) == [(200, ""), *[(401, "auth.invalid")] * 7]


def test_a_ticket_opens_nothing_but_a_stream(strict: ServerProcess, backend: str) -> None:
    page = token(strict, backend)
    assert opened(strict, f"/v1/runs?ticket={ticket(strict, page)}", {}) == (401, "auth.invalid")
    posted = httpx2.post(f"{strict.url}/v1/runs?ticket={ticket(strict, page)}", json={"workflow": "mine"})
    assert said(posted) == (401, "auth.invalid")
    assert said(runs(strict, ticket(strict, page))) == (401, "auth.invalid")  # nor is it a bearer's
    both = f"/v1/runs?ticket={ticket(strict, page)}"
    assert opened(strict, both, {**STREAM, **carried(page)}) == (400, "credential_twice")
    assert opened(strict, f"/v1/runs?ticket={ticket(strict, page)}&ticket=x") == (400, "credential_twice")
    for nonsense in ("", "x", "haik_", "haik_" + "A" * 43, "%00", page):
        assert opened(strict, f"/v1/runs?ticket={nonsense}") == (401, "auth.invalid"), nonsense


def test_a_ticket_opens_a_websocket_once(strict: ServerProcess, backend: str) -> None:
    address = f"{strict.url.replace('http', 'ws', 1)}/api/aui/ws/interactive"
    address += f"?ticket={ticket(strict, token(strict, backend))}"
    with connect(address, proxy=None):
        pass
    with pytest.raises(InvalidStatus) as refusal, connect(address, proxy=None):
        pass
    assert refusal.value.response.status_code == 401


def test_an_old_ticket_is_none_and_is_cleared_away(strict: ServerProcess, dsn: str, backend: str) -> None:
    page, people = token(strict, backend), People(dsn)
    old = ticket(strict, page)
    people.do(lambda connection: connection.execute("UPDATE tickets SET expires_at = now() - interval '1 hour'"))
    ticket(strict, page)
    assert people.do(lambda connection: connection.fetchval("SELECT count(*) FROM tickets")) == 1
    assert opened(strict, f"/v1/runs?ticket={old}") == (401, "auth.invalid")
    late = ticket(strict, page)
    people.do(lambda connection: connection.execute("UPDATE tickets SET expires_at = now()"))
    assert opened(strict, f"/v1/runs?ticket={late}") == (401, "auth.invalid")


def test_a_stream_by_ticket_ends_with_the_token_that_it_was_made_with(strict: ServerProcess, backend: str) -> None:
    page = token(strict, backend, expires_in=2)
    path = f"/api/v1/agent/runs/{unique('t')}/events?ticket={ticket(strict, page)}"
    answer = expect(httpx2.get(strict.url + path, headers=STREAM, timeout=60), 200)
    assert "auth.expired" in answer.text
