"""Layers, and the `Decoder` that they make up: from token ids to logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ..core import blocks
from ..core.errors import LlamathError
from ..core.positions import LongRope
from .attention import Mixer
from .basic_layers import ACTIVATIONS, Embedding, Linear, Norm
from .cpu.weight_packing import PackedWeights
from .forward_context import ForwardContext
from .kv_cache import Cache
from .module import Module, module_for


def apply_norm(part: Module | None, x: Tensor) -> Tensor:
    """What a norm makes of x, if there is a norm."""
    return x if part is None else part(x)


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

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        read = apply_norm(self.attn_norm, x)
        mixed = x if self.attn is None else x + self.attn_branch(read, step, i)
        if self.mlp is None:
            return mixed
        if self.spec.parallel:
            return mixed + self.mlp_branch(read if self.mlp_norm is None else self.mlp_norm(x))
        return mixed + self.mlp_branch(apply_norm(self.mlp_norm, mixed))

    def attn_branch(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        """The branch in which tokens meet."""
        assert self.attn is not None
        return self._scale_residual(apply_norm(self.attn_out_norm, self.attn(x, step, i)))

    def mlp_branch(self, x: Tensor) -> Tensor:
        """The branch in which each token is alone."""
        assert self.mlp is not None
        return self._scale_residual(apply_norm(self.mlp_out_norm, self.mlp(x)))

    def _scale_residual(self, y: Tensor) -> Tensor:
        return y if self.spec.residual_multiplier == 1.0 else y * self.spec.residual_multiplier


@module_for(blocks.PostNormLayer)
class PostNormLayer(Layer):
    """x = attn_norm(x + mixer x); x = mlp_norm(x + mlp x)."""

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        x = apply_norm(self.attn_norm, x + self.attn_branch(x, step, i))
        return apply_norm(self.mlp_norm, x + self.mlp_branch(x))


@module_for(blocks.NormedResidualLayer)
class NormedResidualLayer(Layer):
    """What is added to is the normed x that the branch has read."""

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        x = apply_norm(self.attn_norm, x)
        x = apply_norm(self.mlp_norm, x + self.attn_branch(x, step, i))
        return x + self.mlp_branch(x)


@module_for(blocks.TwoNormLayer)
class TwoNormLayer(Layer):
    """x += mixer(attn_branch_norm x) + mlp(mlp_branch_norm x)."""

    attn_branch_norm: Norm
    mlp_branch_norm: Norm

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        return x + self.attn_branch(self.attn_branch_norm(x), step, i) + self.mlp_branch(self.mlp_branch_norm(x))


@module_for(blocks.ScaledLayer)
class ScaledLayer(Layer):
    """A third branch, and a result that is multiplied by one stored number."""

    per_layer: PerLayerInput | None
    scalar: Tensor

    def forward(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        x = super().forward(x, step, i)
        if self.per_layer is not None:
            assert step.per_layer_inputs is not None
            x = x + self.per_layer(x, step.per_layer_inputs[:, :, i])
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
        told = self.norm((self.projection(x) * self.spec.factor).unflatten(-1, size))
        return (self.embed(ids).unflatten(-1, size) + told) * 2**-0.5


@module_for(blocks.Decoder)
class Decoder(Module):
    """The whole model: ids `(B, T)` → logits `(B, T, V)`, or the normed stream `(B, T, d)` of a model without a head."""

    spec: blocks.Decoder
    embed: Embedding
    positions: Embedding | None
    embed_norm: Norm | None
    per_layer: PerLayerEmbedding | None
    layers: Sequence[Layer]
    norm: Norm | None
    head: Linear | None

    mesh: DeviceMesh | None = None  # of the processes that compute it together
    nonfinite_check: Any = None  # what has been looked at, and found wrong, of its weights
    packed_weights: PackedWeights | None = None  # how its quick parts keep their weights

    def broadcast_int(self, number: int) -> int:
        """A number on which all of them agree: the first one's."""
        if self.mesh is None:
            return number
        from .distributed.collectives import broadcast

        return broadcast(self.mesh, number)

    def first_from_any_rank(self, text: str) -> str:
        """What the first of them has to say that has anything to say."""
        if self.mesh is None:
            return text
        from .distributed.collectives import all_gather_text

        return next((x for x in all_gather_text(self.mesh, text) if x), "")

    def forward(self, ids: Tensor, cache: Cache | None = None, padding: Tensor | None = None, last_only: bool = False) -> Tensor:
        """Read these tokens after those that `cache` remembers; `pads` says how many of each row are padding on the left.

        With `last` the logits are those of the last token alone, `(B, 1, V)`.
        """
        cache = self.new_cache(0) if cache is None else cache
        cache.reserve(ids.shape[1], padding)
        step = ForwardContext(ids, cache)
        x = self.embed_tokens(ids, step)
        for i, layer in enumerate(self.layers):
            x = layer(x, step, i)
        cache.length += step.new_length
        return self.compute_logits(x[:, -1:] if last_only else x)

    def embed_tokens(self, ids: Tensor, step: ForwardContext) -> Tensor:
        """What the first layer reads."""
        x = self.embed(ids)
        if self.positions is not None:
            if (end := step.max_length) > (room := self.positions.weight.shape[0] - self.positions.spec.offset):
                raise LlamathError(f"the model has learned {room} positions, and this is {end} tokens", hint="shorten the prompt")
            x = x + self.positions(step.positions)
        if self.per_layer is not None:
            step.per_layer_inputs = self.per_layer(ids, x)
        return apply_norm(self.embed_norm, x)

    def compute_logits(self, x: Tensor) -> Tensor:
        """What the last layer's stream says of the next token."""
        x = apply_norm(self.norm, x)
        if self.head is None:
            return x
        y = self.head(x) if self.spec.logit_scale == 1.0 else self.head(x) * self.spec.logit_scale
        cap = self.spec.softcap
        return y if cap is None else cap * torch.tanh(y / cap)

    def new_cache(self, room: int) -> Cache:
        """An empty cache for `room` tokens in each row."""
        mixers = [layer.attn for layer in self.layers]
        return Cache([None if x is None else x.new_cache(room) for x in mixers], room)

    def crosses_long_rope_switch(self, cache: Cache, new: int) -> bool:
        """Whether `new` more tokens change the angles of those that were read, so that all should be read again (LongRoPE)."""
        pads = [0] if cache.padding is None else cache.padding.tolist()
        rows = [(cache.length - pad, cache.length + new - pad) for pad in pads if cache.length > pad]
        ropes = {id(x): x for layer in self.layers if isinstance(x := getattr(layer.spec.attn, "rope", None), LongRope)}
        return any(before <= x.original_context < after for x in ropes.values() for before, after in rows)
