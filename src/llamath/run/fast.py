"""`quicken`: the layers that most models are made of read their weights in the order in which processors multiply fastest.

The modules and their parameters stay what and where they are; a quick layer has another `forward`, which does the same in fewer and
larger operations: q, k and v in one product, rotations of neighbouring pairs as one complex product, activations and sums within products.
Weights are laid out when a pass first comes to them, so a model is ready as soon as it is open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import LlamathError
from .attention import Attention, Weighing, attend
from .cache import Keys
from .layers import Decoder, Layer, through
from .parts import MLP, Linear, Norm
from .product import Dense, Kind, Product, Slices, Whole
from .room import free
from .rope import Turn, rotate
from .step import Step

KINDS: dict[str | None, Kind] = {None: Dense, "int8": Whole}
"""How weights are kept, by the names for it."""


ROWS = 8192
"""So many rows of a head are laid out at once."""
AMORTISED = 32
"""Tokens by which bfloat16's other order has saved about as much time as laying it out took."""


class QuickAttention:
    """Attention's `forward` up to its heads; what `o` makes of them is added where it is computed."""

    def __init__(self, own: Attention, kind: Kind) -> None:
        self.own, s = own, own.spec
        self.rope = s.rope
        self.turned = s.rope is not None and not s.rope.interleaved and own.q_norm is None and own.k_norm is None
        self.qkv, self.o = self._joined(kind), kind(own.o.weight, own.o.bias)
        self.scores = Weighing(s.head_dim**-0.5 if s.scores.scale is None else s.scores.scale)

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

    def __call__(self, x: Tensor, step: Step, i: int) -> Tensor:
        s, memory = self.own.spec, step.cache.memories[i]
        assert isinstance(memory, Keys)
        heads = self.qkv(x).unflatten(-1, (-1, s.head_dim))
        qk, v = heads.split((s.heads + s.kv_heads, s.kv_heads), -2)
        if self.turned and self.rope is not None:
            q, k = spun(qk, step.spin(self.rope)).split((s.heads, s.kv_heads), -2)
        else:
            turn = step.turn(s.rope)
            q, k = qk.split((s.heads, s.kv_heads), -2)
            q, k = self._normed(q, self.own.q_norm, turn), self._normed(k, self.own.k_norm, turn)
        k, v = memory.add((k.transpose(1, 2), v.transpose(1, 2)), step.past)
        y = attend(q.transpose(1, 2), k, v, step.mask(self.own.sight, memory.room), self.scores)
        return y.transpose(1, 2).flatten(2)

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


class QuickMLP:
    """MLP's `forward` up to what `down` reads."""

    def __init__(self, own: MLP, kind: Kind) -> None:
        self.activation = own.spec.activation
        self.gate = None if own.gate is None else kind(own.gate.weight, own.gate.bias)
        self.up, self.down = (kind(x.weight, x.bias) for x in (own.up, own.down))

    def __call__(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.up.activated(x, self.activation)
        return self.up.times(x, self.gate.activated(x, self.activation))


class QuickLayer:
    """Layer's `forward`; experts run as they are."""

    def __init__(self, own: Layer, kind: Kind) -> None:
        assert isinstance(own.attn, Attention)
        self.own, self.attn, self.residual = own, QuickAttention(own.attn, kind), own.spec.residual
        self.mlp = QuickMLP(own.mlp, kind) if isinstance(own.mlp, MLP) and usual(own.mlp) else None

    def __call__(self, x: Tensor, step: Step, i: int) -> Tensor:
        own = self.own
        heads = self.attn(through(own.attn_norm, x), step, i)
        x = self._added(x, self.attn.o, heads, own.attn_out_norm)
        read = through(own.mlp_norm, x)
        if self.mlp is None:
            return x + own.fed(read)
        return self._added(x, self.mlp.down, self.mlp(read), own.mlp_out_norm)

    def _added(self, x: Tensor, product: Product, y: Tensor, norm: Norm | None) -> Tensor:
        """What a product adds to x, with what a family puts in between."""
        if norm is None and self.residual == 1.0:
            return product.plus(y, x)
        return x + through(norm, product(y)) * self.residual


def supported(layer: nn.Module) -> bool:
    """Whether a layer is x += attention(norm x); x += mlp(norm x), and its attention of the usual kind."""
    if type(layer) is not Layer or type(layer.attn) is not Attention or layer.mlp is None or layer.spec.parallel:
        return False
    return plain(layer.attn)


def usual(mlp: MLP) -> bool:
    """Whether it is MLP itself, of plain matrices."""
    return type(mlp) is MLP and all(x is None or type(x) is Linear for x in (mlp.gate, mlp.up, mlp.down))


def plain(attn: Attention) -> bool:
    """Whether nothing is set that few families have."""
    s = attn.spec
    rare = (attn.gate, attn.sinks, attn.v_norm, s.kv_layer, s.norming.clip, s.scores.softcap, s.scores.temperature)
    if any(x is not None for x in rare) or s.norming.whole or s.norming.after_rope:
        return False
    if not all(type(x) is Linear for x in (attn.q, attn.k, attn.v, attn.o)):
        return False
    return all(x is None or isinstance(x, Norm) for x in (attn.q_norm, attn.k_norm))


class Quick:
    """A module's other `forward`: made when it is first wanted, and anew when a weight has changed.

    Where gradients are asked for, or somebody has hooked into a part, the module's own runs.
    """

    def __init__(self, own: nn.Module, make: Callable[[], Callable[..., Tensor]], forget: Callable[[], object]) -> None:
        self.own, self.make, self.forget = own, make, forget
        self.parts = [x for x in own.modules() if x is not own]
        self.weights = [(x._parameters, name) for x in own.modules() for name in x._parameters]
        self.made: Callable[..., Tensor] | None = None
        self.known: list[tuple[int, int]] = []

    def __call__(self, *given: Any) -> Tensor:
        if torch.is_grad_enabled() or any(x._forward_hooks or x._forward_pre_hooks for x in self.parts):
            y: Tensor = type(self.own).forward(self.own, *given)
            return y
        now = [_state(held[name]) for held, name in self.weights]
        if self.made is None or now != self.known:
            self.made = None  # what it held is free before there is another
            self.made, self.known = self.make(), now
            self.forget()
        return self.made(*given)


def _state(x: Tensor | None) -> tuple[int, int]:
    """What changes when a weight does."""
    return id(x), 0 if x is None or x.is_inference() else x._version


def quicken(module: Decoder, kind: str | None = None, forget: Callable[[], object] = lambda: None) -> int:
    """Make what can be quick so, for reading and not for training; how many layers are.

    `kind` "int8" keeps matrices in eight bits. `forget` is called after each layer is laid out: its own numbers are not read any more.
    """
    first = next(module.parameters())
    if module.mesh is not None or first.device.type != "cpu" or not able(first.dtype, kind):
        if kind is not None:
            raise LlamathError(f"weights in {kind} are for one process on a processor with VNNI", hint="--dtype bfloat16")
        return 0
    quick = [layer for layer in module.layers if supported(layer)]
    for layer in quick:
        layer.__dict__["forward"] = Quick(layer, partial(QuickLayer, layer, KINDS[kind]), forget)
    head = module.head
    if head is not None and type(head) is Linear:
        head.__dict__["forward"] = Quick(head, lambda: Slices(_slices(head, KINDS[kind], forget)), forget)
    return len(quick)


def hasten(module: Decoder, tokens: int, forget: Callable[[], object] = lambda: None) -> None:
    """Make quick what so many tokens repay: float32 stays where it lies, bfloat16 is laid out in memory of its own, if there is any."""
    first = next(module.parameters())
    if module.mesh is not None or quick(module):
        return
    if first.dtype != torch.float32:
        need = sum(x.nbytes for part in _whole(module) for x in part.parameters())
        room = free(first.device)
        if tokens < AMORTISED or (room is not None and need > room):
            return
    quicken(module, None, forget)


def quick(module: Decoder) -> bool:
    """Whether any part is."""
    return any("forward" in part.__dict__ for part in _whole(module))


def _whole(module: Decoder) -> list[nn.Module]:
    """What is laid out, each as one."""
    return [*module.layers, *([] if module.head is None else [module.head])]


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
