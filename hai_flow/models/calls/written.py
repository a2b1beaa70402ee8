"""Calls that a model has written into its text: its server has no parser for the form in which the model writes them,
or has missed this one. None is performed, as a text may quote a call; but such a text is no answer either. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from itertools import islice
from typing import Final

from hai_flow.values import Json

_MARK: Final = re.compile(
    r"<[|｜]?(?:\w{1,12}[:_]|DSML[|｜])?(?:tool|function)s?[_▁]?(?:calls?|use|prefix)(?:[_▁][^\W_]{1,20}){0,4}[|｜]?>"
    r"|<function=|<(?:[|｜]DSML[|｜])?invoke\s|\[(?:TOOL_CALLS?|TOOL_REQUEST)\]"
    r"|<\|(?:python_tag|action_start|START_ACTION)\|>|<start_function_call>|\bfunctools(?=\[)"
    r"|```tool_(?:code|calls?|use)\b|<\|channel\|>commentary|commentary to=functions\."
    r"|^[ \t]*Action:(?=[^\n]*\n\s*Action Input:|\s*```json)",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a call in the templates of models: Qwen and Hermes, Llama, Mistral, DeepSeek, Kimi, MiniMax, GLM,
Granite, Phi, Command, Gemma, gpt-oss; the form that LM Studio teaches the others, and that of ReAct."""
_MARKED_CHARS: Final = 200  # behind a mark, in which the name of a function stands
_QUOTED: Final = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^`\n]*(?:\n(?! {0,3}(?P=fence))[^\n]*)*(?:\n {0,3}(?P=fence)[^\n]*)?"
    r"|(?<!`)(?P<ticks>`{1,3})(?!`)[^`\n]+(?P=ticks)(?!`)"
    r"|^ {0,3}>[^\n]*|^\|[^\n]*\|[ \t]*$|(?<=\n\n)(?: {4}|\t)[^\n]*(?:\n(?: {4}|\t)[^\n]*)*",
    re.MULTILINE,
)
"""What Markdown quotes: blocks, code in a line, what others said, rows of a table, indented lines."""
_QUOTES: Final = "\"'“„«"
_TEXT: Final = re.compile('"[^"]*"?')
_SPEECH: Final = re.compile(r"\A[,.;:!?)]+\s|\w[^\S\n]+(?!\w+=)|[^\W\x00-\x7f]")
"""Signs of a sentence between a mark and a name, where a template has only signs of its own."""
_WORD: Final = re.compile(r"\w")
_CLOSED: Final = re.compile(r"\A.*[>}\])]")
_MARKS_MAX: Final = 100  # of a text that are looked at
_PYTHON_PART: Final = re.compile(r"\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'(?:[^'\\]|\\.)*(?:'|\Z)|[()]|[^()\"']+", re.DOTALL)
_PYTHON_CALLS: Final = re.compile(r"\[?\s*(?:[\w.-]+\(\)[\s,;]*)+\]?")
_SIGNS: Final = re.compile(r"(?:[\s,;]|```\w*|</?[\w:]{1,40}>|<[|｜][^<>\n]{1,40}[|｜]>|\[/?[A-Z_]{1,20}\])*+")
"""Signs around calls: of a list, of a block of Markdown, of a template."""
_NAMES: Final = ("name", "tool_name", "function_name", "tool", "function", "recipient_name")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "tool_input", "input", "params", "kwargs")
_BESIDE: Final = frozenset({*_NAMES, *_ARGUMENTS, "id", "type", "index", "call_id", "tool_call_id"})
_AROUND: Final = ("tool_calls", "tool_call", "function_call", "calls", "function")
_CHARS_MAX: Final = 100_000  # of a text that is looked through
_DECODER: Final = json.JSONDecoder()


def find_written_call(text: str, names: Collection[str]) -> str:
    """The name of the first of the offered functions of which a call stands in the text; "" for none.

    Behind a mark of a template a name is enough, unless the text quotes it or speaks of it. Without one the text has to
    be the call and nothing else: as JSON with a name and arguments, or as Python writes it."""
    if not names or len(text) > _CHARS_MAX:
        return ""
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w-])")
    own = _QUOTED.sub(_keep_call, text)
    own = own if own.strip() or not text.lstrip().startswith("`") else text  # all of it is a block
    for mark in islice(_MARK.finditer(own), _MARKS_MAX):
        name = pattern.search(own, mark.end(), mark.end() + _MARKED_CHARS)
        if name is not None and not _is_mentioned(own, mark, name):
            return name[1]
    inner = text.strip().strip("`").strip()
    if (python := re.fullmatch(rf"\[?\s*{pattern.pattern}(?:\.call)?\(.*\)\s*\]?", inner, re.DOTALL)) is not None:
        return python[1] if "\n\n" not in inner and _has_only_calls(inner) else ""
    return next((name for value in _read_values(text) if (name := _name_in(value)) in names), "")


def _keep_call(quoted: re.Match[str]) -> str:
    """What stays of a quoted part: the last block of a text, where its language is that of a call."""
    is_last = not quoted.string[quoted.end() :].strip()
    return quoted[0] if is_last and _MARK.match(quoted[0].lstrip()) else ""


def _is_mentioned(text: str, mark: re.Match[str], name: re.Match[str]) -> bool:
    """Whether a text quotes a mark, or speaks of it, and of a function behind it, which is no call."""
    before, gap = text[: mark.start()], text[mark.end() : name.start()]
    if before.endswith(tuple(_QUOTES)) or _SPEECH.search(_TEXT.sub("", gap)):
        return True
    line = (gap if "\n" in gap else text[name.end() :]).partition("\n")[0]
    has_words = _WORD.search(before.rpartition("\n")[2]) is not None
    return has_words and _WORD.search(_CLOSED.sub("", line)) is not None


def _has_only_calls(python: str) -> bool:
    """Whether a text has nothing outside of the parentheses of its calls, as a sentence has."""
    depth, outside = 0, []
    for part in _PYTHON_PART.findall(python):
        depth -= part == ")"
        if depth == 0:
            outside.append(part)
        depth += part == "("
    return _PYTHON_CALLS.fullmatch("".join(outside)) is not None


def _read_values(text: str) -> list[Json]:
    """The JSON values that a text consists of, without the signs around them; none where it has anything else."""
    json_values: list[Json] = []
    text, at = _SIGNS.sub("", text, 1), 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        json_values.append(value)
        signs = _SIGNS.match(text, at)
        at = at if signs is None else signs.end()
    return json_values


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
    is_schema = isinstance(args, dict) and args.get("type") == "object" and "properties" in args
    return name if args is not None and not is_schema and value.keys() <= _BESIDE else ""
