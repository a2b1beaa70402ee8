"""Documents of OpenAPI 3: which operations a service has, which arguments each takes, and where in a request they go.

An operation is a function: its arguments are its parameters by their names, and `body`. Nothing is read but the
document itself: references to other files or addresses make an operation unusable, and leave the others usable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urlsplit

import msgspec

from hai_flow import values
from hai_flow.definition.names.wording import kind_of, shorten
from hai_flow.definition.plan import BodyField, BodyKind, DescribedCallback, Operation, Placed
from hai_flow.definition.schemas.foreign_schemas import read_part
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.yaml.document import parse
from hai_flow.primitives.json_pointers import escape, unescape
from hai_flow.primitives.titles import TITLE_CHARS_MAX
from hai_flow.values import Json

METHODS: Final = ("get", "put", "post", "delete", "head", "patch")
DESCRIPTION_CHARS_MAX: Final = 2000
_SCHEMAS: Final = ("components", "schemas")
_FORMATS: Final = frozenset({"date", "date-time", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"})
_OF_THE_REQUEST: Final = frozenset({"accept", "content-type", "authorization"})  # which OpenAPI itself passes over
_REFUSED_HEADERS: Final = frozenset({"host", "cookie", "content-length", "transfer-encoding", "connection", "upgrade"})
_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
}
_JSON: Final = "application/json"
_BODIES: Final[tuple[tuple[str, BodyKind], ...]] = (
    (_JSON, "body"),
    ("application/x-www-form-urlencoded", "form"),
    ("multipart/form-data", "multipart"),
    ("text/plain", "text"),
)
_LEFT_OUT: Final = frozenset({"xml", "discriminator", "externalDocs", "example", "nullable"})
_OF_THE_ARGUMENTS: Final = re.compile(
    r"\{\$request\.(?:(?:query|path|header)\.(?P<name>[^}]+)|body(?P<pointer>#/[^}]*))\}"
)
_DEPTH_MAX: Final = 100  # of one schema of the document
DEFINITIONS_MAX: Final = 5000  # of one operation; the time to compile a chain of them grows with its square


class UnusableDocument(ValueError):
    """The document, or an operation of it, can't be used; the sentence says why."""


class ApiDocument:
    """plan.Service. Build it with `read`."""

    def __init__(self, raw: Mapping[str, Json]) -> None:
        self._raw = raw
        self._known: dict[str, Operation] = {}
        self._names: dict[tuple[str, ...], str] = {}
        self._references: dict[str, str] = {}
        self._definitions: dict[tuple[str, bool], _Definition] = {}
        self._has_siblings = not str(raw.get("openapi")).startswith("3.0")  # beside `$ref`, since 3.1

    @cached_property
    def _places(self) -> dict[str, tuple[str, str]]:
        """The path and the method of each operation, by its id."""
        places: dict[str, tuple[str, str]] = {}
        for path, item in _mapping(self._raw.get("paths")).items():
            for method in METHODS:
                id = _mapping(_mapping(item).get(method)).get("operationId")
                if isinstance(id, str) and id:
                    places.setdefault(id, (path, method))
        return places

    @property
    def ids(self) -> Sequence[str]:
        return tuple(self._places)

    @property
    def server(self) -> str | None:
        """The address of the service, if the document says it in full."""
        servers = self._raw.get("servers")
        first = servers[0] if isinstance(servers, list) and servers else None
        url = _mapping(first).get("url")
        if not isinstance(url, str):
            return None
        for name, variable in _mapping(_mapping(first).get("variables")).items():
            url = url.replace(f"{{{name}}}", str(_mapping(variable).get("default", "")))
        return url if urlsplit(url).scheme in ("http", "https") and "{" not in url else None

    def find(self, id: str) -> Operation:
        """Raises KeyError if there is no such operation, `UnusableDocument` if it can't be called."""
        operation = self._known.get(id)
        if operation is None:
            path, method = self._places[id]
            operation = self._known[id] = self._operation(id, path, method)
        return operation

    def _operation(self, id: str, path: str, method: str) -> Operation:
        item = _mapping(_mapping(self._raw.get("paths")).get(path))
        raw = _mapping(item.get(method))
        placed, properties, required = self._parameters(item, raw)
        body, body_type, fields = None, None, {}
        if "requestBody" in raw:
            request = _mapping(self._resolve(raw["requestBody"]))
            body, body_type, media = self._body(request)
            properties["body"], fields = media.get("schema", {}), self._describe_fields(body, media)
            if request.get("required") is True:
                required.append("body")
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        texts = [raw.get(key) for key in ("summary", "description")]
        description = "\n\n".join(
            dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and text.strip())
        )
        return Operation(
            id,
            method.upper(),
            path,
            description[:DESCRIPTION_CHARS_MAX],
            self._compile_schema(schema, is_sent=True),
            tuple(placed),
            body,
            body_type,
            self._result(raw),
            self._callback(raw),
            texts[0].strip()[:TITLE_CHARS_MAX] if isinstance(texts[0], str) else "",
            fields,
        )

    def _callback(self, raw: Mapping[str, Json]) -> DescribedCallback | None:
        """The callback that the operation has; None where it has none, or several. None as well where it can't be read:
        then the author of the workflow may give a schema."""
        try:
            callbacks = [
                (expression, _mapping(_mapping(self._resolve(item)).get("post")))
                for each in _mapping(raw.get("callbacks")).values()
                for expression, item in _mapping(self._resolve(each)).items()
            ]
            if len(callbacks) != 1:
                return None
            ((expression, post),) = callbacks
            body = _mapping(self._resolve(post.get("requestBody")))
            kind, _, media = self._body(body) if body else ("text", "", {})
            schema = self._compile_schema(media.get("schema", {})) if kind == "body" else None
            return DescribedCallback(_place_in(expression), schema)
        except UnusableDocument:
            return None

    def _parameters(
        self, item: Mapping[str, Json], raw: Mapping[str, Json]
    ) -> tuple[list[Placed], dict[str, Json], list[str]]:
        parameters: dict[tuple[str, str], Mapping[str, Json]] = {}
        for each in (*_list(item.get("parameters")), *_list(raw.get("parameters"))):
            parameter = _mapping(self._resolve(each))
            parameters[str(parameter.get("in")), str(parameter.get("name"))] = parameter
        placed: list[Placed] = []
        properties: dict[str, Json] = {}
        required: list[str] = []
        for (place, name), parameter in parameters.items():
            needed = place == "path" or parameter.get("required") is True
            if place == "header" and name.lower() in _OF_THE_REQUEST:
                continue
            if place == "cookie" or (place == "header" and name.lower() in _REFUSED_HEADERS):
                if needed:
                    raise UnusableDocument(f"it needs the {place} `{shorten(name)}`, which is not sent from here")
                continue
            if name in properties or name == "body":
                raise UnusableDocument(f"two of its parameters are called `{shorten(name)}`")
            try:
                placed.append(_place_parameter(place, name, parameter))
            except UnusableDocument:
                if needed:
                    raise
                continue
            schema = _mapping(parameter.get("schema"))
            about = parameter.get("description")
            properties[name] = {**schema, **({"description": about} if isinstance(about, str) else {})}
            if needed:
                required.append(name)
        return placed, properties, required

    def _body(self, request: Mapping[str, Json]) -> tuple[BodyKind, str, Mapping[str, Json]]:
        """How the body is sent, its media type, and its description."""
        content = _mapping(request.get("content"))
        for preferred, kind in _BODIES:
            for media_type, media in content.items():
                plain = media_type.partition(";")[0].strip().lower()
                if plain == preferred or (kind == "body" and plain.endswith("+json")) or plain == "*/*":
                    return kind, _JSON if plain == "*/*" else plain, _mapping(media)
        raise UnusableDocument(
            f"its body is {', '.join(content) or 'nothing that is known'}, which is not sent from here"
        )

    def _describe_fields(self, kind: BodyKind, media: Mapping[str, Json]) -> dict[str, BodyField]:
        """The fields of a form that are files, or written with brackets."""
        fields: dict[str, BodyField] = {}
        schema = _mapping(self._resolve(media.get("schema")))
        for name, each in _mapping(schema.get("properties")).items() if kind == "multipart" else ():
            if self._is_file(each):
                fields[name] = "file"
        for name, each in _mapping(media.get("encoding")).items() if kind == "form" else ():
            if _mapping(each).get("style") == "deepObject":
                fields[name] = "deepObject"
        return fields

    def _is_file(self, schema: Json, depth: int = 2) -> bool:
        """Whether a field is a file, or several, maybe with null beside. JSON within a text is none."""
        field = _mapping(self._resolve(schema))
        inner = [field.get("items"), *_list(field.get("anyOf"))[:9], *_list(field.get("oneOf"))[:9]] if depth else []
        is_text = "contentEncoding" in field or field.get("contentMediaType", _JSON) == _JSON
        return field.get("format") == "binary" or not is_text or any(self._is_file(each, depth - 1) for each in inner)

    def _result(self, raw: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """The schema of the operation's successful answer, None where the document has none that can be used."""
        try:
            return self._find_result(raw)
        except UnusableDocument:  # a call can be made all the same
            return None

    def _find_result(self, raw: Mapping[str, Json]) -> Mapping[str, Json] | None:
        responses = _mapping(raw.get("responses"))
        for status in ("200", "201", "202", "2XX", "default"):
            content = _mapping(_mapping(self._resolve(responses.get(status))).get("content"))
            for media_type, media in content.items():
                if "json" in media_type and "schema" in _mapping(media):
                    return cast(Mapping[str, Json], self._bundle_schema(_mapping(media)["schema"]))
        return None

    def _resolve(self, value: Json) -> Json:
        """`value`, with a `$ref` followed to the object that it names."""
        references: set[str] = set()
        while isinstance(value, Mapping) and isinstance(reference := value.get("$ref"), str):
            if reference in references:
                raise UnusableDocument(f"it refers to {shorten(reference)}, which refers to itself")
            references.add(reference)
            value = self._find_part(reference)
        return value

    def _find_part(self, reference: str) -> Json:
        """The part of the document that a reference like `#/components/schemas/A` names."""
        if not reference.startswith("#/"):
            raise UnusableDocument(
                f"it refers to {shorten(reference)}, and only what stands in the document itself is read"
            )
        part_value: Json = self._raw
        for part in _parts(reference):
            if isinstance(part_value, list) and part.isdecimal() and len(part) < 10:
                part_value = part_value[int(part)] if int(part) < len(part_value) else None
            else:
                part_value = _mapping(part_value).get(part)
        if part_value is None:
            raise UnusableDocument(f"it refers to {shorten(reference)}, which is not there")
        return part_value

    def _compile_schema(self, schema: Json, *, is_sent: bool = False) -> JsonSchema:
        try:
            return JsonSchema(self._bundle_schema(schema, is_sent=is_sent), binds_formats=False)
        except ValueError as error:
            raise UnusableDocument(f"its schema can't be used: {str(error).splitlines()[0][:300]}") from None

    def _bundle_schema(self, schema: Json, *, is_sent: bool = False) -> Json:
        """A schema as JSON Schema has it, with all that it refers to. `is_sent`: of a request, in which properties that
        are to be read only are not required."""
        used = _References(set(), is_sent)
        converted = read_part(self._convert(schema, used, 0))
        if not used.names or not isinstance(converted, dict):
            return converted
        definitions: dict[str, Json] = {}
        waiting = sorted(used.names, reverse=True)
        while waiting:
            name = waiting.pop()
            if name not in definitions:
                definition = self._resolve_definition(name, is_sent=is_sent)
                definitions[name] = definition.schema
                if len(definitions) > DEFINITIONS_MAX:
                    raise UnusableDocument(f"its schema refers to more than {DEFINITIONS_MAX} others")
                waiting += sorted(definition.used, reverse=True)
        return {**converted, "$defs": definitions}

    def _resolve_definition(self, name: str, *, is_sent: bool) -> _Definition:
        """The definition of this name, which all references to it share. It is converted once, and the depth of nesting
        is counted from its own top, not from the reference."""
        definition = self._definitions.get((name, is_sent))
        if definition is None:
            used = _References(set(), is_sent)
            converted = read_part(self._convert(self._find_part(self._references[name]), used, 0))
            definition = self._definitions[name, is_sent] = _Definition(converted, frozenset(used.names))
        return definition

    def _convert(self, schema: Json, used: _References, depth: int) -> Json:
        """A schema as JSON Schema has it; the names of the definitions that it needs are added to `used`."""
        if depth > _DEPTH_MAX:
            raise UnusableDocument("its schema is nested too deep")
        if isinstance(schema, list):
            return [self._convert(each, used, depth + 1) for each in schema]
        if not isinstance(schema, Mapping):
            return schema
        converted: dict[str, Json] = {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = self._name(reference)
            used.names.add(name)
            converted["$ref"] = f"#/$defs/{quote(escape(name))}"
            if not self._has_siblings:  # here the keys beside `$ref` have no effect
                converted |= {key: schema[key] for key in ("description",) if isinstance(schema.get(key), str)}
                return _as_of_2020(converted, nullable=schema.get("nullable") is True)
        for key, value in schema.items():
            if key == "$ref" and key in converted:
                continue
            if key in _LEFT_OUT or key.startswith("x-") or (key == "format" and value not in _FORMATS):
                continue
            if key == "oneOf" and "discriminator" in schema and "anyOf" not in schema:
                key = "anyOf"  # that member tells the branches apart, which may overlap without it
            if key == "required" and used.is_sent and isinstance(value, list):
                read_only = self._list_read_only(schema)
                converted[key] = [each for each in value if each not in read_only]
            elif key in ("enum", "const", "default", "examples", "required"):
                converted[key] = value
            elif key in ("properties", "patternProperties", "$defs", "dependentSchemas"):
                converted[key] = {name: self._convert(each, used, depth + 1) for name, each in _mapping(value).items()}
            else:
                converted[key] = self._convert(value, used, depth + 1)
        return _as_of_2020(converted, nullable=schema.get("nullable") is True)

    def _list_read_only(self, schema: Mapping[str, Json]) -> list[str]:
        """The properties that are to be read only, by their own schema or the one that they refer to."""
        properties = _mapping(schema.get("properties"))
        parts = {name: (_mapping(each), _mapping(self._resolve(each))) for name, each in properties.items()}
        return [name for name, two in parts.items() if any(each.get("readOnly") is True for each in two)]

    def _name(self, reference: str) -> str:
        """The name of the definition at a place of the document, which no other place has."""
        place = tuple(_parts(reference)) if reference.startswith("#/") else (reference,)
        unique = self._names.get(place)
        if unique is None:
            plain = place[-1] if place[:-1] == _SCHEMAS else ".".join(place)
            unique, number = plain, 1
            while unique in self._references:
                number += 1
                unique = f"{plain}.{number}"
            self._names[place], self._references[unique] = unique, reference
        return unique


class _References(msgspec.Struct):
    """The names of the definitions that a schema refers to. `is_sent`: it is one of a request."""

    names: set[str]
    is_sent: bool


class _Definition(msgspec.Struct, frozen=True):
    """A schema of the document as JSON Schema has it, and the names of those that it refers to itself."""

    schema: Json
    used: frozenset[str]


def _parts(reference: str) -> list[str]:
    """The names on the way to a place, of a JSON Pointer in an address."""
    return [unescape(unquote(part)) for part in reference[2:].split("/")]


def read(source: bytes) -> ApiDocument:
    """The document, in JSON or YAML. Raises `UnusableDocument`."""
    try:
        value = values.loads(source)
    except values.NotJson:
        document = parse(source)
        if document.findings:
            first = document.findings[0]
            raise UnusableDocument(f"it can't be read: line {first.line}: {first.message}") from None
        value = document.value
    if not isinstance(value, Mapping):
        raise UnusableDocument(f"expected a document of OpenAPI, found {kind_of(value)}")
    version = value.get("openapi")
    if not isinstance(version, str) or not version.startswith("3."):
        raise UnusableDocument(f"expected `openapi: 3...` in it, found {kind_of(version or value.get('swagger'))}")
    return ApiDocument(value)


def _place_in(expression: str) -> str:
    """The argument that an expression like `{$request.body#/url}` means."""
    match = _OF_THE_ARGUMENTS.fullmatch(expression)
    if match is None:
        return ""
    return match["name"] or ".".join(["body", *(part for part in _parts(match["pointer"]) if part)])


def _place_parameter(place: str, name: str, parameter: Mapping[str, Json]) -> Placed:
    if "content" in parameter and not _mapping(parameter.get("schema")):
        raise UnusableDocument(f"its parameter `{shorten(name)}` is a document in itself (`content`)")
    styles = _STYLES.get(place, ())
    style = parameter.get("style", "form" if place == "query" else "simple")
    if style not in styles:
        raise UnusableDocument(f"its parameter `{shorten(name)}` is written in the style `{shorten(str(style))}`")
    explode = parameter.get("explode", style == "form")
    return Placed(name, cast(Any, place), cast(Any, style), explode is True)


def _as_of_2020(schema: dict[str, Json], *, nullable: bool) -> dict[str, Json]:
    """A schema of OpenAPI 3.0 as JSON Schema 2020-12: `nullable` is written differently there."""
    if nullable and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
    elif nullable:
        schema = {"anyOf": [schema, {"type": "null"}]}
    return schema


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else ()
