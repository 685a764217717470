"""MiniMax-M2: queries and keys normed across all heads, experts only, chosen by sigmoid with a
learned bias.
"""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_facts import expert_width_keys
from ..checkpoint.naming.gguf_names import GGUF
from ..config_keys import any_name
from ..core.attention_facts import Heads, QKPreprocess
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, LOCAL_EXPERTS, GGUFMetadata
from .mixtral import NAMES as MIXTRAL
from .registry import family
from .rope_shared import read_rope, rotary_dim

NAMES = MIXTRAL.with_changes(
    inside={
        "mlp.correction": "block_sparse_moe.e_score_correction_bias",
    }
)


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="minimax-m2",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} {LOCAL_EXPERTS} rotary_dim use_qk_norm use_routing_bias",
        write=lambda f: {**expert_width_keys(f), "expert_gating_func": 2},
    ),
    causal_class="MiniMaxM2ForCausalLM",
    renames_experts="minimax_m2",
)
def minimax_m2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k = c.dim("E", any_name("num_local_experts")), c.dim("k", "num_experts_per_tok")
    H, K, h = c.heads(d, num_kv_heads=8, head_dim=128)
    eps = c.get("rms_norm_eps", 1e-6)
    q_norm, k_norm = (
        (rms(H * h, eps), rms(K * h, eps)) if c.get("use_qk_norm", True) else (None, None)
    )
    positions = read_rope(c, rotary_dim(c, h, c.get("rotary_dim", int(h)) / h), 5e6)
    expert, corrected = swiglu(d, F, c.activation("hidden_act")), c.get("use_routing_bias", True)
    layer = Layer(
        attn_norm=rms(d, eps),
        attn=gqa(
            d,
            Heads(H, K, h),
            rope=positions,
            q_norm=q_norm,
            k_norm=k_norm,
            qk_preprocess=QKPreprocess(across_heads=q_norm is not None),
        ),
        mlp_norm=rms(d, eps),
        mlp=mixture(d, E, k, expert, corrected=corrected, scoring="sigmoid"),
    )
    c.ignore("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
    c.ignore("attn_type_list", "qk_norm_type", "scoring_func", "shared_intermediate_size")
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        rms(d, eps),
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
