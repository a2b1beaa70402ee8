"""One run from its start to its end in a terminal, which is also where its questions are answered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from hai_flow.cli.client import answers
from hai_flow.cli.client.eligible import NO_ROLES, Roles, as_whom, may_answer
from hai_flow.cli.client.questions import (
    answer_example,
    explain_sample,
    format_asked,
    format_other_options,
    question_of,
)
from hai_flow.cli.console import join_lines
from hai_flow.cli.errors import FAILED, OK, WAITS, Problem, explain, print_definition_error
from hai_flow.cli.run.transcript import Transcript
from hai_flow.cli.runs.follow import TRACE
from hai_flow.cli.serve.backend import Backend, RequestedWorkflow, TerminalCaller
from hai_flow.cli.terminal import err, note, out, program
from hai_flow.errors import DefinitionError, Rejected
from hai_flow.values import Json

_ENDED: Final = {"run_finished": "finished", "run_failed": "failed", "run_stopped": "stopped"}
_STATUS_AFTER: Final = {
    **_ENDED,
    "turn_started": "running",
    "run_paused": "paused",
    "run_needs_attention": "needs_attention",
}


class RunConversation:
    """One run from its start to its end, or until it waits for a person elsewhere."""

    def __init__(
        self,
        wanted: RequestedWorkflow,
        input: dict[str, Json],
        thread: str | None,
        *,
        where: str,
        interactive: bool,
        quiet: bool,
    ) -> None:
        self._caller: TerminalCaller | None = None  # known when the run has begun
        self._roles: Roles = NO_ROLES
        self._wanted = wanted
        self._input = input
        self._thread = thread
        self._where = where
        self._interactive = interactive
        self._quiet = quiet
        self._narrator = Transcript(out())
        self._open: dict[str, dict[str, Json]] = {}  # pendings, in the order in which they were opened
        self._answered: set[str] = set()  # by us
        self._status = "running"
        self._result: dict[str, Json] = {}
        self._traces: dict[str, str] = {}  # of the newest failure of each step's function
        self.standing: dict[str, Json] | None = None
        """How the run stands at the end, for programs; None where people read."""
        self._run_id = ""
        self._warned: set[str] = set()
        self._prompt: answers.Prompt | None = None
        self._asking: tuple[str, asyncio.Task[None]] | None = None

    async def hold(self, backend: Backend) -> int:
        """Start and follow; the exit code."""
        try:
            reference, self._run_id = await backend.begin(self._wanted, self._input, self._thread)
        except DefinitionError as error:
            print_definition_error(error.findings, self._wanted.name, self._wanted.source or b"")
            return FAILED
        if not self._quiet:
            note(f"{reference}, run {self._run_id}")
        try:
            self._caller = await backend.caller()
            self._roles = await backend.roles(reference)
            return await self._follow(backend)
        except asyncio.CancelledError:
            await self._stop_asking()
            self._narrator.end_line()
            if self._stands:
                self._leave()
            elif self._status not in _ENDED.values():
                note(f"The run {self._run_id} is kept where it stands; a worker over its database goes on with it.")
            raise
        finally:
            await self._stop_asking()

    def warn(self, text: str) -> None:
        """A line on standard error, also where only JSON is printed. The same line is printed once."""
        from hai_flow.steps.secrets import hide_secrets

        if text not in self._warned:
            self._warned.add(text)
            self._narrator.end_line()
            err().print(join_lines(hide_secrets(text)), style="yellow")

    async def _stop_asking(self) -> None:
        if self._asking is not None:
            await cancel(self._asking[1])
            self._asking = None

    async def _follow(self, backend: Backend) -> int:
        async with contextlib.aclosing(backend.events(self._run_id)) as events:
            upcoming: asyncio.Future[dict[str, Json]] | None = None
            while True:
                upcoming = upcoming or asyncio.ensure_future(anext(events))
                await self._wait_for(upcoming)
                if self._has_left():
                    await cancel(upcoming)
                    return self._leave()
                if upcoming.done():
                    await self._take(upcoming.result())
                    upcoming = None
                    if self._status in _ENDED.values():
                        return self._end()
                if self._stands and not self._can_go_on():
                    if upcoming is not None:
                        await cancel(upcoming)
                    return self._leave()
                if self._stands:  # also when an answer is taken: the next question may have come before that was known
                    self._ask_next(backend)

    def _can_go_on(self) -> bool:
        """Whether the person at this terminal can still answer a question, or no question is open."""
        if not self._interactive or self._status == "needs_attention":
            return False
        return not self._open or any(self._is_ours(each) for each in self._open.values())

    def _is_ours(self, pending: dict[str, Json]) -> bool:
        assert self._caller is not None
        who = self._caller.who
        return pending["id"] in self._answered or may_answer(pending, who, who.id, self._roles)

    async def _wait_for(self, upcoming: asyncio.Future[Any]) -> None:
        """Until there is an event, or the person has answered."""
        asking = () if self._asking is None else (self._asking[1],)
        try:
            await asyncio.wait({upcoming, *asking}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await cancel(upcoming)
            raise

    @property
    def _stands(self) -> bool:
        """Whether only a person can move the run on."""
        return self._status in ("paused", "needs_attention") or (self._status == "waiting" and bool(self._open))

    async def _take(self, event: dict[str, Json]) -> None:
        kind = event["type"]
        if kind in ("tool_call_resolved", "pending_decided", "pending_voided"):
            await self._take_back(event.get("tool_call_id") or event["id"])
        if kind == "child_asked":
            await self._take_asked(event)
        if kind == "pending_opened":
            self._open[event["id"]] = event
        elif kind in ("pending_decided", "pending_voided"):
            self._open.pop(event["id"], None)
        elif kind in _ENDED:
            self._result = {name: event[name] for name in ("output", "error") if name in event}
        self._status = _derive_status_after(event) or self._status
        if kind == "warning_raised" and event["code"] == TRACE:
            self._traces[event["path"]] = event["message"]
        if not self._quiet:
            self._narrator.show(event)
            if kind == "run_queued":
                note(f"Which run has it: {program()} show {self._run_id}")

    async def _take_asked(self, event: dict[str, Json]) -> None:
        """Ask the question of a run below this one here, too."""
        opened = event["opened"]
        if event.get("status", "open") == "open":
            self._open[opened["id"]] = opened
        else:
            await self._take_back(opened["id"])
            self._open.pop(opened["id"], None)

    async def _take_back(self, pending_id: str) -> None:
        """Stop asking a question that was answered elsewhere, or that needs no answer any more."""
        if self._asking is not None and self._asking[0] == pending_id and pending_id not in self._answered:
            await self._stop_asking()

    # --- asking

    def _ask_next(self, backend: Backend) -> None:
        if self._asking is not None:
            return
        waiting = [each for id, each in self._open.items() if id not in self._answered and self._is_ours(each)]
        if waiting:
            self._ask(backend, waiting[0])

    def _ask(self, backend: Backend, pending: dict[str, Json]) -> None:
        if self._prompt is None:
            self._prompt = answers.Prompt()
        self._narrator.line(f"Waiting for your answer to: {question_of(pending)}", "bold")
        self._asking = (pending["id"], asyncio.create_task(self._answer(backend, pending, self._prompt)))

    async def _answer(self, backend: Backend, pending: dict[str, Json], prompt: answers.Prompt) -> None:
        """Ask until an answer is accepted, or refused because somebody else was first."""
        while True:
            body = await answers.answer(pending, prompt)
            self._answered.add(pending["id"])
            try:
                return await backend.answer(pending["id"], body)
            except (Rejected, Problem) as refusal:
                explain(refusal)
                status = refusal.status if isinstance(refusal, Rejected) else refusal.body.get("status")
                if status != 422:
                    return None
                self._answered.discard(pending["id"])

    def _has_left(self) -> bool:
        """Whether the person closed the input. Forgets a question that is over."""
        if self._asking is None or not self._asking[1].done():
            return False
        task, self._asking = self._asking[1], None
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, answers.NoMoreInput):
            raise failure
        return failure is not None

    # --- ending

    def _end(self) -> int:
        self._note_standing()
        return OK if self._status == "finished" else FAILED

    def _leave(self) -> int:
        """Leave a run that stands and can't be moved on from here."""
        self._narrator.end_line()
        self._note_standing()
        if self._quiet:
            return FAILED if self._status == "needs_attention" else WAITS
        if self._status == "needs_attention":
            note(f"When its cause is mended: {program()} retry {self._run_id}")
            return FAILED
        if self._status == "paused":
            note(f"The run is paused. To go on: {program()} resume {self._run_id}")
            return WAITS
        note(f"The run {self._run_id} waits for a person. {self._where}:")
        for pending in self._open.values():
            self._tell_how(pending)
        return WAITS

    def _tell_how(self, pending: dict[str, Json]) -> None:
        caller = self._caller
        assert caller is not None
        if caller.proven and not may_answer(pending, caller.who, caller.who.id, self._roles):
            note(f"  {question_of(pending)}: it {format_asked(pending) or 'asks others'}, not you ({caller.who.id})")
            return
        whom = None if caller.proven else as_whom(pending, caller.who.id, self._roles)
        note(f"  {program()} {answer_example(pending, act_as=whom)}")
        if hint := explain_sample(pending):
            note(f"  {hint}")
        if others := format_other_options(pending):
            note(f"  or: {others}")

    def _note_standing(self) -> None:
        if self._quiet:
            error = self._result.get("error")
            self.standing = {
                "run_id": self._run_id,
                "status": self._status,
                "output": self._result.get("output"),
                "error": error,
                "pendings": list(self._open.values()),
            }
            if isinstance(error, dict) and (trace := self._traces.get(str(error.get("path")))):
                self.standing["traceback"] = trace


def _derive_status_after(event: dict[str, Json]) -> str | None:
    """The run's status after the event; None: the event does not change it."""
    kind = event["type"]
    if kind == "turn_ended":
        # If the run has ended, the next event gives its final status.
        return None if event["reason"] in _ENDED.values() else event["reason"]
    if kind == "run_resumed":
        return event["status"]
    return _STATUS_AFTER.get(kind)


async def cancel(task: asyncio.Future[Any]) -> None:
    """Cancel `task` and wait until it is over."""
    task.cancel()
    await asyncio.wait({task})
