"""Feedback is one row for each principal and subject of a thread; threads are listed where their newest run is."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.store.commit.entries import MessageRow, PendingRow
from hai_flow.store.people import feedback
from hai_flow.store.people.feedback import Feedback, Opinion, Subject
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import thread_lists
from tests.store.conftest import STRANGER, TENANT, as_owner, birth, commit, decision

UP = Opinion("up", None, [])
SUBJECT = Subject(TENANT, "thread", "message", "m1")
RUN = UUID(int=7)


async def give(
    db: Database, opinion: Opinion = UP, subject: Subject = SUBJECT, who: str = "user:a", via: str = "rest"
) -> tuple[Feedback, bool]:
    return await feedback.give_feedback(db.api, subject, RUN, who, via, opinion)


async def listed(db: Database, tenant: UUID = TENANT, thread_id: str = "thread", **how: Any) -> list[Feedback]:
    asked: dict[str, Any] = {"limit": 9, **how}
    return await feedback.list_feedback(db.api, tenant, thread_id, **asked)


async def test_what_somebody_says_later_stands_instead_of_what_they_said_before(db: Database) -> None:
    first, new = await give(db)
    assert new
    assert (first.rating, first.comment, first.labels, first.run_id) == ("up", None, [], RUN)
    assert first.created_at == first.updated_at
    later, new = await give(db, Opinion("2", "too long\nand wrong", ["tone", "facts"]), via="rest (act as)")
    assert not new
    assert (later.rating, later.comment, later.labels) == ("2", "too long\nand wrong", ["tone", "facts"])
    assert (later.id, later.created_at, later.via) == (first.id, first.created_at, "rest (act as)")
    assert later.updated_at > first.updated_at
    assert await listed(db) == [later]
    assert await feedback.get_feedback(db.api, SUBJECT, "user:a") == later


async def test_the_same_again_changes_nothing_not_even_its_time(db: Database) -> None:
    for opinion in (UP, Opinion(None, "fine", []), Opinion(None, None, ["tone"])):
        first, _ = await give(db, opinion)
        assert await give(db, opinion) == (first, False)


async def test_everybody_has_an_opinion_of_their_own_of_each_subject(db: Database) -> None:
    subjects = [
        SUBJECT,
        SUBJECT._replace(kind="pending"),
        SUBJECT._replace(id="m2"),
        SUBJECT._replace(thread_id="another"),
        SUBJECT._replace(tenant=STRANGER),
    ]
    given = [(await give(db, subject=subject, who=who))[0] for subject in subjects for who in ("user:a", "user:b")]
    assert len({each.id for each in given}) == len(given)
    assert await listed(db) == given[5::-1]
    assert await listed(db, thread_id="another") == given[7:5:-1]
    assert await listed(db, STRANGER) == given[:7:-1]


async def test_what_is_withdrawn_is_gone_and_nothing_else_is(db: Database) -> None:
    for who in ("user:a", "user:b"):
        await give(db, who=who)
    await give(db, subject=SUBJECT._replace(tenant=STRANGER))
    for _ in range(2):
        await feedback.withdraw_feedback(db.api, SUBJECT, "user:a")
    assert await feedback.get_feedback(db.api, SUBJECT, "user:a") is None
    assert [each.principal for each in await listed(db)] == ["user:b"]
    assert [each.principal for each in await listed(db, STRANGER)] == ["user:a"]
    _, new = await give(db)
    assert new


async def test_many_who_speak_for_one_at_once_leave_one_row(db: Database) -> None:
    answers = await asyncio.gather(*(give(db, Opinion(None, f"opinion {n}", [])) for n in range(8)))
    assert sorted(new for _, new in answers) == [False] * 7 + [True]
    (stands,) = await listed(db)
    assert stands in [each for each, _ in answers]


async def test_feedback_comes_newest_first_in_pages(db: Database) -> None:
    for number in range(5):
        await give(db, subject=SUBJECT._replace(id=f"m{number}"))
    seen: list[Feedback] = []
    while page := await listed(db, limit=2, before=(seen[-1].created_at, seen[-1].id) if seen else None):
        seen += page
    assert [each.subject_id for each in seen] == ["m4", "m3", "m2", "m1", "m0"]


@pytest.mark.parametrize(
    ("subject", "opinion"),
    [
        (SUBJECT, Opinion(None, None, [])),
        (SUBJECT, Opinion("6", None, [])),  # type: ignore[arg-type]
        (SUBJECT._replace(kind="run"), UP),  # type: ignore[arg-type]
    ],
    ids=["says nothing", "a sixth star", "of a run"],
)
async def test_the_table_refuses_what_is_no_feedback(db: Database, subject: Subject, opinion: Opinion) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await give(db, opinion, subject)


async def test_the_longest_names_there_are_can_be_judged(db: Database) -> None:
    long = "".join(chr(0x1F300 + n) for n in range(200))  # nothing that an index could make shorter
    subject = Subject(TENANT, long, "message", long[::-1])
    stored, _ = await give(db, subject=subject, who="user:" + "".join(chr(0xC0 + n % 60) for n in range(200)))
    assert (stored.thread_id, stored.subject_id) == (subject.thread_id, subject.id)


async def test_a_message_is_found_in_its_thread_alone_newest_of_equal_ids(db: Database) -> None:
    first, second, child = (birth(thread_id="t", messages=[MessageRow(0, "m", "user", b"{}", 1)]) for _ in range(3))
    others = [
        birth(thread_id="u", messages=[MessageRow(0, "n", "user", b"{}", 1)]),
        birth(thread_id="t", tenant=STRANGER, messages=[MessageRow(0, "s", "user", b"{}", 1)]),
    ]
    for entry in (first, second, *others):
        await commit(db, entry)
    found = {name: await feedback.run_of_message(db.api, TENANT, "t", name) for name in ("m", "n", "s", "x")}
    assert found == {"m": second.run_id, "n": None, "s": None, "x": None}
    assert await feedback.run_of_message(db.api, STRANGER, "t", "s") == others[1].run_id
    await commit(db, child)
    assert await feedback.run_of_message(db.api, TENANT, "t", "m") == child.run_id


async def test_a_pending_is_found_in_its_thread_alone(db: Database) -> None:
    run = birth(thread_id="t")
    await commit(db, run)
    for version, status in ((1, "open"), (2, "approve")):
        await commit(db, decision(run.run_id, version, pendings=[PendingRow("p", status, "s", b"d", None, b"{}")]))
        assert await feedback.find_pending_of_thread(db.api, TENANT, "t", run.run_id, "p") == status
    for tenant, thread_id, run_id, id in (
        (STRANGER, "t", run.run_id, "p"),
        (TENANT, "u", run.run_id, "p"),
        (TENANT, "t", uuid4(), "p"),
        (TENANT, "t", run.run_id, "q"),
    ):
        assert await feedback.find_pending_of_thread(db.api, tenant, thread_id, run_id, id) is None


# --- threads ------------------------------------------------------------------------------------------------------


async def test_threads_are_listed_once_each_where_their_newest_run_is(db: Database) -> None:
    entries = [birth(thread_id=f"t{n % 3}", workflow_name=f"w{n}") for n in range(6)]
    for entry in entries:
        await commit(db, entry)
    child = birth(thread_id="t0", parent_id=entries[0].run_id, parent_path="sub")
    await commit(db, child, birth(thread_id="t9", tenant=STRANGER))
    await commit(db, decision(entries[5].run_id, 1, status="finished", busy=False))
    found = await thread_lists.list_threads(db.api, TENANT, limit=9)
    assert [(each.id, each.run_id, each.workflow_name, each.status) for each in found] == [
        ("t2", entries[5].run_id, "w5", "finished"),
        ("t1", entries[4].run_id, "w4", "running"),
        ("t0", entries[3].run_id, "w3", "running"),
    ]
    ended = await db.api.fetchval("SELECT max(at) FROM log WHERE run_id = $1", entries[5].run_id)
    assert found[0].updated_at == ended > found[0].run_created_at
    for each in found:
        assert each.created_at < each.run_created_at <= each.updated_at
        assert await thread_lists.get_thread(db.api, TENANT, each.id) == each
    first = await thread_lists.list_threads(db.api, TENANT, limit=2)
    rest = await thread_lists.list_threads(db.api, TENANT, limit=2, before=(first[-1].run_created_at, first[-1].run_id))
    assert [*first, *rest] == found
    assert [each.id for each in await thread_lists.list_threads(db.api, STRANGER, limit=9)] == ["t9"]
    assert await thread_lists.get_thread(db.api, STRANGER, "t0") is None
    assert await thread_lists.get_thread(db.api, TENANT, "nothing") is None


async def test_a_list_of_threads_reads_no_more_runs_than_its_page_needs(db: Database) -> None:
    for number in range(0, 400, 10):
        await commit(db, *(birth(thread_id=f"t{number + n}") for n in range(10)))
    await as_owner(db, "ANALYZE runs")
    async with db.api.acquire() as connection, connection.transaction():
        assert len(await thread_lists.list_threads(connection, TENANT, limit=5)) == 5
        read = await connection.fetchrow(
            "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'runs'"
        )
    assert read is not None
    assert read["seq_tup_read"] == 0
    assert read["idx_tup_fetch"] <= 25
