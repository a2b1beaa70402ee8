"""The names that begin a path into the data, the types, as JSON Schemas, of what every run has, and the words that
these schemas have beside those of JSON Schema (docs/language.md#names)."""

from __future__ import annotations

from typing import Final

from hai_flow.values import Json

ALWAYS: Final = frozenset(("input", "state", "steps", "run", "thread", "now"))
# Roots of which a path means the same wherever it may be named.
EVERYWHERE_ALIKE: Final = frozenset(("input", "state", "run", "thread"))
# Roots that exist in some places only, with the sentence for everywhere else.
ELSEWHERE: Final[dict[str, str]] = {
    "error": "`error` exists only in `catch` steps and in the reject handler",
    "item": "`item` exists only inside a `for_each`",
    "index": "`index` exists only inside a loop",
    "args": "`args` exists only in the keys of `approval`",
    "response": "`response` exists only in `http.expect` and in `expect` of `still`",
    "event": "`event` exists only in `wait_for.match` and in triggers",
    "secrets": "`secrets` can be named only in the settings of tools and models, "
    "in `auth` and `headers` of `http`, and as a webhook's `secret`",
}
# No loop variable but `item` may have one of these names; outside of their places they keep their own sentence.
ROOTS: Final = ALWAYS | frozenset(ELSEWHERE)

STATUS: Final[dict[str, Json]] = {
    "type": "string",
    "enum": ["pending", "running", "waiting", "finished", "skipped", "failed", "stopped", "undone"],
}


def record(**properties: Json) -> dict[str, Json]:
    """The JSON Schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


NULL: Final[dict[str, Json]] = {"type": "null"}
REMEDY: Final = "x-remedy"
"""In the schema of a value that is always null: the remedy, as a clause."""

FIXED: Final[dict[str, Json]] = {
    "run": record(
        id={},
        workflow={},
        version={},
        started_at={},
        requester={},
        trigger={},
        scheduled_at={"type": ["string", "null"]},
    ),
    "thread": record(id={}, message={}, content={}),
    "error": {
        **record(code={}, message={}, path={}, attempt={}, at={"type": "string"}, retriable={}, data={}, cause={}),
        "required": ["code", "message", "path", "attempt", "at", "retriable"],
    },
    "response": record(
        status={"type": "integer"}, headers={}, json={}, text={"type": "string"}, url={"type": "string"}
    ),
    "event": record(id={}, type={"type": "string"}, data={}, at={}),
    "index": {"type": "integer"},
}
# `event` of a webhook.
REQUEST: Final[Json] = record(
    id={"type": "string"}, type={"type": "string"}, data={}, at={}, headers={"additionalProperties": {"type": "string"}}
)

# `event` of a schedule.
INSTANT: Final[Json] = record(at={"type": "string"})

# `usage` of a step that asks a model.
USAGE: Final[dict[str, Json]] = record(
    **{name: {"type": "integer"} for name in ("calls", "input_tokens", "output_tokens", "cached_tokens")},
    reasoning_tokens={"type": "integer"},
    cost_usd={"type": ["number", "null"]},
)
PARTS: Final[dict[str, Json]] = {"type": "array", "items": {"type": "object"}}
ENVELOPE: Final[dict[str, Json]] = record(
    decision={}, reason={"type": ["string", "null"]}, values={}, edits={"type": ["object", "null"]}, votes={},
    expired={}, escalations={},
)  # fmt: skip

FILLED: Final = "x-filled"
"""In the schema of a form's property: a hole gives its default when the form is opened."""

NULL_INSTEAD: Final = "x-null-instead"
"""In the schema of an output: null stands for it where no event came."""

NULL_UNLESS: Final = "x-null-unless"
"""In the schema of a member that may be null: the condition over the members beside it that shows that it is not."""

GIVEN: Final = "x-given"
"""In the schema of what may be null: it is there wherever it is read after an ordinary answer."""

INFERRED: Final = "x-inferred"
"""In the schema of a name that a `let` or a loop gives: what is known of its value by the expression that gives it. It
judges other expressions and never binds a value: numbers of such names are doubles."""

SOURCE: Final = "x-source"
"""In the schema of a name that a `let` gives to a truth, a number or a filtered list: the expression, if what it reads
never changes."""

FILTERED: Final = "x-filtered"
"""In the schema of a list that an expression gives: of another list it has some of the items, or none."""
