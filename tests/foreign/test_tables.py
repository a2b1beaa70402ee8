"""Each row of the tables of server behaviour (docs/mcp.md, docs/models.md) is tried: by a test, or by an answer of the
corpus. A row that is written has to be entered here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.foreign.test_doors import fault_of
from tests.foreign.test_foreign import CORPUS, ODD

_MCP: Final = "tests/foreign/test_mcp.py"
_HANDSHAKE: Final = "tests/foreign/test_mcp_handshake.py"
_QUESTIONS: Final = "tests/foreign/test_mcp_questions.py"
_SCHEMAS: Final = "tests/foreign/test_tool_schemas.py"
_HOSTILE: Final = "tests/foreign/test_hostile.py"
_CORPUS: Final = "tests/foreign/test_foreign.py"
_DIALECTS: Final = "tests/models/test_dialects.py"
_TALKS: Final = "tests/models/test_conversations.py"
_OLD_SCHEMAS: Final = f"{_MCP}::test_a_schema_of_another_time_means_what_it_meant"
_ODD_TOOLS: Final = f"{_MCP}::test_a_tool_whose_schema_is_of_another_time_or_none_is_called"
_ODD_PARTS: Final = f"{_MCP}::test_a_result_with_an_odd_part_keeps_the_good_ones_and_is_not_redone"
_ODD_FORMS: Final = f"{_MCP}::test_an_answer_in_another_form_is_read_and_one_in_part_is_a_doubt"
_ODD_HTTP: Final = f"{_HOSTILE}::test_an_answer_in_odd_http_is_the_result_of_its_one_call"

ROWS: Final[dict[str, dict[str, str]]] = {
    "docs/mcp.md": {
        "has forgotten the session": f"{_MCP}::test_a_forgotten_session_is_opened_anew_and_the_call_made_once",
        "says nothing of itself": f"{_HANDSHAKE}::test_a_server_that_says_oddly_what_it_is_is_called",
        "refuses the newest version": f"{_HANDSHAKE}::test_a_server_that_refuses_a_version_is_offered_older_ones",
        "speaks a version": f"{_HANDSHAKE}::test_a_version_that_nobody_knows_is_named_beside_those_that_are_spoken",
        "speaks the former protocol": f"{_HANDSHAKE}::test_a_server_of_the_former_protocol_is_told_at_once",
        "has no MCP server": f"{_HANDSHAKE}::test_an_address_that_takes_no_calls_is_told_with_what_it_may_be",
        "answers 307 or 308": f"{_MCP}::test_a_redirect_within_its_origin_is_followed_and_another_is_named",
        "calls its issuer otherwise": (
            "tests/foreign/test_mcp_tokens.py::test_a_token_of_an_issuer_that_spells_otherwise_is_taken"
        ),
        "describes one function badly": (
            f"{_MCP}::test_a_left_out_tool_is_named_at_publication_in_the_log_and_to_callers"
        ),
        "gives no schema": _ODD_TOOLS,
        "writes types of other languages": _OLD_SCHEMAS,
        "refers to a missing definition": _OLD_SCHEMAS,
        "lists its functions as an object": f"{_MCP}::test_functions_that_are_listed_oddly_are_called",
        "gives an empty cursor": f"{_MCP}::test_functions_that_are_listed_oddly_are_called",
        "writes `is_error`": f"{_MCP}::test_a_result_that_says_in_any_form_that_it_failed_is_a_failure",
        "has a choice": f"{_SCHEMAS}::test_a_choice_at_the_top_shows_all_properties_and_is_checked_as_it_is",
        "has `format: uri`": f"{_SCHEMAS}::test_a_schema_with_what_strict_lacks_is_sent_without_it",
        "writes values that do not have": f"{_MCP}::test_a_format_is_an_annotation_of_a_server",
        "declares an output schema that is a list": _ODD_TOOLS,
        "says `isError`": f"{_MCP}::test_a_result_that_says_in_any_form_that_it_failed_is_a_failure",
        "gives a result without `content` and": _ODD_PARTS,
        "answers with a status of an error": f"{_MCP}::test_what_a_server_says_beside_a_status_is_in_the_error",
        "gives the result of a call": (
            "tests/foreign/test_mcp_statuses.py::test_a_result_with_the_status_of_an_error_is_a_doubt_and_not_redone"
        ),
        "gives a result without `content`, with": _ODD_PARTS,
        "gives a part of an unknown kind": _ODD_PARTS,
        "gives a picture without": f"{_MCP}::test_a_picture_without_its_type_is_one_by_its_first_bytes",
        "writes Base64": f"{_MCP}::test_base64_that_is_written_otherwise_is_read",
        "nests a schema or a result": f"{_MCP}::test_what_is_nested_too_deeply_is_its_json_text_and_the_rest_stays",
        "answers with something other": (f"{_MCP}::test_an_unreadable_answer_is_in_the_errors_data_and_a_bom_is_not"),
        "puts a byte order mark": _ODD_HTTP,
        "has something around its message": _ODD_FORMS,
        "writes one message over several lines": _ODD_FORMS,
        "leaves out `jsonrpc`": _ODD_FORMS,
        "gives a result without an id": _ODD_FORMS,
        "gives a result and an error": _ODD_FORMS,
        "gives its answer another type": _ODD_HTTP,
        "ends its stream, or breaks off": (f"{_HOSTILE}::test_an_answer_that_is_none_is_told_and_its_call_made_once"),
        "does not answer": (
            "tests/foreign/test_silence.py::test_a_notification_that_the_server_does_not_answer_holds_up_no_call"
        ),
        "is a program that ends": (f"{_MCP}::test_what_a_program_printed_before_it_ended_is_in_the_log"),
        "compresses its answer": (
            "tests/foreign/test_unpacking.py::test_a_packed_answer_of_a_server_is_the_result_of_its_one_call"
        ),
        "writes `NaN`": f"{_MCP}::test_a_number_that_json_has_not_is_its_word_by_every_way",
        "gives `structuredContent` that is no object": (
            f"{_MCP}::test_a_text_that_is_the_structured_content_counts_as_it"
        ),
        "declares an output schema and gives": f"{_MCP}::test_what_fits_the_declared_schema_counts_wherever_it_stands",
        "asks with a form": (
            "tests/steps/test_mcp_asking.py::test_a_form_with_what_is_no_json_schema_is_shown_to_people"
        ),
        "leaves out `resultType`": f"{_QUESTIONS}::test_a_question_in_an_odd_form_is_asked",
        "asks with neither": f"{_QUESTIONS}::test_a_question_that_can_not_be_asked_is_told_by_what_it_lacks",
        "gives a state and no question": f"{_QUESTIONS}::test_a_server_that_only_wants_to_be_called_again_is",
        "gives a question and a result": f"{_MCP}::test_a_question_and_a_result_in_one_answer_are_a_doubt",
    },
    "docs/models.md": {
        "names a call late": "sglang: every piece of a call with another id",
        "writes several calls": "localai: one slot, no ids, the first call without arguments",
        "repeats a call": "localai: the same call again at another index",
        "gives one id": "localai: one id for two calls",
        "gives unrequested answers": "vllm: behind a gateway that counts its one choice from 1",
        "counts the pieces": "wrapped: the index counts the pieces of a call",
        "writes a function as": "wrapped: the name in the namespace of a template",
        "leaves tokens of its template": 'gateway: arguments as \'{"text": "hi"}<|im_end|>\'',
        "puts `null`": "together: braces first",
        "repeats in each piece": "loose: each piece of the arguments repeats all before it",
        "calls the arguments": "loose: the arguments are called `input`",
        "sends arguments only": "responses: arguments only when they are done",
        "contradicts itself": "localai: two forms that contradict",
        "gives one argument": f"{_CORPUS}::test_a_call_that_names_two_values_of_one_argument_is_not_made",
        "announces a call": "together: a call is announced and none comes",
        "ends with a word for a whole": "together: eos",
        "ends with a word for a filter": "dashscope: filtered",
        "has its word for the end": "gateway: its reason is `finishReason`",
        "ends with another word": "litellm: a word for the end that nobody knows",
        "sends `[DONE]`": "sglang: whole without a reason",
        "gives a word for the end": (
            f"{_DIALECTS}::test_an_answer_with_a_reason_is_whole_though_its_stream_stays_open"
        ),
        "repeats the whole message": "minimax: the whole message in the last chunk",
        "puts all text": "loose: the last piece is the whole text once more",
        "answers with one JSON": "ollama: a JSON document a line",
        "passes an answer on": "wrapped: each event in `result`",
        "reports an error": "lm studio: an error as an event",
        "breaks off with a web page": "a proxy's page behind the first words",
        "nests an event": (
            "tests/foreign/test_depth.py::test_a_models_event_that_is_too_deep_is_read_or_its_servers_fault"
        ),
        "answers in another protocol": "an answer of Chat Completions to Responses",
        "answers with a web page": "gateway: a page to sign in",
        "redirects": f"{_DIALECTS}::test_a_redirect_is_followed_within_the_origin_and_told_beyond_it",
        "cuts a character": "litellm: an emoji cut between two escapes, in arguments",
        "reports its tokens": "loose: tokens in parts, as text, and as no numbers",
        "reports 0 tokens": f"{_DIALECTS}::test_tokens_that_a_gateway_reports_as_0_are_estimated",
        "names an item": "responses gateway: another id in every event",
        "sends events again": "responses gateway: an event twice, with one number",
        "reports calls of its provider": "anthropic gateway: tools of the provider, which are not ours to call",
        "says that it has blocked": "newer: gemini: the prompt is blocked, and there are no choices",
        "sends `ping`": "gateway: signs of life between the pieces",
        "leaves out blank lines": "localai: no blank lines between events",
        "thinks in": "vllm: thinking under `reasoning`",
        "gives content that is no text": f"{_CORPUS}::test_an_answer_that_a_gateway_has_parsed_is_its_json_text",
        "compresses its answer": "tests/foreign/test_unpacking.py::test_a_packed_answer_of_a_model_is_its_answer",
        "compresses it in": (
            "tests/foreign/test_unpacking.py::test_an_unreadable_compression_of_a_model_is_told_by_its_name"
        ),
        "writes `<think>`": "tags of Magistral, responses",
        "opens it in": "llama.cpp: the template opens the thinking",
        "wants its own data": f"{_DIALECTS}::test_what_a_provider_gave_for_itself_goes_back_to_it_as_it_was",
        "refuses messages": f"{_TALKS}::test_no_message_without_content_is_sent",
        "can't read the call": "newer: groq: a call that it can't read",
        "refuses the ids of calls": f"{_DIALECTS}::test_a_server_that_wants_short_ids_is_asked_again_with_them",
        "gives a call an id longer": (
            "tests/foreign/test_opaque_data.py::test_a_result_names_its_call_by_the_id_that_the_server_gave"
        ),
        "writes a call as text": (
            "tests/models/test_written_calls.py::test_a_call_that_is_written_as_text_is_found_in_any_form"
        ),
        "wants the user": f"{_DIALECTS}::test_a_server_that_wants_turns_is_asked_again_with_neighbours_joined",
        "reports in any words": "wrapped: too long: 提示词过长",
    },
}


@pytest.mark.parametrize("page", ROWS)
def test_each_row_of_what_servers_do_is_tried(page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text()
    table = text.partition("## Server behaviour")[2].partition("\n## ")[0]
    rows = [line.removeprefix("| ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert [row for row, begins in zip(rows, ROWS[page], strict=True) if not row.startswith(begins)] == []


@pytest.mark.parametrize("page", ROWS)
def test_what_tries_a_row_is_there(page: str) -> None:
    answers = {each.name for each in (*CORPUS, *ODD)}
    faults = [cell for cell in ROWS[page].values() if "::" in cell and fault_of(cell) is not None]
    assert faults == []
    assert [cell for cell in ROWS[page].values() if "::" not in cell and cell not in answers] == []
