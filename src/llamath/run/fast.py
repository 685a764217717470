"""`quicken`: the layers that most models are made of read their weights in the order in which processors multiply fastest.

The modules and their parameters stay what and where they are; a quick layer has another `forward`, which does the same in fewer and
larger operations: q, k and v in one product, rotations of neighbouring pairs as one complex product, activations and sums within products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..blocks import Layer as LayerSpec
from ..errors import LlamathError
from .attention import Attention, Scores, attend
from .cache import Keys
from .layers import Decoder, Layer, through
from .parts import MLP, Linear, Norm
from .product import Dense, Kind, Product, Slices, Whole
from .rope import Turn, rotate
from .step import Step

KINDS: dict[str | None, Kind] = {None: Dense, "int8": Whole}
"""How weights are kept, by the names for it."""


ROWS = 32_768
"""So many rows of a head are laid out at once."""


class QuickAttention:
    """Attention's `forward` with what comes in added: x + o(heads)."""

    def __init__(self, own: Attention, kind: Kind) -> None:
        self.own, s = own, own.spec
        self.rope = s.rope
        self.turned = s.rope is not None and not s.rope.interleaved and own.q_norm is None and own.k_norm is None
        self.qkv, self.o = self._joined(kind), kind(own.o.weight, own.o.bias)
        self.scores = Scores(s.head_dim**-0.5 if s.scale is None else s.scale)

    def _joined(self, kind: Kind) -> Product:
        """q, k and v as one matrix; of each rotated head the two halves dealt out in turn, so that a pair's numbers are neighbours."""
        parts = [x for x in (self.own.q, self.own.k, self.own.v) if x is not None]
        rows = [self._dealt(x.weight, i < 2) for i, x in enumerate(parts)]
        biases = [x.weight.new_zeros(len(x.weight)) if x.bias is None else self._dealt(x.bias, i < 2) for i, x in enumerate(parts)]
        bias = torch.cat(biases) if any(x.bias is not None for x in parts) else None
        return kind(torch.cat(rows), bias)

    def _dealt(self, x: Tensor, rotated: bool) -> Tensor:
        s = self.own.spec
        if not (rotated and self.turned and s.rope is not None):
            return x
        heads = x.unflatten(0, (-1, s.head_dim))
        turning, rest = heads[:, : s.rope.dim], heads[:, s.rope.dim :]
        turning = turning.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        return torch.cat((turning, rest), 1).flatten(0, 1)

    def __call__(self, x: Tensor, read: Tensor, step: Step, i: int) -> Tensor:
        s, memory = self.own.spec, step.cache.memories[i]
        assert isinstance(memory, Keys)
        heads = self.qkv(read).unflatten(-1, (-1, s.head_dim))
        qk, v = heads.split((s.heads + s.kv_heads, s.kv_heads), -2)
        if self.turned and self.rope is not None:
            q, k = spun(qk, step.spin(self.rope)).split((s.heads, s.kv_heads), -2)
        else:
            turn = step.turn(s.rope)
            q, k = qk.split((s.heads, s.kv_heads), -2)
            q, k = self._normed(q, self.own.q_norm, turn), self._normed(k, self.own.k_norm, turn)
        k, v = memory.add((k.transpose(1, 2), v.transpose(1, 2)), step.past)
        y = attend(q.transpose(1, 2), k, v, step.mask(self.own.sight, memory.room), self.scores)
        return self.o.plus(y.transpose(1, 2).flatten(2), x)

    @staticmethod
    def _normed(y: Tensor, norm: object, turn: Turn | None) -> Tensor:
        return rotate(norm(y) if isinstance(norm, Norm) else y, turn)


def spun(x: Tensor, turn: Tensor) -> Tensor:
    """Neighbouring pairs of x turned, each by its complex number, in float32."""
    dim = 2 * turn.shape[-1]
    part = x if dim == x.shape[-1] else x[..., :dim]
    pairs = torch.view_as_complex(part.float().unflatten(-1, (-1, 2)))
    turned = torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)
    return turned if dim == x.shape[-1] else torch.cat((turned, x[..., dim:]), -1)


class QuickLayer:
    """Layer's `forward`."""

    def __init__(self, own: Layer, kind: Kind) -> None:
        assert isinstance(own.attn, Attention) and isinstance(own.mlp, MLP)
        self.own, self.attn, mlp = own, QuickAttention(own.attn, kind), own.mlp
        self.gate, self.up, self.down = (kind(x.weight, x.bias) for x in (mlp.gate, mlp.up, mlp.down) if x is not None)
        self.activation = mlp.spec.activation

    def __call__(self, x: Tensor, step: Step, i: int) -> Tensor:
        x = self.attn(x, through(self.own.attn_norm, x), step, i)
        read = through(self.own.mlp_norm, x)
        return self.down.plus(self.up.times(read, self.gate.activated(read, self.activation)), x)


def supported(layer: nn.Module) -> bool:
    """Whether a layer is x += attention(norm x); x += mlp(norm x), with a gate and nothing rarer."""
    if type(layer) is not Layer or type(layer.attn) is not Attention or type(layer.mlp) is not MLP:
        return False
    return plain(layer.spec, layer.attn) and all(type(x) is Linear for x in _linears(layer.attn, layer.mlp))


def plain(layer: LayerSpec, attn: Attention) -> bool:
    """Whether nothing is set that few families have."""
    s = attn.spec
    rare = ("gate", "sinks", "kv_layer", "softcap", "clip", "temperature", "v_norm")
    if layer.parallel or layer.residual != 1.0 or layer.attn_out_norm is not None or layer.mlp_out_norm is not None:
        return False
    if any(getattr(s, name) is not None for name in rare) or s.norm_whole or s.norm_after_rope:
        return False
    return all(x is None or isinstance(x, Norm) for x in (attn.q_norm, attn.k_norm))


def _linears(attn: Attention, mlp: MLP) -> list[nn.Module | None]:
    return [attn.q, attn.k, attn.v, attn.o, mlp.gate, mlp.up, mlp.down]


@torch.no_grad()
def quicken(module: Decoder, kind: str | None = None, forget: Callable[[], object] = lambda: None) -> int:
    """Make what can be quick so, for reading and not for training; how many layers are.

    `kind` "int8" keeps matrices in eight bits. `forget` is called after each layer: its own numbers are not read any more.
    """
    first = next(module.parameters())
    if module.mesh is not None or first.device.type != "cpu" or not able(first.dtype, kind):
        if kind is not None:
            raise LlamathError(f"weights in {kind} are for one process on a processor with VNNI", hint="--dtype bfloat16")
        return 0
    module.requires_grad_(False)
    quick = [layer for layer in module.layers if supported(layer)]
    for layer in quick:
        layer.__dict__["forward"] = QuickLayer(layer, KINDS[kind])
        forget()
    if module.head is not None and type(module.head) is Linear:
        module.head.__dict__["forward"] = Slices(_slices(module.head, KINDS[kind], forget))
    return len(quick)


def _slices(head: Linear, kind: Kind, forget: Callable[[], object]) -> list[Product]:
    """A head's rows, some after the other."""
    found: list[Product] = []
    for first in range(0, len(head.weight), ROWS):
        rows = slice(first, first + ROWS)
        found.append(kind(head.weight[rows], None if head.bias is None else head.bias[rows]))
        forget()
    return found


def able(dtype: torch.dtype, kind: str | None) -> bool:
    """Whether this processor has what quick products need."""
    if not torch.backends.mkldnn.is_available() or dtype not in (torch.float32, torch.bfloat16):
        return False
    if kind == "int8":
        return bool(torch.cpu._is_vnni_supported())  # without it sums of two products may not fit sixteen bits
    return bool(dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
