"""The signature under each answer of a tool at `/mcp`: by it a client finds an answer that was changed or sent again.

`_meta["hai-flow/signature"]` is a JWS (RFC 7515) by the deployment's first key (`/.well-known/jwks.json`) over JSON as
RFC 8785 writes it: `nonce`, `at` (ms), the tool, the request's id, the sha256 of its arguments and that of the answer
(docs/mcp.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

import mcp_types as types
import rfc8785
import structlog

from hai_flow.api.requests.access import Access
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.signing import ANSWER_TYPE, BadKeys, SigningKeys

log = structlog.get_logger(__name__)

SIGNATURE: Final = "hai-flow/signature"
NOT_COVERED: Final = frozenset({"_meta", "requestState", "resultType"})
"""The members of an answer that others write behind us: the SDK seals the state, and older revisions have no type."""


async def sign_answer(
    access: Access, request_id: Any, params: types.CallToolRequestParams, answer: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer with its signature; as it is where the deployment has no keys, or the answer no RFC 8785 form. Large
    ones are signed beside the loop."""
    try:
        keys = access.runtime.receipt_keys.find()
        if keys is None:
            return dict(answer)
        at = access.runtime.committer.now_ms()
        signature = await run_if_large((params.arguments, answer), _sign, keys, at, request_id, params, answer)
    except (BadKeys, rfc8785.CanonicalizationError, ValueError) as error:
        log.warning("mcp_answer_unsigned", tool=params.name, error=str(error))
        return dict(answer)
    meta = answer.get("_meta")
    return {**answer, "_meta": {**(meta if isinstance(meta, Mapping) else {}), SIGNATURE: signature}}


def _sign(
    keys: SigningKeys, at: int, request_id: Any, params: types.CallToolRequestParams, answer: Mapping[str, Any]
) -> str:
    payload = rfc8785.dumps({
        "nonce": uuid4().hex,
        "at": at,
        "tool": params.name,
        "request": str(request_id),
        "arguments": sha256(rfc8785.dumps(params.arguments or {})).hexdigest(),
        "answer": digest_answer(answer),
    })  # fmt: skip
    return keys.sign(payload, ANSWER_TYPE)


def digest_answer(answer: Mapping[str, Any]) -> str:
    """The sha256, in hexadecimal, of what a client reads in the answer."""
    return sha256(rfc8785.dumps({name: answer[name] for name in answer if name not in NOT_COVERED})).hexdigest()
