"""Regular expressions that are compiled when something is first matched with them. Pure.

For those that take milliseconds, with large classes or many words, in modules that every process imports."""

from __future__ import annotations

import re
from typing import Any, cast


class _LatePattern:
    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._source), name)
        setattr(self, name, method)
        return method


def compile_late(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`; what is wrong with the pattern is raised with its first use."""
    return cast("re.Pattern[str]", _LatePattern(pattern, flags))
