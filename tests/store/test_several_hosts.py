"""A URL of several hosts leads to the one that takes writes, whatever has become of the others."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from hai_flow.store.postgres.database import Database, Deadlines, connect
from hai_flow.store.postgres.error_classes import FAILURES, is_away
from hai_flow.store.postgres.several_hosts import connect_to_one, open_connection, split_hosts
from tests.support.postgres import ROOT

QUICK = Deadlines(connect_seconds=4.0, acquire_seconds=20.0, statement_seconds=20.0)
WRITABLE = "target_session_attrs=read-write"


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u@a,b/db", ["postgresql://u@a,b/db"]),
        (f"postgresql://u@a/db?{WRITABLE}", [f"postgresql://u@a/db?{WRITABLE}"]),
        (
            f"postgresql://u:p%40@a,[::1]:6432/db?{WRITABLE}",
            [f"postgresql://u:p%40@a/db?{WRITABLE}", f"postgresql://u:p%40@[::1]:6432/db?{WRITABLE}"],
        ),
        (
            "postgresql://u@/db?host=/a,/b&port=1,2&target_session_attrs=primary",
            [
                "postgresql://u@/db?host=%2Fa&port=1&target_session_attrs=primary",
                "postgresql://u@/db?host=%2Fb&port=2&target_session_attrs=primary",
            ],
        ),
        (
            f"postgresql:///db?host=a,b&{WRITABLE}",
            [f"postgresql:///db?host=a&{WRITABLE}", f"postgresql:///db?host=b&{WRITABLE}"],
        ),
    ],
)
def test_each_host_has_a_url_of_its_own(url: str, hosts: list[str]) -> None:
    assert split_hosts(url) == hosts


@asynccontextmanager
async def host(answers: bytes | None) -> AsyncIterator[tuple[int, list[None]]]:
    """A host that takes connections, and gives each this answer, or none. Its port, and an item for each of them."""
    met: list[None] = []
    lines: list[asyncio.StreamWriter] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(None)
        lines.append(writer)
        await reader.read(1)
        if answers is not None:
            writer.write(answers)
            writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], met
    finally:
        for each in lines:
            each.close()
        server.close()


FIELDS = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is shutting down\0\0"
SHUTTING_DOWN = b"E" + struct.pack("!i", 4 + len(FIELDS)) + FIELDS


@pytest.mark.parametrize("answers", [None, SHUTTING_DOWN, b""], ids=["silent", "shutting down", "hangs up"])
async def test_a_host_that_does_not_answer_keeps_nobody_from_the_next(database_url: str, answers: bytes | None) -> None:
    query = parse_qs(urlsplit(database_url).query)
    place, port = query["host"][0], query["port"][0]
    async with host(answers) as (other, met):
        hosts = f"?host=127.0.0.1,{place}&port={other},{port}&sslmode=disable&{WRITABLE}"
        url = urlsplit(database_url)._replace(query="").geturl() + hosts
        database = await Database.open(url, deadlines=QUICK)
        try:
            assert await database.api.fetchval("SELECT 1") == 1
            before = len(met)
            connection = await connect(url, QUICK)
            await connection.close()
            assert (before, len(met)) == (1, 1), "it is asked once, and who has answered is asked first from then on"
        finally:
            await database.close()


async def test_commands_get_past_a_silent_host_too(database_url: str) -> None:
    query = parse_qs(urlsplit(database_url).query)
    place, port = query["host"][0], query["port"][0]
    async with host(None) as (other, _):
        hosts = f"?host=127.0.0.1,{place}&port={other},{port}&sslmode=disable&{WRITABLE}"
        connection = await open_connection(urlsplit(database_url)._replace(query="").geturl() + hosts, timeout=4.0)
        await connection.close()


def test_nobody_else_connects_to_the_database_of_a_url() -> None:
    """A replica is no host that takes writes."""
    sources = (ROOT / "hai_flow").rglob("*.py")
    found = {path.name for path in sources if "asyncpg.connect(" in path.read_text()}
    assert found == {"several_hosts.py", "database.py", "replicas.py"}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("primary", ["is a standby", "is away", "is silent"])
async def test_hosts_of_which_none_takes_writes_are_a_database_that_is_away(
    database_url: str, primary: str, is_first: bool
) -> None:
    """Between the end of a primary and the promotion of its standby."""
    query = parse_qs(urlsplit(database_url).query)
    standby = query["host"][0], query["port"][0]
    async with host(None) as (silent, _):
        ports = {"is away": "1", "is silent": str(silent)}
        places = [standby, ("127.0.0.1", ports[primary]) if primary in ports else standby][:: 1 if is_first else -1]
        hosts = f"?host={','.join(place for place, _ in places)}&port={','.join(port for _, port in places)}"
        read_only = "&options=-c%20default_transaction_read_only%3Don&sslmode=disable&"
        with pytest.raises(FAILURES) as raised:
            await connect(urlsplit(database_url)._replace(query="").geturl() + hosts + read_only + WRITABLE, QUICK)
    assert is_away(raised.value)
    assert ("Connect call failed" in str(raised.value)) is (primary == "is away"), "why it can't be reached says more"


AWAY = (
    TimeoutError, ConnectionRefusedError, asyncpg.TargetServerAttributeNotMatched, asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
)  # fmt: skip


@pytest.mark.parametrize("error", AWAY)
async def test_each_host_has_an_equal_part_of_the_time_whatever_the_others_say(error: type[Exception]) -> None:
    url, asked = f"postgresql://{error.__name__}@a,b,c/db?{WRITABLE}", list[tuple[str | None, float]]()

    async def connect_one(host: str, seconds: float) -> str:
        asked.append((urlsplit(host).hostname, seconds))
        if urlsplit(host).hostname != "b":
            raise error("not now")
        return host

    for order in (["a", "b"], ["b"]):
        asked.clear()
        assert urlsplit(await connect_to_one(url, 9.0, connect_one)).hostname == "b"
        assert asked == [(each, 3.0) for each in order]


@pytest.mark.parametrize("error", [asyncpg.InvalidPasswordError, asyncpg.InvalidCatalogNameError])
async def test_what_no_other_host_would_take_is_told_at_once(error: type[Exception]) -> None:
    asked: list[str] = []

    async def refuse(host: str, seconds: float) -> None:
        asked.append(host)
        raise error("no")

    with pytest.raises(error):
        await connect_to_one(f"postgresql://{error.__name__}@a,b/db?{WRITABLE}", 9.0, refuse)
    assert len(asked) == 1
