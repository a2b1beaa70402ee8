"""One answer put together from its pieces, and judged: whether it is complete, and which calls may be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hai_flow import values
from hai_flow.definition.plan import Schema
from hai_flow.errors import StepError
from hai_flow.models import faults
from hai_flow.models.vocabulary import Call, CallArgs, CallStart, Finish, Piece, Price, Text, Thinking, Usage

_CHARS_PER_TOKEN = 4  # of most languages and models, more or less


@dataclass(slots=True)
class Turn:
    """The answer of a model so far. `usage` None: the provider has not counted its tokens."""

    text: str = ""
    thinking: str = ""
    usage: Usage | None = None
    finish: Finish | None = None
    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _args: dict[str, list[str]] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        """Take up the next piece."""
        match piece:
            case Text(text):
                self._texts.append(text)
            case Thinking(text):
                self._thoughts.append(text)
            case CallStart(id, name):
                self._names[id] = name
                self._args[id] = []
            case CallArgs(id, text):
                self._args[id].append(text)
            case Usage():
                self.usage = piece
            case Finish():
                self.finish = piece
        if isinstance(piece, Finish):
            self.text, self.thinking = "".join(self._texts), "".join(self._thoughts)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that the model wrote, as it wrote them: none may be made before `check`."""
        return tuple(Call(id, name, "".join(self._args[id]) or "{}") for id, name in self._names.items())

    def fault(self) -> StepError | None:
        """Why this is no answer: it was broken off, cut off or refused. None: it is complete."""
        if self.finish is None:
            return faults.broken_off()
        if self.finish.reason == "length":
            return faults.too_long()
        return faults.refused(self.finish.text) if self.finish.reason == "refused" else None

    def call_faults(self, schemas: Mapping[str, Schema]) -> dict[str, str]:
        """The faults of the calls, by the calls' ids; `schemas` are those of the tools that were offered.

        If there is one, or `fault` returns an error, no call of this answer may be made.
        """
        return {call.id: fault for call in self.calls if (fault := _call_fault(call, schemas))}

    def spent(self, prompt_chars: int) -> tuple[Usage, bool]:
        """The tokens of this answer, and whether they are estimated because the provider did not count them."""
        if self.usage is not None:
            return self.usage, False
        written = sum(
            map(len, (*self._texts, *self._thoughts, *(part for each in self._args.values() for part in each)))
        )
        return Usage(prompt_chars // _CHARS_PER_TOKEN, -(-written // _CHARS_PER_TOKEN)), True


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
        args = values.check(values.loads(call.args))
    except values.NotJson as error:
        return f"the arguments are not JSON: {error}"
    if not isinstance(args, dict):
        return "the arguments are no object"
    return "; ".join(f"{fault['path'] or '/'}: {fault['message']}" for fault in schema.findings(args))
