"""Going on from an earlier moment of a thread: the work beside the new run itself.

A branch is a run of its own: a Start, behind a run that ended in that turn; or a Fork, of one that was at rest. The
thread has one active run, so the one that is active now is stopped first, with all that it waits for. A caller
rehearses a branch before that, so that a refused one stops nothing; and can do all of it again if the process dies in
between, because a branch's run id and the stop's command id are made from the request.
"""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import UUID

import msgspec

from hai_flow import file_ids
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.forking import undone_in
from hai_flow.engine.state import TERMINAL_STATUSES, RunState
from hai_flow.errors import Rejected
from hai_flow.runtime.auditing import Asked
from hai_flow.runtime.catalog import Catalog
from hai_flow.runtime.committer import Committer
from hai_flow.runtime.moments import Moments
from hai_flow.runtime.threads import Threads
from hai_flow.store import files, run_lists
from hai_flow.store.database import Database
from hai_flow.store.run_lists import RunSummary
from hai_flow.store.threads import Position

STOP_SECONDS: Final = 30.0  # so long a request waits for the run that its branch leaves


class Branches:
    """Makes forks, and has runs stopped for them."""

    def __init__(
        self, database: Database, committer: Committer, catalog: Catalog, threads: Threads, moments: Moments
    ) -> None:
        self._database = database
        self._committer = committer
        self._catalog = catalog
        self._threads = threads
        self._moments = moments

    async def fork(
        self,
        run_id: UUID,
        tenant: UUID,
        there: RunState,
        now: RunState,
        answer: c.Answer,
        *,
        edits: c.Edits | None = None,
        to: Plan | None = None,
    ) -> tuple[c.Fork, Plan]:
        """The command with which `run_id` begins as another run was when it was `there`, and the plan that it has then:
        `to`, or as it was. `now` is the present state of that other one. Raises Rejected 413 where its log is too
        long, 409 `workflow_retired` where the plan's version was retired and the fork has not begun before."""
        of = UUID(there.run_id)
        moment = await self._moments.moment(of, there.seq)
        was = await self._catalog.plan(tenant, bytes.fromhex(there.sha256))
        if to is not None and to.sha256 != was.sha256:
            edits = msgspec.structs.replace(edits or c.Edits(), was=was)
        retired = await self._catalog.retirement(tenant, to or was)
        if retired is not None and await run_lists.get_run(self._database.api, tenant, run_id) is None:
            raise retired
        fork = c.Fork(
            run_id=run_id,
            of=of,
            events=moment.events,
            answer=answer,
            undone=undone_in(now),
            key=there.key,
            following=moment.following,
            edits=edits,
        )
        return fork, to or was

    async def hand_files(self, tenant: UUID, fork: c.Fork) -> None:
        """The fork refers to the files of the run whose events it copies: they are kept as long as it is."""
        named = file_ids.files_in(e.encode_events(fork.events))
        await files.hand_files(self._database.api, tenant, named, fork.run_id, of=fork.of)

    async def leave(
        self, run: RunSummary, stop: c.Stop, *, command_id: str, body_sha: bytes, asked: Asked | None = None
    ) -> None:
        """Stop the thread's newest run and return when it has ended. Raises Rejected 409 `thread_busy` where that
        takes longer than `STOP_SECONDS`: it goes on stopping, and the same request finds it ended later."""
        try:
            await self._committer.submit(
                run.id, run.tenant, stop, command_id=command_id, body_sha=body_sha, asked=asked
            )
        except Rejected as rejected:
            if rejected.code != "run_ended":
                raise
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._ended(run)
        except TimeoutError:
            raise Rejected(
                409,
                "thread_busy",
                f"run {run.id}, which the branch leaves, is still being stopped; send the same request again.",
                winner={"run_id": str(run.id), "status": "stopping"},
            ) from None

    async def _ended(self, run: RunSummary) -> None:
        while True:
            row = await run_lists.get_run(self._database.api, run.tenant, run.id)
            if row is None or row.status in TERMINAL_STATUSES:
                return
            await self._threads.news(run.tenant, run.thread_id, Position(run.id, row.seq))
