"""Steps as they stand in a run: with the keys of the iterations around them in every path that they hold."""

from __future__ import annotations

import pytest

from hai_flow.definition.paths import keys_of, plan_path, with_keys_or_none
from hai_flow.definition.plan import ForEach, Iteration, Parallel, Repeat, Switch, Try
from hai_flow.engine.state.instances import resolve_step, root_of
from tests.support.runs import plan_of

PLAN = plan_of("""
input: {type: object, properties: {hosts: {type: array}}}
tools:
  t: {python: registered}
steps:
  - id: each
    for_each:
      items: ${{ input.hosts }}
      as: host
      steps:
        - id: again
          repeat:
            max: 3
            steps:
              - id: sure
                approve: {title: Sure?, from: anyone}
                on_reject: [{say: no}]
              - id: deploy
                call: t.deploy
                undo: {call: t.remove}
                catch:
                  - {errors: [tool.failed], steps: [{say: broken}]}
                finally: [{say: tidy}]
              - id: way
                switch: [{when: host == "a", steps: [{say: a}]}, {when: host == "b", steps: [{say: b}]}]
              - id: both
                parallel: {one: [{say: "1"}], two: [{say: "2"}]}
              - id: last
                try: [{call: t.check}]
        - id: inner
          for_each: {items: [1, 2], steps: [{say: hi}]}
""")


def test_a_path_of_a_run_is_one_of_the_plan_with_keys_between_its_brackets() -> None:
    assert plan_path("a/b") == "a/b"
    assert plan_path("each[x%2Fy]/again[2]/deploy") == "each[]/again[]/deploy"
    assert keys_of("each[x%2Fy]/again[2]/deploy") == ("x%2Fy", "2")
    assert with_keys_or_none("each[]/again[]/deploy", ("h", "2")) == "each[h]/again[2]/deploy"
    assert with_keys_or_none("each[]/again[]/deploy", ("h",)) == "each[h]/again[]/deploy"
    assert with_keys_or_none("a", ("h",)) == "a"
    assert with_keys_or_none(None, ("h",)) is None


def test_all_paths_of_a_step_are_those_of_its_own_iteration() -> None:
    deploy = resolve_step(PLAN, "each[h]/again[2]/deploy")
    assert deploy.path == "each[h]/again[2]/deploy"
    assert deploy.parent == "each[h]/again[2]"
    assert deploy.next == "each[h]/again[2]/way"
    assert (deploy.undo or "").startswith("each[h]/again[2]/deploy/")
    assert (deploy.finally_ or "").startswith("each[h]/again[2]/deploy/")
    (clause,) = deploy.catch
    assert clause.errors == ("tool.failed",)
    assert clause.first.startswith("each[h]/again[2]/deploy/")
    (handler,) = resolve_step(PLAN, "each[h]/again[2]/sure").handlers.values()
    assert handler.startswith("each[h]/again[2]/sure/")


def test_the_lists_inside_a_step_are_those_of_its_own_iteration() -> None:
    def verb(path: str) -> object:
        return resolve_step(PLAN, path).verb

    match verb("each"), verb("each[h]/again"), verb("each[h]/inner"):
        case ForEach(iteration=outer), Repeat(iteration=again), ForEach(iteration=inner):
            assert (outer, again, inner) == ("each[]", "each[h]/again[]", "each[h]/inner[]")
        case found:
            pytest.fail(f"expected three loops, found {found}")
    match verb("each[h]/again[2]"), verb("each[h]/again[2]/last"):
        case Iteration(first=first), Try(first=tried):
            assert first == "each[h]/again[2]/sure"
            assert tried.startswith("each[h]/again[2]/last/")
        case found:
            pytest.fail(f"expected an iteration and a try, found {found}")
    match verb("each[h]/again[2]/way"), verb("each[h]/again[2]/both"):
        case Switch(cases=cases), Parallel(branches=branches):
            firsts = [first for _, first in (*cases, *branches)]
            assert len(firsts) == 4
            assert all("[h]/again[2]/" in first for first in firsts)
        case found:
            pytest.fail(f"expected a switch and a parallel step, found {found}")


def test_a_step_outside_of_loops_is_the_plans_own() -> None:
    assert resolve_step(PLAN, "each") is PLAN.steps["each"]
    root = root_of(PLAN)
    assert (root.path, root.verb) == ("", Try(PLAN.first))


def test_a_call_in_a_loop_calls_what_the_plan_says() -> None:
    assert resolve_step(PLAN, "each[h]/again[2]/deploy").verb == PLAN.steps["each[]/again[]/deploy"].verb
