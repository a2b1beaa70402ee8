"""Steps as they stand in a run: loops put the key of an iteration between the brackets of a plan's path.

`rollout[]/deploy` is a step of the plan, `rollout[api]/deploy` one of its instances. How paths are
written is in `definition/paths`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hai_flow.definition.paths import function_of_key, keys_of, plan_path, with_keys, with_keys_or_none
from hai_flow.definition.plan import ANY_FUNCTION, BLOCKS, Call, CatchClause, Plan, Step, Try, Verb

RESOLVED_MAX: Final = 1024  # of one plan


def resolve_step(plan: Plan, path: str) -> Step:
    """The step of the plan that stands at `path`, with all its paths as they are there.

    A path that lies deeper, in the iterations of its own loops, keeps its empty brackets."""
    resolved = plan.steps.get(path) or plan.resolved.get(path)
    if resolved is None:
        if len(plan.resolved) >= RESOLVED_MAX:
            plan.resolved.clear()
        resolved = plan.resolved[path] = _resolve(plan, path)
    return resolved


def _resolve(plan: Plan, path: str) -> Step:
    step = plan.steps[plan_path(path)]
    keys = keys_of(path)
    changes: dict[str, Any] = {
        "path": path,
        "next": with_keys_or_none(step.next, keys),
        "parent": with_keys_or_none(step.parent, keys),
        "verb": _resolve_verb(step.verb, keys),
        "catch": tuple(CatchClause(clause.errors, with_keys(clause.first, keys)) for clause in step.catch),
        "handlers": {option: with_keys(first, keys) for option, first in step.handlers.items()},
        "finally_": with_keys_or_none(step.finally_, keys),
        "undo": with_keys_or_none(step.undo, keys),
    }
    return msgspec.structs.replace(step, **changes)


def _resolve_verb(verb: Any, keys: tuple[str, ...]) -> Verb:
    if isinstance(verb, BLOCKS):
        return verb.at(keys)
    if isinstance(verb, Call) and verb.function == ANY_FUNCTION:
        return msgspec.structs.replace(verb, function=function_of_key(keys[-1]).partition(".")[2])
    return verb


def root_of(plan: Plan) -> Step:
    """The document as the step around all others: its path is ""."""
    return Step(path="", id="", verb=Try(plan.first), catch=plan.catch, finally_=plan.finally_)
