"""`dev` while one works: what is saved is loaded, what could not be loaded is tried again, and Python code is new."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import httpx2
import pytest

from hai_flow.cli.serve.dev import beginnings
from tests.support.commands import SECONDS_MAX, Process, run, started
from tests.support.postgres import execute, run_apart

pytestmark = pytest.mark.costly

CHILD = (
    "hai: flow/v1\nname: zoo\nversion: 1\ninput: {type: object, properties: {n: {type: integer}}}\nsteps: [say: hi]\n"
)
PARENT = "hai: flow/v1\nname: all\nversion: 1\nsteps: [{id: sub, run: zoo, with: {n: 1}}]\n"
PRICES = "def price():\n    return 1\n"
SHOP = "from lib.prices import price\ndef sell():\n    return price() * 10\n"
DAYS = """
hai: flow/v1
name: sale
version: 1
tools: {till: {python: till}}
steps:
  - {wait: {for: 1d}}
  - {id: sell, call: till.sell}
  - {id: asked, ask: {title: More?, from: anyone, form: {type: object}, deadline: 1d, on_deadline: {default: {}}}}
output: ${{ steps.sell.output }}
"""
CALLER = (
    "hai: flow/v1\nname: sale\nversion: 1\ntools: {till: {python: till}}\nsteps: [{id: sell, call: till.sell}]\n"
    "output: ${{ steps.sell.output }}\n"
)


Working: TypeAlias = "Callable[[dict[str, str]], AbstractContextManager[Work]]"


class Work:
    """A folder in which somebody works while `dev` runs there. `since` is what it has said since the last `save`."""

    def __init__(self, folder: Path, dev: Process, url: str) -> None:
        self.folder = folder
        self.url = url
        self._dev = dev
        self._heard = len(dev.output)

    def save(self, name: str, text: str) -> None:
        self._heard = len(self._dev.output)
        write(self.folder / name, text)

    def hears(self, pattern: str) -> re.Match[str]:
        return self._dev.wait_for(rf"(?s)\A.{{{self._heard}}}.*?{pattern}")

    @property
    def since(self) -> str:
        return self._dev.output[self._heard :]

    def finds(self, output: int) -> None:
        """Let a run of `sale` give this output."""
        self.ends(self.begins(), output)

    def begins(self) -> str:
        """The id of a new run of `sale`."""
        return str(httpx2.post(f"{self.url}/v1/runs", json={"workflow": "sale", "input": {}}).json()["id"])

    def ends(self, begun: str, output: int) -> None:
        """Wait until a run has finished, with this output."""
        deadline = time.monotonic() + SECONDS_MAX
        while (found := httpx2.get(f"{self.url}/v1/runs/{begun}/snapshot").json())["status"] != "finished":
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        assert found["output"] == output


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def working(database_url: str, tmp_path: Path) -> Working:
    """`dev` in a folder with these files, by their paths."""

    @contextmanager
    def begin(files: dict[str, str]) -> Iterator[Work]:
        folder = tmp_path / "project"
        folder.mkdir()
        for name, text in files.items():
            write(folder / name, text)
        dev = ("dev", "--port", "0", "--no-open")
        with started(tmp_path / "log", *dev, folder=folder, HAI_FLOW_DATABASE_URL=database_url) as process:
            url = process.wait_for(r"Serving (http://\S+)")[1]
            process.wait_for(r"curl \S+/v1/runs\n")
            yield Work(folder, process, url)
            assert "Traceback" not in process.output
            assert "exception was never retrieved" not in process.output

    return begin


def test_parents_are_loaded_whatever_their_files_are_called(working: Working) -> None:
    with working({"workflows/a.yaml": PARENT, "workflows/b.yaml": CHILD}) as work:
        assert {each["name"] for each in httpx2.get(f"{work.url}/v1/workflows").json()["items"]} == {"all", "zoo"}


def test_what_lacked_a_child_is_loaded_when_the_child_is(working: Working) -> None:
    broken = CHILD.replace("say: hi", "sya: hi")
    with working({"workflows/a.yaml": PARENT, "workflows/b.yaml": broken}) as work:
        work.save("workflows/c.yaml", CHILD.replace("zoo", "other"))
        work.hears(r"workflows/c\.yaml is saved and published as other@1\+")
        assert "a.yaml" not in work.since  # what is wrong with it has been said
        work.save("workflows/b.yaml", CHILD)
        work.hears(r"workflows/b\.yaml is saved and published as zoo@1\+[0-9a-f]{8}\n")
        work.hears(r"workflows/a\.yaml can be loaded now: published as all@1\+[0-9a-f]{8}\n")


def test_a_parent_that_a_new_child_does_not_fit_is_named_once_each_way(working: Working) -> None:
    with working({"workflows/a.yaml": PARENT, "workflows/b.yaml": CHILD}) as work:
        work.save("workflows/b.yaml", CHILD.replace("n: {", "many: {"))
        work.hears(r"workflows/a\.yaml is published, but no longer fits what it calls:\n")
        work.save("workflows/b.yaml", CHILD)
        work.hears(r"workflows/a\.yaml fits what it calls again\.\n")


def test_a_workflow_is_loaded_anew_when_a_file_is_saved_that_it_uses(working: Working) -> None:
    tools = "hai: shared/v1\ntools: {till: {python: till}}\n"
    flow = CALLER.replace("tools: {till: {python: till}}", "use: [../shared/tools.yaml, deep/roles.yaml]")
    files = {
        "workflows/sale.yaml": flow,
        "workflows/deep/roles.yaml": "hai: shared/v1\nroles: {sre: [user:ann]}\n",
        "shared/tools.yaml": tools,
        "till.py": "def sell():\n    return 10\n",
    }
    with working(files) as work:
        work.finds(10)
        first = httpx2.get(f"{work.url}/v1/workflows/sale").json()["sha256"]
        work.save("shared/tools.yaml", tools.replace("till}}", "till, efect: read}}"))
        work.hears(r"workflows/sale\.yaml is not loaded:\n")
        work.hears(r"shared/tools\.yaml:2:\d+: unknown key `efect`")
        work.save("shared/tools.yaml", tools.replace("till}}", "till, effect: read}}"))
        work.hears(r"workflows/sale\.yaml .*published as sale@1\+[0-9a-f]{8}\n")
        second = httpx2.get(f"{work.url}/v1/workflows/sale").json()["sha256"]
        assert first != second
        work.save("workflows/deep/roles.yaml", "hai: shared/v1\nroles: {sre: [user:bob]}\n")
        work.hears(r"workflows/sale\.yaml .*published as sale@1\+[0-9a-f]{8}\n")
        work.finds(10)


def test_a_file_that_nobody_can_look_for_does_not_end_the_watch(working: Working) -> None:
    unheard_of = CHILD.replace("version: 1\n", f"version: 1\nuse: [{'a' * 300}.yaml]\n")
    assert unheard_of != CHILD
    with working({"workflows/a.yaml": unheard_of}) as work:
        work.save("workflows/a.yaml", CHILD)
        work.hears(r"workflows/a\.yaml is saved and published as zoo@1\+")


def test_a_folder_that_appears_later_is_watched(working: Working) -> None:
    with working({}) as work:
        work.save("workflows/deep/b.yaml", CHILD)
        work.hears(r"workflows/deep/b\.yaml is saved and published as zoo@1\+")


def test_the_next_attempt_runs_saved_code_and_a_mistake_keeps_the_old_code(working: Working) -> None:
    files = {"workflows/sale.yaml": CALLER, "till.py": SHOP, "lib/prices.py": PRICES}
    with working(files) as work:
        work.finds(10)
        work.save("lib/prices.py", PRICES.replace("1", "2"))
        work.hears(r"lib/prices\.py saved; loaded anew: lib\.prices, till\n")
        work.finds(20)
        work.save("lib/prices.py", "def price(:\n")
        work.hears(r"lib/prices\.py:1: SyntaxError: .*\nThe code stays as it was before this was saved\.\n")
        work.finds(20)
        work.save("lib/prices.py", PRICES.replace("1", "3"))
        work.hears("loaded anew: lib.prices, till")
        work.finds(30)
        work.save("till.py", SHOP.replace("sell", "buy"))
        work.hears(r"workflows/sale\.yaml is published, but no longer fits what it calls:\n.*has no function `sell`")
        work.save("till.py", SHOP)
        work.hears("fits what it calls again")


def test_a_detached_run_goes_on_at_the_server_with_the_projects_tools(working: Working) -> None:
    with working({"workflows/sale.yaml": CALLER, "till.py": SHOP, "lib/prices.py": PRICES}) as work:
        detached = run("run", "workflows/sale.yaml", "--detach", folder=work.folder, HAI_FLOW_URL=work.url)
        assert detached.returncode == 0, detached.stderr
        begun = detached.stdout.removesuffix("\n")
        assert re.search(
            rf"sale@1\+[0-9a-f]{{8}} is started\..*\n.* events {begun} --follow\n.* pendings\n", detached.stderr
        )
        work.ends(begun, 10)
        told = run("run", "workflows/sale.yaml", "--detach", "--json", "--server", work.url, folder=work.folder)
        work.ends(json.loads(told.stdout)["run_id"], 10)


def test_what_a_server_refuses_of_a_detached_run_is_told_of_its_file(working: Working) -> None:
    with working({"workflows/sale.yaml": CALLER, "till.py": SHOP, "lib/prices.py": PRICES}) as work:
        work.save("other.yaml", CALLER.replace("name: sale", "name: other"))
        refused = run("run", "other.yaml", "--detach", folder=work.folder, HAI_FLOW_URL=work.url)
        assert refused.returncode == 1
        assert re.search(r"^  other\.yaml:\d+:\d+: step .*'till' is not a module", refused.stderr, re.M), refused.stderr


def test_what_is_detached_needs_a_server() -> None:
    flow = "workflows/weather.flow.yaml"
    alone = run("run", flow, "-i", "city=Rome", "--detach", HAI_FLOW_URL="http://127.0.0.1:9")
    assert (alone.returncode, alone.stdout) == (4, "")
    assert "No server answers" in alone.stderr
    both = run("run", flow, "-i", "city=Rome", "--detach", "--data-dir", "there")
    assert both.returncode == 2
    assert "--detach: expected a server" in both.stderr


def test_days_pass_at_once_but_for_the_time_that_the_run_works(working: Working) -> None:
    with working({"workflows/sale.yaml": DAYS, "till.py": SHOP, "lib/prices.py": PRICES}) as work:
        begun = work.begins()
        wrong = run("jump", begun, "two days", HAI_FLOW_URL=work.url)
        assert wrong.returncode == 2
        assert "DURATION: expected a duration such as 90s" in wrong.stderr
        jumped = run("jump", begun, "36h", HAI_FLOW_URL=work.url)
        assert jumped.stdout == f"1d12h have passed for run {begun}: waiting\n", jumped.stderr
        assert re.search(r"^(1d|23h\d+m) have passed; the run goes on. When it waits again, .* pass\.", jumped.stderr)
        told = run("jump", begun, "12h", "--json", HAI_FLOW_URL=work.url)
        assert 0 < json.loads(told.stdout)["passed_ms"] <= 12 * 3_600_000
        work.ends(begun, 10)
        events = run("events", begun, HAI_FLOW_URL=work.url)
        assert len(re.findall(r" ⏩ \S+ at once, by user:local\n", events.stdout)) == 3
        assert run("jump", begun, "1d", HAI_FLOW_URL=work.url).returncode == 1


def test_what_lacked_a_module_is_loaded_when_that_is_mended(working: Working) -> None:
    files = {"workflows/sale.yaml": CALLER, "till.py": SHOP, "lib/prices.py": PRICES.replace(":", "")}
    with working(files) as work:
        work.save("lib/prices.py", PRICES)
        work.hears(r"workflows/sale\.yaml can be loaded now: published as sale@1\+")
        work.finds(10)


def test_what_the_database_did_not_take_is_tried_again(working: Working, database_url: str) -> None:
    with working({"workflows/b.yaml": CHILD}) as work:
        run_apart(execute(database_url, "ALTER TABLE workflows RENAME TO away"))
        work.save("workflows/b.yaml", CHILD + "# again\n")
        work.hears(r"workflows/b\.yaml is not loaded yet: the database failed")
        run_apart(execute(database_url, "ALTER TABLE away RENAME TO workflows"))
        work.hears(r"workflows/b\.yaml can be loaded now: published as zoo@1\+")


def test_in_a_project_without_workflows_it_is_told_how_to_begin_one(tmp_path: Path) -> None:
    folder = tmp_path / "my flows"
    missing = list(beginnings(folder, {"chat"}))
    assert missing[0] == f"There is no folder {folder} yet; these are the examples that come along."
    assert missing[-1].endswith(f" new NAME -o '{folder}'")
    folder.mkdir()
    (folder / "notes.txt").write_text("")
    (folder / "first.test.yaml").write_text("")
    assert next(beginnings(folder, set())) == f"There is no workflow in {folder} yet."
    (folder / "first.flow.yaml").write_text("")
    assert list(beginnings(folder, set())) == []


ASKING = """
hai: flow/v1
name: asking
version: 1
roles: {nurse: [group:nurses], boss: [user:bob], board: [user:cleo, user:dan]}
steps:
  - id: both
    parallel:
      nurse: [{approve: {title: Is it so?, from: role:nurse}}]
      boss: [{approve: {title: May it be?, from: role:boss}}]
      board:
        - approve: {title: And you?, from: role:board, quorum: 2}
        - approve: {title: The head?, from: role:head}
"""


def test_every_command_printed_for_a_question_answers_it_verbatim(working: Working) -> None:
    with working({"workflows/asking.flow.yaml": ASKING}) as work:
        url = {"HAI_FLOW_URL": work.url}
        began = run("run", "asking", "--server", work.url, folder=work.folder)
        assert began.returncode == 3
        begun = httpx2.get(f"{work.url}/v1/runs").json()["items"][0]["id"]
        printed = [began.stderr, run("pendings", **url).stdout]
        deadline = time.monotonic() + SECONDS_MAX
        while httpx2.get(f"{work.url}/v1/runs/{begun}").json()["status"] != "finished":
            assert time.monotonic() < deadline
            hints = re.findall(r"decide \S+ approve.*", printed.pop() if printed else run("show", begun, **url).stdout)
            open_ones = {each["id"] for each in httpx2.get(f"{work.url}/v1/pendings").json()["items"]}
            for hint in [each for each in hints if each.split()[1] in open_ones][:1]:
                answered = run(*shlex.split(hint), **url)
                assert answered.returncode == 0, (hint, answered.stderr)


def test_dev_tells_the_warnings_of_a_file_as_validate_does(working: Working) -> None:
    steps = "steps: [{approve: {title: x, from: role:a, on_deadline: approve}}]"
    with working({"workflows/zoo.yaml": CHILD}) as work:
        work.save("workflows/silent.flow.yaml", f"hai: flow/v1\nname: silent\nversion: 1\n{steps}\n")
        work.hears(r"warning: nobody's answer counts as approval here")


def test_publish_to_ones_own_dev_takes_the_tools_of_the_project(working: Working) -> None:
    files = {"workflows/zoo.yaml": CHILD, "till.py": "def sell():\n    return 7\n", "sale.flow.yaml": CALLER}
    with working(files) as work:
        published = run("publish", "sale.flow.yaml", "--server", work.url, folder=work.folder)
        assert published.returncode == 0, published.stderr
        work.finds(7)
