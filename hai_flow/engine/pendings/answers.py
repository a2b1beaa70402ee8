"""Questions to people, and how their answers are read. docs/language.md#people.

An answer's content gives the choice, the authenticated poster gives the authority. Whatever cannot be read without
doubt is refused and the pending stays open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from hai_flow import foreign, values
from hai_flow.definition.plan import FrontendTool, Schema
from hai_flow.definition.schemas.schemas import compile_cached
from hai_flow.engine.commands import PendingAnswer
from hai_flow.engine.events import PendingOpened
from hai_flow.engine.pendings import votes
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.json_pointers import find_key, parse_pointer, pointer_of
from hai_flow.values import Json

HAPPENED: Final = "happened"
AGAIN: Final = "again"
FAIL: Final = "fail"
DOUBT_OPTIONS: Final = (HAPPENED, AGAIN, FAIL)
ACCEPT: Final = "accept"
INQUIRY_OPTIONS: Final = ("decline", "cancel")  # instead of the values that a tool asks for

_sorted = msgspec.json.Encoder(order="deterministic")


class Reading(NamedTuple):
    """An answer understood: `outcome` answered, declined, or one of the options; `sha` recognises the same answer
    again. With an edit: `edits` by JSON Pointer or name, and the whole arguments that they make, as JSON text."""

    outcome: str
    value: Json
    reason: str | None
    sha: str
    edits: dict[str, Json] | None = None
    args: str | None = None


def digest(workflow_sha256: str, run_id: str, opened: PendingOpened) -> str:
    """The digest of a pending: binds a decision to one workflow, one run and one content, of the very texts that are
    stored. Hex."""
    texts = (opened.title, opened.message, opened.options, opened.schema)
    content = sha256(values.dumps([opened.path, opened.args, opened.evidence, *texts])).hexdigest()
    return sha256(values.dumps([workflow_sha256, run_id, content])).hexdigest()


def compute_digest_with(state: RunState, opened: PendingOpened, args: str | None) -> str:
    """The digest that the pending of this run has with other arguments."""
    return digest(state.sha256, state.run_id, msgspec.structs.replace(opened, args=args))


def read_answer(
    pending: PendingState, tool: FrontendTool | None, answer: PendingAnswer, schema: Schema | None = None
) -> Reading:
    """The answer as the pending's kind understands it. `tool` is the frontend tool that is called, if one is; `schema`
    that of the arguments of another tool, where it is known. Raises Rejected(422): the pending stays open."""
    opened = pending.opened
    _demand_parts(opened, answer)
    _demand_digest(opened, answer.digest)
    edits: dict[str, Json] | None = None
    if opened.kind == "tool":
        assert tool is not None
        outcome, value, reason = _read_tool_answer(opened, tool, answer)
    elif opened.kind == "ask":
        outcome, value, reason = _fill_in(opened, answer)
    elif opened.kind == "doubt":
        outcome, value, reason = _read_settlement(opened, answer)
    else:
        outcome, value, reason, edits = _choice(pending, answer)
    args = None if edits is None else _apply_edits(pending, tool, schema, edits)
    sha = sha256(_sorted.encode([outcome, value, reason, edits])).hexdigest()
    if args == opened.args:
        edits = args = None  # the same arguments as before: no edit
    return Reading(outcome, value, reason, sha, edits, args)


_DECISION_PARTS: Final = frozenset({"content", "result", "decision", "reason", "values", "edits", "digest"})
_PARTS: Final = {
    "tool": frozenset({"content", "result", "error", "digest"}),
    "ask": frozenset({"content", "values", "digest"}),
    "doubt": frozenset({"content", "result", "decision", "reason", "digest"}),
    "approve": _DECISION_PARTS,
    "gate": _DECISION_PARTS,
}
"""The parts of an answer that each kind of question takes. Nothing that a person sent is dropped: a part that has no
meaning for the question refuses the answer."""
_WHOLE: Final = frozenset({"content", "result"})
"""The parts that are a decision as a whole, in one object or word."""
_SUBMITS: Final = ("submit", "answer", ACCEPT)
_INQUIRY_PARTS: Final = _PARTS["ask"] | {"decision", "reason", "error"}


def _demand_parts(opened: PendingOpened, answer: PendingAnswer) -> None:
    """Raises Rejected(422) if the answer has a part that this kind of question does not take, or a decision in two
    forms, of which one would be dropped."""
    present = {
        name
        for name in answer.__struct_fields__
        if name not in ("id", "superseded") and getattr(answer, name) not in (None, msgspec.UNSET)
    }
    expected = _PARTS[opened.kind] if opened.inquiry is None else _INQUIRY_PARTS
    if opened.kind == "ask" and answer.decision in _SUBMITS:
        expected |= {"decision"}  # it says what the values say: that the form is filled in
    unexpected = sorted(present - expected)
    if unexpected:
        takes = ", ".join(sorted(expected - {"content"}))
        remedy = " It is a form: answer it with `values`." if opened.kind == "ask" else ""
        raise answer_refusal(
            opened, f"this question takes {takes}; found {', '.join(unexpected)}, which would be ignored.{remedy}"
        )
    beside = sorted(present - _WHOLE - {"digest"}) or sorted(present & _WHOLE)[1:]
    if opened.kind in ("approve", "gate") and present & _WHOLE and beside:
        raise answer_refusal(
            opened,
            f"expected the decision either in one object or in parts, found {', '.join(beside)} beside the object, "
            "where it would be ignored.",
        )


def _demand_members(opened: PendingOpened, given: dict[str, Json], expected: tuple[str, ...]) -> None:
    """Raises Rejected(422) if an answer that a frontend wrote as an object has a member that nothing would read."""
    unknown = given.keys() - set(expected)
    if unknown:
        raise answer_refusal(opened, f"unknown key {', '.join(sorted(unknown))}; expected {', '.join(expected)}.")


def _demand_digest(opened: PendingOpened, digest: Json) -> None:
    """An answer that names the content that it was given to is given to nothing else."""
    if digest is not None and digest != opened.digest:
        raise Rejected(
            422,
            "answer.digest",
            f"{opened.id}: the digest of the answer is not that of the question, which may have been edited since; "
            "look at it again. The question is still open.",
        )


def answer_refusal(opened: PendingOpened, message: str, findings: list[dict[str, Any]] | None = None) -> Rejected:
    return Rejected(
        422, "answer.invalid", f"{opened.id}: {message} The question is still open.", findings=findings or []
    )


def form_of(opened: PendingOpened) -> Schema | None:
    """The form as it was opened, with its holes filled."""
    return None if opened.schema is None else compile_cached(values.dumps(opened.schema))


def _check_json(opened: PendingOpened, value: Json) -> Json:
    try:
        return values.check(value)
    except values.NotJson as error:
        raise answer_refusal(opened, f"{error}.") from None


def _read_tool_answer(opened: PendingOpened, tool: FrontendTool, answer: PendingAnswer) -> tuple[str, Json, str | None]:
    if answer.error is not None:
        return "declined", None, _check_json(opened, answer.error)
    if answer.content is not None:
        return "answered", _from_text(opened, tool, answer.content), None
    if answer.result is msgspec.UNSET:
        raise answer_refusal(opened, f"expected the result of {tool.name}: {{result}} or {{error}}.")
    return "answered", _result_of(opened, tool, answer.result), None


def _from_text(opened: PendingOpened, tool: FrontendTool, text: str) -> Json:
    """Without a `result` schema the text itself; else its JSON, or the text where the schema admits a string."""
    _check_json(opened, text)
    schema = tool.result
    if schema is None:
        return text
    try:
        value = foreign.read(text).value
    except values.NotJson:
        return _validate(opened, schema, text)
    if schema.fit(value)[1] and not schema.findings(text):
        return text
    return _result_of(opened, tool, value)


def _result_of(opened: PendingOpened, tool: FrontendTool, result: Json) -> Json:
    """The result as a run can hold it: the tool has had its effect. Where the schema wants a number, the digits of an
    integer beyond 2^53 are one."""
    try:
        value = foreign.take(result).value
    except values.NotJson as error:
        raise answer_refusal(opened, f"{error}.") from None
    if tool.result is not None and (findings := tool.result.fit(value)[1]):
        raise answer_refusal(opened, "the answer does not fit what was asked for.", findings)
    return value


def _validate(opened: PendingOpened, schema: Schema | None, value: Json) -> Json:
    if schema is None:
        return value
    findings = schema.findings(value)
    if findings:
        raise answer_refusal(opened, "the answer does not fit what was asked for.", findings)
    return value


def _fill_in(opened: PendingOpened, answer: PendingAnswer) -> tuple[str, Json, str | None]:
    """The values of a form; or, where a tool asks, that a person does not answer it."""
    if opened.inquiry is not None:
        if answer.error is not None:
            return "decline", None, _check_json(opened, answer.error)
        if answer.decision is not None and answer.decision != ACCEPT:
            if answer.decision not in opened.options:
                expected = " or ".join((ACCEPT, *opened.options))
                raise answer_refusal(opened, f"expected {{values}}, or decision {expected}, found {answer.decision!r}.")
            return answer.decision, None, answer.reason
        if answer.content is not None and (refusal := _refusal(opened, answer.content)) is not None:
            return refusal, None, None
        if answer.decision == ACCEPT and answer.values is msgspec.UNSET:
            answer = msgspec.structs.replace(answer, values={})
    return "answered", _read_form_values(opened, answer), None


def _refusal(opened: PendingOpened, text: str) -> str | None:
    """The option that a frontend's text names instead of values."""
    try:
        raw = _parse_json(opened, text)
    except values.NotJson:
        raw = text.strip()
    if isinstance(raw, dict) and len(raw) == 1:
        raw = {"cancelled": "cancel"}.get(raw["status"]) if "status" in raw else raw.get("decision", raw.get("action"))
    return raw if isinstance(raw, str) and raw in opened.options else None


def _read_form_values(opened: PendingOpened, answer: PendingAnswer) -> Json:
    schema = form_of(opened)
    assert schema is not None, "an ask has a form"
    if answer.values is not msgspec.UNSET:
        value = _check_json(opened, answer.values)
    elif answer.content is not None:
        value = _parse_form(opened, schema, _parse_object(opened, answer.content))
    else:
        raise answer_refusal(opened, "expected the values of the form: {values}.")
    return _validate(opened, schema, schema.with_defaults(value))


def _parse_form(opened: PendingOpened, schema: Schema, posted: dict[str, Json]) -> Json:
    """The form's values in an answer that a frontend wrote: `{values, digest?}`, or the values themselves. A digest is
    checked, unless the form has a field of that name. Raises Rejected(422), also where the answer says that the
    question was dismissed: a form is filled in, or stays open."""
    fields = schema.raw.get("properties", {})
    if posted.keys() == {"status"} and posted["status"] == "cancelled" and "status" not in fields:
        raise answer_refusal(opened, "a form can't be cancelled; expected its values.")
    if "digest" in posted and "digest" not in fields:
        _demand_digest(opened, posted["digest"])
        posted = {name: value for name, value in posted.items() if name != "digest"}
    if "values" in posted and "values" not in fields:
        _demand_members(opened, posted, ("values", "digest"))
        return posted["values"]
    return posted


def _parse_json(opened: PendingOpened, text: str) -> Json:
    """The JSON value that a frontend wrote as text. Raises values.NotJson; Rejected(422) where a key stands twice in
    one object, since only one of its values would count."""
    value = values.loads(text)
    if (name := values.find_repeated_key(text)) is not None:
        raise answer_refusal(opened, f"the key {values.storable(name[:120])!r} stands twice in one object.")
    return _check_json(opened, value)


def _parse_object(opened: PendingOpened, text: str) -> dict[str, Json]:
    try:
        value = _parse_json(opened, text)
    except values.NotJson as error:
        raise answer_refusal(opened, f"{error}.") from None
    if not isinstance(value, dict):
        raise answer_refusal(opened, f"expected a JSON object with the form's values, found {text[:80]!r}.")
    return value


_CHOICE_KEYS: Final = ("decision", "reason", "values", "edits", "editedArgs", "digest")


def _choice(pending: PendingState, answer: PendingAnswer) -> tuple[str, Json, str | None, dict[str, Json] | None]:
    opened = pending.opened
    choice = _parse_choice(opened, answer)
    decision, reason = choice.get("decision"), choice.get("reason")
    _demand_members(opened, choice, _CHOICE_KEYS)
    if decision not in opened.options:
        raise answer_refusal(opened, f"expected decision {' or '.join(opened.options)}, found {decision!r}.")
    if reason is not None and not isinstance(reason, str):
        raise answer_refusal(opened, "expected the reason as text.")
    _demand_digest(opened, choice.get("digest"))
    edits = _edits_of(pending, choice)
    if edits is not None and decision != votes.APPROVE:
        raise answer_refusal(opened, f"edits are part of an approval, found them with {decision}.")
    if edits is not None and not isinstance(edits, dict):
        raise answer_refusal(
            opened, "expected the edits as an object: argument name or JSON Pointer, and its new value."
        )
    if decision in votes.derive_rules(pending).reasons and not (reason or "").strip():
        raise answer_refusal(opened, f"{decision} needs a reason: say why in `reason`.")
    return decision, _read_values_of_choice(opened, decision, choice.get("values")), reason, edits or None


def _edits_of(pending: PendingState, given: dict[str, Json]) -> Json:
    """The edits of a decision. They stand in `edits`, or follow from `editedArgs`, AG-UI's word for all arguments as
    they are to be: the edits are those that differ from the arguments that the question was opened with, so that a
    repeated answer stays equal, even if its edits have been made since."""
    edits, edited = given.get("edits"), given.get("editedArgs")
    if edited is None:
        return edits
    opened = pending.opened
    if edits is not None:
        raise answer_refusal(opened, "expected edits or editedArgs, found both.")
    args = values.loads(opened.args) if opened.args is not None else {}
    if not isinstance(edited, dict) or not isinstance(args, dict):
        raise answer_refusal(opened, "expected all arguments in editedArgs, as an object.")
    missing = args.keys() - edited.keys()
    if missing:
        raise answer_refusal(
            opened,
            f"editedArgs are all arguments, found none of {', '.join(sorted(missing))}; "
            "send all of them, or only those that change as `edits`.",
        )
    edited_before = {parse_pointer(name)[0] if name.startswith("/") else name for name in pending.edits or {}}
    changed = {
        name: value
        for name, value in edited.items()
        if name not in args or args[name] != value or name in edited_before
    }
    return changed or None


def _read_values_of_choice(opened: PendingOpened, decision: str, given: Json) -> Json:
    """The values that go with a choice. An approval fills in the whole form; with any other option the values given
    must fit, but none must be: a form asks for the needs of an approval."""
    form = form_of(opened)
    if form is None:
        if given is not None:
            raise answer_refusal(opened, "values were sent, but this approval has no form.")
        return None
    if decision == votes.APPROVE:
        chosen = _validate(opened, form, form.with_defaults({} if given is None else given))
    elif given is None:
        return None
    else:
        loose = {name: part for name, part in form.raw.items() if name != "required"}
        chosen = _validate(opened, compile_cached(values.dumps(loose)), given)
    if not isinstance(chosen, dict):
        raise answer_refusal(opened, "expected the values of the form as an object.")
    return chosen


def _parse_choice(opened: PendingOpened, answer: PendingAnswer) -> dict[str, Json]:
    """`{decision, reason?, values?}` from whichever of the accepted spellings was sent (docs/language.md#people)."""
    if answer.decision is not None:
        choice: dict[str, Json] = {"decision": answer.decision}
        if answer.reason is not None:
            choice["reason"] = _check_json(opened, answer.reason)
        if answer.values is not msgspec.UNSET:
            choice["values"] = _check_json(opened, answer.values)
        if answer.edits is not msgspec.UNSET:
            choice["edits"] = _check_json(opened, answer.edits)
        return choice
    if answer.content is not None:
        raw: Json = answer.content
        with suppress(values.NotJson):
            raw = _parse_json(opened, answer.content)
    elif answer.result is not msgspec.UNSET:
        raw = _check_json(opened, answer.result)
    else:
        raise answer_refusal(opened, "expected a decision: {decision, reason?, values?, edits?, digest?}.")
    return _read_object_of_answer(opened, raw)


_WORDS: Final = {
    **dict.fromkeys(("true", "confirmed", "approved", "yes"), votes.APPROVE),
    **dict.fromkeys(("false", "rejected", "denied", "cancelled", "canceled", "no"), votes.REJECT),
}
"""Answers of frontends that know of `confirmAction` only that something is to be confirmed, in any case."""


def _read_object_of_answer(opened: PendingOpened, raw: Json) -> dict[str, Json]:
    if raw is True:
        return {"decision": votes.APPROVE}
    if raw is False:
        return {"decision": votes.REJECT}
    if isinstance(raw, str):
        word = raw.strip().lower()
        if word in _WORDS and word not in opened.options:  # an author's own option is chosen as a decision only
            return {"decision": _WORDS[word]}
    if isinstance(raw, dict):
        if "decision" in raw:
            return raw
        if raw.get("status") == "cancelled":
            return {"decision": votes.REJECT, **{key: item for key, item in raw.items() if key != "status"}}
        approved = raw.get("approved")
        if approved is True or approved is False or approved in ("true", "false"):  # but not 1, which equals True
            rest = {key: item for key, item in raw.items() if key != "approved"}
            return {"decision": "approve" if approved is True or approved == "true" else "reject", **rest}
    raise answer_refusal(opened, "expected yes, no, {approved}, or {decision, reason?, values?, edits?, digest?}.")


# --- doubts -----------------------------------------------------------------------------------------------------------


def _read_settlement(opened: PendingOpened, answer: PendingAnswer) -> tuple[str, Json, str | None]:
    """The fate of a call, as an operator tells it: it happened, with this result; do it again; or fail."""
    fields: dict[str, Json] = {"decision": answer.decision, "reason": answer.reason}
    if answer.result is not msgspec.UNSET:
        fields["result"] = answer.result
    if answer.decision is None:
        raw = _parse_object(opened, answer.content) if answer.content is not None else fields.get("result")
        fields = raw if isinstance(raw, dict) else {}
    _check_json(opened, fields)
    _demand_members(opened, fields, ("decision", "reason", "result", "digest"))
    _demand_digest(opened, fields.get("digest"))
    decision, reason = fields.get("decision"), fields.get("reason")
    if decision not in opened.options:
        raise answer_refusal(opened, f"expected decision {' or '.join(opened.options)}, found {decision!r}.")
    if reason is not None and not isinstance(reason, str):
        raise answer_refusal(opened, "expected the reason as text.")
    if decision == HAPPENED and "result" not in fields:
        raise answer_refusal(opened, "it happened, with what result? Add {result} (null, if it gives none).")
    return decision, fields.get("result") if decision == HAPPENED else None, reason


# --- edits ------------------------------------------------------------------------------------------------------------


def _apply_edits(
    pending: PendingState, tool: FrontendTool | None, schema: Schema | None, edits: dict[str, Json]
) -> str:
    """The arguments with `edits` in them, as JSON text. Raises Rejected(422)."""
    opened = pending.opened
    args = values.loads(opened.args or "{}")
    allowed = votes.derive_rules(pending).edit
    pointers = {_pointer(name): value for name, value in edits.items()}
    if len(pointers) != len(edits):
        raise answer_refusal(opened, "expected each edit once, found one by its name and by its pointer.")
    names_allowed = {_pointer(name) for name in allowed} if isinstance(allowed, tuple) else ()
    for pointer, value in pointers.items():
        if (outer := _find_outer(pointer, pointers)) is not None:
            raise answer_refusal(opened, f"{pointer} is a part of {outer}, which is edited too; send one of them.")
        if allowed is not True and pointer not in names_allowed:
            listed = ", ".join(allowed or ()) or "none"
            raise answer_refusal(opened, f"{pointer} may not be edited; what may: {listed}.")
        parent, key = _find_place(opened, args, pointer)
        before = parent[key]
        if tool is None and _describe_json_type(before) != _describe_json_type(value):
            raise answer_refusal(
                opened,
                f"{pointer}: expected {_describe_json_type(before)} as before, found {_describe_json_type(value)}.",
            )
        parent[key] = value  # in the arguments as they were read here: thousands of edits make no thousand copies
    if tool is not None and tool.parameters is not None:
        _validate(opened, tool.parameters, args)
    elif schema is not None and (findings := schema.fit(args)[1]):
        before = schema.fit(values.loads(opened.args or "{}"))[1]
        if wrong := [fault for fault in findings if fault not in before]:
            raise answer_refusal(opened, "the edited arguments do not fit the tool.", wrong)
    return values.dumps(args).decode()


def _pointer(name: str) -> str:
    """An argument's name, or a JSON Pointer into the arguments, as a pointer."""
    return pointer_of(*parse_pointer(name)) if name.startswith("/") else pointer_of(name)


def _find_outer(pointer: str, pointers: Mapping[str, Json]) -> str | None:
    """The one of `pointers` that names something around what `pointer` names; None: there is none."""
    outer = pointer.rpartition("/")[0]
    while outer and outer not in pointers:
        outer = outer.rpartition("/")[0]
    return outer or None


def _find_place(opened: PendingOpened, args: Json, pointer: str) -> tuple[Any, Any]:
    """The object or list, and the name or position in it, of what `pointer` names: an edit replaces, it never adds."""
    parent: Any = None
    key: Any = None
    node = args
    for part in parse_pointer(pointer):
        parent, key = node, find_key(node, part)
        if key is None:
            raise answer_refusal(opened, f"there is no argument {pointer:.200} to edit.")
        node = parent[key]
    return parent, key


def _describe_json_type(value: Json) -> str:
    for kind, name in _JSON_TYPES:
        if isinstance(value, kind):
            return name
    return "null"


_JSON_TYPES: Final = ((bool, "boolean"), (int | float, "number"), (str, "string"), (list, "array"), (dict, "object"))


def map_edits_by_name(edits: dict[str, Json]) -> dict[str, Json]:
    """`edits` as the envelope shows them: an argument by its name, a value deeper inside by its pointer."""
    by_name: dict[str, Json] = {}
    for name, value in edits.items():
        parts = parse_pointer(name) if name.startswith("/") else [name]
        by_name[parts[0] if len(parts) == 1 else name] = value
    return by_name
