"""Bugs of what holds for a time: credentials and their ends, requests that are sent again, versions of protocols."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_LINKS: Final = "tests/api/test_links.py::test_a_link_decides_nothing_for_a_person_whose_keys_were_revoked"
_CHATS: Final = "tests/api/test_chat.py::test_a_person_of_the_file_whose_last_key_is_revoked_decides_in_no_chat"
_DEPARTED: Final = "tests/api/test_departed.py"
_PROOFS: Final = "tests/store/test_proofs.py"
_CLOCKS: Final = "tests/api/test_clocks.py"

proofs = Room("hai_flow/store/identity/proofs.py", _PROOFS)
proofs.bug("who has a good key beside a revoked one is let go").edit("not any(have_good_key)", "not all(have_good_key)")
proofs.bug("who never had a key is let go").edit("bool(have_good_key) and not", "not")
proofs.bug("a key that ends by itself lets its person go").edit(" HAVING bool_or(is_good OR was_let_go)", "")
proofs.bug("a key that has ended keeps a person whose other key was revoked").edit(
    "{IS_GOOD} AS is_good", "revoked_at IS NULL AS is_good"
)
proofs.bug("keys of another tenant keep a person").edit(
    "  WHERE tenant = $1 AND principal = ANY ($2::text[])\n  UNION", "  WHERE principal = ANY ($2::text[])\n  UNION"
)
proofs.bug("a session whose issuer is not asked in time stands for its roles").edit(
    "expires_at > now() AND (good_until IS NULL OR good_until > now())", "expires_at > now()"
)
proofs.bug("the keys of a person stand for the roles of the last one").edit(
    "(before.roles or frozenset()) | set(roles)", "frozenset(roles)"
)

callers = Room("hai_flow/api/auth/authenticate.py", _LINKS)
callers.bug("whose keys were revoked decides by a link").edit('frozenset(("link", "chat"))', 'frozenset(("chat",))').by(
    _LINKS
)
callers.bug("whose keys were revoked decides in chats").edit('frozenset(("link", "chat"))', 'frozenset(("link",))').by(
    _CHATS
)
callers.bug("a revoked key ends what its person decides who signs in elsewhere").edit(
    "by_keys=not self.issuers", "by_keys=True"
).by(_DEPARTED)
callers.bug("the key of a further id keeps nobody").edit(
    "ids = self._runtime.database.api, (who.id, *who.aliases)", "ids = self._runtime.database.api, (who.id,)"
).by(_DEPARTED)

erased = Room("hai_flow/store/identity/proofs.py", _DEPARTED)
erased.bug("who was erased decides by a link").edit(
    "SELECT id, true, false FROM begins", "SELECT id, false, false FROM begins"
)
_ERASED: Final = "tests/store/test_erased_people.py"
erased.bug("whom an older release erased is not found").edit("ARRAY[begins.salt, begins", "ARRAY[begins").by(_ERASED)
erased.bug("of the salts only the first is looked at").edit("WHERE salt IS NOT NULL", "WHERE false").by(_ERASED)

_ROSTER: Final = "tests/runtime/test_undecidable.py::test_who_was_let_go_is_reached_by_no_channel_any_more"
roster = Room("hai_flow/runtime/people/roster.py", _ROSTER)
roster.bug("who was let go is asked by the channel that reaches them").edit("if id not in self.departed\n", "if True\n")
roster.bug("a further id of somebody who was let go is asked").edit(
    "has_left(key_holders, all_ids(id))", "has_left(key_holders, [id])"
)

accounts = Room("hai_flow/api/rest/inbound/chat.py")
accounts.bug("an account whose person was let go is an error of its app").edit(
    "if rejected.status != 401:\n                        raise\n                    continue",
    "if True:\n                        raise\n                    continue",
).by("tests/api/test_chat.py::test_a_connected_account_decides_as_its_person_and_ends_with_their_key")

_TIMES: Final = (
    "tests/api/test_tokens_of_issuers.py::test_a_token_holds_from_its_beginning_to_its_end_and_for_the_leeway"
)
tokens = Room("hai_flow/api/auth/issuers/jwt.py", _TIMES)
tokens.bug("a token ends by this machine's clock").edit(
    "audience, self.now_ms() // 1000)", 'audience, int(__import__("time").time()))'
).by(_CLOCKS)
tokens.bug("a token has no leeway behind its end").edit("<= now - issuer.leeway:", "<= now:")
tokens.bug("a token is good in the second of its end").edit('int(claims["exp"]) <= now', 'int(claims["exp"]) < now')
tokens.bug("a token that is made now is of the future").edit(" + issuer.leeway + CLOCK_LAG:", ":")
tokens.bug("a token of the future is good").edit(
    'max(claims.get("nbf", 0), claims.get("iat", 0))', 'claims.get("nbf", 0)'
)
tokens.bug("a token is good before it begins").edit(
    'max(claims.get("nbf", 0), claims.get("iat", 0))', 'claims.get("iat", 0)'
)

_LENT: Final = "tests/attacks/test_delegations.py::test_the_same_idempotency_key_is_the_same_delegation"
delegations = Room("hai_flow/api/rest/people/delegations.py", _LENT)
delegations.bug("a repeated delegation to somebody else is the first one").edit(
    "(before.to_id, before.note) != (to, body.note)", "before.note != body.note"
)
delegations.bug("a repeated delegation with another note is the first one").edit(
    "(before.to_id, before.note) != (to, body.note)", "before.to_id != to"
)
delegations.bug("a delegation that is asked to begin later has begun").edit(
    "not (body.since is None or body.since == before.since or body.since < before.since <= before.created_at)", "False"
)
delegations.bug("a delegation that begins at once is another one when it is repeated").edit(
    " or body.since < before.since <= before.created_at)", ")"
)
delegations.bug("a delegation that ends with its key is another one when it is repeated").edit(
    "before.until == body.until or (ends_at is not None and abs(before.until - ends_at) < _SKEW)",
    "before.until == body.until",
)
delegations.bug("a delegation that is asked for a shorter time lasts as long as before").edit(
    "        or before.until > body.until\n", ""
)
delegations.bug("a delegation that was made twice stands twice in the audit").edit(
    "        if is_new:\n            subject", "        if True:\n            subject"
)
delegations.bug("a repeated request names a delegation that has ended").edit(
    "before.until <= now or not await access.inbox.in_force(access.tenant, [before])", "before.until <= now"
).by("tests/attacks/test_delegations.py::test_a_repeated_request_revives_no_delegation_that_has_ended")

commands = Room(
    "hai_flow/api/requests/dependencies.py",
    "tests/api/test_visibility.py::test_one_idempotency_key_or_run_id_of_two_people_is_two",
)
_OF_CALLER: Final = "f\"http:{kind}:{name.replace('%', '%25').replace(':', '%3A')}:{key}\""
commands.bug("two callers share an Idempotency-Key").edit(_OF_CALLER, 'f"http:{key}"')
commands.bug("an id with colons and a key are another id and another key").edit(
    _OF_CALLER, 'f"http:{kind}:{name}:{key}"'
)

keys = Room(
    "hai_flow/api/rest/admin/keys.py",
    "tests/api/test_keys.py::test_a_repeated_request_for_a_key_names_the_key_that_it_has_made",
)
keys.bug("a repeated request makes another key").edit("            id=id,\n", "")

_FROZEN: Final = "tests/api/test_freezes.py::test_the_same_idempotency_key_is_the_same_freeze"
freezes = Room("hai_flow/api/rest/admin/freezes.py", _FROZEN)
freezes.bug("a repeated freeze in another mode is the first one").edit(
    "(row.tenant, *row[3:7]) != (tenant, body.mode, body.scope, name, body.reason)", "row.tenant != tenant"
)
freezes.bug("a freeze that was made twice stands twice in the audit").edit(
    "if number == HOME and is_new:", "if number == HOME:"
)
freezes.bug("a freeze that is over reaches a cell that has not got it").edit(
    "        if row.thawed_at is not None:  #", "        if False:  #"
).by("tests/api/test_large_tenants.py::test_a_freeze_that_is_over_reaches_no_cell_by_its_key_again")
obeying = Room(
    "hai_flow/runtime/commit/freeze_cache.py",
    "tests/runtime/test_freezes.py::test_what_can_not_be_read_back_lets_nothing_begin_until_it_is",
)
obeying.bug("a freeze that can't be read back holds nothing").edit("self.note_version(self._newest + 1)", "pass")

deposits = Room(
    "hai_flow/runtime/messaging/deposits.py",
    "tests/runtime/test_deposits.py::test_a_deposit_starts_no_more_than_a_request_of_a_requester",
)
deposits.bug("a deposit starts any version").edit("latest_only=True, at=deposit.at", "latest_only=False, at=deposit.at")
deposits.bug("a deposit names the version that was the latest when it is taken").edit(
    "latest_only=True, at=deposit.at", "latest_only=True"
)
deposits.bug("a deposit starts in anybody's thread").edit("            owners=(deposit.principal,),\n", "")

_HANDSHAKE: Final = "tests/foreign/test_mcp_handshake.py"
handshake = Room("hai_flow/steps/mcp/handshake.py", _HANDSHAKE)
handshake.bug("an error about versions begins another session").edit(
    "            self._request = None  # the session has begun\n", "            pass\n"
)
handshake.bug("a refusal that names no request is not heard").edit(
    "not in (asked.message.id, None)", "!= asked.message.id"
)
handshake.bug("a server is offered the version that it has refused").edit(
    "if each < str(params", "if each <= str(params"
)
handshake.bug("a server is offered another version than those that it names").edit("max(named or older)", "max(older)")
handshake.bug("a server is offered the oldest version that it names").edit("max(named or older)", "min(named or older)")
handshake.bug("a server that names no version is not called").edit(
    'result.get("protocolVersion") or _ASSUMED', 'result.get("protocolVersion")'
)
handshake.bug("instructions in an odd form end a session before it begins").edit(
    "instructions if isinstance(instructions, str) else None", "instructions"
)
handshake.bug("a server that has no name is not called").edit('str(info.get(name) or "unknown")', "info.get(name)")
handshake.bug("a server that names a version of before the first is not called").edit(
    '"2024-10-07": "2024-11-05", ', ""
)

resuming = Room("hai_flow/steps/mcp/resuming.py", "tests/foreign/test_resuming.py")
resuming.bug("a stream that brought something is asked for ever more seldom").edit("not has_said and now", "now")
resuming.bug("a stream that lasted counts as one that brought nothing").edit(
    "not has_said and now - self._opened < PAUSE_SECONDS_MAX", "not has_said"
)
resuming.bug("a stream is asked for at the same pace for ever").edit("2.0 ** min(max(self._barren - 1, 0), 9)", "1.0")
resuming.bug("a stream is asked for once in hours").edit(
    "self._barren - 1, 0), 9), PAUSE_SECONDS_MAX)", "self._barren - 1, 0), 9), 99999.0)"
)

_DURATIONS: Final = "tests/definition/test_durations.py"
durations = Room("hai_flow/definition/names/durations.py", _DURATIONS)
durations.bug("units stand in any order").edit("if ordered and _SHORT", "if False and _SHORT")
durations.bug("a guess takes a unit that stands twice").edit('        if unit in parts:\n            return ""\n', "")
durations.bug("a guess keeps the order of the units").edit(
    "for unit in reversed(_UNITS) if unit in parts)", "for unit in parts)"
)
fields = Room("hai_flow/definition/fields.py", _DURATIONS)
fields.bug("a published duration without an order can't be read").edit(
    "unordered = milliseconds(text, shortest=shortest, ordered=False)",
    "unordered = milliseconds(text, shortest=shortest)",
)
computed = Room("hai_flow/engine/pendings/policies.py", _DURATIONS)
computed.bug("a computed deadline needs an order of its units").edit(
    "duration_ms(text, ordered=False)", "duration_ms(text)"
)

tasks = Room("hai_flow/steps/a2a/peer.py", "tests/steps/test_a2a_peer.py")
tasks.bug("a task whose state is spelled otherwise never ends").edit("_SPELLINGS.get(word, word)", "word")
tasks.bug("a message is a task that has not ended").edit(
    '{"state": "completed"}, "artifacts"', '{"state": "working"}, "artifacts"'
)
