"""The table of keys: the mappings of a document that belong to no verb, each with its keys (`keys`).

Pure data, and the only list of keys: a verb brings its own mappings (verbs/), `language` has all of them. The reader
checks mappings by it, the editor's JSON Schema, the grammar for language models and the tables of docs/language.md are
made from it, and `fmt` sorts keys by its order.
"""

from __future__ import annotations

from typing import Final

from hai_flow.definition.names.names import PATH_CHARS_MAX
from hai_flow.definition.tools.effects import EFFECTS
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

BIG_INTEGERS: Final = "an integer of the answer beyond 2^53: its digits as text, or the step fails, after its effect"
DEADLINE: Final = Key("deadline", DURATION, "how long people have, also while the run is paused; or `3 working days`",
                       default="7d", example="2d")  # fmt: skip
NOTIFY: Final = Key(
    "notify",
    list_of(TEXT),
    "whom to tell: a channel of the deployment, or `channel:whom` (docs/notifications.md)",
    example="[slack:#finance, email]",
)
PAUSE_CLOCK: Final = Key("pause_clock", enum("run", "stop"), "whether the deadline runs on while the run is paused",
                          default="run", example="stop")  # fmt: skip
EXPIRY: Final = stages(enum("fail"), "on_deadline_of_ask")

DOCUMENT_SHAPES: Final[dict[str, Shape]] = {shape.name: shape for shape in (
    Shape("document", "The document", (
        Key("hai", enum("flow/v1"), "the language", required=True, example="flow/v1"),
        Key("name", WORKFLOW, "the workflow's name", required=True, example="refund"),
        Key("version", integer(1), "raise it for each change; what is published never changes", required=True,
            example="1"),
        Key("title", LITERAL, "the name that people see", example="Refund an order"),
        Key("description", LITERAL, "what it is for", example="Pays back after a second look."),
        Key("summary", TEXT, "one line that lists of runs show: holes over `input state run thread`, filled anew as "
            "these change", example='"${{ input.order }}: ${{ state.status }}"'),
        Key("use", list_of(LITERAL, 1, USES_MAX),
            "files below the project whose tools, models and roles are this workflow's too",
            example="[../shared/tools.yaml]"),
        Key("input", SCHEMA,
            "JSON Schema of the input (`type: object`): defaults are filled in, then it is checked before "
            "a run exists; unknown properties are refused", default="no properties",
            example="{type: object, required: [amount], properties: {amount: {type: number}}}"),
        Key("state", map_of(shape_of("state_variable"), "variable"),
            "variables that steps write with `set` and frontends see",
            example="{log: {type: array, items: {type: string}, default: [], reduce: append}}"),
        Key("models", map_of(shape_of("model")), "models that `llm` and `agent` may use",
            example="{smart: {provider: openai, model: gpt-5.4}}"),
        Key("tools", map_of(shape_of("tool")),
            "everything that `call` and `agent` may use; what is not here can't be called",
            example="{shop: {python: acme.shop, effect: write}}"),
        Key("roles", map_of(SELECTORS), "who has a role, as `user:` and `group:`; other roles come from the deployment",
            example="{sre: [user:ann, user:bob]}"),
        Key("visibility", either(enum("requester", "tenant"), list_of(TEXT, 1),
                                 word="`requester`, `tenant`, or list of sel"),
            "who may read its runs and their conversations, beside those who asked for them and operators: nobody, "
            "everyone of the tenant, or these (`user: role: group:`)", default="requester",
            example="[role:support, user:ann]"),
        Key("triggers", list_of(shape_of("trigger"), 1), "what starts runs", default="[{api: {}}]",
            example="[{api: {}}, {event: {type: order.paid}}]"),
        Key("defaults", shape_of("defaults"), "what holds where a step says nothing",
            example="{timeout: 1m, deadline: 2d}"),
        Key("limits", shape_of("limits"), "what one run may use", example="{tokens: 400000, duration: 7d}"),
        Key("concurrency", shape_of("concurrency"), "how many runs of one key at once",
            example='{key: "deploy-${{ input.release }}", on_conflict: reject}'),
        Key("queue", WORKFLOW, "the queue in which its runs wait for a worker: only workers that serve it perform them "
            "(`hai-flow worker --queue NAME`, docs/operations.md#queues)", default="default", example="gpu"),
        Key("on_message", enum("reject", "enqueue", "interrupt"), "what a user's message does that comes "
            "while a run is active: it is refused (409); or it waits, and starts a new run when that one has ended; or "
            "the run is stopped, as by an operator, and the message starts a new one",
            default="reject", example="interrupt"),
        Key("calendar", LITERAL, "of working days (docs/calendars.md)", default="default", example="Europe/Berlin"),
        Key("chat", BOOLEAN, "`false`: no question of it stands in a chat, whatever `notify` says (docs/chat.md)",
            default="true", example="false"),
        Key("steps", STEPS, "what happens, in order", required=True, example='[{say: "Hello"}]'),
        Key("catch", list_of(shape_of("catch"), 1), "what to do when a step fails and nothing inside has caught it",
            example='[{errors: [tool.*], steps: [{say: "Sorry."}]}]'),
        Key("finally", STEPS, "runs at the end, whatever happened", example='[{say: "Done."}]'),
        Key("output", ANY, "the run's result, evaluated after the last step; a `return` gives another", default="null",
            example='{refunded: "${{ input.amount }}"}'),
    )),
    Shape("state_variable", "A variable of `state`: a JSON Schema, and", (
        Key("default", ANY, "its value at the start", default="null", example="[]"),
        Key("reduce", enum("append", "merge", "max", "min", "add"),
            "each `set` combines instead of replacing: one more element, a shallow merge, the larger or smaller "
            "number, the sum", example="append"),
        Key("client", BOOLEAN, "whether frontends may write it, by the `state` that they post", default="false",
            example="true"),
        Key("keep", enum("run", "thread"), "`thread`: a run begins with what the run before it in its thread had",
            default="run", example="thread"),
        Key("show", enum("run", "thread"), "`thread`: of a child run, it is in the state of its thread, too",
            default="run", example="thread"),
    ), open=True),
    Shape("model", "A model", (
        Key("use", literal(1), "one of the deployment's catalogue, where its address, key and price stand: "
            "docs/models.md", example="smart"),
        Key("provider", literal(1), "who serves it: `openai azure deepseek dashscope zhipu vllm ollama llamacpp`, or "
            "one that a package adds", example="openai"),
        Key("model", literal(1), "its name there", example="gpt-5.4", beside=("provider",), needed_by="provider"),
        Key("api", enum("chat", "responses"), "which of OpenAI's protocols it is asked by", default="chat",
            example="responses", beside=("provider",)),
        Key("base_url", LITERAL, "another address than the provider's", example="https://llm.internal/v1",
            beside=("provider",)),
        Key("api_key", TEXT, "a secret, by reference", example='"${{ secrets.OPENAI_API_KEY }}"',
            beside=("provider",)),
        Key("temperature", number(0), "how far it may wander", example="0.2"),
        Key("max_tokens", integer(1), "of one answer", example="2000"),
        Key("params", MAPPING, "further parameters by OpenAI's names; `extra` holds what only this provider knows",
            example="{top_p: 0.9, extra: {enable_thinking: true}}"),
        Key("quirks", shape_of("quirks"), "in what it differs from OpenAI, beyond what is known of the provider",
            example="{output: json_object}", beside=("provider",)),
        Key("context", integer(1), "how many tokens it takes", example="131072", beside=("provider",)),
        Key("timeout", either(DURATION, shape_of("model_timeout")), "of one answer",
            default="{total: 5m, idle: 1m}", example="{total: 10m, idle: 30s}"),
        Key("price", shape_of("price"), "in US dollars for a million tokens", example="{input: 0.8, output: 2}",
            beside=("provider",)),
        Key("fallback", list_of(LITERAL, 1), "other `models` that are asked where this one does not begin to answer",
            example="[small]"),
    ), exactly_one=(("use", "provider"),)),
    Shape("quirks", "`quirks` of a model", (
        Key("reasoning", enum("reasoning_content", "reasoning", "think_tags", "think_open"), "where its thinking "
            "stands: a field of the message, `<think>` in the text, or in front of the first `</think>`",
            default="by provider", example="reasoning"),
        Key("send_back", enum("never", "tool_turns"), "whether its thinking goes back to it, in conversations with "
            "calls of tools", default="by provider", example="tool_turns"),
        Key("output", enum("json_schema", "json_object", "prompt"), "how it is asked for an object: by the schema, "
            "for any object with the schema in the prompt, or by the prompt alone", default="by provider",
            example="json_object"),
        Key("strict_tools", BOOLEAN, "whether it takes `strict` with tools", default="by provider", example="true"),
        Key("tool_choice_required", BOOLEAN, "whether it can be made to call a tool", default="by provider",
            example="false"),
        Key("max_tokens", enum("max_tokens", "max_completion_tokens"), "its name for `max_tokens`",
            default="by provider", example="max_completion_tokens"),
        Key("usage", enum("last", "none"), "`none`: it does not know `stream_options`", default="last",
            example="none"),
        Key("alternate", BOOLEAN, "whether neighbours of one role are joined, for templates that want the user and the "
            "assistant in turn", default="by provider", example="true"),
    )),
    Shape("model_timeout", "`timeout` of a model", (
        Key("total", DURATION, "until the answer is complete", default="5m", example="10m"),
        Key("idle", DURATION, "of silence before it or in it", default="1m", example="30s"),
    )),
    Shape("price", "`price` of a model", (
        Key("input", number(0), "what it reads", required=True, example="0.8"),
        Key("output", number(0), "what it writes, its thinking too", required=True, example="2"),
        Key("cached", number(0), "what it had read before", default="as `input`", example="0.1"),
    )),
    Shape("tool", "A tool", (
        Key("python", LITERAL, "a module (`pkg.mod`, called as `tool.function`), a function (`pkg.mod:fn`, called as "
            "`tool`), or `registered`; the deployment says which count", example="acme.shop"),
        Key("mcp", either(literal(1), shape_of("mcp_server")), "an MCP server: its address, or how it is reached",
            example="https://erp.internal/mcp", read=ANY),
        Key("http", either(LITERAL, MAPPING), "a service that a file of OpenAPI describes: `openapi`, and `base_url`, "
            "which without it is the document's; called as `tool.operationId`",
            example="{openapi: ./shop.openapi.json, base_url: https://api.example.com}", read=ANY),
        Key("a2a", either(literal(1), shape_of("foreign_agent")), "an agent of others that speaks A2A: its address; "
            "called as `tool`", example="https://agents.example.com/planner", read=ANY),
        Key("frontend", shape_of("frontend"), "a tool of the client: the run waits for its answer",
            example="{description: Choose an account, parameters: {type: object, properties: {}}}"),
        Key("agent", shape_of("agent_tool"), "an agent that another one may give a task to",
            example="{description: Looks things up, model: small, tools: [web.search]}"),
        Key("effect", enum(*EFFECTS), "the class of what it does (see Tools); agents ask before all but `read` and "
            "`reversible`",
            default="write",
            example="read", beside=("python", "mcp", "http", "a2a", "frontend")),
        Key("allow", list_of(LITERAL, 1), "only these functions of the server", example="[search, fetch]",
            beside=("mcp", "http")),
        Key("auth", ANY, "a token, or `{bearer: ...}`, `{basic: {user, password}}`, `{header: {name, value}}`",
            example='"${{ secrets.ERP_TOKEN }}"', beside=("mcp", "http", "a2a")),
        Key("headers", map_of(TEXT, "any"), "sent with every request", example='{X-Team: "${{ secrets.TEAM }}"}',
            beside=("mcp", "http", "a2a")),
        Key("env", map_of(TEXT, "any"), "environment of a server that is started",
            example='{TOKEN: "${{ secrets.TOKEN }}"}', beside=("mcp",)),
        Key("timeout", DURATION, "of each call; without it 5m, of an agent of others 1h", example="30s",
            beside=("python", "mcp", "http", "a2a")),
        Key("big_integers", enum("text", "refuse"), BIG_INTEGERS, default="text", example="refuse",
            beside=("python", "mcp", "http")),
        Key("chat", BOOLEAN, "`false`: no question about its calls stands in a chat", default="true", example="false",
            beside=("python", "mcp", "http", "a2a")),
    ), exactly_one=(("python", "mcp", "http", "a2a", "frontend", "agent"),)),
    Shape("foreign_agent", "`a2a`", (
        Key("url", literal(1), "its address, below which its card stands (`.well-known/agent-card.json`)",
            required=True, example="https://agents.example.com/planner"),
        Key("description", LITERAL, "what it is good for, for the model that may call it", example="Plans journeys"),
    )),
    Shape("mcp_server", "`mcp`", (
        Key("use", literal(1), "the name of a server of this deployment", example="files"),
        Key("url", literal(1), "its address (streamable HTTP)", example="https://erp.internal/mcp"),
        Key("command", list_of(literal(1), 1), "the program and its arguments (stdio)",
            example="[python, -m, acme.files]"),
        Key("auth", ANY, "a token, or `{bearer: ...}`, `{basic: {user, password}}`, `{header: {name, value}}`",
            example='"${{ secrets.ERP_TOKEN }}"', beside=("url",)),
        Key("headers", map_of(TEXT, "any"), "sent with every request", example='{X-Team: "${{ secrets.TEAM }}"}',
            beside=("url",)),
        Key("env", map_of(TEXT, "any"), "all of its environment, beside PATH, HOME and the like",
            example='{TOKEN: "${{ secrets.TOKEN }}"}', beside=("command",)),
    ), exactly_one=(("use", "url", "command"),)),
    Shape("agent_tool", "An agent that another one may give a task to", (
        Key("description", LITERAL, "what it is good for, for the model that may call it", required=True,
            example="Looks things up and says where they stand"),
        Key("model", NAME, "one of `models`; without it `defaults.model`", example="small"),
        Key("system", TEXT, "the system prompt", example="You look things up."),
        Key("tools", list_of(LITERAL), "as of `agent`", required=True, example="[web.search]"),
        Key("max_turns", integer(1, 1000), "answers of its model", default="25", example="5"),
        Key("approvals", map_of(either(shape_of("approval"), enum("none")), "any"), "as of `agent`",
            example="{mail.send: {from: requester}}"),
        Key("output", SCHEMA, "its answer is an object of this schema, not text",
            example="{type: object, required: [found], properties: {found: {type: string}}}"),
        Key("hand_over", BOOLEAN, "the conversation is its own from then on: what it answers is what the agent answers "
            "that called it", default="false", example="true"),
    )),
    Shape("frontend", "A frontend tool", (
        Key("description", LITERAL, "what it does, for people and models", required=True,
            example="Ask for confirmation"),
        Key("parameters", SCHEMA, "of its arguments", required=True,
            example="{type: object, required: [action], properties: {action: {type: string}}}"),
        Key("result", SCHEMA, "of its answer; without it the answer is text", example="{type: boolean}"),
        Key("answer", enum("required", "none"), "`none`: the call is shown, nobody waits for an answer, and the "
            "step's output is null; without `result` and `deadline`", default="required", example="none"),
        Key("predict", map_of(NAME, "variable", 1), "state variables that the client may take from an argument while a "
            "call streams, until `set` says what they are", example="{document: document}"),
        DEADLINE,
    )),
    Shape("stream", "`stream` as a mapping", (
        Key("to", LITERAL, "a frontend tool with `answer: none`: its call is shown while it grows", required=True,
            example="write_document"),
        Key("argument", LITERAL, "its argument that grows by what is yielded, a text; the only one it needs",
            required=True, example="document"),
    )),
    Shape("trigger", "A trigger", (
        Key("api", shape_of("api"), "started by request; always there, unless others are listed without it",
            example="{}"),
        Key("event", shape_of("event_trigger"), "started by each event of a type",
            example='{type: order.paid, dedupe: "${{ event.id }}"}'),
        Key("schedule", shape_of("schedule_trigger"), "started by the clock",
            example='{cron: "0 6 * * 1-5", timezone: Europe/Berlin}'),
        Key("run", shape_of("run_trigger"), "started by the end of each run of another workflow",
            example="{workflow: refund, on: [failed]}"),
        Key("webhook", shape_of("webhook_trigger"), "started by requests of another system, over `POST /v1/hooks/PATH`",
            example='{path: shop/orders, secret: "${{ secrets.SHOP_HOOK }}"}'),
    ), exactly_one=(("api", "event", "schedule", "run", "webhook"),)),
    Shape("api", "`api`", (
        Key("tasks", enum("required"), "over MCP for clients with tasks alone; what it asks at once comes first",
            example="required"),
    )),
    Shape("event_trigger", "`event`", (
        Key("type", literal(1), "of the events", required=True, example="order.paid"),
        Key("match", CEL, "only events for which this is true", example="event.data.amount > 100.0"),
        Key("dedupe", TEXT, "events with the same key start one run", example='"${{ event.id }}"'),
        Key("input", ANY, "the run's input", default="the event's data", example='{order: "${{ event.data.id }}"}'),
    )),
    Shape("run_trigger", "`run`", (
        Key("workflow", WORKFLOW, "the name of the other workflow, in any version", required=True, example="refund"),
        Key("on", list_of(enum("finished", "failed", "stopped"), 1), "which ends", default="[finished]",
            example="[failed, stopped]"),
        Key("match", CEL, "only ends for which this is true", example="event.data.output.amount > 100.0"),
        Key("input", ANY, "the run's input", default="{}", example='{order: "${{ event.data.input.order }}"}'),
    )),
    Shape("webhook_trigger", "`webhook`", (
        Key("path", literal(1, PATH_CHARS_MAX), "behind `/v1/hooks/`; no other workflow may have it", required=True,
            example="shop/orders"),
        Key("secret", TEXT, "what the sender knows, by reference: `${{ secrets.NAME }}` is the server's "
            "`HAI_FLOW_SECRET_NAME`", required=True, example='"${{ secrets.SHOP_HOOK }}"'),
        Key("scheme", enum("github", "stripe", "standard", "token"),
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
        Key("missed", enum("skip", "once", "all"), "what was due while nothing ran", default="skip", example="once"),
        Key("overlap", enum("queue", "queue_one", "skip", "cancel_running"), "when the last run still goes on",
            default="skip", example="queue"),
        Key("input", ANY, "the run's input", default="{}", example="{release: v1.0.0}"),
    )),
    Shape("defaults", "`defaults`", (
        Key("retry", shape_of("retry"), "for `call http llm agent run`", example="{max: 3, backoff: exponential}"),
        Key("timeout", DURATION, "of each attempt", example="1m"),
        DEADLINE,
        Key("model", NAME, "for `llm` and `agent`", example="smart"),
        NOTIFY,
    )),
    Shape("limits", "`limits`", (
        Key("tokens", integer(1), "of all models", example="400000"),
        Key("cost_usd", number(0, above=True), "of all models", example="3"),
        Key("tool_calls", integer(1), "of all steps and agents", example="60"),
        Key("duration", DURATION, "since the start, waiting included", example="7d"),
        Key("steps", integer(1), "that are begun", example="10000"),
    )),
    Shape("concurrency", "`concurrency`", (
        Key("key", TEXT, "runs of one key count together; may use `input run thread`", required=True,
            example='"deploy-${{ input.release }}"'),
        Key("limit", integer(1), "how many at once", default="1", example="1"),
        Key("on_conflict", enum("queue", "reject", "cancel_running"), "what happens to one more", default="queue",
            example="reject"),
    )),
    Shape("step", "A step: exactly one verb, and", (
        Key("id", ID, "unique in the document; needed to refer to it", default="verb#n", example="review"),
        Key("title", TEXT, "shown to people", example="Check the order"),
        Key("if", CEL, "false: the step is skipped, and nothing inside exists", example="input.amount >= 50.0"),
        Key("with", MAPPING, "arguments, rendered once; every attempt uses the same",
            example='{order: "${{ input.order }}"}'),
        Key("approval", shape_of("approval"), "people decide over exactly these arguments before anything is sent",
            example="{from: role:support, deadline: 1d}"),
        Key("on_decision", map_of(STEPS, "id", 1), "steps for an answer other than `approve`",
            example='{revise: [{set: {feedback: "${{ steps.send.approval.reason }}"}}]}'),
        Key("on_reject", STEPS,
            "short for `on_decision: {reject: ...}`; then the rejection is raised, unless the run has returned",
            example="[{return: {refunded: 0}}]"),
        Key("idempotency_key", TEXT, "the same for every attempt", default="run.id/path", example='"${{ run.id }}"'),
        Key("delivery", enum("at_least_once", "at_most_once"),
            "`at_most_once`: never tried again, a person decides when the outcome is lost",
            default="at_least_once", example="at_most_once"),
        Key("detach", BOOLEAN, "of `run`: start it and go on; nobody waits for it, and it is not stopped with this run",
            default="false", example="true"),
        Key("stream", either(enum("text", "none"), shape_of("stream")), "what the tool yields becomes message chunks, "
            "or the argument of a call that the frontend is shown", default="none", example="text"),
        Key("await_callback", shape_of("await_callback"), "of an operation of OpenAPI, as of `http`: an argument names "
            "`callback.url`, and the step waits for a request to that address", default="none",
            example="{deadline: 2d}"),
        Key("expose", BOOLEAN, "the frontend sees arguments and result", default="false", example="true"),
        Key("join", either(enum("all", "any"), integer(1)),
            "how many branches have to finish; the others are stopped then",
            default="all", example="any", read=ANY),
        Key("retry", shape_of("retry"), "try again when an attempt fails", example="{max: 3, backoff: exponential}"),
        Key("timeout", DURATION, "working time of each attempt, or of a whole block",
            default="http 30s, call and llm 5m, agent 30m", example="2m"),
        Key("undo", shape_of("undo"), "takes the effect back when what comes after fails; sees this step's output",
            example='{call: shop.charge, with: {payment: "${{ steps.pay.output.id }}"}}'),
        Key("catch", list_of(shape_of("catch"), 1),
            "first match handles; without `errors` everything but `approval.*` and `limit.*`",
            example='[{errors: [tool.failed], steps: [{say: "Later."}]}]'),
        Key("continue_on_error", BOOLEAN, "a failure is data: the step has `failed`, and the flow goes on; not with "
            "`approval.*` and `limit.*`", default="false", example="true"),
        Key("finally", STEPS, "runs once when the step ends, whatever happened", example='[{say: "Done."}]'),
    )),
    Shape("retry", "`retry`", (
        Key("max", integer(0, 100), "retries after the first attempt", required=True, example="3"),
        Key("errors", list_of(LITERAL, 1), "only these: codes, `prefix.*` or `*`", default="what is retriable",
            example="[tool.unavailable, http.*]"),
        Key("backoff", enum("fixed", "exponential"), "`exponential` doubles the pause", default="fixed",
            example="exponential"),
        Key("every", DURATION, "the (first) pause", default="1s", example="30s"),
        Key("max_delay", DURATION, "the longest pause", default="5m", example="10m"),
        Key("jitter", BOOLEAN, "shorten each pause by chance, down to half", default="true", example="false"),
    )),
    Shape("catch", "An entry of `catch`", (
        Key("errors", list_of(LITERAL, 1), "codes, `prefix.*` or `*`",
            default="everything but `approval.*` and `limit.*`",
            example="[tool.failed, step.timeout]"),
        Key("steps", STEPS, "see `error`; the flow goes on after them", required=True,
            example='[{say: "${{ error.message }}"}]'),
    )),
    Shape("undo", "`undo`", (
        Key("call", LITERAL, "a tool", example="shop.charge"),
        Key("http", shape_of("http"), "a request", example='{delete: "https://api.example.com/orders/1"}'),
        Key("run", LITERAL, "a workflow", example="refund@2"),
        Key("with", MAPPING, "its arguments", example='{payment: "${{ steps.pay.output.id }}"}'),
        Key("retry", shape_of("retry"), "when it fails", default="{max: 5, backoff: exponential}", example="{max: 2}"),
        Key("timeout", DURATION, "of each attempt", example="1m"),
        Key("idempotency_key", TEXT, "the same for every attempt", example='"undo-${{ run.id }}"'),
    ), exactly_one=(("call", "http", "run"),)),
)}  # fmt: skip

NOTHING: Final = Shape("nothing", "An empty mapping", ())
CATALOGUE: Final = Shape("catalogue", "A catalogue of models", (
    Key("hai", enum("models/v1"), "the language", required=True, example="models/v1"),
    Key("description", LITERAL, "what it is for", example="Models of the shop."),
    Key("models", map_of(shape_of("model")), "the models, by the name that `use` gives", required=True,
        example="{smart: {provider: openai, model: gpt-5.4}}"),
))  # fmt: skip
MCP_CATALOGUE: Final = Shape("mcp_catalogue", "A catalogue of MCP servers", (
    Key("hai", enum("mcp/v1"), "the language", required=True, example="mcp/v1"),
    Key("description", LITERAL, "what it is for", example="Servers of the shop."),
    Key("servers", map_of(MAPPING), "the servers, by the name that `use` gives", required=True,
        example="{files: {command: [python, -m, acme.files]}}"),
))  # fmt: skip
MCP_OAUTH: Final = Shape("mcp_oauth", "`oauth` of a server", (
    Key("issuer", literal(1), "who gives tokens", required=True, example="https://login.example.com"),
    Key("client_id", literal(1), "as whom", required=True, example="flow"),
    Key("client_secret", TEXT, "its secret", required=True, example='"${{ secrets.ERP }}"'),
    Key("scope", literal(1), "what for", example="erp.read"),
))  # fmt: skip
MCP_ENTRY: Final = Shape("mcp_entry", "A server of the catalogue", (
    *(key for key in DOCUMENT_SHAPES["mcp_server"].keys if key.name != "use"),
    Key("oauth", MAPPING, "tokens by client credentials", beside=("url",),
        example='{issuer: https://login.example.com, client_id: flow, client_secret: "${{ secrets.ERP }}"}'),
    Key("trusted", BOOLEAN, "whether what it says of its functions counts: `readOnlyHint` makes them `read`",
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
