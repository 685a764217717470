"""MiMo-V2: MiMo-V2-Flash with other sizes, and towers that are not counted; q, k and v may share a
tensor, in the order of the ranks of its training.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.tree import Block, sequence
from .mimo_v2_flash import NAMES, NarrowValueAttention, mimo_v2_flash
from .multimodal_registry import Wrapper, declare_wrapper
from .registry import family

declare_wrapper(Wrapper(types="mimo_v2", text_type="mimo_v2", flat=True))
_QKV = ("attn.q", "attn.k", "attn.v")
FUSED = NAMES.with_changes(
    inside=dict.fromkeys(_QKV, "self_attn.qkv_proj"), layouts=dict.fromkeys(_QKV, "heads")
)


class FusedAttention(NarrowValueAttention):
    """Attention whose q, k and v share a tensor: the heads of the first rank, those of the next."""

    layout_sizes: ClassVar[dict[str, str]] = {
        **NarrowValueAttention.layout_sizes,
        "groups": "ranks",
    }
    ranks: int


def _names(tree: Decoder) -> Scheme:
    return FUSED if isinstance(getattr(tree.layers[0], "attn", None), FusedAttention) else NAMES


@family(hf=NAMES, hf_of=_names)
def mimo_v2(c: Config) -> Decoder:
    layout = c["attention_projection_layout"]
    tree: Decoder = mimo_v2_flash(c)
    if layout == "split":
        return tree
    if layout != "fused_qkv":
        raise c.error(
            "attention_projection_layout", f"is {layout!r:.40}", "known: split, fused_qkv"
        )
    # both published models were trained on as many ranks as full attention has key/value heads
    ranks = c.dim("K", "num_key_value_heads", default=4)
    fused = {id(x): _fused(c, x, int(ranks)) for x, _ in tree.layers.distinct()}
    layers = sequence((fused[id(x)] for x in tree.layers), count_dim=tree.layers.n)
    return tree.replace(layers=layers)


def _fused(c: Config, layer: Block, ranks: int) -> Layer:
    assert isinstance(layer, Layer) and isinstance(layer.attn, NarrowValueAttention)
    if layer.attn.kv_heads % ranks:
        raise c.error(
            "swa_num_key_value_heads",
            f"is {layer.attn.kv_heads}, which {ranks} ranks do not divide",
            "there are as many ranks as key/value heads of layers without a window",
        )
    return layer.replace(attn=layer.attn.extended(FusedAttention, ranks=ranks))
