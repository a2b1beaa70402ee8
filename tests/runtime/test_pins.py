"""What a process remembers of the pins of a workflow."""

from __future__ import annotations

from hai_flow.runtime.catalog.pins import PinBook
from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.runtime.conftest import ASKING, Make, start, state_of


async def test_pins_that_were_replaced_are_not_remembered(make: Make) -> None:
    runtime = await make()
    state = await state_of(runtime, (await start(runtime, ASKING)).run_id)
    workflow, book = bytes.fromhex(state.sha256), PinBook(runtime.database)
    await book.replace(LOCAL_TENANT, workflow, {"erp.pay": "first"})
    assert await book.known(LOCAL_TENANT, workflow) == {"erp.pay": "first"}
    await book.replace(LOCAL_TENANT, workflow, {"erp.pay": "second", "erp.look": "new"})
    assert await book.known(LOCAL_TENANT, workflow) == {"erp.pay": "second", "erp.look": "new"}
    assert await book.of(LOCAL_TENANT, workflow).known() == {"erp.pay": "second", "erp.look": "new"}
