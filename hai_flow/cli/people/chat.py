"""`hai-flow chat`: your accounts in chats, by which you decide there, over REST."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.client.rest import ActingOptions, Server
from hai_flow.cli.commands import app_of
from hai_flow.cli.terminal import moment, print_items, print_result, say
from hai_flow.values import Json

app = app_of(
    name="chat", lists="Your accounts in chats, by which you decide there; without a command, the list of them."
)


@app.command("list")
def list_accounts(remote: ActingOptions) -> None:
    """Your accounts in chats, and codes that were not sent yet."""

    async def work(api: Server) -> list[Json]:
        return list((await api.get("/v1/inbox/accounts"))["items"])

    items = remote.ask(work)
    print_items(items, remote.as_json, "You have connected no account.", lambda each: {
        "id": each["id"], "channel": each["channel"], "account": each["account"] or "(waits)",
        "until": moment(each["until"]),
    })  # fmt: skip


@app.command()
def connect(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="A channel of the deployment, such as `slack`.")],
    remote: ActingOptions,
) -> None:
    """Get a code that connects your account in a chat to you. Send it to the app there within ten minutes."""

    answer = remote.ask_and_print(lambda api: api.post("/v1/inbox/accounts", {"channel": channel}))
    if remote.as_json:
        return
    say(f"Send this to the app in {channel}, within ten minutes. Show it to nobody: it decides as you.")
    print(answer["send"])


@app.command()
def disconnect(
    account: Annotated[str, typer.Argument(metavar="ID", help="The account's id, from `list`.")], remote: ActingOptions
) -> None:
    """Disconnect an account of yours at once."""

    remote.ask(lambda api: api.delete(f"/v1/inbox/accounts/{account}"))
    print_result({"id": account, "disconnected": True}, remote.as_json, f"{account} is disconnected.", "green")
