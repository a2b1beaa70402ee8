"""Which steps of a plan put something to people, and whether they are others than the requester."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from hai_flow.definition.diff import to_plain
from hai_flow.definition.paths import is_inside
from hai_flow.definition.plan import Approve, Ask, Call, FrontendTool, Plan, Policy, Run, ScheduleTrigger, Step
from hai_flow.definition.yaml.mapping_reader import Reader

_REQUESTER: Final = (["requester"], "requester")


class Asks(IntEnum):
    """The people that a step asks, if it is performed: none; the requester alone, by a form or in front of a call; or
    people that decide."""

    NOBODY = 0
    REQUESTER = 1
    DECIDERS = 2


def asks(step: Step) -> Asks:
    """Whom the step itself asks. An `approve` is a decision, whoever gives it. Runs below are not looked at."""
    verb = step.verb
    if isinstance(verb, Approve):
        return Asks.DECIDERS
    askings = [Asks.NOBODY]
    if isinstance(verb, Ask):
        askings.append(_read_policy_asks(verb.policy))
    if isinstance(verb, Call) and isinstance(verb.tool, FrontendTool) and verb.tool.answered:
        askings.append(Asks.REQUESTER)
    if step.approval is not None:
        askings.append(_read_policy_asks(step.approval.policy))
    return max(askings)


def _read_policy_asks(policy: Policy) -> Asks:
    templates = [policy.from_, *(each.from_ for each in policy.escalations if each.from_ is not None)]
    return Asks.REQUESTER if all(to_plain(each) in _REQUESTER for each in templates) else Asks.DECIDERS


def report_queues(plan: Plan, reader: Reader) -> None:
    """A warning for each schedule whose instants wait behind a question to people, for they may be many, or of whose
    missed instants only one is sure to begin, though all are asked for."""
    for number, trigger in enumerate(plan.triggers):
        if not isinstance(trigger, ScheduleTrigger):
            continue
        if trigger.missed == "all" and trigger.overlap in ("skip", "cancel_running"):
            message = (
                f"missed instants come at once, and `overlap: {trigger.overlap}` keeps one of them while its run is "
                "active; write `overlap: queue`, so that each has its run, or `missed: once`"
            )
            reader.warning(("triggers", number, "schedule", "missed"), "schedule.missed", message)
        if trigger.overlap != "queue":
            continue
        if (asking := next((step for step in plan.steps.values() if asks(step)), None)) is not None:
            message = (
                f"its runs ask people (`{asking.path}`), and each instant that comes meanwhile waits, up to 100: as "
                "many questions follow one another; write `overlap: queue_one`, or leave it out, so that they are "
                "skipped"
            )
            reader.warning(("triggers", number, "schedule", "overlap"), "schedule.overlap", message)


def find_policy(step: Step) -> Policy | None:
    """The rules by which the step asks people; None: it asks no people, or has none of its own."""
    if isinstance(step.verb, Ask | Approve):
        return step.verb.policy
    return None if step.approval is None else step.approval.policy


def walk_steps_inside(plan: Plan, path: str) -> Iterator[Step]:
    """The step at `path`, and all steps that stand in it."""
    return (step for step in plan.steps.values() if step.path == path or is_inside(step.path, path))


def collect_runs(plan: Plan, path: str) -> list[Run]:
    """The runs that the step at `path`, or one inside it, waits for."""
    return [step.verb for step in walk_steps_inside(plan, path) if isinstance(step.verb, Run) and not step.verb.detach]


def collect_asks(plan: Plan, path: str) -> Asks:
    """Whom the step at `path` and those inside it ask; "" is the whole document. Runs below are not looked at."""
    return max((asks(step) for step in walk_steps_inside(plan, path)), default=Asks.NOBODY)
