"""docs/run-states.md from the tables of transitions: `python -m docs.states_page > docs/run-states.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final, get_args

from hai_flow.engine.state.state import TERMINAL_STATUSES, Outcome, Phase, Status
from hai_flow.engine.state.transitions import STEP_OUTCOMES, STEP_TRANSITIONS, TRANSITIONS

MEANINGS: Final[dict[str, str]] = {
    "new": "the run does not exist yet",
    "queued": "it waits for a slot (one active run per thread, or a `concurrency` key)",
    "running": "a turn is open: something is performed, or is about to be",
    "waiting": "every branch waits for people, or for a time that is not near; nothing is held in memory",
    "paused": "an operator halted it; attempts in flight finish and are recorded",
    "stopping": "it was asked to stop; what was in flight has been told to cancel, and has a grace of 30 s",
    "finished": "the end: it has an output",
    "failed": "the end, unless it is retried: it has an error",
    "stopped": "the end: it was stopped, or terminated",
    "needs_attention": "its attempts were lost five times in a row, or its result can't be stored; a person decides",
}

PHASES: Final[dict[Phase, str]] = {
    "new": "nothing is recorded of the step",
    "pending": "a handler's step that is to run once more after a Retry",
    "working": "its effect is tried, or its lists go on",
    "waiting": "it waits for people, for a signal or for a time",
    "handling": "one of its handlers goes on, or was the last to: `~undo`, `~reject`, `~catch/0`, `~finally`",
    "over": "no handler of it goes on",
}

OUTCOMES: Final[dict[Outcome, str]] = {
    "finished": "it did its work, and has an output",
    "skipped": "its `if` was false, people chose an option of the author's own, or who controls the run had it skipped",
    "failed": "it has an error, which was raised further, or will be",
    "handled": "it has an error that its `catch` has taken; it is shown as failed",
    "stopped": "it was cut off",
    "undone": "it had finished, and was undone",
}

_STEPS: Final = """\
## The states of a step

A step has a phase, where it stands in its life, and an outcome, once it has come to one. Its status, which every
protocol shows, is its outcome; before that `waiting` where it waits, and else `running` (or `pending`). That the list
of a handler has ended is no event of the step: what comes next is ready with the end of the list's last step. So
`handling` is left only by what the step itself comes to next.
"""

_INTRODUCTION: Final = """\
# The states of a run

Generated from `engine/state/transitions.py` by `make docs`; do not edit. A status changes by these rows and by no
other, and so does the phase of a step: `evolve` asserts it, and `tests/engine/test_transitions.py` and
`test_step_transitions.py` walk each of them.
"""

_PAUSE_ROWS: Final = (
    (
        "",
        "Pause",
        "Stop",
        "Terminate",
    ),
    (
        "effects in flight (`call`)",
        "finish and are recorded",
        "are told to cancel; what ends within 30 s is recorded",
        "cut off; late results are refused",
    ),
    (
        "effects not begun",
        "begin on resume",
        "never begin",
        "never begin",
    ),
    (
        "a failed attempt's back-off",
        "is recorded; the timer fires on resume",
        "no further attempt",
        "no further attempt",
    ),
    (
        "a lost attempt",
        "is recorded; the next one begins on resume",
        "counts as stopped",
        "-",
    ),
    (
        "clock of `timeout` (step and block)",
        "stands",
        "stands",
        "-",
    ),
    (
        "people (`ask`, `approve`, frontend call)",
        "answers are accepted and stored, their consequences wait",
        "voided; late answers: 409",
        "voided; late answers: 409",
    ),
    (
        "deadlines of people",
        "run and fire in time, their consequences wait",
        "voided",
        "voided",
    ),
    (
        "`wait`",
        "fires on resume if due",
        "voided",
        "voided",
    ),
    (
        "signals",
        "stored",
        "stored until the end",
        "refused",
    ),
    (
        "blocks (`switch`, `parallel`)",
        "no new step or branch begins",
        "end after what is inside them",
        "end at once",
    ),
    (
        "asked again",
        "already so: the first actor and reason stand",
        "already so",
        "already so",
    ),
    (
        "of a run that never began (`queued`)",
        "paused; resume puts it back into the queue",
        "stopped",
        "stopped",
    ),
    (
        "of a paused run",
        "already so",
        "stops",
        "stops",
    ),
    (
        "of a run that needs attention",
        "409",
        "stops",
        "stops",
    ),
    (
        "of an ended run",
        "409",
        "409; of a stopped one: already so",
        "409; of a stopped one: already so",
    ),
)

_PAUSE_NOTES: Final = """\
An attempt that ends while the run is paused never makes it run again: only Resume does. Resume of a run that is not
paused is already so. Retry goes on at the first step that is not done, in every branch; what is finished is kept. It
goes down to child runs that failed, or were cut off, and goes on there. Only the run at the top is retried: a child
that nobody waits for refuses, and names it. A child that was stopped goes on only so.
"""


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> new"
    labels: dict[tuple[str, str], list[str]] = {}
    for event, row in TRANSITIONS.items():
        for before, afters in row.items():
            for after in afters:
                if before != after:
                    labels.setdefault((before, after), []).append(event)
    for (before, after), events in labels.items():
        yield f"    {before} --> {after}: {', '.join(events)}"
    for status in sorted(TERMINAL_STATUSES):
        yield f"    {status} --> [*]"
    yield "```"


def _statuses() -> Iterator[str]:
    yield "| status | means |"
    yield "|---|---|"
    for status in get_args(Status):
        yield f"| `{status}` | {MEANINGS[status]} |"


def _transitions() -> Iterator[str]:
    yield "| event | before | after |"
    yield "|---|---|---|"
    for event, row in TRANSITIONS.items():
        for before, afters in row.items():
            yield f"| `{event}` | {before} | {' or '.join(afters)} |"


def _step_tables() -> Iterator[str]:
    yield "| phase | means |"
    yield "|---|---|"
    for phase in get_args(Phase):
        yield f"| `{phase}` | {PHASES[phase]} |"
    yield ""
    yield "| outcome | means |"
    yield "|---|---|"
    for outcome in get_args(Outcome):
        yield f"| `{outcome}` | {OUTCOMES[outcome]} |"
    yield ""
    yield "What has no row leaves the phase as it is; an event without an outcome here leaves the outcome."
    yield ""
    yield "| event | phase before | phase after | outcome |"
    yield "|---|---|---|---|"
    for event, row in STEP_TRANSITIONS.items():
        outcome = " or ".join(each or "none" for each in STEP_OUTCOMES.get(event, ()))
        for before, afters in row.items():
            yield f"| `{event}` | {before} | {' or '.join(afters)} | {outcome} |"
    yield ""
    yield "`step_reopened` and `run_retried` give back the outcome before that to a step that its own `finally` failed,"
    yield "one whose `catch` goes on is `handled` again; what else they open has no outcome any more."


def _pause_table() -> Iterator[str]:
    head, *rows = _PAUSE_ROWS
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def document() -> str:
    """The text of docs/run-states.md."""
    lines = [
        _INTRODUCTION,
        *_statuses(),
        "",
        *_diagram(),
        "",
        "`turn_ended` counts only with the reason `waiting`; else another event of the same commit says more.",
        "Where several statuses may follow, the event says which.",
        "",
        *_transitions(),
        "",
        _STEPS,
        *_step_tables(),
        "",
        "## What Pause, Stop and Terminate do",
        "",
        *_pause_table(),
        "",
        _PAUSE_NOTES,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(document())
