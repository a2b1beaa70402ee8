"""HAI Flow: declarative workflows that wait for people, in PostgreSQL.

The names listed here are public; everything else may change without notice."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hai_flow.errors import DefinitionError, Finding, HaiFlowError, Rejected, StepError, StoreError
    from hai_flow.steps.tools import Context, tool

__version__ = "0.1.0"

__all__ = [
    "Context",
    "DefinitionError",
    "Finding",
    "HaiFlowError",
    "Rejected",
    "StepError",
    "StoreError",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    """The public names, imported when the first of them is used: every command begins with this file."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "hai_flow.steps.tools" if name in ("Context", "tool") else "hai_flow.errors"
    value = globals()[name] = getattr(importlib.import_module(place), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
