"""Starts and events in a transaction of another program: committed with it, exactly once, for its own tenant alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import asyncpg
import httpx2
import pytest
import sqlalchemy as sa
from hai_flow_client import send_in, start_in

from hai_flow.engine.canaries import CANARY
from hai_flow.errors import Rejected
from hai_flow.runtime.messaging.deposits import Deposits
from hai_flow.store.messaging import deposits as stored_deposits
from hai_flow.store.messaging.deposits import Deposit
from tests.store.conftest import as_role, role
from tests.support.identities import KEYS, People
from tests.support.pgbouncer import PgBouncer, pgbouncer_program
from tests.support.postgres import Server, connecting, fetch_value
from tests.support.server import YAML, serving
from tests.support.waiting import until

__all__ = ["pgbouncer_program"]

FLOW = """
hai: flow/v1
name: shipping
version: 1
input: {type: object, required: [order], properties: {order: {type: integer}}}
steps:
  - let: {n: "${{ input.order }}"}
output: {order: "${{ input.order }}"}
"""
WAITING = """
hai: flow/v1
name: waiting
version: 1
steps:
  - id: paid
    wait_for: {event: order.paid, deadline: 1h}
output: {sum: "${{ steps.paid.output.data.sum }}"}
"""


class Shop(NamedTuple):
    """The database, the DSN of a program's role, and that role, which may deposit for the tenant `acme`."""

    dsn: str
    own: str
    role: str

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(self.own)


@pytest.fixture
async def shop(postgres_server: Server) -> AsyncIterator[Shop]:
    with postgres_server.database() as dsn:
        People(dsn).tenant("acme")
        People(dsn).tenant("globex")
        async with role(dsn) as name:
            await fetch_value(dsn, "SELECT hai_allow_deposits($1, 'acme', 'service:shop')", name)
            yield Shop(dsn, as_role(dsn, name), name)


def publish(url: str, dsn: str, *sources: str) -> dict[str, str]:
    """Publish for `acme`; returns the headers of somebody who sees its runs."""
    people = People(dsn)
    publisher = people.person("user:pat", roles=["publisher"], tenant="acme")
    for source in sources:
        answer = httpx2.post(f"{url}/v1/workflows", content=source, headers={**publisher, **YAML})
        assert answer.status_code == 201, answer.text
    return people.person("user:vic", roles=["viewer"], tenant="acme")


async def test_runs_begin_with_the_commit_and_never_without_it(shop: Shop) -> None:
    with serving(shop.dsn, environment=KEYS) as server:
        viewer = publish(server.url, shop.dsn, FLOW)
        connection = await shop.connect()
        async with connection.transaction():
            id = await start_in(connection, "shipping", {"order": 1}, tenant="acme")
            assert httpx2.get(f"{server.url}/v1/runs/{id}", headers=viewer).status_code == 404
        transaction = connection.transaction()
        await transaction.start()
        never = await start_in(connection, "shipping", {"order": 2}, tenant="acme")
        await transaction.rollback()
        await connection.close()

        def ended() -> dict[str, Any] | None:
            run = httpx2.get(f"{server.url}/v1/runs/{id}", headers=viewer).json()
            return run if run.get("ended_at") else None

        run = await until(ended)
        assert run is not None
        assert (run["output"], run["started_by"]) == ({"order": 1}, "service:shop")
        assert httpx2.get(f"{server.url}/v1/runs/{never}", headers=viewer).status_code == 404

        async def are_removed() -> bool:  # behind the start: the row is there until its run is
            return await fetch_value(shop.dsn, "SELECT count(*) FROM deposits") == 0

        await until(are_removed)


@pytest.mark.costly
@pytest.mark.timeout(300)
async def test_a_thousand_transactions_half_rolled_back_give_half_through_kills(shop: Shop) -> None:
    async def deposit(numbers: range) -> None:
        connection = await shop.connect()
        for number in numbers:
            transaction = connection.transaction()
            await transaction.start()
            await start_in(connection, "shipping", {"order": number}, tenant="acme")
            await (transaction.rollback() if number % 2 else transaction.commit())
        await connection.close()

    with serving(shop.dsn, environment=KEYS) as server:
        publish(server.url, shop.dsn, FLOW)
        await deposit(range(200))
        server.kill()  # in the middle of taking them
    await asyncio.gather(*(deposit(range(first, first + 200)) for first in range(200, 1000, 200)))
    with serving(shop.dsn, environment=KEYS):
        count = "SELECT count(*) FROM runs WHERE status = 'finished'"
        await until(lambda: _is(shop.dsn, count, 500), 120)
        orders = "SELECT count(DISTINCT result) FROM runs"
        assert await fetch_value(shop.dsn, "SELECT count(*) FROM runs") == 500
        assert await fetch_value(shop.dsn, orders) == 500
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM deposits", 0))


async def _is(dsn: str, query: str, expected: int) -> bool:
    return bool(await fetch_value(dsn, query) == expected)


async def test_same_key_is_one_run_and_with_another_body_an_error(shop: Shop) -> None:
    connection = await shop.connect()

    async def begin(order: int) -> Any:
        return await start_in(connection, "shipping", {"order": order}, tenant="acme", key="order-1")

    async with connection.transaction():
        first, again = [await begin(1) for _ in range(2)]
        with pytest.raises(asyncpg.UniqueViolationError, match="order-1"):
            async with connection.transaction():
                await begin(2)
    assert first == again
    assert await fetch_value(shop.dsn, "DELETE FROM deposits RETURNING id") == UUID(first)
    with serving(shop.dsn, environment=KEYS) as server:
        publish(server.url, shop.dsn, FLOW)
        for order in (1, 1, 2):  # the row of the one before has gone by then
            assert await begin(order) == first
            await until(lambda: _is(shop.dsn, "SELECT count(*) FROM deposits WHERE due_at IS NOT NULL", 0))
            assert await fetch_value(shop.dsn, "SELECT count(*) FROM runs") == 1
    await connection.close()
    assert "command_id_reused" in await fetch_value(shop.dsn, "SELECT refused FROM deposits")


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_a_savepoint_that_is_rolled_back_leaves_no_row_and_frees_its_key(shop: Shop, isolation: Any) -> None:
    connection = await shop.connect()
    async with connection.transaction(isolation=isolation):
        savepoint = connection.transaction()
        await savepoint.start()
        await start_in(connection, "shipping", {"order": 1}, tenant="acme", key="order-1")
        await savepoint.rollback()
        kept = await start_in(connection, "shipping", {"order": 2}, tenant="acme", key="order-1")
    await connection.close()
    row = await fetch_value(shop.dsn, "SELECT id::text || body FROM deposits")
    assert row == f'{kept}{{"workflow":"shipping","input":{{"order":2}}}}'


async def test_of_two_transactions_with_one_key_both_are_the_same_run(shop: Shop) -> None:
    """The later one waits for the earlier; where its snapshot is older, PostgreSQL asks it to begin anew."""
    first, second = await shop.connect(), await shop.connect()
    cases: list[tuple[Any, Any]] = [("read_committed", None), ("repeatable_read", asyncpg.SerializationError)]
    for isolation, refusal in cases:
        ours, theirs = first.transaction(), second.transaction(isolation=isolation)
        await ours.start()
        await theirs.start()
        await second.execute("SELECT now()")
        id = await start_in(first, "shipping", {"order": 1}, tenant="acme", key=isolation)
        later = asyncio.ensure_future(start_in(second, "shipping", {"order": 1}, tenant="acme", key=isolation))
        await ours.commit()
        if refusal is None:
            assert await later == id
            await theirs.commit()
        else:
            with pytest.raises(refusal):
                await later
            await theirs.rollback()
    await first.close()
    await second.close()
    assert await fetch_value(shop.dsn, "SELECT count(*) FROM deposits") == 2


async def test_a_key_whose_row_a_worker_takes_meanwhile_is_no_error(shop: Shop) -> None:
    """The row goes between the two statements of the function that meet it."""
    await fetch_value(
        shop.dsn,
        """
        CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF current_setting('hai.taken', true) = 'no' THEN
            PERFORM set_config('hai.taken', 'yes', false);
            DELETE FROM deposits;
          END IF;
          RETURN NULL;
        END $$
        """,
    )
    await fetch_value(shop.dsn, "CREATE TRIGGER take AFTER INSERT ON deposits EXECUTE FUNCTION take()")
    connection = await shop.connect()
    first = await start_in(connection, "shipping", {"order": 1}, tenant="acme", key="order-1")
    await connection.execute("SET hai.taken = 'no'")
    assert await start_in(connection, "shipping", {"order": 1}, tenant="acme", key="order-1") == first
    await connection.close()
    assert await fetch_value(shop.dsn, "SELECT count(*) FROM deposits") == 1


async def test_a_prepared_transaction_deposits_without_the_hint_once_committed(shop: Shop) -> None:
    connection = await shop.connect()
    for hint, end in (("on", "COMMIT"), ("off", "ROLLBACK"), ("off", "COMMIT")):
        await connection.execute("BEGIN")
        await connection.execute(f"SET LOCAL hai.hint = '{hint}'")
        await start_in(connection, "shipping", {"order": 1}, tenant="acme")
        prepare = connection.execute("PREPARE TRANSACTION 'order-1'")
        if hint == "on":
            with pytest.raises(asyncpg.FeatureNotSupportedError, match="NOTIFY"):
                await prepare
            continue
        await prepare
        assert await fetch_value(shop.dsn, "SELECT count(*) FROM deposits") == 0
        await connection.execute(f"{end} PREPARED 'order-1'")
    await connection.close()
    assert await fetch_value(shop.dsn, "SELECT count(*) FROM deposits") == 1


@pytest.mark.costly
async def test_events_reach_runs_with_the_commit(shop: Shop) -> None:
    with serving(shop.dsn, environment=KEYS) as server:
        viewer = publish(server.url, shop.dsn, WAITING)
        connection = await shop.connect()
        one, other = [await start_in(connection, "waiting", tenant="acme") for _ in range(2)]
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM subscriptions", 2))
        await send_in(connection, "order.paid", {"sum": 7}, run=one, tenant="acme")

        def output(id: str) -> Any:
            return httpx2.get(f"{server.url}/v1/runs/{id}", headers=viewer).json()["output"]

        await until(lambda: output(one) == {"sum": 7})
        await send_in(connection, "order.paid", {"sum": 8}, tenant="acme")
        await until(lambda: output(other) == {"sum": 8})
        await connection.close()


async def test_a_row_that_the_server_refuses_keeps_its_reason_and_blocks_none(shop: Shop) -> None:
    with serving(shop.dsn, environment=KEYS) as server:
        publish(server.url, shop.dsn, FLOW)
        connection = await shop.connect()
        await start_in(connection, "nothing", tenant="acme")
        await start_in(connection, "shipping", {"order": "one"}, tenant="acme")
        await connection.fetchval("SELECT hai_deposit('start', $1, 'acme')", json.dumps({"flow": "shipping"}))
        await start_in(connection, "shipping", {"order": 1}, tenant="acme")
        await connection.close()
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM runs WHERE status = 'finished'", 1))
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM deposits WHERE due_at IS NULL", 3))
    reasons = await fetch_value(
        shop.dsn, "SELECT array_agg(split_part(refused, ':', 1) ORDER BY refused) FROM deposits"
    )
    assert reasons == ["input.invalid", "request.invalid", "workflow_unknown"]


async def test_a_deposit_starts_no_more_than_a_request_of_a_requester(shop: Shop) -> None:
    with serving(shop.dsn, environment=KEYS) as server:
        publish(server.url, shop.dsn, FLOW, FLOW.replace("version: 1", "version: 2"))
        ann = People(shop.dsn).person("user:ann", roles=["requester"], tenant="acme")
        of_ann = {"workflow": "shipping", "input": {"order": 1}, "thread_id": "anns"}
        assert httpx2.post(f"{server.url}/v1/runs", json=of_ann, headers=ann).status_code == 201
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM runs WHERE status = 'finished'", 1))
        connection = await shop.connect()
        await start_in(connection, "shipping@1", {"order": 1}, tenant="acme")
        await connection.fetchval("SELECT hai_deposit('start', $1, 'acme')", json.dumps(of_ann))
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM deposits WHERE due_at IS NULL", 2))
        await start_in(connection, "shipping", {"order": 1}, tenant="acme", thread_id="shops")
        async with connection.transaction():
            await start_in(connection, "shipping@2", {"order": 1}, tenant="acme")
            publish(server.url, shop.dsn, FLOW.replace("version: 1", "version: 3"))
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM runs WHERE status = 'finished'", 3))
        await connection.close()
        assert httpx2.get(f"{server.url}/v1/threads/anns", headers=ann).status_code == 200
    reasons = await fetch_value(
        shop.dsn, "SELECT array_agg(split_part(refused, ':', 1) ORDER BY refused) FROM deposits"
    )
    assert reasons == ["thread_busy", "version_forbidden"]


@pytest.mark.costly
async def test_a_deposit_brings_no_files_but_its_principals_own(shop: Shop) -> None:
    source = WAITING.replace("name: waiting", "name: files\ninput: {type: object, properties: {file: {type: string}}}")
    with serving(shop.dsn, environment=KEYS) as server:
        viewer = publish(server.url, shop.dsn, source)
        people = People(shop.dsn)
        doors = {who: people.person(who, roles=["requester"], tenant="acme") for who in ("service:shop", "user:bob")}
        own, foreign = (
            str(httpx2.post(f"{server.url}/v1/files", content=name.encode(), headers=door).json()["id"])
            for name, door in doors.items()
        )
        connection = await shop.connect()
        run = await start_in(connection, "files", {"file": own}, tenant="acme")
        bobs = {"workflow": "files", "input": {"file": foreign}}
        assert httpx2.post(f"{server.url}/v1/runs", json=bobs, headers=doors["user:bob"]).status_code == 201
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM subscriptions", 2))
        for named in (foreign, f"see:\n{foreign}", f"file_{'0' * 64}"):
            await start_in(connection, "files", {"file": named}, tenant="acme")
            for to in ({"run": run}, {}):
                await send_in(connection, "order.paid", {"file": named}, tenant="acme", **to)
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM deposits WHERE refused LIKE 'file_unknown%'", 9))
        await send_in(connection, "order.paid", {"sum": own}, run=run, tenant="acme")
        await until(lambda: _is(shop.dsn, "SELECT count(*) FROM runs WHERE status = 'finished'", 1))
        await connection.close()
        assert await fetch_value(shop.dsn, "SELECT count(*) FROM file_uses") == 2
        assert httpx2.get(f"{server.url}/v1/files/{own}", headers=viewer).content == b"service:shop"


async def test_the_role_reads_nothing_and_deposits_for_no_other_tenant(shop: Shop) -> None:
    connection = await shop.connect()
    for tenant in ("globex", "default", "nobody", "acme' OR true --"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not deposit for the tenant"):
            await start_in(connection, "shipping", {"order": 1}, tenant=tenant)
    for statement in (
        "SELECT * FROM deposits", "SELECT * FROM depositors", "SELECT * FROM runs", "SELECT * FROM tenants",
        "INSERT INTO deposits (tenant, id, kind, body, principal) SELECT NULL, NULL, 'start', '{}', 'x'",
        "INSERT INTO depositors VALUES (session_user, gen_random_uuid(), 'user:boss')", "DELETE FROM deposits",
        "SELECT hai_allow_deposits(session_user::text, 'globex', 'user:boss')",
        "ALTER FUNCTION hai_deposit(text, text, text, text) RESET search_path", "SET ROLE hai_engine",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    # Objects of its own on the search path are never taken for those of the function.
    await connection.execute("CREATE TEMP TABLE depositors (role text, tenant uuid, principal text)")
    await connection.execute("CREATE TEMP TABLE tenants (id uuid, name text)")
    await connection.execute("INSERT INTO tenants SELECT gen_random_uuid(), 'globex'")
    await connection.execute("INSERT INTO depositors SELECT session_user, id, 'user:boss' FROM tenants")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not deposit"):
        await start_in(connection, "shipping", {"order": 1}, tenant="globex")
    for wrong in (("stop", "{}"), ("start", "[]"), ("start", "{"), ("start", '"' + "x" * 1_100_000 + '"')):
        with pytest.raises(asyncpg.DataError):
            await connection.fetchval("SELECT hai_deposit($1, $2, 'acme')", *wrong)
    await connection.close()
    async with role(shop.dsn) as stranger, connecting(as_role(shop.dsn, stranger)) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
            await start_in(connection, "shipping", {"order": 1}, tenant="acme")


async def test_a_session_that_sets_a_role_deposits_as_its_login_role(shop: Shop) -> None:
    async with role(shop.dsn) as other:
        await fetch_value(shop.dsn, "SELECT hai_allow_deposits($1, 'globex', 'service:other')", other)
        await fetch_value(shop.dsn, f"GRANT {other} TO {shop.role}")
        connection = await shop.connect()
        await connection.execute(f"SET ROLE {other}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not deposit for the tenant"):
            await start_in(connection, "shipping", {"order": 1}, tenant="globex")
        await connection.close()


async def test_connections_of_sqlalchemy_deposit_too(shop: Shop) -> None:
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(sa.make_url(shop.own).set(drivername="postgresql+asyncpg"))
    async with engine.begin() as connection:
        id = await start_in(connection, "shipping", {"order": 1}, tenant="acme")
    async with engine.connect() as connection:
        await start_in(connection, "shipping", {"order": 2}, tenant="acme")
        await connection.rollback()
    assert UUID(id) == await fetch_value(shop.dsn, "SELECT id FROM deposits")
    async with AsyncSession(engine) as session, session.begin():
        await start_in(session, "shipping", {"order": 3}, tenant="acme")
    async with AsyncSession(engine) as session:
        await start_in(session, "shipping", {"order": 4}, tenant="acme")
        await session.rollback()
        await session.run_sync(lambda own: start_in(own, "shipping", {"order": 5}, tenant="acme"))
        await session.commit()
    await engine.dispose()
    orders = "SELECT array_agg(body::json -> 'input' ->> 'order' ORDER BY deposited_at) FROM deposits"
    assert await fetch_value(shop.dsn, orders) == ["1", "3", "5"]


async def test_a_pooler_in_transaction_mode_changes_nothing(shop: Shop, pgbouncer_program: str) -> None:
    with PgBouncer(pgbouncer_program, shop.dsn, role=shop.role) as pooler:

        async def deposit(numbers: range) -> None:
            connection = await asyncpg.connect(as_role(pooler.dsn, shop.role), statement_cache_size=0)
            for number in numbers:
                transaction = connection.transaction()
                await transaction.start()
                await start_in(connection, "shipping", {"order": number}, tenant="acme")
                await (transaction.rollback() if number % 2 else transaction.commit())
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not deposit"):
                await start_in(connection, "shipping", {"order": 0}, tenant="globex")
            await connection.close()

        await asyncio.gather(*(deposit(range(first, first + 10)) for first in range(0, 80, 10)))
    assert await fetch_value(shop.dsn, "SELECT count(*) FROM deposits") == 40


def test_a_connection_of_another_library_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match=r"asyncpg, psycopg or SQLAlchemy, found dict"):
        start_in({}, "shipping")


def deposit_of(workflow: str) -> Deposit:
    body = json.dumps({"workflow": workflow})
    return Deposit(uuid4(), uuid4(), "start", body, "service:shop", 1, datetime.now(UTC))


async def begin(workflow: str, refusal: Rejected | None = None) -> dict[str, Any]:
    """What becomes of a deposit: the options of its start; `refused` and `removed` where its row is."""
    told: dict[str, Any] = {}

    async def resolve(*given: Any, **more: Any) -> Any:
        return None, SimpleNamespace(name=workflow)

    async def start(*given: Any, **more: Any) -> None:
        if refusal is not None:
            raise refusal
        told.update(more)

    async def note(name: str, *given: Any) -> None:
        told[name] = given[2:]

    catalog, starts = SimpleNamespace(resolve_startable=resolve), SimpleNamespace(start=start, cell=0)
    files = SimpleNamespace(use_all=AsyncMock())
    parts: Any = SimpleNamespace(api=None), catalog, files, starts, None, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_deposits, "refuse", partial(note, "refused"))
        patch.setattr(stored_deposits, "remove", partial(note, "removed"))
        await Deposits(*parts)._deal_with(deposit_of(workflow))
    return told


@pytest.mark.parametrize(("status", "stays"), [(408, True), (429, True), (503, True), (500, True), (404, False)])
async def test_a_deposit_that_is_refused_for_now_is_tried_again(status: int, stays: bool) -> None:
    told = await begin("shipping", Rejected(status, "no", "not now."))
    assert told == ({} if stays else {"refused": ("no: not now.",)})


async def test_a_deposited_run_is_of_its_depositor() -> None:
    told = await begin("shipping")
    assert told["owners"] == ("service:shop",)
    assert told["removed"] == ()


async def test_a_deposit_starts_no_canary() -> None:
    assert list(await begin(CANARY)) == ["refused"]
