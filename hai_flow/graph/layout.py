"""The layout of a chart: boxes from top to bottom, blocks around their steps, branches side by side, handlers to the
right.

Two passes. A `Figure` first measures itself (its size, and the x of the line that the flow runs along), then is placed.
No font is at hand, so the width of a text is estimated, generously."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from hai_flow.graph.chart import Chart, Lane, Node

GAP: Final = 30  # between steps; room for an arrow
SIDE: Final = 36  # between a step and its handlers
PAD: Final = 16
LINE: Final = 18
BOX_MIN: Final = 150
BOX_MAX: Final = 380
MARGIN: Final = 24

Point: TypeAlias = tuple[float, float]
Ends: TypeAlias = tuple[str, str]


class TextLine(msgspec.Struct, frozen=True):
    """One line of text. `style` is its class: name verb detail cond gate note label."""

    content: str
    style: str
    full: str = ""  # all of a text that was cut, for a tooltip

    @property
    def width(self) -> float:
        return sum(_char_width(character, self.style) for character in self.content)


SIZES: Final = {"name": 14, "verb": 11, "detail": 12, "cond": 12, "gate": 12, "note": 11, "label": 12, "title": 18}
_MONOSPACED: Final = frozenset(("detail", "cond"))
_NARROW: Final = frozenset("ijltfrI.,:;|!'`()[]{} ")
_BROAD: Final = frozenset("mwMW@%")


@cache
def _char_width(character: str, style: str) -> float:
    size = SIZES[style]
    if unicodedata.east_asian_width(character) in "WF":
        return size * 1.0
    if style in _MONOSPACED:
        return size * 0.61
    bold = 1.18 if style in ("name", "title") else 1.0
    if character in _NARROW:
        return size * 0.34 * bold
    if character in _BROAD or character.isupper():
        return size * (0.9 if character in _BROAD else 0.7) * bold
    return size * 0.58 * bold


def visible(content: str, but: str = "") -> str:
    """The text without characters that XML forbids, or that turn the order of letters."""
    return "".join(each if each.isprintable() or each in but else "\ufffd" for each in content)


def _fit(content: str, style: str, width: float) -> TextLine:
    """The text, cut with an ellipsis to `width` where it is longer."""
    content = visible(content)
    text = TextLine(content, style)
    if text.width <= width:
        return text
    room = width - _char_width("…", style)
    shortened = ""
    for character in content:
        room -= _char_width(character, style)
        if room < 0:
            break
        shortened += character
    return TextLine(shortened.rstrip() + "…", style, full=content)


def _wrap(content: str, style: str, width: float, lines_max: int) -> list[TextLine]:
    """The text in at most `lines_max` lines, broken at its dots if that is enough, else between words."""
    for joint in (" · ", " "):
        lines = _break_lines(content.split(joint), joint, style, width, lines_max)
        if len(lines) <= lines_max and all(TextLine(line, style).width <= width for line in lines):
            break
    return [_fit(line, style, width) for line in lines]


def _break_lines(pieces: Sequence[str], joint: str, style: str, width: float, lines_max: int) -> list[str]:
    """The pieces joined to lines; the last line takes the rest."""
    lines = [pieces[0]]
    for number, piece in enumerate(pieces[1:], 1):
        longer = f"{lines[-1]}{joint}{piece}"
        if TextLine(longer, style).width <= width:
            lines[-1] = longer
        elif len(lines) < lines_max:
            lines.append(piece)
        else:
            lines[-1] = joint.join([lines[-1], *pieces[number:]])
            break
    return lines


class Rectangle(msgspec.Struct, frozen=True):
    style: str
    x: float
    y: float
    width: float
    height: float
    radius: float


class Connector(msgspec.Struct, frozen=True):
    """`style`: flow or dashed. `ends`: the paths of the steps that it leads from and to; "" is where a run begins or
    ends. None: the line is a part of one figure, and joins no steps."""

    style: str
    points: tuple[Point, ...]
    arrow: bool
    ends: Ends | None


class PlacedText(msgspec.Struct, frozen=True):
    """One line of text. `y` is the top of the line."""

    text: TextLine
    x: float
    y: float
    anchor: Literal["start", "middle"]


class Opened(msgspec.Struct, frozen=True):
    """The shapes from here to the next `Closed` belong to the step `node`."""

    node: Node


class Closed(msgspec.Struct, frozen=True):
    pass


Shape: TypeAlias = Rectangle | Connector | PlacedText | Opened | Closed


class Canvas:
    """Collects the shapes, in the order in which they are painted."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []

    def rectangle(self, style: str, x: float, y: float, width: float, height: float, radius: float = 8) -> None:
        self.shapes.append(Rectangle(style, x, y, width, height, radius))

    def text(self, text: TextLine, x: float, y: float, anchor: Literal["start", "middle"] = "start") -> None:
        """`y` is the top of the line."""
        self.shapes.append(PlacedText(text, x, y, anchor))

    def line(self, points: Sequence[Point], ends: Ends | None = None) -> None:
        self.shapes.append(Connector("flow", tuple(points), arrow=False, ends=ends))

    def arrow(self, points: Sequence[Point], ends: Ends | None, style: str = "flow") -> None:
        self.shapes.append(Connector(style, tuple(points), arrow=True, ends=ends))

    def open_group(self, node: Node) -> None:
        self.shapes.append(Opened(node))

    def close_group(self) -> None:
        self.shapes.append(Closed())


@dataclass(slots=True)
class Figure:
    """Something with a size. The flow runs along `spine` (x from the left): in at its top, out at `tail`."""

    width: float
    height: float
    spine: float
    tail: float = -1
    path: str = ""  # of the step; a run begins and ends at none

    def __post_init__(self) -> None:
        if self.tail < 0:
            self.tail = self.height

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        raise NotImplementedError


class Pill(Figure):
    """Where a run begins or ends."""

    def __init__(self, word: str, content: str) -> None:
        self.word = TextLine(word, "verb")
        self.line = _fit(content, "detail", BOX_MAX)
        width = max(self.word.width, self.line.width) + 2 * PAD + 8
        super().__init__(width, 2 * LINE + 12 if content else LINE + 12, width / 2)

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        canvas.rectangle("box end", x, y, self.width, self.height, self.height / 2)
        canvas.text(self.word, x + self.spine, y + 6, "middle")
        if self.line.content:
            canvas.text(self.line, x + self.spine, y + 6 + LINE, "middle")


class Box(Figure):
    """A step without lanes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.lines = _lines(node)
        width = min(BOX_MAX, max(BOX_MIN, *(line.width for line in self.lines))) + 2 * PAD
        super().__init__(width, len(self.lines) * LINE + 18, width / 2, path=node.path)

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        kind = self.node.kind
        canvas.open_group(self.node)
        canvas.rectangle(f"box {kind}", x, y, self.width, self.height, 20 if kind == "end" else 8)
        if self.node.gate:  # a second outline: nothing passes without a decision
            canvas.rectangle("gated", x - 4, y - 4, self.width + 8, self.height + 8, 11)
        for number, line in enumerate(self.lines):
            canvas.text(line, x + PAD, y + 9 + number * LINE)
        canvas.close_group()


def _lines(node: Node) -> list[TextLine]:
    lines = [_fit(node.verb, "verb", BOX_MAX)]
    if node.title:
        lines += _wrap(node.title, "name", BOX_MAX, 2)
    if node.condition:
        lines[:0] = _wrap(f"if {node.condition}", "cond", BOX_MAX, 2)
    if node.detail:
        lines += _wrap(node.detail, "detail", BOX_MAX, 2)
    if node.gate:
        lines += _wrap(f"approval: {node.gate}", "gate", BOX_MAX, 2)
    for note in node.notes:
        lines += _wrap(note, "note", BOX_MAX, 2)
    return lines


class Column(Figure):
    """Figures one below the other, joined by arrows along one spine. `joined[n]`: an arrow leads to figure n + 1. A
    case that has only a `result` is without figures."""

    def __init__(self, figures: Sequence[Figure], joined: Sequence[bool]) -> None:
        self.figures = figures
        self.joined = joined
        if not figures:
            super().__init__(0, 0, 0, 0)
            return
        spine = max(figure.spine for figure in figures)
        right = max(figure.width - figure.spine for figure in figures)
        height = sum(figure.height for figure in figures) + GAP * (len(figures) - 1)
        tail = height - figures[-1].height + figures[-1].tail
        super().__init__(spine + right, height, spine, tail, figures[0].path)

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        center = x + self.spine
        for number, figure in enumerate(self.figures):
            figure.place(canvas, center - figure.spine, y)
            following = y + figure.height + GAP
            if number < len(self.joined) and self.joined[number]:
                ends = (figure.path, self.figures[number + 1].path)
                canvas.arrow([(center, y + figure.tail), (center, following - 2)], ends)
            y = following


class Labelled(Figure):
    """A labelled list of steps: a branch, a case, a handler."""

    def __init__(self, lane: Lane, style: str) -> None:
        self.inner = _sequence(lane.nodes)
        self.style = style
        self.label = _wrap(lane.label, "label", max(self.inner.width, 120), 2)
        width = max(self.inner.width, *(line.width for line in self.label)) + 2 * PAD
        self.head = len(self.label) * LINE + 18
        spine = PAD + self.inner.spine + (width - 2 * PAD - self.inner.width) / 2
        super().__init__(width, self.head + self.inner.height + PAD, spine, path=self.inner.path)

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        canvas.rectangle(self.style, x, y, self.width, self.height)
        for number, line in enumerate(self.label):
            canvas.text(line, x + PAD, y + 9 + number * LINE)
        self.inner.place(canvas, x + self.spine - self.inner.spine, y + self.head)


class BlockFigure(Figure):
    """A step with lanes: its head, and the lanes side by side."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.lines = _lines(node)
        self.head = len(self.lines) * LINE + (20 if not self.loops else 42)
        self.lanes: list[Figure] = [
            Labelled(lane, "lane") if lane.label else _sequence(lane.nodes) for lane in node.lanes
        ]
        inner = sum(lane.width for lane in self.lanes) + PAD * (len(self.lanes) - 1)
        width = max(inner, *(line.width for line in self.lines)) + 2 * PAD + (PAD if self.loops else 0)
        height = self.head + max(lane.height for lane in self.lanes) + PAD
        super().__init__(width, height, width / 2, path=node.path)
        if len(self.lanes) == 1:
            self.spine = PAD + (width - 2 * PAD - inner) / 2 + self.lanes[0].spine
        self.offset = (width - inner) / 2

    @property
    def loops(self) -> bool:
        return self.node.verb in ("for_each", "repeat")

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        canvas.open_group(self.node)
        canvas.rectangle("box block loop" if self.loops else "box block", x, y, self.width, self.height, 10)
        for number, line in enumerate(self.lines):
            canvas.text(line, x + PAD, y + 9 + number * LINE)
        at = x + self.offset
        for lane in self.lanes:
            lane.place(canvas, at, y + self.head)
            at += lane.width + PAD
        if self.loops:
            self._loop(canvas, x, y)
        canvas.close_group()

    def _loop(self, canvas: Canvas, x: float, y: float) -> None:
        """The way in, and the way back along the right side, which joins it."""
        body = self.lanes[0]
        entry = y + self.head
        foot = entry + body.height + 8
        right, center = x + self.width - 10, x + self.offset + body.spine
        canvas.line(
            [(center, entry + body.tail), (center, foot), (right, foot), (right, entry - 14), (center, entry - 14)],
            (self.path, self.path),
        )
        canvas.arrow([(center, entry - 22), (center, entry - 2)], (self.path, body.path))


class WithHandlers(Figure):
    """A step, and to its right its handlers: dashed arrows lead there."""

    def __init__(self, main: Figure, handlers: Sequence[Lane]) -> None:
        self.main = main
        self.frames = [Labelled(lane, "handler") for lane in handlers]
        side = sum(frame.height for frame in self.frames) + PAD * (len(self.frames) - 1)
        width = main.width + SIDE + max(frame.width for frame in self.frames)
        super().__init__(width, max(main.height, side), main.spine, main.tail, main.path)

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        self.main.place(canvas, x, y)
        frame_x = x + self.main.width + SIDE
        top = y
        for frame in self.frames:
            frame.place(canvas, frame_x, top)
            start = min(top + 18, y + self.main.height - 10)
            middle = frame_x - SIDE / 2
            canvas.arrow(
                [(x + self.main.width, start), (middle, start), (middle, top + 18), (frame_x - 2, top + 18)],
                (self.path, frame.path),
                "dashed",
            )
            top += frame.height + PAD


def _figure(node: Node) -> Figure:
    main: Figure = BlockFigure(node) if node.lanes else Box(node)
    return WithHandlers(main, node.handlers) if node.handlers else main


def _sequence(nodes: Sequence[Node]) -> Figure:
    return Column([_figure(node) for node in nodes], [node.goes_on for node in nodes[:-1]])


class Row(Figure):
    """Frames side by side: the handlers of the whole document."""

    def __init__(self, frames: Sequence[Figure]) -> None:
        self.frames = frames
        width = sum(frame.width for frame in frames) + PAD * (len(frames) - 1)
        super().__init__(width, max(frame.height for frame in frames), width / 2)

    def place(self, canvas: Canvas, x: float, y: float) -> None:
        for frame in self.frames:
            frame.place(canvas, x, y)
            x += frame.width + PAD


def _stack_chart(chart: Chart) -> Figure:
    figures: list[Figure] = [Pill("start", chart.start), *(_figure(node) for node in chart.nodes)]
    joined = [True, *(node.goes_on for node in chart.nodes)]
    figures.append(Pill("end", f"output {chart.output}" if chart.output else ""))
    if chart.handlers:
        figures.append(Row([Labelled(lane, "handler") for lane in chart.handlers]))
        joined.append(False)
    return Column(figures, joined)


class Picture(msgspec.Struct, frozen=True):
    width: float
    height: float
    shapes: Sequence[Shape]


def laid_out(chart: Chart) -> Picture:
    """The whole chart below its title."""
    body = _stack_chart(chart)
    title = _fit(chart.title, "title", 900)
    below = TextLine(f"{chart.name}@{chart.version}", "note")
    width = max(body.width, title.width, below.width) + 2 * MARGIN
    height = body.height + 2 * MARGIN + 52
    canvas = Canvas()
    canvas.rectangle("page", 0, 0, width, height, 0)
    canvas.text(title, MARGIN, MARGIN - 4)
    canvas.text(below, MARGIN, MARGIN + 20)
    body.place(canvas, (width - body.width) / 2, MARGIN + 52)
    return Picture(width, height, canvas.shapes)
