"""`auth`: how a request authenticates its sender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow.definition.names.wording import kind_of
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.values import Json

_AUTH: Final = {
    "bearer": "bearer: TOKEN",
    "basic": "basic: {user: ..., password: ...}",
    "header": "header: {name: ..., value: ...}",
}
_AUTH_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "bearer": (),
    "basic": ("user", "password"),
    "header": ("name", "value"),
}


def check_auth(reader: Reader, value: Json, at: Path) -> None:
    """Report a value of `auth` that is neither a token nor one of the known ways to authenticate."""
    if isinstance(value, str) and value:
        return
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _AUTH:
        keys = " and ".join(f"`{key}`" for key in value) if isinstance(value, Mapping) else ""
        listed = ", ".join(f"`{{{shape}}}`" for shape in _AUTH.values())
        message = (
            f"expected a token such as ${{{{ secrets.NAME }}}}, or one of {listed}, found {keys or kind_of(value)}"
        )
        reader.warning(at, "auth.kind", message)
        return
    ((way, inner),) = value.items()
    required = _AUTH_KEYS[way]
    key_names = tuple(inner) if isinstance(inner, Mapping) else ()
    if (required and sorted(key_names) != sorted(required)) or (
        not required and not (isinstance(inner, str) and inner)
    ):
        reader.warning((*at, way), "auth.kind", f"expected `{_AUTH[way]}`, found {kind_of(inner)}")
