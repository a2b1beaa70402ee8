"""Bugs by which one bad row harms those beside it, and by which something is kept, shared or counted too long."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_UNREADABLE: Final = "tests/api/test_unreadable_neighbours.py"

catalog = Room("hai_flow/runtime/catalog/catalog.py", _UNREADABLE)
catalog.bug("a document of a newer release is taken for a mistake of the caller").edit(
    "except DefinitionError as error:\n            raise Unreadable(",
    "except UnicodeError as error:\n            raise Unreadable(",
).by(f"{_UNREADABLE}::test_every_list_is_answered_with_the_row_that_can_be_read")
catalog.bug("a child that only another release can read keeps its parent from being published").edit(
    "with suppress(Rejected, Unreadable):", "with suppress(Rejected):"
).by(f"{_UNREADABLE}::test_a_workflow_of_a_newer_release_keeps_no_other_from_being_published")
triggers = Room("hai_flow/runtime/messaging/triggers.py", _UNREADABLE)
triggers.bug("a later version that only another release can read keeps this one from being published").edit(
    "except Unreadable:\n            return\n        WORK_FOR",
    "except AttributeError:\n            return\n        WORK_FOR",
).by(f"{_UNREADABLE}::test_a_workflow_of_a_newer_release_keeps_no_other_from_being_published")
problems = Room("hai_flow/api/http/problems.py", _UNREADABLE)
problems.bug("a service that calls back reads what the workflow says").edit(
    "if find_caller(request) is None:\n        detail =", "if False:\n        detail ="
).by(f"{_UNREADABLE}::test_a_callback_for_an_unreadable_run_is_told_to_retry_and_no_more")
bulk = Room("hai_flow/api/rest/people/inbox.py", _UNREADABLE)
bulk.bug("one answer that can't be read refuses those beside it").edit(
    "except (Rejected, Unreadable) as error:", "except Rejected as error:"
).by(f"{_UNREADABLE}::test_an_answer_to_an_unreadable_run_is_refused_alone_among_several")

mcp = Room("hai_flow/steps/mcp/runner.py", "tests/steps/test_mcp_connections.py")
mcp.bug("addresses of MCP servers that were only named are kept for ever").edit("if each.has_ended]:", "if False]:")
mcp.bug("however many MCP servers there are, all stay connected").edit(
    "len(self._connections) - CONNECTIONS_MAX + 1", "0"
).by("tests/steps/test_mcp_connections.py::test_of_five_hundred_used_servers_a_hundred_stay_connected")
mcp.bug("of too many connections those used last are closed").edit(
    "key=lambda found: found[0],\n", "key=lambda found: -found[0],\n"
).by("tests/steps/test_mcp_connections.py::test_of_five_hundred_used_servers_a_hundred_stay_connected")
connections = Room("hai_flow/steps/mcp/connections.py", "tests/steps/test_mcp_connections.py")
_OF_SERVERS: Final = "tests/steps/test_mcp_connections.py"
connections.bug("a call that a server has begun is made again in another session").edit(
    "if sitting.receipt.is_begun and not repeatable:", "if False:"
).by(f"{_OF_SERVERS}::test_a_call_that_a_server_has_begun_is_made_in_no_other_session")
connections.bug("an answer that came too late for a server fails its step").edit(
    "if error.code == types.INVALID_PARAMS and state is not None:", "if False:"
).by(f"{_OF_SERVERS}::test_an_answer_that_a_server_does_not_take_is_asked_for_again")
connections.bug("a question within a session is of the first call").edit(
    "if len(self._sittings) == 1:", "if self._sittings:"
).by(f"{_OF_SERVERS}::test_a_question_that_may_be_of_one_call_or_another_is_put_to_nobody")
connections.bug("a server says as much of its functions as it likes").edit("if bytes_left < 0:", "if False:").by(
    f"{_OF_SERVERS}::test_a_server_may_have_so_many_functions"
)
connections.bug("a server has as many functions as it likes").edit("if len(listed.tools) > TOOLS_MAX:", "if False:").by(
    f"{_OF_SERVERS}::test_a_server_may_have_so_many_functions"
)
connections.bug("a server of any version is called").edit("if version < self._version_min:", "if False:").by(
    f"{_OF_SERVERS}::test_a_server_that_speaks_too_old_a_version_is_not_called"
)
connections.bug("a long call is cut off as idle").edit(
    "if not self._calls and time.monotonic()", "if time.monotonic()"
).by(f"{_OF_SERVERS}::test_a_call_longer_than_a_connection_may_be_idle_is_not_cut_off")
connections.bug("a connection that has ended keeps its list of functions").edit(
    "self._tools = self._client = None\n                self._leave_older()\n                self._on_end()\n", "pass\n"
).by("tests/steps/test_mcp_connections.py::test_a_connection_that_was_idle_too_long_leaves_nothing_behind")
connections.bug("a connection in the middle of a call is closed to make room").edit(
    "return None if self._calls or opening", "return None if opening"
).by("tests/steps/test_mcp_connections.py::test_a_connection_in_use_is_not_closed_to_make_room")

_ROWS: Final = "tests/runtime/test_rows.py"
_EACH: Final = f"{_ROWS}::test_a_failing_row_is_logged_once_and_retried_and_the_next_is_done"

rows = Room("hai_flow/runtime/base/sweep_isolation.py", _ROWS)
rows.bug("a row that can't be dealt with ends its sweep").edit(
    "return self._note(key, before, error), error\n", "self._note(key, before, error)\n            raise\n"
).by(_EACH)
rows.bug("a row that can't be dealt with is told of at each try").edit(
    "if before is None or before.reason != reason:", "if True:"
).by(_EACH)
rows.bug("a row that can't be dealt with is tried again at each look").edit(
    "if before is not None and now < before.until:", "if False:"
).by(f"{_ROWS}::test_a_page_is_left_without_database_and_slow_rows_yield_to_the_rest")
rows.bug("a row that can't be dealt with is put off ever as long").edit(
    "min(2 * before.wait, self._again_seconds_max)", "before.wait"
).by(f"{_ROWS}::test_a_rows_delay_grows_to_a_bound_and_is_reset_once_it_was_done")
seats = Room("hai_flow/runtime/runs/concurrency_slots.py", _ROWS)
seats.bug("a waiting run that can't be read keeps its key's slot").edit(
    "                    await concurrency_slots.step_back(pool, tenant, key, seat.run_id)\n", ""
).by(f"{_ROWS}::test_an_unreadable_waiting_run_lets_the_next_of_its_key_begin")
messages = Room("hai_flow/runtime/runs/message_queue.py", _ROWS)
messages.bug("who sends a message behind one that can't be read is refused").edit(
    "await self._advance_apart((tenant, start.thread_id))  # the run",
    "await self.advance(tenant, start.thread_id)  # the run",
).by(f"{_ROWS}::test_a_message_for_an_unreadable_workflow_waits_and_the_next_is_sent")
questions = Room("hai_flow/runtime/people/inbox.py", _ROWS)
questions.bug("a question that the database refuses keeps a page of questions out of the inbox").edit(
    "if passing(error):\n                raise\n", "raise\n"
).by(f"{_ROWS}::test_a_question_that_fails_indexing_keeps_no_other_out_of_the_inbox")

_SESSIONS: Final = "tests/runtime/test_tool_sessions.py"

sessions = Room("hai_flow/store/postgres/database.py", _SESSIONS)
sessions.bug("a tool that fails leaves its role to the next one").edit(
    "reset=_keep_as_it_is if keep_sessions else _leave_nothing", "reset=_keep_as_it_is"
)
sessions.bug("the next tool works with the role of the one before").edit(" RESET ROLE;", "")
sessions.bug("the next tool finds the temporary tables of the one before").edit(" DISCARD TEMP;", "")
sessions.bug("a tool's lock stays in its session").edit("SELECT pg_catalog.pg_advisory_unlock_all();", "")
sealing = Room("hai_flow/store/postgres/tool_transactions.py", _SESSIONS)
sealing.bug("a statement that a tool has prepared stays in its session").edit("    DEMAND_NO_STATEMENTS,\n))", "))")
sessions.bug("a session that one tool left spotless counts as spotless behind every later one").edit(
    "    connection.spotless = False\n", ""
).by(f"{_SESSIONS}::test_a_failing_tools_leftovers_are_rolled_back_after_a_committed_one")
sealing.bug("behind a pooler the locks of a tool that failed are left to anybody").edit(
    "if self._database.behind_pooler and not", "if False and not"
)

relays = Room("hai_flow/store/cells/event_relays.py", "tests/store/test_relays.py")
relays.bug("a refused event takes the first one of its id away").edit(
    "WHERE tenant = $1 AND id = $2 AND type = $3 AND data = $4", "WHERE tenant = $1 AND id = $2"
)
relays.bug("an event of other data takes the first one of its id away").edit(" AND data = $4", "")
_HINTS: Final = "tests/runtime/test_redis_hints.py"
redis = Room("hai_flow/runtime/streams/redis_hints.py", _HINTS)
redis.bug("a number that is missing is passed over").edit("if sealed.number > (last or 0) + 1:", "if False:").by(
    f"{_HINTS}::test_a_listener_that_misses_a_message_reads_all_before_the_next"
)
redis.bug("the first letters of a new process are missed unnoticed").edit(
    "if sealed.number > (last or 0) + 1:", "if last is not None and sealed.number > last + 1:"
).by(f"{_HINTS}::test_a_listener_that_misses_a_message_reads_all_before_the_next")
redis.bug("of too many processes the newest is forgotten").edit(
    "self._heard.popitem(last=False)", "self._heard.popitem()"
).by(f"{_HINTS}::test_a_listener_that_misses_a_message_reads_all_before_the_next")
redis.bug("hints of another database end the hearing").edit(
    "if sealed is None or letter is None:\n            self._refuse()\n",
    "if sealed is None or letter is None:\n            self._reset_numbering()\n",
)
pins = Room("hai_flow/runtime/catalog/pins.py", "tests/runtime/test_pins.py")
pins.bug("replaced pins stay in memory").edit("        self._kept.pop((tenant, workflow), None)\n", "")
asking = Room("hai_flow/steps/mcp/elicitation.py", "tests/steps/test_mcp_asking.py")
asking.bug("a form in the words of another library is refused").edit(
    "form = read_form(params.requested_schema)", "form = dict(params.requested_schema)"
)
asking.bug("behind a poll the settled answers are gone").edit(
    "RepeatedAnswers(state=_state(result), settled=progress.settled)", "RepeatedAnswers(state=_state(result))"
)
_QUEUE: Final = "tests/runtime/test_message_queue.py"
limits = Room("hai_flow/runtime/runs/message_queue.py", _QUEUE)
limits.bug("a queued message that meets a limit is refused for good").edit(" or rejected.status in _LATER:", ":").by(
    f"{_QUEUE}::test_a_message_that_meets_a_limit_is_kept_until_there_is_room"
)
queue = Room("hai_flow/store/messaging/message_queue.py", _QUEUE)
queue.bug("a full queue refuses what it has already").edit(
    "        return await find(connection, message.tenant, message.run_id)\n",
    "        line = await list_of_thread(connection, message.tenant, message.thread_id)\n"
    "        found = await find(connection, message.tenant, message.run_id)\n"
    "        return None if len(line) >= WAITING_MAX and line[-1] != found else found\n",
).by(f"{_QUEUE}::test_a_full_queue_keeps_what_it_has_and_refuses_what_is_new")
archives = Room("hai_flow/runtime/retention/archive.py", "tests/runtime/test_retention.py")
archives.bug("what was stored is not compared with what was written").edit(
    "if _digest_of(back) != digest:", "if False:"
).by("tests/runtime/test_retention.py::test_another_archive_in_the_place_of_the_written_one_removes_nothing")
sealing.bug("a transaction begins behind the end of its attempt").edit(
    "try:\n            if self._over:\n                raise _is_over()\n", "try:\n"
).by(f"{_SESSIONS}::test_an_attempt_ended_while_waiting_for_a_connection_begins_none")
quotas = Room("hai_flow/runtime/tenancy/quotas.py", "tests/runtime/test_quotas.py")
quotas.bug("each of many starts at once reads all runs of the tenant").edit(
    "if lookup is None:\n            while", "if True:\n            while"
).by("tests/runtime/test_quotas.py::test_a_hundred_starts_at_once_look_once_how_large_the_logs_are")
quotas.bug("a look for the bytes that failed is believed for ever").edit(
    "self._bytes.pop(tenant, None)  # the", "pass  # the"
)
quotas.bug("bytes in other cells count for nothing").edit("in (self._database, *others)])", "in (self._database,)])")
signals = Room("hai_flow/runtime/messaging/outbox.py", "tests/runtime/test_signals.py")
signals.bug("an event that takes long to offer is offered by each process").edit(
    "await signals.keep_signal(self.database.api, signal)\n", "pass\n"
).by("tests/runtime/test_signals.py::test_a_signal_slow_to_offer_goes_to_no_other_process_meanwhile")
auditing = Room("hai_flow/store/audit/audit.py", "tests/store/test_audit.py")
auditing.bug("a person who is forgotten meanwhile looks like a forgery").edit(
    "if not verified.faults or not isinstance(pool, asyncpg.Pool):\n", "if True:\n"
).by("tests/store/test_audit.py::test_verify_finds_nothing_wrong_while_somebody_is_forgotten")

_RETENTION: Final = "tests/runtime/test_retention.py"
retiring = Room("hai_flow/store/ops/retention.py", _RETENTION)
retiring.bug("an opinion given behind an archive is destroyed by the next prune").edit(
    '(row["head"], row["opinions"])', '(row["head"], each.opinions)'
).by(f"{_RETENTION}::test_feedback_after_an_archive_is_in_the_next_one_and_comes_back")
_ORDERS: Final = "tests/attacks/test_acts_in_every_order.py"
opinions = Room("hai_flow/store/people/feedback.py", _ORDERS)
opinions.bug("an opinion is given to a run that is being removed").edit("WHERE id = $1 FOR KEY SHARE", "WHERE id = $1")
retiring.bug("an archive is noted for the run as it is by now, which it does not have").edit(
    "  SELECT * FROM unnest($1::uuid[]",
    "  SELECT k.id, k.tenant, k.thread_id, k.workflow_name, k.seq, r.head, k.ended_at, k.opinions\n"
    "  FROM unnest($1::uuid[]",
).edit(
    "AS k (id, tenant, thread_id, workflow_name, seq, head, ended_at, opinions)",
    "AS k (id, tenant, thread_id, workflow_name, seq, head, ended_at, opinions) JOIN runs r ON r.id = k.id",
).by(f"{_ORDERS}::test_an_answer_between_two_steps_of_an_archive_is_in_the_last_one")
archives.bug("what was forgotten comes back with a restore").edit(
    "            await erasure.forget_again(connection, ids)\n", ""
).by(f"{_RETENTION}::test_a_person_forgotten_after_an_archive_stays_forgotten_when_restored")
erasing = Room("hai_flow/store/identity/erasure.py", _RETENTION)
erasing.bug("what somebody says after they were forgotten is erased by a restore").edit(
    "AND rating IS NOT NULL AND updated_at < $5", "AND rating IS NOT NULL"
).by(f"{_RETENTION}::test_a_person_forgotten_after_an_archive_stays_forgotten_when_restored")
pruning = Room("hai_flow/runtime/retention/prune.py", _RETENTION)
pruning.bug("what can't be restored is removed").edit(
    "if self.archive is not None and (fault :=", "if False and (fault :="
).by(f"{_RETENTION}::test_what_could_not_be_restored_is_not_removed")
pruning.bug("a thread that can't be dealt with ends prune").edit(
    "if passing(error) or connection.is_closed():\n                raise\n", "raise\n"
).by(f"{_RETENTION}::test_a_thread_that_fails_keeps_no_other_from_being_removed")
_UPGRADE: Final = "tests/upgrade/test_upgrade.py::test_what_another_release_decided_behind_the_migration_is_older"
writers = Room("hai_flow/store/commit/commit_sql.py", _UPGRADE)
writers.bug("a run does not know up to where another release wrote its log").edit(
    "CASE WHEN r.abi < {ABI} THEN r.seq ELSE", "CASE WHEN false THEN r.seq ELSE"
)
invariants = Room("hai_flow/runtime/ops/run_checks.py", _RETENTION)
invariants.bug("what an older release did not write is a violation").edit(
    '(row["words"] is None or self.run["abi"] < _ABI_WITH_ANSWERS)', "False"
).by(f"{_RETENTION}::test_a_database_without_inbox_is_verified_filled_pruned_and_restored")
invariants.bug("a lost answer is taken for one that an older release did not write").edit(
    '(row["words"] is None or self.run["abi"] < _ABI_WITH_ANSWERS)', "True"
).by(f"{_RETENTION}::test_a_database_without_inbox_is_verified_filled_pruned_and_restored")
invariants.bug("what an older release decided otherwise is a violation").edit(
    "elif again.surely and self._is_of_another_release(commit.row):", "elif again.surely and False:"
).by("tests/upgrade/test_upgrade.py::test_an_old_database_and_old_logs_are_migrated_archived_and_restored")
invariants.bug("the first decision of this release passes for one of the release before").edit(
    'self.state.seq < (self.run["older_seq"]', 'self.state.seq <= (self.run["older_seq"]'
).by("tests/runtime/test_verifying.py")

_INBOX: Final = "tests/runtime/test_inbox.py"
_OTHERS: Final = f"{_INBOX}::test_a_watcher_of_a_tenants_lists_hears_of_its_commits_alone"
questions.bug("open lists of all tenants are read anew at each commit").edit(
    "if payload == EVERYTHING else hints.parse_tenants", "if payload else hints.parse_tenants"
).by(_OTHERS)
questions.bug("a list that is read behind a hint is taken for older than it").edit(
    "                watch.hinted_at = time.monotonic()\n", ""
).by(_OTHERS)
questions.bug("of the streams of a tenant one alone hears of its commit").edit(
    "for hinted in watch.streams:\n", "for hinted in list(watch.streams)[:1]:\n"
).by(_OTHERS)
telling = Room("hai_flow/runtime/commit/hints.py", _INBOX)
telling.bug("hints name no tenants, so that open lists wait for the poll").edit(
    "[*sorted(self._words), *hints.build_tenant_payloads(self._tenants)]", "sorted(self._words)"
).by(_OTHERS)

_AGUI: Final = "tests/api/test_agui.py"
posting = Room("hai_flow/api/protocols/conversation.py", _AGUI)
posting.bug("a new message beside an answer that was given long ago begins a run under a runId that was used").edit(
    "stale=not messages):", "stale=True):"
).by(f"{_AGUI}::test_copilotkit_answers_a_gate_under_the_same_run_id_by_tool_message")

_SHARED: Final = "tests/api/test_shared_lists.py"
shared_lists = Room("hai_flow/api/shared_lists.py", _SHARED)
shared_lists.bug("every stream reads for itself").edit(
    "reading is None or self._began < since", "reading is None or since"
)
shared_lists.bug("a list is shown as it was before the hint").edit(
    "reading is None or self._began < since", "reading is None"
)
shared_lists.bug("a stream that goes away takes the read along").edit("await asyncio.shield(reading)", "await reading")
shared_lists.bug("two sessions of one person read twice").edit(
    "session=None, session_version=0, ", "session_version=0, "
)
live = Room("hai_flow/api/rest/runs/live_lists.py", _SHARED)
live.bug("a claim that ends by itself is seen with the next poll").edit("if at > now", "if at > 1e12")

_STEP_TIMES: Final = "tests/runtime/test_step_times.py"
steps = Room("hai_flow/api/rest/runs/steps.py", "tests/api/test_steps.py")
steps.bug("each page of steps reads the whole log").edit("    cache.keep(key, steps)\n", "")
steps.bug("steps are shown to others as their starter sees them").edit(
    "row.created_at, log_profile(access, row)", "row.created_at"
).by("tests/attacks/test_personal_values.py::test_lists_hide_them")
step_times = Room("hai_flow/runtime/runs/step_times.py", _STEP_TIMES)
step_times.bug("events of a merged row are taken twice").edit("first = self.seq + 1", "first = row.first_seq")
step_times.bug("events behind the moment are taken, too").edit(
    "[first - row.first_seq : end + 1 - row.first_seq]", "[first - row.first_seq :]"
)
step_times.bug("steps of a later moment are shown").edit("return steps if steps.seq <= end else None", "return steps")
step_times.bug("steps are kept for ever").edit("self._clock() - KEPT_SECONDS", "0.0")
step_times.bug("a removed run is read without end").edit("if not rows:\n", "if False:\n")
views = Room("hai_flow/api/requests/views.py", _UNREADABLE)
views.bug("one decision that can't be read spoils the list of them all").edit(
    "except Unreadable:\n        opened = build_unreadable", "except KeyError:\n        opened = build_unreadable"
).by(f"{_UNREADABLE}::test_decisions_are_listed_beside_one_that_can_not_be_read")
views.bug("an answer has a field that its shape does not have").edit(
    "frozen=bool(run.held),\n", "frozen=bool(run.held),\n        held=run.held,\n"
).by("tests/api/test_rest.py::test_a_run_starts_and_is_found_where_location_says")
views.bug("a field that is named as a word of Python has no attribute of a record").edit(
    'each.name + "_" * iskeyword(each.name)', "each.name"
).by("tests/api/test_steps.py::test_steps_have_their_attempts_and_the_times_that_they_waited")
routes = Room("hai_flow/api/routes.py", "tests/client/test_generated.py")
routes.bug("OpenAPI does not say what a function returns").edit(
    "return first if is_shape(first) else None", "return None"
)
policies = Room("hai_flow/engine/pendings/votes.py", _UNREADABLE)
policies.bug("a policy of a newer release is taken for a fault of the server").edit(
    "except msgspec.ValidationError as error:", "except KeyError as error:"
).by("tests/runtime/test_absence_notices.py")
people = Room("hai_flow/runtime/people/inbox.py", _UNREADABLE)
people.bug("a question with rules that can't be read is shown as if they could be").edit(
    "            derive_rules(readable)\n", ""
).by(f"{_UNREADABLE}::test_every_list_is_answered_with_the_row_that_can_be_read")
standing = Room("hai_flow/runtime/people/standing_rules.py", "tests/api/test_rules.py")
for what, text, spoiled in (
    ("a condition that only a newer release knows is left out of a rule", ", forbid_unknown_fields=True", ""),
    ("a rule allows beside one that can't be read and may forbid", " if may_forbid else rules", " if False else rules"),
    ("an unreadable rule that allows keeps others from allowing", 'may_forbid or row.kind != "allow"', "True"),
):
    by = "tests/api/test_rules.py::test_a_rule_of_a_newer_release_is_listed_and_casts_no_vote"
    standing.bug(what).edit(text, spoiled).by(by)
for what, text, spoiled in (
    ("our commit meets a conversion of types that the tool has set", "            await session.reset_codecs()\n", ""),
    (
        "who listens to the statements of a tool hears those of the commit",
        "            session.drop_listeners()\n            await",
        "            await",
    ),
    ("a connection keeps the conversions of a tool that has failed", "session is not None and session.codecs", "False"),
):
    sealing.bug(what).edit(text, spoiled)
