"""Bugs of the runtime."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room
from tests.mutants.operators import Target

ROOMS: Final[tuple[Room, ...]] = ()
TARGETS: Final[tuple[Target, ...]] = ()
