"""nanochat: norms without weights, also of the embeddings, queries and keys; reversed rotary
angles, squared ReLU, capped logits.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import QKPreprocess
from ..core.blocks import Decoder, Layer, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, gqa, mlp
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF.with_changes(inside={"mlp.up": "mlp.fc1", "mlp.down": "mlp.fc2"}),
    causal_class="NanoChatForCausalLM",
)
def nanochat(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d), RMSNorm(eps=c.get("rms_norm_eps", 1e-6))
    rope = read_rope(c, heads.head_dim).replace(reverse=True)
    bias, after_rope = c.get("attention_bias", False), QKPreprocess(after_rope=True)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias, rope=rope, q_norm=norm, k_norm=norm, qk_preprocess=after_rope),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("hidden_act", "relu2")),
    )
    return decoder(
        V,
        d,
        repeat(layer, c.dim("L", "num_hidden_layers")),
        norm,
        tied=c.get("tie_word_embeddings", False),
        embed_norm=norm,
        context=c.positive_int("max_position_embeddings"),
        softcap=c.nullable("final_logit_softcapping", 15.0),
    )
