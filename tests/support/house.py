"""How the names and folders of the package read, in numbers: `python -m tests.support.house`, or `make house`.

Of all functions and methods (properties and dunders left out): the share that begins with a verb, with a participle, or
with a function word. Of all variables: how many have a name that says how a thing was got, and not what it is. Of class
names: how many stand for several classes. Of the way from a text to its plan: how often the function called next stands
in another file."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Final

from hai_flow.definition.compiler import compile_workflow

PACKAGE: Final = Path(__file__).resolve().parents[2] / "hai_flow"
WALKED: Final = PACKAGE.parent / "workflows" / "refund.flow.yaml"
_VERBS = """
    get set add remove delete make create build parse read write load save send receive open close start stop run check
    validate find fetch list count is has can should to from on handle register apply compute render encode decode
    format wait cancel retry claim release acquire update insert select record append extend merge copy clear reset init
    new with as ensure try do begin end finish complete fail raise resolve process dispatch notify publish subscribe
    serve connect disconnect listen iter next push pop put take give show print log dump emit convert map filter sort
    split join match compile evaluate execute call invoke perform mark pause resume terminate skip fork migrate archive
    restore prune prepare setup teardown verify test assert expect drop enter exit flush drain lock unlock hash sign
    encrypt decrypt mask hide redact strip collect group sum min max derive infer normalize normalise quote escape
    unescape wrap unwrap bind attach detach lookup scan walk visit yield generate guess suggest describe explain report
    schedule defer enqueue dequeue poll ping answer decide evolve fold follow rename move replace reject refuse accept
    allow deny demand require grant revoke authenticate authorize guard limit measure watch observe trace draw place lay
    tell ask say let keep know hold leave come go fill hand hear look
"""
VERBS: Final = frozenset(_VERBS.split())
_PARTICIPLES = """
    told said begun known kept held sent shown given made found left lost won built drawn taken written seen done gone
    heard met meant taught thought bound worn
"""
PARTICIPLES: Final = frozenset(_PARTICIPLES.split())
_FUNCTION_WORDS = """
    what who where when how why which whose whether if nobody somebody nothing each every some any no not so in of by at
    the its all one other
"""
FUNCTION_WORDS: Final = frozenset(_FUNCTION_WORDS.split())
_VAGUE = "found known given asked wanted shown told said there left seen kept whole begun written taken made"
VAGUE: Final = frozenset(_VAGUE.split())


@dataclass(frozen=True, slots=True)
class Measures:
    """Counts over a package."""

    functions: int
    verbs: int
    participles: int
    function_words: int
    vague: int  # variables
    shared_classes: int  # names that several classes have


def measure(package: Path) -> Measures:
    """The measures of all modules below `package`."""
    kinds: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    vague = 0
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                vague += node.id in VAGUE
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_counted(node):
                kinds[kind_of(node.name)] += 1
    return Measures(
        functions=kinds.total(),
        verbs=kinds["verb"],
        participles=kinds["participle"],
        function_words=kinds["function word"],
        vague=vague,
        shared_classes=sum(count > 1 for count in classes.values()),
    )


def kind_of(name: str) -> str:
    """What the name of a function begins with: "verb", "participle", "function word" or "noun"."""
    first = name.strip("_").split("_")[0]
    if first in VERBS:
        return "verb"
    if first in PARTICIPLES or (len(first) > 4 and re.search(r"(ed|en)$", first)):
        return "participle"
    return "function word" if first in FUNCTION_WORDS else "noun"


def is_counted(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """False for properties and for names that Python gives."""
    names = (getattr(each, "id", getattr(each, "attr", "")) for each in node.decorator_list)
    return not node.name.startswith("__") and not any(name in ("property", "cached_property") for name in names)


def worse(measures: Measures) -> dict[str, float]:
    """The measures that are worse than their bound: shares of functions in per cent, and counts."""
    return {name: value for name, value in _numbers(measures).items() if value > BOUNDS[name]}


def _numbers(measures: Measures) -> dict[str, float]:
    return {
        "functions without a verb (%)": 100 - 100 * measures.verbs / measures.functions,
        "participles (%)": 100 * measures.participles / measures.functions,
        "function words (%)": 100 * measures.function_words / measures.functions,
        "vague variables": measures.vague,
        "shared class names": measures.shared_classes,
    }


def modules_by_folder() -> dict[str, int]:
    """How many modules stand directly in each folder, `__init__` and `__main__` left out."""
    counts: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        counts[str(path.parent.relative_to(PACKAGE.parent))] += not path.stem.startswith("__")
    return dict(counts)


def count_changes_of_file(act: Callable[[], object]) -> int:
    """How often a function of the package is called that stands in another file than the one called before. A generator
    or a coroutine that goes on is not called again."""
    begun: set[FrameType] = set()  # which keeps them, so that no later one is taken for one of these
    files: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}/") and frame not in begun:
            begun.add(frame)
            files.append(frame.f_code.co_filename)

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # what it collects may be generators, which it calls to close them
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
        gc.enable()
    return sum(one != other for one, other in pairwise(files))


def measure_walk() -> tuple[int, int]:
    """The changes of file while `WALKED` is compiled: for the first time, if this process has not done so before, and
    again, when it knows the expressions."""
    source = WALKED.read_bytes()
    first, again = (count_changes_of_file(lambda: compile_workflow(source)) for _ in range(2))
    return first, again


def test_names(folder: Path) -> list[str]:
    """The names of all test functions below `folder`."""
    return [name for path in folder.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())]


def docstring(path: Path) -> str | None:
    """The text at the head of a module."""
    return ast.get_docstring(ast.parse(path.read_text()))


def imports_of_packages(name: str) -> dict[str, set[str]]:
    """What each package below `name`, and each module that stands directly in it, imports of them when it is loaded."""
    root = PACKAGE.parent.joinpath(*name.split("."))
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        targets = graph.setdefault(importer := _node(module, name), set())
        imported = {_node(each, name) for each in _imports(ast.parse(path.read_text()).body) if each in modules}
        targets |= imported - {importer}
    return graph


def _node(module: str, name: str) -> str:
    """The package of a module, or the module itself if it stands directly in `name`."""
    package = module.rpartition(".")[0]
    return module if package == name else package


def _imports(statements: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Import):
            names |= {each.name for each in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names |= {f"{statement.module}.{each.name}" for each in statement.names} | {str(statement.module)}
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.unparse(statement.test):
            names |= _imports(statement.body + statement.orelse)
        elif isinstance(statement, ast.Try):
            names |= _imports(statement.body)
    return names


BOUNDS: Final = {
    "functions without a verb (%)": 42,
    "participles (%)": 1.3,
    "function words (%)": 0.9,
    "vague variables": 59,
    "shared class names": 52,
}
CHANGES_OF_FILE_MAX: Final = 249

if __name__ == "__main__":
    measures = measure(PACKAGE)
    for name, value in {**asdict(measures), **_numbers(measures)}.items():
        print(f"{name:32} {value:8.1f}" + (f"   at most {BOUNDS[name]}" if name in BOUNDS else ""))
    first, again = measure_walk()
    print(f"{'changes of file to a plan, cold':32} {first:8}")
    print(f"{'changes of file to a plan, warm':32} {again:8}   at most {CHANGES_OF_FILE_MAX}")
    for folder, count in sorted(modules_by_folder().items(), key=lambda pair: -pair[1])[:8]:
        print(f"{folder:32} {count:8} modules")
