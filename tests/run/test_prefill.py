"""Long prompts in chunks and mask blocks match the recurrence's equations, full masks, and transformers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kv_cache import attention, model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from llamath.core.attention_facts import AttentionWindow
from llamath.core.positions import Alibi
from llamath.torch.attention import ScoreParams, attend
from llamath.torch.forward_context import (
    AttentionPattern,
    BlockLimits,
    ForwardContext,
    Mask,
    MaskBlock,
)
from llamath.torch.kv_cache import Cache
from llamath.torch.linear_recurrence import RecurrenceInputs, linear_recurrence
from support.reference_data import tiny_configs
from support.transformers_pair import logits, logits_match, pair

SMALL_BLOCKS, ONE_BLOCK = BlockLimits(max_scores=1, min_queries=7), BlockLimits(min_queries=1 << 30)
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def random(*shape: int) -> Tensor:
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64
    )


def sequential_recurrence(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, s: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    q, k = (x.repeat_interleave(v.shape[2] // k.shape[2], 2) for x in (q, k))
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        u = (
            v[:, t]
            if s is None
            else s[:, t, :, None] * (v[:, t] - torch.einsum("bhnm,bhn->bhm", state, k[:, t]))
        )
        state = state + k[:, t, :, :, None] * u[:, :, None]
        outputs.append(torch.einsum("bhnm,bhn->bhm", state, q[:, t]))
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1, 30.0])
@given(tokens=st.integers(1, 14), chunk=st.sampled_from([1, 3, 4, 64]))
@settings(max_examples=12, deadline=None)
def test_chunked_recurrence_matches_the_equations(
    delta: bool, decay: float, tokens: int, chunk: int
) -> None:
    q, k, v = random(2, tokens, 2, 5), random(2, tokens, 2, 5), random(2, tokens, 6, 3)
    k = k / k.norm(dim=-1, keepdim=True)
    g, s = -decay * random(2, tokens, 6).abs(), random(2, tokens, 6).sigmoid() if delta else None
    state = random(2, 6, 5, 3)
    actual = linear_recurrence(RecurrenceInputs.from_heads(q, k, v, g, s), state, chunk_size=chunk)
    for x, expected in zip(actual, sequential_recurrence(q, k, v, g, s, state), strict=True):
        torch.testing.assert_close(x, expected, **EXACT)


def test_long_decay_loses_no_precision() -> None:
    q, k, v, g = (
        random(1, 64, 1, 8),
        random(1, 64, 1, 8),
        random(1, 64, 1, 8),
        -random(1, 64, 1).abs(),
    )
    g[:, ::3] *= 40
    expected, _ = linear_recurrence(RecurrenceInputs.from_heads(q, k, v, g), None)
    actual, _ = linear_recurrence(
        RecurrenceInputs.from_heads(q.float(), k.float(), v.float(), g.float()), None
    )
    assert float((actual - expected).abs().max() / expected.abs().max()) < 1e-6


PATTERNS = {
    "all": AttentionPattern(AttentionWindow()),
    "window": AttentionPattern(AttentionWindow(size=5)),
    "chunk": AttentionPattern(AttentionWindow(chunk=6)),
    "bidirectional window": AttentionPattern(AttentionWindow(size=5, causal=False)),
    "bidirectional": AttentionPattern(AttentionWindow(causal=False)),
    "alibi": AttentionPattern(AttentionWindow(size=9), Alibi(), 4),
}


def forward_context(
    new: int, past: int, pads: list[int] | None, limits: BlockLimits
) -> ForwardContext:
    cache = Cache([], 0)
    cache.length, cache.padding = past, None if pads is None else torch.tensor(pads)
    return ForwardContext(torch.zeros(2, new, dtype=torch.long), cache, limits)


@st.composite
def masks(draw: st.DrawFn, pattern: AttentionPattern) -> Mask:
    new, past = draw(st.integers(2, 30)), draw(st.integers(0, 12)) if pattern.window.causal else 0
    pads = draw(st.none() | st.lists(st.integers(0, past + new - 1), min_size=2, max_size=2))
    capacity = (
        0 if not past else past + new if pattern.span is None else min(past + new, pattern.span)
    )
    limits = BlockLimits(max_scores=1, min_queries=draw(st.integers(1, 8)))
    return forward_context(new, past, pads, limits).mask(pattern, capacity)


def dense_mask(block: MaskBlock, tokens: int) -> Tensor:
    """Return the mask of a block of all queries as a tensor."""
    return torch.ones(tokens, tokens, dtype=torch.bool).tril() if block.mask is None else block.mask


@pytest.mark.parametrize("name", PATTERNS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_mask_blocks_make_up_the_mask(name: str, data: st.DataObject) -> None:
    mask = data.draw(masks(PATTERNS[name]))
    blocks = list(mask.blocks(4))
    whole = dense_mask(mask.full_block, blocks[-1].queries.stop)
    masked_out: Any = -torch.inf if whole.is_floating_point() else False
    assembled = torch.full_like(whole, masked_out)
    for block in blocks:
        assembled[..., block.queries, block.keys] = block.mask
    assert torch.equal(assembled, whole)


SCORE_PARAMS = {
    "plain": ScoreParams(0.4),
    "capped": ScoreParams(0.4, softcap=2.0),
    "sinks": ScoreParams(0.4, sinks=torch.tensor([0.3, -1.0, 2.0, 0.0])),
}


@pytest.mark.parametrize("kind", SCORE_PARAMS)
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("pads", [None, [0, 11]])
def test_blockwise_attention_matches_full_attention(
    kind: str, name: str, pads: list[int] | None
) -> None:
    q, k, v = random(2, 4, 29, 6), random(2, 2, 29, 6), random(2, 2, 29, 3)
    actual, expected = (
        attend(
            q,
            k,
            v,
            forward_context(29, 0, pads, limits).mask(PATTERNS[name], 0),
            SCORE_PARAMS[kind],
        )
        for limits in (SMALL_BLOCKS, ONE_BLOCK)
    )
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


class LargestTensor(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        result = out if isinstance(out, (tuple, list)) else [out]
        self.elements = max([self.elements, *(x.numel() for x in result if isinstance(x, Tensor))])
        return out


@pytest.mark.parametrize(
    "facts",
    [{"window": AttentionWindow(size=32)}, {"window": AttentionWindow(chunk=32)}, {}],
    ids=["window", "chunk", "all"],
)
@torch.no_grad()
def test_no_tensor_has_all_queries_times_keys(facts: dict[str, Any]) -> None:
    module, tokens = model(attention(**facts)), 2048
    with LargestTensor() as largest:
        module(torch.zeros(1, tokens, dtype=torch.long))
    assert largest.elements < tokens * 32 * 4 * 2  # a window's scores in all heads, twice


FAMILIES = "qwen3_next qwen3_5 nemotron_h mamba falcon_mamba gemma2 gemma3 gpt_oss llama4 falcon deepseek_v3".split()
PLAIN = [x for x in tiny_configs() if str(x.id).removesuffix("-plain") in FAMILIES]


@pytest.mark.transformers
@pytest.mark.parametrize("config", PLAIN)
@torch.no_grad()
def test_long_prompts_match_transformers(config: dict[str, Any]) -> None:
    both = pair(config)
    ids = both.ids(300, rows=2)  # blocks of 128 queries
    end = ids.shape[1]
    whole, pads = logits(both.theirs, ids), torch.tensor([0, 9])
    assert logits_match(both.ours(ids), whole, both, ids)
    cache, cuts = both.ours.new_cache(end), [0, end // 2 + 3, end - 2, end - 1, end]
    assert logits_match(
        torch.cat([both.ours(ids[:, a:b], cache) for a, b in itertools.pairwise(cuts)], 1),
        whole,
        both,
        ids,
    )
    cache = both.ours.new_cache(end)
    padded = torch.cat(
        [both.ours(ids[:, a:b], cache, None if a else pads) for a, b in itertools.pairwise(cuts)], 1
    )
    assert logits_match(padded[:1], whole[:1], both, ids)
    assert logits_match(padded[1:, 9:], logits(both.theirs, ids[1:, 9:]), both, ids)
