"""A signal reaches every run that waits for it, whenever it was sent and whoever dies on the way."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import pytest
import structlog
from msgspec.structs import replace

from hai_flow.engine import events as e
from hai_flow.engine.state.snapshot import encode_state
from hai_flow.errors import Rejected, StoreError
from hai_flow.runtime.messaging.outbox import FIRST_PAGE, Delivery
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.messaging import signals as store
from tests.runtime.conftest import (
    ASKING,
    LISTENING,
    Connection,
    Make,
    answer,
    is_now,
    open_pending,
    start,
    state_of,
    status_of,
)
from tests.support.ledger import log_of
from tests.support.waiting import until

WAITING = (
    "steps:\n  - {id: paid, wait_for: {event: payment, match: 'event.data.for == 1.0', deadline: 1d}}\n"
    "output: ${{ steps.paid.output }}\n"
)
ANY = "steps:\n  - {id: paid, wait_for: {event: payment, deadline: 1d}}\noutput: ${{ steps.paid.output.id }}\n"
THREE = (
    "steps:\n  - id: thrice\n    repeat:\n      max: 3\n      steps:\n"
    "        - {id: paid, wait_for: {event: payment, deadline: 1d}}\n"
)
LATER = ASKING + "  - {id: paid, wait_for: {event: payment, deadline: 1d}}\noutput: ${{ steps.paid.output.id }}\n"


async def send(runtime: Runtime, id: str, type: str = "payment", data: Any = None, run_id: UUID | None = None) -> bool:
    """Whether it had been sent before."""
    return (await runtime.delivery.send(LOCAL_TENANT, id, type, {"for": 1} if data is None else data, run_id))[1]


async def settled(eye: Connection) -> bool:
    """Nothing is on its way any more."""
    return not await eye.fetchval(
        "SELECT (SELECT count(*) FROM signals WHERE due_at IS NOT NULL) + count(*) FROM outbox"
    )


async def subscribed(eye: Connection, *run_ids: UUID) -> bool:
    found = await eye.fetch("SELECT DISTINCT run_id FROM subscriptions WHERE run_id = ANY($1::uuid[])", list(run_ids))
    return len(found) == len(run_ids)


async def taken_by(eye: Connection, run_id: UUID) -> list[str]:
    return [event.id for event in await log_of(eye, run_id) if isinstance(event, e.SignalReceived)]


async def test_a_signal_finishes_the_step_that_waits_for_it(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, WAITING)).run_id
    await until(lambda: subscribed(eye, run_id))
    await send(runtime, "other", data={"for": 2})
    await send(runtime, "ours", data={"for": 1})
    await until(lambda: is_now(runtime, run_id, "finished"))
    output = (await state_of(runtime, run_id)).output
    assert (output["id"], output["type"], output["data"]) == ("ours", "payment", {"for": 1})
    assert not await send(runtime, "late")
    await until(lambda: settled(eye))
    assert not await eye.fetchval("SELECT count(*) FROM subscriptions")


async def test_a_signal_from_before_the_step_is_there_when_it_begins(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await send(runtime, "from before the start")
    run_id = (await start(runtime, LATER)).run_id
    for id in ("first", "second"):
        await send(runtime, id, run_id=run_id if id == "second" else None)
    await until(lambda: settled(eye))
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(runtime, run_id)))
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert (await state_of(runtime, run_id)).output == "first"


async def test_a_signal_from_before_the_step_is_found_behind_many_unwanted(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    runtime.delivery.config = replace(runtime.delivery.config, page_max=2)
    run_id = (await start(runtime, ASKING + WAITING.removeprefix("steps:\n"))).run_id
    for number in range(5):  # more than two pages, as is looked twice
        await send(runtime, f"other {number}", data={"for": 2})
    await send(runtime, "ours", data={"for": 1})
    await until(lambda: settled(eye))
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(runtime, run_id)))
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert await taken_by(eye, run_id) == ["ours"]


async def about_to_offer(runtime: Runtime, id: str, run_id: UUID | None = None) -> None:
    """Another process has stored a signal, and is about to offer it."""
    await store.store_signal(
        runtime.database.api, LOCAL_TENANT, id, "payment", b"1", run_id, due_after=timedelta(days=1)
    )


async def test_a_signal_is_offered_after_older_ones_of_another_process(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, THREE)).run_id
    await until(lambda: subscribed(eye, run_id))
    await until(lambda: settled(eye))
    await about_to_offer(runtime, "older")
    await send(runtime, "newer")
    await until(lambda: taken(eye, run_id, "newer"))
    assert await taken_by(eye, run_id) == ["older", "newer"]


async def test_an_older_pending_signal_is_offered_only_to_its_addressee(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    a, b = [(await start(runtime, ANY)).run_id for _ in range(2)]
    await until(lambda: subscribed(eye, a, b))
    await until(lambda: settled(eye))
    await about_to_offer(runtime, "older, for b", b)
    await send(runtime, "newer, for all")
    for run_id, id in ((a, "newer, for all"), (b, "older, for b")):
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
        assert await taken_by(eye, run_id) == [id]


async def test_two_runs_take_one_signal_and_an_addressed_one_its_addressee_alone(make: Make, eye: Connection) -> None:
    runtime, other = await make(performs=True), await make(performs=True)
    a, b = (await start(runtime, ANY)).run_id, (await start(other, ANY)).run_id
    await until(lambda: subscribed(eye, a, b))
    await send(runtime, "for b", run_id=b)
    await until(lambda: is_now(runtime, b, "finished"))
    assert await status_of(runtime, a) == "waiting"
    c_ = (await start(runtime, ANY)).run_id
    await until(lambda: subscribed(eye, a, c_))
    await send(other, "for all")
    for run_id in (a, c_):
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
        assert (await state_of(runtime, run_id)).output == "for all"


async def test_signals_are_taken_once_each_and_the_oldest_first(make: Make, eye: Connection) -> None:
    a, b = await make(performs=True), await make(performs=True)
    run_id = (await start(a, THREE)).run_id
    for number in range(5):
        await send((a, b)[number % 2], f"s{number}")
    await until(lambda: is_now(a, run_id, "finished"))
    assert await taken_by(eye, run_id) == ["s0", "s1", "s2"]


async def test_a_repeated_signal_changes_nothing_and_a_changed_one_is_refused(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, THREE)).run_id
    assert not await send(runtime, "s1")
    assert await send(runtime, "s1")
    with pytest.raises(Rejected, match="another signal has the id"):
        await send(runtime, "s1", data={"for": 2})
    await until(lambda: settled(eye))
    assert await taken_by(eye, run_id) == ["s1"]


async def test_a_signal_whose_sender_dies_unoffered_is_offered_by_another(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, ANY)).run_id
    await until(lambda: subscribed(eye, run_id))
    await store.store_signal(runtime.database.api, LOCAL_TENANT, "s1", "payment", b"1")  # and nobody is told
    await until(lambda: is_now(runtime, run_id, "finished"))


async def test_a_run_whose_process_dies_before_subscribing_gets_its_signal(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, died = Delivery._subscribe, asyncio.Event()

    async def die(self: Delivery, message: Any) -> None:
        if died.is_set():
            return await real(self, message)
        died.set()
        await self.database.api.execute("UPDATE outbox SET due_at = now()")
        raise ConnectionError("the process died")

    monkeypatch.setattr(Delivery, "_subscribe", die)
    runtime = await make(performs=True)
    run_id = (await start(runtime, ANY)).run_id
    await send(runtime, "s1")
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert died.is_set()
    assert await taken_by(eye, run_id) == ["s1"]


async def test_a_signal_offered_twice_by_a_death_before_settling_is_taken_once(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, died = store.settle_signal, asyncio.Event()

    async def die(connection: Any, signal: store.Signal) -> None:
        if died.is_set():
            return await real(connection, signal)
        died.set()
        await connection.execute("UPDATE signals SET due_at = now() WHERE due_at IS NOT NULL")
        raise ConnectionError("the process died")

    monkeypatch.setattr(store, "settle_signal", die)
    runtime = await make(performs=True)
    run_id = (await start(runtime, THREE)).run_id
    await until(lambda: subscribed(eye, run_id))
    await send(runtime, "s1")
    await until(lambda: settled(eye))
    assert died.is_set()
    assert await taken_by(eye, run_id) == ["s1"]


async def test_a_listener_hears_every_broadcast_until_it_has_read_it(make: Make, eye: Connection) -> None:
    runtime, heard = await make(performs=True), []
    runtime.delivery.config = replace(runtime.delivery.config, again_seconds=0.0)

    async def hear(signal: store.Signal, only: Any) -> dict[str, Exception]:
        heard.append(signal.id)
        if len(heard) == 1:
            raise ConnectionError("not now")
        return {}

    runtime.delivery.listeners.append(hear)
    run_id = (await start(runtime, ASKING)).run_id
    await send(runtime, "to all")
    await send(runtime, "to one", run_id=run_id)
    await until(lambda: settled(eye))
    assert heard == ["to all", "to all"]


async def test_a_run_that_waits_goes_on_waiting_after_a_restart(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, ANY)).run_id
    await until(lambda: subscribed(eye, run_id))
    await runtime.stop()
    again = await make(performs=True)
    await send(again, "s1")
    await until(lambda: is_now(again, run_id, "finished"))


@pytest.mark.costly
async def test_signals_and_waits_that_cross_each_other_always_meet(make: Make, eye: Connection) -> None:
    """Each run gets one signal, sent while its `wait_for` is being committed, or its subscription written."""
    a, b = await make(performs=True), await make(performs=True)

    async def cross(number: int) -> UUID:
        mine, other = (a, b) if number % 2 else (b, a)
        run_id = (await start(mine, LATER)).run_id
        answered = answer(await open_pending(mine, run_id))
        answering = asyncio.create_task(mine.committer.submit(run_id, LOCAL_TENANT, answered))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        if number % 3 == 0:
            await answering
        await send((mine, other)[number % 4 // 2], f"s{number}", run_id=run_id)
        await answering
        return run_id

    run_ids = await asyncio.gather(*map(cross, range(40)))
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(a, run_id, "finished"))
    await until(lambda: settled(eye))


async def cost(count: dict[str, int], eye: Connection, runtime: Runtime, run_id: UUID, ids: list[str]) -> int:
    """How many rows of signals are read until the run has taken these, one after the other."""
    before = count["rows"]
    for id in ids:
        await send(runtime, id, type="note", run_id=run_id if id.endswith("0") else None)
        await until(lambda id=id: taken(eye, run_id, id))
    return count["rows"] - before


async def taken(eye: Connection, run_id: UUID, id: str) -> bool:
    rows = await eye.fetch("SELECT events FROM log WHERE run_id = $1 ORDER BY last_seq DESC LIMIT 5", run_id)
    events = [event for row in rows for event in e.decode_events(row[0])]
    return any(isinstance(event, e.SignalReceived) and event.id == id for event in events)


def counting(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the rows that the reads of signals return."""
    count = {"rows": 0}
    for name in ("signals_for", "signals_by_id", "find_unsettled_before", "subscribers"):
        real = getattr(store, name)

        async def counted(*given: Any, real: Any = real, **named: Any) -> Any:
            found = await real(*given, **named)
            count["rows"] += len(found)
            return found

        monkeypatch.setattr(store, name, counted)
    return count


@pytest.mark.costly
async def test_a_signals_cost_to_a_listener_is_independent_of_earlier_ones(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = counting(monkeypatch)
    runtime = await make(performs=True)
    run_id = (await start(runtime, LISTENING)).run_id
    first = await cost(count, eye, runtime, run_id, [f"a{n}" for n in range(10)])
    size = len(encode_state(await state_of(runtime, run_id)))
    for number in range(100):  # a burst: many are there when the run begins to wait
        await send(runtime, f"b{number}", type="note")
    await until(lambda: taken(eye, run_id, "b99"))
    await until(lambda: settled(eye))  # each is offered, and what its waits made it read is read
    last = await cost(count, eye, runtime, run_id, [f"c{n}" for n in range(10)])
    assert await taken_by(eye, run_id) == [
        *(f"a{n}" for n in range(10)),
        *(f"b{n}" for n in range(100)),
        *(f"c{n}" for n in range(10)),
    ]
    assert last <= 2 * first + 10
    state = await state_of(runtime, run_id)
    assert len(state.signals) <= 20  # what was taken since the run began to wait for the last time, not 120
    assert len(encode_state(state)) <= size + 20 * 60


@pytest.mark.costly
async def test_a_burst_costs_each_signal_a_page_at_most(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = counting(monkeypatch)
    runtime = await make(performs=True)
    run_id = (await start(runtime, ASKING + LISTENING.removeprefix("steps:\n"))).run_id
    for number in range(120):
        await store.store_signal(runtime.database.api, LOCAL_TENANT, f"s{number}", "note", b"1")
    await until(lambda: settled(eye))
    before = count["rows"]
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(runtime, run_id)))
    await until(lambda: taken(eye, run_id, "s119"))
    await until(lambda: settled(eye))
    assert await taken_by(eye, run_id) == [f"s{number}" for number in range(120)]
    assert count["rows"] - before <= 121 * 2 * FIRST_PAGE


async def test_an_unreachable_listener_keeps_a_signal_from_nobody_else(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that can't be offered anything, and one that can: each is settled for itself."""
    runtime = await make(performs=True)
    runtime.delivery.config = replace(runtime.delivery.config, again_seconds=0.0)
    broken, sound = (await start(runtime, ANY)).run_id, (await start(runtime, ANY)).run_id
    await until(lambda: subscribed(eye, broken, sound))
    real, offered, mended = runtime.committer.submit, [], asyncio.Event()

    async def submit(run_id: UUID, *given: Any, **named: Any) -> Any:
        offered.append(run_id)
        if run_id == broken and not mended.is_set():
            raise StoreError("the run can't be read")
        return await real(run_id, *given, **named)

    monkeypatch.setattr(runtime.committer, "submit", submit)
    await send(runtime, "s1")
    await until(lambda: is_now(runtime, sound, "finished"))
    await until(lambda: offered.count(broken) > 2)
    told = offered.count(sound)
    assert told <= 2, "with no time between tries, a look that began before it was settled may give it out once more"
    await until(lambda: offered.count(broken) > 6)
    assert offered.count(sound) == told
    (kept,) = await eye.fetch("SELECT undelivered, tries FROM signals WHERE id = 's1'")
    assert (kept["undelivered"], kept["tries"] > 0) == ([f"run {broken}"], True)
    mended.set()
    await until(lambda: is_now(runtime, broken, "finished"))
    await until(lambda: settled(eye))
    assert await eye.fetchval("SELECT undelivered FROM signals WHERE id = 's1'") is None


async def test_a_signal_unheard_by_somebody_is_given_up_and_names_them(make: Make, eye: Connection) -> None:
    runtime, tried = await make(performs=True), []
    runtime.delivery.config = replace(runtime.delivery.config, again_seconds=0.0, tries_max=3)

    async def hear(signal: store.Signal, only: Any) -> dict[str, Exception]:
        tried.append(only and list(only))
        return {"workflow broken": StoreError("its plan can't be made")}

    runtime.delivery.listeners.append(hear)
    with structlog.testing.capture_logs() as said:
        await send(runtime, "s1")
        await until(lambda: settled(eye))
        await until(lambda: any(line["event"] == "signal_given_up" for line in said))  # said behind the commit
    assert tried == [None, ["workflow broken"], ["workflow broken"]]
    assert await eye.fetchval("SELECT undelivered FROM signals WHERE id = 's1'") == ["workflow broken"]
    levels = [(line["log_level"], line["event"]) for line in said if line.get("of") == "workflow broken"]
    assert levels == [("warning", "signal_put_off"), ("error", "signal_given_up")]


async def test_the_wait_for_one_who_can_not_be_reached_grows(make: Make, eye: Connection) -> None:
    runtime = await make()
    pool, a_day = runtime.database.api, timedelta(days=1)
    signal, _ = await store.store_signal(pool, LOCAL_TENANT, "s1", "payment", b"1", due_after=a_day)
    waits = []
    for tries in (3, 4, 5, 10):
        await runtime.delivery.settle(replace(signal, tries=tries), {"run x": StoreError("no")})
        waits.append(await eye.fetchval("SELECT due_at - now() FROM signals"))
    assert [round(wait.total_seconds(), -1) for wait in waits] == [40, 80, 160, 600]


async def test_a_signal_settled_before_the_subscription_shows_is_found_again(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever offered it saw nobody who waits; whoever writes the subscription has read what was there before."""
    real = store.subscribe

    async def subscribe(connection: Any, tenant: UUID, *given: Any) -> None:
        signal, _ = await store.store_signal(
            connection, tenant, "between", "payment", b"1", due_after=timedelta(days=1)
        )
        await store.settle_signal(connection, signal)
        await real(connection, tenant, *given)

    monkeypatch.setattr(store, "subscribe", subscribe)
    runtime = await make(performs=True)
    run_id = (await start(runtime, ANY)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert await taken_by(eye, run_id) == ["between"]


async def test_a_signal_slow_to_offer_goes_to_no_other_process_meanwhile(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LEASE", timedelta(seconds=0.6))
    monkeypatch.setattr(store, "due_signals", AsyncMock(return_value=[]))  # nobody else renews it by taking it
    runtime, go_on, begun = await make(), asyncio.Event(), asyncio.Event()

    async def slowly(signal: Any, only: Any = None) -> dict[str, Exception]:
        begun.set()
        await go_on.wait()
        return {}

    monkeypatch.setattr(runtime.delivery, "offer", slowly)
    signal, _ = await store.store_signal(
        runtime.database.api, LOCAL_TENANT, "slow", "payment", b"{}", due_after=store.LEASE
    )
    spreading = asyncio.create_task(runtime.delivery._spread(signal))
    await begun.wait()
    first = await eye.fetchval("SELECT due_at FROM signals WHERE id = 'slow'")
    renewed = "SELECT due_at > $1::timestamptz + $2::interval AND due_at > now() FROM signals WHERE id = 'slow'"
    await until(lambda: eye.fetchval(renewed, first, store.LEASE))  # more than a lease later it is still this one's
    go_on.set()
    await spreading
    assert await settled(eye)
