"""Whole documents: what they compile to, and what is said about wrong ones."""

from __future__ import annotations

import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.definition import plan
from hai_flow.definition.compiler import check_workflow, compile_workflow
from hai_flow.errors import DefinitionError
from tests.support.examples import examples

from .support import HEAD, SCOPE, compiled, findings, workflow

EVERYTHING = """\
title: Refund
description: Everything at once
input:
  type: object
  required: [order, amount]
  properties: {order: {type: string}, amount: {type: number}, note: {type: string}}
state:
  log: {type: array, items: {type: string}, default: [], reduce: append}
  status: {type: string, default: new}
  workflowItems: {type: [object, 'null']}
tools:
  shop: {python: acme.shop, effect: read}
  one: {python: "acme.shop:one", title: Send it}
  here: {python: registered}
  confirmAction:
    frontend:
      description: Confirm
      parameters: {type: object, required: [question], properties: {question: {type: string}}}
      result: {type: boolean}
      deadline: 1d
defaults: {retry: {max: 2}, timeout: 10s, deadline: 2d}
steps:
  - id: greet
    title: "Greet ${{ input.order }}"
    say: "Hello ${{ input.order }}"
  - id: pay
    if: input.amount > 10
    call: shop.refund
    with: {order: "${{ input.order }}", note: "${{ input.note }}"}
    retry: {max: 3, backoff: exponential, errors: [tool.failed, http.*], every: 500ms}
    timeout: 1m
    expose: true
    stream: text
    catch:
      - errors: [tool.*]
        steps: [{say: "failed ${{ error.message }} ${{ steps.pay.status }}"}]
      - steps: [{say: other}]
  - id: route
    switch:
      - when: steps.pay.status == "finished" && steps.pay.output.ok == true
        steps: [{id: a1, set: {log: "refunded ${{ input.amount }}", /workflowItems/x: 1}}]
      - default: true
        steps: [{say: {fold: {title: x, fold: [1], position: end}, block_id: b}}]
  - id: both
    parallel:
      legal: [{id: why, ask: {title: Why, form: {properties: {text: {type: string}}, required: [text]}}}]
      money: [{id: w, wait: {for: 1h30m}}, {wait: {until: "2026-03-02T09:00:00Z"}}]
    join: any
  - id: review
    approve:
      title: "Pay ${{ input.amount }}?"
      from: [user:boss, "${{ 'user:' + input.order }}"]
      exclude: requester
      evidence: {text: "${{ steps.why.?output.text.orValue('') }}"}
      deadline: 1h
      on_deadline: fail
    on_reject: [{return: {reason: "${{ steps.review.approval.reason }}", code: "${{ error.code }}"}}]
  - call: one
  - call: here
  - id: sure
    call: confirmAction
    with: {question: hi}
  - if: "!steps.sure.output"
    fail: {message: "no ${{ input.order }}", code: stock.empty, data: {a: 1}}
  - set: [{op: add, path: /log/-, value: "${{ input.order }}"}]
    if: input.amount < 0
catch:
  - errors: [stock.empty]
    steps: [{say: "bad ${{ error.code }}"}]
output: {refunded: "${{ input.amount }}", log: "${{ state.log }}"}
"""


def compiled_everything() -> plan.Plan:
    return compile_workflow(
        (HEAD + EVERYTHING).replace("- set: [{op: add, path: /log/-", "- set: [{op: add, path: /status").encode()
    )


def test_every_step_has_its_path_and_place() -> None:
    p = compiled_everything()
    assert {path: (s.verb_name, s.next, s.parent, s.body) for path, s in p.steps.items()} == {
        "greet": ("say", "pay", "", ""),
        "pay": ("call", "route", "", ""),
        "pay/~catch/0/say#1": ("say", None, "pay", "~catch/0"),
        "pay/~catch/1/say#1": ("say", None, "pay", "~catch/1"),
        "route": ("switch", "both", "", ""),
        "route/0/a1": ("set", None, "route", "0"),
        "route/1/say#1": ("say", None, "route", "1"),
        "both": ("parallel", "review", "", ""),
        "both/legal/why": ("ask", None, "both", "legal"),
        "both/money/w": ("wait", "both/money/wait#2", "both", "money"),
        "both/money/wait#2": ("wait", None, "both", "money"),
        "review": ("approve", "call#2", "", ""),
        "review/~reject/return#1": ("return", None, "review", "~reject"),
        "call#2": ("call", "call#3", "", ""),
        "call#3": ("call", "sure", "", ""),
        "sure": ("call", "fail#1", "", ""),
        "fail#1": ("fail", "set#1", "", ""),
        "set#1": ("set", None, "", ""),
        "~catch/0/say#1": ("say", None, "", "~catch/0"),
    }
    assert p.first == "greet"
    assert p.ids["why"] == "both/legal/why"
    assert "call#2" not in p.ids
    assert p.warnings == ()


def test_parameters_arrive_in_milliseconds_and_with_defaults() -> None:
    p = compiled_everything()
    pay = p.steps["pay"]
    assert pay.retry == plan.Retry(3, ("tool.failed", "http.*"), "exponential", 500)
    assert pay.timeout == 60_000
    assert (pay.expose, pay.catch[0]) == (True, plan.CatchClause(("tool.*",), "pay/~catch/0/say#1"))
    assert p.default_retry == plan.Retry(2)
    assert p.steps["call#2"].timeout == 10_000
    assert p.steps["sure"].timeout is None
    why, review = p.steps["both/legal/why"].verb, p.steps["review"].verb
    assert isinstance(why, plan.Ask)
    assert isinstance(review, plan.Approve)
    assert (why.policy.deadline, review.policy.deadline) == (172_800_000, 3_600_000)
    assert (why.policy.expiry.outcome, review.policy.expiry.outcome) == ("fail", "fail")
    assert why.policy.from_.render({}) == ["requester"]
    assert review.policy.from_.render({"input": {"order": "x"}}) == ["user:boss", "user:x"]
    assert review.policy.exclude is not None
    assert review.policy.exclude.render({}) == ["requester"]
    assert p.steps["review"].handlers == {"reject": "review/~reject/return#1"}


def test_tools_are_of_their_kind() -> None:
    p = compiled_everything()
    assert p.tools["shop"] == plan.PythonTool("shop", "acme.shop", "read", declared_effect=True)
    assert p.tools["one"] == plan.PythonTool("one", "acme.shop:one", title="Send it")
    assert p.tools["here"] == plan.PythonTool("here", "")
    confirm = p.tools["confirmAction"]
    assert isinstance(confirm, plan.FrontendTool)
    assert confirm.deadline == 86_400_000
    call = p.steps["pay"].verb
    assert isinstance(call, plan.Call)
    assert (call.function, call.stream) == ("refund", True)
    assert call.arguments.render({"input": {"order": "o"}}) == {"order": "o", "note": None}


def test_state_starts_at_its_defaults_or_null() -> None:
    p = compiled_everything()
    start = {name: variable.default for name, variable in p.state.items()}
    assert start == {"log": [], "status": "new", "workflowItems": None}
    assert p.state["log"].reduce == "append"
    assert p.state_schema.findings(start) == []
    assert p.state_schema.findings({**start, "status": 1}) != []
    assert p.state_schema.findings({**start, "other": 1}) != []


def test_the_plan_knows_its_bytes() -> None:
    source = workflow("")
    assert compile_workflow(source).source == source
    assert len(compile_workflow(source).sha256) == 32
    assert compile_workflow(source).sha256 != compile_workflow(source + b"\n").sha256


def test_input_without_a_schema_takes_nothing() -> None:
    assert compiled("").input.findings({}) == []
    assert compiled("").input.findings({"a": 1}) != []


def test_the_output_and_titles_render() -> None:
    p = compiled_everything()
    assert p.output is not None
    assert p.output.render({"input": {"amount": 5}, "state": {"log": []}}) == {"refunded": 5, "log": []}
    title = p.steps["greet"].title
    assert title is not None
    assert title.render({"input": {"order": "o"}}) == "Greet o"


def test_a_handler_sees_the_step_that_failed_and_what_was_inside() -> None:
    compiled("""\
        steps:
          - id: block
            parallel:
              a: [{id: x, say: hi}]
              b: [{id: y, say: hi}]
            catch: [{steps: [{say: "${{ steps.x.status }} ${{ steps.block.status }} ${{ error.code }}"}]}]
          - say: "${{ steps.y.status }}"
    """)


def test_a_condition_may_be_wrapped_or_a_plain_boolean() -> None:
    p = compiled("steps: [{if: '${{ 1 < 2 }}', say: a}, {if: true, say: b}]")
    assert [s.condition and s.condition.evaluate(SCOPE) for s in p.steps.values()] == [True, True]


OPTIONAL = "input: {type: object, required: [c, l], properties: {o: {type: integer}, c: {enum: [EUR, USD]}, l: {}}}\n"

WRONG: list[tuple[str, str, str]] = [
    # shape of the document
    ("nmae: x\n", "4:1", "unknown key `nmae`"),
    ("title: 5\n", "4:8", "expected text, found the number 5; quote it"),
    ("steps: []\n", "4:8", "expected at least 1"),
    ("steps: {a: b}\n", "4:8", "expected a list"),
    ("triggers: []\n", "4:11", "expected at least 1"),
    ("defaults: {retyr: {max: 1}}\n", "4:12", "did you mean `retry`?"),
    ("defaults: {deadline: 5}\n", "4:22", "a duration such as 7d"),
    # input, state
    ("input: {type: array}\n", "4:8", "`type: object`"),
    ("input: {type: object, propertes: {}}\n", "4:23", "did you mean `properties`?"),
    ("input: {type: object, properties: {a: {type: strnig}}}\n", "4:46", "did you mean `string`?"),
    ("input: {type: object, properties: {a: {$ref: 'file:///etc/passwd'}}}\n", "4:46", "inside this schema"),
    ("input: {type: object, properties: {a: {default: '${{ now }}'}}}\n", "4:49", "a schema is literal"),
    ("state: {log: {type: array, default: [], reduce: apend}}\n", "4:49", "'append', 'merge', 'max', 'min' or 'add'"),
    ("state: {log: {type: string, reduce: append}}\n", "4:37", "needs `type: array`"),
    ("state: {a-b: {type: string}}\n", "4:9", "expected a letter"),
    ("state: {n: {type: integer, default: x}}\n", "4:37", "does not fit"),
    # tools
    ("tools: {shop: {pyhton: x}}\n", "4:16", "did you mean `python`?"),
    ("tools: {shop: {python: 'a b'}}\n", "4:24", "expected a module"),
    ("tools: {shop: {python: acme, efect: read}}\n", "4:30", "did you mean `effect`?"),
    ("tools: {pick: {frontend: {parameters: {}}}}\n", "4:16", "`description` is missing"),
    ("tools: {shop: {python: acme}}\nsteps: [{call: shp.x}]\n", "5:16", "did you mean `shop`?"),
    ("steps: [{call: shop.x}]\n", "4:16", "declare it under `tools`"),
    ("tools: {one: {python: 'a:f'}}\nsteps: [{call: one.x}]\n", "5:16", "write `call: one`"),
    ("tools: {shop: {python: acme}}\nsteps: [{call: shop}]\n", "5:16", "name a function"),
    # steps
    ("steps: [{sya: hi}]\n", "4:10", "did you mean `say`?"),
    ("steps: [{say: a, set: {b: 1}}]\n", "4:18", "`say` and `set`"),
    ("steps: [{id: a, title: b}]\n", "4:9", "only `id`, `title`"),
    ("steps: [5]\n", "4:9", "expected a step"),
    ("steps: [{say: a, retry: {max: 1}}]\n", "4:18", "does not apply to a `say` step"),
    ("steps: [{say: a, colour: red}]\n", "4:18", "unknown key `colour`"),
    ("steps: [{return: 1, catch: [{steps: [{say: a}]}]}]\n", "4:21", "does not apply to a `return` step"),
    ("steps: [{id: A, say: a}]\n", "4:14", "a lower-case letter"),
    ("steps: [{id: import, say: a}]\n", "4:14", "a word of CEL"),
    ("steps: [{id: state, say: a}]\n", "4:14", "already names something"),
    ("steps: [{id: a, say: x}, {id: a, say: y}]\n", "4:31", "first at line 4"),
    # verbs
    ("steps: [{say: {txt: a}}]\n", "4:16", "did you mean `text`?"),
    ("steps: [{say: {text: a, thinking: b}}]\n", "4:15", "`text` and `thinking`"),
    ("steps: [{ask: {title: a}}]\n", "4:10", "`form` is missing"),
    ("steps: [{ask: {title: a, form: {type: string}}}]\n", "4:39", "`type: object`"),
    ("steps: [{approve: {title: a}}]\n", "4:10", "`from` is missing"),
    ("steps: [{approve: {title: a, from: [ann]}}]\n", "4:37", "`user:ann`"),
    ("steps: [{approve: {title: a, from: []}}]\n", "4:36", "at least one selector"),
    ("steps: [{approve: {title: a, from: anyone, quorum: {role:sre: 0}}}]\n", "4:63", "a mapping of such numbers"),
    ("steps: [{approve: {title: a, from: anyone, quorum: 0}}]\n", "4:52", "expected a number from 1"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: approv}}]\n", "4:57", "did you mean `approve`?"),
    ("steps: [{approve: {title: a, from: anyone, on_deadline: [escalate: {}]}}]\n", "4:58", "`deadline` is missing"),
    ("steps: [{approve: {title: a, from: anyone, options: [approve]}}]\n", "4:53", "both must be possible"),
    ("steps: [{set: {lgo: 1}}]\nstate: {log: {type: number, default: 0}}\n", "4:16", "did you mean `log`?"),
    ("steps: [{set: {/log/0: 1}}]\nstate: {log: {type: array, reduce: append}}\n", "4:16", "not by a pointer"),
    ("steps: [{set: [{op: add, path: /log}]}]\nstate: {log: {type: number, default: 0}}\n", "4:16", "`value` is"),
    ("steps: [{set: [{op: ad, path: /log, value: 1}]}]\nstate: {log: {type: number, default: 0}}\n", "4:21", "'add'"),
    ("steps: [{switch: [{when: 'true', steps: []}]}]\n", "4:41", "expected at least 1"),
    ("steps: [{switch: [{default: true, steps: [{say: a}]}, {when: 'true', steps: [{say: b}]}]}]\n", "4:20", "last"),
    ("steps: [{parallel: {a: [{say: x}]}}]\n", "4:20", "expected at least 2"),
    ("steps: [{parallel: {a: [{say: x}], b: []}}]\n", "4:39", "an empty list"),
    ("steps: [{parallel: {a: [{say: x}], B: [{say: x}]}}]\n", "4:36", "lower-case"),
    ("steps: [{wait: {for: 10}}]\n", "4:22", "give it a unit: `10s`"),
    ("steps: [{wait: {for: 10 minutes}}]\n", "4:22", "a duration such as"),
    ("steps: [{wait: {for: 1h, until: x}}]\n", "4:16", "`for` and `until`"),
    ("steps: [{wait: {until: tomorrow}}]\n", "4:24", "2026-03-02T09:00:00Z"),
    ("steps: [{fail: {message: a, code: tool.own}}]\n", "4:35", "the engine's own"),
    ("steps: [{fail: {code: a}}]\n", "4:10", "`message` is missing"),
    ("steps: [{say: a, catch: [{errors: [not a code], steps: [{say: b}]}]}]\n", "4:36", "expected an error code"),
    ("tools: {s: {python: a}}\nsteps: [{call: s.x, retry: {every: 1s}}]\n", "5:21", "`max` is missing"),
    ("tools: {s: {python: a}}\nsteps: [{call: s.x, retry: {max: 101}}]\n", "5:34", "at most 100"),
    ("tools: {s: {python: a}}\nsteps: [{call: s.x, timeout: 5}]\n", "5:30", "a duration such as"),
    # expressions
    ("steps: [{say: 'a ${{ inptu.x }}'}]\n", "4:22", "did you mean `input`?"),
    ("steps: [{say: a, if: steps.b.output}, {id: b, say: x}]\n", "4:28", "comes later (line 4)"),
    ("steps: [{id: bee, say: a}, {say: '${{ steps.be.status }}'}]\n", "4:45", "did you mean `bee`?"),
    ("steps: [{id: a, say: '${{ steps.a.status }}'}]\n", "4:33", "can't use itself"),
    ("steps: [{say: '${{ error.code }}'}]\n", "4:20", "only in `catch`"),
    ("steps: [{say: '${{ 1 + }}'}]\n", "4:24", "did not expect the end"),
    ("steps: [{say: a, if: 1 + 1}]\n", "4:22", "expected true or false"),
    ("steps: [{say: a, if: 5}]\n", "4:22", "expected an expression"),
    ("steps:\n  - say: |\n      one\n      two ${{ foo }}\n", "7:15", "no name `foo`"),
    ("steps:\n  - say: ${{ input.x # y }}\n", "5:22", "a comment begins with `//`"),
    ("steps:\n  - say: ${{ input.x # y\n", "5:10", "quote it"),
    ("output: {a: [1, '${{ nope }}']}\n", "4:22", "no name `nope`"),
    ("steps: [{say: '${{ input.zz }}'}]\ninput: {type: object, properties: {z: {}}}\n", "4:26", "did you mean `z`?"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "place", "fragment"), WRONG)
def test_one_mistake_is_one_finding_at_its_place_with_a_remedy(body: str, place: str, fragment: str) -> None:
    found = findings(workflow(body))
    assert len(found) == 1, found
    assert found[0].startswith(f"{place}: error"), found
    assert fragment in found[0]


def test_branches_and_cases_do_not_see_each_other() -> None:
    source = workflow("""\
        steps:
          - id: both
            parallel:
              a: [{id: x, say: hi}]
              b: [{say: "${{ steps.x.status }}"}]
          - switch:
              - when: "true"
                steps: [{id: y, say: hi}]
              - when: "false"
                steps: [{say: "${{ steps.y.status }}"}]
          - say: "${{ steps.x.status }} ${{ steps.y.status }}"
    """)
    found = findings(source)
    assert len(found) == 2
    assert "parallel branches don't see each other" in found[0]
    assert "another case" in found[1]


def test_a_made_up_id_can_not_be_named() -> None:
    assert "no step `say#1`" in findings(workflow("steps: [{say: a}, {say: '${{ steps[\"say#1\"].status }}'}]"))[0]


def test_a_wrong_step_still_declares_its_id() -> None:
    found = findings(workflow("steps: [{id: a, sya: hi}, {say: '${{ steps.a.output }}'}]"))
    assert len(found) == 1
    inner = "steps: [{for_each: {items: [1], steps: [{id: b, say: x}]}}, {say: '${{ steps.b.output }}'}]"
    assert len(findings(workflow(inner))) == 1


def test_all_findings_come_at_once_in_document_order() -> None:
    with pytest.raises(DefinitionError) as caught:
        compile_workflow(b"hai: flow/v2\nname: A\nversion: 0\nsteps:\n  - sya: a\n  - say: ${{ foo }}\n", "f")
    assert [(f.line, f.code) for f in caught.value.findings] == [
        (1, "shape.value"), (2, "shape.value"), (3, "shape.value"), (5, "step.no_verb"), (6, "expression.unknown_name"),
    ]  # fmt: skip


def test_arguments_of_a_frontend_tool_are_checked() -> None:
    schema = "{type: object, required: [q], properties: {q: {type: string}}}"
    tool = f"tools: {{pick: {{frontend: {{description: d, parameters: {schema}}}}}}}\n"
    for step, fragment in (
        ("{call: pick}", "needs the argument `q`"),
        ("{call: pick, with: {q: a, qq: b}}", "no argument `qq`"),
        ("{call: pick, with: {q: 5}}", "does not fit"),
        ("{call: pick.x, with: {q: a}}", "by its name alone"),
        ("{call: pick, with: {q: a}, timeout: 5s}", "people have a `deadline`"),
    ):
        found = findings(workflow(f"{tool}steps: [{step}]\n"))
        assert len(found) == 1, found
        assert fragment in found[0]
    assert findings(workflow(tool + "steps: [{call: pick, with: {q: '${{ now }}'}}]\n")) == []


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ("steps: [{return: 1}, {say: a}]\n", "can't be reached"),
        ("steps: [{say: 'hi {{ name }}'}]\n", "a hole is written"),
        ("steps: [{approve: {title: a, from: anyone, on_deadline: approve}}]\n", "counts as approval"),
        (OPTIONAL + "steps: [{if: input.o > 5, say: a}]\n", "`input.o` may be absent; guard it"),
        ("models: {m: {provider: opnai, model: x}}\nsteps: [{say: a}]\n", "did you mean `openai`?"),
        ("steps: [{say: a, catch: [{errors: [tool.faild], steps: [{say: b}]}]}]\n", "did you mean `tool.failed`?"),
    ],
)
def test_doubts_are_warnings_and_the_plan_still_compiles(body: str, fragment: str) -> None:
    warnings = compile_workflow(workflow(body)).warnings
    assert len(warnings) == 1
    assert warnings[0].severity == "warning"
    assert fragment in warnings[0].message


def test_a_guard_in_the_expression_or_around_it_silences_the_doubt() -> None:
    body = """\
    steps:
      - {if: "has(input.o) && input.o > 5", say: "${{ input.o + 1 }}"}
      - switch: [{when: has(input.o), steps: [{say: "${{ input.o + 1 }}"}]}]
      - {say: "${{ input.?o.orValue(0) + 1 }} ${{ input.o }}"}
    """
    assert findings((HEAD + OPTIONAL).encode() + textwrap.dedent(body).encode()) == []


def test_text_is_text_even_where_it_is_one_hole() -> None:
    p = compiled(OPTIONAL + "steps: [{say: '${{ input.o }}', title: '${{ input.l }}'}]\n")
    step = p.steps["say#1"]
    assert isinstance(step.verb, plan.Say)
    assert step.verb.content.render({"input": {"l": [1.0]}}) == ""
    assert step.title is not None
    assert step.title.render({"input": {"l": [1.0]}}) == "[1]"


def test_codes_that_the_workflow_itself_raises_are_known() -> None:
    block = "parallel: {a: [{fail: {message: x, code: stock.empty}}], b: [{say: x}]}"
    body = f"steps: [{{{block}, catch: [{{errors: [stock.empty], steps: [{{say: b}}]}}]}}]\n"
    assert findings(workflow(body)) == []


def test_types_come_from_schemas() -> None:
    document = """\
        input: {type: object, required: [n, d], properties: {n: {type: integer}, d: {type: number}, o: {type: integer}}}
        state: {list: {type: array, items: {type: number}, default: []}}
        tools: {ok: {frontend: {description: d, parameters: {}, result: {type: boolean}}}}
        steps:
          - {id: form, ask: {title: t, form: {required: [x], properties: {x: {type: string}}}}}
          - {id: sure, call: ok}
          - {if: "input.d < 5 && input.n < 5 && state.list.all(v, v > 0) && has(input.o) && input.o > 5", say: a}
          - {if: steps.sure.output && steps.form.output.x == "a", say: b}
    """
    assert findings(workflow(document)) == []
    wrong = document.replace('steps.form.output.x == "a"', "steps.form.output.y == 1")
    assert "no `y`" in findings(workflow(wrong))[0]


def test_hundreds_of_mistakes_are_cut_off_and_fast() -> None:
    began = time.process_time()
    found = check_workflow(workflow("steps:\n" + "  - say: ${{ steps.x.output }}\n" * 3000))
    assert 0 < len(found) <= 400
    assert time.process_time() - began < 5


def test_a_large_document_compiles_in_reasonable_time() -> None:
    body = "".join(f"  - {{id: s{n}, say: 'hello ${{{{ input.x }}}}', if: 'input.x == \"a\"'}}\n" for n in range(500))
    source = workflow("input: {type: object, required: [x], properties: {x: {type: string}}}\nsteps:\n" + body)
    began = time.process_time()
    assert len(compile_workflow(source).steps) == 500
    assert time.process_time() - began < 3


YAMLISH = st.recursive(
    st.sampled_from([
        "", "a", "1", "5s", "true", "null", "[]", "{}", "'${{ input.x }}'", "'${{'", "user:a", "steps.a.output", "-1",
    ]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.dictionaries(
            st.sampled_from([
                "id", "say", "set", "call", "ask", "approve", "switch", "parallel", "wait", "return", "fail",
                "if", "with", "retry", "catch", "steps", "when", "default", "title", "form", "from", "quorum",
                "deadline", "on_reject", "errors", "max", "text", "fold", "output", "message", "code", "for",
                "until", "a", "b", "type", "items", "properties", "required", "for_each", "undo", "options",
                "on_deadline", "exclude", "timeout", "join", "expose", "stream",
            ]),
            inner,
            max_size=4,
        ).map(lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"),
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=examples(120), deadline=None)
@given(
    steps=st.lists(YAMLISH, max_size=3),
    extra=YAMLISH,
    key=st.sampled_from(["input", "state", "tools", "defaults", "catch", "output"]),
)
def test_anything_shaped_like_yaml_compiles_or_has_findings(steps: list[str], extra: str, key: str) -> None:
    _compiles_or_has_findings((HEAD + f"{key}: {extra}\nsteps: [{', '.join(steps)}]\n").encode())


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=120))
def test_arbitrary_bytes_have_findings(source: bytes) -> None:
    _compiles_or_has_findings(source)


@settings(max_examples=examples(100), deadline=None)
@given(
    at=st.integers(0, len(EVERYTHING)),
    size=st.integers(0, 12),
    put=st.text(alphabet="ab:-{}[]\"'&*!|#?,\n $", max_size=4),
)
@pytest.mark.slow
def test_a_damaged_document_compiles_or_has_findings(at: int, size: int, put: str) -> None:
    _compiles_or_has_findings((HEAD + EVERYTHING[:at] + put + EVERYTHING[at + size :]).encode())


def _compiles_or_has_findings(source: bytes) -> None:
    found = check_workflow(source)
    if any(finding.severity == "error" for finding in found):
        with pytest.raises(DefinitionError):
            compile_workflow(source)
        assert all(finding.line >= 1 and finding.column >= 1 for finding in found)
    else:
        assert compile_workflow(source).warnings == tuple(found)
