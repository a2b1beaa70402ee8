"""One server for the tests of this folder in a pytest process; those who stop, kill or starve theirs make their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hai_flow_client import Client

from hai_flow.wire.dialects.agui_protobuf import CONTENT_TYPE
from tests.support import aui_client, wire_lint
from tests.support.answers import find_faults
from tests.support.hai_client import BINARY
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving


@pytest.fixture(scope="package")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    """A server that no test harms. It must not have had a fault when they are done."""
    with postgres_server.database() as dsn, serving(dsn) as process:
        yield process
        assert process.process.poll() is None


class LintingClient(httpx2.Client):
    """An HTTP client that lints every stream which it reads to the end, and finds JSON of REST as it is documented."""

    def send(self, request: httpx2.Request, *, stream: bool = False, **more: Any) -> httpx2.Response:
        response = super().send(request, stream=stream, **more)
        if not stream and response.is_success:
            kind = response.headers.get("content-type")
            if kind == "text/event-stream":
                assert wire_lint.faults_of(response.content) == []
            elif kind == BINARY:
                assert wire_lint.lint_binary(response.content, whole=False) == []
            elif kind == CONTENT_TYPE:
                assert wire_lint.lint_protobuf(response.content) == []
            elif kind == "application/json" and request.url.path.startswith("/v1/"):
                assert find_faults(response) == []
        return response


@pytest.fixture(autouse=True)
def sockets() -> Iterator[None]:
    """No test leaves a socket open: others count them."""
    yield
    aui_client.close_all()


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx2.Client]:
    with LintingClient(base_url=server.url, timeout=30) as client:
        yield client


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client
