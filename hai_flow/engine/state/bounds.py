"""The bounds of a decision, of an event and of a run, which others obey; and the deployment's calendars."""

from __future__ import annotations

from typing import Final

import msgspec

from hai_flow.definition.people.calendars import Calendars

EVENT_BYTES_MAX: Final = 256 * 1024


class Bounds(msgspec.Struct, frozen=True):
    """The bounds of one decision, and how long a turn stays open for a timer. Times in milliseconds; `work` is that of
    expressions, in microseconds, as it is estimated. `calendars`: those of working days, by name, which are read when a
    question opens.

    `waits`, `run_events` and `run_bytes` are of a whole run: its waits at once, and its log (`run_size`)."""

    pure_steps: int = 100
    events: int = 256
    event_bytes: int = 256 * 1024
    evaluations: int = 300
    work: int = 250_000
    turn_linger: int = 30_000
    stop_grace: int = 30_000
    waits: int = 1_000
    run_events: int = 250_000
    run_bytes: int = 50 * 1024 * 1024
    calendars: Calendars = {}


DEFAULT_BOUNDS: Final = Bounds()
