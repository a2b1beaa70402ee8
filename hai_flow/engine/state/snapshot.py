"""A state as bytes and back. A snapshot is a cache of the fold and nothing more: deleting all changes nothing.

`ABI` names the shape of `RunState`; a snapshot of another ABI is not read, the log is folded instead."""

from __future__ import annotations

from typing import Any, Final, get_args, get_origin

import immutables
import msgspec

from hai_flow.engine.state.state import RunState
from hai_flow.errors import Unreadable

ABI: Final = 18


def _encode_value(value: Any) -> Any:
    if isinstance(value, immutables.Map):
        return dict(value)
    raise NotImplementedError(f"{type(value)} in a state")


def _read(kind: Any, value: Any) -> Any:
    if get_origin(kind) is immutables.Map:
        return immutables.Map(msgspec.convert(value, dict[get_args(kind)], dec_hook=_read))  # type: ignore[misc]
    raise NotImplementedError(f"{kind} in a state")


_encoder = msgspec.json.Encoder(enc_hook=_encode_value)
_decoder = msgspec.json.Decoder(RunState, dec_hook=_read)


def encode_state(state: RunState) -> bytes:
    return _encoder.encode(state)


def decode_state(stored: bytes) -> RunState:
    """The state that `encode_state` wrote under the same ABI. Raises `Unreadable`."""
    try:
        return _decoder.decode(stored)
    except msgspec.DecodeError as error:
        raise Unreadable(f"the snapshot has what this release does not know: {error}") from error
