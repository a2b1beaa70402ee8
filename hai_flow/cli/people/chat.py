"""`hai-flow chat`: your accounts in chats, by which you decide there, over REST."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hai_flow.cli.client.rest import Server, ask
from hai_flow.cli.commands import CliCommand, app_of
from hai_flow.cli.errors import EPILOG
from hai_flow.cli.options import ActAsOption, JsonOption, ServerOption
from hai_flow.cli.terminal import moment, out, print_json, say
from hai_flow.values import Json

app = app_of(name="chat", epilog=EPILOG)


@app.callback(invoke_without_command=True)
def chat(context: typer.Context) -> None:
    """Your accounts in chats, by which you decide there; without a command, the list of them."""
    if context.invoked_subcommand is None:
        list_accounts()


@app.command("list", cls=CliCommand, epilog=EPILOG)
def list_accounts(act_as: ActAsOption = None, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Your accounts in chats, and codes that were not sent yet."""

    async def work(api: Server) -> list[Json]:
        return list((await api.get("/v1/inbox/accounts"))["items"])

    items = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json({"items": items})
        return
    if not items:
        say("You have connected no account.")
        return
    rows = [(each["id"], each["channel"], each["account"] or "(waits)", moment(each["until"])) for each in items]
    out().table(rows, heads=("id", "channel", "account", "until"))


@app.command(cls=CliCommand, epilog=EPILOG)
def connect(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="A channel of the deployment, like `slack`.")],
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Get a code that connects your account in a chat to you. Send it to the app there within ten minutes."""

    async def work(api: Server) -> dict[str, Any]:
        return await api.post("/v1/inbox/accounts", {"channel": channel})

    answer = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json(answer)
        return
    say(f"Send this to the app in {channel}, within ten minutes. Show it to nobody: it decides as you.")
    print(answer["send"])


@app.command(cls=CliCommand, epilog=EPILOG)
def disconnect(
    account: Annotated[str, typer.Argument(metavar="ID", help="The id of the account, as `list` shows it.")],
    act_as: ActAsOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Disconnect an account of yours at once."""

    async def work(api: Server) -> None:
        await api.delete(f"/v1/inbox/accounts/{account}")

    ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json({"id": account, "disconnected": True})
    else:
        say(f"{account} is disconnected.", "green")
