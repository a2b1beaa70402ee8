"""Calls the addresses that clients of A2A have left for their tasks, and agents for their approvals, whenever a state
changes. A row for each address says up to which event it was told, so nothing depends on the process that committed the
change. An address has one call under way, hears of states in order, and of the newest only where there were several. A
failed call is repeated, ever more seldom, and given up in the end; the next change begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
import structlog

from hai_flow.engine import commands as c
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import RunState
from hai_flow.notify.delivery import SECONDS, NotSent, Poster
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.primitives.retry_after import wait_for_try
from hai_flow.runtime.base.pulse import PulsedService
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.commit.states import HEAD, state_at
from hai_flow.runtime.people.inbox import Inbox
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.store.identity import keys
from hai_flow.store.messaging import hints, pushes
from hai_flow.store.messaging.pushes import Push
from hai_flow.store.people.notifications import derive_notification_id
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.wire import approvals, webhook_signatures
from hai_flow.wire.a2a import tasks as a2a
from hai_flow.wire.a2a.pushes import PushConfig, headers_of, write_push
from hai_flow.wire.mcp import Question, RunView

log = structlog.get_logger(__name__)

BATCH_MAX: Final = 20


class PushesConfig(msgspec.Struct, frozen=True):
    """`again_seconds`: after the first call that failed; each time after twice as long, but at most
    `again_seconds_max`; `tries_max` in all. `apart_seconds`: at least so long between two states."""

    again_seconds: float = 5.0
    again_seconds_max: float = 3600.0
    tries_max: int = 15
    apart_seconds: float = 0.5


class PushCaller(c.Principal, frozen=True):
    """The caller that left an address, and the id of the API key that proved it, if one did."""

    key: str | None = None


class _Notice(NamedTuple):
    """What an address is told. `seq`: up to which event of the run; `mark`: what sets it apart from others of the run;
    `body`: None where there is nothing to tell yet."""

    seq: int
    mark: str
    state: str
    body: bytes | None
    is_last: bool


class Pushes(PulsedService):
    """Makes the calls, in every process that performs. `credentials` is the cell that has API keys; `guard`
    judges the addresses of each; `now_ms` is the database's clock."""

    DUE, TASK, FAILURE = "pushes", "push notifications", "pushes_not_taken"

    def __init__(
        self, database: Database, credentials: Pool, inbox: Inbox, guard: EgressGuard, http: HttpConfig, rows: Rows,
        now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__()
        self._database = database
        self._credentials = credentials
        self._inbox = inbox
        self._guard = guard
        self._http = http
        self._rows = rows
        self._now_ms = now_ms
        self.config = PushesConfig()
        self._key: bytes | None = None

    async def _start(self) -> None:
        self._poster = Poster(self._guard, self._http)
        self._due.set()
        await super()._start()

    async def _stop(self) -> None:
        await self._end_tasks()
        await self._poster.close()

    async def take_due(self) -> None:
        while batch := await pushes.take_pushes(self._database.api, BATCH_MAX, timedelta(seconds=SECONDS * 3)):
            await asyncio.gather(*map(self._deal_with, batch))

    async def _deal_with(self, push: Push) -> None:
        name = f"push {push.id} of run {push.run_id}"
        await self._rows.deal(Sweep.NOTIFICATIONS, name, lambda: self._tell(push))

    async def _tell(self, push: Push) -> None:
        """Tell the address how the task stands, if that is news."""
        opened = pushes.open_config(await self._find_key(), push)
        config = None if opened is None else msgspec.json.decode(opened, type=PushConfig)
        caller = msgspec.json.decode(push.who, type=PushCaller)
        notice = None if config is None else await self._look(push, config, caller)
        if config is None or notice is None:  # it is over; or this database is a copy, which calls nobody
            await pushes.delete_push(self._database.api, push.tenant, push.run_id, push.principal, push.id)
            return
        error = None
        if notice.state != push.sent and notice.body is not None:
            try:
                await self._call(push, config, notice.mark, notice.body)
            except NotSent as failure:
                error = str(failure)
                if not failure.final and push.tries < self.config.tries_max:
                    await self._put_off(push, error, failure.after)
                    return
                log.error("push_given_up", id=push.id, run_id=str(push.run_id), tries=push.tries, reason=error)
        apart = None if notice.is_last else timedelta(seconds=self.config.apart_seconds)
        await pushes.mark_told(self._database.api, push, notice.seq, notice.state, error, apart)

    async def _find_key(self) -> bytes:
        if self._key is None:
            self._key = (await hints.seal_of(self._database.api)).key
        return self._key

    async def _put_off(self, push: Push, error: str, at_least: float | None) -> None:
        wait = wait_for_try(push.tries, self.config.again_seconds, self.config.again_seconds_max, at_least)
        log.info("push_put_off", id=push.id, run_id=str(push.run_id), tries=push.tries, reason=error)
        await pushes.put_off_push(self._database.api, push, wait, error)

    async def _call(self, push: Push, config: PushConfig, mark: str, body: bytes) -> None:
        """One try. Its id is the same in each try of a state."""
        id = derive_notification_id(f"{push.run_id} {push.principal} {push.id} {mark}")
        headers = headers_of(config)
        if config.token:
            headers |= webhook_signatures.sign(config.token, id, self._now_ms() // 1000, body)
        else:
            headers["webhook-id"] = id
        try:
            async with asyncio.timeout(SECONDS):
                if not config.url.startswith("https:"):  # it may be older than the rule, or than the list of hosts
                    obstacle = await self._guard.find_obstacle(config.url, by_proxy=self._http.proxy is not None)
                    if obstacle is not None:
                        raise NotSent(obstacle)
                await self._poster.post(config.url, body, headers)
        except TimeoutError:
            raise NotSent(f"no answer within {SECONDS:g} s") from None

    async def _look(self, push: Push, config: PushConfig, caller: PushCaller) -> _Notice | None:
        """How the run stands now, as its address is told; None: there is none any more, or the caller's key has ended
        and they have no other that shows them the run."""
        state = await state_at(self._database, push.tenant, push.run_id, HEAD)
        if state is None:
            return None
        if caller.key is not None:
            is_own = state.requester in ids_of(caller) and not state.forked  # whatever roles they have
            held = ((), ()) if is_own else (caller.roles, caller.groups)
            if await keys.is_over(self._credentials, push.tenant, caller.key, caller.id, *held):
                return None
        if config.approval:
            status, outcome = approvals.write_outcome(state)
            mark = f"{status} {len(state.pendings)}"  # a workflow may ask again behind a no, and an operator retry it
            return _Notice(state.seq, mark, status, outcome, state.ended and status != "failed")
        view = RunView(state, await self._list_questions(push, state, caller), "", 0)
        task, body = await run_if_large(state, write_push, view, old=config.old)
        return _Notice(state.seq, str(state.seq), task, body, task in a2a.ENDS)

    async def _list_questions(self, push: Push, state: RunState, caller: c.Principal) -> list[Question]:
        """The open questions as the address's caller sees them."""
        questions = []
        for pending in state.open_questions:
            id = pending.opened.id
            item = await self._inbox.item(push.tenant, caller, run_of_pending(id) or UUID(state.run_id), id)
            if item is not None:
                questions.append(Question(pending, push.may and item.obstacle is None, ""))
        return questions
