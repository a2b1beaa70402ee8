"""The outline of a document: every step with its shape, its path and its place, before any expression is read.

Even if a step is wrong, it is in the outline and declares its id, so that no reference to it is reported as well."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from hai_flow.definition.names.name_forms import SEEDED, check_name, suggest_name
from hai_flow.definition.names.wording import as_yaml, describe_odd_sign, kind_of, shorten, suggestion
from hai_flow.definition.raw_steps import LEAVING, Chain, Clause, Enclosure, Outline, StepDraft
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.language import SHAPES, STEP_KEYS, STEP_SHAPES, VERB_KEYS, VERBS
from hai_flow.definition.yaml.mapping_reader import NO_ELSE, Reader
from hai_flow.values import Json


def outline(reader: Reader, fields: Mapping[str, Json]) -> Outline:
    outliner = _Outliner(reader)
    result = outliner.found
    result.steps = outliner.steps(fields.get("steps", ()), ("steps",), "", ())
    result.catch = outliner.catch(fields, (), "", (), None)
    result.finally_ = outliner.finally_(fields, (), "", (), None)
    for draft in result.every:
        draft.line, _ = reader.document.position(draft.at)
    return result


class _Outliner:
    """One walk through the steps of a document, from the outside in."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.found = Outline(reader.document)
        self.order = 0
        self.is_seeded = isinstance(reader.document.value, Mapping) and reader.document.value.get("name") == SEEDED

    # -- lists -----------------------------------------------------------------------------------------------------

    def steps(self, value: Sequence[Json], at: Path, prefix: str, chain: Chain) -> list[StepDraft]:
        """The steps of one list. Every step gets a path and its id, also a wrong one."""
        drafts: list[StepDraft] = []
        counts: dict[str, int] = {}
        for index, raw in enumerate(value):
            drafts.append(self._step(raw, (*at, index), prefix, chain, counts))
        for draft, following in pairwise(drafts):
            draft.next = following.path
        return drafts

    def _step(self, raw: Json, at: Path, prefix: str, chain: Chain, counts: dict[str, int]) -> StepDraft:
        verb = self._verb(raw, at)
        raw_id = raw.get("id") if isinstance(raw, dict) else None
        imitated = raw_id if self.is_seeded and isinstance(raw_id, str) else None
        if imitated is not None and isinstance(raw, dict):
            raw = {key: value for key, value in raw.items() if key != "id"}
        word = verb or "step"
        counts[word] = counts.get(word, 0) + 1
        fields: dict[str, Json] = {}
        before = len(self.reader.findings)
        if verb:
            shape = self.reader.around[at] = STEP_SHAPES[verb]
            inside = {verb: VERB_KEYS[verb]}
            if isinstance(raw, dict) and "approval" in raw:
                inside["approval"] = frozenset(SHAPES["approval"].words)
            fields = self.reader.fields(shape, raw, at, shape.title, elsewhere=STEP_KEYS, inside=inside)
        usable = imitated is None and isinstance(raw_id, str) and check_name(raw_id) is None
        own = imitated or (raw_id if usable and isinstance(raw_id, str) else f"{word}#{counts[word]}")
        draft = self._add(verb, fields, at, f"{prefix}{own}", own, chain)
        if usable:
            self._declare(draft, at)
        elif isinstance(raw_id, str):
            self.found.tolerated.update((raw_id, suggest_name(raw_id)))
        if raw_id is None and isinstance(raw, dict) and isinstance(name := raw.get("name"), str):
            self.found.tolerated.update((name, suggest_name(name)))  # which other languages call the id
        if verb:
            self._inside(draft)
        draft.body_end = draft.body_end or self.order
        if not verb or len(self.reader.findings) > before:
            self.found.tolerated.update(_collect_ids(raw))
        return draft

    def _add(self, verb: str, fields: dict[str, Json], at: Path, path: str, own_id: str, chain: Chain) -> StepDraft:
        """A step in the outline, the next one in document order."""
        self.order += 1
        draft = StepDraft(verb, fields, at, path, own_id, chain, self.order, fields.get(verb), (*at, verb))
        self.found.every.append(draft)
        return draft

    def _declare(self, draft: StepDraft, at: Path) -> None:
        first = self.found.ids.setdefault(draft.id, draft)
        if first is not draft:
            line = self.reader.document.position((*first.at, "id"), key=True)[0]
            message = (
                f"the id `{draft.id}` is used twice (first at line {line}); ids are unique in the document, rename one"
            )
            self.reader.error((*at, "id"), "id.duplicate", message)

    def _verb(self, raw: Json, at: Path) -> str:
        """The step's verb; "" after a finding."""
        if not isinstance(raw, dict):
            message = f"expected a step (a mapping with one verb), found {kind_of(raw)}{_suggest_step(raw)}"
            self.reader.error(at, "step.type", message)
            return ""
        verbs = [key for key in raw if key in VERBS]
        if len(verbs) == 1:
            return verbs[0]
        if verbs:
            names = " and ".join(f"`{verb}`" for verb in verbs)
            remedy = f"make it {len(verbs)} steps"
            if "approve" in verbs and not {"call", "http", "run"}.isdisjoint(verbs):
                remedy = "people decide before a call by `approval: {from: ...}` beside it"
            message = f"expected exactly one verb in a step, found {names}; {remedy}"
            self.reader.error((*at, verbs[1]), "step.two_verbs", message, key=True)
            return ""
        self._report_no_verb(raw, at)
        return ""

    def _report_no_verb(self, raw: Mapping[str, Json], at: Path) -> None:
        strangers = [key for key in raw if key not in STEP_KEYS]
        if strangers:
            hints = {key: _suggest_for_stranger(key, raw) for key in strangers}
            key = next((key for key in strangers if hints[key]), strangers[0])
            hint = hints[key] or f"; the verbs are {_VERB_LIST}"
            message = f"expected exactly one verb in a step, found the unknown key `{key}`{hint}"
            self.reader.error((*at, key), "step.no_verb", message, key=True)
            return
        actual = f"only {', '.join(f'`{key}`' for key in raw)}" if raw else "nothing"
        hint = _IF if "if" in raw else f"the verbs are {_VERB_LIST}"
        message = f"expected exactly one verb in a step, found {actual}; {hint}"
        self.reader.error(at, "step.no_verb", message)

    # -- inside a step ---------------------------------------------------------------------------------------------

    def _inside(self, draft: StepDraft) -> None:
        """The lists inside a step: blocks, then handlers."""
        lists = VERBS[draft.verb].lists
        if lists is not None and draft.verb in draft.fields:
            lists(self, draft)
        draft.body_end = self.order + 1
        if draft.verb == "fail":
            parameters = draft.fields.get("fail")
            code = parameters.get("code") if isinstance(parameters, Mapping) else "fail"
            self.found.fail_codes.add(code if isinstance(code, str) else "fail")
        fields, prefix = draft.fields, f"{draft.path}/"
        if "on_decision" in fields or "on_reject" in fields:
            self._decisions(draft)
        if "catch" in fields:
            draft.catch = self.catch(fields, draft.at, prefix, draft.chain, draft)
        if "finally" in fields:
            draft.finally_ = self.finally_(fields, draft.at, prefix, draft.chain, draft)
        if "undo" in fields:
            draft.undo = self._undo(draft)

    def _decisions(self, draft: StepDraft) -> None:
        handlers: dict[str, tuple[Json, Path]] = {}
        for option, raw in draft.fields.get("on_decision", {}).items():
            handlers[option] = (raw, (*draft.at, "on_decision", option))
        if "on_reject" in draft.fields:
            if handlers:
                message = (
                    "expected `on_decision` or `on_reject`, found both; put the steps of `on_reject` under `reject` in "
                    "`on_decision`"
                )
                self.reader.error((*draft.at, "on_reject"), "decision.both", message, key=True)
            handlers.setdefault("reject", (draft.fields["on_reject"], (*draft.at, "on_reject")))
        for option, (raw, at) in handlers.items():
            steps = self.steps_of(raw, at, f"the handler of `{option}`")
            chain = (*draft.chain, Enclosure(draft, f"~{option}", draft.path))
            draft.handlers[option] = self.steps(steps, at, f"{draft.path}/~{option}/", chain)

    def steps_of(self, value: Json, at: Path, where: str) -> Sequence[Json]:
        """`value`, if it is a list of steps; else nothing, after a finding."""
        if isinstance(value, list) and value:
            return value
        actual = "an empty list" if value == [] else kind_of(value)
        hint = "; begin each step with `- `" if isinstance(value, Mapping) else ""
        self.reader.error(at, "shape.type", f"expected a list of steps in {where}, found {actual}{hint}")
        return ()

    def catch(
        self, fields: Mapping[str, Json], at: Path, prefix: str, chain: Chain, owner: StepDraft | None
    ) -> list[Clause]:
        clauses: list[Clause] = []
        for number, raw in enumerate(fields.get("catch", ())):
            place = (*at, "catch", number)
            clause_fields = raw
            if isinstance(raw, dict) and isinstance(raw.get("errors"), str):
                clause_fields = {**raw, "errors": [raw["errors"]]}
            if isinstance(raw, dict) and "steps" not in raw and len(raw.keys() & VERBS.keys()) == 1:
                message = "expected `errors` and `steps` in a `catch` clause, found a step; put it under `steps`"
                self.reader.error(place, "catch.step", message)
                self.found.tolerated.update(_collect_ids(raw))
                continue
            clause = self.reader.fields(SHAPES["catch"], clause_fields, place, "a `catch` clause")
            inner = (*chain, Enclosure(owner, f"~catch/{number}", owner.path if owner else ""))
            steps = self.steps(clause.get("steps", ()), (*place, "steps"), f"{prefix}~catch/{number}/", inner)
            clauses.append(Clause(clause, place, steps))
        return clauses

    def finally_(
        self, fields: Mapping[str, Json], at: Path, prefix: str, chain: Chain, owner: StepDraft | None
    ) -> list[StepDraft]:
        inner = (*chain, Enclosure(owner, "~finally", owner.path if owner else ""))
        return self.steps(fields.get("finally", ()), (*at, "finally"), f"{prefix}~finally/", inner)

    def _undo(self, draft: StepDraft) -> StepDraft | None:
        raw, at = draft.fields["undo"], (*draft.at, "undo")
        fields = self.reader.fields(SHAPES["undo"], raw, at, "`undo`")
        verbs = [verb for verb in ("call", "http", "run") if verb in raw]
        if len(verbs) != 1:
            if verbs or not raw.keys() - set(SHAPES["undo"].words):
                verbs_named = " and ".join(f"`{verb}`" for verb in verbs) or "none"
                message = f"expected one of `call`, `http`, `run` in `undo`, found {verbs_named}"
                self.reader.error((*at, verbs[1]) if verbs else at, "undo.kind", message, key=True)
            return None
        chain = (*draft.chain, Enclosure(draft, "~undo", draft.path))
        return self._add(verbs[0], fields, at, f"{draft.path}/~undo", "~undo", chain)


_SAID: Final = re.compile(r"(?P<verb>[a-z_]+)(\s*:\s*|\s+|$)(?P<rest>.*)", re.DOTALL)
_VERB_LIST = ", ".join(VERBS)
_OTHER_WORDS = {word: verb.name for verb in VERBS.values() for word in verb.aka}


_IF: Final = "`if` stands in the step that it is about, with the verb beside it"
_GROUPS: Final = ("then", "steps", "do", "tasks", "block", "group", "actions", "sequence")
_PROGRAMS: Final = (
    "shell", "script", "bash", "sh", "cmd", "command", "exec", "python", "node", "function", "lambda", "email", "mail",
    "slack", "notify", "sql",
)  # fmt: skip


def _suggest_step(raw: Json) -> str:
    """What to write in place of something that is no mapping."""
    if isinstance(raw, list):
        return "; drop one of the two `- `"
    if isinstance(raw, str) and (odd := describe_odd_sign(raw)) is not None:
        return f"; {odd}"
    words = _SAID.fullmatch(raw) if isinstance(raw, str) else None
    verb = "" if words is None else _OTHER_WORDS.get(words["verb"], words["verb"])
    if words is not None and verb in VERBS:
        rest = as_yaml(words["rest"]) if words["rest"] else "true" if verb in LEAVING else "..."
        return f"; write `- {verb}: {rest}`"
    if isinstance(raw, str) and re.fullmatch(r"[A-Za-z_][\w-]*\.[\w.-]+", raw):
        return f"; write `- call: {shorten(raw)}`"
    return "; write for example `- say: hello`"


def _suggest_for_stranger(word: str, raw: Mapping[str, Json]) -> str:
    """The hint for a key that is no verb; "" where nothing is known of it."""
    if word in _GROUPS:
        with_else = any(key in raw for key in ("else", "elif", "otherwise"))
        return f"; {NO_ELSE}" if with_else else f"; several steps together are `try: [...]`, in place of `{word}`"
    if word in ("else", "elif"):
        return f"; {NO_ELSE}"
    if word in _PROGRAMS:
        return "; that is a function of a tool: declare it under `tools`, and write `call: tool.function`"
    if word == "wait_until":
        return "; until something is so, write `repeat` with `until` and a `wait` inside; for an event, `wait_for`"
    value = raw[word]
    if isinstance(value, str) and value in VERBS:
        return f"; the verb is the key: write `{value}: ...`"
    other = _OTHER_WORDS.get(word)
    if other is not None:
        return f"; did you mean `{other}`?"
    near = suggestion(word, [verb for verb in VERBS if verb[0] == word[:1].lower()])
    if not near and isinstance(value, Mapping) and len(value.keys() & VERBS.keys()) == 1:
        verb = next(key for key in value if key in VERBS)
        return f"; a step's name is its `id`: write `id: {suggest_name(word)}`, and `{verb}` beside it"
    return near


def _collect_ids(value: Json) -> Iterable[str]:
    """Ids of all steps inside something that is not compiled."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "id" and isinstance(item, str):
                yield item
            else:
                yield from _collect_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _collect_ids(item)
