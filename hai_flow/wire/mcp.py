"""Runs as MCP shows them: the result of a call, a task, and the forms of questions. Pure (docs/protocols/mcp.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hai_flow import values
from hai_flow.definition.personal.pii_flow import declares
from hai_flow.definition.plan import ApiTrigger, Emit, Http, Plan, Return, Run
from hai_flow.definition.schemas.schemas import PII
from hai_flow.definition.tools.effect_classes import Effect, gravest
from hai_flow.engine.events import PendingOpened
from hai_flow.engine.state.state import MessageState, PendingState, RunState
from hai_flow.primitives import instants
from hai_flow.primitives.invisible_characters import reveal
from hai_flow.values import Json

TASKS: Final = "io.modelcontextprotocol/tasks"
UI: Final = "io.modelcontextprotocol/ui"
IDEMPOTENCY_KEY: Final = "hai-flow/idempotencyKey"
WORKFLOW: Final = "hai-flow/workflow"

INTERNAL_ERROR: Final = -32603

TEXT_BYTES_MAX: Final = 32 * 1024
"""Of a result; the whole of a longer one is the resource that the result links to."""
BLOCKS_BYTES_MAX: Final = 1024 * 1024
"""Of an output that is a list of images and other content, which nobody can read in parts."""
DESCRIPTION_CHARS_MAX: Final = 2000
_CONTENT: Final = {
    "text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType"), "resource": ("resource",),
}  # fmt: skip
_POLLS: Final = (  # until that age (ms): so often (ms)
    (10_000, 1_000), (60_000, 5_000), (600_000, 30_000), (3_600_000, 60_000),
)  # fmt: skip
_POLL_MAX: Final = 300_000

RESULT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["run_id", "status"],
    "properties": {
        "run_id": {"type": "string"},
        "status": {"type": "string", "description": "finished, failed and stopped are ends"},
        "output": {"description": "of a finished run"},
        "error": {"type": "object", "description": "of a failed run"},
        "waits_for": {"type": "string", "description": "whom or what the run waits for, for people to read"},
        "questions": {"type": "array", "items": {"type": "object"}, "description": "the open ones"},
        "url": {"type": "string", "description": "the page on which people see and decide it"},
        "truncated": {"type": "boolean", "description": "the output is too large: read the linked resource"},
    },
}
"""The schema of every result that shows a run."""


class Question(NamedTuple):
    """An open question. `mine`: the caller may answer it. `url`: its page, which asks its reader to sign in."""

    pending: PendingState
    mine: bool
    url: str


class RunView(NamedTuple):
    """A run as a caller sees it. `url`: its page. `questions`: the open ones, of the runs below it, too."""

    state: RunState
    questions: Sequence[Question]
    url: str
    now: int

    @property
    def is_over(self) -> bool:
        return self.state.ended

    @property
    def asks_caller(self) -> bool:
        return any(each.mine for each in self.questions)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing happens before somebody does something."""
        return self.is_over or bool(self.questions) or self.state.status in ("paused", "needs_attention")


# --- tools ------------------------------------------------------------------------------------------------------------


def tool_of(plan: Plan, name: str) -> dict[str, Any]:
    """A workflow as a tool. Its texts are those of the published version, with hidden signs shown as codes."""
    effect = _gravest_effect(plan)
    description = plan.description or plan.title or f"Runs the workflow {plan.name}."
    return {
        "name": name,
        "title": reveal(plan.title or plan.name)[:200],
        "description": reveal(description)[:DESCRIPTION_CHARS_MAX],
        "inputSchema": {"type": "object", **(_strip_own(raw) if isinstance(raw := plan.input.raw, Mapping) else {})},
        "outputSchema": describe_result(plan),
        "annotations": {
            "readOnlyHint": effect == "read",
            "destructiveHint": effect in ("write", "irreversible"),
            "idempotentHint": False,
            "openWorldHint": effect not in ("read", "reversible"),
        },
        "_meta": {WORKFLOW: reference_of(plan)},
        **({"execution": {"taskSupport": "required"}} if needs_tasks(plan) else {}),
    }


def describe_result(plan: Plan) -> dict[str, Any]:
    """The schema of the results of a workflow, with the members of its output. A `return` gives another one, and in
    the place of what is personal a mask may stand: then nothing is said of it."""
    members = None if plan.output is None else plan.output.written
    returns = any(isinstance(step.verb, Return) for step in plan.steps.values())
    if returns or declares(plan) or not isinstance(members, Mapping):
        return RESULT_SCHEMA
    output = {
        "type": "object", "required": list(members), "properties": {name: {} for name in members},
        "description": "of a finished run",
    }  # fmt: skip
    return {**RESULT_SCHEMA, "properties": {**RESULT_SCHEMA["properties"], "output": output}}


def build_prompt(plan: Plan, name: str) -> dict[str, Any]:
    """A workflow as a prompt, with which a person asks for a run: its arguments are the fields of the input."""
    schema = plan.input.raw if isinstance(plan.input.raw, Mapping) else {}
    properties = schema.get("properties")
    required = schema.get("required") or ()
    arguments = [
        {"name": field, "description": reveal(_described(each))[:500], "required": field in required}
        for field, each in (properties.items() if isinstance(properties, Mapping) else ())
    ]
    tool = tool_of(plan, name)
    return {"name": name, "title": tool["title"], "description": tool["description"], "arguments": arguments}


def _described(schema: Json) -> str:
    text = (schema.get("description") or schema.get("title")) if isinstance(schema, Mapping) else None
    return text if isinstance(text, str) else ""


def asking_for(tool: Mapping[str, Any], arguments: Mapping[str, str]) -> list[dict[str, Any]]:
    """The messages of a workflow's prompt: to call its tool with what the person has given, and its form."""
    fields = "\n".join(f"- {name}: {reveal(value)}" for name, value in arguments.items())
    text = (
        f"Start the workflow `{tool['name']}` ({tool['title']}): call the tool of this name once. "
        + (f"I have given:\n{fields}\n" if fields else "")
        + "Ask me for what its form needs besides. Tell me the output, or whom it waits for and the page."
    )
    form = {"uri": f"hai://workflows/{tool['name']}", "mimeType": "application/json", "text": form_of(tool)}
    return [
        {"role": "user", "content": {"type": "text", "text": text}},
        {"role": "user", "content": {"type": "resource", "resource": form}},
    ]


def form_of(tool: Mapping[str, Any]) -> str:
    """A workflow for whoever wants to start it, as JSON."""
    form = {name: tool[name] for name in ("name", "title", "description", "inputSchema")}
    return values.dumps({**form, "workflow": tool["_meta"][WORKFLOW]}).decode()


def reference_of(plan: Plan) -> str:
    """The very version, as a start may name it."""
    return f"{plan.name}@{plan.version}+{plan.sha256.hex()[:8]}"


def needs_tasks(plan: Plan) -> bool:
    """Whether only clients with tasks may start the workflow (`api: {tasks: required}`)."""
    return any(isinstance(each, ApiTrigger) and each.needs_tasks for each in plan.triggers)


def _gravest_effect(plan: Plan) -> Effect:
    """The class of the gravest effect that a run of the workflow may have. A tool that does not say its class, an event
    or a run below is a `write`."""
    effects: list[Effect] = [getattr(tool, "effect", None) or "write" for tool in plan.tools.values()]
    if any(isinstance(step.verb, Emit | Http | Run) for step in plan.steps.values()):
        effects.append("write")
    return gravest(effects)


def _strip_own(schema: Json) -> Any:
    """The schema without our own keyword."""
    if isinstance(schema, Mapping):
        return {name: _strip_own(each) for name, each in schema.items() if name != PII or not isinstance(each, bool)}
    is_list = isinstance(schema, Sequence) and not isinstance(schema, str)
    return [_strip_own(each) for each in schema] if is_list else schema


# --- results ----------------------------------------------------------------------------------------------------------


def result_of(shown: RunView) -> dict[str, Any]:
    """The result of a call that shows the run as it is."""
    state = shown.state
    content: dict[str, Any] = {"run_id": state.run_id, "status": state.status}
    blocks: list[dict[str, Any]] | None = None
    if state.status == "finished":
        text, content["output"] = values.to_text(state.output), state.output
        blocks = content_of(state.output)
    elif state.status == "failed":
        error = state.error
        content["error"] = {"code": "failed"} if error is None else {"code": error.code, "message": error.message}
        text = f"The run failed: {content['error'].get('message') or content['error']['code']}"
    elif state.status == "stopped":
        text = "The run was stopped."
    else:
        text = content["waits_for"] = describe_run(shown)
        content["questions"] = [build_question_value(each) for each in shown.questions]
        content["url"] = shown.url
        text = f"{text}\nRun {state.run_id}, {shown.url}"
    if blocks is not None and len(values.dumps(content)) <= BLOCKS_BYTES_MAX:
        return {"content": blocks, "structuredContent": content, "isError": False}
    blocks = [{"type": "text", "text": text}]
    if len(text.encode(errors="replace")) > TEXT_BYTES_MAX or len(values.dumps(content)) > 2 * TEXT_BYTES_MAX:
        cut = text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")
        blocks = [{"type": "text", "text": cut}, _link(state.run_id)]
        content = {"run_id": state.run_id, "status": state.status, "truncated": True}
    return {"content": blocks, "structuredContent": content, "isError": state.status == "failed"}


def content_of(output: Json) -> list[dict[str, Any]] | None:
    """The output of a workflow as content of MCP, where it is a list of such content: texts, images, sounds, embedded
    resources. None: it is something else."""
    if not isinstance(output, Sequence) or isinstance(output, str) or not output:
        return None
    return values.loads(values.dumps(output)) if all(map(_is_content, output)) else None


def _is_content(block: Json) -> bool:
    if not isinstance(block, Mapping):
        return False
    required = _CONTENT.get(str(block.get("type")))
    if required is None or block.keys() != {"type", *required}:
        return False
    resource = block.get("resource")
    if resource is None:
        return all(isinstance(block[each], str) for each in required)
    is_text = isinstance(resource, Mapping) and resource.keys() <= {"uri", "mimeType", "text"} and "text" in resource
    return is_text and "uri" in resource and all(isinstance(each, str) for each in resource.values())


def _link(run_id: str) -> dict[str, Any]:
    uri, name = f"hai://runs/{run_id}/output", f"the output of run {run_id}"
    return {"type": "resource_link", "uri": uri, "name": name, "mimeType": "application/json"}


def describe_run(shown: RunView) -> str:
    """What a run that is not over is doing, or waits for, in one sentence."""
    state = shown.state
    mine = [each for each in shown.questions if each.mine]
    others = [each for each in shown.questions if not each.mine]
    if mine:
        return f"Waits for your answer: {_heading(mine[0])}"
    if others:
        opened = others[0].pending.opened
        until = "" if opened.deadline is None else f" until {instants.rfc3339(opened.deadline)}"
        return f"Waits for {reveal(_people(opened))}{until}: {_heading(others[0])}"
    return {
        "queued": "Waits for its turn.",
        "paused": "Is paused; somebody has to resume it.",
        "needs_attention": "Needs attention: somebody has to retry or skip a step.",
        "waiting": "Waits for a time or an event.",
    }.get(state.status, "Works.")


def _heading(question: Question) -> str:
    opened = question.pending.opened
    return reveal(opened.heading or opened.message or f"the question {opened.id}")[:500]


def _people(opened: PendingOpened) -> str:
    policy = opened.policy if isinstance(opened.policy, Mapping) else {}
    selectors = [each for each in policy.get("from") or () if isinstance(each, str)]
    return ", ".join(selectors) if selectors else "others"


def build_question_value(question: Question) -> dict[str, Any]:
    """An open question for a client: what is asked, and whether the caller may answer."""
    opened = question.pending.opened
    view: dict[str, Any] = {
        "id": opened.id,
        "kind": opened.kind,
        "title": opened.heading,
        "message": opened.message,
        "may_answer": question.mine,
        "url": question.url,
        "options": list(opened.options),
        "deadline": None if opened.deadline is None else instants.rfc3339(opened.deadline),
    }
    if question.mine:
        view |= {
            "form": opened.schema,
            "tool": opened.tool,
            "effect": opened.effect,
            "arguments": None if opened.args is None else values.loads(opened.args),
            "evidence": None if opened.evidence is None else values.loads(opened.evidence),
            "digest": opened.digest,
        }
    return {name: value for name, value in view.items() if value not in (None, [])}


# --- tasks ------------------------------------------------------------------------------------------------------------


def build_detailed_task(shown: RunView, *, forms: bool, urls: bool) -> dict[str, Any]:
    """The run as `tasks/get` shows it: with what it asks the caller, or its result."""
    state = shown.state
    task: dict[str, Any] = {
        "taskId": state.run_id,
        "status": "cancelled" if state.status == "stopped" else "working",
        "createdAt": instants.rfc3339(state.started_at),
        "lastUpdatedAt": instants.rfc3339(state.at),
        "ttlMs": None,
        "pollIntervalMs": poll_interval(shown.now - state.at),
    }
    if (fault := fault_of(shown)) is not None:
        task |= {"status": "failed", "error": fault}
    elif state.status in ("finished", "failed"):
        task |= {"status": "completed", "result": {"resultType": "complete", **result_of(shown)}}
    elif not shown.is_over:
        task["statusMessage"] = describe_run(shown)
        if requests := build_requests(shown, forms=forms, urls=urls):
            task |= {"status": "input_required", "inputRequests": requests}
    return task


def fault_of(shown: RunView) -> dict[str, Any] | None:
    """The error of JSON-RPC that a run has ended with: a fault of the workflow itself, such as an expression without a
    value. None: it has not failed, or by what its tools or its author said, which is a result for the model."""
    error = shown.state.error
    if shown.state.status != "failed" or error is None or not error.code.startswith("expression."):
        return None
    return {"code": INTERNAL_ERROR, "message": error.message, "data": {"code": error.code, "path": error.path}}


def poll_interval(age: int) -> int:
    """How long to wait before the next look at a run in which nothing has happened for `age` (both ms)."""
    return next((pause for until, pause in _POLLS if age < until), _POLL_MAX)


def read_texts(state: RunState) -> list[MessageState]:
    """The texts that the run has said, which are whole."""
    messages = (each for each in state.messages.values() if each.role == "assistant" and each.kind == "text")
    return sorted((each for each in messages if not each.open), key=lambda each: each.n)


# --- questions as elicitations ----------------------------------------------------------------------------------------


def build_requests(
    shown: RunView, *, forms: bool, urls: bool, faults: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """The open questions that the caller may answer, as elicitations by their ids. `forms`, `urls`: the modes that the
    client can show. `faults`: what was wrong with the answer before, by question."""
    requests: dict[str, dict[str, Any]] = {}
    for question in shown.questions:
        request = _request(question, forms=forms, urls=urls) if question.mine else None
        if request is not None:
            opened = question.pending.opened
            if fault := (faults or {}).get(opened.id):
                request["message"] = f"{fault}\n{request['message']}"
            requests[opened.id] = {"method": "elicitation/create", "params": request}
    return requests


def make_short_names(questions: Iterable[PendingOpened]) -> dict[str, str]:
    """A name for the id of each question, for one round of a call: the step that asks, where only one does."""
    steps = {each.id: each.path.rpartition("/")[2].partition("[")[0] for each in questions}
    names = list(steps.values())
    return {id: name if names.count(name) == 1 else id for id, name in steps.items()}


def _request(question: Question, *, forms: bool, urls: bool) -> dict[str, Any] | None:
    opened = question.pending.opened
    message = reveal("\n".join(filter(None, (opened.heading, opened.message))) or "An answer is needed.")
    asks_values = forms and opened.kind == "ask" and isinstance(opened.schema, Mapping)
    form = flat_schema(opened.schema) if asks_values else None
    if form is not None:
        return {"mode": "form", "message": message, "requestedSchema": form}
    if urls:
        return {"mode": "url", "message": message, "url": question.url, "elicitationId": opened.id}
    return None


_KEPT: Final = {
    "string": ("title", "description", "default", "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "number": ("title", "description", "default", "minimum", "maximum"),
    "integer": ("title", "description", "default", "minimum", "maximum"),
    "boolean": ("title", "description", "default"),
}
_FORMATS: Final = ("email", "uri", "date", "date-time")


def flat_schema(schema: Mapping[str, Json], only: Sequence[str] | None = None) -> dict[str, Any] | None:
    """The schema of an object (of its fields `only`) as a form of MCP, which is flat. None: a field is none that a form
    can hold: a richer one, or a personal value, which no form of a client may carry."""
    fields = schema.get("properties")
    if not isinstance(fields, Mapping):
        return None
    properties: dict[str, Any] = {}
    for name, each in fields.items():
        if only is not None and name not in only:
            continue
        field = _field(each)
        if field is None:
            return None
        properties[name] = field
    required = [each for each in schema.get("required") or () if each in properties]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _field(schema: Json) -> dict[str, Any] | None:
    if not isinstance(schema, Mapping) or schema.get("pii"):
        return None
    kind = schema.get("type", "string" if "enum" in schema or "oneOf" in schema else None)
    if kind == "array":
        items = _choices(schema.get("items"))
        if items is None:
            return None
        common = {
            key: schema[key] for key in ("title", "description", "minItems", "maxItems", "default") if key in schema
        }
        return {"type": "array", **common, "items": items}
    if not isinstance(kind, str) or kind not in _KEPT:
        return None
    if not all(isinstance(each, str) for each in schema.get("enum") or ()):
        return None
    field = {"type": kind, **{key: schema[key] for key in _KEPT[kind] if key in schema}}
    if field.get("format") not in (None, *_FORMATS):
        del field["format"]
    return field


def _choices(items: Json) -> dict[str, Any] | None:
    """The items of a list of texts that are chosen from a few, with or without titles."""
    if not isinstance(items, Mapping):
        return None
    choices = items.get("anyOf")
    if isinstance(choices, Sequence):
        titled = all(isinstance(each, Mapping) and each.keys() == {"const", "title"} for each in choices)
        return {"anyOf": values.loads(values.dumps(choices))} if titled else None
    texts = items.get("enum")
    if not isinstance(texts, Sequence) or not all(isinstance(each, str) for each in texts):
        return None
    return {"type": "string", "enum": list(texts)}
