"""`run`: one workflow with its input: a file, in this process or at a server, or what a server has by its name."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hai_flow.cli.author.sources import STDIN, SUFFIXES, include_files_of, read
from hai_flow.cli.client import answers
from hai_flow.cli.client.rest import Server, ask, server_url
from hai_flow.cli.database import migrate_if_behind, open_database
from hai_flow.cli.errors import FAILED, INTERRUPTED, UsageError, print_definition_error
from hai_flow.cli.options import ActAsOption, DataDirOption, load_settings
from hai_flow.cli.run.conversation import RunConversation
from hai_flow.cli.run_until_signal import live
from hai_flow.cli.serve.backend import NAMES, Local, Remote, RequestedWorkflow, missing_file
from hai_flow.cli.serve.logs import configure_logs
from hai_flow.cli.serve.runtimes import run_runtime
from hai_flow.cli.terminal import format_version, note, out, print_json, program
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.definition.plan import Schema


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE|NAME[@N]", help="A file, - for standard input, or a workflow of a server.")
    ],
    given: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="KEY=VALUE", help="One input; may be repeated.")
    ] = None,
    given_json: Annotated[
        str | None, typer.Option("--input-json", metavar="JSON", help="The inputs as one JSON object.")
    ] = None,
    thread: Annotated[str | None, typer.Option("--thread", metavar="ID", help="The thread of the run.")] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="Let this server perform the run.")
    ] = None,
    data_dir: DataDirOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Let a server perform the run, and return when it has started.")
    ] = False,
    act_as: ActAsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the final state, as JSON.")] = False,
) -> None:
    """Start a workflow, follow it and answer it here. By its name, a server performs it.

    Without a terminal, or with --json, it prints how to answer each open question, and exits with 3."""
    if _is_file_name(file):
        choice, input = _resolve_file(file, given or [], given_json)
    else:
        if data_dir is not None:
            raise UsageError(f"{missing_file(file)} {NAMES}. That server performs the run: expected no --data-dir.")
        choice, input = _resolve_name(file, given or [], given_json, server, act_as)
    if detach:
        _start_detached(choice, input, thread, server, data_dir, act_as, as_json=as_json)
        return
    at = server_url(server) if choice.source is None else server
    interactive = not as_json and file != STDIN and sys.stdin.isatty() and sys.stdout.isatty()
    conversation = RunConversation(
        choice, input, thread, where=_server_of(at, data_dir), interactive=interactive, quiet=as_json
    )
    try:
        # What the project's tools print is not part of the JSON.
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            code = _run_conversation(conversation, at, data_dir, act_as)
    finally:
        if conversation.standing is not None:
            print_json(conversation.standing)
    raise typer.Exit(code)


def _is_file_name(word: str) -> bool:
    """Whether a workflow is named by its file. Any other word is the name of one that a server has."""
    if not word:
        raise UsageError(f"FILE: {NAMES[0].lower()}{NAMES[1:]}.")
    if word == STDIN or "/" in word or word.endswith(SUFFIXES):
        return True
    return os.path.exists(word) and not os.path.isdir(word)


def _resolve_file(file: str, given: list[str], given_json: str | None) -> tuple[RequestedWorkflow, dict[str, Json]]:
    name = "<stdin>" if file == STDIN else file
    source = include_files_of(name, sys.stdin.buffer.read() if file == STDIN else read(Path(file)))
    schema, children = _checked(source, name)
    input = inputs(schema.raw if isinstance(schema.raw, dict) else {}, given, given_json)
    check_input(schema, input)
    return RequestedWorkflow(name, source, children), input


def _resolve_name(
    name: str, given: list[str], given_json: str | None, server: str | None, act_as: str | None
) -> tuple[RequestedWorkflow, dict[str, Json]]:
    """Who may not read workflows gives an input whose schema nobody knows here; the server judges it."""
    from hai_flow.definition.schemas.schemas import JsonSchema

    raw = ask(server, False, lambda api: Remote(api).input_schema(name), act_as=act_as)
    input = inputs(raw if isinstance(raw, dict) else {}, given, given_json)
    if raw is not None:
        check_input(JsonSchema(raw), input)
    return RequestedWorkflow(name), input


def _run_conversation(
    conversation: RunConversation, server: str | None, data_dir: Path | None, act_as: str | None
) -> int:
    if server is not None:
        return live(lambda: _on_server(conversation, server, act_as), interrupted=INTERRUPTED)
    settings = load_settings(data_dir=data_dir)
    configure_logs(
        "error", settings.logs, heard={"model_stands_in": lambda entry: conversation.warn(_describe_stand_in(entry))}
    )
    with open_database(settings, interrupted=INTERRUPTED) as database:

        async def here() -> int:
            if database.postgres is not None:
                await migrate_if_behind(database)
            async with run_runtime(database, settings, performs=True, project=True) as runtime:
                return await conversation.hold(Local(runtime, act_as=act_as))

        return live(here, interrupted=INTERRUPTED)


def _describe_stand_in(entry: Mapping[str, Any]) -> str:
    """A model's stand-in, as the log has it, in a line for the person who started the run."""
    from hai_flow.models.providers.scripted import SCRIPTED

    by_script = entry["asked"].startswith(f"{SCRIPTED}/")
    who = "a script" if by_script else f"{entry['asked']}, with the key in OPENAI_API_KEY,"
    return f"The model `{entry['model']}` is not asked, {who} answers in its place: {entry['why']}"


def _start_detached(
    wanted: RequestedWorkflow,
    input: dict[str, Json],
    thread: str | None,
    server: str | None,
    data_dir: Path | None,
    act_as: str | None,
    *,
    as_json: bool,
) -> None:
    """Start the run at a server; print its id, and how to follow and answer it."""
    if data_dir is not None:
        raise UsageError("--detach: expected a server that performs the run (--server or HAI_FLOW_URL), no --data-dir.")

    async def work(api: Server) -> Json:
        return await Remote(api).start_run(wanted, input, thread)

    started = ask(server, as_json, work, act_as=act_as)
    if as_json:
        print_json(
            {"run_id": started["id"], "status": started["status"], "output": None, "error": None, "pendings": []}
        )
        return
    at = "" if server is None else f" --server {shlex.quote(server)}"
    note(f"{format_version(started)} is started. To follow it, and to see and answer what it asks:")
    note(f"  {program()} events {started['id']} --follow{at}")
    note(f"  {program()} pendings{at}")
    out().print(started["id"])


async def _on_server(conversation: RunConversation, url: str, act_as: str | None) -> int:
    async with Server(url, act_as=act_as) as server:
        return await conversation.hold(Remote(server))


def _server_of(server: str | None, data_dir: Path | None) -> str:
    """Where the run can be answered when this process has ended."""
    if server is not None:
        return f"Answer it with HAI_FLOW_URL={server}"
    place = "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
    return f"Answer it at a server over the same database ({program()} dev{place})"


# --- the input ----------------------------------------------------------------------------------------------------


def _checked(source: bytes, name: str) -> tuple[Schema, tuple[tuple[str, bytes], ...]]:
    """The schema of the workflow's input, and the files of the workflows that it runs. Those with mistakes are shown
    with them, and nothing is run."""
    from hai_flow.checking.modules import ModuleFiles
    from hai_flow.checking.workflows import Workflows

    workflows = Workflows({name: source}, ModuleFiles([name]))
    findings = workflows.findings(name)
    plan = workflows.plan(name)
    if plan is None:
        print_definition_error(findings, name, source)
        raise typer.Exit(FAILED)
    children = {file: workflows.source(file) for file in workflows.children(name)}
    family = Workflows({**children, name: source}, ModuleFiles([name, *children]))
    for file, text in children.items():
        if family.plan(file) is None:
            print_definition_error(family.findings(file), file, text)
            raise typer.Exit(FAILED)
    return plan.input, tuple(children.items())


def check_input(schema: Schema, input: dict[str, Json]) -> None:
    """Raises UsageError for an input that the run would be refused with: before a database is opened for it."""
    from hai_flow.cli.client.samples import as_options, generate_input

    faults = schema.findings(schema.with_defaults(input))
    if not faults:
        return
    reasons = "; ".join(
        f"{fault['path']}: {fault['message']}" if fault["path"] else fault["message"] for fault in faults
    )
    sample = generate_input(schema)
    example = f", for example{as_options(sample)}" if sample else ""
    stop = "" if reasons.endswith("?") else "."
    raise UsageError(f"the input does not fit: {reasons}{stop} Give it as -i KEY=VALUE or --input-json JSON{example}.")


def inputs(schema: dict[str, Json], given: list[str], given_json: str | None) -> dict[str, Json]:
    """The run's input: the JSON object with each KEY=VALUE on top. A value is JSON unless its field is text.

    Raises UsageError."""
    values: Json = {}
    if given_json is not None:
        try:
            values = json.loads(given_json)
        except ValueError as error:
            raise UsageError(f"--input-json: expected JSON: {error}.") from None
        if not isinstance(values, dict):
            raise UsageError("--input-json: expected a JSON object.")
    for item in given:
        key, separator, text = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--input: expected KEY=VALUE, found {item!r}. All inputs as JSON: --input-json JSON.")
        field = (schema.get("properties") or {}).get(key)
        values[key] = answers.tool_result(text, field if isinstance(field, dict) else {})
    return values
