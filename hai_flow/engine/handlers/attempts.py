"""An effect whose attempt has failed: another attempt after a while, or the step fails."""

from __future__ import annotations

from hai_flow.definition.paths import UNDO, is_in_cleanup
from hai_flow.definition.plan import Retry, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.completion.open_steps import is_left_to_the_stop
from hai_flow.engine.completion.stopping import stop_leaf
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings import unknown_outcome
from hai_flow.engine.state.retry_policy import UNDO_RETRY, delay
from hai_flow.engine.steps import still
from hai_flow.engine.steps.tool_calls import close_message, resolve_call


def fail_attempt(draft: Draft, step: Step, error: e.Error, retry_after: int | None = None) -> None:
    """An attempt of an effect failed: another one after a while, or the step fails."""
    close_message(draft, step.path, aborted=True)
    if is_left_to_the_stop(draft, step.path):
        resolve_call(draft, step, None, error)
        stop_leaf(draft, step, error.message)
        return
    if draft.state.steps[step.path].reading:
        still.ask_without_reading(draft, step, error.message)
        return
    attempt = draft.state.steps[step.path].attempt
    failures = draft.state.steps[step.path].failures
    seed = (draft.state.run_id, step.path, attempt)
    try:
        policy = _retry_policy(draft, step)
    except Raised as raised:
        policy, error = None, draft.error(raised.code, raised.message, step.path)
    wait = delay(policy, failures, error.code, error.retriable, retry_after, seed)
    if wait is None:
        resolve_call(draft, step, None, error)
        loop.fail(draft, step, error)
        return
    if step.delivery == "asked" and error.code == "step.timeout" and not is_in_cleanup(step.path):
        # It may have happened, so it is not simply tried again.
        unknown_outcome.open_doubt(draft, step, error.message, error.data)
        return
    due = draft.now + wait
    draft.emit(e.StepRetried, path=step.path, attempt=attempt, error=error, due=due)
    draft.emit(e.TimerSet, path=step.path, kind="retry", due=due)


def _retry_policy(draft: Draft, step: Step) -> Retry | None:
    """The policy with its delays rendered. Raises `Raised`."""
    policy = step.retry
    if policy is None:
        if step.delivery == "at_most_once":
            return None
        policy = UNDO_RETRY if step.body == UNDO else draft.plan.default_retry
    if policy is None or (isinstance(policy.every, int) and isinstance(policy.max_delay, int)):
        return policy
    return Retry(
        policy.max,
        policy.errors,
        policy.backoff,
        draft.milliseconds(policy.every, step),
        draft.milliseconds(policy.max_delay, step),
        policy.jitter,
    )
