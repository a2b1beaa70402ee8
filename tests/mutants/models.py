"""Bugs of models: an answer that is read otherwise than its server meant it, and what comes of one that is none."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_CORPUS: Final = "tests/foreign/test_foreign.py"
_MEANT: Final = f"{_CORPUS}::test_an_answer_is_read_as_it_is_meant"
_CUT: Final = f"{_CORPUS}::test_an_answer_that_is_cut_anywhere_into_pieces_is_the_same_answer"
_DIALECTS: Final = "tests/models/test_dialects.py"
_HTTP: Final = "tests/models/test_http.py"
_CONVERSATIONS: Final = "tests/models/test_conversations.py"

# --- arguments --------------------------------------------------------------------------------------------------------

arguments = Room("hai_flow/models/calls/arguments.py")
arguments.bug("pieces that repeat all before them are joined").edit(
    "return grown if is_grown and not is_object(in_parts) else", "return"
).by(_MEANT)
arguments.bug("an object inside that begins as the outer one does is taken for all of it").edit(
    "return grown if is_grown and not is_object(in_parts) else", "return grown if True else"
).by(_MEANT)

# --- calls ------------------------------------------------------------------------------------------------------------

calls = Room("hai_flow/models/calls/calls.py")
calls.bug("a call that is said again is made again").edit(
    "return not args or not known or is_equal_json(args, known)", "return False"
).by(_MEANT)
calls.bug("a piece at another index is a call of its own, though it has the id of one that is known").edit(
    "if id and args and not name and (draft is None or draft.given != id):", "if False:"
).by(_MEANT)
calls.bug("a call without a name is made up").edit('raise Contradiction("a call has no name")', "pass").by(_MEANT)
calls.bug("a call whose arguments may be missing is made").edit(
    "if not is_certain and not is_object(args):", "if False:"
).by(_MEANT)
calls.bug("every piece with another id begins a call").edit(
    "if not name or not draft.name:\n            return False", "if id and id != draft.given:\n            return True"
).by(_MEANT)
calls.bug("another name in the slot of a call without arguments goes on with it").edit(
    "return not self._is_continued(draft, name)", "return not draft.args.is_blank"
).by(_MEANT)
calls.bug("braces behind a call that is whole are a call of their own").edit(
    'is_one_slot = draft.slot == earlier.slot and "" in (draft.given, earlier.given)', "is_one_slot = False"
).by("tests/foreign/test_perturbed.py")
arguments.bug("braces in front of the arguments are part of them").edit(
    ":= _PLACEHOLDER.match(text, at) or _FENCE", ":= _FENCE"
).by(_MEANT)
arguments.bug("arguments that the end contradicts count").edit(
    "elif not is_equal_json(final, self.end()):", "elif False:"
).by(_MEANT)
arguments.bug("other arguments behind whole ones are ignored").edit(
    "if is_object(repeated) and isinstance(value, dict):", "if False:"
).by(_MEANT)

# --- Responses --------------------------------------------------------------------------------------------------------

calls.bug("a function with a token of a template in front of its name is no function").edit(
    "(?:<[^<>]*>|[\\s\"'`/])*+", ""
).by("tests/foreign/test_foreign.py")
providers = Room("hai_flow/models/providers/endpoints.py")
providers.bug("a model that has begun to answer is asked for another answer behind it").edit(
    "if has_begun or adapted", "if adapted"
).by("tests/models/test_dialects.py::test_a_server_that_has_begun_to_answer_is_not_asked_again")
_SEALS: Final = "tests/foreign/test_opaque_data.py::test_what_a_server_gives_for_itself_goes_back_with_its_own_call"
seals = Room("hai_flow/models/opaque_data.py")
seals.bug("thinking that nobody signed goes back").edit("if any(map(_is_sealed, parts))}", "}").by(_SEALS)
seals.bug("an id that is too long does not go back").edit("len(id) > ID_CHARS_MAX else {}", "False else {}").by(_SEALS)
seals.bug("two signed thoughts become one").edit("_is_sealed(last) or ", "").by(_SEALS)
chat = Room("hai_flow/models/chat.py", "tests/foreign/test_foreign.py")
chat.bug("an answer whose choice is counted from 1 is none").edit(
    "self._choice = index if self._choice is None else self._choice", "self._choice = 0"
).by("tests/foreign/test_foreign.py")
chat.bug("content that is no text is no answer").edit(
    "        is_value = any(isinstance(each, bool | int | float) for each in value)", "        is_value = False"
).edit(
    "    return args_of(value)\n\n\ndef usage_of",
    '    return value if isinstance(value, str) else ""\n\n\ndef usage_of',
).by("tests/foreign/test_foreign.py::test_an_answer_that_a_gateway_has_parsed_is_its_json_text")
chat.bug("a model that goes in circles until it is too long has said it once").edit(
    'return not has_ended and isinstance(reason, str) and reason_of(reason) == "stop"', "return bool(reason)"
).by(_MEANT)
answers = Room("hai_flow/models/answer.py")
answers.bug("a last piece that is all text once more doubles it").edit(
    'return len(piece.strip()) >= REPEATED_CHARS_MIN and piece == "".join(pieces)', "return False"
).by(_MEANT)
answers.bug("a short text can't be said twice").edit(
    "len(piece.strip()) >= REPEATED_CHARS_MIN and piece ==", "bool(pieces) and piece =="
).by(_MEANT)
answers.bug("a piece that is text after all is lost").edit(
    "yield from self._add_text(piece, part)\n\n    def drop", "return\n\n    def drop"
).by(_MEANT)
responses = Room("hai_flow/models/responses.py")
responses.bug("a call that has another id behind the answer is another call").edit(
    "            self._pair(output)\n", ""
).by(_MEANT)
responses.bug("a text in items of other names behind the answer is another text").edit(
    "is_repeated = any(texts) and", "is_repeated = any(texts) and False and"
).by(_MEANT)
responses.bug("an event that a gateway sends again counts again").edit(
    "if self._numbers.is_known(event):", "if False:"
).by(_MEANT)
responses.bug("numbers count although they do not rise").edit(
    "self._rises = self._known[number] == mark\n            return self._rises", "return True"
).by(_MEANT)
responses.bug("an item that is named otherwise in each event is several").edit(
    "self._items.setdefault(each, name)", "self._items[each] = each"
).by(_MEANT)
responses.bug("a whole answer with an incomplete call is one without it").edit(
    'raise contradiction(f"it is whole', 'assert (f"it is whole'
).by(_MEANT)
responses.bug("an answer is incomplete only if its response says so too").edit(
    "for each in dict.fromkeys((status, status_of_event)):", 'for each in (response.get("status", "completed"),):'
).by(_MEANT)

# --- the package for Anthropic's models -------------------------------------------------------------------------------

responses.bug("a message without content says `[]`").edit(
    'content = item.get("content") or []', 'content = item.get("content") or ()'
).by("tests/foreign/test_foreign.py")
messages = Room("plugins/anthropic/hai_flow_anthropic/messages.py")
messages.bug("calls of the provider's own tools are made here").edit(" and index not in self._others:", ":").by(_MEANT)

# --- the answer -------------------------------------------------------------------------------------------------------

ends = Room("hai_flow/models/ends.py")
ends.bug("a word for the end that nobody knows means a whole answer").edit(
    'return next((each for each in _WORST_FIRST if each in reasons), "unknown")', 'return "stop"'
).by(_MEANT)
ends.bug("an answer without any sign of its end is whole").edit(
    "(Stand.SPEAKING, Sign.CLOSE): Stand.BROKEN", "(Stand.SPEAKING, Sign.CLOSE): Stand.WHOLE"
).by(f"{_CORPUS}::test_an_answer_cut_off_at_any_byte_performs_nothing_or_all_of_it")
ends.bug("the mark of the end is none").edit(
    "(Stand.SPEAKING, Sign.MARK): Stand.OVER", "(Stand.SPEAKING, Sign.MARK): Stand.SPEAKING"
).by(_MEANT)
text_pieces = Room("hai_flow/models/calls/text_pieces.py")
text_pieces.bug("half an emoji is not held back").edit("cut = _CUT.search(text)", "cut = None").by(_MEANT)
text_pieces.bug("thinking that the template opened is part of the answer").edit("yield Retraction()", "pass").by(_MEANT)
text_pieces.bug("the tags of one model alone are thinking").edit(
    "self._pairs = _TAGS ", 'self._pairs = {"<think>": "</think>"} '
).by(_MEANT)
text_pieces.bug("behind the thinking the tag of another model is one, too").edit(
    "self._pairs = {first", "_ = {first"
).by(_MEANT)
event_stream = Room("hai_flow/models/event_stream.py")
event_stream.bug("an answer that a gateway passes on in `data` is a fault").edit(
    "        value = self._unwrap(value)\n", ""
).by(_MEANT)
event_stream.bug("what a server said in front of `[DONE]` is lost, if it is in no words of a fault").edit(
    "stand in (Stand.SILENT, Stand.BROKEN):", "stand is Stand.SILENT:"
).by(_MEANT)
event_stream.bug("an event whose name alone says that the answer is done marks no end").edit(
    "or (name in _END_EVENTS and", "or (name in () and"
).by(_MEANT)
event_stream.bug("any event of that name marks the end, whatever it says").edit(
    'and text in ("", "{}", "null")', ""
).by(_MEANT)
event_stream.bug("marks of the end are tried in every way in which they come apart").edit("|]*+DONE", "|]*DONE").edit(
    """]">|]*+\\s*+)++""", """]">|]*\\s*)+"""
).by("tests/models/test_dialects.py::test_marks_of_the_end_with_something_else_behind_them_are_told_at_once")
event_stream.bug("a line feed in the next chunk is a line of its own").edit(
    'if self._after_return and text.startswith(b"\\n"):', "if False:"
).by(_CUT)
event_stream.bug("a report of a fault is an answer").edit(
    "if is_report(value, is_answer=self._reader.is_answer(value)):", "if False:"
).by(_MEANT)

# --- faults, requests, connections ------------------------------------------------------------------------------------

faults = Room("hai_flow/models/faults.py")
faults.bug("no money is a wrong request").edit("if status == 402 or (", "if status == 499 or (").by(_MEANT)
faults.bug("a quota of the day is tried again").edit(
    "is_daily = DAILY.search(words) is not None", "is_daily = False"
).by(_MEANT)
faults.bug("a refusal that a gateway passes on with status 400 is a mistake in the request").edit(
    "if status == 400 and report.status in (429, 503):", "if False:"
).by("tests/foreign/test_foreign.py")
reports = Room("hai_flow/models/failures/reports.py")
reports.bug("a status of a fault says nothing of the words beside it").edit(
    'fields = (*fields, "title", "reason", "description")\n', "pass\n"
).by(_MEANT)
reports.bug("the wait in a body is not seen").edit(
    "wait = None if factor is None else _seconds(value, factor)", "wait = None"
).by(_MEANT)
asking = Room("hai_flow/models/failover.py")
asking.bug("comments that keep a stream open are pieces of an answer").edit(
    "if isinstance(piece, Alive):\n                        continue", "pass"
).by(f"{_DIALECTS}::test_an_empty_answer_where_words_are_needed_asks_another_model")
asking.bug("an empty answer is one where words are needed").edit("if turn.is_empty:", "if False:").by(
    f"{_DIALECTS}::test_an_empty_answer_where_words_are_needed_asks_another_model"
)
asking.bug("a call that is written as text is an answer").edit(
    "return faults.text_call(name) if name else None", "return None"
).by("tests/runtime/test_agents.py::test_a_call_written_as_text_fails_its_agent_and_is_not_its_answer")
_WRITTEN: Final = "tests/models/test_written_calls.py"
written = Room("hai_flow/models/calls/written.py", _WRITTEN)
written.bug("JSON at the end of an answer is a call").edit(
    "            return []\n", "            at += 1\n            continue\n"
).by(f"{_WRITTEN}::test_an_answer_that_mentions_a_function_is_no_call")
written.bug("a call that Markdown quotes is one").edit("own = _QUOTED.sub(_keep_call, text)", "own = text").by(
    f"{_WRITTEN}::test_an_answer_that_mentions_a_function_is_no_call"
)
written.bug("an object that has more than a call is one").edit(" and value.keys() <= _BESIDE else", " else").by(
    f"{_WRITTEN}::test_an_answer_that_mentions_a_function_is_no_call"
)
asking.bug("each piece has a timer of its own").edit(
    "if self._timer is None or self._timer.when() > self._due:\n", "if True:\n"
).by(f"{_DIALECTS}::test_a_reader_that_takes_its_time_is_no_model_that_does")
asking.bug("an attempt that is cancelled while a piece is late goes on with another model").edit(
    "if task.uncancel() <= self._cancelling and ", "if task.uncancel() >= 0 and "
).by(f"{_DIALECTS}::test_an_attempt_that_is_cancelled_while_a_piece_is_late_is_cancelled")
collected = Room("hai_flow/models/calls/calls.py", _DIALECTS)
collected.bug("a call whose result its server has given is made again").edit(
    "if id and each.given == id and not each.is_made]", "if False]"
).by(f"{_DIALECTS}::test_a_call_that_its_server_has_made_is_not_made_again")
collected.bug("an answer is cut behind a call that its server makes itself").edit(
    "return bool(self._list_foreign())", "return False"
).by(f"{_DIALECTS}::test_an_answer_that_goes_on_behind_a_reason_is_waited_for")
connections = Room("hai_flow/models/connections.py")
connections.bug("an answer is lost whose stream stays open behind the reason for its end").edit(
    "elif until is None:", "elif False:"
).by(f"{_DIALECTS}::test_an_answer_with_a_reason_is_whole_though_its_stream_stays_open")
connections.bug("bytes without a piece are silence").edit("if is_silent:", "if False:").by(
    f"{_DIALECTS}::test_comments_that_keep_a_stream_open_are_signs_of_life"
)
connections.bug("a key goes wherever a server redirects").edit("_origin(target) == _origin(url):", "target:").by(
    f"{_DIALECTS}::test_a_redirect_is_followed_within_the_origin_and_told_beyond_it"
)
connections.bug("a server may show anybody's certificate").edit(
    'context.set_alpn_protocols(["http/1.1"])', "context.check_hostname = False"
).by(f"{_HTTP}::test_a_server_shows_a_certificate_for_its_name")
connections.bug("cookies of a server go along with later calls, behind a proxy").edit(
    "CookieJar(DefaultCookiePolicy(allowed_domains=[]))", "CookieJar()"
).by(f"{_HTTP}::test_cookies_are_not_sent_with_later_calls")
http = Room("hai_flow/models/http.py")
http.bug("https is sent in clear").edit("ssl=self._tls if name else None, server_hostname=name", "ssl=None").by(
    f"{_HTTP}::test_a_server_shows_a_certificate_for_its_name"
)
http.bug("a connection in the middle of its answer takes the next request").edit(
    "self._is_closed or not connection.is_reusable or", "self._is_closed or"
).by(f"{_HTTP}::test_a_connection_whose_answer_is_not_whole_ends_with_its_call")
http.bug("a pool that is closed keeps connections").edit("self._is_closed = True", "pass").by(
    f"{_HTTP}::test_a_closed_pool_keeps_no_connection"
)
http.bug("a request is sent again of which the server has begun to answer").edit(
    "connection is not kept or connection.has_begun_to_answer or", "connection is not kept or"
).by(f"{_HTTP}::test_a_request_on_a_kept_connection_that_ends_unanswered_is_repeated")
http.bug("what a server has said on an idle connection answers the next request").edit(
    'return not _is_readable(transport.get_extra_info("socket").fileno())', "return True"
).by(f"{_HTTP}::test_what_a_server_says_on_an_idle_connection_answers_no_request")
http.bug("a header that stands twice has its last value").edit(
    'text if before is None else f"{before}, {text}"', "text"
).by(f"{_HTTP}::test_a_header_that_stands_twice_has_both_values")
http.bug("a body that nobody reads is taken in as it comes").edit(
    "if self._buffered > _BUFFER_BYTES_MAX and not", "if False and not"
).by(f"{_HTTP}::test_a_body_that_nobody_reads_yet_is_not_taken_in")
http.bug("any number of connections is kept").edit(">= KEPT_MAX:", "< 0:").by(
    f"{_HTTP}::test_of_many_connections_some_are_kept"
)
connections.bug("the path of a server that ends in a slash has two").edit('own.rstrip(b"/") + path', "own + path").by(
    f"{_HTTP}::test_a_request_goes_below_the_path_of_its_server"
)
connections.bug("a password in an address is left out").edit("if url.username or url.password:", "if False:").by(
    f"{_HTTP}::test_a_name_and_a_password_in_the_address_are_sent_as_such"
)
connections.bug("a fault is read to its end").edit("if len(body) > FAULT_BYTES_MAX:", "if False:").by(
    f"{_HTTP}::test_of_a_large_error_the_beginning_is_read"
)
http.bug("the end of an answer may be endless").edit(
    "if not self._is_complete and self._framing_bytes", "if not self._status and self._framing_bytes"
).by(f"{_HTTP}::test_what_is_no_answer_is_a_fault")
http.bug("an address that is found while nobody waits any more stays open").edit("if each is not tcp:", "if False:").by(
    f"{_HTTP}::test_a_cancelled_connect_leaves_no_socket"
)
conversation = Room("hai_flow/models/conversation.py")
conversation.bug("an empty message is sent").edit("if _is_empty(message):", "if False:").by(
    f"{_CONVERSATIONS}::test_no_message_without_content_is_sent"
)
conversation.bug("neighbours of one role stay apart").edit(
    "if alternate and result and _can_join(result[-1], message):", "if False:"
).by(f"{_CONVERSATIONS}::test_neighbours_of_one_role_are_joined_where_the_server_needs_it")
tokens = Room("hai_flow/models/tokens.py")
tokens.bug("Chinese has four characters a token").edit(
    "return wide + -(-other // 2)", "return wide // 4 + -(-other // 2)"
).by(f"{_CONVERSATIONS}::test_tokens_are_counted_as_scripts_have_them")
agent = Room("hai_flow/steps/agent.py")
agent.bug("the count of the server is not believed").edit(
    "return estimate, max(read + since, estimate)", "return estimate, estimate"
).by("tests/runtime/test_agents.py::test_a_servers_reported_usage_counts_where_it_exceeds_our_estimate")
agent.bug("a thread may fill the whole context of its model").edit(
    "REMEMBERED_SHARE: Final = 0.5", "REMEMBERED_SHARE: Final = 2.0"
).by("tests/runtime/test_agents.py::test_a_thread_too_long_for_its_model_goes_on_without_its_beginning")
agents = Room("hai_flow/engine/steps/agents.py")
agents.bug("words beside a decision are told in front of all that was done before").edit(
    "for posted, _ in words if posted <= turn)", "for posted, _ in words)"
).by("tests/runtime/test_agents.py::test_words_beside_a_decision_reach_the_model_after_the_results")
transcript = Room("hai_flow/wire/dialects/transcript.py")
transcript.bug("attempts that broke off stand in snapshots for ever").edit(
    "if entry.aborted and entry.path in paths:", "if False:"
).by("tests/wire/test_aborted.py")

turns = Room("hai_flow/models/turn.py")
turns.bug("of two values of one argument the last one is taken").edit(
    "foreign.read(call.args, pairs=foreign.demand_one_value_each)", "foreign.read(call.args)"
).by("tests/foreign/test_foreign.py::test_a_call_that_names_two_values_of_one_argument_is_not_made")
