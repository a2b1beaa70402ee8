"""How people are told of a question: `notify` and `remind` (docs/language.md#people)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.wording import shorten
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.keys import DURATION, Key, list_of
from hai_flow.values import Json

REMIND: Final = Key(
    "remind",
    list_of(DURATION),
    "remind so long after (each) opening, over the channels of `notify`",
    example="[4h, 1d]",
)

_URL: Final = re.compile(r"(?i)(?:https?|wss?|ftp):/")
_CHANNEL: Final = re.compile(r"[a-z][a-z0-9_+-]*(:\S.*)?")
_SELECTOR: Final = re.compile(r"(?:role|user|group):")
_USUAL: Final = ("email", "slack", "teams", "discord", "telegram", "webhook", "sms")


def notify(context: StepContext, fields: Mapping[str, Json], at: Path, names: Names) -> tuple[plan.Template, ...]:
    """The texts of `notify`. Which channels there are, the deployment says."""
    raw = fields.get("notify", ())
    # Those of `defaults` come as they were written; what they are instead of texts is a finding already.
    texts = [each for each in raw if isinstance(each, str)] if isinstance(raw, list | tuple) else []
    for index, text in enumerate(texts):
        if _URL.match(text):
            message = (
                "expected a channel of the deployment such as `email` or `slack:#finance`, found the address "
                f"`{shorten(text)}`, which tells nobody; addresses stand in the file that HAI_FLOW_NOTIFY names, each "
                "with its channel"
            )
            context.reader.warning((*at, "notify", index), "notify.channel", message)
            continue
        if "${{" in text:
            continue
        if _CHANNEL.fullmatch(text) and not _SELECTOR.match(text):
            name = text.partition(":")[0]
            if name.replace("-", "").replace("_", "") in _USUAL and name not in _USUAL:
                meant = name.replace("-", "").replace("_", "")
                message = f"did you mean the channel `{meant}`? Which channels there are, the deployment says"
                context.reader.warning((*at, "notify", index), "notify.channel", message)
            continue
        actual = shorten(text)
        message = f"expected a channel, or channel:whom, such as `email` or `slack:#finance`, found `{actual}`"
        context.reader.warning((*at, "notify", index), "notify.channel", message)
    return tuple(context.template(text, (*at, "notify", index), names, text=True) for index, text in enumerate(texts))


def compile_reminders(
    context: StepContext, fields: Mapping[str, Json], at: Path, names: Names
) -> tuple[plan.Duration, ...]:
    """The times of `remind`, from each opening on."""
    durations = (
        context.compile_duration(text, (*at, "remind", index), names, working=True)
        for index, text in enumerate(fields.get("remind", ()))
    )
    return tuple(duration for duration in durations if duration is not None)
