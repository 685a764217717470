"""How families write a conversation down, as data.

Sources: the `chat_template` that each publisher ships with its instruct models, as transformers renders it; mistral-common for Mistral's.
"""

from __future__ import annotations

from typing import Any

from ..core.record_type import Record

ROLES = ("system", "user", "assistant")


class Format(Record):
    """What stands before and after each turn; `reply` opens the answer that is to be written."""

    name: str
    title: str
    start: str = ""
    system: tuple[str, str] | None = None  # None: the system's text opens the first turn of the user
    user: tuple[str, str]
    assistant: tuple[str, str]
    reply: str | None = None  # None: what stands before the assistant's turn
    inside: tuple[str, str] = ("", "\n\n")  # around the system's text inside a user's turn
    late: bool = False  # which is then the last one
    trim: tuple[str, ...] = ()  # of whose turns spaces at the ends are dropped
    preface: str = ""  # before the system's text; a system turn is written even where nobody gave one
    signs: tuple[str, ...]  # in the vocabulary or in a published template: this format; the more, the surer
    stop: tuple[str, ...]  # special tokens that end a reply


IM, HEADER, TURN = "<|im_start|>", "<|start_header_id|>", "<|START_OF_TURN_TOKEN|>"
DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""What Llama 3.1's template puts before every system text, where no date is given."""


def _same(before: str, after: str) -> dict[str, Any]:
    """The same around each turn, `@` being who speaks."""
    return {who: (before.replace("@", who), after) for who in ROLES}


def _llama_3(name: str, title: str, preface: str, signs: tuple[str, ...]) -> Format:
    return Format(
        name=name,
        title=title,
        start="<|begin_of_text|>",
        **_same(f"{HEADER}@<|end_header_id|>\n\n", "<|eot_id|>"),
        trim=ROLES,
        preface=preface,
        signs=signs,
        stop=("<|eot_id|>", "<|eom_id|>"),
    )


ALL = [
    Format(
        name="llama-2",
        title="Llama 2 Chat",
        user=("<s>[INST] ", " [/INST]"),
        assistant=(" ", " </s>"),
        reply="",
        inside=("<<SYS>>\n", "\n<</SYS>>\n\n"),
        trim=("user", "assistant"),
        signs=("<<SYS>>",),
        stop=("</s>",),
    ),
    _llama_3("llama-3", "Llama 3 Instruct", "", (HEADER, "<|eot_id|>")),
    _llama_3("llama-3.1", "Llama 3.1 to 3.3 Instruct", DATES, (HEADER, "<|eot_id|>", "Cutting Knowledge Date")),
    Format(
        name="llama-4",
        title="Llama 4 Instruct",
        start="<|begin_of_text|>",
        **_same("<|header_start|>@<|header_end|>\n\n", "<|eot|>"),
        trim=("system",),
        signs=("<|header_start|>", "<|eot|>"),
        stop=("<|eot|>", "<|eom|>"),
    ),
    Format(
        name="chatml",
        title="ChatML: Qwen, Yi, SmolLM, Hermes and many more",
        **_same("<|im_start|>@\n", "<|im_end|>\n"),
        signs=(IM, "<|im_end|>"),
        stop=("<|im_end|>",),
    ),
    Format(
        name="mistral",
        title="Mistral Instruct 0.1 and 0.2, Mixtral Instruct 0.1",
        start="<s>",
        user=("[INST] ", " [/INST]"),
        assistant=(" ", "</s>"),
        reply="",
        signs=(),
        stop=("</s>",),
    ),
    Format(
        name="mistral-v3",
        late=True,
        title="Mistral Instruct 0.3, Mixtral 8x22B, Mistral Large 2",
        start="<s>",
        user=("[INST]", "[/INST]"),
        assistant=("", "</s>"),
        reply="",
        signs=("[INST]", "[/INST]"),
        stop=("</s>",),
    ),
    Format(
        name="mistral-v7",
        title="Mistral Small 3, Ministral and later, with Tekken's vocabulary",
        start="<s>",
        system=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        user=("[INST]", "[/INST]"),
        assistant=("", "</s>"),
        reply="",
        signs=("[INST]", "[/INST]", "[SYSTEM_PROMPT]"),
        stop=("</s>",),
    ),
    Format(
        name="gemma",
        title="Gemma 1 to 3",
        start="<bos>",
        user=("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant=("<start_of_turn>model\n", "<end_of_turn>\n"),
        trim=("user", "assistant"),
        signs=("<start_of_turn>", "<end_of_turn>"),
        stop=("<end_of_turn>",),
    ),
    Format(
        name="phi-3",
        title="Phi-3 and Phi-3.5",
        **_same("<|@|>\n", "<|end|>\n"),
        signs=("<|user|>", "<|assistant|>", "<|end|>"),
        stop=("<|end|>",),
    ),
    Format(
        name="phi-4",
        title="Phi-4",
        **_same("<|im_start|>@<|im_sep|>", "<|im_end|>"),
        signs=(IM, "<|im_sep|>", "<|im_end|>"),
        stop=("<|im_end|>",),
    ),
    Format(
        name="zephyr",
        title="Zephyr, TinyLlama Chat, StableLM 2",
        **_same("<|@|>\n", "</s>\n"),
        signs=(),
        stop=("</s>",),
    ),
    Format(
        name="deepseek-v2",
        title="DeepSeek LLM, V2 and V2.5",
        start="<｜begin▁of▁sentence｜>",
        system=("", "\n\n"),
        user=("User: ", "\n\n"),
        assistant=("Assistant: ", "<｜end▁of▁sentence｜>"),
        reply="Assistant:",
        signs=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        stop=("<｜end▁of▁sentence｜>",),
    ),
    Format(
        name="deepseek-v3",
        title="DeepSeek V3, R1 and their distillations",
        start="<｜begin▁of▁sentence｜>",
        system=("", ""),
        user=("<｜User｜>", ""),
        assistant=("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        signs=("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        stop=("<｜end▁of▁sentence｜>",),
    ),
    Format(
        name="command-r",
        title="Command R and Aya",
        start="<BOS_TOKEN>",
        system=(f"{TURN}<|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        user=(f"{TURN}<|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        assistant=(f"{TURN}<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        trim=("user", "assistant"),
        signs=(TURN, "<|CHATBOT_TOKEN|>"),
        stop=("<|END_OF_TURN_TOKEN|>",),
    ),
    Format(
        name="granite",
        title="Granite 3",
        **_same("<|start_of_role|>@<|end_of_role|>", "<|end_of_text|>\n"),
        signs=("<|start_of_role|>", "<|end_of_role|>"),
        stop=("<|end_of_text|>",),
    ),
    Format(
        name="olmo-2",
        title="OLMo 2 and Tülu 3",
        start="<|endoftext|>",
        system=("<|system|>\n", "\n"),
        user=("<|user|>\n", "\n"),
        assistant=("<|assistant|>\n", "<|endoftext|>\n"),
        signs=(),
        stop=("<|endoftext|>",),
    ),
    Format(
        name="glm-4",
        title="GLM-4",
        start="[gMASK]<sop>",
        **_same("<|@|>\n", ""),
        signs=("[gMASK]", "<sop>", "<|user|>", "<|assistant|>"),
        stop=("<|user|>", "<|endoftext|>", "<|observation|>"),
    ),
]

FORMATS = {x.name: x for x in ALL}
"""Every format by its name."""
