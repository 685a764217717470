"""BLIP-2 and InstructBLIP: a vision transformer, whose features learned queries read in a
Q-Former, and a linear layer.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..blip_tower import blip_tower
from ..counted_towers import counted_tower
from ..multimodal_registry import WHOLE, Assembly, Part, Wrapper, assemble, multimodal
from ..qformer import QFORMER_NAMES, qformer
from ..tower_parts import check_class, part_config, without_images


@multimodal(
    Wrapper(
        types="blip-2 instructblip instructblipvideo", text_type="opt", prefix=WHOLE, tied_by="text"
    )
)
def blip_2(c: Config, text: Decoder) -> Assembly:
    c.ignore("image_text_hidden_size", "use_decoder_only_language_model", "initializer_factor")
    check_class(
        c,
        "Blip2ForConditionalGeneration",
        *(f"InstructBlip{x}ForConditionalGeneration" for x in ("", "Video")),
    )
    v, q = part_config(c, "vision_config", {}), part_config(c, "qformer_config", {})
    instructed = c.get("model_type", "") != "blip-2"
    tower = blip_tower(v, 1408, 6144, 39, 16)
    if instructed:
        tower = without_images(tower, "the queries of the Q-Former read the instruction, too")
    queries = c.dim("n_q", "num_query_tokens", default=32)
    projector = qformer(q, tower.block.patches.weight.shape[0], text.width, queries, instructed)
    names = QFORMER_NAMES | {
        "norm_before": "qformer.embeddings.layernorm" if instructed else "qformer.layernorm"
    }
    return assemble(
        text,
        vision=("vision_model.", counted_tower(tower, per_tile=int(queries))),
        projector=("", Part(projector, names)),
    )
