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

# --- fan-out ----------------------------------------------------------------------------------------------------------

fanout = Room("hai_flow/runtime/fanout.py", _FANOUT)
fanout.bug(
    "a feed accepts a gap",
    ("        if first_seq > feed.head + 1:\n            self._read_later(feed)\n            return\n", ""),
)
fanout.bug(
    "a feed shows again what it has shown",
    ("news = events[max(0, feed.head + 1 - first_seq) :]", "news = list(events)"),
)
fanout.bug(
    "what was committed while the first follower read is not shown",
    (
        "            for first_seq, events in early:\n                self._accept(feed, first_seq, events)\n",
        "",
    ),
)
fanout.bug(
    "what is committed before a feed has its head is dropped",
    ("            feed.early.append((first_seq, events))\n", ""),
)
fanout.bug(
    "who is slower than the ring misses events",
    ("        if skip < 0 or self.broken:\n            raise Lagging\n", "        skip = max(0, skip)\n"),
    by=f"{_FANOUT}::test_who_is_slower_than_the_ring_is_told_to_come_back",
)
fanout.bug(
    "a ring keeps everything",
    ("while self.bytes > bytes_max and len(self.pieces) > 1:", "while False:"),
    by=f"{_FANOUT}::test_who_is_slower_than_the_ring_is_told_to_come_back",
)
fanout.bug(
    "a ring that forgets does not know where it begins",
    (
        "self.bytes -= len(self.pieces.popleft().data)\n            self.first_seq += 1",
        "self.bytes -= len(self.pieces.popleft().data)",
    ),
    by=f"{_FANOUT}::test_who_is_slower_than_the_ring_is_told_to_come_back",
)
fanout.bug(
    "a ring forgets what it has just taken in",
    ("while self.bytes > bytes_max and len(self.pieces) > 1:", "while self.bytes > bytes_max:"),
)
fanout.bug("a place is given news that are no longer all", ("newest[0] != seq or newest[1] != end", "newest[0] != seq"))
fanout.bug("a place is given the news of another place", ("newest[0] != seq or newest[1] != end", "newest[1] != end"))
fanout.bug(
    "news are made for each follower anew",
    ("if newest is None or newest[0] != seq or newest[1] != end:", "if True:"),
    by=f"{_FANOUT}::test_a_place_is_told_of_news_and_one_that_fails_keeps_nobody_from_them",
)
fanout.bug(
    "a stream goes on behind its end",
    ("_news(pieces[:last], last=last is not None)", "_news(pieces, last=False)"),
)
fanout.bug(
    "only the first two hundred followers are told",
    (
        "            asyncio.get_running_loop().call_soon(self._tell)\n"
        "            return\n"
        "        self._telling = None",
        "            pass\n        self._telling = None",
    ),
    by=f"{_FANOUT}::test_a_place_is_told_of_news_and_one_that_fails_keeps_nobody_from_them",
)
fanout.bug(
    "news that come while followers are told are not told of", ("        else:\n            self._again = True\n", "")
)
fanout.bug(
    "a follower that fails keeps others from the news",
    ("except Exception as error:  # a follower's fault is nobody else's", "except LookupError as error:"),
    by=f"{_FANOUT}::test_a_place_is_told_of_news_and_one_that_fails_keeps_nobody_from_them",
)
fanout.bug(
    "an encoder that fails leaves its followers waiting",
    ("                ring.broken = True\n", ""),
    by=f"{_FANOUT}::test_an_encoder_that_fails_ends_its_own_streams_and_no_commit",
)
fanout.bug(
    "a place does not move",
    ("            self.seq += len(news.pieces)\n", ""),
    by=f"{_FANOUT}::test_followers_in_two_processes_see_every_event_of_the_log_once_and_in_order",
)
fanout.bug(
    "a stream that is open at a close waits for ever",
    (
        "        elif self._fanout.closing.is_set():\n"
        "            return _news([_farewell(ring.encoder, ring.dialect)], last=True)\n",
        "",
    ),
    by=f"{_FANOUT}::test_at_a_close_every_stream_says_farewell_and_ends",
)
fanout.bug(
    "at a close nobody is woken",
    ("            for ring in list(feed.rings.values()):\n                ring.wake()\n", ""),
    by=f"{_FANOUT}::test_at_a_close_a_stream_without_a_farewell_ends_too",
)
fanout.bug(
    "a follower that leaves stays in its ring",
    ("            del ring.places[self]\n", ""),
    by=f"{_FANOUT}::test_a_follower_that_is_dropped_leaves_its_place",
)
fanout.bug(
    "a follower that is dropped leaves its place behind",
    (
        "    def __del__(self) -> None:  # dropped in the middle: as a generator does, it closes itself\n"
        "        self._leave()",
        "    def __del__(self) -> None:\n        pass",
    ),
    by=f"{_FANOUT}::test_a_follower_that_is_dropped_leaves_its_place",
)
fanout.bug(
    "a feed goes with its first follower",
    ("        if not feed.followers:\n            self._feeds.pop", "        if True:\n            self._feeds.pop"),
)
fanout.bug(
    "a feed stays when its last follower has gone",
    ("            self._feeds.pop(feed.run_id, None)\n", "            pass\n"),
    by=f"{_FANOUT}::test_a_follower_that_is_dropped_leaves_its_place",
)
fanout.bug(
    "the last follower leaves the ring behind",
    ("            del ring.feed.rings[key]\n", "            pass\n"),
)
fanout.bug(
    "a read stops after its first page",
    ("if len(rows) < READ_ROWS and not feed.read_again:", "if not feed.read_again:"),
)
fanout.bug(
    "what is asked for while a feed reads is not read", ("            feed.read_again = True\n", "            pass\n")
)
fanout.bug(
    "a feed that failed to read never reads again",
    ("        finally:\n            feed.reading = False", "        finally:\n            pass"),
)
fanout.bug(
    "the poll looks only at what was hinted at",
    ("everything = time.monotonic() >= due  # however", "everything = False  # however"),
    by=f"{_FANOUT}::test_without_hints_the_poll_shows_what_another_process_commits",
)
fanout.bug(
    "hints for other runs put the poll off",
    (
        "            if everything:\n                due",
        "            if everything or self._wake.is_set():\n                due",
    ),
)
fanout.bug(
    "a poll that fails ends all polls",
    ('                log.warning("poll_failed", error=str(error))\n', "                raise\n"),
)
fanout.bug(
    "hints are not heard",
    ("        if self._hinted:\n            self._wake.set()\n", ""),
)
fanout.bug(
    "after a lost connection only the poll finds what was missed",
    (
        "        if payload == EVERYTHING:\n            self._hinted.update(self._feeds)\n        else:",
        "        if payload != EVERYTHING:",
    ),
)
fanout.bug(
    "a stream that is resumed in the middle of a commit begins with the whole of it",
    ("in e.decode_events(row.events)[seq + 1 - row.first_seq :]:", "in e.decode_events(row.events):"),
    by=f"{_FANOUT}::test_a_follower_resumes_after_every_seq_without_gap_or_repetition",
)
fanout.bug(
    "who has seen a run end waits for more of it",
    (
        "                    if start.ended and seq == start.seq:\n"
        "                        return  # an ended run says no more, and this follower has seen it end\n",
        "",
    ),
    by=f"{_FANOUT}::test_a_follower_resumes_after_every_seq_without_gap_or_repetition",
)
fanout.bug(
    "of a run that has ended nothing is read",
    (
        "unsure = start.ended  # whether anything follows an end, only the log can say",
        "if start.ended:\n                return\n            unsure = False",
    ),
)
fanout.bug(
    "a follower that is ahead of its feed waits for news",
    (
        "                        self._read_later(feed)\n                        await moved.wait()",
        "                        await moved.wait()",
    ),
)
fanout.bug(
    "a state of the past is that of the whole commit",
    ("fold(state, events[: max(0, seq - state.seq)])", "fold(state, events)"),
    by=f"{_FANOUT}::test_the_snapshot_at_k_is_the_fold_of_k_events_for_every_k",
)
fanout.bug(
    "a state of the past leaves the snapshot out",
    ("RunState(str(run_id)) if loaded.state is None else decode_state(loaded.state)", "RunState(str(run_id))"),
    by=f"{_FANOUT}::test_the_snapshot_at_k_is_the_fold_of_k_events_for_every_k",
)

# --- messages between runs, and signals -------------------------------------------------------------------------------

courier = Room("hai_flow/runtime/courier.py", _OUTBOX, _SIGNALS)
courier.bug(
    "a delivered message is given out again for ever",
    ("            await outbox.delete_message(connection, message)\n", "            pass\n"),
    by=f"{_OUTBOX}::test_a_run_is_paused_resumed_and_stopped_by_messages",
)
courier.bug(
    "a message is deleted before it is delivered",
    (
        "        handle = self.handlers.get(message.kind, self._submit)\n",
        "        handle = self.handlers.get(message.kind, self._submit)\n"
        "        async with self.database.api.acquire() as connection:\n"
        "            await outbox.delete_message(connection, message)\n",
    ),
)
courier.bug(
    "a message that was delivered twice is carried out twice",
    ("            command_id=message.command_id,\n            body_sha=sha256(message.body).digest(),\n", ""),
    by=f"{_OUTBOX}::test_who_dies_between_the_receivers_commit_and_the_delete_is_finished_by_another",
)
courier.bug(
    "a message that will never be accepted is kept",
    (
        "            if rejected.status not in FINAL_REFUSALS:\n                return False\n",
        "            return False\n",
    ),
    by=f"{_OUTBOX}::test_what_is_refused_for_good_is_dropped_and_an_unknown_kind_is_left",
)
courier.bug(
    "a message that nobody understands is dropped",
    ("kind=message.kind, error=str(error))\n            return False\n", "kind=message.kind, error=str(error))\n"),
    by=f"{_OUTBOX}::test_what_is_refused_for_good_is_dropped_and_an_unknown_kind_is_left",
)
courier.bug(
    "a message whose delivery failed is dropped",
    (
        "error=str(error) or repr(error))\n            return False\n        async with",
        "error=str(error) or repr(error))\n        async with",
    ),
)
courier.bug(
    "subscribe does not look again",
    ("            await self._offer_stored(message, awaited, since, seen)\n", ""),
    by=f"{_SIGNALS}::test_signals_and_waits_that_cross_each_other_always_meet",
)
courier.bug(
    "subscribe looks for what was stored only behind the subscription",
    (
        "        awaited = await self._offer_stored(message, wanted.types, since, seen)\n",
        "        awaited = wanted.types\n",
    ),
)
courier.bug(
    "a run that begins to wait is not subscribed",
    ("tenant, run_id, wanted.path, awaited, message.last_seq)", "tenant, run_id, wanted.path, [], message.last_seq)"),
    by=f"{_SIGNALS}::test_a_signal_finishes_the_step_that_waits_for_it",
)
courier.bug(
    "only the first page of what was stored is offered",
    ("            if len(page) < self.config.page_max:\n                break\n", "            break\n"),
)
courier.bug(
    "a run is offered what it does not wait for any more",
    ("                if signal.type in awaited:\n", "                if True:\n"),
)
courier.bug(
    "a signal is settled before it is offered",
    (
        "        await self.offer(signal)\n        if signal.run_id",
        "        await signals.settle_signal(self.database.api, signal)\n"
        "        await self.offer(signal)\n"
        "        if signal.run_id",
    ),
)
courier.bug(
    "a signal is never settled",
    ("        await signals.settle_signal(self.database.api, signal)\n", ""),
    by=f"{_SIGNALS}::test_who_dies_between_the_runs_commit_and_the_settling_offers_twice_and_it_is_taken_once",
)
courier.bug(
    "a signal that can't be offered holds up those behind it",
    (
        "            except Exception as error:  # it is given out again; those behind it must not wait for that\n",
        "            except LookupError as error:\n",
    ),
)
courier.bug(
    "listeners hear of signals for one run",
    ("        if signal.run_id is None:\n            for hear", "        if True:\n            for hear"),
    by=f"{_SIGNALS}::test_a_listener_hears_of_every_signal_to_all_until_it_has_understood_it",
)
courier.bug(
    "a newer signal overtakes an older one that another process is about to offer",
    ("self._offer_in_order(each, [*before, signal])", "self._offer_in_order(each, [signal])"),
)
courier.bug(
    "older signals for another run are offered to this one",
    ("            if signal.run_id in (None, subscriber.run_id):\n", "            if True:\n"),
)
courier.bug(
    "a run that waits no more stays subscribed",
    (
        "await signals.unsubscribe(self.database.api, subscriber.run_id, signal.type, subscriber.opened_seq)",
        "pass",
    ),
)
courier.bug(
    "a run that has ended makes the offering of a signal fail",
    (
        "            if rejected.status not in FINAL_REFUSALS:\n                raise\n            return ()",
        "            raise\n            return ()",
    ),
)
courier.bug(
    "what a process has written is delivered only by the poll",
    ("        self.committer.on_outbox = self._mail.set\n", ""),
    by=f"{_CHILDREN}::test_what_a_process_that_performs_nothing_has_committed_is_delivered_by_itself",
)
courier.bug(
    "the poll looks for no messages of dead processes",
    (
        "                await wait_at_most(woken, self.config.poll_seconds * random.uniform(0.8, 1.0))",
        "                await woken.wait()",
    ),
    by=f"{_SIGNALS}::test_a_signal_whose_sender_dies_before_it_is_offered_is_offered_by_another",
)
courier.bug(
    "a child that can't start leaves its parent waiting",
    ('            await self._refuse(message, body["parent"], rejected)\n', "            pass\n"),
    by=f"{_CHILDREN}::test_an_input_that_the_child_does_not_take_fails_the_step",
)

# --- concurrency keys -------------------------------------------------------------------------------------------------

slots = Room("hai_flow/runtime/slots.py", _SLOTS)
slots.bug(
    "a start that is refused keeps its slot",
    ("            if slot is not None and await slots.give_back(", "            if False and await slots.give_back("),
    by=f"{_SLOTS}::test_a_start_that_is_refused_leaves_no_slot_behind",
)
slots.bug(
    "the slot of a start that is refused is nobody's, though others wait",
    (
        "                with contextlib.suppress(Rejected):  # else the sweep does it, when the promise is over\n"
        "                    await self.admit(tenant, key)\n",
        "                pass\n",
    ),
    by=f"{_SLOTS}::test_a_start_that_is_refused_gives_its_slot_to_who_has_queued_behind_it",
)
slots.bug(
    "a start that is made again is refused because of itself",
    ("        if await runs.get_run(self.database.api, tenant, run_id) is not None:\n            return\n", ""),
)
slots.bug(
    "a child waits for the key that its parent holds",
    (
        "        if isinstance(begin, c.Fork) or begin.parent is None:\n            return False\n",
        "        return False\n",
    ),
    by=f"{_SLOTS}::test_children_share_the_slot_of_the_run_above_them",
)
slots.bug(
    "where the workflow says reject, a second run waits",
    ('if concurrency.on_conflict == "reject" or isinstance(begin, c.Fork):', "if isinstance(begin, c.Fork):"),
    by=f"{_SLOTS}::test_where_the_workflow_queues_nobody_a_second_run_is_refused_and_names_the_first",
)
slots.bug(
    "who holds the key is not stopped for a newer run",
    ("        if wanted.cancels:\n", "        if False:\n"),
    by=f"{_SLOTS}::test_a_newer_run_stops_the_oldest_and_takes_its_place",
)
slots.bug(
    "the end of a run admits nobody",
    ("        await self.admit(message.tenant, freed.key)\n", ""),
    by=f"{_SLOTS}::test_a_second_run_of_the_key_waits_until_the_first_has_ended",
)
slots.bug(
    "who waits is not admitted if a slot became free meanwhile",
    ("        await self.admit(tenant, wanted.key)\n", ""),
)
slots.bug(
    "a run that ends in the queue stays in it",
    ("        await slots.leave_queue(self.database.api, message.tenant, freed.key, message.run_id)\n", ""),
    by=f"{_SLOTS}::test_a_queued_run_that_is_stopped_leaves_the_queue",
)
slots.bug(
    "who can't be admitted keeps the slot",
    ("given_on |= await slots.give_back(pool, tenant, key, seat.slot, seat.run_id)", "pass"),
)
slots.bug(
    "a run that was paused in the queue loses its place",
    (
        '                    if rejected.code == "run_paused":  # it asks again when it is resumed\n'
        "                        continue\n",
        "",
    ),
)
slots.bug(
    "an admitted run stays in the queue",
    ("                await slots.leave_queue(pool, tenant, key, seat.run_id)\n", ""),
)
slots.bug(
    "slots that were taken for nobody stay taken, and whom a dead process left seated is never admitted",
    ("            await self.admit(each.tenant, each.key, each.slots)\n", "            pass\n"),
    by=f"{_SLOTS}::test_the_sweep_admits_whom_a_dead_process_left_seated_and_frees_what_it_took_for_nobody",
)

ROOMS: Final = (fanout, courier, slots)

TARGETS: Final[tuple[Target, ...]] = ()
