"""The changes of one version of a workflow against another: steps that came, went, moved, or do something else.

Two plans are compared, not two texts: comments, line breaks and the order of keys are no change. A step is known by its
id, by its path, or else by having exactly the same content. The steps inside of a step (in a block's lists, in a
handler) are no part of it: they are compared for themselves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from hai_flow.definition.expressions.evaluation import CompiledExpression, CompiledTemplate
from hai_flow.definition.fields import Constant, Record
from hai_flow.definition.plan import (
    Agent,
    AnyCall,
    Call,
    CallWrites,
    ForEach,
    Iteration,
    Parallel,
    Plan,
    Repeat,
    Step,
    Switch,
    list_fields,
)
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.values import Json

Facts: TypeAlias = dict[str, Json]

# Keys that say only where a step stands: its path is compared apart, and its line is no change; and what follows from
# the others.
_PLACES: Final = frozenset(
    {
        "path",
        "id",
        "next",
        "parent",
        "body",
        "line",
        "is_bare",
        "first",
        "iteration",
        "handlers",
        "catch",
        "undo",
        "verb",
        "policy",
        "names_requester",
    }
)
# Names of the plan that are not those of the language.
_WORDS: Final = {
    "arguments": "with",
    "condition": "if",
    "assign": "set",
    "expiry": "on_deadline",
    "escalations": "escalate",
    "default_retry": "defaults.retry",
    "default_notify": "defaults.notify",
    "tools_without_chat": "tools.chat",
}
_DOCUMENT: Final = (
    "title", "description", "summary", "input", "output", "catch", "visibility", "triggers", "limits", "concurrency",
    "queue", "on_message", "default_retry", "default_notify", "calendar", "chat", "tools_without_chat",
)  # fmt: skip
_NAMED: Final = ("state", "tools", "models", "roles")


class ChangedKey(msgspec.Struct, frozen=True):
    """One key whose value has changed, with both values as they are written; None: the key is not there."""

    key: str
    old: Json
    new: Json

    def as_dict(self) -> dict[str, Json]:
        return {"key": self.key, "from": self.old, "to": self.new}


class Change(msgspec.Struct, frozen=True):
    """The change of one step. `path` is the new one (of a removed step the old one), `was` where it stood before.

    `moved`: it stands elsewhere, or in another order; `parts` may have changed all the same."""

    kind: Literal["added", "removed", "moved", "changed"]
    path: str
    verb: str
    was: str | None = None
    parts: tuple[ChangedKey, ...] = ()

    def as_dict(self) -> dict[str, Json]:
        record: dict[str, Json] = {"kind": self.kind, "path": self.path, "verb": self.verb}
        if self.was is not None:
            record["was"] = self.was
        return {**record, "parts": [part.as_dict() for part in self.parts]}


class Diff(msgspec.Struct, frozen=True):
    """`document`: keys outside of the steps. `steps`: in the order of the new version, then the removed ones."""

    document: tuple[ChangedKey, ...] = ()
    steps: tuple[Change, ...] = ()
    same: Mapping[str, str] = msgspec.field(default_factory=dict)  # old path -> new path, of every step that is in both

    def __bool__(self) -> bool:
        return bool(self.document or self.steps)

    def as_dict(self) -> dict[str, Json]:
        return {
            "document": [part.as_dict() for part in self.document],
            "steps": [change.as_dict() for change in self.steps],
        }


def diff(old: Plan, new: Plan) -> Diff:
    before, after = _steps(old), _steps(new)
    same = _match_steps(before, after)
    came_from = {path: was for was, path in same.items()}
    reordered = _find_reordered(old, new, same)
    steps: list[Change] = []
    for path, (step, facts) in after.items():
        was = came_from.get(path)
        if was is None:
            steps.append(Change("added", path, step.verb_name))
            continue
        parts = tuple(_parts(before[was][1], facts))
        if was != path or path in reordered:
            if parts or not _follows(step, was, came_from):
                steps.append(Change("moved", path, step.verb_name, was, parts))
        elif parts:
            steps.append(Change("changed", path, step.verb_name, None, parts))
    steps += [Change("removed", path, step.verb_name) for path, (step, _) in before.items() if path not in same]
    return Diff(tuple(_parts(_document(old), _document(new))), tuple(steps), same)


def _follows(step: Step, was: str, came_from: Mapping[str, str]) -> bool:
    """Whether the step stands elsewhere only because the block around it does: its own place in that is the same."""
    parent = step.parent.removesuffix("[]")
    before = came_from.get(parent)
    return before is not None and before != parent and was[len(before) :] == step.path[len(parent) :]


def _steps(plan: Plan) -> dict[str, tuple[Step, Facts]]:
    """Every step that the document lists, with its facts. The bodies of loops are left out: they have no keys of their
    own."""
    return {
        path: (step, _collect_step_facts(plan, step))
        for path, step in plan.steps.items()
        if not isinstance(step.verb, Iteration) and not step.of_agent
    }


# --- which step is which ----------------------------------------------------------------------------------------------


def _match_steps(before: Mapping[str, tuple[Step, Facts]], after: Mapping[str, tuple[Step, Facts]]) -> dict[str, str]:
    """Old path -> new path. A step that says the same under its old path is that step; so is one with its own id."""
    same: dict[str, str] = {}
    matched_paths: set[str] = set()

    def match(was: str, path: str) -> None:
        same[was] = path
        matched_paths.add(path)

    new_ids = {step.id: path for path, (step, _) in after.items() if _is_named(step)}
    for was, (step, _) in before.items():
        if _is_named(step) and step.id in new_ids:
            match(was, new_ids[step.id])
    for was in before:
        if was not in same and was in after and was not in matched_paths and before[was][1] == after[was][1]:
            match(was, was)
    identical: dict[bytes, list[str]] = {}
    for path, (_, facts) in after.items():
        if path not in matched_paths:
            identical.setdefault(_key(facts), []).append(path)
    for was, (_, facts) in before.items():
        if was not in same and (candidates := identical.get(_key(facts))):
            match(was, candidates.pop(0))
    for was, (step, _) in before.items():
        if was not in same and was in after and was not in matched_paths and after[was][0].verb_name == step.verb_name:
            match(was, was)
    return same


def _is_named(step: Step) -> bool:
    return "#" not in step.id and step.is_written


def _key(facts: Facts) -> bytes:
    return msgspec.json.encode(facts, order="deterministic")


def _find_reordered(old: Plan, new: Plan, same: Mapping[str, str]) -> set[str]:
    """New paths of the fewest steps that must have moved within their list for it to have its order."""
    places: dict[str, int] = {}  # of those that stood in the same list before
    for number, (was, step) in enumerate(old.steps.items()):
        counterpart = new.steps.get(same.get(was, ""))
        if (
            counterpart is not None
            and counterpart.body == step.body
            and counterpart.parent == same.get(step.parent, step.parent)
        ):
            places[counterpart.path] = number
    moved: set[str] = set()
    for paths in _lists(new).values():
        common = [path for path in paths if path in places]
        moved |= set(common) - set(_find_longest_rising(common, places))
    return moved


def _lists(plan: Plan) -> dict[tuple[str, str], list[str]]:
    lists: dict[tuple[str, str], list[str]] = {}
    for path, step in plan.steps.items():
        lists.setdefault((step.parent, step.body), []).append(path)
    return lists


def _find_longest_rising(paths: Sequence[str], places: Mapping[str, int]) -> Iterator[str]:
    """The longest subsequence of `paths` in which the places rise."""
    tails: list[int] = []
    ends: list[str] = []
    before: dict[str, str | None] = {}
    for path in paths:
        at = bisect_left(tails, places[path])
        before[path] = ends[at - 1] if at else None
        tails[at : at + 1] = [places[path]]
        ends[at : at + 1] = [path]
    path_or_none = ends[-1] if ends else None
    while path_or_none is not None:
        yield path_or_none
        path_or_none = before[path_or_none]


# --- the report -------------------------------------------------------------------------------------------------------


def _collect_step_facts(plan: Plan, step: Step) -> Facts:
    """The step by the keys of the language."""
    facts: Facts = {"verb": step.verb_name}
    for name in step.__struct_fields__:
        if name not in _PLACES and name != "approval":
            _add(facts, name, getattr(step, name))
    if step.catch:
        facts["catch"] = [list(clause.errors) for clause in step.catch]
    facts["finally"] = step.finally_ is not None
    if step.handlers:
        facts["on_decision"] = sorted(step.handlers)
    if step.approval is not None:
        for key, value in _flat(step.approval):
            facts[f"approval.{key}"] = value
    facts.update(_collect_verb_facts(plan, step))
    return {key: value for key, value in facts.items() if value is not None}


def _collect_verb_facts(plan: Plan, step: Step) -> Facts:
    verb = step.verb
    match verb:
        case Call():
            function = f".{verb.function}" if verb.function else ""
            into = None if verb.into is None else f"{verb.into.tool.name}.{verb.into.argument}"
            stream = verb.stream if into is None else into
            return {"call": verb.tool.name + function, "with": to_plain(verb.arguments), "stream": stream}
        case Switch():
            return {"when": ["default" if when is None else when.source for when, _ in verb.cases]}
        case Parallel():
            return {"branches": sorted(name for name, _ in verb.branches), "join": verb.join}
        case ForEach() | Repeat():
            body = plan.steps[verb.iteration].verb
            assert isinstance(body, Iteration)
            return {**dict(_flat(verb)), "output": to_plain(body.output)}
        case Agent():
            return {**dict(_flat(verb)), "approvals": _collect_approvals(plan, verb)}
        case _:
            return dict(_flat(verb))


def _collect_approvals(plan: Plan, agent: Agent) -> Facts:
    """The gates of an agent's calls."""
    calls = plan.steps[f"{agent.iteration}/call[]"].verb
    assert isinstance(calls, AnyCall)
    gates = ((name, plan.steps[path].approval) for name, path in calls.uses)
    return {name: None if gate is None else {"when": to_plain(gate.when), **dict(_flat(gate))} for name, gate in gates}


def _flat(record: Any) -> Iterator[tuple[str, Json]]:
    """The fields of a part of a plan, with those of its policy among them."""
    for name in list_fields(record) or ():
        value = getattr(record, name)
        if name == "policy":
            yield from _flat(value)
        elif name not in _PLACES:
            yield _word(name), to_plain(value)


def _add(facts: Facts, name: str, value: Any) -> None:
    if name != "finally_":
        facts[_word(name)] = to_plain(value)


def _word(name: str) -> str:
    return _WORDS.get(name, name.removesuffix("_"))


def to_plain(value: Any) -> Json:
    """Any part of a plan as plain JSON, in the author's own words where it has them."""
    match value:
        case CompiledTemplate() | Constant() | Record():
            return value.written
        case CompiledExpression() | CallWrites():
            return value.source
        case JsonSchema():
            return value.raw
        case Mapping():
            return {key: to_plain(item) for key, item in value.items()}
        case tuple() | list():
            return [to_plain(item) for item in value]
    if (names := list_fields(value)) is not None:
        return {
            _word(name): plain
            for name in names
            if name not in _PLACES and (plain := to_plain(getattr(value, name))) is not None
        }
    return value


def _document(plan: Plan) -> Facts:
    facts: Facts = {_word(name): to_plain(getattr(plan, name)) for name in _DOCUMENT}
    facts["finally"] = plan.finally_ is not None
    facts["triggers"] = [{type(each).__name__: to_plain(each)} for each in plan.triggers]
    for group in _NAMED:
        for name, value in getattr(plan, group).items():
            facts[f"{group}.{name}"] = to_plain(value)
    return {key: value for key, value in facts.items() if value is not None}


def _parts(before: Facts, after: Facts) -> Iterable[ChangedKey]:
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if _key({"": old}) != _key({"": new}):  # 1 is not 1.0 and not true
            yield ChangedKey(key, old, new)
