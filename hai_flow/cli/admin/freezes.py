"""`hai-flow freeze`, `thaw` and `freezes`: let nobody begin a step. In the databases themselves, so also while no
server answers; with --server, through a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID, uuid4

import typer

from hai_flow.cells import HOME
from hai_flow.cli.admin.audit_record import BY, record
from hai_flow.cli.admin.each_cell import CellDatabase, CellOption, Visit, tell_faults, visit
from hai_flow.cli.client.rest import ask
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, ServerOption
from hai_flow.cli.terminal import moment, print_items, print_json, print_result, program, say
from hai_flow.engine.steps.held_steps import NO_WRITES
from hai_flow.errors import HaiFlowError
from hai_flow.store.postgres.connections import Connection
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.store.ops.freezes import FreezeRow

REASON_CHARS_MAX: Final = 500


def _of(help: str, metavar: str = "NAME") -> Any:
    return typer.Option(metavar=metavar, help=help)


def freeze(
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason, which is shown with held runs.")],
    every: Annotated[bool, typer.Option("--all", help="Hold all runs of all tenants.")] = False,
    tenant: Annotated[str | None, _of("Hold the runs of a tenant; with another option, only in it.")] = None,
    workflow: Annotated[str | None, _of("Hold the runs of a workflow.")] = None,
    tool: Annotated[str | None, _of("Hold calls of a tool, or of one function.", "TOOL[.FUNCTION]")] = None,
    model: Annotated[str | None, _of("Hold answers of a model.")] = None,
    principal: Annotated[str | None, _of("Hold runs that this principal started or caused.", "user:ann")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Hold only steps that may write.")] = False,
    no_agents: Annotated[bool, typer.Option("--no-agents", help="Hold only steps of agents.")] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prevent steps from beginning, in all runs or in some, within two seconds; effects in flight are finished. People
    can still answer questions; the steps that follow wait. A freeze lasts until `thaw`, also over restarts. It needs no
    server: it writes to the databases of all cells."""
    if not reason.strip() or len(reason) > REASON_CHARS_MAX:
        raise UsageError(f"--reason: expected a sentence of at most {REASON_CHARS_MAX} characters.")
    if read_only and no_agents:
        raise UsageError("expected --read-only or --no-agents, found both; freeze twice for both.")
    mode = "read_only" if read_only else "no_agents" if no_agents else "frozen"
    kinds = {"workflow": workflow, "tool": tool, "model": model, "principal": principal}
    chosen = [(scope, name) for scope, name in kinds.items() if name is not None]
    if [every, bool(chosen) or tenant is not None].count(True) != 1 or len(chosen) > 1:
        raise UsageError("expected one of --all, --tenant, --workflow, --tool, --model or --principal.")
    if read_only and model is not None:
        raise UsageError(f"--read-only: {NO_WRITES}; leave it out.")
    scope, name = chosen[0] if chosen else ("all", "") if every else ("tenant", tenant or "")
    if server is not None:
        if chosen and tenant is not None:
            raise UsageError("--tenant: at a server the tenant is that of your key.")
        body = {"mode": mode, "scope": scope, "name": name, "reason": reason}
        view = ask(server, as_json, lambda api: api.post("/v1/freezes", body))
    else:
        view = _freeze(data_dir, tenant, mode, scope, name, reason)
    if as_json:
        print_json(view)
        return
    say(f"Frozen ({view['id']}): {_words(view)}.", "yellow")
    say(f"To go on: {program()} thaw {view['id']}")


def _freeze(data_dir: Any, tenant: str | None, mode: str, scope: str, name: str, reason: str) -> dict[str, Any]:
    from hai_flow.store.identity import tenants
    from hai_flow.store.ops import freezes as store

    async def find(place: CellDatabase, connection: Connection) -> UUID | None:
        """The id of the tenant; None: it has nothing of that name here. Raises UsageError where there is no tenant."""
        of = await tenants.find_tenant(connection, tenant or tenants.DEFAULT)
        if of is None:
            raise UsageError(f"there is no tenant {tenant!r}.")
        is_there = scope in ("all", "tenant") or await store.exists(connection, of.id, scope, name)
        return of.id if is_there else None

    homes = visit(data_dir, None, find)
    tenant_id = next((each.result for each in homes if each.result is not None), None)
    if tenant_id is None:
        tell_faults(homes)
        raise HaiFlowError(
            f"there is no {scope} {name!r} in the tenant {tenant or tenants.DEFAULT}: nothing is frozen."
        )
    id, of = uuid4(), None if scope == "all" else tenant_id

    async def work(place: CellDatabase, connection: Connection) -> FreezeRow:
        async with connection.transaction():
            row, _ = await store.freeze(connection, id, of, None, mode, scope, name, reason, BY)
            if place.number == HOME:
                details = {"mode": mode, "scope": scope, "name": name, "reason": reason}
                await record(connection, tenant_id, "freeze.created", f"freeze:{id}", **details)
        return row

    visits = visit(data_dir, None, work)
    rows = [each.result for each in visits if each.result is not None]
    _demand_all(visits, "the others obey. Freeze again when it is back.")
    return _view(rows[0], tenant)


async def _default(connection: Connection) -> UUID:
    from hai_flow.store.identity import tenants

    tenant = await tenants.find_tenant(connection, tenants.DEFAULT)
    assert tenant is not None, "it is there from the beginning"
    return tenant.id


def _demand_all(visits: Sequence[Visit[Any]], remedy: str) -> None:
    if tell_faults(visits):
        say(remedy, "red")
        raise typer.Exit(FAILED)


def thaw(
    freeze: Annotated[str, typer.Argument(metavar="FREEZE", help="The freeze's id, or its beginning.")],
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a freeze: the runs that it held continue."""
    from hai_flow.store.ops import freezes as store

    id = _find(_listed(server, data_dir, as_json, over=False), freeze)
    if server is not None:
        view = ask(server, as_json, lambda api: api.post(f"/v1/freezes/{id}/thaw"))
    else:

        async def work(place: CellDatabase, connection: Connection) -> FreezeRow | None:
            async with connection.transaction():
                row = await store.thaw(connection, UUID(id), BY)
                if row is not None and place.number == HOME:
                    await record(connection, row.tenant or await _default(connection), "freeze.thawed", f"freeze:{id}")
            return row

        visits = visit(data_dir, None, work)
        _demand_all(visits, f"the others go on; say it again: {program()} thaw {id}")
        view = _view(next(each.result for each in visits if each.result is not None), None)
    print_result(view, as_json, f"Thawed: {_words(view)}. The runs that it held go on.", "green")


def _find(items: Sequence[dict[str, Any]], text: str) -> str:
    """The id of the freeze that `text` begins. Raises HaiFlowError for none, or for several."""
    ids = [each["id"] for each in items if each["id"].startswith(text.lower())]
    if len(ids) != 1:
        reason = "several freezes begin so" if ids else "no freeze that is in force has this id"
        raise HaiFlowError(f"{reason}: {text[:60]!r}; see them with `{program()} freezes`.")
    return str(ids[0])


def freezes(
    every: Annotated[bool, typer.Option("--all", help="Include freezes that have ended.")] = False,
    cell: CellOption = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the active freezes with their reasons."""
    items = _listed(server, data_dir, as_json, over=every, cell=cell)
    print_items(items, as_json, "Nothing is frozen.", lambda each: {
        "id": each["id"], "what and why": _words(each), "by": each["created_by"],
        "since": moment(each["created_at"]), "until": moment(each["thawed_at"]),
    })  # fmt: skip


def _listed(server: Any, data_dir: Any, as_json: bool, *, over: bool, cell: str | None = None) -> list[dict[str, Any]]:
    from hai_flow.store.ops import freezes as store

    if server is not None:
        return list(ask(server, as_json, lambda api: api.get("/v1/freezes", over=over))["items"])

    async def work(place: CellDatabase, connection: Connection) -> list[FreezeRow]:
        return await store.list_freezes(connection, None, over=over)

    by_id: dict[str, dict[str, Any]] = {}
    visits = visit(data_dir, cell, work)
    tell_faults(visits)
    for each in visits:
        for row in each.result or ():
            by_id.setdefault(str(row.id), _view(row, None))
    return list(by_id.values())


def _view(row: FreezeRow, tenant: str | None) -> dict[str, Json]:
    from hai_flow.api.requests import schemas
    from hai_flow.api.requests.views import render

    return {**render(schemas.Freeze, row, tenant=tenant or (None if row.tenant is None else str(row.tenant)))}


_MODES: Final = {"frozen": "nothing begins", "read_only": "nothing that writes begins", "no_agents": "no agent acts"}


def _words(view: dict[str, Any]) -> str:
    where = "in all runs" if view["scope"] == "all" else f"{view['scope']} {view['name']}".rstrip()
    return f"{_MODES[view['mode']]}, {where}: {view['reason']}"
