"""The grammar of paths: how steps, their lists and their iterations are called. Its one owner, for plans and for runs.

    checks/legal/ask         the step `ask` in the branch `legal` of `checks`
    route/1/reply            in the case 1 of a `switch` (from 0)
    wrap/inner               in a `try`
    review/~reject/tell      in the handler of a decision: `~reject`, or the name of another option
    review/~catch/0/tell     in the first `catch`; at the top of the document `~catch/0/tell`
    review/~finally/tell     in the `finally`; at the top of the document `~finally/tell`
    deploy/~undo             the step that undoes `deploy`
    rollout[]                the body of a loop, as the plan has it; `rollout[]/deploy` is a step in it
    rollout[api]/deploy      the same step in a run: the iteration's key stands between the brackets
    research[0]/model        the first answer of the model of the agent `research`
    research[0]/call[mail.send-1]/mail.send   the first call of `mail.send` in that answer

"" is the document. A *body* names one list of a step: a branch, a case, "~reject", "~catch/0", "~finally", "~undo". The
step and the body together are the path of the list, and a step's path is its list's and its own name. Keys are escaped
and hold no bracket, so the plan's path of an instance is found without looking anything up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

UNDO: Final = "~undo"
FINALLY: Final = "~finally"
REJECT: Final = "~reject"
_CATCH: Final = "~catch"
_KEYS: Final = re.compile(r"\[([^\]]*)\]")
_CALL: Final = re.compile(r"(?<=\])/call\[[^\]]*\]/[^/]*\Z")
_ESCAPES: Final = {"%": "%25", "/": "%2F", "[": "%5B", "]": "%5D"}
_ESCAPED: Final = str.maketrans(_ESCAPES)


# --- handlers -----------------------------------------------------------------------------------------------------


def catch(number: int) -> str:
    """The body of a step's n-th `catch` (from 0)."""
    return f"{_CATCH}/{number}"


def option(name: str) -> str:
    """The body of the handler of a decision."""
    return f"~{name}"


def is_handler(body: str) -> bool:
    """Whether the list handles the outcome of the step (like `catch`), rather than being part of its work."""
    return body.startswith("~")


def is_catch(body: str) -> bool:
    """Whether the list is a `catch`."""
    return body.startswith(_CATCH)


def undo_of(path: str) -> str:
    """The step that undoes the step `path`."""
    return f"{path}/{UNDO}"


def is_undo(path: str) -> bool:
    """Whether the step undoes another one."""
    return path.endswith("/" + UNDO)


def undone_by(undo: str) -> str:
    """The step that the step `undo` undoes."""
    return undo.removesuffix("/" + UNDO)


def is_in_cleanup(path: str, scope: str = "") -> bool:
    """Whether a step is in a `finally` or an `undo` inside of `scope`. These run to their end even where the steps
    around them are cut off."""
    inner = path[len(scope) :] if scope else path
    return FINALLY + "/" in inner or inner.endswith(UNDO)


def is_in_handler(path: str) -> bool:
    """Whether a step stands in any handler."""
    return "~" in path


# --- lists and places ---------------------------------------------------------------------------------------------


def inside(owner: str, rest: str) -> str:
    """The path of `rest` inside of the step `owner`: of one of its lists, or of a step of its child run."""
    return f"{owner}/{rest}" if owner else rest


def list_of(path: str) -> str:
    """The step list that `path` stands in: all of the path but its last part."""
    return path.rpartition("/")[0]


def is_inside(path: str, outer: str) -> bool:
    """Whether the step `path` stands inside the step, or the list, `outer` ("" = the document)."""
    return path != outer and (not outer or path.startswith((outer + "/", outer + "[")))


def level(path: str) -> int:
    """How many parts of the path stand before its last one."""
    return path.count("/")


def depth(path: str) -> int:
    """How many lists and iterations a step stands in. Deeper steps are cut off first."""
    return path.count("/") + path.count("[")


# --- loops --------------------------------------------------------------------------------------------------------


def escape(key: str) -> str:
    """A key as it stands in a path. An empty key is written as a lone %, which no other key becomes."""
    return key.translate(_ESCAPED) or "%"


def unescape(key: str) -> str:
    """The key that `escape` wrote."""
    if key == "%" or "%" not in key:
        return "" if key == "%" else key
    for character in "/[]%":  # the sign itself last: its replacement must not be read again
        key = key.replace(_ESCAPES[character], character)
    return key


def iteration(loop: str, key: str | int) -> str:
    """The iteration of a loop that has the (escaped) key."""
    return f"{loop}[{key}]"


def is_iteration(path: str) -> bool:
    return path.endswith("]")


def call_key(name: str, number: int) -> str:
    """The (escaped) key of the `number`-th call (from 1) of the function `name` in one answer of a model."""
    return escape(f"{name}-{number}")


def function_of_key(key: str) -> str:
    return unescape(key).rpartition("-")[0]


def answer_of_call(path: str) -> str:
    """The answer of a model in which the call that `path` performs was written (`research[0]`); "" for other steps."""
    return _CALL.sub("", path) if _CALL.search(path) else ""


def calls_around(calls: str) -> str:
    """The list of calls (`research[0]/call`) with the call that has begun the agent of the list `calls`; "" where no
    agent has called it."""
    outer = calls.rpartition("/call[")[0]
    return f"{outer}/call" if outer.endswith("]") else ""


def is_in_loop(path: str) -> bool:
    """Whether the path is that of an iteration, or of something in one."""
    return "[" in path


def loop_of(iteration: str) -> str:
    """The loop of an iteration: `rollout` of `rollout[api]`."""
    return iteration[: iteration.rindex("[")]


def key_of(iteration: str) -> str:
    """The (escaped) key of an iteration: `api` of `rollout[api]`."""
    return iteration[iteration.rindex("[") + 1 : -1]


def collect_keys(paths: Iterable[str], loop: str) -> set[str]:
    return {path[len(loop) + 1 : -1] for path in paths if path.startswith(loop + "[") and path[-1] == "]"}


def iter_iterations_around(path: str) -> Iterator[str]:
    """The iterations that a step stands in, the innermost first. An iteration stands in itself."""
    while "]" in path:
        path = path[: path.rindex("]") + 1]
        yield path
        path = loop_of(path)


def find_iteration_around(path: str) -> str | None:
    """The innermost iteration that a step stands in; of an iteration, the one around its loop. None at the top."""
    if path.endswith("]"):
        path = loop_of(path)
    end = path.rfind("]")
    return None if end < 0 else path[: end + 1]


# --- plans and runs -----------------------------------------------------------------------------------------------


def plan_path(path: str) -> str:
    """The path in the plan of a step that stands at `path` in a run."""
    return _KEYS.sub("[]", path) if "[" in path else path


@lru_cache(maxsize=1024)
def keys_of(path: str) -> tuple[str, ...]:
    """The keys of the iterations that `path` stands in, outermost first."""
    return tuple(_KEYS.findall(path))


def with_keys(path: str, keys: Iterable[str]) -> str:
    """A path of the plan with the keys of a run's iterations between its brackets, as far as they go."""
    for key in keys:
        path = path.replace("[]", f"[{key}]", 1)
    return path


def with_keys_or_none(path: str | None, keys: tuple[str, ...]) -> str | None:
    """As `with_keys`, for a path that may be None."""
    return path if path is None or "[]" not in path else with_keys(path, keys)


def find_instance(path: str, reader: str, latest: Callable[[str], str]) -> str:
    """The instance of the plan's step `path` that is meant by a step at `reader`: in the same iterations, as far as
    both stand in the same loops; in those that `latest` names (loop -> key) of others."""
    if "[" not in path:
        return path
    own = keys_of(reader)
    parts = path.split("[]")
    place, shared = parts[0], True
    for number, part in enumerate(parts[1:]):
        shared = shared and number < len(own) and reader.startswith(f"{place}[{own[number]}]")
        place += f"[{own[number] if shared else latest(place)}]{part}"
    return place


def rename_path(path: str, paths: Mapping[str, str]) -> str:
    """The path of a step, or of a list, by the renaming of the longest part of the plan's path that has one.

    A renaming keeps the loops around a step, so the keys of the iterations stay in their order."""
    original = plan_path(path)
    part = original
    while part and part not in paths:
        part = part[: max(part.rfind("/"), part.rfind("["), 0)]
    return with_keys(paths[part] + original[len(part) :], keys_of(path)) if part else path
