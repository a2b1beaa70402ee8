"""One server for all tests of a pytest process; those who stop, kill or starve theirs make their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving


@pytest.fixture(scope="session")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    """A server that no test harms. It must not have had a fault when they are done."""
    with postgres_server.database() as dsn, serving(dsn) as process:
        yield process
        assert process.process.poll() is None
        assert "Traceback" not in process.log, process.log


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        yield client
