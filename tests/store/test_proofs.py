"""What keys and sessions stand for, and who was let go: a key of theirs was revoked, and none is good."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from hai_flow.store.identity import proofs
from hai_flow.store.identity.proofs import Holding
from tests.support.hai_client import unique
from tests.support.identities import People

SESSION = """
INSERT INTO sessions (sha256, tenant, principal, expires_at, good_until)
VALUES ($1, $2, $3, now() + $4 * interval '1 s', now() + $5 * interval '1 s')
"""
GOOD, EXPIRED, REVOKED = "good", "expired", "revoked"


@pytest.fixture
def people(dsn: str) -> People:
    return People(dsn)


def make_key(people: People, person: str, state: str, role: str = "a", tenant: str = "default") -> str:
    ends = datetime.now(UTC) - timedelta(hours=1) if state == EXPIRED else None
    key, _ = people.key(person, roles=[role], groups=["g"], tenant=tenant, expires_at=ends)
    if state == REVOKED:
        people.revoke(key)
    return key.id


@pytest.mark.parametrize(
    ("states", "has_left"),
    [
        ([], False), ([GOOD], False), ([EXPIRED], False), ([REVOKED], True), ([REVOKED, GOOD], False),
        ([REVOKED, EXPIRED], True), ([EXPIRED, GOOD], False), ([GOOD, REVOKED, EXPIRED], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ids_count", [1, 2])
def test_who_has_a_revoked_key_and_no_good_one_has_left(
    people: People, states: list[str], has_left: bool, ids_count: int
) -> None:
    ids = [f"user:{unique('ann')}" for _ in range(ids_count)]
    for number, state in enumerate(states):
        make_key(people, ids[number % ids_count], state)
    make_key(people, ids[0], GOOD, tenant="acme")
    make_key(people, "user:bob", GOOD)
    tenant = people.tenant("default")
    holders = people.do(lambda connection: proofs.find_key_holders(connection, tenant, ids))
    assert proofs.has_left(holders, ids) == has_left


def test_the_keys_of_a_person_stand_together_for_what_is_good_of_them(people: People) -> None:
    ann, bob, cy = (f"user:{unique(name)}" for name in ("ann", "bob", "cy"))
    for state, role in ((GOOD, "a"), (GOOD, "b"), (EXPIRED, "c"), (REVOKED, "d")):
        make_key(people, ann, state, role)
    make_key(people, ann, GOOD, "e", tenant="acme")
    make_key(people, bob, REVOKED)
    tenant = people.tenant("default")
    assert people.do(lambda connection: proofs.load_holdings_of_people(connection, tenant, [ann, bob, cy])) == {
        ann: Holding(frozenset("ab"), frozenset("g")),
        bob: Holding(frozenset(), frozenset()),
    }


def test_a_key_stands_for_its_roles_as_long_as_it_is_good(people: People) -> None:
    ids = [make_key(people, "user:cy", state) for state in (GOOD, EXPIRED, REVOKED)]
    ids.append(make_key(people, "user:cy", GOOD, tenant="acme"))
    tenant = people.tenant("default")
    holdings = people.do(lambda connection: proofs.load_holdings_of_keys(connection, tenant, ids))
    assert holdings == {ids[0]: Holding(frozenset("a"), frozenset("g"))}


@pytest.mark.parametrize(
    ("lasts", "good_for", "of_tenant", "stands"),
    [
        (60, None, "default", True), (60, 60, "default", True), (60, -1, "default", False),
        (-1, None, "default", False), (60, None, "acme", False),
    ],
)  # fmt: skip
def test_a_session_stands_for_its_roles_until_it_or_its_proof_ends(
    people: People, lasts: int, good_for: int | None, of_tenant: str, stands: bool
) -> None:
    digest, tenant, owner = unique("s").encode(), people.tenant("default"), people.tenant(of_tenant)
    principal = json.dumps({"who": {"id": "user:ann", "roles": ["a"], "groups": ["g"]}})
    people.do(lambda connection: connection.execute(SESSION, digest, owner, principal, lasts, good_for))
    holdings = people.do(lambda connection: proofs.load_holdings_of_sessions(connection, tenant, [digest]))
    assert holdings == ({digest: Holding(frozenset("a"), frozenset("g"))} if stands else {})
