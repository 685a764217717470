"""Caches keep all that attention still needs: any split into passes, with any window, gives the logits of one pass."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llamath.core.attention_facts import AttentionWindow, Heads, ScoreTransform
from llamath.core.blocks import Layer
from llamath.core.constructors import decoder, gqa, rms, swiglu
from llamath.core.expr import Expr
from llamath.core.latent_attention import LatentSizes, mla
from llamath.core.mixers import DeltaHeads, gated_delta, short_conv
from llamath.core.positions import Alibi, Rope
from llamath.core.tree import repeat, sequence
from llamath.torch import Decoder, build, initialize
from llamath.torch.kv_cache import KVCache, key_positions
from llamath.utils.errors import LlamathError
from support.live_bytes import LiveBytes

HEADS = Heads(Expr("H", 4), Expr("K", 2), Expr("h", 6))
NORM = rms(Expr("d", 16), 1e-6)


def model(*mixers: Any) -> Decoder:
    """A small model with one of these mixers per layer."""
    layers = [
        Layer(attn_norm=NORM, attn=x, mlp_norm=NORM, mlp=swiglu(Expr("d", 16), Expr("F", 20)))
        for x in mixers
    ]
    return initialize(
        build(decoder(Expr("V", 30), Expr("d", 16), sequence(layers), NORM, tied=False)), std=0.3
    )


def attention(**facts: Any) -> Any:
    return gqa(Expr("d", 16), HEADS, **({"rope": Rope(theta=100.0, dim=6)} | facts))


LATENT = mla(
    Expr("d", 16),
    LatentSizes(HEADS.num_heads, Expr("n", 6), Expr("p", 4), Expr("v", 5), None, Expr("r", 7)),
    rope=Rope(theta=100.0, dim=4),
)
DELTA = gated_delta(
    Expr("d", 16),
    DeltaHeads(Expr("Hk", 2), Expr("hk", 4), Expr("Hv", 4), Expr("hv", 3)),
    3,
    1e-6,
    "silu",
)
SLOPES, CAPPED = ScoreTransform(alibi=Alibi()), ScoreTransform(softcap=2.0)
KINDS = {
    **{
        f"window {n}": model(attention(window=AttentionWindow(size=n)), attention())
        for n in (1, 2, 3, 5, 8)
    },
    **{
        f"chunk {n}": model(attention(window=AttentionWindow(chunk=n)), attention(rope=None))
        for n in (1, 3, 4)
    },
    "alibi": model(
        attention(rope=None, score_transform=SLOPES),
        attention(rope=None, score_transform=SLOPES, window=AttentionWindow(size=4)),
    ),
    "soft caps in a window": model(
        attention(score_transform=CAPPED, window=AttentionWindow(size=3)),
        attention(score_transform=CAPPED),
    ),
    "latent": model(LATENT, LATENT),
    "states": model(
        DELTA, short_conv(Expr("d", 16), 3, True), attention(window=AttentionWindow(size=4))
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
@torch.no_grad()
def test_any_split_into_passes_matches_one_pass(kind: str, data: st.DataObject) -> None:
    module, end = KINDS[kind], data.draw(st.integers(2, 20), "tokens")
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, end - 1)), "cuts")), end]
    pads = torch.tensor(
        data.draw(st.lists(st.integers(0, end - 1), min_size=2, max_size=2), "padding")
    )
    ids = torch.randint(0, 30, (2, end), generator=torch.Generator().manual_seed(end))
    cache = module.new_cache(data.draw(st.integers(end, end + 5), "room"))
    actual = torch.cat(
        [module(ids[:, a:b], cache, None if a else pads) for a, b in itertools.pairwise(cuts)], 1
    )
    for row, pad in enumerate(pads):
        expected = module(ids[row : row + 1, pad:])
        assert torch.allclose(actual[row : row + 1, pad:], expected, atol=1e-4, rtol=1e-4)


@given(room=st.integers(1, 6), cuts=st.lists(st.integers(1, 7), min_size=1, max_size=8))
def test_ring_buffer_holds_the_last_tokens(room: int, cuts: list[int]) -> None:
    ring, past = KVCache(room), 0
    for new in cuts:
        (cached,) = ring.update((torch.arange(past, past + new).float().view(1, 1, new, 1),), past)
        assert cached.flatten().tolist() == key_positions(new, past, room).tolist()
        past += new
        assert set(range(max(0, past - room), past)) <= set(
            ring.buffers[0].flatten().int().tolist()
        )
        assert set(cached.flatten().int().tolist()) >= set(range(max(0, past - room), past))


def test_window_limits_the_cache() -> None:
    module = model(
        attention(window=AttentionWindow(size=5)),
        attention(),
        attention(window=AttentionWindow(chunk=3)),
    )
    cache = module.new_cache(12)
    module(torch.zeros(1, 9, dtype=torch.long), cache)
    assert [x.buffers[0].shape[2] for x in cache.layers] == [5, 12, 3]
    assert cache.length == 9


def test_full_cache_is_rejected_unchanged() -> None:
    module = model(attention())
    cache = module.new_cache(8)
    module(torch.zeros(1, 6, dtype=torch.long), cache)
    with pytest.raises(LlamathError, match="room for 8 tokens, found 9"):
        module(torch.zeros(1, 3, dtype=torch.long), cache)
    assert module(torch.zeros(1, 2, dtype=torch.long), cache).shape[1] == 2


def test_shared_kv_layers_use_one_cache() -> None:
    lender = attention()
    borrower = lender.replace(k=None, v=None, kv_layer=0)
    module = model(lender, borrower)
    cache = module.new_cache(6)
    module(torch.zeros(1, 4, dtype=torch.long), cache)
    assert [type(x).__name__ for x in cache.layers] == ["KVCache", "NoneType"]
    assert cache.nbytes == 2 * 2 * 6 * 6 * 4


def test_repeated_block_becomes_separate_modules() -> None:
    tree = decoder(
        Expr("V", 30),
        Expr("d", 16),
        repeat(Layer(attn_norm=NORM, attn=attention()), 3),
        NORM,
        tied=False,
    )
    layers = build(tree).layers
    assert len({id(x.attn.q.weight) for x in layers}) == 3


@torch.no_grad()
def test_keys_and_values_are_freed_after_their_layer() -> None:
    peaks = []
    for layers in (2, 6):
        module, ids = model(*[attention()] * layers), torch.zeros(2, 64, dtype=torch.long)
        with LiveBytes((*module.parameters(), ids)) as live:
            module(ids)
        peaks.append(live.most)
    assert peaks[0] == peaks[1]
