"""The parts of a workflow that no test takes: steps, branches, answers (`hai-flow test --coverage`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hai_flow.definition.paths import FINALLY, is_catch, is_handler, plan_path
from hai_flow.definition.plan import Plan, Step, Switch
from hai_flow.engine import events as e
from hai_flow.testing.documents.step_names import find_policy

NO_CASE: Final = -1


class Missed(NamedTuple):
    """A part of the workflow that no test takes. `line` is that of its step, `path` the step's in the plan."""

    line: int
    path: str
    text: str


@dataclass(slots=True)
class Coverage:
    """What the runs of one workflow's tests have done, gathered from their logs."""

    plan: Plan
    reached: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    cases: set[tuple[str, int]] = field(default_factory=set)
    answered: set[tuple[str, str]] = field(default_factory=set)

    def add(self, log: Iterable[tuple[e.Event, ...]], asked: Mapping[str, str]) -> None:
        """Take in the log of one run. `asked`: the paths of its questions, by id."""
        for event in (event for batch in log for event in batch):
            if isinstance(event, e.StepStarted):
                path = plan_path(event.path)
                self.reached.add(path)
                if event.verb == "switch":
                    self.cases.add((path, NO_CASE if event.case is None else event.case))
            elif isinstance(event, e.StepSkipped) and event.approval is None:
                self.skipped.add(plan_path(event.path))
            elif isinstance(event, e.PendingOpened):
                self.reached.add(plan_path(event.path))
            elif isinstance(event, e.PendingDecided) and event.id in asked:
                self.answered.add((plan_path(asked[event.id]), event.outcome))

    def find_gaps(self) -> list[Missed]:
        """What no test takes, in the order of the document. Of a list that is never entered its way in is named, and
        not each of its steps."""
        gaps: list[Missed] = []
        hidden: set[str] = set()
        for step in sorted(self._steps(), key=lambda step: (step.line, step.path)):
            if self._outer(step) in hidden:
                hidden.add(step.path)
            elif step.path in self.reached:
                gaps += self._branches(step)
                gaps += self._answers(step)
            elif step.path in self.skipped:
                hidden.add(step.path)
                gaps.append(Missed(step.line, step.path, f"`if` of {_name(step)} is never true"))
            else:
                hidden.add(step.path)
                if self._way_in_is_told(step):
                    continue
                gaps.append(Missed(step.line, step.path, f"{_name(step)} is never reached"))
        return gaps

    def counts(self) -> tuple[int, int]:
        """How many steps, branches and answers tests take, and how many there are."""
        total = 0
        for step in self._steps():
            total += 1 + (step.condition is not None) + len(self._cases(step)) + len(self._options(step))
        return total - self._missing(), total

    @property
    def unreached(self) -> frozenset[str]:
        """The paths of the steps that no test reaches."""
        return frozenset(step.path for step in self._steps() if step.path not in self.reached)

    def _missing(self) -> int:
        missing = 0
        for step in self._steps():
            missing += step.path not in self.reached
            missing += step.condition is not None and step.path not in self.skipped
            missing += sum((step.path, number) not in self.cases for number in self._cases(step))
            missing += sum((step.path, option) not in self.answered for option in self._options(step))
        return missing

    def _steps(self) -> Iterator[Step]:
        for step in self.plan.steps.values():
            if step.is_written:
                yield step

    def _outer(self, step: Step) -> str:
        """The path of the written step around this one: what stands in the body of a loop stands in the loop."""
        outer = self.plan.steps.get(step.parent)
        while outer is not None and not outer.is_written:
            outer = self.plan.steps.get(outer.parent)
        return "" if outer is None else outer.path

    def _way_in_is_told(self, step: Step) -> bool:
        """Whether a finding about the step around says why this one is not reached: a case, or an answer."""
        parent = self.plan.steps.get(step.parent)
        if parent is None or not step.body:
            return False
        if isinstance(parent.verb, Switch) and step.body.isdigit():
            return True
        return is_handler(step.body) and not is_catch(step.body) and step.body != FINALLY

    def _branches(self, step: Step) -> Iterator[Missed]:
        if step.condition is not None and step.path not in self.skipped:
            yield Missed(step.line, step.path, f"`if` of {_name(step)} is never false")
        for number in self._cases(step):
            if (step.path, number) not in self.cases:
                case = "no case" if number == NO_CASE else f"case {number + 1}"
                yield Missed(step.line, step.path, f"{case} of {_name(step)} is never taken")

    def _answers(self, step: Step) -> Iterator[Missed]:
        for option in self._options(step):
            if (step.path, option) not in self.answered:
                yield Missed(step.line, step.path, f"`{option}` is never the answer at {_name(step)}")

    @staticmethod
    def _cases(step: Step) -> list[int]:
        if not isinstance(step.verb, Switch):
            return []
        none = [] if step.verb.cases and step.verb.cases[-1][0] is None else [NO_CASE]
        return [*range(len(step.verb.cases)), *none]

    @staticmethod
    def _options(step: Step) -> tuple[str, ...]:
        policy = find_policy(step)
        return () if policy is None else tuple(policy.options)


def _name(step: Step) -> str:
    return f"`{step.path}`"
