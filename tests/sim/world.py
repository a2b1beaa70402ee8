"""A world around one run: performers that fail and vanish, people who answer twice, operators, and a store that loses.

One move is one command or one thing that happens to the world. Each example draws at most three kinds of fault, begins
with an honest stretch, and is biased to progress; at the end the faults stop and the run must come to its end.
What the engine claims is compared with what the world itself has seen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from hai_flow.definition.plan import AgentTool, AgentTurn, FrontendTool, Plan, Tool
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.decision import Decision
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.pendings.unknown_outcome import find_doubt
from hai_flow.engine.runs.fork import inheritance, obstacle
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.jobs import Continue, open_jobs, wake_at
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.agents import talk
from hai_flow.errors import Rejected
from tests.sim.plans import random_plan
from tests.support.runs import DAY, SECOND, Play
from tests.support.values import require

FAULTS = (
    "stale", "lost_commit", "unknown_outcome", "crash", "late_result", "wrong_answer", "answer_again",
    "early_timer", "late_timer", "operator_pause", "operator_stop", "operator_terminate", "attention", "tight_limits",
)  # fmt: skip
FAULTS_MAX = 5
# What may do something again: a bound reached again, time that goes on, a run that failed or was lost again.
REPEATABLE = (c.Continue, c.TimerFired, c.Retry, c.NeedAttention)
MOVES_MAX = 60
FIRINGS_MAX = 50  # decisions that what is due at one instant may take, in the tightest of bounds
QUIESCENCE_MAX = 600
EVE = c.Principal("user:eve")
TIGHT = Bounds(pure_steps=1, events=80)


class Simulation:
    """One example. `play` raises AssertionError where the engine is wrong."""

    def __init__(self, seed: int, plan: Plan | None = None, *, agents: bool = False) -> None:
        self.random = Random(seed)
        self.plan = plan or random_plan(self.random, agents=agents)
        self.faults = set(self.random.sample(FAULTS, self.random.randint(0, FAULTS_MAX)))
        if Random(f"go back {seed}").random() < 0.3:
            self.faults.add("go_back")
        chance = Random(f"operators {seed}")
        self.faults |= {name for name in ("operator_skip", "fork_anywhere") if chance.random() < 0.15}
        limits = TIGHT if "tight_limits" in self.faults else Bounds()
        if Random(f"short log {seed}").random() < 0.2:
            self.faults.add("short_log")
            chosen = Random(f"how short {seed}")
            limits = msgspec.structs.replace(
                limits, run_events=chosen.choice([40, 80, 150]), waits=chosen.choice([1, 2, 1000])
            )
        run_id = UUID(int=self.random.getrandbits(128), version=4)
        self.play = Play(self.plan, run_id=run_id, limits=limits, start=False, decide=self._decide)
        self.states: list[RunState] = [self.play.state]
        self.gone: list[tuple[str, int]] = []  # attempts whose performer still wants to report
        self.answered: dict[str, c.Answer] = {}
        self.reached: Counter[str] = Counter()

    def _decide(self, *args: Any) -> Decision:
        return decide(*args)

    def run(self) -> None:
        self.play.start()
        self.states.append(self.play.state)
        for _ in range(self.random.randint(0, 6)):
            self.honest()
        moves = [getattr(self, name) for name in sorted(self.faults) if hasattr(self, name)]
        for _ in range(self.random.randint(0, MOVES_MAX)):
            if moves and self.random.random() < 0.5:
                self.random.choice(moves)()
            else:
                self.honest()
            if self.play.state.ended and self.random.random() < 0.3:
                break
        self.come_to_rest()
        self.look_back()

    # --- sending ----------------------------------------------------------------------------------------------------

    def send(self, command: c.Command) -> Decision | None:
        """The decision that was committed, or None where the command was refused or got lost."""
        play = self.play
        if "stale" in self.faults and self.random.random() < 0.3:
            self._decide_on_old_state(command)
        if "lost_commit" in self.faults and self.random.random() < 0.2:
            self.reached["lost_commit"] += 1
            return None
        before = play.state
        decision = self._committed(command)
        if decision is not None and decision.events:
            self.states.append(play.state)
            closed = {*before.attempts.items()} - {*play.state.attempts.items()}
            self.gone += sorted(closed)
        if "unknown_outcome" in self.faults and decision is not None and self.random.random() < 0.2:
            self.reached["unknown_outcome"] += 1
            self._send_again(command)
        return decision

    def _committed(self, command: c.Command) -> Decision | None:
        try:
            return self.play.do(command)
        except Rejected as rejected:
            self.reached[rejected.code] += 1
            return None

    def _decide_on_old_state(self, command: c.Command) -> None:
        """A process that has an older state in memory decides: nothing of that may show (its commit loses)."""
        old = self.random.choice(self.states[-4:])
        kept = old.seq, old.status
        try:
            self.play._decide(self.plan, old, command, self.play.now, self.play.limits)
        except Rejected:
            self.reached["stale_refusal"] += 1
        assert (old.seq, old.status) == kept
        self.reached["stale"] += 1

    def _send_again(self, command: c.Command) -> None:
        """The client could not know; a repeated command changes nothing that a repetition must not change."""
        again = self._committed(command)
        if again is not None and again.events:
            assert isinstance(command, REPEATABLE), f"{command} was decided twice"
            self.states.append(self.play.state)

    # --- honest moves -----------------------------------------------------------------------------------------------

    def honest(self) -> bool:
        """Something that the world does anyway. False if there is nothing left to do."""
        state = self.play.state
        choices: list[Callable[[], None]] = []
        if Continue() in open_jobs(state):
            choices.append(lambda: self._sent(c.Continue()))
        choices += [lambda p=path, n=number: self.report(p, n) for path, number in sorted(state.attempts.items())]
        choices += [lambda i=id: self.decide_pending(i) for _, id in sorted(state.open_pendings.items())]
        if wake_at(state) is not None:
            choices.append(self.sleep)
        if not choices:
            return False
        self.random.choice(choices)()
        return True

    def _sent(self, command: c.Command) -> None:
        self.send(command)

    def report(self, path: str, attempt: int) -> None:
        self.pass_time(self.random.choice([0, SECOND, 20 * SECOND]))
        if self.play.state.attempts.get(path) != attempt:
            return
        if self.random.random() < 0.85:
            verb = resolve_step(self.plan, path).verb
            output = self.answer(path, verb) if isinstance(verb, AgentTurn) else {"n": self.random.randint(0, 9)}
            decision = self.send(c.StepSucceeded(path=path, attempt=attempt, output=output))
            if decision is not None:
                finished = [event for event in decision.events if isinstance(event, e.StepFinished)]
                assert [event.output for event in finished if event.path == path] == [output], "a result got lost"
        else:
            code = self.random.choice(["tool.failed", "tool.unavailable", "tool.invalid_result"])
            retry_after = self.random.choice([None, None, 7_000])
            self.send(c.StepFailed(path=path, attempt=attempt, code=code, message="No.", retry_after=retry_after))

    def answer(self, path: str, turn: AgentTurn) -> dict[str, Any]:
        """What a model answers; every talk of it up to here can be put together."""
        known = talk(self.plan, self.play.state, path)
        for exchange in known.exchanges:
            assert [id for id, _ in exchange.results] == [call["id"] for call in exchange.answer["calls"]]
        if len(known.exchanges) > 1 and self.random.random() < 0.2:
            self.reached["summary"] += 1
            return {"summary": "So it was.", "through": known.exchanges[-1].number}
        calls = []
        for number in range(self.random.choice([0, 0, 1, 2, 3])):
            name, tool = self.random.choice(turn.tools)
            args = {"task": "Do it."} if isinstance(tool, AgentTool) else {}
            call = {"id": f"c{number}", "name": name, "args": json.dumps(args), "effect": tool_effect(tool)}
            if self.random.random() < 0.1:
                call = {**call, "name": "nothing", "args": "{", "fault": "there is no tool 'nothing'"}
            calls.append(call)
        self.reached["answer.calls" if calls else "answer"] += 1
        return {"text": "Well.", "calls": calls}

    def decide_pending(self, id: str) -> None:
        given = c.Answer(answers=(self.right_answer(id),), by=self.play.decider(id))
        decision = self.send(given)
        if decision is not None:
            assert self.play.state.pendings[id].status not in ("open", "voided"), "an accepted answer is not recorded"
            self.answered[id] = given

    def right_answer(self, id: str) -> c.PendingAnswer:
        kind = self.play.state.pendings[id].opened.kind
        spelled: list[dict[str, Any]]
        if kind == "doubt":
            spelled = [{"decision": "happened", "result": {"n": 1}}, {"decision": "again"}, {"decision": "fail"}]
        elif kind in ("approve", "gate"):
            spelled = [{"decision": "approve"}, {"content": "true"}, {"content": '{"approved": false}'}]
            spelled += [{"decision": "approve", "reason": "fine"}, {"decision": "reject", "reason": "no"}]
        elif kind == "ask":
            spelled = [{"values": {"n": self.random.randint(0, 9)}}, {"content": '{"n": 3}'}]
        else:
            spelled = [{"result": self.random.randint(0, 9)}, {"content": "4"}, {"error": "can't"}]
        return c.PendingAnswer(id=id, **self.random.choice(spelled))

    def sleep(self) -> None:
        """Sleep until the run wants to be looked at."""
        due = require(wake_at(self.play.state))
        self.pass_time(max(0, due - self.play.now) + self.random.choice([0, 1, SECOND]))

    def pass_time(self, ms: int) -> None:
        """Time passes; the sweeper looks after what became due, unless all workers are down for a while. What is due
        does not stay due."""
        self.play.now += ms
        if "late_timer" in self.faults and self.random.random() < 0.5:
            self.reached["late_timer"] += 1
            return
        lossy = "lost_commit" in self.faults
        for _ in range(FIRINGS_MAX):
            due = wake_at(self.play.state)
            if due is None or due > self.play.now:
                return
            fired = self.send(c.TimerFired())
            assert fired is not None or lossy, "a timer is due, and the run says that it is early"
        assert lossy, "what was due is due still"

    # --- faults -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """A process dies with everything it performs."""
        for path, number in sorted(self.play.state.attempts.items()):
            if self.play.state.attempts.get(path) == number:
                self.send(c.StepLost(path=path, attempt=number))
                self.reached["crash"] += 1

    def late_result(self) -> None:
        """A performer that was given up reports all the same."""
        state = self.play.state
        late = [
            (path, number)
            for path, number in self.gone
            if state.attempts.get(path) != number and find_doubt(state, path, number) is None
        ]
        if late:
            path, number = self.random.choice(late)
            self._must_be_refused(c.StepSucceeded(path=path, attempt=number, output="late"), 409)
            self.reached["late_result"] += 1

    def wrong_answer(self) -> None:
        known = sorted(self.play.state.open_pendings.values())
        if known:
            id = self.random.choice(known)
            self._must_be_refused(
                c.Answer(answers=(c.PendingAnswer(id=id, content='{"x": [1]}'),), by=self.play.decider(id)), 422, 410
            )  # 410: a paused run has not noticed yet that the deadline has passed
        strange = c.PendingAnswer(id="call_aaaaaaaaaaaaaaaaaaaaaaaaaa_0", content="true")
        self._must_be_refused(c.Answer(answers=(strange,), by=EVE), 404)
        self.reached["wrong_answer"] += 1

    def answer_again(self) -> None:
        """The same answer is already so; another one is refused, whatever became of the pending."""
        closed = [id for id, pending in self.play.state.pendings.items() if pending.status != "open"]
        if not closed:
            return
        id = self.random.choice(closed)
        status = self.play.state.pendings[id].status
        self.reached["answer_again"] += 1
        first = self.answered.get(id)
        if first is not None:
            same = self.play.do(first)
            assert same.already, "the same answer again was taken for a new one"
        kind = self.play.state.pendings[id].opened.kind
        choice: dict[str, Any] = {"decision": "fail" if kind == "doubt" else "approve", "reason": "other"}
        other: dict[str, dict[str, Any]] = {
            **dict.fromkeys(("approve", "gate", "doubt"), choice),
            "ask": {"values": {"n": 77}},
        }
        given = c.PendingAnswer(id=id, **other.get(kind, {"result": 77}))
        self._must_be_refused(c.Answer(answers=(given,), by=EVE), 410 if status == "expired" else 409)

    def early_timer(self) -> None:
        due = wake_at(self.play.state)
        if due is None or due > self.play.now:
            self._must_be_refused(c.TimerFired(), 409)
            self.reached["early_timer"] += 1

    def operator_pause(self) -> None:
        if self.play.status == "paused" and self.random.random() < 0.6:
            self.send(c.Resume(by="user:op"))
        else:
            self.send(c.Pause(by="user:op", reason="a look"))
        self.reached["operator_pause"] += 1

    def operator_stop(self) -> None:
        likely = 0.9 if self.play.state.undoables else 0.05  # the worst moment is when there is something to undo
        if self.random.random() < likely:
            self.send(c.Stop(by="user:op"))
            self.reached["operator_stop"] += 1

    def operator_terminate(self) -> None:
        if self.random.random() < 0.25:
            self.send(c.Terminate(by="user:op"))
            self.reached["operator_terminate"] += 1

    def operator_skip(self) -> None:
        """An operator skips a step at which the run stands."""
        state = self.play.state
        standing = sorted({*state.ready, *state.open_pendings, *(timer.path for timer in state.timers)} - {""})
        failed = [path for path, step in sorted(state.steps.items()) if path and step.outcome == "failed"]
        if not (standing or failed):
            return
        path = self.random.choice(standing or failed)
        decision = self.send(c.Skip(by="user:op", path=path, output=None))
        if decision is not None and decision.events:
            assert path not in self.play.state.attempts or path in self.play.state.ready, f"{path} goes on"
            self.reached["operator_skip"] += 1

    def fork_anywhere(self) -> None:
        """An operator goes back to any moment at rest, and has the run go on from there: a fork does."""
        play = self.play
        if play.status == "stopping" or len(play.events) > 200 or self.random.random() < 0.7:
            return
        places, state = [], RunState(str(play.run_id))
        for seq, event in enumerate(play.events, 1):
            state = evolve(state, event)
            if obstacle(self.plan, state, play.following(seq)) is None:
                places.append(state)
        if not places:
            return
        there = self.random.choice(places[-20:])
        nobody = c.Answer(answers=(), by=c.Principal(there.requester))
        try:
            fork = play.forked(there.seq, nobody, UUID(int=self.random.getrandbits(128), version=4))
        except Rejected as rejected:
            self.reached[rejected.code] += 1
            return
        if self._left(there):
            self.play, self.states, self.gone, self.answered = fork, [fork.state], [], {}
            self.reached["fork_anywhere"] += 1

    def go_back(self) -> None:
        """The thread goes on from where the run waited before, with another answer: a fork does, the run is left."""
        play = self.play
        at = [state for state in self.states if state.status == "waiting" and state.open_pendings]
        if not at or play.status == "stopping" or self.random.random() < 0.5:
            return
        there = self.random.choice(at[-8:])
        id = self.random.choice(sorted(there.open_pendings.values()))
        given = c.Answer(answers=(self.right_answer(id),), by=play.decider(id))
        run_id = UUID(int=self.random.getrandbits(128), version=4)
        try:
            fork = play.forked(there.seq, given, run_id)
        except Rejected as rejected:
            self.reached[rejected.code] += 1
            return
        if not self._left(there):
            return
        self.play, self.states, self.gone, self.answered = fork, [fork.state], [], {}
        self.reached["go_back"] += 1

    def _left(self, there: RunState) -> bool:
        """The run ends, and undoes and cleans up what the fork has not taken over, nothing else. False where a timer
        that is late has ended it before: then nobody can leave it any more."""
        play, faults = self.play, self.faults
        if play.state.ended:
            return True
        before = len(play.log)
        try:
            play.leave(there)
        except Rejected:
            if not self._due():
                raise
            return False
        self.come_to_rest()
        self.faults = faults
        inherited = require(inheritance(there))
        for event in (event for batch in play.log[before:] for event in batch):
            if isinstance(event, e.StepUndone):
                assert event.path not in there.undoables, f"{event.path} is undone, with which the fork goes on"
            elif isinstance(event, e.HandlerStarted | e.StepStopped) and event.handler == "~finally" and event.ready:
                turn = play.state.steps[event.path].turn  # 0: it failed before it began
                shared = not event.path or event.path in inherited.steps or 0 < turn <= inherited.turn
                assert not shared, f"{event.path!r} is cleaned up, in which the fork goes on"
        return True

    def attention(self) -> None:
        if self.random.random() < 0.3:
            self.send(c.NeedAttention(reason="the database refused it"))
            self.reached["attention"] += 1
        if self.play.status in ("failed", "needs_attention"):
            self.send(c.Retry(by="user:op"))
            self.reached["retry"] += 1

    def _must_be_refused(self, command: c.Command, *statuses: int) -> None:
        before = self.play.state
        due = self._due()
        refused = self._refusal(command)
        assert refused is not None, f"{command} was not refused"
        assert refused.status in statuses or due, refused.detail
        assert self.play.state is before or due, "what is refused has changed something"

    def _due(self) -> bool:
        """Whether a timer is late, which counts as fired before any command: who is refused may be told of that."""
        due = wake_at(self.play.state)
        return due is not None and due <= self.play.now

    def _refusal(self, command: c.Command) -> Rejected | None:
        try:
            self.play.do(command)
        except Rejected as rejected:
            return rejected
        return None

    # --- the end ----------------------------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """The faults stop. Whoever is asked answers, whoever performs reports: the run must end."""
        self.faults -= {"lost_commit", "stale", "unknown_outcome", "late_timer"}
        for _ in range(QUIESCENCE_MAX):
            if self.play.status == "paused":
                self.play.resume()
                self.states.append(self.play.state)
            elif self.play.status == "needs_attention":
                self.play.retry()
                self.states.append(self.play.state)
            elif self.play.state.ended:
                self.reached["end." + self.play.status] += 1
                if self.play.state.error is not None and self.play.state.error.code.startswith("limit."):
                    self.reached[self.play.state.error.code] += 1
                return
            elif not self.honest():
                raise AssertionError(f"the run is {self.play.status}, and nothing can move it")
        raise AssertionError(f"the run is {self.play.status} after {QUIESCENCE_MAX} moves")

    def look_back(self) -> None:
        """The log alone gives every state there ever was, and the commands decide the same again."""
        assert self.play.now < self.play.state.started_at + 400 * DAY
        self.play.replayed()


def tool_effect(tool: Tool) -> str:
    """As the runner of the tool would say."""
    return "read" if isinstance(tool, FrontendTool) else tool.effect or "write"


def simulate(seed: int, *, agents: bool = False) -> Counter[str]:
    """One example; what it reached. An AssertionError names the seed."""
    simulation = Simulation(seed, agents=agents)
    try:
        simulation.run()
    except Exception as error:
        more = " --agents" if agents else ""
        error.add_note(f"python -m tests.sim --seed {seed} --runs 1{more}   (faults: {sorted(simulation.faults)})")
        raise
    return simulation.reached
