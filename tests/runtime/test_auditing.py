"""What people ask of runs is recorded with what it came to; what runs and clocks do by themselves is not."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.audit import audit, log_chain
from hai_flow.store.audit.audit_chain import commitment
from tests.runtime.conftest import GATED, TOOLS, Connection, Make, answer, is_now, open_pending, start, state_of
from tests.support import effects
from tests.support.waiting import until

ANN = c.Principal("user:ann", ("boss",), on_behalf_of="user:bob")
ASKED = AuditActor(who=ANN, way="key", credential="k1", address="192.0.2.7", via="rest")
GATE = (
    TOOLS
    + """steps:
  - id: pay
    call: fx.echo
    with: {value: 5}
    approval: {title: Sure?, from: anyone, edit: [value], exclude: []}
"""
)
ASK = "steps:\n  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}\n"


async def records(runtime: Runtime, eye: Connection) -> list[dict[str, Any]]:
    rows = await eye.fetch("SELECT * FROM audit JOIN audit_details USING (tenant, id) ORDER BY id")
    return [{**row, "body": msgspec.json.decode(row["body"])} for row in rows]


async def ask(runtime: Runtime, run_id: UUID, command: c.Command, asked: AuditActor | None = ASKED, **how: Any) -> Any:
    return await runtime.committer.submit(run_id, LOCAL_TENANT, command, asked=asked, **how)


@pytest.mark.costly
async def test_who_controls_a_run_is_recorded_with_the_reason(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASK)).run_id
    await ask(runtime, run_id, c.Pause(by="user:ann", reason="lunch"))
    await ask(runtime, run_id, c.Resume(by="user:ann"))
    await ask(runtime, run_id, c.Stop(by="user:ann", reason="enough"))
    found = await records(runtime, eye)
    assert [each["act"] for each in found] == ["run.paused", "run.resumed", "run.stopped"]
    assert {(each["run_id"], each["principal"]) for each in found} == {(run_id, "user:ann")}
    caller = {"on_behalf_of": "user:bob", "roles": ["boss"], "way": "key", "credential": "k1"}
    assert found[0]["body"] == {**caller, "address": "192.0.2.7", "via": "rest", "reason": "lunch"}
    assert found[2]["seq"] == (await state_of(runtime, run_id)).seq


async def test_an_answer_is_recorded_with_the_digest_on_screen_and_its_outcome(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, GATE)).run_id
    pending = await open_pending(runtime, run_id)
    shown = (await state_of(runtime, run_id)).pendings[pending].opened.digest
    given = c.PendingAnswer(id=pending, decision="approve", reason="fine", edits={"value": 4})
    await ask(runtime, run_id, c.Answer(answers=(given,), by=ANN))
    (found,) = await records(runtime, eye)
    assert (found["act"], found["subject"], found["digest"].hex()) == ("pending.answered", f"pending:{pending}", shown)
    body = found["body"]
    assert (body["outcome"], body["reason"], body["edits"]) == ("approve", "fine", {"value": 4})
    edited = (await state_of(runtime, run_id)).pendings[pending]
    assert body["edited_digest"] == edited.opened.digest != shown
    assert body["answer"] == edited.answer_sha


async def test_what_is_refused_or_was_done_before_leaves_no_record(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASK)).run_id
    pending = await open_pending(runtime, run_id)
    for _ in range(3):
        await ask(runtime, run_id, answer(pending), command_id="one", body_sha=b"b")
    with pytest.raises(Rejected):
        await ask(runtime, run_id, answer(pending, ok=False))
    with pytest.raises(Rejected):
        await ask(runtime, run_id, c.Pause(by="user:ann"))
    assert [each["act"] for each in await records(runtime, eye)] == ["pending.answered"]


async def test_commands_that_nobody_asked_for_leave_no_record(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, GATED)).run_id
    effects.gate.set()
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert await records(runtime, eye) == []


async def test_two_commands_in_one_commit_are_two_records(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASK)).run_id
    run = runtime.committer.peek(run_id)
    assert run is not None
    first = ask(runtime, run_id, c.Pause(by="user:ann"))
    second = ask(runtime, run_id, c.Resume(by="user:ann"))
    await asyncio.gather(first, second)
    assert [each["act"] for each in await records(runtime, eye)] == ["run.paused", "run.resumed"]


async def test_a_worker_chains_what_was_recorded(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, ASK)).run_id
    await ask(runtime, run_id, c.Pause(by="user:ann"))

    async def sealed() -> bool:
        return await eye.fetchval("SELECT count(*) FROM audit_seals") == 1

    await until(sealed)
    verified = await audit.verify(runtime.database.api, LOCAL_TENANT)
    assert (verified.end.n, verified.waiting, verified.faults) == (1, 0, [])
    (link,) = await audit.links(runtime.database.api, LOCAL_TENANT, after=0, limit=2)
    assert link.record is not None
    assert link.details is not None
    assert commitment(link.details) == link.record.commitment
    assert link.record.head == await eye.fetchval("SELECT head FROM runs WHERE id = $1", run_id)


def test_whom_a_record_is_of_stands_in_its_details_only() -> None:
    row = ASKED.row("key.created", subject="key:k2", principal_of="user:eve")
    assert row.principal == "user:ann"
    assert b"user:eve" in row.body
    assert row.subject == "key:k2"
    assert ASKED.row("key.created").commitment != ASKED.row("key.created").commitment
    assert uuid4() != row.id


async def some_runs(make: Make) -> tuple[Runtime, list[UUID]]:
    """Three runs: one that a person has paused and let go on, one that was answered, one that nobody has touched."""
    runtime = await make()
    runs = [(await start(runtime, ASK)).run_id for _ in range(3)]
    await ask(runtime, runs[0], c.Pause(by="user:ann"))
    await ask(runtime, runs[0], c.Resume(by="user:ann"))
    await ask(runtime, runs[1], answer(await open_pending(runtime, runs[1])))
    return runtime, runs


async def test_the_logs_of_runs_are_those_that_the_audit_vouches_for(make: Make) -> None:
    runtime, _ = await some_runs(make)
    checked = await log_chain.verify_logs(runtime.database.api, LOCAL_TENANT)
    assert (checked.runs, checked.vouched, checked.faults) == (3, 3, [])


CHANGED = [
    "UPDATE log SET events = set_byte(events, 20, get_byte(events, 20) # 1) WHERE run_id = $1 AND first_seq = 1",
    "DELETE FROM log WHERE run_id = $1 AND first_seq = 1",
    "DELETE FROM log WHERE run_id = $1 AND last_seq = (SELECT max(last_seq) FROM log WHERE run_id = $1)",
    "UPDATE runs SET head = sha256(head) WHERE id = $1",
    "UPDATE runs SET seq = seq + 1 WHERE id = $1",
]


@pytest.mark.parametrize("statement", CHANGED)
@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_log_that_was_changed_is_named(make: Make, eye: Connection, statement: str, which: int) -> None:
    runtime, runs = await some_runs(make)
    await eye.execute(statement, runs[which])
    (fault,) = (await log_chain.verify_logs(runtime.database.api, LOCAL_TENANT)).faults
    assert str(runs[which]) in fault.message


async def test_a_log_that_was_rewritten_with_its_head_is_found_by_the_audit(make: Make, eye: Connection) -> None:
    runtime, runs = await some_runs(make)
    for run_id in runs:
        rows = await eye.fetch("SELECT last_seq, events FROM log WHERE run_id = $1 ORDER BY last_seq", run_id)
        head = b""
        for last_seq, events in rows:
            changed = events.replace(b"user:local", b"user:bocal")
            head = sha256(head + changed).digest()
            statement = "UPDATE log SET events = $3 WHERE run_id = $1 AND last_seq = $2"
            await eye.execute(statement, run_id, last_seq, changed)
        await eye.execute("UPDATE runs SET head = $2 WHERE id = $1", run_id, head)
    faults = (await log_chain.verify_logs(runtime.database.api, LOCAL_TENANT)).faults
    assert [fault.message.split(":")[0] for fault in faults] == sorted(f"run {id}" for id in runs[:2])


async def test_a_run_that_is_gone_is_missed_by_the_audit(make: Make, eye: Connection) -> None:
    runtime, runs = await some_runs(make)
    await eye.execute("DELETE FROM log WHERE run_id = $1", runs[0])
    await eye.execute("DELETE FROM runs WHERE id = $1", runs[0])
    (fault,) = (await log_chain.verify_logs(runtime.database.api, LOCAL_TENANT)).faults
    assert (fault.code, str(runs[0]) in fault.message) == ("log_removed", True)
