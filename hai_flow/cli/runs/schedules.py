"""`hai-flow schedules`: the schedules of a server, over REST. Look at them, pause, resume, or start one now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from hai_flow.cli import completion
from hai_flow.cli.client.rest import RemoteOptions, Server
from hai_flow.cli.commands import app_of
from hai_flow.cli.console import Styled
from hai_flow.cli.errors import UsageError
from hai_flow.cli.terminal import moment, print_items
from hai_flow.values import Json

app = app_of(name="schedules", lists="The schedules, which start runs by the clock; without a command, their list.")

ScheduleArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCHEDULE",
        help="The schedule's id, its beginning, or the name of a workflow with one schedule.",
        autocompletion=completion.schedules,
    ),
]


@app.command("list")
def list_schedules(remote: RemoteOptions) -> None:
    """All schedules: when each fires next, and when it last did."""
    items = remote.ask(_list_all)
    print_items(items, remote.as_json, "No schedules.", lambda each: {
        "schedule": each["id"], "workflow": each["workflow"], "when": each["explanation"],
        "next": Styled("paused", "yellow") if each["paused"] else moment(each["next"]) + _waiting(each),
        "last": moment(each["last"]),
    })  # fmt: skip


@app.command()
def pause(schedule: ScheduleArgument, remote: RemoteOptions) -> None:
    """Let it fire no more until it is resumed."""
    text = "{workflow} is not started by this schedule until you resume it."
    _control(schedule, "pause", remote, text.format_map)


@app.command()
def resume(schedule: ScheduleArgument, remote: RemoteOptions) -> None:
    """Let it fire again, from its next time on."""
    _control(schedule, "resume", remote, lambda done: f"{done['workflow']} starts next at {moment(done['next'])}.")


@app.command("run")
def run_now(schedule: ScheduleArgument, remote: RemoteOptions) -> None:
    """Start its run once, now, also while it is paused."""
    _control(schedule, "run", remote, "{id} is {status}.".format_map)


def _waiting(schedule: Json) -> str:
    waiting = schedule.get("waiting", 0)
    return f" ({waiting} waiting)" if waiting else ""


def _control(schedule: str, verb: str, remote: RemoteOptions, text: Callable[[Json], str]) -> None:
    async def work(api: Server) -> Json:
        return await api.post(f"/v1/schedules/{id_of(schedule, await _list_all(api))}/{verb}")

    remote.ask_and_say(work, text, "green")


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
