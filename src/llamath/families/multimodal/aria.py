"""Aria: SigLIP, whose features learned queries read, more of them for a larger image."""

from __future__ import annotations

from typing import Any

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.image_sizes import FixedImage
from ..counted_towers import Modules, counted, counted_tower, each
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import part_config, with_features, without_images
from ..towers import plain_siglip_tower

_QUERIES = {1225: 128, 4900: 256}
_ATTENTION = "cross_attn.multihead_attn."
_PROJECTOR = {
    "query": "query",
    "query_norm": "cross_attn.layer_norm",
    "norm": "cross_attn.layer_norm_kv",
    **{x: f"cross_attn.{x}_proj" for x in "qkv"},
    **{
        f"inner_{x}.{kind}": f"{_ATTENTION}in_proj_{kind}"
        for x in "qkv"
        for kind in ("weight", "bias")
    },
    "o": f"{_ATTENTION}out_proj",
    "linear": "cross_attn.linear",
    "out_norm": "layer_norm",
    "mlp.up": "feed_forward.linear_in",
    "mlp.down": "feed_forward.linear_out",
}


_FORMS = {"hf-5": LLAVA_FORMS["hf-5"]}
_MODULES = {
    **{
        f"layers.{{l}}.mlp.experts.{{e}}.{x}.weight": "mlp.experts.gate_up_proj"
        for x in ("gate", "up")
    },
    "layers.{l}.mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
}


@multimodal(
    Wrapper(types="aria", text_type="aria_text", prefix=WHOLE), forms=_FORMS, modules=_MODULES
)
def aria(c: Config, text: Decoder) -> Assembly:
    c.ignore("max_value_projector_patch_to_query_dict")
    v = part_config(c, "vision_config", {})
    tower = with_features(c, plain_siglip_tower(v, width=1152, heads=16), default=-1, strategy=None)
    sizes, d, out, queries = (
        tower.block.image_sizes,
        v.dim("d_v", "hidden_size", default=1152),
        text.width,
        _read_queries(c),
    )
    assert isinstance(sizes, FixedImage)
    patches = sizes.grid(1, 1).patches
    if patches not in queries:
        tower = without_images(
            tower, f"projector_patch_to_query_dict has no number of queries for {patches} patches"
        )
    norm, plain, inner = layer_norm(d, 1e-5), linear(d, d), linear(d, d, True)
    modules: Modules = {
        "query": weight(max(queries.values()), d, role="lookup"),
        "query_norm": norm,
        "norm": norm,
        **each("", "q k v", plain),
        **each("inner_", "q k v", inner),
        **each("", "o linear", inner),
        "out_norm": norm,
        "mlp": mlp(d, out, "gelu_new").replace(down=linear(out, out)),
    }
    vision, projector = (
        counted_tower(tower, per_tile=queries.get(patches, 0)),
        Part(counted(modules), _PROJECTOR),
    )
    return assemble(
        text, vision=("vision_tower.", vision), projector=("multi_modal_projector.", projector)
    )


def _read_queries(c: Config) -> dict[int, int]:
    """Read the number of queries for each number of patches."""
    found: Any = c.get("projector_patch_to_query_dict", None) or _QUERIES
    if not all(str(x).isdecimal() and type(y) is int and y > 0 for x, y in found.items()):
        raise c.error(
            "projector_patch_to_query_dict",
            f"should give numbers of queries by numbers of patches, not {found!r:.60}",
        )
    return {int(x): y for x, y in found.items()}
