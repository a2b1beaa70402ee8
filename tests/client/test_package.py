"""The client is a package of its own: it is imported without the server, and under its old name for one release."""

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


SAME = """
import hai_flow.client, hai_flow.client.events
import hai_flow_client as new
from hai_flow.client import Client, events

assert Client is new.Client
assert events is new.events is hai_flow.client.events
assert set(hai_flow.client.__all__) == set(new.__all__)
assert all(hasattr(hai_flow.client, name) for name in new.__all__)
"""


def test_the_client_needs_nothing_of_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_old_name_has_the_same_objects() -> None:
    done = subprocess.run([sys.executable, "-c", SAME], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_there() -> None:
    assert [name for name in hai_flow_client.__all__ if not hasattr(hai_flow_client, name)] == []
