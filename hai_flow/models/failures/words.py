"""The words by which models' servers name the kind of a fault. Pure."""

from __future__ import annotations

import re
from typing import Final

from hai_flow.primitives.late_patterns import compile_late


def _compile_pattern(*patterns: str) -> re.Pattern[str]:
    return compile_late("|".join(patterns), re.I)


TOO_LONG: Final = _compile_pattern(
    r"context.?(length|window|size|limit)|maximum context|exceed_context",
    r"max(imum)?.(model|input|sequence|seq|prompt).?(length|len|tokens)|model_max_prompt_tokens",
    r"string_above_max_length.{0,40}\b(messages|input|prompt)",  # tools and users have names that can be too long, too
    r"too many (input |prompt )?tokens|request too large|request_too_large|range of input length",
    r"token limit (was |is |has been )?(reached|exceeded)",
    r"(prompt|input|request|messages?|conversation|text)\W+(is|are|was|has|was found to be)?\W*too (long|large)",
    r"reduce (the|your) (length|prompt|messages?|input|size)|shorten (the|your)",
    r"(input|prompt|number of|total) .{0,40}?(tokens?|length|size).{0,60}?"
    r"(exceed|must be <=|larger than|greater than|longer than|more than|over the)",
    r"exceed\w* .{0,60}?(context|token limit|tokens? (limit|allowed)|input (length|limit)|max(imum)?.{0,12}length)",
    r"tokens?\b.{0,60}?(must be (in|<=|less|at most|under|no more)|exceed|(larger|greater|longer) than|over the limit)",
    r"(exceed\w*|more than) .{0,60}?max(imum)?.{0,12}tokens",
    r"(must have|supports?|accepts?|allows?) (less than|fewer than|at most|up to|no more than) \d+ (\w+ )?tokens",
    r"(prompt|input|request|message|conversation|text)\b.{0,20}longer than|overflow\w* .{0,20}context",
    r"(input|prompt|total|messages?|conversation|request)\b.{0,30}?\btokens?\b.{0,40}(limit\W+(is )?|more than the )\d",
    r"over the max(imum)? .{0,12}tokens|context.{0,20}overflow|context shift is disabled|kv.?cache is full",
    r"longueur (de|du|maximale du) contexte|(entrée|message|prompt) .{0,12}trop long|zu lang|demasiado larg[oa]",
    r"слишком длинн|длин[аыу] контекста|コンテキスト長|長すぎ|トークン.{0,12}超",
    r"너무 (길|깁)|컨텍스트 (길이|창)|prompt.{0,6}超",
    r"(上下文|[输輸]入|提示[词詞]?|[长長]度|[对對][话話]|[请請]求[内內]容|文本|token)"
    r".{0,16}(超[过過出限]|[过過太][长長])",
    r"超[过過出].{0,16}(上下文|[长長]度|最大)|\b1261\b",
    r"(prompt|input) (is|has) \d+ tokens|maximum supported sequence|cannot exceed \d+ tokens|content is too long",
    r"max_(completion_)?tokens must be .{0,24}got -",  # what a long prompt leaves of the context
)
OTHERWISE_LONG: Final = _compile_pattern(
    r"too large: \d+\. this model supports at most \d+ completion tokens|maximum allowed number of output tokens",
    r"max_(completion_|output_)?tokens`? must be less than or equal to",
    r"(?<!and )(?<!and [`'])(?<!\+ )(?<!\+ [`'])"
    r"\b(max_\w{0,12}tokens|budget_tokens)[`':]{0,2} cannot exceed \d+ tokens",  # alone, and not in a sum
    r"\bdescription\b.{0,16}(cannot exceed \d+ tokens|content is too long)",
    r"tool_?calls?\W.{0,16}\Wid\b.{0,8}string too long|call_id\b.{0,8}string too long|invalid schema",
    r"throttling|too many tokens\b[^.]{0,16}, please wait|\brate limit\b",
)
"""Words for what no shorter conversation makes smaller: the bound of the answer, an id, a schema, a limit for a minute
or a day."""
FILTERED: Final = _compile_pattern(
    r"content.?filter|content.?policy|content management|responsibleai|data_?inspection|safety|guardrail|moderation",
    r"(?<!case.)sensitive|flagged|敏感|不安全|违规|\b1301\b|minimax:10(26|27)",
)
UNPAID_CODES: Final = _compile_pattern(
    r"insufficient_?(user_?|account_?)?(quota|balance|credits?|funds)|billing_(hard_limit_reached|not_active|error)",
    r"arrearage|budget_exceeded|payment_required|credits?_exhausted|exceeded_current_quota|free_?tier_?only|\b1113\b|minimax:1008",
)
UNPAID_WORDS: Final = _compile_pattern(
    r"insufficient (account )?(balance|quota|credits?|funds)",
    r"(balance|credits?|funds) (is |are )?(too low|insufficient)",
    r"out of (credits?|money)|(more|add|purchase|buy|requires?) credits?|exceeded your current quota|payment required",
    r"free (tier|quota) .{0,40}(exhausted|used up)|overdue|余额不足|欠费|充值|额度不足",
)
"""Words of a sentence say it only where the server names no wait: some quotas begin anew."""
DAILY: Final = _compile_pattern(
    r"per.?day|\b(rpd|tpd)\b|daily|每日|每天|今日|当日|(per|every).?(week|month)|weekly|monthly"
)
LIMITED: Final = _compile_pattern(
    r"rate.?limit|too many (requests|concurrent|tokens\b[^.]{0,16}, please wait)|throttl|slow down|request limit",
    r"quota (is )?(exceeded|reached)",
    r"请求过于频繁|限流|请求过多",
)
"""Words for too many requests, where a server gives no status."""
NO_KEY: Final = _compile_pattern(
    r"api[ _-]?key (is )?(not valid|invalid|missing|expired|incorrect)|incorrect api key|api_key_invalid",
    r"invalid.{0,10}(api|access)[ _-]?(key|token)|missing (api|bearer)|authentication|unauthori[sz]ed|sign.?in",
    r"log.?in (first|required)|credentials|minimax:(1004|2049)",
)
NO_MODEL: Final = _compile_pattern(
    r"model_?not_?(found|exist)|(unknown|no such|invalid) model|no model named|模型不存在|\b1211\b",
    r"model\W.{0,80}?(not (found|exist|available|loaded|supported)|does.?n.t exist|does not exist)",
)
TURNS: Final = _compile_pattern(
    r"roles? must alternate|alternate .{0,20}(user|role)|alternat\w+ between .{0,20}(user|assistant)",
    r"(consecutive|successive) .{0,20}(user|assistant|role|messages)|same role|alternate with assistant",
)
SHORT_IDS: Final = _compile_pattern(
    r"tool.?call.?id was .{1,300}?must be a-z",
    r"(tool_?calls?\W.{0,16}\Wid|call_?id)\b.{0,8}string too long",  # of OpenAI: 40 characters, or 64
    r"tool_?use(\W{0,2}|_)id\b.{0,80}(match pattern|must satisfy|failed to satisfy)",  # of Anthropic, and on Bedrock
)
MALFORMED: Final = _compile_pattern(
    r"tool_use_failed|output_parse_failed|json_validate_failed|malformed_(function|tool)_call",
    r"failed to (call a function|generate json)\b|tool call validation failed|output that could not be parsed",
    r"unexpected tokens remaining in message header",
)
"""The words of servers that can't read the call or the object that their model wrote: Groq, vLLM with gpt-oss."""
AWAY: Final = frozenset({408, 409, 425, 499, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""The statuses of a server that could answer a little later."""
STATUSES: Final[dict[str, int]] = {
    word: status
    for status, words in {
        400: "invalid_request_error badrequesterror bad_request invalid_argument validationexception invalidparameter "
        "invalid_parameter_error failed_precondition unprocessable_entity minimax:2013",
        401: "authentication_error unauthenticated unauthorized invalid_api_key invalidapikey "
        "unrecognizedclientexception minimax:1004 minimax:2049",
        403: "permission_error permission_denied accessdeniedexception access_denied accessdenied",
        404: "not_found_error not_found notfounderror model_not_found modelnotfound resourcenotfoundexception",
        408: "request_timeout",
        413: "request_too_large exceed_context_size_error context_length_exceeded",
        429: "rate_limit_exceeded rate_limit_error ratelimiterror rate_limit_reached too_many_requests toomanyrequests "
        "overloaded_error resource_exhausted throttlingexception throttling throttling.ratequota limit_requests "
        "throttling.allocationquota throttling.burstrate servicequotaexceededexception rate_limit_reached_error "
        "1302 1303 1304 1308 minimax:1002 minimax:1039 minimax:1041",
        500: "internal server_error api_error internal_error internal_server_error internalserverexception "
        "modelerrorexception modelstreamerrorexception internalservererror minimax:1013 minimax:1033",
        503: "unavailable overloaded engine_overloaded_error serviceunavailableexception modelnotreadyexception 1305 "
        "minimax:1000",
        504: "deadline_exceeded modeltimeoutexception timeout_error timeout minimax:1001",
    }.items()
    for word in words.split()
}
"""The HTTP status that a word for a kind of fault stands for, where a server gives no status."""
