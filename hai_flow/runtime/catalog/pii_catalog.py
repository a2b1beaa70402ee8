"""Which values are personal in the runs of workflows, by their plans and pins: worked out once, and remembered."""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from hai_flow.definition.personal.pii_flow import WHOLE, Flow, Personal, declares, derive_personal
from hai_flow.definition.plan import Plan, Run
from hai_flow.engine.events import Pin
from hai_flow.engine.runs.children import reference_of
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Unreadable
from hai_flow.runtime.catalog import compiling
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.wire.pii_masking import list_personal_forms

_KNOWN_MAX: Final = 1024


def touches(plan: Plan, path: str = "") -> bool:
    """Whether the step at `path`, or anything in the workflow (""), has to do with something personal, as far as the
    workflow itself says: then the log of a process quotes none of its values."""
    personal = _nearby.get(plan.sha256)
    if personal is None:
        while len(_nearby) >= _KNOWN_MAX:
            _nearby.pop(next(iter(_nearby)))
        personal = _nearby[plan.sha256] = Flow(plan).resolve() if declares(plan) else Personal()
    return personal.of(path).touches


def hides_values(plan: Plan | None, state: RunState, path: str = "") -> bool:
    """Whether the log of a process must quote no value of the run, or of its step at `path`: it may be personal, or
    `plan` is not known."""
    return plan is None or touches(plan, path) or bool(list_personal_forms(state))


def describe_error(plan: Plan | None, state: RunState, error: BaseException, path: str = "") -> dict[str, Any]:
    """An exception for the log of the process. Its text may quote values of a run or a step: where those are hidden
    (`hides_values`), only its type and place are logged."""
    if not hides_values(plan, state, path):
        return {"exc_info": error}
    frames = traceback.extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "at": [f"{each.filename}:{each.lineno}" for each in frames[-3:]]}


_FEW_STEPS: Final = 20  # whose marks are found faster than a thread begins
_nearby: Final[dict[bytes, Personal]] = {}


class Personals:
    """Finds the personal values of a run."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: OrderedDict[tuple[UUID, bytes, tuple[str, ...], frozenset[str]], Personal] = OrderedDict()

    async def has_children(self, tenant: UUID, workflow: bytes) -> bool:
        """Whether its runs start others: then their pins belong to the question. An unreadable one has none."""
        try:
            return bool(self._catalog.runs_of(await self._catalog.plan(tenant, workflow)))
        except Unreadable:
            return False

    async def of(
        self, tenant: UUID, workflow: bytes, pins: Mapping[str, Pin], answered: frozenset[str] = frozenset()
    ) -> Personal:
        """The personal values in the runs of a workflow whose children are pinned so, after the tools of the steps
        `answered` have asked people. All values, where this release can't read the workflow."""
        key = (tenant, workflow, tuple(sorted(pin.sha256 for pin in pins.values())), answered)
        personal = self._known.get(key)
        if personal is None:
            if answered:
                personal = await _derive(await self.of(tenant, workflow, pins), answered)
            else:
                personal = await self._find(tenant, workflow, pins)
            self._known[key] = personal
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return personal

    async def of_run(self, tenant: UUID, workflow: bytes, state: RunState) -> Personal:
        """The personal values of a run of the workflow, with those that its tools have asked people for."""
        return await self.of(tenant, workflow, state.pins, list_personal_forms(state))

    async def _find(self, tenant: UUID, workflow: bytes, pins: Mapping[str, Pin]) -> Personal:
        children: dict[str, Plan] = {}
        try:
            plan = await self._catalog.plan(tenant, workflow)
            for reference, pin in pins.items():
                children[reference] = await self._catalog.plan(tenant, bytes.fromhex(pin.sha256))
        except Unreadable:
            return WHOLE

        def child(run: Run) -> Plan | None:
            return children.get(reference_of(run))

        if len(plan.steps) <= _FEW_STEPS:
            return derive_personal(plan, child)
        return await compiling.make(derive_personal, plan, child)


async def _derive(personal: Personal, answered: frozenset[str]) -> Personal:
    return await compiling.make(personal.after_answers, answered) if personal.depends_on_answers else personal
