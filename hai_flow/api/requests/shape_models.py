"""The shapes of REST's answers: the fields of each, and the Pydantic models of which OpenAPI's schemas are made."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, create_model

from hai_flow.api.requests import schemas
from hai_flow.api.requests.schemas import PlainShape


class ShapeField(NamedTuple):
    """A field of a shape: its name, the annotation of its values, and whether each answer has it."""

    name: str
    annotation: str
    required: bool

    @property
    def nested(self) -> type | None:
        """The shape of the object or the objects that it holds; None: it holds none."""
        shapes = (getattr(schemas, word, None) for word in re.findall(r"\w+", self.annotation))
        return next((each for each in shapes if is_shape(each)), None)


def is_shape(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, PlainShape)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Models(dict[str, type[BaseModel]]):
    """The models by the names of their shapes, made when they are asked for."""

    def __missing__(self, name: str) -> type[BaseModel]:
        shape = getattr(schemas, name, None)
        if is_shape(shape):
            return model_of(shape)
        raise KeyError(name)


@cache
def model_of(shape: type) -> type[BaseModel]:
    """The model with the name, the docstring and the fields of the shape. The shapes in them are models, too."""
    if shape is PlainShape:
        return _Model
    models = _Models()
    fields: dict[str, Any] = {}
    for name, text, required in _own_fields(shape):
        annotation: Any = eval(text, vars(schemas), models)
        if keyword.iskeyword(name) or hasattr(BaseModel, name):
            name, annotation = f"{name}_", Annotated[annotation, Field(alias=name)]
        fields[name] = annotation if required or text.startswith("Annotated[") else (annotation, None)
    bases = tuple(model_of(base) for base in shape.__bases__)
    return create_model(shape.__name__, __base__=bases, __doc__=shape.__doc__, __module__=shape.__module__, **fields)


def list_fields(shape: type) -> list[ShapeField]:
    """The fields of the shape, those of its bases first."""
    return [field for each in reversed(shape.__mro__) if is_shape(each) for field in _own_fields(each)]


def _own_fields(shape: type) -> Iterator[ShapeField]:
    for name, annotation in vars(shape).get("__annotations__", {}).items():
        optional = re.fullmatch(r"NotRequired\[(.*)\]", annotation)
        yield ShapeField(name, optional[1] if optional else annotation, optional is None)
