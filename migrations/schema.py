"""The tables as they are after all migrations: the reference that a test compares the migrated schema with.

The invariants that rows must keep are constraints here. Every table of a run is keyed by the run's id alone and every
row carries its tenant (docs/design/store.md#tenants). Statements are written in SQL in their own modules; this one is
not used by them.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, TIMESTAMP, UUID

metadata: Final = sa.MetaData()

_NOW: Final = sa.text("now()")


def _make_uuid_column(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, UUID(as_uuid=True), nullable=null)


def _text(name: str, *, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=null, server_default=default)


def _bytes(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, BYTEA, nullable=null)


def _int(name: str, *, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False, server_default=default and sa.text(default))


def _make_bigint_column(name: str, *, null: bool = False, default: str | None = None) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=null, server_default=default and sa.text(default))


def _time(name: str, *, null: bool = False, now: bool = False) -> sa.Column[Any]:
    return sa.Column(name, TIMESTAMP(timezone=True), nullable=null, server_default=_NOW if now else None)


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"{table}_pkey")


sa.Sequence("runs_place", metadata=metadata)

runs: Final = sa.Table(
    "runs",
    metadata,
    _make_uuid_column("id"),
    _make_uuid_column("tenant"),
    _bytes("workflow"),  # the workflow's sha256
    _text("workflow_name"),
    _int("workflow_version"),
    sa.Column("dev", sa.Boolean, nullable=False, server_default=sa.text("false")),
    _text("thread_id"),
    _make_uuid_column("parent_id", null=True),
    _text("parent_path", null=True),
    _make_uuid_column("branch_of", null=True),  # the run at one of whose turns the thread was branched
    _make_uuid_column(
        "follows", null=True
    ),  # of a branch: the run that comes before it in the thread; null: it is the first
    _make_bigint_column(
        "copied", default="0"
    ),  # of a fork: so many of its events are those of the run it was forked from
    # In the order of their birth, whatever clocks say: taken behind the thread's slot. 0: of before there were places.
    _make_bigint_column("place", default="nextval('runs_place'::regclass)"),
    _text("queue", default="default"),
    _text("slot", null=True),  # the last one it took; slots says if it holds it still
    _text("status"),
    _make_bigint_column("seq"),  # events so far
    _make_bigint_column("version"),  # decisions so far: a decision compares it
    _int("fence", default="0"),  # the holder's chunks compare it
    _bytes("head"),  # sha256 chained over all commits
    _make_bigint_column("worker", null=True),  # the worker that holds the claim
    _time("wake_at", null=True),  # when a free run is due
    _int("abi", default="1"),  # of its events: a worker with a lower one passes it over
    _int("given_back", default="0"),  # so often in a row by workers that could not read it
    _text("unreadable", null=True),  # why the last of them could not; null: it was not given back since
    _make_bigint_column("snapshot_seq", default="0"),
    _make_bigint_column("log_bytes", default="0"),
    _text("started_by"),
    _text("instigators", null=True),  # the people behind it beside that one, separated by spaces
    _text("summary", null=True),  # the line by which lists show it, if its workflow has one
    _time("created_at", now=True),
    _time("ended_at", null=True),
    _bytes("input", null=True),
    _bytes("result", null=True),
    _text("held", null=True),  # the freezes that hold steps of it, separated by spaces
    sa.Column("older_seq", sa.BigInteger),  # an earlier release wrote its log up to here, if one did
    _key("runs", "id"),
    sa.CheckConstraint("worker IS NULL OR wake_at IS NULL", name="runs_held_or_due"),
    sa.CheckConstraint("seq >= version", name="runs_seq_counts_more"),
    sa.CheckConstraint("branch_of IS NOT NULL OR (follows IS NULL AND copied = 0)", name="runs_branch"),
    postgresql_with={"fillfactor": 70, "toast_tuple_target": 512},
)
sa.Index(
    "runs_due",
    runs.c.queue,
    runs.c.wake_at,
    postgresql_where=sa.text("worker IS NULL AND wake_at IS NOT NULL"),
)
sa.Index(
    "runs_unreadable",
    runs.c.tenant,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=sa.text("unreadable IS NOT NULL"),
)
sa.Index("runs_held", runs.c.held, runs.c.id, postgresql_where=sa.text("held <> ''"))
sa.Index("runs_held_by_queue", runs.c.worker, runs.c.queue, postgresql_where=sa.text("worker IS NOT NULL"))
sa.Index(
    "runs_by_queue",
    runs.c.tenant,
    runs.c.queue,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=sa.text("queue <> 'default'"),
)
sa.Index("runs_newest", runs.c.tenant, runs.c.created_at, runs.c.id)
sa.Index("runs_by_status", runs.c.tenant, runs.c.status, runs.c.created_at, runs.c.id)
sa.Index("runs_by_workflow", runs.c.tenant, runs.c.workflow_name, runs.c.created_at, runs.c.id)
sa.Index("runs_by_requester", runs.c.tenant, runs.c.started_by, runs.c.created_at, runs.c.id)
sa.Index("runs_by_thread", runs.c.tenant, runs.c.thread_id, runs.c.created_at, runs.c.id)
sa.Index(
    "runs_in_thread",
    runs.c.tenant,
    runs.c.thread_id,
    runs.c.place,
    runs.c.created_at,
    runs.c.id,
    postgresql_where=sa.text("parent_id IS NULL"),
)
sa.Index("runs_by_parent", runs.c.parent_id, postgresql_where=sa.text("parent_id IS NOT NULL"))

log: Final = sa.Table(
    "log",
    metadata,
    _make_uuid_column("run_id"),
    _make_bigint_column("last_seq"),
    _make_bigint_column("first_seq"),
    _make_uuid_column("tenant"),
    _make_bigint_column("version"),
    _time("at"),
    _bytes("events"),
    _bytes(
        "parts", null=True
    ),  # of a row that holds several commits: where each of them begins (`store/runs/log_compaction`)
    _key("log", "run_id", "last_seq"),
    sa.CheckConstraint("first_seq >= 1 AND first_seq <= last_seq", name="log_range"),
)

# Runs that were archived, or removed: the end of the chain, for which the audit vouches, and where the archive is.
retired_runs: Final = sa.Table(
    "retired_runs",
    metadata,
    _make_uuid_column("run_id"),
    _make_uuid_column("tenant"),
    _text("thread_id"),
    _text("workflow_name"),
    _make_bigint_column("seq"),
    _bytes("head"),
    _time("ended_at"),
    _text("place", null=True),  # of the archive, below the archive's address; null: there is none
    _bytes("sha256", null=True),  # of the archive's content
    _time("archived_at", null=True),
    _time("removed_at", null=True),  # since then the run is not there
    _time("cleared_at", null=True),  # and since then none of its rows
    _bytes("opinions", null=True),  # a digest of the opinions that are in the archive (`feedback` is in no log)
    _key("retired_runs", "run_id"),
    sa.CheckConstraint("(place IS NULL) = (sha256 IS NULL)", name="retired_runs_archive"),
)
sa.Index(
    "retired_runs_uncleared",
    retired_runs.c.removed_at,
    postgresql_where=sa.text("removed_at IS NOT NULL AND cleared_at IS NULL"),
)

commands: Final = sa.Table(
    "commands",
    metadata,
    _make_uuid_column("run_id"),
    _text("command_id"),
    _make_uuid_column("tenant"),
    _make_bigint_column("last_seq"),
    _bytes("body_sha"),
    _bytes("outcome"),
    _key("commands", "run_id", "command_id"),
)

pendings: Final = sa.Table(
    "pendings",
    metadata,
    _make_uuid_column("run_id"),
    _text("id"),
    _make_uuid_column("tenant"),
    _text("status"),
    _text("path"),
    _bytes("digest"),
    _time("deadline", null=True),
    _make_bigint_column("opened_seq"),
    _time("opened_at"),
    _bytes("body"),
    _text("kind", null=True),  # null, as words: written by a release that had no inbox; the sweep fills it in
    _text("words", null=True),  # a search finds it by these
    _text("claimed_by", null=True),  # the person that is working on it
    _time("claimed_until", null=True),
    _text("nobody", null=True),  # why nobody can decide it just now, as a sweep has found
    _time("nobody_since", null=True),
    _key("pendings", "run_id", "id"),
)
sa.Index(
    "pendings_open",
    pendings.c.tenant,
    pendings.c.opened_at,
    pendings.c.id,
    postgresql_where=sa.text("status = 'open'"),
)
# The figures of how decisions are made (`store/people/oversight`).
sa.Index(
    "pendings_stranded",
    pendings.c.run_id,
    pendings.c.id,
    postgresql_where=sa.text("status = 'open' AND nobody IS NOT NULL"),
)
sa.Index(
    "pendings_decisions",
    pendings.c.tenant,
    pendings.c.opened_at,
    pendings.c.id,
    postgresql_where=sa.text("kind IN ('approve', 'gate')"),
)

votes: Final = sa.Table(
    "votes",
    metadata,
    _make_uuid_column("run_id"),
    _text("pending_id"),
    _text("principal"),
    _make_uuid_column("tenant"),
    _make_bigint_column("last_seq"),
    _bytes("body"),
    _text("decision", null=True),
    _text("on_behalf_of", null=True),
    _time("at", null=True),  # null: of before there was a list of people's decisions
    _key("votes", "run_id", "pending_id", "principal"),
)
sa.Index(
    "votes_of_each",
    votes.c.tenant,
    votes.c.principal,
    votes.c.at,
    votes.c.pending_id,
    postgresql_where=sa.text("at IS NOT NULL"),
)
sa.Index(
    "votes_for_others",
    votes.c.tenant,
    votes.c.on_behalf_of,
    votes.c.at,
    votes.c.pending_id,
    postgresql_where=sa.text("on_behalf_of IS NOT NULL"),
)

delegations: Final = sa.Table(
    "delegations",
    metadata,
    _make_uuid_column("id"),
    _make_uuid_column("tenant"),
    _text("from_id"),  # whose questions they are
    _text("to_id"),  # the person that may answer them instead
    sa.Column("roles", ARRAY(sa.Text), nullable=False),  # those of `from_id` at the time of the delegation
    sa.Column("groups", ARRAY(sa.Text), nullable=False),
    _time("since"),
    _time("until"),
    _text("note", null=True),
    _time("created_at", now=True),
    _text("key", null=True),  # the API key by which `from_id` made it: it ends with that
    _bytes("session", null=True),  # the digest of the session in which they did: it ends with that, too
    _text("token", null=True),  # the name of the issuer's token by which they did: `until` is not behind its end
    _key("delegations", "id"),
    sa.CheckConstraint("from_id <> to_id", name="delegations_to_another"),
    sa.CheckConstraint("since < until", name="delegations_last"),
)
sa.Index("delegations_to", delegations.c.tenant, delegations.c.to_id, delegations.c.until)
sa.Index("delegations_from", delegations.c.tenant, delegations.c.from_id, delegations.c.until)

absences: Final = sa.Table(
    "absences",
    metadata,
    _make_uuid_column("id"),
    _make_uuid_column("tenant"),
    _text("person"),  # who is away
    _text("delegate", null=True),  # who decides for them; null: nobody
    sa.Column("first_day", sa.Date, nullable=False),
    sa.Column("last_day", sa.Date, nullable=False),
    _text("zone"),  # of the days
    _time("since"),  # when the first day begins there, or the absence was entered
    _time("until"),  # when the last day ends there, or the absence was ended
    sa.Column("roles", ARRAY(sa.Text), nullable=False),  # those of `person` when it was entered
    sa.Column("groups", ARRAY(sa.Text), nullable=False),
    _text("note", null=True),
    _text("entered_by"),
    _time("created_at", now=True),
    _text("stage", default="ahead"),  # of its effect on open questions: ahead, begun or over
    _key("absences", "id"),
    sa.CheckConstraint("person <> delegate", name="absences_of_another"),
    sa.CheckConstraint("since < until", name="absences_last"),
)
sa.Index("absences_delegate", absences.c.tenant, absences.c.delegate, absences.c.until)
sa.Index("absences_person", absences.c.tenant, absences.c.person, absences.c.until)
sa.Index("absences_ahead", absences.c.since, postgresql_where=sa.text("stage = 'ahead'"))
sa.Index("absences_begun", absences.c.until, postgresql_where=sa.text("stage = 'begun'"))

inbox: Final = sa.Table(
    "inbox",
    metadata,
    _make_uuid_column("run_id"),
    _text("pending_id"),
    _text("selector"),  # that it asks: user:ann, role:controller, group:finance or anyone
    _make_uuid_column("tenant"),
    _time("due"),  # the pending's deadline; without one a time behind every other
    _key("inbox", "run_id", "pending_id", "selector"),
)
sa.Index("inbox_in_order", inbox.c.tenant, inbox.c.selector, inbox.c.due, inbox.c.pending_id)

notifications: Final = sa.Table(
    "notifications",
    metadata,
    _text("id"),
    _make_uuid_column("tenant"),
    _make_uuid_column("run_id"),
    _text("pending_id"),
    _text("what"),  # opened, escalated, reminded, reseated or stranded
    sa.Column("notify", ARRAY(sa.Text), nullable=False),  # as the document says it
    _text("channel", null=True),  # null: yet to be divided
    _text("person", null=True),
    _text("whom", default=""),
    _text("status"),
    _int("tries", default="0"),
    _text("error", null=True),
    _time("created_at", now=True),
    _time("due_at", null=True),  # null: it has ended
    _time("ended_at", null=True),
    _key("notifications", "id"),
)
sa.Index("notifications_due", notifications.c.due_at, postgresql_where=sa.text("due_at IS NOT NULL"))
sa.Index("notifications_newest", notifications.c.tenant, notifications.c.created_at, notifications.c.id)
sa.Index("notifications_of_question", notifications.c.run_id, notifications.c.pending_id)
sa.Index("notifications_oldest", notifications.c.created_at)

links: Final = sa.Table(
    "links",
    metadata,
    _bytes("digest"),  # sha256 of the secret part of the address
    _make_uuid_column("tenant"),
    _make_uuid_column("run_id"),
    _text("pending_id"),
    _text("principal"),
    sa.Column("roles", ARRAY(sa.Text), nullable=False),
    sa.Column("groups", ARRAY(sa.Text), nullable=False),
    _time("expires_at"),
    _time("used_at", null=True),
    _key("links", "digest"),
)
sa.Index("links_over", links.c.expires_at)

outbox: Final = sa.Table(
    "outbox",
    metadata,
    _make_uuid_column("run_id"),
    _make_bigint_column("last_seq"),
    _int("n"),
    _make_uuid_column("tenant"),
    _text("kind"),
    _text("target"),
    _bytes("body"),
    _time("due_at", now=True),
    _key("outbox", "run_id", "last_seq", "n"),
)
sa.Index("outbox_due", outbox.c.due_at)

turns: Final = sa.Table(
    "turns",
    metadata,
    _make_uuid_column("run_id"),
    _int("n"),
    _make_uuid_column("tenant"),
    _text("thread_id"),
    _text("wire_run_id", null=True),
    _bytes("body_sha", null=True),
    _make_bigint_column("first_seq"),
    _make_bigint_column("last_seq", null=True),
    _key("turns", "run_id", "n"),
    sa.CheckConstraint("first_seq >= 1 AND first_seq <= last_seq", name="turns_range"),
)
sa.Index(
    "turns_by_wire_run",
    turns.c.tenant,
    turns.c.thread_id,
    turns.c.wire_run_id,
    postgresql_where=sa.text("wire_run_id IS NOT NULL"),
)

messages: Final = sa.Table(
    "messages",
    metadata,
    _make_uuid_column("run_id"),
    _int("n"),
    _make_uuid_column("tenant"),
    _text("thread_id"),
    _text("id"),
    _text("role"),
    _bytes("body"),
    _make_bigint_column("seq"),
    _key("messages", "run_id", "n"),
)
sa.Index("messages_by_id", messages.c.tenant, messages.c.thread_id, messages.c.id)

snapshots: Final = sa.Table(
    "snapshots",
    metadata,
    _make_uuid_column("run_id"),
    _make_bigint_column("seq"),
    _make_uuid_column("tenant"),
    _int("abi"),
    _bytes("state"),
    _key("snapshots", "run_id", "seq"),
)

slots: Final = sa.Table(
    "slots",
    metadata,
    _make_uuid_column("tenant"),
    _text("slot"),
    _make_uuid_column("run_id"),
    _time("taken_at", now=True),
    # Until then the run is to begin with the slot; null: it has. The default: a release that makes no promises.
    sa.Column("promised_until", TIMESTAMP(timezone=True), server_default=sa.text("now() + '00:01:00'::interval")),
    # A run that was stopped for the one that has the promise, and takes its work back if that one does not begin.
    _make_uuid_column("left_by", null=True),
    _key("slots", "tenant", "slot"),
)
sa.Index("slots_by_run", slots.c.run_id)
sa.Index("slots_promised", slots.c.promised_until, postgresql_where=sa.text("promised_until IS NOT NULL"))

slot_waiters: Final = sa.Table(
    "slot_waiters",
    metadata,
    _make_uuid_column("tenant"),
    _text("key"),
    _make_uuid_column("run_id"),
    _int("seats"),  # how many may hold the key at once
    # Not now(): a statement that began after another was answered must get the later time, also in a transaction.
    sa.Column("queued_at", TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("statement_timestamp()")),
    _key("slot_waiters", "tenant", "key", "run_id"),
)
sa.Index("slot_waiters_of_run", slot_waiters.c.run_id)
sa.Index(
    "slot_waiters_in_order", slot_waiters.c.tenant, slot_waiters.c.key, slot_waiters.c.queued_at, slot_waiters.c.run_id
)

queued_messages: Final = sa.Table(
    "queued_messages",
    metadata,
    _make_uuid_column("tenant"),
    _make_uuid_column("run_id"),  # that it will start
    _text("thread_id"),
    sa.Column("place", sa.BigInteger, sa.Identity(always=True), nullable=False),
    _bytes("workflow"),
    _text("principal"),
    _bytes("start"),
    _bytes("asked"),
    _text("command_id"),
    _bytes("body_sha"),
    _time("queued_at", now=True),
    _bytes("refused", null=True),  # why its run was not started; null: it waits
    _time("refused_at", null=True),
    _key("queued_messages", "tenant", "run_id"),
)
sa.Index(
    "queued_messages_in_order",
    queued_messages.c.tenant,
    queued_messages.c.thread_id,
    queued_messages.c.place,
)

sweeps: Final = sa.Table(
    "sweeps",
    metadata,
    _text("name"),
    _time("due_at"),  # when some process may look again
    _text("position", null=True),  # how far it has looked
    _key("sweeps", "name"),
)

schedules: Final = sa.Table(
    "schedules",
    metadata,
    _make_uuid_column("id"),
    _make_uuid_column("tenant"),
    _text("workflow_name"),
    _int("position"),  # of its trigger in the document
    _bytes("workflow"),  # the sha256 of the version that it starts: the latest
    sa.Column("dev", sa.Boolean, nullable=False),
    _text("cron", null=True),
    _text("timezone"),
    _make_bigint_column("every_ms", null=True),  # instead of cron; no document can say it
    _text("missed"),
    _text("overlap"),
    _bytes("input"),
    sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.text("false")),
    _time("next_fire_at", null=True),
    _time("last_fire_at", null=True),
    _make_uuid_column("last_run_id", null=True),
    _time("claimed_until", null=True),  # so long the last run is being started, if it is not there
    _time("wake_at", null=True),  # when somebody looks at it again; while somebody does: when others may
    _key("schedules", "id"),
    sa.CheckConstraint("(cron IS NULL) <> (every_ms IS NULL)", name="schedules_one_timing"),
)
sa.Index(
    "schedules_by_workflow",
    schedules.c.tenant,
    schedules.c.workflow_name,
    schedules.c.position,
    unique=True,
)
sa.Index("schedules_due", schedules.c.wake_at, postgresql_where=sa.text("wake_at IS NOT NULL"))

fires: Final = sa.Table(
    "fires",
    metadata,
    _make_uuid_column("schedule_id"),
    _time("fire_at"),
    _make_uuid_column("tenant"),
    _text("outcome", null=True),  # started, skipped or refused; null: not dealt with yet
    _make_uuid_column("run_id", null=True),
    _key("fires", "schedule_id", "fire_at"),
)
sa.Index("fires_open", fires.c.schedule_id, fires.c.fire_at, postgresql_where=sa.text("outcome IS NULL"))

event_triggers: Final = sa.Table(
    "event_triggers",
    metadata,
    _make_uuid_column("tenant"),
    _text("workflow_name"),
    _int("position"),
    _bytes("workflow"),
    sa.Column("dev", sa.Boolean, nullable=False),
    _text("type"),  # of the events; of other kinds: the workflow whose runs end, the path of a webhook
    _text("kind", default="event"),  # event, run or webhook
    _key("event_triggers", "tenant", "workflow_name", "position"),
)
sa.Index("event_triggers_by_type", event_triggers.c.tenant, event_triggers.c.type)
sa.Index(
    "webhooks_by_path",
    event_triggers.c.tenant,
    event_triggers.c.type,
    unique=True,
    postgresql_where=sa.text("kind = 'webhook'"),
)

sa.Sequence("signals_place", metadata=metadata)

signals: Final = sa.Table(
    "signals",
    metadata,
    _make_uuid_column("tenant"),
    _text("id"),
    _text("type"),
    _make_uuid_column("run_id", null=True),  # for this run alone; null: for all that wait for the type
    _bytes("data"),
    sa.Column("sent_at", TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    sa.Column(
        "due_at", TIMESTAMP(timezone=True), server_default=_NOW
    ),  # null: all runs that waited then were offered it
    _make_bigint_column(
        "place", null=True, default="nextval('signals_place'::regclass)"
    ),  # of a type, in the order of becoming visible
    _int("tries", default="0"),
    sa.Column("undelivered", ARRAY(sa.Text)),  # all runs but these were offered it; null: none was yet
    _text("sender", null=True),  # the person that sent it
    _key("signals", "tenant", "id"),
)
sa.Index("signals_by_type", signals.c.tenant, signals.c.type, signals.c.sent_at)
sa.Index("signals_due", signals.c.due_at, postgresql_where=sa.text("due_at IS NOT NULL"))
sa.Index(
    "signals_unsettled",
    signals.c.tenant,
    signals.c.type,
    signals.c.place,
    postgresql_where=sa.text("due_at IS NOT NULL AND undelivered IS NULL"),
)
sa.Index(
    "signals_to_all",
    signals.c.tenant,
    signals.c.type,
    signals.c.place,
    postgresql_where=sa.text("run_id IS NULL"),
)
sa.Index(
    "signals_to_one",
    signals.c.run_id,
    signals.c.type,
    signals.c.place,
    postgresql_where=sa.text("run_id IS NOT NULL"),
)

# Events to all of a tenant that lives in several cells, in its seat, until each of them has the event.
# People that were forgotten after runs had been archived: restoring those forgets them again.
erased_people: Final = sa.Table(
    "erased_people",
    metadata,
    _make_uuid_column("tenant"),
    _bytes("salt"),
    _bytes("sha256"),  # of the salt and the principal
    _time("at", now=True),
    _key("erased_people", "tenant", "salt"),
)

relays: Final = sa.Table(
    "relays",
    metadata,
    _make_uuid_column("tenant"),
    _text("id"),  # of the event
    _text("type"),
    _bytes("data"),
    _time("sent_at", now=True),
    sa.Column("cells", ARRAY(sa.Integer), nullable=False),  # that do not have it yet
    _text("sender", null=True),  # the person that sent it
    sa.Column("due_at", TIMESTAMP(timezone=True), nullable=False, server_default=_NOW),
    _key("relays", "tenant", "id"),
)
sa.Index("relays_due", relays.c.due_at)

deposits: Final = sa.Table(
    "deposits",
    metadata,
    _make_uuid_column("tenant"),
    _make_uuid_column("id"),
    _text("kind"),
    _text("body"),
    _text("principal"),
    _time("deposited_at", now=True),
    sa.Column("due_at", TIMESTAMP(timezone=True), server_default=_NOW),  # null: it was refused
    sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
    _text("refused", null=True),  # why
    _key("deposits", "tenant", "id"),
)
sa.Index("deposits_due", deposits.c.due_at)

pushes: Final = sa.Table(
    "pushes",
    metadata,
    _make_uuid_column("tenant"),
    _make_uuid_column("run_id"),
    _text("principal"),
    _text("id"),
    _bytes("config"),  # the address, and by what its owner recognises us
    _bytes("who"),  # the principal, for whom questions are theirs or others'
    sa.Column("may", sa.Boolean, nullable=False),  # answer questions
    _make_bigint_column("seen", default="0"),  # the event of the run up to which it was told
    _text("sent", null=True),  # the state that it was told
    _int("tries", default="0"),
    _text("error", null=True),
    sa.Column("due_at", TIMESTAMP(timezone=True), server_default=_NOW),  # null: the run has ended
    _key("pushes", "run_id", "principal", "id"),
)
sa.Index("pushes_due", pushes.c.due_at, postgresql_where=sa.text("due_at IS NOT NULL"))

chat_cards: Final = sa.Table(
    "chat_cards",
    metadata,
    _text("id"),  # that of the notification whose card it is
    _make_uuid_column("tenant"),
    _make_uuid_column("run_id"),
    _text("pending_id"),
    _text("channel"),
    _text("person", null=True),  # its only reader
    _text("place"),  # the room or the account that it is shown to
    _text("message", null=True),  # the platform's name of it; null: it is not known to be there
    _bytes("shown", null=True),  # the digest of its content
    _make_bigint_column("seen", default="0"),  # the event of the run up to which it is right
    _int("tries", default="0"),
    _text("error", null=True),
    sa.Column("due_at", TIMESTAMP(timezone=True)),  # null: it changes no more, or is not there yet
    _time("created_at", now=True),
    _key("chat_cards", "id"),
)
sa.Index("chat_cards_due", chat_cards.c.due_at, postgresql_where=sa.text("due_at IS NOT NULL"))
sa.Index("chat_cards_run", chat_cards.c.run_id)

chat_buttons: Final = sa.Table(
    "chat_buttons",
    metadata,
    _bytes("digest"),  # the sha256 of its id, which only the card has
    _make_uuid_column("tenant"),
    _make_uuid_column("run_id"),
    _text("card"),
    _text("option"),
    _bytes("question"),  # the digest of the pending, as it was shown
    _bytes("content"),  # the digest of the card's content
    _text("account", null=True),  # the only one that may use it: of a dialog
    sa.Column("expires_at", TIMESTAMP(timezone=True), nullable=False),
    _text("taken_by", null=True),  # the account that presses it just now
    sa.Column("taken_at", TIMESTAMP(timezone=True)),
    sa.Column("used_at", TIMESTAMP(timezone=True)),
    _key("chat_buttons", "digest"),
)
sa.Index("chat_buttons_card", chat_buttons.c.card)
sa.Index("chat_buttons_run", chat_buttons.c.run_id)

chat_accounts: Final = sa.Table(
    "chat_accounts",
    metadata,
    _make_uuid_column("id"),
    _make_uuid_column("tenant"),
    _text("channel"),
    _text("account", null=True),  # null: its code was not sent yet
    _bytes("code", null=True),  # the sha256 of the code that connects it
    sa.Column("code_until", TIMESTAMP(timezone=True)),
    _text("principal"),
    sa.Column("roles", ARRAY(sa.Text), nullable=False),
    sa.Column("groups", ARRAY(sa.Text), nullable=False),
    sa.Column("until", TIMESTAMP(timezone=True), nullable=False),
    _text("key", null=True),  # the proofs that it rests on, as of a delegation
    _bytes("session", null=True),
    _text("token", null=True),
    _time("created_at", now=True),
    _key("chat_accounts", "id"),
)
sa.Index("chat_accounts_account", chat_accounts.c.tenant, chat_accounts.c.channel, chat_accounts.c.account, unique=True)
sa.Index("chat_accounts_code", chat_accounts.c.code, unique=True)
sa.Index("chat_accounts_principal", chat_accounts.c.tenant, chat_accounts.c.principal)

depositors: Final = sa.Table(
    "depositors",
    metadata,
    _text("role"),  # of PostgreSQL
    _make_uuid_column("tenant"),
    _text("principal"),  # in whose name it deposits
    _key("depositors", "role", "tenant"),
)

subscriptions: Final = sa.Table(
    "subscriptions",
    metadata,
    _make_uuid_column("run_id"),
    _text("path"),
    _text("type"),
    _make_uuid_column("tenant"),
    _make_bigint_column("opened_seq"),  # of the commit that opened it
    _bytes("offered", null=True),  # how far the run was offered the signals that had been stored
    _key("subscriptions", "run_id", "path", "type"),
)
sa.Index("subscriptions_by_type", subscriptions.c.tenant, subscriptions.c.type)

callbacks: Final = sa.Table(
    "callbacks",
    metadata,
    _bytes("digest"),  # sha256 of the secret part of the address
    _make_uuid_column("tenant"),
    _make_uuid_column("run_id"),
    _text("path"),
    _time("created_at", now=True),
    _text("type", null=True),  # of the signal that it becomes; NULL in rows of before: that of a step done once
    _key("callbacks", "digest"),
)

feedback: Final = sa.Table(
    "feedback",
    metadata,
    sa.Column("id", UUID(as_uuid=True), nullable=False, server_default=sa.text("gen_random_uuid()")),
    _make_uuid_column("tenant"),
    _text("thread_id"),
    _text("kind"),  # of the thing that is judged
    _text("subject_id"),
    _make_uuid_column("run_id"),  # whose message or pending it is
    _text("principal"),  # the person that judges
    _text("via"),
    _text("rating", null=True),
    _text("comment", null=True),
    sa.Column("labels", ARRAY(sa.Text), nullable=False),
    _time("created_at", now=True),
    _time("updated_at", now=True),
    _key("feedback", "id"),
    sa.CheckConstraint("kind IN ('message', 'pending')", name="feedback_kind"),
    sa.CheckConstraint("rating IN ('up', 'down', '1', '2', '3', '4', '5')", name="feedback_rating"),
    sa.CheckConstraint("rating IS NOT NULL OR comment IS NOT NULL OR labels <> '{}'", name="feedback_says_something"),
)
sa.Index(
    "feedback_of_each",
    feedback.c.tenant,
    feedback.c.thread_id,
    feedback.c.kind,
    feedback.c.subject_id,
    feedback.c.principal,
    unique=True,
)
sa.Index("feedback_newest", feedback.c.tenant, feedback.c.thread_id, feedback.c.created_at, feedback.c.id)

workflows: Final = sa.Table(
    "workflows",
    metadata,
    _make_uuid_column("tenant"),
    _bytes("sha256"),
    _text("name"),
    _int("version"),
    sa.Column("dev", sa.Boolean, nullable=False),
    _text("title", null=True),
    _bytes("source"),
    _time("created_at", now=True),
    sa.Column("from_disk", sa.Boolean, nullable=False, server_default=sa.text("false")),
    # The selectors of the people that may read its runs, beside the requesters and operators.
    sa.Column("visibility", ARRAY(sa.Text), nullable=False, server_default=sa.text("'{}'::text[]")),
    _time("retired_at", null=True),  # since then no run, child or fork begins with it
    _key("workflows", "tenant", "sha256"),
)
sa.Index(
    "workflows_published",
    workflows.c.tenant,
    workflows.c.name,
    workflows.c.version,
    unique=True,
    postgresql_where=sa.text("NOT dev"),
)
sa.Index("workflows_by_name", workflows.c.tenant, workflows.c.name, workflows.c.created_at)

# The bytes of files, in pieces, where PostgreSQL keeps them: `place` is the file's, `n` counts from 0.
blobs: Final = sa.Table(
    "blobs",
    metadata,
    _text("place"),
    _int("n"),
    _make_uuid_column("tenant"),
    _bytes("body"),
    _key("blobs", "place", "n"),
)

files: Final = sa.Table(
    "files",
    metadata,
    _make_uuid_column("tenant"),
    _bytes("sha256"),  # of its bytes: its id
    _text("place"),  # where that is: `pg:...` in blobs, else in the store of files
    _make_bigint_column("size"),
    _time("touched_at", now=True),  # when it was last uploaded or referred to
    _key("files", "tenant", "sha256"),
    sa.CheckConstraint("size >= 0", name="files_size"),
)

uploads: Final = sa.Table(
    "uploads",
    metadata,
    _make_uuid_column("tenant"),
    _bytes("sha256"),
    _text("principal"),  # the uploader; `run:...`: a step made it
    _text("name"),
    _text("media_type"),
    _time("created_at", now=True),
    _key("uploads", "tenant", "sha256", "principal"),
)

file_uses: Final = sa.Table(
    "file_uses",
    metadata,
    _make_uuid_column("tenant"),
    _bytes("sha256"),
    _make_uuid_column(
        "run_id"
    ),  # the run that refers to it; stored before the commit that does, so there may be no such run
    _key("file_uses", "tenant", "sha256", "run_id"),
)

file_leftovers: Final = sa.Table(
    "file_leftovers",
    metadata,
    _text("place"),  # its bytes belong to no file: not yet, or not any more
    _make_uuid_column("tenant"),
    _time("due_at"),  # when it is cleared away
    _key("file_leftovers", "place"),
)
sa.Index("file_leftovers_due", file_leftovers.c.due_at)

tool_pins: Final = sa.Table(
    "tool_pins",
    metadata,
    _make_uuid_column("tenant"),
    _bytes("workflow"),  # its sha256
    _text("name"),  # `tool.function`, or `tool`, if all of its functions were seen
    _text("digest"),
    _key("tool_pins", "tenant", "workflow", "name"),
)

tenants: Final = sa.Table(
    "tenants",
    metadata,
    _make_uuid_column("id"),
    _text("name"),
    _time("created_at", now=True),
    # Its limits. Null: that of the settings; 0: no limit.
    sa.Column("runs_per_minute", sa.Integer),
    sa.Column("open_runs", sa.Integer),
    sa.Column("followers", sa.Integer),
    _make_bigint_column("log_bytes", null=True),
    sa.Column("cells", ARRAY(sa.Integer)),  # where its runs live, by number; null: at home
    sa.Column("anchors", ARRAY(sa.Integer)),  # of several: those that it began with; null: the first
    sa.Column("closed", ARRAY(sa.Integer)),  # those in which nothing of it begins any more,
    sa.Column("opening", ARRAY(sa.Integer)),  # and those in which nothing begins until all processes know of them:
    _time("opens_at", null=True),
    _key("tenants", "id"),
    sa.UniqueConstraint("name", name="tenants_name"),
)

keys: Final = sa.Table(
    "keys",
    metadata,
    _text("id"),
    _make_uuid_column("tenant"),
    _bytes("sha256"),  # of the secret, which is nowhere else
    _text("name"),  # for people
    _text("principal"),  # the principal that calls with it
    sa.Column("roles", ARRAY(sa.Text), nullable=False),
    sa.Column("groups", ARRAY(sa.Text), nullable=False),
    _text("created_by"),
    _time("created_at", now=True),
    _time("expires_at", null=True),
    _time("revoked_at", null=True),
    _time("used_at", null=True),  # to a minute
    _bytes("verifies", null=True),  # the public key of its tokens' signatures; the private one is made of the secret
    sa.Column("speaks_for", ARRAY(sa.Text)),  # for whom its tokens may decide; null: only for its own principal
    _key("keys", "id"),
    sa.CheckConstraint("octet_length(sha256) = 32", name="keys_sha256"),
    sa.ForeignKeyConstraint(["tenant"], ["tenants.id"], name="keys_tenant"),
)
sa.Index("keys_person", keys.c.tenant, keys.c.principal)
tickets: Final = sa.Table(
    "tickets",
    metadata,
    _bytes("sha256"),  # of the ticket
    _make_uuid_column("tenant"),
    _text("principal"),  # as JSON: the caller that opens a stream with it
    _time("expires_at"),
    _key("tickets", "sha256"),
    sa.ForeignKeyConstraint(["tenant"], ["tenants.id"], name="tickets_tenant"),
)
sa.Index("tickets_expires", tickets.c.expires_at)

sessions: Final = sa.Table(
    "sessions",
    metadata,
    _bytes("sha256"),  # of the cookie
    _make_uuid_column("tenant"),
    _text("principal"),  # as JSON: whose browser it is
    _time("expires_at"),  # unless it is used
    _int("version", default="0"),  # how often its principal has changed
    _time("ends_at", null=True),  # in any case
    _bytes("sealed", null=True),  # the token for its renewal; readable with the cookie's text
    _time("renew_at", null=True),
    _time("good_until", null=True),  # without a renewal
    _key("sessions", "sha256"),
    sa.ForeignKeyConstraint(["tenant"], ["tenants.id"], name="sessions_tenant"),
)
sa.Index("sessions_expires", sessions.c.expires_at)

forgotten: Final = sa.Table(
    "forgotten",
    metadata,
    _bytes("sha256"),  # of the tenant and the person's id; kept while a token of theirs may still be good
    _time("at", now=True),
    _key("forgotten", "sha256"),
)

sa.Index("keys_tenant_created", keys.c.tenant, keys.c.created_at, keys.c.id)

# People's acts. Triggers (in the migration) refuse to change or delete a record or a seal, and queue new records.
audit: Final = sa.Table(
    "audit",
    metadata,
    _make_uuid_column("tenant"),
    _make_uuid_column("id"),  # a UUIDv7: later ones sort later
    sa.Column("at", TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")),
    _text("act"),
    _make_uuid_column("run_id", null=True),
    _make_bigint_column("seq", null=True),  # the run's after the commit that holds the act,
    _bytes("head", null=True),  # and its chain up to there
    _text("subject", null=True),  # `pending:...`, `workflow:...`: another thing that the act was done to
    _bytes("digest", null=True),  # of the content that the person saw or gave
    _bytes("commitment"),  # the digest of the details
    _key("audit", "tenant", "id"),
)
sa.Index("audit_by_run", audit.c.tenant, audit.c.run_id, audit.c.id, postgresql_where=sa.text("run_id IS NOT NULL"))
sa.Index(
    "audit_by_subject", audit.c.tenant, audit.c.subject, audit.c.id, postgresql_where=sa.text("subject IS NOT NULL")
)

audit_details: Final = sa.Table(
    "audit_details",
    metadata,
    _make_uuid_column("tenant"),
    _make_uuid_column("id"),
    _text("principal"),  # the person that did it; a pseudonym once they are forgotten
    _bytes("salt"),  # without it the details can't be guessed from the commitment
    _bytes("body"),
    _time("erased_at", null=True),
    _key("audit_details", "tenant", "id"),
)
sa.Index("audit_details_by_principal", audit_details.c.tenant, audit_details.c.principal, audit_details.c.id)

audit_seals: Final = sa.Table(
    "audit_seals",
    metadata,
    _make_uuid_column("tenant"),
    _make_bigint_column("n"),  # the record's place in its tenant's chain, from 1
    _make_uuid_column("id"),
    _bytes("hash"),
    _key("audit_seals", "tenant", "n"),
    sa.CheckConstraint("n > 0", name="audit_seals_positive"),
)
sa.Index("audit_seals_by_record", audit_seals.c.tenant, audit_seals.c.id, unique=True)

audit_unsealed: Final = sa.Table(
    "audit_unsealed",
    metadata,
    _make_uuid_column("tenant"),
    _make_uuid_column("id"),
    _key("audit_unsealed", "tenant", "id"),
)

workers: Final = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
    _text("name"),
    _time("alive_until"),
    sa.Column("queues", ARRAY(sa.Text)),  # `*`: all; null: of a release that knew no queues, hence the default one
    # For people to see: the release, and the worker's load as of the last heartbeat.
    _text("release", null=True),
    _time("started_at", null=True),
    _time("beat_at", null=True),
    _time("draining_since", null=True),
    sa.Column("places", sa.Integer),
    sa.Column("held", sa.Integer),
    sa.Column("attempts", sa.Integer),
    sa.Column("waiting", sa.Integer),
    _key("workers", "id"),
)

hint_keys: Final = sa.Table(
    "hint_keys",
    metadata,
    sa.Column("one", sa.Boolean, nullable=False, server_default=sa.true()),
    _bytes("key"),
    _key("hint_keys", "one"),
    sa.CheckConstraint("one", name="hint_keys_one"),
)

# Keys that seal what clients carry for `/mcp`, after the first, which is derived (`store/identity/state_keys`).
state_keys: Final = sa.Table(
    "state_keys",
    metadata,
    sa.Column("n", sa.Integer, nullable=False, autoincrement=False),
    _bytes("key"),
    _time("created_at", now=True),
    sa.Column("at_once", sa.Boolean, nullable=False),  # the keys before it opened nothing from then on
    _key("state_keys", "n"),
)

# In which history the database is (`store/ops/database_history`). A restore to an earlier time begins another era, by a
# person.
eras: Final = sa.Table(
    "eras",
    metadata,
    sa.Column("n", sa.Integer, nullable=False, autoincrement=False),
    _make_uuid_column("database"),  # its name for ever; beats outside of it are noted under that name
    _make_bigint_column("system", null=True),  # where it was when the row was written: the server,
    _make_bigint_column("base", null=True),  # the database there,
    sa.Column("timeline", sa.Integer),  # and that server's timeline
    _make_bigint_column("written"),  # the transaction that wrote the row: another one has written a copy of it
    _time("began_at", now=True),
    _text("note"),
    _time("held_at", null=True),  # since then no worker performs anything
    _text("held_why", null=True),
    _key("eras", "n"),
)

beats: Final = sa.Table(
    "beats",
    metadata,
    sa.Column("n", sa.BigInteger, sa.Identity(always=True), nullable=False),
    _int("era"),
    sa.Column("token", UUID(as_uuid=True), nullable=False, server_default=sa.text("gen_random_uuid()")),
    _time("at", now=True),
    _key("beats", "n"),
)

# Since when the database has each vocabulary of the log (`ABI` of `engine/events`), from the twelfth on: what was
# decided before was decided by another release.
vocabularies: Final = sa.Table(
    "vocabularies",
    metadata,
    sa.Column("abi", sa.Integer, nullable=False, autoincrement=False),
    _time("since", now=True),
    _key("vocabularies", "abi"),
)

# Which servers there are (`store/runs/workers`); a worker has its lease.
servers: Final = sa.Table(
    "servers",
    metadata,
    _make_uuid_column("id"),
    _text("name"),
    _text("release"),
    _time("started_at", now=True),
    _time("seen_at", now=True),
    _key("servers", "id"),
)

# Decisions that people have given ahead, and the votes by them (`store/people/rules`).
rules: Final = sa.Table(
    "rules",
    metadata,
    _make_uuid_column("id"),
    _make_uuid_column("tenant"),
    _text("kind"),  # allow, never
    _text("tool"),
    _text("workflow", null=True),
    _bytes("body"),  # JSON: what it says, as people approve it
    _text("digest"),  # of the body
    sa.Column("until", TIMESTAMP(timezone=True), nullable=False),
    sa.Column("uses_max", sa.Integer),  # in one period; null: any number
    sa.Column("period", sa.Interval),  # null: for ever
    _make_bigint_column("uses", default="0"),
    _int("period_uses", default="0"),
    sa.Column("period_began", TIMESTAMP(timezone=True)),
    _text("proposed_by"),
    sa.Column("proposer_ids", ARRAY(sa.Text), nullable=False),
    sa.Column("excluded_ids", ARRAY(sa.Text), nullable=False),  # those who profit from it, and do not approve it
    _make_uuid_column("run_id", null=True),  # whose gate approves it
    _text("pending_id", null=True),  # the decision that it was made of
    _time("created_at", now=True),
    _bytes("voters", null=True),  # JSON: who has approved it
    sa.Column("people", ARRAY(sa.Text)),  # all ids of these and of the proposer
    sa.Column("approved_at", TIMESTAMP(timezone=True)),
    sa.Column("ended_at", TIMESTAMP(timezone=True)),  # it was refused, or revoked
    _text("ended_by", null=True),
    _text("ended_why", null=True),
    _key("rules", "id"),
)
_IN_FORCE: Final = sa.text("approved_at IS NOT NULL AND ended_at IS NULL")
sa.Index("rules_in_force", rules.c.tenant, rules.c.tool, postgresql_where=_IN_FORCE)
sa.Index("rules_listed", rules.c.tenant, rules.c.created_at, rules.c.id)

rule_uses: Final = sa.Table(
    "rule_uses",
    metadata,
    _make_uuid_column("tenant"),
    _make_uuid_column("rule"),
    _make_uuid_column("run_id"),
    _text("pending_id"),
    _time("at", now=True),
    _key("rule_uses", "rule", "run_id", "pending_id"),
)
sa.Index("rule_uses_at", rule_uses.c.tenant, rule_uses.c.rule, rule_uses.c.at)
sa.Index("rule_uses_run", rule_uses.c.run_id)

# Results of backtests that publications demand (`store/catalog/rehearsals`).
rehearsals: Final = sa.Table(
    "rehearsals",
    metadata,
    _make_uuid_column("tenant"),
    _text("name"),
    _bytes("sha256"),  # of the text
    _bytes("base"),  # the digest of the latest version then
    sa.Column("age", sa.Interval, nullable=False),  # of the runs
    sa.Column("complete", sa.Boolean, nullable=False),
    _int("runs"),
    _int("differences"),
    _bytes("counts"),  # JSON
    _text("kept_by"),
    _time("at", now=True),
    _key("rehearsals", "tenant", "name", "sha256", "base"),
)

# Seeded questions that have to be refused (`store/people/canaries`).
canaries: Final = sa.Table(
    "canaries",
    metadata,
    _make_uuid_column("run_id"),
    _make_uuid_column("tenant"),
    _text("workflow"),  # the workflow, the step and the requester that its question shows
    _text("path"),
    _text("tool", null=True),
    _text("started_by"),
    _text("reason"),  # why it has to be refused
    _text("seeded_by"),
    _time("at", now=True),
    _key("canaries", "run_id"),
)
sa.Index("canaries_at", canaries.c.tenant, canaries.c.at, canaries.c.run_id)

# Who was given which part of a question before they decided it (`store/people/openings`).
openings: Final = sa.Table(
    "openings",
    metadata,
    _make_uuid_column("run_id"),
    _text("pending_id"),
    _text("principal"),
    _text("part"),
    _make_uuid_column("tenant"),
    _time("at", now=True),
    _key("openings", "run_id", "pending_id", "principal", "part"),
)
sa.Index("openings_person", openings.c.tenant, openings.c.principal)

# What operators let nobody begin (`store/ops/freezes`).
freezes: Final = sa.Table(
    "freezes",
    metadata,
    _make_uuid_column("id"),
    _make_uuid_column("of_tenant", null=True),  # null: of all tenants
    _make_uuid_column("owner", null=True),  # the tenant whose operators may end it; null: only those of the deployment
    _text("mode"),
    _text("scope"),
    _text("name"),
    _text("reason"),
    _text("created_by"),
    _time("created_at", now=True),
    _text("thawed_by", null=True),
    _time("thawed_at", null=True),
    _key("freezes", "id"),
    sa.CheckConstraint("(thawed_by IS NULL) = (thawed_at IS NULL)", name="freezes_thawed"),
)

freeze_switch: Final = sa.Table(
    "freeze_switch",
    metadata,
    sa.Column("single", sa.Boolean, nullable=False, server_default=sa.text("true")),
    _make_bigint_column("version"),  # grows with each change of `freezes` and `rules`
    _key("freeze_switch", "single"),
    sa.CheckConstraint("single", name="freeze_switch_single"),
)
