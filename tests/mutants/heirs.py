"""Bugs of what begins in the place of a run that is stopped for it, and of what comes in with a command."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_FORKING: Final = "tests/engine/test_forking.py"
_ALLOWANCES: Final = "tests/engine/test_allowances.py"
_HEIRS: Final = "tests/runtime/test_heirs.py"
_API: Final = "tests/api/test_heirs.py"
_FILES: Final = "tests/runtime/test_files.py"

ending = Room("hai_flow/engine/handlers/terminate.py", _FORKING)
ending.bug("a second fork at once takes the stop of the first for its own").edit(
    "if command.inherited is not None and draft.state.heir != command.heir:", "if False:"
)
ending.bug("a run takes its work back from whomever is named").edit(
    "if state.heir is None or state.heir.run_id != command.heir:", "if state.heir is None:"
)
ending.bug("a run that has ended takes its work back without its slots").edit(
    "if state.ended != command.seized:\n", "if False:\n"
)
stopping = Room("hai_flow/engine/completion/stopping.py", _FORKING)
stopping.bug("a run that takes its work back forgets the finally that it had left").edit(
    'return known.outcome == "stopped" and not known.cleaned\n', "return False\n"
)
stopping.bug("a finally that was cut off is done again from its first step").edit(
    "path = draft.step(path).next\n    return path\n", "return first\n    return path\n"
)
folding = Room("hai_flow/engine/evolve/run.py", _FORKING)
folding.bug("a run undoes again what it was undoing when it was stopped for a fork").edit(
    " and path not in undoing}", "}"
).by(f"{_FORKING}::test_a_run_that_takes_its_work_back_undoes_nothing_twice")
folding.bug("a run that takes its work back undoes only what it had not left").edit(
    "        undoables=Map({**state.left, **state.undoables}),\n", ""
)
folding.bug("a run that was terminated takes its work back").edit(
    '**({"heir": None, "left": Map()} if event.terminated else {})', "**{}"
)
forking = Room("hai_flow/engine/runs/fork.py", _FORKING)
forking.bug("a fork takes over more than was left to it").edit(" or now.left_at != seq:", ":")
children = Room("hai_flow/engine/runs/children.py", _ALLOWANCES)
children.bug("a child does not tell what it has taken so far").edit(
    "return senders if was == now else", "return {} if True else"
)
children.bug("a fork has not spent what the child of the other run had").edit(
    "draft.emit(e.ModelUsed, path=expense.path, attempt=expense.attempt, use=use)\n", "pass\n"
)
moving = Room("hai_flow/engine/evolve/migration.py", _ALLOWANCES)
moving.bug("a fork keeps what is reserved for a child that the other run had given up").edit(
    "        granted=Map(),  # no child of the other run tells the fork its end\n", ""
)
starting = Room(
    "hai_flow/engine/runs/start_run.py", f"{_API}::test_a_fork_counts_under_the_key_of_the_input_that_it_begins_with"
)
starting.bug("a fork counts under the key of the other run's input").edit(
    "input=input if edits.input is msgspec.UNSET else edits.input,", "input=input,"
)
starts = Room("hai_flow/runtime/runs/starts.py", _API)
starts.bug("a limit of the tenant refuses a fork behind the stop").edit(
    "refused = await self._quotas.excess(tenant, leaving=1) or await", "refused = await"
)
starts.bug("a fork is born though its work was taken back").edit(
    "            birth.left = True\n", "            pass\n"
).by(f"{_HEIRS}::test_birth_and_taking_back_at_once_have_one_winner")
branches = Room("hai_flow/runtime/runs/branches.py", _HEIRS)
branches.bug("the run that was stopped keeps what it had left where the fork is refused all the same").edit(
    "await self._slots.take_back(leaving.tenant, leaving.id)\n", "pass\n"
).by(f"{_HEIRS}::test_a_fork_refused_after_the_stop_leaves_everything_undone")
branches.bug("a fork takes over what another fork of the run has undone").edit(
    "undone |= set(list_undone(state)) & list_steps_finished_by(fork.events, relative.shared)", "pass"
).by(f"{_HEIRS}::test_a_fork_takes_nothing_over_that_another_fork_of_the_run_has_undone")
branches.bug("a fork that is left for another one undoes what both have").edit(
    "if relative.run_id == leaving.id and relative.shared:", "if False:"
).by(f"{_HEIRS}::test_a_second_fork_of_a_run_leaves_what_it_shares_with_the_first_one")
seats = Room("hai_flow/runtime/runs/concurrency_slots.py", _HEIRS)
seats.bug("nobody looks for heirs that have not begun").edit(
    "await concurrency_slots.list_overdue_heirs(self.database.api),\n", "[],\n"
).by(f"{_HEIRS}::test_a_run_whose_fork_is_never_born_undoes_what_it_had_left_to_it")
seats.bug("a fork gets in line for the slot of the run that it leaves").edit(
    "if leaving.key == key and await", "if False and await"
).by(f"{_API}::test_a_fork_gets_its_origins_slot_before_runs_that_wait_for_it")
statement = Room("hai_flow/store/commit/commit_sql.py", _HEIRS)
statement.bug("a run that ends frees the slots that it leaves to its heir").edit(
    '    spared = _SPARED if "heirs" in parts else ""\n', '    spared = ""\n'
).edit("        children += _LEAVE_SLOTS\n", "        pass\n").by(
    f"{_HEIRS}::test_the_run_that_ends_leaves_its_slots_to_the_fork_in_the_same_commit"
)
promised = Room("hai_flow/store/messaging/concurrency_slots.py", _HEIRS)
promised.bug("slots that were left to an heir are taken back as any promise, and its work is nobody's").edit(
    "AND s.promised_until <= now() AND s.left_by IS NULL AND", "AND s.promised_until <= now() AND"
).edit("promised_until <= now() AND left_by IS NULL\n", "promised_until <= now()\n").edit(
    "WHERE promised_until <= now() AND left_by IS NOT NULL\n", "WHERE false\n"
).by(f"{_HEIRS}::test_a_run_whose_fork_is_never_born_undoes_what_it_had_left_to_it")
moments = Room("hai_flow/runtime/runs/moments.py")
moments.bug("a merged row is taken for one commit").edit("for last in row.ends:", "for last in [row.last_seq]:").by(
    "tests/runtime/test_retention.py::test_behind_a_merge_a_run_is_forked_where_it_could_be_before"
)
moments.bug("commits behind the first of a merged row have other events").edit(
    "events[new - row.first_seq : last", "events[0 : last"
).by("tests/runtime/test_retention.py::test_behind_a_merge_a_run_is_forked_where_it_could_be_before")
moments.bug("a run that is removed meanwhile has begun no step").edit("if not page and not seq:", "if False:").by(
    "tests/attacks/test_acts_in_every_order.py::test_a_thread_is_archived_and_removed_between_two_steps_of_an_act"
)
files = Room("hai_flow/runtime/files/files.py", _FILES)
files.bug("the files of a fork's edits are not asked for").edit(
    "for each in (edits.input, edits.state) if each is not msgspec.UNSET", "for each in () if each is not msgspec.UNSET"
)
kept_files = Room("hai_flow/store/runs/files.py", _FILES)
kept_files.bug("the file of a message that waits goes away").edit(" AND NOT {_OF_A_MESSAGE}", "")

seats.bug("a run that moves to a version that counts is not counted").edit(
    "if key == state.key or state.parent is not None", "if True or state.parent is not None"
).by(f"{_API}::test_a_run_that_is_moved_into_a_version_that_counts_is_counted")

_AT_ONCE: Final = "tests/attacks/test_two_acts_at_once.py"

relatives = Room("hai_flow/runtime/runs/branches.py", _AT_ONCE)
relatives.bug("a fork begins with what its relatives had done when it was asked for").edit(
    "return await start(await self._with_present(tenant, fork), True)", "return await start(fork, True)"
)
relatives.bug("a run that has ended since it was looked at goes on").edit(
    "submit(current, seat, seat is None and state.parent is None)", "submit(current, seat, False)"
)
relatives.bug("a thread stays the run's that was not let go on").edit(
    "                await slots.settle_slot(pool, tenant, slot, run_id)\n", "                pass\n"
)
promises = Room("hai_flow/store/messaging/concurrency_slots.py", _AT_ONCE)
promises.bug("a thread that is promised to an ended run is taken by its relative").edit(
    " AND (f.promised_until IS NULL OR f.promised_until <= now())", ""
)
