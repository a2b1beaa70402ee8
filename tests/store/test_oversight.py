"""Figures of how people decide: what they count, and that they read no more beside very many other questions."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.store.identity.erasure import forget
from hai_flow.store.people import canaries, oversight
from hai_flow.store.people.oversight import DecisionFigures
from hai_flow.store.postgres.database import Database
from tests.store.conftest import STRANGER, TENANT
from tests.support import citus
from tests.support.postgres import connecting
from tests.support.values import require

MONTH, QUICK = timedelta(days=30), timedelta(seconds=10)
RUN = """
INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version, head,
  started_by)
VALUES ($1, $2, 'w', $3, 1, 't', 'waiting', 1, 1, 'h', 'user:a')
"""
QUESTION = """
INSERT INTO pendings (run_id, id, tenant, status, path, digest, opened_seq, opened_at, body, kind, words)
VALUES ($1, $2, $3, $4, 's', 'd', 1, now() - $5 * interval '1 second', $6, $7, '')
"""
VOTE = """
INSERT INTO votes (run_id, pending_id, principal, tenant, last_seq, body, decision, at)
VALUES ($1, $2, $3, $4, 2, $5, $6, now() - $7 * interval '1 second')
"""


class Desk:
    """Writes the rows of questions and votes; `ago` is in seconds before now."""

    def __init__(self, db: Database) -> None:
        self.db, self.count = db, 0

    async def ask(
        self, status: str, ago: float = 1000, *votes: tuple[str, str, float, dict[str, Any]], **columns: Any
    ) -> UUID:
        """A question with votes: who, what, so long ago, further fields."""
        run, tenant, self.count = uuid4(), columns.get("tenant", TENANT), self.count + 1
        id, tool = f"q{self.count}", columns.get("tool")
        body = json.dumps(
            {"kind": "gate", "message": "a\0b\\u0000\\\0", **({} if tool is None else {"tool": tool})}
        ).encode()
        async with self.db.engine.acquire() as connection:
            await connection.execute(RUN, run, tenant, columns.get("workflow", "pay"))
            kind = columns.get("kind", "gate")
            await connection.execute(QUESTION, run, id, tenant, status, float(ago), body, kind)
            for who, decision, at, more in votes:
                text = json.dumps({"by": who, "reason": "\0\\\0", **more}).encode()
                await connection.execute(VOTE, run, id, who, tenant, text, decision, float(at))
        return run

    async def read(self, by: oversight.By = "workflow", tenant: UUID = TENANT) -> dict[str, DecisionFigures]:
        figures, complete = await oversight.read_figures(self.db.api, tenant, by, MONTH, QUICK)
        assert complete
        return figures

    async def person(self, who: str) -> DecisionFigures:
        return (await oversight.read_own_figures(self.db.api, TENANT, who, MONTH, QUICK))[0]


@pytest.fixture
def desk(db: Database) -> Desk:
    return Desk(db)


RULE = {"rule": {"id": "r", "digest": "d"}}


async def fill(desk: Desk) -> None:
    await desk.ask("approve", 1000, ("user:ann", "approve", 900, {}), tool="shop.pay")
    await desk.ask("reject", 1000, ("user:ann", "approve", 600, {"edited": True}), ("user:bob", "reject", 400, {}))
    await desk.ask("approve", 1000, ("user:cat", "approve", 1000, RULE), tool="shop.pay")
    await desk.ask("later", 1000, ("user:bob", "later", 300, {}), kind="approve")
    for status in ("open", "expired", "voided"):
        await desk.ask(status, 50, workflow="ship")
    drill = await desk.ask("reject", 900, workflow="ship")  # a canary, which is counted as one
    await canaries.add_canary(desk.db.api, TENANT, drill, ("ship", "s", None, "user:ann"), "a drill", "user:root")


async def test_each_question_is_counted_once_by_what_became_of_it(desk: Desk) -> None:
    await fill(desk)
    figures = await desk.read()
    pay, ship = figures["pay"], figures["ship"]
    assert (pay.questions, pay.approved, pay.refused, pay.other, pay.edited, pay.by_rule) == (4, 2, 1, 1, 1, 1)
    assert (ship.questions, ship.open, ship.expired, ship.withdrawn, ship.seconds) == (3, 1, 1, 1, [])
    assert sorted(map(round, pay.seconds)) == [100, 600, 700], "a rule takes nobody's time"
    assert (pay.votes, pay.quick) == (4, 0)
    by_tool = await desk.read("tool")
    assert {name: each.questions for name, each in by_tool.items()} == {"shop.pay": 2, "": 5}


async def test_a_canary_whose_run_never_began_is_withdrawn(db: Database) -> None:
    run = uuid4()
    await canaries.add_canary(db.api, TENANT, run, ("pay", "s", None, "user:ann"), "a drill", "user:root")
    assert require(await canaries.find_canary(db.api, TENANT, run)).status == "withdrawn"
    await canaries.drop_canary(db.api, run)
    assert await canaries.find_canary(db.api, TENANT, run) is None


async def test_a_canary_whose_run_has_begun_is_not_dropped(db: Database) -> None:
    run = uuid4()
    await canaries.add_canary(db.api, TENANT, run, ("pay", "s", None, "user:ann"), "a drill", "user:root")
    await db.api.execute(RUN, run, TENANT, "oversight_canary")
    await canaries.drop_canary(db.api, run)
    assert await canaries.find_canary(db.api, TENANT, run) is not None


async def test_a_vote_soon_after_the_question_or_an_earlier_vote_is_quick(desk: Desk) -> None:
    await desk.ask("approve", 1000, ("user:ann", "approve", 995, {}))  # at once
    await desk.ask("approve", 5000, ("user:ann", "approve", 500, {}))
    await desk.ask("approve", 5000, ("user:ann", "approve", 495, {}))  # in a row
    await desk.ask("approve", 5000, ("user:bob", "approve", 490, {}))  # somebody else's row
    await desk.ask("approve", 5000, ("user:bob", "approve", 100, RULE))
    await desk.ask("approve", 5000, ("user:bob", "approve", 95, {}))  # behind what a rule did in their name
    assert [((await desk.read())["pay"].votes), (await desk.read())["pay"].quick] == [5, 2]
    ann, bob = await desk.person("user:ann"), await desk.person("user:bob")
    assert (ann.votes, ann.quick, bob.votes, bob.quick) == (3, 2, 2, 0)


async def test_a_persons_figures_are_of_their_own_votes(desk: Desk) -> None:
    await fill(desk)
    ann, cat = await desk.person("user:ann"), await desk.person("user:cat")
    assert (ann.questions, ann.approved, ann.refused, ann.edited, ann.by_rule) == (2, 2, 0, 1, 0)
    assert sorted(map(round, ann.seconds)) == [100, 400]
    assert (cat.questions, cat.approved, cat.by_rule, cat.votes, cat.seconds) == (1, 0, 1, 0, [])


async def test_only_decisions_of_the_tenant_within_the_time_are_counted(desk: Desk) -> None:
    await desk.ask("approve", tenant=STRANGER)
    await desk.ask("approve", 31 * 86_400)
    await desk.ask("answered", kind="ask")
    await desk.ask("answered", kind="tool")
    await desk.ask("approve", 29 * 86_400)
    assert {name: each.questions for name, each in (await desk.read()).items()} == {"pay": 1}
    assert (await desk.read(tenant=STRANGER))["pay"].questions == 1


async def test_counts_stay_when_a_person_is_forgotten(desk: Desk) -> None:
    await fill(desk)
    before = await desk.read()
    async with connecting(desk.db.dsn) as connection:
        await forget(connection, TENANT, "user:ann", by="user:dpo")
    assert await desk.read() == before


async def test_the_newest_are_counted_where_there_are_too_many(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversight, "LOOKED_AT_MAX", 2)
    for ago, status in ((30, "approve"), (20, "reject"), (10, "expired")):
        await desk.ask(status, ago, *([("user:ann", status, 5, {})] if status != "expired" else []))
    figures, complete = await oversight.read_figures(desk.db.api, TENANT, "workflow", MONTH, QUICK)
    assert (figures["pay"].approved, figures["pay"].refused, figures["pay"].expired, complete) == (0, 1, 1, False)
    assert (await oversight.read_own_figures(desk.db.api, TENANT, "user:ann", MONTH, QUICK))[1] is False


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.9]))
def test_a_quantile_is_a_time_within_which_the_share_was_decided(times: list[float], share: float) -> None:
    value = DecisionFigures(seconds=times).quantile(share)
    assert value in times
    assert sum(each <= value for each in times) >= math.floor(share * len(times))
    assert sum(each < value for each in times) < share * len(times)


MANY = """
INSERT INTO pendings (run_id, id, tenant, status, path, digest, opened_seq, opened_at, body, kind, words)
SELECT gen_random_uuid(), 'p' || n, $1, 'approve', 's', 'd', 1, now() - n * interval '1 minute', '{}',
  CASE n % 2 WHEN 0 THEN 'gate' ELSE 'ask' END, '' FROM generate_series(1, 40000) n
"""


@pytest.mark.skipif(citus.CITUS is not None, reason="the coordinator of a Citus explains no plan of its nodes")
async def test_a_short_time_reads_its_own_questions_alone_by_an_index(desk: Desk) -> None:
    async with desk.db.engine.acquire() as connection:
        await connection.execute(MANY, TENANT)
        await connection.execute("ANALYZE pendings, votes, runs")
    async with desk.db.api.acquire() as connection:
        arguments = (TENANT, timedelta(hours=1), QUICK, oversight.LOOKED_AT_MAX)
        text = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {oversight.render_query('workflow')}", *arguments
        )
        own = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {oversight._OF_PERSON}", *arguments, "user:ann"
        )
    read = _scanned(json.loads(text)[0]["Plan"])
    assert ("pendings", "pendings_decisions", 29) in read, read
    assert "Join Filter" not in text, "each vote would be held against each question"
    assert all(count <= 30 for table, _, count in read if table == "pendings")
    assert ("votes", "votes_of_each", 0) in _scanned(json.loads(own)[0]["Plan"])


def _scanned(plan: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    """Each table that the plan reads: by which index, and how many rows."""
    rows = [each for below in plan.get("Plans", ()) for each in _scanned(below)]
    if "Relation Name" in plan:
        count = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
        rows.append((plan["Relation Name"], plan.get("Index Name"), round(count)))
    return rows
