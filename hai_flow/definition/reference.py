"""Every key of `hai: flow/v1` in one table: its type, whether it must be there, its default, what it does, an example.

Pure data, and the only list of keys. The reader checks mappings by it, the editor's JSON Schema, the grammar for
language models and the tables of docs/language.md are made from it, and `fmt` sorts keys by its order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from hai_flow.definition.names import PATH_CHARS_MAX
from hai_flow.definition.uses import USES_MAX

Json: TypeAlias = Any

Kind: TypeAlias = Literal[
    "any", "text", "hole", "literal", "cel", "duration", "schema", "steps", "selectors", "id", "variable",
    "workflow", "name", "integer", "number",
    "boolean", "enum", "list", "map", "shape", "either",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """What a value may be. `word` is how the pages call it.

    `parts`: the members of an `either`, or the one of a `list` or `map`; `values` those of an `enum`; `shape` names one
    of SHAPES; `minimum` and `maximum` bound a number, or the length of a text, a list or a map; `above`: a number has
    to be more than the minimum; `keys` is the kind of the keys of a `map`.
    """

    kind: Kind
    word: str
    parts: tuple[Type, ...] = ()
    values: tuple[Json, ...] = ()
    shape: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: bool = False
    keys: Kind = "any"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping. `default` and `example` are YAML; "" = none. `beside`: goes only with one of these keys.

    `read`: what the reader takes, where the compiler has a better sentence for some values that are not of `type`.
    `needed_by`: it must be there where that key is.
    """

    name: str
    type: Type
    does: str
    required: bool = False
    default: str = ""
    example: str = ""
    beside: tuple[str, ...] = ()
    read: Type | None = None
    needed_by: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One mapping of the language. `exactly_one` lists groups of keys of which one must be there."""

    name: str
    title: str
    keys: tuple[Key, ...]
    exactly_one: tuple[tuple[str, ...], ...] = ()
    at_most_one: tuple[tuple[str, ...], ...] = ()
    open: bool = False  # whether other keys may stand there (those of a JSON Schema)

    @property
    def words(self) -> tuple[str, ...]:
        """The names of its keys, in order."""
        return tuple(key.name for key in self.keys)

    def of(self, word: str) -> Shape:
        """The same mapping, where of a group of which one key must be there it is `word`."""
        others = {each for group in self.exactly_one for each in group if word in group} - {word}
        keys = (key for key in self.keys if key.name not in others and (not key.beside or word in key.beside))
        return replace(self, keys=tuple(replace(key, required=True) if key.name == word else key for key in keys))

    def without(self, word: str) -> Shape:
        """The same mapping without one of its keys."""
        return replace(self, keys=tuple(key for key in self.keys if key.name != word))


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its parameter, which step keys go with it (beside `id title if`), what it outputs, how it fails."""

    name: str
    type: Type
    does: str
    keys: tuple[str, ...]
    output: str
    fails: str
    example: str
    read: Type | None = None


ANY: Final = Type("any", "any")
TEXT: Final = Type("text", "text")
HOLE: Final = Type("hole", "hole")
LITERAL: Final = Type("literal", "lit")
CEL: Final = Type("cel", "cel")
DURATION: Final = Type("duration", "dur")
SCHEMA: Final = Type("schema", "schema")
STEPS: Final = Type("steps", "steps")
SELECTORS: Final = Type("selectors", "sel")
ID: Final = Type("id", "id")
NAME: Final = Type("name", "name")
WORKFLOW: Final = Type("workflow", "name")
BOOLEAN: Final = Type("boolean", "true or false")
MAPPING: Final = Type("map", "map", (ANY,))


def _integer(minimum: int | None = None, maximum: int | None = None) -> Type:
    return Type("integer", "int" if minimum is None else f"int >= {minimum}", minimum=minimum, maximum=maximum)


def _number(minimum: float | None = None, *, above: bool = False) -> Type:
    return Type("number", "number", minimum=minimum, above=above)


def _literal(minimum: int, maximum: int | None = None) -> Type:
    return replace(LITERAL, minimum=minimum, maximum=maximum)


def _enum(*values: str | bool) -> Type:
    words = [str(value).lower() if isinstance(value, bool) else value for value in values]
    return Type("enum", " or ".join(f"`{word}`" for word in words), values=values)


def _list(part: Type, minimum: int | None = None, maximum: int | None = None) -> Type:
    return Type("list", f"list of {part.word}", (part,), minimum=minimum, maximum=maximum)


def _map(part: Type, keys: Kind = "name", minimum: int | None = None, maximum: int | None = None) -> Type:
    key = {"name": "name", "variable": "id", "id": "id"}.get(keys, "key")
    return Type("map", f"map {key}: {part.word}", (part,), keys=keys, minimum=minimum, maximum=maximum)


def _shape(name: str) -> Type:
    return Type("shape", f"`{name}`", shape=name)


def _either(*parts: Type, word: str = "") -> Type:
    return Type("either", word or " or ".join(part.word for part in parts), parts)


def _stages(words: Type, stage: str) -> Type:
    """A word, a mapping with one key, or a list of such."""
    one = _either(words, _shape(stage))
    return _either(*one.parts, _list(one, 1), word=f"word, {_shape(stage).word}, or list of them")


_DEADLINE: Final = Key("deadline", DURATION, "how long people have, in wall-clock time, also while the run is paused",
                       default="7d", example="2d")  # fmt: skip
_NOTIFY: Final = Key(
    "notify",
    _list(TEXT),
    "whom to tell: a channel, or `channel:whom`; nothing is sent yet, they stand in the log's events",
    example="[slack:#finance, email]",
)
_REMIND: Final = Key(
    "remind",
    _list(DURATION),
    "remind so long after (each) opening, by an event that nothing sends yet",
    example="[4h, 1d]",
)
_PAUSE_CLOCK: Final = Key("pause_clock", _enum("run", "stop"), "whether the deadline runs on while the run is paused",
                          default="run", example="stop")  # fmt: skip
_FROM: Final = Key(
    "from", SELECTORS, "who may decide: `user:id role:name group:name requester anyone`, one or a list",
    required=True, example="[user:ann, role:controller]",
)  # fmt: skip
_POLICY: Final = (
    Key("exclude", SELECTORS, "who may not, also `editor`; without it the requester, unless `from` has `requester` or "
        "`anyone`; `[]` = nobody", example="[requester, editor]"),
    Key("quorum", _either(_integer(1), _enum("all"), _map(_integer(1), "any"), HOLE),
        "how many distinct people: a number, `all` of `from`, seats by selector (`any`: people in all), or a hole that "
        "gives a number or `all` when it is asked",
        default="1", example="{role:sre: 1, any: 2}", read=ANY),
    Key("reject_when", _either(_enum("any", "unreachable"), _integer(1)),
        "when rejections decide: the first, when the quorum can't be reached any more, or n of them",
        default="any", example="unreachable", read=ANY),
    Key("options", _list(ID), "the answers; must hold `approve` and `reject`; others need a handler in `on_decision`",
        default="[approve, reject]", example="[approve, revise, reject]"),
)  # fmt: skip
_FORM: Final = Key(
    "form", SCHEMA, "a form that goes with the answer (only an approval must fill in what is `required`); holes are "
    "allowed in `default enum const title description "
    "minimum maximum`",
    example="{type: object, required: [cost_center], properties: {cost_center: {type: string}}}",
)  # fmt: skip
_COMBINE: Final = Key(
    "combine", _map(_enum("same", "min", "max", "first", "last", "list", "any", "all"), "any"),
    "how the answers of several people become one, by property of the form; `same` refuses a differing answer",
    default="same", example="{amount: min}",
)  # fmt: skip
_REASONS: Final = Key(
    "reasons", _map(_enum("required", "optional"), "any"),
    "by option: whether the answer must say why", default="optional", example="{reject: required}",
)  # fmt: skip
_ON_DEADLINE: Final = Key(
    "on_deadline",
    _stages(_enum("reject", "fail", "approve"), "on_deadline"),
    "a word, a one-key map, or a list: any number of `escalate`, then one of `reject fail approve`",
    default="reject", example="[{escalate: {from: role:cfo, deadline: 1d}}, {reject: {reason: nobody answered}}]",
    read=ANY,
)  # fmt: skip
_EXPIRY: Final = _stages(_enum("fail"), "on_deadline_of_ask")
_TITLE_OF_PENDING: Final = Key(
    "title", TEXT, "the question in one line", required=True, example='"Refund ${{ input.amount }}?"'
)
_MESSAGE: Final = Key("message", TEXT, "Markdown below the title", example='"**Reason:** ${{ input.reason }}"')
_MODEL_KEYS: Final = (
    Key("model", NAME, "one of `models`; without it `defaults.model`", example="smart"),
    Key("system", TEXT, "the system prompt", example="You are a careful analyst."),
    Key("prompt", TEXT, "the user's message", example="Summarise ${{ input.topic }}."),
    Key("messages", _either(_list(ANY), HOLE), "a whole conversation, in place of `prompt`: `{role, content}`, the "
        "content text or a list of parts",
        example='[{role: user, content: "${{ input.question }}"}]', read=ANY),
    Key("output", SCHEMA, "the answer is an object of this schema, not text",
        example="{type: object, required: [subject], properties: {subject: {type: string}}}"),
)  # fmt: skip

SHAPES: Final[dict[str, Shape]] = {shape.name: shape for shape in (
    Shape("document", "The document", (
        Key("hai", _enum("flow/v1"), "the language", required=True, example="flow/v1"),
        Key("name", WORKFLOW, "the workflow's name", required=True, example="refund"),
        Key("version", _integer(1), "raise it for each change; what is published never changes", required=True,
            example="1"),
        Key("title", LITERAL, "the name that people see", example="Refund an order"),
        Key("description", LITERAL, "what it is for", example="Pays back after a second look."),
        Key("use", _list(LITERAL, 1, USES_MAX),
            "files below the project whose tools, models and roles are this workflow's too",
            example="[../shared/tools.yaml]"),
        Key("input", SCHEMA,
            "JSON Schema of the input (`type: object`): defaults are filled in, then it is checked before "
            "a run exists; unknown properties are refused", default="no properties",
            example="{type: object, required: [amount], properties: {amount: {type: number}}}"),
        Key("state", _map(_shape("state_variable"), "variable"),
            "variables that steps write with `set` and frontends see",
            example="{log: {type: array, items: {type: string}, default: [], reduce: append}}"),
        Key("models", _map(_shape("model")), "models that `llm` and `agent` may use",
            example="{smart: {provider: openai, model: gpt-5.4}}"),
        Key("tools", _map(_shape("tool")),
            "everything that `call` and `agent` may use; what is not here can't be called",
            example="{shop: {python: acme.shop, effect: write}}"),
        Key("roles", _map(SELECTORS), "who has a role, as `user:` and `group:`; other roles come from the deployment",
            example="{sre: [user:ann, user:bob]}"),
        Key("triggers", _list(_shape("trigger"), 1), "what starts runs", default="[{api: {}}]",
            example="[{api: {}}, {event: {type: order.paid}}]"),
        Key("defaults", _shape("defaults"), "what holds where a step says nothing",
            example="{timeout: 1m, deadline: 2d}"),
        Key("limits", _shape("limits"), "what one run may use", example="{tokens: 400000, duration: 7d}"),
        Key("concurrency", _shape("concurrency"), "how many runs of one key at once",
            example='{key: "deploy-${{ input.release }}", on_conflict: reject}'),
        Key("steps", STEPS, "what happens, in order", required=True, example='[{say: "Hello"}]'),
        Key("catch", _list(_shape("catch"), 1), "what to do when a step fails and nothing inside has caught it",
            example='[{errors: [tool.*], steps: [{say: "Sorry."}]}]'),
        Key("finally", STEPS, "runs at the end, whatever happened", example='[{say: "Done."}]'),
        Key("output", ANY, "the run's result, evaluated after the last step; a `return` gives another", default="null",
            example='{refunded: "${{ input.amount }}"}'),
    )),
    Shape("state_variable", "A variable of `state`: a JSON Schema, and", (
        Key("default", ANY, "its value at the start", default="null", example="[]"),
        Key("reduce", _enum("append", "merge", "max"), "each `set` combines instead of replacing: one more element, a "
            "shallow merge, the larger number", example="append"),
        Key("client", BOOLEAN, "whether frontends may write it, by the `state` that they post", default="false",
            example="true"),
        Key("keep", _enum("run", "thread"), "`thread`: a run begins with what the run before it in its thread had",
            default="run", example="thread"),
        Key("show", _enum("run", "thread"), "`thread`: of a child run, it is in the state of its thread, too",
            default="run", example="thread"),
    ), open=True),
    Shape("model", "A model", (
        Key("use", _literal(1), "one of the deployment's catalogue, where its address, key and price stand: "
            "docs/models.md", example="smart"),
        Key("provider", _literal(1), "who serves it: `openai azure deepseek dashscope zhipu vllm ollama llamacpp`, or "
            "one that a package adds", example="openai"),
        Key("model", _literal(1), "its name there", example="gpt-5.4", beside=("provider",), needed_by="provider"),
        Key("api", _enum("chat", "responses"), "which of OpenAI's protocols it is asked by", default="chat",
            example="responses", beside=("provider",)),
        Key("base_url", LITERAL, "another address than the provider's", example="https://llm.internal/v1",
            beside=("provider",)),
        Key("api_key", TEXT, "a secret, by reference", example='"${{ secrets.OPENAI_API_KEY }}"',
            beside=("provider",)),
        Key("temperature", _number(0), "how far it may wander", example="0.2"),
        Key("max_tokens", _integer(1), "of one answer", example="2000"),
        Key("params", MAPPING, "further parameters by OpenAI's names; `extra` holds what only this provider knows",
            example="{top_p: 0.9, extra: {enable_thinking: true}}"),
        Key("quirks", _shape("quirks"), "in what it differs from OpenAI, beyond what is known of the provider",
            example="{output: json_object}", beside=("provider",)),
        Key("context", _integer(1), "how many tokens it takes", example="131072", beside=("provider",)),
        Key("timeout", _either(DURATION, _shape("model_timeout")), "of one answer",
            default="{total: 5m, idle: 1m}", example="{total: 10m, idle: 30s}"),
        Key("price", _shape("price"), "in US dollars for a million tokens", example="{input: 0.8, output: 2}",
            beside=("provider",)),
        Key("fallback", _list(LITERAL, 1), "other `models` that are asked where this one does not begin to answer",
            example="[small]"),
    ), exactly_one=(("use", "provider"),)),
    Shape("quirks", "`quirks` of a model", (
        Key("reasoning", _enum("reasoning_content", "reasoning", "think_tags"), "where its thinking stands: a field of "
            "the message, or `<think>` in the text", default="by provider", example="reasoning"),
        Key("send_back", _enum("never", "tool_turns"), "whether its thinking goes back to it, in conversations with "
            "calls of tools", default="by provider", example="tool_turns"),
        Key("output", _enum("json_schema", "json_object", "prompt"), "how it is asked for an object: by the schema, "
            "for any object with the schema in the prompt, or by the prompt alone", default="by provider",
            example="json_object"),
        Key("strict_tools", BOOLEAN, "whether it takes `strict` with tools", default="by provider", example="true"),
        Key("tool_choice_required", BOOLEAN, "whether it can be made to call a tool", default="by provider",
            example="false"),
        Key("max_tokens", _enum("max_tokens", "max_completion_tokens"), "its name for `max_tokens`",
            default="by provider", example="max_completion_tokens"),
        Key("usage", _enum("last", "none"), "`none`: it does not know `stream_options`", default="last",
            example="none"),
    )),
    Shape("model_timeout", "`timeout` of a model", (
        Key("total", DURATION, "until the answer is complete", default="5m", example="10m"),
        Key("idle", DURATION, "of silence before it or in it", default="1m", example="30s"),
    )),
    Shape("price", "`price` of a model", (
        Key("input", _number(0), "what it reads", required=True, example="0.8"),
        Key("output", _number(0), "what it writes, its thinking too", required=True, example="2"),
        Key("cached", _number(0), "what it had read before", default="as `input`", example="0.1"),
    )),
    Shape("tool", "A tool", (
        Key("python", LITERAL, "a module (`pkg.mod`, called as `tool.function`), a function (`pkg.mod:fn`, called as "
            "`tool`), or `registered`; the deployment says which count", example="acme.shop"),
        Key("mcp", _literal(1), "the address (or the command) of an MCP server", example="https://erp.internal/mcp"),
        Key("http", _either(LITERAL, MAPPING), "a described HTTP service: `base_url`, `openapi`",
            example="{base_url: https://api.example.com}", read=ANY),
        Key("frontend", _shape("frontend"), "a tool of the client: the run waits for its answer",
            example="{description: Choose an account, parameters: {type: object, properties: {}}}"),
        Key("effect", _enum("read", "write"), "whether it changes anything; agents ask before they write",
            default="write",
            example="read"),
        Key("allow", _list(LITERAL, 1), "only these functions of the server", example="[search, fetch]",
            beside=("mcp", "http")),
        Key("auth", ANY, "a token, or `{bearer: ...}`, `{basic: {user, password}}`, `{header: {name, value}}`",
            example='"${{ secrets.ERP_TOKEN }}"', beside=("mcp", "http")),
        Key("headers", _map(TEXT, "any"), "sent with every request", example='{X-Team: "${{ secrets.TEAM }}"}',
            beside=("mcp", "http")),
        Key("env", _map(TEXT, "any"), "environment of a server that is started",
            example='{TOKEN: "${{ secrets.TOKEN }}"}', beside=("mcp",)),
        Key("timeout", DURATION, "of each call", example="30s", beside=("python", "mcp", "http")),
    ), exactly_one=(("python", "mcp", "http", "frontend"),)),
    Shape("frontend", "A frontend tool", (
        Key("description", LITERAL, "what it does, for people and models", required=True,
            example="Ask for confirmation"),
        Key("parameters", SCHEMA, "of its arguments", required=True,
            example="{type: object, required: [action], properties: {action: {type: string}}}"),
        Key("result", SCHEMA, "of its answer; without it the answer is text", example="{type: boolean}"),
        Key("answer", _enum("required", "none"), "`none`: the call is shown, nobody waits for an answer, and the "
            "step's output is null; without `result` and `deadline`", default="required", example="none"),
        Key("predict", _map(NAME, "variable", 1), "state variables that the client may take from an argument while a "
            "call streams, until `set` says what they are", example="{document: document}"),
        _DEADLINE,
    )),
    Shape("stream", "`stream` as a mapping", (
        Key("to", LITERAL, "a frontend tool with `answer: none`: its call is shown while it grows", required=True,
            example="write_document"),
        Key("argument", LITERAL, "its argument that grows by what is yielded, a text; the only one it needs",
            required=True, example="document"),
    )),
    Shape("trigger", "A trigger", (
        Key("api", _shape("api"), "started by request; always there, unless others are listed without it",
            example="{}"),
        Key("event", _shape("event_trigger"), "started by each event of a type",
            example='{type: order.paid, dedupe: "${{ event.id }}"}'),
        Key("schedule", _shape("schedule_trigger"), "started by the clock",
            example='{cron: "0 6 * * 1-5", timezone: Europe/Berlin}'),
        Key("run", _shape("run_trigger"), "started by the end of each run of another workflow",
            example="{workflow: refund, on: [failed]}"),
        Key("webhook", _shape("webhook_trigger"), "started by requests of another system, over `POST /v1/hooks/PATH`",
            example='{path: shop/orders, secret: "${{ secrets.SHOP_HOOK }}"}'),
    ), exactly_one=(("api", "event", "schedule", "run", "webhook"),)),
    Shape("api", "`api`", ()),
    Shape("event_trigger", "`event`", (
        Key("type", _literal(1), "of the events", required=True, example="order.paid"),
        Key("match", CEL, "only events for which this is true", example="event.data.amount > 100.0"),
        Key("dedupe", TEXT, "events with the same key start one run", example='"${{ event.id }}"'),
        Key("input", ANY, "the run's input", default="the event's data", example='{order: "${{ event.data.id }}"}'),
    )),
    Shape("run_trigger", "`run`", (
        Key("workflow", WORKFLOW, "the name of the other workflow, in any version", required=True, example="refund"),
        Key("on", _list(_enum("finished", "failed", "stopped"), 1), "which ends", default="[finished]",
            example="[failed, stopped]"),
        Key("match", CEL, "only ends for which this is true", example="event.data.output.amount > 100.0"),
        Key("input", ANY, "the run's input", default="{}", example='{order: "${{ event.data.input.order }}"}'),
    )),
    Shape("webhook_trigger", "`webhook`", (
        Key("path", _literal(1, PATH_CHARS_MAX), "behind `/v1/hooks/`; no other workflow may have it", required=True,
            example="shop/orders"),
        Key("secret", TEXT, "what the sender knows, by reference: `${{ secrets.NAME }}` is the server's "
            "`HAI_FLOW_SECRET_NAME`", required=True, example='"${{ secrets.SHOP_HOOK }}"'),
        Key("scheme", _enum("github", "stripe", "standard", "token"),
            "how it proves that: an HMAC-SHA256 of the body, with a time and the body, by Standard Webhooks, or the "
            "secret itself as a bearer token", default="github", example="stripe"),
        Key("header", LITERAL, "the header with the proof, where it is another than the scheme's",
            example="X-Shop-Signature"),
        Key("match", CEL, "only requests for which this is true", example='event.headers["x-github-event"] == "push"'),
        Key("dedupe", TEXT, "requests with the same key start one run", default="${{ event.id }}",
            example='"${{ event.data.order }}"'),
        Key("input", ANY, "the run's input", default="the body", example='{order: "${{ event.data.id }}"}'),
    )),
    Shape("schedule_trigger", "`schedule`", (
        Key("cron", LITERAL, "minute, hour, day, month, weekday", required=True, example='"0 6 * * 1-5"'),
        Key("timezone", LITERAL, "an IANA name", required=True, example="Europe/Berlin"),
        Key("missed", _enum("skip", "once", "all"), "what was due while nothing ran", default="skip", example="once"),
        Key("overlap", _enum("queue", "skip", "cancel_running"), "when the last run still goes on", default="skip",
            example="queue"),
        Key("input", ANY, "the run's input", default="{}", example="{release: v1.0.0}"),
    )),
    Shape("defaults", "`defaults`", (
        Key("retry", _shape("retry"), "for `call http llm agent run`", example="{max: 3, backoff: exponential}"),
        Key("timeout", DURATION, "of each attempt", example="1m"),
        _DEADLINE,
        Key("model", NAME, "for `llm` and `agent`", example="smart"),
        _NOTIFY,
    )),
    Shape("limits", "`limits`", (
        Key("tokens", _integer(1), "of all models", example="400000"),
        Key("cost_usd", _number(0, above=True), "of all models", example="3"),
        Key("tool_calls", _integer(1), "of all steps and agents", example="60"),
        Key("duration", DURATION, "since the start, waiting included", example="7d"),
        Key("steps", _integer(1), "that are begun", example="10000"),
    )),
    Shape("concurrency", "`concurrency`", (
        Key("key", TEXT, "runs of one key count together; may use `input run thread`", required=True,
            example='"deploy-${{ input.release }}"'),
        Key("limit", _integer(1), "how many at once", default="1", example="1"),
        Key("on_conflict", _enum("queue", "reject", "cancel_running"), "what happens to one more", default="queue",
            example="reject"),
    )),
    Shape("step", "A step: exactly one verb, and", (
        Key("id", ID, "unique in the document; needed to refer to it", default="verb#n", example="review"),
        Key("title", TEXT, "shown to people", example="Check the order"),
        Key("if", CEL, "false: the step is skipped, and nothing inside exists", example="input.amount >= 50.0"),
        Key("with", MAPPING, "arguments, rendered once; every attempt uses the same",
            example='{order: "${{ input.order }}"}'),
        Key("approval", _shape("approval"), "people decide over exactly these arguments before anything is sent",
            example="{from: role:support, deadline: 1d}"),
        Key("on_decision", _map(STEPS, "id", 1), "steps for an answer other than `approve`",
            example='{revise: [{set: {feedback: "${{ steps.send.approval.reason }}"}}]}'),
        Key("on_reject", STEPS,
            "short for `on_decision: {reject: ...}`; then the rejection is raised, unless the run has returned",
            example="[{return: {refunded: 0}}]"),
        Key("idempotency_key", TEXT, "the same for every attempt", default="run.id/path", example='"${{ run.id }}"'),
        Key("delivery", _enum("at_least_once", "at_most_once"),
            "`at_most_once`: never tried again, a person decides when the outcome is lost",
            default="at_least_once", example="at_most_once"),
        Key("detach", BOOLEAN, "of `run`: start it and go on; nobody waits for it, and it is not stopped with this run",
            default="false", example="true"),
        Key("stream", _either(_enum("text", "none"), _shape("stream")), "what the tool yields becomes message chunks, "
            "or the argument of a call that the frontend is shown", default="none", example="text"),
        Key("expose", BOOLEAN, "the frontend sees arguments and result", default="false", example="true"),
        Key("join", _either(_enum("all", "any"), _integer(1)),
            "how many branches have to finish; the others are stopped then",
            default="all", example="any", read=ANY),
        Key("retry", _shape("retry"), "try again when an attempt fails", example="{max: 3, backoff: exponential}"),
        Key("timeout", DURATION, "working time of each attempt, or of a whole block",
            default="http 30s, call and llm 5m, agent 30m", example="2m"),
        Key("undo", _shape("undo"), "takes the effect back when what comes after fails; sees this step's output",
            example='{call: shop.charge, with: {payment: "${{ steps.pay.output.id }}"}}'),
        Key("catch", _list(_shape("catch"), 1),
            "first match handles; without `errors` everything but `approval.*` and `limit.*`",
            example='[{errors: [tool.failed], steps: [{say: "Later."}]}]'),
        Key("finally", STEPS, "runs once when the step ends, whatever happened", example='[{say: "Done."}]'),
    )),
    Shape("retry", "`retry`", (
        Key("max", _integer(0, 100), "retries after the first attempt", required=True, example="3"),
        Key("errors", _list(LITERAL, 1), "only these: codes, `prefix.*` or `*`", default="what is retriable",
            example="[tool.unavailable, http.*]"),
        Key("backoff", _enum("fixed", "exponential"), "`exponential` doubles the pause", default="fixed",
            example="exponential"),
        Key("every", DURATION, "the (first) pause", default="1s", example="30s"),
        Key("max_delay", DURATION, "the longest pause", default="5m", example="10m"),
        Key("jitter", BOOLEAN, "shorten each pause by chance, down to half", default="true", example="false"),
    )),
    Shape("catch", "An entry of `catch`", (
        Key("errors", _list(LITERAL, 1), "codes, `prefix.*` or `*`",
            default="everything but `approval.*` and `limit.*`",
            example="[tool.failed, step.timeout]"),
        Key("steps", STEPS, "see `error`; the flow goes on after them", required=True,
            example='[{say: "${{ error.message }}"}]'),
    )),
    Shape("undo", "`undo`", (
        Key("call", LITERAL, "a tool", example="shop.charge"),
        Key("http", _shape("http"), "a request", example='{delete: "https://api.example.com/orders/1"}'),
        Key("run", LITERAL, "a workflow", example="refund@2"),
        Key("with", MAPPING, "its arguments", example='{payment: "${{ steps.pay.output.id }}"}'),
        Key("retry", _shape("retry"), "when it fails", default="{max: 5, backoff: exponential}", example="{max: 2}"),
        Key("timeout", DURATION, "of each attempt", example="1m"),
        Key("idempotency_key", TEXT, "the same for every attempt", example='"undo-${{ run.id }}"'),
    ), exactly_one=(("call", "http", "run"),)),
    Shape("http", "`http`", (
        *(Key(method, TEXT, f"the address of a {method.upper()} request", example='"https://api.example.com/orders"')
          for method in ("get", "post", "put", "patch", "delete", "head")),
        Key("query", ANY, "parameters of the address", example='{page: 1}'),
        Key("headers", ANY, "headers", example='{Authorization: "Bearer ${{ secrets.API_TOKEN }}"}'),
        Key("auth", ANY, "a token, or `{bearer: ...}`, `{basic: {user, password}}`, `{header: {name, value}}`",
            example='"${{ secrets.API_TOKEN }}"'),
        Key("body", ANY, "sent as JSON", example='{order: "${{ input.order }}"}'),
        Key("form", ANY, "sent as a form", example="{grant_type: client_credentials}"),
        Key("text", ANY, "sent as text", example="ping"),
        Key("expect", CEL, "what counts as success, over `response`", default="any 2xx",
            example="response.status == 200"),
    ), exactly_one=(("get", "post", "put", "patch", "delete", "head"),), at_most_one=(("body", "form", "text"),)),
    Shape("llm", "`llm`", (
        *_MODEL_KEYS,
        Key("stream", _enum("text", "none"), "whether the answer streams as a message",
            default="text; with `output` none", example="none"),
    ), at_most_one=(("prompt", "messages"),)),
    Shape("agent", "`agent`", (
        *_MODEL_KEYS,
        Key("tools", _list(LITERAL), "`tool`, `tool.fn` or `tool.*`", required=True, example="[web.search, mail.*]"),
        Key("max_turns", _integer(1, 1000), "answers of the model", default="25", example="10"),
        Key("approvals", _map(_either(_shape("approval"), _enum("none")), "any"),
            "who decides before a tool is used; a tool that writes and is not named here asks the requester",
            example="{mail.send: {from: requester}, web.*: none}"),
        Key("stream", _enum("text", "steps", "none"), "what the frontend sees", default="text", example="steps"),
    ), at_most_one=(("prompt", "messages"),)),
    Shape("ask", "`ask`", (
        _TITLE_OF_PENDING, _MESSAGE,
        Key("form", SCHEMA,
            "of the answer; holes are allowed in `default enum const title description minimum maximum`",
            required=True,
            example="{type: object, required: [size], properties: {size: {type: string, enum: [S, M, L]}}}"),
        Key("from", SELECTORS, "who may answer; the first answer counts", default="[requester]",
            example="role:support"),
        _NOTIFY, _REMIND, _DEADLINE,
        Key("on_deadline", _EXPIRY,
            "`fail` or `default: value`, after any number of `escalate`", default="fail",
            example="{default: {size: M}}", read=ANY),
        _PAUSE_CLOCK,
    )),
    Shape("approve", "`approve`", (
        _TITLE_OF_PENDING, _MESSAGE,
        Key("evidence", ANY, "what is decided on: rendered once, shown, and hashed into every vote",
            example='{eur: "${{ steps.convert.output.eur }}"}'),
        _FROM, *_POLICY, _REASONS, _FORM, _COMBINE, _NOTIFY, _REMIND, _DEADLINE, _ON_DEADLINE, _PAUSE_CLOCK,
    )),
    Shape("approval", "`approval`", (
        Key("when", CEL, "ask only if true; sees the arguments as `args`", default="true",
            example="args.amount >= 50.0"),
        Key("title", TEXT, "the question in one line", default="made from the call",
            example='"Refund ${{ args.amount }}?"'),
        Key("message", TEXT, "Markdown below the title", default="made from the call", example="Please look twice."),
        _FROM, *_POLICY, _REASONS,
        Key("edit", _either(BOOLEAN, _list(LITERAL)), "arguments that a decider may replace (`true` = all)",
            default="false",
            example="[subject, body]"),
        _FORM, _COMBINE, _NOTIFY, _REMIND, _DEADLINE, _ON_DEADLINE, _PAUSE_CLOCK,
    )),
    Shape("on_deadline", "`on_deadline`", (
        Key("escalate", _shape("escalate"), "ask others, with a new clock", example="{from: role:cfo, deadline: 1d}"),
        Key("reject", _shape("reject"), "counts as a rejection", example="{reason: nobody answered}"),
        Key("fail", _shape("nothing"), "raises `approval.expired`", example="{}"),
        Key("approve", _shape("nothing"), "silence counts as approval (a warning)", example="{}"),
    ), exactly_one=(("escalate", "reject", "fail", "approve"),)),
    Shape("on_deadline_of_ask", "`on_deadline` of `ask` and `wait_for`", (
        Key("escalate", _shape("escalate"), "ask others, with a new clock",
            example="{from: role:support, deadline: 1d}"),
        Key("default", ANY, "the answer that silence gives", example="{size: M}"),
        Key("fail", _shape("nothing"), "raises `ask.expired` or `wait_for.expired`", example="{}"),
    ), exactly_one=(("escalate", "default", "fail"),)),
    Shape("reject", "`reject`", (
        Key("reason", TEXT, "why, in the envelope", example="nobody answered in 3 days"),
    )),
    Shape("nothing", "An empty mapping", ()),
    Shape("escalate", "`escalate`: what is given replaces, the rest stays", (
        Key("deadline", DURATION, "of this stage", required=True, example="1d"),
        Key("from", SELECTORS, "who may decide now", example="role:cfo"),
        _POLICY[0], _POLICY[1], _NOTIFY, _REMIND,
    )),
    Shape("say", "`say` as a mapping", (
        Key("text", TEXT, "a message", example='"Hello ${{ input.name }}"'),
        Key("thinking", _either(TEXT, _shape("thinking")), "a thought, apart from the answer", example="Looking it up"),
        Key("fold", _shape("fold"), "a part that folds", example="{title: Details, fold: true, position: start}"),
        Key("output", _shape("output"), "any output of the HAI protocol", example="{type: table, data: {rows: []}}"),
        Key("block_id", TEXT, "which block of the page", example="summary"),
        Key("layout", MAPPING, "where: `{x, y}`", example="{x: 0, y: 1}"),
        Key("style", ANY, "how, as the frontend knows it", example="{color: green}"),
    ), exactly_one=(("text", "thinking", "fold", "output"),)),
    Shape("thinking", "`thinking` as a mapping", (
        Key("content", TEXT, "the thought", required=True, example="Looking it up"),
        Key("elapsed", ANY, "how long it took", example="1.5"),
        Key("thinking", ANY, "whether it still goes on", example="false"),
        Key("collapse", ANY, "whether it is folded", example="true"),
    ), open=True),
    Shape("fold", "`fold`", (
        Key("title", TEXT, "of the part", required=True, example="Details"),
        Key("fold", ANY, "whether it is folded", example="true"),
        Key("position", TEXT, "`start` or `end`", example="start"),
    )),
    Shape("output", "`output` of `say`", (
        Key("type", TEXT, "what it is", required=True, example="table"),
        Key("data", ANY, "its content", example="{rows: []}"),
    ), open=True),
    Shape("emit", "`emit`", (
        Key("custom", _shape("custom"), "a CUSTOM event", example="{name: progress, value: 3}"),
        Key("raw", _shape("raw"), "an event of another system, as it is",
            example='{event: "${{ steps.x.output }}", source: erp}'),
        Key("collaboration", _shape("collaboration"), "who hands over to whom",
            example="{from: planner, to: writer, task: {id: t1, name: Draft}}"),
    ), exactly_one=(("custom", "raw", "collaboration"),)),
    Shape("custom", "`custom`", (
        Key("name", replace(TEXT, minimum=1), "of the event", required=True, example="progress"),
        Key("value", ANY, "any value", example="3"),
    )),
    Shape("raw", "`raw`", (
        Key("event", ANY, "any value", required=True, example="{kind: ping}"),
        Key("source", TEXT, "where it comes from", example="erp"),
    )),
    Shape("collaboration", "`collaboration`", (
        Key("from", TEXT, "who hands over", required=True, example="planner"),
        Key("to", TEXT, "to whom", required=True, example="writer"),
        Key("task", _shape("task"), "what", required=True, example="{id: t1, name: Draft}"),
    )),
    Shape("task", "`task`", (
        Key("id", TEXT, "its id", required=True, example="t1"),
        Key("name", TEXT, "its name", required=True, example="Draft"),
    )),
    Shape("operation", "An operation of `set` (RFC 6902)", (
        Key("op", _enum("add", "remove", "replace", "move", "copy", "test"), "what to do", required=True,
            example="remove"),
        Key("path", LITERAL, "a JSON Pointer into the state", required=True, example="/plan/-"),
        Key("from", LITERAL, "of `move` and `copy`", example="/plan/0"),
        Key("value", ANY, "of `add`, `replace` and `test`", example="{status: pending}"),
    )),
    Shape("wait", "`wait`", (
        Key("for", DURATION, "how long", example="10m"),
        Key("until", TEXT, "until when (RFC 3339); in the past: at once", example='"${{ input.at }}"'),
    ), exactly_one=(("for", "until"),)),
    Shape("wait_for", "`wait_for`", (
        Key("event", _literal(1), "the type of the event", example="payment.received"),
        Key("match", CEL, "only events for which this is true", example="event.data.order == input.order"),
        Key("any", _list(_shape("subscription"), 1), "the first of several",
            example="[{event: paid}, {event: cancelled}]"),
        Key("all", _list(_shape("subscription"), 1), "all of several, in any order",
            example="[{event: paid}, {event: packed}]"),
        _DEADLINE,
        Key("on_deadline", _EXPIRY,
            "`fail` or `default: value`", default="fail", example="{default: null}", read=ANY),
        _PAUSE_CLOCK,
    ), exactly_one=(("event", "any", "all"),)),
    Shape("subscription", "An entry of `any` and `all`", (
        Key("event", _literal(1), "the type of the event", required=True, example="payment.received"),
        Key("match", CEL, "only events for which this is true", example="event.data.order == input.order"),
    )),
    Shape("case", "An entry of `switch`", (
        Key("when", CEL, "the first that is true is taken", example='input.kind == "refund"'),
        Key("default", _enum(True), "only in the last: taken if no other is", example="true"),
        Key("steps", STEPS, "what happens then", required=True, example='[{say: "A refund."}]'),
    ), exactly_one=(("when", "default"),)),
    Shape("for_each", "`for_each`", (
        Key("items", ANY, "a list (at most 10,000), evaluated once", required=True, example='"${{ input.services }}"'),
        Key("as", ID, "the item's name inside", default="item", example="svc"),
        Key("key", TEXT, "a stable name for each item", default="the item, or its position",
            example='"${{ svc.name }}"'),
        Key("max_parallel", _integer(1, 256), "how many at once", default="1",
            example="4"),
        Key("on_failure", _enum("stop", "isolate"), "`isolate`: the others go on, failures are data", default="stop",
            example="isolate"),
        Key("rollback", _enum("item", "all", "none"), "which items are undone when one fails", default="item",
            example="all"),
        Key("steps", STEPS, "for each item", required=True, example='[{say: "${{ item }}"}]'),
        Key("output", ANY, "of each item", default="null", example='"${{ steps.deploy.output.url }}"'),
    )),
    Shape("repeat", "`repeat`", (
        Key("max", _integer(1, 10_000), "how often at most", required=True, example="5"),
        Key("while", CEL, "asked before each iteration", example="state.open > 0"),
        Key("until", CEL, "asked after each iteration; sees its steps",
            example='steps.send.approval.decision != "revise"'),
        Key("steps", STEPS, "what is repeated", required=True, example='[{say: "Again."}]'),
    ), at_most_one=(("while", "until"),)),
    Shape("fail", "`fail` as a mapping", (
        Key("message", TEXT, "for people", required=True, example='"No stock of ${{ input.order }}"'),
        Key("code", LITERAL, "for `catch`; no reserved prefix", default="fail", example="out_of_stock"),
        Key("data", ANY, "any value", example='{order: "${{ input.order }}"}'),
    )),
)}  # fmt: skip

_ENDED: Final = ("catch", "finally")
_EFFECT: Final = ("retry", "timeout", "undo", "expose", *_ENDED)
_DECIDED: Final = ("on_decision", "on_reject")

VERBS: Final[dict[str, Verb]] = {verb.name: verb for verb in (
    Verb("call", LITERAL, "a tool: `tool.function`, or `tool` for one that is a function or the client's",
         ("with", "approval", *_DECIDED, "idempotency_key", "delivery", "stream", *_EFFECT),
         "what the tool returned", "`tool.*`", "shop.refund"),
    Verb("http", _shape("http"), "one HTTP request",
         ("approval", *_DECIDED, "idempotency_key", "delivery", *_EFFECT),
         "`{status, headers, json, text, url}`", "`http.*`", '{get: "https://api.example.com/orders/1"}'),
    Verb("llm", _shape("llm"), "one call of a model, streamed", _EFFECT, "the text, or the object of `output`",
        "`llm.*`",
         '{model: smart, prompt: "Summarise ${{ input.topic }}."}'),
    Verb("agent", _shape("agent"), "a model that uses tools until it is done", _EFFECT, "as `llm`",
         "`llm.*`, `agent.max_turns`", '{model: smart, prompt: "Research ${{ input.topic }}.", tools: [web.search]}'),
    Verb("run", LITERAL, "another workflow (`name` or `name@n`) as a child; `with` is its input",
         ("with", "detach", "approval", *_DECIDED, *_EFFECT), "the child's output; with `detach` its `{run_id}`",
         "`run.failed`, `run.stopped`", "refund@2"),
    Verb("ask", _shape("ask"), "a form for a person", _ENDED, "the form's values", "`ask.expired`",
         "{title: Which size?, form: {type: object, properties: {size: {type: string}}}}"),
    Verb("approve", _shape("approve"), "a decision by people", (*_DECIDED, *_ENDED),
         "`{decision, reason, values, edits, votes, expired, escalations}`", "`approval.*`",
         "{title: Ship it?, from: role:release_manager}"),
    Verb("say", _either(TEXT, _shape("say")), "a message to the frontend", _ENDED, "null", "",
        '"Hello ${{ input.name }}"'),
    Verb("emit", _shape("emit"), "an event for the frontend", _ENDED, "null", "",
        "{custom: {name: progress, value: 3}}"),
    Verb("set", _either(_map(ANY, "any", 1), _list(_shape("operation"), 1)),
         "writes state: names or JSON Pointers with values, or a list of RFC 6902 operations", _ENDED, "null",
         "`state.invalid`", "{status: booked}", read=_either(MAPPING, _list(ANY))),
    Verb("wait", _shape("wait"), "a durable timer", _ENDED, "null", "", "{for: 10m}"),
    Verb("wait_for", _shape("wait_for"), "an event from outside; early ones are kept", _ENDED,
         "`{id, type, data, at}`; with `all` a list", "`wait_for.expired`",
         '{event: payment.received, match: "event.data.order == input.order"}'),
    Verb("switch", _list(_shape("case"), 1), "the first case that is true", ("timeout", *_ENDED),
        "`{case: n or null}`", "",
         '[{when: "input.amount > 100.0", steps: [{say: "Much."}]}, {default: true, steps: [{say: "Little."}]}]'),
    Verb("for_each", _shape("for_each"), "steps for each item of a list", ("timeout", *_ENDED),
         "list of `{key, status, output, error}`", "`for_each.duplicate_key`",
         '{items: "${{ input.names }}", steps: [{say: "${{ item }}"}]}'),
    Verb("repeat", _shape("repeat"), "steps again and again", ("timeout", *_ENDED), "`{count}`", "`repeat.exhausted`",
         '{max: 3, until: "state.done", steps: [{say: "Again."}]}'),
    Verb("parallel", _map(STEPS, "id", 2, 64), "branches side by side", ("join", "timeout", *_ENDED),
        "`{winner: branch or null}`; of `join: n` `{winners: branches}`", "",
         '{legal: [{say: "One."}], finance: [{say: "Two."}]}'),
    Verb("try", STEPS, "groups steps for `catch`, `finally`, `timeout` and `if`", ("timeout", *_ENDED), "null", "",
        '[{say: "Hello"}]'),
    Verb("break", _enum(True), "ends the loop around as finished; what else is open in it is stopped without undo", (),
         "", "", "true"),
    Verb("continue", _enum(True), "skips the rest of the round of the loop around", (), "", "", "true"),
    Verb("return", ANY, "ends the run as finished, with this value, from any depth", (), "", "", "{status: rejected}"),
    Verb("fail", _either(TEXT, _shape("fail")), "raises an error", (), "", "the `code` that it gives",
        '{message: No stock, code: out_of_stock}'),
)}  # fmt: skip

COMMON_KEYS: Final = ("id", "title", "if")
EFFECTS: Final = tuple(verb.name for verb in VERBS.values() if "retry" in verb.keys)
CATALOGUE: Final = Shape("catalogue", "A catalogue of models", (
    Key("hai", _enum("models/v1"), "the language", required=True, example="models/v1"),
    Key("description", LITERAL, "what it is for", example="Models of the shop."),
    Key("models", _map(_shape("model")), "the models, by the name that `use` gives", required=True,
        example="{smart: {provider: openai, model: gpt-5.4}}"),
))  # fmt: skip
# A file that workflows use.
SHARED: Final = Shape("shared", "A file that is used", (
    Key("hai", _enum("shared/v1"), "the language", required=True, example="shared/v1"),
    *(key for key in SHAPES["document"].keys if key.name in ("description", "models", "tools", "roles")),
))  # fmt: skip


def _step(verb: Verb) -> Shape:
    own = Key(verb.name, verb.type, verb.does, required=True, example=verb.example, read=verb.read)
    keys = {key.name: key for key in SHAPES["step"].keys}
    common = (keys[word] for word in COMMON_KEYS)
    return Shape(verb.name, f"a `{verb.name}` step", (*common, own, *(keys[word] for word in verb.keys)))


STEP_SHAPES: Final = {name: _step(verb) for name, verb in VERBS.items()}
STEP_KEYS: Final = frozenset(word for shape in STEP_SHAPES.values() for word in shape.words)
STEP_ORDER: Final = (
    "id",
    "title",
    "if",
    *VERBS,
    *(key.name for key in SHAPES["step"].keys if key.name not in COMMON_KEYS),
)
DOCUMENT_ORDER: Final = tuple(key.name for key in SHAPES["document"].keys)
