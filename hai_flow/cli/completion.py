"""Completion in a shell: typer completes commands and options, a server is asked for names and ids.

While somebody types, nothing may fail or take long: a server that does not answer at once offers nothing."""

from __future__ import annotations

import sys
from typing import Annotated, Final, Literal, TypeAlias

import typer

from hai_flow.cli.console import join_lines
from hai_flow.cli.errors import UsageError
from hai_flow.cli.terminal import program
from hai_flow.values import Json

Offers: TypeAlias = list[tuple[str, str]]  # a word, and its meaning

VARIABLE: Final = "_HAI_FLOW_COMPLETE"  # set by the shell's function: it asks for completion
SECONDS_MAX: Final = 2.0
ITEMS_MAX: Final = 100
STATUSES: Final = (
    "queued", "running", "waiting", "paused", "stopping", "finished", "failed", "stopped", "needs_attention",
)  # fmt: skip


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print the script that completes commands, workflows, runs and questions in your shell.

    For bash, put `eval "$(hai-flow completion bash)"` into ~/.bashrc; for zsh the same with zsh into ~/.zshrc, behind
    compinit; for fish, `hai-flow completion fish > ~/.config/fish/completions/hai-flow.fish`."""
    from typer.completion import get_completion_script

    if program() != "hai-flow":
        raise UsageError(
            "completion is for the command hai-flow, which is not on PATH here: install it with pip, or put the folder "
            ".venv/bin of the checkout on PATH."
        )
    sys.stdout.write(get_completion_script(prog_name="hai-flow", complete_var=VARIABLE, shell=shell) + "\n")


def prepare() -> None:
    """Let typer answer a shell that asks."""
    from typer.completion import completion_init

    completion_init()


# --- names and ids ----------------------------------------------------------------------------------------------------


def runs(ctx: typer.Context, incomplete: str) -> Offers:
    """The newest runs by id."""
    items = _list_newest(ctx, "/v1/runs")
    return [(run["id"], f"{run['workflow']}, {run['status']}") for run in items if run["id"].startswith(incomplete)]


def pendings(ctx: typer.Context, incomplete: str) -> Offers:
    """The open questions by id."""
    items = _list_newest(ctx, "/v1/pendings")
    return [
        (each["id"], join_lines(str(each["title"] or each["path"])))
        for each in items
        if each["id"].startswith(incomplete)
    ]


def workflows(ctx: typer.Context, incomplete: str) -> Offers:
    titles = {each["name"]: join_lines(str(each["title"] or "")) for each in _list_newest(ctx, "/v1/workflows")}
    return [(name, title) for name, title in sorted(titles.items()) if name.startswith(incomplete)]


def schedules(ctx: typer.Context, incomplete: str) -> Offers:
    items = _list_newest(ctx, "/v1/schedules")
    return [
        (each["id"], f"{each['workflow']}: {each['explanation']}")
        for each in items
        if each["id"].startswith(incomplete)
    ]


def statuses(incomplete: str) -> list[str]:
    return [status for status in STATUSES if status.startswith(incomplete)]


def _list_newest(ctx: typer.Context, path: str) -> list[Json]:
    """The newest of a list, from the server that the command line names; nothing where none answers at once."""
    import asyncio

    async def asked() -> list[Json]:
        from hai_flow.cli.client.rest import Server

        async with asyncio.timeout(SECONDS_MAX), Server(ctx.params.get("server")) as server:
            return (await server.get(path, limit=ITEMS_MAX))["items"]

    try:
        return asyncio.run(asked())
    except Exception:  # whatever it is, a person is typing
        return []
