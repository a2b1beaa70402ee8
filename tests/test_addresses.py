"""Commands, refusals and letters name the page of the console on which one sees what they are about."""

from __future__ import annotations

import pytest

from hai_flow import addresses
from hai_flow.cli.errors import Problem, explain

RUN = "/v1/runs/{run_id}"


@pytest.mark.parametrize(
    ("code", "page"),
    [
        ("pending_decided", "/console/inbox"),
        ("run_ended", "/console/runs"),
        ("workflow_exists", "/console/workflows"),
        ("definition.invalid", "/console/workflows"),
        ("schedule_busy", "/console/schedules"),
        ("key_unknown", "/console/settings"),
        ("store_unavailable", ""),
    ],
)
def test_a_refusal_names_the_page_that_helps(code: str, page: str) -> None:
    assert addresses.helping(code) == page


@pytest.mark.parametrize(
    ("code", "route", "named", "page"),
    [
        ("run_ended", f"{RUN}/pause", {"run_id": "run_1"}, "/console/runs/run_1"),
        ("run_unknown", RUN, {"run_id": "run_1"}, "/console/runs"),
        ("vote_final", "/v1/pendings/{pending_id}/decide", {"pending_id": "pnd_1"}, "/console/inbox/pnd_1"),
        ("migration_refused", "/v1/workflows/{name}/migrate", {"name": "a/b@2"}, "/console/workflows/a%2Fb"),
        ("schedule_busy", "/v1/schedules/{schedule_id}/run", {"schedule_id": "x"}, "/console/schedules"),
        ("input.invalid", "/v1/runs", {}, "/console/workflows"),
    ],
)
def test_a_refusal_of_one_thing_names_its_own_page(code: str, route: str, named: dict[str, str], page: str) -> None:
    assert addresses.page_for_refusal(code, route, named) == page


def test_what_a_command_is_refused_names_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    explain(Problem({"code": "run_ended", "detail": "no."}, "http://flow/console/runs/run_1"))
    assert capsys.readouterr().err.splitlines()[-1] == "  In a browser: http://flow/console/runs/run_1"
    explain(Problem({"code": "auth.missing", "detail": "no."}))
    assert "HAI_FLOW_KEY" in capsys.readouterr().err
    explain(Problem({"code": "store_unavailable", "detail": "no."}))
    assert "In a browser" not in capsys.readouterr().err


def test_the_address_of_a_page_holds_names_as_one_segment() -> None:
    assert addresses.workflow("a/b c") == "/console/workflows/a%2Fb%20c"
    assert addresses.pending("pnd_1") == "/console/inbox/pnd_1"
    assert addresses.run("run_1") == "/console/runs/run_1"
