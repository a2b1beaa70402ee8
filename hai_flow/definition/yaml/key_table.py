"""The table of keys: the mappings of a document that belong to no verb, each with its keys (`keys`).

Pure data, and the only list of keys: a verb brings its own mappings (verbs/), `language` has all of them. The reader
checks mappings by it, the editor's JSON Schema, the grammar for language models and the tables of docs/language.md are
made from it, and `fmt` sorts keys by its order."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.names.name_forms import PATH_CHARS_MAX
from hai_flow.definition.tools.effect_classes import EFFECTS
from hai_flow.definition.yaml.include_keys import USES_MAX
from hai_flow.definition.yaml.keys import (
    ANY,
    BOOLEAN,
    CEL,
    DURATION,
    ID,
    LITERAL,
    MAPPING,
    NAME,
    SCHEMA,
    SELECTORS,
    STEPS,
    TEXT,
    WORKFLOW,
    Key,
    Shape,
    either,
    enum,
    integer,
    list_of,
    literal,
    map_of,
    number,
    shape_of,
    stages,
)

BIG_INTEGERS: Final = "integers beyond 2^53 in the answer: keep their digits as text, or fail the step after its effect"
DEADLINE: Final = Key("deadline", DURATION, "time that people have, also while the run is paused; or `3 working days`",
    default="7d", example="2d")  # fmt: skip
NOTIFY: Final = Key(
    "notify",
    list_of(TEXT),
    "recipients: a channel of the deployment, or `channel:recipient` (docs/notifications.md)",
    example="[slack:#finance, email]",
)
PAUSE_CLOCK: Final = Key("pause_clock", enum("run", "stop"), "whether the deadline runs on while the run is paused",
                          default="run", example="stop")  # fmt: skip
EXPIRY: Final = stages(enum("fail"), "on_deadline_of_ask")

DOCUMENT_SHAPES: Final[dict[str, Shape]] = {shape.name: shape for shape in (
    Shape("document", "The document", (
        Key("hai", enum("flow/v1"), "the language", required=True, example="flow/v1"),
        Key("name", WORKFLOW, "the workflow's name", required=True, example="refund"),
        Key("version", integer(1), "to be raised with each change; a published version never changes", required=True,
            example="1"),
        Key("title", LITERAL, "name shown to people", example="Refund an order"),
        Key("description", LITERAL, "purpose", example="Pays back after a second look."),
        Key("summary", TEXT, "one line for lists of runs: holes over `input state run thread`, evaluated again when "
            "these change", example='"${{ input.order }}: ${{ state.status }}"'),
        Key("use", list_of(LITERAL, 1, USES_MAX), "files in the project; their tools, models and roles become this "
            "workflow's, too", example="[../shared/tools.yaml]"),
        Key("input", SCHEMA, "JSON Schema of the input (`type: object`): defaults are filled in, then the input is "
            "checked, before a run exists; unknown properties are refused", default="no properties",
            example="{type: object, required: [amount], properties: {amount: {type: number}}}"),
        Key("state", map_of(shape_of("state_variable"), "variable"),
            "variables that steps write with `set` and frontends see",
            example="{log: {type: array, items: {type: string}, default: [], reduce: append}}"),
        Key("models", map_of(shape_of("model")), "models that `llm` and `agent` may use",
            example="{smart: {provider: openai, model: gpt-5.4}}"),
        Key("tools", map_of(shape_of("tool")), "the tools for `call` and `agent`; no others can be called",
            example="{shop: {python: acme.shop, effect: write}}"),
        Key("roles", map_of(SELECTORS), "members of each role, as `user:` and `group:`; other roles come from the "
            "deployment", example="{sre: [user:ann, user:bob]}"),
        Key("visibility",
            either(enum("requester", "tenant"), list_of(TEXT, 1), word="`requester`, `tenant`, or list of sel"),
            "readers of its runs and their conversations, in addition to requesters and operators: nobody else, "
            "everyone in the tenant, or these (`user: role: group:`)", default="requester",
            example="[role:support, user:ann]"),
        Key("triggers", list_of(shape_of("trigger"), 1), "ways to start runs", default="[{api: {}}]",
            example="[{api: {}}, {event: {type: order.paid}}]"),
        Key("defaults", shape_of("defaults"), "values for steps that set none", example="{timeout: 1m, deadline: 2d}"),
        Key("limits", shape_of("limits"), "limits of one run", example="{tokens: 400000, duration: 7d}"),
        Key("concurrency", shape_of("concurrency"), "limit on simultaneous runs with the same key",
            example='{key: "deploy-${{ input.release }}", on_conflict: reject}'),
        Key("queue", WORKFLOW, "the queue of its runs: only workers that serve it perform them (`hai-flow worker "
            "--queue NAME`, docs/operations.md#queues)", default="default", example="gpu"),
        Key("on_message", enum("reject", "enqueue", "interrupt"), "effect of a user's message during an active run: "
            "it is refused (409); it waits and starts a new run after the active one; or it stops the active run, as "
            "an operator would, and starts a new one", default="reject", example="interrupt"),
        Key("calendar", LITERAL, "calendar of working days (docs/calendars.md)", default="default",
            example="Europe/Berlin"),
        Key("chat", BOOLEAN, "`false`: its questions are never sent to a chat, whatever `notify` says (docs/chat.md)",
            default="true", example="false"),
        Key("steps", STEPS, "the steps, in order", required=True, example='[{say: "Hello"}]'),
        Key("catch", list_of(shape_of("catch"), 1), "handlers for failures that no step has caught",
            example='[{errors: [tool.*], steps: [{say: "Sorry."}]}]'),
        Key("finally", STEPS, "steps that always run at the end", example='[{say: "Done."}]'),
        Key("output", ANY, "result of the run, evaluated after the last step; `return` replaces it", default="null",
            example='{refunded: "${{ input.amount }}"}'),
    )),
    Shape("state_variable", "A variable of `state`: a JSON Schema, and", (
        Key("default", ANY, "initial value", default="null", example="[]"),
        Key("reduce", enum("append", "merge", "max", "min", "add"), "way to combine each `set` with the old value: "
            "append an element, merge (shallow), keep the larger or smaller number, or add", example="append"),
        Key("client", BOOLEAN, "frontends may write it, with the `state` that they post", default="false",
            example="true"),
        Key("keep", enum("run", "thread"), "`thread`: a run starts with the final value of the previous run in its "
            "thread", default="run", example="thread"),
        Key("show", enum("run", "thread"), "`thread`: the value in a child run is shown in the state of its thread, "
            "too", default="run", example="thread"),
    ), open=True),
    Shape("model", "A model", (
        Key("use", literal(1), "an entry of the deployment's catalogue, which has its address, key and price: "
            "docs/models.md", example="smart"),
        Key("provider", literal(1), "the service: `openai azure deepseek dashscope zhipu vllm ollama llamacpp`, or "
            "one added by a package", example="openai"),
        Key("model", literal(1), "the provider's name for it", example="gpt-5.4", beside=("provider",),
            needed_by="provider"),
        Key("api", enum("chat", "responses"), "the OpenAI protocol to use", default="chat", example="responses",
            beside=("provider",)),
        Key("base_url", LITERAL, "address, instead of the provider's", example="https://llm.internal/v1",
            beside=("provider",)),
        Key("api_key", TEXT, "reference to a secret", example='"${{ secrets.OPENAI_API_KEY }}"', beside=("provider",)),
        Key("temperature", number(0), "sampling temperature", example="0.2"),
        Key("max_tokens", integer(1), "maximum length of an answer, in tokens", example="2000"),
        Key("params", MAPPING, "further parameters, with OpenAI's names; `extra` has those that only this provider "
            "knows", example="{top_p: 0.9, extra: {enable_thinking: true}}"),
        Key("quirks", shape_of("quirks"), "differences from OpenAI, in addition to those known of the provider",
            example="{output: json_object}", beside=("provider",)),
        Key("context", integer(1), "size of the context window, in tokens", example="131072", beside=("provider",)),
        Key("timeout", either(DURATION, shape_of("model_timeout")), "time limits of an answer",
            default="{total: 5m, idle: 1m}", example="{total: 10m, idle: 30s}"),
        Key("price", shape_of("price"), "US dollars per million tokens", example="{input: 0.8, output: 2}",
            beside=("provider",)),
        Key("fallback", list_of(LITERAL, 1), "other `models`, asked if this one does not begin to answer",
            example="[small]"),
    ), exactly_one=(("use", "provider"),)),
    Shape("quirks", "`quirks` of a model", (
        Key("reasoning", enum("reasoning_content", "reasoning", "think_tags", "think_open"),
            "place of its thinking: a field of the message, `<think>` in the text, or the text before the first "
            "`</think>`", default="by provider", example="reasoning"),
        Key("send_back", enum("never", "tool_turns"), "its thinking is sent back to it, in conversations with tool "
            "calls", default="by provider", example="tool_turns"),
        Key("output", enum("json_schema", "json_object", "prompt"), "way to request an object: with the schema, as "
            "any object with the schema in the prompt, or by the prompt alone", default="by provider",
            example="json_object"),
        Key("strict_tools", BOOLEAN, "it accepts `strict` for tools", default="by provider", example="true"),
        Key("tool_choice_required", BOOLEAN, "it can be forced to call a tool", default="by provider",
            example="false"),
        Key("max_tokens", enum("max_tokens", "max_completion_tokens"), "its name for `max_tokens`",
            default="by provider", example="max_completion_tokens"),
        Key("usage", enum("last", "none"), "`none`: it does not support `stream_options`", default="last",
            example="none"),
        Key("alternate", BOOLEAN, "successive messages of one role are joined, for templates in which user and "
            "assistant must alternate", default="by provider", example="true"),
    )),
    Shape("model_timeout", "`timeout` of a model", (
        Key("total", DURATION, "time until the answer is complete", default="5m", example="10m"),
        Key("idle", DURATION, "longest silence before or during the answer", default="1m", example="30s"),
    )),
    Shape("price", "`price` of a model", (
        Key("input", number(0), "input tokens", required=True, example="0.8"),
        Key("output", number(0), "output tokens, including thinking", required=True, example="2"),
        Key("cached", number(0), "input tokens from its cache", default="as `input`", example="0.1"),
    )),
    Shape("tool", "A tool", (
        Key("python", LITERAL, "a module (`pkg.mod`, called as `tool.function`), a function (`pkg.mod:fn`, called as "
            "`tool`), or `registered`; the deployment allows them", example="acme.shop"),
        Key("mcp", either(literal(1), shape_of("mcp_server")), "an MCP server: its address, or a mapping",
            example="https://erp.internal/mcp", read=ANY),
        Key("http", either(LITERAL, MAPPING), "a service described by an OpenAPI file: `openapi`, and `base_url` "
            "(default: from the document); called as `tool.operationId`",
            example="{openapi: ./shop.openapi.json, base_url: https://api.example.com}", read=ANY),
        Key("a2a", either(literal(1), shape_of("foreign_agent")), "an external agent with A2A: its address; called as "
            "`tool`", example="https://agents.example.com/planner", read=ANY),
        Key("frontend", shape_of("frontend"), "a tool of the client: the run waits for its answer",
            example="{description: Choose an account, parameters: {type: object, properties: {}}}"),
        Key("agent", shape_of("agent_tool"), "an agent to which another agent may give a task",
            example="{description: Looks things up, model: small, tools: [web.search]}"),
        Key("title", LITERAL, "name shown to people who are asked about a call without a title of its own; MCP servers "
            "and OpenAPI files give theirs", example="Book an order", beside=("python",)),
        Key("effect", enum(*EFFECTS), "class of its effect (see Tools); agents ask before all but `read` and "
            "`reversible`", default="write; none of a frontend tool", example="read",
            beside=("python", "mcp", "http", "a2a", "frontend")),
        Key("allow", list_of(LITERAL, 1), "only these functions of the server", example="[search, fetch]",
            beside=("mcp", "http")),
        Key("auth", ANY, "a token, or `{bearer: ...}`, `{basic: {user, password}}`, `{header: {name, value}}`",
            example='"${{ secrets.ERP_TOKEN }}"', beside=("mcp", "http", "a2a")),
        Key("headers", map_of(TEXT, "any"), "headers of every request", example='{X-Team: "${{ secrets.TEAM }}"}',
            beside=("mcp", "http", "a2a")),
        Key("env", map_of(TEXT, "any"), "environment of a server started as a program",
            example='{TOKEN: "${{ secrets.TOKEN }}"}', beside=("mcp",)),
        Key("timeout", DURATION, "time limit of each call; by default 5m, for an external agent 1h", example="30s",
            beside=("python", "mcp", "http", "a2a")),
        Key("big_integers", enum("text", "refuse"), BIG_INTEGERS, default="text", example="refuse",
            beside=("python", "mcp", "http")),
        Key("chat", BOOLEAN, "`false`: questions about its calls are never sent to a chat", default="true",
            example="false", beside=("python", "mcp", "http", "a2a")),
    ), exactly_one=(("python", "mcp", "http", "a2a", "frontend", "agent"),)),
    Shape("foreign_agent", "`a2a`", (
        Key("url", literal(1), "its address, under which it has its card (`.well-known/agent-card.json`)",
            required=True, example="https://agents.example.com/planner"),
        Key("description", LITERAL, "purpose, for the model that may call it", example="Plans journeys"),
    )),
    Shape("mcp_server", "`mcp`", (
        Key("use", literal(1), "the name of a server of this deployment", example="files"),
        Key("url", literal(1), "its address (streamable HTTP)", example="https://erp.internal/mcp"),
        Key("command", list_of(literal(1), 1), "the program and its arguments (stdio)",
            example="[python, -m, acme.files]"),
        Key("auth", ANY, "a token, or `{bearer: ...}`, `{basic: {user, password}}`, `{header: {name, value}}`",
            example='"${{ secrets.ERP_TOKEN }}"', beside=("url",)),
        Key("headers", map_of(TEXT, "any"), "headers of every request", example='{X-Team: "${{ secrets.TEAM }}"}',
            beside=("url",)),
        Key("env", map_of(TEXT, "any"), "its whole environment, in addition to PATH, HOME and the like",
            example='{TOKEN: "${{ secrets.TOKEN }}"}', beside=("command",)),
    ), exactly_one=(("use", "url", "command"),)),
    Shape("agent_tool", "An agent that another one may give a task to", (
        Key("description", LITERAL, "purpose, for the model that may call it", required=True,
            example="Looks things up and says where they stand"),
        Key("model", NAME, "one of `models`; without it `defaults.model`", example="small"),
        Key("system", TEXT, "the system prompt", example="You look things up."),
        Key("tools", list_of(LITERAL), "as for `agent`", required=True, example="[web.search]"),
        Key("max_turns", integer(1, 1000), "maximum number of answers of its model", default="25", example="5"),
        Key("approvals", map_of(either(shape_of("approval"), enum("none")), "any"), "as for `agent`",
            example="{mail.send: {from: requester}}"),
        Key("output", SCHEMA, "its answer is an object of this schema, not text",
            example="{type: object, required: [found], properties: {found: {type: string}}}"),
        Key("hand_over", BOOLEAN, "it takes over the conversation: its answers become those of the agent that called "
            "it", default="false", example="true"),
    )),
    Shape("frontend", "A frontend tool", (
        Key("description", LITERAL, "purpose, for people and models", required=True, example="Ask for confirmation"),
        Key("parameters", SCHEMA, "schema of its arguments", required=True,
            example="{type: object, required: [action], properties: {action: {type: string}}}"),
        Key("result", SCHEMA, "schema of its answer; by default the answer is text", example="{type: boolean}"),
        Key("answer", enum("required", "none"), "`none`: the call is shown without waiting for an answer, and the "
            "step's output is null; excludes `result` and `deadline`", default="required", example="none"),
        Key("predict", map_of(NAME, "variable", 1), "state variables that the client may take from an argument while "
            "a call streams, until `set` writes them", example="{document: document}"),
        DEADLINE,
    )),
    Shape("stream", "`stream` as a mapping", (
        Key("to", LITERAL, "a frontend tool with `answer: none`; its call is shown while it grows", required=True,
            example="write_document"),
        Key("argument", LITERAL, "the text argument to which yielded text is appended; no other may be required",
            required=True, example="document"),
    )),
    Shape("trigger", "A trigger", (
        Key("api", shape_of("api"), "requests; always included, unless other triggers are listed without it",
            example="{}"),
        Key("event", shape_of("event_trigger"), "each event of a type",
            example='{type: order.paid, dedupe: "${{ event.id }}"}'),
        Key("schedule", shape_of("schedule_trigger"), "a schedule",
            example='{cron: "0 6 * * 1-5", timezone: Europe/Berlin}'),
        Key("run", shape_of("run_trigger"), "the end of each run of another workflow",
            example="{workflow: refund, on: [failed]}"),
        Key("webhook", shape_of("webhook_trigger"), "requests of another system to `POST /v1/hooks/PATH`",
            example='{path: shop/orders, secret: "${{ secrets.SHOP_HOOK }}"}'),
    ), exactly_one=(("api", "event", "schedule", "run", "webhook"),)),
    Shape("api", "`api`", (
        Key("tasks", enum("required"), "over MCP, only for clients that support tasks; questions asked at once come "
            "first", example="required"),
    )),
    Shape("event_trigger", "`event`", (
        Key("type", literal(1), "type of the events", required=True, example="order.paid"),
        Key("match", CEL, "only events for which this is true", example="event.data.amount > 100.0"),
        Key("dedupe", TEXT, "key: events with the same key start one run", example='"${{ event.id }}"'),
        Key("input", ANY, "the run's input", default="the event's data", example='{order: "${{ event.data.id }}"}'),
    )),
    Shape("run_trigger", "`run`", (
        Key("workflow", WORKFLOW, "the name of the other workflow, in any version", required=True, example="refund"),
        Key("on", list_of(enum("finished", "failed", "stopped"), 1), "the ends that count", default="[finished]",
            example="[failed, stopped]"),
        Key("match", CEL, "only ends for which this is true", example="event.data.output.amount > 100.0"),
        Key("input", ANY, "the run's input", default="{}", example='{order: "${{ event.data.input.order }}"}'),
    )),
    Shape("webhook_trigger", "`webhook`", (
        Key("path", literal(1, PATH_CHARS_MAX), "path after `/v1/hooks/`; unique among workflows", required=True,
            example="shop/orders"),
        Key("secret", TEXT, "reference to the sender's secret: `${{ secrets.NAME }}` is the server's "
            "`HAI_FLOW_SECRET_NAME`", required=True, example='"${{ secrets.SHOP_HOOK }}"'),
        Key("scheme", enum("github", "stripe", "standard", "token"), "its proof: an HMAC-SHA256 of the body, of a "
            "time and the body, by Standard Webhooks, or the secret itself as a bearer token", default="github",
            example="stripe"),
        Key("header", LITERAL, "header with the proof, if not the scheme's", example="X-Shop-Signature"),
        Key("match", CEL, "only requests for which this is true", example='event.headers["x-github-event"] == "push"'),
        Key("dedupe", TEXT, "key: requests with the same key start one run", default="${{ event.id }}",
            example='"${{ event.data.order }}"'),
        Key("input", ANY, "the run's input", default="the body", example='{order: "${{ event.data.id }}"}'),
    )),
    Shape("schedule_trigger", "`schedule`", (
        Key("cron", LITERAL, "minute, hour, day, month, weekday", required=True, example='"0 6 * * 1-5"'),
        Key("timezone", LITERAL, "an IANA name", required=True, example="Europe/Berlin"),
        Key("missed", enum("skip", "once", "all"), "runs that were due while the deployment was down", default="skip",
            example="once"),
        Key("overlap", enum("queue", "queue_one", "skip", "cancel_running"),
            "action if the previous run is still active", default="skip", example="queue"),
        Key("input", ANY, "the run's input", default="{}", example="{release: v1.0.0}"),
    )),
    Shape("defaults", "`defaults`", (
        Key("retry", shape_of("retry"), "`retry` of `call http llm agent run`",
            example="{max: 3, backoff: exponential}"),
        Key("timeout", DURATION, "time limit of each attempt", example="1m"),
        DEADLINE,
        Key("model", NAME, "model of `llm` and `agent`", example="smart"),
        NOTIFY,
    )),
    Shape("limits", "`limits`", (
        Key("tokens", integer(1), "tokens of all models", example="400000"),
        Key("cost_usd", number(0, above=True), "cost of all models, in US dollars", example="3"),
        Key("tool_calls", integer(1), "tool calls of all steps and agents", example="60"),
        Key("duration", DURATION, "time since the start, including waiting", example="7d"),
        Key("steps", integer(1), "steps begun", example="10000"),
    )),
    Shape("concurrency", "`concurrency`", (
        Key("key", TEXT, "key of runs that count together; may use `input run thread`", required=True,
            example='"deploy-${{ input.release }}"'),
        Key("limit", integer(1), "maximum number at once", default="1", example="1"),
        Key("on_conflict", enum("queue", "reject", "cancel_running"), "action for a run beyond the limit",
            default="queue", example="reject"),
    )),
    Shape("step", "A step: exactly one verb, and", (
        Key("id", ID, "unique in the document; needed to refer to it", default="verb#n", example="review"),
        Key("title", TEXT, "title shown to people", example="Check the order"),
        Key("if", CEL, "false: the step is skipped, and nothing inside exists", example="input.amount >= 50.0"),
        Key("with", MAPPING, "arguments, evaluated once and used by every attempt",
            example='{order: "${{ input.order }}"}'),
        Key("approval", shape_of("approval"), "people decide on exactly these arguments before anything is sent",
            example="{from: role:support, deadline: 1d}"),
        Key("on_decision", map_of(STEPS, "id", 1), "steps for each answer other than `approve`",
            example='{revise: [{set: {feedback: "${{ steps.send.approval.reason }}"}}]}'),
        Key("on_reject", STEPS,
            "short for `on_decision: {reject: ...}`; then the rejection is raised, unless the run has returned",
            example="[{return: {refunded: 0}}]"),
        Key("idempotency_key", TEXT, "key that is the same for every attempt", default="run.id/path",
            example='"${{ run.id }}"'),
        Key("delivery", enum("at_least_once", "at_most_once"), "`at_most_once`: no retry; a person decides if the "
            "outcome is lost", default="at_least_once", example="at_most_once"),
        Key("detach", BOOLEAN, "of `run`: start it without waiting for it; it is not stopped with this run",
            default="false", example="true"),
        Key("stream", either(enum("text", "none"), shape_of("stream")),
            "text yielded by the tool becomes message chunks, or the argument of a call shown by the frontend",
            default="none", example="text"),
        Key("await_callback", shape_of("await_callback"), "of an OpenAPI operation, as for `http`: an argument "
            "contains `callback.url`, and the step waits for a request to that address", default="none",
            example="{deadline: 2d}"),
        Key("expose", BOOLEAN, "show arguments and result to the frontend", default="false", example="true"),
        Key("join", either(enum("all", "any"), integer(1)), "number of branches that must finish; the others are then "
            "stopped", default="all", example="any", read=ANY),
        Key("retry", shape_of("retry"), "retries of failed attempts", example="{max: 3, backoff: exponential}"),
        Key("timeout", DURATION, "limit on the working time of each attempt, or of a whole block",
            default="http 30s, call and llm 5m, agent 30m", example="2m"),
        Key("undo", shape_of("undo"), "call that undoes the effect if a later step fails; sees this step's output",
            example='{call: shop.charge, with: {payment: "${{ steps.pay.output.id }}"}}'),
        Key("catch", list_of(shape_of("catch"), 1), "handlers; the first match runs; without `errors` it matches all "
            "but `approval.*` and `limit.*`", example='[{errors: [tool.failed], steps: [{say: "Later."}]}]'),
        Key("continue_on_error", BOOLEAN, "on failure the step has status `failed`, and the flow goes on; not for "
            "`approval.*` and `limit.*`", default="false", example="true"),
        Key("finally", STEPS, "steps that always run once, when the step ends", example='[{say: "Done."}]'),
    )),
    Shape("retry", "`retry`", (
        Key("max", integer(0, 100), "maximum number of retries", required=True, example="3"),
        Key("errors", list_of(LITERAL, 1), "only these errors: codes, `prefix.*` or `*`", default="retriable errors",
            example="[tool.unavailable, http.*]"),
        Key("backoff", enum("fixed", "exponential"), "`exponential` doubles the pause", default="fixed",
            example="exponential"),
        Key("every", DURATION, "the pause, or the first one", default="1s", example="30s"),
        Key("max_delay", DURATION, "the longest pause", default="5m", example="10m"),
        Key("jitter", BOOLEAN, "shorten each pause at random, at most by half", default="true", example="false"),
    )),
    Shape("catch", "An entry of `catch`", (
        Key("errors", list_of(LITERAL, 1), "errors to catch: codes, `prefix.*` or `*`",
            default="everything but `approval.*` and `limit.*`", example="[tool.failed, step.timeout]"),
        Key("steps", STEPS, "steps that see `error`; afterwards the flow goes on", required=True,
            example='[{say: "${{ error.message }}"}]'),
    )),
    Shape("undo", "`undo`", (
        Key("call", LITERAL, "a tool", example="shop.charge"),
        Key("http", shape_of("http"), "a request", example='{delete: "https://api.example.com/orders/1"}'),
        Key("run", LITERAL, "a workflow", example="refund@2"),
        Key("with", MAPPING, "its arguments", example='{payment: "${{ steps.pay.output.id }}"}'),
        Key("retry", shape_of("retry"), "retries if it fails", default="{max: 5, backoff: exponential}",
            example="{max: 2}"),
        Key("timeout", DURATION, "time limit of each attempt", example="1m"),
        Key("idempotency_key", TEXT, "key that is the same for every attempt", example='"undo-${{ run.id }}"'),
    ), exactly_one=(("call", "http", "run"),)),
)}  # fmt: skip

NOTHING: Final = Shape("nothing", "An empty mapping", ())
CATALOGUE: Final = Shape("catalogue", "A catalogue of models", (
    Key("hai", enum("models/v1"), "the language", required=True, example="models/v1"),
    Key("description", LITERAL, "purpose", example="Models of the shop."),
    Key("models", map_of(shape_of("model")), "the models, by the name used in `use`", required=True,
        example="{smart: {provider: openai, model: gpt-5.4}}"),
))  # fmt: skip
MCP_CATALOGUE: Final = Shape("mcp_catalogue", "A catalogue of MCP servers", (
    Key("hai", enum("mcp/v1"), "the language", required=True, example="mcp/v1"),
    Key("description", LITERAL, "purpose", example="Servers of the shop."),
    Key("servers", map_of(MAPPING), "the servers, by the name used in `use`", required=True,
        example="{files: {command: [python, -m, acme.files]}}"),
))  # fmt: skip
MCP_OAUTH: Final = Shape("mcp_oauth", "`oauth` of a server", (
    Key("issuer", literal(1), "issuer of the tokens", required=True, example="https://login.example.com"),
    Key("client_id", literal(1), "id of the client", required=True, example="flow"),
    Key("client_secret", TEXT, "secret of the client", required=True, example='"${{ secrets.ERP }}"'),
    Key("scope", literal(1), "scope of the tokens", example="erp.read"),
))  # fmt: skip
MCP_ENTRY: Final = Shape("mcp_entry", "A server of the catalogue", (
    *(key for key in DOCUMENT_SHAPES["mcp_server"].keys if key.name != "use"),
    Key("oauth", MAPPING, "tokens by client credentials", beside=("url",),
        example='{issuer: https://login.example.com, client_id: flow, client_secret: "${{ secrets.ERP }}"}'),
    Key("trusted", BOOLEAN, "believe its description of its functions: those with `readOnlyHint` become `read`",
        default="false", example="true"),
), exactly_one=(("url", "command"),))  # fmt: skip
# A file that workflows use.
SHARED: Final = Shape("shared", "A file that is used", (
    Key("hai", enum("shared/v1"), "the language", required=True, example="shared/v1"),
    *(key for key in DOCUMENT_SHAPES["document"].keys if key.name in ("description", "models", "tools", "roles")),
))  # fmt: skip
COMMON_KEYS: Final = ("id", "title", "if")
ENDED_KEYS: Final = ("catch", "finally")
EFFECT_KEYS: Final = ("retry", "timeout", "undo", "expose", "continue_on_error", *ENDED_KEYS)
DECIDED_KEYS: Final = ("on_decision", "on_reject")
