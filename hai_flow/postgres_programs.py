"""A copy of PostgreSQL's programs for a user that can't reach them where they were installed: as root without user
namespaces the embedded server runs as another user, and the programs may lie below a folder that only root may enter.
The copy's name is the hash of its content, so an unfinished or changed one is detected. Everything in it belongs to us,
and no other user may write to it or above it. Standard library only, as `embedded.py`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hai_flow.errors import StoreError

PREFIX = "hai-flow-postgres-"
RUN_SECONDS_MAX = 60.0
PLACES = ("/tmp", "/var/tmp", "/run")  # after TMPDIR

_LEFT_OUT = ("include",)  # for compilers, as the archives are
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def runs_as(program: Path, uid: int, gid: int) -> bool:
    """Whether that user can execute `program`, with no right of ours."""
    try:
        answer = subprocess.run(
            [program, "--version"],
            user=uid,
            group=gid,
            extra_groups=[],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RUN_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0


def reachable_directory(directory: Path, uid: int, gid: int) -> Path:
    """`directory` of PostgreSQL's programs if that user can execute them, else that of a copy which it can.

    Only root may call it. Raises StoreError where no place is fit for a copy."""
    if runs_as(directory / "postgres", uid, gid) and runs_as(directory / "initdb", uid, gid):
        return directory
    trees = _trees(directory)
    name = PREFIX + _fingerprint(trees)
    tried: list[str] = []
    for place in _places():
        try:
            copy = _make_copy(trees, place / name)
        except (OSError, StoreError) as error:
            tried.append(f"{place}: {error}")
            continue
        copied = copy / directory.parent.parent.name / directory.parent.name / directory.name
        if runs_as(copied / "postgres", uid, gid) and runs_as(copied / "initdb", uid, gid):
            return copied
        tried.append(f"{place}: user {uid} can't execute programs there")
    raise StoreError(
        f"User {uid}, as whom PostgreSQL is to run, can't reach its programs in {directory}, and no place for a copy "
        f"of them will do ({'; '.join(tried)}). Install them where every user can reach them and name that directory "
        "in HAI_FLOW_PG_BIN, or name a server in HAI_FLOW_DATABASE_URL."
    )


def _places() -> Iterator[Path]:
    """The places where a copy may be, in the order to try: only those where no other user could replace it."""
    for place in dict.fromkeys((tempfile.gettempdir(), *PLACES)):
        path = Path(place).resolve()
        if path.is_dir() and all(_is_safe(each) for each in (path, *path.parents)):
            yield path


def _is_safe(directory: Path) -> bool:
    status = directory.stat()
    writable = status.st_mode & _WRITABLE_BY_OTHERS and not status.st_mode & stat.S_ISVTX
    return status.st_uid in (0, os.getuid()) and not writable


def _trees(directory: Path) -> dict[str, Path]:
    """The directories that the programs in `directory` need, by their places in a copy.

    Programs find their files relative to themselves, and those of a wheel also the libraries in the folder `.libs`
    beside their package."""
    installed = directory.resolve().parent
    package = installed.parent
    libraries = package.parent / f"{package.name}.libs"
    trees = {f"{directory.parent.parent.name}/{directory.parent.name}": installed}
    return trees | ({libraries.name: libraries} if libraries.is_dir() else {})


def _files(tree: Path) -> Iterator[Path]:
    """Every file of `tree` that a copy has, in an order that depends on nothing but names."""
    for parent, directories, files in os.walk(tree):
        directories[:] = sorted(set(directories) - set(_LEFT_OUT))
        yield from (Path(parent, name) for name in sorted(files) if not name.endswith(".a"))


def _fingerprint(trees: dict[str, Path]) -> str:
    """A hash of the files' places, contents and whether they are programs."""
    digest_of_all = hashlib.sha256()
    for name, tree in trees.items():
        for file in _files(tree):
            program = bool(file.stat().st_mode & stat.S_IXUSR)
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            digest_of_all.update(f"{name}\0{file.relative_to(tree)}\0{program}\0{digest}\n".encode())
    return digest_of_all.hexdigest()[:32]


def _make_copy(trees: dict[str, Path], target: Path) -> Path:
    """A sound copy of `trees` at `target`, made if it is not there. Raises OSError, StoreError."""
    if _is_sound(trees, target):
        return target
    if target.is_symlink() or (target.exists() and target.stat().st_uid != os.getuid()):
        raise StoreError(f"{target} is not ours; remove it")
    half = Path(tempfile.mkdtemp(prefix=PREFIX, dir=target.parent))
    try:
        for name, tree in trees.items():
            for file in _files(tree):
                _copy(file, half / name / file.relative_to(tree), half)
        half.chmod(0o755)
        if target.exists():  # unsound: a changed or damaged copy goes aside, for it can't be replaced in one step
            target.rename(half / "unsound")
            shutil.rmtree(half / "unsound")
        with contextlib.suppress(FileExistsError, OSError):  # another process was first
            half.rename(target)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    if not _is_sound(trees, target):
        raise StoreError(f"the copy in {target} does not stay as it was made")
    return target


def _copy(file: Path, target: Path, root: Path) -> None:
    """Copy one file with modes that let everybody read it, whatever our umask is."""
    missing = [each for each in target.parents if each.is_relative_to(root) and not each.exists()]
    for directory in reversed(missing):
        directory.mkdir()
        directory.chmod(0o755)
    shutil.copyfile(file, target)
    target.chmod(0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644)


def _is_sound(trees: dict[str, Path], copy: Path) -> bool:
    """Whether only we can write to `copy`, and it has exactly the files that the hash in its name stands for."""
    try:
        for parent, directories, files in os.walk(copy):
            if not _is_ours(Path(parent)) or not all(_is_ours(Path(parent, each)) for each in (*directories, *files)):
                return False
        return copy.is_dir() and PREFIX + _fingerprint({name: copy / name for name in trees}) == copy.name
    except OSError:
        return False


def _is_ours(path: Path) -> bool:
    status = path.lstat()
    kind = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    return kind and status.st_uid == os.getuid() and not status.st_mode & _WRITABLE_BY_OTHERS
