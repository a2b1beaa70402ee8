"""The records of the Python client, from the shapes of REST's answers."""

from __future__ import annotations

import ast
import inspect
import keyword
import re
import textwrap
from typing import Final, Literal, get_args, get_origin

from clients.docstrings import retold
from hai_flow.api.requests import schemas
from hai_flow.api.requests.shape_models import ShapeField, list_fields

RECORDS: Final = {
    "Version": "Version",
    "RunParent": "RunParent",
    "SlotHolder": "SlotHolder",
    "QueuedFor": "QueuedFor",
    "Pause": "Pause",
    "Holder": "Holder",
    "RunCounts": "RunCounts",
    "ControlledRun": "Run",
    "Pending": "Pending",
    "WhyNot": "WhyNot",
    "InboxItem": "InboxItem",
    "InboxCounts": "InboxCounts",
    "Decided": "Decided",
    "Delegation": "Delegation",
    "Delegations": "Delegations",
    "Absence": "Absence",
    "DecidedPending": "Decision",
    "PendingArguments": "PendingArguments",
    "Approval": "Approval",
    "ConsumedApproval": "ConsumedApproval",
    "CheckedAnswer": "CheckedAnswer",
    "BulkOutcome": "BulkOutcome",
    "BulkOutcomes": "BulkOutcomes",
    "Edit": "Edit",
    "Finding": "Finding",
    "Validation": "Validation",
    "Formatted": "Formatted",
    "File": "File",
    "WorkflowSummary": "WorkflowVersion",
    "PublishedWorkflow": "Published",
    "Step": "Step",
    "Workflow": "Workflow",
    "ChangedPart": "ChangedPart",
    "Change": "Change",
    "Diff": "Diff",
    "Obstacle": "Obstacle",
    "MigratedRun": "MigratedRun",
    "Migration": "Migration",
    "Message": "Message",
    "Turn": "Turn",
    "StepView": "StepState",
    "StepAttempt": "StepAttempt",
    "StepWait": "StepWait",
    "RunStep": "RunStep",
    "Timer": "Timer",
    "Origin": "Origin",
    "MarkObstacle": "MarkObstacle",
    "Mark": "Mark",
    "Marks": "Marks",
    "BulkRun": "BulkRun",
    "BulkReport": "BulkReport",
    "AMoment": "AMoment",
    "StepChange": "StepChange",
    "Asked": "Asked",
    "PendingChange": "PendingChange",
    "Difference": "Difference",
    "Left": "Left",
    "Rehearsal": "Rehearsal",
    "ModelUsage": "ModelUsage",
    "Snapshot": "Snapshot",
    "Thread": "Thread",
    "ThreadWithRuns": "ThreadWithRuns",
    "QueuedMessage": "QueuedMessage",
    "QueuedMessages": "QueuedMessages",
    "Call": "Call",
    "ThreadMessage": "ThreadMessage",
    "Feedback": "Feedback",
    "AuditRecord": "AuditRecord",
    "AuditLink": "AuditLink",
    "AuditAnchor": "AuditAnchor",
    "Worker": "Worker",
    "Workers": "Workers",
    "Key": "Key",
    "NewKey": "NewKey",
    "Limits": "Limits",
    "TenantCell": "TenantCell",
    "Tenant": "Tenant",
    "Token": "Token",
    "Ticket": "Ticket",
    "Session": "Session",
    "Signal": "Signal",
    "TriggerProblem": "TriggerProblem",
    "StartedRun": "TriggeredRun",
    "ReceivedEvent": "SentEvent",
    "ScheduleClause": "ScheduleClause",
    "Schedule": "Schedule",
    "Fire": "Fire",
    "Fires": "Fires",
    "CursorReset": "CursorReset",
}
"""The name of each shape in the client. Lists are a `Page` there, which is written by hand."""

_BASES: Final = {
    "Decision": "Pending",
    "ConsumedApproval": "Approval",
    "Published": "WorkflowVersion",
    "Workflow": "WorkflowVersion",
    "ThreadWithRuns": "Thread",
    "NewKey": "Key",
}
"""Which record is also another one. The others repeat the fields of their shape's base."""

_ABSENT: Final = {
    "Decided": {"rule": "None"},
    "Run": {
        "summary": "None",
        "workflow_title": "None",
        "frozen": "False",
        "held_by": "None",
        "branch_of": "None",
        "parent": "None",
        "unreadable": "None",
        "queue": "'default'",
        "queued_for": "None",
        "paused": "None",
        "in_flight": "0",
    },
    "Pending": {
        "canary": "None",
        "effect": "None",
        "workflow": "None",
        "workflow_title": "None",
        "started_by": "None",
        "needed": "None",
        "edits": "None",
        "decided_by": "None",
        "on_behalf_of": "None",
        "decided_at": "None",
        "value": "None",
        "reason": "None",
        "nobody_decides": "None",
    },
    "InboxItem": {"effect": "None", "nobody_decides": "None"},
    "RunStep": {"passages": "None"},
    "Finding": {"end_line": "0", "end_column": "0", "fix": "[]", "params": "[]"},
    "Delegation": {"ends_with": "None"},
    "Change": {"was": "None"},
    "StepState": {"output": "None", "error": "None"},
    "Origin": {"path": "None"},
    "Snapshot": {"trigger": "''", "origin": "None", "usage": "[]"},
    "Schedule": {"explained": "[]"},
    "RunCounts": {"missing": "[]"},
    "InboxCounts": {"missing": "[]"},
    "Tenant": {"cells": "[]"},
}
"""Fields that an older server does not send, or that only some answers have, with their defaults."""

_ABOUT: Final = {
    "Run": """A run. `seq` is how many events it has; `output` and `error` are None until it has ended. `in_flight`:
    how many attempts were asked to cancel (answer to `stop`). `branch_of`: the run at one of whose turns it left its
    thread. `parent`: the run whose step waits for this one. `unreadable`: why no worker goes on with it, where those
    that tried could not read it. `queue`: only workers that serve it perform the run. `get` alone tells what slot a
    queued run waits for (`queued_for`), and who `paused` a paused one.""",
    "Pending": """A question to people. `status`: open, or its outcome.

    `schema` is that of the form, or of a tool's result; `options` are the decisions there are. An answer that is given
    with this record is bound to its `digest`: to the content that it shows. `get` tells more than `list`: `needed` (the
    deciders, their votes, the missing ones), `edits`, and the decision. `workflow` and `started_by` are the run's.""",
    "Decision": """A pending after an answer. `already`: the same answer had been given before. `status` is still open
    where more people must decide.""",
    "ThreadWithRuns": "`runs`: the newest ones, newest first. `runs.list(thread_id=...)` gives all.",
    "AuditLink": """A record at its place in the chain, with all that its `hash` is made of. Digests are in hex, times
    in microseconds since 1970. As a line of JSON each, `hai-flow audit verify --file` checks them.""",
    "NewKey": "`key` is the secret text that `Client(key=...)` takes. It is shown this once.",
    "Snapshot": """A run after its first `seq` events. `state` are its variables, `steps` by path. `trigger`: how it was
    started ("" where an older server does not say); `origin`: the run that started it, if one did; `usage`: what each
    model took, also for the runs below it.""",
    "File": """A file of yours. `id`: the name by which input, answers and messages refer to it. `part`: the file as a
    part of a message.""",
}
"""Docstrings that are others than the server's."""

_BODIES: Final = {
    "Version": """
def __str__(self) -> str:
    return version_text(self.version, self.sha256, dev=self.dev)
""",
    "Run": """
@property
def ended(self) -> bool:
    return self.status in ENDED
""",
    "WorkflowVersion": '''
@property
def reference(self) -> str:
    """How it is named: `refund@2`, or `refund@2+3f2a9c11` for a dev copy."""
    return reference(self.name, self.version, self.sha256, dev=self.dev)
''',
}

_HEAD: Final = '''\
"""The server's answers, as records. Fields that a newer server adds are left out, not refused.

Values that are one of a few words are `str`: a newer server may know more of them than this client.
"""

@@NOTE@@
from __future__ import annotations

from datetime import datetime
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from hai_flow_client.events import Error
from hai_flow_client.values import Json
from hai_flow_client.versions import reference, version_text

Item = TypeVar("Item")

Moment: TypeAlias = int | str | datetime
"""A moment of a run: a seq, a time, or `step:` and a path, which means the end of that step."""

ENDED: Final = frozenset({"finished", "failed", "stopped"})
STANDING: Final = ENDED | {"waiting", "paused", "needs_attention"}
"""Nothing happens in a run of these statuses until a person, an event or a timer moves it on."""


'''
_TAIL: Final = '''

class Page(msgspec.Struct, Generic[Item], frozen=True):
    """One page of a list. `missing`: cells of the tenant that are away; their items are not in it."""

    items: list[Item]
    next_cursor: str | None = None  # also of a list that has no pages
    missing: list[str] = []
    cursor_reset: CursorReset | None = None
'''
_WORDS: Final = {"Any": "Json", "Time": "datetime"}


def models(note: str) -> str:
    """The text of `hai_flow_client/models.py`."""
    written = [_record(getattr(schemas, shape), name) for shape, name in RECORDS.items()]
    return _HEAD.replace("@@NOTE@@", note) + "\n\n".join(written) + _TAIL


def _record(shape: type, name: str) -> str:
    base = _BASES.get(name)
    inherited = {field.name for field in list_fields(_shape_of(base))} if base else set()
    said = {field.name: _spell_annotation(field) for field in list_fields(shape) if field.name not in inherited}
    closed = {field: listed for field, text in said.items() if (listed := _closed(text))}
    about = _ABOUT.get(name, inspect.cleandoc(shape.__doc__ or "")).replace("null", "None")
    about = retold(textwrap.dedent("    " + about), closed)
    lines = [_field(name, field, text) for field, text in said.items()]
    body = "\n".join([*([f'"""{about}"""', ""] if about else []), *lines, *_BODIES.get(name, "").splitlines()])
    return f"class {name}({base or 'msgspec.Struct'}, frozen=True, kw_only=True):\n{textwrap.indent(body, '    ')}\n"


def _closed(text: str) -> list[str]:
    """The words of the field's list, if it is one list of words."""
    lists = re.findall(r"Literal(\[[^\]]*\])", text)
    words = list(ast.literal_eval(lists[0])) if len(lists) == 1 else []
    return words if len(words) > 1 and all(isinstance(each, str) for each in words) else []


def _shape_of(name: str) -> type:
    return next(getattr(schemas, shape) for shape, record in RECORDS.items() if record == name)


def _spell_annotation(field: ShapeField) -> str:
    """The annotation, in which words for a closed list stand for its members."""
    text = re.sub(r"^Annotated\[(.*), Field\(.*\)\]$", r"\1", ast.unparse(ast.parse(field.annotation)))
    for name, value in vars(schemas).items():
        if get_origin(value) is Literal and value is not schemas.Clause:
            text = re.sub(rf"\b{name}\b", f"Literal{list(get_args(value))}", text)
    return text


def _field(record: str, name: str, said: str) -> str:
    """The field as a line of the record."""
    text = re.sub(r"Literal\['up', .*?\]", "str | int", said)
    text = re.sub(r"Literal\[[^\]]*\]|\bClause\b", "str", text).replace("str | str", "str")
    text = re.sub(r"\b[A-Z]\w+\b", lambda found: _WORDS.get(found[0], RECORDS.get(found[0], found[0])), text)
    default = _ABSENT.get(record, {}).get(name)
    if default == "None" and "None" not in text and text != "Json":
        text += " | None"
    if keyword.iskeyword(name):
        return f'{name}_: {text} = msgspec.field(name="{name}")'
    return f"{name}: {text}" + (f" = {default}" if default is not None else "")
