"""Commands over REST: look at runs, control them, answer what waits for people."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import typer

from hai_flow.cli.answers import fields_of
from hai_flow.cli.client import Server
from hai_flow.cli.console import Cell, Styled
from hai_flow.cli.follow import TRACE, Narrator, question_of
from hai_flow.cli.terminal import (
    Problem,
    UsageError,
    compact,
    how_to_answer,
    indented,
    out,
    print_json,
    program,
    say,
)

Json: TypeAlias = Any
Result = TypeVar("Result")

_STYLES: Final = {
    "running": "green", "waiting": "bold", "paused": "yellow", "stopping": "yellow", "finished": "dim", "failed": "red",
    "needs_attention": "bold red",
}  # fmt: skip

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
ServerOption = Annotated[str | None, typer.Option("--server", metavar="URL", help="Default: HAI_FLOW_URL.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The most to show.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.")]


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
    """What `work` gets from the server. With --json a refusal is also printed as the problem that it came as."""

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
    status: Annotated[list[str] | None, typer.Option("--status", help="Only these; may be repeated.")] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", help="Only this one's.")] = None,
    limit: LimitOption = 20,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """The runs, newest first."""

    async def work(api: Server) -> list[Json]:
        return await api.items("/v1/runs", limit, status=status or None, workflow=workflow)

    found = ask(server, as_json, work)
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


def show(run: RunArgument, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """One run: where it stands, what it did, what it waits for."""

    async def work(api: Server) -> tuple[Json, Json, dict[str, str]]:
        run_id = await api.run_id(run)
        found = await api.get(f"/v1/runs/{run_id}")
        try:
            snapshot = await api.get(f"/v1/runs/{run_id}/snapshot")
        except Problem as problem:
            if problem.body.get("code") != "run_unreadable":
                raise
            return {**found, "unreadable": found["unreadable"] or problem.body["detail"]}, None, {}
        return found, snapshot, await _traces(api, run_id, snapshot["steps"])

    found, snapshot, traces = ask(server, as_json, work)
    if as_json:
        print_json({**found, "snapshot": snapshot, "traces": traces})
        return
    _show_facts(found, snapshot)
    if snapshot is None:
        return
    _show_steps(snapshot["steps"])
    for path, trace in traces.items():
        say(f"{path} raised:", "red")
        say(indented(trace), "dim")
    waiting = [pending for pending in snapshot["pendings"] if pending["status"] == "open"]
    for pending in waiting:
        _show_question(pending)


async def _traces(api: Server, run_id: str, steps: dict[str, Json]) -> dict[str, str]:
    """Where the tools of the steps that failed did so for the last time, by the step's path."""
    failed = {path for path, step in steps.items() if step.get("error")}
    found: dict[str, str] = {}
    seq: int | None = 0 if failed else None
    while seq is not None:
        page = await api.get(f"/v1/runs/{run_id}/events", after=seq, limit=1000)
        for event in page["items"]:
            if event["type"] == "warning_raised" and event["code"] == TRACE and event["path"] in failed:
                found[event["path"]] = event["message"]
        seq = page["next_cursor"]
    return found


def _standing(run: Json) -> str:
    """The run's status in a list: a run that nobody can read needs attention, whatever it says of itself."""
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


def _show_steps(steps: dict[str, Json]) -> None:
    if not steps:
        return
    rows: list[tuple[Cell, ...]] = []
    for path, step in steps.items():
        result = _failure(step["error"]) if step.get("error") else compact(step["output"]) if step.get("output") else ""
        rows.append((path, _status(step["status"]), str(step["attempt"] or ""), result))
    out().table(rows, heads=("step", "status", "attempt", "output"))


def _show_question(pending: Json) -> None:
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
    say(f"  {program()} decide {pending['id']} {how_to_answer(pending)}")


def _asked(policy: dict[str, Json]) -> str:
    """Who may answer, and how many must."""
    people = ", ".join(policy.get("from") or ())
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
    """What happened in a run; with --json one event a line."""
    write = _write_line if as_json else Narrator(out()).show

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


def _write_line(event: Json) -> None:
    sys.stdout.write(json.dumps(event, ensure_ascii=False) + "\n")
    sys.stdout.flush()


# --- people -------------------------------------------------------------------------------------------------------


def pendings(limit: LimitOption = 50, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """What waits for people, newest first, and how to answer it."""

    async def work(api: Server) -> list[Json]:
        return await api.items("/v1/pendings", limit)

    found = ask(server, as_json, work)
    if as_json:
        print_json({"items": found})
        return
    if not found:
        say("Nothing waits for people.")
    for pending in found:
        _show_question(pending)
        deadline = f", until {moment(pending['deadline'])}" if pending["deadline"] else ""
        say(f"  run {pending['run_id']}, {pending['path']}, since {moment(pending['opened_at'])}{deadline}", "dim")


def decide(
    pending: Annotated[str, typer.Argument(metavar="PENDING", help="The pending's id.")],
    decision: Annotated[
        str | None, typer.Argument(metavar="DECISION", help="approve, reject, or another of its options.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; it is recorded.")] = None,
    values: Annotated[str | None, typer.Option("--values", metavar="JSON", help="The form's values.")] = None,
    edits: Annotated[str | None, typer.Option("--edits", metavar="JSON", help="Arguments of a call, changed.")] = None,
    result: Annotated[str | None, typer.Option("--result", metavar="JSON", help="A frontend tool's result.")] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Why the tool gives no result.")] = None,
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer what waits for a person: approve or reject, fill in a form, or give a frontend tool's result."""
    body: dict[str, Json] = {"decision": decision, "reason": reason, "error": error}
    body = {name: value for name, value in body.items() if value is not None}
    for name, text in (("values", values), ("edits", edits), ("result", result)):
        if text is not None:
            body[name] = parse_json(text, f"--{name}")
    if not body.keys() - {"reason", "edits"}:
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
    """Stop: what is in flight is told to end and has some time for it."""
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


def moment(text: str | None) -> str:
    return "" if text is None else text[:19].replace("T", " ") + "Z"


def _failure(error: Json) -> str:
    return f"{error['code']}: {error['message']}"
