"""Chats of providers: DeepSeek, DashScope, Zhipu, Moonshot, MiniMax, Azure, OpenRouter, Gemini and Mistral by their
compatible endpoints, Groq, Together, Bedrock behind gateways, LiteLLM."""

from __future__ import annotations

from typing import Final

from tests.foreign.chats import ADDED, HI, TWO
from tests.foreign.transcripts import DONE, Failed, Said, Transcript, call, chunk, document, end, stream, text, usage

DEEPSEEK: Final = [
    Transcript(
        "deepseek: keep-alive comments while it waits in a queue",
        stream(
            ": keep-alive\n\n", ": keep-alive\n\n", *text("Hi"), end(usage=usage(9, 1, prompt_cache_hit_tokens=8)), DONE
        ),
        Said("Hi", usage=(9, 1)),
    ),
    Transcript(
        "deepseek: thinking, then a call",
        stream(
            chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
            chunk({"reasoning_content": "I add."}),
            call(0, "call_0", "add", ""),
            call(0, args='{"text": "h'),
            call(0, args='i"}'),
            end("tool_calls"),
            DONE,
        ),
        Said(calls=(("add", {"text": "hi"}),), thinking="I add."),
    ),
    Transcript(
        "deepseek: out of money",
        document(
            {
                "error": {
                    "message": "Insufficient Balance",
                    "type": "unknown_error",
                    "param": None,
                    "code": "invalid_request_error",
                }
            }
        ),
        Failed("llm.rate_limited", "Insufficient Balance"),
        status=402,
    ),
    Transcript(
        "deepseek: not enough machines",
        stream(*text("So"), end("insufficient_system_resource"), DONE),
        Failed("llm.unavailable", "insufficient_system_resource", True),
    ),
    Transcript(
        "deepseek: thinking and no word",
        stream(chunk({"reasoning_content": "Four, so I say four."}), end("stop"), DONE),
        Failed("llm.empty", again=True),
    ),
    Transcript(
        "deepseek: no such model",
        document({"error": {"message": "Model Not Exist", "code": "invalid_request_error"}}),
        Failed("llm.not_configured", "Model Not Exist"),
        status=400,
    ),
    Transcript(
        "deepseek: blank lines as a JSON answer waits",
        b"\n\n\n"
        + document(
            {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
        ),
        Said("Hi"),
    ),
]

DASHSCOPE: Final = [
    Transcript(
        "dashscope: id and type empty in later pieces",
        stream(
            call(0, "call_1", "add", ""),
            call(0, "", "", '{"text": '),
            call(0, "", "", '"hi"}'),
            end("tool_calls"),
            DONE,
        ),
        ADDED,
    ),
    Transcript(
        "dashscope: content null in every chunk",
        stream(
            chunk({"content": None, "role": "assistant"}),
            chunk({"content": "Hi", "reasoning_content": None}),
            end(),
            DONE,
        ),
        Said("Hi"),
    ),
    Transcript(
        "dashscope: filtered",
        document(
            {
                "error": {
                    "code": "data_inspection_failed",
                    "message": "Input data may contain inappropriate content.",
                    "type": "data_inspection_failed",
                }
            }
        ),
        Failed("llm.refused", "inappropriate"),
        status=400,
    ),
    Transcript(
        "dashscope: overdue",
        document(
            {
                "error": {
                    "code": "Arrearage",
                    "message": "Access denied, please make sure your account is in good standing.",
                    "type": "Arrearage",
                }
            }
        ),
        Failed("llm.rate_limited", "good standing"),
        status=400,
    ),
    Transcript(
        "dashscope: too long",
        document(
            {"error": {"code": "invalid_parameter_error", "message": "Range of input length should be [1, 30720]"}}
        ),
        Failed("llm.context_exceeded", "30720"),
        status=400,
    ),
    Transcript(
        "dashscope: throttled, by its own form",
        document({"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded", "request_id": "r"}),
        Failed("llm.rate_limited", "rate limit", True),
    ),
    Transcript(
        "dashscope: no key",
        document({"code": "InvalidApiKey", "message": "Invalid API-key provided.", "request_id": "r"}),
        Failed("llm.not_configured", "Invalid API-key"),
        status=401,
    ),
]

ZHIPU: Final = [
    Transcript(
        "zhipu: the network failed",
        stream(*text("The first half of the ans"), end("network_error"), DONE),
        Failed("llm.unavailable", "network_error", True),
    ),
    Transcript("zhipu: sensitive", stream(*text("S"), end("sensitive"), DONE), Failed("llm.refused")),
    Transcript(
        "zhipu: out of money",
        document({"error": {"code": "1113", "message": "您的账户已欠费,请充值后重试"}}),
        Failed("llm.rate_limited", "欠费"),
        status=429,
    ),
    Transcript(
        "zhipu: too many at once",
        document({"error": {"code": "1302", "message": "您当前使用该API的并发数过高"}}),
        Failed("llm.rate_limited", "并发", True),
        status=429,
    ),
    Transcript(
        "zhipu: the prompt is too long",
        document({"error": {"code": "1261", "message": "Prompt 超长"}}),
        Failed("llm.context_exceeded"),
        status=400,
    ),
    Transcript(
        "zhipu: a fault with status 200",
        document({"code": 500, "msg": "404 NOT_FOUND", "success": False}),
        Failed("llm.unavailable", "NOT_FOUND", True),
    ),
    Transcript(
        "zhipu: the model is unknown",
        document({"error": {"code": "1211", "message": "模型不存在,请检查模型代码。"}}),
        Failed("llm.not_configured", "模型不存在"),
        status=400,
    ),
    Transcript(
        "zhipu: a call comes whole in one chunk with its end",
        stream(
            chunk(
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "call_9", "index": 0, "type": "function", "function": {"name": "add", "arguments": HI}}
                    ],
                },
                "tool_calls",
                usage=usage(7, 3),
            ),
            DONE,
        ),
        Said(calls=(("add", {"text": "hi"}),), usage=(7, 3)),
    ),
    Transcript(
        "glm-4: every piece of a call has another id",
        stream(
            call(0, "chatcmpl-tool-a", "add", ""),
            call(0, "chatcmpl-tool-b", args='{"text"'),
            call(0, "chatcmpl-tool-c", args=': "hi"}'),
            end("tool_calls"),
            DONE,
        ),
        ADDED,
    ),
]

MOONSHOT: Final = [
    Transcript(
        "moonshot: ids that count functions",
        stream(call(0, "add:0", "add", ""), call(0, args=HI), end("tool_calls"), DONE),
        ADDED,
    ),
    Transcript(
        "moonshot: usage within the choice's chunk",
        stream(
            *text("Hi"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage(5, 1)}]}, DONE
        ),
        Said("Hi", usage=(5, 1)),
    ),
    Transcript(
        "moonshot: an empty message",
        document(
            {
                "error": {
                    "message": "Invalid request: the message at position 2 with role 'assistant' must not be empty",
                    "type": "invalid_request_error",
                }
            }
        ),
        Failed("llm.invalid_request", "must not be empty"),
        status=400,
    ),
    Transcript(
        "moonshot: too many tokens",
        document(
            {
                "error": {
                    "message": "Invalid request: Your request exceeded model token limit: 8192",
                    "type": "invalid_request_error",
                }
            }
        ),
        Failed("llm.context_exceeded", "8192"),
        status=400,
    ),
    Transcript(
        "moonshot: wait a second",
        document(
            {
                "error": {
                    "message": "Your account request reached max request: 3, please try again after 1 seconds",
                    "type": "rate_limit_reached_error",
                }
            }
        ),
        Failed("llm.rate_limited", "max request", True, 1.0),
        status=429,
    ),
    Transcript(
        "moonshot: over the quota of the account",
        document(
            {
                "error": {
                    "message": "Your account is suspended, please check your plan and billing details",
                    "type": "exceeded_current_quota_error",
                }
            }
        ),
        Failed("llm.rate_limited", "suspended"),
        status=429,
    ),
    Transcript(
        "moonshot: the engine is overloaded",
        document(
            {
                "error": {
                    "message": "The engine is currently overloaded, please try again later",
                    "type": "engine_overloaded_error",
                }
            }
        ),
        Failed("llm.rate_limited", "overloaded", True),
        status=429,
    ),
]

MINIMAX: Final = [
    Transcript(
        "minimax: the whole message in the last chunk",
        stream(
            *text("Hello ", "there"),
            {
                "object": "chat.completion",
                "choices": [
                    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello there"}}
                ],
                "usage": usage(8, 2),
                "base_resp": {"status_code": 0, "status_msg": ""},
            },
            DONE,
        ),
        Said("Hello there", usage=(8, 2)),
    ),
    Transcript(
        "minimax: the call again in the whole message",
        stream(
            call(0, "c", "add", HI),
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {
                            "role": "assistant",
                            "content": "",
                            "tool_calls": [
                                {
                                    "id": "c",
                                    "type": "function",
                                    "function": {"name": "add", "arguments": '{"text":"hi"}'},
                                }
                            ],
                        },
                    }
                ]
            },
            DONE,
        ),
        ADDED,
    ),
    Transcript(
        "minimax: another call in the whole message",
        stream(
            call(0, "c", "add", HI),
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {
                            "tool_calls": [
                                {
                                    "id": "c",
                                    "type": "function",
                                    "function": {"name": "add", "arguments": '{"text":"bye"}'},
                                }
                            ]
                        },
                    }
                ]
            },
            DONE,
        ),
        Failed("llm.truncated", "contradicts", True),
    ),
    Transcript(
        "minimax: another text in the whole message",
        stream(
            *text("Pay 10"),
            {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Pay 100 times"}}]},
            DONE,
        ),
        Said("Pay 100 times"),
    ),
    Transcript(
        "minimax: a text that contradicts its pieces",
        stream(
            *text("Pay Ann"),
            {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Pay Bob"}}]},
            DONE,
        ),
        Failed("llm.truncated", "contradicts", True),
    ),
    Transcript(
        "minimax: a fault with status 200",
        document(
            {
                "base_resp": {"status_code": 1004, "status_msg": "login fail: Please carry the API secret key"},
                "choices": None,
            }
        ),
        Failed("llm.not_configured", "secret key"),
    ),
    Transcript(
        "minimax: out of money",
        document({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
        Failed("llm.rate_limited", "insufficient balance"),
    ),
    Transcript(
        "minimax: too many requests",
        document({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}),
        Failed("llm.rate_limited", "rate limit", True),
    ),
    Transcript(
        "minimax: thinking as details",
        stream(chunk({"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}), *text("Yes."), end(), DONE),
        Said("Yes.", thinking="Hm."),
    ),
]

AZURE: Final = [
    Transcript(
        "azure: a first chunk about the prompt's filters",
        stream(
            {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]},
            *text("Hi"),
            chunk({"content": ""}, None, content_filter_results={}),
            end(),
            DONE,
        ),
        Said("Hi"),
    ),
    Transcript(
        "azure: the prompt is filtered",
        document(
            {
                "error": {
                    "message": "The prompt was filtered by Azure OpenAI's content management policy.",
                    "code": "content_filter",
                    "status": 400,
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            }
        ),
        Failed("llm.refused", "content management"),
        status=400,
    ),
    Transcript("azure: the answer is filtered", stream(*text("S"), end("content_filter"), DONE), Failed("llm.refused")),
    Transcript(
        "azure: retry after seconds in its text",
        document(
            {
                "error": {
                    "code": "429",
                    "message": "Requests have exceeded token rate limit. Please retry after 6 seconds.",
                }
            }
        ),
        Failed("llm.rate_limited", "rate limit", True, 6.0),
        status=429,
    ),
    Transcript(
        "azure: no deployment",
        document(
            {"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}}
        ),
        Failed("llm.not_configured", "deployment"),
        status=404,
    ),
    Transcript(
        "azure: the wrong key",
        document({"error": {"code": "401", "message": "Access denied due to invalid subscription key."}}),
        Failed("llm.not_configured", "subscription"),
        status=401,
    ),
]

OPENROUTER: Final = [
    Transcript(
        "openrouter: processing comments",
        stream(
            ": OPENROUTER PROCESSING\n\n",
            ": OPENROUTER PROCESSING\n\n",
            *text("Hi"),
            end(),
            chunk({"content": ""}, usage=usage(3, 1)),
            DONE,
        ),
        Said("Hi", usage=(3, 1)),
    ),
    Transcript(
        "openrouter: the provider disconnected",
        stream(
            *text("So"),
            {
                "id": "x",
                "error": {"code": "server_error", "message": "Provider disconnected"},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            },
            DONE,
        ),
        Failed("llm.unavailable", "disconnected", True),
    ),
    Transcript(
        "openrouter: the upstream's words in metadata",
        document(
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 429,
                    "metadata": {
                        "raw": '{"error":{"message":"Too many requests, try again in 12s"}}',
                        "provider_name": "X",
                    },
                }
            }
        ),
        Failed("llm.rate_limited", "Too many requests", True, 12.0),
        status=429,
    ),
    Transcript(
        "openrouter: more credits",
        document({"error": {"message": "This request requires more credits.", "code": 402}}),
        Failed("llm.rate_limited", "more credits"),
        status=402,
    ),
    Transcript(
        "openrouter: credits, with status 200",
        document({"error": {"message": "This request requires more credits.", "code": 402}}),
        Failed("llm.rate_limited", "more credits"),
    ),
    Transcript(
        "openrouter: free models a day",
        document(
            {
                "error": {
                    "message": "Rate limit exceeded: free-models-per-day",
                    "code": 429,
                    "metadata": {"headers": {"X-RateLimit-Remaining": "0"}},
                }
            }
        ),
        Failed("llm.rate_limited", "per-day"),
        status=429,
    ),
    Transcript(
        "openrouter: `reasoning` and its details say one thing",
        stream(
            chunk({"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}),
            *text("Y"),
            end(),
            DONE,
        ),
        Said("Y", thinking="Hm."),
    ),
    Transcript(
        "openrouter: an error in the choice",
        stream({"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "Upstream failed"}}]}, DONE),
        Failed("llm.unavailable", "Upstream", True),
    ),
]

GEMINI: Final = [
    Transcript(
        "gemini: whole calls with index 0 and no ids",
        stream(call(0, "", "add", '{"text": "one"}'), call(0, "", "add", '{"text": "two"}'), end("stop"), DONE),
        TWO,
    ),
    Transcript(
        "gemini: a reason in every chunk",
        stream(chunk({"content": "Hi "}, "stop"), chunk({"content": "you"}, "stop"), DONE),
        Said("Hi you"),
    ),
    Transcript(
        "gemini: a list as its error",
        document(
            [
                {
                    "error": {
                        "code": 429,
                        "message": "Quota exceeded. Please retry in 37.5s.",
                        "status": "RESOURCE_EXHAUSTED",
                        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.5s"}],
                    }
                }
            ]
        ),
        Failed("llm.rate_limited", "Quota", True, 37.5),
        status=429,
    ),
    Transcript(
        "gemini: the wait only in RetryInfo",
        document(
            [
                {
                    "error": {
                        "code": 429,
                        "message": "Resource has been exhausted",
                        "status": "RESOURCE_EXHAUSTED",
                        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9s"}],
                    }
                }
            ]
        ),
        Failed("llm.rate_limited", "exhausted", True, 9.0),
        status=429,
    ),
    Transcript(
        "gemini: a quota of the day",
        document(
            [
                {
                    "error": {
                        "code": 429,
                        "message": "You exceeded your current quota.",
                        "status": "RESOURCE_EXHAUSTED",
                        "details": [
                            {
                                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                                "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
                            },
                            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "30s"},
                        ],
                    }
                }
            ]
        ),
        Failed("llm.rate_limited", "quota"),
        status=429,
    ),
    Transcript(
        "gemini: the wrong key is a bad request",
        document(
            [
                {
                    "error": {
                        "code": 400,
                        "message": "API key not valid. Please pass a valid API key.",
                        "status": "INVALID_ARGUMENT",
                    }
                }
            ]
        ),
        Failed("llm.not_configured", "API key not valid"),
        status=400,
    ),
    Transcript(
        "gemini: a call that it could not write",
        stream(chunk({"content": ""}, "function_call_filter: MALFORMED_FUNCTION_CALL"), DONE),
        Failed("llm.unavailable", "MALFORMED", True),
    ),
    Transcript(
        "gemini: filtered, in two words", stream(*text("S"), end("content_filter: SAFETY"), DONE), Failed("llm.refused")
    ),
    Transcript(
        "gemini: too long",
        document(
            [
                {
                    "error": {
                        "code": 400,
                        "message": "The input token count (1100000) exceeds the maximum of tokens (1048576).",
                        "status": "INVALID_ARGUMENT",
                    }
                }
            ]
        ),
        Failed("llm.context_exceeded", "1048576"),
        status=400,
    ),
]

MISTRAL: Final = [
    Transcript(
        "mistral: thinking as a part of the content",
        stream(
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
            *text("Yes."),
            end(),
            DONE,
        ),
        Said("Yes.", thinking="Hm."),
    ),
    Transcript(
        "mistral: whole calls in the last chunk",
        stream(
            chunk({"role": "assistant", "content": ""}),
            chunk(
                {"tool_calls": [{"id": "abcdefghi", "function": {"name": "add", "arguments": HI}, "index": 0}]},
                "tool_calls",
                usage=usage(6, 2),
            ),
            DONE,
        ),
        Said(calls=(("add", {"text": "hi"}),), usage=(6, 2)),
    ),
    Transcript(
        "mistral: as long as the model",
        stream(*text("So"), end("model_length"), DONE),
        Failed("llm.truncated", "max_tokens"),
    ),
    Transcript("mistral: failed", stream(*text("So"), end("error"), DONE), Failed("llm.unavailable", "error", True)),
    Transcript(
        "mistral: a form that does not fit",
        document(
            {"object": "error", "detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required"}]}
        ),
        Failed("llm.invalid_request", "Field required"),
        status=422,
    ),
    Transcript(
        "mistral: not signed in",
        document({"message": "Unauthorized", "request_id": "r"}),
        Failed("llm.not_configured", "Unauthorized"),
        status=401,
    ),
]

GROQ: Final = [
    Transcript(
        "groq: minutes and seconds to wait",
        document(
            {
                "error": {
                    "message": "Rate limit reached on tokens per minute (TPM). Please try again in 1m2.5s.",
                    "type": "tokens",
                    "code": "rate_limit_exceeded",
                }
            }
        ),
        Failed("llm.rate_limited", "TPM", True, 62.5),
        status=429,
    ),
    Transcript(
        "groq: tokens of the day",
        document(
            {
                "error": {
                    "message": "Rate limit reached on tokens per day (TPD): Limit 100000. Please try again in 7m.",
                    "type": "tokens",
                    "code": "rate_limit_exceeded",
                }
            }
        ),
        Failed("llm.rate_limited", "TPD"),
        status=429,
    ),
    Transcript(
        "groq: larger than a minute allows",
        document(
            {
                "error": {
                    "message": "Request too large: Limit 6000, Requested 9000, please reduce your message size.",
                    "type": "tokens",
                    "code": "rate_limit_exceeded",
                }
            }
        ),
        Failed("llm.context_exceeded", "9000"),
        status=413,
    ),
    Transcript(
        "groq: usage under its own name",
        stream(*text("Hi"), end(x_groq={"usage": usage(2, 1)}), DONE),
        Said("Hi", usage=(2, 1)),
    ),
    Transcript(
        "groq: when the limit begins anew stands in headers",
        document({"error": {"message": "slow down"}}),
        Failed("llm.rate_limited", "slow down", True, 120.0),
        status=429,
        headers={
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "2m0s",
            "x-ratelimit-remaining-tokens": "5000",
            "x-ratelimit-reset-tokens": "7m0s",
        },
    ),
    Transcript(
        "groq: a name that comes in two parts",
        stream(call(0, "c", "sea"), call(0, None, "rch", '{"q": 1}'), end("tool_calls"), DONE),
        Said(calls=(("search", {"q": 1}),)),
    ),
]

TOGETHER: Final = [
    Transcript("together: eos", stream(*text("Hi"), end("eos"), DONE), Said("Hi")),
    Transcript(
        "together: text beside the delta",
        stream(
            {"choices": [{"index": 0, "text": "Hi", "delta": {"content": "Hi"}, "finish_reason": None}]},
            end("eos"),
            DONE,
        ),
        Said("Hi"),
    ),
    Transcript(
        "together: braces first", stream(call(0, "c", "add", "{}"), call(0, args=HI), end("tool_calls"), DONE), ADDED
    ),
    Transcript(
        "together: arguments again behind themselves",
        stream(call(0, "c", "add", '{"text"'), call(0, args=': "hi"}'), call(0, args=HI), end("tool_calls"), DONE),
        ADDED,
    ),
    Transcript(
        "together: other arguments behind themselves",
        stream(call(0, "c", "add", HI), call(0, args='{"text": "bye"}'), end("tool_calls"), DONE),
        Failed("llm.truncated", "contradicts", True),
    ),
    Transcript(
        "together: blanks behind the arguments",
        stream(call(0, "c", "add", HI), call(0, args=" "), call(0, args="\n"), end("tool_calls"), DONE),
        ADDED,
    ),
    Transcript(
        "together: too many tokens",
        document(
            {
                "error": {
                    "message": "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000",
                    "type": "invalid",
                }
            }
        ),
        Failed("llm.context_exceeded", "4097"),
        status=422,
    ),
    Transcript(
        "together: a call is announced and none comes",
        stream(end("tool_calls"), DONE),
        Failed("llm.truncated", "contradicts", True),
    ),
]

BEDROCK: Final = [
    Transcript(
        "bedrock gateway: an answer that ignores `stream`",
        document(
            {
                "object": "chat.completion",
                "choices": [
                    {"index": 0, "finish_reason": "end_turn", "message": {"role": "assistant", "content": "Hello"}}
                ],
                "usage": usage(4, 1),
            }
        ),
        Said("Hello", usage=(4, 1)),
    ),
    Transcript(
        "bedrock gateway: a whole call without a stream",
        document(
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_use",
                        "message": {
                            "content": None,
                            "tool_calls": [
                                {"id": "tooluse_1", "type": "function", "function": {"name": "add", "arguments": HI}}
                            ],
                        },
                    }
                ]
            }
        ),
        ADDED,
    ),
    Transcript(
        "bedrock gateway: throttled",
        document({"message": "Too many tokens, please wait before trying again.", "__type": "ThrottlingException"}),
        Failed("llm.rate_limited", "please wait", True),
        status=429,
    ),
    Transcript(
        "bedrock gateway: throttled, with status 200",
        document({"message": "Rate exceeded", "__type": "ThrottlingException"}),
        Failed("llm.rate_limited", "Rate exceeded", True),
    ),
    Transcript(
        "bedrock gateway: a guardrail", stream(*text("S"), end("guardrail_intervened"), DONE), Failed("llm.refused")
    ),
    Transcript(
        "bedrock gateway: too long",
        document({"message": "Input is too long for requested model."}),
        Failed("llm.context_exceeded", "too long"),
        status=400,
    ),
    Transcript(
        "bedrock gateway: no access",
        document({"Message": "User is not authorized to perform: bedrock:InvokeModel"}),
        Failed("llm.not_configured", "not authorized"),
        status=403,
    ),
    Transcript(
        "gateway: a page to sign in",
        b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>...</body></html>",
        Failed("llm.not_configured", "Sign in"),
    ),
    Transcript(
        "gateway: a page of a proxy",
        b"<html><head><title>502 Bad Gateway</title></head></html>",
        Failed("llm.unavailable", "Bad Gateway", True),
        status=502,
    ),
    Transcript(
        "gateway: a sentence",
        b"upstream connect error or disconnect/reset before headers",
        Failed("llm.unavailable", "upstream connect", True),
    ),
]

LITELLM: Final = [
    Transcript(
        "gateway: 402 in words of its own",
        document({"error": {"message": "Top up your wallet"}}),
        Failed("llm.rate_limited", "wallet"),
        status=402,
    ),
    Transcript(
        "gateway: a named event whose lines end with CR LF",
        b"event: error\r\ndata: The model has crashed\r\n\r\n",
        Failed("llm.unavailable", "crashed", True),
    ),
    Transcript(
        "litellm: a last chunk with the arguments encoded twice",
        stream(call(0, "c", "add", HI), call(0, None, None, '"{\\"text\\": \\"hi\\"}"'), end("tool_calls"), DONE),
        ADDED,
    ),
    Transcript(
        "litellm: arguments encoded twice, and nothing else",
        stream(call(0, "c", "add", '"{\\"text\\": \\"hi\\"}"'), end("tool_calls"), DONE),
        ADDED,
    ),
    Transcript(
        "litellm: an upstream's error in its text",
        document(
            {
                "error": {
                    "message": 'litellm.RateLimitError: {"error": {"message": "slow down"}}',
                    "type": None,
                    "param": None,
                    "code": "429",
                }
            }
        ),
        Failed("llm.rate_limited", "slow down", True),
        status=429,
    ),
    Transcript(
        "litellm: an emoji cut between two escapes, in a text",
        stream(
            'data: {"choices":[{"index":0,"delta":{"content":"ok \\ud83d"}}]}\n\n',
            'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n',
            end(),
            DONE,
        ),
        Said("ok \U0001f600"),
    ),
    Transcript(
        "litellm: an emoji cut between two escapes, in thinking",
        stream(
            'data: {"choices":[{"index":0,"delta":{"reasoning_content":"ok \\ud83d"}}]}\n\n',
            'data: {"choices":[{"index":0,"delta":{"reasoning_content":"\\ude00"}}]}\n\n',
            *text("Y"),
            end(),
            DONE,
        ),
        Said("Y", thinking="ok \U0001f600"),
    ),
    Transcript(
        "litellm: an emoji cut between two escapes, in arguments",
        stream(
            'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"add",'
            '"arguments":"{\\"text\\": \\"ok \\ud83d"}}]}}]}\n\n',
            'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":'
            '{"arguments":"\\ude00\\"}"}}]}}]}\n\n',
            end("tool_calls"),
            DONE,
        ),
        Said(calls=(("add", {"text": "ok \U0001f600"}),)),
    ),
    Transcript(
        "litellm: half an emoji",
        stream('data: {"choices":[{"index":0,"delta":{"content":"ok \\ud83d"}}]}\n\n', *text("!"), end(), DONE),
        Said("ok \ufffd!"),
    ),
    Transcript(
        "litellm: the same chunk of a call twice at once",
        stream(
            chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": "c", "function": {"name": "add", "arguments": HI}},
                        {"index": 1, "id": "c", "function": {"name": "add", "arguments": '{"text":"hi"}'}},
                    ]
                }
            ),
            end("tool_calls"),
            DONE,
        ),
        ADDED,
    ),
    Transcript(
        "litellm: a word for the end that nobody knows",
        stream(*text("Hi"), end("flabbergasted"), DONE),
        Failed("llm.truncated", "flabbergasted", True),
    ),
    Transcript("litellm: cut off", stream(*text("Hi")), Failed("llm.truncated", "ended before", True)),
    Transcript("litellm: a call that was cut off", stream(call(0, "c", "add", HI)), Failed("llm.truncated", "", True)),
    Transcript(
        "litellm: a call without a name",
        stream(call(0, "c", None, HI), end("tool_calls"), DONE),
        Failed("llm.truncated", "no name", True),
    ),
    Transcript(
        "litellm: broken JSON",
        stream(*text("Hi"), 'data: {"choices": [{"del\n\n', end(), DONE),
        Failed("llm.truncated", "can't be read", True),
    ),
    Transcript(
        "litellm: a refusal",
        stream(chunk({"refusal": "I must "}), chunk({"refusal": "not."}), end(), DONE),
        Failed("llm.refused", "I must not."),
    ),
]

ALL: Final = [
    *DEEPSEEK,
    *DASHSCOPE,
    *ZHIPU,
    *MOONSHOT,
    *MINIMAX,
    *AZURE,
    *OPENROUTER,
    *GEMINI,
    *MISTRAL,
    *GROQ,
    *TOGETHER,
    *BEDROCK,
    *LITELLM,
]
