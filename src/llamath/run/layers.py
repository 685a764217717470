"""Layers, and the `Decoder` made of them: from token ids to logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ..core import blocks
from ..core.errors import LlamathError
from ..core.positions import LongRope, Rope
from .attention import Mixer
from .basic_layers import ACTIVATIONS, Embedding, Linear, Norm
from .cpu.weight_packing import PackedWeights
from .forward_context import ForwardContext
from .kv_cache import Cache
from .module import Module, module_for


def apply_norm(norm: Module | None, x: Tensor) -> Tensor:
    """Return norm(x), or x without a norm."""
    return x if norm is None else norm(x)


@module_for(blocks.Layer)
class Layer(Module):
    """x += mixer(norm x); x += mlp(norm x)."""

    spec: blocks.Layer
    attn_norm: Norm | None
    attn: Mixer | None
    attn_out_norm: Norm | None
    mlp_norm: Norm | None
    mlp: Module | None
    mlp_out_norm: Norm | None

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        if self.fused is not None and self.fused.usable():
            return self.fused(x, ctx, i)
        normed = apply_norm(self.attn_norm, x)
        y = x if self.attn is None else x + self.attn_branch(normed, ctx, i)
        if self.mlp is None:
            return y
        if self.spec.parallel:
            return y + self.mlp_branch(normed if self.mlp_norm is None else self.mlp_norm(x))
        return y + self.mlp_branch(apply_norm(self.mlp_norm, y))

    def attn_branch(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        """The residual branch of the token mixer."""
        assert self.attn is not None
        return self._scale_residual(apply_norm(self.attn_out_norm, self.attn(x, ctx, i)))

    def mlp_branch(self, x: Tensor) -> Tensor:
        """The residual branch of the feed-forward network."""
        assert self.mlp is not None
        return self._scale_residual(apply_norm(self.mlp_out_norm, self.mlp(x)))

    def _scale_residual(self, y: Tensor) -> Tensor:
        return y if self.spec.residual_multiplier == 1.0 else y * self.spec.residual_multiplier


@module_for(blocks.PostNormLayer)
class PostNormLayer(Layer):
    """x = attn_norm(x + mixer x); x = mlp_norm(x + mlp x)."""

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        x = apply_norm(self.attn_norm, x + self.attn_branch(x, ctx, i))
        return apply_norm(self.mlp_norm, x + self.mlp_branch(x))


@module_for(blocks.NormedResidualLayer)
class NormedResidualLayer(Layer):
    """x = attn_norm x; x = mlp_norm(x + mixer x); x += mlp x: the residual is the normalized input of each branch."""

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        x = apply_norm(self.attn_norm, x)
        x = apply_norm(self.mlp_norm, x + self.attn_branch(x, ctx, i))
        return x + self.mlp_branch(x)


@module_for(blocks.TwoNormLayer)
class TwoNormLayer(Layer):
    """x += mixer(attn_branch_norm x) + mlp(mlp_branch_norm x)."""

    attn_branch_norm: Norm
    mlp_branch_norm: Norm

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        return x + self.attn_branch(self.attn_branch_norm(x), ctx, i) + self.mlp_branch(self.mlp_branch_norm(x))


@module_for(blocks.ScaledLayer)
class ScaledLayer(Layer):
    """A layer with per-layer embeddings as a third branch, its output multiplied by a stored scalar."""

    per_layer: PerLayerInput | None
    scalar: Tensor

    def forward(self, x: Tensor, ctx: ForwardContext, i: int) -> Tensor:
        x = super().forward(x, ctx, i)
        if self.per_layer is not None:
            assert ctx.per_layer_inputs is not None
            x = x + self.per_layer(x, ctx.per_layer_inputs[:, :, i])
        return x * self.scalar.to(x.dtype)


@module_for(blocks.PerLayerInput)
class PerLayerInput(Module):
    """norm(out(act(gate x) · e))."""

    spec: blocks.PerLayerInput
    gate: Linear
    out: Linear
    norm: Norm

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        return self.norm(self.out(ACTIVATIONS[self.spec.activation](self.gate(x)) * e))


@module_for(blocks.PerLayerEmbedding)
class PerLayerEmbedding(Module):
    """(row of `embed` + norm(projection(x) · factor)) / √2 for each token and layer, `(B, T, L, p)`."""

    spec: blocks.PerLayerEmbedding
    embed: Embedding
    projection: Linear
    norm: Norm

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        assert self.spec.norm.weight is not None
        size = (-1, int(self.spec.norm.weight.size))
        projected = self.norm((self.projection(x) * self.spec.factor).unflatten(-1, size))
        return (self.embed(ids).unflatten(-1, size) + projected) * 2**-0.5


@module_for(blocks.Decoder)
class Decoder(Module):
    """The whole model: token ids `(B, T)` → logits `(B, T, V)`, or the last hidden state `(B, T, d)` of a model without a head."""

    spec: blocks.Decoder
    embed: Embedding
    positions: Embedding | None
    embed_norm: Norm | None
    per_layer: PerLayerEmbedding | None
    layers: Sequence[Layer]
    norm: Norm | None
    head: Linear | None

    mesh: DeviceMesh | None = None  # of the ranks that share the model, set by `parallelize`
    packed_weights: PackedWeights | None = None  # set by `optimize_for_cpu`

    def broadcast_int(self, number: int) -> int:
        """Return the first rank's number on every rank."""
        if self.mesh is None:
            return number
        from .distributed.collectives import broadcast

        return broadcast(self.mesh, number)

    def first_from_any_rank(self, text: str) -> str:
        """Return the text of the lowest rank whose text is not empty."""
        if self.mesh is None:
            return text
        from .distributed.collectives import all_gather_text

        return next((x for x in all_gather_text(self.mesh, text) if x), "")

    def forward(self, ids: Tensor, cache: Cache | None = None, padding: Tensor | None = None, last_only: bool = False) -> Tensor:
        """Compute logits of these tokens, which follow those in `cache`; `padding` is the number of padding tokens on the left of each row.

        With `last_only` the logits are those of the last token, `(B, 1, V)`.
        """
        cache = self.new_cache(0) if cache is None else cache
        cache.reserve(ids.shape[1], padding)
        ctx = ForwardContext(ids, cache)
        x = self.embed_tokens(ids, ctx)
        for i, layer in enumerate(self.layers):
            x = layer(x, ctx, i)
        cache.length += ctx.new_length
        return self.compute_logits(x[:, -1:] if last_only else x)

    def embed_tokens(self, ids: Tensor, ctx: ForwardContext) -> Tensor:
        """Return the input of the first layer."""
        x = self.embed(ids)
        if self.positions is not None:
            if (end := ctx.max_length) > (known := self.positions.weight.shape[0] - self.positions.spec.offset):
                raise LlamathError(f"the model has position embeddings for {known} tokens, found {end} tokens", hint="use a shorter prompt")
            x = x + self.positions(ctx.positions)
        if self.per_layer is not None:
            ctx.per_layer_inputs = self.per_layer(ids, x)
        return apply_norm(self.embed_norm, x)

    def compute_logits(self, x: Tensor) -> Tensor:
        """Apply the final norm, the head and the logit softcap."""
        x = apply_norm(self.norm, x)
        if self.head is None:
            return x
        y = self.head(x) if self.spec.logit_scale == 1.0 else self.head(x) * self.spec.logit_scale
        cap = self.spec.softcap
        return y if cap is None else cap * torch.tanh(y / cap)

    def new_cache(self, capacity: int) -> Cache:
        """Return an empty cache for `capacity` tokens in each row."""
        mixers = [layer.attn for layer in self.layers]
        return Cache([None if x is None else x.new_cache(capacity) for x in mixers], capacity)

    def ropes(self) -> list[Rope]:
        """The rotary embeddings of the layers, without repetition."""
        return list(
            {id(x): x for layer in self.layers if layer.attn is not None and (x := layer.attn.rotary_embedding) is not None}.values()
        )

    def crosses_long_rope_switch(self, cache: Cache, new: int) -> bool:
        """Whether `new` more tokens change the rotary angles of cached tokens, so that all must be recomputed (LongRoPE)."""
        paddings = [0] if cache.padding is None else cache.padding.tolist()
        lengths = [(cache.length - padding, cache.length + new - padding) for padding in paddings if cache.length > padding]
        switches = [x.original_context for x in self.ropes() if isinstance(x, LongRope)]
        return any(before <= switch < after for switch in switches for before, after in lengths)
