"""Mutants of what conditions show to the checks: by each, a document would pass whose run fails at a value that is not
there, or a right one would be doubted."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_SAMPLES: Final = "tests/authoring/test_further_mistakes.py"
_FOUND: Final = f"{_SAMPLES}::test_a_mistake_is_found_at_its_line_in_words_that_help"
_RIGHT: Final = f"{_SAMPLES}::test_nothing_is_found_in_an_unusual_file_that_is_right"

facts = Room("hai_flow/definition/checks/condition_facts.py", _FOUND)
facts.bug("of two conditions of which one holds both do").edit(
    "premise = sufficient(one, not outcome)", "premise = sufficient(one, outcome)"
).by(_RIGHT)
facts.bug("one of several words shows what any of them shows").edit(
    "frozenset.intersection(*guards) if outcome else frozenset().union(*guards)", "frozenset().union(*guards)"
)
facts.bug("what is null is there").edit("(*path[:-1], other) if other else ()", "(*path[:-1], other or path[-1])")
skips = Room("hai_flow/definition/names/visible_steps.py", _FOUND)
skips.bug("a step whose failure is caught was skipped").edit(
    "(is_caught(draft) or not _is_unfinished(name, guards))", "not _is_unfinished(name, guards)"
)
skips.bug("a step of a list that was not reached was skipped by its own condition").edit(
    "if _count_common(self.chain, draft.chain) == len(draft.chain):", "if True:"
)
skips.bug("a gate has performed its effect where one of its other answers is excluded").edit(
    "is_left = any(", "is_left = all("
)
skips.bug("the end of a loop is judged as if no round was left").edit(
    'if loop is not None and loop.verb == "repeat":', "if loop is None:"
)
ends = Room("hai_flow/definition/steps.py", _FOUND)
ends.bug("a loop with a condition has had a round").edit('and "while" not in draft.params ', "")
ends.bug("all branches have run where the first one wins").edit(' and draft.fields.get("join", "all") == "all":', ":")
ends.bug("a loop that was left has met its until").edit(
    'if until is not None and "break" not in exits else', "if until is not None else"
)
ends.bug("a block whose failure is caught has run to its end").edit(
    '"if" in draft.fields or is_caught(draft):', '"if" in draft.fields:'
)
ends.bug("a round that was left has run to its end").edit("if not exits and", "if")
items = Room("hai_flow/definition/verbs/blocks.py", _FOUND)
items.bug("an item that failed alone has an output").edit(
    'if draft.params.get("on_failure") != "isolate" and not exits else', "if not exits else"
)
doubts = Room("hai_flow/definition/checks/nullability.py", _FOUND)
doubts.bug("a test of any value excludes a zero").edit(
    "any(text in str(each[2]) for each in facts)", "any(True for each in facts)"
)
doubts.bug("a number that its schema keeps from 0 is doubted").edit(' or schema.get("exclusiveMinimum") == 0', "").by(
    _RIGHT
)
doubts.bug("a map with a computed key is said to lack a word").edit(
    "if lacking and None not in keys:", "if lacking:"
).by(_RIGHT)
