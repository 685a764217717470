"""The activations that a forward pass saves for the backward pass, block by block.

Every operation saves what its derivative needs: a linear layer its input, a norm its input, attention its queries, keys and values, a
product both factors; a tensor that several operations need is saved once. Two implementations are described. *Eager* is transformers' code
in torch: RMSNorm in float32, step by step, and SwiGLU as three operations. *Fused* has one kernel each for norms, SwiGLU and softmax, as in
Megatron: a layer with dropout then saves s·b·d·(34 + 5·H·s/d) bytes (Korthikanti et al. 2022, arXiv:2205.05198).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Literal, NamedTuple

from ...core.blocks import (
    MLP,
    Attention,
    Decoder,
    DenseAndMoE,
    LatentAttention,
    LatentMoE,
    Layer,
    LayerNorm,
    Linear,
    MoE,
    Norm,
    PerLayerInput,
    RMSNorm,
    ScaledMoE,
)
from ...core.expr import Expr
from ...core.record_type import Record
from ...core.tree import Block, Stack, fold

FP32, INDEX, MASK = 4, 8, 1
"""Bytes of an element that is saved in float32 regardless of the dtype, of an index, and of a dropout mask."""
_OUTPUT_ONLY_ACTIVATIONS = frozenset({"relu"})
"""Activation functions whose derivative needs only the output."""
_DECOMPOSED_ACTIVATIONS = {"gelu_new": 3, "quick_gelu": 1}
"""Activation functions that transformers composes of several operations, with the number of tensors saved in between."""


class Kernels(Record):
    """The implementation that runs, and its dtype."""

    flash: bool = True  # no materialized scores, only one log-sum-exp per query (Dao et al. 2022, arXiv:2205.14135)
    fused: bool = True
    dropout: bool = False  # on attention scores, attention output and MLP output, as in classic transformers
    width: int = 2  # bytes per activation
    context: int = 1  # keys per query
    fused_qkv: bool = False  # q, k and v are slices of one tensor: saving one slice saves all
    adapter_paths: frozenset[str] = frozenset()  # matrices with adapters; if there are any, all other weights are frozen
    rank: int = 0  # of the adapters


class SavedTensor(NamedTuple):
    """A saved tensor: its elements per token, and how they are sharded."""

    what: str
    elements: Expr
    bytes: int
    sharding: Literal["sequence", "tensor", "gathered"] = "tensor"  # gathered: on every rank that holds a shard of the same expert
    max_parts: int = 0  # the largest number of shards under tensor parallelism; 0: any
    is_score: bool = False  # attention scores, which selective recomputation does not save
    shared_by_batch: bool = False  # saved once for all sequences of a batch
    estimated: bool = False
    for_weight_gradient: bool = False  # needed only for the gradient of a weight, so not saved if that weight is frozen


@singledispatch
def _saved_by_block(block: Block, k: Kernels) -> list[SavedTensor]:
    """Return what a mixer or MLP saves besides its input; without a specific rule, the inputs and outputs of its linear layers."""
    linears = [x for _, x in block.children if isinstance(x, Linear)]
    return [SavedTensor("mixer states", _out(x) if x is not linears[-1] else 2 * _in(x), k.width, estimated=True) for x in linears]


def _saved_by_norm(block: Block | Stack | None, n: int, k: Kernels, heads: int = 1) -> list[SavedTensor]:
    """Return what a norm over n elements saves, applied to `heads` vectors per token."""
    one = next(iter(block), None) if isinstance(block, Stack) else block
    if not isinstance(one, Norm):
        return []
    whole, layer_norm = Expr.const(heads) * n, isinstance(one, LayerNorm)
    cut: Literal["sequence", "tensor"] = "sequence" if heads == 1 else "tensor"
    statistics = SavedTensor("statistics of norms", Expr.const(heads) * (2 if layer_norm else 1), FP32, cut)
    if k.fused or (layer_norm and one.weight):
        return [SavedTensor("inputs of norms", whole, k.width, cut), statistics]
    made = [SavedTensor("inputs of norms", whole, FP32, cut), statistics]
    if one.weight:
        scaled = FP32 if isinstance(one, RMSNorm) and one.offset else k.width
        made.append(SavedTensor("normalized, before the scale", whole, scaled, cut, for_weight_gradient=True))
    return made


def _out(x: Linear) -> Expr:
    return x.weight.shape[0]


def _in(x: Linear) -> Expr:
    return x.weight.shape[1]


@_saved_by_block.register
def _(block: Attention, k: Kernels) -> list[SavedTensor]:
    H, K, h = Expr.const(block.heads), Expr.const(block.kv_heads), Expr.const(block.head_dim)
    whole = (1, H * h, K * h) if block.qk_preprocess.across_heads else (0, h, h)
    made = _saved_by_norm(block.q_norm, whole[1], k, whole[0] or H)
    kv = (H * h, 0) if not (k.fused or k.flash) else (K * h, int(K))
    if block.k is not None:
        made += _saved_by_norm(block.k_norm, whole[2], k, whole[0] or K) + _saved_by_norm(block.v_norm, h, k, K)
        made += [SavedTensor("keys", kv[0], k.width, max_parts=kv[1]), SavedTensor("values", kv[0], k.width, max_parts=kv[1])]
    if k.fused_qkv and k.flash and not k.fused and block.rope is not None:
        made.append(SavedTensor("values, as part of q, k and v", (H + K) * h, k.width))
    if block.gate:
        made.append(SavedTensor("gate of attention", 2 * (H * h), k.width))
    made += [SavedTensor("queries", H * h, k.width), *_scores(H, k, block.score_transform.softcap)]
    return [*made, SavedTensor("output of attention", H * h, k.width, for_weight_gradient=not k.flash or block.gate is not None)]


@_saved_by_block.register
def _(block: LatentAttention, k: Kernels) -> list[SavedTensor]:
    H, n, p, v, r = (Expr.const(x) for x in (block.heads, block.nope_dim, block.rope_dim, block.v_dim, block.kv_lora_rank))
    made: list[SavedTensor] = []
    if block.q_down is not None:
        made += [
            *_saved_by_norm(block.q_norm, _out(block.q_down), k),
            SavedTensor("latents", _out(block.q_down), k.width, "sequence", for_weight_gradient=True),
        ]
    made += _saved_by_norm(block.kv_norm, r, k)
    if k.fused or k.width == FP32:  # the norm's input is a part of what holds the rotary key too
        made.append(SavedTensor("latents", p, k.width, "sequence"))
    made.append(SavedTensor("latents", r, k.width, "sequence", for_weight_gradient=True))
    made += [SavedTensor("queries", H * (n + p), k.width), SavedTensor("keys", H * (n + p), k.width), SavedTensor("values", H * v, k.width)]
    return [*made, *_scores(H, k, None), SavedTensor("output of attention", H * v, k.width, for_weight_gradient=not k.flash)]


def _scores(H: Expr, k: Kernels, softcap: float | None) -> Iterator[SavedTensor]:
    """Yield what attention saves between its two products."""
    if k.flash:
        yield SavedTensor("sums of softmax", H, FP32)
        return
    each = H * Expr("s", k.context)
    yield SavedTensor("softmax of scores", each, k.width if k.fused else FP32, is_score=True)
    if not k.fused and k.width != FP32:
        yield SavedTensor("softmax of scores, rounded", each, k.width, is_score=True)
    if softcap:
        yield SavedTensor("tanh of scores", each, k.width, is_score=True)
    if k.dropout:
        yield SavedTensor("dropout mask of scores", each, MASK, is_score=True)
        yield SavedTensor("softmax after dropout", each, k.width, is_score=True)


@_saved_by_block.register
def _(block: MLP, k: Kernels) -> list[SavedTensor]:
    F = _out(block.up)
    if block.gate is None and block.activation in _OUTPUT_ONLY_ACTIVATIONS:
        return [SavedTensor("MLP", F, k.width)]
    before = F if block.gate is None else 2 * F if k.fused else 3 * F
    before = before if k.fused else before + _DECOMPOSED_ACTIVATIONS.get(block.activation, 0) * F
    return [SavedTensor("MLP", before, k.width), SavedTensor("input of down", F, k.width, for_weight_gradient=True)]


@_saved_by_block.register
def _(block: MoE, k: Kernels) -> list[SavedTensor]:
    top, expert = Expr.const(block.top_k), next(iter(block.experts))
    assert isinstance(expert, MLP)
    d, E = _in(expert.up), Expr.const(block.experts.n)
    made = [SavedTensor("router", E + 2 * top + 1, FP32, "sequence"), SavedTensor("router", 4 * top, INDEX, "sequence")]
    if block.fp32_router and not k.fused and k.width != FP32:
        made.append(SavedTensor("router", _in(block.router), FP32, "sequence"))
    made.append(SavedTensor("inputs of experts", top * d, k.width, "gathered", for_weight_gradient=True))
    made.append(SavedTensor("outputs of experts", top * d, k.width, "gathered"))
    made += [x._replace(what="experts", elements=top * x.elements) for x in _saved_by_block(expert, k)]
    if isinstance(block, LatentMoE):
        made.append(SavedTensor("latents of experts", 2 * _out(block.latent_down), k.width, "sequence", for_weight_gradient=True))
    if isinstance(block, ScaledMoE):
        made += _saved_by_norm(block.router_norm, _in(block.router), k) + _saved_by_norm(block.expert_norm, d, k)
        made.append(SavedTensor("inputs of linear maps", d, k.width, "sequence", for_weight_gradient=True))
    if block.shared is not None:
        made += [x._replace(what="shared expert") for x in _saved_by_block(block.shared, k)]
        if block.shared_gate is not None:
            made.append(SavedTensor("shared expert", d, k.width, "sequence"))
    return made


@_saved_by_block.register
def _(block: DenseAndMoE, k: Kernels) -> list[SavedTensor]:
    d = _in(block.dense.up)
    norms = [x for one in (block.dense_norm, block.dense_out_norm, block.moe_out_norm) for x in _saved_by_norm(one, d, k)]
    return [
        *norms,
        SavedTensor("inputs of linear maps", d, k.width, "sequence", for_weight_gradient=True),
        *_saved_by_block(block.dense, k),
        *_saved_by_block(block.moe, k),
    ]


@_saved_by_block.register
def _(block: PerLayerInput, k: Kernels) -> list[SavedTensor]:
    d, p = _in(block.gate), _out(block.gate)
    read = SavedTensor("inputs of linear maps", d, k.width, "sequence", for_weight_gradient=True)
    return [read, SavedTensor("MLP", 4 * p, k.width, "sequence"), *_saved_by_norm(block.norm, d, k)]


def saved_by_layer(block: Layer, d: Expr, k: Kernels) -> list[SavedTensor]:
    """Return what a whole layer saves: in its norms, the inputs of its branches, and inside the branches."""
    made: list[SavedTensor] = []
    norms = [getattr(block, name) for name in block.fields if isinstance(getattr(block, name), Norm)]
    read = 0
    for one in norms:
        after = one is not None and one in (block.attn_out_norm, block.mlp_out_norm)
        kept = _saved_by_norm(one, d, k)
        shared = block.parallel and not after and read > 0
        made += [x for x in kept if not (shared and x.what == "inputs of norms")]
        read += not after
    own = [block.attn, block.mlp]
    inputs = sum(x is not None for x in own)
    if block.parallel and block.mlp_norm is None and not hasattr(block, "mlp_branch_norm"):
        inputs = 1
    made.append(SavedTensor("inputs of linear maps", Expr.const(inputs) * d, k.width, "sequence", for_weight_gradient=True))
    for branch in own:
        if branch is not None:
            made += _saved_by_block(branch, k)
            made += [SavedTensor("dropout masks", d, MASK, "sequence")] * k.dropout
    extra = getattr(block, "per_layer", None)
    return made + (_saved_by_block(extra, k) if extra is not None else [])


def saved_by_embedding(tree: Decoder, k: Kernels) -> list[SavedTensor]:
    """Return what the embedding saves."""
    d = Expr.const(tree.width)
    made = [SavedTensor("token ids", Expr.const(1), INDEX, "sequence", for_weight_gradient=True), *_saved_by_norm(tree.embed_norm, d, k)]
    return made + [SavedTensor("dropout masks", d, MASK, "sequence")] * k.dropout


def rotary_tables(tree: Decoder, k: Kernels) -> list[SavedTensor]:
    """Return the tables of cosines and sines, unless a fused kernel computes them on the fly."""
    if k.fused:
        return []
    ropes = {rope: rope.dim for x, _ in tree.layers.distinct() if (rope := getattr(getattr(x, "attn", None), "rope", None)) is not None}
    return [SavedTensor("rotary tables", Expr.const(2 * dim), k.width, "sequence", shared_by_batch=True) for dim in ropes.values()]


def saved_by_head(tree: Decoder, k: Kernels) -> list[SavedTensor]:
    """Return what the final norm and the head save."""
    d = Expr.const(tree.width)
    made = _saved_by_norm(tree.norm, d, k)
    if tree.head is None:
        return made
    labels = SavedTensor("token ids", Expr.const(1), INDEX, "sequence")
    return [*made, SavedTensor("inputs of linear maps", d, k.width, "sequence", for_weight_gradient=True), labels]


def saved_by_loss(tree: Decoder, k: Kernels) -> list[SavedTensor]:
    """Return what cross-entropy saves: the log-probabilities in float32."""
    if tree.head is None:
        return []
    V = _out(tree.head)
    return [SavedTensor("logarithms of probabilities", V, FP32)] + ([SavedTensor("tanh of logits", V, k.width)] if tree.softcap else [])


def saved_by_adapters(block: Block, k: Kernels, prefix: str = "layers.{l}.") -> list[SavedTensor]:
    """Return what adapters inside a layer save, with peft's float32 adapters: the inputs of A (a copy each in 16 bits) and of B."""
    made: list[SavedTensor] = []
    inputs: set[tuple[str, int]] = set()
    for x in fold(block, depth=1):
        path = f"{prefix}{x.pattern}".removesuffix(".weight")
        if path not in k.adapter_paths or not x.pattern.endswith(".weight"):
            continue
        axis = 0 if x.split is None else x.split.axis
        cut: Literal["sequence", "tensor"] = "tensor" if axis == 1 else "sequence"
        times, place = Expr.const(x.active), (path.rpartition(".")[0], axis)
        known = place in inputs or (k.flash and axis == 1 and x.group == "attention")
        if k.width != FP32 or not known:
            made.append(SavedTensor("inputs of adapters", times * x.weight.shape[1], FP32, cut))
        inputs.add(place)
        made.append(SavedTensor("inputs of adapters", times * k.rank, FP32, "sequence"))
    return made
