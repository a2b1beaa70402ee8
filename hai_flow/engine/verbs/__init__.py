"""How each verb begins that is no block. A pure step also ends with that; effects and questions stay open.

A module names its verbs and how they begin as `VERBS`; the modules of this package are found by themselves, so a new
verb is one function in one file here. It returns its consequence, or None. It may raise `Raised`: then the step fails.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, TypeAlias

from hai_flow.definition.plan import Step
from hai_flow.engine.completion.consequences import Consequence
from hai_flow.engine.draft import Draft

Begin: TypeAlias = Callable[[Draft, Step], Consequence | None]

VERBS: Final[dict[type, Begin]] = {}
for _module in iter_modules(__path__):
    VERBS.update(import_module(f"{__name__}.{_module.name}").VERBS)
