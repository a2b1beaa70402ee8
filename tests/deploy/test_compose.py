"""deploy/compose: the services that are ours do their work as processes, by the file's own commands and environment."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import jsonschema_rs
import pytest
import yaml

from hai_flow.settings import Settings, describe, variables_of_files
from tests.support import compose
from tests.support.commands import ROOT, SECONDS_MAX, Process, run, started
from tests.support.installations import Installation, installed
from tests.support.postgres import Server, run_apart
from tests.support.redis_server import RedisServer, find_server
from tests.support.scraping import Scrape
from tests.support.waiting import until

FOLDER: Final = ROOT / "deploy" / "compose"
FILE: Final = FOLDER / "compose.yaml"
SCHEMA: Final = Path(__file__).parent / "compose-spec.json"
OURS: Final = ("migrate", "server-1", "server-2", "worker-1", "worker-2")
SECRETS: Final = "/run/secrets/"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of secrets, as the script makes it."""
    folder = tmp_path_factory.mktemp("compose")
    script = shutil.copy(FOLDER / "secrets.sh", folder)
    assert subprocess.run(["sh", script], check=True, capture_output=True, text=True).stdout.startswith("Made")
    return folder / "secrets"


def test_the_file_is_one_of_the_compose_specification() -> None:
    schema = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
    assert [error.message for error in schema.iter_errors(yaml.safe_load(FILE.read_text()))] == []
    broken = {"services": {"server-1": {"comand": ["serve"]}}}
    assert not schema.is_valid(broken), "the schema knows the keys"


def test_every_file_that_is_mounted_and_every_secret_is_there(secrets: Path) -> None:
    document = compose.read(FILE, {})
    assert {Path(each["file"]).name for each in document["secrets"].values()} == {p.name for p in secrets.iterdir()}
    for name, service in document["services"].items():
        assert set(service.get("secrets", [])) <= set(document["secrets"]), name
        assert set(service.get("networks", [])) <= set(document["networks"]), name
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in document["volumes"], mount
        for path in re.findall(rf"{SECRETS}(\w+)", json.dumps(service)):
            assert path in service["secrets"], f"{name} reads {path}"
    for path in re.findall(rf"{SECRETS}(\w+)", (FOLDER / "roles.sh").read_text()):
        assert path in document["services"]["postgres"]["secrets"]
    assert SECRETS + "metrics_token" in (FOLDER / "prometheus.yml").read_text()
    assert "metrics_token" in document["services"]["prometheus"]["secrets"]


def test_secrets_are_made_once_and_never_overwritten(secrets: Path) -> None:
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    assert len(set(before.values())) == len(before)
    again = subprocess.run(["sh", secrets.parent / "secrets.sh"], check=True, capture_output=True, text=True)
    assert "nothing was changed" in again.stdout
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before


def test_containers_of_ours_have_no_rights_and_a_root_that_is_read_only() -> None:
    document = compose.read(FILE, {})
    for name in OURS:
        service = document["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        wait = re.fullmatch(r"(\d+)s", service["stop_grace_period"])
        assert wait is not None
        assert int(wait[1]) > Settings().shutdown_seconds


def test_every_variable_is_a_setting_of_ours() -> None:
    settings = {name for name, _, _ in describe()} | set(variables_of_files())
    for name in OURS:
        assert set(compose.service(compose.read(FILE, {}), name).environment) <= settings


@dataclass
class Running:
    """A service that runs here: `metrics` is where it shows them, `url` where a server answers."""

    process: Process
    metrics: str
    url: str


class House:
    """The deployment. Names of other containers and secrets are replaced by what stands for them here."""

    def __init__(self, folder: Path, secrets: Path, there: Installation, redis: str) -> None:
        self.folder = folder
        self.redis = redis
        self.secrets = folder / "secrets"
        shutil.copytree(secrets, self.secrets)
        for name, url in (("owner_url", there.owner), ("database_url", there.role)):
            (self.secrets / name).write_text(url)
        self.document = compose.read(FILE, {"HAI_FLOW_PUBLISH": "1"})
        self.running: dict[str, Running] = {}

    def environment(self, name: str) -> dict[str, str]:
        """The service's own; each has loopback for itself, so it takes a free port of it."""
        here = {
            "0.0.0.0:9464": "127.0.0.1:0",
            "0.0.0.0": "127.0.0.1",
            "/var/lib/hai-flow": str(self.folder / "witness"),
        }
        here |= {"redis://redis:6379/0": self.redis}
        given = compose.service(self.document, name).environment
        given = {key: here.get(value, value.replace(SECRETS, f"{self.secrets}/")) for key, value in given.items()}
        return {**given, "HAI_FLOW_PORT": "0"}

    def start(self, stack: ExitStack, name: str) -> Running:
        command = compose.service(self.document, name).command
        log = self.folder / f"{name}-{len(list(self.folder.iterdir()))}"
        process = stack.enter_context(started(log, *command, **self.environment(name)))
        metrics = process.wait_for(r"Metrics are at (http://\S+)/metrics\.")[1]
        found = process.wait_for(r"Serving (http://\S+)" if command == ["serve"] else r"Worker (\d+) performs")
        self.running[name] = Running(process, metrics, found[1])
        assert self.healthy(name), "the image's health check passes"
        return self.running[name]

    def healthy(self, name: str) -> bool:
        environment = {"HAI_FLOW_METRICS": self.running[name].metrics.removeprefix("http://")}
        check = [sys.executable, str(ROOT / "deploy" / "image" / "healthy.py")]
        return subprocess.run(check, env=environment, capture_output=True).returncode == 0

    def stop(self, name: str) -> None:
        assert self.running[name].process.end(signal.SIGTERM) == 143
        assert not self.healthy(name)

    def scrapes(self) -> dict[str, Scrape]:
        """What each target of the Prometheus configuration tells, asked for as it says."""
        (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
        file = job["authorization"]["credentials_file"].replace(SECRETS, f"{self.secrets}/")
        headers = {"Authorization": f"Bearer {Path(file).read_text()}"}
        found: dict[str, Scrape] = {}
        for target in job["static_configs"][0]["targets"]:
            name = target.removesuffix(":9464")
            place = f"{self.running[name].metrics}/metrics"
            assert httpx2.get(place).status_code == 401
            found[name] = Scrape(httpx2.get(place, headers=headers).raise_for_status().text)
        return found


@pytest.fixture
def house(postgres_server: Server, tmp_path: Path, secrets: Path) -> Iterator[House]:
    (sql,) = re.findall(r"<<'SQL'\n(.*?)^SQL$", (FOLDER / "roles.sh").read_text(), re.MULTILINE | re.DOTALL)
    for name in ("owner_password", "password"):
        sql = sql.replace(f":'{name}'", f"'{(secrets / name).read_text()}'")
    shared, own = sql.split("CREATE ROLE hai_flow_owner")
    with ExitStack() as stack:
        there = stack.enter_context(installed(postgres_server, shared, f"CREATE ROLE hai_flow_owner{own}"))
        # Where this machine has no Redis, nobody answers, and news is found as it is without.
        redis = stack.enter_context(RedisServer()).url if find_server() else "redis://127.0.0.1:1/0"
        yield House(tmp_path, secrets, there, redis)


@pytest.mark.costly
def test_the_services_perform_a_run_with_approval_through_each_process(house: House) -> None:
    migrate = compose.service(house.document, "migrate")
    assert run(*migrate.command, **house.environment("migrate")).returncode == 0
    with ExitStack() as stack:
        for name in OURS[1:]:
            house.start(stack, name)
        first, second = (house.running[name].url for name in ("server-1", "server-2"))
        roles = [word for role in ("publisher", "operator", "decider") for word in ("--role", role)]
        made = run("keys", "create", "user:ann", *roles, "--json", **house.environment("server-1"))
        key: str = json.loads(made.stdout)["key"]
        assert httpx2.get(f"{second}/v1/runs").status_code == 401
        refund = ("publish", "workflows/refund.flow.yaml", "--server", first)
        assert run(*refund, HAI_FLOW_KEY=key).returncode == 0
        api = httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=SECONDS_MAX)
        stack.callback(api.close)

        house.stop("worker-1")
        refunded(api, asks=first, answers=second)
        house.start(stack, "worker-1")
        house.stop("worker-2")
        refunded(api, asks=second, answers=first)
        house.start(stack, "worker-2")

        scrapes = house.scrapes()
        assert set(scrapes) == set(OURS[1:])
        assert all("hai_flow_info" in each.names() for each in scrapes.values())
        started_here = [
            scrapes[name].value("runs_started_total", workflow="refund") for name in ("server-1", "server-2")
        ]
        assert started_here == [1, 1]
        assert list((house.folder / "witness").glob("*.json")), "the witness was told of beats"
        for name in reversed(OURS[1:]):
            house.stop(name)


def refunded(api: httpx2.Client, *, asks: str, answers: str) -> None:
    """A run that is started at one server and approved at the other, until it has ended."""
    started_run: Any = api.post(f"{asks}/v1/runs", json={"workflow": "refund"}).raise_for_status().json()
    here = f"{answers}/v1/runs/{started_run['id']}"
    run_apart(until(lambda: api.get(here).json()["status"] == "waiting", SECONDS_MAX))
    (pending,) = api.get(f"{answers}/v1/pendings").raise_for_status().json()["items"]
    decision = {"decision": "approve"}
    api.post(f"{answers}/v1/pendings/{pending['id']}/decide", json=decision).raise_for_status()
    run_apart(until(lambda: api.get(here).json()["status"] == "finished", SECONDS_MAX))
