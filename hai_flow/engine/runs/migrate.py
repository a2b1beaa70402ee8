"""Whether a run may go on with another version of its workflow, and its changes if it does. Every step that it knows
must be there under its path, or one that it is given, in the same blocks and with the same verb, and whatever people
were shown must be as the new version shows it (docs/language.md#people). Where in doubt the answer is no. Values that
were fixed at an opening stay: rules and deadline of a pending, a loop's items, arguments in flight. `withdraw_when` is
the new version's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from hai_flow.definition.diff import diff, to_plain
from hai_flow.definition.names.wording import article
from hai_flow.definition.paths import plan_path, rename_path
from hai_flow.definition.plan import (
    BLOCKS,
    EFFECTS,
    Approve,
    Ask,
    Call,
    FrontendTool,
    Plan,
    Step,
    Template,
)
from hai_flow.engine import events as e
from hai_flow.engine.blocks import block_of
from hai_flow.engine.commands import Principal
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.pendings import bypass, votes
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.state import PendingState, RunState, StepState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import spend
from hai_flow.values import Json

MOVABLE: Final = frozenset({"queued", "waiting", "paused", "needs_attention"})
_COMPARE_WORK: Final = 50  # microseconds to compare two plans, for each of their steps
_OPEN: Final = frozenset({"running", "waiting"})


class Obstacle(msgspec.Struct, frozen=True):
    """Why the run can't move. `path` is the step (in the old version) at which it can't, "" the run itself."""

    code: str
    path: str
    message: str

    def as_dict(self) -> dict[str, Json]:
        return msgspec.to_builtins(self)


class Move(msgspec.Struct, frozen=True):
    """The changes of a migration, or every obstacle to it. The rest as in the event `Migrated`."""

    obstacles: tuple[Obstacle, ...] = ()
    paths: dict[str, str] = {}
    input: Json = None
    state: Json = None


def examine(
    old: Plan, new: Plan, state: RunState, mapping: Mapping[str, str], now: int, who: Principal | None = None
) -> Move:
    """The changes with which a run of `old` in `state` goes on with `new`, or the obstacles.

    `mapping`: ids or paths of steps, old -> new, where they are called otherwise; steps inside go with them. `who`
    moves it; None: that was judged before."""
    obstacles = list(_run_obstacles(old, new, state))
    paths, unknown = _paths(old, new, mapping)
    obstacles += unknown
    if not unknown:
        obstacles += _find_steps_obstacles(old, new, state, paths)
    if not unknown and who is not None:
        obstacles += find_less_asked(old, new, state, who, paths)
    input, state_now = _fill_defaults(new, state)
    obstacles += _find_value_obstacles(new, input, state_now)
    if obstacles:
        return Move(tuple(obstacles))
    move = Move((), paths, None if input == state.input else input, None if state_now == state.state else state_now)
    obstacles += _find_question_obstacles(old, new, state, apply_move(new, state, move, now), paths, now)
    if obstacles:
        return Move(tuple(obstacles))
    return move


def move(
    draft: Draft,
    was: Plan,
    *,
    by: str,
    to: Plan | None = None,
    paths: Mapping[str, str],
    dev: bool,
    pins: Mapping[str, e.Pin],
    who: Principal | None = None,
) -> None:
    """The run, which was one of `was`, goes on with the version `to` (that of the draft). Raises `Rejected` 409 with
    all obstacles."""
    plan, state = to or draft.plan, draft.state
    migration = examine(was, plan, state, paths, draft.now, who)
    if migration.obstacles:
        raise refuse_migration(plan, migration.obstacles)
    draft.emit(
        e.Migrated,
        by=by,
        version=plan.version,
        sha256=plan.sha256.hex(),
        dev=dev,
        paths=migration.paths,
        pins={name: pin for name, pin in pins.items() if name not in state.pins},
        input=migration.input,
        state=migration.state,
    )


def find_less_asked(old: Plan, new: Plan, state: RunState, who: Principal, paths: Mapping[str, str]) -> list[Obstacle]:
    """The obstacles to who is behind the run: people that the new version would not ask, or by other rules."""
    return [
        Obstacle("question.changed", *each) for each in bypass.list_obstacles_to_move(old, new, state, who, dict(paths))
    ]


def refuse_migration(plan: Plan, obstacles: Sequence[Obstacle]) -> Rejected:
    """The refusal of a move to the version, with all its obstacles."""
    return Rejected(
        409,
        "migration_refused",
        f"the run can't move to {plan.name}@{plan.version}: {obstacles[0].message}",
        findings=[obstacle.as_dict() for obstacle in obstacles],
    )


def apply_move(new: Plan, state: RunState, move: Move, now: int) -> RunState:
    """The state of a run behind a migration to the plan `new` that has no obstacles."""
    event = e.Migrated(
        at=max(now, state.at),
        by="",
        version=new.version,
        sha256=new.sha256.hex(),
        paths=move.paths,
        input=move.input,
        state=move.state,
    )
    return evolve(state, event)


# --- the run ----------------------------------------------------------------------------------------------------------


def _run_obstacles(old: Plan, new: Plan, state: RunState) -> Iterator[Obstacle]:
    if new.name != old.name:
        yield Obstacle("workflow.other", "", f"{new.name} is another workflow than {old.name}.")
    if state.ended:
        yield Obstacle("run.ended", "", f"the run has ended: it is {state.status}.")
    elif state.status not in MOVABLE:
        hint = "" if state.status == "stopping" else "; pause it, and wait until its attempts have ended"
        yield Obstacle("run.busy", "", f"the run is {state.status}{hint}.")
    for path in sorted(state.attempts):
        what = "waits for its child run" if path in state.children else "is being performed"
        yield Obstacle("step.in_flight", path, f"{path} {what}; wait until that has ended.")


def _fill_defaults(new: Plan, state: RunState) -> tuple[Json, Json]:
    """Input and state, with the additions of the new version's defaults."""
    input = new.input.with_defaults(state.input)
    if not isinstance(state.state, dict):
        return input, state.state
    added = {name: each.default for name, each in new.state.items() if name not in state.state}
    return input, {**state.state, **added}


def _find_value_obstacles(new: Plan, input: Json, state: Json) -> Iterator[Obstacle]:
    for fault in new.input.fit(input)[1]:
        yield Obstacle(
            "input.invalid", "", f"the run's input does not fit: {fault['path'] or '/'}: {fault['message']}."
        )
    for fault in new.state_schema.fit(state)[1]:
        yield Obstacle(
            "state.invalid", "", f"the run's state does not fit: {fault['path'] or '/'}: {fault['message']}."
        )


# --- its steps --------------------------------------------------------------------------------------------------------


def _paths(old: Plan, new: Plan, mapping: Mapping[str, str]) -> tuple[dict[str, str], list[Obstacle]]:
    paths: dict[str, str] = {}
    unknown: list[Obstacle] = []
    for was, now in mapping.items():
        before, after = old.ids.get(was, was), new.ids.get(now, now)
        if before not in old.steps:
            unknown.append(Obstacle("map.unknown", was, f"map: {old.name}@{old.version} has no step {was!r}."))
        elif after not in new.steps:
            unknown.append(Obstacle("map.unknown", was, f"map: {new.name}@{new.version} has no step {now!r}."))
        elif before != after:
            paths[before] = after
    return paths, unknown


def _find_steps_obstacles(old: Plan, new: Plan, state: RunState, paths: dict[str, str]) -> Iterator[Obstacle]:
    instances: dict[str, list[tuple[str, StepState | None]]] = {}  # by path of the plan: its instances
    for path, step in sorted(state.steps.items(), key=lambda entry: entry[0]):
        if path:
            instances.setdefault(plan_path(path), []).append((path, step))
    for path in state.ready:
        if path and path not in state.steps:
            instances.setdefault(plan_path(path), []).append((path, None))
    old_paths: dict[str, str] = {}
    guess: Mapping[str, str] | None = None
    for path in (path for path in old.steps if path in instances):
        now = rename_path(path, paths)
        if now not in new.steps:
            if guess is None:
                spend(_COMPARE_WORK * (len(old.steps) + len(new.steps)))
                guess = diff(old, new).same
            hint = f"; it looks like {guess[path]}: map {path}={guess[path]}" if path in guess else ""
            yield Obstacle("step.gone", path, f"{path} is not in {new.name}@{new.version}{hint}.")
            continue
        if old_paths.setdefault(now, path) != path:
            yield Obstacle("map.twice", path, f"{path} and {old_paths[now]} would both be {now}.")
        yield from _find_step_obstacles(old.steps[path], new.steps[now], state, instances[path], paths)


def _find_step_obstacles(
    was: Step, now: Step, state: RunState, instances: list[tuple[str, StepState | None]], paths: dict[str, str]
) -> Iterator[Obstacle]:
    path = was.path
    if (now.parent, now.body) != (rename_path(was.parent, paths), was.body):
        yield Obstacle("step.elsewhere", path, f"{path} stands in another block there, at {now.path}.")
    started = [(at, step) for at, step in instances if step is not None]
    if not started:
        return
    if type(now.verb) is not type(was.verb):
        yield Obstacle("step.verb", path, f"{path} is {article(was.verb_name)} and would be {article(now.verb_name)}.")
        return
    opened = [(at, step) for at, step in started if step.status in _OPEN]
    if now.path != path and (why := _explain_kept_path(was, state, started)):
        yield Obstacle("step.bound", path, f"{path} can't be renamed to {now.path}: {why}.")
    if any(at in state.undoables for at, _ in started) and now.undo is None:
        yield Obstacle("step.undo", path, f"{path} is done and can be undone; there it has no `undo`.")
    if opened and _describe_performed(was) != _describe_performed(now):
        yield Obstacle("step.effect", path, f"{path} has begun and would do something else: {_call(was, now)}.")
    why = block_of(was).may_move(was, now) if opened and isinstance(was.verb, BLOCKS) else None
    if why is not None:
        yield Obstacle(f"step.{why.code}", path, why.message)


def _explain_kept_path(step: Step, state: RunState, begun: Iterable[tuple[str, StepState]]) -> str:
    """Why the step must keep its path: somebody out there knows it by that. "" = it need not."""
    for at, step_state in begun:
        if at in state.open_pendings or (step_state.status in _OPEN and step_state.asked):
            return "its path is part of what people were asked"
        if at in state.subscriptions:
            return "it waits for signals under its path"
        if isinstance(step.verb, EFFECTS) and step_state.attempt and step_state.status not in ("finished", "skipped"):
            return "its idempotency key is made of its path"
    return ""


def _describe_performed(step: Step) -> Json:
    """The effect of a step, apart from its arguments: those were fixed when it began."""
    return [step.verb.function, to_plain(step.verb.tool)] if isinstance(step.verb, Call) else None


def _call(was: Step, now: Step) -> str:
    names = [to_plain(step.verb.tool)["name"] for step in (was, now) if isinstance(step.verb, Call)]
    return f"it calls {' and would call '.join(names)}" if len(set(names)) > 1 else f"its tool {names[0]} has changed"


# --- what people were shown -------------------------------------------------------------------------------------------


def list_bound_pendings(state: RunState) -> list[PendingState]:
    """The pendings whose digest will be looked at again: open ones, and passed gates whose effect has not begun."""
    return [pending for pending in state.pendings.values() if pending.status == "open" or _is_unused(state, pending)]


def _is_unused(state: RunState, pending: PendingState) -> bool:
    opened, step = pending.opened, state.steps.get(pending.opened.path)
    passed = opened.kind == "gate" and pending.status in (votes.APPROVE, "expired")
    return passed and step is not None and step.status == "running" and not step.attempt


def _find_question_obstacles(
    old: Plan, new: Plan, state: RunState, moved: RunState, paths: dict[str, str], now: int
) -> Iterator[Obstacle]:
    draft = Draft(new, moved, max(now, state.at), DEFAULT_BOUNDS)
    for pending in list_bound_pendings(state):
        path = pending.opened.path
        was, target = old.steps[plan_path(path)], draft.step(rename_path(path, paths))
        if pending.opened.kind == "gate" and target.approval is None:
            yield Obstacle("pending.gone", path, f"{path} waits for approval, and there it has none.")
            continue
        changed = [part for part, same in _contents(draft, pending, was, target) if not same]
        if changed:
            what = ", ".join(changed)
            yield Obstacle(
                "pending.content", path, f"{path} would show people something else than they were shown: {what}."
            )


def _contents(draft: Draft, pending: PendingState, was: Step, now: Step) -> Iterator[tuple[str, bool]]:
    """(part of a pending's content, whether it stays as it is): it is written as before, or comes to the same text."""
    opened, before, after = pending.opened, _asks(was), _asks(now)
    roots = {"args": msgspec.json.decode(opened.args)} if opened.args is not None else {}

    def same(part: str, shown: Json, *, text: bool = False) -> bool:
        template = after.get(part)
        if to_plain(template) == to_plain(before.get(part)):
            return True
        if template is None or not hasattr(template, "render"):
            return template == shown
        return _render_or_differ(draft, template, now, roots, text=text) == shown

    if opened.kind in ("ask", "approve", "gate"):
        yield "title", same("title", opened.title, text=True)
        yield "message", same("message", opened.message, text=True)
        yield "form", same("form", opened.schema)
    if opened.kind in ("approve", "gate"):
        yield "options", same("options", opened.options)
        yield "evidence", same("evidence", None if opened.evidence is None else msgspec.json.decode(opened.evidence))
    if opened.kind == "gate":
        evidence = {} if opened.evidence is None else msgspec.json.decode(opened.evidence)
        yield "still", same("still", evidence.get("still"))
    if opened.kind == "tool":
        yield "result", same("result", opened.schema)
    if opened.args is not None:
        # people's edits are kept: the arguments stay, as long as the document says the same
        yield "arguments", same("with", None if pending.edits is not None else roots["args"])


def _asks(step: Step) -> dict[str, Any]:
    """The contents that a step shows people, by part."""
    verb = step.verb
    if isinstance(verb, Ask | Approve):
        evidence = verb.evidence if isinstance(verb, Approve) else None
        contents: dict[str, Any] = {"title": verb.title, "message": verb.message, "evidence": evidence}
        return {**contents, "form": verb.policy.form, "options": verb.policy.options}
    contents = {"with": getattr(verb, "arguments", None)}
    if isinstance(verb, Call) and isinstance(verb.tool, FrontendTool):
        contents["result"] = None if verb.tool.result is None else verb.tool.result.raw
    if step.approval is not None:
        gate = step.approval
        contents |= {"title": gate.title, "message": gate.message, "form": gate.policy.form}
        contents |= {"options": gate.policy.options, "still": gate.still}
    return contents


def _render_or_differ(draft: Draft, template: Template, step: Step, roots: dict[str, Json], *, text: bool) -> Json:
    """The part as the new version would show it now; something that equals nothing, if that fails."""
    try:
        return draft.text(template, step, **roots) if text else draft.render(template, step, **roots)
    except Raised:
        return _FAILED


_FAILED: Final = object()
