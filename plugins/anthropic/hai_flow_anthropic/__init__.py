"""Anthropic's models for HAI Flow, by their own protocol. What is listed here is public."""

from hai_flow_anthropic.provider import AnthropicProvider

__all__ = ["AnthropicProvider"]
