"""Which functions workflows may call: those that the deployment says, whatever the workflow names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hai_flow.errors import StepError
from hai_flow.steps.python.toolbox import Toolbox

SHOP = """
import subprocess
from functools import wraps
from subprocess import getoutput
from hai_flow import tool
from acme_parts import polish, weld

@tool
def refund(order: str) -> str:
    return f"refunded {order}"

@tool("shop.book")
def _book(order: str) -> str:
    return f"booked {order}"

def audited(function):
    @wraps(function)
    def call(**given):
        return "audited: " + function(**given)
    return call

@audited
@tool
def pay(order: str) -> str:
    return f"paid {order}"

def helper(order: str) -> str:
    return order
"""
PARTS = """
from hai_flow import tool

@tool
def weld() -> str:
    return "welded"

def polish() -> str:
    return "polished"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules of a shop's, last on the path as `dev` has it."""
    (tmp_path / "acme_shop.py").write_text(SHOP)
    (tmp_path / "acme_parts.py").write_text(PARTS)
    (tmp_path / "calendar.py").write_text("def wipe() -> None: ...\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "stock.py").write_text("from hai_flow import tool\n@tool\ndef count(): return 3\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def found(toolbox: Toolbox, call: str, module: str, *, from_disk: bool = False) -> Callable[..., Any]:
    name, _, function = call.partition(".")
    return toolbox.find(module, function, name, from_disk=from_disk).function


def refusal(toolbox: Toolbox, call: str, module: str, *, from_disk: bool = False) -> StepError:
    with pytest.raises(StepError) as caught:
        found(toolbox, call, module, from_disk=from_disk)
    return caught.value


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("subprocess", "sh.getoutput"),
        ("os", "sh.system"),
        ("builtins", "sh.exec"),
        ("pty", "sh.spawn"),
        ("importlib", "sh.import_module"),
        ("acme_shop:subprocess", "sh"),
        ("hai_flow.examples:re", "sh"),
    ],
)
@pytest.mark.parametrize("from_disk", [False, True])
def test_no_module_of_python_or_of_ours_is_a_tool(project: Path, module: str, call: str, from_disk: bool) -> None:
    toolbox = Toolbox(["hai_flow.examples"], project=project)
    assert refusal(toolbox, call, module, from_disk=from_disk).code in ("tool.not_allowed", "tool.unavailable")


def test_a_module_that_is_not_allowed_is_not_even_imported(project: Path) -> None:
    error = refusal(Toolbox(["hai_flow.examples"]), "shop.refund", "acme_shop")
    assert (error.code, error.retriable) == ("tool.not_allowed", False)
    assert "acme_shop" not in sys.modules
    assert "takes tools from (hai_flow.examples)" in error.message
    assert "HAI_FLOW_TOOLS" in error.message


def test_a_module_of_the_deployment_offers_only_its_registered_tools(project: Path) -> None:
    toolbox = Toolbox(["acme_shop"])
    assert found(toolbox, "shop.refund", "acme_shop")(order="o1") == "refunded o1"
    assert found(toolbox, "shop.book", "acme_shop")(order="o1") == "booked o1"
    for name in ("helper", "getoutput", "subprocess", "weld", "polish", "tool"):
        error = refusal(toolbox, f"shop.{name}", "acme_shop")
        assert error.code == "tool.unavailable", name
        assert "it registers _book, pay, refund" in error.message


def test_what_wraps_a_tool_is_called_around_it(project: Path) -> None:
    assert found(Toolbox(["acme_shop"]), "shop.pay", "acme_shop")(order="o1") == "audited: paid o1"


def test_a_tool_of_another_module_counts_where_that_module_does(project: Path) -> None:
    assert found(Toolbox(["acme_shop", "acme_parts"]), "shop.weld", "acme_shop")() == "welded"


def test_a_star_allows_the_modules_below(project: Path) -> None:
    toolbox = Toolbox(["tools.*"])
    assert found(toolbox, "stock.count", "tools.stock")() == 3
    assert refusal(toolbox, "stock.count", "toolset.stock").code == "tool.not_allowed"


def test_files_of_the_folder_tools_count_and_others_do_not(project: Path) -> None:
    toolbox = Toolbox.of([], project)
    assert found(toolbox, "stock.count", "tools.stock")() == 3
    assert refusal(toolbox, "shop.refund", "acme_shop").code == "tool.not_allowed"


def test_a_link_that_leads_out_of_the_folder_tools_does_not_count(project: Path) -> None:
    (project / "tools" / "shop.py").symlink_to(project / "acme_shop.py")
    assert refusal(Toolbox.of([], project), "shop.refund", "tools.shop").code == "tool.not_allowed"


def test_a_workflow_on_disk_calls_its_projects_functions_not_their_imports(project: Path) -> None:
    toolbox = Toolbox([], project=project)
    assert found(toolbox, "shop.helper", "acme_shop", from_disk=True)(order="o1") == "o1"
    for name in ("getoutput", "polish", "subprocess", "_book", "wraps"):
        assert refusal(toolbox, f"shop.{name}", "acme_shop", from_disk=True).code == "tool.unavailable", name
    assert refusal(toolbox, "shop.helpr", "acme_shop", from_disk=True).message.startswith(
        "expected a function 'helpr' that acme_shop defines; it defines "
    )
    assert refusal(toolbox, "shop.helper", "acme_shop").code == "tool.not_allowed"


def test_a_file_that_python_does_not_import_by_name_is_no_tool(project: Path) -> None:
    """Python has a module `calendar` of its own, which comes first."""
    error = refusal(Toolbox([], project=project), "diary.TextCalendar", "calendar", from_disk=True)
    assert error.code == "tool.unavailable"


def test_registered_means_a_name_that_an_allowed_module_has_registered(project: Path) -> None:
    toolbox = Toolbox(["acme_shop"])
    toolbox.load()
    assert found(toolbox, "shop.book", "")(order="o1") == "booked o1"
    assert "found none in the modules" in refusal(toolbox, "weld", "").message


def test_a_named_module_that_python_does_not_find_is_reported_at_start() -> None:
    with pytest.raises(StepError, match="can't import no_such_module"):
        Toolbox(["no_such_module"]).load()


def test_a_module_that_exits_on_import_is_one_that_fails_to_import(project: Path) -> None:
    (project / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    error = refusal(Toolbox([], project=project), "t.f", "leaving", from_disk=True)
    assert error.message == "can't import leaving: SystemExit: 3"


def test_installed_packages_offer_tools_by_entry_point(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = project / "acme_shop-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: acme-shop\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[hai_flow.tools]\nshop = acme_shop\n")
    assert found(Toolbox.of([], project), "shop.refund", "acme_shop")(order="o1") == "refunded o1"


def test_a_partial_of_a_project_function_is_a_tool_and_others_are_none(project: Path) -> None:
    (project / "parts.py").write_text(
        "import subprocess\nfrom functools import partial\ndef cut(n): return n\n"
        "cut_two = partial(cut, n=2)\nshell = partial(subprocess.getoutput)\n"
    )
    toolbox = Toolbox([], project=project)
    assert found(toolbox, "t.cut_two", "parts", from_disk=True)() == 2
    assert refusal(toolbox, "t.shell", "parts", from_disk=True).code == "tool.unavailable"
