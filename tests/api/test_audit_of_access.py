"""What people send to runs, and what they were refused, is in the audit of their tenant; a flood of it is not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from hai_flow.api.permissions.sign_in_limits import DENIED, RECORDS_MAX, REFUSED
from tests.api.test_audit import House, guarded, house, opened
from tests.support.aui_client import AuiClient
from tests.support.hai_client import unique
from tests.support.identities import carried

__all__ = ["guarded", "house"]


def records(house: House, act: str, **wanted: str) -> list[dict[str, Any]]:
    auditor = house.as_("user:eve", "auditor")
    return auditor.get("/v1/audit", params={"act": act, "limit": 200, **wanted}).json()["items"]


def test_a_signal_is_recorded_once_with_the_digest_of_its_data(house: House) -> None:
    run, _ = opened(house)
    operator, data = house.as_("user:olga", "operator"), {"amount": 7, "note": unique("note")}
    to_one = {"type": "paid", "data": data, "id": unique("s")}
    for status in (201, 200):
        assert operator.post(f"/v1/runs/{run}/signals", json=to_one).status_code == status
    assert operator.post("/v1/signals", json={"type": "paid", "id": (to_all := unique("s"))}).status_code == 201
    newer, older = records(house, "signal.sent")
    assert (older["by"], older["subject"], older["run_id"]) == ("user:olga", f"signal:{to_one['id']}", run)
    assert (newer["subject"], newer["run_id"]) == (f"signal:{to_all}", None)
    assert older["details"]["type"] == "paid"
    assert data["note"] not in str(older), "its data are not the audit's"
    assert len(older["digest"]) == len(sha256().hexdigest())


def test_an_event_is_recorded_and_a_refused_one_is_not(house: House) -> None:
    operator = house.as_("user:olga", "operator")
    event = {"type": "order.placed", "data": 1, "id": unique("e")}
    assert operator.post("/v1/events", json=event).status_code == 201
    assert operator.post("/v1/events", json={**event, "data": 2}).status_code == 409
    assert operator.post("/v1/events", json={**event, "id": "x", "type": "hai.callback:x"}).status_code in (201, 403)
    found = [each for each in records(house, "event.sent") if each["subject"] == f"signal:{event['id']}"]
    assert [(each["by"], each["details"]["type"]) for each in found] == [("user:olga", "order.placed")]


def test_who_tries_what_their_key_does_not_allow_is_recorded_once_a_minute(house: House) -> None:
    viewer = house.as_("user:vic", "viewer")
    for _ in range(20):
        assert viewer.post(f"/v1/runs/{uuid4()}/stop").status_code == 403
    (record,) = records(house, DENIED)
    assert (record["by"], record["details"]["code"], record["details"]["times"]) == ("user:vic", "right_missing", 1)
    assert record["details"]["via"] == "/v1/runs/{run_id}/stop"
    assert record["details"]["credential"]


def test_a_token_that_would_hold_too_much_is_recorded_as_who_asked(house: House) -> None:
    issuer = house.as_("service:shop", "issuer")
    asked = {"principal": "user:ann", "roles": ["operator"]}
    assert issuer.post("/v1/tokens", json=asked).status_code == 403
    (record,) = records(house, DENIED)
    assert (record["by"], record["details"]["code"]) == ("service:shop", "token.exceeds")


@pytest.fixture
def forger(house: House) -> Iterator[httpx2.Client]:
    """From an address of its own."""
    headers = {"X-Forwarded-For": f"192.0.2.{uuid4().int % 250 + 1}"}
    with httpx2.Client(base_url=house.server.url, headers=headers) as client:
        yield client


@pytest.mark.parametrize("kind", ["wrong", "revoked", "expired"])
def test_a_refused_key_is_recorded_where_it_belongs(house: House, forger: httpx2.Client, kind: str) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    key, text = house.people.key("user:gus", tenant=house.tenant, expires_at=past if kind == "expired" else None)
    if kind == "revoked":
        house.people.revoke(key)
    sent = text[:-4] + "AAAA" if kind == "wrong" else text
    for _ in range(10):
        assert forger.get("/v1/runs", headers=carried(sent)).status_code == 401
    (record,) = records(house, REFUSED)
    assert (record["by"], record["details"]["credential"]) == ("unknown", key.id)
    assert record["details"]["code"] == ("auth.expired" if kind == "expired" else "auth.invalid")
    assert text[20:] not in str(record)


def test_an_attempt_over_a_socket_beyond_a_keys_rights_is_recorded(house: House) -> None:
    opened(house)
    viewer = house.people.person("user:vic", roles=["viewer"], tenant=house.tenant)
    client = AuiClient(house.server.url, "ask", viewer, session_id=unique("t"))
    try:
        client.send(type="input", payload={"message": "Begin!"})
        said = client.until("aui_action_ack")
    finally:
        client.close()
    assert (said["status"], said["error_code"]) == ("refused", "right_missing")
    while not (found := records(house, DENIED)):  # it is told first, and written down then
        pass
    (record,) = found
    assert (record["by"], record["details"]["code"]) == ("user:vic", "right_missing")
    assert record["details"]["via"] == "/api/aui/ws/{stream_type}"


@pytest.mark.costly
def test_a_flood_from_many_addresses_leaves_a_bounded_number_of_records(house: House) -> None:
    key, text = house.people.key("user:gus", tenant=house.tenant)
    with httpx2.Client(base_url=house.server.url, headers=carried(text[:-4] + "AAAA")) as client:
        for number in range(3 * RECORDS_MAX):
            client.get("/v1/runs", headers={"X-Forwarded-For": f"198.51.{number // 200}.{number % 200 + 1}"})
    assert len(records(house, REFUSED)) <= 2 * RECORDS_MAX
    assert key.id not in house.server.log
