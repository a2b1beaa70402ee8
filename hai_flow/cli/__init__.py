"""The command line: `hai-flow`. A composition root.

`dev serve worker migrate run` are processes; `status doctor verify forget prune archive restore restored` and `audit
verify`, `export` and `anchor` open the database, which proves more than a server's answer; `validate`, the commands for
authors, `diff` of two files, `chaos` (which makes a database of its own) and `version` need no database and no server;
every other command (also `migrate` of runs) speaks REST to a server, never SQL, so that permissions are checked in one
place (docs/cli.md).

No module here imports anything heavy at its top. A command makes its imports when it runs, so that every command is
quick and a worker never loads a web framework.
"""

from __future__ import annotations

import gc
import os
from typing import Annotated, Final

import typer

from hai_flow.cli import completion
from hai_flow.cli.commands import LazyGroup, app_of, entries
from hai_flow.cli.errors import EPILOG, OK
from hai_flow.cli.terminal import program

_PANELS: Final = (
    ("Start here", (("dev", "dev:dev"), ("run", "run:run"), ("validate", "author:validate"), ("test", "test:play"))),
    (
        "Authors",
        (
            ("new", "drafting:new"),
            ("fmt", "drafting:fmt"),
            ("graph", "drafting:graph"),
            ("schema", "drafting:schema"),
            ("grammar", "drafting:grammar"),
        ),
    ),
    (
        "Processes",
        (
            ("serve", "processes:serve"),
            ("worker", "processes:worker"),
            ("migrate", "versions:migrate"),
            ("cells", "cells:app"),
        ),
    ),
    (
        "Versions",
        (
            ("publish", "versions:publish"),
            ("versions", "versions:versions"),
            ("diff", "versions:diff"),
            ("retire", "versions:retire"),
            ("unretire", "versions:unretire"),
        ),
    ),
    (
        "Runs of a server",
        (
            ("runs", "looking:runs"),
            ("show", "looking:show"),
            ("events", "looking:events"),
            ("replay", "travel:replay"),
            ("marks", "travel:marks"),
            ("changes", "travel:changes"),
        ),
    ),
    (
        "People",
        (
            ("inbox", "inbox:inbox"),
            ("pendings", "deciding:pendings"),
            ("decide", "deciding:decide"),
            ("receipt", "receipts:app"),
            ("delegate", "inbox:delegate"),
        ),
    ),
    (
        "Control",
        (
            ("pause", "control:pause"),
            ("resume", "control:resume"),
            ("stop", "control:stop"),
            ("terminate", "control:terminate"),
            ("retry", "control:retry"),
            ("skip", "control:skip"),
            ("rerun", "travel:rerun"),
            ("fork", "travel:fork"),
            ("bulk", "bulk:bulk"),
            ("jump", "jump:jump"),
            ("signal", "signal:signal"),
            ("send", "signal:send"),
            ("schedules", "schedules:app"),
            ("files", "files:app"),
        ),
    ),
    (
        "Operators",
        (
            ("status", "status:status"),
            ("doctor", "doctor:doctor"),
            ("audit", "audit:app"),
            ("forget", "audit:forget"),
            ("verify", "verify:verify"),
            ("chaos", "chaos:chaos"),
            ("prune", "retention:prune"),
            ("archive", "retention:archive"),
            ("restore", "retention:restore"),
            ("restored", "restored:restored"),
        ),
    ),
    ("Identity", (("keys", "keys:app"), ("tenants", "tenants:app"))),
    (
        "Other",
        (
            ("completion", "completion:completion"),
            ("conformance", "conformance:conformance"),
            ("version", "author:version"),
        ),
    ),
)


class _Commands(LazyGroup):
    entries = entries(_PANELS)


app = app_of(
    name="hai-flow",
    cls=_Commands,
    help="Declarative workflows that wait for people, in PostgreSQL.",
    epilog=EPILOG,
    no_args_is_help=True,
)


def _version(wanted: bool) -> None:
    if wanted:
        from hai_flow.cli.author import version

        version()
        raise typer.Exit(OK)


@app.callback()
def _anything(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version of HAI Flow and of Python."),
    ] = False,
) -> None:
    """Makes typer build a group: at this point the app has no commands, as they are imported later."""


def main() -> None:
    """The entry point of `hai-flow`."""
    # Importing makes many objects and hardly any garbage: by default it is looked through some 300 times. A process
    # that stays looks more often again once everything is imported (`relax_collector`).
    gc.set_threshold(500_000, 20, 100)
    if completion.VARIABLE in os.environ:
        completion.prepare()
    app(prog_name=program(), complete_var=completion.VARIABLE)


__all__ = ["app", "main"]
