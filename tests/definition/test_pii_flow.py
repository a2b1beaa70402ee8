"""Marks spread from where a schema says `pii: true` over all that is made of the value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.child_interface import Child
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.definition.personal.pii_flow import OfStep, Personal, derive_personal, list_uncovered
from hai_flow.definition.personal.pii_marks import (
    EVERY,
    ITEM,
    MASK,
    covers,
    join,
    mark_at,
    mark_of_schema,
    mask_items,
    mask_object,
    mask_value,
    part,
    under,
)
from hai_flow.definition.plan import Plan, Run, Template, Verb
from hai_flow.definition.schemas.schemas import JsonSchema, strip_marks
from hai_flow.errors import DefinitionError

HEAD = """
hai: flow/v1
name: w
version: 1
input:
  type: object
  required: [iban, eur, people]
  properties:
    iban: {type: string, pii: true}
    eur: {type: integer}
    people: {type: array, items: {type: object, properties: {name: {type: string, pii: true}, n: {type: integer}}}}
state: {kept: {default: null}, list: {type: array, default: [], reduce: append}}
tools: {shop: {python: registered}}
models: {m: {provider: openai, model: m}}
steps:
"""


def found(steps: str, children: dict[str, Plan] | None = None) -> Personal:
    compiled = compile_workflow((HEAD + steps).encode())

    def child(run: Run) -> Plan | None:
        return (children or {}).get(run.workflow)

    return derive_personal(compiled, child)


# --- another version ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["input", "state", "output", "message", "key"])
def test_a_part_of_a_run_that_another_version_does_not_mark_is_named(name: str) -> None:
    before = Personal(**{name: True})  # type: ignore[arg-type]
    assert list(list_uncovered(before, Personal(), {})) == [name]
    assert list(list_uncovered(before, before, {})) == []
    assert list(list_uncovered(Personal(), before, {})) == []


@pytest.mark.parametrize("now", ["/a", "/b"])
@pytest.mark.parametrize("name", OfStep.__struct_fields__)
def test_a_step_of_which_another_version_marks_less_is_named(name: str, now: str) -> None:
    marked, paths = OfStep(**{name: True}), {} if now == "/a" else {"/a": now}
    before = Personal(steps={"/a": marked, "/c": marked})
    less, same = (Personal(steps={now: each, "/c": marked}) for each in (OfStep(), marked))
    assert list(list_uncovered(before, less, paths)) == ["/a"]
    assert list(list_uncovered(before, same, paths)) == []


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "mark"),
    [
        ({"type": "string", "pii": True}, True),
        ({"type": "string", "pii": False}, False),
        ({"properties": {"a": {"pii": True}, "b": {}}}, {"a": True}),
        ({"properties": {"pii": {"type": "string"}}}, False),
        ({"items": {"properties": {"a": {"pii": True}}}}, {ITEM: {"a": True}}),
        ({"additionalProperties": {"pii": True}}, {EVERY: True}),
        ({"propertyNames": {"pii": True}}, True),
        ({"anyOf": [{"type": "null"}, {"properties": {"a": {"pii": True}}}]}, {"a": True}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"pii": True}}}}}, {"x": True}),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"pii": True}, "next": {"$ref": "#/$defs/a"}}}}},
            {"x": True, "next": True},
        ),
        (True, False),
    ],
)
def test_a_schema_says_what_is_personal(schema: Any, mark: Any) -> None:
    assert mark_of_schema(schema) == mark


def test_pii_is_true_or_false() -> None:
    with pytest.raises(DefinitionError, match="expected true or false, found"):
        compile_workflow((HEAD.replace("pii: true", "pii: perhaps") + "  - say: x").encode())


# --- marks ------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", EVERY])
MARKS = st.recursive(st.just(True), lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=6)
VALUES = st.recursive(
    st.sampled_from([None, "secret", 7, True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)


@given(MARKS, MARKS, VALUES)
def test_what_is_personal_by_either_is_masked_by_both(one: Any, other: Any, value: Any) -> None:
    both = join(one, other)
    assert both == join(other, one)
    assert covers(both, one)
    assert covers(both, other)
    assert mask_value(mask_value(value, one), other) in (
        mask_value(value, both),
        mask_value(mask_value(value, both), both),
    )


@given(MARKS, st.lists(st.sampled_from(["a", "b", 0]), max_size=3))
def test_a_mark_under_a_path_is_found_there(mark: Any, path: list[str | int]) -> None:
    assert mark_at(under(path, mark), path) == mark
    assert part(True, "a") is True


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        ({"iban": True}, [{"iban": "X"}]),
        ({EVERY: True}, ["X"]),
        ({EVERY: {"iban": True}}, {"a": [{"iban": "X"}]}),
        ({ITEM: {"iban": True}}, {"iban": "X"}),
        ({ITEM: {"address": {"street": True}}}, {"address": {"street": "X"}}),
        ({ITEM: {"iban": True}}, [[{"iban": "X"}]]),
        ({ITEM: {ITEM: {"address": {"street": True}}}}, [{"address": {"street": "X"}}]),
        ({"customer": {"iban": True}}, {"customer": [{"iban": "X"}]}),
        ({"customer": {"iban": True}}, {"customer": "X"}),
    ],
)
def test_a_value_of_another_shape_than_its_mark_is_hidden_whole(mark: Any, value: Any) -> None:
    assert "X" not in str(mask_value(value, mark))
    assert "X" not in str(mask_object(value, mark))
    assert "X" not in str(mask_items([value], {ITEM: mark}))
    assert mask_items(["X"], {"a": True}) == [MASK]  # a list stays one, and an object one
    assert mask_object({"b": "X"}, {ITEM: True}) == {"b": MASK}


def test_what_is_read_from_a_value_of_another_shape_is_personal() -> None:
    assert part({"iban": True}, 0) is True
    assert part({ITEM: {"iban": True}}, "iban") is True
    assert (part({"iban": True}, "eur"), part({}, 0)) == (False, False)
    assert not covers({"iban": True}, {ITEM: True})  # what nobody declared is not declared by doubt
    assert not covers({ITEM: True}, {"iban": True})


@given(VALUES)
def test_all_of_a_value_is_one_mask(value: Any) -> None:
    assert mask_value(value, True) == (None if value is None else MASK)
    assert mask_value(value, False) == value


# --- flow -------------------------------------------------------------------------------------------------------------


def test_a_text_reading_a_personal_value_is_personal_its_neighbour_is_not() -> None:
    personal = found("""
  - {id: one, title: "T ${{ input.iban }}", say: "It is ${{ input.eur }}"}
  - {id: two, say: "To ${{ input.iban }}"}
  - {id: three, say: "${{ size(input.people) }} people"}
""")
    assert (personal.of("one").title, personal.of("one").words) == (True, False)
    assert (personal.of("two").title, personal.of("two").words) == (False, True)
    assert personal.of("three").words  # what is counted is read


def test_arguments_and_outputs_keep_their_parts_and_results_join_them() -> None:
    personal = found("""
  - id: paid
    call: shop.pay
    with: {iban: "${{ input.iban }}", eur: "${{ input.eur }}", first: "${{ input.people[0] }}"}
  - {id: other, call: shop.pay, with: {eur: "${{ input.eur }}"}}
  - {id: told, say: "${{ steps.paid.output.ref }}"}
  - {id: fine, say: "${{ steps.other.output.ref }}"}
output: {ref: "${{ steps.paid.output.ref }}", eur: "${{ input.eur }}"}
""")
    assert personal.of("paid").args == {"iban": True, "first": {"name": True}}
    assert (personal.of("paid").output, personal.of("other").output) == (True, False)
    assert (personal.of("told").words, personal.of("fine").words) == (True, False)
    assert personal.output == {"ref": True}


def test_state_carries_marks_also_back_to_an_earlier_step() -> None:
    personal = found("""
  - id: rounds
    repeat:
      max: 2
      steps:
        - {id: before, say: "${{ state.kept }}"}
        - set: {kept: {deep: "${{ state.kept }}", iban: "${{ input.iban }}"}, list: "${{ input.people[0] }}"}
        - {id: listed, say: "${{ state.list }}"}
""")
    assert personal.of("rounds[0]/before").words
    assert personal.of("rounds[1]/listed").words
    assert mask_value([{"name": "Erika", "n": 1}], part(personal.state, "list")) == [{"name": MASK, "n": 1}]


def test_items_and_outputs_of_loops_keep_their_parts() -> None:
    personal = found("""
  - id: each
    for_each:
      items: "${{ input.people }}"
      output: "${{ item }}"
      steps:
        - {id: hello, say: "Hello ${{ item.name }}"}
        - {id: number, say: "Number ${{ item.n }}"}
  - {id: names, say: "${{ steps.each.output[0].output.name }}"}
  - {id: numbers, say: "${{ steps.each.output[0].output.n }}"}
""")
    assert personal.of("each").items == {ITEM: {"name": True}}
    assert (personal.of("each[0]/hello").words, personal.of("each[0]/number").words) == (True, False)
    assert (personal.of("names").words, personal.of("numbers").words) == (True, False)


def test_a_form_marks_its_answers_and_what_is_filled_in_beforehand() -> None:
    personal = found("""
  - id: form
    ask:
      title: Who?
      form:
        type: object
        required: [phone, size, other]
        properties:
          phone: {type: string, pii: true}
          size: {type: string}
          other: {type: string, title: "Instead of ${{ input.iban }}", default: "${{ input.iban }}"}
  - {id: one, say: "${{ steps.form.output.phone }}"}
  - {id: two, say: "${{ steps.form.output.size }}"}
  - {id: three, say: "${{ steps.form.output.other }}"}
""")
    assert [personal.of(each).words for each in ("one", "two", "three")] == [True, False, True]
    assert personal.of("form").form == {"properties": {"other": {"title": True, "default": True}}}


def test_a_decision_s_values_are_those_of_its_form() -> None:
    personal = found("""
  - id: gate
    approve:
      title: Go?
      from: [role:boss]
      evidence: {iban: "${{ input.iban }}", eur: "${{ input.eur }}"}
      form: {type: object, properties: {phone: {type: string, pii: true}, ok: {type: boolean}}}
  - {id: one, say: "${{ steps.gate.output.values.phone }}"}
  - {id: two, say: "${{ steps.gate.output.decision }}"}
""")
    assert (personal.of("gate").evidence, personal.of("gate").title) == ({"iban": True}, False)
    assert (personal.of("one").words, personal.of("two").words) == (True, False)


def test_a_model_that_reads_a_personal_value_writes_personal_text() -> None:
    personal = found("""
  - {id: free, llm: {model: m, prompt: "About ${{ input.iban }}"}}
  - {id: other, llm: {model: m, prompt: "About ${{ input.eur }}"}}
  - id: score
    llm:
      model: m
      prompt: "About ${{ input.iban }}"
      output: {type: object, pii: false, properties: {risk: {type: string}, who: {type: string, pii: true}}}
""")
    assert (personal.of("free").output, personal.of("free").words) == (True, True)
    assert (personal.of("other").output, personal.of("other").touches) == (False, False)
    assert personal.of("score").output == {"who": True}


def test_an_agents_work_is_personal_once_it_reads_something_personal() -> None:
    personal = found("""
  - {id: a, agent: {model: m, prompt: "About ${{ input.iban }}", tools: [shop.pay], memory: none}}
  - {id: b, agent: {model: m, prompt: "About ${{ input.eur }}", tools: [shop.pay], memory: none}}
""")
    inside = ("a[0]/model", "a[0]/call[shop.pay-1]/shop.pay")
    assert all(personal.of(path).args is True and personal.of(path).words for path in inside)
    assert not any(personal.of(path.replace("a[", "b[")).touches for path in inside)


CHILD = """
hai: flow/v1
name: child
version: 1
input: {type: object, properties: {who: {type: string, PII}, n: {type: integer}}}
steps:
  - {id: said, say: "${{ input.who }}"}
output: {who: "${{ input.who }}", n: "${{ input.n }}"}
"""


def test_a_child_is_told_of_as_it_says_itself_and_as_it_is_given() -> None:
    marked, plain = (compile_workflow(CHILD.replace(", PII", each).encode()) for each in (", pii: true", ""))
    steps = """
  - {id: sub, run: child, with: {who: WHO, n: 1}}
  - {id: one, say: "${{ steps.sub.output.who }}"}
  - {id: two, say: "${{ steps.sub.output.n }}"}
"""
    for child, who, masks in ((marked, "x", True), (plain, "x", False), (plain, '"${{ input.iban }}"', True)):
        personal = found(steps.replace("WHO", who), {"child": child})
        assert (personal.of("one").words, personal.of("two").words) == (masks, False)
        assert personal.of("sub/said").words is masks
    unknown = found(steps.replace("WHO", "x"))
    assert unknown.of("two").words  # nothing is known of it


def test_a_workflow_that_marks_nothing_masks_nothing() -> None:
    compiled = compile_workflow((HEAD.replace(", pii: true", "") + '  - say: "${{ input.iban }}"').encode())
    personal = derive_personal(compiled, lambda run: None)
    assert not personal.anything
    assert personal == Personal(compiled.sha256.hex())


def test_a_workflow_that_runs_itself_comes_to_an_end() -> None:
    personal = found("""
  - {id: again, if: "input.eur > 5", run: w, with: {iban: "${{ input.iban }}", eur: 1, people: []}}
""")
    assert personal.of("again").args == {"iban": True}


# --- what can't be masked ---------------------------------------------------------------------------------------------


def codes(steps: str, child: Child | None = None) -> list[str]:
    return [each.code for each in check_workflow((HEAD + steps).encode(), children=lambda name, version: child)]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ('  - for_each: {items: "${{ input.people }}", key: "${{ item.name }}", steps: [{say: x}]}', "pii.shown"),
        ('  - for_each: {items: "${{ input.people }}", key: "${{ string(item.n) }}", steps: [{say: x}]}', None),
        ('  - for_each: {items: ["${{ input.iban }}"], steps: [{say: x}]}', "pii.shown"),
        ('  - approve: {title: Go?, from: ["user:${{ input.iban }}"]}', "pii.shown"),
        ('  - approve: {title: Go?, from: [role:a], exclude: ["user:${{ input.iban }}"]}', "pii.shown"),
        ('  - approve: {title: Go?, from: [role:a], notify: ["email:${{ input.iban }}"]}', "pii.shown"),
        ('  - approve: {title: Go?, from: [anyone], veto: ["user:${{ input.iban }}"]}', "pii.shown"),
        ('  - approve: {title: Go?, from: [anyone], quorum: "${{ size(input.iban) }}"}', "pii.shown"),
        (
            "  - approve: {title: Go?, from: [role:a], on_deadline: "
            '[{escalate: {from: ["user:${{ input.iban }}"], deadline: 1d}}, reject]}',
            "pii.shown",
        ),
        ('  - {call: shop.pay, approval: {from: ["user:${{ input.iban }}"]}}', "pii.shown"),
        ('  - approve: {title: "Pay ${{ input.iban }}?", from: [role:a]}', None),
        ('  - {id: s, run: child, with: {who: "${{ input.iban }}"}}', "pii.undeclared"),
        ('  - {id: s, run: child, with: {who: "${{ input.eur }}"}}', None),
        ('  - {id: s, run: child, with: {said: "${{ input.iban }}"}}', None),
        ('  - {id: s, if: "input.eur > 5", run: w, with: {iban: "${{ input.iban }}", eur: 1, people: []}}', None),
    ],
)
def test_what_everybody_reads_may_not_show_a_personal_value(steps: str, code: str | None) -> None:
    schema = {"type": "object", "properties": {"who": {}, "said": {"pii": True}}}
    found = codes(steps, Child(JsonSchema(schema)))
    assert [each for each in found if each.startswith("pii.")] == ([] if code is None else [code]), found


def test_a_model_is_not_shown_what_is_no_keyword_of_json_schema() -> None:
    schema = {
        "type": "object", "pii": True, "required": ["pii"],
        "properties": {"pii": {"type": "string", "pii": True}, "b": {"items": {"anyOf": [{"pii": False}, True]}}},
        "$defs": {"pii": {"pii": True, "enum": [{"pii": True}]}},
    }  # fmt: skip
    assert strip_marks(schema) == {
        "type": "object", "required": ["pii"],
        "properties": {"pii": {"type": "string"}, "b": {"items": {"anyOf": [{}, True]}}},
        "$defs": {"pii": {"enum": [{"pii": True}]}},
    }  # fmt: skip


def test_a_mark_for_a_part_that_is_something_else_masks_all_of_it() -> None:
    assert [mask_value(value, {"name": True}) for value in ("Erika", 7, None)] == [MASK, MASK, None]


class _UnknownVerb(Verb, frozen=True):
    values: Template


def test_the_output_of_a_verb_without_a_rule_is_personal_if_it_reads_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hai_flow.definition.plan.Let", _UnknownVerb)
        steps = '  - id: a\n    let: {b: "${{ input.iban }}"}\n  - id: c\n    let: {d: "${{ input.eur }}"}\n'
        compiled = compile_workflow((HEAD + steps).encode())
    marks = derive_personal(compiled, lambda run: None)
    assert [bool(marks.of(path).output) for path in ("a", "c")] == [True, False]
