"""Which test holds which rule of the border (docs/design/border.md) at which door.

A cell names a test, or says why there is nothing to hold. So a new door, or a new rule, has every cell to fill, and a
test that is renamed or taken out leaves a hole that is seen."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import pytest

ROOT: Final = Path(__file__).parents[2]

DOORS: Final = (
    "llm", "agent", "chat", "responses", "messages", "http step", "http stream", "OpenAPI tool", "webhook", "callback",
    "MCP by stdio", "MCP over HTTP", "Python tool", "frontend tool",
)  # fmt: skip


@dataclass(frozen=True)
class Nothing:
    """There is nothing to hold here: why."""

    because: str


Cell: TypeAlias = str | Nothing

_CORPUS: Final = "tests/foreign/test_foreign.py"
_DIALECTS: Final = "tests/models/test_dialects.py"
_MODELS: Final = "tests/runtime/test_models.py"
_AGENTS: Final = "tests/runtime/test_agents.py"
_MCP: Final = "tests/foreign/test_mcp.py"
_STEPS_MCP: Final = "tests/steps/test_mcp.py"
_RUN_MCP: Final = "tests/runtime/test_mcp.py"
_HTTP: Final = "tests/foreign/test_http.py"
_STREAM: Final = "tests/steps/test_http_stream.py"
_OPENAPI: Final = "tests/steps/test_http_tools.py"
_HOOKS: Final = "tests/api/test_webhooks.py"
_HOOK: Final = "tests/wire/test_webhook_body.py"
_CALLBACKS: Final = "tests/api/test_callbacks.py"
_PYTHON: Final = "tests/steps/test_python.py"
_ANSWERS: Final = "tests/engine/test_answers.py"
_FORMS: Final = "tests/api/test_answer_forms.py"
_SILENCE: Final = "tests/foreign/test_silence.py"
_ATTACKS: Final = "tests/attacks/test_connections.py"
_SCHEMAS: Final = "tests/foreign/test_tool_schemas.py"
_SIGNS: Final = "tests/test_invisible_characters.py"
_VALUES: Final = "tests/foreign/test_values.py"
_NOTES: Final = "tests/foreign/test_notes.py"

_NO_CALL: Final = Nothing("its author wrote the request into the workflow, and no answer asks for another one")
_ONE: Final = Nothing("one value comes through it at a time, which has no neighbours")
_IN: Final = Nothing("the other side calls here, and nothing here waits for it to come back")
_SENDER: Final = Nothing("its words are the data of an event, and its sender gets a status and a sentence of ours")
_IN_PROCESS: Final = Nothing("it runs in this process, and is there whenever the process is")
_READ_ABOVE: Final = Nothing("a protocol reads bytes; its texts are shown by the step that asked, `llm` or `agent`")
_SHOWN: Final = f"{_SIGNS}::test_hidden_and_look_alike_signs_are_codes_and_needed_ones_stay"

CELLS: Final[dict[str, dict[str, Cell]]] = {
    "1: nothing is performed unless it was said whole and once": {
        "llm": f"{_MODELS}::test_a_partial_answer_is_aborted_charged_and_unseen_by_the_model",
        "agent": f"{_AGENTS}::test_an_answer_that_broke_off_makes_no_call_and_is_asked_again",
        "chat": f"{_CORPUS}::test_an_answer_cut_off_at_any_byte_performs_nothing_or_all_of_it",
        "responses": "tests/foreign/test_perturbed.py::test_calls_are_made_once_in_whatever_way_they_are_written",
        "messages": f"{_CORPUS}::test_an_answer_cut_off_at_any_byte_performs_nothing_or_all_of_it",
        "http step": _NO_CALL,
        "http stream": f"{_STREAM}::test_a_body_is_a_message_of_its_run_aborted_with_a_failed_attempt",
        "OpenAPI tool": f"{_OPENAPI}::test_wrong_arguments_are_refused_and_nothing_is_sent",
        "webhook": f"{_HOOKS}::test_simultaneous_requests_with_one_dedupe_key_start_one_run",
        "callback": f"{_CALLBACKS}::test_a_callback_goes_on_with_the_run_once",
        "MCP by stdio": f"{_RUN_MCP}::test_a_person_says_what_became_of_a_write_whose_server_died",
        "MCP over HTTP": f"{_MCP}::test_a_forgotten_session_is_opened_anew_and_the_call_made_once",
        "Python tool": f"{_PYTHON}::test_wrong_arguments_are_named",
        "frontend tool": f"{_ANSWERS}::test_the_same_answer_again_is_already_so_also_in_another_spelling",
    },
    "2: what was performed is not thrown away for its form": {
        "llm": f"{_VALUES}::test_a_model_s_call_and_answer_may_have_nineteen_digits",
        "agent": f"{_VALUES}::test_a_model_s_call_and_answer_may_have_nineteen_digits",
        "chat": f"{_CORPUS}::test_an_answer_that_a_gateway_has_parsed_is_its_json_text",
        "responses": f"{_CORPUS}::test_an_answer_that_a_gateway_has_parsed_is_its_json_text",
        "messages": f"{_CORPUS}::test_an_answer_that_a_gateway_has_parsed_is_its_json_text",
        "http step": f"{_HTTP}::test_a_post_that_was_answered_finishes_whatever_its_body_is",
        "http stream": f"{_STREAM}::test_a_lone_surrogate_is_a_replacement_character_with_a_note",
        "OpenAPI tool": f"{_OPENAPI}::test_what_became_of_an_odd_answer_is_noted",
        "webhook": f"{_HOOK}::test_a_body_is_a_form_or_json",
        "callback": f"{_CALLBACKS}::test_an_odd_body_goes_on_with_the_run_and_no_digit_is_lost",
        "MCP by stdio": f"{_NOTES}::test_what_became_of_an_odd_result_of_a_server_is_noted",
        "MCP over HTTP": f"{_MCP}::test_a_result_with_an_odd_part_keeps_the_good_ones_and_is_not_redone",
        "Python tool": f"{_VALUES}::test_a_tool_that_has_done_its_work_finishes_with_an_odd_result",
        "frontend tool": f"{_FORMS}::test_a_result_with_an_id_of_64_bits_is_taken_and_no_digit_is_lost",
    },
    "3: one bad neighbour harms nobody": {
        "llm": f"{_DIALECTS}::test_another_model_is_asked_where_the_first_does_not_begin",
        "agent": f"{_AGENTS}::test_wrong_arguments_and_unknown_tools_return_to_the_model_unperformed",
        "chat": f"{_CORPUS}::test_an_answer_is_read_as_it_is_meant",
        "responses": f"{_CORPUS}::test_an_answer_is_read_as_it_is_meant",
        "messages": f"{_CORPUS}::test_an_answer_is_read_as_it_is_meant",
        "http step": _ONE,
        "http stream": f"{_STREAM}::test_an_odd_line_of_a_stream_is_left_out_and_its_neighbours_stay",
        "OpenAPI tool": f"{_SCHEMAS}::test_a_tool_whose_schema_is_none_is_not_offered_and_all_others_are",
        "webhook": _ONE,
        "callback": _ONE,
        "MCP by stdio": f"{_STEPS_MCP}::test_a_line_that_is_too_long_ends_its_call_and_no_other",
        "MCP over HTTP": f"{_MCP}::test_a_tool_that_is_described_oddly_does_no_harm_to_the_others",
        "Python tool": f"{_PYTHON}::test_functions_that_hang_keep_no_other_tool_from_its_threads",
        "frontend tool": f"{_ANSWERS}::test_all_faults_of_several_answers_are_told_at_once",
    },
    "4: a server that comes back is used at once": {
        "llm": f"{_MODELS}::test_a_server_that_is_busy_is_asked_again_when_it_says",
        "agent": f"{_AGENTS}::test_an_answer_that_broke_off_makes_no_call_and_is_asked_again",
        "chat": f"{_DIALECTS}::test_what_a_server_answers_instead_has_a_code_and_a_time",
        "responses": Nothing("both protocols of OpenAI are asked over one pool, which is tried with the other one"),
        "messages": "tests/models/test_anthropic.py::test_faults_have_the_codes_that_those_of_other_providers_have",
        "http step": f"{_HTTP}::test_a_server_that_goes_away_in_the_middle_may_be_asked_again",
        "http stream": f"{_STREAM}::test_a_body_is_a_message_of_its_run_aborted_with_a_failed_attempt",
        "OpenAPI tool": Nothing("it sends by the same exchange as an http step, and keeps no connection of its own"),
        "webhook": _IN,
        "callback": _IN,
        "MCP by stdio": f"{_STEPS_MCP}::test_a_server_dying_in_a_write_leaves_a_doubt_and_is_restarted",
        "MCP over HTTP": f"{_MCP}::test_the_official_server_that_restarts_in_the_middle_is_used_at_once",
        "Python tool": _IN_PROCESS,
        "frontend tool": _IN,
    },
    "5: what a server says reaches the person who must mend it": {
        "llm": f"{_DIALECTS}::test_what_a_server_answers_instead_has_a_code_and_a_time",
        "agent": (f"{_RUN_MCP}::test_an_agent_hears_a_servers_refusal_and_unfit_arguments_reach_none"),
        "chat": f"{_CORPUS}::test_what_no_protocol_has_reaches_the_person_and_performs_nothing",
        "responses": f"{_CORPUS}::test_what_no_protocol_has_reaches_the_person_and_performs_nothing",
        "messages": f"{_CORPUS}::test_what_no_protocol_has_reaches_the_person_and_performs_nothing",
        "http step": "tests/foreign/test_fastapi.py::test_a_refusal_of_a_real_framework_is_in_the_error_as_it_came",
        "http stream": f"{_STREAM}::test_any_other_body_and_what_is_no_success_is_read_as_a_whole",
        "OpenAPI tool": f"{_OPENAPI}::test_the_output_is_the_json_of_the_answer_or_its_text_or_nothing",
        "webhook": _SENDER,
        "callback": _SENDER,
        "MCP by stdio": f"{_STEPS_MCP}::test_a_program_that_can_not_be_started_or_says_nothing_is_unavailable",
        "MCP over HTTP": (f"{_MCP}::test_an_unreadable_answer_is_in_the_errors_data_and_a_bom_is_not"),
        "Python tool": f"{_PYTHON}::test_a_step_error_keeps_its_code",
        "frontend tool": f"{_ANSWERS}::test_an_error_that_the_frontend_reports_fails_the_call",
    },
    "6: what people read is what is done": {
        "llm": _SHOWN,
        "agent": f"{_CORPUS}::test_calls_are_performed_as_they_were_shown",
        "chat": _READ_ABOVE,
        "responses": _READ_ABOVE,
        "messages": _READ_ABOVE,
        "http step": f"{_HTTP}::test_a_body_that_was_changed_has_notes_and_the_text_as_it_was",
        "http stream": f"{_STREAM}::test_a_character_that_is_cut_between_two_events_is_whole",
        "OpenAPI tool": f"{_OPENAPI}::test_what_became_of_an_odd_answer_is_noted",
        "webhook": _SHOWN,
        "callback": _SHOWN,
        "MCP by stdio": f"{_NOTES}::test_characters_of_a_server_that_were_replaced_are_noted",
        "MCP over HTTP": f"{_NOTES}::test_characters_of_a_server_that_were_replaced_are_noted",
        "Python tool": f"{_NOTES}::test_digits_of_a_python_tool_s_integer_are_noted",
        "frontend tool": f"{_FORMS}::test_a_result_with_the_digest_of_its_call_counts",
    },
    "every wait for the other side has an end": {
        "llm": f"{_DIALECTS}::test_an_answer_has_to_be_complete_in_time",
        "agent": f"{_DIALECTS}::test_the_wait_for_a_later_piece_has_its_own_time",
        "chat": f"{_DIALECTS}::test_a_model_that_falls_silent_is_hung_up_on",
        "responses": Nothing("the wait is of the question to a model, not of its protocol: tried with the other one"),
        "messages": "tests/models/test_anthropic.py::test_a_stalled_answer_hangs_up",
        "http step": f"{_SILENCE}::test_a_step_left_unanswered_by_a_real_framework_ends_at_its_timeout",
        "http stream": f"{_SILENCE}::test_a_step_left_unanswered_by_a_real_framework_ends_at_its_timeout",
        "OpenAPI tool": Nothing("it waits in the same exchange as an http step, and its step always has a `timeout`"),
        "webhook": f"{_ATTACKS}::test_a_body_of_which_nothing_more_comes_is_given_up",
        "callback": "tests/engine/test_callbacks.py::test_no_callback_in_time_is_an_error_of_its_own",
        "MCP by stdio": f"{_RUN_MCP}::test_a_write_that_takes_too_long_is_not_simply_tried_again",
        "MCP over HTTP": f"{_SILENCE}::test_a_notification_that_the_server_does_not_answer_holds_up_no_call",
        "Python tool": f"{_PYTHON}::test_a_tool_of_which_too_many_were_left_behind_fails_until_one_returns",
        "frontend tool": f"{_ANSWERS}::test_an_answer_after_the_deadline_is_gone",
    },
}

_BECAUSE_MIN: Final = 40  # characters of a reason


@cache
def _list_tests(path: str) -> frozenset[str]:
    """The names of the tests in a file."""
    file = ROOT / path
    tree = ast.parse(file.read_text()) if file.is_file() else ast.Module([], [])
    tests = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(each.name for each in tests if each.name.startswith("test_"))


def fault_of(cell: Cell | None) -> str | None:
    """The fault of a cell; None: it names a test that there is, or a reason."""
    if cell is None:
        return "names no test, and no reason why there is none"
    if isinstance(cell, Nothing):
        return None if len(cell.because) >= _BECAUSE_MIN else f"has no reason: {cell.because!r}"
    path, _, name = cell.partition("::")
    return None if name in _list_tests(path) else f"names a test that is not there: {cell}"


@pytest.mark.parametrize("rule", CELLS)
def test_every_rule_is_held_at_every_door_by_a_test_or_has_a_reason(rule: str) -> None:
    cells = CELLS[rule]
    faults = {door: fault for door in DOORS if (fault := fault_of(cells.get(door))) is not None}
    assert faults == {}
    assert cells.keys() <= set(DOORS)


def test_the_table_has_every_rule_of_the_page() -> None:
    page = (ROOT / "docs/design/border.md").read_text()
    numbers = {line[0] for line in page.splitlines() if line[:1].isdigit() and line[1:4] == ". *"}
    assert numbers == {rule[0] for rule in CELLS if rule[0].isdigit()}


@pytest.mark.parametrize(
    "cell", [None, Nothing("later"), "tests/foreign/test_doors.py::test_nowhere", "tests/nowhere.py::test_a", "a test"]
)
def test_an_empty_cell_a_weak_reason_and_an_absent_test_are_faults(cell: Cell | None) -> None:
    assert fault_of(cell) is not None
