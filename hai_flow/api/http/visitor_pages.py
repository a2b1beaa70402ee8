"""Pages that the server writes itself, for visitors without the console: one look, no scripts, in the language that
the browser asks for. What the authors of workflows wrote stays in theirs."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from fastapi import Request
from fastapi.responses import HTMLResponse

from hai_flow.errors import Rejected
from hai_flow.primitives.invisible_characters import WARNING
from hai_flow.primitives.titles import humanise

ENGLISH: Final = "en"
CHINESE: Final = "zh-CN"

# The colours and the letters of console/src/look/base.css.
_STYLE: Final = (
    ":root{color-scheme:light;--ground:#f6f7f9;--surface:#fff;--line:#d5dae3;--text:#171b24;--accent:#2450c8;"
    "--good:#1d6b3a;--bad:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{color-scheme:dark;--ground:#10131a;--surface:#181c25;--line:#343c4d;"
    "--text:#e8ebf2;--accent:#8fb0ff;--good:#7fd49b;--bad:#ff9d94}}"
    'html{font:16px/1.5 system-ui,-apple-system,"Segoe UI","PingFang SC","Microsoft YaHei",sans-serif;'
    "background:var(--ground);color:var(--text)}"
    "body{margin:0;min-height:100dvh;display:grid;place-items:center;padding:1rem;box-sizing:border-box}"
    "main{background:var(--surface);border:1px solid var(--line);border-radius:10px;padding:1.2rem 1.5rem;"
    "width:100%;max-width:40rem;overflow-wrap:anywhere;box-sizing:border-box}"
    "main>b,a{color:var(--accent)}h1{font-size:1.4rem;line-height:1.25;margin:.3rem 0}"
    "pre{white-space:pre-wrap;font-size:.86em;border-top:1px solid var(--line);padding-top:.6rem}"
    "input:not([type=checkbox]),select,textarea{width:100%;box-sizing:border-box}fieldset{border-color:var(--line)}"
    "input,select,textarea,button{font:inherit;color:inherit;background:var(--ground);border:1px solid var(--line);"
    "border-radius:6px;padding:.45rem .7rem}button{min-height:44px;padding:.45rem 1.2rem;font-weight:600}"
    "button[value=approve]{border-color:var(--good);color:var(--good)}"
    "button[value=reject]{border-color:var(--bad);color:var(--bad);margin-top:1.2rem}"
    "[role=alert],strong{color:var(--bad)}"
)
_STYLE_SOURCE: Final = f"style-src 'sha256-{base64.b64encode(sha256(_STYLE.encode()).digest()).decode()}'"


def language_of(request: Request) -> str:
    """The language of the page: the first that the browser names, if it is one of ours."""
    return CHINESE if request.headers.get("accept-language", "").strip().lower().startswith("zh") else ENGLISH


def say(language: str, sentence: str, *holes: str) -> str:
    """The sentence in the language, with the `holes` in the places of its `{}`."""
    return (_CHINESE[sentence] if language == CHINESE else sentence).format(*holes)


def name_option(language: str, option: str) -> str:
    """The word on the button of an option."""
    label = humanise(option)
    return _CHINESE.get(label, label) if language == CHINESE else label


def tell_refusal(language: str, refused: Rejected) -> str:
    """Why something was refused: by its code, else in the words of the refusal, without the id that stands first."""
    if (pair := _REFUSALS.get(refused.code)) is not None:
        return pair[language == CHINESE]
    sentence = _OF_AN_ID.sub("", refused.detail)
    sentence = sentence[:1].upper() + sentence[1:]
    return _CHINESE.get(sentence, sentence) if language == CHINESE else sentence


def tell_fault(language: str, finding: Mapping[str, Any]) -> str:
    """What a value of a form lacks, for a reader who has never seen a schema."""
    params = list(map(str, finding.get("params", ())))
    key = finding.get("code", "")
    pair = _FAULTS.get(f"{key}:{params[0]}" if params else key) or _FAULTS.get(key)
    return str(finding["message"]) if pair is None else pair[language == CHINESE].format(*params, "")


def render_page(
    title: str,
    body: str,
    status: int = 200,
    *,
    language: str = ENGLISH,
    forms: str = "'none'",
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """A page with this title, a text, and this body of HTML. `forms`: where its forms may be sent."""
    heading = html.escape(title)
    page = (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8"><title>{heading} · HAI Flow</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main><b>HAI Flow</b><h1>{heading}</h1>{body}</main></body></html>\n"
    )
    policy = f"default-src 'none'; form-action {forms}; base-uri 'none'; frame-ancestors 'none'; {_STYLE_SOURCE}"
    return HTMLResponse(page, status, {"Content-Security-Policy": policy, **(headers or {})})


_CHINESE: Final = {
    "Link no longer valid": "链接已失效",
    "This link has expired or was already used. If the question is still open, you can decide in your inbox.": (
        "此链接已过期或已使用。如果问题仍未处理，您可以在待办中处理。"
    ),
    "Decided": "已处理",
    "Not decided": "未处理",
    "Not decided: {}": "未处理：{}",
    "Done. Your decision has been recorded.": "已完成，您的决定已记录。",
    "This question has already been closed.": "此问题已经关闭。",
    "A question": "一个问题",
    "The workflow {} asks {}:": "工作流 {} 询问 {}：",
    "It can't be answered here. Please answer it in your inbox.": "此处无法回答，请在待办中回答。",
    "Reason": "理由",
    "Send": "提交",
    "Nothing is decided until you press a button.": "按下按钮之前，什么都不会决定。",
    "Something has to be put right below.": "请更正下面的内容。",
    "{} (required)": "{}（必填）",
    "yes": "是",
    "no": "否",
    "Approve": "批准",
    "Reject": "拒绝",
    "Decline": "婉拒",
    "Cancel": "取消",
    "Respond": "回复",
    WARNING: "不可见字符和形似字符均以代码显示，例如 [U+202E]。",
    "Enter a reason.": "请填写理由。",
    "Back to the start": "返回首页",
    "Not signed in": "未登录",
    "Sign in": "登录",
    "Sign in with": "选择登录方式",
    "This link signs this browser in, once.": "此链接可让此浏览器登录一次。",
    "Continue without it.": "请直接继续。",
    "Ask who runs this server for a link, or use an API key at <a href='/console/'>the console</a>. "
    "<code>hai-flow sign-in WHO</code> prints a link. Programs use an API key (<code>hai-flow keys create</code>).": (
        "请向管理此服务器的人索取登录链接，或在<a href='/console/'>控制台</a>使用 API 密钥登录。"
        "<code>hai-flow sign-in WHO</code> 可生成登录链接。程序使用 API 密钥（<code>hai-flow keys create</code>）。"
    ),
    "<code>hai-flow sign-in WHO</code> prints a link, which works once, within ten minutes.": (
        "<code>hai-flow sign-in WHO</code> 可生成登录链接，十分钟内有效，只能使用一次。"
    ),
    '<a href="/sign-in">Sign in again</a>.': '<a href="/sign-in">重新登录</a>。',
    "This link was used, or its time is over; ask for a new one.": "此链接已使用或已过期，请索取新的链接。",
    "This sign-in can't be finished; begin it anew.": "此次登录无法完成，请重新开始。",
    "The console is being built": "正在构建控制台",
    "This happens once and takes about fifteen seconds. The page refreshes by itself.": (
        "只需构建一次，大约十五秒。此页会自动刷新。"
    ),
}

_OF_AN_ID: Final = re.compile(r"^call_\w+: ")
_REFUSALS: Final = {
    "pending_unknown": (
        "This question was not found, or you don't have access to it.",
        "找不到这个问题，或者您无权查看。",
    ),
    "pending_decided": (
        "Someone else has already decided this differently. The first decision stands.",
        "此问题已有不同的决定，以先作出的决定为准。",
    ),
    "pending_expired": ("Too late: its deadline has passed.", "已过截止时间。"),
    "pending_voided": ("An answer is no longer needed.", "此问题不再需要回答。"),
    "pending_forbidden": ("You can't decide this.", "您不能处理此问题。"),
    "vote_final": ("You have already voted, and votes can't be changed.", "您已投票，投票不可更改。"),
    "answer.digest": (
        "The question has changed since you opened it. Review it again before you decide.",
        "打开此页之后，问题有了变化。请重新查看后再决定。",
    ),
    "identity_none": ("Nobody is asked here who they are, so there is no sign-in.", "此服务器不验证身份，无需登录。"),
    "auth.expired": ("Your session has ended. Sign in again.", "会话已结束，请重新登录。"),
    "auth.unavailable": ("The identity provider does not answer now. Try again.", "身份提供方现在没有响应，请重试。"),
}

_FAULTS: Final = {
    "value.required": ("This field is required.", "此项必填。"),
    "value.type:number": ("Enter a number, such as 90.5.", "请输入数字，例如 90.5。"),
    "value.type:integer": ("Enter a whole number.", "请输入整数。"),
    "value.type:boolean": ("Choose yes or no.", "请选择是或否。"),
    "value.format:email": (
        "Enter an e-mail address, such as ann@example.com.",
        "请输入邮箱地址，例如 ann@example.com。",
    ),
    "value.format:date": ("Enter a date.", "请输入日期。"),
    "value.format:time": ("Enter a time.", "请输入时间。"),
    "value.format:date-time": (
        "Enter a date and a time with its zone, such as 2026-03-01T09:00:00Z.",
        "请输入日期、时间和时区，例如 2026-03-01T09:00:00Z。",
    ),
    "value.format:uri": ("Enter an address that begins with https://.", "请输入以 https:// 开头的网址。"),
    "value.enum": ("Choose one of the options.", "请从选项中选择。"),
    "value.min_length": ("Enter at least {} characters.", "请至少输入 {} 个字符。"),
    "value.max_length": ("Enter at most {} characters.", "请最多输入 {} 个字符。"),
    "value.minimum": ("Enter {} or more.", "请输入不小于 {} 的数。"),
    "value.maximum": ("Enter {} or less.", "请输入不大于 {} 的数。"),
    "value.exclusive_minimum": ("Enter more than {}.", "请输入大于 {} 的数。"),
    "value.exclusive_maximum": ("Enter less than {}.", "请输入小于 {} 的数。"),
    "value.multiple_of": ("Enter a multiple of {}.", "请输入 {} 的倍数。"),
    "value.min_items": ("At least {} are needed.", "至少需要 {} 项。"),
    "value.max_items": ("At most {} are allowed.", "最多 {} 项。"),
}
