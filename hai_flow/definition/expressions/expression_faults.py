"""The faults of an expression that can't be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpressionFault:
    """A mistake in an expression; `offset` counts characters from the beginning of its source."""

    offset: int
    code: str
    message: str


class Faults(Exception):
    """An expression that can't be compiled, with every fault found."""

    def __init__(self, faults: Sequence[ExpressionFault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = tuple(faults)
