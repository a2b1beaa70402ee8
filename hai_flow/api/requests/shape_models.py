"""The shapes of REST's answers: the fields of each, and the Pydantic models of which OpenAPI's schemas are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.fields import FieldInfo

from hai_flow.api.requests import schemas
from hai_flow.api.requests.schemas import Shape


class ShapeField(NamedTuple):
    """A field of a shape: its name in Python and in JSON, its annotation, and its default or Pydantic's description."""

    name: str
    key: str
    annotation: str
    default: Any
    required: bool

    @property
    def nested(self) -> type[Shape] | None:
        """The shape of the object or the objects that it holds; None: it holds none."""
        shapes = (getattr(schemas, word, None) for word in re.findall(r"\w+", self.annotation))
        return next((each for each in shapes if isinstance(each, type) and issubclass(each, Shape)), None)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Models(dict[str, type[BaseModel]]):
    """The models by the names of their shapes, made when they are asked for."""

    def __missing__(self, name: str) -> type[BaseModel]:
        shape = getattr(schemas, name, None)
        if isinstance(shape, type) and issubclass(shape, Shape):
            return model_of(shape)
        raise KeyError(name)


@cache
def model_of(shape: type[Shape]) -> type[BaseModel]:
    """The model with the name, the docstring and the fields of the shape. The shapes in them are models, too."""
    if shape is Shape:
        return _Model
    models = _Models()
    fields: dict[str, Any] = {
        each.name: (eval(each.annotation, vars(schemas), models), each.default) for each in _own_fields(shape)
    }
    bases = tuple(model_of(base) for base in shape.__bases__)
    return create_model(shape.__name__, __base__=bases, __doc__=shape.__doc__, __module__=shape.__module__, **fields)


def list_fields(shape: type[Shape]) -> list[ShapeField]:
    """The fields of the shape, those of its bases first."""
    return [field for each in reversed(shape.__mro__) if issubclass(each, Shape) for field in _own_fields(each)]


def _own_fields(shape: type[Shape]) -> Iterator[ShapeField]:
    for name, annotation in vars(shape).get("__annotations__", {}).items():
        default = vars(shape).get(name, ...)
        described = default if isinstance(default, FieldInfo) else None
        required = default is ... if described is None else described.is_required()
        yield ShapeField(name, (described and described.alias) or name, annotation, default, required)
