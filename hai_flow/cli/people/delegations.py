"""`hai-flow delegations`: who decides for whom, over REST. Your own, or for admins those of everybody."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.client.rest import ActingOptions, Server
from hai_flow.cli.commands import app_of
from hai_flow.cli.errors import Problem
from hai_flow.cli.terminal import moment, print_items, print_result
from hai_flow.values import Json

app = app_of(name="delegations", lists="Who decides for whom, and until when; without a command, the list of yours.")

_NOT_THERE = ("delegation_unknown", "right_missing")


@app.command("list")
def list_delegations(
    remote: ActingOptions,
    everybody: Annotated[bool, typer.Option("--all", help="Delegations of all people, for admins.")] = False,
) -> None:
    """The delegations that have not ended: from you and to you, or with --all those of everybody."""

    async def work(api: Server) -> list[Json]:
        if everybody:
            return await api.items("/v1/delegations", None)
        return list((await api.get("/v1/inbox/delegations"))["items"])

    items = remote.ask(work)
    none = "No delegations." if everybody else "Nobody decides for you, and you decide for nobody."
    print_items(items, remote.as_json, none, lambda each: {
        "delegation": each["id"], "of": each["from"], "to": each["to"],
        "since": moment(each["since"]), "until": moment(each["until"]), "note": each["note"] or "",
    })  # fmt: skip


@app.command()
def end(
    delegation: Annotated[str, typer.Argument(metavar="DELEGATION", help="The delegation's id.")], remote: ActingOptions
) -> None:
    """End a delegation at once: one from you or to you, or as an admin anybody's."""

    async def work(api: Server) -> None:
        try:
            await api.delete(f"/v1/inbox/delegations/{delegation}")
        except Problem as problem:
            if problem.code not in _NOT_THERE:
                raise
            try:
                await api.delete(f"/v1/delegations/{delegation}")
            except Problem as of_all:
                raise (problem if of_all.code == "right_missing" else of_all) from None

    remote.ask(work)
    print_result({"id": delegation, "ended": True}, remote.as_json, f"{delegation} has ended.", "green")
