"""Llama 3.2 Vision: Llama's layers, and among them layers that attend to the features of images
instead of to text.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, rms, swiglu, weight
from ..core.expr import total
from ..core.machine import Machine, X
from ..core.multimodal import CrossAttention
from ..core.tree import Weight, cycle
from ..utils.errors import safe
from .layers_shared import check_listed
from .registry import family
from .rope_shared import read_rope


class CrossAttentionLayer(Layer):
    """A layer that attends to images alone, which are counted: it leaves text without images as
    it is (Llama 3.2 Vision).
    """

    reads_only_images: ClassVar[bool] = True
    cross_attn: CrossAttention
    attn_gate: Weight
    mlp_gate: Weight

    def forward(self, m: Machine[X], x: X, *_: X) -> X:  # noqa: ARG002
        return x


NAMES = HF.with_changes(
    inside={
        **{f"cross_attn.{x}": f"cross_attn.{x}_proj" for x in "qkvo"},
        **{f"cross_attn.{x}_norm": f"cross_attn.{x}_norm" for x in "qk"},
        "attn_gate": "cross_attn_attn_gate",
        "mlp_gate": "cross_attn_mlp_gate",
    }
)
_EXTRA_ROWS = 8
"""Rows of the embedding after those of the vocabulary: the image token is the first, and the
head has none of them."""
_PUBLISHED = [3, 8, 13, 18, 23, 28, 33, 38]
"""The layers with cross-attention where a configuration does not list them."""


@family("mllama_text_model", hf=NAMES, causal_class="MllamaForCausalLM")
def mllama(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size", default=4096), c.dim("V", "vocab_size", default=128_256)
    F, L = (
        c.dim("F", "intermediate_size", default=14_336),
        c.dim("L", "num_hidden_layers", default=40),
    )
    heads = H, K, h = c.heads(d, num_heads=32, num_kv_heads=8)
    eps, feed_forward = (
        c.get("rms_norm_eps", 1e-5),
        swiglu(d, F, c.activation("hidden_act", "silu")),
    )
    norm, head_norm, gate = rms(d, eps), rms(h, eps), weight(1, role="scale")
    attention = gqa(d, heads, rope=read_rope(c, h, 5e5))
    cross = CrossAttention(
        q=linear(H * h, d), k=linear(K * h, d), v=linear(K * h, d), o=linear(d, H * h),
        q_norm=head_norm, k_norm=head_norm,
        heads=H, kv_heads=K, head_dim=h,
    )  # fmt: skip
    plain = Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=feed_forward)
    crossing = CrossAttentionLayer(
        attn_norm=norm,
        cross_attn=cross,
        attn_gate=gate,
        mlp_norm=norm,
        mlp=feed_forward,
        mlp_gate=gate,
    )
    numbers = c.get("cross_attention_layers", _PUBLISHED)
    if not all(type(x) is int and x >= 0 for x in numbers):
        raise c.error(
            "cross_attention_layers",
            f"should list numbers of layers, not {safe(repr(numbers), 60)}",
        )
    check_listed(c, L)
    layers = cycle([crossing if i in set(numbers) else plain for i in range(L)], L)
    embed = embedding(total((V, _EXTRA_ROWS)), d)
    context = c.get("max_position_embeddings", 131_072)
    c.ignore("tie_word_embeddings")  # the embedding has rows that the head lacks
    return decoder(V, d, layers, norm, tied=False, embed=embed, context=context)
