"""The server that is attacked is the one that the tests of the API talk to, or a house with identity."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.conftest import http, server, sockets
from tests.attacks.house import House, broken_into
from tests.runtime.conftest import eye, make
from tests.support.postgres import Server

__all__ = ["eye", "house", "http", "make", "server", "sockets"]


@pytest.fixture(scope="module")
def house(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with broken_into(postgres_server, tmp_path_factory.mktemp("house")) as house:
        yield house
