"""The text model of ERNIE 4.5 VL: ERNIE 4.5's mixture, with other experts for the tokens of
images.
"""

from __future__ import annotations

from ..core.blocks import Decoder, Layer, ModalityMoE, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.tree import Stack, sequence
from .ernie4_5_moe import NAMES as OF_TEXT
from .layers_shared import mlp_kinds
from .registry import family
from .rope_shared import read_rope

_VISION = {
    f"mlp.vision_experts.{{e}}.{x}": f"mlp.experts.{{e}}.{x}_proj" for x in ("gate", "up", "down")
}
NAMES = OF_TEXT.with_changes(
    inside={
        **_VISION,
        "mlp.router.weight": "mlp.gate.weight",
        "mlp.vision_router.weight": "mlp.gate.weight_1",
        "mlp.vision_correction": "mlp.moe_statics.e_score_correction_bias",
    },
    layouts={"mlp.router.weight": "flip", "mlp.vision_router.weight": "flip"},
)


@family("ernie4_5_vl_moe_text", hf=NAMES)
def ernie4_5_vl_moe(c: Config) -> Decoder:
    d, V, L = (
        c.dim("d", "hidden_size", default=2560),
        c.dim("V", "vocab_size", default=103_424),
        c.dim("L", "num_hidden_layers", default=28),
    )
    F, heads = (
        c.dim("F", "intermediate_size", default=12_288),
        c.heads(d, num_heads=20, num_kv_heads=4),
    )
    norm, bias, activation = (
        rms(d, c.get("rms_norm_eps", 1e-5)),
        c.get("use_bias", False),
        c.activation("hidden_act", "silu"),
    )
    attn = gqa(d, heads, bias=bias, rope=read_rope(c, heads.head_dim, theta=5e5, interleaved=True))
    dense = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, activation, bias=bias))
    kinds = {"dense": dense, "sparse": dense.replace(mlp=_moe(c, d, activation, bias))}
    layers, tied = (
        sequence((kinds[x] for x in mlp_kinds(c, L, first=1)), L),
        c.get("tie_word_embeddings", True),
    )
    c.ignore("moe_norm_min")
    return decoder(V, d, layers, norm, tied, context=c.positive_int("max_position_embeddings"))


def _moe(c: Config, d: Expr, activation: str, bias: bool) -> MoE:
    E, k = (
        c.dim("E", "moe_num_experts|num_experts", default=64),
        c.dim("k", "moe_k|num_experts_per_tok", default=6),
    )
    widths, S = (
        c.get("moe_intermediate_size", [1536, 512]),
        c.dim("S", "moe_num_shared_experts", default=2, least=0),
    )
    if len(widths) != 2 or not all(type(x) is int and x > 0 for x in widths):
        raise c.error(
            "moe_intermediate_size",
            f"should have a width for text and one for images, not {widths!r:.40}",
        )
    Fe, Fv = Expr("Fe", widths[0]), Expr("Fv", widths[1])
    shared, correction = (
        swiglu(d, S * Fe, activation, bias) if S else None,
        weight(1, E, role="bias"),
    )
    text = mixture(d, E, k, swiglu(d, Fe, activation), shared=shared, fp32_router=True).replace(
        correction=correction
    )
    images = Stack(((swiglu(d, Fv, activation),), E), active=0, first=int(E))
    return text.extended(
        ModalityMoE, vision_router=text.router, vision_correction=correction, vision_experts=images
    )
