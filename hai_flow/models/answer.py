"""One answer while it comes, for the readers of all protocols. Pure.

A reader translates events into the methods here: text, thinking, calls, a reason, a mark of the end. Between two events
this keeps half a character, a call that may be a repetition, and how far the answer is (`ends`)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, Final

from hai_flow.models import faults
from hai_flow.models.calls.arguments import Contradiction
from hai_flow.models.calls.calls import Calls
from hai_flow.models.calls.text_pieces import TextJoiner, ThinkTags, whole_text
from hai_flow.models.ends import CALLING, STANDS, Sign, Stand, reason_of, word_of, worst
from hai_flow.models.vocabulary import Finish, Media, Piece, Reason, Text, Thinking, Usage
from hai_flow.values import Json

NULLS: Final = frozenset({"", "null", "none"})
REPEATED_CHARS_MIN: Final = 8
"""Characters of a piece of text that can be a repetition of all text before it: a model may well say `ha` twice."""


class Answer:
    """One answer so far. `names` are those of the functions that were offered, `tags` divides text in which thinking
    stands. Each method returns the pieces that become complete with it, and raises StepError for an answer that
    contradicts itself."""

    def __init__(self, names: Collection[str] = (), tags: ThinkTags | None = None) -> None:
        self.stand = Stand.SILENT
        self._calls = Calls(names)
        self._tags = tags
        self._text, self._thought = TextJoiner(), TextJoiner()
        self._said: dict[Hashable, list[str]] = {}  # the text of each part of the answer
        self._held: tuple[Hashable, str] | None = None  # a piece that may be all text of its part once more
        self._thoughts: list[str] = []
        self._shows = False
        self._refusal = ""
        self._usage = Usage()
        self._words: set[str] = set()
        self.reasons = 0  # how often the server has given one for the end

    @property
    def is_over(self) -> bool:
        """Whether the server has marked the end."""
        return self.stand is Stand.OVER

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def may_go_on(self) -> bool:
        """Whether an answer with a reason for its end may go on: one of thinking alone that was not cut off, or with a
        call that the server makes itself."""
        if self._said or self._calls or self._shows or self._refusal:
            return self._is_calling and self._calls.has_foreign
        return all(reason_of(word) == "stop" for word in self._words)

    @property
    def _is_calling(self) -> bool:
        return any(word_of(word) in CALLING for word in self._words)

    @property
    def calls(self) -> Calls:
        return self._calls

    @property
    def texts(self) -> dict[Any, str]:
        """The text of each part of the answer so far."""
        return {part: "".join(pieces) for part, pieces in self._said.items()}

    def text(self, piece: str, part: Hashable = 0) -> Iterator[Piece]:
        """A piece of the text of a part of the answer. One that is all text of its part once more is held back until
        its reader knows its place: at the end it is a repetition (`drop_repetition`), else text (`release`)."""
        if piece and self._takes(Sign.PIECE):
            yield from self.release()
            if self.stand is Stand.ENDED and self._is_calling and piece.strip():
                self._calls.leave_foreign()
            if _repeats(piece, self._said.get(part, ())):
                self._held = part, piece
            else:
                yield from self._add_text(piece, part)

    def _add_text(self, piece: str, part: Hashable) -> Iterator[Piece]:
        self._said.setdefault(part, []).append(piece)
        yield from self._tell(self._text.take(piece))

    def release(self) -> Iterator[Piece]:
        """The piece that is held back, if there is one: the answer goes on behind it, so it is text."""
        if self._held is not None:
            (part, piece), self._held = self._held, None
            yield from self._add_text(piece, part)

    def drop_repetition(self, pieces_min: int = 1) -> Iterator[Piece]:
        """Forget the piece that is held back: it ends its part, so it is the text before it as a whole. Where that came
        in fewer pieces than `pieces_min`, it is text."""
        if self._held is not None and len(self._said[self._held[0]]) < pieces_min:
            yield from self.release()
        self._held = None

    def whole_text(self, text: str, part: Hashable = 0) -> Iterator[Piece]:
        """The text of a part as a whole, at its end: it counts where its pieces have not come."""
        received = "".join(self._said.get(part, ()))
        if self._held is not None:
            if self._held == (part, received) == (part, text):
                self._held = None
            yield from self.release()
            received = "".join(self._said.get(part, ()))
        if text.startswith(received):
            yield from self.text(text[len(received) :], part)
        elif text.strip() and text.strip() not in whole_text(received) and whole_text(text) != whole_text(received):
            raise faults.contradiction("its text is another one at its end")

    def think(self, piece: str, *, is_last: bool = False) -> Iterator[Piece]:
        """A piece of the thinking. `is_last`: it comes with the end, so that it is no more than a repetition where it
        is all thinking before it once more."""
        if is_last and _repeats(piece, self._thoughts):
            return
        if piece and self._takes(Sign.PIECE):
            yield from self.release()
            self._thoughts.append(piece)
            if text := self._thought.take(piece):
                yield Thinking(text)

    def whole_thought(self, text: str) -> Iterator[Piece]:
        if not self._thoughts:
            yield from self.think(text)

    def media(self, file: Media) -> Iterator[Piece]:
        if self._takes(Sign.PIECE):
            yield from self.release()
            self._shows = True
            yield file

    def call(self, slot: Hashable, *, id: str = "", name: str = "", args: str = "") -> Iterator[Piece]:
        if (id or name or args) and self._takes(Sign.PIECE):
            yield from self.release()
            yield from self._calls.take(slot, id=id, name=name, args=args)

    def old_call(self, name: str, args: str) -> Iterator[Piece]:
        """A piece of a call in the oldest form (`Calls.take_old`)."""
        if (name or args) and self._takes(Sign.PIECE):
            yield from self.release()
            yield from self._calls.take_old(name, args)

    def whole_call(self, slot: Hashable, *, id: str = "", name: str = "", args: str = "") -> Iterator[Piece]:
        """A call as a whole, at its end (`Calls.settle`)."""
        if self._takes(Sign.PIECE):
            yield from self.release()
            try:
                yield from self._calls.settle(slot, id=id, name=name, args=args)
            except Contradiction as error:
                raise faults.contradiction(str(error)) from None

    def whole_calls(self, said: list[tuple[str, str, str]]) -> Iterator[Piece]:
        """All calls as a whole, at the end: id, name and arguments of each (`Calls.settle_all`)."""
        if said and self._takes(Sign.PIECE):
            yield from self.release()
            try:
                yield from self._calls.settle_all(said)
            except Contradiction as error:
                raise faults.contradiction(str(error)) from None

    def usage(self, usage: Usage) -> Iterator[Piece]:
        """The tokens of the answer so far. What an earlier report had and this one has not still counts."""
        if self.stand is not Stand.BROKEN:
            before = self._usage
            self._usage = Usage(
                usage.input or before.input,
                usage.output or before.output,
                usage.cached or before.cached,
                usage.reasoning or before.reasoning,
            )
            yield self._usage

    def refuse(self, text: str) -> None:
        """A piece of the words by which the model would not answer."""
        if text and self._takes(Sign.PIECE):
            self._refusal += text

    def reason(self, word: Json) -> None:
        """The server's word for the end of the answer; null and the like are none."""
        if isinstance(word, dict):  # `{"type": "stop"}`
            word = word.get("type") or word.get("reason") or str(word)
        if isinstance(word, list):
            for each in word:
                self.reason(each)
        elif word is not None and word is not False:
            text = word if isinstance(word, str) else str(word)
            if word_of(text) not in NULLS and self._takes(Sign.REASON):
                self._words.add(text)
                self.reasons += 1

    def mark(self) -> None:
        """The server marks the end: nothing follows."""
        self._takes(Sign.MARK)

    def end(self, opaque: Json = None) -> Iterator[Piece]:
        """The last pieces, behind the stream. An answer that is not whole gets no `Finish`. Raises StepError for one
        that contradicts itself."""
        is_certain = bool(self._words)
        yield from self.release()
        self._takes(Sign.CLOSE)
        if text := self._thought.end():
            yield Thinking(text)
        yield from self._tell(self._text.end())
        if self._tags is not None:
            yield from self._tags.end()
        if self.stand is not Stand.WHOLE:
            return
        reason: Reason = worst({reason_of(word) for word in self._words}) if is_certain else "stop"
        if self._refusal:
            yield Finish("refused", whole_text(self._refusal))
            return
        if reason != "stop":
            yield Finish(reason, ", ".join(sorted(self._words)))
            return
        is_empty = not (self._calls or self._said or self._shows)
        if is_empty and self._is_calling:
            raise faults.contradiction("it announces a call, and there is none")
        try:
            yield from self._calls.end(is_certain=is_certain)
        except Contradiction as error:
            raise faults.contradiction(str(error)) from None
        yield Finish("stop", opaque=opaque, server_calls=self._calls.server_calls)

    def _tell(self, text: str) -> Iterator[Piece]:
        if not text:
            return
        if self._tags is None:
            yield Text(text)
        else:
            yield from self._tags.read(text)

    def _takes(self, sign: Sign) -> bool:
        """Whether a sign still counts: the answer is then where it leads to."""
        after = STANDS.get((self.stand, sign))
        if after is None:
            return False
        self.stand = after
        return True


def _repeats(piece: str, pieces: Sequence[str]) -> bool:
    """Whether a piece is all that was said before it once more."""
    return len(piece.strip()) >= REPEATED_CHARS_MIN and piece == "".join(pieces)
