"""Write tests/truth/modelopt_exports.jsonl: the tensors that NVIDIA ModelOpt stores for small
models, with its quantization configs.

Needs nvidia-modelopt, torch and transformers, no GPU. Left out: what ModelOpt refuses without a
GPU, and two exports whose config contradicts their files (blocks of FP8 in Mixtral's experts, whose
tensors have no names of modules; and FP8 for down projections only, which the table of layers does
not tell of experts).
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modelopt.torch.quantization as mtq
import torch
import transformers
from modelopt.torch.export import export_hf_checkpoint

OUTPUT = Path(__file__).parents[1] / "tests" / "truth" / "modelopt_exports.jsonl"
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 160,
}
EXPERTS = {"num_experts_per_tok": 2, "num_hidden_layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {**SHAPE, "num_hidden_layers": 3, "head_dim": 64, "tie_word_embeddings": False},
    "mixtral": {**SHAPE, **EXPERTS, "num_local_experts": 4},
    "qwen3_moe": {
        **SHAPE,
        **EXPERTS,
        "num_experts": 4,
        "moe_intermediate_size": 128,
        "head_dim": 64,
    },
    "qwen3": {**SHAPE, "num_hidden_layers": 2, "head_dim": 64, "tie_word_embeddings": True},
}
PRESETS = """FP8_DEFAULT NVFP4_DEFAULT FP8_PER_CHANNEL_PER_TOKEN FP8_2D_BLOCKWISE_WEIGHT_ONLY
W4A16_NVFP4 INT4_AWQ W4A8_AWQ_BETA INT8_SMOOTHQUANT INT8_WEIGHT_ONLY W4A8_NVFP4_FP8 W4A8_MXFP4_FP8
MXFP4_DEFAULT MXFP8_DEFAULT NVFP4_MLP_ONLY NVFP4_EXPERTS_ONLY NVFP4_OMLP_ONLY""".split()
CONTRADICTIONS = {
    ("FP8_2D_BLOCKWISE_WEIGHT_ONLY", "mixtral"),
    ("mixed, down in FP8", "mixtral"),
    ("mixed, down in FP8", "qwen3_moe"),
}
FP8 = {"num_bits": (4, 3), "axis": None}
NVFP4 = {"num_bits": (2, 1), "block_sizes": {-1: 16, "type": "dynamic", "scale_bits": (4, 3)}}
MXFP8 = {"num_bits": (4, 3), "block_sizes": {-1: 32, "type": "dynamic", "scale_bits": (8, 0)}}


def quantized(pattern: str, to: dict[str, Any]) -> list[dict[str, Any]]:
    """Quantize the weights and inputs of these modules."""
    return [{"quantizer_name": f"{pattern}{x}_quantizer", "cfg": to} for x in ("weight", "input")]


def mixed(rules: list[dict[str, Any]], cache: bool = False) -> dict[str, Any]:
    """Return a config of rules, with ModelOpt's own exceptions."""
    base = copy.deepcopy(mtq.NVFP4_DEFAULT_CFG["quant_cfg"])
    kept = [
        x
        for x in base
        if "parent_class" in x or (x.get("enable") is False and x["quantizer_name"] != "*")
    ]
    scales = copy.deepcopy(mtq.FP8_KV_CFG["quant_cfg"]) if cache else []
    return {
        "quant_cfg": [{"quantizer_name": "*", "enable": False}, *rules, *scales, *kept],
        "algorithm": "max",
    }


def configs() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from ((name, copy.deepcopy(getattr(mtq, f"{name}_CFG"))) for name in PRESETS)
    yield "FP8, cache in FP8", mixed(quantized("*", FP8), True)
    yield "NVFP4, cache in FP8", mixed(quantized("*", NVFP4), True)
    mlp = [*quantized("*mlp*", NVFP4), *quantized("*block_sparse_moe*", NVFP4)]
    yield "mixed, attention in FP8", mixed([*quantized("*self_attn*", FP8), *mlp], True)
    yield (
        "mixed, layer 0 in NVFP4",
        mixed([*quantized("*layers.0.*", NVFP4), *quantized("*layers.1.*", FP8)]),
    )
    yield "mixed, down in FP8", mixed([*quantized("*", NVFP4), *quantized("*down_proj*", FP8)])
    yield "mixed, MXFP8", mixed([*quantized("*", MXFP8), *quantized("*self_attn*", NVFP4)])
    for seed in range(12):
        rng, rules = random.Random(seed), []
        for i in range(3):
            qkv, o, inside = (rng.choice([FP8, NVFP4, None]) for _ in range(3))
            for pattern, to in {
                "self_attn.[qkv]_proj": qkv,
                "self_attn.o_proj": o,
                "mlp": inside,
                "block_sparse_moe": inside,
            }.items():
                rules += quantized(f"*layers.{i}.{pattern}*", to) if to else []
        if rules:
            yield f"random {seed}", mixed(rules, rng.random() < 0.5)


def tensors(folder: Path) -> dict[str, tuple[str, list[int]]]:
    """Return the dtype and the shape of every tensor in the files of a folder."""
    found = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        found |= {
            name: (x["dtype"], x["shape"]) for name, x in header.items() if name != "__metadata__"
        }
    return found


def export(model_type: str, keys: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Quantize a model of random weights, and return its configs and the facts on its tensors."""
    torch.manual_seed(0)
    own = transformers.AutoConfig.for_model(model_type, **keys)
    model = transformers.AutoModelForCausalLM.from_config(own, dtype=torch.bfloat16)
    model.config.architectures = [type(model).__name__]
    model = mtq.quantize(
        model, config, lambda x: [x(torch.randint(0, 160, (4, 32))) for _ in range(2)]
    )
    with tempfile.TemporaryDirectory() as folder:
        export_hf_checkpoint(model, export_dir=folder)
        found = tensors(Path(folder))
        section = json.loads((Path(folder) / "config.json").read_text())["quantization_config"]
        recipe = json.loads((Path(folder) / "hf_quant_config.json").read_text())
    lines = "".join(
        f"{name}\t{dtype}\t{'x'.join(map(str, shape))}\n"
        for name, (dtype, shape) in sorted(found.items())
    )
    facts = {"tensors": len(found), "tensors_sha256": hashlib.sha256(lines.encode()).hexdigest()}
    return {
        "config": {"model_type": model_type, **keys},
        "quantization_config": section,
        "hf_quant_config": recipe,
        **facts,
    }


def main() -> None:
    with OUTPUT.open("w") as out:
        for name, config in configs():
            for model_type, keys in MODELS.items():
                if (name, model_type) in CONTRADICTIONS:
                    continue
                try:
                    facts = export(model_type, keys, copy.deepcopy(config))
                except (AssertionError, RuntimeError, TypeError) as error:
                    print(f"{name}, {model_type}: {type(error).__name__}: {error}")
                    continue
                out.write(json.dumps({"name": f"{name}, {model_type}", **facts}) + "\n")


if __name__ == "__main__":
    main()
