"""For random workflows and what happened to them: a fork that changes nothing decides as the run did; states that are
folded from anywhere are those that were decided on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Final
from uuid import UUID

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.runs.fork import obstacle
from hai_flow.engine.state.jobs import Continue, open_jobs
from hai_flow.engine.state.snapshot import decode_state, encode_state
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.runtime.streams.stream_items import item_of_event
from hai_flow.wire import DIALECTS
from hai_flow.wire.dialects.dialect import Dialect, Profile
from hai_flow.wire.dialects.log import LOG
from tests.sim.world import Simulation
from tests.support.examples import sample
from tests.support.runs import Play

pytestmark = pytest.mark.costly

SEEDS: Final = sample(range(60), 30)
# What a decision says of the flow. Turns, and what hangs on them, are each run's own.
TOLD: Final = (
    e.StepStarted, e.AttemptStarted, e.StepFinished, e.StepSkipped, e.StepFailed, e.StepStopped, e.StepRetried,
    e.StepUndone, e.HandlerStarted, e.IterationStarted, e.IterationEnded, e.BranchEnded, e.PendingOpened,
    e.PendingDecided, e.PendingVoided, e.StateChanged, e.RunFinished, e.RunFailed, e.RunStopped,
)  # fmt: skip
OWN: Final = {"at", "turn", "digest", "deadline", "due", "key"}


def played(seed: int) -> Simulation:
    simulation = Simulation(seed)
    simulation.faults -= {"go_back", "fork_anywhere", "tight_limits", "short_log"}
    simulation.play.limits = type(simulation.play.limits)()
    simulation.run()
    return simulation


def told(events: list[e.Event]) -> list[str]:
    """What the events say of the flow, without what is of one run alone."""
    found = []
    for event in events:
        if isinstance(event, TOLD):
            fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in OWN}
            found.append(re.sub(r"at=\d+|[0-9a-f]{64}", "", repr([event.type, fields])))
    return found


def places(play: Play) -> list[int]:
    """Where the run can be forked with all of it taken over: no children, which begin anew, and no votes, which do not
    count there."""
    found, state = [], RunState(str(play.run_id))
    for seq, event in enumerate(play.events, 1):
        state = fold(state, [event])
        open_votes = any(state.pendings[id].votes for id in state.open_pendings.values())
        if not state.children and not open_votes and obstacle(play.plan, state, play.following(seq)) is None:
            found.append(seq)
    return found


def goes_on(play: Play, seq: int) -> Play:
    """A fork behind the event, to which everything that the run was told since is told, at the same times. It has the
    same id, of which pauses between attempts are made, too."""
    there, n = play.state_at(seq), 0
    fork = Play(play.plan, run_id=play.run_id, start=False)
    fork.now = there.at
    nobody = c.Answer(answers=(), by=c.Principal(there.requester))
    events = tuple(play.events[:seq])
    begin = c.Fork(run_id=play.run_id, of=play.run_id, events=events, answer=nobody, following=play.following(seq))
    fork.do(begin)
    for batch, (command, now) in zip(play.log, play.commands, strict=True):
        n += len(batch)
        if n <= seq or n - len(batch) < seq:
            continue
        while Continue() in open_jobs(fork.state):
            fork.go_on()
        fork.now = now
        try:
            fork.do(command)
        except Rejected:
            if not isinstance(command, c.TimerFired | c.Continue):  # the fork has come further by itself
                raise
    while Continue() in open_jobs(fork.state):
        fork.go_on()
    return fork


def test_a_fork_that_changes_nothing_decides_as_the_run_did() -> None:
    tried = 0
    for seed in SEEDS:
        play = played(seed).play
        choice = Random(seed)
        found = places(play)
        for seq in choice.sample(found, min(3, len(found))):
            fork = goes_on(play, seq)
            was = told(play.events[seq:])
            own = next(n for n, event in enumerate(fork.events) if isinstance(event, e.Forked))
            now = told(fork.events[own:])
            assert now == was, f"seed {seed}, forked behind event {seq}"
            assert (fork.status, fork.output) == (play.status, play.output), f"seed {seed}, behind event {seq}"
            tried += 1
    assert tried > len(SEEDS), "almost nowhere was anything forked"


def test_a_run_whose_fork_does_not_begin_leaves_everything_undone() -> None:
    """Held by the book of `Play`: at the end every `undo` and every `finally` that was owed has run."""
    tried = 0
    for seed in SEEDS:
        found = places(played(seed).play)
        choice = Random(f"taken back {seed}")
        for seq in choice.sample(found, min(3, len(found))):
            simulation = played(seed)
            play = simulation.play
            if play.state.ended:
                play = again(play)
            if play is None or play.state.ended or seq > play.state.seq:
                continue
            play.leave(play.state_at(seq))
            if choice.random() < 0.5:
                finish(play)
            play.take_back()
            finish(play)
            assert play.status in ("stopped", "failed"), f"seed {seed}, forked behind event {seq}"
            tried += 1
    assert tried > len(SEEDS) / 2, "almost nowhere was anything taken back"


def again(play: Play) -> Play | None:
    """The run as it was, up to some moment before its end."""
    found = Play(play.plan, run_id=play.run_id, start=False)
    half = list(zip(play.log, play.commands, strict=True))
    for _, (command, now) in half[: len(half) * 2 // 3]:
        found.now = now
        found.do(command)
    return None if found.state.status in ("new", "queued", "stopping") else found


def finish(play: Play) -> None:
    """Let everything succeed that the run begins, until it has ended."""
    while not play.state.ended:
        if Continue() in open_jobs(play.state):
            play.go_on()
        elif play.open:
            play.succeed(sorted(play.open)[-1])
        else:
            play.now = max(play.now, play.state.timers[0].due)
            play.do(c.TimerFired())


def test_a_fold_that_begins_at_any_snapshot_is_the_fold_of_the_whole_log() -> None:
    for seed in SEEDS:
        play, choice = played(seed).play, Random(f"snapshots {seed}")
        state = RunState(str(play.run_id))
        for seq, event in enumerate(play.events, 1):
            state = fold(state, [event])
            if choice.random() < 0.2:
                kept = decode_state(encode_state(state))
                assert fold(kept, play.events[seq:]) == play.state, f"seed {seed}, snapshot behind event {seq}"


@pytest.mark.parametrize("name", ["log", "agui"])
def test_two_readers_of_a_range_get_the_same_bytes_wherever_they_came_in(name: str) -> None:
    dialect = {"log": LOG, **DIALECTS}[name]
    for seed in SEEDS:
        play, choice = played(seed).play, Random(f"readers {seed}")
        whole = shown(dialect, RunState(str(play.run_id)), play.events)
        for seq in choice.sample(range(1, len(play.events)), min(6, len(play.events) - 1)):
            rest = shown(dialect, play.state_at(seq), play.events[seq:])
            assert rest == whole[seq:], f"seed {seed}: from behind event {seq}"


def shown(dialect: Dialect, start: RunState, events: Sequence[e.Event]) -> list[bytes]:
    """The bytes of each event for a reader who comes in at `start`."""
    encoder = dialect.encoder(Profile(dialect=dialect.name), start)
    run_id = UUID(start.run_id)
    return [
        item_of_event(dialect, encoder.encode(event), seq, run_id).data
        for seq, event in enumerate(events, start.seq + 1)
    ]
