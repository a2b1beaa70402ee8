"""Calls that a model has written into its text: its server has no parser for the form in which the model writes them,
or has missed this one. None is performed, as a text may quote a call; but such a text is no answer either. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Final

from hai_flow.values import Json

_MARK: Final = re.compile(
    r"<[|｜]?(?:\w{1,12}[:_]|DSML[|｜])?(?:tool|function)s?[_▁]?(?:calls?|use|prefix)(?:[_▁][^\W_]{1,20}){0,4}[|｜]?>"
    r"|<function=|<(?:[|｜]DSML[|｜])?invoke\s|\[(?:TOOL_CALLS?|TOOL_REQUEST)\]"
    r"|<\|(?:python_tag|action_start|START_ACTION)\|>|<start_function_call>|\bfunctools(?=\[)"
    r"|```tool_(?:code|calls?|use)\b|<\|channel\|>commentary|commentary to=functions\."
    r"|^[ \t]*Action:(?=[^\n]*\n\s*Action Input:)",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a call in the templates of models: Qwen and Hermes, Llama, Mistral, DeepSeek, Kimi, MiniMax, GLM,
Granite, Phi, Command, Gemma, gpt-oss; the form that LM Studio teaches the others, and that of ReAct."""
_MARKED_CHARS: Final = 200  # behind a mark, in which the name of a function stands
_QUOTE: Final = re.compile(r"(?:^|[^`])`$|[\"'“„«]$")
_PROSE: Final = re.compile(r"[`,.;)]|[ ]+\w+[ ,.;)]")
"""What stands before a mark that a text quotes, and behind one of which it speaks."""
_PYTHON_PART: Final = re.compile(r"\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'(?:[^'\\]|\\.)*(?:'|\Z)|[()]|[^()\"']+", re.DOTALL)
_PYTHON_CALLS: Final = re.compile(r"\[?\s*(?:[\w.-]+\(\)[\s,;]*)+\]?")
_FENCE: Final = re.compile(r"```\w*[ \t]*\n")
_BEHIND: Final = re.compile(r"(?:\s|```|</?[\w:]{1,40}>|<[|｜][^<>\n]{1,40}[|｜]>|\[/?[A-Z_]{1,20}\])*")
"""Signs behind a call at the end of a text: of a block of Markdown, of a template."""
_NAMES: Final = ("name", "tool_name", "function_name", "tool", "function", "recipient_name")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "tool_input", "input", "params", "kwargs")
_BESIDE: Final = frozenset({*_NAMES, *_ARGUMENTS, "id", "type", "index", "call_id", "tool_call_id"})
_AROUND: Final = ("tool_calls", "tool_call", "function_call", "calls", "function")
_CHARS_MAX: Final = 100_000  # of a text that is looked through
_PLACES_MAX: Final = 16  # at each end of a text, at which JSON is looked for
_DECODER: Final = json.JSONDecoder()


def find_written_call(text: str, names: Collection[str]) -> str:
    """The name of the first of the offered functions of which a call stands in the text; "" for none.

    Behind a mark of a template a name is enough. Without one the text has to begin or end with the call: as JSON with a
    name and arguments and nothing else, or as Python writes it."""
    if not names or len(text) > _CHARS_MAX:
        return ""
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w-])")
    for mark in _MARK.finditer(text):
        name = pattern.search(text, mark.end(), mark.end() + _MARKED_CHARS)
        if name is not None and not _is_mentioned(text, mark, name.start()):
            return name[1]
    inner = text.strip().strip("`").strip()
    if (python := re.fullmatch(rf"\[?\s*{pattern.pattern}(?:\.call)?\(.*\)\s*\]?", inner, re.DOTALL)) is not None:
        return python[1] if "\n\n" not in inner and _has_only_calls(inner) else ""
    json_names = (_name_in(value) for value in _iter_values(text))
    return next((name for name in json_names if name in names), "")


def _is_mentioned(text: str, mark: re.Match[str], name_at: int) -> bool:
    """Whether a text quotes a mark, or speaks of it, and of a function behind it, which is no call."""
    before = text[max(0, mark.start() - 2) : mark.start()]
    return bool(_QUOTE.search(before) or _PROSE.match(text, mark.end(), name_at))


def _has_only_calls(python: str) -> bool:
    """Whether a text has nothing outside of the parentheses of its calls, as a sentence has."""
    depth, outside = 0, []
    for part in _PYTHON_PART.findall(python):
        depth -= part == ")"
        if depth == 0:
            outside.append(part)
        depth += part == "("
    return _PYTHON_CALLS.fullmatch("".join(outside)) is not None


def _iter_values(text: str) -> Iterator[Json]:
    """The JSON values with which a text begins or ends, also within a block of Markdown."""
    places = [len(text) - len(text.lstrip()), *(fence.end() for fence in _FENCE.finditer(text))]
    lines = [each.start() + 1 for each in re.finditer(r"\n[{\[]", text)]
    places = sorted({*places, *lines})
    for start in dict.fromkeys((*places[:_PLACES_MAX], *places[-_PLACES_MAX:])):
        if text[start : start + 1] not in ("{", "["):
            continue
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if start == places[0] or _BEHIND.fullmatch(text, end):
            yield value


def _name_in(value: Json) -> str:
    """The name of the function that a JSON value calls; "" for a value that is no call."""
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, dict):
        return ""
    for around in _AROUND:
        if isinstance(value.get(around), dict | list):
            return _name_in(value[around])
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), "")
    args = next((value[key] for key in _ARGUMENTS if isinstance(value.get(key), dict | str)), None)
    return name if args is not None and value.keys() <= _BESIDE else ""
