"""`hai-flow tenants`: those who share a deployment and see nothing of each other. By the database itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hai_flow.cli.commands import Command, app_of
from hai_flow.cli.operate import JsonOption
from hai_flow.cli.processes import DataDirOption, over_database
from hai_flow.cli.terminal import EPILOG, UsageError, moment, out, print_json, say
from hai_flow.errors import HaiFlowError
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.store.database import Connection
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
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a tenant."""
    from hai_flow.store import tenants as store

    if not store.NAME.fullmatch(name):
        raise UsageError(f"expected a name of a-z, 0-9, - and _ that begins with a letter or digit, found {name!r}.")
    made = over_database(data_dir, lambda connection: _create(connection, name))
    if made is None:
        raise HaiFlowError(f"there is a tenant {name!r} already.")
    if as_json:
        print_json(_view(made))
    else:
        say(f"The tenant {name} is there.", "green")


@app.command("list", cls=Command, epilog=EPILOG)
def list_tenants(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """All tenants."""
    from hai_flow.store import tenants as store

    found = [_view(each) for each in over_database(data_dir, store.list_tenants)]
    if as_json:
        print_json({"items": found})
        return
    out().table(
        [(each["name"], each["id"], moment(each["created_at"])) for each in found], heads=("name", "id", "since")
    )


async def _create(connection: Connection, name: str) -> Tenant | None:
    """Make it, and begin its audit with that."""
    from hai_flow.store import audit, tenants
    from hai_flow.store.audit_chain import new_row

    async with connection.transaction():
        made = await tenants.create_tenant(connection, name)
        if made is not None:
            row = new_row("tenant.created", "service:cli", {"name": name}, subject=f"tenant:{name}")
            await audit.write(connection, made.id, [row])
    return made


def _view(tenant: Tenant) -> dict[str, Json]:
    return {"id": str(tenant.id), "name": tenant.name, "created_at": tenant.created_at.isoformat()}
