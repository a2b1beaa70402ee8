"""Commands over REST for what waits for people: `pendings` shows all questions, `decide` answers one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hai_flow import addresses
from hai_flow.cli import completion
from hai_flow.cli.client.eligible import NO_ROLES, Roles, roles_of_workflow
from hai_flow.cli.client.questions import show_question
from hai_flow.cli.client.rest import ActingOptions, RemoteOptions, Server, server_url
from hai_flow.cli.client.uploads import upload
from hai_flow.cli.errors import Problem, UsageError
from hai_flow.cli.options import LimitOption, parse_json
from hai_flow.cli.terminal import moment, print_json, program, say
from hai_flow.values import Json


def pendings(remote: RemoteOptions, limit: LimitOption = 50) -> None:
    """List the open questions, newest first, with commands that answer them."""

    async def work(api: Server) -> list[Json]:
        listed = await api.items("/v1/pendings", limit)
        if not remote.as_json:
            for name in {each["workflow"] for each in listed if _asks_role(each)}:
                roles[name] = await roles_of_workflow(api, name)
        return [await _with_votes(api, each) for each in listed]

    roles: dict[str, Roles] = {}
    items = remote.ask(work)
    if remote.as_json:
        print_json({"items": items})
        return
    if not items:
        say("Nothing waits for people.")
    if items:
        say(f"In a browser: {server_url(remote.server)}{addresses.page('inbox')}", "dim")
    for pending in items:
        show_question(pending, pending.get("started_by"), roles.get(pending.get("workflow") or "", NO_ROLES))
        deadline = f", until {moment(pending['deadline'])}" if pending["deadline"] else ""
        workflow = f"{pending['workflow']}, " if pending.get("workflow") else ""
        place = f"{workflow}run {pending['run_id']}, {pending['path']}"
        say(f"  {place}, since {moment(pending['opened_at'])}{deadline}", "dim")
        if fault := pending.get("nobody_decides"):
            say(f"  nobody can decide it now: {fault}", "yellow")


def _asks_role(pending: Json) -> bool:
    return bool(pending.get("workflow")) and any(
        each.startswith("role:") for each in (pending["policy"] or {}).get("from", ())
    )


async def _with_votes(api: Server, pending: Json) -> Json:
    """The pending, with its votes if it needs several: so that the next voter sees the right command to type."""
    if (pending["policy"] or {}).get("quorum", 1) == 1:
        return pending
    try:
        return {**pending, "needed": (await api.get(f"/v1/pendings/{pending['id']}"))["needed"]}
    except Problem:  # it is gone since
        return pending


async def _with_files(api: Server, pending: str, values: Json) -> Json:
    """The values of the form, with the id of an upload for each `@PATH` where the form asks for a file."""
    paths = {name: text for name, text in values.items() if str(text)[:1] == "@"} if isinstance(values, dict) else {}
    if not paths:
        return values
    schema = (await api.get(f"/v1/pendings/{pending}")).get("schema") or {}
    fields = {name: field for name, field in schema.get("properties", {}).items() if isinstance(field, dict)}
    file_fields = [name for name in paths if fields.get(name, {}).get("format") == "file"]
    return {**values, **{name: str((await upload(api, Path(paths[name][1:])))["id"]) for name in file_fields}}


def decide(
    pending: Annotated[
        str, typer.Argument(metavar="PENDING", help="The question's id.", autocompletion=completion.pendings)
    ],
    remote: ActingOptions,
    decision: Annotated[
        str | None, typer.Argument(metavar="DECISION", help="approve, reject, or another of its options.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason, which is recorded.")] = None,
    values: Annotated[
        str | None, typer.Option("--values", metavar="JSON", help="The values of the form; @PATH uploads a file.")
    ] = None,
    edits: Annotated[str | None, typer.Option("--edits", metavar="JSON", help="Changed arguments of the call.")] = None,
    result: Annotated[str | None, typer.Option("--result", metavar="JSON", help="The frontend tool's result.")] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Why the tool has no result.")] = None,
    on_behalf_of: Annotated[
        str | None, typer.Option("--for", metavar="USER", help="The person who has delegated to you.")
    ] = None,
) -> None:
    """Answer a question to people: approve or reject, fill in a form, or give a frontend tool's result."""
    body: dict[str, Json] = {
        "decision": decision, "reason": reason, "error": error, "on_behalf_of": on_behalf_of
    }  # fmt: skip
    body = {name: value for name, value in body.items() if value is not None}
    for name, text in (("values", values), ("edits", edits), ("result", result)):
        if text is not None:
            body[name] = parse_json(text, f"--{name}")
    if not body.keys() - {"reason", "edits", "on_behalf_of"}:
        raise UsageError(
            f"expected a question and its answer, found {pending!r} alone: a decision (approve, reject), --values, "
            f"--result or --error. `{program()} pendings` lists the questions."
        )

    async def work(api: Server) -> Json:
        if "values" in body:
            body["values"] = await _with_files(api, pending, body["values"])
        try:
            return await api.post(f"/v1/pendings/{pending}/decide", body)
        except Problem as problem:
            if problem.code == "pending_unknown":
                problem.advice = f"{program()} pendings lists the open questions, {program()} show RUN those of a run."
            raise

    answered = remote.ask_and_print(work)
    if remote.as_json:
        return
    already = " already" if answered.get("already") else ""
    if answered["status"] == "open":
        say(f"Recorded{already}; more people must decide before it counts.")
    else:
        say(f"{answered['path']}: {answered['status']}{already}.", "green")
    say(f"How its run goes on: {program()} show {answered['run_id']}")
