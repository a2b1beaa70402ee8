"""One answer put together from its pieces, and judged: whether it is complete, and which calls may be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from unicodedata import category

from msgspec.structs import replace

from hai_flow import foreign, values
from hai_flow.definition.plan import Schema
from hai_flow.errors import StepError
from hai_flow.models import faults
from hai_flow.models.calls.ids import CallIds
from hai_flow.models.tokens import tokens_of
from hai_flow.models.vocabulary import (
    Call,
    CallArgs,
    CallStart,
    Finish,
    Media,
    Piece,
    Price,
    Retraction,
    Text,
    Thinking,
    Usage,
)

MEDIA_MAX: Final = 16  # files in one answer
MEDIA_BYTES_MAX: Final = 64 * 1024 * 1024  # of all of them


@dataclass(slots=True)
class _Written:
    """A call as far as the model has written it."""

    id: str
    name: str
    args: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """The answer of a model so far. `usage` None: the provider has not counted its tokens."""

    text: str = ""
    thinking: str = ""
    usage: Usage | None = None
    finish: Finish | None = None
    media: list[Media] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _ids: CallIds = field(default_factory=CallIds)
    _calls: list[_Written] = field(default_factory=list)
    _newest: dict[str, _Written] = field(default_factory=dict)  # by the id that the provider gives

    def add(self, piece: Piece) -> Piece:
        """Take up the next piece. Returns it as it is passed on: each call with an id of its own, also where the
        provider repeats one. Raises StepError for a piece of a call that has not begun."""
        match piece:
            case Text(text):
                self._texts.append(text)
            case Thinking(text):
                self._thoughts.append(text)
            case Retraction():
                self._thoughts += self._texts
                self._texts.clear()
            case CallStart(id, name):
                call = self._newest[id] = _Written(self._ids.own(id), name)
                self._calls.append(call)
                return CallStart(call.id, name)
            case CallArgs(id, text):
                if id not in self._newest:
                    raise faults.unreadable()
                call = self._newest[id]
                call.args.append(text)
                return CallArgs(call.id, text)
            case Media():
                self.media.append(piece)
                if len(self.media) > MEDIA_MAX or sum(len(each.data) for each in self.media) > MEDIA_BYTES_MAX:
                    raise faults.too_many_files(MEDIA_MAX, MEDIA_BYTES_MAX)
            case Usage():
                self.usage = piece
            case Finish():
                self.finish = piece
                self._calls = [each for each in self._calls if each.id not in piece.server_calls]
        if isinstance(piece, Finish):
            self.text, self.thinking = "".join(self._texts), "".join(self._thoughts)
        return piece

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that the model wrote, as it wrote them: none may be made before `check`."""
        return tuple(Call(call.id, call.name, "".join(call.args) or "{}") for call in self._calls)

    def fault(self) -> StepError | None:
        """Why this is no answer: it was broken off, cut off or refused. None: it is complete."""
        if self.finish is None:
            return faults.truncation_error()
        match self.finish.reason:
            case "length":
                return faults.too_long()
            case "refused":
                return faults.refusal_error(self.finish.text)
            case "failed":
                return faults.end_error(self.finish.text)
            case "unknown":
                return faults.unknown_end(self.finish.text)
        return None

    @property
    def is_empty(self) -> bool:
        """Whether the answer says nothing: no word but of thinking, no sign that can be seen, no call, no file."""
        return not (self._calls or self.media or any(map(_has_signs, self._texts)))

    def call_faults(self, schemas: Mapping[str, Schema]) -> dict[str, str]:
        """The faults of the calls, by the calls' ids; `schemas` are those of the tools that were offered.

        If there is one, or `fault` returns an error, no call of this answer may be made."""
        return {call.id: fault for call in self.calls if (fault := _call_fault(call, schemas))}

    def spent(self, prompt: int) -> tuple[Usage, bool]:
        """The tokens of this answer, and whether they are estimated because the provider did not count them: some
        gateways report 0. `prompt`: about how many tokens the question has."""
        counted = self.usage or Usage()
        if counted.input and counted.output:
            return counted, False
        texts = (self._texts, self._thoughts, *(call.args for call in self._calls))
        estimate = sum(tokens_of("".join(each)) for each in texts)
        spent = replace(counted, input=counted.input or prompt, output=counted.output or estimate)
        return spent, spent != counted


def _has_signs(text: str) -> bool:
    return any(not sign.isspace() and category(sign) not in ("Cf", "Cc") for sign in text)


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """The cost of an answer in US dollars; None if no price is known."""
    if price is None:
        return None
    cached = min(usage.cached, usage.input)
    of_cached = price.input if price.cached is None else price.cached
    cost = (usage.input - cached) * price.input + cached * of_cached + usage.output * price.output
    return round(cost / 1_000_000, 10)


def _call_fault(call: Call, schemas: Mapping[str, Schema]) -> str:
    schema = schemas.get(call.name)
    if schema is None:
        return f"there is no tool {call.name!r}"
    try:
        args = foreign.read(call.args, pairs=foreign.demand_one_value_each).value
    except values.NotJson as error:
        return f"the arguments are not JSON: {error}"
    if not isinstance(args, dict):
        return "the arguments are no object"
    return "; ".join(f"{fault['path'] or '/'}: {fault['message']}" for fault in schema.fit(args)[1])
