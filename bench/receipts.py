"""The time of a receipt: the run's log is read, folded and signed each time that somebody asks for it.

`receipt_ms`: the median of a run with one question, from asking the store until the signed file is there, in
milliseconds. `verify_ms`: of checking that file.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any
from uuid import UUID

from bench.engine import running
from bench.resume import answer_seconds
from bench.workflows import QUESTION
from hai_flow import signing
from hai_flow.errors import Rejected
from hai_flow.runtime.people.receipts import ReceiptReader, build_receipt
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.wire.receipt import check_payload, read_texts

KEYS = signing.SigningKeys((signing.Key.made(bytes(range(32))),))
EVERYBODY = ReceiptReader(None, sees_evidence=True, sees_run=True)
SEAL_SECONDS = 30.0


async def measure(dsn: str, samples: int) -> dict[str, Any]:
    """Medians of `samples` receipts of one decision."""
    async with running(dsn, QUESTION) as engine:
        run_id = await engine.start_run()
        state = await engine.runtime.fanout.state_at(LOCAL_TENANT, run_id, 1_000_000)
        assert state is not None
        (pending_id,) = state.open_pendings.values()
        await answer_seconds(engine.runtime, run_id)
        receipt = await _first(engine.runtime, run_id, pending_id)
        made, checked = [], []
        for _ in range(samples):
            began = time.perf_counter()
            receipt = await _build(engine.runtime, run_id, pending_id)
            made.append(time.perf_counter() - began)
            began = time.perf_counter()
            token, texts = read_texts(receipt)
            check_payload(signing.verify(token, KEYS.keys), texts)
            checked.append(time.perf_counter() - began)
    return {"receipt_ms": statistics.median(made) * 1e3, "verify_ms": statistics.median(checked) * 1e3}


async def _first(runtime: Runtime, run_id: UUID, pending_id: str) -> str:
    """The receipt, as soon as the audit has sealed the answer."""
    until = time.monotonic() + SEAL_SECONDS
    while True:
        try:
            return await _build(runtime, run_id, pending_id)
        except Rejected:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)


async def _build(runtime: Runtime, run_id: UUID, pending_id: str) -> str:
    return await build_receipt(runtime.database.api, LOCAL_TENANT, run_id, pending_id, KEYS, EVERYBODY)
