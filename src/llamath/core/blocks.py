"""The blocks that decoders are made of; recurrent mixers are in `mixers`.

Letters: d width, V vocabulary, L layers, H heads, K key/value heads, h head size, F MLP width, E experts, k experts per token.
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
    """A table with one row per token or position."""

    weight: Weight
    scale: float = 1.0  # factor of the rows
    offset: int = 0  # row of position 0 (OPT: 2)


class ProjectedEmbedding(Embedding):
    """An embedding narrower than the model, projected to its width (OPT-350m)."""

    projection: Linear


class ProjectedLinear(Linear):
    """A head narrower than the model: first `projection`, then `weight` (OPT-350m)."""

    projection: Linear


class Norm(Block):
    """Base of the norms; without `weight` it only normalizes."""

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
        "q_norm": Cut(-2, "heads"),  # for norms with one row per head
        "k_norm": Cut(-2, "kv_heads", "copy"),
    }
    q: Linear
    k: Linear | None  # None: keys and values of another layer are used
    v: Linear | None  # None with k: the keys are the values, before norm and rotation
    o: Linear
    q_norm: Norm | Stack | None = None  # a Stack: one norm per head
    k_norm: Norm | Stack | None = None
    v_norm: Norm | None = None
    gate: Linear | None = None  # its sigmoid multiplies the output of the heads
    sinks: Weight | None = None  # one learned logit per head, an attention sink without a value
    heads: int
    kv_heads: int
    head_dim: int
    kv_layer: int | None = None  # without k: the layer whose keys and values are used
    rope: Rope | None = None  # None: no rotary positions
    window: AttentionWindow = AttentionWindow()
    qk_preprocess: QKPreprocess = QKPreprocess()
    score_transform: ScoreTransform = ScoreTransform()

    def flops_per_pair(self, absorbed: bool = False) -> tuple[Dim, Dim]:  # noqa: ARG002
        each = 2 * (Dim.const(self.heads) * self.head_dim)
        return each, each


class LatentAttention(AttentionBase):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values are projected from one latent vector."""

    cuts: ClassVar[dict[str, Cut]] = {**dict.fromkeys(("q", "q_up", "k_up", "v_up"), Cut(0, "heads")), "o": Cut(1, "heads")}
    q: Linear | None = None  # either one matrix
    q_down: Linear | None = None  # or two with a norm between
    q_norm: Norm | None = None
    q_up: Linear | None = None
    kv_down: Linear  # to the latent vector and the rotary key that all heads share
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
    """A mixture of experts: a router sends each token to `top_k` experts; shared experts process every token."""

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"router": "router", "correction": "router", "experts": "experts"}
    expert_parallel: ClassVar[frozenset[str]] = frozenset({"experts"})
    router: Linear
    correction: Weight | None = None  # correction bias, added to the scores for the choice only
    experts: Stack
    shared: MLP | None = None
    shared_gate: Linear | None = None
    top_k: int
    scoring: str = "softmax"  # or sigmoid
    norm_topk_prob: bool = True  # routing weights of the chosen experts sum to 1
    routed_scaling_factor: float = 1.0
    expert_groups: ExpertGroups | None = None
    routing: str = ""  # name of a family-specific method
    fp32_router: bool = False  # the router computes in float32 regardless of the dtype of the model


class SparseMixerMoE(MoE):
    """Two experts, chosen one after the other; each weight is a softmax over the remaining logits x close to the best logit b,
    (b − x) / max(|x|, b) ≤ 2 · jitter (SparseMixer, arXiv:2409.12136).
    """

    jitter: float


class LatentMoE(MoE):
    """Experts in a latent space: latent_up(experts(latent_down x)); router and `shared` read x (Nemotron 3 Super)."""

    latent_down: Linear
    latent_up: Linear


class ScaledMoE(MoE):
    """Router and experts have their own input norms, the router's times `factor`; each routing weight is scaled (Gemma 4)."""

    groups: ClassVar[dict[str, str]] = {**MoE.groups, "expert_scale": "router"}
    router_norm: Norm
    expert_norm: Norm
    expert_scale: Weight
    factor: float


class DenseAndMoE(Block):
    """dense_out_norm(dense(dense_norm x)) + moe_out_norm(moe x): an MLP and experts in parallel (Gemma 4)."""

    group: ClassVar[str] = "mlp"
    dense_norm: Norm
    dense: MLP
    dense_out_norm: Norm
    moe: MoE
    moe_out_norm: Norm


class PerLayerInput(Block):
    """The per-layer embedding branch: x += norm(out(act(gate x) · e)), with the token's row e of `PerLayerEmbedding` for this layer."""

    group: ClassVar[str] = "mlp"
    gate: Linear
    out: Linear
    norm: Norm
    activation: str


class Layer(Block):
    """One decoder layer: x += mixer(norm x); x += mlp(norm x), with the norms of the family."""

    attn_norm: Norm | None = None
    attn: Block | None = None
    attn_out_norm: Norm | None = None
    mlp_norm: Norm | None = None
    mlp: Block | None = None
    mlp_out_norm: Norm | None = None
    parallel: bool = False  # mixer and mlp read the same x; an mlp without a norm uses attn_norm
    residual_multiplier: float = 1.0  # factor of each branch before it is added


class PostNormLayer(Layer):
    """Post-norm, as in the original transformer: x = attn_norm(x + mixer x); x = mlp_norm(x + mlp x) (OPT-350m)."""


class NormedResidualLayer(Layer):
    """A layer whose branches are added to their normalized input instead of x (Bloom's `apply_residual_connection_post_layernorm`)."""


class TwoNormLayer(Layer):
    """A parallel layer, x += mixer(attn_branch_norm x) + mlp(mlp_branch_norm x), with one norm per branch (Falcon 40B)."""

    attn_branch_norm: Norm
    mlp_branch_norm: Norm


class ScaledLayer(Layer):
    """A layer with an optional per-layer embedding branch, whose output is multiplied by one stored scalar (Gemma 4)."""

    groups: ClassVar[dict[str, str]] = {"scalar": "norm"}
    per_layer: PerLayerInput | None = None
    scalar: Weight


class MTPLayer(Layer):
    """A multi-token prediction layer: a decoder layer on join([embed_norm e; hidden_norm x]), with the hidden state x and the embedding e
    of the next token, then norm and the shared head. Files store embedding and head again (DeepSeek-V3, arXiv:2412.19437, 2.2).
    """

    embed: Embedding
    embed_norm: Norm
    hidden_norm: Norm
    join: Linear
    norm: Norm
    head: Linear


class PerLayerEmbedding(Block):
    """Per-layer embeddings, a narrow vector for each token and layer: (row of `embed` + norm(projection(x) · factor)) / √2.

    x is the embedding of the token (Gemma 4).
    """

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
    mtp: Stack | None = None  # multi-token prediction layers, excluded from the total
    width: int
    vocab: int
    context: int | None = None
    softcap: float | None = None  # soft cap of the logits
    logit_scale: float = 1.0  # factor of the logits, before the soft cap
