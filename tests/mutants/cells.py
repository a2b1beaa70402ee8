"""Bugs of tenants in several cells: where a thread is, what reaches which cell, what a list shows."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_LARGE: Final = "tests/api/test_large_tenants.py"
_PLACES: Final = "tests/store/test_places.py"
_PAGES: Final = "tests/api/test_gathering.py"

ids = Room("hai_flow/cells.py")
ids.bug("a name is drawn by how many cells there are").edit(
    'max(cells, key=lambda cell: sha256(f"{cell}\\x00{name}".encode()).digest())',
    "sorted(cells)[int.from_bytes(sha256(name.encode()).digest()) % len(cells)]",
).by("tests/test_cell_ids.py::test_a_further_cell_takes_names_and_moves_none_between_the_others")
ids.bug("threads begin in a cell that is closed").edit(
    "for cell in self.cells if cell not in self.closed)", "for cell in self.cells)"
).by(f"{_LARGE}::test_a_closed_cell_keeps_its_threads_and_begins_none")
ids.bug("the cells of today say where a name lives").edit(
    "return draw_cell(name, self.anchors)", "return draw_cell(name, self.cells)"
).by("tests/test_cell_ids.py::test_a_tenant_begins_nothing_in_a_closed_cell_and_still_reads_it")

living = Room("hai_flow/store/identity/tenants.py")
living.bug("a tenant begins nothing anywhere while its new cell is not known").edit("shut = waiting\n", "pass\n").by(
    "tests/cli/test_cells.py::test_a_tenant_lives_in_its_cell_once_it_has_something_lasting"
)
living.bug("a cell that was added is open at once").edit("tuple(opening) if waits else ()", "()").by(
    f"{_LARGE}::test_a_new_cell_begins_nothing_before_every_process_knows_it"
)

places = Room("hai_flow/store/cells/thread_locations.py")
places.bug("a cell points elsewhere from a thread that it has").edit(
    "if is_new and row[1]:\n", "if is_new and not row:\n"
).by(f"{_PLACES}::test_a_cell_does_not_point_elsewhere_from_a_thread_that_it_has")
places.bug("whoever comes second points to another cell").edit(
    "VALUES ($1, $2, $3, NULL) ON CONFLICT DO NOTHING RETURNING true",
    "VALUES ($1, $2, $3, NULL) ON CONFLICT (tenant, slot) DO UPDATE SET run_id = excluded.run_id RETURNING true",
).by(f"{_PLACES}::test_of_all_who_point_the_first_is_right")

placing = Room("hai_flow/runtime/tenancy/placement.py")
placing.bug("a thread begins by the list of cells alone").edit(
    "if wanted == anchor:\n            return anchor\n", "return wanted\n"
).by(f"{_LARGE}::test_two_processes_that_begin_a_thread_beside_a_new_cell_begin_it_once")
placing.bug("a start under a key is looked for under another name").edit(
    "thread_id = str(place_id(id, anchor))", "thread_id = name"
).by(f"{_LARGE}::test_a_start_under_a_key_finds_its_first_run_after_a_cell_was_added")
placing.bug("a run that counts with others begins wherever its thread does").edit(
    "if cell != seat:\n", "if False:\n"
).by(f"{_LARGE}::test_runs_that_share_a_concurrency_key_are_all_in_the_first_cell")
placing.bug("the cell that an id says is not looked up anew").edit(
    "if said != HOME and said in self._numbers and said not in living.cells:\n", "if False:\n"
).by(f"{_LARGE}::test_a_run_in_a_new_cell_is_found_by_a_process_not_yet_told_of_it")

placing.bug("a name that says no cell has its tenant looked up anew each time").edit(
    "if said != HOME and said in self._numbers", "if said in self._numbers"
).by("tests/runtime/test_placing.py::test_a_tenant_is_looked_up_anew_for_an_id_of_another_cell_alone")

spreading = Room("hai_flow/runtime/replication.py")
spreading.bug("an event is done with though a cell is away").edit(
    '                    if rejected.code == "cell_away":\n                        continue\n', ""
).by(f"{_LARGE}::test_a_cell_that_is_away_is_missing_in_lists_and_only_its_runs_are_503")
spreading.bug("a cell that is given an event twice has two").edit(
    "relay.tenant, relay.id, relay.type, data", 'relay.tenant, f"{relay.id}/{cell}", relay.type, data'
).by(f"{_LARGE}::test_an_event_to_all_reaches_the_runs_of_each_cell_once")
spreading.bug("what was published while a cell was away never comes there").edit(
    'await self._home.rows.deal(Sweep.MIRRORS, f"tenant {each.name}", repeat)', "pass"
).by(f"{_LARGE}::test_a_cell_that_is_away_is_missing_in_lists_and_only_its_runs_are_503")

mirror = Room("hai_flow/store/cells/replication.py")
mirror.bug("a delegation that was ended goes on in other cells").edit("if table.whole:\n", "if False:\n").by(
    f"{_LARGE}::test_workflows_and_delegations_are_in_every_cell_once_they_are_made"
)
mirror.bug("each cell starts its own run by an event").edit("        only=\"kind = 'run'\",\n", "").by(
    f"{_LARGE}::test_an_event_starts_one_run_and_not_one_in_each_cell"
)

gathering = Room("hai_flow/api/requests/cross_cell.py")
gathering.bug("a page shows what is behind rows that a cell has yet to look at").edit(
    "if end is not None:\n", "if False:\n"
).by(f"{_PAGES}::test_nothing_is_shown_behind_the_place_where_a_cell_stopped_looking")
gathering.bug("a list says nothing of a cell that is away").edit(
    "return Gathered(answered, [access.cells.name(each.cell) for each in away])", "return Gathered(answered, [])"
).by(f"{_PAGES}::test_a_cell_that_is_away_is_named_and_the_others_are_asked")

quotas = Room("hai_flow/runtime/tenancy/quotas.py")
quotas.bug("each cell has the whole limit for itself").edit(
    "await tenants.count_used_in_cell(each.api, tenant, *limits) for each in (self._database, *others)]",
    "await tenants.count_used_in_cell(each.api, tenant, *limits) for each in (self._database,)]",
).by(f"{_LARGE}::test_limits_hold_for_all_cells_together")
