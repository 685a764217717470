"""Names and shapes compared with checkpoints written by transformers, and GGUF names with llama.cpp's table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.core.config import Config
from llamath.core.expr import total
from llamath.core.tree import walk
from llamath.families.registry import find_family
from support.reference_data import tiny_configs

pytestmark = pytest.mark.transformers

MIXTURES = set("mixtral qwen2_moe qwen3_moe qwen3_next qwen3_5_moe_text phimoe olmoe deepseek_v2 deepseek_v3 glm4_moe minimax_m2".split())


def checkpoint(config: dict[str, Any], folder: Path) -> tuple[dict[str, tuple[int, ...]], int]:
    """Return the checkpoint that transformers saves for this config: name → shape, and its number of trained parameters."""
    import transformers
    from safetensors.torch import load_file

    from support.transformers_pair import as_published, published_name

    hf_config = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(hf_config)
    model.save_pretrained(folder)
    tensors = as_published(config, load_file(folder / "model.safetensors"))
    shapes = {published_name(name): tuple(x.shape) for name, x in tensors.items()}
    return shapes, sum(x.numel() for x in model.parameters() if x.requires_grad)


@pytest.mark.parametrize("config", tiny_configs())
def test_names_shapes_and_total_equal_transformers(config: dict[str, Any], tmp_path: Path) -> None:
    family = find_family(config["model_type"])
    tree = family(Config(config))
    shapes, parameters = checkpoint(config, tmp_path)
    assert {x.name: x.shape for x in family.hf.tensors(tree)} == shapes
    leaves = [x.weight for x in walk(tree)]
    assert total(x.parameters for x in leaves) - total(x.parameters for x in leaves if x.buffer) == parameters


@pytest.mark.parametrize("config", tiny_configs())
def test_gguf_names_equal_llama_cpp(config: dict[str, Any]) -> None:
    gguf = pytest.importorskip("gguf")
    family = find_family(config["model_type"])
    if not family.gguf:
        pytest.skip("no GGUF architecture")
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == family.gguf_arch)
    tree = family(Config(config))
    known = gguf.get_tensor_name_map(arch, len(tree.layers))
    ours = {gguf.TENSOR_NAMES[x] for x in gguf.MODEL_TENSORS[arch]}
    for stored in family.hf.tensors(tree):
        theirs = known.get_name(stored.name, try_suffixes=(".weight", ".bias"))
        if theirs and config.get("num_local_experts") == 0:
            theirs = theirs.replace("_shexp", "")  # as the converter does where Granite 4 has no other experts
        layer = next((x for x in stored.name.split(".") if x.isdigit()), "0")
        names = {family.gguf.stored_name(part.pattern).replace("{l}", layer) for part in stored.parts}
        if len(names) == 1:
            # None: an option that llama.cpp does not have; a bare parameter has no suffix there, and its converter adds one to some
            assert theirs is None or names in ({theirs}, {f"{theirs}.weight"}, {f"{theirs}.bias"})
        else:  # llama.cpp splits this one before it maps names: each part must be a tensor of the architecture
            assert {re.sub(r"\.\d+\.", ".{bid}.", x.rpartition(".")[0]) for x in names} <= ours, (stored.name, names)


@pytest.mark.parametrize("config", tiny_configs())
def test_fused_names_equal_transformers_5(config: dict[str, Any]) -> None:
    import torch
    import transformers

    family = find_family(config["model_type"])
    scheme = fused_scheme(family.hf)
    if scheme is None or config["model_type"] not in MIXTURES:
        pytest.skip("no experts to fuse")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    saved = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del saved["lm_head.weight"]
    assert {x.name: x.shape for x in scheme.tensors(family(Config(config)))} == saved
