"""Options that several commands have. Those that stand for a setting override the environment (`load_settings`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hai_flow.settings import Settings

PortOption = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="The TCP port; 0 takes a free one.")]
HostOption = Annotated[str | None, typer.Option("--host", help="The address to listen on.")]
QueuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="NAME[=N]",
        help="A queue whose runs are performed here (again for each); N: at most so many attempts at once; *: all.",
        show_default=False,
    ),
]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="The directory of the embedded PostgreSQL.", show_default=False)
]


def load_settings(*, dev: bool = False, **options: Any) -> Settings:
    """The settings of the environment; those of the command line override them. Raises SettingsError."""
    given = {name: value for name, value in options.items() if value is not None}
    return replace(Settings.from_environment(dev=dev), **given)
