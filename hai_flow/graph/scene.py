"""A picture as JSON, for programs that draw it themselves: each step with its verb and its place in the source, and the
shapes with the steps that they belong to. Colours are the program's own: shapes have styles, named like the SVG's
classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hai_flow.definition.yaml.document import Document, parse
from hai_flow.definition.yaml.document import YamlNode as Written
from hai_flow.definition.yaml.include_keys import first_of
from hai_flow.graph.chart import Chart, Lane, Node, chart_in
from hai_flow.graph.layout import Connector, Opened, PlacedText, Rectangle, Shape, laid_out, visible
from hai_flow.values import Json

BASELINE = 13  # of a line of text, below its top


def scene(source: bytes) -> dict[str, Json]:
    """`{name, version, title, width, height, steps, shapes}` of a valid document (docs/client.md)."""
    document = parse(first_of(source))
    chart = chart_in(document)
    picture = laid_out(chart)
    return {
        "name": chart.name,
        "version": chart.version,
        "title": visible(chart.title),
        "width": _n(picture.width),
        "height": _n(picture.height),
        "steps": list(_steps(chart, document)),
        "shapes": list(_shapes(picture.shapes)),
    }


def _n(value: float) -> float:
    return round(value, 1)


def _steps(chart: Chart, document: Document) -> Iterator[dict[str, Json]]:
    """Every step, in document order, with the step that it is inside of and the list in which it stands there."""
    places = {id(node.value): node for node in _mappings(document.root)}

    def told(nodes: Sequence[Node], within: str | None, lane: Lane | None) -> Iterator[dict[str, Json]]:
        for node in nodes:
            yield _step(node, within, lane) | _place(document, places.get(id(node.written)))
            for each in (*node.lanes, *node.handlers):
                yield from told(each.nodes, node.path, each)

    yield from told(chart.nodes, None, None)
    for handler in chart.handlers:
        yield from told(handler.nodes, None, handler)


def _step(node: Node, within: str | None, lane: Lane | None) -> dict[str, Json]:
    return {
        "path": node.path,
        "id": node.id or None,
        "verb": node.verb,
        "kind": node.kind,
        "title": visible(node.title),
        "detail": visible(node.detail),
        "condition": visible(node.condition) or None,
        "gate": visible(node.gate) or None,
        "notes": [visible(note) for note in node.notes],
        "within": within,
        "lane": None if lane is None else visible(lane.label or lane.body),
    }


def _mappings(root: Written | None) -> Iterator[Written]:
    open_ = [] if root is None else [root]
    while open_:
        node = open_.pop()
        if node.kind == "mapping":
            yield node
        open_ += node.children.values()


def _place(document: Document, node: Written | None) -> dict[str, Json]:
    if node is None:
        return {"line": None, "column": None, "end_line": None}
    line, column = document.lines.place(node.start)
    # YAML ends a block where the next one begins; the trailing space is no part of it.
    source = document.text[node.start : node.end].rstrip()
    return {"line": line, "column": column, "end_line": line + source.count("\n")}


def _shapes(shapes: Sequence[Shape]) -> Iterator[dict[str, Json]]:
    """The shapes in the order in which they are painted; `step` is the innermost one that a shape belongs to."""
    inside: list[str] = []
    for shape in shapes:
        step = inside[-1] if inside else None
        match shape:
            case Opened(node):
                inside.append(node.path)
            case Rectangle(style, x, y, width, height, radius):
                place = {"x": _n(x), "y": _n(y), "width": _n(width), "height": _n(height), "radius": _n(radius)}
                yield {"shape": "box", "style": style, "step": step, **place}
            case PlacedText(text, x, y, anchor):
                text_fields = {"text": text.content, "full": text.full or None, "anchor": anchor}
                yield {
                    "shape": "text",
                    "style": text.style,
                    "step": step,
                    "x": _n(x),
                    "y": _n(y + BASELINE),
                    **text_fields,
                }
            case Connector(style, points, arrow, ends):
                from_, to = ends or (None, None)
                places = [[_n(x), _n(y)] for x, y in points]
                yield {"shape": "line", "style": style, "step": step, "points": places, "arrow": arrow,
                       "from": from_, "to": to}  # fmt: skip
            case _:
                inside.pop()
