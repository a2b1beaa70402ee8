"""A use of a standing rule is counted with its vote, while the rules are those that were held against the question."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from hai_flow.definition.compiler import compile_workflow
from hai_flow.engine import commands as c
from hai_flow.runtime.catalog import built_in
from hai_flow.runtime.commit.submission import CommitWithRows
from hai_flow.runtime.people import standing_rules
from hai_flow.runtime.people.standing_rules import RuleBody, _RuleLost, count_use, judge_approval
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.people import rules
from hai_flow.store.people.rules import RuleRow
from hai_flow.store.postgres.database import Database
from tests.runtime.conftest import Make
from tests.support.runs import Play

if TYPE_CHECKING:
    from hai_flow.store.commit.entries import BatchResult
    from hai_flow.store.postgres.connections import Connection


async def _put_in_force(database: Database, kind: str = "allow") -> UUID:
    id, until = uuid4(), datetime.now(UTC) + timedelta(days=1)
    body = RuleBody(id=str(id), kind=kind, tool="t.pay", tool_digest="d")
    row = RuleRow(
        id, LOCAL_TENANT, kind, "t.pay", None, b"{}", body.digest, until, None, None, 0, "user:ann", ["user:ann"], [],
        None, None, until, None, None, None, None, None, None, False, False,
    )  # fmt: skip
    async with database.api.acquire() as connection, connection.transaction():
        await rules.create(connection, row)
        await rules.approve(connection, LOCAL_TENANT, id, b"[]", ["user:ann", "user:bob"])
    return id


def test_no_spelling_of_an_excluded_id_approves_a_rule() -> None:
    composed, decomposed = "user:jos\u00e9", "user:jose\u0301"
    body = RuleBody(id=str(uuid4()), kind="allow", tool="t.pay", tool_digest="d")
    asks = {"from": ["role:chief"], "exclude": ["requester"], "quorum": 1, "title": "Always?", "message": ""}
    play = Play(
        compile_workflow(built_in.source_of(built_in.RULE_APPROVAL), "rule_approval"),
        input={**asks, "rule": msgspec.to_builtins(body), "expires_in": "1d"},
    )
    play.answer("approved", by=c.Principal(composed, ("chief",)), decision="approve")
    pending, now = play.state.pendings[play.pending("approved")], datetime.now(UTC)
    for profits, approved in (("user:cat", True), (decomposed, False)):
        row = RuleRow(
            UUID(body.id), LOCAL_TENANT, "allow", "t.pay", None, b"{}", body.digest, now, None, None, 0, "user:ann",
            ["user:ann"], [profits], None, None, now, None, None, None, None, None, None, False, False,
        )  # fmt: skip
        assert (judge_approval(row, play.plan, play.state, pending, 1)[1] is None) is approved


@pytest.mark.parametrize("change", ["revoked", "a never beside it", "nothing"])
async def test_a_rule_does_not_vote_where_the_rules_are_others_than_were_read(make: Make, change: str) -> None:
    database = (await make()).database
    allow = await _put_in_force(database)
    use = LOCAL_TENANT, "t.pay", frozenset([allow]), allow, uuid4(), "call_1"
    counting = CommitWithRows(database, lambda connection: count_use(connection, *use))
    async with database.api.acquire() as connection:
        if change == "revoked":
            await rules.end(connection, LOCAL_TENANT, allow, "user:op", "a drill")
        elif change != "nothing":
            await _put_in_force(database, "never")
    sent = []

    async def send(connection: Connection) -> BatchResult:
        sent.append(await connection.fetchval("SELECT uses FROM rules WHERE id = $1", allow))
        raise asyncio.CancelledError  # and with it goes the count

    with pytest.raises(asyncio.CancelledError if change == "nothing" else _RuleLost):
        await counting.commit(send)
    row: Any = await rules.find_rule(database.api, LOCAL_TENANT, allow)
    assert (sent, row.uses) == ([1] if change == "nothing" else [], 0)


async def test_a_late_look_for_rules_outlives_a_cut_connection(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make()
    looks: list[UUID] = []
    fault: list[Exception] = [asyncpg.ConnectionDoesNotExistError("cut"), ValueError("a fault of ours")]

    async def consult(tenant: UUID, run_id: UUID, pending_id: str) -> None:
        looks.append(run_id)
        if fault:
            raise fault.pop(0)

    monkeypatch.setattr(standing_rules, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(runtime.rules, "consult", consult)
    monkeypatch.setattr(runtime.rules._committer.freezes, "_ruled", {LOCAL_TENANT: frozenset({"t.pay"})})
    opened: Any = SimpleNamespace(tool="t.pay", id="call_1")
    with pytest.raises(ValueError, match="ours"):
        await runtime.rules._consult_late(LOCAL_TENANT, uuid4(), opened)
    await runtime.rules._consult_late(LOCAL_TENANT, uuid4(), opened)
    assert len(looks) == 3
