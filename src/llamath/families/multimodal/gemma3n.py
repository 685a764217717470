"""Gemma 3n: MobileNet-V5 for images, a conformer for sound, and for each an embedding of its own
tokens and a linear layer.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, rms
from ...utils.errors import UnknownModel, safe
from ..conformer_towers import gemma3n_conformer
from ..counted_towers import Modules, counted_part, each, table
from ..mobilenet_tower import FEATURES, mobilenet
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..tower_parts import part_config

_MOBILENET = "mobilenetv5_300m_enc"


@multimodal(Wrapper(types="gemma3n", text_type="gemma3n_text", prefix=LANGUAGE_MODEL, tied=True))
def gemma3n(c: Config, text: Decoder) -> Assembly:
    v, a = part_config(c, "vision_config", {}), part_config(c, "audio_config", {})
    if (name := v.get("architecture", _MOBILENET)) != _MOBILENET or v.get("model_args", {}):
        raise UnknownModel(
            f"{c.source}: vision_config.architecture is {safe(repr(name), 60)}",
            hint=f"known: {_MOBILENET} without model_args",
        )
    v.ignore(
        "do_pooling",
        "initializer_range",
        "label_names",
        "model_type",
        "num_classes",
        "pretrained_cfg",
    )
    if (width := v.dim("d_v", "hidden_size", default=FEATURES)) != FEATURES:
        raise v.error(
            "hidden_size", f"is {width}, but the features of {_MOBILENET} have {FEATURES} channels"
        )
    sound = a.dim("d_a", "hidden_size", default=1536)
    return assemble(
        text,
        vision=("model.vision_tower.timm_model.", counted_part(mobilenet())),
        projector=("model.embed_vision.", counted_part(_embedder(v, width, text))),
        audio=("model.audio_tower.", counted_part(gemma3n_conformer(a, sound))),
        audio_projector=("model.embed_audio.", counted_part(_embedder(a, sound, text))),
    )


def _embedder(c: Config, d: int, text: Decoder) -> Modules:
    """Read the embedding of the tokens that stand for images or sound, and the linear layer on
    features.
    """
    c.ignore("vocab_offset", "rms_norm_eps")
    norm = rms(d, 1e-6)
    rows = table(c.dim("V_m", "vocab_size", default=128), d)
    return {
        "embedding": rows,
        **each("", "hard_embedding_norm soft_embedding_norm", norm),
        "embedding_projection": linear(text.width, d),
    }
