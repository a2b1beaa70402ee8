"""What a tool writes in its transaction and the record that its step succeeded are there together, or neither is."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.postgres.tool_transactions import Transaction
from tests.runtime.conftest import TOOLS, Connection, Make, is_now, start, state_of
from tests.support import effects
from tests.support.examples import SEED
from tests.support.ledger import check_all, log_of
from tests.support.postgres import connecting
from tests.support.values import require
from tests.support.waiting import until
from tests.support.workers import Nursery, alive

PAY = TOOLS + "steps:\n  - {id: pay, call: fx.pay}\noutput: ${{ steps.pay.output }}\n"


def paying(then: str, more: str = "", **arguments: Any) -> str:
    given = "".join(f", {name}: {value}" for name, value in arguments.items())
    return TOOLS + f"steps:\n  - {{id: pay, call: fx.pay, with: {{then: {then}{given}}}{more}}}\n"


AGAIN = ", retry: {max: 2, every: 10ms}"


@pytest.fixture
async def shop(eye: Connection) -> Connection:
    """The same connection, with the tables that the tools write."""
    await eye.execute(effects.PAYMENTS)
    return eye


async def paid(shop: Connection) -> list[tuple[str, int, str]]:
    rows = await shop.fetch("SELECT path, attempt, note FROM shop.payments ORDER BY 1, 2, 3")
    return [tuple(row) for row in rows]


async def ended(runtime: Runtime, run_id: Any) -> str:
    await until(lambda: is_now(runtime, run_id, "finished", "failed", "stopped"))
    return (await state_of(runtime, run_id)).status


async def test_a_payment_is_there_when_its_step_has_finished_and_not_before(make: Make, shop: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying("wait"))).run_id
    await until(lambda: effects.begun)
    assert await paid(shop) == []
    effects.gate.set()
    assert await ended(runtime, run_id) == "finished"
    assert await paid(shop) == [("pay", 1, "paid")]
    assert await _idle(shop)


async def _idle(shop: Connection) -> bool:
    """Every connection of tools has ended its transaction."""

    async def all_idle() -> bool:
        states = "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'hai-flow tool'"
        return {row[0] for row in await shop.fetch(states)} <= {"idle"}

    await until(all_idle)
    return True


@pytest.mark.parametrize("then", ["raise", "set", "ignore", "owe", "end and begin"])
async def test_what_a_failed_attempt_has_written_is_not_there(make: Make, shop: Connection, then: str) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying(then, AGAIN, attempts=1))).run_id
    status = await ended(runtime, run_id)
    if then == "set":  # what is no JSON is not tried again
        assert (status, await paid(shop)) == ("failed", [])
    elif then == "end and begin":  # it did commit the first payment, and is told so
        assert await paid(shop) == [("pay", 1, "paid"), ("pay", 2, "paid")]
    else:
        assert (status, await paid(shop)) == ("finished", [("pay", 2, "paid")])


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("ignore", "a statement of it failed, and the tool went on"),
        ("owe", "violates foreign key constraint"),
        ("overlap", "another operation is in progress"),
        ("hurry", "TimeoutError"),
        ("hurry on", "cancelled a statement"),
        ("close", "released back to the pool"),
        ("doze", "nothing was asked for 60 s"),
        ("doze on", "nothing was asked for 60 s"),
        ("end", "ended its transaction itself"),
        ("end and begin", "ended its transaction itself"),
    ],
)
async def test_an_author_is_told_why_a_transaction_can_not_be_committed(
    make: Make, shop: Connection, monkeypatch: pytest.MonkeyPatch, then: str, said: str
) -> None:
    monkeypatch.setattr("hai_flow.store.postgres.database.TOOL_IDLE_SECONDS", 0.1)
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying(then))).run_id
    assert await ended(runtime, run_id) == "failed"
    assert said in require((await state_of(runtime, run_id)).error).message
    assert {each.attempt for each in (await state_of(runtime, run_id)).steps.values()} <= {0, 1}


async def test_a_tool_that_times_out_has_written_nothing(make: Make, shop: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying("hang", ", timeout: 1s, " + AGAIN[2:], attempts=1))).run_id
    assert await ended(runtime, run_id) == "finished"
    assert await paid(shop) == [("pay", 2, "paid")]


async def test_a_stop_leaves_nothing_of_a_transaction(make: Make, shop: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying("hang"))).run_id
    await until(lambda: effects.begun)
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:local"))
    assert await ended(runtime, run_id) == "stopped"
    assert await paid(shop) == []
    assert await _idle(shop)


async def test_a_block_that_raises_takes_back_what_was_done_in_it(make: Make, shop: Connection) -> None:
    runtime = await make(performs=True)
    body = TOOLS + "steps:\n  - {id: pay, call: fx.pay_in_part}\noutput: ${{ steps.pay.output }}\n"
    run_id = (await start(runtime, body)).run_id
    assert await ended(runtime, run_id) == "finished"
    assert (await state_of(runtime, run_id)).output == ["kept"]
    assert await paid(shop) == [("pay", 1, "kept")]


async def test_a_function_in_a_thread_writes_in_a_transaction_too(make: Make, shop: Connection) -> None:
    runtime = await make(performs=True)
    body = TOOLS + "steps:\n  - {id: pay, call: fx.pay_in_a_thread}\noutput: ${{ steps.pay.output }}\n"
    run_id = (await start(runtime, body)).run_id
    assert await ended(runtime, run_id) == "finished"
    assert (await state_of(runtime, run_id)).output == 2
    assert await paid(shop) == [("pay", 1, "more"), ("pay", 1, "paid")]


async def test_a_tool_may_change_the_settings_of_its_transaction(make: Make, shop: Connection) -> None:
    await shop.execute("DROP ROLE IF EXISTS nobody_much; CREATE ROLE nobody_much")
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying("settings"))).run_id
    assert await ended(runtime, run_id) == "finished"
    assert await paid(shop) == [("pay", 1, "paid")]


async def test_branches_with_transactions_wait_for_a_connection_alone(make: Make, shop: Connection) -> None:
    runtime = await make(performs=True, tool_connections=2)
    each = "items: '${{ [1, 2, 3, 4, 5, 6, 7, 8] }}', max_parallel: 8, steps: [{id: pay, call: fx.pay}]"
    first = (await start(runtime, TOOLS + f"steps:\n  - for_each: {{{each}}}\n")).run_id
    other = (await start(runtime, TOOLS + "steps:\n  - {id: say, say: hello}\n")).run_id
    assert await ended(runtime, other) == "finished"
    assert await ended(runtime, first) == "finished"
    assert Counter(attempt for _, attempt, _ in await paid(shop)) == {1: 8}


async def test_an_attempt_that_another_process_has_closed_commits_nothing(
    make: Make, shop: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease was lost just before the commit: others have declared the attempt lost by then."""
    runtime, other = await make(performs=True), await make()
    commit = Transaction.commit
    closed: list[Any] = []

    async def too_late(self: Transaction, send: Any) -> Any:
        if not closed:
            closed.append(await other.committer.submit(run_id, LOCAL_TENANT, c.StepLost(path="pay", attempt=1)))
        return await commit(self, send)

    monkeypatch.setattr(Transaction, "commit", too_late)
    run_id = (await start(runtime, paying("wait", attempts=1))).run_id
    await until(lambda: effects.begun)
    effects.gate.set()
    assert await ended(runtime, run_id) == "finished"
    assert closed
    assert await paid(shop) == [("pay", 2, "paid")]
    attempts = [each.attempt for each in await log_of(shop, run_id) if isinstance(each, e.AttemptStarted)]
    assert attempts == [2]


@pytest.mark.parametrize("at", ["before the record", "before the commit", "behind the commit"])
async def test_a_connection_that_breaks_leaves_one_payment(
    make: Make, shop: Connection, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    runtime = await make(performs=True)
    commit = Transaction.commit
    broken: list[str] = []

    async def breaks(self: Transaction, send: Any) -> Any:
        if broken:
            return await commit(self, send)
        broken.append(at)
        connection: Any = self._connection
        pid = connection.get_server_pid()

        async def cut() -> None:
            await shop.execute("SELECT pg_terminate_backend($1, 5000)", pid)

        if at == "before the record":
            await cut()
            return await commit(self, send)
        if at == "before the commit":

            async def sent(connection: Any) -> Any:
                done = await send(connection)
                await cut()
                return done

            return await commit(self, sent)
        outer = self._outer

        class Lost:
            async def commit(self) -> None:
                await outer.commit()
                raise ConnectionResetError("the answer was lost")

        self._outer = Lost()
        return await commit(self, send)

    monkeypatch.setattr(Transaction, "commit", breaks)
    run_id = (await start(runtime, paying("return"))).run_id
    assert await ended(runtime, run_id) == "finished", "it needs no `retry`: nothing was wrong with the tool"
    assert broken == [at]
    attempt = 1 if at == "behind the commit" else 2
    assert await paid(shop) == [("pay", attempt, "paid")]


@pytest.mark.parametrize("then", ["wait", "outlive", "outlive within"])
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_a_tool_whose_connection_is_cut_is_lost_and_has_not_failed(
    make: Make, shop: Connection, then: str, delivery: str
) -> None:
    """As when the database is started anew: the step has no `retry`, and its run goes on all the same."""
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying(f"{then}, attempts: 1", f", delivery: {delivery}"))).run_id
    await until(lambda: effects.begun)
    tools = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'hai-flow tool'"
    await shop.execute(f"{tools} AND datname = current_database()")
    effects.gate.set()
    if delivery == "at_least_once":
        assert await ended(runtime, run_id) == "finished"
        assert await paid(shop) == [("pay", 2, "paid")]
    else:
        await until(lambda: is_now(runtime, run_id, "waiting"))
        (question,) = (await state_of(runtime, run_id)).pendings.values()
        assert question.opened.options == ("happened", "again", "fail")
        assert await paid(shop) == []


async def test_a_row_that_another_transaction_holds_is_waited_for(make: Make, shop: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, paying("wait"))).run_id
    await until(lambda: effects.begun)

    async def waits() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hai-flow tool'"
        return bool(await shop.fetchval(f"{query} AND wait_event_type = 'Lock'"))

    async with connecting(runtime.dsn) as looks, looks.transaction():
        await looks.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", run_id)
        effects.gate.set()
        await until(waits)
        await asyncio.sleep(2.2)  # longer than a statement of ours waits for a lock
    assert await ended(runtime, run_id) == "finished"
    assert await paid(shop) == [("pay", 1, "paid")]


async def test_fifty_kills_of_workers_leave_each_payment_once(database_url: str, shop: Connection) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    began = time.monotonic()

    async def finished() -> int:
        return int(await shop.fetchval("SELECT count(*) FROM runs WHERE status = 'finished'"))

    async def all_finished() -> bool:
        return await finished() == 150

    with Nursery(database_url) as nursery:
        nursery.fork("pay 12 150")
        workers = [nursery.fork() for _ in range(3)]
        await until(finished, 30)
        for _ in range(50):
            await asyncio.sleep(chance.uniform(0.05, 0.4))  # the fault's own moment, not a wait for a fact
            victim = chance.choice(workers)
            assert alive(victim), f"seed {SEED}: a worker died by itself"
            os.kill(victim, signal.SIGKILL)
            workers.remove(victim)
            workers.append(nursery.fork())
        try:
            await until(all_finished, 60, every=0.1)
        except AssertionError:
            columns = "id, status, seq, version, fence, worker, wake_at, convert_from(result, 'UTF8')"
            rows = await shop.fetch(f"SELECT {columns} FROM runs WHERE status <> 'finished'")
            raise AssertionError(f"seed {SEED}: {len(rows)} have not finished: {rows[:5]}") from None
    await check_all(shop)
    found = await shop.fetch("SELECT run_id, path, count(*) AS n FROM shop.payments GROUP BY 1, 2")
    wrong = [tuple(row) for row in found if row["n"] != effects.PAID[row["path"]]]
    assert not wrong, f"seed {SEED}: {wrong}"
    assert len(found) == 150 * len(effects.PAID)
    again = await shop.fetchval("SELECT count(*) FROM shop.payments WHERE attempt > 1")
    print(f"seed {SEED}: {again} payments by a later attempt, {time.monotonic() - began:.0f} s")
    assert again, "no kill met a transaction: the test tests nothing"
