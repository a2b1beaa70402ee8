"""The rows that a commit is given, and those that it gives back (docs/design/store.md#the-commit).

Exactly one of `born`, `version` and neither is the column on which an entry competes; `seq` is given out by the commit
(docs/design/store.md#decisions-and-chunks)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec


class CommandRow(msgspec.Struct, frozen=True, gc=False):
    """A command that the entry carries out: its id is taken, and `outcome` is the answer to the same command again
    (docs/design/store.md#command-ids)."""

    command_id: str
    body_sha: bytes
    outcome: bytes


class PendingRow(msgspec.Struct, frozen=True, gc=False):
    """A pending that opens, or whose `status`, `deadline` or deciders change. At most one row per pending in an entry
    (docs/design/store.md#one-entry-per-run). `asks`: the selectors by which people find it in their inbox, separated by
    spaces; "" if it is open no more. `words`: the text by which a search finds it."""

    id: str
    status: str
    path: str
    digest: bytes
    deadline: datetime | None
    body: bytes
    asks: str = ""
    kind: str | None = None
    words: str | None = None


class VoteRow(msgspec.Struct, frozen=True, gc=False):
    """A person's answer to a pending: a vote, or the answer that decided it."""

    pending_id: str
    principal: str
    body: bytes
    decision: str | None = None
    on_behalf_of: str | None = None


class OutboxRow(msgspec.Struct, frozen=True, gc=False):
    """A message of this commit to another run (docs/design/store.md#outbox). Its number within the commit is its place
    in the entry."""

    kind: str
    target: str
    body: bytes


class AuditRow(msgspec.Struct, frozen=True, gc=False):
    """A record of the audit: the act of a person on the run (`audit_chain` has the meaning of each column). The commit
    adds the run, its seq and its head."""

    id: UUID
    act: str
    subject: str | None
    digest: bytes | None
    commitment: bytes
    principal: str
    salt: bytes
    body: bytes


class TurnRow(msgspec.Struct, frozen=True, gc=False):
    """A turn that opens (`first`) or ends (`last`) in this entry, or both.

    `first` and `last` are positions of events in the entry, counted from 1; the commit makes them seqs."""

    n: int
    first: int | None = None
    last: int | None = None
    wire_run_id: str | None = None
    body_sha: bytes | None = None


class MessageRow(msgspec.Struct, frozen=True, gc=False):
    """Message `n` of the run, for the thread's transcript. The same `n` again replaces role and body.

    `position` is that of the message's event in the entry, counted from 1."""

    n: int
    id: str
    role: str
    body: bytes
    position: int


class Branch(msgspec.Struct, frozen=True, gc=False):
    """Where a run leaves its thread's line: it is born at a turn of the run `of`, not behind the newest one.

    `follows` is the run that comes before it in the thread now, None if none does; runs in between are abandoned. A
    fork has `copied` so many of its events, and stands in the place of `of`."""

    of: UUID
    follows: UUID | None
    copied: int = 0


class Born(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The columns that only the first entry of a run has. `slot`: taken with it, or the entry loses; `left`: a run that
    was stopped for it has left it the slot, and the entry loses unless it is so still. `in_use`: the entry loses if the
    version of its workflow was retired; `latest`: or if there is a later one. `input`: JSON text."""

    workflow: bytes
    workflow_name: str
    workflow_version: int
    thread_id: str
    started_by: str
    dev: bool = False
    parent_id: UUID | None = None
    parent_path: str | None = None
    queue: str = "default"
    slot: str | None = None
    input: bytes | None = None
    branch: Branch | None = None
    left: bool = False
    in_use: bool = False
    latest: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The version of its workflow that a run goes on with from this commit on, and in whose queue it waits then."""

    workflow: bytes
    workflow_version: int
    dev: bool = False
    queue: str = "default"


class HeirEntry(msgspec.Struct, frozen=True, gc=False):
    """The run `run_id` gets the slots of one that ends: that of the thread, `slot`, and if `key` all others. They are
    promised to it. `leaves`: the run that ends has left it work, and takes that back if the heir does not begin."""

    run_id: UUID
    slot: str
    key: bool = False
    leaves: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run's part of a batch.

    Exactly one of `born` (the run starts here), `version` (a decision that expects this version) and neither (chunks of
    the holder, comparing `fence` and the worker id) says on which column it competes. A decision of the holder compares
    `fence` as well (None: not compared), so that `refence_runs` stops one that is still under way.

    `created_at`: when the run began on whose state the decision was made; it loses in a later one of the same id. None:
    not compared.
    `events` is the JSON text of `n` events. `status` None: unchanged. `busy` None: chunks only; True: jobs are open or
    attempts in flight (takes the claim if it is free); False: nothing is in flight (gives the claim back, the run is
    due at `wake_at`, None = never by itself). `elsewhere`: this process does not perform runs of its queue, so it takes
    no claim. `free`: the decision begins an effect that nobody may simply repeat, in a run that it knows as free; it
    loses where another process has claimed the run since, which might have died over it. `cut`: the decision closes an
    open attempt or message of the holder, whose late chunks must lose.
    `result` is written by the commit that ends the run; reopening clears it. `take_slot`:
    a run that ended needs this slot again, and loses without it. `seat`: the slot of its concurrency key that the run
    was promised and begins with; it loses if the slot is not its own any more. `moved`: the run's workflow has another
    version now. `instigators`: the people behind the run beside its requester, separated by spaces, where they changed.
    `summary`: the line by which lists show the run, where it may have changed. `held`: the ids of the freezes that hold
    steps of it, separated by spaces, where they have changed.
    `heir`: the run ends, and leaves its slots to another."""

    run_id: UUID
    tenant: UUID
    n: int
    events: bytes
    born: Born | None = None
    version: int | None = None
    created_at: datetime | None = None
    fence: int | None = None
    status: str | None = None
    busy: bool | None = None
    wake_at: datetime | None = None
    elsewhere: bool = False
    free: bool = False
    cut: bool = False
    take_slot: str | None = None
    seat: str | None = None
    result: bytes | None = None
    moved: Moved | None = None
    instigators: str | None = None
    summary: str | None = None
    held: str | None = None
    heir: HeirEntry | None = None
    commands: Sequence[CommandRow] = ()
    pendings: Sequence[PendingRow] = ()
    votes: Sequence[VoteRow] = ()
    outbox: Sequence[OutboxRow] = ()
    turns: Sequence[TurnRow] = ()
    messages: Sequence[MessageRow] = ()
    audit: Sequence[AuditRow] = ()


class CommitResult(msgspec.Struct, frozen=True, gc=False):
    """The run's row after the commit. `seq - n` is the seq before it: where it is not the one that was known, others'
    chunks lie between, and must be read before folding. `worker` holds the claim now (None: no worker does).

    `worker` being you, on a run that you did not know you held, is yours with nothing begun only if this commit took
    it: you had loaded it free (`worker` None) and `fence` is one above the loaded one, or 0 at birth. Else it may be a
    claim whose answer was lost, of a dead worker's run: declare its open attempts lost (found by the torture)."""

    seq: int
    version: int
    fence: int
    worker: int | None


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """`won` by the entry's number in the batch (from 0); an entry that is not in it lost: nothing of it happened.
    `db_now` is the database's clock. `freezes` is the version of its freezes; None: it was not asked. `created_at` is
    that of the runs that began; None: none did."""

    won: dict[int, CommitResult]
    db_now: datetime
    freezes: int | None = None
    created_at: datetime | None = None
