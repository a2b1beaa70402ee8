"""An event from outside, sent to a run over REST."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from hai_flow.cli.client import Server
from hai_flow.cli.operate import JsonOption, RunArgument, ServerOption, ask, parse_json
from hai_flow.cli.terminal import print_json, say

Json: TypeAlias = Any


def signal(
    run: RunArgument,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The event that its `wait_for` names.")],
    data: Annotated[str | None, typer.Option("--data", metavar="JSON", help="What the event says.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The same one again changes nothing.")] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a run an event; it is kept until the run waits for it."""
    body: dict[str, Json] = {"type": type}
    if data is not None:
        body["data"] = parse_json(data, "--data")
    if id is not None:
        body["id"] = id

    async def work(api: Server) -> Json:
        return await api.post(f"/v1/runs/{await api.run_id(run)}/signals", body)

    sent = ask(server, as_json, work)
    if as_json:
        print_json(sent)
    elif sent["already"]:
        say(f"{sent['id']} has been sent before; nothing has happened now.")
    else:
        say(f"Sent {sent['type']} to {sent['run_id']} as {sent['id']}.", "green")
