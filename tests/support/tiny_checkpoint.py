"""`tiny_checkpoint`: a folder with a tiny model and its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from llamath.checkpoint.naming.stored_layouts import group_by_stored_name
from llamath.core.config import Config
from llamath.families.registry import find_family
from llamath.torch import build, initialize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

torch.set_num_threads(1)  # models this small are slower with more

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
}
TEXT = (
    "The cat sat on the mat. A dog ran after the cat, and the cat ran home. 猫がいる。 Größe! 🙂 🙃"
)
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer of 320 tokens that covers every byte."""
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [AddedToken(x, special=True, normalized=False) for x in SPECIAL]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    engine.train_from_iterator([TEXT] * 20, trainer)
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return engine


def tiny_checkpoint(
    folder: Path, seed: int = 0, std: float = 0.3, template: str = "", **config: Any
) -> Path:
    """Write a checkpoint with normally distributed weights and a tokenizer; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = CONFIG | config
    family = find_family(keys["model_type"])
    tree = family(Config(keys))
    module = initialize(build(tree), seed, std)
    numbers = module.state_dict()
    save_file(
        {
            name: torch.cat([numbers[x.path] for x in leaves])
            for name, leaves in group_by_stored_name(tree, family.hf).items()
        },
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(keys))
    train_tokenizer().save(str(folder / "tokenizer.json"))
    ends = {"eos_token": "</s>"} if keys["eos_token_id"] is not None else {}
    tokenizer_config = (
        {"bos_token": "<s>"} | ends | ({"chat_template": template} if template else {})
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
