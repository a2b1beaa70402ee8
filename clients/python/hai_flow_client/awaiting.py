"""`AsyncClient`: the effects of `effects.py`, performed in an event loop. Nothing is decided here."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from hai_flow_client import operations as o
from hai_flow_client.effects import Answer, Backoff, Effect, Feed, Give, Lost, NewKey, Now, Read, Request, Script
from hai_flow_client.link import Credential, Link, Patience, answer, faults

if TYPE_CHECKING:
    import httpx2

P = ParamSpec("P")
T = TypeVar("T")


class _Group:
    """A group of a client's methods."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client


class _does(Generic[P, T]):
    """A method that performs the script which a function of `operations.py` describes."""

    def __init__(self, describe: Callable[P, Script[T]]) -> None:
        self._describe = describe

    def __get__(self, group: _Group, owner: type[_Group]) -> Callable[P, Coroutine[Any, Any, T]]:
        async def does(*args: P.args, **kwargs: P.kwargs) -> T:
            return await group._client.perform(self._describe(*args, **kwargs))

        return update_wrapper(does, self._describe)


class _gives(Generic[P, T]):
    """A method that returns an iterator over the items of a feed."""

    def __init__(self, describe: Callable[P, Feed[T]]) -> None:
        self._describe = describe

    def __get__(self, group: _Group, owner: type[_Group]) -> Callable[P, AsyncItems[T]]:
        def gives(*args: P.args, **kwargs: P.kwargs) -> AsyncItems[T]:
            return AsyncItems(group._client, self._describe(*args, **kwargs))

        return update_wrapper(gives, self._describe)


class AsyncClient(_Group):
    """A HAI Flow server at `url` (default: HAI_FLOW_URL), for asyncio. `Client` is the same for threads.

    `key` (default: HAI_FLOW_KEY) identifies the caller: an API key, or another token that the server takes. If it is a
    function, it is called before each request, so that it can renew a token that expires. `act_as`: speak as somebody
    else (`user:ann,role:controller`), which only a development server without identity believes. `headers` go with
    every request. `http`: a client of your own, for certificates, proxies or an application in this process; it is not
    closed. Raises HaiFlowError and its kinds. Its methods are those of `Client`, to be awaited, or
    iterated over with `async for`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        act_as: str | None = None,
        key: Credential | None = None,
        headers: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        super().__init__(self)
        self.link = Link.to(url, act_as=act_as, key=key, headers=headers, patience=patience)
        self._given = http
        self.workflows = AsyncWorkflows(self)
        self.runs = AsyncRuns(self)
        self.pendings = AsyncPendings(self)
        self.approvals = AsyncApprovals(self)
        self.inbox = AsyncInbox(self)
        self.threads = AsyncThreads(self)
        self.feedback = AsyncFeedback(self)
        self.audit = AsyncAudit(self)
        self.workers = AsyncWorkers(self)
        self.keys = AsyncKeys(self)
        self.tenants = AsyncTenants(self)
        self.tokens = AsyncTokens(self)
        self.tickets = AsyncTickets(self)
        self.session = AsyncSession(self)
        self.files = AsyncFiles(self)
        self.events = AsyncEvents(self)
        self.schedules = AsyncSchedules(self)

    request = _does(o.send_request)
    items = _gives(o.list_items)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        if self._given is None and "http" in vars(self):
            await self.http.aclose()

    @cached_property
    def http(self) -> httpx2.AsyncClient:
        """The HTTP client."""
        import httpx2

        return self._given or httpx2.AsyncClient(trust_env=self.link.trusts_environment)

    def hands(self) -> Hands:
        """The performer of one script's effects."""
        return Hands(self)

    async def perform(self, script: Script[T]) -> T:
        """Perform a script to its end."""
        hands = self.hands()
        reply: Any = None
        try:
            while True:
                reply = await hands.do(script.send(reply))
        except StopIteration as end:
            return end.value
        finally:
            await hands.aclose()


class Hands:
    """Performs the effects of one script, and holds the stream that it has opened."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._response: httpx2.Response | None = None
        self._chunks: AsyncGenerator[bytes] | None = None

    async def do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return await self._send(await self._signed(effect))
            case Read():
                return await self._read()
            case Backoff():
                await self.aclose()
                return await asyncio.sleep(self._client.link.patience.pause(effect))
            case Now():
                return time.monotonic()
            case NewKey():
                return str(uuid.uuid4())

    async def _signed(self, request: Request) -> Request:
        if self._client.link.ask is None:
            return request
        credential = self._client.link.ask()
        key = await credential if inspect.isawaitable(credential) else credential
        return self._client.link.signed(request, key)

    async def _send(self, request: Request) -> Answer | Lost:
        await self.aclose()
        http, link = self._client.http, self._client.link
        try:
            response = await http.send(http.build_request(**link.prepared(request)), stream=True)
            self._response = response
            if request.streams and response.is_success:
                self._chunks = response.aiter_bytes()
                return answer(response)
            return answer(response, await response.aread())
        except faults() as error:
            return link.lost(error)

    async def _read(self) -> bytes | Lost:
        try:
            assert self._chunks is not None, "a stream was opened"
            return await anext(self._chunks, b"")
        except faults() as error:
            return self._client.link.lost(error)

    async def aclose(self) -> None:
        if self._chunks is not None:
            await self._chunks.aclose()  # left to the garbage, it would end in a loop that may be gone
            self._chunks = None
        if self._response is not None:
            await self._response.aclose()
            self._response = None


class AsyncItems(AsyncIterator[T]):
    """Items as they come. Closed at its end, by `aclose`, or by leaving its `async with`."""

    def __init__(self, client: AsyncClient, feed: Feed[T]) -> None:
        self._hands = client.hands()
        self._feed = feed

    async def __anext__(self) -> T:
        reply: Any = None
        try:
            while True:
                effect = self._feed.send(reply)
                if isinstance(effect, Give):
                    return effect.item
                reply = await self._hands.do(effect)
        except StopIteration:
            await self.aclose()
            raise StopAsyncIteration from None
        except BaseException:
            await self.aclose()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection. The run goes on; follow it again from the last event's `seq`."""
        self._feed.close()
        await self._hands.aclose()


# --- the surface --------------------------------------------------------------------------------------------------


class AsyncWorkflows(_Group):
    publish = _does(o.publish_workflow)
    backtest = _does(o.backtest_workflow)
    validate = _does(o.validate_workflow)
    format = _does(o.format_workflow)
    draw = _does(o.draw_text)
    schema = _does(o.language_schema)
    list = _gives(o.list_workflows)
    get = _does(o.get_workflow)
    versions = _does(o.list_versions)
    source = _does(o.get_source)
    graph = _does(o.draw_workflow)
    diff = _does(o.diff_versions)
    migrate = _does(o.migrate_runs)
    retire = _does(o.retire_workflow)
    unretire = _does(o.unretire_workflow)


class AsyncRuns(_Group):
    start = _does(o.start_run)
    get = _does(o.get_run)
    list = _gives(o.list_runs)
    counts = _does(o.count_runs)
    snapshot = _does(o.get_snapshot)
    steps = _gives(o.list_steps)
    events = _gives(o.list_events)
    events_json = _gives(o.list_events_json)
    follow = _gives(o.follow_run)
    follow_json = _gives(o.follow_run_json)
    wait = _does(o.wait_for_run)
    result = _does(o.get_result)
    pause = _does(o.pause_run)
    resume = _does(o.resume_run)
    stop = _does(o.stop_run)
    terminate = _does(o.terminate_run)
    retry = _does(o.retry_run)
    bulk = _does(o.control_runs)
    fork = _does(o.fork_run)
    rehearse_fork = _does(o.rehearse_fork)
    skip = _does(o.skip_step)
    marks = _does(o.list_marks)
    compare = _does(o.compare_moments)
    signal = _does(o.signal_run)


class AsyncPendings(_Group):
    list = _gives(o.list_pendings)
    get = _does(o.get_pending)
    decide = _does(o.decide_pending)
    answer = _does(o.answer_pending)
    give_result = _does(o.give_result)
    give_error = _does(o.give_error)
    arguments = _does(o.get_arguments)
    receipt = _does(o.get_receipt)
    check = _does(o.check_answer)
    history = _gives(o.pending_history)


class AsyncApprovals(_Group):
    """Approvals of agents that live elsewhere: asked, decided by people, consumed once."""

    request = _does(o.request_approval)
    get = _does(o.get_approval)
    wait = _does(o.wait_for_approval)
    consume = _does(o.consume_approval)


class AsyncInbox(_Group):
    """The questions that ask you, and your decisions."""

    list = _gives(o.list_inbox)
    follow = _gives(o.follow_inbox)
    counts = _does(o.count_inbox)
    get = _does(o.check_pending)
    claim = _does(o.claim_pending)
    release = _does(o.release_pending)
    decide = _does(o.decide_several)
    decided = _gives(o.list_decided)
    delegations = _does(o.list_delegations)
    delegate = _does(o.delegate)
    end_delegation = _does(o.end_delegation)
    absences = _gives(o.list_absences)
    enter_absence = _does(o.enter_absence)
    end_absence = _does(o.end_absence)


class AsyncThreads(_Group):
    list = _gives(o.list_threads)
    get = _does(o.get_thread)
    messages = _gives(o.list_messages)
    queued = _does(o.list_queued)
    withdraw = _does(o.withdraw_queued)


class AsyncFeedback(_Group):
    list = _gives(o.list_feedback)
    give = _does(o.give_feedback)
    get = _does(o.get_feedback)
    withdraw = _does(o.withdraw_feedback)


class AsyncAudit(_Group):
    """The recorded acts of people and credentials, for auditors."""

    list = _gives(o.list_audit)
    chain = _gives(o.read_audit_chain)
    anchor = _does(o.get_audit_anchor)


class AsyncWorkers(_Group):
    """The processes that perform runs, for operators."""

    list = _does(o.list_workers)


class AsyncKeys(_Group):
    """API keys, for admins."""

    create = _does(o.create_key)
    list = _gives(o.list_keys)
    revoke = _does(o.revoke_key)


class AsyncTenants(_Group):
    """Tenants and their limits, for admins."""

    list = _gives(o.list_tenants)
    get = _does(o.get_tenant)
    limit = _does(o.limit_tenant)
    place = _does(o.place_tenant)


class AsyncTokens(_Group):
    """Tokens that a backend gives to its pages."""

    create = _does(o.create_token)


class AsyncTickets(_Group):
    """Tickets for streams of clients that can't send a header."""

    create = _does(o.create_ticket)


class AsyncSession(_Group):
    """Your identity and rights here."""

    get = _does(o.get_session)


class AsyncFiles(_Group):
    """Files that input, answers and messages refer to."""

    put = _does(o.put_file)
    get = _does(o.get_file)


class AsyncEvents(_Group):
    send = _does(o.send_event)


class AsyncSchedules(_Group):
    list = _gives(o.list_schedules)
    get = _does(o.get_schedule)
    fires = _does(o.get_fires)
    pause = _does(o.pause_schedule)
    resume = _does(o.resume_schedule)
    run = _does(o.run_schedule)
