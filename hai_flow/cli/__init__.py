"""The command line: `hai-flow`. A composition root.

`dev serve worker migrate run` are processes; `validate`, the commands for authors, `diff` of two files and `version`
need nothing; every other command (also `migrate` of runs) speaks REST to a server, never SQL, so that who may do what
is checked in one place (DESIGN section 11).

Nothing heavy is imported up here: a command imports what it needs when it runs, so that `--help` is quick and a worker
never sees a web framework.
"""

from __future__ import annotations

import difflib
from typing import Any

import typer
from typer.core import TyperGroup

from hai_flow.cli import author, conformance, dev, drafting, operate, processes, run, schedules, signal, versions
from hai_flow.cli import test as tests
from hai_flow.cli.terminal import EPILOG, exit_code_of, explain, program
from hai_flow.errors import HaiFlowError


class _Commands(TyperGroup):
    """Every error that HAI Flow raises on purpose is a sentence and an exit code, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HaiFlowError as error:
            explain(error)
            raise typer.Exit(exit_code_of(error)) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0] if args else ""
        near = difflib.get_close_matches(word, self.commands, n=1)
        if word not in self.commands and near and not word.startswith("-"):
            ctx.fail(f"No such command '{word}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


app = typer.Typer(
    name="hai-flow",
    cls=_Commands,
    help="Declarative workflows that wait for people, in PostgreSQL.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _panel, _commands in (
    ("Start here", (dev.dev, run.run, author.validate)),
    ("Authors", (drafting.new, drafting.fmt, drafting.graph, drafting.schema, drafting.grammar)),
    ("Processes", (processes.serve, processes.worker, versions.migrate)),
    ("Versions", (versions.publish, versions.versions, versions.diff)),
    ("Runs of a server", (operate.runs, operate.show, operate.events)),
    ("People", (operate.pendings, operate.decide)),
    (
        "Control",
        (operate.pause, operate.resume, operate.stop, operate.terminate, operate.retry, signal.signal, signal.send),
    ),
    ("Other", (author.version,)),
):
    for _command in _commands:
        app.command(rich_help_panel=_panel, epilog=EPILOG)(_command)
app.command("test", rich_help_panel="Start here", epilog=EPILOG)(tests.play)
app.command(rich_help_panel="Other", epilog=conformance.EPILOG)(conformance.conformance)
app.add_typer(schedules.app, rich_help_panel="Control")


def main() -> None:
    """The entry point of `hai-flow`."""
    app(prog_name=program())


__all__ = ["app", "main"]
