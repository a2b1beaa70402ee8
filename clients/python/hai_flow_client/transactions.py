"""Starting runs and sending events in a transaction of your own: they begin if it is committed, and never if not.

The function `hai_deposit` of HAI Flow's schema writes a row with your connection; workers take it as soon as your
transaction is committed (docs/transactions.md). The connection may be one of asyncpg, psycopg or SQLAlchemy, blocking
or for asyncio: of the latter the result is awaited.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from hai_flow_client import values
from hai_flow_client.values import Json

_FORMS: Final = {
    "asyncpg": "$1, $2, $3, $4",
    "psycopg": "%s, %s, %s, %s",
    "sqlalchemy": ":kind, :body, :tenant, :key",
}
_PARAMETERS: Final = ("kind", "body", "tenant", "key")


def start_in(
    connection: Any,
    workflow: str,
    input: Mapping[str, Json] | None = None,
    *,
    thread_id: str | None = None,
    tenant: str = "default",
    key: str | None = None,
    schema: str | None = None,
) -> Any:
    """Start a run when the connection's transaction is committed. Returns its id, of an asyncio connection as an
    awaitable. `key`: the same key again is the same run. `schema`: of HAI Flow, where it is not on the search path.

    Raises the driver's error where the connection's role may not deposit for the tenant, or the key was used with
    another body. What the server refuses later (an unknown workflow, a wrong input) stays in the table with the reason.
    """
    body: dict[str, Json] = {"workflow": workflow, "input": dict(input or {})}
    if thread_id is not None:
        body["thread_id"] = thread_id
    return _deposit(connection, "start", body, tenant, key, schema)


def send_in(
    connection: Any,
    type: str,
    data: Json = None,
    *,
    run: str | None = None,
    tenant: str = "default",
    key: str | None = None,
    schema: str | None = None,
) -> Any:
    """Send an event when the connection's transaction is committed: to all that wait for it or are started by it, or
    to one `run`, by its id. Otherwise as `start_in`; returns the event's id without its prefix `deposit:`."""
    body: dict[str, Json] = {"type": type, "data": data}
    if run is not None:
        body["run_id"] = run
    return _deposit(connection, "send", body, tenant, key, schema)


def _deposit(
    connection: Any, kind: str, body: dict[str, Json], tenant: str, key: str | None, schema: str | None
) -> Any:
    library = _library_of(connection)
    place = "" if schema is None else '"' + schema.replace('"', '""') + '".'
    query = f"SELECT {place}hai_deposit({_FORMS[library]})"
    given = (kind, values.dumps(values.check(body)).decode(), tenant, key)
    if library == "asyncpg":
        return _awaited(connection.fetchval(query, *given))
    if library == "psycopg":
        return _first(connection.execute(query, given))
    from sqlalchemy import text

    return _first(connection.execute(text(query), dict(zip(_PARAMETERS, given, strict=True))))


def _library_of(connection: Any) -> str:
    for each in type(connection).__mro__:
        library = each.__module__.partition(".")[0]
        if library in _FORMS:
            return library
    raise TypeError(f"expected a connection of asyncpg, psycopg or SQLAlchemy, found {type(connection).__qualname__}")


async def _awaited(value: Any) -> str:
    return str(await value)


def _first(result: Any) -> Any:
    """The value of the result's only row; of an awaitable result, an awaitable."""
    return _first_of(result) if inspect.isawaitable(result) else str(result.fetchone()[0])


async def _first_of(result: Any) -> str:
    row = (await result).fetchone()
    return str((await row if inspect.isawaitable(row) else row)[0])
