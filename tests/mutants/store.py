"""Bugs of the store: what a commit compares and writes, who gets what, and what is read back."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room
from tests.mutants.operators import Target

_COMMIT: Final = "tests/store/test_commit.py"
_READS: Final = "tests/store/test_reads.py"
_OF_SIGNALS: Final = "tests/store/test_signals.py"
_OF_FEEDBACK: Final = "tests/store/test_feedback.py"
_OF_SLOTS: Final = "tests/runtime/test_slots.py"
_OF_TRIGGERS: Final = "tests/runtime/test_triggers.py"

# --- transactions of tools --------------------------------------------------------------------------------------------

transactions = Room("hai_flow/store/postgres/tool_transactions.py")
_OF_TRANSACTIONS: Final = "tests/runtime/test_transactions.py"
transactions.bug("a tool's transaction is committed though the record of its result has lost").edit(
    "if done.won:\n                        await self._outer.commit()",
    "if done:\n                        await self._outer.commit()",
).by(f"{_OF_TRANSACTIONS}::test_an_attempt_that_another_process_has_closed_commits_nothing")
transactions.bug("a tool's transaction is committed at the end of its block").edit(
    "yield connection\n            else:",
    "yield connection\n                await connection.execute('COMMIT')\n            else:",
).by(f"{_OF_TRANSACTIONS}::test_what_a_failed_attempt_has_written_is_not_there")
transactions.bug("the settings of a tool reach the commit").edit(
    'IMMEDIATE",\n    LEAVE_NOTHING_BUT_STATEMENTS,\n', 'IMMEDIATE",\n'
).by(f"{_OF_TRANSACTIONS}::test_a_tool_may_change_the_settings_of_its_transaction")

# --- callbacks --------------------------------------------------------------------------------------------------------

callbacks = Room("hai_flow/store/messaging/callbacks.py")
callbacks.bug("the address at which a service calls back is kept as it is").edit(
    "from hai_flow.primitives.secret_digests import hash_secret", "hash_secret = str.encode"
).by("tests/api/test_callbacks.py::test_of_an_address_only_its_hash_is_kept")

# --- runs: the commit -------------------------------------------------------------------------------------------------

statement = Room("hai_flow/store/commit/commit_sql.py", "tests/store/test_claims.py", "tests/store/test_rows.py")
commits = Room("hai_flow/store/commit/commits.py", "tests/store/test_claims.py", "tests/store/test_rows.py")
arrays = Room("hai_flow/store/commit/commit_arrays.py", "tests/store/test_claims.py", "tests/store/test_rows.py")
pieces = Room("hai_flow/store/commit/commit_citus.py", "tests/store/test_pieces.py")
hints = Room("hai_flow/store/messaging/hints.py", "tests/store/test_claims.py", "tests/store/test_rows.py")
claims = Room("hai_flow/store/runs/leases.py", "tests/store/test_claims.py", "tests/store/test_rows.py")
logs = Room("hai_flow/store/runs/logs.py", "tests/store/test_claims.py", "tests/store/test_rows.py")
run_lists = Room("hai_flow/store/runs/run_lists.py", "tests/store/test_claims.py", "tests/store/test_rows.py")
slots_read = Room(
    "hai_flow/store/messaging/concurrency_slots.py", "tests/store/test_claims.py", "tests/store/test_rows.py"
)
commits.bug("entries go out unsorted").edit(
    "numbers = sorted(range(len(entries)), key=keys.__getitem__)", "numbers = list(range(len(entries)))"
).by(f"{_COMMIT}::test_rows_are_locked_by_id_whatever_the_order_of_entries")
commits.bug("a run may be in a batch twice").edit(
    '    assert len(set(keys)) == len(keys), "a run is in a batch at most once"\n', ""
).by(f"{_COMMIT}::test_a_run_twice_in_one_batch_is_refused_before_it_is_sent")
commits.bug("winners are told each other's outcome").edit(
    "{numbers[place - 1]: each for place", "{place - 1: each for place"
).by(f"{_COMMIT}::test_entries_in_any_order_are_told_their_own_outcome")
statement.bug("a decision does not compare the version").edit(
    "r.version = entries.version AND coalesce(r.created_at", "coalesce(r.created_at"
).by(f"{_COMMIT}::test_of_two_decisions_on_one_version_one_wins")
statement.bug("chunks do not compare the fence").edit(
    "ELSE r.fence = entries.fence AND r.worker = {me} END", "ELSE r.worker = {me} END"
).by(f"{_COMMIT}::test_chunks_neither_lose_to_decisions_nor_defeat_them")
statement.bug("chunks of a process that does not hold the run are taken").edit(
    "ELSE r.fence = entries.fence AND r.worker = {me} END", "ELSE r.fence = entries.fence END"
).by(f"{_COMMIT}::test_a_zombie_reports_what_it_began_but_does_not_get_the_claim_back")
statement.bug("chunks move the version, so that decisions lose to them").edit(
    "version = r.version + (entries.version IS NOT NULL)::int", "version = r.version + 1"
).by(f"{_COMMIT}::test_chunks_neither_lose_to_decisions_nor_defeat_them")
statement.bug("another tenant's entry wins").edit(
    "WHERE r.id = entries.id AND (r.tenant = entries.tenant) IS TRUE\n    AND CASE",
    "WHERE r.id = entries.id\n    AND CASE",
).by(f"{_COMMIT}::test_another_tenant_s_entry_loses_and_writes_nothing")
statement.bug("a dead worker's commit takes the claim").edit(
    "WHERE id = {me} AND alive_until > now()", "WHERE id = {me}"
).by(f"{_COMMIT}::test_a_dead_worker_s_commit_takes_no_claim_so_that_somebody_alive_can")
statement.bug("a commit takes the claim that another worker holds").edit(
    "WHEN entries.busy THEN coalesce(r.worker, {claimant}) END", "WHEN entries.busy THEN {claimant} END"
)
statement.bug("a commit takes the claim of a run whose queue its process does not serve").edit(
    'if "elsewhere" in parts else me', "if False else me"
).by("tests/store/test_queues.py::test_a_process_takes_no_claim_of_a_run_whose_queue_it_does_not_serve")
statement.bug("a run that rests keeps its claim").edit(
    "worker = CASE WHEN entries.busy IS NULL THEN r.worker", "worker = CASE WHEN entries.busy IS NOT TRUE THEN r.worker"
)
statement.bug("a cut raises no fence").edit(
    "(coalesce(entries.cut, false) OR (entries.busy IS FALSE AND r.worker IS NOT NULL)",
    "((entries.busy IS FALSE AND r.worker IS NOT NULL)",
).by(f"{_COMMIT}::test_chunks_neither_lose_to_decisions_nor_defeat_them")
statement.bug("a claim that is given back raises no fence").edit(
    "(coalesce(entries.cut, false) OR (entries.busy IS FALSE AND r.worker IS NOT NULL)", "(coalesce(entries.cut, false)"
)
statement.bug("a claim that is taken raises no fence").edit(
    "\n                       OR (entries.busy IS TRUE AND r.worker IS NULL))::int", ")::int"
)
statement.bug("a decision that nobody can perform is not due").edit(
    "\n                   WHEN coalesce(r.worker, {claimant}) IS NULL THEN {at} END", " END"
)
statement.bug("a birth that nobody can perform is not due").edit(
    "THEN wake_at WHEN {claimant} IS NULL THEN {at} END", "THEN wake_at END"
)
statement.bug("a repeated command is carried out again").edit(
    "AND {unrepeated}\n    AND ({seated})", "AND ({seated})"
).by(f"{_COMMIT}::test_a_command_id_is_carried_out_once_and_its_outcome_is_kept")
statement.bug("command ids are those of all runs").edit(
    "JOIN commands known ON known.run_id = given.run_id AND known.command_id = given.command_id\n)",
    "JOIN commands known ON known.command_id = given.command_id\n)",
).by(f"{_COMMIT}::test_a_command_id_is_carried_out_once_and_its_outcome_is_kept")
statement.bug("the slot of a run that has ended stays taken").edit(
    "WHERE won.ended AND slots.run_id = won.id", "WHERE false AND slots.run_id = won.id"
).by(f"{_COMMIT}::test_a_finished_run_frees_its_slot_in_the_same_commit")
statement.bug("any commit of a run frees its slot").edit(
    "WHERE won.ended AND slots.run_id = won.id", "WHERE slots.run_id = won.id"
)
statement.bug("the chain of hashes forgets what came before").edit(
    "head = sha256(r.head || entries.events)", "head = sha256(entries.events)"
).by(f"{_COMMIT}::test_a_log_row_says_which_events_it_holds_and_the_chain_covers_them")
statement.bug("the length of the log is that of its last row").edit(
    "log_bytes = r.log_bytes + octet_length(entries.events)", "log_bytes = octet_length(entries.events)"
).by(f"{_COMMIT}::test_a_log_row_says_which_events_it_holds_and_the_chain_covers_them")
statement.bug("a log row says that it begins one event before it does").edit(
    "SELECT id, seq, seq - n + 1, tenant", "SELECT id, seq, seq - n, tenant"
).by(f"{_COMMIT}::test_a_log_row_says_which_events_it_holds_and_the_chain_covers_them")
statement.bug("a run that was retried, and ended in that commit, has ended long ago").edit(
    "coalesce({same_end}, greatest", "coalesce(r.ended_at, greatest"
).by("tests/runtime/test_retention.py::test_a_run_retried_long_after_its_end_that_fails_at_once_stays")
statement.bug("a run that has ended ends anew with each commit behind that").edit(
    "coalesce({same_end}, greatest", "coalesce(NULL, greatest"
).by("tests/store/test_rows.py::test_a_commit_behind_the_end_of_a_run_leaves_its_time_and_result")
statement.bug("a run that goes on still says when it ended").edit(
    "greatest(r.created_at, {at})) END", "greatest(r.created_at, {at})) ELSE r.ended_at END"
).by(f"{_COMMIT}::test_a_reopened_run_takes_its_slot_again_or_loses")
statement.bug("a run that goes on keeps its result").edit(
    "THEN coalesce(entries.result, r.result) END", "THEN coalesce(entries.result, r.result) ELSE r.result END"
).by(f"{_COMMIT}::test_a_reopened_run_takes_its_slot_again_or_loses")
statement.bug("a start of a run that is there takes another slot").edit(
    """\n    AND NOT (births.id IN (SELECT r.id FROM runs r WHERE r.id = ANY({arrays["id"]})))""", ""
).by(f"{_COMMIT}::test_a_start_repeated_with_another_slot_takes_none")
statement.bug("a run that is opened again needs no slot").edit(
    'seated += " OR entries.id = ANY', 'seated += " OR true OR entries.id = ANY'
).by(f"{_COMMIT}::test_a_reopened_run_takes_its_slot_again_or_loses")
statement.bug("who loses takes the slot all the same").edit(
    "AND (r.tenant = entries.tenant) IS TRUE AND {_UNMOVED}\n", "AND (r.tenant = entries.tenant) IS TRUE\n"
).by(f"{_COMMIT}::test_a_reopened_run_takes_its_slot_again_or_loses")
statement.bug("a run that ends in its first commit keeps its slot").edit(
    "FROM wanted WHERE NOT ended ORDER BY tenant, slot", "FROM wanted ORDER BY tenant, slot"
).by(f"{_COMMIT}::test_a_run_ending_in_its_first_commit_needs_its_slot_and_frees_it")
statement.bug("a run that ends in its first commit needs no slot").edit(
    "WHERE CASE WHEN slots.run_id IS NULL THEN wanted.ended ELSE slots.run_id = wanted.id END",
    "WHERE wanted.ended OR slots.run_id = wanted.id",
).by(f"{_COMMIT}::test_a_run_ending_in_its_first_commit_needs_its_slot_and_frees_it")
statement.bug("a lone start of a run that is there takes another slot").edit(
    "(slot IS NULL OR NOT EXISTS (SELECT FROM runs r WHERE r.id = birth.id))", "true"
).by(f"{_COMMIT}::test_a_start_repeated_with_another_slot_takes_none")
statement.bug("a lone run that ends in its first commit keeps its slot").edit(
    "FROM births WHERE slot IS NOT NULL AND NOT ended", "FROM births WHERE slot IS NOT NULL"
).by(f"{_COMMIT}::test_a_run_ending_in_its_first_commit_needs_its_slot_and_frees_it")
statement.bug("a lone run that ends in its first commit needs no slot").edit(
    "ELSE bool_or(slots.run_id = births.id) END", "ELSE births.ended OR bool_or(slots.run_id = births.id) END"
).by(f"{_COMMIT}::test_a_run_ending_in_its_first_commit_needs_its_slot_and_frees_it")
statement.bug("a lone run does not begin with a slot that is its own").edit(
    "ELSE bool_or(slots.run_id = births.id) END", "ELSE false END"
).by(f"{_COMMIT}::test_a_run_begins_with_the_slot_that_is_its_own_already")
statement.bug("a lone run is born without the slot that it needs").edit(
    "FROM births WHERE slot IS NULL OR EXISTS (SELECT FROM taken) OR (", "FROM births WHERE true OR ("
).by(f"{_COMMIT}::test_a_finished_run_frees_its_slot_in_the_same_commit")
statement.bug("slots are taken in the order of the runs").edit(
    "FROM wanted WHERE NOT ended ORDER BY tenant, slot", "FROM wanted WHERE NOT ended ORDER BY id"
).by("tests/store/test_rows.py")
statement.bug("a run is born without the slot that it needs").edit(
    "FROM births WHERE (slot IS NULL OR id = ANY ((SELECT array_agg(run_id) FROM seated)::uuid[])){",
    "FROM births WHERE true{",
).by(f"{_COMMIT}::test_a_finished_run_frees_its_slot_in_the_same_commit")
statement.bug("a start that is made twice breaks the batch").edit(
    "  ON CONFLICT DO NOTHING           -- the same Start again: it loses\n", ""
).by(f"{_COMMIT}::test_a_run_is_born_once")
statement.bug("a turn begins one event late").edit(
    "{before} + child.first, {before}", "{before} + child.first + 1, {before}"
).by(f"{_COMMIT}::test_related_rows_are_written_together_with_the_runs_own_numbers")
statement.bug("the end of a turn is not written").edit(
    "WHERE turns.run_id = ended.run_id AND turns.n = ended.n", "WHERE turns.run_id = ended.run_id AND turns.n = -1"
).by(f"{_COMMIT}::test_related_rows_are_written_together_with_the_runs_own_numbers")
statement.bug("a turn's end ends all turns of the run").edit(
    "WHERE turns.run_id = ended.run_id AND turns.n = ended.n", "WHERE turns.run_id = ended.run_id"
).by("tests/store/test_rows.py")
arrays.bug("messages of a commit for other runs are counted from one").edit(
    "for n, o in enumerate(e.outbox)", "for n, o in enumerate(e.outbox, 1)"
).by(f"{_COMMIT}::test_related_rows_are_written_together_with_the_runs_own_numbers")
statement.bug("a message that is said anew keeps its old text").edit(
    "DO UPDATE SET role = excluded.role, body = excluded.body", "DO NOTHING"
).by(f"{_COMMIT}::test_related_rows_are_written_together_with_the_runs_own_numbers")
statement.bug("an edited pending keeps its old digest").edit(
    "deadline = excluded.deadline, digest = excluded.digest,", "deadline = excluded.deadline,"
).by(f"{_COMMIT}::test_related_rows_are_written_together_with_the_runs_own_numbers")
statement.bug("a pending keeps its first deadline").edit(
    "SET status = excluded.status, deadline = excluded.deadline,", "SET status = excluded.status,"
)
statement.bug("a pending that changes is opened anew").edit(
    "SET status = excluded.status, deadline", "SET opened_seq = excluded.opened_seq, status = excluded.status, deadline"
).by(f"{_COMMIT}::test_related_rows_are_written_together_with_the_runs_own_numbers")
commits.bug("big batches leave their births out").edit(
    "return COMMON | parts", 'return COMMON | parts - {"births"}'
).by(f"{_COMMIT}::test_entries_in_any_order_are_told_their_own_outcome")
arrays.bug("the fences of chunks are not sent").edit("yield _encode_array(fences)", "yield _NO").by(
    f"{_COMMIT}::test_chunks_neither_lose_to_decisions_nor_defeat_them"
)
arrays.bug("a column is left out as soon as one entry does without it").edit(
    "return _NO if column.count(None) == len(column) else column", "return _NO if None in column else column"
)
statement.bug("a moved run keeps its old workflow in its row").edit(
    "= coalesce(entries.{column}, r.{column}),", "= r.{column},"
).by("tests/runtime/test_migration.py::test_rows_say_the_version_and_the_digest_that_hold_now")

pieces.bug("on Citus a run that is opened again takes its slot from an old version").edit(
    "locked.get(entry.run_id) == (entry.tenant, entry.version)", "entry.run_id in locked"
).by("tests/store/test_pieces.py::test_a_reopened_run_takes_its_slot_again_or_loses")
pieces.bug("on Citus a run begins with a slot that is another's by now").edit(
    "[row for row in born if holds(row[1])]", "born"
).by("tests/store/test_pieces.py::test_a_birth_that_comes_too_late_loses_its_promised_slot_to_another")
pieces.bug("on Citus the slot of a run that has ended stays taken").edit(
    "for i, entry in rows if i in self._ended]:", "for i, entry in rows if i not in self.won]:"
).by("tests/store/test_pieces.py::test_a_finished_run_frees_its_slot_in_the_same_commit")
pieces.bug("on Citus each piece of a commit is a transaction of its own").edit(
    "contextlib.nullcontext() if inside else transaction(connection, ON_THE_NODE)", "contextlib.nullcontext()"
).by("tests/store/test_pieces.py::test_a_commit_that_is_cut_between_two_pieces_is_undone_as_a_whole")

# --- runs: claims, leases, fences -------------------------------------------------------------------------------------

claims.bug("runs of workers that are alive are claimed as lost").edit(
    "workers WHERE alive_until < now() - interval '{DEAD_AFTER}'",
    "workers WHERE alive_until < now() + interval '1 hour'",
)
claims.bug("a dead worker's runs are taken whatever their queue is").edit(
    '_OF_NAMED: Final = " AND r.queue = ANY ($3::text[])"', '_OF_NAMED: Final = ""'
).by("tests/store/test_queues.py::test_a_dead_workers_runs_are_taken_by_those_that_serve_their_queue")
claims.bug("a dead worker's run is claimed as if nothing of it had begun").edit(
    "SELECT id, true AS lost, NULL", "SELECT id, false AS lost, NULL"
).by(f"{_COMMIT}::test_a_zombie_reports_what_it_began_but_does_not_get_the_claim_back")
claims.bug("what is not due is claimed").edit(
    "worker IS NULL AND wake_at <= now() AND abi", "worker IS NULL AND wake_at IS NOT NULL AND abi"
).by(f"{_COMMIT}::test_claims_take_what_is_due_in_the_queues_asked_for")
claims.bug("runs of other queues are claimed").edit(
    "SELECT id, wake_at FROM runs WHERE queue = q.name AND worker", "SELECT id, wake_at FROM runs WHERE worker"
).by(f"{_COMMIT}::test_claims_take_what_is_due_in_the_queues_asked_for")
claims.bug("a claim raises no fence").edit(
    "wake_at = NULL, fence = fence + 1, unreadable = NULL\n  FROM", "wake_at = NULL, unreadable = NULL\n  FROM"
).by(f"{_COMMIT}::test_a_zombie_reports_what_it_began_but_does_not_get_the_claim_back")
claims.bug("a worker whose lease is over claims").edit(
    "\n    AND EXISTS (SELECT 1 FROM workers WHERE id = $1 AND alive_until > now())", ""
).by(f"{_COMMIT}::test_a_lease_that_is_over_is_not_renewed_even_when_nothing_is_held")
claims.bug("a claim waits for runs that others are committing to").edit(
    "LIMIT q.most FOR NO KEY UPDATE SKIP LOCKED) d", "LIMIT q.most FOR NO KEY UPDATE) d"
)
claims.bug("a lease that is over is renewed").edit(
    "WHERE id = $1 AND alive_until > now() RETURNING id)", "WHERE id = $1 RETURNING id)"
).by(f"{_COMMIT}::test_a_lease_that_is_over_is_not_renewed_even_when_nothing_is_held")
claims.bug("a heartbeat renews nothing").edit(
    "(UPDATE workers SET alive_until = now() + $2, beat_at",
    "(UPDATE workers SET alive_until = greatest(alive_until, now() - $2), beat_at",
)
claims.bug("a heartbeat tells of what others hold").edit(
    "FROM runs r WHERE r.worker = $1\n", "FROM runs r WHERE r.worker IS NOT NULL\n"
)
claims.bug("the fence is raised of what others hold").edit(
    "FROM runs WHERE worker = $1 AND id = ANY", "FROM runs WHERE $1::bigint IS NOT NULL AND id = ANY"
).by(f"{_COMMIT}::test_a_raised_fence_keeps_out_what_the_holder_sent_before")
claims.bug("refencing raises no fence").edit(
    "UPDATE runs r SET fence = r.fence + 1 FROM mine", "UPDATE runs r SET fence = r.fence FROM mine"
).by(f"{_COMMIT}::test_a_raised_fence_keeps_out_what_the_holder_sent_before")
claims.bug("a worker hands back what others hold").edit(
    "FROM runs WHERE worker = $1 AND id = ANY", "FROM runs WHERE $1::bigint IS NOT NULL AND id = ANY"
).by(f"{_COMMIT}::test_claims_take_what_is_due_in_the_queues_asked_for")
claims.bug("what is handed back keeps its fence").edit(
    "SET worker = NULL, wake_at = $3, fence = r.fence + 1 FROM", "SET worker = NULL, wake_at = $3 FROM"
)
claims.bug("what is handed back is never due").edit(
    "SET worker = NULL, wake_at = $3, fence", "SET worker = NULL, wake_at = $3 + interval '1 year', fence"
).by(f"{_COMMIT}::test_claims_take_what_is_due_in_the_queues_asked_for")
claims.bug("the next wake is that of any queue").edit(
    "WHERE queue = q.name AND worker IS NULL AND wake_at IS NOT NULL AND abi",
    "WHERE worker IS NULL AND wake_at IS NOT NULL AND abi",
)
claims.bug("workers that hold something are forgotten").edit(
    "\n      AND NOT EXISTS (SELECT FROM runs r WHERE r.worker = w.id)", ""
).by(f"{_COMMIT}::test_workers_are_forgotten_only_when_they_hold_nothing")
claims.bug("a retired worker counts as alive until its lease is over").edit(
    "SET alive_until = '-infinity' WHERE id = $1", "SET alive_until = alive_until WHERE id = $1"
).by(f"{_COMMIT}::test_a_zombie_reports_what_it_began_but_does_not_get_the_claim_back")
logs.bug("who takes a run alone does not lock it").edit(
    '            await connection.execute("SELECT FROM runs WHERE id = $1 FOR NO KEY UPDATE", run_id)\n', ""
).by(f"{_COMMIT}::test_after_three_losses_a_run_is_taken_alone_and_wins")
slots_read.bug("slots of runs that go on are freed by who asks for them").edit(
    "WHERE r.status IN {_ENDED} AND f.left_by IS NULL AND (", "WHERE f.left_by IS NULL AND ("
).by(f"{_COMMIT}::test_whoever_asks_for_the_slot_of_an_ended_run_frees_it")
statement.bug("a run is born with a slot that is another's by now").edit(
    '(_render_slots_held("entries", "births"), f" AND ({_render_holds(\'births\')})")',
    '(_render_slots_held("entries", "births"), "")',
).by(f"{_COMMIT}::test_a_birth_that_comes_too_late_loses_its_promised_slot_to_another")
statement.bug("a run that was promised a slot loses it when the promise is over").edit(
    "        children += _KEEP_SEATS\n", ""
).by(f"{_COMMIT}::test_a_run_that_is_born_with_the_slot_it_was_promised_holds_it")
hints.bug("a hint names more runs than fit into one").edit("HINT_IDS_MAX: Final = 200 ", "HINT_IDS_MAX: Final = 256 ")
hints.bug("runs beyond the first two hundred are not hinted at").edit(
    "for start in range(0, len(ids), HINT_IDS_MAX)]", "for start in (0,)]"
)

# --- runs: reading ----------------------------------------------------------------------------------------------------

logs.bug("a snapshot of another shape is read").edit(
    "WHERE s.run_id = r.id AND s.abi = w.abi AND s.seq > have.seq", "WHERE s.run_id = r.id AND s.seq > have.seq"
).by(f"{_READS}::test_a_load_gives_the_snapshot_and_the_tail_and_a_tail_alone")
logs.bug("a snapshot that is older than what is known is read").edit(
    "AND s.abi = w.abi AND s.seq > have.seq", "AND s.abi = w.abi"
).by(f"{_READS}::test_a_load_gives_the_snapshot_and_the_tail_and_a_tail_alone")
logs.bug("a load gives the log before the snapshot too").edit(
    "last_seq > greatest(have.seq, coalesce(s.seq, 0)) AND", "last_seq > have.seq AND"
).by(f"{_READS}::test_a_load_gives_the_snapshot_and_the_tail_and_a_tail_alone")
logs.bug("a state of the past is read of another tenant's run").edit(
    "WHERE r.tenant = $1 AND r.id = $2\n", "WHERE $1::uuid IS NOT NULL AND r.id = $2\n"
).by(f"{_READS}::test_the_state_at_a_seq_needs_an_earlier_snapshot_and_later_rows")
logs.bug("a state of the past is made of a snapshot behind it").edit(
    "AND s.abi = $4 AND s.seq <= $3", "AND s.abi = $4 AND $3 IS NOT NULL"
).by(f"{_READS}::test_the_state_at_a_seq_needs_an_earlier_snapshot_and_later_rows")
logs.bug("a state of the past needs the whole log").edit(
    "have.seq) AND first_seq <= $3 AND last_seq", "have.seq) AND last_seq"
).by(f"{_READS}::test_the_state_at_a_seq_needs_an_earlier_snapshot_and_later_rows")
logs.bug("a snapshot is kept of what is not in the log").edit(
    "FROM runs WHERE id = $1 AND seq >= $2\n", "FROM runs WHERE id = $1\n"
).by(f"{_READS}::test_a_load_gives_the_snapshot_and_the_tail_and_a_tail_alone")
logs.bug("a release before overwrites the snapshots of the one behind it").edit(
    " WHERE snapshots.abi < excluded.abi\n", "\n"
)
logs.bug("the log is read from the next commit on").edit(
    "WHERE run_id = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3",
    "WHERE run_id = $1 AND first_seq > $2 ORDER BY last_seq LIMIT $3",
).by(f"{_READS}::test_the_log_is_read_from_any_seq")
logs.bug("the log is read backwards").edit(
    "last_seq > $2 ORDER BY last_seq LIMIT $3", "last_seq > $2 ORDER BY last_seq DESC LIMIT $3"
).by(f"{_READS}::test_the_log_is_read_from_any_seq")
viewers = Room("hai_flow/store/runs/viewers.py", "tests/store/test_viewers.py")
viewers.bug("a viewer's page has the runs of others").edit(
    'f"r.started_by = whose.id AND', 'f"whose.id IS NOT NULL AND'
)
viewers.bug("a viewer's own runs of a shared workflow are listed twice").edit(
    'f"r.started_by <> ALL (${first}::text[]) AND', 'f"'
)
viewers.bug("a credential for some threads reads all").edit(
    "(${first + 2}::text[] IS NULL OR {run}.thread_id = ANY (${first + 2}))", "(${first + 2}::text[] IS NULL OR true)"
)
run_lists.bug("a run is shown to another tenant").edit(
    "FROM runs r WHERE r.id = $1 AND r.tenant = $2", "FROM runs r WHERE r.id = $1 AND $2::uuid IS NOT NULL"
).by(f"{_COMMIT}::test_another_tenant_s_entry_loses_and_writes_nothing")
run_lists.bug("the runs of all tenants are listed").edit(
    'conditions = ["r.tenant = $1"]', 'conditions = ["$1::uuid IS NOT NULL"]'
).by(f"{_READS}::test_runs_are_listed_newest_first_in_pages_and_by_filter")
run_lists.bug("a page begins with the last run of the page before").edit(
    'demand("(r.created_at, r.id) < ({}', 'demand("(r.created_at, r.id) <= ({}'
).by(f"{_READS}::test_runs_are_listed_newest_first_in_pages_and_by_filter")

# --- messages between runs --------------------------------------------------------------------------------------------

outbox = Room(
    "hai_flow/store/messaging/outbox.py", f"{_READS}::test_the_outbox_gives_each_target_messages_in_order_until_deleted"
)
outbox.bug("a target's second message overtakes its first").edit(
    "AND e.target = o.target)", "AND e.target = o.target AND false)"
)
outbox.bug("a message waits for those to other targets").edit(" AND e.target = o.target)", ")")
outbox.bug("two deliver the same message at once").edit(
    "SET due_at = now() + $2 FROM", "SET due_at = now() + 0 * $2 FROM"
)
outbox.bug("messages are given out before they are due").edit("WHERE o.due_at <= now() AND NOT", "WHERE NOT")
outbox.bug("a delivered message takes those behind it along").edit(
    "last_seq = $2 AND n = $3", "last_seq = $2 AND n >= $3"
)
outbox.bug("messages are delivered out of order").edit(
    "sorted(rows, key=lambda message: (message.run_id, message.last_seq, message.n))",
    "sorted(rows, key=lambda message: -message.n)",
)

# --- pendings ---------------------------------------------------------------------------------------------------------

pendings = Room(
    "hai_flow/store/people/pendings.py", f"{_READS}::test_open_pendings_are_the_tenant_s_and_come_newest_first"
)
pendings.bug("what is decided is listed as open").edit("p.tenant = $1 AND p.status = 'open'", "p.tenant = $1")
pendings.bug("a page of pendings begins with the last of the page before").edit(
    "(p.opened_at, p.id) < ({", "(p.opened_at, p.id) <= ({"
)
pendings.bug("the oldest pending comes first").edit(
    "ORDER BY found.opened_at DESC, found.id DESC", "ORDER BY found.opened_at, found.id"
)
pendings.bug("another tenant sees a pending").edit(
    "run_id = $1 AND id = $2 AND tenant = $3", "run_id = $1 AND id = $2 AND $3::uuid IS NOT NULL"
)

# --- signals ----------------------------------------------------------------------------------------------------------

signals = Room("hai_flow/store/messaging/signals.py", _OF_SIGNALS)
signals.bug("another signal with a known id is taken for the first one").edit(
    "if (stored.type, stored.run_id, stored.data) != (type, run_id, data):", "if False:"
)
signals.bug("signals of a type become visible in another order than that of their places").edit(
    "pg_advisory_xact_lock(hashtextextended(", "length(concat("
)
signals.bug("two processes offer the same signal at once").edit(
    "SET due_at = now() + $2 FROM due", "SET due_at = now() + 0 * $2 FROM due"
)
signals.bug("due signals come newest first").edit(
    "sorted(signals, key=lambda signal: signal.place)", "sorted(signals, key=lambda signal: -signal.place)"
)
signals.bug("a settled signal is offered again").edit(
    "UPDATE signals SET due_at = NULL, undelivered", "UPDATE signals SET due_at = now(), undelivered"
)
signals.bug("a signal for one run is offered to all").edit(
    "query = _ALL_SUBSCRIBERS if signal.run_id is None else _ITS_SUBSCRIBERS",
    "query = _ALL_SUBSCRIBERS.replace('$3::uuid IS NULL', '($3::uuid IS NULL OR true)')",
)
signals.bug("a signal is offered to another tenant's runs").edit(
    "WHERE tenant = $1 AND type = $2 AND $3::uuid IS NULL ORDER",
    "WHERE $1::uuid IS NOT NULL AND type = $2 AND $3::uuid IS NULL ORDER",
)
signals.bug("a signal is offered to another tenant's run").edit(
    "run_id = $3 AND type = $2 AND (tenant = $1) IS TRUE\n", "run_id = $3 AND type = $2 AND $1::uuid IS NOT NULL\n"
)
signals.bug("an old subscription that comes late hides the newer one").edit(
    "      WHERE subscriptions.opened_seq <= excluded.opened_seq\n", ""
)
signals.bug("the end of a subscription takes the one behind it along").edit(
    "AND type = $2 AND opened_seq <= $3", "AND type = $2 AND $3 IS NOT NULL"
)
signals.bug("a run finds signals for other runs").edit("AND x.run_id IS NULL AND x.place >", "AND x.place >")
signals.bug("a run finds again what it has read").edit(
    "(x.tenant = $1) IS TRUE AND x.place > w.own ORDER", "(x.tenant = $1) IS TRUE AND w.own IS NOT NULL ORDER"
)
signals.bug("a run finds what was sent before it began to wait").edit(
    "y.run_id IS NULL AND y.sent_at >= $6))", "y.run_id IS NULL AND $6::timestamptz IS NOT NULL))"
)
signals.bug("signals are found newest first").edit(
    ") s ORDER BY s.place LIMIT $7", ") s ORDER BY s.place DESC LIMIT $7"
)
signals.bug("signals that somebody has yet to offer are forgotten").edit(
    "p.due_at IS NULL AND p.sent_at <", "p.sent_at <"
)
signals.bug("signals that a run may still take are forgotten").edit(
    "(live.oldest IS NULL OR p.sent_at < live.oldest)", "(live.oldest IS NULL OR true)"
)
signals.bug("signals are forgotten before they are old").edit(
    "p.sent_at < now() - $4::interval", "p.sent_at < now() + $4::interval"
)
signals.bug("subscriptions of live runs are forgotten").edit(
    "(SELECT r.status IN {_ENDED} AND p.opened_seq", "(SELECT p.opened_seq"
)
signals.bug("a subscription that a retry has just opened is forgotten").edit(
    "r.status IN {_ENDED} AND p.opened_seq <= r.seq", "r.status IN {_ENDED}"
)
signals.bug("older signals of the type that nobody has offered yet are not looked for").edit(
    "AND undelivered IS NULL AND place < $3 ORDER", "AND undelivered IS NULL AND place < $3 AND false ORDER"
)

# --- slots of concurrency keys ----------------------------------------------------------------------------------------

slots = Room("hai_flow/store/messaging/concurrency_slots.py", "tests/store/test_slots.py", _OF_SLOTS)
slots.bug("who starts passes those that wait").edit(
    "\n    AND NOT EXISTS (SELECT FROM slot_waiters w WHERE w.tenant = $1 AND w.key = $2)",
    "\n    AND $2::text IS NOT NULL",
)
slots.bug("a run that has ended is put into the queue, and stays there").edit(
    "WHERE id = $3 AND status IN ('queued', 'paused') FOR SHARE", "WHERE id = $3"
).by("tests/store/test_slots.py")
slots.bug("a run that ends while it is put into the queue stays there").edit(
    "status IN ('queued', 'paused') FOR SHARE", "status IN ('queued', 'paused')"
).by("tests/store/test_slots.py::test_a_run_ending_while_its_wait_becomes_known_leaves_the_queue")
slots.bug("a start that is made again takes a second slot").edit(
    "slot: str | None = held_slot or await", "slot: str | None = await"
).by("tests/store/test_slots.py")
slots.bug("a start of a run that is there takes a slot").edit(
    "\n    AND ($6 OR NOT EXISTS (SELECT FROM runs r WHERE r.id = $4))", ""
)
slots.bug("a key has one seat more than its limit").edit(
    "for number in range(1, seats + 1)]", "for number in range(1, seats + 2)]"
).by(f"{_OF_SLOTS}::test_a_second_run_of_the_key_waits_until_the_first_has_ended")
slots.bug("keys are not locked while slots are given out").edit(
    "pg_advisory_xact_lock(hashtextextended($1, 0))", "length($1)"
)
slots.bug("a start that was stored gives its slot back").edit(
    "run_id = $3 AND promised_until IS NOT NULL\n      AND left_by IS NULL RETURNING true", "run_id = $3 RETURNING true"
).by(f"{_COMMIT}::test_a_slot_is_not_given_back_once_its_run_has_begun")
slots.bug("who has waited longest begins last").edit(
    "ORDER BY queued_at, run_id OFFSET 0", "ORDER BY queued_at DESC, run_id DESC OFFSET 0"
).by(f"{_OF_SLOTS}::test_queued_runs_begin_in_the_order_in_which_they_came")
slots.bug("a run that is paused in the queue is seated").edit(
    "WHERE (SELECT r.status = 'queued' FROM", "WHERE (SELECT true FROM"
).by(f"{_OF_SLOTS}::test_a_paused_run_holds_its_key_and_one_paused_in_the_queue_is_skipped")
slots.bug("a taken slot counts as free").edit(
    "\n  WHERE (SELECT count(*) = 0 FROM slots s WHERE s.tenant = $1 AND s.slot = k.slot)\n)", "\n)"
)
slots.bug("the newest run is stopped for the newest").edit(
    "ORDER BY r.place DESC, r.created_at DESC, r.id DESC OFFSET $4", "ORDER BY r.place OFFSET $4"
).by(f"{_OF_SLOTS}::test_of_several_the_oldest_are_stopped_so_that_the_newest_have_slots")
slots.bug("a run that is being stopped counts as one that holds its key").edit(
    "_GONE: Final = \"('stopping', 'finished', 'failed', 'stopped')\"",
    "_GONE: Final = \"('finished', 'failed', 'stopped')\"",
)
slots.bug("a child needs a slot of the key that its parent holds").edit(
    "UNION ALL SELECT r.id, r.parent_id FROM up JOIN runs r ON r.id = up.parent_id",
    "UNION ALL SELECT r.id, r.parent_id FROM up JOIN runs r ON false",
).by(f"{_OF_SLOTS}::test_children_share_the_slot_of_the_run_above_them")
slots.bug("a slot is free, and nobody who waits is told").edit(
    "await connection.execute(_SEAT, tenant, key, PROMISE)\n        return is_promised",
    "pass\n        return is_promised",
)
slots.bug("the sweep does not see whom a dead process left seated").edit(
    "{_KEY} AS key, array_agg(s.slot)\n", "{_KEY} AS key, '{{}}'::text[]\n"
).by(f"{_OF_SLOTS}::test_the_sweep_admits_a_dead_process_seated_run_and_frees_empty_seats")
slots.bug("slots of runs that began with them are taken back").edit("    await pool.execute(_KEPT, limit)\n", "").edit(
    "AND s.left_by IS NULL AND NOT {_BEGAN}", "AND s.left_by IS NULL"
).by(f"{_COMMIT}::test_what_the_release_before_takes_is_no_promise_once_its_run_is_there")
slots.bug("a slot is taken back while its run is about to be stored").edit(
    "AND s.slot = ANY ($2::text[]) AND s.promised_until <= now()", "AND s.slot = ANY ($2::text[])"
).by(f"{_COMMIT}::test_who_takes_a_slot_back_waits_for_the_commit_that_begins_with_it")

# --- threads ----------------------------------------------------------------------------------------------------------

threads = Room(
    "hai_flow/store/runs/threads.py",
    f"{_READS}::test_a_thread_that_was_branched_leaves_out_what_came_after_the_branch",
    f"{_READS}::test_a_child_run_is_of_the_thread_but_never_its_last_run",
    f"{_READS}::test_a_thread_is_its_runs_in_order_with_their_messages",
)
threads.bug("a child is the last run of its thread").edit(
    "{SUMMARY_COLUMNS} FROM runs WHERE tenant = $1 AND thread_id = $2 AND parent_id IS NULL",
    "{SUMMARY_COLUMNS} FROM runs WHERE tenant = $1 AND thread_id = $2",
)
threads.bug("a branch comes behind the run that was made before it").edit(
    "WHERE line.branch_of IS NOT NULL AND f.id = line.follows", "WHERE false AND f.id = line.follows"
).edit("WHERE line.branch_of IS NULL AND e.tenant", "WHERE e.tenant")
threads.bug("the messages of children are left out").edit("c.thread_id = $2\n)", "false\n)")
threads.bug("the line of a child is empty").edit(
    "  UNION ALL SELECT r.id, r.parent_id FROM up JOIN runs r ON r.id = up.parent_id\n", ""
)
threads.bug("messages come in the order of their runs' ids").edit(
    "ORDER BY shown.back, shown.place DESC, shown.created_at DESC, shown.id DESC, m.n DESC",
    "ORDER BY m.run_id, m.n DESC",
)
threads.bug("a line is in the order of a clock").edit(
    "(e.place, e.created_at, e.id) < (line.place, line.created_at, line.id)", "e.created_at < line.created_at"
).edit("ORDER BY e.place DESC, e.created_at", "ORDER BY e.created_at").by(
    f"{_READS}::test_a_clock_that_steps_back_does_not_change_the_order_of_a_thread"
)
threads.bug("a snapshot shows all of a thread").edit("WHERE line.back < $4\n", "WHERE true\n").by(
    f"{_READS}::test_a_snapshot_begins_with_the_window_and_shows_the_newest_messages"
)
threads.bug("a turn is found in another tenant's thread").edit(
    "WHERE t.tenant = $1 AND t.thread_id = $2 AND t.wire_run_id = $3",
    "WHERE $1::uuid IS NOT NULL AND t.thread_id = $2 AND t.wire_run_id = $3",
)
threads.bug("of two turns with one client's id the other one is meant").edit(
    "ORDER BY COALESCE(t.body_sha = $4, false) DESC,", "ORDER BY COALESCE(t.body_sha = $4, false),"
).by(f"{_READS}::test_of_turns_with_one_client_id_the_equal_body_or_the_newest_counts")
threads.bug("the thread has seen what came behind the event").edit(
    "if row[1] in visible and (row[1] != tip or row[2] <= last_seq)]", "if row[1] in visible]"
)
threads.bug("the thread has seen what was said in a branch that it left").edit(
    "if row[1] in visible and (row[1] != tip", "if (row[1] != tip"
)
threads.bug("the place of a thread is that of a child").edit(
    "AND thread_id = wanted.thread_id AND parent_id IS NULL", "AND thread_id = wanted.thread_id"
).by("tests/store/test_reads.py", "tests/runtime/test_threads.py")

thread_lists = Room(
    "hai_flow/store/runs/thread_lists.py",
    f"{_OF_FEEDBACK}::test_threads_are_listed_once_each_where_their_newest_run_is",
)
thread_lists.bug("a thread is listed once for each run").edit(
    "\n        WHERE r.id = (\n          SELECT n.id", "\n        WHERE r.id IN (\n          SELECT n.id"
).edit(
    " AND n.parent_id IS NULL\n          ORDER BY n.place DESC, n.created_at DESC, n.id DESC LIMIT 1)",
    " AND n.parent_id IS NULL)",
)
thread_lists.bug("a thread is where its child run is").edit(
    " AND n.parent_id IS NULL\n          ORDER", "\n          ORDER"
)
thread_lists.bug("a page of threads begins with the last of the page before").edit(
    "AND (r.created_at, r.id) < ($3, $4)", "AND (r.created_at, r.id) <= ($3, $4)"
)
thread_lists.bug("a thread began with its newest run").edit("SELECT min(f.created_at)", "SELECT max(f.created_at)")
thread_lists.bug("a thread was last changed when it began").edit(
    "ORDER BY l.last_seq DESC LIMIT 1", "ORDER BY l.last_seq LIMIT 1"
)
thread_lists.bug("another tenant's thread is shown").edit(
    "FROM runs r WHERE r.tenant = $1 AND r.thread_id", "FROM runs r WHERE $1::uuid IS NOT NULL AND r.thread_id"
)

# --- feedback ---------------------------------------------------------------------------------------------------------

feedback = Room("hai_flow/store/people/feedback.py", _OF_FEEDBACK)
feedback.bug("the same opinion again is a change").edit(
    "THEN excluded.updated_at ELSE f.updated_at END", "THEN excluded.updated_at ELSE excluded.updated_at END"
)
feedback.bug("an opinion that changes keeps its time").edit(
    "THEN excluded.updated_at ELSE f.updated_at END", "THEN f.updated_at ELSE f.updated_at END"
)
feedback.bug("what somebody said first stands").edit("rating = excluded.rating, comment", "rating = f.rating, comment")
feedback.bug("who withdraws an opinion withdraws everybody's").edit(
    "AND subject_id = $4 AND principal = $5", "AND subject_id = $4 AND $5::text IS NOT NULL"
)
feedback.bug("feedback comes oldest first").edit(
    "ORDER BY created_at DESC, id DESC LIMIT $3", "ORDER BY created_at, id LIMIT $3"
)
feedback.bug("a message is found in any thread").edit(
    "m.tenant = $1 AND m.thread_id = $2 AND m.id", "m.tenant = $1 AND $2::text IS NOT NULL AND m.id"
)
feedback.bug("a pending is found in any thread").edit(
    "p.tenant = $3 AND r.thread_id = $4", "p.tenant = $3 AND $4::text IS NOT NULL"
)
feedback.bug("of several messages with one id the oldest is meant").edit(
    "m.id = $3 ORDER BY r.place DESC, r.created_at DESC", "m.id = $3 ORDER BY r.place, r.created_at DESC"
)

# --- workflows --------------------------------------------------------------------------------------------------------

workflows = Room(
    "hai_flow/store/catalog/workflows.py",
    f"{_READS}::test_a_published_workflow_never_changes_and_the_highest_is_the_latest",
)
workflows.bug("the version that was published last is the latest").edit(
    "CASE WHEN dev THEN 0 ELSE version END DESC, created_at DESC", "created_at DESC"
)
workflows.bug("a dev copy goes before what is published").edit('"dev, retired_at', '"dev DESC, retired_at')
workflows.bug("a dev copy that is published stays one").edit(
    "dev = workflows.dev AND excluded.dev", "dev = workflows.dev"
)
workflows.bug("loading a dev copy makes a published workflow one").edit(
    "dev = workflows.dev AND excluded.dev", "dev = excluded.dev"
)
workflows.bug("a dev copy that is saved again is no newer").edit(
    "CASE WHEN workflows.dev THEN excluded.created_at ELSE workflows.created_at END", "workflows.created_at"
)
workflows.bug("another tenant reads a workflow").edit(
    '"tenant = $1 AND sha256 = $2", tenant, sha256)', '"$1::uuid IS NOT NULL AND sha256 = $2", tenant, sha256)'
)
workflows.bug("the same workflow published at once is refused").edit(
    "if await find_workflow_by_sha(connection, tenant, sha256) is None:", "if True:"
).by(f"{_READS}::test_the_same_workflow_published_by_many_at_once_is_one_workflow")

# --- files ------------------------------------------------------------------------------------------------------------

files = Room("hai_flow/store/runs/files.py", "tests/store/test_files.py")
files.bug("another tenant reads a file").edit(
    "WHERE f.tenant = $1 AND f.sha256 = $2 AND {readable}",
    "WHERE $1::uuid IS NOT NULL AND f.sha256 = $2 AND {readable}",
)
files.bug("a run reads the files of all threads").edit(
    "WHERE me.id = $3 AND me.tenant = f.tenant)", "WHERE $3::uuid IS NOT NULL AND me.tenant = f.tenant)"
).by("tests/runtime/test_files.py::test_a_run_reads_no_file_that_only_runs_of_other_threads_refer_to")
files.bug("a stranger reads a file that no run refers to").edit(
    "_FIND.format(readable=_READABLE)", '_FIND.format(readable="true")'
)
files.bug("a file that is not theirs may be put into a run").edit(
    "_USE.format(readable=_READABLE)", '_USE.format(readable="$3::text IS NOT NULL")'
)
files.bug("a file that a run refers to is swept").edit("AND NOT {_OF_A_RUN}", "")
files.bug("a file that was uploaded just now is swept").edit(
    "touched_at < now() - $4::interval", "$4::interval IS NOT NULL"
)
files.bug("what is being cleared away becomes a file").edit(" AND due_at > now()", "")

# --- schedules and event triggers -------------------------------------------------------------------------------------

triggers = Room("hai_flow/store/messaging/triggers.py", "tests/store/test_schedules.py")
triggers.bug("publishing anew begins every schedule anew").edit(
    "THEN s.next_fire_at ELSE excluded.next_fire_at END", "THEN excluded.next_fire_at ELSE excluded.next_fire_at END"
).by(f"{_OF_TRIGGERS}::test_a_schedule_that_stays_keeps_its_next_instant_and_stays_paused")
triggers.bug("schedules that a new version does not have stay").edit(
    "AND position <> ALL ($3::int[]) RETURNING id", "AND position <> ALL ($3::int[]) AND false RETURNING id"
).by(f"{_OF_TRIGGERS}::test_publishing_keeps_the_triggers_of_the_latest_version")
triggers.bug("an event starts what wants other events").edit(
    "WHERE tenant = $1 AND type = $2 AND kind = $3", "WHERE tenant = $1 AND $2::text IS NOT NULL AND kind = $3"
).by(f"{_OF_TRIGGERS}::test_an_event_starts_each_workflow_that_wants_it_with_its_input")
triggers.bug("an instant is stored by somebody who does not have the schedule any more").edit(
    "WHERE id = $1 AND next_fire_at = $2 AND wake_at = $3 AND NOT paused",
    "WHERE id = $1 AND next_fire_at = $2 AND $3::timestamptz IS NOT NULL AND NOT paused",
)
triggers.bug("a paused schedule fires").edit("AND wake_at = $3 AND NOT paused\n", "AND wake_at = $3\n")
triggers.bug("two start a run of one schedule at once").edit(
    "WHERE id = $1 AND last_run_id IS NOT DISTINCT FROM $2 AND (NOT",
    "WHERE id = $1 AND ($2::uuid IS NULL OR true) AND (NOT",
).by(f"{_OF_TRIGGERS}::test_a_slow_process_waking_after_another_starts_no_second_run")
triggers.bug("a run that was refused stays the last one of its schedule").edit(
    "UPDATE schedules SET last_run_id = $2 WHERE id = $1 AND last_run_id = $3",
    "UPDATE schedules SET last_run_id = $3 WHERE id = $1 AND last_run_id = $3 AND ($2::uuid IS NULL OR true)",
).by(
    f"{_OF_TRIGGERS}::test_a_request_that_is_refused_leaves_the_schedule_as_it_was",
    f"{_OF_TRIGGERS}::test_a_run_that_is_refused_is_noted_and_the_next_instant_fires",
)
triggers.bug("a run that is about to start counts as none").edit(
    "AND last_run_id = $1 AND claimed_until > clock_timestamp()))",
    "AND last_run_id = $1 AND claimed_until < clock_timestamp() - interval '1 day'))",
)
triggers.bug("a schedule that is resumed fires what it missed while it was paused").edit(
    "SET paused = false, next_fire_at = $3, wake_at = now()",
    "SET paused = false, next_fire_at = coalesce(last_fire_at, $3), wake_at = now()",
).by(f"{_OF_TRIGGERS}::test_a_paused_schedule_fires_only_by_request_and_has_missed_nothing")

# --- inboxes and notifications ----------------------------------------------------------------------------------------

_OF_INBOX: Final = "tests/store/test_inbox.py"
statement.bug("whom a question asks no more still finds it in their inbox").edit(
    "AND inbox.selector <> ALL (given.asks)", "AND inbox.selector <> ALL (source.asks) AND false"
).by(f"{_OF_INBOX}::test_rows_follow_whom_a_pending_asks_and_leave_with_it")
inbox = Room("hai_flow/store/people/inbox.py", _OF_INBOX)
inbox.bug("an inbox shows another tenant's questions").edit(
    "WHERE tenant = $1 AND inbox.selector", "WHERE $1::uuid IS NOT NULL AND inbox.selector"
)
inbox.bug("a page with filters that found little is the last one").edit(
    "return items, (last_due, last_id) if n == scanned else None", "return items, None"
)
inbox.bug("somebody else's claim is taken over while it lasts").edit(
    "claimed_by = $4 OR claimed_until IS NULL OR claimed_until <= now()", "true"
).by("tests/api/test_inbox.py::test_a_claim_is_visible_blocks_no_decision_and_is_given_back")
notifications = Room("hai_flow/store/people/notifications.py")
notifications.bug("a reminder is dropped for an escalation over other channels").by(
    "tests/runtime/test_notifier.py::test_an_escalation_stands_for_reminders_over_its_channels_alone"
).edit("AND notify @> $6)", "AND $6::text[] IS NOT NULL)")
notifications.bug("a link whose time is over is found").edit(
    "WHERE digest = $1 AND expires_at > now()", "WHERE digest = $1"
).by("tests/api/test_links.py::test_a_link_whose_time_is_over_is_as_one_that_never_was")

# --- connections ------------------------------------------------------------------------------------------------------

connections = Room("hai_flow/store/postgres/database.py", "tests/store/test_database.py")
connections.bug("each connection asks for the types of arrays").edit("_types_known.update(", "tuple(").by(
    "tests/store/test_database.py::test_only_a_process_first_connection_asks_for_array_types"
)
connections.bug("a type of one database is taken for that of another").edit(
    'for each in types if each["oid"] < _OIDS_OF_POSTGRES_MAX)', "for each in types)"
).by("tests/store/test_database.py::test_a_type_of_the_database_s_own_is_asked_for_by_each_connection")

# --- the audit --------------------------------------------------------------------------------------------------------

audit = Room("hai_flow/store/audit/audit.py", "tests/store/test_audit.py")
audit.bug("a record has two places in the chain").edit("if not sealed:\n", "if True:\n").by(
    "tests/store/test_audit.py::test_a_place_in_the_queue_that_comes_back_is_not_sealed_twice"
)
audit.bug("who took a record out of the queue is not found").edit(
    "s.id IS NULL AND u.id IS NULL ORDER BY", "s.id IS NULL AND u.id IS NULL AND false ORDER BY"
).by("tests/store/test_audit.py::test_a_record_that_was_taken_out_of_the_queue_is_named")
audit_chain = Room("hai_flow/store/audit/audit_chain.py", "tests/store/test_audit.py")
audit_chain.bug("two records have the same bytes").edit('else len(field).to_bytes(4, "big") + field', "else field").by(
    "tests/store/test_audit.py::test_no_two_records_have_the_same_bytes"
)
audit_chain.bug("what the person saw is not part of the chain").edit("        record.digest,\n", "").by(
    "tests/store/test_audit.py::test_any_field_of_any_record_is_part_of_the_chain"
)
audit_chain.bug("what was erased may be changed again").edit(
    "if commitment(details) != expected or (", "if details.erased_at is None and commitment(details) != expected or ("
).by("tests/store/test_erasing.py::test_what_is_changed_after_it_was_erased_is_found")
audit_chain.bug("a record of erasing that was changed itself is believed").edit(
    "if details is None or commitment(details) != commitments.get(record.id, record.commitment):", "if details is None:"
).by("tests/store/test_erasing.py::test_a_record_of_erasing_that_was_changed_accounts_for_nothing")
erasing = Room("hai_flow/store/identity/erasure.py", "tests/store/test_erasing.py")
erasing.bug("who is forgotten still has delegates").edit(
    "WHERE tenant = $1 AND $2 IN (from_id, to_id)", "WHERE tenant = $1 AND $2 IN (from_id) AND false"
).by("tests/store/test_erasing.py::test_opinions_and_keys_are_erased_and_what_runs_hold_is_counted")
log_chain = Room("hai_flow/store/audit/log_chain.py")
log_chain.bug("a log is not held against the audit").edit("if expected != chain:", "if False:").by(
    "tests/runtime/test_auditing.py::test_a_log_that_was_rewritten_with_its_head_is_found_by_the_audit"
)
retiring = Room("hai_flow/store/ops/retention.py")
_RETENTION = "tests/runtime/test_retention.py"
retiring.bug("a run that went on since it was looked at is removed").edit("or now != list(unit) or", "or").by(
    f"{_RETENTION}::test_nobody_is_removed_who_went_on_since_it_was_looked_at"
)
retiring.bug("an archive of a run that went on since counts as one of it as it is").edit(
    '(row["head"], row["opinions"])', '(each.head, row["opinions"])'
).by(f"{_RETENTION}::test_a_run_that_went_on_since_it_was_archived_is_archived_anew")
retiring.bug("a decision that the audit refers to goes with the rest").edit(
    '"pendings": _KEPT.format(id="id"),', '"pendings": "true",'
).by(f"{_RETENTION}::test_removed_threads_return_byte_for_byte_and_the_audit_always_fits")
packing = Room("hai_flow/store/runs/log_compaction.py")
packing.bug("a merged row loses the end of its first commit").edit(
    "first, start = part.last_seq + 1, start + part.size - 1", "first, start = part.last_seq + 1, start + part.size"
).by(f"{_RETENTION}::test_merged_commits_come_apart_byte_for_byte")

TARGETS: Final = (
    Target(
        "hai_flow/store/commit/projection.py",
        (
            "tests/store/test_projection.py",
            "tests/runtime/test_inbox.py",
            "tests/runtime/test_notifier.py",
            "tests/runtime/test_picks.py",
        ),
    ),
    Target(
        "hai_flow/store/postgres/error_classes.py",
        ("tests/store/test_database.py::test_what_a_failure_asks_of_its_sender",),
        functions=("sqlstate_of", "classify"),
    ),
)
