"""Mutants of the rules around a gate: which version begins, who is a person, what delegations and tokens may do."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_VERSIONS: Final = "tests/attacks/test_versions.py"

catalog = Room("hai_flow/runtime/catalog/catalog.py", _VERSIONS)
catalog.bug("a requester names any version").edit('if latest_only and "@" in reference:', "if False:")
catalog.bug("a retired version begins by request").edit("if stored.retired_at is not None:", "if False:")
catalog.bug("a retired child is pinned").edit("if of_new_run and stored.retired_at is not None:", "if False:")

starts = Room("hai_flow/runtime/runs/starts.py", _VERSIONS)
starts.bug("a child or fork of a retired version begins").edit(
    "retired = await self._find_retirement(tenant, plan)", "retired = None"
)
starts.bug("a retired version refuses the run that it has").edit(
    "if retired is not None and not await", "if retired is not None or not await"
)

triggers = Room("hai_flow/runtime/messaging/triggers.py", _VERSIONS)
triggers.bug("a retired version keeps its triggers").edit("if latest.retired_at is not None:", "if False:")

workflows = Room("hai_flow/store/catalog/workflows.py", _VERSIONS)
workflows.bug("a retired version is the latest").edit('"dev, retired_at IS NOT NULL, CASE', '"dev, CASE')

_ALIASES: Final = "tests/attacks/test_aliases.py"

selectors = Room("hai_flow/engine/pendings/selectors.py", _ALIASES)
selectors.bug("a further id is not its person's, nor its requester").edit(
    "ids = _composed((principal.id, *principal.aliases))", "ids = _composed((principal.id,))"
)
selectors.bug("an id in a log of before is compared as it was written").edit(
    "return frozenset(map(compose, names))", "return frozenset(names)"
).by("tests/engine/test_selectors.py")
selectors.bug("an inbox knows one id of a person").edit(
    "return (person.id, *person.aliases, *roles", "return (person.id, *roles"
)
selectors.bug("the delegate of a further id votes a second time").edit(
    "(principal.id, *principal.aliases, principal.on_behalf_of, *principal.lent_aliases)",
    "(principal.id, principal.on_behalf_of)",
)

_LINEAGE: Final = "tests/engine/test_children.py"
remembered = Room("hai_flow/engine/state/instigators.py", "tests/engine/test_instigators.py")
remembered.bug("people of agents drive out who sent a signal").edit(
    "key=lambda place: not everybody[place].startswith(SENT_FOR)", "key=int"
)
of_children = Room("hai_flow/engine/runs/children.py", _LINEAGE)
of_children.bug("a child keeps its senders to itself").edit('ended["senders"] = list(state.senders)', "pass")
of_children.bug("the senders of a child are told again and again").edit(
    "list_new_senders(draft.state.senders, command.senders)", "command.senders"
)
of_children.bug("a child that works on keeps its senders to itself").edit(
    '{} if state.senders == before.senders else {"senders": list(state.senders)}', "{}"
)
folds_of_children = Room("hai_flow/engine/evolve/children.py", _LINEAGE)
folds_of_children.bug("a run forgets who sent what its child took").edit("if event.senders:\n", "if False:\n")
folds_of_children.bug("a run forgets who sent what its child at work took").edit(
    "senders = with_senders(state.senders, event.senders)\n", "senders = state.senders\n"
)

people = Room("hai_flow/api/auth/directory/people.py", _ALIASES)
people.bug("the ids of one tenant join people of another").edit(
    "if await self._tenants.id_of(name) == tenant:", "if name:"
)
people.bug("an id from before is not joined").edit(
    "replace(who, id=id, aliases=tuple(ids), roles", "replace(who, id=id, aliases=(), roles"
)

_TOKENS: Final = "tests/attacks/test_tokens.py"

selectors.bug("a key that speaks for nobody decides by a name").edit("if is_unproven(principal):", "if False:").by(
    _TOKENS
)
votes = Room("hai_flow/engine/pendings/votes.py", _TOKENS)
votes.bug("an issuer's key votes as often as it likes").edit(
    "ids.update(id for vote in votes for id in _list_vouching(vote))", "pass"
)
frontend = Room("hai_flow/api/auth/frontend_tokens.py", _TOKENS)
frontend.bug("a token that is signed beside the server holds what it says").edit(
    "_demand_held(key.roles, key.groups, claims)", "_demand_held(claims.roles, claims.groups, claims)"
)
frontend.bug("a key decides as anybody").edit("if is_vouched else f", "if True else f")
texts = Room("hai_flow/signing.py", _TOKENS)
texts.bug("a token has several texts").edit("if encode(data) != text:\n", "if False:\n")
_FORMS: Final = "tests/api/test_answer_forms.py"
forms_of_answers = Room("hai_flow/engine/pendings/answers.py", _FORMS)
guard = Room("hai_flow/steps/http/egress.py", "tests/steps/test_special_addresses.py")
guard.bug("a tunnel's end is not judged").edit(" or _is_isatap(address)", "")
_SOCKET: Final = f"{_FORMS}::test_an_answer_on_auis_socket_that_would_lose_a_part_is_refused"
sessions_of_aui = Room("hai_flow/api/protocols/aui_session.py", _SOCKET)
sessions_of_aui.bug("parts of an answer beside the payload are dropped").edit(
    "for name in list_misplaced_members(given):", "for name in ():"
)
sessions_of_aui.bug("what may be edits beside the payload is dropped").edit(
    "for name in _list_near_edits(given, pending):", "for name in ():"
)
sessions_of_aui.bug("a field of an open form is a message").edit(
    "if not _is_filled_in(questions, payload):", "if True:"
).by(f"{_FORMS}::test_a_field_of_an_open_form_of_aui_is_no_message")
sessions_of_aui.bug("an action that the server offers is dropped beside a message").edit(
    "action in aui.list_actions(each) for", "action in each.options for"
).by(f"{_FORMS}::test_a_form_of_aui_is_not_lost_beside_a_message")
sessions_of_aui.bug("a label of another option is dropped").edit(
    "if label != action and label", "if label is action and label"
)
sessions_of_aui.bug("an answer beside a message of AUI is dropped").edit(
    "                self._demand_no_answer(questions, action, payload)\n", ""
).by(f"{_FORMS}::test_an_answer_beside_a_message_of_aui_refuses_both")
sessions_of_aui.bug("an action in the payload is dropped").edit("(payload.get(name) or outer) != outer", "False")
requests_of_agents = Room("hai_flow/wire/agent_request.py", _FORMS)
requests_of_agents.bug("edits beside the data of a content are dropped").edit(
    "(*list_misplaced_members(message), *list_misplaced_members(part))", "list_misplaced_members(message)"
).by(f"{_FORMS}::test_parts_of_an_answer_beside_its_content_refuse_it")
_BESIDE: Final = f"{_FORMS}::test_parts_of_an_answer_beside_its_content_refuse_it"
requests_of_agents.bug("edits beside the input of a request are dropped").edit(
    "self._answers(messages, list_misplaced_members(document))", "self._answers(messages, ())"
).by(_BESIDE)
requests_of_agents.bug("a text beside the data of an approval is dropped").edit(
    'return ("text",) if', "return () if"
).by(f"{_FORMS}::test_a_text_beside_the_data_of_an_approval_refuses_it")
requests_of_agents.bug("what is neither true nor false rejects").edit(
    "if not isinstance(approve, bool) and (approve is not None or", "if approve is None and (False or"
).by(f"{_FORMS}::test_an_approval_response_that_is_not_read_whole_is_refused")
posts = Room("hai_flow/wire/agent_input.py", _BESIDE)
posts.bug("edits beside all messages are dropped").edit(
    "self._beside = list_misplaced_members(document)", "self._beside = ()"
)
posts.bug("edits in forwardedProps are dropped").edit(
    'self._edits = list_misplaced_edits(document.get("forwardedProps"))', "self._edits = ()"
)
words = Room("hai_flow/wire/dialects/dialect.py", _BESIDE)
words.bug("edits in another spelling are dropped").edit(
    'name.replace("_", "").replace("-", "").lower() in names', "name in names"
)
words.bug("a digest in another spelling is dropped").edit("if name not in taken)", "if name.lower() not in taken)")
words.bug("properties of an application that are no edits refuse an answer").edit(
    "if _holds_edits(record[name]))", "if True)"
).by(f"{_FORMS}::test_an_application_s_own_properties_refuse_no_answer")
commands = Room("hai_flow/wire/dialects/agui.py", _BESIDE)
commands.bug("edits beside an older frontend's answer are dropped").edit(
    "misplaced, edits = list_misplaced_members(command), list_misplaced_edits(forwarded)", "misplaced, edits = (), ()"
)
of_posts = Room(
    "hai_flow/api/protocols/posted_answers.py", f"{_FORMS}::test_two_answers_to_a_question_in_one_post_refuse_it"
)
of_posts.bug("of two answers to one question in a post the second is dropped").edit(
    "if question is None or (superseded and _list_misplaced(message, question)):", "if question is None or superseded:"
)
of_posts.bug("edits of an application refuse the result of its tool").edit(
    'decides = pending.opened.kind not in ("tool", "ask")', "decides = True"
).by(f"{_FORMS}::test_edits_of_an_application_refuse_no_result_of_its_tool")
validated = Room("hai_flow/engine/pendings/validate_answers.py", _FORMS)
validated.bug("a refused message in the history refuses resume").edit(
    "if not (answer.superseded and rejected.status == 422):", "if True:"
).by(f"{_FORMS}::test_a_refused_message_in_the_history_does_not_refuse_resume")
messages_of_a2a = Room("hai_flow/wire/a2a/tasks.py", _BESIDE)
messages_of_a2a.bug("edits in the metadata of A2A are dropped").edit(
    'if message.edits and kind not in ("tool", "ask"):', "if False:"
)
elicited = Room(
    "hai_flow/api/mcp/runs.py", f"{_FORMS}::test_an_elicited_form_with_parts_beside_its_content_is_asked_again"
)
elicited.bug("a digest beside an elicited form is dropped").edit(
    "if misplaced := list_misplaced_members(response):", "if misplaced := ():"
)
requests_of_agents.bug("data that is no object is passed over").edit(
    "elif data is not None:\n                self._find(", "elif False:\n                self._find("
).by(f"{_FORMS}::test_data_of_the_agent_api_that_is_no_object_refuses_its_message")
forms_of_answers.bug("of a key that stands twice in an answer the last one counts").edit(
    "if (name := values.find_repeated_key(text)) is not None:", "if (name := None) is not None:"
).by(f"{_FORMS}::test_an_answer_that_names_its_edits_twice_is_refused")
forms_of_answers.bug("of two edits of one argument the last one counts").edit(
    "if len(pointers) != len(edits):\n", "if False:\n"
).by(f"{_FORMS}::test_an_approval_that_would_lose_a_part_is_refused")
forms_of_answers.bug("an edit of a part is lost in an edit of the whole").edit(
    "if (outer := _find_outer(pointer, pointers)) is not None:", "if (outer := None) is not None:"
).by("tests/engine/test_approvals_edit.py::test_an_edit_of_a_part_beside_an_edit_of_the_whole_is_refused")
threads_of = Room("hai_flow/api/requests/run_visibility.py", _TOKENS)
threads_of.bug("a limited credential answers in other threads of its person").edit(
    "return self._has_begun(last) and self.principal.is_for(last.thread_id, last.workflow_name)",
    "return self._has_begun(last)",
)
limited = Room("hai_flow/api/permissions/principals.py", _TOKENS)
limited.bug("a limited token opens what goes by the person").edit(
    "if principal.is_limited and not limited", "if False and not limited"
)
uploads = Room("hai_flow/api/requests/access.py", _TOKENS)
uploads.bug("a limited token reads its person's files").edit('return "" if self.principal.is_limited else', "return")

_DELEGATIONS: Final = "tests/attacks/test_delegations.py"
of_keys = Room("hai_flow/store/identity/keys.py", _DELEGATIONS)
of_keys.bug("a delegation stays in lists when its key is revoked").edit(
    "await delegations.end_of_key(connection, tenant, id, ids, is_last=is_last)", "_ = is_last"
).by("tests/api/test_sessions.py::test_a_key_begins_a_session_that_ends_with_it")

let_go = Room("hai_flow/store/identity/keys.py", "tests/attacks/test_let_go.py")
let_go.bug("of two keys that are revoked at once none is the last").edit(
    "await connection.execute(_LOCK, tenant, ids)", "pass"
)
let_go.bug("a key that is revoked again ends later links").edit("if is_last and is_new:", "if is_last:")

_ONE_MIND: Final = "tests/attacks/test_one_mind.py"
minds = Room("hai_flow/api/auth/authenticate.py", _ONE_MIND)
minds.bug("an agent and its person are two votes").edit(
    "issuer = who.issuer or next(iter(agents), None)", "issuer = who.issuer"
)
tokens_of_holders = Room("hai_flow/api/auth/frontend_tokens.py", _ONE_MIND)
tokens_of_holders.bug("a token for another is not its holder's").edit(
    "(holder != id and not holder.startswith(SERVICE))", "False"
)
own_words = Room("hai_flow/engine/pendings/policies.py", _ONE_MIND)
own_words.bug("data lets the requester decide").edit("policy.names_requester and", "True and")

delegates = Room("hai_flow/runtime/people/delegates.py", _DELEGATIONS)
delegates.bug("a delegation outlives its session").edit("held.append(sessions.get(each.session))\n", "pass\n")
delegates.bug("a key that is revoked by another statement leaves its delegations").edit(
    "held.append(keys.get(each.key))\n", "pass\n"
)
delegates.bug("a role that was lost is lent").edit(
    "roles, groups = each.caps(roles, groups)", "each.caps(roles, groups)"
)
delegates.bug("who may decide no more lends what they had").edit(
    "(not held or may_decide(capped.roles))", "capped.roles"
)
delegates.bug("a role that the giver has got excludes nobody").edit("*held, *personal, *_find", "*_find")
delegates.bug("a role that the delegate has got excludes nobody").edit(
    "*personal, *_find_personal_holding(people, all_ids(each.to_id))]", "*personal]"
)
callers = Room("hai_flow/api/auth/authenticate.py", _DELEGATIONS)
callers.bug("a role of another key excludes no vote of its person").edit("if held or", "if")
callers.bug("a role of a key of a further id excludes nobody").edit("who.id, *who.aliases))", "who.id))")
sockets = Room("hai_flow/api/protocols/aui.py", _DELEGATIONS)
sockets.bug("an open socket keeps the roles that its person had").edit("if now.who != principal.who or not", "if not")
_BEHIND: Final = "tests/attacks/test_tokens.py"
pages = Room("hai_flow/api/auth/frontend_tokens.py", _BEHIND)
pages.bug("another token of a key approves what one has caused").edit('.id}", through=behind)', '.id}")')
pages.bug("nobody is behind what a token causes").edit("(holder, *behind)", "behind")
pages.bug("the people of an agent are not behind what its token causes").edit(
    "list_people_of_agent(key.principal, key.speaks_for)\n", "()\n"
)
tickets_of = Room("hai_flow/api/auth/directory/principal_json.py", _BEHIND)
tickets_of.bug("a ticket forgets for whom an agent acts").edit("    behind: tuple[str, ...] = ()\n", "")
callers.bug("who holds the key of a token is forgotten").by(_BEHIND).edit("*list_ids_between(who.through)", "*()")
_OF_AGENTS: Final = "tests/attacks/test_people_of_agents.py"
agents = Room("hai_flow/api/auth/keys.py", _OF_AGENTS)
agents.bug("an agent approves what those have started for whom it acts").edit(", through=behind)", ")")
callers.bug("an agent acts for one id of a person").by(_OF_AGENTS).edit(
    "*people) for id in all_ids(each))", "*people) for id in (each,))"
)
callers.bug("an agent has a key by which it acts for nobody").by("tests/attacks/test_second_credentials.py").edit(
    "(*list_ids_between(who.through), *people)", "list_ids_between(who.through)"
)
revoked = Room("hai_flow/store/identity/keys.py", "tests/api/test_sessions.py")
revoked.bug("a link goes on behind the last key of its person").edit("    if is_last and is_new:\n", "    if False:\n")
revoked.bug("a link ends with any key of its person").edit("    if is_last and is_new:\n", "    if is_new:\n")
stored = Room("hai_flow/store/identity/sessions.py", _BEHIND)
stored.bug("a claim of a ticket prevents that keys are revoked").edit(
    r"replace(principal, '\u0000', '\u0001')", "principal"
)
forks = Room("hai_flow/engine/runs/fork.py", _OF_AGENTS)
forks.bug("people of an agent who forks give way to those behind the run").by("tests/engine/test_forking.py").edit(
    'list_people_behind("", people, first.instigators)', 'list_people_behind("", first.instigators, people)'
)
forks.bug("an agent's people are behind a fork before it is judged").edit(
    "    _demand_people_are_heard(draft, plan, command)\n    if command.behind:\n",
    "    _add_instigators(draft, command.behind)\n    _demand_people_are_heard(draft, plan, command)\n    if False:\n",
)
forks.bug("who caused a run drives out whom its fork is for").edit(
    '("", people, state.instigators)', '("", state.instigators, people)'
).by("tests/engine/test_instigators.py")
rosters_of_agents = Room("hai_flow/runtime/people/roster.py", "tests/runtime/test_undecidable.py")
rosters_of_agents.bug("an agent that may not decide keeps a question from being stranded").edit(
    "through = (*between, *self.list_held(one))", "through = self.list_held(one)"
)
acting = Room("hai_flow/api/requests/access.py", _BEHIND)
acting.bug("people are not behind the forks of their agent").edit(
    "return msgspec.structs.replace(begin, behind=behind)", "return begin"
)
acting.bug("people are not behind the events of their agent").edit(
    "if is_of_holder else (id, *behind))", "if is_of_holder else (id,))"
)
acting.bug("ids that a key makes up drive out senders").by("tests/attacks/test_one_mind.py").edit(
    "if is_of_holder else (id, *behind))", "if False else (id, *behind))"
)
by_keys = Room("hai_flow/engine/pendings/votes.py", _BEHIND)
by_keys.bug("a key votes beside its tokens").edit("(who.issuer, *list_ids_between(who.through))", "(who.issuer,)")
_ABSENCES: Final = "tests/attacks/test_absences.py"
away = Room("hai_flow/runtime/people/absences.py", _ABSENCES)
away.bug("a chain has no end").edit("if len(chain) == CHAIN_MAX:", "if False:")
away.bug("a circle is a seat").edit("if row in chain:\n", "if row in chain and not holder:\n")
away.bug("who is away between is not held against exclusions").edit(
    "away = [each.person for each in self.chain[1:]]", "away: list[str] = []"
)
away.bug("who entered the absence is not held against exclusions").edit(
    "if each.entered_by not in all_ids(each.person)]", "if not each.entered_by]"
)
away.bug("who may decide no more passes a seat on").edit(
    "all(row.id in lent for row in seat.chain)", "seat.chain[0].id in lent"
)
away.bug("an absence overlaps another").edit("if all_ids(each.person)[0] == person:", "if False:")
away.bug("a role that an absent person has got excludes nobody").edit(
    "for row in seat.chain for selector in lent[row.id].held", "for row in seat.chain for selector in ()"
).by(_DELEGATIONS)
through = Room("hai_flow/engine/pendings/selectors.py", _ABSENCES)
through.bug("the people by whom a vote came may be excluded").edit("if principal.through:\n", "if False:\n")
through.bug("their roles may be excluded").edit("name if kind in parts else each", "each")
entering = Room("hai_flow/api/rest/people/absences.py", _ABSENCES)
entering.bug("an absence begins in the past").edit("if not today <= body.first_day <=", "if not body.first_day <=")
entering.bug("everybody enters absences of others").edit(
    "access.require(Right.DECIDE if is_own else", "access.require(Right.DECIDE,"
)
reseating = Room("hai_flow/runtime/people/absence_notices.py", "tests/runtime/test_absence_notices.py")
reseating.bug("an absence that nobody saw is told of").edit('if stage == "begun" or not is_over:', "if True:")
stranded = Room("hai_flow/runtime/people/undecidable.py", "tests/runtime/test_undecidable.py")
stranded.bug("one person in two seats is two people").edit("if spent.isdisjoint(ids):", "if True:")
stranded.bug("an absent person can decide").edit("if person.id not in self._away:\n", "if True:\n")
stranded.bug("people whom it does not ask are named as the reason").edit(
    "if not list_matching_selectors(rules.from_, person, world):\n", "if False:\n"
)
stranded.bug("the other keys of a delegate are not read").edit("*self.roster.list_held(seat.holder),", "")
roster = Room("hai_flow/runtime/people/roster.py", "tests/runtime/test_undecidable.py")
roster.bug("the other keys of a person are not read").edit("(*between, *self.list_held(one))", "tuple(between)")
roster.bug("every file of people is complete").edit("self.by_keys or self.file.complete", "True")
roster.bug("no file of people is complete").edit("self.by_keys or self.file.complete", "self.by_keys")
roster.bug("people of the file do not count").edit("(*self.holders, *listed)", "self.holders")
roster.bug("whom no channel reaches decides without a key").edit("(not self.by_keys or any(", "(True or any(")
roster.bug("who has no address decides by mail").edit(" and person.email is not None", "")
roster.bug("whoever stands in the file needs an address").edit("(not self.by_keys or any(", "(False or any(")
stranded.bug("an excluded person can decide").edit(
    "if fault is not None:\n                faults", "if False:\n                faults"
)
stranded.bug("a question stays stranded").edit("if key in good or (is_complete", "if False and (is_complete")
stranded.bug("a tenant that can't be read loses its marks").edit(
    "is_complete = look.tenants == len(tenants)", "is_complete = True"
)
of_routes = Room("hai_flow/api/rest/people/delegations.py", _DELEGATIONS)
of_routes.bug("a delegation outlives its token").edit("min(body.until, ends_at)", "body.until")
of_routes.bug("delegations that have ended stay").edit(
    "[each.id for each in granted if each.id not in holding and",
    "[each.id for each in granted if each.id in holding and",
)

waits = Room("hai_flow/api/requests/access.py", "tests/api/test_revoking.py")
waits.bug("a request waits on behind its credential's end").edit("if term.is_over:\n", "if False:\n")
addresses = Room("hai_flow/runtime/messaging/pushes.py", "tests/api/test_approval_webhooks.py")
addresses.bug("an address outlives its owner's last key").edit(
    "if await keys.is_over(self._credentials, push.tenant, caller.key, caller.id, *held):", "if False:"
)

_LINKS: Final = "tests/api/test_links.py"
links = Room("hai_flow/api/rest/people/links.py", _LINKS)
of_visitors = Room("hai_flow/api/http/visitor_pages.py", _LINKS)
of_visitors.bug("a Chinese browser gets English").edit('.startswith("zh")', '.startswith("zz")')
of_visitors.bug("a refusal on a page names the id").edit('_OF_AN_ID.sub("", refused.detail)', "refused.detail")
links.bug("a lacking reason is not said").edit('in derive_rules(pending).reasons and not typed.get("reason")', "in ()")
links.bug("who was taken out of the file decides by a link").edit("if person is None:", "if False:")
links.bug("what a link's form has no field for is dropped").edit("if len(texts) > most.get(name, 0):", "if False:").by(
    f"{_LINKS}::test_a_form_with_a_field_of_its_own_or_two_of_one_decides_nothing"
)
links.bug("a link lends a role that its person has lost").edit("roles.intersection(person.roles)", "roles")

roles = Room("hai_flow/store/postgres/database_roles.py", "tests/store/test_rights_of_keys.py")
roles.bug("the engine gives keys other roles").edit('(("keys", "UPDATE"), ("keys", "DELETE"))', "()")

_ISSUERS: Final = "tests/api/test_tokens_of_issuers.py"

of_issuers = Room("hai_flow/api/auth/issuers/jwt.py", _ISSUERS)
of_issuers.bug("a claim that stands twice counts by its last").edit(
    "        json.loads(text.decode(), object_pairs_hook=build_object)\n", ""
).by(f"{_ISSUERS}::test_a_forged_token_is_refused_and_told_nothing")
of_issuers.bug("a padded token is taken").edit(
    "head, body, _ = map(decode, parts)", "head, body = map(decode, parts[:2])"
).by(f"{_ISSUERS}::test_a_forged_token_is_refused_and_told_nothing")

times = Room("hai_flow/api/base/id_patterns.py", "tests/attacks/test_far_times.py")
times.bug("a time may be at an end of the calendar").edit("if not 1000 <= time.year <= 9000:", "if False:")

what_is_asked = Room("hai_flow/engine/pendings/bypass.py", "tests/engine/test_bypass.py")
what_is_asked.bug("who is behind a run skips what decides whether people are asked").edit(
    "if question is not None:\n", "if False:\n"
)
what_is_asked.bug("who is behind a run edits what decides whether people are asked").edit(
    "if values and _is_of_the_request(who, world):\n", "if False:\n"
)
what_is_asked.bug("one approval is used for the retry of a run and for its fork").edit(
    "if command.acted and not command.again:", "if False:"
)
branches = Room("hai_flow/runtime/runs/branches.py", "tests/attacks/test_skip_and_its_kin.py")
branches.bug("what a relative has done on a common approval is not looked for").edit(
    "paths.update(steps)\n", "_ = steps\n"
)
guarding = Room("hai_flow/definition/checks/question_guards.py", "tests/definition/test_question_guards.py")
guarding.bug("a step that is read by way of another decides nothing").edit("read += [part for", "_ = [part for")
guarding.bug("the arguments of a call decide nothing").edit("elif is_guarded_by_arguments(question):", "elif False:")
guarding.bug("what a run below is given decides nothing").edit(
    "if below is None or question.path in below else []", "if False else []"
)
guarding.bug("what sets the state decides nothing").edit('if "state" in roots:', "if False:")
guarding.bug("a run below asks nobody").edit(
    "DECIDERS or (isinstance(step.verb, Run) and not step.verb.detach):", "DECIDERS:"
)
making = Room("hai_flow/primitives/beside_loop.py")
making.bug("a thread beside the loop keeps the interpreter for as long as it likes").edit(
    "sys.setswitchinterval(min(self._usual, TURN_SECONDS))", "sys.setswitchinterval(self._usual)"
).by("tests/attacks/test_work.py::test_threads_beside_the_loop_take_short_turns_while_any_of_them_works")
making.bug("a tenant holds up all others with what it has for the thread beside the loop").edit(
    "setdefault(WORK_FOR.get(), deque())", "setdefault(None, deque())"
).by("tests/attacks/test_work.py::test_tenants_come_to_a_thread_beside_the_loop_in_turns")
tickets = Room("hai_flow/api/permissions/rate_limits.py", "tests/api/test_rates.py")
tickets.bug("one principal makes tickets without end").edit("if self._counts and (seconds", "if False and (seconds")

_APPROVALS: Final = "tests/api/test_approvals.py"

approvals = Room("hai_flow/api/rest/people/approvals.py", _APPROVALS)
approvals.bug("other arguments than the approved ones are consumed").edit("if digest == right:", "if digest:")
approvals.bug("another action beside the digest is dropped").edit(
    "if body.arguments is None and body.action in (None, action):", "if body.arguments is None:"
).by(f"{_APPROVALS}::test_a_digest_beside_another_action_or_arguments_consumes_nothing")
approvals.bug("a fork of an approval is one").edit(
    "if not _is_for_approvals(plan) or state.forked:", "if state is None:"
)
approvals.bug("anybody who sees an approval consumes it").edit("if state.requester not in access.ids:", "if False:")
approvals.bug("an approval is consumed twice").edit("uuid4().hex if key is None", '"one" if key is None').by(
    f"{_APPROVALS}::test_approval_is_asked_decided_and_consumed_once"
)

digests = Room("hai_flow/wire/approvals.py", _APPROVALS)
digests.bug("the action is no part of the digest").edit(
    'rfc8785.dumps({"action": action, "arguments": arguments})', 'rfc8785.dumps({"arguments": arguments})'
)

_WEBHOOKS: Final = "tests/api/test_approval_webhooks.py"

webhooks = Room("hai_flow/api/rest/people/approvals.py", _WEBHOOKS)
webhooks.bug("an approval calls an address inside the network").edit("if obstacle is not None:", "if False:")

outcomes = Room("hai_flow/runtime/messaging/pushes.py", _WEBHOOKS)
outcomes.bug("each try of an outcome has an id of its own").edit('mark = f"{status} {len', 'mark = f"{push.tries} {len')

_FRAMEWORKS: Final = "tests/clients/test_frameworks.py"

adapters = Room("clients/python/hai_flow_client/adapters/__init__.py", _FRAMEWORKS)
adapters.bug("an adapter consumes whatever was approved").edit("arguments, action=call.action)", ")").by(
    f"{_FRAMEWORKS}::test_what_was_approved_under_another_digest_is_not_performed"
)
adapters.bug("an adapter finds no approval again").edit(
    "message=message, key=call.key", "message=message, key=None"
).by(f"{_FRAMEWORKS}::test_an_agent_killed_while_waiting_resumes_its_approval_and_acts_once")

guards = Room("clients/python/hai_flow_client/adapters/openai_agents.py", _FRAMEWORKS)
guards.bug("a guarded tool acts with the arguments from before the edit").edit(
    "json.dumps(verdict.arguments)", "arguments"
).by(f"{_FRAMEWORKS}::test_an_edited_call_is_performed_as_edited_and_a_rejected_one_is_not")
guards.bug("a guarded tool believes the state").edit("if not verdict.approved:", "if False:").by(
    f"{_FRAMEWORKS}::test_a_guarded_tool_asks_people_though_the_state_says_approved"
)

_DEPOSITS: Final = "tests/runtime/test_deposits.py"

deposits = Room("hai_flow/runtime/messaging/deposits.py", _DEPOSITS)
deposits.bug("deposits are all the same run").edit("place_id(deposit.id,", "place_id(UUID(int=1),")
deposits.bug("a deposit over a limit is refused for good").edit(
    "status in (408, 429, 503) or status >= 500", "status >= 500"
).by(f"{_DEPOSITS}::test_a_deposit_that_is_refused_for_now_is_tried_again")
deposits.bug("a deposit starts the server's own canaries").edit("        demand_unreserved(plan.name)\n", "").by(
    f"{_DEPOSITS}::test_a_deposit_starts_no_canary"
)
deposits.bug("a deposited run is nobody's").edit("owners=(deposit.principal,),", "owners=(),").by(
    f"{_DEPOSITS}::test_a_deposited_run_is_of_its_depositor"
)
deposits.bug("a refused deposit is tried for ever").edit("if not passing:", "if False:")
_OWN_FILES: Final = f"{_DEPOSITS}::test_a_deposit_brings_no_files_but_its_principals_own"
deposits.bug("a deposit begins with anybody's file").edit(
    "await self._files.use_all(deposit.tenant, deposit.principal, run_id, command, _viewer_of(deposit))", "pass"
).by(_OWN_FILES)
deposits.bug("an event is deposited with anybody's file").edit(
    "await self._files.demand(deposit.tenant, deposit.principal, data, _viewer_of(deposit))", "pass"
).by(_OWN_FILES)
deposits.bug("an event for one run is deposited with anybody's file").edit(
    "await self._files.use(deposit.tenant, deposit.principal, event.run_id, data, _viewer_of(deposit))", "pass"
).by(_OWN_FILES)
deposits.bug("a depositor reads all runs of its tenant").edit(
    'return Viewer((deposit.principal,), ("tenant", deposit.principal))',
    'return Viewer((deposit.principal, "user:bob"), ("tenant",))',
).by(_OWN_FILES)

ids_of_files = Room("hai_flow/primitives/file_ids.py", "tests/api/test_files.py")
ids_of_files.bug("a line break hides the id of a file").edit("|(?<=\\\\[bfnrt]file_)", "")

stored_signals = Room("hai_flow/store/messaging/signals.py", "tests/runtime/test_files.py")
stored_signals.bug("the file of an event that waits is removed").edit(
    "WHERE f.tenant = n.tenant AND f.sha256 = n.sha256", "WHERE false AND f.sha256 = n.sha256"
)

_HIDDEN: Final = "tests/attacks/test_personal_values.py"
masks = Room("hai_flow/wire/pii_masking.py", _HIDDEN)
masks.bug("the name of who wrote is shown").edit(
    '{"content": MASK, "extra": None, "name": None}', '{"content": MASK, "extra": None}'
)
masks.bug("a vote on a form that a tool has marked is shown").edit(
    "if not _hides(of, question):\n        return vote", "if not of.touches:\n        return vote"
).by("tests/wire/test_pii_masking.py")
masks.bug("the values of such a vote are shown").edit(
    "join(of.answer, mark_of_schema(question.schema)))\n    return replace(vote", "of.answer)\n    return replace(vote"
).by("tests/wire/test_pii_masking.py")
queue_views = Room("hai_flow/api/requests/views.py", _HIDDEN)
queue_views.bug("a message in the queue is shown").edit(
    "MASK if message and personal is not None and personal.message else message", "message"
)
disclosures = Room("hai_flow/definition/personal/pii_checks.py", "tests/definition/test_pii_flow.py")
disclosures.bug("a veto names a personal value").edit('"veto": "veto", ', "")
disclosures.bug("a quorum is a personal value").edit('"quorum": "quorum", ', "")
run_triggers = Room("hai_flow/runtime/messaging/triggers.py", "tests/runtime/test_personal_logs.py")
run_triggers.bug("the log of a process quotes what a run's trigger read").edit(
    '"run_trigger_refused", code=error.code)', '"run_trigger_refused", code=error.code, reason=error.message)'
)
branch_rehearsal = Room("hai_flow/api/requests/access.py", "tests/attacks/test_forks.py")
branch_rehearsal.bug("a branch asks for its files when the run is stopped").edit(
    "await self.runtime.files.demand_all(self.tenant, self.uploader, begin, self.viewer)", "pass"
)

signing = Room("hai_flow/signing.py", "tests/wire/test_hostile_receipts.py")
signing.bug("a header says how the rest is to be read").edit("is_exact = len(named) == 3", "is_exact = True")
signing.bug("a receipt names its own algorithm").edit('if algorithm != "EdDSA" or kind != type:', "if kind != type:")
_LOOPS: Final = (
    "tests/definition/test_expressions_hostile.py::test_a_list_that_is_gone_through_in_a_loop_takes_no_long_work"
)
growth = Room("hai_flow/definition/expressions/cel_growth.py", _LOOPS)
growth.bug("a list is copied in a loop, however often").edit(
    "self._allow(bound.get(_ROUNDS, SCALAR).total * _ELEMENT * sum(map(_count_below, parts)))", "pass"
)
_EXTREMES: Final = "tests/foreign/test_values.py"
extremes = Room("hai_flow/values.py", _EXTREMES)
extremes.bug("a text with very many extreme numbers is read").edit("if count > EXTREMES_MAX:\n", "if False:\n")
extremes.bug("a value with very many extreme numbers is taken").edit(
    "if len(extremes) > EXTREMES_MAX:\n", "if False:\n"
)
extremes.bug("500 extreme numbers are too many").edit("EXTREMES_MAX: Final = 500", "EXTREMES_MAX: Final = 499")

_KEPT_BACK: Final = "tests/attacks/test_loop_time_of_personal_values.py"
pointers = Room("hai_flow/primitives/json_pointers.py", "tests/test_json_pointers.py")
pointers.bug("a digit that is not ASCII is a position").edit("not part.isascii() or not", "not")
pointers.bug("a position may have thousands of digits").edit(" or len(part) > INDEX_DIGITS_MAX", "")
_BEHIND: Final = "tests/api/test_behind_commits.py"
acts = Room("hai_flow/api/requests/run_visibility.py", _BEHIND)
acts.bug("an act fails with the read behind its commit").edit(
    "            if row is None:\n                raise\n", "            raise\n"
)
acts.bug("of a run that can't be read behind an act, what is personal is shown").edit(
    "self._seen[id].personal is None else WHOLE", "self._seen[id].personal is None else None"
)
answers = Room("hai_flow/api/rest/people/decide_pendings.py", _BEHIND)
answers.bug("an answer that is recorded is told as unknown").edit(
    "except (StoreError, *FAILURES):", "except ZeroDivisionError:"
)
starting = Room("hai_flow/api/rest/runs/runs.py", _VERSIONS)
starting.bug("a message's input is filled for the version from before").edit(
    "_begin(fit(plan), access", "_begin(fit((recalled or (stored, plan))[1]), access"
).by(f"{_VERSIONS}::test_the_input_of_a_message_is_filled_for_the_version_that_begins")
views = Room("hai_flow/api/requests/run_visibility.py", _KEPT_BACK)
views.bug("the loop hides the personal values of a large run").edit(
    "await run_if_large(state, mask.state, state)", "mask.state(state)"
)

_KEY_FILES: Final = "tests/api/test_receipts.py::test_a_file_of_keys_that_is_wrong_is_refused_by_its_reason"
key_files = Room("hai_flow/signing.py", _KEY_FILES)
key_files.bug("the halves of two keys are one key").edit("Key.made(private).public != public", "not public")
key_files.bug("a key passes for another one by its id").edit(
    'if jwk.get("kid", id) != id:', 'if not jwk.get("kid", id):'
)
key_files.bug("a key stands in the file twice").edit(
    "for key in keys if sum(key.id == other.id", "for key in () if sum(key.id == other.id"
)
key_files.bug("nobody is told that a key is retired").edit("retired=key.private is None", "retired=False").by(
    "tests/api/test_receipts.py::test_a_new_key_signs_at_once_and_old_receipts_hold"
)

rosters = Room("hai_flow/runtime/people/roster.py", "tests/runtime/test_notifier.py")
rosters.bug("somebody whose keys were revoked is told of questions").edit(
    "holders = await proofs.find_key_holders(credentials, tenant, ids, by_keys=self._by_keys)", "holders = {}"
)
told = Room("hai_flow/runtime/messaging/pushes.py", "tests/api/test_approval_webhooks.py")
told.bug("a key without the role holds the address of somebody else's run").edit(
    "((), ()) if is_own else (caller.roles, caller.groups)", "((), ())"
)
_TOLD_TO: Final = "tests/runtime/test_pushes.py"
told.bug("a fork of a run is its requester's own").edit(
    "in ids_of(caller) and not state.forked", "in ids_of(caller)"
).by(f"{_TOLD_TO}::test_the_address_of_a_key_needs_its_roles_for_what_is_not_its_own")
told.bug("an approval that has failed is told of no more").edit(
    'state.ended and status != "failed")', "state.ended)"
).by(f"{_TOLD_TO}::test_an_approval_that_has_failed_may_be_told_of_again")
told.bug("an approval that is asked for again has the id of the one before").edit(
    'mark = f"{status} {len(state.pendings)}"', 'mark = f"{status}"'
).by(f"{_TOLD_TO}::test_an_approval_that_has_failed_may_be_told_of_again")
told.bug("an address without the right to answer is told to").edit(
    "push.may and item.obstacle is None", "item.obstacle is None"
).by(f"{_TOLD_TO}::test_a_question_is_the_callers_own_only_if_they_may_answer_it")
sealing = Room("hai_flow/api/mcp/state_keys.py", "tests/attacks/test_mcp.py")
sealing.bug("a state ends by the machine's clock").edit(
    "return _move_times(payload, self._clock_ahead())", "return payload"
)
signing_in = Room("hai_flow/runtime/people/ids.py", "tests/runtime/test_undecidable.py")
signing_in.bug("a file that only joins ids is one of issuers").edit(
    'return not (isinstance(document, Mapping) and document.get("issuers"))', "return False"
)

sealed = Room("hai_flow/store/postgres/tool_transactions.py", "tests/runtime/test_tool_sessions.py")
sealed.bug("a cut connection is the tool's fault").edit('if ended == "lost" or', 'if ended == "" or')
sealed.bug("a database that is away when the first tool comes is the tool's fault").edit(
    "            self._pool = pool = await self._database.tools()\n            connection",
    "            connection",
).edit(
    "        try:\n            connection",
    "        self._pool = pool = await self._database.tools()\n        try:\n            connection",
)
sealed.bug("a connection that is cut before its transaction begins is the tool's fault").edit(
    "            fault = self._explain_end(error)\n            await self._roll_back()",
    "            fault = None\n            await self._roll_back()",
).by("tests/runtime/test_tool_sessions.py::test_a_connection_that_is_cut_before_its_transaction_begins_is_lost")
sealed.bug("a statement of a cursor counts as idling").edit("and was_busy", "and False").by(
    "tests/runtime/test_tool_sessions.py::test_a_long_statement_of_any_kind_is_no_idling"
)
_OF_TOOLS: Final = "tests/runtime/test_transactions.py"
_TOLD: Final = f"{_OF_TOOLS}::test_an_author_is_told_why_a_transaction_can_not_be_committed"
cut = Room("hai_flow/store/postgres/database.py", _TOLD)
cut.bug("a session that the tool has ended was lost").edit("if not self._aborted:", "if True:")
cut.bug("a tool that idled for too long is called again").edit('("idled" if has_idled else "lost")', '"lost"')
cut.bug("a long statement counts as idling").edit(
    "answered_at, self._answered_at = self._answered_at, math.inf", "answered_at = self._answered_at"
).by("tests/runtime/test_tool_sessions.py::test_a_tool_that_takes_the_error_of_a_long_statement_did_not_idle")
cut.bug("a statement in the moment in which the server ends its session is a failure of the tool").edit(
    "                self._note_end(answered_at)\n", "                pass\n"
).by("tests/runtime/test_tool_sessions.py::test_a_statement_in_the_very_moment_of_the_cut_is_lost")
carried = Room("hai_flow/runtime/commit/lanes.py", _OF_TOOLS)
carried.bug("a tool has failed whose result was lost on its way to the database").edit(
    "    if classify(error) is ErrorClass.UNKNOWN:\n        return c.StepLost(",
    "    if False:\n        return c.StepLost(",
).by(f"{_OF_TOOLS}::test_a_connection_that_breaks_leaves_one_payment")
_LOGS: Final = "tests/cli/test_logs.py"
on_terminals = Room("hai_flow/cli/serve/logs.py", _LOGS)
on_terminals.bug("a value in the log controls the terminal").edit(
    "join_lines(value) if isinstance(value, str) else value", "value"
).by(f"{_LOGS}::test_a_value_in_the_log_begins_no_line_and_controls_no_terminal")
named = Room("hai_flow/cli/client/rest.py", _LOGS)
named.bug("the beginning of several ids means the newest run").edit("if len(matches) == 1:", "if matches:").by(
    f"{_LOGS}::test_the_beginning_of_the_ids_of_several_runs_means_none_of_them"
)
