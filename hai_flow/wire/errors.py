"""The words of an error that a client may read."""

from __future__ import annotations

from hai_flow.definition.fields import RESERVED_PREFIXES
from hai_flow.engine import events as e


def error_message(error: e.Error) -> str:
    """The author's words for an error that the author raised (`fail`, rejections); else only the place where it
    happened.

    Nothing else may reach a client (docs/design/protocols.md#errors-for-clients). An error with an attempt comes from
    an effect, even if its code looks like an author's: its message may quote another system.
    """
    prefix, dot, _ = error.code.partition(".")
    authored = not error.attempt and not (prefix in RESERVED_PREFIXES and dot)
    if authored or prefix == "approval":
        return error.message
    return f"Step {error.path} failed." if error.path else "The run failed."
