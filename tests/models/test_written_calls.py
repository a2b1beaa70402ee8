"""Calls that a model writes as text, because its server has no parser for them: each form of a template is told from an
answer, and an agent never ends with one."""

from __future__ import annotations

import time
from typing import Final

import pytest

from hai_flow.models.calls.written import find_written_call

NAMES: Final = ("add", "ping", "get_weather", "search")
ARGS: Final = '{"text": "hi"}'
CALL: Final = f'{{"name": "add", "arguments": {ARGS}}}'
HERMES: Final = f"<tool_call>\n{CALL}\n</tool_call>"
WRITTEN: Final[dict[str, str]] = {
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "hermes behind words": f"Sure, I will.\n<tool_call>{CALL}</tool_call>",
    "hermes, cut off": '<tool_call>\n{"name": "add", "argu',
    "hermes, without its first tag": f"{CALL}\n</tool_call>",
    "hermes, with a result made up": f"<tool_call>{CALL}</tool_call>\n<tool_response>ok</tool_response>\nIt is added.",
    "qwen3-coder": "<tool_call>\n<function=add>\n<parameter=text>\nhi\n</parameter>\n</function>\n</tool_call>",
    "qwen3-coder, without its first tag": "<function=add>\n<parameter=text>\nhi\n</parameter>\n</function>",
    "glm": "<tool_call>add\n<arg_key>text</arg_key>\n<arg_value>hi</arg_value>\n</tool_call>",
    "llama, a tag": f"<function=add>{ARGS}</function>",
    "llama, its tag of python": f'<|python_tag|>{{"name": "add", "parameters": {ARGS}}}',
    "llama, python": '<|python_tag|>add.call(text="hi")',
    "llama, json": f'{{"name": "add", "parameters": {ARGS}}}',
    "llama, json with its end": f'{{"name": "add", "parameters": {ARGS}}}<|eot_id|>',
    "llama, json with a type": f'{{"type": "function", "name": "add", "parameters": {ARGS}}}',
    "llama, two": f'{{"name": "add", "parameters": {ARGS}}}; {{"name": "ping", "parameters": {{}}}}',
    "llama 4": '[add(text="hi"), ping()]',
    "one call of python": 'add(text="hi")',
    "invoke": '<invoke name="add"><parameter name="text">hi</parameter></invoke>',
    "invoke in a list": '<function_calls>\n<invoke name="add">\n<parameter name="text">hi</parameter>\n</invoke>',
    "minimax": '<minimax:tool_call>\n<invoke name="add">\n<parameter name="text">hi</parameter>\n</invoke>',
    "mistral": f"[TOOL_CALLS] [{CALL}]",
    "mistral, newer": f"[TOOL_CALLS]add[ARGS]{ARGS}",
    "mistral, with an id": f"[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{ARGS}",
    "deepseek v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n" + ARGS + "\n```",
    "deepseek v3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{ARGS}<｜tool▁call▁end｜>",
    "deepseek v3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="add">\n',
    "deepseek in ASCII": f"<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>add\n```json\n{ARGS}\n```",
    "kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{ARGS}",
    "granite": f'<|tool_call|>[{{"arguments": {ARGS}, "name": "add"}}]',
    "granite 4": f"<tool_call>[{CALL}]",
    "phi-4": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "phi": f"functools[{CALL}]",
    "command": f'<|START_ACTION|>[\n {{"tool_call_id": "0", "tool_name": "add", "parameters": {ARGS}}}\n]',
    "command in Markdown": f'Action: ```json\n[\n {{"tool_name": "add", "parameters": {ARGS}}}\n]```',
    "gemma": '```tool_code\nprint(default_api.add(text="hi"))\n```',
    "functiongemma": "<start_function_call>call:add{text:<escape>hi<escape>}<end_function_call>",
    "gpt-oss": f"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{ARGS}<|call|>",
    "gpt-oss without its tokens": f"assistantcommentary to=functions.add json{ARGS}",
    "internlm": f'<|action_start|><|plugin|>\n{{"name": "add", "parameters": {ARGS}}}<|action_end|>',
    "seed": "<seed:tool_call><function=add><parameter=text>hi</parameter></function></seed:tool_call>",
    "lm studio": f"[TOOL_REQUEST]{CALL}[END_TOOL_REQUEST]",
    "nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "hunyuan": f"<tool_calls>[{CALL}]</tool_calls>",
    "longcat": f"<longcat_tool_call>{CALL}</longcat_tool_call>",
    "apertus": f'<|tools_prefix|>[{{"add": {ARGS}}}]<|tools_suffix|>',
    "a tool_use": f"<tool_use>\n<name>add</name>\n<arguments>{ARGS}</arguments>\n</tool_use>",
    "olmo": '<function_calls>add(text="hi")</function_calls>',
    "xlam": f'[{CALL}, {{"name": "ping", "arguments": {{}}}}]',
    "openai": '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]}',
    "a block of Markdown": f"```json\n{CALL}\n```",
    "a template behind words, in one line": f"Sure.<tool_call>{CALL}</tool_call>",
    "a template in one line, with words that are indented": f"Sure.\n\n    I add it.\n<tool_call>{CALL}</tool_call>",
    "a template in a block": f"```xml\n<tool_call>{CALL}</tool_call>\n```",
    "mistral behind words, in one line": f"Sure.[TOOL_CALLS]add[ARGS]{ARGS}",
    "deepseek behind words, in one line": f"Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{ARGS}",
    "gemma behind words": '`add` is right.\n```tool_code\nprint(default_api.add(text="hi"))\n```',
    "code in the arguments": '<tool_call>{"name": "add", "arguments": {"text": "use `x` here"}}</tool_call>',
    "arguments as text": '{"name": "add", "arguments": "{\\"text\\": \\"hi\\"}"}',
    "python with parentheses in texts": 'add(text="a) and (b", n=(1, 2))\nping()',
    "react": f"Thought: I need to add.\nAction: add\nAction Input: {ARGS}",
    "react, json": f'{{"tool": "add", "tool_input": {ARGS}}}',
}
ANSWERS: Final[dict[str, str]] = {
    "words": "I have added it.",
    "a name": "I would call `add` with the text hi.",
    "a call in a sentence": 'You can call add(text="hi") yourself. It adds hi.',
    "a call in the middle": f"Example:\n```json\n{CALL}\n```\nThis adds hi to the list, as you wanted.",
    "a call of another's function": f'<tool_call>{{"name": "other", "arguments": {ARGS}}}</tool_call>',
    "an object": '{"name": "add", "price": 3}',
    "an object with more": f'{{"name": "add", "arguments": {ARGS}, "reason": "x"}}',
    "a list": '[{"name": "Ann"}, {"name": "Bob"}]',
    "a result": ARGS,
    "tags": "<tooltip>add</tooltip> and <function> add </function>",
    "a program": "```python\nadd(1)\nprint(2)\n```\nHere is how.",
    "sums": "add (1, 2) gives 3, and (4) is more",
    "nothing": "",
    "a mark in quotes": "I have taken the stray `<tool_call>` tags from the page, and then had to add it again.",
    "a call in quotes": f"A server without a parser sends `<tool_call>{CALL}</tool_call>` as text.",
    "a mark in a sentence": "I have taken the stray <tool_call> tags from the page, and then had to add it again.",
    "a plural": "add(s): none (all are there)",
    "a signature": "add(text) puts a text on the list (at its end)",
    "a block of JSON behind words": f"The request for it is this one.\n\n```json\n{CALL}\n```\n",
    "json behind words": f"I have added hi. For your records, this is what I sent.\n{CALL}",
    "json that is explained": f"{CALL}\n\nThis is the JSON that the tool takes.",
    "a block of json that is explained": f"```json\n{CALL}\n```\nThis is the JSON that the tool takes.",
    "a template in a block behind words": f"Hermes writes a call so:\n\n```xml\n{HERMES}\n```\n\nLook for the tag.",
    "a template in a block at the end": f"Hermes writes a call so:\n~~~\n{HERMES}\n~~~",
    "a template in a block within a block": f"So:\n````markdown\n```\n{HERMES}\n```\n{HERMES}\n````\nDone.",
    "a template in a block that is explained": f"```\n<function=add>{ARGS}</function>\n```\nis how Llama writes it.",
    "templates in two blocks": f"OpenAI:\n```json\n{CALL}\n```\nLlama:\n```\n<function=add>{ARGS}</function>\n```",
    "a template that is quoted": f"The log has:\n\n> <tool_call>\n> {CALL}\n> </tool_call>\n\nIt was not read.",
    "a template that is indented": f"The log has:\n\n    <tool_call>\n    {CALL}\n\nIt was not read.",
    "templates in a sentence": f"Hermes writes <tool_call>{CALL}</tool_call>, Llama <function=add>{ARGS} for it.",
    "mistral in a sentence": f"Mistral writes [TOOL_CALLS]add[ARGS]{ARGS} in such a case.",
    "gpt-oss in a sentence": "The commentary to=functions.add header is read by the server.",
    "gemma that is explained": "Gemma writes:\n\n```tool_code\nprint(add(text='hi'))\n```\n\nand its server runs it.",
    "a template within code": f"Look for `in the log <tool_call>{CALL}`, and add a line.",
    "a template within code of two signs": f"Look for ``<tool_call>{CALL}``, and add a line.",
    "templates in a table": f"| Hermes | <tool_call>{CALL}</tool_call> |\n|---|---|\n| Llama | <function=add>{ARGS} |",
    "a mark in the plural": "I removed the <tool_call>s and used add for the rest.",
    "a mark and a colon": "<tool_call>: add is missing here.",
    "a mark in parentheses": "The tags <tool_call> (see add) are not closed.",
    "a mark in a German word": "Ich habe das <tool_call>-Tag entfernt und add aufgerufen.",
    "a mark in Chinese": "我删除了<tool_call>标签：add 不变。",
    "marks around nothing": "The element <tool_calls></tool_calls> was empty, so I used add for it.",
    "marks in a list": "What I did:\n1. [TOOL_CALL] add -> ok\n2. [TOOL_CALL] ping -> ok",
    "marks in a log": "12:01 [TOOL_CALL] add ok\n12:02 [TOOL_RESULT] ok",
    "react in a block": "ReAct models write:\n\n```\nAction: add\nAction Input: {}\n```\n\nand wait.",
    "react in minutes": "Action: we will add it on Monday\nAction Input: none yet",
    "a schema": '{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}',
    "schemas": '[{"name": "add", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}]',
    "a call that is explained": 'add(text="a (b)") puts a text on the list (at its end)',
}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_call_that_is_written_as_text_is_found_in_any_form(form: str) -> None:
    assert find_written_call(WRITTEN[form], NAMES) == "add"
    assert find_written_call(WRITTEN[form], ()) == ""


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_mentions_a_function_is_no_call(answer: str) -> None:
    assert find_written_call(ANSWERS[answer], NAMES) == ""


HOSTILE: Final = (
    *("{", "[{", "<tool_call>", "\n{", "```json\n", "add(", '```json\n{"a":', "\n[1,", "<|", "< ", "\n{}", "Action:"),
    *("<tool_call_a", "<tool_call" + "_a" * 40, 'add("\\"', "add()", "add('", "<tool_call>`", "```a", "```\n{", "</a>"),
    *("`a` ", "|a|\n", "\n\n    a", "~~~\n", "\n> ", "``a`b", "{} ", "<tool_call>add x ", "<tool_call>s add\n"),
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_text_is_looked_through_in_its_own_time(piece: str) -> None:
    began = time.process_time()
    text = piece * (100_000 // len(piece))
    for each in (text, f"add({text})", f"{{}}{text}x"):
        find_written_call(each[:100_000], NAMES)
    assert time.process_time() - began < 1
