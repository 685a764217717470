"""A program is not made of a tree whose parts contradict each other, even if nothing refused the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import llamath
from llamath.core.blocks import Attention, Decoder, MoE
from llamath.core.constructors import linear, rms
from llamath.core.positions import Rope
from llamath.core.tree import fold_blocks
from llamath.native.lowering import lower
from llamath.utils.errors import ImpossibleModel

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def force(block: object, **values: Any) -> None:
    """Change a block in place, past its checks."""
    vars(block).update(values)


def attention(tree: Decoder) -> Attention:
    found = tree.layers[0].child("attn")
    assert isinstance(found, Attention)
    return found


def experts(tree: Decoder) -> MoE:
    return next(x.block for x in fold_blocks(tree) if isinstance(x.block, MoE))


def unchecked_rope(**values: Any) -> Rope:
    rope = Rope(theta=1e4, dim=8)
    force(rope, **values)
    return rope


CHANGES: dict[str, tuple[dict[str, Any], Callable[[Decoder], None]]] = {
    "more channels rotate than a head has": (
        LLAMA,
        lambda x: force(attention(x), rope=unchecked_rope(dim=64)),
    ),
    "an odd head": (LLAMA, lambda x: force(attention(x), rope=unchecked_rope(dim=9))),
    "no channel rotates": (LLAMA, lambda x: force(attention(x), rope=unchecked_rope(dim=0))),
    "key heads that do not divide": (
        LLAMA,
        lambda x: force(attention(x), k=linear(3 * 8, 32), v=linear(3 * 8, 32)),
    ),
    "other heads of values than of keys": (LLAMA, lambda x: force(attention(x), v=linear(8, 32))),
    "a narrow output projection": (LLAMA, lambda x: force(attention(x), o=linear(32, 24))),
    "a wide query": (LLAMA, lambda x: force(attention(x), q=linear(32, 40))),
    "a norm of another width": (LLAMA, lambda x: force(x.layers[0], attn_norm=rms(40, 1e-5))),
    "a head of another width": (LLAMA, lambda x: force(x, head=linear(99, 40))),
    "another residual width": (
        LLAMA,
        lambda x: force(x.layers[0].child("mlp"), down=linear(40, 56)),
    ),
    "more experts chosen than there are": (MIXTRAL, lambda x: force(experts(x), top_k=9)),
    "a router of more experts": (MIXTRAL, lambda x: force(experts(x), router=linear(7, 32))),
}


def test_contradictory_trees_are_not_lowered() -> None:
    for name, (config, change) in CHANGES.items():
        tree = llamath.load(config).tree
        lower(tree)
        change(tree)
        with pytest.raises(ImpossibleModel) as caught:
            lower(tree)
        assert caught.value.hint, name
