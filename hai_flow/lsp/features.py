"""Answers to the questions that editors ask about a place in a workflow. Pure, but for the sources of Python tools."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from hai_flow.authoring.walking import expressions
from hai_flow.definition import plan
from hai_flow.definition.names.name_forms import check_name
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.schemas.python_modules import PythonModule
from hai_flow.definition.tools.a2a_agents import ARGUMENTS
from hai_flow.definition.yaml.document import YamlNode, parse
from hai_flow.definition.yaml.key_table import COMMON_KEYS
from hai_flow.definition.yaml.keys import Key, Type
from hai_flow.definition.yaml.language import SHAPES, VERBS
from hai_flow.errors import Edit
from hai_flow.lsp.analysis import Analysis, DocumentNames
from hai_flow.lsp.cursor_place import SourcePosition, cursor_at, is_in_hole, path_at, shape_at, type_at
from hai_flow.values import Json

Kind = Literal["verb", "key", "value", "step", "field", "tool", "workflow"]

_CHAIN: Final = re.compile(r"(?<![\w.])((?:steps|input|state|run|event|item)(?:\.\??\w+|\[[^\]\s]*\])*)\.\??(\w*)$")
_ROOT: Final = re.compile(r"(?<![\w.])(\w*)$")
_MEMBERS: Final = {
    "output": "what the step gave",
    "approval": "the decision on its `approval`",
    "status": "finished, failed, skipped ...",
    "error": "its error, where it failed",
}
_ROOTS: Final = ("input", "state", "steps", "run", "now", "secrets")


class Offer(msgspec.Struct, frozen=True):
    """Something that may be written at a place. `insert` stands for `label`; `start` is the column at which the word
    begins that it replaces."""

    label: str
    kind: Kind
    detail: str
    insert: str
    start: int
    rank: int = 0
    help: str = ""


class Target(msgspec.Struct, frozen=True):
    """A place in a file; line and column from 1."""

    file: str
    line: int
    column: int


# --- completion -------------------------------------------------------------------------------------------------------


def complete(analysis: Analysis, line: int, column: int, workflows: Mapping[str, str]) -> list[Offer]:
    """The offers for a place (line and column from 0). `workflows` are the names of those beside this one."""
    lines = analysis.text.split("\n")
    before = (lines[line] if line < len(lines) else "")[:column]
    cursor = cursor_at(analysis.text, line, column)
    if _is_in_expression(cursor, lines[:line], before):
        return list(_names_at(analysis.names, before))
    if cursor.key:
        return list(_values(analysis, cursor, before, workflows))
    return list(_keys(analysis, cursor, before, line))


def _is_in_expression(cursor: SourcePosition, above: list[str], before: str) -> bool:
    if is_in_hole(above, before):
        return True
    if not cursor.key:  # a line of an expression that begins above; a mapping may stand where there is a choice
        type_ = type_at(cursor.keys)
        return type_ is not None and type_.kind == "cel"
    type_ = type_at((*cursor.keys, cursor.key))
    return type_ is not None and _has_kind(type_, "cel")


def _has_kind(type_: Type, kind: str) -> bool:
    return type_.kind == kind or (type_.kind == "either" and any(_has_kind(part, kind) for part in type_.parts))


def _names_at(names: DocumentNames | None, before: str) -> Iterator[Offer]:
    chain = _CHAIN.search(before)
    if chain is None:
        word = _ROOT.search(before)
        start = word.start(1) if word else len(before)
        yield from (Offer(root, "value", "", root, start) for root in _ROOTS)
        return
    if names is None:
        return
    path = re.findall(r"\w+", chain[1])
    start = chain.start(2)
    if path == ["steps"]:
        for id, draft in names.context.outline.ids.items():
            yield Offer(id, "step", _title(draft), id, start)
    elif path[0] == "steps" and len(path) == 2:
        draft = names.context.outline.ids.get(path[1])
        has_approval = draft is not None and "approval" in draft.fields
        for rank, (word, does) in enumerate(_MEMBERS.items()):
            yield Offer(word, "field", does, word, start, rank if has_approval or word != "approval" else 9)
    else:
        for name, schema in _properties(names, path).items():
            yield Offer(name, "field", _type_words(schema), name, start, help=_text(schema, "description"))


def _properties(names: DocumentNames, path: list[str]) -> Mapping[str, Json]:
    """The fields of the value that an expression names by this path."""
    types = names.types
    if path[0] == "steps":
        schema: Json = {"output": types.outputs, "approval": types.approvals}.get(path[2], {}).get(path[1], {})
        rest = path[3:]
    else:
        schema, rest = {"input": types.input, "state": types.state}.get(path[0], {}), path[1:]
    for word in rest:
        inner = schema.get("properties", {}).get(word, {}) if isinstance(schema, Mapping) else {}
        schema = inner or (schema.get("items", {}) if isinstance(schema, Mapping) and word.isdigit() else {})
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    return properties if isinstance(properties, Mapping) else {}


def _type_words(schema: Json) -> str:
    kind = schema.get("type", "") if isinstance(schema, Mapping) else ""
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _text(schema: Json, key: str) -> str:
    return str(schema.get(key, "")) if isinstance(schema, Mapping) else ""


def _title(draft: StepDraft) -> str:
    title = draft.fields.get("title")
    return f"{draft.verb}: {title}" if isinstance(title, str) else draft.verb


def _values(analysis: Analysis, cursor: SourcePosition, before: str, workflows: Mapping[str, str]) -> Iterator[Offer]:
    word = cursor.before.lstrip(" \"'")
    start = len(before) - len(word)
    type_ = type_at((*cursor.keys, cursor.key))
    if cursor.key == "call":
        yield from _tools(analysis, start, before)
    elif cursor.key == "run":
        yield from (Offer(name, "workflow", file, name, start) for name, file in sorted(workflows.items()))
    elif type_ is not None:
        for value in _values_of_type(type_):
            yield Offer(value, "value", "", value, start)
        if _has_kind(type_, "selectors"):
            roles = analysis.names.context.declared.roles if analysis.names else {}
            for value in ("requester", "anyone", *(f"role:{role}" for role in roles)):
                yield Offer(value, "value", "", value, start)


def _values_of_type(type_: Type) -> list[str]:
    own = [str(value).lower() if isinstance(value, bool) else str(value) for value in type_.values]
    own += ["true", "false"] if type_.kind == "boolean" else []
    return own + [value for part in type_.parts if type_.kind == "either" for value in _values_of_type(part)]


def _tools(analysis: Analysis, start: int, before: str) -> Iterator[Offer]:
    declared = analysis.names.context.declared.tools if analysis.names else {}
    indent = " " * (len(before) - len(before.lstrip(" -")))
    for name, tool in declared.items():
        if tool is None:
            continue
        for function, (arguments, required) in _functions(analysis, tool).items():
            label = f"{name}.{function}" if function else name
            parameters = ", ".join(each if each in required else f"{each}?" for each in arguments)
            filled = "".join(f"\n{indent}  {each}: " for each in arguments if each in required)
            insert = f"{label}\n{indent}with:{filled}" if filled else label
            yield Offer(label, "tool", f"({parameters})", insert, start)


def _functions(analysis: Analysis, tool: plan.Tool) -> dict[str, tuple[list[str], set[str]]]:
    """The functions of a tool: their arguments, and which of them are needed."""
    match tool:
        case plan.PythonTool(target=target):
            module, _, attribute = target.partition(":")
            module_functions = _module(analysis, module, attribute)
            if module_functions is None:
                return {}
            if attribute:
                own = module_functions.functions.get(attribute)
                return {} if own is None else {"": (list(own.parameters), set(own.required))}
            return {
                name: (list(each.parameters), set(each.required))
                for name, each in module_functions.functions.items()
                if "." not in name and not name.startswith("_")
            }
        case plan.HttpTool(service=service) if service is not None:
            return {
                id: _arguments_of_schema(service.find(id).parameters) for id in service.ids if _is_callable(service, id)
            }
        case plan.McpTool(allow=allow) | plan.HttpTool(allow=allow):
            return {name: ([], set()) for name in allow or ()}
        case plan.A2ATool():
            return {"": _arguments_of_schema(ARGUMENTS)}
        case plan.FrontendTool(parameters=parameters):
            return {"": _arguments_of_schema(parameters) if parameters is not None else ([], set())}
    return {}


def _is_callable(service: plan.Service, id: str) -> bool:
    try:
        service.find(id)
    except (KeyError, ValueError):
        return False
    return True


def _arguments_of_schema(schema: plan.Schema) -> tuple[list[str], set[str]]:
    raw = schema.raw if isinstance(schema.raw, Mapping) else {}
    return list(raw.get("properties", {})), set(raw.get("required", ()))


def _module(analysis: Analysis, name: str, attribute: str = "") -> PythonModule | None:
    if not name:
        return None
    python_module = analysis.modules.find(name, (attribute,) if attribute else ())
    return python_module if isinstance(python_module, PythonModule) else None


def _keys(analysis: Analysis, cursor: SourcePosition, before: str, line: int) -> Iterator[Offer]:
    word = cursor.before.lstrip()
    start = len(before) - len(word)
    if cursor.keys and cursor.keys[-1] == "with":
        called = call_around(analysis.text, line)
        around = [] if called is None else _function(analysis, called)[0]
        yield from (Offer(name, "key", "", f"{name}: ", start) for name in around if name not in cursor.siblings)
        return
    type_ = type_at(cursor.keys)
    shape = shape_at(type_, cursor.siblings)
    if shape is None:
        return
    is_step = type_ is not None and type_.kind == "steps"
    has_verb = any(each in VERBS for each in cursor.siblings)
    if is_step and not has_verb:
        for rank, verb in enumerate(VERBS.values()):
            yield Offer(verb.name, "verb", verb.does, f"{verb.name}: ", start, rank, _help(verb.does, verb.example))
    for rank, key in enumerate(shape.keys):
        if key.name in cursor.siblings or (is_step and not has_verb and key.name not in COMMON_KEYS):
            continue
        yield Offer(key.name, "key", key.does, f"{key.name}: ", start, 100 + rank, _key_help(key))


def _function(analysis: Analysis, called: str) -> tuple[list[str], set[str]]:
    """The arguments of `tool.function`, and which of them are needed."""
    name, _, function = called.partition(".")
    tool = analysis.names.context.declared.tools.get(name) if analysis.names else None
    return _functions(analysis, tool).get(function, ([], set())) if tool is not None else ([], set())


def _help(does: str, example: str) -> str:
    return f"{does[:1].upper()}{does[1:]}." + (f"\n\n```yaml\n{example}\n```" if example else "")


def _key_help(key: Key) -> str:
    default = f" Default: `{key.default}`." if key.default and "`" not in key.default else ""
    return f"{key.does[:1].upper()}{key.does[1:]}.{default}" + (
        f"\n\n```yaml\n{key.name}: {key.example}\n```" if key.example else ""
    )


# --- hover and definition ---------------------------------------------------------------------------------------------


def hover(analysis: Analysis, line: int, column: int, workflows: Mapping[str, str]) -> str:
    """A text in Markdown on the key, step or tool at a place; "" where there is none."""
    names = analysis.names
    if names is None or names.text != analysis.text:
        return ""
    if (id := step_at(analysis, line, column)) is not None and id in names.context.outline.ids:
        draft = names.context.outline.ids[id]
        return f"**{id}**: {_title(draft)}\n\n{_help(VERBS[draft.verb].does, '') if draft.verb else ''}".strip()
    path, is_key = path_at(names.document, _index(analysis.text, line, column))
    if not path:
        return ""
    keys = tuple(each for each in path if isinstance(each, str))
    value = _value(names.document.value, path)
    if not is_key and path[-1] == "call" and isinstance(value, str):
        arguments, required = _function(analysis, value)
        parameters = ", ".join(each if each in required else f"{each}?" for each in arguments)
        return f"**{value}**({parameters})"
    if not is_key and path[-1] == "run" and isinstance(value, str):
        file = workflows.get(value.partition("@")[0])
        return f"**{value}**: {file}" if file else ""
    if is_key:
        around = type_at(keys[:-1])
        if around is not None and around.kind == "steps" and keys[-1] in VERBS:
            verb = VERBS[keys[-1]]
            return _help(f"{verb.does}. Output: {verb.output or 'none'}", f"- {verb.name}: {verb.example}")
        shape = SHAPES["step"] if around is not None and around.kind == "steps" else shape_at(around, {})
        key = next((each for each in shape.keys if each.name == keys[-1]), None) if shape is not None else None
        return _key_help(key) if key is not None else ""
    return ""


def definition(analysis: Analysis, line: int, column: int, workflows: Mapping[str, str]) -> Target | None:
    """Where the step, the tool or the workflow that is named at a place is written."""
    names = analysis.names
    if names is None or names.text != analysis.text:
        return None
    if (id := step_at(analysis, line, column)) is not None:
        draft = names.context.outline.ids.get(id)
        return None if draft is None else Target(analysis.file, *names.document.position((*draft.at, "id")))
    path, is_key = path_at(names.document, _index(analysis.text, line, column))
    value = _value(names.document.value, path)
    if is_key or not isinstance(value, str):
        return None
    if path[-1] == "run" and (file := workflows.get(value.partition("@")[0])):
        return Target(file, 1, 1)
    if path[-1] in ("call", "python"):
        name, _, function = value.partition(".")
        tool = names.context.declared.tools.get(name if path[-1] == "call" else str(path[-2]))
        if isinstance(tool, plan.PythonTool) and (
            target := _python(analysis, tool, function if path[-1] == "call" else "")
        ):
            return target
        if path[-1] == "call" and name in names.context.declared.tools:
            return Target(analysis.file, *names.document.position(("tools", name), key=True))
    return None


def _python(analysis: Analysis, tool: plan.PythonTool, function: str) -> Target | None:
    module, _, attribute = tool.target.partition(":")
    file = analysis.modules.file_of(module) if module else None
    if file is None:
        return None
    searched = attribute or function
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return Target(str(file), 1, 1)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == searched:
            return Target(str(file), node.lineno, node.col_offset + 1)
    return Target(str(file), 1, 1)


def _index(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(each) + 1 for each in lines[:line]) + column


def _value(value: Json, path: tuple[str | int, ...]) -> Json:
    for part in path:
        if isinstance(value, Mapping) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


# --- steps by their ids -----------------------------------------------------------------------------------------------

_HOLE: Final = re.compile(r"(?<!\$)\$\{\{.*?\}\}", re.DOTALL)
_QUOTE: Final = r"""\\?["']{1,2}"""  # also as texts in the quotes of YAML have it
_STEP: Final = re.compile(rf"(?<![\w.])steps\s*(?:\.\s*\??\s*(\w+)|\[\s*\??{_QUOTE}(\w+){_QUOTE}\s*\])")


def _mentions(names: DocumentNames) -> Iterator[tuple[str, int, int]]:
    """Each place that names a step: its id, and the indexes of the text between which it stands."""
    text = names.document.text
    for id, draft in names.context.outline.ids.items():
        line, column = names.document.position((*draft.at, "id"))
        start = _index(text, line - 1, column - 1)
        start += text[start : start + 1] in ("'", '"')
        if text[start : start + len(id)] == id:
            yield id, start, start + len(id)
    bare = {path for path, _ in expressions(names.document.value)}
    for path, begin, end in _scalars(names):
        regions = [(begin, end)] if path in bare else [each.span() for each in _HOLE.finditer(text, begin, end)]
        for first, last in regions:
            for match in _STEP.finditer(text, first, last):
                group = match.lastindex or 1
                yield match[group], *match.span(group)


def _scalars(names: DocumentNames) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
    waiting = [((), names.document.root)] if names.document.root is not None else []
    while waiting:
        path, node = waiting.pop()
        waiting += [((*path, key), child) for key, child in node.children.items()]
        if node.kind == "scalar" and isinstance(node.value, str):
            yield path, node.start, node.end


def step_at(analysis: Analysis, line: int, column: int) -> str | None:
    """The id of the step that is named at a place."""
    if analysis.names is None or analysis.names.text != analysis.text:
        return None
    index = _index(analysis.text, line, column)
    return next((id for id, start, end in _mentions(analysis.names) if start <= index <= end), None)


class NotRenamed(Exception):
    """The step can't get that id; the sentence says why."""


def rename(analysis: Analysis, line: int, column: int, new: str) -> list[Edit]:
    """The edits that give the step at a place another id, everywhere in the document. Raises NotRenamed."""
    id = step_at(analysis, line, column)
    names = analysis.names
    if id is None or names is None or id not in names.context.outline.ids:
        raise NotRenamed("there is no step with an id here; put the cursor on an `id`, or on a name behind `steps.`")
    if fault := check_name(new, "identifier"):
        raise NotRenamed(fault)
    if new != id and new in names.context.outline.ids:
        raise NotRenamed(f"another step has the id `{new}` already")
    places = sorted({(start, end) for each, start, end in _mentions(names) if each == id})
    lines = names.document.lines
    return [Edit(*lines.place(start), *lines.place(end), new) for start, end in places]


class Symbol(msgspec.Struct, frozen=True):
    """A step in the outline; line and column from 1, with the steps inside of it."""

    name: str
    detail: str
    line: int
    column: int
    inside: tuple[Symbol, ...]


def symbols(analysis: Analysis) -> list[Symbol]:
    """The outline of the last text that could be read."""
    names = analysis.names
    if names is None:
        return []
    document_outline = names.context.outline
    lists = (document_outline.steps, *(clause.steps for clause in document_outline.catch), document_outline.finally_)
    return [_symbol(names, draft) for steps in lists for draft in steps]


def _symbol(names: DocumentNames, draft: StepDraft) -> Symbol:
    inside = tuple(_symbol(names, each) for steps in draft.lists() for each in steps)
    name = draft.id or draft.path.rpartition("/")[2]
    return Symbol(name, _title(draft), *names.document.position(draft.at), inside)


def call_around(text: str, line: int) -> str | None:
    """The value of `call` beside the `with` that a line is in."""
    lines = text.split("\n")
    indent = len(lines[line]) - len(lines[line].lstrip(" ")) if line < len(lines) else 0
    for number in range(line - 1, -1, -1):
        key = lines[number].lstrip(" -")
        column = len(lines[number]) - len(key)
        if key.startswith("with:") and column < indent:
            return cursor_at(text, number, column).siblings.get("call")
    return None


_NAMED: Final = frozenset(("pending",))  # keys whose values are steps, by id or path
_MAPS: Final = frozenset(("mock", "steps"))  # keys whose mappings have steps for keys


def workflow_of(text: str) -> str:
    """The `workflow` that a test names, as it stands there; "" where it names none."""
    root = parse(text.encode("utf-8", "replace"), "a.test.yaml").root
    named = root.children.get("workflow") if root is not None else None
    return named.value if named is not None and isinstance(named.value, str) else ""


def edits_in_test(text: str, old: str, new: str) -> list[Edit]:
    """The edits that give a step its new id in a test of its workflow: alone, or as a part of a path."""
    document = parse(text.encode("utf-8", "replace"), "a.test.yaml")
    part = re.compile(rf"(?:^|(?<=[\"'/])){re.escape(old)}(?=$|[\"'/\[])")
    edits: list[Edit] = []
    for start, end in _places(document.root, document.text):
        for match in part.finditer(document.text[start:end]):
            first, last = start + match.start(), start + match.end()
            edits.append(Edit(*document.lines.place(first), *document.lines.place(last), new))
    return sorted(edits, key=lambda each: (each.line, each.column))


def _places(root: YamlNode | None, text: str) -> Iterator[tuple[int, int]]:
    """Where the names of steps begin and end in a test."""
    waiting: list[tuple[str, YamlNode]] = [("", root)] if root is not None else []
    while waiting:
        word, node = waiting.pop()
        if word in _NAMED:
            for each in (node, *node.children.values()):
                if each.kind == "scalar" and isinstance(each.value, str):
                    yield each.start, each.end
        if word in _MAPS and node.kind == "mapping":
            for key, start in node.keys.items():
                yield start, start + len(key) + 2 * (text[start : start + 1] in ("'", '"'))
        waiting += [(key if isinstance(key, str) else "", child) for key, child in node.children.items()]
