"""People's inboxes: what a principal can decide now, and why not, where it can't.

The index (`store/inbox`) finds what asks a person; the rules of each pending say whether they may decide it. Both are
read in one statement, without any run's log. `tidy` writes the index for pendings of releases that had none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings import NOT_ASKED, Obstacle, obstacle
from hai_flow.engine.selectors import World, held
from hai_flow.engine.state import PendingState
from hai_flow.errors import Unreadable
from hai_flow.runtime.catalog import Catalog
from hai_flow.store import inbox, sweeps
from hai_flow.store.database import Database
from hai_flow.store.inbox import Asked, Filters, Place
from hai_flow.store.projection import asked_by, words_of
from hai_flow.store.sweeps import PAGE_ROWS, Page

COUNTED_MAX: Final = 10_000

_votes = msgspec.json.Decoder(e.VoteCast)


class Item(msgspec.Struct, frozen=True):
    """A pending in somebody's inbox. `obstacle`: why they may not decide it."""

    asked: Asked
    opened: e.PendingOpened
    obstacle: Obstacle | None


class Inbox:
    """Reads inboxes, and keeps their index whole."""

    def __init__(self, database: Database, catalog: Catalog) -> None:
        self.database = database
        self.catalog = catalog

    async def page(
        self, tenant: UUID, who: c.Principal, filters: Filters, *, limit: int, after: Place | None = None
    ) -> tuple[list[Item], Place | None]:
        """What asks the principal, the next deadline first; and where to go on, if there is more. A page may be short,
        though there is more."""
        found, following = await inbox.page_of_inbox(
            self.database.api, tenant, held(who), filters, limit=limit, after=after
        )
        items = [await self._item(tenant, who, each) for each in found]
        return [each for each in items if each.obstacle is None or each.obstacle.code != NOT_ASKED], following

    async def item(self, tenant: UUID, who: c.Principal, run_id: UUID, pending_id: str) -> Item | None:
        """An open pending as the principal's inbox shows it, also one that does not ask them."""
        asked = await inbox.get_asked(self.database.api, tenant, run_id, pending_id)
        return None if asked is None else await self._item(tenant, who, asked)

    async def counts(self, tenant: UUID, who: c.Principal) -> tuple[dict[str, int], bool]:
        """How many open pendings of each workflow ask the principal, and whether all were counted."""
        return await inbox.counts_by_workflow(self.database.api, tenant, held(who), COUNTED_MAX)

    async def _item(self, tenant: UUID, who: c.Principal, asked: Asked) -> Item:
        opened = e.decode_pending(asked.body)
        try:
            votes = tuple(map(_votes.decode, asked.votes))
            world = await self._world(tenant, asked.workflow, asked.started_by)
            return Item(asked, opened, obstacle(PendingState(opened, votes=votes), who, world))
        except (Unreadable, msgspec.DecodeError):
            return Item(asked, opened, Obstacle("unreadable", "a newer release wrote it, which alone can judge it"))

    async def _world(self, tenant: UUID, workflow: bytes, requester: str) -> World:
        """Raises Unreadable: the workflow is of a release that this one can't read."""
        return World(requester, (await self.catalog.plan(tenant, workflow)).roles)

    async def tidy(self, every: timedelta) -> None:
        """Compare a page of the index with what is asked, unless another process just did."""
        pool = self.database.api
        await sweeps.sweep(pool, "inbox", every, self._mend)
        await sweeps.sweep(pool, "inbox.closed", every, partial(inbox.forget_closed, pool))

    async def _mend(self, after: list[Any] | None) -> Page:
        listed = await inbox.open_page(self.database.api, after)
        wrong = [found for each in listed if (found := await self._correction(each)) is not None]
        if wrong:
            await inbox.mend(self.database.api, wrong)
        last = listed[-1] if len(listed) == PAGE_ROWS else None
        key = None if last is None else [str(last.tenant), last.opened_at.isoformat(), last.id]
        return Page(len(listed), len(wrong), key)

    async def _correction(self, listed: inbox.Listed) -> tuple[inbox.Listed, str, str, str] | None:
        opened = e.decode_pending(listed.body)
        try:
            world = await self._world(listed.tenant, listed.workflow, listed.started_by)
            asks: Sequence[str] = asked_by(PendingState(opened), world)
        except (Unreadable, msgspec.ValidationError):
            return None  # a process of the release that wrote it sees to it
        if listed.current and set(asks) == set(listed.asks):
            return None
        return listed, " ".join(asks), opened.kind, words_of(opened)
