"""State that others than the run's own steps may write: a client, the thread's last run, and the person that edits a
fork.

A client posts all the state that it has, for it is the server's own back again. So variables that it may not write are
not judged; the others are held against their schemas, and refused with every fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hai_flow import values
from hai_flow.definition.plan import Plan, StateVariable
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.draft import Draft
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.state.patch import OPERATIONS_MAX, is_same_json
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.json_pointers import pointer_of
from hai_flow.values import Json

STATE_BYTES_MAX: Final = 1024 * 1024


def has_kept_state(plan: Plan) -> bool:
    """Whether a run of it goes on with anything that the one before it in its thread has left."""
    return any(variable.kept for variable in plan.state.values())


def build_first_state(plan: Plan, kept: Mapping[str, Json], posted: Mapping[str, Json]) -> dict[str, Json]:
    """The state that a run begins with: the defaults, those of its thread (`kept`), and over them those of the client
    (`posted`).

    A value kept by another version that does not fit this one is left. Raises `Rejected` 422 as `take_client_changes`.
    """
    state = {name: variable.default for name, variable in plan.state.items()}
    for name, variable in plan.state.items():
        if variable.kept and name in kept and not _faults(variable, kept[name]):
            state[name] = kept[name]
    return {**state, **take_client_changes(plan, state, posted)}


def can_write(state: RunState, by: c.Principal) -> bool:
    """Whether the state that this client posts counts: it is the requester, or acts on the requester's behalf. An
    answerer decides the question, and nothing else."""
    return state.requester in ids_of(by)


def write(draft: Draft, posted: Mapping[str, Json]) -> None:
    """Take over the state that the client has written. Before a turn opens: its snapshot then has it. Raises `Rejected`
    422."""
    _change(draft, take_client_changes(draft.plan, draft.state.state, posted))


def _change(draft: Draft, changes: Mapping[str, Json]) -> None:
    state = draft.state.state
    ops = [
        {"op": "replace" if name in state else "add", "path": pointer_of(name), "value": value}
        for name, value in changes.items()
    ]
    for start in range(0, len(ops), OPERATIONS_MAX):  # a patch has no more, and a workflow may have more variables
        draft.emit(e.StateChanged, path="", ops=tuple(ops[start : start + OPERATIONS_MAX]))


def edit(draft: Draft, given: Json) -> None:
    """Take over variables from a person with the right to control the run, also those that a client may not write.
    Raises `Rejected` 422."""
    plan, state = draft.plan, draft.state.state
    if not isinstance(given, dict):
        raise Rejected(422, "state.invalid", f"/state: expected an object of variables, found {given!r:.60}.")
    findings = [
        {
            "path": f"/state{pointer_of(name)}",
            "message": f"{plan.name}@{plan.version} has no variable {name!r}",
            "code": "value.no_variable",
            "params": [name],
        }
        for name in given
        if name not in plan.state
    ]
    changes = {name: value for name, value in given.items() if name in plan.state}
    _demand_fit(plan, state, changes, findings)
    _change(draft, changes)


def write_above(draft: Draft, posted: Mapping[str, Json]) -> None:
    """Take over the state that came with an answer to a question of a run below. The answer is decided there, so a
    value that does not fit is left out here, with a warning."""
    try:
        write(draft, posted)
    except Rejected as rejected:
        draft.emit(e.WarningRaised, code=rejected.code, message=rejected.detail)
    draft.posted_state = posted


def filter_visible_changes(plan: Plan, before: Mapping[str, Json] | None, now: Mapping[str, Json]) -> dict[str, Json]:
    """The state that a child run newly shows: all of it that is shown, if there was none `before`."""
    return {
        name: now[name]
        for name, variable in plan.state.items()
        if variable.shown and name in now and (before is None or not is_same_json(before.get(name), now[name]))
    }


def take_client_changes(plan: Plan, state: Mapping[str, Json], posted: Mapping[str, Json]) -> dict[str, Json]:
    """The posted variables that the client may write, and that differ from `state`. Raises `Rejected` 422."""
    changes = {
        name: posted[name]
        for name, variable in plan.state.items()
        if variable.client and name in posted and not is_same_json(posted[name], state.get(name))
    }
    _demand_fit(plan, state, changes)
    return changes


def _demand_fit(
    plan: Plan, state: Mapping[str, Json], changes: Mapping[str, Json], findings: Sequence[Json] = ()
) -> None:
    """Raises `Rejected` 422 where there are findings, of these changes or from before."""
    faults = [
        *findings,
        *(
            {**fault, "path": f"/state{pointer_of(name)}{fault['path']}"}
            for name, value in changes.items()
            for fault in _faults(plan.state[name], value)
        ),
    ]
    if faults:
        first = faults[0]
        detail = (
            f"{first['path']}: {first['message']}; the posted state does not fit workflow {plan.name}@{plan.version}."
        )
        raise Rejected(422, "state.invalid", detail, findings=faults)
    if changes and len(values.dumps({**state, **changes})) > STATE_BYTES_MAX:
        raise Rejected(422, "state.invalid", f"the state would be larger than {STATE_BYTES_MAX} bytes.")


def _faults(variable: StateVariable, value: Json) -> list[dict[str, Any]]:
    """Why the value can't be the variable's. One without a default may be null, whatever its schema says."""
    if value is None and "default" not in variable.schema.raw:
        return []
    return variable.schema.fit(value)[1]
