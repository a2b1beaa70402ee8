"""The faults that `hai-flow status` shows: all that a person should look at, each as a sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from hai_flow.store.ops.metrics_queries import COUNTED_MAX
from hai_flow.store.ops.status import Standing

SILENT_SECONDS: Final = 30.0  # a server that has given no sign of life for so long counts as gone
LAG_SECONDS_MAX: Final = 30.0  # as the alert HaiFlowQueueLag
OUTBOX_SECONDS_MAX: Final = 60.0
UNSEALED_SECONDS_MAX: Final = 60.0


class Fault(NamedTuple):
    """What a person should look at. `code` and `params`: the same, for sentences in other languages."""

    code: str
    message: str
    params: tuple[str, ...] = ()


class SchemaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`revision` is the database's, `newest` that of this release, `known` whether this release knows it; `held`: why
    nothing may be performed over the database."""

    revision: str | None
    newest: str
    known: bool
    held: str | None = None


def faults(schema: SchemaStatus, standing: Standing | None) -> list[str]:
    """Sentences on all that a person should look at, the worst first. `standing` is None where the schema is not
    there."""
    return [*_check_schema(schema), *(() if standing is None else (each.message for each in faults_of(standing)))]


def _check_schema(schema: SchemaStatus) -> Iterator[str]:
    if schema.revision is None:
        yield "the database is empty: run hai-flow migrate"
    elif schema.revision != schema.newest and schema.known:
        yield f"its schema is older than this release ({schema.revision}, not {schema.newest}): run hai-flow migrate"
    if schema.held is not None:
        yield f"nothing is performed, because it may have gone back in time: see hai-flow recover ({schema.held})"


def faults_of(standing: Standing) -> Iterator[Fault]:
    """The faults of a cell whose schema is good."""
    waiting, alive = standing.waiting, [each for each in standing.workers if each.lease > 0]
    dead = [each for each in standing.workers if each.lease <= 0]
    if not alive and (waiting.due or dead):
        yield Fault("status.no_worker", "runs wait, and no worker is alive: start hai-flow worker")
    else:
        yield from _check_queues(standing)
    if waiting.overdue:
        overdue = write_bounded(waiting.overdue)
        message = f"{overdue} timers, deadlines or runs of dead workers are overdue"
        yield Fault("status.overdue", message, (overdue,))
    if attention := standing.runs.get("needs_attention", 0):
        message = f"{attention} runs need attention: hai-flow runs --status needs_attention"
        yield Fault("status.attention", message, (str(attention),))
    if stranded := waiting.stranded:
        message = f"{stranded} questions can be decided by nobody: hai-flow pendings says why"
        yield Fault("status.stranded", message, (str(stranded),))
    if waiting.outbox_age > OUTBOX_SECONDS_MAX:
        seconds = f"{waiting.outbox_age:.0f}"
        message = f"a message between runs has been due for {seconds} s: is its workflow there?"
        yield Fault("status.outbox", message, (seconds,))
    if waiting.unsealed_age > UNSEALED_SECONDS_MAX:
        seconds = f"{waiting.unsealed_age:.0f}"
        message = f"a record of the audit has waited {seconds} s for its seal: workers seal"
        yield Fault("status.unsealed", message, (seconds,))


def write_bounded(count: int) -> str:
    """A number that is counted up to `COUNTED_MAX`, and may be greater from there on."""
    return f"{count}+" if count >= COUNTED_MAX else str(count)


def _check_queues(standing: Standing) -> Iterator[Fault]:
    """Of queues that workers serve, the one that is furthest behind; and those that no worker serves."""
    age = max((each.age for each in standing.queues if each.workers), default=0.0)
    if age > LAG_SECONDS_MAX:
        seconds = f"{age:.0f}"
        yield Fault("status.lag", f"a run has been due for {seconds} s: add workers", (seconds,))
    if unserved := [each.name for each in standing.queues if not each.workers]:
        names = ", ".join(unserved)
        message = f"runs wait in queues that no worker serves: {names}: start hai-flow worker --queue {unserved[0]}"
        yield Fault("status.unserved", message, (names, unserved[0]))
