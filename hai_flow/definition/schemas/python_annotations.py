"""The JSON Schemas that annotations of Python mean, read from the source of a module without running it.

They say what pydantic would say where only words of Python's own, of `typing`, and simple classes of the module itself
(enumerations, data classes, typed dictionaries, models) occur. Of everything else nothing is said: None."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hai_flow.values import Json

_WORDS: Final[dict[str, Mapping[str, Json]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
    "None": {"type": "null"},
}
_IMPORTED: Final[dict[tuple[str, str], Mapping[str, Json]]] = {
    ("datetime", "date"): {"type": "string", "format": "date"},
    ("datetime", "datetime"): {"type": "string", "format": "date-time"},
    ("uuid", "UUID"): {"type": "string", "format": "uuid"},
}
_LISTS: Final = frozenset(("list", "List", "Sequence", "Iterable", "Collection"))
_MAPPINGS: Final = frozenset(("dict", "Dict", "Mapping", "MutableMapping"))
_ENUMERATIONS: Final = frozenset(("Enum", "StrEnum", "IntEnum"))
_RECORDS: Final = frozenset(("TypedDict", "BaseModel", "NamedTuple"))
_DEPTH_MAX: Final = 8


class Annotations:
    """The annotations of one module. `statements` are those of the module."""

    def __init__(self, statements: Sequence[ast.stmt]) -> None:
        self._classes: dict[str, ast.ClassDef] = {}
        self._aliases: dict[str, ast.expr] = {}
        self._imports: dict[str, tuple[str, str]] = {}
        names: dict[str, int] = {}
        for node in statements:
            for name in self._read(node):
                names[name] = names.get(name, 0) + 1
        self._doubtful = frozenset(name for name, count in names.items() if count > 1)

    def _read(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.ClassDef(name=name):
                self._classes[name] = node
                return [name]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._aliases[name] = value
                return [name]
            case ast.ImportFrom(module=module, names=aliases, level=0):
                bound = {each.asname or each.name: (module or "", each.name) for each in aliases}
                self._imports |= bound
                return list(bound)
            case ast.Import(names=aliases):
                self._imports |= {each.asname or each.name: (each.name, "") for each in aliases}
                return [each.asname or each.name for each in aliases]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                return [name]
            case _:
                return []

    def schema(self, annotation: ast.expr | None, depth: int = 0) -> Mapping[str, Json] | None:
        """The JSON Schema of the values that are annotated so; None where nothing is known of them."""
        if annotation is None or depth > _DEPTH_MAX:
            return None
        match annotation:
            case ast.Constant(value=None):
                return _WORDS["None"]
            case ast.Constant(value=str(text)):
                try:
                    return self.schema(ast.parse(text, mode="eval").body, depth + 1)
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return None
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._union([left, right], depth)
            case ast.Subscript(value=base, slice=inside):
                parts = list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]
                return self._of_parts(self._word(base), parts, depth)
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return _IMPORTED.get((self._imports.get(module, ("", ""))[0], name))
            case ast.Name(id=name):
                return self._named(name, depth)
            case _:
                return None

    def _named(self, name: str, depth: int) -> Mapping[str, Json] | None:
        if name in self._doubtful:
            return None
        if name in self._classes:
            return self._class(self._classes[name], depth)
        if name in self._aliases:
            return self.schema(self._aliases[name], depth + 1)
        if name in self._imports:
            return _IMPORTED.get(self._imports[name])
        return _WORDS.get(name)

    def _word(self, node: ast.expr) -> str:
        """The last word of a generic's name, where it is Python's own or of `typing`."""
        match node:
            case ast.Name(id=name):
                module, origin = self._imports.get(name, ("", name))
                is_own = name in self._classes or name in self._aliases or name in self._doubtful
                return "" if is_own else origin if module in ("", *_TYPING) else ""
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return name if self._imports.get(module, ("", ""))[0] in _TYPING else ""
            case _:
                return ""

    def _of_parts(self, word: str, parts: Sequence[ast.expr], depth: int) -> Mapping[str, Json] | None:
        if word == "Optional":
            return self._union([parts[0], ast.Constant(None)], depth)
        if word == "Union":
            return self._union(parts, depth)
        if word == "Literal":
            values = [each.value for each in parts if isinstance(each, ast.Constant)]
            is_plain = len(values) == len(parts) and all(isinstance(each, str | int | None) for each in values)
            return {"enum": list(values)} if is_plain else None  # type: ignore[dict-item]
        if word in ("Required", "NotRequired", "ReadOnly"):
            return self.schema(parts[0], depth + 1)
        if word in _LISTS:
            items = self.schema(parts[0], depth + 1)
            return {"type": "array"} if items is None else {"type": "array", "items": items}
        if word in _MAPPINGS and len(parts) == 2:
            values_schema = self.schema(parts[1], depth + 1)
            return {"type": "object"} if values_schema is None else {
                "type": "object", "additionalProperties": values_schema
            }  # fmt: skip
        return None

    def _union(self, parts: Sequence[ast.expr], depth: int) -> Mapping[str, Json] | None:
        schemas = [self.schema(each, depth + 1) for each in parts]
        return None if any(each is None for each in schemas) else {"anyOf": schemas}  # type: ignore[dict-item]

    def _class(self, node: ast.ClassDef, depth: int) -> Mapping[str, Json] | None:
        bases = [_last_name(each) for each in node.bases]
        if bases and bases[-1] in _ENUMERATIONS and not node.decorator_list:
            return _enumeration(node)
        is_record = len(bases) == 1 and bases[0] in _RECORDS - {"NamedTuple"} and not node.decorator_list
        is_dataclass = not bases and [_last_name(each) for each in node.decorator_list] == ["dataclass"]
        if not (is_record or is_dataclass):
            return None
        return self._record(node, depth, all_needed=not any(_is_partial(each) for each in node.keywords))

    def _record(self, node: ast.ClassDef, depth: int, *, all_needed: bool) -> Mapping[str, Json] | None:
        properties: dict[str, Json] = {}
        required: list[str] = []
        for each in node.body:
            match each:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                    if name.startswith("_") or name == "model_config" or _has_alias(value):
                        return None
                    word = self._word(annotation.value) if isinstance(annotation, ast.Subscript) else ""
                    if word == "ClassVar":
                        continue
                    properties[name] = dict(self.schema(annotation, depth + 1) or {})
                    is_needed = word != "NotRequired" and (all_needed or word == "Required")
                    if is_needed and not _has_default(value):
                        required.append(name)
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    continue
                case ast.FunctionDef() | ast.AsyncFunctionDef() if not each.decorator_list and each.name[:2] != "__":
                    continue
                case _:
                    return None  # validators, settings: they may change what is taken
        return {"type": "object", "properties": properties, "required": required}  # type: ignore[dict-item]


_TYPING: Final = ("typing", "typing_extensions", "collections.abc")


def _last_name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _enumeration(node: ast.ClassDef) -> Mapping[str, Json] | None:
    values: list[Json] = []
    for each in node.body:
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() | int() as value)):
                if not name.startswith("_"):
                    values.append(value)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                continue
            case ast.FunctionDef() if each.name[:2] != "__" and not each.name.startswith("_"):
                continue
            case _:
                return None
    return {"enum": values} if values else None


def _is_partial(keyword: ast.keyword) -> bool:
    return keyword.arg == "total" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False


def _field(value: ast.expr | None) -> ast.Call | None:
    return value if isinstance(value, ast.Call) and _last_name(value) in ("Field", "field") else None


def _has_default(value: ast.expr | None) -> bool:
    field = _field(value)
    if field is None:
        return value is not None
    words: set[Any] = {each.arg for each in field.keywords}
    is_open = any(isinstance(each, ast.Constant) and each.value is ... for each in field.args)
    return (bool(field.args) and not is_open) or not words.isdisjoint(("default", "default_factory", None))


def _has_alias(value: ast.expr | None) -> bool:
    field = _field(value)
    return field is not None and any(each.arg is None or "alias" in each.arg for each in field.keywords)
