"""The calls of one answer, put together from their pieces. Pure.

A server names a call late, in parts or in every piece; gives an id late, none, the same one twice, or another one in
each piece; writes several calls into one slot; and repeats a call, at another index or behind the answer. Here each
call comes to be once: nothing is performed twice, and no call of which a part is missing (`Calls.end`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hai_flow.models.calls.arguments import Arguments, ArgumentStage, Contradiction, is_equal_json, is_object
from hai_flow.models.calls.ids import CallIds
from hai_flow.models.faults import unreadable
from hai_flow.models.vocabulary import CallArgs, CallStart, Piece
from hai_flow.values import Json

CALLS_MAX: Final = 256  # of one answer: each is held against all that came before it
_IN_FRONT: Final = re.compile(
    r"""(?:<[^<>]*>|[\s"'`/])*+(?:assistant\s++)?(?:to=)?(?:(?:functions?|default_api|tools?)[.:/])?"""
)
"""What templates of gpt-oss, Kimi and Gemini have in front of a name: tokens, a recipient, a namespace."""
_BEHIND: Final = " \t\r\n\"'`/"
_UNSEEN: Final = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_OLD: Final = "function_call"  # the slot of the one call that the oldest form of the protocol knows


@dataclass(slots=True, eq=False)
class _Draft:
    """A call as far as it is written. `given` is the server's id, `id` the one with which it is shown; "": not yet."""

    slot: Hashable
    given: str = ""
    name: str = ""
    args: Arguments = field(default_factory=Arguments)
    id: str = ""
    held: str = ""  # of its arguments, not shown yet
    shown: int = 0  # characters
    next_id: str = ""  # an id that came behind the arguments: maybe of the next call in this slot
    sealed: dict[str, Json] = field(default_factory=dict)  # data that only the server understands, and wants back
    is_made: bool = False  # by the server itself


class Calls:
    """The calls of one answer. `names` are those of the functions that were offered: by them a name that comes in parts
    is told from two names."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = frozenset(names)
        self._ids = CallIds()
        self._drafts: list[_Draft] = []
        self._slots: dict[Hashable, _Draft] = {}

    def __bool__(self) -> bool:
        return bool(self._drafts)

    def take(self, slot: Hashable, *, id: str = "", name: str = "", args: str = "") -> Iterator[Piece]:
        """A piece of the call in a slot (its index, the id of its item ...). Raises StepError for too many calls."""
        name = self._own_name(name)
        draft = self._slots.get(slot)
        if id and args and not name and (draft is None or draft.given != id):
            # of a server that counts the pieces, or the calls not at all: the id names their call
            draft = next((each for each in self._drafts if each.given == id), draft)
        if draft is None or self._is_another(draft, id, name, args):
            if draft is not None:
                id = id or draft.next_id
            draft = self._slots[slot] = _Draft(slot, id, name)
            self._drafts.append(draft)
            if len(self._drafts) > CALLS_MAX:
                raise unreadable(f"it has more than {CALLS_MAX} calls")
        elif name and draft.name != name:
            draft.name = name if name.startswith(draft.name) else draft.name + name
        if id and not draft.given:
            draft.given = id
        elif id and id != draft.given and not args and not name and draft.args.stage is not ArgumentStage.OPEN:
            draft.next_id = id
        draft.held += draft.args.take(args)
        if not self._waits(draft):
            yield from self._show(draft)

    def seal(self, slot: Hashable, data: Mapping[str, Json]) -> None:
        """Keep data of the server's own with the call in a slot."""
        if (draft := self._slots.get(slot)) is not None:
            draft.sealed.update(data)

    @property
    def sealed(self) -> list[dict[str, Json]]:
        """The server's own data of each call that is to be made, in their order."""
        return [draft.sealed for draft in self._drafts if draft.id and not draft.is_made]

    def note_result(self, id: str) -> None:
        """The server gives the result of the call of this id: it has made that call itself."""
        for draft in [each for each in self._drafts if id and each.given == id and not each.is_made][:1]:
            draft.is_made = True

    def leave_foreign(self) -> None:
        """The server goes on behind its calls: those of functions that were not offered are its own."""
        for draft in self._list_foreign():
            draft.is_made = True

    @property
    def has_foreign(self) -> bool:
        """Whether the server may be about to make a call itself: that of a function that was not offered."""
        return bool(self._list_foreign())

    def _list_foreign(self) -> list[_Draft]:
        return [draft for draft in self._drafts if draft.name not in self._names and not draft.is_made]

    @property
    def server_calls(self) -> tuple[str, ...]:
        """The ids of the calls that the server has made itself."""
        return tuple(draft.id for draft in self._drafts if draft.is_made)

    def take_old(self, name: str, args: str) -> Iterator[Piece]:
        """A piece of the one call of the oldest form of the protocol. Some servers say it beside the newer form."""
        yield from self.take(_OLD, name=name, args=args)

    def settle(self, slot: Hashable, *, id: str = "", name: str = "", args: str = "") -> Iterator[Piece]:
        """A call as a whole, as it stands at its own end or behind the answer. Raises Contradiction."""
        name = self._own_name(name)
        draft = self._slots.get(slot) or next((each for each in self._drafts if id and each.given == id), None)
        if draft is None:
            yield from self.take(slot, id=id, name=name, args=args)
            return
        if name and draft.name and name != draft.name and not name.startswith(draft.name):
            raise Contradiction(f"a call is one of {draft.name!r} and one of {name!r}")
        draft.name = name or draft.name
        draft.given = draft.given or id
        draft.args.agree(args)

    def settle_all(self, said: list[tuple[str, str, str]]) -> Iterator[Piece]:
        """All calls as they stand behind the answer: id, name and arguments. Raises Contradiction."""
        free, has_drafts = list(self._drafts), bool(self._drafts)
        for number, (id, given_name, args) in enumerate(said):
            name = self._own_name(given_name)
            draft = next((each for each in free if id and each.given == id), None)
            draft = draft or next((each for each in free if each.name == name and each.args.says(args)), None)
            draft = draft or next((each for each in free if each.name in ("", name)), None)
            if draft is not None:
                free.remove(draft)
                draft.name = draft.name or name
                draft.given = draft.given or id
                draft.args.agree(args)
            elif has_drafts and free:
                raise Contradiction(f"a call of {free[0].name!r} becomes one of {name!r}")
            else:
                yield from self.take(("whole", number), id=id, name=name, args=args)

    def end(self, *, is_certain: bool) -> Iterator[Piece]:
        """The calls are over: the pieces that have not been shown. `is_certain`: the server gave a reason for its end.
        Without one a call needs arguments that are whole: missing ones may have been cut off.

        Raises Contradiction for a call without a name, or one that has two forms."""
        complete: list[tuple[_Draft, str]] = []
        for draft in self._drafts:
            args = draft.args.end()
            if not draft.name:
                if args or draft.given:
                    raise Contradiction("a call has no name")
                continue
            repeat = next((n for n, each in enumerate(complete) if self._is_repeat(draft, args, *each)), None)
            if repeat is None:
                complete.append((draft, args))
                continue
            if draft.id:
                raise Contradiction(f"a call of {draft.name!r} was said twice")
            earlier, known_args = complete[repeat]
            earlier.given = earlier.given or draft.given
            complete[repeat] = (earlier, known_args or args)
        for draft, args in complete:
            if not is_certain and not is_object(args):
                raise Contradiction(f"the arguments of a call of {draft.name!r} are not whole")
        for draft, args in complete:
            draft.held = args[draft.shown :]
            yield from self._show(draft)

    def _own_name(self, name: str) -> str:
        """The name of an offered function, also where a server writes it in the namespace of its template, in quotes
        or with blanks around it, or leaves behind it tokens of the template (gpt-oss), a tag (Qwen), or the number of
        the call (Kimi)."""
        if not name or name in self._names:
            return name
        inner = _UNSEEN.sub("", name)
        inner = inner[_IN_FRONT.match(inner).end() :]  # type: ignore[union-attr]  # it matches nothing, too
        inner = inner.partition("<")[0].strip(_BEHIND).removesuffix("()")
        before, _, number = inner.rpartition(":")
        inner = before if number.isdecimal() else inner
        return inner if inner in self._names else name

    def _is_another(self, draft: _Draft, id: str, name: str, args: str) -> bool:
        """Whether a piece in the slot of a call begins another call. One that brings no name never does: it belongs to
        the open call, whatever id it has."""
        if not name or not draft.name:
            return False
        if name != draft.name:
            return not self._is_continued(draft, name)
        if draft.args.stage is ArgumentStage.OPEN:
            return False
        if id and draft.given and id != draft.given:
            return True
        return draft.args.stage is ArgumentStage.WHOLE and args.lstrip().startswith("{")

    def _is_continued(self, draft: _Draft, name: str) -> bool:
        """Whether a name is the next part of the name of the call."""
        if not draft.args.is_blank:
            return False
        if name.startswith(draft.name) and draft.name not in self._names and name in self._names:
            return True  # the name so far, and more of it
        return name not in self._names and any(each.startswith(draft.name + name) for each in self._names)

    def _waits(self, draft: _Draft) -> bool:
        """Whether a call can't be shown yet: its name may go on, it may be a repetition, or an earlier one waits."""
        if draft.id:
            return False
        if any(not each.id for each in self._drafts[: self._drafts.index(draft)]):
            return True
        if not draft.name or draft.slot == _OLD or draft.args.stage is ArgumentStage.BLANK:
            return True
        others = [each for each in self._drafts if each is not draft]
        return bool(others) and (not draft.given or any(each.given in ("", draft.given) for each in others))

    @staticmethod
    def _is_repeat(draft: _Draft, args: str, earlier: _Draft, known: str) -> bool:
        if draft.name != earlier.name:
            return False
        if _OLD in (draft.slot, earlier.slot):
            if not args or not known or is_equal_json(args, known):
                return True
            raise Contradiction(f"a call of {draft.name!r} was said in two forms with other arguments")
        is_one_slot = draft.slot == earlier.slot and "" in (draft.given, earlier.given)
        if not is_one_slot and (not draft.given or draft.given != earlier.given):
            return False
        return not args or not known or is_equal_json(args, known)

    def _show(self, draft: _Draft) -> Iterator[Piece]:
        if not draft.id:
            draft.id = self._ids.own(draft.given)
            yield CallStart(draft.id, draft.name)
        if draft.held:
            text, draft.held = draft.held, ""
            draft.shown += len(text)
            yield CallArgs(draft.id, text)
