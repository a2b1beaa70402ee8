"""The arguments and the result of a Python function as JSON Schema (pydantic's, of the annotations): checked before and
after a call, and shown to models. Values of plain JSON types reach the function as recorded; where an annotation means
more (a model, a date, an enumeration), it gets an instance. An annotation without a form in JSON is not checked."""

from __future__ import annotations

import inspect
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence, Set, ValuesView
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypeAlias, Union, get_args, get_origin

import msgspec
import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

from hai_flow import foreign, values
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.errors import StepError, describe_findings
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.primitives.json_pointers import escape
from hai_flow.steps.python.trace import text_of
from hai_flow.steps.tools import unwrap_function
from hai_flow.values import Json

SHOWN_FAULTS: Final = 5
_SHOWN_CHARS_MAX: Final = 300  # of a result that is none, in an error
_PLAIN: Final = (str, int, float, bool, type(None), object, dict, list)
_SCALARS: Final = (str, int, float, bool)
_COLLECTIONS: Final = (Sequence, Set, ValuesView)
_LISTS: Final = (list, dict, Mapping, Sequence, Union, types.UnionType, Required, NotRequired)
_VALIDATORS: Final = (
    pydantic.BeforeValidator, pydantic.AfterValidator, pydantic.WrapValidator, pydantic.PlainValidator,
    pydantic.PlainSerializer, pydantic.WrapSerializer,
)  # fmt: skip


Note: TypeAlias = Callable[[Sequence[str]], None]
"""Takes what was changed in a result, so that a run can hold it."""


def _untold(notes: Sequence[str]) -> None:
    pass


class _Untitled(GenerateJsonSchema):
    """Makes schemas without the titles of pydantic, which only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Signature:
    """The arguments of a function, as the schema `parameters` of an object has them, and its `result`.

    `result` is None where nothing is known of it."""

    def __init__(self, function: Callable[..., Any], given: Sequence[inspect.Parameter], *, streams: bool) -> None:
        """`given` are the parameters that a call fills. `streams`: the function yields its result in pieces."""
        hints = read_hints(function)
        more = next((each.name for each in given if each.kind is each.VAR_KEYWORD), None)
        self._takes_any = more is not None
        self._named = {
            each.name: _convert_hint(hints.get(each.name, Any), "validation") for each in given if _is_named(each)
        }
        self._fields = {name: f"p{number}" for number, name in enumerate(self._named)}
        self._model = self._model_of(given)
        schema = _build_schema(self._model, "validation")
        if more is not None and _is_plain(hints.get(more, Any)):
            schema["additionalProperties"] = pydantic.TypeAdapter(hints.get(more, Any)).json_schema() or True
        self.schema = JsonSchema(schema)
        self._converted = tuple(name for name, hint in self._named.items() if not _is_plain(hint))
        scalar = not self._takes_any and all(hint in _SCALARS for hint in self._named.values())
        self._types = self._named if scalar else None
        hint = hints.get("return", Any)
        self._result = _convert_hint(_yield_type(hint) if streams else hint, "serialization")
        self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(self._result)
        self._plain_result = _is_plain(self._result)
        raw = _build_schema(self._adapter, "serialization")
        self._result_schema = JsonSchema(raw) if raw else None
        self._result_form = JsonSchema(_drop_time_formats(raw)) if raw else None

    @property
    def parameters(self) -> Mapping[str, Json]:
        return self.schema.raw

    @property
    def result(self) -> Mapping[str, Json] | None:
        return None if self._result_schema is None else self._result_schema.raw

    def arguments(self, values: dict[str, Json]) -> dict[str, Any]:
        """The arguments as the function gets them. Raises StepError `tool.invalid_arguments`."""
        if self._fits_at_sight(values):
            return values
        values, faults = self.schema.fit(values)
        if faults:
            raise _wrong("the arguments don't fit the function", "tool.invalid_arguments", faults)
        if not self._converted:
            return self._with_whole_integers(values)
        try:
            model = self._model.model_validate(values)
        except pydantic.ValidationError as error:
            faults_found = _list_validation_faults(error)
            raise _wrong("the arguments don't fit the function", "tool.invalid_arguments", faults_found) from None
        converted = {name: getattr(model, self._fields[name]) for name in self._converted if name in values}
        return {**self._with_whole_integers(values), **converted}

    def _fits_at_sight(self, given: dict[str, Json]) -> bool:
        """Whether the values are of the very types that are wanted: most are, and a schema takes longer to say so. That
        the names are those of the parameters is known."""
        types = self._types
        if types is None:
            return False
        for name, value in given.items():  # noqa: SIM110 (`all` would make a generator for each call)
            if type(value) is not types.get(name):
                return False
        return True

    def fault(self, written: Mapping[str, Json], is_literal: Callable[[Json], bool]) -> str | None:
        """A sentence on the first fault of the arguments in a document; None: they fit. Values with holes are not
        judged."""
        literal = {name: value for name, value in written.items() if is_literal(value)}
        faults = [
            fault
            for fault in self.schema.findings(literal)
            if fault["path"].split("/")[1:2] and fault["path"].split("/")[1] in self._names_in_pointers
        ]
        return _format_faults(faults) if faults else None

    async def output(self, value: Any, big_integers: foreign.BigIntegers = "text", note: Note = _untold) -> Json:
        """The function's result as plain JSON; `note` gets what was changed. A large one is read beside the loop.
        Raises StepError `tool.invalid_result`."""
        if type(value) is self._result and self._result in _SCALARS:
            return value if values.is_json(value) else plain(value, big_integers, note)
        notes: list[str] = []
        if not self._plain_result:
            value = await run_if_large(value, self._convert, value, notes)
        output, faults = await run_if_large(value, self._judge, value, big_integers, notes)
        if notes:
            note(notes)
        if faults:
            raise _unlike(value, faults)
        return output

    def _convert(self, value: Any, notes: list[str]) -> Any:
        """The result as its annotation writes it."""
        try:
            return self._adapter.dump_python(self._adapter.validate_python(value), mode="json", by_alias=True)
        except pydantic.ValidationError as error:
            raise _unlike(value, _list_validation_faults(error)) from None
        except Exception as error:  # validators and serializers are the tool's code, and it has had its effect
            notes.append(f"the result is written without its annotation: {text_of(error)}")
            return value

    def _judge(
        self, value: Any, big_integers: foreign.BigIntegers, notes: list[str]
    ) -> tuple[Json, list[dict[str, Any]]]:
        """The result as plain JSON, and where that does not fit the annotation."""
        changes: list[str] = []
        output = plain(value, big_integers, changes.extend)
        notes += changes
        changed = {place for place, _, what in (each.partition(": ") for each in changes) if what == foreign.NO_NUMBER}
        faults = [] if self._result_form is None else self._result_form.fit(output)[1]
        return output, [each for each in faults if each["path"] not in changed]

    @property
    def _names_in_pointers(self) -> frozenset[str]:
        return frozenset(escape(name) for name in self._named)

    def _with_whole_integers(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """`arguments`, with an `int` wherever an integer was written like 90.0: JSON makes no difference between the
        two."""
        for name, value in arguments.items():
            if type(value) is float and self._named.get(name) is int:
                arguments = {**arguments, name: int(value)}
        return arguments

    def _model_of(self, given: Sequence[inspect.Parameter]) -> type[pydantic.BaseModel]:
        """Fields have names of their own: a parameter may be called `json`, or `_id`."""
        fields: dict[str, Any] = {}
        for each in given:
            if not _is_named(each):
                continue
            settings: dict[str, Any] = {"alias": each.name}
            if each.default is not each.empty:
                settings |= (
                    {"default": each.default} if values.is_json(each.default) else {"default_factory": lambda: None}
                )
            fields[self._fields[each.name]] = (self._named[each.name], pydantic.Field(**settings))
        extra: Literal["allow", "forbid"] = "allow" if self._takes_any else "forbid"
        config = pydantic.ConfigDict(extra=extra, protected_namespaces=())
        return pydantic.create_model("Arguments", __config__=config, **fields)


def read_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; none where they exist for a type checker only."""
    try:
        return get_type_hints(unwrap_function(function), include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def plain(output: Any, big_integers: foreign.BigIntegers = "text", note: Note = _untold) -> Json:
    """The output as the log will have it: a copy, so that nothing the tool keeps can change it; tuples are lists. What
    a run can't hold is text there (`foreign.take`), and `note` is told: the tool has had its effect.

    Raises StepError `tool.invalid_result`, with the result as text in its `data`, for what JSON has no type for."""
    try:
        try:
            storable, notes = foreign.take(output, big_integers)
        except foreign.NotTyped as error:
            storable, notes = foreign.take(_write(output), big_integers)
            notes = (f"{error}: it is kept as JSON writes it, or as text", *notes)
        if notes:
            note(notes)
        return values.loads(values.dumps(storable)) if isinstance(storable, (dict, list, tuple)) else storable
    except Exception as error:  # of any kind: what is written runs what the tool's classes say
        raise StepError(
            f"the tool's result is not plain JSON: {error if isinstance(error, values.NotJson) else text_of(error)}",
            code="tool.invalid_result",
            retriable=False,
            data={"text": _excerpt(output)},
        ) from None


def _write(value: Any, *, is_part: bool = False) -> Any:
    """A value with each part that JSON has no type for as JSON writes it, else as text. Raises NotJson for one that has
    no form at all, and for work that has yet to be done."""
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        members = {_write_key(key): _write(each, is_part=True) for key, each in value.items()}
        if len(members) < len(value):
            raise values.NotJson("two keys of one object are the same text")
        return members
    if isinstance(value, _COLLECTIONS) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_write(each, is_part=True) for each in value]
    if isinstance(value, pydantic.BaseModel):
        return _write(value.model_dump())
    return msgspec.to_builtins(value, enc_hook=partial(_write_unknown, None if is_part else value), str_keys=True)


def _write_unknown(top: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know. `top`: one that has to have a form."""
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, (str, Mapping, pydantic.BaseModel, *_COLLECTIONS)):
        return _write(value)
    if isinstance(value, PurePath):
        return str(value)
    if value is top or isinstance(value, (Awaitable, Iterator, AsyncIterator)):
        raise values.NotJson(f"{type(value).__name__} is not a JSON type")
    return _excerpt(value)


def _write_key(key: Any) -> str:
    text = _write(key, is_part=True)
    return values.to_text(text)


def _excerpt(output: Any) -> str:
    """A result as people read it, cut to a length."""
    try:
        return values.storable(repr(output)[:_SHOWN_CHARS_MAX])
    except Exception:  # `repr` runs what the tool's classes say
        return type(output).__name__


def _unlike(value: Any, faults: Sequence[Mapping[str, Any]]) -> StepError:
    """The error for a result that its annotation does not allow, with what came."""
    error = _wrong("the tool's result is not what it says", "tool.invalid_result", faults)
    error.data = {"text": _excerpt(value), "faults": error.data}
    return error


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _convert_hint(hint: Any, mode: JsonSchemaMode) -> Any:
    """The annotation, or Any if it has no form in JSON."""
    try:
        JsonSchema(_build_schema(pydantic.TypeAdapter(hint), mode))
    except Exception:  # of many kinds: an annotation may be anything
        return Any
    return hint


def _drop_time_formats(schema: Json) -> Json:
    """A schema that takes each form in which pydantic writes times: those without a zone, and negative durations."""
    if isinstance(schema, list):
        return [_drop_time_formats(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: each if name in ("const", "default", "enum", "examples") else _drop_time_formats(each)
        for name, each in schema.items()
        if not (name == "format" and each in ("date-time", "time", "duration"))
    }


def _build_schema(typed: pydantic.TypeAdapter[Any] | type[pydantic.BaseModel], mode: JsonSchemaMode) -> dict[str, Json]:
    if isinstance(typed, pydantic.TypeAdapter):
        return typed.json_schema(mode=mode, schema_generator=_Untitled)
    schema = typed.model_json_schema(mode=mode, schema_generator=_Untitled)
    schema.pop("title", None)
    return {"type": "object", "properties": {}, **schema}


def _is_plain(hint: Any, around: tuple[Any, ...] = ()) -> bool:
    """Whether values of this type are the same in Python and in JSON, so that the schema alone judges them."""
    if hint is Any or any(hint is each for each in (*_PLAIN, *around)):
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _is_plain(inner[0], around) and not any(isinstance(each, _VALIDATORS) for each in inner[1:])
    if origin is Literal:
        return all(type(each) in _PLAIN for each in inner)
    if origin in _LISTS:
        return all(_is_plain(each, around) for each in inner)
    if isinstance(hint, TypeAliasType):
        return _is_plain(hint.__value__, (*around, hint))
    if is_typeddict(hint):
        fields = get_type_hints(hint, include_extras=True).values()
        return all(_is_plain(each, (*around, hint)) for each in fields)
    return False


def _yield_type(hint: Any) -> Any:
    """The type of the values that a generator yields."""
    inner = get_args(hint)
    return inner[0] if inner else Any


def _list_validation_faults(error: pydantic.ValidationError) -> list[dict[str, str]]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return [{"path": "".join(f"/{part}" for part in each["loc"]), "message": each["msg"]} for each in errors]


def _format_faults(faults: Sequence[Mapping[str, Any]]) -> str:
    sentences = "; ".join(describe_findings(faults[:SHOWN_FAULTS]))
    more = len(faults) - SHOWN_FAULTS
    return f"{sentences}; and {more} more" if more > 0 else sentences


def _wrong(what: str, code: str, faults: Sequence[Mapping[str, Any]]) -> StepError:
    data: Json = [{"path": each["path"], "message": each["message"]} for each in faults]  # the log has these two
    return StepError(f"{what}: {_format_faults(faults)}"[:2000], code=code, retriable=False, data=data)
