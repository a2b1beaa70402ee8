"""Receipts of decisions, made from the logs of runs (`wire/receipt` says what stands in them)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from hai_flow import signing
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import SHORT_BYTES, run_beside_loop
from hai_flow.settings import Settings, variable
from hai_flow.store.audit import audit
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.runs import run_bundle
from hai_flow.values import Json
from hai_flow.wire.pii_masking import Mask
from hai_flow.wire.reader_redaction import strip_evidence
from hai_flow.wire.receipt import ReceiptRecorder

FILE: Final = "receipt-keys.json"
_AT_ONCE: Final = 16 * 1024  # bytes of events


class ReceiptKeys:
    """The deployment's keys for receipts, read anew when their file changes."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.receipt_keys
        self._made_here = self._path is None and settings.database_url is None
        if self._made_here:
            self._path = settings.data_dir / FILE
        self._changed: int | None = None
        self._keys: signing.SigningKeys | None = None

    def find(self) -> signing.SigningKeys | None:
        """The keys; beside an embedded database the first key is made here. None: no file is set. Raises BadKeys."""
        if self._path is None:
            return None
        if self._made_here and not self._path.exists():
            make_key(self._path)
        try:
            changed = self._path.stat().st_mtime_ns
        except OSError as error:
            raise signing.BadKeys(f"{self._path}: the keys can't be read: {error.strerror}.") from None
        if self._keys is None or changed != self._changed:
            self._keys, self._changed = signing.read_keys(self._path), changed
        return self._keys

    def demand(self) -> signing.SigningKeys:
        """The keys. Raises Rejected 409 where there are none, or none that can be used."""
        try:
            keys = self.find()
        except signing.BadKeys:
            message = "the deployment's keys for receipts can't be used; its log and `hai-flow doctor` say why."
            raise Rejected(409, "receipt_keys_unusable", message) from None
        if keys is None:
            message = (
                f"no receipts are signed here: {variable('receipt_keys')} is unset (`hai-flow receipt key` makes it)."
            )
            raise Rejected(409, "receipt_keys_unset", message)
        return keys


def make_key(path: Path) -> signing.Key:
    """Put a new key in front of those of the file, which are retired; the file is made if need be, for its owner alone.
    Raises BadKeys."""
    keys = signing.keys_of(path.read_text(), str(path)) if path.exists() else ()
    private = os.urandom(32)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600, and whole before it is there
    with os.fdopen(handle, "w") as file:
        file.write(signing.rotate(keys, private))
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, path)
    return signing.Key.made(private)


class ReceiptReader(msgspec.Struct, frozen=True):
    """What the reader of a receipt may see: whose personal values (`mask`; None: all), the question's evidence, and
    more of the run than the question."""

    mask: Mask | None
    sees_evidence: bool
    sees_run: bool

    def show(self, event: e.Event, state: RunState) -> e.Event:
        """The event as the reader may see it."""
        event = event if self.mask is None else self.mask.event(event, state)
        event = event if self.sees_evidence else strip_evidence(event)
        if not self.sees_run and isinstance(event, e.StepFinished):
            return replace(event, output=None)
        return replace(event, requester="") if not self.sees_run and isinstance(event, e.RunStarted) else event


async def build_receipt(
    pool: Pool, tenant: UUID, run_id: UUID, pending_id: str, keys: signing.SigningKeys, reader: ReceiptReader
) -> str:
    """The receipt of a question of the run. Raises Rejected 404 where the run did not ask it itself, 409 where it is
    too early."""
    state, recorder = RunState(str(run_id)), ReceiptRecorder(pending_id, keys.salt)
    head, closed, read, is_long = b"", dict[str, Json](), 0, False

    def fold(events: bytes) -> None:
        nonlocal state
        for event in e.decode_events(events):
            state = evolve(state, event)
            recorder.see(event, reader.show(event, state), state)

    def finish(seal: Json) -> str:
        return recorder.document(keys.sign(recorder.payload(state, closed, seal)))

    async for commit in run_bundle.log_rows(pool, run_id):
        head = sha256(head + commit["events"]).digest()
        is_long = is_long or len(commit["events"]) > SHORT_BYTES  # a short commit decides a long question
        if is_long:
            await run_beside_loop(fold, commit["events"])
        else:
            fold(commit["events"])
        read += len(commit["events"])
        if read >= _AT_ONCE:
            await asyncio.sleep(0)
            read = 0
        if recorder.decided and not closed:
            closed = {"seq": commit["last_seq"], "head": head.hex()}
    if not recorder.exists:
        message = "the run took the question over from another run: that run has its receipt."
        raise Rejected(404, "receipt_elsewhere", message)
    if not recorder.settled:
        what = "the call that was approved has not ended" if recorder.decided else "the question is open"
        raise Rejected(409, "receipt_early", f"there is no receipt yet: {what}.")
    seals = await audit.list_seals(pool, tenant, run_id, f"pending:{pending_id}")
    if None in seals:
        message = "there is no receipt yet: the audit seals the answer within seconds. Ask again."
        raise Rejected(409, "receipt_early", message)
    seal = seals[-1] if seals else None
    return await run_beside_loop(finish, seal) if is_long else finish(seal)
