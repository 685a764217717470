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
from .basic_layers import Linear, Norm
from .forward_context import AttentionPattern, ForwardContext, Mask, MaskBlock
from .kv_cache import KVCache, LayerCache
from .module import Module, local_tensor, module_for
from .rope import RopeCosSin, apply_rope

MIN_QUERIES_FOR_PADDED_VALUES = 64
"""Queries from which on scores that are not kept are worth longer values."""


class ScoreParams(NamedTuple):
    """How queries weigh keys."""

    scale: float
    softcap: float | None = None  # scores become cap · tanh(scores / cap)
    sinks: Tensor | None = None  # a logit for each head that takes a share and gives nothing

    @property
    def sdpa_compatible(self) -> bool:
        """Whether torch's kernels weigh so."""
        return self.softcap is None and self.sinks is None


class Mixer(Module):
    """Base of what mixes tokens: `forward(x, step, i)` is layer i's, and `memory(room)` is what it remembers by."""

    def new_cache(self, room: int) -> LayerCache:
        """A new memory for at most `room` tokens."""
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

    @cached_property
    def pattern(self) -> AttentionPattern:
        """What a query may look at."""
        return AttentionPattern(
            self.spec.window, self.spec.score_transform.alibi, self.spec.heads if self.spec.score_transform.alibi else 0
        )

    def new_cache(self, room: int) -> LayerCache:
        """As far back as the queries see; none where another layer's keys are read."""
        if room and not self.spec.window.causal:
            raise LlamathError("this model looks ahead as well as back, so it cannot read on from what it remembers")
        return None if self.k is None else KVCache(min(room, self.pattern.span or room))

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        s = self.spec
        memory = step.cache.layers[i if s.kv_layer is None else s.kv_layer]
        assert isinstance(memory, KVCache)
        q = self._norm_and_rotate(self._heads(self.q, x), self.q_norm, step.rope_cos_sin(s.rope))  # (B, T, H, h)
        if s.score_transform.temperature is not None:
            q = q * step.temperature_scale(s.score_transform.temperature).to(q.dtype)
        k, v = memory.visible if self.k is None else self._update_cache(x, memory, step)  # (B, K, S, h)
        sinks = None if self.sinks is None else local_tensor(self.sinks)
        scores = ScoreParams(
            s.head_dim**-0.5 if s.score_transform.scale is None else s.score_transform.scale, s.score_transform.softcap, sinks
        )
        y = attend(q.transpose(1, 2), k, v, step.mask(self.pattern, memory.capacity), scores)
        y = y.transpose(1, 2).flatten(2)  # (B, T, H·h)
        return self.o(y if self.gate is None else y * torch.sigmoid(self.gate(x)))

    def _update_cache(self, x: Tensor, memory: KVCache, step: ForwardContext) -> tuple[Tensor, Tensor]:
        """Keys and values of these tokens, remembered; and of those before, as far as a query sees."""
        assert self.k is not None
        k = self._heads(self.k, x)
        v = k if self.v is None else self._heads(self.v, x)
        k, v = self._norm_and_rotate(k, self.k_norm, step.rope_cos_sin(self.spec.rope)), self._apply_head_norm(v, self.v_norm)
        k, v = memory.update((k.transpose(1, 2), v.transpose(1, 2)), step.past_length)
        return k, v

    def _heads(self, linear: Linear, x: Tensor) -> Tensor:
        """`(B, T, d)` → `(B, T, heads, h)`."""
        return self._clip(linear(x), False).unflatten(-1, (-1, self.spec.head_dim))

    def _norm_and_rotate(self, y: Tensor, norm: Norm | Sequence[Norm] | None, turn: RopeCosSin | None) -> Tensor:
        """Heads normed, if at all, and rotated; in the family's order."""
        if self.spec.qk_preprocess.after_rope:
            return self._apply_head_norm(apply_rope(y, turn), norm)
        return apply_rope(self._apply_head_norm(y, norm), turn)

    def _apply_head_norm(self, y: Tensor, norm: Norm | Sequence[Norm] | None) -> Tensor:
        """Each head alone, or all of them as one vector, or each with a norm of its own."""
        if isinstance(norm, Norm):
            y = norm(y.flatten(2)).view(y.shape) if self.spec.qk_preprocess.across_heads else norm(y)
        elif norm is not None:
            y = torch.stack([own(head) for own, head in zip(norm, y.unbind(2), strict=True)], 2)
        return self._clip(y, True)

    def _clip(self, y: Tensor, normed: bool) -> Tensor:
        clip = self.spec.qk_preprocess.clip
        return y if clip is None or clip.after_norm != normed else y.clamp(-clip.limit, clip.limit)


@module_for(blocks.LatentAttention)
class LatentAttention(Mixer):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): what is remembered is one small vector for all heads.

    A pass over several tokens unpacks keys and values from it; a pass over one takes the unpacking into the query instead.
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

    def new_cache(self, room: int) -> LayerCache:
        """The latent vectors, each with the one rotated key."""
        return KVCache(room)

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        s = self.spec
        memory = step.cache.layers[i]
        assert isinstance(memory, KVCache)
        q = self.q_up(self.q_norm(self.q_down(x))) if self.q is None else self.q(x)
        q = q.unflatten(-1, (-1, s.nope_dim + s.rope_dim))  # (B, T, H, n + p)
        if s.score_transform.temperature is not None:
            q = q * step.temperature_scale(s.score_transform.temperature).to(q.dtype)
        content, place = q.split((s.nope_dim, s.rope_dim), -1)
        place = apply_rope(place, step.rope_cos_sin(s.rope))
        kept = self._update_cache(x, memory, step)  # (B, 1, S, r + p)
        meet = self._attend_absorbed if step.new_length == 1 else self._attend_expanded
        y = meet(
            content.transpose(1, 2), place.transpose(1, 2), kept, step.mask(AttentionPattern(s.window), memory.capacity)
        )  # (B, H, T, v)
        return self.o(y.transpose(1, 2).flatten(2))

    def _update_cache(self, x: Tensor, memory: KVCache, step: ForwardContext) -> Tensor:
        """A latent vector and a rotated key for each of these tokens, side by side, remembered; and those of the tokens before."""
        latent, key = self.kv_down(x)[:, :, None].split((self.spec.kv_lora_rank, self.spec.rope_dim), -1)
        both = torch.cat((self.kv_norm(latent), apply_rope(key, step.rope_cos_sin(self.spec.rope))), -1)
        (kept,) = memory.update((both.transpose(1, 2),), step.past_length)
        return kept

    def _attend_expanded(self, content: Tensor, place: Tensor, kept: Tensor, mask: Mask) -> Tensor:
        latent, key = kept[:, 0, :, : self.spec.kv_lora_rank], kept[..., self.spec.kv_lora_rank :]
        k = self.k_up(latent).unflatten(-1, (-1, self.spec.nope_dim)).transpose(1, 2)  # (B, H, S, n)
        v = self.v_up(latent).unflatten(-1, (-1, self.spec.v_dim)).transpose(1, 2)  # (B, H, S, v)
        k = torch.cat((k, key.expand(-1, k.shape[1], -1, -1)), -1)
        return attend(torch.cat((content, place), -1), k, v, mask, self._score_params)

    def _attend_absorbed(self, content: Tensor, place: Tensor, kept: Tensor, mask: Mask) -> Tensor:
        content = content @ local_tensor(self.k_up.weight).unflatten(0, (-1, self.spec.nope_dim))  # (B, H, 1, r)
        y = attend(torch.cat((content, place), -1), kept, kept[..., : self.spec.kv_lora_rank], mask, self._score_params)
        return y @ local_tensor(self.v_up.weight).unflatten(0, (-1, self.spec.v_dim)).mT

    @property
    def _score_params(self) -> ScoreParams:
        s = self.spec
        return ScoreParams((s.nope_dim + s.rope_dim) ** -0.5 if s.score_transform.scale is None else s.score_transform.scale)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scores: ScoreParams) -> Tensor:
    """softmax(q kᵀ · scale, masked) v: q `(B, H, T, h)`, k and v `(B, K, S, h)` → `(B, H, T, h)`."""
    if has_torch_function((q, k, v)):  # somebody watches
        out: Tensor = handle_torch_function(attend, (q, k, v), q, k, v, mask, scores)
        return out
    heads = q.shape[0] * q.shape[1]
    if mask.fits_one_block(heads, scores.sdpa_compatible):
        return _attend_block(q, k, v, mask.full_block, scores)
    return torch.cat([_attend_block(q[:, :, x.queries], k[:, :, x.keys], v[:, :, x.keys], x, scores) for x in mask.blocks(heads)], 2)


def _attend_block(q: Tensor, k: Tensor, v: Tensor, part: MaskBlock, scores: ScoreParams) -> Tensor:
    """The same for the queries and keys of one part of a mask."""
    if scores.sdpa_compatible and (part.mask is None or part.mask.dtype in (torch.bool, q.dtype)):
        return _sdpa(q, k, v, part, scores.scale)
    shares = attention_probs(q, k, part, scores).to(v.dtype).unflatten(1, (k.shape[1], -1))
    return (shares @ v[:, :, None]).flatten(1, 2)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, part: MaskBlock, scale: float) -> Tensor:
    """The same by a kernel of torch's; of many queries it keeps no scores if values are as long as keys, and so they are made."""
    grouped, size = q.shape[1] != k.shape[1], v.shape[-1]
    if grouped and q.shape[2] == 1 and (part.mask is None or part.mask.dim() < 3 or part.mask.shape[-3] == 1):
        together = q.unflatten(1, (k.shape[1], -1)).squeeze(3)  # the heads of a group as its queries: (B, K, H / K, h)
        return F.scaled_dot_product_attention(together, k, v, part.mask, scale=scale).flatten(1, 2).unsqueeze(2)
    if q.shape[2] == 1 and q.dtype == torch.bfloat16 and q.device.type == "cpu":
        return _sdpa_in_float32(q, k, v, part, scale)
    if q.shape[2] >= MIN_QUERIES_FOR_PADDED_VALUES and size < q.shape[-1]:
        v = F.pad(v, (0, q.shape[-1] - size))
    return F.scaled_dot_product_attention(q, k, v, part.mask, is_causal=part.causal, scale=scale, enable_gqa=grouped)[..., :size]


def _sdpa_in_float32(q: Tensor, k: Tensor, v: Tensor, part: MaskBlock, scale: float) -> Tensor:
    """The same in float32, which takes a processor a third of the time for a single query; text by text, so that it is at hand."""
    found = []
    for i in range(len(q)):
        few, keys, values = (x[i : i + 1].float() for x in (q, k, v))
        mask = part.mask
        mask = mask if mask is None or mask.dim() < 4 or len(mask) == 1 else mask[i : i + 1]
        mask = mask if mask is None or mask.dtype == torch.bool else mask.float()
        found.append(F.scaled_dot_product_attention(few, keys, values, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]))
    return torch.cat(found).to(q.dtype)


def attention_probs(q: Tensor, k: Tensor, part: MaskBlock, scores: ScoreParams) -> Tensor:
    """How much each query takes of each key, `(B, H, T, S)`, in float32."""
    found = (q.unflatten(1, (k.shape[1], -1)) @ k[:, :, None].mT).flatten(1, 2).float() * scores.scale
    if scores.softcap is not None:
        found = scores.softcap * torch.tanh(found / scores.softcap)
    visible = torch.ones(found.shape[-2:], dtype=torch.bool, device=q.device).tril() if part.causal else part.mask
    if visible is not None:
        found = found.masked_fill(~visible, -torch.inf) if visible.dtype == torch.bool else found + visible
    if scores.sinks is None:
        return found.softmax(-1)
    sink = scores.sinks.float()[:, None, None].expand(*found.shape[:-1], 1)
    return torch.cat((found, sink), -1).softmax(-1)[..., :-1]
