"""The place in its code where a tool failed, for operators: a traceback of bounded length, without local variables.

It holds the exceptions' messages and lines of source, but no values of variables. Only operators see it (in the log of
the run over REST): no frontend's protocol has it."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from hai_flow.values import storable

CHARS_MAX: Final = 3_000
FRAMES_MAX: Final = 10  # of each exception in the chain, those nearest to where it was raised

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_OURS: Final = tuple(str(_PACKAGE / room) for room in ("runtime", "steps"))


def text_of(error: BaseException) -> str:
    """The type of a tool's exception, and its text, at most CHARS_MAX characters. Never raises."""
    try:
        text = storable(str(error))
    except Exception as fault:  # an exception's text is code of the tool's
        text = f"(its text can't be shown: {type(fault).__name__})"
    return f"{type(error).__name__}: {text if len(text) <= CHARS_MAX else f'{text[:CHARS_MAX]}…'}"


def trace_of(error: BaseException) -> str:
    """The traceback of a tool's exception, at most CHARS_MAX characters: of a longer one the end. Never raises."""
    try:
        traceback_lines = traceback.TracebackException(
            type(error), error, _strip_own_frames(error.__traceback__), limit=-FRAMES_MAX
        )
        text = storable("".join(traceback_lines.format()).rstrip())
    except Exception as fault:  # an exception's text is code of the tool's, too
        text = f"{type(error).__name__} (its traceback can't be shown: {type(fault).__name__})"
    return text if len(text) <= CHARS_MAX else "…" + text[1 - CHARS_MAX :]


def _strip_own_frames(found: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames, by which the tool was called. All of it, if there are no others."""
    inner = found
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OURS):
        inner = inner.tb_next
    return found if inner is None else inner
