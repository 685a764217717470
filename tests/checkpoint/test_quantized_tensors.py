"""The tensors of quantized checkpoints compared with those that ModelOpt and compressed-tensors store for the same models."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.inference.quantized_tensors import QuantizedTensor, quantized_tensors
from llamath.checkpoint.quantization.schemes import declared_weight_format, parse_weight_format
from llamath.cli import cli
from support.reference_data import truth

LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 96,
    "dtype": "bfloat16",
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def tensors_of(config: Mapping[str, Any]) -> list[QuantizedTensor]:
    """The tensors that a config's recipe stores, whose bytes must be those of `memory`."""
    model = llamath.load(config)
    tensors = list(quantized_tensors(model, declared_weight_format(model.config.data)))
    storage = MemoryCalculator(model, MemoryRequest()).storage
    assert storage is not None and sum(x.bytes for x in tensors) == storage.bytes
    assert sum(x.parameters for x in tensors) == model.parameters.total
    return tensors


EXPORTS = {x["name"]: x for x in truth("modelopt_exports.jsonl")}


@pytest.mark.parametrize("name", EXPORTS)
def test_tensors_are_those_that_modelopt_exports(name: str) -> None:
    """Its own names, dtypes and shapes, from the section in config.json and from hf_quant_config.json."""
    export = EXPORTS[name]
    for section in (export["quantization_config"], export["hf_quant_config"]):
        found = tensors_of({**export["config"], "torch_dtype": "bfloat16", "quantization_config": section})
        lines = "".join(sorted(f"{x.name}\t{x.dtype}\t{'x'.join(map(str, x.shape))}\n" for x in found))
        assert len(found) == export["tensors"] and hashlib.sha256(lines.encode()).hexdigest() == export["tensors_sha256"]
