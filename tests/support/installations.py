"""A database with roles of its own, as a guide or a script of ours makes them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import asyncpg

from tests.support.postgres import Server, connecting, run_apart


@dataclass(frozen=True)
class Installation:
    """A database of its own. `owner` is the URL of the role that migrates, `role` that of the role that works; `name`
    is the name of the database and of the working role."""

    name: str
    owner: str
    role: str


def as_user(dsn: str, user: str, database: str) -> str:
    """The URL of `database` on the server of `dsn` for `user`."""
    parts = urlsplit(dsn)
    place = parts.netloc.rpartition("@")[2]
    there = f"{parts.scheme}://{user}@{place}/{database}"
    return f"{there}?{parts.query}" if parts.query else there


def execute(dsn: str, statements: str) -> None:
    """Each statement by itself; they are divided by semicolons."""

    async def work() -> None:
        async with connecting(dsn) as connection:
            for statement in filter(None, map(str.strip, statements.split(";"))):
                await connection.execute(statement)

    run_apart(work())


@contextmanager
def installed(server: Server, shared: str, own: str) -> Iterator[Installation]:
    """An installation under a name of its own. `shared` makes the roles of the whole server, which may be there
    already; `own` the owner `hai_flow_owner`, the role `hai_flow` and their database `hai_flow`."""
    name = f"hai_flow_{uuid.uuid4().hex[:12]}"
    admin = server.dsn("postgres")
    for statement in filter(None, map(str.strip, shared.split(";"))):
        with suppress(asyncpg.DuplicateObjectError):
            execute(admin, statement)
    execute(admin, own.replace("hai_flow", name))
    try:
        yield Installation(name, as_user(admin, f"{name}_owner", name), as_user(admin, name, name))
    finally:
        execute(admin, f"DROP DATABASE {name} WITH (FORCE); DROP ROLE {name}; DROP ROLE {name}_owner")
