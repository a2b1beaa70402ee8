"""Bugs by which a test of a workflow passes that proves nothing, or an author is told what is not so."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_PROOFS: Final = "tests/testing/test_proofs.py"

sequences = Room("hai_flow/testing/sequences.py", _PROOFS)
sequences.bug("what is left of a run behind the last expected entry is not looked at").edit(
    "return len(found) in reached", "return True"
).by(f"{_PROOFS}::test_messages_are_compared_in_order")
triggering = Room("hai_flow/testing/documents/triggering.py", _PROOFS)
triggering.bug("a trigger starts a run although its `match` is false").edit(
    "return Triggered(False)\n        input", "pass\n        input"
).by(f"{_PROOFS}::test_what_does_not_match_starts_nothing")
coverage = Room("hai_flow/testing/coverage.py", _PROOFS)
coverage.bug("an answer that nobody gives counts as given").edit(
    "if (step.path, option) not in self.answered:", "if False:"
).by(f"{_PROOFS}::test_coverage_names_what_no_case_takes")
draft = Room("hai_flow/engine/draft.py", "tests/definition/test_lets.py")
draft.bug("a branch reads what a `let` in another branch has named").edit(
    "if inside not in (within, loop) and not paths.is_inside(inside, within):", "if False:"
).by("tests/definition/test_lets.py::test_a_name_is_read_in_its_list_and_inside_of_it")
personal = Room("hai_flow/definition/personal/pii_flow.py", "tests/definition/test_lets.py")
personal.bug("a personal value is personal no more once it has another name").edit(
    "case plan.Let():\n                return self.mark(verb.values, step)",
    "case plan.Let():\n                return False",
).by("tests/definition/test_lets.py::test_a_value_made_of_a_personal_one_is_personal")
_WORDS: Final = "tests/definition/test_wanted_words.py"
votes = Room("hai_flow/engine/pendings/votes.py", _WORDS)
votes.bug("a veto is one rejection like any other").edit(
    "if any(not set(rules.veto).isdisjoint(vote.matched) for vote in rejections):", "if False:"
).by(f"{_WORDS}::test_one_rejection_with_a_veto_decides_and_others_count")
scope = Room("hai_flow/definition/names/visible_steps.py", _WORDS)
scope.bug("the output of a step whose failure is data is believed to be there").edit(
    'ignored = draft.fields.get("continue_on_error") is True\n', "ignored = False\n"
).by(f"{_WORDS}::test_the_output_of_a_step_whose_failure_is_data_must_be_guarded")
_MISTAKES: Final = "tests/authoring/test_further_mistakes.py"
_GUARDS: Final = "tests/definition/test_guards.py"
believed = Room("hai_flow/definition/names/visible_steps.py", _GUARDS, _MISTAKES)
believed.bug("a step is believed to have run because one other case ends the list").edit(
    "return is_one_of_two and all(is_end_certain", "return is_one_of_two and any(is_end_certain"
).by(f"{_GUARDS}::test_a_guard_that_proves_nothing_is_doubted")
believed.bug("a status that is not `failed` proves nothing").edit(
    'return _is_status_excluded(step, "failed", guards) or', "return False or"
).by(f"{_MISTAKES}::test_nothing_is_found_in_an_unusual_file_that_is_right")
_EDITORS: Final = "tests/lsp/test_server.py"
editors = Room("hai_flow/lsp/server.py", _EDITORS)
editors.bug("a text with the line ends of Windows is taken as it is").edit(
    'text.replace("\\r\\n", "\\n").replace("\\r", "\\n")', "text"
).by(f"{_EDITORS}::test_a_text_with_windows_line_ends_is_answered_in_place")
places = Room("hai_flow/lsp/cursor_place.py", _EDITORS)
places.bug("a hole that was opened on a line above is not seen").edit(
    "return line is before or indent", "return line is before or False and indent"
).by(f"{_EDITORS}::test_a_hole_over_several_lines_is_offered_names")
_UNCHANGED: Final = "tests/lsp/test_incremental.py"
unchanged = Room("hai_flow/definition/incremental.py", _UNCHANGED)
unchanged.bug("a step is used again although a step that it names was changed").edit(
    "            and earlier.place == self._place(earlier.words, draft, names)\n", ""
).by(f"{_UNCHANGED}::test_after_random_edits_all_is_as_if_it_were_read_anew")
unchanged.bug("a step that has moved keeps the line on which it was").edit(
    "moved = draft.line - earlier.line", "moved = 0"
).by(f"{_UNCHANGED}::test_after_random_edits_all_is_as_if_it_were_read_anew")
futile = Room("hai_flow/definition/checks/ineffective_settings.py", _MISTAKES)
futile.bug("a wait beyond the limit of its run is not found").edit(
    "if isinstance(limit, int) and length > limit:", "if False:"
).by(_MISTAKES)
blocks = Room("hai_flow/definition/verbs/blocks.py", _MISTAKES)
blocks.bug("a key that all items share is taken for the key of each").edit(
    "key.roots <= outer and", "not key.holes and"
).by(_MISTAKES)
deadlines = Room("hai_flow/definition/people/deadlines.py", _MISTAKES)
deadlines.bug("the stages before it are not counted to a deadline").edit(
    "if limit is not None and waited + deadline > limit:", "if limit is not None and deadline > limit:"
).by(_MISTAKES)
_WITHDRAWING: Final = "tests/definition/test_withdrawing.py"
withdrawing = Room("hai_flow/engine/pendings/withdrawing.py", _WITHDRAWING)
withdrawing.bug("a question is asked that its condition has taken back from the start").edit(
    "if condition is not None and draft.truth(condition, step, **roots):", "if False:"
).by(f"{_WITHDRAWING}::test_a_question_that_nobody_wants_is_not_asked")
withdrawing.bug("a question stays open when the state takes it back").edit(
    "if state.state is draft.looked_at:", "if True:"
).by(f"{_WITHDRAWING}::test_what_the_state_becomes_takes_a_question_back")
pendings = Room("hai_flow/engine/evolve/pendings.py", _WITHDRAWING)
pendings.bug("an event takes back what is answered already").edit(
    "state.subscriptions.delete(path) if path in state.subscriptions else state.subscriptions,", "state.subscriptions,"
).by(f"{_WITHDRAWING}::test_an_event_during_an_approved_call_is_not_its_result")
due = Room("hai_flow/engine/due.py", _WITHDRAWING)
due.bug("the deadline of a question is taken for that of an event").edit(
    " and path not in draft.state.open_pendings", ""
).by(f"{_WITHDRAWING}::test_a_question_that_an_event_may_withdraw_keeps_its_own_deadline")
summaries = Room("hai_flow/engine/runs/summaries.py", "tests/api/test_summaries.py")
summaries.bug("a list shows a run for ever as it was when it started").edit(
    "same = before.state is state.state and before.input", "same = before.input"
).by("tests/api/test_summaries.py::test_a_list_shows_the_line_of_a_run_as_far_as_it_has_come")
schemas = Room("hai_flow/definition/schemas/schemas.py", "tests/api/test_forms_with_files.py")
schemas.bug("a form takes any text for a file").edit("return sha256_of_file(text) is not None", "return True").by(
    "tests/api/test_forms_with_files.py::test_an_answer_names_an_upload_and_nothing_else"
)
certainty = Room("hai_flow/definition/checks/constant_conditions.py", _MISTAKES)
certainty.bug("two comparisons that exclude each other are taken for a condition").edit(
    "return any(_hold(claim.relation, equal[0], claim.value) is False for claim in claims)", "return False"
).by(_MISTAKES)
certainty.bug("a comparison with what the schema excludes is taken for a condition").edit(
    "return True if least > value else False if most <= value else None", "return None"
).by(_MISTAKES)
unraised = Room("hai_flow/definition/checks/unraised_errors.py", _MISTAKES)
unraised.bug("a rejection deep inside of a block counts as one that nobody can give").edit(
    "for one in steps for each in (one, *one.inside()))]", "for one in steps for each in (one,))]"
).by(_MISTAKES)
plain_secrets = Room("hai_flow/definition/checks/plain_secrets.py", _MISTAKES)
plain_secrets.bug("a token behind its scheme is taken for two words").edit(
    'bare = _SCHEME.sub("", text.strip())', "bare = text.strip()"
).by(_MISTAKES)
unused = Room("hai_flow/definition/checks/unused_declarations.py", _MISTAKES)
unused.bug("a tool that only an undo calls counts as one that nothing uses").edit(
    'return text == name or text.startswith(f"{name}.")', "return text == name"
).by(_MISTAKES)
fitting = Room("hai_flow/definition/checks/type_mismatches.py", _MISTAKES)
fitting.bug("a text in place of a number is found only when the step begins").edit(
    "if accepted is not None and produced is not None and accepted.isdisjoint(produced):", "if False:"
).by(_MISTAKES)
annotations = Room("hai_flow/definition/schemas/python_annotations.py", _MISTAKES)
annotations.bug("a field with a default counts as one that must be given").edit(
    "if is_needed and not _has_default(value):", "if is_needed:"
).by(_MISTAKES)
known = Room("hai_flow/definition/names/known_names.py", _MISTAKES)
known.bug("what a function says of its result is not held against expressions").edit(
    "wrong = self.types.look_to_judge(chain.full_path).wrong", "wrong = self.types.look(chain.full_path).wrong"
).by(_MISTAKES)
grammar = Room("hai_flow/authoring/grammar.py", "tests/authoring/test_grammar_lines.py")
grammar.bug("the page tells to write what the checker refuses").edit(
    "`break` and `continue` stand in loops.", "`break` and `continue` stand\n  nowhere.\n- No `if`."
).by("tests/authoring/test_grammar_lines.py")
schemas.bug("a misspelt property is refused without the one that was meant").edit(
    'if kind not in ("AdditionalProperties", "Enum"):', "if True:"
).by("tests/definition/test_meant_properties.py::test_a_misspelt_property_is_answered_with_the_one_that_was_meant")
lint = Room("hai_flow/definition/checks/lint.py", _MISTAKES)
lint.bug("a `continue_on_error` that never acts is taken").edit(
    'if step.fields.get("continue_on_error") is True and any(', "if False and any("
).by(_MISTAKES)
declarations = Room("hai_flow/definition/declarations.py", _MISTAKES)
declarations.bug("a model is taken as its own fallback").edit("if name == at[1]:", "if False:").by(_MISTAKES)
requests = Room("hai_flow/definition/verbs/http.py", _MISTAKES)
requests.bug("headers that are no mapping are found only when the request is sent").edit(
    "if part is not None and not is_open and not isinstance(part, Mapping):", "if False:"
).by(_MISTAKES)
triggers = Room("hai_flow/definition/triggers.py", _MISTAKES)
triggers.bug("a trigger that stands twice starts two runs, and nobody is told").edit(
    "and raw in value[:index]:", "and False:"
).by(_MISTAKES)
quorum_check = Room("hai_flow/definition/people/quorum_check.py", _MISTAKES)
quorum_check.bug("a role that nobody has is asked").edit("if empty is not None:", "if False:").by(_MISTAKES)
policies = Room("hai_flow/definition/people/policies.py", _MISTAKES)
policies.bug("arguments that a gate misspells are taken for absent ones").edit(
    "if arguments is None:\n        return {}", "if True:\n        return {}"
).by(_MISTAKES)
schemas.bug("a `required` that is one word is answered in the words of JSON Schema").edit(
    'if path and path[-1] in ("required", "enum") and text.endswith(_NO_LIST):', "if False:"
).by(_MISTAKES)
_READY: Final = "tests/definition/test_unlikely_roles.py"
readiness = Room("hai_flow/definition/readiness.py", _READY)
readiness.bug("a role that is nearly one of the deployment's is taken in silence").edit("if near:", "if False:").by(
    _READY
)
_WRONG_FILES: Final = "tests/definition/test_wrong_files.py"
steps = Room("hai_flow/definition/steps.py", _WRONG_FILES)
steps.bug("a reason that people must give is doubted in the handler of the answer").edit(
    'if not isinstance(reasons, Mapping) or reasons.get(option) != "required":', "if True:"
).by(_WRONG_FILES)
steps.bug("a reason that people need not give is believed to be there").edit(
    ' or reasons.get(option) != "required":', ":"
).by(_WRONG_FILES)
steps.bug("a rejection's reason is believed to be there, though a deadline may reject as well").edit(
    '_know_no_vote(draft, names) if option == "reject" else _know_reason(draft, option, names)',
    '_know_reason(draft, option, names.with_roots("error"))',
).by(_WRONG_FILES)
_MOVES: Final = "tests/engine/test_migration.py"
wait_for_event = Room("hai_flow/engine/steps/wait_for_event.py", _MOVES)
wait_for_event.bug("the event of the old version takes the question back behind a move").edit(
    "if types != awaited:", "if types and types != awaited:"
).by(_MOVES)
wait_for_event.bug("the event that the new version names is not asked for").edit(
    "if types:\n                _subscribe(draft, path, types)", "pass"
).by(_MOVES)
control = Room("hai_flow/engine/handlers/control.py", _MOVES)
control.bug("a condition that is so already takes the question back only at the next change").edit(
    "withdraw_unwanted(draft)\n    if len(draft.events) > before:", "if len(draft.events) > before:"
).by(_MOVES)
nullability = Room("hai_flow/definition/checks/nullability.py", _MISTAKES)
nullability.bug("a sum of texts is found only when it is evaluated").edit(
    'if isinstance(tree, Call) and tree.function == "sum":', "if False:"
).by(_MISTAKES)
quorum_check.bug("an `any` below its seats is taken in silence").edit("if total < seats:", "if False:").by(_MISTAKES)
scope.bug("a name that a `let` gives further down is called unknown").edit("if not lets:", "if True:").by(_MISTAKES)
_EDITORS: Final = "tests/authoring/test_json_schema.py"
json_schema = Room("hai_flow/authoring/json_schema.py", _EDITORS)
json_schema.bug("editors underline a case that has a result and no steps").edit(
    "if key.required and not key.instead],", "if key.required],"
).by(_EDITORS)
json_schema.bug("editors take a case that has neither steps nor a result").edit(
    "shape.keys if key.instead", "shape.keys if not key"
).by(_EDITORS)

stages = Room("hai_flow/definition/people/deadlines.py", "tests/definition/test_wrong_files.py")
stages.bug("a stage that only excludes people is not held against its quorum").edit('"from" not in changes or ', "")
stages.bug("an exclusion that stays from before is forgotten").edit('& {"exclude", "quorum"}', '& {"quorum"}')
