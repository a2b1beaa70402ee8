"""What a run replies to a command: where it stands now, or why that can't be done."""

from __future__ import annotations

from typing import Final

from hai_flow.engine.draft import Draft
from hai_flow.errors import Rejected
from hai_flow.values import Json

_GOING_ON: Final = ("resume", "retry")  # what somebody asks for who wants a run to go on


def run_outcome(draft: Draft) -> dict[str, Json]:
    return {"id": draft.state.run_id, "status": draft.state.status}


def refuse_now(draft: Draft, what: str) -> Rejected:
    status = draft.state.status
    code = "run_ended" if draft.state.ended else "run_" + status
    asks_in_vain = what in _GOING_ON and draft.state.ended
    remedy = "; a new run can go on from any of its steps (rerun, fork)" if asks_in_vain else ""
    detail = f"can't {what} a run that is {status}{remedy}."
    return Rejected(409, code, detail, winner={"status": status, "seq": draft.state.seq})


def demand_active(draft: Draft) -> None:
    if draft.state.ended:
        raise refuse_now(draft, "change")
