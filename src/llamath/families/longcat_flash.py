"""LongCat-Flash: two latent attentions and two MLPs a layer, with experts beside them, some of which have no weights."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_LATENT
from ..config_keys import any_name
from ..core.blocks import Decoder, MoE, ShortcutLayer
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.tree import repeat
from .registry import family
from .shared import latent_attention, read_rope

_ATTENTION = {path: name.partition(".")[2] for path, name in HF_LATENT.inside.items() if path.startswith("attn.")}
NAMES = HF_LATENT.with_changes(
    inside={
        **{path: f"self_attn.0.{name}" for path, name in _ATTENTION.items()},
        **{f"second_{path}": f"self_attn.1.{name}" for path, name in _ATTENTION.items()},
        **{f"mlp.{x}": f"mlps.0.{x}_proj" for x in ("gate", "up", "down")},
        **{f"second_mlp.{x}": f"mlps.1.{x}_proj" for x in ("gate", "up", "down")},
        "attn_norm": "input_layernorm.0",
        "mlp_norm": "post_attention_layernorm.0",
        "second_attn_norm": "input_layernorm.1",
        "second_mlp_norm": "post_attention_layernorm.1",
        "shortcut.router": "mlp.router.classifier",
        "shortcut.correction": "mlp.router.e_score_correction_bias",
        **{f"shortcut.experts.{{e}}.{x}": f"mlp.experts.{{e}}.{x}_proj" for x in ("gate", "up", "down")},
    },
    layouts=dict.fromkeys((f"{x}attn.{y}_up" for x in ("", "second_") for y in "kv"), "heads"),
)


@family(hf=NAMES)
def longcat_flash(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", any_name("ffn_hidden_size"))
    norm, activation = rms(d, c.get("rms_norm_eps", 1e-5)), c.activation("hidden_act")
    attn = latent_attention(c, d, read_rope(c, c.dim("p", "qk_rope_head_dim"), theta=1e7, interleaved=True))
    if attn.q is not None:
        raise c.error("q_lora_rank", "is null", "queries of this family always have a latent vector")
    factors = {key: (d / c.dim("x", rank)) ** 0.5 for key, rank in (("q_factor", "q_lora_rank"), ("latent_factor", "kv_lora_rank"))}
    attn, mlp = attn.replace(**factors), swiglu(d, F, activation)
    layer = ShortcutLayer(
        attn_norm=norm,
        attn=attn,
        mlp_norm=norm,
        mlp=mlp,
        shortcut=_moe(c, d, activation),
        second_attn_norm=norm,
        second_attn=attn,
        second_mlp_norm=norm,
        second_mlp=mlp,
    )
    c.ignore("num_hidden_layers")
    layers = repeat(layer, c.dim("L", "num_layers"))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))


def _moe(c: Config, d: Expr, activation: str) -> MoE:
    E, k = c.dim("E", any_name("n_routed_experts")), c.dim("k", "moe_topk|num_experts_per_tok")
    Fe, Z = c.dim("Fe", "expert_ffn_hidden_size|moe_intermediate_size"), c.dim("Z", "zero_expert_num", default=256, least=0)
    if c.get("zero_expert_type", "identity") != "identity":
        raise c.error("zero_expert_type", f"is {c['zero_expert_type']!r:.60}; only identity is known")
    return MoE(
        router=linear(E + Z, d, bias=c.get("router_bias", False)),
        correction=weight(E + Z, role="bias").replace(buffer=True),
        experts=repeat(swiglu(d, Fe, activation), E, active=k),
        top_k=k,
        norm_topk_prob=False,
        routed_scaling_factor=c.get("routed_scaling_factor", 6.0),
        zero_experts=int(Z),
        fp32_router=True,
    )
