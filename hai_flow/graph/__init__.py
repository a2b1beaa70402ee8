"""A workflow as a picture: Mermaid text, SVG, or the shapes of the SVG as JSON. Pure; nothing here runs another program
or knows of any run.

`draw` takes the bytes of a document that compiles. Expressions and texts are shown as the author wrote them: the
picture is made from the document, because the templates of a plan no longer know their text. The paths are the plan's.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from hai_flow import values
from hai_flow.graph.chart import chart_of
from hai_flow.graph.mermaid import mermaid
from hai_flow.graph.scene import scene
from hai_flow.graph.svg import svg

Format: TypeAlias = Literal["mermaid", "svg", "json"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)


def draw(source: bytes, form: Format, missed: frozenset[str] = frozenset()) -> str:
    """The picture of a valid document, ended by a line feed. The same bytes always give the same picture. An SVG shows
    the steps at the paths `missed` as those that no test takes."""
    if form == "json":
        return values.dumps(scene(source)).decode() + "\n"
    chart = chart_of(source)
    return mermaid(chart) if form == "mermaid" else svg(chart, missed)


__all__ = ["FORMATS", "Format", "draw", "scene"]
