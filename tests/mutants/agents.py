"""Mutants of what agents call: tasks and their states over MCP and A2A, sealed states, audiences, and votes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_A2A: Final = "tests/api/test_a2a.py"
_MCP: Final = "tests/api/test_mcp.py"

tasks = Room("hai_flow/wire/a2a/tasks.py", _A2A)
tasks.bug("what others decide asks the caller").edit(
    "if shown.asks_caller:\n        return INPUT_REQUIRED", "if shown.questions:\n        return INPUT_REQUIRED"
).by(f"{_A2A}::test_who_may_not_decide_is_refused_and_the_question_stays_open")
tasks.bug("of two questions an answer without a name takes the first").edit("if len(mine) != 1:", "if not mine:").by(
    f"{_A2A}::test_of_two_questions_the_answer_names_one"
)
_FORMS: Final = "tests/api/test_answer_forms.py::test_an_answer_over_a2a_that_would_lose_a_part_is_refused"
tasks.bug("data beside an answer is dropped").edit("if beside:", "if False:").by(_FORMS)
tasks.bug("of two data parts the last counts").edit("if repeated is not None:", "if False:").by(_FORMS)
tasks.bug("data beside a text is dropped").edit("for name in _CONTENTS) > 1", "for name in _CONTENTS) > 5").by(_FORMS)
tasks.bug("an answer beside its parts is dropped").edit(
    "if misplaced := list_misplaced_members(holder):", "if misplaced := ():"
).by(_FORMS)
tasks.bug("files are passed over in silence").edit('elif part.keys() & {"raw", "url", "file"}:', "elif False:").by(
    f"{_A2A}::test_files_unknown_methods_and_versions_have_codes_of_their_own"
)
tasks.bug("the pieces of a text begin it anew").edit(
    "append=len(message.content) > len(content), last=False)", "append=False, last=False)"
).by(f"{_A2A}::test_the_pieces_of_a_text_are_appended_and_the_first_is_not")
operations = Room("hai_flow/api/a2a/operations.py", _A2A)
operations.bug("the agent of one workflow shows the tasks of others").edit(
    "if self._name is not None and task.state.workflow != self._name:", "if False:"
).by(f"{_A2A}::test_answers_to_other_tasks_and_contexts_are_refused")
operations.bug("the vote of somebody whose message has the id of another's is lost").edit(
    'key = f"a2a:{access.principal.id} {message.id}"', 'key = f"a2a:{message.id}"'
).by("tests/attacks/test_a2a.py")
operations.bug("the vote of somebody whose id goes on in another's message is lost").edit(
    "{access.principal.id} {message.id}", "{access.principal.id}:{message.id}"
).by("tests/attacks/test_a2a.py")
operations.bug("an answer to the question of another task is given").edit(
    "if question not in {each.pending.opened.id for each in questions}:", "if False:"
).by(f"{_A2A}::test_answers_to_other_tasks_and_contexts_are_refused")
operations.bug("tasks from before the instant are listed").edit(" and task.state.at >= since:", ":").by(
    f"{_A2A}::test_tasks_are_listed_by_context_and_state_page_by_page"
)
operations.bug("a wish that is none is passed over").edit(
    "if not isinstance(configuration.get(name), bool | None):", "if False:"
).by(f"{_A2A}::test_a_message_whose_wishes_are_wrong_starts_nothing")
operations.bug("the same message begins another task").edit(
    'f"a2a:{self._access.principal.id}:{message.id}:{message.digest}",', "None,"
).by(f"{_A2A}::test_a_message_id_means_one_task_whatever_the_second_message_says")
operations.bug("a stream that goes on begins with the whole task").edit(
    "if after is None:\n            yield state.seq", "if True:\n            yield state.seq"
).by(f"{_A2A}::test_a_stream_that_was_lost_goes_on_behind_its_last_event")
operations.bug("an answer goes into another context than the one that it names").edit(
    "if message.context_id not in (None, task.state.thread_id):", "if False:"
).by("tests/attacks/test_a2a.py")
configs = Room("hai_flow/api/a2a/push_configs.py", "tests/api/test_a2a_push.py")
configs.bug("an internal address is stored").edit("        await demand_reachable(access.settings, config)\n", "").by(
    "tests/api/test_a2a_push.py::test_a_wrong_push_configuration_is_refused_and_nothing_is_stored"
)
stored = Room("hai_flow/store/messaging/pushes.py", "tests/api/test_a2a_push.py")
stored.bug("a caller has any number of addresses").edit(") < $8\n", ") < 1000 + $8\n").by(
    "tests/api/test_a2a_push.py::test_a_caller_has_ten_configurations_of_a_task_an_eleventh_is_refused"
)
calls = Room("hai_flow/runtime/messaging/pushes.py", "tests/api/test_a2a_push.py")
calls.bug("a call that failed is not made again").edit(
    "if not failure.final and push.tries < self.config.tries_max:", "if False:"
).by("tests/api/test_a2a_push.py::test_a_call_that_fails_is_made_again_with_the_same_id")
calls.bug("every change of the run is told").edit("if notice.state != push.sent and", "if").by(
    "tests/api/test_a2a_push.py::test_an_address_sent_with_a_message_gets_each_state_signed_and_bare"
)
results = Room("hai_flow/wire/mcp.py", _MCP)
results.bug("links of an output are content that a client follows").edit(
    "_CONTENT: Final = {\n", '_CONTENT: Final = {\n    "resource_link": ("uri", "name"),\n'
).by(f"{_MCP}::test_an_output_that_is_only_like_content_is_shown_as_json")
results.bug("what a tool has said fails the task itself").edit(
    'or not error.code.startswith("expression."):', "or not error.code:"
).by(f"{_MCP}::test_a_failed_run_is_a_completed_task_with_an_error_as_its_result")
server = Room("hai_flow/api/mcp/server.py", _MCP)
server.bug("a header may name another task").edit(
    'if decode_header_value(request_of(ctx).headers.get("mcp-name")) != id:', "if False:"
).by(f"{_MCP}::test_a_header_that_names_another_task_is_refused")
server.bug("a request with an id that is none is dropped").edit(
    "not isinstance(id, str | int) or isinstance(id, bool)", "False"
).by(f"{_MCP}::test_a_message_that_is_none_or_lies_about_its_revision_is_refused")
server.bug("a message of no version of JSON-RPC is answered").edit(
    'if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":', "if not isinstance(message, dict):"
).by(f"{_MCP}::test_a_message_that_is_none_or_lies_about_its_revision_is_refused")
server.bug("a batch is taken for one message").edit(
    'if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":', "if False:"
).by(f"{_MCP}::test_a_message_that_is_none_or_lies_about_its_revision_is_refused")
server.bug("a message whose method is no text is handed on").edit(
    'if "method" in message and not isinstance(method, str):', "if False:"
).by(f"{_MCP}::test_a_message_that_is_none_or_lies_about_its_revision_is_refused")
server.bug("a runtime that begins again has the managers of the one that ended").edit(
    "if self._holding is None or self._holding.done():", "if self._holding is None:"
).by("tests/api/test_mcp_managers.py::test_streams_and_managers_end_with_the_runtime_and_begin_with_it")
server.bug("a request of one revision is answered as one of another").edit(
    "if isinstance(named, str) and named != version and", "if False and"
).by(f"{_MCP}::test_a_message_that_is_none_or_lies_about_its_revision_is_refused")
server.bug("a call that waits has no stream to be heard on").edit(' and params.get("name") != "wait_run"', "").by(
    f"{_MCP}::test_what_is_answered_at_once_and_hears_nothing_needs_no_stream"
)
server.bug("the version of another workflow that a call names is passed over").edit(
    "if version is not None and (not isinstance", "if False and (not isinstance"
).by(f"{_MCP}::test_a_call_that_names_a_version_of_another_workflow_starts_nothing")
server.bug("a call with arguments lists every workflow").edit(
    "get_tool_input_schema=lambda name: _CALLED_FORM.get(),", "get_tool_input_schema=None,"
).by("tests/api/test_mcp_managers.py::test_a_call_reads_neither_other_workflows_nor_its_new_run")
_PUSH: Final = "tests/api/test_a2a_push.py"
addresses = Room("hai_flow/steps/http/egress.py", _PUSH)
addresses.bug("an address for pushes in clear text is taken").edit('if parts.scheme != "https" and', "if False and").by(
    f"{_PUSH}::test_a_wrong_push_configuration_is_refused_and_nothing_is_stored"
)
calls.bug("an address that was taken before goes on in clear text").edit(
    "if obstacle is not None:\n", "if False:\n"
).by(f"{_PUSH}::test_a_state_that_is_never_taken_is_given_up_and_said_in_the_row")
audiences = Room("hai_flow/api/mcp_resource.py", "tests/attacks/test_mcp.py")
audiences.bug("a token for other clients opens the MCP server").edit("if connection.url.path != PATH:\n", "if True:\n")
bridge = Room("hai_flow/cli/client/mcp_stdio.py", "tests/cli/test_mcp_stdio.py")
bridge.bug("a call that is sent again begins another run").edit(
    'headers["Idempotency-Key"] = str(uuid.uuid4())', "pass"
).by("tests/cli/test_mcp_stdio.py::test_a_call_outlives_the_server_and_its_run_is_one")

_PEER: Final = "tests/steps/test_a2a_peer.py"
_ASKED: Final = "tests/engine/test_inquiries.py"
peers = Room("hai_flow/steps/a2a/peer.py", _PEER)
peers.bug("a card leads the secrets of a step to another server").edit(
    "if _origin(each.url) == _origin(url)]", "if each.url]"
).by(f"{_PEER}::test_a_card_leads_to_no_other_server")
peers.bug("two questions of a task that have the same words are one").edit(
    "_message_of(task), at]", "_message_of(task)]"
).by(f"{_PEER}::test_another_question_of_a_task_with_equal_words_has_another_digest")
resumed = Room("hai_flow/engine/handlers/outcomes.py", _ASKED)
resumed.bug("an agent that can't say what it has begun is simply called again").edit(
    '(step.delivery == "resumed" and command.reason is None)', '(step.delivery == "resumed")'
).by(f"{_ASKED}::test_an_unknowable_start_of_an_agent_asks_people_and_again_is_no_loss")
_AGENTS: Final = "tests/engine/test_agents.py"

effects = Room("hai_flow/definition/tools/effect_classes.py", _AGENTS)
effects.bug("what reaches others asks nobody").edit(
    'frozenset({"read", "reversible"})', 'frozenset({"read", "reversible", "external"})'
).by(f"{_AGENTS}::test_the_declared_class_decides_whether_a_call_asks_its_requester")
effects.bug("what only adds counts as what can be taken back").edit(
    'if destructive else "external"', 'if destructive else "reversible"'
).by("tests/steps/test_mcp.py::test_only_a_trusted_servers_hints_give_the_class_and_none_skips_gates")
gates = Room("hai_flow/engine/pendings/gates.py", _AGENTS)
gates.bug("what can't be taken back is asked about once").edit('if effect == "irreversible":', "if False:").by(
    f"{_AGENTS}::test_the_declared_class_decides_whether_a_call_asks_its_requester"
)


_ATTACKS: Final = "tests/attacks/test_mcp.py"
sealed = Room("hai_flow/store/messaging/pushes.py", _PUSH)
sealed.bug("the secrets of an address open for the row of another run").edit(
    'nonce + _cipher(key).encrypt(nonce, config, f"{run_id} {principal}".encode())',
    "nonce + _cipher(key).encrypt(nonce, config, b'')",
).by(f"{_PUSH}::test_a_row_opens_for_its_run_its_caller_and_its_database_alone")
sessions = Room("hai_flow/api/mcp/sessions.py", _ATTACKS)
sessions.bug("a session is good for everybody").edit(
    'f"mcp session v1 {principal} {payload}"', 'f"mcp session v1 {payload}"'
).by(f"{_ATTACKS}::test_a_session_is_good_for_who_began_it_as_it_was_begun")
sessions.bug("what a person put off elsewhere keeps its call waiting").edit(
    "if (question := hints.parse_put_off(payload)) is not None:", "if (question := None) is not None:"
).by(f"{_ATTACKS}::test_a_deferred_question_ends_the_call_plainly_and_stays_open")
people = Room("hai_flow/api/requests/access.py", _ATTACKS)
people.bug("an agent acts for people for whom its key does not speak").edit(
    "if not isinstance(person, str) or not any(is_pattern_of(each, person) for each in patterns):", "if False:"
).by(f"{_ATTACKS}::test_nobody_acts_for_people_for_whom_their_key_does_not_speak")
_ROTATION: Final = f"{_ATTACKS}::test_states_outlive_a_rotation_of_the_key_but_not_its_retirement"
rings = Room("hai_flow/api/mcp/state_keys.py", _ROTATION)
rings.bug("the state of a retired key is opened").edit("if key is None or not self._opens(key):", "if key is None:").by(
    f"{_ATTACKS}::test_a_key_that_retires_between_the_look_and_the_opening_opens_nothing"
)
rings.bug("a process learns of a key late").edit("if is_known else _UNKNOWN_SECONDS", "if is_known else 1e9")
rings.bug("a session outlives the retirement").edit(" if self._opens(each)]", "]")
rotations = Room("hai_flow/store/identity/state_keys.py", _ROTATION)
rotations.bug("a rotation ends what is open").edit("ELSE $1 * interval '1 s' END", "ELSE $1 * interval '0 s' END")
rotations.bug("a rotation at once waits").edit("WHEN later.at_once THEN '0 s' ELSE", "WHEN NULL THEN '0 s' ELSE")
publishing = Room("hai_flow/api/mcp/publishing.py", _MCP)
publishing.bug("what a person rejected is published").edit(
    'if status in ("approved", "consumed"):', 'if status in ("approved", "consumed", "rejected"):'
).by(f"{_MCP}::test_a_draft_with_findings_or_that_is_rejected_is_not_published")
_SLOPPY: Final = "tests/foreign/test_a2a.py"
peers.bug("a question is another one whenever its time is").edit("None if has_id else ", "").by(
    f"{_SLOPPY}::test_a_question_whose_time_is_always_now_is_answered_once"
)
watching = Room("hai_flow/steps/a2a/runner.py", _SLOPPY)
watching.bug("an exception of an agent is a refusal").edit("return self.code not in _REFUSALS", "return False")
exchanges = Room("hai_flow/steps/http/runner.py", _SLOPPY)
exchanges.bug("a message goes wherever its agent leads").edit("return _origin(target) == self._origin", "return True")
watching.bug("a message is sent again whose task was begun and took too long").edit(
    "if not _CONTEXT_REFUSED.search(refused.message):", 'if "context" not in refused.message.lower():'
).by("tests/steps/test_a2a_errand.py::test_only_a_refused_context_is_left_out_of_a_second_message")
watching.bug("a task of which the agent tells something odd has failed").edit(
    "raise OutcomeLost(f\"Nobody knows how the task ends: {error.message.rstrip('.')}.\") from None", "raise"
).by(f"{_SLOPPY}::test_a_doubt_about_an_answer_goes_to_people_and_nothing_is_sent_again")
watching.bug("a task that one process of an agent does not know is in doubt at once").edit(
    "if refused.code != _NO_TASK or", "if True or"
).by(f"{_SLOPPY}::test_a_task_that_one_process_does_not_know_is_looked_for_again")
errands = Room("hai_flow/steps/a2a/runner.py", "tests/steps/test_a2a_errand.py")
errands.bug("a task that a lost attempt has not begun is sent though it may not begin any more").edit(
    "        await self._attempt.begin()\n", ""
)
errands.bug("a task of another context is taken for the errand's own").edit(
    'if each.get("contextId") == self._context]', 'if each.get("contextId")]'
).by("tests/steps/test_a2a_errand.py::test_a_task_of_another_context_is_not_taken_for_the_errands_own")
errands.bug("where only tasks of others are listed, a lost errand is given again").edit(
    "if listed and not tasks and lost is not None:", "if False:"
).by("tests/steps/test_a2a_errand.py::test_a_lost_attempt_beside_unrelated_tasks_asks_people")
errands.bug("an answer whose connection broke is given again at once").edit(
    "if _may_have_begun(error):\n", "if False:\n"
)
errands.bug("an answer of an attempt that was lost is given again at once").edit(
    "if self._attempt.lost:  # that attempt may have brought the answer", "if False:"
).by("tests/steps/test_a2a_errand.py::test_an_answer_that_a_lost_attempt_has_given_is_not_given_again")
errands.bug("the task that the agent answers with is followed, whichever it is").edit(
    'if task.get("id") != id:', "if False:"
)
errands.bug("people are shown a form that nobody can fill in").edit(
    "if fault is not None:", "if fault and not fault:"
).by("tests/attacks/test_a2a_peer.py")
_ERRAND: Final = "tests/steps/test_a2a_errand.py"
errands.bug("a lost errand is given again to an agent that takes no contexts").edit(
    'if self._attempt.lost:\n                    raise self._make_outcome_lost("it takes no',
    'if False:\n                    raise self._make_outcome_lost("it takes no',
).by(f"{_ERRAND}::test_only_a_refused_context_is_left_out_of_a_second_message")
errands.bug("the task of another call of ours is followed").edit(
    'if (context := str(task.get("contextId"))) != own and context.startswith(_CONTEXT):', "if False:"
).by(f"{_ERRAND}::test_an_agent_that_answers_with_the_task_of_another_call_is_in_doubt")
errands.bug("a task that has failed is the failure of each retry").edit(
    "tasks[0] if len(tasks) > self._attempt.failures else None", "tasks[0] if tasks else None"
).by(f"{_ERRAND}::test_a_failed_task_counts_once")
errands.bug("tasks that are over are cancelled").edit(
    'if peer.state_of(task) not in peer.ENDS:\n                    await self._agent.ask("CancelTask"',
    'if True:\n                    await self._agent.ask("CancelTask"',
).by(f"{_ERRAND}::test_only_what_is_alive_of_a_steps_tasks_is_cancelled")
errands.bug("an agent that is busy is asked as soon as ever").edit("max(pause, min(after or 0.0, 300.0))", "pause").by(
    f"{_ERRAND}::test_an_agent_that_is_busy_is_asked_again_when_it_says"
)
errands.bug("an agent that wants a token has refused the task").edit(
    "status in (401, 403, 408, 425, 429) or (status >= 500", "(status >= 500"
).by(f"{_ERRAND}::test_a_status_that_is_none_of_the_task_is_no_refusal")
peers.bug("data has the names of the protocol").edit('frozenset({"data", "metadata"})', "frozenset()").by(
    f"{_PEER}::test_names_of_the_protocol_are_read_in_both_forms_those_of_data_stay"
)
leaving = Room("hai_flow/engine/steps/remote_tasks.py", "tests/engine/test_inquiries.py")
leaving.bug("the task that a fork goes on with is cancelled").edit(
    " or _is_left_to_heir(state, step.path, step_state):", ":"
).by("tests/engine/test_inquiries.py::test_a_run_stopped_for_a_fork_leaves_it_the_tasks_it_goes_on_with")
leaving.bug("a task is cancelled for each rule by which its step ends").edit(
    "    if any(message.target == target for message in draft.outbox):\n        return\n", ""
).by("tests/engine/test_inquiries.py::test_a_step_that_ends_without_its_task_has_it_cancelled_once")
telling = Room("hai_flow/runtime/worker/remote_tasks.py", "tests/runtime/test_heirs.py")
telling.bug("a task with which a fork goes on is cancelled for the run that it was forked from").edit(
    "if body.inquiry is not None and await", "if False and await"
).by("tests/runtime/test_heirs.py::test_a_task_with_which_a_fork_goes_on_is_not_cancelled")
cutting = Room("hai_flow/engine/completion/cancellation.py", "tests/engine/test_inquiries.py")
cutting.bug("a step that is cut off forgets its task at an agent of others").edit(
    "    leave_task(draft, draft.step(path))\n", ""
).by("tests/engine/test_inquiries.py::test_a_block_that_times_out_leaves_the_tasks_of_its_agents")
resting = Room("hai_flow/runtime/worker/worker.py", "tests/runtime/test_queues.py")
resting.bug("an attempt that rests keeps its place").edit(
    "self._places.leave(queue)\n        self._resting += 1\n", "self._resting += 1\n"
).by("tests/runtime/test_queues.py::test_an_attempt_that_rests_leaves_its_place_to_others")
resting.bug("an attempt that was cut off in its rest gives a place back that it does not have").edit(
    "if not performance.rests:\n                self._places.leave(queue)", "self._places.leave(queue)"
).by("tests/runtime/test_queues.py::test_an_attempt_that_rests_leaves_its_place_to_others")
_WISHES: Final = "tests/api/test_a2a.py::test_a_message_whose_wishes_are_wrong_starts_nothing"
sends = Room("hai_flow/api/a2a/__init__.py", _WISHES)
sends.bug("a wrong historyLength is refused once the run has begun").edit(
    "should_return_at_once(params), read_history_length(params)", "should_return_at_once(params), None"
).edit(
    'return await self._result({"task": await read_task(task, history=history)})',
    'return await self._result({"task": await read_task(task, history=read_history_length(params))})',
)
tasks.bug("a name of a workflow that is no text is passed over").edit(
    "if workflow is not None and not (isinstance(workflow, str) and", "if isinstance(workflow, str) and not ("
).by(_WISHES)
