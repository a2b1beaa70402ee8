"""README's table of what is not there yet: each row is looked for in a server, and must really be absent.

Who builds one of these makes its test fail, and takes the row out of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx2
import pytest

from tests.support.commands import ROOT


def no_grpc(http: httpx2.Client) -> None:
    card = http.get("/.well-known/agent-card.json").json()
    assert {each["protocolBinding"] for each in card["supportedInterfaces"]} == {"JSONRPC", "HTTP+JSON"}


LOOKED_FOR: Final[dict[str, Callable[[httpx2.Client], None]]] = {"A2A over gRPC": no_grpc}


def rows() -> list[str]:
    """The first cells of the table."""
    section = (ROOT / "README.md").read_text().partition("## Limitations\n")[2].partition("\n## ")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")][2:]


def test_each_row_of_the_table_is_looked_for() -> None:
    said = rows()
    assert len(said) == len(LOOKED_FOR)
    for row, name in zip(said, LOOKED_FOR, strict=True):
        assert row.startswith(name)


@pytest.mark.parametrize("name", LOOKED_FOR)
def test_what_the_table_calls_absent_is_absent(http: httpx2.Client, name: str) -> None:
    LOOKED_FOR[name](http)
