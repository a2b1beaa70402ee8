"""A policy of the plan as the rules of one pending: every hole filled, once, at opening (docs/language.md#people).

All stages of `on_deadline` are filled in together, so the question and its deciders cannot change meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hai_flow import values
from hai_flow.definition.names.durations import NotADuration
from hai_flow.definition.names.durations import milliseconds as duration_ms
from hai_flow.definition.people.calendars import WORKING_DAYS_MAX, Calendar, count_working_days, find_calendar
from hai_flow.definition.plan import Duration, Escalate, Policy, Step, Template
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings.eligibility import world_of
from hai_flow.engine.pendings.selectors import (
    ANYONE,
    REQUESTER,
    NotASelector,
    World,
    find_sure_ids,
    is_sure_match,
    is_surely_barred,
    list_people,
    selectors_of,
)
from hai_flow.engine.pendings.votes import Rules
from hai_flow.primitives.invisible_characters import compose
from hai_flow.values import Json

_DAY: Final = 86_400_000


def fill_rules(draft: Draft, step: Step, policy: Policy, roots: dict[str, Json], *, may_exclude: bool = True) -> Rules:
    """The policy with the holes of all its stages filled: the question must not change meanwhile."""
    first = _fill_first_stage(draft, step, policy, roots, may_exclude=may_exclude)
    stages = [first]
    for change in policy.escalations:
        stages.append(_next_stage(draft, step, stages[-1], change, roots))
    world = world_of(draft.plan, draft.state)
    first, *later = (_with_pick(_with_people(stage, world)) for stage in stages)
    counts = [days for stage in stages for days in _list_working_days(stage)]
    if counts:
        first = msgspec.structs.replace(first, calendar=_find_calendar(draft, step, sum(counts)))
        later = [msgspec.structs.replace(stage, calendar=first.calendar) for stage in later]
    rules = msgspec.structs.replace(first, escalations=tuple(later))
    draft.take(len(msgspec.json.encode(rules)))
    return rules


def _fill_first_stage(draft: Draft, step: Step, policy: Policy, roots: dict[str, Json], *, may_exclude: bool) -> Rules:
    from_, fault = _fill_deciders(draft, step, policy.from_, roots)
    exclude: tuple[str, ...] = ()
    if may_exclude and policy.exclude is not None:
        exclude = _fill_exclusion(draft, step, policy.exclude, roots)
    elif may_exclude and not (policy.names_requester and {REQUESTER, ANYONE} & set(from_)):
        exclude = (REQUESTER,)
        if from_ == (REQUESTER,):
            fault = "`from` has `requester` from data, and only the workflow's own text lets them: write `exclude: []`"
    return Rules(
        from_=from_,
        exclude=exclude,
        fault=fault,
        quorum=_quorum(draft, step, policy.quorum, roots),
        reject_when=policy.reject_when,
        deadline=fill_duration(draft, step, policy.deadline, roots),
        edit=policy.edit,
        combine=dict(policy.combine),
        reasons=tuple(sorted(policy.reasons)),
        veto=() if policy.veto is None else _fill_exclusion(draft, step, policy.veto, roots, "veto"),
        confirm=policy.confirm,
        notify=_texts(draft, step, policy.notify or draft.plan.default_notify, roots),
        remind=_fill_delays(draft, step, policy.remind, roots),
        pause_clock=policy.pause_clock,
        pick=policy.pick,
    )


def _next_stage(draft: Draft, step: Step, before: Rules, change: Escalate, roots: dict[str, Json]) -> Rules:
    """The stage before with the replacements of `change`."""
    changes: dict[str, Any] = {"deadline": fill_duration(draft, step, change.deadline, roots)}
    if change.from_ is not None:
        changes["from_"], changes["fault"] = _fill_deciders(draft, step, change.from_, roots)
    if change.exclude is not None:
        changes["exclude"] = _fill_exclusion(draft, step, change.exclude, roots)
    if change.quorum is not None:
        changes["quorum"] = _quorum(draft, step, change.quorum, roots)
    if change.notify is not None:
        changes["notify"] = _texts(draft, step, change.notify, roots)
    if change.remind is not None:
        changes["remind"] = _fill_delays(draft, step, change.remind, roots)
    return msgspec.structs.replace(before, **changes)


def _with_people(stage: Rules, world: World) -> Rules:
    """The stage with its voters, where they can be listed."""
    is_decider = any(is_sure_match(each, world.requester, world) for each in stage.from_)
    kept_out = is_surely_barred(stage.exclude, world.requester, world)
    stage = msgspec.structs.replace(stage, asks_requester=is_decider and not kept_out)
    listed = list_people(stage.from_, world)
    if listed is None:
        fault = "" if stage.quorum != "all" else "`quorum: all` needs people that can be listed; `from` has others"
        return msgspec.structs.replace(stage, people=None, everyone=(), fault=stage.fault or fault)
    barred = find_sure_ids(stage.exclude, world)
    behind = frozenset(map(compose, world.instigators)) if REQUESTER in stage.exclude else ()
    matches: dict[str, list[str]] = {}
    if barred is not None:
        matches = {id: [] for id in listed if id not in barred and id not in behind}
    for selector in stage.selectors():
        whom = list_people([selector], world)
        for id in matches if whom is None else whom:  # of others it is unknown before they vote
            if id in matches:
                matches[id].append(selector)
    people = {id: tuple(each) for id, each in matches.items()}
    return msgspec.structs.replace(stage, people=people, everyone=listed if stage.quorum == "all" else ())


def _with_pick(stage: Rules) -> Rules:
    """The stage with a number of people to pick that is enough for its quorum; none, where that is everybody."""
    if stage.pick is None:
        return stage
    if not isinstance(stage.quorum, int):
        return msgspec.structs.replace(stage, pick=None)
    pick = max(stage.pick, stage.quorum)
    is_everybody = stage.people is not None and len(stage.people) <= pick
    return msgspec.structs.replace(stage, pick=None if is_everybody else pick)


def _quorum(draft: Draft, step: Step, quorum: Any, roots: dict[str, Json]) -> Any:
    """The quorum as a number, `all`, or seats. Raises `Raised` where a hole gives neither of the first two."""
    if isinstance(quorum, int | str):
        return quorum
    if isinstance(quorum, Mapping):
        return dict(quorum)
    value = draft.render(quorum, step, **roots)
    if value == "all" or (type(value) is int and value >= 1):
        return value
    text = values.dumps(value).decode()[:80]
    raise Raised("expression.error", f"{step.path}: `quorum`: expected a number from 1, or `all`, found {text}.")


def _fill_deciders(draft: Draft, step: Step, from_: Template, roots: dict[str, Json]) -> tuple[tuple[str, ...], str]:
    """The people that `from` names, and why it names none ("" if it does): then this stage can't be decided."""
    value = draft.render(from_, step, **roots)
    try:
        selectors = selectors_of(value)
    except NotASelector as error:
        return (), f"`from`: {error}"
    return selectors, "" if selectors else "`from` names nobody"


def _fill_exclusion(
    draft: Draft, step: Step, exclude: Template, roots: dict[str, Json], word: str = "exclude"
) -> tuple[str, ...]:
    """The people that `exclude`, or another `word`, names. Raises `Raised`: an unreadable one must not be let in."""
    value = draft.render(exclude, step, **roots)
    try:
        return selectors_of(value, editor=True)
    except NotASelector as error:
        raise Raised("approval.impossible", f"{step.path}: `{word}`: {error}.") from None


def _list_working_days(stage: Rules) -> list[int]:
    texts = (each for each in (stage.deadline, *stage.remind) if isinstance(each, str))
    return [days for text in texts if (days := count_working_days(text))]


def _find_calendar(draft: Draft, step: Step, days: int) -> Calendar:
    """The calendar of the workflow as the deployment has it now, as far as so many working days reach."""
    name = draft.plan.calendar
    calendar = find_calendar(draft.limits.calendars, name)
    if calendar is None:
        message = f"{step.path}: the deployment has no calendar `{name}` (HAI_FLOW_CALENDARS)."
        raise Raised("approval.calendar", message)
    return calendar.ahead(draft.now, days)


def fill_duration(draft: Draft, step: Step, duration: Duration, roots: dict[str, Json]) -> int | str:
    """The duration in milliseconds, or its text where it counts working days."""
    if isinstance(duration, int):
        return duration
    text = draft.render(duration, step, **roots)
    if isinstance(text, str) and (days := count_working_days(text)) is not None:
        if not 1 <= days <= WORKING_DAYS_MAX:
            message = f"{step.path}: expected 1 to {WORKING_DAYS_MAX} working days, found {text!r:.60}."
            raise Raised("expression.error", message)
        return f"{days} working day{'' if days == 1 else 's'}"
    try:
        return duration_ms(text, ordered=False)
    except (NotADuration, TypeError) as error:
        raise Raised("expression.error", f"{step.path}: {error}.") from None


def _fill_delays(
    draft: Draft, step: Step, remind: tuple[Duration, ...], roots: dict[str, Json]
) -> tuple[int | str, ...]:
    delays = (fill_duration(draft, step, each, roots) for each in remind)
    return tuple(sorted(delays, key=_measure))


def _measure(delay: int | str) -> int:
    """At least how long it is."""
    return delay if isinstance(delay, int) else _DAY * (count_working_days(delay) or 1)


def _texts(draft: Draft, step: Step, notify: tuple[Template, ...], roots: dict[str, Json]) -> tuple[str, ...]:
    texts = (draft.text(each, step, **roots) for each in notify)
    return tuple(text for text in texts if text)  # a hole that gives "" names no channel
