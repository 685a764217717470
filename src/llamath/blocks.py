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
    offset: int = 0  # of positions: the row of position 0 (OPT: 2)


class ProjectedEmbedding(Embedding):
    """Rows narrower than the model, widened by a matrix (OPT-350m)."""

    projection: Linear


class ProjectedLinear(Linear):
    """A head narrower than the model: `projection` first, then `weight` (OPT-350m)."""

    projection: Linear


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


class SteppedRope(Rope):
    """Base times α^(dim / (dim − 2)) once a prompt of n is longer than `original`, α = 2^⌈log₂(n / original) + 1⌉ − 1 (Qwen 1)."""

    original: int


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
    scales: tuple[float, float] | None = None  # of cos and sin, for short sequences and for long, if not attention_factor (Phi-3.5-MoE)


class ProportionalRope(Rope):
    """Gemma 4: angles spread over the whole head, those past `dim` being zero."""

    head_dim: int
    factor: float = 1.0


class Alibi(Record):
    """scale · 2^(−max·i/H) · (key's position) is added to head i's scaled scores; where H is no power of two, the slopes of the power below
    and between them every other one of the power above (Press et al. 2022, arXiv:2108.12409).
    """

    max: float = 8.0
    scale: float = 1.0
    rounded: bool = False  # slopes and their products are rounded to bfloat16 (Falcon)


class Temperature(Record):
    """Queries at position t are multiplied by 1 + scale · ln(1 + ⌊(t + offset) / floor⌋) (Llama 4, Ministral 3)."""

    scale: float
    floor: int
    offset: int = 0


class LogTemperature(Record):
    """Queries at position t are multiplied by ln(t + 1) / ln(original), once that is more than 1 (Qwen 1's `use_logn_attn`)."""

    original: int


class Mixer(Block):
    """Base of what mixes positions: attention and its relatives."""

    group: ClassVar[str] = "attention"


class Attention(Mixer):
    """Softmax attention: `heads` queries share `kv_heads` keys and values; H = K is multi-head, K = 1 multi-query."""

    q: Linear
    k: Linear | None  # None: keys and values are another layer's
    v: Linear | None  # None with k: values are the keys, before their norm and rotation
    o: Linear
    q_norm: Norm | Stack | None = None  # a Stack: each head has its own
    k_norm: Norm | Stack | None = None
    gate: Linear | None = None  # sigmoid of it multiplies the output of the heads
    sinks: Weight | None = None  # one learned logit per head that takes attention and gives nothing
    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None = None  # None: no rotary positions
    window: int | None = None  # how many positions back a token sees, itself included
    causal: bool = True  # False: it sees as many ahead
    kv_layer: int | None = None  # without k: whose keys and values these are
    chunk: int | None = None  # Llama 4: attention stays inside chunks of this size
    scale: float | None = None  # of the scores; None: head_dim ** -0.5
    softcap: float | None = None  # scores become cap · tanh(scores / cap)
    alibi: Alibi | None = None
    clip: float | None = None  # q, k and v are clamped to ± this
    norm_whole: bool = False  # q_norm and k_norm see all heads as one vector
    norm_after_rope: bool = False
    v_norm: Norm | None = None
    temperature: Temperature | LogTemperature | None = None


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
    scale: float | None = None  # of the scores; None: (nope_dim + rope_dim) ** -0.5
    temperature: Temperature | None = None


class MLP(Block):
    """down(act(gate x) · up x), or down(act(up x)) without a gate."""

    group: ClassVar[str] = "mlp"
    gate: Linear | None = None
    up: Linear
    down: Linear
    activation: str


class ClampedMLP(MLP):
    """down((up x + 1) · g · sigmoid(alpha · g)) with g = gate x clamped from above to `limit`, up x to ± limit (GPT-OSS)."""

    limit: float
    alpha: float


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
    expert_groups: tuple[int, int, int] | None = None  # (groups, groups kept, how many best scores rank a group) before the choice
    routing: str = ""  # a family's own way, by name


class SparseMixerMoE(MoE):
    """The best expert, then the best of the others; each has its softmax among the logits x not yet chosen from that are near the best b,
    (b − x) / max(|x|, b) ≤ 2 · jitter (SparseMixer, arXiv:2409.12136).
    """

    jitter: float


class LatentMoE(MoE):
    """The experts read latent_down x, and their sum passes latent_up; router and `shared` read x itself (Nemotron 3 Super)."""

    latent_down: Linear
    latent_up: Linear


class ScaledMoE(MoE):
    """Router and experts read x through norms of their own, the router's times `factor`; each expert's share is scaled (Gemma 4)."""

    groups: ClassVar[dict[str, str]] = {**MoE.groups, "expert_scale": "router"}
    router_norm: Norm
    expert_norm: Norm
    expert_scale: Weight
    factor: float


class DenseAndMoE(Block):
    """dense_out_norm(dense(dense_norm x)) + moe_out_norm(moe x): an MLP and experts side by side (Gemma 4)."""

    group: ClassVar[str] = "mlp"
    dense_norm: Norm
    dense: MLP
    dense_out_norm: Norm
    moe: MoE
    moe_out_norm: Norm


class PerLayerInput(Block):
    """A layer's third branch: x += norm(out(act(gate x) · e)), with e what `PerLayerEmbedding` has for the token in this layer."""

    group: ClassVar[str] = "mlp"
    gate: Linear
    out: Linear
    norm: Norm
    activation: str


class Layer(Block):
    """One decoder layer: x += mixer(norm x); x += mlp(norm x), with the norms that a family has."""

    attn_norm: Norm | None = None
    attn: Block | None = None
    attn_out_norm: Norm | None = None
    mlp_norm: Norm | None = None
    mlp: Block | None = None
    mlp_out_norm: Norm | None = None
    parallel: bool = False  # mixer and mlp read the same x; an mlp without a norm reads it through attn_norm
    residual: float = 1.0  # what each branch is multiplied by before it is added


class PostNormLayer(Layer):
    """The original transformer's order: x = attn_norm(x + mixer x); x = mlp_norm(x + mlp x) (OPT-350m)."""


class NormedResidualLayer(Layer):
    """The branches are added to the normed x that they read, not to x (Bloom's `apply_residual_connection_post_layernorm`)."""


class TwoNormLayer(Layer):
    """A parallel layer, x += mixer(attn_branch_norm x) + mlp(mlp_branch_norm x), whose norms files name in their own way (Falcon 40B)."""

    attn_branch_norm: Norm
    mlp_branch_norm: Norm


class ScaledLayer(Layer):
    """A layer with a third branch, perhaps, and with a result that is multiplied by one stored number (Gemma 4)."""

    groups: ClassVar[dict[str, str]] = {"scalar": "norm"}
    per_layer: PerLayerInput | None = None
    scalar: Weight


class PerLayerEmbedding(Block):
    """A narrow vector for each token and layer: (row of `embed` + norm(projection(x) · factor)) / √2, x the token's embedding (Gemma 4)."""

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"embed": "embedding"}
    embed: Embedding
    projection: Linear
    norm: Norm
    factor: float


class Decoder(Block):
    """The whole model, from token ids to logits."""

    groups: ClassVar[dict[str, str]] = {"embed": "embedding", "positions": "embedding", "head": "head", "mtp": "mtp"}
    apart: ClassVar[frozenset[str]] = frozenset({"mtp"})
    embed: Embedding
    positions: Embedding | None = None
    embed_norm: Norm | None = None
    per_layer: PerLayerEmbedding | None = None
    layers: Stack
    norm: Norm | None = None
    head: Linear | None = None
    mtp: Stack | None = None  # layers that predict further tokens; named apart, never in the total
    width: int
    vocab: int
    context: int | None = None
    softcap: float | None = None  # of the logits
    logit_scale: float = 1.0  # before that


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
    parts: dict[str, Any] = {"q": q, "k": k, "v": v, "o": o, "heads": H, "kv_heads": K, "head_dim": h}
    return Attention(**parts | facts)


def mla(d: int, heads: tuple[Dim, Dim, Dim, Dim], ranks: tuple[Dim | None, Dim], bias: bool = False, **facts: Any) -> LatentAttention:
    """Latent attention with `heads` = (H, a key's size of content, of position, a value's size) and `ranks` of q's and kv's latents."""
    (H, n, p, v), (s, r) = heads, ranks
    q = {"q": linear(H * (n + p), d)}
    low = {} if s is None else {"q_down": linear(s, d, bias), "q_norm": rms(s, 1e-6), "q_up": linear(H * (n + p), s)}
    kv = {"kv_down": linear(r + p, d, bias), "kv_norm": rms(r, 1e-6), "k_up": linear(H * n, r), "v_up": linear(H * v, r)}
    parts: dict[str, Any] = {**(low or q), **kv, "o": linear(d, H * v, bias)}
    return LatentAttention(**parts, heads=H, nope_dim=n, rope_dim=p, v_dim=v, latent=r, **facts)


def swiglu(d: int, F: int, activation: str = "silu", bias: bool = False) -> MLP:
    """Three matrices: gate and up `[F, d]`, down `[d, F]`."""
    return MLP(gate=linear(F, d, bias), up=linear(F, d, bias), down=linear(d, F, bias), activation=activation)


def mlp(d: int, F: int, activation: str, bias: bool = False) -> MLP:
    """Two matrices: up `[F, d]`, down `[d, F]`."""
    return MLP(up=linear(F, d, bias), down=linear(d, F, bias), activation=activation)


def unembedding(V: int, d: int, tied: bool, bias: bool = False) -> Linear:
    """The head `[V, d]`; a tied one has no matrix of its own."""
    return Linear(weight=weight(V, d, tied="embed.weight" if tied else ""), bias=weight(V, role="bias") if bias else None)


def decoder(V: int, d: int, layers: Stack, norm: Norm | None, tied: bool, **more: Any) -> Decoder:
    """Embedding, layers, norm and head; a tied head has no numbers of its own."""
    head = unembedding(V, d, tied)
    parts: dict[str, Any] = {"embed": embedding(V, d), "layers": layers, "norm": norm, "head": head, "width": d, "vocab": V}
    return Decoder(**parts | more)
