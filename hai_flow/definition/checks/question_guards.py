"""How a question stands in a plan: whether the flow comes by it, and the steps that are performed without it.

Two versions of a workflow ask people alike if a question has the same guards in both, and nothing is performed without
it in the one that it stands in front of in the other. See `engine/pendings/bypass`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as Names
from typing import Any, Final, TypeAlias

from hai_flow.definition.checks.asked_people import Asks, asks, find_policy
from hai_flow.definition.diff import to_plain
from hai_flow.definition.expressions.evaluation import CompiledExpression, CompiledTemplate
from hai_flow.definition.paths import is_inside, rename_path
from hai_flow.definition.plan import (
    Agent,
    Call,
    ForEach,
    FrontendTool,
    Http,
    Let,
    Parallel,
    Plan,
    Repeat,
    Run,
    Set,
    Step,
    Switch,
    list_fields,
)
from hai_flow.values import Json


def collect_guards(plan: Plan, step: Step) -> list[Json]:
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
    return [to_plain(step.condition), step.body, _describe_way(step), caught, sorted(step.handlers)]


def _describe_way(step: Step) -> Json:
    """How a block comes by the steps inside it."""
    match step.verb:
        case Switch() as verb:
            return [None if when is None else when.source for when, _ in verb.cases]
        case Parallel() as verb:
            return verb.join
        case ForEach() as verb:
            return [to_plain(verb.items), verb.on_failure]
        case Repeat() as verb:
            return [verb.max, to_plain(verb.while_), to_plain(verb.until)]
        case _:
            return None


Below: TypeAlias = Collection[str] | None
"""The paths of the runs below in which what they are given decides whether people are asked, or whom. None: all."""


def question_behind(plan: Plan, path: str, below: Below = None) -> str | None:
    """A question to others than the requester of which the step at `path`, or one inside it, decides whether it is
    asked, or of whom: its result is read by what guards the question, by `approval.when` or the rules of who decides,
    or by a step whose result is read there; by the `with` of a call whose conditions read its arguments, and by that of
    a run `below`. None: there is none. A run below counts as a question."""
    for question in _questions(plan):
        if any(each == path or is_inside(each, path) for each in _sources(plan, question, below)[0]):
            return question.path
    return None


def find_questions_that_read(plan: Plan, roots: Names[str], below: Below = None) -> Iterator[str]:
    """The questions, as in `question_behind`, of which one of these names of expressions (`input`, `state`) decides
    whether they are asked, or of whom, in whatever way its value comes there."""
    for question in _questions(plan):
        if not roots.isdisjoint(_sources(plan, question, below)[1]):
            yield question.path


def is_guarded_by_arguments(question: Step) -> bool:
    """Whether what decides that the call asks people, or whom, reads the arguments of the call."""
    return "args" in _names(_rules(question))[1]


def _rules(question: Step) -> list[Any]:
    return [question.approval and question.approval.when, find_policy(question)]


def _questions(plan: Plan) -> Iterator[Step]:
    """What asks others than the requester, and the runs below in which people may decide."""
    for step in plan.steps.values():
        if asks(step) is Asks.DECIDERS or (isinstance(step.verb, Run) and not step.verb.detach):
            yield step


_BUILT_IN: Final = frozenset({"steps", "input", "run", "event", "secrets", "args", "decision", "requester"})


def _sources(plan: Plan, question: Step, below: Below) -> tuple[set[str], set[str]]:
    """The paths of all steps whose results lead to whether the question is asked, and the other names that are read on
    the way."""
    read = _rules(question)
    if isinstance(question.verb, Run):
        read += [question.verb.arguments] if below is None or question.path in below else []
    elif is_guarded_by_arguments(question):  # of an agent's call the model gives them, by what the agent is told
        read += [each.verb for each in _around(plan, question) if each is question or isinstance(each.verb, Agent)]
    for each in _around(plan, question):
        read += [each.condition, each.verb if isinstance(each.verb, (Switch, ForEach, Repeat)) else None]
    sources: set[str] = set()
    others: set[str] = set()
    while read:
        ids, roots = _names(read.pop())
        others |= roots
        named = [step for step in plan.steps.values() if step.id in ids]
        if "state" in roots:
            named += [step for step in plan.steps.values() if isinstance(step.verb, Set)]
        if roots - _BUILT_IN - {"state"}:
            named += [step for step in plan.steps.values() if isinstance(step.verb, Let)]
        for step in named:
            if step.path not in sources:
                sources.add(step.path)
                read += [part for each in _inside(plan, step) for part in (each.condition, each.verb)]
    return sources, others


def _inside(plan: Plan, step: Step) -> list[Step]:
    return [each for each in plan.steps.values() if each is step or is_inside(each.path, step.path)]


def _names(value: Any) -> tuple[set[str], set[str]]:
    """The ids of steps, and the other names, that expressions and templates anywhere in the value read."""
    if isinstance(value, (CompiledExpression, CompiledTemplate)):
        return set(value.steps), set(value.roots)
    ids: set[str] = set()
    roots: set[str] = set()
    for part in _parts(value):
        more_ids, more_roots = _names(part)
        ids |= more_ids
        roots |= more_roots
    return ids, roots


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, (tuple, list)) else [getattr(value, name) for name in list_fields(value) or ()]


def find_unguarded_step(old: Plan, question: Step, new: Plan, there: Step, paths: Mapping[str, str]) -> str | None:
    """A step of the new version that acts on the world and is not behind the question there, though the old one had no
    such step or had it behind the question. `there`: the question in the new version; `paths`: old -> new."""
    before = {rename_path(path, paths): step for path, step in old.steps.items()}
    orders = [{path: n for n, path in enumerate(plan.steps)} for plan in (old, new)]
    for step in new.steps.values():
        if not acts(step) or _is_behind(new, orders[1], there, step):
            continue
        was = before.get(step.path)
        if was is None or _act(was) != _act(step) or _is_behind(old, orders[0], question, was):
            return step.path
    return None


def acts(step: Step) -> bool:
    """Whether the step changes something outside of the run when it is performed, as far as the plan tells."""
    match step.verb:
        case Call(FrontendTool() as tool):  # what concerns the requester's own page alone does not count
            return tool.writes
        case Call() as verb:
            return verb.tool.effect != "read"
        case Http() | Run():
            return True
        case _:
            return False


def _act(step: Step) -> Json:
    match step.verb:
        case Call() as verb:
            return ["call", verb.function, to_plain(verb.tool)]
        case Http() as verb:
            return ["http", to_plain(verb.arguments)]
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
