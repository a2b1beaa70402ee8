"""Bugs that a second reader has thought of: absences, working days, what is left to the holder of a run, forms."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

# --- absences ---------------------------------------------------------------------------------------------------------

_ABSENCES: Final = "tests/attacks/test_absences.py"
away = Room("hai_flow/runtime/people/absences.py", "tests/runtime/test_seats.py")
away.bug("an absence that begins when another ends overlaps it").edit(
    "each.since < entered.until and entered.since < each.until",
    "each.since <= entered.until and entered.since <= each.until",
)
away.bug("an absence overlaps all that came before it").edit(" and entered.since < each.until]", "]")
away.bug("a circle that closes when a later absence begins is not seen").edit(
    "for moment in sorted({entered.since, *(each.since for each in beside if each.since > entered.since)}):",
    "for moment in (entered.since,):",
)
away.bug("of a chain its first person alone is looked at").edit(
    "for first in _list_before(person, away, all_ids):", "for first in (person,):"
).by(_ABSENCES)
away.bug("a delegate's delegate has the roles of whoever is between").edit(
    "lent_roles=tuple(lent[seat.chain[0].id].roles)", "lent_roles=tuple(lent[seat.chain[-1].id].roles)"
).by(_ABSENCES)
away.bug("the groups of an absent person are lent to nobody").edit(
    "lent_groups=tuple(lent[seat.chain[0].id].groups)", "lent_groups=()"
)
entering = Room("hai_flow/api/rest/people/absences.py", _ABSENCES)
entering.bug("an absence lasts a day longer than it may").edit(
    "body.last_day < body.first_day + _LASTS_MAX", "body.last_day <= body.first_day + _LASTS_MAX"
)
entering.bug("an absence begins in years").edit("body.first_day <= today + _AHEAD_MAX:", "body.first_day:")

# --- working days -----------------------------------------------------------------------------------------------------

_CALENDARS: Final = "tests/definition/test_calendars.py"
_DAYS: Final = "tests/engine/test_working_days.py"
calendars = Room("hai_flow/definition/people/calendars.py", _CALENDARS, _DAYS)
calendars.bug("the hour that is repeated ends before itself").edit("while moment.fold:", "while False:")
calendars.bug("an hour that is not there ends late").edit(
    "_leave_missing_hour(datetime.combine(day, clock))", "datetime.combine(day, clock)"
)
calendars.bug("at the end of the hours the day still counts").edit("minute >= self.hours[1]", "minute > self.hours[1]")
calendars.bug("a question before the hours is due before the hours").edit(
    "        elif minute < self.hours[0]:\n            clock = self._opening(zone)\n", ""
)
calendars.bug("a question after the hours is due after the hours").edit(
    "day = self._next(day)\n            clock = self._opening(zone)\n", "day = self._next(day)\n"
)
calendars.bug("the holidays are forgotten that a week of few working days reaches").edit(
    "instants.instant(self.add(since, count)).date() + timedelta(days=2 * count + 60)",
    "first + timedelta(days=3 * count + 60)",
)
calendars.bug("holidays are known until the last of them alone").edit(
    "known_until[name] = until or max(days)", "known_until[name] = max(days)"
)
calendars.bug("a holiday lies behind the end of what is known").edit(
    "if until is not None and days and max(days) > until:", "if False:"
)
calendars.bug("nobody ever works").edit("if not entry.weekdays:\n", "if False:\n")
calendars.bug("the hours end before they begin").edit("if not minutes[0] < minutes[1] <= 24 * 60:", "if match is None:")
calendars.bug("a date is read in any of its spellings").edit(" or day.isoformat() != text:", ":")
filling = Room("hai_flow/engine/pendings/policies.py", _DAYS)
filling.bug("the calendar reaches as far as the longest stage").edit(
    "_find_calendar(draft, step, sum(counts))", "_find_calendar(draft, step, max(counts))"
)
filling.bug("later stages count by no calendar").edit(
    "        later = [msgspec.structs.replace(stage, calendar=first.calendar) for stage in later]\n", ""
)
filling.bug("a deadline is any number of working days").edit("if not 1 <= days <= WORKING_DAYS_MAX:", "if False:")
filling.bug("reminders come in the order in which they are written").edit(
    "return tuple(sorted(delays, key=_measure))", "return tuple(delays)"
)
counting = Room("hai_flow/engine/pendings/votes.py", _DAYS)
counting.bug("an open question counts by the calendar of UTC").edit(
    "(self.calendar or Calendar()).add(", "Calendar().add("
)

# --- what is left to the holder of a run ------------------------------------------------------------------------------

_REDECIDING: Final = "tests/engine/test_redeciding.py"
left = Room("hai_flow/engine/advance.py", _REDECIDING)
left.bug("a process begins what may happen once of another's run").edit('("asked", "at_most_once")', '("asked",)')

# --- values of others -------------------------------------------------------------------------------------------------

bodies = Room("hai_flow/wire/webhook_body.py", "tests/wire/test_webhook_body.py")
bodies.bug("a form that breaks off is taken").edit(
    'if len(parts) < 2 or not parts[-1].startswith(b"--"):', "if len(parts) < 2:"
)
bodies.bug("a form has any number of parts").edit(", FIELDS_MAX + 2)", ")").edit(
    "if len(parts) < 2 or", "if len(parts) < 2 or False and"
)

# --- large values on the loop -----------------------------------------------------------------------------------------

_BESIDE: Final = "tests/attacks/test_loop_time_of_readers.py::test_large_values_are_read_and_written_beside_the_loop"
rows = Room("hai_flow/runtime/streams/fanout.py", _BESIDE)
rows.bug("a follower encodes a large event of the log on the loop").edit(
    "await run_by_size(len(row.events), _read_row, encoder,", "_read_row(encoder,"
)
rows.bug("a large commit is encoded for its followers on the loop").edit(
    "if feed.is_slow_to_encode(news):", "if False:"
)
_WHILE_ENCODING: Final = "tests/runtime/test_fanout.py"
encoding = Room("hai_flow/runtime/streams/fanout.py", _WHILE_ENCODING)
encoding.bug("events that come again while they are encoded count twice").edit(" or feed.encoding:", ":")
encoding.bug("who joins while others are encoded is passed over").edit("while fresh := [", "for fresh in [[").edit(
    "if ring not in pieces]:", "if ring not in pieces]]:"
)
encoding.bug("a farewell comes before what is being encoded").edit(" and not ring.feed.encoding:", ":")
encoding.bug("streams go on behind encoding that broke off").edit(
    "self._break_off(feed)  # its encoders", "pass  # its encoders"
)
encoding.bug("a change of the state is masked on the loop for who follows").edit(
    "(ring.profile for ring in self.rings.values())", "()"
)
loads = Room("hai_flow/runtime/commit/loader.py", _BESIDE)
loads.bug("a load reads a large snapshot on the loop").edit(
    "await run_by_size(len(loaded.state), decode_state, loaded.state)", "decode_state(loaded.state)"
)
tasks = Room("hai_flow/api/a2a/operations.py", _BESIDE)
tasks.bug("a task with a large output is built on the loop").edit(
    "await run_if_large(shown.state, a2a.task_of, shown,", "a2a.task_of(shown,"
)
results = Room("hai_flow/api/mcp/runs.py", _BESIDE)
results.bug("a large result of a run is written on the loop").edit(
    "await run_if_large(shown.state.output, result_of, shown)", "result_of(shown)"
)
