"""Qwen3-Next: three layers of linear attention to one of gated softmax attention, with experts
in each.
"""

from __future__ import annotations

from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from ..core.tree import Block
from .gguf_record import GATED_DELTA, LLAMA, QWEN_SHARED_MOE, GGUFMetadata
from .qwen_shared import (
    delta_net,
    experts_with_shared,
    gated_attention,
    hybrid,
    hybrid_gguf,
    one_in_four,
    sparse_every,
)
from .registry import family

STATES, STEPS = ("attn.query", "attn.key", "attn.value", "attn.z"), ("attn.beta", "attn.alpha")
FUSED = dict.fromkeys(STATES, "linear_attn.in_proj_qkvz") | dict.fromkeys(
    STEPS, "linear_attn.in_proj_ba"
)
NAMES = hybrid(FUSED, dict.fromkeys(FUSED, "heads"))
NAMES_GGUF = hybrid_gguf(dict.fromkeys(STEPS, "ssm_ba"), dict.fromkeys(STEPS, "heads"))


@family(
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="qwen3next",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} {QWEN_SHARED_MOE} {GATED_DELTA} mlp_only_layers=dense_layers",
        constants={"norm_topk_prob": True},
    ),
    causal_class="Qwen3NextForCausalLM",
    renames_experts="qwen3_next",
)
def qwen3_next(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    eps = c.get("rms_norm_eps", 1e-6)
    norm = rms(d, eps, offset=1.0)

    def layer(attn: Block, sparse: bool) -> Layer:
        moe = experts_with_shared(c, d, c.get("norm_topk_prob", True))
        mlp = (
            moe
            if sparse
            else swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act"))
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)

    layers = sparse_every(
        c, one_in_four(c, delta_net(c, d, eps), gated_attention(c, d, eps)), layer
    )
    c.ignore("intermediate_size", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
