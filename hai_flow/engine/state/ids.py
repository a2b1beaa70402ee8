"""Ids made from the names of things, so that a decision made twice names things alike (docs/design/engine.md#ids).

These names hold keys of loops, which come from the input of a run. So an id has 128 bits of its digest (that of a
child, a UUID, 122, or 112 in another cell than home): no two steps of a run can be found whose questions are called the
same."""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import UUID

from hai_flow.cells import beside
from hai_flow.definition.paths import list_of
from hai_flow.primitives import uuids

if TYPE_CHECKING:
    from hai_flow.engine.state.state import PendingState, RunState


_SHORT: Final = 12


def _encode_base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _digest(*parts: str | int) -> str:
    return sha256("\x00".join(map(str, parts)).encode()).hexdigest()


def message_id(run_id: str, path: str, attempt: int, n: int) -> str:
    """The id of the message that attempt `attempt` of the step `path` opens as the run's n-th entry."""
    return "msg_" + _digest(run_id, path, attempt, n)[:32]


def pending_id(run_id: str, path: str, n: int) -> str:
    """The id of the n-th pending of the step `path`, which is also its toolCallId. It names its run. 58 characters:
    some makers of models refuse ids of calls that are longer than 64."""
    return call_prefix(run_id) + _call_suffix(path, n)


def derive_short_pending_id(run_id: str, path: str, n: int) -> str:
    """The pending's id as older releases made it, with 48 bits: for runs that were open at the upgrade."""
    return f"{call_prefix(run_id)}{_digest(path, n)[:_SHORT]}"


def pending_of(state: RunState, path: str, n: int) -> PendingState | None:
    """The n-th pending of the step `path` (from 0), whichever release has opened it."""
    pending = state.pendings.get(pending_id(state.run_id, path, n))
    pending = pending or state.pendings.get(derive_short_pending_id(state.run_id, path, n))
    if pending is None and n == 0 and (id := find_id_as_written(state, path)) is not None:
        return state.pendings.get(id)
    return pending


def is_short(id: str) -> bool:
    """Whether the id of a pending, or of a call, is one that releases before have made."""
    return len(id.rpartition("_")[2]) == _SHORT


@lru_cache(maxsize=4096)
def call_prefix(run_id: str) -> str:
    """How the ids of a run's pendings and tool calls begin. The rest is the same in every run."""
    return f"call_{_encode_base32(bytes.fromhex(run_id.replace('-', '')))}_"


@lru_cache(maxsize=4096)
def _call_suffix(path: str, n: int) -> str:
    return _encode_base32(bytes.fromhex(_digest(path, n))[:16])


def run_of_pending(id: str) -> UUID | None:
    """The run that a pending's id names, or None if `id` is not of that form. Found without an index."""
    parts = id.split("_")
    if len(parts) != 3 or parts[0] != "call" or not id.isascii():
        return None
    try:
        return UUID(bytes=base64.b32decode(parts[1].upper() + "======"))
    except ValueError:
        return None


def derive_child_run_id(run_id: str, path: str, attempt: int) -> str:
    """The id of the child run that attempt `attempt` of the step `path` starts: the same, however often it starts."""
    bits = int(_digest(run_id, path, attempt)[:32], 16)
    return str(beside(uuids.uuid_of(bits, version=8), UUID(run_id)))  # version 8 (RFC 9562): our own making


def turn_id(run_id: str, turn: int) -> str:
    """The id of a run's n-th turn. It is the `runId` of HAI and AG-UI if no client named one."""
    return f"{run_id}.{turn}"


def turn_of(id: str) -> tuple[UUID, int] | None:
    """The (run, n) that a turn's id names, or None if `id` is not of that form."""
    match = re.fullmatch(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([1-9][0-9]{0,8})", id)
    return None if match is None else (UUID(match[1]), int(match[2]))


def tool_call_id(run_id: str, path: str, n: int, *, behind: str | None = None) -> str:
    """The id of an exposed server tool's call: of the same form as a pending's, but never one.

    `behind`: the id of the gate that guards the call. A client has seen the call by then, under an id of that form."""
    make = derive_short_pending_id if behind is not None and is_short(behind) else pending_id
    return make(run_id, path + "\x00call", n)


def derive_display_call_id(run_id: str, path: str, n: int) -> str:
    """The id of the n-th call that the step `path` only shows a frontend: of the form of a pending's, but never one."""
    return pending_id(run_id, path + "\x00shown", n)


def derive_model_call_id(run_id: str, call: str, attempt: int) -> str:
    """The id of the call `call` (`research[0]/call[mail.send-1]`), as the attempt `attempt` of its answer writes it: of
    the form of a pending's. A frontend answers its call by it."""
    return pending_id(run_id, call + "\x00written", attempt)


def find_id_as_written(state: RunState, path: str) -> str | None:
    """The id that the call of the step `path` has if its model has shown it; None if no model writes this step's
    calls."""
    call = list_of(path)
    if not call.endswith("]"):
        return None
    answer = state.steps.get(f"{list_of(call)}/model")
    return None if answer is None else derive_model_call_id(state.run_id, call, answer.attempt)


def jitter(run_id: str, path: str, attempt: int) -> float:
    """A number in [0.5, 1), the same whenever it is asked for again."""
    return 0.5 + int(_digest(run_id, path, attempt)[:8], 16) / 2**33
