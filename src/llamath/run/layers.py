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
from .cpu.weight_packing import Laying
from .forward_context import Step
from .kv_cache import Cache
from .module import Module, runs


def through(part: Module | None, x: Tensor) -> Tensor:
    """What a norm makes of x, if there is a norm."""
    return x if part is None else part(x)


@runs(blocks.Layer)
class Layer(Module):
    """x += mixer(norm x); x += mlp(norm x)."""

    spec: blocks.Layer
    attn_norm: Norm | None
    attn: Mixer | None
    attn_out_norm: Norm | None
    mlp_norm: Norm | None
    mlp: Module | None
    mlp_out_norm: Norm | None

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        read = through(self.attn_norm, x)
        mixed = x if self.attn is None else x + self.mixed(read, step, i)
        if self.mlp is None:
            return mixed
        if self.spec.parallel:
            return mixed + self.fed(read if self.mlp_norm is None else self.mlp_norm(x))
        return mixed + self.fed(through(self.mlp_norm, mixed))

    def mixed(self, x: Tensor, step: Step, i: int) -> Tensor:
        """The branch in which tokens meet."""
        assert self.attn is not None
        return self._weighed(through(self.attn_out_norm, self.attn(x, step, i)))

    def fed(self, x: Tensor) -> Tensor:
        """The branch in which each token is alone."""
        assert self.mlp is not None
        return self._weighed(through(self.mlp_out_norm, self.mlp(x)))

    def _weighed(self, y: Tensor) -> Tensor:
        return y if self.spec.residual_multiplier == 1.0 else y * self.spec.residual_multiplier


@runs(blocks.PostNormLayer)
class PostNormLayer(Layer):
    """x = attn_norm(x + mixer x); x = mlp_norm(x + mlp x)."""

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        x = through(self.attn_norm, x + self.mixed(x, step, i))
        return through(self.mlp_norm, x + self.fed(x))


@runs(blocks.NormedResidualLayer)
class NormedResidualLayer(Layer):
    """What is added to is the normed x that the branch has read."""

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        x = through(self.attn_norm, x)
        x = through(self.mlp_norm, x + self.mixed(x, step, i))
        return x + self.fed(x)


@runs(blocks.TwoNormLayer)
class TwoNormLayer(Layer):
    """x += mixer(attn_branch_norm x) + mlp(mlp_branch_norm x)."""

    attn_branch_norm: Norm
    mlp_branch_norm: Norm

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        return x + self.mixed(self.attn_branch_norm(x), step, i) + self.fed(self.mlp_branch_norm(x))


@runs(blocks.ScaledLayer)
class ScaledLayer(Layer):
    """A third branch, and a result that is multiplied by one stored number."""

    per_layer: PerLayerInput | None
    scalar: Tensor

    def forward(self, x: Tensor, step: Step, i: int) -> Tensor:
        x = super().forward(x, step, i)
        if self.per_layer is not None:
            assert step.beside is not None
            x = x + self.per_layer(x, step.beside[:, :, i])
        return x * self.scalar.to(x.dtype)


@runs(blocks.PerLayerInput)
class PerLayerInput(Module):
    """norm(out(act(gate x) · e))."""

    spec: blocks.PerLayerInput
    gate: Linear
    out: Linear
    norm: Norm

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        return self.norm(self.out(ACTIVATIONS[self.spec.activation](self.gate(x)) * e))


@runs(blocks.PerLayerEmbedding)
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


@runs(blocks.Decoder)
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
    flaws: Any = None  # what has been looked at, and found wrong, of its weights
    laying: Laying | None = None  # how its quick parts keep their weights

    def agreed(self, number: int) -> int:
        """A number on which all of them agree: the first one's."""
        if self.mesh is None:
            return number
        from .distributed.collectives import first

        return first(self.mesh, number)

    def heard(self, text: str) -> str:
        """What the first of them has to say that has anything to say."""
        if self.mesh is None:
            return text
        from .distributed.collectives import told

        return next((x for x in told(self.mesh, text) if x), "")

    def forward(self, ids: Tensor, cache: Cache | None = None, pads: Tensor | None = None, last: bool = False) -> Tensor:
        """Read these tokens after those that `cache` remembers; `pads` says how many of each row are padding on the left.

        With `last` the logits are those of the last token alone, `(B, 1, V)`.
        """
        cache = self.cache(0) if cache is None else cache
        cache.admit(ids.shape[1], pads)
        step = Step(ids, cache)
        x = self.embedded(ids, step)
        for i, layer in enumerate(self.layers):
            x = layer(x, step, i)
        cache.length += step.new
        return self.logits(x[:, -1:] if last else x)

    def embedded(self, ids: Tensor, step: Step) -> Tensor:
        """What the first layer reads."""
        x = self.embed(ids)
        if self.positions is not None:
            if (end := step.length) > (room := self.positions.weight.shape[0] - self.positions.spec.offset):
                raise LlamathError(f"the model has learned {room} positions, and this is {end} tokens", hint="shorten the prompt")
            x = x + self.positions(step.positions)
        if self.per_layer is not None:
            step.beside = self.per_layer(ids, x)
        return through(self.embed_norm, x)

    def logits(self, x: Tensor) -> Tensor:
        """What the last layer's stream says of the next token."""
        x = through(self.norm, x)
        if self.head is None:
            return x
        y = self.head(x) if self.spec.logit_scale == 1.0 else self.head(x) * self.spec.logit_scale
        cap = self.spec.softcap
        return y if cap is None else cap * torch.tanh(y / cap)

    def cache(self, room: int) -> Cache:
        """An empty cache for `room` tokens in each row."""
        mixers = [layer.attn for layer in self.layers]
        return Cache([None if x is None else x.memory(room) for x in mixers], room)

    def outgrown(self, cache: Cache, new: int) -> bool:
        """Whether `new` more tokens change the angles of those that were read, so that all should be read again (LongRoPE)."""
        pads = [0] if cache.pads is None else cache.pads.tolist()
        rows = [(cache.length - pad, cache.length + new - pad) for pad in pads if cache.length > pad]
        ropes = {id(x): x for layer in self.layers if isinstance(x := getattr(layer.spec.attn, "rope", None), LongRope)}
        return any(before <= x.original_context < after for x in ropes.values() for before, after in rows)
