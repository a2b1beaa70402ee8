"""`hai-flow files`, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import run
from tests.support.postgres import Server
from tests.support.server import serving


def test_a_file_is_put_and_got_by_its_id(postgres_server: Server, tmp_path: Path) -> None:
    (tmp_path / "plan.pdf").write_bytes(b"%PDF\x00\xff")
    with postgres_server.database() as dsn, serving(dsn) as server:
        put = run("files", "put", "plan.pdf", folder=tmp_path, HAI_FLOW_URL=server.url)
        assert put.returncode == 0, put.stderr
        assert "plan.pdf: 6 bytes, application/pdf" in put.stderr
        id = put.stdout.strip()
        got = run("files", "get", id, "-o", "again.pdf", folder=tmp_path, HAI_FLOW_URL=server.url)
        assert got.returncode == 0, got.stderr
        assert (tmp_path / "again.pdf").read_bytes() == b"%PDF\x00\xff"
        stranger = run("files", "get", id, "-o", "x", "--as", "user:eve", folder=tmp_path, HAI_FLOW_URL=server.url)
        assert stranger.returncode != 0
        assert "there is no file" in stranger.stderr
        assert not (tmp_path / "x").exists()


def test_a_workflow_is_put_as_it_is_without_the_files_that_it_uses(postgres_server: Server, tmp_path: Path) -> None:
    source = b"hai: flow/v1\nname: uses\nversion: 1\nuse: [tools.yaml]\nsteps: [{id: hello, say: Hello}]\n"
    (tmp_path / "uses.flow.yaml").write_bytes(source)
    (tmp_path / "tools.yaml").write_bytes(b"hai: tools/v1\ntools: {}\n")
    with postgres_server.database() as dsn, serving(dsn) as server:
        put = run("files", "put", "uses.flow.yaml", folder=tmp_path, HAI_FLOW_URL=server.url)
        assert put.returncode == 0, put.stderr
        assert f"uses.flow.yaml: {len(source)} bytes" in put.stderr
        got = run("files", "get", put.stdout.strip(), "-o", "again", folder=tmp_path, HAI_FLOW_URL=server.url)
        assert got.returncode == 0, got.stderr
    assert (tmp_path / "again").read_bytes() == source


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    put = run("files", "put", "plan.pdf", folder=tmp_path)
    assert put.returncode == 2
    assert "plan.pdf: expected a file that can be read: No such file or directory." in put.stderr
