"""DeepSeek-OCR: SAM's encoder, whose features CLIP reads in place of patches, and one linear
layer on the features of both.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.multimodal import CountedTower, UnreadBlock
from ...utils.errors import safe
from ..counted_towers import conv
from ..deep_encoder import DEEP_NAMES, deep_projector, deep_tower, feature_encoder
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..sam_tower import sam_tower

_TILES = 9
"""Tiles of an image, in the code that is shipped with the weights; vLLM makes 6 at most."""
_KEYS = {"hidden_size": "width", "num_hidden_layers": "layers", "num_attention_heads": "heads"}


@multimodal(Wrapper(types="deepseek_ocr", text_type="deepseek_v2"))
def deepseek_ocr(c: Config, text: Decoder) -> Assembly:
    v, p = c.sub("vision_config"), c.sub("projector_config")
    v.ignore("image_size", "mlp_ratio", "model_name", "model_type")
    p.ignore("model_type")
    c.ignore("candidate_resolutions", "global_view_pos", "tile_tag")
    own, sam = v.sub("width").sub("clip-l-14-224"), v.sub("width").sub("sam_vit_b")
    if (kind := p.get("projector_type", "linear")) != "linear":
        raise p.error("projector_type", f"should be linear, not {safe(repr(kind), 40)}")
    d, side, size = (
        own.dim("d_c", "width"),
        own.dim("p_c", "patch_size"),
        own.dim("s_c", "image_size"),
    )
    into, out = p.dim("d_p", "input_dim"), p.dim("d_o", "n_embed")
    if (into, out) != (2 * d, text.width):
        hint = f"the features have {2 * d} channels, and the text model reads {text.width}"
        raise p.error("input_dim", f"is {into}, and n_embed {out}", hint)
    unread = UnreadBlock(parts={"patch_embedding": conv(d, 3, side, side, bias=False)})
    sizes = d, 4 * d, own.dim("L_c", "layers"), own.dim("H_c", "heads", default=16)
    encoder = feature_encoder(own, sizes, (size // side) ** 2, unread)
    tower = deep_tower(sam, _sam(sam), encoder, d, _TILES)
    return assemble(
        text,
        vision=("model.", Part(tower, DEEP_NAMES)),
        projector=("model.", deep_projector(d, text)),
    )


def _sam(c: Config) -> CountedTower:
    sizes = {key: int(c.dim("n", name)) for key, name in _KEYS.items()}
    whole = c.get("global_attn_indexes", [2, 5, 8, 11])
    return sam_tower(Config({**sizes, "global_attn_indexes": whole}, c.source, "sam_vit_b."))
