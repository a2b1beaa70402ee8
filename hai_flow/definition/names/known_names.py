"""The names that one place of a document has, their types, and what is wrong, or in doubt, with a path that begins with
one (docs/language.md#names)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from hai_flow.definition.expressions.ast_paths import (
    Chain,
    Segment,
    check_secret,
    find_segment_offset,
    parse_whole_path,
    spell,
    spell_guards,
)
from hai_flow.definition.expressions.cel_values import Kind
from hai_flow.definition.expressions.evaluation import CompiledExpression, Guards
from hai_flow.definition.expressions.expression_error import ExpressionFault
from hai_flow.definition.names.holes import find_only_hole
from hai_flow.definition.names.known_types import (
    ALWAYS,
    ELSEWHERE,
    ENVELOPE,
    EVERYWHERE_ALIKE,
    FILLED,
    FILTERED,
    FIXED,
    GIVEN,
    INFERRED,
    NULL_UNLESS,
    PARTS,
    ROOTS,
    STATUS,
    USAGE,
)
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.schemas.schema_paths import Look, list_properties, look_along
from hai_flow.values import Json

STEP_MEMBERS: Final = ("status", "output", "error", "approval", "usage", "parts")
_MEMBER_HINTS: Final = {
    "decision": "; write steps.X.approval.decision",
    "result": "; did you mean `output`?",
    "items": "; a loop's items are its `output`",
    "approved": '; write steps.X.approval.decision == "approve"',
    "outcome": "; did you mean `status`?",
}

_OF_STEPS: Final[Mapping[str | int, Json]] = {
    "status": STATUS, "error": FIXED["error"], "usage": USAGE, "parts": PARTS,
}  # fmt: skip
_CLOSED: Final[Mapping[str, Json]] = {"additionalProperties": False}

Kinds: TypeAlias = "tuple[tuple[tuple[Segment, ...], Kind], ...]"
"""Paths with the CEL types of the values at them."""


_PARTS_OF_NOW: Final = '; write now.getFullYear(), now.getHours("Europe/Berlin"), or now.format_time("%Y-%m-%d")'
_SOURCES_MAX: Final = 20_000  # that many expressions are kept from text to text


@dataclass(frozen=True, slots=True)
class Types:
    """The static types of the data, as JSON Schemas; `{}` where nothing is known."""

    input: Json
    state: Json  # an object with a property for each name of `state`
    outputs: Mapping[str, Json] = field(default_factory=dict)  # id -> schema of steps.ID.output
    approvals: Mapping[str, Json] = field(default_factory=dict)  # id -> schema of steps.ID.approval; else ENVELOPE
    roots: Mapping[str, Json] = field(default_factory=dict)  # of roots that exist at some places only: item, args, ...
    ungated: Container[str] = ()  # ids of steps without `approval`
    rarely_gated: Container[str] = ()  # ids of steps whose `approval` has a `when`
    mindless: Container[str] = ()  # ids of steps that ask no model: they have no `usage`
    silent: Container[str] = ()  # ids of steps that a deadline approves: they may have no `votes`
    results: Mapping[str, Json] = field(default_factory=dict)
    """id -> schema of steps.ID.output of steps that call Python, or that have results. Where a document is published
    the functions are not looked at, so these judge expressions and never bind them: a document means the same
    everywhere."""
    _looks: dict[tuple[Segment, ...], Look] = field(default_factory=dict, init=False, repr=False, compare=False)
    sound: dict[str, JudgedPath] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Sound holes that are paths, by their source: most documents name few things often."""
    sound_sources: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Sound expressions that read no step, compiled, by their source and what holds at their place."""

    def reuse(self, before: Types) -> None:
        """Take over the compiled expressions that read no step, where all that they read is as it was."""
        if before.input == self.input and before.state == self.state and len(before.sound_sources) < _SOURCES_MAX:
            self.sound.update(before.sound)
            self.sound_sources.update(before.sound_sources)

    def look(self, path: Sequence[Segment]) -> Look:
        """`path` as the schemas see it."""
        key = tuple(path)
        if key not in self._looks:
            self.look_at((key,))
        return self._looks[key]

    def look_at(self, paths: Iterable[tuple[Segment, ...]]) -> None:
        """Look at several paths at once, for what is asked of them later."""
        roots = [(path, *self._find_root(path)) for path in paths if path not in self._looks]
        for path, schema, depth in roots:
            look = look_along(schema, path[depth:], depth, path)
            if path[0] == "now" and len(path) > 1:
                look = Look({}, barren=(1, f"`now` is an instant and has no `{path[1]}`{_PARTS_OF_NOW}"))
            self._looks[path] = look

    def look_to_judge(self, path: Sequence[Segment]) -> Look:
        """As `look`, also with what functions of Python say of their results, and expressions of theirs."""
        inferred = self.roots.get(str(path[0]))
        if isinstance(inferred, Mapping) and INFERRED in inferred:
            return look_along(inferred[INFERRED], tuple(path[1:]), 1, path)
        if len(path) > 2 and path[0] == "steps" and path[2] == "output" and path[1] in self.results:
            return look_along(self.results[str(path[1])], tuple(path[3:]), 3, path)
        return self.look(path)

    def _find_root(self, path: tuple[Segment, ...]) -> tuple[Json, int]:
        """A schema that is known as a whole, and the length of the beginning of the path that leads there."""
        root = str(path[0])
        if root != "steps":
            typed_roots = {"input": self.input, "state": self.state}
            return typed_roots[root] if root in typed_roots else self.roots.get(root, FIXED.get(root, {})), 1
        if len(path) < 3:
            return {}, len(path)
        id = str(path[1])
        match path[2]:
            case "output":
                return self.outputs.get(id, {}), 3
            case "approval":
                return self.approvals.get(id, ENVELOPE), 3
            case "status" if len(path) > 3:
                return {}, 3
            case member:
                return _OF_STEPS.get(member, {}), 3

    def find_kinds(self, paths: Iterable[tuple[Segment, ...]]) -> tuple[Kinds, Kinds]:
        """The CEL types of the values at paths, and those where these are not absent."""
        bound, present = [], []
        for path in paths:
            bound.append((path, self.kind(path)))
            present.append((path, self.kind_where_there(path)))
        return tuple(bound), tuple(present)

    def kind(self, path: Sequence[Segment]) -> Kind:
        """The CEL type of the value at `path`."""
        if tuple(path) == ("now",):
            return "timestamp"
        look = self.look(path)
        filled = isinstance(look.schema, Mapping) and FILLED in look.schema  # the hole may give null
        return "dyn" if look.optional or filled else _kind(look.schema)

    def kind_where_there(self, path: Sequence[Segment]) -> Kind:
        """The CEL type of the value at `path` where it is not absent; as it is bound then, a number is a double."""
        look = self.look_to_judge(path)
        if not look.optional and look.schema == self.look(path).schema:
            return self.kind(path)
        kind = _kind(look.schema)
        return {"int": "double", "list:int": "list:double"}.get(kind, kind)


class VisibleSteps(Protocol):
    """The steps that a place sees."""

    def __contains__(self, name: object, /) -> bool: ...

    @property
    def explain(self) -> Callable[[str], tuple[str, str] | None]:
        """(code, message) of the finding for a step that is not seen; None where nothing needs saying."""
        ...

    @property
    def explain_let(self) -> Callable[[str], str]:
        """Where a `let` gives a name that the place does not have, with the remedy; "" if none does."""
        ...

    def explain_absence(self, name: str, member: str, guards: Guards) -> str | None:
        """Why a member of a step may be absent when the place is reached, although `guards` hold there, as a clause
        like "the step has an `if`"; None: it is there."""
        ...


class NoSteps(msgspec.Struct, frozen=True):
    """No step is seen."""

    explain: Callable[[str], tuple[str, str] | None] = lambda name: (
        "expression.unknown_step",
        f"there is no step `{name}`",
    )
    explain_let: Callable[[str], str] = lambda name: ""

    def __contains__(self, name: object) -> bool:
        return False

    def explain_absence(self, name: str, member: str, guards: Guards) -> str | None:
        return None


class JudgedPath(NamedTuple):
    """A path that is read at a place. `is_optional`: its last property may be absent; `fault`: it may not be read
    there; `doubt`: it may fail."""

    path: tuple[Segment, ...]
    is_optional: bool
    fault: ExpressionFault | None = None
    doubt: ExpressionFault | None = None


class Names(msgspec.Struct, frozen=True):
    """The names that one place has."""

    types: Types
    roots: frozenset[str] = ALWAYS
    steps: VisibleSteps = NoSteps()
    guarded: Guards = frozenset()  # paths that conditions around have shown to be there

    def with_roots(self, *names: str, schemas: Mapping[str, Json] | None = None) -> Names:
        """The same place with further roots: `names`, and those of `schemas` with their types."""
        types = dataclasses.replace(self.types, roots={**self.types.roots, **schemas}) if schemas else self.types
        return msgspec.structs.replace(self, types=types, roots=self.roots | {*names, *(schemas or ())})

    def with_guards(self, expression: CompiledExpression | None) -> Names:
        """The same place, where `expression` is known to be true."""
        return msgspec.structs.replace(self, guarded=self.guarded | expression.guards) if expression else self

    def knowing(self, paths: Iterable[tuple[Segment, ...]]) -> Names:
        """The same place, where `paths` are known to be there, and not null."""
        return msgspec.structs.replace(self, guarded=self.guarded | set(paths))

    def within(self, items: Json) -> Names:
        """The same place, within a loop over `items`, of which there is one then."""
        chain = self._find_only_chain(items)
        return self if chain is None else self.knowing([(*chain.path, 0)])

    def with_no_vote(self, step: str) -> Names:
        """The same place, where the decision of a step may have come without a vote."""
        return msgspec.structs.replace(self, guarded=self.guarded | {(None, "no vote", step)})

    def find_element_schema(self, value: Json) -> Json:
        """The type of the items of `value`, where it is one hole with only a path to a list of known type; else {}."""
        look = self._look_at(value)
        items = look.schema.get("items") if isinstance(look.schema, Mapping) else None
        if not isinstance(items, Mapping):
            return {}
        return {**{key: look.root[key] for key in ("$defs", "definitions") if key in look.root}, **items}

    def schema_of(self, value: Json) -> Json:
        """The type of what `value` renders to, as far as it is known without looking into expressions."""
        match value:
            case str():
                hole = find_only_hole(value)
                if hole is None:
                    return {"type": "string"}
                look = self._look_at(value)
                return {} if look.optional else look.schema
            case bool():
                return {"type": "boolean"}
            case int():
                return {"type": "integer"}
            case float():
                return {"type": "number"}
            case Mapping():
                properties = {name: self.schema_of(each) for name, each in value.items()}
                return {"type": "object", "properties": properties, "required": list(value), **_CLOSED}
            case list():
                return {"type": "array"}
        return {}

    def behind(self, last: Names) -> Names:
        """The same place, behind a list whose last step has the names `last` behind it: the names that its steps give,
        and the facts that their ends have shown."""
        types = dataclasses.replace(self.types, roots=last.types.roots)
        return msgspec.structs.replace(self, types=types, roots=last.roots, guarded=last.guarded)

    def type_of(self, value: Json) -> str | None:
        """The JSON type of `value`, where it is one hole with only a path to something of one known type."""
        schema = self._look_at(value).schema
        type_name = schema.get("type") if isinstance(schema, Mapping) else None
        return type_name if isinstance(type_name, str) else None

    def find_path_named(self, text: str, *, guess: bool = False) -> str | None:
        """The path that `text` is, where it leads to something of this place; else None. With `guess` it may also lack
        its beginning: `amount` for `input.amount`, `pay.output` for `steps.pay.output`."""
        paths = [text, *self._list_completions(text)] if guess else [text]
        return next((path for path in paths if self._is_known_path(path)), None)

    def _list_completions(self, text: str) -> Iterator[str]:
        word = text.partition(".")[0]
        if word != text and word in self.steps:
            yield f"steps.{text}"
        for root, schema in (("input", self.types.input), ("state", self.types.state)):
            if isinstance(schema, Mapping) and word in schema.get("properties", ()):
                yield f"{root}.{text}"

    def _is_known_path(self, text: str) -> bool:
        chain = parse_whole_path(text, self.list_roots())
        if chain is None or chain.path[0] not in self.roots:
            return False
        least = 3 if chain.path[0] == "steps" else 1 if chain.path[0] not in ROOTS - {"item"} else 2
        return len(chain.path) >= least and self.check(text, chain) is None

    def find_null_path(self, value: Json) -> str | None:
        """The path that `value` consists of as one hole, if null may be there and nothing around has excluded that."""
        hole = find_only_hole(value)
        chain = parse_whole_path(hole.source, self.list_roots()) if hole else None
        if chain is None or chain.path[0] not in self.roots or self.is_known(chain.path):
            return None
        look = self.types.look_to_judge(chain.path)
        types = look.schema.get("type") if isinstance(look.schema, Mapping) else None
        nullable = isinstance(types, list) and "null" in types
        nullable = nullable or (chain.path[0] != "state" and may_be_null(look.schema))
        return spell(chain.path) if nullable or look.last_optional else None

    def remedy_for_null(self, value: Json) -> str:
        """What to write in place of a hole of which `find_null_path` names the path."""
        path = self.find_null_path(value) or ""
        chain = self._find_only_chain(value)
        if chain is not None and self.types.look(chain.path).last_optional:
            test, default = spell_guards(chain.path)
            return f"write `{default}`, or give the step `if: {test}`"
        return f"write `{path} == null ? ... : {path}`, or give the step `if: {path} != null`"

    def _look_at(self, value: Json) -> Look:
        chain = self._find_only_chain(value)
        return Look({}) if chain is None else self.types.look(chain.path)

    def find_type(self, value: str) -> Look | None:
        """The type of `value`, where it is one hole with only a path: with `optional` where null may be there."""
        chain = self._find_only_chain(value)
        if chain is None:
            return None
        return Look({"type": "string"}) if chain.path == ("now",) else self.types.look_to_judge(chain.path)

    def _find_only_chain(self, value: Json) -> Chain | None:
        """The path into the data here, where `value` is one hole with only that."""
        hole = find_only_hole(value)
        chain = parse_whole_path(hole.source, self.list_roots()) if hole else None
        return chain if chain and chain.path[0] in self.roots else None

    def doubt_value(self, value: Json) -> str | None:
        """Why `value`, one hole with only a path, may give null, where null does not belong; None: it gives a value."""
        chain = self._find_only_chain(value)
        path = None if chain is None else self.find_null_path(value)
        if chain is None or path is None:
            return None
        return f"`{path}` may be {self._describe_nothing(chain)}; {self.remedy_for_null(value)}"

    def _describe_nothing(self, chain: Chain) -> str:
        return "absent" if self.types.look_to_judge(chain.path).last_optional else "null"

    def list_roots(self) -> frozenset[str]:
        """The names that begin a path into the data, here or elsewhere."""
        return ROOTS if self.roots <= ROOTS else ROOTS | self.roots

    def judge_paths(self, sources: Iterable[str]) -> dict[str, JudgedPath | None]:
        """The path that each whole hole is, by its source; None: it is another expression."""
        all_roots, sound = self.list_roots(), self.types.sound
        judged: dict[str, JudgedPath | None] = {
            source: path for source in sources if (path := sound.get(source)) and path.path[0] in self.roots
        }
        chains = {source: parse_whole_path(source, all_roots) for source in sources if source not in judged}
        self.types.look_at(chain.path for chain in chains.values() if chain)
        for source, chain in chains.items():
            judged[source] = None if chain is None else self._judge_path(source, chain)
        return judged

    def _judge_path(self, source: str, chain: Chain) -> JudgedPath:
        if (fault := self.check(source, chain)) is not None:
            return JudgedPath(chain.path, False, fault)
        doubt = self.doubt(chain, alone=True)
        judged = JudgedPath(chain.path, self.types.look(chain.path).last_optional, None, doubt)
        if doubt is None and chain.path[0] in EVERYWHERE_ALIKE and not self.guarded:
            self.types.sound[source] = judged
        return judged

    def doubt(self, chain: Chain, known: Guards = frozenset(), *, alone: bool = False) -> ExpressionFault | None:
        """The doubt about a path that may be absent where only `known` (and the guards around) is there.

        `alone`: the path is a whole hole, where an optional property is null.
        """
        path = chain.path
        if path[0] == "secrets":
            return check_secret(chain)
        if path[0] == "steps" and len(path) > 2 and path[2] in MAY_BE_ABSENT:
            absent = self._explain_absence(path, known)
            if absent is not None:
                message = _describe_absent_step(path, absent, alone=self._may_lack_approval(path))
                return ExpressionFault(chain.start, "expression.unguarded", message)
        fault = self._header_fault(chain.full_path, chain.start)
        if fault is not None:
            return fault
        look = self.types.look_to_judge(chain.full_path)
        if (fault_inside := look.barren or look.wrong) is not None:
            return ExpressionFault(chain.start, "expression.no_object", fault_inside[1])
        look = self.types.look(path)
        for length in look.optional:
            if alone and look.last_optional and length == len(path):
                continue
            if not self.is_known(path[:length], known):
                text = spell(path[:length])
                if length == 3 and path[0] == "steps":
                    message = (
                        f"`{text}` is null where no event came in time: `on_deadline` says so; test "
                        f"`{text} != null` before"
                    )
                    return ExpressionFault(chain.start, "expression.unguarded", message)
                remedy = f"guard it with {' or '.join(spell_guards(path[:length]))}"
                return ExpressionFault(chain.start, "expression.unguarded", f"`{text}` may be absent; {remedy}")
        doubt = self.doubt_item(chain, known) or self.doubt_null(chain, known, whole=False)
        return doubt or (None if chain.field is None else self.doubt_null(chain, known, whole=True))

    def _explain_absence(self, path: tuple[Segment, ...], known: Guards) -> str | None:
        if self.is_known(path[:3], known) or self._is_approved(path, known):
            return None
        return self.steps.explain_absence(str(path[1]), str(path[2]), self._complete(known | self.guarded))

    def _complete(self, guards: Guards) -> Guards:
        """The guards, with the value of the input that is left where conditions exclude the others of its enum."""
        excluded: dict[str, set[str]] = {}
        for each in guards:
            if each[0] is None and each[1] == "equal" and not each[4] and str(each[2]).startswith("input."):
                excluded.setdefault(each[2], set()).add(each[3])
        facts: set[tuple[Any, ...]] = set()
        for text, values in excluded.items():
            look = self.types.look(tuple(text.split(".")))
            choices = look.schema.get("enum") if isinstance(look.schema, Mapping) and not look.optional else None
            others = [each for each in choices if repr(each) not in values] if isinstance(choices, list) else []
            if len(others) == 1:
                facts.add((None, "equal", text, repr(others[0]), True))
        return guards | facts

    def _may_lack_approval(self, path: Sequence[Segment]) -> bool:
        """Whether the approval of a step that has finished may be absent: its `when` was false then."""
        return path[2] == "approval" and str(path[1]) in self.types.rarely_gated

    def _is_approved(self, path: Sequence[Segment], known: Guards) -> bool:
        """Whether a step is known to have an approval because it has finished."""
        is_approval = path[2] == "approval" and not self._may_lack_approval(path)
        return is_approval and self.is_known((*path[:2], "output"), known)

    def doubt_item(self, chain: Chain, known: Guards) -> ExpressionFault | None:
        """The doubt about an item of a list that may have fewer, by its type. What steps append to the state is not
        known."""
        for length, index in enumerate(chain.path):
            path = chain.path[:length]
            if not isinstance(index, int) or path[0] == "state" or self.is_known((*path, index), known):
                continue
            if index < self.count_tested_items(path, known):
                continue
            if index >= self.find_least_size(path):
                text = spell(path)
                test, default = spell_guards((*path, index))
                remedy = f"test `{test}` before, or write `{default}`"
                message = f"`{text}` may have no item [{index}]; {remedy}"
                return ExpressionFault(chain.start, "expression.unguarded", message)
        return None

    def find_least_size(self, path: tuple[Segment, ...]) -> float:
        """The number of items that a list certainly has; without bound where nothing is known of it."""
        if path[0] == "steps" and path[2:] in (("output", "votes"), ("approval", "votes")):
            has_none = str(path[1]) in self.types.silent or (None, "no vote", path[1]) in self.guarded
            return 0 if has_none else math.inf
        schema = self.types.look_to_judge(path).schema
        if not isinstance(schema, Mapping) or schema.get("type") != "array":
            return math.inf
        if self._is_inferred(path[0]):
            return 0 if FILTERED in schema else math.inf
        least = schema.get("minItems", 0)
        return least if isinstance(least, int | float) else math.inf

    def count_tested_items(self, path: tuple[Segment, ...], known: Guards) -> int:
        """The number of items that conditions have shown the list at a path to have."""
        count, size = 0, (None, "equal", f"size({spell(path)})")
        if path[-1] == "votes" and (None, "true", f"{spell(path[:-1])}.expired", "", False) in known | self.guarded:
            return 1
        others = {each[3] for each in known | self.guarded if each[:3] == size and not each[4]}
        while self.is_known((*path, count), known) or str(count) in others:
            count += 1
        return count

    def doubt_null(self, chain: Chain, known: Guards, *, whole: bool) -> ExpressionFault | None:
        """The doubt about the beginnings of a path that may be null by their type: or, with `whole`, about all of it.
        What steps write into the state between is not known."""
        if chain.path[0] == "state":
            return None
        beginnings = self.types.look_to_judge(chain.path).along[: len(chain.path) - 1]
        schemas = [self.types.look_to_judge(chain.path).schema] if whole else beginnings
        for length, schema in enumerate(schemas, len(chain.path) if whole else 1):
            path = chain.path[:length]
            if may_be_null(schema) and not self.is_known(path, known):
                return ExpressionFault(chain.start, "expression.unguarded", describe_null(path, schema))
        return None

    def _is_inferred(self, root: Segment) -> bool:
        return INFERRED in str(self.types.roots.get(str(root)))

    def _header_fault(self, path: Sequence[Segment], start: int) -> ExpressionFault | None:
        """The doubt about a header that is read by a name with capitals, which none has."""
        holder = 3 if path[0] == "steps" else 1 if path[0] in ("event", "response") else len(path)
        if len(path) < holder + 2 or path[holder] != "headers" or not isinstance(name := path[holder + 1], str):
            return None
        is_http = path[0] != "steps" or "headers" in list_properties(self.types.look(path[:3]))
        if name == name.lower() or not is_http:
            return None
        message = f'names of headers are in lower case here; write `{spell(path[: holder + 1])}["{name.lower()}"]`'
        return ExpressionFault(start, "expression.literal", message)

    def is_known(self, path: tuple[Segment, ...], known: Guards = frozenset()) -> bool:
        """Whether `known`, or conditions around, have shown that something is at `path`, and not null."""
        return any(guard[: len(path)] == path for guards in (known, self.guarded) for guard in guards)

    def check_paths(self, source: str, chains: Iterable[Chain]) -> list[ExpressionFault]:
        """The faults of the paths in an expression."""
        return [fault for chain in chains if (fault := self.check(source, chain))]

    def check(self, source: str, chain: Chain) -> ExpressionFault | None:
        """The fault of one path, or None."""
        if chain.path[0] not in self.roots:
            message = _explain_absence(str(chain.path[0]))
            own = sorted(self.roots - ROOTS)
            if chain.path[0] == "item" and "index" in self.roots and own:  # of a loop, and of `let`
                message += f" without `as`; the names of this place are {', '.join(f'`{each}`' for each in own)}"
            return ExpressionFault(chain.start, "expression.unknown_name", message)
        if chain.path[0] == "steps":
            fault = self._check_step(source, chain)
            if fault is not None:
                return fault
        wrong = self.types.look_to_judge(chain.full_path).wrong
        if wrong is None or self._is_inferred(chain.path[0]):
            return None
        return ExpressionFault(find_segment_offset(source, chain, wrong[0]), "expression.unknown_property", wrong[1])

    def _check_step(self, source: str, chain: Chain) -> ExpressionFault | None:
        if len(chain.path) < 2:
            return ExpressionFault(
                chain.start, "expression.step", "expected steps.ID.output, found `steps` alone; name the step"
            )
        name = str(chain.path[1])
        if name not in self.steps:
            explained = self.steps.explain(name)
            return ExpressionFault(find_segment_offset(source, chain, 1), *explained) if explained else None
        member = chain.path[2] if len(chain.path) > 2 else chain.field
        if member is None:
            message = (
                f"expected steps.{name}.output (or .status, .error, .approval, .usage, .parts), found the step itself"
            )
            return ExpressionFault(find_segment_offset(source, chain, 1), "expression.step", message)
        if member not in STEP_MEMBERS:
            hint = (
                _MEMBER_HINTS.get(str(member))
                or suggestion(str(member), STEP_MEMBERS)
                or f"; it has {', '.join(STEP_MEMBERS)}"
            )
            message = f"a step has no `{member}`{hint.replace('X', name)}"
            return ExpressionFault(find_segment_offset(source, chain, 2), "expression.step_member", message)
        if member == "approval" and name in self.types.ungated:
            message = f"nobody approves the step `{name}`: only `approve` steps and steps with an `approval` have one"
            return ExpressionFault(find_segment_offset(source, chain, 2), "expression.step_member", message)
        if member in ("usage", "parts") and name in self.types.mindless:
            message = f"the step `{name}` asks no model: only `llm` and `agent` have `{member}`"
            return ExpressionFault(find_segment_offset(source, chain, 2), "expression.step_member", message)
        return None


MAY_BE_ABSENT: Final = ("output", "error", "approval", "usage", "parts")


def _describe_absent_step(path: Sequence[Segment], reason: str, *, alone: bool) -> str:
    """`alone`: nothing but a test of the member itself shows that it is there."""
    step, member = spell(path[:2]), path[2]
    status = f', or test {step}.status == "finished" before' if member != "error" and not alone else ""
    guards = f"has({step}.{member}) or {step}.?{member}.orValue(...){status}"
    return f"`{step}.{member}` may be absent: {reason}; guard it with {guards}"


def _explain_absence(name: str) -> str:
    if name in ALWAYS:
        return f"`{name}` can't be named here: this is evaluated before there is a run"
    return ELSEWHERE.get(name) or f"there is no name `{name}`"


def may_be_null(schema: Json) -> bool:
    """Whether a schema has null beside another type, and a reader has to expect it."""
    if not isinstance(schema, Mapping) or GIVEN in schema:
        return False
    several = schema.get("anyOf") or schema.get("oneOf")
    words = schema.get("type")
    return ("null" in words and len(words) > 1 if isinstance(words, list) else False) or (
        isinstance(several, list) and {"type": "null"} in several
    )


def describe_null(path: Sequence[Segment], schema: Json) -> str:
    """The doubt about a path of this type, which may be null."""
    test = schema.get(NULL_UNLESS) if isinstance(schema, Mapping) else None
    condition = f"{spell(path[:-1])}.{test}" if test and len(path) > 1 else f"{spell(path)} != null"
    return f"`{spell(path)}` may be null; test `{condition}` before"


def _kind(schema: Json) -> Kind:
    if not isinstance(schema, Mapping):
        return "dyn"
    match schema.get("type"):
        case "integer":
            return "int"
        case "number":
            return "double"
        case "string":
            return "string"
        case "boolean":
            return "bool"
        case "object":
            return "map"
        case "array":
            element = _kind(schema.get("items", {}))
            return f"list:{element}" if element in ("int", "double", "string", "bool", "map") else "list:dyn"
        case _:
            return "dyn"


def as_inferred(look: Look) -> Json:
    """The schema of a name whose value an expression gives: its type is under `INFERRED`."""
    if not isinstance(look.schema, Mapping) or not look.schema:
        return {}
    defined = {key: look.root[key] for key in ("$defs", "definitions") if key in look.root} if look.root else {}
    return {INFERRED: {**defined, **look.schema}}
