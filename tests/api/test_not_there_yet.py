"""README's table of what is not there yet: each row is looked for in a server, and must really be absent.

Who builds one of these makes its test fail, and takes the row out of the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import httpx2
import pytest

from hai_flow.settings import describe
from tests.support.commands import ROOT


def no_console(http: httpx2.Client) -> None:
    assert http.get("/console").status_code == 404
    places = http.get("/", headers={"Accept": "application/json"}).json()["places"]
    assert "/docs" in places
    assert not any("console" in place for place in places)


def no_retention(http: httpx2.Client) -> None:
    run = http.post("/v1/runs", json={"workflow": "cleanup"}).json()["id"]
    assert http.delete(f"/v1/runs/{run}").status_code == 405
    kept = [name for name, _, _ in describe() if "RETENTION" in name or "KEEP_" in name]
    assert kept == ["HAI_FLOW_FILES_KEEP_SECONDS"]  # of files that no run refers to


def no_control_of_many(http: httpx2.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    assert "/v1/runs/{run_id}/pause" in paths
    assert [path for path in paths if re.search(r"bulk|/fork|/v1/runs/(pause|stop|terminate)", path)] == []


def no_a2a(http: httpx2.Client) -> None:
    assert http.get("/.well-known/agent-card.json").status_code == 404
    assert http.post("/a2a", json={}).status_code == 404


LOOKED_FOR: Final[dict[str, Callable[[httpx2.Client], None]]] = {
    "a web console": no_console,
    "deleting runs": no_retention,
    "control of many runs at once": no_control_of_many,
    "A2A": no_a2a,
}


def rows() -> list[str]:
    """The first cells of the table."""
    section = (ROOT / "README.md").read_text().partition("## What is not there yet\n")[2].partition("\n## ")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")][2:]


def test_each_row_of_the_table_is_looked_for() -> None:
    said = rows()
    assert len(said) == len(LOOKED_FOR)
    for row, name in zip(said, LOOKED_FOR, strict=True):
        assert row.startswith(name)


@pytest.mark.parametrize("name", LOOKED_FOR)
def test_what_the_table_calls_absent_is_absent(http: httpx2.Client, name: str) -> None:
    LOOKED_FOR[name](http)
