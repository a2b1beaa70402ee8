"""Runs the revisions on the connection that `hai_flow.store.postgres.migrations` gives, or (for those who write
revisions) on the database of `alembic -x dsn=postgresql://... <command>`."""

from __future__ import annotations

import asyncio

import asyncpg
from alembic import context
from sqlalchemy import Connection, MetaData
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool


def run(connection: Connection, metadata: MetaData | None = None) -> None:
    """`metadata`: the tables that `--autogenerate` compares the database with."""
    context.configure(
        connection=connection, target_metadata=metadata, transactional_ddl=True, transaction_per_migration=True
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_by_hand(dsn: str) -> None:
    from migrations.schema import metadata

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn), poolclass=NullPool
    )
    async with engine.connect() as connection:
        await connection.run_sync(run, metadata)
    await engine.dispose()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
elif "dsn" in (arguments := context.get_x_argument(as_dictionary=True)):
    asyncio.run(run_by_hand(str(arguments["dsn"])))
else:
    raise SystemExit("which database? Say alembic -x dsn=postgresql://... <command>")
