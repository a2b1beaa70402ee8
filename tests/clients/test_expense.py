"""An expense goes through three people who prove themselves in three ways over three protocols, and through the clock;
afterwards the audit says who did what, and verifies.

Eve has signed in at a real OpenID Connect provider, and her page speaks AG-UI with the token that she got there. Ann's
page speaks HAI with a frontend token, which its backend has asked for with a key of its own. Zoe, whom the clock asks
because nobody else has answered, has a key and a terminal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import httpx2
import pytest

from tests.clients.providers import CLIENT, Provider, providing
from tests.support.agui_client import AguiClient
from tests.support.commands import run
from tests.support.identities import People, carried
from tests.support.issuers import identity_file
from tests.support.postgres import Server
from tests.support.server import ROOT, YAML, ServerProcess, expect, serving
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages

T = TypeVar("T")
EXPENSE = {"employee": "Eve", "amount": 480.0, "currency": "EUR", "reason": "A chair"}
VALUES = {"cost_center": "CC-1234"}


def wait_for(fact: Callable[[], T], seconds: float = 20.0) -> T:
    return asyncio.run(until(fact, seconds))


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing() as provider:
        yield provider


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """What the server is told of pages."""
    return {}


@pytest.fixture(scope="module")
def house(
    provider: Provider, pages: dict[str, str], postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, People, str]]:
    issuer = {"issuer": provider.url, "audience": CLIENT, "jwks": provider.described["jwks_uri"]}
    file = identity_file(tmp_path_factory.mktemp("identity"), {"corp": issuer})
    with postgres_server.database() as dsn:
        environment = {"HAI_FLOW_IDENTITY": str(file), "HAI_FLOW_PUBLISH": "1", **pages}
        with serving(dsn, environment=environment) as server:
            yield server, People(dsn), dsn


def published(server: ServerProcess, people: People, seconds: int) -> None:
    """The example, whose deciders have some seconds in place of two days."""
    source = (ROOT / "workflows" / "examples" / "expense_approval.flow.yaml").read_text()
    for old, new in (("remind: [4h, 1d]", "remind: [1s]"), ("deadline: 2d", f"deadline: {seconds}s")):
        assert source.count(old) == 1
        source = source.replace(old, new)
    pat = people.person("user:pat", roles=["publisher"])
    expect(httpx2.post(f"{server.url}/v1/workflows", content=source, headers={**pat, **YAML}), 201)


BACKEND = ["issuer", "decider"]
"""The roles of the key with which Ann's page gets its tokens."""


def test_three_people_decide_an_expense_over_three_protocols_verified(
    provider: Provider, house: tuple[ServerProcess, People, str]
) -> None:
    server, people, _ = house

    def vote(thread_id: str, pending_id: str) -> None:
        backend = carried(people.key("service:backend", roles=BACKEND, speaks_for=["user:ann"])[1])
        wanted = {"principal": "user:ann", "roles": ["decider"], "threads": [thread_id], "expires_in": 60}
        issued = expect(httpx2.post(f"{server.url}/v1/tokens", json=wanted, headers=backend), 201)
        content = json.dumps({"decision": "approve", "values": VALUES, "reason": "she needs one"})
        message = {"id": "a1", "role": "tool", "toolCallId": pending_id, "content": content}
        body = {"threadId": thread_id, "runId": "r2", "messages": [message]}
        ann = carried(issued.json()["token"])
        expect(httpx2.post(f"{server.url}/awp", json=body, headers=ann, timeout=30), 200)

    decided_by_three(provider, house, vote, seconds=2)


def decided_by_three(
    provider: Provider, house: tuple[ServerProcess, People, str], vote: Callable[[str, str], None], *, seconds: int
) -> None:
    """Eve submits an expense; Ann gives her `vote` on the question of a thread; when the `seconds` of the deciders are
    over, Zoe is asked. Nobody else could have decided, and the audit says so."""
    server, people, dsn = house
    published(server, people, seconds)
    eve = carried(provider.sign_in("eve"))
    page = AguiClient(server.url, workflow="expense_approval", headers=eve)
    asked = page.post({"id": "m1", "role": "user", "content": "A chair"}, forwardedProps={"input": EXPENSE})
    assert asked.status == 200

    operator = people.person("user:olga", roles=["operator"])

    def get(path: str) -> dict[str, Any]:
        return httpx2.get(f"{server.url}{path}", headers=operator).json()

    (found,) = wait_for(lambda: get("/v1/runs")["items"])
    assert found["started_by"] == "user:eve"
    (pending,) = wait_for(lambda: get("/v1/pendings")["items"])
    id = pending["id"]

    own = httpx2.post(
        f"{server.url}/v1/pendings/{id}/decide", json={"decision": "approve", "values": VALUES}, headers=eve
    )
    assert own.status_code == 403, own.text

    vote(found["thread_id"], id)
    votes = get(f"/v1/pendings/{id}")
    assert votes["status"] == "open", votes

    key = people.key("user:zoe", roles=["decider"])[1]

    def zoe_decides() -> bool:
        arguments = (
            "decide",
            id,
            "approve",
            "--values",
            json.dumps(VALUES),
            "--reason",
            "fine",
            "--server",
            server.url,
        )
        done = run(*arguments, HAI_FLOW_KEY=key)
        return done.returncode == 0

    wait_for(zoe_decides, seconds + 20.0)
    ended = wait_for(lambda: each if (each := get(f"/v1/runs/{found['id']}"))["status"] == "finished" else None)
    assert ended is not None
    assert ended["output"]["status"] == "booked"
    events = get(f"/v1/runs/{found['id']}/events?limit=1000")["items"]
    order = [
        event["type"] for event in events if event["type"] in ("vote_cast", "pending_escalated", "pending_decided")
    ]
    assert order == ["vote_cast", "pending_escalated", "vote_cast", "pending_decided"]

    auditor = people.person("user:rita", roles=["auditor"])
    listed = httpx2.get(f"{server.url}/v1/audit", params={"run_id": found["id"]}, headers=auditor).json()["items"]
    told = [(each["act"], each["by"], each["details"]["way"], each["details"]["via"]) for each in reversed(listed)]
    assert [each[:3] for each in told] == [
        ("run.started", "user:eve", "jwt"),
        ("pending.answered", "user:ann", "token"),
        ("pending.answered", "user:zoe", "key"),
    ]
    assert "ag-ui" in told[0][3]
    assert {each["digest"] for each in listed[:2]} == {pending["digest"]}

    def sealed() -> bool:
        verified = run("audit", "verify", "--json", HAI_FLOW_DATABASE_URL=dsn)
        assert verified.returncode == 0, verified.stdout
        return json.loads(verified.stdout)["waiting"] == 0

    wait_for(sealed)
