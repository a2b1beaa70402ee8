"""`/v1/freezes`: what operators let nobody begin, in all runs or in some (docs/operations.md#freezing)."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID, uuid4

from fastapi import Query
from pydantic import Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, Visible, read_uuid
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import KEY_REUSED, CommandKey, CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.routes import Routes
from hai_flow.cells import HOME
from hai_flow.engine.steps.held_steps import NO_WRITES, Mode, Scope, holds_nothing
from hai_flow.errors import Rejected
from hai_flow.primitives.invisible_characters import compose
from hai_flow.primitives.uuids import derive_uuid
from hai_flow.store.identity import tenants
from hai_flow.store.ops import freezes
from hai_flow.store.ops.freezes import FreezeRow

router = Routes(prefix="/v1/freezes", tags=["freezes"])

_CONTROLS: Final = requires(Right.CONTROL_RUNS)
_OF_ALL: Final = ("all", "tenant")


class FreezeBody(Body):
    """`scope: all`: of every tenant; `tenant`: of the tenant `name`, by default yours. The others are of your tenant:
    a workflow, a tool (`name` or `name.function`), a model, or the runs that somebody started or is behind."""

    mode: Mode = "frozen"
    scope: Scope
    name: Annotated[str, Field(max_length=300, pattern=NO_CONTROL_CHARACTERS), Visible] = ""
    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=NO_CONTROL_CHARACTERS), Visible]


@router.get("", Right.SEE_OWN)
async def list_freezes(
    access: CurrentAccess, over: Annotated[bool, Query(description="also those that have ended")] = False
) -> schemas.Freezes:
    """The freezes that are in force for your tenant; who sees no runs of others is told only of those of all its
    runs."""
    everything = access.is_of_deployment and access.principal.may(Right.CONTROL_RUNS)
    of = None if everything else access.tenant
    rows = await freezes.list_freezes(access.at_home.runtime.database.api, of, over=over)
    if not access.principal.may(Right.SEE_RUNS):
        rows = [row for row in rows if row.scope in _OF_ALL]
    return {"items": [await _view(access, row) for row in rows]}


@router.post("", status_code=201, dependencies=[_CONTROLS], refusals=(403, 404, 409))
async def freeze(body: FreezeBody, access: CurrentAccess, key: CommandKey) -> schemas.Freeze:
    """Let nobody begin a step in the runs, or of the kind, that `scope` and `name` say. Every process obeys within two
    seconds; what has begun is finished, and questions are answered as ever. 503 while a cell of it is away: those that
    are there obey already, and the same request again reaches the rest. The same Idempotency-Key again is the same
    freeze."""
    if not body.reason.strip():
        raise Rejected(422, "freeze.invalid", "reason: expected a sentence, found blanks alone.")
    if holds_nothing(body.mode, body.scope):
        raise Rejected(422, "freeze.invalid", f"mode: expected frozen or no_agents, found read_only: {NO_WRITES}.")
    tenant, name = await _subject(access, body)
    owner, who = None if access.is_of_deployment else access.tenant, access.principal.who.id
    id = uuid4() if key is None else derive_uuid("freeze", str(access.tenant), who, key)
    row: FreezeRow | None = None
    for number in _cells(access, tenant):
        async with access.at(number).act() as connection:
            row, is_new = await freezes.freeze(
                connection, id, tenant, owner, body.mode, body.scope, name, body.reason, who
            )
            if (row.tenant, *row[3:7]) != (tenant, body.mode, body.scope, name, body.reason):
                raise Rejected(409, "command_id_reused", KEY_REUSED)
            if number == HOME and is_new:
                details = {"mode": body.mode, "scope": body.scope, "name": name, "reason": body.reason}
                await access.record(connection, "freeze.created", subject=f"freeze:{id}", **details)
        if row.thawed_at is not None:  # a cell that has not got it is not to get it now
            break
    assert row is not None, "home comes first"
    await _obey(access)
    return await _view(access, row)


@router.post("/{freeze_id}/thaw", dependencies=[_CONTROLS], refusals=(403, 404, 409))
async def thaw(freeze_id: str, access: CurrentAccess) -> schemas.Freeze:
    """End a freeze: the runs that it held go on where they stood, in any worker."""
    id = read_uuid(freeze_id)
    row = None if id is None else await freezes.find_freeze(access.at_home.runtime.database.api, id)
    if row is None or id is None or not (access.is_of_deployment or row.tenant in (None, access.tenant)):
        raise Rejected(404, "freeze_unknown", f"there is no freeze {freeze_id[:60]!r}.")
    if row.owner != access.tenant:
        access.demand_deployment(f"operators of the tenant {tenants.DEFAULT} have frozen that; ask one of them.")
    own = {*access.ids, *access.principal.who.through}
    is_own = row.scope == "principal" and row.tenant == access.tenant and compose(row.name) in own
    if is_own and row.created_by not in own:
        detail = f"this freeze holds what {row.name} has caused; somebody else must thaw it."
        raise Rejected(403, "freeze_own", detail)
    ended: FreezeRow | None = None
    for number in reversed(_cells(access, row.tenant)):  # home last: while another one is away, it counts as in force
        async with access.at(number).act() as connection:
            ended = await freezes.thaw(connection, id, access.principal.who.id)
            if number == HOME:
                if ended is None:
                    raise Rejected(409, "freeze_over", f"the freeze {id} is over.")
                await access.record(connection, "freeze.thawed", subject=f"freeze:{id}")
    assert ended is not None, "home comes last"
    await _obey(access)
    return await _view(access, ended)


async def _obey(access: Access) -> None:
    """Let this process know at once; the others hear of it from their next commit or pulse."""
    for runtime in access.cells.runtimes():
        await runtime.freezes.obey()
    access.hint_lists()


async def _subject(access: Access, body: FreezeBody) -> tuple[UUID | None, str]:
    """The tenant (None: all) and the name that the freeze is of. Raises Rejected where the caller may not, or nothing
    has that name."""
    if body.scope == "all":
        if body.name:
            raise Rejected(422, "freeze.invalid", f"name: expected none for all, found {body.name[:60]!r}.")
        access.demand_deployment(
            f"all tenants are frozen by operators of the tenant {tenants.DEFAULT}; freeze yours: scope tenant."
        )
        return None, ""
    if body.scope == "tenant":
        own = await access.cells.home.tenants.name(access.tenant)
        if body.name in ("", own):
            return access.tenant, own
        row = await tenants.find_tenant(access.at_home.pool, body.name) if access.is_of_deployment else None
        if row is None:
            raise Rejected(404, "tenant_unknown", f"there is no tenant {body.name[:63]!r}.")
        return row.id, row.name
    if not body.name:
        raise Rejected(422, "freeze.invalid", f"name: expected the {body.scope} to freeze, found none.")
    for number in _cells(access, access.tenant):
        if await freezes.exists(access.at(number).runtime.database.api, access.tenant, body.scope, body.name):
            return access.tenant, body.name
    raise Rejected(404, "freeze_subject_unknown", _UNKNOWN[body.scope].format(name=body.name[:60]))


_UNKNOWN: Final[dict[Literal["workflow", "tool", "model", "principal"], str]] = {
    "workflow": "there is no workflow {name!r}.",
    "tool": "no workflow mentions a tool {name!r}: expected its name under `tools`, or name.function.",
    "model": "no workflow mentions a model {name!r}: expected its name under `models`, or in the deployment's file.",
    "principal": "{name!r} has started no run and has no key: expected an id such as user:ann.",
}


def _cells(access: Access, tenant: UUID | None) -> list[int]:
    """The cells whose processes have to obey, home first."""
    numbers = access.cells.numbers if tenant != access.tenant else access.living.cells
    return [HOME, *(number for number in numbers if number != HOME)]


async def _view(access: Access, row: FreezeRow) -> schemas.Freeze:
    tenant = None if row.tenant is None else await access.cells.home.tenants.name(row.tenant)
    return render(schemas.Freeze, row, tenant=tenant)
