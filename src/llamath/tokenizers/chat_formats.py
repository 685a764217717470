"""The chat formats of model families, as data.

Sources: the `chat_template` of each publisher's instruct models as transformers renders it, and
mistral-common for Mistral's.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from ..utils.record_type import Record

ROLES = ("system", "user", "assistant")


class _Delimiters(NamedTuple):
    """The text before and after a message."""

    before: str
    after: str


class ChatFormat(Record):
    """The delimiters of the messages of a conversation."""

    name: str
    title: str
    prefix: str = ""
    system: _Delimiters | None = None  # None: the system prompt is part of a user message
    user: _Delimiters
    assistant: _Delimiters
    generation_prompt: str | None = None  # None: the text before an assistant message
    system_in_user: _Delimiters = _Delimiters("", "\n\n")  # of the system prompt in a user message
    system_in_last_user: bool = False  # in the last user message, not in the first
    stripped_roles: tuple[str, ...] = ()  # roles whose messages are stripped
    # put before the system prompt; there is a system message even without a system prompt
    system_preamble: str = ""
    # tokens that identify the format in a vocabulary or template; the format with most of them is
    # chosen
    markers: tuple[str, ...]
    stop_tokens: tuple[str, ...]  # special tokens that end a reply


_IM_START, _START_HEADER, _START_OF_TURN = (
    "<|im_start|>",
    "<|start_header_id|>",
    "<|START_OF_TURN_TOKEN|>",
)
_DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""The text that Llama 3.1's template puts before the system prompt if no date is given."""


class _RoleDelimiters(TypedDict):
    """The fields of a ChatFormat that hold delimiters of messages."""

    system: _Delimiters
    user: _Delimiters
    assistant: _Delimiters


def _role_delimiters(before: str, after: str) -> _RoleDelimiters:
    """Return the delimiters of all roles, with the role in place of `@`."""
    system, user, assistant = (_Delimiters(before.replace("@", role), after) for role in ROLES)
    return {"system": system, "user": user, "assistant": assistant}


def _llama_3(name: str, title: str, system_preamble: str, markers: tuple[str, ...]) -> ChatFormat:
    return ChatFormat(
        name=name,
        title=title,
        prefix="<|begin_of_text|>",
        **_role_delimiters(f"{_START_HEADER}@<|end_header_id|>\n\n", "<|eot_id|>"),
        stripped_roles=ROLES,
        system_preamble=system_preamble,
        markers=markers,
        stop_tokens=("<|eot_id|>", "<|eom_id|>"),
    )


_FORMATS = [
    ChatFormat(
        name="llama-2",
        title="Llama 2 Chat",
        user=_Delimiters("<s>[INST] ", " [/INST]"),
        assistant=_Delimiters(" ", " </s>"),
        generation_prompt="",
        system_in_user=_Delimiters("<<SYS>>\n", "\n<</SYS>>\n\n"),
        stripped_roles=("user", "assistant"),
        markers=("<<SYS>>",),
        stop_tokens=("</s>",),
    ),
    _llama_3("llama-3", "Llama 3 Instruct", "", (_START_HEADER, "<|eot_id|>")),
    _llama_3(
        "llama-3.1",
        "Llama 3.1 to 3.3 Instruct",
        _DATES,
        (_START_HEADER, "<|eot_id|>", "Cutting Knowledge Date"),
    ),
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
        user=_Delimiters("[INST] ", " [/INST]"),
        assistant=_Delimiters(" ", "</s>"),
        generation_prompt="",
        markers=(),
        stop_tokens=("</s>",),
    ),
    ChatFormat(
        name="mistral-v3",
        system_in_last_user=True,
        title="Mistral Instruct 0.3, Mixtral 8x22B, Mistral Large 2",
        prefix="<s>",
        user=_Delimiters("[INST]", "[/INST]"),
        assistant=_Delimiters("", "</s>"),
        generation_prompt="",
        markers=("[INST]", "[/INST]"),
        stop_tokens=("</s>",),
    ),
    ChatFormat(
        name="mistral-v7",
        title="Mistral Small 3, Ministral and later, with Tekken's vocabulary",
        prefix="<s>",
        system=_Delimiters("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        user=_Delimiters("[INST]", "[/INST]"),
        assistant=_Delimiters("", "</s>"),
        generation_prompt="",
        markers=("[INST]", "[/INST]", "[SYSTEM_PROMPT]"),
        stop_tokens=("</s>",),
    ),
    ChatFormat(
        name="gemma",
        title="Gemma 1 to 3",
        prefix="<bos>",
        user=_Delimiters("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant=_Delimiters("<start_of_turn>model\n", "<end_of_turn>\n"),
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
        system=_Delimiters("", "\n\n"),
        user=_Delimiters("User: ", "\n\n"),
        assistant=_Delimiters("Assistant: ", "<｜end▁of▁sentence｜>"),
        generation_prompt="Assistant:",
        markers=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        stop_tokens=("<｜end▁of▁sentence｜>",),
    ),
    ChatFormat(
        name="deepseek-v3",
        title="DeepSeek V3, R1 and their distillations",
        prefix="<｜begin▁of▁sentence｜>",
        system=_Delimiters("", ""),
        user=_Delimiters("<｜User｜>", ""),
        assistant=_Delimiters("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        markers=("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        stop_tokens=("<｜end▁of▁sentence｜>",),
    ),
    ChatFormat(
        name="command-r",
        title="Command R and Aya",
        prefix="<BOS_TOKEN>",
        system=_Delimiters(f"{_START_OF_TURN}<|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        user=_Delimiters(f"{_START_OF_TURN}<|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        assistant=_Delimiters(f"{_START_OF_TURN}<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
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
        system=_Delimiters("<|system|>\n", "\n"),
        user=_Delimiters("<|user|>\n", "\n"),
        assistant=_Delimiters("<|assistant|>\n", "<|endoftext|>\n"),
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
"""Name → format."""
