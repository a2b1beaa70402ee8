"""The steps that each place of a document sees, and which of them may be absent there (docs/language.md#names)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hai_flow.definition.drafts import LEAVING, Chain, Enclosure, Outline, StepDraft, always_ends, leaving
from hai_flow.definition.known_names import ALWAYS, MAY_BE_ABSENT, Names
from hai_flow.definition.known_types import Types
from hai_flow.definition.wording import article, suggestion

END: Final = 1 << 30  # an order behind every step


class Visibility(Mapping[str, str]):
    """A place of the document, as `Names` asks about it: which ids are visible (`in`), why others are not (`explain`),
    and why the output, error or approval of a visible one may be absent (`get("id.output")`).

    `own`: the step whose own keys these are. `at_end`: the place is behind all steps of the list around it, as `until`
    is. `before`: it is asked before each iteration of that loop, as `while` is.
    """

    def __init__(
        self,
        outline: Outline,
        chain: Chain,
        order: int,
        own: StepDraft | None = None,
        *,
        at_end: bool = False,
        before: StepDraft | None = None,
    ) -> None:
        self.outline = outline
        self.chain = chain
        self.order = order
        self.own = own
        self.at_end = at_end
        self.before = before

    # -- visible ---------------------------------------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        target = self.outline.ids.get(str(name))
        return target is not None and not self._hidden(target)

    def _hidden(self, target: StepDraft) -> str:
        """Why `target` can't be named here, in one word; "" if it can."""
        if target is self.own:
            return "own"
        level = _common(self.chain, target.chain)
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
            hint = suggestion(name, self.outline.ids) or ("; a step is named by its `id`" if self._unnamed() else "")
            return "expression.unknown_step", f"there is no step `{name}`{hint}"
        match self._hidden(target):
            case "own":
                return "expression.own_step", f"a step can't use itself: `{name}` has no output yet"
            case "around":
                return "expression.own_step", f"`{name}` is the block around this step: it has no output yet"
            case "item":
                return "expression.inside_for_each", _inside_for_each(name, self.chain, target)
            case "sibling":
                return "expression.sibling_step", _sibling(name, target.chain[_common(self.chain, target.chain)])
            case _:
                line = self.outline.document.position(target.at)[0]
                return (
                    "expression.later_step",
                    f"step `{name}` comes later (line {line}); only steps before can be used",
                )

    def _unnamed(self) -> bool:
        """Whether the document has steps without an `id`, one of which may be meant."""
        return any("id" not in step.fields for top in self.outline.steps for step in (top, *top.inside()))

    # -- absent ----------------------------------------------------------------------------------------------------

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """Why `id.member` may be absent when this place is reached, as a clause; `default` where it is there."""
        name, _, member = key.partition(".")
        target = self.outline.ids.get(name)
        if target is None or not member:
            return default
        level = _common(self.chain, target.chain)
        mine = self.chain[level] if level < len(self.chain) else None
        if mine is not None and mine.is_handler and mine.owner is target:
            reason = _own_reason(target, mine, member)
        else:
            reason = self._reason(target, mine, level, member)
        return default if reason is None else reason

    def _reason(self, target: StepDraft, mine: Enclosure | None, level: int, member: str) -> str | None:
        inside = target.chain[level:]
        if mine is not None and mine.is_handler and (mine.owner is None or (inside and inside[0].owner is mine.owner)):
            return f"`{mine.body[1:].partition('/')[0]}` also runs when that step has not finished"
        if self.before is not None and any(frame.owner is self.before for frame in target.chain):
            return "no iteration has run before the first one"
        for frame in inside:
            reason = _frame_reason(frame) or _left_before(frame.owner, target)
            if reason is not None:
                return reason
        loop = self.chain[-1].owner if self.at_end and self.chain else None
        skipped = _left_before(loop, target, verbs=("continue",))
        return skipped or _step_reason(target, member, elsewhere=bool(inside) or self.at_end)

    def __getitem__(self, key: str) -> str:
        reason = self.get(key)
        if reason is None:
            raise KeyError(key)
        return reason

    def __iter__(self) -> Iterator[str]:
        keys = (f"{name}.{member}" for name in self.outline.ids for member in MAY_BE_ABSENT)
        return (key for key in keys if self.get(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def names_at(types: Types, place: Visibility) -> Names:
    """The names of a place at the top of the document."""
    return Names(types, ALWAYS, visible=place, explain=place.explain, absent=place)


def moved(names: Names, place: Visibility) -> Names:
    """The names of `place`, with the roots and guards of `names`."""
    return Names(names.types, names.roots, place, names.guarded, place.explain, place)


def _common(one: Chain, other: Chain) -> int:
    """The number of lists around both places, counted from the outermost."""
    level = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs and (mine.owner is not theirs.owner or mine.body != theirs.body):
            break
        level += 1
    return level


def _inside_for_each(name: str, chain: Chain, target: StepDraft) -> str:
    level = _common(chain, target.chain)
    loop = next(frame.owner for frame in target.chain[level:] if frame.is_item)
    assert loop is not None, "a for_each is a step"
    return (
        f"step `{name}` is inside the for_each `{loop.id}`, which has one for each item; give the for_each an `output` "
        f"and use steps.{loop.id}.output"
    )


def _sibling(name: str, other: Enclosure) -> str:
    block = other.owner.path if other.owner else "the document"
    if other.is_handler:
        return f"step `{name}` is in another handler ({block}/{other.body}), which doesn't run with this one"
    if other.body.isdigit():
        return f"step `{name}` is in another case of `{block}`, which doesn't run when this one does"
    return (
        f"step `{name}` is in the branch `{other.body}` of `{block}`; parallel branches don't see each other, "
        f"use it after the block"
    )


def _own_reason(target: StepDraft, mine: Enclosure, member: str) -> str | None:
    """Why a member of `target` may be absent in one of its own handlers."""
    keeps = target.verb == "approve" or (target.verb == "for_each" and mine.body.startswith("~catch"))
    if mine.body == "~undo":
        return _step_reason(target, member, elsewhere=False) if member != "output" else None
    if mine.body.startswith("~catch"):
        if member == "error" or (keeps and member != "error"):
            return None
        return "the step has failed"
    if mine.body == "~finally":
        return "`finally` also runs when the step has not finished"
    if member == "output" and not keeps:
        return f"the effect is not performed when the decision is `{mine.body[1:]}`"
    return None if member != "error" or mine.body == "~reject" else "the step has not failed"


def _frame_reason(frame: Enclosure) -> str | None:
    """Why nothing in this list may have run, seen from outside its owner."""
    owner = frame.owner
    if owner is None or frame.is_handler:
        return f"it is in a handler ({owner.id if owner else 'of the document'}/{frame.body})"
    if owner.verb == "switch":
        return f"it is in a case of the switch `{owner.id}`"
    if owner.verb == "parallel" and owner.fields.get("join", "all") != "all":
        return f"other branches of `{owner.id}` may have won (`join: {owner.fields.get('join')}`)"
    if "while" in owner.params:
        return f"the loop `{owner.id}` may not run at all"
    if "if" in owner.fields:
        return f"`{owner.id}` around it has an `if`"
    if _is_caught(owner):
        return f"`{owner.id}` around it has a `catch`"
    return None


def _left_before(loop: StepDraft | None, target: StepDraft, *, verbs: Sequence[str] = LEAVING) -> str | None:
    """Why a round of the loop may have ended before `target`, which is inside."""
    if loop is None or loop.verb not in ("for_each", "repeat"):
        return None
    step = next((step for step in leaving(loop) if step.verb in verbs and step.order < target.order), None)
    return None if step is None else f"{article(step.verb)} before it may have skipped it"


def _step_reason(target: StepDraft, member: str, *, elsewhere: bool) -> str | None:
    if member == "error":
        return "it is there only where the step has failed"
    if "if" in target.fields:
        return "the step has an `if`"
    if member == "approval":
        gate = target.fields.get("approval")
        return "its approval has a `when`" if isinstance(gate, Mapping) and "when" in gate else None
    if target.verb not in ("approve", "for_each") and _is_caught(target):
        return "the step has a `catch`"
    custom = [option for option in target.handlers if option not in ("approve", "reject")]
    if elsewhere and target.verb != "approve" and not all(always_ends(target.handlers[option]) for option in custom):
        return f"the effect is not performed when the decision is `{custom[0]}`"
    return None


def _is_caught(draft: StepDraft) -> bool:
    """Whether the flow may go on behind a failure of the step."""
    return any(not always_ends(clause.steps) for clause in draft.catch)
