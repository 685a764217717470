"""The vocabulary that families compose: every kind of Block, the rotary embeddings as facts, and small constructors.

Letters: d width, V vocabulary, L layers, H heads, K key/value heads, h head size, F feed-forward width, E experts, k experts per token.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .dims import Dim
from .record import Record
from .tree import Block, Role, Stack, Weight


class Linear(Block):
    """y = W x + b, with W `[out, in]`."""

    weight: Weight
    bias: Weight | None = None


class Embedding(Block):
    """One row per token or position, looked up."""

    weight: Weight
    scale: float = 1.0  # rows are multiplied by this when read


class Norm(Block):
    """Base of the normalisations; without `weight` it only normalises."""

    group: ClassVar[str] = "norm"
    weight: Weight | None = None
    bias: Weight | None = None
    eps: float = 1e-5


class RMSNorm(Norm):
    """x / rms(x) · (offset + w)."""

    offset: float = 0.0  # Gemma stores w − 1


class LayerNorm(Norm):
    """(x − mean) / std · w + b."""


class Rope(Record):
    """Rotary positions over the first `dim` of each head, base `theta`."""

    theta: float
    dim: int
    interleaved: bool = False  # pairs are neighbours (2i, 2i+1), not halves (i, i + dim/2)


class LinearRope(Rope):
    """Positions divided by `factor`."""

    factor: float


class DynamicRope(Rope):
    """Base grown with the sequence once it is longer than `original` (NTK)."""

    factor: float
    original: int


class YarnRope(Rope):
    """Low frequencies interpolated, high ones kept, attention rescaled (Peng et al. 2023, arXiv:2309.00071)."""

    factor: float
    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True


class Llama3Rope(Rope):
    """Llama 3.1: wavelengths beyond `original / low` divided by `factor`, those under `original / high` kept, a ramp between."""

    factor: float
    low: float
    high: float
    original: int


class LongRope(Rope):
    """One factor per frequency, short or long by the length of the sequence (Phi-3)."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    context: int
    factor: float | None = None
    attention_factor: float | None = None


class ProportionalRope(Rope):
    """Gemma 4: angles spread over the whole head, those past `dim` being zero."""

    head_dim: int
    factor: float = 1.0


class Mixer(Block):
    """Base of what mixes positions: attention and its relatives."""

    group: ClassVar[str] = "attention"


class Attention(Mixer):
    """Softmax attention: `heads` queries share `kv_heads` keys and values; H = K is multi-head, K = 1 multi-query."""

    q: Linear
    k: Linear | None  # None: keys and values are another layer's
    v: Linear | None  # None with k: values are the keys
    o: Linear
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    gate: Linear | None = None  # sigmoid of it multiplies the output of the heads
    sinks: Weight | None = None  # one learned logit per head that takes attention and gives nothing
    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None = None  # None: no rotary positions
    window: int | None = None  # how many positions back a token sees, itself included
    chunk: int | None = None  # Llama 4: attention stays inside chunks of this size
    scale: float | None = None  # of the scores; None: head_dim ** -0.5
    softcap: float | None = None  # scores become cap · tanh(scores / cap)
    alibi: bool = False
    clip: float | None = None  # q, k and v are clamped to ± this
    norm_whole: bool = False  # q_norm and k_norm see all heads as one vector
    norm_after_rope: bool = False
    v_norm: Norm | None = None
    temperature: tuple[float, float] | None = None  # Llama 4: (scale, floor) of the query's growth with position


class LatentAttention(Mixer):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values are unpacked from one small vector."""

    q: Linear | None = None  # either one matrix …
    q_down: Linear | None = None  # … or two with a norm between
    q_norm: Norm | None = None
    q_up: Linear | None = None
    kv_down: Linear  # to the latent vector and the one rotary key that all heads share
    kv_norm: Norm
    k_up: Linear
    v_up: Linear
    o: Linear
    heads: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    latent: int
    rope: Rope | None = None
    scale: float | None = None


class MLP(Block):
    """down(act(gate x) · up x), or down(act(up x)) without a gate."""

    group: ClassVar[str] = "mlp"
    gate: Linear | None = None
    up: Linear
    down: Linear
    activation: str


class MoE(Block):
    """A router that sends each token to `top_k` of the experts, and what every token passes besides."""

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"router": "router", "correction": "router", "experts": "experts"}
    router: Linear
    correction: Weight | None = None  # added to the scores for the choice only
    experts: Stack
    shared: MLP | None = None
    shared_gate: Linear | None = None
    top_k: int
    scoring: str = "softmax"  # or sigmoid; see `routing` for its order
    normalise: bool = True  # weights of the chosen sum to 1
    scaling: float = 1.0
    expert_groups: tuple[int, int] | None = None  # (groups, groups kept) before the choice
    routing: str = ""  # a family's own way, by name


class Layer(Block):
    """One decoder layer: x += mixer(norm x); x += mlp(norm x), with the norms that a family has."""

    attn_norm: Norm | None = None
    attn: Block | None = None
    attn_out_norm: Norm | None = None
    mlp_norm: Norm | None = None
    mlp: Block | None = None
    mlp_out_norm: Norm | None = None
    parallel: bool = False  # mixer and mlp read the same x
    residual: float = 1.0  # what each branch is multiplied by before it is added


class Decoder(Block):
    """The whole model, from token ids to logits."""

    groups: ClassVar[dict[str, str]] = {"embed": "embedding", "positions": "embedding", "head": "head", "mtp": "mtp"}
    apart: ClassVar[frozenset[str]] = frozenset({"mtp"})
    embed: Embedding
    positions: Embedding | None = None
    embed_norm: Norm | None = None
    layers: Stack
    norm: Norm | None = None
    head: Linear | None = None
    mtp: Stack | None = None  # layers that predict further tokens; named apart, never in the total
    width: int
    vocab: int
    context: int | None = None
    softcap: float | None = None  # of the logits
    logit_scale: float = 1.0


def weight(*shape: int, role: Role = "matmul", tied: str = "") -> Weight:
    """A leaf of this shape."""
    return Weight(shape=tuple(map(Dim.const, shape)), role=role, tied=tied)


def linear(out: int, into: int, bias: bool = False) -> Linear:
    """`[out, into]`, with a bias or without."""
    return Linear(weight=weight(out, into), bias=weight(out, role="bias") if bias else None)


def embedding(rows: int, d: int, scale: float = 1.0) -> Embedding:
    """`[rows, d]`."""
    return Embedding(weight=weight(rows, d, role="lookup"), scale=scale)


def rms(d: int, eps: float, offset: float = 0.0) -> RMSNorm:
    """A scale of d numbers."""
    return RMSNorm(weight=weight(d, role="scale"), eps=eps, offset=offset)


def layer_norm(d: int, eps: float, bias: bool = True) -> LayerNorm:
    """A scale and a shift of d numbers."""
    return LayerNorm(weight=weight(d, role="scale"), bias=weight(d, role="bias") if bias else None, eps=eps)


def gqa(d: int, heads: tuple[int, int, int], bias: bool = False, o_bias: bool | None = None, **facts: Any) -> Attention:
    """Grouped-query attention with `heads` = (H, K, h); further facts go to Attention as they are."""
    H, K, h = heads
    q, k, v = linear(H * h, d, bias), linear(K * h, d, bias), linear(K * h, d, bias)
    o = linear(d, H * h, bias if o_bias is None else o_bias)
    return Attention(**{"q": q, "k": k, "v": v, "o": o, "heads": H, "kv_heads": K, "head_dim": h} | facts)


def swiglu(d: int, F: int, activation: str = "silu", bias: bool = False) -> MLP:
    """Three matrices: gate and up `[F, d]`, down `[d, F]`."""
    return MLP(gate=linear(F, d, bias), up=linear(F, d, bias), down=linear(d, F, bias), activation=activation)


def mlp(d: int, F: int, activation: str, bias: bool = False) -> MLP:
    """Two matrices: up `[F, d]`, down `[d, F]`."""
    return MLP(up=linear(F, d, bias), down=linear(d, F, bias), activation=activation)


def decoder(V: int, d: int, layers: Stack, norm: Norm | None, tied: bool, **more: Any) -> Decoder:
    """Embedding, layers, norm and head; a tied head has no numbers of its own."""
    head = Linear(weight=weight(V, d, tied="embed.weight" if tied else ""))
    return Decoder(**{"embed": embedding(V, d), "layers": layers, "norm": norm, "head": head, "width": d, "vocab": V} | more)
