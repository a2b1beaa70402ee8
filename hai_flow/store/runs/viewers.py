"""Which runs a person may read who may not read all of the tenant's: a condition that queries carry."""

from __future__ import annotations

from typing import Final

import msgspec

from hai_flow.engine.canaries import CANARY


class Viewer(msgspec.Struct, frozen=True):
    """A principal that may not read all runs of its tenant: only runs that one of `ids` asked for (its own id, and that
    of the person that it acts for), and runs of workflows whose `visibility` has one of `selectors`. `threads`,
    `workflows`: only runs of these; None: of all."""

    ids: tuple[str, ...]
    selectors: tuple[str, ...]
    threads: tuple[str, ...] | None = None
    workflows: tuple[str, ...] | None = None

    def parameters(self) -> tuple[list[str] | None, ...]:
        """The parameters of `render_may_read` and `readable`, in order."""
        limits = (None if each is None else list(each) for each in (self.threads, self.workflows))
        return list(self.ids), list(self.selectors), *limits


NO_OPEN_CANARY: Final = f"(r.workflow_name <> '{CANARY}' OR r.ended_at IS NOT NULL)"
"""That a run `r` of a list is no seeded question that somebody may still be asked."""


def render_may_read(run: str, first: int) -> str:
    """The condition that a viewer may read the run of the alias `run`; their first parameter has the number `first`."""
    return (
        f"(({run}.started_by = ANY (${first}::text[]) OR EXISTS (SELECT FROM workflows w WHERE w.tenant = {run}.tenant "
        f"AND w.sha256 = {run}.workflow AND w.visibility && ${first + 1}::text[])) AND {_within(run, first)})"
    )


def _within(run: str, first: int) -> str:
    return (
        f"(${first + 2}::text[] IS NULL OR {run}.thread_id = ANY (${first + 2})) "
        f"AND (${first + 3}::text[] IS NULL OR {run}.workflow_name = ANY (${first + 3}))"
    )


def readable(rows: str, first: int) -> str:
    """The rows `r` of the query `rows` that a viewer may read: a page of them for each of the viewer's ids and for each
    workflow that the viewer may read, so that no page needs a walk through all runs of others. In `rows`, `{}` stands
    for the condition that makes a page one of these."""
    own = rows.format(f"r.started_by = whose.id AND {_within('r', first)}")
    others = f"r.started_by <> ALL (${first}::text[]) AND {_within('r', first)}"
    shared = rows.format(f"r.workflow_name = seen.name AND r.workflow = ANY (seen.versions) AND {others}")
    return f"""
    SELECT r.* FROM unnest(${first}::text[]) AS whose (id) CROSS JOIN LATERAL ({own}) r
    UNION ALL
    SELECT r.* FROM (SELECT name, array_agg(sha256) AS versions FROM workflows
      WHERE tenant = $1 AND visibility && ${first + 1}::text[] GROUP BY name) AS seen CROSS JOIN LATERAL ({shared}) r
    """
