"""`hai-flow tenants`: those who share a deployment and see nothing of each other, and what each may have. By the
database itself; with --server, limits by a server, for the admins of the tenant `default`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hai_flow.cli.cells import CellOption, cells_by_number, connected_to, wanted_cells
from hai_flow.cli.commands import Command, app_of
from hai_flow.cli.keys import record
from hai_flow.cli.operate import JsonOption, ServerOption, ask
from hai_flow.cli.processes import DataDirOption, over_database
from hai_flow.cli.terminal import EPILOG, UsageError, moment, out, print_json, say
from hai_flow.errors import HaiFlowError
from hai_flow.values import Json

if TYPE_CHECKING:
    from asyncpg import Connection

    from hai_flow.store.cells import Cell
    from hai_flow.store.tenants import Tenant

app = app_of(name="tenants", help="Tenants.", epilog=EPILOG)


@app.callback(invoke_without_command=True)
def tenants(context: typer.Context) -> None:
    """Tenants, each with runs, workflows and keys of its own; without a command, their list."""
    if context.invoked_subcommand is None:
        list_tenants()


@app.command(cls=Command, epilog=EPILOG)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9, - and _; it stays.")],
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a tenant."""
    from hai_flow.store import tenants as store

    if not store.NAME.fullmatch(name):
        raise UsageError(f"expected a name of a-z, 0-9, - and _ that begins with a letter or digit, found {name!r}.")
    cells = () if cell is None else wanted_cells(data_dir, cell)
    made = over_database(data_dir, lambda connection: _create(connection, name, cells))
    if made is None:
        raise HaiFlowError(f"there is a tenant {name!r} already.")
    if as_json:
        print_json(_view(made))
    else:
        say(f"The tenant {name} is there.", "green")


def _limit(help: str) -> Any:
    return typer.Option(metavar="N", help=f"{help}; 0: no limit, `default`: what the settings give to all.")


@app.command("set", cls=Command, epilog=EPILOG)
def set_limits(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    runs_per_minute: Annotated[str | None, _limit("Runs that begin in a minute")] = None,
    open_runs: Annotated[str | None, _limit("Runs that have not ended")] = None,
    followers: Annotated[str | None, _limit("Streams of a process that only follow")] = None,
    log_bytes: Annotated[str | None, _limit("Bytes of all logs")] = None,
    cell: CellOption = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limit a tenant, or say where it lives, before it has anything. Processes go by it within seconds."""
    from urllib.parse import quote

    said = {"runs_per_minute": runs_per_minute, "open_runs": open_runs, "followers": followers, "log_bytes": log_bytes}
    changed = {limit: _number(limit, text) for limit, text in said.items() if text is not None}
    if cell is not None:
        _move(name, cell, data_dir, server, as_json, alone=not changed)
    elif not changed:
        raise UsageError(f"expected --cell or a limit, one of {', '.join(map(_option, said))}.")
    if not changed:
        return
    if server is None:
        limited = _view(over_database(data_dir, lambda connection: _set(connection, name, changed)))
    else:
        limited = ask(server, as_json, lambda api: api.patch(f"/v1/tenants/{quote(name, safe='')}", changed))
    if as_json:
        print_json(limited)
    else:
        say(f"The tenant {name} is limited: {_shown(limited['limits'])}.", "green")


async def _set(connection: Connection, name: str, changed: dict[str, int | None]) -> Tenant:
    from hai_flow.store import tenants as store

    async with connection.transaction():
        limited = await store.set_limits(connection, name, changed)
        if limited is None:
            raise HaiFlowError(f"there is no tenant {name!r}.")
        await record(connection, limited.id, "tenant.limited", f"tenant:{name}", limits=changed)
    return limited


def _move(name: str, cell: str, data_dir: Path | None, server: str | None, as_json: bool, *, alone: bool) -> None:
    if server is not None:
        raise UsageError("--cell looks at the cells themselves, so not with --server.")
    cells = wanted_cells(data_dir, cell)
    moved = over_database(data_dir, lambda connection: _place(connection, name, cells, data_dir))
    if as_json and alone:
        print_json(_view(moved))
    elif not as_json:
        say(f"The tenant {name} lives in {cell}.", "green")


async def _place(connection: Connection, name: str, cells: Sequence[Cell], data_dir: Path | None) -> Tenant:
    """Where something of it is already it stays: what has been logged is not moved."""
    from hai_flow.store import tenants as store

    async with connection.transaction():
        found = await store.find_tenant(connection, name)
        if found is None:
            raise HaiFlowError(f"there is no tenant {name!r}.")
        for place in cells_by_number(data_dir, found.cells):
            async with connected_to(place, connection) as there:
                if await store.lives_here(there, found.id):
                    raise HaiFlowError(
                        f"the tenant {name} has runs, workflows, events or files in the cell {place.name}, and they do "
                        "not move: say where a tenant lives before it has any. A whole cell can be moved "
                        "(docs/scale.md)."
                    )
        await _copy(cells, connection, found)
        moved = await store.set_cells(connection, name, tuple(each.number for each in cells))
        assert moved is not None, "it was there a moment ago"
        await record(connection, moved.id, "tenant.placed", f"tenant:{name}", cells=[each.name for each in cells])
    return moved


async def _copy(cells: Sequence[Cell], connection: Connection, tenant: Tenant) -> None:
    from hai_flow.cells import HOME
    from hai_flow.store import tenants as store

    for place in cells:
        if place.number != HOME:
            async with connected_to(place, connection) as there:
                await store.copy_tenant(there, tenant)


def _option(limit: str) -> str:
    return f"--{limit.replace('_', '-')}"


def _number(limit: str, text: str) -> int | None:
    from hai_flow.store.tenants import MOST

    if text == "default":
        return None
    if not text.isascii() or not text.isdigit() or int(text) > MOST[limit]:
        raise UsageError(f"{_option(limit)}: expected `default` or a number up to {MOST[limit]}, found {text[:40]!r}.")
    return int(text)


@app.command("list", cls=Command, epilog=EPILOG)
def list_tenants(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """All tenants, with the limits that were set for them."""
    from hai_flow.store import tenants as store

    found = [_view(each) for each in over_database(data_dir, store.list_tenants)]
    if as_json:
        print_json({"items": found})
        return
    rows = [(each["name"], each["id"], moment(each["created_at"]), _shown(each["limits"])) for each in found]
    out().table(rows, heads=("name", "id", "since", "limits"))


async def _create(connection: Connection, name: str, cells: Sequence[Cell]) -> Tenant | None:
    """Make it, and begin its audit with that."""
    from hai_flow.store import tenants

    numbers = tuple(each.number for each in cells) or tenants.AT_HOME
    async with connection.transaction():
        made = await tenants.create_tenant(connection, name, numbers)
        if made is not None:
            await _copy(cells, connection, made)
            await record(connection, made.id, "tenant.created", f"tenant:{name}", name=name)
    return made


def _view(tenant: Tenant) -> dict[str, Json]:
    limits: dict[str, Json] = dict(tenant.limits.as_dict())
    return {
        "id": str(tenant.id),
        "name": tenant.name,
        "created_at": tenant.created_at.isoformat(),
        "limits": limits,
        "cells": list(tenant.cells),
    }


def _shown(limits: dict[str, int | None]) -> str:
    return ", ".join(f"{name} {value or 'unlimited'}" for name, value in limits.items() if value is not None) or "-"
