"""Changed modules of a project are loaded anew: they, what imports them, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from hai_flow.errors import StepError
from hai_flow.steps.python.project import Project, Reloaded
from hai_flow.steps.python.toolbox import Toolbox
from hai_flow.steps.tools import registered

PRICES = "BASE = 1\ndef price(): return BASE\n"
REFUNDS = "from hai_flow import tool\nfrom .prices import price\n@tool('shop.pay')\ndef refund(): return price() * 10\n"
SHOP = {"__init__.py": "", "prices.py": PRICES, "refunds.py": REFUNDS, "apart.py": "COUNT = []\n"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the package `acme_store`, last on the path as `dev` has it."""
    for name, text in SHOP.items():
        write(tmp_path / "acme_store" / name, text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    registered.forget({name for name in registered.modules() if name.startswith("acme_store")})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def refunded(root: Path) -> object:
    toolbox = Toolbox(["acme_store.refunds"], project=root)
    return toolbox.find("acme_store.refunds", "refund", "shop").function()


def test_what_imports_a_changed_module_is_loaded_anew_with_it(root: Path) -> None:
    project = Project(root)
    assert refunded(root) == 10
    apart = import_module("acme_store.apart")
    write(root / "acme_store" / "prices.py", PRICES.replace("1", "2"))  # of the same size, in the same second
    assert project.reload(["acme_store.prices"]) == Reloaded(("acme_store.prices", "acme_store.refunds"))
    assert refunded(root) == 20
    assert sys.modules["acme_store.apart"] is apart
    assert import_module("acme_store.prices") is sys.modules["acme_store"].prices  # type: ignore[attr-defined]


def test_who_holds_the_old_code_goes_on_with_it(root: Path) -> None:
    refund = Toolbox(["acme_store.refunds"]).find("acme_store.refunds", "refund", "shop").function
    write(root / "acme_store" / "prices.py", PRICES.replace("1", "2"))
    Project(root).reload(["acme_store.prices"])
    assert refund() == 10


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("BASE = \n", "acme_store/prices.py:1: SyntaxError: invalid syntax"),
        ("BASE = 2\nBASE = 1 / 0\n", "acme_store/prices.py:2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "acme_store/prices.py:2: SystemExit: 3"),
        ("BASE = 2\n", "acme_store/refunds.py:2: ImportError: cannot import name 'price'"),
    ],
)
def test_what_can_not_be_imported_leaves_everything_as_it_was(root: Path, text: str, place: str) -> None:
    project = Project(root)
    toolbox = Toolbox([], project=root)
    before = toolbox.find("acme_store.refunds", "refund", "shop", from_disk=True)
    modules = {name: module for name, module in sys.modules.items() if name.startswith("acme_store")}
    write(root / "acme_store" / "prices.py", text)
    reloaded = project.reload(["acme_store.prices"])
    assert reloaded.modules == ()
    assert reloaded.fault.startswith(place)
    assert {name: module for name, module in sys.modules.items() if name.startswith("acme_store")} == modules
    assert modules["acme_store"].prices is modules["acme_store.prices"]
    after = toolbox.find("acme_store.refunds", "refund", "shop", from_disk=True)
    assert after.function is before.function
    assert after.function() == 10


def test_a_change_that_failed_to_load_is_loaded_with_its_mend(root: Path) -> None:
    project = Project(root)
    assert refunded(root) == 10
    write(root / "acme_store" / "prices.py", "BASE = 3\n")
    assert project.reload(["acme_store.prices"]).fault
    write(
        root / "acme_store" / "refunds.py",
        "from hai_flow import tool\nfrom .prices import BASE\n@tool('shop.pay')\ndef refund(): return BASE\n",
    )
    assert project.reload(["acme_store.refunds"]).modules == ("acme_store.prices", "acme_store.refunds")
    assert refunded(root) == 3


def test_a_tool_that_is_renamed_or_removed_is_no_tool_any_more(root: Path) -> None:
    toolbox = Toolbox(["acme_store.refunds"], project=root)
    assert toolbox.find("acme_store.refunds", "refund", "shop").function() == 10
    write(root / "acme_store" / "refunds.py", REFUNDS.replace("def refund", "def give_back"))
    assert Project(root).reload(["acme_store.refunds"]).fault == ""
    assert toolbox.find("acme_store.refunds", "give_back", "shop").function() == 10
    with pytest.raises(StepError, match="it registers give_back"):
        toolbox.find("acme_store.refunds", "refund", "shop")


def test_a_failed_modules_registrations_do_not_count_once_it_is_mended(root: Path) -> None:
    toolbox = Toolbox(["acme_store.refunds"], project=root)
    write(root / "acme_store" / "refunds.py", REFUNDS + "1 / 0\n")
    with pytest.raises(StepError, match="can't import"):
        toolbox.find("acme_store.refunds", "refund", "shop")
    write(root / "acme_store" / "refunds.py", REFUNDS.replace("def refund", "def give_back"))
    assert toolbox.find("acme_store.refunds", "give_back", "shop").function() == 10


def test_a_package_is_loaded_anew_with_the_modules_in_it(root: Path) -> None:
    assert refunded(root) == 10
    write(root / "acme_store" / "__init__.py", "NAME = 'store'\n")
    assert Project(root).reload(["acme_store"]).modules == ("acme_store", "acme_store.prices", "acme_store.refunds")


def test_a_module_whose_file_is_gone_is_let_go(root: Path) -> None:
    assert refunded(root) == 10
    write(root / "acme_store" / "refunds.py", REFUNDS.replace("prices", "pricing"))
    (root / "acme_store" / "prices.py").rename(root / "acme_store" / "pricing.py")
    assert Project(root).reload(["acme_store.prices", "acme_store.refunds"]).fault == ""
    assert refunded(root) == 10


def test_a_modules_files_are_its_own_and_its_imports_even_if_broken(root: Path) -> None:
    write(root / "acme_store" / "prices.py", "BASE = \n")
    store = root / "acme_store"
    assert Project(root).files(["acme_store.refunds"]) == {
        store / "__init__.py": "acme_store",
        store / "refunds.py": "acme_store.refunds",
        store / "prices.py": "acme_store.prices",
    }
    assert "acme_store" not in sys.modules


@pytest.mark.costly
def test_what_is_python_s_installed_or_ours_is_not_the_project_s() -> None:
    """Here all of it lies below the root: the checkout, with its environment."""
    files = Project(Path(__file__).resolve().parents[2]).files(
        ["hai_flow.examples", "yaml", "json", "tests.steps.broken"]
    )
    assert "tests.steps.broken" in files.values()
    assert not {name for name in files.values() if name.partition(".")[0] in ("hai_flow", "yaml", "json", "pytest")}
    everything = Project(Path("/")).files([])
    assert not {
        name for name in everything.values() if name.partition(".")[0] in ("hai_flow", "yaml", "json", "pytest")
    }
