"""The two tables that a run obeys: its statuses, and the phases and outcomes of its steps.

A status changes only by a row of TRANSITIONS, the phase of a step by one of STEP_TRANSITIONS. A transition that the
tables do not have is a bug: the folds assert it. `docs/run-states.md` is generated from them."""

from __future__ import annotations

from typing import Final

from hai_flow.engine.state.state import Outcome, Phase, Status

# event -> {status before: statuses after}. Where several may follow, the event says which (`run_resumed.status`).
# `turn_ended` counts only with the reason "waiting"; with any other, another event of the same commit says more.
TRANSITIONS: Final[dict[str, dict[Status, tuple[Status, ...]]]] = {
    "run_started": {"new": ("running",)},
    "run_queued": {"running": ("queued",)},
    "turn_started": {
        "queued": ("running",),
        "waiting": ("running",),
        "running": ("running",),
        "paused": ("paused",),
        "needs_attention": ("needs_attention",),
        "stopping": ("stopping",),
    },
    "turn_ended": {"running": ("waiting",)},
    "run_paused": {"running": ("paused",), "waiting": ("paused",), "queued": ("paused",)},
    "run_resumed": {"paused": ("running", "waiting", "queued")},
    "run_stopping": {
        "queued": ("stopping",),
        "running": ("stopping",),
        "waiting": ("stopping",),
        "paused": ("stopping",),
        "needs_attention": ("stopping",),
    },
    "run_stopped": {
        "queued": ("stopped",),
        "running": ("stopped",),
        "waiting": ("stopped",),
        "paused": ("stopped",),
        "stopping": ("stopped",),
        "needs_attention": ("stopped",),
    },
    "run_finished": {"running": ("finished",)},
    "run_failed": {"running": ("failed",), "stopping": ("failed",)},
    "run_needs_attention": {
        "running": ("needs_attention",),
        "paused": ("needs_attention",),
        "waiting": ("needs_attention",),
    },
    # A run that was stopped goes on only with the run above, which was retried and waits for it again.
    "run_retried": {"failed": ("running",), "stopped": ("running",), "needs_attention": ("running",)},
    "work_taken_back": {"stopping": ("stopping",), "stopped": ("stopping",), "failed": ("stopping",)},
}

# event -> {phase before: phases after}. `new`: the step has no record yet. Where several may follow, the event says
# which: "handling" if it names a handler. An event without a row leaves the phase as it is.
STEP_TRANSITIONS: Final[dict[str, dict[Phase, tuple[Phase, ...]]]] = {
    "step_started": {
        "new": ("working",),
        "pending": ("working",),
        "handling": ("working",),
        "over": ("working",),
    },
    "iteration_started": {"new": ("working",), "pending": ("working",), "over": ("working",)},
    "attempt_started": {"working": ("working",)},
    "pending_opened": {"working": ("waiting",)},
    "pending_decided": {"waiting": ("working",)},
    "timer_set": {"working": ("waiting",)},
    "signals_awaited": {"working": ("waiting",)},
    "step_finished": {
        "new": ("handling", "over"),
        "working": ("handling", "over"),
        "waiting": ("handling", "over"),
        "handling": ("handling", "over"),
    },
    "step_skipped": {
        "new": ("over",),
        "pending": ("over",),
        "working": ("handling", "over"),
        "waiting": ("handling", "over"),
        "handling": ("over",),
        "over": ("over",),
    },
    "step_failed": {
        "new": ("handling", "over"),
        "pending": ("handling", "over"),
        "working": ("handling", "over"),
        "waiting": ("handling", "over"),
        "handling": ("handling", "over"),
        "over": ("handling", "over"),
    },
    "step_stopped": {
        "new": ("handling", "over"),
        "pending": ("handling", "over"),
        "working": ("handling", "over"),
        "waiting": ("handling", "over"),
        "handling": ("handling", "over"),
        "over": ("handling", "over"),
    },
    "step_undone": {"pending": ("pending",), "handling": ("handling",), "over": ("over",)},
    "iteration_ended": {
        "new": ("over",),
        "pending": ("over",),
        "working": ("over",),
        "handling": ("over",),
        "over": ("over",),
    },
    "step_ending": {"new": ("working",)},
    "handler_started": {"working": ("handling",), "handling": ("handling",), "over": ("handling",)},
    "step_reopened": {"handling": ("handling", "working"), "over": ("handling", "working")},
    "run_retried": {"working": ("working",), "handling": ("handling", "working"), "over": ("handling", "working")},
}

# event -> the outcomes that it gives a step. `run_retried` and `step_reopened` give "finished" or "skipped" back to one
# that its own `finally` had failed, and "handled" to one whose `catch` goes on; all others that they open have none.
STEP_OUTCOMES: Final[dict[str, tuple[Outcome | None, ...]]] = {
    **dict.fromkeys(("step_started", "iteration_started", "attempt_started"), (None,)),
    **dict.fromkeys(("pending_opened", "pending_decided", "timer_set", "signals_awaited"), (None,)),
    "step_finished": ("finished",),
    "step_skipped": ("skipped",),
    "step_failed": ("failed", "handled"),
    "step_stopped": ("stopped",),
    "step_undone": ("undone",),
    "iteration_ended": ("finished", "failed", "stopped"),
}
