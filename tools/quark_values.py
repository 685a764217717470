"""Write tests/golden/quark_values.json: a small matrix as Quark stores it in its 4- and 6-bit
types, and the values that Quark reads.

Needs amd-quark, torch and transformers, no GPU. Of a model of random weights, one matrix [16, 64]
is kept for each scheme.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from quark.torch import import_model_from_safetensors
from safetensors.torch import load_file

from quantizer_exports import quark

OUTPUT = (
    Path(sys.argv[1])
    if sys.argv[1:]
    else Path(__file__).parents[1] / "tests" / "golden" / "quark_values.json"
)
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "vocab_size": 256,
}
SCHEMES = "int4_wo_32 uint4_wo_32 int4_wo_per_channel int4_fp8 mxfp6_e3m2 mxfp6_e2m3".split()
MATRIX = "model.layers.0.self_attn.k_proj"


def new_model() -> Any:
    torch.manual_seed(0)
    keys = {
        **SHAPE,
        "num_hidden_layers": 1,
        "head_dim": 16,
        "tie_word_embeddings": False,
        "max_position_embeddings": 128,
    }
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model("llama", **keys), dtype=torch.bfloat16
    )
    model.config.architectures = [type(model).__name__]
    return model


def packed(x: torch.Tensor) -> list[Any]:
    return [
        str(x.dtype).removeprefix("torch."),
        list(x.shape),
        x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex(),
    ]


def facts_of(scheme: str) -> dict[str, Any]:
    """Return the config, the stored tensors and the values of the matrix, and what it was
    before."""
    model = new_model()
    original = model.get_submodule(MATRIX).weight.detach().clone()
    with tempfile.TemporaryDirectory() as folder:
        quark(model, folder, scheme)
        section = json.loads((Path(folder) / "config.json").read_text())["quantization_config"]
        stored = {
            name: x
            for path in Path(folder).glob("*.safetensors")
            for name, x in load_file(path).items()
            if name.startswith(MATRIX)
        }
        module = import_model_from_safetensors(new_model(), folder).get_submodule(MATRIX)
        values = module.weight_quantizer(module.weight.detach())
    tensors = {name.removeprefix(f"{MATRIX}."): packed(x) for name, x in stored.items()}
    kept = {
        key: section[key]
        for key in ("quant_method", "export", "global_quant_config", "layer_quant_config")
    }
    return {
        "config": kept,
        "stored": tensors,
        "values": packed(values),
        "original": packed(original),
    }


def main() -> None:
    OUTPUT.write_text(
        json.dumps({scheme: facts_of(scheme) for scheme in SCHEMES}).replace("}}, ", "}},\n ")
        + "\n"
    )


if __name__ == "__main__":
    main()
