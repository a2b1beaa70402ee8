"""Options that several commands have. Those that stand for a setting override the environment (`load_settings`)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from hai_flow.cli import completion
from hai_flow.cli.errors import UsageError
from hai_flow.settings import Settings
from hai_flow.values import Json

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ServerOption = Annotated[str | None, typer.Option("--server", metavar="URL", help="The server. Default: HAI_FLOW_URL.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.", autocompletion=completion.runs)
]
StatusesOption = Annotated[
    list[str] | None,
    typer.Option("--status", help="Only runs with this status; may be repeated.", autocompletion=completion.statuses),
]
OfWorkflowOption = Annotated[
    str | None, typer.Option("--workflow", help="Only runs of this workflow.", autocompletion=completion.workflows)
]
StepArgument = Annotated[str, typer.Argument(metavar="STEP", help="The step's id or path.")]


def _check_principal(text: str | None) -> str | None:
    from hai_flow.engine.pendings.selectors import NotASelector, acting_as

    if text is not None:
        try:
            acting_as(text)
        except NotASelector as error:
            raise UsageError(f"--as: {error}.") from None
    return text


ActAsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="WHO",
        callback=_check_principal,
        help="Act as this person, on a development server: user:ann,role:controller,group:money.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="The reason, which is recorded.")]
PortOption = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="The TCP port; 0 takes a free one.")]
HostOption = Annotated[str | None, typer.Option("--host", help="The address to listen on.")]
QueuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="NAME[=N]",
        help="Perform the runs of this queue, at most N attempts at once; may be repeated. *: every queue.",
        show_default=False,
    ),
]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="The directory of the embedded PostgreSQL.", show_default=False)
]


def load_settings(*, dev: bool = False, **options: Any) -> Settings:
    """The settings of the environment; those of the command line override them. Raises SettingsError."""
    if options.get("queues"):
        _check_queues(options["queues"])
    overrides = {name: value for name, value in options.items() if value is not None}
    return replace(Settings.from_environment(dev=dev), **overrides)


def _check_queues(queues: tuple[str, ...]) -> None:
    """Refuse what is no queue before a database is made or opened. Raises UsageError."""
    from hai_flow.runtime.base.queue_selection import parse_queues

    try:
        parse_queues(queues)
    except ValueError as error:
        raise UsageError(f"--queue: {error}.") from None


def parse_duration(text: str, place: str, *, shortest: int = 1_000) -> timedelta:
    """`text` as a duration of at least `shortest` (ms). Raises UsageError."""
    from hai_flow.definition.names.durations import NotADuration, milliseconds

    try:
        return timedelta(milliseconds=milliseconds(text, shortest=shortest))
    except NotADuration as error:
        raise UsageError(f"{place}: {error}.") from None


def parse_json(text: str, place: str) -> Json:
    """`text` as JSON. Raises UsageError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{place}: expected JSON, found {text[:80]!r} ({error}). Put text in double quotes.") from None
