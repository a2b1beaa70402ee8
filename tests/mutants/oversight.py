"""Mutants of the figures of how people decide: whose they are, what is counted, and what counts as quick."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

counting = Room("hai_flow/store/people/oversight.py", "tests/store/test_oversight.py")
counting.bug("a rule's votes are people's").edit("count(*) FILTER (WHERE NOT by_rule) AS votes", "count(*) AS votes")
counting.bug("a rule's decision takes people's time").edit("is_decided AND NOT by_rule AND at", "is_decided AND at")
counting.bug("a row of votes is not quick").edit("before.principal = v.principal", "before.principal <> v.principal")
counting.bug("forms are counted").edit("kind IN ('approve', 'gate') AND opened_at", "kind <> 'tool' AND opened_at")
counting.bug("another tenant is counted").edit(
    "WHERE tenant = $1 AND kind IN", "WHERE $1::uuid IS NOT NULL AND kind IN"
)
counting.bug("an escaped NUL is read").edit(r"'\u0000', '')", r"'\u0001', '')")
counting.bug("too many pass for all").edit(
    "in figures.values()) < LOOKED_AT_MAX", "in figures.values()) <= LOOKED_AT_MAX"
)
counting.bug("a quantile is one too late").edit(
    "math.ceil(share * len(ordered)) - 1", "math.floor(share * len(ordered))"
)

counting.bug("canaries are counted as questions").edit('AND {_NO_CANARY.format("pendings")}', "")

showing = Room("hai_flow/api/rest/admin/oversight.py", "tests/api/test_oversight.py")
showing.bug("a person's figures are for everybody").edit(
    '"/people/{person:path}", Right.READ_AUDIT', '"/people/{person:path}", Right.DECIDE, Right.READ_AUDIT'
)
showing.bug("reading is not recorded").edit("    await access.note(READ, by=by, since=since)\n", "")

seeding = Room("hai_flow/engine/canaries.py", "tests/api/test_canaries.py")
seeding.bug("a canary is told while it is open").edit(
    "disguise = None if state.ended else find_disguise(state)", "disguise = None"
)
seeding.bug("a canary may have other arguments").edit("or sorted(arguments) != sorted(model)", "")

seeding.bug("another's run passes for a canary").edit("CANARY and requester == ASKER", "CANARY and requester != ''")
starting = Room("hai_flow/api/requests/access.py", "tests/api/test_canaries.py")
starting.bug("anybody starts a canary's workflow").edit("        demand_unreserved(plan.name)\n", "")
editing = Room("hai_flow/api/rest/people/pendings.py", "tests/api/test_canaries.py")
editing.bug("a canary's form is that of no function").edit("find_disguise(run) if pending", "None if pending")

reading = Room("hai_flow/api/rest/files.py", "tests/api/test_files.py")
reading.bug("a run of a newer release keeps a file back").edit(
    "except Unreadable:\n            continue", "except Unreadable:\n            raise"
)

disguising = Room("hai_flow/api/requests/run_visibility.py", "tests/api/test_canaries.py")
disguising.bug("the row of a canary is its own").edit("return await self._disguise_row(row)", "return row")

guarding = Room("hai_flow/runtime/catalog/catalog.py", "tests/api/test_canaries.py")
guarding.bug("an author writes a canary's workflow").edit("if plan.name == CANARY and", "if not plan.name and")

telling = Room("hai_flow/store/people/canaries.py", "tests/api/test_canaries.py")
telling.bug("a missed canary is caught").edit(
    "WHEN p.status = 'reject' THEN 'caught'", "WHEN p.status <> 'open' THEN 'caught'"
)
telling.bug("a canary that never began is open").edit(
    "(r.id IS NULL OR r.ended_at IS NOT NULL)", "r.ended_at IS NOT NULL"
).by("tests/store/test_oversight.py")
telling.bug("lists name the canary's own workflow").edit(
    "coalesce((SELECT c.{column} FROM canaries c", "coalesce((SELECT NULL FROM canaries c"
)

telling.bug("a canary that has begun loses its disguise").edit(
    " AND NOT EXISTS (SELECT FROM runs r WHERE r.id = c.run_id)", ""
).by("tests/store/test_oversight.py")
telling.bug("the newest question alone is a model").edit("LIMIT {MODELS_MAX}", "LIMIT 1")

opening = Room("hai_flow/api/rest/people/openings.py", "tests/api/test_canaries.py")
opening.bug("a question is shown only if that is kept").edit(
    "except (TimeoutError, *FAILURES) as", "except TimeoutError as"
)

ruling = Room("hai_flow/api/rest/people/rules.py", "tests/api/test_canaries.py")
ruling.bug("a rule names the canary's workflow").edit(
    "disguise.sha256, disguise_state(state)", "disguise.sha256, state"
)
ruling.bug("a canary that is over makes a rule").edit(
    'disguise is not None and pending.status != "open"', "disguise is None"
)

measuring = Room("hai_flow/telemetry/metrics.py", "tests/telemetry/test_metrics.py")
measuring.bug("a rule's decision is people's").edit('by == "people" and any(', 'by == "" and any(')
measuring.bug("a withdrawn question is not counted").edit("            e.PendingVoided: self._question_ended,\n", "")
measuring.bug("forms are decisions").edit(
    'pending.opened.kind not in ("approve", "gate")', 'pending.opened.kind == "tool"'
)

imitating = Room("hai_flow/engine/canaries.py", "tests/api/test_canaries.py")
_FORMS: Final = "tests/api/test_canaries.py::test_a_form_that_its_run_fills_in_is_given_anew_and_never_copied"
imitating.bug("the form of an approve is copied").edit("step.verb if isinstance(step.verb, Approve) else", "").by(
    _FORMS
)
imitating.bug("a form that is given is not shown").edit("opened.schema if form is None else form", "opened.schema").by(
    _FORMS
)

models_of_canaries = Room("hai_flow/api/rest/admin/canaries.py", "tests/api/test_canaries.py")
models_of_canaries.bug("a question whose asking is not in the log is imitated").edit(
    'raise NotImitable("the event that asked it is no longer in the log of its run")', "return 0"
).by("tests/api/test_canaries.py::test_a_question_whose_asking_is_not_in_the_log_is_refused")
_SURFACES = "tests/api/test_canaries_everywhere.py::test_a_decider_tells_a_canary_on_no_surface"
seeding.bug("the question of a canary comes too early in its run").edit(
    "*[_SKIPPED] * min(seq - events, SKIPPED_MAX)", "*[_SKIPPED] * 0"
).by(_SURFACES)
addresses = Room("hai_flow/api/protocols/conversation.py", _SURFACES)
addresses.bug("the address of a canary's workflow names the canary's own").edit(
    "last=await self.access.disguise(last)", "last=last"
)

_ALIKE: Final = (
    "tests/api/test_canaries.py::test_a_decider_can_tell_a_canary_by_no_list_and_no_answer",
    "tests/api/test_canaries.py::test_an_open_canary_shows_what_the_real_question_shows",
)
imitating.bug("a canary is not asked about twice").edit('**({"confirm": True} if rules.confirm else {})', "**{}").by(
    *_ALIKE
)
imitating.bug("nobody has a veto on a canary").edit('**({"veto": list(rules.veto)} if rules.veto else {})', "**{}").by(
    "tests/api/test_canaries.py::test_an_approval_with_a_quorum_is_imitated_and_told_at_its_last_vote"
)
imitating.bug("a canary is in the queue of all").edit('        "queue": plan.queue,\n', "").by(*_ALIKE)
imitating.bug("who seems to ask stands behind a canary").edit("requester=who, instigators=())", "requester=who)").by(
    "tests/api/test_canaries.py::test_the_input_of_another_s_run_disguises_nothing"
)
