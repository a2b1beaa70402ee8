"""Receipts of decisions, and the public keys with which anybody can verify them."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Request, Response

from hai_flow import signing
from hai_flow.api.http.bodies import CheckedRoute
from hai_flow.api.http.problems import list_refusal_responses
from hai_flow.api.permissions.principals import open_to_everybody, requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.rest.people.decide_pendings import find_pending
from hai_flow.api.routes import refer_to_shape
from hai_flow.runtime.people.receipts import ReceiptReader, build_receipt

router = APIRouter(tags=["pendings"], route_class=CheckedRoute)


@router.get(
    "/v1/pendings/{pending_id}/receipt",
    dependencies=[requires(Right.SEE_OWN, Right.SEE_INBOX)],
    response_model=None,
    responses={**list_refusal_responses(404, 409), 200: refer_to_shape({"model": schemas.Receipt})},
)
async def get_receipt(pending_id: str, access: CurrentAccess) -> Response:
    """The signed receipt of a decision: the question, the votes, and what was done (docs/receipts.md). Keep the bytes
    as they are. 409 while the question is open, or the call that was approved has not ended."""
    run, pending = await find_pending(access, pending_id)
    run_id = UUID(run.run_id)
    keys = access.runtime.receipt_keys.demand()
    reader = ReceiptReader(access.mask(run_id), access.sees_evidence(run, pending), access.can_see_conversation(run_id))
    receipt = await build_receipt(access.reads, access.tenant, run_id, pending_id, keys, reader)
    return Response(receipt, media_type="application/json")


@router.get(
    "/.well-known/jwks.json",
    dependencies=[open_to_everybody()],
    response_model=None,
    responses={**list_refusal_responses(), 200: refer_to_shape({"model": schemas.PublicKeys})},
)
async def get_public_keys(request: Request) -> schemas.PublicKeys:
    """The public halves of the keys that sign receipts, as a JWK Set, the signing one first; retired ones stay."""
    try:
        keys = request.app.state.runtime.receipt_keys.find()
    except signing.BadKeys:
        keys = None
    return {"keys": []} if keys is None else keys.public
