"""DeepSeek-OCR: SAM's encoder, whose features CLIP reads in place of patches, and one linear layer on the features of both."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr, total
from ...core.tree import repeat
from ...utils.errors import safe
from ..counted_towers import Modules, conv, counted, counted_part, table
from ..joined_parts import joined_parts
from ..multimodal_registry import Assembly, Part, assemble, multimodal
from ..sam_tower import ORIGINAL_SAM_NAMES, sam_tower


@multimodal()
def deepseek_ocr(c: Config, text: Decoder) -> Assembly:
    v, p = c.sub("vision_config"), c.sub("projector_config")
    v.ignore("image_size", "mlp_ratio", "model_name", "model_type")
    p.ignore("model_type")
    c.ignore("candidate_resolutions", "global_view_pos", "tile_tag")
    own, sam = v.sub("width").sub("clip-l-14-224"), v.sub("width").sub("sam_vit_b")
    if (kind := p.get("projector_type", "linear")) != "linear":
        raise p.error("projector_type", f"should be linear, not {safe(repr(kind), 40)}")
    d = own.dim("d_c", "width")
    vision = joined_parts(sam=("sam_model.", _sam(sam, d)), clip=("vision_model.", counted_part(_clip(own, d))))
    into, out = p.dim("d_p", "input_dim"), p.dim("d_o", "n_embed")
    if (into, out) != (2 * d, text.width):
        hint = f"the features have {2 * d} channels, and the text model reads {text.width}"
        raise p.error("input_dim", f"is {into}, and n_embed {out}", hint)
    token = weight(out, role="scale")
    projector = counted_part({"projector.layers": linear(out, total((d, d)), True), "image_newline": token, "view_seperator": token})
    return assemble(text, vision=("model.", vision), projector=("model.", projector))


def _sam(c: Config, out: Expr) -> Part:
    """Read SAM's encoder, with two convolutions after it, each of which halves the grid."""
    keys = {"hidden_size": "width", "num_hidden_layers": "layers", "num_attention_heads": "heads"}
    sizes = {key: int(c.dim("n", name)) for key, name in keys.items()}
    whole, channels = c.get("global_attn_indexes", [2, 5, 8, 11]), c.get("downsample_channels", [512, 1024])
    if len(channels) != 2 or channels[1] != out:
        raise c.error("downsample_channels", f"should be two widths, the second that of CLIP, {out}, not {channels!r:.40}")
    tower = sam_tower(Config({**sizes, "global_attn_indexes": whole}, c.source, "sam_vit_b."))
    first, second = channels
    after = counted_part({"net_2": conv(first, 256, 3, 3, bias=False), "net_3": conv(second, first, 3, 3, bias=False)})
    return joined_parts(encoder=("", tower._replace(names=ORIGINAL_SAM_NAMES)), after=("", after))


def _clip(c: Config, d: Expr) -> Modules:
    c.ignore("heads")
    p, s, norm = c.dim("p_c", "patch_size"), c.dim("s_c", "image_size"), layer_norm(d, 1e-5)
    layer: Modules = {
        "layer_norm1": norm,
        "self_attn.qkv_proj": linear(3 * d, d, True),
        "self_attn.out_proj": linear(d, d, True),
        "layer_norm2": norm,
        "mlp.fc1": linear(4 * d, d, True),
        "mlp.fc2": linear(d, 4 * d, True),
    }
    return {
        "embeddings.class_embedding": weight(d, role="scale"),
        "embeddings.patch_embedding": conv(d, 3, p, p, bias=False),
        "embeddings.position_embedding": table(Expr("N_c", (s // p) ** 2 + 1), d),
        "pre_layrnorm": norm,
        "transformer.layers": repeat(counted(layer), c.dim("L_c", "layers")),
    }
