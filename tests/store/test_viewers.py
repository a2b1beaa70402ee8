"""Lists of somebody who may not see everything: the right rows, in order and in pages, and few others are read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from hai_flow.store.catalog import workflows
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import run_lists, thread_lists
from hai_flow.store.runs.run_lists import RunRow
from hai_flow.store.runs.viewers import Viewer
from tests.store.conftest import TENANT, as_owner
from tests.store.test_reads import Explained

STRANGER = UUID(int=9)
OTHERS = 20_000
# Of many people, each with runs of three workflows; every fifth is somebody's second run in the same thread.
MANY = """
INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version, head,
  started_by, created_at)
SELECT gen_random_uuid(), $1, w.sha256, w.name, 1, 't' || (n - CASE WHEN n % 5 = 0 THEN 1 ELSE 0 END),
  (ARRAY['finished', 'waiting', 'failed'])[1 + n % 3], 1, 1, 'h', 'user:' || $3 || (n % $4),
  now() - make_interval(secs => n)
FROM generate_series(1, $2) AS n JOIN workflows w ON w.tenant = $1 AND w.name = 'w' || (n % 3)
"""


@pytest.fixture
async def full(db: Database) -> Database:
    for number, visibility in enumerate(((), ("role:support", "user:n1"), ())):
        for tenant in (TENANT, STRANGER):
            await workflows.publish_workflow(
                db.api, tenant, name=f"w{number}", version=1, source=b"%d" % number, visibility=visibility
            )
    await db.api.execute(MANY, TENANT, 300, "n", 7)
    await db.api.execute(MANY, STRANGER, 100, "n", 7)
    return db


VIEWERS = {
    "only their own": Viewer(("user:n1",), ("user:n1", "tenant")),
    "a shared workflow's": Viewer(("user:n2",), ("user:n2", "role:support", "tenant")),
    "another person's too": Viewer(("user:n3", "user:n4"), ("user:n3", "tenant")),
    "of some threads": Viewer(("user:n2",), ("role:support",), threads=("t7", "t8", "t30")),
    "of some workflows": Viewer(("user:n2",), ("role:support",), workflows=("w2",)),
    "nothing": Viewer(("user:none",), ("role:none",)),
}


def may(viewer: Viewer, run: RunRow) -> bool:
    """The rule, written once more."""
    shared = run.workflow_name == "w1" and {"role:support", "user:n1"} & set(viewer.selectors)
    within = viewer.threads is None or run.thread_id in viewer.threads
    named = viewer.workflows is None or run.workflow_name in viewer.workflows
    return bool((run.started_by in viewer.ids or shared) and within and named)


async def pages(ask: Any, key: Any) -> list[Any]:
    found: list[Any] = []
    before = None
    while page := await ask(before):
        found += page
        before = key(page[-1])
    return found


@pytest.mark.parametrize("name", VIEWERS)
@pytest.mark.parametrize(
    "filters", [{}, {"statuses": ["waiting", "failed"]}, {"workflow": "w1"}, {"thread_id": "t8"}], ids=str
)
async def test_a_viewer_s_runs_are_those_they_may_read(full: Database, name: str, filters: dict[str, Any]) -> None:
    viewer = VIEWERS[name]
    everything = await run_lists.list_runs(full.api, TENANT, limit=1000, **filters)
    expected = [run.id for run in everything if may(viewer, run)]
    found = await pages(
        lambda before: run_lists.list_runs(full.api, TENANT, limit=7, before=before, viewer=viewer, **filters),
        lambda run: (run.created_at, run.id),
    )
    assert [run.id for run in found] == expected


@pytest.mark.parametrize("name", VIEWERS)
async def test_a_viewer_s_threads_are_those_whose_newest_run_they_may_read(full: Database, name: str) -> None:
    viewer = VIEWERS[name]
    runs = {run.id: run for run in await run_lists.list_runs(full.api, TENANT, limit=1000)}
    everything = await thread_lists.list_threads(full.api, TENANT, limit=1000)
    expected = [thread.id for thread in everything if may(viewer, runs[thread.run_id])]
    found = await pages(
        lambda before: thread_lists.list_threads(full.api, TENANT, limit=7, before=before, viewer=viewer),
        lambda thread: (thread.run_created_at, thread.run_id),
    )
    assert [thread.id for thread in found] == expected


async def test_a_page_of_one_s_own_is_no_walk_through_the_runs_of_others(full: Database) -> None:
    await full.api.execute(MANY, TENANT, OTHERS, "crowd", 50)
    await as_owner(full, "ANALYZE runs, workflows")  # as autovacuum does
    for viewer in (VIEWERS["only their own"], VIEWERS["nothing"]):
        for ask in (run_lists.list_runs, thread_lists.list_threads):
            counted: Any = Explained(full.api)
            await ask(counted, TENANT, limit=20, viewer=viewer)
            assert counted.rows < 500, (viewer, ask, counted.rows)
