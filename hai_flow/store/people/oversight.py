"""How decisions are made: figures of the approvals and gates of a tenant, from the rows of its questions and votes.

Each look reads at most LOOKED_AT_MAX of them, the newest first, in the order of an index. Ids of people choose rows,
and stand in no result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Final, Literal, TypeAlias
from uuid import UUID

from hai_flow.store.people import canaries
from hai_flow.store.postgres.connections import Connection, Pool

LOOKED_AT_MAX: Final = 20_000
By: TypeAlias = Literal["workflow", "tool"]


@dataclass(slots=True)
class DecisionFigures:
    """`questions` were asked, of which the next six say what has become of them; `other` got another option of theirs.
    `edited`: people changed the arguments. `by_rule`: a standing rule decided. `votes` are those of people; for the
    `quick` ones of them the voter had less than the time that counts as quick, for the `opened` ones they had been
    given the whole question, and for the `followed` ones a file or an address of it. `canaries` were seeded, of which
    people refused those that were `caught` and not those that were `missed`. `seconds`: how long each question was
    open until people decided it, in no order."""

    questions: int = 0
    open: int = 0
    approved: int = 0
    refused: int = 0
    other: int = 0
    expired: int = 0
    withdrawn: int = 0
    edited: int = 0
    by_rule: int = 0
    votes: int = 0
    quick: int = 0
    opened: int = 0
    followed: int = 0
    canaries: int = 0
    caught: int = 0
    missed: int = 0
    seconds: list[float] = field(default_factory=list)

    def join(self, other: DecisionFigures) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def quantile(self, share: float) -> float | None:
        """The time within which this share of the decisions was made, in seconds (nearest rank)."""
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


# Without its escaped backslashes and NULs, of which PostgreSQL has no text: no field that is read here has any.
_JSON: Final = r"replace(replace(convert_from({}, 'UTF8'), '\\', ''), '\u0000', '')::json"
_VOTE: Final = _JSON.format("v.body")
_NO_CANARY: Final = "NOT EXISTS (SELECT FROM canaries c WHERE c.run_id = {}.run_id)"
# Votes that a standing rule cast are nobody's, and say nothing of the time that somebody had.
_VOTES: Final = f"""
  SELECT v.run_id, v.pending_id, v.at, v.decision,
    ({_VOTE} -> 'rule') IS NOT NULL AS by_rule,
    coalesce(({_VOTE} -> 'edited')::text = 'true', false) AS edited,
    v.at - q.opened_at < {{quick}} OR EXISTS (
      SELECT FROM votes before WHERE before.tenant = v.tenant AND before.principal = v.principal
        AND before.at > v.at - {{quick}} AND (before.at, before.pending_id) < (v.at, v.pending_id)
        AND ({_JSON.format("before.body")} -> 'rule') IS NULL
    ) AS quick,
    EXISTS (SELECT FROM openings o WHERE o.run_id = v.run_id AND o.pending_id = v.pending_id
      AND o.principal = v.principal AND o.part = 'question' AND o.at <= v.at) AS opened,
    EXISTS (SELECT FROM openings o WHERE o.run_id = v.run_id AND o.pending_id = v.pending_id
      AND o.principal = v.principal AND o.part <> 'question' AND o.at <= v.at) AS followed
"""
_NAMES: Final[dict[By, str]] = {
    "workflow": "(SELECT r.workflow_name FROM runs r WHERE r.id = q.run_id)",
    "tool": f"(SELECT ({_JSON.format('p.body')} -> 'tool')::text FROM pendings p "
    "WHERE p.run_id = q.run_id AND p.id = q.id)",
}
# The votes of one question after the other: joined at once, a poor estimate would hold each vote against each question.
_OF_TENANT: Final = f"""
WITH q AS MATERIALIZED (
  SELECT run_id, id, status, opened_at FROM pendings
  WHERE tenant = $1 AND kind IN ('approve', 'gate') AND opened_at > now() - $2::interval
    AND {_NO_CANARY.format("pendings")}
  ORDER BY opened_at DESC, id DESC LIMIT $4
), outcomes AS (
  SELECT {{name}} AS name, q.status, q.opened_at, voted.*,
    q.status NOT IN ('open', 'expired', 'voided') AS is_decided
  FROM q CROSS JOIN LATERAL (
    SELECT max(at) AS at, bool_or(by_rule) AS by_rule, bool_or(edited) AS edited,
      count(*) FILTER (WHERE NOT by_rule) AS votes, count(*) FILTER (WHERE quick AND NOT by_rule) AS quick,
      count(*) FILTER (WHERE opened AND NOT by_rule) AS opened,
      count(*) FILTER (WHERE followed AND NOT by_rule) AS followed
    FROM (
      {_VOTES.format(quick="$3::interval")} FROM votes v WHERE v.run_id = q.run_id AND v.pending_id = q.id
    ) cast_votes
  ) voted
)
SELECT name, count(*), count(*) FILTER (WHERE status = 'open'), count(*) FILTER (WHERE status = 'approve'),
  count(*) FILTER (WHERE status = 'reject'),
  count(*) FILTER (WHERE is_decided AND status NOT IN ('approve', 'reject')),
  count(*) FILTER (WHERE status = 'expired'), count(*) FILTER (WHERE status = 'voided'),
  count(*) FILTER (WHERE edited), count(*) FILTER (WHERE is_decided AND by_rule),
  coalesce(sum(votes), 0)::bigint, coalesce(sum(quick), 0)::bigint,
  coalesce(sum(opened), 0)::bigint, coalesce(sum(followed), 0)::bigint, 0, 0, 0,
  coalesce(array_agg(extract(epoch FROM at - opened_at)::float8)
    FILTER (WHERE is_decided AND NOT by_rule AND at IS NOT NULL), '{{{{}}}}')
FROM outcomes GROUP BY name
"""
_OF_PERSON: Final = f"""
WITH mine AS MATERIALIZED (
  SELECT run_id, pending_id, principal FROM votes
  WHERE tenant = $1 AND principal = $5 AND at > now() - $2::interval
    AND {_NO_CANARY.format("votes")}
  ORDER BY at DESC, pending_id DESC LIMIT $4
), cast_votes AS (
  {_VOTES.format(quick="$3::interval")}, q.opened_at FROM mine
  JOIN votes v ON v.run_id = mine.run_id AND v.pending_id = mine.pending_id AND v.principal = mine.principal
  JOIN pendings q ON q.run_id = mine.run_id AND q.id = mine.pending_id AND q.kind IN ('approve', 'gate')
)
SELECT (SELECT count(*) FROM mine), count(*), 0, count(*) FILTER (WHERE decision = 'approve' AND NOT by_rule),
  count(*) FILTER (WHERE decision = 'reject' AND NOT by_rule),
  count(*) FILTER (WHERE decision NOT IN ('approve', 'reject') AND NOT by_rule), 0, 0,
  count(*) FILTER (WHERE edited), count(*) FILTER (WHERE by_rule), count(*) FILTER (WHERE NOT by_rule),
  count(*) FILTER (WHERE quick AND NOT by_rule), count(*) FILTER (WHERE opened AND NOT by_rule),
  count(*) FILTER (WHERE followed AND NOT by_rule), 0, 0, 0,
  coalesce(array_agg(extract(epoch FROM at - opened_at)::float8) FILTER (WHERE NOT by_rule), '{{}}')
FROM cast_votes
"""


def render_query(by: By) -> str:
    """The statement of the figures of a tenant."""
    return _OF_TENANT.format(name=_NAMES[by])


async def read_figures(
    connection: Connection | Pool, tenant: UUID, by: By, age: timedelta, quick: timedelta
) -> tuple[dict[str, DecisionFigures], bool]:
    """The figures of the questions that were asked within the `age`, by the name of the workflow or of the tool that
    they ask about ("": none), and whether these are all of them."""
    rows = await connection.fetch(render_query(by), tenant, age, quick, LOOKED_AT_MAX)
    figures = {(row[0] or "").strip('"'): _read_row(row[1:]) for row in map(tuple, rows)}
    complete = sum(each.questions for each in figures.values()) < LOOKED_AT_MAX
    for name, counts in (await canaries.count_canaries(connection, tenant, by, age)).items():
        group = figures.setdefault(name, DecisionFigures())
        group.canaries, group.caught, group.missed = counts
    return figures, complete


async def read_own_figures(
    connection: Connection | Pool, tenant: UUID, person: str, age: timedelta, quick: timedelta
) -> tuple[DecisionFigures, bool]:
    """The figures of the votes that the person has cast within the `age`: `questions` are those with such a vote,
    `seconds` and what was decided are of the vote. And whether these are all of them."""
    (row,) = await connection.fetch(_OF_PERSON, tenant, age, quick, LOOKED_AT_MAX, person)
    figures = _read_row(tuple(row)[1:])
    counts = await canaries.count_own_canaries(connection, tenant, person, age)
    figures.canaries, figures.caught, figures.missed = counts
    return figures, row[0] < LOOKED_AT_MAX


def _read_row(columns: Sequence[int | list[float]]) -> DecisionFigures:
    return DecisionFigures(*columns)  # type: ignore[arg-type]
