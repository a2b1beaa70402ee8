"""`/v1/absences`: who is away on which days, and who decides for them meanwhile."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Any, Final, TypeAlias
from uuid import uuid4
from zoneinfo import ZoneInfo

from pydantic import Field, Strict

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, PERSON, Visible, read_uuid
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, cut, decode_id_cursor, encode_cursor
from hai_flow.api.requests.views import render_absence
from hai_flow.api.routes import Routes
from hai_flow.definition.names.zones import check_zone
from hai_flow.errors import Rejected
from hai_flow.runtime.people.absences import find_conflict, find_seat, map_absences
from hai_flow.store.identity import proofs
from hai_flow.store.people import absences
from hai_flow.store.people.absences import AbsenceRow

router = Routes(prefix="/v1/absences", tags=["inbox"], dependencies=[requires(Right.DECIDE, Right.MANAGE_KEYS)])

_Person: TypeAlias = Annotated[str, Field(pattern=PERSON), Visible]
_Day: TypeAlias = Annotated[date, Strict(False)]  # JSON has no days, only texts
_LASTS_MAX: Final = timedelta(days=92)
_AHEAD_MAX: Final = timedelta(days=366)


class AbsenceBody(Body):
    """`person` (null: you) is away from `first_day` to the end of `last_day`, in `zone`; `delegate` decides for them
    (null: nobody)."""

    person: _Person | None = None
    delegate: _Person | None = None
    first_day: _Day
    last_day: _Day
    zone: str = Field(default="UTC", max_length=100, description="an IANA timezone, like Europe/Berlin")
    note: str | None = Field(default=None, max_length=500, pattern=NO_CONTROL_CHARACTERS)


@router.get("")
async def list_absences(
    access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None, everybody: bool = False
) -> schemas.AbsencePage:
    """Absences that are not over, newest first: yours, and those in which you decide for others. With `everybody`, for
    admins, all of the tenant."""
    if everybody:
        access.require(Right.MANAGE_KEYS)
    person, before = None if everybody else access.ids, decode_id_cursor(cursor)
    listed = await absences.list_page(access.reads, access.tenant, person, limit=limit + 1, before=before)
    rows, following = cut(listed, limit, lambda row: encode_cursor(row.created_at, row.id))
    away = await _map_now(access)
    return {"items": [_render(access, row, away) for row in rows], "next_cursor": following}


@router.post("", status_code=201, refusals=(409,))
async def enter_absence(body: AbsenceBody, access: CurrentAccess) -> schemas.Absence:
    """Enter that you are away, or as an admin that somebody else is. Meanwhile `delegate` decides what asks them, with
    what they may decide then; where the delegate is away too, it is that one's delegate, over at most five people. Both
    are recorded. Who entered it, and who is away between, must not be excluded from the question either."""
    who, people = access.principal.who, access.principal.people
    access.demand_own_credential("absence_forbidden", "enter absences with a key, a token or a session of your own.")
    person = who.id if body.person is None else people.one(body.person)
    is_own = person == who.id
    access.require(Right.DECIDE if is_own else Right.MANAGE_KEYS)
    delegate = None if body.delegate is None else people.one(body.delegate)
    now = access.runtime.committer.now()
    since, until = _judge(body, person, delegate, now)
    roles, groups = (who.roles, who.groups) if is_own else await _find_holding(access, person)
    row = AbsenceRow(
        uuid4(), person, delegate, body.first_day, body.last_day, body.zone, since, until, roles, groups, body.note,
        who.id, now,
    )  # fmt: skip
    async with access.act() as connection:
        await absences.lock(connection, access.tenant)
        others = await absences.list_open(connection, access.tenant)
        if len(others) >= absences.OPEN_MAX:
            raise Rejected(409, "absences_many", f"the tenant has {len(others)} absences; an admin ends some first.")
        conflict = find_conflict(row, others, people.all_of)
        if conflict is not None:
            code, message = conflict
            raise Rejected(409, code, message, findings=[_find_fault(_FIELDS[code], code, message)])
        await absences.create(connection, access.tenant, row)
        days = {"first_day": body.first_day.isoformat(), "last_day": body.last_day.isoformat(), "zone": body.zone}
        await access.record(
            connection, "absence.entered", subject=f"absence:{row.id}", person=person, delegate=delegate, **days
        )
    await access.repeat()
    access.hint_lists()
    return _render(access, row, await _map_now(access))


@router.delete("/{absence_id}", status_code=204, refusals=(404,))
async def end_absence(absence_id: str, access: CurrentAccess) -> None:
    """End an absence at once, or take back one that has not begun: yours, one in which you decide for somebody, or as
    an admin anybody's."""
    id = read_uuid(absence_id)
    access.demand_own_credential("absence_forbidden", "end absences with a key, a token or a session of your own.")
    person = None if access.principal.may(Right.MANAGE_KEYS) else access.ids
    async with access.act() as connection:
        away = None if id is None else await absences.end(connection, access.tenant, id, person)
        if away is None:
            raise Rejected(404, "absence_unknown", f"there is no absence {absence_id[:60]!r} that you may end.")
        await access.record(connection, "absence.ended", subject=f"absence:{id}", person=away)
    await access.repeat()
    access.hint_lists()


def _judge(body: AbsenceBody, person: str, delegate: str | None, now: datetime) -> tuple[datetime, datetime]:
    """The instants between which the person is away. Raises Rejected 422."""
    if (fault := check_zone(body.zone)) is not None:
        raise _reject_field("absence.zone", f"{fault}.")
    if not person.startswith("user:"):
        raise _reject_field("absence.person", f"expected a person like user:ann, found {person}.")
    if delegate == person:
        raise _reject_field("absence.delegate", "expected somebody else than who is away.")
    zone = ZoneInfo(body.zone)
    today = now.astimezone(zone).date()
    if not today <= body.first_day <= today + _AHEAD_MAX:
        message = f"expected a day from today, {today} in {body.zone}, and within a year; an absence does not begin in"
        raise _reject_field("absence.first_day", f"{message} the past. Found {body.first_day}.")
    if not body.first_day <= body.last_day < body.first_day + _LASTS_MAX:
        raise _reject_field("absence.last_day", "expected a day from first_day on, within 92 days of it.")
    since, until = (_midnight(day, zone) for day in (body.first_day, body.last_day + timedelta(days=1)))
    return max(since, now), until


_FIELDS: Final = {"absences_overlap": "first_day", "absence_circle": "delegate"}


def _reject_field(code: str, message: str) -> Rejected:
    """The refusal of what one field holds, whose name is the end of the finding's code."""
    field = code.removeprefix("absence.")
    return Rejected(422, "absence.invalid", f"{field}: {message}", findings=[_find_fault(field, code, message)])


def _find_fault(field: str, code: str, message: str) -> dict[str, Any]:
    return {"path": f"/{field}", "message": message[:1].upper() + message[1:], "code": code, "params": []}


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


async def _find_holding(access: Access, person: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The roles and groups that somebody has by their keys; without a key, those in the file of channels."""
    ids = access.principal.people.all_of(person)
    by_keys = await proofs.load_holdings_of_people(access.at_home.pool, access.tenant, ids)
    if by_keys:
        roles = {role for each in by_keys.values() for role in each.roles or ()}
        return tuple(sorted(roles)), tuple(sorted({group for each in by_keys.values() for group in each.groups}))
    reached = await access.runtime.load_people_of_channels(access.tenant) or {}
    entry = next((reached[id] for id in ids if id in reached), None)
    return ((), ()) if entry is None else (entry.roles, entry.groups)


async def _map_now(access: Access) -> dict[str, AbsenceRow]:
    return map_absences(await absences.list_now(access.reads, access.tenant, None), access.principal.people.all_of)


def _render(access: Access, row: AbsenceRow, away: dict[str, AbsenceRow]) -> schemas.Absence:
    all_ids = access.principal.people.all_of
    person = all_ids(row.person)[0]
    now = away.get(person)
    return render_absence(row, find_seat(person, away, all_ids) if now is not None and now.id == row.id else None)
