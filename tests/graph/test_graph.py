"""Pictures of workflows: what is in them, that nothing overlaps, and that nobody's text breaks out of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.compiler import compile_workflow
from hai_flow.graph import FORMATS, Format, draw, scene
from hai_flow.graph.chart import chart_of
from tests.graph.stories import EVERYTHING

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "workflows").rglob("*.flow.yaml"))
SOURCES = {**{path.stem: path.read_bytes() for path in FILES}, "everything": EVERYTHING}
_SVG = "{http://www.w3.org/2000/svg}"

Rectangle = tuple[float, float, float, float]


def rectangles(picture: str) -> list[Rectangle]:
    """Every box but the page and the second outlines of gates, as (left, top, right, bottom)."""
    found = []
    for element in ElementTree.fromstring(picture).iter(f"{_SVG}rect"):
        if element.get("class") not in ("page", "gated"):
            left, top, width, height = (float(element.get(name, "")) for name in ("x", "y", "width", "height"))
            found.append((left, top, left + width, top + height))
    return found


def encloses(outer: Rectangle, inner: Rectangle) -> bool:
    return outer[0] < inner[0] and outer[1] < inner[1] and inner[2] < outer[2] and inner[3] < outer[3]


def disjoint(one: Rectangle, other: Rectangle) -> bool:
    return one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_picture_has_the_steps_of_the_plan(path: Path) -> None:
    plan = compile_workflow(path.read_bytes())
    written = {step.path: step.verb_name for step in plan.steps.values() if step.is_written}
    assert {node.path: node.verb for node in chart_of(path.read_bytes()).all_nodes()} == written


def test_paths_of_lists_inside_are_those_of_the_language() -> None:
    paths = {node.path for node in chart_of(EVERYTHING).all_nodes()}
    assert {
        "route/0/pay/~reject/say#1",
        "route/0/pay/~catch/0/fail#1",
        "route/2/fail#1",
        "race/clock/nested[]/repeat#1[]/say#1",
        "try#1/run#1",
        "try#1/~finally/say#1",
        "~catch/0/say#1",
        "~finally/call#1",
    } <= paths


@pytest.mark.parametrize("name", SOURCES)
def test_every_step_is_a_group_with_its_path(name: str) -> None:
    groups = ElementTree.fromstring(draw(SOURCES[name], "svg")).iter(f"{_SVG}g")
    assert [group.get("data-path") for group in groups] == [node.path for node in chart_of(SOURCES[name]).all_nodes()]


@pytest.mark.parametrize("name", SOURCES)
def test_boxes_are_apart_or_inside_each_other_and_on_the_page(name: str) -> None:
    picture = draw(SOURCES[name], "svg")
    boxes = rectangles(picture)
    width, height = (float(ElementTree.fromstring(picture).get(side, "")) for side in ("width", "height"))
    assert boxes
    for number, box in enumerate(boxes):
        assert encloses((0, 0, width, height), box)
        for other in boxes[number + 1 :]:
            assert disjoint(box, other) or encloses(box, other) or encloses(other, box), (box, other)


@pytest.mark.parametrize("name", SOURCES)
def test_the_json_has_the_shapes_of_the_svg_each_with_its_step(name: str) -> None:
    picture: Any = scene(SOURCES[name])
    drawn = ElementTree.fromstring(draw(SOURCES[name], "svg"))
    shapes = picture["shapes"]
    counts = {kind: sum(shape["shape"] == kind for shape in shapes) for kind in ("box", "text")}
    assert counts == {"box": len(list(drawn.iter(f"{_SVG}rect"))), "text": len(list(drawn.iter(f"{_SVG}text")))}
    steps = {step["path"]: step for step in picture["steps"]}
    assert set(steps) == {group.get("data-path") for group in drawn.iter(f"{_SVG}g")}
    for shape in shapes:
        for end in ("step", "from", "to"):
            assert shape.get(end) in (None, "", *steps), shape
    assert {shape["step"] for shape in shapes if shape["shape"] == "box"} >= set(steps)


@pytest.mark.parametrize("name", SOURCES)
def test_each_step_is_found_where_it_is_written(name: str) -> None:
    lines = SOURCES[name].decode().split("\n")
    picture: Any = scene(SOURCES[name])
    for step in picture["steps"]:
        written = "\n".join(lines[step["line"] - 1 : step["end_line"]])
        assert f"{step['verb']}:" in written or f'"{step["verb"]}"' in written, step
        if step["id"]:
            assert step["id"] in written


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", SOURCES)
def test_the_same_document_gives_the_same_picture(name: str, form: str) -> None:
    assert draw(SOURCES[name], form) == draw(SOURCES[name], form)  # type: ignore[arg-type]


def test_a_gate_says_who_decides_and_what_happens_when_nobody_does() -> None:
    texts = "\n".join(text.text or "" for text in ElementTree.fromstring(draw(EVERYTHING, "svg")).iter(f"{_SVG}text"))
    assert "approval: role:support · within 1d" in texts
    assert "asks when args.amount >= 50.0" in texts
    assert "late: escalate to role:cfo for 1d, then reject" in texts
    assert "1 of role:sre, 2 in all" in texts
    assert 'if input.kind == "x"' in texts
    assert "event order.paid · schedule 0 6 * * 1-5" in texts


def test_what_is_cut_off_is_in_a_tooltip() -> None:
    cut = [text for text in ElementTree.fromstring(draw(EVERYTHING, "svg")).iter(f"{_SVG}text") if len(text)]
    assert any(
        "以便我们可以联系到你以及其他的事情" in (text[0].text or "") and (text.text or "").endswith("…") for text in cut
    )


def test_a_dark_reader_gets_dark_colours() -> None:
    assert "prefers-color-scheme:dark" in draw(EVERYTHING, "svg")


def test_nothing_joins_a_return_to_the_step_below_it() -> None:
    source = b"hai: flow/v1\nname: a\nversion: 1\nsteps:\n  - return: 1\n  - say: never\n"
    lines = draw(source, "mermaid").splitlines()
    assert "  start --> n1" in lines
    assert not any(line.strip().startswith("n1 -->") for line in lines)
    assert "  n2 --> finish" in lines


def test_every_mermaid_subgraph_is_closed_and_every_arrow_has_an_end() -> None:
    lines = [line.strip() for line in draw(EVERYTHING, "mermaid").splitlines()]
    assert sum(line.startswith("subgraph ") for line in lines) == lines.count("end")
    names = {re.match(r"(?:subgraph )?(\w+)", line)[1] for line in lines if re.match(r"(subgraph )?\w+[\[({]", line)}  # type: ignore[index]
    arrows = [re.fullmatch(r'(\w+) (?:-->|-\.->)(?:\|".*"\|)? (\w+)', line) for line in lines if "->" in line]
    assert arrows
    assert all(arrow is not None and {arrow[1], arrow[2]} <= names for arrow in arrows)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=80))
def test_no_text_breaks_out_of_a_picture(text: str) -> None:
    quoted = "'" + text.replace("'", "''").replace("${{", "$") + "'"
    source = (
        f"hai: flow/v1\nname: a\nversion: 1\ntitle: {quoted}\nsteps:\n  - title: {quoted}\n    say: {quoted}\n".encode()
    )
    boxes = rectangles(draw(source, "svg"))
    assert len(boxes) == 3
    labels = [line for line in draw(source, "mermaid").splitlines() if line.startswith("  n1[")]
    assert len(labels) == 1
    assert re.fullmatch(r'  n1\["(<b>[^"<>]*</b><br/>)?[^"<>]*"\]', labels[0])


@pytest.mark.parametrize("form", FORMATS)
def test_a_picture_has_no_control_character_whatever_the_workflows_name(form: Format) -> None:
    wrote = r'"a\e[2J\x9b2J\u202eb"'
    step = f"{{id: a, title: {wrote}, if: '{wrote} != 1', approve: {{from: anyone, title: {wrote}, message: {wrote}}}}}"
    picture = draw(f"hai: flow/v1\nname: w\nversion: 1\ntitle: {wrote}\nsteps: [{step}]\n".encode(), form)
    assert [each for each in picture if not each.isprintable() and each != "\n"] == []
    if form == "svg":
        ElementTree.fromstring(picture)


@pytest.mark.parametrize("form", FORMATS)
def test_a_case_that_has_only_a_result_is_drawn_without_steps(form: Format) -> None:
    source = b"""\
hai: flow/v1
name: price
version: 1
input: {type: object, required: [n], properties: {n: {type: integer}}}
steps:
  - id: price
    switch:
      - {when: input.n > 3, result: 1}
      - {when: input.n > 2, steps: [{say: Two.}], result: 2}
      - {default: true, result: 3}
  - id: both
    parallel:
      one: {steps: [{say: One.}], result: 1}
      two: [{say: Other.}]
"""
    compile_workflow(source)
    assert [node.path for node in chart_of(source).all_nodes()] == [
        "price", "price/1/say#1", "both", "both/one/say#1", "both/two/say#1",
    ]  # fmt: skip
    assert "otherwise" in draw(source, form)
