"""`ask` and `approve`: a form, a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.people.deadlines import (
    CONSENT,
    ESCALATE,
    ON_DEADLINE,
    ON_DEADLINE_KEY,
    ON_DEADLINE_OF_ASK,
    REJECT,
)
from hai_flow.definition.people.deciders import FROM
from hai_flow.definition.people.forms import COMBINE, FORM, collect_literal_form
from hai_flow.definition.people.notify import REMIND
from hai_flow.definition.people.policies import (
    APPROVAL,
    CONFIRM,
    MESSAGE,
    PICK,
    POLICY,
    REASONS,
    STILL,
    TITLE_OF_PENDING,
    WITHDRAW_WHEN,
    policy,
)
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.key_table import DEADLINE, DECIDED_KEYS, ENDED_KEYS, EXPIRY, NOTHING, NOTIFY, PAUSE_CLOCK
from hai_flow.definition.yaml.keys import ANY, SCHEMA, SELECTORS, Key, Shape, shape_of
from hai_flow.values import Json

ASK: Final = Shape("ask", "`ask`", (
    TITLE_OF_PENDING, MESSAGE,
    Key("form", SCHEMA, "schema of the answer; holes are allowed in `default enum const title description minimum "
        "maximum`", required=True,
        example="{type: object, required: [size], properties: {size: {type: string, enum: [S, M, L]}}}"),
    Key("from", SELECTORS, "people who may answer; the first answer counts", default="[requester]",
        example="role:support"),
    PICK, NOTIFY, REMIND, DEADLINE,
    Key("on_deadline", EXPIRY,
        "`fail` or `default: value`, after any number of `escalate`", default="fail",
        example="{default: {size: M}}", read=ANY),
    WITHDRAW_WHEN, PAUSE_CLOCK, CONFIRM,
))  # fmt: skip
APPROVE: Final = Shape("approve", "`approve`", (
    TITLE_OF_PENDING, MESSAGE,
    Key("evidence", ANY, "data to decide on: evaluated once, shown, and hashed into every vote",
        example='{eur: "${{ steps.convert.output.eur }}"}'),
    FROM, *POLICY, REASONS, FORM, COMBINE, NOTIFY, REMIND, DEADLINE, ON_DEADLINE_KEY, WITHDRAW_WHEN, PAUSE_CLOCK,
    CONFIRM,
))  # fmt: skip


def _ask(context: StepContext, draft: StepDraft, names: Names) -> plan.Ask | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(ASK, value, at, "`ask`")
    title = context.text(fields, "title", at, names)
    message = context.text(fields, "message", at, names)
    rule = policy(context, "ask", fields, at, names)
    if title is None or rule is None or rule.form is None:
        return None
    return plan.Ask(title, message, rule)


def _compile_approve(context: StepContext, draft: StepDraft, names: Names) -> plan.Approve | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(APPROVE, value, at, "`approve`")
    title = context.text(fields, "title", at, names)
    message = context.text(fields, "message", at, names)
    evidence = context.template(fields["evidence"], (*at, "evidence"), names) if "evidence" in fields else None
    rule = policy(context, "approve", fields, at, names)
    if title is None or rule is None:
        return None
    return plan.Approve(title, message, evidence, rule)


def _gives(context: StepContext, draft: StepDraft) -> Json:
    form = draft.fields["ask"].get("form") if isinstance(draft.fields.get("ask"), Mapping) else None
    return collect_literal_form(form) if isinstance(form, Mapping) else {}


VERBS: Final = (
    VerbRules(
        "ask",
        type=shape_of("ask"),
        does="a form for a person",
        keys=ENDED_KEYS,
        output="the form's values",
        fails="`ask.expired`",
        example="{title: Which size?, form: {type: object, properties: {size: {type: string}}}}",
        compile=_ask,
        cleans=False,
        kind="people",
        shapes=(ASK,),
        gives=_gives,
        aka=("input",),
    ),
    VerbRules(
        "approve",
        type=shape_of("approve"),
        does="a decision by people",
        keys=(*DECIDED_KEYS, *ENDED_KEYS),
        output="`{decision, reason, values, edits, votes, expired, escalations}`",
        fails="`approval.*`",
        example="{title: Ship it?, from: role:release_manager}",
        compile=_compile_approve,
        kind="people",
        shapes=(APPROVE, APPROVAL, STILL, ON_DEADLINE, ON_DEADLINE_OF_ASK, REJECT, CONSENT, NOTHING, ESCALATE),
        cleans=False,
        aka=("human",),
    ),
)
