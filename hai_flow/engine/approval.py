"""What people are asked, and how their answers are read. LANGUAGE sections 7 and 8.

An answer's content gives the choice, the authenticated poster gives the authority. Whatever cannot be read without
doubt is refused and the pending stays open.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition.plan import Approve, Ask, FrontendTool, Schema
from hai_flow.engine.commands import PendingAnswer
from hai_flow.engine.events import PendingOpened
from hai_flow.errors import Rejected

Json: TypeAlias = Any

_sorted = msgspec.json.Encoder(order="deterministic")


class Reading(NamedTuple):
    """An answer understood: `outcome` answered, declined, approve or reject; `sha` recognises the same answer again."""

    outcome: str
    value: Json
    reason: str | None
    sha: str


def digest(workflow_sha256: str, run_id: str, opened: dict[str, Json]) -> str:
    """The digest of a pending: binds a decision to one workflow, one run and one content. Hex."""
    content = sha256(values.dumps([opened.get(key) for key in _DIGESTED])).hexdigest()
    return sha256(values.dumps([workflow_sha256, run_id, content])).hexdigest()


_DIGESTED = ("path", "args", "evidence", "title", "message", "options", "schema")


def read_answer(opened: PendingOpened, verb: FrontendTool | Ask | Approve, answer: PendingAnswer) -> Reading:
    """The answer as the pending's kind understands it. Raises Rejected(422): the pending stays open."""
    if isinstance(verb, FrontendTool):
        outcome, value, reason = _tool_answer(opened, verb, answer)
    elif isinstance(verb, Ask):
        outcome, value, reason = "answered", _form_values(opened, verb.form_schema, answer), None
    else:
        outcome, value, reason = _choice(opened, verb, answer)
    sha = sha256(_sorted.encode([outcome, value, reason])).hexdigest()
    return Reading(outcome, value, reason, sha)


def _refused(opened: PendingOpened, message: str, findings: list[dict[str, str]] | None = None) -> Rejected:
    return Rejected(
        422, "answer.invalid", f"{opened.id}: {message} The question is still open.", findings=findings or []
    )


def _checked(opened: PendingOpened, value: Json) -> Json:
    try:
        return values.check(value)
    except values.NotJson as error:
        raise _refused(opened, f"{error}.") from None


def _tool_answer(opened: PendingOpened, tool: FrontendTool, answer: PendingAnswer) -> tuple[str, Json, str | None]:
    if answer.error is not None:
        return "declined", None, _checked(opened, answer.error)
    if answer.content is not None:
        return "answered", _from_text(opened, tool.result, answer.content), None
    if answer.result is msgspec.UNSET:
        raise _refused(opened, f"expected the result of {tool.name}: {{result}} or {{error}}.")
    return "answered", _valid(opened, tool.result, _checked(opened, answer.result)), None


def _from_text(opened: PendingOpened, schema: Schema | None, text: str) -> Json:
    """Without a `result` schema the text itself; else its JSON, or the text where the schema admits a string."""
    _checked(opened, text)
    if schema is None:
        return text
    try:
        value = _checked(opened, values.loads(text))
    except values.NotJson:
        return _valid(opened, schema, text)
    if schema.findings(value) and not schema.findings(text):
        return text
    return _valid(opened, schema, value)


def _valid(opened: PendingOpened, schema: Schema | None, value: Json) -> Json:
    if schema is None:
        return value
    findings = schema.findings(value)
    if findings:
        raise _refused(opened, "the answer does not fit what was asked for.", findings)
    return value


def _form_values(opened: PendingOpened, schema: Schema, answer: PendingAnswer) -> Json:
    if answer.values is not msgspec.UNSET:
        value = _checked(opened, answer.values)
    elif answer.content is not None:
        value = _object_in(opened, answer.content)
        if value.keys() == {"values"} and "values" not in schema.raw.get("properties", {}):
            value = value["values"]
    else:
        raise _refused(opened, "expected the values of the form: {values}.")
    return _valid(opened, schema, schema.with_defaults(value))


def _object_in(opened: PendingOpened, text: str) -> dict[str, Json]:
    try:
        value = _checked(opened, values.loads(text))
    except values.NotJson as error:
        raise _refused(opened, f"{error}.") from None
    if not isinstance(value, dict):
        raise _refused(opened, f"expected a JSON object with the form's values, found {text[:80]!r}.")
    return value


def _choice(opened: PendingOpened, verb: Approve, answer: PendingAnswer) -> tuple[str, Json, str | None]:
    given = _choice_given(opened, answer)
    decision, reason = given.get("decision"), given.get("reason")
    unknown = given.keys() - {"decision", "reason", "values"}
    if unknown:
        raise _refused(opened, f"unknown key {', '.join(sorted(unknown))}; expected decision, reason, values.")
    if decision not in verb.options:
        raise _refused(opened, f"expected decision {' or '.join(verb.options)}, found {decision!r}.")
    if reason is not None and not isinstance(reason, str):
        raise _refused(opened, "expected the reason as text.")
    chosen = given.get("values")
    if decision == "approve" and verb.form_schema is not None:
        chosen = _valid(opened, verb.form_schema, verb.form_schema.with_defaults({} if chosen is None else chosen))
    elif chosen is not None:
        if verb.form_schema is None:
            raise _refused(opened, "values were sent, but this approval has no form.")
        chosen = None  # the values of a rejection decide nothing
    return decision, chosen, reason


def _choice_given(opened: PendingOpened, answer: PendingAnswer) -> dict[str, Json]:
    """`{decision, reason?, values?}` from whichever of the accepted spellings was sent (LANGUAGE section 7)."""
    if answer.decision is not None:
        given: dict[str, Json] = {"decision": answer.decision}
        if answer.reason is not None:
            given["reason"] = _checked(opened, answer.reason)
        if answer.values is not msgspec.UNSET:
            given["values"] = _checked(opened, answer.values)
        return given
    if answer.content is not None:
        raw: Json = answer.content
        with suppress(values.NotJson):
            raw = _checked(opened, values.loads(answer.content))
    elif answer.result is not msgspec.UNSET:
        raw = _checked(opened, answer.result)
    else:
        raise _refused(opened, "expected a decision: {decision, reason?, values?}.")
    return _spelled(opened, raw)


def _spelled(opened: PendingOpened, raw: Json) -> dict[str, Json]:
    if raw is True or raw == "true":
        return {"decision": "approve"}
    if raw is False or raw == "false":
        return {"decision": "reject"}
    if isinstance(raw, dict):
        if "decision" in raw:
            return raw
        if raw.get("status") == "cancelled":
            return {"decision": "reject"}
        approved = raw.get("approved")
        if approved is True or approved is False or approved in ("true", "false"):  # but not 1, which equals True
            rest = {key: item for key, item in raw.items() if key != "approved"}
            return {"decision": "approve" if approved is True or approved == "true" else "reject", **rest}
    raise _refused(opened, "expected true, false, {approved}, or {decision, reason?, values?}.")


def envelope(
    decision: str,
    *,
    reason: str | None,
    values: Json = None,
    votes: list[dict[str, Json]],
    expired: bool = False,
) -> dict[str, Json]:
    """The frozen result of an approval, as authors read it in `steps.X.approval` (LANGUAGE section 7)."""
    return {
        "decision": decision,
        "reason": reason,
        "values": values,
        "edits": None,
        "votes": votes,
        "expired": expired,
        "escalations": [],
    }
