"""`format: file` in a form: the answer is the id of an upload, which its answerer may read."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path

from tests.api.test_rest import Checked, http, start, wait_for_end
from tests.api.test_travel import published, waiting
from tests.support import commands
from tests.support.server import ServerProcess

__all__ = ["http"]

CLAIM = """
hai: flow/v1
name: {name}
version: 1
steps:
  - id: damage
    ask:
      title: What happened?
      from: anyone
      form:
        type: object
        required: [photo]
        properties: {{photo: {{type: string, format: file}}, words: {{type: string}}}}
output: ${{{{ steps.damage.output }}}}
"""


async def start_and_find_pending(http: Checked) -> tuple[str, str]:
    run = await waiting(http, start(http, published(http, CLAIM))["id"])
    (pending,) = http.get(f"/v1/runs/{run['id']}/snapshot").json()["pendings"]
    return run["id"], pending["id"]


async def test_an_answer_names_an_upload_and_nothing_else(http: Checked) -> None:
    run, pending = await start_and_find_pending(http)
    for wrong, code in (("photo.png", 422), ("file_" + "0" * 64, 404)):
        refused = http.post(f"/v1/pendings/{pending}/decide", json={"values": {"photo": wrong}})
        assert refused.status_code == code, refused.text
    refused = http.post(f"/v1/pendings/{pending}/decide", json={"values": {"photo": "photo.png"}})
    found = refused.json()["findings"]
    assert [each["path"] for each in found] == ["/photo"]
    assert "as an upload returns it" in found[0]["message"]
    file = http.post("/v1/files?name=photo.png", content=b"png", headers={"Content-Type": "image/png"}).json()["id"]
    assert http.post(f"/v1/pendings/{pending}/decide", json={"values": {"photo": file}}).status_code == 200
    assert wait_for_end(http, run)["output"] == {"photo": file}


async def test_decide_uploads_the_file_at_a_path(http: Checked, server: ServerProcess, tmp_path: Path) -> None:
    run, pending = await start_and_find_pending(http)
    (tmp_path / "scan.png").write_bytes(b"scanned")
    values = json.dumps({"photo": f"@{tmp_path}/scan.png", "words": "@home"})
    made = await asyncio.to_thread(commands.run, "decide", pending, "--values", values, HAI_FLOW_URL=server.url)
    assert made.returncode == 0, made.stderr
    output = wait_for_end(http, run)["output"]
    assert output["words"] == "@home"
    assert output["photo"] == f"file_{sha256(b'scanned').hexdigest()}"
