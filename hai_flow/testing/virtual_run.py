"""One run without a database: commands go to the real engine, effects to the mocks, and time passes on command.

The work of a worker, a committer and a clock is a loop here: decide, take over the decision, perform its jobs, until
nothing moves by itself any more. Pauses between retries do pass by themselves: a test does not wait for those."""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.definition.paths import plan_path
from hai_flow.definition.people.calendars import Calendars
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.jobs import Continue, open_jobs, wake_at
from hai_flow.engine.state.snapshot import decode_state, encode_state
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.wait_for_event import SUBSCRIBE
from hai_flow.testing.failures import CaseFailed
from hai_flow.testing.instances import means, stands_at
from hai_flow.testing.mocks import Mocks
from hai_flow.values import Json

RUN_ID: Final = UUID("01900000-0000-7000-8000-000000000001")
THREAD_ID: Final = "test"
OPERATOR: Final = "user:operator"
VIA: Final = "test"
DECISIONS_MAX: Final = 50_000  # between two entries of a script: more is a run that never comes to rest

_STATUS_AFTER: Final[dict[type[e.Event], str]] = {
    e.StepStarted: "running",
    e.IterationStarted: "running",
    e.StepFinished: "finished",
    e.StepSkipped: "skipped",
    e.StepFailed: "failed",
    e.StepStopped: "stopped",
    e.StepUndone: "undone",
}


class VirtualRun:
    """A run of `plan` on a clock of its own, which begins at `now` (ms since 1970). Methods that send a command raise
    `Rejected` where it is refused, and `CaseFailed` where no mock answers a call."""

    def __init__(self, plan: Plan, mocks: Mocks, now: int, calendars: Calendars | None = None) -> None:
        self.plan = plan
        self._bounds = Bounds(calendars=calendars or {})
        self.mocks = mocks
        self.now = now
        self.state = RunState(str(RUN_ID))
        self.log: list[tuple[e.Event, ...]] = []
        self._begun: list[tuple[str, int]] = []  # attempts in the order in which they began
        self._heard: dict[str, str] = {}  # the outcomes of steps, also of those that the state has forgotten
        self._escalated: Counter[str] = Counter()
        self._signals: list[c.Signal] = []  # everything that was ever sent, oldest first
        self.notices: list[dict[str, Json]] = []  # the notifications that were due, in order
        self._subscribed: list[tuple[str, ...]] = []  # types that steps have begun to wait for, not yet looked up

    # --- commands -------------------------------------------------------------------------------------------------

    def start(
        self,
        requester: str,
        input: Json,
        *,
        trigger: str = "api",
        scheduled_at: int | None = None,
        instigators: tuple[str, ...] = (),
    ) -> None:
        self._do(
            c.Start(
                run_id=RUN_ID,
                thread_id=THREAD_ID,
                requester=requester,
                instigators=instigators,
                input=input,
                trigger=trigger,
                scheduled_at=scheduled_at,
            )
        )

    def answer(self, answer: c.PendingAnswer, by: c.Principal) -> None:
        self._do(c.Answer(answers=(answer,), by=by, via=VIA))

    def signal(self, type: str, data: Json) -> None:
        """Send the run an event from outside. It is kept: a step that begins to wait later finds it
        (docs/language.md#wait-and-wait_for)."""
        sent = c.Signal(id=f"signal-{len(self._signals) + 1}", name=type, data=data, sent_at=self.now)
        self._signals.append(sent)
        self._do(sent)

    def pause(self) -> None:
        self._do(c.Pause(by=OPERATOR))

    def resume(self) -> None:
        self._do(c.Resume(by=OPERATOR))

    def stop(self) -> None:
        self._do(c.Stop(by=OPERATOR))

    def advance(self, duration: int) -> None:
        """Let time pass (ms): everything that falls due happens at its own instant, in order."""
        target = self.now + duration
        while (wake := wake_at(self.state)) is not None and wake <= target:
            self._fire(wake)
            self.settle(until=target)
        self.now = max(self.now, target)

    def restart(self) -> None:
        """Forget everything and read it again from the log, as a process does that takes the run over. Raises
        `CaseFailed` if that makes a difference."""
        again = RunState(str(RUN_ID))
        for batch in self.log:
            again = fold(again, e.decode_events(e.encode_events(batch)))
        snapshot = decode_state(encode_state(self.state))
        for name, other in (("log", again), ("snapshot", snapshot)):
            if other != self.state:
                fields = [f for f in self.state.__struct_fields__ if getattr(self.state, f) != getattr(other, f)]
                raise CaseFailed(
                    f"the restart changes the run: read from its {name}, it differs in {', '.join(fields)}"
                )
        self.state = again

    def settle(self, until: int | None = None) -> None:
        """Go on until the run waits for a person, an event or a timer. The clock moves over pauses between retries, but
        not beyond `until`."""
        for _ in range(DECISIONS_MAX):
            if not self._move(until):
                return
        raise CaseFailed(f"the run has not come to rest after {DECISIONS_MAX} decisions; does a `repeat` never end?")

    def _move(self, until: int | None) -> bool:
        """Perform the next step of the run that needs no command from outside. False if there is none."""
        if Continue() in open_jobs(self.state):
            self._do(c.Continue())
            return True
        unpicked = self._find_unpicked()
        if unpicked is not None:
            self._do(unpicked)
            return True
        if self._subscribed:
            types = self._subscribed.pop(0)
            for sent in self._signals:
                if sent.name in types and not self.state.ended:
                    self._do(sent)
            return True
        attempt = self._next_attempt()
        if attempt is not None:
            self._do(self.mocks.perform(self.state, *attempt, self.now))
            return True
        wake = wake_at(self.state)
        if wake is None or not self._only_retries_before(wake) or (until is not None and wake > until):
            return False
        self._fire(wake)
        return True

    def _find_unpicked(self) -> c.PickPeople | None:
        """The pick of the next question that waits for one: a test has no directory, so all whom it asks decide it."""
        for id in self.state.open_pendings.values():
            rules = derive_rules(self.state.pendings[id])
            if rules.pick is not None and rules.picked is None:
                note = "a test picks nobody, so all whom it asks may decide"
                return c.PickPeople(id=id, stages_left=len(rules.escalations), before=None, people=(), note=note)
        return None

    def _only_retries_before(self, wake: int) -> bool:
        """Whether the run waits for a further attempt next, which would be begun then."""
        timers = self.state.timers
        return bool(timers) and timers[0].kind == "retry" and wake <= timers[0].due

    def _next_attempt(self) -> tuple[str, int] | None:
        """The open attempt that began first."""
        while self._begun:
            path, number = self._begun[0]
            if self.state.attempts.get(path) == number:
                return path, number
            del self._begun[0]
        return None

    def _fire(self, wake: int) -> None:
        self.now = max(self.now, wake)
        self._do(c.TimerFired())

    def _do(self, command: c.Command) -> None:
        undecided = True
        while undecided:
            decision = decide(self.plan, self.state, command, self.now, self._bounds)
            self.state, undecided = decision.state, decision.undecided
            if decision.events:
                self.log.append(decision.events)
            for event in decision.events:
                self._note(event)
            self._subscribed += [tuple(sent.body["types"]) for sent in decision.outbox if sent.kind == SUBSCRIBE]

    def _note(self, event: e.Event) -> None:
        if isinstance(event, e.AttemptStarted) or (isinstance(event, e.StepStarted) and event.attempt):
            self._begun.append((event.path, event.attempt))
        if isinstance(event, e.PendingEscalated):
            self._escalated[event.path] += 1
        self._note_notice(event)
        status = event.status if isinstance(event, e.IterationEnded) else _STATUS_AFTER.get(type(event))
        if status is not None:
            path: str = event.path  # type: ignore[attr-defined]
            self._heard.pop(path, None)  # the last one to be heard of stands last
            self._heard[path] = status

    def _note_notice(self, event: e.Event) -> None:
        """The notifications that a question causes; those of a server go over the same channels."""
        if isinstance(event, e.PendingReminded):
            channels, because = event.notify, "reminded"
        elif isinstance(event, e.PendingOpened | e.PendingEscalated) and isinstance(event.policy, dict):
            channels = event.policy.get("notify", ())
            because = "opened" if isinstance(event, e.PendingOpened) else "escalated"
        else:
            return
        self.notices += [{"pending": event.path, "channel": each, "because": because} for each in channels]

    # --- the state ------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> list[str]:
        """The paths of the steps that wait for people, sorted."""
        return sorted(self.state.open_pendings)

    @property
    def said(self) -> list[str]:
        """The messages to the frontend, whole, in the order in which they began. What broke off is none."""
        texts: dict[str, str] = {}
        for event in (event for batch in self.log for event in batch):
            if isinstance(event, e.MessageStarted) and event.kind == "text":
                texts[event.message_id] = ""
            elif isinstance(event, e.MessageChunk) and event.message_id in texts:
                texts[event.message_id] += event.content
            elif isinstance(event, e.MessageEnded) and event.aborted:
                texts.pop(event.message_id, None)
        return list(texts.values())

    @property
    def error(self) -> Json:
        return None if self.state.error is None else msgspec.to_builtins(self.state.error)

    @property
    def event_types(self) -> list[str]:
        return [event.type for batch in self.log for event in batch]

    def asking(self, name: str) -> list[str]:
        """The paths that ask people, or have asked them, and that the name means: those that ask now if any does."""
        paths = {pending.opened.path: None for pending in self.state.pendings.values()}
        meant = [path for path in paths if means(name, path, self.plan.ids)]
        return [path for path in meant if path in self.state.open_pendings] or meant

    def pending_id(self, path: str) -> str | None:
        """The id of the pending that the step has open, or had open last."""
        open_id = self.state.open_pendings.get(path)
        if open_id is not None:
            return open_id
        opened = [id for id, pending in self.state.pendings.items() if pending.opened.path == path]
        return max(opened, key=lambda id: self.state.pendings[id].opened.at, default=None)

    def pending_kind(self, id: str) -> str:
        return self.state.pendings[id].opened.kind

    def escalation_count(self, path: str) -> int:
        """How often the approval at `path` was escalated."""
        return sum(count for each, count in self._escalated.items() if means(path, each, self.plan.ids))

    def step(self, name: str) -> str:
        """The status of the step of that path or id; in a loop, of the instance that was heard of last."""
        inside = stands_at(name, self.plan.ids)
        path = name if name in self._heard or name in self.state.steps else inside
        if "[]" in inside and path == inside:
            meant = (each for each in reversed(self._heard) if means(name, each, self.plan.ids))
            same = (each for each in reversed(self._heard) if name == inside and plan_path(each) == inside)
            path = next(meant, None) or next(same, inside)
        step_state = self.state.steps.get(path)
        return self._heard.get(path, "pending") if step_state is None else step_state.status
