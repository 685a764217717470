"""Attention to selected keys in blocks of queries, and what indexers get from a backward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import llamath
from llamath.torch import build, initialize, selected_keys
from llamath.torch.forward_context import BlockLimits
from support.reference_data import tiny_configs

INDEXED = [
    x
    for x in tiny_configs()
    if x.id.startswith(
        ("axk2-", "deepseek_v32-", "deepseek_v4-", "glm_moe_dsa-", "hy_v4-", "qwen4_exp-")
    )
]
SMALL = BlockLimits(max_scores=300, min_queries=2, key_fraction=4)


@pytest.mark.parametrize("config", INDEXED)
@torch.inference_mode()
def test_blocks_of_queries_change_nothing(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = initialize(build(llamath.load(config).tree), std=0.3)
    ids, cache = torch.arange(2 * 40).reshape(2, 40) * 7 % 97, module.new_cache(0)
    whole = module(ids)
    monkeypatch.setattr(selected_keys, "_MAX_SCORES", 500)
    cache.reserve(ids.shape[1], None)
    machine = module.machine(ids, cache)
    machine.block_limits = SMALL
    torch.testing.assert_close(module.compute(machine, ids), whole, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("config", INDEXED)
def test_indexers_get_no_gradient_and_all_others_do(config: dict[str, Any]) -> None:
    module = initialize(build(llamath.load(config).tree), std=0.3)
    module(torch.arange(40)[None] * 7 % 97).square().sum().backward()
    for name, x in module.named_parameters():
        if ".experts." not in name and ".table." not in name:  # some are not chosen
            assert (x.grad is None) == (".indexer." in name), name
