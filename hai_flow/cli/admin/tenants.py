"""`hai-flow tenants`: groups that share a deployment and see nothing of each other, and their limits. In the database
itself; with --server, limits through a server, for the admins of the tenant `default`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hai_flow.cli.admin.audit_record import record
from hai_flow.cli.admin.known_cells import find_cells, list_cells_by_number, open_cell
from hai_flow.cli.client.rest import ask
from hai_flow.cli.commands import app_of
from hai_flow.cli.database import run_over_database
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, ServerOption
from hai_flow.cli.terminal import moment, print_items, print_json, print_result, say
from hai_flow.errors import HaiFlowError
from hai_flow.store.postgres.connections import Connection
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.store.cells.cells import Cell
    from hai_flow.store.identity.tenants import Tenant

CellOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cell", metavar="NAME", help="A cell in which the tenant's threads begin, or `home`; may be repeated."
    ),
]

app = app_of(
    name="tenants", lists="Tenants, each with runs, workflows and keys of its own; without a command, their list."
)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9, - and _; it can't be changed.")],
    cell: CellOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a tenant."""
    from hai_flow.store.identity import tenants as store

    if not store.NAME.fullmatch(name):
        raise UsageError(f"expected a name of a-z, 0-9, - and _ that begins with a letter or digit, found {name!r}.")
    cells = find_cells(data_dir, cell or ())
    tenant = run_over_database(data_dir, lambda connection: _create(connection, name, cells))
    if tenant is None:
        raise HaiFlowError(f"there is a tenant {name!r} already.")
    print_result(_view(tenant), as_json, f"The tenant {name} is there.", "green")


def _limit(help: str) -> Any:
    return typer.Option(metavar="N", help=f"{help}; 0: no limit, `default`: what the settings give to all.")


@app.command("set")
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
    """Limit a tenant, or choose the cells in which its threads begin. Processes apply it within seconds."""
    from urllib.parse import quote

    texts = {"runs_per_minute": runs_per_minute, "open_runs": open_runs, "followers": followers, "log_bytes": log_bytes}
    changed: dict[str, Any] = {limit: _number(limit, text) for limit, text in texts.items() if text is not None}
    if cell and server is None:
        _settle(name, cell, data_dir, as_json, alone=not changed)
    elif not cell and not changed:
        raise UsageError(f"expected --cell or a limit, one of {', '.join(map(_option, texts))}.")
    if not changed and server is None:
        return
    if cell and server is not None:
        changed["cells"] = cell
    if server is None:
        limited = _view(run_over_database(data_dir, lambda connection: _set(connection, name, changed)))
    else:
        limited = ask(server, as_json, lambda api: api.patch(f"/v1/tenants/{quote(name, safe='')}", changed))
    if as_json:
        print_json(limited)
        return
    if "cells" in changed:
        say(f"The tenant {name} begins its threads in {', '.join(changed.pop('cells'))}.", "green")
    if changed:
        say(f"The tenant {name} is limited: {_format_limits(limited['limits'])}.", "green")


async def _set(connection: Connection, name: str, changed: dict[str, int | None]) -> Tenant:
    from hai_flow.store.identity import tenants as store

    async with connection.transaction():
        limited = await store.set_limits(connection, name, changed)
        if limited is None:
            raise HaiFlowError(f"there is no tenant {name!r}.")
        await record(connection, limited.id, "tenant.limited", f"tenant:{name}", limits=changed)
    return limited


def _settle(name: str, cells: Sequence[str], data_dir: Path | None, as_json: bool, *, alone: bool) -> None:
    chosen = find_cells(data_dir, cells)
    settled = run_over_database(data_dir, lambda connection: _assign(connection, name, chosen, data_dir))
    if as_json and alone:
        print_json(_view(settled))
    elif not as_json:
        say(f"The tenant {name} lives in {_lives(settled, chosen, data_dir)}.", "green")


def _lives(tenant: Tenant, wanted: Sequence[Cell], data_dir: Path | None) -> str:
    numbers = [cell.number for cell in wanted]
    names = ", ".join(cell.name for cell in wanted)
    rest = ", ".join(cell.name for cell in list_cells_by_number(data_dir, tenant.cells) if cell.number not in numbers)
    return f"{names}; what it has in {rest} stays there, and nothing new begins there" if rest else names


async def _assign(connection: Connection, name: str, cells: Sequence[Cell], data_dir: Path | None) -> Tenant:
    from hai_flow.errors import Rejected
    from hai_flow.runtime.tenancy.cell_assignment import settle

    def connect(number: int) -> AbstractAsyncContextManager[Connection]:
        (cell,) = list_cells_by_number(data_dir, [number])
        return open_cell(cell, connection)

    async with connection.transaction():
        try:
            settled = await settle(connection, connect, name, [each.number for each in cells])
        except Rejected as rejected:
            raise HaiFlowError(rejected.detail) from None
        if settled is None:
            raise HaiFlowError(f"there is no tenant {name!r}.")
        await record(connection, settled.id, "tenant.placed", f"tenant:{name}", cells=[each.name for each in cells])
    return settled


async def _copy(cells: Sequence[Cell], connection: Connection, tenant: Tenant) -> None:
    from hai_flow.cells import HOME
    from hai_flow.store.identity import tenants as store

    for place in cells:
        if place.number != HOME:
            async with open_cell(place, connection) as other:
                await store.copy_tenant(other, tenant)


def _option(limit: str) -> str:
    return f"--{limit.replace('_', '-')}"


def _number(limit: str, text: str) -> int | None:
    from hai_flow.store.identity.tenants import MOST

    if text == "default":
        return None
    if not text.isascii() or not text.isdigit() or int(text) > MOST[limit]:
        raise UsageError(f"{_option(limit)}: expected `default` or a number up to {MOST[limit]}, found {text[:40]!r}.")
    return int(text)


@app.command("list")
def list_tenants(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """All tenants, with the limits that were set for them."""
    from hai_flow.store.identity import tenants as store

    items = [_view(each) for each in run_over_database(data_dir, store.list_tenants)]
    print_items(items, as_json, "", lambda each: {
        "name": each["name"], "id": each["id"], "since": moment(each["created_at"]),
        "limits": _format_limits(each["limits"]),
    })  # fmt: skip


async def _create(connection: Connection, name: str, cells: Sequence[Cell]) -> Tenant | None:
    """Make the tenant, and record that as the first act of its audit. None: the name is taken."""
    from hai_flow.store.identity import tenants

    numbers = tuple(each.number for each in cells) or tenants.AT_HOME
    async with connection.transaction():
        tenant = await tenants.create_tenant(connection, name, numbers)
        if tenant is not None:
            await _copy(cells, connection, tenant)
            await record(connection, tenant.id, "tenant.created", f"tenant:{name}", name=name)
    return tenant


def _view(tenant: Tenant) -> dict[str, Json]:
    limits: dict[str, Json] = dict(tenant.limits.as_dict())
    return {
        "id": str(tenant.id),
        "name": tenant.name,
        "created_at": tenant.created_at.isoformat(),
        "limits": limits,
        "cells": list(tenant.cells),
        "closed": list(tenant.living.closed),
    }


def _format_limits(limits: dict[str, int | None]) -> str:
    return ", ".join(f"{name} {value or 'unlimited'}" for name, value in limits.items() if value is not None) or "-"
