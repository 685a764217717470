"""MiniCPM 1, 2 and 4, and MiniCPM-MoE: Llama's layers with embeddings, branches and logits
scaled so that widths can be compared.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys
from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import MLP, Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, mixture, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .registry import family
from .rope_shared import read_rope

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader

NAMES = HF.with_changes(
    inside={
        f"mlp.experts.{{e}}.{part}": f"mlp.experts.{{e}}.w{i}"
        for part, i in (("gate", 1), ("down", 2), ("up", 3))
    }
)


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return the scales under MiniCPM's names and in its units."""
    residual, logits, width = (
        h.real("residual_scale"),
        h.real("logit_scale"),
        h.required("embedding_length"),
    )
    keys: Keys = {"scale_depth": float(f"{residual * sqrt(h.layers):.6g}")} if residual else {}
    keys["num_experts"] = h.uniform_integer("expert_count") or 0
    return keys | ({"dim_model_base": max(1, round(width / logits))} if logits else {})


def _write_gguf(f: GGUFFacts) -> Keys:
    experts = (
        {"expert_count": len(f.moe.experts), "expert_used_count": int(f.moe.top_k)}
        if f.moe is not None
        else {}
    )
    logits = {"logit_scale": 1 / f.tree.logit_scale if f.tree.logit_scale else None}
    return {"residual_scale": float(f.layers[0].residual_multiplier), **logits, **experts}


@family(
    hf=NAMES,
    gguf=GGUF_LLAMA,
    gguf_arch="minicpm",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias scale_emb=embedding_multiplier num_experts_per_tok",
        read=_read_gguf,
        write=_write_gguf,
    ),
)
def minicpm(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, L = c.heads(d), c.dim("L", "num_hidden_layers")
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    expert, E = (
        swiglu(d, F, c.activation("hidden_act")),
        c.dim("E", "num_experts", default=0, least=0),
    )
    mlp: MLP | MoE = mixture(d, E, c.dim("k", "num_experts_per_tok"), expert) if E else expert
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("attention_bias", False), rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=mlp,
        residual_multiplier=c.get("scale_depth", 1.0) / L**0.5,
    )
    embed, logit_scale = (
        embedding(V, d, c.get("scale_emb", 1.0)),
        c.dim("b", "dim_model_base", default=1) / d**1.0,
    )
    tied, context = c.get("tie_word_embeddings", True), c.positive_int("max_position_embeddings")
    c.ignore("mup_denominator")
    return decoder(
        V, d, repeat(layer, L), norm, tied, embed=embed, logit_scale=logit_scale, context=context
    )
