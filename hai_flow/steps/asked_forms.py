"""Forms that a tool of others wants to have filled in by a person: taken only where they can be shown and answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow import values
from hai_flow.definition.schemas.schemas import compile_schema, fault_of_size
from hai_flow.values import Json

FORM_BYTES_MAX: Final = 32 * 1024


def find_form_fault(form: Mapping[str, Json], bytes_max: int = FORM_BYTES_MAX) -> str | None:
    """Why the form is not taken; None: it is. It is compiled, which may take long: not to be called on the loop."""
    try:
        size = len(values.dumps(values.check(form)))
    except values.NotJson as error:
        return f"its form is no plain JSON: {error}"
    if size > bytes_max:
        return "its form is too large"
    faults: list[str] = []
    compile_schema(form, lambda path, code, fault: faults.append(fault))
    return f"its form is wrong: {faults[0]}" if faults else fault_of_size(form)
