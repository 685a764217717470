"""Logits match transformers for every family and its options: in one pass, with a cache, and in padded batches."""

from __future__ import annotations

import pytest
import torch

from support.transformers_pair import logits_match, pair

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


@torch.no_grad()
def test_last_only_returns_the_last_logits() -> None:
    both = pair(LLAMA)
    ids = both.ids(9)
    assert logits_match(both.ours(ids, None, None, True), both.ours(ids)[:, -1:], both, ids)
