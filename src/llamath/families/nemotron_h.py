"""Nemotron-H and Nemotron 3: a list of layers that are one of Mamba-2, attention without
positions, an MLP or experts.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys, mlp_width
from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.blocks import MLP, Decoder, LatentMoE, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, mlp, rms
from ..core.expr import Expr
from ..core.mixers import Mamba2, MambaSizes, mamba2
from ..utils.errors import safe
from .deepseek_shared import sigmoid_experts
from .gguf_record import GROUPED_ROUTING, SHAPE, GGUFMetadata
from .layers_shared import layers_from
from .mamba_shared import MAMBA2_GGUF, MAMBA2_LAYOUTS, MAMBA2_LAYOUTS_GGUF, mamba2_names
from .registry import family

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader

_PARTS = {"": "", "experts.{e}.": "experts.{e}.", "shared.": "shared_experts."}
NAMES = Scheme(
    name="hf",
    layer="backbone.layers.{l}.",
    outside={"embed": "backbone.embeddings", "norm": "backbone.norm_f", "head": "lm_head"},
    inside={
        "attn_norm": "norm",
        **{f"attn.{x}": f"mixer.{x}_proj" for x in "qkvo"},
        **mamba2_names("mixer"),
        "mlp_norm": "norm",
        "mlp.router": "mixer.gate",
        "mlp.correction": "mixer.gate.e_score_correction_bias",
        **{
            f"mlp.{part}{x}": f"mixer.{name}{x}_proj"
            for part, name in _PARTS.items()
            for x in ("up", "down")
        },
        "mlp.latent_down": "mixer.fc1_latent_proj",
        "mlp.latent_up": "mixer.fc2_latent_proj",
    },
    layouts=MAMBA2_LAYOUTS,
)
NAMES_GGUF = GGUF.with_changes(
    inside={
        **MAMBA2_GGUF,
        "mlp_norm": "attn_norm",
        "mlp.latent_down": "ffn_latent_down",
        "mlp.latent_up": "ffn_latent_up",
    },
    layouts=MAMBA2_LAYOUTS_GGUF,
)
KINDS = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "linear_attention": "mamba",
    "full_attention": "attention",
}
KNOWN = ("mamba", "attention", "mlp", "moe")

UNUSED = """attention_bias chunk_size expand hidden_dropout intermediate_size mamba_proj_bias
    mamba_ssm_cache_dtype moe_latent_size moe_shared_expert_overlap mtp_hybrid_override_pattern
    mtp_layers_block_type n_group n_routed_experts n_shared_experts norm_eps num_logits_to_keep
    num_nextn_predict_layers partial_rotary_factor rescale_prenorm_residual residual_in_fp32
    rope_theta sliding_window tie_word_embeddings time_step_floor time_step_limit time_step_max
    topk_group use_mamba_kernels"""
"""Keys of the published configurations without effect here; multi-token prediction layers are
not built."""


_KEYS = f"{SHAPE} max_position_embeddings num_key_value_heads head_dim"


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return the kind of each layer, by its tensors, the sizes of Mamba 2, and the width of a
    plain MLP.
    """
    from ..checkpoint.gguf_metadata.gguf_keys import rms_norm_eps

    kinds = zip(
        h.layers_with(".ssm_in.weight"),
        h.layers_with(".attn_q.weight"),
        h.layers_with(".ffn_gate_inp.weight"),
        strict=True,
    )
    heads, inner = h.uniform_integer("ssm.time_step_rank"), h.uniform_integer("ssm.inner_size")
    widths = sorted(set(h.per_layer("feed_forward_length") or ()) - {0})
    return {
        "hybrid_override_pattern": "".join(
            "M" if ssm else "*" if attention else "E" if experts else "-"
            for ssm, attention, experts in kinds
        ),
        "layer_norm_epsilon": rms_norm_eps(h),
        "intermediate_size": h.rows(".ffn_up.weight") or (widths[0] if widths else None),
        "ssm_state_size": h.uniform_integer("ssm.state_size"),
        "n_groups": h.uniform_integer("ssm.group_count"),
        "conv_kernel": h.uniform_integer("ssm.conv_kernel"),
        "mamba_num_heads": heads,
        "mamba_head_dim": inner // heads if inner and heads else None,
        "use_bias": h.has_tensor(".ssm_in.bias"),
        "use_conv_bias": h.has_tensor(".ssm_conv1d.bias"),
        "mlp_bias": h.has_tensor(".ffn_up.bias", ".ffn_up_shexp.bias"),
    }


def _write_gguf(f: GGUFFacts) -> Keys:
    mixer = f.mixer(Mamba2)
    widths = [mlp_width(x.experts[0] if isinstance(x, MoE) else x) for x in f.mlps]
    size = int(f.first.head_dim)
    return {
        "feed_forward_length": widths,
        "attention.layer_norm_epsilon": f.eps,
        "attention.layer_norm_rms_epsilon": f.eps,
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": size,
        "rope.scaling.finetuned": False,
        "ssm.conv_kernel": int(mixer.conv.weight.shape[-1]),
        "ssm.state_size": int(mixer.state_size),
        "ssm.group_count": int(mixer.state_groups),
        "ssm.inner_size": int(mixer.heads) * int(mixer.head_dim),
        "ssm.time_step_rank": int(mixer.heads),
        **({"expert_shared_count": 1} if f.moe is not None else {}),
    }


@family(
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="nemotron_h_moe",
    gguf_metadata=(
        GGUFMetadata(
            keys=_KEYS,
            arch="nemotron_h",
            read=_read_gguf,
            write=_write_gguf,
            is_written=lambda f: f.moe is None,
        ),
        GGUFMetadata(
            keys=f"""{_KEYS} n_routed_experts=num_experts num_experts_per_tok
            moe_intermediate_size moe_latent_size norm_topk_prob {GROUPED_ROUTING}
            moe_shared_expert_intermediate_size=shared_expert_intermediate_size""",
            read=_read_gguf,
            write=_write_gguf,
            is_written=lambda f: f.moe is not None,
        ),
    ),
    causal_class="NemotronHForCausalLM",
)
def nemotron_h(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    eps = c.get("layer_norm_epsilon", 1e-5)
    norm = rms(d, eps)

    def layer(kind: str) -> Layer:
        if kind == "mamba":
            return Layer(attn_norm=norm, attn=_mamba(c, d, eps))
        if kind == "attention":
            return Layer(
                attn_norm=norm,
                attn=gqa(d, c.heads(d, num_kv_heads=8, head_dim=c.get("attention_head_dim", 128))),
            )
        return Layer(
            mlp_norm=norm,
            mlp=_experts(c, d) if kind == "moe" else _mlp(c, d, c.dim("F", "intermediate_size")),
        )

    layers = layers_from(layer, _kinds(c))
    c.ignore(*UNUSED.split())
    return decoder(
        V, d, layers, norm, tied=False, context=c.positive_int("max_position_embeddings")
    )


def _kinds(c: Config) -> list[str]:
    """Read the type of each layer, from a list or from a pattern with one character per layer."""
    pattern = c["layers_block_type|layer_types|hybrid_override_pattern"]
    if not isinstance(pattern, (str, list)):
        raise c.error(
            "layers_block_type", f"should be a list of layers, not {safe(repr(pattern), 60)}"
        )
    kinds = [KINDS.get(str(x), str(x)) for x in pattern]
    if unknown := [x for x in kinds if x not in KNOWN]:
        raise c.error(
            "layers_block_type",
            f"has the unknown type {safe(repr(unknown[0]), 60)}",
            f"known: {', '.join(KNOWN)}, or M * - E",
        )
    if c.get("num_hidden_layers", len(kinds)) != len(kinds):
        raise c.error(
            "num_hidden_layers", f"is {c['num_hidden_layers']}, but {len(kinds)} layers are listed"
        )
    return kinds


def _mamba(c: Config, d: Expr, eps: float) -> Mamba2:
    Hm, m = c.dim("Hm", "mamba_num_heads"), c.dim("m", "mamba_head_dim")
    G, N = c.dim("G", any_name("mamba_n_groups")), c.dim("N", "ssm_state_size")
    if Hm % G:
        raise c.error("n_groups", f"is {G}, which does not divide the {Hm} heads of Mamba")
    return mamba2(
        d,
        MambaSizes(Hm, m, G, N),
        c.dim("c", any_name("mamba_d_conv")),
        eps,
        bias=c.get("use_bias", False),
        conv_bias=c.get(any_name("mamba_conv_bias"), True),
        activation=c.activation("mamba_hidden_act"),
        dt_limits=(c.get(any_name("mamba_dt_min"), 0.001), inf),
    )


def _mlp(c: Config, d: Expr, F: Expr) -> MLP:
    return mlp(d, F, c.activation("mlp_hidden_act", "relu2"), c.get("mlp_bias", False))


def _experts(c: Config, d: Expr) -> MoE:
    E, k, Fe = (
        c.dim("E", any_name("n_routed_experts")),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    activation, bias = c.activation("mlp_hidden_act", "relu2"), c.get("mlp_bias", False)
    r = c.dim("r", "moe_latent_size") if "moe_latent_size" in c else None
    expert, shared = (
        mlp(r or d, Fe, activation),
        _mlp(c, d, c.dim("Fs", "moe_shared_expert_intermediate_size")),
    )
    moe = sigmoid_experts(c, d, E, k, expert, shared)
    return (
        moe
        if r is None
        else moe.extended(LatentMoE, latent_down=linear(r, d, bias), latent_up=linear(d, r, bias))
    )
