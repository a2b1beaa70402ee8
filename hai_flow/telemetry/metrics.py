"""The metrics of a process, and the meaning of each (docs/operations.md says how to act on them).

Commits and attempts are counted when the runtime calls its listeners; values that it has anyway, like the size of the
cache, are read at each look. Names of workflows and models are those of runs that have started, never of requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal
from uuid import UUID

from hai_flow import __version__
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.canaries import find_disguise
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.sweep_isolation import Sweep
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.runtime import Answered, Runtime
from hai_flow.runtime.worker.attempt import Report, RunningAttempt
from hai_flow.steps.runner import find_runner_kind
from hai_flow.store.ops.replicas import Replica
from hai_flow.store.postgres.error_classes import ErrorClass
from hai_flow.store.runs.leases import Claimed
from hai_flow.telemetry.instruments import (
    LONG_SECONDS,
    OTHER,
    SECONDS,
    SERIES_MAX,
    SIZES,
    Distribution,
    Family,
    Labels,
    Sum,
)

DECISION_SECONDS: Final = (1.0, 3.0, 10.0, 30.0, 120.0, 600.0, 3600.0, 14_400.0, 86_400.0, 604_800.0)
RESUMING_MAX: Final = 10_000  # runs whose last turn is remembered

_STEP_OUTCOMES: Final[dict[type[e.Event], str]] = {
    e.StepFinished: "finished",
    e.StepFailed: "failed",
    e.StepStopped: "stopped",
    e.StepSkipped: "skipped",
}
_RUN_ENDS: Final[dict[type[e.Event], str]] = {e.RunFinished: "finished", e.RunFailed: "failed", e.RunStopped: "stopped"}
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_DECISIONS: Final = {
    "approve": ("approved", "people"),
    "reject": ("refused", "people"),
    "expired": ("expired", "nobody"),
    "voided": ("withdrawn", "nobody"),
}
_REPORTS: Final = {
    c.StepSucceeded: "succeeded",
    c.StepFailed: "failed",
    c.StepLost: "lost",
    c.StepAsks: "asked",
    c.GateChecked: "checked",
}


_CANARIES: Final = {"refused": "caught", "approved": "missed", "other": "missed"}


class Metrics:
    """The families of one process, or of one further cell in it. `attach` before the runtime's services start.
    `series_max`: of each family."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series_max = series_max
        self._families: list[Family] = []
        self._runtime: Runtime | None = None
        self._readings: list[Callable[[], None]] = []
        self._before = (0, 0)  # families and readings that are no runtime's
        self._turns: dict[UUID, int] = {}  # the turn of a run in which an attempt was begun here last
        self._commands: dict[type, Labels] = {}
        self._counting: dict[type[e.Event], Callable[[CommitEntry, Any], None]] = {
            e.RunStarted: self._run_started,
            e.ModelUsed: self._model_used,
            e.PendingDecided: self._question_ended,
            e.PendingVoided: self._question_ended,
            **dict.fromkeys(_RUN_ENDS, self._run_ended),
            **dict.fromkeys(_STEP_OUTCOMES, self._step_ended),
        }
        count, spread = self._counter, self._distribution

        self.runs_started = count("runs_started_total", "Runs that this process has started.", "workflow")
        self.runs_ended = count("runs_ended_total", "Runs that have ended by a commit here.", "workflow", "status")
        self.step_seconds = spread(
            "step_seconds",
            "From the start of a step to its end, with all that it waited for.",
            "workflow",
            "verb",
            "outcome",
            bounds=LONG_SECONDS,
        )
        self.decision_seconds = spread(
            "decision_seconds",
            "From the asking of an approval or a gate to its end.",
            "workflow",
            "outcome",
            "by",
            bounds=DECISION_SECONDS,
        )
        self.canaries = count(
            "canaries_total", "Seeded questions that have ended, by the workflow that they show.", "workflow", "outcome"
        )
        self.command_seconds = spread(
            "command_seconds",
            "From the arrival of a command that somebody waits for to the answer of its commit.",
            "command",
        )
        self.commit_seconds = spread("commit_seconds", "The time of a commit's statement.")
        self.commit_entries = spread("commit_entries", "How many runs one commit covers.", bounds=SIZES)
        self.commit_losses = count("commit_losses_total", "Entries that lost: another process moved the run first.")
        self.commit_failures = count("commit_failures_total", "Commits that were refused or broke off.", "fault")
        self.claimed = count("runs_claimed_total", "Runs taken by a claim; lost: of a dead worker.", "lost")
        self.claim_lag = spread("claim_lag_seconds", "From when a run was due to its claim.")
        self.attempt_lag = spread(
            "attempt_lag_seconds", "From when a worker knew of an attempt to its beginning: what its queue costs."
        )
        self.resume_seconds = spread(
            "resume_seconds", "From the commit of an answer (or of another end of waiting) to the next attempt."
        )
        self.attempt_seconds = spread(
            "attempt_seconds", "How long attempts were performed, by what performed them.", "kind", "outcome"
        )
        self.tokens = count("llm_tokens_total", "Tokens of models; cached are part of input.", "model", "kind")
        self.cost = count("llm_cost_usd_total", "What models have cost in US dollars, where prices are known.", "model")
        self.answers = count("llm_answers_total", "Answers of models.", "model", "provider")
        self.requests = spread(
            "http_request_seconds",
            "From the head of a request to the head of its response.",
            "method",
            "route",
            "status",
        )
        self.gauge("info", "This process: 1.", "version").put(1.0, (__version__,))
        self.cell_up = self.gauge("cell_up", "1 where a further cell answers, else 0.", "cell")

    # --- making families ----------------------------------------------------------------------------------------------

    def _counter(self, name: str, meaning: str, *names: str) -> Sum:
        return self._sum("counter", name, meaning, names)

    def gauge(self, name: str, meaning: str, *names: str) -> Sum:
        return self._sum("gauge", name, meaning, names)

    def _sum(self, kind: Literal["counter", "gauge"], name: str, meaning: str, names: Labels) -> Sum:
        instrument = Sum(kind, f"hai_flow_{name}", meaning, names, self._series_max)
        self._families.append(instrument)
        return instrument

    def _distribution(
        self, name: str, meaning: str, *names: str, bounds: Sequence[float] | None = None
    ) -> Distribution:
        full = f"hai_flow_{name}"
        instrument = Distribution(full, meaning, names, bounds or SECONDS, self._series_max)
        self._families.append(instrument)
        return instrument

    def collect(self) -> Sequence[Family]:
        """All families, those that are read now among them."""
        for read in self._readings:
            read()
        for family in self._families:
            if isinstance(family, Distribution):
                family.count()
        return self._families

    # --- the runtime --------------------------------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        """Whether a runtime has been listened to: until then there is nothing to show of it."""
        return self._runtime is not None

    def attach(self, runtime: Runtime) -> Sequence[Service]:
        """Listen to a runtime whose services are about to start; also when an earlier try to start it has failed, whose
        readings are forgotten then."""
        if self._runtime is None:
            self._before = len(self._families), len(self._readings)
        families, readings = self._before
        del self._families[families:], self._readings[readings:]
        listeners = runtime.committer.listeners
        listeners.written.append(self._count_entries)
        listeners.sent.append(self._count_batch)
        listeners.unsent.append(self._unsent)
        listeners.claimed.append(self._count_claims)
        listeners.performed.append(self._count_attempt)
        runtime.requests.append(self._count_request)
        self._runtime = runtime
        self._read_from(runtime)
        return ()

    def _read_from(self, runtime: Runtime) -> None:
        committer, cache, fanout = runtime.committer, runtime.committer.cache, runtime.fanout
        self.reads("commands_queued", "Runs with commands that are not committed yet.", lambda: committer.queues.queued)
        self.reads(
            "committer_stalled_seconds",
            "For how long something has waited without any lane getting on.",
            lambda: max(0.0, time.monotonic() - committer.last_progress()),
        )
        self.reads("cache_bytes", "Bytes of runs' states in memory, nearly.", lambda: cache.bytes)
        meaning = "By how much this machine's clock is ahead of the database's."
        self.reads("clock_ahead_seconds", meaning, committer.clock_ahead)
        self.reads("cache_runs", "Runs in memory.", lambda: len(cache))
        self.reads("cache_hits_total", "Commands for runs that were in memory.", lambda: cache.hits)
        self.reads("cache_misses_total", "Commands for runs that had to be loaded.", lambda: cache.misses)
        self.reads("followers", "Streams that follow a run.", lambda: fanout.followers)
        self.reads("followers_dropped_total", "Followers that were too slow.", lambda: fanout.dropped)
        carrier, hints = runtime.carrier, committer.hints
        self.reads("hints_up", "1 where hints come and go, 0 where polls alone find news.", lambda: not carrier.fault)
        self.reads("hints_dropped_total", "Commits that other processes were not told of.", lambda: hints.dropped)
        self.reads("hints_refused_total", "Hints that nobody who may has sent.", lambda: carrier.refused)
        self.reads("followed_events_heard_total", "Events for followers that came with hints.", lambda: fanout.heard)
        self.reads("followed_looks_total", "Statements that looked for events for followers.", lambda: fanout.looks)
        replica = runtime.replica or Replica("", runtime.database, lag_max=0.0)  # one that is never asked
        self.reads("replica_used", "1 where the replica is asked for history, else 0.", lambda: replica.usable)
        self.reads("replica_lag_seconds", "How late the replica is, at most.", lambda: replica.lag or 0.0)
        self.reads("replica_reads_total", "Readings that the replica has answered.", lambda: replica.reads)
        self.reads("replica_refused_total", "Readings that it could not answer.", lambda: replica.refused)
        connections = self.gauge("database_connections", "Connections of a pool.", "pool", "state")
        pools = {"engine": runtime.database.engine, "api": runtime.database.api}

        def count_connections() -> None:
            for name, pool in pools.items():
                connections.put(float(pool.get_size() - pool.get_idle_size()), (name, "used"))
                connections.put(float(pool.get_idle_size()), (name, "idle"))
                connections.put(float(pool.get_max_size()), (name, "most"))

        self._readings.append(count_connections)
        put_off, rows = (
            self._counter("rows_put_off_total", "Rows that a sweep could not deal with.", "sweep"),
            runtime.rows,
        )

        def count_rows() -> None:
            for sweep in Sweep:
                put_off.put(float(rows.failed[sweep]), (sweep.value,))

        self._readings.append(count_rows)
        worker = runtime.worker
        if worker is not None:
            self.reads("runs_held", "Runs that this worker holds.", lambda: worker.held)
            self.reads("attempts", "Attempts that run here, or wait for a place.", lambda: worker.attempts)
            self.reads("attempts_waiting", "Attempts that wait for a place.", lambda: worker.attempts_waiting)
            self.reads(
                "tool_threads_left_behind",
                "Calls of `def` tools that were given up and still run in their threads.",
                lambda: runtime.registry.left_behind,
            )

    def reads(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """A number that is read when somebody looks."""
        family = self._sum("counter" if name.endswith("_total") else "gauge", name, meaning, ())
        self._readings.append(lambda: family.put(float(read())))

    # --- facts --------------------------------------------------------------------------------------------------------

    def _count_entries(self, entries: Sequence[CommitEntry]) -> None:
        now, counting = time.monotonic(), self._counting
        for entry in entries:
            for submission in entry.submissions:
                if submission.answer is not None:  # somebody waits for it
                    labels = self._commands.get(type(submission.command)) or self._name(type(submission.command))
                    self.command_seconds.observe(now - submission.arrived, labels)
            for event in entry.events:
                count = counting.get(type(event))
                if count is not None:
                    count(entry, event)

    def _name(self, command: type) -> Labels:
        labels = self._commands[command] = (re.sub(r"(?<!^)(?=[A-Z])", "_", command.__name__).lower(),)
        return labels

    def _step_ended(self, entry: CommitEntry, event: Any) -> None:
        step = entry.state.steps.get(event.path)
        if step is not None:  # else it is of an iteration that was cleared away in the same commit
            seconds = (event.at - step.started_at) / 1000
            self.step_seconds.observe(seconds, (entry.state.workflow, step.verb, _STEP_OUTCOMES[type(event)]))

    def _question_ended(self, entry: CommitEntry, event: e.PendingDecided | e.PendingVoided) -> None:
        pending = entry.state.pendings.get(event.id)
        if pending is None or pending.opened.kind not in ("approve", "gate"):
            return
        outcome, by = _DECISIONS.get(pending.status, ("other", "people"))
        disguise = find_disguise(entry.state)
        if disguise is not None:  # counted nowhere else
            self.canaries.add(1, (disguise.workflow, _CANARIES.get(outcome, outcome)))
            return
        if by == "people" and any(vote.rule is not None for vote in pending.votes):
            by = "rule"
        self.decision_seconds.observe((event.at - pending.opened.at) / 1000, (entry.state.workflow, outcome, by))

    def _run_started(self, entry: CommitEntry, event: Any) -> None:
        self.runs_started.add(1, (event.workflow,))

    def _run_ended(self, entry: CommitEntry, event: Any) -> None:
        self.runs_ended.add(1, (entry.state.workflow, _RUN_ENDS[type(event)]))
        self._turns.pop(entry.run.id, None)

    def _model_used(self, entry: CommitEntry, event: Any) -> None:
        use: e.ModelUse = event.use
        self.answers.add(use.calls, (use.model, use.provider))
        kinds = (("input", use.input), ("output", use.output), ("cached", use.cached), ("reasoning", use.reasoning))
        for kind, amount in kinds:
            if amount:
                self.tokens.add(amount, (use.model, kind))
        if use.cost:
            self.cost.add(use.cost, (use.model,))

    def _count_batch(self, entries: Sequence[CommitEntry], won: int, began: float, ended: float) -> None:
        self.commit_seconds.observe(ended - began)
        self.commit_entries.observe(len(entries))
        if won < len(entries):
            self.commit_losses.add(len(entries) - won)

    def _unsent(self, fault: ErrorClass) -> None:
        self.commit_failures.add(1, (fault.value,))

    def _count_claims(self, claimed: Sequence[Claimed]) -> None:
        for claim in claimed:
            self.claimed.add(1, ("true" if claim.lost else "false",))
            if claim.due_at is not None:
                self.claim_lag.observe(max(0.0, (claim.db_now - claim.due_at).total_seconds()))

    def _count_attempt(self, performance: RunningAttempt, report: Report, began: float, ended: float) -> None:
        run, step = performance.run, performance.step
        self.attempt_lag.observe(began - performance.known_since)
        kind = "none" if step is None else find_runner_kind(step) or "none"
        self.attempt_seconds.observe(ended - began, (kind, _REPORTS[type(report)]))
        turn = run.state.turn
        if turn is not None and turn.n > 1 and self._turns.get(run.id) != turn.n:
            self._count_resumption(run, turn.n, turn.at, began)

    def _count_resumption(self, run: CachedRun, turn: int, at: int, began: float) -> None:
        assert self._runtime is not None
        if len(self._turns) >= RESUMING_MAX:
            self._turns.clear()
        self._turns[run.id] = turn
        since_ms = (time.monotonic() - began) * 1000
        self.resume_seconds.observe(max(0.0, self._runtime.committer.now_ms() - since_ms - at) / 1000)

    def _count_request(self, answered: Answered) -> None:
        method = answered.method if answered.method in _METHODS else OTHER
        seconds = answered.ended - answered.began
        self.requests.observe(seconds, (method, answered.route, f"{answered.status // 100}xx"))
