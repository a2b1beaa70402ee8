"""What a credential that is for some threads or workflows may do: the table of the routes that a right of such a
credential opens.

A route stands here with the way in which it asks for the credential's threads and workflows, or as refused. A route
that does not stand here is refused (403 `credential_limited`), so a new one opens nothing until somebody has looked."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VIEWER: Final = "its own"
"""It loads runs, questions and threads through `Access`, which asks `Principal.is_for`, or lists them by its viewer."""
HARMLESS: Final = "yes"
"""It shows nothing of any run or thread, or only who calls."""
REFUSED: Final = "refused"
"""It goes by the person, and would show or do what belongs to other threads."""

_DIALECTS: Final = (
    "POST /ag-ui", "POST /api/aui/input", "WS /api/aui/ws/{stream_type}",
    "GET /api/v1/agent/runs/{thread_id:path}/events", "GET /api/v1/agent/runs/{thread_id:path}/history", "POST /awp",
    "POST /cpk", "POST /cpk/agent/{agent}/connect", "POST /cpk/agent/{agent}/run",
    "POST /cpk/agent/{agent}/stop/{thread_id:path}", "POST /mcp", "POST /process", "POST /send-message",
    "POST /workflows/{name}/ag-ui", "POST /workflows/{name}/awp", "POST /workflows/{name}/process",
    "POST /workflows/{name}/send-message", "POST /a2a", "POST /a2a/{operation:path}", "GET /a2a/{operation:path}",
    "DELETE /a2a/{operation:path}", "DELETE /workflows/{name}/a2a/{operation:path}",
    "POST /workflows/{name}/a2a", "POST /workflows/{name}/a2a/{operation:path}",
    "GET /workflows/{name}/a2a/{operation:path}", "GET /workflows/{name}/.well-known/agent-card.json",
)  # fmt: skip
_REST: Final = (
    "POST /v1/approvals", "GET /v1/approvals/{run_id}", "POST /v1/approvals/{run_id}/consume",
    "GET /v1/feed", "GET /v1/files/{file}", "GET /v1/inbox", "POST /v1/inbox/decide", "GET /v1/inbox/events",
    "GET /v1/inbox/{pending_id}", "POST /v1/inbox/{pending_id}/claim", "POST /v1/inbox/{pending_id}/release",
    "GET /v1/pendings", "GET /v1/pendings/{pending_id}", "GET /v1/pendings/{pending_id}/arguments",
    "POST /v1/pendings/{pending_id}/check", "POST /v1/pendings/{pending_id}/decide",
    "POST /v1/pendings/{pending_id}/opened", "GET /v1/pendings/{pending_id}/openings",
    "GET /v1/pendings/{pending_id}/history", "GET /v1/pendings/{pending_id}/receipt", "GET /v1/runs", "POST /v1/runs",
    "GET /v1/runs/counts", "GET /v1/runs/{run_id}", "GET /v1/runs/{run_id}/diff", "GET /v1/runs/{run_id}/events",
    "GET /v1/runs/{run_id}/marks", "GET /v1/runs/{run_id}/replay", "GET /v1/runs/{run_id}/snapshot",
    "GET /v1/runs/{run_id}/steps", "GET /v1/threads", "GET /v1/threads/{thread_id}",
    "GET /v1/threads/{thread_id}/feedback", "DELETE /v1/threads/{thread_id}/feedback/{kind}/{subject_id:path}",
    "GET /v1/threads/{thread_id}/feedback/{kind}/{subject_id:path}",
    "PUT /v1/threads/{thread_id}/feedback/{kind}/{subject_id:path}", "GET /v1/threads/{thread_id}/messages",
    "GET /v1/threads/{thread_id}/queue", "DELETE /v1/threads/{thread_id}/queue/{run_id}",
)  # fmt: skip
_HARMLESS: Final = (
    "GET /ag-ui/capabilities", "GET /cpk/info", "DELETE /v1/session", "GET /v1/session", "POST /v1/tickets",
    "GET /workflows/{name}/ag-ui/capabilities",
)  # fmt: skip
_REFUSED: Final = (
    "POST /v1/files", "GET /v1/freezes", "GET /v1/inbox/counts", "GET /v1/inbox/decided", "GET /v1/inbox/delegations",
    "GET /v1/absences", "POST /v1/absences", "DELETE /v1/absences/{absence_id}",
    "POST /v1/inbox/delegations", "DELETE /v1/inbox/delegations/{delegation_id}",
    "GET /v1/inbox/accounts", "POST /v1/inbox/accounts", "DELETE /v1/inbox/accounts/{account_id}",
    "GET /v1/rules", "POST /v1/rules", "GET /v1/rules/{rule_id}", "POST /v1/rules/{rule_id}/revoke",
    "GET /v1/oversight/me",
)  # fmt: skip

ROUTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys((*_DIALECTS, *_REST), VIEWER),
        **dict.fromkeys(_HARMLESS, HARMLESS),
        **dict.fromkeys(_REFUSED, REFUSED),
    }
)


def opens(method: str, path: str) -> bool:
    """Whether a credential for some threads or workflows may call the route; what it shows is asked there."""
    return ROUTES.get(f"{method} {path}", REFUSED) != REFUSED
