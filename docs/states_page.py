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
    "running": "a turn is open: steps are performed or about to be",
    "waiting": "every branch waits for people, events or a distant time; no process holds the run",
    "paused": "an operator halted it; attempts in flight finish and are recorded",
    "stopping": "a stop was requested; attempts in flight were told to cancel and have 30 s for it",
    "finished": "it has ended with an output",
    "failed": "it has ended with an error, and can be retried",
    "stopped": "it was stopped or terminated",
    "needs_attention": "its attempts were lost five times in a row, or its result can't be stored; a person decides",
}

PHASES: Final[dict[Phase, str]] = {
    "new": "the log does not mention the step yet",
    "pending": "a step of a handler, to be performed again after a Retry",
    "working": "its effect is attempted, or steps inside it are in progress",
    "waiting": "it waits for people, a signal or a time",
    "handling": "a handler of it is, or was the last to be, in progress: `~undo`, `~reject`, `~catch/0`, `~finally`",
    "over": "it has ended, and no handler of it is in progress",
}

OUTCOMES: Final[dict[Outcome, str]] = {
    "finished": "it has an output",
    "skipped": "its `if` was false, people chose another option than approve or reject, or an operator skipped it",
    "failed": "it has an error that is raised to the enclosing block",
    "handled": "its `catch` has handled its error; it is shown as failed",
    "stopped": "it was stopped before its end",
    "undone": "it had finished, and was undone",
}

_STEPS: Final = """\
## The states of a step

A step has a phase in its life cycle and, at the end, an outcome. Protocols show the outcome as its status; before that,
`waiting` if it waits, and otherwise `running` (or `pending`). The end of a handler's list is not an event of the step:
the next step is made ready by the end of the last one. So only a later event of the step itself ends `handling`.
"""

_INTRODUCTION: Final = """\
# The states of a run

Every status of a run and of its steps, for operators and for authors of clients. Generated from
`engine/state/transitions.py` by `make docs`; do not edit. Only these rows change a status or a phase: `evolve` asserts
it, and `tests/engine/test_transitions.py` and `test_step_transitions.py` test each row.
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
        "are told to cancel; results within 30 s are recorded",
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
        "is halted",
        "is halted",
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
        "end after the steps inside them",
        "end at once",
    ),
    (
        "the same command again",
        "already so: the first actor and reason remain",
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
Only Resume continues a paused run; the end of an attempt does not. Resume of a run that is not paused is "already so".
Retry continues in every branch at the first step that is not finished, also in child runs that failed or were cut off.
Retry the run at the top: a child for which no run waits refuses, and names that run. A stopped child continues only in
this way.
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
    yield "An event without a row leaves the phase unchanged; one without an outcome here leaves the outcome unchanged."
    yield ""
    yield "| event | phase before | phase after | outcome |"
    yield "|---|---|---|---|"
    for event, row in STEP_TRANSITIONS.items():
        outcome = " or ".join(each or "none" for each in STEP_OUTCOMES.get(event, ()))
        for before, afters in row.items():
            yield f"| `{event}` | {before} | {' or '.join(afters)} | {outcome} |"
    yield ""
    yield "`step_reopened` and `run_retried` restore the previous outcome of a step that its own `finally` failed, and"
    yield "`handled` of a step whose `catch` continues; every other step that they reopen has no outcome any more."


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
        "`turn_ended` changes the status only with the reason `waiting`. If several statuses may follow, the event",
        "names the new one.",
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
