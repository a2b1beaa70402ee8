"""No package of Python imports one that imports it, and no module of TypeScript, there not even for its types.

Modules of one package of Python may hang together; `lint-imports` holds the direction between the packages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = re.compile(r"""^\s*(?:import|export)\b[^;"']*?\bfrom\s+"(\.[^"]+)"|\bimport\("(\.[^"]+)"\)""", re.MULTILINE)


def cycle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """The modules of a cycle in their order, the first one at both ends; none if there is no cycle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def python_imports(package: Path) -> dict[str, set[str]]:
    """The modules that each module of the package imports when it is loaded."""
    paths = {name_of(path, package): path for path in package.rglob("*.py")}
    return {
        name: {other for other in imported_by(ast.parse(path.read_text()).body, set(paths)) if other != name}
        for name, path in paths.items()
    }


def name_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(statements: list[ast.stmt], modules: set[str]) -> Iterator[str]:
    """Imports inside functions are left out, since they run later, and those for a type checker, which never run."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names if each.name in modules)
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            for each in statement.names:
                inner = f"{base}.{each.name}"
                yield from (name for name in (inner if inner in modules else base,) if name in modules)
        elif isinstance(statement, ast.If):
            for_types = "TYPE_CHECKING" in ast.unparse(statement.test)
            yield from imported_by(statement.orelse if for_types else statement.body + statement.orelse, modules)
        elif isinstance(statement, ast.Try):
            yield from imported_by(statement.body, modules)


def imports_of_packages(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The packages below the outermost one that each of them imports, by the imports of their modules."""
    packages: dict[str, set[str]] = {}
    for module, others in imports.items():
        if "." in module:
            own = module.split(".")[1]
            packages.setdefault(own, set()).update({other.split(".")[1] for other in others if "." in other} - {own})
    return packages


def typescript_imports(folder: Path) -> dict[str, set[str]]:
    """The files that each file of the folder imports; tests, and files that are no TypeScript, are left out."""
    paths = [path for path in folder.rglob("*.ts*") if ".test." not in path.name]
    return {
        str(path.relative_to(folder)): {
            source_of(path, static or dynamic, folder)
            for static, dynamic in IMPORTED.findall(path.read_text())
            if (static or dynamic).endswith((".ts", ".tsx", ".js"))
        }
        for path in paths
    }


def source_of(importer: Path, written: str, folder: Path) -> str:
    """The file in the folder that an import means. The client names what the compiler makes of it: `./x.js`."""
    return str((importer.parent / re.sub(r"\.js$", ".ts", written)).resolve().relative_to(folder))


@pytest.mark.slow
def test_python_packages() -> None:
    imports = python_imports(ROOT / "hai_flow")
    assert len(imports) > 400
    assert cycle_in(imports_of_packages(imports)) == []


def test_a_cycle_of_packages_is_found_and_one_within_a_package_is_allowed() -> None:
    inside = {"shop.a.x": {"shop.a.y"}, "shop.a.y": {"shop.a.x"}}
    assert cycle_in(imports_of_packages(inside)) == []
    between = {"shop.a.x": {"shop.b.y"}, "shop.b.z": {"shop.a.y"}}
    assert set(cycle_in(imports_of_packages(between))) == {"a", "b"}


@pytest.mark.parametrize("folder", ["clients/typescript/src", "console/src"])
def test_typescript(folder: str) -> None:
    imports = typescript_imports(ROOT / folder)
    assert len(imports) > 20
    assert set().union(*imports.values()) <= set(imports), "an import leads to no file, so a cycle could be missed"
    assert cycle_in(imports) == []


def test_no_module_of_the_typescript_client_imports_an_entry_point() -> None:
    imports = typescript_imports(ROOT / "clients/typescript/src")
    assert set(imports) - set().union(*imports.values()) == {"index.ts", "ai_sdk.ts", "elements.ts"}


def test_a_cycle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from shop import b\n")
    (package / "b.py").write_text("try:\n    from shop.a import A\nexcept ImportError:\n    A = None\n")
    assert set(cycle_in(python_imports(package))) == {"shop.a", "shop.b"}
    (package / "c.ts").write_text('import { type D, d } from "./d.ts";\n')
    (package / "d.ts").write_text('export {\n  c,\n} from "./c.ts";\n')
    assert set(cycle_in(typescript_imports(package))) == {"c.ts", "d.ts"}
    (package / "c.ts").write_text('import { d } from "./d.js";\n')
    (package / "d.ts").write_text('import { c } from "./c.js";\n')
    assert set(cycle_in(typescript_imports(package))) == {"c.ts", "d.ts"}
