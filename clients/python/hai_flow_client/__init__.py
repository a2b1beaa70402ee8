"""The Python client of a HAI Flow server: REST, and events as they happen. See docs/client.md.

    with Client() as flow:
        run = flow.runs.start("refund", {"order": 1})
        for event in flow.runs.follow(run):
            ...

The names that are listed here are public. `Client` waits in a thread, `AsyncClient` in an event loop. Both perform the
requests that `operations.py` describes, one after the other as `scripts.py` decides.
"""

from hai_flow_client import events
from hai_flow_client.awaiting import AsyncClient, AsyncItems
from hai_flow_client.blocking import Client, Items
from hai_flow_client.errors import (
    Conflict,
    Forbidden,
    HaiFlowError,
    Invalid,
    NotFound,
    Problem,
    RunFailed,
    Unavailable,
)
from hai_flow_client.events import AnyEvent, UnknownEvent
from hai_flow_client.inbox import InboxNews
from hai_flow_client.link import Credential, Patience
from hai_flow_client.models import (
    BulkOutcome,
    BulkOutcomes,
    Decided,
    Decision,
    Delegation,
    Diff,
    Feedback,
    File,
    Finding,
    InboxCounts,
    InboxItem,
    Key,
    Migration,
    NewKey,
    Pending,
    Published,
    Run,
    Schedule,
    SentEvent,
    Session,
    Signal,
    Snapshot,
    Thread,
    ThreadMessage,
    ThreadWithRuns,
    Ticket,
    Token,
    Validation,
    Version,
    Workflow,
    WorkflowVersion,
)
from hai_flow_client.transactions import send_in, start_in

__all__ = [
    "AnyEvent",
    "AsyncClient",
    "AsyncItems",
    "BulkOutcome",
    "BulkOutcomes",
    "Client",
    "Conflict",
    "Credential",
    "Decided",
    "Decision",
    "Delegation",
    "Diff",
    "Feedback",
    "File",
    "Finding",
    "Forbidden",
    "HaiFlowError",
    "InboxCounts",
    "InboxItem",
    "InboxNews",
    "Invalid",
    "Items",
    "Key",
    "Migration",
    "NewKey",
    "NotFound",
    "Patience",
    "Pending",
    "Problem",
    "Published",
    "Run",
    "RunFailed",
    "Schedule",
    "SentEvent",
    "Session",
    "Signal",
    "Snapshot",
    "Thread",
    "ThreadMessage",
    "ThreadWithRuns",
    "Ticket",
    "Token",
    "Unavailable",
    "UnknownEvent",
    "Validation",
    "Version",
    "Workflow",
    "WorkflowVersion",
    "events",
    "send_in",
    "start_in",
]
