"""The outline of a document: every step with its shape, its path and its place, before any expression is read.

Whatever is wrong with a step, it is in the outline and declares its id, so that no reference to it is reported as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

from hai_flow.definition.document import Path, kind_of, suggestion
from hai_flow.definition.names import corrected, name_fault
from hai_flow.definition.reader import Reader
from hai_flow.definition.reference import SHAPES, STEP_KEYS, STEP_SHAPES, VERBS

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One list of steps around a place. `owner` None: the document. `body` says which of the owner's lists it is.

    `parent` is the path of the plan's step that has the list; for the body of a loop that is `rollout[]`.
    """

    owner: Draft | None
    body: str
    parent: str

    @property
    def is_handler(self) -> bool:
        return self.body.startswith("~")

    @property
    def is_loop(self) -> bool:
        """Whether this is the body of a loop."""
        return self.body == "" and self.owner is not None and self.owner.verb in ("for_each", "repeat")

    @property
    def is_item(self) -> bool:
        """Whether this is the body of a `for_each`."""
        return self.body == "" and self.owner is not None and self.owner.verb == "for_each"


Chain: TypeAlias = tuple[Frame, ...]  # the lists around a place, outermost first


@dataclass(slots=True, eq=False)
class Draft:
    """A step as it stands in the document: its sound fields, where it is, and the lists inside it.

    `verb` is "" for a step that is too wrong to be compiled. `order` counts steps in document order, handlers behind
    what they handle; `body_end` is the first order behind the lists of a block.
    """

    verb: str
    fields: dict[str, Json]
    at: Path
    path: str
    id: str
    chain: Chain
    order: int
    body_end: int = 0
    next: str | None = None
    params: dict[str, Json] = field(default_factory=dict)  # of for_each and repeat: the mapping under the verb
    blocks: dict[str, list[Draft]] = field(default_factory=dict)  # body -> steps
    handlers: dict[str, list[Draft]] = field(default_factory=dict)  # option -> steps
    catch: list[Clause] = field(default_factory=list)
    finally_: list[Draft] = field(default_factory=list)
    undo: Draft | None = None

    @property
    def parent(self) -> str:
        return self.chain[-1].parent if self.chain else ""

    @property
    def body(self) -> str:
        return self.chain[-1].body if self.chain else ""

    def lists(self) -> Iterator[list[Draft]]:
        """Every list inside this step, handlers and `undo` included, in order."""
        yield from self.blocks.values()
        yield from self.handlers.values()
        for clause in self.catch:
            yield clause.steps
        yield self.finally_
        if self.undo is not None:
            yield [self.undo]

    def inside(self) -> Iterator[Draft]:
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
    steps: list[Draft]


LEAVING: Final = ("break", "continue")


def loop_around(chain: Chain) -> Frame | None:
    """The body of the loop that a `break` or `continue` at this place would leave; None where none can be left: a
    `finally` and an `undo` run to their end."""
    for frame in reversed(chain):
        if frame.body in ("~finally", "~undo"):
            return None
        if frame.is_loop:
            return frame
    return None


def leaving(loop: Draft) -> Iterator[Draft]:
    """Each `break` and `continue` that leaves this loop or a round of it."""
    for step in loop.inside():
        if step.verb in LEAVING and (frame := loop_around(step.chain)) is not None and frame.owner is loop:
            yield step


def always_ends(steps: Sequence[Draft]) -> bool:
    """Whether nothing can come behind this list: a `return`, `fail`, `break` or `continue` in it is reached for
    certain."""
    return any("if" not in step.fields and _ends(step) for step in steps)


def _ends(step: Draft) -> bool:
    if step.verb in ("return", "fail", *LEAVING):
        return True
    if step.catch:
        return False
    bodies = list(step.blocks.values())
    match step.verb:
        case "try":
            return always_ends(bodies[0]) if bodies else False
        case "parallel":
            ends = [always_ends(steps) for steps in bodies]
            return any(ends) if step.fields.get("join", "all") == "all" else all(ends)
        case "switch":
            cases = step.fields.get("switch", ())
            has_default = bool(cases) and isinstance(cases[-1], Mapping) and "default" in cases[-1]
            return has_default and all(always_ends(steps) for steps in bodies)
        case "repeat":
            left = any(leaving(step))
            return bool(bodies) and "while" not in step.params and not left and always_ends(bodies[0])
        case _:
            return False


class Outline:
    """Reads the steps of a document. `ids` has every step that the author named, `tolerated` the ids inside of what
    can't be read: no reference to those is reported."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.ids: dict[str, Draft] = {}
        self.tolerated: set[str] = set()
        self.fail_codes: set[str] = set()  # what the document's own `fail` steps raise
        self.order = 0

    def document(self, fields: Mapping[str, Json]) -> tuple[list[Draft], list[Clause], list[Draft]]:
        """The steps, the `catch` and the `finally` of a document."""
        steps = self._list(fields.get("steps", ()), ("steps",), "", ())
        clauses = self._catch(fields, (), "", (), None)
        return steps, clauses, self._finally(fields, (), "", (), None)

    # -- lists -----------------------------------------------------------------------------------------------------

    def _list(self, value: Sequence[Json], at: Path, prefix: str, chain: Chain) -> list[Draft]:
        """The steps of one list. Every step gets a path and its id, also a wrong one."""
        drafts: list[Draft] = []
        counts: dict[str, int] = {}
        for index, raw in enumerate(value):
            drafts.append(self._step(raw, (*at, index), prefix, chain, counts))
        for draft, following in pairwise(drafts):
            draft.next = following.path
        return drafts

    def _step(self, raw: Json, at: Path, prefix: str, chain: Chain, counts: dict[str, int]) -> Draft:
        verb = self._verb(raw, at)
        word = verb or "step"
        counts[word] = counts.get(word, 0) + 1
        fields: dict[str, Json] = {}
        before = len(self.reader.findings)
        if verb:
            fields = self.reader.fields(STEP_SHAPES[verb], raw, at, f"a `{verb}` step")
        given = raw.get("id") if isinstance(raw, Mapping) else None
        usable = isinstance(given, str) and name_fault(given) is None
        own = given if usable and isinstance(given, str) else f"{word}#{counts[word]}"
        draft = Draft(verb, fields, at, f"{prefix}{own}", own, chain, self._next_order())
        if usable:
            self._declare(draft, at)
        elif isinstance(given, str):
            self.tolerated.update((given, corrected(given)))
        if verb:
            self._inside(draft)
        draft.body_end = draft.body_end or self.order
        if not verb or len(self.reader.findings) > before:
            self.tolerated.update(_nested_ids(raw))
        return draft

    def _next_order(self) -> int:
        self.order += 1
        return self.order

    def _declare(self, draft: Draft, at: Path) -> None:
        first = self.ids.setdefault(draft.id, draft)
        if first is not draft:
            line = self.reader.document.position((*first.at, "id"), key=True)[0]
            message = (
                f"the id `{draft.id}` is used twice (first at line {line}); ids are unique in the document, rename one"
            )
            self.reader.error((*at, "id"), "id.duplicate", message)

    def _verb(self, raw: Json, at: Path) -> str:
        """The step's verb; "" after a finding."""
        if not isinstance(raw, Mapping):
            hint = f"; write `- {raw}: ...`" if isinstance(raw, str) and raw in VERBS else ""
            self.reader.error(at, "step.type", f"expected a step (a mapping with one verb), found {kind_of(raw)}{hint}")
            return ""
        verbs = [key for key in raw if key in VERBS]
        if len(verbs) == 1:
            return verbs[0]
        if verbs:
            names = " and ".join(f"`{verb}`" for verb in verbs)
            message = f"expected exactly one verb in a step, found {names}; make it {len(verbs)} steps"
            self.reader.error((*at, verbs[1]), "step.two_verbs", message, key=True)
            return ""
        self._no_verb(raw, at)
        return ""

    def _no_verb(self, raw: Mapping[str, Json], at: Path) -> None:
        strangers = [key for key in raw if key not in STEP_KEYS]
        if strangers:
            hint = _verb_hint(strangers[0])
            message = f"expected exactly one verb in a step, found the unknown key `{strangers[0]}`{hint}"
            self.reader.error((*at, strangers[0]), "step.no_verb", message, key=True)
            return
        found = f"only {', '.join(f'`{key}`' for key in raw)}" if raw else "nothing"
        message = f"expected exactly one verb in a step, found {found}; the verbs are {_VERB_LIST}"
        self.reader.error(at, "step.no_verb", message)

    # -- inside a step ---------------------------------------------------------------------------------------------

    def _inside(self, draft: Draft) -> None:
        """The lists inside a step: blocks, then handlers."""
        read = _BLOCKS.get(draft.verb)
        if read is not None and draft.verb in draft.fields:
            read(self, draft)
        draft.body_end = self.order + 1
        if draft.verb == "fail":
            parameters = draft.fields.get("fail")
            code = parameters.get("code") if isinstance(parameters, Mapping) else "fail"
            self.fail_codes.add(code if isinstance(code, str) else "fail")
        fields, prefix = draft.fields, f"{draft.path}/"
        if "on_decision" in fields or "on_reject" in fields:
            self._decisions(draft)
        if "catch" in fields:
            draft.catch = self._catch(fields, draft.at, prefix, draft.chain, draft)
        if "finally" in fields:
            draft.finally_ = self._finally(fields, draft.at, prefix, draft.chain, draft)
        if "undo" in fields:
            draft.undo = self._undo(draft)

    def _decisions(self, draft: Draft) -> None:
        handlers: dict[str, tuple[Json, Path]] = {}
        for option, raw in draft.fields.get("on_decision", {}).items():
            handlers[option] = (raw, (*draft.at, "on_decision", option))
        if "on_reject" in draft.fields:
            if handlers:
                message = (
                    "expected `on_decision` or `on_reject`, found both; put the steps of `on_reject` under `reject` in "
                    "`on_decision`"
                )
                self.reader.error((*draft.at, "on_reject"), "decision.both", message, key=True)
            handlers.setdefault("reject", (draft.fields["on_reject"], (*draft.at, "on_reject")))
        for option, (raw, at) in handlers.items():
            steps = self._steps_value(raw, at, f"the handler of `{option}`")
            chain = (*draft.chain, Frame(draft, f"~{option}", draft.path))
            draft.handlers[option] = self._list(steps, at, f"{draft.path}/~{option}/", chain)

    def _steps_value(self, raw: Json, at: Path, where: str) -> Sequence[Json]:
        """`raw`, if it is a list of steps; else nothing, after a finding."""
        if isinstance(raw, list) and raw:
            return raw
        found = "an empty list" if raw == [] else kind_of(raw)
        hint = "; begin each step with `- `" if isinstance(raw, Mapping) else ""
        self.reader.error(at, "shape.type", f"expected a list of steps in {where}, found {found}{hint}")
        return ()

    def _catch(
        self, fields: Mapping[str, Json], at: Path, prefix: str, chain: Chain, owner: Draft | None
    ) -> list[Clause]:
        clauses: list[Clause] = []
        for number, raw in enumerate(fields.get("catch", ())):
            place = (*at, "catch", number)
            given = raw
            if isinstance(raw, Mapping) and isinstance(raw.get("errors"), str):
                given = {**raw, "errors": [raw["errors"]]}
            if isinstance(raw, Mapping) and "steps" not in raw and len(raw.keys() & VERBS.keys()) == 1:
                message = "expected `errors` and `steps` in a `catch` clause, found a step; put it under `steps`"
                self.reader.error(place, "catch.step", message)
                self.tolerated.update(_nested_ids(raw))
                continue
            clause = self.reader.fields(SHAPES["catch"], given, place, "a `catch` clause")
            inner = (*chain, Frame(owner, f"~catch/{number}", owner.path if owner else ""))
            steps = self._list(clause.get("steps", ()), (*place, "steps"), f"{prefix}~catch/{number}/", inner)
            clauses.append(Clause(clause, place, steps))
        return clauses

    def _finally(
        self, fields: Mapping[str, Json], at: Path, prefix: str, chain: Chain, owner: Draft | None
    ) -> list[Draft]:
        inner = (*chain, Frame(owner, "~finally", owner.path if owner else ""))
        return self._list(fields.get("finally", ()), (*at, "finally"), f"{prefix}~finally/", inner)

    def _undo(self, draft: Draft) -> Draft | None:
        raw, at = draft.fields["undo"], (*draft.at, "undo")
        fields = self.reader.fields(SHAPES["undo"], raw, at, "`undo`")
        verbs = [verb for verb in ("call", "http", "run") if verb in raw]
        if len(verbs) != 1:
            if verbs or not raw.keys() - set(SHAPES["undo"].words):
                found = " and ".join(f"`{verb}`" for verb in verbs) or "none"
                message = f"expected one of `call`, `http`, `run` in `undo`, found {found}"
                self.reader.error((*at, verbs[1]) if verbs else at, "undo.kind", message, key=True)
            return None
        chain = (*draft.chain, Frame(draft, "~undo", draft.path))
        return Draft(verbs[0], fields, at, f"{draft.path}/~undo", "~undo", chain, self._next_order())

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _cases(self, draft: Draft) -> None:
        cases = draft.fields["switch"]
        for number, raw in enumerate(cases):
            at = (*draft.at, "switch", number)
            is_default = isinstance(raw, Mapping) and "default" in raw and "when" not in raw
            shape = _CASES["default" if is_default else "when"]
            fields = self.reader.fields(shape, raw, at, "the default case" if is_default else "a case of `switch`")
            if is_default and number < len(cases) - 1:
                message = "expected the default case last: nothing behind it would run; move it to the end"
                self.reader.error((*at, "default"), "switch.default", message, key=True)
            inner = (*draft.chain, Frame(draft, str(number), draft.path))
            prefix = f"{draft.path}/{number}/"
            draft.blocks[str(number)] = self._list(fields.get("steps", ()), (*at, "steps"), prefix, inner)

    def _branches(self, draft: Draft) -> None:
        for name, raw in draft.fields["parallel"].items():
            at = (*draft.at, "parallel", name)
            fault = name_fault(name)
            if fault:
                self.reader.error(at, "name.invalid", fault, key=True)
            steps = self._steps_value(raw, at, f"the branch `{name}`")
            inner = (*draft.chain, Frame(draft, name, draft.path))
            draft.blocks[name] = self._list(steps, at, f"{draft.path}/{name}/", inner)

    def _try(self, draft: Draft) -> None:
        inner = (*draft.chain, Frame(draft, "", draft.path))
        draft.blocks[""] = self._list(draft.fields["try"], (*draft.at, "try"), f"{draft.path}/", inner)

    def _loop(self, draft: Draft) -> None:
        at = (*draft.at, draft.verb)
        draft.params = self.reader.fields(SHAPES[draft.verb], draft.fields[draft.verb], at, f"`{draft.verb}`")
        parent = f"{draft.path}[]"
        inner = (*draft.chain, Frame(draft, "", parent))
        draft.blocks[""] = self._list(draft.params.get("steps", ()), (*at, "steps"), f"{parent}/", inner)


_BLOCKS: dict[str, Callable[[Outline, Draft], None]] = {
    "switch": Outline._cases,
    "parallel": Outline._branches,
    "try": Outline._try,
    "for_each": Outline._loop,
    "repeat": Outline._loop,
}
_CASES = {word: SHAPES["case"].of(word) for word in ("when", "default")}
_VERB_LIST = ", ".join(VERBS)
_OTHER_WORDS = {
    "foreach": "for_each", "loop": "for_each", "for": "for_each", "map": "for_each", "while": "repeat",
    "until": "repeat", "print": "say", "message": "say", "log": "say", "prompt": "llm", "sleep": "wait",
    "delay": "wait", "timer": "wait", "tool": "call", "action": "call", "uses": "call", "request": "http",
    "branch": "switch", "case": "switch", "else": "switch", "choose": "switch", "raise": "fail", "throw": "fail",
    "error": "fail", "assign": "set", "human": "approve", "input": "ask", "workflow": "run", "call_workflow": "run",
    "next": "continue", "leave": "break",
    "exit": "return", "end": "return", "stop": "return", "event": "wait_for", "signal": "wait_for",
}  # fmt: skip


def _verb_hint(word: str) -> str:
    """What was probably meant by a key that is no verb."""
    other = _OTHER_WORDS.get(word)
    if other is not None:
        return f"; did you mean `{other}`?"
    return suggestion(word, VERBS) or f"; the verbs are {_VERB_LIST}"


def _nested_ids(value: Json) -> Iterable[str]:
    """Ids of all steps inside something that is not compiled."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "id" and isinstance(item, str):
                yield item
            else:
                yield from _nested_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nested_ids(item)
