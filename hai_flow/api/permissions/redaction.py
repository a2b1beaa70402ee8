"""Rows of lists without the personal values that are kept from the caller; `None`: nothing is kept. Pure."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from hai_flow import values
from hai_flow.definition.personal.personal import Personal
from hai_flow.definition.personal.pii_marks import mask_object, mask_value
from hai_flow.engine.events import Error
from hai_flow.engine.state.state import MessageState
from hai_flow.store.runs.run_lists import RunRow
from hai_flow.wire.dialects.dialect import Entry
from hai_flow.wire.personal import message, strip_personal, tool_call


def strip_row(run: RunRow, personal: Personal | None) -> RunRow:
    """A run without its personal input, output and error."""
    if personal is None or not personal.anything:
        return run
    input, result = run.input, run.result
    if input is not None:
        input = values.dumps(mask_object(values.loads(input), personal.input))
    if result is not None:
        ended = values.loads(result)
        if "output" in ended:
            ended["output"] = mask_value(ended["output"], personal.output)
        if ended.get("error") is not None:
            error = strip_personal(msgspec.convert(ended["error"], Error), personal)
            ended["error"] = msgspec.to_builtins(error)
        result = values.dumps(ended)
    return replace(run, input=input, result=result)


def strip_entry(entry: Entry, personal: Personal | None) -> Entry:
    """A message or a call of a thread."""
    if personal is None or not personal.anything:
        return entry
    return message(entry, personal) if isinstance(entry, MessageState) else tool_call(entry, personal)
