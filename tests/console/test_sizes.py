"""What a browser loads first is small: the first page, the page of one decision for a phone, and the elements."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

KB = 1000


def first_load(built: Path, entry: str) -> int:
    """The bytes, packed by gzip, that the entry and all that it imports at once take."""
    page = (built / entry).read_text()
    found, open_ = set[str](), re.findall(r"assets/[\w.-]+\.(?:js|css)", page)
    while open_:
        name = open_.pop()
        if name in found:
            continue
        found.add(name)
        if name.endswith(".js"):
            text = (built / name).read_text()
            imported = re.findall(r'(?:import|from)\s*"\./([\w.-]+\.js)"', text)
            open_ += [f"assets/{each}" for each in imported]
    assert any(name.endswith(".js") for name in found)
    return (built / f"{entry}.gz").stat().st_size + sum((built / f"{name}.gz").stat().st_size for name in found)


def test_the_first_page_is_at_most_160_kb(built: Path, record_property: Callable[[str, object], None]) -> None:
    measured(record_property, "first page", size := first_load(built, "index.html"))
    assert size <= 160 * KB


def test_a_decision_is_at_most_45_kb(built: Path, record_property: Callable[[str, object], None]) -> None:
    measured(record_property, "a decision", size := first_load(built, "decide.html"))
    assert size <= 45 * KB


def test_the_elements_are_one_file_of_at_most_60_kb(
    built: Path, record_property: Callable[[str, object], None]
) -> None:
    measured(record_property, "the elements", size := (built / "elements.js.gz").stat().st_size)
    assert size <= 60 * KB
    text = (built / "elements.js").read_text()
    assert re.findall(r"\bimport\s*[({\"']|\bfrom\s*\"", text) == [], "it loads nothing else"


def test_the_elements_say_in_chinese_why_nobody_can_decide_and_no_more(built: Path) -> None:
    text = (built / "elements.js").read_text()
    assert all(each in text for each in ("没有指定代理人", "没有持有密钥的人符合", "您无权决定此问题", "类型不对"))
    assert not any(each in text for each in ("邮件服务器拒绝了收件人", "没有可以冻结的这一对象", "YAML 的语法不对"))


def test_the_hash_of_the_elements_is_that_of_the_file(built: Path) -> None:
    digest = base64.b64encode(hashlib.sha384((built / "elements.js").read_bytes()).digest()).decode()
    assert json.loads((built / "elements.json").read_text()) == {"file": "elements.js", "integrity": f"sha384-{digest}"}


def measured(record_property: Callable[[str, object], None], what: str, size: int) -> None:
    found = {f"{what}, bytes packed by gzip": size}
    record_property("measured", found)
    print(json.dumps(found))
