"""The build backend: hatchling, which gets Node where a wheel is built.

An editable installation builds no pages, so it does not wait for Node: a checkout builds them when they are looked at.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)
from hatchling.build import get_requires_for_build_wheel as _requires_for_wheel

sys.path.insert(0, str(Path(__file__).resolve().parent))

from building import NODE_PACKAGE, is_built

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """The requirements of hatchling and, unless the pages are built already, Node."""
    return [*_requires_for_wheel(config_settings), *([] if is_built() else [NODE_PACKAGE])]
