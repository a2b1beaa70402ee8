"""`Client`: the effects of `effects.py`, performed by a thread that waits. Nothing is decided here."""

# Written by `make generate` from client/awaiting.py: change that, or clients/generate.py.

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
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

    def __init__(self, client: Client) -> None:
        self._client = client


class _does(Generic[P, T]):
    """A method that performs the script which a function of `operations.py` describes."""

    def __init__(self, describe: Callable[P, Script[T]]) -> None:
        self._describe = describe

    def __get__(self, group: _Group, owner: type[_Group]) -> Callable[P, T]:
        def does(*args: P.args, **kwargs: P.kwargs) -> T:
            return group._client.perform(self._describe(*args, **kwargs))

        return update_wrapper(does, self._describe)


class _gives(Generic[P, T]):
    """A method that returns an iterator over the items of a feed."""

    def __init__(self, describe: Callable[P, Feed[T]]) -> None:
        self._describe = describe

    def __get__(self, group: _Group, owner: type[_Group]) -> Callable[P, Items[T]]:
        def gives(*args: P.args, **kwargs: P.kwargs) -> Items[T]:
            return Items(group._client, self._describe(*args, **kwargs))

        return update_wrapper(gives, self._describe)


class Client(_Group):
    """A HAI Flow server at `url` (default: HAI_FLOW_URL), for threads. `AsyncClient` is the same for asyncio.

    `key` (default: HAI_FLOW_KEY) identifies the caller: an API key, or another token that the server takes. If it is a
    function, it is called before each request, so that it can renew a token that expires. `act_as`: speak as somebody
    else (`user:ann,role:controller`), which only a development server without identity believes. `headers` go with
    every request. `http`: a client of your own, for certificates, proxies or an application in this process; it is not
    closed. Raises HaiFlowError and its kinds. May be shared by threads; an iterator may not.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        act_as: str | None = None,
        key: Credential | None = None,
        headers: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        http: httpx2.Client | None = None,
    ) -> None:
        super().__init__(self)
        self.link = Link.to(url, act_as=act_as, key=key, headers=headers, patience=patience)
        self._given = http
        self.workflows = Workflows(self)
        self.runs = Runs(self)
        self.pendings = Pendings(self)
        self.approvals = Approvals(self)
        self.inbox = Inbox(self)
        self.threads = Threads(self)
        self.feedback = Feedback(self)
        self.audit = Audit(self)
        self.workers = Workers(self)
        self.keys = Keys(self)
        self.tenants = Tenants(self)
        self.tokens = Tokens(self)
        self.tickets = Tickets(self)
        self.session = Session(self)
        self.files = Files(self)
        self.events = Events(self)
        self.schedules = Schedules(self)
        _ = self.http  # made before threads could make one each

    request = _does(o.send_request)
    items = _gives(o.list_items)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._given is None and "http" in vars(self):
            self.http.close()

    @cached_property
    def http(self) -> httpx2.Client:
        """The HTTP client."""
        import httpx2

        return self._given or httpx2.Client(trust_env=self.link.trusts_environment)

    def hands(self) -> Hands:
        """The performer of one script's effects."""
        return Hands(self)

    def perform(self, script: Script[T]) -> T:
        """Perform a script to its end."""
        hands = self.hands()
        reply: Any = None
        try:
            while True:
                reply = hands.do(script.send(reply))
        except StopIteration as end:
            return end.value
        finally:
            hands.close()


class Hands:
    """Performs the effects of one script, and holds the stream that it has opened."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._response: httpx2.Response | None = None
        self._chunks: Iterator[bytes] | None = None

    def do(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return self._send(self._signed(effect))
            case Read():
                return self._read()
            case Backoff():
                self.close()
                return time.sleep(self._client.link.patience.pause(effect))
            case Now():
                return time.monotonic()
            case NewKey():
                return str(uuid.uuid4())

    def _signed(self, request: Request) -> Request:
        if self._client.link.ask is None:
            return request
        credential = self._client.link.ask()
        key = credential
        return self._client.link.signed(request, key)

    def _send(self, request: Request) -> Answer | Lost:
        self.close()
        http, link = self._client.http, self._client.link
        try:
            response = http.send(http.build_request(**link.prepared(request)), stream=True)
            self._response = response
            if request.streams and response.is_success:
                self._chunks = response.iter_bytes()
                return answer(response)
            return answer(response, response.read())
        except faults() as error:
            return link.lost(error)

    def _read(self) -> bytes | Lost:
        try:
            assert self._chunks is not None, "a stream was opened"
            return next(self._chunks, b"")
        except faults() as error:
            return self._client.link.lost(error)

    def close(self) -> None:
        self._chunks = None
        if self._response is not None:
            self._response.close()
            self._response = None


class Items(Iterator[T]):
    """Items as they come. Closed at its end, by `close`, or by leaving its `with`."""

    def __init__(self, client: Client, feed: Feed[T]) -> None:
        self._hands = client.hands()
        self._feed = feed

    def __next__(self) -> T:
        reply: Any = None
        try:
            while True:
                effect = self._feed.send(reply)
                if isinstance(effect, Give):
                    return effect.item
                reply = self._hands.do(effect)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The run goes on; follow it again from the last event's `seq`."""
        self._feed.close()
        self._hands.close()


# --- the surface --------------------------------------------------------------------------------------------------


class Workflows(_Group):
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


class Runs(_Group):
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


class Pendings(_Group):
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


class Approvals(_Group):
    """Approvals of agents that live elsewhere: asked, decided by people, consumed once."""

    request = _does(o.request_approval)
    get = _does(o.get_approval)
    wait = _does(o.wait_for_approval)
    consume = _does(o.consume_approval)


class Inbox(_Group):
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


class Threads(_Group):
    list = _gives(o.list_threads)
    get = _does(o.get_thread)
    messages = _gives(o.list_messages)
    queued = _does(o.list_queued)
    withdraw = _does(o.withdraw_queued)


class Feedback(_Group):
    list = _gives(o.list_feedback)
    give = _does(o.give_feedback)
    get = _does(o.get_feedback)
    withdraw = _does(o.withdraw_feedback)


class Audit(_Group):
    """The recorded acts of people and credentials, for auditors."""

    list = _gives(o.list_audit)
    chain = _gives(o.read_audit_chain)
    anchor = _does(o.get_audit_anchor)


class Workers(_Group):
    """The processes that perform runs, for operators."""

    list = _does(o.list_workers)


class Keys(_Group):
    """API keys, for admins."""

    create = _does(o.create_key)
    list = _gives(o.list_keys)
    revoke = _does(o.revoke_key)


class Tenants(_Group):
    """Tenants and their limits, for admins."""

    list = _gives(o.list_tenants)
    get = _does(o.get_tenant)
    limit = _does(o.limit_tenant)
    place = _does(o.place_tenant)


class Tokens(_Group):
    """Tokens that a backend gives to its pages."""

    create = _does(o.create_token)


class Tickets(_Group):
    """Tickets for streams of clients that can't send a header."""

    create = _does(o.create_ticket)


class Session(_Group):
    """Your identity and rights here."""

    get = _does(o.get_session)


class Files(_Group):
    """Files that input, answers and messages refer to."""

    put = _does(o.put_file)
    get = _does(o.get_file)


class Events(_Group):
    send = _does(o.send_event)


class Schedules(_Group):
    list = _gives(o.list_schedules)
    get = _does(o.get_schedule)
    fires = _does(o.get_fires)
    pause = _does(o.pause_schedule)
    resume = _does(o.resume_schedule)
    run = _does(o.run_schedule)
