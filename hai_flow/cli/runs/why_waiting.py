"""Why a run does not go on, in words: the slot that it waits for, who paused or stopped it, until when it waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from hai_flow.cli.terminal import moment, plural
from hai_flow.values import Json

HOLDERS_MAX: Final = 3  # so many of the runs that hold a key are named
ENDS_OF_WAITS: Final = frozenset({"wait", "deadline", "halting_deadline"})
"""The kinds of timers that end a step's wait."""


def find_key_awaited(run: Json) -> str:
    """The concurrency key that a queued run waits for; "" for any other run, and where the server does not say."""
    slot = run.get("queued_for")
    if not slot:
        return ""
    return f"the concurrency key {slot['key']!r}, of which {plural(slot['limit'], 'run')} may be active at once"


def holding(run: Json) -> str:
    """The runs that hold the key for which a queued run waits."""
    slot = run.get("queued_for")
    if not slot:
        return ""
    if not slot["holders"]:
        return "nobody now: the next run in the queue is about to begin"
    named = [f"{each['run_id']} ({each['status'] or 'starting'})" for each in slot["holders"][:HOLDERS_MAX]]
    more = len(slot["holders"]) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def describe_worker(run: Json) -> str:
    """The worker that performs the run at this moment; "" where none does."""
    holder = run.get("held_by")
    if not holder:
        return ""
    silent = "" if holder["alive"] else ", which gives no sign of life: another worker takes the run over"
    return f"{holder['name']}{silent}"


def describe_pause(run: Json) -> str:
    paused = run.get("paused")
    return f"{moment(paused['at'])} by {paused['by']}{because(paused)}" if paused else ""


def describe_stop(run: Json, events: Iterable[Json]) -> str:
    """Who stopped a run that is stopped or being stopped, when and why."""
    if run["status"] not in ("stopping", "stopped"):
        return ""
    sentence = ""
    for event in events:
        if event["type"] in ("run_stopping", "run_stopped"):
            how = "terminated " if event.get("terminated") else ""
            sentence = f"{how}{moment(event['at'])} by {event['by']}{because(event)}"
    return sentence


def because(said: Mapping[str, Json]) -> str:
    """The reason that somebody gave, behind what they did; "" without one."""
    return f": {said['reason']}" if said.get("reason") else ""


def map_ends_of_waits(snapshot: Json) -> dict[str, str]:
    """Until when each step waits, by its path: as it is now, after pauses and jumps."""
    halts = snapshot["status"] == "paused"
    ends: dict[str, str] = {}
    for timer in snapshot["timers"]:
        if timer["kind"] in ENDS_OF_WAITS:
            halted = halts and timer["kind"] == "halting_deadline"
            ends[timer["path"]] = "its deadline stands still meanwhile" if halted else until(timer["due"])
    return ends


def limit_of(snapshot: Json) -> str:
    """When the run as a whole is too late (`limits.duration`)."""
    return next((moment(timer["due"]) for timer in snapshot["timers"] if timer["kind"] == "limit"), "")


def until(due: str | None) -> str:
    return f"until {moment(due)}" if due else ""
