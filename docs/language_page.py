"""Writes the tables and the picture of docs/language.md anew from the code (`make docs`); the text is written by hand.

A table stands between `<!-- keys: approve -->` (a shape), `<!-- verbs -->` or `<!-- templates -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hai_flow.authoring.scaffold import TEMPLATES
from hai_flow.definition.yaml.keys import Key
from hai_flow.definition.yaml.language import SHAPES, VERBS
from hai_flow.graph import draw

PICTURE: Final = Path(__file__).with_name("refund.svg")
PATH: Final = Path(__file__).with_name("language.md")
_MARKED: Final = re.compile(r"(<!-- (keys|verbs|templates)(?:: ([a-z_ ]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with every table as the code has it now."""
    return _MARKED.sub(lambda match: match[1] + "\n".join(_table(match[2], match[3] or "")) + "\n" + match[4], text)


def picture(text: str) -> str:
    """The page's first workflow, drawn."""
    first = re.search(r"```yaml\n(hai: flow/v1.*?)```", text, re.DOTALL)
    assert first is not None, "the page begins with a workflow"
    return draw(first[1].encode(), "svg")


def _table(kind: str, names: str) -> Iterator[str]:
    match kind:
        case "keys":
            yield from _keys(key for name in names.split() for key in SHAPES[name].keys)
        case "verbs":
            yield "| verb | value | meaning | output | errors |"
            yield "|---|---|---|---|---|"
            for verb in VERBS.values():
                yield f"| `{verb.name}` | {verb.type.word} | {verb.does} | {verb.output} | {verb.fails} |"
        case _:
            yield "| template | content |"
            yield "|---|---|"
            for name, what in TEMPLATES.items():
                yield f"| `{name}` | {what} |"


def _keys(keys: Iterable[Key]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for key in keys:
        default = "**required**" if key.required else key.default and f"`{key.default}`"
        beside = f" (with {' or '.join(f'`{other}`' for other in key.beside)})" if key.beside else ""
        yield f"| `{key.name}` | {key.type.word} | {default} | {key.does}{beside} |"


if __name__ == "__main__":
    PATH.write_text(page(PATH.read_text()))
    PICTURE.write_text(picture(PATH.read_text()))
