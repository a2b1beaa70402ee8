"""Webhooks: requests from other systems that start runs.

Which workflow a path belongs to is a row that publishing writes. A request proves that it may start one by a secret
that the deployment keeps and the workflow only names; then its run's id is made from the workflow, the path and the
request's dedupe key, so that a request which is sent again finds the run that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.names.name_forms import PATH_CHARS_MAX, WEBHOOK_PATH
from hai_flow.definition.plan import WebhookTrigger
from hai_flow.engine.events import event_value
from hai_flow.errors import Rejected
from hai_flow.primitives import file_ids
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.runtime.files.files import unknown
from hai_flow.runtime.messaging.triggers import Triggers, dedupe_key, evaluate_used
from hai_flow.runtime.runs.starts import new_run_id
from hai_flow.store.identity import tenants
from hai_flow.store.messaging import triggers as store
from hai_flow.store.messaging.triggers import EventTriggerRow
from hai_flow.values import Json
from hai_flow.wire import webhook_signatures
from hai_flow.wire.webhook_body import Call

log = structlog.get_logger(__name__)

NAMES_MAX: Final = 1000  # of secrets that the log has called missing


class Webhook(msgspec.Struct, frozen=True):
    """A path that a workflow has, and its trigger."""

    row: EventTriggerRow
    trigger: WebhookTrigger


def tenant_of(address: str) -> str:
    return _parts_of(address)[0]


def _parts_of(address: str) -> tuple[str, str]:
    """The tenant's name, and the path."""
    if not address.startswith("@"):
        return tenants.DEFAULT, address
    name, _, path = address.removeprefix("@").partition("/")
    return name, path


class Webhooks:
    """Finds the workflow of a path, and starts it for requests that prove its secret. `secrets`: the deployment's, by
    name."""

    def __init__(self, triggers: Triggers, secrets: Mapping[str, str]) -> None:
        self._triggers = triggers
        self._secrets = secrets
        self._missed: set[str] = set()

    async def find(self, address: str) -> Webhook:
        """The webhook of the address: `PATH`, or `@TENANT/PATH` of another tenant than `default`. Raises Rejected
        404."""
        name, path = _parts_of(address)
        rows: list[EventTriggerRow] = []
        tenant = await self._tenant(name)
        if tenant is not None and len(path) <= PATH_CHARS_MAX and WEBHOOK_PATH.fullmatch(path):
            rows = await store.list_event_triggers(self._triggers.database.api, tenant, path, "webhook")
        if tenant is None or not rows:
            raise Rejected(404, "webhook_unknown", "there is no webhook here.")
        plan = await self._triggers.catalog.plan(tenant, rows[0].workflow)
        trigger = plan.triggers[rows[0].position]
        assert isinstance(trigger, WebhookTrigger), "rows are made from the triggers of the plan"
        return Webhook(rows[0], trigger)

    async def _tenant(self, name: str) -> UUID | None:
        if not tenants.NAME.fullmatch(name):
            return None
        tenant = await tenants.find_tenant(self._triggers.database.api, name)
        return None if tenant is None else tenant.id

    def demand_genuine(self, hook: Webhook, call: Call) -> None:
        """Raises Rejected 401, which says the same whatever is wrong."""
        trigger, now = hook.trigger, self._triggers.committer.now_ms()
        secret = self._secrets.get(trigger.secret, "")
        if not secret and trigger.secret not in self._missed and len(self._missed) < NAMES_MAX:
            self._missed.add(trigger.secret)
            log.error("secret_missing", secret=trigger.secret, webhook=trigger.path, workflow=hook.row.workflow_name)
        if not webhook_signatures.is_genuine(call, trigger.scheme, trigger.header, secret, now):
            raise Rejected(401, "webhook_refused", "the request does not prove that it is from whom this place is for.")

    async def receive(self, hook: Webhook, call: Call, content: Json) -> Outcome | None:
        """Start the run of a genuine request; None where `match` is false. The same dedupe key is the same run.

        Raises Rejected: 404 where it names a file, since a caller that proves a secret has no files here; 422 where an
        expression fails or the input does not fit, 409 where its concurrency says so."""
        if named := file_ids.files_in(values.dumps(content)):
            raise unknown(file_ids.file_id(min(named)))
        row, trigger = hook.row, hook.trigger
        now = self._triggers.committer.now_ms()
        id = webhook_signatures.identity(call, trigger.scheme, trigger.header) or str(new_run_id(now))
        headers = webhook_signatures.filter_headers(call, trigger.scheme, trigger.header)
        event = {**event_value(id, "webhook", content, now), "headers": headers}
        scope = {"event": event, "now": now}
        try:
            if trigger.match is not None and await evaluate_used(trigger.match, scope, row.tenant) is not True:
                return None
            key = "" if trigger.dedupe is None else dedupe_key(await evaluate_used(trigger.dedupe, scope, row.tenant))
            input = content if trigger.input is None else await evaluate_used(trigger.input, scope, row.tenant)
        except ExpressionError as error:
            message = f"the webhook of {row.workflow_name}: {error.message}"
            raise Rejected(422, error.code, message) from None
        identity = ("dedupe", key) if key else ("event", id)
        run_id = self._triggers.starts.id_of("webhook", str(row.tenant), row.workflow_name, trigger.path, *identity)
        return await self._triggers.begin(row, run_id, {} if input is None else input, "webhook")
