"""The KV cache: its size against the caches that transformers allocates, and against published sizes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.size.memory.cache_bytes import KV_DTYPES, KVCacheSize, kv_cache_size
from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.utils.errors import LlamathError
from support.reference_data import renamed_configs, tiny_configs

TOKENS = 40
UNFOLDED = "falcon"
"""transformers repeats grouped keys and values for all heads of the newer Falcon before it caches them."""


@cache
def configs_by_family() -> dict[str, list[Any]]:
    """Return the tiny configs of each family that is computed, and each renamed one."""
    found: dict[str, list[Any]] = {}
    for x in tiny_configs(computed=True):
        found.setdefault(x.id.partition("-")[0], []).append(x)
    return found | {x.id: [x] for x in renamed_configs()}


def distinct_configs(family: str) -> list[Any]:
    """Return the configs of a family with different kinds of caches, or one."""
    found = {}
    for x in configs_by_family()[family]:
        label = x.id.partition("-")[2]
        kinds = tuple(
            (part.spec.kind, part.growing)
            for part in kv_cache_size(llamath.load(x.values[0]).tree, TOKENS).parts
        )
        exception = x.id.startswith(("falcon-", "gemma3-both"))
        found.setdefault(kinds if len(kinds) > 1 else label if exception else "", x)
    return list(found.values())


def cache_nbytes(cache: Any) -> int:
    """Return the bytes of every floating-point tensor in a cache of transformers."""
    import torch

    storages: dict[int, int] = {}

    def look(x: Any) -> None:
        if isinstance(x, torch.Tensor):
            storages[id(x)] = x.numel() * x.element_size() if x.is_floating_point() else 0
        elif isinstance(x, dict):
            list(map(look, x.values()))
        elif isinstance(x, (list, tuple)):
            list(map(look, x))
        elif hasattr(x, "__dict__") and not isinstance(x, type):
            look(vars(x))

    look(cache.layers)
    return sum(storages.values())


def allocated_bytes(config: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes of the static and the dynamic cache after a prompt, in fp32."""
    import torch
    import transformers

    hf_config = transformers.AutoConfig.for_model(**config)
    model = (
        transformers.AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager")
        .float()
        .eval()
    )
    ids = torch.arange(TOKENS)[None] % hf_config.vocab_size
    fixed = transformers.StaticCache(config=hf_config, max_cache_len=TOKENS)
    with torch.no_grad():
        name = "cache_params" if "mamba" in config["model_type"] else "past_key_values"
        model(ids, use_cache=True, **{name: fixed})
        return cache_nbytes(fixed), cache_nbytes(model(ids, use_cache=True)[name])


def check_windows(config: dict[str, Any]) -> None:
    """Compare the keys of the last tokens and of windows with the dynamic cache of DeepSeek-V4, which has no static one."""
    import torch
    import transformers

    hf_config = transformers.AutoConfig.for_model(**config)
    model = (
        transformers.AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager")
        .float()
        .eval()
    )
    with torch.no_grad():
        layers = model(
            torch.arange(TOKENS)[None] % hf_config.vocab_size, use_cache=True
        ).past_key_values.layers
    near = sum(x.keys.nbytes for x in layers)
    far = sum(x.nbytes for layer in layers for x in getattr(layer, "compressed_kv", {}).values())
    measured = kv_cache_size(llamath.load(config).tree, TOKENS, dtype="fp32")
    windowed = [x for x in measured.parts if x.spec.window is not None]
    assert near == sum(
        x.growing - x.per_token for x in windowed
    )  # transformers keeps one token less
    assert far == sum(x.growing for x in measured.parts if x.spec.every > 1)


def minimax_cache_bytes(config: dict[str, Any]) -> int:
    """The bytes of the class's own cache: keys, values, and the states of linear attention."""
    import torch
    import transformers

    model = (
        transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
        .float()
        .eval()
    )
    with torch.no_grad():
        cache = model(
            torch.arange(TOKENS)[None] % config["vocab_size"], use_cache=True
        ).past_key_values
    states = sum(x.nbytes for x in cache.linear_cache if isinstance(x, torch.Tensor))
    return int(
        states
        + sum(
            x.keys.nbytes + x.values.nbytes
            for x in cache.layers
            if getattr(x, "keys", None) is not None
        )
    )


@pytest.mark.transformers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", configs_by_family())
def test_cache_size_matches_transformers(family: str) -> None:
    for x in distinct_configs(family):
        try:
            check_cache(x.values[0])
        except AssertionError as error:
            error.add_note(x.id)
            raise


def check_cache(config: dict[str, Any]) -> None:
    model = llamath.load(config)
    if config.get("layer_types") is None and config["model_type"] == "granitemoehybrid":
        return  # transformers has no static cache for this family without attention
    if config["model_type"] == "openai-gpt":
        return  # its class has no cache
    if config["model_type"] == "deepseek_v4":
        check_windows(config)
        return
    if config["model_type"] == "minimax":
        assert minimax_cache_bytes(config) == kv_cache_size(model.tree, TOKENS, dtype="fp32").bytes
        return
    measured, (fixed, grown) = (
        kv_cache_size(model.tree, TOKENS, dtype="fp32"),
        allocated_bytes(config),
    )
    if (
        "indexer_compress_ratio" in config
    ):  # transformers caches what the keys of all tokens are computed from, not the keys of windows
        parts = [
            x
            for x in measured.parts
            if x.spec.every > 1 or x.spec.kind == "tokens of the next window"
        ]
        ids = (
            4 * (config.get("ngram_size", 1) - 1) * len(config.get("ple_layer_ids", []))
        )  # not in the sizes of that cache
        indexed = sum(int(x.spec.layers) for x in parts if x.spec.every > 1)
        other = measured.bytes - sum(x.growing + x.fixed for x in parts) - ids
        assert fixed == grown == other + 4 * TOKENS * config["indexer_head_dim"] * indexed
        return
    if model.family.name == UNFOLDED and fixed != measured.bytes:
        assert (
            fixed
            == grown
            == measured.bytes * config["num_attention_heads"] // config["num_kv_heads"]
        )
        return
    if config["model_type"] == "gpt_neo":  # transformers masks its windows, but caches every token
        measured = kv_cache_size(
            llamath.load(config | {"window_size": TOKENS}).tree, TOKENS, dtype="fp32"
        )
        assert fixed == grown == measured.bytes
        return
    if config.get("use_bidirectional_attention") == "all":
        return  # a window to both sides, as encoders have: nothing is generated with it
    assert fixed == measured.bytes == 4 * measured.elements
    short = [x for x in measured.parts if x.spec.window is not None and x.spec.window < TOKENS]
    if not config.get("use_bidirectional_attention"):
        assert grown == measured.bytes - sum(
            x.per_token for x in short
        )  # the last but one token of a window and fewer


def cache_size(
    slug: str, context: int, batch: int = 1, dtype: str = "bf16", **changes: Any
) -> KVCacheSize:
    return kv_cache_size(llamath.load(slug, changes=changes).tree, context, batch, dtype)


def test_llama_70b_cache_has_its_published_sizes() -> None:
    assert cache_size("llama-3.1-70b", 131_072).kv_per_token == 327_680
    assert cache_size("llama-3.1-70b", 131_072).bytes == 42_949_672_960 == 40 * 2**30
    assert round(cache_size("llama-3.1-70b", 128_000).bytes / 2**30, 2) == 39.06
    assert cache_size("llama-3.1-70b", 131_072, num_key_value_heads=64).bytes == 320 * 2**30


def test_windows_fill_up_and_states_do_not_grow() -> None:
    near = cache_size("gemma-3-27b", 8192)
    assert [(x.spec.window, int(x.spec.layers)) for x in near.parts] == [(1024, 52), (None, 10)]
    assert near.bytes == 2 * 2 * 16 * 128 * (52 * 1024 + 10 * 8192)
    assert (near.kv_per_token, near.kv_per_later_token) == (
        2 * 2 * 16 * 128 * 62,
        2 * 2 * 16 * 128 * 10,
    )
    assert cache_size("gemma-3-27b", 512).kv_per_later_token == near.kv_per_token
    hybrid = cache_size("qwen3-next-80b-a3b", 8192, batch=3)
    assert (
        hybrid.state
        == cache_size("qwen3-next-80b-a3b", 262_144, batch=3).state
        == 3 * 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
    )
    assert [x.spec.window for x in cache_size("llama-4-scout", 1).parts] == [8192, None]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("q8_0", 34 / 32), ("q4_0", 18 / 32), ("q5_1", 24 / 32), ("fp8", 1), ("int8", 1), ("fp32", 4)],
)
def test_quantized_caches_count_their_blocks(dtype: str, size: float) -> None:
    assert cache_size("llama-3.1-8b", 1000, 2, dtype).bytes == 2 * 1000 * 2 * 32 * 1024 * size


def test_a_cached_row_takes_whole_blocks() -> None:
    """A latent row of 576 elements is 18 blocks of 32; a q4_0 block of llama.cpp has 18 bytes."""
    assert cache_size("deepseek-v3", 10, dtype="q4_0").bytes == 61 * 10 * 18 * 18


@given(
    config=st.sampled_from([x.values[0] for x in tiny_configs(computed=True)]),
    context=st.integers(1, 10**6),
    batch=st.integers(1, 1000),
    dtype=st.sampled_from(list(KV_DTYPES)),
)
@settings(deadline=None)
@pytest.mark.slow
def test_cache_grows_with_tokens_and_sequences(
    config: dict[str, Any], context: int, batch: int, dtype: str
) -> None:
    tree = llamath.load(config).tree
    sizes, one = kv_cache_size(tree, context, batch, dtype), kv_cache_size(tree, context, 1, dtype)
    assert sizes.bytes == batch * one.bytes and sizes.elements == batch * one.elements
    assert one.bytes - one.state <= context * one.kv_per_token
    if all(x.spec.every == 1 for x in one.parts):
        assert (
            kv_cache_size(tree, context + 1, 1, dtype).bytes - one.bytes == one.kv_per_later_token
        )
    if DTYPES[dtype].block == 1:
        assert sizes.bytes >= sizes.elements


@pytest.mark.parametrize("name", ["q6_k", "int4", "", "bf15"])
def test_unknown_cache_dtype_is_rejected_with_a_hint(name: str) -> None:
    with pytest.raises(LlamathError) as problem:
        cache_size("llama-3-8b", 1, dtype=name)
    assert problem.value.hint
