"""What an editor has not changed is not compiled again, and findings and steps are still those of the whole text."""

from __future__ import annotations

import gc
import random
import re
import weakref
from pathlib import Path
from typing import Any, Final

import pytest

from hai_flow.checking.modules import ModuleFiles
from hai_flow.definition.compiler import Earlier, read_workflow
from hai_flow.definition.names.known_names import Types
from hai_flow.definition.plan import Plan
from hai_flow.definition.step_context import StepContext
from hai_flow.errors import Finding
from hai_flow.lsp.analysis import Analyst
from tests.support.examples import by_night

ROOT: Final = Path(__file__).resolve().parents[2]
TEXTS: Final = [
    *(path.read_text() for path in sorted((ROOT / "workflows").rglob("*.flow.yaml"))),
    *(path.read_text() for path in sorted((ROOT / "tests/authoring/fourth_trial").glob("*.flow.yaml"))),
    *(path.read_text() for path in sorted((ROOT / "hai_flow/templates/recipes").glob("*.flow.yaml"))),
]


def read(text: str, modules: ModuleFiles, before: Earlier | None) -> tuple[list[Finding], Any, Earlier]:
    """The findings, what can be seen of the plan, and what a later text may use again."""
    noted: list[Earlier] = []

    def note(context: StepContext, types: Types) -> None:
        noted.append((context, types))

    compiled, findings = read_workflow(text.encode(), "a.flow.yaml", modules=modules.find, note=note, before=before)
    return findings, None if compiled is None else list_steps(compiled), noted[0] if noted else before or ()


def list_steps(compiled: Plan) -> list[Any]:
    return [
        (
            each.path,
            each.id,
            each.line,
            each.next,
            each.parent,
            type(each.verb),
            each.timeout,
            each.catch,
            each.handlers,
        )
        for each in compiled.steps.values()
    ]


def edit(text: str, chance: random.Random) -> str:
    """The text after one change, as hands make it."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    words = re.findall(r"[A-Za-z_]\w*", text)
    match chance.randrange(7):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines[at] = lines[at] + chance.choice((" ", "x", "  # a remark", ": 1"))
        case 3:
            lines[at] = re.sub(r"[A-Za-z_]\w*", chance.choice(words), lines[at], count=1)
        case 4:
            lines.insert(at, "# a remark")
        case 5:
            old = chance.choice(words)
            return re.sub(rf"\b{old}\b", chance.choice((chance.choice(words), f"{old}x")), text)
        case _:
            first, last = sorted(chance.sample(range(len(lines) + 1), 2))
            last = min(last, first + 4)
            moved = lines[first:last]
            del lines[first:last]
            there = chance.randrange(len(lines) + 1)
            lines[there:there] = moved
    return "\n".join(lines)


@pytest.mark.costly
@pytest.mark.parametrize("number", range(by_night(200, 12)))
def test_after_random_edits_all_is_as_if_it_were_read_anew(number: int) -> None:
    chance = random.Random(number)
    modules = ModuleFiles(["a.flow.yaml"], imports=False)
    text, earlier, reused = chance.choice(TEXTS), (), 0
    for _ in range(25):
        findings, steps, earlier = read(text, modules, earlier)
        assert (findings, steps) == read(text, modules, None)[:2], text
        unchanged = earlier[0].unchanged if earlier else None
        reused += 0 if unchanged is None else len(unchanged.compiled)
        texts = (edit(text, chance), edit(text, chance), text)
        text = next((each for each in texts if chance.random() < 0.7 and read(each, modules, None)[1]), texts[0])
        if chance.random() < 0.2:
            text = chance.choice(TEXTS)
    assert reused


def test_only_the_step_that_was_typed_in_is_compiled_again() -> None:
    head = "hai: flow/v1\nname: a\nversion: 1\n"
    head += "input: {type: object, properties: {n: {type: integer, default: 1}}}\nsteps:\n"
    text = head + "".join(f"  - id: s{n}\n    say: ${{{{ input.n + {n} }}}}\n" for n in range(20))
    modules = ModuleFiles(["a.flow.yaml"], imports=False)
    _, _, first = read(text, modules, ())
    _, _, second = read(text.replace("input.n + 7 ", "input.n + 77 "), modules, first)
    before, after = first[0].unchanged.compiled, second[0].unchanged.compiled  # type: ignore[misc, union-attr]
    assert [path for path in after if after[path] is not before[path]] == ["s7"]
    _, _, third = read(text.replace("name: a", "name: ab\ntitle: An example"), modules, first)
    renamed = third[0].unchanged.compiled  # type: ignore[misc, union-attr]
    assert all(renamed[path] is before[path] for path in before)


def test_an_earlier_text_is_freed_at_once_and_leaves_the_collector_nothing() -> None:
    text = "hai: flow/v1\nname: a\nversion: 1\nsteps:\n" + "".join(f"  - say: x{n}\n" for n in range(20))
    analyst = Analyst()
    first = analyst.analyse("a.flow.yaml", text)
    assert first.names is not None
    names, analysis = weakref.ref(first.names.context), first
    del first
    gc.collect()
    gc.disable()
    try:
        for number in range(3):
            analysis = analyst.analyse("a.flow.yaml", f"{text}# {number}\n", None, analysis)
        assert names() is None
    finally:
        gc.enable()
