"""Events from outside, sent over REST: to one run, or to all runs and workflows that they concern."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.client.rest import RemoteOptions, Server
from hai_flow.cli.console import clean
from hai_flow.cli.options import RunArgument, parse_json
from hai_flow.cli.terminal import print_json, program, say
from hai_flow.values import Json

DataOption = Annotated[str | None, typer.Option("--data", metavar="JSON", help="The event's data.")]
IdOption = Annotated[str | None, typer.Option("--id", help="The event's id: sending it again has no further effect.")]


def signal(
    run: RunArgument,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The event's type, as in `wait_for`.")],
    remote: RemoteOptions,
    data: DataOption = None,
    id: IdOption = None,
) -> None:
    """Send a run an event; it is kept until the run waits for it."""
    body = _body(type, data, id)

    async def work(api: Server) -> Json:
        return await api.post(f"/v1/runs/{await api.run_id(run)}/signals", body)

    sent = remote.ask(work)
    if remote.as_json:
        print_json(sent)
    elif sent["already"]:
        say(f"{sent['id']} has been sent before; nothing has happened now.")
    else:
        say(f"Sent {sent['type']} to {sent['run_id']} as {sent['id']}.", "green")
        say(f"Next: {program()} show {sent['run_id']}")


def send(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The event's type, as in triggers and `wait_for`.")],
    remote: RemoteOptions,
    data: DataOption = None,
    id: IdOption = None,
) -> None:
    """Send an event to all runs that wait for it, and to the workflows that it starts."""
    body = _body(type, data, id)

    sent = remote.ask_and_print(lambda api: api.post("/v1/events", body))
    if remote.as_json:
        return
    if sent["already"]:
        say(f"{sent['id']} has been sent before.")
    else:
        say(f"Sent {sent['type']} as {sent['id']}.", "green")
    if not sent["runs"]:
        say("No workflow has a trigger for it; runs that wait for it take it.")
    for each in sent["runs"]:
        if each["problem"] is not None:
            say(f"{each['workflow']} refused it: {clean(each['problem']['detail'])}", "red")
            for finding in each["problem"]["findings"]:
                say(f"  {finding.get('path') or 'the value'}: {finding.get('message', '')}")
        else:
            say(f"{each['workflow']}: {each['run_id']}" + (" (was there)" if each["status"] == "already" else ""))


def _body(type: str, data: str | None, id: str | None) -> dict[str, Json]:
    body: dict[str, Json] = {"type": type}
    if data is not None:
        body["data"] = parse_json(data, "--data")
    if id is not None:
        body["id"] = id
    return body
