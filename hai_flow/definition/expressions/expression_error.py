"""The errors of expressions: of those that can't be compiled, and of those that fail when they are evaluated."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class ExpressionError(Exception):
    """An expression that failed at run time. `code` is one of expression.error, .absent, .budget, .too_large."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ExpressionFault(msgspec.Struct, frozen=True):
    """A mistake in an expression; `offset` counts characters from the beginning of its source."""

    offset: int
    code: str
    message: str


class Faults(Exception):
    """An expression that can't be compiled, with every fault found."""

    def __init__(self, faults: Sequence[ExpressionFault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = tuple(faults)
