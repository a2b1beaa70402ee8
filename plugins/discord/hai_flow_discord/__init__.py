"""Questions of HAI Flow in Discord, and decisions there."""

from hai_flow_discord.app import DiscordApp

__all__ = ["DiscordApp"]
