"""The vocabulary that families compose: every kind of Block that a decoder is made of.

Letters: d width, V vocabulary, L layers, H heads, K key/value heads, h head size, F feed-forward width, E experts, k experts per token.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from .attention_facts import QKPreprocess, ScoreTransform
from .expr import Dim
from .forward_pass import AttentionBase, AttentionWindow
from .positions import Rope
from .tree import Block, Cut, Stack, Weight


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


class Attention(AttentionBase):
    """Softmax attention: `heads` queries share `kv_heads` keys and values; H = K is multi-head, K = 1 multi-query."""

    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("q", "gate", "sinks"), Cut(0, "heads")),
        **dict.fromkeys(("k", "v"), Cut(0, "kv_heads", "copy")),
        "o": Cut(1, "heads"),
        "q_norm": Cut(-2, "heads"),  # one row for each head, where it is so
        "k_norm": Cut(-2, "kv_heads", "copy"),
    }
    q: Linear
    k: Linear | None  # None: keys and values are another layer's
    v: Linear | None  # None with k: values are the keys, before their norm and rotation
    o: Linear
    q_norm: Norm | Stack | None = None  # a Stack: each head has its own
    k_norm: Norm | Stack | None = None
    v_norm: Norm | None = None
    gate: Linear | None = None  # sigmoid of it multiplies the output of the heads
    sinks: Weight | None = None  # one learned logit per head that takes attention and gives nothing
    heads: int
    kv_heads: int
    head_dim: int
    kv_layer: int | None = None  # without k: whose keys and values these are
    rope: Rope | None = None  # None: no rotary positions
    window: AttentionWindow = AttentionWindow()  # which keys a query looks at
    qk_preprocess: QKPreprocess = QKPreprocess()
    score_transform: ScoreTransform = ScoreTransform()

    def flops_per_pair(self, absorbed: bool = False) -> tuple[Dim, Dim]:  # noqa: ARG002
        each = 2 * (Dim.const(self.heads) * self.head_dim)
        return each, each


class LatentAttention(AttentionBase):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values are unpacked from one small vector."""

    cuts: ClassVar[dict[str, Cut]] = {**dict.fromkeys(("q", "q_up", "k_up", "v_up"), Cut(0, "heads")), "o": Cut(1, "heads")}
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
    kv_lora_rank: int
    rope: Rope | None = None
    score_transform: ScoreTransform = ScoreTransform()

    def flops_per_pair(self, absorbed: bool = False) -> tuple[Dim, Dim]:
        H, key, value = (
            Dim.const(self.heads),
            self.kv_lora_rank if absorbed else self.nope_dim,
            self.kv_lora_rank if absorbed else self.v_dim,
        )
        return 2 * (H * key) + 2 * (H * self.rope_dim), 2 * (H * value)


class MLP(Block):
    """down(act(gate x) · up x), or down(act(up x)) without a gate."""

    group: ClassVar[str] = "mlp"
    cuts: ClassVar[dict[str, Cut]] = {"gate": Cut(0), "up": Cut(0), "down": Cut(1)}
    gate: Linear | None = None
    up: Linear
    down: Linear
    activation: str


class ClampedMLP(MLP):
    """down((up x + 1) · g · sigmoid(alpha · g)) with g = gate x clamped from above to `limit`, up x to ± limit (GPT-OSS)."""

    limit: float
    alpha: float


class ExpertGroups(NamedTuple):
    """Group-limited routing: of `groups`, the `kept` best are eligible, ranked by the sum of their `top_scores` best scores."""

    groups: int
    kept: int
    top_scores: int


class MoE(Block):
    """A router that sends each token to `top_k` of the experts, and what every token passes besides."""

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"router": "router", "correction": "router", "experts": "experts"}
    expert_parallel: ClassVar[frozenset[str]] = frozenset({"experts"})
    router: Linear
    correction: Weight | None = None  # added to the scores for the choice only
    experts: Stack
    shared: MLP | None = None
    shared_gate: Linear | None = None
    top_k: int
    scoring: str = "softmax"  # or sigmoid; see `routing` for its order
    norm_topk_prob: bool = True  # weights of the chosen sum to 1
    routed_scaling_factor: float = 1.0
    expert_groups: ExpertGroups | None = None
    routing: str = ""  # a family's own way, by name
    fp32_router: bool = False  # the router computes in float32, whatever the model's type


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
    residual_multiplier: float = 1.0  # what each branch is multiplied by before it is added


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


class MTPLayer(Layer):
    """Predicts one token further on: a layer on join([embed_norm e; hidden_norm x]), with x what the layers before it gave and e the next
    token's embedding; then norm, and the model's own head. Files store embedding and head again (DeepSeek-V3, arXiv:2412.19437, 2.2).
    """

    embed: Embedding
    embed_norm: Norm
    hidden_norm: Norm
    join: Linear
    norm: Norm
    head: Linear


class PerLayerEmbedding(Block):
    """A narrow vector for each token and layer: (row of `embed` + norm(projection(x) · factor)) / √2, x the token's embedding (Gemma 4)."""

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"embed": "embedding"}
    cuts: ClassVar[dict[str, Cut]] = {"embed": Cut(0, on_indivisible="pad")}
    embed: Embedding
    projection: Linear
    norm: Norm
    factor: float


class Decoder(Block):
    """The whole model, from token ids to logits."""

    groups: ClassVar[dict[str, str]] = {"embed": "embedding", "positions": "embedding", "head": "head", "mtp": "mtp"}
    excluded: ClassVar[frozenset[str]] = frozenset({"mtp"})
    cuts: ClassVar[dict[str, Cut]] = {"embed": Cut(0, on_indivisible="pad"), "head": Cut(0, on_indivisible="pad")}
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
