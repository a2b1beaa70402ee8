"""`run`: one workflow file, started and followed in the terminal, which is also where its questions are answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hai_flow.cli import answers
from hai_flow.cli.backend import Backend, Local, Remote
from hai_flow.cli.client import Server, ask
from hai_flow.cli.database import migrated, open_database
from hai_flow.cli.errors import FAILED, INTERRUPTED, OK, WAITS, Problem, UsageError, explain, print_definition_error
from hai_flow.cli.follow import Narrator
from hai_flow.cli.living import live
from hai_flow.cli.logs import configure_logs
from hai_flow.cli.options import ActAsOption, DataDirOption, load_settings
from hai_flow.cli.people import as_whom, may_answer, principal
from hai_flow.cli.questions import how_to_answer, or_else, question_of
from hai_flow.cli.running import running_runtime
from hai_flow.cli.sources import STDIN, read, whole
from hai_flow.cli.terminal import note, out, print_json, program
from hai_flow.errors import DefinitionError, Rejected
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.definition.plan import Schema


_ENDED: Final = {"run_finished": "finished", "run_failed": "failed", "run_stopped": "stopped"}
_STATUS_AFTER: Final = {
    **_ENDED,
    "turn_started": "running",
    "run_paused": "paused",
    "run_needs_attention": "needs_attention",
}


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The workflow, or - for standard input.")],
    given: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="KEY=VALUE", help="One input; may be repeated.")
    ] = None,
    given_json: Annotated[
        str | None, typer.Option("--input-json", metavar="JSON", help="The inputs as one JSON object.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="ID", help="The conversation it belongs to.")
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Let this server perform it, instead of this process.")
    ] = None,
    data_dir: DataDirOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Let a server perform it, and return as soon as it is started.")
    ] = False,
    act_as: ActAsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only how it stands at the end, as JSON.")] = False,
) -> None:
    """Start a workflow file and follow it here; answer its questions here.

    Without a terminal, or with --json, it prints how to answer each open question, and exits with 3.
    """
    name = "<stdin>" if file == STDIN else file
    source = whole(name, sys.stdin.buffer.read() if file == STDIN else read(Path(file)))
    schema = _input_schema(source, name)
    input = inputs(schema.raw if isinstance(schema.raw, dict) else {}, given or [], given_json)
    check_input(schema, input)
    if detach:
        _detached(name, source, input, thread, server, data_dir, act_as, as_json=as_json)
        return
    interactive = not as_json and file != STDIN and sys.stdin.isatty() and sys.stdout.isatty()
    conversation = Conversation(
        name,
        source,
        input,
        thread,
        where=_where(server, data_dir),
        interactive=interactive,
        quiet=as_json,
        act_as=act_as,
    )
    raise typer.Exit(_converse(conversation, server, data_dir, act_as))


def _converse(conversation: Conversation, server: str | None, data_dir: Path | None, act_as: str | None) -> int:
    if server is not None:
        return live(lambda: _on_server(conversation, server, act_as), interrupted=INTERRUPTED)
    settings = load_settings(data_dir=data_dir)
    configure_logs("error", settings.logs)
    with open_database(settings, interrupted=INTERRUPTED) as database:

        async def here() -> int:
            if database.postgres is not None:
                await migrated(database)
            async with running_runtime(database, settings, performs=True, project=True) as runtime:
                return await conversation.hold(Local(runtime, act_as=act_as))

        return live(here, interrupted=INTERRUPTED)


def _detached(
    name: str,
    source: bytes,
    input: dict[str, Json],
    thread: str | None,
    server: str | None,
    data_dir: Path | None,
    act_as: str | None,
    *,
    as_json: bool,
) -> None:
    """Start the run at a server; print its id, and how to follow and answer it."""
    if data_dir is not None:
        raise UsageError("--detach: expected a server that performs the run (--server or HAI_FLOW_URL), no --data-dir.")

    async def work(api: Server) -> tuple[str, Json]:
        backend = Remote(api)
        reference = await backend.publish(source, name)
        return reference, await api.get(f"/v1/runs/{await backend.start(reference, input, thread)}")

    reference, begun = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json({"run_id": begun["id"], "status": begun["status"], "output": None, "error": None, "pendings": []})
        return
    at = "" if server is None else f" --server {shlex.quote(server)}"
    note(f"{reference} is started. To follow it, and to see and answer what it asks:")
    note(f"  {program()} events {begun['id']} --follow{at}")
    note(f"  {program()} pendings{at}")
    out().print(begun["id"])


async def _on_server(conversation: Conversation, url: str, act_as: str | None) -> int:
    async with Server(url, act_as=act_as) as server:
        return await conversation.hold(Remote(server))


def _where(server: str | None, data_dir: Path | None) -> str:
    """Where the run can be answered when this process has ended."""
    if server is not None:
        return f"Answer it with HAI_FLOW_URL={server}"
    place = "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
    return f"Answer it at a server over the same database ({program()} dev{place})"


# --- the input ----------------------------------------------------------------------------------------------------


def _input_schema(source: bytes, name: str) -> Schema:
    """The schema of the workflow's input. A workflow with mistakes is shown with them, and not run."""
    from hai_flow.definition.compiler import compile_workflow

    try:
        plan = compile_workflow(source, name)
    except DefinitionError as error:
        print_definition_error(error.findings, name, source)
        raise typer.Exit(FAILED) from None
    return plan.input


def check_input(schema: Schema, input: dict[str, Json]) -> None:
    """Raises UsageError for an input that the run would be refused with: before a database is opened for it."""
    from hai_flow.cli.samples import as_options, sample_input

    faults = schema.findings(schema.with_defaults(input))
    if not faults:
        return
    told = "; ".join(f"{fault['path']}: {fault['message']}" if fault["path"] else fault["message"] for fault in faults)
    sample = sample_input(schema)
    example = f", for example{as_options(sample)}" if sample else ""
    raise UsageError(f"the input does not fit: {told}. Give it as -i KEY=VALUE or --input-json JSON{example}.")


def inputs(schema: dict[str, Json], given: list[str], given_json: str | None) -> dict[str, Json]:
    """The run's input: the JSON object with each KEY=VALUE on top. A value is JSON unless its field is text.

    Raises UsageError.
    """
    found: Json = {}
    if given_json is not None:
        try:
            found = json.loads(given_json)
        except ValueError as error:
            raise UsageError(f"--input-json: expected JSON: {error}.") from None
        if not isinstance(found, dict):
            raise UsageError("--input-json: expected a JSON object.")
    for item in given:
        key, separator, text = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--input: expected KEY=VALUE, found {item!r}.")
        field = (schema.get("properties") or {}).get(key)
        found[key] = answers.tool_result(text, field if isinstance(field, dict) else {})
    return found


# --- the conversation ---------------------------------------------------------------------------------------------


class Conversation:
    """One run from its start to its end, or until it waits for a person elsewhere."""

    def __init__(
        self,
        name: str,
        source: bytes,
        input: dict[str, Json],
        thread: str | None,
        *,
        where: str,
        interactive: bool,
        quiet: bool,
        act_as: str | None = None,
    ) -> None:
        self._who = principal(act_as)
        self._name = name
        self._source = source
        self._input = input
        self._thread = thread
        self._where = where
        self._interactive = interactive
        self._quiet = quiet
        self._narrator = Narrator(out())
        self._open: dict[str, dict[str, Json]] = {}  # pendings, in the order in which they were opened
        self._answered: set[str] = set()  # by us
        self._status = "running"
        self._result: dict[str, Json] = {}
        self._run_id = ""
        self._prompt: answers.Prompt | None = None
        self._asking: tuple[str, asyncio.Task[None]] | None = None

    async def hold(self, backend: Backend) -> int:
        """Publish, start and follow; the exit code."""
        try:
            reference = await backend.publish(self._source, self._name)
        except DefinitionError as error:
            print_definition_error(error.findings, self._name, self._source)
            return FAILED
        self._run_id = await backend.start(reference, self._input, self._thread)
        if not self._quiet:
            note(f"{reference}, run {self._run_id}")
        try:
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

    async def _stop_asking(self) -> None:
        if self._asking is not None:
            await cancelled(self._asking[1])
            self._asking = None

    async def _follow(self, backend: Backend) -> int:
        async with contextlib.aclosing(backend.events(self._run_id)) as events:
            upcoming: asyncio.Future[dict[str, Json]] | None = None
            while True:
                upcoming = upcoming or asyncio.ensure_future(anext(events))
                await self._wait_for(upcoming)
                if self._has_left():
                    await cancelled(upcoming)
                    return self._leave()
                if not upcoming.done():
                    continue
                await self._take(upcoming.result())
                upcoming = None
                if self._status in _ENDED.values():
                    return self._end()
                if self._stands and not self._can_go_on():
                    return self._leave()
                if self._stands:
                    self._ask_next(backend)

    def _can_go_on(self) -> bool:
        """Whether the person at this terminal can still answer a question, or no question is open."""
        if not self._interactive or self._status == "needs_attention":
            return False
        return not self._open or any(self._is_ours(each) for each in self._open.values())

    def _is_ours(self, pending: dict[str, Json]) -> bool:
        return pending["id"] in self._answered or may_answer(pending, self._who, self._who.id)

    async def _wait_for(self, upcoming: asyncio.Future[Any]) -> None:
        """Until there is an event, or the person has answered."""
        asking = () if self._asking is None else (self._asking[1],)
        try:
            await asyncio.wait({upcoming, *asking}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await cancelled(upcoming)
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
        self._status = _status_after(event) or self._status
        if not self._quiet:
            self._narrator.show(event)

    async def _take_asked(self, event: dict[str, Json]) -> None:
        """Ask the question of a run below this one here, too."""
        asked = event["opened"]
        if event.get("status", "open") == "open":
            self._open[asked["id"]] = asked
        else:
            await self._take_back(asked["id"])
            self._open.pop(asked["id"], None)

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
        self._print_standing()
        return OK if self._status == "finished" else FAILED

    def _leave(self) -> int:
        """Leave a run that stands and can't be moved on from here."""
        self._narrator.end_line()
        self._print_standing()
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
            whom = as_whom(pending, self._who.id)
            note(f"  {program()} {how_to_answer(pending, act_as=whom)}")
            if others := or_else(pending):
                note(f"  or: {others}")
        return WAITS

    def _print_standing(self) -> None:
        if self._quiet:
            print_json(
                {
                    "run_id": self._run_id,
                    "status": self._status,
                    "output": self._result.get("output"),
                    "error": self._result.get("error"),
                    "pendings": list(self._open.values()),
                }
            )


def _status_after(event: dict[str, Json]) -> str | None:
    """The run's status after the event; None: the event does not change it."""
    kind = event["type"]
    if kind == "turn_ended":
        # If the run has ended, the next event gives its final status.
        return None if event["reason"] in _ENDED.values() else event["reason"]
    if kind == "run_resumed":
        return event["status"]
    return _STATUS_AFTER.get(kind)


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel `task` and wait until it is over."""
    task.cancel()
    await asyncio.wait({task})
