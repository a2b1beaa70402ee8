"""Commands of other packages: found by their entry point, and missed with a sentence."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from hai_flow import plugins
from hai_flow.cli import app
from hai_flow.cli.commands import ENTRY_POINTS


def install(monkeypatch: pytest.MonkeyPatch, **commands: str) -> None:
    """Let exactly these entry points be installed."""
    points = tuple(EntryPoint(name, place, ENTRY_POINTS) for name, place in commands.items())
    monkeypatch.setattr(plugins, "list_offers", lambda group: points if group == ENTRY_POINTS else ())


def greeter() -> ModuleType:
    module = ModuleType("acme_greeter")

    def greet(name: str) -> None:
        """Say hello."""
        typer.echo(f"hello, {name}")

    module.greet = greet  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("name", ["chaos", "conformance"])
def test_a_command_whose_package_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    install(monkeypatch)
    done = CliRunner().invoke(app, [name])
    assert done.exit_code == 2
    assert f"`{name}` is in a package of its own: pip install hai-flow-{name}." in done.output


def test_a_command_of_an_installed_package_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, greet="acme_greeter:greet")
    monkeypatch.setitem(sys.modules, "acme_greeter", greeter())
    done = CliRunner().invoke(app, ["greet", "Ann"])
    assert (done.exit_code, done.output) == (0, "hello, Ann\n")


def test_a_package_replaces_no_command_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, version="acme_greeter:greet")
    monkeypatch.setitem(sys.modules, "acme_greeter", greeter())
    assert "hello" not in CliRunner().invoke(app, ["version"]).output


def test_the_help_says_the_sentence_of_a_command_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    done = CliRunner().invoke(app, ["help", "commands"])
    assert done.exit_code == 0
    assert "Break a deployment on purpose" in done.output
