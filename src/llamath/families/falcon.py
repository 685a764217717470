"""Falcon: parallel branches with one norm or two, or the serial layers with ALiBi of the first
1B; few key/value heads, tied head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import Keys
from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.attention_facts import Heads, ScoreTransform
from ..core.blocks import Decoder, Layer, Norm, residual_branch
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.positions import Alibi
from ..core.tree import repeat
from .gguf_record import CLASSIC, GGUFMetadata
from .gguf_shared import fused_heads_keys
from .registry import family
from .rope_shared import read_rope

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader


class TwoNormLayer(Layer):
    """A parallel layer, x += mixer(attn_branch_norm x) + mlp(mlp_branch_norm x), with one norm
    per branch (Falcon 40B).
    """

    attn_branch_norm: Norm
    mlp_branch_norm: Norm

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        y = m.add(
            x, residual_branch(self, m, self.attn, self.attn_branch_norm(m, x), self.attn_out_norm)
        )
        return m.add(
            y, residual_branch(self, m, self.mlp, self.mlp_branch_norm(m, x), self.mlp_out_norm)
        )


NAMES = Scheme(
    name="hf",
    layer="transformer.h.{l}.",
    outside={"embed": "transformer.word_embeddings", "norm": "transformer.ln_f", "head": "lm_head"},
    inside={
        "attn_norm": "input_layernorm",
        "attn_branch_norm": "ln_attn",
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "self_attention.query_key_value"),
        "attn.o": "self_attention.dense",
        "mlp_norm": "post_attention_layernorm",
        "mlp_branch_norm": "ln_mlp",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
    layouts=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "heads"),
)
NAMES_GGUF = GGUF_QKV.with_changes(
    inside={"attn_branch_norm": "attn_norm_2", "mlp_branch_norm": "attn_norm"}
)


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return the keys of one of the three Falcon architectures, recognized by key/value heads and
    norms.

    ALiBi is not in GGUF; llama.cpp uses rotary positions.
    """
    from ..checkpoint.gguf_metadata.gguf_keys import fused_attention_heads_kv

    heads, kv = h.uniform_integer("attention.head_count"), fused_attention_heads_kv(h)
    has_two_norms = h.has_tensor(".attn_norm_2.weight")
    if has_two_norms or kv not in (1, heads):
        return {
            "new_decoder_architecture": True,
            "num_kv_heads": kv,
            "num_ln_in_parallel_attn": 2 if has_two_norms else 1,
        }
    return {
        "new_decoder_architecture": False,
        "num_kv_heads": kv,
        "multi_query": kv == 1,
        "parallel_attn": not h.has_tensor(".ffn_norm.weight"),
    }


@family(
    "falcon RefinedWeb RefinedWebModel",
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="falcon",
    gguf_metadata=GGUFMetadata(
        keys=f"{CLASSIC} max_position_embeddings ffn_hidden_size=intermediate_size "
        "bias=attention_bias rope_theta rope_scaling",
        read=_read_gguf,
        write=lambda f: {**fused_heads_keys(f), "tensor_data_layout": "jploski"},
    ),
    causal_class="FalconForCausalLM",
)
def falcon(c: Config) -> Decoder:
    d, V = c.dim("d", any_name("hidden_size")), c.dim("V", "vocab_size")
    F = c.dim("F", "ffn_hidden_size", default=4 * d)
    new, parallel = (
        c.get("new_decoder_architecture", "n_head_kv" in c),
        c.get("parallel_attn", True),
    )
    if new and not parallel:
        raise c.error(
            "parallel_attn", "is false, for which the new decoder architecture has no norms"
        )
    H, K, h = c.square_heads(d, any_name("num_kv_heads"), any_name("num_attention_heads"))
    multi = c.get("multi_query", True)
    heads = Heads(H, K if new else Expr("K", 1 if multi else H), h)
    bias, rotary = c.get("bias", False), read_rope(c, h)
    alibi = Alibi(scale=h**-0.5, bf16_rounded=True) if c.get("alibi", False) else None
    attn = gqa(
        d,
        heads,
        bias=bias,
        score_transform=ScoreTransform(alibi=alibi),
        rope=None if alibi else rotary,
    )
    ff = mlp(d, F, c.activation("activation", "gelu"), bias=bias)
    norm = layer_norm(d, c.get("layer_norm_epsilon", 1e-5))
    if new and c.get("num_ln_in_parallel_attn", 2) == 2:
        layer: Layer = TwoNormLayer(
            attn_branch_norm=norm, attn=attn, mlp_branch_norm=norm, mlp=ff, parallel=True
        )
    elif parallel:
        layer = Layer(attn_norm=norm, attn=attn, mlp=ff, parallel=True)
    else:
        layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=ff)
    c.ignore("apply_residual_connection_post_layernorm", "ff_factor", "num_ln_in_parallel_attn")
    layers = repeat(layer, c.dim("L", any_name("num_hidden_layers")))
    context = c.get("max_position_embeddings", 2048)
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", True), context=context)
