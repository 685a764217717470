"""MiniCPM 3: MiniCPM's scaled embeddings, branches and logits, with latent attention."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LATENT
from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, rms, swiglu
from ..core.expr import Expr
from ..core.tree import repeat
from .deepseek_shared import latent_attention
from .registry import family
from .rope_shared import read_rope

NAMES_GGUF = GGUF_LATENT.with_changes(
    inside=dict.fromkeys(("attn.k_up", "attn.v_up"), "attn_kv_b"),
    layouts=dict.fromkeys(("attn.k_up", "attn.v_up"), "heads"),
)


@family(hf=HF_LATENT, gguf=NAMES_GGUF, gguf_arch="minicpm3", causal_class="MiniCPM3ForCausalLM")
def minicpm3(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    norm, v_dim = (
        rms(d, c.get("rms_norm_eps", 1e-5)),
        Expr.const(d // c.dim("H", "num_attention_heads")),
    )
    depth = c.nullable("scale_depth", 1.4)
    layer = Layer(
        attn_norm=norm,
        attn=latent_attention(
            c, d, read_rope(c, c.dim("p", "qk_rope_head_dim")), v_dim=v_dim, q_rank=768
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
        residual_multiplier=1.0 if depth is None else depth / L**0.5,
    )
    base = c.nullable("dim_model_base", 256)
    tied, context = c.get("tie_word_embeddings", True), c.positive_int("max_position_embeddings")
    embed, logit_scale = (
        embedding(V, d, c.get("scale_emb", 12.0)),
        1.0 if base is None else base / d**1.0,
    )
    return decoder(
        V, d, repeat(layer, L), norm, tied, embed=embed, logit_scale=logit_scale, context=context
    )
