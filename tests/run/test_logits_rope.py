"""Every rotary scaling, below and beyond the original context, matches transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llamath.core.positions import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    QwenDynamicRope,
    Rope,
    YarnRope,
)
from support.transformers_pair import logits, logits_match, pair, relative_difference

pytestmark = pytest.mark.transformers

LLAMA = {
    "model_type": "llama",
    "vocab_size": 99,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
}
SCALINGS: dict[str, tuple[type[Rope], dict[str, Any]]] = {
    "none": (Rope, {"rope_type": "default"}),
    "linear": (LinearRope, {"rope_type": "linear", "factor": 4.0}),
    "llama3": (
        Llama3Rope,
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "yarn": (YarnRope, YARN),
    "yarn, both mscales": (YarnRope, YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}),
    "yarn, its factor said": (YarnRope, YARN | {"attention_factor": 0.8}),
    "yarn, other betas, not truncated": (
        YarnRope,
        YARN | {"beta_fast": 8.0, "beta_slow": 0.5, "truncate": False},
    ),
    "longrope": (LongRope, LONG | {"original_max_position_embeddings": 32}),
    "longrope, its factor said": (
        LongRope,
        LONG | {"original_max_position_embeddings": 32, "attention_factor": 1.3},
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("tokens", [24, 60])
def test_logits_past_the_original_context(name: str, tokens: int) -> None:
    kind, scaling = SCALINGS[name]
    both = pair(LLAMA | {"rope_scaling": {"rope_theta": 500.0} | scaling})
    assert type(both.ours.layers[0].attn.spec.rope) is kind
    ids = both.ids(tokens)
    with torch.no_grad():
        assert logits_match(both.ours(ids), logits(both.theirs, ids), both, ids)


@pytest.mark.parametrize("tokens", [24, 60, 90])
def test_dynamic_rope_depends_on_the_length(tokens: int) -> None:
    both = pair(
        LLAMA
        | {"max_position_embeddings": 32, "rope_scaling": {"rope_type": "dynamic", "factor": 3.0}}
    )
    assert type(both.ours.layers[0].attn.spec.rope) is DynamicRope
    ids = both.ids(tokens)
    logits(
        both.theirs, ids[:, :9]
    )  # transformers keeps the longest length so far until it sees a short one
    with torch.no_grad():
        assert relative_difference(both.ours(ids), logits(both.theirs, ids)) < 1e-5


@torch.no_grad()
def test_cached_dynamic_rope_matches_transformers() -> None:
    both = pair(
        LLAMA
        | {"max_position_embeddings": 32, "rope_scaling": {"rope_type": "dynamic", "factor": 3.0}}
    )
    ids, cache = both.ids(60), both.ours.new_cache(60)
    logits(both.theirs, ids[:, :9])
    first = both.theirs(ids[:, :40], use_cache=True)
    actual, expected = [both.ours(ids[:, :40], cache)], [first.logits]
    for t in range(40, 60):
        expected.append(
            both.theirs(
                ids[:, t : t + 1], past_key_values=first.past_key_values, use_cache=True
            ).logits
        )
        actual.append(both.ours(ids[:, t : t + 1], cache))
    assert relative_difference(torch.cat(actual, 1), torch.cat(expected, 1)) < 1e-5


@torch.no_grad()
def test_padding_does_not_count_as_length() -> None:
    both = pair(LLAMA | {"rope_scaling": LONG | {"original_max_position_embeddings": 32}})
    ids, pads = both.ids(40), torch.tensor([0, 20])  # one row past the original context, one not
    padded = both.ours(ids, None, pads)
    for row, pad in enumerate(pads):
        assert logits_match(
            padded[row : row + 1, pad:], logits(both.theirs, ids[row : row + 1, pad:]), both, ids
        )


def test_qwen_keeps_the_angles_of_its_prompt() -> None:
    ropes = (
        QwenDynamicRope(theta=1e4, dim=8, original_context=32),
        DynamicRope(theta=1e4, dim=8, original_context=32, factor=2.0),
        Rope(theta=1e4, dim=8),
    )
    assert [x.angle_length(50, 40) for x in ropes] == [40, 50, 0]


@torch.no_grad()
def test_longrope_switch_is_detected() -> None:
    ours = pair(LLAMA | {"rope_scaling": LONG | {"original_max_position_embeddings": 32}}).ours
    cache = ours.new_cache(64)
    assert not ours.crosses_long_rope_switch(cache, 40)  # nothing is remembered yet
    ours(torch.ones(2, 30, dtype=torch.long), cache, torch.tensor([0, 10]))
    assert [ours.crosses_long_rope_switch(cache, n) for n in (2, 3, 12, 13)] == [
        False,
        True,
        True,
        True,
    ]
    ours(torch.ones(2, 13, dtype=torch.long), cache)
    assert not ours.crosses_long_rope_switch(cache, 20)


@torch.no_grad()
def test_odd_rotary_widths_are_rounded_up() -> None:
    moe = {"num_local_experts": 4, "num_experts_per_tok": 2}
    for config in (
        LLAMA | moe | {"model_type": "minimax_m2", "head_dim": 16, "rotary_dim": 7},
        LLAMA
        | {"model_type": "glm4", "head_dim": 8, "partial_rotary_factor": 0.4, "pad_token_id": 0},
        LLAMA | {"model_type": "phi3", "partial_rotary_factor": 0.6, "pad_token_id": 0},
    ):
        both = pair(config)
        assert both.ours.layers[0].attn.spec.rope.dim % 2
        ids = both.ids(24)
        assert logits_match(both.ours(ids), logits(both.theirs, ids), both, ids), config[
            "model_type"
        ]
