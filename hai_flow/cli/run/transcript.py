"""A run as its starter reads it: each thing once, in words. `events` shows the rest."""

from __future__ import annotations

from typing import Final

from hai_flow.cli.console import TextConsole
from hai_flow.cli.runs.follow import TRACE, EventJson, Narrator
from hai_flow.cli.terminal import compact, indent

PROGRESS: Final = "hai.progress"  # the engine's name of the custom event with which a step tells how far it is

# Steps that are announced by another line: the question, the end of the wait.
_ANNOUNCED: Final = ("approve", "ask", "wait", "wait_for")
# Steps whose end is told already: by the decision, by the signal.
_CONCLUDED: Final = ("ask", "wait_for")
_UP: Final = ("step_failed", "step_ending", "iteration_ended", "branch_ended", "run_failed")
_HANDLED: Final = {
    "~catch": "goes on with its `catch`",
    "~undo": "takes back what it has done",
    "~finally": "goes on with its `finally`",
    "~reject": "goes on with its `on_reject`",
}


class Transcript(Narrator):
    """Writes the course of a run, for a reader without the engine in mind."""

    def __init__(self, console: TextConsole) -> None:
        super().__init__(console)
        self._verbs: dict[str, str] = {}  # of the steps that have begun, by path
        self._asked: set[str] = set()  # paths of the steps whose calls frontends see, as which their results are told
        self._traces: dict[str, str] = {}  # where tools failed, until it is known whether that is the end of it
        self._held: tuple[EventJson, str] | None = None  # a failure that may end the run, and its trace
        self._failures: set[tuple[str, str, str]] = set()  # those that were told
        self._votes: dict[str, list[str]] = {}  # the decisions that were cast, by question
        self._texts: dict[str, str] = {}  # what each message said so far
        self._said = ""  # the whole of the last message

    def show(self, event: EventJson) -> None:
        if not _is_on_the_way_up(event):
            self._tell_failure()
        super().show(event)

    def unnamed(self, event: EventJson) -> None:
        """The event is for programs."""

    def _print_custom_emitted(self, event: EventJson) -> None:
        value = event.get("value")
        if event["name"] != PROGRESS or not isinstance(value, dict):
            return
        count = f"{value['done']} of {value['total']}" if "done" in value and "total" in value else value.get("done")
        parts = [str(each) for each in (value.get("message"), count) if each is not None]
        self.line(f"… {event['path']}: {', '.join(parts)}", "dim")

    def _print_child_moved(self, event: EventJson) -> None:
        """What the run below asks and does is told itself."""

    # --- steps

    def _print_step_started(self, event: EventJson) -> None:
        self._verbs[event.get("path") or ""] = event.get("verb", "")
        if event.get("verb") in _ANNOUNCED:
            self._told.add(event["path"])
        else:
            super()._print_step_started(event)

    def _print_step_finished(self, event: EventJson) -> None:
        verb, output = self._verbs.get(event["path"], ""), event.get("output")
        if verb in _CONCLUDED or event["path"] in self._asked:
            return
        if verb == "approve" and isinstance(output, dict) and not (output.get("values") or output.get("expired")):
            return
        hidden = output == {"winner": None} or (isinstance(output, str) and output.strip() == self._said.strip() != "")
        super()._print_step_finished({**event, "output": None} if hidden else event)

    def _print_warning_raised(self, event: EventJson) -> None:
        if event["code"] == TRACE:
            self._traces[event["path"]] = event["message"]
        else:
            super()._print_warning_raised(event)

    def _print_step_retried(self, event: EventJson) -> None:
        self._traces.pop(event["path"], None)
        super()._print_step_retried(event)

    def _print_step_failed(self, event: EventJson) -> None:
        path, error = event.get("path") or "", event["error"]
        trace = self._traces.pop(path, "")
        if not self._is_known(error):
            self._tell_failure()
            self._held = ({**event, "handler": None}, _strip_end(trace, error["message"]))
        if event.get("handler"):
            self._tell_failure()
            how = _HANDLED.get(event["handler"].partition("/")[0], "is handled by the workflow")
            self.line(f"↳ {path or 'the run'} {how}", "yellow")

    def _tell_failure(self) -> None:
        """The failure that was held back: the run has not ended with it."""
        if self._held is not None:
            event, trace = self._held
            self._held = None
            super()._print_step_failed(event)
            self._tell_trace(trace)

    def _tell_trace(self, trace: str) -> None:
        if trace:
            self.line(indent(trace), "dim")

    def _print_iteration_ended(self, event: EventJson) -> None:
        if event.get("error") and not self._is_known(event["error"]):
            self._tell_failure()
            super()._print_iteration_ended(event)

    def _print_run_failed(self, event: EventJson) -> None:
        error = event["error"]
        if self._held is not None and _failure(self._held[0]["error"]) == _failure(error):
            (failed, trace), self._held = self._held, None
            if failed.get("path"):
                self.line(f"✗ {failed['path']}", "red")
            self._tell_trace(trace)
            super()._print_run_failed(event)
        elif error.get("path") and self._is_known(error):
            self._tell_failure()
            self.line(f"failed at {error['path']}: {error['code']}", "bold red")
        else:
            self._tell_failure()
            super()._print_run_failed(event)

    def _is_known(self, error: EventJson) -> bool:
        """Whether this very failure was told. It is from now on."""
        failure = _failure(error)
        is_repeated = failure in self._failures
        self._failures.add(failure)
        return is_repeated

    def _print_run_retried(self, event: EventJson) -> None:
        self._failures.clear()
        self.line(f"tried again by {event['by']}", "yellow")

    def _print_work_taken_back(self, event: EventJson) -> None:
        self.line(f"takes its work back: run {event['heir']}, which was to go on with it, did not begin", "yellow")

    def _print_steps_held(self, event: EventJson) -> None:
        held = ", ".join(event["held"])
        self.line(f"frozen: {held} ({event['reason']})" if held else "not frozen any more", "yellow")

    def _print_attempt_started(self, event: EventJson) -> None:
        """The failure before it has said that there is another one."""

    # --- calls: the step is told, and of a frontend's the question

    def _print_tool_call_started(self, event: EventJson) -> None:
        self._asked.add(event["path"])
        if event["executor"] == "server":
            super()._print_tool_call_started(event)

    def _print_tool_call_args_chunk(self, event: EventJson) -> None:
        pass

    def _print_tool_call_ended(self, event: EventJson) -> None:
        pass

    def _print_tool_call_resolved(self, event: EventJson) -> None:
        if event["tool_call_id"] in self._calls:
            super()._print_tool_call_resolved(event)

    # --- text, state

    def _print_message_chunk(self, event: EventJson) -> None:
        message = event["message_id"]
        self._texts[message] = self._texts.get(message, "") + event["content"]
        super()._print_message_chunk(event)

    def _print_message_ended(self, event: EventJson) -> None:
        self._said = self._texts.pop(event["message_id"], self._said)
        super()._print_message_ended(event)

    def _print_state_changed(self, event: EventJson) -> None:
        for op in event["ops"]:
            name = op["path"].lstrip("/") or "the state"
            if op["op"] == "remove":
                self.line(f"Δ {name} is removed", "blue")
            elif name.endswith("/-"):
                self.line(f"Δ {name.removesuffix('/-')} gets {compact(op.get('value'))}", "blue")
            elif "value" in op:
                self.line(f"Δ {name} = {compact(op['value'])}", "blue")
            else:
                self.line(f"Δ {name} is what {op['from'].lstrip('/')} was", "blue")

    # --- people

    def _print_vote_cast(self, event: EventJson) -> None:
        self._votes.setdefault(event["id"], []).append(event["decision"])
        super()._print_vote_cast(event)

    def _print_pending_decided(self, event: EventJson) -> None:
        if self._votes.pop(event["id"], []) != [event["outcome"]]:
            super()._print_pending_decided(event)


def _failure(error: EventJson) -> tuple[str, str, str]:
    return error["code"], error["message"], error.get("path", "")


def _is_on_the_way_up(event: EventJson) -> bool:
    """Whether the event is one of those by which a failure that nobody handles comes to the end of the run."""
    return event["type"] in _UP or (event["type"] == "turn_ended" and event["reason"] == "failed")


def _strip_end(trace: str, message: str) -> str:
    """A traceback without its last line, where the message says that."""
    lines = trace.rstrip().splitlines()
    return "\n".join(lines[:-1] if lines and lines[-1].strip() in message else lines)
