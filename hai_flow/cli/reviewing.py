"""The changes of workflow files against a commit of Git, in Markdown, for the review of a pull request.

People come first: the questions that they are asked, who decides, how many, and how long they have. Then the other
changes; and, of a server, the runs that wait at a step which is gone."""

from __future__ import annotations

import posixpath
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hai_flow.cli.author.sources import WORKFLOWS, read_whole
from hai_flow.cli.errors import UsageError
from hai_flow.definition.compiler import read_workflow
from hai_flow.definition.diff import Change, ChangedKey, Diff, diff
from hai_flow.definition.names.durations import spell
from hai_flow.definition.paths import plan_path
from hai_flow.definition.plan import Plan
from hai_flow.definition.yaml.include_keys import UnusableFile, include_files
from hai_flow.values import Json, dumps

_PEOPLE: Final = frozenset(
    ("from", "quorum", "pick", "deadline", "on_deadline", "escalate", "notify", "remind", "form", "edit", "reject_when",
     "veto", "withdraw_when", "not", "message", "evidence", "confirm", "policy", "approval")
)  # fmt: skip
_TIMES: Final = frozenset(("deadline", "timeout", "remind"))
_ASKING: Final = frozenset(("approve", "ask"))
_SHOWN_CHARS: Final = 120
_REMOVED: Final = "is removed"
FILES_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Review:
    """One file: its plans before and after (None: not there, or with errors), their difference, why there may be none,
    and the file that it was before it moved."""

    file: str
    old: Plan | None
    new: Plan | None
    changes: Diff | None
    note: str = ""
    moved_from: str = ""


def reviews(places: Sequence[Path], ref: str) -> list[Review]:
    """The workflow files at these places that are not as they were in the commit. Raises UsageError, also for a place
    that is neither here nor in the commit."""
    before: dict[str, None] = {}
    _check_ref(ref)
    now: dict[str, None] = {}
    for place in places:
        listed = _git("ls-tree", "-r", "-z", "--name-only", "--", _ref(ref), str(place)).decode(errors="replace")
        if not listed and not place.exists():
            raise UsageError(f"--against: expected a file or folder, found no {str(place)!r} here, and none in {ref}.")
        before.update(dict.fromkeys(name for name in listed.split("\0") if name.endswith(WORKFLOWS)))
        files = [place] if place.is_file() else sorted(place.rglob("*.flow.y*ml"))
        now.update(dict.fromkeys(path.as_posix() for path in files if path.is_file()))
    names = sorted({**before, **now})
    if len(names) > FILES_MAX:
        raise UsageError(f"expected at most {FILES_MAX} workflow files, found {len(names)}; name a folder of them.")
    results = [_review(name, ref, was=name in before, there=name in now) for name in names]
    return _join_moved([each for each in results if each is not None])


def _join_moved(results: Sequence[Review]) -> list[Review]:
    """The same, but a workflow that left one file and is new in another one is one review, with its difference."""
    removed = {each.old.name: each for each in results if each.old is not None and each.note == _REMOVED}
    added = {each.new.name: each for each in results if each.new is not None and each.old is None}
    moved = removed.keys() & added.keys()
    joined: list[Review] = []
    for each in results:
        plan = each.new or each.old
        was = removed[plan.name] if plan is not None and plan.name in moved else None
        if was is None or was.old is None or plan is None:
            joined.append(each)
        elif each is added[plan.name]:
            joined.append(Review(each.file, was.old, plan, diff(was.old, plan), moved_from=was.file))
        elif each is not was:
            joined.append(each)
    return joined


def _review(name: str, ref: str, *, was: bool, there: bool) -> Review | None:
    old = _read_source_in(ref, name) if was else b""
    new = read_whole(Path(name)) if there else b""
    if old == new:
        return None
    before, after = (read_workflow(source, name)[0] if source else None for source in (old, new))
    if not was:
        return Review(name, None, after, None, "is new" if after else "is new, and has errors")
    if not there:
        return Review(name, before, None, None, _REMOVED)
    if before is None or after is None:
        return Review(name, before, after, None, "has errors now" if after is None else f"has errors in {ref}")
    return Review(name, before, after, diff(before, after))


def _check_ref(ref: str) -> None:
    """Raises UsageError where there is no such commit here."""
    if not _git("rev-parse", "--is-inside-work-tree", refused=b"").strip():
        raise UsageError("--against: expected a checkout of Git, found none here; run it inside of one.")
    if not _git("rev-parse", "--verify", "--quiet", f"{_ref(ref)}^{{commit}}", refused=b""):
        raise UsageError(
            f"--against: there is no commit, branch or tag {ref!r} here; a CI often has none but its own: run "
            "`git fetch --depth=1 origin BRANCH` before, and name `FETCH_HEAD` or `origin/BRANCH`."
        )


def _ref(ref: str) -> str:
    if ref.startswith("-") or ":" in ref:
        raise UsageError(f"--against: expected a commit, branch or tag of Git, found {ref!r}.")
    return ref


def _read_source_in(ref: str, name: str) -> bytes:
    """The file in the commit, with the files that it uses there."""

    def read(used: str) -> bytes:
        try:
            return _read_at(ref, posixpath.normpath(posixpath.join(posixpath.dirname(name), used)))
        except UsageError:
            raise UnusableFile(f"{used} is not in {ref}") from None

    return include_files(_read_at(ref, name), read)


def _read_at(ref: str, name: str) -> bytes:
    return _git("show", f"{_ref(ref)}:./{name}")


def _git(*words: str, refused: bytes | None = None) -> bytes:
    """What Git prints. `refused`: what stands for it where Git refuses; else raises UsageError."""
    try:
        answer = subprocess.run(["git", *words], capture_output=True, check=False)
    except OSError as error:
        raise UsageError(f"--against needs Git: {error.strerror}.") from None
    if answer.returncode and refused is not None:
        return refused
    if answer.returncode:
        complaint = answer.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"--against: git says: {complaint[-1][:300] if complaint else 'nothing'}")
    return answer.stdout


# --- Markdown ---------------------------------------------------------------------------------------------------------


def as_markdown(found: Sequence[Review], ref: str, stranded: dict[str, list[Json]] | None) -> str:
    """The review. `stranded`: of each workflow, the open questions of runs whose step is gone; None: no server was
    asked."""
    return "\n".join(_lines(found, ref, stranded)) + "\n"


def _lines(found: Sequence[Review], ref: str, stranded: dict[str, list[Json]] | None) -> Iterator[str]:
    yield f"## Workflows, against `{ref}`"
    if not found:
        yield "\nNo workflow does anything else than before."
    for each in found:
        plan = each.new or each.old
        heading = f"`{plan.name}`" if plan is not None else "A workflow"
        if each.old is not None and each.new is not None:
            same = each.old.version == each.new.version
            heading += f" {each.new.version}" if same else f" {each.old.version} to {each.new.version}"
        was = f", was {each.moved_from}" if each.moved_from else ""
        yield f"\n### {heading} ({each.file}{was})\n"
        if each.changes is None:
            yield f"It {each.note}."
            continue
        if not each.changes:
            yield "It has moved, and does the same." if was else "It is written in another way, and does the same."
            continue
        if each.old is not None and each.new is not None and each.old.version == each.new.version:
            yield "**Its version is the same: a server that has it refuses this one. Raise it.**\n"
        yield from _changes(each.changes)
        if stranded is not None:
            yield from _iter_stranded_lines(stranded.get(plan.name if plan else "", []))


def _changes(changes: Diff) -> Iterator[str]:
    people = [*_iter_document_rows(changes, ("roles.", "visibility"))]
    others = [row for row in _iter_document_rows(changes, ("",)) if row not in people]
    for change in changes.steps:
        rows = list(_iter_step_rows(change))
        asks = change.verb in _ASKING
        people += [row for key, row in rows if asks or key in _PEOPLE]
        others += [row for key, row in rows if not asks and key not in _PEOPLE]
    for title, rows in (("What changes for people", people), ("Other changes", others)):
        if rows:
            yield f"**{title}**\n"
            yield "| where | what | before | now |"
            yield "|---|---|---|---|"
            yield from rows
            yield ""


def _iter_document_rows(changes: Diff, keys: Sequence[str]) -> Iterator[str]:
    yield from (_row("the workflow", part) for part in changes.document if part.key.startswith(tuple(keys)))


def _iter_step_rows(change: Change) -> Iterator[tuple[str, str]]:
    place = f"`{change.path}`"
    if change.kind in ("added", "removed"):
        yield "", f"| {place} | the `{change.verb}` is {'new' if change.kind == 'added' else 'gone'} | | |"
    elif change.was is not None and change.was != change.path:
        yield "", f"| {place} | it stood at `{change.was}` | | |"
    for part in change.parts:
        yield part.key.partition(".")[0], _row(place, part)


def _row(place: str, part: ChangedKey) -> str:
    return f"| {place} | `{part.key}` | {_cell(part.key, part.old)} | {_cell(part.key, part.new)} |"


def _spell_times(key: str, value: Json) -> Json:
    """The value with its durations as an author writes them: `2d`, not 172800000."""
    if isinstance(value, dict):
        return {name: _spell_times(name, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_spell_times(key, each) for each in value]
    return spell(value) if key in _TIMES and type(value) is int else value


def _cell(key: str, value: Json) -> str:
    """A value in a cell of a table, where no sign of it is Markdown."""
    if value is None:
        return "not there"
    value = _spell_times(key.rpartition(".")[2], value)
    text = value if isinstance(value, str) else dumps(value).decode()
    text = " ".join(text.split())
    text = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("`", "&#96;")
    return f"<code>{text}</code>"


def _iter_stranded_lines(pendings: Sequence[Json]) -> Iterator[str]:
    if not pendings:
        yield "No run waits at a step that is gone."
        return
    yield "**Runs that wait at a step that is gone** (they go on with their version; `runs migrate` can't move them)\n"
    for pending in pendings:
        yield f"- run `{pending['run_id']}` at `{pending['path']}`"


def find_stranded(review: Review, pendings: Sequence[Json]) -> list[Json]:
    """Those of the open questions whose step is not in the new version, or is the step of another verb there."""
    if review.old is None:
        return []
    same = review.changes.same if review.changes is not None else {}
    unchanged = review.changes is not None and not review.changes

    def is_gone(path: str) -> bool:
        own = plan_path(path)
        return own in review.old.steps and own not in same if review.old is not None and not unchanged else False

    return [pending for pending in pendings if is_gone(pending["path"])]
