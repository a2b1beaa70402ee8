"""`hai-flow schedules`: the schedules of a server, over REST. Look at them, pause, resume, or start one now."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli import completion
from hai_flow.cli.client.rest import Server, ask
from hai_flow.cli.commands import CliCommand, app_of
from hai_flow.cli.console import Styled
from hai_flow.cli.errors import EPILOG, UsageError
from hai_flow.cli.options import JsonOption, ServerOption
from hai_flow.cli.terminal import moment, out, print_json, say
from hai_flow.values import Json

app = app_of(name="schedules", epilog=EPILOG)

ScheduleArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCHEDULE",
        help="Its id, the beginning of it, or the workflow's name if it has one.",
        autocompletion=completion.schedules,
    ),
]


@app.callback(invoke_without_command=True)
def schedules(context: typer.Context) -> None:
    """The schedules, which start runs by the clock; without a command, their list."""
    if context.invoked_subcommand is None:
        list_schedules()


@app.command("list", cls=CliCommand, epilog=EPILOG)
def list_schedules(server: ServerOption = None, as_json: JsonOption = False) -> None:
    """All schedules: when each fires next, and when it last did."""
    items = ask(server, as_json, _list_all)
    if as_json:
        print_json({"items": items})
        return
    if not items:
        say("No schedules.")
        return
    rows = [
        (
            each["id"],
            each["workflow"],
            each["explanation"],
            Styled("paused", "yellow") if each["paused"] else moment(each["next"]) + _waiting(each),
            moment(each["last"]),
        )
        for each in items
    ]
    out().table(rows, heads=("schedule", "workflow", "when", "next", "last"))


@app.command(cls=CliCommand, epilog=EPILOG)
def pause(schedule: ScheduleArgument, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Let it fire no more until it is resumed."""
    done = _control(schedule, "pause", server, as_json)
    if not as_json:
        say(f"{done['workflow']} is not started by this schedule until you resume it.", "green")


@app.command(cls=CliCommand, epilog=EPILOG)
def resume(schedule: ScheduleArgument, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Let it fire again, from its next time on."""
    done = _control(schedule, "resume", server, as_json)
    if not as_json:
        say(f"{done['workflow']} starts next at {moment(done['next'])}.", "green")


@app.command("run", cls=CliCommand, epilog=EPILOG)
def run_now(schedule: ScheduleArgument, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Start its run once, now, also while it is paused."""
    run = _control(schedule, "run", server, as_json)
    if not as_json:
        say(f"{run['id']} is {run['status']}.", "green")


def _waiting(schedule: Json) -> str:
    waiting = schedule.get("waiting", 0)
    return f" ({waiting} waiting)" if waiting else ""


def _control(schedule: str, verb: str, server: str | None, as_json: bool) -> Json:
    async def work(api: Server) -> Json:
        return await api.post(f"/v1/schedules/{id_of(schedule, await _list_all(api))}/{verb}")

    done = ask(server, as_json, work)
    if as_json:
        print_json(done)
    return done


async def _list_all(api: Server) -> list[Json]:
    return await api.items("/v1/schedules", None)


def id_of(text: str, schedules: list[Json]) -> str:
    """The id of the one schedule that `text` means. Raises UsageError where it is none, or several."""
    ids = [each["id"] for each in schedules if each["workflow"] == text]
    ids = ids or [each["id"] for each in schedules if text and each["id"].startswith(text)]
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise UsageError(f"expected the id of a schedule or the name of a workflow that has one, found {text!r}.")
    raise UsageError(f"{text!r} means {len(ids)} schedules; give the beginning of one id: {', '.join(ids)}.")
