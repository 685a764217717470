"""Readers of what many families have from DeepSeek: latent attention, experts, and layers for
multi-token prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.attention_facts import ScoreTransform
from ..core.blocks import MLP, Embedding, ExpertGroups, Layer, Linear, MoE, Norm
from ..core.config import Config
from ..core.constructors import embedding, linear, mixture, rms, swiglu, unembedding, weight
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.positions import Rope, TemperatureTuning, YarnRope
from ..core.tree import Stack, Weight, repeat
from ..utils.errors import safe
from ..utils.record_type import Record


class MTPLayer(Layer):
    """A multi-token prediction layer: a decoder layer on join([embed_norm e; hidden_norm x]), with
    the hidden state x and the embedding e of the next token, then norm and the shared head. Files
    store embedding and head again (DeepSeek-V3, arXiv:2412.19437, 2.2).
    """

    embed: Embedding
    embed_norm: Norm
    hidden_norm: Norm
    join: Linear
    norm: Norm
    head: Linear

    def forward(self, m: Machine[X], x: X, *ids: X) -> X:
        joined = m.concat(self.embed_norm(m, self.embed(m, *ids)), self.hidden_norm(m, x))
        x = Layer.forward(self, m, self.join(m, joined))
        return self.head(m, self.norm(m, x))


if TYPE_CHECKING:
    from ..core.latent_attention import LatentAttention


def latent_attention(
    c: Config,
    d: Expr,
    rope: Rope | None,
    temperature: TemperatureTuning | None = None,
    v_dim: Expr | None = None,
    q_rank: int | None = 1536,
) -> LatentAttention:
    """Read DeepSeek's latent attention; YaRN scaling of the positions also scales the scores.

    `v_dim` is the default size of a value, and `q_rank` that of a query's latent vector; with null,
    queries have none.
    """
    from ..core.latent_attention import LatentSizes, mla

    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    H, n = c.dim("H", "num_attention_heads"), c.dim("n", "qk_nope_head_dim")
    p = c.dim("p", "qk_rope_head_dim")
    v = c.dim("v", "v_head_dim") if v_dim is None else c.dim("v", "v_head_dim", default=v_dim)
    null = "q_lora_rank" not in c and (q_rank is None or "q_lora_rank" in c.data)
    s = None if null else c.dim("s", "q_lora_rank", default=q_rank or 0)
    bias, scale = c.get("attention_bias", False), None
    if isinstance(rope, YarnRope) and rope.mscale_all_dim:
        scale = (n + p) ** -0.5 * rope.growth(rope.mscale_all_dim) ** 2
    sizes = LatentSizes(H, n, p, v, s, c.dim("r", "kv_lora_rank"))
    return mla(
        d,
        sizes,
        bias,
        rope=rope,
        score_transform=ScoreTransform(scale=scale, temperature=temperature),
    )


class Routing(Record):
    """The selection of experts by a router; see `MoE`."""

    scoring: str = "softmax"
    correction: Weight | None = None
    expert_groups: ExpertGroups | None = None


def deepseek_routing(
    c: Config, scoring: str, method: str, n_group: int = 1, topk_group: int = 1
) -> Routing:
    """Read DeepSeek's routing; its correction bias is a buffer in the reference and a tensor in
    files.
    """
    c.ignore("aux_loss_alpha", "seq_aux", "ep_size")
    n_group, topk_group, method = (
        c.get("n_group", n_group),
        c.get("topk_group", topk_group),
        c.get("topk_method", method),
    )
    top_scores = {"greedy": 0, "group_limited_greedy": 1, "noaux_tc": 2}.get(method)
    if top_scores is None:
        raise c.error(
            "topk_method",
            f"is the unknown method {safe(repr(method), 60)}",
            "known: greedy, group_limited_greedy, noaux_tc",
        )
    bias = (
        weight(c.dim("E", "n_routed_experts"), role="bias").replace(buffer=True)
        if method == "noaux_tc"
        else None
    )
    expert_groups = (
        ExpertGroups(n_group, topk_group, top_scores) if top_scores and n_group > 1 else None
    )
    named = c.get("scoring_func", scoring)
    # dots.llm1 names the method here, and its class computes sigmoids
    scoring = scoring if named == method else named
    return Routing(scoring=scoring, correction=bias, expert_groups=expert_groups)


def deepseek_moe(
    c: Config,
    d: Expr,
    routing: Routing,
    *,
    shared: int,
    norm_topk_prob: bool = True,
    routed_scaling_factor: float = 1.0,
    fp32_router: bool = False,
    bias: bool = False,
) -> MoE:
    """Read DeepSeek's mixture of many narrow experts; `shared` is the default number of shared
    experts, which may have biases.
    """
    E, k, Fe = (
        c.dim("E", "n_routed_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    S, activation = (
        c.dim("S", "n_shared_experts", default=shared, least=0),
        c.activation("hidden_act"),
    )
    return mixture(
        d,
        E,
        k,
        swiglu(d, Fe, activation),
        shared=swiglu(d, S * Fe, activation, bias) if S else None,
        scoring=routing.scoring,
        norm_topk_prob=norm_topk_prob,
        routed_scaling_factor=routed_scaling_factor,
        expert_groups=routing.expert_groups,
        fp32_router=fp32_router,
    ).replace(correction=routing.correction)


def deepseek_v3_moe(
    c: Config,
    d: Expr,
    *,
    factor: float = 1.0,
    groups: tuple[int, int] = (1, 1),
    norm_topk_prob: bool = True,
) -> MoE:
    """Read DeepSeek-V3's mixture: chosen by sigmoids with a learned bias, of some `groups`, and
    multiplied by a factor.
    """
    return deepseek_moe(
        c,
        d,
        deepseek_routing(c, "sigmoid", "noaux_tc", *groups),
        shared=1,
        norm_topk_prob=c.get("norm_topk_prob", norm_topk_prob),
        routed_scaling_factor=c.get("routed_scaling_factor", factor),
        fp32_router=True,
    )


def expert_groups(
    c: Config, groups: int = 1, kept: int = 1, keys: str = "n_group"
) -> ExpertGroups | None:
    """Read the groups of experts, ranked by their two best; `groups` of them, of which `kept`
    are eligible, is the family's default.
    """
    groups = c.get(keys, groups)
    return ExpertGroups(groups, c.get("topk_group", kept), 2) if groups > 1 else None


def sigmoid_experts(
    c: Config,
    d: Expr,
    E: Expr,
    k: Expr,
    expert: MLP,
    shared: MLP | None = None,
    factor: float = 1.0,
) -> MoE:
    """Read how DeepSeek-V3 chooses experts, by sigmoids with a learned bias; `factor` is the
    default of the routed experts' factor.
    """
    return mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        shared=shared,
        scoring="sigmoid",
        norm_topk_prob=c.get("norm_topk_prob", True),
        routed_scaling_factor=c.get("routed_scaling_factor", factor),
        expert_groups=expert_groups(c),
        fp32_router=True,
    )


MTP_KEYS = (
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
    "mtp_num_layers",
)
"""Numbers of multi-token prediction layers."""


def mtp_layers(
    c: Config,
    V: Expr,
    d: Expr,
    layer: Layer,
    kind: type[MTPLayer] = MTPLayer,
    keys: str = "num_nextn_predict_layers|num_mtp_layers",
    norm: Norm | None = None,
) -> Stack | None:
    """Return DeepSeek-V3's multi-token prediction layers, each a `layer` with additional norms
    and projections.
    """
    n = c.get(keys, 0)
    if n < 0:
        raise c.error(keys.partition("|")[0], f"should not be negative, like {n}")
    norm, embed = norm or rms(d, c.get("rms_norm_eps", 1e-6)), embedding(V, d)
    mtp_layer = layer.extended(
        kind,
        embed=embed.replace(weight=embed.weight.replace(tied="embed.weight")),
        embed_norm=norm,
        hidden_norm=norm,
        join=linear(d, 2 * d),
        norm=norm,
        head=unembedding(V, d, tied=True).replace(weight=weight(V, d, tied="head.weight")),
    )
    return repeat(mtp_layer, n) if n else None
