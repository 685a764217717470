"""`activations`: the numbers that a forward pass keeps for the backward one, block by block.

Every operation keeps what its derivative needs: a linear map its input, a norm its input, attention its queries, keys and values, a product
both factors; a tensor that several need is kept once. Two implementations are stated. *eager* is transformers' code as it runs in torch:
RMSNorm in float32, step by step, and SwiGLU as three operations. *fused* is a kernel for each norm, for SwiGLU and for softmax, as in
Megatron: then a layer with dropout keeps s·b·d·(34 + 5·H·s/d) bytes (Korthikanti et al. 2022, arXiv:2205.05198).
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
from ...core.expr import Dim
from ...core.record_type import Record
from ...core.tree import Block, Stack, fold

FP32, INDEX, MASK = 4, 8, 1
"""Bytes of what is kept in float32 whatever the model's type, of an index, and of one number of a dropout mask."""
BOUNDED = frozenset({"relu"})
"""Activations whose derivative needs the result alone."""
STEPS = {"gelu_new": 3, "quick_gelu": 1}
"""Activations that transformers writes out, and how many numbers their steps keep besides what comes in and goes out."""


class Kernels(Record):
    """Which implementation runs, and in which type."""

    flash: bool = True  # attention that never writes its scores, but one sum for each query (Dao et al. 2022, arXiv:2205.14135)
    fused: bool = True
    dropout: bool = False  # after attention's scores, after attention and after the MLP, as classic transformers have it
    width: int = 2  # bytes of an activation
    context: int = 1  # how many keys a query meets
    joined: bool = False  # q, k and v are slices of one product: a slice that is kept keeps the whole
    adapted: frozenset[str] = frozenset()  # matrices with adapters, by path; if there are any, the weights themselves are frozen
    rank: int = 0  # of the adapters


class Saved(NamedTuple):
    """So many numbers for each token, and what divides them over ranks."""

    what: str
    numbers: Dim
    bytes: int
    cut: Literal["sequence", "tensor", "gathered"] = "tensor"  # gathered: on every rank that has a part of the same expert
    parts: int = 0  # into how many parts tensor parallelism divides it at the most; 0: any
    core: bool = False  # of attention's scores: selective recomputation does without
    once: bool = False  # the same for every sequence of a batch
    rough: bool = False  # an estimate
    weight: bool = False  # kept for the gradient of a weight alone: not where that weight is frozen


@singledispatch
def inside(block: Block, k: Kernels) -> list[Saved]:
    """What a mixer or MLP keeps, but for its input; of one without a rule of its own, what its linear maps read and write."""
    linears = [x for _, x in block.children if isinstance(x, Linear)]
    return [Saved("mixer states", _out(x) if x is not linears[-1] else 2 * _in(x), k.width, rough=True) for x in linears]


def norm(block: Block | Stack | None, n: int, k: Kernels, heads: int = 1) -> list[Saved]:
    """A norm of vectors of n numbers, `heads` of them for each token."""
    one = next(iter(block), None) if isinstance(block, Stack) else block
    if not isinstance(one, Norm):
        return []
    whole, layer_norm = Dim.const(heads) * n, isinstance(one, LayerNorm)
    cut: Literal["sequence", "tensor"] = "sequence" if heads == 1 else "tensor"
    statistics = Saved("statistics of norms", Dim.const(heads) * (2 if layer_norm else 1), FP32, cut)
    if k.fused or (layer_norm and one.weight):
        return [Saved("inputs of norms", whole, k.width, cut), statistics]
    made = [Saved("inputs of norms", whole, FP32, cut), statistics]
    if one.weight:
        scaled = FP32 if isinstance(one, RMSNorm) and one.offset else k.width
        made.append(Saved("normalised, before the scale", whole, scaled, cut, weight=True))
    return made


def _out(x: Linear) -> Dim:
    return x.weight.shape[0]


def _in(x: Linear) -> Dim:
    return x.weight.shape[1]


@inside.register
def _(block: Attention, k: Kernels) -> list[Saved]:
    H, K, h = Dim.const(block.heads), Dim.const(block.kv_heads), Dim.const(block.head_dim)
    whole = (1, H * h, K * h) if block.qk_preprocess.across_heads else (0, h, h)
    made = norm(block.q_norm, whole[1], k, whole[0] or H)
    kv = (H * h, 0) if not (k.fused or k.flash) else (K * h, int(K))
    if block.k is not None:
        made += norm(block.k_norm, whole[2], k, whole[0] or K) + norm(block.v_norm, h, k, K)
        made += [Saved("keys", kv[0], k.width, parts=kv[1]), Saved("values", kv[0], k.width, parts=kv[1])]
    if k.joined and k.flash and not k.fused and block.rope is not None:
        made.append(Saved("values, as part of q, k and v", (H + K) * h, k.width))
    if block.gate:
        made.append(Saved("gate of attention", 2 * (H * h), k.width))
    made += [Saved("queries", H * h, k.width), *_scores(H, k, block.score_transform.softcap)]
    return [*made, Saved("output of attention", H * h, k.width, weight=not k.flash or block.gate is not None)]


@inside.register
def _(block: LatentAttention, k: Kernels) -> list[Saved]:
    H, n, p, v, r = (Dim.const(x) for x in (block.heads, block.nope_dim, block.rope_dim, block.v_dim, block.kv_lora_rank))
    made: list[Saved] = []
    if block.q_down is not None:
        made += [*norm(block.q_norm, _out(block.q_down), k), Saved("latents", _out(block.q_down), k.width, "sequence", weight=True)]
    made += norm(block.kv_norm, r, k)
    if k.fused or k.width == FP32:  # the norm's input is a part of what holds the rotary key too
        made.append(Saved("latents", p, k.width, "sequence"))
    made.append(Saved("latents", r, k.width, "sequence", weight=True))
    made += [Saved("queries", H * (n + p), k.width), Saved("keys", H * (n + p), k.width), Saved("values", H * v, k.width)]
    return [*made, *_scores(H, k, None), Saved("output of attention", H * v, k.width, weight=not k.flash)]


def _scores(H: Dim, k: Kernels, softcap: float | None) -> Iterator[Saved]:
    """What attention keeps between its two products."""
    if k.flash:
        yield Saved("sums of softmax", H, FP32)
        return
    each = H * Dim("s", k.context)
    yield Saved("softmax of scores", each, k.width if k.fused else FP32, core=True)
    if not k.fused and k.width != FP32:
        yield Saved("softmax of scores, rounded", each, k.width, core=True)
    if softcap:
        yield Saved("tanh of scores", each, k.width, core=True)
    if k.dropout:
        yield Saved("dropout mask of scores", each, MASK, core=True)
        yield Saved("softmax after dropout", each, k.width, core=True)


@inside.register
def _(block: MLP, k: Kernels) -> list[Saved]:
    F = _out(block.up)
    if block.gate is None and block.activation in BOUNDED:
        return [Saved("MLP", F, k.width)]
    before = F if block.gate is None else 2 * F if k.fused else 3 * F
    before = before if k.fused else before + STEPS.get(block.activation, 0) * F
    return [Saved("MLP", before, k.width), Saved("input of down", F, k.width, weight=True)]


@inside.register
def _(block: MoE, k: Kernels) -> list[Saved]:
    top, expert = Dim.const(block.top_k), next(iter(block.experts))
    assert isinstance(expert, MLP)
    d, E = _in(expert.up), Dim.const(block.experts.n)
    made = [Saved("router", E + 2 * top + 1, FP32, "sequence"), Saved("router", 4 * top, INDEX, "sequence")]
    if block.fp32_router and not k.fused and k.width != FP32:
        made.append(Saved("router", _in(block.router), FP32, "sequence"))
    made.append(Saved("inputs of experts", top * d, k.width, "gathered", weight=True))
    made.append(Saved("outputs of experts", top * d, k.width, "gathered"))
    made += [x._replace(what="experts", numbers=top * x.numbers) for x in inside(expert, k)]
    if isinstance(block, LatentMoE):
        made.append(Saved("latents of experts", 2 * _out(block.latent_down), k.width, "sequence", weight=True))
    if isinstance(block, ScaledMoE):
        made += norm(block.router_norm, _in(block.router), k) + norm(block.expert_norm, d, k)
        made.append(Saved("inputs of linear maps", d, k.width, "sequence", weight=True))
    if block.shared is not None:
        made += [x._replace(what="shared expert") for x in inside(block.shared, k)]
        if block.shared_gate is not None:
            made.append(Saved("shared expert", d, k.width, "sequence"))
    return made


@inside.register
def _(block: DenseAndMoE, k: Kernels) -> list[Saved]:
    d = _in(block.dense.up)
    norms = [x for one in (block.dense_norm, block.dense_out_norm, block.moe_out_norm) for x in norm(one, d, k)]
    return [*norms, Saved("inputs of linear maps", d, k.width, "sequence", weight=True), *inside(block.dense, k), *inside(block.moe, k)]


@inside.register
def _(block: PerLayerInput, k: Kernels) -> list[Saved]:
    d, p = _in(block.gate), _out(block.gate)
    read = Saved("inputs of linear maps", d, k.width, "sequence", weight=True)
    return [read, Saved("MLP", 4 * p, k.width, "sequence"), *norm(block.norm, d, k)]


def layer(block: Layer, d: Dim, k: Kernels) -> list[Saved]:
    """A whole layer: its norms, what its branches read, and what they keep inside."""
    made: list[Saved] = []
    norms = [getattr(block, name) for name in block.fields if isinstance(getattr(block, name), Norm)]
    read = 0
    for one in norms:
        after = one is not None and one in (block.attn_out_norm, block.mlp_out_norm)
        kept = norm(one, d, k)
        shared = block.parallel and not after and read > 0
        made += [x for x in kept if not (shared and x.what == "inputs of norms")]
        read += not after
    own = [block.attn, block.mlp]
    inputs = sum(x is not None for x in own)
    if block.parallel and block.mlp_norm is None and not hasattr(block, "mlp_branch_norm"):
        inputs = 1
    made.append(Saved("inputs of linear maps", Dim.const(inputs) * d, k.width, "sequence", weight=True))
    for branch in own:
        if branch is not None:
            made += inside(branch, k)
            made += [Saved("dropout masks", d, MASK, "sequence")] * k.dropout
    extra = getattr(block, "per_layer", None)
    return made + (inside(extra, k) if extra is not None else [])


def before(tree: Decoder, k: Kernels) -> list[Saved]:
    """What the embedding keeps."""
    d = Dim.const(tree.width)
    made = [Saved("token ids", Dim.const(1), INDEX, "sequence", weight=True), *norm(tree.embed_norm, d, k)]
    return made + [Saved("dropout masks", d, MASK, "sequence")] * k.dropout


def rotary(tree: Decoder, k: Kernels) -> list[Saved]:
    """The tables of cosines and sines, where no kernel makes them as it goes."""
    if k.fused:
        return []
    ropes = {rope: rope.dim for x, _ in tree.layers.distinct() if (rope := getattr(getattr(x, "attn", None), "rope", None)) is not None}
    return [Saved("rotary tables", Dim.const(2 * dim), k.width, "sequence", once=True) for dim in ropes.values()]


def after(tree: Decoder, k: Kernels) -> list[Saved]:
    """What the last norm and the head keep."""
    d = Dim.const(tree.width)
    made = norm(tree.norm, d, k)
    if tree.head is None:
        return made
    labels = Saved("token ids", Dim.const(1), INDEX, "sequence")
    return [*made, Saved("inputs of linear maps", d, k.width, "sequence", weight=True), labels]


def loss(tree: Decoder, k: Kernels) -> list[Saved]:
    """What cross-entropy keeps of the logits: the logarithms of all probabilities, in float32."""
    if tree.head is None:
        return []
    V = _out(tree.head)
    return [Saved("logarithms of probabilities", V, FP32)] + ([Saved("tanh of logits", V, k.width)] if tree.softcap else [])


def adapters(block: Block, k: Kernels, prefix: str = "layers.{l}.") -> list[Saved]:
    """What adapters inside a layer keep, as peft has them in float32: the input of A, in 16 bits a copy for each, and that of B."""
    made: list[Saved] = []
    inputs: set[tuple[str, int]] = set()
    for x in fold(block, depth=1):
        path = f"{prefix}{x.pattern}".removesuffix(".weight")
        if path not in k.adapted or not x.pattern.endswith(".weight"):
            continue
        axis = 0 if x.split is None else x.split.axis
        cut: Literal["sequence", "tensor"] = "tensor" if axis == 1 else "sequence"
        times, place = Dim.const(x.active), (path.rpartition(".")[0], axis)
        known = place in inputs or (k.flash and axis == 1 and x.group == "attention")
        if k.width != FP32 or not known:
            made.append(Saved("inputs of adapters", times * x.weight.shape[1], FP32, cut))
        inputs.add(place)
        made.append(Saved("inputs of adapters", times * k.rank, FP32, "sequence"))
    return made
