"""The mutants fit the source as it is, the list of survivors is of mutants that there are, and the runner can tell."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import sets
from tests.mutants.mutant import ROOT, DoesNotApply, Mutant, Room
from tests.mutants.sampling import estimate, shuffle

MUTANTS_MIN = 200
SURVIVORS_SHARE_MAX = 0.05


@functools.cache
def mutants() -> tuple[Mutant, ...]:
    return tuple(sets.all_mutants())


@functools.cache
def functions_of(file: str) -> frozenset[str]:
    """The functions of a file, and of the files of tests that it runs once more by importing them."""
    tree = ast.parse((ROOT / file).read_text())
    found = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module is not None and each.module.startswith("tests."):
            for module in (f"{each.module.replace('.', '/')}/{name.name}.py" for name in each.names):
                if Path(module).name.startswith("test_"):
                    found |= functions_of(module)
    return frozenset(found)


@pytest.mark.slow
def test_every_mutant_fits_the_source_as_it_is_today() -> None:
    sources: dict[str, str] = {}
    for mutant in mutants():
        source = sources.setdefault(mutant.file, (ROOT / mutant.file).read_text())
        assert mutant.applied(source) != source, mutant.name


@pytest.mark.slow
def test_every_mutant_has_a_name_of_its_own_and_tests_that_exist() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in mutants()).items() if count > 1] == []
    for mutant in mutants():
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert (ROOT / file).is_file(), f"{mutant.name} names {test}"
            assert not name or name.partition("[")[0] in functions_of(file), f"{mutant.name} names {test}"


def test_every_room_is_tried_and_none_under_anothers_name() -> None:
    folder = Path(sets.__file__).parent
    for module in {path.stem for path in folder.glob("*.py")} - {"chaos", "mutant", "test_mutants"}:
        tree = ast.parse((folder / f"{module}.py").read_text())
        made = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and ast.unparse(each.func) == "Room"]
        rooms = [each for each in sets.MODULES if each.__name__ == f"tests.mutants.{module}"]
        assert len(made) == sum(isinstance(each, Room) for room in rooms for each in vars(room).values()), module


def test_there_are_enough_mutants_and_few_survivors() -> None:
    assert len(mutants()) >= MUTANTS_MIN
    assert len(sets.survivors()) <= SURVIVORS_SHARE_MAX * len(mutants())


def test_every_survivor_is_a_mutant_that_there_is_and_says_why_it_survives() -> None:
    names = {mutant.name for mutant in mutants()}
    assert [each.mutant for each in sets.survivors() if each.mutant not in names] == []
    assert [each.mutant for each in sets.survivors() if len(each.why.split()) < 4] == []
    assert max(Counter(each.mutant for each in sets.survivors()).values(), default=0) <= 1


@pytest.mark.parametrize(
    ("old", "words"), [("not there", "found 0 times"), ("a", "found 2 times"), ("(b", "unreadable")]
)
def test_a_mutant_that_does_not_fit_the_source_says_so(old: str, words: str) -> None:
    mutant = Mutant("a bug", "some.py", ((old, "x"),), ("tests/test_some.py",))
    with pytest.raises(DoesNotApply, match=words):
        mutant.applied("aa = (b)\n")


def test_each_beginning_of_the_order_holds_the_same_share_of_every_file() -> None:
    counts = {"a": 60, "b": 30, "c": 1}
    made = [Mutant(f"{file} {number}", file, (), ()) for file, count in counts.items() for number in range(count)]
    for seed in range(20):
        order = shuffle(made, seed)
        assert Counter(order) == Counter(made)
        found = Counter(each.file for each in order[:30])
        assert abs(found["a"] - 20) <= 1
        assert abs(found["b"] - 10) <= 1
    assert shuffle(made, 1) != shuffle(made, 2)
    alone = [each for each in made if each.file == "a"]
    assert shuffle(alone, 1) == [each for each in shuffle(made, 1) if each.file == "a"]


@pytest.mark.parametrize(
    ("killed", "tried", "all_", "bounds"),
    [
        (95, 100, 10**9, (0.888, 0.978)),  # as tables of Wilson's interval have it
        (10, 10, 10**9, (0.722, 1.0)),
        (95, 100, 101, (0.946, 0.954)),  # one is left
        (95, 100, 100, (0.95, 0.95)),
        (0, 0, 100, (0.0, 1.0)),
    ],
)
def test_the_share_of_all_lies_in_an_interval(killed: int, tried: int, all_: int, bounds: tuple[float, float]) -> None:
    share, least, most = estimate(killed, tried, all_)
    assert (least, most) == pytest.approx(bounds, abs=0.001)
    assert least <= share <= most


TOY = {
    "hai_flow/__init__.py": "",
    "hai_flow/testing/__init__.py": "",
    "hai_flow/testing/plugin.py": "",
    "hai_flow/toy.py": "def double(n):\n    if n > 1000:\n        return n + n\n    return 2 * n\n",
    "tests/__init__.py": "",
    "tests/test_toy.py": """
        from hai_flow.toy import double

        def test_doubling():
            assert double(3) == 6
        """,
    "tests/test_broken.py": """
        from hai_flow.toy import double

        def test_wrong():
            assert double(3) == 7

        def test_right():
            assert double(3) == 6
        """,
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-q -p no:cacheprovider'\n",
}
TRY = """
import sys
from pathlib import Path
from tests.mutants.mutant import Mutant
from tests.mutants.running import run, workshop

def bug(name, old, new, tests="tests/test_toy.py"):
    return Mutant(name, "hai_flow/toy.py", ((old, new),), (tests,))

tried = [
    bug("noticed", "2 * n", "3 * n"),
    bug("not noticed", "n + n", "n - n"),
    bug("of another length, in the same second", "2 * n", "n * 2 + 1"),
    bug("can't be imported", "def double(n):", "import nothing_of_this_name\\ndef double(n):"),
    bug("equivalent", "2 * n", "n * 2"),
    bug("of a test that always fails", "2 * n", "3 * n", "tests/test_broken.py"),
    bug("of a test beside it", "2 * n", "3 * n", "tests/test_broken.py::test_right"),
]
root = Path(sys.argv[1])
before = (root / "hai_flow/toy.py").read_text()
with workshop(root, database=False) as shop:
    assert run(shop, tried, 2, lambda mutant, result: None, until=0) == {}
    for name, result in run(shop, tried, 2, lambda mutant, result: None).items():
        print(name, result.outcome, result.late, sep=": ")
    shop.seconds = 2
    endless = bug("waits for ever", "    return 2 * n", "    while True: pass")
    for name, result in run(shop, [endless], 1, lambda mutant, result: None).items():
        print(name, result.outcome, result.late, sep=": ")
assert (root / "hai_flow/toy.py").read_text() == before
"""


@pytest.mark.costly
def test_the_runner_tells_what_is_noticed_from_what_is_not(tmp_path: Path) -> None:
    for name, text in TOY.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    plugin = tmp_path / "tests" / "mutants"
    plugin.mkdir()
    (plugin / "__init__.py").touch()
    (plugin / "plugin.py").write_text((ROOT / "tests" / "mutants" / "plugin.py").read_text())
    found = subprocess.run(
        [sys.executable, "-c", TRY, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.splitlines()) == [
        "can't be imported: invalid: False",
        "equivalent: survived: False",
        "not noticed: survived: False",
        "noticed: killed: False",
        "of a test beside it: killed: False",
        "of a test that always fails: invalid: False",
        "of another length, in the same second: killed: False",
        "waits for ever: killed: True",
    ]
