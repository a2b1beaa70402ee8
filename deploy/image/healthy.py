"""The image's health check: whether the process in this container answers on the port of `HAI_FLOW_METRICS`."""

import os
import sys
from http.client import HTTPException
from urllib.request import ProxyHandler, build_opener


def main() -> int:
    """0: it answers; 1: it does not."""
    port = os.environ.get("HAI_FLOW_METRICS", "").rpartition(":")[2]
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/healthz", timeout=4) as answer:
            return 0 if answer.status == 200 else 1
    except (OSError, ValueError, HTTPException) as error:
        print(f"no answer on port {port or '(HAI_FLOW_METRICS is unset)'}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
