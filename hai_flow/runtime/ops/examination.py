"""The look at one database and at the place of a process, for `hai-flow doctor` and the console's overview.

It opens connections of its own, as a process that begins would: what is wrong with the address is found here."""

from __future__ import annotations

import resource
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from hai_flow import signing
from hai_flow.definition.people.calendars import read_calendars
from hai_flow.definition.tools.mcp_servers import read_mcp_catalogue
from hai_flow.errors import HaiFlowError
from hai_flow.primitives.hosts import is_loopback
from hai_flow.runtime.ops.doctor import Check, DoctorFacts, check_cell, examine
from hai_flow.settings import Settings, variable
from hai_flow.store.ops.replicas import Standby
from hai_flow.store.postgres.connections import Connection

CONNECT_SECONDS: Final = 10.0
REPLICA_SECONDS: Final = 5.0  # that a replica is waited for


async def examine_database(
    settings: Settings, dsn: str, *, direct: str | None = None, embedded: bool = False, home: bool = True
) -> list[Check]:
    """The findings on the database at `dsn` (`direct`: around its pooler) and on this process: of the home cell all, of
    another cell those on its database. Raises what asyncpg raises where the database can't be reached."""
    from hai_flow.store.ops.health import is_pooler, read_facts
    from hai_flow.store.postgres import revisions
    from hai_flow.store.postgres.several_hosts import open_connection

    pooler = await is_pooler(dsn)
    direct_pooler = direct is not None and await is_pooler(direct)
    connection = await open_connection(dsn, statement_cache_size=0, timeout=CONNECT_SECONDS)
    try:
        replica = await _replica(settings.database_replica_url, connection)
        facts = await read_facts(connection, pooled=settings.database_pooled or pooler)
    finally:
        await connection.close()
    schema = await revisions.current(dsn)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    asks_redis = home and settings.hints is not None
    place = DoctorFacts(
        embedded=embedded,
        schema=schema,
        newest=revisions.head(),
        known=schema is None or schema in revisions.list_revisions(),
        descriptors=2**31 if hard == resource.RLIM_INFINITY else max(soft, hard),
        pooler=pooler,
        direct_pooler=direct_pooler,
        replica=replica,
        hints=await _answering(settings.hints or "") if asks_redis else None,
        holidays=_measure_holidays(settings) if home else {},
        **(_look_at_files(settings) if home else {}),
    )
    return (examine if home else check_cell)(settings, facts, place)


def _look_at_files(settings: Settings) -> dict[str, Any]:
    """What the files of keys and of MCP servers are like, as `DoctorFacts` has it."""
    keys, catalogue = settings.receipt_keys, settings.mcp
    facts: dict[str, Any] = {"exposed": tuple(
        variable(name)
        for name, path, bits in (("receipt_keys", keys, 0o077), ("mcp", catalogue, 0o022))
        if path is not None and path.exists() and path.stat().st_mode & bits
    )}  # fmt: skip
    if keys is not None:
        try:
            signing.read_keys(keys)
        except signing.BadKeys as error:
            facts["key_fault"] = str(error)
    if catalogue is not None and catalogue.exists():
        servers, _ = read_mcp_catalogue(catalogue.read_bytes(), str(catalogue))
        addresses = [urlsplit(each.server.url) for each in servers.values() if each.server.url is not None]
        plain = (each.hostname or "" for each in addresses if each.scheme == "http")
        facts["plain_servers"] = tuple(host for host in plain if not is_loopback(host))
        facts["programs"] = tuple(name for name, each in servers.items() if each.server.command)
    return facts


def _measure_holidays(settings: Settings) -> dict[str, tuple[str, int]]:
    """Until which day the holidays of each calendar are known, and in how many days that is."""
    today = datetime.now(UTC).date()
    if settings.calendars is None:
        return {}
    file, _ = read_calendars(settings.calendars.read_bytes(), str(settings.calendars))
    return {name: (until.isoformat(), (until - today).days) for name, until in file.known_until.items()}


async def _replica(url: str | None, connection: Connection) -> Standby | str | None:
    """The standby at the replica's address, or why it does not answer; None: there is no replica."""
    from hai_flow.store.ops.replicas import probe
    from hai_flow.store.postgres.error_classes import FAILURES

    if url is None:
        return None
    try:
        return await probe(url, connection, REPLICA_SECONDS)
    except FAILURES as error:
        return f"it does not answer: {str(error) or type(error).__name__}"


async def _answering(url: str) -> float | str:
    """The seconds in which Redis answers, or why it does not."""
    from hai_flow.runtime.streams.redis_hints import probe

    try:
        return await probe(url)
    except HaiFlowError as error:
        return str(error)
