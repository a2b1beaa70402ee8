"""`hai-flow runs migrate`: moves runs to another version of their workflow, over REST."""

from __future__ import annotations

from typing import Annotated

import typer

from hai_flow.cli import completion
from hai_flow.cli.client.rest import ActingOptions, Server
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.terminal import plural, say
from hai_flow.values import Json


def migrate(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The workflow whose runs move.", autocompletion=completion.workflows)
    ],
    remote: ActingOptions,
    old: Annotated[str | None, typer.Option("--from", metavar="VERSION", help="Their current version.")] = None,
    new: Annotated[str | None, typer.Option("--to", metavar="VERSION", help="Their new version.")] = None,
    chosen: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="RUN", help="Only this run; may be repeated.", autocompletion=completion.runs),
    ] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="The new name of a step; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the runs that can move, and the obstacles of others.")
    ] = False,
) -> None:
    """Move runs of a workflow to another version of it, from the step at which they stand.

    Without --run that is every active run of the version. Exits with 1 if a run can't move."""
    if old is None or new is None:
        raise UsageError(f"expected both versions: runs migrate {name} --from 1 --to 2.")
    body: dict[str, Json] = {"from": old, "to": new, "map": _mapping(mapping or []), "dry_run": dry_run}

    async def work(api: Server) -> Json:
        runs = {"runs": [await api.run_id(run) for run in chosen]} if chosen else {}
        return await api.post(f"/v1/workflows/{name}/migrate", {**body, **runs})

    answer = remote.ask_and_print(work)
    if not remote.as_json:
        _print_migration(f"{name}@{new}", answer)
    if any(not run["movable"] for run in answer["runs"]):
        raise typer.Exit(FAILED)


def _mapping(pairs: list[str]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for pair in pairs:
        old, separator, new = pair.partition("=")
        if not separator or not old or not new:
            raise UsageError(f"--map: expected OLD=NEW, ids or paths of steps, found {pair!r}.")
        mapping[old] = new
    return mapping


def _print_migration(reference: str, answer: Json) -> None:
    moves = "can move" if answer["dry_run"] else "moved"
    for run in answer["runs"]:
        if run["movable"]:
            say(f"{run['id']} ({run['status']}) {moves}.", "green")
            continue
        say(f"{run['id']} ({run['status']}) stays:", "yellow")
        for obstacle in run["obstacles"]:
            say(f"  {obstacle['message']}")
    able = sum(run["movable"] for run in answer["runs"])
    say(f"{able} of {plural(len(answer['runs']), 'run')} {moves} to {reference}.")
    if answer["more"]:
        say("There are more runs; send it again, or name them with --run.", "yellow")
