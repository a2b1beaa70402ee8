"""Requests of services that were given an address to call back at: each becomes a signal of the run that waits.

An address is good for one callback, of one step of one run, for as long as that step waits. No answer names the run."""

from __future__ import annotations

import re
from typing import Final

from hai_flow import values
from hai_flow.definition.plan import Schema, callback_of
from hai_flow.engine.state.bounds import EVENT_BYTES_MAX
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.steps.wait_for_event import is_awaiting_callback
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.commit.states import HEAD
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.messaging.outbox import Delivery
from hai_flow.runtime.streams.fanout import Fanout
from hai_flow.store.messaging import callbacks, signals
from hai_flow.store.messaging.callbacks import CallbackRow
from hai_flow.store.postgres.database import Database
from hai_flow.values import Json

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}(\.[1-9][0-9]{0,3})?")


class Callbacks:
    """Finds the step that an address is for, and sends its run the signal."""

    def __init__(self, database: Database, fanout: Fanout, catalog: Catalog, delivery: Delivery, files: Files) -> None:
        self._database = database
        self._fanout = fanout
        self._catalog = catalog
        self._delivery = delivery
        self._files = files

    async def find(self, token: str) -> CallbackRow:
        """The step that the address is for. Raises Rejected 404."""
        row = None
        if _TOKEN.fullmatch(token):
            row = await callbacks.find_callback(self._database.api, token)
        if row is None:
            raise Rejected(404, "callback_unknown", "there is no callback here.")
        return row

    async def receive(self, row: CallbackRow, content: Json) -> bool:
        """Take a callback; returns whether the very same one was taken before.

        Raises Rejected: 410 if nothing waits for it (any more), 409 if another one was taken, 422 if its body does not
        fit the step's schema, 404 if it names a file that the run does not refer to, 413 if it is too large for an
        event."""
        data = values.dumps(content)
        if len(data) > EVENT_BYTES_MAX:
            raise Rejected(413, "callback.too_large", f"a callback has at most {EVENT_BYTES_MAX} bytes.")
        id = f"callback_{row.digest.hex()}"
        before = await signals.get_signal(self._database.api, row.tenant, id)
        if before is not None:
            if before.data == data:
                return True
            raise Rejected(409, "callback_used", "this address was good for one callback, and has had it.")
        await self._demand_awaited(row, content)
        await self._files.demand_of_run(row.tenant, row.run_id, data)
        try:
            _, already = await self._delivery.send(row.tenant, id, row.type, content, row.run_id)
        except Rejected as rejected:
            if rejected.status != 409:
                raise
            raise Rejected(409, "callback_used", "this address was good for one callback, and has had it.") from None
        return already

    async def _demand_awaited(self, row: CallbackRow, content: Json) -> None:
        state = await self._fanout.state_at(row.tenant, row.run_id, HEAD)
        if state is None or state.ended or not is_awaiting_callback(state, row.path, row.type):
            raise Rejected(410, "callback_over", "nothing waits for this callback any more.")
        plan = await self._catalog.plan(row.tenant, bytes.fromhex(state.sha256))
        callback = callback_of(resolve_step(plan, row.path).verb)
        schema = None if callback is None else callback.schema
        if schema is not None:
            await demand_fit(content, schema)


async def demand_fit(content: Json, schema: Schema) -> None:
    """Raises Rejected 422 where the body of a callback is not what its step waits for."""
    _, faults = await run_if_large(content, schema.fit, content)
    if faults:
        message = "the body is not what is waited for; nothing has happened, send another one."
        raise Rejected(422, "callback.invalid", message, findings=faults)
