"""Kimi K3: Kimi Linear with latent experts, gates on latent attention, and residuals that attend to those of earlier layers.

What the residuals compute is not known, so that the model is counted alone.
"""

from __future__ import annotations

from functools import cache

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, HyperDecoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.mixers import kimi_delta
from ..core.multimodal import CountedBlock
from ..core.tree import Block, Stack, Weight, repeat, sequence
from .kimi_linear import EXPERTS, full_layers
from .kimi_shared import DELTA_LAYOUTS, delta_names
from .registry import family
from .shared import latent_attention

_RESIDUALS = {f"{ours}_{x}": f"{theirs}_res_{x}" for ours, theirs in (("attn", "self_attention"), ("mlp", "mlp")) for x in ("norm", "proj")}
NAMES = HF_LATENT.with_changes(
    outside={f"collapse.{x}": f"model.output_attn_res_{x}" for x in ("norm", "proj")},
    inside={
        **delta_names("self_attn", gate="g_proj"),
        **{path.replace("mlp.", "mlp.moe.", 1): name for path, name in EXPERTS.items()},
        **{
            f"mlp.latent_{x}": f"block_sparse_moe.routed_expert_{y}"
            for x, y in (("down", "down_proj"), ("norm", "norm"), ("up", "up_proj"))
        },
        **{f"mlp.{ours}": theirs for ours, theirs in _RESIDUALS.items()},
    },
    layouts={**HF_LATENT.layouts, **DELTA_LAYOUTS},
)
_PROVEN = (96, 128)
"""Heads of delta attention and their size in the published model, whose `A_log` has 128 numbers."""


@family(hf=NAMES)
def kimi_k3(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, first = c.get("rms_norm_eps", 1e-5), c.get("first_k_dense_replace", 1)
    norm, row, is_full = rms(d, eps), linear(1, d), full_layers(c)
    residuals: dict[str, Weight | Block | Stack] = {x: norm if x.endswith("norm") else row for x in _RESIDUALS}
    delta, latent, moe = _delta(c, d, eps), _latent(c, d), _experts(c, d, eps)
    F = c.dim("F", "intermediate_size")
    dense: dict[str, Weight | Block | Stack] = {"gate": linear(F, d), "up": linear(F, d), "down": linear(d, F)}

    @cache
    def layer(full: bool, sparse: bool) -> Layer:
        mlp = CountedBlock(kind="mlp", parts=(moe if sparse else dense) | residuals)
        return Layer(attn_norm=norm, attn=latent if full else delta, mlp_norm=norm, mlp=mlp)

    layers = sequence((layer(is_full(i), i >= first) for i in range(int(L))), count_dim=L)
    c.ignore(
        "hidden_act", "activation_situ_beta", "activation_situ_linear_beta", "attn_res_block_size", "num_key_value_heads", "topk_method"
    )
    found = decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))
    return found.extended(HyperDecoder, collapse=CountedBlock(kind="mlp", parts={"norm": norm, "proj": row}), sizes=(d,))


def _delta(c: Config, d: Expr, eps: float) -> Block:
    s = c.sub("linear_attn_config")
    H, h, kernel = s.dim("Hk", "num_heads"), s.dim("hk", "head_dim"), s.dim("c", "short_conv_kernel_size", default=4)
    if (int(H), int(h)) != _PROVEN:
        raise s.error("num_heads", f"is {H} with a head_dim of {h}", f"the published model proves {_PROVEN[0]} heads of {_PROVEN[1]} alone")
    if not s.get("use_full_rank_gate", False):
        raise s.error("use_full_rank_gate", "is not true, unlike in the published model")
    bound = s.get("gate_lower_bound", -5.0)
    found = kimi_delta(d, H, h, kernel, eps, "silu", lower_bound=bound).replace(gate_down=None, gate=linear(H * h, d))
    return found.replace(a_log=weight(h, role="scale"))


def _latent(c: Config, d: Expr) -> Block:
    """Latent attention without positions, with a gate of its heads."""
    if not c.get("mla_use_nope", True) or not c.get("mla_use_output_gate", False):
        raise c.error("mla_use_output_gate", "or mla_use_nope is not true, unlike in the published model")
    attn = latent_attention(c, d, None, q_rank=1536)
    width = c.dim("H", "num_attention_heads") * c.dim("v", "v_head_dim")
    return CountedBlock(kind="attention", parts={**dict(attn.children), "gate": linear(width, d)})


def _experts(c: Config, d: Expr, eps: float) -> dict[str, Weight | Block | Stack]:
    """Experts on a narrowed residual, and shared ones on the whole."""
    e, Fe = c.dim("de", "routed_expert_hidden_size"), c.dim("Fe", "moe_intermediate_size")
    E, k, S = c.dim("E", "num_experts"), c.dim("k", "num_experts_per_token"), c.dim("S", "num_shared_experts")
    if not c.get("latent_moe_use_norm", False):
        raise c.error("latent_moe_use_norm", "is not true, unlike in the published model")
    moe = MoE(
        router=linear(E, d),
        correction=weight(E, role="bias").replace(buffer=True),
        experts=repeat(swiglu(e, Fe, "silu"), E, active=k),
        shared=swiglu(d, S * Fe, "silu"),
        top_k=k,
        scoring=c.get("moe_router_activation_func", "sigmoid"),
        norm_topk_prob=c.get("moe_renormalize", True),
        routed_scaling_factor=c.get("routed_scaling_factor", 1.0),
    )
    c.ignore("use_grouped_topk", "moe_layer_freq", "num_expert_group", "topk_group", "num_nextn_predict_layers", "topk_method")
    return {"moe": moe, "latent_down": linear(e, d), "latent_norm": rms(e, eps), "latent_up": linear(d, e)}
