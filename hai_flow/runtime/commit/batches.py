"""Entries in the making, one a run, and the batches in which they are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from hai_flow.definition.personal.pii_marks import MASK
from hai_flow.definition.plan import Plan
from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.runtime.catalog.pii_catalog import hides_values
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.submission import Outcome, RunCreation, Streamed, Submission
from hai_flow.store.commit.entries import AuditRow, CommandRow, Entry, OutboxRow

log = structlog.get_logger(__name__)

_EXPECTED: Final = frozenset({"timer_early"})
_NO_COMMANDS: Final[Mapping[str, CommandRow]] = MappingProxyType({})


class CommitEntry(msgspec.Struct, eq=False):
    """One entry in the making: the decisions on top of a run's state, and the answers to those that asked for them.

    Its `row` is sent, and has `bytes` of events."""

    run: CachedRun
    state: RunState
    events: list[e.Event] = []
    cut: bool = False
    outbox: Sequence[OutboxRow] = ()  # most entries have neither these rows nor those of `audit` and `commands`
    audit: Sequence[AuditRow] = ()
    decides: bool = False
    answers: list[tuple[Submission, Outcome | Rejected]] = []
    commands: Mapping[str, CommandRow] = _NO_COMMANDS  # by their ids
    submissions: list[Submission] = []
    undecided: Submission | None = None  # the last of them, before which so much is due that this is committed first
    chunks: list[Streamed] = []
    birth: RunCreation | None = None
    seat: str | None = None
    plan: Plan | None = None  # the one that the run moves to
    locked: bool = False  # the run's row is, so its state is fresh
    row: Entry | None = None
    bytes: int = 0

    @property
    def carried(self) -> Submission | None:
        """The submission by whose transaction the entry is committed: a result that was taken. It is the last one."""
        if not self.answers or self.undecided is not None:
            return None
        submission, answer = self.answers[-1]
        is_accepted = isinstance(answer, Outcome) and not answer.already
        return submission if is_accepted and submission.carrier is not None else None

    def give_back(self) -> None:
        """Nothing of the entry happened, as far as is known: its commands and chunks wait with the run again."""
        self.run.take_back(self.submissions, self.chunks)

    def settle(self) -> None:
        """Answer every submission of the entry."""
        if self.run.singly:
            self.run.note_answered(len(self.answers))
        for submission, answer in self.answers:
            if submission.carrier is not None:
                submission.leave()
            if submission.answer is None:
                if isinstance(answer, Rejected) and answer.code not in _EXPECTED:
                    detail = MASK if hides_values(self.run.plan, self.run.state) else answer.detail
                    log.info("refused", run_id=str(self.run.id), code=answer.code, detail=detail)
            elif submission.answer.done():
                continue
            elif isinstance(answer, Rejected):
                submission.answer.set_exception(answer)
            else:
                submission.answer.set_result(answer)


@dataclass(slots=True)
class Batch:
    """Entries that are sent together, and how often they were."""

    entries: list[CommitEntry]
    tries: int = 0

    @property
    def rows(self) -> list[Entry]:
        return [entry.row for entry in self.entries if entry.row is not None]
