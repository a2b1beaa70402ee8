"""Commands of operators for earlier moments of a run: `replay`, `marks`, `changes`, `fork`, `rerun`."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

import typer

from hai_flow.cli.client.rest import ActingOptions, RemoteOptions, Server
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import ReasonOption, RunArgument, StepArgument, parse_json
from hai_flow.cli.runs.follow import Narrator
from hai_flow.cli.terminal import compact, moment, out, print_json, program, say, write_line
from hai_flow.values import Json

_MOMENT = "an event's number, a time, or step:PATH"

AtOption = Annotated[
    int | None, typer.Option("--at", min=1, metavar="SEQ", help="Continue after this event (see `marks`).")
]
FromOption = Annotated[str | None, typer.Option("--from", metavar="MOMENT", help=f"Since when: {_MOMENT}.")]
ToOption = Annotated[str | None, typer.Option("--to", metavar="MOMENT", help=f"Until when: {_MOMENT}.")]
InputOption = Annotated[
    str | None, typer.Option("--input", metavar="JSON", help="A new input, which replaces the whole.")
]
StateOption = Annotated[str | None, typer.Option("--state", metavar="JSON", help="New values of variables.")]
VersionOption = Annotated[str | None, typer.Option("--version", metavar="N", help="Another version of the workflow.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")]


# --- looking back -----------------------------------------------------------------------------------------------------


def replay(
    run: RunArgument,
    remote: RemoteOptions,
    speed: Annotated[float, typer.Option("--speed", min=0.001, help="Speed, as a multiple of the original.")] = 10.0,
    gap: Annotated[float, typer.Option("--gap", min=0.0, max=60.0, help="The longest pause, in seconds.")] = 2.0,
    from_: FromOption = None,
    to: ToOption = None,
) -> None:
    """Replay a run's events at their original pace; nothing is performed."""
    write = write_line if remote.as_json else Narrator(out(), stamps=True).show

    async def work(api: Server) -> None:
        run_id = await api.run_id(run)
        seq, last = 0, None
        if from_ is not None:
            seq = (await api.get(f"/v1/runs/{run_id}/snapshot", at=from_))["seq"]
        if to is not None:
            last = (await api.get(f"/v1/runs/{run_id}/snapshot", at=to))["seq"]
        before: datetime | None = None
        async for event in api.log(run_id, seq):
            if last is not None and event["seq"] > last:
                return
            at = datetime.fromisoformat(event["at"])
            if before is not None and at > before:
                await asyncio.sleep(min((at - before).total_seconds() / speed, gap))
            before = at
            write(event)

    remote.ask(work)


def marks(run: RunArgument, remote: RemoteOptions) -> None:
    """List the moments at which a run waited or a step began, and whether it can be forked there."""

    async def work(api: Server) -> tuple[str, Json]:
        run_id = await api.run_id(run)
        return run_id, await api.get(f"/v1/runs/{run_id}/marks")

    run_id, answer = remote.ask(work)
    if remote.as_json:
        print_json(answer)
        return
    if not any(mark["forkable"] for mark in answer["items"]):
        say("There is no moment at which it could be forked.")
    for mark in answer["items"]:
        is_too_long = (mark["why_not"] or {}).get("code") == "fork_too_long"
        where = f"in front of {mark['step']}" if mark["step"] else "from here" if is_too_long else "it waited"
        line = f"{mark['seq']:>5}  {moment(mark['at'])}  {where}{explain_obstacle(mark, run_id)}"
        say(line, None if mark["forkable"] else "dim")
    if any(mark["forkable"] for mark in answer["items"]):
        say(f"To go on from a moment in a new run, with its number as N: {program()} fork {run_id} --at N --dry-run")


def explain_obstacle(mark: Json, run_id: str) -> str:
    """Why the run can't be forked at the moment, or not with anything edited."""
    if mark["why_not"] is None:
        return ""
    why = str(mark["why_not"]["detail"]).removeprefix(f"run {run_id}")
    why = f"it{why}" if why.startswith(" ") else why.removeprefix(": ")
    return f"; only as it was, with nothing edited: {why}" if mark["forkable"] else f"; no fork here: {why}"


def changes(
    run: RunArgument,
    from_: Annotated[str, typer.Option("--from", metavar="MOMENT", help=f"Since when: {_MOMENT}.")],
    remote: RemoteOptions,
    to: ToOption = None,
) -> None:
    """The differences between two moments of a run: variables, steps and questions."""

    async def work(api: Server) -> Json:
        moments = {"from": from_} if to is None else {"from": from_, "to": to}
        return await api.get(f"/v1/runs/{await api.run_id(run)}/diff", **moments)

    difference = remote.ask_and_print(work)
    if remote.as_json:
        return
    first, second = difference["from"], difference["to"]
    say(f"From event {first['seq']} ({first['status']}) to event {second['seq']} ({second['status']}):")
    for operation in difference["state"]:
        value = f" = {compact(operation['value'], 200)}" if "value" in operation else ""
        say(f"  state{operation['path']}: {operation['op']}{value}")
    for path, change in difference["steps"].items():
        was = "not begun" if change["from"] is None else change["from"]["status"]
        now = "not begun" if change["to"] is None else change["to"]["status"]
        say(f"  step {path}: {was} -> {now}")
    for change in difference["pendings"].values():
        question = change["to"] or change["from"]
        was = "not asked" if change["from"] is None else change["from"]["status"]
        say(f"  question {question['title'] or question['path']}: {was} -> {question['status']}")


# --- going on from elsewhere ------------------------------------------------------------------------------------------


def fork(
    run: RunArgument,
    remote: ActingOptions,
    at: AtOption = None,
    step: Annotated[str | None, typer.Option("--step", metavar="STEP", help="Continue before this step.")] = None,
    input: InputOption = None,
    state: StateOption = None,
    version: VersionOption = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="The new name of a step; may be repeated.")
    ] = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
) -> None:
    """Continue from an earlier moment of a run in a new run; the thread's active run is stopped first."""
    if (at is None) == (step is None):
        raise UsageError(f"expected one of --at and --step; `{program()} marks RUN` lists the moments.")
    body: dict[str, Json] = {"at": at, "step": step, "version": version, "reason": reason or None}
    body["input"] = None if input is None else parse_json(input, "--input")
    body["state"] = None if state is None else parse_json(state, "--state")
    pairs = [each.partition("=") for each in mapping or []]
    if any(not old or not new for old, _, new in pairs):
        raise UsageError("--map: expected OLD=NEW.")
    body["map"] = {old: new for old, _, new in pairs} or None
    _fork(run, body, remote, dry_run=dry_run)


def rerun(
    run: RunArgument,
    step: StepArgument,
    remote: ActingOptions,
    input: InputOption = None,
    state: StateOption = None,
    version: VersionOption = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
) -> None:
    """Repeat a run from one of its steps in a new run: a fork before that step."""
    fork(run, remote, None, step, input, state, version, None, reason, dry_run)


def _fork(run: str, given: dict[str, Json], remote: ActingOptions, *, dry_run: bool) -> None:
    body = {name: value for name, value in given.items() if value is not None}

    async def work(api: Server) -> Json:
        return await api.post(f"/v1/runs/{await api.run_id(run)}/fork", {**body, "dry_run": dry_run})

    answered = remote.ask_and_print(work)
    if remote.as_json:
        return
    if not dry_run:
        say(f"The new run is {answered['id']}; it is {answered['status']}.", "green")
        say(f"Next: {program()} show {answered['id']}")
        return
    say(f"It can be forked behind event {answered['at']}, as {answered['workflow']}@{answered['version']}.", "green")
    for what, key in (("Begins", "begins"), ("Asks again", "asks"), ("Starts anew the child runs of", "restarts")):
        if answered[key]:
            say(f"  {what}: {', '.join(answered[key])}")
    stops = answered["stops"]
    if stops is not None:
        undoes = f", which undoes {', '.join(stops['undoes'])}" if stops["undoes"] else ""
        say(f"  Stops {stops['run_id']} ({stops['status']}){undoes}.", "yellow")
