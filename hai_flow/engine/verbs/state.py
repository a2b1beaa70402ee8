"""`set`: the run changes its own state, as one change that fits the types of its variables."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from hai_flow import values
from hai_flow.definition.names.wording import kind_of
from hai_flow.definition.plan import Set, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.patch import PatchError, apply_patch
from hai_flow.engine.state.shared_state import STATE_BYTES_MAX
from hai_flow.primitives.beside_loop import is_large
from hai_flow.primitives.json_pointers import parse_pointer, pointer_of
from hai_flow.values import Json

_OF_NUMBERS: Final[dict[str, tuple[str, Callable[[Json, Json], Json]]]] = {
    "max": ("keeps the larger number", max),
    "min": ("keeps the smaller number", min),
    "add": ("is a sum of numbers", operator.add),
}


def begin(draft: Draft, step: Step) -> Consequence | None:
    verb = step.verb_as(Set)
    ops = _build_operations(draft, step, verb)
    if is_large(ops, 16 * STATE_BYTES_MAX):  # before all of it is written down
        raise _larger_than_allowed()
    try:
        after = apply_patch(draft.state.state, ops)
    except PatchError as error:
        raise Raised("state.invalid", f"The change of state does not apply: {error}.") from None
    findings = draft.plan.state_schema.fit(after)[1]
    if findings:
        faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in findings)
        data: Json = [{"path": f["path"], "message": f["message"]} for f in findings]  # the log has these two
        raise Raised("state.invalid", f"The state would not fit its types: {faults}.", data)
    if len(values.dumps(after)) > STATE_BYTES_MAX:
        raise _larger_than_allowed()
    draft.record_start(step)
    draft.pure_steps += 1
    draft.rendered_bytes += len(values.dumps(ops))
    draft.emit(e.StateChanged, path=step.path, ops=tuple(ops))
    return FinishStep(step)


def _build_operations(draft: Draft, step: Step, verb: Set) -> list[dict[str, Json]]:
    if verb.ops is not None:
        return draft.render(verb.ops, step)
    document, ops = draft.state.state, []
    for key, template in verb.assign:
        value = draft.render(template, step)
        op = _build_pointer_operation(document, key, value) if key.startswith("/") else None
        ops.append(op or _build_variable_operation(draft, document, key, value))
        try:
            document = apply_patch(document, ops[-1:])
        except PatchError as error:
            raise Raised("state.invalid", f"{key} can't be set: {error}.") from None
    return ops


def _build_pointer_operation(document: Json, pointer: str, value: Json) -> dict[str, Json]:
    try:
        parts = parse_pointer(pointer)
        apply_patch(document, [{"op": "replace", "path": pointer, "value": value}])
    except PatchError:
        return {"op": "add", "path": pointer, "value": value}
    return {"op": "replace", "path": pointer_of(*parts), "value": value}


def _build_variable_operation(draft: Draft, document: Json, name: str, value: Json) -> dict[str, Json]:
    reduce, before = draft.plan.state[name].reduce, document.get(name)
    path = pointer_of(name)
    if reduce == "append":
        if isinstance(before, list):
            return {"op": "add", "path": path + "/-", "value": value}
        value = [value]
    elif reduce == "merge" and isinstance(before, dict):
        if not isinstance(value, dict):
            raise Raised("state.invalid", f"{name} is merged: expected a map, found {kind_of(value)}.")
        value = {**before, **value}
    elif reduce in _OF_NUMBERS and before is not None:
        what, combine = _OF_NUMBERS[reduce]
        if isinstance(before, bool) or isinstance(value, bool):
            raise Raised("state.invalid", f"{name} {what}; found {kind_of(value)}.")
        try:
            value = combine(before, value)
        except TypeError:
            raise Raised("state.invalid", f"{name} {what}; found {kind_of(value)}.") from None
    return {"op": "replace" if name in document else "add", "path": path, "value": value}


def _larger_than_allowed() -> Raised:
    return Raised("state.invalid", f"The state would be larger than {STATE_BYTES_MAX} bytes.")


VERBS: Final = {Set: begin}
