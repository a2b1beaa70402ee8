"""Renders the chart with Helm's own engine and checks each manifest by the schemas of Kubernetes.

In the environment of requirements.lock: reads {"chart", "values", "kubernetes"} as JSON, writes {"manifests": [...],
"faults": [...]} or {"refused": "..."}."""

import json
import sys

import kubernetes_validate
import yaml
from helm_python import chart
from helm_python.errors import HelmError


def main() -> None:
    asked = json.load(sys.stdin)
    try:
        loaded = chart.Chart.load(asked["chart"])
        loaded.validate_schema(asked["values"])
        rendered = loaded.render(asked["values"], name="flow", namespace="prod", is_install=True)
    except HelmError as error:
        print(json.dumps({"refused": str(error)}))
        return
    found = [
        each for path, text in rendered.items() if path.endswith(".yaml") for each in yaml.safe_load_all(text) if each
    ]
    for manifest in found:
        if not manifest["apiVersion"].startswith("monitoring."):
            kubernetes_validate.validate(manifest, asked["kubernetes"], strict=True)
    linted = chart.lint(asked["chart"], asked["values"], strict=True)
    faults = [each for each in linted["messages"] if each["severity"] > 1] + linted["errors"]
    print(json.dumps({"manifests": found, "faults": faults}))


main()
