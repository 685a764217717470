"""Saving the model in Hugging Face's format: config, bfloat16 weights, tokenizer and its config."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import llamath
from llamath.core.tree import fill_pattern
from llamath.torch import Decoder
from tokenizers import Tokenizer

from .texts import CLOSE, END, START

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def save(module: Decoder, folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Write the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(b"".join(weights(module, config)))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": START, "eos_token": END,
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
    }  # fmt: skip
    chosen = {
        "bos_token_id": 0,
        "eos_token_id": [1, tokenizer.token_to_id(CLOSE)],
        "do_sample": False,
        "max_new_tokens": 200,
    }
    for name, data in {
        "config": config,
        "tokenizer_config": settings,
        "generation_config": chosen,
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def weights(module: Decoder, config: Mapping[str, Any]) -> Iterator[bytes]:
    """A safetensors file: its header, then the tensors."""
    model, numbers = llamath.load(config), module.state_dict()
    scheme = model.scheme("hf")
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    at = 0
    for leaf in model.weights:
        if leaf.weight.tied:
            continue
        part = (
            numbers[leaf.path].to(torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes()
        )
        name, shape = (
            fill_pattern(scheme.stored_name(leaf.pattern), leaf.indices),
            list(map(int, leaf.shape)),
        )
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield from (len(text).to_bytes(8, "little"), text, *parts)
