"""Questions that nobody can decide are found, told of once to those who can mend it, and found no more when mended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pytest

from hai_flow.api.permissions.rights import ROLES, Right
from hai_flow.notify.channels import NotifyFile, Person
from hai_flow.runtime.people.ids import NO_IDS, Aliases, signs_in_by_keys
from hai_flow.runtime.people.roster import DECIDER, Roster, Rosters
from hai_flow.runtime.people.undecidable import Stranded
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.settings import Settings
from hai_flow.store.people import absences
from hai_flow.store.people import undecidable as store
from hai_flow.store.people.absences import AbsenceRow
from tests.runtime.test_notifier import FLOW, World, world
from tests.support.identities import People

if TYPE_CHECKING:
    from hai_flow.store.postgres.connections import Pool

__all__ = ["world"]

BOSS = [DECIDER, "boss"]


async def look(
    world: World, file: NotifyFile | None = None, *, by_keys: bool = True, ids: Mapping[str, Aliases] = NO_IDS
) -> None:
    runtime = world.runtime
    rosters = Rosters(runtime.tenants, file, None, by_keys=by_keys, ids=ids)
    await Stranded(runtime.database, runtime.catalog, rosters, runtime.rows).look()


async def why(world: World, run_id: UUID) -> str | None:
    return await world.runtime.database.api.fetchval("SELECT nobody FROM pendings WHERE run_id = $1", run_id)


async def leave(world: World, person: str, delegate: str | None) -> None:
    now = datetime.now(UTC)
    until = now + timedelta(days=1)
    row = AbsenceRow(
        uuid4(), person, delegate, now.date(), now.date(), "UTC", now, until, BOSS, (), None, person, now
    )  # fmt: skip
    await absences.create(world.runtime.database.api, LOCAL_TENANT, row)


async def revoke(world: World, person: str) -> None:
    await world.runtime.database.api.execute("UPDATE keys SET revoked_at = now() WHERE principal = $1", person)


async def test_a_question_to_an_empty_role_is_found_until_somebody_gets_it(world: World) -> None:
    people = People(world.runtime.dsn)
    run_id = await world.ask("[email]")
    await look(world)
    assert await why(world, run_id) == "nobody with a key matches role:boss"
    people.key("user:ann", roles=BOSS)
    await look(world)
    assert await why(world, run_id) is None
    await revoke(world, "user:ann")
    await look(world)
    assert await why(world, run_id) is not None


@pytest.mark.parametrize(
    ("person", "roles", "fault"),
    [
        ("user:req", BOSS, "user:req started this run"),
        ("user:ann", ["boss"], "nobody with a key"),
        ("user:ann", [DECIDER], "nobody with a key"),
        ("user:ann", BOSS, None),
    ],
)
async def test_who_may_not_decide_leaves_it_stranded(
    world: World, person: str, roles: list[str], fault: str | None
) -> None:
    run_id = await world.ask("[]")
    People(world.runtime.dsn).key(person, roles=roles)
    await look(world)
    reason = await why(world, run_id)
    assert reason is None if fault is None else fault in str(reason)


async def test_an_absence_strands_a_question_unless_its_delegate_can_decide(world: World) -> None:
    people = People(world.runtime.dsn)
    people.key("user:ann", roles=BOSS)
    run_id = await world.ask("[]")
    await leave(world, "user:ann", None)
    await look(world)
    assert "user:ann is away" in str(await why(world, run_id))
    await world.runtime.database.api.execute("UPDATE absences SET delegate = 'user:cy'")
    await look(world)
    assert "user:cy has no key" in str(await why(world, run_id))
    people.key("user:cy", roles=[DECIDER])
    await look(world)
    assert await why(world, run_id) is None


async def test_each_change_of_an_absence_strands_or_mends_an_open_question(world: World) -> None:
    people, database = People(world.runtime.dsn), world.runtime.database.api
    people.key("user:ann", roles=BOSS)
    people.key("user:cy", roles=[DECIDER])
    run_id = await world.ask("[]")
    await leave(world, "user:ann", "user:cy")

    async def change(person: str, what: str) -> None:
        await database.execute(f"UPDATE absences SET {what} WHERE person = $1", person)

    async def cancel(person: str) -> None:
        await database.execute("DELETE FROM absences WHERE person = $1", person)

    steps: list[tuple[Awaitable[Any], str | None]] = [
        (leave(world, "user:cy", None), "user:cy is away"),
        (change("user:cy", "until = now()"), None),  # it ends
        (change("user:cy", "until = now() + interval '2 days'"), "user:cy is away"),  # is extended
        (change("user:cy", "since = now() + interval '1 day'"), None),  # begins later
        (change("user:cy", "since = now() - interval '1 day', delegate = 'user:ann'"), "in a circle"),
        (change("user:ann", "until = now()"), None),
        (change("user:ann", "until = now() + interval '1 day'"), "in a circle"),
        (cancel("user:cy"), None),
        (revoke(world, "user:cy"), "user:cy has no key"),  # the delegate may decide no more
        (asyncio.to_thread(people.key, "user:cy", roles=["viewer"]), "user:cy"),
        (cancel("user:ann"), None),
    ]
    for n, (step, reason) in enumerate(steps):
        await step
        await look(world)
        found = await why(world, run_id)
        assert found is None if reason is None else reason in str(found), (n, found)


async def test_a_question_for_an_agent_of_its_requester_is_stranded(world: World) -> None:
    people = People(world.runtime.dsn)
    people.key("agent:buyer", roles=[DECIDER], speaks_for=["user:ann"])
    of_agent = FLOW.replace("role:boss", "['agent:buyer'], exclude: [requester]")
    own, others = [await world.ask("[]", of_agent, requester=who) for who in ("user:ann", "user:req")]
    await look(world)
    assert "user:ann" in str(await why(world, own))
    assert await why(world, others) is None


async def test_an_excluded_role_of_another_key_strands_a_question(world: World) -> None:
    """As it keeps the person from deciding; also whoever decides for them."""
    people = People(world.runtime.dsn)
    people.key("user:ann", roles=BOSS)
    people.key("user:cy", roles=[DECIDER])
    run_id = await world.ask("[], exclude: [requester, role:auditor]")
    await look(world)
    assert await why(world, run_id) is None
    people.key("user:ann", roles=["auditor"])
    await look(world)
    assert "role:auditor" in str(await why(world, run_id))
    await world.runtime.database.api.execute("UPDATE keys SET revoked_at = now() WHERE roles = '{auditor}'")
    await leave(world, "user:ann", "user:cy")
    await look(world)
    assert await why(world, run_id) is None
    people.key("user:cy", roles=["auditor"])
    await look(world)
    assert "role:auditor" in str(await why(world, run_id))


async def test_a_person_with_two_seats_is_too_few_for_a_question_of_two(world: World) -> None:
    people = People(world.runtime.dsn)
    for person in ("user:ann", "user:bob"):
        people.key(person, roles=BOSS)
    run_id = await world.ask("[]", FLOW.replace("from: role:boss,", "from: role:boss, quorum: 2,"))
    await look(world)
    assert await why(world, run_id) is None
    await leave(world, "user:ann", "user:bob")
    await look(world)
    assert await why(world, run_id) == "it needs 2 more people, and 1 can decide"


async def test_keys_that_are_over_or_of_another_tenant_decide_nothing(world: World) -> None:
    people = People(world.runtime.dsn)
    run_id = await world.ask("[]")
    people.key("user:ann", roles=BOSS, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    people.key("user:bob", roles=BOSS, tenant="elsewhere")
    await look(world)
    assert await why(world, run_id) == "nobody with a key matches role:boss"


async def test_a_tenant_that_cannot_be_read_keeps_no_other_from_its_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, list_selectors, load = uuid4(), store.list_selectors, Rosters.load

    async def list_one_more(pool: Pool) -> dict[UUID, list[str]]:
        return {broken: ["role:boss"], **await list_selectors(pool)}

    async def refuse_broken(rosters: Rosters, pool: Pool, tenant: UUID) -> Roster:
        if tenant == broken:
            raise ValueError("a row of this tenant can't be read")
        return await load(rosters, pool, tenant)

    monkeypatch.setattr(store, "list_selectors", list_one_more)
    monkeypatch.setattr(Rosters, "load", refuse_broken)
    run_id = await world.ask("[email]")
    await look(world)
    assert await why(world, run_id) == "nobody with a key matches role:boss"
    broken = LOCAL_TENANT
    await look(world)
    assert await why(world, run_id) is not None


async def test_with_issuers_a_question_to_absent_people_is_found(world: World) -> None:
    run_id = await world.ask("[]", FLOW.replace("from: role:boss,", "from: [user:ann],"))
    other = await world.ask("[]", FLOW.replace("from: role:boss,", "from: [user:ann, group:team],"))
    await leave(world, "user:ann", None)
    await look(world, by_keys=False)
    assert "user:ann is away" in str(await why(world, run_id))
    assert await why(world, other) is None


async def test_where_issuers_say_who_people_are_a_role_is_never_taken_for_empty(world: World) -> None:
    run_id = await world.ask("[]")
    await look(world, by_keys=False)
    assert await why(world, run_id) is None


ISSUERS = "issuers: {corp: {issuer: https://corp.example, audience: flow, jwks: https://corp.example/keys}}"
PEOPLE = "people: {user:ann: [user:corp-ann]}"


@pytest.mark.parametrize(
    ("rest", "by_keys"), [("", True), (PEOPLE, True), (ISSUERS, False), (f"{PEOPLE}\n{ISSUERS}", False)]
)
def test_an_identity_file_without_issuers_leaves_signing_in_to_keys(tmp_path: Path, rest: str, by_keys: bool) -> None:
    file = tmp_path / "identity.yaml"
    file.write_text(f"hai: identity/v1\n{rest}\n")
    assert signs_in_by_keys(Settings(identity=str(file))) is by_keys
    assert (signs_in_by_keys(Settings(identity="keys")), signs_in_by_keys(Settings())) == (True, False)


@pytest.mark.parametrize("by_keys", [True, False])
async def test_a_complete_file_of_people_tells_an_empty_role(world: World, by_keys: bool) -> None:
    complete = msgspec.structs.replace(world.file, complete=True)
    role, chief = await world.ask("[email]"), await world.ask("[email]", FLOW.replace("role:boss", "role:chef"))
    await look(world, complete, by_keys=by_keys)
    assert (await why(world, role), "role:chef" in str(await why(world, chief))) == (None, True)
    await look(world, world.file, by_keys=by_keys)
    assert (await why(world, role), await why(world, chief) is not None) == (None, by_keys)


async def test_people_without_a_key_decide_by_a_channel_or_by_their_issuer(world: World) -> None:
    """Of the file's people of the role boss, ann and bob have an address. Where keys alone let people in, a question
    that no mail is sent for reaches neither."""
    unreachable = {**world.file.people, "user:zoe": Person(roles=("chef",))}
    complete = msgspec.structs.replace(world.file, people=unreachable, complete=True)
    by_mail, by_hook = await world.ask("[email]"), await world.ask("[pager]")
    of_zoe = await world.ask("[email]", FLOW.replace("role:boss", "role:chef"))
    await look(world, complete)
    assert await why(world, of_zoe) is not None
    assert (await why(world, by_mail), "file of channels" in str(await why(world, by_hook))) == (None, True)
    await look(world, complete, by_keys=False)
    assert (await why(world, by_hook), await why(world, of_zoe)) == (None, None)


@pytest.mark.parametrize("id", ["user:ann", "user:annie"])
async def test_who_was_let_go_is_reached_by_no_channel_any_more(world: World, id: str) -> None:
    """By whichever id of theirs the revoked key was; where issuers let people sign in, a key says nothing of that."""
    ids = {"default": Aliases({"user:annie": "user:ann"})}
    ann = msgspec.structs.replace(world.file, people={"user:ann": world.file.people["user:ann"]}, complete=True)
    key, _ = People(world.runtime.dsn).key(id, roles=["viewer"])
    run_id = await world.ask("[email]")
    await look(world, ann, ids=ids)
    assert await why(world, run_id) is None
    People(world.runtime.dsn).revoke(key)
    await look(world, ann, ids=ids)
    assert await why(world, run_id) is not None
    await look(world, ann, by_keys=False, ids=ids)
    assert await why(world, run_id) is None


async def test_absences_of_the_people_of_the_file_count(world: World) -> None:
    complete = msgspec.structs.replace(world.file, complete=True)
    run_id = await world.ask("[]")
    await leave(world, "user:ann", None)
    await look(world, complete, by_keys=False)
    assert await why(world, run_id) is None
    await leave(world, "user:bob", "user:zoe")
    await look(world, complete, by_keys=False)
    assert "user:zoe has no key" in str(await why(world, run_id))


async def test_operators_are_told_once_each_time(world: World) -> None:
    operator = Person(email="op@example.com", roles=("operator",))
    place = {**world.file.people, "user:op": operator}
    file = msgspec.structs.replace(world.file, people=place)
    run_id = await world.ask("[pager]")
    for _ in range(2):
        await look(world)
    async with world.notifier(file):
        ended = await world.ended(run_id, 3)
    assert sorted((each.what, each.channel, each.person, each.status) for each in ended) == [
        ("opened", "pager", None, "sent"),
        ("stranded", "email", "user:op", "sent"),
        ("stranded", "pager", None, "sent"),
    ]
    (mail,) = [each for each in world.mail.mails if str(each["To"]) == "op@example.com"]
    assert "Nobody can decide this" in str(mail.get_payload())
    assert "/links/" not in str(mail.get_payload())


def test_the_role_by_which_keys_decide_is_the_only_one() -> None:
    assert [role for role, rights in ROLES.items() if Right.DECIDE in rights] == [DECIDER]
