"""`optimize_for_cpu`: fused layers with packed weights for inference on a CPU.

Modules and parameters stay as they are. A module that has a fused form holds it as `fused`, and its `forward` runs it unless gradients are
enabled or a hook is registered inside it. A fused layer computes q, k and v in one product, rotations as complex products, and activations
and residual sums within matrix products. Weights are packed at the first pass over few tokens, so a model is ready as soon as it is open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ...core import blocks
from ...utils.errors import LlamathError
from ..attention import ScoreParams, attend
from ..kv_cache import KVCache
from ..memory_budget import free_bytes
from ..module import Decoder, Module
from ..rope import RopeCosSin, apply_rope
from ..torch_machine import TorchMachine
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

_FORMATS: dict[str, PackingFormat] = {"int8": INT8}
"""Weight formats that a user can request by name."""
_EMBEDDING_ROWS = 64
"""Rows of an embedding read between two releases of file pages."""
_MLP_TOKENS = 1024
"""Tokens passed through a feed-forward network at once."""


class _FusedAttention:
    """Attention up to the concatenated heads; the caller applies the output projection `o` and adds the residual in one product."""

    def __init__(self, attn: Module, shared: PackedWeights) -> None:
        self.attn, s = attn, attn.spec
        self.rope = s.rope
        self.interleaves_pairs = s.rope is not None and not s.rope.interleaved and attn.q_norm is None and attn.k_norm is None
        self.projections = [x for x in (attn.q, attn.k, attn.v) if x is not None]
        plain = ConcatLinear([PlainLinear(x.weight, x.bias) for x in self.projections], lambda y, i: self._interleave(y, i, -1))
        shape = sum(len(x.weight) for x in self.projections), self.projections[0].weight.shape[1]
        self.qkv, self.o = LazyPackedLinear(shared, plain, shape, self._concat_qkv), lazy_linear(shared, attn.o)
        self.params = ScoreParams(s.head_dim**-0.5 if s.score_transform.scale is None else s.score_transform.scale)

    def _concat_qkv(self) -> tuple[Tensor, Tensor | None]:
        """Return the weights and biases of q, k and v as one matrix and one bias."""
        rows = [self._interleave(x.weight, i, 0) for i, x in enumerate(self.projections)]
        if all(x.bias is None for x in self.projections):
            return torch.cat(rows), None
        biases = [
            x.weight.new_zeros(len(x.weight)) if x.bias is None else self._interleave(x.bias, i, 0) for i, x in enumerate(self.projections)
        ]
        return torch.cat(rows), torch.cat(biases)

    def _interleave(self, x: Tensor, i: int, axis: int) -> Tensor:
        """Interleave the two halves of each rotated head of q and k, so that the channels of a pair are adjacent."""
        s = self.attn.spec
        if not (i < 2 and self.interleaves_pairs and s.rope is not None):
            return x
        at, half = (1, 1) if axis == 0 else (-1, -2)  # the axis of a head's channels, then that of its halves
        heads = x.unflatten(axis, (-1, s.head_dim))
        rotary, rest = heads.split((s.rope.dim, s.head_dim - s.rope.dim), at)
        rotary = rotary.unflatten(at, (2, -1)).transpose(half, half + 1).flatten(half, half + 1)
        return torch.cat((rotary, rest), at).flatten(at - 1, at)

    def __call__(self, m: TorchMachine, x: Tensor) -> Tensor:
        s, cache = self.attn.spec, m.cache.layers[self.attn.layer]
        assert isinstance(cache, KVCache)
        heads = self.qkv(x).unflatten(-1, (-1, s.head_dim))
        qk, v = heads.split((s.heads + s.kv_heads, s.kv_heads), -2)
        if self.interleaves_pairs and self.rope is not None:
            q, k = _apply_complex_rope(qk, m.rope_complex(self.rope)).split((s.heads, s.kv_heads), -2)
        else:
            rotation = m.rope_cos_sin(s.rope)
            q, k = qk.split((s.heads, s.kv_heads), -2)
            q, k = self._norm_and_rotate(m, q, self.attn.q_norm, rotation), self._norm_and_rotate(m, k, self.attn.k_norm, rotation)
        k, v = cache.update((k.transpose(1, 2), v.transpose(1, 2)), m.past_length)
        y = attend(q.transpose(1, 2), k, v, m.mask(self.attn.pattern, cache.capacity), self.params)
        return y.transpose(1, 2).flatten(2)

    @staticmethod
    def _norm_and_rotate(m: TorchMachine, y: Tensor, norm: Module | None, rotation: RopeCosSin | None) -> Tensor:
        return apply_rope(y if norm is None else norm(m, y), rotation)


def _apply_norm(norm: Module | None, m: TorchMachine, x: Tensor) -> Tensor:
    return x if norm is None else norm(m, x)


def _apply_complex_rope(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate adjacent pairs of channels, each by its complex number, in float32."""
    dim = 2 * rotation.shape[-1]
    rotary = x if dim == x.shape[-1] else x[..., :dim]
    pairs = torch.view_as_complex(rotary.float().unflatten(-1, (-1, 2)))
    rotated = torch.view_as_real(pairs * rotation).flatten(-2).to(x.dtype)
    return rotated if dim == x.shape[-1] else torch.cat((rotated, x[..., dim:]), -1)


class _FusedMLP:
    """A feed-forward network up to the input of `down`; the caller applies `down` and adds the residual in one product."""

    def __init__(self, mlp: Module, shared: PackedWeights) -> None:
        self.activation = mlp.spec.activation
        self.gate = None if mlp.gate is None else lazy_linear(shared, mlp.gate)
        self.up, self.down = (lazy_linear(shared, x) for x in (mlp.up, mlp.down))

    def __call__(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.up.apply_act(x, self.activation)
        return self.up.apply_mul(x, self.gate.apply_act(x, self.activation))


class _FusedLayer:
    """A layer with fused attention and, unless it is a mixture of experts, a fused feed-forward network."""

    def __init__(self, layer: Module, shared: PackedWeights) -> None:
        self.layer, self.shared, self.residual = layer, shared, layer.spec.residual_multiplier
        self.attn = _FusedAttention(layer.attn, shared)
        self.mlp = _FusedMLP(layer.mlp, shared) if _is_plain_mlp(layer.mlp) else None

    def __call__(self, m: TorchMachine, x: Tensor) -> Tensor:
        layer, self.shared.tokens = self.layer, x.numel() // x.shape[-1]
        heads = self.attn(m, _apply_norm(layer.attn_norm, m, x))
        x = self._add_residual(m, x, self.attn.o, heads, layer.attn_out_norm)
        if self.mlp is not None and self.shared.tokens > _MLP_TOKENS:
            x = torch.cat([self._add_mlp(m, part) for part in x.flatten(0, 1).split(_MLP_TOKENS)]).view_as(x)
        else:
            x = self._add_mlp(m, x)
        if self.shared.files_read:
            self.shared.release_read_pages()
        return x

    def _add_mlp(self, m: TorchMachine, x: Tensor) -> Tensor:
        normed = _apply_norm(self.layer.mlp_norm, m, x)
        if self.mlp is None:
            return x + _apply_norm(self.layer.mlp_out_norm, m, self.layer.mlp(m, normed)) * self.residual
        return self._add_residual(m, x, self.mlp.down, self.mlp(normed), self.layer.mlp_out_norm)

    def _add_residual(self, m: TorchMachine, x: Tensor, linear: CpuLinear, y: Tensor, norm: Module | None) -> Tensor:
        """Return x + norm(linear y) · residual multiplier, as one product where there is neither."""
        if norm is None and self.residual == 1.0:
            return linear.apply_add(y, x)
        return x + _apply_norm(norm, m, linear(y)) * self.residual


class _FusedEmbedding:
    """An embedding of a mapped file: file pages are released while rows are read, since each row maps in hundreds of others."""

    def __init__(self, embedding: Module, shared: PackedWeights) -> None:
        self.embedding, self.shared = embedding, shared

    def __call__(self, m: TorchMachine, ids: Tensor) -> Tensor:
        if not self.shared.reads_files_once():
            return self.embedding.compute(m, ids)
        rows = []
        for part in ids.flatten().split(_EMBEDDING_ROWS):
            rows.append(self.embedding.compute(m, part))
            self.shared.release_read_pages()
        return torch.cat(rows).unflatten(0, ids.shape)


class _FusedHead:
    """The output head as a matrix packed in slices."""

    def __init__(self, head: Module, shared: PackedWeights) -> None:
        self.shared, self.linear = shared, SplitLinear(shared, head)

    def __call__(self, _machine: TorchMachine, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.shared.release_read_pages()
        return y


class _FusedForward:
    """The fused form of a module, rebuilt when one of the module's weights has changed."""

    def __init__(self, module: Module, make: Callable[[], Callable[..., Tensor]]) -> None:
        self.make = make
        self.children = [x for x in module.modules() if x is not module]
        self.weights = [(x._parameters, name) for x in module.modules() for name in x._parameters]
        self.made: Callable[..., Tensor] | None = None
        self.versions: list[tuple[int, int]] = []

    def usable(self) -> bool:
        """Whether gradients are disabled and no hook expects to see a child module run."""
        return not (torch.is_grad_enabled() or any(x._forward_hooks or x._forward_pre_hooks for x in self.children))

    def __call__(self, *args: Any) -> Tensor:
        versions = [_weight_version(parameters[name]) for parameters, name in self.weights]
        if self.made is None or versions != self.versions:
            self.made, self.versions = self.make(), versions
        return self.made(*args)


def _weight_version(x: Tensor | None) -> tuple[int, int]:
    """Return a value that changes when the weight is replaced or modified in place."""
    return id(x), 0 if x is None or x.is_inference() else x._version


def _is_fusable(layer: Module) -> bool:
    """Whether a layer is x += attention(norm x); x += mlp(norm x) with plain attention."""
    spec = layer.spec
    if type(spec) is not blocks.Layer or type(spec.attn) is not blocks.Attention or spec.mlp is None or spec.parallel:
        return False
    return _is_plain_attention(spec.attn) and not layer.attn.shares_kv


def _is_plain_mlp(mlp: Module | None) -> TypeGuard[Module]:
    """Whether a module is exactly an MLP of linear layers."""
    if mlp is None or type(mlp.spec) is not blocks.MLP:
        return False
    return all(x is None or type(x) is blocks.Linear for x in (mlp.spec.gate, mlp.spec.up, mlp.spec.down))


def _is_plain_attention(s: blocks.Attention) -> bool:
    """Whether attention has none of the features that the fused form does not compute."""
    unsupported = (s.gate, s.sinks, s.v_norm, s.kv_layer, s.qk_preprocess.clip, s.score_transform.softcap)
    if any(x is not None for x in (*unsupported, s.score_transform.temperature)):
        return False
    if s.qk_preprocess.across_heads or s.qk_preprocess.after_rope:
        return False
    if not all(type(x) is blocks.Linear for x in (s.q, s.k, s.v, s.o)):
        return False
    return all(x is None or isinstance(x, blocks.Norm) for x in (s.q_norm, s.k_norm))


def optimize_for_cpu(module: Decoder, kind: str | None = None, release_pages: Callable[[], object] = lambda: None) -> int:
    """Use fused layers and packed weights for inference; return the number of fused layers.

    With `kind` "int8" matrices are stored in eight bits. `release_pages` is called where weights of mapped files are not needed again soon.
    """
    dtype = next(module.parameters()).dtype
    if _can_optimize(module, kind):
        install(module, default_format(dtype, LONG_GENERATION, 1) if kind is None else _FORMATS[kind], release_pages)
    elif kind is not None:
        raise LlamathError(f"{kind} weights need a single process and a CPU with VNNI", hint="use the dtype bfloat16")
    return sum(layer.fused is not None for layer in module.layers)


def maybe_pack(module: Decoder, tokens: int, rows: int = 1, release_pages: Callable[[], object] = lambda: None) -> None:
    """Pack weights if that pays off for `rows` sequences of `tokens` generated tokens, and memory suffices."""
    if not _can_optimize(module, None):
        return
    shared = module.packed_weights or install(module, None, release_pages)
    packing = default_format(module.embed.weight.dtype, tokens, rows)
    if FORMAT_ORDER.index(packing) <= FORMAT_ORDER.index(shared.format):
        return
    children = [*module.layers, *([] if module.head is None else [module.head])]
    need, free = sum(x.nbytes for child in children for x in child.parameters()), free_bytes(module.embed.weight.device)
    if free is None or need <= free:
        shared.format = packing


def install(module: Decoder, packing: PackingFormat | None, release_pages: Callable[[], object]) -> PackedWeights:
    """Set `fused` of the modules that have a fused form; return the state that these share."""
    module.packed_weights = shared = PackedWeights(packing, release_pages)
    layers = [layer for layer in module.layers if _is_fusable(layer)]
    for layer in layers:
        layer.fused = _FusedForward(layer, partial(_FusedLayer, layer, shared))
    head = module.head
    if head is not None and type(head.spec) is blocks.Linear:
        head.fused = _FusedForward(head, partial(_FusedHead, head, shared))
        module.embed.fused = _FusedForward(module.embed, partial(_FusedEmbedding, module.embed, shared))
        shared.covers_model = len(layers) == len(module.layers) and all(_is_plain_mlp(x.mlp) for x in layers)
    return shared


def _can_optimize(module: Decoder, kind: str | None) -> bool:
    """Whether the model is on one process and on a CPU that supports packed weights."""
    first = next(module.parameters())
    return module.mesh is None and first.device.type == "cpu" and cpu_supports(first.dtype, kind)


def cpu_supports(dtype: torch.dtype, kind: str | None) -> bool:
    """Whether this CPU supports packed weights in this dtype, or of this kind."""
    if not torch.backends.mkldnn.is_available() or dtype not in (torch.float32, torch.bfloat16):
        return False
    if kind == "int8":
        return bool(torch.cpu._is_vnni_supported())  # without VNNI, sums of two products may exceed sixteen bits
    return bool(dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
