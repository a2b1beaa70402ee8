"""Shows a run in a terminal: its events as lines, its text as it streams. It never asks the person for input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hai_flow.cli.client.questions import question_of
from hai_flow.cli.console import TextConsole, clean, json_text
from hai_flow.cli.decisions import approval, is_envelope
from hai_flow.cli.runs.why_waiting import ENDS_OF_WAITS, because, until
from hai_flow.cli.terminal import compact, indent, moment, roughly
from hai_flow.values import Json

EventJson: TypeAlias = dict[str, Json]

CALLBACK: Final = "callback:"  # the engine's beginning of the types of signals that are callbacks
TRACE: Final = "tool.trace"  # the engine's name of the warning with the place where a tool failed

# Steps whose effect is shown already: a message, a change of state, the end.
_SILENT_VERBS: Final = ("say", "let", "set", "break", "continue", "return", "switch", "emit", "agent_calls")
# Events that another event makes superfluous in a terminal.
_SILENT: Final = frozenset(
    {
        "turn_started", "turn_ended", "step_skipped", "branch_ended",
        "messages_changed", "timer_fired", "iteration_started",
    }
)  # fmt: skip


class Narrator:
    """Writes each event as it comes. `show` never raises for an event it does not know: it names it.

    `stamps`: lines begin with the event's seq and its time."""

    def __init__(self, console: TextConsole, *, stamps: bool = False) -> None:
        self._console = console
        self._stamps = stamps
        self._stamp = ""  # of the event that is shown: its seq and its time
        self._streaming: str | None = None  # the message whose line is open
        self._kinds: dict[str, str] = {}
        self._grown: dict[str, int] = {}  # messages that are not over -> how much of them was shown
        self._calls: dict[str, list[str]] = {}  # id -> name, then pieces of the arguments
        self._told: set[str] = set()  # paths of the steps whose start was shown
        self._listening: set[str] = set()  # paths of the steps that wait for signals

    def show(self, event: EventJson) -> None:
        kind = event["type"]
        if self._stamps:
            seq = f"{event['seq']:>4}" if self._console.aligns else str(event["seq"])
            self._stamp = f"{seq}  {moment(event['at'])}  "
        write: Callable[[EventJson], None] | None = getattr(self, f"_print_{kind}", None)
        if write is not None:
            write(event)
        elif kind in LINES:
            text, style = LINES[kind]
            self.line(text.format_map({**event, "because": because(event)}), style)
        elif kind not in _SILENT:
            self.unnamed(event)

    def unnamed(self, event: EventJson) -> None:
        """An event for which there are no words here, as it is."""
        self.line(f"· {event['type'].replace('_', ' ')} {_rest(event)}", "dim")

    def line(self, text: str, style: str | None = None) -> None:
        """A line of its own: an open message's line is ended first."""
        self.end_line()
        self._console.print(clean(self._stamp + self._under(text)), style=style)

    def _under(self, text: str) -> str:
        """`text`, with its further lines indented past the stamp, too: they must not look like lines of ours."""
        return text.replace("\n", "\n" + " " * len(self._stamp))

    def end_line(self) -> None:
        if self._streaming is not None:
            self._streaming = None
            self._console.print()

    # --- text

    def _print_message_chunk(self, event: EventJson) -> None:
        message = event["message_id"]
        if self._streaming != message:
            self.end_line()
            self._streaming = message
            self._console.print(self._stamp, end="")
        style = None if self._kinds.get(message, "text") == "text" else "dim"
        self._grown[message] = self._grown.get(message, 0) + len(event["content"])
        self._console.print(clean(self._under(event["content"])), style=style, end="")
        self._console.file.flush()

    def _print_message_started(self, event: EventJson) -> None:
        self._kinds[event["message_id"]] = event.get("kind", "text")

    def _print_message_ended(self, event: EventJson) -> None:
        self._kinds.pop(event["message_id"], None)
        self._grown.pop(event["message_id"], None)
        if self._streaming == event["message_id"]:
            self.end_line()
        if event.get("aborted"):
            self.line("(the message was cut off)", "dim")

    # --- steps

    def _print_step_started(self, event: EventJson) -> None:
        if event.get("verb") in _SILENT_VERBS or not event.get("path"):
            return
        self._told.add(event["path"])
        title = f" {event['title']}" if event.get("title") else ""
        args = f" {compact(event['args'])}" if event.get("args") else ""
        self.line(f"▸ {event['path']}: {event.get('verb', '')}{title}{args}", "cyan")

    def _print_step_finished(self, event: EventJson) -> None:
        if event["path"] in self._told:
            output = event.get("output")
            output = "" if output is None else f" → {approval(output) if is_envelope(output) else compact(output)}"
            self.line(f"✓ {event['path']}{output}", "green")
            for note in event.get("notes", ()):
                self.line(f"  changed: {note}", "yellow")

    def _print_step_failed(self, event: EventJson) -> None:
        where = event.get("path") or "the run"
        handled = "; the workflow handles it" if event.get("handler") else ""
        self.line(f"✗ {where}: {_error(event['error'], where)}{handled}", "red")

    def _print_step_retried(self, event: EventJson) -> None:
        when = f" again at {moment(event['due'])}" if event.get("due") else " again"
        lost = "was lost" if event.get("lost") else f"failed ({_error(event['error'], event['path'])})"
        self.line(f"↻ {event['path']}: attempt {event.get('attempt', 1)} {lost};{when}", "yellow")

    def _print_iteration_ended(self, event: EventJson) -> None:
        if event.get("error"):
            self.line(f"✗ {event['path']}: {event['status']}, {_error(event['error'])}", "red")

    def _print_step_stopped(self, event: EventJson) -> None:
        if event["path"] in self._told:
            self.line(f"■ {event['path']} stopped {event.get('reason', '')}".rstrip(), "dim")

    def _print_attempt_started(self, event: EventJson) -> None:
        if event.get("attempt", 1) > 1:
            self.line(f"▸ {event['path']}: attempt {event['attempt']}", "cyan")

    # --- calls, state

    def _print_tool_call_started(self, event: EventJson) -> None:
        self._calls[event["tool_call_id"]] = [event["name"]]

    def _print_tool_call_args_chunk(self, event: EventJson) -> None:
        self._calls.setdefault(event["tool_call_id"], ["?"]).append(event["content"])

    def _print_tool_call_ended(self, event: EventJson) -> None:
        name, *pieces = self._calls.get(event["tool_call_id"], ["?"])
        self.line(f"⚙ {name}({''.join(pieces)})", "magenta")

    def _print_tool_call_resolved(self, event: EventJson) -> None:
        name = self._calls.pop(event["tool_call_id"], ["the tool"])[0]
        outcome = f"failed: {event['error']}" if event.get("error") else f"→ {event['content']}"
        self.line(f"⚙ {name} {outcome}", "magenta")

    def _print_state_changed(self, event: EventJson) -> None:
        for op in event["ops"]:
            source = f" from {op['from']}" if "from" in op else ""
            value = f" {compact(op['value'])}" if "value" in op else ""
            self.line(f"Δ {op['op']} {op['path']}{source}{value}", "blue")

    # --- people

    def _print_pending_opened(self, event: EventJson) -> None:
        self.line(f"? {question_of(event)}", "bold")
        if event.get("message"):
            self.line(indent(event["message"]))
        if event.get("evidence") is not None:
            self.line(f"  {compact(event['evidence'], 1000)}")
        deadline = f", until {moment(event['deadline'])}" if event.get("deadline") else ""
        self.line(f"  {event['kind']} {event['id']}{deadline}", "dim")

    def _print_vote_cast(self, event: EventJson) -> None:
        self.line(f"! {event['by']} votes {event['decision']}{because(event)}", "bold")

    def _print_pending_reminded(self, event: EventJson) -> None:
        channels = ", ".join(event.get("notify") or ())
        self.line(f"! {event['path']} still waits; a reminder is due{f' over {channels}' if channels else ''}", "dim")

    def _print_pending_escalated(self, event: EventJson) -> None:
        why = event.get("reason") or "nobody decided in time"
        deciders = ", ".join(event["policy"].get("from", ())) or "nobody"
        until = f", until {moment(event['deadline'])}" if event.get("deadline") else ""
        self.line(f"! {event['path']}: {why}; it now asks {deciders}{until}", "bold yellow")

    def _print_pending_decided(self, event: EventJson) -> None:
        by = f" by {event['by']}" if event.get("by") else ""
        value = event.get("value")
        value = (
            f": {approval(value) if is_envelope(value) else compact(value)}" if event["outcome"] == "answered" else ""
        )
        self.line(f"! {event['outcome']}{by}{value}{because(event)}", "bold")

    def _print_pending_voided(self, event: EventJson) -> None:
        self.line(f"! no answer is needed any more to {event['id']} {event.get('reason', '')}".rstrip(), "dim")

    def _print_child_asked(self, event: EventJson) -> None:
        """Show the question of a run below as if this run asked it. Its outcome is shown by its path."""
        opened, status = event["opened"], event.get("status", "open")
        if status != "open":
            self.line(f"! {opened['path']}: {status}{because(event)}", "bold")
        elif not event.get("known"):
            self._print_pending_opened(opened)

    def _print_child_moved(self, event: EventJson) -> None:
        self.line(f"· {event['path']}: the run below {'works again' if event['working'] else 'waits'}", "dim")

    def _print_child_said(self, event: EventJson) -> None:
        """Show the whole message of a run below; parts of it may have been shown as they came."""
        rest = event["content"][self._grown.get(event["message_id"], 0) :]
        if rest and event["message_id"] in self._grown:
            self._print_message_chunk({**event, "content": rest})
        elif rest:
            self.line(rest)
        self._print_message_ended(event)

    def _print_child_stepped(self, event: EventJson) -> None:
        mark, style = _MARKS.get(event["status"], ("✗", "red"))
        self.line(f"{mark} {event['path']}", style)

    # --- the run

    def _print_run_started(self, event: EventJson) -> None:
        self.line(f"{event['workflow']}@{event['version']} starts with {compact(event['input'])}", "dim")

    def _print_run_stopped(self, event: EventJson) -> None:
        how = "terminated" if event.get("terminated") else "stopped"
        self.line(f"{how} by {event['by']}{because(event)}", "yellow")

    def _print_run_finished(self, event: EventJson) -> None:
        output = "" if event.get("output") is None else ": " + json_text(event["output"])
        self.line(f"finished{output}", "bold green")

    def _print_run_failed(self, event: EventJson) -> None:
        self.line(f"failed: {_error(event['error'])}", "bold red")

    def _print_time_jumped(self, event: EventJson) -> None:
        self.line(f"⏩ {roughly(event['ms'])} at once, by {event['by']}", "yellow")

    def _print_timer_set(self, event: EventJson) -> None:
        # The deadline of a question is shown with it, and a retry with its failure.
        if event["kind"] == "wait" or (event["path"] in self._listening and event["kind"] in ENDS_OF_WAITS):
            self.line(f"⏲ {event['path']}: waits {until(event['due'])}", "cyan")

    def _print_signals_awaited(self, event: EventJson) -> None:
        self._listening.add(event["path"])
        types = ["a callback" if each.startswith(CALLBACK) else each for each in event["types"]]
        self.line(f"⏲ {event['path']}: waits for {' or '.join(types)}", "cyan")

    def _print_signal_received(self, event: EventJson) -> None:
        data = "" if event.get("data") is None else f" {compact(event['data'])}"
        name = "the callback" if event["name"].startswith(CALLBACK) else event["name"]
        self.line(f"✉ {event['path']}: {name} has come{data}", "cyan")

    def _print_run_queued(self, event: EventJson) -> None:
        key = event["slot"].partition(":")[2] or event["slot"]
        self.line(f"queued, until a run with the same concurrency key {key!r} has ended", "yellow")

    def _print_warning_raised(self, event: EventJson) -> None:
        if event["code"] == TRACE:
            self.line(f"✗ {event['path']} raised:", "red")
            self.line(indent(event["message"]), "dim")
        else:
            self.line(f"warning {event['code']}: {event['message']}", "yellow")


LINES: Final = {
    "step_undone": ("↶ {path} is undone", "yellow"),
    "run_paused": ("paused by {by}{because}", "yellow"),
    "run_resumed": ("resumed by {by}", "yellow"),
    "run_stopping": ("stopping, asked by {by}{because}", "yellow"),
    "run_needs_attention": ("needs attention at {path}: {reason}", "bold red"),
}
"""Events whose line is a template of their fields, and its style."""
_MARKS: Final = {"running": ("▸", "cyan"), "finished": ("✓", "green"), "skipped": ("✓", "green")}  # of steps below


def _error(error: EventJson, at: str = "") -> str:
    """A failure in words, with the step that it comes from, unless that is `at`."""
    where = f" (at {error['path']})" if error.get("path") and error["path"] != at else ""
    return f"{error['code']}: {error['message']}{where}"


def _rest(event: EventJson) -> str:
    rest = {key: value for key, value in event.items() if key not in ("seq", "type", "at", "turn")}
    return compact(rest) if rest else ""
