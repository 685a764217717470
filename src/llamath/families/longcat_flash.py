"""LongCat-Flash: two latent attentions and two MLPs a layer, with experts beside them, some of
which have no weights.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_LATENT
from ..config_keys import any_name
from ..core.blocks import (
    MLP,
    AttentionBase,
    Decoder,
    Layer,
    MoE,
    Norm,
    apply_optional,
    residual_branch,
)
from ..core.config import Config
from ..core.constructors import decoder, linear, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.tree import repeat
from .deepseek_shared import latent_attention
from .registry import family
from .rope_shared import read_rope


class ShortcutLayer(Layer):
    """Two times attention and an MLP; `shortcut` reads what the first MLP reads, and is added at
    the end (LongCat, arXiv:2509.01322).
    """

    shortcut: MoE
    second_attn_norm: Norm
    second_attn: AttentionBase
    second_mlp_norm: Norm
    second_mlp: MLP

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = m.add(
            x,
            residual_branch(
                self, m, self.attn, apply_optional(self.attn_norm, m, x), self.attn_out_norm
            ),
        )
        normed = apply_optional(self.mlp_norm, m, x)
        shortcut = self.shortcut(m, normed)
        x = m.add(x, residual_branch(self, m, self.mlp, normed, self.mlp_out_norm))
        x = m.add(x, residual_branch(self, m, self.second_attn, self.second_attn_norm(m, x), None))
        x = m.add(x, residual_branch(self, m, self.second_mlp, self.second_mlp_norm(m, x), None))
        return m.add(x, shortcut)


_ATTENTION = {
    path: name.partition(".")[2]
    for path, name in HF_LATENT.inside.items()
    if path.startswith("attn.")
}
_HALVES = ("", "second_")
NAMES = HF_LATENT.with_changes(
    inside={
        **{
            f"{second}{path}": f"self_attn.{i}.{name}"
            for i, second in enumerate(_HALVES)
            for path, name in _ATTENTION.items()
        },
        **{
            f"{second}mlp.{x}": f"mlps.{i}.{x}_proj"
            for i, second in enumerate(_HALVES)
            for x in ("gate", "up", "down")
        },
        **{f"{second}attn_norm": f"input_layernorm.{i}" for i, second in enumerate(_HALVES)},
        **{
            f"{second}mlp_norm": f"post_attention_layernorm.{i}" for i, second in enumerate(_HALVES)
        },
        "shortcut.router": "mlp.router.classifier",
        "shortcut.correction": "mlp.router.e_score_correction_bias",
        **{
            f"shortcut.experts.{{e}}.{x}": f"mlp.experts.{{e}}.{x}_proj"
            for x in ("gate", "up", "down")
        },
    },
    layouts=dict.fromkeys((f"{second}attn.{x}_up" for second in _HALVES for x in "kv"), "heads"),
)


@family(
    hf=NAMES,
    causal_class="LongcatFlashForCausalLM",
    has_linear_routers=True,
    renames_experts="longcat_flash",
)
def longcat_flash(c: Config) -> Decoder:
    d, V, F = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", any_name("ffn_hidden_size")),
    )
    norm, activation = rms(d, c.get("rms_norm_eps", 1e-5)), c.activation("hidden_act")
    attn = latent_attention(
        c, d, read_rope(c, c.dim("p", "qk_rope_head_dim"), theta=1e7, interleaved=True)
    )
    if attn.q is not None:
        raise c.error(
            "q_lora_rank", "is null", "queries of this family always have a latent vector"
        )
    factors = {
        key: (d / c.dim("x", rank)) ** 0.5
        for key, rank in (("q_factor", "q_lora_rank"), ("latent_factor", "kv_lora_rank"))
    }
    attn, mlp = attn.replace(**factors), swiglu(d, F, activation)
    first, shortcut = (
        Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp),
        _moe(c, d, activation),
    )
    layer = first.extended(
        ShortcutLayer,
        shortcut=shortcut,
        second_attn_norm=norm,
        second_attn=attn,
        second_mlp_norm=norm,
        second_mlp=mlp,
    )
    c.ignore("num_hidden_layers")
    layers = repeat(layer, c.dim("L", "num_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _moe(c: Config, d: Expr, activation: str) -> MoE:
    E, k = c.dim("E", any_name("n_routed_experts")), c.dim("k", "moe_topk|num_experts_per_tok")
    Fe, Z = (
        c.dim("Fe", "expert_ffn_hidden_size|moe_intermediate_size"),
        c.dim("Z", "zero_expert_num", default=256, least=0),
    )
    c.require("zero_expert_type", "identity", "every published model has it")
    factor = c.get("routed_scaling_factor", 6.0)
    moe = mixture(
        d,
        E,
        k,
        swiglu(d, Fe, activation),
        norm_topk_prob=False,
        routed_scaling_factor=factor,
        fp32_router=True,
    )
    router, correction = (
        linear(E + Z, d, c.get("router_bias", False)),
        weight(E + Z, role="bias").replace(buffer=True),
    )
    return moe.replace(router=router, correction=correction, zero_experts=int(Z))
