"""Steps as they stand in a document, before any expression of them is read: their places, and the steps inside of
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from hai_flow.definition.expressions.evaluation import CompiledExpression
from hai_flow.definition.plan import Template
from hai_flow.definition.yaml.document import Document, Path
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.values import Json


class Enclosure(msgspec.Struct, frozen=True, eq=False):
    """One list of steps around a place. `owner` None: the document. `body` says which of the owner's lists it is.

    `parent` is the path of the plan's step that has the list; for the body of a loop that is `rollout[]`."""

    owner: StepDraft | None
    body: str
    parent: str

    @property
    def is_handler(self) -> bool:
        return self.body.startswith("~")

    @property
    def is_loop(self) -> bool:
        return self.body == "" and self.owner is not None and self.owner.verb in ("for_each", "repeat")

    @property
    def is_item(self) -> bool:
        """Whether this is the body of a `for_each`."""
        return self.body == "" and self.owner is not None and self.owner.verb == "for_each"


Chain: TypeAlias = tuple[Enclosure, ...]  # the lists around a place, outermost first
DOCUMENT: Final = Enclosure(None, "", "")  # the list of the document's own steps, which is in no chain


@dataclass(slots=True, eq=False)
class StepDraft:
    """A step as it stands in the document: its sound fields, where it is, and the lists inside it.

    `verb` is "" for a step that is too wrong to be compiled. `order` is the step's number in document order, where a
    handler comes behind the step that it handles; `body_end` is the first number behind the lists of a block. `value`
    stands under the verb, at `value_at`."""

    verb: str
    fields: dict[str, Json]
    at: Path
    path: str
    id: str
    chain: Chain
    order: int
    value: Json
    value_at: Path
    line: int = 0  # in the document
    body_end: int = 0
    next: str | None = None
    params: dict[str, Json] = field(default_factory=dict)  # of for_each and repeat: the mapping under the verb
    blocks: dict[str, list[StepDraft]] = field(default_factory=dict)  # body -> steps
    handlers: dict[str, list[StepDraft]] = field(default_factory=dict)  # option -> steps
    catch: list[Clause] = field(default_factory=list)
    finally_: list[StepDraft] = field(default_factory=list)
    undo: StepDraft | None = None
    condition: CompiledExpression | None = None  # its `if`, once that is compiled
    conditions: dict[str, Any] = field(default_factory=dict)  # of a `repeat`: `while` and `until`, compiled
    facts: dict[str, Any] = field(default_factory=dict)  # body -> what holds behind its steps
    key: Template | None = None  # its `idempotency_key`, compiled
    cases: dict[str, CompiledExpression] = field(
        default_factory=dict
    )  # of a switch: each `when`, once that is compiled

    def lists(self) -> Iterator[list[StepDraft]]:
        """Every list inside this step, handlers and `undo` included, in order."""
        yield from self.blocks.values()
        yield from self.handlers.values()
        for clause in self.catch:
            yield clause.steps
        yield self.finally_
        if self.undo is not None:
            yield [self.undo]

    def inside(self) -> Iterator[StepDraft]:
        """Every step nested in this one, handlers included."""
        for steps in self.lists():
            for step in steps:
                yield step
                yield from step.inside()


@dataclass(slots=True, eq=False)
class Clause:
    """One entry of a `catch`."""

    fields: dict[str, Json]
    at: Path
    steps: list[StepDraft]


LEAVING: Final = ("break", "continue")


def find_loop_around(chain: Chain) -> Enclosure | None:
    """The body of the loop that a `break` or `continue` at this place would leave; None where none can be left: a
    `finally` and an `undo` run to their end."""
    for frame in reversed(chain):
        if frame.body in ("~finally", "~undo"):
            return None
        if frame.is_loop:
            return frame
    return None


def leaving(loop: StepDraft) -> Iterator[StepDraft]:
    """Each `break` and `continue` that leaves this loop or a round of it."""
    for step in loop.inside():
        if step.verb in LEAVING and (frame := find_loop_around(step.chain)) is not None and frame.owner is loop:
            yield step


_BLOCKS: Final = frozenset(("try", "parallel", "switch", "repeat"))


def is_end_certain(steps: Sequence[StepDraft]) -> bool:
    """Whether nothing can come behind this list: a `return`, `fail`, `break` or `continue` in it is reached for
    certain."""
    return any("if" not in step.fields and ends(step) for step in steps)


def ends(step: StepDraft) -> bool:
    """Whether nothing can come behind this step in its list, where its `if` is true."""
    if step.verb in ("return", "fail", *LEAVING):
        return True
    if step.catch or step.verb not in _BLOCKS:
        return False
    bodies = list(step.blocks.values())
    match step.verb:
        case "try":
            return is_end_certain(bodies[0]) if bodies else False
        case "parallel":
            ends = [is_end_certain(steps) for steps in bodies]
            return any(ends) if step.fields.get("join", "all") == "all" else all(ends)
        case "switch":
            cases = step.fields.get("switch", ())
            has_default = bool(cases) and isinstance(cases[-1], Mapping) and "default" in cases[-1]
            return has_default and all(is_end_certain(steps) for steps in bodies)
        case "repeat":
            leaves_loop = any(leaving(step))
            return bool(bodies) and "while" not in step.params and not leaves_loop and is_end_certain(bodies[0])
        case _:
            return False


@dataclass(slots=True, eq=False)
class Outline:
    """All steps of a document: `every` one, in its order. `ids` has every step that the author named, `tolerated` the
    ids inside of unreadable steps: no reference to those is reported. `fail_codes` are the codes of the document's own
    `fail` steps."""

    document: Document
    steps: list[StepDraft] = field(default_factory=list)
    catch: list[Clause] = field(default_factory=list)
    finally_: list[StepDraft] = field(default_factory=list)
    every: list[StepDraft] = field(default_factory=list)
    ids: dict[str, StepDraft] = field(default_factory=dict)
    tolerated: set[str] = field(default_factory=set)
    fail_codes: set[str] = field(default_factory=set)

    def list_unreachable(self) -> list[tuple[StepDraft, StepDraft]]:
        """The first step of each list that is never reached, behind the one that always ends the list."""
        lists = [self.steps, *(clause.steps for clause in self.catch), self.finally_]
        for step in self.every:
            lists += step.lists()
        pairs = ((each for each in pairwise(steps) if "if" not in each[0].fields and ends(each[0])) for steps in lists)
        return [pair for each in pairs for pair in islice(each, 1)]


class Lists(Protocol):
    """Reads lists of steps, for the verbs that have some inside."""

    @property
    def reader(self) -> Reader: ...

    def steps(self, value: Sequence[Json], at: Path, prefix: str, chain: Chain) -> list[StepDraft]:
        """The steps of one list. Each gets a path and its id, also a wrong one."""
        ...

    def steps_of(self, value: Json, at: Path, where: str) -> Sequence[Json]:
        """`value`, if it is a list of steps; else nothing, after a finding. `where` names it in the message."""
        ...
