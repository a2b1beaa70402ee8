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


def no_pages_that_edit(http: httpx2.Client) -> None:
    pages = {page.name for page in (ROOT / "console" / "src" / "pages").iterdir()}
    assert "inbox" in pages
    assert not {"workflows", "schedules", "audit"} & pages


def no_cells_and_queues(http: httpx2.Client) -> None:
    names = [name for name, _, _ in describe()]
    assert "HAI_FLOW_DATABASE_URL" in names
    assert [name for name in names if re.search("CELL|QUEUE", name)] == []


def no_images(http: httpx2.Client) -> None:
    kept = {each.name for each in (*ROOT.iterdir(), *(ROOT / "deploy").iterdir())}
    assert "grafana" in kept
    assert not {"Dockerfile", "compose.yaml", "helm", "chart"} & kept


def no_a2a(http: httpx2.Client) -> None:
    assert http.get("/.well-known/agent-card.json").status_code == 404
    assert http.post("/a2a", json={}).status_code == 404


LOOKED_FOR: Final[dict[str, Callable[[httpx2.Client], None]]] = {
    "pages of the console": no_pages_that_edit,
    "several PostgreSQL": no_cells_and_queues,
    "images": no_images,
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
