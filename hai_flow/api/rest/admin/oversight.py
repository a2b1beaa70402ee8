"""`/v1/oversight`: figures of how people decide (docs/oversight.md), for auditors, and each person's own for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Query

from hai_flow.api.base.id_patterns import SPAN, PrincipalId
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import cross_cell, schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.routes import Routes
from hai_flow.definition.names.durations import milliseconds
from hai_flow.store.people import oversight
from hai_flow.store.people.oversight import By, DecisionFigures

router = Routes(prefix="/v1/oversight", tags=["oversight"])

READ: Final = "oversight.read"
GROUPS_MAX: Final = 200
OTHER: Final = "(other)"
Since: TypeAlias = Annotated[str, Query(pattern=SPAN, description="of the time until now: `12h`, `30d`")]
_Under: TypeAlias = Annotated[int, Query(ge=1, le=3600, description="a vote in fewer seconds counts as quick")]


@router.get("", Right.READ_AUDIT)
async def read_oversight(
    access: CurrentAccess, since: Since = "30d", by: By = "workflow", under: _Under = 10
) -> schemas.Oversight:
    """How the approvals and gates that were asked within the time were decided, of each workflow or each tool, in the
    order of their names. At most the newest 20,000 questions of each cell: `complete` is false where there are more.
    Nobody is named or compared. This request is recorded in the audit."""
    await access.note(READ, by=by, since=since)
    age, quick = read_age(since), timedelta(seconds=under)

    async def ask(cell: Access) -> tuple[dict[str, DecisionFigures], bool]:
        return await oversight.read_figures(cell.reads, cell.tenant, by, age, quick)

    gathered = await cross_cell.ask_all_cells(access, ask)
    groups: dict[str, DecisionFigures] = {}
    for _, (figures, _) in gathered.by_cell:
        for name, each in figures.items():
            groups.setdefault(name, DecisionFigures()).join(each)
    return {
        "since": since,
        "by": by,
        "under": under,
        "complete": all(complete for _, (_, complete) in gathered.by_cell),
        "items": [
            render(schemas.OversightGroup, each, name=name or None, **_measure(each))
            for name, each in sorted(_limit(groups).items())
        ],
        "missing": gathered.missing,
    }


@router.get("/me", Right.DECIDE)
async def read_own_oversight(
    access: CurrentAccess, since: Since = "30d", under: _Under = 10
) -> schemas.PersonOversight:
    """How you have decided approvals and gates within the time. `questions` are those that have your vote, and what
    was decided is your vote. Only you see this, and auditors."""
    return await _read_person(access, access.principal.id, since, under)


@router.get("/people/{person:path}", Right.READ_AUDIT)
async def read_oversight_of_person(
    person: PrincipalId, access: CurrentAccess, since: Since = "30d", under: _Under = 10
) -> schemas.PersonOversight:
    """What the person sees of themselves at `/v1/oversight/me`. This request is recorded in the audit, with the person
    that it is about."""
    await access.note(READ, person=person, since=since)
    return await _read_person(access, person, since, under)


def read_age(since: str) -> timedelta:
    return timedelta(milliseconds=milliseconds(since))


async def _read_person(access: Access, person: str, since: str, under: int) -> schemas.PersonOversight:
    age, quick = read_age(since), timedelta(seconds=under)

    async def ask(cell: Access) -> tuple[DecisionFigures, bool]:
        return await oversight.read_own_figures(cell.reads, cell.tenant, person, age, quick)

    gathered = await cross_cell.ask_all_cells(access, ask)
    total = DecisionFigures()
    for _, (figures, _) in gathered.by_cell:
        total.join(figures)
    complete, missing = all(complete for _, (_, complete) in gathered.by_cell), gathered.missing
    words: dict[str, Any] = {"since": since, "under": under, "complete": complete, "missing": missing}
    return render(schemas.PersonOversight, total, **words, **_measure(total))


def _limit(groups: dict[str, DecisionFigures]) -> dict[str, DecisionFigures]:
    """The groups with the most questions, and the others as one."""
    ordered = sorted(groups, key=lambda name: (-groups[name].questions, name))
    limited = {name: groups[name] for name in ordered[:GROUPS_MAX]}
    for name in ordered[GROUPS_MAX:]:
        limited.setdefault(OTHER, DecisionFigures()).join(groups[name])
    return limited


def _measure(figures: DecisionFigures) -> dict[str, float | None]:
    return {"median_seconds": figures.quantile(0.5), "p90_seconds": figures.quantile(0.9)}
