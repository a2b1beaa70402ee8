"""README's table of what is not there yet: each row is looked for in a server, and must really be absent.

Who builds one of these makes its test fail, and takes the row out of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx2
import pytest

from tests.support.commands import ROOT


def no_push(http: httpx2.Client) -> None:
    assert not http.get("/.well-known/agent-card.json").json()["capabilities"]["pushNotifications"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "CreateTaskPushNotificationConfig", "params": {}}
    assert http.post("/a2a", json=request).json()["error"]["code"] == -32003


LOOKED_FOR: Final[dict[str, Callable[[httpx2.Client], None]]] = {
    "push over A2A": no_push,
}


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
