"""Bugs of the engine: decisions, people, time, and the arithmetic below them."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room
from tests.mutants.operators import Target

_T: Final = "tests/engine/test_"

_PEOPLE: Final = (f"{_T}approvals.py", f"{_T}approvals_time.py", f"{_T}approvals_edit.py")
_COMMANDS: Final = (f"{_T}pause.py", f"{_T}stopping.py", f"{_T}answers.py", f"{_T}failing.py")

# --- schemas ----------------------------------------------------------------------------------------------------------

schema_work = Room("hai_flow/definition/schemas/schema_work.py", "tests/definition/test_schema_work.py")
schema_work.bug("a schema that doubles with each reference is taken").edit(
    "if count > INSTANCES_MAX and too_many is None:", "if False:"
)
schema_work.bug("a schema that meets itself twice at each level of a value is taken").edit(
    "if last.work > PLACE_WORK_MAX:", "if False:"
)
schema_work.bug("references by an anchor are not counted").edit(
    "elif (anchor := self._anchors.get((document, unquote(fragment)))) is not None:", "elif False:"
)
schema_work.bug("what is looked at again for `unevaluated...` is counted once").edit(
    "node.again = _LOOK_AGAIN\n", "node.again = 1\n"
)
schema_work.bug("repetitions of a pattern's group are counted once").edit(
    "            totals[-1] = min(totals[-1] + last * (times - 1), _REPEATS_MAX)\n", ""
)
schema_work.bug("a value that is too much work is held against its schema").edit(
    "if units + texts <= WORK_MAX:\n            return None\n", "return None\n"
)
schema_work.bug("comparisons with a number that has a fraction count as any other").edit(
    "node.numbers += _BOUND_WORK if", "node.numbers += 0 if"
)
schema_work.bug("names that are looked for again count once").edit(
    "elif isinstance(part, Mapping):\n                    if state.again:\n",
    "elif isinstance(part, Mapping):\n                    if False:\n",
)
schema_work.bug("a class of Unicode is one state of a pattern").edit("last = of_class * classes or 1\n", "last = 1\n")
growth = Room("hai_flow/definition/expressions/cel_growth.py", "tests/definition/test_expressions_hostile.py")
growth.bug("patterns that are compiled in a loop count once").edit(
    "            self._take(bound, 2 + states * STATE_WORK)\n", ""
)
growth.bug("a pattern may be of any size").edit("if states > PATTERN_STATES_MAX:", "if False:")
templates = Room("hai_flow/definition/expressions/evaluation.py", "tests/definition/test_expressions_hostile.py")
templates.bug("the holes of one value take as long as they like").edit("if work.units > work.most:", "if False:")
expression_values = Room(
    "hai_flow/definition/expressions/cel_values.py", "tests/definition/test_expressions_hostile.py"
)
expression_values.bug("a long list is converted on the loop").edit(
    "    spend(len(value))\n    parts = [convert(", "    parts = [convert("
).edit("    spend(count if listed else MEMBER_PARTS * count)\n", "")
expression_values.bug("a member counts as an item").edit("MEMBER_PARTS: Final = 2", "MEMBER_PARTS: Final = 1")
schemas = Room("hai_flow/definition/schemas/schemas.py", "tests/definition/test_schema_work.py")
schemas.bug("integers of many digits are compared without end").edit(
    "or self._measure_huge(fitted) > WORK_MAX", "or False"
).by("tests/definition/test_schema_work.py::test_integers_of_many_digits_are_made_only_where_compared_in_time")
schema_defaults = Room("hai_flow/definition/schemas/schema_defaults.py", "tests/definition/test_schema_work.py")
schema_defaults.bug("a large default counts as one step").edit("                    self._take(size)\n", "").by(
    "tests/definition/test_schema_work.py::test_large_defaults_are_counted_for_each_object_that_lacks_them"
)
schemas.bug("all that is wrong with a large value is told at once").edit(
    "if self.is_explainable(value):\n", "if True:\n"
)
schemas.bug("faults of a schema are looked for without an end").edit("if faulty >= _FAULTS_MAX:\n", "if False:\n")

widening = Room("hai_flow/definition/expressions/cel_widening.py", "tests/definition/test_expressions.py")
widening.bug("whole numbers of a literal list count as data").edit(
    'return f"list:{self._derive_common_kind(tree.elements, bound)}"\n', 'return "list:dyn"\n'
)
schedules = Room("hai_flow/schedule.py", "tests/definition/test_schedules.py")
schedules.bug("a step that does not divide its range is not seen").edit(
    "(size % step == 0 and begin - first < step)", "True"
)
zones = Room("hai_flow/definition/names/zones.py", "tests/definition/test_schedules.py")
zones.bug("the sign of Etc/GMT is not turned").edit(
    'turned = "-" if offset["sign"] == "+" else "+"', 'turned = offset["sign"]'
)
zones.bug("a zone of half an hour from UTC gets no place").edit("else _BETWEEN.get((ahead, minutes))", "else None")
secret = Room("hai_flow/definition/names/known_names.py", "tests/definition/test_literal_arguments.py")
secret.bug("a secret may be computed, or have a default").edit("return check_secret(chain)\n", "return None\n")
cel = Room("hai_flow/definition/expressions/cel.py", "tests/definition/test_expressions_in_parts.py")
cel.bug("an expression reads values of any number of parts").edit(
    "THIS_THREAD.work.units - before > PARTS_MAX", "THIS_THREAD.work.units < before"
).by("tests/definition/test_expressions_hostile.py::test_a_value_of_very_many_parts_is_not_handed_to_the_library")
cel.bug("a loop copies its list for each item that it adds").edit(
    "value = self._run_in_parts(data, sizes)\n", "value = None\n"
)
cel.bug("a long loop keeps all other threads waiting from its first round to its last").edit(
    "turns = self._parted if work > _TURN_WORK else None\n", "turns = None\n"
)
cel.bug("a program that takes its budget up is begun again").edit(
    "if _OVER_BUDGET in text and longest > _AGAIN_MAX:\n", "if False:\n"
)

# --- people -----------------------------------------------------------------------------------------------------------

admission = Room("hai_flow/engine/pendings/validate_answers.py", *_PEOPLE)
admission.bug("who must not vote is not refused").edit(
    "_demand_eligible(draft, pending, by)\n    if isinstance(reading", "if isinstance(reading"
)
admission.bug("a question that has expired takes an answer").edit(
    "_demand_open(draft, pending)\n    _demand_eligible", "_demand_eligible"
)
admission.bug("a deadline that has passed refuses nobody until its timer fires").edit(
    'if pending.status == "expired" or _is_overdue(draft, pending):', 'if pending.status == "expired":'
)
admission.bug("somebody votes twice").edit(
    "if earlier := votes.describe_earlier_vote(pending, by):", "if earlier := str():"
)
admission.bug("the same answer again is refused").edit(
    "if isinstance(reading, Reading) and _is_known(pending, reading, by):", "if False:"
)
admission.bug("an answer that says something else than the one that decided is taken for it").edit(
    '("open", "expired", "voided") and reading.sha == pending.answer_sha:', '("open", "expired", "voided"):'
)
admission.bug("of two different answers to one question in one request the first counts").edit(
    "if read.setdefault(answer.id, entry)[1].sha != entry[1].sha:", "if read.setdefault(answer.id, entry) is None:"
).by(f"{_T}answers.py", f"{_T}approvals.py")
admission.bug("a requester tells what decides whether people are asked").by("tests/engine/test_bypass.py").edit(
    'if pending.opened.kind == "doubt" and', "if False and"
)
admission.bug("a requester has no call in doubt done again").by("tests/engine/test_bypass.py").edit(
    " and reading.outcome == HAPPENED:", ":"
)
deciders = Room("hai_flow/engine/pendings/votes.py", *_PEOPLE)
deciders.bug("a delegate votes beside the one they vote for").edit(
    "spent, own = set(ids_of_voter(principal)),", "spent, own = {principal.id},"
)
deciding = Room("hai_flow/engine/pendings/decide.py", *_PEOPLE)
deciding.bug("an edit leaves the digest as it was").edit(
    "args=reading.args, digest=bound, ", "args=reading.args, digest=opened.digest, "
).by(f"{_T}approvals_edit.py", f"{_T}approvals_in_runs.py")
deciding.bug("after an edit the title says the arguments that stood there before").edit(
    "digest=bound, **changed)", "digest=bound)"
).by(f"{_T}approvals_edit.py")
deciding.bug("a rejection goes on behind the step").edit(
    "_reject(draft, step, result, message)\n", "loop.finish(draft, step, result, approval=result)\n"
)
doubts = Room("hai_flow/engine/pendings/unknown_outcome.py", *_PEOPLE)
doubts.bug("a late result settles the doubt about another attempt").edit(
    'or doubt.opened.kind != "doubt" or state.steps[path].attempt != attempt:', 'or doubt.opened.kind != "doubt":'
).by(f"{_T}approvals_in_runs.py")
gates = Room("hai_flow/engine/pendings/gates.py", *_PEOPLE)
gates.bug("a call begins with arguments that nobody approved").edit(
    "return passed is not None and passed.opened.args == args", "return passed is not None"
).by(f"{_T}approvals_in_runs.py", f"{_T}approvals_edit.py", f"{_T}approvals.py")
gates.bug("a gate that was rejected lets the call begin").edit(
    'return gate if passed and gate.value["decision"] == votes.APPROVE else None', "return gate if passed else None"
).by(f"{_T}approvals_in_runs.py", f"{_T}approvals_edit.py", f"{_T}approvals_time.py", f"{_T}approvals.py")
gates.bug("what is performed is not compared with what was shown").edit(
    "elif compute_digest_with(draft.state, approved.opened, args) != approved.opened.digest:\n", "elif False:\n"
).by(f"{_T}approvals_in_runs.py", f"{_T}approvals_edit.py")
gates.bug("an error in `when` skips the gate").edit(
    "return gate.when is None or draft.truth(gate.when, step, args=values.loads(args))",
    "try:\n"
    "        return gate.when is None or draft.truth(gate.when, step, args=values.loads(args))\n"
    "    except Raised:\n"
    "        return False",
).by(f"{_T}approvals_in_runs.py", f"{_T}approvals_edit.py", f"{_T}approvals.py")
stages = Room("hai_flow/engine/pendings/deadlines.py", *_PEOPLE)
stages.bug("reminders are those of the first stage for ever").edit(
    "rules.find_due(pending.since, rules.remind", "rules.find_due(pending.opened.at, rules.remind"
)
stages.bug("a pause does not halt the clock of a question that it should halt").edit(
    'kind="halting_deadline" if halts else "deadline", due=due)', 'kind="deadline", due=due)'
)

answers = Room(
    "hai_flow/engine/pendings/answers.py",
    f"{_T}approvals_edit.py",
    f"{_T}approvals.py",
    f"{_T}answers.py",
    f"{_T}approvals_in_runs.py",
)
answers.bug("an approval of another content counts").edit(
    "if digest is not None and digest != opened.digest:\n", "if False:\n"
)
answers.bug("a part of an answer that the question does not take is dropped").edit(
    "if unexpected:\n        takes", "if False:\n        takes"
).by("tests/api/test_answer_forms.py")
answers.bug("a member of an answer that nobody reads is dropped").edit(
    "unknown = given.keys() - set(expected)\n", "unknown: set[str] = set()\n"
).by("tests/api/test_answer_forms.py")
answers.bug("edited arguments in part keep the others as they are").edit(
    "missing = args.keys() - edited.keys()\n", "missing: set[str] = set()\n"
).by("tests/api/test_answer_forms.py")
answers.bug("a form is filled in with a stale digest").edit(
    '        _demand_digest(opened, posted["digest"])\n', ""
).by("tests/api/test_answer_forms.py")
answers.bug("a digest is the same in every run").edit(
    "values.dumps([workflow_sha256, run_id, content])", "values.dumps([workflow_sha256, content])"
)
answers.bug("a digest is the same in every version").edit(
    "values.dumps([workflow_sha256, run_id, content])", "values.dumps([run_id, content])"
)
answers.bug("a digest does not cover the evidence").edit(
    "[opened.path, opened.args, opened.evidence, *texts]", "[opened.path, opened.args, *texts]"
)
answers.bug("a digest does not cover the arguments").edit(
    "[opened.path, opened.args, opened.evidence, *texts]", "[opened.path, opened.evidence, *texts]"
)
answers.bug("1 approves, since it equals true").edit("    if raw is True:\n", "    if raw == True:\n").edit(
    "approved is True or approved is False or approved in", "approved in (True, False) or approved in"
)
answers.bug("what is not understood approves").edit(
    'raise answer_refusal(opened, "expected yes, no, {approved}',
    'return {"decision": "approve"}\n    raise answer_refusal(opened, "expected yes, no, {approved}',
)
answers.bug("a rejection may edit").edit("if edits is not None and decision != votes.APPROVE:", "if False:")
answers.bug("any argument may be edited").edit(
    "if allowed is not True and pointer not in", "if allowed is False and pointer not in"
)
answers.bug("an edit changes the type of an argument").edit(
    "if tool is None and _describe_json_type(before) != _describe_json_type(value):", "if False:"
)
answers.bug("values that do not fit the form are taken").edit(
    "chosen = _validate(opened, form, form.with_defaults({} if given is None else given))",
    "chosen = form.with_defaults({} if given is None else given)",
)
answers.bug("who says that a call happened need not say with what result").edit(
    'if decision == HAPPENED and "result" not in fields:', "if False:"
)

# --- steps ------------------------------------------------------------------------------------------------------------

_ENDS: Final = (f"{_T}undo.py", f"{_T}failing.py", f"{_T}stopping.py", f"{_T}blocks.py")
undo_scopes = Room("hai_flow/engine/state/undo_scopes.py", *_ENDS)
undo_scopes.bug("what finished first is undone first").edit(
    "(ends[path], path) for path in undoables", "(-ends[path], path) for path in undoables"
)
undo_scopes.bug("an error undoes what a `finally` has done").edit(
    "(is_inside(path, scope) and not is_in_cleanup(path, scope))", "is_inside(path, scope)"
)
failing = Room("hai_flow/engine/completion/fail.py", *_ENDS)
failing.bug("a `finally` does not run behind a failure").edit(
    'return (None, "") if step.finally_ is None or cleaned else (FINALLY, step.finally_)', 'return None, ""'
)
failing.bug("a `finally` runs twice").edit("if step.finally_ is None or cleaned else", "if step.finally_ is None else")
failing.bug("a `catch` catches what it has raised itself").edit(
    "None if cleaned or (known is not None and known.caught) else catching", "catching"
)
failing.bug("an error in a `finally` hides the one before it").edit(
    "return Raise(owner, step_state.error)  # an earlier error stands\n", "return Raise(owner, error)\n"
)
failing.bug("an error inside a handler forgets what it handled").edit(
    "cause = draft.state.steps[path].error if error.cause is None else", "cause = None if error.cause is None else"
)
attempts = Room("hai_flow/engine/handlers/attempts.py", *_ENDS)
attempts.bug("an effect that may happen only once is tried again").edit(
    '        if step.delivery == "at_most_once":\n            return None\n', ""
)
attempts.bug("a message that an attempt was streaming stays open when it fails").edit(
    "close_message(draft, step.path, aborted=True)\n    if is_left_to_the_stop", "if is_left_to_the_stop"
).by(f"{_T}failing.py", "tests/wire/test_hai_encoder.py", f"{_T}values.py")
parallel = Room("hai_flow/engine/blocks/parallel.py", *_ENDS)
parallel.bug("a race is over with the first branch that fails").edit(
    "        if finished + joined.left - joined.dropped >= needed:\n            return None\n", ""
)
parallel.bug("the other branches go on when one has failed").edit(
    'return End(step, Ending("failed", error=error, reason=f"branch {branch} failed"))', "return FailStep(step, error)"
)
calls = Room("hai_flow/engine/steps/tool_calls.py", f"{_T}growing_calls.py")
calls.bug("a call that was shown stays open behind a doubt").edit(
    "for n in reversed(range(asked)):", "for n in range(asked)[-1:]:"
).by(f"{_T}approvals_in_runs.py")
calls.bug("a call that was growing stays open when its attempt is over").edit(
    "_close_growing_call(draft, path, aborted)\n", "pass\n"
)
calls.bug("a call that broke off is told as one that was shown").edit(
    "result = ABORTED if aborted else SHOWN", "result = SHOWN"
)
calls.bug("half a call that its model has written stays open").edit(
    "    if aborted:\n        end_written(draft, path, None)\n", ""
).by(f"{_T}written_calls.py")
calls.bug("a step goes on with a call that was ended as broken off").edit(
    "return None if call is None or call.error == ABORTED else call", "return call"
).by(f"{_T}written_calls.py")
calls.bug("a frontend is not told that a call which it has seen will not be made").edit(
    "if refusal is not None:\n", "if False:\n"
).by(f"{_T}written_calls.py")
ids = Room("hai_flow/engine/state/ids.py", f"{_T}written_calls.py")
ids.bug("another attempt goes on with the half of a call that the one before has written").edit(
    'pending_id(run_id, call + "\\x00written", attempt)', 'pending_id(run_id, call + "\\x00written", 1)'
)

# --- shared state -----------------------------------------------------------------------------------------------------

shared = Room("hai_flow/engine/state/shared_state.py", f"{_T}shared_state.py")
shared.bug("a client writes what the workflow keeps to itself").edit(
    "if variable.client and name in posted", "if name in posted"
)
shared.bug("what was kept by another version and does not fit goes on").edit(
    " and not _faults(variable, kept[name])", ""
)
shared.bug("a run goes on with what its thread does not keep").edit(
    "if variable.kept and name in kept", "if name in kept"
)
shared.bug("a state that does not fit is taken from a client").edit("if faults:\n", "if False:\n")

# --- going back, going past -------------------------------------------------------------------------------------------

forked = Room("hai_flow/engine/runs/fork.py", f"{_T}forking.py")
forked.bug("a run is forked over what is in flight").edit("if flying:\n", "if False:\n")
forked.bug("a run is forked in the middle of a decision").edit(
    "if following is not None and not between_turns and", "if False and following is not None and not between_turns and"
)
forked.bug("an `approve` is inherited with another input").edit("(edited or not waited)", "not waited")
forked.bug("a fork waits for a callback that comes to another run").edit(
    "type.startswith(wait_for_event.CALLBACK)", "not type"
)
forked.bug("the stop of a run that is forked within a turn cleans up for it").edit(
    "if step.turn == there.turn.n}", "if not path}"
)
forked_twice = Room("hai_flow/engine/runs/fork.py", f"{_T}bypass.py")
forked_twice.bug("one approval pays in two runs").edit("if place is not None and again:\n", "if False:\n")

skipped = Room("hai_flow/engine/steps/skipping.py", f"{_T}skipping.py")
skipped.bug("who skips an `approve` may say yes").edit("command.output is not None:", "False:")
skipped.bug("a step is skipped that is being performed").edit("if path in open_attempts(draft.state):", "if False:")
skipped.bug("a step that is skipped leaves its `finally` out").edit(
    "if was_open and step.finally_ is not None:", "if False:"
)
skipped.bug("what cleans up is skipped").edit("if is_in_cleanup(step.path):\n", "if False:\n")

passing = Room("hai_flow/engine/pendings/bypass.py", f"{_T}bypass.py")
passing.bug("what was rejected is skipped").edit("if said_no is not None:\n", "if False:\n")
passing.bug("one of two that must approve skips alone").edit(
    "if votes.verdict(rules, after) == votes.APPROVE:", "if True:"
)
passing.bug("a block is skipped in which people decide").edit("if inside is Asks.DECIDERS or", "if")
passing.bug("a run below is skipped that asks people").edit("below = command.asks_below and", "below = False and")
passing.bug("an operator answers in the requester's place").edit(
    "(command.output is None and _is_for_requester_alone(pending))", "_is_for_requester_alone(pending)"
)
passing.bug("a no is asked anew by anybody").edit(
    "None:\n    fault = ineligible(pending, who, world)\n", "None:\n    fault = None\n"
)
passing.bug("a fork keeps the approval of a run below").edit(
    'if pending.opened.kind == "approve" and _has', "if False and _has"
)
passing.bug("a fork keeps what was skipped").edit('(step.outcome == "skipped" and step.given)', "False")
passing.bug("a fork keeps an answer to another input").edit(
    "for pending in there.questions.values() if edited else ():", "for pending in ():"
)
passing.bug("a fork is always behind the no").edit("if not _is_past(there, path):", "if False:")
passing.bug("who is behind a run moves it to any version").edit(
    "if not _is_of_the_request(who, world):\n", "if True:\n"
)

guarding = Room("hai_flow/definition/checks/question_guards.py", f"{_T}question_guards.py")
guarding.bug("a condition in front of a question is none").edit(
    "return [to_plain(step.condition), step", "return [None, step"
)
guarding.bug("a block around a question is as any other").edit(
    "return [_guard(each) for each in _around(plan, step)]", "return [_guard(step)]"
)
guarding.bug("who may catch a no is not looked at").edit(
    "step.body, _describe_way(step), caught,", "step.body, _describe_way(step), [],"
)
guarding.bug("a payment goes in front of its question").edit("or _is_behind(old, orders[0], question, was)", "or False")
guarding.bug("another payment goes in front of a question").edit(
    "if was is None or _act(was)", "if was is not None and _act(was)"
)

excluding = Room("hai_flow/engine/pendings/selectors.py", f"{_T}bypass.py")
excluding.bug("who caused a run decides").edit("if selector == REQUESTER and not holdings", "if False and not holdings")
staging = Room("hai_flow/engine/pendings/deadlines.py", f"{_T}approvals_time.py")
staging.bug("the no behind a stage that nobody can decide is not reached").edit(
    "policy.expiry.outcome == votes.REJECT:", "False:"
)

# --- commands ---------------------------------------------------------------------------------------------------------

evolving = Room("hai_flow/engine/evolve/evolve.py", f"{_T}transitions.py")
evolving.bug("an event of a clock that is behind takes the run back in time").edit(
    "event = replace(event, at=state.at)\n", "pass\n"
)

decide = Room("hai_flow/engine/decide.py", *_COMMANDS)
decide.bug("a clock that goes back makes the run's time go back").edit(
    "max(now, state.at), limits, log_bytes,", "now, limits, log_bytes,"
).by(f"{_T}pause.py", f"{_T}transitions.py")
decide.bug("a command is decided before what was due before it").edit(
    "undecided = not pass_time_before(draft, command) and not for_time", "undecided = False"
).by(f"{_T}time.py")
going_on = Room("hai_flow/engine/advance.py", *_COMMANDS)
going_on.bug("a turn ends while an effect is in flight").edit(
    "if is_working(state) or not state.turn_open:\n        return\n", "if not state.turn_open:\n        return\n"
).by(f"{_T}transitions.py", f"{_T}pause.py", f"{_T}blocks.py")
bare = Room("hai_flow/definition/plan.py", "tests/corpus/test_corpus.py")
bare.bug("a call that frontends see is passed over as one that has nothing but its arguments").edit(
    "            and not self.expose\n", ""
).by("tests/corpus/test_corpus.py::test_bare_calls_are_decided_as_steps_that_have_something_more")
bare.bug("a call of a frontend is performed by the server").edit(
    "            and not isinstance(verb.tool, FrontendTool)\n", ""
).by("tests/corpus/test_corpus.py::test_bare_calls_are_decided_as_steps_that_have_something_more")
going_on.bug("a turn stays open while only people can move the run").edit('draft.end_turn("waiting")\n', "pass\n")
redeciding = Room("hai_flow/engine/runs/replay.py", f"{_T}redeciding.py")
redeciding.bug("a time-out is made again without what had come of the answer").edit(
    "yield c.TimerFired(_list_receipts(events))", "yield c.TimerFired()"
).by("tests/foreign/test_silence.py::test_a_step_left_unanswered_by_a_real_framework_ends_at_its_timeout")
redeciding.bug("a result that came late is a decision that does not follow").edit(
    "for ended_at in (None, state.at, 0):", "for ended_at in (None, state.at):"
).by(f"{_T}redeciding.py::test_an_attempt_may_end_before_work_due_at_its_result")

passing_time = Room("hai_flow/engine/due.py", *_COMMANDS)
passing_time.bug("what timed out does not cut off its late chunks").edit(
    "draft.cut = True\n        budget.charge", "budget.charge"
).by(f"{_T}failing.py", f"{_T}time.py")
passing_time.bug("what is due happens as of now").edit("        draft.now = max(due.at, since)\n", "").by(
    f"{_T}time.py"
)
passing_time.bug("what is due at the instant of a command happens behind it").edit(
    "while is_due(draft.state, until, attempts=attempts):", "while is_due(draft.state, until - 1, attempts=attempts):"
).by(f"{_T}time.py")
passing_time.bug("a signal is decided as of when it is offered").edit(
    "min(draft.clock, command.sent_at) if isinstance(command, c.Signal) else draft.clock", "draft.clock"
).by(f"{_T}time.py")
passing_time.bug("a result is decided as of when it is recorded").edit(
    "draft.clock if command.ended_at is None else min(draft.clock, command.ended_at)", "draft.clock"
).by(f"{_T}time.py")
passing_time.bug("a run that can't be stored can't be stopped, for what is due before that").edit(
    '    if draft.state.status == "needs_attention" and isinstance(command, _ENDINGS):\n        return True\n', ""
).by(f"{_T}time.py")
passing_time.bug("what is due has no bounds").edit("if passed and not draft.is_within_bounds():\n", "if False:\n").by(
    f"{_T}time.py"
)
beginning = Room("hai_flow/engine/handlers/start.py", *_COMMANDS)
beginning.bug("a queued run begins without being admitted").edit(
    "    if command.queued:\n        concurrency_slots.queue(draft, cancels=command.cancels)\n", ""
).by(f"{_T}queueing.py")
clock = Room("hai_flow/engine/handlers/clock.py", *_COMMANDS)
clock.bug("a jump goes by what begins on the way").edit(
    "step = remaining if timer is None else min(remaining, timer.due - draft.clock)", "step = remaining"
).by(f"{_T}jump.py")
clock.bug("a jump goes on though the run works").edit(
    "if working or len(draft.outbox) > sent:\n", "if len(draft.outbox) > sent:\n"
).by(f"{_T}jump.py")
clock.bug("a jump goes on before the run has heard what is stored for it").edit(
    "if working or len(draft.outbox) > sent:\n", "if working:\n"
).by(f"{_T}jump.py")
clock.bug("an attempt that is in flight keeps time from passing").edit(
    "any(attempts.get(path) != attempt for path, attempt in open_attempts(draft.state).items())",
    "bool(open_attempts(draft.state))",
).by(f"{_T}jump.py")
clock.bug("a run that has ended jumps").edit("if draft.state.status not in _ON_A_CLOCK:\n", "if False:\n").by(
    f"{_T}jump.py"
)
control = Room("hai_flow/engine/handlers/control.py", *_COMMANDS)
control.bug("a child that nobody waits for goes on alone").edit(
    'if draft.state.status == "failed" and parent is not None:\n', "if False:\n"
).by(f"{_T}retry_children.py")
control.bug("a child that still stops is not asked again").edit(
    'Rejected(503, "run_active"', 'Rejected(409, "run_active"'
).by(f"{_T}retry_children.py")
control.bug("a resumed run does not see what fell due while it was paused").edit(
    'if status != "queued":\n        pass_time(draft, draft.clock, since=draft.clock)\n', 'if status != "queued":\n'
)
control.bug("what fell due while the run was paused happens as of then").edit(
    'if status != "queued":\n        pass_time(draft, draft.clock, since=draft.clock)\n',
    'if status != "queued":\n        pass_time(draft, draft.clock)\n',
).by(f"{_T}time.py", f"{_T}pause.py")
control.bug("a failed run goes on without a slot").edit(
    'if was == "failed" and draft.state.key is not None:', "if False:"
).by(f"{_T}queueing.py")
ending = Room("hai_flow/engine/handlers/terminate.py", *_COMMANDS)
ending.bug("a stop waits for ever for what does not react").edit(
    'if in_flight:\n        draft.emit(e.TimerSet, path="", kind="grace"',
    'if False:\n        draft.emit(e.TimerSet, path="", kind="grace"',
)
ending.bug("children are not told of a stop").edit(
    '    children.pass_down(draft, "stop", command.by, command.reason)\n', ""
).by(f"{_T}children.py")
outcomes = Room("hai_flow/engine/handlers/outcomes.py", *_COMMANDS)
outcomes.bug("the result of an attempt that is closed is recorded").edit(
    "elif draft.state.attempts.get(path) != attempt:\n        raise", "elif False:\n        raise"
)
outcomes.bug("a lost attempt does not cut off its late chunks").edit("draft.cut = True\n    in_stop", "in_stop")
outcomes.bug("five losses together condemn a run, though another effect may be the culprit").edit(
    "and alone and draft.state.status in", "and draft.state.status in"
)

# --- children, signals ------------------------------------------------------------------------------------------------

children = Room("hai_flow/engine/runs/children.py", f"{_T}children.py", f"{_T}retry_children.py")
children.bug("a Retry begins a failed child anew").edit(
    "return last if last.rounds == state.steps[step.path].rounds else None\n", "return None\n"
)
children.bug("a child goes on with the arguments that its step had before").edit(
    " or last.args != hash_args(args):", ":"
)
children.bug("what a child took before a Retry is counted twice").edit(
    "calls = command.tool_calls - (0 if counted is None else counted.calls)\n", "calls = command.tool_calls\n"
)
children.bug("children have children without end").edit("if depth > DEPTH_MAX:\n", "if False:\n")
children.bug("a child's end is taken for that of another attempt").edit(
    "if path not in draft.state.children or draft.state.attempts.get(path) != attempt:",
    "if path not in draft.state.children:",
)
children.bug("a parent does not hear that its child has ended").edit(
    "if state.ended and not (before.ended and", "if False and not (before.ended and"
)
children.bug("a stop stops the children that clean up").edit(
    'if what != "stop" or not is_in_cleanup(path):', "if True:"
)
children.bug("a child has its parent's whole timeout").edit(
    "max(0, timeout - state.compute_working_time(draft.now))", "timeout"
)
children.bug("a child that ran out of time was stopped").edit("elif command.reason == TIMED_OUT:\n", "elif False:\n")

signals = Room("hai_flow/engine/steps/wait_for_event.py", f"{_T}signals.py")
signals.bug("a signal is taken twice").edit(
    "before, is_accepted = len(draft.events), is_taken(draft.state, command)",
    "before, is_accepted = len(draft.events), False",
)
signals.bug("a signal that was left behind counts as taken").edit(
    "is_heard(heard, signal) and signal.id not in heard.left", "is_heard(heard, signal)"
)
signals.bug("a signal counts as new once its id is forgotten").edit(
    "heard = state.heard.get(signal.name)\n    return heard", "heard = None\n    return heard"
)
signals.bug("a run takes a signal from before it began").edit(
    "(command.own or command.sent_at >= draft.state.started_at)", "True"
)
signals.bug("a signal is for the step that has waited least").edit(
    "return sorted(waiting, key=lambda path: (state.steps[path].started_at, path))",
    "return sorted(waiting, key=lambda path: (-state.steps[path].started_at, path))",
)
signals.bug("a signal that does not match is taken").edit(
    "if subscription.match is None:\n        return True\n", "return True\n"
)
signals.bug("a match that fails takes the signal").edit(
    "path=step.path)\n        return False\n", "path=step.path)\n        return True\n"
)
signals.bug("of several signals one counts for two").edit("if number not in met and _matches(", "if _matches(")
signals.bug("any one of several signals is enough").edit(
    'if isinstance(verb, WaitFor) and verb.mode == "all" else ()', "if False else ()"
)

# --- budgets ----------------------------------------------------------------------------------------------------------

agent = Room("hai_flow/engine/blocks/agent.py", f"{_T}retry.py", f"{_T}agents.py")
agent.bug("an agent that is begun anew counts its answers from 0 again").edit(
    "first = loop_rules.next_number(draft, step)\n", "first = 0\n"
)
agent.bug("a Retry behind `max_turns` begins another conversation").edit(
    "return None if loop is None or loop.last < 0 else paths.iteration(step.path, loop.last + 1)\n", "return None\n"
)
agent.bug("a call whose undo failed is told to the model").edit(
    '("approval.digest", UNDO_FAILED)', '("approval.digest",)'
)
conversation = Room("hai_flow/engine/steps/agents.py", f"{_T}retry.py", f"{_T}agents.py")
conversation.bug("behind a Retry an agent fails after one more answer").edit(
    "    iterations = loop.last + 1 - max(loop.begun, loop.since)\n", "    iterations = loop.last + 1 - loop.begun\n"
).edit("agent, loop, since=loop.since) >= times", "agent, loop) >= times")
conversation.bug("summaries count for `max_turns`").edit(
    "return sum(not is_summary(answer_in(state, paths.iteration(agent, number))) for number in numbers)\n",
    "return len(numbers)\n",
)
conversation.bug("a model is shown its answer that was not the object").edit(
    "None if is_in_vain(state, path) else ", ""
)
conversation.bug("a response is told to the model as a denial").edit(
    "if error is not None and error.code == RESPONDED:\n", "if False:\n"
)
conversation.bug("`stop_when` takes a response for a denial").edit(" and error.code != RESPONDED\n", "\n")
again = Room("hai_flow/engine/steps/start_step.py", f"{_T}retry.py", f"{_T}loops.py")
again.bug("a block that was cut off behind all that is in it begins anew").edit(
    "behind = block.behind(draft, step) if block is not None and cut_short else None\n", "behind = None\n"
)
again.bug("an iteration that was cut off before it began is over at once").edit(
    "if step.is_iteration and not draft.state.steps[step.path].verb:\n", "if False:\n"
)
budget = Room("hai_flow/engine/state/budget.py", f"{_T}models.py", f"{_T}agents.py")
budget.bug("models that are being asked reserve nothing").edit(
    "used + others.tokens + own.tokens > limits.tokens", "used + own.tokens > limits.tokens"
)
budget.bug("models that are being asked reserve no money").edit(
    "cost + others.cost + own.cost > limits.cost_usd", "cost + own.cost > limits.cost_usd"
)
budget.bug("the prompt of a model is not counted").edit(
    "return _Expected(prompt + answer, _cost", "return _Expected(answer, _cost"
)
budget.bug("a lost answer is not charged for what it had said").edit(
    "prompt,\n        estimate,\n", "prompt,\n        0,\n"
)
budget.bug("nothing is reserved for the runs below").edit(
    "tokens, cost = tokens + (allowance.tokens or 0), cost + (allowance.cost_usd or 0.0)", "pass"
).by(f"{_T}allowances.py")
budget.bug("the first of several children gets all that is left").edit(
    "shares, reserved = 1 + _count_others_without(draft, step.path), _sum_reserved(draft)",
    "shares, reserved = 1, _sum_reserved(draft)",
).by(f"{_T}allowances.py")
children.bug("a child that its step has given up is never settled").edit(
    "given_up = _find_abandoned_child(draft, command)\n", "given_up = None\n"
).by(f"{_T}allowances.py")
budget.bug("an agent's results cost no tokens").edit(" + sum(len(result) for _, result in exchange.results)", "")
budget.bug("an answer is expected to be as long as any, whatever the others were").edit(
    "usual = state.spent.output // calls if calls else ANSWER_TOKENS", "usual = ANSWER_TOKENS"
)

calendars = Room("hai_flow/definition/people/calendars.py", "tests/definition/test_calendars.py")
calendars.bug("a holiday is a working day").edit(" and day.isoformat() not in self.holidays", "")
calendars.bug("a question on a Sunday has its Monday twice").edit(
    "minute >= self.hours[1] or not self.is_working(day)", "False"
)
working = Room("hai_flow/engine/pendings/policies.py", f"{_T}working_days.py")
working.bug("a calendar that is not there is Monday to Friday").edit("if calendar is None:\n", "if not name:\n")
recorded = Room("hai_flow/engine/runs/replay.py", f"{_T}working_days.py")
recorded.bug("a log is decided again by the calendars of today").edit(
    "    limits = _with_recorded_calendar(plan, events, limits)\n", ""
)

_APPROVALS: Final = ("tests/engine/test_approvals.py", "tests/engine/test_approvals_time.py")

TARGETS: Final = (
    Target("hai_flow/engine/state/ids.py", ("tests/engine/test_ids.py",)),
    Target("hai_flow/definition/paths.py", ("tests/definition/test_paths.py", "tests/engine/test_instances.py")),
    Target("hai_flow/engine/state/instances.py", ("tests/engine/test_instances.py", "tests/engine/test_agents.py")),
    Target("hai_flow/engine/state/jobs.py", ("tests/engine/test_jobs.py", "tests/engine/test_time.py")),
    Target("hai_flow/engine/steps/next_iteration.py", ("tests/engine/test_loops.py",)),
    Target("hai_flow/engine/state/patch.py", ("tests/engine/test_patch.py",)),
    Target("hai_flow/primitives/json_pointers.py", ("tests/test_json_pointers.py",)),
    Target(
        "hai_flow/engine/pendings/policies.py",
        (
            "tests/engine/test_policies.py",
            "tests/engine/test_approvals_time.py",
            "tests/engine/test_picks.py",
            "tests/engine/test_working_days.py",
        ),
    ),
    Target(
        "hai_flow/engine/pendings/votes.py",
        (
            "tests/engine/test_policies.py",
            *_APPROVALS,
            "tests/engine/test_approvals_edit.py",
            "tests/engine/test_picks.py",
            "tests/engine/test_working_days.py",
        ),
    ),
    Target("hai_flow/engine/pendings/quorum.py", ("tests/engine/test_quorum.py",)),
    Target("hai_flow/engine/state/retry_policy.py", ("tests/engine/test_failing.py",)),
    Target(
        "hai_flow/engine/pendings/selectors.py", ("tests/engine/test_selectors.py", "tests/engine/test_approvals.py")
    ),
    Target("hai_flow/engine/steps/concurrency_slots.py", ("tests/engine/test_queueing.py",)),
    Target("hai_flow/engine/runs/start_run.py", ("tests/engine/test_queueing.py", "tests/engine/test_values.py")),
    Target("hai_flow/engine/state/snapshot.py", ("tests/engine/test_approvals.py", "tests/engine/test_vocabulary.py")),
)
