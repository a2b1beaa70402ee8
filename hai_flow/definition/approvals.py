"""People: `approve`, the gate `approval` and `ask`, compiled to a policy (docs/language.md#people)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from hai_flow.definition import plan
from hai_flow.definition.document import Path, kind_of, shorten, suggestion
from hai_flow.definition.expressions import CompiledTemplate, Names
from hai_flow.definition.names import name_fault
from hai_flow.definition.pieces import Pieces, is_hole, texts
from hai_flow.definition.reference import SHAPES

Json: TypeAlias = Any
Kind: TypeAlias = Literal["approve", "approval", "ask"]

OPTIONS: Final = ("approve", "reject")
_HANDLERS: Final = ("catch", "finally", "undo")  # an option's handler stands at `~option`, as these do
_SELECTOR: Final = re.compile(r"(user|role|group):.+|requester|anyone")
_CHANNEL: Final = re.compile(r"[a-z][a-z0-9_+-]*(:\S.*)?")
_HOLED: Final = ("default", "enum", "const", "title", "description", "minimum", "maximum")
_COMBINE: Final = ("same", "min", "max", "first", "last", "list", "any", "all")
_REASONS: Final = ("required", "optional")
_OUTCOMES: Final[dict[Kind, tuple[str, ...]]] = {
    "approve": ("reject", "fail", "approve"),
    "approval": ("reject", "fail", "approve"),
    "ask": ("fail", "default"),
}
_REQUESTER: Final = "requester"


@dataclass(frozen=True, slots=True)
class _Panel:
    """Who may decide, as far as literals say. `people` None: nobody can list them."""

    selectors: tuple[str, ...]
    people: frozenset[str] | None
    excluded: frozenset[str]

    @property
    def deciders(self) -> frozenset[str]:
        return (self.people or frozenset()) - self.excluded


class Approvals(Pieces):
    """Compiles policies."""

    def ask(self, value: Json, at: Path, names: Names) -> plan.Ask | None:
        fields = self.reader.fields(SHAPES["ask"], value, at, "`ask`")
        title = self.text(fields, "title", at, names)
        message = self.text(fields, "message", at, names)
        policy = self.policy("ask", fields, at, names)
        if title is None or policy is None or policy.form is None:
            return None
        return plan.Ask(title, message, policy)

    def approve(self, value: Json, at: Path, names: Names) -> plan.Approve | None:
        fields = self.reader.fields(SHAPES["approve"], value, at, "`approve`")
        title = self.text(fields, "title", at, names)
        message = self.text(fields, "message", at, names)
        evidence = self.template(fields["evidence"], (*at, "evidence"), names) if "evidence" in fields else None
        policy = self.policy("approve", fields, at, names)
        if title is None or policy is None:
            return None
        return plan.Approve(title, message, evidence, policy)

    def approval(self, value: Json, at: Path, names: Names, arguments: Sequence[str] | None) -> plan.Approval | None:
        """A gate. `arguments`: the names that `edit` may have; None where they are not known."""
        names = names.with_roots("args")
        fields = self.reader.fields(SHAPES["approval"], value, at, "`approval`")
        when = self.condition(fields["when"], (*at, "when"), names) if "when" in fields else None
        title = self.text(fields, "title", at, names)
        message = self.text(fields, "message", at, names)
        self._check_edit(fields, at, arguments)
        policy = self.policy("approval", fields, at, names)
        return plan.Approval(policy, when, title, message) if policy is not None else None

    def _check_edit(self, fields: Mapping[str, Json], at: Path, arguments: Sequence[str] | None) -> None:
        edit = fields.get("edit", False)
        for index, name in enumerate(edit if isinstance(edit, list) else ()):
            top = name.split("/")[1] if name.startswith("/") else name
            if arguments is not None and top.replace("~1", "/").replace("~0", "~") not in arguments:
                hint = suggestion(top, arguments) or f"; it has {', '.join(arguments) or 'none'}"
                message = f"expected an argument of this step in `edit`, found `{name}`{hint}"
                self.reader.error((*at, "edit", index), "approval.edit", message)

    # -- the policy ------------------------------------------------------------------------------------------------

    def policy(self, kind: Kind, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Policy | None:
        """The policy of one of the three; None after a finding."""
        form, schema = self._form(fields, at, names)
        escalations, expiry = self._on_deadline(kind, fields, at, names)
        deadline = self.duration(fields, "deadline", at, names) or self.default_deadline
        notify = self.notify(fields, at, names)
        remind = self._remind(fields, at, names)
        if "from" not in fields and kind != "ask":
            return None
        from_ = self._selectors(fields.get("from", [_REQUESTER]), (*at, "from"), names)
        exclude = None
        if "exclude" in fields:
            exclude = self._selectors(fields["exclude"], (*at, "exclude"), names, extra=("editor",), empty=True)
        quorum = self._quorum(fields, at, names)
        options = self._options(fields, at)
        reasons = self._reasons(fields, at, options)
        self._check_combine(fields, at, schema)
        self._check_reject_when(fields, at)
        self._check_deciders(kind, fields, at, quorum)
        edit = fields.get("edit", False)
        return plan.Policy(
            from_,
            deadline,
            expiry,
            exclude=exclude,
            quorum=quorum if quorum is not None else 1,
            reject_when=fields.get("reject_when", "any"),
            options=options,
            edit=tuple(edit) if isinstance(edit, list) else edit,
            form=form,
            combine=fields.get("combine", {}),
            reasons=reasons,
            notify=notify,
            remind=remind,
            escalations=escalations,
            pause_clock=fields.get("pause_clock", "run"),
        )

    def notify(self, fields: Mapping[str, Json], at: Path, names: Names) -> tuple[plan.Template, ...]:
        """The texts of `notify`. Nothing sends to them yet: who writes them must not wait for that."""
        texts = fields.get("notify", ())
        strange = [index for index, text in enumerate(texts) if "${{" not in text and not _CHANNEL.fullmatch(text)]
        for index in strange:
            found = shorten(texts[index])
            message = f"expected a channel, or channel:whom, such as `email` or `slack:#finance`, found `{found}`"
            self.reader.warning((*at, "notify", index), "notify.channel", message)
        if texts and not strange:
            message = (
                "nothing is sent to these yet. They stand in the run's log, in the events `pending_opened` (`policy`), "
                "`pending_reminded` and `pending_escalated`: a program of yours that follows it can tell them, and "
                "/v1/pendings lists what is open"
            )
            self.reader.warning((*at, "notify"), "notify.unsent", message, key=True)
        return tuple(self.template(text, (*at, "notify", index), names, text=True) for index, text in enumerate(texts))

    def _remind(self, fields: Mapping[str, Json], at: Path, names: Names) -> tuple[plan.Duration, ...]:
        found = (
            self.duration_of(text, (*at, "remind", index), names) for index, text in enumerate(fields.get("remind", ()))
        )
        return tuple(duration for duration in found if duration is not None)

    def _options(self, fields: Mapping[str, Json], at: Path) -> tuple[str, ...]:
        options = fields.get("options", list(OPTIONS))
        at = (*at, "options")
        missing = [option for option in OPTIONS if option not in options]
        if missing:
            message = (
                f"expected `approve` and `reject` among the options (both must be possible), `{missing[0]}` is missing"
            )
            self.reader.error(at, "approve.options", message)
        for index, option in enumerate(options):
            if option in options[:index]:
                self.reader.error((*at, index), "approve.options", f"the option `{option}` is there twice; remove one")
            elif option in _HANDLERS:
                message = f"`{option}` is a key of steps and can't be an option; choose another word"
                self.reader.error((*at, index), "approve.options", message)
            elif fault := name_fault(option):
                self.reader.error((*at, index), "name.invalid", f"an option: {fault}")
        return tuple(options)

    def _reasons(self, fields: Mapping[str, Json], at: Path, options: Sequence[str]) -> frozenset[str]:
        """The options whose answer must say why."""
        reasons = fields.get("reasons", {})
        for option, word in reasons.items():
            place = (*at, "reasons", option)
            if option not in options:
                hint = suggestion(option, options) or f"; it has {', '.join(options)}"
                self.reader.error(place, "reasons.unknown", f"there is no option `{option}`{hint}", key=True)
            elif word not in _REASONS:
                message = f"expected `required` or `optional`, found {kind_of(word)}"
                self.reader.error(place, "reasons.word", message)
        return frozenset(option for option, word in reasons.items() if word == "required")

    # -- form ------------------------------------------------------------------------------------------------------

    def _form(
        self, fields: Mapping[str, Json], at: Path, names: Names
    ) -> tuple[CompiledTemplate | None, dict[str, Json] | None]:
        """The template of the form, and what is literal of it; None and None without one, or after a finding."""
        if "form" not in fields:
            return None, None
        form, place = fields["form"], (*at, "form")
        if form.get("type", "object") != "object":
            message = f"expected a form with `type: object`, found `{form['type']}`; put it under `properties`"
            self.reader.error((*place, "type"), "form.type", message)
            return None, None
        clean = True
        literal = literal_form(form)
        for path, text in texts(literal, ()):
            if "${{" in text.replace("$${{", ""):
                clean = False
                message = f"a form's holes can stand in {', '.join(_HOLED)} only; write this out"
                self.reader.error((*place, *path), "schema.hole", message)
        if not clean or self.compiled_schema(literal, place) is None:
            return None, None
        return self.template({"type": "object", **form}, place, names), literal

    def _check_combine(self, fields: Mapping[str, Json], at: Path, form: Mapping[str, Json] | None) -> None:
        combine = fields.get("combine", {})
        if combine and "form" not in fields:
            self.reader.error(
                (*at, "combine"), "combine.form", "`combine` needs a `form`: it joins its values", key=True
            )
            return
        properties = (form or {}).get("properties", {})
        for name, word in combine.items():
            place = (*at, "combine", name)
            if form is not None and name not in properties:
                hint = suggestion(name, properties) or f"; it has {', '.join(properties) or 'none'}"
                message = f"the form has no property `{name}`{hint}"
                self.reader.error(place, "combine.unknown", message, key=True)
            elif word not in _COMBINE:
                hint = suggestion(word, _COMBINE) if isinstance(word, str) else ""
                message = f"expected one of {', '.join(_COMBINE)}, found {kind_of(word)}{hint}"
                self.reader.error(place, "combine.word", message)
            else:
                self._check_combine_type(word, properties.get(name), place)

    def _check_combine_type(self, word: str, schema: Json, at: Path) -> None:
        wanted = {"min": ("number", "integer"), "max": ("number", "integer"), "any": ("boolean",), "all": ("boolean",)}
        given = schema.get("type") if isinstance(schema, Mapping) else None
        if isinstance(given, str) and word in wanted and given not in wanted[word]:
            message = f"`{word}` combines values of `type: {wanted[word][0]}`, found `{given}`; use `same` or `list`"
            self.reader.error(at, "combine.type", message)

    # -- who -------------------------------------------------------------------------------------------------------

    def _selectors(
        self, value: Json, at: Path, names: Names, extra: Sequence[str] = (), empty: bool = False
    ) -> CompiledTemplate:
        """A selector or a list of them, as a template of a list (a whole hole may give the list itself)."""
        whole = isinstance(value, str) and is_hole(value)
        items = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not value and not empty:
            message = "expected at least one selector such as `role:manager`, found an empty list"
            self.reader.error(at, "selector.none", message)
        for index, item in enumerate(items):
            self._check_selector(item, (*at, index) if isinstance(value, list) else at, extra)
        if whole or isinstance(value, list):
            return self.template(value, at, names)
        return self.template([value], at, names, wrapped=True)

    def _check_selector(self, item: Json, at: Path, extra: Sequence[str] = (), *, key: bool = False) -> None:
        if isinstance(item, str) and (("${{" in item and not key) or _SELECTOR.fullmatch(item) or item in extra):
            if item.startswith("role:") and self.roles and item[5:] not in self.roles:
                self._doubt_role(item[5:], at, key=key)
            return
        words = (_REQUESTER, "anyone", *extra)
        hint = suggestion(item, words) if isinstance(item, str) and len(item) > 4 else ""  # `ann` is no `anyone`
        if isinstance(item, str) and not hint:
            hint = _selector_hint(item)
        message = f"expected user:ID, role:NAME, group:NAME, {', '.join(words)}, found {kind_of(item)}{hint}"
        self.reader.error(at, "selector.invalid", message, key=key)

    def _doubt_role(self, name: str, at: Path, *, key: bool) -> None:
        """Roles that `roles` does not have come from the deployment: only a near match is worth a word."""
        hint = suggestion(name, self.roles)
        if hint:
            self.reader.warning(at, "role.unknown", f"`roles` has no `{name}`{hint}", key=key)

    def _check_reject_when(self, fields: Mapping[str, Json], at: Path) -> None:
        value = fields.get("reject_when", "any")
        if value in ("any", "unreachable") if isinstance(value, str) else (type(value) is int and value >= 1):
            return
        message = f"expected `any`, `unreachable` or a number from 1, found {kind_of(value)}"
        self.reader.error((*at, "reject_when"), "reject_when.invalid", message)

    def _quorum(self, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Quorum | plan.Template | None:
        """The quorum; None where there is none, or after a finding."""
        quorum = fields.get("quorum")
        if "quorum" not in fields:
            return None
        at = (*at, "quorum")
        if isinstance(quorum, str) and is_hole(quorum):
            return self._quorum_hole(quorum, at, names)
        if type(quorum) is int and quorum >= 1:
            return quorum
        if quorum == "all":
            return "all"
        if isinstance(quorum, Mapping) and quorum and all(type(n) is int and n >= 1 for n in quorum.values()):
            for selector in quorum:
                if selector != "any":
                    self._check_selector(selector, (*at, selector), key=True)
            return quorum
        place, found = at, quorum
        if isinstance(quorum, Mapping) and quorum:
            key = next(key for key, n in quorum.items() if type(n) is not int or n < 1)
            place, found = (*at, key), quorum[key]
        message = f"expected a number from 1, `all` or a mapping of such numbers by selector, found {kind_of(found)}"
        self.reader.error(place, "quorum.invalid", message)
        return None

    def _quorum_hole(self, quorum: str, at: Path, names: Names) -> plan.Template | None:
        known = names.type_of(quorum)
        if known not in (None, "integer", "number", "string"):
            message = f"expected a hole that gives a number or `all`, found something of type {known}"
            self.reader.error(at, "quorum.invalid", message)
            return None
        return self.template(quorum, at, names)

    # -- whether anybody can ---------------------------------------------------------------------------------------

    def _panel(self, fields: Mapping[str, Json]) -> _Panel | None:
        """Who may decide; None where holes or mistakes hide it."""
        value = fields.get("from", [_REQUESTER])
        selectors = value if isinstance(value, list) else [value]
        exclude = fields.get("exclude")
        if exclude is None:
            exclude = [] if {_REQUESTER, "anyone"} & {s for s in selectors if isinstance(s, str)} else [_REQUESTER]
        excluded = exclude if isinstance(exclude, list) else [exclude]
        if not all(isinstance(s, str) and "${{" not in s for s in (*selectors, *excluded)) or not selectors:
            return None
        people: set[str] = set()
        for selector in selectors:
            members = self._members(selector)
            if members is None:
                return _Panel(tuple(selectors), None, frozenset())
            people |= members
        out = {person for selector in excluded for person in self._members(selector) or ()}
        return _Panel(tuple(selectors), frozenset(people), frozenset(out))

    def _members(self, selector: str) -> frozenset[str] | None:
        """The people a selector stands for, as `user:` selectors (or `requester`); None where nobody can list them."""
        if selector == _REQUESTER or selector.startswith("user:"):
            return frozenset((selector,))
        members = self.roles.get(selector[5:]) if selector.startswith("role:") else None
        if members is None or not all(member.startswith("user:") for member in members):
            return None
        return frozenset(members)

    def _check_deciders(self, kind: Kind, fields: Mapping[str, Json], at: Path, given: Any) -> None:
        place = (*at, "from") if "from" in fields else at
        quorum: Any = given if isinstance(given, int | str | Mapping) else None  # a hole says nothing yet
        panel = self._panel(fields)
        if panel is None:
            return
        if panel.people is None:
            self._check_open_panel(fields, at, panel, quorum)
        elif not panel.deciders:
            message = "nobody can decide this: everyone in `from` is excluded; name others, or set `exclude: []`"
            self.reader.warning(place, "approval.nobody", message)
        elif panel.selectors == (_REQUESTER,) and self.starts_alone is not None:
            message = (
                f"runs of the {self.starts_alone} trigger are started by `system`, so nobody can decide this; name "
                f"people or roles in `from`"
            )
            self.reader.warning(place, "approval.nobody", message, key="from" not in fields)
        elif quorum is not None and quorum != "all":
            self._check_quorum_possible(quorum, panel, (*at, "quorum"))

    def _check_open_panel(
        self, fields: Mapping[str, Json], at: Path, panel: _Panel, quorum: plan.Quorum | None
    ) -> None:
        if quorum == "all" and "anyone" in panel.selectors:
            message = "`quorum: all` needs people who can be listed, found `anyone` in `from`; write a number"
            self.reader.error((*at, "quorum"), "quorum.impossible", message)
        if fields.get("reject_when") == "unreachable":
            message = (
                "nobody can list the people of `from`, so the quorum never becomes unreachable and only the deadline "
                "ends this; declare the roles under `roles`, or use `any` or a number"
            )
            self.reader.warning((*at, "reject_when"), "approval.never_unreachable", message)

    def _check_quorum_possible(self, quorum: plan.Quorum, panel: _Panel, at: Path) -> None:
        deciders = panel.deciders
        if isinstance(quorum, int):
            if quorum > len(deciders):
                message = f"this quorum can't be met: it needs {quorum} people, `from` has {_people(len(deciders))}"
                self.reader.error(at, "quorum.impossible", f"{message}; lower it, or name more")
            return
        assert isinstance(quorum, Mapping), "`all` is always possible"
        seats: list[frozenset[str]] = []
        for selector, count in quorum.items():
            members = deciders if selector == "any" else self._members(selector)
            if selector == "any":
                if count > len(deciders):
                    message = f"this quorum can't be met: it needs {count} people, `from` has {_people(len(deciders))}"
                    self.reader.error((*at, "any"), "quorum.impossible", f"{message}; lower it, or name more")
                    return
                continue
            # Any of them may have a role that only the deployment knows.
            seats += [deciders if members is None else members & deciders] * min(count, len(deciders) + 1)
        if not _can_seat(seats):
            message = "this quorum can't be met: not enough people in `from` match its selectors; name more of them"
            self.reader.error(at, "quorum.impossible", message)

    # -- the deadline ----------------------------------------------------------------------------------------------

    def _on_deadline(
        self, kind: Kind, fields: Mapping[str, Json], at: Path, names: Names
    ) -> tuple[tuple[plan.Escalate, ...], plan.Expiry]:
        words = _OUTCOMES[kind]
        return self.on_deadline(fields, at, names, words, escalates=True)

    def on_deadline(
        self, fields: Mapping[str, Json], at: Path, names: Names, words: Sequence[str], *, escalates: bool
    ) -> tuple[tuple[plan.Escalate, ...], plan.Expiry]:
        """What `on_deadline` says: the stages, then the end, which is one of `words` (the first where it is silent)."""
        value = fields.get("on_deadline", words[0])
        at = (*at, "on_deadline")
        items = value if isinstance(value, list) else [value]
        escalations: list[plan.Escalate] = []
        expiry, word, place = None, "", at
        if not items:
            self.reader.error(at, "deadline.outcome", f"expected {_either(words)}, found an empty list")
        for index, item in enumerate(items):
            place = (*at, index) if isinstance(value, list) else at
            if expiry is not None:
                message = "nothing happens behind this: the entry before ends it; put `escalate` first"
                self.reader.error(place, "deadline.order", message)
                break
            word, body, inner = self._deadline_item(item, place, words, escalates)
            if word == "escalate":
                stage = self._escalate(body, inner, names)
                escalations += [stage] if stage else []
            elif word:
                expiry = self._expiry(word, body, inner, names)
        if escalations and expiry is None and word == "escalate":
            message = (
                f"nothing is said of what comes when this stage's deadline has passed, too: it is `{words[0]}`; write "
                f"it as the last entry"
            )
            self.reader.warning(place, "deadline.end", message)
        return tuple(escalations), expiry or plan.Expiry(words[0])  # type: ignore[arg-type]

    def _deadline_item(self, item: Json, at: Path, words: Sequence[str], escalates: bool) -> tuple[str, Json, Path]:
        """The word of one entry, what stands under it, and where; "" after a finding."""
        known = (*(("escalate",) if escalates else ()), *words)
        word, body, inner = item, None, at
        if isinstance(item, Mapping) and len(item) == 1:
            ((word, body),) = item.items()
            inner = (*at, word)
        if not isinstance(word, str) or word not in known:
            found = f"`{word}`" if isinstance(word, str) else kind_of(item)
            hint = suggestion(word, known) if isinstance(word, str) else ""
            several = isinstance(item, Mapping) and len(item) > 1
            hint = "; make it a list, one entry for each" if several else hint
            message = f"expected {_either(known)}, found {found}{hint}"
            self.reader.error(inner, "deadline.outcome", message, key=isinstance(item, Mapping) and inner != at)
            return "", None, at
        if word in ("escalate", "default") and not isinstance(item, Mapping):
            example = "escalate: {from: role:manager, deadline: 1d}" if word == "escalate" else "default: {...}"
            self.reader.error(at, "deadline.outcome", f"`{word}` says more: write `{example}`")
            return "", None, at
        return word, body, inner

    def _expiry(self, word: str, body: Json, at: Path, names: Names) -> plan.Expiry:
        if word == "approve":
            message = (
                "nobody's answer counts as approval here: when the deadline passes, the effect happens; prefer "
                "`reject` or `escalate`"
            )
            self.reader.warning(at, "approval.by_deadline", message, key=at[-1] == "approve")
        if word == "default":
            return plan.Expiry("default", value=self.template(body, at, names))
        reason = None
        if body is not None:
            shape = SHAPES["reject"] if word == "reject" else SHAPES["nothing"]
            fields = self.reader.fields(shape, body, at, f"`{word}`")
            reason = self.text(fields, "reason", at, names)
        return plan.Expiry(word, reason)  # type: ignore[arg-type]

    def _escalate(self, body: Json, at: Path, names: Names) -> plan.Escalate | None:
        fields = self.reader.fields(SHAPES["escalate"], body, at, "`escalate`")
        from_ = self._selectors(fields["from"], (*at, "from"), names) if "from" in fields else None
        exclude = None
        if "exclude" in fields:
            exclude = self._selectors(fields["exclude"], (*at, "exclude"), names, extra=("editor",), empty=True)
        quorum = self._quorum(fields, at, names)
        if "from" in fields:
            self._check_deciders("approve", fields, at, quorum)
        deadline = self.duration(fields, "deadline", at, names)
        if deadline is None:
            return None
        return plan.Escalate(
            deadline,
            from_,
            exclude,
            quorum,
            self.notify(fields, at, names) if "notify" in fields else None,
            self._remind(fields, at, names) if "remind" in fields else None,
        )


def literal_form(form: Mapping[str, Json]) -> dict[str, Json]:
    """The form without the values that have holes, which are filled in when it is opened."""
    literal = _without_holes({"type": "object", **form})
    return literal if isinstance(literal, dict) else {}


def _without_holes(value: Json, *, names: bool = False) -> Json:
    """`names`: the keys are not keywords but names of properties or definitions."""
    if isinstance(value, Mapping):
        return {
            key: _without_holes(item, names=not names and key in ("properties", "patternProperties", "$defs"))
            for key, item in value.items()
            if names or key not in _HOLED or not any("${{" in text for _, text in texts(item, ()))
        }
    if isinstance(value, list):
        return [_without_holes(item) for item in value]
    return value


def _can_seat(seats: Sequence[frozenset[str]]) -> bool:
    """Whether every seat can have a person of its own (augmenting paths)."""
    taken: dict[str, int] = {}

    def place(seat: int, tried: set[str]) -> bool:
        for person in sorted(seats[seat] - tried):
            tried.add(person)
            if person not in taken or place(taken[person], tried):
                taken[person] = seat
                return True
        return False

    return all(place(seat, set()) for seat in range(len(seats)))


def _selector_hint(item: str) -> str:
    kind, colon, name = item.partition(":")
    near = suggestion(kind, ("user", "role", "group")) if colon and name else ""
    if near:
        return near
    return f"; did you mean `user:{item}` or `role:{item}`?" if re.fullmatch(r"[\w.@-]+", item) else ""


def _people(count: int) -> str:
    return f"{count} {'person' if count == 1 else 'people'} who may"


def _either(words: Sequence[str]) -> str:
    shown = [f"`{word}`" for word in words]
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
