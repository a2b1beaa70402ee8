"""Findings about steps together: steps that can't be reached, writes at once, waits in cleaning up.

Everything here reads the outline alone; each rule looks at a list, a block or a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hai_flow.definition import plan
from hai_flow.definition.fields import texts
from hai_flow.definition.names.visible_steps import END
from hai_flow.definition.names.wording import article, suggestion
from hai_flow.definition.raw_steps import LEAVING, Clause, Enclosure, StepDraft, find_loop_around, is_end_certain
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.language import VERBS
from hai_flow.primitives.json_pointers import unescape
from hai_flow.values import Json


def lint(context: StepContext) -> None:
    """Check all steps, and report findings to the reader of `context`."""
    linter = _Linter(context)
    linter.report_unreachable()
    for step in context.outline.every:
        linter.check(step)


class _Linter:
    def __init__(self, context: StepContext) -> None:
        self.context = context
        self.declared = context.declared
        self.outline = context.outline
        self.first_end: int | None = None  # not looked for yet
        self.reader = context.reader

    def report_unreachable(self) -> None:
        for before, following in self.outline.list_unreachable():
            message = f"this step can't be reached: `{before.verb}` before it always ends the list; remove one"
            self.reader.warning(following.at, "step.unreachable", message)

    def check(self, step: StepDraft) -> None:
        """Report what is wrong with one step among those around and inside of it."""
        if step.verb == "return":
            self._report_return_in_loop(step)
        if step.verb in LEAVING:
            self._leaving(step)
        if step.verb in ("parallel", "for_each"):
            self._report_concurrent_writes(step)
        if step.verb == "run":
            self._report_self_start(step)
        if step.catch:
            self._report_shadowed(step)
        if step.chain:
            self._report_waiting_cleanup(step)
        self._delivery(step)
        self._decisions(step)

    def _report_return_in_loop(self, step: StepDraft) -> None:
        loop = next((frame.owner for frame in reversed(step.chain) if frame.is_item), None)
        if loop is not None:
            message = (
                f"`return` ends the whole run, not the iteration of `{loop.id}`; `continue` skips the rest of an "
                f"iteration, `break` leaves the loop"
            )
            self.reader.warning((*step.at, "return"), "return.in_for_each", message, key=True)

    def _report_shadowed(self, step: StepDraft) -> None:
        """Report a clause of `catch` that never takes an error: clauses before it take all of its own."""
        before: set[str] = set()
        takes_failures = False  # a clause without `errors`
        for clause in step.catch:
            errors = clause.fields.get("errors", ())
            patterns = [each for each in errors if isinstance(each, str)] if isinstance(errors, list | tuple) else []
            covered = [
                each
                for each in patterns
                if any(_covers(other, each) for other in before)
                or (takes_failures and each != "*" and not each.startswith(("approval.", "limit.")))
            ]
            takes_failures = takes_failures or "errors" not in clause.fields
            if patterns and len(covered) == len(patterns):
                message = (
                    f"this clause never takes an error: a clause before it takes `{covered[0]}` already; put it first, "
                    "or remove it"
                )
                self.reader.warning(clause.at, "catch.shadowed", message)
            before.update(patterns)
        if step.fields.get("continue_on_error") is True and any(
            not clause.fields.get("errors") for clause in step.catch
        ):
            message = "this does nothing: a clause of `catch` without `errors` takes everything before; leave one out"
            self.reader.warning((*step.at, "continue_on_error"), "catch.shadowed", message, key=True)

    def _report_self_start(self, step: StepDraft) -> None:
        """Report a `run` of this very workflow that every run of it reaches: each waits for the next one, for ever."""
        named, own = step.fields.get("run"), self.declared
        if named not in (own.name, f"{own.name}@{own.version}") or step.fields.get("detach") is True:
            return
        if _is_conditional(step) or any(_is_maybe(frame) for frame in step.chain):
            return
        if self.first_end is None:
            self.first_end = _find_first_end(self.outline.steps)
        if self.first_end < step.order:
            return
        message = f"each run of `{own.name}` starts the next one here, without end; give the step an `if`"
        self.reader.warning((*step.at, "run"), "run.itself", message)

    def _leaving(self, step: StepDraft) -> None:
        if find_loop_around(step.chain) is not None:
            return
        body = next((frame.body for frame in reversed(step.chain) if frame.body in ("~undo", "~finally")), None)
        message = f"`{step.verb}` stands inside of a `for_each` or `repeat`, and there is none around it"
        if body is not None:
            message = (
                f"`{step.verb}` can't leave {article(body[1:])}: what cleans up runs to its end; move the loop into it"
            )
        elif step.verb == "break":
            message += "; `return` ends the run"
        self.reader.error((*step.at, step.verb), f"{step.verb}.no_loop", message, key=True)

    # -- cleaning up -----------------------------------------------------------------------------------------------

    def _report_waiting_cleanup(self, step: StepDraft) -> None:
        """Report steps in `undo` and `finally` that wait for people or events: a stop must always come to an end."""
        body = next((frame.body for frame in step.chain if frame.body in ("~undo", "~finally")), None)
        if body is None:
            return
        word = body[1:]
        waiting_verb = (
            step.verb if step.verb and not VERBS[step.verb].cleans else "approval" if "approval" in step.fields else ""
        )
        if waiting_verb:
            message = f"`{word}` can't contain `{waiting_verb}`: a stop always has to end; move it out"
            self.reader.error((*step.at, waiting_verb), "cleanup.waits", message, key=True)
        elif step.verb == "call" and self._is_waiting_for_client(step.fields.get("call")):
            message = f"`{word}` can't call the frontend tool `{step.fields['call']}`: a stop always has to end"
            self.reader.error((*step.at, "call"), "cleanup.waits", message)
        elif step.verb == "agent":
            tools = step.fields["agent"].get("tools") if isinstance(step.fields.get("agent"), Mapping) else None
            for index, tool in enumerate(tools if isinstance(tools, list) else ()):
                if self._is_waiting_for_client(tool):
                    message = f"`{word}` can't offer the frontend tool `{tool}`: a stop always has to end; remove it"
                    self.reader.error((*step.at, "agent", "tools", index), "cleanup.waits", message)

    def _is_waiting_for_client(self, name: Json) -> bool:
        tool = self.declared.tools.get(name.partition(".")[0]) if isinstance(name, str) else None
        return isinstance(tool, plan.FrontendTool) and tool.answered

    # -- deliveries and decisions ----------------------------------------------------------------------------------

    def _delivery(self, step: StepDraft) -> None:
        if step.fields.get("delivery") == "at_most_once" and "retry" in step.fields:
            message = "`retry` would perform it again, and `delivery: at_most_once` forbids that; remove one of them"
            self.reader.error((*step.at, "retry"), "delivery.retry", message, key=True)
        key = step.fields.get("idempotency_key")
        if isinstance(key, str) and "${{" not in key and not 1 <= len(key) <= 255:
            message = f"expected an idempotency key of 1 to 255 characters, found {len(key)}"
            self.reader.error((*step.at, "idempotency_key"), "idempotency_key.length", message)

    def _decisions(self, step: StepDraft) -> None:
        """Handlers and options fit each other."""
        word = "approve" if step.verb == "approve" else "approval"
        gate = step.fields.get(word)
        if gate is None and step.handlers:
            key = "on_reject" if "on_reject" in step.fields else "on_decision"
            message = f"`{key}` needs an `approval`: nobody decides about this step"
            self.reader.error((*step.at, key), "decision.no_approval", message, key=True)
        if not isinstance(gate, Mapping):
            return
        raw_options = gate.get("options", ["approve", "reject"])
        options = [option for option in raw_options if isinstance(option, str)] if isinstance(raw_options, list) else []
        for option in step.handlers:
            self._check_handler(step, option, options)
        self._report_rejection(step)
        for index, option in enumerate(options):
            if option not in ("approve", "reject") and option not in step.handlers and option not in options[:index]:
                message = f"the option `{option}` needs steps: write `on_decision: {{{option}: [...]}}`"
                self.reader.error((*step.at, word, "options", index), "decision.no_handler", message)

    def _report_rejection(self, step: StepDraft) -> None:
        """Doubts about a rejection: a `catch` that reads as if it took it, a handler behind which it is raised."""
        if _has_rejection_clause(step.catch):
            return
        for number, clause in enumerate(step.catch):
            if "errors" not in clause.fields and "reject" not in step.handlers:
                message = (
                    "this takes no rejection: without `errors` it is everything but `approval.*` and `limit.*`; handle "
                    "one in `on_reject`, or in a clause with `errors: [approval.rejected]`"
                )
                self.reader.warning((*step.at, "catch", number), "catch.rejection", message)
        handler = step.handlers.get("reject")
        if handler and not is_end_certain(handler) and not _is_taken_around(step.chain):
            word = "on_reject" if "on_reject" in step.fields else "on_decision"
            message = (
                "behind its last step the rejection is raised, and the run fails with `approval.rejected`; end it with "
                "`return` or `fail`, or catch the error"
            )
            at = (*step.at, word) if word == "on_reject" else (*step.at, word, "reject")
            self.reader.warning(at, "decision.raises", message, key=True)

    def _check_handler(self, step: StepDraft, option: str, options: Sequence[str]) -> None:
        at = (*step.at, "on_decision", option)
        if option == "approve":
            message = "`approve` has no handler: the flow goes on; write the next step instead"
            self.reader.error(at, "decision.approve", message, key=True)
        elif option not in options and option != "reject":
            hint = suggestion(option, [o for o in options if o != "approve"]) or f"; they are {', '.join(options)}"
            self.reader.error(at, "decision.option", f"there is no option `{option}`{hint}", key=True)
        elif option != "reject" and not _is_in_repeat(step.chain) and not is_end_certain(step.handlers[option]):
            message = (
                f"outside of a `repeat` the handler of `{option}` must end in `return` or `fail`: nothing but approval "
                f"goes on to the next step"
            )
            self.reader.error(at, "decision.falls_through", message, key=True)

    # -- writes at once --------------------------------------------------------------------------------------------

    def _report_concurrent_writes(self, block: StepDraft) -> None:
        if block.verb == "for_each":
            if block.params.get("max_parallel", 1) == 1:
                return
            writes = [write for steps in block.blocks.values() for write in self._writes(steps)]
            for place, path in writes:
                self._report_write(place, path, f"iterations of `{block.id}` that run at once set")
            return
        by_branch: dict[str, tuple[tuple[str, ...], ...]] = {}
        for branch, steps in block.blocks.items():
            writes = list(self._writes(steps))
            for place, path in writes:
                other = next(
                    (name for name, paths in by_branch.items() if any(_has_overlap(path, p) for p in paths)), None
                )
                if other is not None:
                    self._report_write(place, path, f"the branches `{other}` and `{branch}` both set")
            by_branch[branch] = tuple(path for _, path in writes)

    def _report_write(self, place: Path, path: tuple[str, ...], who: str) -> None:
        message = f"{who} `{'/'.join(path)}`, and the last one wins; give `{path[0]}` a `reduce`, or set it afterwards"
        if self._is_made_of_itself(place, path[0]):
            message = (
                f"{who} `{path[0]}`: made of `state.{path[0]}` in this very step each of them counts, but of a value "
                f"that was read before it the last one wins; give `{path[0]}` a `reduce` (`add` for sums) to be sure"
            )
        self.reader.warning(place, "set.parallel", message, key=isinstance(place[-1], str) and place[-1] != "path")

    def _is_made_of_itself(self, place: Path, variable: str) -> bool:
        """Whether the value that is set is made of the one that the variable has: a `set` reads and writes in one."""
        value: Any = self.reader.document.value
        for part in place:
            value = value[part]
        return any("${{" in text and f"state.{variable}" in text for _, text in texts(value, ()))

    def _writes(self, steps: Sequence[StepDraft]) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """Every path of `state` that steps of this list, or inside it, set without `reduce`, with its place."""
        for step in steps:
            for each in (step, *step.inside()):
                yield from self._iter_step_writes(each)

    def _iter_step_writes(self, step: StepDraft) -> Iterator[tuple[Path, tuple[str, ...]]]:
        if step.verb != "set":
            return
        value, at = step.fields.get("set"), (*step.at, "set")
        if isinstance(value, Mapping):
            targets = [((*at, key), key if key.startswith("/") else f"/{key}") for key in value]
        else:
            rows = enumerate(value if isinstance(value, list) else ())
            targets = [
                ((*at, index, "path"), raw["path"])
                for index, raw in rows
                if isinstance(raw, Mapping) and isinstance(raw.get("path"), str) and raw.get("op") != "test"
            ]
        for place, pointer in targets:
            path = tuple(unescape(part) for part in pointer.split("/")[1:])
            variable = self.declared.state.get(path[0]) if path else None
            if variable is not None and variable.reduce is None:
                yield place, path


def _covers(pattern: str, other: str) -> bool:
    """Whether `pattern` of a `catch` takes every error that `other` takes."""
    return pattern in ("*", other) or (pattern.endswith(".*") and other.startswith(pattern[:-1]))


def _is_conditional(step: StepDraft) -> bool:
    return "if" in step.fields or "approval" in step.fields


def _is_maybe(frame: Enclosure) -> bool:
    """Whether this list may not run at all."""
    owner = frame.owner
    if frame.is_handler:
        return frame.body != "~finally"
    if owner is None:
        return False
    if owner.verb in ("switch", "for_each") or _is_conditional(owner):
        return True
    return "while" in owner.params or owner.fields.get("join", "all") != "all"


def _find_first_end(steps: Sequence[StepDraft]) -> int:
    """The order of the first step of all at which the run may end, or wait for somebody."""
    inside = (each for top in steps for each in (top, *top.inside()))
    return min((each.order for each in inside if _can_end(each)), default=END)


def _can_end(step: StepDraft) -> bool:
    """Whether the run may end at this step, or wait there for somebody else."""
    return step.verb in _ENDING or "approval" in step.fields


_ENDING: Final = (*LEAVING, "return", "fail", "approve", "ask", "wait_for")


def _has_overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _has_rejection_clause(clauses: Sequence[Clause]) -> bool:
    """Whether one of these takes `approval.rejected`."""
    patterns = {pattern for clause in clauses for pattern in clause.fields.get("errors", ())}
    return not patterns.isdisjoint(("approval.rejected", "approval.*", "*"))


def _is_taken_around(chain: Sequence[Enclosure]) -> bool:
    """Whether a block around takes the rejection: by a `catch`, or as the failure of one item."""
    for frame in chain:
        if frame.owner is None or frame.is_handler:
            continue
        if _has_rejection_clause(frame.owner.catch) or frame.owner.params.get("on_failure") == "isolate":
            return True
    return False


def _is_in_repeat(chain: Sequence[Enclosure]) -> bool:
    """Whether the nearest loop or parallel block around is a `repeat`, with no handler between."""
    for frame in reversed(chain):
        if frame.owner is None or frame.is_handler or frame.owner.verb in ("for_each", "parallel"):
            return False
        if frame.owner.verb == "repeat":
            return True
    return False
