"""Conversion of every family: every tiny config between Hugging Face, fused experts and GGUF, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

import llamath
from llamath.checkpoint.gguf_metadata import ARCHITECTURES
from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.conversion.convert_checkpoint import ConversionReport, ConvertOptions, convert_checkpoint
from llamath.conversion.gguf_model_keys import gguf_model_keys
from llamath.families.classes import CAUSAL_CLASSES
from llamath.families.registry import MODEL_TYPES, find_family
from llamath.utils.errors import ConvertError, LlamathError
from support.gguf_files import CONVERTED, load_tiny_configs, tensor_shapes
from support.reference_data import multimodal_configs

CONFIGS = load_tiny_configs()
EXPRESSIBLE = {label for label in CONFIGS if find_family(CONFIGS[label]["model_type"]).gguf_arch in ARCHITECTURES}
REFUSED = {
    "bloom-untied, six heads, other keys": "layers",
    "cohere2-listed": "rope",
    "cohere2-plain": "rope",
    "deepseek_v2-plain attention": "other kinds of layers",
    "deepseek_v2-without a latent query, biased, tied, all sparse": "bias",
    "deepseek_v3-without a latent query, biased, tied, one group, halves": "rope",
    **dict.fromkeys(("exaone4-every-second", "exaone4-listed", "exaone4-plain"), "windows only in models of 64 layers"),
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


def with_context(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config with a context length, which GGUF needs and some tiny configs leave out."""
    return config if llamath.load(config).tree.context is not None else config | {"max_position_embeddings": 64}


def write_checkpoint(folder: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Write a Hugging Face checkpoint of random bfloat16 numbers, and return its tensors."""
    model = llamath.load(config)
    generator = torch.Generator().manual_seed(0)
    shapes = {x.name: tuple(map(int, x.shape)) for x in model.scheme("hf").tensors(model.tree)}
    tensors = {name: (torch.randn(shape, generator=generator) / 10).bfloat16() for name, shape in shapes.items()}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}))
    return tensors


def fused_names(config: dict[str, Any]) -> set[str]:
    """Return the names of a model's tensors with the experts in stacks; an empty set if it has none or always stacks them."""
    model = llamath.load(config)
    fused = fused_scheme(model.family.hf)
    names = {x.name for x in fused.tensors(model.tree)} if fused else set()
    return names if names != {x.name for x in model.family.hf.tensors(model.tree)} else set()


def convert(source: Path, target: Path, kind: str, **options: Any) -> ConversionReport:
    forced = {"force": True} if kind == "gguf" else {}  # also what llama.cpp would not load
    return convert_checkpoint(str(source), str(target), ConvertOptions(to=kind, **forced, **options))


def assert_equal(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        assert found[name].dtype == x.dtype and torch.equal(found[name].view(torch.int16), x.view(torch.int16)), name


@pytest.mark.parametrize("label", sorted(CONFIGS))
def test_every_family_is_converted_and_back(label: str, tmp_path: Path) -> None:
    config = with_context(CONFIGS[label])
    tensors = write_checkpoint(tmp_path / "a", config)
    convert(tmp_path / "a", tmp_path / "copy", "hf")
    assert_equal(tmp_path / "copy", tensors)
    assert llamath.load(str(tmp_path / "copy")).tree == llamath.load(config).tree
    fused = fused_names(config)
    if fused:
        convert(tmp_path / "a", tmp_path / "fused", "hf-fused")
        assert load_file(tmp_path / "fused" / "model.safetensors").keys() == fused
        convert(tmp_path / "fused", tmp_path / "unfused", "hf")
        assert_equal(tmp_path / "unfused", tensors)
    if label not in EXPRESSIBLE or label in REFUSED:
        with pytest.raises(ConvertError, match=REFUSED.get(label, "llama.cpp does not have this family|are not known here")):
            convert(tmp_path / "a", tmp_path / "x.gguf", "gguf")
        return
    convert(tmp_path / "a", tmp_path / "x.gguf", "gguf")
    if fused:
        convert(tmp_path / "fused", tmp_path / "y.gguf", "gguf")
        assert tensor_bytes(tmp_path / "x.gguf") == tensor_bytes(tmp_path / "y.gguf")
    convert(tmp_path / "x.gguf", tmp_path / "again", "hf")
    if label == "mixformer-first":  # its GGUF files are those of the later names
        whole = llamath.load(config)
        ours, theirs = (x.tensors(whole.tree) for x in (whole.family.hf, find_family("phi-msft").hf))
        tensors = {y.name: tensors[x.name] for x, y in zip(ours, theirs, strict=True)}
    assert_equal(tmp_path / "again", tensors)
    if label in CONVERTED:
        shapes = {x.name: [int(n) for n in x.shape[::-1]] for x in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
        assert shapes == _shapes_of_llama_cpp(label)


def _shapes_of_llama_cpp(label: str) -> dict[str, list[int]]:
    """Return what llama.cpp's converter writes for this model, without multi-token prediction layers."""
    layers = llamath.load(CONFIGS[label]).tree.layers.n
    shapes = tensor_shapes(CONVERTED[label]) | ({"output.weight": [99, 32]} if "gemma-biased" in label else {})
    return {name: x for name, x in shapes.items() if not name.startswith("blk.") or int(name.split(".")[1]) < layers}


def tensor_bytes(path: Path) -> dict[str, bytes]:
    return {x.name: x.data.tobytes() for x in gguf.GGUFReader(path).tensors}


def is_near(a: Any, b: Any) -> bool:
    """Whether two values of metadata are equal in single precision."""
    return bool(a == b or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-6 * abs(a)))


HARMLESS = frozenset(
    """expert_group_count expert_group_used_count expert_gating_func expert_weights_norm expert_weights_scale rope.scaling.type
    attention.key_length attention.value_length tensor_data_layout rope.scaling.original_context_length nextn_predict_layers
    rope.dimension_count rope.freq_base vocab_size attention.layer_norm_rms_epsilon attention.head_count_kv rope.scaling.yarn_beta_fast
    rope.scaling.yarn_beta_slow feed_forward_length context_length rope.dimension_sections""".split()
)
"""Keys that one of the two writes with the value that llama.cpp assumes without it; contexts that a tiny config leaves out."""
OTHER_VALUES = {
    "falcon-11B: one norm, grouped": {"feed_forward_length"},  # the converter writes four times the width, whatever it is
    "gpt2-untied, narrow": {"feed_forward_length"},
    "gpt_bigcode-multi-head, narrow, untied, unscaled": {"feed_forward_length", "attention.head_count_kv"},
    "mpt-learned positions, biased": {"feed_forward_length"},
    "phi-plain": {"feed_forward_length"},
    "qwen2_moe-plain": {"feed_forward_length"},  # of layers without experts, of which there are none
    "qwen2_moe-windows in turn": {"feed_forward_length"},
    "qwen3_next-plain": {"feed_forward_length"},
    "phimoe-biased, head too, wide heads, windows": {"rope.dimension_count"},
    **{label: {"block_count"} for label in ("glm4_moe-plain", "glm4_moe-norms, biases, tied, two dense")},  # with the layers for prediction
    **{
        label: {"rope.freq_base"} for label in ("gemma3-both ways", "gemma3-defaults")
    },  # of layers without a window, of which there are none
    "qwen3_5_moe-biased, tied, every second full": {"full_attention_interval"},
    "lfm2-attention alone, stretched": {"attention.head_count_kv"},
    "nemotron_h-latent experts, biased": {"feed_forward_length", "rope.dimension_count"},
    **{label: {"rope.dimension_count"} for label in ("nemotron_h-plain", "nemotron_h-experts, by name")},  # it has no positions
    "stablelm-epoch": {"use_parallel_residual"},
}
"""Keys with another value than llama.cpp's converter writes, with the reason."""


@pytest.mark.parametrize(
    "label", sorted({x for x in CONVERTED if "layers" not in REFUSED.get(x, "")} | {"bloom-untied, six heads, other keys"})
)
def test_metadata_are_those_of_llama_cpp_s_converter(label: str) -> None:
    written = gguf_model_keys(llamath.load(CONVERTED[label]["config"]))
    expected = CONVERTED[label]["keys"]
    assert written.arch == CONVERTED[label]["arch"]
    differing = {key for key in expected.keys() & written.keys.keys() if not is_near(expected[key], written.keys[key])}
    assert differing == OTHER_VALUES.get(label, set())
    assert expected.keys() ^ written.keys.keys() <= HARMLESS
    assert {name: pytest.approx(list(x), rel=1e-5) for name, x in written.tensors.items()} == CONVERTED[label].get("values", {})


def test_class_in_config_is_that_of_transformers(tmp_path: Path) -> None:
    """A new family needs a row in `families.classes.CAUSAL_CLASSES`."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    wrappers = {"gemma3"}  # of a text model that has a type of its own
    listed_elsewhere = {"mistral4": "Mistral4ForCausalLM", "mllama_text_model": "MllamaForCausalLM"}
    expected = {x: CLASSES[x] for x in MODEL_TYPES if x in CLASSES and x not in wrappers} | listed_elsewhere
    assert expected == CAUSAL_CLASSES
    write_checkpoint(tmp_path / "a", CONFIGS["qwen3-plain"])
    convert(tmp_path / "a", tmp_path / "b", "hf")
    assert json.loads((tmp_path / "b" / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]


def test_every_model_type_belongs_to_a_family_that_was_tested() -> None:
    tested = {MODEL_TYPES[config["model_type"]] for config in CONFIGS.values()}
    tested |= {llamath.load(config.values[0]).text.family.name for config in multimodal_configs()}
    elsewhere = {"glm4v", "mistral", "qwen2_vl", "qwen3_vl", "phi_msft"}
    elsewhere |= {"deepseek_v41", "kimi_k3", "moondream"}  # tests/oracle/test_deepseek_v41.py, test_kimi_k3.py, tests/run/test_tiles.py
    assert set(MODEL_TYPES.values()) - tested <= elsewhere


def test_experts_cannot_be_fused_where_there_are_none(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a", CONFIGS["llama-plain"])
    with pytest.raises(LlamathError, match="llama family has no experts that can be fused"):
        convert(tmp_path / "a", tmp_path / "b", "hf-fused")
