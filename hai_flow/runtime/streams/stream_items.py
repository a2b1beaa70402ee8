"""A piece of a stream: the frames of one event in one dialect, and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from hai_flow.engine import events as e
from hai_flow.primitives.beside_loop import is_large
from hai_flow.wire.dialects.dialect import Dialect, Frame, Profile


class StreamItem(NamedTuple):
    """One event on a stream: its frames, and their bytes. `seq` 0: made by no event."""

    seq: int
    frames: Sequence[Frame]
    data: bytes

    @property
    def terminal(self) -> bool:
        return bool(self.frames) and self.frames[-1].terminal


def item_without_number(dialect: Dialect, frames: Sequence[Frame]) -> StreamItem:
    """Frames that no event made (a preface, a farewell): they carry no id."""
    return StreamItem(0, frames, dialect.render_unnumbered(frames))


def item_of_event(dialect: Dialect, frames: Sequence[Frame], seq: int, run_id: UUID) -> StreamItem:
    return StreamItem(seq, frames, dialect.render_frames(frames, seq, str(run_id)) if frames else b"")


def is_slow_to_encode(events: Sequence[e.Event], profiles: Iterable[Profile]) -> bool:
    """Whether events are encoded beside the loop for readers of these profiles: large ones, and a change of the state,
    of which all is masked anew for those from whom a part of it is kept."""
    return is_large(events) or (
        any(profile.personal is not None for profile in profiles)
        and any(isinstance(event, e.StateChanged) for event in events)
    )
