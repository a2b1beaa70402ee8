"""`inbox` and `delegate`: the questions that ask you, your decisions, and people that decide while you are away."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from hai_flow import addresses
from hai_flow.cli.client.questions import show_question
from hai_flow.cli.client.rest import ActingOptions, server_url
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import LimitOption, parse_duration
from hai_flow.cli.terminal import moment, print_json, say
from hai_flow.values import Json


def inbox(
    remote: ActingOptions,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="Only questions of this workflow.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="Only questions that contain this text.")] = None,
    decided: Annotated[bool, typer.Option("--decided", help="Your decisions instead.")] = False,
    limit: LimitOption = 50,
) -> None:
    """List the questions to you, the next deadline first, with the reason if you may not decide one."""
    options: dict[str, Json] = {"workflow": workflow, "text": text}
    filters = {name: value for name, value in options.items() if value is not None}
    if decided and filters:
        raise UsageError("--decided lists everything that you have decided; leave out --workflow and --text.")

    items = remote.ask(lambda api: api.items("/v1/inbox/decided" if decided else "/v1/inbox", limit, **filters))
    if remote.as_json:
        print_json({"items": items})
        return
    if not items:
        say("You haven't decided anything yet." if decided else "Nothing is waiting for you.")
    if items and not decided:
        say(f"In a browser: {server_url(remote.server)}{addresses.page('inbox')}", "dim")
    for item in items:
        _show_decided(item) if decided else _show_asked(item)


def _show_asked(item: Json) -> None:
    show_question(item, None)
    if item["why_not"] is not None and not item["on_behalf_of"]:
        say(f"  not assigned to you: {item['why_not']['reason']}", "yellow")
    for other in item["on_behalf_of"]:
        say(f"  for {other}: add --for {other}", "dim")
    if item["claimed_by"] is not None:
        say(f"  {item['claimed_by']} is working on this", "dim")
    deadline = f", until {moment(item['deadline'])}" if item["deadline"] else ""
    place = f"{item['workflow']}, run {item['run_id']}, {item['path']}"
    say(f"  {place}, started by {item['started_by']}, since {moment(item['opened_at'])}{deadline}", "dim")


def _show_decided(item: Json) -> None:
    whose = f" (by {item['by']} for {item['on_behalf_of']})" if item["on_behalf_of"] else ""
    say(f"{moment(item['at'])}  {item['decision']}  {item['title'] or item['kind']}{whose}", "bold")
    outcome = "" if item["status"] == item["decision"] else f"; the question is {item['status']}"
    say(f"  {item['workflow']}, run {item['run_id']}{outcome}", "dim")


def delegate(
    to: Annotated[str, typer.Argument(metavar="USER", help="The delegate: user:bob.")],
    lasts: Annotated[str, typer.Option("--for", metavar="DURATION", help="The duration: 2w, 3d, 12h.")],
    remote: ActingOptions,
    note: Annotated[str | None, typer.Option("--note", help="The reason, which both of you see.")] = None,
) -> None:
    """Let somebody else decide for you for some time, with the roles and groups that you have now."""
    until = datetime.now(UTC) + parse_duration(lasts, "--for")
    body: dict[str, Json] = {"to": to, "until": until.isoformat()}
    if note is not None:
        body["note"] = note

    remote.ask_and_say(
        lambda api: api.post("/v1/inbox/delegations", body),
        lambda each: f"{each['to']} may decide for {each['from']} until {moment(each['until'])}.",
        "green",
    )
