"""Bringing a notification to its receiver: SMTP, signed webhooks, Slack. Each try ends in time, well or not.

Webhooks go to addresses that the guard of `http` steps has judged, and follow no redirect."""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from hai_flow import values
from hai_flow.errors import StepError
from hai_flow.notify.channels import Email, NotifyFile, Slack, WebhookChannel
from hai_flow.notify.chat.contract import NotSent, Response
from hai_flow.notify.letters import NoticeContent, chat, letter, payload
from hai_flow.primitives.beside_loop import run_unless_short
from hai_flow.primitives.retry_after import retry_after
from hai_flow.primitives.unpacking import NotUnpacked, unpack_response
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.transport import HttpConfig, make_transport
from hai_flow.wire.webhook_signatures import sign

if TYPE_CHECKING:
    import httpx2

SECONDS: Final = 20.0  # of one try
ANSWER_BYTES_MAX: Final = 1024 * 1024
SMTP_SECONDS: Final = 10.0  # without a word of the mail server


class Poster:
    """Posts JSON to addresses that the guard allows, follows no redirect, and reads nothing of the answer but its
    status, and when it wants to be asked again."""

    def __init__(self, guard: EgressGuard, config: HttpConfig) -> None:
        self._guard = guard
        self._config = config
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """One try. Raises `NotSent`."""
        all_headers = {"content-type": "application/json", **headers}
        async with self._open("POST", url, body, all_headers) as answer:
            status = answer.status_code
        if not 200 <= status < 300:
            raise NotSent(f"it answered {status}", final=status == 410, after=retry_after(answer.headers))

    async def ask(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One try, whose answer is read (`Outbound`). Raises `NotSent`."""
        body, kind = (b"", None) if json is None else (values.dumps(json), "application/json; charset=utf-8")
        if form is not None:
            body, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
        all_headers = {**({} if kind is None else {"content-type": kind}), **(headers or {})}
        read = bytearray()
        try:
            async with asyncio.timeout(SECONDS), self._open(method, url, body, all_headers) as answer:
                async for piece in unpack_response(answer):
                    read += piece
                    if len(read) > ANSWER_BYTES_MAX:
                        raise NotSent(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
        except TimeoutError:
            raise NotSent(f"no answer within {SECONDS:g} s") from None
        except NotUnpacked as error:
            raise NotSent(str(error)) from None
        status = answer.status_code
        if status == 429 or status >= 500:
            raise NotSent(f"it answered {status}", after=retry_after(answer.headers))
        try:
            return Response(status, values.loads(bytes(read)) if read else None)
        except values.NotJson:
            return Response(status, None)

    @contextlib.asynccontextmanager
    async def _open(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        import httpx2

        if self._client is None:
            transport = make_transport(self._guard, self._config)
            self._client = httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)
        all_headers = {"user-agent": "hai-flow", **headers}
        try:
            async with self._client.stream(method, url, content=body, headers=all_headers, timeout=SECONDS) as answer:
                yield answer
        except StepError as error:
            raise NotSent(error.message, final=not error.retriable) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise NotSent(f"{type(error).__name__}: {str(error) or 'it broke off'}"[:300]) from None


class Sender:
    """Sends over the channels of the file. `secrets` are the deployment's, by name."""

    def __init__(self, file: NotifyFile, secrets: Mapping[str, str], config: HttpConfig) -> None:
        self._secrets = secrets
        self._poster = Poster(EgressGuard(file.hosts), config)

    async def send(
        self,
        channel: Email | Slack | WebhookChannel,
        id: str,
        told: NoticeContent,
        whom: str,
        address: str | None,
        now: datetime,
    ) -> None:
        """One try. `id` is the same in every try, so that a receiver recognises a repetition. Raises `NotSent`."""
        try:
            async with asyncio.timeout(SECONDS):
                match channel:
                    case Email():
                        if address is None:
                            raise NotSent(
                                "nobody who is meant has an e-mail address in the file that HAI_FLOW_NOTIFY names",
                                final=True,
                            )
                        await self._mail(channel, id, told, address, now)
                    case Slack():
                        text = await run_unless_short(told.message or "", chat, told)
                        content = {"text": text, "unfurl_links": False, "unfurl_media": False}
                        if whom:
                            content["channel"] = whom
                        await self._poster.post(self._secret(channel.url), values.dumps(content), {})
                    case WebhookChannel():
                        body = values.dumps(payload(told, now))
                        headers = sign(self._secret(channel.secret), id, int(now.timestamp()), body)
                        await self._poster.post(channel.url, body, headers)
        except TimeoutError:
            raise NotSent(f"no answer within {SECONDS:g} s") from None

    async def close(self) -> None:
        await self._poster.close()

    def _secret(self, name: str) -> str:
        secret = self._secrets.get(name)
        if not secret:
            raise NotSent(f"the secret {name} is not there; set HAI_FLOW_SECRET_{name}")
        return secret

    async def _mail(self, channel: Email, id: str, told: NoticeContent, address: str, now: datetime) -> None:
        password = None if channel.password is None else self._secret(channel.password)
        message = await run_unless_short(told.message or "", email_of, channel, id, told, address, now)
        try:
            await asyncio.to_thread(_deliver, channel, password, message)
        except smtplib.SMTPRecipientsRefused as error:
            status = max((answer[0] for answer in error.recipients.values()), default=0)
            raise NotSent(f"the mail server refused the recipient ({status})", final=status >= 550) from None
        except (smtplib.SMTPException, OSError) as error:
            raise NotSent(f"{type(error).__name__}: {error}"[:300]) from None


def email_of(channel: Email, id: str, told: NoticeContent, address: str, now: datetime) -> EmailMessage:
    """The mail. Its Message-ID is made of the notification's id, so that a mail client recognises a repetition."""
    content = letter(told)
    message = EmailMessage()
    message["From"] = channel.sender
    message["To"] = address
    message["Subject"] = content.subject
    message["Date"] = format_datetime(now)
    message["Message-ID"] = f"<{id}@hai-flow>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(content.text)
    return message


def _deliver(channel: Email, password: str | None, message: EmailMessage) -> None:
    # It reads all certificate authorities: 20 ms that a server without TLS need not cost.
    context = None if channel.security == "none" else ssl.create_default_context()
    if channel.security == "tls":
        server = smtplib.SMTP_SSL(channel.host, channel.port, timeout=SMTP_SECONDS, context=context)
    else:
        server = smtplib.SMTP(channel.host, channel.port, timeout=SMTP_SECONDS)
    with server:
        if channel.security == "starttls":
            server.starttls(context=context)
        if channel.user is not None:
            server.login(channel.user, password or "")
        server.send_message(message)
