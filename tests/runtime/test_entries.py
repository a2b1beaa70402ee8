"""The row of an entry: what most have not is left out of it, and what one has is in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine.draft import NO_CONTEXT
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import TooLongForLoop
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.decider import FORESEEN_MAX, Decider, complete_entry
from hai_flow.runtime.commit.loader import Loader
from hai_flow.runtime.commit.submission import RunCreation, Submission
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.commit.entries import Entry
from hai_flow.store.commit.projection import rows_of
from tests.support.runs import Play

ALL_KINDS: Final = """\
tools:
  work: {python: "pkg.mod:work", effect: write}
  pick: {frontend: {description: Pick one., parameters: {type: object, additionalProperties: true}}}
steps:
  - {id: first, call: work, with: {}}
  - wait: {for: 10s}
  - {id: second, call: work, with: {}}
  - say: hello
  - parallel:
      one: [{id: left, call: work, with: {}}, {id: further, call: work, with: {}}]
      other: [{id: chosen, call: pick, with: {a: 1}}]
  - wait: {for: 1h}
  - {id: last, call: work, with: {}}
"""


def _of_open(act: Callable[[Play, str], Any]) -> Callable[[Play], Any]:
    def done(run: Play) -> None:
        for path in list(run.open)[:1]:
            act(run, path)

    return done


def _answer(run: Play) -> None:
    if "chosen" in run.state.open_pendings:
        run.answer("chosen", result="x")


ACTS: Final[tuple[Callable[[Play], Any], ...]] = (
    _of_open(Play.succeed),
    _of_open(Play.succeed),
    _of_open(Play.fail),
    _of_open(Play.lose),
    _answer,
    lambda run: run.advance(3_600_000),
    Play.pause,
    Play.resume,
    Play.stop,
    Play.retry,
)


def entry_of(run: Play, before: RunState) -> CommitEntry:
    """The entry of the run's last decision."""
    known = CachedRun(UUID(int=7), LOCAL_TENANT, before, run.plan, version=3, exists=before.status != "new")
    birth = None if known.exists else RunCreation(run.plan)
    return CommitEntry(known, run.state, list(run.last), decides=True, birth=birth)


def decider(freezes: Any = None) -> Decider:
    parts = {"bounds": DEFAULT_BOUNDS, "now_ms": lambda: 0, "wants_ends": lambda tenant, workflow: False}
    claims = SimpleNamespace(serves=lambda queue: True)
    return Decider(
        cast(Any, SimpleNamespace(queues=None, claims=claims, freezes=freezes, tools=NO_CONTEXT, **parts)),
        cast(Any, None),
    )


def told(row: Entry) -> dict[str, Any]:
    """The row, without the difference of one empty list to another."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return {name: value or None if isinstance(value, list | tuple) else value for name, value in fields.items()}


@given(st.lists(st.sampled_from(ACTS), max_size=12))
def test_a_plain_row_is_what_the_filled_in_row_would_be(acts: list[Callable[[Play], Any]]) -> None:
    run = Play(ALL_KINDS, start=False)
    for act in (lambda run: run.start(), *acts):
        before, seq = run.state, run.state.seq
        with contextlib.suppress(Rejected):  # not where the run stands
            act(run)
        if run.state.seq == seq:
            continue
        entry = entry_of(run, before)
        row = decider()._row(entry)
        whole = complete_entry(row, entry, rows_of(entry.events, run.state, run.plan.roles))
        assert told(row) == told(whole)


async def test_a_large_command_is_decided_beside_the_loop_for_an_unmoved_run() -> None:
    run = Play(ALL_KINDS)
    known = CachedRun(UUID(int=7), LOCAL_TENANT, run.state, run.plan, version=3)
    large = Submission(c.Signal(id="s", name="none", data="a" * 100_000), 0.0)
    small = Submission(c.Signal(id="s", name="none", data="a"), 0.0)
    judge = decider(SimpleNamespace(are_any=False))
    entry = CommitEntry(known, run.state)
    assert judge._decide_on_loop(run.plan, entry, small)
    with pytest.raises(TooLongForLoop):
        judge._decide_on_loop(run.plan, entry, large)
    known.submit(large)
    for is_moved in (False, True):
        await judge.foresee(known)
        assert large.foresight is not None
        foreseen = large.foresight
        entry = CommitEntry(known, msgspec.structs.replace(run.state) if is_moved else run.state)
        decision = judge._foreseen(run.plan, entry, large)
        assert foreseen.decision is not None
        assert decision is (None if is_moved else foreseen.decision)
        assert large.foresight is None


async def test_a_command_of_a_run_that_always_moves_is_decided_on_the_loop() -> None:
    run = Play(ALL_KINDS)
    large = Submission(c.Signal(id="s", name="none", data="a" * 100_000), 0.0, foreseen=FORESEEN_MAX)
    judge = decider(SimpleNamespace(are_any=False))
    row = CachedRun(UUID(int=7), LOCAL_TENANT, run.state, run.plan, version=3)
    assert judge._decide_on_loop(run.plan, CommitEntry(row, run.state), large)


async def test_commands_that_come_while_a_start_is_looked_up_do_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Play(ALL_KINDS)
    birth = RunCreation(run.plan, in_use=True)
    row = CachedRun(UUID(int=7), LOCAL_TENANT, run.state, run.plan)
    row.submit(Submission(c.Continue(), 0.0, birth=birth))

    async def is_retired(*_: object) -> bool:
        row.submit(Submission(c.Continue(), 0.0))
        return True

    monkeypatch.setattr("hai_flow.runtime.commit.loader.workflows.is_retired", is_retired)
    loader = Loader.__new__(Loader)
    await loader.look_up(cast(Any, None), [row], {})
    assert row.submissions[0].retired
