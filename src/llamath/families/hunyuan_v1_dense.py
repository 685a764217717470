"""Hunyuan 0.5B to 7B, also inside Hunyuan-VL: Llama's layers with a norm of each head's queries
and keys after their rotation.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import QKPreprocess
from ..core.blocks import Attention, Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.expr import Expr
from ..core.positions import Rope
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={"attn.q_norm": "self_attn.query_layernorm", "attn.k_norm": "self_attn.key_layernorm"}
)


def _read_rope(c: Config, dim: int) -> Rope:
    """Read the rotary embedding: a "dynamic" one with a fixed `alpha` has a larger base, whatever
    the context.

    The sections of "xdrope" (Hunyuan-VL) are positions inside images; a text has the same in each.
    """
    s = c.rope()
    alpha = s.get("alpha", 0.0)
    if s.rope_type() not in ("dynamic", "xdrope") or not alpha:
        return read_rope(c, dim)
    s.ignore(
        "factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "mrope_section",
        "xdrope_section",
    )
    theta = s.get("rope_theta", c.get("rope_theta", 1e4))
    if alpha < 0:
        raise s.error("alpha", f"should be positive, not {alpha!r}")
    return Rope(theta=theta * alpha ** (dim / (dim - 2)), dim=dim)


def hunyuan_attention(c: Config, d: Expr) -> Attention:
    """Read the attention: each head's queries and keys are normalized after their rotation."""
    c.require("use_cla", False, "layers that share keys and values are not supported")
    c.ignore("attention_head_dim")
    heads = c.heads(d)
    norm = rms(heads.head_dim, c.get("rms_norm_eps", 1e-5))
    return gqa(
        d,
        heads,
        bias=c.get("attention_bias", False),
        rope=_read_rope(c, heads.head_dim),
        q_norm=norm,
        k_norm=norm,
        qk_preprocess=QKPreprocess(after_rope=True),
    )


@family(
    "hunyuan_v1_dense hunyuan_vl_text",
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="hunyuan-dense",
    causal_class="HunYuanDenseV1ForCausalLM",
)
def hunyuan_v1_dense(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm, attn = rms(d, c.get("rms_norm_eps", 1e-5)), hunyuan_attention(c, d)
    layer = Layer(
        attn_norm=norm,
        attn=attn,
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
