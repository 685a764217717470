"""`quicken`: the layers that most models are made of read their weights in the order in which processors multiply fastest.

The modules and their parameters stay what and where they are; a quick layer has another `forward`, which does the same in fewer and
larger operations: q, k and v in one product, rotations of neighbouring pairs as one complex product, activations and sums within products.
Weights are laid out when few tokens are first to be read, so a model is ready as soon as it is open and has read its prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from ...core.errors import LlamathError
from ..attention import Attention, ScoreParams, attend
from ..basic_layers import MLP, Embedding, Linear, Norm
from ..forward_context import ForwardContext
from ..kv_cache import KVCache
from ..layers import Decoder, Layer, apply_norm
from ..memory_budget import free_bytes
from ..rope import RopeCosSin, apply_rope
from .matmul import ConcatLinear, CpuLinear, PlainLinear
from .weight_packing import (
    FORMAT_ORDER,
    INT8,
    LONG_GENERATION,
    LazyPackedLinear,
    PackedWeights,
    PackingFormat,
    SplitLinear,
    default_format,
    lazy_linear,
)

FORMATS: dict[str, PackingFormat] = {"int8": INT8}
"""How weights are kept, by the names for it."""
EMBEDDING_ROWS = 64
"""So many rows of an embedding are read at once."""
MLP_TOKENS = 1024
"""So many tokens are taken through a feed-forward at once."""


class FusedAttention:
    """Attention's `forward` up to its heads; what `o` makes of them is added where it is computed."""

    def __init__(self, own: Attention, laying: PackedWeights) -> None:
        self.own, s = own, own.spec
        self.rope = s.rope
        self.interleaves_pairs = s.rope is not None and not s.rope.interleaved and own.q_norm is None and own.k_norm is None
        self.projections = [x for x in (own.q, own.k, own.v) if x is not None]
        lying = ConcatLinear([PlainLinear(x.weight, x.bias) for x in self.projections], lambda y, i: self._interleave(y, i, -1))
        shape = sum(len(x.weight) for x in self.projections), self.projections[0].weight.shape[1]
        self.qkv, self.o = LazyPackedLinear(laying, lying, shape, self._concat_qkv), lazy_linear(laying, own.o)
        self.scores = ScoreParams(s.head_dim**-0.5 if s.score_transform.scale is None else s.score_transform.scale)

    def _concat_qkv(self) -> tuple[Tensor, Tensor | None]:
        """q, k and v as one matrix."""
        rows = [self._interleave(x.weight, i, 0) for i, x in enumerate(self.projections)]
        if all(x.bias is None for x in self.projections):
            return torch.cat(rows), None
        biases = [
            x.weight.new_zeros(len(x.weight)) if x.bias is None else self._interleave(x.bias, i, 0) for i, x in enumerate(self.projections)
        ]
        return torch.cat(rows), torch.cat(biases)

    def _interleave(self, x: Tensor, i: int, axis: int) -> Tensor:
        """Of each rotated head the two halves dealt out in turn, so that a pair's numbers are neighbours."""
        s = self.own.spec
        if not (i < 2 and self.interleaves_pairs and s.rope is not None):
            return x
        at, half = (1, 1) if axis == 0 else (-1, -2)  # where the numbers of a head are, and then the halves
        heads = x.unflatten(axis, (-1, s.head_dim))
        turning, rest = heads.split((s.rope.dim, s.head_dim - s.rope.dim), at)
        turning = turning.unflatten(at, (2, -1)).transpose(half, half + 1).flatten(half, half + 1)
        return torch.cat((turning, rest), at).flatten(at - 1, at)

    def __call__(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        s, memory = self.own.spec, step.cache.layers[i]
        assert isinstance(memory, KVCache)
        heads = self.qkv(x).unflatten(-1, (-1, s.head_dim))
        qk, v = heads.split((s.heads + s.kv_heads, s.kv_heads), -2)
        if self.interleaves_pairs and self.rope is not None:
            q, k = apply_complex_rope(qk, step.rope_complex(self.rope)).split((s.heads, s.kv_heads), -2)
        else:
            turn = step.rope_cos_sin(s.rope)
            q, k = qk.split((s.heads, s.kv_heads), -2)
            q, k = self._norm_and_rotate(q, self.own.q_norm, turn), self._norm_and_rotate(k, self.own.k_norm, turn)
        k, v = memory.update((k.transpose(1, 2), v.transpose(1, 2)), step.past_length)
        y = attend(q.transpose(1, 2), k, v, step.mask(self.own.pattern, memory.capacity), self.scores)
        return y.transpose(1, 2).flatten(2)

    @staticmethod
    def _norm_and_rotate(y: Tensor, norm: object, turn: RopeCosSin | None) -> Tensor:
        return apply_rope(norm(y) if isinstance(norm, Norm) else y, turn)


def apply_complex_rope(x: Tensor, turn: Tensor) -> Tensor:
    """Neighbouring pairs of x turned, each by its complex number, in float32."""
    dim = 2 * turn.shape[-1]
    part = x if dim == x.shape[-1] else x[..., :dim]
    pairs = torch.view_as_complex(part.float().unflatten(-1, (-1, 2)))
    turned = torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)
    return turned if dim == x.shape[-1] else torch.cat((turned, x[..., dim:]), -1)


class FusedMLP:
    """MLP's `forward` up to what `down` reads."""

    def __init__(self, own: MLP, laying: PackedWeights) -> None:
        self.activation = own.spec.activation
        self.gate = None if own.gate is None else lazy_linear(laying, own.gate)
        self.up, self.down = (lazy_linear(laying, x) for x in (own.up, own.down))

    def __call__(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.up.apply_act(x, self.activation)
        return self.up.apply_mul(x, self.gate.apply_act(x, self.activation))


class FusedLayer:
    """Layer's `forward`; experts run as they are."""

    def __init__(self, own: Layer, laying: PackedWeights) -> None:
        assert isinstance(own.attn, Attention)
        self.own, self.laying, self.attn, self.residual = own, laying, FusedAttention(own.attn, laying), own.spec.residual_multiplier
        self.mlp = FusedMLP(own.mlp, laying) if is_plain_mlp(own.mlp) else None

    def __call__(self, x: Tensor, step: ForwardContext, i: int) -> Tensor:
        own, self.laying.tokens = self.own, x.numel() // x.shape[-1]
        heads = self.attn(apply_norm(own.attn_norm, x), step, i)
        x = self._add_residual(x, self.attn.o, heads, own.attn_out_norm)
        many = self.mlp is not None and self.laying.tokens > MLP_TOKENS
        x = torch.cat([self._add_mlp(part) for part in x.flatten(0, 1).split(MLP_TOKENS)]).view_as(x) if many else self._add_mlp(x)
        if self.laying.files_read:
            self.laying.release_read_pages()
        return x

    def _add_mlp(self, x: Tensor) -> Tensor:
        read = apply_norm(self.own.mlp_norm, x)
        if self.mlp is None:
            return x + self.own.mlp_branch(read)
        return self._add_residual(x, self.mlp.down, self.mlp(read), self.own.mlp_out_norm)

    def _add_residual(self, x: Tensor, product: CpuLinear, y: Tensor, norm: Norm | None) -> Tensor:
        """What a product adds to x, with what a family puts in between."""
        if norm is None and self.residual == 1.0:
            return product.apply_add(y, x)
        return x + apply_norm(norm, product(y)) * self.residual


def is_fusable(layer: nn.Module) -> bool:
    """Whether a layer is x += attention(norm x); x += mlp(norm x), and its attention of the usual kind."""
    if type(layer) is not Layer or type(layer.attn) is not Attention or layer.mlp is None or layer.spec.parallel:
        return False
    return is_plain_attention(layer.attn)


def is_plain_mlp(mlp: nn.Module | None) -> TypeGuard[MLP]:
    """Whether it is MLP itself, of plain matrices."""
    return type(mlp) is MLP and all(x is None or type(x) is Linear for x in (mlp.gate, mlp.up, mlp.down))


def is_plain_attention(attn: Attention) -> bool:
    """Whether nothing is set that few families have."""
    s = attn.spec
    rare = (attn.gate, attn.sinks, attn.v_norm, s.kv_layer, s.qk_preprocess.clip, s.score_transform.softcap, s.score_transform.temperature)
    if any(x is not None for x in rare) or s.qk_preprocess.across_heads or s.qk_preprocess.after_rope:
        return False
    if not all(type(x) is Linear for x in (attn.q, attn.k, attn.v, attn.o)):
        return False
    return all(x is None or isinstance(x, Norm) for x in (attn.q_norm, attn.k_norm))


class FusedEmbedding:
    """The embedding's `forward`: a row that is read of a mapped file brings hundreds of others with it, which are not wanted."""

    def __init__(self, own: Embedding, laying: PackedWeights) -> None:
        self.own, self.laying = own, laying

    def __call__(self, ids: Tensor) -> Tensor:
        plain = type(self.own).forward
        if not self.laying.reads_files_once():
            return plain(self.own, ids)
        found = []
        for some in ids.flatten().split(EMBEDDING_ROWS):
            found.append(plain(self.own, some))
            self.laying.release_read_pages()
        return torch.cat(found).unflatten(0, ids.shape)


class FusedHead:
    """The head's `forward`."""

    def __init__(self, own: Linear, laying: PackedWeights) -> None:
        self.laying, self.product = laying, SplitLinear(laying, own)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.product(x)
        self.laying.release_read_pages()
        return y


class FusedForward:
    """A module's other `forward`, made anew when a weight has changed.

    Where gradients are asked for, or somebody has hooked into a part, the module's own runs.
    """

    def __init__(self, own: nn.Module, make: Callable[[], Callable[..., Tensor]]) -> None:
        self.own, self.make = own, make
        self.parts = [x for x in own.modules() if x is not own]
        self.weights = [(x._parameters, name) for x in own.modules() for name in x._parameters]
        self.made: Callable[..., Tensor] | None = None
        self.known: list[tuple[int, int]] = []

    def __call__(self, *given: Any) -> Tensor:
        if torch.is_grad_enabled() or any(x._forward_hooks or x._forward_pre_hooks for x in self.parts):
            y: Tensor = type(self.own).forward(self.own, *given)
            return y
        now = [_weight_version(held[name]) for held, name in self.weights]
        if self.made is None or now != self.known:
            self.made, self.known = self.make(), now
        return self.made(*given)


def _weight_version(x: Tensor | None) -> tuple[int, int]:
    """What changes when a weight does."""
    return id(x), 0 if x is None or x.is_inference() else x._version


def optimize_for_cpu(module: Decoder, kind: str | None = None, forget: Callable[[], object] = lambda: None) -> int:
    """Make what can be quick so, for reading and not for training; how many layers are.

    `kind` "int8" keeps matrices in eight bits. `forget` is called where nothing of the files is wanted again soon.
    """
    dtype = next(module.parameters()).dtype
    if can_optimize(module, kind):
        install(module, default_format(dtype, LONG_GENERATION, 1) if kind is None else FORMATS[kind], forget)
    elif kind is not None:
        raise LlamathError(f"weights in {kind} are for one process on a processor with VNNI", hint="--dtype bfloat16")
    return sum("forward" in layer.__dict__ for layer in module.layers)


def maybe_pack(module: Decoder, tokens: int, rows: int = 1, forget: Callable[[], object] = lambda: None) -> None:
    """Make texts of so many tokens, and so many at once, come faster: weights are laid out if that repays and there is memory for it."""
    if not can_optimize(module, None):
        return
    laying = module.packed_weights or install(module, None, forget)
    wanted = default_format(module.embed.weight.dtype, tokens, rows)
    if FORMAT_ORDER.index(wanted) <= FORMAT_ORDER.index(laying.format):
        return
    parts = [*module.layers, *([] if module.head is None else [module.head])]
    need, room = sum(x.nbytes for part in parts for x in part.parameters()), free_bytes(module.embed.weight.device)
    if room is None or need <= room:
        laying.format = wanted


def install(module: Decoder, kind: PackingFormat | None, forget: Callable[[], object]) -> PackedWeights:
    """The quick parts' other `forward`, and what they share."""
    module.packed_weights = laying = PackedWeights(kind, forget)
    quick = [layer for layer in module.layers if is_fusable(layer)]
    for layer in quick:
        layer.__dict__["forward"] = FusedForward(layer, partial(FusedLayer, layer, laying))
    head = module.head
    if head is not None and type(head) is Linear:
        head.__dict__["forward"] = FusedForward(head, partial(FusedHead, head, laying))
        module.embed.__dict__["forward"] = FusedForward(module.embed, partial(FusedEmbedding, module.embed, laying))
        laying.covers_model = len(quick) == len(module.layers) and all(is_plain_mlp(x.mlp) for x in quick)
    return laying


def can_optimize(module: Decoder, kind: str | None) -> bool:
    """Whether this model is one process's, on a processor that can."""
    first = next(module.parameters())
    return module.mesh is None and first.device.type == "cpu" and cpu_supports(first.dtype, kind)


def cpu_supports(dtype: torch.dtype, kind: str | None) -> bool:
    """Whether this processor has what quick products need."""
    if not torch.backends.mkldnn.is_available() or dtype not in (torch.float32, torch.bfloat16):
        return False
    if kind == "int8":
        return bool(torch.cpu._is_vnni_supported())  # without it sums of two products may not fit sixteen bits
    return bool(dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
