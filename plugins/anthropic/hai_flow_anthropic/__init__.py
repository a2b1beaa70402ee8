"""Anthropic's models for HAI Flow, by their own protocol. The names in `__all__` are public."""

from hai_flow_anthropic.provider import AnthropicProvider

__all__ = ["AnthropicProvider"]
