"""Qwen 1: one biased matrix for q, k and v, a gate called w2, and two ways to read beyond the
length of training.
"""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys, mlp_width, rotary_dim_keys
from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.hf_names import HF_GPT2
from ..config_keys import any_name
from ..core.attention_facts import Heads, ScoreTransform
from ..core.blocks import Decoder, Layer, NormedResidualLayer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.expr import Expr
from ..core.positions import LogNScaling, QwenDynamicRope, Rope
from ..core.tree import repeat
from .gguf_record import SHAPE, GGUFMetadata
from .gguf_shared import fused_heads_keys
from .registry import family

NAMES = HF_GPT2.with_changes(inside={"mlp.gate": "mlp.w2", "mlp.up": "mlp.w1"})
PRECISION = (
    "bf16 fp16 fp32 params_dtype softmax_in_fp32 use_cache_quantization use_cache_kernel "
    "use_flash_attn onnx_safe"
)
UNUSED = (
    "activation attn_dropout_prob bias_dropout_fusion emb_dropout_prob padded_vocab_size "
    "pos_emb rope_theta scale_attn_weights"
)


def _write_gguf(f: GGUFFacts) -> Keys:
    return {
        "feed_forward_length": 2 * mlp_width(f.mlps[0]),
        **fused_heads_keys(f),
        "attention.layer_norm_epsilon": f.eps,
        **rotary_dim_keys(f),
    }


@family(
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="qwen",
    gguf_metadata=GGUFMetadata(
        keys=f"""{SHAPE} max_position_embeddings intermediate_size kv_channels=head_dim
            layer_norm_epsilon=rms_norm_eps rotary_emb_base=rope_theta
            rotary_pct=partial_rotary_factor no_bias""",
        write=_write_gguf,
        unstated="scaling beyond the trained length (use_dynamic_ntk, use_logn_attn); using "
        "the family's defaults",
    ),
)
def qwen(c: Config) -> Decoder:
    d, V, H = (
        c.dim("d", any_name("hidden_size")),
        c.dim("V", "vocab_size"),
        c.dim("H", any_name("num_attention_heads")),
    )
    # the key counts gate and up
    F = Expr("F", c.dim("F", any_name("intermediate_size"), least=2) // 2)
    h = c.dim("h", "kv_channels", default=128)
    if H * h != d:
        raise c.error("kv_channels", f"is {h}, but {H} heads share a width of {d}")
    bias, context = not c.get("no_bias", True), c.get(any_name("max_position_embeddings"), 8192)
    norm, trained_context = rms(d, c.get("layer_norm_epsilon", 1e-6)), c.get("seq_length", context)
    rotary = Rope(theta=c.get("rotary_emb_base", 10000.0), dim=h.scaled(c.get("rotary_pct", 1.0)))
    if c.get("use_dynamic_ntk", True):
        rotary = QwenDynamicRope(
            theta=rotary.theta, dim=rotary.dim, original_context=trained_context
        )
    temperature = (
        LogNScaling(original_context=trained_context) if c.get("use_logn_attn", True) else None
    )
    attention = gqa(
        d,
        Heads(H, H, h),
        bias=True,
        o_bias=bias,
        rope=rotary,
        score_transform=ScoreTransform(temperature=temperature),
    )
    kind = (
        NormedResidualLayer if c.get("apply_residual_connection_post_layernorm", False) else Layer
    )
    layer = kind(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=swiglu(d, F, bias=bias))
    c.ignore(*PRECISION.split(), *UNUSED.split())
    layers = repeat(layer, c.dim("L", any_name("num_hidden_layers")))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=context)
