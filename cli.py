#!/usr/bin/env python3
"""The first command in a checkout: makes the environment in `.venv`, then hands over to `hai_flow.cli` in it.

    python3 cli.py dev                 everything in one process
    python3 cli.py test [pytest args]  the tests
    python3 cli.py quick               check, and the tests that need no database, no process and no seconds
    python3 cli.py test PATH...        the tests of workflows in a folder or file, as `hai-flow test` plays them
    python3 cli.py test-browsers       other people's frontends in a real browser; installs what they need
    python3 cli.py check               lint, types, direction of imports
    python3 cli.py install             only make or update the environment
    python3 cli.py ...                 anything else that `hai-flow` knows

Standard library only. What is installed is exactly `requirements.lock`, checked by its hashes.
"""

import contextlib
import fnmatch
import functools
import hashlib
import locale
import os
import pathlib
import shutil
import subprocess
import sys
import time

if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    sys.exit(
        f"HAI Flow needs Python 3.11 to 3.14; this is {sys.version.split()[0]} ({sys.executable}). "
        "Run it with another one, for example: python3.12 cli.py"
    )

if not sys.executable:
    sys.exit(
        "HAI Flow can't tell where this Python is. Start it by its whole path, for example: /usr/bin/python3 cli.py"
    )

try:
    import fcntl
except ImportError:
    sys.exit("HAI Flow runs on Linux and macOS; on Windows, use it inside WSL.")

ROOT = pathlib.Path(__file__).resolve().parent
LOCK = ROOT / "requirements.lock"
STAMP = "hai-flow-stamp"
WORKFLOW, PYTHON = "workflow", "python"  # kinds of tests
PYTESTS_MAX = 8  # they share one PostgreSQL and its connections
SOURCES = ("hai_flow", "clients/python", "plugins")
ADD_ONS = ("chaos", "conformance")  # packages of their own that add commands, below plugins/
PASSED_OVER = ("node_modules", "__pycache__", "site-packages")


class InstallError(Exception):
    """The environment could not be made. The message names the remedy."""


def main() -> None:
    """Make sure of the environment, then become the command that was asked for."""
    arguments = sys.argv[1:]
    demand_utf8()
    try:
        environment = ensure_environment()
    except InstallError as error:
        sys.exit(f"hai-flow: {error}")
    except KeyboardInterrupt:
        say("stopped; the next start goes on with the environment")
        sys.exit(130)
    python = str(environment / "bin" / "python")
    command = arguments[0] if arguments else ""
    if command == "install":
        return
    if command == "check":
        sys.exit(check(environment))
    if command == "quick":
        if check(environment):
            sys.exit(1)
        become([python, "-m", "pytest", "--quick", *parallel(arguments[1:], 1), *map(from_root, arguments[1:])], ROOT)
    if command == "test" and not of_workflows(arguments[1:]):
        compile_bytecode(environment, *(ROOT / name for name in SOURCES))
        if not any(os.path.exists(word.partition("::")[0]) for word in arguments[1:]):  # else it is quicker without
            subprocess.run([python, "-m", "tests.support.rewriting"], cwd=ROOT)
        become([python, "-m", "pytest", *parallel(arguments[1:], 2), *map(from_root, arguments[1:])], ROOT)
    if command == "test-browsers":
        tests = ["tests/browsers", *(f"tests/clients/test_{name}.py" for name in ("page", "examples", "visits"))]
        become([python, "-m", "pytest", *tests, *map(from_root, arguments[1:])], ROOT)
    # -P: no file of the current directory may replace a module of ours or of Python's.
    become([python, "-P", "-m", "hai_flow.cli", *arguments], None)


def demand_utf8() -> None:
    """Make the locale one of UTF-8 where the path of the checkout needs it. Python up to 3.12 reads the paths that are
    installed in an environment by the locale: `LC_ALL=C`, as of cron, would find no package below `/home/jörg`.
    """
    if not str(ROOT).isascii() and locale.getencoding().lower() not in ("utf-8", "utf8"):
        os.environ["LC_ALL"] = "C.UTF-8"


def become(command: list[str], directory: "pathlib.Path | None") -> None:
    """Turn this process into `command`, in `directory` if given. Does not return."""
    if directory is not None:
        os.chdir(directory)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)


def parallel(arguments: list[str], each: int) -> list[str]:
    """The arguments that spread the tests over `each` processes for every core, unless `arguments` say something about
    it: tests of databases and processes wait for half of their time. A process without work takes some of another's:
    else the last one is alone with the first thousand tests that it got.
    """
    chosen = any(word.startswith(("-n", "--numprocesses", "--pdb", "no:xdist")) for word in arguments)
    processes = min(max(2, (os.cpu_count() or 1) * each), PYTESTS_MAX)
    return [] if chosen else ["-n", str(processes), "--dist", "worksteal"]


def from_root(argument: str) -> str:
    """A path (or test id) given relative to the current directory, made absolute: the tests run in the
    checkout.
    """
    path, separator, rest = argument.partition("::")
    if path.startswith("-") or not os.path.exists(path):
        return argument
    return os.path.abspath(path) + separator + rest


def of_workflows(arguments: "list[str]") -> bool:
    """Whether the paths among the arguments of `test` hold tests of workflows and none in Python. Where there are
    both, pytest plays both.
    """
    places = [word for word in arguments if is_workflow_test(word) or os.path.exists(word.partition("::")[0])]
    kinds = [kinds_of_tests(place) for place in places]
    return any(WORKFLOW in each for each in kinds) and not any(PYTHON in each for each in kinds)


def kinds_of_tests(place: str) -> "set[str]":
    """The kinds of tests at `place`, a file or a folder: WORKFLOW, PYTHON."""
    if not os.path.isdir(place):
        return {WORKFLOW if is_workflow_test(place) else PYTHON}
    found = set()
    for _, folders, files in os.walk(place):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in PASSED_OVER]
        found |= {WORKFLOW for name in files if is_workflow_test(name)}
        found |= {PYTHON for name in files if fnmatch.fnmatch(name, "test_*.py") or fnmatch.fnmatch(name, "*_test.py")}
    return found


def is_workflow_test(name: str) -> bool:
    """Whether a file of this name holds tests of a workflow."""
    return name.endswith((".test.yaml", ".test.yml"))


def check(environment: pathlib.Path) -> int:
    """Run every static check and return 1 if any of them fails."""
    failed = []
    checks = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["pyrefly", "check"], ["lint-imports"])
    for name, *arguments in checks:
        say(f"{name} {' '.join(arguments)}".strip())
        if subprocess.run([str(environment / "bin" / name), *arguments], cwd=ROOT).returncode != 0:
            failed.append(name)
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def ensure_environment() -> pathlib.Path:
    """The directory of an environment that has exactly the locked packages, made or updated if need be."""
    wanted = stamp()
    candidates = [ROOT / ".venv", cache_directory() / "venv"]
    for environment in candidates:
        if is_ready(environment, wanted):
            return environment
    environment = candidates[0] if is_writable(candidates[0]) else candidates[1]
    # One at a time. The lock is a file that is there in any checkout, also where it is read-only.
    with open(__file__, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that makes the environment")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(environment, wanted):
            make(environment, wanted)
    return environment


def stamp() -> str:
    """A hash of everything that the environment depends on: the lock, the project, the kind of this Python (all builds
    of a minor version are one) and the checkout's place."""
    parts = [LOCK.read_bytes(), *((project / "pyproject.toml").read_bytes() for project in projects())]
    parts += [str(sys.implementation.cache_tag).encode(), os.fsencode(ROOT)]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def projects() -> "list[pathlib.Path]":
    """The projects of this checkout that are installed: the package, and those of its add-ons that are here."""
    add_ons = (ROOT / "plugins" / name for name in ADD_ONS)
    return [ROOT, *(add_on for add_on in add_ons if (add_on / "pyproject.toml").is_file())]


def cache_directory() -> pathlib.Path:
    """The directory for the environment of a checkout that we may not write to."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "hai-flow" / hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:16]


def is_ready(environment: pathlib.Path, wanted: str) -> bool:
    """Whether `environment` was finished for exactly `wanted` and this user can run it."""
    try:
        finished = (environment / STAMP).read_text() == wanted
    except OSError:
        return False
    return finished and os.access(str(environment / "bin" / "python"), os.X_OK)


def is_writable(environment: pathlib.Path) -> bool:
    """Whether this user may make or change `environment`."""
    return os.access(str(environment if environment.exists() else environment.parent), os.W_OK | os.X_OK)


def make(environment: pathlib.Path, wanted: str) -> None:
    """Make `environment`, or bring it up to date if its Python is ours. The stamp is written last of all."""
    began = time.monotonic()
    with contextlib.suppress(FileNotFoundError):
        (environment / STAMP).unlink()
    # A working one is updated in place, for other processes may be using it. A broken one is made anew.
    attempts = [False, True] if kind_of_python(environment) == sys.implementation.cache_tag else [True]
    for anew in attempts:
        try:
            if anew:
                say(f"making {environment} with Python {sys.version.split()[0]}")
                environment.parent.mkdir(parents=True, exist_ok=True)
                # Without pip: not every Python has ensurepip (Debian's comes in a package of its own).
                run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(environment)])
            install(environment)
            break
        except InstallError:
            if anew:
                raise
    (environment / STAMP).write_text(wanted)
    say(f"ready after {time.monotonic() - began:.0f} s")


def kind_of_python(environment: pathlib.Path) -> "str | None":
    """The kind of the Python in `environment` as it says it itself, such as "cpython-311"; None if there is none that
    works."""
    try:
        answer = subprocess.run(
            [str(environment / "bin" / "python"), "-c", "import sys; print(sys.implementation.cache_tag, end='')"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        return None
    return answer.stdout if answer.returncode == 0 else None


def install(environment: pathlib.Path) -> None:
    """Install the locked packages and the project itself, by the first installer that can: uv is ten times faster than
    pip."""
    python = str(environment / "bin" / "python")
    errors = []
    for installer in (installed_uv, uv_on_path, pip_of_this_python, pip_of_the_environment):
        try:
            command = installer(environment)
            say(f"installing {locked_packages()} packages with {'uv' if command[0].endswith('uv') else 'pip'}")
            run([*command, "--require-hashes", "-r", str(LOCK)])
            # The build's own requirement (the backend) is not in the lock; it is gone when the build is done.
            run([*command, "--no-deps", *(word for project in projects() for word in ("-e", str(project)))])
            run([python, "-c", "import hai_flow"])
            compile_bytecode(environment, environment / "lib", *(ROOT / name for name in SOURCES))
            return
        except InstallError as error:
            errors.append(str(error))
            say(f"{installer.__name__.replace('_', ' ')} did not do; trying the next way")
    raise InstallError("the packages could not be installed.\n" + "\n".join(errors))


def compile_bytecode(environment: pathlib.Path, *directories: pathlib.Path) -> None:
    """Compile all modules in `directories` that are newer than their bytecode. Where PYTHONDONTWRITEBYTECODE is set, as
    in many containers, every process would compile everything that it imports, a second of a processor for a server.
    Where nothing can be written (a checkout that is read-only), processes do so all the same."""
    command = [str(environment / "bin" / "python"), "-m", "compileall", "-q", "-j", "0"]
    with contextlib.suppress(InstallError):
        run([*command, *map(str, directories)])


def installed_uv(environment: pathlib.Path) -> "list[str]":
    """uv, put into the environment by this Python's pip."""
    uv = environment / "bin" / "uv"
    if not os.access(str(uv), os.X_OK):
        say("fetching uv")
        # `--python` because Debian's own Python refuses to install into itself.
        python = str(environment / "bin" / "python")
        run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "uv"])
    return uv_command(str(uv), environment)


def uv_on_path(environment: pathlib.Path) -> "list[str]":
    """A uv that this machine already has."""
    uv = shutil.which("uv")
    if uv is None:
        raise InstallError("There is no uv on PATH.")
    return uv_command(uv, environment)


def uv_command(uv: str, environment: pathlib.Path) -> "list[str]":
    """How `uv` installs into `environment`."""
    return [uv, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python")]


def pip_of_this_python(environment: pathlib.Path) -> "list[str]":
    """The pip of the Python that runs this."""
    python = str(environment / "bin" / "python")
    return [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]


def pip_of_the_environment(environment: pathlib.Path) -> "list[str]":
    """A pip that Python brings along, for Pythons that have none installed."""
    python = str(environment / "bin" / "python")
    run([python, "-m", "ensurepip"])
    return [python, "-m", "pip", "install", "--quiet"]


def separate_environment(directory: pathlib.Path, lock: pathlib.Path) -> pathlib.Path:
    """An environment of exactly what `lock` names, apart from the project's; made unless it is there for this lock.
    Raises InstallError.
    """
    stamp = directory / "lock"
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return directory
    errors = []
    for installer in (uv_of_the_project, uv_on_path, installed_uv, pip_of_this_python, pip_of_the_environment):
        try:
            run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(directory)])
            run([*installer(directory), "--require-hashes", "-r", str(lock)])
        except InstallError as error:
            errors.append(str(error))
        else:
            stamp.write_bytes(lock.read_bytes())
            return directory
    raise InstallError("\n".join(errors))


def uv_of_the_project(environment: pathlib.Path) -> "list[str]":
    """The uv that this Python's environment was installed with."""
    uv = pathlib.Path(sys.prefix) / "bin" / "uv"
    if not uv.exists():
        raise InstallError(f"There is no {uv}.")
    return uv_command(str(uv), environment)


def locked_packages() -> int:
    """How many packages the lock names."""
    return sum(1 for line in LOCK.read_text().splitlines() if line[:1].isalnum())


def run(command: "list[str]") -> None:
    """Run `command`; its output is shown only if it fails, as part of the InstallError."""
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=build_environment()
        )
    except OSError as error:
        raise InstallError(f"{command[0]} could not be run: {error.strerror}.") from error
    if answer.returncode != 0:
        output = answer.stdout.decode(errors="replace").strip().splitlines()[-15:]
        raise InstallError("\n".join([f"This failed: {' '.join(command)}", *output]))


@functools.cache
def build_environment() -> "dict[str, str]":
    """The environment of installers, with pip's index as uv's: uv does not read pip's configuration."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    # Not so pip's *extra* indexes: uv would prefer them to the index that has the locked packages.
    told = environment.get("PIP_INDEX_URL") or pip_setting("global.index-url")
    if told:
        environment.setdefault("UV_DEFAULT_INDEX", told)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if "UV_CACHE_DIR" not in environment and not is_makeable(pathlib.Path(cache) / "uv"):
        environment["UV_NO_CACHE"] = "1"  # uv does nothing where it can't make its cache
    return environment


def is_makeable(directory: pathlib.Path) -> bool:
    """Whether `directory` is there for this user to write to, or they may make it."""
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
    return os.access(str(directory), os.W_OK | os.X_OK)


def pip_setting(name: str) -> str:
    """The value of `name` in pip's configuration files; empty if it has none, or there is no pip."""
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return answer.stdout.strip() if answer.returncode == 0 else ""


def say(text: str) -> None:
    """One line of progress, where it does not mix with a command's output."""
    print(f"hai-flow: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
