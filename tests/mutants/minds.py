"""Mutants of votes, personal values, hosts, functions and signatures that are taken for another's."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Room

_MINDS: Final = "tests/attacks/test_one_mind.py"
_PARTS: Final = "tests/definition/test_pii_flow.py"
_HOSTS: Final = "tests/store/test_several_hosts.py"
_ASKING: Final = "tests/foreign/test_mcp_questions.py"
_SIGNED: Final = "tests/wire/test_webhook_signatures.py"

tokens = Room("hai_flow/api/auth/frontend_tokens.py", f"{_MINDS}::test_two_minds_fill_a_quorum_of_two")
tokens.bug("all people whom a backend relays have one vote").edit(
    "holder != id and not holder.startswith(SERVICE)", "holder != id"
)
personal = Room("hai_flow/definition/personal/pii_flow.py", _PARTS)
personal.bug("a version shows the outputs that another one hides").edit(
    '("input", "state", "output", "message", "key"):\n        if not covers',
    '("input", "state"):\n        if not covers',
)
personal.bug("a version shows of a step what another one hides").edit(
    "for each in OfStep.__struct_fields__):", 'for each in ("form", "answer", "touches")):'
)
personal.bug("a step with another name is compared with one of its old name").edit(
    "after.of(rename_path(path, paths))", "after.of(path)"
)
hosts = Room("hai_flow/store/postgres/several_hosts.py", _HOSTS)
hosts.bug("one silent host takes the time of all").edit(
    "            connection = await connect(host, seconds / len(hosts))",
    "            connection = await connect(host, seconds)",
).by(f"{_HOSTS}::test_each_host_has_an_equal_part_of_the_time_whatever_the_others_say")
older = Room("hai_flow/steps/mcp/connections.py", _ASKING)
older.bug("a function is called that an older protocol describes otherwise").edit(
    "if older.tools.get(function) != session.tools[function]:", "if False:"
)
older.bug("a function that asks is called by a protocol that the deployment does not take").edit(
    "self.name, self._open, version_min=self._version_min, is_screened", "self.name, self._open, is_screened"
)
signatures = Room("hai_flow/wire/webhook_signatures.py", _SIGNED)
signatures.bug("an event is known by an id that was not signed").edit(
    'return call.headers.get(f"{_standard_prefix(call, header)}id")',
    'return call.headers.get("svix-id", call.headers.get("webhook-id"))',
)
signatures.bug("the header that a workflow names does not say which ones are signed").edit(
    "name = header.lower() or next(", "name = next("
)
