"""Moments of a run as requests name them: by an event, by a time, by a step."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from hai_flow.api.requests.access import Access
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.store.runs.run_lists import RunRow

MOMENTS: Final = "a seq, an RFC 3339 time with its zone, or `step:` and the path of a step, which means its end"
MOMENT_CHARS_MAX: Final = 600


async def resolve_moment(access: Access, row: RunRow, text: str, name: str = "at") -> int:
    """The seq of the event that a moment means. Raises Rejected 422, which names the moments that there are."""
    if text.isascii() and text.isdecimal():
        if len(text) > 15 or int(text) > row.seq:
            raise _reject_moment(name, f"the run has {row.seq} events so far, found {text[:20]}.")
        return int(text)
    if text.startswith("step:"):
        return await access.runtime.moments.end_of_step(row.id, text.removeprefix("step:"))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        kinds = "a seq, an RFC 3339 time with its zone, or step:ID"
        raise _reject_moment(name, f"expected {kinds}, found {text[:60]!r}.")
    ms, now = instants.milliseconds(moment), access.runtime.committer.now_ms()
    began = (await access.state(row.id, 1)).at
    if not began <= ms <= now:
        range_text = f"the run began at {instants.rfc3339(began)}, and it is {instants.rfc3339(now)}"
        raise _reject_moment(name, f"{range_text}; found {text[:60]}.")
    return await access.runtime.moments.find_seq_at(row.id, row.seq, ms)


def _reject_moment(name: str, found: str) -> Rejected:
    detail = f"{name}: {found}"
    finding = {"path": f"/query/{name}", "message": detail, "code": "request.moment", "params": [name]}
    return Rejected(422, "request.invalid", detail, findings=[finding])
