"""deploy/helm: rendered by Helm's own engine, each manifest is one of Kubernetes, and starts what the image has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import hai_flow
from hai_flow.settings import Settings, describe, variables_of_files
from tests.clients import rig
from tests.support.commands import ROOT, run

pytestmark = pytest.mark.costly

CHART: Final = ROOT / "deploy" / "helm" / "hai-flow"
HERE: Final = Path(__file__).parent / "tools"
KUBERNETES: Final = ("1.27", "1.34")  # the oldest that the chart names, and a new one
SETTINGS: Final = {name for name, _, _ in describe()} | set(variables_of_files())
ALL: Final[dict[str, Any]] = {
    "worker": {"autoscaling": {"enabled": True, "selector": {"job": "hai-flow"}}, "nodeSelector": {"kind": "work"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "ingress": {"enabled": True, "host": "flow.example.com", "tlsSecret": "flow-tls", "className": "nginx"},
    "files": {"identity.yaml": "issuers: []\n"},
    "identity": "/etc/hai-flow/identity.yaml",
    "settings": {"LANES": 4, "HTTP_HOSTS": "*.internal"},
    "env": [{"name": "HAI_FLOW_SECRET_SHOP", "valueFrom": {"secretKeyRef": {"name": "shop", "key": "token"}}}],
    "witness": "s3://company-witness/flow",
    "networkPolicy": {"ingressFrom": [{"podSelector": {"matchLabels": {"app": "proxy"}}}]},
    "image": {"digest": "sha256:" + "0" * 64},
}


def asked(values: dict[str, Any], kubernetes: str = KUBERNETES[-1]) -> dict[str, Any]:
    python = rig.python_packages(HERE) / "bin" / "python"
    given = json.dumps({"chart": str(CHART), "values": values, "kubernetes": kubernetes})
    done = subprocess.run([str(python), str(HERE / "render.py")], input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def manifests(values: dict[str, Any], kubernetes: str = KUBERNETES[-1]) -> dict[tuple[str, str], dict[str, Any]]:
    answer = asked(values, kubernetes)
    assert answer["faults"] == []
    return {(each["kind"], each["metadata"]["name"]): each for each in answer["manifests"]}


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


@pytest.mark.timeout(600)  # the first time fetches Helm
@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("values", [{}, ALL], ids=["the defaults", "everything"])
def test_each_manifest_is_one_of_kubernetes_and_starts_what_there_is(values: dict[str, Any], kubernetes: str) -> None:
    found = manifests(values, kubernetes)
    pods = {name: pod_of(each) for (kind, name), each in found.items() if kind in ("Deployment", "Job")}
    assert len(pods) == 3
    for pod in pods.values():
        (container,) = pod["containers"]
        assert run(*container["args"], "--help").returncode == 0
        named = {each["name"] for each in container["env"]}
        assert {name for name in named if not name.startswith("HAI_FLOW_SECRET_")} <= SETTINGS
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        volumes = {each["name"]: each for each in pod["volumes"]}
        for each in container["env"]:
            if each["name"].endswith("_FILE"):
                folder, _, file = each["value"].rpartition("/")
                items = volumes[mounts[folder]]["secret"]["items"]
                assert file in {item["path"] for item in items}
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod.get("terminationGracePeriodSeconds", 99) > Settings().shutdown_seconds + 5


def test_the_servers_start_with_their_settings_and_selectors_find_pods() -> None:
    found = manifests(ALL)
    server = pod_of(found["Deployment", "flow-hai-flow-server"])["containers"][0]
    given = {each["name"]: each["value"] for each in server["env"] if "value" in each}
    given |= {name: text.replace("/etc/hai-flow/identity.yaml", "keys") for name, text in given.items()}
    files = {name for name in given if name.endswith("_FILE")}
    settings = Settings.from_environment(
        {k: v for k, v in given.items() if k not in files} | {"HAI_FLOW_METRICS_TOKEN": "t"}
    )
    assert "flow.example.com" in settings.allowed_hosts
    assert "flow-hai-flow-server.prod.svc" in settings.allowed_hosts
    assert settings.lanes == 4
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        for (is_kind, name), each in found.items():
            if is_kind == kind:
                selector = each["spec"].get("selector") or each["spec"]["podSelector"]
                wanted = selector.get("matchLabels", selector).items()
                assert any(
                    wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
                    for (of, _), deployment in found.items()
                    if of == "Deployment"
                ), name
    assert "replicas" not in found["Deployment", "flow-hai-flow-worker"]["spec"], "the autoscaler decides"
    scaler = found["HorizontalPodAutoscaler", "flow-hai-flow-worker"]["spec"]
    guide = (ROOT / "docs" / "operations.md").read_text()
    assert f"`{scaler['metrics'][0]['external']['metric']['name']}`" in guide


def test_the_migration_runs_first_and_alone_has_the_owners_url() -> None:
    found = manifests({})
    (job,) = [each for (kind, _), each in found.items() if kind == "Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert "owner_url" in json.dumps(job)
    others = [each for (kind, _), each in found.items() if kind != "Job"]
    assert "owner_url" not in json.dumps(others)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"server": {"replica": 3}}, "replica"),
        ({"identity": "nobody"}, "identity"),
        ({"settings": {"DATABASE_URL": "postgresql://a:b@c/d"}}, "DATABASE_URL"),
        ({"ingress": {"enabled": True}}, "under which name"),
        ({"image": {"digest": "latest"}}, "digest"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], told: str) -> None:
    assert told in asked(values)["refused"]


def test_the_chart_is_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (hai_flow.__version__, hai_flow.__version__)
