"""A chart as the text of a Mermaid flowchart (which GitHub, GitLab and most wikis draw)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hai_flow.definition.names.wording import shorten
from hai_flow.graph.chart import LINE_CHARS, Chart, Lane, Node

_ENTITIES: Final = {ord("&"): "#amp;", ord('"'): "#quot;", ord("<"): "#lt;", ord(">"): "#gt;", ord("#"): "#35;",
                    ord("`"): "#96;", ord("\\"): "#92;"}  # fmt: skip
_SHAPES: Final = {
    "people": ("{{", "}}"),
    "end": ("([", "])"),
    "time": ("[/", "/]"),
    "effect": ("[[", "]]"),
    "model": ("[[", "]]"),
}
_CLASSES: Final = (
    "classDef people stroke:#c2570c,stroke-width:2px",
    "classDef effect stroke:#2563eb,stroke-width:2px",
    "classDef model stroke:#7c3aed,stroke-width:2px",
    "classDef end_ stroke:#475569,stroke-width:3px",
)


def mermaid(chart: Chart) -> str:
    """The text of the flowchart, ended by a line feed."""
    return _Writer().write(chart)


def _text(value: str) -> str:
    """`value` inside a quoted label."""
    visible = "".join(character if character.isprintable() else " " for character in value)
    return shorten(visible, LINE_CHARS).translate(_ENTITIES)


class _Writer:
    """Nodes are numbered in document order. A block is a subgraph: edges lead to it and from it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.classes: dict[str, list[str]] = {}

    def write(self, chart: Chart) -> str:
        self.lines += ["---", f"title: {_title(chart)}", "---", "flowchart TD"]
        self._line(f'start(["{_text(chart.start)}"])')
        last = self._sequence(chart.nodes, "start")
        label = f"output {chart.output}" if chart.output else "end"
        self._line(f'finish(["{_text(label)}"])')
        if last:
            self._line(f"{last} --> finish")
        for number, lane in enumerate(chart.handlers):
            self._lane(lane, f"whole_{number}", "finish -.->")
        for definition in _CLASSES:
            self._line(definition)
        for name, nodes in self.classes.items():
            self._line(f"class {','.join(nodes)} {name}")
        return "\n".join(self.lines) + "\n"

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _sequence(self, nodes: Sequence[Node], before: str) -> str:
        """The nodes one after the other; the one from which the flow goes on, or ""."""
        for node in nodes:
            name = self._node(node)
            if before:
                words = f"if {node.condition}" if node.condition else ""
                self._line(f'{before} -->|"{_text(words)}"| {name}' if words else f"{before} --> {name}")
            before = name if node.goes_on else ""
        return before

    def _node(self, node: Node) -> str:
        self.count += 1
        name = f"n{self.count}"
        if node.lanes:
            self._subgraph(name, node)
        else:
            before, after = _SHAPES.get(node.kind, ("[", "]"))
            self._line(f'{name}{before}"{"<br/>".join(_labels(node))}"{after}')
            if node.kind in ("people", "effect", "model", "end"):
                kind = "end_" if node.kind == "end" else "people" if node.gate else node.kind
                self.classes.setdefault(kind, []).append(name)
        for number, lane in enumerate(node.handlers):
            self._lane(lane, f"{name}_then{number}", f"{name} -.->")
        return name

    def _subgraph(self, name: str, node: Node) -> None:
        self._line(f'subgraph {name}["{" · ".join(_labels(node))}"]')
        self.depth += 1
        self._line("direction TB")
        if node.lanes[0].label:
            self._line(f'{name}_fork((" "))')  # this puts the branches side by side
        for number, lane in enumerate(node.lanes):
            if lane.label:
                self._lane(lane, f"{name}_{number}", f"{name}_fork -->")
            else:
                self._sequence(lane.nodes, "")
        self.depth -= 1
        self._line("end")

    def _lane(self, lane: Lane, name: str, arrow: str) -> None:
        """A list of its own: a branch, a case or a handler, and the arrow that leads to it."""
        self._line(f'subgraph {name}["{_text(lane.label)}"]')
        self.depth += 1
        self._line("direction TB")
        self._sequence(lane.nodes, "")
        self.depth -= 1
        self._line("end")
        self._line(f"{arrow} {name}")


def _title(chart: Chart) -> str:
    """The title as a YAML scalar of the front matter."""
    words = "".join(character if character.isprintable() else " " for character in chart.title)
    words = words.translate({ord("<"): "‹", ord(">"): "›"})  # Mermaid drops text that looks like a tag
    return "'" + f"{words} ({chart.name}@{chart.version})".replace("'", "''") + "'"


def _labels(node: Node) -> list[str]:
    lines = [f"<b>{_text(node.title)}</b>"] if node.title else []
    lines.append(_text(f"{node.verb} {node.detail}".strip()))
    if node.gate:
        lines.append(_text(f"approval: {node.gate}"))
    lines += [_text(note) for note in node.notes]
    return lines
