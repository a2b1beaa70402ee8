"""Whether anybody can decide: the people of `from`, as far as a document lists them, held against what it asks of them.

Findings only: nothing of this is in the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.people.deciders import REQUESTER
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.values import Json

ANY: Final = "any"  # in a map of seats: how many people in all


class _Panel(msgspec.Struct, frozen=True):
    """The deciders, as far as they are literal. `people` None: they can't be listed."""

    selectors: tuple[str, ...]
    people: frozenset[str] | None
    excluded: frozenset[str]

    @property
    def deciders(self) -> frozenset[str]:
        return (self.people or frozenset()) - self.excluded


def _compile_panel(context: StepContext, fields: Mapping[str, Json]) -> _Panel | None:
    """The deciders; None where holes or mistakes hide them."""
    value = fields.get("from", [REQUESTER])
    selectors = value if isinstance(value, list) else [value]
    exclude = fields.get("exclude")
    if exclude is None:
        exclude = [] if {REQUESTER, "anyone"} & {s for s in selectors if isinstance(s, str)} else [REQUESTER]
    excluded = exclude if isinstance(exclude, list) else [exclude]
    if not all(isinstance(s, str) and "${{" not in s for s in (*selectors, *excluded)) or not selectors:
        return None
    people: set[str] = set()
    for selector in selectors:
        members = _members(context, selector)
        if members is None:
            return _Panel(tuple(selectors), None, frozenset())
        people |= members
    out = {person for selector in excluded for person in _members(context, selector) or ()}
    return _Panel(tuple(selectors), frozenset(people), frozenset(out))


def _members(context: StepContext, selector: str) -> frozenset[str] | None:
    """The people a selector stands for, as `user:` selectors (or `requester`); None where they can't be listed."""
    if selector == REQUESTER or selector.startswith("user:"):
        return frozenset((selector,))
    members = context.declared.roles.get(selector[5:]) if selector.startswith("role:") else None
    if members is None or not all(member.startswith("user:") for member in members):
        return None
    return frozenset(members)


def check_deciders(context: StepContext, fields: Mapping[str, Json], at: Path, given: Any) -> None:
    """Findings where nobody can decide, or not as many as `given`, the quorum."""
    place = (*at, "from") if "from" in fields else at
    quorum: Any = given if isinstance(given, int | str | Mapping) else None  # a hole says nothing yet
    if isinstance(quorum, Mapping):
        _check_total(context, quorum, (*at, "quorum", "any"))
    panel = _compile_panel(context, fields)
    if panel is None:
        return
    if panel.people is None:
        _check_open_panel(context, fields, at, panel, quorum)
    elif not panel.deciders:
        message = "nobody can decide this: everyone in `from` is excluded; name others, or set `exclude: []`"
        roles = [selector[5:] for selector in panel.selectors if selector.startswith("role:")]
        empty = next((role for role in roles if not context.declared.roles[role]), None)
        if empty is not None:
            message = f"nobody can decide this: `roles` gives `{empty}` to nobody; name people or groups there"
        context.reader.warning(place, "approval.nobody", message)
    elif panel.selectors == (REQUESTER,) and context.declared.starts_alone is not None:
        message = (
            f"runs of the {context.declared.starts_alone} trigger are started by `system`, so nobody can decide this; "
            f"name people or roles in `from`"
        )
        context.reader.warning(place, "approval.nobody", message, key="from" not in fields)
    else:
        if quorum is not None and quorum != "all":
            _check_quorum_possible(context, quorum, panel, (*at, "quorum"))
        rejections = fields.get("reject_when")
        if type(rejections) is int and rejections > len(panel.deciders):
            message = (
                f"{rejections} rejections can't come together: `from` has {_people(len(panel.deciders))}; lower the "
                "number, or write `unreachable`"
            )
            context.reader.error((*at, "reject_when"), "reject_when.impossible", message)


def _check_total(context: StepContext, quorum: Mapping[str, int], at: Path) -> None:
    """Doubt an `any`, the number of people in all, that is smaller than that of the seats beside it."""
    seats = sum(count for selector, count in quorum.items() if selector != "any")
    total = quorum.get("any", seats)
    if total < seats:
        message = (
            f"`any` is how many people in all, and the seats beside it need {seats} already, so `any: {total}` does "
            f"nothing; take it out, or write how many in all, as `any: {seats + total}`"
        )
        context.reader.warning(at, "quorum.total", message)


def check_pick(context: StepContext, fields: Mapping[str, Json], at: Path, quorum: Any) -> None:
    """Findings where `pick` is not enough, or picks nobody of several."""
    pick, value = fields.get("pick"), fields.get("from", [REQUESTER])
    if type(pick) is not int:
        return
    at, need = (*at, "pick"), quorum if isinstance(quorum, int) else 1
    selectors = value if isinstance(value, list) else [value]
    if all(isinstance(each, str) and (each == REQUESTER or each.startswith("user:")) for each in selectors):
        message = "`pick` chooses among the people of a role, and `from` has none; add a role, or take `pick` out"
        context.reader.error(at, "pick.role", message)
    elif quorum == "all" or isinstance(quorum, Mapping):
        message = "beside `pick`, `quorum` is a number of the people who are picked; write one, or take `pick` out"
        context.reader.error(at, "pick.quorum", message)
    elif need > pick:
        message = f"this quorum can't be met: it needs {need} people, and {pick} would be picked; write `pick: {need}`"
        context.reader.error(at, "pick.quorum", message)
    elif type(fields.get("reject_when")) is int and fields["reject_when"] > pick:  # type: ignore[operator]
        message = f"{fields['reject_when']} rejections can't come together of {pick} who are picked; lower the number"
        context.reader.error((*at[:-1], "reject_when"), "reject_when.impossible", message)
    else:
        panel = _compile_panel(context, fields)
        if panel is not None and panel.people is not None and pick >= len(panel.deciders):
            message = f"`from` has {_people(len(panel.deciders))}, so `pick: {pick}` picks everybody; take it out"
            context.reader.warning(at, "pick.everybody", message)


def check_inherited_quorum(context: StepContext, fields: Mapping[str, Json], at: Path) -> None:
    """A finding where a later stage can't be decided by its people, with what it keeps of the one before: `fields`."""
    quorum, panel = fields.get("quorum", 1), _compile_panel(context, fields)
    if panel is None:
        return
    if panel.people is None:
        if quorum == "all":
            context.reader.warning(at, "quorum.impossible", _describe_unlisted(context, panel))
        return
    count = len(panel.deciders)
    if isinstance(quorum, int):
        is_possible = quorum <= count
    elif isinstance(quorum, Mapping) and all(isinstance(each, int) for each in quorum.values()):
        is_possible = quorum.get(ANY, 0) <= count and _can_seat(_list_seats(context, quorum, panel.deciders))
        quorum = ", ".join(f"{name}: {number}" for name, number in quorum.items())
    else:
        is_possible = quorum != "all" or count > 0
    if not is_possible:
        message = (
            f"this stage can't be decided: with what stays from before, its quorum is {quorum}, and `from` has "
            f"{_people(count)}; write `quorum: {max(1, count)}` here, or name more"
        )
        context.reader.warning(at, "quorum.impossible", message)


def _check_open_panel(
    context: StepContext, fields: Mapping[str, Json], at: Path, panel: _Panel, quorum: plan.Quorum | None
) -> None:
    if quorum == "all" and "anyone" in panel.selectors:
        message = "`quorum: all` needs people who can be listed, found `anyone` in `from`; write a number"
        context.reader.error((*at, "quorum"), "quorum.impossible", message)
    elif quorum == "all" and "pick" not in fields:  # beside it, `check_pick` refuses any word
        context.reader.refuse((*at, "quorum"), "quorum.impossible", _describe_unlisted(context, panel))
    if isinstance(quorum, Mapping):
        for selector, count in quorum.items():
            members = None if selector == "any" else _members(context, selector)
            if members is not None and count > len(members):
                message = f"this quorum can't be met: it needs {count} people, `{selector}` is {len(members)}"
                context.reader.refuse(
                    (*at, "quorum", selector), "quorum.impossible", f"{message}; lower it, or name more"
                )
    if fields.get("reject_when") == "unreachable" and "pick" not in fields:
        message = (
            "nobody can list the people of `from`, so the quorum never becomes unreachable and only the deadline "
            "ends this; declare the roles under `roles`, or use `any` or a number"
        )
        context.reader.warning((*at, "reject_when"), "approval.never_unreachable", message)


def _describe_unlisted(context: StepContext, panel: _Panel) -> str:
    """The finding that `quorum: all` can't be met, because the workflow does not list all people."""
    selector = next(each for each in panel.selectors if _members(context, each) is None)
    remedy = "list its people under `roles`" if selector.startswith("role:") else "name its people as `user:`"
    return f"`quorum: all` needs people who can be listed, and `{selector}` can't; {remedy}, or write a number"


def _check_quorum_possible(context: StepContext, quorum: plan.Quorum, panel: _Panel, at: Path) -> None:
    deciders = panel.deciders
    if isinstance(quorum, int):
        if quorum > len(deciders):
            message = f"this quorum can't be met: it needs {quorum} people, `from` has {_people(len(deciders))}"
            context.reader.error(at, "quorum.impossible", f"{message}; lower it, or name more")
        return
    assert isinstance(quorum, Mapping), "`all` is always possible"
    if (count := quorum.get(ANY, 0)) > len(deciders):
        message = f"this quorum can't be met: it needs {count} people, `from` has {_people(len(deciders))}"
        context.reader.error((*at, ANY), "quorum.impossible", f"{message}; lower it, or name more")
    elif not _can_seat(_list_seats(context, quorum, deciders)):
        message = "this quorum can't be met: not enough people in `from` match its selectors; name more of them"
        context.reader.error(at, "quorum.impossible", message)


def _list_seats(context: StepContext, quorum: Mapping[str, int], deciders: frozenset[str]) -> list[frozenset[str]]:
    seats: list[frozenset[str]] = []
    for selector, count in quorum.items():
        if selector != ANY:
            members = _members(context, selector)  # None: any of them may have a role that only the deployment knows
            seats += [deciders if members is None else members & deciders] * min(count, len(deciders) + 1)
    return seats


def _can_seat(seats: Sequence[frozenset[str]]) -> bool:
    """Whether every seat can have a person of its own (augmenting paths)."""
    seats_by_person: dict[str, int] = {}

    def place(seat: int, tried: set[str]) -> bool:
        for person in sorted(seats[seat] - tried):
            tried.add(person)
            if person not in seats_by_person or place(seats_by_person[person], tried):
                seats_by_person[person] = seat
                return True
        return False

    return all(place(seat, set()) for seat in range(len(seats)))


def _people(count: int) -> str:
    return f"{count} {'person' if count == 1 else 'people'} who may"
