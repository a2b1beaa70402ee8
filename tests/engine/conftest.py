"""Each run that a test plays is replayed at the test's end: its log and its commands lead to the same state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.runs import Play


@pytest.fixture(autouse=True)
def replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plays: list[Play] = []
    init = Play.__init__

    def note(self: Play, *args: Any, **fields: Any) -> None:
        init(self, *args, **fields)
        plays.append(self)

    monkeypatch.setattr(Play, "__init__", note)
    yield
    for play in plays:
        if play.is_replayable:
            play.replayed()
