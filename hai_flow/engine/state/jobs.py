"""The jobs of a run after its last commit. A function of the state: there is no job table
(docs/design/store.md#lost-attempts)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from hai_flow.definition.paths import level
from hai_flow.engine.state.retry_policy import SUSPECT_AFTER_LOST
from hai_flow.engine.state.state import RunState, Timer


class Perform(msgspec.Struct, frozen=True):
    """Perform attempt `attempt` of the effect at `path`, with the arguments that the state holds."""

    path: str
    attempt: int


class Continue(msgspec.Struct, frozen=True):
    """Send the run the command Continue: its last decision reached its bound with more to do."""


Job: TypeAlias = Perform | Continue

TIMERS_WHILE_HALTED: Final = frozenset({"deadline", "remind"})
"""Timers that go on while a run is paused or needs attention: votes and deadlines are decided and shown in time, only
their consequences wait (docs/design/engine.md#pausing-and-ending)."""
_ACTIVE: Final = frozenset({"running", "paused", "stopping", "needs_attention"})


def open_jobs(state: RunState) -> list[Job]:
    """Everything that a holder of the run should be doing now."""
    jobs: list[Job] = []
    if state.status in _ACTIVE:
        jobs.extend(Perform(path, attempt) for path, attempt in open_attempts(state).items())
    if state.status in ("running", "stopping") and next_ready(state) is not None:
        jobs.append(Continue())
    return jobs


def open_attempts(state: RunState) -> Mapping[str, int]:
    """The open attempts that a process performs: all but child runs, which are runs of their own."""
    if not state.children:
        return state.attempts
    return {path: attempt for path, attempt in state.attempts.items() if path not in state.children}


def order_of(state: RunState, path: str) -> tuple[int, list[int]]:
    """Sorts open attempts into the order in which their steps were begun: calls of one answer as the model made them,
    items of a list as they stand in it. The maps of a state have an order of chance."""
    iterations = [path[: at + 1] for at, sign in enumerate(path) if sign == "]"]
    return state.steps[path].started_at, [state.steps[each].index for each in iterations]


def is_working(state: RunState) -> bool:
    """Whether an effect is in flight: one that is performed, or a child run that does not wait for something itself."""
    return any(path not in state.idle for path in state.attempts) if state.idle else bool(state.attempts)


def is_busy(state: RunState) -> bool:
    """Whether somebody must hold the run: an attempt is in flight, or a decision goes on."""
    return bool(open_attempts(state)) or (state.status in ("running", "stopping") and has_ready(state))


def has_ready(state: RunState) -> bool:
    """Whether a step is ready that no freeze holds."""
    return any(path not in state.held for path in state.ready) if state.held else bool(state.ready)


def next_ready(state: RunState, left: Collection[str] = ()) -> str | None:
    """The first of `ready` that may begin now, or None. Those in `left` are left to another process.

    A step that was lost three times in a row runs alone: if it takes its process down again, it condemns itself and not
    its neighbours (docs/design/store.md#lost-attempts)."""
    ready: Sequence[str] = state.ready
    if state.held or left:
        ready = [path for path in ready if path not in state.held and path not in left]
    if not ready:
        return None
    attempts, steps = open_attempts(state), state.steps
    if not attempts:  # a suspect may begin, too: the next step of a plain list needs no search
        return ready[0]
    if any(steps[path].lost >= SUSPECT_AFTER_LOST for path in attempts):
        return None
    for path in ready:
        step = steps.get(path)
        if step is None or step.lost < SUSPECT_AFTER_LOST:
            return path
    return None


class Due(NamedTuple):
    """An event that happens by itself at the instant `at` (ms since 1970): `timer` fires; or without one, the step at
    `path` has worked for as long as it may."""

    at: int
    path: str
    timer: Timer | None = None


def next_timer(state: RunState) -> Timer | None:
    """The first timer that fires, if nothing happens before. While paused (or in need of attention) only people's time
    counts; the rest fires on resume (docs/design/engine.md#pausing-and-ending)."""
    if state.status in ("paused", "needs_attention"):
        return min((timer for timer in state.timers if timer.kind in TIMERS_WHILE_HALTED), default=None)
    return state.timers[0] if state.timers else None


def next_due(state: RunState, *, attempts: bool = True) -> Due | None:
    """The first thing that happens by itself, if nothing happens before; None: nothing ever does.

    Without `attempts` the time-outs of attempts are left out."""
    timer = next_timer(state)
    first = None if timer is None else Due(timer.due, timer.path, timer)
    if state.timeouts and state.running_since is not None:
        path = _find_first_timeout(state, attempts)
        if path is not None:
            at = state.running_since + state.timeouts[path] - state.worked
            if first is None or at < first.at:
                first = Due(at, path)
    return first


def is_due(state: RunState, until: int, *, attempts: bool = True) -> bool:
    """Whether something happens by itself by `until` (ms since 1970). Without `attempts` as in `next_due`."""
    if state.timers and (timer := next_timer(state)) is not None and timer.due <= until:
        return True
    if not state.timeouts or state.running_since is None:
        return False
    worked = until - state.running_since + state.worked
    if attempts:
        return min(state.timeouts.values()) <= worked
    return any(due <= worked for path, due in state.timeouts.items() if path not in state.attempts)


LATE_PARTS: Final = 10  # of its time an attempt may spend one in the queue


def lacks_time(state: RunState, path: str, now: int, waited: int = 0) -> bool:
    """Whether the attempt has no time left before it begins, or has spent more than a tenth of its time in the queue,
    in which it has `waited` (ms) for a worker."""
    due = state.timeouts.get(path)
    if due is None:
        return False
    remaining = due - state.compute_working_time(now)
    return remaining <= 0 or LATE_PARTS * waited > waited + remaining


def _find_first_timeout(state: RunState, attempts: bool) -> str | None:
    """The step whose time-out comes first; of several at once the outermost."""
    first, least = None, 0
    for path, due in state.timeouts.items():
        if not attempts and path in state.attempts:
            continue
        if first is None or due < least or (due == least and (level(path), path) < (level(first), first)):
            first, least = path, due
    return first


def wake_at(state: RunState) -> int | None:
    """When the run must be looked at even if nothing happens (ms since 1970), or None."""
    timer = next_timer(state) if state.timers else None
    at = None if timer is None else timer.due
    if state.timeouts and state.running_since is not None:
        timeout = state.running_since + min(state.timeouts.values()) - state.worked
        return timeout if at is None or timeout < at else at
    return at
