"""How a question stands in a plan: whether the flow comes by it, and what is performed without it.

Two versions of a workflow ask people alike if a question has the same guards in both, and nothing is performed without
it in the one that it stands in front of in the other. See `engine/pendings/passing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hai_flow.definition.diff import written
from hai_flow.definition.paths import renamed
from hai_flow.definition.plan import Call, ForEach, FrontendTool, Http, Parallel, Plan, Repeat, Run, Step, Switch
from hai_flow.values import Json


def guards_of(plan: Plan, step: Step) -> list[Json]:
    """All that decides whether the flow comes by the step, and whether it goes on behind a failure of it: conditions,
    the lists that it stands in, and clauses that catch, from the inside to the outside."""
    return [_guard(each) for each in _around(plan, step)]


def _around(plan: Plan, step: Step) -> Iterator[Step]:
    yield step
    while step.parent:
        step = plan.steps[step.parent]
        yield step


def _guard(step: Step) -> Json:
    caught = [list(clause.errors) for clause in step.catch]
    return [written(step.condition), step.body, _way_of(step), caught, sorted(step.handlers)]


def _way_of(step: Step) -> Json:
    """How a block comes by the steps inside it."""
    match step.verb:
        case Switch() as verb:
            return [None if when is None else when.source for when, _ in verb.cases]
        case Parallel() as verb:
            return verb.join
        case ForEach() as verb:
            return [written(verb.items), verb.on_failure]
        case Repeat() as verb:
            return [verb.max, written(verb.while_), written(verb.until)]
        case _:
            return None


def performed_without(old: Plan, question: Step, new: Plan, there: Step, paths: Mapping[str, str]) -> str | None:
    """A step of the new version that acts on the world and is not behind the question there, though the old one had no
    such step or had it behind the question. `there`: the question in the new version; `paths`: old -> new."""
    before = {renamed(path, paths): step for path, step in old.steps.items()}
    orders = [{path: n for n, path in enumerate(plan.steps)} for plan in (old, new)]
    for step in new.steps.values():
        if not _acts(step) or _is_behind(new, orders[1], there, step):
            continue
        was = before.get(step.path)
        if was is None or _act(was) != _act(step) or _is_behind(old, orders[0], question, was):
            return step.path
    return None


def _acts(step: Step) -> bool:
    match step.verb:
        case Call() as verb:  # what the requester's own page performs does not count
            return not isinstance(verb.tool, FrontendTool) and verb.tool.effect != "read"
        case Http() | Run():
            return True
        case _:
            return False


def _act(step: Step) -> Json:
    match step.verb:
        case Call() as verb:
            return ["call", verb.function, written(verb.tool)]
        case Http() as verb:
            return ["http", written(verb.arguments)]
        case Run() as verb:
            return ["run", verb.workflow, verb.version]
        case _:
            return None


def _is_behind(plan: Plan, order: Mapping[str, int], question: Step, step: Step) -> bool:
    """Whether the flow comes to the step through the question: it is the question, stands in what follows from its
    answer, or comes later in a list around it."""
    if any(each is question for each in _around(plan, step)):
        return True
    lists = {(each.parent, each.body): each for each in _around(plan, question)}
    for each in _around(plan, step):
        of_question = lists.get((each.parent, each.body))
        if of_question is not None:
            return of_question is not each and order[of_question.path] < order[each.path]
    return False
