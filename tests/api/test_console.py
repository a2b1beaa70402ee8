"""How the console's files are served: kept for ever or not at all, packed, under a policy without exceptions."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import os
from pathlib import Path

import httpx2
import pytest

from hai_flow.api.rest.console import POLICY, Console, _build
from tests.support.waiting import until

PAGES = {
    "index.html": "<!doctype html><title>index</title>",
    "decide.html": "<!doctype html><title>decide</title>",
    "assets/index-C0ffee.js": "console.log(1)",
    "elements.js": "export {}",
    "elements.d.ts": "export {}",
    "licenses.md": "MIT",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Built pages, as a wheel has them."""
    (tmp_path / "built" / "assets").mkdir(parents=True)
    for name, text in PAGES.items():
        (tmp_path / "built" / name).write_text(text)
        (tmp_path / "built" / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        (tmp_path / "built" / f"{name}.br").write_bytes(b"brotli")
    (tmp_path / "secret.js").write_text("no page of ours")
    return tmp_path / "built"


def client(*folders: Path, sources: Path | None = None) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(Console(folders, sources))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers={"Accept-Encoding": "identity"})


def test_it_is_known_whether_there_are_pages(folder: Path, tmp_path: Path) -> None:
    assert Console((tmp_path / "nothing", folder)).is_served
    assert Console((tmp_path / "nothing",), sources=tmp_path).is_served, "they are built as soon as somebody looks"
    assert not Console((tmp_path / "nothing",)).is_served


async def test_any_path_is_the_page_that_handles_it_and_decisions_have_their_own(folder: Path) -> None:
    async with client(folder) as http:
        for path, title in (
            ("/", "index"),
            ("/inbox/call_1", "index"),
            ("/decide/call_1", "decide"),
            ("/runs", "index"),
        ):
            page = await http.get(path)
            assert (page.status_code, page.headers["content-security-policy"]) == (200, POLICY), path
            assert f"<title>{title}</title>" in page.text
            assert "cache-control" not in page.headers  # the guard says no-store


def test_the_policy_excepts_nothing() -> None:
    assert "unsafe" not in POLICY
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in POLICY
    assert POLICY.startswith("default-src 'none'")


async def test_an_asset_is_kept_for_ever_and_packed_as_the_browser_takes_it(folder: Path) -> None:
    async with client(folder) as http:
        for accepted, encoding in (
            ("gzip, deflate, br", "br"),
            ("gzip", "gzip"),
            ("br;q=0, gzip", "gzip"),
            ("identity", None),
        ):
            asset = await http.get("/assets/index-C0ffee.js", headers={"Accept-Encoding": accepted})
            assert asset.headers.get("content-encoding") == encoding, accepted
            assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert asset.headers["content-type"].startswith("text/javascript")
            assert asset.headers["vary"] == "Accept-Encoding"


async def test_the_elements_have_a_lasting_address_cached_for_ten_minutes(folder: Path) -> None:
    async with client(folder) as http:
        for path, media_type in (("/elements.js", "text/javascript"), ("/elements.d.ts", "text/plain")):
            answer = await http.get(path)
            assert answer.headers["content-type"].startswith(media_type)
            assert answer.headers["cache-control"] == "public, max-age=600"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/gone.js",
        "/assets/../../secret.js",
        "/%2e%2e/secret.js",
        "/assets/index-C0ffee.js.gz",
        "/index.html",
        "/a.js%00",
    ],
)
async def test_nothing_but_the_pages_is_there(folder: Path, path: str) -> None:
    async with client(folder) as http:
        assert (await http.get(path)).status_code == 404
        assert (await http.post("/")).status_code == 405


async def test_a_checkout_without_built_pages_says_how_to_get_them(tmp_path: Path) -> None:
    async with client(tmp_path / "dist") as http:
        page = await http.get("/")
    assert page.status_code == 503
    assert "make console" in page.text


async def test_a_development_server_builds_the_pages_when_somebody_looks(folder: Path, tmp_path: Path) -> None:
    sources, built = tmp_path / "sources", tmp_path / "dist"
    sources.mkdir()
    (sources / "building.py").write_text(
        f"import os, shutil, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
        f"shutil.copytree({str(folder)!r}, {str(built)!r})\n"
    )
    async with client(built, sources=sources) as http:
        waiting = await http.get("/")
        assert waiting.status_code == 200
        assert int(waiting.headers["refresh"]) >= 1
        assert "being built" in waiting.text
        style = waiting.text.partition("<style>")[2].partition("</style>")[0]
        allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'sha256-{allowed}'" in waiting.headers["content-security-policy"], "its look is applied"
        assert "unsafe" not in waiting.headers["content-security-policy"]
        chinese = await http.get("/", headers={"Accept-Language": "zh-CN,zh;q=0.9"})
        assert '<html lang="zh-CN">' in chinese.text
        assert "正在构建控制台" in chinese.text
        (tmp_path / "go").touch()
        async with asyncio.timeout(60):
            while "<title>index</title>" not in (await http.get("/")).text:
                pass


async def test_a_development_server_builds_the_elements_before_it_sends_them(folder: Path, tmp_path: Path) -> None:
    sources, built = tmp_path / "sources", tmp_path / "dist"
    sources.mkdir()
    (sources / "building.py").write_text(f"import shutil\nshutil.copytree({str(folder)!r}, {str(built)!r})\n")
    async with client(built, sources=sources) as http:
        assert (await http.get("/elements.js")).text == "export {}"


@pytest.mark.costly
async def test_a_server_that_ends_while_it_builds_leaves_no_process_behind(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    building = f"import os, pathlib, time\npathlib.Path({str(begun)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    (tmp_path / "building.py").write_text(building)
    task = asyncio.create_task(_build(tmp_path))
    await until(lambda: begun.exists() and begun.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


async def test_a_build_that_fails_says_why_and_is_tried_again(folder: Path, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "building.py").write_text("import sys\nsys.exit('no <registry> answers')\n")
    async with client(tmp_path / "dist", sources=sources) as http:
        async with asyncio.timeout(60):
            while (failed := await http.get("/")).status_code != 503:
                pass
        assert "no &lt;registry&gt; answers" in failed.text
        (sources / "building.py").write_text("")
        async with asyncio.timeout(60):
            while "make console" not in (await http.get("/")).text:  # it ended well, and built nothing
                pass
