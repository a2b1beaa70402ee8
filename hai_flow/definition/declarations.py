"""What a document declares: defaults, input, state, models, tools and roles (docs/language.md#the-document)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from hai_flow.definition import plan
from hai_flow.definition.document import Path, kind_of, shorten, suggestion
from hai_flow.definition.expressions import Names
from hai_flow.definition.names import NameKind, name_fault
from hai_flow.definition.pieces import DEADLINE_DEFAULT, Pieces
from hai_flow.definition.reference import SHAPES
from hai_flow.definition.schemas import JsonSchema, closed

Json: TypeAlias = Any

(_TOOL_KINDS,) = SHAPES["tool"].exactly_one
_TOOL: Final = {kind: SHAPES["tool"].of(kind) for kind in _TOOL_KINDS}
_STATE_EXTRAS: Final = SHAPES["state_variable"].without("default")  # which JSON Schema knows itself
_TARGET: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?")
_SERVICE: Final = ("base_url", "openapi")
_PROVIDERS: Final = (
    "anthropic", "azure", "bedrock", "cohere", "deepseek", "google", "groq", "mistral", "ollama", "openai",
    "openrouter", "together", "vertex", "xai",
)  # fmt: skip
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
_EMPTY: Final = {"string": '""', "array": "[]", "object": "{}", "integer": "0", "number": "0", "boolean": "false"}
_SHAPING: Final = frozenset(("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"))  # say what a value may be
_MEMBER: Final = re.compile(r"(user|group):.+")


class Declarations(Pieces):
    """Reads declarations into the tables of `Pieces`."""

    # -- input and state -------------------------------------------------------------------------------------------

    def read_input(self, raw: Json) -> JsonSchema:
        """The schema of the input; one that takes nothing where there is none."""
        if not raw:
            return JsonSchema({"type": "object", "additionalProperties": False})
        if raw.get("type", "object") != "object" or "type" not in raw:
            given = raw.get("type")
            found = f"`{given}`" if isinstance(given, str) else "none"
            hint = "; put the properties under `properties`" if not isinstance(given, str) else ""
            message = f"expected `type: object` at the top of `input`, found {found}{hint}"
            self.reader.error(("input",), "input.type", message)
            if "properties" not in raw and "type" not in raw:
                return JsonSchema({})
        compiled = self.schema(raw, ("input",))
        return JsonSchema(closed(compiled.raw)) if compiled else JsonSchema({})

    def read_state(self, value: Mapping[str, Json]) -> None:
        """Fill `self.state`."""
        for name, raw in value.items():
            at = ("state", name)
            self._name(name, at, "variable")
            self.state[name] = self._state_variable(name, raw, at)

    def _name(self, name: str, at: Path, kind: NameKind) -> None:
        fault = name_fault(name, kind)
        if fault:
            self.reader.error(at, "name.invalid", fault, key=True)

    def _state_variable(self, name: str, raw: Json, at: Path) -> plan.StateVariable | None:
        if not isinstance(raw, Mapping):
            hint = f"; write `{name}: {{type: ..., default: ...}}`"
            message = f"expected a schema for the state `{name}`, found {kind_of(raw)}{hint}"
            self.reader.error(at, "shape.type", message)
            return None
        given = {key: raw[key] for key in _STATE_EXTRAS.words if key in raw}
        extras = self.reader.fields(_STATE_EXTRAS, given, at, "`state`")
        reduce = extras.get("reduce")
        self._check_reduce(reduce, raw, at)
        schema = self.schema({key: part for key, part in raw.items() if key not in given}, at)
        if schema is None:
            return None
        client = extras.get("client", False)
        if client and not _SHAPING & raw.keys():
            message = f"a client may write anything at all to `{name}`; say its `type`"
            self.reader.warning((*at, "client"), "state.client", message, key=True)
        start = schema.with_defaults(raw.get("default"))
        if "default" not in raw and start is None and reduce is None and schema.findings(None):
            self._doubt_start(name, raw, at)
        return plan.StateVariable(name, schema, start, reduce, client, extras.get("keep") == "thread")

    def _doubt_start(self, name: str, raw: Mapping[str, Json], at: Path) -> None:
        """A variable without default starts null, also where its type has no null."""
        kind = raw.get("type")
        empty = _EMPTY.get(kind) if isinstance(kind, str) else None
        nullable = f", or `type: [{kind}, 'null']` where null is meant" if isinstance(kind, str) else ""
        message = f"`{name}` starts as null, which its schema does not have; add `default: {empty or '...'}`{nullable}"
        self.reader.warning(at, "state.starts_null", message, key=True)

    def _check_reduce(self, reduce: Json, raw: Mapping[str, Json], at: Path) -> None:
        wanted = {"append": ("array",), "merge": ("object",), "max": ("number", "integer")}.get(reduce or "", ())
        given = raw.get("type")
        if reduce and isinstance(given, str) and given not in wanted:
            message = f"`reduce: {reduce}` needs `type: {' or '.join(wanted)}`, found `{given}`; change one of them"
            self.reader.error((*at, "reduce"), "state.reduce", message)

    # -- defaults, models, roles -----------------------------------------------------------------------------------

    def read_defaults(self, value: Json, names: Names) -> tuple[plan.Retry | None, tuple[Json, ...]]:
        """Fill the defaults; `retry` and the texts of `notify` as written."""
        at = ("defaults",)
        fields = self.reader.fields(SHAPES["defaults"], value, at, "`defaults`")
        self.default_timeout = self.duration(fields, "timeout", at, names)
        self.default_deadline = self.duration(fields, "deadline", at, names) or DEADLINE_DEFAULT
        retry = self.retry(fields, at, names)
        self.has_default_retry = retry is not None
        if "model" in fields and self.check_model(fields["model"], (*at, "model")):
            self.default_model = fields["model"]
        return retry, tuple(fields.get("notify", ()))

    def check_model(self, name: str, at: Path) -> bool:
        """Whether a model of this name is declared."""
        if name in self.models or self.incomplete:
            return True
        hint = suggestion(name, self.models) or "; declare it under `models`"
        self.reader.error(at, "model.unknown", f"there is no model `{shorten(name)}`{hint}")
        return False

    def read_models(self, value: Mapping[str, Json], names: Names) -> None:
        """Fill `self.models`."""
        for name, raw in value.items():
            at = ("models", name)
            self._name(name, at, "handle")
            fields = self.reader.fields(SHAPES["model"], raw, at, f"the model `{name}`")
            key = self.text(fields, "api_key", at, names.with_roots("secrets"))
            self._doubt_provider(fields.get("provider", ""), (*at, "provider"))
            self.models[name] = None
            if "provider" in fields and "model" in fields:
                self.models[name] = plan.Model(
                    name,
                    fields["provider"],
                    fields["model"],
                    fields.get("base_url"),
                    key,
                    fields.get("temperature"),
                    fields.get("max_tokens"),
                )

    def _doubt_provider(self, name: str, at: Path) -> None:
        """Who serves models is the deployment's matter: only a near match is worth a word."""
        near = [] if name in _PROVIDERS else difflib.get_close_matches(name.lower(), _PROVIDERS, n=1, cutoff=0.8)
        if near:
            self.reader.warning(at, "model.provider", f"nobody is known as `{name}`; did you mean `{near[0]}`?")

    def read_roles(self, value: Mapping[str, Json]) -> None:
        """Fill `self.roles`."""
        for name, raw in value.items():
            at = ("roles", name)
            self._name(name, at, "handle")
            members = raw if isinstance(raw, list) else [raw]
            sound = True
            for index, member in enumerate(members):
                if isinstance(member, str) and _MEMBER.fullmatch(member) and "${{" not in member:
                    continue
                sound = False
                place = (*at, index) if isinstance(raw, list) else at
                hint = f"; did you mean `user:{member}`?" if isinstance(member, str) and ":" not in member else ""
                message = f"expected user:ID or group:NAME in the role `{name}`, found {kind_of(member)}{hint}"
                self.reader.error(place, "role.member", message)
            self.roles[name] = tuple(members) if sound else None

    # -- tools -----------------------------------------------------------------------------------------------------

    def read_tools(self, value: Mapping[str, Json], names: Names) -> None:
        """Fill `self.tools`."""
        for name, raw in value.items():
            at = ("tools", name)
            self._name(name, at, "handle")
            self.tools[name] = self._tool(name, raw, at, names)

    def _tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        if not isinstance(raw, Mapping):
            hint = f"; write `{name}: {{python: {raw}}}`" if isinstance(raw, str) and _TARGET.fullmatch(raw) else ""
            message = f"expected a mapping for the tool `{name}`, found {kind_of(raw)}{hint}"
            self.reader.error(at, "shape.type", message)
            return None
        kinds = [kind for kind in _TOOL_KINDS if kind in raw]
        if len(kinds) != 1:
            self._no_tool_kind(name, raw, kinds, at)
            return None
        match kinds[0]:
            case "python":
                return self._python_tool(name, raw, at, names)
            case "mcp":
                return self._mcp_tool(name, raw, at, names)
            case "http":
                return self._http_tool(name, raw, at, names)
            case _:
                return self._frontend_tool(name, raw, at, names)

    def _no_tool_kind(self, name: str, raw: Mapping[str, Json], kinds: Sequence[str], at: Path) -> None:
        listed = ", ".join(f"`{kind}`" for kind in _TOOL_KINDS)
        found = " and ".join(f"`{kind}`" for kind in kinds) or "none"
        message = f"expected one of {listed} in the tool `{name}`, found {found}"
        stranger = next((key for key in raw if suggestion(key, _TOOL_KINDS)), None) if not kinds else None
        if stranger is not None:
            self.reader.error((*at, stranger), "tool.kind", message + suggestion(stranger, _TOOL_KINDS), key=True)
        else:
            self.reader.error((*at, kinds[1]) if kinds else at, "tool.kind", message, key=True)

    def _python_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        fields = self.reader.fields(_TOOL["python"], raw, at, f"the tool `{name}`")
        target = fields.get("python")
        timeout = self.duration(fields, "timeout", at, names)
        if target is None:
            return None
        if not _TARGET.fullmatch(target):
            message = (
                f"expected a module (`pkg.mod`), a function (`pkg.mod:fn`) or `registered`, found `{shorten(target)}`"
            )
            self.reader.error((*at, "python"), "tool.python", message)
            return None
        target = "" if target == "registered" else target
        return plan.PythonTool(name, target, fields.get("effect", "write"), "effect" in fields, timeout)

    def _settings(self, fields: Mapping[str, Json], at: Path, names: Names) -> dict[str, plan.Template | None]:
        """`auth`, `headers` and `env`, which may name secrets."""
        names = names.with_roots("secrets")
        if "auth" in fields:
            self.check_auth(fields["auth"], (*at, "auth"))
        return {
            key: self.template(fields[key], (*at, key), names) for key in ("auth", "headers", "env") if key in fields
        }

    def check_auth(self, value: Json, at: Path) -> None:
        """That `auth` is a token, or says in one of the known ways how to authenticate."""
        if isinstance(value, str) and value:
            return
        if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _AUTH:
            keys = " and ".join(f"`{key}`" for key in value) if isinstance(value, Mapping) else ""
            listed = ", ".join(f"`{{{shape}}}`" for shape in _AUTH.values())
            message = (
                f"expected a token such as ${{{{ secrets.NAME }}}}, or one of {listed}, found {keys or kind_of(value)}"
            )
            self.reader.warning(at, "auth.kind", message)
            return
        ((way, inner),) = value.items()
        wanted = _AUTH_KEYS[way]
        given = tuple(inner) if isinstance(inner, Mapping) else ()
        if (wanted and sorted(given) != sorted(wanted)) or (not wanted and not (isinstance(inner, str) and inner)):
            self.reader.warning((*at, way), "auth.kind", f"expected `{_AUTH[way]}`, found {kind_of(inner)}")

    def _mcp_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        fields = self.reader.fields(_TOOL["mcp"], raw, at, f"the tool `{name}`")
        timeout = self.duration(fields, "timeout", at, names)
        settings = self._settings(fields, at, names)
        if "mcp" not in fields:
            return None
        if "${{" in fields["mcp"]:
            self.reader.error((*at, "mcp"), "tool.hole", "a server's address is literal: holes are not filled here")
            return None
        allow = tuple(fields["allow"]) if "allow" in fields else None
        return plan.McpTool(name, fields["mcp"], allow, fields.get("effect"), timeout=timeout, **settings)

    def _http_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        fields = self.reader.fields(_TOOL["http"], raw, at, f"the tool `{name}`")
        timeout = self.duration(fields, "timeout", at, names)
        settings = self._settings(fields, at, names)
        if not isinstance(fields.get("http"), (str, Mapping)):
            if "http" in fields:
                message = f"expected a URL or a mapping, found {kind_of(fields['http'])}"
                self.reader.error((*at, "http"), "shape.value", message)
            return None
        for key in fields["http"] if isinstance(fields["http"], Mapping) else ():
            if key not in _SERVICE:
                hint = suggestion(key, _SERVICE) or f"; the keys are {', '.join(_SERVICE)}"
                message = f"unknown key `{key}` in the `http` of the tool `{name}`{hint}"
                self.reader.warning((*at, "http", key), "tool.http", message, key=True)
        allow = tuple(fields["allow"]) if "allow" in fields else None
        effect = fields.get("effect", "write")
        return plan.HttpTool(name, fields["http"], effect, allow, timeout=timeout, **settings)

    def _frontend_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        outer = self.reader.fields(_TOOL["frontend"], raw, at, f"the tool `{name}`")
        if "frontend" not in outer:
            return None
        at = (*at, "frontend")
        fields = self.reader.fields(SHAPES["frontend"], outer["frontend"], at, f"the frontend tool `{name}`")
        parameters = self.schema(fields["parameters"], (*at, "parameters")) if "parameters" in fields else None
        result = self.schema(fields["result"], (*at, "result")) if "result" in fields else None
        deadline = self.duration(fields, "deadline", at, names) or self.default_deadline
        answered = fields.get("answer") != "none"
        for key in ("result", "deadline") if not answered else ():
            if key in fields:
                message = f"`answer: none` says that nothing comes back, `{key}` is of what does; remove one of them"
                self.reader.error((*at, key), "tool.no_answer", message, key=True)
        predict = self._predictions(fields.get("predict", {}), parameters, (*at, "predict"))
        return plan.FrontendTool(name, fields.get("description", ""), parameters, result, deadline, answered, predict)

    def _predictions(
        self, value: Mapping[str, str], parameters: JsonSchema | None, at: Path
    ) -> tuple[tuple[str, str], ...]:
        """Which state variables a client may foresee from which arguments."""
        known = {} if parameters is None else parameters.raw.get("properties", {})
        for name, argument in value.items():
            if name not in self.state:
                hint = suggestion(name, self.state) or "; declare it under `state`"
                message = f"there is no state variable `{shorten(name)}`{hint}"
                self.reader.error((*at, name), "tool.predict", message, key=True)
            elif argument not in known:
                hint = suggestion(argument, known) or "; it has to be one of the tool's `parameters`"
                self.reader.error((*at, name), "tool.predict", f"there is no argument `{shorten(argument)}`{hint}")
        return tuple(value.items())


def state_raw(state: Mapping[str, plan.StateVariable | None]) -> dict[str, Json]:
    """The schema of all of `state`. A variable without default starts null, so null is among its types."""
    properties: dict[str, Json] = {}
    required: list[str] = []
    for name, variable in state.items():
        if variable is None:
            properties[name] = {}
            continue
        raw = variable.schema.raw
        required.append(name)
        properties[name] = raw if "default" in raw else {"anyOf": [raw, {"type": "null"}]}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
