"""The providers that are known by name: their addresses, and their differences from OpenAI."""

from __future__ import annotations

from typing import Final

import msgspec

from hai_flow.models.vocabulary import Quirks


class Preset(msgspec.Struct, frozen=True):
    """`base_url` "": the deployment has its own. `key_header`: where the key stands, if not in `Authorization`.
    `keyless`: whether it may be asked without one."""

    base_url: str = ""
    quirks: Quirks = msgspec.field(default_factory=Quirks)
    key_header: str | None = None
    keyless: bool = False


PRESETS: Final[dict[str, Preset]] = {
    "openai": Preset(
        "https://api.openai.com/v1", Quirks(strict_tools=True, max_tokens="max_completion_tokens"), keyless=False
    ),
    "azure": Preset("", Quirks(strict_tools=True, max_tokens="max_completion_tokens"), key_header="api-key"),
    # Behind an answer with calls its thinking has to come back with all that follows, or it is refused (400).
    "deepseek": Preset("https://api.deepseek.com", Quirks(send_back="tool_turns", output="json_object")),
    "dashscope": Preset("https://dashscope.aliyuncs.com/compatible-mode/v1", Quirks(output="json_object")),
    "zhipu": Preset("https://open.bigmodel.cn/api/paas/v4", Quirks(output="json_object", tool_choice_required=False)),
    "vllm": Preset("", Quirks(reasoning="reasoning", alternate=True), keyless=True),
    "ollama": Preset(
        "http://localhost:11434/v1",
        Quirks(reasoning="reasoning", tool_choice_required=False, alternate=True),
        keyless=True,
    ),
    "llamacpp": Preset("http://localhost:8080/v1", Quirks(tool_choice_required=False, alternate=True), keyless=True),
}
