"""The history of a run, step by step: its log as lines, in the author's words. Pure: it sends and prints nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from hai_flow.cli.decisions import approval, is_envelope
from hai_flow.cli.runs.why_waiting import ENDS_OF_WAITS, because, until
from hai_flow.cli.terminal import compact, failure_text, moment
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.graph.chart import Lane, Node

EventJson: TypeAlias = dict[str, Json]

_KEY: Final = re.compile(r"\[[^\]]*\]")
_LABEL_CHARS: Final = 70
_ENDS: Final = {"step_finished": "finished", "step_failed": "failed", "step_stopped": "stopped"}


@dataclass(slots=True)
class HistoryEntry:
    """A step of the run, or an iteration of a loop (`verb` is empty). Times are as REST shows them."""

    path: str
    verb: str
    began_at: str
    title: str = ""
    status: str = "running"
    ended: str = ""
    attempt: int = 0
    case: int | None = None
    output: Json = None
    until: str = ""
    child: str = ""
    went_on: bool = False  # its child was retried, and went on where it had failed
    attempt_begun: str = ""
    worked: float = 0.0
    """The seconds of the attempts that have ended; one that is under way began at `attempt_begun`."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """A line of the history: a step. `depth` counts the steps around it; `note` is its reason or its result."""

    depth: int
    words: str
    status: str
    began_at: str
    took: str
    note: str


def build_lines(
    events: Iterable[EventJson],
    statuses: Mapping[str, str],
    words: Mapping[str, Node] | None = None,
    ends: Mapping[str, str] | None = None,
    now: str = "",
) -> list[HistoryLine]:
    """The steps in the order in which they began, each behind the step that it is inside.

    `statuses`: the current status of each step, by path; it overrides the events, and so do `ends`: until when each
    step waits, in words. `words`: the workflow's steps as written, by path; a step without them is named by its path.
    `now`: until when attempts that are under way have taken so far; "": they say no time."""
    entries = _entries(events)
    for path, entry in entries.items():
        entry.status = statuses.get(path, entry.status)
        entry.until = (ends or {}).get(path, entry.until)
    inside: dict[str, list[HistoryEntry]] = {}
    for path, entry in entries.items():
        inside.setdefault(_around(path, entries), []).append(entry)
    return list(_walk_entries("", 0, inside, words or {}, now))


def list_questions_below(events: Iterable[EventJson]) -> list[Json]:
    """The open questions of runs below this one, taken from this run's events."""
    open_by_id: dict[str, Json] = {}
    for event in events:
        if event["type"] == "child_asked":
            opened = event["opened"]
            open_by_id.pop(opened["id"], None)
            if event.get("status", "open") == "open":
                open_by_id[opened["id"]] = {**opened, "needed": {"votes": event.get("votes") or []}}
    return list(open_by_id.values())


def words_of(source: str) -> dict[str, Node]:
    """The steps of a workflow by path, for `build_lines`. Nothing where this release can't read it."""
    from hai_flow.graph.chart import chart_of

    try:
        return {node.path: node for node in chart_of(source.encode()).all_nodes()}
    except Exception:  # written for another release: the log says enough without it
        return {}


def duration(begun: str, ended: str) -> str:
    """The time between two moments: `12 ms`, `3.2 s`, `3 m 5 s`, `2 h 10 m`, `3 d 4 h`."""
    return _span(_seconds(begun, ended))


def _seconds(begun: str, ended: str) -> float:
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds())


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    total = int(seconds)
    for unit, size, part, below in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if total >= size:
            rest = total % size // below
            return f"{total // size} {unit}" + (f" {rest} {part}" if rest else "")
    raise AssertionError("it is a minute at least")


# --- from events to entries -------------------------------------------------------------------------------------------


def _entries(events: Iterable[EventJson]) -> dict[str, HistoryEntry]:
    entries: dict[str, HistoryEntry] = {}
    for event in events:
        kind, path = event["type"], event.get("path") or ""
        if kind == "migrated":
            entries = _rename_entries(entries, event.get("paths") or {})
        elif kind in ("run_retried", "step_reopened"):
            for each in event.get("reopened") or ():
                if each in entries:
                    entries[each].status, entries[each].ended = "running", ""
        elif kind in ("step_started", "step_skipped", "iteration_started"):
            _begin(entries, event, path)
        elif path in entries:
            _go_on(entries[path], event)
    return entries


def _begin(found: dict[str, HistoryEntry], event: EventJson, path: str) -> None:
    entry = found.get(path)
    if entry is None:
        entry = found[path] = HistoryEntry(path, "", event["at"])
    entry.verb = event.get("verb") or entry.verb
    entry.title = event.get("title") or entry.title
    entry.attempt = event.get("attempt") or entry.attempt
    entry.case = event.get("case")
    entry.status, entry.ended, entry.until, entry.notes = "running", "", "", []
    entry.attempt_begun, entry.worked = event["at"] if event.get("attempt") else "", 0.0
    if event["type"] == "step_skipped":
        entry.status, entry.ended = "skipped", event["at"]
        entry.notes = [approval(event["approval"])] if is_envelope(event.get("approval")) else []
        if event.get("by"):
            entry.notes = [f"by {event['by']}{because(event)}"]


def _go_on(entry: HistoryEntry, event: EventJson) -> None:
    kind = event["type"]
    if entry.attempt_begun and kind in (*_ENDS, "step_retried"):
        entry.worked += _seconds(entry.attempt_begun, event["at"])
        entry.attempt_begun = ""
    if kind in _ENDS:
        entry.status, entry.ended, entry.until = _ENDS[kind], event["at"], ""
        entry.notes = [_outcome(entry, event), *(f"changed: {each}" for each in event.get("notes", ()))]
    elif kind == "iteration_ended":
        entry.status, entry.ended = event["status"], event["at"]
        entry.notes = [failure_text(event["error"])] if event.get("error") else []
    elif kind == "step_undone":
        entry.status = "undone"
    elif kind == "attempt_started":
        entry.attempt, entry.attempt_begun = event["attempt"], event["at"]
    elif kind == "step_retried":
        lost = "was lost" if event.get("lost") else f"failed ({failure_text(event['error'])})"
        entry.notes = [f"attempt {event.get('attempt', 1)} {lost}"]
        if event.get("due"):
            entry.notes.append(f"again at {moment(event['due'])}")
    elif kind == "timer_set" and event["kind"] in ENDS_OF_WAITS:
        entry.until = until(event["due"])
    elif kind == "signals_awaited":
        entry.notes = [f"for a signal {' or '.join(event['types'])}"]
    elif kind == "pending_opened":
        entry.notes = ["for an answer"]
        entry.until = until(event.get("deadline"))
    elif kind == "pending_escalated":
        entry.notes = [f"escalated: {event.get('reason') or 'nobody decided in time'}"]
        entry.until = until(event.get("deadline"))
    elif kind in ("pending_decided", "pending_voided"):
        entry.until = ""
    elif kind == "collaboration_started" and event.get("run_id"):
        child = event["run_id"]
        entry.went_on = child == entry.child
        entry.notes = [f"goes on in run {child}" if entry.went_on else f"run {child}"]
        entry.child = child
    elif kind == "run_needs_attention":
        entry.notes = [event["reason"]]


def _outcome(entry: HistoryEntry, event: EventJson) -> str:
    if event["type"] == "step_failed":
        handled = "; the workflow handles it" if event.get("handler") else ""
        return failure_text(event["error"]) + handled
    if event["type"] == "step_stopped":
        return event.get("reason", "")
    output = event.get("output")
    if is_envelope(output):
        return approval(output)
    if output is None or entry.verb in ("switch", "parallel", "say"):
        return ""
    return compact(output)


def _rename_entries(found: dict[str, HistoryEntry], paths: Mapping[str, str]) -> dict[str, HistoryEntry]:
    """The entries under the paths that the steps have in another version. Inner steps move with their outer one."""
    renamed: dict[str, HistoryEntry] = {}
    for path, entry in found.items():
        for old, new in paths.items():
            if path == old or path.startswith((f"{old}/", f"{old}[")):
                entry.path = new + path[len(old) :]
                break
        renamed[entry.path] = entry
    return renamed


# --- from entries to lines --------------------------------------------------------------------------------------------


def _around(path: str, entries: Mapping[str, HistoryEntry]) -> str:
    """The step or iteration that the path is inside; "" for none."""
    for place in range(len(path) - 1, 0, -1):
        if path[place] in "/[" and path[:place] in entries:
            return path[:place]
    return ""


def _walk_entries(
    around: str, depth: int, inside: Mapping[str, list[HistoryEntry]], words: Mapping[str, Node], now: str
) -> Iterator[HistoryLine]:
    for entry in inside.get(around, ()):
        node = words.get(_KEY.sub("[]", entry.path))
        below = inside.get(entry.path, [])
        took = _took(entry, now)
        note = _note(entry, node, below)
        yield HistoryLine(depth, _words(entry, node, around, words), entry.status, entry.began_at, took, note)
        yield from _walk_entries(entry.path, depth + 1, inside, words, now)


def _took(entry: HistoryEntry, now: str) -> str:
    """How long a step took: of one with attempts the time of these, and not that between them or before the first."""
    if entry.status == "skipped":
        return ""
    if entry.attempt_begun and not entry.ended:
        return f"{_span(entry.worked + _seconds(entry.attempt_begun, now))} so far" if now else ""
    if entry.attempt and entry.worked:
        return _span(entry.worked)
    return duration(entry.began_at, entry.ended) if entry.ended else ""


def _note(entry: HistoryEntry, node: Node | None, below: list[HistoryEntry]) -> str:
    if entry.status == "skipped" and not entry.notes and node is not None and node.condition:
        return f"if {node.condition}: false"
    iterations = Counter(each.status for each in below if not each.verb and each.path.startswith(f"{entry.path}["))
    if iterations and entry.status != "failed":
        return ", ".join(f"{count} {status}" for status, count in iterations.items())
    tries = [f"attempt {entry.attempt}"] if entry.attempt > 1 and entry.status in ("finished", "failed") else []
    if entry.until:
        return ", ".join([*entry.notes, entry.until])
    if entry.went_on and entry.ended:
        tries.append(f"went on in run {entry.child}")
    return "; ".join([*tries, *filter(None, entry.notes)])


def _words(entry: HistoryEntry, node: Node | None, around: str, words: Mapping[str, Node]) -> str:
    """The author's name of the step, behind the branch or handler that it is in."""
    rest = entry.path[len(around) :].lstrip("/")
    if not entry.verb and rest.startswith("["):
        return rest
    lane, _, name = rest.rpartition("/")
    owner = words.get(_KEY.sub("[]", around))
    label = _format_label(lane, owner) if lane else ""
    head = f"{label}: " if label and (owner is None or owner.verb != "switch") else ""
    return (head + _call_name(entry, node, name)).strip()


def _call_name(entry: HistoryEntry, node: Node | None, name: str) -> str:
    verb = entry.verb or (node.verb if node is not None else "")
    called = "" if verb and name.startswith(f"{verb}#") else name
    if node is None:
        return " ".join(filter(None, (verb, called, entry.title)))
    detail = entry.title or node.detail
    if verb == "switch" and entry.status != "skipped":
        lanes = node.lanes
        is_lane = entry.case is not None and entry.case < len(lanes)
        detail = lanes[entry.case].label if is_lane and entry.case is not None else "none of its cases"
    parts = " ".join(filter(None, (verb, called, detail if detail != called else "")))
    return parts if len(parts) <= _LABEL_CHARS else parts[: _LABEL_CHARS - 1] + "…"


def _format_label(lane: str, owner: Node | None) -> str:
    lanes: Iterable[Lane] = (*owner.lanes, *owner.handlers) if owner is not None else ()
    return next((each.label for each in lanes if each.body == lane), lane.lstrip("~"))
