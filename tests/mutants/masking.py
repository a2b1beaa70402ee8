"""Bugs of masking: something personal is shown to who is not meant to see it, or to who reads the log of a process."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_WHOLE: Final = "tests/wire/test_pii_masking.py::test_of_a_run_that_is_personal_as_a_whole_no_value_is_sent"

# --- which values they are --------------------------------------------------------------------------------------------

marks = Room("hai_flow/definition/personal/pii_marks.py", "tests/definition/test_pii_flow.py")
marks.bug("a mark inside of a list is not followed").edit(
    "return [mask_value(item, mark[ITEM]) for item in value]", "return list(value)"
)
marks.bug("where something else stands than the mark is for it is shown").edit(
    "mark[ITEM]) for item in value]\n    return MASK", "mark[ITEM]) for item in value]\n    return value"
)
marks.bug("an object in the place of a list is shown").edit(
    "isinstance(value, Mapping) and mark.keys() != {ITEM}", "isinstance(value, Mapping)"
)
marks.bug("an item of what should be an object is not personal").edit("mark.get(ITEM, True)", "mark.get(ITEM, False)")
marks.bug("a property of what should be a list is not personal").edit(
    "return True if mark.keys() == {ITEM} else join", "return join"
)
marks.bug("a schema's references are not followed").edit("if isinstance(reference, str):", "if reference == ():")

# --- states and events ------------------------------------------------------------------------------------------------

wire = Room("hai_flow/wire/pii_masking.py", _WHOLE)
wire.bug("the input of a run's start is shown").edit(
    "event,\n            input=mask_object(event.input, personal.input),\n            state=",
    "event,\n            state=",
)
wire.bug("the output of a run's end is shown").edit(
    "return replace(event, output=mask_value(event.output, personal.output))", "return event"
)
wire.bug("the error of a run's end is shown").edit(
    "return replace(event, error=strip_personal(event.error, personal))", "return event"
)
wire.bug("a patch of the state shows what it changes").edit(
    "if not any(mark_at(personal.state, (name,)) for name in names):\n            return event\n", "return event\n"
)
wire.bug("a run that went on with another version is masked by the marks of the first").edit(
    'if whole.sha256 not in (self.personal.sha256, "") or self.personal is WHOLE:', "if self.personal is WHOLE:"
).by("tests/wire/test_pii_masking.py::test_a_run_that_goes_on_with_another_version_is_masked_as_a_whole")
wire.bug("what a tool's form marks is shown where the workflow marks nothing").edit(
    "return self.personal.after_answers(forms, is_limited=True)", "return self.personal"
).by("tests/wire/test_pii_masking.py::test_values_of_a_tools_marked_form_are_masked_and_what_they_become")
derived = Room(
    "hai_flow/definition/personal/pii_flow.py",
    "tests/wire/test_pii_masking.py::test_values_of_a_tools_marked_form_are_masked_and_what_they_become",
)
derived.bug("after one marked form the next one's values are shown").edit(
    "derive=derive,\n            answered", "answered"
)
runs = Room(
    "hai_flow/runtime/catalog/pii_catalog.py",
    "tests/attacks/test_mcp_servers.py::test_what_a_servers_form_marks_is_hidden_from_viewers_everywhere",
)
runs.bug("a list of runs shows what a tool's form marks").edit(
    ", state.pins, list_personal_forms(state))", ", state.pins)"
)
forms = Room(
    "hai_flow/store/people/pendings.py",
    "tests/attacks/test_mcp_servers.py::test_a_list_reads_the_states_of_those_runs_alone_that_asked",
)
forms.bug("a list passes over the run whose tool asked").edit("(r.copied > 0 OR asked.marked OR", "(r.copied > 0 OR")
forms.bug("a list passes over what a fork has copied").edit("(r.copied > 0 OR asked.marked", "(asked.marked")
channels = Room(
    "hai_flow/runtime/people/notifier.py",
    "tests/runtime/test_notifier.py::test_what_a_servers_form_marks_is_in_no_shared_channel",
)
channels.bug("a shared channel shows what a tool's form marks").edit(
    "self._personals.of_run(given.tenant, workflow, state)", "self._personals.of(given.tenant, workflow, state.pins)"
)

cards = Room(
    "hai_flow/runtime/people/chat_cards.py",
    "tests/api/test_chat.py::test_personal_values_are_masked_where_anybody_may_read",
)
cards.bug("a card in a room shows what a tool's form marks").edit(
    "self._personals.of_run(row.tenant, bytes.fromhex(state.sha256), state)",
    "self._personals.of(row.tenant, bytes.fromhex(state.sha256), state.pins)",
)

# --- logs of processes ------------------------------------------------------------------------------------------------

logs = Room("hai_flow/runtime/catalog/pii_catalog.py", "tests/runtime/test_personal_logs.py")
logs.bug("an exception is quoted whatever it quotes").edit("if not hides_values(plan, state, path):", "if True:")
logs.bug("a plan that is not known has nothing personal").edit(
    "return plan is None or touches", "return plan is not None and touches"
)
logs.bug("what quotes the answer to a tool's form is quoted in the log").edit(
    "touches(plan, path) or bool(list_personal_forms(state))", "touches(plan, path)"
)
refusals = Room("hai_flow/runtime/commit/batches.py", "tests/runtime/test_personal_logs.py")
refusals.bug("a refusal is quoted in the log").edit(
    "MASK if hides_values(self.run.plan, self.run.state) else answer.detail", "answer.detail"
)
back = Room("hai_flow/runtime/worker/worker.py", "tests/runtime/test_unreadable.py")
back.bug("why a run was given back quotes its values").edit(
    "type(error).__name__ if hidden else str(error) or repr(error)", "str(error) or repr(error)"
)
libraries = Room(
    "hai_flow/steps/mcp/connections.py",
    "tests/attacks/test_mcp_servers.py::test_of_a_call_with_personal_values_no_answer_is_logged",
)
libraries.bug("a library quotes a server's unreadable notification").edit(
    "logging.getLogger(_name).setLevel(logging.CRITICAL)", "logging.getLogger(_name)"
)
rows = Room(
    "hai_flow/cli/serve/logs.py", "tests/cli/test_logs.py::test_no_line_quotes_the_row_that_the_database_refused"
)
rows.bug("the database's error quotes its row in the log").edit("            _without_rows,\n", "")
