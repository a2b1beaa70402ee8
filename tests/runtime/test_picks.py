"""`pick`: of those whom a question asks, few decide, those with the fewest open picks; and others when they can't."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.notify.channels import read_channels
from hai_flow.runtime.commit.states import state_at
from hai_flow.runtime.people.picks import Picks
from hai_flow.runtime.people.roster import DECIDER, Rosters
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import KEYS
from hai_flow.store.people import absences, picks
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.people.inbox import Filters
from tests.runtime.conftest import Make
from tests.runtime.test_notifier import World
from tests.support.identities import People
from tests.support.receivers import hook_server, mail_server
from tests.support.values import require
from tests.support.waiting import until

BOSS = [DECIDER, "boss"]
FILE = """
hai: notify/v1
channels:
  email: {kind: email, host: 127.0.0.1, port: MAIL, security: none, from: "Flow <flow@example.com>"}
people:
  user:ann: {email: ann@example.com, roles: [boss]}
  user:bob: {email: bob@example.com, roles: [boss]}
  user:eve: {email: eve@example.com, roles: [boss]}
"""
FLOW = """hai: flow/v1
name: NAME
version: 1
steps:
  - id: go
    approve: {title: "Spend it?", from: role:boss, pick: 2, notify: NOTIFYMORE, deadline: 1d,
       on_deadline: [{escalate: {from: "role:chief", deadline: 1d}}, reject]}
"""


class Office:
    """A process with people who have keys."""

    def __init__(self, runtime: Runtime, tenant: str = "default") -> None:
        self.runtime, self.people = runtime, People(runtime.dsn)
        self.tenant, self.name = self.people.tenant(tenant), tenant

    def hire(self, *names: str, roles: list[str] = BOSS) -> None:
        for name in names:
            self.people.key(f"user:{name}", roles=roles, tenant=self.name)

    async def ask(self, requester: str = "user:req", more: str = "", notify: str = "[]", of: str = "role:boss") -> UUID:
        source = (
            FLOW.replace("role:boss", of)
            .replace("MORE", more)
            .replace("NAME", f"p{uuid4().hex[:8]}")
            .replace("NOTIFY", notify)
            .encode()
        )
        _, plan = await self.runtime.catalog.publish(self.tenant, source)
        run_id = uuid4()
        command = c.Start(run_id=run_id, thread_id=str(run_id), requester=requester, input={})
        await self.runtime.starts.start(self.tenant, plan, command)
        return run_id

    async def question(self, run_id: UUID) -> PendingState:
        state = require(await state_at(self.runtime.database, self.tenant, run_id, 2**31 - 1))
        return next(iter(state.pendings.values()))

    async def policy(self, run_id: UUID) -> dict[str, Any]:
        policy = (await self.question(run_id)).opened.policy
        assert isinstance(policy, dict)
        return policy

    async def picked(self, run_id: UUID) -> list[str]:
        """Who was picked, once somebody or nobody was."""

        async def read() -> dict[str, Any] | None:
            policy = await self.policy(run_id)
            return policy if "picked" in policy else None

        policy = require(await until(read))
        return list(policy["picked"])

    async def count(self, runs: Sequence[UUID]) -> Counter[str]:
        """For how many of the runs each person was picked."""
        return Counter([person for run_id in runs for person in await self.picked(run_id)])

    async def decide(self, run_id: UUID, who: str, decision: str = "approve", roles: list[str] = BOSS) -> None:
        id = (await self.question(run_id)).opened.id
        answer = c.PendingAnswer(id=id, decision=decision)
        command = c.Answer(answers=(answer,), by=c.Principal(who, tuple(roles)))
        await self.runtime.committer.submit(run_id, self.tenant, command)

    async def look(self) -> None:
        runtime = self.runtime
        rosters = Rosters(runtime.tenants, None, None, by_keys=True)
        await Picks(runtime.database, runtime.committer, runtime.catalog, rosters, runtime.rows).look()

    async def leave(self, person: str, entered_by: str | None = None) -> None:
        now = datetime.now(UTC)
        row = AbsenceRow(
            uuid4(), person, None, now.date(), now.date(), "UTC", now, now + timedelta(days=1), BOSS, (), None,
            entered_by or person, now,
        )  # fmt: skip
        await absences.create(self.runtime.database.api, self.tenant, row)

    async def revoke(self, person: str) -> None:
        await self.runtime.database.api.execute("UPDATE keys SET revoked_at = now() WHERE principal = $1", person)


@pytest.fixture
async def office(make: Make) -> Office:
    return Office(await make(identity=KEYS))


async def test_picks_go_to_those_with_the_fewest_and_never_to_the_requester(office: Office) -> None:
    office.hire("ann", "bob", "cat", "dan", "req")
    runs = [await office.ask() for _ in range(6)]
    count = await office.count(runs)
    assert count == {f"user:{name}": 3 for name in ("ann", "bob", "cat", "dan")}


async def test_an_agent_is_not_picked_for_a_run_of_those_for_whom_it_acts(office: Office) -> None:
    office.hire("bob")
    office.people.key("agent:buyer", roles=[DECIDER], speaks_for=["user:ann"])
    office.people.key("agent:buyer", roles=[DECIDER])
    more = ", exclude: [requester]"
    runs = [await office.ask("user:ann", more, "[]", "[role:boss, 'agent:buyer']") for _ in range(6)]
    assert "agent:buyer" not in await office.count(runs)


@pytest.mark.parametrize("quorum", [1, 2])
async def test_an_agent_is_not_picked_beside_its_people_where_two_must_agree(office: Office, quorum: int) -> None:
    office.hire("ann", "bob")
    office.people.key("agent:buyer", roles=[DECIDER], speaks_for=["user:ann"])
    more = f", quorum: {quorum}"
    runs = [await office.ask("user:req", more, "[]", "[role:boss, 'agent:buyer']") for _ in range(6)]
    assert (
        await office.count(runs)
        == {
            1: {"user:ann": 4, "user:bob": 4, "agent:buyer": 4},
            2: {"user:ann": 6, "user:bob": 6},
        }[quorum]
    )


async def test_others_of_the_role_see_the_question_and_may_not_decide_it(office: Office) -> None:
    office.hire("ann", "bob", "cat")
    run_id = await office.ask()
    picked = await office.picked(run_id)
    (other,) = {"user:ann", "user:bob", "user:cat"} - set(picked)
    entries, _ = await office.runtime.inbox.page(office.tenant, c.Principal(other, tuple(BOSS)), Filters(), limit=9)
    (entry,) = entries
    assert entry.obstacle is not None
    assert (entry.obstacle.code, all(id in entry.obstacle.reason for id in picked)) == ("not_picked", True)
    with pytest.raises(Rejected, match="were picked to decide it"):
        await office.decide(run_id, other)
    await office.decide(run_id, picked[0])
    assert (await office.question(run_id)).status == "approve"


async def test_who_can_decide_no_more_is_replaced_and_who_can_stays(office: Office) -> None:
    office.hire("ann", "bob", "cat", "dan")
    run_id = await office.ask()
    first, second = await office.picked(run_id)
    await office.revoke(first)
    await office.look()
    kept, third = await office.picked(run_id)
    assert (kept, third not in (first, second)) == (second, True)
    await office.leave(third)
    await office.look()
    fourth = (await office.picked(run_id))[1]
    assert fourth not in (first, second, third)
    await office.leave(fourth)
    await office.look()
    policy = await office.policy(run_id)
    assert (policy["picked"], "1 can decide, so all may" in policy["pick_note"]) == ([], True)
    await office.decide(run_id, third)


@pytest.mark.costly
async def test_a_hundred_questions_in_three_processes_are_shared_evenly(office: Office, make: Make) -> None:
    """Each gets two people, whoever of them may not decide it is none of these, and no process waits for another."""
    offices = [office, *[Office(await make(identity=KEYS)) for _ in range(2)]]
    office.hire("ann", "bob", "cat", "dan", "eve", "req")
    office.people.key("user:eve", roles=["auditor"])
    ask = {"requester": "user:ann"}, {"more": ", exclude: [requester, user:bob]"}, {"more": ", exclude: [role:auditor]"}
    runs = await asyncio.gather(*(offices[n % 3].ask(**ask[n // 3 % 3]) for n in range(102)))
    excluded = {"user:ann"}, {"user:bob", "user:req"}, {"user:eve"}
    for n, run in enumerate(runs):
        picked = await office.picked(run)
        assert (len(set(picked)), excluded[n // 3 % 3].isdisjoint(picked)) == (2, True)
    count = await office.count(runs)
    assert max(count.values()) - min(count.values()) <= 2, "each question has four people to choose from"


async def test_nobody_is_picked_while_another_process_counts_the_picks(office: Office) -> None:
    office.hire("ann", "bob")
    database = office.runtime.database
    async with database.api.acquire() as connection, connection.transaction():
        await picks.lock(connection, office.tenant)
        run_id = await office.ask()
        waiting = """
        SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
        WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
        """
        await until(lambda: database.engine.fetchval(waiting))
        assert "picked" not in await office.policy(run_id)
    assert set(await office.picked(run_id)) == {"user:ann", "user:bob"}


async def test_where_issuers_give_roles_people_of_the_file_are_picked(make: Make, tmp_path: Path) -> None:
    """Of all processes those with the file pick by it, and people with keys are picked beside them."""
    file = tmp_path / "notify.yaml"
    file.write_text(FILE.replace("MAIL", "25"))
    office = Office(await make(notify=file))
    office.hire("dan")
    runs = [await office.ask(requester="user:eve") for _ in range(3)]
    assert await office.count(runs) == {"user:ann": 2, "user:bob": 2, "user:dan": 2}
    await office.leave("user:ann")
    await office.runtime.picks.look()
    assert all(["user:ann" not in await office.picked(each) for each in runs])


async def test_where_issuers_give_roles_and_no_file_lists_people_all_may_decide(make: Make) -> None:
    office = Office(await make())
    run_id = await office.ask()
    assert await office.picked(run_id) == []
    assert "issuer" in (await office.policy(run_id))["pick_note"]
    await office.decide(run_id, "user:ann")


async def test_a_requester_who_sends_others_away_chooses_nobody(office: Office) -> None:
    office.hire("ann", "bob", "cat")
    for name in ("ann", "bob"):
        await office.leave(f"user:{name}", entered_by="user:req")
    office.hire("req")
    runs = [await office.ask() for _ in range(3)]
    picked = await office.count(runs)
    assert picked == {"user:ann": 2, "user:bob": 2, "user:cat": 2}


async def test_people_of_another_tenant_are_neither_picked_nor_counted(office: Office) -> None:
    other = Office(office.runtime, "globex")
    office.hire("ann", "bob")
    other.hire("bob", "cat", "eve")
    for _ in range(3):
        assert set(await office.picked(await office.ask())) == {"user:ann", "user:bob"}
    picked = await other.count([await other.ask() for _ in range(3)])
    assert picked == {"user:bob": 2, "user:cat": 2, "user:eve": 2}


SMITH = "hai: identity/v1\npeople: {acme: {user:bob: [user:cat]}, default: {user:ann: [user:a.smith]}}"


async def test_two_ids_of_one_person_are_picked_and_counted_as_one(make: Make, tmp_path: Path) -> None:
    """Also where they were joined after the pick, and never by the ids of another tenant."""
    before = Office(await make(identity=KEYS))
    before.hire("ann", "a.smith")
    joined = await before.ask()
    assert set(await before.picked(joined)) == {"user:ann", "user:a.smith"}
    await before.runtime.stop()  # whoever delivers a question's message picks, by what it knows of people
    file = tmp_path / "identity.yaml"
    file.write_text(SMITH)
    office = Office(await make(identity=file))
    office.hire("bob", "cat")
    await office.runtime.picks.look()
    assert await office.picked(joined) in ([["user:ann", other] for other in ("user:bob", "user:cat")])
    runs = [joined, *[await office.ask() for _ in range(5)]]
    assert await office.count(runs) == {"user:ann": 4, "user:bob": 4, "user:cat": 4}
    own = [await office.ask(requester="user:a.smith") for _ in range(2)]
    assert await office.count(own) == {"user:bob": 2, "user:cat": 2}
    await office.leave("user:a.smith")
    await office.runtime.picks.look()
    assert await office.count(runs) == {"user:bob": 6, "user:cat": 6}


async def test_a_stage_picks_anew_of_its_own_people(office: Office) -> None:
    office.hire("ann", "bob", "cat")
    office.hire("cy", "di", "eli", roles=[DECIDER, "chief"])
    run_id = await office.ask()
    await office.picked(run_id)
    jump = c.Jump(ms=25 * 3_600_000, by="user:op")
    await office.runtime.committer.submit(run_id, office.tenant, jump)

    async def of_chiefs() -> bool:
        picked = set((await office.policy(run_id)).get("picked", ()))
        return len(picked) == 2 and picked <= {"user:cy", "user:di", "user:eli"}

    await until(of_chiefs)


async def test_the_picked_are_told_once_and_of_a_later_pick_only_who_is_new(make: Make) -> None:
    office = Office(await make(identity=KEYS))
    office.hire("ann", "bob")
    with mail_server() as mail:
        async with hook_server() as hooks:
            world = World(office.runtime, mail, hooks)
            world.file, _ = read_channels(FILE.replace("MAIL", str(mail.port)).encode(), "notify.yaml")
            run_id = await office.ask(notify="[email]")
            assert set(await office.picked(run_id)) == {"user:ann", "user:bob"}
            async with world.notifier():
                first = await world.ended(run_id, 2)
                office.hire("eve")
                await office.revoke("user:ann")
                await office.look()
                ended = await world.ended(run_id, 3)
    assert sorted((each.person, each.status) for each in first) == [("user:ann", "sent"), ("user:bob", "sent")]
    assert sorted((each.person, each.status) for each in ended if each not in first) == [("user:eve", "sent")]
