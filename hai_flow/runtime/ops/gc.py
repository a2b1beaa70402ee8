"""How seldom a process looks for reference cycles."""

from __future__ import annotations

import gc


def relax_collector() -> None:
    """Let the process look for reference cycles seldom. For the composition roots, once everything is imported.

    A runtime makes tens of thousands of small records a second, which live as long as their run and can be part of no
    cycle; looking through them was a fifth of all the time of a step."""
    gc.freeze()  # without looking before: importing leaves little garbage, and finding it takes 0.1 s of every start
    gc.set_threshold(50_000, 50, 100)
