"""The outcome of an approval told to a webhook: signed, once for each status, tried again, given up, and never to an
address that this server must not reach."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest

from tests.api.test_a2a_push import Receiver, receiving, wait_for_outcome
from tests.api.test_approvals import BOSS, ROLES, TRANSFER, House, refusal
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.postgres import Server, connecting
from tests.support.server import serving
from tests.support.skewed import SkewedServer
from tests.support.waiting import wait_for

REACHING: Final = {**KEYS, "HAI_FLOW_HTTP_HOSTS": "127.0.0.1"}
SECRET: Final = "a-secret-of-the-agent"


@pytest.fixture(scope="module")
def house(dsn: str) -> Iterator[House]:
    with serving(dsn, environment=REACHING) as server:
        yield House(server, People(dsn))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def to(receiver: Receiver, secret: str = SECRET) -> dict[str, str]:
    return {"url": receiver.url, "secret": secret}


def list_statuses(receiver: Receiver) -> list[str]:
    """The statuses that were told, in order."""
    return [json.loads(body)["data"]["status"] for _, body in receiver.calls]


def test_outcome_is_told_signed_and_without_contents(house: House, receiver: Receiver) -> None:
    approval = house.ask(webhook=to(receiver))
    house.decide(approval)
    wait_for(lambda: list_statuses(receiver) == ["approved"])
    headers, body = receiver.calls[0]
    assert json.loads(body)["type"] == "approval.approved"
    assert json.loads(body)["data"] == {"id": approval["id"], "status": "approved"}
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"
    assert SECRET not in json.dumps(headers)
    assert house.consume(approval["id"], arguments=TRANSFER).status_code == 200
    wait_for(lambda: list_statuses(receiver) == ["approved", "consumed"])
    assert len({headers["webhook-id"] for headers, _ in receiver.calls}) == 2


@pytest.mark.parametrize("outcome", ["rejected", "expired", "cancelled", "failed"])
def test_every_other_end_is_told_too(house: House, receiver: Receiver, outcome: str) -> None:
    changes: dict[str, Any] = {"expires_in": "1s"} if outcome == "expired" else {}
    if outcome == "failed":
        changes["policy"] = {"from": ["agent:bot"], "exclude": ["agent:bot"]}
    approval = house.ask(webhook=to(receiver), **changes)
    if outcome == "rejected":
        house.decide(approval, decision="reject")
    if outcome == "cancelled":
        stopped = house.call("user:oli", "POST", f"/v1/runs/{approval['id']}/stop", json={})
        assert stopped.status_code in (200, 202), stopped.text
    wait_for(lambda: list_statuses(receiver) == [outcome])


def test_call_that_fails_is_made_again_under_the_same_id_and_signed_anew(house: House, receiver: Receiver) -> None:
    receiver.statuses = [503]
    house.decide(house.ask(webhook=to(receiver)))
    wait_for(lambda: len(receiver.calls) >= 2)
    assert list_statuses(receiver) == ["approved", "approved"]
    assert len({headers["webhook-id"] for headers, _ in receiver.calls}) == 1


async def test_status_that_is_never_taken_is_given_up_and_the_next_one_is_told(
    dsn: str, house: House, receiver: Receiver
) -> None:
    receiver.statuses = [500, 500]
    approval = await asyncio.to_thread(house.ask, webhook=to(receiver))
    await asyncio.to_thread(house.decide, approval)
    await asyncio.to_thread(wait_for, lambda: receiver.calls)
    async with connecting(dsn) as connection:
        last = "UPDATE pushes SET tries = 14, due_at = now() WHERE run_id = $1::uuid"
        await connection.execute(last, approval["id"])
        await asyncio.to_thread(wait_for, lambda: "push_given_up" in house.server.log)
    assert await asyncio.to_thread(house.consume, approval["id"], arguments=TRANSFER)
    await asyncio.to_thread(wait_for, lambda: list_statuses(receiver)[-1:] == ["consumed"])
    assert list_statuses(receiver) == ["approved", "approved", "consumed"]


def test_outcome_outlives_the_server_that_was_asked(postgres_server: Server, receiver: Receiver) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn, environment=REACHING) as first:
            house = House(first, People(dsn))
            receiver.statuses = [500]
            approval = house.ask(webhook=to(receiver))
            house.decide(approval)
            wait_for(lambda: receiver.calls)
            wait_for_outcome(dsn)
            first.kill()
        with serving(dsn, environment=REACHING):
            wait_for(lambda: len(receiver.calls) >= 2)
    assert set(list_statuses(receiver)) == {"approved"}
    assert len({headers["webhook-id"] for headers, _ in receiver.calls}) == 1


def test_request_again_under_its_key_tells_the_newest_address(house: House, receiver: Receiver) -> None:
    body = {"action": "transfer", "arguments": TRANSFER, "policy": BOSS, "webhook": to(receiver)}
    with receiving() as before:
        for each in ({**body, "webhook": to(before)}, body):
            asked = house.call("agent:bot", "POST", "/v1/approvals", json=each, headers={"Idempotency-Key": "again"})
            assert asked.status_code in (200, 201), asked.text
        house.decide(asked.json())
        wait_for(lambda: list_statuses(receiver) == ["approved"])
        assert before.calls == []


WRONG: Final[list[dict[str, Any]]] = [
    {"url": "http://169.254.169.254/latest"}, {"url": "http://10.0.0.1/"}, {"url": "http://[::1]/"},
    {"url": "file:///etc/passwd"}, {"url": "ftp://example.com/"}, {"url": "http://ann:pw@127.0.0.1/"},
    {"url": ""}, {"url": 7}, {"url": None}, {"url": "http://127.0.0.1/\r\nX: y"}, {"url": "http://127.0.0.1:0/"},
    {"url": "http://127.0.0.1:99999/"}, {"url": "http://127.0.0.1/" + "x" * 2000}, {"url": "http://192.0.1.1/"},
    {"secret": "short"}, {"secret": None}, {"secret": "x" * 1001}, {"secret": "a-secret-of-the-agent\r\nX: y"},
    {"token": "what is that"},
]  # fmt: skip


def test_wrong_webhook_is_refused_and_nobody_is_asked(house: House, receiver: Receiver) -> None:
    before = house.call("user:oli", "GET", "/v1/runs").json()["items"]
    for change in WRONG:
        webhook = {name: value for name, value in {**to(receiver), **change}.items() if value is not None}
        body = {"action": "transfer", "arguments": TRANSFER, "policy": BOSS, "webhook": webhook}
        refused = house.call("agent:bot", "POST", "/v1/approvals", json=body)
        assert refusal(refused) in ((422, "approval_webhook"), (422, "request.invalid")), change
    assert house.call("user:oli", "GET", "/v1/runs").json()["items"] == before


def test_clients_of_a2a_do_not_see_the_webhook(house: House, receiver: Receiver) -> None:
    approval = house.ask(webhook=to(receiver))
    params = {"taskId": approval["id"]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTaskPushNotificationConfigs", "params": params}
    listed = house.call("agent:bot", "POST", "/a2a", json=body, headers={"A2A-Version": "1.0"}).json()
    assert listed["result"]["configs"] == []


@pytest.mark.parametrize("change", ["revoked_at = now()", "expires_at = now()"])
@pytest.mark.parametrize("has_another", [False, True])
def test_an_address_is_forgotten_once_its_owner_has_no_key_any_more(
    house: House, receiver: Receiver, change: str, has_another: bool
) -> None:
    agent = f"agent:{unique('bot')}"
    body = {"action": "transfer", "arguments": TRANSFER, "policy": BOSS, "webhook": to(receiver)}
    headers = house.people.person(agent, roles=ROLES["agent:bot"])
    approval = httpx2.post(f"{house.server.url}/v1/approvals", json=body, headers=headers).json()
    # The other key is there before: the address is looked at whenever its run has changed.
    kept = house.people.key(agent)[0].id if has_another else ""
    house.people.do(lambda c: c.execute(f"UPDATE keys SET {change} WHERE principal = $1 AND id <> $2", agent, kept))
    house.decide(approval)
    if has_another:
        wait_for(lambda: list_statuses(receiver) == ["approved"])
        return
    count = "SELECT count(*) FROM pushes WHERE run_id = $1::uuid"
    wait_for(lambda: house.people.do(lambda c: c.fetchval(count, approval["id"])) == 0)
    assert not receiver.calls


@pytest.mark.parametrize("roles", [["operator"], ["requester"]])
def test_an_address_goes_with_the_roles_that_showed_its_run(house: House, receiver: Receiver, roles: list[str]) -> None:
    """The key by which an operator left it is revoked; their other key shows them the run, or does not."""
    operator = f"user:{unique('op')}"
    key, text = house.people.key(operator, roles=["operator"])
    house.people.person(operator, roles=roles)
    approval = house.ask()
    params = {"taskId": approval["id"], "url": receiver.url}
    body = {"jsonrpc": "2.0", "id": 1, "method": "CreateTaskPushNotificationConfig", "params": params}
    headers = {**carried(text), "A2A-Version": "1.0"}
    created = httpx2.post(f"{house.server.url}/a2a", json=body, headers=headers)
    assert "result" in created.json(), created.text
    wait_for(lambda: len(receiver.calls) == 1)
    house.people.revoke(key)
    house.decide(approval)
    assert house.look(approval["id"], 30)["status"] == "approved"
    assert house.consume(approval["id"], arguments=TRANSFER).status_code == 200
    count = "SELECT count(*) FROM pushes WHERE run_id = $1::uuid"
    if roles == ["operator"]:
        wait_for(lambda: len(receiver.calls) == 2)
        return
    wait_for(lambda: house.people.do(lambda c: c.fetchval(count, approval["id"])) == 0)
    assert len(receiver.calls) == 1


@pytest.mark.parametrize("ahead", [600.0, -600.0])
def test_a_call_is_signed_at_the_time_of_the_database(skewed: SkewedServer, receiver: Receiver, ahead: float) -> None:
    skewed.skew(ahead)
    with serving(skewed.dsn, environment=REACHING) as server:
        house = House(server, People(skewed.dsn))
        house.decide(house.ask(webhook=to(receiver)))
        wait_for(lambda: receiver.calls)
        headers, _ = receiver.calls[0]
        assert abs(int(headers["webhook-timestamp"]) - time.time() - ahead) < 60
