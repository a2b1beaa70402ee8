"""The doubts about an expression: paths that may be absent where it reads them, by what its conditions show, and
comparisons that can only fail."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from hai_flow.definition.checks.condition_facts import (
    collect_guards,
    collect_kept,
    collect_shown,
    conclude,
    fact,
    is_filter,
    is_form_known,
    list_items,
    spell_tree,
)
from hai_flow.definition.checks.value_types import ValueTypes, find_element, find_mapped
from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Listing, Mapped, Select, Tree, walk
from hai_flow.definition.expressions.ast_paths import (
    Chain,
    Segment,
    find_segment_offset,
    parse_static_path,
    spell,
    spell_guards,
)
from hai_flow.definition.expressions.cel_macros import GROUPED, SORTED
from hai_flow.definition.expressions.cel_messages import OPERATORS, describe_overload
from hai_flow.definition.expressions.evaluation import Guards
from hai_flow.definition.expressions.expression_error import ExpressionFault
from hai_flow.definition.names.known_names import Names, describe_null, may_be_null
from hai_flow.definition.names.known_types import INFERRED
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.schemas.schema_paths import Look, list_alternatives, look_inside
from hai_flow.values import Json

# Codes of doubts: warnings, not errors.
DOUBTS: Final = frozenset(("condition.certain", "expression.unguarded", "expression.zone"))
# Codes of doubts that new documents are refused for.
REFUSALS: Final = frozenset((
    "expression.enum", "expression.literal", "expression.mismatch", "expression.no_object", "expression.secret",
))  # fmt: skip


class Doubts:
    """One walk through a tree: unguarded paths, texts outside their enum, fields of typed list items."""

    def __init__(self, source: str, tree: Tree, chains: Mapping[int, Chain], names: Names) -> None:
        self.source = source
        self.names = names
        self.types = ValueTypes(chains, names)
        self.chains = chains  # by the id of their node
        self.doubts: list[ExpressionFault] = []
        self.faults: list[ExpressionFault] = []
        self._tree = tree
        self._computed: set[str] = set()  # variables of loops over lists of names with an inferred type
        self._visit(tree, frozenset(), {})

    @cached_property
    def _compared(self) -> frozenset[int]:
        """The ids of the nodes inside of comparisons."""
        comparisons = (each for each in walk(self._tree) if isinstance(each, Call) and each.function in _COMPARING)
        return frozenset(id(part) for comparison in comparisons for part in walk(comparison))

    def _visit(self, tree: Tree, known: Guards, items: Mapping[str, Look]) -> None:
        """`known`: paths shown to be there; `items`: the types of the variables of loops around."""
        chain = self.chains.get(id(tree))
        if chain is not None:
            doubt = self.names.doubt(chain, known)
            self.doubts += [doubt] if doubt else []
            return
        if items and isinstance(tree, (Select, Call)) and self._item(tree, known, items):
            return
        match tree:
            case Call(function="_&&_" | "_||_", arguments=(left, right)):
                self._visit(left, known, items)
                self._visit(right, self._extend(known, left, tree.function == "_&&_"), items)
            case Call(function="_?_:_", arguments=(condition, then, otherwise)):
                self._visit(condition, known, items)
                self._visit(then, self._extend(known, condition, True), items)
                self._visit(otherwise, self._extend(known, condition, False), items)
            case Comprehension():
                self._loop(tree, known, items)
            case _:
                if isinstance(tree, Call) and tree.function in ("_==_", "_!=_", "@in"):
                    self.doubts += _check_enums(tree, self.chains, self.names)
                    self._check_item_enums(tree, items)
                if isinstance(tree, Call) and tree.function == "sum":
                    self._check_addends(tree, known, items)
                if isinstance(tree, Call) and tree.function == "timestamp":
                    self._check_instant(tree, items)
                if isinstance(tree, Call) and tree.function == "duration":
                    self._check_length(tree, items)
                if isinstance(tree, Call) and tree.function in OPERATORS and items:
                    self._check_operands(tree, items)
                if isinstance(tree, Call) and tree.function == "_[_]":
                    self._doubt_last(tree, known)
                    self._doubt_computed_item(tree, known)
                if isinstance(tree, Call) and tree.function == "_[_]":
                    self._doubt_key(tree, known)
                if isinstance(tree, Call) and tree.function == "substring":
                    self._doubt_length(tree, known)
                if isinstance(tree, Call) and tree.function in ("_/_", "_%_"):
                    self._doubt_divisor(tree, known)
                if isinstance(tree, Call) and tree.function in _ORDERED:
                    self._doubt_alternatives(tree)
                if isinstance(tree, Call) and tree.function in ("_?._", "_[?_]"):
                    self._doubt_null_holder(tree.parts[0], known, items)
                if isinstance(tree, Call) and tree.function in _NEVER_OF_NULL:
                    self._check_nulls(tree.parts[-1:] if tree.function == "@in" else tree.parts[:2], known, items)
                for child in tree.parts:
                    self._visit(child, known, items)

    def _extend(self, known: Guards, condition: Tree, outcome: bool) -> Guards:
        """The guards where a condition has this outcome, too."""
        guards = known | collect_guards(condition, self.chains, outcome)
        return conclude(guards | self.names.guarded) - self.names.guarded

    def _check_nulls(self, operands: Sequence[Tree], known: Guards, items: Mapping[str, Look]) -> None:
        """Doubt operands that may be null, of what fails for null."""
        for operand in operands:
            chain = self.chains.get(id(operand))
            doubt = None if chain is None else self.names.doubt_null(chain, known, whole=True)
            self.doubts += [doubt] if doubt else []
            path = parse_static_path(operand) if chain is None else None
            if path is not None and path[0].name in items:
                item_path = (path[0].name, *path[1])
                along = [*[{}] * len(path[1]), self.types.look(operand, items).schema]
                self._doubt_null_item(item_path, along, path[0].offset, known)

    def _doubt_null_holder(self, holder: Tree, known: Guards, items: Mapping[str, Look]) -> None:
        """Doubt `x.?a.?b` where `x.a` may be null: `.?` expects an object, or nothing at all."""
        path = self._find_optional_path(holder)
        schema = self.types.look(holder, items).schema
        if path and may_be_null(schema) and path[0] not in self._computed and not self.names.is_known(path, known):
            self.doubts.append(ExpressionFault(holder.offset, "expression.unguarded", describe_null(path, schema)))

    def _find_optional_path(self, tree: Tree) -> tuple[Segment, ...]:
        """The path of `x.?a.?b`; () of anything else."""
        match tree:
            case Call(function="_?._", parts=(of, Const(value=str() as name))):
                chain, path = self.chains.get(id(of)), parse_static_path(of)
                before = chain.path if chain else (path[0].name, *path[1]) if path else self._find_optional_path(of)
                return (*before, name) if before else ()
            case _:
                return ()

    def _doubt_null_item(self, path: tuple[Segment, ...], along: Sequence[Json], offset: int, known: Guards) -> None:
        """Doubt a path into an item of a loop, of which a beginning may be null by its type, as `along` has them."""
        for length, schema in enumerate(along, 1):
            if path[0] in self._computed or self.names.is_known(path[:length], known):
                continue
            if may_be_null(schema):
                message = describe_null(path[:length], schema)
                self.doubts.append(ExpressionFault(offset, "expression.unguarded", message))
                return

    def _loop(self, loop: Comprehension, known: Guards, items: Mapping[str, Look]) -> None:
        inner = self.types.with_item(loop, items)
        if self._is_computed(loop.range):
            self._computed.add(loop.variable)
        else:
            self._computed.discard(loop.variable)
        self._check_nulls((loop.range,), known, items)
        self._visit(loop.range, known, items)
        self._visit(loop.start, known, items)
        guards = self._find_guards_of_items(loop, known)
        for part in (loop.condition, loop.step, loop.result):
            self._visit(part, guards, inner)

    def _find_guards_of_items(self, loop: Comprehension, known: Guards) -> Guards:
        """The guards in a round of a loop: of its item, and of its list, which has one then."""
        guards = known | collect_kept(loop.range, loop.variable, self.chains)
        guards |= collect_shown(loop.range, loop.variable, known | self.names.guarded)
        return guards | list_items(loop.range, self.chains, 1)

    def _is_computed(self, over: Tree) -> bool:
        """Whether the type of a list was inferred for a name, which published documents were not held to."""
        chains = (self.chains.get(id(node)) for node in walk(over))
        path = parse_static_path(over)
        return (path is not None and path[0].name in self._computed) or any(
            chain is not None and INFERRED in str(self.names.types.roots.get(str(chain.path[0]))) for chain in chains
        )

    def _check_instant(self, call: Call, items: Mapping[str, Look]) -> None:
        """Doubt an instant that is made of a date alone, which has no hour."""
        schema = self.types.look(call.parts[0], items).schema
        if isinstance(schema, Mapping) and schema.get("format") == "date":
            message = 'a date alone is no instant; write timestamp(x + "T00:00:00Z"), or another hour and offset'
            self.doubts.append(ExpressionFault(call.parts[0].offset, "expression.mismatch", message))

    def _check_item_enums(self, call: Call, items: Mapping[str, Look]) -> None:
        """Doubt a text that is compared with a member of a loop's item which never is that text."""
        for read, literal in _list_comparisons(call) if items else ():
            path = parse_static_path(read)
            if path is None or path[0].name not in items or path[0].name in self._computed:
                continue
            schema = self.types.look(read, items).schema
            if isinstance(schema, Mapping) and isinstance(literal, Const) and isinstance(literal.value, str):
                message = _describe_no_choice((path[0].name, *path[1]), literal.value, schema.get("enum"))
                self.doubts += [ExpressionFault(literal.offset, "expression.enum", message)] if message else []

    def _check_length(self, call: Call, items: Mapping[str, Look]) -> None:
        """Doubt a duration that is made of a number, which has no unit."""
        if self._find_kind(call.parts[0], items) in ("int", "double"):
            literal = call.parts[0].value if isinstance(call.parts[0], Const) else None
            remedy = 'string(x) + "s"' if literal is None else f'"{literal}s"'
            message = f"a length has a unit, and a number has none; write duration({remedy}) for seconds"
            self.doubts.append(ExpressionFault(call.parts[0].offset, "expression.mismatch", message))

    def _check_operands(self, call: Call, items: Mapping[str, Look]) -> None:
        """Doubt an operator between a field of a loop's item and an operand of a type that never goes with it: for CEL
        such a field may have any type."""
        if len(call.parts) != 2:
            return
        one, other = (self._find_kind(operand, items) for operand in call.parts)
        if one and other and one != other and {one, other} != {"int", "double"}:
            message = describe_overload(call.function, f"({one}, {other})")
            self.doubts.append(ExpressionFault(call.offset, "expression.mismatch", message))

    def _doubt_last(self, call: Call, known: Guards) -> None:
        """Doubt the last item of a list, `x[size(x) - 1]`, that may be empty."""
        match call.parts:
            case (over, Call(function="_-_", parts=(Call(function="size", parts=(counted,)), Const()))):
                chain, same = self.chains.get(id(over)), self.chains.get(id(counted))
                if chain is not None and same is not None and chain.path == same.path and chain.field is None:
                    first = msgspec.structs.replace(chain, path=(*chain.path, 0))
                    if self.names.doubt_item(first, known) is not None:
                        text = spell(chain.path)
                        message = f"`{text}` may be empty, and has no last item then; test `size({text}) > 0` before"
                        self.doubts.append(ExpressionFault(chain.start, "expression.unguarded", message))

    def _doubt_computed_item(self, call: Call, known: Guards) -> None:
        """Doubt an item of a list that the expression computes, `x.filter(...)[0]`, and that may have fewer."""
        match call.parts:
            case (over, Const(value=int() as index)) if id(over) not in self.chains and index >= 0:
                if index >= self._find_least_size(over, known):
                    message = (
                        f"the list may have no item [{index}]; write [?{index}].orValue(...) in place of [{index}], or "
                        "test its size before"
                    )
                    self.doubts.append(ExpressionFault(call.offset, "expression.unguarded", message))

    def _doubt_divisor(self, call: Call, known: Guards) -> None:
        """Doubt a division by the size of a list that may be empty. That of fractions gives no number then, which only
        comparisons take."""
        divisor = call.parts[-1]
        if isinstance(divisor, Call) and divisor.function == "double" and id(call) not in self._compared:
            divisor = divisor.parts[0]
        self._doubt_zero(call, divisor, known)
        if not isinstance(divisor, Call) or divisor.function != "size":
            return
        over = divisor.parts[0]
        if self._find_least_size(over, known) < 1:
            chain = self.chains.get(id(over))
            text = "x" if chain is None else spell(chain.path)
            subject = "the list" if chain is None else f"`{text}`"
            message = f"{subject} may be empty, and this divides by zero then; test `size({text}) > 0` before"
            self.doubts.append(ExpressionFault(call.offset, "expression.unguarded", message))

    def _doubt_zero(self, call: Call, divisor: Tree, known: Guards) -> None:
        """Doubt a division by a value whose schema names 0 as one that it may have, which no condition excludes. One
        that only does not exclude 0 is believed: most numbers are declared so, also those that never are 0."""
        chain = self.chains.get(id(divisor))
        schema = self.names.types.look_to_judge(chain.path).schema if chain is not None else {}
        if chain is None or chain.path[0] == "state" or not isinstance(schema, Mapping):
            return
        choices = schema.get("enum")
        is_meant = 0 in (schema.get("minimum"), schema.get("default")) or (isinstance(choices, list) and 0 in choices)
        if not is_meant or schema.get("exclusiveMinimum") == 0 or schema.get("type") not in ("integer", "number"):
            return
        text, is_tested = spell(chain.path), self._is_tested(spell(chain.path), known)
        is_compared = id(call) in self._compared and self._find_kind(divisor, {}) != "int"
        if not is_tested and not is_compared:
            message = (
                f"`{text}` may be 0, as its schema says, and this divides by it then; test `{text} != 0` before, or "
                "let the schema exclude 0"
            )
            self.doubts.append(ExpressionFault(call.offset, "expression.unguarded", message))

    def _is_tested(self, text: str, known: Guards) -> bool:
        """Whether a condition that reads the path `text` holds here."""
        facts = (each for each in known | self.names.guarded if each[0] is None and len(each) > 2)
        return any(text in str(each[2]) for each in facts)

    def _doubt_key(self, call: Call, known: Guards) -> None:
        """Doubt a literal map that is asked by a value whose schema allows a key that it does not have."""
        over, key = call.parts
        chain = self.chains.get(id(key))
        if not isinstance(over, Mapped) or chain is None or self._is_tested(spell(chain.path), known):
            return
        schema = self.names.types.look_to_judge(chain.path).schema
        choices = schema.get("enum") if isinstance(schema, Mapping) else None
        keys = [each.value if isinstance(each, Const) else None for each, _ in over.entries]
        lacking = [each for each in choices if each not in keys] if isinstance(choices, list) else []
        if lacking and None not in keys:
            word = f"`{spell(chain.path)}` may be {lacking[0]!r}"
            message = f"{word}, which the map does not have; add it, or test for it before"
            self.doubts.append(ExpressionFault(chain.start, "expression.unguarded", message))

    def _doubt_length(self, call: Call, known: Guards) -> None:
        """Doubt a part of a text that may be shorter: one that is declared as a text, and nothing else is known of."""
        text, *bounds = call.parts
        chain, last = self.chains.get(id(text)), bounds[-1] if bounds else None
        if chain is None or chain.path[0] not in ("input", "steps") or not isinstance(last, Const):
            return
        schema = self.names.types.look_to_judge(chain.path).schema
        if not isinstance(schema, Mapping) or schema.get("type") != "string":
            return
        is_plain = schema.keys().isdisjoint(("pattern", "format", "enum", "const", "anyOf"))
        size, least, spelled = last.value, schema.get("minLength", 0), spell(chain.path)
        is_short = isinstance(size, int) and isinstance(least, int) and size > least
        if is_plain and is_short and not self._is_tested(spelled, known):
            message = f"`{spelled}` may be shorter, and this fails then; test `size({spelled}) >= {size}` before"
            self.doubts.append(ExpressionFault(call.offset, "expression.unguarded", message))

    def _find_least_size(self, tree: Tree, known: Guards) -> float:
        """The number of items that a list certainly has; without bound where nothing is known of it."""
        return max(self._count_tested_items(tree, known), self._compute_least_size(tree, known))

    def _count_tested_items(self, tree: Tree, known: Guards) -> int:
        """The number of items that conditions have shown a list to have."""
        chain = self.chains.get(id(tree))
        if chain is not None:
            return 0 if chain.field is not None else self.names.count_tested_items(chain.path, known)
        spelling = spell_tree(tree)
        return max((each[3] for each in known | self.names.guarded if each[:3] == (None, "items", spelling)), default=0)

    def _compute_least_size(self, tree: Tree, known: Guards) -> float:
        chain = self.chains.get(id(tree))
        if chain is not None:
            is_known = chain.field is None and chain.path[0] != "state"
            return self.names.find_least_size(chain.path) if is_known else math.inf
        match tree:
            case Comprehension() if is_filter(tree):  # a test of the whole list is believed: `exists`, or its size
                return math.inf if self._is_lookup(tree.step) else self._count_tested_items(tree.range, known)
            case Comprehension() if find_mapped(tree) is not None:
                return self._find_least_size(tree.range, known)
            case Call(target=Comprehension() as pairs) if tree.function == SORTED:
                return self._find_least_size(pairs.range, known)
            case Call(target=Comprehension() as pairs) if tree.function == GROUPED:
                return min(1, self._find_least_size(pairs.range, known))
            case Call(function="split", target=text, arguments=arguments) if text and id(text) in self.chains:
                return self._count_parts(text, arguments, known)
            case Listing(elements=elements):
                return len(elements)
            case Call(function="_?_:_", parts=(_, one, other)):
                return min(self._find_least_size(one, known), self._find_least_size(other, known))
            case _:
                return math.inf

    def _is_lookup(self, condition: Tree) -> bool:
        """Whether items are looked for by the output of a step, which was mostly chosen among them."""
        equals = (each for each in walk(condition) if isinstance(each, Call) and each.function == "_==_")
        chains = (self.chains.get(id(part)) for each in equals for part in each.parts)
        return any(chain is not None and chain.path[0] == "steps" for chain in chains)

    def _count_parts(self, text: Tree, arguments: tuple[Tree, ...], known: Guards) -> float:
        """The number of parts that a text certainly has; without bound where its schema, or a condition, says what it
        looks like."""
        schema = self.types.look(text, {}).schema
        if isinstance(schema, Mapping) and not schema.keys().isdisjoint(("pattern", "format", "enum", "const")):
            return math.inf
        if is_form_known(text, known | self.names.guarded):
            return math.inf
        contained = fact(Call(text.offset, "contains", text, arguments[:1]), True)
        return 2 if contained and contained <= known | self.names.guarded else 1

    def _doubt_alternatives(self, call: Call) -> None:
        """Doubt an operand that has one of several types of which some never go with the other operand."""
        if len(call.parts) != 2:
            return
        for operand, other in (call.parts, reversed(call.parts)):
            chain = self.chains.get(id(operand))
            if chain is None or chain.path[0] == "state":
                continue
            several = list_alternatives(self.names.types.look_to_judge(chain.path).schema)
            if len(several) < 2:
                continue
            kind = self._find_kind(other, {})
            kinds = {_SCALARS.get(str(each.get("type"))) for each in several if isinstance(each, Mapping)}
            wrong = kinds - {kind, None} - ({"int", "double"} if kind in ("int", "double") else set())
            if kind is None or not wrong:
                continue
            message = (
                f"`{spell(chain.path)}` may be of another type, {min(filter(None, wrong))}, which does not go with "
                f"{kind} here; give all results one type, or write dyn({spell(chain.path)}) where you know it"
            )
            self.doubts.append(ExpressionFault(operand.offset, "expression.unguarded", message))

    def _find_kind(self, tree: Tree, items: Mapping[str, Look]) -> str | None:
        """The type of an operand as CEL calls it: of a literal, a path, or a field of a loop's item. None: another."""
        if isinstance(tree, Const):
            return _CONSTANTS.get(type(tree.value))
        chain = self.chains.get(id(tree))
        if chain is not None:
            kind = self.names.types.kind(chain.path)
            return kind if kind in _SCALARS.values() or kind == "timestamp" else None
        schema = self.types.look(tree, items).schema
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        return _SCALARS.get(kind) if isinstance(kind, str) else None

    def _check_addends(self, total: Call, known: Guards, items: Mapping[str, Look]) -> None:
        """Doubt a sum of what is certainly no number."""
        addend = self._find_addend(total.parts[0], items)
        self._doubt_null_addend(total, known, items)
        kind = addend.schema.get("type") if isinstance(addend.schema, Mapping) else None
        word, remedy = _NO_ADDENDS.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
        if word:
            message = f"`sum` adds numbers, and these are {word}; {remedy}"
            self.doubts.append(ExpressionFault(total.offset, "expression.mismatch", message))

    def _doubt_null_addend(self, total: Call, known: Guards, items: Mapping[str, Look]) -> None:
        """Doubt a sum of members of items that may be null, `rows.map(r, r.n).sum()`."""
        loop = total.parts[0]
        element = find_mapped(loop) if isinstance(loop, Comprehension) else None
        path = parse_static_path(element) if element is not None else None
        if isinstance(loop, Comprehension) and element is not None and path and path[0].name == loop.variable:
            guards = self._find_guards_of_items(loop, known)
            self._check_nulls((element,), guards, self.types.with_item(loop, items))

    def _find_addend(self, tree: Tree, items: Mapping[str, Look]) -> Look:
        """The type of the elements of a list: of a path, of literals, or of what `map` makes."""
        if isinstance(tree, Listing):
            kinds = {_KINDS.get(type(each.value)) for each in tree.elements if isinstance(each, Const)}
            unfit = sorted(kind for kind in kinds if kind is not None)
            return Look({"type": unfit[0]}) if unfit else Look({})
        return find_element(self.types.look(tree, items))

    def _item(self, tree: Select | Call, known: Guards, items: Mapping[str, Look]) -> bool:
        """Check a path that begins with a loop's variable; whether `tree` is one."""
        inside, last = (tree.operand, (tree.name,)) if isinstance(tree, Select) and tree.test else (tree, ())
        path = parse_static_path(inside)
        if path is None or path[0].name not in items:
            return False
        item_path = (path[0].name, *path[1], *last)
        look = look_inside(items[path[0].name], item_path)
        wrong = look.wrong
        if wrong is not None:
            start = path[0].offset
            chain = Chain(tree, item_path, start, start + len(path[0].name), None)
            offset = find_segment_offset(self.source, chain, wrong[0])
            if path[0].name in self._computed:
                self.doubts.append(ExpressionFault(offset, "expression.no_object", wrong[1]))
            else:
                self.faults.append(ExpressionFault(offset, "expression.unknown_property", wrong[1]))
        if look.barren is not None:
            self.doubts.append(ExpressionFault(path[0].offset, "expression.no_object", look.barren[1]))
        self._doubt_null_item(item_path, look.along[: len(item_path) - 1], path[0].offset, known)
        if path[0].name not in self._computed:
            tested = len(item_path) if last else 0
            for length in look.optional:
                if length != tested and not self.names.is_known(item_path[:length], known):
                    remedy = " or ".join(spell_guards(item_path[:length]))
                    message = f"`{spell(item_path[:length])}` may be absent; guard it with {remedy}"
                    self.doubts.append(ExpressionFault(path[0].offset, "expression.unguarded", message))
                    break
        return True


_ORDERED: Final = frozenset(("_+_", "_-_", "_*_", "_/_", "_%_", "_<_", "_<=_", "_>_", "_>=_"))
_COMPARING: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"))
_NEVER_OF_NULL: Final = frozenset((
    "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "_<_", "_<=_", "_>_", "_>=_", "@in", "size", "int", "double", "sum",
    "timestamp", "duration", "format_time", "startsWith", "endsWith", "contains", "matches", "split", "join", "replace",
    "substring", "trim", "lowerAscii", "upperAscii", "charAt", "indexOf", "lastIndexOf", "reverse",
))  # fmt: skip
_KINDS: Final = {str: "string", bool: "boolean"}
_CONSTANTS: Final = {str: "string", bool: "bool", int: "int", float: "double"}
_SCALARS: Final = {"string": "string", "boolean": "bool", "integer": "int", "number": "double"}
_NO_ADDENDS: Final = {
    "string": ("texts", 'join them: x.join(", "), or make numbers of them: x.map(t, double(t)).sum()'),
    "boolean": ("true or false", "count those that are true: x.filter(b, b).size()"),
    "object": ("objects", "choose a number of each: x.map(r, r.amount).sum()"),
    "array": ("lists", "choose numbers first: x.map(r, r.sum()).sum()"),
}


def _check_enums(call: Call, chains: Mapping[int, Chain], names: Names) -> Iterator[ExpressionFault]:
    """Texts that are compared with, or looked for among, values of an enum that does not have them."""
    for read, literal in _list_comparisons(call):
        path, default = _path_read(read, chains)
        if path is None or not isinstance(literal, Const) or not isinstance(literal.value, str):
            continue
        schema = names.types.look(path).schema
        allowed = schema.get("enum") if isinstance(schema, Mapping) else None
        if literal.value != default and (message := _describe_no_choice(path, literal.value, allowed)):
            yield ExpressionFault(literal.offset, "expression.enum", message)


def _list_comparisons(call: Call) -> list[tuple[Tree, Tree]]:
    """The pairs of operands that `==`, `!=` or `in` compares, of which the second may be a literal."""
    one, other = call.arguments
    if call.function == "@in":
        return [(one, element) for element in other.elements] if isinstance(other, Listing) else []
    return [(one, other), (other, one)]


def _describe_no_choice(path: Sequence[Segment], word: str, allowed: Json) -> str:
    """The fault of a text that is none of the texts `allowed`; "" if it is one, or others are allowed."""
    if not isinstance(allowed, list) or word in allowed or not all(isinstance(a, str) for a in allowed):
        return ""
    return f"`{spell(path)}` is never {word!r}{suggestion(word, allowed)} (it is one of {', '.join(allowed)})"


def _path_read(tree: Tree, chains: Mapping[int, Chain]) -> tuple[tuple[Segment, ...] | None, Json]:
    """The path that an expression reads, also as `a.?b.orValue(x)`, and the `x`."""
    chain = chains.get(id(tree))
    if chain is not None:
        return chain.path, None
    match tree:
        case Call(
            function="orValue",
            parts=(Call(function="_?._", parts=(parent, Const(value=str() as name))), Const(value=value)),
        ):
            above = chains.get(id(parent))
            return ((*above.path, name), value) if above is not None else (None, None)
        case _:
            return None, None
