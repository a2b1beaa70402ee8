"""Bounds the work of holding a value against a JSON Schema, before the library does it (docs/security.md): it follows
each `$ref` wherever it stands and can't be interrupted, and 24 definitions that each name the one before twice are 16
million schemas. `measure` counts the instances of a schema when it is compiled, `Work.fault` the cost at each part of a
value. One unit is about 15 ns: one keyword at one part. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urljoin

from hai_flow.definition.yaml.document import Path
from hai_flow.primitives.json_pointers import pointer_of, unescape
from hai_flow.values import DEPTH_MAX, Json

INSTANCES_MAX: Final = 10_000
"""Instances of schemas in one schema, each `$ref` counted as all that it leads to."""
PLACE_WORK_MAX: Final = 200_000
"""Units of work at one part of a value."""
PATTERN_STATES_MAX: Final = 10_000
"""States of all patterns of a schema: `[a-z]{1,64}` has 64."""
WORK_MAX: Final = 1_000_000
"""Units of work for one value."""
TOO_LARGE: Final = "schema.too_large"

_GUIDED_NODES_MAX: Final = 30_000
_STEPS_MAX: Final = 50_000  # of looking which schemas meet at one part of a value
_MANY: Final = 10**9
_BASE: Final = "http://schema.invalid/"
_META: Final = ("https://json-schema.org/draft/", "http://json-schema.org/draft")
_META_WORK: Final = 200
_LOOK_AGAIN: Final = 4  # times that what stands beside `unevaluated...` is looked at
_TEXTS_OF_A_UNIT: Final = 3  # steps with a character take less
_PART_WORK: Final = 5  # to look at a part of a value at all
_UNIQUE_WORK: Final = 40
_MULTIPLE_WORK: Final = 130
_DIGITS_WORK: Final = 130  # to compare a number with one that has a fraction, which the library does by their digits
_BOUND_WORK: Final = 80
_MIXED_WORK: Final = 24  # to compare an integer with a number that has a fraction, or that stands among other things
_UNIQUE_DIGITS_WORK: Final = 800  # items of a short list are compared each with each
_EXTREME_WORK: Final = 2_000  # of `multipleOf` with numbers of many digits
_TANGLED_WORK: Final = 30  # of a text's character, for an automaton that is made anew at each

_HERE_ONE: Final = ("not", "if", "then", "else")
_HERE_LIST: Final = ("allOf", "anyOf", "oneOf")
_HERE_MAP: Final = ("dependentSchemas", "dependencies")
_OF_OBJECTS: Final = ("additionalProperties", "unevaluatedProperties")
_OF_LISTS: Final = ("contains", "unevaluatedItems", "additionalItems")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

ANY_NAME: Final = "{*}"  # keys of edges beside ("name", x) and ("index", n)
ANY_ITEM: Final = "[*]"
A_NAME: Final = "{names}"
Key: TypeAlias = "str | tuple[str, str | int]"


class TooLarge(ValueError):
    """A schema that makes too much work, or that leads back to itself; `path` is inside the schema."""

    def __init__(self, path: Path, code: str, message: str) -> None:
        super().__init__(f"{code}: {pointer_of(*path) or '/'}: {message}")
        self.path, self.code, self.message = path, code, message


@dataclass(slots=True, eq=False)
class _Node:
    path: Path
    schema: Mapping[str, Json]
    base: str
    own: int = 1  # units for a part of a value
    per_character: int = 0  # units for a character of a text
    per_key: int = 0  # units for a character of a key
    numbers: int = 0  # further units for a number
    floats: int = 0  # and for one that is no integer
    again: int = 1
    here: list[tuple[int, str]] = field(default_factory=list)
    """Schemas that the same part of the value is held against."""
    below: list[tuple[Key, int]] = field(default_factory=list)
    """Schemas that parts of it are held against."""
    constant: int = 0  # schemas that are true or false


class _Graph:
    def __init__(self, root: Json) -> None:
        self.root = root
        self.nodes: list[_Node] = []
        self.unresolved: list[tuple[Path, str]] = []
        self.states = 0
        self._numbers: dict[tuple[int, str], int] = {}
        self._resources: dict[str, tuple[Json, str, Path]] = {}
        self._anchors: dict[tuple[str, str], tuple[Json, str, Path]] = {}
        self._dynamic: dict[str, list[tuple[Json, str, Path]]] = {}
        if _is_self_reference(root):
            self._note(root)
        self._resources.setdefault(_BASE, (root, _BASE, ()))
        if isinstance(root, Mapping):
            self._add(root, _resolve_base(root, _BASE), ())
            at = 0
            while at < len(self.nodes):
                self._expand(self.nodes[at])
                at += 1

    def _note(self, root: Json) -> None:
        """Note what may be referred to by a name."""
        stack: list[tuple[Json, str, Path]] = [(root, _BASE, ())]
        while stack:
            value, base, path = stack.pop()
            if isinstance(value, Mapping):
                base = _resolve_base(value, base)
                place = (value, base, path)
                if isinstance(value.get("$id"), str):
                    self._resources.setdefault(base, place)
                for keyword in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := value.get(keyword), str):
                        self._anchors.setdefault((base, name), place)
                        if keyword == "$dynamicAnchor":
                            self._dynamic.setdefault(name, []).append(place)
                stack.extend((each, base, (*path, key)) for key, each in value.items())
            elif isinstance(value, list):
                stack.extend((each, base, (*path, index)) for index, each in enumerate(value))

    def _add(self, schema: Mapping[str, Json], base: str, path: Path) -> int:
        key = (id(schema), base)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.nodes)
            if number >= INSTANCES_MAX:
                raise TooLarge(path, TOO_LARGE, f"more than {INSTANCES_MAX:,} schemas; a schema has at most that many")
            self.nodes.append(_Node(path, schema, base))
        return number

    def _child(self, node: _Node, child: Json, *path: str | int) -> int | None:
        if isinstance(child, Mapping):
            return self._add(child, _resolve_base(child, node.base), (*node.path, *path))
        node.constant += 1
        return None

    def _here(self, node: _Node, keyword: str, child: Json, *path: str | int) -> None:
        if (number := self._child(node, child, keyword, *path)) is not None:
            node.here.append((number, keyword))

    def _below(self, node: _Node, key: Key, child: Json, *path: str | int) -> None:
        if (number := self._child(node, child, *path)) is not None:
            node.below.append((key, number))

    def _expand(self, node: _Node) -> None:
        schema = node.schema
        for keyword, value in schema.items():
            if keyword in _REFERENCES and isinstance(value, str):
                self._refer(node, keyword, value)
            elif keyword in _HERE_ONE:
                self._here(node, keyword, value)
            elif keyword in _HERE_LIST and isinstance(value, list):
                for index, each in enumerate(value):
                    self._here(node, keyword, each, index)
            elif keyword in _HERE_MAP and isinstance(value, Mapping):
                for name, each in value.items():
                    self._here(node, keyword, each, name)
            elif keyword == "properties" and isinstance(value, Mapping):
                node.own += len(value) // 4
                for name, each in value.items():
                    self._below(node, ("name", name), each, keyword, name)
            elif keyword == "patternProperties" and isinstance(value, Mapping):
                for pattern, each in value.items():
                    node.per_key += self._cost(pattern)
                    self._below(node, ANY_NAME, each, keyword, pattern)
            elif keyword == "prefixItems" or (keyword == "items" and isinstance(value, list)):
                for index, each in enumerate(value if isinstance(value, list) else ()):
                    self._below(node, ("index", index), each, keyword, index)
            elif keyword in _OF_OBJECTS:
                self._below(node, ANY_NAME, value, keyword)
            elif keyword == "items" or keyword in _OF_LISTS:
                for _ in range(2 if keyword == "contains" else 1):
                    self._below(node, ANY_ITEM, value, keyword)
            elif keyword == "propertyNames":
                self._below(node, A_NAME, value, keyword)
            else:
                self._add_cost(node, keyword, value)
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            node.again = _LOOK_AGAIN
        node.own += node.constant

    def _add_cost(self, node: _Node, keyword: str, value: Json) -> None:
        """Add what a keyword without schemas costs."""
        if keyword == "enum" and isinstance(value, list):
            node.own += sum(15 * _size(each) for each in value if isinstance(each, list | Mapping))
            is_plain = all(isinstance(each, str) for each in value) or all(type(each) is int for each in value)
            node.own += len(value) // (64 if is_plain else 2)  # texts alone, and integers alone, are looked up
            numbers = [each for each in value if isinstance(each, int | float)]
            fractions = sum(isinstance(each, float) for each in numbers)
            node.numbers += fractions * _DIGITS_WORK
            if not is_plain:
                node.numbers += (len(numbers) - fractions) * _MIXED_WORK
            node.floats += (len(numbers) - fractions) * _MIXED_WORK
        elif keyword == "const":
            node.own += 10 * _size(value)
            node.numbers += _DIGITS_WORK if isinstance(value, float) else _MIXED_WORK if isinstance(value, int) else 0
        elif keyword in ("required", "dependentRequired"):
            lists = value.values() if isinstance(value, Mapping) else (value,)
            node.own += sum(1 + 2 * len(each) for each in lists if isinstance(each, list))
        elif keyword == "multipleOf" and isinstance(value, int | float):
            node.own += _EXTREME_WORK if _is_extreme(value) else _MULTIPLE_WORK
        elif keyword in _BOUNDS and isinstance(value, int | float):
            node.numbers += _BOUND_WORK if isinstance(value, float) or abs(value) >= 2**63 else 0
            node.floats += 2
        elif keyword == "pattern" and isinstance(value, str):
            node.per_character += self._cost(value)
        elif keyword == "format":
            node.per_character += 20 if isinstance(value, str) and value.startswith("idn-") else 1

    def _cost(self, pattern: str) -> int:
        states, cost = measure_pattern(pattern)
        self.states += states
        return cost

    def _refer(self, node: _Node, keyword: str, reference: str) -> None:
        for place in self._list_targets(node, keyword, reference):
            target, base, path = place
            if isinstance(target, Mapping):
                node.here.append((self._add(target, _resolve_base(target, base), path), keyword))
            else:
                node.constant += 1

    def _list_targets(self, node: _Node, keyword: str, reference: str) -> list[tuple[Json, str, Path]]:
        document, _, fragment = urljoin(node.base, reference).partition("#")
        if document.startswith(_META):
            node.own += _META_WORK
            return []
        resource = self._resources.get(document) or (self._resources[_BASE] if document == _BASE else None)
        targets: list[tuple[Json, str, Path]] = []
        if resource is not None:
            if not fragment:
                targets.append(resource)
            elif fragment.startswith("/"):
                targets += _follow_pointer(resource, fragment)
            elif (anchor := self._anchors.get((document, unquote(fragment)))) is not None:
                targets.append(anchor)
        if keyword == "$dynamicRef" and fragment and not fragment.startswith("/"):
            # The outermost anchor of the name is meant: that of the whole schema, or else any.
            every = self._dynamic.get(unquote(fragment), [])
            outermost = [each for each in every if each[1] == self.nodes[0].base]
            targets = outermost[:1] or [*targets, *(each for each in every if each not in targets)]
        if not targets:
            self.unresolved.append(((*node.path, keyword), reference))
        return targets


def _is_self_reference(root: Json) -> bool:
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            if "$id" in value or "$anchor" in value or "$dynamicAnchor" in value:
                return True
            stack.extend(each for each in value.values() if isinstance(each, Mapping | list))
        elif isinstance(value, list):
            stack.extend(each for each in value if isinstance(each, Mapping | list))
    return False


def _resolve_base(schema: Mapping[str, Json], base: str) -> str:
    own = schema.get("$id")
    return urljoin(base, own).partition("#")[0] if isinstance(own, str) else base


def _follow_pointer(resource: tuple[Json, str, Path], fragment: str) -> list[tuple[Json, str, Path]]:
    """What a JSON Pointer leads to, inside a resource."""
    value, base, path = resource
    for part in fragment.split("/")[1:]:
        key = unescape(unquote(part))
        if isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value, path = value[int(key)], (*path, int(key))
        elif isinstance(value, Mapping) and key in value:
            value, path = value[key], (*path, key)
        else:
            return []
        if isinstance(value, Mapping) and value is not resource[0]:
            base = _resolve_base(value, base)
    return [(value, base, path)]


_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _size(value: Json) -> int:
    count, stack = 0, [value]
    while stack:
        part = stack.pop()
        count += 1
        if isinstance(part, Mapping):
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
    return count


def _is_extreme(number: float) -> bool:
    return number != 0 and not 1e-15 < abs(number) < 1e18


# --- patterns ---------------------------------------------------------------------------------------------------------

_REPEATS_MAX: Final = 10**6
_CALM_STATES: Final = 12  # whose automaton is small, whatever the text
_COUNTED: Final = re.compile(r"\{(\d{1,9})(,?)(\d{0,9})\}")
_NAMED_CLASS_CHARS_MAX: Final = 60
_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
_CLASS_STATES: Final = 40  # of a class of Unicode, which has hundreds of ranges


def measure_pattern(pattern: str) -> tuple[int, int]:
    """The states of a pattern, repetitions written out, and its units of work for each character of a text.

    The library's automaton is made while it reads; where it grows too large, all states are tried at each character."""
    return count_states(pattern, _CLASS_STATES), _measure(pattern, 1)[1]


def count_states(pattern: str, of_class: int) -> int:
    """The states of a pattern, repetitions written out, where a class of Unicode (`\\pL`) has so many."""
    return _measure(pattern, of_class)[0]


@lru_cache(maxsize=4096)
def _measure(pattern: str, of_class: int) -> tuple[int, int]:
    totals = [0]  # the states of each group that is open
    last = tail = loops = tangles = 0  # last: the states of the piece before; tail: of what is behind the last loop
    at, end = 0, len(pattern)
    while at < end:
        sign = pattern[at]
        counted = _COUNTED.match(pattern, at) if sign == "{" else None
        at += 1
        if counted is not None:
            least, comma, most = counted.groups()
            times = max(int(most or least), 1)
            totals[-1] = min(totals[-1] + last * (times - 1), _REPEATS_MAX)
            tangles += last > 1
            if comma and most != least:
                loops, tail = loops + 1, 0
            else:
                tail += times
            last = min(last * times, _REPEATS_MAX)
            at = counted.end()
        elif sign in "*+?":
            tangles += last > 1
            loops, tail = loops + 1, 0
        elif sign == "|":
            tangles += 1
        elif sign == "(":
            totals.append(0)
        elif sign == ")":
            if len(totals) > 1:
                last = totals.pop()
                totals[-1] = min(totals[-1] + last, _REPEATS_MAX)
        elif sign not in "^$":
            begins, at = at - 1, _end_of_atom(pattern, at - 1)
            classes = len(_UNICODE_CLASS.findall(pattern, begins, at)) if sign in "\\[" else 0
            last = of_class * classes or 1
            totals[-1] = min(totals[-1] + last, _REPEATS_MAX)
            tail += 1
    states = sum(totals)
    if states <= _CALM_STATES:
        return states, 1
    if pattern.startswith("^") and loops <= 1 and not tangles and tail <= _CALM_STATES:
        return states, 2  # there is one way through it, wherever the text is
    return states, _TANGLED_WORK + states


def _end_of_atom(pattern: str, at: int) -> int:
    """The offset behind what stands for one character."""
    if pattern[at] == "\\":
        if pattern[at + 1 : at + 2] in ("p", "P", "x", "u") and pattern[at + 2 : at + 3] == "{":
            closes = pattern.find("}", at, at + _NAMED_CLASS_CHARS_MAX)
            return at + 2 if closes < 0 else closes + 1
        if pattern[at + 1 : at + 2] in ("p", "P"):
            return at + 3
        return at + 2
    if pattern[at] != "[":
        return at + 1
    at += 2 if pattern[at + 1 : at + 2] == "^" else 1
    first = at
    while at < len(pattern) and (pattern[at] != "]" or at == first):
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(root: Json) -> Work:
    """The work that a schema makes. Raises `TooLarge`."""
    graph = _Graph(root)
    nodes = graph.nodes
    circles: list[TooLarge] = []
    order = _sort_here(nodes, circles)
    if graph.states > PATTERN_STATES_MAX:
        message = (
            f"its patterns have {_number(graph.states)} states, repetitions written out, and a schema has at most "
            f"{PATTERN_STATES_MAX:,}; bound texts by `maxLength` instead of `{{...}}`"
        )
        raise TooLarge((), TOO_LARGE, message)
    instances: list[int] = [0] * len(nodes)
    work: list[int] = [0] * len(nodes)
    characters: list[int] = [0] * len(nodes)
    numbers: list[int] = [0] * len(nodes)
    floats: list[int] = [0] * len(nodes)
    is_recursive = False
    too_many: Path | None = None
    too_much: Path | None = None
    for component in _iter_components(nodes):
        inside = set(component)
        count = units = texts = of_numbers = of_floats = 0
        for number in component:
            node = nodes[number]
            count += 1 + node.constant
            units += node.own
            texts += node.per_character + node.per_key
            of_numbers += node.numbers
            of_floats += node.floats
            for target, times in _iter_targets(node):
                if target not in inside:
                    count += instances[target]
                    units += times * work[target]
                    texts += times * characters[target]
                    of_numbers += times * numbers[target]
                    of_floats += times * floats[target]
                else:
                    is_recursive = True
        # Big numbers are cut: what is too large by so much is told as "over a billion".
        count, units, texts = min(count, 2 * _MANY), min(units, 2 * _MANY), min(texts, 2 * _MANY)
        of_numbers, of_floats = min(of_numbers, 2 * _MANY), min(of_floats, 2 * _MANY)
        for number in component:
            instances[number], work[number], characters[number] = count, units, texts
            numbers[number], floats[number] = of_numbers, of_floats
        if count > INSTANCES_MAX and too_many is None:
            too_many = nodes[min(component)].path
        if units > PLACE_WORK_MAX and too_much is None:
            too_much = nodes[min(component)].path
    if too_many is not None:
        message = (
            f"the whole is {_number(max(instances))} schemas, each reference counted as what it leads to, and at most "
            f"{INSTANCES_MAX:,} are taken; refer to this one less often, or describe less"
        )
        raise TooLarge(too_many, TOO_LARGE, message)
    if too_much is not None:
        message = (
            f"to hold one value against it takes {_number(max(work))} steps, and at most {PLACE_WORK_MAX:,} are taken; "
            "nest `unevaluated...` less, and list fewer values"
        )
        raise TooLarge(too_much, TOO_LARGE, message)
    states = _States(nodes, order, is_recursive)
    whole_work = work[0] if nodes else 1
    whole_texts = characters[0] if nodes else 0
    if is_recursive:
        whole_work, whole_texts = states.explore(whole_work)
    of_number = max(numbers[0], states.numbers) if nodes else 0
    of_float = (max(floats[0], states.floats) if nodes else 0) + of_number
    unique = sum(node.schema.get("uniqueItems") is True for node in nodes)
    every = _UNIQUE_WORK * min(unique * (DEPTH_MAX if is_recursive else 1), DEPTH_MAX)
    multiples = any("multipleOf" in node.schema for node in nodes)
    again = any(node.again > 1 for node in nodes)
    unique_floats = _UNIQUE_DIGITS_WORK if unique else 0
    of_all = (of_number, of_float + unique_floats, unique_floats)
    return Work(
        whole_work, every + _PART_WORK, whole_texts, multiples, again, of_all, states, graph.unresolved, circles
    )


def _number(count: int) -> str:
    return f"{count:,}" if count <= _MANY else "over a billion"


def _iter_targets(node: _Node) -> Iterator[tuple[int, int]]:
    for number, _ in node.here:
        yield number, node.again
    for _, number in node.below:
        yield number, node.again if node.again > 1 else 1


def _sort_here(nodes: list[_Node], circles: list[TooLarge]) -> list[int]:
    """The place of each schema in an order in which those that hold the same part of a value against others come first.

    A schema that leads back to itself without taking a part is noted in `circles`, and the way back is cut. Raises
    `TooLarge` for it where there are several ways around: the library would try all of them."""
    places = [0] * len(nodes)
    done: list[int] = []
    for begin in range(len(nodes)):
        if places[begin]:
            continue
        places[begin] = 1
        around = [begin]
        remaining = [list(nodes[begin].here)]
        while remaining:
            number = around[-1]
            if not remaining[-1]:
                places[number] = 2
                done.append(number)
                around.pop()
                remaining.pop()
                continue
            target, keyword = remaining[-1].pop(0)
            if places[target] == 1:
                message = "it leads back to itself without looking at a part of the value, so it says nothing"
                circle = TooLarge((*nodes[number].path, keyword), "schema.reference", message)
                if any(len(nodes[each].here) > 1 for each in around[around.index(target) :]):
                    raise circle
                circles.append(circle)
                nodes[number].here.clear()
            elif not places[target]:
                places[target] = 1
                around.append(target)
                remaining.append(list(nodes[target].here))
    for place, number in enumerate(reversed(done)):
        places[number] = place
    return places


def _iter_components(nodes: list[_Node]) -> Iterator[list[int]]:
    """The schemas, those that lead to each other together, and what they lead to first (Tarjan)."""
    indexes: list[int] = [-1] * len(nodes)
    low: list[int] = [0] * len(nodes)
    on_stack = [False] * len(nodes)
    stack: list[int] = []
    count = 0
    for begin in range(len(nodes)):
        if indexes[begin] >= 0:
            continue
        work: list[tuple[int, Iterator[tuple[int, int]]]] = []
        entering: int | None = begin
        while entering is not None or work:
            if entering is not None:
                indexes[entering] = low[entering] = count
                count += 1
                stack.append(entering)
                on_stack[entering] = True
                work.append((entering, _iter_targets(nodes[entering])))
                entering = None
            number, remaining = work[-1]
            for target, _ in remaining:
                if indexes[target] < 0:
                    entering = target
                    break
                if on_stack[target]:
                    low[number] = min(low[number], indexes[target])
            if entering is not None:
                continue
            work.pop()
            if work:
                above = work[-1][0]
                low[above] = min(low[above], low[number])
            if low[number] == indexes[number]:
                component: list[int] = []
                while not component or component[-1] != number:
                    component.append(stack.pop())
                    on_stack[component[-1]] = False
                yield component


# --- the schemas that meet at one part of a value ---------------------------------------------------------------------

_Entries: TypeAlias = tuple[tuple[int, int], ...]  # number of a schema, how often it is held against the part


@dataclass(slots=True, eq=False)
class _State:
    """What a part of a value is held against, and what that costs."""

    work: int
    numbers: int
    floats: int
    per_character: int
    per_key: int
    again: bool  # each name or item of it is looked for again
    named: dict[str, dict[int, int]]
    indexed: dict[int, dict[int, int]]
    any_name: dict[int, int]
    any_item: dict[int, int]
    names: dict[int, int]
    most: int  # the schema that is held against it most often
    children: dict[Key, _State | None] = field(default_factory=dict)


class _TooMany(Exception):
    pass


class _States:
    """The states of one schema, made when they are needed."""

    def __init__(self, nodes: list[_Node], order: list[int], is_recursive: bool) -> None:
        self.nodes = nodes
        self._is_recursive = is_recursive  # then the library remembers what it found out about a part
        self._order = order
        self._known: dict[_Entries, _State] = {}
        self._steps = 0
        self.numbers = self.floats = 0  # the most further units of numbers at a part that was explored

    @property
    def first(self) -> _State | None:
        return self._state({0: 1}) if self.nodes else None

    def _state(self, entries: dict[int, int]) -> _State:
        key = tuple(sorted(entries.items()))
        state = self._known.get(key)
        if state is None:
            state = self._known[key] = self._make_state(dict(entries))
        return state

    def _make_state(self, times: dict[int, int]) -> _State:
        state = _State(0, 0, 0, 0, 0, False, {}, {}, {}, {}, {}, min(times))
        once = dict(times)  # as `times`, but for what is looked at again
        waiting = sorted(times, key=self._order.__getitem__, reverse=True)
        visited = set(waiting)
        while waiting:
            number = waiting.pop()
            node, count = self.nodes[number], times[number]
            self._steps += 1 + len(node.here) + len(node.below)
            if self._steps > _STEPS_MAX:
                raise _TooMany
            state.work += count * node.own
            state.numbers += count * node.numbers
            state.floats += count * node.floats
            state.again = state.again or node.again > 1
            state.per_character += count * node.per_character
            state.per_key += count * node.per_key
            if count > times[state.most]:
                state.most = number
            for target, _ in node.here:
                times[target] = min(times.get(target, 0) + count * node.again, _MANY)
                once[target] = min(once.get(target, 0) + once[number], _MANY)
                if target not in visited:
                    visited.add(target)
                    _insert(waiting, target, self._order)
            for key, target in node.below:
                if isinstance(key, tuple):
                    where = (state.named if key[0] == "name" else state.indexed).setdefault(key[1], {})  # type: ignore[arg-type]
                else:
                    where = {ANY_NAME: state.any_name, ANY_ITEM: state.any_item, A_NAME: state.names}[key]
                more = once[number] if self._is_recursive else count * node.again
                where[target] = min(where.get(target, 0) + more, _MANY)
        return state

    def child(self, state: _State, key: Key) -> _State | None:
        """The state of a part; None: nothing is asked of it."""
        if key not in state.children:
            if isinstance(key, tuple):
                special = (state.named if key[0] == "name" else state.indexed).get(key[1])  # type: ignore[arg-type]
                every = state.any_name if key[0] == "name" else state.any_item
            else:
                special, every = {ANY_NAME: state.any_name, ANY_ITEM: state.any_item, A_NAME: state.names}[key], {}
            if special is None:
                key = ANY_NAME if key[0] == "name" else ANY_ITEM
                if key in state.children:
                    return state.children[key]
            entries = dict(every)
            for number, count in (special or {}).items():
                entries[number] = entries.get(number, 0) + count
            state.children[key] = self._state(entries) if entries else None
        return state.children[key]

    def explore(self, least: int) -> tuple[int, int]:
        """The most units of work at one part of a value, and for a character there, down to the depth that values have.
        Raises `TooLarge` where that grows with each level."""
        most, texts, last = least, 0, None
        try:
            for last in self._walk_states():
                most, texts = max(most, last.work), max(texts, last.per_character + last.per_key)
                self.numbers, self.floats = max(self.numbers, last.numbers), max(self.floats, last.floats)
                if last.work > PLACE_WORK_MAX:
                    self._refuse(last, f"{_number(last.work)} steps")
        except _TooMany:
            if last is not None:
                self._refuse(last, "too many combinations of schemas")
        self._steps = 0
        return most, texts

    def measure_most_at_one_place(self) -> tuple[int, int]:
        """As `explore`, of a schema that is known to be none too large; zeros: there are too many places to know."""
        self._steps = 0
        try:
            every = [(each.work, each.per_character + each.per_key) for each in self._walk_states()]
        except _TooMany:
            return 0, 0
        finally:
            self._steps = 0
        return max((work for work, _ in every), default=1), max((texts for _, texts in every), default=0)

    def _walk_states(self) -> Iterator[_State]:
        first = self.first
        level: list[_State] = [first] if first is not None else []
        visited = set(map(id, level))
        for _ in range(DEPTH_MAX):
            following: list[_State] = []
            for state in level:
                yield state
                keys: list[Key] = [("name", name) for name in state.named]
                keys += [("index", index) for index in state.indexed]
                for key in (*keys, ANY_NAME, ANY_ITEM, A_NAME):
                    part = self.child(state, key)
                    if part is not None and id(part) not in visited:
                        visited.add(id(part))
                        following.append(part)
            level = following

    def _refuse(self, state: _State, found: str) -> None:
        message = (
            f"it contains itself more than once for the same part of a value, which makes {found} of one part; at most "
            f"{INSTANCES_MAX:,} schemas are taken. Refer to it once for each part"
        )
        raise TooLarge(self.nodes[state.most].path, TOO_LARGE, message)


def _insert(waiting: list[int], number: int, order: list[int]) -> None:
    """Put a schema in its place of a list that is taken from its end."""
    place, low, high = order[number], 0, len(waiting)
    while low < high:
        middle = (low + high) // 2
        if order[waiting[middle]] > place:
            low = middle + 1
        else:
            high = middle
    waiting.insert(low, number)


# --- values -----------------------------------------------------------------------------------------------------------


class Work:
    """What a schema costs: at most `most` units at any one part of a value, and `per_character` of a text there."""

    __slots__ = (
        "_again", "_at_one_place", "_every", "_multiples", "_numbers", "_states", "circles", "most",
        "per_character", "unresolved",
    )  # fmt: skip

    def __init__(
        self,
        most: int,
        every: int,
        per_character: int,
        multiples: bool,
        again: bool,
        numbers: tuple[int, int, int],
        states: _States,
        unresolved: list[tuple[Path, str]],
        circles: list[TooLarge],
    ) -> None:
        self.most = max(most + every, 1)
        self._at_one_place: tuple[int, int] | None = None
        self._every = every  # units for each part of a value, wherever it stands
        self.per_character = per_character
        self.unresolved = unresolved
        self.circles = circles
        self._multiples = multiples
        self._again = 2 if again else 1
        self._numbers = numbers  # the most further units of an integer, of another number, and of this wherever it is
        self._states = states

    def fault(self, value: Json) -> dict[str, Any] | None:
        """The fault of a value that is too much work for this schema; None: it is not."""
        nodes, characters = self.size(value)
        texts = characters * self.per_character // _TEXTS_OF_A_UNIT
        of_numbers = self._measure_numbers(value) if self._numbers[1] else 0
        if nodes * self.most * self._again + texts + of_numbers <= WORK_MAX:
            return None
        if self._at_one_place is None:
            self._at_one_place = self._states.measure_most_at_one_place()
        most, most_text = self._at_one_place
        texts = characters * most_text // _TEXTS_OF_A_UNIT
        if most and nodes * (most * self._again + self._every) + texts + of_numbers <= WORK_MAX:
            return None
        units, texts = self._measure_along(value) if nodes <= _GUIDED_NODES_MAX else (WORK_MAX + 1, 0)
        if units + texts <= WORK_MAX:
            return None
        if texts > units:
            message = (
                f"too long for the patterns of its schema: to match it takes over {WORK_MAX:,} steps; "
                "send less, or bound the texts by `maxLength` instead of the repetitions in their patterns"
            )
        else:
            message = (
                f"too large for its schema: to check it takes over {WORK_MAX:,} steps; "
                "send fewer values, or describe them by a smaller schema"
            )
        return {"path": "", "message": message, "code": "value.too_large", "params": []}

    def _measure_numbers(self, value: Json) -> int:
        """The most that numbers are further work, whatever they are held against."""
        integers = floats = 0
        stack: list[Any] = [[value]]
        while stack:
            part = stack.pop()
            for each in part.values() if type(part) is dict else part:
                kind = type(each)
                if kind is dict or kind is list:
                    stack.append(each)
                elif kind is int:
                    integers += 1
                elif kind is float:
                    floats += 1
        return integers * self._numbers[0] + floats * self._numbers[1]

    def measure_work(self, value: Json) -> int:
        """The units of work that the value is, texts aside; more than `WORK_MAX`: at least so many."""
        return self._measure_along(value)[0]

    def find_leading_to_default(self) -> frozenset[int]:
        """The schemas (by `id`) that have a `default`, or lead to one that has it."""
        nodes = self._states.nodes
        before: list[list[int]] = [[] for _ in nodes]
        for number, node in enumerate(nodes):
            for target, _ in _iter_targets(node):
                before[target].append(number)
        stack = [number for number, node in enumerate(nodes) if "default" in node.schema]
        numbers = set(stack)
        while stack:
            for number in before[stack.pop()]:
                if number not in numbers:
                    numbers.add(number)
                    stack.append(number)
        return frozenset(id(nodes[number].schema) for number in numbers)

    def size(self, value: Json) -> tuple[int, int]:
        """The parts of a value and the characters of its texts, counted up to what is too much anyway."""
        return count_parts(value, WORK_MAX // self.most, texts=self.per_character > 0, multiples=self._multiples)

    def _measure_along(self, value: Json) -> tuple[int, int]:
        """The units of work of the value's own parts, and of its texts, by what each of them is held against."""
        units = texts = 0
        states = self._states
        try:
            stack = [(states.first, value)]
            while stack and units + texts // _TEXTS_OF_A_UNIT <= WORK_MAX:
                state, part = stack.pop()
                if state is None:
                    units += self._every + (self._numbers[2] if isinstance(part, float) else 0)
                    if isinstance(part, list | Mapping):
                        parts = part.values() if isinstance(part, Mapping) else part
                        stack.extend((None, each) for each in parts)
                    continue
                units += state.work + self._every
                if isinstance(part, str):
                    texts += len(part) * state.per_character
                elif isinstance(part, int | float):
                    units += state.numbers
                    if isinstance(part, float):
                        units += state.floats + self._numbers[2]
                        if self._multiples and _is_extreme(part):
                            units += state.work * (_EXTREME_WORK // _MULTIPLE_WORK)
                elif isinstance(part, Mapping):
                    if state.again:
                        units += state.work * len(part)
                    of_names = states.child(state, A_NAME)
                    for name, each in part.items():
                        texts += len(name) * state.per_key
                        stack.append((of_names, name))
                        stack.append((states.child(state, ("name", name)), each))
                elif isinstance(part, list):
                    if state.again:
                        units += state.work * len(part)
                    stack.extend((states.child(state, ("index", index)), each) for index, each in enumerate(part))
        except _TooMany:
            return WORK_MAX + 1, 0
        return units, texts // _TEXTS_OF_A_UNIT


def count_parts(value: Json, most: int, *, texts: bool = True, multiples: bool = False) -> tuple[int, int]:
    """The parts of a value, counted until they are more than `most`, and the characters of their texts and keys.
    `multiples`: numbers of very many digits count for several."""
    nodes, characters = 1, len(value) if isinstance(value, str) else 0
    stack: list[Any] = [value] if isinstance(value, list | dict) else []
    while stack and nodes <= most:
        part = stack.pop()
        nodes += len(part)
        if type(part) is dict:
            if texts:
                characters += sum(map(len, part))
            part = part.values()
        for each in part:
            kind = type(each)
            if kind is dict or kind is list:
                stack.append(each)
            elif kind is str:
                if texts:
                    characters += len(each)
            elif multiples and kind is float and _is_extreme(each):
                nodes += _EXTREME_WORK // _MULTIPLE_WORK
    return nodes, characters
