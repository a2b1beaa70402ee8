"""`hai-flow canary`: seeded questions that have to be refused, over REST: seed and list them."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli.client.rest import ActingOptions
from hai_flow.cli.commands import app_of
from hai_flow.cli.options import parse_json
from hai_flow.cli.terminal import moment, print_items, program
from hai_flow.values import Json

app = app_of(name="canary", lists="Seeded questions that have to be refused; without a command, the list of them.")


@app.command("list")
def list_canaries(
    remote: ActingOptions,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Only canaries seeded within this time: 12h, 30d.")
    ] = "30d",
) -> None:
    """The canaries, and what has become of them. For admins and auditors."""
    answer = remote.ask_and_print(lambda api: api.get("/v1/canaries", since=since))
    if remote.as_json:
        return
    print_items(answer["items"], False, f"No canary was seeded within {since}.", lambda each: {
        "seeded": moment(each["at"]), "status": each["status"], "looks like": f"{each['workflow']} {each['path']}",
        "tool": each["tool"] or "", "to be refused because": each["reason"],
    })  # fmt: skip


@app.command()
def seed(
    remote: ActingOptions,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The workflow whose question is imitated.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The path of the question: pay, each[web]/pay.")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why to refuse it; shown after the decision.")
    ],
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="The arguments of the call, all of them.")
    ] = None,
    evidence: Annotated[str | None, typer.Option("--evidence", metavar="JSON", help="An approve's evidence.")] = None,
    form: Annotated[
        str | None, typer.Option("--form", metavar="JSON", help="Replaces a form that is filled in from the run.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="The question in one line.")] = None,
    message: Annotated[str | None, typer.Option("--message", metavar="TEXT", help="Markdown below the title.")] = None,
    summary: Annotated[
        str | None, typer.Option("--summary", metavar="TEXT", help="Replaces a summary that is filled in from the run.")
    ] = None,
    requester: Annotated[
        str | None, typer.Option("--requester", metavar="WHO", help="The requester to show. Default: the imitated one.")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--within", metavar="DURATION", help="Ask at random within this time. Default: now.")
    ] = None,
) -> None:
    """Ask people a question that they have to refuse. An approval has no effect. For admins."""
    texts = {"title": title, "message": message, "summary": summary, "requester": requester, "within": within}
    body: dict[str, Json] = {"workflow": workflow, "path": path, "reason": reason}
    body |= {name: value for name, value in texts.items() if value is not None}
    for name, text in (("arguments", arguments), ("evidence", evidence), ("form", form)):
        if text is not None:
            body[name] = parse_json(text, f"--{name}")
    remote.ask_and_say(
        lambda api: api.post("/v1/canaries", body),
        lambda canary: (
            f"Seeded {canary['run_id']}: it looks like the question of {workflow} {path}. Its result: "
            f"{program()} canary list."
        ),
    )
