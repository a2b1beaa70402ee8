"""A hook for Claude Code: people approve a tool before it is used (`PreToolUse`, docs/approvals.md).

    python -m hai_flow_client.adapters.claude_code --from role:lead --edit

It reads the call on standard input, and answers allow, with the arguments as they were approved, or deny. Whatever goes
wrong is a deny: exit code 2, which blocks the call.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from hai_flow_client.adapters import Verdict, ask
from hai_flow_client.blocking import Client


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one call. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Ask people before Claude Code uses a tool.")
    parser.add_argument("--from", dest="deciders", action="append", help="who decides: role:lead, user:ann")
    parser.add_argument("--quorum", type=int, default=1)
    parser.add_argument("--edit", action="store_true", help="people may change the tool's input")
    parser.add_argument("--workflow", help="another workflow that asks, in place of --from")
    parser.add_argument("--expires-in", default="1h")
    chosen = parser.parse_args(arguments)
    try:
        call: dict[str, Any] = json.loads(sys.stdin.read())
        action, given = str(call["tool_name"]), dict(call["tool_input"])
        policy = {"from": chosen.deciders, "quorum": chosen.quorum, "edit": chosen.edit} if chosen.deciders else None
        id = call.get("tool_use_id")
        key = None if id is None else f"claude-code:{call.get('session_id', '')}:{id}"
        with Client() as flow:
            verdict = ask(flow, action, given, policy, workflow=chosen.workflow, expires_in=chosen.expires_in, key=key)
    except Exception as error:
        print(f"nobody could be asked: {error}", file=sys.stderr)
        return 2
    print(json.dumps(answer(verdict)))
    return 0


def answer(verdict: Verdict) -> dict[str, Any]:
    """The answer of the hook."""
    decision: dict[str, Any] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow" if verdict.approved else "deny",
        "permissionDecisionReason": verdict.reason or ("approved" if verdict.approved else "not approved"),
    }
    if verdict.approved:
        decision["updatedInput"] = verdict.arguments
    return {"hookSpecificOutput": decision}


if __name__ == "__main__":
    sys.exit(main())
