"""`/v1/threads/{thread_id}/feedback`: people's opinions of messages and decisions (docs/design/protocols.md#feedback).

HAI asks for feedback but defines no form of it on the wire, so this form is ours. Each principal has one opinion of
each subject. It is a resource of its own: PUT stores or replaces it, DELETE takes it back. No run changes by it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, cast
from uuid import UUID

from fastapi import Path, Response
from pydantic import BeforeValidator, Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, ThreadId
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, cut, demand_id_cursor, encode_cursor
from hai_flow.api.requests.views import render_feedback
from hai_flow.api.rest.runs.threads import find_thread
from hai_flow.api.routes import Routes, answers_of
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.errors import Rejected, reject_unknown_run
from hai_flow.store.people import feedback
from hai_flow.store.people.feedback import Kind, Opinion, Rating, Subject

router = Routes(prefix="/v1/threads/{thread_id}/feedback", tags=["feedback"])

Kinds: TypeAlias = Annotated[Literal["messages", "pendings"], Path(description="what is judged")]
# Ids of messages are the clients', and may have a slash; nothing comes behind them.
SubjectId: TypeAlias = Annotated[str, Path(max_length=200, pattern=NO_CONTROL_CHARACTERS)]


def _refuse_boolean(value: Any) -> Any:
    """`true` is no star, though Python says that it equals 1."""
    if isinstance(value, bool):
        raise ValueError("expected 'up', 'down' or a number from 1 to 5, found a boolean")
    return value


class FeedbackBody(Body):
    """An opinion: at least one of the fields. `rating`: a thumb, or one to five stars. `labels`: words of the client's
    own."""

    rating: Annotated[schemas.Rating | None, BeforeValidator(_refuse_boolean)] = None
    comment: str | None = Field(default=None, max_length=10_000)
    labels: list[Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROL_CHARACTERS)]] = Field(
        default=[], max_length=20
    )

    @property
    def opinion(self) -> Opinion:
        """Raises Rejected 422."""
        if self.rating is None and not self.comment and not self.labels:
            raise Rejected(
                422, "feedback.empty", "expected a rating, a comment or labels; to take one back, DELETE it."
            )
        rating = None if self.rating is None else cast(Rating, str(self.rating))
        return Opinion(rating, self.comment or None, list(dict.fromkeys(self.labels)))


@router.get("", Right.SEE_OWN, refusals=(404,))
async def list_feedback(
    thread_id: ThreadId, access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None
) -> schemas.FeedbackPage:
    """All opinions of the thread's messages and decisions, newest first."""
    before = demand_id_cursor(cursor)
    opinions = await feedback.list_feedback(access.reads, access.tenant, thread_id, limit=limit + 1, before=before)
    if not opinions or access.viewer is not None:
        await find_thread(access, thread_id)
    rows, following = cut(opinions, limit, lambda row: encode_cursor(row.created_at, row.id))
    return {"items": [render_feedback(each) for each in rows], "next_cursor": following}


@router.get("/{kind}/{subject_id:path}", Right.SEE_OWN, refusals=(404,))
async def get_feedback(
    thread_id: ThreadId, kind: Kinds, subject_id: SubjectId, access: CurrentAccess
) -> schemas.Feedback:
    """Your opinion of it."""
    subject = _subject(access, thread_id, kind, subject_id)
    opinion = await feedback.get_feedback(access.reads, subject, access.principal.id)
    if opinion is None or access.viewer is not None:
        await _find(access, subject)
    if opinion is None:
        raise Rejected(404, "feedback_unknown", f"you have not said what you think of the {subject.kind}.")
    return render_feedback(opinion)


@router.put(
    "/{kind}/{subject_id:path}", Right.SPEAK, Right.DECIDE, refusals=(404, 409),
    responses=answers_of("it stands, instead of what you said before", "it stands"),
)  # fmt: skip
async def put_feedback(
    thread_id: ThreadId,
    kind: Kinds,
    subject_id: SubjectId,
    body: FeedbackBody,
    access: CurrentAccess,
    response: Response,
) -> schemas.Feedback:
    """Store your opinion of it; an earlier one of yours is replaced. The same again changes nothing. 409 for a pending
    that is still open: it is judged after it was decided."""
    opinion = body.opinion
    subject = _subject(access, thread_id, kind, subject_id)
    run_id = await _find(access, subject, decided=True)
    principal = access.principal
    with access.admission.command():
        async with access.pool.acquire() as connection, connection.transaction():
            if not await feedback.keep_run(connection, run_id):
                raise reject_unknown_run(run_id)
            stored, new = await feedback.give_feedback(
                connection, subject, run_id, principal.id, principal.via("rest"), opinion
            )
    response.status_code = 201 if new else 200
    return render_feedback(stored)


@router.delete(
    "/{kind}/{subject_id:path}",
    Right.SPEAK,
    Right.DECIDE,
    status_code=204,
    refusals=(404,),
    answer={"description": "nothing that you said of it stands"},
)
async def withdraw_feedback(thread_id: ThreadId, kind: Kinds, subject_id: SubjectId, access: CurrentAccess) -> None:
    """Take back your opinion of it, if you gave one."""
    subject = _subject(access, thread_id, kind, subject_id)
    await _find(access, subject)
    with access.admission.command():
        await feedback.withdraw_feedback(access.pool, subject, access.principal.id)


def _subject(access: Access, thread_id: str, kind: str, id: str) -> Subject:
    return Subject(access.tenant, thread_id, cast(Kind, kind.removesuffix("s")), id)


async def _find(access: Access, subject: Subject, *, decided: bool = False) -> UUID:
    """The run that has the message or pending. Raises Rejected 404 if the thread does not have it; with `decided`, 409
    if the pending is open."""
    if subject.kind == "message":
        run_id = await feedback.run_of_message(access.reads, access.tenant, subject.thread_id, subject.id)
    else:
        run_id = await _run_of_pending(access, subject, decided=decided)
    if run_id is not None and not await _sees(access, subject, run_id):
        run_id = None
    if run_id is None:
        await find_thread(access, subject.thread_id)
        complete = ", or it is not complete" if subject.kind == "message" else ""
        detail = f"there is no {subject.kind} {subject.id[:100]!r} in this thread{complete}."
        raise Rejected(404, f"{subject.kind}_unknown", detail)
    return run_id


async def _sees(access: Access, subject: Subject, run_id: UUID) -> bool:
    """Whether the caller sees the message or pending in the run."""
    if access.viewer is None:
        return True
    state = await access.find_state(run_id)
    if state is None or access.can_see_conversation(run_id):
        return state is not None
    return subject.kind == "pending" and subject.id in (await access.seen(state)).pendings


async def _run_of_pending(access: Access, subject: Subject, *, decided: bool) -> UUID | None:
    run_id = run_of_pending(subject.id)
    if run_id is None:
        return None
    status = await feedback.find_pending_of_thread(access.reads, access.tenant, subject.thread_id, run_id, subject.id)
    if status == "open" and decided and await _sees(access, subject, run_id):
        raise Rejected(409, "pending_open", "the pending is open: expected one that has been decided.")
    return None if status is None else run_id
