"""The server that is attacked is the one that the tests of the API talk to."""

from __future__ import annotations

from tests.api.conftest import http, server, sockets

__all__ = ["http", "server", "sockets"]
