"""A picture as SVG. Colours follow the reader's scheme, light or dark."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

from hai_flow.graph.chart import Chart
from hai_flow.graph.layout import SIZES, Closed, Connector, Opened, PlacedText, Rectangle, Shape, laid_out, visible

_SANS: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Noto Sans CJK SC', sans-serif"
_MONO: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', monospace"
_COLOURS: Final = {  # kind: (light line, light fill, dark line, dark fill)
    "effect": ("#2563eb", "#eff6ff", "#60a5fa", "#14233f"),
    "model": ("#7c3aed", "#f5f3ff", "#a78bfa", "#251c40"),
    "people": ("#c2570c", "#fff7ed", "#fb923c", "#3a2312"),
    "message": ("#64748b", "#f8fafc", "#94a3b8", "#1e2633"),
    "state": ("#0f766e", "#f0fdfa", "#2dd4bf", "#0d2a2a"),
    "time": ("#a16207", "#fefce8", "#facc15", "#2e280f"),
    "end": ("#334155", "#e2e8f0", "#cbd5e1", "#27313f"),
    "block": ("#94a3b8", "none", "#64748b", "none"),
}


def svg(chart: Chart, missed: frozenset[str] = frozenset()) -> str:
    """The picture, ended by a line feed. Steps at the paths `missed` are shown as those that no test takes."""
    picture = laid_out(chart)
    width, height = _n(picture.width), _n(picture.height)
    name = escape(visible(f"{chart.title} ({chart.name}@{chart.version})"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title">'
    )
    shapes = [_element(shape, missed) for shape in picture.shapes]
    style = _STYLE.replace("</style>", f"{_MISSED}\n</style>") if missed else _STYLE
    return "\n".join([head, f'<title id="title">{name}</title>', style, _TIP, *shapes, "</svg>"]) + "\n"


def _element(shape: Shape, missed: frozenset[str]) -> str:
    match shape:
        case Rectangle(style, x, y, width, height, radius):
            place = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}"'
            return f'<rect class="{style}" {place}/>'
        case PlacedText(text, x, y, anchor):
            tooltip = f"<title>{escape(text.full)}</title>" if text.full else ""
            place = "" if anchor == "start" else f' text-anchor="{anchor}"'
            return (
                f'<text class="{text.style}" x="{_n(x)}" y="{_n(y + 13)}"{place}>{escape(text.content)}{tooltip}</text>'
            )
        case Connector(style, points, arrow):
            path = " ".join(f"{'M' if number == 0 else 'L'}{_n(x)} {_n(y)}" for number, (x, y) in enumerate(points))
            end = ' marker-end="url(#tip)"' if arrow else ""
            return f'<path class="{style}" d="{path}"{end}/>'
        case Opened(node):
            tip = escape(visible(f"{node.verb} {node.path}", but="\n"))
            if node.path in missed:
                return f'<g class="missed" data-path={quoteattr(node.path)}><title>{tip}\nno test takes this</title>'
            return f"<g data-path={quoteattr(node.path)}><title>{tip}</title>"
        case Closed():
            return "</g>"


def _n(value: float) -> str:
    """At most one decimal, so that the same chart is the same text."""
    return f"{value:.1f}".removesuffix(".0")


_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 1 L9 5 L0 9 z"/></marker></defs>'
)


def _rules(dark: bool) -> list[str]:
    """The colours of one scheme. Plain rules, not variables: more programs than browsers draw SVG."""
    page, ink, soft, line, lane = (
        ("#0f172a", "#e2e8f0", "#94a3b8", "#94a3b8", "#1e293b") if dark
        else ("#ffffff", "#0f172a", "#475569", "#64748b", "#f1f5f9")
    )  # fmt: skip
    at = 2 if dark else 0
    warm = _COLOURS["people"][at]
    return [
        f".page{{fill:{page}}}",
        f".name,.title,.label{{fill:{ink}}} .verb,.note,.detail{{fill:{soft}}} .cond,.gate{{fill:{warm}}}",
        f".flow,.dashed{{stroke:{line}}} .tip{{fill:{line}}}",
        f".lane{{fill:{lane};stroke:none}} .handler{{fill:{lane};stroke:{line}}} .gated{{stroke:{warm}}}",
        *(f".{kind}{{stroke:{colour[at]};fill:{colour[at + 1]}}}" for kind, colour in _COLOURS.items()),
    ]


_MISSED: Final = ".missed>.box{stroke:#dc2626;stroke-width:2.5;stroke-dasharray:2 3}"
_STYLE: Final = "\n".join([
    "<style>",
    f"text{{font-family:{_SANS}}}",
    *(f".{style}{{font-size:{size}px}}" for style, size in SIZES.items()),
    f".detail,.cond{{font-family:{_MONO}}} .name,.title{{font-weight:600}} .verb{{letter-spacing:.04em}}",
    ".box{stroke-width:1.5} .loop{stroke-dasharray:7 4} .handler{stroke-dasharray:3 3}",
    ".gated{fill:none;stroke-width:1.5}",
    ".flow,.dashed{fill:none;stroke-width:1.5} .dashed{stroke-dasharray:4 4}",
    *_rules(dark=False),
    "@media (prefers-color-scheme:dark){",
    *_rules(dark=True),
    "}",
    "</style>",
])  # fmt: skip
