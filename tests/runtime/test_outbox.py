"""What a commit wants of another run is delivered once, whoever delivers and whenever they die."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.runtime.commit import decider
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.commit.entries import Entry, OutboxRow
from hai_flow.store.messaging import outbox
from tests.runtime.conftest import ASKING, Connection, Make, is_now, start, status_of
from tests.support.ledger import log_of
from tests.support.waiting import until


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> list[OutboxRow]:
    """What the next births write into the outbox."""
    rows: list[OutboxRow] = []
    real = decider.Decider._row

    def with_letters(self: Any, entry: Any) -> Entry:
        row = real(self, entry)
        if row.born is None:
            return row
        sent = tuple(rows)
        rows.clear()
        return replace(row, outbox=sent)

    monkeypatch.setattr(decider.Decider, "_row", with_letters)
    return rows


def control(kind: str, target: UUID, reason: str = "") -> OutboxRow:
    return OutboxRow(kind, str(target), b'{"by": "run:parent", "reason": "%s"}' % reason.encode())


async def left(eye: Connection) -> int:
    return int(await eye.fetchval("SELECT count(*) FROM outbox"))


async def nothing_left(eye: Connection) -> bool:
    return not await left(eye)


async def pauses_of(eye: Connection, run_id: UUID) -> list[str]:
    """The reasons for which the run was paused, in order."""
    return [event.reason for event in await log_of(eye, run_id) if isinstance(event, e.RunPaused)]


async def send(runtime: Runtime, letters: list[OutboxRow], *rows: OutboxRow) -> None:
    letters.extend(rows)
    await start(runtime, ASKING)


async def test_messages_are_delivered_in_order_and_once_by_two_sweepers(
    make: Make, eye: Connection, letters: list[OutboxRow]
) -> None:
    a, _ = await make(performs=True), await make(performs=True)
    target = (await start(a, ASKING)).run_id
    for number in range(10):
        letters += [control("pause", target, str(number)), control("resume", target)]
    await send(a, letters)
    await until(lambda: nothing_left(eye))
    assert await pauses_of(eye, target) == [str(number) for number in range(10)]
    assert await status_of(a, target) == "waiting"


async def test_a_message_of_a_process_that_died_before_the_delete_is_finished(
    make: Make, eye: Connection, letters: list[OutboxRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, died = outbox.delete_message, asyncio.Event()

    async def die(connection: Any, message: outbox.OutboxMessage) -> bool:
        if died.is_set():
            return await real(connection, message)
        died.set()
        await a.committer.submit(target, LOCAL_TENANT, c.Resume(by="user:op"))  # else a second pause changes nothing
        await connection.execute("UPDATE outbox SET due_at = now()")
        raise ConnectionError("the process died")

    monkeypatch.setattr(outbox, "delete_message", die)
    a = await make(performs=True)
    target = (await start(a, ASKING)).run_id
    await send(a, letters, control("pause", target, "once"))
    await until(lambda: nothing_left(eye))
    assert died.is_set()
    assert await pauses_of(eye, target) == ["once"]
    assert await status_of(a, target) == "waiting"


async def test_a_run_is_paused_resumed_and_stopped_by_messages(
    make: Make, eye: Connection, letters: list[OutboxRow]
) -> None:
    runtime = await make(performs=True)
    target = (await start(runtime, ASKING)).run_id
    for kind, status in (("pause", "paused"), ("resume", "waiting"), ("stop", "stopped")):
        await send(runtime, letters, control(kind, target))
        await until(lambda status=status: is_now(runtime, target, status))
    other = (await start(runtime, ASKING)).run_id
    await send(runtime, letters, control("terminate", other))
    await until(lambda: is_now(runtime, other, "stopped"))
    await until(lambda: nothing_left(eye))


async def test_what_is_refused_for_good_is_dropped_and_an_unknown_kind_is_left(
    make: Make, eye: Connection, letters: list[OutboxRow]
) -> None:
    runtime = await make(performs=True)
    target = (await start(runtime, ASKING)).run_id
    stranger = control("pause", uuid4())
    await send(runtime, letters, stranger, OutboxRow("sing", str(target), b"{}"), control("pause", target))
    await until(lambda: one_left(eye))
    assert await eye.fetchval("SELECT kind FROM outbox WHERE kind = 'sing'") == "sing"
    assert await status_of(runtime, target) == "waiting"


async def one_left(eye: Connection) -> bool:
    """The one that nobody understands, and the one behind it for the same receiver (they go in order)."""
    return [row[0] for row in await eye.fetch("SELECT kind FROM outbox ORDER BY n")] == ["sing", "pause"]


async def test_a_quick_message_waits_only_for_the_one_before_it_to_its_target(
    make: Make, eye: Connection, letters: list[OutboxRow]
) -> None:
    runtime = await make(performs=True)
    slow, quick = [(await start(runtime, ASKING)).run_id for _ in range(2)]
    begun: list[str] = []
    done = asyncio.Event()

    async def dawdle(message: outbox.OutboxMessage) -> None:
        begun.append(message.kind)
        await done.wait()

    runtime.delivery.handlers |= {"dawdle": dawdle, "follow": dawdle}
    await send(runtime, letters, *(OutboxRow(kind, str(slow), b"{}") for kind in ("dawdle", "follow")))
    await until(lambda: begun)
    await send(runtime, letters, control("pause", quick))
    await until(lambda: is_now(runtime, quick, "paused"))
    assert begun == ["dawdle"]
    await eye.execute("UPDATE outbox SET due_at = now() WHERE kind = 'dawdle'")  # its lease is over: not twice at once
    await send(runtime, letters, control("resume", quick))
    await until(lambda: is_now(runtime, quick, "waiting"))
    assert begun == ["dawdle"]
    await eye.execute("DELETE FROM outbox WHERE kind = 'dawdle'")  # another process, which had the lease, has done it
    await until(lambda: eye.fetchval("SELECT due_at > now() FROM outbox WHERE kind = 'follow'"))
    await send(runtime, letters, control("pause", quick))  # is given out later, and so begins later
    await until(lambda: is_now(runtime, quick, "paused"))
    assert begun == ["dawdle"]
    done.set()
    await until(lambda: nothing_left(eye))
    assert begun == ["dawdle", "follow"]


async def test_messages_under_way_are_bounded_and_all_get_their_turn(
    make: Make, eye: Connection, letters: list[OutboxRow]
) -> None:
    runtime = await make(performs=True)
    await runtime.delivery.stop()
    runtime.delivery.config = replace(runtime.delivery.config, batch_max=3)
    await runtime.delivery.start()
    under_way, most, done = 0, 0, 0

    async def count(message: outbox.OutboxMessage) -> None:
        nonlocal under_way, most, done
        under_way += 1
        most = max(most, under_way)
        await runtime.database.api.fetchval("SELECT 1")
        under_way -= 1
        done += 1

    runtime.delivery.handlers["count"] = count
    await send(runtime, letters, *(OutboxRow("count", str(uuid4()), b"{}") for _ in range(20)))
    await until(lambda: nothing_left(eye))
    assert (done, most) == (20, 3)
