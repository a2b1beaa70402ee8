"""The declarations of a document: defaults, input, state, models, tools and roles (docs/language.md#the-document)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.fields import DEADLINE_DEFAULT, Constant, Parts, texts
from hai_flow.definition.names.durations import spell
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.definition.names.name_forms import NameKind, check_name
from hai_flow.definition.names.secret_names import SecretBearing
from hai_flow.definition.names.visible_steps import Visibility
from hai_flow.definition.names.wording import kind_of, shorten, suggestion
from hai_flow.definition.raw_steps import Outline
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.tools.a2a_agents import AGENT_MS
from hai_flow.definition.tools.auth import check_auth
from hai_flow.definition.tools.mcp_servers import read_server
from hai_flow.definition.tools.openapi import ApiDocument, UnusableDocument
from hai_flow.definition.tools.openapi import read as read_openapi
from hai_flow.definition.triggers import read_concurrency, read_limits, read_triggers
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.includes import Used
from hai_flow.definition.yaml.key_table import DOCUMENT_SHAPES
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.primitives.hosts import place_fault
from hai_flow.primitives.titles import TITLE_CHARS_MAX
from hai_flow.values import Json

(_TOOL_KINDS,) = DOCUMENT_SHAPES["tool"].exactly_one
_TOOL: Final = {kind: DOCUMENT_SHAPES["tool"].of(kind) for kind in _TOOL_KINDS}
_STATE_EXTRAS: Final = DOCUMENT_SHAPES["state_variable"].without("default")  # which JSON Schema knows itself
_TARGET: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?")
_FILE: Final = re.compile(r"(?:\./)?(?P<path>[A-Za-z_]\w*(?:[./][A-Za-z_]\w*)*?)(?:\.py)?(?P<function>:[A-Za-z_]\w*)?")
_SERVICE: Final = ("base_url", "openapi")
_TEMPERATURE_MAX: Final = 2
_MODULES: Final = ("module", "file", "path", "script", "function", "import")  # other words for `python`
_BUILT_IN: Final = ("azure", "dashscope", "deepseek", "llamacpp", "ollama", "openai", "vllm", "zhipu")
_PLUGINS: Final = {"anthropic": "hai-flow-anthropic"}
_MAKERS: Final = {"claude": "anthropic", "gpt": "openai", "chatgpt": "openai", "gemini": "google", "qwen": "dashscope"}
_TOTAL_MS: Final = 300_000  # of one answer, where nothing else is written
_OTHERS: Final = ("bedrock", "cohere", "google", "groq", "mistral", "openrouter", "together", "vertex", "xai")
_KEY: Final = re.compile(r"\s*\$\{\{\s*secrets\.(?P<name>[A-Za-z_][A-Za-z0-9_]{0,62})\s*\}\}\s*")
_OF_DEPLOYMENT: Final = ("provider", "model", "api", "base_url", "api_key", "quirks", "context", "price")
_EMPTY: Final = {"string": '""', "array": "[]", "object": "{}", "integer": "0", "number": "0", "boolean": "false"}
_SHAPING: Final = frozenset(("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"))  # they restrict a value
_MEMBER: Final = re.compile(r"(user|group):.+")
_READER: Final = re.compile(r"(user|role|group):\S{1,200}")
TENANT: Final = "tenant"


class Declared(msgspec.Struct, frozen=True):
    """The declarations of a document: all that its steps are checked against. None in a table: declared, but wrong.

    `incomplete`: a file that the document uses, or a section of its own, could not be read; it may declare the names
    that are missing here.
    `starts_alone`: the kind of the first trigger whose runs the system starts."""

    name: Json
    version: Json
    input: JsonSchema
    state: Mapping[str, plan.StateVariable | None]
    state_schema: Json
    models: Mapping[str, plan.Model | None]
    tools: Mapping[str, plan.Tool | None]
    roles: Mapping[str, tuple[str, ...] | None]
    visibility: tuple[str, ...]
    default_deadline: plan.Duration
    default_timeout: plan.Duration | None
    default_model: str | None
    default_retry: plan.Retry | None
    triggers: tuple[plan.Trigger, ...]
    starts_alone: str | None
    limits: plan.Limits
    concurrency: plan.Concurrency | None
    incomplete: bool
    without_chat: tuple[str, ...] = ()

    @property
    def default_wait(self) -> plan.Duration:
        """The deadline of what waits for no person, where it says none: working days are those of people."""
        return DEADLINE_DEFAULT if isinstance(self.default_deadline, Constant) else self.default_deadline


def read_declarations(reader: Reader, fields: Mapping[str, Json], used: Used, outline: Outline) -> Declared:
    document = reader.document.value
    wrong = isinstance(document, Mapping) and any(
        each in document and each not in fields for each in ("tools", "models")
    )
    return Declarations(reader, outline.fail_codes, used.incomplete or wrong).read(
        fields, used, Visibility(outline, (), 0)
    )


class Declarations(Parts):
    """Reads declarations, one section after the other: each section may name those before it."""

    def __init__(self, reader: Reader, fail_codes: Set[str] = frozenset(), incomplete: bool = False) -> None:
        self.tools: dict[str, plan.Tool | None] = {}
        self.models: dict[str, plan.Model | None] = {}
        self.fallbacks: list[tuple[Reader, str, Path]] = []  # models that are asked instead of others, where they stand
        self.roles: dict[str, tuple[str, ...] | None] = {}
        self.state: dict[str, plan.StateVariable | None] = {}
        self.default_deadline: plan.Duration = DEADLINE_DEFAULT
        self.default_timeout: plan.Duration | None = None
        self.default_model: str | None = None
        self.incomplete = incomplete
        self.used = Used()
        self.without_chat: list[str] = []
        self._own = reader
        super().__init__(reader, self.tools, fail_codes)

    def read(self, fields: Mapping[str, Json], used: Used, place: Visibility) -> Declared:
        """Every section of the document and of the files that it uses."""
        self.read_state(fields.get("state", {}))
        input_schema = self.read_input(fields.get("input", {}))
        state_schema = _build_state_schema(self.state)
        names = Names(Types(input_schema.raw, state_schema), steps=place)
        documents = [*used.documents, (self.reader, fields)]
        self.used = used
        for reader, sections in documents:
            with self._reading(reader):
                self.read_models(sections.get("models", {}), names)
        self.check_fallbacks()
        default_retry = self.read_defaults(fields["defaults"], names) if "defaults" in fields else None
        for reader, sections in documents:
            with self._reading(reader):
                self.read_tools(sections.get("tools", {}), names)
                self.read_roles(sections.get("roles", {}))
        starts = read_triggers(self, fields.get("triggers", ()), names, input_schema, fields.get("name"))
        return Declared(
            name=fields.get("name"),
            version=fields.get("version"),
            input=input_schema,
            state=self.state,
            state_schema=state_schema,
            models=self.models,
            tools=self.tools,
            roles=self.roles,
            visibility=self.read_visibility(fields.get("visibility", "requester")),
            default_deadline=self.default_deadline,
            default_timeout=self.default_timeout,
            default_model=self.default_model,
            default_retry=default_retry,
            triggers=starts.triggers,
            starts_alone=starts.alone,
            limits=read_limits(self, fields["limits"]) if "limits" in fields else plan.Limits(),
            concurrency=read_concurrency(self, fields["concurrency"], names) if "concurrency" in fields else None,
            incomplete=self.incomplete,
            without_chat=tuple(self.without_chat),
        )

    @contextmanager
    def _reading(self, reader: Reader) -> Iterator[None]:
        """Inside, findings are those of another document."""
        own, self.reader = self.reader, reader
        try:
            yield
        finally:
            self.reader = own

    # -- input and state -------------------------------------------------------------------------------------------

    def read_input(self, raw: Json) -> JsonSchema:
        """The schema of the input; one that takes nothing where there is none."""
        if not raw:
            return JsonSchema({"type": "object", "additionalProperties": False})
        if raw.get("type", "object") != "object" or "type" not in raw:
            type_name = raw.get("type")
            actual = f"`{type_name}`" if isinstance(type_name, str) else "none"
            hint = "; put the properties under `properties`" if not isinstance(type_name, str) else ""
            message = f"expected `type: object` at the top of `input`, found {actual}{hint}"
            self.reader.error(("input",), "input.type", message)
            if "properties" not in raw and "type" not in raw:
                return JsonSchema({})
        return self.schema(raw, ("input",), closed=True) or JsonSchema({})

    def read_state(self, value: Mapping[str, Json]) -> None:
        for name, raw in value.items():
            at = ("state", name)
            self._name(name, at, "variable")
            self.state[name] = self._compile_state_variable(name, raw, at)

    def _name(self, name: str, at: Path, kind: NameKind) -> None:
        fault = check_name(name, kind)
        if fault:
            self.reader.error(at, "name.invalid", fault, key=True)

    def _compile_state_variable(self, name: str, raw: Json, at: Path) -> plan.StateVariable | None:
        if not isinstance(raw, Mapping):
            hint = f"; write `{name}: {{type: ..., default: ...}}`"
            message = f"expected a schema for the state `{name}`, found {kind_of(raw)}{hint}"
            self.reader.error(at, "shape.type", message)
            return None
        extra_keys = {key: raw[key] for key in _STATE_EXTRAS.words if key in raw}
        extras = self.reader.fields(_STATE_EXTRAS, extra_keys, at, "`state`")
        reduce = extras.get("reduce")
        self._check_reduce(reduce, raw, at)
        schema = self.schema({key: part for key, part in raw.items() if key not in extra_keys}, at)
        if schema is None:
            return None
        client = extras.get("client", False)
        if client and not _SHAPING & raw.keys():
            message = f"a client may write anything at all to `{name}`; say its `type`"
            self.reader.warning((*at, "client"), "state.client", message, key=True)
        start = schema.with_defaults(raw.get("default"))
        if "default" not in raw and start is None and reduce is None and schema.findings(None):
            self._check_start(name, raw, at)
        keeps, shows = (extras.get(key) == "thread" for key in ("keep", "show"))
        return plan.StateVariable(name, schema, start, reduce, client, keeps, shows or client)

    def _check_start(self, name: str, raw: Mapping[str, Json], at: Path) -> None:
        """A variable without default starts null, also where its type has no null."""
        kind = raw.get("type")
        empty = _EMPTY.get(kind) if isinstance(kind, str) else None
        nullable = f", or `type: [{kind}, 'null']` where null is meant" if isinstance(kind, str) else ""
        message = f"`{name}` starts as null, which its schema does not have; add `default: {empty or '...'}`{nullable}"
        self.reader.warning(at, "state.starts_null", message, key=True)

    def _check_reduce(self, reduce: Json, raw: Mapping[str, Json], at: Path) -> None:
        numbers = ("number", "integer")
        kinds = {"append": ("array",), "merge": ("object",), "max": numbers, "min": numbers, "add": numbers}
        allowed = kinds.get(reduce or "", ())
        type_name = raw.get("type")
        if reduce and isinstance(type_name, str) and type_name not in allowed:
            message = (
                f"`reduce: {reduce}` needs `type: {' or '.join(allowed)}`, found `{type_name}`; change one of them"
            )
            self.reader.error((*at, "reduce"), "state.reduce", message)

    # -- defaults, models, roles -----------------------------------------------------------------------------------

    def read_defaults(self, value: Json, names: Names) -> plan.Retry | None:
        """Fill the defaults, and give that of `retry`."""
        at = ("defaults",)
        fields = self.reader.fields(DOCUMENT_SHAPES["defaults"], value, at, "`defaults`")
        self.default_timeout = self.duration(fields, "timeout", at, names)
        self.default_deadline = self.duration(fields, "deadline", at, names, working=True) or DEADLINE_DEFAULT
        retry = self.retry(fields, at, names)
        if "model" in fields and (
            self.incomplete or check_model(self.reader, self.models, fields["model"], (*at, "model"))
        ):
            self.default_model = fields["model"]
        return retry

    def read_models(self, value: Mapping[str, Json], names: Names) -> None:
        for name, raw in value.items():
            at = ("models", name)
            self._name(name, at, "handle")
            fields = self.reader.fields(DOCUMENT_SHAPES["model"], raw, at, f"the model `{name}`")
            self.models[name] = self._model(name, raw, fields, at, names)

    def _model(self, name: str, raw: Json, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Model | None:
        key = self._key(fields, at, names)
        total, idle = self._read_model_timeout(fields, at)
        quirks = self.reader.fields(DOCUMENT_SHAPES["quirks"], fields.get("quirks", {}), (*at, "quirks"), "`quirks`")
        price = None
        if "price" in fields:
            price = self.reader.fields(DOCUMENT_SHAPES["price"], fields["price"], (*at, "price"), "`price`")
        params = self._params(fields, at)
        self._check_provider(fields.get("provider", ""), (*at, "provider"))
        address = fields.get("base_url")
        if isinstance(address, str) and not address.startswith("${{") and not _is_address(address):
            message = (
                place_fault(address) or "expected an address that begins with https:// or http://; write all of it"
            )
            self.reader.refuse((*at, "base_url"), "model.base_url", message)
        fallback = tuple(fields.get("fallback", ()))
        self.fallbacks += [(self.reader, each, (*at, "fallback", n)) for n, each in enumerate(fallback)]
        if isinstance(raw, Mapping) and "use" in raw:
            for each in _OF_DEPLOYMENT:
                if each in raw:
                    message = f"`use` names a model of the deployment, which says its `{each}` as well; take it out"
                    self.reader.error((*at, each), "model.use", message, key=True)
            used = fields.get("use")
            if used is None:
                return None
            return plan.Model(name, use=used, params=params, total=total, idle=idle, fallback=fallback)
        missing = [each for each in ("provider", "model") if isinstance(raw, Mapping) and each not in raw]
        if missing:
            hint = ", or `use` a model of the deployment" if len(missing) == 2 else ""
            listed = " and ".join(f"`{each}`" for each in missing)
            is_are = "is" if len(missing) == 1 else "are"
            message = f"{listed} {is_are} missing in the model `{name}`{hint}"
            self.reader.error(at, "shape.missing_key", message, key=True)
        if "provider" not in fields or "model" not in fields:
            return None
        return plan.Model(
            name,
            fields["provider"],
            fields["model"],
            api=fields.get("api"),
            base_url=fields.get("base_url"),
            key=key,
            params=params,
            quirks=quirks,
            context=fields.get("context"),
            total=total,
            idle=idle,
            price=price,
            fallback=fallback,
        )

    def check_fallbacks(self) -> None:
        """Report fallbacks that no entry of `models` declares."""
        for reader, name, at in self.fallbacks:
            if name == at[1]:
                message = f"`{name}` is its own fallback: where it does not answer, it is not asked again; name another"
                reader.error(at, "model.fallback", message)
            elif not self.incomplete:
                check_model(reader, self.models, name, at)

    def _key(self, fields: Mapping[str, Json], at: Path, names: Names) -> str | None:
        """The name of the secret that `api_key` is."""
        text = fields.get("api_key")
        if text is None:
            return None
        named = _KEY.fullmatch(text)
        if named is None:
            message = "a key is named, never written: `api_key: ${{ secrets.NAME }}`"
            self.reader.refuse((*at, "api_key"), "model.key", message)
            return None
        self.text(fields, "api_key", at, names.with_roots("secrets"))
        return named["name"]

    def _read_model_timeout(self, fields: Mapping[str, Json], at: Path) -> tuple[int | None, int | None]:
        """The longest time for a whole answer, and the longest silence within it, in milliseconds."""
        timeout, at = fields.get("timeout"), (*at, "timeout")
        if isinstance(timeout, str):
            total = self.compile_duration(timeout, at, None)
            return (total, None) if isinstance(total, int) else (None, None)
        if timeout is None:
            return None, None
        inner = self.reader.fields(DOCUMENT_SHAPES["model_timeout"], timeout, at, "`timeout`")
        total, idle = (self.duration(inner, each, at, None) for each in ("total", "idle"))
        longest = total if "total" in inner else _TOTAL_MS
        if isinstance(idle, int) and isinstance(longest, int) and idle >= longest:
            message = f"`total`, {spell(longest)}, ends an answer before this; lower `idle`, or raise `total`"
            self.reader.warning((*at, "idle"), "timeout.shorter", message)
        return total if isinstance(total, int) else None, idle if isinstance(idle, int) else None

    def _params(self, fields: Mapping[str, Json], at: Path) -> dict[str, Json]:
        params = dict(fields.get("params", {}))
        heat = fields.get("temperature")
        if isinstance(heat, int | float) and heat > _TEMPERATURE_MAX:
            message = f"expected a temperature of 0 to {_TEMPERATURE_MAX}, found {heat}: models refuse it; lower it"
            self.reader.warning((*at, "temperature"), "model.temperature", message)
        for each in ("temperature", "max_tokens"):
            if each in fields and each in params:
                message = f"`{each}` stands in `params` as well; take one of them out"
                self.reader.error((*at, each), "model.params", message, key=True)
            if each in fields:
                params[each] = fields[each]
        extra = params.get("extra", {})
        if not isinstance(extra, Mapping):
            message = f"expected a map of further parameters, found {kind_of(extra)}"
            self.reader.error((*at, "params", "extra"), "shape.type", message)
            del params["extra"]
        for path, text in texts(params, (*at, "params")):
            if "${{" in text.replace("$${{", ""):
                self.reader.error(path, "model.hole", "parameters of a model are literal: holes are not filled here")
        return params

    def _check_provider(self, name: str, at: Path) -> None:
        """Warn of a provider that is not built in: a plug-in of the deployment may have it."""
        if not name or name in _BUILT_IN:
            return
        providers = (*_BUILT_IN, *_PLUGINS, *_OTHERS)
        meant = _MAKERS.get(name.lower())
        near = [] if name in providers else difflib.get_close_matches(name.lower(), providers, n=1, cutoff=0.8)
        near = near or ([meant] if meant else [])
        plugin = _PLUGINS.get(name)
        hint = (
            f"it comes with the plug-in {plugin}: install that where the workflow runs"
            if plugin
            else (
                f"did you mean `{near[0]}`?"
                if near
                else "a plug-in of that name has to be there where the workflow runs"
            )
        )
        message = f"`{shorten(name)}` is not among the built-in providers ({', '.join(_BUILT_IN)}); {hint}"
        self.reader.warning(at, "model.provider", message)

    def read_roles(self, value: Mapping[str, Json]) -> None:
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
                if member in ("requester", "anyone"):
                    hint = f"; `{member}` stands in a `from`"
                message = f"expected user:ID or group:NAME in the role `{name}`, found {kind_of(member)}{hint}"
                self.reader.error(place, "role.member", message)
            self.roles[name] = tuple(members) if sound else None

    def read_visibility(self, value: Json) -> tuple[str, ...]:
        """The selectors of the people that may read the runs, with the document's own roles replaced by their members;
        or `tenant` alone. A misspelt selector would hide runs from the people it is for, so every one is checked."""
        if not isinstance(value, list):
            return (TENANT,) if value == TENANT else ()
        selectors: dict[str, None] = {}
        for index, selector in enumerate(value):
            if not isinstance(selector, str) or not _READER.fullmatch(selector) or "${{" in selector:
                hint = f"; did you mean `user:{selector}`?" if isinstance(selector, str) and ":" not in selector else ""
                message = f"expected user:ID, role:NAME or group:NAME in `visibility`, found {kind_of(selector)}{hint}"
                self.reader.error(("visibility", index), "selector.invalid", message)
                continue
            own = self.roles.get(selector[5:]) if selector.startswith("role:") else None
            is_other = selector.startswith("role:") and selector[5:] not in self.roles  # a deployment has others
            if is_other and (hint := suggestion(selector[5:], self.roles)):
                message = f"`roles` has no `{selector[5:]}`{hint}"
                self.reader.warning(("visibility", index), "role.unknown", message)
            selectors.update(dict.fromkeys((selector,) if own is None else own))
        return tuple(selectors)

    # -- tools -----------------------------------------------------------------------------------------------------

    def read_tools(self, value: Mapping[str, Json], names: Names) -> None:
        for name, raw in value.items():
            at = ("tools", name)
            self._name(name, at, "handle")
            self.tools[name] = self._tool(name, raw, at, names)
            if isinstance(raw, Mapping) and raw.get("chat") is False:
                self.without_chat.append(name)

    def _tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        if not isinstance(raw, Mapping):
            module = _normalize_target(raw) if isinstance(raw, str) else ""
            hint = f"; write `{name}: {{python: {module}}}`" if module else ""
            message = f"expected a mapping for the tool `{name}`, found {kind_of(raw)}{hint}"
            self.reader.error(at, "shape.type", message)
            return None
        kinds = [kind for kind in _TOOL_KINDS if kind in raw]
        if len(kinds) != 1:
            self._report_tool_kind(name, raw, kinds, at)
            return None
        match kinds[0]:
            case "python":
                return self._compile_python_tool(name, raw, at, names)
            case "mcp":
                return self._compile_mcp_tool(name, raw, at, names)
            case "http":
                return self._compile_http_tool(name, raw, at, names)
            case "a2a":
                return self._compile_a2a_tool(name, raw, at, names)
            case "agent":
                return self._compile_agent_tool(name, raw, at)
            case _:
                return self._frontend_tool(name, raw, at, names)

    def _report_tool_kind(self, name: str, raw: Mapping[str, Json], kinds: Sequence[str], at: Path) -> None:
        listed = ", ".join(f"`{kind}`" for kind in _TOOL_KINDS)
        present = " and ".join(f"`{kind}`" for kind in kinds) or "none"
        message = f"expected one of {listed} in the tool `{name}`, found {present}"
        stranger = next((key for key in raw if suggestion(key, _TOOL_KINDS)), None) if not kinds else None
        if stranger is not None:
            self.reader.error((*at, stranger), "tool.kind", message + suggestion(stranger, _TOOL_KINDS), key=True)
        elif not kinds and (module := next((raw[key] for key in _MODULES if isinstance(raw.get(key), str)), "")):
            hint = f"; write `{name}: {{python: {_normalize_target(module) or 'pkg.mod'}}}`"
            self.reader.error(at, "tool.kind", message + hint, key=True)
        else:
            self.reader.error((*at, kinds[1]) if kinds else at, "tool.kind", message, key=True)

    def _compile_python_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        fields = self.reader.fields(_TOOL["python"], raw, at, f"the tool `{name}`")
        target = fields.get("python")
        timeout = self.duration(fields, "timeout", at, names)
        if target is None:
            return None
        module = _normalize_target(target)
        if module != target:
            hint = f"; write `{module}`" if module else ""
            message = (
                f"expected a module (`pkg.mod`), a function (`pkg.mod:fn`) or `registered`, found `{shorten(target)}`"
                f"{hint}"
            )
            if not _TARGET.fullmatch(target):
                self.reader.error((*at, "python"), "tool.python", message)
                return None
            self.reader.refuse((*at, "python"), "tool.python", message)
        target = "" if target == "registered" else target
        big_integers = fields.get("big_integers", "text")
        effect, title = fields.get("effect", "write"), fields.get("title", "")[:TITLE_CHARS_MAX] or None
        return plan.PythonTool(name, target, effect, "effect" in fields, timeout, big_integers, title)

    def _compile_agent_tool(self, name: str, raw: Json, at: Path) -> plan.Tool | None:
        """The declaration of an agent as a tool, not compiled yet: that happens in each agent that has it among its
        tools, because its prompts may use names of that place."""
        fields = self.reader.fields(_TOOL["agent"], raw, at, f"the tool `{name}`")
        if self.reader is not self._own:
            message = "an agent stands in the workflow that uses it, not in a file that several share; move it there"
            self.reader.error((*at, "agent"), "tool.agent", message, key=True)
            return None
        settings = self.reader.fields(DOCUMENT_SHAPES["agent_tool"], fields.get("agent"), (*at, "agent"), "`agent`")
        if "description" not in settings or "tools" not in settings:
            return None
        return plan.AgentTool(name, settings["description"], settings)

    def _settings(self, fields: Mapping[str, Json], at: Path, names: Names) -> dict[str, plan.Template | None]:
        """`auth` and `headers`, which may name secrets."""
        names = names.with_roots("secrets")
        if "auth" in fields:
            check_auth(self.reader, fields["auth"], (*at, "auth"))
        return {key: self.template(fields[key], (*at, key), names) for key in ("auth", "headers") if key in fields}

    def _compile_mcp_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        fields = self.reader.fields(_TOOL["mcp"], raw, at, f"the tool `{name}`")
        timeout = self.duration(fields, "timeout", at, names)
        if "mcp" not in fields:
            return None
        server = read_server(self, name, fields, at)
        allow = tuple(fields["allow"]) if "allow" in fields else None
        if server is None:
            return None
        big_integers = fields.get("big_integers", "text")
        return plan.McpTool(name, server, allow, fields.get("effect"), timeout, big_integers)

    def _compile_a2a_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        fields = self.reader.fields(_TOOL["a2a"], raw, at, f"the tool `{name}`")
        timeout = self.duration(fields, "timeout", at, names)
        settings = self._settings(fields, at, names)
        agent, at = fields.get("a2a"), (*at, "a2a")
        if isinstance(agent, Mapping):
            agent = self.reader.fields(DOCUMENT_SHAPES["foreign_agent"], agent, at, f"`a2a` of the tool `{name}`")
        else:
            agent = {"url": agent}
        url, about = agent.get("url"), agent.get("description")
        if not isinstance(url, str) or not _is_address(url):
            if "a2a" in fields and url is not None:
                message = f"expected the address of an agent like https://agents.example.com, found {kind_of(url)}"
                self.reader.error(at, "tool.a2a", message)
            return None
        bearing = {key: SecretBearing(value) for key, value in settings.items() if value is not None}
        return plan.A2ATool(
            name,
            url.rstrip("/"),
            about if isinstance(about, str) else "",
            fields.get("effect", "write"),
            timeout=AGENT_MS if timeout is None else timeout,
            **bearing,
        )

    def _compile_http_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
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
        service, base_url = self._service(name, fields["http"], (*at, "http"))
        if service is not None and allow is not None:
            for index, each in enumerate(allow):
                if each not in service.ids:
                    hint = suggestion(each, service.ids) or f"; it has {', '.join(service.ids[:20]) or 'none'}"
                    self.reader.error((*at, "allow", index), "tool.function", f"there is no operation `{each}`{hint}")
        bearing = {key: SecretBearing(value) for key, value in settings.items() if value is not None}
        return plan.HttpTool(
            name,
            fields["http"],
            fields.get("effect"),
            allow,
            service,
            base_url,
            timeout=timeout,
            big_integers=fields.get("big_integers", "text"),
            **bearing,
        )

    def _service(self, name: str, value: Json, at: Path) -> tuple[ApiDocument | None, str | None]:
        """The OpenAPI document of a service, parsed, and the address of the service; None for each that is not there,
        or is wrong."""
        named = value.get("openapi") if isinstance(value, Mapping) else None
        address = value.get("base_url") if isinstance(value, Mapping) else value
        service = None if named is None else self._read_service(named, (*at, "openapi"))
        base_url = address if isinstance(address, str) else service.server if service is not None else None
        if address is not None and not (isinstance(address, str) and _is_address(address)):
            message = f"expected the address of a service like https://api.example.com, found {kind_of(address)}"
            self.reader.error((*at, "base_url") if isinstance(value, Mapping) else at, "tool.http", message)
        elif service is not None and base_url is None:
            message = f"the document of `{name}` does not say in full where the service is; add `base_url`"
            self.reader.error(at, "tool.http", message, key=True)
        return service, base_url

    def _read_service(self, named: Json, at: Path) -> ApiDocument | None:
        if not isinstance(named, str) or "${{" in named or "://" in named:
            message = (
                f"expected the way to a file, such as ./shop.openapi.json, found {kind_of(named)}; a document is part "
                "of the workflow, and never fetched: put it beside the workflow"
            )
            self.reader.error(at, "tool.openapi", message)
            return None
        part = self.used.service(self.reader.document.file, named)
        if part.fault:
            self.reader.error(at, "use.missing", part.fault)
            return None
        try:
            return read_openapi(part.text)
        except UnusableDocument as error:
            self.reader.error(at, "tool.openapi", f"{shorten(named)} can't be used: {error}")
            return None

    def _frontend_tool(self, name: str, raw: Json, at: Path, names: Names) -> plan.Tool | None:
        outer = self.reader.fields(_TOOL["frontend"], raw, at, f"the tool `{name}`")
        if "frontend" not in outer:
            return None
        at = (*at, "frontend")
        fields = self.reader.fields(DOCUMENT_SHAPES["frontend"], outer["frontend"], at, f"the frontend tool `{name}`")
        parameters = self.schema(fields["parameters"], (*at, "parameters")) if "parameters" in fields else None
        result = self.schema(fields["result"], (*at, "result")) if "result" in fields else None
        deadline = self.duration(fields, "deadline", at, names, working=True) or self.default_deadline
        answered = fields.get("answer") != "none"
        for key in ("result", "deadline") if not answered else ():
            if key in fields:
                message = f"`answer: none` says that nothing comes back, `{key}` is of what does; remove one of them"
                self.reader.error((*at, key), "tool.no_answer", message, key=True)
        predict = self._compile_predictions(fields.get("predict", {}), parameters, (*at, "predict"))
        about, effect = fields.get("description", ""), outer.get("effect")
        return plan.FrontendTool(name, about, parameters, result, deadline, answered, predict, effect)

    def _compile_predictions(
        self, value: Mapping[str, str], parameters: JsonSchema | None, at: Path
    ) -> tuple[tuple[str, str], ...]:
        """Which state variables a client may foresee from which arguments."""
        properties = {} if parameters is None else parameters.raw.get("properties", {})
        for name, argument in value.items():
            if name not in self.state:
                hint = suggestion(name, self.state) or "; declare it under `state`"
                message = f"there is no state variable `{shorten(name)}`{hint}"
                self.reader.error((*at, name), "tool.predict", message, key=True)
            elif argument not in properties:
                hint = suggestion(argument, properties) or "; it has to be one of the tool's `parameters`"
                self.reader.error((*at, name), "tool.predict", f"there is no argument `{shorten(argument)}`{hint}")
        return tuple(value.items())


def _normalize_target(target: str) -> str:
    """The module or function that `target` names, which may be written as a file: `./tools/shop.py` is `tools.shop`;
    "" where it names none."""
    match = _FILE.fullmatch(target)
    return match["path"].replace("/", ".") + (match["function"] or "") if match else ""


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    plain = parts.username is None and not parts.query and not parts.fragment
    is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_web and plain and "${{" not in text and place_fault(text) is None


def check_model(reader: Reader, models: Mapping[str, Any], name: str, at: Path) -> bool:
    if name in models:
        return True
    example = f"smart: {{provider: openai, model: {shorten(name)}}}"
    hint = suggestion(name, models) or f"; declare it under `models`, as `{example}`, and name it `smart` here"
    reader.error(at, "model.unknown", f"there is no model `{shorten(name)}`{hint}")
    return False


def _build_state_schema(state: Mapping[str, plan.StateVariable | None]) -> dict[str, Json]:
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
