"""Write `examples/tiny-llama`: a Llama of 33,000 parameters, small enough to keep, for the
commands shown in the README."""

from __future__ import annotations

import json
import random
import struct
from math import prod
from pathlib import Path

import llamath

FOLDER = Path(__file__).parents[1] / "examples" / "tiny-llama"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128,
    "hidden_size": 32, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def main() -> None:
    model = llamath.load(CONFIG)
    dice, header, data = random.Random(0), {}, b""
    for x in model.scheme("hf").tensors(model.tree):
        shape = list(map(int, x.shape))
        numbers = (
            [1.0] * prod(shape)
            if len(shape) == 1
            else [dice.gauss(0, 0.02) for _ in range(prod(shape))]
        )
        part = b"".join(struct.pack("<f", y)[2:] for y in numbers)
        header[x.name] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [len(data), len(data) + len(part)],
        }
        data += part
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (FOLDER / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
