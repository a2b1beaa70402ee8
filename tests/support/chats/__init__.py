"""Chat platforms as real HTTP servers on loopback, written from their documentation. Each checks what its platform
checks, and can be down, slow, rate-limited or lose its answers."""

from __future__ import annotations

from tests.support.chats.dingtalk import DingTalkPlatform
from tests.support.chats.discord import DiscordPlatform
from tests.support.chats.feishu import FeishuPlatform
from tests.support.chats.platform import Call, Platform, Shown, Wrong
from tests.support.chats.slack import SlackPlatform
from tests.support.chats.teams import TeamsPlatform
from tests.support.chats.wecom import WeComPlatform

__all__ = [
    "Call",
    "DingTalkPlatform",
    "DiscordPlatform",
    "FeishuPlatform",
    "Platform",
    "Shown",
    "SlackPlatform",
    "TeamsPlatform",
    "WeComPlatform",
    "Wrong",
]
