"""`http`: one request, and the callback that it may wait for after its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from hai_flow.definition import plan
from hai_flow.definition.fields import Record, is_hole, texts
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import record
from hai_flow.definition.names.secret_names import CallbackBearing, SecretBearing
from hai_flow.definition.names.wording import kind_of
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.tools.auth import check_auth
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import BIG_INTEGERS, DEADLINE, DECIDED_KEYS, EFFECT_KEYS
from hai_flow.definition.yaml.keys import ANY, CEL, DURATION, SCHEMA, TEXT, Key, Shape, enum, integer, shape_of
from hai_flow.values import Json

HTTP: Final = Shape("http", "`http`", (
    *(Key(method, TEXT, f"the address of a {method.upper()} request", example='"https://api.example.com/orders"')
      for method in ("get", "post", "put", "patch", "delete", "head")),
    Key("query", ANY, "parameters of the address", example='{page: 1}'),
    Key("headers", ANY, "headers", example='{Authorization: "Bearer ${{ secrets.API_TOKEN }}"}'),
    Key("auth", ANY, "a token, or `{bearer: ...}`, `{basic: {user, password}}`, `{header: {name, value}}`",
        example='"${{ secrets.API_TOKEN }}"'),
    Key("body", ANY, "sent as JSON", example='{order: "${{ input.order }}"}'),
    Key("form", ANY, "sent as a form", example="{grant_type: client_credentials}"),
    Key("text", ANY, "sent as text", example="ping"),
    Key("multipart", ANY,
        "sent as a form with files: text by name, or `{filename, content, type}`, the content text; a list of those is "
        "several files",
        example='{note: hello, file: {filename: a.csv, content: "a,b"}}'),
    Key("expect", CEL, "condition for success, over `response`", default="any 2xx", example="response.status == 200"),
    Key("next", TEXT, "address of the next page, over `response`; null or empty after the last page. `json` of the "
        "output is then the list of all pages", example='"${{ response.json.next }}"'),
    Key("await_callback", shape_of("await_callback"), "the service answers again later: the step waits for a request "
        "to `callback.url`, an address of this server for one use", example="{deadline: 2d}"),
    Key("stream", enum("text", "none"), "stream the body of a 2xx response as a message: text as it is, "
        "`text/event-stream` by events; other types are read whole", default="none", example="text"),
    Key("piece", TEXT, "with `stream`: text of an event, over `event`: `{type, data, json, id}`; null or empty for "
        "none", default="its data", example='"${{ event.json.?text.orValue(null) }}"'),
    Key("idle", DURATION, "with `stream`: longest silence", default="1m", example="10s"),
    Key("pages", integer(1, 1000), "maximum number of pages", default="100", example="10"),
    Key("big_integers", enum("text", "refuse"), BIG_INTEGERS, default="text", example="refuse"),
), exactly_one=(("get", "post", "put", "patch", "delete", "head"),),
    at_most_one=(("body", "form", "text", "multipart"),))  # fmt: skip
AWAIT_CALLBACK: Final = Shape("await_callback", "`await_callback`", (
    DEADLINE,
    Key("schema", SCHEMA, "schema of the body; any other body is refused, and the step goes on waiting", default="any",
        example="{type: object, required: [paid]}"),
))  # fmt: skip
(METHODS,) = HTTP.exactly_one
(_BODIES,) = HTTP.at_most_one
SENT: Final = ("query", "headers", "auth", *_BODIES)  # what people see of a request, beside its method and its URL

_SCHEME: Final = re.compile(r"(?i)(https?|\$\{\{.*\}\}):?//")
_HOST: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?(/|$)")


def _http(context: StepContext, draft: StepDraft, names: Names) -> plan.Http | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(HTTP, value, at, "`http`")
    methods = [method for method in METHODS if method in value]
    if len(methods) != 1:
        _report_method(context, value, methods, at)
    bodies = [key for key in _BODIES if key in fields]
    if len(bodies) > 1:
        actual = " and ".join(f"`{key}`" for key in bodies)
        message = f"expected at most one of `body`, `form`, `text`, `multipart` in `http`, found {actual}; remove one"
        context.reader.error((*at, bodies[1]), "http.bodies", message, key=True)
    url = context.text(fields, methods[0], at, names) if methods else None
    if methods and isinstance(fields.get(methods[0]), str):
        _check_url(context, fields[methods[0]], (*at, methods[0]))
    for key in ("query", "headers", "form", "multipart"):
        part = fields.get(key)
        is_open = isinstance(part, str) and is_hole(part)  # the value of the hole decides
        if part is not None and not is_open and not isinstance(part, Mapping):
            message = f"`{key}`: expected a mapping of names to values, found {kind_of(part)}"
            context.reader.error((*at, key), "http.mapping", message)
    awaits = "await_callback" in fields
    body_names = names.with_roots("callback") if awaits else names
    parts: list[tuple[str, plan.Template]] = []
    for key in SENT:
        if key in fields:
            if key in ("headers", "auth"):
                given_secrets = SecretBearing(
                    context.template(fields[key], (*at, key), body_names.with_roots("secrets"))
                )
                parts.append((key, CallbackBearing(given_secrets) if awaits else given_secrets))
            else:
                template = context.template(fields[key], (*at, key), body_names)
                parts.append((key, CallbackBearing(template) if awaits else template))
    if "auth" in fields:
        check_auth(context.reader, fields["auth"], (*at, "auth"))
    expect = None
    if "expect" in fields:
        expect = context.condition(fields["expect"], (*at, "expect"), names.with_roots("response"))
    following = None
    if "next" in fields:
        following = context.template(fields["next"], (*at, "next"), names.with_roots("response"))
    if url is None or len(methods) != 1:
        return None
    method = context.literal(methods[0].upper())
    callback = _callback(context, draft, fields["await_callback"], names, parts) if awaits else None
    arguments = Record((("method", method), ("url", url), *parts))
    streamed = _stream_body(context, fields, at, names)
    return plan.Http(
        arguments, expect, following, fields.get("pages", 100), callback, streamed, fields.get("big_integers", "text")
    )


_LITERAL_HOLE: Final = re.compile(r"""\$\{\{\s*(["'])([^"'\\]*)\1\s*\}\}""")


def _check_url(context: StepContext, url: str, at: Path) -> None:
    """Report a URL without a host: there is none that it could be relative to. What a hole gives is not known, unless
    it is a literal."""
    url = _LITERAL_HOLE.sub(lambda hole: hole[2], url)
    if not _SCHEME.match(url) and not url.lstrip().startswith("${{"):
        hint = f"; write https://{url}" if _HOST.match(url) else "; write the whole address, such as https://host/path"
        context.reader.error(at, "http.url", f"expected a URL that begins with https:// or http://{hint}")
    elif "${{" not in url and (fault := _find_url_fault(url)):
        context.reader.refuse(at, "http.url", f"expected a URL such as https://host:8080/path; {fault}")


def _find_url_fault(url: str) -> str | None:
    """Why no request can be sent to a URL without holes; None: one can."""
    try:
        parts = urlsplit(url)
        number = parts.port
    except ValueError as error:
        return str(error)[:1].lower() + str(error)[1:]
    if not parts.hostname or re.search(r"\s", parts.hostname):
        return "its host has a space" if parts.hostname else "it has no host"
    return "port 0 is none" if number == 0 else None


def _stream_body(context: StepContext, fields: Mapping[str, Json], at: Path, names: Names) -> plan.StreamedBody | None:
    streams = fields.get("stream") == "text"
    for key in ("piece", "idle"):
        if key in fields and not streams:
            message = f"`{key}` says how the body streams; add `stream: text`"
            context.reader.error((*at, key), "http.stream", message, key=True)
    if streams and "next" in fields:
        message = "`next` asks for one page after the other; a body that streams is one"
        context.reader.error((*at, "next"), "http.stream", message, key=True)
    piece_names = names.with_roots(schemas={"event": _EVENT})
    piece = context.template(fields["piece"], (*at, "piece"), piece_names) if "piece" in fields else None
    idle = context.duration(fields, "idle", at, None)
    if not streams:
        return None
    return plan.StreamedBody(piece, idle if isinstance(idle, int) else plan.StreamedBody().idle)


def compile_callback_terms(
    context: StepContext, fields: Mapping[str, Json], at: Path, names: Names, sent: Json, hint: str = ""
) -> tuple[plan.Duration, plan.Schema | None]:
    """The deadline and the schema of `await_callback`, whose keys are `fields`. `sent` is the request as the document
    has it; some part of it has to hold the address of the callback. `hint` suggests a part, for the finding."""
    deadline = context.duration(fields, "deadline", at, names) or context.declared.default_wait
    schema = context.schema(fields["schema"], (*at, "schema")) if "schema" in fields else None
    if not any("callback" in text for _, text in texts(sent, ())):
        message = "no part of the request names `${{ callback.url }}`: the service would not know where to call back"
        context.reader.error(at, "http.callback", message + hint, key=True)
    return deadline, schema


def _callback(
    context: StepContext, draft: StepDraft, given: Json, names: Names, parts: Sequence[tuple[str, plan.Template]]
) -> plan.Callback:
    at = (*draft.value_at, "await_callback")
    fields = context.reader.fields(AWAIT_CALLBACK, given, at, "`await_callback`")
    callback = plan.Callback(*compile_callback_terms(context, fields, at, names, [part.written for _, part in parts]))
    if "next" in draft.value:
        message = "`next` asks for one page after the other; a step that waits for a callback sends one request"
        context.reader.error((*draft.value_at, "next"), "http.callback", message, key=True)
    return callback


_EVENT: Final = record(type={"type": "string"}, data={"type": "string"}, json={}, id={"type": "string"})
_OUTPUT: Final[dict[str, Json]] = {
    "status": {"type": "integer"}, "headers": {}, "json": {}, "text": {"type": "string"}, "url": {"type": "string"},
}  # fmt: skip


def _gives(context: StepContext, draft: StepDraft) -> Json:
    request = draft.fields.get("http")
    if isinstance(request, Mapping) and "await_callback" in request:
        return record(**_OUTPUT, callback={})
    return record(**_OUTPUT)


def _report_method(context: StepContext, value: Mapping[str, Json], given: list[str], at: Path) -> None:
    listed = ", ".join(f"`{method}`" for method in METHODS)
    if given:
        actual = " and ".join(f"`{method}`" for method in given)
        message = f"expected one of {listed} in `http`, found {actual}; make it {len(given)} steps"
        context.reader.error((*at, given[1]), "http.method", message, key=True)
    elif all(key in HTTP.words for key in value):
        message = f"expected one of {listed} in `http`, found none; write `get: https://...`"
        context.reader.error(at, "http.method", message, key=True)


VERBS: Final = (
    VerbRules(
        "http",
        type=shape_of("http"),
        does="one HTTP request",
        keys=("approval", *DECIDED_KEYS, "idempotency_key", "delivery", *EFFECT_KEYS),
        output="`{status, headers, json, text, url}`, and `callback` with `await_callback`",
        fails="`http.*`",
        example='{get: "https://api.example.com/orders/1"}',
        compile=_http,
        kind="effect",
        shapes=(HTTP, AWAIT_CALLBACK),
        timeout=30_000,
        gives=_gives,
        aka=("request",),
    ),
)
