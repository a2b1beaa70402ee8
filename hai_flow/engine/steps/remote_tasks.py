"""A step leaves the task that it has begun at an agent of others: the agent is told by the outbox, so a stop waits for
no agent, and a process that dies forgets none."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.plan import A2ATool, Call, Step
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.ids import pending_of
from hai_flow.engine.state.state import RunState, StepState

CANCEL: Final = "cancel_remote_task"
"""The message of a run whose step has a task at an agent that nobody waits for any more."""
TRIED_FOR_MS: Final = 24 * 3_600_000  # while the agent is away
_OVER: Final = frozenset({"tool.failed", "tool.invalid_arguments", "tool.unavailable", "http.connection"})
"""The failures behind which no task is alive."""


def leave_task(draft: Draft, step: Step, code: str = "") -> None:
    """The step ends without its task, with the failure `code` where it has one."""
    verb, state = step.verb, draft.state
    if not isinstance(verb, Call) or not isinstance(verb.tool, A2ATool) or code in _OVER:
        return
    step_state, target = state.steps.get(step.path), f"{state.run_id}/{step.path}"
    if step_state is None or not step_state.attempt or _is_left_to_heir(state, step.path, step_state):
        return
    if any(message.target == target for message in draft.outbox):
        return
    body = {
        "path": step.path, "key": step_state.key, "until": draft.clock + TRIED_FOR_MS,
        "inquiry": find_last_inquiry(state, step.path),
    }  # fmt: skip
    draft.send(CANCEL, target, body)  # a target of its own: an agent that is away holds up no other message


def find_last_inquiry(state: RunState, path: str) -> str | None:
    """What the agent of the step has noted with its last question; None: it has asked nothing."""
    pendings = (pending_of(state, path, n) for n in range(state.steps[path].asked - 1, -1, -1))
    inquiry = next((each.opened.inquiry for each in pendings if each is not None and each.opened.inquiry), None)
    return None if inquiry is None else inquiry.state


def _is_left_to_heir(state: RunState, path: str, step_state: StepState) -> bool:
    """Whether a fork goes on with the step, and so with its task."""
    return state.heir is not None and (path in state.inherited_steps or step_state.turn <= state.inherited)


def list_left_to_heir(state: RunState) -> list[str]:
    """The steps that were cut off while a fork was to go on with them."""
    return sorted(
        path for path, step_state in state.steps.items()
        if path and step_state.outcome == "stopped" and _is_left_to_heir(state, path, step_state)
    )  # fmt: skip
