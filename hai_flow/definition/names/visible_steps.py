"""The steps that each place of a document sees, and which of them may be absent there (docs/language.md#names)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from hai_flow.definition.checks.condition_facts import LATER_ROUND, conclude, entails
from hai_flow.definition.expressions.evaluation import Guards
from hai_flow.definition.names.wording import article, suggestion
from hai_flow.definition.raw_steps import LEAVING, Chain, Enclosure, Outline, StepDraft, is_end_certain, leaving

END: Final = 1 << 30  # an order behind every step


class _Reason(msgspec.Struct, frozen=True):
    """Why something may be absent, as a clause, and whether what is known at a place excludes that."""

    text: str
    excluded: Callable[[Guards], bool] = lambda guards: False


class Visibility(msgspec.Struct, frozen=True, eq=False):
    """A place of the document, as `Names` asks about it: which ids are visible (`in`), why others are not (`explain`),
    and why the output, error or approval of a visible one may be absent.

    `own`: the step whose own keys these are. `at_end`: the place is behind all steps of the list around it, as `until`
    is. `before`: it is asked before each iteration of that loop, as `while` is."""

    outline: Outline
    chain: Chain
    order: int
    own: StepDraft | None = None
    at_end: bool = False
    before: StepDraft | None = None

    # -- visible ---------------------------------------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        target = self.outline.ids.get(str(name))
        return target is not None and not self._explain_hidden(target)

    def explain_let(self, name: str) -> str:
        """Where a `let` gives the name that this place does not have, with the remedy; "" if none does."""
        lets = [each for each in self.outline.every if each.verb == "let" and name in each.fields.get("let", ())]
        if not lets:
            return ""
        if lets[0] is self.own:
            return "; the same `let` names it: write it in a `let` of its own in front of this one"
        if lets[0].order > self.order:
            return "; a `let` names it further down: put that in front of this step"
        return "; a `let` names it for the steps of its own list: put that in front of the block around it"

    def _explain_hidden(self, target: StepDraft) -> str:
        """Why `target` can't be named here, in one word; "" if it can."""
        if target is self.own:
            return "own"
        level = _count_common(self.chain, target.chain)
        mine = self.chain[level] if level < len(self.chain) else None
        other = target.chain[level] if level < len(target.chain) else None
        if mine is not None and mine.owner is target:
            return "" if mine.is_handler else "around"
        if any(frame.is_item for frame in target.chain[level:]):
            return "item"
        if mine is not None and other is not None and mine.owner is other.owner:
            return "" if mine.is_handler and not other.is_handler else "sibling"
        return "" if target.order < self.order else "later"

    def explain(self, name: str) -> tuple[str, str] | None:
        """(code, message) of the finding for a step that is not visible here; None where nothing needs saying."""
        target = self.outline.ids.get(name)
        if target is None:
            if name in self.outline.tolerated:
                return None
            hint = suggestion(name, self.outline.ids) or (
                "; a step is named by its `id`" if self._has_unnamed_steps() else ""
            )
            return "expression.unknown_step", f"there is no step `{name}`{hint}"
        match self._explain_hidden(target):
            case "own":
                return "expression.own_step", f"a step can't use itself: `{name}` has no output yet{self._keep(target)}"
            case "around":
                return "expression.own_step", f"`{name}` is the block around this step: it has no output yet"
            case "item":
                return "expression.inside_for_each", _explain_for_each(name, self.chain, target)
            case "sibling":
                return "expression.sibling_step", _explain_sibling(
                    name, target.chain[_count_common(self.chain, target.chain)]
                )
            case _:
                message = f"step `{name}` comes later (line {target.line}); only steps before can be used"
                return "expression.later_step", f"{message}{self._keep(target)}"

    def _keep(self, target: StepDraft) -> str:
        """The remedy where a step of the round before is meant: both places are in one `repeat`."""
        loops = {frame.owner for frame in self.chain if frame.is_loop and frame.owner and frame.owner.verb == "repeat"}
        is_shared = any(frame.owner in loops for frame in target.chain)
        return "; keep what the next round needs in `state`, by `set`" if is_shared else ""

    def _has_unnamed_steps(self) -> bool:
        """Whether the document has steps without an `id`, one of which may be meant."""
        return any("id" not in step.fields for top in self.outline.steps for step in (top, *top.inside()))

    # -- absent ----------------------------------------------------------------------------------------------------

    def explain_absence(self, name: str, member: str, guards: Guards) -> str | None:
        """Why a member of a step may be absent when this place is reached, as a clause; None where `guards`, which hold
        here, exclude every reason."""
        reasons = list(self._reasons(name, member))
        guards = conclude(guards | self._collect_skipped(guards)) if reasons else guards
        return next((each.text for each in reasons if not each.excluded(guards)), None)

    def _collect_skipped(self, guards: Guards) -> Guards:
        """The facts of steps before that were skipped by their `if`, as they have no other way not to finish."""
        if any(frame.is_handler for frame in self.chain) or self.before is not None:
            return frozenset()
        denied: Guards = frozenset()
        for name, draft in self.outline.ids.items():
            if draft.condition is None or draft.handlers or draft.order >= self.order:
                continue
            is_skipped = (None, "equal", f"steps.{name}.status", repr("skipped"), True) in guards
            if not is_skipped and (is_caught(draft) or not _is_unfinished(name, guards)):
                continue
            if _count_common(self.chain, draft.chain) == len(draft.chain):
                denied |= draft.condition.denials
        return denied

    def _reasons(self, name: str, member: str) -> Iterator[_Reason]:
        target = self.outline.ids.get(name)
        if target is None:
            return
        level = _count_common(self.chain, target.chain)
        mine = self.chain[level] if level < len(self.chain) else None
        if mine is not None and mine.is_handler and mine.owner is target:
            yield from _certain(_explain_own(target, mine, member))
            return
        inside = target.chain[level:]
        if mine is not None and mine.is_handler and (mine.owner is None or (inside and inside[0].owner is mine.owner)):
            word = mine.body[1:].partition("/")[0]
            yield _Reason(f"`{word}` also runs when that step has not finished")
            return
        if self.before is not None and any(frame.owner is self.before for frame in target.chain):
            yield _Reason("no iteration has run before the first one", lambda guards: LATER_ROUND in guards)
        is_behind = not self.at_end
        for frame in inside:
            if not (is_behind and _are_others_ended(frame)):
                yield from _iter_frame_reasons(self.outline, frame, target)
            is_behind = is_behind and not frame.is_loop
            yield from _certain(_exit_before(frame.owner, target))
        loop = self.chain[-1].owner if self.at_end and self.chain else None
        if loop is not None and loop.verb == "repeat":  # a `for_each` has no output for an item that is left so
            yield from _certain(_exit_before(loop, target, verbs=("continue",)))
        yield from _iter_step_reasons(target, member, elsewhere=bool(inside) or self.at_end)


def _count_common(one: Chain, other: Chain) -> int:
    """The number of lists around both places, counted from the outermost."""
    level = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs and (mine.owner is not theirs.owner or mine.body != theirs.body):
            break
        level += 1
    return level


def _explain_for_each(name: str, chain: Chain, target: StepDraft) -> str:
    level = _count_common(chain, target.chain)
    loop = next(frame.owner for frame in target.chain[level:] if frame.is_item)
    assert loop is not None, "a for_each is a step"
    needs, id = ("an `id` and an", "ID") if "#" in loop.id else ("an", loop.id)
    return (
        f"step `{name}` is inside the for_each `{loop.id}`, which has one for each item; give the for_each {needs} "
        f"`output` and use steps.{id}.output"
    )


def _explain_sibling(name: str, other: Enclosure) -> str:
    block = other.owner.path if other.owner else "the document"
    if other.is_handler:
        return f"step `{name}` is in another handler ({block}/{other.body}), which doesn't run with this one"
    if other.body.isdigit():
        return f"step `{name}` is in another case of `{block}`, which doesn't run when this one does"
    return (
        f"step `{name}` is in the branch `{other.body}` of `{block}`; parallel branches don't see each other, "
        f"use it after the block"
    )


def _explain_own(target: StepDraft, mine: Enclosure, member: str) -> str | None:
    """Why a member of `target` may be absent in one of its own handlers."""
    keeps = target.verb == "approve" or (target.verb == "for_each" and mine.body.startswith("~catch"))
    if mine.body == "~undo":
        return _explain_step(target, member, elsewhere=False) if member != "output" else None
    if mine.body.startswith("~catch"):
        if member == "error" or (keeps and member != "error"):
            return None
        return "the step has failed"
    if mine.body == "~finally":
        return "`finally` also runs when the step has not finished"
    if member == "output" and not keeps:
        return f"the effect is not performed when the decision is `{mine.body[1:]}`"
    return None if member != "error" or mine.body == "~reject" else "the step has not failed"


def _certain(text: str | None) -> Iterator[_Reason]:
    """A reason that no guard but one of the path itself excludes."""
    if text is not None:
        yield _Reason(text)


def _iter_frame_reasons(outline: Outline, frame: Enclosure, target: StepDraft) -> Iterator[_Reason]:
    """Why nothing in this list may have run, seen from outside its owner."""
    owner = frame.owner
    if owner is None or frame.is_handler:
        yield _Reason(f"it is in a handler ({owner.id if owner else 'of the document'}/{frame.body})")
        return

    verb = owner.verb

    def has_run(guards: Guards) -> bool:
        """Whether a step of this list is known to have finished; in a branch, one that runs behind `target`."""
        steps = (outline.ids.get(id) for id in _collect_finished_ids(guards))
        inside = (step for step in steps if step is not None and _is_inside(step, frame))
        return any(verb != "parallel" or _is_behind(step, target) for step in inside)

    if owner.verb == "switch":
        yield _Reason(
            f"it is in a case of the switch `{owner.id}`",
            lambda guards: has_run(guards) or _is_taken(outline, owner, frame.body, guards),
        )
    elif owner.verb == "parallel" and owner.fields.get("join", "all") != "all":
        yield _Reason(
            f"other branches of `{owner.id}` may have won (`join: {owner.fields.get('join')}`)",
            lambda guards: has_run(guards) or _has_won(owner, frame.body, guards),
        )
    if "while" in owner.params:
        yield _Reason(f"the loop `{owner.id}` may not run at all", has_run)
    if "if" in owner.fields:
        yield _Reason(f"`{owner.id}` around it has an `if`", lambda guards: has_run(guards) or _is_true(owner, guards))
    if is_caught(owner):
        yield _Reason(f"`{owner.id}` around it has a `catch`")


def _are_others_ended(frame: Enclosure) -> bool:
    """Whether nothing but this case, or branch, of a block is left where the flow goes on behind it: every other one
    ends in `return`, `fail`, `break` or `continue`."""
    block = frame.owner
    if block is None or frame.is_handler or "if" in block.fields or is_caught(block):
        return False
    if block.verb == "switch":
        is_one_of_two = any(number not in block.cases for number in block.blocks)  # there is a default
    else:
        is_one_of_two = block.verb == "parallel" and block.fields.get("join") == "any"
    return is_one_of_two and all(is_end_certain(steps) for body, steps in block.blocks.items() if body != frame.body)


def _collect_finished_ids(guards: Guards) -> set[str]:
    return {str(each[1]) for each in guards if each[:1] == ("steps",) and each[2:3] in (("output",), ("approval",))}


def _is_true(step: StepDraft, guards: Guards) -> bool:
    """Whether the `if` of a step was true."""
    return step.condition is not None and entails(guards, step.condition.proof)


def _is_status_excluded(step: StepDraft, word: str, guards: Guards) -> bool:
    """Whether the status of a step is known not to be this word."""
    return (None, "equal", f"steps.{step.id}.status", repr(word), False) in guards


def _is_unfinished(name: str, guards: Guards) -> bool:
    """Whether a step is known not to have finished: by its status, or because it has no output."""
    status = (None, "equal", f"steps.{name}.status", repr("finished"), False)
    return status in guards or (None, "true", f"steps.{name}.output?", "", False) in guards


def _has_not_failed(step: StepDraft, guards: Guards) -> bool:
    """Whether a step is known not to have failed: by its status, or because it has no error."""
    no_error = {
        (None, "true", f"steps.{step.id}.error?", "", False),
        (None, "equal", f"steps.{step.id}.error", repr(None), True),
    }
    return _is_status_excluded(step, "failed", guards) or not no_error.isdisjoint(guards)


def _is_behind(step: StepDraft, target: StepDraft) -> bool:
    """Whether `step` begins only when `target` has ended, or is `target`: they are in one list, or in lists inside of
    steps of one list, and not in two branches of one block."""
    level = _count_common(step.chain, target.chain)
    owners = [chain[level].owner for chain in (step.chain, target.chain) if level < len(chain)]
    return step is target or (step.order > target.order and (len(owners) < 2 or owners[0] is not owners[1]))


def _is_inside(step: StepDraft, frame: Enclosure) -> bool:
    return any(each.owner is frame.owner and each.body == frame.body for each in step.chain)


def _is_taken(outline: Outline, switch: StepDraft, body: str, guards: Guards) -> bool:
    """Whether this case of a switch was taken: by its condition, or because every other case was not."""
    earlier = [number for number in switch.blocks if int(number) < int(body)]
    if "if" in switch.fields and not _is_true(switch, guards):
        return False
    if (
        body in switch.cases
        and entails(guards, switch.cases[body].proof)
        and all(_is_false(switch, number, guards) for number in earlier)
    ):
        return True
    has_default = any(number not in switch.cases for number in switch.blocks)
    others = [number for number in switch.blocks if number != body]
    return has_default and all(_is_not_taken(outline, switch, number, guards) for number in others)


def _is_false(switch: StepDraft, body: str, guards: Guards) -> bool:
    """Whether the condition of a case was false."""
    return body in switch.cases and entails(guards, switch.cases[body].disproof)


def _is_not_taken(outline: Outline, switch: StepDraft, body: str, guards: Guards) -> bool:
    """Whether a case was not taken: its condition was false, or a step that always runs in it has not finished."""
    if _is_false(switch, body, guards):
        return True
    for step in switch.blocks[body]:
        absent = (None, "true", f"steps.{step.id}.output?", "", False)
        runs = not any(_iter_step_reasons(step, "output", elsewhere=True)) and step.id in outline.ids
        before = [each for each in switch.blocks[body] if each.order < step.order]
        if runs and not before and (_is_status_excluded(step, "finished", guards) or absent in guards):
            return True
    return False


def _has_won(block: StepDraft, branch: str, guards: Guards) -> bool:
    """Whether the branch of a `join: any` has won: it is named as the winner, or no other one is."""
    if block.fields.get("join") != "any" or "if" in block.fields or is_caught(block):
        return False
    read = f"steps.{block.id}.output.winner"
    if (None, "equal", read, repr(branch), True) in guards:
        return True
    return all((None, "equal", read, repr(other), False) in guards for other in block.blocks if other != branch)


def _exit_before(loop: StepDraft | None, target: StepDraft, *, verbs: Sequence[str] = LEAVING) -> str | None:
    """Why a round of the loop may have ended before `target`, which is inside."""
    if loop is None or loop.verb not in ("for_each", "repeat"):
        return None
    step = next((step for step in leaving(loop) if step.verb in verbs and step.order < target.order), None)
    return None if step is None else f"{article(step.verb)} before it may have skipped it"


def _explain_step(target: StepDraft, member: str, *, elsewhere: bool) -> str | None:
    return next((reason.text for reason in _iter_step_reasons(target, member, elsewhere=elsewhere)), None)


def _iter_step_reasons(target: StepDraft, member: str, *, elsewhere: bool) -> Iterator[_Reason]:
    if member == "error":
        is_performed = "if" not in target.fields
        yield _Reason(
            "it is there only where the step has failed",
            lambda guards: is_performed and _is_status_excluded(target, "finished", guards),
        )
        return
    if "if" in target.fields:
        yield _Reason(
            "the step has an `if`",
            lambda guards: _is_true(target, guards) or _is_status_excluded(target, "skipped", guards),
        )
    if member == "approval":
        gate = target.fields.get("approval")
        if isinstance(gate, Mapping) and "when" in gate:
            yield _Reason("its approval has a `when`")
        return
    if target.verb not in ("approve", "for_each") and is_caught(target):
        yield _Reason("the step has a `catch`", lambda guards: _has_not_failed(target, guards))
    custom = [option for option in target.handlers if option not in ("approve", "reject")]
    if elsewhere and target.verb != "approve" and not all(is_end_certain(target.handlers[option]) for option in custom):
        yield _Reason(
            f"the effect is not performed when the decision is `{custom[0]}`",
            lambda guards: _is_approved(target, custom, guards),
        )


def _is_approved(target: StepDraft, custom: Sequence[str], guards: Guards) -> bool:
    """Whether the effect behind a gate is known to be performed: by the decision, or because no other one is left."""
    read = f"steps.{target.id}.approval.decision"
    others = [option for option in custom if not is_end_certain(target.handlers[option])]
    is_left = any((None, "equal", read, repr(option), False) not in guards for option in others)
    return (None, "equal", read, repr("approve"), True) in guards or not is_left


def is_caught(draft: StepDraft) -> bool:
    """Whether the flow may go on behind a failure of the step."""
    ignored = draft.fields.get("continue_on_error") is True
    return ignored or any(not is_end_certain(clause.steps) for clause in draft.catch)
