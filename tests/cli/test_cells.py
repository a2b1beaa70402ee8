"""`hai-flow cells`, and `tenants --cell`: a cell is made, a tenant lives there, and what it has there stays."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.postgres import fetch_value

WORKFLOW = """
INSERT INTO cell_north.workflows (tenant, sha256, name, version, dev, source)
SELECT id, 'x', 'paying', 1, false, 'x' FROM tenants WHERE name = 'far'
"""


def run(settings: dict[str, str], *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ended = commands.run(*arguments, **settings)
    assert ended.returncode == code, ended.stderr
    return ended


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    yield {"HAI_FLOW_DATABASE_URL": database_url, "HAI_FLOW_CELLS": str(tmp_path / "cells.yaml")}
    asyncio.run(fetch_value(database_url, "DROP SCHEMA IF EXISTS cell_north CASCADE"))


def test_a_tenant_lives_in_its_cell_once_it_has_something_lasting(here: dict[str, str]) -> None:
    dsn = here["HAI_FLOW_DATABASE_URL"]
    assert "is there" in run(here, "cells", "add", "north", "--schema", "cell_north").stdout
    assert "already" in run(here, "cells", "add", "north", code=1).stderr
    assert "found 'south'" in run(here, "tenants", "create", "far", "--cell", "south", code=2).stderr
    run(here, "tenants", "create", "far")
    run(here, "tenants", "set", "far", "--cell", "north")
    listed = json.loads(run(here, "cells", "list", "--json").stdout)["items"]
    assert [(each["name"], each["number"], each["tenants"], each["fault"]) for each in listed] == [
        ("home", 0, 1, None),
        ("north", 1, 1, None),
    ]
    assert "cell north" in run(here, "migrate").stdout
    asyncio.run(fetch_value(dsn, WORKFLOW))
    said = run(here, "tenants", "set", "far", "--cell", "home").stdout
    assert "what it has in north stays there" in said
    found = json.loads(run(here, "tenants", "list", "--json").stdout)["items"]
    assert {each["name"]: (each["cells"], each["closed"]) for each in found} == {
        "default": ([0], []),
        "far": ([1, 0], [0]),  # in some seconds, when all processes know of it, it is the other way round
    }
    asyncio.run(fetch_value(dsn, "UPDATE tenants SET opens_at = now() - interval '1 second' WHERE name = 'far'"))
    found = json.loads(run(here, "tenants", "list", "--json").stdout)["items"]
    assert {each["name"]: each["closed"] for each in found} == {"default": [], "far": [1]}
    assert asyncio.run(fetch_value(dsn, "SELECT count(*) FROM workflows WHERE name = 'paying'")) == 1, (
        "home has it, too"
    )


def test_a_cell_without_a_file_to_be_written_into_is_refused(database_url: str) -> None:
    refused = run({"HAI_FLOW_DATABASE_URL": database_url}, "cells", "add", "north", code=2).stderr
    assert "HAI_FLOW_CELLS" in refused
