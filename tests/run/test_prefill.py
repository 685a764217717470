"""Long prompts in chunks and mask blocks match the recurrence's equations, full masks, and transformers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kv_cache import attention, model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from llamath.core.forward_pass import AttentionWindow
from llamath.core.positions import Alibi
from llamath.run import forward_context as step
from llamath.run.attention import ScoreParams, attend
from llamath.run.forward_context import AttentionPattern, ForwardContext, Mask
from llamath.run.kv_cache import Cache
from llamath.run.recurrent_mixers import RecurrenceInputs, linear_recurrence
from support.reference_data import tiny_configs
from support.transformers_pair import logits, logits_match, pair

EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, x in (("MAX_SCORES", 1), ("MIN_QUERIES", 7)):
            patch.setattr(step, name, x)
        yield


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def by_the_equations(q: Tensor, k: Tensor, v: Tensor, g: Tensor, s: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
    q, k = (x.repeat_interleave(v.shape[2] // k.shape[2], 2) for x in (q, k))
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        u = v[:, t] if s is None else s[:, t, :, None] * (v[:, t] - torch.einsum("bhnm,bhn->bhm", state, k[:, t]))
        state = state + k[:, t, :, :, None] * u[:, :, None]
        outputs.append(torch.einsum("bhnm,bhn->bhm", state, q[:, t]))
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1, 30.0])
@given(tokens=st.integers(1, 14), chunk=st.sampled_from([1, 3, 4, 64]))
@settings(max_examples=12, deadline=None)
def test_chunked_recurrence_matches_the_equations(delta: bool, decay: float, tokens: int, chunk: int) -> None:
    q, k, v = random(2, tokens, 2, 5), random(2, tokens, 2, 5), random(2, tokens, 6, 3)
    k = k / k.norm(dim=-1, keepdim=True)
    g, s = -decay * random(2, tokens, 6).abs(), random(2, tokens, 6).sigmoid() if delta else None
    state = random(2, 6, 5, 3)
    actual = linear_recurrence(RecurrenceInputs.from_heads(q, k, v, g, s), state, chunk_size=chunk)
    for x, expected in zip(actual, by_the_equations(q, k, v, g, s, state), strict=True):
        torch.testing.assert_close(x, expected, **EXACT)


def test_long_decay_loses_no_precision() -> None:
    q, k, v, g = random(1, 64, 1, 8), random(1, 64, 1, 8), random(1, 64, 1, 8), -random(1, 64, 1).abs()
    g[:, ::3] *= 40
    expected, _ = linear_recurrence(RecurrenceInputs.from_heads(q, k, v, g), None)
    actual, _ = linear_recurrence(RecurrenceInputs.from_heads(q.float(), k.float(), v.float(), g.float()), None)
    assert float((actual - expected).abs().max() / expected.abs().max()) < 1e-6


SIGHTS = {
    "all": AttentionPattern(AttentionWindow()),
    "window": AttentionPattern(AttentionWindow(size=5)),
    "chunk": AttentionPattern(AttentionWindow(chunk=6)),
    "both ways": AttentionPattern(AttentionWindow(size=5, causal=False)),
    "blind to nothing": AttentionPattern(AttentionWindow(causal=False)),
    "alibi": AttentionPattern(AttentionWindow(size=9), Alibi(), 4),
}


def steps(new: int, past: int, pads: list[int] | None) -> ForwardContext:
    cache = Cache([], 0)
    cache.length, cache.padding = past, None if pads is None else torch.tensor(pads)
    return ForwardContext(torch.zeros(2, new, dtype=torch.long), cache)


@st.composite
def masks(draw: st.DrawFn, sight: AttentionPattern) -> Mask:
    new, past = draw(st.integers(2, 30)), draw(st.integers(0, 12)) if sight.window.causal else 0
    pads = draw(st.none() | st.lists(st.integers(0, past + new - 1), min_size=2, max_size=2))
    room = 0 if not past else past + new if sight.span is None else min(past + new, sight.span)
    return steps(new, past, pads).mask(sight, room)


@pytest.mark.parametrize("name", SIGHTS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_mask_blocks_make_up_the_mask(name: str, data: st.DataObject) -> None:
    mask = data.draw(masks(SIGHTS[name]))
    whole = mask._block(slice(None), slice(None)).mask  # not the triangle, where that is all
    assert whole is not None
    nothing: Any = -torch.inf if whole.is_floating_point() else False
    assembled = torch.full_like(whole, nothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "MAX_SCORES", 1)
        patch.setattr(step, "MIN_QUERIES", data.draw(st.integers(1, 8)))
        for part in mask.blocks(4):
            assembled[..., part.queries, part.keys] = part.mask
    assert torch.equal(assembled, whole)


WEIGHINGS = {
    "plain": ScoreParams(0.4),
    "capped": ScoreParams(0.4, softcap=2.0),
    "sinks": ScoreParams(0.4, sinks=torch.tensor([0.3, -1.0, 2.0, 0.0])),
}


@pytest.mark.parametrize("kind", WEIGHINGS)
@pytest.mark.parametrize("name", SIGHTS)
@pytest.mark.parametrize("pads", [None, [0, 11]])
def test_blockwise_attention_matches_full_attention(kind: str, name: str, pads: list[int] | None, small: None) -> None:
    scores, mask = WEIGHINGS[kind], steps(29, 0, pads).mask(SIGHTS[name], 0)
    q, k, v = random(2, 4, 29, 6), random(2, 2, 29, 6), random(2, 2, 29, 3)
    actual = attend(q, k, v, mask, scores)
    mask.fits_one_block = lambda *_: True  # type: ignore[method-assign]
    torch.testing.assert_close(actual, attend(q, k, v, mask, scores), rtol=1e-5, atol=1e-6)


class Largest(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        result = out if isinstance(out, (tuple, list)) else [out]
        self.numbers = max([self.numbers, *(x.numel() for x in result if isinstance(x, Tensor))])
        return out


@pytest.mark.parametrize(
    "facts", [{"window": AttentionWindow(size=32)}, {"window": AttentionWindow(chunk=32)}, {}], ids=["window", "chunk", "all"]
)
@torch.no_grad()
def test_no_tensor_has_all_queries_times_keys(facts: dict[str, Any]) -> None:
    module, tokens = model(attention(**facts)), 2048
    with Largest() as largest:
        module(torch.zeros(1, tokens, dtype=torch.long))
    assert largest.numbers < tokens * 32 * 4 * 2  # a window's scores in all heads, twice


FAMILIES = ("qwen3_next", "qwen3_5", "nemotron_h", "gemma2", "gemma3", "gpt_oss", "llama4", "falcon", "deepseek_v3")
PLAIN = [x for x in tiny_configs() if str(x.id).removesuffix("-plain") in FAMILIES]


@pytest.mark.transformers
@pytest.mark.parametrize("config", PLAIN)
@torch.no_grad()
def test_long_prompts_match_transformers(config: dict[str, Any], small: None) -> None:
    both = pair(config)
    ids = both.ids(150, rows=2)
    end = ids.shape[1]
    whole, pads = logits(both.theirs, ids), torch.tensor([0, 9])
    assert logits_match(both.ours(ids), whole, both, ids)
    cache, cuts = both.ours.new_cache(end), [0, end // 2 + 3, end - 2, end - 1, end]
    assert logits_match(torch.cat([both.ours(ids[:, a:b], cache) for a, b in itertools.pairwise(cuts)], 1), whole, both, ids)
    cache = both.ours.new_cache(end)
    padded = torch.cat([both.ours(ids[:, a:b], cache, None if a else pads) for a, b in itertools.pairwise(cuts)], 1)
    assert logits_match(padded[:1], whole[:1], both, ids)
    assert logits_match(padded[1:, 9:], logits(both.theirs, ids[1:, 9:]), both, ids)
