"""Softmax attention: grouped queries with all their variants, and DeepSeek's latent attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import handle_torch_function, has_torch_function

from ..core import blocks
from ..core.errors import LlamathError
from ..core.positions import Rope
from .basic_layers import Linear, Norm
from .forward_context import AttentionPattern, ForwardContext, Mask, MaskBlock
from .kv_cache import KVCache, LayerCache
from .module import Module, local_tensor, module_for
from .rope import RopeCosSin, apply_rope

_MIN_QUERIES_FOR_PADDED_VALUES = 64
"""From this many queries on, values are padded to the length of keys, so that a kernel applies that does not store the scores."""


class ScoreParams(NamedTuple):
    """How attention scores are computed from q · k."""

    scale: float
    softcap: float | None = None  # scores become cap · tanh(scores / cap)
    sinks: Tensor | None = None  # one logit per head that joins the softmax without a value

    @property
    def sdpa_compatible(self) -> bool:
        """Whether `scaled_dot_product_attention` computes these scores."""
        return self.softcap is None and self.sinks is None


class Mixer(Module):
    """Base of the modules that mix tokens; `forward(x, ctx, i)` computes layer i's."""

    @property
    def rotary_embedding(self) -> Rope | None:
        """The rotary embedding of queries and keys, if any."""
        return None

    def new_cache(self, capacity: int) -> LayerCache:
        """Return an empty cache for at most `capacity` tokens."""
        raise NotImplementedError


@module_for(blocks.Attention)
class Attention(Mixer):
    """softmax(q kᵀ · scale) v in each head (Vaswani et al. 2017, arXiv:1706.03762), H / K query heads to a key/value head."""

    spec: blocks.Attention
    q: Linear
    k: Linear | None
    v: Linear | None
    o: Linear
    q_norm: Norm | Sequence[Norm] | None
    k_norm: Norm | Sequence[Norm] | None
    v_norm: Norm | None
    gate: Linear | None
    sinks: Parameter | None

    @property
    def rotary_embedding(self) -> Rope | None:
        return self.spec.rope

    @cached_property
    def pattern(self) -> AttentionPattern:
        """The keys that a query attends to."""
        alibi = self.spec.score_transform.alibi
        return AttentionPattern(self.spec.window, alibi, self.spec.heads if alibi else 0)

    def new_cache(self, capacity: int) -> LayerCache:
        """A KV cache as long as the attention window; None where the layer reads another layer's keys and values."""
        if capacity and not self.spec.window.causal:
            raise LlamathError("attention in this model is bidirectional, so it cannot generate with a KV cache")
        return None if self.k is None else KVCache(min(capacity, self.pattern.span or capacity))

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        s = self.spec
        cache = ctx.cache.layers[i if s.kv_layer is None else s.kv_layer]
        assert isinstance(cache, KVCache)
        q = self._norm_and_rotate(self._heads(self.q, x), self.q_norm, ctx.rope_cos_sin(s.rope))  # (B, T, H, h)
        if s.score_transform.temperature is not None:
            q = q * ctx.temperature_scale(s.score_transform.temperature).to(q.dtype)
        k, v = cache.visible if self.k is None else self._update_cache(x, cache, ctx)  # (B, K, S, h)
        sinks = None if self.sinks is None else local_tensor(self.sinks)
        scale = s.head_dim**-0.5 if s.score_transform.scale is None else s.score_transform.scale
        params = ScoreParams(scale, s.score_transform.softcap, sinks)
        y = attend(q.transpose(1, 2), k, v, ctx.mask(self.pattern, cache.capacity), params)
        y = y.transpose(1, 2).flatten(2)  # (B, T, H·h)
        return self.o(y if self.gate is None else y * torch.sigmoid(self.gate(x)))

    def _update_cache(self, x: Tensor, cache: KVCache, ctx: ForwardContext) -> tuple[Tensor, Tensor]:
        """Store the keys and values of these tokens; return all that a query attends to."""
        assert self.k is not None
        k = self._heads(self.k, x)
        v = k if self.v is None else self._heads(self.v, x)
        k, v = self._norm_and_rotate(k, self.k_norm, ctx.rope_cos_sin(self.spec.rope)), self._apply_head_norm(v, self.v_norm)
        k, v = cache.update((k.transpose(1, 2), v.transpose(1, 2)), ctx.past_length)
        return k, v

    def _heads(self, linear: Linear, x: Tensor) -> Tensor:
        """`(B, T, d)` → `(B, T, heads, h)`."""
        return self._clip(linear(x), after_norm=False).unflatten(-1, (-1, self.spec.head_dim))

    def _norm_and_rotate(self, y: Tensor, norm: Norm | Sequence[Norm] | None, rotation: RopeCosSin | None) -> Tensor:
        """Apply the heads' norm and the rotary embedding in the family's order."""
        if self.spec.qk_preprocess.after_rope:
            return self._apply_head_norm(apply_rope(y, rotation), norm)
        return apply_rope(self._apply_head_norm(y, norm), rotation)

    def _apply_head_norm(self, y: Tensor, norm: Norm | Sequence[Norm] | None) -> Tensor:
        """Normalize each head, or all heads as one vector, or each head with its own norm."""
        if isinstance(norm, Norm):
            y = norm(y.flatten(2)).view(y.shape) if self.spec.qk_preprocess.across_heads else norm(y)
        elif norm is not None:
            y = torch.stack([own(head) for own, head in zip(norm, y.unbind(2), strict=True)], 2)
        return self._clip(y, after_norm=True)

    def _clip(self, y: Tensor, after_norm: bool) -> Tensor:
        clip = self.spec.qk_preprocess.clip
        return y if clip is None or clip.after_norm != after_norm else y.clamp(-clip.limit, clip.limit)


@module_for(blocks.LatentAttention)
class LatentAttention(Mixer):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): the cache holds one small vector per token for all heads.

    A pass over several tokens expands it to keys and values; a pass over one token absorbs the expansion into the query.
    """

    spec: blocks.LatentAttention
    q: Linear | None
    q_down: Linear
    q_norm: Norm
    q_up: Linear
    kv_down: Linear
    kv_norm: Norm
    k_up: Linear
    v_up: Linear
    o: Linear

    @property
    def rotary_embedding(self) -> Rope | None:
        return self.spec.rope

    def new_cache(self, capacity: int) -> LayerCache:
        """A cache of latent vectors, each followed by the rotated key that all heads share."""
        return KVCache(capacity)

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        s = self.spec
        cache = ctx.cache.layers[i]
        assert isinstance(cache, KVCache)
        q = self.q_up(self.q_norm(self.q_down(x))) if self.q is None else self.q(x)
        q = q.unflatten(-1, (-1, s.nope_dim + s.rope_dim))  # (B, T, H, n + p)
        if s.score_transform.temperature is not None:
            q = q * ctx.temperature_scale(s.score_transform.temperature).to(q.dtype)
        q_nope, q_rope = q.split((s.nope_dim, s.rope_dim), -1)
        q_rope = apply_rope(q_rope, ctx.rope_cos_sin(s.rope))
        latents = self._update_cache(x, cache, ctx)  # (B, 1, S, r + p)
        mask = ctx.mask(AttentionPattern(s.window), cache.capacity)
        attend_latents = self._attend_absorbed if ctx.new_length == 1 else self._attend_expanded
        y = attend_latents(q_nope.transpose(1, 2), q_rope.transpose(1, 2), latents, mask)  # (B, H, T, v)
        return self.o(y.transpose(1, 2).flatten(2))

    def _update_cache(self, x: Tensor, cache: KVCache, ctx: ForwardContext) -> Tensor:
        """Store the latent vector and rotated key of each token, concatenated; return those of all tokens."""
        latent, key = self.kv_down(x)[:, :, None].split((self.spec.kv_lora_rank, self.spec.rope_dim), -1)
        both = torch.cat((self.kv_norm(latent), apply_rope(key, ctx.rope_cos_sin(self.spec.rope))), -1)
        (latents,) = cache.update((both.transpose(1, 2),), ctx.past_length)
        return latents

    def _attend_expanded(self, q_nope: Tensor, q_rope: Tensor, latents: Tensor, mask: Mask) -> Tensor:
        latent, key = latents[:, 0, :, : self.spec.kv_lora_rank], latents[..., self.spec.kv_lora_rank :]
        k = self.k_up(latent).unflatten(-1, (-1, self.spec.nope_dim)).transpose(1, 2)  # (B, H, S, n)
        v = self.v_up(latent).unflatten(-1, (-1, self.spec.v_dim)).transpose(1, 2)  # (B, H, S, v)
        k = torch.cat((k, key.expand(-1, k.shape[1], -1, -1)), -1)
        return attend(torch.cat((q_nope, q_rope), -1), k, v, mask, self._score_params)

    def _attend_absorbed(self, q_nope: Tensor, q_rope: Tensor, latents: Tensor, mask: Mask) -> Tensor:
        q_latent = q_nope @ local_tensor(self.k_up.weight).unflatten(0, (-1, self.spec.nope_dim))  # (B, H, 1, r)
        y = attend(torch.cat((q_latent, q_rope), -1), latents, latents[..., : self.spec.kv_lora_rank], mask, self._score_params)
        return y @ local_tensor(self.v_up.weight).unflatten(0, (-1, self.spec.v_dim)).mT

    @property
    def _score_params(self) -> ScoreParams:
        s = self.spec
        return ScoreParams((s.nope_dim + s.rope_dim) ** -0.5 if s.score_transform.scale is None else s.score_transform.scale)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, params: ScoreParams) -> Tensor:
    """softmax(q kᵀ · scale, masked) v: q `(B, H, T, h)`, k and v `(B, K, S, h)` → `(B, H, T, h)`."""
    if has_torch_function((q, k, v)):  # a ShapeRecorder is active
        out: Tensor = handle_torch_function(attend, (q, k, v), q, k, v, mask, params)
        return out
    heads = q.shape[0] * q.shape[1]
    if mask.fits_one_block(heads, params.sdpa_compatible):
        return _attend_block(q, k, v, mask.full_block, params)
    return torch.cat([_attend_block(q[:, :, x.queries], k[:, :, x.keys], v[:, :, x.keys], x, params) for x in mask.blocks(heads)], 2)


def _attend_block(q: Tensor, k: Tensor, v: Tensor, block: MaskBlock, params: ScoreParams) -> Tensor:
    """`attend` for the queries and keys of one mask block."""
    if params.sdpa_compatible and (block.mask is None or block.mask.dtype in (torch.bool, q.dtype)):
        return _sdpa(q, k, v, block, params.scale)
    probs = attention_probs(q, k, block, params).to(v.dtype).unflatten(1, (k.shape[1], -1))
    return (probs @ v[:, :, None]).flatten(1, 2)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, block: MaskBlock, scale: float) -> Tensor:
    """`_attend_block` with torch's kernels; for many queries, values are padded to the key length to avoid storing the scores."""
    grouped, v_dim = q.shape[1] != k.shape[1], v.shape[-1]
    if grouped and q.shape[2] == 1 and (block.mask is None or block.mask.dim() < 3 or block.mask.shape[-3] == 1):
        group = q.unflatten(1, (k.shape[1], -1)).squeeze(3)  # the heads of a group as its queries: (B, K, H / K, h)
        return F.scaled_dot_product_attention(group, k, v, block.mask, scale=scale).flatten(1, 2).unsqueeze(2)
    if q.shape[2] == 1 and q.dtype == torch.bfloat16 and q.device.type == "cpu":
        return _sdpa_in_float32(q, k, v, block, scale)
    if q.shape[2] >= _MIN_QUERIES_FOR_PADDED_VALUES and v_dim < q.shape[-1]:
        v = F.pad(v, (0, q.shape[-1] - v_dim))
    return F.scaled_dot_product_attention(q, k, v, block.mask, is_causal=block.causal, scale=scale, enable_gqa=grouped)[..., :v_dim]


def _sdpa_in_float32(q: Tensor, k: Tensor, v: Tensor, block: MaskBlock, scale: float) -> Tensor:
    """`_sdpa` of a single query in float32, which takes a CPU a third of the time; row by row, so that the copies stay in cache."""
    rows = []
    for i in range(len(q)):
        query, keys, values = (x[i : i + 1].float() for x in (q, k, v))
        mask = block.mask
        mask = mask if mask is None or mask.dim() < 4 or len(mask) == 1 else mask[i : i + 1]
        mask = mask if mask is None or mask.dtype == torch.bool else mask.float()
        rows.append(F.scaled_dot_product_attention(query, keys, values, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]))
    return torch.cat(rows).to(q.dtype)


def attention_probs(q: Tensor, k: Tensor, block: MaskBlock, params: ScoreParams) -> Tensor:
    """Return the attention weights of each query, `(B, H, T, S)`, in float32."""
    scores = (q.unflatten(1, (k.shape[1], -1)) @ k[:, :, None].mT).flatten(1, 2).float() * params.scale
    if params.softcap is not None:
        scores = params.softcap * torch.tanh(scores / params.softcap)
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril() if block.causal else block.mask
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    if params.sinks is None:
        return scores.softmax(-1)
    sink = params.sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
