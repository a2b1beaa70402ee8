"""What performs the effects of this deployment, as its settings say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hai_flow.definition.plan import Model
from hai_flow.models.catalogue import Catalogue, read_catalogue
from hai_flow.models.endpoints import Providers
from hai_flow.models.faults import not_configured
from hai_flow.settings import SECRET, Settings, SettingsError, variable
from hai_flow.steps.llm import LlmRunner
from hai_flow.steps.python import PythonRunner
from hai_flow.steps.runner import Runner
from hai_flow.steps.toolbox import Toolbox


def runners_of(settings: Settings, toolbox: Toolbox) -> dict[str, Runner]:
    """The runner of each kind of effect. Raises SettingsError for a catalogue of models with mistakes."""
    models = {} if settings.models is None else _models_in(settings.models)
    providers = Providers()

    def key(name: str, host: str, is_ours: bool) -> str:
        return _secret(settings.secrets, name)

    return {
        "python": PythonRunner(toolbox),
        "llm": LlmRunner(Catalogue(models, key, providers.offered), providers),
    }


def _models_in(path: Path) -> Mapping[str, Model]:
    try:
        source = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingsError([f"{variable('models')}: {path} can't be read: {reason}."]) from None
    models, findings = read_catalogue(source, str(path))
    problems = [str(finding) for finding in findings if finding.severity == "error"]
    if problems:
        raise SettingsError(problems)
    return models


def _secret(secrets: Mapping[str, str], name: str) -> str:
    """Raises StepError `llm.not_configured`."""
    value = secrets.get(name)
    if value is None:
        raise not_configured(f"the secret `{name}` is not there; set {SECRET}{name}")
    return value
