"""Bugs by which an odd value, server or sign of others loses what was done, does it twice, or hides it from people."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_VALUES: Final = "tests/foreign/test_values.py"
_HTTP: Final = "tests/foreign/test_http.py"
_MCP: Final = "tests/foreign/test_mcp.py"
_UNPACKING: Final = "tests/foreign/test_unpacking.py"
_SCHEMAS: Final = "tests/foreign/test_tool_schemas.py"
_UNSEEN: Final = "tests/definition/test_unseen.py"
_SIGNS: Final = "tests/test_invisible_characters.py"

foreign = Room("hai_flow/foreign.py", _VALUES)
foreign.bug("an integer beyond 2^53 is refused although nobody asked for it").edit(
    'if self.big == "refuse":', 'if self.big != "refuse":'
).by(f"{_VALUES}::test_no_digit_of_an_integer_is_lost")
foreign.bug("digits stay text where a function wants an integer").edit(
    "return _at_places(value, tree)\n", "return value\n"
).by(f"{_VALUES}::test_digits_become_an_integer_again_only_where_the_schema_wants_one")
foreign.bug("a blank behind a value replaces it").edit(
    "continue\n            if value != members_by_name[name]", "pass\n            elif value != members_by_name[name]"
).by("tests/foreign/test_foreign.py::test_a_call_that_names_two_values_of_one_argument_is_not_made")
_DEPTH: Final = "tests/foreign/test_depth.py"
foreign.bug("of what is too deep for a reader nothing is kept").edit(
    "shallow = make_shallow(decoded)\n", "shallow = None\n"
).by(_DEPTH)
foreign.bug("a result of a tool that is too deep to be written fails its step").edit(
    "_convert(value, big, leave_out=True)", "_convert(value, big)"
).by(_DEPTH)
bodies = Room("hai_flow/wire/webhook_body.py", "tests/wire/test_webhook_body.py")
foreign.bug("a sender names a codec that is no charset, and takes minutes").edit(
    'return name if _CHARSETS.fullmatch(name) else "utf-8"\n', "return name\n"
).by("tests/wire/test_webhook_body.py")
bodies.bug("of a name that comes again in a form one value is kept").edit(
    "each if len(each) > 1 else each[0]", "each[-1]"
)
bodies.bug("a body is read as UTF-8 whatever it says").edit("None if charset is None else charset[1]", "None")
bodies.bug("the escapes of a form are UTF-8 whatever it says").edit("encoding=codec)", 'encoding="utf-8")')
foreign.bug("JSON in UTF-16 or UTF-32 without a mark of it is no JSON").edit(
    "    charset = _find_wide(content) or charset\n", ""
).by("tests/foreign/test_http.py::test_a_post_that_was_answered_finishes_whatever_its_body_is")
bodies.bug("a packed body is unpacked without a bound").edit("if len(body) > bytes_max:\n", "if False:\n")
bodies.bug("a text that is no JSON is refused").edit("if not _TEXTS.fullmatch(kind):", "if True:")
answers = Room("hai_flow/engine/pendings/answers.py")
answers.bug("the result of a frontend tool is refused for its numbers").edit(
    "value = foreign.take(result).value", "value = values.check(result)"
).by("tests/engine/test_answers.py::test_a_frontend_result_is_read_by_its_schema")
setting = Room("hai_flow/engine/verbs/state.py")
setting.bug("a variable that is declared as an integer refuses the digits of a large one").edit(
    "draft.plan.state_schema.fit(after)[1]", "draft.plan.state_schema.findings(after)"
).by("tests/engine/test_big_integers.py")
races = Room("hai_flow/engine/blocks/parallel.py")
races.bug("a branch that ended while its race was cut off has not won").edit(
    "_end_those_over(draft, step)\n    won = _winners(draft, step)\n    return",
    "won = _winners(draft, step)\n    return",
).by("tests/engine/test_retry.py")
posted_json = Room("hai_flow/wire/posted_json.py")
posted_json.bug("numbers are text wherever they stand in a body").edit(
    "value = _with_results(value, _RESULTS)", "value = foreign.take(value).value"
).by("tests/api/test_answer_forms.py::test_big_integers_are_taken_in_results_alone")
posted_json.bug("a body has any number of lists").edit("and _count_lists(body) > LISTS_MAX:", "and False:").by(
    "tests/attacks/test_loop_time_of_bodies.py::test_a_body_of_very_many_lists_is_refused"
)
http = Room("hai_flow/steps/http/runner.py", _HTTP)
http.bug("what came of a body that did not come whole is not told").edit(
    "if response is None:\n            return None", "if True:\n            return None"
).by(f"{_HTTP}::test_the_received_part_of_a_broken_body_is_in_the_errors_data")
hiding = Room("hai_flow/steps/hiding.py", "tests/steps/test_secrets.py")
hiding.bug("Base64 is hidden at one alignment alone").edit("for before in range(3):", "for before in range(1):")
hiding.bug("the URL alphabet is not hidden").edit("(each, each.translate(_TO_URL))", "(each,)")
hiding.bug("JSON is hidden in one spelling alone").edit(
    "(values.dumps(value).decode()[1:-1], json.dumps(value)[1:-1])", "()"
)
hiding.bug("the index misses places").edit("for place in range(_STRIDE))", "for place in range(_STRIDE - 1))")
hiding.bug("a form that another value has goes too").edit("if self._forms[form]:\n", "if False:\n")
hiding.bug("many secrets are sought one by one").edit("if len(self._forms) <= FORMS_FEW:", "if True:")

secrets = Room("hai_flow/steps/secrets.py", "tests/steps/test_secrets.py")
secrets.bug("what an attempt hides, all do").edit(
    "_of_attempt.set(_of_attempt.get() | list_forms(value))", "_seen.add(value)"
)

basic = Room("hai_flow/steps/http/runner.py", "tests/steps/test_http.py")
basic.bug("user and password are not hidden as one").edit('hide_in_attempt(f"{user}:{password}")', "pass")
basic.bug("an error is cut before it is hidden").edit(
    'hide_secrets(response["text"][:HIDDEN_CHARS_MAX])', 'response["text"]'
)

connections = Room("hai_flow/steps/mcp/connections.py", _MCP)
connections.bug("a result in spite of a question is no doubt").edit(
    "says_error(result) or repeatable:", "says_error(result) or True:"
).by(f"{_MCP}::test_a_server_with_result_and_question_is_in_doubt_and_not_recalled")
connections.bug("a question and a result in one answer are a result").edit(
    'if raw.get("inputRequests") and not repeatable:', "if False:"
).by(f"{_MCP}::test_a_question_and_a_result_in_one_answer_are_a_doubt")
connections.bug("of two functions of one name the last one counts").edit(
    "elif tool.name in self.left_out or self.tools.get(tool.name, tool) != tool:", "elif False:"
).by(f"{_MCP}::test_a_left_out_tool_is_named_at_publication_in_the_log_and_to_callers")
mcp_http = Room("hai_flow/steps/mcp/http.py", _MCP)
mcp_http.bug("a session is gone only where the server says 404").edit(
    "status in _GONE or (status in _REFUSED", "status == 404 or (status in ()"
).by(f"{_MCP}::test_a_forgotten_session_is_opened_anew_and_the_call_made_once")
mcp_http.bug("the first answer of a stream is the call's, whatever its id").edit(
    "self._answers_to_others.append(message.text)\n        return False", "return True"
).by(f"{_MCP}::test_the_answer_by_its_id_goes_before_another")
mcp_http.bug("a packed answer keeps the header of its packing when it is unpacked").edit(
    '("content-length", "content-encoding")', '("content-length",)'
).by(f"{_UNPACKING}::test_a_packed_answer_of_a_server_is_the_result_of_its_one_call")
_HOSTILE: Final = "tests/foreign/test_hostile.py"
mcp_http.bug("a stream that breaks off before its answer is a refusal of the server").edit(
    "mcp_messages.fault(why, self._call, reached=True, text=text)", "mcp_messages.fault(why, self._call, reached=False)"
).by(f"{_HOSTILE}::test_an_answer_that_is_none_is_told_and_its_call_made_once")
mcp_http.bug("the last event of a stream is lost without its blank line").edit("if _is_whole(rest):", "if False:").by(
    f"{_HOSTILE}::test_an_answer_in_odd_http_is_the_result_of_its_one_call"
)
mcp_http.bug("the end of a session is waited for without an end").edit(
    "LEAVE_SECONDS if request.method", "None if request.method"
).by("tests/foreign/test_silence.py::test_a_session_is_left_though_its_server_does_not_answer_the_end")
mcp_http.bug("a notification that is not answered holds up all calls").edit(
    '"DELETE" else NOTIFY_SECONDS', '"DELETE" else None'
).by("tests/foreign/test_silence.py::test_a_notification_that_the_server_does_not_answer_holds_up_no_call")
connections.bug("a server that begins its list anew without an end lists no function").edit(
    " or pages_without_new == BARREN_PAGES_MAX:", ":"
).by(f"{_MCP}::test_functions_that_are_listed_oddly_are_called")
mcp_http.bug("what a server says beside a status is lost").edit(
    'return f" ({words[:_WORDS_CHARS_MAX]})" if words else ""', 'return ""'
).by(f"{_MCP}::test_what_a_server_says_beside_a_status_is_in_the_error")
unpacking = Room("hai_flow/primitives/unpacking.py", _UNPACKING)
unpacking.bug("a body in a compression that nobody asked for is text").edit("if self._unreadable and", "if False and")
unpacking.bug("a text whose header was left over is refused").edit(" and not is_text(piece):", ":")
unpacking.bug("a packed body that breaks off is whole").edit(
    "not self._inner.eof:\n            raise", "False:\n            raise"
)
unpacking.bug("a small body comes out as a large one at once").edit(
    "self._inner.decompress(piece, PIECE_BYTES_MAX)", "self._inner.decompress(piece)"
).by(f"{_UNPACKING}::test_a_small_body_that_holds_a_large_one_comes_out_in_small_pieces")
taps = Room("hai_flow/steps/mcp/tolerant_reader.py", _MCP)
taps.bug("a result that names no request is a doubt at once").edit(
    "doubt, _, until = self._doubt\n", "doubt, until = self._doubt[0], 0.0\n"
).by(f"{_MCP}::test_an_answer_in_another_form_is_read_and_one_in_part_is_a_doubt")
taps.bug("a result is held against the SDK's schema as a whole").edit(
    'if method == "tools/call" and not only_asks(result):', "if False:"
).by(f"{_MCP}::test_a_result_with_an_odd_part_keeps_the_good_ones_and_is_not_redone")
structured = Room("hai_flow/models/structured.py", _SCHEMAS)
structured.bug("every format is sent with strict").edit(
    'if schema.get("format", "date") not in _STRICT_FORMATS:', "if False:"
).by(f"{_SCHEMAS}::test_a_schema_with_what_strict_lacks_is_sent_without_it")
document = Room("hai_flow/definition/yaml/document.py", _UNSEEN)
document.bug("NUL by an escape passes").edit(
    "if control is None:\n            return event.value", "if True:\n            return event.value"
).by(f"{_UNSEEN}::test_a_nul_by_an_escape_is_a_finding_at_its_text_also_in_a_key")
document.bug("a tag, or a mark of Arabic, in a key is no finding").edit(
    '    "\\U0001d159\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"\n', ""
).by(f"{_UNSEEN}::test_a_sign_that_spoils_a_key_is_named_with_its_code_and_column")
signs = Room("hai_flow/primitives/invisible_characters.py", _SIGNS)
signs.bug("a joiner is hidden wherever it stands").edit(
    "if sign in _JOINERS and _JOINED.match(before) and _JOINED.match(behind):", "if sign in _JOINERS:"
).by(f"{_SIGNS}::test_hidden_and_look_alike_signs_are_codes_and_needed_ones_stay")
signs.bug("letters of another script pass for Latin ones").edit(
    "return _ALIKE.sub(lambda each: code(each[0]), word)", "return word"
).by(f"{_SIGNS}::test_hidden_and_look_alike_signs_are_codes_and_needed_ones_stay")

times = Room("hai_flow/primitives/instants.py", "tests/test_instants.py")
times.bug("an instant with small letters is none").edit("[Tt](\\d\\d:\\d\\d)", "T(\\d\\d:\\d\\d)").by(
    "tests/test_instants.py::test_an_instant_is_read_in_each_form_that_the_rfc_allows"
)
_FUNCTIONS: Final = "tests/definition/test_expressions_functions.py"
functions = Room("hai_flow/definition/expressions/functions.py", _FUNCTIONS)
functions.bug("a pattern of single letters is no pattern of PHP").edit(
    "elif len(tokens) > 1 and not", "elif False and not"
).by(f"{_FUNCTIONS}::test_another_languages_pattern_gets_the_directives_that_were_meant")
widening = Room("hai_flow/definition/expressions/cel_widening.py", _FUNCTIONS)
widening.bug("numbers of a sorted list can't be joined").edit(" or _is_sorted(call.parts[0])):", "):").by(
    f"{_FUNCTIONS}::test_an_expression_gives_json"
)
cron = Room("hai_flow/schedule.py", "tests/definition/test_schedules.py")
cron.bug("a date that never comes is told of the last month alone").edit(
    "for month in months for day", "for month in months[-1:] for day"
).by("tests/definition/test_schedules.py::test_a_cron_expression_that_fires_otherwise_than_it_seems_is_a_finding")
_TRIGGERS: Final = "tests/runtime/test_triggers.py"
triggers = Room("hai_flow/runtime/messaging/triggers.py", _TRIGGERS)
triggers.bug("behind one that waits another waits").edit("return waiting[:-1]", "return ()").by(
    f"{_TRIGGERS}::test_a_bounded_number_of_instants_waits_behind_a_run_and_is_shown"
)
triggers.bug("a schedule's run has the moment of its start for its instant").edit(
    'await self._input(schedule, at), "schedule", scheduled_at=at)',
    'await self._input(schedule, self.committer.now_ms()), "schedule", scheduled_at=at)',
).by(f"{_TRIGGERS}::test_each_missed_instant_reaches_its_run_and_the_schedules_input")
authoring_tools = Room("hai_flow/api/mcp/authoring.py")
authoring_tools.bug("every caller of the MCP server may check workflows").edit(
    "_validate, (Right.CHECK_WORKFLOWS,)", "_validate, (Right.CHECK_WORKFLOWS, Right.SEE_OWN)"
).by("tests/attacks/test_mcp.py::test_who_may_not_check_workflows_has_no_tool_and_no_prompt_that_does")
playing_apart = Room("hai_flow/testing/sandbox.py")
playing_apart.bug("tests of strangers are played with the server's environment").edit(
    ', env={"PYTHONPATH": path, "PYTHONUTF8": "1"}', ', env={**os.environ, "PYTHONPATH": path}'
).by("tests/api/test_mcp.py::test_the_process_that_plays_tests_has_nothing_of_the_environment")

connections.bug("any error under the SDK's own code is a lost connection").edit(
    "types.CONNECTION_CLOSED and error.message == _CLOSED", "types.CONNECTION_CLOSED"
).by(f"{_MCP}::test_an_error_that_only_mentions_a_session_is_the_function_s_own")
_FORMS: Final = f"{_MCP}::test_an_answer_in_another_form_is_read_and_one_in_part_is_a_doubt"
mcp_http.bug("a refused call is repeated in another session though its own is known").edit(
    "response.status_code == status and ", "response.status_code != status or "
).by(f"{_MCP}::test_a_400_in_a_session_that_still_answers_a_ping_is_the_call_s_own")
mcp_http.bug("of a batch without an answer to the call the first one counts").edit(
    "own = answers if len(messages) == 1 else", "own = answers[:1] if True else"
).by(_FORMS)
messages = Room("hai_flow/steps/mcp/messages.py", _MCP)
messages.bug("a result beside an error is lost").edit('message.get("result") or not', "True or not").by(_FORMS)
messages.bug("what looks like a message in an answer that broke off is the answer").edit(
    "        return []\n    return messages", "        return _find_messages(text[start + 1 :])\n    return messages"
).by(_FORMS)
messages.bug("an answer that breaks off is a failure").edit("if is_broken else", "if False else").by(_FORMS)
messages.bug("a schema of three hundred levels takes the list of functions with it").edit(
    "shallow = foreign.make_shallow(text, _DEPTH_MAX)", "shallow = None"
).by(f"{_MCP}::test_a_tool_that_is_described_oddly_does_no_harm_to_the_others")
results = Room("hai_flow/steps/mcp/results.py", _MCP)
results.bug("a result in a form of its own is thrown away").edit("structured = rest.get(", "_ = rest.get(").by(
    f"{_MCP}::test_a_result_with_an_odd_part_keeps_the_good_ones_and_is_not_redone"
)
results.bug("a failure that is told as text is a success").edit('in (True, "true", "True")', "is True").by(
    f"{_MCP}::test_a_result_that_says_in_any_form_that_it_failed_is_a_failure"
)
tool_schemas = Room("hai_flow/definition/schemas/foreign_schemas.py", _MCP)
tool_schemas.bug("a bound of 64 bits takes its function away").edit(
    "                and values.is_json(value)\n", ""
).by(f"{_MCP}::test_a_schema_of_another_time_means_what_it_meant")
openapi = Room("hai_flow/definition/tools/openapi.py", "tests/definition/test_openapi.py")
openapi.bug("a definition in another dialect takes its operations away").edit(
    "read_part(self._convert(self._find_part(self._references[name]), used, 0))",
    "self._convert(self._find_part(self._references[name]), used, 0)",
).by("tests/definition/test_openapi.py::test_what_binds_nothing_in_a_schema_takes_no_operation_away")
results.bug("a picture that is no Base64 loses the text beside it").edit(
    'return None if data is None else {**raw, "data": data}', 'return {**raw, "data": raw.get("data")}'
).by(f"{_MCP}::test_a_result_with_an_odd_part_keeps_the_good_ones_and_is_not_redone")
tool_schemas.bug("a format of a server binds").edit("binds_formats=False", "binds_formats=True").by(
    f"{_MCP}::test_a_format_is_an_annotation_of_a_server"
)
_QUESTIONS: Final = "tests/foreign/test_mcp_questions.py"
connections.bug("words of a question within a session that an error quotes begin the call anew").edit(
    "_ASKS_IN_SESSION.fullmatch", "_ASKS_IN_SESSION.search"
).by(f"{_QUESTIONS}::test_a_function_that_fails_in_other_words_is_not_called_again")
connections.bug("an asking function fails first each time").edit("self._askers.add(function)", "pass").by(
    f"{_QUESTIONS}::test_a_function_that_asks_within_a_session_is_called_in_one"
)
_SILENCE: Final = "tests/foreign/test_silence.py"
_CUT_OFF: Final = "test_received_parts_of_a_timed_out_mcp_call_are_in_error_and_doubt"
jobs = Room("hai_flow/runtime/worker/worker.py")
jobs.bug("what came of an answer is thrown away where the step's time ends in the middle of it").edit(
    "c.TimerFired(_describe_receipts(held, now))", "c.TimerFired()"
).by(f"{_SILENCE}::test_a_step_left_unanswered_by_a_real_framework_ends_at_its_timeout")
jobs.bug("calls of one answer begin in an order of chance").edit(
    "new if len(new) < 2 else sorted(new, key=partial(order_of, state)):", "new:"
).by("tests/runtime/test_worker.py::test_items_begin_in_the_order_in_which_they_stand_in_their_list")
cron.bug("a step that leaves a range at once is found behind a star alone").edit(
    "in_vain = len(values) <= 1", 'in_vain = len(values) <= 1 and match["first"] is None'
).by("tests/definition/test_schedules.py")
queues = Room("hai_flow/definition/checks/asked_people.py")
queues.bug("instants pile up behind a question without a word").edit(
    'trigger.overlap != "queue":', 'trigger.overlap != "queue_one":'
).by("tests/definition/test_schedules.py::test_instants_that_wait_behind_a_question_are_doubted")

outcomes = Room("hai_flow/engine/handlers/outcomes.py")
outcomes.bug("nobody hears what of a tool's result was changed").edit(
    "loop.finish(draft, step, command.output, notes=command.notes)", "loop.finish(draft, step, command.output)"
).by("tests/foreign/test_notes.py")

http.bug("a server that died in the middle is not asked again").edit(
    "isinstance(error, httpx2.RemoteProtocolError) and _BROKE_OFF.search(str(error))", "error is None"
).by(f"{_HTTP}::test_a_server_that_goes_away_in_the_middle_may_be_asked_again")

includes = Room("hai_flow/definition/yaml/include_keys.py")
includes.bug("a document of a service that stands in the workflow itself breaks the reading of it").edit(
    "each for each in named if isinstance(each, str) and", "each for each in dict.fromkeys(named) if"
).by("tests/steps/test_http_tools.py::test_a_document_that_can_not_be_used_is_a_finding")
threads = Room("hai_flow/steps/python/threads.py")
threads.bug("quick calls of one answer act in any order").edit("if before:\n", "if not before:\n").by(
    "tests/steps/test_python.py::test_quick_calls_of_one_answer_act_in_their_written_order"
)
threads.bug("slow calls of one answer wait for each other").edit("timeout=max(0.0, begins - now)", "timeout=None").by(
    "tests/steps/test_python.py::test_slow_calls_of_one_answer_run_at_once"
)
streaming = Room("hai_flow/steps/http/stream.py")
streaming.bug("a character that a service cuts between two events is lost").edit(
    "self.has_marks = has_halves and not is_taken", "self.has_marks = False"
).by("tests/steps/test_http_stream.py::test_a_character_that_is_cut_between_two_events_is_whole")
growing = Room("hai_flow/runtime/worker/attempt.py")
growing.bug("a message has half characters where its text was cut").edit(
    "values.storable(target.joiner.take(text))", "values.storable(text)"
).by("tests/steps/test_http_stream.py::test_in_a_run_the_message_has_whole_characters")
mcp_messages = Room("hai_flow/steps/mcp/messages.py")
mcp_messages.bug("nobody hears which characters of a server's result were replaced").edit(
    "return _with_notes(message_read, _changes_in(decoded, raw))\n", "return message_read\n"
).by("tests/foreign/test_notes.py::test_characters_of_a_server_that_were_replaced_are_noted")

doubts = Room("hai_flow/engine/pendings/unknown_outcome.py")
doubts.bug("people who are asked about a call that took too long don't see what had come of it").edit(
    "evidence=None if received is None else values.dumps(received).decode()", "evidence=None"
).by(f"{_SILENCE}::{_CUT_OFF}")
deciding_again = Room("hai_flow/engine/runs/replay.py")
deciding_again.bug("a doubt about a call that took too long is made again without its evidence").edit(
    "receipts = {each.path: values.loads(each.evidence) for each in doubts if each.evidence is not None}\n",
    "receipts: dict[str, Json] = {}\n",
).by(f"{_SILENCE}::{_CUT_OFF}")
_ENDED: Final = f"{_SILENCE}::test_a_call_ended_by_block_or_run_keeps_its_part_also_half_a_line"
deciding_again.bug("a block that took too long is decided again without what it cut off").edit(
    'error.data.get("received") or {error.path: error.data}', "{error.path: error.data}"
).by(_ENDED)
ends_by_time = Room("hai_flow/engine/due.py", _SILENCE)
ends_by_time.bug("what came of a call is lost where its run took too long").edit(
    "message, path, draft.receipts.get(path))", "message, path)"
).by(_ENDED)
time_of_blocks = Room("hai_flow/runtime/worker/worker.py", _SILENCE)
time_of_blocks.bug("what came of a call is lost where its block took too long").edit(
    " or any(is_inside(path, block) for block in blocks)", ""
).by(_ENDED)
programs = Room("hai_flow/steps/mcp/tolerant_reader.py", _SILENCE)
programs.bug("of a program's answer half a line is lost").edit(
    "self._read_partial is not None and message.method", "False and message.method"
).by(_ENDED)
calls_over_mcp = Room("hai_flow/steps/mcp/runner.py")
calls_over_mcp.bug("what came of a call over MCP is thrown away where its time ends").edit(
    "        attempt.receive(receipt.describe)\n", ""
).by(f"{_SILENCE}::{_CUT_OFF}")
receipts = Room("hai_flow/steps/mcp/receipts.py")
receipts.bug("what came of a call over MCP is kept with its secrets").edit(
    "    text = hide_secrets(storable(text))", "    text = storable(text)"
).edit("hide_secrets(self._progress)", "self._progress").by(
    "tests/steps/test_mcp.py::test_a_secret_that_is_cut_in_two_by_the_bound_of_a_receipt_is_hidden"
)
http_tools = Room("hai_flow/steps/http/tools.py")
http_tools.bug("an operation that no model can be offered is left out without a word").edit(
    "if call.function == ANY_FUNCTION and (left_out", "if False and (left_out"
).by("tests/steps/test_http_tools.py::test_an_agent_may_have_all_operations_of_a_service")
agents_elsewhere = Room("hai_flow/steps/a2a/runner.py")
agents_elsewhere.bug("what an agent answered that is no JSON-RPC is lost").edit(
    'code="tool.invalid_result", retriable=False, data=data)', 'code="tool.invalid_result", retriable=False)'
).by("tests/attacks/test_a2a_peer.py::test_a_hostile_answer_ends_or_asks_and_the_errand_is_given_once")

resuming = Room("hai_flow/steps/mcp/resuming.py", "tests/foreign/test_resuming.py")
resuming.bug("a stream is asked for as soon as its server names").edit(
    "await asyncio.sleep(self._next - clock())", "pass"
)
resuming.bug("a stream that brings nothing is asked for without an end").edit(
    "if self._barren >= BARREN_MAX:", "if False:"
)
taps.bug("a question in the names of Python is the result of its call").edit(
    '    "result_type": "resultType", "input_requests": "inputRequests", "request_state": "requestState",\n', ""
).by("tests/foreign/test_mcp_questions.py")

handshake = Room("hai_flow/steps/mcp/handshake.py", "tests/foreign/test_mcp_handshake.py")
handshake.bug("a server that refuses the newest version is not asked for another").edit("if not older:", "if True:")
handshake.bug("any refusal to begin is taken for one of the version").edit("not _ABOUT_VERSION.search(text)", "False")
handshake.bug("a server whose capabilities have an odd form is not called").edit('capabilities = {"tools": {}}', "pass")
ways_over_http = Room("hai_flow/steps/mcp/http.py", "tests/foreign/test_mcp_statuses.py")
ways_over_http.bug("a call whose result comes with 404 is made again in another session").edit(
    "if call is not None and status >= 400 and", "if False and"
)
_BEHIND_STATUSES: Final = "tests/steps/test_mcp_http.py"
ways_over_http.bug("a call behind any redirect may have arrived").edit("reached=status == 303)", "reached=True)").by(
    f"{_BEHIND_STATUSES}::test_of_redirects_to_nowhere_one_may_come_behind_the_call"
)
ways_over_http.bug("a server that is busy is asked again at once").edit(
    "after=retry_after(dict(response.headers))", "after=None"
).by(f"{_BEHIND_STATUSES}::test_a_server_that_is_busy_says_when_to_ask_again")
ways_over_http.bug("an answer may be of any size").edit("if len(content) > self._config.bytes_max:", "if False:").by(
    f"{_BEHIND_STATUSES}::test_an_answer_that_is_too_large_is_final"
)
ways_over_http.bug("a stream of small events has no end").edit(
    " or (self._left is not None and self._left < 0):", ":"
).by(f"{_BEHIND_STATUSES}::test_a_stream_of_small_events_has_an_end")
