"""Absences that begin and end while a question waits: who decides then is told, once, whichever process does it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from hai_flow.runtime.base.sweep_isolation import Rows
from hai_flow.runtime.people.absence_notices import Reseating
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.people import absences
from hai_flow.store.people.absences import AbsenceRow
from tests.runtime.test_notifier import World, world
from tests.support.waiting import until

__all__ = ["world"]


async def leave(world: World, person: str, delegate: str | None, *, begins: float = 0.0, lasts: float = 60.0) -> UUID:
    """Let somebody be away in `begins` seconds, for so long."""
    since = datetime.now(UTC) + timedelta(seconds=begins)
    over = since + timedelta(seconds=lasts)
    row = AbsenceRow(
        uuid4(), person, delegate, since.date(), over.date(), "UTC", since, over, ("boss",), (), None, person, since
    )
    await absences.create(world.runtime.database.api, LOCAL_TENANT, row)
    return row.id


async def look(world: World, processes: int = 1) -> None:
    """Let so many processes look at once, until nothing is due."""
    services = [Reseating(world.runtime.database, lambda tenant: None, Rows()) for _ in range(processes)]
    for each in services:
        await each.start()
        each.look(None, 0.0)

    async def all_told() -> bool:
        due = await world.runtime.database.api.fetchval(f"SELECT {absences.ANY_ABSENCE_DUE}")
        return not due

    await until(all_told)
    for each in services:
        await each.stop()


async def list_sent(world: World, run_id: UUID) -> list[tuple[str, str | None]]:
    """What was sent of the run, and to whom."""
    return sorted((each.what, each.person) for each in await world.listed(run_id) if each.status == "sent")


async def test_who_decides_for_an_absent_person_is_told_in_their_place(world: World) -> None:
    await leave(world, "user:ann", "user:cy")
    run_id = await world.ask("[email]")
    async with world.notifier():
        await world.ended(run_id, 3)
    assert await list_sent(world, run_id) == [("opened", "user:bob"), ("opened", "user:cy")]
    (mail,) = [each for each in world.mail.mails if str(each["To"]) == "cy@example.com"]
    assert "/links/" not in str(mail.get_payload()), "a link decides for its reader alone"


async def test_a_waiting_question_is_sent_once_as_an_absence_begins_and_ends(world: World) -> None:
    run_id = await world.ask("[email]")
    async with world.notifier():
        await world.ended(run_id, 3)
        id = await leave(world, "user:ann", "user:cy")
        await look(world, processes=3)
        await world.ended(run_id, 4)
        assert await list_sent(world, run_id) == [
            ("opened", "user:ann"), ("opened", "user:bob"), ("reseated", "user:cy"),
        ]  # fmt: skip
        await world.runtime.database.api.execute("UPDATE absences SET until = now() WHERE id = $1", id)
        await look(world, processes=3)
        await world.ended(run_id, 5)
        await look(world, processes=3)
        assert await list_sent(world, run_id) == [
            ("opened", "user:ann"), ("opened", "user:bob"), ("reseated", "user:ann"), ("reseated", "user:cy"),
        ]  # fmt: skip


async def test_an_absence_that_passed_unattended_tells_nobody(world: World) -> None:
    run_id = await world.ask("[email]")
    async with world.notifier():
        await world.ended(run_id, 3)
        await leave(world, "user:ann", "user:cy", begins=-120)
        await look(world)
    assert [each.what for each in await world.listed(run_id)].count("reseated") == 0


async def test_one_whose_seat_nobody_holds_is_told_all_the_same(world: World) -> None:
    await leave(world, "user:ann", None)
    run_id = await world.ask("[email]")
    async with world.notifier():
        await world.ended(run_id, 3)
    assert ("opened", "user:ann") in await list_sent(world, run_id)


async def test_who_is_asked_by_no_role_of_theirs_moves_nothing(world: World) -> None:
    run_id = await world.ask("[email]")
    await leave(world, "user:zed", "user:cy")
    await world.runtime.database.api.execute("UPDATE absences SET roles = '{clerk}'")
    await look(world)
    await asyncio.sleep(0)
    assert [each.what for each in await world.listed(run_id)].count("reseated") == 0


async def test_an_absence_is_told_of_beside_a_question_that_can_not_be_read(world: World) -> None:
    bad, good = [await world.ask("[email]") for _ in range(2)]
    async with world.notifier():
        await world.ended(good, 3)
        strange = """UPDATE pendings SET body = convert_to(replace(convert_from(body, 'UTF8'), '"policy":{',
          '"policy":{"ballot":"secret",'), 'UTF8') WHERE run_id = $1"""
        await world.runtime.database.api.execute(strange, bad)
        await leave(world, "user:ann", "user:cy")
        await look(world)
        await world.ended(good, 4)
    assert ("reseated", "user:cy") in await list_sent(world, good)
