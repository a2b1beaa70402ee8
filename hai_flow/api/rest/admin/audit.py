"""`/v1/audit`: the acts of people and credentials, for auditors, and the chain over these records. The chain proves
that they were not changed later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

from fastapi import Query

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, Instant, is_run_id
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import cross_cell, schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, cut, decode_place, encode_place, reject_cursor
from hai_flow.api.requests.views import render, render_audit_record, render_link
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import Anchor, genesis

router = Routes(prefix="/v1/audit", tags=["audit"], dependencies=[requires(Right.READ_AUDIT)])

READ: Final = "audit.read"
_Word: TypeAlias = Annotated[str | None, Query(min_length=1, max_length=400, pattern=NO_CONTROL_CHARACTERS)]
_Cell: TypeAlias = Annotated[
    str | None,
    Query(max_length=32, pattern=NO_CONTROL_CHARACTERS, description="each has a chain of its own; default: the first"),
]
_Time: TypeAlias = Annotated[Instant | None, Query()]


@router.get("")
async def list_audit(
    access: CurrentAccess,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    principal: _Word = None,
    act: _Word = None,
    run_id: _Word = None,
    subject: _Word = None,
    since: _Time = None,
    until: _Time = None,
) -> schemas.AuditPage:
    """The recorded acts, newest first. `subject` is the other thing that an act changed: `pending:...` or
    `workflow:...`. `until` is exclusive: acts at that time are left out. This request is recorded, too."""
    place = decode_place(cursor)
    if place is not None and not is_run_id(place[1]):
        raise reject_cursor()
    if run_id is not None and not is_run_id(run_id):
        raise Rejected(422, "request.invalid", f"run_id: expected the id of a run, found {run_id[:60]!r}.")
    filters = audit.AuditFilter(
        principal=principal,
        act=act,
        run_id=None if run_id is None else UUID(run_id),
        subject=subject,
        since=since,
        until=until,
        before=None if place is None else UUID(place[1]),
    )
    await access.note(READ, filters=_format_filters(filters), limit=limit)

    async def ask(cell: Access) -> tuple[Sequence[audit.ListedRecord], UUID | None]:
        records = await cell.past(lambda pool: audit.list_records(pool, cell.tenant, filters, limit=limit + 1))
        return cross_cell.cut_page(records, limit, _id)

    page = await cross_cell.page(access, ask, _id, limit)
    following = None if page.following is None else encode_place(0, page.following)
    return {
        "items": [render_audit_record(row) for _, row in page.rows],
        "next_cursor": following,
        "missing": page.missing,
    }


def _id(row: audit.ListedRecord) -> UUID:
    return row.record.id


@router.get("/chain")
async def read_chain(
    access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None, cell: _Cell = None
) -> schemas.AuditChainPage:
    """The sealed records in the order of the chain. Each has everything that verifying it needs: `hai-flow audit verify
    --file` verifies a file of them. This request is recorded, too."""
    access = _find_access_to_cell(access, cell)
    place = decode_place(cursor)
    after = 0 if place is None else place[0]
    await access.note(READ, chain_after=after, limit=limit)
    links = await audit.links(access.reads, access.tenant, after=after, limit=limit + 1)
    rows, following = cut(links, limit, lambda link: encode_place(link.seal.n, "chain"))
    return {"items": [render_link(access.tenant, link) for link in rows], "next_cursor": following}


@router.get("/anchor")
async def get_anchor(access: CurrentAccess, cell: _Cell = None) -> schemas.AuditAnchor:
    """The end of the chain now. Keep it in a place that can't be changed together with the database: it proves later
    that the chain up to there is the same, and that its end was not cut off."""
    access = _find_access_to_cell(access, cell)
    ends = await audit.anchors(access.reads, [access.tenant])
    anchor = ends[0] if ends else Anchor(access.tenant, 0, genesis(access.tenant).hex())
    return render(schemas.AuditAnchor, anchor)


def _find_access_to_cell(access: Access, name: str | None) -> Access:
    """The access to the cell. Raises Rejected 422 where the tenant lives in none of this name."""
    if name is None:
        return access
    named = {access.cells.name(each.cell): each for each in access.everywhere}
    if name not in named:
        raise Rejected(422, "request.invalid", f"cell: expected one of {', '.join(named)}, found {name[:60]!r}.")
    return named[name]


def _format_filters(wanted: audit.AuditFilter) -> dict[str, str]:
    def shown(value: Any) -> str:
        return value.isoformat() if isinstance(value, datetime) else str(value)

    return {name: shown(value) for name, value in wanted._asdict().items() if value is not None and name != "before"}
