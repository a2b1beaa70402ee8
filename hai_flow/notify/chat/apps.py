"""The platforms of chats, by the `kind` of a channel: those of this package, and those that installed packages add."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

from hai_flow import plugins
from hai_flow.notify.chat.contract import ENTRY_POINTS, ChatApp

_OWN: Final = {
    "slack": "hai_flow.notify.chat.slack:SlackApp",
    "feishu": "hai_flow.notify.chat.feishu:FeishuApp",
    "dingtalk": "hai_flow.notify.chat.dingtalk:DingTalkApp",
    "wecom": "hai_flow.notify.chat.wecom:WeComApp",
    "teams": "hai_flow.notify.chat.teams:TeamsApp",
}


def list_kinds() -> frozenset[str]:
    return frozenset((*_OWN, *(each.name for each in plugins.list_offers(ENTRY_POINTS))))


@cache
def load_app(kind: str) -> type[ChatApp]:
    """The class of the kind. Raises whatever a package raises when it is imported."""
    if kind in _OWN:
        module, _, name = _OWN[kind].partition(":")
        loaded: Any = getattr(import_module(module), name)
        return loaded
    (offered,) = (each for each in plugins.list_offers(ENTRY_POINTS) if each.name == kind)
    return offered.load()


def check_settings(kind: str, settings: Mapping[str, str]) -> list[str]:
    """The mistakes in the settings of a channel, each behind the name of its key."""
    try:
        by_name = load_app(kind).SETTINGS
    except Exception as error:  # whatever a package does when it is imported
        return [f"kind: `{kind}` can't be loaded: {type(error).__name__}: {error}"]
    faults = [
        f"{name}: {kind} has no such setting; it has {', '.join(by_name)}" for name in settings if name not in by_name
    ]
    for name, setting in by_name.items():
        if name in settings and (not isinstance(settings[name], str) or not settings[name].isprintable()):
            faults.append(f"{name}: expected one line of text")
        elif not settings.get(name) and setting.default is None:
            what = "the name of a secret: " if setting.secret else ""
            faults.append(f"{name}: expected {what}{setting.about}")
    return faults


def complete_settings(kind: str, settings: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The settings as the class takes them. Raises KeyError with the name of a secret that is not there."""
    complete: dict[str, str] = {}
    for name, setting in load_app(kind).SETTINGS.items():
        text = settings.get(name, setting.default or "")
        if setting.secret and text:
            if not secrets.get(text):
                raise KeyError(text)
            text = secrets[text]
        complete[name] = text
    return complete
