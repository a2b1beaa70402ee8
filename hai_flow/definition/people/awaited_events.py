"""An event that something waits for: `wait_for`, and `withdraw_when` of a question."""

from __future__ import annotations

from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.keys import CEL, Key, Shape, literal
from hai_flow.values import Json

SUBSCRIPTION: Final = Shape("subscription", "An entry of `any` and `all`, and of `withdraw_when`", (
    Key("event", literal(1), "the type of the event", required=True, example="payment.received"),
    Key("match", CEL, "only events for which this is true", example="event.data.order == input.order"),
))  # fmt: skip


def subscription(context: StepContext, raw: Json, at: Path, names: Names) -> plan.Subscription | None:
    """The event that is waited for, whose type is literal; None after a finding. `names` has `event`."""
    fields = context.reader.fields(SUBSCRIPTION, raw, at, "an event")
    match = context.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
    if "${{" in str(fields.get("event", "")):
        message = "an event's type is literal: holes are not filled here; tell events apart by `match`"
        context.reader.error((*at, "event"), "wait_for.hole", message)
        return None
    if "event" in fields:
        context.check_event_type(fields["event"], (*at, "event"))
    return plan.Subscription(fields["event"], match) if "event" in fields else None
