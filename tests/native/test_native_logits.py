"""The native engine computes what the torch machine computes, for the tiny models of every family."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llamath.core.mixers import Mamba, MambaHead
from llamath.core.tree import fold_blocks
from llamath.native.lowering import NotExpressible, lower
from llamath.run import Decoder
from support.native_models import native_logits, native_model, random_module
from support.reference_data import tiny_configs, unproven_configs

ON_TORCH = {
    *("axk2-plain", "axk2-groups-tied", "deepseek_v32-plain", "deepseek_v32-yarn-mtp-tied", "glm_moe_dsa-plain", "glm_moe_dsa-shared"),
    *("glm_moe_dsa-pattern-tied", "glm_moe_dsa-every-third", "hy_v4-plain", "hy_v4-types-tied", "minimax_m3-plain"),
    *("minimax_m3-MiniMax's keys, tied", "deepseek_v4-plain", "deepseek_v4-yarn-tied"),  # attention to selected keys
    *("glm5_next-plain", "glm5_next-shared indexers, pools of 3, grouped, tied"),
    *("qwen4_exp-plain", "qwen4_exp-tables of n-grams, tied, sigmoid gates"),
    *("inkling-plain", "inkling-Thinking Machines' keys, scaled, padded"),  # a bias for each distance
    *("minimax-plain", "minimax-factors, layers listed, tied, long heads", "minimax-MiniMax's keys"),  # fixed decays
    "falcon-1B: serial, multi-head, alibi",  # biases rounded to bfloat16
    *("gemma3-both ways", "gemma4-biased, untied, both ways"),  # attention to later tokens
}
"""Models that the native engine does not express."""
LIMITS = {"gemma4-per-layer inputs, borrowed keys, wide": 5e-5, "zamba-plain": 2e-3}
"""Limits of models whose logits are ill-conditioned: in float64, changes of the weights by half a float32 ulp change these by 3e-5 and 4e-4.

Each operation rounds, and in another order on another processor.
"""
CONFIGS = [*tiny_configs(computed=True), *unproven_configs(computed=True)]
PROMPT = 11


def random_ids(vocab: int, count: int = PROMPT) -> list[int]:
    """Token ids."""
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(0)).tolist()


def has_float32_states(module: Decoder) -> bool:
    """Whether torch computes states in float32 in any dtype."""
    return any(isinstance(x.block, Mamba | MambaHead) for x in fold_blocks(module.spec))


def distance(x: torch.Tensor, y: torch.Tensor) -> float:
    """The largest difference, relative to the largest logit."""
    return float((x - y).abs().max() / y.abs().max())


@pytest.mark.parametrize("config", CONFIGS)
def test_float32_logits_equal_those_of_torch(config: dict[str, Any], request: pytest.FixtureRequest) -> None:
    module = random_module(config)
    if request.node.callspec.id in ON_TORCH:
        with pytest.raises(NotExpressible):
            lower(module.spec)
        return
    model = native_model(module)
    ids = random_ids(model.vocab)
    with torch.inference_mode():
        expected = module(torch.tensor([ids]))[0]
        exact = expected if has_float32_states(module) else module.double()(torch.tensor([ids]))[0]
    limit = (1e-5 if exact is not expected else 2e-5) + 5 * distance(expected, exact)  # rounding differs with the order of sums
    limit = LIMITS.get(request.node.callspec.id, limit)
    for chunk in (None, 4, 1):
        assert distance(native_logits(model, ids, chunk), exact) < limit, chunk


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_moe", "deepseek_v3", "qwen3_next", "mamba2", "gpt_oss", "phi3"])
def test_bfloat16_logits_are_within_rounding(family: str) -> None:
    config = next(x for x in CONFIGS if str(x.id).startswith(f"{family}-")).values[0]
    module = random_module(config, torch.bfloat16)
    model = native_model(module)
    ids = random_ids(model.vocab)
    got = native_logits(model, ids)
    with torch.inference_mode():
        rounded = module(torch.tensor([ids]))[0].float()
        exact = module.float()(torch.tensor([ids]))[0]
    assert distance(got, exact) < max(0.02, 1.5 * distance(rounded, exact))


def test_every_path_computes_the_same_logits() -> None:
    config = next(x for x in CONFIGS if str(x.id).startswith("llama-")).values[0]
    module = random_module(config)
    model = native_model(module)
    ids = random_ids(model.vocab)
    with torch.inference_mode():
        expected = module(torch.tensor([ids]))[0]
    library, before = model.library, model.path
    paths = [library.path_name(i) for i in range(library.num_paths()) if library.path_supported(i)]
    assert before.encode() in paths
    try:
        for path in paths:
            assert library.set_path(path) == 0
            assert distance(native_logits(model, ids), expected) < 1e-5, path
    finally:
        library.set_path(before.encode())


def test_threads_do_not_change_the_result() -> None:
    config = next(x for x in CONFIGS if str(x.id).startswith("qwen3_moe-")).values[0]
    module = random_module(config)
    one, two = native_model(module), native_model(module, threads=2)
    ids = random_ids(one.vocab)
    assert distance(native_logits(two, ids), native_logits(one, ids)) < 1e-6
