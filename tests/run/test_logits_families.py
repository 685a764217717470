"""Logits match transformers for every family and its options: in one pass, with a cache, and in padded batches."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from llamath.core.positions import LongRope
from llamath.utils.errors import LlamathError
from support.reference_data import tiny_configs
from support.transformers_pair import is_bidirectional, logits, logits_match, pair

pytestmark = pytest.mark.transformers
LLAMA = {
    "model_type": "llama",
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
LONG = 44  # beyond every window of the tiny configurations


@pytest.fixture(params=tiny_configs(computed=True))
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


@torch.no_grad()
def test_logits_match_transformers(config: dict[str, Any]) -> None:
    both = pair(config)
    ids = both.ids(LONG)
    assert logits_match(both.ours(ids), logits(both.theirs, ids), both, ids)


def rope(layer: Any) -> object:
    return getattr(getattr(layer.attn, "spec", None), "rope", None)


@torch.no_grad()
def test_cached_passes_match_one_pass(config: dict[str, Any]) -> None:
    both = pair(config)
    ids = both.ids(LONG)
    end = ids.shape[1]
    if is_bidirectional(config):
        with pytest.raises(LlamathError, match="bidirectional"):
            both.ours.new_cache(end)
        return
    cache = both.ours.new_cache(end)
    ropes = [x for x in map(rope, both.ours.layers) if isinstance(x, LongRope) and x.original_context < end]
    first = max((x.original_context + 1 for x in ropes), default=5)  # no reading on over the border between its two sets of angles
    cuts = [0, first, first + 2, *range(first + 3, min(first + 12, end - 6)), end - 4, *range(end - 3, end + 1)]
    results = [both.ours(ids[:, a:b], cache) for a, b in itertools.pairwise(cuts)]
    assert logits_match(torch.cat(results, 1), both.ours(ids), both, ids)
    with pytest.raises(LlamathError, match=r"room for \d+ tokens"):
        both.ours(ids[:, :1], cache)


@torch.no_grad()
def test_padding_does_not_change_a_row(config: dict[str, Any]) -> None:
    both = pair(config)
    ids = both.ids(LONG, rows=3)
    end, pads = ids.shape[1], torch.tensor([0, 3, 17])
    alone = [logits(both.theirs, row[None, pad:]) for row, pad in zip(ids, pads, strict=True)]
    if is_bidirectional(config):
        actual = both.ours(ids, None, pads)
    else:
        cache = both.ours.new_cache(end)
        actual = torch.cat(
            [both.ours(ids[:, : end - 3], cache, pads), *(both.ours(ids[:, t : t + 1], cache) for t in range(end - 3, end))], 1
        )
    for row, pad, expected in zip(actual, pads, alone, strict=True):
        assert logits_match(row[None, pad:], expected, both, ids)


@torch.no_grad()
def test_last_only_returns_the_last_logits() -> None:
    both = pair(LLAMA)
    ids = both.ids(9)
    assert logits_match(both.ours(ids, None, None, True), both.ours(ids)[:, -1:], both, ids)
