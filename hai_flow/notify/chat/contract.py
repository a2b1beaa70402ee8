"""The contract between this server and a chat platform, which a package adds by an entry point of `ENTRY_POINTS`, named
as the `kind` of a channel. A platform's class (`ChatApp`) writes cards, brings them up to date and reads calls. It
proves each call before it reads more of it, and hands the act of a person to the `Desk`, which decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol

import msgspec

ENTRY_POINTS: Final = "hai_flow.channels"
CLOCK_SECONDS: Final = 300.0
"""By how much the time of a call may differ from ours."""


class Setting(NamedTuple):
    """A setting of a channel of this kind, in the file of channels. `secret`: its value there names a secret, and the
    class gets the secret. `default` None: it must be there."""

    about: str
    secret: bool = False
    default: str | None = None


# --- outward ----------------------------------------------------------------------------------------------------------


class Button(NamedTuple):
    """`token`: 256 random bits as text, which the platform sends back when somebody presses it. `opens`: it asks for
    more in a dialog."""

    label: str
    token: str
    style: Literal["primary", "danger", "plain"] = "plain"
    opens: bool = False


class Card(msgspec.Struct, frozen=True):
    """A question as a chat shows it. Every text is for people to judge: hidden signs are codes already, and nothing in
    it is markup; a platform's class writes it so that it stays plain.

    `id` is the same in each try. `arguments` is JSON, whole; None: there are none, or they are too long, and then
    `digest` says which they are. `facts`: the deciders, the deadline, and the like. `result`: the end of the question,
    None while it is open. Without `buttons` the card is for reading. `page`: the question in the console."""

    id: str
    heading: str
    title: str
    message: str | None = None
    arguments: str | None = None
    digest: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    warning: str | None = None
    result: str | None = None
    buttons: tuple[Button, ...] = ()
    page: str | None = None

    def lines(self) -> list[str]:
        """All but the arguments and the page, as lines of plain text."""
        lines = [self.heading, self.title]
        lines += [self.message] if self.message else []
        lines += [self.warning] if self.warning else []
        lines += [f"{name}: {text}" for name, text in self.facts]
        lines += [f"The arguments are too long for this place. Their SHA-256: {self.digest}"] if self.digest else []
        lines += [self.result] if self.result else []
        return lines


class ChatPlace(NamedTuple):
    """Where a card is shown: a room, or the conversation with one account."""

    id: str
    is_account: bool = False


class Response(NamedTuple):
    """The answer of a platform to a request of ours. `body`: its JSON; None, if it is none."""

    status: int
    body: Any


class NotSent(Exception):
    """A try that failed. `final`: another one would, too. `after`: the platform wants to be left alone for so many
    seconds."""

    def __init__(self, reason: str, *, final: bool = False, after: float | None = None) -> None:
        super().__init__(reason)
        self.final = final
        self.after = after


class Outbound(Protocol):
    """The way to the platform: to allowed addresses only, within a time, without redirects."""

    async def ask(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """The answer. Raises NotSent where there is none in time, for 429, and for a 5xx."""
        ...


# --- inward -----------------------------------------------------------------------------------------------------------


class PlatformCall(NamedTuple):
    """A request of the platform. Names of headers are lower-case; `now` is in seconds since 1970."""

    method: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    now: float


class Reply(NamedTuple):
    """The answer to a request of the platform."""

    body: bytes = b""
    media_type: str = "application/json"
    status: int = 200


class UnprovenCall(Exception):
    """The call is not from the platform, or too old. The answer is 401, and tells its sender nothing more."""


class DialogField(NamedTuple):
    """A field of a dialog. `choices`: value and label of each."""

    name: str
    label: str
    kind: Literal["text", "lines", "choice", "choices"]
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    value: str = ""


class Dialog(msgspec.Struct, frozen=True):
    """The questions behind a button, before it decides. `token` comes back with the fields."""

    title: str
    token: str
    fields: tuple[DialogField, ...]


class DialogLimits(msgspec.Struct, frozen=True):
    """The largest dialog that a platform shows whole, in characters where not said otherwise. A question that needs
    more is decided on its page: a value that a dialog cuts would come back as it was cut.

    `label`: of a field. `choices`: the number in one field, `choice`: of one's label, `choices_text`: of all of them in
    one field, each written as `value: label`. `value`: the text in a field from the start."""

    fields: int
    label: int
    choices: int
    choice: int
    choices_text: int
    value: int

    def admit(self, fields: Sequence[DialogField]) -> bool:
        """Whether a dialog with these fields is shown whole."""
        return len(fields) <= self.fields and all(map(self._admit_field, fields))

    def _admit_field(self, field: DialogField) -> bool:
        labels = [label for _, label in field.choices]
        listed = sum(len(f"{value}: {label}, ") for value, label in field.choices)
        return (
            len(field.label) <= self.label
            and len(field.value) <= self.value
            and len(labels) <= self.choices
            and max(map(len, labels), default=0) <= self.choice
            and listed <= self.choices_text
        )


class Press(msgspec.Struct, frozen=True):
    """A person has pressed a button, or sent a dialog. `account`: the person's id on the platform, which it has proved,
    never a name. `message`: the message that the button is in, as `send` named it up to the first space; None where the
    platform does not say. `fields`: the texts that were filled in, by name; None: no dialog was sent. `dialogs`: the
    largest dialog that the platform could open now; None: it opens none. `adds`: a part that the press adds to the name
    of the message, behind a space."""

    token: str
    account: str
    message: str | None = None
    fields: Mapping[str, Sequence[str]] | None = None
    dialogs: DialogLimits | None = None
    adds: str | None = None


class PressOutcome(msgspec.Struct, frozen=True):
    """The result, in a sentence for the person. `done`: their vote counts. `dialog`: to be opened now.
    `faults`: the mistakes in fields of the dialog, by name. `is_copy`: the card is another message, so the platform's
    class may remove this one. The card itself is brought up to date by `update`."""

    text: str
    done: bool = False
    dialog: Dialog | None = None
    faults: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_copy: bool = False


class Desk(Protocol):
    """The only one that decides. None of these raises for an act of a person."""

    async def press(self, press: Press) -> PressOutcome:
        """Decide as the person whose account it is."""
        ...

    async def connect(self, account: str, text: str) -> PressOutcome:
        """The account sent us a message of this text: one with a code connects it to the person that got the code."""
        ...

    async def refuse(self, account: str, reason: str) -> PressOutcome:
        """The call is genuine, and nothing may come of it: it is from another tenant, from a bot, of another app."""
        ...


class ChatApp(Protocol):
    """One channel of a platform. Made with its settings, secrets in place, and the way to the platform."""

    SETTINGS: ClassVar[Mapping[str, Setting]]
    ARGUMENTS_MAX: ClassVar[int]
    """The longest arguments that a card of the platform shows whole."""
    BUTTONS_MAX: ClassVar[int]
    DIALOGS: ClassVar[DialogLimits | None]

    def __init__(self, settings: Mapping[str, str], out: Outbound) -> None: ...

    async def send(self, card: Card, place: ChatPlace, *, again: bool) -> str:
        """Send the card, and return the platform's name of the message. `again`: an earlier try of this card has an
        unknown end; where the platform can tell, the message that is there already is the answer. Raises NotSent."""
        ...

    async def update(self, card: Card, place: ChatPlace, message: str) -> str | None:
        """Let the message show the card as it is now, and return its name from now on. None: it stays as it was until
        the question is over, because the platform lets it change too seldom. Raises NotSent."""
        ...

    async def receive(self, call: PlatformCall, desk: Desk) -> Reply:
        """Read a call. Raises UnprovenCall."""
        ...
