"""Steps as they stand in a run: loops put the key of an iteration between the brackets of a plan's path.

`rollout[]/deploy` is a step of the plan, `rollout[api]/deploy` one of its instances. Keys are escaped (`state.escaped`)
and hold no bracket, so one is found from the other without looking anything up.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec

from hai_flow.definition.plan import CatchClause, ForEach, Iteration, Parallel, Plan, Repeat, Step, Switch, Try, Verb

_KEYS: Final = re.compile(r"\[([^\]]*)\]")


def plan_path(path: str) -> str:
    """The path in the plan of a step that stands at `path` in a run."""
    return _KEYS.sub("[]", path) if "[" in path else path


@lru_cache(maxsize=1024)
def keys_of(path: str) -> tuple[str, ...]:
    """The keys of the iterations that `path` stands in, outermost first."""
    return tuple(_KEYS.findall(path))


def standing_at(plan: Plan, path: str) -> Step:
    """The step of the plan that stands at `path`, with all its paths as they are there.

    What lies deeper, in the iterations of its own loops, keeps its empty brackets.
    """
    if "[" not in path:
        return plan.steps[path]
    step = plan.steps[plan_path(path)]
    keys = keys_of(path)
    changes: dict[str, Any] = {
        "path": path,
        "next": filled(step.next, keys),
        "parent": filled(step.parent, keys),
        "verb": _verb(step.verb, keys),
    }
    if step.catch:
        changes["catch"] = tuple(CatchClause(clause.errors, _path(clause.first, keys)) for clause in step.catch)
    if step.handlers:
        changes["handlers"] = {option: _path(first, keys) for option, first in step.handlers.items()}
    if step.finally_ is not None:
        changes["finally_"] = _path(step.finally_, keys)
    if step.undo is not None:
        changes["undo"] = _path(step.undo, keys)
    return msgspec.structs.replace(step, **changes)


def root_of(plan: Plan) -> Step:
    """The document as the step around all others: its path is ""."""
    return Step(path="", id="", verb=Try(plan.first), catch=plan.catch, finally_=plan.finally_)


def _path(path: str, keys: tuple[str, ...]) -> str:
    for key in keys:
        path = path.replace("[]", f"[{key}]", 1)
    return path


def filled(path: str | None, keys: tuple[str, ...]) -> str | None:
    """A path of the plan with the keys of a run's iterations between its brackets, as far as they go."""
    return path if path is None or "[]" not in path else _path(path, keys)


def _verb(verb: Verb, keys: tuple[str, ...]) -> Verb:
    match verb:
        case Iteration() | Try():
            return replace(verb, first=_path(verb.first, keys))
        case ForEach() | Repeat():
            return replace(verb, iteration=_path(verb.iteration, keys))
        case Switch():
            return replace(verb, cases=tuple((when, _path(first, keys)) for when, first in verb.cases))
        case Parallel():
            return replace(verb, branches=tuple((name, _path(first, keys)) for name, first in verb.branches))
        case _:
            return verb
