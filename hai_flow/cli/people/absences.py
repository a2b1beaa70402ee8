"""`hai-flow absences`: people that are away on some days, and their delegates, over REST."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.client.rest import Server, ask
from hai_flow.cli.commands import CliCommand, app_of
from hai_flow.cli.errors import EPILOG
from hai_flow.cli.options import ActAsOption, JsonOption, ServerOption
from hai_flow.cli.terminal import out, print_json, say
from hai_flow.values import Json

app = app_of(name="absences", epilog=EPILOG)


@app.callback(invoke_without_command=True)
def absences(context: typer.Context) -> None:
    """People that are away on some days, and their delegates; without a command, the list of yours."""
    if context.invoked_subcommand is None:
        list_absences()


@app.command("list", cls=CliCommand, epilog=EPILOG)
def list_absences(
    everybody: Annotated[bool, typer.Option("--all", help="Those of all people of the tenant; for admins.")] = False,
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """The absences that are not over: yours, and those whose delegate you are, or with --all those of all
    people."""
    items = ask(server, as_json, lambda api: api.items("/v1/absences", None, everybody=everybody), act_as=act_as)
    if as_json:
        print_json({"items": items})
        return
    if not items:
        say("Nobody is away.")
        return
    rows = [
        (
            each["id"], each["person"], each["first_day"], each["last_day"], each["zone"],
            each["delegate"] or "nobody", each["why_nobody"] or each["note"] or "",
        )
        for each in items
    ]  # fmt: skip
    out().table(rows, heads=("absence", "of", "from", "until", "zone", "decides", "note"))


@app.command(cls=CliCommand, epilog=EPILOG)
def add(
    first_day: Annotated[str, typer.Argument(metavar="FROM", help="The first day: 2026-12-21.")],
    last_day: Annotated[str, typer.Argument(metavar="UNTIL", help="The last day, which still counts: 2027-01-03.")],
    delegate: Annotated[
        str | None, typer.Option("--delegate", metavar="USER", help="Who decides meanwhile; without it, nobody does.")
    ] = None,
    person: Annotated[
        str | None, typer.Option("--of", metavar="USER", help="Who is away, if not you; for admins.")
    ] = None,
    zone: Annotated[str, typer.Option("--zone", help="The timezone of the days, like Europe/Berlin.")] = "UTC",
    note: Annotated[str | None, typer.Option("--note", help="Why; both of you see it.")] = None,
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enter that you are away from one day to another, and your delegate meanwhile."""
    body: dict[str, Json] = {"first_day": first_day, "last_day": last_day, "zone": zone}
    body |= {
        name: value for name, value in (("delegate", delegate), ("person", person), ("note", note)) if value is not None
    }

    async def work(api: Server) -> Json:
        return await api.post("/v1/absences", body)

    absence = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json(absence)
        return
    decides = f"{absence['delegate']} decides for them" if absence["delegate"] else "nobody decides for them"
    days = f"from {absence['first_day']} to the end of {absence['last_day']} ({absence['zone']})"
    say(f"{absence['person']} is away {days}; {decides}.", "green")


@app.command(cls=CliCommand, epilog=EPILOG)
def end(
    absence: Annotated[str, typer.Argument(metavar="ABSENCE", help="Its id.")],
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """End an absence at once, or take back one that has not begun: yours, one whose delegate you are, or as an
    admin anybody's."""

    async def work(api: Server) -> None:
        await api.delete(f"/v1/absences/{absence}")

    ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json({"id": absence, "ended": True})
    else:
        say(f"{absence} has ended.", "green")
