"""`hai-flow absences`: people that are away on some days, and their delegates, over REST."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.client.rest import ActingOptions
from hai_flow.cli.commands import app_of
from hai_flow.cli.terminal import print_items, print_result, say
from hai_flow.values import Json

app = app_of(
    name="absences",
    lists="People that are away on some days, and their delegates; without a command, the list of yours.",
)


@app.command("list")
def list_absences(
    remote: ActingOptions,
    everybody: Annotated[bool, typer.Option("--all", help="Absences of all people of the tenant, for admins.")] = False,
) -> None:
    """The absences that are not over: yours, and those whose delegate you are, or with --all those of all
    people."""
    items = remote.ask(lambda api: api.items("/v1/absences", None, everybody=everybody))
    print_items(items, remote.as_json, "Nobody is away.", lambda each: {
        "absence": each["id"], "of": each["person"], "from": each["first_day"], "until": each["last_day"],
        "zone": each["zone"], "decides": each["delegate"] or "nobody",
        "note": each["why_nobody"] or each["note"] or "",
    })  # fmt: skip


@app.command()
def add(
    first_day: Annotated[str, typer.Argument(metavar="FROM", help="The first day: 2026-12-21.")],
    last_day: Annotated[str, typer.Argument(metavar="UNTIL", help="The last day, included: 2027-01-03.")],
    remote: ActingOptions,
    delegate: Annotated[
        str | None, typer.Option("--delegate", metavar="USER", help="The delegate meanwhile. Default: nobody.")
    ] = None,
    person: Annotated[
        str | None, typer.Option("--of", metavar="USER", help="The absent person, if not you; for admins.")
    ] = None,
    zone: Annotated[str, typer.Option("--zone", help="The time zone of the days, such as Europe/Berlin.")] = "UTC",
    note: Annotated[str | None, typer.Option("--note", help="The reason, which both of you see.")] = None,
) -> None:
    """Enter the days on which you are away, and your delegate."""
    body: dict[str, Json] = {"first_day": first_day, "last_day": last_day, "zone": zone}
    body |= {
        name: value for name, value in (("delegate", delegate), ("person", person), ("note", note)) if value is not None
    }

    absence = remote.ask_and_print(lambda api: api.post("/v1/absences", body))
    if remote.as_json:
        return
    decides = f"{absence['delegate']} decides for them" if absence["delegate"] else "nobody decides for them"
    days = f"from {absence['first_day']} to the end of {absence['last_day']} ({absence['zone']})"
    say(f"{absence['person']} is away {days}; {decides}.", "green")


@app.command()
def end(
    absence: Annotated[str, typer.Argument(metavar="ABSENCE", help="The absence's id.")], remote: ActingOptions
) -> None:
    """End an absence at once, or cancel one that has not begun: yours, one whose delegate you are, or as an admin
    anybody's."""

    remote.ask(lambda api: api.delete(f"/v1/absences/{absence}"))
    print_result({"id": absence, "ended": True}, remote.as_json, f"{absence} has ended.", "green")
