"""JSON Schemas that make much of little: refused when they are compiled, and values that they make much of, as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.schemas.schema_work import INSTANCES_MAX, TooLarge, measure, measure_pattern
from hai_flow.definition.schemas.schemas import JsonSchema, compile_schema

Make = Callable[[dict[str, Any]], dict[str, Any]]

TWICE: dict[str, Make] = {
    "allOf": lambda one: {"allOf": [one, one]},
    "anyOf": lambda one: {"anyOf": [one, one]},
    "oneOf": lambda one: {"oneOf": [one, one]},
    "if and then": lambda one: {"if": one, "then": one},
    "if and else": lambda one: {"if": one, "else": one},
    "not": lambda one: {"not": {"allOf": [one, {"not": one}]}},
    "dependentSchemas": lambda one: {"dependentSchemas": {"a": one, "b": one}},
    "properties": lambda one: {"properties": {"a": one, "b": one}},
    "patternProperties": lambda one: {"patternProperties": {"a": one, "b": one}},
    "properties and others": lambda one: {"properties": {"a": one}, "additionalProperties": one},
    "names": lambda one: {"propertyNames": one, "additionalProperties": one},
    "prefixItems": lambda one: {"prefixItems": [one, one]},
    "items": lambda one: {"items": {"allOf": [one, one]}},
    "contains": lambda one: {"contains": one, "items": one},
    "unevaluatedProperties": lambda one: {"unevaluatedProperties": one, "allOf": [one]},
    "unevaluatedItems": lambda one: {"unevaluatedItems": one, "allOf": [one]},
    "a reference and what stands beside it": lambda one: {**one, "allOf": [one]},
}


def doubled(times: int, make: Make, reference: str = "#/$defs/a{}") -> dict[str, Any]:
    """A schema in which each definition leads to the one before twice."""
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(1, times + 1):
        definitions[f"a{number}"] = make({"$ref": reference.format(number - 1)})
    return {"$defs": definitions, "$ref": reference.format(times)}


def faults(raw: Any) -> list[tuple[tuple[str | int, ...], str, str]]:
    found: list[tuple[tuple[str | int, ...], str, str]] = []
    compile_schema(raw, lambda path, code, message: found.append((path, code, message)))
    return found


def seconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


@pytest.mark.parametrize("keyword", TWICE)
@pytest.mark.parametrize("times", [14, 24, 60])
def test_a_schema_that_doubles_is_refused_with_the_number_and_the_place(keyword: str, times: int) -> None:
    raw = doubled(times, TWICE[keyword])
    ((path, code, message),) = faults(raw)
    assert code == "schema.too_large"
    assert path[0] == "$defs"
    assert "10,000" in message or "200,000" in message
    with pytest.raises(TooLarge):
        JsonSchema(raw)


@pytest.mark.parametrize("keyword", TWICE)
def test_a_schema_that_doubles_a_few_times_is_taken(keyword: str) -> None:
    assert faults(doubled(5, TWICE[keyword])) == []


def test_a_definition_named_by_id_anchor_or_percent_signs_counts_too() -> None:
    for definition, reference in (
        (lambda number: {"$anchor": f"n{number}"}, "#n{}"),
        (lambda number: {"$id": f"urn:n{number}"}, "urn:n{}"),
        (lambda number: {"$id": f"n{number}.json"}, "n{}.json"),
        (lambda number: {"$dynamicAnchor": f"n{number}"}, "#n{}"),
        (lambda number: {}, "#/%24defs/a{}"),
    ):
        raw = doubled(24, TWICE["allOf"], reference)
        for number in range(25):
            raw["$defs"][f"a{number}"] |= definition(number)
        with pytest.raises(TooLarge):
            JsonSchema(raw)


def test_a_dynamic_reference_counts_as_all_that_it_may_mean() -> None:
    raw = doubled(24, lambda one: {"allOf": [{"$dynamicRef": one["$ref"]}, one]}, "#n{}")
    for number in range(25):
        raw["$defs"][f"a{number}"]["$dynamicAnchor"] = f"n{number}"
    with pytest.raises(TooLarge):
        JsonSchema(raw)


def test_a_reference_that_the_count_can_not_follow_is_refused() -> None:
    with pytest.raises(ValueError, match=r"leads nowhere|not allowed|does not exist"):
        JsonSchema({"$ref": "#/$defs/x/y", "$defs": {"x": True}})


@pytest.mark.parametrize("raw", [
    {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "additionalProperties": False},
    {"properties": {"children": {"items": {"$ref": "#"}}}},
    {"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]},
])  # fmt: skip
def test_a_schema_may_contain_itself_where_a_round_takes_part_of_the_value(raw: Any) -> None:
    assert faults(raw) == []
    value: Any = {}
    for _ in range(30):
        value = {"left": value, "right": {}} if "left" in raw.get("properties", ()) else [value]
    assert seconds(lambda: JsonSchema(raw).findings(value)) < 0.5


def test_a_tree_that_is_extended_may_contain_itself() -> None:
    tree = {
        "$id": "tree", "$dynamicAnchor": "node", "type": "object",
        "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }  # fmt: skip
    strict = {"$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": False, "$defs": {"tree": tree}}
    assert JsonSchema(strict).findings({"children": [{"data": 1}]}) == []
    assert JsonSchema(strict).findings({"children": [{"daat": 1}]})


@pytest.mark.parametrize("raw", [
    {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]},
    {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"^a": {"$ref": "#"}}},
    {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
    {"anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"additionalProperties": {"$ref": "#"}}]},
    {"contains": {"$ref": "#"}, "items": {"$ref": "#"}},
])  # fmt: skip
def test_a_schema_meeting_itself_twice_at_each_level_is_refused(raw: Any) -> None:
    ((_, code, message),) = faults(raw)
    assert code == "schema.too_large"
    assert "contains itself" in message


def test_a_circle_that_takes_nothing_of_the_value_is_a_finding() -> None:
    raw = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ((path, code, message),) = faults(raw)
    assert (path, code) == (("$defs", "b", "$ref"), "schema.reference")
    assert "leads back to itself" in message


def test_a_circle_with_several_ways_around_is_refused() -> None:
    definitions = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{m}"} for m in range(12) if m != n]} for n in range(12)}
    with pytest.raises(TooLarge):
        JsonSchema({"$ref": "#/$defs/a0", "$defs": definitions})


def test_schemas_that_are_looked_at_again_and_again_are_refused() -> None:
    raw: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(18):
        raw = {"unevaluatedProperties": False, "allOf": [raw]}
    assert [code for _, code, _ in faults(raw)] == ["schema.too_large"]


def test_many_schemas_side_by_side_are_refused() -> None:
    assert [code for _, code, _ in faults({"allOf": [{}] * (INSTANCES_MAX + 1)})] == ["schema.too_large"]
    assert faults({"properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}) == []


@pytest.mark.parametrize("pattern", ["((a{1,100}){1,100})*b", "(a{100}){200}", "[ab]{20000}"])
def test_a_pattern_whose_repetitions_are_very_many_is_refused(pattern: str) -> None:
    assert [code for _, code, _ in faults({"pattern": pattern})] == ["schema.too_large"]


@pytest.mark.parametrize(("pattern", "states"), [
    ("abc", 3), ("a{3}", 3), ("(ab){2,4}c", 9), (r"\p{L}{5}", 200), (r"\pL{5}", 200), (r"[\p{L}\pN_]{2}", 160),
    (r"\w{3}", 3), (r"[^\]]{2}", 2), ("a|b", 2), ("[]a]b", 2),
    ("((a{2}){3}){4}", 24), ("{", 1), ("(", 0), ("[", 1), ("\\", 1),
])  # fmt: skip
def test_the_states_of_a_pattern_are_counted_with_its_repetitions(pattern: str, states: int) -> None:
    assert measure_pattern(pattern)[0] == states


@given(st.text(alphabet="ab[]{}()|*+?^$\\,12:pxu", max_size=60))
def test_every_pattern_is_counted(pattern: str) -> None:
    states, cost = measure_pattern(pattern)
    assert states >= 0
    assert cost >= 1


VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    "many rows for a list of objects to choose from": (
        {"items": {"enum": [{"s": n} for n in range(2_000)]}}, [{"s": 1_999}] * 2_000),
    "many rows for many branches": ({"items": {"anyOf": [{"minimum": n} for n in range(3_000)]}}, [-1] * 5_000),
    "multiples of very many digits": ({"items": {"multipleOf": 0.01}}, [1e300] * 20_000),
    "multiples of next to nothing": ({"items": {"multipleOf": 1e-300}}, [12.5] * 20_000),
    "unique lists in unique lists": ({"uniqueItems": True, "items": {"$ref": "#"}}, [[[list(range(60_000))]]]),
    "a long text for a tangled pattern": ({"pattern": "^[01]*1[01]{20}$"}, "01" * 60_000),
    "long keys for tangled patterns": (
        {"patternProperties": {"[01]*1[01]{20}2": {}}}, {f"{n:0200b}": 1 for n in range(2_000)}),
    "lists of all that is contained": (
        {"unevaluatedItems": False, "anyOf": [{"contains": {"const": n}} for n in range(1_000)]}, list(range(1_000))),
    "objects of all that is evaluated": (
        {"unevaluatedProperties": False, "additionalProperties": True,
         "anyOf": [{"required": [f"k{n}"]} for n in range(1_000)]}, {f"k{n}": 1 for n in range(1_000)}),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_its_schema_makes_too_much_of_is_refused_in_time(name: str) -> None:
    raw, value = VALUES[name]
    schema = JsonSchema(raw)
    assert seconds(lambda: schema.findings(value)) < 0.25
    (fault,) = schema.findings(value)
    assert (fault["path"], fault["code"]) == ("", "value.too_large")


def test_a_long_text_is_not_held_against_patterns_of_other_parts() -> None:
    schema = JsonSchema({"properties": {"id": {"pattern": "^[01]*1[01]{20}$"}, "text": {"type": "string"}}})
    assert schema.findings({"id": "1" * 30, "text": "01" * 100_000}) == []


def test_ordinary_rows_are_taken_by_the_ten_thousand() -> None:
    columns = {f"c{n}": {"type": ["integer", "null"], "minimum": 0} for n in range(10)}
    schema = JsonSchema({"items": {"properties": columns, "required": list(columns), "additionalProperties": False}})
    assert schema.findings([dict.fromkeys(columns, 1)] * 10_000) == []


NUMBERS: dict[str, tuple[dict[str, Any], Any]] = {
    "bounds with a fraction": ({"items": {"allOf": [{"minimum": 0.5}] * 300}}, [1.5] * 1_700),
    "a list of numbers to choose from": ({"items": {"enum": [n + 0.5 for n in range(300)]}}, [299.5] * 5_000),
    "integers to choose from, for numbers": ({"items": {"enum": list(range(1_000))}}, [999.0] * 5_000),
    "short lists of different numbers": ({"items": {"uniqueItems": True}}, [[n + 0.5 for n in range(15)]] * 5_000),
    "bounds that meet at each level": (
        {"$defs": {"t": {"minimum": 0.5, "items": {"$ref": "#/$defs/t"}}}, "items": {"$ref": "#/$defs/t"}},
        [[1.5] * 8] * 5_000,
    ),
    "numbers below what is to be different": (
        {"items": {"uniqueItems": True}}, [[{"a": [n + 0.5]} for n in range(15)]] * 1_000),
    "names that are looked for again": (
        {"items": {"anyOf": [{"properties": {f"p{n}": {}}} for n in range(50)], "unevaluatedProperties": False}},
        [{f"p{n}": 1 for n in range(50)}] * 1_700,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_comparisons_that_the_library_makes_by_digits_count_for_many(name: str) -> None:
    raw, value = NUMBERS[name]
    (fault,) = JsonSchema(raw).findings(value)
    assert (fault["path"], fault["code"]) == ("", "value.too_large")
    assert JsonSchema(raw).findings(value[:10]) == []


def test_integers_are_looked_up_in_a_list_of_integers() -> None:
    assert JsonSchema({"items": {"enum": list(range(1_000))}}).findings([999] * 1_500) == []


EXPLAINED: dict[str, tuple[dict[str, Any], Any]] = {
    "many rows with many required names": ({"items": {"required": [f"s{n}" for n in range(5_000)]}}, [{}] * 2_000),
    "many rows that are wrong": ({"items": {"allOf": [{"type": "string"}] * 100}}, [1] * 1_000),
    "many alternatives for a long text": ({"anyOf": [{"type": "integer"}] * 1_000}, "a" * 1_000_000),
    "many bounds for a long text": ({"allOf": [{"minLength": 2_000_000}] * 1_000}, "a" * 1_000_000),
    "alternatives within alternatives": (doubled(11, TWICE["anyOf"]), "x"),
    "many wrong rows": ({"items": {"type": "string"}}, [1] * 100_000),
    "alternatives for many names": (
        {"items": {"anyOf": [{"propertyNames": {"maxLength": 1}}] * 5}},
        [{f"p{n}": n for n in range(50)}] * 93,
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_is_wrong_with_a_large_value_is_told_in_time(name: str) -> None:
    raw, value = EXPLAINED[name]
    schema = JsonSchema(raw)
    assert seconds(lambda: schema.findings(value)) < 0.5
    assert schema.findings(value)


def test_the_wrong_parts_of_a_large_value_are_told_each_at_its_place() -> None:
    row = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    schema = JsonSchema(
        {
            "required": ["rows", "more"],
            "properties": {"rows": {"items": {"$ref": "#/$defs/row"}}},
            "$defs": {"row": row},
        }
    )
    rows: list[Any] = [{"a": 1}] * 5_000
    rows[7], rows[4_000], rows[4_500] = {"a": "x"}, {}, {"a": 1, "b": 2}
    found = {(each["path"], each["code"]) for each in schema.findings({"rows": rows})}
    assert found == {
        ("", "value.required"),
        ("/rows/7/a", "value.type"),
        ("/rows/4000", "value.required"),
        ("/rows/4500", "value.additional_properties"),
    }


def test_defaults_that_make_themselves_end() -> None:
    node = {"default": {}, "properties": {"x": {"$ref": "#/$defs/t"}, "y": {"$ref": "#/$defs/t"}}}
    schema = JsonSchema({"$ref": "#/$defs/t", "$defs": {"t": node}, "properties": {"z": {"default": 1}}})
    assert seconds(lambda: schema.with_defaults({})) < 0.5


def test_a_value_whose_defaults_are_too_many_is_refused() -> None:
    schema = JsonSchema({"items": {"properties": {f"p{n}": {"default": n} for n in range(1_000)}}})
    value = [{}] * 2_000
    assert schema.with_defaults(value) is value
    (fault,) = schema.findings(value)
    assert fault["code"] == "value.too_large"
    assert len(schema.with_defaults([{}])[0]) == 1_000


def test_defaults_of_schemas_that_meet_are_all_applied_first_one_wins() -> None:
    schema = JsonSchema({
        "allOf": [{"properties": {"a": {"default": 1}}}, {"$ref": "#/$defs/more"}],
        "properties": {"a": {"default": 2}, "d": {"properties": {"e": {"default": 3}}}},
        "$defs": {
            "more": {"properties": {"b": {"default": {}, "properties": {"c": {"default": 4}}}, "d": {"default": {}}}},
        },
    })  # fmt: skip
    assert schema.with_defaults({}) == {"a": 1, "b": {"c": 4}, "d": {"e": 3}}


def test_five_thousand_defaults_are_checked_in_time() -> None:
    definitions = {f"d{n}": {"properties": {f"p{n}": {"$ref": f"#/$defs/d{n - 1}"}}} if n else {} for n in range(500)}
    properties = {f"p{n}": {"allOf": [{"$ref": "#/$defs/d499"}], "default": {}} for n in range(19)}
    assert seconds(lambda: faults({"$defs": definitions, "properties": properties})) < 2


def test_the_faults_of_a_schema_end_at_a_hundred() -> None:
    assert len(faults({f"propertes{n}": {} for n in range(20_000)})) == 100


_LEAVES = st.sampled_from([{}, {"type": "integer"}, {"minimum": 1}, {"required": ["a"]}, {"maxItems": 2}])
_KEYWORDS = st.sampled_from(
    [
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "items",
        "properties",
        "additionalProperties",
        "unevaluatedProperties",
        "contains",
        "prefixItems",
        "dependentSchemas",
    ]
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Schemas of a few definitions that refer to each other at random."""
    count = draw(st.integers(1, 8))
    definitions: dict[str, Any] = {}
    for number in range(count):
        schema: dict[str, Any] = dict(draw(_LEAVES))
        for keyword in draw(st.lists(_KEYWORDS, max_size=3)):
            references = [{"$ref": f"#/$defs/d{draw(st.integers(0, count - 1))}"} for _ in range(2)]
            if keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
                schema[keyword] = references
            elif keyword in ("properties", "dependentSchemas"):
                schema[keyword] = {"a": references[0], "b": references[1]}
            else:
                schema[keyword] = references[0]
        definitions[f"d{number}"] = schema
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


_JSON = st.recursive(
    st.integers(0, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=40,
)


@given(graphs(), _JSON)
def test_what_is_taken_takes_no_longer_than_was_counted(raw: dict[str, Any], value: Any) -> None:
    try:
        schema = JsonSchema(raw)
    except ValueError:
        return
    assert seconds(lambda: schema.findings(value)) < 0.05 + 200e-9 * measure(raw).measure_work(value)


def test_large_defaults_are_counted_for_each_object_that_lacks_them() -> None:
    schema = JsonSchema({"items": {"properties": {"d": {"default": list(range(5_000))}}}})
    assert schema.with_defaults([{}, {}]) == [{"d": list(range(5_000))}] * 2
    begun = time.thread_time()
    (fault,) = schema.findings([{} for _ in range(10_000)])
    assert time.thread_time() - begun < 1
    assert fault["code"] == "value.too_large"
    assert "defaults" in fault["message"]


BIGS = [str(10**20 + number) for number in range(20_000)]
DIGITS: dict[str, tuple[dict[str, Any], Any]] = {
    "compared with each other": ({"uniqueItems": True, "anyOf": [{"items": {"type": "integer"}}]}, BIGS),
    "compared with an enum": ({"items": {"enum": list(range(9_000))}}, BIGS[:800]),
    "of thousands of digits": ({"items": {"enum": list(range(9_000))}}, [str(10**3_000)] * 20),
    "one by one": ({"items": {"type": "integer"}}, BIGS),
    "within a bound": ({"items": {"minimum": 10**15}}, BIGS),
}


@pytest.mark.parametrize("name", DIGITS)
def test_integers_of_many_digits_are_made_only_where_compared_in_time(name: str) -> None:
    raw, value = DIGITS[name]
    begun = time.thread_time()
    JsonSchema(raw).fit(value)
    assert time.thread_time() - begun < 1


def test_a_few_large_integers_are_made_of_their_digits_wherever_they_stand() -> None:
    given = {"xs": BIGS[:50], "y": {"z": str(10**300)}, "text": BIGS[0]}
    raw = {
        "properties": {
            "xs": {"uniqueItems": True, "items": {"type": "integer"}},
            "y": {"properties": {"z": {"type": "integer"}}},
            "text": {"type": "string"},
        }
    }
    fitted, faults = JsonSchema(raw).fit(given)
    assert faults == []
    assert fitted == {"xs": [int(each) for each in BIGS[:50]], "y": {"z": 10**300}, "text": BIGS[0]}
    assert given["xs"] == BIGS[:50], "the value itself stays as it is"
