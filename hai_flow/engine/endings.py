"""How things end: a step, its list, what is around it, up to the document and the run; and how a failure is raised.

Every consequence of an end is drawn at once. Not here: beginning anything; what may begin next is only noted, in
`ready`.

The ends of one step, in their order (docs/language.md#failing):

    what is open inside is cut off -> its `finally` lists run -> finished steps inside are undone, if the step is the
    scope of an undo and has failed -> its `catch` -> its `finally` -> the list it stands in goes on, or the failure is
    raised to what is around it.

Wherever something has to run first (a `finally`, an `undo`), the state says what the step waits for: `handler` is the
list that goes on, `ending` is how it will end once nothing is open inside. The document is a step like any other: its
path is "".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition import paths
from hai_flow.definition.paths import FINALLY, REJECT, UNDO, depth, in_cleanup, is_inside
from hai_flow.definition.plan import Call, ForEach, Iteration, Parallel, Repeat, Retry, Run, Step, Switch, Try
from hai_flow.engine import events as e
from hai_flow.engine.draft import RUN_END, Draft, Raised
from hai_flow.engine.growing import GROWN_BEHIND
from hai_flow.engine.ids import short_pending_id, shown_call_id, tool_call_id
from hai_flow.engine.loops import next_iteration
from hai_flow.engine.retry import UNDO_RETRY, catching, delay
from hai_flow.engine.state import Ending, StepState, ToolCallState

Json: TypeAlias = Any

UNDO_FAILED = "undo.failed"
SHOWN_OUTPUT: Final = "hai.output"
"""The custom event that shows what an exposed effect gave which is no call of a tool (docs/language.md#steps)."""

SHOWN: Final = "shown"
"""The result of a call that was only shown: a history has to say that nobody waits for it."""

ABORTED: Final = "aborted"
"""The same of one whose arguments broke off."""

# --- the run ----------------------------------------------------------------------------------------------------------


def conclude(draft: Draft) -> None:
    """The last list of the document has ended: its output and its `finally`; or, behind those, the end of the run."""
    root = draft.state.steps.get("")
    if draft.state.failure is not None:
        draft.end_turn("failed")
        draft.emit(e.RunFailed, error=draft.state.failure)
    elif draft.state.undo_failed:
        _fail_document(draft)
    elif root is not None and root.status == "finished":  # its `finally` has run, or a `return` needed none
        _complete(draft, root.output)
    else:
        _conclude_output(draft, root)


def _conclude_output(draft: Draft, root: StepState | None) -> None:
    output = None
    if draft.plan.output is not None and (root is None or not root.handled):
        try:
            output = draft.render(draft.plan.output, None)
        except Raised as raised:
            fail(draft, draft.step(""), draft.error(raised.code, raised.message, ""))
            return
    if draft.plan.finally_ is None or (root is not None and root.cleaned):
        _complete(draft, output)
    else:
        _finish_document(draft, output)


def _finish_document(draft: Draft, output: Json) -> None:
    """All but the `finally` and the end of the run is over. Neither comes here: the run may be paused."""
    if draft.state.undo_failed:
        _fail_document(draft)
    elif draft.plan.finally_ is None:
        draft.emit(e.StepFinished, path="", output=output, ready=(RUN_END,))
    else:
        draft.emit(e.StepFinished, path="", output=output, handler=FINALLY, ready=(draft.plan.finally_,))


def _fail_document(draft: Draft) -> None:
    """Something that was cut off could not be undone, and nothing around it has failed by that: the run does."""
    document, root = draft.step(""), draft.state.steps.get("")
    error = undo_error(draft, "", None)
    if root is not None and root.cleaned:
        _failed_behind_finally(draft, document, error)
    else:
        fail(draft, document, error)


def _complete(draft: Draft, output: Json) -> None:
    draft.end_turn("finished")
    draft.emit(e.RunFinished, output=output)


# --- a step finishes --------------------------------------------------------------------------------------------------


def finish(draft: Draft, step: Step, output: Json, approval: Json = None) -> None:
    """The step has done its work: its `finally` goes on, or what is behind it."""
    if step.path == "":
        _finish_document(draft, output)
        return
    if step.body == UNDO:
        draft.emit(e.StepFinished, path=step.path, output=output)
        undo_finished(draft, step)
        return
    fields: dict[str, Any] = {"path": step.path, "output": output, "approval": approval}
    fields["undoable"] = step.undo is not None
    if _left_to_the_stop(draft, step.path):
        draft.emit(e.StepFinished, **fields)
        note_finally(draft, step)
        return
    if step.finally_ is not None:
        draft.emit(e.StepFinished, handler=FINALLY, ready=(step.finally_,), **fields)
        return
    ready, last = _behind(draft, step)
    draft.emit(e.StepFinished, ready=ready, **fields)
    _after(draft, last)


def skip(draft: Draft, step: Step) -> None:
    """The step's `if` is false: nothing inside it exists."""
    ready, last = _behind(draft, step)
    draft.emit(e.StepSkipped, path=step.path, ready=ready)
    _after(draft, last)


def _after(draft: Draft, last: Step | None) -> None:
    if last is not None:
        _list_ended(draft, last)


def _behind(draft: Draft, step: Step) -> tuple[tuple[str, ...], Step | None]:
    """What may begin behind `step`; or the step whose list has ended with it. Behind a list that handled something
    the flow goes on behind the step that it belongs to."""
    while True:
        following = _first_not_done(draft, step.next)
        if _is_ending(draft, step.parent):
            return (), step
        if following is not None:
            return (following,), None
        if step.body != FINALLY and not paths.is_catch(step.body):
            return ((RUN_END,), None) if step.parent == "" and step.body == "" else ((), step)
        owner = draft.step(step.parent)
        if _left_to_the_stop(draft, owner.path) or (paths.is_catch(step.body) and owner.finally_ is not None):
            return (), step
        if not _goes_on(draft, owner):
            return (), step
        if owner.path == "":
            return (RUN_END,), None
        if isinstance(owner.verb, Iteration):
            return (), step
        step = owner


def _first_not_done(draft: Draft, path: str | None) -> str | None:
    """The first step from `path` on that is not done. After a Retry there may be some that are, behind one that was
    undone."""
    while path is not None:
        known = draft.state.steps.get(path)
        done = known is not None and (known.status in ("finished", "skipped") or known.handled)
        if not done or has_undone_inside(draft, draft.step(path)):
            return path
        path = draft.step(path).next
    return None


def has_undone_inside(draft: Draft, step: Step) -> bool:
    """Whether something inside the step was undone, and has to run again since the last Retry."""
    return any(is_inside(each, step.path) for each in draft.state.redo)


def _goes_on(draft: Draft, step: Step) -> bool:
    """Whether the flow goes on behind a step whose last handler has ended."""
    known = draft.state.steps[step.path]
    return known.status in ("finished", "skipped") or known.handled


def _left_to_the_stop(draft: Draft, path: str) -> bool:
    """Whether the run is being stopped, and looks for itself what comes behind the step (`stop_on`)."""
    return draft.state.status == "stopping" and not in_cleanup(path)


def _is_ending(draft: Draft, path: str) -> bool:
    known = draft.state.steps.get(path)
    return known is not None and known.ending is not None


def _list_ended(draft: Draft, last: Step) -> None:
    """The list that ends with `last` has nothing left to do."""
    owner = draft.step(last.parent)
    if _is_ending(draft, owner.path):
        _settle(draft, owner)
    elif paths.is_handler(last.body):
        _handler_ended(draft, owner, last.body)
    elif isinstance(owner.verb, Switch):
        finish(draft, owner, {"case": draft.state.steps[owner.path].case})
    elif isinstance(owner.verb, Try):
        finish(draft, owner, None)
    elif isinstance(owner.verb, Iteration):
        iteration_done(draft, owner)
    else:
        _branch_ended(draft, owner, last.body)


def _handler_ended(draft: Draft, owner: Step, body: str) -> None:
    known = draft.state.steps[owner.path]
    if body == FINALLY:
        _finally_ended(draft, owner)
    elif paths.is_catch(body):
        assert owner.finally_ is not None, "without a finally the flow goes on behind the step"
        draft.emit(e.HandlerStarted, path=owner.path, handler=FINALLY, ready=(owner.finally_,))
    elif body == REJECT:
        assert known.error is not None
        fail(draft, owner, known.error)
    else:
        _option_handled(draft, owner)


def _finally_ended(draft: Draft, owner: Step) -> None:
    """The step's `finally` has run and the flow does not go on behind it: what it interrupted goes on."""
    known = draft.state.steps[owner.path]
    if _left_to_the_stop(draft, owner.path):
        return
    if known.status == "failed" and not known.handled:
        assert known.error is not None
        _raise_from(draft, owner, known.error)
    elif owner.path and _is_ending(draft, owner.parent):
        _settle(draft, draft.step(owner.parent))
    elif _goes_on(draft, owner) and owner.path:
        _, last = _behind(draft, owner)
        _after(draft, last)


def _option_handled(draft: Draft, step: Step) -> None:
    """The handler of an option of the author's own has ended: in a `repeat` the rest of the iteration is skipped."""
    end(draft, iteration_around(draft, step), Ending("next", reason="the rest of the iteration is skipped"), of=step)


def iteration_around(draft: Draft, step: Step) -> Step:
    """The innermost iteration that the step is part of."""
    around = step
    while around.path and not isinstance(around.verb, Iteration):
        around = draft.step(around.parent)
    assert around.path, "only what stands in a loop leaves an iteration"
    return around


def _branch_ended(draft: Draft, parallel: Step, branch: str) -> None:
    assert isinstance(parallel.verb, Parallel)
    draft.emit(e.BranchEnded, path=parallel.path, branch=branch)
    joined, wanted = draft.state.steps[parallel.path], parallel.verb.wanted
    won = _finished_branches(draft, parallel, joined)[:wanted]
    if wanted is not None and len(won) >= wanted:
        output = {"winner": won[0]} if parallel.verb.join == "any" else {"winners": won}
        end(draft, parallel, Ending("finished", output, reason=f"branch {', '.join(won)} won"))
    elif joined.left == 0:
        finish(draft, parallel, {"winner": None})


def _finished_branches(draft: Draft, parallel: Step, joined: StepState) -> list[str]:
    """The branches that have finished, the first first; not those that run again since a Retry."""
    return [name for name in joined.winners if not is_open_inside(draft, paths.inside(parallel.path, name))]


# --- a step fails -----------------------------------------------------------------------------------------------------


def fail(draft: Draft, step: Step, error: e.Error, approval: Json = None) -> None:
    """The step has failed, and nothing is open inside it: undo, `catch`, `finally`, or the failure is raised."""
    close_message(draft, step.path, aborted=True)
    undo = next_undo(draft, step.path) if _is_undo_scope(draft, step) else None
    if undo is not None:
        draft.emit(e.StepFailed, path=step.path, error=error, approval=approval, handler=UNDO, ready=(undo,))
        _stop_others(draft, step, error)
        return
    _handle(draft, step, error, approval)


def _stop_others(draft: Draft, step: Step, error: e.Error) -> None:
    """An item has failed and is being rolled back. Unless it is isolated, the others stop at once."""
    if not isinstance(step.verb, Iteration):
        return
    loop = draft.step(step.parent)
    if isinstance(loop.verb, ForEach) and not _is_isolated(loop.verb, error) and not _is_ending(draft, loop.path):
        end(draft, loop, Ending("failed", error=error, reason=f"{step.path} failed"))


def _handle(draft: Draft, step: Step, error: e.Error, approval: Json = None, *, told: bool = False) -> None:
    """What comes behind the undo of a failed step. `told`: an event has said already that it failed."""
    known = draft.state.steps.get(step.path)
    cleaned = known is not None and known.cleaned and told
    over = cleaned or (known is not None and known.caught and told)
    caught = None if over else catching(step.catch, error.code)
    handler, ready = None, ()
    if caught is not None:
        handler, ready = paths.catch(caught[0]), (caught[1].first,)
    elif step.finally_ is not None and not cleaned:
        handler, ready = FINALLY, (step.finally_,)
    if handler is not None and told:
        draft.emit(e.HandlerStarted, path=step.path, handler=handler, ready=ready)
    elif handler is not None:
        draft.emit(e.StepFailed, path=step.path, error=error, approval=approval, handler=handler, ready=ready)
    else:
        if step.path and not told and not isinstance(step.verb, Iteration):
            draft.emit(e.StepFailed, path=step.path, error=error, approval=approval)
        _raise_from(draft, step, error)


def _raise_from(draft: Draft, step: Step, error: e.Error) -> None:
    if step.path == "":
        if draft.state.undo_failed and error.code != UNDO_FAILED:
            error = undo_error(draft, "", error)
        draft.emit(e.StepFailed, path="", error=error, ready=(RUN_END,))
        return
    owner = draft.step(step.parent)
    if isinstance(step.verb, Iteration):
        _iteration_failed(draft, step, error)
    elif step.body == UNDO:  # the others go on, also where they are being cut off
        _undo_ended(draft, owner)
    elif _is_ending(draft, owner.path):  # it is being cut off: nobody asks why something in it failed
        _settle(draft, owner)
    elif paths.is_handler(step.body):
        _raise_out_of_handler(draft, owner, error, step.body)
    elif isinstance(owner.verb, Parallel):
        _branch_failed(draft, owner, step.body, error)
    else:
        fail(draft, owner, error)


def _raise_out_of_handler(draft: Draft, owner: Step, error: e.Error, handler: str) -> None:
    if _left_to_the_stop(draft, owner.path):
        return
    known = draft.state.steps[owner.path]
    if handler == FINALLY:
        if known.status == "failed" and not known.handled:
            assert known.error is not None
            _raise_from(draft, owner, known.error)  # an earlier error stands
        elif known.status == "stopped":
            _finally_ended(draft, owner)
        else:
            _failed_behind_finally(draft, owner, error)
    elif paths.is_catch(handler):
        replaced = _replacing(draft, owner.path, error)
        undo = next_undo(draft, owner.path)  # of what the `catch` has done
        if undo is not None:
            draft.emit(e.StepFailed, path=owner.path, error=replaced, handler=UNDO, ready=(undo,))
        elif owner.finally_ is None:
            if owner.path:
                draft.emit(e.StepFailed, path=owner.path, error=replaced)
            _raise_from(draft, owner, replaced)
        else:
            draft.emit(e.StepFailed, path=owner.path, error=replaced, handler=FINALLY, ready=(owner.finally_,))
    elif handler == REJECT:  # the step's own `catch` stands around its reject list
        fail(draft, owner, _replacing(draft, owner.path, error))
    else:
        fail(draft, owner, error)


def _failed_behind_finally(draft: Draft, owner: Step, error: e.Error) -> None:
    """A step that had finished fails by its own `finally`: what it did is undone, and no `catch` of it is asked."""
    undo = next_undo(draft, owner.path) if _is_undo_scope(draft, owner) else None
    if undo is not None:
        draft.emit(e.StepFailed, path=owner.path, error=error, handler=UNDO, ready=(undo,))
        return
    if owner.path:
        draft.emit(e.StepFailed, path=owner.path, error=error)
    _raise_from(draft, owner, error)


def _replacing(draft: Draft, path: str, error: e.Error) -> e.Error:
    """An error inside a handler replaces the one being handled, which becomes its cause: the first of all causes,
    where the error has some of its own."""
    cause = draft.state.steps[path].error if error.cause is None else _replacing(draft, path, error.cause)
    return msgspec.structs.replace(error, cause=cause)


def _branch_failed(draft: Draft, parallel: Step, branch: str, error: e.Error) -> None:
    assert isinstance(parallel.verb, Parallel)
    joined, wanted = draft.state.steps[parallel.path], parallel.verb.wanted
    if wanted is not None and len(joined.winners) < wanted and error.code != UNDO_FAILED:
        draft.emit(e.BranchEnded, path=parallel.path, branch=branch, failed=True)
        joined = draft.state.steps[parallel.path]
        finished = len(_finished_branches(draft, parallel, joined))
        if finished + joined.left - joined.dropped >= wanted:
            return
    end(draft, parallel, Ending("failed", error=error, reason=f"branch {branch} failed"))


def attempt_failed(draft: Draft, step: Step, error: e.Error, retry_after: int | None = None) -> None:
    """An attempt of an effect failed: another one after a while, or the step fails."""
    close_message(draft, step.path, aborted=True)
    if _left_to_the_stop(draft, step.path):
        resolve_call(draft, step, None, error)
        stop_leaf(draft, step, error.message)
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
        fail(draft, step, error)
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


def resolve_call(draft: Draft, step: Step, output: Json, error: e.Error | None) -> None:
    """Show the result of an exposed call to the frontend that saw it begin, or what another exposed effect gave."""
    known = draft.state.steps[step.path]
    if not step.expose:
        return
    if not isinstance(step.verb, Call):
        if error is None:
            arguments = None if known.args is None else values.loads(known.args)
            shown = {"path": step.path, "arguments": arguments, "output": output}
            draft.emit(e.CustomEmitted, path=step.path, name=SHOWN_OUTPUT, value=shown)
        return
    call = _last_call_shown(draft, step.path, known.asked)
    if call is None:
        return
    id = call.id
    if error is not None:
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=error.message, error=error.code)
    else:
        content = output if isinstance(output, str) else values.dumps(output).decode()
        draft.emit(e.ToolCallResolved, tool_call_id=id, content=content)


def _last_call_shown(draft: Draft, path: str, asked: int) -> ToolCallState | None:
    """The last call that the step has shown, whichever release did. Each question that it has asked has a number, too:
    the one of a call in doubt comes behind the call."""
    run_id, calls = draft.state.run_id, draft.state.tool_calls
    for n in reversed(range(asked)):
        call = calls.get(tool_call_id(run_id, path, n)) or calls.get(
            tool_call_id(run_id, path, n, behind=short_pending_id(run_id, path, n))
        )
        if call is not None:
            return call
    return None


def close_message(draft: Draft, path: str, *, aborted: bool = False) -> None:
    """End the messages, and the call, that the step's attempt was streaming."""
    for id, owner in sorted(draft.state.open_messages.items()):  # a map of the state has an order of chance
        if owner == path:
            draft.emit(e.MessageEnded, message_id=id, aborted=aborted)
    verb = draft.step(path).verb
    if isinstance(verb, Call) and verb.into is not None:
        _close_growing_call(draft, path, aborted)


def _close_growing_call(draft: Draft, path: str, aborted: bool) -> None:
    known = draft.state.steps.get(path)
    id = shown_call_id(draft.state.run_id, path, known.attempt if known is not None else 0)
    call = draft.state.tool_calls.get(id)
    if call is None or not call.open:
        return
    draft.emit(e.ToolCallArgsChunk, tool_call_id=id, content=GROWN_BEHIND)
    draft.emit(e.ToolCallEnded, tool_call_id=id)
    result = ABORTED if aborted else SHOWN
    draft.emit(e.ToolCallResolved, tool_call_id=id, content=result, error=ABORTED if aborted else None)


# --- undoing ----------------------------------------------------------------------------------------------------------


def next_undo(draft: Draft, scope: str) -> str | None:
    """The path of the `undo` of the step inside `scope` that finished last, of those that have one."""
    undoables = draft.state.undoables
    if not undoables:
        return None
    inside = [(seq, path) for path, seq in undoables.items() if _is_undone_by(path, scope)]
    return paths.undo_of(max(inside)[1]) if inside else None


def _is_undone_by(path: str, scope: str) -> bool:
    """Whether an error that leaves `scope` undoes the step: not what a `finally` in there has done."""
    return path == scope or (is_inside(path, scope) and not in_cleanup(path, scope))


def _is_undo_scope(draft: Draft, step: Step) -> bool:
    """Whether an error that leaves the step undoes what finished inside it."""
    verb = step.verb
    if isinstance(verb, Iteration):
        loop = draft.step(step.parent).verb
        return isinstance(loop, ForEach) and loop.rollback == "item"
    if isinstance(verb, ForEach):
        return verb.rollback == "all" or bool(step.catch)
    return isinstance(verb, Try) or bool(step.catch)


def undo_finished(draft: Draft, undo: Step) -> None:
    """The `undo` step has done its work: what it belongs to is undone, and the next one's turn has come."""
    owner = draft.step(undo.parent)
    following = _following_undo(draft, owner)
    ready = () if following is None else (following,)
    draft.emit(e.StepUndone, path=owner.path, ready=ready)
    if following is None:
        _undo_over(draft, owner)


def _undo_ended(draft: Draft, owner: Step) -> None:
    """The `undo` of `owner` has failed for good; the others go on."""
    scope = _undoing_scope(draft, owner)
    following = next_undo(draft, scope.path) if scope is not None else None
    if scope is not None and following is not None:
        draft.emit(e.HandlerStarted, path=scope.path, handler=UNDO, ready=(following,))
    elif scope is not None:
        _undo_over(draft, owner)


def _following_undo(draft: Draft, owner: Step) -> str | None:
    scope = _undoing_scope(draft, owner)
    if scope is None:
        return None
    undoables = draft.state.undoables
    inside = [(seq, p) for p, seq in undoables.items() if p != owner.path and _is_undone_by(p, scope.path)]
    return paths.undo_of(max(inside)[1]) if inside else None


def _undoing_scope(draft: Draft, owner: Step) -> Step | None:
    """The step whose undo goes on: `owner` itself if its own `finally` failed, else the innermost around it; an outer
    one waits for that."""
    step = owner
    while True:
        known = draft.state.steps.get(step.path)
        if known is not None and known.handler == UNDO:
            return step
        if not step.path:
            return None
        step = draft.step(step.parent)


def _undo_over(draft: Draft, owner: Step) -> None:
    """Everything inside the scope is undone, or could not be."""
    scope = _undoing_scope(draft, owner)
    if scope is None or _left_to_the_stop(draft, scope.path):
        return
    known = draft.state.steps[scope.path]
    failed = [path for path in draft.state.undo_failed if is_inside(path, scope.path)]
    if failed:
        fail_undo(draft, scope, known.error)
    elif known.status == "stopped":
        if _stopped(draft, scope):
            _settle_around(draft, scope)
    else:
        assert known.error is not None
        _handle(draft, scope, known.error, told=True)


def fail_undo(draft: Draft, scope: Step, cause: e.Error | None) -> None:
    """Some of it could not be undone: no `catch` takes that, and the run ends with it."""
    error = undo_error(draft, scope.path, cause)
    if scope.finally_ is not None and not draft.state.steps[scope.path].cleaned:
        draft.emit(e.StepFailed, path=scope.path, error=error, handler=FINALLY, ready=(scope.finally_,))
        return
    if scope.path and not isinstance(scope.verb, Iteration):
        draft.emit(e.StepFailed, path=scope.path, error=error)
    _raise_from(draft, scope, error)


def undo_error(draft: Draft, path: str, cause: e.Error | None) -> e.Error:
    """What a run ends with when something could not be undone (docs/language.md#failing)."""
    failed, undone = draft.state.undo_failed, draft.state.undone
    message = f"Could not undo {', '.join(failed)}."
    error = draft.error(UNDO_FAILED, message, path, {"undone": list(undone), "failed": list(failed)})
    return msgspec.structs.replace(error, cause=cause)


# --- iterations -------------------------------------------------------------------------------------------------------


def iteration_done(draft: Draft, iteration: Step) -> None:
    """The list of an iteration has ended."""
    verb = iteration.verb
    assert isinstance(verb, Iteration)
    output = None
    if verb.output is not None:
        try:
            output = draft.render(verb.output, iteration)
        except Raised as raised:
            fail(draft, iteration, draft.error(raised.code, raised.message, iteration.path))
            return
    _end_iteration(draft, iteration, output)


def _end_iteration(draft: Draft, iteration: Step, output: Json) -> None:
    loop = draft.step(iteration.parent)
    if isinstance(loop.verb, Repeat):
        _repeat_on(draft, loop, loop.verb, iteration)
        return
    following = _next_of(draft, loop)
    draft.emit(e.IterationEnded, path=iteration.path, status="finished", output=output, ready=following)
    _loop_on(draft, loop)


def _leave_loop(draft: Draft, iteration: Step) -> None:
    """A `break` in the iteration, in which nothing is open any more: it has finished, and so has its loop."""
    loop = draft.step(iteration.parent)
    draft.emit(e.IterationEnded, path=iteration.path, status="finished")
    known = draft.state.steps[loop.path]
    if known.ending is not None:  # the loop is being cut off as a whole
        _settle(draft, loop)
        return
    assert known.loop is not None
    count = known.loop.last + 1 - known.loop.begun
    output = {"count": count} if isinstance(loop.verb, Repeat) else None
    end(draft, loop, Ending("finished", output, reason=f"{iteration.path} left the loop"))


def _next_of(draft: Draft, loop: Step) -> tuple[str, ...]:
    known = draft.state.steps[loop.path]
    assert known.loop is not None
    return () if known.ending is not None else next_iteration(loop.path, known.loop)


def _loop_on(draft: Draft, loop: Step) -> None:
    """An iteration of the `for_each` has ended: perhaps it was the last."""
    known = draft.state.steps[loop.path]
    assert known.loop is not None
    if known.ending is not None:
        _settle(draft, loop)
    elif known.loop.ended == len(known.loop.keys):
        finish(draft, loop, None)


def _iteration_failed(draft: Draft, iteration: Step, error: e.Error) -> None:
    loop = draft.step(iteration.parent)
    verb = loop.verb
    if isinstance(verb, Repeat):
        draft.emit(e.IterationEnded, path=iteration.path, status="failed", error=error)
        if _is_ending(draft, loop.path):
            _settle(draft, loop)
        else:
            fail(draft, loop, error)
        return
    assert isinstance(verb, ForEach)
    isolated = _is_isolated(verb, error)
    following = _next_of(draft, loop) if isolated else ()
    draft.emit(e.IterationEnded, path=iteration.path, status="failed", error=error, ready=following)
    if isolated or _is_ending(draft, loop.path):
        _loop_on(draft, loop)
    else:
        end(draft, loop, Ending("failed", error=error, reason=f"{iteration.path} failed"))


def _is_isolated(verb: ForEach, error: e.Error) -> bool:
    """Whether the failure of one item is data, and the others go on."""
    return verb.on_failure == "isolate" and verb.rollback != "all" and error.code != UNDO_FAILED


def _repeat_on(draft: Draft, loop: Step, verb: Repeat, iteration: Step) -> None:
    """An iteration of the `repeat` is over: the next one, or its end."""
    known = draft.state.steps[loop.path].loop
    assert known is not None
    count = known.last + 1 - known.begun
    try:
        again = wants_more(draft, loop, verb, iteration, count)
    except Raised as raised:
        fail(draft, iteration, draft.error(raised.code, raised.message, loop.path))
        return
    exhausted = again and count >= verb.max
    ready = (paths.iteration(loop.path, known.last + 1),) if again and not exhausted else ()
    draft.emit(e.IterationEnded, path=iteration.path, status="finished", ready=ready)
    if exhausted and (verb.while_ is not None or verb.until is not None):
        message = f"After {count} iterations its condition still asks for more."
        fail(draft, loop, draft.error("repeat.exhausted", message, loop.path))
    elif not ready:
        finish(draft, loop, {"count": count})


def wants_more(draft: Draft, loop: Step, verb: Repeat, reader: Step, count: int) -> bool:
    """Whether a `repeat` asks for a further iteration after `count` of them. Raises `Raised`."""
    if verb.while_ is not None:
        return draft.truth(verb.while_, reader, index=count)
    if verb.until is not None and count:
        return not draft.truth(verb.until, reader)
    return count < verb.max


# --- cutting off ------------------------------------------------------------------------------------------------------


def end(draft: Draft, step: Step, ending: Ending, *, of: Step | None = None) -> None:
    """End `step` as `ending` says. What is open inside it is cut off first; its `finally` lists run before.

    `of`: a step inside that has ended itself, around which blocks are open with nothing left in them.
    """
    undone = ending.outcome not in ("finished", "next", "left")  # a `return` and a won race undo nothing
    cut(draft, step.path, ending.reason, around=() if of is None else (of.path,), undone=undone)
    if is_open_inside(draft, step.path):
        draft.emit(
            e.StepEnding,
            path=step.path,
            outcome=ending.outcome,
            output=ending.output,
            error=ending.error,
            reason=ending.reason,
        )
    else:
        _apply(draft, step, ending)


def _apply(draft: Draft, step: Step, ending: Ending) -> None:
    if ending.outcome == "next":
        _end_iteration(draft, step, None)
    elif ending.outcome == "left":
        _leave_loop(draft, step)
    elif ending.outcome == "failed":
        assert ending.error is not None
        fail(draft, step, ending.error)
    elif ending.outcome in ("stopped", "abandoned"):
        if _stopped(draft, step, ending.reason, undone=ending.outcome == "stopped"):
            _settle_around(draft, step)
    else:
        finish(draft, step, ending.output)


def _settle(draft: Draft, step: Step) -> None:
    """Something inside a step that is ending has ended: perhaps that was the last."""
    ending = draft.state.steps[step.path].ending
    if _left_to_the_stop(draft, step.path) or ending is None or is_open_inside(draft, step.path):
        return
    _apply(draft, step, ending)


def _settle_around(draft: Draft, step: Step) -> None:
    around = draft.step(step.parent)
    if step.path and _is_ending(draft, around.path):
        _settle(draft, around)


def cut(draft: Draft, scope: str, reason: str, *, around: Iterable[str] = (), undone: bool = True) -> None:
    """Cut off everything open inside `scope` ("" = everywhere), and the work of the step `scope` itself: attempts,
    pendings, timers, and the blocks around them. What runs in a `finally` or an `undo` goes on; blocks that stand
    around such, and those whose `finally` runs now, end behind it.

    `undone`: the items of a `for_each` that are cut off are undone, where it says so.
    """
    leaves = [path for path in open_leaves(draft) if path == scope or is_inside(path, scope)]
    gone = [path for path in leaves if not in_cleanup(path, scope)]
    for path in gone:
        _drop_work(draft, path, reason)
    blocks = _blocks_around(draft, [*leaves, *around], scope)
    for path in sorted({*gone, *blocks} - {scope}, key=lambda path: (-depth(path), path)):
        if is_open_inside(draft, path):
            if not _is_ending(draft, path):
                outcome = "stopped" if undone else "abandoned"
                draft.emit(e.StepEnding, path=path, outcome=outcome, reason=reason)
        else:
            _stopped(draft, draft.step(path), reason, undone=undone)


def cut_everything(draft: Draft, reason: str) -> None:
    """Cut off all of the run at once; nothing runs any more."""
    leaves = open_leaves(draft)
    for path in leaves:
        _drop_work(draft, path, reason)
    # blocks in which nothing is open are open too, while a stop goes on around them
    blocks = {path for path, step in draft.state.steps.items() if path and step.status in ("running", "waiting")}
    blocks |= _blocks_around(draft, leaves, "")
    for path in sorted({*leaves, *blocks}, key=lambda path: (-depth(path), path)):
        _note_stopped(draft, draft.step(path), reason)


def open_leaves(draft: Draft) -> list[str]:
    """The steps that do, wait for, or may begin something."""
    state = draft.state
    found = dict.fromkeys((*state.attempts, *state.open_pendings, *(t.path for t in state.timers), *state.ready))
    found.update(dict.fromkeys(draft.waiting_elsewhere()))
    found.pop("", None)
    return sorted(found)


def is_open_inside(draft: Draft, scope: str) -> bool:
    """Whether anything inside the step still does, waits for, or may begin something."""
    state = draft.state
    return (
        any(is_inside(path, scope) for path in state.attempts)
        or any(is_inside(path, scope) for path in state.ready if path)
        or any(is_inside(path, scope) for path in state.open_pendings)
        or any(is_inside(timer.path, scope) for timer in state.timers if timer.path)
        or any(is_inside(path, scope) for path in draft.waiting_elsewhere())
    )


def _drop_work(draft: Draft, path: str, reason: str) -> None:
    pending = draft.state.open_pendings.get(path)
    if pending is not None:
        draft.emit(e.PendingVoided, id=pending, reason=reason)
    draft.cut = draft.cut or path in draft.state.attempts
    close_message(draft, path, aborted=True)
    if path in draft.state.children:
        tell_child(draft, path, "stop", draft.state.stop_by or "system", reason)


def tell_child(draft: Draft, path: str, what: str, by: str, reason: str) -> None:
    """Tell the child run of the step at `path` what to do, unless it was started to be left alone."""
    verb = draft.step(path).verb
    assert isinstance(verb, Run)
    if not verb.detach:
        draft.send(what, draft.state.children[path], {"by": by, "reason": reason})


def _blocks_around(draft: Draft, open_paths: Iterable[str], scope: str) -> set[str]:
    """The blocks inside `scope` that are open around any of the steps."""
    blocks: set[str] = set()
    for path in open_paths:
        step, is_undo = draft.step(path), paths.is_undo(path)
        while step.parent and is_inside(step.parent, scope):
            around = draft.step(step.parent)
            known = draft.state.steps.get(around.path)
            handling = (step.body, UNDO) if is_undo else (step.body,)
            if known is not None and (known.status in ("running", "waiting") or known.handler in handling):
                blocks.add(around.path)
            step = around
    return blocks


def _stopped(draft: Draft, step: Step, reason: str = "", *, undone: bool = True) -> bool:
    """A step that was cut off has nothing open inside: it is undone (an item, where `undone`), its `finally` runs, or
    it is over.

    Returns whether it is over.
    """
    known = draft.state.steps.get(step.path)
    handler = None if known is None else known.handler
    if undone and handler is None and isinstance(step.verb, Iteration) and _is_undo_scope(draft, step):
        undo = next_undo(draft, step.path)
        if undo is not None:
            draft.emit(e.StepStopped, path=step.path, reason=reason, handler=UNDO, ready=(undo,))
            return False
    if step.finally_ is not None and known is not None and handler != FINALLY and _has_begun(draft, step.path):
        if known.status in ("running", "waiting"):
            draft.emit(e.StepStopped, path=step.path, reason=reason, handler=FINALLY, ready=(step.finally_,))
        else:
            draft.emit(e.HandlerStarted, path=step.path, handler=FINALLY, ready=(step.finally_,))
        return False
    _note_stopped(draft, step, reason)
    return True


def _has_begun(draft: Draft, path: str) -> bool:
    """Whether the step has begun, and since the last Retry, if it is to begin again."""
    known = draft.state.steps.get(path)
    return known is not None and (known.status in ("running", "waiting") or path not in draft.state.ready)


def _note_stopped(draft: Draft, step: Step, reason: str) -> None:
    if isinstance(step.verb, Iteration):
        draft.emit(e.IterationEnded, path=step.path, status="stopped")
        return
    known = draft.state.steps.get(step.path)
    is_open = known is None or known.status in ("running", "waiting")
    if known is not None and known.ending is not None and not is_open:  # it had ended before, all but its `finally`
        draft.emit(e.HandlerStarted, path=step.path, handler=known.handler or FINALLY)
    elif known is None or is_open or known.handler is None or step.path in draft.state.ready:
        draft.emit(e.StepStopped, path=step.path, reason=reason)


# --- stopping the run -------------------------------------------------------------------------------------------------


def _is_inherited(draft: Draft, path: str) -> bool:
    """Whether the step ("" = the document) was begun before a fork of the run went on with it, whose it is now."""
    known = draft.state.steps.get(path)
    return bool(draft.state.inherited) and (not path or (known is not None and known.turn <= draft.state.inherited))


def note_finally(draft: Draft, step: Step) -> None:
    """In a run that is being stopped: the step has ended, its `finally` comes when its turn has come."""
    if step.finally_ is not None:
        draft.emit(e.StepEnding, path=step.path, outcome="stopped")


def begin_stop(draft: Draft, reason: str) -> None:
    """Cut off what people, timers and signals could still move. Effects in flight report their own end; what cleans up
    goes on, unless a fork goes on with it."""
    leaves = [
        path
        for path in open_leaves(draft)
        if path not in draft.state.attempts and (not in_cleanup(path) or _is_inherited(draft, path))
    ]
    for path in leaves:
        _drop_work(draft, path, reason)
    for path in leaves:
        stop_leaf(draft, draft.step(path), reason)


def stop_leaf(draft: Draft, step: Step, reason: str) -> None:
    """In a run that is being stopped: an effect, a question or a timer is over; its `finally` comes in its turn."""
    begun = _has_begun(draft, step.path)
    _note_stopped(draft, step, reason)
    if begun:
        note_finally(draft, step)


def cut_attempts(draft: Draft, reason: str) -> None:
    """The grace period is over: effects that were told to cancel and have not ended are cut off."""
    for path in sorted(draft.state.attempts):
        if not in_cleanup(path):
            _drop_work(draft, path, reason)
            stop_leaf(draft, draft.step(path), reason)


def stop_on(draft: Draft) -> None:
    """Nothing is in flight in a run that is being stopped: the next undo, then the next `finally`, inside out; then
    its end."""
    undo = next_undo(draft, "")
    if undo is not None:
        draft.emit(e.StepStopped, path="", reason=draft.state.stop_reason, handler=UNDO, ready=(undo,))
        return
    due = sorted(_open_steps(draft), key=lambda path: (-depth(path), path))
    for path in due:
        step, known = draft.step(path), draft.state.steps[path]
        if step.finally_ is not None and known.handler != FINALLY and not _is_inherited(draft, path):
            draft.emit(e.HandlerStarted, path=path, handler=FINALLY, ready=(step.finally_,))
            return
        if known.status in ("running", "waiting") or known.ending is not None:
            _note_stopped(draft, step, "the run is being stopped")
    root = draft.state.steps.get("")
    if draft.plan.finally_ is not None and (root is None or not root.cleaned) and not _is_inherited(draft, ""):
        draft.emit(
            e.StepStopped, path="", reason=draft.state.stop_reason, handler=FINALLY, ready=(draft.plan.finally_,)
        )
        return
    end_stop(draft)


def end_stop(draft: Draft) -> None:
    """The stop is over: the run is stopped; or it has failed, if something could not be undone."""
    if draft.state.undo_failed:
        draft.end_turn("failed")
        draft.emit(e.RunFailed, error=undo_error(draft, "", None))
    else:
        draft.end_turn("stopped")
        draft.emit(e.RunStopped, by=draft.state.stop_by, reason=draft.state.stop_reason)


def _open_steps(draft: Draft) -> Iterator[str]:
    """The steps that are open, and those in which a handler was at work behind which their `finally` comes."""
    for path, known in draft.state.steps.items():
        if not path:
            continue
        owes_finally = known.handler is not None and not known.cleaned and draft.step(path).finally_ is not None
        if known.status in ("running", "waiting") or known.ending is not None or owes_finally:
            yield path
