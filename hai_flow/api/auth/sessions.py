"""A browser's session as a credential, in a cookie that no script can read. A browser sends its cookie also with
requests that another site's page makes. So a request that changes anything, and a WebSocket, must come from a page of
this very origin, and the request must name the session's CSRF word. A session of an identity provider is renewed there
every quarter of an hour: it ends if the provider refuses, and is good for a while longer if that is silent; the refresh
token for that is sealed with the cookie's text, so that the database alone can't ask."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import msgspec
import structlog
from starlette.requests import HTTPConnection
from starlette.responses import Response

from hai_flow.api.auth.directory.principal_json import dump_principal, load_principal
from hai_flow.api.auth.directory.row_cache import Book
from hai_flow.api.auth.issuers import oidc
from hai_flow.api.auth.issuers.jwt import Issuer, Tokens
from hai_flow.api.auth.issuers.oidc import Grant
from hai_flow.api.permissions.principals import Principal, reject_credential
from hai_flow.api.permissions.rights import ROLES
from hai_flow.engine.commands import Principal as Who
from hai_flow.errors import Rejected
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from hai_flow.store.audit import audit
from hai_flow.store.identity import sessions, tickets
from hai_flow.store.identity.proofs import WHOLE
from hai_flow.store.people import chat
from hai_flow.store.people.chat import Account
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import read_clock

COOKIE: Final = "__Host-hai_session"
CSRF: Final = "HAI-CSRF"
SECONDS: Final = 1.0  # a session that was ended elsewhere is believed for no longer
USE_SECONDS: Final = 60.0  # how exactly it is known when a session was used
WAIT_SECONDS: Final = 2.0  # a request waits for a renewal no longer; it goes on as the session was
RENEWAL_SECONDS: Final = 10.0
CLAIM: Final = timedelta(seconds=20)  # of a process that is gone; longer than a renewal takes
AGAIN: Final = timedelta(seconds=30)
LINK: Final = WHOLE  # the credential of a session that was begun by a link
LINK_LASTS: Final = timedelta(minutes=10)
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))

log = structlog.get_logger(__name__)


class Limits(msgspec.Struct, frozen=True):
    """How long a session `lasts` at most, and `idle`; after how long it is `renewed`, and for how much longer it is
    good if that fails (`grace`)."""

    lasts: timedelta
    idle: timedelta
    renewed: timedelta
    grace: timedelta

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Those of the settings."""
        durations = (
            settings.session_seconds,
            settings.session_idle_seconds,
            settings.session_renew_seconds,
            settings.session_grace_seconds,
        )
        return cls(*(timedelta(seconds=seconds) for seconds in durations))


class Sessions:
    """The sessions of the database. Each request of a session, and each look at its open streams, begins a renewal that
    is due; requests of one session share its renewal."""

    def __init__(self, runtime: Runtime, tokens: Tokens, issuers: Sequence[Issuer], limits: Limits) -> None:
        self._runtime = runtime
        self._tokens = tokens
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self._limits = limits
        self._known: Book[_Session | None] = Book(self._find, SECONDS)
        self._used: Book[None] = Book(self._note_use, min(USE_SECONDS, limits.idle.total_seconds() / 4))
        self._renewing: dict[bytes, asyncio.Task[None]] = {}

    async def principal(self, connection: HTTPConnection, text: str) -> Principal:
        """The caller of the session. Raises Rejected 401 and 403, and 503 where its issuer has not answered for too
        long."""
        if not _TEXT.fullmatch(text):
            raise reject_credential()
        digest = hash_secret(text)
        session = await self._known.get(digest.hex())
        if session is not None and self.is_past(session.renew_at):
            await asyncio.wait({self._start_renewal(text, digest)}, timeout=WAIT_SECONDS)
            session = await self._known.get(digest.hex())
        if session is None or self.is_past(session.principal.expires_at):
            raise Rejected(401, "auth.expired", "your session has ended; sign in again.")
        _demand_own_page(connection, text)
        if self.is_past(session.good_until):
            raise Rejected(503, "auth.unavailable", "who signed you in does not say whether you still are; try again.")
        await self._used.get(digest.hex())
        return replace(session.principal, keep=_Keeper(self, text, digest, session.renew_at))

    async def begin(self, principal: Principal, asked: AuditActor, grant: Grant | None = None) -> tuple[str, int]:
        """Begin a session of the principal, whose credential was good now, and record it. Returns the session's text,
        and the seconds that it lasts at most. Without a `grant` it can't be renewed, so it ends when that credential
        does."""
        now = self._runtime.committer.now()
        text, ends_at = sessions.new_text(), now + self._limits.lasts
        if grant is None and principal.expires_at is not None:
            ends_at = min(ends_at, datetime.fromtimestamp(principal.expires_at / 1000, UTC))
        renewal = None if grant is None else self._encrypt_grant(text, grant)
        principal_json = dump_principal(Principal(principal.who, principal.tenant, credential=principal.credential))
        async with self._runtime.database.api.acquire() as connection, connection.transaction():
            await sessions.create_session(
                connection,
                text,
                principal.tenant,
                principal_json,
                ends_at=ends_at,
                idle=self._limits.idle,
                renewal=renewal,
            )
            for channel, name in principal.accounts:  # the chat is theirs as long as the session is
                account = Account(
                    uuid4(), channel, name, principal.id, principal.who.roles, principal.who.groups, ends_at,
                    now, session=hash_secret(text),
                )  # fmt: skip
                await chat.add_account(connection, principal.tenant, account, None)
            await audit.write(connection, principal.tenant, [asked.row("session.begun")])
        return text, max(1, int((ends_at - now).total_seconds()))

    async def end(self, text: str, tenant: UUID, asked: AuditActor) -> None:
        digest = hash_secret(text)
        async with self._runtime.database.api.acquire() as connection, connection.transaction():
            await sessions.end_session(connection, digest)
            await audit.write(connection, tenant, [asked.row("session.ended")])
        self._known.forget(digest.hex())

    async def end_before(self, text: str) -> None:
        """End the session, if there is one: its browser signs in anew."""
        digest = hash_secret(text)
        session = await self._find(digest.hex())
        if session is not None:
            await self.end(text, session.principal.tenant, _actor_of(session.principal))

    async def update_if_due(self, text: str, digest: bytes) -> int | None:
        """Renew the session, if it is due; a stream of it is open. Returns when it is due again (ms), if ever."""
        session = await self._known.get(digest.hex())
        if session is not None and self.is_past(session.renew_at):
            await asyncio.wait({self._start_renewal(text, digest)})
            session = await self._known.get(digest.hex())
        return None if session is None else session.renew_at

    def is_past(self, at: int | None) -> bool:
        """Whether the time (ms) has come, by the database's clock."""
        return at is not None and at <= self._runtime.committer.now_ms()

    def _start_renewal(self, text: str, digest: bytes) -> asyncio.Task[None]:
        """The renewal of the session that is under way; if there is none, one begins."""
        task = self._renewing.get(digest)
        if task is None:
            task = self._renewing[digest] = asyncio.create_task(self._renew(text, digest), name="renew a session")
            task.add_done_callback(lambda _: self._renewing.pop(digest, None))
        return task

    async def _renew(self, text: str, digest: bytes) -> None:
        """Ask the issuer for the session's person anew, unless another process does."""
        pool = self._runtime.database.api
        try:
            claim = await sessions.claim_renewal(pool, digest, CLAIM)
            session = None if claim is None else await self._find(digest.hex())
            if claim is not None and session is not None:
                await self._run_claimed_renewal(text, digest, claim, session.principal)
        except Exception as error:  # the next request finds it due again
            log.warning("session_not_renewed", error=str(error) or type(error).__name__)
        finally:
            self._known.forget(digest.hex())

    async def _run_claimed_renewal(self, text: str, digest: bytes, claim: sessions.Claim, was: Principal) -> None:
        pool = self._runtime.database.api
        grant = _grant_in(text, digest, claim.sealed)
        issuer = None if grant is None else self._issuers.get(grant.issuer)
        if grant is None or issuer is None or issuer.client is None:
            await self._give_up(digest, claim, was, "its issuer is not known any more")
            return
        try:
            async with asyncio.timeout(RENEWAL_SECONDS):
                grant, answer = await oidc.refresh_grant(issuer, grant)
                now = await oidc.update_principal(self._tokens, issuer, grant, answer)
        except (Rejected, TimeoutError) as refusal:
            if isinstance(refusal, Rejected) and refusal.status == 401:
                await self._give_up(digest, claim, was, "its issuer refuses to renew it")
            else:
                await sessions.put_off(pool, digest, claim, self._encrypt_grant(text, grant).sealed, AGAIN)
        else:
            if now is None:
                log.warning("renewal_says_nothing", issuer=issuer.name, hint="name its userinfo in the client")
                await sessions.forgo(pool, digest, claim, datetime.fromtimestamp(grant.until, UTC))
            elif now.id != was.id:
                await self._give_up(digest, claim, was, "its issuer names another person")
            else:
                await self._save_renewed(digest, claim, was, now, self._encrypt_grant(text, grant))

    async def _save_renewed(
        self, digest: bytes, claim: sessions.Claim, was: Principal, now: Principal, renewal: sessions.Renewal
    ) -> None:
        principal_json = dump_principal(Principal(now.who, now.tenant, credential=was.credential))
        changed = (now.who, now.tenant) != (was.who, was.tenant)
        async with self._runtime.database.api.acquire() as connection, connection.transaction():
            done = await sessions.renew(connection, digest, claim, now.tenant, principal_json, renewal)
            if done and changed:
                row = _actor_of(now).row(
                    "session.changed", was=list(was.who.roles), groups=list(now.who.groups) or None
                )
                await audit.write(connection, now.tenant, [row])

    async def _give_up(self, digest: bytes, claim: sessions.Claim, was: Principal, reason: str) -> None:
        async with self._runtime.database.api.acquire() as connection, connection.transaction():
            if await sessions.give_up(connection, digest, claim):
                await audit.write(connection, was.tenant, [_actor_of(was).row("session.ended", reason=reason)])

    def _encrypt_grant(self, text: str, grant: Grant) -> sessions.Renewal:
        sealed = seal(text, hash_secret(text), msgspec.json.encode(grant))
        return sessions.Renewal(sealed, self._limits.renewed, self._limits.renewed + self._limits.grace)

    async def _find(self, digest: str) -> _Session | None:
        row = await sessions.find_session(self._runtime.database.api, bytes.fromhex(digest))
        if row is None:
            return None
        principal = load_principal(row.tenant, row.principal, way="session")
        if principal.credential == LINK:
            principal = replace(principal, who=Who(principal.id, tuple(ROLES)))
        return _Session(
            replace(principal, expires_at=_ms(row.ends_at), session=bytes.fromhex(digest), session_version=row.version),
            _ms(row.renew_at),
            _ms(row.good_until),
        )

    async def _note_use(self, digest: str) -> None:
        await sessions.note_use(self._runtime.database.api, bytes.fromhex(digest), self._limits.idle)


class _Keeper:
    """Called now and then while a stream of the session is open, because no request may come meanwhile: it renews the
    session when that is due. For that it holds the cookie's text."""

    def __init__(self, of: Sessions, text: str, digest: bytes, due_at: int | None) -> None:
        self._of = of
        self._text = text
        self._digest = digest
        self._due_at = due_at
        self._looking: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        if self._looking is None and self._of.is_past(self._due_at):
            self._looking = asyncio.create_task(self._look(), name="look at a session")

    async def _look(self) -> None:
        try:
            self._due_at = await self._of.update_if_due(self._text, self._digest)
        except Exception as error:  # the next call looks again
            log.warning("session_not_renewed", error=str(error) or type(error).__name__)
        finally:
            self._looking = None


class _Session(NamedTuple):
    """A session as it was a moment ago; the times in ms since 1970."""

    principal: Principal
    renew_at: int | None
    good_until: int | None


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


def _grant_in(text: str, digest: bytes, sealed: bytes) -> Grant | None:
    secret = unseal(text, digest, sealed)
    return None if secret is None else msgspec.json.decode(secret, type=Grant)


def _actor_of(principal: Principal) -> AuditActor:
    """The person, for audit records of changes that their issuer caused."""
    return AuditActor(who=principal.who, way="session", credential=principal.credential, via="/sign-in")


async def sign_link_token(
    connection: Pool | Connection, tenant: UUID, id: str, roles: Sequence[str] | None = None, groups: Sequence[str] = ()
) -> str:
    """The token at the end of a link that signs a browser in as `id`, with these roles and groups: once, within ten
    minutes. `roles` None: with all that are built in, those of later releases, too."""
    everything, who = roles is None, Who(id, tuple(ROLES if roles is None else roles), tuple(groups))
    principal_json = dump_principal(Principal(who, tenant, credential=LINK if everything else sessions.PERSONS_LINK))
    return await tickets.create_ticket(
        connection, tenant, principal_json, await read_clock(connection) + LINK_LASTS, tickets.LINK
    )


def read_session(connection: HTTPConnection) -> str | None:
    """The text of the request's session, if it has one. Raises Rejected 400 where it has two."""
    cookies = [
        value
        for header in connection.headers.getlist("cookie")
        for name, _, value in (part.strip().partition("=") for part in header.split(";"))
        if name == COOKIE
    ]
    if len(cookies) > 1:
        raise Rejected(400, "credential_twice", "expected one session, found several cookies of its name.")
    return cookies[0] if cookies else None


def derive_csrf(text: str) -> str:
    """The word that requests of the session have to name."""
    return base64.urlsafe_b64encode(hmac.digest(text.encode(), b"hai-flow csrf v1", "sha256")).rstrip(b"=").decode()


def _demand_own_page(connection: HTTPConnection, text: str) -> None:
    """Raises Rejected 403 where a page of another origin could have sent it."""
    headers, socket = connection.headers, connection.scope["type"] == "websocket"
    if not socket and connection.scope["method"] in _SAFE:
        return
    demand_own_origin(connection)
    if not socket and not hmac.compare_digest(headers.get(CSRF, "").encode(), derive_csrf(text).encode()):
        raise Rejected(403, "csrf.missing", f"expected the session's word in {CSRF}; GET /v1/session tells it.")


def demand_own_origin(connection: HTTPConnection) -> None:
    """Raises Rejected 403 where no page of this server has sent it."""
    headers = connection.headers
    own = _netloc(headers.get("origin", "")) == headers.get("host", "").lower() != ""
    if not own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Rejected(403, "csrf.origin", "a session is used by pages of this server alone.")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def set_cookie(response: Response, text: str, seconds: int) -> None:
    """Give the browser its session, which lasts so long at most."""
    response.set_cookie(COOKIE, text, max_age=seconds, path="/", secure=True, httponly=True, samesite="lax")


def forget_cookie(response: Response) -> None:
    """Let the browser forget its session."""
    response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")


_NONCE: Final = 12


def seal(text: str, digest: bytes, secret: bytes) -> bytes:
    """The secret, encrypted. Only the session's `text` opens it, and only from the row that `digest` finds."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only a server with sign-in pays for its import

    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(_key(text)).encrypt(nonce, secret, digest)


def unseal(text: str, digest: bytes, sealed: bytes) -> bytes | None:
    """The secret. None: it was sealed for another text or row, or was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_key(text)).decrypt(sealed[:_NONCE], sealed[_NONCE:], digest)
    except (InvalidTag, ValueError):
        return None


def _key(text: str) -> bytes:
    return hmac.digest(text.encode(), b"hai-flow session seal v1", "sha256")
