"""What has come of the answer to a call that has not come whole: the call may have been performed, so that whoever has
to find out what happened sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from hai_flow.steps.mcp.resuming import ResumePace
from hai_flow.steps.secrets import hide_secrets
from hai_flow.values import Json, storable

HIDDEN_CHARS_MAX: Final = 16 * 1024  # in which secrets are looked for before the cut
SAID_CHARS_MAX: Final = 2000


def _read_nothing() -> bytes:
    return b""


class CallReceipt:
    """What has come of the answer to one call, also where it is made again in another session."""

    def __init__(self) -> None:
        self._read_partial: Callable[[], bytes] = _read_nothing
        self._progress: dict[str, Json] = {}
        self._result: Mapping[str, Any] | None = None
        self.pace = ResumePace()
        self.is_begun = False
        """The server has sent something about the call, but its answer: the call may have been performed."""

    def begin(self, read_partial: Callable[[], bytes]) -> None:
        """An answer begins. `read_partial` gives the beginning of what has come of it, without reports of progress."""
        self._read_partial = read_partial

    def note_progress(self, progress: dict[str, Json]) -> None:
        """The server has said how far it is."""
        self._progress = progress

    def note_result(self, result: Mapping[str, Any]) -> None:
        """The result has come, and is not a value of the run yet: its links may have to be read."""
        self._result = result

    def describe(self) -> Json:
        """`{text, progress}`, bounded and without secrets, for the error's `data`; None where nothing has come."""
        if self._result is not None:
            text = json.dumps(self._result, ensure_ascii=False, default=str)[:HIDDEN_CHARS_MAX]
        else:
            text = self._read_partial()[:HIDDEN_CHARS_MAX].decode(errors="replace")
        texts = {"text": cut(text)} if text.strip() else {}
        progress = {"progress": hide_secrets(self._progress)} if self._progress else {}
        return {**texts, **progress} or None


def cut(text: str) -> str:
    """A text as errors repeat it. Secrets are hidden before the cut, which would leave a part of one."""
    text = hide_secrets(storable(text))
    return text if len(text) <= SAID_CHARS_MAX else f"{text[:SAID_CHARS_MAX]}…"
