"""The client's records have the fields that OpenAPI describes: none is missing, none made up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from hai_flow.api import shapes
from hai_flow.api.problems import SCHEMA
from hai_flow.client import models
from hai_flow.client.errors import Problem

SAME: dict[type[msgspec.Struct], type[BaseModel]] = {
    models.Version: shapes.Version,
    models.Run: shapes.ControlledRun,
    models.Pending: shapes.Pending,
    models.Decision: shapes.DecidedPending,
    models.CheckedAnswer: shapes.CheckedAnswer,
    models.RunStep: shapes.RunStep,
    models.StepAttempt: shapes.StepAttempt,
    models.StepWait: shapes.StepWait,
    models.Edit: shapes.Edit,
    models.Finding: shapes.Finding,
    models.Validation: shapes.Validation,
    models.WorkflowVersion: shapes.WorkflowSummary,
    models.Published: shapes.PublishedWorkflow,
    models.Step: shapes.Step,
    models.Workflow: shapes.Workflow,
    models.ChangedPart: shapes.ChangedPart,
    models.Change: shapes.Change,
    models.Diff: shapes.Diff,
    models.Obstacle: shapes.Obstacle,
    models.MigratedRun: shapes.MigratedRun,
    models.Migration: shapes.Migration,
    models.Message: shapes.Message,
    models.Turn: shapes.Turn,
    models.StepState: shapes.StepView,
    models.Timer: shapes.Timer,
    models.Origin: shapes.Origin,
    models.Worker: shapes.Worker,
    models.Tenant: shapes.Tenant,
    models.Limits: shapes.Limits,
    models.Workers: shapes.Workers,
    models.Snapshot: shapes.Snapshot,
    models.MarkObstacle: shapes.MarkObstacle,
    models.Mark: shapes.Mark,
    models.Marks: shapes.Marks,
    models.AMoment: shapes.AMoment,
    models.BulkRun: shapes.BulkRun,
    models.BulkReport: shapes.BulkReport,
    models.StepChange: shapes.StepChange,
    models.Asked: shapes.Asked,
    models.PendingChange: shapes.PendingChange,
    models.Difference: shapes.Difference,
    models.Left: shapes.Left,
    models.Rehearsal: shapes.Rehearsal,
    models.Thread: shapes.Thread,
    models.ThreadWithRuns: shapes.ThreadWithRuns,
    models.Formatted: shapes.Formatted,
    models.Fire: shapes.Fire,
    models.Fires: shapes.Fires,
    models.RunCounts: shapes.RunCounts,
    models.RunParent: shapes.RunParent,
    models.PendingArguments: shapes.PendingArguments,
    models.QueuedMessage: shapes.QueuedMessage,
    models.QueuedMessages: shapes.QueuedMessages,
    models.Call: shapes.Call,
    models.ThreadMessage: shapes.ThreadMessage,
    models.Feedback: shapes.Feedback,
    models.WhyNot: shapes.WhyNot,
    models.InboxItem: shapes.InboxItem,
    models.InboxCounts: shapes.InboxCounts,
    models.Decided: shapes.Decided,
    models.Delegation: shapes.Delegation,
    models.Delegations: shapes.Delegations,
    models.BulkOutcome: shapes.BulkOutcome,
    models.BulkOutcomes: shapes.BulkOutcomes,
    models.AuditRecord: shapes.AuditRecord,
    models.AuditLink: shapes.AuditLink,
    models.AuditAnchor: shapes.AuditAnchor,
    models.Key: shapes.Key,
    models.NewKey: shapes.NewKey,
    models.Token: shapes.Token,
    models.Ticket: shapes.Ticket,
    models.Session: shapes.Session,
    models.File: shapes.File,
    models.Signal: shapes.Signal,
    models.TriggerProblem: shapes.TriggerProblem,
    models.TriggeredRun: shapes.StartedRun,
    models.SentEvent: shapes.ReceivedEvent,
    models.ScheduleClause: shapes.ScheduleClause,
    models.Schedule: shapes.Schedule,
    models.CursorReset: shapes.CursorReset,
    models.Page: shapes.EventsPage,
}


@pytest.mark.parametrize("record", SAME, ids=lambda record: record.__name__)
def test_a_record_has_the_fields_of_its_shape(record: type[msgspec.Struct]) -> None:
    theirs = {field.alias or name for name, field in SAME[record].model_fields.items()}
    assert {each.encode_name for each in msgspec.structs.fields(record)} == theirs


def test_every_record_has_a_shape() -> None:
    records = {each for each in vars(models).values() if isinstance(each, type) and each.__module__ == models.__name__}
    assert records == set(SAME)


def test_a_problem_has_the_fields_of_its_schema() -> None:
    assert {each.name for each in msgspec.structs.fields(Problem)} == set(SCHEMA["properties"])


def test_a_field_of_a_newer_server_is_left_out() -> None:
    given: dict[str, Any] = {"path": "a", "verb": "call", "colour": "red"}
    assert msgspec.convert(given, models.Step) == models.Step("a", "call")
