"""Decides a recorded run again under another plan, with nothing performed. `Recording` reads inputs, answers and
results off the log; `RunRehearsal` gives each to the new plan as soon as something waits for it, at the recorded times
as long as the run goes the recorded way; behind the first difference they take as long as they took. `Trace` notes the
path of a run: steps, and the questions as people are shown them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hai_flow.definition import paths
from hai_flow.definition.diff import diff, to_plain
from hai_flow.definition.plan import AgentTurn, Plan, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decide import decide
from hai_flow.engine.draft import DecisionContext
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.pendings.unknown_outcome import find_doubt
from hai_flow.engine.runs.migrate import apply_move, examine
from hai_flow.engine.runs.replay import guess_command, list_recorded_freezes, list_recorded_sources, match_commands
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.engine.state.jobs import is_due, next_ready, next_timer
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.held_steps import Freeze
from hai_flow.errors import Rejected

ROUNDS_MAX: Final = 1_000  # decisions of one run in a row that nothing recorded asks for
QUESTIONS: Final = frozenset({"ask", "approve", "gate"})
DEPARTURES: Final = (e.Forked, e.Migrated)
"""Behind these events a run goes on from a state to which its own inputs, or its plan, did not lead."""
_BEGINNINGS: Final = (e.StepStarted, e.StepSkipped, e.PendingOpened, e.IterationStarted)


# --- what is compared -------------------------------------------------------------------------------------------------


class TraceMark(NamedTuple):
    """One thing that a run does at the step `path` ("" is the run): `words` say it, `content` is the rest of it as JSON
    text."""

    path: str
    words: str
    content: str = ""


class Asking(NamedTuple):
    """People are asked at `path`: those of `from_` (selectors), of whom `quorum` have to agree, as its author wrote
    it."""

    path: str
    from_: tuple[str, ...]
    quorum: str = "1"


class Trace:
    def __init__(self) -> None:
        self.marks: list[TraceMark] = []
        self.questions: list[Asking] = []
        self._opened: dict[str, str] = {}  # pending id -> path
        self._digests: set[str] = set()

    def take(self, events: Iterable[e.Event]) -> None:
        for event in events:
            if isinstance(event, e.PendingOpened):
                self._opened[event.id] = event.path
            if isinstance(event, e.PendingOpened | e.PendingEdited | e.PendingRestamped):
                self._digests.add(event.digest)
            mark = self._mark(event)
            if mark is not None:
                self.marks.append(mark)

    def forget(self) -> None:
        """Begin the path here. Questions that are open, and digests, stay known."""
        self.marks.clear()
        self.questions.clear()

    def follow(self, state: RunState, recorded: Trace) -> None:
        """Begin the path with a run in `state`, of which that trace is another one."""
        self._opened = {id: pending.opened.path for id, pending in state.pendings.items()}
        self._digests = set(recorded._digests)

    def rename(self, rename: Callable[[str], str]) -> Trace:
        """The same with other paths of its steps."""
        copy = Trace()
        copy.marks = [mark._replace(path=rename(mark.path)) for mark in self.marks]
        copy.questions = [question._replace(path=rename(question.path)) for question in self.questions]
        copy._digests = self._digests
        return copy

    def normalize(self, text: str | None) -> str:
        """The text without digests of questions: those are made of the workflow's bytes, too."""
        if text is None or not self._digests:
            return text or ""
        return _DIGEST.sub(lambda match: "" if match[0] in self._digests else match[0], text)

    def _mark(self, event: Any) -> TraceMark | None:
        path: str = getattr(event, "path", None) or ""
        match event:
            case e.StepStarted():
                rest = [self.normalize(event.args), event.case, event.branches, event.keys, event.items]
                return TraceMark(path, f"begins ({event.verb})", self._text(rest))
            case e.AttemptStarted():
                return TraceMark(path, f"begins attempt {event.attempt}")
            case e.StepFinished():
                return TraceMark(path, "finishes", str(event.handler))
            case e.StepSkipped():
                return TraceMark(path, "is skipped", str(event.handler))
            case e.StepFailed():
                return TraceMark(path, f"fails with {event.error.code}", str(event.handler))
            case e.StepRetried():
                return TraceMark(path, f"is tried again behind {event.error.code}")
            case e.StepStopped() | e.StepUndone() | e.HandlerStarted() | e.IterationStarted() | e.StepReopened():
                return TraceMark(path, _WORDS[type(event)], getattr(event, "handler", None) or "")
            case e.IterationEnded():
                return TraceMark(path, event.status)
            case e.SignalsAwaited():
                return TraceMark(path, f"waits for {', '.join(event.types)}")
            case e.SignalReceived():
                return TraceMark(path, f"takes {event.name}", event.id)
            case e.PendingOpened():
                return self._ask(event, path)
            case e.PendingEscalated():
                return TraceMark(path, f"asks {_list_people(_from(event.policy))} next")
            case e.PendingDecided():
                return TraceMark(self._opened.get(event.id, ""), f"is decided: {event.outcome}")
            case e.PendingVoided():
                return TraceMark(self._opened.get(event.id, ""), "needs no answer any more")
            case e.RunFinished():
                return TraceMark("", "finishes", self._text(event.output))
            case e.RunFailed():
                return TraceMark("", f"fails with {event.error.code}")
            case e.RunStopped():
                return TraceMark("", "is stopped")
        return None

    def _ask(self, event: e.PendingOpened, path: str) -> TraceMark:
        policy: Any = event.policy or {}
        rules = [policy.get(name) for name in ("exclude", "quorum", "pick", "reject_when", "edit", "veto", "reasons")]
        fields = [event.title, event.message, event.tool, event.args, event.evidence, event.schema, event.options]
        if event.kind in QUESTIONS:
            quorum = policy.get("quorum", 1)
            text = quorum if isinstance(quorum, str) else msgspec.json.encode(quorum, order="sorted").decode()
            self.questions.append(Asking(path, _from(policy), text))
        asks = "calls a frontend" if event.kind == "tool" else f"asks {_list_people(_from(policy))}"
        return TraceMark(path, asks, self._text([event.kind, rules, fields]))

    def _text(self, content: Any) -> str:
        return self.normalize(msgspec.json.encode(content, order="deterministic").decode())


def _from(policy: Any) -> tuple[str, ...]:
    return tuple((policy or {}).get("from") or ())


def _list_people(selectors: Sequence[str]) -> str:
    return ", ".join(selectors) or "people"


_DIGEST: Final = re.compile(r"\b[0-9a-f]{64}\b")
_WORDS: Final[Mapping[type[e.Event], str]] = {
    e.StepStopped: "is stopped",
    e.StepUndone: "is undone",
    e.HandlerStarted: "goes on in a handler",
    e.IterationStarted: "begins",
    e.StepReopened: "begins once more",
}


# --- what was recorded ------------------------------------------------------------------------------------------------


class Input(NamedTuple):
    """A command of the log, decided at `now` for a run in `state`, whose log had `log_bytes`. `since`: when that began
    for which it is an outcome or an answer (ms since 1970). `freezes` are those that held steps then;
    `held_elsewhere` as in `decide`."""

    command: c.Command
    now: int
    state: RunState
    log_bytes: int
    since: int
    freezes: Sequence[Freeze] = ()
    held_elsewhere: bool = False


def has_departure(events: Iterable[e.Event]) -> bool:
    """Whether the run departs there from what its inputs and its plan led to."""
    return any(isinstance(event, DEPARTURES) for event in events)


class Recording:
    """The inputs of one run: give it the commits of the log in order. `exact`: each was read off the log in full.
    Else decide them again under the plan that the run had, to see whether they lead where the log does."""

    def __init__(self, run_id: str, plan: Plan, limits: Bounds = DEFAULT_BOUNDS) -> None:
        self.inputs: list[Input] = []
        self.trace = Trace()
        self.state = RunState(run_id)
        self.exact = True
        self.departure: Literal["forked", "migrated"] = "forked"  # behind which it begins, where it has an origin
        self.origin: RunState | None = None  # where the inputs begin, if not with the start of the run
        self.sources: dict[str, str] = {}  # of the tools behind questions, as who decided knew them, by path
        self._plan = plan
        self._limits = limits
        self._begun: dict[str, int] = {}
        self._bytes = self._decided_at = 0

    def add(self, events: Sequence[e.Event], size: int, *, decides: bool) -> None:
        """The next commit, of `size` bytes. `decides`: it is a decision, not only streamed text."""
        done = 0
        for path, source in list_recorded_sources(events).items():
            self.sources.setdefault(path, source)
        if decides:
            for match in match_commands(
                self._plan, self.state, events, self._bytes, self._limits, known_at=self._decided_at
            ):
                if match.command is not None:
                    freezes = list_recorded_freezes(match.state, events[done:])
                    self._keep(match.command, match.now, match.state, freezes, match.held_elsewhere)
                note_attempts(self._begun, match.events)
                done += len(match.events)
        before = fold(self.state, events[:done])
        self.state = fold(before, events[done:])
        self.trace.take(events)
        self._bytes += size
        if decides:
            self._decided_at = self.state.at
            if done < len(events):
                self.exact = False
                guess = guess_command(self._plan, before, events[done:], self._limits)
                if guess is not None:
                    self._keep(*guess, before)
        note_attempts(self._begun, events[done:])

    def begin(self, commits: Sequence[tuple[Sequence[e.Event], int]]) -> bool:
        """Begin behind the fork or the migration in the last of these commits (each with its bytes), as far as that
        decided what the plan says: what followed from it in the same commit is the first input. False: that can't be
        taken apart."""
        for events, size in commits[:-1]:
            self.state = fold(self.state, events)
            self.trace.take(events)
            note_attempts(self._begun, events)
            self._bytes += size
        events, size = commits[-1]
        last = max(n for n, event in enumerate(events) if isinstance(event, DEPARTURES)) + 1
        self.departure = "migrated" if isinstance(events[last - 1], e.Migrated) else "forked"
        for end in range(last, len(events) + 1):
            state, rest = fold(self.state, events[:end]), events[end:]
            matches = list(match_commands(self._plan, state, rest, self._bytes, self._limits))
            if sum(len(match.events) for match in matches) == len(rest):
                break
            if isinstance(events[end], _BEGINNINGS):
                return False
        self.trace.take(events[:end])
        self.trace.forget()
        self.origin = self.state = state
        note_attempts(self._begun, events[:end])
        self._decided_at = state.at
        if rest:
            self.add(rest, 0, decides=True)
        self._bytes += size
        return True

    def _keep(
        self, command: c.Command, now: int, state: RunState, freezes: Sequence[Freeze] = (), elsewhere: bool = False
    ) -> None:
        since = now
        if isinstance(command, _OUTCOMES):
            since = self._begun.get(command.path, now)
        elif isinstance(command, c.Answer):
            opened = [state.pendings[each.id].opened.at for each in command.answers if each.id in state.pendings]
            since = max(opened, default=now)
        self.inputs.append(Input(command, now, state, self._bytes, since, freezes, elsewhere))


def note_attempts(begun: dict[str, int], events: Iterable[e.Event]) -> None:
    """Note when the last attempt of each step began."""
    for event in events:
        if isinstance(event, e.AttemptStarted) or (isinstance(event, e.StepStarted) and event.attempt):
            begun[event.path] = event.at


# --- which effect is which --------------------------------------------------------------------------------------------


class Pairing:
    """The steps of one plan as those of another: `rename` gives the new path of an old one."""

    def __init__(self, old: Plan, new: Plan) -> None:
        self.old = old
        self.new = new
        self.paths = {was: now for was, now in diff(old, new).same.items() if was != now}
        self._same: dict[tuple[str, str], bool] = {}

    def rename(self, path: str) -> str:
        """The new path of a step, a list or an iteration."""
        return paths.rename_path(path, self.paths) if self.paths and path else path

    def is_same_effect(self, was: str, now: str) -> bool:
        """Whether both steps perform the same, apart from their arguments."""
        key = paths.plan_path(was), paths.plan_path(now)
        if key not in self._same:
            before, after = self.old.steps.get(key[0]), self.new.steps.get(key[1])
            self._same[key] = (
                before is not None
                and after is not None
                and _describe_effect(self.old, before) == _describe_effect(self.new, after)
            )
        return self._same[key]


def _describe_effect(plan: Plan, step: Step) -> bytes:
    """What an effect performs: its tool, its model, its child. Not how its answer is shown."""
    plain: Any = to_plain(step.verb)
    parts = [step.verb_name, {key: value for key, value in plain.items() if key not in ("with", "stream", "into")}]
    if isinstance(step.verb, AgentTurn):
        parts.append(to_plain(plan.steps[paths.loop_of(step.parent)].verb))
    return msgspec.json.encode(parts, order="deterministic", enc_hook=repr)


# --- the rehearsal ----------------------------------------------------------------------------------------------------


def move_origin(origin: RunState, pairing: Pairing) -> tuple[RunState | None, str]:
    """The state in which the run would have begun under the new plan, or why it could not."""
    if pairing.old is pairing.new or pairing.old.sha256 == pairing.new.sha256:
        return origin, ""
    resting = msgspec.structs.replace(origin, status="waiting")
    migration = examine(pairing.old, pairing.new, resting, pairing.paths, origin.at)
    if migration.obstacles:
        return None, migration.obstacles[0].message
    moved = apply_move(pairing.new, resting, migration, origin.at)
    return msgspec.structs.replace(moved, status=origin.status), ""


class RunRehearsal:
    """One run under the new plan of the pairing. `recorded` is its trace under the old one, with the new paths.

    `state` is where it stands then. `refused` says of the steps whose recorded answer or result can't be used why not;
    "" is the start."""

    def __init__(
        self,
        pairing: Pairing,
        run_id: str,
        recorded: Trace,
        limits: Bounds = DEFAULT_BOUNDS,
        sources: Mapping[str, str] = MappingProxyType({}),
        origin: RunState | None = None,
    ) -> None:
        """`sources`: as of `Recording`. `origin`: where it begins, under the new plan; None: with its start."""
        self.state = RunState(run_id) if origin is None else origin
        self._sources = {pairing.rename(path): source for path, source in sources.items()}
        self.trace = Trace()
        if origin is not None:
            self.trace.follow(origin, recorded)
        self.refused: dict[str, str] = {}
        self._pairing = pairing
        self._plan = pairing.new
        self._recorded = recorded
        self._limits = limits
        self._agreed = 0  # so many marks are the recorded ones
        self._freezes: Sequence[Freeze] = ()
        self._held_elsewhere = False
        self._begun: dict[str, int] = {}
        self._coming: list[Input] = []  # what was not used yet, in the recorded order
        self._early: list[Input] = []  # of that, what nothing waited for at its time

    def play(self, inputs: Sequence[Input], end: RunState) -> None:
        """Decide all inputs, and what follows of itself. `end` is where the recorded run stands."""
        self._coming = list(inputs)
        last = end.at
        while self._coming and "" not in self.refused:
            if self.diverged:
                self._freezes, self._held_elsewhere = (), False
                self._go_on()
                self._reply(self._coming[0].now)
                if not self._coming:
                    break
            each = self._coming.pop(0)
            self._freezes = () if self.diverged else each.freezes
            self._held_elsewhere = not self.diverged and each.held_elsewhere
            last = each.now
            if (self.diverged and isinstance(each.command, _REPLIES)) or not self._apply(each, each.now):
                self._early.append(each)
            elif self._early:
                self._use_early(each.now)
        self._freezes, self._held_elsewhere = (), False
        if self.diverged and "" not in self.refused:
            self._end(max(last, end.at), end)

    @property
    def diverged(self) -> bool:
        """Whether the run has left the recorded path."""
        return self._agreed < len(self.trace.marks)

    def _end(self, last: int, end: RunState) -> None:
        """Let the run go on to where it needs people, or a result that nobody has recorded. Waits pass, those of a run
        that has not ended only up to where its record does."""
        for _ in range(ROUNDS_MAX):
            self._go_on()
            timer = next_timer(self.state)
            if self._reply(None if timer is None else timer.due) or self._use_early(last):
                continue
            if self.state.ended or timer is None or timer.kind not in ("wait", "retry"):
                break
            if (not end.ended and timer.due > end.at) or not self._decide(c.TimerFired(), timer.due):
                break
        self._reply(None)

    def _go_on(self) -> None:
        for _ in range(ROUNDS_MAX):
            if self.state.status not in ("running", "stopping"):
                return
            if next_ready(self.state) is None and not self.state.held:
                return
            if not self._decide(c.Continue(), self.state.at):
                return

    def _reply(self, until: int | None) -> bool:
        """Give the run the answers and results that would have come by then, the first first. Whether there are any."""
        done = False
        for _ in range(ROUNDS_MAX):
            due = [
                (at, number, store)
                for store in (self._early, self._coming)
                for number, each in enumerate(store)
                if (at := self._find_reply_time(each)) is not None and (until is None or at <= until)
            ]
            for at, number, store in sorted(due, key=lambda entry: entry[:2]):
                if is_due(self.state, at) and self._decide(c.TimerFired(), at):
                    break  # a time-out or a deadline comes first
                if self._apply(store[number], max(at, self.state.at)):
                    del store[number]
                    break
            else:
                return done
            done = True
            self._go_on()
        return done

    def _find_reply_time(self, each: Input) -> int | None:
        """When the answer, or the result, would have come; None: nothing waits for it."""
        command = each.command
        if isinstance(command, _OUTCOMES):
            path = self._pairing.rename(command.path)
            began_at = self._begun.get(path) if path in self.state.attempts else None
        elif isinstance(command, c.Answer):
            opened = [self.state.pendings[id].opened.at for id in self._find_questions(each, command).values()]
            began_at = max(opened, default=None)
        else:
            return None
        return None if began_at is None else began_at + each.now - each.since

    def _find_questions(self, each: Input, command: c.Answer) -> dict[str, str]:
        """The open questions for these answers: id of the recorded one -> id of the open one."""
        questions: dict[str, str] = {}
        for answer in command.answers:
            pending = each.state.pendings.get(answer.id)
            id = None if pending is None else self.state.open_pendings.get(self._pairing.rename(pending.opened.path))
            if pending is not None and id is not None and self._is_same_question(each, pending.opened, id):
                questions[answer.id] = id
        return questions

    def _use_early(self, now: int) -> bool:
        """Give the run whatever came early and fits now. Whether there is any."""
        done = False
        for _ in range(ROUNDS_MAX):
            for number, each in enumerate(self._early):
                if not (self.diverged and isinstance(each.command, _REPLIES)) and self._apply(
                    each, max(self.state.at, now)
                ):
                    del self._early[number]
                    done = True
                    break
            else:
                return done
        return done

    def _decide(self, command: c.Command, now: int, log_bytes: int = 0) -> bool:
        """Whether anything came of it. Raises `Rejected`."""
        done = False
        for _ in range(ROUNDS_MAX):
            context = DecisionContext(self._freezes, sources=self._source_of)
            decision = decide(
                self._plan, self.state, command, now, self._limits, log_bytes, self._held_elsewhere, context
            )
            if not decision.events:
                return done
            self.state, done = decision.state, True
            self.trace.take(decision.events)
            note_attempts(self._begun, decision.events)
            self._agree()
            if not decision.undecided:
                return True
        return done

    def _source_of(self, plan: Plan, step: Step) -> str | None:
        return self._sources.get(step.path)

    def _agree(self) -> None:
        marks, recorded = self.trace.marks, self._recorded.marks
        while self._agreed < min(len(marks), len(recorded)) and marks[self._agreed] == recorded[self._agreed]:
            self._agreed += 1

    def _apply(self, each: Input, now: int) -> bool:
        """Give the input to the run. False: nothing waits for it yet."""
        if isinstance(each.command, c.Answer):
            return self._answer(each, each.command, now)
        command = self._translate(each, late=now != each.now)
        if command is None:
            return False
        try:
            done = self._decide(command, now, each.log_bytes)
        except Rejected as refusal:
            if isinstance(command, c.Start):
                self.refused[""] = _explain(refusal)
            return not isinstance(command, c.Signal)
        return done or not isinstance(command, c.Signal)

    def _translate(self, each: Input, *, late: bool) -> c.Command | None:
        """The command as it is for the run now; None: nothing waits for it."""
        command = each.command
        if isinstance(command, _OUTCOMES):
            path = self._pairing.rename(command.path)
            attempt = self._find_attempt(path)
            below = isinstance(command, _OF_CHILDREN)
            if attempt is None or below != (path in self.state.children) or not self._fits(each, command.path, path):
                return None
            fields: dict[str, Any] = {"path": path, "attempt": attempt}
            if late and isinstance(command, c.StepSucceeded | c.StepFailed):
                fields["ended_at"] = None
            if isinstance(command, c.ChildEnded):
                fields["run_id"] = self.state.children[path]
            return msgspec.structs.replace(command, **fields)
        if isinstance(command, c.Skip):
            return msgspec.structs.replace(command, path=self._pairing.rename(command.path))
        return command

    def _find_attempt(self, path: str) -> int | None:
        if path in self.state.attempts or path not in self.state.steps:
            return self.state.attempts.get(path)
        attempt = self.state.steps[path].attempt
        return None if find_doubt(self.state, path, attempt) is None else attempt

    def _fits(self, each: Input, was: str, now: str) -> bool:
        """Whether the recorded outcome is one of the effect that the run performs now."""
        before, after = each.state.steps.get(was), self.state.steps[now]
        if before is None:
            return False
        if not self._pairing.is_same_effect(was, now):
            self.refused[now] = f"{now} calls something else than was recorded"
        elif self._recorded.normalize(before.args) != self.trace.normalize(after.args):
            self.refused[now] = f"{now} has other arguments than were recorded"
        else:
            self.refused.pop(now, None)
            return True
        return False

    def _answer(self, each: Input, command: c.Answer, now: int) -> bool:
        """Give those answers whose questions are open; the others are kept."""
        questions = self._find_questions(each, command)
        if not questions:
            return False
        answers = [msgspec.structs.replace(a, id=questions[a.id]) for a in command.answers if a.id in questions]
        places = [self.state.pendings[answer.id].opened.path for answer in answers]
        try:
            done = self._decide(msgspec.structs.replace(command, answers=tuple(answers)), now, each.log_bytes)
        except Rejected as refusal:
            for path in places:
                self.refused[path] = f"the recorded answer to {path} would be refused: {_explain(refusal)}"
            return False
        for path in places:
            self.refused.pop(path, None)
        rest = tuple(answer for answer in command.answers if answer.id not in questions)
        if done and rest:
            self._early.append(each._replace(command=msgspec.structs.replace(command, answers=rest)))
        return True

    def _is_same_question(self, each: Input, opened: e.PendingOpened, id: str) -> bool:
        """Whether the open question is the recorded one; of a frontend's call, whether it is the same call."""
        now = self.state.pendings[id].opened
        return now.kind == opened.kind and (opened.kind != "tool" or self._fits(each, opened.path, now.path))


def _explain(refusal: Rejected) -> str:
    faults = [each for each in getattr(refusal, "findings", None) or () if isinstance(each, Mapping)]
    details = "; ".join(str(each["message"]).rstrip(".") for each in faults if each.get("message"))
    return f"{str(refusal).rstrip('.')}{f' ({details})' if details else ''}"


def list_open_effects(state: RunState) -> Iterator[str]:
    """The steps that wait for a result: effects, child runs, and calls of frontends."""
    yield from state.attempts
    for path, id in state.open_pendings.items():
        if state.pendings[id].opened.kind == "tool":
            yield path


_OF_CHILDREN: Final = (c.ChildEnded, c.ChildTold, c.ChildMoved)
_OUTCOMES: Final = (c.StepSucceeded, c.StepFailed, c.StepAsks, c.StepLost, c.GateChecked, *_OF_CHILDREN)
_REPLIES: Final = (*_OUTCOMES, c.Answer)
