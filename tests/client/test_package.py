"""The client is a package of its own: it is imported without the server."""

from __future__ import annotations

import subprocess
import sys

import hai_flow_client

ALONE = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"hai_flow", "fastapi", "starlette", "asyncpg", "pydantic", "sqlalchemy"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from hai_flow_client import AsyncClient, Client
Client("http://127.0.0.1:1").close()
"""


def test_the_client_needs_nothing_of_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_there() -> None:
    assert [name for name in hai_flow_client.__all__ if not hasattr(hai_flow_client, name)] == []
