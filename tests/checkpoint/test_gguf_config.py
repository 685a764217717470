"""GGUF metadata as a configuration: headers that llama.cpp's converter writes give the tree of the converted model."""

from __future__ import annotations

import struct
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint
from llamath.analysis.understand.count.header_count import count_from_header
from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.checkpoint.formats.gguf import Array
from llamath.checkpoint.formats.manifest import Tensor
from llamath.checkpoint.gguf_metadata.gguf_header import GGUFHeader, shortest_float32
from llamath.checkpoint.gguf_metadata.gguf_keys import KEY_MAPPINGS, ROPE_SCALING
from llamath.checkpoint.gguf_metadata.gguf_rope import fit_llama3
from llamath.checkpoint.open import find_config
from llamath.core.config import Config
from llamath.core.positions import Llama3Rope
from llamath.core.tree import Stack
from llamath.families.gguf_config import config_from_gguf, with_gguf_keys
from llamath.families.gguf_record import GGUFMetadata
from llamath.families.registry import FAMILIES, find_family, gguf_architectures, gguf_records
from llamath.utils.errors import LlamathError, UnknownModel
from llamath.utils.record_type import Record
from support.gguf_files import (
    CONVERTED,
    gguf_shapes,
    load_tiny_configs,
    tensor_shapes,
    write_gguf,
    write_gguf_header,
)

CONFIGS = load_tiny_configs()
EPS = "attention.layer_norm_rms_epsilon"

WRONG = {
    "falcon-11B: one norm, grouped": "four times the width is written, whatever it is",
    "gpt2-untied, narrow": "four times the width",
    "gpt_bigcode-multi-head, narrow, untied, unscaled": "four times the width",
    "mpt-learned positions, biased": "four times the width",
    "phi-plain": "four times the width",
    "phimoe-biased, head too, wide heads, windows": "the size of the heads is not written",
}
"""Entries whose metadata contradict their tensors, with the reason: they are refused, and can be counted from the header."""

DROPPED = {"gemma-biased, untied": "head.weight", "gemma2-biased, untied, listed": "head.weight"}
"""Weights that the converter leaves out, because it assumes that Gemma's heads are tied."""

LOST = {
    "bloom-untied, six heads, other keys": "layers",
    "cohere2-listed": "rope size",
    "cohere2-plain": "rope size",
    "deepseek-grouped, biased, tied, nothing shared": "norm_topk_prob",
    "deepseek_v3-without a latent query, biased, tied, one group, halves": "interleaved",
    "falcon-parallel, multi-head": "theta",
    "falcon_mamba-plain": "eps",
    "gemma-biased, untied": "theta tied",
    "gemma2-biased, untied, listed": "scale size tied",
    "gemma2-plain": "scale",
    "gemma3-biased, untied, listed": "rope scale size",
    "gemma3-both ways": "causal scale size",
    "gemma3-plain": "rope scale size",
    "gpt_neox-serial, no attention bias, tied, all rotary": "theta",
    "gpt_oss-without attention biases, tied, listed layers": "limit size",
    "internlm2-plain": "rope",
    "llama-mistral": "size",
    "llama4-dense between, biased, tied, no norms of queries": "chunk k_norm after_rope q_norm rope temperature",
    "llama4-listed layers, one expert": "chunk k_norm after_rope q_norm rope temperature",
    "minicpm-untied-grouped": "rope",
    "ministral3-window-tied": "size",
    "mistral4-without a latent query, biased, tied, one dense": "interleaved scale",
    "mpt-grouped, rotary": "logit_scale rope",
    "mpt-six heads, untied, clipped": "scale",
    "nemotron_h-latent experts, biased": "activation",
    "olmoe-grouped, biased, clipped, tied": "clip norm_topk_prob",
    "phimoe-tied, long": "mscales",
    "qwen-biased-partial": "dim original_context",
    "qwen-plain": "original_context",
    "qwen-short": "rope temperature",
    "qwen2-late layers with a window": "size",
    "qwen2-layer types": "size",
    "qwen2_moe-windows in turn": "size",
    "qwen3-biased, window": "size",
    "smollm3-listed": "rope",
    "smollm3-window": "rope size",
    "smollm3-window-listed": "rope size",
    "stablelm-2: biased, tied": "theta",
    "starcoder2-grouped, no biases, untied, windowed": "size",
}
"""Fields of the tree that the converter does not write, or for which llama.cpp has no key."""


def differing_fields(a: Any, b: Any, name: str = "") -> set[str]:
    """Return the names of the innermost fields in which two trees differ."""
    if a == b:
        return set()
    if type(a) is type(b) and isinstance(a, Record):
        return {
            x
            for field in a.fields
            for x in differing_fields(getattr(a, field), getattr(b, field), field)
        }
    if isinstance(a, Stack) and isinstance(b, Stack) and len(a) == len(b):
        return {
            x for item, other in zip(a, b, strict=True) for x in differing_fields(item, other, name)
        }
    return {name}


def tree(config: dict[str, Any]) -> Any:
    return find_family(config["model_type"])(Config(config))


def write_converted(label: str, folder: Path) -> Path:
    entry = CONVERTED[label]
    return write_gguf(
        folder / "model.gguf",
        entry["arch"],
        entry["keys"],
        tensor_shapes(entry),
        entry["tokens"],
        entry.get("values"),
    )


@pytest.mark.parametrize("label", sorted(set(CONVERTED) - set(WRONG)))
@pytest.mark.slow
def test_converted_header_gives_the_tree_back(label: str, tmp_path: Path) -> None:
    config, model = CONVERTED[label]["config"], llamath.load(write_converted(label, tmp_path))
    family, whole = find_family(config["model_type"]), tree(config)
    assert family.gguf is not None and family.gguf_arch.removesuffix("_moe") == CONVERTED[label][
        "arch"
    ].removesuffix("_moe")
    ours = {x.name: tuple(map(int, x.shape)) for x in family.gguf.tensors(whole)}
    if label in DROPPED:
        del ours["output.weight"]
    assert gguf_shapes(model) == ours
    assert model.parameters.total == sum(
        x.elements for x in read_checkpoint(str(tmp_path / "model.gguf")).tensors
    ) - _count_rotary_factors(label)
    assert differing_fields(whole, model.tree) - {"context", "mtp"} == set(
        LOST.get(label, "").split()
    )
    assert not any("assumed" in x or "not read" in x for x in model.notes), model.notes


def _count_rotary_factors(label: str) -> int:
    """Return the number of rotary factors, which are no weights."""
    return sum(len(x) for x in CONVERTED[label].get("values", {}).values())


@pytest.mark.parametrize("label", sorted(WRONG))
def test_metadata_that_contradict_the_tensors_are_refused(label: str, tmp_path: Path) -> None:
    path = write_converted(label, tmp_path)
    with pytest.raises(UnknownModel, match="its tensors hold") as caught:
        llamath.load(path)
    assert "llamath.ls" in caught.value.hint
    true = llamath.load(CONVERTED[label]["config"]).parameters.total
    assert count_from_header("", "", read_checkpoint(str(path))).total == true
    assert llamath.load(path, check_tensors=False).parameters.total != true


EXPERTS = {"block_count": 4, "attention.head_count_kv": 2, "feed_forward_length": 56}
HEADS = {"attention.key_length": None, "attention.value_length": None}
GPTJ = {
    "block_count": 2, "context_length": 48, "embedding_length": 32, "attention.head_count": 4, "attention.layer_norm_epsilon": 1e-5,
}  # fmt: skip
UNWRITTEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "cohere-biased, untied": (
        "cohere-head norms",
        {"block_count": 2, "logit_scale": 0.0625, "rope.freq_base": 500000.0},
        "",
    ),
    "cohere2-biased, untied": (
        "cohere2-plain",
        {
            "block_count": 4,
            "attention.head_count_kv": 2,
            "logit_scale": 0.25,
            "attention.sliding_window": 4096,
        },
        "",
    ),
    "falcon-7B: multi-query, biased, untied": ("falcon-plain", {"feed_forward_length": 56}, ""),
    "falcon-1B: serial, multi-head, alibi": (
        "falcon-plain",
        {"attention.head_count_kv": 6},
        "alibi rope",
    ),
    "gemma2-defaults, no caps": (
        "gemma2-plain",
        {
            "attention.head_count_kv": 4,
            "attention.key_length": 10,
            "attention.value_length": 10,
            "attention.sliding_window": 4096,
        },
        "scale softcap",
    ),
    "gptj-plain": ("gptj", GPTJ | {"feed_forward_length": 128, "rope.dimension_count": 4}, ""),
    "gptj-narrow, tied": (
        "gptj",
        GPTJ | {"feed_forward_length": 40, "rope.dimension_count": 8},
        "activation",
    ),
    "lfm2-biased, untied, width as given, layers listed": (
        "lfm2-plain",
        {
            "block_count": 3,
            "feed_forward_length": 52,
            "attention.head_count_kv": [0, 0, 2],
            "shortconv.l_cache": 4,
        },
        "",
    ),
    "phi-grouped, head norms, tied": (
        "phi-plain",
        {
            "feed_forward_length": 56,
            "attention.head_count_kv": 2,
            "attention.layer_norm_epsilon": 1e-6,
            "rope.dimension_count": 2,
        },
        "activation theta",
    ),
    "phi-msft": ("phi-plain", {}, ""),
    "mixformer-first": (
        "phi-plain",
        {"block_count": 3, "feed_forward_length": 128, "vocab_size": 128},
        "",
    ),
    "phi3-phi4": ("phi3-plain", {"attention.head_count_kv": 2}, ""),
    "qwen2_moe-no biases, tied, every second layer sparse, one dense": (
        "qwen2_moe-plain",
        EXPERTS,
        "norm_topk_prob",
    ),
    "qwen3_moe-biased, tied, every second layer sparse, one dense, windows": (
        "qwen3_moe-plain",
        EXPERTS | HEADS,
        "size norm_topk_prob",
    ),
    "qwen3_next-biased, tied, one layer dense, every second full": (
        "qwen3_next-plain",
        {"block_count": 3, "feed_forward_length": 56, "full_attention_interval": 2},
        "",
    ),
    "qwen3_next-layers listed, every second sparse": (
        "qwen3_next-plain",
        {"feed_forward_length": 56, "rope.freq_base": 1e7, "rope.dimension_count": 8},
        "",
    ),
    "stablelm-12B: parallel, grouped, a norm for each head": (
        "stablelm-plain",
        {"attention.head_count": 4, "rope.dimension_count": 6, "use_parallel_residual": True},
        "",
    ),
    "internlm2-biased": (
        "internlm2-plain",
        {"attention.head_count_kv": 6, "rope.freq_base": 10000.0, EPS: 1e-6},
        "",
    ),
    "mamba-tied, biased, wide": (
        "mamba-plain",
        {
            "block_count": 2,
            "embedding_length": 40,
            "ssm.inner_size": 120,
            "ssm.state_size": 6,
            "ssm.conv_kernel": 4,
            "ssm.time_step_rank": 9,
            "vocab_size": 104,
        },
        "activation",
    ),
    "minicpm-moe": (
        "minicpm-plain",
        {"attention.head_count_kv": 2, "expert_count": 5, "expert_used_count": 2, EPS: 1e-6},
        "",
    ),
}
"""Configs that the converter cannot write: the entry whose metadata are used, the changes to them, and the fields of the tree that are lost.
The tensors are those of our scheme."""


@pytest.mark.parametrize("label", UNWRITTEN)
def test_options_that_the_converter_cannot_write_are_read(label: str, tmp_path: Path) -> None:
    relative, changes, lost = UNWRITTEN[label]
    entry, config = CONVERTED.get(relative, {"arch": relative, "keys": {}}), CONFIGS[label]
    metadata = {key: x for key, x in (entry["keys"] | changes).items() if x is not None}
    family, whole = find_family(config["model_type"]), tree(config)
    assert family.gguf is not None
    tensors = {x.name: tuple(map(int, x.shape)) for x in family.gguf.tensors(whole)}
    model = llamath.load(write_gguf(tmp_path / "model.gguf", entry["arch"], metadata, tensors, 99))
    assert gguf_shapes(model) == tensors
    assert differing_fields(whole, model.tree) - {"context", "mtp"} == set(lost.split())


NAMES_ONLY = {
    "openelm",
    "exaone",
    "baichuan",
    "afmoe",
    "arcee",
    "bailingmoe2",
    "bitnet",
    "chatglm",
    "dots1",
    "ernie4_5",
    "ernie4_5-moe",
    "exaone-moe",
    "glm-dsa",
    "granitehybrid",
    "hunyuan-dense",
    "hunyuan-moe",
    "jais2",
    "jamba",
    "kimi-linear",
    "lfm2moe",
    "mamba2",
    "mimo2",
    "minicpm3",
    "nemotron",
    "qwen3vlmoe",
    "seed_oss",
    *("apertus", "dbrx", "falcon-h1", "gemma3n", "grok", "step35"),  # nor their names
}
"""Architectures whose names are those of llama.cpp, but whose metadata are not read or written: nothing here proves them."""


def test_every_tiny_config_with_an_architecture_is_covered() -> None:
    known = {
        label
        for label, x in CONFIGS.items()
        if (arch := find_family(x["model_type"]).gguf_arch) and arch not in NAMES_ONLY
    }
    left = {
        label
        for label in known - set(CONVERTED) - set(UNWRITTEN)
        if CONFIGS[label]["model_type"] != "glm4_moe_lite"
    }
    assert (
        left
        == {
            "deepseek_v2-plain attention",  # llama.cpp has another architecture for it, deepseek2-ocr
            "qwen-first-names",  # the converter reads none of them
            "gpt2-scores not scaled",  # llama.cpp scales them by the size of a head, always
            "gpt2-scores scaled layer by layer",
            "gemma2-tight caps",  # other numbers for the keys that are written in gemma2's others
            "gemma4-no layer differs",  # other spellings of configs; their metadata are those of the others
            "gemma4-zero-padded keys",
            "glm4_moe-default key/value heads",
            "gpt_oss-default key/value heads",
            "minimax_m2-default key/value heads",
            "phi-default width",
            *(
                x
                for x in CONFIGS
                if CONFIGS[x]["model_type"] in ("internlm3", "iquestcoder", "ministral")
            ),  # written as Llama
        }
    )


def test_families_and_architectures_agree() -> None:
    for family in FAMILIES.import_all().values():
        if arch := family.gguf_arch:
            assert bool(gguf_records(arch)) != (arch in NAMES_ONLY), family.name
    for name in gguf_architectures():
        for record in gguf_records(name):
            declared = find_family(record.model_type).gguf_arch
            assert name == declared or (name, declared) == ("nemotron_h", "nemotron_h_moe")


def test_records_of_an_architecture_name_each_other() -> None:
    """One record applies to every header, and names those that are tried before it."""
    declared: dict[str, list[GGUFMetadata]] = {}
    rows = set()
    for family in FAMILIES.import_all().values():
        for record in family.gguf_metadata:
            others = declared.setdefault(record.arch, [])
            if record not in others:
                others.append(record)
            for word in record.keys.split():
                key, _, name = word.rstrip("?").partition("=")
                rows.add(name or key)
    assert rows == {*KEY_MAPPINGS, "rope_scaling"}
    assert declared.keys() == set(gguf_architectures()) and len(declared) > 50
    for arch, records in declared.items():
        found = gguf_records(arch)
        assert len(found) == len(records) and all(x in found for x in records), arch
        assert [x.applies is None for x in found] == [False] * (len(found) - 1) + [True], arch


def test_architectures_and_keys_exist_in_the_gguf_package() -> None:
    assert set(gguf.MODEL_ARCH_NAMES.values()) >= set(gguf_architectures()) - {"mistral4"}
    known = {
        x
        for group in vars(gguf.Keys).values()
        if isinstance(group, type)
        for x in vars(group).values()
        if isinstance(x, str)
    }
    known |= {x for x in vars(gguf.Keys.Attention.Indexer).values() if isinstance(x, str)}
    known = {x.removeprefix("{arch}.") for x in known}
    assert {name for x in (*KEY_MAPPINGS.values(), *ROPE_SCALING) for name in x.gguf} <= known
    for entry in CONVERTED.values():
        metadata = {
            "general.architecture": entry["arch"],
            **{f"{entry['arch']}.{key}": _as_array(x) for key, x in entry["keys"].items()},
        }
        tensors = [
            Tensor(name, "F32", tuple(shape), 0, 0, 0)
            for name, shape in tensor_shapes(entry).items()
        ]
        header = GGUFHeader(metadata, tensors, "header")
        for mapping in KEY_MAPPINGS.values():
            with suppress(UnknownModel):
                mapping.read_from(header)
        assert header.read <= known


def _as_array(value: Any) -> Any:
    return (
        Array("UINT32", len(value), 0, 0, "<", tuple(value)) if isinstance(value, list) else value
    )


RMS, THETA, VOCAB, ROTARY_DIM = EPS, "rope.freq_base", "vocab_size", "rope.dimension_count"
KEY, VALUE, WINDOW, YARN = (
    "attention.key_length",
    "attention.value_length",
    "attention.sliding_window",
    "rope.scaling",
)


def keys(
    layers: int, width: int, inner: int, heads: tuple[int, ...], context: int, more: dict[str, Any]
) -> dict[str, Any]:
    """Return the metadata that every header has."""
    counts = dict(zip(("attention.head_count", "attention.head_count_kv"), heads, strict=False))
    return (
        {
            "block_count": layers,
            "embedding_length": width,
            "feed_forward_length": inner,
            "context_length": context,
        }
        | counts
        | more
    )


LLAMA = {RMS: 1e-5, THETA: 500000.0, VOCAB: 128256}
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
LATENT = {
    "attention.kv_lora_rank": 512, KEY: 576, VALUE: 512, f"{KEY}_mla": 192, f"{VALUE}_mla": 128, ROTARY_DIM: 64, VOCAB: 102400,
    "expert_count": 64, "expert_used_count": 6, "expert_feed_forward_length": 1408, "expert_shared_count": 2, "expert_weights_scale": 1.0,
    "expert_group_count": 1, "expert_group_used_count": 1, "expert_gating_func": 1, "leading_dense_block_count": 1, RMS: 1e-6, THETA: 1e4,
    f"{YARN}.type": "yarn", f"{YARN}.factor": 40.0, f"{YARN}.original_context_length": 4096, f"{YARN}.yarn_beta_fast": 32.0,
    f"{YARN}.yarn_beta_slow": 1.0, f"{YARN}.yarn_log_multiplier": 0.0707,
}  # fmt: skip
SPARSE = {
    RMS: 1e-5,
    THETA: 1e6,
    "expert_count": 8,
    "expert_used_count": 2,
    ROTARY_DIM: 128,
    VOCAB: 32000,
}
LONG = {
    f"{YARN}.original_context_length": 4096,
    RMS: 1e-5,
    ROTARY_DIM: 96,
    THETA: 1e4,
    WINDOW: 2047,
}
PRESETS: dict[str, tuple[str, dict[str, Any], int]] = {
    "llama-3-8b": (
        "llama",
        keys(32, 4096, 14336, (32, 8), 8192, LLAMA | {ROTARY_DIM: 128}),
        8_030_261_248,
    ),
    "llama-3.2-1b": (
        "llama",
        keys(16, 2048, 8192, (32, 8), 131072, LLAMA | {KEY: 64, VALUE: 64, ROTARY_DIM: 64}),
        1_235_814_400,
    ),
    "mixtral-8x7b": ("llama", keys(32, 4096, 14336, (32, 8), 32768, SPARSE), 46_702_792_704),
    "qwen2.5-0.5b": (
        "qwen2",
        keys(24, 896, 4864, (14, 2), 32768, {RMS: 1e-6, THETA: 1e6}),
        494_032_768,
    ),
    "gemma-2-2b": (
        "gemma2",
        keys(26, 2304, 9216, (8, 4), 8192, CAPS | {RMS: 1e-6, KEY: 256, VALUE: 256, WINDOW: 4096}),
        2_614_341_888,
    ),
    "gpt2": (
        "gpt2",
        keys(12, 768, 3072, (12,), 1024, {"attention.layer_norm_epsilon": 1e-5}),
        124_439_808,
    ),
    "phi-3-mini": ("phi3", keys(32, 3072, 8192, (32, 32), 4096, LONG), 3_821_079_552),
    "deepseek-v2-lite": (
        "deepseek2",
        keys(27, 2048, 10944, (16, 1), 163840, LATENT),
        15_706_484_224,
    ),
}
"""Preset → architecture, the metadata of its published files, and its number of parameters."""


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.slow
def test_published_headers_give_their_presets(name: str, tmp_path: Path) -> None:
    arch, metadata, total = PRESETS[name]
    preset = llamath.load(name)
    tensors: dict[str, tuple[int, ...]] = gguf_shapes(preset) | (
        {"rope_freqs.weight": (32,)} if name == "llama-3.2-1b" else {}
    )
    tokens = 0 if name == "qwen2.5-0.5b" else int(preset.tree.vocab)
    model = llamath.load(
        write_gguf_header(tmp_path / "model.gguf", arch, metadata, tensors, tokens)
    )
    assert model.parameters.total == preset.parameters.total == total
    assert gguf_shapes(model) == gguf_shapes(preset)
    assert differing_fields(preset.tree, model.tree) <= {
        "context",
        "rope",
        "mscale",
        "mscale_all_dim",
    }
    assert (model.tree.head is not None and model.tree.head.weight.tied == "embed.weight") == (
        "output.weight" not in tensors
    )


SMALL = CONVERTED["llama-plain"]


def write_small(
    folder: Path,
    keys: dict[str, Any] | None = None,
    arch: str = "llama",
    drop: str = "",
    tokens: int = 99,
    **tensors: Any,
) -> Path:
    """Write the plain Llama with other metadata; a key that is None is left out."""
    kept = {key: x for key, x in (SMALL["keys"] | (keys or {})).items() if x is not None}
    shapes = {
        name: shape for name, shape in tensor_shapes(SMALL).items() if not drop or drop not in name
    }
    return write_gguf(
        folder / "model.gguf",
        arch,
        kept,
        shapes | {name.replace("_s_", "."): x for name, x in tensors.items()},
        tokens,
    )


REFUSED = {
    "unknown": ({"arch": "rwkv7"}, "unknown architecture 'rwkv7'"),
    "near": ({"arch": "llama5"}, "nearest known: llama"),
    "an adapter": (
        {"keys": {"general.type": "adapter"}},
        "expected a GGUF file with a model, found general.type 'adapter'",
    ),
    "keys and values": (
        {"keys": {"attention.key_length": 8, "attention.value_length": 16}},
        "keys of 8 and values of 16 dimensions",
    ),
    "uneven widths": (
        {"keys": {"feed_forward_length": [56, 56, 64]}},
        r"feed_forward_length differs from layer to layer \(56, 64\)",
    ),
    "uneven heads": (
        {"keys": {"attention.head_count_kv": [4, 2, 4]}},
        r"head_count_kv differs from layer to layer \(2, 4\)",
    ),
    "too few layers": (
        {"keys": {"feed_forward_length": [56, 56]}},
        "a count for each of the 3 layers",
    ),
    "no blocks": ({"keys": {"block_count": None}}, "block_count is 0"),
    "a billion blocks": ({"keys": {"block_count": 1_000_000_000}}, "in a file of 30 tensors"),
    "blocks as text": ({"keys": {"block_count": "3"}}, "should be a count, not '3'"),
    "no width": ({"keys": {"embedding_length": None}}, "embedding_length is missing"),
    "heads as a number": ({"keys": {"attention.head_count": 4.0}}, "should be a count, not 4.0"),
    "heads that do not divide": (
        {"keys": {"attention.head_count": 5, "attention.head_count_kv": 5, KEY: None, VALUE: None}},
        "not divide",
    ),
    "more rotary channels than a head has": (
        {"keys": {"rope.dimension_count": 64}},
        "rope.dimension_count is 64, expected 8",
    ),
    "fewer rotary channels": (
        {"keys": {"rope.dimension_count": 6}},
        "rope.dimension_count is 6, expected 8",
    ),
    "eps as text": (
        {"keys": {"attention.layer_norm_rms_epsilon": "small"}},
        "should be a number, not 'small'",
    ),
    "one block too many": ({"keys": {"block_count": 4}}, "blk.3.attn_norm.weight is absent"),
    "a tensor too few": ({"drop": "blk.1.ffn_up"}, "blk.1.ffn_up.weight is absent"),
    "a tensor too many": ({"blk_s_0_s_attn_x_s_weight": (4, 4)}, "expected absent"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_header_that_no_family_can_express_is_refused(case: str, tmp_path: Path) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(UnknownModel, match=message) as caught:
        llamath.load(write_small(tmp_path, **changes))
    assert "llamath.ls(path)" in caught.value.hint


def test_missing_architecture_is_refused() -> None:
    with pytest.raises(UnknownModel, match=r"general\.architecture is missing"):
        config_from_gguf({}, [])


def test_changed_config_key_is_not_checked_against_the_file(tmp_path: Path) -> None:
    assert llamath.load(write_small(tmp_path), changes={"num_hidden_layers": 5}).tree.layers.n == 5


def test_truncated_file_is_a_finding_and_cannot_be_loaded(tmp_path: Path) -> None:
    path = write_small(tmp_path)
    assert verify_checkpoint(str(path)).verdict.ok
    path.write_bytes(path.read_bytes()[:-100])
    for location in (path, tmp_path):
        (finding,) = verify_checkpoint(str(location)).verdict.findings
        assert (finding.code, finding.severity) == (
            "truncated",
            "error",
        ) and "is 100 bytes short" in finding.message
    with pytest.raises(llamath.FormatError, match="is 100 bytes short"):
        llamath.load(path)


def test_verify_fails_where_load_refuses(tmp_path: Path) -> None:
    path = write_small(tmp_path, drop="blk.1.ffn_up")
    assert not verify_checkpoint(str(path)).verdict.ok
    assert verify_checkpoint(str(write_small(tmp_path))).verdict.ok


VOCABULARIES = {
    "stated": ({}, 99, "", 99),
    "listed": ({"vocab_size": None}, 99, "", 99),
    "neither": ({"vocab_size": None}, 0, "", 99),
    "listed, and stated before tokens were added": (
        {"vocab_size": 97},
        99,
        "a vocabulary of 97 and 99; token_embd.weight has 99 rows",
        99,
    ),
}


@pytest.mark.parametrize("case", VOCABULARIES)
def test_vocabulary_size_from_metadata_tokens_or_embedding(case: str, tmp_path: Path) -> None:
    keys, tokens, note, rows = VOCABULARIES[case]
    model = llamath.load(write_small(tmp_path, keys=keys, tokens=tokens))
    assert model.tree.vocab == rows
    assert note in "\n".join(model.notes)


def test_vocabulary_size_must_match_the_embedding(tmp_path: Path) -> None:
    with pytest.raises(
        UnknownModel, match=r"token_embd\.weight is \[99, 32\], expected \[98, 32\]"
    ):
        llamath.load(write_small(tmp_path, keys={"vocab_size": 98}, tokens=98))


def test_unread_keys_are_reported_unless_redundant(tmp_path: Path) -> None:
    notes = llamath.load(
        write_small(
            tmp_path, keys={"attention.causal": False, "rope.freq_base_swa": 10000.0, "spiral": 3}
        )
    ).notes
    assert notes == ("not read: attention.causal, spiral",)


def test_default_rope_theta_is_that_of_llama_cpp(tmp_path: Path) -> None:
    assert (
        llamath.load(write_small(tmp_path, keys={"rope.freq_base": None}))
        .tree.layers[0]
        .attn.rope.theta
        == 10000.0
    )


def test_older_mla_layout_is_counted_with_a_note(tmp_path: Path) -> None:
    """Until April 2025 k_up and v_up were one matrix, and the sizes of latent keys and values were not separate metadata."""
    entry = CONVERTED["deepseek_v2-plain"]
    heads, nope, value, latent = 4, 10, 12, 14
    keys = {key: x for key, x in entry["keys"].items() if not key.endswith("_mla")}
    keys |= {
        "attention.key_length": 16,
        "attention.value_length": value,
        "attention.head_count_kv": heads,
    }
    old = {
        name: shape
        for name, shape in tensor_shapes(entry).items()
        if "attn_k_b" not in name and "attn_v_b" not in name
    }
    old |= {f"blk.{i}.attn_kv_b.weight": [heads * (nope + value), latent] for i in range(3)}
    model = llamath.load(write_gguf(tmp_path / "model.gguf", "deepseek2", keys, old, 99))
    assert differing_fields(tree(entry["config"]), model.tree) == {"context"}
    assert (
        "9 tensors differ from llama.cpp's current format, with as many parameters in all"
        in "\n".join(model.notes)
    )


def test_experts_in_separate_tensors_are_counted(tmp_path: Path) -> None:
    entry = CONVERTED["mixtral-plain"]
    old: dict[str, Any] = {}
    for name, shape in tensor_shapes(entry).items():
        parts = (
            {name.replace("_exps.", f".{e}."): shape[1:] for e in range(shape[0])}
            if "_exps." in name
            else {name: shape}
        )
        old |= parts
    model = llamath.load(write_gguf(tmp_path / "model.gguf", "llama", entry["keys"], old, 99))
    assert model.family.name == "mixtral" and differing_fields(
        tree(entry["config"]), model.tree
    ) == {"context"}
    assert any("as many parameters in all" in x for x in model.notes)


def test_multi_token_prediction_layers_are_not_counted(tmp_path: Path) -> None:
    entry = CONVERTED["glm4_moe-plain"]
    layers = entry["keys"]["block_count"] - entry["keys"]["nextn_predict_layers"]
    last = {
        f"blk.{layers}.{name}": shape
        for name, shape in {"nextn.eh_proj.weight": [32, 64], "attn_norm.weight": [32]}.items()
    }
    model = llamath.load(
        write_gguf(
            tmp_path / "model.gguf", "glm4moe", entry["keys"], tensor_shapes(entry) | last, 99
        )
    )
    assert model.tree.layers.n == layers and any(
        "are multi-token prediction layers and are not counted" in x for x in model.notes
    )


def test_unknown_rotary_factors_are_reported() -> None:
    entry = CONVERTED["llama-grouped, biased, tied"]
    tensors = [
        Tensor(name, "F32", tuple(shape), 0, 0, 4 * 6)
        for name, shape in tensor_shapes(entry).items()
    ]
    metadata = {
        "general.architecture": "llama",
        **{f"llama.{key}": x for key, x in entry["keys"].items()},
    }
    for values in (None, b"\0" * 24, b"\xff" * 24, b"\0\0\x80\x7f" * 6, b"\0\0\x80\x3f" * 6):
        notes: list[str] = []
        keys = config_from_gguf(
            metadata,
            tensors,
            notes=notes,
            read_tensor=None if values is None else lambda _, x=values: x,
        )
        assert "rope_scaling" not in keys
        assert notes == [
            "rope_freqs.weight holds rotary factors that could not be read or are of an unknown kind: no scaling is assumed"
        ]


def test_gguf_metadata_are_used_as_config(tmp_path: Path) -> None:
    path = write_small(tmp_path)
    config = with_gguf_keys(find_config(str(path)))
    assert (
        config.keys is not None and config.keys["hidden_size"] == 32 and config.source == str(path)
    )
    (tmp_path / "empty").mkdir()
    empty = find_config(str(tmp_path / "empty"))
    assert (empty.keys, empty.source, empty.has_checkpoint) == (
        None,
        str(tmp_path / "empty"),
        False,
    )


@pytest.mark.parametrize(
    ("factor", "high", "original"),
    [(8.0, 4.0, 8192), (32.0, 4.0, 8192), (8.0, 2.0, 4096), (4.0, 8.0, 1024)],
)
def test_llama3_scaling_is_fitted_to_its_divisors(
    factor: float, high: float, original: int
) -> None:
    rope = Llama3Rope(
        theta=5e5,
        dim=128,
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=high,
        original_context=original,
    )
    divisors = struct.unpack("<64f", struct.pack("<64f", *rope.divisors()))
    assert fit_llama3(divisors, rope.theta, rope.dim) == rope


def test_other_divisors_are_not_fitted_as_llama3() -> None:
    for divisors in (
        [],
        [1.0] * 64,
        [8.0] * 64,
        [1.0] * 63 + [float("inf")],
        [float("nan")] * 64,
        list(range(1, 65)),
    ):
        assert fit_llama3(divisors, 5e5, 128) is None


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_shortest_decimal_is_the_same_float32(value: float) -> None:
    assert struct.pack("<f", shortest_float32(value)) == struct.pack("<f", value)
    ours, theirs = (
        len(Decimal(repr(x)).normalize().as_tuple().digits)
        for x in (shortest_float32(value), value)
    )
    assert ours <= theirs


@pytest.mark.slow
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_metadata_gives_a_config_or_a_refusal(data: st.DataObject) -> None:
    entry = CONVERTED[data.draw(st.sampled_from(sorted(CONVERTED)))]
    arch = entry["arch"]
    odd = st.one_of(
        st.none(), st.booleans(), st.integers(0, 2**64 - 1), st.integers(-(2**63), 9), st.floats(), st.text(max_size=9),
        st.lists(st.one_of(st.integers(0, 99), st.floats(), st.text(max_size=3), st.booleans()), max_size=9).map(_as_array),
        st.builds(Array, st.just("UINT32"), st.integers(0, 2**40), st.just(0), st.just(0), st.just("<"), st.just(())),
    )  # fmt: skip
    keys = data.draw(
        st.dictionaries(st.sampled_from(sorted(entry["keys"])), odd, min_size=1, max_size=4)
    )
    metadata = {
        "general.architecture": arch,
        **{f"{arch}.{key}": _as_array(x) for key, x in (entry["keys"] | keys).items()},
    }
    tensors = [
        Tensor(name, "F32", tuple(shape), 0, 0, 4) for name, shape in tensor_shapes(entry).items()
    ]
    values = data.draw(st.binary(min_size=400, max_size=400))
    try:
        config = Config(
            config_from_gguf(metadata, tensors, notes=[], read_tensor=lambda x: values[: x.bytes])
        )
        find_family(config.data["model_type"])(config)
    except (LlamathError, ArithmeticError):
        pass
