"""The input of compiling a step: the document's declarations, its outline, and where its findings go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from hai_flow.definition import plan
from hai_flow.definition.child_interface import Children
from hai_flow.definition.declarations import Declared
from hai_flow.definition.fields import Parts
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.visible_steps import Visibility
from hai_flow.definition.raw_steps import Chain, Outline, StepDraft
from hai_flow.definition.schemas.python_modules import Modules

if TYPE_CHECKING:
    from hai_flow.definition.incremental import UnchangedSteps

CompileList: TypeAlias = "Callable[[StepContext, Sequence[StepDraft], Names], Names]"


@dataclass(eq=False)
class StepContext(Parts):
    """The surroundings of a step while it is compiled. `steps` fills with the steps of the plan; `used` are the files
    that the document uses."""

    declared: Declared
    outline: Outline
    children: Children
    modules: Modules
    compile_list: CompileList
    steps: dict[str, plan.Step] = field(default_factory=dict, init=False)
    used: tuple[bytes, ...] = field(default=(), init=False)
    unchanged: UnchangedSteps | None = field(default=None, init=False)
    _order: dict[str, int] = field(default_factory=dict, init=False)

    def compile(self, drafts: Sequence[StepDraft], names: Names) -> Names:
        """Compile the steps of a list. `names` are those before it; returns those behind it."""
        return self.compile_list(self, drafts, names)

    def elsewhere(self, names: Names, chain: Chain, order: int, **more: Any) -> Names:
        """The names at another place than the step's own, with the same roots and guards."""
        return replace(names, steps=Visibility(self.outline, chain, order, **more))

    def add(self, step: plan.Step, order: int) -> None:
        """Add a step to the plan. Steps stand in it by `order`."""
        self.steps[step.path] = step
        self._order[step.path] = order

    def order(self, step: plan.Step) -> int:
        return self._order[step.path]

    def sort_steps(self) -> dict[str, plan.Step]:
        """The steps of the plan by path, in document order; the body of a loop stands behind the loop."""
        return dict(sorted(self.steps.items(), key=lambda entry: self._order[entry[0]]))
