"""How families write a conversation down, as data.

Sources: the `chat_template` that each publisher ships with its instruct models, as transformers renders it; mistral-common for Mistral's.
"""

from __future__ import annotations

from typing import Any

from ..core.record_type import Record

ROLES = ("system", "user", "assistant")


class ChatFormat(Record):
    """What stands before and after each turn; `reply` opens the answer that is to be written."""

    name: str
    title: str
    prefix: str = ""
    system: tuple[str, str] | None = None  # None: the system's text opens the first turn of the user
    user: tuple[str, str]
    assistant: tuple[str, str]
    generation_prompt: str | None = None  # None: what stands before the assistant's turn
    system_in_user: tuple[str, str] = ("", "\n\n")  # around the system's text inside a user's turn
    system_in_last_user: bool = False  # which is then the last one
    stripped_roles: tuple[str, ...] = ()  # of whose turns spaces at the ends are dropped
    system_preamble: str = ""  # before the system's text; a system turn is written even where nobody gave one
    markers: tuple[str, ...]  # in the vocabulary or in a published template: this format; the more, the surer
    stop_tokens: tuple[str, ...]  # special tokens that end a reply


_IM_START, _START_HEADER, _START_OF_TURN = "<|im_start|>", "<|start_header_id|>", "<|START_OF_TURN_TOKEN|>"
_DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""What Llama 3.1's template puts before every system text, where no date is given."""


def _role_delimiters(before: str, after: str) -> dict[str, Any]:
    """The same around each turn, `@` being who speaks."""
    return {who: (before.replace("@", who), after) for who in ROLES}


def _llama_3(name: str, title: str, preface: str, signs: tuple[str, ...]) -> ChatFormat:
    return ChatFormat(
        name=name,
        title=title,
        prefix="<|begin_of_text|>",
        **_role_delimiters(f"{_START_HEADER}@<|end_header_id|>\n\n", "<|eot_id|>"),
        stripped_roles=ROLES,
        system_preamble=preface,
        markers=signs,
        stop_tokens=("<|eot_id|>", "<|eom_id|>"),
    )


_FORMATS = [
    ChatFormat(
        name="llama-2",
        title="Llama 2 Chat",
        user=("<s>[INST] ", " [/INST]"),
        assistant=(" ", " </s>"),
        generation_prompt="",
        system_in_user=("<<SYS>>\n", "\n<</SYS>>\n\n"),
        stripped_roles=("user", "assistant"),
        markers=("<<SYS>>",),
        stop_tokens=("</s>",),
    ),
    _llama_3("llama-3", "Llama 3 Instruct", "", (_START_HEADER, "<|eot_id|>")),
    _llama_3("llama-3.1", "Llama 3.1 to 3.3 Instruct", _DATES, (_START_HEADER, "<|eot_id|>", "Cutting Knowledge Date")),
    ChatFormat(
        name="llama-4",
        title="Llama 4 Instruct",
        prefix="<|begin_of_text|>",
        **_role_delimiters("<|header_start|>@<|header_end|>\n\n", "<|eot|>"),
        stripped_roles=("system",),
        markers=("<|header_start|>", "<|eot|>"),
        stop_tokens=("<|eot|>", "<|eom|>"),
    ),
    ChatFormat(
        name="chatml",
        title="ChatML: Qwen, Yi, SmolLM, Hermes and many more",
        **_role_delimiters("<|im_start|>@\n", "<|im_end|>\n"),
        markers=(_IM_START, "<|im_end|>"),
        stop_tokens=("<|im_end|>",),
    ),
    ChatFormat(
        name="mistral",
        title="Mistral Instruct 0.1 and 0.2, Mixtral Instruct 0.1",
        prefix="<s>",
        user=("[INST] ", " [/INST]"),
        assistant=(" ", "</s>"),
        generation_prompt="",
        markers=(),
        stop_tokens=("</s>",),
    ),
    ChatFormat(
        name="mistral-v3",
        system_in_last_user=True,
        title="Mistral Instruct 0.3, Mixtral 8x22B, Mistral Large 2",
        prefix="<s>",
        user=("[INST]", "[/INST]"),
        assistant=("", "</s>"),
        generation_prompt="",
        markers=("[INST]", "[/INST]"),
        stop_tokens=("</s>",),
    ),
    ChatFormat(
        name="mistral-v7",
        title="Mistral Small 3, Ministral and later, with Tekken's vocabulary",
        prefix="<s>",
        system=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        user=("[INST]", "[/INST]"),
        assistant=("", "</s>"),
        generation_prompt="",
        markers=("[INST]", "[/INST]", "[SYSTEM_PROMPT]"),
        stop_tokens=("</s>",),
    ),
    ChatFormat(
        name="gemma",
        title="Gemma 1 to 3",
        prefix="<bos>",
        user=("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant=("<start_of_turn>model\n", "<end_of_turn>\n"),
        stripped_roles=("user", "assistant"),
        markers=("<start_of_turn>", "<end_of_turn>"),
        stop_tokens=("<end_of_turn>",),
    ),
    ChatFormat(
        name="phi-3",
        title="Phi-3 and Phi-3.5",
        **_role_delimiters("<|@|>\n", "<|end|>\n"),
        markers=("<|user|>", "<|assistant|>", "<|end|>"),
        stop_tokens=("<|end|>",),
    ),
    ChatFormat(
        name="phi-4",
        title="Phi-4",
        **_role_delimiters("<|im_start|>@<|im_sep|>", "<|im_end|>"),
        markers=(_IM_START, "<|im_sep|>", "<|im_end|>"),
        stop_tokens=("<|im_end|>",),
    ),
    ChatFormat(
        name="zephyr",
        title="Zephyr, TinyLlama Chat, StableLM 2",
        **_role_delimiters("<|@|>\n", "</s>\n"),
        markers=(),
        stop_tokens=("</s>",),
    ),
    ChatFormat(
        name="deepseek-v2",
        title="DeepSeek LLM, V2 and V2.5",
        prefix="<｜begin▁of▁sentence｜>",
        system=("", "\n\n"),
        user=("User: ", "\n\n"),
        assistant=("Assistant: ", "<｜end▁of▁sentence｜>"),
        generation_prompt="Assistant:",
        markers=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        stop_tokens=("<｜end▁of▁sentence｜>",),
    ),
    ChatFormat(
        name="deepseek-v3",
        title="DeepSeek V3, R1 and their distillations",
        prefix="<｜begin▁of▁sentence｜>",
        system=("", ""),
        user=("<｜User｜>", ""),
        assistant=("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        markers=("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        stop_tokens=("<｜end▁of▁sentence｜>",),
    ),
    ChatFormat(
        name="command-r",
        title="Command R and Aya",
        prefix="<BOS_TOKEN>",
        system=(f"{_START_OF_TURN}<|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        user=(f"{_START_OF_TURN}<|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        assistant=(f"{_START_OF_TURN}<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        stripped_roles=("user", "assistant"),
        markers=(_START_OF_TURN, "<|CHATBOT_TOKEN|>"),
        stop_tokens=("<|END_OF_TURN_TOKEN|>",),
    ),
    ChatFormat(
        name="granite",
        title="Granite 3",
        **_role_delimiters("<|start_of_role|>@<|end_of_role|>", "<|end_of_text|>\n"),
        markers=("<|start_of_role|>", "<|end_of_role|>"),
        stop_tokens=("<|end_of_text|>",),
    ),
    ChatFormat(
        name="olmo-2",
        title="OLMo 2 and Tülu 3",
        prefix="<|endoftext|>",
        system=("<|system|>\n", "\n"),
        user=("<|user|>\n", "\n"),
        assistant=("<|assistant|>\n", "<|endoftext|>\n"),
        markers=(),
        stop_tokens=("<|endoftext|>",),
    ),
    ChatFormat(
        name="glm-4",
        title="GLM-4",
        prefix="[gMASK]<sop>",
        **_role_delimiters("<|@|>\n", ""),
        markers=("[gMASK]", "<sop>", "<|user|>", "<|assistant|>"),
        stop_tokens=("<|user|>", "<|endoftext|>", "<|observation|>"),
    ),
]

CHAT_FORMATS = {x.name: x for x in _FORMATS}
"""Every format by its name."""
