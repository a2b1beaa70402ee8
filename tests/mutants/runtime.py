"""Bugs of the runtime: when something is told, taken, begun, given back; and what a process does after a failure."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room
from tests.mutants.operators import Target

_FANOUT: Final = "tests/runtime/test_fanout.py"
_OUTBOX: Final = "tests/runtime/test_outbox.py"
_SIGNALS: Final = "tests/runtime/test_signals.py"
_CHILDREN: Final = "tests/runtime/test_children.py"
_SLOTS: Final = "tests/runtime/test_slots.py"
_FRESHNESS: Final = "tests/runtime/test_freshness.py"
_COMMITTER: Final = "tests/runtime/test_committer.py"
_WORKER: Final = "tests/runtime/test_worker.py"

# --- fan-out ----------------------------------------------------------------------------------------------------------

states = Room("hai_flow/runtime/commit/states.py")
states.bug("a state of the past is that of the whole commit").edit(
    "fold(state, events[state.seq + 1 - row.first_seq : max(0, seq + 1 - row.first_seq)])", "fold(state, events)"
).by(f"{_FANOUT}::test_the_snapshot_at_k_is_the_fold_of_k_events_for_every_k")
states.bug("a state of the past leaves the snapshot out").edit(
    "start if loaded.state is None else decode_state(loaded.state)", "start"
).by(f"{_FANOUT}::test_the_snapshot_at_k_is_the_fold_of_k_events_for_every_k")
states.bug("a process that knows more than the database does is right").edit(
    "if loaded.from_seq < start.seq:", "if False:"
).by(f"{_FANOUT}::test_state_read_behind_a_known_one_is_that_of_the_whole_log")
loads = Room("hai_flow/store/runs/logs.py")
loads.bug("a removed run's state is taken for that of one of its id").edit(
    "coalesce(r.created_at = w.created_at, true)", "true"
).by(f"{_FRESHNESS}::test_a_run_that_was_removed_is_not_read_in_one_of_its_id")
decisions = Room("hai_flow/store/commit/commit_sql.py")
decisions.bug("a decision about a removed run is committed to one of its id").edit(
    " AND coalesce(r.created_at = entries.created_at, true)", ""
).by(f"{_FRESHNESS}::test_a_decision_is_on_the_run_that_is_there")
decisions.bug("a run begins with a version that the database has lost").edit(
    "AND w.retired_at IS NULL\n  )) AND", "AND w.retired_at IS NOT NULL\n  ) IS FALSE) AND"
).by("tests/runtime/test_starts.py::test_of_many_starts_only_those_of_another_version_are_refused")
taken_in = Room("hai_flow/runtime/commit/loader.py")
taken_in.bug("a decision is made on what the database has lost").edit(
    "if loaded.from_seq < run.state.seq:", "if False:"
).by(f"{_FRESHNESS}::test_what_the_database_has_lost_is_forgotten")
plans = Room("hai_flow/runtime/catalog/catalog.py")
plans.bug("the plan that is started most is evicted first").edit(
    "self._plans.move_to_end(key)\n        return stored", "return stored"
).by("tests/runtime/test_starts.py::test_the_plan_that_is_started_most_is_not_the_first_forgotten")
fanout = Room("hai_flow/runtime/streams/fanout.py", "tests/runtime/test_feeds.py")
fanout.bug("who follows a run of another's id reads its log for ever").edit("if seq < head:", "if False:").by(
    f"{_FANOUT}::test_a_feed_ahead_of_the_log_sends_its_followers_back"
)
fanout.bug("a feed accepts a gap").edit("if first_seq > feed.head + 1 or feed.encoding:\n", "if feed.encoding:\n")
fanout.bug("a feed shows again what it has shown").edit(
    "return events[max(0, self.head + 1 - first_seq) :]", "return list(events)"
)
fanout.bug("what was committed while the first follower read is not shown").edit(
    "            for first_seq, events in early:\n                self._accept(feed, first_seq, events)\n", ""
)
fanout.bug("what is committed before a feed has its head is dropped").edit(
    "            feed.early.append((first_seq, events))\n", ""
)
fanout.bug("who is slower than the ring misses events").edit(
    "if skip < 0 or self.broken:\n            raise Lagging\n", "skip = max(0, skip)\n"
).by(f"{_FANOUT}::test_who_is_slower_than_the_ring_is_told_to_come_back")
fanout.bug("a ring keeps everything").edit("while self.bytes > bytes_max and len(self.pieces) > 1:", "while False:").by(
    f"{_FANOUT}::test_who_is_slower_than_the_ring_is_told_to_come_back"
)
fanout.bug("a ring that forgets does not know where it begins").edit(
    "self.bytes -= len(self.pieces.popleft().data)\n            self.first_seq += 1",
    "self.bytes -= len(self.pieces.popleft().data)",
).by(f"{_FANOUT}::test_who_is_slower_than_the_ring_is_told_to_come_back")
fanout.bug("a ring forgets what it has just taken in").edit(
    "while self.bytes > bytes_max and len(self.pieces) > 1:", "while self.bytes > bytes_max:"
)
fanout.bug("a place is given news that are no longer all").edit(
    "self.newest = None\n        self.pieces", "self.pieces"
)
fanout.bug("a place is given the news of another place").edit(
    "if news is None or news.after != self.seq:", "if news is None:"
)
fanout.bug("news are made for each follower anew").edit("if news is None or news.after != self.seq:", "if True:").by(
    f"{_FANOUT}::test_a_place_is_told_of_news_and_one_that_fails_keeps_nobody_from_them"
)
fanout.bug("a stream goes on behind its end").edit(
    "_news(pieces[:last], last=last is not None, after=seq)", "_news(pieces, last=False, after=seq)"
).by(f"{_FANOUT}::test_a_follower_resumes_after_every_seq_without_gap_or_repetition")
fanout.bug("only the first two hundred followers are told").edit(
    "            asyncio.get_running_loop().call_soon(self._notify)\n"
    "            return\n"
    "        self._notifying = None",
    "            pass\n        self._notifying = None",
).by(f"{_FANOUT}::test_a_place_is_told_of_news_and_one_that_fails_keeps_nobody_from_them")
fanout.bug("news that come while followers are told are not told of").edit(
    "        else:\n            self._again = True\n", ""
)
fanout.bug("a follower that fails keeps others from the news").edit(
    "except Exception as error:  # a follower's fault harms no other", "except LookupError as error:"
).by(f"{_FANOUT}::test_a_place_is_told_of_news_and_one_that_fails_keeps_nobody_from_them")
fanout.bug("an encoder that fails leaves its followers waiting").edit("                ring.break_off()\n", "").by(
    f"{_FANOUT}::test_an_encoder_that_fails_ends_its_own_streams_and_no_commit"
)
fanout.bug("a place does not move").edit("        self.seq += len(news.pieces)\n", "").by(
    "tests/runtime/test_feeds.py::test_each_place_takes_all_that_is_new_to_it_and_nothing_else"
)
fanout.bug("a stream that is open at a close waits for ever").edit(
    "return _news([*news.pieces, _farewell(ring.encoder, ring.dialect)], last=True)\n", "pass\n"
).by(f"{_FANOUT}::test_at_a_close_every_stream_says_farewell_and_ends")
fanout.bug("at a close nobody is woken").edit(
    "            for ring in list(feed.rings.values()):\n                ring.wake()\n", ""
).by(f"{_FANOUT}::test_at_a_close_a_stream_without_a_farewell_ends_too")
fanout.bug("a follower that leaves stays in its ring").edit("            del ring.places[self]\n", "").by(
    "tests/runtime/test_feeds.py::test_a_feed_and_a_ring_stay_until_their_last_follower_has_gone"
)
fanout.bug("a follower that is dropped leaves its place behind").edit(
    "    def __del__(self) -> None:  # dropped in the middle: as a generator does, it closes itself\n"
    "        self._leave()",
    "    def __del__(self) -> None:\n        pass",
).by(f"{_FANOUT}::test_a_follower_that_is_dropped_leaves_its_place")
fanout.bug("a feed goes with its first follower").edit(
    "if not feed.followers:\n            self._feeds.pop", "if True:\n            self._feeds.pop"
)
fanout.bug("a feed stays when its last follower has gone").edit("self._feeds.pop(feed.run_id, None)\n", "pass\n").by(
    f"{_FANOUT}::test_a_follower_that_is_dropped_leaves_its_place"
)
fanout.bug("the last follower leaves the ring behind").edit("del ring.feed.rings[key]\n", "pass\n")
fanout.bug("a read stops after its first page").edit(
    "if len(rows) < READ_ROWS and not feed.read_again:", "if not feed.read_again:"
)
fanout.bug("what is asked for while a feed reads is not read").edit("feed.read_again = True\n", "pass\n")
fanout.bug("a feed that failed to read never reads again").edit(
    "finally:\n            feed.reading = False", "finally:\n            pass"
)
fanout.bug("the poll looks only at what was hinted at").edit(
    "everything = time.monotonic() >= due  # however", "everything = False  # however"
).by(f"{_FANOUT}::test_without_hints_the_poll_shows_what_another_process_commits")
fanout.bug("hints for other runs put the poll off").edit(
    "if everything:\n                due", "if everything or self._wake.is_set():\n                due"
)
fanout.bug("hints are not heard").edit("        if self._hinted:\n            self._wake.set()\n", "")
fanout.bug("after a lost connection only the poll finds what was missed").edit(
    "if payload == EVERYTHING:\n            self._hinted.update(self._feeds)\n        else:",
    "if payload != EVERYTHING:",
)
fanout.bug("a stream that is resumed in the middle of a commit begins with the whole of it").edit(
    "if events is None else events)[seq + 1 - row.first_seq :]:", "if events is None else events):"
).by(f"{_FANOUT}::test_a_follower_resumes_after_every_seq_without_gap_or_repetition")
fanout.bug("who has seen a run end waits for more of it").edit(
    "                    if start.ended and seq == start.seq:\n"
    "                        return  # an ended run says no more, and this follower has seen it end\n",
    "",
).by(f"{_FANOUT}::test_a_follower_resumes_after_every_seq_without_gap_or_repetition")
fanout.bug("of a run that has ended nothing is read").edit(
    "unsure = start.ended  # whether anything follows an end, only the log can say",
    "if start.ended:\n                return\n            unsure = False",
)
fanout.bug("a follower that is ahead of its feed waits for news").edit(
    "self._read_later(feed)\n                        await moved.wait()", "await moved.wait()"
)

# --- messages between runs, and signals -------------------------------------------------------------------------------

delivery = Room("hai_flow/runtime/messaging/outbox.py", _OUTBOX, _SIGNALS)
delivery.bug("a delivered message is given out again for ever").edit(
    "return await outbox.delete_message(connection, message)", "return False"
).by(f"{_OUTBOX}::test_a_run_is_paused_resumed_and_stopped_by_messages")
delivery.bug("a message that was delivered twice is carried out twice").edit(
    "            command_id=message.command_id,\n            body_sha=sha256(message.body).digest(),\n", ""
).by(f"{_OUTBOX}::test_a_message_of_a_process_that_died_before_the_delete_is_finished")
delivery.bug("a message that will never be accepted is kept").edit(
    "if rejected.status not in FINAL_REFUSALS:\n                return False\n", "return False\n"
).by(f"{_OUTBOX}::test_what_is_refused_for_good_is_dropped_and_an_unknown_kind_is_left")
delivery.bug("a message that nobody understands is dropped").edit(
    'raise ValueError(f"no release of ours', 'return None\n            raise ValueError(f"no release of ours'
).by(f"{_OUTBOX}::test_what_is_refused_for_good_is_dropped_and_an_unknown_kind_is_left")
delivery.bug("messages to one target are under way at once").edit(
    "self._messages.add((message.run_id, message.target), message", "self._messages.add(message.command_id, message"
).by(f"{_OUTBOX}::test_a_quick_message_waits_only_for_the_one_before_it_to_its_target")
delivery.bug("a quick message waits for a slow one to another target").edit(
    "self._messages.add((message.run_id, message.target), message", "self._messages.add(None, message"
).by(f"{_OUTBOX}::test_a_quick_message_waits_only_for_the_one_before_it_to_its_target")
delivery.bug("subscribe does not look again").edit(
    "            await self._send_stored(message, subscription.since, {type: readings[type] for "
    "type in awaited}, ())\n",
    "",
).by(_SIGNALS)
delivery.bug("subscribe looks for what was stored only behind the subscription").edit(
    "awaited = await self._send_stored(message, subscription.since, readings, again)",
    "awaited = list(subscription.types)",
).by(_SIGNALS)
delivery.bug("a run that begins to wait is not subscribed").edit(
    "            await signals.subscribe(pool, tenant, run_id, subscription.path, offered, message.last_seq)\n", ""
).by(f"{_SIGNALS}::test_a_signal_finishes_the_step_that_waits_for_it")
delivery.bug("only the first page of what was stored is offered").edit(
    "if last:\n                break\n", "break\n"
).by(f"{_SIGNALS}::test_a_signal_from_before_the_step_is_found_behind_many_unwanted")
delivery.bug("a run is offered what it does not wait for any more").edit(
    "if signal.type in awaited:\n", "if True:\n"
).by(_SIGNALS)
delivery.bug("what a run has heard is read again").edit(
    "if heard is None:\n        return _SignalReading(0, None, 0)\n",
    "if True:\n        return _SignalReading(0, None, 0)\n",
).by(f"{_SIGNALS}::test_a_burst_costs_each_signal_a_page_at_most")
delivery.bug("a signal is never settled").edit("await signals.settle_signal(self.database.api, signal)\n", "pass\n").by(
    f"{_SIGNALS}::test_a_signal_offered_twice_by_a_death_before_settling_is_taken_once"
)
delivery.bug("a signal that somebody could not be brought is settled").edit(
    "if not unreached:\n            await signals.settle", "if True:\n            await signals.settle"
).by(f"{_SIGNALS}::test_an_unreachable_listener_keeps_a_signal_from_nobody_else")
delivery.bug("one who can't be reached keeps a signal from others").edit(
    "await asyncio.gather(*offering, return_exceptions=True)", "await asyncio.gather(*offering)"
).by(f"{_SIGNALS}::test_an_unreachable_listener_keeps_a_signal_from_nobody_else")
delivery.bug("who could not be reached is tried again for ever").edit(
    "last = tries >= self.config.tries_max\n", "last = False\n"
).by(f"{_SIGNALS}::test_a_signal_unheard_by_somebody_is_given_up_and_names_them")
delivery.bug("who could not be reached is tried again at once").edit(
    "wait = min(self.config.again_seconds * 2**signal.tries, self.config.again_seconds_max)",
    "wait = self.config.again_seconds",
).by(f"{_SIGNALS}::test_the_wait_for_one_who_can_not_be_reached_grows")
delivery.bug("listeners hear of signals for one run").edit(
    "if signal.run_id is None:\n                    unreached |=", "if True:\n                    unreached |="
).by(f"{_SIGNALS}::test_a_listener_hears_every_broadcast_until_it_has_read_it")
delivery.bug("a newer signal overtakes an older one that another process is about to offer").edit(
    "self._send_in_order(each, [*before, signal])", "self._send_in_order(each, [signal])"
).by(f"{_SIGNALS}::test_a_signal_is_offered_after_older_ones_of_another_process")
delivery.bug("older signals for another run are offered to this one").edit(
    "if signal.run_id in (None, run_id):\n", "if True:\n"
).by(f"{_SIGNALS}::test_an_older_pending_signal_is_offered_only_to_its_addressee")
delivery.bug("a run that waits no more stays subscribed").edit(
    "await signals.unsubscribe(self.database.api, run_id, signal.type, subscriber.opened_seq)", "pass"
).by(_SIGNALS)
delivery.bug("a run that has ended makes the offering of a signal fail").edit(
    'if rejected.status not in FINAL_REFUSALS:\n                raise\n            return {"taken"',
    'raise\n            return {"taken"',
).by(_SIGNALS)
delivery.bug("what a process has written is delivered only by the poll").edit(
    "        self.committer.listeners.outbox.append(self._mail.set)\n", ""
).by(f"{_CHILDREN}::test_a_process_that_performs_nothing_delivers_its_own_commits")
delivery.bug("the poll looks for nothing that dead processes have left").edit(
    "if due is None or due.signals:", "if due is None:"
).by(f"{_SIGNALS}::test_a_signal_whose_sender_dies_unoffered_is_offered_by_another")
delivery.bug("a child that can't start leaves its parent waiting").edit(
    'await self._refuse(message, body["parent"], rejected)\n', "pass\n"
).by(f"{_CHILDREN}::test_an_input_that_the_child_does_not_take_fails_the_step")

# --- concurrency keys -------------------------------------------------------------------------------------------------

slots = Room("hai_flow/runtime/runs/concurrency_slots.py", _SLOTS)
slots.bug("a start that is refused keeps its slot").edit(
    "if slot is not None and await concurrency_slots.give_back(", "if False and await concurrency_slots.give_back("
).by(f"{_SLOTS}::test_a_start_that_is_refused_leaves_no_slot_behind")
slots.bug("the slot of a start that is refused is nobody's, though others wait").edit(
    "                with contextlib.suppress(Rejected):  # else the sweep does it, when the promise is over\n"
    "                    await self.admit(tenant, key)\n",
    "                pass\n",
).by(f"{_SLOTS}::test_a_refused_start_gives_its_slot_to_the_next_in_the_queue")
slots.bug("a start that is made again is refused because of itself").edit(
    "run_lists.get_run(self.database.api, tenant, run_id) is None:\n            raise await self._busy",
    "run_lists.get_run(self.database.api, tenant, run_id) or True:\n            raise await self._busy",
).by(f"{_SLOTS}::test_a_start_repeated_after_its_run_ended_is_not_refused_for_the_key")
slots.bug("a child waits for the key that its parent holds").edit(
    "if isinstance(begin, c.Fork) or begin.parent is None:\n            return False\n", "return False\n"
).by(f"{_SLOTS}::test_children_share_the_slot_of_the_run_above_them")
slots.bug("where the workflow says reject, a second run waits").edit(
    'if concurrency.on_conflict == "reject" or isinstance(begin, c.Fork):', "if isinstance(begin, c.Fork):"
).by(f"{_SLOTS}::test_a_second_run_is_refused_with_the_firsts_name_where_none_queues")
slots.bug("who holds the key is not stopped for a newer run").edit("if request.cancels:\n", "if False:\n").by(
    f"{_SLOTS}::test_a_newer_run_stops_the_oldest_and_takes_its_place"
)
slots.bug("the end of a run admits nobody").edit("        await self.admit(message.tenant, freed.key)\n", "").by(
    f"{_SLOTS}::test_a_second_run_of_the_key_waits_until_the_first_has_ended"
)
slots.bug("who waits is not admitted if a slot became free meanwhile").edit(
    "        await self.admit(tenant, request.key)\n", ""
).by(f"{_SLOTS}::test_a_run_whose_wait_is_known_when_the_slot_is_free_begins_at_once")
slots.bug("a run that ends in the queue stays in it").edit(
    "        await concurrency_slots.leave_queue(self.database.api, message.tenant, freed.key, message.run_id)\n", ""
).by(f"{_SLOTS}::test_a_queued_run_that_is_stopped_leaves_the_queue")
slots.bug("who can't be admitted keeps the slot").edit(
    "given_on |= await concurrency_slots.give_back(pool, tenant, key, seat.slot, seat.run_id)", "pass"
).by(f"{_SLOTS}::test_a_run_paused_during_admission_passes_the_slot_and_keeps_its_place")
slots.bug("a run that was paused in the queue loses its place").edit(
    '            if rejected.code == "run_paused":  # it asks again when it is resumed\n'
    "                return given_on\n",
    "",
).by(f"{_SLOTS}::test_a_run_paused_during_admission_passes_the_slot_and_keeps_its_place")
slots.bug("an admitted run stays in the queue").edit(
    "await concurrency_slots.leave_queue(pool, tenant, key, seat.run_id)\n        return given_on\n",
    "return given_on\n",
).by(f"{_SLOTS}::test_a_run_paused_during_admission_passes_the_slot_and_keeps_its_place")
slots.bug("slots that were taken for nobody stay taken, and whom a dead process left seated is never admitted").edit(
    "lambda each: self.admit(each.tenant, each.key, each.slots)",
    "lambda each: slots.overdue_promises(self.database.api)",
).by(f"{_SLOTS}::test_the_sweep_admits_a_dead_process_seated_run_and_frees_empty_seats")

# --- the committer ----------------------------------------------------------------------------------------------------

committer = Room("hai_flow/runtime/commit/committer.py", _COMMITTER)
committer.bug("a stop forgets what was asked before it").edit(
    "await self.queues.wait_empty()\n        except TimeoutError:", "pass\n        except TimeoutError:"
).by("tests/runtime/test_promises.py::test_what_was_asked_before_a_stop_is_committed_and_answered")
committer.bug("what a caller was told to send again is done all the same, behind a slow commit").edit(
    "            run.withdraw(submission)\n", ""
)
committer.bug("who was not answered at a stop waits for ever").edit(
    "if not answer.done():\n                answer.set_exception(", "if False:\n                answer.set_exception("
).by("tests/runtime/test_promises.py::test_who_can_not_be_answered_before_a_stop_ends_is_told_so")
committer.bug("a run that somebody holds is decided on as it was read").edit("or row.worker is not None ", "").by(
    "tests/runtime/test_freshness.py::test_a_run_that_somebody_holds_is_loaded_whoever_has_read_it"
)
decider = Room("hai_flow/runtime/commit/decider.py", _COMMITTER)
decider.bug("who asked is answered before the commit").edit(
    "entry.row = row = self._row(entry)\n", "entry.row = row = self._row(entry)\n                entry.settle()\n"
).by(f"{_COMMITTER}::test_of_two_processes_answering_at_once_one_wins_the_other_hears_it")
decider.bug("a decision made beside the loop counts though its run has moved").edit(
    "            or foresight.state is not entry.state\n", ""
).by("tests/runtime/test_entries.py::test_a_large_command_is_decided_beside_the_loop_for_an_unmoved_run")
decider.bug("a decision of the holder of unknown outcome may land behind the load").edit(
    "fence=run.fence if run.owned else None", "fence=None"
).by(f"{_COMMITTER}::test_a_late_decision_of_the_holder_behind_the_load_loses")
decider.bug("large commands are decided on the loop").edit(
    "return kind in _LARGE or (kind not in _SMALL and is_large(command))\n", "return False\n"
).by("tests/runtime/test_entries.py::test_a_large_command_is_decided_beside_the_loop_for_an_unmoved_run")
decider.bug("a refusal is given from a state that may be stale").edit(
    "return rejected if _is_fresh(entry, submission) else None\n", "return rejected\n"
).by("tests/runtime/test_freshness.py::test_an_answer_to_what_another_process_has_just_asked_is_taken")
decider.bug("already so is said from a state that may be stale").edit(
    "return _outcome(run, decision, entry.state, True) if _is_fresh(entry, submission) else None",
    "return _outcome(run, decision, entry.state, True)",
).by("tests/runtime/test_freshness.py::test_what_another_process_has_undone_is_not_so_already")
decider.bug("a state proves fresh what came after it was loaded").edit(
    "fresh = entry.decides or entry.locked or run.loaded_at >= submission.arrived or not run.exists", "fresh = True"
).by("tests/runtime/test_freshness.py::test_an_answer_to_what_another_process_has_just_asked_is_taken")
decider.bug("a run that was not looked for is unknown").edit(
    "return reject_unknown_run(run.id) if entry.locked or run.loaded_at >= submission.arrived else None",
    "return reject_unknown_run(run.id)",
).by("tests/runtime/test_streaming.py::test_a_run_is_unknown_only_to_what_was_asked_before_it_was_looked_for")
decider.bug("another tenant's command is carried out").edit(
    "elif unborn or submission.tenant not in (None, run.tenant):", "elif unborn:"
).by(f"{_COMMITTER}::test_another_tenant_is_told_that_there_is_no_such_run")
decider.bug("a command id with another body gets the first outcome").edit(
    "if known.body_sha != submission.body_sha:\n", "if False:\n"
).by(f"{_COMMITTER}::test_a_command_id_has_one_outcome_everywhere_and_another_body_is_409")
decider.bug("chunks of an attempt that is over are written").edit(
    "if entry.state.attempts.get(chunk.path) != chunk.attempt or not (run.owned or _is_reported(run, chunk)):",
    "if not (run.owned or _is_reported(run, chunk)):",
).by("tests/runtime/test_streaming.py::test_pieces_of_an_attempt_that_is_not_open_are_dropped")
decider.bug("chunks of a run that others hold are sent").edit(
    "if entry.state.attempts.get(chunk.path) != chunk.attempt or not (run.owned or _is_reported(run, chunk)):",
    "if entry.state.attempts.get(chunk.path) != chunk.attempt:",
).by("tests/runtime/test_streaming.py::test_pieces_of_a_run_that_was_lost_meanwhile_are_dropped")
decider.bug("chunks that have landed are written again").edit(
    "if not message.open or message.chunks > chunk.n else [piece]", "if not message.open else [piece]"
).by("tests/runtime/test_streaming.py::test_a_piece_is_written_once_however_often_it_is_sent")
decider.bug("pieces of a call that have landed are written again").edit(
    "not call.open or len(call.args) > chunk.n:", "not call.open:"
).by("tests/runtime/test_streaming.py::test_a_piece_of_a_call_is_written_once_at_its_place")
decider.bug("a chunk that is older than the state goes back in time").edit(
    "entry.state, max(self._now_ms(), entry.state.at))\n", "entry.state, self._now_ms())\n"
).by("tests/runtime/test_clock.py")
decider.bug("a retry takes the slot that it needs from nobody").edit(
    "take_slot=_slot_of(run) if", "take_slot=None if"
).by("tests/runtime/test_freshness.py::test_a_run_that_is_retried_has_its_thread_for_itself_again")
decider.bug("a run that is busy is due by its timers too").edit(
    "due = None if busy or ended else wake_at(state)", "due = None if ended else wake_at(state)"
).by(f"{_WORKER}::test_streaming_under_a_timer_does_not_pile_up_wakes", "tests/runtime/test_memory.py")
decider.bug("what a decision cuts off may still be written").edit("            cut=entry.cut,\n", "").by(
    "tests/runtime/test_promises.py::test_a_decision_that_cuts_an_attempt_off_raises_the_fence"
)
decider.bug("a run that waits for time is never due").edit(
    "wake_at=None if due is None else instants.instant(due),", "wake_at=None,"
).by("tests/runtime/test_promises.py::test_a_run_that_waits_for_time_is_due_then")
_KNOWLEDGE = "tests/runtime/test_cached_run.py"
cached = Room("hai_flow/runtime/commit/cached_run.py", _KNOWLEDGE)
cached.bug("the commands of an entry that lost are forgotten").edit(
    "        self._submissions.extendleft(each for each in reversed(submissions) if not each.failed)\n", ""
).by(f"{_COMMITTER}::test_of_two_processes_answering_at_once_one_wins_the_other_hears_it")
cached.bug("the commands of an entry that lost come back in the other order").edit(
    "self._submissions.extendleft(each for each in reversed(submissions) if not each.failed)\n",
    "self._submissions.extendleft(submissions)\n",
).by("tests/runtime/test_freshness.py::test_commands_that_lost_come_again_in_their_order")
cached.bug("the chunks of an entry that lost are forgotten").edit(
    "        self._chunks.extendleft(reversed(chunks))\n", ""
).by("tests/runtime/test_streaming.py::test_pieces_that_lost_by_an_old_fence_are_sent_again_under_the_new_one")
cached.bug("a state counts as young after another process has moved the run").edit(
    "self._outdated_at = max(now, self._loaded_at)\n        self._must_load = True\n", "pass\n"
)
cached.bug("a load proves a state that was outdated while it ran").edit(
    "self._must_load = began <= self._outdated_at\n", "self._must_load = False\n"
)
cached.bug("a run is in two queues at once").edit(
    '        if self._position == "queued":\n            raise self._illegal("enqueue")\n', ""
)
cached.bug("a run that is gone is held on to").edit(
    "self._exists = False\n            self.forget()\n", "self._exists = False\n"
)
cached.bug("a run that was handed on is claimed back as if it had not been").edit(
    "self._owned, self._worker, self._fence = False, None, self._fence + 1\n",
    "self._owned, self._worker = False, None\n",
)
cached.bug("every claim counts as fresh").edit(
    "self._claim_unproven = self._worker is not None or fence != self._fence + 1\n", "self._claim_unproven = False\n"
).by(
    "tests/runtime/test_worker.py::test_a_dead_workers_run_claimed_by_a_lost_answer_is_declared_lost",
    f"{_COMMITTER}::test_a_birth_of_unknown_outcome_is_held_and_performed",
)
cached.bug("a claim that was free before counts as fresh whatever its fence").edit(
    "self._claim_unproven = self._worker is not None or fence != self._fence + 1",
    "self._claim_unproven = self._worker is not None",
).by("tests/runtime/test_worker.py", f"{_COMMITTER}::test_a_birth_of_unknown_outcome_is_held_and_performed")
cached.bug("a run that is born counts as one whose claim was lost").edit(
    "BEFORE_BIRTH: Final = -1", "BEFORE_BIRTH: Final = -2"
)
lanes = Room("hai_flow/runtime/commit/lanes.py", _COMMITTER)
lanes.bug("a batch is published before it is committed").edit(
    "            began = time.monotonic()\n"
    "            try:\n"
    "                done = await self._send(connection, batch)",
    "            began = time.monotonic()\n"
    "            for entry in batch.entries:\n"
    "                self._listeners.notify_committed(entry.run, entry.run.state.seq + 1, entry.events)\n"
    "            try:\n                done = await self._send(connection, batch)",
).edit(
    "            self._listeners.notify_committed(run, first_seq, entry.events)\n            self._snapshots",
    "            self._snapshots",
).by(f"{_COMMITTER}::test_nothing_is_published_before_its_commit_has_returned")
lanes.bug("what others wrote in between is skipped").edit(
    "if first_seq == run.state.seq + 1:\n            run.advance", "if True:\n            run.advance"
).by(f"{_COMMITTER}::test_chunks_that_others_wrote_in_between_are_folded_before_a_decision")
lanes.bug("a run that has lost three times is never taken alone").edit("elif run.must_lock:\n", "elif False:\n").by(
    f"{_COMMITTER}::test_who_lost_three_times_takes_the_run_alone_and_wins"
)
lanes.bug("who lost decides again on the state that lost").edit(
    "run.lose()\n        entry.give_back()\n        self._queues.load_again(run)",
    "run.lose()\n        entry.give_back()\n        self._queues.find_lane(run).add(run)",
).by(f"{_COMMITTER}::test_of_two_processes_answering_at_once_one_wins_the_other_hears_it")
failures = Room("hai_flow/runtime/commit/batch_recovery.py", _COMMITTER)
failures.bug("after an unknown outcome the fence is not raised").edit(
    "self._queues.doubt(entry.run)\n", "self._queues.load_again(entry.run)\n"
).by(f"{_COMMITTER}::test_after_a_commit_of_unknown_outcome_the_fence_rises_before_the_load")
failures.bug("a commit of unknown outcome is taken for one that did not happen").edit(
    "if away(error) or (fault is ErrorClass.RETRY", "if (fault is ErrorClass.RETRY"
).by(f"{_COMMITTER}::test_after_a_commit_of_unknown_outcome_the_answer_is_the_first_outcome")
failures.bug("a data error condemns the whole batch").edit(
    "            middle = len(entries) // 2\n            return [Batch(entries[:middle]), Batch(entries[middle:])]\n",
    "            for entry in entries:\n                self.condemn(entry, error)\n            return []\n",
).by(f"{_COMMITTER}::test_a_run_that_the_database_refuses_is_alone_in_it")
failures.bug("half of a batch that was refused is forgotten").edit(
    "return [Batch(entries[:middle]), Batch(entries[middle:])]", "return [Batch(entries[:middle])]"
).by(f"{_COMMITTER}::test_a_run_that_the_database_refuses_is_alone_in_it")
failures.bug("a result that can't be stored is tried for ever").edit(
    '        run.submit_next(Submission(c.NeedAttention(reason="what the run would store can\'t be stored"), now))\n',
    "",
).by(f"{_COMMITTER}::test_a_result_that_the_database_refuses_needs_attention_alone")
failures.bug("who asked for what can't be stored waits for ever").edit(
    '            submission.fail(StoreError(f"the command of run {run.id} could not be carried out: {fault}"))\n', ""
).by(f"{_COMMITTER}::test_a_command_that_the_database_refuses_fails_for_its_sender_alone")
failures.bug("a command that can't be stored takes those of its entry along").edit(
    "run.separate(len(entry.submissions))\n            entry.give_back()\n",
    "for submission in entry.submissions:\n                self.undecidable(run, submission, error)\n",
).by(f"{_COMMITTER}::test_a_command_that_the_database_refuses_fails_for_its_sender_alone")
queues = Room("hai_flow/runtime/commit/queues.py", _COMMITTER)
queues.bug("what this process holds is evicted from its cache").edit(
    "if oldest is run or oldest.queued or oldest.has_work or oldest.owned:",
    "if oldest is run or oldest.queued or oldest.has_work:",
).by(f"{_COMMITTER}::test_the_cache_is_bounded_and_what_was_evicted_is_found_again")
queues.bug("the cache has no bounds").edit("if self.bytes <= self._bytes_max:\n", "if True:\n").by(
    f"{_COMMITTER}::test_the_cache_is_bounded_and_what_was_evicted_is_found_again"
)
queues.bug("a run that others have moved while a batch was in flight is not loaded").edit(
    "run.outdate(time.monotonic())\n        self.add(run)\n", "self.add(run)\n"
).by(
    f"{_COMMITTER}::test_of_two_processes_answering_at_once_one_wins_the_other_hears_it",
    f"{_WORKER}::test_a_run_missing_from_a_heartbeat_is_dropped_with_its_attempts",
)
queues.bug("a run that somebody has moved is not loaded again").edit(
    "if run.submissions or run.chunks or run.must_load:\n", "if run.submissions or run.chunks:\n"
).by(
    f"{_COMMITTER}::test_chunks_that_others_wrote_in_between_are_folded_before_a_decision",
    f"{_COMMITTER}::test_of_two_processes_answering_at_once_one_wins_the_other_hears_it",
)
queues.bug("a run that has ended stays in the cache").edit(
    "        elif not run.exists or run.state.status in TERMINAL_STATUSES:\n            self._cache.forget(run)\n", ""
).by("tests/runtime/test_memory.py", f"{_COMMITTER}::test_a_run_that_does_not_exist_is_404_and_may_start_later")
listeners = Room("hai_flow/runtime/commit/hooks.py", _COMMITTER)
listeners.bug("who looks on stops who writes").edit(
    'log.error("publishing_failed", run_id=str(run.id), exc_info=error)\n', "raise\n"
).by("tests/runtime/test_promises.py::test_who_looks_on_stops_nobody_who_writes")
starts = Room("hai_flow/runtime/runs/starts.py", "tests/runtime/test_triggers.py")
starts.bug("two ids of one start make two runs").edit(
    "return place_id(uuids.derive_uuid(*parts), self.cell)", "return place_id(uuids.uuid7(0), self.cell)"
).by("tests/runtime/test_triggers.py::test_who_dies_after_the_run_was_started_starts_no_second_one")

starts.bug("a plain start comes by everything that others need").edit("and self._is_plain(plan)\n", "and False\n").by(
    "tests/runtime/test_starts.py::test_a_plain_start_passes_by_the_extras_as_a_group"
)
starts.bug("a plain run of a retired version begins").edit(
    "in_use=not resolved, latest=latest)", "in_use=False, latest=latest)"
).by("tests/runtime/test_starts.py::test_a_plain_start_of_a_retired_version_is_refused_and_takes_no_slot")
starts.bug("a run by name begins with a version that has been superseded").edit("latest=latest)", "latest=False)").by(
    "tests/runtime/test_starts.py::test_of_many_starts_only_those_of_another_version_are_refused"
)
starts.bug("a run that counts with others of a key starts as if it did not").edit(
    "not (runs or plan.concurrency is not None or has_kept_state(plan))", "not (runs or has_kept_state(plan))"
).by("tests/runtime/test_starts.py::test_a_start_that_needs_one_of_them_comes_by_all")

# --- the worker -------------------------------------------------------------------------------------------------------

worker = Room("hai_flow/runtime/worker/worker.py", _WORKER)
worker.bug("a start with a doubtful lease").edit(
    "return not self._stage.closing and self._heart is not None and self._heart.safe",
    "return not self._stage.closing and self._heart is not None",
).by(f"{_WORKER}::test_attempts_held_by_a_doubtful_lease_begin_after_the_next_heartbeat")
worker.bug("a worker that drains keeps what it has not begun until its grace is over").edit(
    "        self.committer.claims.served = NOTHING  # no", "        # no"
).edit("        if self._stage.closing:\n            self._hand_on(held)\n            return\n", "").by(
    "tests/runtime/test_queues.py::test_idle_runs_are_handed_on_at_once_when_a_worker_drains"
)
worker.bug("an attempt that waited for its place begins with a doubtful lease").edit(
    "            if not self._may_begin or self.committer.freezes.holds(run, performance.path):\n"
    "                self._forget(performance)",
    "            if self.committer.freezes.holds(run, performance.path):\n                self._forget(performance)",
).by(f"{_WORKER}::test_an_attempt_placed_under_a_doubtful_lease_does_not_begin")
worker.bug("an attempt that waited for its place begins under a freeze").edit(
    "if not self._may_begin or self.committer.freezes.holds(run, performance.path):\n", "if not self._may_begin:\n"
).by("tests/runtime/test_freezes.py::test_attempts_that_wait_for_a_place_do_not_begin_under_a_freeze")
worker.bug("each end of an attempt gives back all others that wait").edit(
    "            self._give_late_back(held)\n        self.committer.report(run, report",
    "            self._give_late_back(held, SOON_MS)\n        self.committer.report(run, report",
).by(f"{_WORKER}::test_the_end_of_an_attempt_gives_back_none_whose_time_is_not_over")
worker.bug("the time of an attempt passes while it may not begin").edit(
    "return path in held.run.state.children if performance is None else not performance.waits",
    "return performance is None or not performance.waits",
).by(f"{_WORKER}::test_an_attempt_that_may_not_begin_does_not_fail_for_its_time")
worker.bug("timers of a run are late while an attempt of it waits").edit(
    "                    self._wakes.set(run_id, due)\n", "                    pass\n"
).by(f"{_WORKER}::test_timers_of_a_run_are_on_time_while_an_attempt_of_it_waits")
worker.bug("an attempt that waits for its place begins in a paused run").edit(
    "                    self._give_attempt_back(held, path, performance.attempt, PAUSED)\n",
    "                    pass\n",
).by(f"{_WORKER}::test_an_attempt_that_waits_for_a_place_does_not_begin_in_a_paused_run")
worker.bug("an attempt of a paused run begins in the worker that claims the run").edit(
    "            self._give_attempt_back(held, path, attempt, PAUSED)\n            return\n", "            pass\n"
).by(f"{_WORKER}::test_an_attempt_of_a_paused_run_does_not_begin_where_it_is_claimed")
worker.bug("what could not begin with a doubtful lease never begins").edit("self.sync(ours.run)\n", "pass\n").by(
    f"{_WORKER}::test_attempts_held_by_a_doubtful_lease_begin_after_the_next_heartbeat"
)
worker.bug("runs that are no longer held are kept").edit(
    "if run_id not in held and not ours.run.queued:\n", "if False:\n"
).by(f"{_WORKER}::test_a_run_missing_from_a_heartbeat_is_dropped_with_its_attempts")
worker.bug("a run that turns out to be held is not looked at").edit(
    "if ours is None or ours.run.version != each.version or ours.run.fence != each.fence:\n",
    "if run is not None and run.version != each.version:\n",
).by(f"{_WORKER}", f"{_COMMITTER}::test_a_birth_of_unknown_outcome_is_held_and_performed")
worker.bug("a process that could not renew goes on under its id").edit(
    '            self._restart = self._spawn(self._start_over(), "start over")\n', ""
).by(f"{_WORKER}::test_a_process_that_failed_to_renew_takes_a_new_id_and_drops_old_work")
worker.bug("a process that takes a new id keeps what it held").edit(
    "self.committer.forget_claims()\n        self._claims.clear()\n        if heart",
    "self._claims.clear()\n        if heart",
).by(f"{_WORKER}::test_a_process_that_failed_to_renew_takes_a_new_id_and_drops_old_work")
worker.bug("a dead worker's attempts are begun as if nobody had").edit(
    "        if suspect and self._fail_lost(held):\n            return\n", ""
).by(f"{_WORKER}::test_a_dead_workers_run_claimed_by_a_lost_answer_is_declared_lost")
worker.bug("an attempt is begun twice").edit(
    "[path for path in attempts if path not in held.attempts]", "list(attempts)"
).by("tests/runtime/test_performing.py::test_the_timers_of_a_run_fire_while_it_is_held")
worker.bug("an attempt that is closed goes on").edit(
    "                del held.attempts[path]\n"
    "                if performance.task is not None:\n"
    "                    performance.task.cancel()",
    "                del held.attempts[path]",
).by("tests/runtime/test_performing.py::test_an_attempt_that_is_closed_does_not_go_on")
worker.bug("a run that others hold is performed on").edit(
    "if not run.owned:\n            self._drop(run)\n            return\n", "if not run.owned:\n            return\n"
).by(f"{_WORKER}::test_a_run_missing_from_a_heartbeat_is_dropped_with_its_attempts")
worker.bug("a stop waits until effects have ended by themselves").edit(
    '        if state.status == "stopping":\n            self._cancel_what_is_stopped(held)\n', ""
).by(f"{_WORKER}::test_a_stop_cancels_what_is_in_flight")
worker.bug("a stop cancels what cleans up").edit(
    "if task is None or task.cancelling() or is_in_cleanup(path):\n", "if task is None or task.cancelling():\n"
).by("tests/runtime/test_performing.py::test_a_stop_leaves_alone_what_cleans_up")
worker.bug("a stop tears an attempt out of its own cleaning up").edit(
    "if task is None or task.cancelling() or is_in_cleanup(path):\n", "if task is None or is_in_cleanup(path):\n"
).by("tests/runtime/test_performing.py::test_a_stop_tells_an_effect_once_and_lets_it_tidy_up")
worker.bug("a long stretch of decisions is not gone on with").edit(
    "self.committer.report(run, c.Continue())\n", "pass\n"
).by("tests/runtime/test_performing.py::test_a_stretch_of_decisions_longer_than_one_commit_is_continued")
worker.bug("timers of held runs do not fire").edit(
    "self.committer.report(held.run, c.TimerFired(_describe_receipts(held, now)))\n", "pass\n"
).by("tests/runtime/test_performing.py::test_the_timers_of_a_run_fire_while_it_is_held")
worker.bug("the text that was streamed last is not written").edit("        performance.flush()\n", "")
worker.bug("what is in flight at a stop is handed back as if it had not begun").edit(
    "        await asyncio.gather(*(self._fail_begun(held) for held in list(self._held.values())))\n", ""
).by("tests/runtime/test_service.py::test_a_graceful_stop_declares_attempts_lost_and_another_goes_on")
worker.bug("a stop hands nothing back").edit(
    "            await leases.release_runs(connection, worker, [run.id for run in held], self.committer.now())\n", ""
).by("tests/runtime/test_service.py::test_what_a_stop_could_not_hand_on_it_hands_back_at_its_end")

heart = Room("hai_flow/runtime/worker/heartbeat.py", _WORKER)
heart.bug("a heart beats for a stuck loop").edit(
    "stuck = sent - self._worked > self._lease_seconds / 2", "stuck = False"
).by("tests/runtime/test_silence.py::test_a_loop_that_is_stuck_loses_its_lease")
heart.bug("a lease is safe up to its very end").edit(
    "return time.monotonic() < self._lease_until - self._heartbeat_seconds",
    "return time.monotonic() < self._lease_until",
).by("tests/runtime/test_silence.py::test_nothing_is_begun_in_the_last_heartbeat_of_a_lease")
heart.bug("a lease counts from the answer to its renewal").edit(
    "self._lease_until = sent + self._lease_seconds\n", "self._lease_until = time.monotonic() + self._lease_seconds\n"
)

performing = Room("hai_flow/runtime/worker/attempt.py", _WORKER)
performing.bug("an effect that raises hangs its run").edit(
    "return self._report_failure(StepError(text_of(error)), error)", "raise"
).by("tests/runtime/test_performing.py::test_a_fault_of_ours_fails_the_step_and_hangs_no_run")
performing.bug("chunks of a message begin to count anew").edit("            self.written += 1\n", "").by(
    "tests/runtime/test_performing.py::test_the_pieces_of_a_text_are_counted_through"
)
performing.bug("a text in one piece becomes one chunk of any size").edit(
    "for start in range(0, len(text), CHUNK_CHARS_MAX)]", "for start in range(0, len(text), max(1, len(text)))]"
).by(f"{_WORKER}::test_text_in_one_piece_of_a_megabyte_becomes_chunks_of_bounded_size")
performing.bug("a retry after a while comes at once").edit(
    "int(error.retry_after * 1000)", "int(error.retry_after)"
).by("tests/runtime/test_performing.py::test_a_tools_own_failure_is_reported_with_its_pause_in_milliseconds")
performing.bug("a database that is away for a moment fails the step that asks it").edit(
    "if not passing(error):\n                    raise\n", "raise\n"
).by("tests/runtime/test_performing.py::test_a_database_that_is_away_while_an_attempt_begins_fails_no_step")

# --- the clock --------------------------------------------------------------------------------------------------------

clock = Room("hai_flow/runtime/commit/context.py", "tests/runtime/test_clock.py")
clock.bug("a clock that goes back").edit(
    "if database_ms >= self.at(arrived) or database_ms + 1 < self.at(sent):", "if True:"
)
clock.bug("a clock that was once ahead stays ahead").edit(
    "if database_ms >= self.at(arrived) or database_ms + 1 < self.at(sent):", "if database_ms >= self.at(arrived):"
)
clock.bug("a clock that stands still between two readings").edit(
    "return self._read_ms + int((monotonic - self._read_at) * 1000)", "return self._read_ms"
)
clock.bug("a clock that counts seconds for milliseconds").edit(
    "int((monotonic - self._read_at) * 1000)", "int(monotonic - self._read_at)"
)
clock.bug("an answer that was long on its way counts from when it was asked for").edit(
    "self._read_ms, self._read_at = database_ms, arrived", "self._read_ms, self._read_at = database_ms, sent"
)

callbacks = Room("hai_flow/runtime/messaging/callbacks.py")
_OF_CALLBACKS: Final = "tests/api/test_callbacks.py"
callbacks.bug("a callback is taken though nothing waits for it any more").edit(
    "or not is_awaiting_callback(state, row.path, row.type):", "or False:"
).by(f"{_OF_CALLBACKS}::test_what_comes_when_nothing_waits_any_more_is_refused")
callbacks.bug("a body that does not fit is taken for the callback").edit("if faults:\n", "if False:\n").by(
    f"{_OF_CALLBACKS}::test_a_body_that_is_not_what_is_waited_for_uses_nothing_up"
)
callbacks.bug("a second callback with another body is answered like the first").edit(
    "if before.data == data:\n", "if True:\n"
).by(f"{_OF_CALLBACKS}::test_a_callback_goes_on_with_the_run_once")

# --- an agent's thread ------------------------------------------------------------------------------------------------

thread_messages = Room("hai_flow/runtime/worker/thread_messages.py", "tests/runtime/test_thread_messages.py")
thread_messages.bug("a retried run is told its thread as it was before").edit(
    "if entry is None or entry.retried != state.retried:", "if entry is None:"
)
thread_messages.bug("a run that is being stopped is told its thread as it was").edit(
    "        if not _is_thread_held(state):\n            return (await self._read(run))[0]\n", ""
)
thread_messages.bug("messages of threads are kept without a bound").edit(
    "        while self._bytes > self._bytes_max:\n            self._forget(next(iter(self._kept)))\n", ""
)

# --- what is due ------------------------------------------------------------------------------------------------------

pulse = Room("hai_flow/runtime/base/pulse.py", "tests/runtime/test_pulse.py")
pulse.bug("a pulse that fails wakes nobody").edit(
    "for look in self.looks:\n", "for look in self.looks if due is not None else ():\n"
)
pulse.bug("no record of the audit is sealed on Citus").edit("if self._database.sharded:", "if False:")
pulse.bug("an alarm rings for what the next pulse tells").edit("elif wait < LATEST * self._poll_seconds:", "else:")
due_work = Room("hai_flow/store/ops/pulse.py", "tests/runtime/test_pulse.py")
due_work.bug("runs of dead workers are not told").edit("EXISTS ({LOST_RUN})", "false")
due_work.bug("promises of slots that are over are not told").edit("WHERE promised_until <= now()", "WHERE false")
watched = Room("hai_flow/runtime/messaging/triggers.py", "tests/runtime/test_pulse.py")
watched.bug("an older answer counts as the newest").edit("if asked_at >= self._read_at:", "if True:")

together = Room("hai_flow/runtime/base/single_flight.py", "tests/runtime/test_single_flight.py")
together.bug("an answer is that of a look which began before it was asked for").edit(
    "await running\n        del self._next[key]\n", "del self._next[key]\n"
)
together.bug("whoever goes away takes the look of the others along").edit(
    "return await asyncio.shield(upcoming)", "return await upcoming"
)

TARGETS: Final[tuple[Target, ...]] = ()
