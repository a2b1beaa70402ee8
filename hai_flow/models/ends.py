"""The end of an answer: the words of servers for it, and the states of an answer. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from hai_flow.models.vocabulary import Reason

# --- the words of servers ---------------------------------------------------------------------------------------------

_WORDS: Final[dict[Reason, str]] = {
    "stop": "stop stopped tool_calls tool_call toolcalls tool_use function_call function_calls end_turn end ended eos "
    "eos_token eosfound eos_token_id end_of_turn end_of_text im_end eot_id stop_sequence stop_token stop_token_id "
    "stop_token_ids stop_string stop_str stop_word stopstringfound complete completed done finish finished success "
    "normal",
    "length": "length max_tokens max_token max_length max_output max_output_tokens max_completion_tokens "
    "max_tokens_reached max_length_reached length_limit max_new_tokens model_length token_limit "
    "maxpredictedtokensreached contextlengthreached context_length_exceeded context_window_exceeded "
    "model_context_window_exceeded error_limit",
    "refused": "content_filter content_filtered contentfilter sensitive safety image_safety refusal refused "
    "guardrail_intervened recitation blocklist prohibited_content spii language error_toxic moderation moderated "
    "filtered blocked policy_violation risk_control model_armor image_prohibited_content image_recitation flagged",
    "failed": "error network_error insufficient_system_resource abort aborted cancel cancelled canceled timeout "
    "time_limit failed failure server_error internal_error system_error malformed_function_call "
    "malformed_tool_use malformed_model_output unexpected_tool_call too_many_tool_calls function_call_filter other "
    "overloaded engine_overloaded server_overloaded unavailable user_cancel malformed_response image_other "
    "no_image interrupted modelunloaded userstopped not_finished preempted engine_error upstream_error "
    "connection_error provider_error api_error user_abort disconnect disconnected connection_lost "
    "exception deadline_exceeded",
}
REASONS: Final[dict[str, Reason]] = {word: reason for reason, words in _WORDS.items() for word in words.split()}
"""The meaning of each known word of a server, in lower case with `_` between its parts."""

CALLING: Final = frozenset({"tool_calls", "tool_call", "toolcalls", "tool_use", "function_call", "function_calls"})
"""The words that announce calls: an answer without any has lost them."""

_WORST_FIRST: Final[tuple[Reason, ...]] = ("refused", "failed", "length", "unknown", "stop")


_BARE: Final = {word.replace("_", ""): word for word in (*REASONS, "null", "none")}
_PREFIXES: Final = re.compile(r"(?:finish_?reason|stop_?reason)[._ ](?=.)", re.IGNORECASE)
"""The name of a list of words, as some servers write it in front: `FinishReason.STOP`, `FINISH_REASON_STOP`."""


_AROUND: Final = " \t\r\n<>|"  # `<|im_end|>`: the model's own token, as it is written


def word_of(reason: str) -> str:
    """A server's word as `REASONS` has it, whatever its case and its parts are joined by."""
    word = _PREFIXES.sub("", reason.strip(_AROUND), count=1).lower().replace("-", "_").replace(" ", "_")
    return _BARE.get(word.replace("_", ""), word)


def reason_of(reason: str) -> Reason:
    """The meaning of a server's word: `unknown` for one that is in no list. Gemini's compatible endpoint has two in
    one, like `content_filter: SAFETY`."""
    parts = [word_of(part) for part in reason.split(":")]
    return worst({REASONS.get(part, "unknown") for part in parts if part} - _noise(parts))


def _noise(parts: list[str]) -> set[Reason]:
    """A second word that nothing is known of says nothing against the first."""
    reasons = [part for part in parts if part in REASONS]
    return {"unknown"} if reasons and len(reasons) < len(parts) else set()


def worst(reasons: set[Reason]) -> Reason:
    """The reason that counts where a server gives several."""
    return next((each for each in _WORST_FIRST if each in reasons), "unknown")


# --- the states of an answer ------------------------------------------------------------------------------------------


class Stand(StrEnum):
    """How far an answer is."""

    SILENT = "silent"  # nothing has come
    SPEAKING = "speaking"  # a piece of it has come
    ENDED = "ended"  # the server has given a reason for its end
    OVER = "over"  # the server has said that nothing follows
    WHOLE = "whole"
    BROKEN = "broken"


class Sign(StrEnum):
    """A part of an answer, or of its end."""

    PIECE = "piece"  # text, thinking, a file, a piece of a call
    REASON = "reason"  # why it ends: `finish_reason`, `stop_reason`, `response.completed`
    MARK = "mark"  # that nothing follows: `[DONE]`, `message_stop`
    CLOSE = "close"  # the stream is at its end, in order


STANDS: Final[dict[tuple[Stand, Sign], Stand]] = {
    (Stand.SILENT, Sign.PIECE): Stand.SPEAKING,
    (Stand.SILENT, Sign.REASON): Stand.ENDED,
    (Stand.SILENT, Sign.MARK): Stand.BROKEN,  # nothing was said, and no reason given
    (Stand.SILENT, Sign.CLOSE): Stand.BROKEN,
    (Stand.SPEAKING, Sign.PIECE): Stand.SPEAKING,
    (Stand.SPEAKING, Sign.REASON): Stand.ENDED,
    (Stand.SPEAKING, Sign.MARK): Stand.OVER,
    (Stand.SPEAKING, Sign.CLOSE): Stand.BROKEN,
    (Stand.ENDED, Sign.PIECE): Stand.ENDED,  # some servers give the reason in every chunk
    (Stand.ENDED, Sign.REASON): Stand.ENDED,
    (Stand.ENDED, Sign.MARK): Stand.OVER,
    (Stand.ENDED, Sign.CLOSE): Stand.WHOLE,
    (Stand.OVER, Sign.CLOSE): Stand.WHOLE,
}
"""The next stand of an answer. Where there is none, the sign changes nothing: what follows the end is no part of it."""
