"""A URL that names several hosts, of which the one is wanted that takes writes. The driver asks one after the other and
gives them one time together, so behind a host that is silent (switched off, or cut off) it never gets to the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg

Connected = TypeVar("Connected")

_WRITABLE: Final = ("read-write", "primary")
_NEXT: Final = OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError
_NONE_FITS: Final = "no host of the URL is what its target_session_attrs asks for: a standby takes writes once promoted"
_last: Final[dict[str, str]] = {}  # by the URL of several hosts: that of the host which answered last


def split_hosts(dsn: str) -> list[str]:
    """A URL for each host, or the URL itself where it names one, or does not say that it wants one that takes
    writes."""
    url = urlsplit(dsn)
    options = dict(parse_qsl(url.query))
    user, at, hosts = url.netloc.rpartition("@")
    names, ports = (hosts or options.get("host", "")).split(","), options.get("port", "").split(",")
    if options.get("target_session_attrs") not in _WRITABLE or len(ports) not in (1, 1 if hosts else len(names)):
        return [dsn]
    if hosts:
        return [f"{url.scheme}://{user}{at}{name}{url.path}?{url.query}" for name in names]
    each_port = ports * (len(names) if len(ports) == 1 else 1)
    places = [{"host": name, "port": port} for name, port in zip(names, each_port, strict=True)]
    queries = [urlencode({name: text for name, text in (options | place).items() if text}) for place in places]
    return [f"{url.scheme}://{url.netloc}{url.path}?{query}" for query in queries]


async def connect_to_one(dsn: str, seconds: float, connect: Callable[[str, float], Awaitable[Connected]]) -> Connected:
    """Call `connect` with the URL of one host after the other, and with an equal part of `seconds`, until one answers:
    first that which did the last time. Raises the last error that tells why a host could not be reached; without one
    ConnectionError where a standby has answered, for then the database is away, and else TimeoutError."""
    hosts = sorted(split_hosts(dsn), key=lambda host: host != _last.get(dsn))
    faults: list[Exception] = []
    for host in hosts:
        try:
            connection = await connect(host, seconds / len(hosts))
        except asyncpg.TargetServerAttributeNotMatched:
            continue
        except _NEXT as error:
            faults.append(error)
            continue
        _last[dsn] = host
        return connection
    reasons = [fault for fault in faults if not isinstance(fault, TimeoutError)]
    if reasons or len(faults) == len(hosts):
        raise (reasons or faults)[-1]
    raise ConnectionError(_NONE_FITS)


async def open_connection(dsn: str, *, timeout: float = 60.0, **options: Any) -> asyncpg.Connection[asyncpg.Record]:
    """As `asyncpg.connect`, for commands: behind a host that is silent they get to the next, as processes do."""
    return await connect_to_one(dsn, timeout, lambda host, part: asyncpg.connect(host, timeout=part, **options))
