"""The transitions of a cached run: which are legal where, and what holds behind each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.commit.cached_run import LOSSES_BEFORE_LOCK, STATE_OVERHEAD_BYTES, CachedRun, IllegalTransition
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.queues import Cache
from hai_flow.runtime.commit.submission import Submission
from hai_flow.store.commit.entries import CommandRow, CommitResult
from hai_flow.store.runs.logs import Loaded
from tests.support.runs import Play

AGENT = """\
tools: {web: {python: acme.web, effect: read}}
models: {smart: {use: smart}}
steps:
  - {id: chat, agent: {model: smart, prompt: Do it., tools: [web.search]}}
"""
RUN, TENANT, ME = UUID(int=1), UUID(int=2), 7
PLAN: Any = object()
STATE = RunState(str(RUN), seq=3)
TURNS = {
    "idle": {"enqueue": "queued"},
    "queued": {"take": "taken"},
    "taken": {"enqueue": "queued", "detach": "detached", "leave": "idle"},
    "detached": {"enqueue": "queued", "leave": "idle"},
}
ACTS = [
    *("turn", "outdate", "doubt", "load", "miss", "birth", "win", "lose"),
    *("disown", "release", "submit", "pop", "weigh", "drop"),
]
MOVES = ("enqueue", "take", "detach", "leave")


def row(fence: int, worker: int | None) -> Loaded:
    fields = {"tenant": TENANT, "version": 4, "fence": fence, "worker": worker, "log_bytes": 9, "created_at": None}
    return cast(Loaded, SimpleNamespace(**fields))


def load(run: CachedRun, fence: int = 3, worker: int | None = None, began: float = 1.0) -> None:
    run.load(row(fence, worker), PLAN, STATE, began, owned=worker == ME, log_bytes=5, snapshot_bytes=4)


def in_hand(run: CachedRun | None = None) -> CachedRun:
    run = run or CachedRun(RUN, TENANT)
    run.enqueue()
    run.take()
    return run


def submission(id: str | None = None) -> Submission:
    return Submission(c.Continue(), 0.0, id)


@given(st.lists(st.sampled_from(MOVES), max_size=12))
def test_a_turn_goes_by_its_table_and_everything_else_raises(moves: list[str]) -> None:
    run = CachedRun(RUN, TENANT)
    for move in moves:
        before = run.position
        if move in TURNS[before]:
            getattr(run, move)()
            assert run.position == TURNS[before][move]
        else:
            with pytest.raises(IllegalTransition):
                getattr(run, move)()
            assert run.position == before
        assert run.queued == (run.position != "idle")


@given(st.data())
def test_whatever_happens_to_a_run_its_knowledge_agrees_with_itself(data: st.DataObject) -> None:
    run, now, cached = CachedRun(RUN, TENANT), 1.0, False
    waiting: list[Submission] = []
    for act in data.draw(st.lists(st.sampled_from(ACTS), max_size=30)):
        now += 1.0
        began = now - data.draw(st.sampled_from((0.5, 2.5)))  # since the act before this one, or before that
        in_turn = run.position in ("taken", "detached")
        worker, fence = data.draw(st.sampled_from((None, ME, 8))), data.draw(st.integers(0, 3))
        outdated = run._outdated_at
        if act == "turn":
            getattr(run, data.draw(st.sampled_from(sorted(TURNS[run.position]))))()
        elif act in ("outdate", "doubt"):
            getattr(run, act)(now)
            assert run.must_load
            assert act == "outdate" or run.must_fence == run.owned
        elif act in ("load", "miss", "win"):
            won = CommitResult(seq=9, version=5, fence=fence, worker=worker)
            owned, follows = run.owned, run.worker is None and fence == run.fence + 1
            call: Callable[[], None] = {
                "load": partial(load, run, fence, worker, began),
                "miss": partial(run.miss, began),
                "win": partial(run.win, won, 10, owned=worker == ME),
            }[act]
            if not in_turn:
                with pytest.raises(IllegalTransition):
                    call()
                continue
            call()
            if act == "miss":
                assert (run.exists, run.owned, run.worker) == (False, False, None)
            else:
                assert (run.exists, run.worker, run.fence, run.owned) == (True, worker, fence, worker == ME)
                assert owned or worker != ME or run.claim_unproven == (not follows)
            if act == "win":
                run.advance(STATE, None, began)
                assert not run.must_lock
            assert run.must_load == (began <= outdated)
        elif act == "birth":
            if run.exists:
                with pytest.raises(IllegalTransition):
                    run.begin_birth(PLAN, TENANT)
            else:
                run.begin_birth(PLAN, TENANT)
                assert run.plan is PLAN
        elif act == "lose":
            run.lose()
        elif act == "submit":
            waiting.append(submission())
            run.submit(waiting[-1])
        elif act == "pop" and waiting:
            assert run.pop_submission() is waiting.pop(0)
        elif act == "weigh":
            run.weigh()
            cached = True
        elif act == "drop":
            run.uncache()
            cached = False
        elif act in ("disown", "release"):
            getattr(run, act)()
            assert not run.owned
        assert list(run.submissions) == waiting
        assert run.has_work == bool(waiting)
        assert not run.owned or (run.exists and run.worker == ME)
        assert (run.bytes >= STATE_OVERHEAD_BYTES) if cached else run.bytes == 0


def test_a_refresh_counts_against_every_load_that_began_before_it() -> None:
    run = in_hand()
    assert run.must_load
    load(run, began=1.0)
    assert not run.must_load
    run.outdate(2.0)
    load(run, began=1.5)
    assert run.must_load
    load(run, began=2.5)
    assert not run.must_load


@pytest.mark.parametrize(("worker", "fence", "unproven"), [(None, 4, False), (None, 5, True), (8, 4, True)])
def test_a_claim_is_proven_only_of_a_free_run_and_by_the_next_fence(
    worker: int | None, fence: int, unproven: bool
) -> None:
    run = in_hand()
    load(run, 3, worker)
    load(run, fence, ME)
    assert (run.owned, run.claim_unproven) == (True, unproven)
    run.prove_claim()
    assert not run.claim_unproven


def test_a_new_run_is_proven_ours_and_an_unheard_one_is_not() -> None:
    born, found = CachedRun(RUN, TENANT), in_hand()
    born.expect_birth(PLAN, 1.0)
    assert not born.must_load
    in_hand(born).begin_birth(PLAN, TENANT)
    born.win(CommitResult(seq=1, version=1, fence=0, worker=ME), 10, owned=True)
    load(found, 0, ME)
    assert (born.claim_unproven, found.claim_unproven) == (False, True)
    with pytest.raises(IllegalTransition):
        found.expect_birth(PLAN, 2.0)


def test_a_run_that_was_handed_on_and_claimed_again_is_proven_ours() -> None:
    run = in_hand()
    load(run, 3, ME)
    run.prove_claim()
    run.release()
    run.release()  # heard of twice
    assert (run.owned, run.worker, run.fence) == (False, None, 4)
    load(run, 5, ME)
    assert not run.claim_unproven


def test_a_row_that_is_gone_takes_all_knowledge_of_it_along() -> None:
    run = in_hand()
    load(run, 3, ME)
    run.miss(2.0)
    assert (run.exists, run.owned, run.state.seq, run.version, run.run_bytes) == (False, False, 0, 0, 0)


def test_who_waits_with_an_id_that_a_commit_has_stored_repeats_it() -> None:
    run, first, other = CachedRun(RUN, TENANT), submission("a"), submission("b")
    run.submit(first)
    run.submit(other)
    used = CommandRow("a", b"", b"{}")
    run.note_commands({"a": used})
    assert (first.first_use, other.first_use) == (used, None)


def test_after_three_losses_or_a_held_row_the_next_decision_locks_once() -> None:
    run = CachedRun(RUN, TENANT)
    for _ in range(LOSSES_BEFORE_LOCK):
        assert not run.must_lock
        run.lose()
    assert run.must_lock
    run.note_locked()
    assert not run.must_lock
    run.demand_lock()
    assert run.must_lock


def test_conversations_of_agents_count_in_the_cache_until_their_agent_ends() -> None:
    play = Play(AGENT)
    call = {"id": "a", "name": "web.search", "args": "{}", "effect": "read"}
    play.succeed("chat[0]/model", {"text": "", "calls": [call]})
    play.succeed("chat[0]/call[web.search-1]/web.search", ["\u4e00" * 40_000])  # two bytes a character
    cache = Cache(400_000)
    committer = cast(Committer, SimpleNamespace(cache=cache))
    runs = [cache.add(CachedRun(UUID(int=number), TENANT, play.state, play.plan)) for number in range(10)]
    for run in runs:
        assert Committer.talk(committer, run, play.plan, play.state, "chat[1]/model").exchanges[0].size > 80_000
        assert cache.bytes == sum(each.bytes for each in cache) <= 400_000
    assert list(cache) == runs[-4:], "the others have made room"
    play.succeed("chat[1]/model", {"text": "Done.", "calls": []})
    in_hand(run).advance(play.state, None, 1.0)
    cache.weigh(run)
    assert run.bytes == STATE_OVERHEAD_BYTES
