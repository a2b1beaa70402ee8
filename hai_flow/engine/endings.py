"""How things end: a step, its list, what is around it, up to the document and the run; and how a failure is raised.

Every consequence of an end is drawn at once. Not here: beginning anything; what may begin next is only noted, in
`ready`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition.plan import Parallel, Step, Switch
from hai_flow.engine import events as e
from hai_flow.engine.draft import RUN_END, Draft, Raised
from hai_flow.engine.ids import tool_call_id
from hai_flow.engine.retry import catching, delay

Json: TypeAlias = Any


def conclude(draft: Draft) -> None:
    """The last list has ended: the run's output, or its failure."""
    if draft.state.failure is not None:
        draft.end_turn("failed")
        draft.emit(e.RunFailed, error=draft.state.failure)
        return
    output = None
    root = draft.state.steps.get("")
    if draft.plan.output is not None and (root is None or root.status != "failed"):
        try:
            output = draft.render(draft.plan.output, None)
        except Raised as raised:
            _raise_to_document(draft, draft.error(raised.code, raised.message, ""))
            return
    complete(draft, output)


def complete(draft: Draft, output: Json) -> None:
    draft.end_turn("finished")
    draft.emit(e.RunFinished, output=output)


def finish(draft: Draft, step: Step, output: Json, /, **fields: Any) -> None:
    leave(draft, step, e.StepFinished, output=output, **fields)


def leave(draft: Draft, step: Step, kind: Callable[..., e.Event], /, **fields: Any) -> None:
    """End `step` with an event of `kind`, and whatever ends with it."""
    ready, last = _continuation(draft, step)
    draft.emit(kind, path=step.path, ready=ready, **fields)
    if last is not None:
        _list_ended(draft, last)


def _continuation(draft: Draft, step: Step) -> tuple[tuple[str, ...], Step | None]:
    """What may begin after `step`; or the step whose list has ended with it. After a `catch` list the flow goes on
    behind the step that was caught."""
    while step.next is None:
        if step.parent == "":
            return (RUN_END,), None
        if not step.body.startswith("~catch"):
            return (), step
        step = draft.plan.steps[step.parent]
    return (step.next,), None


def _list_ended(draft: Draft, last: Step) -> None:
    parent = draft.plan.steps[last.parent]
    if last.body == "~reject":
        rejected = draft.state.steps[parent.path].error
        assert rejected is not None
        fail(draft, parent, rejected)
    elif isinstance(parent.verb, Switch):
        finish(draft, parent, {"case": draft.state.steps[parent.path].case})
    else:
        _branch_ended(draft, parent, last.body)


def _branch_ended(draft: Draft, parallel: Step, branch: str) -> None:
    assert isinstance(parallel.verb, Parallel)
    draft.emit(e.BranchEnded, path=parallel.path, branch=branch)
    joined = draft.state.steps[parallel.path]
    if parallel.verb.join == "any" and joined.winner is not None:
        stop_inside(draft, parallel.path, f"branch {joined.winner} won")
        finish(draft, parallel, {"winner": joined.winner})
    elif joined.left == 0:
        finish(draft, parallel, {"winner": None})


def fail(draft: Draft, step: Step, error: e.Error, approval: Json = None) -> None:
    """The step has failed: its `catch` goes on, or the failure is raised to what is around it."""
    close_message(draft, step.path, aborted=True)
    caught = catching(step.catch, error.code)
    if caught is not None:
        number, clause = caught
        draft.emit(
            e.StepFailed,
            path=step.path,
            error=error,
            approval=approval,
            handler=f"~catch/{number}",
            ready=(clause.first,),
        )
        return
    draft.emit(e.StepFailed, path=step.path, error=error, approval=approval)
    _raise_from(draft, step, error)


def _raise_from(draft: Draft, step: Step, error: e.Error) -> None:
    if step.parent == "":
        inside_catch = step.body.startswith("~")
        _raise_to_document(draft, _replacing(draft, "", error) if inside_catch else error, inside_catch)
        return
    parent = draft.plan.steps[step.parent]
    if step.body.startswith("~"):
        _raise_out_of_handler(draft, parent, _replacing(draft, parent.path, error), step.body)
    elif isinstance(parent.verb, Parallel):
        _branch_failed(draft, parent, step.body, error)
    else:
        fail(draft, parent, error)


def _replacing(draft: Draft, path: str, error: e.Error) -> e.Error:
    """An error inside a handler replaces the one being handled, which becomes its cause: the first of all causes,
    where the error has some of its own."""
    cause = draft.state.steps[path].error if error.cause is None else _replacing(draft, path, error.cause)
    return msgspec.structs.replace(error, cause=cause)


def _raise_out_of_handler(draft: Draft, step: Step, error: e.Error, handler: str) -> None:
    if handler == "~reject":  # the step's own `catch` stands around its reject list
        fail(draft, step, error)
        return
    draft.emit(e.StepFailed, path=step.path, error=error)
    _raise_from(draft, step, error)


def _branch_failed(draft: Draft, parallel: Step, branch: str, error: e.Error) -> None:
    assert isinstance(parallel.verb, Parallel)
    if parallel.verb.join == "any":
        draft.emit(e.BranchEnded, path=parallel.path, branch=branch, failed=True)
        joined = draft.state.steps[parallel.path]
        if joined.dropped < joined.left:
            return
    stop_inside(draft, parallel.path, f"branch {branch} failed")
    fail(draft, parallel, error)


def _raise_to_document(draft: Draft, error: e.Error, inside_catch: bool = False) -> None:
    caught = None if inside_catch else catching(draft.plan.catch, error.code)
    if caught is None:
        draft.emit(e.StepFailed, path="", error=error, ready=(RUN_END,))
    else:
        number, clause = caught
        draft.emit(e.StepFailed, path="", error=error, handler=f"~catch/{number}", ready=(clause.first,))


def attempt_failed(draft: Draft, step: Step, error: e.Error, retry_after: int | None = None) -> None:
    """An attempt of an effect failed: another one after a while, or the step fails."""
    close_message(draft, step.path, aborted=True)
    if draft.state.status == "stopping":
        draft.emit(e.StepStopped, path=step.path, reason=error.message)
        return
    attempt = draft.state.attempts[step.path]
    wait = delay(
        step.retry or draft.plan.default_retry,
        draft.state.steps[step.path].failures,
        error.code,
        error.retriable,
        retry_after,
        (draft.state.run_id, step.path, attempt),
    )
    if wait is None:
        resolve_call(draft, step, None, error)
        fail(draft, step, error)
        return
    due = draft.now + wait
    draft.emit(e.StepRetried, path=step.path, attempt=attempt, error=error, due=due)
    draft.emit(e.TimerSet, path=step.path, kind="retry", due=due)


def resolve_call(draft: Draft, step: Step, output: Json, error: e.Error | None) -> None:
    if not step.expose:
        return
    id = tool_call_id(draft.state.run_id, step.path, draft.state.steps[step.path].asked - 1)
    if error is not None:
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=error.message, error=error.code)
    else:
        content = output if isinstance(output, str) else values.dumps(output).decode()
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=content)


def close_message(draft: Draft, path: str, *, aborted: bool = False) -> None:
    """End the messages that the step's attempt was streaming."""
    for id, owner in draft.state.open_messages.items():
        if owner == path:
            draft.emit(e.MessageEnded, message_id=id, aborted=aborted)


# --- stopping what is inside ------------------------------------------------------------------------------------------


def stop_inside(draft: Draft, prefix: str, reason: str, *, attempts: bool = True, around: Step | None = None) -> None:
    """Cut off everything open below `prefix` ("" = everywhere): attempts, pendings, timers, and the blocks around
    them, and around the step `around`.

    With attempts=False, effects in flight stay open with the blocks that hold them: they were told to cancel and
    report their own end.
    """
    below = prefix + "/" if prefix else ""
    state = draft.state
    open_paths = [*state.open_pendings, *(t.path for t in state.timers if t.path), *state.ready]
    if attempts:
        open_paths += state.attempts
        draft.cut = draft.cut or any(path.startswith(below) for path in state.attempts)
    leaves = {path for path in open_paths if path.startswith(below) and path != RUN_END}
    if not attempts:
        leaves -= set(state.attempts)
    for path in sorted(leaves):
        pending = draft.state.open_pendings.get(path)
        if pending is not None:
            draft.emit(e.PendingVoided, id=pending, reason=reason)
        close_message(draft, path, aborted=True)
    stopped = leaves | _blocks_around(draft, [*leaves, *([around.path] if around else [])], below)
    if not attempts:
        stopped -= _blocks_around(draft, draft.state.attempts, below)
    _stop_steps(draft, stopped, reason)


def _stop_steps(draft: Draft, paths: Iterable[str], reason: str) -> None:
    """Innermost first: a step ends before the block around it."""
    for path in sorted(paths, key=lambda path: (-path.count("/"), path)):
        draft.emit(e.StepStopped, path=path, reason=reason)


def stop_remaining(draft: Draft) -> None:
    """The blocks that stood around the last attempts of a stopping run, innermost first."""
    open_blocks = [p for p, s in draft.state.steps.items() if p and s.status in ("running", "waiting")]
    _stop_steps(draft, open_blocks, "the run is being stopped")


def _blocks_around(draft: Draft, paths: Iterable[str], below: str) -> set[str]:
    """The blocks below the prefix that are open around any of the steps."""
    blocks: set[str] = set()
    for path in paths:
        parent = draft.plan.steps[path].parent
        while parent and parent.startswith(below) and parent not in blocks:
            if draft.state.steps[parent].status == "running":
                blocks.add(parent)
            parent = draft.plan.steps[parent].parent
    return blocks
