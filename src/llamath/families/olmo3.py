"""OLMo 3: OLMo 2 with a window on three layers of four; only the fourth has its positions
scaled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys
from ..checkpoint.naming.gguf_names import GGUF
from ..core.attention_facts import AttentionWindow, QKPreprocess
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.positions import Rope
from ..utils.errors import ConvertError, safe
from .gguf_record import BASE, GGUFMetadata
from .layers_shared import alternating
from .olmo2 import NAMES
from .registry import family
from .rope_shared import read_rope, rope_from

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return OLMo 3's positions, scaled only in the full-attention layers."""
    from ..checkpoint.gguf_metadata.gguf_rope import read_rope_parameters, rope_theta

    sliding = {"rope_type": "default", "rope_theta": h.real("rope.freq_base_swa") or rope_theta(h)}
    return {
        "rope_parameters": {"full_attention": read_rope_parameters(h), "sliding_attention": sliding}
    }


def _write_gguf(f: GGUFFacts) -> Keys:
    """Refuse another base in the layers with a window, which llama.cpp ignores."""
    from ..checkpoint.gguf_metadata.gguf_keys import windows_of_layers_keys
    from ..checkpoint.gguf_metadata.gguf_rope import rope_scaling_keys

    if f.rope is not None and f.sliding_rope is not None and f.rope.theta != f.sliding_rope.theta:
        raise ConvertError(
            f"{safe(f.name)}: llama.cpp's olmo2 architecture has one rope_theta for all "
            "layers, and this model has "
            f"{f.rope.theta:g} and {f.sliding_rope.theta:g}",
            hint="the file would be a different model, so it is not written",
        )
    base = {"rope.freq_base": f.rope.theta if f.rope else None} | rope_scaling_keys(f)
    return (
        windows_of_layers_keys(f)
        | base
        | {"rope.freq_base_swa": f.sliding_rope.theta if f.sliding_rope else None}
    )


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="olmo2",
    gguf_metadata=GGUFMetadata(
        keys=f"{BASE} rms_norm_eps attention_bias sliding_window layer_types=sliding_layer_types",
        read=_read_gguf,
        write=_write_gguf,
        applies=lambda h: bool(h.uniform_integer("attention.sliding_window")),
    ),
    causal_class="Olmo3ForCausalLM",
)
def olmo3(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = H, K, h = c.heads(d)
    eps, bias, theta = (
        c.get("rms_norm_eps", 1e-5),
        c.get("attention_bias", False),
        c.get("rope_theta", 500000.0),
    )
    norm, q_norm, k_norm = rms(d, eps), rms(H * h, eps), rms(K * h, eps)
    mlp = swiglu(d, F, c.activation("hidden_act"))

    def layer(rotary: Rope, window: int | None = None) -> Layer:
        attention = gqa(
            d,
            heads,
            bias=bias,
            q_norm=q_norm,
            k_norm=k_norm,
            qk_preprocess=QKPreprocess(across_heads=True),
            rope=rotary,
            window=AttentionWindow(size=window),
        )
        return Layer(attn=attention, attn_out_norm=norm, mlp=mlp, mlp_out_norm=norm)

    far, near = read_rope(c, h, theta), Rope(theta=theta, dim=h)
    if "rope_parameters" in c:
        s = c.sub("rope_parameters")
        far, near = (
            rope_from(c, s.sub(kind), theta=theta, dim=h)
            for kind in ("full_attention", "sliding_attention")
        )
    layers = alternating(
        c,
        c.dim("L", "num_hidden_layers"),
        layer(near, c.nullable("sliding_window", 4096)),
        layer(far),
        4,
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
