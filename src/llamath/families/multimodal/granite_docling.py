"""Granite Docling 2: SigLIP on tiles, and a coarse and a fine path of joined patches, each with
mergers of earlier hidden states.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear
from ...core.expr import Expr, product
from ...core.multimodal import CountedBlock
from ..counted_towers import Modules, counted_part, each, stack
from ..multimodal_registry import TEXT_MODEL, Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import part_config
from ..towers import granite_docling_tower


@multimodal(
    Wrapper(types="granite_docling", text_type="granite_docling_text", prefix=TEXT_MODEL, tied=True)
)
def granite_docling(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    if c.get("density_router_hidden_size", None) is not None:
        raise c.error(
            "density_router_hidden_size",
            "asks for a router between the two paths, which is not known",
        )
    tower = granite_docling_tower(v)
    d, out, k = (
        tower.block.patches.weight.shape[0],
        v.dim("d_o", "out_hidden_size", default=1024),
        v.dim("k_v", "scale_factor", default=4),
    )
    n = Expr("deepstack", len(v.get("deepstack_visual_indexes", [3, 7, 10])))

    def path(side: int) -> Modules:
        joined = product((side, side, d))
        merger: Modules = {
            "layer_norm": layer_norm(joined, 1e-5),
            "linear_1": linear(out, joined, bias=True),
            "linear_2": linear(out, out, bias=True),
        }
        return {"projection": linear(out, joined), "deepstack_mergers": stack(n, merger)}

    projector: Modules = {
        "ln_in": layer_norm(d, 1e-5),
        **{f"coarse.{name}": x for name, x in path(k).items()},
        **(
            {f"fine.{name}": x for name, x in path(Expr("k_f", int(k) // 2)).items()}
            if v.get("use_fine_route", True)
            else {}
        ),
        **each("", "ln_mid ln_out", layer_norm(out, 1e-5)),
        "mlp_fc2": linear(out, out),
    }
    connector = counted_part(projector)
    return assemble(
        text,
        vision=(
            "model.vision_model.",
            Part(CountedBlock(parts=dict(tower.block.children)), tower.names),
        ),
        projector=("model.vision_model.connector.", connector),
    )
