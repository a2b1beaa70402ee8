"""Compares the answers that clients got, and the effects on the world, with the log. `hai-flow verify` compares the log
with itself.

Each rule is a function of `Known` that yields the broken promises that it finds. All are pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import UUID

from hai_flow_client.sse import Parser

from hai_flow.engine import events as e
from hai_flow.engine.state.state import TERMINAL_STATUSES, RunState
from hai_flow.runtime.streams.stream_items import item_of_event
from hai_flow.values import Json
from hai_flow.wire import DIALECTS
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import event_json
from hai_flow.wire.sent_json import dump
from hai_flow_chaos.clients import TICKS
from hai_flow_chaos.history import Answered, Broken, Effect, History, Started


@dataclass(slots=True)
class Run:
    """A run as the database has it in the end."""

    id: str
    status: str
    output: Json
    events: Sequence[e.Event]

    def attempts(self) -> dict[str, set[int]]:
        """The numbers of the attempts that its log begins, by path."""
        found: dict[str, set[int]] = defaultdict(set)
        for event in self.events:
            if isinstance(event, e.StepStarted | e.AttemptStarted) and event.attempt:
                found[event.path].add(event.attempt)
        return found

    def finished(self) -> Counter[str]:
        """How often each step has finished."""
        return Counter(event.path for event in self.events if isinstance(event, e.StepFinished))


@dataclass(slots=True)
class Known:
    """The data that the rules compare. `payments`: the rows that tools have written in their transactions, as (run,
    path)."""

    history: History
    runs: Mapping[str, Run]
    payments: Sequence[tuple[str, str]] = ()
    decided: dict[str, e.PendingDecided] = field(default_factory=dict)
    voided: set[str] = field(default_factory=set)
    votes: dict[str, list[e.VoteCast]] = field(default_factory=lambda: defaultdict(list))
    effects: dict[str, list[Effect]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.effects = self.history.effects_by_key()
        for run in self.runs.values():
            for event in run.events:
                if isinstance(event, e.PendingDecided):
                    self.decided[event.id] = event
                elif isinstance(event, e.PendingVoided):
                    self.voided.add(event.id)
                elif isinstance(event, e.VoteCast):
                    self.votes[event.id].append(event)


def started_runs_are_there(known: Known) -> Iterator[Broken]:
    """No acknowledged start is lost: its run is there, with the input that was sent."""
    for told in known.history.started:
        run = known.runs.get(told.run_id)
        if run is None:
            yield Broken("nothing acknowledged is lost", told.run_id, f"start {told.number} was acknowledged", told.at)
        elif isinstance(run.events[0], e.RunStarted) and run.events[0].input != dict(told.input):
            yield Broken("nothing acknowledged is lost", told.run_id, f"its input is {run.events[0].input}", told.at)


def controls_are_in_the_log(known: Known) -> Iterator[Broken]:
    """No acknowledged stop or pause is lost: each is in the log of its run."""
    kinds: dict[str, type[e.Event]] = {"stop": e.RunStopping, "pause": e.RunPaused}
    for told in known.history.controlled:
        kind, run = kinds.get(told.what), known.runs.get(told.run_id)
        if kind is None or run is None:
            continue
        ended_so = told.what == "stop" and run.status == "stopped"
        if not ended_so and not any(isinstance(event, kind) for event in run.events):
            yield Broken("nothing acknowledged is lost", told.run_id, f"{told.what} was acknowledged", told.at)


def signals_are_heard_once(known: Known) -> Iterator[Broken]:
    """However often an event is sent under one id, a run hears it once."""
    for run in known.runs.values():
        heard = Counter(event.id for event in run.events if isinstance(event, e.SignalReceived))
        for id, times in heard.items():
            if times > 1:
                yield Broken("a signal is heard once", run.id, f"{id!r} was heard {times} times")


def questions_have_one_winner(known: Known) -> Iterator[Broken]:
    """The first valid answer to a question wins: only this answer was accepted, and it is the one in the log."""
    told: dict[str, list[Answered]] = defaultdict(list)
    for answer in known.history.answered:
        if answer.status == 200 and "values" in answer.said:
            told[answer.pending_id].append(answer)
    for pending, answers in told.items():
        winners = {repr(answer.said["values"]) for answer in answers}
        decided = known.decided.get(pending)
        if len(winners) > 1:
            yield Broken("one answer wins", pending, f"these were accepted: {', '.join(sorted(winners))}")
        elif decided is None:
            yield Broken("nothing acknowledged is lost", pending, "an answer was accepted", answers[0].at)
        elif repr(decided.value) not in winners:
            yield Broken("one answer wins", pending, f"{winners} was accepted, the log has {decided.value!r}")


def votes_are_in_the_log(known: Known) -> Iterator[Broken]:
    """An accepted vote is in the log once, as it was given. With `already`, none may be there as well: the question may
    have been decided the same way before the vote came."""
    for answer in known.history.answered:
        if answer.status != 200 or "decision" not in answer.said or answer.by == "operator":
            continue
        cast = [vote for vote in known.votes.get(answer.pending_id, ()) if vote.by == f"user:{answer.by}"]
        if len(cast) > 1 or not (cast or answer.already):
            message = f"{answer.by} voted, and the log has {len(cast)} of their votes"
            yield Broken("a vote counts once", answer.pending_id, message, answer.at)
        elif cast and cast[0].decision != answer.said["decision"]:
            yield Broken("a vote counts once", answer.pending_id, f"{answer.by} said {answer.said}, the log {cast[0]}")


def refusals_are_true(known: Known) -> Iterator[Broken]:
    """An answer is refused as late, or as given before, only where the log says so, too."""
    for answer in known.history.answered:
        true = {
            "pending_decided": answer.pending_id in known.decided,
            "pending_voided": answer.pending_id in known.voided,
            "command_id_reused": True,  # people were asked anew, and have changed their mind under the same key
            "vote_final": any(vote.by == f"user:{answer.by}" for vote in known.votes.get(answer.pending_id, ())),
        }
        if answer.status >= 400 and not true.get(answer.code):
            message = f"{answer.by} is told {answer.status} {answer.code or 'without a code'}"
            yield Broken("a refusal is true", answer.pending_id, message, answer.at)


def effects_have_attempts(known: Known) -> Iterator[Broken]:
    """Each effect has a logged attempt, and each attempt has one effect at most."""
    for key, effects in known.effects.items():
        run_id, _, path = key.partition("/")
        run = known.runs.get(run_id)
        if run is None:
            yield Broken("an effect has an attempt", key, "no run of this key is there", effects[0].at)
            continue
        logged = run.attempts().get(path, set())
        by_attempt = Counter(effect.attempt for effect in effects if effect.attempt)
        for attempt, times in by_attempt.items():
            if attempt not in logged:
                yield Broken("an effect has an attempt", key, f"attempt {attempt} acted, logged are {sorted(logged)}")
            if times > 1:
                yield Broken("an attempt is performed once", key, f"attempt {attempt} acted {times} times")
        if len(effects) > len(logged):
            message = f"it happened {len(effects)} times, by {len(logged)} logged attempts"
            yield Broken("an effect has an attempt", key, message, effects[-1].at)


def nothing_begins_under_a_freeze(known: Known) -> Iterator[Broken]:
    """From two seconds after a freeze until the thaw the world is acted on by those attempts alone that had begun
    before, as the logs say: clocks may be wrong."""
    for drill in known.history.drills:
        for key, effects in known.effects.items():
            run_id, _, path = key.partition("/")
            run = known.runs.get(run_id)
            inside = [effect for effect in effects if drill.since < effect.at < drill.until]
            if run is None or not inside:
                continue
            place = drill.places.get(run_id, 0)
            before = Run(run.id, run.status, None, run.events[:place]).attempts().get(path, set())
            for effect in inside:
                if effect.attempt not in before and (effect.attempt or not before):
                    message = f"attempt {effect.attempt} began under a freeze, and acted on the world"
                    yield Broken("nothing begins under a freeze", key, message, effect.at)


def finished_steps_had_their_effect(known: Known) -> Iterator[Broken]:
    """A step whose tool acts on the world has finished only if the world has recorded the effect."""
    seen = {key for key, effects in known.effects.items() if any(not each.refused for each in effects)}
    acted = {
        "act", "tick", "last", "one", "gated", "first", "second", "tidied", "caught", "cleaned", "enter", "leave",
        "each",
    }  # fmt: skip
    for run in known.runs.values():
        doubted = {event.path for event in run.events if isinstance(event, e.PendingOpened) and event.kind == "doubt"}
        for path in run.finished():
            if path.rpartition("/")[2] in acted and path not in doubted and f"{run.id}/{path}" not in seen:
                yield Broken("a finished step had its effect", run.id, f"{path} has finished, and nothing was seen")


def results_are_of_open_attempts(known: Known) -> Iterator[Broken]:
    """A step finishes with the result of the attempt that was begun last: those before it are over."""
    for run in known.runs.values():
        begun: dict[str, int] = {}
        for event in run.events:
            if isinstance(event, e.StepStarted | e.AttemptStarted) and event.attempt:
                begun[event.path] = event.attempt
            elif isinstance(event, e.StepFinished) and isinstance(event.output, dict):
                of, last = event.output.get("attempt"), begun.get(event.path)
                if of is not None and of != last:
                    message = f"{event.path} finished with what attempt {of} gave, and attempt {last} was open"
                    yield Broken("a result is that of the open attempt", run.id, message)


def texts_are_whole(known: Known) -> Iterator[Broken]:
    """The text that a step has streamed equals its output: no piece is missing, or there twice."""
    for run in known.runs.values():
        texts: dict[str, str] = {}
        of: dict[str, str] = {}
        last: dict[str, str] = {}
        for event in run.events:
            if isinstance(event, e.MessageStarted) and event.kind == "text":
                of[event.message_id] = event.path
                texts[event.message_id] = ""
            elif isinstance(event, e.MessageChunk) and event.message_id in texts:
                texts[event.message_id] += event.content
            elif isinstance(event, e.MessageEnded) and event.message_id in of and not event.aborted:
                last[of[event.message_id]] = texts[event.message_id]
            elif isinstance(event, e.StepFinished) and isinstance(event.output, str):
                shown = last.get(event.path, event.output)
                if shown != event.output:
                    message = f"{event.path} showed {shown[-80:]!r} and gave {event.output[-80:]!r}"
                    yield Broken("what is streamed is what was given", run.id, message)


def runs_below_are_heard_once(known: Known) -> Iterator[Broken]:
    """A run hears once of each change of a question of its child runs."""
    for run in known.runs.values():
        told = Counter(
            (event.opened.id, event.status, event.by, event.opened.digest, len(event.votes))
            for event in run.events
            if isinstance(event, e.ChildAsked)
        )
        for what, times in told.items():
            if times > 1:
                message = f"it heard {times} times that {what[0]} is {what[1]}"
                yield Broken("a message between runs is heard once", run.id, message)


def nothing_is_wrong_with_a_run(known: Known) -> Iterator[Broken]:
    """A run of a campaign needs attention only where the attempts of a step were lost one after the other."""
    for run in known.runs.values():
        for event in run.events:
            if isinstance(event, e.RunNeedsAttention) and not event.path:
                yield Broken("what happens to a run can be stored", run.id, event.reason)


def a_calm_is_calm(known: Known) -> Iterator[Broken]:
    """Before the first fault, no attempt is lost or in doubt."""
    for id in known.history.calm:
        run = known.runs.get(id)
        for event in () if run is None else run.events:
            if (isinstance(event, e.StepRetried) and event.lost) or (
                isinstance(event, e.PendingOpened) and event.kind == "doubt"
            ):
                message = f"{event.path} was lost, and no process had been ended, cut off or stopped"
                yield Broken("a calm is calm", id, message)


def effects_of_one_chance_happen_once(known: Known) -> Iterator[Broken]:
    """An effect with `delivery: at_most_once` happens once at most."""
    for told in known.history.started:
        if told.flow == "once":
            seen = known.effects.get(f"{told.run_id}/once", [])
            if len(seen) > 1:
                yield Broken("at most once", told.run_id, f"it happened {len(seen)} times")


def payments_are_exact(known: Known) -> Iterator[Broken]:
    """A row that a tool writes in its transaction is there exactly where its step has finished."""
    rows = Counter(known.payments)
    for run in known.runs.values():
        for path, times in run.finished().items():
            if path.rpartition("/")[2] == "paid" and rows.pop((run.id, path), 0) != times:
                yield Broken("a transaction is committed with its step", run.id, f"{path} has finished without its row")
    for (run_id, path), times in rows.items():
        yield Broken(
            "a transaction is committed with its step", run_id, f"{path} has {times} rows and has not finished"
        )


def rejected_gates_let_nothing_through(known: Known) -> Iterator[Broken]:
    """A gated effect happens only if people approved it."""
    effects = known.effects
    for told in known.history.started:
        run = known.runs.get(told.run_id)
        if told.flow != "approval" or run is None:
            continue
        outcomes = [event.outcome for event in run.events if isinstance(event, e.PendingDecided)]
        if "approve" not in outcomes and f"{run.id}/gated" in effects:
            yield Broken("what you approve is what runs", run.id, f"it acted, and was decided so: {outcomes}")


def lanes_are_one_at_a_time(known: Known) -> Iterator[Broken]:
    """A run of a queue enters when the one before it has left."""
    holder: dict[str, str] = {}
    left: set[str] = set()
    for effect in known.history.effects:
        run_id = effect.key.partition("/")[0]
        if effect.what == "leave":
            left.add(run_id)
        elif effect.what == "enter":
            before = holder.get(effect.detail)
            if before not in (None, run_id) and before not in left and run_id not in left:
                message = f"it entered {effect.detail}, which {before} has not left"
                yield Broken("a queue lets in as many as it says", run_id, message, effect.at)
            if run_id not in left:
                holder[effect.detail] = run_id


def outcomes_are_as_written(known: Known) -> Iterator[Broken]:
    """A run that has ended has ended as its workflow says."""
    for told in known.history.started:
        run = known.runs.get(told.run_id)
        if run is None or run.status not in TERMINAL_STATUSES:
            continue
        if run.status == "stopped" and run.id in known.history.stopping:
            continue
        wrong = _wrong(told, run, known)
        if run.status != "finished":
            last = run.events[-1]
            yield Broken("a run ends as it is written", run.id, f"{told.flow} is {run.status}: {str(last)[:300]}")
        elif wrong:
            yield Broken("a run ends as it is written", run.id, f"{told.flow}: {wrong}; its output is {run.output}")


def _wrong(told: Started, run: Run, known: Known) -> str:
    out: Any = run.output
    if not isinstance(out, dict) or out.get("n") != told.number:
        return "it is of another run"
    effects = known.effects

    def happened(*steps: str) -> bool:
        return all(f"{run.id}/{step}" in effects for step in steps)

    match told.flow:
        case "mixed":
            return "" if sorted(out["done"]) == [1, 2, 3] else "not every item is done, once"
        case "form":
            decided = [event.value for event in run.events if isinstance(event, e.PendingDecided)]
            picked = [each["pick"] for each in decided if isinstance(each, dict)]
            return "" if out["then"] == "late" and out["picks"] == picked[:3] else "it picked what nobody said"
        case "timers":
            return "" if out["rounds"] == ["finished"] * 2 else "it did not go round twice"
        case "parent":
            apart = known.runs.get(out["apart"])
            if apart is None or apart.status in TERMINAL_STATUSES - {"finished"}:
                return "the run that it left alone has not finished"
            return "" if (out["left"], out["right"]) == (1, 2) else "the runs below gave something else"
        case "retries":
            return "" if out["done"] == "stubborn" else "the world did not say so"
        case "undo":
            steps = [event.path for event in run.events if isinstance(event, e.StepUndone)]
            undone = {effect.what for each in effects.values() for effect in each if effect.key.startswith(run.id)}
            if not {"undo_first", "undo_second", "tidied", "caught", "cleaned"} <= undone:
                return f"the world saw {sorted(undone)}"
            return "" if len(steps) == 2 and "second" in steps[0] else f"undone were {steps}"
        case "signal":
            heard = out["heard"] == out["again"] == told.number and sorted(out["ticks"]) == list(TICKS)
            return "" if heard else "it heard what was for another run, or one thing twice"
        case "agent":
            return "" if out["same"] else "the model's two answers differ"
        case "stream":
            counts = (len(out[name].split("word ")) - 1 for name in ("text", "more"))
            return "" if tuple(counts) == (60, 30) else "its texts are not whole"
        case "late":
            return "" if happened("hung/~catch/0/caught") else "it waits for what never comes"
        case "long":
            return "" if out["pages"] == 48 else "it has not written every page once"
        case "queue" | "talk":
            return "" if happened("enter", "leave") else "it has not entered and left"
        case _:
            return ""


def streams_are_the_log(known: Known) -> Iterator[Broken]:
    """Every follower was shown the log: the same bytes for the same place, nothing that is not there, nothing left out
    before the last that it saw."""
    for stream in known.history.streams:
        run = known.runs.get(stream.run_id)
        if run is None:
            continue  # another rule says so
        shown = _in_the_logs_words(run) if not stream.dialect else _in_a_dialect(run, stream.dialect)
        for cursor, data in stream.frames.items():
            if cursor not in shown:
                yield Broken("visible is committed", run.id, f"{cursor} was shown, and is not there")
                break
            if shown[cursor] != data:
                yield Broken(
                    "two readers get the same bytes", run.id, f"{cursor}: {data[:200]!r}, {shown[cursor][:200]!r}"
                )
                break
        order = [cursor for cursor in shown if cursor in stream.frames]
        if order and list(shown)[list(shown).index(order[0]) :][: len(order)] != order:
            yield Broken("a follower misses nothing", run.id, f"{len(order)} frames with a gap among them")
        if stream.ended and order and order[-1] != list(shown)[-1]:
            yield Broken("a follower misses nothing", run.id, f"the end was not shown, {order[-1]} was the last")


def _in_the_logs_words(run: Run) -> dict[str, bytes]:
    return {str(seq): dump(event_json(seq, event)) for seq, event in enumerate(run.events, 1)}


def _in_a_dialect(run: Run, name: str) -> dict[str, bytes]:
    dialect, parser = DIALECTS[name], Parser()
    encoder = dialect.encoder(Profile(dialect=name), RunState(run.id))
    shown: dict[str, bytes] = {}
    for seq, event in enumerate(run.events, 1):
        for frame in parser.feed(item_of_event(dialect, encoder.encode(event), seq, UUID(run.id)).data):
            shown[frame.id] = frame.data
    return shown


def everything_has_ended(known: Known) -> Iterator[Broken]:
    """Every run has reached a terminal status."""
    for run in known.runs.values():
        if run.status not in TERMINAL_STATUSES:
            last = run.events[-1] if run.events else None
            yield Broken("everything comes to an end", run.id, f"it is {run.status}, behind {str(last)[:200]}")


def followers_saw_the_end(known: Known) -> Iterator[Broken]:
    """Every follower of a run that has ended got the end."""
    for stream in known.history.streams:
        run = known.runs.get(stream.run_id)
        if run is not None and run.status in TERMINAL_STATUSES and not stream.ended:
            yield Broken("followers learn of the end", run.id, f"{len(stream.frames)} frames were shown, and no end")


Rule: TypeAlias = Callable[[Known], Iterator[Broken]]

TOLD: Final[tuple[Rule, ...]] = (
    started_runs_are_there, controls_are_in_the_log, signals_are_heard_once, questions_have_one_winner,
    votes_are_in_the_log, refusals_are_true, effects_have_attempts, results_are_of_open_attempts, texts_are_whole,
    runs_below_are_heard_once, nothing_is_wrong_with_a_run, a_calm_is_calm, effects_of_one_chance_happen_once,
    nothing_begins_under_a_freeze, rejected_gates_let_nothing_through, lanes_are_one_at_a_time, streams_are_the_log,
)  # fmt: skip
"""They hold at each moment, for the history as it was before the database was read."""
HAPPENED: Final[tuple[Rule, ...]] = (finished_steps_had_their_effect, outcomes_are_as_written)
"""They hold at each moment, for the history as it was after the database was read."""
RULES: Final[tuple[Rule, ...]] = (*TOLD, *HAPPENED, payments_are_exact, everything_has_ended, followers_saw_the_end)


def judged(known: Known) -> list[Broken]:
    """Every broken promise: those that any rule finds now, and those that were noted during the campaign."""
    return [*known.history.broken, *(broken for rule in RULES for broken in rule(known))]


def judged_meanwhile(before: History, now: History, runs: Mapping[str, Run]) -> Iterator[Broken]:
    """The promises that are broken already. `before`: the history as it was before the runs were read."""
    for history, rules in ((before, TOLD), (now, HAPPENED)):
        known = Known(history, runs)
        yield from (broken for rule in rules for broken in rule(known))
