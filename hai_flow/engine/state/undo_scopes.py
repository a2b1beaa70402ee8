"""Which steps an error undoes, and in which order: the one that finished last comes first. Emits nothing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hai_flow.definition.paths import UNDO, is_in_cleanup, is_inside, undo_of
from hai_flow.definition.plan import BLOCKS as BLOCK_VERBS
from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks import block_of
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.retry_policy import UNDO_FAILED


def is_undo_scope(draft: Draft, step: Step) -> bool:
    """Whether an error that leaves the step undoes the steps that finished inside it."""
    if step.is_iteration:
        loop = draft.step(step.parent)
        return block_of(loop).undoes_items(loop)
    return bool(step.catch) or (isinstance(step.verb, BLOCK_VERBS) and block_of(step).undoes(step))


def next_undo(draft: Draft, scope: str) -> str | None:
    """The path of the `undo` of the step inside `scope` that finished last, of those that have one."""
    return _newest(draft, scope, draft.state.undoables)


def following_undo(draft: Draft, owner: Step) -> str | None:
    """The path of the `undo` whose turn comes behind that of `owner`."""
    scope = find_undoing_scope(draft, owner)
    others = (path for path in draft.state.undoables if path != owner.path)
    return None if scope is None else _newest(draft, scope.path, others)


def _newest(draft: Draft, scope: str, undoables: Iterable[str]) -> str | None:
    ends = draft.state.undoables
    if not ends:
        return None
    inside = [(ends[path], path) for path in undoables if _is_undone_by(path, scope)]
    return undo_of(max(inside)[1]) if inside else None


def _is_undone_by(path: str, scope: str) -> bool:
    """Whether an error that leaves `scope` undoes the step: not those of a `finally` in there."""
    return path == scope or (is_inside(path, scope) and not is_in_cleanup(path, scope))


def find_undoing_scope(draft: Draft, owner: Step) -> Step | None:
    """The step whose undo goes on: `owner` itself if its own `finally` failed, else the innermost around it; an outer
    one waits for that."""
    step = owner
    while True:
        step_state = draft.state.steps.get(step.path)
        if step_state is not None and step_state.handler == UNDO:
            return step
        if not step.path:
            return None
        step = draft.step(step.parent)


def build_undo_error(draft: Draft, path: str, cause: e.Error | None) -> e.Error:
    """The error of a run in which something could not be undone (docs/language.md#failing)."""
    failed, undone = draft.state.undo_failed, draft.state.undone
    message = f"Could not undo {', '.join(failed)}."
    error = draft.error(UNDO_FAILED, message, path, {"undone": list(undone), "failed": list(failed)})
    return msgspec.structs.replace(error, cause=cause)
