"""Mutants of what rule books ask for: chains of calls, screening, bound tokens, signed answers, looks of `doctor`."""

from __future__ import annotations

from tests.mutants.mutant import Room

chains = Room("hai_flow/engine/steps/agents.py", "tests/engine/test_agents.py")
chains.bug("each call is judged alone").edit("effect = _judge_chain(state, calls) or effect\n", "pass\n")
chains.bug("a read asks beside a write").edit('if effect != "read":', "if effect is not None:")
chains.bug("the calls around an agent do not count").edit("calls = paths.calls_around(calls)\n", 'calls = ""\n')
gates = Room("hai_flow/definition/verbs/models.py", "tests/engine/test_agents.py")
gates.bug("what can be taken back has no gate").edit('in (None, "read")):', "in (None, *ASKS_NOBODY)):")

screen = Room("hai_flow/primitives/prompt_injection.py", "tests/test_prompt_injection.py")
screen.bug("the marks of a speaker stand").edit("_ROLES.sub(_break, reveal(text))", "reveal(text)")
screen.bug("hidden characters stay hidden").edit("_ROLES.sub(_break, reveal(text))", "_ROLES.sub(_break, text)")
screen.bug("capitals get through").edit("low = text.lower()", "low = text")
results = Room("hai_flow/steps/agent.py", "tests/models/test_screened_results.py")
results.bug("results are not screened").edit("(id, mark_result(text))", "(id, text)")
turns = Room("hai_flow/steps/llm.py", "tests/runtime/test_agents.py")
turns.bug("an agent goes on without a summary where its model calls a tool in place of it").edit(
    "if answer.calls:\n            again", "if False:\n            again"
)
turns.bug("results are not screened before they are sent").edit(
    "talk = await run_unless_short(results, mark_results, talk)", "pass"
)
lists = Room("hai_flow/steps/mcp/connections.py", "tests/steps/test_mcp_connections.py")
lists.bug("descriptions are not screened").edit("elif self.is_screened and", "elif not self.is_screened and")
servers = Room("hai_flow/steps/mcp/runner.py", "tests/steps/test_mcp_connections.py")
servers.bug("a trusted server is screened").edit("is_screened=not reached.trusted", "is_screened=True")

tokens = Room("hai_flow/api/auth/issuers/jwt.py", "tests/api/test_tokens_of_issuers.py")
tokens.bug("a bound token is a bearer token").edit('if "cnf" not in claims and not required', "if not required")
tokens.bug("an unbound token opens /mcp").edit('if "cnf" not in claims and not required', 'if "cnf" not in claims')
tokens.bug("another binding is passed over").edit(
    "dict(bound) == {METHOD: thumbprint}", "bound.get(METHOD) == thumbprint"
)
keys = Room("hai_flow/api/auth/authenticate.py", "tests/api/test_tokens_of_issuers.py")
keys.bug("a key opens /mcp beside certificates").edit(
    "if audience is not None and header is not None and", 'if header == "" and'
)

answers = Room("hai_flow/api/mcp/answer_signature.py", "tests/api/test_receipts.py")
answers.bug("a nonce comes twice").edit("uuid4().hex", '"once"')
answers.bug("an answer passes for a receipt").edit("keys.sign(payload, ANSWER_TYPE)", "keys.sign(payload)")

looks = Room("hai_flow/runtime/ops/examination.py", "tests/runtime/test_doctor.py")
looks.bug("a group reads the keys unseen").edit('("receipt_keys", keys, 0o077)', '("receipt_keys", keys, 0o007)')
looks.bug("this machine is plain").edit("if not is_loopback(host)", "if host")
judging = Room("hai_flow/runtime/ops/doctor.py", "tests/runtime/test_doctor.py")
judging.bug("a whole network is a host").edit(".num_addresses > WIDEST", ".num_addresses < 0")

late = Room("hai_flow/runtime/people/standing_rules.py", "tests/runtime/test_standing_rules.py")
late.bug("a cut connection loses the look").edit(
    "if not passing(error):\n                    raise\n                log.w", "raise\n                log.w"
)

_LENT = "tests/runtime/test_lent_rights.py"
children = Room("hai_flow/engine/runs/children.py", _LENT)
children.bug("who approves a child run is its requester").edit(
    '"requester": state.requester,',
    '"requester": next((vote.by for each in state.pendings.values() for vote in each.votes), state.requester),',
)
lending = Room("hai_flow/steps/secrets.py", _LENT)
lending.bug("an approved call has the secrets of other workflows").edit(
    "source.workflows is not None and use.workflow not in", "False and use.workflow not in"
)
