"""`dev`: everything in one process, for authors of workflows.

A life, top to bottom: PostgreSQL -> schema -> workflows -> API and worker -> commands to try -> until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shlex
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hai_flow import addresses
from hai_flow.cli.author.sources import SUFFIXES, TESTS
from hai_flow.cli.database import RunDatabase, migrate_if_behind, open_database
from hai_flow.cli.errors import UsageError, explain
from hai_flow.cli.options import DataDirOption, HostOption, PortOption, QueuesOption, load_settings
from hai_flow.cli.run_until_signal import exit_code_for, live, tell_stopping
from hai_flow.cli.serve.backend import Backend, Local
from hai_flow.cli.serve.logs import configure_logs
from hai_flow.cli.serve.runtimes import alongside, list_works, run_runtime
from hai_flow.cli.terminal import program, say
from hai_flow.errors import HaiFlowError
from hai_flow.settings import Settings, variable
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.cli.serve.watch import Shelf


DEMO_WORKFLOW: Final = "refund"
DEMO_SECONDS_MAX: Final = 30.0


def dev(
    host: HostOption = None,
    port: PortOption = None,
    data_dir: DataDirOption = None,
    queue: QueuesOption = None,
    workflows: Annotated[
        Path | None,
        typer.Option("--workflows", help="The folder to load and watch. Default: ./workflows, else the examples."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Start a run that waits for you.")] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the console in a browser.")] = False,
) -> None:
    """Everything in one process: PostgreSQL, the API and a worker; workflows are loaded again when you save them."""
    settings = load_settings(
        dev=True,
        host=host,
        port=port,
        data_dir=data_dir,
        workflows_dir=workflows,
        queues=tuple(queue) if queue else None,
    )
    folders = list_workflow_folders(settings, named=workflows is not None)
    configure_logs("warning", "text" if settings.logs == "auto" else settings.logs)  # it is read by a person
    with open_database(settings) as database:
        code = live(lambda: Dev(database, settings, folders, demo=demo, opens=not no_open).run())
    say("Stopped.")
    raise typer.Exit(code)


def list_workflow_folders(settings: Settings, *, named: bool) -> list[Path]:
    """The folder of the settings; if it does not exist, also the installed examples. Raises UsageError if `named`."""
    if settings.workflows_dir.is_dir():
        return [settings.workflows_dir]
    if named:
        raise UsageError(f"--workflows: expected a folder, found none at {settings.workflows_dir}.")
    from hai_flow.cli.serve.watch import EXAMPLES

    examples = [folder for folder in EXAMPLES if folder.is_dir()]
    return [*examples[:1], settings.workflows_dir]


class Dev:
    """One run of `dev` over a database that answers."""

    def __init__(
        self, database: RunDatabase, settings: Settings, folders: list[Path], *, demo: bool, opens: bool
    ) -> None:
        self._database = database
        self._settings = settings
        self._folders = folders
        self._demo = demo
        self._opens = opens and can_open_browser()
        self._greeting: asyncio.Task[None] | None = None

    async def run(self) -> int:
        from hai_flow.api.app import create_app
        from hai_flow.api.http import server
        from hai_flow.cli.serve.watch import Shelf

        await migrate_if_behind(self._database)
        say(f"PostgreSQL is ready: {self._database.shown}.")
        async with run_runtime(self._database, self._settings, performs=True, project=True) as runtime:
            local = Local(runtime)
            shelf = Shelf(local, self._folders, runtime.toolbox.project)
            runtime.catalog.is_on_disk = shelf.holds
            await shelf.load()
            app = create_app(self._settings, runtime, act_as=True)
            async with alongside(shelf.watch()):
                ended_by = await server.serve(
                    app,
                    runtime,
                    self._settings,
                    started=lambda url: self._on_start(url, local, shelf),
                    stopping=lambda requests: tell_stopping(
                        self._settings.shutdown_seconds, list_works([runtime], requests)
                    ),
                )
            await self._end_greeting()
        return exit_code_for(ended_by)

    def _on_start(self, url: str, local: Local, shelf: Shelf) -> None:
        self._greeting = asyncio.get_running_loop().create_task(self._print_greeting(url, local, shelf))

    async def _print_greeting(self, url: str, local: Local, shelf: Shelf) -> None:
        from hai_flow.api.rest.landing import NO_IDENTITY

        say(f"Serving {url} (API description: {url}/docs), performing runs. Ctrl-C stops everything.", "bold green")
        if self._settings.identity is not None:
            page = f"{url}/sign-in/link/{await local.sign_in_token()}"  # signs one browser in as `user:local`
            say(f"Sign in once, within ten minutes: {page}", "yellow")
        else:
            page = f"{url}{addresses.CONSOLE}/"
            say(f"Decide and watch in a browser: {page}")
            say(f"{NO_IDENTITY} To change that: {variable('identity')}=keys", "yellow")
        if self._opens:
            await asyncio.to_thread(webbrowser.open, page)
        for line in beginnings(self._settings.workflows_dir, set(shelf.names)):
            say(line, "yellow")
        keyed = self._settings.identity is not None
        for line in explain_making_a_key(self._settings.data_dir) if keyed else ():
            say(line)
        names = set() if self._demo else set(shelf.names)  # with the demo, commands about it follow
        for line in suggestions(url, names, shelf.samples, default_url=self._settings.url, keyed=keyed):
            say(line)
        if not self._demo:
            return
        try:
            async with asyncio.timeout(DEMO_SECONDS_MAX):
                run_id, pending_id = await start_demo(local)
        except HaiFlowError as error:
            explain(error)
        except TimeoutError:
            say(f"The demo did not ask anything within {DEMO_SECONDS_MAX:.0f} s.", "yellow")
        else:
            for line in explain_demo(url, run_id, pending_id, default_url=self._settings.url, keyed=keyed):
                say(line)

    async def _end_greeting(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
            await asyncio.wait({self._greeting})


def can_open_browser() -> bool:
    """Whether a person sits at a machine with a desktop: elsewhere there is no browser, or one within the terminal."""
    desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return desktop and sys.stdout.isatty()


# --- commands to try ----------------------------------------------------------------------------------------------


def beginnings(folder: Path, loaded: set[str]) -> Iterator[str]:
    """The first commands to type in a project that has no workflows yet."""
    if any(path.suffix in SUFFIXES and not path.name.endswith(TESTS) for path in folder.rglob("*")):
        return
    empty = f"There is no workflow in {folder} yet" if folder.is_dir() else f"There is no folder {folder} yet"
    yield f"{empty}; these are the examples that come along." if loaded else f"{empty}."
    place = "" if folder == Path("workflows") else f" -o {shlex.quote(str(folder))}"
    yield "Begin one, it is loaded as soon as it is there; in another terminal, in this folder:"
    yield f"  {program()} new NAME{place}"


def explain_making_a_key(data_dir: Path) -> Iterator[str]:
    """The command that makes a key, for a server that asks for credentials."""
    place = "" if data_dir == Path(".hai-flow") else f" --data-dir {shlex.quote(str(data_dir))}"
    command = f"{program()} keys create user:local --role operator --role decider{place}"
    yield ""
    yield "Commands call with a key. Make one first, in another terminal, in this folder:"
    yield f"  export {variable('key')}=$({command})"


def suggestions(
    url: str, names: set[str], samples: Mapping[str, dict[str, Json]], *, default_url: str, keyed: bool = False
) -> Iterator[str]:
    """Commands that work as they stand, for workflows that are loaded; `samples` has an input for those that a request
    may start. `keyed`: the server asks for credentials, so the commands use the key of `explain_making_a_key`."""
    yield ""
    if url != default_url:
        yield f"For commands in another terminal: export {variable('url')}={url}"
    yield "Try, in another terminal:"
    token = secrets.token_hex(4)
    if "chat" in names:
        message = _user_says(f"thread-{token}", f"run-{token}", "Hello!")
        yield f"  {_post(f'{url}/awp', message, stream=True, keyed=keyed)}"
    for name in (DEMO_WORKFLOW, *sorted(names - {"chat"})):
        if name in samples:
            yield f"  {_post(f'{url}/v1/runs', {'workflow': name, 'input': samples[name]}, keyed=keyed)}"
            break
    yield f"  curl {url}/v1/runs{_credential(keyed)}"
    yield f"  {program()} pendings"
    yield ""


def explain_demo(url: str, run_id: str, pending_id: str, *, default_url: str, keyed: bool = False) -> Iterator[str]:
    """How to answer the demo: by the command line, and by curl."""
    at = "" if url == default_url else f" --server {url}"
    yield f"The demo, {DEMO_WORKFLOW}, waits for you: run {run_id}, pending {pending_id}."
    yield f"Approve in a browser, {url}{addresses.pending(pending_id)}, by the command line or by curl:"
    yield f"  {program()} decide {pending_id} approve{at}"
    yield f"  {_post(f'{url}/v1/pendings/{pending_id}/decide', {'decision': 'approve'}, keyed=keyed)}"
    yield "Then see what it did:"
    yield f"  {program()} show {run_id}{at}"
    yield ""


def _user_says(thread_id: str, run_id: str, text: str) -> Json:
    return {
        "threadId": thread_id,
        "runId": run_id,
        "messages": [{"id": f"msg-{run_id}", "role": "user", "content": text}],
    }


def _post(url: str, body: Json, *, stream: bool = False, keyed: bool = False) -> str:
    text = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl -s{'N' if stream else ''} {url}{_credential(keyed)} -H 'Content-Type: application/json' -d {text}"


def _credential(keyed: bool) -> str:
    return f' -H "Authorization: Bearer ${variable("key")}"' if keyed else ""


async def start_demo(backend: Backend) -> tuple[str, str]:
    """Start the demo workflow. Returns the id of its run and the id of the pending that it waits for."""
    run_id = await backend.start(DEMO_WORKFLOW, {}, None)
    async with contextlib.aclosing(backend.events(run_id)) as events:
        async for event in events:
            if event["type"] == "pending_opened":
                return run_id, event["id"]
    raise HaiFlowError(f"The demo ended without a question; is {DEMO_WORKFLOW} the one that comes along?")
