"""What each server of a test would work out first, worked out in the nursery before it is forked: half of its start."""

from __future__ import annotations

import importlib
from typing import Final

from hai_flow.api.app import create_app
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import ApiTrigger
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from hai_flow.steps.tools import registered
from tests.support.effects import MODULES
from tests.support.forking import ROOT

PLANS: Final = {
    path.name: compile_workflow(path.read_bytes(), path.name)
    for path in sorted((ROOT / "workflows").glob("*.flow.yaml"))
}
for _plan in PLANS.values():
    assert all(isinstance(each, ApiTrigger) for each in _plan.triggers), "to store it is not enough to publish it"

_SETTINGS: Final = Settings()
create_app(_SETTINGS, Runtime("postgresql://", _SETTINGS, performs=True))  # caches what all of them have in common
for _name in MODULES:
    importlib.import_module(_name)
    for _function in registered.of(_name).values():
        assert _function.signature
