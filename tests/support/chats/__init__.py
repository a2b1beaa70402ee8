"""Chat platforms as real HTTP servers on loopback, written from their documentation. Each checks what its platform
checks, and can be down, slow, rate-limited or lose its answers."""

from __future__ import annotations

from tests.support.chats.platform import Call, Platform, Shown
from tests.support.chats.slack import SlackPlatform

__all__ = ["Call", "Platform", "Shown", "SlackPlatform"]
