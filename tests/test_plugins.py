"""What installed packages add to a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow import plugins


def install(folder: Path, name: str, entry_points: str) -> None:
    about = folder / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(entry_points)


def test_a_package_offers_what_its_entry_points_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme_plans", "[acme.plans]\nbasic = acme_plans:basic\n[acme.others]\nbasic = acme_plans:other\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [(each.name, each.value) for each in plugins.list_offers("acme.plans")] == [("basic", "acme_plans:basic")]


def test_a_package_of_a_folder_that_is_searched_later_counts_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "acme_late", "[acme.late]\none = acme_late\n")
    assert not plugins.list_offers("acme.late")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.list_offers("acme.late")
