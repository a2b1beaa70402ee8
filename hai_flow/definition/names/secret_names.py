"""Secrets in values: documents, logs and pages have only a secret's name; the runner puts its value in as it sends.

`${{ secrets.NAME }}` renders to itself. No other part of a value may look like that: otherwise the input of a run could
have a secret put in where the author of the workflow wanted none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from hai_flow import values
from hai_flow.definition.expressions import cel
from hai_flow.definition.expressions.ast_paths import scan
from hai_flow.definition.expressions.expression_error import ExpressionError, Faults
from hai_flow.definition.names.holes import split_holes
from hai_flow.definition.plan import Hole, Template
from hai_flow.values import Json

_SECRETS: Final = frozenset(("secrets",))
REFERENCE: Final = re.compile(r"\$\{\{ secrets\.([A-Za-z_][A-Za-z0-9_]{0,62}) \}\}")


@dataclass(frozen=True, slots=True)
class _Bearing:
    """plan.Template: `inner`, with names below `root` that are put in when they are sent, and no part of the scope."""

    inner: Template
    root: ClassVar[str]

    @property
    def written(self) -> Json:
        return self.inner.written

    @property
    def roots(self) -> frozenset[str]:
        return self.inner.roots - {self.root}

    @property
    def steps(self) -> frozenset[str]:
        return self.inner.steps

    @property
    def holes(self) -> tuple[Hole, ...]:
        return self.inner.holes


class SecretBearing(_Bearing):
    """A template that may name secrets."""

    root: ClassVar[str] = "secrets"

    def render(self, scope: Mapping[str, Json]) -> Json:
        """The value, in which secrets are named. Raises `ExpressionError`, also where something else than a secret of
        the document looks like one."""
        names = find_secrets(self.inner.written)
        plain = self.inner.render({**scope, "secrets": dict.fromkeys(names, "")})
        forged = next((text for text in list_texts(plain) if REFERENCE.search(text)), None)
        if forged is not None:
            message = f"a value names a secret that the document does not name there: {forged[:100]!r}"
            raise ExpressionError("expression.error", message)
        return self.inner.render({**scope, "secrets": _find_secret_holes(names)})


def resolve_template(template: Template) -> Json:
    """The value of a template that names nothing but secrets, in which they are named."""
    return template.render({"secrets": _find_secret_holes(find_secrets(template.written))})


def _find_secret_holes(names: Iterable[str]) -> dict[str, str]:
    return {name: f"${{{{ secrets.{name} }}}}" for name in names}


CALLBACK: Final = "${{ callback.url }}"


class CallbackBearing(_Bearing):
    """A template that may name the address of its step's callback. It renders to a name, too: a reader of the log must
    not learn the address, by which they could answer in the place of the service."""

    root: ClassVar[str] = "callback"

    def render(self, scope: Mapping[str, Json]) -> Json:
        return self.inner.render({**scope, "callback": {"url": CALLBACK}})


def with_callback(value: Json, url: str) -> Json:
    """`value` with the address in the places that name it."""
    return values.with_texts(value, lambda text: text.replace(CALLBACK, url))


def find_secrets(written: Json) -> frozenset[str]:
    return frozenset(name for text in list_texts(written) if "${{" in text for name in _names_in(text))


@lru_cache(maxsize=1024)
def _names_in(text: str) -> frozenset[str]:
    """The secrets that the holes of a text name, in whatever way: `secrets.NAME`, `secrets["NAME"]`."""
    names: set[str] = set()
    with contextlib.suppress(Faults):  # of a text that is not a template: it names none
        for hole in split_holes(text):
            if not isinstance(hole, str) and "secrets" in hole.source:
                chains = scan(cel.parse(hole.source), hole.source, _SECRETS).chains
                names |= {str(chain.path[1]) for chain in chains if len(chain.path) > 1}
    return frozenset(names)


def fill_secrets(value: Json, find: Callable[[str], str]) -> Json:
    """`value` with the secrets that it names, as `find` gives them."""
    return values.with_texts(
        value, lambda text: REFERENCE.sub(lambda match: find(match[1]), text) if "${{" in text else text
    )


def list_texts(value: Json, without: tuple[str | int, ...] = ()) -> Iterator[str]:
    """Every text in the value, keys included, but not what stands at the path `without`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if without != (key,):
                if not without or without[0] != key:
                    yield str(key)
                yield from list_texts(each, without[1:] if without[:1] == (key,) else ())
    elif isinstance(value, list):
        for each in value:
            yield from list_texts(each)
