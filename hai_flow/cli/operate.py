"""Commands over REST: look at runs, control them, answer their questions to people."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Final, TypeVar
from urllib.parse import quote

import typer

from hai_flow import addresses
from hai_flow.cli import completion
from hai_flow.cli.answers import fields_of
from hai_flow.cli.client import Server, server_url
from hai_flow.cli.console import Cell, Styled, json_text
from hai_flow.cli.follow import TRACE, Narrator, question_of
from hai_flow.cli.history import asked_below
from hai_flow.cli.people import as_whom
from hai_flow.cli.terminal import (
    Problem,
    UsageError,
    compact,
    how_to_answer,
    indented,
    moment,
    note,
    or_else,
    out,
    print_json,
    program,
    say,
)
from hai_flow.settings import Settings
from hai_flow.values import Json

Result = TypeVar("Result")

_STYLES: Final = {
    "running": "green", "waiting": "bold", "paused": "yellow", "stopping": "yellow", "finished": "dim", "failed": "red",
    "needs_attention": "bold red", "skipped": "dim", "stopped": "dim", "undone": "dim",
}  # fmt: skip

SHOWN_EVENTS_MAX: Final = 10_000

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
ServerOption = Annotated[str | None, typer.Option("--server", metavar="URL", help="Default: HAI_FLOW_URL.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The most to show.")]
RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.", autocompletion=completion.runs),
]


def _checked_who(text: str | None) -> str | None:
    from hai_flow.engine.selectors import NotASelector, acting_as

    if text is not None:
        try:
            acting_as(text)
        except NotASelector as error:
            raise UsageError(f"--as: {error}.") from None
    return text


ActAsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="WHO",
        callback=_checked_who,
        help="Act as somebody, for trying out: user:ann,role:controller,group:money.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is recorded.")]


def ask(
    server: str | None, as_json: bool, work: Callable[[Server], Awaitable[Result]], *, act_as: str | None = None
) -> Result:
    """The result of `work` with the server. With --json a refusal is also printed as the server's problem document."""

    async def asked() -> Result:
        async with Server(server, act_as=act_as) as opened:
            return await work(opened)

    try:
        return asyncio.run(asked())
    except Problem as problem:
        if as_json:
            print_json(problem.body)
        raise


# --- looking ------------------------------------------------------------------------------------------------------


def runs(
    status: Annotated[
        list[str] | None,
        typer.Option("--status", help="Only these; may be repeated.", autocompletion=completion.statuses),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", help="Only this one's.", autocompletion=completion.workflows)
    ] = None,
    limit: LimitOption = 20,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """The runs, newest first."""

    async def work(api: Server) -> tuple[list[Json], str]:
        listed = await api.items("/v1/runs", limit, status=status or None, workflow=workflow)
        return listed, "" if as_json else await _unattended(api, listed)

    found, unattended = ask(server, as_json, work)
    if as_json:
        print_json({"items": found})
        return
    if not found:
        say("No runs.")
        return
    rows = [
        (run["id"], version_of(run), _status(_standing(run)), moment(run["created_at"]), moment(run["ended_at"]))
        for run in found
    ]
    out().table(rows, heads=("run", "workflow", "status", "created", "ended"))
    say(f"In a browser: {server_url(server)}{addresses.page('runs')}", "dim")
    if unattended:
        note(unattended)


async def _unattended(api: Server, runs: list[Json]) -> str:
    """A sentence if runs wait for a worker and none is alive. No request is sent if all of `runs` have ended."""
    if all(run["ended_at"] is not None for run in runs):
        return ""
    try:
        ready = await api.get("/readyz")
    except Problem:  # it says that in its own time
        return ""
    waiting = ready.get("waiting")
    if ready.get("workers") != 0 or not waiting:
        return ""
    waits = "run waits" if waiting == 1 else "runs wait"
    return f"{waiting} {waits} for a worker, and none is alive. Start one: {program()} worker"


def show(run: RunArgument, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """One run: its status, its steps and their times, the questions that it waits for, and commands to type next."""

    async def work(api: Server) -> Json:
        run_id = await api.run_id(run)
        found = await api.get(f"/v1/runs/{run_id}")
        try:
            snapshot = await api.get(f"/v1/runs/{run_id}/snapshot")
        except Problem as problem:
            if problem.body.get("code") != "run_unreadable":
                raise
            unreadable = found["unreadable"] or problem.body["detail"]
            return {**found, "unreadable": unreadable, "snapshot": None, "traces": {}}, [], "", "", []
        events = await _newest_events(api, run_id, found["seq"])
        source = "" if as_json else await _source(api, found)
        unattended = "" if as_json else await _unattended(api, [found])
        shown = {**found, "snapshot": snapshot, "traces": _traces(events, snapshot["steps"])}
        return shown, events, source, unattended, [] if as_json else await _untold(api, run_id)

    found, events, source, unattended, untold = ask(server, as_json, work)
    if as_json:
        print_json(found)
        return
    _show_facts(found, found["snapshot"])
    if found["snapshot"] is not None:
        _show_steps(found, events, source)
    for path, trace in found["traces"].items():
        say(f"{path} raised:", "red")
        say(indented(trace), "dim")
    waiting = [each for each in (found["snapshot"] or {}).get("pendings", ()) if each["status"] == "open"]
    if found["ended_at"] is None:
        waiting += asked_below(events)
    for pending in waiting:
        show_question(pending, found["started_by"])
    for each in untold:
        whom = f"{each['channel']} to {each['person']}" if each["person"] else each["channel"]
        say(f"not told over {whom}, after {each['tries']} tries: {each['error']}", "yellow")
    for line in next_commands(found, waiting, _awaited(events, found["snapshot"])):
        say(line)
    say(f"In a browser: {server_url(server)}{addresses.run(found['id'])}", "dim")
    if unattended:
        note(unattended)


async def _untold(api: Server, run_id: str) -> list[Json]:
    """The notifications of the run that were given up."""
    try:
        return await api.items("/v1/notifications", 10, run_id=run_id, status="dead")
    except Problem:  # a caller that may see the run, but not all runs
        return []


async def _newest_events(api: Server, run_id: str, seq: int) -> list[Json]:
    """The run's events, without the first of them where there are too many."""
    found: list[Json] = []
    after: int | str | None = max(0, seq - SHOWN_EVENTS_MAX)
    while after is not None:
        page = await api.get(f"/v1/runs/{run_id}/events", after=after, limit=1000)
        found += page["items"]
        after = page["next_cursor"]
    return found


async def _source(api: Server, run: Json) -> str:
    """The workflow as written; nothing where the server has it no more."""
    try:
        return (await api.get(f"/v1/workflows/{quote(version_of(run), safe='@')}"))["source"]
    except Problem:
        return ""


def _traces(events: list[Json], steps: dict[str, Json]) -> dict[str, str]:
    """The place in its code where each failed step's tool failed last, by the step's path."""
    return {
        event["path"]: event["message"]
        for event in events
        if event["type"] == "warning_raised"
        and event["code"] == TRACE
        and (steps.get(event.get("path") or "") or {}).get("error")
    }


def _awaited(events: list[Json], snapshot: Json) -> list[str]:
    """The types of the signals that the run waits for."""
    steps = (snapshot or {}).get("steps") or {}
    types = {
        event["path"]: event["types"]
        for event in events
        if event["type"] == "signals_awaited" and (steps.get(event["path"]) or {}).get("status") == "waiting"
    }
    return sorted({each for some in types.values() for each in some})


def next_commands(run: Json, waiting: list[Json], awaited: list[str]) -> Iterator[str]:
    """The next commands to type. Questions in `waiting` show their own commands; `awaited` are types of signals."""
    id, status = run["id"], run["status"]
    if run["unreadable"]:
        return
    if status == "paused":
        yield f"Next: {program()} resume {id}"
    elif status in ("failed", "needs_attention"):
        yield f"When its cause is mended: {program()} retry {id}"
    elif status in ("running", "stopping", "queued"):
        yield f"Next: {program()} events {id} --follow"
    elif status == "waiting":
        yield from (f"Next: {program()} signal {id} {shlex.quote(each)}" for each in awaited)
        if not awaited and not waiting:
            yield f"It goes on by itself: {program()} events {id} --follow"


def _standing(run: Json) -> str:
    """The run's status in a list: a run that can't be read needs attention, whatever its stored status is."""
    return "needs_attention" if run["unreadable"] else run["status"]


def _show_facts(run: Json, snapshot: Json) -> None:
    facts: dict[str, Cell] = {
        "run": run["id"],
        "workflow": version_of(run),
        "thread": run["thread_id"],
        "branch of": run["branch_of"] or "",
        "status": _status(run["status"]),
        "unreadable": run["unreadable"] or "",
        "started": f"{moment(run['created_at'])} by {run['started_by']}",
        "origin": _origin(snapshot),
        "ended": moment(run["ended_at"]),
        "events": str(run["seq"]),
        "input": compact(run["input"], 1000),
        "state": compact(snapshot["state"], 1000) if snapshot and snapshot["state"] else "",
        "output": "" if run["output"] is None else compact(run["output"], 1000),
        "error": _failure(run["error"]) if run["error"] else "",
    }
    out().table([(Styled(name, "dim"), value) for name, value in facts.items() if value])


def _origin(snapshot: Json) -> str:
    """The run that made this one start, in words."""
    origin = snapshot.get("origin") if snapshot else None
    if not origin:
        return ""
    return (
        f"step {origin['path']} of run {origin['run_id']}" if origin["path"] else f"the end of run {origin['run_id']}"
    )


def _show_steps(run: Json, events: list[Json], source: str) -> None:
    from hai_flow.cli import history

    if run["seq"] > SHOWN_EVENTS_MAX:
        say(f"Of its {run['seq']} events these are the newest; all of them: {program()} events {run['id']}", "dim")
    statuses = {path: step["status"] for path, step in run["snapshot"]["steps"].items()}
    lines = history.lines_of(events, statuses, history.words_of(source))
    rows = [
        (moment(each.begun), each.took, "  " * each.depth + each.words, _status(each.status), each.note)
        for each in lines
    ]
    if rows:
        out().table(rows, heads=("began", "took", "step", "status", "why, or what came of it"))


def show_question(pending: Json, started_by: str | None) -> None:
    say(f"? {question_of(pending)}", "bold")
    if pending.get("message"):
        say(indented(pending["message"]))
    shown = pending.get("args") if pending["kind"] == "gate" else pending.get("evidence")
    if shown is not None:
        say(f"  {compact(shown, 1000)}")
    if fields := fields_of(pending.get("schema")):
        say(f"  values: {fields}", "dim")
    if asked := _asked(pending.get("policy") or {}):
        say(f"  {asked}", "dim")
    for vote in (pending.get("needed") or {}).get("votes") or ():
        say(f"  {vote['by']} has voted {vote['decision']}", "dim")
    # A server that takes keys does not believe HAI-Act-As.
    whom = as_whom(pending, started_by) if Settings.from_environment().key is None else None
    say(f"  {program()} {how_to_answer(pending, act_as=whom)}")
    if others := or_else(pending):
        say(f"  or: {others}", "dim")


def _asked(policy: dict[str, Json]) -> str:
    """The selectors of the people that may answer, and the number that must."""
    people = ", ".join(policy.get("from") or ())
    people += f" without {', '.join(policy['exclude'])}" if policy.get("exclude") else ""
    quorum = policy.get("quorum", 1)
    if isinstance(quorum, dict):
        seats = (f"{count} in all" if who == "any" else f"{count} of {who}" for who, count in quorum.items())
        needs = f"; needs {', '.join(seats)}"
    else:
        needs = "" if quorum == 1 else f"; needs {quorum} of them"
    return f"asks {people}{needs}" if people else ""


def events(
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Only the events after this number.")] = 0,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """The events of a run; with --json one event a line."""
    write = write_line if as_json else Narrator(out(), stamps=True).show

    async def work(api: Server) -> None:
        run_id = await api.run_id(run)
        if follow:
            async for event in api.events(run_id, after):
                write(event)
            return
        seq: int | str | None = after
        while seq is not None:
            page = await api.get(f"/v1/runs/{run_id}/events", after=seq, limit=1000)
            for event in page["items"]:
                write(event)
            seq = page["next_cursor"]

    ask(server, as_json, work)


def write_line(event: Json) -> None:
    """One event as a line of JSON, at once."""
    sys.stdout.write(json_text(event) + "\n")
    sys.stdout.flush()


# --- people -------------------------------------------------------------------------------------------------------


def pendings(limit: LimitOption = 50, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """The questions that wait for people, newest first, and how to answer them."""

    async def work(api: Server) -> list[Json]:
        listed = await api.items("/v1/pendings", limit)
        return [await _with_votes(api, each) for each in listed]

    found = ask(server, as_json, work)
    if as_json:
        print_json({"items": found})
        return
    if not found:
        say("Nothing waits for people.")
    if found:
        say(f"In a browser: {server_url(server)}{addresses.page('inbox')}", "dim")
    for pending in found:
        show_question(pending, pending.get("started_by"))
        deadline = f", until {moment(pending['deadline'])}" if pending["deadline"] else ""
        workflow = f"{pending['workflow']}, " if pending.get("workflow") else ""
        place = f"{workflow}run {pending['run_id']}, {pending['path']}"
        say(f"  {place}, since {moment(pending['opened_at'])}{deadline}", "dim")


async def _with_votes(api: Server, pending: Json) -> Json:
    """The pending, with its votes if it needs several: so that the next voter sees the right command to type."""
    if (pending["policy"] or {}).get("quorum", 1) == 1:
        return pending
    try:
        return {**pending, "needed": (await api.get(f"/v1/pendings/{pending['id']}"))["needed"]}
    except Problem:  # it is gone since
        return pending


def decide(
    pending: Annotated[
        str, typer.Argument(metavar="PENDING", help="The pending's id.", autocompletion=completion.pendings)
    ],
    decision: Annotated[
        str | None, typer.Argument(metavar="DECISION", help="approve, reject, or another of its options.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; it is recorded.")] = None,
    values: Annotated[str | None, typer.Option("--values", metavar="JSON", help="The form's values.")] = None,
    edits: Annotated[str | None, typer.Option("--edits", metavar="JSON", help="Arguments of a call, changed.")] = None,
    result: Annotated[str | None, typer.Option("--result", metavar="JSON", help="A frontend tool's result.")] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Why the tool gives no result.")] = None,
    on_behalf_of: Annotated[
        str | None, typer.Option("--for", metavar="USER", help="Somebody who has delegated to you.")
    ] = None,
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question to people: approve or reject, fill in a form, or give a frontend tool's result."""
    body: dict[str, Json] = {
        "decision": decision, "reason": reason, "error": error, "on_behalf_of": on_behalf_of
    }  # fmt: skip
    body = {name: value for name, value in body.items() if value is not None}
    for name, text in (("values", values), ("edits", edits), ("result", result)):
        if text is not None:
            body[name] = parse_json(text, f"--{name}")
    if not body.keys() - {"reason", "edits", "on_behalf_of"}:
        raise UsageError("expected an answer: a decision (approve, reject), --values, --result or --error.")

    async def work(api: Server) -> Json:
        return await api.post(f"/v1/pendings/{pending}/decide", body)

    answered = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json(answered)
        return
    already = " already" if answered.get("already") else ""
    if answered["status"] == "open":
        say(f"Recorded{already}; more people must decide before it counts.")
    else:
        say(f"{answered['path']}: {answered['status']}{already}. The run is {answered['run_id']}.", "green")


def parse_json(text: str, place: str) -> Json:
    """`text` as JSON. Raises UsageError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{place}: expected JSON, found {text[:80]!r} ({error}). Put text in double quotes.") from None


# --- control ------------------------------------------------------------------------------------------------------


def pause(
    run: RunArgument,
    reason: ReasonOption = "",
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let no new step start; answers and timers are kept until `resume`."""
    _control(run, "pause", {"reason": reason}, act_as, server, as_json)


def resume(
    run: RunArgument, act_as: ActAsOption = None, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Go on after a pause."""
    _control(run, "resume", None, act_as, server, as_json)


def stop(
    run: RunArgument,
    reason: ReasonOption = "",
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a run: its running steps are cancelled and have some time to clean up."""
    _control(run, "stop", {"reason": reason}, act_as, server, as_json)


def terminate(
    run: RunArgument,
    reason: ReasonOption = "",
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """End at once; results that come later are not recorded."""
    _control(run, "terminate", {"reason": reason}, act_as, server, as_json)


def retry(
    run: RunArgument, act_as: ActAsOption = None, server: ServerOption = None, as_json: JsonOption = False
) -> None:
    """Go on from the step that failed."""
    _control(run, "retry", None, act_as, server, as_json)


def _control(run: str, verb: str, body: Json, act_as: str | None, server: str | None, as_json: bool) -> None:
    async def work(api: Server) -> Json:
        return await api.post(f"/v1/runs/{await api.run_id(run)}/{verb}", body)

    answered = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json(answered)
        return
    in_flight = f", {answered['in_flight']} attempts in flight" if answered.get("in_flight") else ""
    say(f"{answered['id']} is {answered['status']}{in_flight}.", "green")


# --- how things look ----------------------------------------------------------------------------------------------


def version_of(run: Json) -> str:
    """`chat@1`, or `chat@1+3f2a9c11` for a copy that was loaded while it is edited."""
    version = run["version"]
    return f"{run['workflow']}@{version['version']}" + (f"+{version['sha256'][:8]}" if version["dev"] else "")


def _status(status: str) -> Styled:
    return Styled(status, _STYLES.get(status, ""))


def _failure(error: Json) -> str:
    return f"{error['code']}: {error['message']}"
