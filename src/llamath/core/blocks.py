"""The blocks that decoders are made of; recurrent mixers are in `mixers`.

Letters: d width, V vocabulary, L layers, H heads, K key/value heads, h head size, F MLP width, E
experts, k experts per token.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from ..utils.errors import ImpossibleModel, safe
from ..utils.named_tuple import NamedTuple
from .attention_facts import AttentionWindow, QKPreprocess, ScoreTransform
from .expr import as_number
from .machine import Machine, X
from .positions import Rope
from .tree import Block, Cut, Stack, Weight, runs_again


class Linear(Block):
    """y = W x + b, with W `[out, in]`."""

    is_linear_layer: ClassVar[bool] = True
    weight: Weight
    bias: Weight | None = None

    def forward(self, m: Machine[X], x: X) -> X:
        return m.linear(x, self.weight, self.bias)


class Embedding(Block):
    """A table with one row per token or position."""

    weight: Weight
    scale: float = 1.0  # factor of the rows
    offset: int = 0  # row of position 0 (OPT: 2)

    def forward(self, m: Machine[X], ids: X) -> X:
        return m.scale(m.lookup(ids, self.weight, self.offset), self.scale)


class SinusoidalEmbedding(Embedding):
    """An embedding with the sines and cosines of the token's position added, which are computed,
    not stored (XGLM, CTRL).
    """

    position_offset: int
    steps: int  # the frequencies fall from 1 to 1/10000 in this number of steps

    def forward(self, m: Machine[X], ids: X) -> X:
        return m.add_sinusoids(Embedding.forward(self, m, ids), self.position_offset, self.steps)


class ExtendedEmbedding(Embedding):
    """A table whose last rows, for tokens that no text has, are stored apart and not looked up
    here (Molmo 2).
    """

    extra: Weight


class TransformedHead(Linear):
    """W norm(act(dense x)) + b (ModernBERT, BLIP)."""

    dense: Linear
    norm: Norm
    activation: str

    def forward(self, m: Machine[X], x: X) -> X:
        return Linear.forward(self, m, self.norm(m, m.act(self.dense(m, x), self.activation)))


class NormedLinear(Linear):
    """W norm(x) + b (BitNet)."""

    norm: Norm

    def forward(self, m: Machine[X], x: X) -> X:
        return Linear.forward(self, m, self.norm(m, x))


class Norm(Block):
    """Base of the norms; without `weight` it only normalizes."""

    group: ClassVar[str] = "norm"
    weight: Weight | None = None
    bias: Weight | None = None
    eps: float = 1e-5


class RMSNorm(Norm):
    """x / rms(x) · (offset + w)."""

    layout_sizes: ClassVar[dict[str, str]] = {"offset": "offset"}
    offset: float = 0.0  # Gemma stores w − 1

    def forward(self, m: Machine[X], x: X) -> X:
        return m.rms_norm(x, self.weight, self.eps, self.offset)


class LayerNorm(Norm):
    """(x − mean) / std · (offset + w) + b."""

    offset: float = 0.0  # Nemotron stores w − 1

    def forward(self, m: Machine[X], x: X) -> X:
        return m.layer_norm(x, self.weight, self.bias, self.eps, self.offset)


class AttentionBase(Block):
    """Base of the mixers in which every query attends to the keys in its window."""

    group: ClassVar[str] = "attention"
    short_name: ClassVar[str] = "attention"
    cached_rows: ClassVar[tuple[str, ...]] = ("keys", "values")  # what it caches for each token
    has_relative_positions: ClassVar[bool] = False  # a learned bias by distance
    # field with the number of channels of which `rope` rotates the first ones
    rotary_part: ClassVar[str] = "head_dim"
    rotates_last: ClassVar[bool] = False  # or the last ones
    kv_layer: int | None = None  # the layer whose keys and values are used; None: the mixer's own
    window: AttentionWindow = AttentionWindow()
    rope: Rope | None = None  # None: no rotary positions
    score_transform: ScoreTransform = ScoreTransform()
    block_size: int = 1  # consecutive keys that an indexer chooses together

    def __post_init__(self) -> None:
        if self.rope is not None:
            self.rope.check_head(
                getattr(self, self.rotary_part), last=getattr(self, "rope_last", self.rotates_last)
            )

    @property
    def shared_rows(self) -> tuple[tuple[int, int], ...]:
        """Heads and size of each cached row of another layer that it reads."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot use keys and values of another layer"
        )


class Attention(AttentionBase):
    """Softmax attention: `heads` queries share `kv_heads` keys and values; H = K is multi-head,
    K = 1 multi-query.
    """

    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("q", "gate", "sinks"), Cut(0, "heads")),
        **dict.fromkeys(("k", "v"), Cut(0, "kv_heads", "copy")),
        "o": Cut(1, "heads"),
        "q_norm": Cut(-2, "heads"),  # for norms with one row per head
        "k_norm": Cut(-2, "kv_heads", "copy"),
    }
    layout_sizes: ClassVar[dict[str, str]] = {
        "groups": "kv_heads",
        "heads": "heads",
        "head_dim": "head_dim",
    }
    computes_on_shards: ClassVar[bool] = True
    q: Linear
    k: Linear | None  # None: keys and values of another layer are used
    v: Linear | None  # None with k: the keys are the values, before norm and rotation
    o: Linear
    q_norm: Norm | Stack | None = None  # a Stack: one norm per head
    k_norm: Norm | Stack | None = None
    v_norm: Norm | None = None
    output_norm: Norm | None = None  # of the output of each head, before the gate
    # its activation multiplies the output of the heads: one number for each, or for each channel
    gate: Linear | None = None
    sinks: Weight | None = None  # one learned logit per head, an attention sink without a value
    # chooses blocks of keys; None: a query attends to all in its window
    indexer: AttentionBase | None = None
    heads: int
    kv_heads: int
    head_dim: int
    qk_preprocess: QKPreprocess = QKPreprocess()
    gate_activation: str = "sigmoid"  # softplus is computed in float32
    gate_per_head: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kv_heads < 1 or self.heads < 1 or self.heads % self.kv_heads:
            hint = "each key/value head serves the same number of query heads"
            raise ImpossibleModel(
                f"{int(self.kv_heads)} key/value heads do not divide "
                f"{int(self.heads)} attention heads",
                hint=hint,
            )

    @property
    def shared_rows(self) -> tuple[tuple[int, int], ...]:
        return ((self.kv_heads, self.head_dim),) * 2

    def forward(self, m: Machine[X], x: X) -> X:
        q = norm_and_rotate(self, m, self.q_norm, project_heads(self, m, self.q, x))  # (B, T, H, h)
        q = m.scale_by_position(q, self.score_transform.temperature)
        if self.k is None:
            k, v = m.read_cache(self)
        else:
            k = project_heads(self, m, self.k, x)  # (B, T, K, h)
            v = k if self.v is None else project_heads(self, m, self.v, x)
            k, v = norm_and_rotate(self, m, self.k_norm, k), norm_heads_of(self, m, self.v_norm, v)
            k, v = m.update_cache(self, k, v)  # (B, S, K, h)
        blocks = None if self.indexer is None else self.indexer(m, x)
        y = m.attention(self, q, k, v, self.head_dim, self.sinks, blocks)  # (B, T, H, h)
        y = y if self.output_norm is None else m.norm_heads(self.output_norm, y)
        if self.gate is None:
            return self.o(m, m.merge_heads(y))
        if self.gate_per_head:
            gate = m.split_heads(_attention_gate(self, m, self.gate, x), 1)
            return self.o(m, m.merge_heads(m.multiply(y, gate)))
        y = m.merge_heads(y)
        return self.o(m, m.multiply(y, _attention_gate(self, m, self.gate, x)))


class MLP(Block):
    """down(act(gate x) · up x), or down(act(up x)) without a gate."""

    group: ClassVar[str] = "mlp"
    cuts: ClassVar[dict[str, Cut]] = {"gate": Cut(0), "up": Cut(0), "down": Cut(1)}
    computes_on_shards: ClassVar[bool] = True
    gate: Linear | None = None
    up: Linear
    down: Linear
    activation: str

    def forward(self, m: Machine[X], x: X) -> X:
        if self.gate is None:
            return self.down(m, m.act(self.up(m, x), self.activation))
        return self.down(m, m.gated(self.gate(m, x), self.up(m, x), self.activation))


class ClampedMLP(MLP):
    """down((up x + 1) · g · sigmoid(alpha · g)) with g = gate x clamped from above to `limit`,
    up x to ± limit (GPT-OSS).
    """

    computes_on_shards: ClassVar[bool] = True
    limit: float
    alpha: float

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.gate is not None
        return self.down(m, m.clamped_gated(self.gate(m, x), self.up(m, x), self.limit, self.alpha))


class LimitedMLP(MLP):
    """down(act(gate x) · up x) with both factors clamped to ± limit (Step 3.5)."""

    limit: float
    gate_limit: float | None = None  # of act(gate x), where it is another one

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.gate is not None
        gate = m.clamp(
            m.act(self.gate(m, x), self.activation),
            self.limit if self.gate_limit is None else self.gate_limit,
        )
        return self.down(m, m.multiply(gate, m.clamp(self.up(m, x), self.limit)))


class ExpertGroups(NamedTuple):
    """Group-limited routing: of `groups`, the `kept` best are eligible, ranked by the sum of
    their `top_scores` best scores.
    """

    groups: int
    kept: int
    top_scores: int
    other_score: float = -inf  # of the experts in the other groups


_CHOICE = "num_experts_per_tok, n_group and topk_group describe the choice"
SCORINGS = ("softmax", "sigmoid", "sqrtsoftplus")
"""Functions of a router's logits whose values are the routing weights."""


def check_routing(moe: MoE) -> None:
    """Refuse to choose more experts than a router has outputs or the kept groups hold, groups
    that do not divide them, and unknown functions of the logits.
    """
    experts, top_k, groups = moe.router.weight.shape[0], moe.top_k, moe.expert_groups
    if moe.scoring not in SCORINGS:
        raise ImpossibleModel(
            f"scoring_func is the unknown {safe(repr(moe.scoring), 60)}",
            hint=f"known: {', '.join(SCORINGS)}",
        )
    if not 0 < top_k <= experts:
        raise ImpossibleModel(
            f"{top_k} experts are chosen for a token, expected at most the {experts} of a layer",
            hint=_CHOICE,
        )
    if groups is None:
        return
    if groups.groups < 1 or experts % groups.groups:
        raise ImpossibleModel(
            f"{groups.groups} groups do not divide {experts} experts", hint=_CHOICE
        )
    size = experts // groups.groups
    if not 0 < groups.kept <= groups.groups or groups.top_scores > size:
        found = (
            f"{groups.kept} of {groups.groups} groups of {size} are kept, by the "
            f"{groups.top_scores} best experts of each"
        )
        raise ImpossibleModel(f"the choice of experts is not possible: {found}", hint=_CHOICE)
    if top_k > groups.kept * size:
        raise ImpossibleModel(
            f"{top_k} experts are chosen for a token, of only {groups.kept * size} in the "
            f"{groups.kept} of {groups.groups} groups that are kept",
            hint=_CHOICE,
        )


class MoE(Block):
    """A mixture of experts: a router sends each token to `top_k` experts; shared experts process
    every token.
    """

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {
        "router": "router",
        "correction": "router",
        "experts": "experts",
    }
    expert_parallel: ClassVar[frozenset[str]] = frozenset({"experts"})
    routes_by_token: ClassVar[bool] = False  # by a table, with one row for each token id
    router: Linear
    correction: Weight | None = None  # correction bias, added to the scores for the choice only
    experts: Stack
    shared: MLP | None = None
    shared_gate: Linear | None = None
    top_k: int
    scoring: str = "softmax"  # or sigmoid, sqrtsoftplus
    norm_topk_prob: bool = True  # routing weights of the chosen experts sum to 1
    routed_scaling_factor: float = 1.0
    expert_groups: ExpertGroups | None = None
    routing: str = ""  # name of a family-specific method
    fp32_router: bool = False  # the router computes in float32 regardless of the dtype of the model
    router_softcap: float | None = None  # soft cap of the router's logits
    choice_by_logits: bool = False  # the correction is added to the logits, not to the scores
    output_factor: float = 1.0  # of the sum of routed and shared experts
    # further outputs of the router, for experts without weights that return their input (LongCat)
    zero_experts: int = 0

    def __post_init__(self) -> None:
        check_routing(self)

    @property
    def shared_count(self) -> int | None:
        """The number of shared experts that are stored one by one; None: `shared` is all of
        them.
        """
        return None

    def forward(self, m: Machine[X], x: X) -> X:
        chosen, weights = m.route(router_logits(self, m, x), self.correction, self)  # (B, T, k)
        return add_shared_experts(self, m, x, m.experts(self, self.experts, x, chosen, weights))


class ModalityMoE(MoE):
    """Experts for tokens of text, which are computed here, and others with a router of their own
    for tokens of images (ERNIE 4.5 VL).
    """

    groups: ClassVar[dict[str, str]] = {
        **MoE.groups,
        "vision_router": "router",
        "vision_correction": "router",
        "vision_experts": "experts",
    }
    expert_parallel: ClassVar[frozenset[str]] = frozenset({"experts", "vision_experts"})
    vision_router: Linear
    vision_correction: Weight
    vision_experts: Stack


class LatentMoE(MoE):
    """Experts in a latent space: latent_up(experts(latent_down x)); router and `shared` read x
    (Nemotron 3 Super).
    """

    latent_down: Linear
    latent_norm: Norm | None = None  # of the sum of the chosen experts' outputs (Kimi K3)
    latent_up: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        chosen, weights = m.route(router_logits(self, m, x), self.correction, self)
        y = m.experts(self, self.experts, self.latent_down(m, x), chosen, weights)
        return add_shared_experts(
            self, m, x, self.latent_up(m, apply_optional(self.latent_norm, m, y))
        )


class PerLayerInput(Block):
    """The per-layer embedding branch: x += norm(out(act(gate x) · e)), with the token's row e of
    `PerLayerEmbedding` for this layer.
    """

    group: ClassVar[str] = "mlp"
    gate: Linear
    out: Linear
    norm: Norm
    activation: str

    def forward(self, m: Machine[X], x: X, e: X) -> X:
        return self.norm(m, self.out(m, m.gated(self.gate(m, x), e, self.activation)))


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

    def forward(self, m: Machine[X], x: X) -> X:
        normed = apply_optional(self.attn_norm, m, x)
        y = (
            x
            if self.attn is None
            else m.add(x, residual_branch(self, m, self.attn, normed, self.attn_out_norm))
        )
        if self.mlp is None:
            return y
        if not self.parallel:
            normed = apply_optional(self.mlp_norm, m, y)
        elif self.mlp_norm is not None:
            normed = self.mlp_norm(m, x)
        return m.add(y, residual_branch(self, m, self.mlp, normed, self.mlp_out_norm))


class PostNormLayer(Layer):
    """Post-norm, as in the original transformer: x = attn_norm(x + mixer x); x = mlp_norm(x +
    mlp x) (OPT-350m).
    """

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = apply_optional(
            self.attn_norm, m, m.add(x, residual_branch(self, m, self.attn, x, self.attn_out_norm))
        )
        return apply_optional(
            self.mlp_norm, m, m.add(x, residual_branch(self, m, self.mlp, x, self.mlp_out_norm))
        )


class NormedResidualLayer(Layer):
    """A layer whose branches are added to their normalized input instead of x (Bloom's
    `apply_residual_connection_post_layernorm`).
    """

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = apply_optional(self.attn_norm, m, x)
        x = apply_optional(
            self.mlp_norm, m, m.add(x, residual_branch(self, m, self.attn, x, self.attn_out_norm))
        )
        return m.add(x, residual_branch(self, m, self.mlp, x, self.mlp_out_norm))


class PerLayerEmbedding(Block):
    """Per-layer embeddings, a narrow vector for each token and layer: (row of `embed` +
    norm(projection(x) · factor)) / √2.

    x is the embedding of the token (Gemma 4).
    """

    computes_on_shards: ClassVar[bool] = True
    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"embed": "embedding"}
    cuts: ClassVar[dict[str, Cut]] = {"embed": Cut(0, on_indivisible="pad")}
    embed: Embedding
    projection: Linear
    norm: Norm
    size: int
    factor: float

    def forward(self, m: Machine[X], ids: X, x: X) -> X:
        # (B, T, L, p)
        projected = self.norm(
            m, m.split_heads(m.scale(self.projection(m, x), self.factor), self.size)
        )
        return m.scale(m.add(m.split_heads(self.embed(m, ids), self.size), projected), 2**-0.5)


TOWER_FIELDS = ("vision", "projector", "audio", "audio_projector")
"""The fields of a decoder that are not its text model."""


class Decoder(Block):
    """The whole model, from token ids to logits.

    A multimodal one has towers and projectors, too: a token of a projector's result takes the place
    of a token's embedding in the sequence. The text model alone makes the logits.
    """

    groups: ClassVar[dict[str, str]] = {
        "embed": "embedding",
        "positions": "embedding",
        "head": "head",
        "mtp": "mtp",
        "vision": "vision",
        "projector": "projector",
        "audio": "audio",
        "audio_projector": "projector",
    }
    computes_on_shards: ClassVar[bool] = True
    excluded: ClassVar[frozenset[str]] = frozenset({"mtp"})
    cuts: ClassVar[dict[str, Cut]] = {
        "embed": Cut(0, on_indivisible="pad"),
        "head": Cut(0, on_indivisible="pad"),
    }
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
    kept_logits: int | None = None  # number of the logits, where the head has padding; None: all
    layers_read_embeddings: bool = False  # every layer also gets the embeddings (Zamba)
    vision: Block | None = None
    projector: Block | None = None
    audio: Block | None = None
    audio_projector: Block | None = None
    # the later tokens that image tokens attend to: of their own "image", of all "images" or of the
    # "prompt"
    sees_later: str = ""

    @property
    def own_layers(self) -> int:
        """The number of layers, those that run again counted once."""
        return sum(as_number(n) for x, n in self.layers.distinct() if not runs_again(x))

    @property
    def is_multimodal(self) -> bool:
        """Whether it has towers for images or sound."""
        return any(getattr(self, name) is not None for name in TOWER_FIELDS)

    @property
    def text(self) -> Decoder:
        """The text model: without towers."""
        if not self.is_multimodal:
            return self
        if (text := vars(self).get("_text")) is None:
            text = vars(self)["_text"] = self.replace(**dict.fromkeys(TOWER_FIELDS), sees_later="")
        found: Decoder = text
        return found

    def forward(self, m: Machine[X], ids: X) -> X:
        x = self.embed(m, ids)  # (B, T, d)
        if self.positions is not None:
            x = m.add(x, self.positions(m, m.token_positions()))
        extra = () if self.per_layer is None else (self.per_layer(m, ids, x),)
        extra = (x,) if self.layers_read_embeddings else extra
        x = m.layers(self.layers, m.dropout(apply_optional(self.embed_norm, m, x)), *extra)
        x = apply_optional(self.norm, m, m.last_token(x))
        if self.head is None:
            return x
        y = m.softcap(m.scale(self.head(m, x), self.logit_scale), self.softcap)  # (B, T, V)
        return (
            y
            if self.kept_logits is None
            else m.split(y, self.kept_logits, self.vocab - self.kept_logits)[0]
        )


def apply_optional(block: Block | None, m: Machine[X], x: X) -> X:
    """Return block(x), or x without a block."""
    return x if block is None else block(m, x)


def project_heads(attn: Attention, m: Machine[X], linear: Linear, x: X) -> X:
    """Project x to queries, keys or values, `(B, T, heads, h)`."""
    y, clip = linear(m, x), attn.qk_preprocess.clip
    return m.split_heads(
        y if clip is None or clip.after_norm else m.clamp(y, clip.limit), attn.head_dim
    )


def norm_heads_of(attn: Attention, m: Machine[X], norm: Norm | Stack | None, x: X) -> X:
    """Normalize each head, or all heads as one vector."""
    if norm is not None and attn.qk_preprocess.across_heads:
        assert not isinstance(norm, Stack)
        x = m.split_heads(norm(m, m.merge_heads(x)), attn.head_dim)
    elif norm is not None:
        x = m.norm_heads(norm, x)
    clip = attn.qk_preprocess.clip
    return m.clamp(x, clip.limit) if clip is not None and clip.after_norm else x


def norm_and_rotate(attn: Attention, m: Machine[X], norm: Norm | Stack | None, x: X) -> X:
    """Apply the norm of queries or keys and the rotary embedding, in the order of the family."""
    if attn.qk_preprocess.after_rope:
        return norm_heads_of(attn, m, norm, m.rope(x, attn.rope))
    return m.rope(norm_heads_of(attn, m, norm, x), attn.rope)


def _attention_gate(attn: Attention, m: Machine[X], gate: Linear, x: X) -> X:
    """Return the factors of the heads' output, `(B, T, H)` or `(B, T, H·h)`."""
    y = gate(m, x)
    if attn.gate_activation == "softplus":
        return m.to_model_dtype(m.act(m.to_float32(y), "softplus"))
    return m.act(y, attn.gate_activation)


def router_logits(moe: MoE, m: Machine[X], x: X) -> X:
    """Return the router's logits in float32, `(B, T, E)`."""
    return m.softcap(
        m.to_float32(moe.router(m, m.to_float32(x) if moe.fp32_router else x)), moe.router_softcap
    )


def add_shared_experts(moe: MoE, m: Machine[X], x: X, y: X) -> X:
    """Add the output of the shared experts to that of the routed ones."""
    if moe.shared is None:
        return y
    shared = moe.shared(m, x)
    if moe.shared_gate is not None:
        shared = m.multiply(shared, m.act(moe.shared_gate(m, x), "sigmoid"))
    return m.scale(m.add(y, shared), moe.output_factor)


def residual_branch(layer: Layer, m: Machine[X], block: Block, x: X, out_norm: Norm | None) -> X:
    """Compute a residual branch: the mixer or the MLP, its output norm and the residual
    multiplier.
    """
    return m.scale(m.dropout(apply_optional(out_norm, m, block(m, x))), layer.residual_multiplier)
