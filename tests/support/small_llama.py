"""Small checkpoints: Llamas saved by transformers, and copies with changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from support.transformers_pair import perturb_weights

SMALL: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 97, "hidden_size": 48, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip
TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
IDS = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(4))
Q = "model.layers.1.self_attn.q_proj.weight"


def save_llama(path: Path, dtype: str = "BF16", shard: str = "5GB", **changes: Any) -> Path:
    """Save a small Llama in this dtype with changed config keys."""
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**SMALL | changes)
    )
    perturb_weights(model)
    model.to(TYPES[dtype]).save_pretrained(path, max_shard_size=shard)
    return path


def copy_checkpoint(
    source: Path,
    target: Path,
    change: Callable[[dict[str, Tensor]], object],
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Copy a checkpoint with changed tensors or config keys."""
    numbers = load_file(source / "model.safetensors")
    change(numbers)
    target.mkdir(exist_ok=True)
    save_file(numbers, target / "model.safetensors", {"format": "pt"})
    keys = json.loads((source / "config.json").read_text()) | dict(config or {})
    (target / "config.json").write_text(json.dumps(keys))
    return target
