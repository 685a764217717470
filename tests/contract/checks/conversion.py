"""Files of a configuration between Hugging Face, fused experts and GGUF, and back; metadata as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

import llamath
from llamath.analysis.check.same.compare_checkpoints import compare_checkpoints
from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.conversion.gguf_model_keys import gguf_model_keys
from llamath.families.registry import find_family, gguf_records
from llamath.utils.errors import ConvertError
from support.contract import Contract, check
from support.gguf_files import CONVERTED, tensor_shapes

REFUSED = {
    "bloom-untied, six heads, other keys": "layers",
    "cohere2-listed": "rope",
    "cohere2-plain": "rope",
    "deepseek_v2-plain attention": "other kinds of layers",
    "deepseek_v2-without a latent query, biased, tied, all sparse": "bias",
    "deepseek_v3-without a latent query, biased, tied, one group, halves": "rope",
    **dict.fromkeys(
        ("exaone4-every-second", "exaone4-listed", "exaone4-plain"),
        "windows only in models of 64 layers",
    ),
    "falcon-11B: one norm, grouped": "activation",
    "falcon-1B: serial, multi-head, alibi": "alibi, rope",
    "falcon_mamba-plain": "eps",
    "gemma2-biased, untied, listed": "scale",
    "gemma2-defaults, no caps": "scale, softcap",
    "gemma2-plain": "scale",
    "gemma2-tight caps": "scale",
    "gemma3-biased, untied, listed": "rope, scale",
    "gemma3-both ways": "scale, window",
    "gemma3-plain": "rope, scale",
    "glm4_moe_lite-plain": "are not known here",
    "glm4_moe_lite-types-tied": "are not known here",
    "gpt2-scores not scaled": "scale",
    "gpt2-scores scaled layer by layer": "scale",
    "gpt_bigcode-multi-head, narrow, untied, unscaled": "activation, scale",
    "gpt_oss-default key/value heads": "limit",
    "gpt_oss-plain": "limit",
    "gpt_oss-without attention biases, tied, listed layers": "limit",
    "gptj-narrow, tied": "activation",
    "internlm3-biased q, k and v": "bias",
    "llama4-dense between, biased, tied, no norms of queries": "after_rope, k_norm, q_norm, rope, temperature",
    "llama4-listed layers, one expert": "after_rope, k_norm, q_norm, rope, temperature",
    "mamba-tied, biased, wide": "activation",
    "mistral4-without a latent query, biased, tied, one dense": "rope, scale",
    "mpt-grouped, rotary": "logit_scale, rope",
    "mpt-six heads, untied, clipped": "scale",
    "nemotron_h-latent experts, biased": "activation",
    "nemotron_h-plain": "dt_limits",
    "olmo3-nested-rope": "one rope_theta for all layers",
    "olmoe-grouped, biased, clipped, tied": "clip, norm_topk_prob",
    "phi-grouped, head norms, tied": "activation",
    "phimoe-tied, long": "rope",
    "qwen-short": "rope, temperature",
    "qwen2_moe-no biases, tied, every second layer sparse, one dense": "norm_topk_prob",
    "qwen3_5-biased, tied, layers listed": "every n-th layer|layers",
    "qwen3_moe-biased, tied, every second layer sparse, one dense, windows": "norm_topk_prob",
    "qwen3_next-layers listed, every second sparse": "every n-th layer|layers",
    "smollm3-listed": "rope",
    "smollm3-window": "rope",
    "smollm3-window-listed": "rope",
}
"""Configs that llama.cpp's architecture cannot express, and what it would compute in another way."""


def with_context(case: Contract) -> dict[str, Any]:
    """Return a config with a context length, which GGUF needs and some tiny configs leave out."""
    return (
        case.config
        if case.tree.context is not None
        else case.config | {"max_position_embeddings": 64}
    )


def convert(source: Path, target: Path, kind: str) -> None:
    convert_checkpoint(
        str(source), str(target), ConvertOptions(to=kind, force=kind == "gguf")
    )  # also what llama.cpp would not load


def bits_are_equal(folder: Path, expected: Mapping[str, torch.Tensor]) -> None:
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        assert found[name].dtype == x.dtype and torch.equal(
            found[name].view(torch.int16), x.view(torch.int16)
        ), name


def weights_are_the_same(case: Contract, a: Path, b: Path) -> None:
    report = compare_checkpoints(str(a), str(b))
    assert report.same and {x.path.rpartition(".")[2] for x in report.differences} <= {"a_log"}, (
        report.summary
    )
    assert report.identical + report.within_rounding == len(
        [x for x in case.model.weights if not x.weight.tied]
    )


def shapes_of_llama_cpp(name: str, layers: int) -> dict[str, list[int]]:
    """Return what llama.cpp's converter writes for this model, without multi-token prediction layers."""
    shapes = tensor_shapes(CONVERTED[name]) | (
        {"output.weight": [99, 32]} if "gemma-biased" in name else {}
    )
    return {
        x: shape
        for x, shape in shapes.items()
        if not x.startswith("blk.") or int(x.split(".")[1]) < layers
    }


def tensor_bytes(path: Path) -> dict[str, bytes]:
    return {x.name: x.data.tobytes() for x in gguf.GGUFReader(path).tensors}


@check("text", "unproven")
def files_are_converted_and_back(case: Contract) -> None:
    if not (case.is_first or case.has_new_block):
        return
    name, config, tensors = case.name.removeprefix("unproven-"), with_context(case), case.published
    family = case.model.family
    scheme = fused_scheme(family.hf)
    fused = {x.name for x in scheme.tensors(case.tree)} if scheme else set()
    with case.folder() as folder:
        a = folder / "a"
        a.mkdir()
        save_file(tensors, a / "model.safetensors")
        (a / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}))
        if case.is_thorough:
            convert(a, folder / "copy", "hf")
            bits_are_equal(folder / "copy", tensors)
            assert llamath.load(str(folder / "copy")).tree == llamath.load(config).tree
        if fused and fused != tensors.keys():
            convert(a, folder / "fused", "hf-fused")
            assert load_file(folder / "fused" / "model.safetensors").keys() == fused
            weights_are_the_same(case, a, folder / "fused")
            convert(folder / "fused", folder / "unfused", "hf")
            bits_are_equal(folder / "unfused", tensors)
        if not gguf_records(family.gguf_arch) or name in REFUSED:
            reason = family.why_no_gguf or "is known here for this family|are not known here"
            with pytest.raises(ConvertError, match=REFUSED.get(name, reason)):
                convert(a, folder / "x.gguf", "gguf")
            return
        convert(a, folder / "x.gguf", "gguf")
        if case.is_thorough:
            weights_are_the_same(case, a, folder / "x.gguf")
        if fused and fused != tensors.keys() and case.is_thorough:
            convert(folder / "fused", folder / "y.gguf", "gguf")
            assert tensor_bytes(folder / "x.gguf") == tensor_bytes(folder / "y.gguf")
        convert(folder / "x.gguf", folder / "again", "hf")
        if name == "mixformer-first":  # its GGUF files are those of the later names
            ours, theirs = (x.tensors(case.tree) for x in (family.hf, find_family("phi-msft").hf))
            tensors = {y.name: tensors[x.name] for x, y in zip(ours, theirs, strict=True)}
        bits_are_equal(folder / "again", tensors)
        if name in CONVERTED:
            shapes = {
                x.name: [int(n) for n in x.shape[::-1]]
                for x in gguf.GGUFReader(folder / "x.gguf").tensors
            }
            assert shapes == shapes_of_llama_cpp(name, case.tree.layers.n)


def is_near(a: Any, b: Any) -> bool:
    """Whether two values of metadata are equal in single precision."""
    return bool(
        a == b or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-6 * abs(a))
    )


HARMLESS = frozenset(
    """expert_group_count expert_group_used_count expert_gating_func expert_weights_norm expert_weights_scale rope.scaling.type
    attention.key_length attention.value_length tensor_data_layout rope.scaling.original_context_length nextn_predict_layers
    rope.dimension_count rope.freq_base vocab_size attention.layer_norm_rms_epsilon attention.head_count_kv rope.scaling.yarn_beta_fast
    rope.scaling.yarn_beta_slow feed_forward_length context_length rope.dimension_sections""".split()
)
"""Keys that one of the two writes with the value that llama.cpp assumes without it; contexts that a tiny config leaves out."""
OTHER_VALUES = {
    "falcon-11B: one norm, grouped": {
        "feed_forward_length"
    },  # the converter writes four times the width, whatever it is
    "gpt2-untied, narrow": {"feed_forward_length"},
    "gpt_bigcode-multi-head, narrow, untied, unscaled": {
        "feed_forward_length",
        "attention.head_count_kv",
    },
    "mpt-learned positions, biased": {"feed_forward_length"},
    "phi-plain": {"feed_forward_length"},
    # for layers without experts, and it has none
    "qwen2_moe-plain": {"feed_forward_length"},
    "qwen2_moe-windows in turn": {"feed_forward_length"},
    "qwen3_next-plain": {"feed_forward_length"},
    "phimoe-biased, head too, wide heads, windows": {"rope.dimension_count"},
    # with the layers for multi-token prediction
    **{
        label: {"block_count"}
        for label in ("glm4_moe-plain", "glm4_moe-norms, biases, tied, two dense")
    },
    # for layers without a window, and they have none
    **{label: {"rope.freq_base"} for label in ("gemma3-both ways", "gemma3-defaults")},
    "qwen3_5_moe-biased, tied, every second full": {"full_attention_interval"},
    "lfm2-attention alone, stretched": {"attention.head_count_kv"},
    "nemotron_h-latent experts, biased": {"feed_forward_length", "rope.dimension_count"},
    **{
        label: {"rope.dimension_count"}
        for label in ("nemotron_h-plain", "nemotron_h-experts, by name")
    },  # it has no positions
    "stablelm-epoch": {"use_parallel_residual"},
}
"""Keys with another value than llama.cpp's converter writes, with the reason."""


@check("text", "unproven")
def metadata_are_those_of_llama_cpp_s_converter(case: Contract) -> None:
    name = case.name.removeprefix("unproven-")
    entry = CONVERTED.get(name)
    if entry is None or (
        "layers" in REFUSED.get(name, "") and name != "bloom-untied, six heads, other keys"
    ):
        return
    written, expected = gguf_model_keys(llamath.load(entry["config"])), entry["keys"]
    assert written.arch == entry["arch"]
    differing = {
        key
        for key in expected.keys() & written.keys.keys()
        if not is_near(expected[key], written.keys[key])
    }
    assert differing == OTHER_VALUES.get(name, set())
    assert expected.keys() ^ written.keys.keys() <= HARMLESS
    assert {
        x: pytest.approx(list(values), rel=1e-5) for x, values in written.tensors.items()
    } == entry.get("values", {})
