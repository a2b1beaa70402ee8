"""`cli.py` before there is an environment: what it decides, and its first start from a fresh checkout.

The installers are stood in for by a small program on PATH, so that nothing is fetched; that the real ones
work is seen by whoever starts these tests through `python3 cli.py test`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Stands in for this Python's pip: puts a `uv` into the environment whose installation is the `hai_flow` of
# the checkout.
UV = """#!/bin/sh
echo "$@" >> "{log}"
test -e "{broken}" && exit 1
bin=$(dirname "$0")
site=$("$bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
echo "{checkout}" > "$site/checkout.pth"
"""
HAI_FLOW = """
import os, sys
print("hai_flow.cli", sys.argv[1:], os.getcwd(), sys.prefix)
"""


class Checkout:
    """A copy of what the bootstrap needs, with an installer that takes no time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory.parent / "installs"
        self.broken = directory.parent / "broken"
        self.cache = directory.parent / "cache"
        (directory / "hai_flow").mkdir(parents=True)
        for name in ("cli.py", "requirements.lock", "pyproject.toml"):
            shutil.copy(ROOT / name, directory / name)
        (directory / "hai_flow" / "__init__.py").touch()
        (directory / "hai_flow" / "cli.py").write_text(HAI_FLOW)
        # `python -m pip` of the Python that runs cli.py: found first on its path, for it is not isolated.
        pip = directory.parent / "stand-in" / "pip"
        pip.mkdir(parents=True)
        uv = UV.format(log=self.log, broken=self.broken, checkout=directory)
        (pip / "__init__.py").touch()
        (pip / "__main__.py").write_text(
            "import pathlib, sys\n"
            "assert sys.argv[-1] == 'uv', 'not even pip'\n"
            "uv = pathlib.Path(sys.argv[sys.argv.index('--python') + 1]).parent / 'uv'\n"
            f"uv.write_text({uv!r})\n"
            "uv.chmod(0o755)\n"
        )

    def command(self, *arguments: str) -> list[str]:
        # The stand-in reaches the installer through a wrapper, as cli.py keeps PYTHONPATH from installers.
        bootstrap = (
            "import runpy, sys, os, subprocess;"
            f"real = subprocess.run; stand_in = {str(self.directory.parent / 'stand-in')!r};"
            "subprocess.run = lambda command, **options: real(command, **{**options, 'env': "
            "{**(options.get('env') or os.environ), **({'PYTHONPATH': stand_in} if 'pip' in command[:3] else {})}});"
            f"sys.argv = {[str(self.directory / 'cli.py'), *arguments]!r};"
            f"runpy.run_path({str(self.directory / 'cli.py')!r}, run_name='__main__')"
        )
        return [sys.executable, "-c", bootstrap]

    def start(self, *arguments: str, cwd: Path | None = None, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=cwd or self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.cache), "XDG_CACHE_HOME": str(self.cache), **more},
        )

    def run(self, *arguments: str, cwd: Path | None = None, **more: str) -> tuple[int, str, str]:
        with self.start(*arguments, cwd=cwd, **more) as process:
            out, err = process.communicate()
            return process.returncode, out, err

    def installs(self) -> int:
        """How often the locked packages were installed."""
        return self.log.read_text().count("--require-hashes") if self.log.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "check out")  # with a space, as people's directories have


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_start_makes_the_environment_and_hands_over(checkout: Checkout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, out, err = checkout.run("run", "a b", "--flag", cwd=elsewhere)
    assert code == 0, err
    assert out == f"hai_flow.cli ['run', 'a b', '--flag'] {elsewhere} {checkout.directory / '.venv'}\n"
    assert "making" in err
    assert "ready after" in err


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_path_with_letters_of_other_scripts_does_in_every_locale(tmp_path: Path, locale: str) -> None:
    checkout = Checkout(tmp_path / "Jörgs 流程")
    for _ in range(2):
        code, out, err = checkout.run("dev", LC_ALL=locale)
        assert code == 0, err
        assert "hai_flow.cli ['dev']" in out


def test_the_second_start_installs_nothing_and_says_nothing(checkout: Checkout) -> None:
    checkout.run("install")
    began = time.monotonic()
    code, out, err = checkout.run("doctor")
    assert (code, err) == (0, "")
    assert out.startswith("hai_flow.cli ['doctor']")
    assert checkout.installs() == 1
    assert time.monotonic() - began < 20  # half a second on an idle machine


def test_a_changed_lock_is_installed_into_the_same_environment(checkout: Checkout) -> None:
    checkout.run("install")
    mark = checkout.directory / ".venv" / "in use"
    mark.touch()
    with (checkout.directory / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    checkout.run("install")
    assert checkout.installs() == 2
    assert mark.exists()


def test_a_broken_environment_is_made_anew(checkout: Checkout) -> None:
    checkout.run("install")
    environment = checkout.directory / ".venv"
    (environment / "bin" / "python").unlink()
    code, out, err = checkout.run("doctor")
    assert code == 0, err
    assert out.startswith("hai_flow.cli")


def test_a_failed_installation_is_a_sentence_and_is_tried_again(checkout: Checkout) -> None:
    checkout.broken.touch()
    code, _, err = checkout.run("doctor")
    assert code == 1
    assert "hai-flow: the packages could not be installed." in err
    assert 'Traceback (most recent call last):\n  File "' + str(checkout.directory) not in err
    assert not (checkout.directory / ".venv" / "hai-flow-stamp").exists()
    checkout.broken.unlink()
    code, _, err = checkout.run("doctor")
    assert code == 0, err


def test_two_first_starts_at_once_install_once(checkout: Checkout) -> None:
    processes = [checkout.start("doctor"), checkout.start("doctor")]
    answers = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert checkout.installs() == 1


def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout, bootstrap: ModuleType) -> None:
    before = bootstrap.stamp()
    vars(bootstrap).update(ROOT=checkout.directory, LOCK=checkout.directory / "requirements.lock")
    assert bootstrap.stamp() != before


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_checkout_has_its_environment_in_the_cache(checkout: Checkout) -> None:
    checkout.directory.chmod(0o555)
    try:
        code, out, err = checkout.run("doctor")
    finally:
        checkout.directory.chmod(0o755)
    assert code == 0, err
    assert str(checkout.cache / "hai-flow") in out


def test_an_environment_that_may_not_be_written_is_looked_for_in_the_cache(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Path] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bootstrap, "is_writable", lambda environment: False)
    monkeypatch.setattr(bootstrap, "is_ready", lambda environment, wanted: False)
    monkeypatch.setattr(bootstrap, "make", lambda environment, wanted: made.append(environment))
    assert bootstrap.ensure_environment() == made[0]
    assert made[0].is_relative_to(tmp_path / "hai-flow")


@pytest.mark.parametrize(
    ("so", "sentence"),
    [
        (
            "sys.version_info = (3, 9, 2, 'final', 0); sys.version = '3.9.2 (x)'",
            "HAI Flow needs Python 3.11 to 3.14; this is 3.9.2",
        ),
        ("sys.executable = ''", "HAI Flow can't tell where this Python is. Start it by its whole path"),
    ],
)
def test_a_python_that_will_not_do_is_refused_with_a_sentence(so: str, sentence: str) -> None:
    pretend = f"import sys; {so};exec(compile(open({str(ROOT / 'cli.py')!r}).read(), 'cli.py', 'exec'))"
    answer = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True)
    assert answer.returncode == 1
    assert answer.stderr.startswith(sentence)


@pytest.mark.parametrize(("cores", "each", "processes"), [(1, 1, 2), (2, 1, 2), (2, 2, 4), (3, 2, 6), (64, 2, 8)])
def test_tests_run_in_as_many_processes_as_the_cores_bear(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, cores: int, each: int, processes: int
) -> None:
    monkeypatch.setattr(bootstrap.os, "cpu_count", lambda: cores)
    assert bootstrap.parallel(["tests/test_settings.py"], each) == ["-n", str(processes), "--dist", "worksteal"]
    assert bootstrap.parallel(["-n0"], each) == []
    assert bootstrap.parallel(["--pdb"], each) == []


def test_paths_of_tests_are_relative_to_where_one_is(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "test_x.py").touch()
    monkeypatch.chdir(tmp_path)
    assert bootstrap.from_root("test_x.py::test_a") == f"{tmp_path}/test_x.py::test_a"
    assert bootstrap.from_root("tests/elsewhere.py") == "tests/elsewhere.py"
    assert bootstrap.from_root("-x") == "-x"


def test_a_path_with_workflow_tests_is_played_by_the_test_command(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "refund.test.yaml").touch()
    checkout.run("install")
    for arguments in (["flows", "-v"], ["flows/refund.test.yaml", "--json"], ["flows/gone.test.yml"]):
        code, out, err = checkout.run("test", *arguments, cwd=tmp_path)
        assert code == 0, err
        assert out.startswith(f"hai_flow.cli {['test', *arguments]!r} {tmp_path} ")


def test_tests_in_python_are_pytests_and_so_is_a_folder_that_has_both(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine/test_x.py", "mine/deep/a.test.yaml", "flows/b.test.yml", "no/c.yaml", "no/.venv/d.test.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert bootstrap.of_workflows(["mine/deep"])
    assert bootstrap.of_workflows(["flows", "-k", "late"])
    for arguments in (
        [],
        ["-x"],
        ["mine"],
        ["mine/test_x.py::test_a"],
        ["flows/b.test.yml::a case"],
        ["flows", "mine/test_x.py"],
        ["no"],
        ["nowhere"],
    ):
        assert not bootstrap.of_workflows(arguments), arguments


def test_pips_index_is_passed_on_to_uv(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example/simple")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    assert bootstrap.build_environment()["UV_DEFAULT_INDEX"] == "https://packages.example/simple"
    bootstrap.build_environment.cache_clear()
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://other.example/simple")
    assert bootstrap.build_environment()["UV_DEFAULT_INDEX"] == "https://other.example/simple"


def test_uv_works_without_a_cache_where_the_home_can_not_be_written(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UV_NO_CACHE", raising=False)
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    assert "UV_NO_CACHE" not in bootstrap.build_environment()
    bootstrap.build_environment.cache_clear()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/proc/nobody")  # not even root can make it
    assert bootstrap.build_environment()["UV_NO_CACHE"] == "1"


def test_a_start_that_is_interrupted_while_it_installs_says_so(checkout: Checkout) -> None:
    uv = checkout.directory.parent / "stand-in" / "pip" / "__main__.py"
    uv.write_text(f"import time\nopen({str(checkout.log)!r}, 'w').write('begun')\ntime.sleep(60)\n")
    with checkout.start("dev") as process:
        while not checkout.log.exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stopped; the next start goes on" in err


def test_no_registry_is_named_in_the_lock() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()
