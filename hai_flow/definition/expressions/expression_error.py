"""The error of an expression that fails when it is evaluated."""

from __future__ import annotations


class ExpressionError(Exception):
    """An expression that failed at run time. `code` is one of expression.error, .absent, .budget, .too_large."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
