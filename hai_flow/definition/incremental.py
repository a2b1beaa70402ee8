"""Takes the steps that an editor has not changed from the plan before. A step at the top follows from its own text,
from the document without its steps, from the names and steps visible at its place, and from the answers about Python
modules and child workflows. One with a finding is compiled anew each time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from hai_flow.definition import plan
from hai_flow.definition.expressions.evaluation import Guards
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_APART: Final = frozenset({"steps", "name", "version", "title", "description", "summary", "output"})
"""Keys of a document that no step depends on as a whole."""
_ALIAS: Final = re.compile(r"(?:^|[\s\[{,])[*&][A-Za-z0-9_]", re.MULTILINE)

_Compile: TypeAlias = Callable[[StepContext, StepDraft, Names], Guards]


class CompiledDraft(msgspec.Struct, frozen=True):
    """A step with all inside, the steps of the plan that it became (each with its order behind the first), the facts
    behind it (`denials`), and all that this followed from."""

    draft: StepDraft
    line: int
    text: str
    words: frozenset[str]
    place: tuple[Any, ...]
    answers: tuple[tuple[str, tuple[Any, ...], Any], ...]
    steps: tuple[tuple[plan.Step, int], ...]
    denials: Guards


class UnchangedSteps:
    """The steps at the top of one text. `before`: those of an earlier text of the same file, which are used again."""

    def __init__(self, context: StepContext, types: Types, before: UnchangedSteps | None) -> None:
        document, tops = context.reader.document, context.outline.steps
        self._types = types
        self._around = (
            {key: value for key, value in document.value.items() if key not in _APART},
            context.outline.fail_codes,
            context.outline.tolerated,
            context.used,
        )
        self._tops = {step.id: top for top in tops for step in (top, *top.inside())}
        self._texts: dict[str, str] = {}  # by the path of the step
        lines = document.text.split("\n")
        begins = [document.position(draft.at)[0] for draft in tops]
        faulty = {finding.line for finding in (*document.findings, *context.reader.findings)}
        for draft, begin, end in zip(tops, begins, (*begins[1:], len(lines) + 1), strict=False):
            text = "\n".join(lines[begin - 1 : end - 1])
            if text and faulty.isdisjoint(range(begin, end)) and _ALIAS.search(text) is None:
                self._texts[draft.path] = text
        if len(set(begins)) < len(begins):  # several steps on one line
            self._texts.clear()
        self._before = before.compiled if before is not None and before._around == self._around else {}
        self.compiled: dict[str, CompiledDraft] = {}

    def compile(self, context: StepContext, compile_step: _Compile, draft: StepDraft, names: Names) -> Guards:
        """Put the steps of a draft into the plan, compiled by `compile_step` where they have to be. Returns the facts
        behind it."""
        text = self._texts.get(draft.path)
        if text is None:
            return compile_step(context, draft, names)
        earlier = self._before.get(draft.path)
        if earlier is not None and self._is_unchanged(context, earlier, text, draft, names):
            self._reuse(context, earlier, draft)
            return earlier.denials
        return self._compile(context, compile_step, text, draft, names)

    def _is_unchanged(
        self, context: StepContext, earlier: CompiledDraft, text: str, draft: StepDraft, names: Names
    ) -> bool:
        return (
            earlier.text == text
            and earlier.draft.fields == draft.fields
            and earlier.place == self._place(earlier.words, draft, names)
            and all(getattr(context, kind)(*arguments) == answer for kind, arguments, answer in earlier.answers)
        )

    def _reuse(self, context: StepContext, earlier: CompiledDraft, draft: StepDraft) -> None:
        moved = draft.line - earlier.line
        for step, behind in earlier.steps:
            here = replace(step, line=step.line + moved) if moved else step
            context.add(here, 2 * draft.order + behind)
        for one, other in zip(_with_inside(draft), _with_inside(earlier.draft), strict=True):
            one.condition, one.conditions = other.condition, other.conditions
            one.key, one.cases, one.facts = other.key, other.cases, other.facts
        self.compiled[draft.path] = earlier

    def _compile(
        self, context: StepContext, compile_step: _Compile, text: str, draft: StepDraft, names: Names
    ) -> Guards:
        answers = list[tuple[str, tuple[Any, ...], Any]]()
        findings, steps = len(context.reader.findings), len(context.steps)
        modules, children = context.modules, context.children

        def note(kind: str, ask: Callable[..., Any]) -> Callable[..., Any]:
            def answer(*arguments: Any) -> Any:
                answers.append((kind, arguments, ask(*arguments)))
                return answers[-1][2]

            return answer

        context.modules, context.children = note("modules", modules), note("children", children)
        try:
            denials = compile_step(context, draft, names)
        finally:
            context.modules, context.children = modules, children
        if len(context.reader.findings) == findings:
            words = frozenset(_WORD.findall(text))
            added = list(context.steps.values())[steps:]
            self.compiled[draft.path] = CompiledDraft(
                draft,
                draft.line,
                text,
                words,
                self._place(words, draft, names),
                tuple(answers),
                tuple((step, context.order(step) - 2 * draft.order) for step in added),
                denials,
            )
        return denials

    def _place(self, words: frozenset[str], draft: StepDraft, names: Names) -> tuple[Any, ...]:
        """The place of a step, and the types there of each step that one of its words may name."""
        types = self._types
        tables: Sequence[Mapping[str, Any]] = (types.outputs, types.approvals, types.results)
        steps = []
        for id in sorted(words & self._tops.keys()):
            top = self._tops[id]
            text = None if top is draft else self._texts.get(top.path, object())  # object(): like no other
            outputs = [table.get(id) for table in tables]
            steps.append(
                (id, top.path, top.order < draft.order, text, outputs, id in types.ungated, id in types.mindless)
            )
        return draft.id, draft.next, names.roots, names.guarded, dict(names.types.roots), steps


def _with_inside(draft: StepDraft) -> Iterator[StepDraft]:
    yield draft
    yield from draft.inside()
