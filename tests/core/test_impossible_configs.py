"""Configs whose sizes contradict each other are refused where the model is made, and by nothing else than an error of this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import llamath
from llamath.catalog import presets
from llamath.core.blocks import Attention, AttentionBase, MoE
from llamath.core.positions import LongRope, Rope
from llamath.core.tree import Block, fold_blocks
from llamath.generation.rope_frequencies import rope_frequencies
from llamath.utils.errors import ConfigError, LlamathError
from support.reference_data import multimodal_configs, tiny_configs, unproven_configs

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [1.0] * 4,
    "factor": 2.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
MLA = {
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 12,
    "kv_lora_rank": 14,
    "q_lora_rank": 18,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 20,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 4,
    **MLA,
}
MIMO = {
    "model_type": "mimo_v2_flash",
    "head_dim": 12,
    "v_head_dim": 10,
    "moe_intermediate_size": 20,
    "n_routed_experts": 6,
}
M2 = {"model_type": "minimax_m2", "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 3}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("5 channels of each head rotate, expected an even number", {"head_dim": 5}),
    ("1 channels of each head rotate, expected an even number", {"head_dim": 1}),
    (
        "32 channels of each head rotate, expected at most the 16 of a head",
        {**M2, "rotary_dim": 32},
    ),
    ("expected a number from 1 to 65,536", {**M2, "rotary_dim": 2**31}),
    (
        "16 channels of each head rotate",
        {"model_type": "glm4", "head_dim": 8, "partial_rotary_factor": 2.0},
    ),
    (
        "0 channels of each head rotate",
        {"model_type": "glm4", "head_dim": 8, "partial_rotary_factor": 0.0},
    ),
    ("12 channels of each head rotate", {"model_type": "phi", "partial_rotary_factor": 1.5}),
    (
        "7 channels of each head rotate, expected an even number",
        {"model_type": "phi", "partial_rotary_factor": 0.9},
    ),
    ("24 channels of each head rotate", {"model_type": "gpt_neox", "rotary_pct": 3.0}),
    (
        "9 channels of each head rotate",
        {"model_type": "gptj", "n_embd": 32, "n_layer": 2, "n_head": 2, "rotary_dim": 9},
    ),
    ("5 channels of each head rotate", {**DEEPSEEK, "qk_rope_head_dim": 5, "topk_group": 2}),
    ("9 of 4 groups of 2 are kept", {**DEEPSEEK, "topk_group": 9}),
    ("3 groups do not divide 8 experts", {**DEEPSEEK, "n_group": 3, "topk_group": 1}),
    (
        "4 experts are chosen for a token, of only 2 in the 1 of 4 groups that are kept",
        {**DEEPSEEK, "topk_group": 1, "num_experts_per_tok": 4},
    ),
    ("scoring_func is the unknown 'tanh'", {**DEEPSEEK, "topk_group": 2, "scoring_func": "tanh"}),
    (
        "100 experts are chosen",
        {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 100},
    ),
    (
        "6 key/value heads do not divide 3",
        {**MIMO, "num_attention_heads": 3, "num_key_value_heads": 3},
    ),
    (
        "8 key/value heads do not divide 12",
        {**MIMO, "num_attention_heads": 12, "swa_num_key_value_heads": 8},
    ),
    ("short_factor has 1 numbers, expected 4", {"rope_scaling": {**LONG, "short_factor": [1.0]}}),
    (
        "long_factor has 100 numbers, expected 4",
        {"rope_scaling": {**LONG, "long_factor": [1.0] * 100}},
    ),
    (
        "long_factor of the rotary embedding is 0.0",
        {"rope_scaling": {**LONG, "long_factor": [0.0] * 4}},
    ),
    (
        "original_max_position_embeddings is 1",
        {"rope_scaling": {**LONG, "original_max_position_embeddings": 1}},
    ),
    (
        "original_max_position_embeddings of the rotary embedding is 0",
        {"rope_scaling": {**YARN, "original_max_position_embeddings": 0}},
    ),
    ("beta_fast of the rotary embedding is -1", {"rope_scaling": {**YARN, "beta_fast": -1}}),
    ("factor of the rotary embedding is 0", {"rope_scaling": {**YARN, "factor": 0}}),
    ("rope_theta is 1", {"rope_scaling": YARN, "rope_theta": 1.0}),
    ("rope_theta of the rotary embedding is 1e-300", {"rope_theta": 1e-300}),
    (
        "low_freq_factor",
        {
            "rope_scaling": {
                **YARN,
                "rope_type": "llama3",
                "low_freq_factor": 0,
                "high_freq_factor": 4,
            }
        },
    ),
]


def test_contradictory_sizes_are_refused_by_name() -> None:
    for message, changes in REFUSED:
        with pytest.raises(ConfigError) as caught:
            llamath.load({**LLAMA, **changes})
        assert message in str(caught.value), (message, changes)
        assert str(caught.value).startswith("the given keys: "), changes
        assert caught.value.hint, changes


def test_refusal_of_a_text_model_names_its_config() -> None:
    config = next(x.values[0] for x in multimodal_configs() if str(x.id).startswith("llava-"))
    with pytest.raises(ConfigError, match=r"channels of each head rotate"):
        llamath.load({**config, "text_config": {**config["text_config"], "head_dim": 5}})


def check(tree: Block) -> None:
    """Check what engines rely on, apart from the tree's own checks."""
    for _, block, _, _ in fold_blocks(tree):
        if isinstance(block, AttentionBase) and block.rope is not None:
            check_rope(block.rope, int(getattr(block, block.rotary_part)))
        if isinstance(block, Attention):
            assert block.heads > 0 and block.kv_heads > 0 and block.heads % block.kv_heads == 0
        if isinstance(block, MoE):
            assert 0 < block.top_k <= block.router.weight.shape[0]


def check_rope(rope: Rope, head_dim: int) -> None:
    if type(rope).__name__ in ("AxialRope", "SplitAxialRope"):
        assert 2 * rope.num_pairs <= head_dim
        return
    lengths = (1, 100_000) if not isinstance(rope, LongRope) else (1, rope.original_context + 1)
    for length in lengths:
        found = rope_frequencies(rope, length)
        assert len(found.angles) == rope.num_pairs > 0
        assert 2 * len(found.angles) <= head_dim
        assert all(isinstance(x, float) for x in (*found.angles, found.factor))


VALUES = (
    0,
    -1,
    3,
    5,
    7,
    33,
    2**31,
    2**62,
    10**400,
    0.0,
    -1.0,
    0.3,
    1.5,
    3.0,
    1e-300,
    1e300,
    None,
    True,
    "x",
    [],
    [1.0],
    {},
    [-1, 3],
)
WORDS = (
    "rope",
    "rotary",
    "theta",
    "head",
    "factor",
    "beta",
    "original",
    "section",
    "group",
    "top",
    "experts",
    "layer",
    "window",
    "alpha",
)
ADDED = (
    "head_dim",
    "partial_rotary_factor",
    "num_key_value_heads",
    "rope_theta",
    "num_hidden_layers",
)
SCALINGS: tuple[dict[str, Any], ...] = (
    *(
        {"rope_type": kind, "factor": x}
        for kind in ("linear", "dynamic")
        for x in (0, -1, 0.5, 1e300)
    ),
    *(
        {**YARN, key: x}
        for key in ("factor", "beta_fast", "beta_slow", "original_max_position_embeddings")
        for x in (0, -1, 10**400)
    ),
    *(
        {**LONG, key: x}
        for key in ("short_factor", "long_factor")
        for x in ([], [1.0], [0.0] * 4, [1.0] * 99)
    ),
    *({"rope_type": "proportional", "partial_rotary_factor": x} for x in (0, 2, 0.3, -1)),
)


def places(config: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the place of each key that has one of the words."""
    for key, value in config.items():
        if any(x in key for x in WORDS):
            yield (*at, key)
        if isinstance(value, dict):
            yield from places(value, (*at, key))


def changed(config: dict[str, Any], at: tuple[str, ...], value: object) -> dict[str, Any]:
    first, *rest = at
    return {**config, first: changed(config.get(first, {}), tuple(rest), value) if rest else value}


def mutations(config: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Yield the config with one key changed to one of the values, in turn; `number` is where the turn begins."""
    text = ("text_config",) if isinstance(config.get("text_config"), dict) else ()
    for i, at in enumerate((*places(config), *((*text, x) for x in ADDED)), number):
        yield changed(config, at, VALUES[5 * i % len(VALUES)])
    key = ("rope_scaling", "rope_parameters")[number % 2]
    for i in range(4):
        plain = changed(
            changed(config, (*text, "rope_scaling"), None), (*text, "rope_parameters"), None
        )
        yield changed(plain, (*text, key), SCALINGS[(number + 7 * i) % len(SCALINGS)])


@pytest.mark.slow
def test_mutated_configs_are_refused_or_have_valid_trees(request: pytest.FixtureRequest) -> None:
    """Of every second configuration, and with `--all` of each."""
    tried = refused = 0
    configs = (*tiny_configs(), *unproven_configs(), *multimodal_configs())
    step = 1 if request.config.getoption("--all") else 2
    for number, x in list(enumerate(configs))[::step]:
        for config in mutations(x.values[0], number):
            tried += 1
            try:
                tree = llamath.load(config).tree
            except LlamathError:
                refused += 1
                continue
            except Exception as error:
                raise AssertionError(f"{x.id}: {type(error).__name__} of {config}") from error
            check(tree)
    assert tried > 5000 // step
    assert tried / 4 < refused < tried


@pytest.mark.slow
def test_every_preset_and_tiny_config_is_valid() -> None:
    for config in (
        *(x.config for x in presets()),
        *(x.values[0] for x in (*tiny_configs(), *unproven_configs(), *multimodal_configs())),
    ):
        check(llamath.load(dict(config)).tree)
