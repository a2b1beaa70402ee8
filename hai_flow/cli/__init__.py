"""The command line: `hai-flow`. A composition root.

`dev serve worker migrate run` are processes; `status doctor verify forget prune archive restore recover` and `audit
verify`, `export` and `anchor` open the database, which proves more than a server's answer; `validate`, the commands for
authors, `diff` of two files, `chaos` (which makes a database of its own) and `version` need no database and no server;
every other command (also `runs migrate`) speaks REST to a server, never SQL, so that permissions are checked in one
place (docs/cli.md).

No module here imports anything heavy at its top. A command makes its imports when it runs, so that every command is
quick and a worker never loads a web framework."""

from __future__ import annotations

import gc
import os
from typing import Annotated, Final

import typer

from hai_flow.cli import completion
from hai_flow.cli.commands import LazyGroup, app_of, entries
from hai_flow.cli.errors import OK
from hai_flow.cli.terminal import program

_PANELS: Final = (
    (
        "Start here",
        (
            ("dev", "serve.dev:dev"),
            ("run", "run.run:run"),
            ("validate", "author.check:validate"),
            ("test", "author.test:play"),
        ),
    ),
    (
        "Author",
        (
            ("new", "author.scaffold:new"),
            ("fmt", "author.scaffold:fmt"),
            ("graph", "author.scaffold:graph"),
            ("schema", "author.scaffold:schema"),
            ("grammar", "author.scaffold:grammar"),
            ("skill", "author.scaffold:skill"),
            ("lsp", "lsp:lsp"),
            ("mcp", "client.mcp_stdio:mcp"),
        ),
    ),
    (
        "Run",
        (
            ("runs", "runs.show:app"),
            ("show", "runs.show:show"),
            ("events", "runs.show:events"),
            ("replay", "runs.time_travel:replay"),
            ("marks", "runs.time_travel:marks"),
            ("changes", "runs.time_travel:changes"),
            ("pause", "runs.control:pause"),
            ("resume", "runs.control:resume"),
            ("stop", "runs.control:stop"),
            ("terminate", "runs.control:terminate"),
            ("retry", "runs.control:retry"),
            ("skip", "runs.control:skip"),
            ("rerun", "runs.time_travel:rerun"),
            ("fork", "runs.time_travel:fork"),
            ("bulk", "runs.bulk:bulk"),
            ("jump", "runs.control:jump"),
            ("signal", "runs.signal:signal"),
            ("send", "runs.signal:send"),
            ("schedules", "runs.schedules:app"),
            ("files", "runs.files:app"),
        ),
    ),
    (
        "Decide",
        (
            ("inbox", "people.inbox:inbox"),
            ("pendings", "people.decide:pendings"),
            ("decide", "people.decide:decide"),
            ("receipt", "people.receipts:app"),
            ("delegate", "people.inbox:delegate"),
            ("delegations", "people.delegations:app"),
            ("absences", "people.absences:app"),
            ("rules", "people.rules:app"),
            ("chat", "people.chat:app"),
            ("oversight", "people.oversight:oversight"),
            ("canary", "people.canaries:app"),
        ),
    ),
    (
        "Operate",
        (
            ("serve", "serve.processes:serve"),
            ("worker", "serve.processes:worker"),
            ("migrate", "serve.migrate:migrate"),
            ("publish", "admin.versions:publish"),
            ("versions", "admin.versions:versions"),
            ("diff", "admin.versions:diff"),
            ("backtest", "admin.backtest:backtest"),
            ("retire", "admin.versions:retire"),
            ("unretire", "admin.versions:unretire"),
            ("status", "admin.status:status"),
            ("doctor", "admin.doctor:doctor"),
            ("verify", "admin.verify:verify"),
            ("freeze", "admin.freezes:freeze"),
            ("thaw", "admin.freezes:thaw"),
            ("freezes", "admin.freezes:freezes"),
        ),
    ),
    (
        "Administer",
        (
            ("keys", "admin.keys:app"),
            ("sign-in", "sign_in:sign_in"),
            ("tenants", "admin.tenants:app"),
            ("cells", "admin.cells:app"),
            ("audit", "admin.audit:app"),
            ("forget", "admin.audit:forget"),
            ("prune", "admin.retention:prune"),
            ("archive", "admin.retention:archive"),
            ("restore", "admin.retention:restore"),
            ("recover", "admin.recover:recover"),
            ("chaos", "hai-flow-chaos"),
            ("conformance", "hai-flow-conformance"),
            ("completion", "completion:completion"),
            ("version", "author.check:version"),
        ),
    ),
)


class _Commands(LazyGroup):
    entries = entries(_PANELS)

    def respell(self, args: list[str]) -> tuple[str, list[str]] | None:
        if args[:1] == ["restored"]:
            return "recover", args[1:]
        if args[:1] == ["migrate"]:
            rest = _strip_data_dir(args[1:])
            if any(not each.startswith("-") or each.partition("=")[0] in _OF_RUNS for each in rest):
                return "runs migrate", rest
        return None


_OF_RUNS: Final = {"--from", "--to", "--run", "--map", "--dry-run", "--as"}  # options of `migrate NAME`


def _strip_data_dir(args: list[str]) -> list[str]:
    """`args` without the only option of `migrate` that takes a value; `migrate NAME` never read it."""
    return [
        each
        for before, each in zip(["", *args], args, strict=False)
        if each.partition("=")[0] != "--data-dir" and before != "--data-dir"
    ]


app = app_of(
    name="hai-flow",
    cls=_Commands,
    help="Declarative workflows that wait for people, in PostgreSQL.",
    no_args_is_help=True,
)


def _version(wanted: bool) -> None:
    if wanted:
        from hai_flow.cli.author.check import version

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
