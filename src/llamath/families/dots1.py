"""dots.llm1: Qwen3's attention with DeepSeek-V3's mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import Stack, sequence
from .deepseek_shared import deepseek_v3_moe
from .layers_shared import read_layer_types
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF, gguf=GGUF, gguf_arch="dots1", causal_class="Dots1ForCausalLM", renames_experts="dots1"
)
def dots1(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.heads(d, num_kv_heads=32), c.get("rms_norm_eps", 1e-6)
    norm, head_norm, rope = rms(d, eps), rms(heads.head_dim, eps), read_rope(c, heads.head_dim)
    moe = deepseek_v3_moe(c, d, norm_topk_prob=False)
    dense, bias = swiglu(d, F, c.activation("hidden_act")), c.get("attention_bias", False)

    def layer(sparse: bool, window: int | None) -> Layer:
        attn = gqa(
            d,
            heads,
            bias,
            rope=rope,
            q_norm=head_norm,
            k_norm=head_norm,
            window=AttentionWindow(size=window),
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=moe if sparse else dense)

    layers = _layers(c, layer, c.nullable("sliding_window", 4096))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _layers(c: Config, layer: Callable[[bool, int | None], Layer], window: int | None) -> Stack:
    """Return dense layers, then sparse ones; with a window where `layer_types` says so, or else
    from `max_window_layers` on.
    """
    L, first_sparse = (
        c.dim("L", "num_hidden_layers"),
        int(c.dim("dense", "first_k_dense_replace", default=0, least=0)),
    )
    kinds = {(x, y): layer(x, window if y else None) for x in (True, False) for y in (True, False)}
    if "layer_types" in c:
        types = read_layer_types(c, L, ("full_attention", "sliding_attention"))
        return sequence(
            (kinds[i >= first_sparse, x == "sliding_attention"] for i, x in enumerate(types)),
            count_dim=L,
        )
    first_windowed = c.get("max_window_layers", 62)
    starts = sorted({0, int(L), *(min(max(x, 0), int(L)) for x in (first_sparse, first_windowed))})
    return Stack(
        *(((kinds[a >= first_sparse, a >= first_windowed],), b - a) for a, b in pairwise(starts)),
        count_dim=L,
    )
