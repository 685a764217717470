"""HyperCLOVA X: Granite's layers and multipliers, with norms after each branch; the logits are
multiplied, not divided.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF.with_changes(inside={"attn_out_norm": "post_norm1", "mlp_out_norm": "post_norm2"}),
    causal_class="HyperCLOVAXForCausalLM",
)
def hyperclovax(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d), rms(d, c.get("rms_norm_eps", 1e-6))
    out_norm, scale = (
        norm if c.get("use_post_norm", True) else None,
        c.number("attention_multiplier"),
    )
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=c.get("attention_bias", False),
            rope=read_rope(c, heads.head_dim),
            score_transform=ScoreTransform(scale=scale),
        ),
        attn_out_norm=out_norm,
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
        mlp_out_norm=out_norm,
        residual_multiplier=c.get("residual_multiplier", 1.0),
    )
    return decoder(
        V,
        d,
        repeat(layer, c.dim("L", "num_hidden_layers")),
        norm,
        tied=c.get("tie_word_embeddings", False),
        embed=embedding(V, d, c.get("embedding_multiplier", 1.0)),
        context=c.positive_int("max_position_embeddings"),
        logit_scale=c.get("logits_scaling", 1.0),
    )
