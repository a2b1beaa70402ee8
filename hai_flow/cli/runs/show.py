"""Commands over REST that look at runs: `runs` (with `runs migrate` below it), `show`, `events`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote

import typer

from hai_flow import addresses
from hai_flow.cli.client.eligible import NO_ROLES, roles_of_source
from hai_flow.cli.client.questions import show_question
from hai_flow.cli.client.rest import RemoteOptions, Server, server_url
from hai_flow.cli.commands import app_of
from hai_flow.cli.console import Cell, Styled
from hai_flow.cli.errors import Problem
from hai_flow.cli.options import LimitOption, OfWorkflowOption, RunArgument, StatusesOption
from hai_flow.cli.runs.follow import TRACE, Narrator
from hai_flow.cli.runs.history import list_questions_below
from hai_flow.cli.runs.migrate import migrate
from hai_flow.cli.runs.why_waiting import (
    HOLDERS_MAX,
    describe_pause,
    describe_stop,
    describe_worker,
    find_key_awaited,
    holding,
    limit_of,
    map_ends_of_waits,
)
from hai_flow.cli.terminal import (
    compact,
    failure_text,
    format_version,
    indent,
    moment,
    note,
    out,
    print_json,
    program,
    say,
    write_line,
)
from hai_flow.values import Json

_STYLES: Final = {
    "running": "green", "waiting": "bold", "paused": "yellow", "stopping": "yellow", "finished": "dim", "failed": "red",
    "needs_attention": "bold red", "skipped": "dim", "stopped": "dim", "undone": "dim",
}  # fmt: skip

SHOWN_EVENTS_MAX: Final = 10_000


app = app_of(name="runs")
app.command()(migrate)


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    remote: RemoteOptions,
    status: StatusesOption = None,
    workflow: OfWorkflowOption = None,
    limit: LimitOption = 20,
) -> None:
    """List runs, newest first; `runs migrate` moves runs to another version of their workflow."""
    if context.invoked_subcommand is not None:
        return

    async def work(api: Server) -> tuple[list[Json], str]:
        listed = await api.items("/v1/runs", limit, status=status or None, workflow=workflow)
        if workflow and not listed and not remote.as_json:
            return listed, await _explain_none(api, workflow)
        return listed, "" if remote.as_json else await _explain_unattended(api, listed)

    items, unattended = remote.ask(work)
    if remote.as_json:
        print_json({"items": items})
        return
    if not items:
        say(f"No runs match{unattended or '.'}" if status or workflow else "No runs.")
        return
    rows = [
        (
            run["id"],
            format_version(run),
            _status("needs_attention" if run["unreadable"] else run["status"]),
            moment(run["created_at"]),
            moment(run["ended_at"]),
            run.get("summary") or "",
        )
        for run in items
    ]
    columns = slice(None) if any(row[-1] for row in rows) else slice(-1)
    out().table(
        [row[columns] for row in rows], heads=("run", "workflow", "status", "created", "ended", "summary")[columns]
    )
    say(f"In a browser: {server_url(remote.server)}{addresses.page('runs')}", "dim")
    if unattended:
        note(unattended)


async def _explain_none(api: Server, workflow: str) -> str:
    """A sentence where there is no such workflow, as far as the caller may know."""
    try:
        await api.get(f"/v1/workflows/{quote(workflow, safe='')}")
    except Problem as problem:
        return f": {problem}" if problem.code == "workflow_unknown" else ""
    return ""


async def _explain_unattended(api: Server, runs: list[Json]) -> str:
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


def show(run: RunArgument, remote: RemoteOptions) -> None:
    """One run: its status, its steps and their times, the questions that it waits for, and commands to type next."""

    async def work(api: Server) -> Json:
        run_id = await api.run_id(run)
        run_row = await api.get(f"/v1/runs/{run_id}")
        try:
            snapshot = await api.get(f"/v1/runs/{run_id}/snapshot")
        except Problem as problem:
            if problem.body.get("code") != "run_unreadable":
                raise
            unreadable = run_row["unreadable"] or problem.body["detail"]
            return {**run_row, "unreadable": unreadable, "snapshot": None, "traces": {}}, [], "", "", []
        newest = max(0, run_row["seq"] - SHOWN_EVENTS_MAX)
        events = [event async for event in api.log(run_id, newest)]
        source = "" if remote.as_json else await _source(api, run_row)
        unattended = "" if remote.as_json else await _explain_unattended(api, [run_row])
        facts = {**run_row, "snapshot": snapshot, "traces": _traces(events, snapshot["steps"])}
        return facts, events, source, unattended, [] if remote.as_json else await _untold(api, run_id)

    run_facts, events, source, unattended, untold = remote.ask(work)
    if remote.as_json:
        print_json(run_facts)
        return
    _show_facts(run_facts, run_facts["snapshot"], events)
    if run_facts["snapshot"] is not None:
        _show_steps(run_facts, events, source)
    for path, trace in run_facts["traces"].items():
        say(f"{path} raised:", "red")
        say(indent(trace), "dim")
    waiting = [each for each in (run_facts["snapshot"] or {}).get("pendings", ()) if each["status"] == "open"]
    if run_facts["ended_at"] is None:
        waiting += list_questions_below(events)
    roles = roles_of_source(source.encode()) if waiting else NO_ROLES
    for pending in waiting:
        show_question(pending, run_facts["started_by"], roles)
    for each in untold:
        whom = f"{each['channel']} to {each['person']}" if each["person"] else each["channel"]
        say(f"not told over {whom}, after {each['tries']} tries: {each['error']}", "yellow")
    for line in next_commands(run_facts, waiting, _signals_awaited(events, run_facts["snapshot"])):
        say(line)
    say(f"In a browser: {server_url(remote.server)}{addresses.run(run_facts['id'])}", "dim")
    if unattended:
        note(unattended)


async def _untold(api: Server, run_id: str) -> list[Json]:
    """The notifications of the run that were given up."""
    try:
        return await api.items("/v1/notifications", 10, run_id=run_id, status="dead")
    except Problem:  # a caller that may see the run, but not all runs
        return []


async def _source(api: Server, run: Json) -> str:
    """The workflow as written; nothing where the server has it no more."""
    try:
        return (await api.get(f"/v1/workflows/{quote(format_version(run), safe='@')}"))["source"]
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


def _signals_awaited(events: list[Json], snapshot: Json) -> list[str]:
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
    elif status == "queued" and run.get("queued_for"):
        for each in run["queued_for"]["holders"][:HOLDERS_MAX]:
            yield f"The run before it: {program()} show {each['run_id']}"
        yield f"It begins by itself: {program()} events {id} --follow"
    elif status in ("running", "stopping", "queued"):
        yield f"Next: {program()} events {id} --follow"
    elif status == "waiting":
        yield from (f"Next: {program()} signal {id} {shlex.quote(each)}" for each in awaited)
        if not awaited and not waiting:
            yield f"It goes on by itself: {program()} events {id} --follow"


def _show_facts(run: Json, snapshot: Json, events: list[Json]) -> None:
    limit = limit_of(snapshot) if snapshot and run["ended_at"] is None else ""
    facts: dict[str, Cell] = {
        "run": run["id"],
        "workflow": format_version(run),
        "summary": run.get("summary") or "",
        "thread": run["thread_id"],
        "branch of": run["branch_of"] or "",
        "status": _status(run["status"]),
        "waits for": find_key_awaited(run),
        "held by": holding(run),
        "worker": describe_worker(run),
        "paused": describe_pause(run),
        "stopped": describe_stop(run, events),
        "ends by": limit,
        "unreadable": run["unreadable"] or "",
        "started": f"{moment(run['created_at'])} by {run['started_by']}",
        "origin": _origin(snapshot),
        "ended": moment(run["ended_at"]),
        "events": str(run["seq"]),
        "input": compact(run["input"], 1000),
        "state": compact(snapshot["state"], 1000) if snapshot and snapshot["state"] else "",
        "output": "" if run["output"] is None else compact(run["output"], 1000),
        "error": failure_text(run["error"]) if run["error"] else "",
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
    from hai_flow.cli.runs import history

    if run["seq"] > SHOWN_EVENTS_MAX:
        say(f"Of its {run['seq']} events these are the newest; all of them: {program()} events {run['id']}", "dim")
    statuses = {path: step["status"] for path, step in run["snapshot"]["steps"].items()}
    lines = history.build_lines(
        events, statuses, history.words_of(source), map_ends_of_waits(run["snapshot"]), datetime.now(UTC).isoformat()
    )
    rows = [
        (moment(each.began_at), each.took, "  " * each.depth + each.words, _status(each.status), each.note)
        for each in lines
    ]
    if rows:
        out().table(rows, heads=("began", "took", "step", "status", "why, or what came of it"))


def events(
    run: RunArgument,
    remote: RemoteOptions,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the run until it ends.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Only events after this number.")] = 0,
) -> None:
    """The events of a run; with --json one event a line."""
    write = write_line if remote.as_json else Narrator(out(), stamps=True).show

    async def work(api: Server) -> None:
        run_id = await api.run_id(run)
        source = api.events(run_id, after) if follow else api.log(run_id, after)
        async for event in source:
            write(event)

    remote.ask(work)


# --- how things look ----------------------------------------------------------------------------------------------


def _status(status: str) -> Styled:
    return Styled(status, _STYLES.get(status, ""))
